//! Replays the corpora of the fuzz targets.

use std::fs;
use std::path::Path;

#[path = "../../../../fuzz/targets/waf_values.rs"]
mod target;

/// What is put in place of each byte of an input, which finds what the fuzzer would find in its first seconds.
const CHANGES: &[u8] = b"\n\"\\<%0a-\0\xff";

fn hold(folder: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(folder);
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("a corpus") {
        let path = entry.expect("an entry").path();
        let data = fs::read(&path).expect("an input");
        let check = |data: &[u8]| {
            let held = std::panic::catch_unwind(|| target(data)).is_ok();
            assert!(held, "failed on {} as `{}`", path.display(), data.escape_ascii());
        };
        check(&data);
        count += 1;
        for at in 0..data.len().min(200) {
            for byte in CHANGES {
                let mut other = data.clone();
                other[at] = *byte;
                check(&other);
            }
            check(&data[..at]);
        }
    }
    assert!(count >= 15, "only {count} inputs");
}

#[test]
fn transformations_hold() {
    hold("waf_transformations", target::transformations);
}

#[test]
fn injections_hold() {
    hold("waf_injections", target::injections);
}

#[test]
fn bodies_hold() {
    hold("waf_bodies", target::bodies);
}

#[test]
fn patterns_hold() {
    hold("waf_patterns", target::patterns);
}
