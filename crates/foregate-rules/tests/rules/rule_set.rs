//! The shared work of a set of rules.

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::ControlFlow;

use foregate_rules::{
    FactTable, Facts, FieldId, Lists, Predicate, RuleSet, RuleSetError, Stage, Value, limits,
};

use crate::{LISTS, SCHEME, facts};

fn rules(texts: &[&str]) -> Vec<Predicate> {
    texts.iter().map(|text| SCHEME.compile(text, Stage::Request, &LISTS).unwrap()).collect()
}

fn matches(set: &RuleSet, facts: &dyn Facts) -> Vec<usize> {
    let mut matched = Vec::new();
    let _ = set.each_match(facts, |index| {
        matched.push(index);
        ControlFlow::<()>::Continue(())
    });
    matched
}

/// Facts that count how often they are asked.
struct Counted<'f>(FactTable<'f>, RefCell<Vec<FieldId>>);

impl Counted<'_> {
    fn asked(&self, field: &str) -> usize {
        let id = SCHEME.id(field).unwrap();
        self.1.borrow().iter().filter(|asked| **asked == id).count()
    }
}

impl Facts for Counted<'_> {
    fn bytes(&self, field: FieldId) -> Option<Cow<'_, [u8]>> {
        self.1.borrow_mut().push(field);
        self.0.bytes(field)
    }

    fn int(&self, field: FieldId) -> Option<i64> {
        self.1.borrow_mut().push(field);
        self.0.int(field)
    }

    fn bool(&self, field: FieldId) -> Option<bool> {
        self.1.borrow_mut().push(field);
        self.0.bool(field)
    }

    fn ip(&self, field: FieldId) -> Option<IpAddr> {
        self.1.borrow_mut().push(field);
        self.0.ip(field)
    }

    fn each<'f>(
        &'f self,
        field: FieldId,
        name: Option<&[u8]>,
        visit: &mut dyn FnMut(Value<'f>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.1.borrow_mut().push(field);
        self.0.each(field, name, visit)
    }
}

#[test]
fn rules_over_one_field_ask_for_it_once() {
    let mut texts: Vec<String> = (0..10_000)
        .map(|n| format!("http.host eq \"h{n}\" and starts_with(http.request.uri.path, \"/\")"))
        .collect();
    texts.extend(
        (0..1000).map(|n| format!("ip.src in {{10.{}.{}.0/24 2001:db8:{n:x}::/48}}", n / 250, n % 250)),
    );
    texts.extend((0..1000).map(|n| format!("any(http.request.headers[\"x-tag\"][*] eq \"t{n}\")")));
    texts.extend((0..1000).map(|n| format!("lower(http.user_agent) contains \"bot{n}/\"")));
    texts.extend((0..1000).map(|n| format!("ends_with(http.request.uri, \".t{n}\")")));
    texts.extend((0..1000).map(|n| format!("waf.score in {{{n} {}}}", n + 5000)));
    let set =
        RuleSet::new(texts.iter().map(|text| SCHEME.compile(text, Stage::Request, &LISTS).unwrap())).unwrap();
    assert_eq!(set.unscanned(), 0);
    assert_eq!(set.rules().len(), texts.len());

    let counted = Counted(facts(), RefCell::default());
    assert_eq!(matches(&set, &counted), [0_usize; 0]);
    for field in
        ["http.host", "ip.src", "http.request.headers", "http.user_agent", "http.request.uri", "waf.score"]
    {
        assert_eq!(counted.asked(field), 1, "{field}");
    }
    assert_eq!(counted.asked("http.request.uri.path"), 0);

    let mut found = facts();
    found.set("http.host", "h4711").set("ip.src", Ipv4Addr::new(10, 3, 249, 1)).set("waf.score", 5999);
    found.set("http.request.uri", "/x.t17").set("http.user_agent", "BOT7/ bot99/ bot7/");
    found.add("http.request.headers", "x-tag", "t999");
    let counted = Counted(found, RefCell::default());
    assert_eq!(matches(&set, &counted), [4711, 10_999, 11_999, 12_007, 12_099, 13_017, 14_999]);
    // Once for the scan, once for the rule that it named.
    assert_eq!(counted.asked("http.host"), 2);
}

#[test]
fn a_scan_is_not_run_when_an_earlier_rule_decides() {
    let set = RuleSet::new(rules(&["ssl", "http.host eq \"a\"", "ip.src eq 10.0.0.1"])).unwrap();
    let counted = Counted(facts(), RefCell::default());
    assert_eq!(set.each_match(&counted, ControlFlow::Break), ControlFlow::Break(0));
    assert_eq!(counted.asked("http.host") + counted.asked("ip.src"), 0);
}

