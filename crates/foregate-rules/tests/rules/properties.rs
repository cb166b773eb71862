//! Random expressions over random requests, against an interpreter that knows nothing of types, costs or scans.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::ControlFlow;

use foregate_rules::{FactTable, Lists, Predicate, RuleSet, Stage};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::SCHEME;

/// A condition as it is printed.
#[derive(Clone, Debug)]
enum Cond {
    Const(bool),
    Ssl,
    Verified,
    Not(Box<Cond>),
    Logic(&'static str, Vec<Cond>),
    Text(Text, &'static str, String),
    TextIn(Text, Vec<String>),
    Affix(&'static str, Text, String),
    Each(&'static str, &'static str, Box<Cond>),
    Number(Number, &'static str, i64),
    NumberIn(Number, Vec<(i64, i64)>),
    Address(bool, IpAddr),
    AddressIn(Vec<(IpAddr, u8)>),
}

#[derive(Clone, Debug)]
enum Text {
    Host,
    Path,
    TlsVersion,
    First(&'static str),
    /// Of the array that is walked through.
    Element(&'static str),
    Lower(Box<Text>),
    Upper(Box<Text>),
    Concat(Box<Text>, Box<Text>),
    Part(Box<Text>, i64, i64),
    Literal(String),
}

#[derive(Clone, Debug)]
enum Number {
    Score,
    Status,
    Len(Text),
}

/// The values of a random request.
#[derive(Clone, Debug)]
struct Request {
    host: Option<String>,
    path: Option<String>,
    headers: Vec<(&'static str, String)>,
    ssl: Option<bool>,
    score: Option<i64>,
    address: Option<IpAddr>,
}

impl fmt::Display for Cond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Const(value) => write!(f, "{value}"),
            Self::Ssl => write!(f, "ssl"),
            Self::Verified => write!(f, "tls.client.verified"),
            Self::Not(inner) => write!(f, "not ({inner})"),
            Self::Logic(operator, parts) => {
                let parts: Vec<_> = parts.iter().map(|part| format!("({part})")).collect();
                write!(f, "{}", parts.join(&format!(" {operator} ")))
            }
            Self::Text(text, operator, literal) => write!(f, "{text} {operator} r#\"{literal}\"#"),
            Self::TextIn(text, set) => {
                let set: Vec<_> = set.iter().map(|text| format!("\"{text}\"")).collect();
                write!(f, "{text} in {{{}}}", set.join(" "))
            }
            Self::Affix(function, text, part) => write!(f, "{function}({text}, \"{part}\")"),
            Self::Each(quantor, _, inner) => write!(f, "{quantor}({inner})"),
            Self::Number(number, operator, literal) => write!(f, "{number} {operator} {literal}"),
            Self::NumberIn(number, ranges) => {
                let ranges: Vec<_> = ranges.iter().map(|(first, last)| format!("{first}..{last}")).collect();
                write!(f, "{number} in {{{}}}", ranges.join(" "))
            }
            Self::Address(equal, address) => {
                write!(f, "ip.src {} {address}", if *equal { "eq" } else { "ne" })
            }
            Self::AddressIn(networks) => {
                let networks: Vec<_> = networks.iter().map(|(base, bits)| format!("{base}/{bits}")).collect();
                write!(f, "ip.src in {{{}}}", networks.join(" "))
            }
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => write!(f, "http.host"),
            Self::Path => write!(f, "http.request.uri.path"),
            Self::TlsVersion => write!(f, "tls.version"),
            Self::First(name) => write!(f, "http.request.headers[\"{name}\"][0]"),
            Self::Element(name) => write!(f, "http.request.headers[\"{name}\"][*]"),
            // A function of elements makes an array, which is unpacked anew.
            Self::Lower(inner) => write!(f, "lower({inner}){}", inner.unpacked()),
            Self::Upper(inner) => write!(f, "upper({inner}){}", inner.unpacked()),
            Self::Concat(left, right) => write!(f, "concat({left}, {right}){}", left.unpacked()),
            Self::Part(inner, from, to) => write!(f, "substring({inner}, {from}, {to}){}", inner.unpacked()),
            Self::Literal(text) => write!(f, "\"{text}\""),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Score => write!(f, "waf.score"),
            Self::Status => write!(f, "http.response.code"),
            Self::Len(text) => write!(f, "len({text}){}", text.unpacked()),
        }
    }
}

impl Text {
    fn unpacked(&self) -> &'static str {
        if self.has_element() { "[*]" } else { "" }
    }

    fn has_element(&self) -> bool {
        match self {
            Self::Element(_) => true,
            Self::Lower(inner) | Self::Upper(inner) | Self::Part(inner, ..) => inner.has_element(),
            Self::Concat(left, _) => left.has_element(),
            _ => false,
        }
    }
}

impl Request {
    fn values<'r>(&'r self, name: &'r str) -> impl Iterator<Item = &'r String> {
        self.headers.iter().filter(move |(key, _)| *key == name).map(|(_, value)| value)
    }

    fn holds(&self, cond: &Cond, element: Option<&str>) -> bool {
        match cond {
            Cond::Const(value) => *value,
            Cond::Ssl => self.ssl == Some(true),
            Cond::Verified => false,
            Cond::Not(inner) => !self.holds(inner, element),
            Cond::Logic(operator, parts) => {
                let count = parts.iter().filter(|part| self.holds(part, element)).count();
                match *operator {
                    "and" => count == parts.len(),
                    "or" => count > 0,
                    _ => count % 2 == 1,
                }
            }
            Cond::Text(text, operator, literal) => {
                let text = self.text(text, element);
                let Some(text) = text else { return *operator == "ne" };
                match *operator {
                    "eq" => text == *literal,
                    "ne" => text != *literal,
                    "lt" => text < *literal,
                    "ge" => text >= *literal,
                    "contains" => text.contains(literal),
                    "wildcard" => wildcard(&text.to_lowercase(), &literal.to_lowercase()),
                    "strict wildcard" => wildcard(&text, literal),
                    _ => unreachable!(),
                }
            }
            Cond::TextIn(text, set) => self.text(text, element).is_some_and(|text| set.contains(&text)),
            Cond::Affix(function, text, part) => {
                self.text(text, element).is_some_and(|text| match *function {
                    "starts_with" => text.starts_with(part),
                    _ => text.ends_with(part),
                })
            }
            Cond::Each("any", name, inner) => self.values(name).any(|value| self.holds(inner, Some(value))),
            Cond::Each(_, name, inner) => self.values(name).all(|value| self.holds(inner, Some(value))),
            Cond::Number(number, operator, literal) => {
                let number = self.number(number, element);
                let Some(number) = number else { return *operator == "ne" };
                match *operator {
                    "eq" => number == *literal,
                    "ne" => number != *literal,
                    "lt" => number < *literal,
                    "le" => number <= *literal,
                    "gt" => number > *literal,
                    _ => number >= *literal,
                }
            }
            Cond::NumberIn(number, ranges) => self
                .number(number, element)
                .is_some_and(|number| ranges.iter().any(|(first, last)| (first..=last).contains(&&number))),
            Cond::Address(equal, address) => (self.address == Some(*address)) == *equal,
            Cond::AddressIn(networks) => self
                .address
                .is_some_and(|address| networks.iter().any(|&(base, bits)| cut(address, bits) == Some(base))),
        }
    }

    fn text(&self, text: &Text, element: Option<&str>) -> Option<String> {
        match text {
            Text::Host => self.host.clone(),
            Text::Path => self.path.clone(),
            Text::TlsVersion => None,
            Text::First(name) => self.values(name).next().cloned(),
            Text::Element(_) => element.map(str::to_owned),
            Text::Lower(inner) => Some(self.text(inner, element)?.to_ascii_lowercase()),
            Text::Upper(inner) => Some(self.text(inner, element)?.to_ascii_uppercase()),
            Text::Concat(left, right) => Some(
                self.text(left, element).unwrap_or_default() + &self.text(right, element).unwrap_or_default(),
            ),
            Text::Part(inner, from, to) => {
                let text = self.text(inner, element)?;
                let len = i64::try_from(text.len()).unwrap();
                let at = |at: i64| if at < 0 { at + len } else { at };
                let chosen = (0..len).zip(text.chars()).filter(|(i, _)| (at(*from)..at(*to)).contains(i));
                Some(chosen.map(|(_, letter)| letter).collect())
            }
            Text::Literal(text) => Some(text.clone()),
        }
    }

    fn number(&self, number: &Number, element: Option<&str>) -> Option<i64> {
        match number {
            Number::Score => self.score,
            Number::Status => None,
            Number::Len(text) => self.text(text, element).map(|text| i64::try_from(text.len()).unwrap()),
        }
    }

    fn facts(&self) -> FactTable<'static> {
        let mut facts = FactTable::new(&SCHEME);
        if let Some(host) = &self.host {
            facts.set("http.host", &**host);
        }
        if let Some(path) = &self.path {
            facts.set("http.request.uri.path", &**path);
        }
        if let Some(ssl) = self.ssl {
            facts.set("ssl", ssl);
        }
        if let Some(score) = self.score {
            facts.set("waf.score", score);
        }
        if let Some(address) = self.address {
            facts.set("ip.src", address);
        }
        for (name, value) in &self.headers {
            facts.add("http.request.headers", name, &**value);
        }
        facts
    }
}

fn cut(address: IpAddr, bits: u8) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) if bits <= 32 => {
            let keep = |bits: u8| if bits == 0 { 0 } else { u32::MAX << (32 - bits) };
            Some(Ipv4Addr::from_bits(v4.to_bits() & keep(bits)).into())
        }
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => {
            let keep = |bits: u8| if bits == 0 { 0 } else { u128::MAX << (128 - bits) };
            Some(Ipv6Addr::from_bits(v6.to_bits() & keep(bits)).into())
        }
    }
}

