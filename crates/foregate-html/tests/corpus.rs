//! The corpora of the fuzz targets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

use std::path::Path;

#[path = "../../../fuzz/targets/emails.rs"]
mod emails;
#[path = "../../../fuzz/targets/html.rs"]
mod html;

fn hold(name: &str, target: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        if std::panic::catch_unwind(|| target(&data)).is_err() {
            panic!("failed on {} as `{}`", path.display(), data.escape_ascii());
        }
        count += 1;
    }
    assert!(count >= 10, "the corpus is there");
}

#[test]
fn html_rewrite_holds() {
    hold("html_rewrite", html::html_rewrite);
}

#[test]
fn html_emails_holds() {
    hold("html_emails", emails::html_emails);
}
