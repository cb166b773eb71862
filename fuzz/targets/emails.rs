//! Invariants for hidden addresses in a document. The body of a fuzz target, also run over its corpus by
//! `cargo test`.
//!
//! The first byte of an input chooses the splits of the document; the first line behind it is the address of a link, the
//! rest is the document.

use std::sync::Arc;

use foregate_html::features::emails::{Emails, SCRIPT_PATH};
use foregate_html::{ChosenFeature, Pass, Terms, escape};
use foregate_module::Chain;

/// The start of a hidden address.
const HIDDEN: &str = "data-fg-email=\"";

/// The output for the document, and true if the filter gave up: nested elements need ever more memory.
fn hidden(document: &str, stride: usize) -> (String, bool) {
    let chosen = ChosenFeature { step: "fuzz", feature: Arc::new(Emails::new("-")) };
    let terms = Terms {
        content_type: Some("text/html; charset=utf-8".into()),
        nonce: None,
        path: None,
        budget: 1 << 20,
    };
    let mut chain = Chain::new(vec![Pass::filter(vec![(chosen, false)], terms)]);
    let (mut out, mut gave_up) = (Vec::new(), false);
    for piece in document.as_bytes().chunks(stride) {
        gave_up |= chain.write(piece, &mut out).expect("a document is never broken off").bailed.is_some();
    }
    gave_up |= chain.end(&mut out).expect("a document is never broken off").bailed.is_some();
    (String::from_utf8(out).expect("it was UTF-8"), gave_up)
}

/// The script's output for the digits.
fn decoded(digits: &str) -> String {
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    let key = byte(0);
    let bytes = (2..digits.len()).step_by(2).map(|at| byte(at) ^ key).collect();
    String::from_utf8(bytes).expect("an address is UTF-8")
}

/// The document with the addresses back in it.
fn restored(document: &str) -> String {
    let script = format!("<script src={SCRIPT_PATH} defer></script>");
    assert!(document.matches(&script).count() <= 1);
    let mut pieces = document.split("<span data-fg-email=");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    let mut count = 0;
    for piece in pieces {
        let (digits, rest) = piece.split_once(">-</span>").expect("a placeholder is whole");
        let address = decoded(digits);
        assert!(address.contains('@') && address.len() <= 64 + 1 + 253, "{address:?}");
        count += 1;
        out.push_str(&address);
        out.push_str(rest);
    }
    assert!(count > 0 || !document.contains(&script), "a script for nothing");
    out.replace(&script, "")
}

/// Hidden addresses are restored, and nothing else has changed.
pub(crate) fn html_emails(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let (address, document) = text.split_once('\n').unwrap_or((text, ""));
    let stride = [usize::MAX, 1, 3, 17][usize::from(choice & 3)];
    link(address, stride);
    // Text that looks like our own marks, and links, whose attributes are written anew.
    let lower = document.to_ascii_lowercase();
    if ["fg-email", "email-decode", "href"].iter().any(|word| lower.contains(word)) {
        return;
    }
    let (out, gave_up) = hidden(document, stride);
    let (whole, whole_gave_up) = hidden(document, usize::MAX);
    assert!(gave_up == whole_gave_up && (gave_up || out == whole), "split into pieces of {stride}");
    // Only ambiguous documents are given up so soon.
    assert!(!gave_up || document.len() > 1 << 10 || document.contains('<'), "memory for so little");
    assert_eq!(restored(&out), document);
    assert_eq!(restored(&whole), document);
}

/// The address of a link comes back as well.
fn link(address: &str, stride: usize) {
    let mut escaped = String::new();
    escape(address, &mut escaped);
    // Browsers would not see these, and they are our own mark.
    let stands_in = |character: char| ('\u{10fe00}'..='\u{10feff}').contains(&character);
    if address.contains(['\0', '\r', '\t']) || address.contains("fg-email") || address.contains(stands_in) {
        return;
    }
    let document = format!("<a href=\"mailto:{escaped}\">x</a>");
    let (out, _) = hidden(&document, stride);
    let Some((_, code)) = out.split_once(HIDDEN) else {
        assert!(!address.contains('@') && !address.contains("%40"), "{out}");
        return assert_eq!(out, document);
    };
    let digits = code.split('"').next().unwrap_or_default();
    assert_eq!(decoded(digits), address);
    assert!(!out.contains("mailto:"));
}
