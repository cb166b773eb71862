//! Insertion at edges by the scanner and by the rewriter, side by side.

use std::sync::Arc;

use foregate_html::features::insert::{Insert, Place};
use foregate_html::{ChosenFeature, Feature, Page, Pass, Rewrite, Terms};
use foregate_module::{Chain, Finding};

/// The event of a document that passes from a point on since browsers may read it differently.
const AMBIGUOUS: &str = "markup-ambiguous";

/// Two features, the second of them in a dry run now and then; with `parsed` beside one that has the pass parse.
pub fn inserted(
    html: &[u8],
    content_type: &str,
    pieces: &[usize],
    which: u8,
    parsed: bool,
) -> (Vec<u8>, Vec<Finding>) {
    struct Parses;
    impl Feature for Parses {
        fn growth(&self) -> usize {
            0
        }
        fn begin(self: Arc<Self>, _: &Page) -> Box<dyn Rewrite> {
            struct Nothing;
            impl Rewrite for Nothing {}
            Box::new(Nothing)
        }
    }
    let edges = [Place::HeadStart, Place::HeadEnd, Place::BodyStart, Place::BodyEnd];
    let insert = |first: bool| {
        let mut insert = Insert::default();
        for (number, place) in edges.into_iter().enumerate().filter(|(number, _)| which & 1 << number != 0) {
            insert.edge(place, &format!("[{number}{}\u{10fe80}ü]", if first { "a" } else { "b" }));
        }
        Arc::new(insert) as Arc<dyn Feature>
    };
    let mut features = vec![(ChosenFeature { step: "one", feature: insert(true) }, false)];
    if which & 16 != 0 {
        features.push((ChosenFeature { step: "two", feature: insert(false) }, which & 32 != 0));
    }
    if parsed {
        features.push((ChosenFeature { step: "parses", feature: Arc::new(Parses) }, false));
    }
    let terms = Terms { content_type: Some(content_type.into()), nonce: None, path: None, budget: 1 << 20 };
    let mut chain = Chain::new(vec![Pass::filter(features, terms)]);
    let (mut out, mut rest) = (Vec::new(), html);
    for length in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, others) = rest.split_at((*length).clamp(1, rest.len()));
        rest = others;
        chain.write(piece, &mut out).unwrap();
        chain.flush(&mut out).unwrap();
    }
    chain.end(&mut out).unwrap();
    let mut found = Vec::new();
    chain.report(&mut |_| {}, &mut |finding| found.push(finding));
    (out, found)
}

/// Returns true if one output equals the other up to some place, and has the rest of the document unchanged behind it.
pub fn gave_up(html: &[u8], early: &[u8], other: &[u8]) -> bool {
    let same = early.iter().zip(other).take_while(|(one, other)| one == other).count();
    // Bytes that are equal by chance belong to the rest.
    html.ends_with(early.get(same..).unwrap_or_default())
}

/// Asserts that both have the same output for all pieces, up to the place where the rewriter gives up.
/// Returns true if both went equally far.
pub fn is_as_parsed(html: &[u8], pieces: &[&[usize]], which: u8) -> bool {
    let mut whole = true;
    for content_type in ["text/html; charset=utf-8", "text/html"] {
        let parsed = inserted(html, content_type, &[usize::MAX], which, true);
        let gives_up = parsed.1.iter().any(|finding| finding.event == AMBIGUOUS);
        for pieces in pieces {
            let scanned = inserted(html, content_type, pieces, which, false);
            let same = scanned == parsed;
            whole &= same;
            // Insertion without the rewriter knows all texts without tags, and all empty elements of SVG and MathML;
            // and behind the last insertion, ambiguous text is not examined.
            assert!(
                same || gives_up && gave_up(html, &parsed.0, &scanned.0),
                "{content_type}, pieces {pieces:?}, {which}: {:?}\nparsed  {}\nscanned {}\n{:?} {:?}",
                String::from_utf8_lossy(html),
                String::from_utf8_lossy(&parsed.0),
                String::from_utf8_lossy(&scanned.0),
                parsed.1,
                scanned.1
            );
        }
    }
    whole
}
