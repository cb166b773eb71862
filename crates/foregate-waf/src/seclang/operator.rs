//! Parses operators: `@NAME ARGUMENT`, `!@NAME ARGUMENT`, or a pattern alone.

use std::sync::Arc;

use super::files::{Shelf, not_a_network};
use super::findings::Findings;
use super::line::Part;
use super::pattern;
use super::template::{number, template, without_macros};
use crate::model::{ByteSet, Comparison, Network, Operator, Phrases, Regex, Template};

/// The kind of an operator's argument, with the function that makes the operator.
#[derive(Clone, Copy)]
enum MakeOperator {
    /// No argument.
    Plain(fn() -> Operator),
    Pattern(fn(Regex) -> Operator),
    /// A text with macros.
    Text(fn(Template) -> Operator),
    /// A text with macros, which may be empty.
    AnyText(fn(Template) -> Operator),
    Number(Comparison),
    Phrases,
    PhrasesOf,
    Networks,
    NetworksOf,
    Bytes,
}

/// Every operator, sorted by name.
const OPERATORS: &[(&str, MakeOperator)] = &[
    ("beginsWith", MakeOperator::Text(Operator::BeginsWith)),
    ("contains", MakeOperator::Text(Operator::Contains)),
    ("containsWord", MakeOperator::Text(Operator::ContainsWord)),
    ("detectSQLi", MakeOperator::Plain(|| Operator::DetectSqli)),
    ("detectXSS", MakeOperator::Plain(|| Operator::DetectXss)),
    ("endsWith", MakeOperator::Text(Operator::EndsWith)),
    ("eq", MakeOperator::Number(Comparison::Equal)),
    ("ge", MakeOperator::Number(Comparison::AtLeast)),
    ("gt", MakeOperator::Number(Comparison::Above)),
    ("ipMatch", MakeOperator::Networks),
    ("ipMatchF", MakeOperator::NetworksOf),
    ("ipMatchFromFile", MakeOperator::NetworksOf),
    ("le", MakeOperator::Number(Comparison::AtMost)),
    ("lt", MakeOperator::Number(Comparison::Below)),
    ("noMatch", MakeOperator::Plain(|| Operator::Never)),
    ("pm", MakeOperator::Phrases),
    ("pmFromFile", MakeOperator::PhrasesOf),
    ("pmf", MakeOperator::PhrasesOf),
    ("rx", MakeOperator::Pattern(Operator::Rx)),
    ("rxGlobal", MakeOperator::Pattern(Operator::RxGlobal)),
    ("streq", MakeOperator::AnyText(Operator::StrEq)),
    ("strmatch", MakeOperator::Text(Operator::StrMatch)),
    ("unconditionalMatch", MakeOperator::Plain(|| Operator::Unconditional)),
    ("validateByteRange", MakeOperator::Bytes),
    ("validateUrlEncoding", MakeOperator::Plain(|| Operator::ValidateUrlEncoding)),
    ("validateUtf8Encoding", MakeOperator::Plain(|| Operator::ValidateUtf8Encoding)),
    ("verifyCC", MakeOperator::Pattern(Operator::VerifyCreditCard)),
    ("verifyCPF", MakeOperator::Pattern(Operator::VerifyCpf)),
    ("verifySSN", MakeOperator::Pattern(Operator::VerifySsn)),
    ("verifySVNR", MakeOperator::Pattern(Operator::VerifySvnr)),
    ("within", MakeOperator::AnyText(Operator::Within)),
];

const OF_PROXY: &str = "the proxy's own rules know countries and lists of addresses";

/// The operators of ModSecurity and Coraza that are not supported, with the reasons.
const NOT_OFFERED: &[(&str, &str)] = &[
    ("fuzzyHash", "no fuzzy hashes are kept"),
    ("geoLookup", OF_PROXY),
    ("gsbLookup", "the service that it asks is gone"),
    ("inspectFile", "no programs are run"),
    ("ipMatchFromDataset", "a list in a file is `@ipMatchFromFile`"),
    ("pmFromDataset", "a list in a file is `@pmFromFile`"),
    ("rbl", "no name servers are asked while a request waits"),
    ("restpath", "write the path as a pattern: `@rx`"),
    ("rsub", "bodies are not rewritten by rules"),
    ("validateDTD", "XML is never validated with documents from elsewhere"),
    ("validateHash", "pages are not signed"),
    ("validateSchema", "XML is never validated with documents from elsewhere"),
];

/// Parses an operator with its negation; `None` after an error, which is recorded.
pub(super) fn operator(
    part: Part<'_>,
    shelf: &mut Shelf<'_>,
    findings: &mut Findings,
) -> Option<(bool, Operator)> {
    let part = part.from(part.raw.len() - part.raw.trim_start().len());
    let negated = part.strip('!');
    let plain = negated.unwrap_or(part);
    let plain = plain.from(plain.raw.len() - plain.raw.trim_start().len());
    let operator = match plain.strip('@') {
        None if plain.raw.is_empty() => {
            findings.error(plain.at, "the operator is missing", None);
            None
        }
        None => patterned(plain, "a pattern", Operator::Rx, findings),
        Some(named) => {
            let end = named.raw.find(char::is_whitespace).unwrap_or(named.raw.len());
            let argument = named.from(end);
            let argument = argument.from(argument.raw.len() - argument.raw.trim_start().len());
            known(named.to(end), argument, shelf, findings)
        }
    };
    operator.map(|operator| (negated.is_some(), operator))
}

