//! Named lists: accepted and refused entries, and lookups.

use foregate_rules::{FactTable, List, Lists, Stage, limits};
use std::net::IpAddr;

use crate::SCHEME;

fn holds(text: &str, list: List, field: &str, value: &str) -> bool {
    let mut lists = Lists::new();
    lists.insert("list", list);
    let predicate = SCHEME.compile(text, Stage::Request, &lists).unwrap();
    let mut facts = FactTable::new(&SCHEME);
    match value.parse::<IpAddr>() {
        Ok(address) => facts.set(field, address),
        Err(_) => facts.set(field, value),
    };
    predicate.matches(&facts)
}

#[test]
fn addresses_networks_and_ranges() {
    let text = "# ours\n192.0.2.1 # the door\n\n 10.0.0.0/8\t\n2001:db8::/32\n198.51.100.3..198.51.100.7\r\n::ffff:203.0.113.0/120\n";
    let list = List::parse_ips(text).unwrap();
    assert_eq!(list.len(), 5);
    for (address, expected) in [
        ("192.0.2.1", true),
        ("::ffff:192.0.2.1", true),
        ("192.0.2.2", false),
        ("10.255.255.255", true),
        ("11.0.0.0", false),
        ("2001:db8:ffff::", true),
        ("2001:db9::", false),
        ("198.51.100.2", false),
        ("198.51.100.3", true),
        ("198.51.100.7", true),
        ("198.51.100.8", false),
        ("203.0.113.255", true),
        ("203.0.114.0", false),
    ] {
        assert_eq!(holds("ip.src in $list", list.clone(), "ip.src", address), expected, "{address}");
    }
}

#[test]
fn hosts_and_what_is_below_them() {
    let list = List::parse_hosts("Example.com\n*.example.org\n# *.example.net\n[2001:DB8:0::1]\n").unwrap();
    assert_eq!(list.len(), 3);
    for (host, expected) in [
        ("example.com", true),
        ("EXAMPLE.com", true),
        ("www.example.com", false),
        ("example.org", false),
        ("www.example.org", true),
        ("a.b.EXAMPLE.org", true),
        ("xexample.org", false),
        ("example.net", false),
        ("[2001:db8::1]", true),
        ("", false),
    ] {
        assert_eq!(holds("http.host in $list", list.clone(), "http.host", host), expected, "{host}");
    }
}

#[test]
fn texts_are_whole_lines() {
    let list = List::parse_strings("evil bot\ncolour#1\n\nb # not this\n").unwrap();
    assert_eq!(list.len(), 3);
    for (text, expected) in
        [("evil bot", true), ("evil", false), ("colour#1", true), ("b", true), ("B", false)]
    {
        assert_eq!(
            holds("http.user_agent in $list", list.clone(), "http.user_agent", text),
            expected,
            "{text}"
        );
    }
}

#[test]
fn an_empty_list_holds_nothing() {
    let list = List::parse_strings("# nothing yet\n").unwrap();
    assert!(list.is_empty());
    assert!(!holds("http.host in $list", list, "http.host", ""));
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let long = format!("ok\n{}\n", "a".repeat(limits::MAX_LIST_ENTRY + 1));
    for (outcome, message) in [
        (
            List::parse_ips("192.0.2.1\n\nexample.com\n"),
            "line 3: `example.com` is neither an address, nor a network, nor a range",
        ),
        (List::parse_ips("192.0.2.1/33"), "line 1: an address like 192.0.2.1 has 32 bits, not 33"),
        (
            List::parse_ips("192.0.2.1/24"),
            "line 1: 192.0.2.1/24 has bits set behind the first 24: the network is 192.0.2.0/24",
        ),
        (
            List::parse_ips("192.0.2.1/x"),
            "line 1: `192.0.2.1/x` is neither an address, nor a network, nor a range",
        ),
        (List::parse_ips("192.0.2.9..192.0.2.1"), "line 1: this range ends before it begins"),
        (List::parse_ips("192.0.2.9..::1"), "line 1: this range is between an IPv4 and an IPv6 address"),
        (
            List::parse_ips("::ffff:0:0/90"),
            "line 1: ::ffff:0.0.0.0/90 has bits set behind the first 90: the network is ::ffc0:0:0/90",
        ),
        (List::parse_hosts("a\nb c\n"), "line 2: `b c` is no host; write `example.com` or `*.example.com`"),
        (List::parse_hosts("*.\n"), "line 1: `*.` is no host; write `example.com` or `*.example.com`"),
        (List::parse_hosts("a.*.b\n"), "line 1: `a.*.b` is no host; write `example.com` or `*.example.com`"),
        (List::parse_hosts("a\na..b\n"), "line 2: `a..b` is no host; write `example.com` or `*.example.com`"),
        (List::parse_hosts(".a"), "line 1: `.a` is no host; write `example.com` or `*.example.com`"),
        (List::parse_hosts("a.."), "line 1: `a..` is no host; write `example.com` or `*.example.com`"),
        (List::parse_hosts("[a]"), "line 1: `[a]` is no host; write `example.com` or `*.example.com`"),
        (List::parse_hosts("A.example."), "line 1: `a.example.` has a dot at its end: no host is written so"),
        (
            List::parse_hosts("*.a.example."),
            "line 1: `*.a.example.` has a dot at its end: no host is written so",
        ),
        (List::parse_hosts("a:80"), "line 1: `a:80` has a port, or lacks brackets: no host is written so"),
        (List::parse_hosts("::1"), "line 1: `::1` has a port, or lacks brackets: no host is written so"),
        (
            List::parse_hosts("[::1]:80"),
            "line 1: `[::1]:80` has a port, or lacks brackets: no host is written so",
        ),
        (List::parse_strings(&long), "line 2: the entry is longer than 4096 bytes"),
    ] {
        assert_eq!(outcome.unwrap_err().to_string(), message);
    }
    assert!(List::parse_strings(&long.replacen('a', "", 1)).is_ok());
}

#[test]
fn a_list_is_taken_as_it_is_when_the_expression_is_compiled() {
    let mut lists = Lists::new();
    lists.insert("list", List::parse_strings("a").unwrap());
    let predicate = SCHEME.compile("http.host in $list", Stage::Request, &lists).unwrap();
    lists.insert("list", List::parse_strings("b").unwrap());
    let mut facts = FactTable::new(&SCHEME);
    facts.set("http.host", "a");
    assert!(predicate.matches(&facts));
    assert!(!SCHEME.compile("http.host in $list", Stage::Request, &lists).unwrap().matches(&facts));
    assert_eq!(lists.names().collect::<Vec<_>>(), ["list"]);
}
