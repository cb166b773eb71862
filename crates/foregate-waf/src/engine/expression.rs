//! Texts with macros, compiled.

use super::plan::{Pick, ValueSource};
use super::tx::Slot;

/// A text in which macros stand for values of the transaction.
#[derive(Debug)]
pub(crate) enum Expression {
    /// A text without macros.
    Fixed(Box<[u8]>),
    /// A text with macros, as pieces.
    Pieces(Box<[ExpressionPiece]>),
}

/// A part of a text.
#[derive(Debug)]
pub(crate) enum ExpressionPiece {
    /// A literal text.
    Text(Box<[u8]>),
    /// The value of a slot of `TX`.
    Tx(Slot),
    /// The first picked value of another source.
    Value(ValueSource, Pick),
}

impl Expression {
    /// The text before the first macro; all of the text if it has no macro.
    pub(crate) fn beginning(&self) -> &[u8] {
        match self {
            Self::Fixed(text) => text,
            Self::Pieces(pieces) => match pieces.first() {
                Some(ExpressionPiece::Text(text)) => text,
                _ => b"",
            },
        }
    }

    /// The slot, if the expression is only the value of one slot.
    pub(crate) fn slot(&self) -> Option<Slot> {
        match self {
            Self::Pieces(pieces) => match &**pieces {
                [ExpressionPiece::Tx(slot)] => Some(*slot),
                _ => None,
            },
            Self::Fixed(_) => None,
        }
    }
}