#[test]
fn the_rarest_condition_is_looked_for() {
    // All share the method, most the path: the host tells them apart.
    let texts: Vec<_> = (0..500)
        .map(|n| {
            format!(
                "http.request.method eq \"GET\" and http.request.uri.path eq \"/a/b.html\" and http.host eq \"h{n}\""
            )
        })
        .collect();
    let set =
        RuleSet::new(texts.iter().map(|text| SCHEME.compile(text, Stage::Request, &LISTS).unwrap())).unwrap();
    let counted = Counted(facts(), RefCell::default());
    assert_eq!(matches(&set, &counted), [0_usize; 0]);
    assert_eq!(counted.asked("http.host"), 1);
    assert_eq!(counted.asked("http.request.method") + counted.asked("http.request.uri.path"), 0);
}

#[test]
fn what_no_scan_finds_is_evaluated_each_time() {
    let texts = ["not ssl", "http.host matches \"[v-z]{2}\"", "http.host eq \"a\" or ssl", "ssl", "false"];
    let set = RuleSet::new(rules(&texts)).unwrap();
    assert_eq!(set.unscanned(), 4);
    assert_eq!(matches(&set, &facts()), [1, 2, 3]);
}

#[test]
fn a_scan_decides_what_is_denied_and_what_is_a_list_of_words() {
    let texts = [
        "not http.host eq \"a\"",
        "not http.host in {\"a\" \"www.example.com\"}",
        "http.host matches \"(?i)(EXAMPLE|other)\"",
        "http.host matches \"[.](com|net)$\"",
        "http.host matches \"^(www|ftp)[.]example[.]com$\"",
        "not http.host matches \"^w+[.]example\"",
        "not has_key(http.request.headers, \"none\")",
        "has_key(http.request.headers, \"x-tag\")",
        "http.request.headers[\"x-tag\"][1] eq \"two\"",
        "http.request.headers[\"x-tag\"][1] eq \"one\"",
        "http.host contains \"www\"",
        "http.host contains \"www.e\"",
        "http.host contains \"ww.ex\"",
    ];
    let rules = rules(&texts);
    let expected: Vec<_> = (0..rules.len()).filter(|index| rules[*index].matches(&facts())).collect();
    let twice = RuleSet::new(rules.iter().chain(&rules).cloned()).unwrap();
    assert_eq!(twice.unscanned(), 2);
    let all: Vec<_> =
        expected.iter().copied().chain(expected.iter().map(|index| index + rules.len())).collect();
    assert_eq!(matches(&twice, &facts()), all);
    assert_eq!(matches(&RuleSet::new(rules).unwrap(), &facts()), expected);
}

#[test]
fn one_within_the_other() {
    let texts = [
        "starts_with(http.request.uri.path, \"/\")",
        "starts_with(http.request.uri.path, \"/a\")",
        "starts_with(http.request.uri.path, \"/a/b\")",
        "starts_with(http.request.uri.path, \"/a/bb\")",
        "starts_with(http.request.uri.path, \"/a/b.html\")",
        "starts_with(http.request.uri.path, \"/a/b.html/\")",
        "starts_with(http.request.uri.path, \"\")",
        "ends_with(http.request.uri.path, \"l\")",
        "ends_with(http.request.uri.path, \".html\")",
        "ends_with(http.request.uri.path, \"x.html\")",
        "http.host wildcard \"*.EXAMPLE.com\"",
        "http.host wildcard \"W*\"",
        "http.host wildcard \"*.com\"",
        "http.host wildcard \"www.example.com\"",
        "ip.src in {0.0.0.0/0}",
        "ip.src in {192.0.0.0/8 ::/0}",
        "ip.src in {192.0.2.0/24}",
        "ip.src in {192.0.2.0..192.0.2.6}",
        "ip.src in {192.0.2.0..192.0.2.7}",
        "ip.src in {192.0.2.8..255.255.255.255}",
        "ip.src eq 192.0.2.7",
        "ip.src eq 192.0.2.7",
        "ip.src in {::/0 ffff::/16}",
        "ip.src in $office",
        "substring(http.host, 4) in $hosts",
        "http.host in $hosts",
        "not http.host in $hosts",
    ];
    let rules = rules(&texts);
    let set = RuleSet::new(rules.iter().cloned()).unwrap();
    let expected: Vec<_> = (0..rules.len()).filter(|index| rules[*index].matches(&facts())).collect();
    assert_eq!(matches(&set, &facts()), expected);
    assert_eq!(expected, [0, 1, 2, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 18, 20, 21, 23, 24, 26]);
}

