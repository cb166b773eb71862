//! The tokenizer inputs of html5lib: the output is the same for every split, dry runs change nothing, and
//! insertion without the rewriter equals insertion with it.
//!
//! `make test-html` fetches them and names their folder in `HTML5LIB`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at what it did not expect"
)]

mod parsed;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use foregate_html::features::emails::Emails;
use foregate_html::features::images::Images;
use foregate_html::features::include::Include;
use foregate_html::features::insert::{Insert, Place};
use foregate_html::features::links::Links;
use foregate_html::features::remove::{Remove, What};
use foregate_html::features::replace_text::ReplaceText;
use foregate_html::{ChosenFeature, Feature, FragmentRules, Pass, Selector, Terms};
use foregate_module::{Chain, FetchTarget, Finding};
use serde_json::Value;

/// Fewer are not all that there are.
const LEAST: usize = 6_000;
/// The document around an input, which is also tested alone: it has work for each feature on both sides.
const BEFORE: &str = "<html><head><title>a</title></head><body><p>a@b.de &amp;";
const AFTER: &str = "</p><a href='mailto:a@b.de'>a</a><img src=p-1x2.png><h a>a&</h><!--a--><font>b@c.de</font></body></html>";

/// All features, made to find something in documents that consist of little.
fn features(dry: bool) -> Vec<(ChosenFeature, bool)> {
    let mut insert = Insert::default();
    insert.edge(Place::HeadStart, "<meta name=start>");
    insert.edge(Place::HeadEnd, "<style>é{}</style>");
    insert.edge(Place::BodyStart, "<i>start</i>");
    insert.edge(Place::BodyEnd, "<i>end</i>");
    insert.at(Place::Before, Selector::parse("h").unwrap(), "<hr>", None);
    insert.at(Place::Append, Selector::parse("[a]").unwrap(), "\u{2713}", None);
    let mut remove = Remove::default();
    remove.add(Selector::parse("font").unwrap(), What::Tags);
    remove.add(Selector::parse("[b]").unwrap(), What::Attribute("b".into()));
    remove.add(Selector::parse("z").unwrap(), What::Element);
    remove.comments();
    let mut links = Links::default().prefix("/", "//a.example/").https();
    links.attribute("a");
    let pairs = [("a", "<b>"), ("&", "and"), ("no", "é"), ("\u{fffd}", "")];
    let pairs = pairs.map(|(from, to)| (from.to_owned(), to.to_owned())).into();
    let rules = FragmentRules {
        target: FetchTarget::Site,
        timeout: Duration::from_secs(1),
        size: 1024,
        count: 1,
        depth: 1,
        fallback: String::new(),
    };
    let features: [Arc<dyn Feature>; 7] = [
        Arc::new(Include::new(rules)),
        Arc::new(remove),
        Arc::new(links),
        Arc::new(Images::default().lazy(0).sizes_from_names()),
        Arc::new(ReplaceText::new(pairs, true)),
        Arc::new(Emails::new("[email protected]")),
        Arc::new(insert),
    ];
    features.into_iter().map(|feature| (ChosenFeature { step: "test", feature }, dry)).collect()
}

/// The output for a document in these pieces.
fn rewritten<'d>(
    pieces: impl Iterator<Item = &'d [u8]>,
    content_type: &str,
    dry: bool,
) -> (Vec<u8>, Vec<Finding>) {
    let terms = Terms { content_type: Some(content_type.into()), nonce: None, path: None, budget: 1 << 20 };
    let mut chain = Chain::new(vec![Pass::filter(features(dry), terms)]);
    let mut out = Vec::new();
    for piece in pieces {
        chain.write(piece, &mut out).unwrap();
        chain.flush(&mut out).unwrap();
        while chain.is_pending() {
            chain.resume(&mut out).unwrap();
        }
    }
    chain.end(&mut out).unwrap();
    while chain.is_pending() {
        chain.resume(&mut out).unwrap();
    }
    let mut found = Vec::new();
    chain.report(&mut |_| {}, &mut |finding| found.push(finding));
    (out, found)
}

/// Every split into two around `from..to`, and byte by byte. How many there were.
fn holds(html: &[u8], from: usize, to: usize, content_type: &str) -> usize {
    let whole = rewritten(std::iter::once(html), content_type, false);
    let same = |split: (Vec<u8>, Vec<Finding>), how: &str| {
        assert!(
            split == whole,
            "{content_type}, {how}: {:?}\n{}\n{}",
            String::from_utf8_lossy(html),
            String::from_utf8_lossy(&whole.0),
            String::from_utf8_lossy(&split.0)
        );
    };
    for at in from.max(1)..to.min(html.len()) {
        let (first, second) = html.split_at(at);
        same(rewritten([first, second].into_iter(), content_type, false), &format!("split at {at}"));
    }
    same(rewritten(html.chunks(1), content_type, false), "byte by byte");
    let (dry, _) = rewritten(html.chunks(1), content_type, true);
    assert!(dry == html, "a dry run changes {:?}", String::from_utf8_lossy(html));
    to.min(html.len()).saturating_sub(from.max(1)) + 2
}

