//! Bytes that are fixed, shared or owned.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

/// Bytes of a field's value, of a body or of a target: a constant of the program, a part of the settings that many
/// requests share, or bytes made for one request. Only the last kind costs an allocation.
#[derive(Clone)]
pub enum Text {
    /// A constant.
    Static(&'static [u8]),
    /// A part of settings.
    Shared(Arc<[u8]>),
    /// Made for this use.
    Owned(Vec<u8>),
}

impl Text {
    /// Nothing.
    pub const EMPTY: Self = Self::Static(b"");
}

impl Default for Text {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Shared(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self::Static(text.as_bytes())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Owned(text.into_bytes())
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

impl From<Arc<[u8]>> for Text {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self::Shared(bytes)
    }
}

impl From<Text> for Vec<u8> {
    fn from(text: Text) -> Self {
        match text {
            Text::Owned(bytes) => bytes,
            text => text.to_vec(),
        }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text {}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self))
    }
}
