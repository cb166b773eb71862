//! The meaning of single values: texts, numbers, durations, sizes.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::str::Utf8Error;
use core::time::Duration;

/// The kind of a value. Numbers are kept as text, so that they lose no digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScalarKind {
    /// A string.
    String,
    /// A number, as written.
    Number,
    /// `#true` or `#false`.
    Bool(bool),
    /// `#null`.
    Null,
}

/// Why a value was refused. It never holds the value, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The error.
    pub message: String,
    /// A suggestion.
    pub help: Option<String>,
}

impl Wrong {
    /// An error without a suggestion.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    /// Adds a suggestion.
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

/// A value with resolved references.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scalar<'v> {
    /// Its kind.
    pub kind: ScalarKind,
    /// The text of a string, or a number as written.
    pub text: Cow<'v, str>,
}

/// A text.
pub fn string<'v>(value: &'v Scalar<'_>) -> Result<&'v str, Wrong> {
    match value.kind {
        ScalarKind::String => Ok(&value.text),
        ScalarKind::Number => Err(Wrong::new("expected a text, found a number").help("put it in quotes")),
        ScalarKind::Bool(_) | ScalarKind::Null => Err(Wrong::new("expected a text").help("put it in quotes")),
    }
}

/// The text of a file, without a byte-order mark. The mark is invisible, and would become part of the first entry.
///
/// # Errors
///
/// The content is not UTF-8.
pub fn text_of_file(content: &[u8]) -> Result<&str, Utf8Error> {
    let text = core::str::from_utf8(content)?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// `#true` or `#false`.
pub fn boolean(value: &Scalar<'_>) -> Result<bool, Wrong> {
    match value.kind {
        ScalarKind::Bool(value) => Ok(value),
        _ => {
            let wrong = Wrong::new("expected #true or #false");
            Err(match &*value.text {
                "on" | "yes" | "true" => wrong.help("write `#true`"),
                text if is_off(text) => wrong.help("write `#false`"),
                _ => wrong,
            })
        }
    }
}

/// Returns true if a text is a word by which other programs turn something off, such as `off` or `none`.
pub fn is_off(text: &str) -> bool {
    matches!(text, "off" | "no" | "false" | "none" | "disable" | "disabled")
}

/// A whole number, such as `10_000` or `"10000"`.
pub fn number(value: &Scalar<'_>, range: RangeInclusive<u64>) -> Result<u64, Wrong> {
    let wanted = || Wrong::new(format!("expected a whole number from {} to {}", range.start(), range.end()));
    match value.kind {
        // The value of an environment variable is a string.
        ScalarKind::Number | ScalarKind::String => {
            integer(&value.text).filter(|number| range.contains(number)).ok_or_else(wanted)
        }
        ScalarKind::Bool(_) | ScalarKind::Null => Err(wanted()),
    }
}

fn integer(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            return u64::from_str_radix(&digits.replace('_', ""), radix).ok();
        }
    }
    if text.starts_with('_') { None } else { text.replace('_', "").parse().ok() }
}

/// A span of time: numbers with a unit, such as `"500ms"`, `"5s"`, `"1h30m"`.
pub fn duration(value: &Scalar<'_>, range: RangeInclusive<Duration>) -> Result<Duration, Wrong> {
    const ADVICE: &str = "write numbers with a unit (ms, s, m, h, d), such as \"500ms\", \"5s\" or \"1h30m\"";
    if value.kind == ScalarKind::Number {
        return Err(Wrong::new("a duration needs a unit").help(ADVICE));
    }
    let text = string(value).map_err(|_| Wrong::new("expected a duration").help(ADVICE))?;
    let duration = parse_duration(text).ok_or_else(|| Wrong::new("this is not a duration").help(ADVICE))?;
    if range.contains(&duration) {
        return Ok(duration);
    }
    let (least, most) = (show_duration(*range.start()), show_duration(*range.end()));
    Err(Wrong::new(format!("expected a duration from {least} to {most}")))
}

fn parse_duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, u64); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let mut milliseconds = 0_u64;
    let mut rest = text;
    let mut units = &UNITS[..];
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = &rest[..rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len())];
        rest = &rest[unit.len()..];
        // Each unit once, from the largest to the smallest.
        let at = units.iter().position(|(name, _)| *name == unit)?;
        milliseconds = milliseconds.checked_add(number.checked_mul(units[at].1)?)?;
        units = &units[at + 1..];
    }
    (!text.is_empty()).then_some(Duration::from_millis(milliseconds))
}

/// A duration as it is written in a configuration.
pub fn show_duration(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        if milliseconds >= size && milliseconds.is_multiple_of(size) {
            return format!("{}{unit}", milliseconds / size);
        }
    }
    format!("{milliseconds}ms")
}

