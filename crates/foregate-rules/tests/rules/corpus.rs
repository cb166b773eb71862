//! Replays the corpus of the fuzz target.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../../../fuzz/targets/rules.rs"]
mod target;

fn corpus() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rules_compile_and_match");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let inputs: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    assert!(inputs.len() >= 30, "only {} inputs", inputs.len());
    inputs
}

fn check(path: &Path, data: &[u8]) {
    if std::panic::catch_unwind(|| target::rules_compile_and_match(data)).is_err() {
        panic!("failed on {} as `{}`", path.display(), data.escape_ascii());
    }
}

#[test]
fn the_corpus_holds() {
    for (path, data) in corpus() {
        check(&path, &data);
    }
}

/// Small mutations of every input, which find the faults of the fuzzer's first seconds.
#[test]
fn its_neighbours_hold() {
    for (path, data) in corpus() {
        for at in 0..data.len().min(120) {
            for byte in *b"\n\"\\()[*0a. " {
                let mut other = data.clone();
                other[at] = byte;
                check(&path, &other);
            }
            let mut shorter = data.clone();
            shorter.remove(at);
            check(&path, &shorter);
            check(&path, &data[..at]);
        }
    }
}
