//! Invariants for any expression. The body of a fuzz target, also run over its corpus by `cargo test`.
//!
//! An input is lines: the last is a host, the one before a path, those before are one rule each.

use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use foregate_rules::{FactTable, List, Lists, RuleSet, Scheme, Stage};

static SCHEME: LazyLock<Scheme> = LazyLock::new(Scheme::standard);

static LISTS: LazyLock<Lists> = LazyLock::new(|| {
    let mut lists = Lists::new();
    lists.insert("ips", List::parse_ips("10.0.0.0/8\n2001:db8::/32\n").expect("a list"));
    lists.insert("hosts", List::parse_hosts("a.example\n*.b.example\n").expect("a list"));
    lists.insert("texts", List::parse_strings("a\nb\n").expect("a list"));
    lists
});

/// Compiling never panics and says where it refuses; evaluating never panics; a set of rules matches as its rules do.
pub(crate) fn rules_compile_and_match(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines: Vec<&str> = text.split('\n').collect();
    let host = lines.pop().unwrap_or_default();
    let path = lines.pop().unwrap_or_default();
    for list in [List::parse_ips(&text), List::parse_hosts(&text), List::parse_strings(&text)] {
        if let Err(refused) = list {
            assert!((1..=text.lines().count()).contains(&refused.line));
        }
    }
    let mut facts = FactTable::new(&SCHEME);
    facts.set("http.host", host).set("http.request.uri.path", path).set("ssl", path.len().is_multiple_of(2));
    facts.set("ip.src", Ipv4Addr::from_bits(u32::try_from(host.len()).unwrap_or(0) << 24));
    for value in path.split('/') {
        facts.add("http.request.headers", "x-a", value);
    }
    let mut rules = Vec::new();
    for line in lines {
        match SCHEME.compile(line, Stage::Request, &LISTS) {
            Ok(rule) => rules.push(rule),
            Err(refused) => {
                assert!(line.get(refused.span()).is_some(), "the place is in the text");
                assert!(!refused.message().contains('\n'));
            }
        }
        if let Ok(value) = SCHEME.compile_value(line, Stage::Response, &LISTS) {
            let first = value.evaluate(&facts);
            assert_eq!(first, value.evaluate(&facts), "the same each time");
        }
    }
    let expected: Vec<_> =
        (0..).zip(&rules).filter(|(_, rule)| rule.matches(&facts)).map(|(at, _)| at).collect();
    let set = RuleSet::new(rules.iter().cloned()).expect("so few rules fit");
    let mut matched = Vec::new();
    let flow = set.each_match(&facts, |at| {
        matched.push(at);
        ControlFlow::<()>::Continue(())
    });
    assert_eq!((flow, matched), (ControlFlow::Continue(()), expected));
}