fn wildcard(text: &str, pattern: &str) -> bool {
    match (text.chars().next(), pattern.chars().next()) {
        (_, Some('*')) => {
            wildcard(text, &pattern[1..]) || (!text.is_empty() && wildcard(&text[1..], pattern))
        }
        (Some(left), Some(right)) => left == right && wildcard(&text[1..], &pattern[1..]),
        (None, None) => true,
        _ => false,
    }
}

/// Few letters, so that texts meet.
fn letters() -> impl Strategy<Value = String> {
    "[abA./]{0,4}"
}

fn pattern() -> impl Strategy<Value = String> {
    "[*]?[abA.]{1,2}([*][abA.]{1,2}){0,2}[*]?|[*]|"
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        select(vec![0_u32, 1, 255, 256, 0x0a00_0000, 0x0a00_0001, u32::MAX])
            .prop_map(|bits| Ipv4Addr::from_bits(bits).into()),
        select(vec![1_u128 << 64, (1 << 64) + 1, 0x2001 << 112, u128::MAX])
            .prop_map(|bits| Ipv6Addr::from_bits(bits).into()),
    ]
}

fn network() -> impl Strategy<Value = (IpAddr, u8)> {
    (address(), select(vec![0_u8, 1, 8, 24, 31, 32, 64, 127, 128])).prop_map(|(address, bits)| {
        let bits = if address.is_ipv4() { bits.min(32) } else { bits };
        (cut(address, bits).unwrap(), bits)
    })
}

