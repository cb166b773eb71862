//! For any document and any split: the output is the same, the memory is bounded, and dry runs change
//! nothing.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::sync::Arc;

use foregate_html::features::emails::Emails;
use foregate_html::features::images::Images;
use foregate_html::features::insert::{Insert, Place};
use foregate_html::features::links::Links;
use foregate_html::features::remove::{Remove, What};
use foregate_html::features::replace_text::ReplaceText;
use foregate_html::{ChosenFeature, Feature, Pass, Selector, Terms};
use foregate_module::{Chain, Finding};
use proptest::prelude::*;

/// Parts of documents, such as tokenizers are tested with: complete constructs, incomplete ones, and look-alikes.
const PARTS: &[&str] = &[
    "<p class=ad>",
    "<li class=ad>",
    "<div class=ad>",
    "<li>",
    "</div>",
    "<svg/>",
    "<html>",
    "<head>",
    "</head>",
    "<body class=x>",
    "</body>",
    "</html>",
    "<title>",
    "</title>",
    "<!doctype html>",
    "<p>",
    "</p>",
    "<p",
    ">",
    "/>",
    "<br/>",
    "<div id=a class='b c'>",
    "</div>",
    "<span>",
    "</span >",
    "<a href=",
    "'mailto:a@b.de?x=1&amp;y'",
    "\"http://old.example/x\"",
    "<a href='/static/x'>",
    "</a>",
    "<img src=p-10x20.png>",
    "<img srcset='/static/a 1x, http://old.example/b 2x' loading=eager>",
    "<iframe src=x></iframe>",
    "<script>",
    "</script>",
    "<script src=/tracker.js>",
    "<style>",
    "</style>",
    "<textarea>",
    "</textarea>",
    "<noscript>",
    "</noscript>",
    "<svg>",
    "</svg>",
    "<math>",
    "</math>",
    "<select><option>",
    "</select>",
    "<table><tr><td>",
    "</table>",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "--!>",
    "<!-->",
    "<!--email_off-->",
    "<!--/email_off-->",
    "<!---",
    "<!x",
    "<?php ?>",
    "</",
    "</>",
    "< ",
    "<",
    "&",
    "&amp;",
    "&#64;",
    "&lt;",
    "'",
    "\"",
    "=",
    " ",
    "\n",
    "\0",
    "one",
    "ONE",
    "on",
    "e",
    "one more",
    "AT&T",
    "AT&amp;T",
    "x@y.de",
    "x",
    "@",
    "y.de",
    ".",
    "name@host.example",
    "grün",
    "ü",
    "\u{20ac}",
    "日本",
    "\u{10fe80}",
    "\u{fffff}&x;",
    "<font>",
    "</font>",
    "<b onclick=x>",
    "<xmp>",
    "</xmp>",
    "<plaintext>",
    "<svg/>",
    "<title/>",
    "<math/>",
    "<mtext>",
    "</mtext>",
    "<mglyph>",
    "<desc>",
    "</desc>",
    "<svg><foreignObject>",
    "</foreignObject></svg>",
    "<svg><style>",
    "<svg><title>",
    "<frameset>",
    "<col>",
    "<td>",
    "'mailto:a@b.de?x=Gr&uuml;n&#8364;'>",
    "'mailto:a@b.de?x=&euro;'>",
    "<template>",
    "</template>",
];

/// The event of a document that passes from a point on since browsers may read it differently.
const AMBIGUOUS: &str = "markup-ambiguous";

/// Removed constructs, and text that may join in their place.
const JOINTS: &[&str] = &[
    "<",
    "<",
    "<",
    "img ",
    "img>",
    "1",
    "2",
    "a",
    "/",
    "!--",
    "-->",
    "<!-- x -->",
    "<b>",
    "</b>",
    "<font>",
    "</font>",
    "<title>",
    "</title>",
    "/title>",
    "<textarea>",
    "</textarea>",
    "<p>",
    "</p>",
    "&lt;",
    "<img>",
    ">",
];

