//! The secret of a store.

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// The secret under which keys and variants are hashed: without it, an attacker cannot make two of them collide.
#[derive(Clone, Copy)]
pub struct Secret([u8; 16]);

impl Secret {
    /// Takes random bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the store that keeps them with its objects.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Hashes a text to 128 bits. Texts with equal hashes count as equal.
    pub(crate) fn hash128(&self, text: &[u8]) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(text);
        hasher.finish128().as_u128()
    }

    /// Hashes a text to 64 bits, for small sets.
    pub(crate) fn hash64(&self, text: &[u8]) -> u64 {
        self.hash64_of(&[text])
    }

    /// Like [`hash64`](Self::hash64), for a text in parts.
    pub(crate) fn hash64_of(&self, parts: &[&[u8]]) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        parts.iter().for_each(|part| hasher.write(part));
        hasher.finish()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<masked>")
    }
}
