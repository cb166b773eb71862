//! The corpus of the fuzz target `content_coding`, and small changes to it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use foregate_module::Chain;
use foregate_modules::coding::{ContentCoding, Limits, decoder};

#[path = "../../../fuzz/targets/coding.rs"]
mod coding;

fn corpus() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/content_coding");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let inputs: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    assert!(inputs.len() >= 30, "only {} inputs", inputs.len());
    inputs
}

fn check(path: &Path, data: &[u8]) {
    if catch_unwind(|| coding::content_coding(data)).is_err() {
        panic!("failed on {} as `{}`", path.display(), data.escape_ascii());
    }
}

#[test]
fn the_corpus_holds() {
    for (path, data) in corpus() {
        check(&path, &data);
    }
}

/// A byte replaced, or removed, or the end cut off: what the fuzzer would find in its first seconds.
#[test]
fn what_is_near_the_corpus_holds() {
    /// More of an input would take long, and is much like its start.
    const START: usize = 40;
    for (path, data) in corpus() {
        for at in 0..data.len().min(START) {
            for byte in [0, 0xff, data[at] ^ 1, data[at] ^ 0x80] {
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

#[test]
fn the_inputs_are_what_their_names_say() {
    const BROKEN: [&str; 12] = [
        "brotli_large_window",
        "deflate_dictionary",
        "deflate_far",
        "deflate_one_byte",
        "gzip_cut",
        "gzip_garbage",
        "gzip_reserved_flag",
        "gzip_wrong_crc",
        "zstd_cut",
        "zstd_dictionary",
        "zstd_garbage",
        "zstd_window",
    ];
    for (path, data) in corpus() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some((choice, body)) = data.split_first() else { continue };
        let coding = ContentCoding::ALL[usize::from(choice & 3)];
        let mut chain = Chain::new(vec![decoder("decode", coding, Limits::default())]);
        let mut out = Vec::new();
        let taken = chain.write(body, &mut out).and_then(|_| chain.end(&mut out));
        assert_eq!(taken.is_err(), BROKEN.contains(&name), "{name}: {} bytes", out.len());
    }
}