fn features(dry: bool) -> Vec<(ChosenFeature, bool)> {
    let mut insert = Insert::default();
    for (place, html) in [
        (Place::HeadStart, "<meta name=start>"),
        (Place::HeadEnd, "<style>é{}</style>"),
        (Place::BodyStart, "<i>start</i>"),
        (Place::BodyEnd, "<i>end</i>"),
    ] {
        insert.edge(place, html);
    }
    insert.at(Place::After, Selector::parse("p").unwrap(), "<hr>", Some(3));
    insert.at(Place::Append, Selector::parse("div > span").unwrap(), "\u{2713}", None);
    let mut remove = Remove::default();
    remove.add(Selector::parse("script[src*=tracker]").unwrap(), What::Element);
    remove.add(Selector::parse("font").unwrap(), What::Tags);
    remove.add(Selector::parse(".ad").unwrap(), What::Element);
    remove.add(Selector::parse("[onclick]").unwrap(), What::Attribute("onclick".into()));
    let pairs = [("one", "two"), ("one more", "<3>"), ("AT&T", "A&B"), ("grün", "")];
    let pairs = pairs.map(|(from, to)| (from.to_owned(), to.to_owned())).into();
    let features: [Arc<dyn Feature>; 6] = [
        Arc::new(remove),
        Arc::new(
            Links::default().prefix("/static/", "//s.example/").host("old.example", "new.example").https(),
        ),
        Arc::new(Images::default().lazy(1).sizes_from_names()),
        Arc::new(ReplaceText::new(pairs, false)),
        Arc::new(Emails::new("[email protected]")),
        Arc::new(insert),
    ];
    features.into_iter().map(|feature| (ChosenFeature { step: "test", feature }, dry)).collect()
}

/// The output for a document in pieces of these lengths, repeated.
fn rewritten(
    html: &[u8],
    content_type: &str,
    pieces: &[usize],
    dry: bool,
    budget: usize,
) -> (Vec<u8>, Vec<Finding>) {
    let terms = Terms { content_type: Some(content_type.into()), nonce: None, path: None, budget };
    let mut chain = Chain::new(vec![Pass::filter(features(dry), terms)]);
    let (mut out, mut rest) = (Vec::new(), html);
    for length in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, others) = rest.split_at((*length).clamp(1, rest.len()));
        rest = others;
        chain.write(piece, &mut out).unwrap();
        chain.flush(&mut out).unwrap();
        while chain.is_pending() {
            let before = out.len();
            chain.resume(&mut out).unwrap();
            assert!(out.len() - before <= 256 * 1024);
        }
    }
    chain.end(&mut out).unwrap();
    let mut found = Vec::new();
    chain.report(&mut |_| {}, &mut |finding| found.push(finding));
    (out, found)
}

fn holds(html: &[u8], pieces: &[usize]) {
    for content_type in ["text/html; charset=utf-8", "text/html", "text/html; charset=shift_jis"] {
        let whole = rewritten(html, content_type, &[usize::MAX], false, 1 << 20);
        let split = rewritten(html, content_type, pieces, false, 1 << 20);
        assert!(
            whole == split,
            "{content_type}, pieces {pieces:?} of {:?}:\n{}\n{}",
            String::from_utf8_lossy(html),
            String::from_utf8_lossy(&whole.0),
            String::from_utf8_lossy(&split.0)
        );
        let (dry, found) = rewritten(html, content_type, pieces, true, 1 << 20);
        assert!(dry == html);
        assert_eq!(found, rewritten(html, content_type, &[usize::MAX], true, 1 << 20).1, "{content_type}");
        let events = ["dry-run-matches", AMBIGUOUS, "not-html"];
        assert!(found.iter().all(|finding| events.contains(&finding.event)), "{found:?}");
    }
}

fn document() -> impl Strategy<Value = Vec<u8>> {
    const BEGINS: [&str; 4] = ["<!doctype html>", "<html>", "<link>", ""];
    let part = prop_oneof![
        9 => proptest::sample::select(PARTS).prop_map(|part| part.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..4),
    ];
    let begins = proptest::sample::select(&BEGINS[..]);
    (begins, proptest::collection::vec(part, 0..40))
        .prop_map(|(begins, parts)| [begins.as_bytes(), &parts.concat()].concat())
}