#[test]
fn ranges_of_addresses_overlap_as_they_like() {
    // From the last number to the next, by a generator that repeats itself after 65,536.
    let mut number = 1_u32;
    let mut next = || {
        number = number.wrapping_mul(25_173).wrapping_add(13_849) % 65_536;
        number >> 8
    };
    let texts: Vec<_> = (0..200)
        .map(|_| {
            let (one, other) = (next(), next() >> (next() % 8));
            let (first, last) = (one, (one + other).min(255));
            format!("ip.src in {{10.0.0.{first}..10.0.0.{last} 2001:db8::{first:x}..2001:db8::{last:x}}}")
        })
        .collect();
    let rules = rules(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let set = RuleSet::new(rules.iter().cloned()).unwrap();
    assert_eq!(set.unscanned(), 0);
    let mut facts = FactTable::new(&SCHEME);
    for last in 0..=255_u8 {
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into());
        for address in [IpAddr::from(Ipv4Addr::new(10, 0, 0, last)), v6.into()] {
            facts.set("ip.src", address);
            let expected: Vec<_> = (0..rules.len()).filter(|index| rules[*index].matches(&facts)).collect();
            assert_eq!(matches(&set, &facts), expected, "{address}");
        }
    }
}

#[test]
fn a_rule_that_a_scan_decides_is_not_evaluated() {
    let texts = ["http.host eq \"www.example.com\"", "lower(http.host) in {\"a\" \"www.example.com\"}"];
    let set = RuleSet::new(rules(&texts)).unwrap();
    let counted = Counted(facts(), RefCell::default());
    assert_eq!(matches(&set, &counted), [0, 1]);
    assert_eq!(counted.asked("http.host"), 2);
}

#[test]
fn a_scan_decides_no_more_than_it_looked_for() {
    let texts = [
        "http.host wildcard \"www.*.org\"",
        "http.request.headers[\"x-tag\"][0] eq \"two\"",
        "any(http.request.headers[\"none\"][*] eq \"a\" or http.host eq \"www.example.com\")",
        "any(http.request.headers[\"none\"][*] eq \"a\" or any(http.request.headers[\"x-tag\"][*] eq \"two\"))",
        "any(http.request.headers[\"none\"][*] eq \"a\" or ip.src eq 192.0.2.7)",
        "any(http.request.headers[\"none\"][*] eq \"a\" or waf.score eq -5)",
        "all(http.request.headers[\"x-tag\"][*] eq \"two\")",
        "any(http.request.headers[\"x-tag\"][*] eq \"two\" and http.host eq \"x\")",
    ];
    let set = RuleSet::new(rules(&texts)).unwrap();
    assert_eq!(matches(&set, &facts()), [0_usize; 0]);
}

#[test]
fn a_list_is_looked_up_once_for_all_rules() {
    let texts: Vec<String> = (0..200)
        .map(|n| format!("ip.src in $office and http.request.uri.path eq \"/{n}\""))
        .chain(["ip.src in $office".to_owned(), "ip.src in $office".to_owned()])
        .collect();
    let set =
        RuleSet::new(texts.iter().map(|text| SCHEME.compile(text, Stage::Request, &LISTS).unwrap())).unwrap();
    assert_eq!(set.unscanned(), 0);
    assert_eq!(matches(&set, &facts()), [200, 201]);
}

#[test]
fn a_text_that_repeats_itself_does_not_flood() {
    let texts: Vec<_> =
        (1..300).map(|n| format!("http.request.uri.path contains \"{}\"", "a".repeat(n))).collect();
    let set =
        RuleSet::new(texts.iter().map(|text| SCHEME.compile(text, Stage::Request, &LISTS).unwrap())).unwrap();
    let mut facts = FactTable::new(&SCHEME);
    facts.set("http.request.uri.path", &*"a".repeat(8192));
    assert_eq!(matches(&set, &facts), (0..299).collect::<Vec<_>>());
}

#[test]
fn a_set_without_rules_matches_nothing() {
    let set = RuleSet::new([]).unwrap();
    assert_eq!(matches(&set, &facts()), [0_usize; 0]);
}

#[test]
fn patterns_have_a_budget_over_all_rules() {
    let rule = SCHEME.compile("http.host matches \"^a{1,9000}b\"", Stage::Request, &Lists::new()).unwrap();
    let fits = limits::MAX_COMPILED_PATTERNS / rule.pattern_memory();
    assert!(RuleSet::new(std::iter::repeat_n(rule.clone(), fits)).is_ok());
    let error = RuleSet::new(std::iter::repeat_n(rule, fits + 1)).unwrap_err();
    assert_eq!(error, RuleSetError::Patterns(fits));
    assert_eq!(
        error.to_string(),
        format!("up to rule {} the patterns of the rules take more than 67108864 bytes", fits + 1)
    );
}

#[test]
fn rules_are_counted() {
    let rule = SCHEME.compile("ssl", Stage::Request, &Lists::new()).unwrap();
    assert!(RuleSet::new(std::iter::repeat_n(rule.clone(), limits::MAX_RULES)).is_ok());
    let error = RuleSet::new(std::iter::repeat_n(rule, limits::MAX_RULES + 1)).unwrap_err();
    assert_eq!(error, RuleSetError::TooMany);
    assert_eq!(error.to_string(), "there are more than 1000000 rules");
}
