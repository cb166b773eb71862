//! The key under which a response is stored.

use std::hash::Hasher;

use foregate_wire::Scheme;

use crate::secret::Secret;
use crate::uri::Uri;
use crate::vary::Variant;

/// The parts of a key, other than the address.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyParts<'a> {
    /// The raw target, if the origin gets it in place of the normal form. Origins may treat two spellings
    /// differently, so different spellings must not share a key.
    pub raw_target: Option<&'a [u8]>,
    /// Values that the route adds to the key, such as a language or a device class.
    pub additions: &'a [&'a [u8]],
}

/// The text of a key. Each part follows its length, so that two keys with different parts never have the same text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyText(Vec<u8>);

impl KeyText {
    /// An empty text. [`write`](Self::write) can fill it again and again without new allocations.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Writes the text for an address and parts. The query of `uri` has to be the output of [`QueryRule::apply`].
    pub fn write(&mut self, uri: &Uri<'_>, parts: &KeyParts<'_>) {
        self.0.clear();
        self.site(uri);
        self.part(uri.path);
        self.optional(uri.query);
        self.optional(parts.raw_target);
        for addition in parts.additions {
            self.part(addition);
        }
    }

    /// Scheme, host and port.
    fn site(&mut self, uri: &Uri<'_>) {
        self.0.push(match uri.scheme {
            Scheme::Http => b'h',
            Scheme::Https => b's',
        });
        self.0.extend_from_slice(&uri.special_port().unwrap_or(0).to_le_bytes());
        self.part(uri.host.as_bytes());
    }

    fn part(&mut self, part: &[u8]) {
        // Each part comes from a request's head, which is far shorter than 4 GiB.
        self.0.extend_from_slice(&(part.len() as u32).to_le_bytes());
        self.0.extend_from_slice(part);
    }

    fn optional(&mut self, part: Option<&[u8]>) {
        self.0.push(u8::from(part.is_some()));
        self.part(part.unwrap_or_default());
    }

    /// Restores a text from the bytes of [`as_bytes`](Self::as_bytes), for example those of another process. `None`
    /// for bytes that are no key.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        ResponseAddress::read(bytes).map(|_| Self(bytes.to_vec()))
    }

    /// The path of the address; empty for an empty text.
    pub fn path(&self) -> &[u8] {
        ResponseAddress::read(&self.0).map(|address| address.path).unwrap_or_default()
    }

    /// The bytes of the text. A lookup compares them when the hashes match.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key.
    pub fn key(&self, secret: &Secret) -> Key {
        Key(secret.hash128(&self.0))
    }
}

/// The hash of a key: 128 bits that cannot be predicted without the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(crate) u128);

impl Key {
    /// The hash as a number.
    pub fn to_bits(self) -> u128 {
        self.0
    }

    /// The key with this hash, from [`to_bits`](Self::to_bits).
    pub fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The key under which the map of a store has a variant with this key, for one generation of the list of
    /// selecting fields. The generation is added to the key. Keys are hashes, so the sum is never another key.
    #[must_use]
    pub fn of_generation(self, generation: u64) -> Self {
        Self(self.0.wrapping_add(u128::from(generation) << 32))
    }

    /// The key of one of the variants under this key.
    #[must_use]
    pub fn variant(self, variant: Variant, secret: &Secret) -> Self {
        let mut text = [0; 32];
        let (key, values) = text.split_at_mut(16);
        key.copy_from_slice(&self.0.to_le_bytes());
        values.copy_from_slice(&variant.0.to_le_bytes());
        Self(secret.hash128(&text))
    }
}

/// A hasher that passes keys through, since keys are hashes already.
#[derive(Clone, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0.rotate_left(8) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Scheme, host and port of a stored response, and its path with the query: the parts of its key that purges look at.
pub(crate) struct ResponseAddress<'a> {
    pub(crate) site: &'a [u8],
    /// Site, path and query together.
    pub(crate) address: &'a [u8],
    pub(crate) path: &'a [u8],
    pub(crate) query: Option<&'a [u8]>,
}

impl<'a> ResponseAddress<'a> {
    /// Reads the text of a key. `None` for bytes that are not the text of a key.
    pub(crate) fn read(text: &'a [u8]) -> Option<Self> {
        let (_, rest) = text.split_at_checked(3)?;
        let (_, rest) = read_part(rest)?;
        let site = text.get(..text.len() - rest.len())?;
        let (path, rest) = read_part(rest)?;
        let (has_query, rest) = rest.split_first()?;
        let (query, rest) = read_part(rest)?;
        let address = text.get(..text.len() - rest.len())?;
        Some(Self { site, address, path, query: (*has_query == 1).then_some(query) })
    }