/// Insertions that may be complete before the document ends, alone or with a feature that keeps the pass busy to the end.
fn inserted(
    html: &[u8],
    content_type: &str,
    pieces: &[usize],
    which: u8,
    busy: bool,
) -> (Vec<u8>, Vec<Finding>) {
    struct Busy;
    impl Feature for Busy {
        fn growth(&self) -> usize {
            0
        }
        fn begin(self: Arc<Self>, _: &foregate_html::Page) -> Box<dyn foregate_html::Rewrite> {
            struct Nothing;
            impl foregate_html::Rewrite for Nothing {}
            Box::new(Nothing)
        }
    }
    let mut insert = Insert::default();
    let edges = [Place::HeadStart, Place::HeadEnd, Place::BodyStart];
    for (number, place) in edges.into_iter().enumerate().filter(|(number, _)| which & 1 << number != 0) {
        insert.edge(place, &format!("<i>{number}\u{10fe80}ü</i>"));
    }
    let at =
        [(Place::Before, "p"), (Place::Prepend, "div"), (Place::After, "p, br, span"), (Place::Append, "a")];
    for (number, (place, selector)) in at.into_iter().enumerate().filter(|(at, _)| which & 8 << at != 0) {
        insert.at(place, Selector::parse(selector).unwrap(), &format!("<b>{number}</b>"), Some(1));
    }
    let mut features: Vec<(ChosenFeature, bool)> =
        vec![(ChosenFeature { step: "test", feature: Arc::new(insert) }, false)];
    if busy {
        features.push((ChosenFeature { step: "busy", feature: Arc::new(Busy) }, false));
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
    }
    chain.end(&mut out).unwrap();
    let mut found = Vec::new();
    chain.report(&mut |_| {}, &mut |finding| found.push(finding));
    (out, found)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same(html in document(), pieces in proptest::collection::vec(1_usize..20, 1..8)) {
        holds(&html, &pieces);
    }

    /// With little memory, and with names and attributes that take much of it, a document passes from the same place on.
    #[test]
    fn any_split_gives_up_at_the_same_place(
        html in document(),
        rest in document(),
        (name, attribute) in (0_usize..3, 0_usize..2),
        pieces in proptest::collection::vec(1_usize..2000, 1..8),
    ) {
        let long = format!("<{}>", "n".repeat(9_000)).repeat(name);
        let value = format!("<p title='{}'>one</p>", "y".repeat(30_000 * attribute));
        let html = [&html, long.as_bytes(), value.as_bytes(), &rest].concat();
        let whole = rewritten(&html, "text/html; charset=utf-8", &[usize::MAX], false, 16 << 10);
        let split = rewritten(&html, "text/html; charset=utf-8", &pieces, false, 16 << 10);
        prop_assert!(whole == split, "{pieces:?}\n{}\n{}", String::from_utf8_lossy(&whole.0), String::from_utf8_lossy(&split.0));
    }

    #[test]
    fn what_is_done_early_is_as_if_the_pass_went_on(
        html in document(),
        pieces in proptest::collection::vec(1_usize..20, 1..8),
        which in 1_u8..128,
    ) {
        // Only the pass without the rewriter treats self-closing SVG as closed.
        let lower = html.to_ascii_lowercase();
        prop_assume!([&b"<svg/"[..], b"<math/"].iter().all(|tag| lower.windows(tag.len()).all(|window| window != *tag)));
        // Others pass by the same way; those of one bit are over soonest.
        for which in [which, which & which.wrapping_neg()] {
            for content_type in ["text/html; charset=utf-8", "text/html; charset=shift_jis"] {
                let busy = inserted(&html, content_type, &[usize::MAX], which, true);
                for pieces in [&pieces[..], &[1], &[usize::MAX]] {
                    let done = inserted(&html, content_type, pieces, which, false);
                    // Ambiguous text is not examined behind the last insertion, nor in texts that only one pass recognises.
                    let is_ambiguous = |found: &[Finding]| found.iter().any(|finding| finding.event == AMBIGUOUS);
                    if is_ambiguous(&busy.1) && !is_ambiguous(&done.1) {
                        let same = busy.0.iter().zip(&done.0).take_while(|(one, other)| one == other).count();
                        prop_assert!(html.ends_with(&busy.0[same..]), "it is not as it was behind where the pass gave up");
                        continue;
                    }
                    prop_assert!(
                        done == busy,
                        "{content_type}, pieces {pieces:?}, {which}:\n{}\n{}",
                        String::from_utf8_lossy(&done.0),
                        String::from_utf8_lossy(&busy.0)
                    );
                }
            }
        }
    }

    /// A page in which nobody has written an image has none, whatever is taken out of it.
    #[test]
    fn what_is_taken_out_makes_no_elements(
        parts in proptest::collection::vec(proptest::sample::select(JOINTS), 0..24),
        pieces in proptest::collection::vec(1_usize..9, 1..4),
    ) {
        let html = parts.concat();
        let mut remove = Remove::default();
        remove.add(Selector::parse("b").unwrap(), What::Element);
        remove.add(Selector::parse("font").unwrap(), What::Tags);
        remove.comments();
        let pairs = [("1", ""), ("2", "img "), ("1img", "i")].map(|(from, to)| (from.into(), to.into()));
        let features: [Arc<dyn Feature>; 2] = [Arc::new(remove), Arc::new(ReplaceText::new(pairs.into(), false))];
        let run = |html: &[u8], pieces: &[usize], features: &[Arc<dyn Feature>]| {
            let features = features.iter().map(|feature| (ChosenFeature { step: "test", feature: Arc::clone(feature) }, false));
            let terms = Terms { content_type: Some(b"text/html; charset=utf-8".to_vec()), ..Terms::default() };
            let mut chain = Chain::new(vec![Pass::filter(features.collect(), terms)]);
            let (mut out, mut rest) = (Vec::new(), html);
            for length in pieces.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, others) = rest.split_at((*length).clamp(1, rest.len()));
                rest = others;
                chain.write(piece, &mut out).unwrap();
            }
            chain.end(&mut out).unwrap();
            let mut images = 0;
            chain.report(&mut |_| {}, &mut |finding| images += finding.count);
            (out, images)
        };
        let whole = run(html.as_bytes(), &[usize::MAX], &features).0;
        prop_assert_eq!(&run(html.as_bytes(), &pieces, &features).0, &whole);
        for features in [&features[..1], &features] {
            let mut images = Remove::default();
            images.add(Selector::parse("img").unwrap(), What::Element);
            let images: [Arc<dyn Feature>; 1] = [Arc::new(images)];
            let before = run(html.as_bytes(), &[usize::MAX], &images).1;
            let made = run(html.as_bytes(), &pieces, features).0;
            let after = run(&made, &[usize::MAX], &images).1;
            prop_assert!(after <= before, "{html}\n{}", String::from_utf8_lossy(&made));
        }
    }

    /// Out of memory or not: without features that change anything, every byte comes out.
    #[test]
    fn no_byte_is_lost_when_memory_runs_out(html in document(), piece in 1_usize..50) {
        struct Looks([Selector; 1]);
        impl Feature for Looks {
            fn selectors(&self) -> &[Selector] {
                &self.0
            }
            fn reads(&self) -> foregate_html::Reads {
                foregate_html::Reads { text: true, titles: true, comments: true, end: true }
            }
            fn growth(&self) -> usize {
                0
            }
            fn begin(self: Arc<Self>, _: &foregate_html::Page) -> Box<dyn foregate_html::Rewrite> {
                struct Nothing;
                impl foregate_html::Rewrite for Nothing {}
                Box::new(Nothing)
            }
        }
        let html = html.repeat(40);
        let feature: Arc<dyn Feature> = Arc::new(Looks([Selector::parse("div span").unwrap()]));
        let terms = Terms { content_type: Some(b"text/html; charset=utf-8".to_vec()), nonce: None, path: None, budget: 4096 };
        let mut chain = Chain::new(vec![Pass::filter(vec![(ChosenFeature { step: "test", feature }, false)], terms)]);
        let mut out = Vec::new();
        for piece in html.chunks(piece) {
            chain.write(piece, &mut out).unwrap();
        }
        chain.end(&mut out).unwrap();
        prop_assert!(out == html);
    }
}