const NAMES: &[&str] = &["x", "y"];

fn text(base: BoxedStrategy<Text>) -> BoxedStrategy<Text> {
    base.prop_recursive(2, 4, 2, |inner| {
        let other = prop_oneof![Just(Text::Host), Just(Text::TlsVersion), letters().prop_map(Text::Literal)];
        prop_oneof![
            inner.clone().prop_map(|text| Text::Lower(text.into())),
            inner.clone().prop_map(|text| Text::Upper(text.into())),
            (inner.clone(), other).prop_map(|(left, right)| Text::Concat(left.into(), right.into())),
            (inner, -3_i64..4, -3_i64..4).prop_map(|(text, from, to)| Text::Part(text.into(), from, to)),
        ]
    })
    .boxed()
}

fn request_text() -> BoxedStrategy<Text> {
    let base = prop_oneof![
        4 => Just(Text::Host),
        2 => Just(Text::Path),
        1 => Just(Text::TlsVersion),
        1 => select(NAMES).prop_map(Text::First),
        1 => letters().prop_map(Text::Literal),
    ];
    prop_oneof![3 => base.clone(), 1 => text(base.boxed())].boxed()
}

fn of_text(text: BoxedStrategy<Text>) -> BoxedStrategy<Cond> {
    let numbers = prop_oneof![Just(Number::Score), Just(Number::Status)].boxed();
    let numbers = prop_oneof![numbers, text.clone().prop_map(Number::Len)];
    let operators = select(vec!["eq", "ne", "lt", "ge", "contains"]);
    prop_oneof![
        4 => (text.clone(), operators, letters()).prop_map(|(text, operator, literal)| Cond::Text(text, operator, literal)),
        2 => (text.clone(), select(vec!["wildcard", "strict wildcard"]), pattern())
            .prop_map(|(text, operator, literal)| Cond::Text(text, operator, literal)),
        2 => (text.clone(), vec(letters(), 1..4)).prop_map(|(text, set)| Cond::TextIn(text, set)),
        3 => (select(vec!["starts_with", "ends_with"]), text, letters())
            .prop_map(|(function, text, part)| Cond::Affix(function, text, part)),
        1 => (numbers.clone(), select(vec!["eq", "ne", "lt", "le", "gt", "ge"]), -2_i64..4)
            .prop_map(|(number, operator, literal)| Cond::Number(number, operator, literal)),
        1 => (numbers, vec((-3_i64..4, 0_i64..3).prop_map(|(first, more)| (first, first + more)), 1..3))
            .prop_map(|(number, ranges)| Cond::NumberIn(number, ranges)),
    ]
    .boxed()
}

