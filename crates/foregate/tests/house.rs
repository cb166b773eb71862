//! Rules of the house that no compiler checks: dependencies between crates, and the statements of every crate.
//!
//! A rule that is in the way is changed here, with its reason, together with the code that needs it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at what they do not expect")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use foregate_proxy::counters::metrics::Metrics;
use foregate_proxy::telemetry::exposition::{Exposition, ExpositionFormat};

use serde_json::Value;

#[path = "house/map.rs"]
mod map;
#[path = "house/rooms.rs"]
mod rooms;
#[path = "house/source.rs"]
mod source;
#[path = "house/types.rs"]
mod types;

/// Which of our crates each crate may use (ARCHITECTURE.md says why). Tests may use more.
const ALLOWED: &[(&str, &[&str])] = &[
    ("foregate-module", &[]),
    ("foregate-wire", &[]),
    ("foregate-rules", &[]),
    ("foregate-cache", &["foregate-wire"]),
    // The one crate below the proxy that makes system calls for files.
    ("foregate-io", &[]),
    ("foregate-disk", &["foregate-cache", "foregate-io", "foregate-wire"]),
    // Its protocol is spoken by what serves; it knows nothing of HTTP.
    ("foregate-supervisor", &[]),
    ("foregate-coding", &["foregate-module"]),
    ("foregate-compare", &["foregate-coding"]),
    ("foregate-files", &["foregate-wire", "foregate-cache", "foregate-coding"]),
    ("foregate-waf", &["foregate-coding", "foregate-module"]),
    ("foregate-html", &["foregate-module"]),
    ("foregate-modules", &["foregate-coding", "foregate-module", "foregate-rules"]),
    // Files are read here and nowhere else below the hosts, which is why it is not among the pure ones.
    ("foregate-config", &["foregate-module", "foregate-modules", "foregate-rules"]),
    ("foregate-acme", &["foregate-proxy"]),
    (
        "foregate-proxy",
        &[
            "foregate-module",
            "foregate-wire",
            "foregate-cache",
            "foregate-disk",
            "foregate-coding",
            "foregate-compare",
            "foregate-files",
            "foregate-io",
            "foregate-rules",
            "foregate-supervisor",
        ],
    ),
    (
        "foregate",
        &[
            "foregate-module",
            "foregate-wire",
            "foregate-rules",
            "foregate-supervisor",
            "foregate-cache",
            "foregate-coding",
            "foregate-compare",
            "foregate-files",
            "foregate-waf",
            "foregate-html",
            "foregate-modules",
            "foregate-config",
            "foregate-acme",
            "foregate-proxy",
        ],
    ),
    (
        "foregate-nginx",
        &[
            "foregate-module",
            "foregate-modules",
            "foregate-config",
            "foregate-waf",
            "foregate-html",
            "foregate-rules",
            // Targets must have the same normal form everywhere.
            "foregate-wire",
        ],
    ),
    // It judges the proxy from outside, and shares no code with it.
    ("foregate-cases", &[]),
];

/// Crates without I/O, and the dependencies that would bring it in.
const PURE: &[&str] = &[
    "foregate-module",
    "foregate-wire",
    "foregate-rules",
    "foregate-cache",
    "foregate-coding",
    "foregate-compare",
    "foregate-files",
    "foregate-waf",
    "foregate-html",
    "foregate-modules",
];
const IMPURE: &[&str] = &["tokio", "mio", "h2", "hyper", "rustls", "rustix", "socket2", "notify"];