/// A number of bytes: `"64KiB"`, `"10MB"`, or a plain number.
pub fn size(value: &Scalar<'_>, range: RangeInclusive<u64>) -> Result<u64, Wrong> {
    const ADVICE: &str =
        "write a number of bytes, or one with a unit (KiB, MiB, GiB, kB, MB, GB), such as \"64KiB\"";
    let bytes = match value.kind {
        ScalarKind::Number => integer(&value.text),
        ScalarKind::String => parse_size(&value.text),
        ScalarKind::Bool(_) | ScalarKind::Null => None,
    };
    let bytes = bytes.ok_or_else(|| {
        let wrong = Wrong::new("this is not a size");
        // NGINX and other servers accept `64k`: suggest `64KiB`.
        let near = value
            .text
            .strip_suffix(['k', 'K', 'm', 'M', 'g', 'G'])
            .filter(|digits| integer(digits).is_some());
        match (near, value.text.chars().last()) {
            (Some(digits), Some(unit)) => {
                wrong.help(format!("write \"{digits}{}iB\" (units of 1024)", unit.to_ascii_uppercase()))
            }
            _ => wrong.help(ADVICE),
        }
    })?;
    if range.contains(&bytes) {
        return Ok(bytes);
    }
    let (least, most) = (show_size(*range.start()), show_size(*range.end()));
    Err(Wrong::new(format!("expected a size from {least} to {most}")))
}

fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let number = integer(&text[..digits])?;
    let unit = match text[digits..].trim_start() {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// A size as it is written in a configuration.
pub fn show_size(bytes: u64) -> String {
    for (unit, size) in [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    bytes.to_string()
}

/// The value that `words` assigns to a word.
pub fn choose<T: Copy>(value: &Scalar<'_>, words: &[(&str, T)]) -> Result<T, Wrong> {
    let known = || words.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ");
    let found = words.iter().find(|(word, _)| value.kind == ScalarKind::String && *word == value.text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let wrong = Wrong::new(format!("expected {}", known()));
        match words.iter().any(|(word, _)| *word == value.text) {
            true => wrong.help(format!("put it in quotes: \"{}\"", value.text)),
            false => match meant(&value.text, words.iter().map(|(word, _)| *word)) {
                Some(word) => wrong.help(format!("did you mean \"{word}\"?")),
                None => wrong,
            },
        }
    })
}

/// The known word that a text probably means: the text is another name of the word, or differs from it only in case.
fn meant<'w>(text: &str, mut known: impl Iterator<Item = &'w str> + Clone) -> Option<&'w str> {
    /// Other names of words that settings choose from.
    const NAMES: &[(&str, &str)] = &[
        ("brotli", "br"),
        ("gz", "gzip"),
        ("x-gzip", "gzip"),
        ("zlib", "deflate"),
        ("zstandard", "zstd"),
        ("zst", "zstd"),
        ("h2", "2"),
        ("http2", "2"),
        ("http/2", "2"),
        ("h1", "1"),
        ("tls1.2", "1.2"),
        ("tlsv1.2", "1.2"),
        ("tls12", "1.2"),
        ("tls1.3", "1.3"),
        ("tlsv1.3", "1.3"),
        ("tls13", "1.3"),
        ("require", "required"),
        ("requireandverifyclientcert", "required"),
        ("round_robin", "round-robin"),
        ("roundrobin", "round-robin"),
        ("rr", "round-robin"),
    ];
    let text = text.to_ascii_lowercase();
    let other = NAMES.iter().find(|(name, _)| *name == text).map(|(_, word)| *word);
    known
        .clone()
        .find(|word| Some(*word) == other)
        .or_else(|| known.find(|word| word.eq_ignore_ascii_case(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Scalar<'_> {
        Scalar { kind: ScalarKind::String, text: text.into() }
    }

    #[test]
    fn durations_need_a_unit() {
        let all = Duration::ZERO..=Duration::MAX;
        let parse = |t: &str| duration(&text(t), all.clone()).ok().map(|d| d.as_millis());
        assert_eq!(parse("500ms"), Some(500));
        assert_eq!(parse("5s"), Some(5000));
        assert_eq!(parse("1h30m"), Some(5_400_000));
        assert_eq!(parse("1d1ms"), Some(86_400_001));
        for bad in ["", "5", "s", "5 s", "1m1h", "1s1s", "-1s", "1.5s", "5S", "99999999999999999999s", "1w"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(show_duration(Duration::from_secs(5400)), "90m");
        assert_eq!(show_duration(Duration::from_millis(1500)), "1500ms");
    }

    #[test]
    fn sizes_have_two_families_of_units() {
        let parse = |t: &str| size(&text(t), 0..=u64::MAX).ok();
        assert_eq!(parse("64KiB"), Some(65536));
        assert_eq!(parse("10MB"), Some(10_000_000));
        assert_eq!(parse("1_000"), Some(1000));
        assert_eq!(parse("2 GiB"), Some(2 << 30));
        for bad in ["", "KiB", "1K", "-1", "1.5MiB", "99999999999TiB"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(show_size(65536), "64KiB");
        assert_eq!(show_size(1000), "1000");
    }

    #[test]
    fn numbers_have_a_range() {
        let parse = |t: &str| number(&Scalar { kind: ScalarKind::Number, text: t.into() }, 1..=20_000).ok();
        assert_eq!(parse("10_000"), Some(10_000));
        assert_eq!(parse("0x10"), Some(16));
        for bad in ["0", "20001", "1.0", "-1", "1e3", "#inf"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
