//! What a document ends within.
//!
//! Behind a tag that has not ended nothing may be added: browsers drop it at the end of the document, but with a `>` behind it, it is one.

use crate::scan::Scanner;

/// Who knows.
#[derive(Debug, Default)]
pub(crate) enum Tail {
    /// The rewriter holds whatever has begun, since somebody reads texts or comments, and writes it at the end.
    Held,
    /// It passes most things on as they come, and this goes along.
    Followed(Box<Scanner>),
    /// Nobody: nobody has said that something may be added.
    #[default]
    Unknown,
}

impl Tail {
    /// The rewriter is going to get this.
    pub fn see(&mut self, bytes: &[u8]) {
        if let Self::Followed(scanner) = self {
            go(scanner, bytes);
        }
    }

    /// Whether the document ends within a tag or the like, or may do so; `held` is what the rewriter has held.
    pub fn is_unfinished(&self, held: &[u8]) -> bool {
        match self {
            Self::Held if held.is_empty() => false,
            Self::Held => {
                let mut scanner = Scanner::new(false);
                go(&mut scanner, held);
                scanner.is_unfinished()
            }
            Self::Followed(scanner) => scanner.is_unfinished(),
            Self::Unknown => true,
        }
    }

    /// How much memory it has, bytes.
    pub fn held(&self) -> usize {
        match self {
            Self::Followed(scanner) => scanner.held(),
            _ => 0,
        }
    }
}

fn go(scanner: &mut Scanner, bytes: &[u8]) {
    let mut at = 0;
    while scanner.next(bytes, &mut at).is_some() {}
}
