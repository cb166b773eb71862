//! Clearing internal fields: finding the fields of a request with one of more than a hundred known names.
//!
//! The workload is the one that Cloudflare has published for `trie-hard`: a request with 10 to 30 internal fields among as
//! many others. Every contestant gets the same names in lower case (the only case that the others find; ours ignores case) and
//! returns the same bit mask of the fields to remove. `removals` is the classical way: one removal from a
//! `http::HeaderMap` for each known name.

use std::collections::{BTreeSet, HashSet};
use std::hash::BuildHasher;
use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use foregate_module::testing::{List, Sample, node, settings};
use foregate_module::{Fields, FieldsMut, RequestFields, Step};
use foregate_modules::clear_headers::trie::NameSet;
use foregate_modules::clear_headers::{ClearHeaders, ClearRequest, builtin};
use trie_hard::TrieHard;

/// Typical fields of browsers and programs.
const ORDINARY: [&str; 30] = [
    "host",
    "user-agent",
    "accept",
    "accept-encoding",
    "accept-language",
    "cookie",
    "referer",
    "cache-control",
    "content-type",
    "content-length",
    "authorization",
    "origin",
    "sec-ch-ua",
    "sec-ch-ua-mobile",
    "sec-ch-ua-platform",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
    "upgrade-insecure-requests",
    "if-none-match",
    "if-modified-since",
    "x-requested-with",
    "x-csrf-token",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-request-id",
    "priority",
    "pragma",
    "dnt",
];

/// The names of a request: so many internal fields among as many others, mixed.
fn request(internal: usize) -> Vec<&'static str> {
    let known: Vec<&str> = builtin().collect();
    let step = known.len() / internal;
    let internal_names = known.iter().step_by(step).take(internal);
    let mut names: Vec<&str> = ORDINARY[..internal].iter().chain(internal_names).copied().collect();
    // The same mixture in every run.
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for at in (1..names.len()).rev() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        names.swap(at, (seed % (at as u64 + 1)) as usize);
    }
    names
}

/// The fields to remove.
#[inline]
fn marks(names: &[&str], member: impl Fn(&str) -> bool) -> u64 {
    let mut marks = 0;
    for (number, name) in names.iter().enumerate() {
        marks |= u64::from(member(name)) << number;
    }
    marks
}

/// Lower-cases a name, as a set of lower-case names needs for HTTP/1.
#[inline]
fn lowered(name: &str, member: impl Fn(&str) -> bool) -> bool {
    let mut buffer = [0; 64];
    let Some(lower) = buffer.get_mut(..name.len()) else { return false };
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    str::from_utf8(lower).is_ok_and(member)
}

fn hashed<S: BuildHasher + Default>() -> HashSet<&'static str, S> {
    builtin().collect()
}

fn matching(criterion: &mut Criterion) {
    let ours = NameSet::new(builtin().map(str::as_bytes), []).expect("few");
    let with_prefixes =
        NameSet::new(builtin().map(str::as_bytes), [&b"x-internal-"[..], b"x-debug-", b"cf-int-"])
            .expect("few");
    let trie_hard: TrieHard<'_, &str> = builtin().collect();
    let hash_set: HashSet<&str> = hashed();
    let fold_hash_set: HashSet<&str, foldhash::fast::RandomState> = hashed();
    let tree_set: BTreeSet<&str> = builtin().collect();
    let mut sorted: Vec<&str> = builtin().collect();
    sorted.sort_unstable();
    let patterns = builtin().map(|name| format!("^{}$", regex::escape(name)));
    let regex_set = regex::RegexSet::new(patterns).expect("names");
    let one_regex =
        regex::Regex::new(&format!("^(?:{})$", builtin().collect::<Vec<_>>().join("|"))).expect("names");

    let mut group = criterion.benchmark_group("match");
    for internal in [10, 20, 30] {
        let names = request(internal);
        let names = names.as_slice();
        let expected = marks(names, |name| hash_set.contains(name));
        assert_eq!(expected.count_ones() as usize, internal);
        group.throughput(Throughput::Elements(names.len() as u64));
        let mut contest = |contestant: &str, member: &dyn Fn(&[&str]) -> u64| {
            assert_eq!(member(names), expected, "{contestant}");
            group.bench_function(BenchmarkId::new(contestant, internal), |bencher| {
                bencher.iter(|| member(black_box(names)));
            });
        };
        contest("foregate", &|names| marks(names, |name| ours.contains(name.as_bytes())));
        contest("foregate, with prefixes", &|names| {
            marks(names, |name| with_prefixes.contains(name.as_bytes()))
        });
        contest("trie-hard", &|names| marks(names, |name| trie_hard.get(name).is_some()));
        contest("hash set (SipHash)", &|names| marks(names, |name| hash_set.contains(name)));
        contest("hash set (foldhash)", &|names| marks(names, |name| fold_hash_set.contains(name)));
        contest("hash set (foldhash), names in any case", &|names| {
            marks(names, |name| lowered(name, |name| fold_hash_set.contains(name)))
        });
        contest("sorted set (BTreeSet)", &|names| marks(names, |name| tree_set.contains(name)));
        contest("sorted list (binary search)", &|names| {
            marks(names, |name| sorted.binary_search(&name).is_ok())
        });
        contest("regex set", &|names| marks(names, |name| regex_set.is_match(name)));
        contest("one regex", &|names| marks(names, |name| one_regex.is_match(name)));
    }
    group.finish();
}

fn clearing(criterion: &mut Criterion) {
    let clear: ClearHeaders =
        settings(&[node("clear-headers").prop_literal("builtin", true)]).expect("what ships");
    let known: Vec<http::HeaderName> = builtin().map(http::HeaderName::from_static).collect();
    let mut group = criterion.benchmark_group("clear");
    for internal in [10, 20, 30] {
        let names = request(internal);
        let mut list = List::default();
        let mut map = http::HeaderMap::new();
        for name in &names {
            list.append(name.as_bytes(), b"value");
            map.append(*name, http::HeaderValue::from_static("value"));
        }
        // The step's decision, through its interface in the proxy.
        group.bench_function(BenchmarkId::new("foregate, the step", internal), |bencher| {
            let fields: &dyn Fields = &list;
            bencher.iter(|| ClearRequest.run(black_box(&clear), (RequestFields(black_box(fields)),)));
        });
        group.bench_function(BenchmarkId::new("foregate, step and removal", internal), |bencher| {
            let sample = || {
                let mut sample = Sample::get("/");
                sample.request = list.clone();
                sample
            };
            bencher.iter_batched_ref(
                sample,
                |sample| sample.run(&ClearRequest, &clear),
                BatchSize::SmallInput,
            );
        });
        group.bench_function(BenchmarkId::new("removals", internal), |bencher| {
            bencher.iter_batched_ref(
                || map.clone(),
                |map| {
                    for name in &known {
                        map.remove(name);
                    }
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50).measurement_time(std::time::Duration::from_secs(2)).warm_up_time(std::time::Duration::from_millis(500));
    targets = matching, clearing
}
criterion_main!(benches);
