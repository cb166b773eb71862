//! Replays the corpora of the fuzz targets.

use std::fs;
use std::path::{Path, PathBuf};

#[allow(unreachable_pub, reason = "the fuzz targets include this module too")]
#[path = "../../../../fuzz/targets/wire.rs"]
mod targets;

type Target = fn(&[u8]);

/// The inputs of a target's corpus, with their files.
fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = fs::read_dir(&folder).expect("the corpus is part of the repository");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let inputs: Vec<_> =
        paths.map(|path| (path.clone(), fs::read(&path).expect("a readable file"))).collect();
    assert!(inputs.len() >= 8, "{name}: only {} inputs", inputs.len());
    inputs
}

fn check(target: Target, path: &Path, data: &[u8]) {
    if std::panic::catch_unwind(|| target(data)).is_err() {
        panic!("failed on {} as `{}`", path.display(), data.escape_ascii());
    }
}

fn replay(name: &str, target: Target) {
    for (path, data) in corpus(name) {
        check(target, &path, &data);
    }
}

/// Small mutations of every input: a byte replaced, removed or added, the end cut off. They find the faults of the fuzzer's
/// first seconds.
fn neighbours(name: &str, target: Target) {
    for (path, data) in corpus(name) {
        for at in 0..data.len().min(160) {
            for byte in [0, b'\t', b'\n', b'\r', b' ', b'%', b':', b';', 0xff] {
                let mut other = data.clone();
                other[at] = byte;
                check(target, &path, &other);
                other.insert(at, data[at]);
                check(target, &path, &other);
            }
            let mut shorter = data.clone();
            shorter.remove(at);
            check(target, &path, &shorter);
            check(target, &path, &data[..at]);
        }
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            mod $name {
                #[test]
                fn corpus() {
                    super::replay(stringify!($name), super::targets::$name);
                }

                #[test]
                fn neighbours() {
                    super::neighbours(stringify!($name), super::targets::$name);
                }
            }
        )*
    };
}

targets! { request_head response_head chunked_body target_host header_list header_blocks }
