//! Rewrites the documents of a file, for comparison with a browser.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

use std::cell::Cell;
use std::sync::Arc;

use foregate_html::features::insert::{Insert, Place};
use foregate_html::features::remove::{Remove, What};
use foregate_html::{ChosenFeature, Feature, Pass, Selector, Terms};
use foregate_module::Chain;

/// The output for a document in pieces of this length; `act` names the action.
fn rewritten(html: &str, act: &str, selector: &str, markup: &str, piece: usize) -> Option<String> {
    rewritten_or_not(html, act, selector, markup, piece, &Cell::new(false))
}

/// The output, and true if the rest passed because the rewriter might have disagreed with a browser.
fn rewritten_or_not(
    html: &str,
    act: &str,
    selector: &str,
    markup: &str,
    piece: usize,
    gave_up: &Cell<bool>,
) -> Option<String> {
    let selector = Selector::followed(selector).ok()?;
    let mut insert = Insert::default();
    let mut remove = Remove::default();
    let place = match act {
        "before" => Some(Place::Before),
        "after" => Some(Place::After),
        "prepend" => Some(Place::Prepend),
        "append" => Some(Place::Append),
        _ => None,
    };
    let edge = match act {
        "head-start" => Some(Place::HeadStart),
        "head-end" => Some(Place::HeadEnd),
        "body-start" => Some(Place::BodyStart),
        "body-end" => Some(Place::BodyEnd),
        _ => None,
    };
    let feature: Arc<dyn Feature> = match (place, edge) {
        (Some(place), _) => {
            insert.at(place, selector, markup, None);
            Arc::new(insert)
        }
        (_, Some(edge)) => {
            insert.edge(edge, markup);
            Arc::new(insert)
        }
        _ if act == "numbers" => {
            remove.add(selector, What::Attribute("k".into()));
            Arc::new(remove)
        }
        _ => {
            remove.add(selector, What::Element);
            Arc::new(remove)
        }
    };
    let terms = Terms { content_type: Some(b"text/html; charset=utf-8".to_vec()), ..Terms::default() };
    let mut chain =
        Chain::new(vec![Pass::filter(vec![(ChosenFeature { step: "test", feature }, false)], terms)]);
    let mut out = Vec::new();
    for piece in html.as_bytes().chunks(piece.max(1)) {
        chain.write(piece, &mut out).unwrap();
        while chain.is_pending() {
            chain.resume(&mut out).unwrap();
        }
    }
    chain.end(&mut out).unwrap();
    chain.report(&mut |_| {}, &mut |finding| {
        gave_up.set(gave_up.get() || finding.event == "markup-ambiguous");
    });
    Some(String::from_utf8(out).unwrap())
}

#[test]
#[ignore = "FOLLOWED names a file of lines: document, act, selector, markup, with tabs between them"]
fn documents_of_a_file_are_rewritten() {
    let path = std::env::var("FOLLOWED").unwrap();
    let mut all = Vec::new();
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let parts: Vec<_> = line.split('\t').collect();
        let [html, act, selector, markup] = parts[..] else { panic!("{line}") };
        let whole = rewritten(html, act, selector, markup, usize::MAX);
        assert_eq!(rewritten(html, act, selector, markup, 1), whole, "{line}");
        all.push(whole.unwrap_or_else(|| "REFUSED".into()));
    }
    std::fs::write(format!("{path}.out"), all.join("\n")).unwrap();
}

/// Lines of a file that is part of this one.
fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split('\t').collect())
}

/// Each element has a number as `k`. The third part of a line is the result of `document.querySelectorAll()` in Chromium.
#[test]
fn selectors_fit_the_elements_that_a_browser_finds() {
    let mut count = 0;
    for line in lines(include_str!("followed/selectors.txt")) {
        let [html, selector, expected] = line[..] else { panic!("{line:?}") };
        let gave_up = Cell::new(false);
        let out = rewritten_or_not(html, "numbers", selector, "", usize::MAX, &gave_up).unwrap();
        let numbers = |html: &str| -> Vec<String> {
            let number = |at: usize| html[at + 3..].chars().take_while(char::is_ascii_digit).collect();
            html.match_indices(" k=").map(|(at, _)| number(at)).collect()
        };
        let rest = numbers(&out);
        let mut found = numbers(html);
        found.retain(|number| !rest.contains(number));
        let mut expected: Vec<_> = expected
            .split(',')
            .filter(|number| !number.is_empty())
            .map(|number| number.trim_end_matches('/').to_owned())
            .collect();
        expected.sort();
        if gave_up.get() {
            assert!(found.iter().all(|number| expected.contains(number)), "{line:?}: {out}");
            continue;
        }
        found.sort();
        assert_eq!(found, expected, "{selector} in {html}: {out}");
        count += 1;
    }
    assert!(count > 300);
}

/// Chromium reads the last part of a line as it reads the first one, but for the elements with `ins`, of which there are none in
/// places where it would not.
#[test]
fn what_is_inserted_leaves_its_surroundings_as_they_are() {
    let mut count = 0;
    for line in lines(include_str!("followed/inserted.txt")) {
        let [html, act, selector, markup, expected] = line[..] else { panic!("{line:?}") };
        for piece in [usize::MAX, 1, 5] {
            assert_eq!(rewritten(html, act, selector, markup, piece).as_deref(), Some(expected), "{line:?}");
        }
        count += 1;
    }
    assert!(count > 100);
}
