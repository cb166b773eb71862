//! Insertion at the edges of head and body, which is done without the rewriter where nothing else is to be done: it has to be as
//! the rewriter does it, wherever a document is split.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod parsed;

use std::sync::Arc;

use foregate_html::features::insert::{Insert, Place};
use foregate_html::{ChosenFeature, Pass, Terms};
use foregate_module::Chain;
use parsed::{inserted, is_as_parsed};
use proptest::prelude::*;

/// Parts of documents: marks of edges, constructs that hide tags, and contexts in which tags change their meaning.
const PARTS: &[&str] = &[
    "<html>",
    "<HTML lang=a>",
    "</html>",
    "</html >",
    "<html",
    "<head>",
    "<Head a='>'>",
    "<head/>",
    "</head>",
    "</HEAD\n>",
    "</head a=\"</head>\">",
    "<body>",
    "<body class=x>",
    "<BODY\tb",
    "</body>",
    "</body/>",
    "</body",
    "<title>",
    "</title>",
    "<meta charset=utf-8>",
    "<meta a=\"<body>\">",
    "<link href=x/>",
    "<base>",
    "<script>",
    "<script src='</script>'>",
    "</script>",
    "</SCRIPT >",
    "</script",
    "<style>",
    "</style>",
    "<!--",
    "-->",
    "--!>",
    "--",
    "-",
    "!",
    "->",
    "<!",
    "<!-",
    "<!-->",
    "<!--->",
    "<!doctype html>",
    "<!doctype '>",
    "<![CDATA[",
    "]]>",
    "]",
    "]]",
    "<?",
    "</",
    "</>",
    "</ ",
    "<",
    ">",
    "/",
    "/>",
    "=",
    "'",
    "\"",
    " ",
    "\n",
    "a",
    "b",
    "x=y",
    "x='",
    "y=\"",
    "<p>",
    "</p>",
    "<p",
    "<br>",
    "</br>",
    "<div>",
    "</div>",
    "<div><div>",
    "</div></div>",
    "<li>",
    "<table>",
    "</table>",
    "<textarea>",
    "</textarea>",
    "<xmp>",
    "</xmp>",
    "<iframe>",
    "</iframe>",
    "<noscript>",
    "</noscript>",
    "<noembed>",
    "</noembed>",
    "<noframes>",
    "</noframes>",
    "<plaintext>",
    "<template>",
    "</template>",
    "<svg>",
    "<svg/>",
    "</svg>",
    "<svg><svg>",
    "<math>",
    "</math>",
    "<mi>",
    "</mi>",
    "<mtext/>",
    "<desc>",
    "</desc>",
    "<foreignObject>",
    "</foreignobject>",
    "<foreignObject/>",
    "<font>",
    "<font color=a>",
    "<font a size>",
    "</font>",
    "<annotation-xml>",
    "<annotation-xml encoding=text/html>",
    "<annotation-xml encoding='APPLICATION/xhtml+xml'>",
    "<annotation-xml encoding='text/html'/>",
    "</annotation-xml>",
    "<esi:include>",
    "<ESI:include>",
    "</esi:include>",
    "<a-name-that-is-longer>",
    "</a-name-that-is-longer>",
    "<a-name-that-is-other-and-longer>",
    "<bodya>",
    "<body-a>",
    "<bod",
    "y>",
    "</he",
    "ad>",
    "scr",
    "ipt",
    "<scr",
    "</scr",
    "grün",
    "\u{20ac}",
    "\u{10fe80}",
    "\0",
    "<\0",
    "<body\0>",
];

fn document() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        20 => proptest::sample::select(PARTS).prop_map(|part| part.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..4),
    ];
    proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("EDGES_CASES").map_or(1000, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        max_global_rejects: 1 << 20,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_inserted_is_as_parsed(
        html in document(),
        pieces in proptest::collection::vec(1_usize..20, 1..8),
        which in 0_u8..64,
        begins in 0_usize..4,
    ) {
        const BEGINS: [&[u8]; 4] = [b"<html><head><title>t</title>", b"<!doctype html>", b"<script></script>", b""];
        let html = [BEGINS[begins], &html[..]].concat();
        is_as_parsed(&html, &[&[usize::MAX], &[1], &pieces], which);
    }
}

#[test]
fn pages_are_as_parsed() {
    let mut count = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pages")).unwrap() {
        let html = std::fs::read(entry.unwrap().path()).unwrap();
        for which in [1, 2, 4, 8, 15, 31] {
            is_as_parsed(&html, &[&[usize::MAX], &[1], &[7, 1, 64], &[4096]], which);
        }
        let (out, found) = inserted(&html, "text/html", &[usize::MAX], 15, false);
        assert!(
            out.len() > html.len()
                && found.iter().any(|finding| finding.count == 4 || finding.event == "markup-unfinished"),
            "{found:?}"
        );
        count += 1;
    }
    assert!(count >= 3, "the pages are there");
}

#[test]
fn a_script_begins_whatever_its_attributes_lack() {
    for (html, expected) in [
        ("<html><script a=></head></script></head>", "<html><script a=></head></script></head>[1a"),
        ("<head><title b= ></head></title></head>", "<head><title b= ></head></title>[1a"),
    ] {
        let (out, _) = inserted(html.as_bytes(), "text/html; charset=utf-8", &[usize::MAX], 2, false);
        assert!(out.starts_with(expected.as_bytes()), "{}", String::from_utf8_lossy(&out));
    }
}

#[test]
fn what_needs_too_much_memory_passes_and_no_byte_is_lost() {
    let long = format!("<head><title>x</title></head {}", "a='y' ".repeat(10_000));
    let deep = |count: usize| ["<html>", &"<div>one ".repeat(count)].concat();
    for (html, gives_up) in [(long, true), (deep(5_000), true), (deep(500), false)] {
        for piece in [7, 1000, 4096, usize::MAX] {
            let mut insert = Insert::default();
            insert.edge(Place::HeadEnd, "!");
            let feature = Arc::new(insert);
            let terms = Terms {
                content_type: Some(b"text/html; charset=utf-8".to_vec()),
                budget: 16 << 10,
                ..Terms::default()
            };
            let mut chain =
                Chain::new(vec![Pass::filter(vec![(ChosenFeature { step: "one", feature }, false)], terms)]);
            let (mut out, mut most, mut gave_up) = (Vec::new(), 0, false);
            for piece in html.as_bytes().chunks(piece) {
                gave_up |= chain.write(piece, &mut out).unwrap().bailed.is_some();
                most = most.max(chain.held());
            }
            chain.end(&mut out).unwrap();
            assert_eq!((gave_up, out.ends_with(b"!")), (gives_up, !gives_up), "pieces of {piece}");
            assert!(
                String::from_utf8(out).unwrap().trim_end_matches('!') == html && most < 32 << 10,
                "{most}"
            );
        }
    }
}

/// The most expensive known inputs for their length have to be cheap all the same.
#[test]
fn no_document_costs_much_for_its_length() {
    let parts = [
        "<",
        "</",
        "<a",
        "<a<a",
        "<!",
        "<!-",
        "<x y=\"",
        "</x>",
        "<x>",
        "<svg>",
        "<x></y>",
        "-",
        "<script></",
        "<meta>",
    ];
    for part in parts {
        let html = part.repeat((2 << 20) / part.len());
        let begun = std::time::Instant::now();
        let (out, _) = inserted(html.as_bytes(), "text/html; charset=utf-8", &[4096], 15, false);
        assert!(out.len() >= html.len());
        // All of them take a second without optimisation, and minutes where something is gone over again and again.
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{part:?}: {:?}", begun.elapsed());
    }
}
