//! The construct in which a document ends.
//!
//! Nothing may be appended inside an unfinished tag: browsers drop such a tag at the end of the document, but appended text with a
//! `>` would complete it.

use crate::scan::Scanner;

/// The source of the answer.
#[derive(Debug, Default)]
pub(crate) enum Tail {
    /// The rewriter holds every construct that has begun, because a feature reads texts or comments, and writes it at the end.
    Held,
    /// The lighter pass: this scanner runs along.
    Followed(Box<Scanner>),
    /// Unknown: no source has stated whether content may be added.
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

    /// Returns true if the document may end within a tag or the like; `held` is the text held by the rewriter.
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

    /// The memory that it holds, bytes.
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
