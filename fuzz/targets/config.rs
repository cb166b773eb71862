//! Invariants for any configuration. The body of a fuzz target, also run over its corpus by `cargo test`.

use std::path::Path;
use std::sync::Arc;

use foregate::config::{format, load_text};

/// Reading never panics and reports errors; formatting is idempotent.
pub(crate) fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(formatted) = format(Path::new("fuzz.kdl"), &text) {
        let again = format(Path::new("fuzz.kdl"), &formatted).expect("what was formatted can be read");
        assert_eq!(again, formatted, "formatting twice");
    }
    let pipeline = Arc::new(foregate::shipped());
    for path in ["fuzz.kdl", "fuzz.json"] {
        if let Err(refused) = load_text(Path::new(path), text.clone().into_owned(), &pipeline) {
            assert!(refused.count() > 0);
            assert!(!refused.plain().is_empty());
            assert!(!refused.graphical(80, true).is_empty());
        }
    }
}
