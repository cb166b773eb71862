//! UTF-8 and the codes of `%uHHHH`.

use std::borrow::Cow;

/// A map from codes of `%uHHHH` to bytes of a code page, as set by the directive `SecUnicodeMapFile`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnicodeMap(Box<[(u16, u8)]>);

/// The codes for full stops in host names (RFC 3490, section 3.1). The code page can map them to other bytes.
const FULL_STOPS: [(u16, u8); 4] = [(0x3002, b'.'), (0xff61, b'.'), (0xff0e, b'.'), (0x002e, b'.')];

impl UnicodeMap {
    /// Reads one code page from a mapping file: after a line that starts with the page's number come lines with pairs
    /// `CODE:BYTE` in hexadecimal digits. An error is a line number, if it concerns one line, and a sentence.
    pub fn parse(text: &[u8], page: u32) -> Result<Self, (Option<u32>, String)> {
        let text = String::from_utf8_lossy(text);
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let heads = |(_, line): &(u32, &str)| {
            line.split_whitespace().next().and_then(|number| number.parse().ok()) == Some(page)
                && !line.contains(':')
        };
        let Some((head, _)) = lines.by_ref().find(heads) else {
            return Err((None, format!("there is no code page {page} in the mapping file")));
        };
        let mut codes = FULL_STOPS.to_vec();
        for (number, line) in lines.take_while(|(_, line)| line.contains(':')) {
            for pair in line.split_whitespace() {
                let parsed = pair.split_once(':').and_then(|(code, byte)| {
                    Some((u16::from_str_radix(code, 16).ok()?, u8::from_str_radix(byte, 16).ok()?))
                });
                let wrong = || (Some(number), format!("`{pair}` is no pair of a code and a byte"));
                codes.push(parsed.ok_or_else(wrong)?);
            }
        }
        if codes.len() == FULL_STOPS.len() {
            return Err((Some(head), format!("no pairs of a code and a byte follow the code page {page}")));
        }
        // If a code occurs twice, its last entry counts. `dedup_by_key` keeps the first, so the order is reversed.
        codes.reverse();
        codes.sort_by_key(|(code, _)| *code);
        codes.dedup_by_key(|(code, _)| *code);
        Ok(Self(codes.into()))
    }

    /// The byte for a code; `None` if the page has none.
    pub fn get(&self, code: u16) -> Option<u8> {
        let at = self.0.binary_search_by_key(&code, |(code, _)| *code).ok()?;
        self.0.get(at).map(|(_, byte)| *byte)
    }
}

/// Encodes each UTF-8 sequence of several bytes as `%uhhhh` and drops zero bytes.
///
/// In invalid input, a lead byte is dropped, and a byte that cannot lead a sequence is kept. For an overlong sequence
/// or a surrogate, the code is written, followed by the lead byte.
pub(super) fn from_utf8(input: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = input.iter().position(|byte| *byte == 0 || !byte.is_ascii()) else {
        return Cow::Borrowed(input);
    };
    let mut out = Vec::with_capacity(input.len() + 16);
    out.extend_from_slice(&input[..first]);
    let mut at = first;
    while let Some(&byte) = input.get(at) {
        at += match byte {
            0 => 1,
            0x80..=0xbf | 0xf8.. => {
                out.push(byte);
                1
            }
            byte if byte.is_ascii() => {
                out.push(byte);
                1
            }
            lead => sequence(lead, &input[at + 1..], &mut out),
        };
    }
    if out == input { Cow::Borrowed(input) } else { Cow::Owned(out) }
}

/// Writes the code of a sequence and returns how many bytes the sequence has.
fn sequence(lead: u8, rest: &[u8], out: &mut Vec<u8>) -> usize {
    let (more, bits) = match lead {
        0xc0..=0xdf => (1, lead & 0x1f),
        0xe0..=0xef => (2, lead & 0x0f),
        _ => (3, lead & 0x07),
    };
    if lead >= 0xf5 {
        out.push(lead);
    }
    let trail = rest.iter().take(more).take_while(|byte| **byte & 0xc0 == 0x80);
    let (count, code) = trail
        .fold((0, u32::from(bits)), |(count, code), byte| (count + 1, code << 6 | u32::from(byte & 0x3f)));
    if count < more {
        return 1;
    }
    out.extend_from_slice(format!("%u{code:04x}").as_bytes());
    let overlong = code < [0, 0x80, 0x800, 0x10000][more];
    if (0xd800..=0xdfff).contains(&code) {
        out.push(lead);
    }
    if overlong {
        out.push(lead);
    }
    1 + more
}
