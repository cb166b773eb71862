//! Transformations: changes of a value before an operator compares it.
//!
//! Each one gives the same bytes as ModSecurity 3, except where ModSecurity loses input: the tests list the
//! exceptions. A transformation takes linear time, does not allocate for a value that it leaves unchanged, and its
//! output is at most six times as long as its input.

mod base64;
mod bytes;
mod comment;
mod escape;
mod hex;
mod html;
mod path;
mod rewrite;
mod space;
mod unicode;
mod url;

use std::borrow::Cow;

use sha1::Digest as _;

pub use bytes::Bytes;
pub(crate) use hex::digits as hex_digits;
pub use unicode::UnicodeMap;

/// Decodes the percent-encoding of a path: like `t:urlDecode`, but a plus stays a plus.
pub(crate) fn decode_path(path: &[u8]) -> Cow<'_, [u8]> {
    url::decode_path(path)
}

/// A transformation, by its name in SecLang (`t:NAME`). `t:none` is not included, because it empties the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transformation {
    /// `base64Decode`: Base64 to bytes; the result is empty if any byte is not Base64.
    Base64Decode,
    /// `base64DecodeExt`: Base64 to bytes, skipping invalid characters.
    Base64DecodeExt,
    /// `base64Encode`: bytes to Base64.
    Base64Encode,
    /// `cmdLine`: a command line in a normal form, without escapes and quotes, in lower case.
    CmdLine,
    /// `compressWhitespace`: each run of white space to one space.
    CompressWhitespace,
    /// `cssDecode`: CSS 2 escapes.
    CssDecode,
    /// `escapeSeqDecode`: escapes of ANSI C.
    EscapeSeqDecode,
    /// `hexDecode`: pairs of hexadecimal digits to bytes.
    HexDecode,
    /// `hexEncode`: bytes to pairs of hexadecimal digits.
    HexEncode,
    /// `htmlEntityDecode`: character references of HTML.
    HtmlEntityDecode,
    /// `jsDecode`: escapes of JavaScript.
    JsDecode,
    /// `length`: the number of bytes, as decimal text.
    Length,
    /// `lowercase`: converts ASCII letters to lower case.
    Lowercase,
    /// `md5`: the MD5 digest, as bytes.
    Md5,
    /// `normalizePath`: A path without `.`, `..` and doubled slashes.
    NormalizePath,
    /// `normalizePathWin`: like `normalizePath`, after backslashes have become slashes.
    NormalizePathWin,
    /// `parityEven7bit`: even parity in each byte's highest bit.
    ParityEven7Bit,
    /// `parityOdd7bit`: odd parity in each byte's highest bit.
    ParityOdd7Bit,
    /// `parityZero7bit`: zero in each byte's highest bit.
    ParityZero7Bit,
    /// `removeComments`: comments (`/* */`, `--`, `#`, `<!-- -->`) left out.
    RemoveComments,
    /// `removeCommentsChar`: removes the marks of comments and keeps their text.
    RemoveCommentsChar,
    /// `removeNulls`: removes zero bytes.
    RemoveNulls,
    /// `removeWhitespace`: removes white space.
    RemoveWhitespace,
    /// `replaceComments`: each `/* */` comment to one space.
    ReplaceComments,
    /// `replaceNulls`: zero bytes to spaces.
    ReplaceNulls,
    /// `sha1`: the SHA-1 digest, as bytes.
    Sha1,
    /// `sqlHexDecode`: hexadecimal literals of SQL (`0x414243`) to bytes.
    SqlHexDecode,
    /// `trim`: white space at both ends left out.
    Trim,
    /// `trimLeft`: white space at the start left out.
    TrimLeft,
    /// `trimRight`: white space at the end left out.
    TrimRight,
    /// `uppercase`: converts ASCII letters to upper case.
    Uppercase,
    /// `urlDecode`: decodes percent-encoding and `+`.
    UrlDecode,
    /// `urlDecodeUni`: decodes percent-encoding, `+` and `%uXXXX`.
    UrlDecodeUni,
    /// `urlEncode`: bytes to percent-encoding.
    UrlEncode,
    /// `utf8toUnicode`: UTF-8 sequences to `%uXXXX`.
    Utf8ToUnicode,
}

