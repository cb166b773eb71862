//! Cost of rules for a request: `cargo bench -p foregate-rules`.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark may stop")]

use std::borrow::Cow;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;

use criterion::{Criterion, criterion_group, criterion_main};
use foregate_rules::{Facts, FieldId, Lists, RuleSet, Scheme, Stage, StandardField, Value};

/// A request as a proxy holds it: fields by their number, headers as a list.
struct Request {
    host: String,
    path: &'static str,
    address: IpAddr,
    headers: Vec<(&'static str, &'static str)>,
}

impl Request {
    fn new(host: &str, address: Ipv4Addr) -> Self {
        let headers = vec![
            ("accept", "text/css,*/*;q=0.1"),
            ("accept-encoding", "gzip, deflate, br"),
            ("cookie", "session=0123456789abcdef; theme=dark"),
            (
                "user-agent",
                "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/120.0.0.0 Safari/537.36",
            ),
            ("x-tag", "one"),
        ];
        Self { host: host.to_owned(), path: "/static/css/main.css", address: address.into(), headers }
    }
}

impl Facts for Request {
    fn bytes(&self, field: FieldId) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(match field.standard()? {
            StandardField::Host => self.host.as_bytes(),
            StandardField::UriPath => self.path.as_bytes(),
            StandardField::Method => b"GET",
            StandardField::UserAgent => self.headers[3].1.as_bytes(),
            _ => return None,
        }))
    }

    fn int(&self, _: FieldId) -> Option<i64> {
        None
    }

    fn bool(&self, field: FieldId) -> Option<bool> {
        (field.standard() == Some(StandardField::Ssl)).then_some(true)
    }

    fn ip(&self, field: FieldId) -> Option<IpAddr> {
        (field.standard() == Some(StandardField::IpSrc)).then_some(self.address)
    }

    fn each<'f>(
        &'f self,
        field: FieldId,
        name: Option<&[u8]>,
        visit: &mut dyn FnMut(Value<'f>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if field.standard() == Some(StandardField::Headers) {
            for (key, value) in &self.headers {
                if name.is_none_or(|name| name == key.as_bytes()) {
                    visit(Value::Bytes(Cow::Borrowed(value.as_bytes())))?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn expressions(criterion: &mut Criterion) {
    let scheme = Scheme::standard();
    let request = Request::new("www.example.com", Ipv4Addr::new(192, 0, 2, 7));
    for text in [
        r#"http.host eq "www.example.com""#,
        r#"http.host eq "www.example.com" and starts_with(http.request.uri.path, "/static/") and ssl"#,
        r#"http.host in {"a.example" "b.example" "www.example.com"}"#,
        r#"http.host wildcard "*.example.com""#,
        r#"lower(http.user_agent) contains "curl""#,
        r#"http.request.uri.path matches "\.(css|js|png)$""#,
        r#"any(http.request.headers["x-tag"][*] eq "one")"#,
        r#"ip.src in {10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 192.0.2.0/24}"#,
    ] {
        let predicate = scheme.compile(text, Stage::Request, &Lists::new()).unwrap();
        criterion.bench_function(&format!("expression/{text}"), |bencher| {
            bencher.iter(|| predicate.matches(black_box(&request)));
        });
    }
    let text = r#"regex_replace(http.request.uri.path, "^/static/(.*)$", "/assets/${1}")"#;
    let expression = scheme.compile_value(text, Stage::Request, &Lists::new()).unwrap();
    criterion.bench_function("expression/regex_replace", |bencher| {
        bencher.iter(|| expression.evaluate(black_box(&request)).is_some());
    });
}

/// 10,000 rules with a host each, and 1,000 with three networks each.
fn texts() -> Vec<String> {
    let hosts = (0..10_000).map(|n| match n % 3 {
        0 => format!(r#"http.host eq "h{n}.example""#),
        1 => format!(r#"http.host eq "h{n}.example" and starts_with(http.request.uri.path, "/static/")"#),
        _ => {
            format!(r#"http.host in {{"h{n}.example" "www.h{n}.example"}} and http.request.method eq "GET""#)
        }
    });
    let networks = (0..1_000).map(|n| {
        let (a, b) = (n / 250, n % 250);
        format!("ip.src in {{10.{a}.{b}.0/24 172.{}.{b}.0/28 2001:db8:{n:x}::/48}}", 16 + a)
    });
    hosts.chain(networks).collect()
}

fn rule_sets(criterion: &mut Criterion) {
    let scheme = Scheme::standard();
    let texts = texts();
    let rules: Vec<_> =
        texts.iter().map(|text| scheme.compile(text, Stage::Request, &Lists::new()).unwrap()).collect();
    let set = RuleSet::new(rules.iter().cloned()).unwrap();
    assert_eq!(set.unscanned(), 0);
    let count = |request: &Request| {
        let mut count = 0;
        let _ = set.each_match(request, |_| {
            count += 1;
            ControlFlow::<()>::Continue(())
        });
        count
    };
    for (name, host, address, expected) in [
        ("none matches", "www.example.com", Ipv4Addr::new(192, 0, 2, 7), 0),
        ("a host matches", "h6001.example", Ipv4Addr::new(192, 0, 2, 7), 1),
        ("a network matches", "www.example.com", Ipv4Addr::new(10, 3, 77, 9), 1),
        ("host and network match", "www.h7001.example", Ipv4Addr::new(10, 3, 77, 9), 2),
    ] {
        let request = Request::new(host, address);
        assert_eq!(count(&request), expected, "{name}");
        criterion.bench_function(&format!("11,000 rules/{name}"), |bencher| {
            bencher.iter(|| count(black_box(&request)));
        });
    }
    // Another host each time: the tables do not stay in the nearest cache.
    let requests: Vec<_> = (0..10_000_u32)
        .map(|n| {
            Request::new(
                &format!("h{}.example", n * 7919 % 10_000),
                Ipv4Addr::from_bits(0x0a00_0000 + n * 61),
            )
        })
        .collect();
    let mut next = 0;
    criterion.bench_function("11,000 rules/hosts and networks at random", |bencher| {
        bencher.iter(|| {
            next = (next + 1) % requests.len();
            count(&requests[next])
        });
    });
    let request = Request::new("h6001.example", Ipv4Addr::new(192, 0, 2, 7));
    criterion.bench_function("11,000 rules/one after the other", |bencher| {
        bencher.iter(|| rules.iter().filter(|rule| rule.matches(black_box(&request))).count());
    });
    criterion.bench_function("11,000 rules/compile", |bencher| {
        bencher.iter(|| {
            let rules = texts.iter().map(|text| scheme.compile(text, Stage::Request, &Lists::new()).unwrap());
            RuleSet::new(rules).unwrap()
        });
    });
}

criterion_group!(benches, expressions, rule_sets);
criterion_main!(benches);
