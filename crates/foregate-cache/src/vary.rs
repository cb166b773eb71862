//! Selection among the responses of one key (RFC 9111, section 4.1).

use std::sync::Arc;

use foregate_wire::{HeaderList, NameId};

use crate::secret::Secret;
use crate::text::{is_token, members, trim};

/// The most names in Vary. A response with more is not stored.
const MAX_NAMES: usize = 32;

/// The names in the Vary field of a response: in lower case, sorted, each once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VaryNames(Arc<[u8]>);

impl VaryNames {
    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b',')
    }

    /// The names as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The names in the bytes of [`as_bytes`](Self::as_bytes).
    pub fn from_bytes(names: &[u8]) -> Self {
        Self(Arc::from(names))
    }

    /// The variant that a request asks for among the responses that vary by these names.
    pub fn variant(&self, request: &HeaderList, secret: &Secret) -> Variant {
        Variant(secret.hash128(&self.selecting(request)))
    }

    /// The names with the values of a request, in normal form. The result is equal for requests that select the
    /// same response.
    pub fn selecting(&self, request: &HeaderList) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.0.len() + 128);
        text.extend_from_slice(&self.0);
        for name in self.iter() {
            let mut lines = request.get_all_name(name).peekable();
            text.push(u8::from(lines.peek().is_some()));
            // The length precedes the value, so that one value cannot look like two.
            let length_at = text.len();
            text.extend_from_slice(&[0; size_of::<u64>()]);
            let start = text.len();
            normalise(NameId::from_name(name), lines, &mut text);
            let length = ((text.len() - start) as u64).to_le_bytes();
            if let Some(place) = text.get_mut(length_at..start) {
                place.copy_from_slice(&length);
            }
        }
        text
    }
}

/// The values of the selecting fields of a request, hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant(pub(crate) u128);

/// The names of the selecting fields of a stored response, and the values that select it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    /// The names.
    pub names: VaryNames,
    /// The values.
    pub variant: Variant,
}

impl Vary {
    /// Reads Vary. `None` if no other request may be answered with the response: Vary has `*`, a member that is no
    /// name, or too many names.
    pub(crate) fn read(response: &HeaderList, request: &HeaderList, secret: &Secret) -> Option<Option<Self>> {
        let mut names = Vec::new();
        for name in response.get_all(NameId::Vary).flat_map(members) {
            if name == b"*" || !is_token(name) || names.len() == MAX_NAMES {
                return None;
            }
            names.push(name.to_ascii_lowercase());
        }
        if names.is_empty() {
            return Some(None);
        }
        names.sort_unstable();
        names.dedup();
        let names = VaryNames(Arc::from(names.join(&b',')));
        let variant = names.variant(request, secret);
        Some(Some(Self { names, variant }))
    }

    /// Returns whether a request selects the response.
    pub fn selects(&self, request: &HeaderList, secret: &Secret) -> bool {
        self.names.variant(request, secret) == self.variant
    }

    pub(crate) fn memory(&self) -> usize {
        self.names.0.len() + 2 * size_of::<usize>()
    }
}

/// Appends the normal form of a selecting field: the same for values with the same meaning.
fn normalise<'a>(id: NameId, lines: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    match id {
        NameId::AcceptEncoding => {
            let mut listed: Vec<_> = lines.flat_map(members).collect();
            // Most browsers already send members in normal form, so only the order has to be fixed.
            if listed.iter().all(|member| is_normal(member)) {
                sort(&mut listed);
                join(&listed, out);
            } else {
                let mut listed: Vec<_> = listed.into_iter().map(preference).collect();
                sort(&mut listed);
                join(&listed, out);
            }
        }
        // The order of languages with the same weight stays: servers prefer the first of them.
        NameId::AcceptLanguage => {
            let mut listed: Vec<_> = lines.flat_map(members).map(preference).collect();
            listed.sort_by_key(|preference| std::cmp::Reverse(weight_of(preference)));
            join(&listed, out);
        }
        // These fields are not lists: a blank, a comma or an empty member may mean something.
        NameId::Cookie
        | NameId::Authorization
        | NameId::UserAgent
        | NameId::Origin
        | NameId::Referer
        | NameId::Host => {
            for line in lines {
                out.extend_from_slice(line);
                out.push(b'\n');
            }
        }
        // Several lines are one list (RFC 9110, section 5.3). Empty members are kept, since the field may be no list.
        _ => {
            let split = |line: &'a [u8]| {
                // A comma in a quoted string does not separate members.
                let is_plain = !line.contains(&b'"');
                line.split(move |&byte| byte == b',' && is_plain).map(trim)
            };
            join(&lines.flat_map(split).collect::<Vec<_>>(), out);
        }
    }
}

/// Puts preferences in a fixed order, each once.
fn sort<T: Ord>(preferences: &mut Vec<T>) {
    preferences.sort_unstable();
    preferences.dedup();
}

/// Appends the members of a list.
fn join<T: AsRef<[u8]>>(members: &[T], out: &mut Vec<u8>) {
    for (number, member) in members.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.extend_from_slice(member.as_ref());
    }
}

/// Returns whether [`preference`] would not change a member.
fn is_normal(member: &[u8]) -> bool {
    member != X_GZIP
        && member.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

/// Another name of gzip (RFC 9110, section 8.4.1.3).
const X_GZIP: &[u8] = b"x-gzip";

/// The normal form of a coding or language with its weight: in lower case, without blanks, and with the weight
/// in thousandths unless it is 1.
fn preference(member: &[u8]) -> Vec<u8> {
    let mut parts = member.split(|&byte| byte == b';').map(trim);
    let mut out = parts.next().unwrap_or_default().to_ascii_lowercase();
    if out == X_GZIP {
        out = b"gzip".to_vec();
    }
    for part in parts {
        match part
            .get(..2)
            .filter(|name| name.eq_ignore_ascii_case(b"q="))
            .and_then(|_| weight(part.get(2..)?))
        {
            Some(1000) => {}
            Some(weight) => out.extend_from_slice(format!(";q={weight}").as_bytes()),
            None => {
                out.push(b';');
                out.extend_from_slice(&part.to_ascii_lowercase());
            }
        }
    }
    out
}

/// The weight of a [`preference`], in thousandths.
fn weight_of(preference: &[u8]) -> u32 {
    let part = preference.split(|&byte| byte == b';').find_map(|part| part.strip_prefix(b"q="));
    part.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).unwrap_or(1000)
}

/// A weight in thousandths (RFC 9110, section 12.4.2).
fn weight(text: &[u8]) -> Option<u32> {
    let (whole, fraction) = match text {
        [whole] => (whole, &b""[..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return None,
    };
    if !b"01".contains(whole) || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().chain(b"000").take(3);
    let thousandths = digits.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    let weight = u32::from(whole - b'0') * 1000 + thousandths;
    (weight <= 1000).then_some(weight)
}
