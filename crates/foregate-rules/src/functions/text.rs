//! Functions from text to text.

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::ControlFlow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose};
use memchr::memmem::Finder;
use sha2::{Digest as _, Sha256};

use crate::limits::MAX_DECODINGS;
use crate::program::{Base64, UrlDecoding};

pub(crate) fn lower(text: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if text.iter().any(u8::is_ascii_uppercase) { Cow::Owned(text.to_ascii_lowercase()) } else { text }
}

pub(crate) fn upper(text: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if text.iter().any(u8::is_ascii_lowercase) { Cow::Owned(text.to_ascii_uppercase()) } else { text }
}

pub(crate) fn substring(text: Cow<'_, [u8]>, from: i64, to: i64) -> Cow<'_, [u8]> {
    let len = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let position = |at: i64| {
        let at = if at < 0 { len.saturating_add(at).max(0) } else { at.min(len) };
        usize::try_from(at).unwrap_or(0)
    };
    let (from, to) = (position(from), position(to));
    let range = from..to.max(from);
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[range]),
        Cow::Owned(text) => Cow::Owned(text[range].to_vec()),
    }
}

pub(crate) fn remove_bytes<'t>(text: Cow<'t, [u8]>, bytes: &[u8]) -> Cow<'t, [u8]> {
    if !text.iter().any(|byte| bytes.contains(byte)) {
        return text;
    }
    let mut kept = text.into_owned();
    kept.retain(|byte| !bytes.contains(byte));
    Cow::Owned(kept)
}

pub(crate) fn url_decode(text: Cow<'_, [u8]>, options: UrlDecoding) -> Cow<'_, [u8]> {
    let times = if options.repeated { MAX_DECODINGS } else { 1 };
    let mut text = text;
    for _ in 0..times {
        if memchr::memchr2(b'%', b'+', &text).is_none() {
            break;
        }
        let decoded = decode_once(&text, options.unicode);
        if *decoded == *text {
            break;
        }
        text = Cow::Owned(decoded);
    }
    text
}

fn decode_once(text: &[u8], unicode: bool) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'+' => decoded.push(b' '),
            b'%' => {
                if let Some(value) = hex(behind, 2).and_then(|value| u8::try_from(value).ok()) {
                    decoded.push(value);
                    rest = &behind[2..];
                } else if let Some((character, len)) = unicode.then(|| unicode_escape(behind)).flatten() {
                    decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                    rest = &behind[len..];
                } else {
                    decoded.push(b'%');
                }
            }
            other => decoded.push(other),
        }
    }
    decoded
}

/// The character of an escape `uHHHH` after a `%`, and the length of the escape. If the escape is the first half of a
/// surrogate pair, the second escape is read too, and the length is that of both.
fn unicode_escape(behind: &[u8]) -> Option<(char, usize)> {
    let unit =
        |at: usize| hex(behind.get(at..)?.strip_prefix(b"u")?, 4).and_then(|unit| u16::try_from(unit).ok());
    let first = unit(0)?;
    if let Some(Ok(character)) = char::decode_utf16([first]).next() {
        return Some((character, 5));
    }
    let second = if behind.get(5) == Some(&b'%') { unit(6)? } else { return None };
    let character = char::decode_utf16([first, second]).next()?.ok()?;
    Some((character, 11))
}

fn hex(text: &[u8], digits: usize) -> Option<u32> {
    text.get(..digits)?.iter().try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?))
}

/// Visits the parts of a text.
pub(crate) fn split<'t>(
    text: &'t [u8],
    separator: &Finder<'_>,
    limit: usize,
    mut visit: impl FnMut(&'t [u8]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut rest = text;
    for _ in 1..limit {
        let Some(at) = separator.find(rest) else { break };
        visit(&rest[..at])?;
        rest = &rest[at + separator.needle().len()..];
    }
    visit(rest)
}

pub(crate) fn sha256(text: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let hash = Sha256::digest(text);
    hash.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| DIGITS[usize::from(digit)]).collect()
}

pub(crate) fn encode_base64(text: &[u8], options: Base64) -> Vec<u8> {
    let engine = match (options.url_safe, options.padded) {
        (false, false) => general_purpose::STANDARD_NO_PAD,
        (false, true) => general_purpose::STANDARD,
        (true, false) => general_purpose::URL_SAFE_NO_PAD,
        (true, true) => general_purpose::URL_SAFE,
    };
    engine.encode(text).into_bytes()
}

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

pub(crate) fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let url_safe = memchr::memchr2(b'-', b'_', text).is_some();
    let alphabet = if url_safe { alphabet::URL_SAFE } else { alphabet::STANDARD };
    GeneralPurpose::new(&alphabet, LENIENT).decode(text).ok()
}

/// A number in decimal.
pub(crate) fn number(number: i64) -> Vec<u8> {
    let mut digits = [0; "-9223372036854775808".len()];
    let (mut start, mut left) = (digits.len(), number.unsigned_abs());
    loop {
        start -= 1;
        digits[start] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if number < 0 {
        start -= 1;
        digits[start] = b'-';
    }
    digits.get(start..).unwrap_or_default().to_vec()
}

/// An address as it is usually written.
pub(crate) fn address(address: IpAddr) -> Vec<u8> {
    let IpAddr::V4(address) = address else { return address.to_string().into_bytes() };
    let mut text = Vec::with_capacity("255.255.255.255".len());
    for (number, octet) in address.octets().into_iter().enumerate() {
        if number > 0 {
            text.push(b'.');
        }
        if octet >= 100 {
            text.push(b'0' + octet / 100);
        }
        if octet >= 10 {
            text.push(b'0' + octet / 10 % 10);
        }
        text.push(b'0' + octet % 10);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_ever() {
        for written in [0, 7, 10, -1, 404, 1_234_567_890, i64::MIN, i64::MAX] {
            assert_eq!(number(written), written.to_string().into_bytes());
        }
    }

    #[test]
    fn addresses_are_written_as_ever() {
        let v4 = [[127, 0, 0, 1], [255, 255, 255, 255], [0; 4], [10, 9, 99, 100], [192, 200, 105, 110]];
        let addresses =
            v4.map(IpAddr::from).into_iter().chain(["2001:db8::1", "::"].map(|text| text.parse().unwrap()));
        for written in addresses {
            assert_eq!(address(written), written.to_string().into_bytes());
        }
    }
}
