//! The construct in which a document ends.
//!
//! Nothing may be appended inside an unfinished tag: browsers drop such a tag at the end of the document, but appended text with a
//! `>` would complete it.

use crate::scan::Scanner;

/// The way to find out in which construct a document ends.
#[derive(Debug, Default)]
pub(crate) enum Tail {
    /// A feature reads texts or comments. The rewriter then holds each unfinished construct and writes it at the end, so
    /// the held text gives the answer.
    Held,
    /// No feature reads texts or comments. This scanner reads the document too, and gives the answer.
    Followed(Box<Scanner>),
    /// Unknown, because no feature needs the answer.
    #[default]
    Unknown,
}

impl Tail {
    /// Records input that the rewriter is about to receive.
    pub fn see(&mut self, bytes: &[u8]) {
        if let Self::Followed(scanner) = self {
            go(scanner, bytes);
        }
    }

    /// Returns true if the document may end within a tag or a similar construct. `held` is the text that the rewriter
    /// holds.
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
