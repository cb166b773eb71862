//! Invariants for any value in the firewall. The bodies of fuzz targets, also run over their corpora by
//! `cargo test`.

use std::borrow::Cow;

use foregate_waf::body::{BodyLimits, Documents, File, Sink, json, multipart, urlencoded, xml};
use foregate_waf::injection::{sqli, xss};
use foregate_waf::scan::{Pattern, PatternOptions, Scan, ScanHits};
use foregate_waf::transform::{Bytes, Transformation};

/// Each transformation, and each other after it: output is bounded, and unchanged values are predicted correctly.
pub(crate) fn transformations(data: &[u8]) {
    let bytes = Bytes::of(data);
    for (name, transformation) in Transformation::ALL {
        let after = transformation.apply(data);
        assert!(after.len() <= 6 * data.len() + 40, "{name}");
        if transformation.leaves(bytes) {
            assert!(after == data, "{name} changes what it said that it leaves");
        }
        if let Cow::Borrowed(part) = after {
            assert!(part.len() <= data.len(), "{name}");
        }
    }
}

/// There is an answer, and it is the same again.
pub(crate) fn injections(data: &[u8]) {
    let found = sqli(data);
    assert_eq!(found, sqli(data));
    if let Some(found) = found {
        let letters = found.as_str();
        assert!((1..=5).contains(&letters.len()), "{letters}");
        // No statement is changed by a single word.
        assert!(!data.iter().all(u8::is_ascii_alphanumeric), "{letters}");
    }
    if xss(data) {
        assert!(data.iter().any(|byte| !byte.is_ascii_alphanumeric()));
    }
}

/// Counts emitted values.
#[derive(Default)]
struct Counter {
    arguments: usize,
    files: usize,
    attributes: usize,
    bytes: usize,
}

impl Sink for Counter {
    fn argument(&mut self, name: &[u8], value: &[u8]) {
        self.arguments += 1;
        self.bytes += name.len() + value.len();
    }

    fn file(&mut self, file: &File<'_>) {
        assert!(!file.filename.is_empty());
        self.files += 1;
    }

    fn attribute(&mut self, value: &[u8]) {
        self.attributes += 1;
        self.bytes += value.len();
    }

    fn text(&mut self, text: &[u8]) {
        assert!(!text.is_empty());
        self.bytes += text.len();
    }
}

/// Every body is taken apart within its limits or refused. The first byte says how many arguments and levels there may
/// be, and whether it is the whole body.
pub(crate) fn bodies(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else { return };
    let limits = BodyLimits {
        arguments: usize::from(choice & 15),
        depth: usize::from(choice >> 4 & 7),
        files: usize::from(choice & 3),
        unclear_files: choice & 4 != 0,
    };
    let whole = choice & 0x80 == 0;
    let mut counter = Counter::default();
    urlencoded(body, b'&', &limits, &mut counter);
    assert!(counter.arguments <= limits.arguments && counter.bytes <= 2 * body.len());

    let mut counter = Counter::default();
    let outcome = json(body, Documents::One, whole, &limits, &mut counter);
    assert!(counter.arguments <= limits.arguments);
    if outcome.is_ok() && whole {
        assert!(std::str::from_utf8(body).is_ok());
    }
    let mut counter = Counter::default();
    let lines = json(body, Documents::Many, whole, &limits, &mut counter);
    assert!(counter.arguments <= limits.arguments);
    assert!(lines.is_ok() || outcome.is_err(), "one document is several");

    let mut counter = Counter::default();
    let _ = xml(body, whole, true, &limits, &mut counter);
    assert!(counter.arguments + counter.attributes <= limits.arguments);

    let mut counter = Counter::default();
    let outcome = multipart(b"multipart/form-data; boundary=B", body, whole, &limits, &mut counter);
    assert!(counter.arguments <= limits.arguments && counter.files <= limits.files);
    assert!(outcome.length_without_files <= body.len());
    assert!(whole || outcome.error.is_none() || outcome.strict_error());
}

/// The longest pattern that is tried, bytes: a longer one only takes longer.
const MAX_PATTERN: usize = 60;

/// A pattern up to the first line feed, and a value behind it: if the pattern matches, the scan has found it.
pub(crate) fn patterns(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == b'\n').filter(|end| *end <= MAX_PATTERN) else {
        return;
    };
    let Ok(pattern) =
        Pattern::new(&data[..end], PatternOptions { captures: true, ..PatternOptions::default() })
    else {
        return;
    };
    let value = &data[end + 1..];
    let matches = pattern.is_match(value);
    assert_eq!(pattern.find(value).is_some(), matches);
    let groups = pattern.captures(value, 0);
    assert_eq!(groups.as_ref().and_then(|groups| groups[0].clone()), pattern.find(value));
    if let Some(literals) = pattern.required() {
        let Ok(scan) = Scan::new([(7, literals.texts())]) else { return };
        let mut found = ScanHits::new();
        scan.scan(value, &mut found);
        assert!(found.has(7) || !matches, "a match was lost");
    }
}