#[test]
fn pages_are_rewritten_alike_wherever_they_are_split() {
    let mut count = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pages")).unwrap() {
        let html = std::fs::read(entry.unwrap().path()).unwrap();
        for pieces in [&[1][..], &[2, 3], &[7, 1, 64], &[100, 1]] {
            holds(&html, pieces);
        }
        let whole = rewritten(&html, "text/html", &[usize::MAX], false, 1 << 20);
        assert!(whole.1.iter().any(|finding| finding.count > 3), "the page has something to change");
        for at in (1..html.len()).step_by(11) {
            assert!(
                rewritten(&html, "text/html", &[at, usize::MAX], false, 1 << 20) == whole,
                "split at {at}"
            );
        }
        count += 1;
    }
    assert!(count >= 3, "the pages are there");
}

/// A page of many addresses with a slow reader.
#[test]
fn a_large_page_that_grows_is_never_held() {
    // 60 MB where it takes a second, a tenth of it where nothing is optimised.
    const ADDRESSES: usize = if cfg!(debug_assertions) { 40_000 } else { 800_000 };
    let line = |number: usize| {
        format!("<p>person{number:06}@example.com writes text of some length here, as it is.</p>\n")
    };
    let terms = Terms { content_type: Some(b"text/html; charset=utf-8".to_vec()), ..Terms::default() };
    let feature: Arc<dyn Feature> = Arc::new(Emails::new("[email protected]"));
    let mut filtered = Pass::filter(vec![(ChosenFeature { step: "emails", feature }, false)], terms);
    let (mut out, mut sent, mut taken, mut most, mut held) = (Vec::new(), 0, 0, 0, 0);
    let mut piece = Vec::with_capacity(4200);
    let mut number = 0;
    while number < ADDRESSES || !piece.is_empty() {
        while piece.len() < Chain::PIECE && number < ADDRESSES {
            piece.extend(line(number).as_bytes());
            number += 1;
        }
        let now: Vec<u8> = piece.drain(..piece.len().min(Chain::PIECE)).collect();
        taken += now.len();
        filtered.filter.write(&now, &mut out).unwrap();
        loop {
            most = most.max(out.len());
            held = held.max(filtered.filter.held());
            sent += out.len();
            out.clear();
            if !filtered.filter.pending() {
                break;
            }
            filtered.filter.write(b"", &mut out).unwrap();
        }
    }
    filtered.filter.end(&mut out).unwrap();
    sent += out.len();
    let mut found = 0;
    filtered.filter.report(&mut |finding| found += finding.count);
    assert_eq!(found, ADDRESSES as u64 + 1, "each address, and the script");
    assert!(taken > 70 * ADDRESSES && sent > taken * 2, "{taken} became {sent}");
    assert!(most <= 64 * 1024, "{most} bytes were written at once");
    // The rewriter itself is counted with 16 KiB.
    assert!(held <= 40 * 1024, "{held} bytes were held");
}