impl Transformation {
    /// Every transformation and its name, in the order of the alphabet.
    pub const ALL: &[(&str, Self)] = &[
        ("base64Decode", Self::Base64Decode),
        ("base64DecodeExt", Self::Base64DecodeExt),
        ("base64Encode", Self::Base64Encode),
        ("cmdLine", Self::CmdLine),
        ("compressWhitespace", Self::CompressWhitespace),
        ("cssDecode", Self::CssDecode),
        ("escapeSeqDecode", Self::EscapeSeqDecode),
        ("hexDecode", Self::HexDecode),
        ("hexEncode", Self::HexEncode),
        ("htmlEntityDecode", Self::HtmlEntityDecode),
        ("jsDecode", Self::JsDecode),
        ("length", Self::Length),
        ("lowercase", Self::Lowercase),
        ("md5", Self::Md5),
        ("normalizePath", Self::NormalizePath),
        ("normalizePathWin", Self::NormalizePathWin),
        ("parityEven7bit", Self::ParityEven7Bit),
        ("parityOdd7bit", Self::ParityOdd7Bit),
        ("parityZero7bit", Self::ParityZero7Bit),
        ("removeComments", Self::RemoveComments),
        ("removeCommentsChar", Self::RemoveCommentsChar),
        ("removeNulls", Self::RemoveNulls),
        ("removeWhitespace", Self::RemoveWhitespace),
        ("replaceComments", Self::ReplaceComments),
        ("replaceNulls", Self::ReplaceNulls),
        ("sha1", Self::Sha1),
        ("sqlHexDecode", Self::SqlHexDecode),
        ("trim", Self::Trim),
        ("trimLeft", Self::TrimLeft),
        ("trimRight", Self::TrimRight),
        ("uppercase", Self::Uppercase),
        ("urlDecode", Self::UrlDecode),
        ("urlDecodeUni", Self::UrlDecodeUni),
        ("urlEncode", Self::UrlEncode),
        ("utf8toUnicode", Self::Utf8ToUnicode),
    ];

    /// The transformation with this name, regardless of case. British spellings are accepted too.
    pub fn parse(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("normalisePath") {
            return Some(Self::NormalizePath);
        }
        if name.eq_ignore_ascii_case("normalisePathWin") {
            return Some(Self::NormalizePathWin);
        }
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, found)| *found)
    }

    /// Its name in SecLang.
    pub fn name(self) -> &'static str {
        // `ALL` and the variants are both in alphabetical order, so a variant's number is its index in `ALL`.
        Self::ALL[self as usize].0
    }

    /// Applies the transformation. The result borrows from `input` if the value is unchanged or only trimmed at its ends.
    pub fn apply(self, input: &[u8]) -> Cow<'_, [u8]> {
        self.apply_with(input, None)
    }

    /// Like [`apply`](Self::apply), with a code page for `%uHHHH`.
    pub fn apply_with<'a>(self, input: &'a [u8], map: Option<&UnicodeMap>) -> Cow<'a, [u8]> {
        match self {
            Self::Base64Decode => base64::decode(input).into(),
            Self::Base64DecodeExt => base64::decode_lenient(input).into(),
            Self::Base64Encode => base64::encode(input).into(),
            Self::CmdLine => space::command_line(input),
            Self::CompressWhitespace => space::compress(input),
            Self::CssDecode => escape::css(input),
            Self::EscapeSeqDecode => escape::ansi(input),
            Self::HexDecode => hex::decode(input).into(),
            Self::HexEncode => hex::encode(input).into(),
            Self::HtmlEntityDecode => html::decode(input),
            Self::JsDecode => escape::js(input),
            Self::Length => input.len().to_string().into_bytes().into(),
            Self::Lowercase => space::map(input, |byte| byte.to_ascii_lowercase()),
            Self::Md5 => md5::Md5::digest(input).to_vec().into(),
            Self::NormalizePath => path::normalize(input),
            Self::NormalizePathWin => path::normalize_windows(input),
            Self::ParityEven7Bit => space::map(input, |byte| space::parity(byte, false)),
            Self::ParityOdd7Bit => space::map(input, |byte| space::parity(byte, true)),
            Self::ParityZero7Bit => space::map(input, |byte| byte & 0x7f),
            Self::RemoveComments => comment::remove(input),
            Self::RemoveCommentsChar => comment::remove_marks(input),
            Self::RemoveNulls => space::remove_nulls(input),
            Self::RemoveWhitespace => space::remove(input),
            Self::ReplaceComments => comment::replace(input),
            Self::ReplaceNulls => space::replace_nulls(input),
            Self::Sha1 => sha1::Sha1::digest(input).to_vec().into(),
            Self::SqlHexDecode => hex::decode_sql(input),
            Self::Trim => Cow::Borrowed(space::trim_left(space::trim_right(input))),
            Self::TrimLeft => Cow::Borrowed(space::trim_left(input)),
            Self::TrimRight => Cow::Borrowed(space::trim_right(input)),
            Self::Uppercase => space::map(input, |byte| byte.to_ascii_uppercase()),
            Self::UrlDecode => url::decode(input),
            Self::UrlDecodeUni => url::decode_uni(input, map),
            Self::UrlEncode => url::encode(input),
            Self::Utf8ToUnicode => unicode::from_utf8(input),
        }
    }

    /// Returns true if the transformation certainly leaves a value with these kinds of bytes unchanged. After `false` the
    /// value may change or not.
    ///
    /// One scan of a value ([`Bytes::of`]) answers this for all transformations; the output of a transformation
    /// needs another scan.
    pub fn leaves(self, bytes: Bytes) -> bool {
        bytes::changes(self).is_some_and(|needs| !bytes.has(needs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_variants() {
        for (at, (name, transformation)) in Transformation::ALL.iter().enumerate() {
            assert_eq!(*transformation as usize, at);
            assert_eq!(transformation.name(), *name);
            assert_eq!(Transformation::parse(&name.to_uppercase()), Some(*transformation));
        }
        assert_eq!(Transformation::parse("normalisePath"), Some(Transformation::NormalizePath));
        assert_eq!(Transformation::parse("none"), None);
    }
}