/// The only files with unsafe code: system calls that no safe crate offers, and the border to NGINX. Their crates
/// deny it otherwise.
const MAY_BE_UNSAFE: &[(&str, &str)] =
    &[("foregate-proxy", "src/sys.rs"), ("foregate-io", "src/sys.rs"), ("foregate-nginx", "src/ffi.rs")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The workspace's packages as `cargo metadata` tells them.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

/// The dependencies of the package itself, including its build script; tests may use any.
fn dependencies(package: &Value) -> Vec<&str> {
    let all = package["dependencies"].as_array().unwrap();
    all.iter().filter(|dependency| dependency["kind"] != "dev").map(name).collect()
}

#[test]
fn crates_use_only_what_the_architecture_allows() {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in &packages() {
        let name = name(package);
        let Some(allowed) = allowed.get(name) else {
            wrong.push(format!("{name} is not in the list: add it, with what it may use"));
            continue;
        };
        for dependency in dependencies(package) {
            if dependency.starts_with("foregate") && !allowed.contains(&dependency) {
                wrong.push(format!("{name} must not use {dependency}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_crates_bring_in_no_input_or_output() {
    for package in &packages() {
        if PURE.contains(&name(package)) {
            let impure: Vec<_> =
                dependencies(package).into_iter().filter(|used| IMPURE.contains(used)).collect();
            assert!(impure.is_empty(), "{} is pure and uses {impure:?}", name(package));
        }
    }
}

/// Crates in which the names of files, sockets and clocks do not even resolve.
const WITHOUT_STD: &[&str] = &["foregate-module", "foregate-modules"];

#[test]
fn module_crates_do_without_the_standard_library() {
    for name in WITHOUT_STD {
        let folder = root().join("crates").join(name).join("src");
        let root = fs::read_to_string(folder.join("lib.rs")).unwrap();
        assert!(root.lines().any(|line| line == "#![no_std]"), "{name} is not no_std");
        for forbidden in ["extern crate std", "cfg_attr(not(test), no_std)", "feature = \"std\""] {
            assert_eq!(files_with(forbidden, &folder), [] as [PathBuf; 0], "{forbidden}");
        }
    }
}

#[test]
fn every_module_has_a_page() {
    let pages = root().join("docs/guide/modules");
    let mut texts = String::new();
    for page in fs::read_dir(pages).unwrap() {
        texts.push_str(&fs::read_to_string(page.unwrap().path()).unwrap());
    }
    let missing: Vec<_> = foregate::shipped()
        .keys()
        .into_iter()
        .map(|(key, _)| key.name)
        .filter(|key| !texts.contains(&format!("`{key}")) && !texts.contains(&format!("\n{key} ")))
        .collect();
    assert!(missing.is_empty(), "docs/guide/modules has nothing about {missing:?}");
}

#[test]
fn every_crate_forbids_unsafe_code_and_takes_the_lints_of_the_workspace() {
    for package in &packages() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let text = fs::read_to_string(manifest).unwrap();
        assert!(text.contains("[lints]\nworkspace = true"), "{}", manifest.display());
        let unsafe_file = MAY_BE_UNSAFE.iter().find(|(of, _)| *of == name(package));
        for target in package["targets"].as_array().unwrap() {
            let kind = target["kind"][0].as_str().unwrap();
            if ["lib", "staticlib", "bin"].contains(&kind) {
                let source = target["src_path"].as_str().unwrap();
                let text = fs::read_to_string(source).unwrap();
                let verb = if unsafe_file.is_some() { "deny" } else { "forbid" };
                assert!(text.contains(&format!("#![{verb}(unsafe_code)]")), "{source}");
            }
        }
        if let Some((_, file)) = unsafe_file {
            let allowing = files_with("allow(unsafe_code", &manifest.with_file_name("src"));
            assert_eq!(allowing, [manifest.with_file_name(file)]);
        }
    }
}

/// The files below `folder` that hold `text`.
fn files_with(text: &str, folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(text, &path));
        } else if fs::read_to_string(&path).unwrap().contains(text) {
            found.push(path);
        }
    }
    found
}

/// The most lines of a file. A longer file holds more than one idea, and is divided by them.
const LINES: usize = 700;
/// A file with more lines: the border to NGINX, since unsafe code stays in one file.
const LONG: &str = "crates/foregate-nginx/src/ffi.rs";

#[test]
fn files_are_short_enough_to_be_read_at_once() {
    let mut files = Vec::new();
    for folder in ["crates", "tools", "fuzz/targets"] {
        source::collect(&root().join(folder), &mut files);
    }
    assert!(files.len() > 500, "only {} files were found", files.len());
    let lines = |file: &PathBuf| fs::read_to_string(file).unwrap().lines().count();
    let long: Vec<_> = files.iter().filter(|file| lines(file) > LINES).collect();
    assert_eq!(long, [&root().join(LONG)]);
}

/// The lists stand in two crates, neither of which may use the other.
#[test]
fn nginx_runs_the_modules_of_the_binary() {
    let list = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(root().join("crates").join(name).join("src/modules.rs")).unwrap();
        text.lines().filter(|line| line.trim_start().starts_with("use ")).map(str::to_owned).collect()
    };
    assert!(!list("foregate").is_empty());
    assert_eq!(list("foregate-nginx"), list("foregate"));
}

#[test]
fn every_target_of_the_makefile_is_explained() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    // These are steps of others, not for people.
    let internal = ["toolchain", "nginx-packages", "cargo-deny"];
    for target in makefile.lines().filter_map(|line| line.strip_prefix(".PHONY: ")) {
        let explained = makefile.lines().any(|line| {
            line.strip_prefix(target).is_some_and(|rest| rest.starts_with(':') && rest.contains(" ## "))
        });
        assert_eq!(explained, !internal.contains(&target), "{target}");
    }
}

#[test]
fn every_metric_and_every_field_of_the_access_log_is_documented() {
    let telemetry = root().join("crates/foregate-proxy/src/telemetry");
    let read = |name| fs::read_to_string(telemetry.join(name)).unwrap();
    let guide = fs::read_to_string(root().join("docs/operations.md")).unwrap();

    let format = read("access_log/format.rs");
    let fields: BTreeSet<_> = format
        .match_indices("\\\":")
        .filter_map(|(at, _)| format[..at].rsplit_once("\\\"").map(|(_, name)| name))
        .collect();
    assert!(fields.len() > 10, "the fields of the access log were not found: {fields:?}");

    // The families without labels, or with static ones, are rendered without traffic.
    let metrics = Arc::new(Metrics::default());
    let site = metrics.unrouted();
    site.request(Some(200), Duration::ZERO);
    let upstream = metrics.upstream("upstream");
    upstream.opened.inc();
    site.error("kind", "side", None);
    let rendered = Exposition::new(Arc::clone(&metrics)).render(ExpositionFormat::Prometheus);
    let families: Vec<_> = rendered
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert!(families.len() > 10, "the metrics were not found: {families:?}");

    let names = fields.into_iter().map(str::to_owned).chain(families);
    let missing: Vec<_> = names.filter(|name| !guide.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/operations.md does not explain {missing:?}");
}

#[test]
fn the_root_holds_the_documents_that_readers_look_for() {
    for document in [
        "README.md",
        "TENETS.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "LICENSE",
        "docs/README.md",
    ] {
        assert!(root().join(document).is_file(), "{document}");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let folder = document.parent().unwrap();
        for (_, rest) in text.match_indices("](").map(|(at, _)| text.split_at(at + 2)) {
            let target = rest.split(')').next().unwrap();
            let file = target.split('#').next().unwrap();
            if !file.is_empty() && !file.contains("://") && !folder.join(file).exists() {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The Markdown files for people: those in the root, in docs/, in conformance/ and of the example.
fn documents() -> Vec<PathBuf> {
    ["", "docs", "docs/guide", "docs/guide/modules", "conformance", "examples/custom-binary"]
        .iter()
        .flat_map(|folder| fs::read_dir(root().join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}
