//! The corpora of the fuzz targets `content_coding` and `jwt`, and small changes to them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use foregate_module::Chain;
use foregate_modules::coding::{ContentCoding, Limits, decoder};

#[path = "../../../fuzz/targets/coding.rs"]
mod coding;
#[path = "../../../fuzz/targets/jwt.rs"]
mod jwt;

fn corpus(name: &str, least: usize) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let inputs: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    assert!(inputs.len() >= least, "only {} inputs", inputs.len());
    inputs
}

fn check(target: fn(&[u8]), path: &Path, data: &[u8]) {
    if catch_unwind(|| target(data)).is_err() {
        panic!("failed on {} as `{}`", path.display(), data.escape_ascii());
    }
}

#[test]
fn the_corpus_holds() {
    for (path, data) in corpus("content_coding", 30) {
        check(coding::content_coding, &path, &data);
    }
}

/// A byte replaced, or removed, or the end cut off: the mutations of the fuzzer's first seconds.
#[test]
fn what_is_near_the_corpus_holds() {
    /// More of an input would take long, and is much like its start.
    const START: usize = 40;
    for (path, data) in corpus("content_coding", 30) {
        for at in 0..data.len().min(START) {
            for byte in [0, 0xff, data[at] ^ 1, data[at] ^ 0x80] {
                let mut other = data.clone();
                other[at] = byte;
                check(coding::content_coding, &path, &other);
            }
            let mut shorter = data.clone();
            shorter.remove(at);
            check(coding::content_coding, &path, &shorter);
            check(coding::content_coding, &path, &data[..at]);
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
    for (path, data) in corpus("content_coding", 30) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some((choice, body)) = data.split_first() else { continue };
        let coding = ContentCoding::ALL[usize::from(choice & 3)];
        let mut chain = Chain::new(vec![decoder("decode", coding, Limits::default())]);
        let mut out = Vec::new();
        let taken = chain.write(body, &mut out).and_then(|_| chain.end(&mut out));
        assert_eq!(taken.is_err(), BROKEN.contains(&name), "{name}: {} bytes", out.len());
    }
}

#[test]
fn tokens_hold() {
    for (path, data) in corpus("jwt", 8) {
        check(jwt::jwt, &path, &data);
        for at in 0..data.len() {
            for byte in [0, b'"', b'.', b'9', data[at] ^ 0x80] {
                let mut other = data.clone();
                other[at] = byte;
                check(jwt::jwt, &path, &other);
            }
        }
    }
}
