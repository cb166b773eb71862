//! No byte of a text is lost wherever a feature gives up.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

use std::sync::Arc;

use foregate_html::features::emails::Emails;
use foregate_html::features::insert::{Insert, Place};
use foregate_html::features::remove::{Remove, What};
use foregate_html::features::replace_text::ReplaceText;
use foregate_html::{ChosenFeature, Feature, Pass, Selector, Terms};
use foregate_module::Chain;

/// Texts of which the features hold the end back, before all that may follow one.
const BEFORE: [&str; 6] =
    ["<p>write to someone@host", "<p>foo b", "some.one", "<title>foo b", "<p>a &am", "<p>x <"];
const BEHIND: [&str; 13] = [
    "<!-- c -->.example bar</p>",
    "<!--c",
    "<!-->bar",
    "<!doctype html>bar",
    "<?php ?>bar",
    "</ x>bar",
    "<b>.example</b>bar",
    "</p>bar",
    "<svg><a/></a><style>x</style></svg>bar",
    "<![CDATA[x]]>bar",
    "<svg><text>foo b<![CDATA[x]]>ar<![CDATA[ foo b]]>ar</text>",
    "<x",
    "&#64;b.example ar",
];

fn features(which: usize) -> Vec<(ChosenFeature, bool)> {
    // Reverting the replacement distinguishes changed text from lost text.
    let pairs = vec![("foo bar".to_owned(), "\u{2713}".to_owned())];
    let features: [Arc<dyn Feature>; 2] =
        [Arc::new(ReplaceText::new(pairs, false)), Arc::new(Emails::new("-"))];
    let chosen = features.into_iter().map(|feature| (ChosenFeature { step: "test", feature }, false));
    chosen.enumerate().filter(|(number, _)| which & 1 << number != 0).map(|(_, chosen)| chosen).collect()
}

