//! Invariants for any rewritten document. The body of a fuzz target, also run over its corpus by `cargo test`.
//!
//! The first byte of an input chooses the encoding and the splits of the rest, the document.

use std::sync::Arc;

use foregate_html::features::emails::Emails;
use foregate_html::features::images::Images;
use foregate_html::features::insert::{Insert, Place};
use foregate_html::features::links::Links;
use foregate_html::features::remove::{Remove, What};
use foregate_html::features::replace_text::ReplaceText;
use foregate_html::{ChosenFeature, Feature, Pass, Selector, Terms};
use foregate_module::Chain;

/// The encodings, as `content-type` tells them.
const TYPES: [&str; 4] =
    ["text/html", "text/html; charset=utf-8", "text/html; charset=gb18030", "text/html; charset=big5"];

fn features(dry: bool) -> Vec<(ChosenFeature, bool)> {
    let selector = |text: &str| Selector::parse(text).expect("it is one");
    let mut insert = Insert::default();
    insert.edge(Place::HeadEnd, "<b>");
    insert.edge(Place::BodyEnd, "é");
    insert.at(Place::Append, selector("p > b"), "<i>", Some(2));
    let mut remove = Remove::default();
    remove.add(selector("script"), What::Element);
    remove.add(selector("font"), What::Tags);
    remove.add(selector(".a, [b]"), What::Element);
    remove.comments();
    let pairs = vec![("a".to_owned(), "<b>".to_owned()), ("ab&".to_owned(), "é".to_owned())];
    let features: [Arc<dyn Feature>; 6] = [
        Arc::new(remove),
        Arc::new(Links::default().prefix("/", "//a/").https()),
        Arc::new(Images::default().lazy(0).sizes_from_names()),
        Arc::new(ReplaceText::new(pairs, true)),
        Arc::new(Emails::new("-")),
        Arc::new(insert),
    ];
    features.into_iter().map(|feature| (ChosenFeature { step: "fuzz", feature }, dry)).collect()
}

/// The output for the document, and true if there was too little memory for it.
fn through(document: &[u8], content_type: &str, stride: usize, dry: bool, budget: usize) -> (Vec<u8>, bool) {
    let terms = Terms { content_type: Some(content_type.into()), nonce: None, path: None, budget };
    let mut chain = Chain::new(vec![Pass::filter(features(dry), terms)]);
    let (mut out, mut exceeded) = (Vec::new(), false);
    for piece in document.chunks(stride) {
        chain.write(piece, &mut out).expect("a document is never broken off");
    }
    chain.end(&mut out).expect("a document is never broken off");
    chain.report(&mut |_| {}, &mut |finding| exceeded |= finding.event == "memory-exceeded");
    (out, exceeded)
}

/// The output is the same for every split; features in a dry run change nothing.
pub(crate) fn html_rewrite(data: &[u8]) {
    let Some((choice, document)) = data.split_first() else { return };
    let content_type = TYPES[usize::from(choice & 3)];
    let stride = [1, 2, 7, 64][usize::from(choice >> 2 & 3)];

    let (whole, exceeded) = through(document, content_type, usize::MAX, false, 1 << 20);
    assert!(!exceeded || document.len() > 1 << 10, "memory for so little");
    let (split, _) = through(document, content_type, stride, false, 1 << 20);
    assert!(whole == split, "split into pieces of {stride}");
    let (dry, _) = through(document, content_type, stride, true, 1 << 20);
    assert!(dry == document, "a dry run changed something");
    // Out of memory it ends all the same.
    let _ = through(document, content_type, stride, false, 2048);
}