fn each() -> BoxedStrategy<Cond> {
    (select(vec!["any", "all"]), select(NAMES))
        .prop_flat_map(|(quantor, name)| {
            let element = text(Just(Text::Element(name)).boxed());
            let cond = of_text(prop_oneof![3 => Just(Text::Element(name)), 1 => element].boxed());
            // `any` needs an element in it: a condition on a number may have none.
            let cond = cond.prop_filter("about the element", |cond| match cond {
                Cond::Number(number, ..) | Cond::NumberIn(number, _) => matches!(number, Number::Len(_)),
                _ => true,
            });
            let cond = vec(cond, 1..3).prop_map(|mut conds| match conds.len() {
                1 => conds.remove(0),
                _ => Cond::Logic("or", conds),
            });
            cond.prop_map(move |cond| Cond::Each(quantor, name, Box::new(cond)))
        })
        .boxed()
}

fn cond() -> impl Strategy<Value = Cond> {
    let leaf = prop_oneof![
        1 => any::<bool>().prop_map(Cond::Const),
        1 => Just(Cond::Ssl),
        1 => Just(Cond::Verified),
        8 => of_text(request_text()),
        2 => each(),
        1 => (any::<bool>(), address()).prop_map(|(equal, address)| Cond::Address(equal, address)),
        2 => vec(network(), 1..4).prop_map(Cond::AddressIn),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            1 => inner.clone().prop_map(|inner| Cond::Not(inner.into())),
            4 => (select(vec!["and", "or", "xor"]), vec(inner, 2..4))
                .prop_map(|(operator, parts)| Cond::Logic(operator, parts)),
        ]
    })
}

fn request() -> impl Strategy<Value = Request> {
    use proptest::option::of;
    let headers = vec((select(NAMES), letters()), 0..4);
    (of(letters()), of(letters()), headers, of(any::<bool>()), of(-3_i64..4), of(address())).prop_map(
        |(host, path, headers, ssl, score, address)| Request { host, path, headers, ssl, score, address },
    )
}

fn compile(cond: &Cond) -> Predicate {
    let text = cond.to_string();
    SCHEME.compile(&text, Stage::Response, &Lists::new()).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn an_expression_means_what_the_interpreter_says(cond in cond(), requests in vec(request(), 1..6)) {
        let predicate = compile(&cond);
        for request in requests {
            prop_assert_eq!(predicate.matches(&request.facts()), request.holds(&cond, None), "{} of {:?}", cond, request);
        }
    }

    #[test]
    fn any_text_is_compiled_or_refused_with_a_place(text in "(http\\.host|ssl|[a-z.]{1,9}|[(){}\\[\\]*,!\"$~=<>&|^ä\\\\ ]|eq|in|and|[0-9./:]{1,5}| ){0,12}") {
        if let Err(error) = SCHEME.compile(&text, Stage::Request, &Lists::new()) {
            let span = error.span();
            prop_assert!(span.start <= span.end && span.end <= text.len());
            prop_assert!(text.is_char_boundary(span.start) && text.is_char_boundary(span.end));
            prop_assert!(!error.message().is_empty() && !error.message().contains('\n'));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_set_is_its_rules_in_order(conds in vec(cond(), 0..40), requests in vec(request(), 1..6)) {
        let rules: Vec<_> = conds.iter().map(compile).collect();
        let set = RuleSet::new(rules.iter().cloned()).unwrap();
        for request in requests {
            let facts = request.facts();
            let expected: Vec<_> =
                rules.iter().enumerate().filter(|(_, rule)| rule.matches(&facts)).map(|(index, _)| index).collect();
            let mut visited = Vec::new();
            let flow = set.each_match(&facts, |index| {
                visited.push(index);
                ControlFlow::<()>::Continue(())
            });
            prop_assert_eq!(flow, ControlFlow::Continue(()));
            prop_assert_eq!(&visited, &expected);
            prop_assert_eq!(set.each_match(&facts, ControlFlow::Break).break_value(), expected.first().copied());
            let mut stopped = Vec::new();
            let _ = set.each_match(&facts, |index| {
                stopped.push(index);
                if stopped.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            prop_assert_eq!(&stopped[..], &expected[..expected.len().min(2)]);
        }
    }
}
