//! The kinds of bytes that a value contains.

use super::Transformation;

/// A set of kinds of bytes. A transformation need not run on a value without the kinds that it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bytes(u16);

const PERCENT: u16 = 1;
const BACKSLASH: u16 = 1 << 1;
const AMPERSAND: u16 = 1 << 2;
const UPPER: u16 = 1 << 3;
const LOWER: u16 = 1 << 4;
const SPACE: u16 = 1 << 5;
const ZERO: u16 = 1 << 6;
const HIGH: u16 = 1 << 7;
const SLASH: u16 = 1 << 8;
const DOT: u16 = 1 << 9;
/// Quotes, caret, comma, semicolon.
const SHELL: u16 = 1 << 10;
/// Bytes that begin comments, except for the slash.
const COMMENT: u16 = 1 << 11;
const NOUGHT: u16 = 1 << 12;
/// All bytes without a kind of their own, except the digits 1 to 9.
const OTHER: u16 = 1 << 13;

const KINDS: [u16; 256] = {
    let mut kinds = [OTHER; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = match byte as u8 {
            b'%' | b'+' => PERCENT,
            b'\\' => BACKSLASH,
            b'&' => AMPERSAND,
            b'A'..=b'Z' => UPPER,
            b'a'..=b'z' => LOWER,
            b' ' | b'\t'..=b'\r' => SPACE,
            0 => ZERO,
            0x80.. => HIGH,
            b'/' => SLASH,
            b'.' => DOT,
            b'"' | b'\'' | b'^' | b',' | b';' => SHELL,
            b'#' | b'-' | b'*' => COMMENT,
            b'0' => NOUGHT,
            // No transformation changes these digits, percent-encoding included.
            b'1'..=b'9' => 0,
            _ => OTHER,
        };
        byte += 1;
    }
    kinds
};

impl Bytes {
    /// The kinds of bytes in a value.
    pub fn of(value: &[u8]) -> Self {
        Self(value.iter().fold(0, |kinds, byte| kinds | KINDS[usize::from(*byte)]))
    }

    pub(super) fn has(self, kinds: u16) -> bool {
        self.0 & kinds != 0
    }
}

/// The kinds of bytes that the transformation changes. A value without bytes of these kinds is not changed. `None` if
/// any value may change.
pub(super) fn changes(transformation: Transformation) -> Option<u16> {
    use Transformation as T;
    Some(match transformation {
        T::CmdLine => SHELL | BACKSLASH | UPPER | SPACE,
        T::CompressWhitespace | T::Trim | T::TrimLeft | T::TrimRight => SPACE,
        T::CssDecode | T::EscapeSeqDecode | T::JsDecode => BACKSLASH,
        T::HtmlEntityDecode => AMPERSAND,
        T::Lowercase => UPPER,
        T::NormalizePath => SLASH | DOT,
        T::NormalizePathWin => SLASH | DOT | BACKSLASH,
        T::ParityZero7Bit => HIGH,
        T::RemoveComments => SLASH | COMMENT | OTHER,
        T::RemoveCommentsChar => COMMENT,
        T::RemoveNulls | T::ReplaceNulls => ZERO,
        T::RemoveWhitespace => SPACE | HIGH,
        T::ReplaceComments => SLASH,
        T::SqlHexDecode => NOUGHT,
        T::Uppercase => LOWER,
        T::UrlDecode | T::UrlDecodeUni => PERCENT,
        T::UrlEncode => !(UPPER | LOWER | NOUGHT),
        T::Utf8ToUnicode => ZERO | HIGH,
        T::Base64Decode
        | T::Base64DecodeExt
        | T::Base64Encode
        | T::HexDecode
        | T::HexEncode
        | T::Length
        | T::Md5
        | T::ParityEven7Bit
        | T::ParityOdd7Bit
        | T::Sha1 => return None,
    })
}
