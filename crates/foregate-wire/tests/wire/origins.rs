//! Holds the readings of paths against a model of origins: no path that is served outside of a guarded folder reaches that folder.
//!
//! An origin of the model is a sequence of operations on the path that it receives, in any order and of any length, with at most two
//! decodings. The operations are written here anew, as servers perform them, and share no code with the search under test.

use std::collections::HashSet;

use foregate_wire::{Slashes, normalize_path, other_readings};

type Operation = fn(&str) -> String;

/// Operations besides decoding. None makes a path longer, so that the texts that a path can become are finite.
const OPERATIONS: [(&str, Operation); 5] = [
    ("merge slashes", merge),
    ("resolve, empty segments count", |path| resolve(path, true)),
    ("resolve past empty segments", |path| resolve(path, false)),
    ("backslashes are slashes", |path| path.replace('\\', "/")),
    ("strip parameters", strip),
];
const DECODINGS: [(&str, Operation); 2] =
    [("decode", |path| decode(path, b"")), ("decode all but slashes", |path| decode(path, b"/\\"))];

fn merge(path: &str) -> String {
    let mut out = String::new();
    for letter in path.chars() {
        if letter != '/' || !out.ends_with('/') {
            out.push(letter);
        }
    }
    out
}

/// Resolves dot segments; `..` removes the segment before it, or the one before that if that is empty and does not count.
fn resolve(path: &str, empty_counts: bool) -> String {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let mut out: Vec<&str> = Vec::new();
    for (at, segment) in segments.iter().enumerate() {
        match *segment {
            "." => {}
            ".." => {
                let found = out.iter().rposition(|above| empty_counts || !above.is_empty());
                if let Some(found) = found {
                    out.remove(found);
                }
            }
            segment => {
                out.push(segment);
                continue;
            }
        }
        if at + 1 == segments.len() {
            out.push("");
        }
    }
    format!("/{}", out.join("/"))
}

fn decode(path: &str, kept: &[u8]) -> String {
    let (mut out, mut rest) = (String::new(), path);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let byte = rest.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|byte| byte.is_ascii() && !kept.contains(byte)) {
            Some(byte) => {
                out.push(byte.into());
                rest = &rest[at + 3..];
            }
            None => {
                out.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    out + rest
}

fn strip(path: &str) -> String {
    path.split('/').map(|segment| segment.split(';').next().unwrap()).collect::<Vec<_>>().join("/")
}

/// The operations by which an origin of the model comes to a guarded path, if there is one.
fn origin_that_reaches(path: &str, guarded: fn(&str) -> bool) -> Option<Vec<&'static str>> {
    let mut texts = vec![(path.to_owned(), 0, usize::MAX, "")];
    let mut known: HashSet<(String, usize)> = HashSet::new();
    let mut at = 0;
    while let Some((text, decodings, ..)) = texts.get(at).cloned() {
        if guarded(&text) {
            let mut names = Vec::new();
            while let Some((_, _, before, name)) = texts.get(at) {
                names.insert(0, *name);
                at = *before;
            }
            return Some(names);
        }
        let decode = DECODINGS.iter().filter(|_| decodings < 2).map(|operation| (operation, 1));
        for ((name, operation), more) in OPERATIONS.iter().map(|operation| (operation, 0)).chain(decode) {
            let next = operation(&text);
            let decodings = decodings + more;
            if next != text && known.insert((next.clone(), decodings)) {
                texts.push((next, decodings, at, name));
            }
        }
        at += 1;
    }
    None
}

fn guarded(path: &str) -> bool {
    path == "/admin" || path.starts_with("/admin/")
}

#[derive(Debug, Default)]
struct Tally {
    /// Paths that are served outside of the guarded folder, and that no origin takes for one within.
    served: usize,
    /// Paths that are refused, with an origin that would have reached the guarded folder.
    refused: usize,
    /// Paths that are refused though no origin of the model reaches the guarded folder.
    refused_in_vain: usize,
}

/// Tries all paths of at most `most` parts.
fn enumerate(parts: &[&str], most: u32, slashes: Slashes) -> Tally {
    let mut tally = Tally::default();
    let mut known: HashSet<Vec<u8>> = HashSet::new();
    for length in 0..=most {
        for mut number in 0..parts.len().pow(length) {
            let mut path = "/".to_owned();
            for _ in 0..length {
                path += parts[number % parts.len()];
                number /= parts.len();
            }
            let mut normal = Vec::new();
            if normalize_path(path.as_bytes(), slashes, &mut normal).is_ok() && known.insert(normal.clone()) {
                judge(&path, &String::from_utf8(normal).unwrap(), slashes, &mut tally);
            }
        }
    }
    tally
}

