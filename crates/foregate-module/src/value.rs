//! Values that steps hand to later steps.

use core::any::Any;
use core::net::IpAddr;

use crate::text::Text;

/// A value that one step writes and later steps read. The implementing type is only a name; [`Data`](Self::Data) is the
/// type of the value.
///
/// ```
/// use foregate_module::{Shown, Value};
///
/// /// How much a client is thought to be a program, 0 to 100.
/// pub struct BotScore;
///
/// impl Value for BotScore {
///     type Data = u8;
///     const NAME: &'static str = "bot.score";
///     const ABOUT: &'static str = "How much the client is thought to be a program, 0 to 100.";
///     fn show(score: &u8) -> Option<Shown<'_>> {
///         Some(Shown::Int(i64::from(*score)))
///     }
///     const SHOWS: Option<foregate_module::Kind> = Some(foregate_module::Kind::Int);
/// }
/// ```
pub trait Value: 'static {
    /// Its data.
    type Data: Any + Send + Sync;
    /// Its name in expressions, documentation and messages: lower case, words joined by `-`, parts by `.`.
    const NAME: &'static str;
    /// Its description, a sentence.
    const ABOUT: &'static str;
    /// Its kind in expressions and logs; `None` if only steps read it.
    const SHOWS: Option<Kind> = None;
    /// The name of the value that the platform writes in answer to this one. Only a [`Fetch`](crate::Fetch) has such a
    /// value.
    const ANSWER: Option<&'static str> = None;

    /// The value for expressions and logs, of the kind in [`SHOWS`](Self::SHOWS).
    fn show(_data: &Self::Data) -> Option<Shown<'_>> {
        None
    }

    /// Called when there is no memory for the data that the value [holds](crate::Holds), and the request continues
    /// without them. Keeps the small part of the data, such as results, and returns true. If it returns false, the value
    /// is dropped, unless the value owns no memory.
    fn shrink(_data: &mut Self::Data) -> bool {
        false
    }
}

/// The kind of value in expressions and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A truth value.
    Bool,
    /// A whole number.
    Int,
    /// Bytes.
    Bytes,
    /// An address.
    Ip,
    /// A map from names to bytes.
    Map,
    /// Whole numbers, in order.
    Ints,
}

/// A value as expressions and logs see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown<'v> {
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Bytes.
    Bytes(&'v [u8]),
    /// An address.
    Ip(IpAddr),
    /// Bytes by their names, each name once.
    Map(&'v [(Text, Text)]),
    /// Whole numbers, in order.
    Ints(&'v [i64]),
}