    /// Returns whether `path?query` begins with these bytes.
    pub(crate) fn begins_with(&self, prefix: &[u8]) -> bool {
        if prefix.len() <= self.path.len() {
            return self.path.starts_with(prefix);
        }
        let Some([b'?', rest @ ..]) = prefix.strip_prefix(self.path) else { return false };
        self.query.is_some_and(|query| query.starts_with(rest))
    }
}

fn read_part(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = text.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// The bytes of [`ResponseAddress::site`] for an address.
pub(crate) fn site(uri: &Uri<'_>) -> Vec<u8> {
    let mut text = KeyText::new();
    text.site(uri);
    text.0
}

/// The bytes of [`ResponseAddress::address`] for an address.
pub(crate) fn address(uri: &Uri<'_>) -> Vec<u8> {
    let mut text = KeyText::new();
    text.site(uri);
    text.part(uri.path);
    text.optional(uri.query);
    text.0
}

/// The site at the start of the bytes that [`address`] makes.
pub(crate) fn site_of(address: &[u8]) -> &[u8] {
    /// The bytes of scheme and port, which precede the length of the host.
    const BEFORE: usize = 3;
    let length =
        address.get(BEFORE..).and_then(|rest| rest.first_chunk()).map(|bytes| u32::from_le_bytes(*bytes));
    let end = length.map_or(0, |length| (BEFORE + 4).saturating_add(length as usize));
    address.get(..end).unwrap_or(address)
}

/// The parameters of the query that belong to the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryRule {
    /// The parameters that belong to the key.
    pub parameters: Parameters,
    /// `true` if the order of parameters does not count. Parameters with the same name keep their order.
    pub sort: bool,
}

/// A selection of parameters by name; a name that ends in `*` matches all names with this beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Parameters {
    /// All parameters.
    #[default]
    All,
    /// Only these parameters.
    Keep(Vec<String>),
    /// All parameters but these.
    Drop(Vec<String>),
}

impl QueryRule {
    /// Writes the query for the key into `out`, which is cleared first. Returns false if the key has no query.
    ///
    /// The origin should get this query, too. If the origin sees a parameter that is not part of the key, one
    /// client can choose the response that all others get. A parameter with a `;` always counts, since some origins
    /// read it as two parameters.
    pub fn apply(&self, query: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
        out.clear();
        let Some(query) = query else { return false };
        if self.parameters == Parameters::All && !self.sort {
            out.extend_from_slice(query);
            return true;
        }
        let all = query.split(|&byte| byte == b'&').filter(|parameter| !parameter.is_empty());
        let mut kept: Vec<_> = all.filter(|parameter| self.counts(parameter)).collect();
        if self.sort {
            kept.sort_by_key(|parameter| name(parameter));
        }
        for (number, parameter) in kept.iter().enumerate() {
            if number > 0 {
                out.push(b'&');
            }
            out.extend_from_slice(parameter);
        }
        !kept.is_empty()
    }

    fn counts(&self, parameter: &[u8]) -> bool {
        let listed = |names: &[String]| names.iter().any(|listed| is_named(name(parameter), listed));
        let counts = match &self.parameters {
            Parameters::All => true,
            Parameters::Keep(names) => listed(names),
            Parameters::Drop(names) => !listed(names),
        };
        counts || parameter.contains(&b';')
    }
}

/// The raw name of a parameter.
fn name(parameter: &[u8]) -> &[u8] {
    parameter.split(|&byte| byte == b'=').next().unwrap_or_default()
}

/// Returns whether a raw name, decoded like a form, is the listed name.
fn is_named(raw: &[u8], listed: &str) -> bool {
    let (listed, whole) = match listed.strip_suffix('*') {
        Some(start) => (start, false),
        None => (listed, true),
    };
    let mut decoded = DecodedName(raw);
    let begins = listed.bytes().all(|byte| decoded.next() == Some(byte));
    begins && (!whole || decoded.next().is_none())
}

/// The bytes of a name, decoded like a form: `%41` is `A`, and `+` is a blank.
struct DecodedName<'a>(&'a [u8]);

impl Iterator for DecodedName<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        if let [b'%', high, low, rest @ ..] = self.0
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            self.0 = rest;
            return Some((high << 4 | low) as u8);
        }
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(if *first == b'+' { b' ' } else { *first })
    }
}
