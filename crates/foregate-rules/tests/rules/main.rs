//! The language from outside: results of expressions, refusals, and that sets of rules equal
//! their rules.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at what they do not expect")]

mod corpus;
mod errors;
mod evaluation;
mod lists;
mod properties;
mod reference;
mod rule_set;
mod values;

use foregate_rules::{FactTable, List, Lists, Scheme, Stage};
use std::net::Ipv4Addr;
use std::sync::LazyLock;

static SCHEME: LazyLock<Scheme> = LazyLock::new(|| {
    let scheme = Scheme::standard();
    let scheme =
        scheme.with_field("waf.score", foregate_rules::Type::Int, Stage::Request, "A score.").unwrap();
    let ips = foregate_rules::Type::Array(foregate_rules::Scalar::Ip);
    let scheme = scheme.with_field("via.addresses", ips, Stage::Request, "Addresses.").unwrap();
    let flags = foregate_rules::Type::Array(foregate_rules::Scalar::Bool);
    let scheme = scheme.with_field("waf.flags", flags, Stage::Request, "Flags.").unwrap();
    let numbers = foregate_rules::Type::Array(foregate_rules::Scalar::Int);
    scheme.with_field("waf.rules", numbers, Stage::Request, "Numbers.").unwrap()
});

static LISTS: LazyLock<Lists> = LazyLock::new(|| {
    let mut lists = Lists::new();
    lists.insert(
        "office",
        List::parse_ips("192.0.2.0/24\n2001:db8::/32\n198.51.100.1..198.51.100.9\n").unwrap(),
    );
    lists.insert("hosts", List::parse_hosts("example.com\n*.example.org\n").unwrap());
    lists.insert("agents", List::parse_strings("curl/8.0\nevil bot\n").unwrap());
    lists
});

/// The request that most tests are about.
fn facts() -> FactTable<'static> {
    let mut facts = FactTable::new(&SCHEME);
    facts
        .set("http.host", "www.example.com")
        .set("http.request.uri", "/a/b.html?x=1&y=two&x=3")
        .set("http.request.uri.path", "/a/b.html")
        .set("http.request.uri.path.extension", "html")
        .set("http.request.uri.query", "x=1&y=two&x=3")
        .set("http.request.full_uri", "https://www.example.com/a/b.html?x=1&y=two&x=3")
        .set("http.request.method", "GET")
        .set("http.user_agent", "Mozilla/5.0 (X11)")
        .set("http.request.timestamp.sec", 1_700_000_000)
        .set("ip.src", Ipv4Addr::new(192, 0, 2, 7))
        .set("ip.src.country", "DE")
        .set("ssl", true)
        .set("tls.client.verified", false)
        .set("waf.score", -5)
        .set("http.response.code", 404)
        .set("http.request.body.size", 12);
    facts.add("http.request.headers", "Accept", "text/html").add("http.request.headers", "X-Tag", "One");
    facts.add("http.request.headers", "x-tag", "two").add("http.request.headers", "Content-Type", "a; b");
    facts.add("http.request.cookies", "Session", "abc").add("http.request.uri.args", "x", "1");
    facts.add("http.request.uri.args", "y", "two").add("http.request.uri.args", "x", "3");
    facts.push("via.addresses", Ipv4Addr::new(10, 0, 0, 1)).push("via.addresses", Ipv4Addr::LOCALHOST);
    facts.push("waf.flags", true).push("waf.flags", false).push("waf.rules", 900).push("waf.rules", 942);
    facts
}