/// The bytes of an input, in which those that JSON cannot hold may be escaped a second time. Half of a surrogate pair is
/// written as UTF-8 would have it if it were a character, which is an error that documents have.
fn bytes(input: &str, escaped: bool) -> Vec<u8> {
    let mut units = Vec::new();
    let mut rest = input;
    while let Some(first) = rest.chars().next() {
        let code = rest.get(2..6).filter(|_| escaped && rest.starts_with("\\u"));
        match code.and_then(|code| u16::from_str_radix(code, 16).ok()) {
            Some(unit) => {
                units.push(unit);
                rest = &rest[6..];
            }
            None => {
                units.extend_from_slice(first.encode_utf16(&mut [0; 2]));
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    let mut out = Vec::new();
    for character in char::decode_utf16(units) {
        match character {
            Ok(character) => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(half) => {
                let unit = half.unpaired_surrogate();
                out.extend([
                    0xe0 | (unit >> 12) as u8,
                    0x80 | (unit >> 6 & 63) as u8,
                    0x80 | (unit & 63) as u8,
                ]);
            }
        }
    }
    out
}

/// The tag that brings a tokenizer into a state.
fn tag(state: &str, last: Option<&str>) -> String {
    let name = match state {
        "Data state" => return String::new(),
        "CDATA section state" => return "<svg><![CDATA[".to_owned(),
        "PLAINTEXT state" => "plaintext",
        "RCDATA state" => last.unwrap_or("textarea"),
        "RAWTEXT state" => last.unwrap_or("style"),
        "Script data state" => last.unwrap_or("script"),
        other => panic!("no state is known that is called {other:?}"),
    };
    format!("<{name}>")
}

#[test]
#[ignore = "its inputs are fetched by make test-html"]
fn inputs_of_html5lib_are_rewritten_alike_wherever_they_are_split() {
    let folder = PathBuf::from(std::env::var("HTML5LIB").expect("HTML5LIB names the folder of the inputs"));
    let (mut inputs, mut splits, mut changed, mut compared) = (0, 0, 0, (0, 0));
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "test") {
            continue;
        }
        let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let lists = file.as_object().unwrap().values().filter_map(Value::as_array);
        for test in lists.flatten() {
            let input = bytes(test["input"].as_str().unwrap(), test["doubleEscaped"] == true);
            let states = test["initialStates"].as_array().cloned();
            for state in states.unwrap_or_else(|| vec!["Data state".into()]) {
                let tag = tag(state.as_str().unwrap(), test["lastStartTag"].as_str());
                let alone = [tag.as_bytes(), &input].concat();
                let within = [BEFORE.as_bytes(), &alone, AFTER.as_bytes()].concat();
                let (from, to) = (BEFORE.len(), BEFORE.len() + alone.len() + 1);
                splits += holds(&alone, 0, alone.len(), "text/html; charset=utf-8");
                splits += holds(&alone, 0, alone.len(), "text/html");
                splits += holds(&within, from, to, "text/html; charset=utf-8");
                for html in [&alone, &within] {
                    let whole = parsed::is_as_parsed(html, &[&[usize::MAX], &[1], &[2, 3]], 15);
                    compared.0 += usize::from(whole);
                    compared.1 += 1;
                }
                let (_, found) = rewritten(std::iter::once(&*alone), "text/html; charset=utf-8", false);
                changed += usize::from(found.iter().any(|finding| finding.event == "matches"));
            }
            inputs += 1;
        }
    }
    let (whole, all) = compared;
    println!("{inputs} inputs, {splits} splits; features found something in {changed} of those alone");
    println!("insertion at edges is as parsed in {all} documents, to the end in {whole} of them");
    assert!(inputs >= LEAST && changed > inputs / 2 && 20 * whole > 19 * all);
}

#[test]
fn inputs_are_decoded_as_their_format_says() {
    assert_eq!(bytes("a\\u0000\\uD83D\\uDE00", true), "a\0\u{1f600}".as_bytes());
    assert_eq!(bytes("\\u0000é", false), "\\u0000é".as_bytes());
    assert_eq!(bytes("\\uD800x", true), b"\xed\xa0\x80x");
}