fn known(
    name: Part<'_>,
    argument: Part<'_>,
    shelf: &mut Shelf<'_>,
    findings: &mut Findings,
) -> Option<Operator> {
    let Some((name, make)) = OPERATORS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.raw)) else {
        match NOT_OFFERED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.raw)) {
            Some((known, reason)) => {
                let message = format!("the operator `@{known}` is not offered: {reason}");
                findings.error(name.at - 1, message, None);
            }
            None => {
                let known = OPERATORS.iter().map(|(name, _)| *name);
                findings.unknown(name.at, "operator", name.raw, known);
            }
        }
        return None;
    };
    match (make, argument.raw.is_empty()) {
        (MakeOperator::Plain(_) | MakeOperator::AnyText(_), true) | (_, false) => {}
        (_, true) => {
            findings.error(argument.at, format!("`@{name}` needs an argument"), None);
            return None;
        }
    }
    match *make {
        MakeOperator::Plain(_) if !argument.raw.is_empty() => {
            findings.error(argument.at, format!("`@{name}` takes no argument"), None);
            None
        }
        MakeOperator::Plain(make) => Some(make()),
        MakeOperator::Pattern(make) => {
            patterned(argument, &format!("the pattern of `@{name}`"), make, findings)
        }
        MakeOperator::Text(make) | MakeOperator::AnyText(make) => template(argument, findings).map(make),
        MakeOperator::Number(comparison) => {
            number(argument, findings).map(|number| Operator::Compare(comparison, number))
        }
        MakeOperator::Phrases => phrases(argument, findings).map(Operator::Pm),
        MakeOperator::PhrasesOf => shelf.phrases(argument, findings).map(Operator::Pm),
        MakeOperator::Networks => networks(argument, findings).map(Operator::IpMatch),
        MakeOperator::NetworksOf => shelf.networks(argument, findings).map(Operator::IpMatch),
        MakeOperator::Bytes => bytes(argument, findings).map(Operator::ValidateByteRange),
    }
}

fn patterned(
    part: Part<'_>,
    of: &str,
    make: fn(Regex) -> Operator,
    findings: &mut Findings,
) -> Option<Operator> {
    without_macros(part, of, findings).then(|| pattern::regex(part, findings)).flatten().map(make)
}

/// Parses phrases that are separated by white space. Bytes may be written in hexadecimal between bars: `a|20
/// 2f|b`.
fn phrases(part: Part<'_>, findings: &mut Findings) -> Option<Phrases> {
    if !without_macros(part, "the phrases of `@pm`", findings) {
        return None;
    }
    // White space between bars does not separate phrases.
    let mut inside = false;
    let mut phrases = vec![String::new()];
    for found in part.text().chars() {
        inside ^= found == '|';
        if found.is_whitespace() && !inside {
            phrases.push(String::new());
        } else if let Some(last) = phrases.last_mut() {
            last.push(found);
        }
    }
    if inside {
        let suggestion = Some("bytes stand between two of them in hexadecimal: `|7c|` is a `|`".into());
        findings.error(part.at, "a `|` in the phrases is not closed with another", suggestion);
        return None;
    }
    let decoded: Option<Vec<_>> = phrases.iter().map(|phrase| decoded(phrase)).collect();
    if decoded.is_none() {
        let message = "what stands between `|` in a phrase is not pairs of hexadecimal digits";
        findings.error(part.at, message, None);
    }
    decoded.map(Phrases::new)
}

/// Decodes a phrase that may have bytes in hexadecimal between bars.
fn decoded(phrase: &str) -> Option<Box<[u8]>> {
    let mut bytes = Vec::with_capacity(phrase.len());
    for (at, piece) in phrase.split('|').enumerate() {
        if at % 2 == 0 {
            bytes.extend_from_slice(piece.as_bytes());
            continue;
        }
        let digits: Option<Vec<u32>> =
            piece.chars().filter(|found| !found.is_whitespace()).map(|found| found.to_digit(16)).collect();
        let digits = digits.filter(|digits| digits.len() % 2 == 0 && !digits.is_empty())?;
        bytes.extend(digits.chunks(2).filter_map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()));
    }
    Some(bytes.into())
}

/// Parses addresses and networks that are separated by commas.
fn networks(part: Part<'_>, findings: &mut Findings) -> Option<Arc<[Network]>> {
    let mut networks = Vec::new();
    let mut right = true;
    for one in part.split_all(|found| found == ',' || found.is_whitespace()) {
        match Network::parse(one.raw) {
            Ok(network) => networks.push(network),
            Err(error) => {
                right = false;
                findings.error(one.at, not_a_network(one.raw, error), None);
            }
        }
    }
    right.then(|| networks.into())
}

/// Parses bytes and ranges of bytes that are separated by commas: `9,10,13,32-126`.
fn bytes(part: Part<'_>, findings: &mut Findings) -> Option<ByteSet> {
    let mut set = ByteSet::default();
    let mut right = true;
    for one in part.split_all(|found| found == ',' || found.is_whitespace()) {
        let (first, last) = one.raw.split_once('-').unwrap_or((one.raw, one.raw));
        match (first.parse::<u8>(), last.parse::<u8>()) {
            (Ok(first), Ok(last)) if first <= last => set = (first..=last).fold(set, ByteSet::with),
            _ => {
                right = false;
                let suggestion = Some("bytes are 0 to 255, a range is `32-126`".into());
                findings.error(one.at, format!("`{}` is no byte and no range of bytes", one.raw), suggestion);
            }
        }
    }
    right.then_some(set)
}
