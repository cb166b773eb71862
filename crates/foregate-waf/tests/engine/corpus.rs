//! Replays the corpora of the fuzz targets.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../../../fuzz/targets/waf_engine.rs"]
mod target;

fn corpus(name: &str, least: usize) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let inputs: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    assert!(inputs.len() >= least, "only {} inputs", inputs.len());
    inputs
}

fn check(target: fn(&[u8]), path: &Path, data: &[u8]) {
    if std::panic::catch_unwind(|| target(data)).is_err() {
        panic!("failed on {} as `{}`", path.display(), data.escape_ascii());
    }
}

#[test]
fn it_holds() {
    for (path, data) in corpus("waf_engine", 30) {
        check(target::waf_engine, &path, &data);
    }
    for (path, data) in corpus("waf_rules", 10) {
        check(target::waf_rules, &path, &data);
    }
}

/// Small mutations of every input, which find the faults of the fuzzer's first seconds.
#[test]
fn its_neighbours_hold() {
    for (path, data) in corpus("waf_engine", 30) {
        for at in (0..data.len().min(120)).step_by(9) {
            for byte in *b"\0%\\'&" {
                let mut other = data.clone();
                other[at] = byte;
                check(target::waf_engine, &path, &other);
            }
            check(target::waf_engine, &path, &data[..at]);
        }
    }
}
