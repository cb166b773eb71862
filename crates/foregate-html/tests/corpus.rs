//! The corpus of the fuzz target `html_rewrite`.

#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::path::Path;

#[path = "../../../fuzz/targets/html.rs"]
mod html;

#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/html_rewrite");
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        html::html_rewrite(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 10, "the corpus is there");
}