/// The document without the insertions of features.
fn taken_back(out: &[u8]) -> String {
    let mut out = String::from_utf8_lossy(out).replace('\u{2713}', "foo bar").replace("&#10003;", "foo bar");
    out = out.replace("<script src=/.foregate/email-decode.min.js defer></script>", "");
    while let Some(at) = out.find("<span data-fg-email=") {
        let rest = &out[at + "<span data-fg-email=".len()..];
        let (code, behind) = rest.split_once(">-</span>").unwrap();
        let bytes: Vec<u8> = (0..code.len() / 2)
            .map(|at| u8::from_str_radix(&code[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        let address: Vec<u8> = bytes[1..].iter().map(|byte| byte ^ bytes[0]).collect();
        out = format!("{}{}{behind}", &out[..at], String::from_utf8(address).unwrap());
    }
    out.replace("&lt;", "<")
}

fn passes(html: &[u8], at: usize, budget: usize, content_type: &str, gives_up: bool) {
    (1..4).for_each(|which| passes_with(which, html, at, budget, content_type, gives_up));
}

fn passes_with(which: usize, html: &[u8], at: usize, budget: usize, content_type: &str, gives_up: bool) {
    let terms = Terms { content_type: Some(content_type.into()), budget, ..Terms::default() };
    let filtered = Pass::filter(features(which), terms);
    let (first, second) = html.split_at(at);
    let mut out = Vec::new();
    let told = |out: &[u8]| {
        assert_eq!(
            taken_back(out),
            String::from_utf8_lossy(html).replace("&lt;", "<"),
            "features {which}, split at {at}, {budget} bytes, {content_type}, gives up: {gives_up}: {}",
            String::from_utf8_lossy(out)
        );
    };
    if gives_up {
        let mut filter = filtered.filter;
        if filter.write(first, &mut out).is_ok() {
            filter.bail(&mut out).unwrap();
        }
        out.extend_from_slice(second);
        return told(&out);
    }
    let mut chain = Chain::new(vec![filtered]);
    for piece in [first, second] {
        chain.write(piece, &mut out).unwrap();
        while chain.is_pending() {
            chain.resume(&mut out).unwrap();
        }
    }
    chain.end(&mut out).unwrap();
    told(&out);
}

#[test]
fn no_byte_of_a_text_is_lost_where_a_feature_gives_up() {
    for before in BEFORE {
        for behind in BEHIND {
            let html = format!("{before}{behind}");
            for content_type in ["text/html; charset=utf-8", "text/html; charset=koi8-r", "text/html"] {
                for at in 0..=html.len() {
                    for budget in [16 << 10, 1 << 16] {
                        passes(html.as_bytes(), at, budget, content_type, false);
                    }
                    passes(html.as_bytes(), at, 1 << 16, content_type, true);
                }
            }
        }
    }
}

#[test]
fn nor_where_a_comment_or_tag_is_longer_than_may_be_held() {
    for before in BEFORE {
        for opens in ["<!--", "<x ", "<!doctype ", "<?", "</x "] {
            let html = format!("{before}{opens}{}", "y".repeat(20_000));
            for budget in [16 << 10, 17 << 10] {
                for at in (0..html.len().min(60)).chain([600, 1100, 16_000]) {
                    passes(html.as_bytes(), at, budget, "text/html; charset=utf-8", false);
                    passes(html.as_bytes(), at, budget, "text/html; charset=koi8-r", false);
                }
            }
        }
    }
}

#[test]
fn nor_where_open_elements_use_up_what_may_be_held() {
    for behind in [
        "<!-- c -->bar",
        "<!-- c",
        "<!DOCTYPE x>bar",
        "<b>bar",
        "</i>bar",
        "<![CDATA[",
        "<?x?>bar",
        "<br>bar",
    ] {
        for before in ["foo b", "a@b", "a &am", "a <"] {
            for open in (0..600).step_by(41) {
                let long = "y".repeat(40 * (open % 7));
                let html = format!("{}{before}{}", "<i>".repeat(open), behind.replace(" c", &long));
                for at in [open * 3 + 2, open * 3 + before.len(), open * 3 + before.len() + 5, html.len()] {
                    for budget in [16 << 10, 18_000] {
                        passes(
                            html.as_bytes(),
                            at.min(html.len()),
                            budget,
                            "text/html; charset=utf-8",
                            false,
                        );
                        passes(
                            html.as_bytes(),
                            at.min(html.len()),
                            budget,
                            "text/html; charset=koi8-r",
                            false,
                        );
                    }
                }
            }
        }
    }
}

/// The same features, together with those that insert at elements and remove them.
fn with_others(which: usize) -> Vec<(ChosenFeature, bool)> {
    let mut insert = Insert::default();
    for (place, selector) in [(Place::Before, "i"), (Place::After, "u"), (Place::Prepend, "p")] {
        insert.at(place, Selector::followed(selector).unwrap(), "\u{2714}", None);
    }
    let mut remove = Remove::default();
    remove.add(Selector::followed("del").unwrap(), What::Element);
    let others: [Arc<dyn Feature>; 2] = [Arc::new(remove), Arc::new(insert)];
    let [remove, insert] = others.map(|feature| (ChosenFeature { step: "test", feature }, false));
    let mut all = features(which);
    all.insert(0, remove);
    all.push(insert);
    all
}

/// A document in two pieces, as the features write it.
fn written(
    features: Vec<(ChosenFeature, bool)>,
    html: &[u8],
    at: usize,
    content_type: &str,
) -> (Vec<u8>, bool) {
    let terms = Terms { content_type: Some(content_type.into()), ..Terms::default() };
    let mut chain = Chain::new(vec![Pass::filter(features, terms)]);
    let mut out = Vec::new();
    let (first, second) = html.split_at(at);
    for piece in [first, second] {
        chain.write(piece, &mut out).unwrap();
        while chain.is_pending() {
            chain.resume(&mut out).unwrap();
        }
    }
    chain.end(&mut out).unwrap();
    let mut gave_up = false;
    chain.report(&mut |_| {}, &mut |finding| {
        gave_up |= matches!(finding.event, "markup-ambiguous" | "memory-exceeded");
    });
    (out, gave_up)
}

/// Markup at which the rest of a document passes, since browsers may read it otherwise.
const DOUBTS: [&str; 8] = [
    "<svg/></a><textarea>",
    "<svg><path></div><script>",
    "<svg><title><![CDATA[",
    "<svg><desc><b></desc>",
    "<math><mtext><mglyph><style>",
    "<select><iframe>",
    "<frameset><style>",
    "<style x=>",
];

#[test]
fn nor_where_browsers_may_read_otherwise_beside_a_comment() {
    const COMMENTS: [&str; 6] = ["<!-- c -->", "<!--[if IE]>", "<!-->", "<!--->", "<!--", "<!-- c"];
    const TEXTS: [&str; 7] =
        ["<p>foo b", "<p>a@b", "<p>a&#64;b", "<del>foo b", "<i>a.b", "<title>foo b", "x <"];
    let (mut all, mut gave_up) = (0, 0);
    for text in TEXTS {
        for doubt in DOUBTS {
            for comment in COMMENTS {
                for html in
                    [format!("{text}{doubt}{comment}ar.example</p>"), format!("{text}{comment}{doubt}foo b")]
                {
                    for at in text.len().saturating_sub(3)..=html.len() {
                        // Every document with every split, each with one of the six ways.
                        let content_type = match all / 3 % 2 {
                            0 => "text/html; charset=utf-8",
                            _ => "text/html; charset=koi8-r",
                        };
                        let features = match all % 3 {
                            2 => with_others(3),
                            which => features(which + 1),
                        };
                        let (out, lost) = written(features, html.as_bytes(), at, content_type);
                        let out = taken_back(&out).replace("&#10004;", "").replace('\u{2714}', "");
                        let expected = html.replace("&lt;", "<").replace("&#64;", "@");
                        assert_eq!(
                            out.replace("&#64;", "@"),
                            expected,
                            "{html}, split at {at}, {content_type}"
                        );
                        all += 1;
                        gave_up += usize::from(lost);
                    }
                }
            }
        }
    }
    assert!(gave_up > all / 2, "{gave_up} of {all}");
}

#[test]
fn nor_where_more_is_open_than_is_followed() {
    for (open, count) in [("<span>", 520), ("<b id=x>", 1000), ("<p></p>", 1500)] {
        for behind in ["foo b<!-- c -->ar", "a@b<!-- c -->.example", "foo b<!-- c", "x <!-->"] {
            let begin = open.repeat(count);
            for back in (0..40).step_by(5) {
                let html = format!("{begin}{behind}{begin}{behind}");
                let (out, _) = written(
                    with_others(3),
                    html.as_bytes(),
                    begin.len() + 20 - back,
                    "text/html; charset=utf-8",
                );
                assert_eq!(taken_back(&out).replace('\u{2714}', ""), html, "{open} {behind} {back}");
            }
        }
    }
}