/// Inputs for which the place or the reports once depended on the split.
#[test]
fn documents_that_need_much_memory_are_given_up_at_the_same_place() {
    let name = format!("<{}>", "n".repeat(9_000));
    let title = format!("<p title='{}'>one</p>", "y".repeat(30_000));
    let open = "<u>".repeat(160);
    for (html, event) in [
        // The kind of a body, by a name that does not end in its first kilobyte.
        (format!("{name}<p title=''>one</p><link><head>"), "matches"),
        // A removed element with an end before that of the piece in which it exceeds the limit.
        (
            format!("<!doctype html><li class=ad>{name}{title}<!doctype html><table><tr><td></table>"),
            "memory-exceeded",
        ),
        (format!("<!doctype html><div class=ad>{title}</div><p>one</p>"), "memory-exceeded"),
        (format!("<!doctype html><div class=ad>{}</div><p>one</p>", "one ".repeat(4_090)), "matches"),
        (format!("<!doctype html><div class=ad>{}</div><p>one</p>", "one ".repeat(4_100)), "memory-exceeded"),
        // Tags that are told before the rewriter gives up at one before them.
        (format!("<!doctype html>name@host.example{open}<!doctype html><p class=ad>"), "memory-exceeded"),
    ] {
        let whole = rewritten(html.as_bytes(), "text/html; charset=utf-8", &[usize::MAX], false, 16 << 10);
        assert!(whole.1.iter().any(|finding| finding.event == event), "{:?}", whole.1);
        for pieces in [&[1][..], &[264, 1702, 1054], &[15, 505], &[2000]] {
            let split = rewritten(html.as_bytes(), "text/html; charset=utf-8", pieces, false, 16 << 10);
            assert!(split == whole, "{pieces:?}: {:?} {:?}", split.1, whole.1);
        }
    }
}

/// Several actions on one element, in any order of configuration.
#[test]
fn the_order_of_rules_moves_nothing_across_a_tag() {
    let html = "<!doctype html><body><p>x</p><div>y<p>a<b>c</b></div>";
    let acts = [Place::Before, Place::Prepend, Place::After, Place::Append];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2]] {
        for removes in [false, true] {
            let mut insert = Insert::default();
            for at in order {
                insert.at(acts[at], Selector::parse("p").unwrap(), &format!("<b>{at}</b>"), None);
            }
            let mut remove = Remove::default();
            remove.add(Selector::parse("p").unwrap(), What::Element);
            let mut features: Vec<Arc<dyn Feature>> = vec![Arc::new(insert)];
            features.extend(removes.then(|| Arc::new(remove) as Arc<dyn Feature>));
            let features = features
                .into_iter()
                .map(|feature| (ChosenFeature { step: "test", feature }, false))
                .collect();
            let terms =
                Terms { content_type: Some(b"text/html; charset=utf-8".to_vec()), ..Terms::default() };
            let mut chain = Chain::new(vec![Pass::filter(features, terms)]);
            let mut out = Vec::new();
            chain.write(html.as_bytes(), &mut out).unwrap();
            chain.end(&mut out).unwrap();
            let expected = match removes {
                true => "<!doctype html><body><b>0</b><b>2</b><div>y<b>0</b></div>",
                false => {
                    "<!doctype html><body><b>0</b><p><b>1</b>x<b>3</b></p><b>2</b>\
                     <div>y<b>0</b><p><b>1</b>a<b>c</b><b>3</b></p><b>2</b></div>"
                }
            };
            assert_eq!(String::from_utf8_lossy(&out), expected, "{order:?}");
        }
    }
}
