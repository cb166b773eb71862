//! Replays the corpus of the fuzz target, and inputs that differ from it a little.

use std::fs;
use std::path::Path;

#[allow(unreachable_pub, reason = "the fuzz target includes this module too")]
#[path = "../../../fuzz/targets/cache.rs"]
mod targets;

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/cache_decisions");
    let entries = fs::read_dir(folder).expect("the corpus is part of the repository");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let inputs: Vec<_> = paths.map(|path| fs::read(path).expect("a readable file")).collect();
    assert!(inputs.len() >= 8, "only {} inputs", inputs.len());
    inputs
}

#[test]
fn the_corpus_is_decided() {
    for data in corpus() {
        targets::cache_decisions(&data);
    }
}

/// Bytes replaced, removed and added, under all settings and statuses of the first byte.
#[test]
fn neighbours_of_the_corpus_are_decided() {
    for data in corpus() {
        for choice in 0..=u8::MAX {
            let mut other = data.clone();
            other[0] = choice;
            targets::cache_decisions(&other);
        }
        for at in 0..data.len() {
            for byte in [0, b'\n', b' ', b',', b'"', b'\\', b'=', b'0', b'-', 0xff] {
                let mut other = data.clone();
                other[at] = byte;
                targets::cache_decisions(&other);
                other.insert(at, data[at]);
                targets::cache_decisions(&other);
            }
            let mut shorter = data.clone();
            shorter.remove(at);
            targets::cache_decisions(&shorter);
            targets::cache_decisions(&data[..at]);
        }
    }
}
