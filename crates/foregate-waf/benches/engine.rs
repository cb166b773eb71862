//! Cost of a transaction, all five phases, with the OWASP Core Rule Set; the environment variable `CRS` names its folder.
//! `cargo bench -p foregate-waf`, with a part of a name to choose.

#![allow(clippy::panic, clippy::print_stdout, reason = "a benchmark says so by panicking")]

#[allow(dead_code)]
#[path = "../tests/crs/rules.rs"]
mod rules;

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, criterion_group, criterion_main};
use foregate_waf::engine::{Engine, Options, Report, Transaction};

/// CPU time of the thread: less sensitive to other load on the machine than a clock.
struct ThreadTime;

impl Measurement for ThreadTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    fn end(&self, start: Duration) -> Duration {
        self.start().saturating_sub(start)
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

struct Request {
    method: &'static str,
    target: String,
    fields: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Request {
    fn get(target: impl Into<String>) -> Self {
        let agent = "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0";
        let fields = [
            ("Host", "www.example.com"),
            ("User-Agent", agent),
            ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
            ("Accept-Language", "en-US,en;q=0.5"),
            ("Accept-Encoding", "gzip, deflate, br"),
            ("Referer", "https://www.example.com/products"),
            ("Cookie", "session=8f14e45fceea167a5a36dedd4bea2543; theme=dark"),
            ("Connection", "keep-alive"),
        ];
        Self {
            method: "GET",
            target: target.into(),
            fields: fields.map(|(name, value)| (name, value.to_owned())).into(),
            body: Vec::new(),
        }
    }

    fn post(kind: &str, body: Vec<u8>) -> Self {
        let mut request = Self::get("/api/orders");
        request.method = "POST";
        request.fields.push(("Content-Type", kind.to_owned()));
        request.fields.push(("Content-Length", body.len().to_string()));
        request.body = body;
        request
    }

    fn form(body: Vec<u8>) -> Self {
        Self::post("application/x-www-form-urlencoded", body)
    }

    fn run(&self, engine: &Arc<Engine>) -> Report {
        let options = Options {
            unique_id: "a1b2".into(),
            started: Duration::from_secs(1_700_000_000),
            ..Options::default()
        };
        let mut transaction = Transaction::new(engine, options);
        transaction
            .connection(SocketAddr::from(([192, 0, 2, 1], 50_000)), SocketAddr::from(([192, 0, 2, 2], 443)));
        transaction.request_line(self.method.as_bytes(), self.target.as_bytes(), b"HTTP/1.1");
        for (name, value) in &self.fields {
            transaction.request_field(name.as_bytes(), value.as_bytes());
        }
        if transaction.request_headers().passes() && transaction.request_body(&self.body, true).passes() {
            let fields = [(&b"Content-Type"[..], &b"text/html"[..]), (b"Content-Length", b"1024")];
            if transaction.response_headers(200, b"HTTP/1.1", fields).passes() {
                transaction.response_body(&[b'x'; 1024], true);
            }
        }
        transaction.log()
    }
}

fn json(values: usize) -> Vec<u8> {
    let items: Vec<String> = (0..values / 4)
        .map(|at| {
            format!(r#"{{"id":{at},"name":"item number {at}","price":"{}.99","tag":"blue, large"}}"#, at % 90)
        })
        .collect();
    format!(r#"{{"items":[{}]}}"#, items.join(",")).into_bytes()
}

fn requests() -> Vec<(&'static str, Request)> {
    let words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"];
    let arguments: Vec<String> = words.iter().map(|word| format!("{word}=some+value+of+{word}")).collect();
    let form: Vec<String> =
        (0..40).map(|at| format!("field{at}=The+quick+brown+fox+jumps+over+%23{at}")).collect();
    let prose = "It was the best of times, it was the worst of times, it was the age of wisdom; ".repeat(830);
    let mut seed = 88_172_645_463_325_252_u64;
    let random: String = (0..32_768)
        .map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            format!("%{:02x}", seed as u8)
        })
        .collect();
    let nested = "%25".repeat(10_000) + &"%26amp;lt;".repeat(2_000) + &"\\u0041".repeat(2_000);
    vec![
        ("get", Request::get("/products/list")),
        ("get-10-args", Request::get(format!("/search?{}", arguments.join("&")))),
        ("form-2k", Request::form(form.join("&").into_bytes())),
        ("json-small", Request::post("application/json", json(8))),
        ("json-720", Request::post("application/json", json(720))),
        (
            "sqli",
            Request::get(
                "/item?id=1%27%20OR%201%3D1%20UNION%20SELECT%20user%2Cpassword%20FROM%20users--%20-",
            ),
        ),
        ("64k-letter", Request::form([b"a=".to_vec(), vec![b'a'; 65_536]].concat())),
        ("64k-prose", Request::form(format!("a={prose}").into_bytes())),
        ("32k-random", Request::form(format!("a={random}").into_bytes())),
        ("nested", Request::form(format!("a={nested}").into_bytes())),
        ("64k-quotes", Request::form([b"a=".to_vec(), b"' \"(".repeat(16_384)].concat())),
    ]
}

fn bench(criterion: &mut Criterion<ThreadTime>) {
    let folder = rules::folder().expect("CRS names the folder of the rule set");
    for paranoia in [1, 4] {
        let engine = rules::for_site(&folder, paranoia);
        let mut group = criterion.benchmark_group(format!("paranoia-{paranoia}"));
        group
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_secs(1))
            .sample_size(10);
        for (name, request) in requests() {
            let report = request.run(&engine);
            println!(
                "{name}: {} matches, {} looks, work {}, {:?}",
                report.matches.len(),
                report.looks,
                report.work,
                report.verdict
            );
            group.bench_function(name, |bencher| bencher.iter(|| black_box(request.run(&engine))));
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(ThreadTime);
    targets = bench
}
criterion_main!(benches);