fn judge(path: &str, normal: &str, slashes: Slashes, tally: &mut Tally) {
    if guarded(normal) {
        return;
    }
    let admits = |reading: &[u8]| !guarded(std::str::from_utf8(reading).unwrap());
    let is_served = other_readings(normal.as_bytes(), slashes, admits).is_some();
    let reached = origin_that_reaches(normal, guarded);
    match (is_served, reached) {
        (true, Some(origin)) => panic!("{path} goes on as {normal}, {slashes:?}, and is read by {origin:?}"),
        (true, None) => tally.served += 1,
        (false, Some(_)) => tally.refused += 1,
        (false, None) => tally.refused_in_vain += 1,
    }
}

/// All short paths of parts that make paths ambiguous.
#[test]
fn no_origin_reaches_a_guarded_path_by_one_that_is_served() {
    for slashes in [Slashes::Merge, Slashes::Keep] {
        for (parts, most) in [
            (&["a", "admin", "/", "%2F", "..", ".", "%2e", ";", "\\", "%5c", "%252F"][..], 4),
            (&["admin", "/", "%2F", ".."], 7),
            (&["admin", "/", "%2F", "..", ";"], 6),
            (&["admin/", "%252F", "%2F", "..", "%252e%252e"], 6),
            (&["admin", "/", "%5C", "/..", "%2F"], 6),
            (&["admin/", "%2F", ".;/", "..;", "%3B", "%253B"], 5),
            (&["ad%256din", "admin", "/", "%2F", "..", "%252e%252e", "//"], 5),
        ] {
            let tally = enumerate(parts, most, slashes);
            println!("{parts:?} {most} {slashes:?} {tally:?}");
            assert!(tally.refused > 100 && tally.served > 100, "{parts:?}: {tally:?}");
        }
    }
}

/// Longer paths by chance.
#[test]
fn no_origin_reaches_a_guarded_path_by_a_longer_one() {
    const PARTS: [&str; 22] = [
        "a",
        "b",
        "..",
        "..",
        "../",
        ".",
        "admin",
        "%2F",
        "%2F",
        "%5C",
        "/",
        "/",
        ";",
        "%252F",
        "%2e%2e",
        "%3B",
        "//",
        "%255C",
        "%252e",
        "x;y",
        "ad%256din",
        "%40",
    ];
    const ENDS: [&str; 4] = ["/admin", "admin", "%2Fadmin", "/..%2Fadmin"];
    let mut seed = 1u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut tally = Tally::default();
    for slashes in [Slashes::Merge, Slashes::Keep] {
        for _ in 0..6_000 {
            let mut path = "/".to_owned();
            for _ in 0..2 + random(7) {
                path += PARTS[random(PARTS.len())];
            }
            path += ENDS[random(ENDS.len())];
            let mut normal = Vec::new();
            if normalize_path(path.as_bytes(), slashes, &mut normal).is_ok() {
                judge(&path, &String::from_utf8(normal).unwrap(), slashes, &mut tally);
            }
        }
    }
    println!("{tally:?}");
    assert!(tally.refused > 2_000 && tally.served > 200, "{tally:?}");
}

/// Paths that applications use, and how many readings they have at most.
#[test]
fn legal_paths_are_served() {
    for path in [
        "/repos/group%2Fproject",
        "/api/v4/projects/group%2Fsub%2Fproject/repository/files/src%2Fmain.rs/raw",
        "/npm/@scope%2fname/-/name-1.0.0.tgz",
        "/v2/registry/library%2Fnginx/manifests/sha256:0123",
        "/to/https%3A%2F%2Fexample.com%2Fa%2F%2Fb%3Fc%3Dd%2520e%26f",
        "/img/w=100;h=200/https%3A%2F%2Fexample.com%2Fa.png",
        "/matrix/a;v=1/b;v=2.0/c",
        "/a%20b/%C3%A9t%C3%A9/100%25",
        "/docs/C%3A%5CUsers%5Cme",
        "/s3/key%2Bwith%2Bplus%26and%3Fmark",
        "/x/%252Fencoded%252Ftwice",
    ] {
        let mut normal = Vec::new();
        normalize_path(path.as_bytes(), Slashes::Merge, &mut normal).unwrap();
        let readings = other_readings(&normal, Slashes::Merge, |reading| reading.starts_with(b"/"));
        let number = readings.as_ref().map(Vec::len);
        assert!(number.is_some_and(|number| number <= 32), "{path}: {number:?}");
    }
}
