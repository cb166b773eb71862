//! Cost of scanning values: `cargo bench -p foregate-waf`.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark may stop")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use foregate_waf::body::{BodyLimits, Documents, Sink, json};
use foregate_waf::injection::{sqli, xss};
use foregate_waf::scan::{Pattern, PatternOptions, Scan, ScanHits};
use foregate_waf::transform::{Bytes, Transformation};

/// The chain that most rules on cross-site scripting have.
const CHAIN: [Transformation; 6] = [
    Transformation::Utf8ToUnicode,
    Transformation::UrlDecodeUni,
    Transformation::HtmlEntityDecode,
    Transformation::JsDecode,
    Transformation::CssDecode,
    Transformation::RemoveNulls,
];

/// Such as rules are made of.
const PATTERNS: [&str; 10] = [
    r"(?i)\bunion\b.{1,100}?\bselect\b",
    r"(?i)<script[^>]*>[\s\S]*?",
    r"(?i)(?:sleep|benchmark|pg_sleep)\s*?\(",
    r"(?:^|[\\/])\.\.[\\/]",
    r"(?i)/etc/(?:passwd|shadow|group)",
    r"(?i)(?:;|\||&&)\s*(?:cat|ls|id|wget|curl)\b",
    r"(?i)\bor\b\s+['\x22]?\d+['\x22]?\s*=",
    r"(?i)javascript\s*:",
    r"(?i)\bon[a-z]{3,20}\s*=",
    r"\$\{jndi:",
];

fn values() -> [(&'static str, Vec<u8>); 6] {
    let prose = b"It was a bright cold day in April, and the clocks were striking thirteen. ";
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 56) as u8
    };
    [
        ("word", b"blue-shirt".to_vec()),
        ("user agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0".to_vec()),
        ("attack", b"1%27%20or%201%3d1%20union%20select%20password%20from%20users--%20".to_vec()),
        ("64 KB of a letter", vec![b'a'; 65_536]),
        ("64 KB of prose", prose.iter().copied().cycle().take(65_536).collect()),
        ("64 KB at random", (0..65_536).map(|_| next()).collect()),
    ]
}

fn transformations(c: &mut Criterion) {
    let mut group = c.benchmark_group("transform");
    for (name, value) in values() {
        group.throughput(Throughput::Bytes(value.len() as u64));
        group.bench_function(format!("which change it/{name}"), |b| b.iter(|| Bytes::of(black_box(&value))));
        group.bench_function(format!("chain of six/{name}"), |b| {
            b.iter(|| {
                let mut current = black_box(&value).to_vec();
                for transformation in CHAIN {
                    if let std::borrow::Cow::Owned(changed) = transformation.apply(&current) {
                        current = changed;
                    }
                }
                current
            });
        });
    }
    group.finish();
}

fn scans(c: &mut Criterion) {
    let patterns: Vec<Pattern> = PATTERNS
        .iter()
        .map(|text| Pattern::new(text.as_bytes(), PatternOptions::default()).unwrap())
        .collect();
    let entries = (0..).zip(&patterns).map(|(number, pattern)| (number, pattern.required().unwrap().texts()));
    let scan = Scan::new(entries).unwrap();
    let mut group = c.benchmark_group("scan");
    for (name, value) in values() {
        group.throughput(Throughput::Bytes(value.len() as u64));
        let mut found = ScanHits::new();
        group.bench_function(format!("candidates of ten patterns/{name}"), |b| {
            b.iter(|| {
                found.clear();
                scan.scan(black_box(&value), &mut found);
                found.len()
            });
        });
        group.bench_function(format!("ten patterns one by one/{name}"), |b| {
            b.iter(|| patterns.iter().filter(|pattern| pattern.is_match(black_box(&value))).count());
        });
    }
    group.bench_function("compile ten patterns", |b| {
        b.iter(|| PATTERNS.map(|text| Pattern::new(text.as_bytes(), PatternOptions::default()).unwrap()));
    });
    group.finish();
}

fn injections(c: &mut Criterion) {
    let mut group = c.benchmark_group("injection");
    for (name, value) in values() {
        group.throughput(Throughput::Bytes(value.len() as u64));
        group.bench_function(format!("sql/{name}"), |b| b.iter(|| sqli(black_box(&value))));
        group.bench_function(format!("script/{name}"), |b| b.iter(|| xss(black_box(&value))));
    }
    group.finish();
}

struct Nothing;

impl Sink for Nothing {}

fn bodies(c: &mut Criterion) {
    let body: String =
        (0..720).map(|at| format!("{}{{\"name{at}\":\"v{at}\"}}", if at == 0 { '[' } else { ',' })).collect();
    let body = body + "]";
    let mut group = c.benchmark_group("body");
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("JSON of 720 values", |b| {
        b.iter(|| {
            json(black_box(body.as_bytes()), Documents::One, true, &BodyLimits::default(), &mut Nothing)
        });
    });
    group.finish();
}

criterion_group!(benches, transformations, scans, injections, bodies);
criterion_main!(benches);
