//! The differences of two responses.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::answer::{Answer, Decoded, Fields, Outcome};
use crate::json;
use crate::rules::{Rules, is_built_in};

/// Fields with unordered lists as values.
const LISTS: [&str; 12] = [
    "vary",
    "allow",
    "cache-control",
    "pragma",
    "accept-ranges",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-expose-headers",
    "content-language",
    "link",
    "accept-patch",
    "upgrade",
];

/// The most fields of an answer for the quick comparison.
const QUICK_MOST: usize = 40;
/// The bytes of a body that are shown on each side of its first difference.
const AROUND: usize = 32;
/// The longest text of a value, bytes.
const SHOWN: usize = 300;

/// The kind of an outcome, from the worst to the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Only the old system has answered.
    OnlyOld,
    /// Only the new system has answered.
    OnlyNew,
    /// The statuses differ.
    Status,
    /// The requests to the origin differ.
    Request,
    /// The bodies differ.
    Body,
    /// Fields differ.
    Header,
    /// Neither system has answered.
    Error,
    /// The systems differ only in parts in which two answers of the old system differ as well.
    Noise,
    /// The answers are the same.
    Same,
    /// The answers were not compared.
    NotCompared,
}

impl Class {
    /// All values, in order.
    pub const ALL: [Self; 10] = [
        Self::OnlyOld,
        Self::OnlyNew,
        Self::Status,
        Self::Request,
        Self::Body,
        Self::Header,
        Self::Error,
        Self::Noise,
        Self::Same,
        Self::NotCompared,
    ];

    /// The name of the class in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnlyOld => "only-old",
            Self::OnlyNew => "only-new",
            Self::Status => "status",
            Self::Request => "request",
            Self::Body => "body",
            Self::Header => "header",
            Self::Error => "error",
            Self::Noise => "noise",
            Self::Same => "same",
            Self::NotCompared => "not-compared",
        }
    }

    /// Returns true if the class stands for a difference between the two systems.
    pub fn is_difference(self) -> bool {
        !matches!(self, Self::Noise | Self::Same | Self::NotCompared | Self::Error)
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The kind of the difference, such as `Header`; or `OnlyOld`, `OnlyNew` or `Error` if a system did not answer.
    pub class: Class,
    /// The part that differs: `header etag`, `cookie sid`, `json $.a`, `body`.
    pub part: String,
    /// The place within the part, such as the exact path or the offset of a byte.
    pub place: Option<String>,
    /// The value of the old system. `None` if there is none.
    pub old: Option<String>,
    /// The value of the new system. `None` if there is none.
    pub new: Option<String>,
}

impl Difference {
    fn new(class: Class, part: String, old: Option<String>, new: Option<String>) -> Self {
        Self { class, part, place: None, old: old.map(shorten), new: new.map(shorten) }
    }
}

fn shorten(mut text: String) -> String {
    if text.len() > SHOWN {
        let end = (0..=SHOWN).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The differences of two outcomes; none if both are the same.
pub fn compare(old: &Outcome, new: &Outcome, rules: &Rules) -> Vec<Difference> {
    match (old, new) {
        (Outcome::Answered(old), Outcome::Answered(new)) => answers(old, new, rules),
        (Outcome::Answered(old), Outcome::Failed(why)) => {
            vec![Difference::new(
                Class::OnlyOld,
                "answer".into(),
                Some(old.status.to_string()),
                Some(why.clone()),
            )]
        }
        (Outcome::Failed(why), Outcome::Answered(new)) => {
            vec![Difference::new(
                Class::OnlyNew,
                "answer".into(),
                Some(why.clone()),
                Some(new.status.to_string()),
            )]
        }
        (Outcome::Failed(old), Outcome::Failed(new)) => {
            vec![Difference::new(Class::Error, "answer".into(), Some(old.clone()), Some(new.clone()))]
        }
    }
}

/// Returns true if two answers are equal under all rules with this `order`. This quick comparison does not
/// allocate. It may return false for equal answers: [`compare`] then decides.
pub fn are_equal(old: &Answer, new: &Answer, order: bool) -> bool {
    let (a, b) = (&old.body, &new.body);
    if old.status != new.status || a.length != b.length || a.hash != b.hash {
        return false;
    }
    let (mut a, mut b) = (QuickFields::default(), QuickFields::default());
    if !(a.take(&old.fields) && b.take(&new.fields)) {
        return false;
    }
    // The length is compared if both answers have it.
    let lengths = match (a.content_length, b.content_length) {
        (Some(a), Some(b)) => a == b && !order,
        _ => true,
    };
    lengths && (a.fields() == b.fields() || !order && a.is_permutation(&b))
}

/// The compared fields of an answer, if there are at most `QUICK_MOST`.
struct QuickFields<'f> {
    all: [(&'f [u8], &'f [u8]); QUICK_MOST],
    count: usize,
    content_length: Option<&'f [u8]>,
}

impl Default for QuickFields<'_> {
    fn default() -> Self {
        Self { all: [(&[], &[]); QUICK_MOST], count: 0, content_length: None }
    }
}

impl<'f> QuickFields<'f> {
    /// Adds the fields; returns false if there are too many.
    fn take(&mut self, fields: &'f Fields) -> bool {
        for (name, value) in fields.iter_bytes().filter(|(name, _)| !is_built_in(name)) {
            if name == b"content-length" && self.content_length.is_none() {
                self.content_length = Some(value);
                continue;
            }
            let Some(place) = self.all.get_mut(self.count) else { return false };
            *place = (name, value);
            self.count += 1;
        }
        true
    }

    fn fields(&self) -> &[(&'f [u8], &'f [u8])] {
        self.all.get(..self.count).unwrap_or_default()
    }

    /// Returns true if both answers have the same fields in any order. Fields of one name must have the same order.
    fn is_permutation(&self, other: &Self) -> bool {
        let named = |fields: &Self, name: &[u8], nth: usize| {
            fields.fields().iter().filter(|(own, _)| *own == name).nth(nth).map(|(_, value)| *value)
        };
        self.count == other.count
            && self.fields().iter().enumerate().all(|(at, (name, value))| {
                let earlier = self.fields().iter().take(at).filter(|(own, _)| own == name).count();
                named(other, name, earlier) == Some(value)
            })
    }
}

fn answers(old: &Answer, new: &Answer, rules: &Rules) -> Vec<Difference> {
    let mut found = Vec::new();
    if are_equal(old, new, rules.order) {
        return found;
    }
    if old.status != new.status && !rules.ignores("status") {
        let (old, new) = (old.status.to_string(), new.status.to_string());
        found.push(Difference::new(Class::Status, "status".into(), Some(old), Some(new)));
    }
    headers(old, new, rules, &mut found);
    cookies(old, new, rules, &mut found);
    if rules.order {
        order(old, new, rules, &mut found);
    }
    if !rules.ignores("body") {
        bodies(old, new, rules, &mut found);
    }
    found
}

/// The values of all fields by name, in a form that can be compared.
fn values(answer: &Answer) -> BTreeMap<&str, Vec<String>> {
    let mut all: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, value) in answer.fields.iter() {
        if name != "set-cookie" {
            let value = String::from_utf8_lossy(value).trim().to_owned();
            all.entry(name).or_default().push(value);
        }
    }
    for (name, values) in &mut all {
        if LISTS.contains(name) {
            let joined = values.join(",");
            let mut members: Vec<String> = members(&joined)
                .map(|member| member.to_ascii_lowercase())
                .filter(|member| !member.is_empty())
                .collect();
            members.sort();
            members.dedup();
            *values = vec![members.join(", ")];
        }
    }
    all
}

/// The members of a list. Commas in quoted strings and in `<...>` do not separate members.
fn members(list: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped, mut angle) = (false, false, false);
    list.split(move |c| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '<' if !quoted => angle = true,
            '>' if !quoted => angle = false,
            ',' => return !quoted && !angle,
            _ => {}
        }
        false
    })
    .map(str::trim)
}

fn headers(old: &Answer, new: &Answer, rules: &Rules, found: &mut Vec<Difference>) {
    let (of_old, of_new) = (values(old), values(new));
    let coding = |answer: &Answer| answer.field("content-encoding").map(<[u8]>::to_ascii_lowercase);
    let same_coding = coding(old) == coding(new);
    let names: std::collections::BTreeSet<&str> = of_old.keys().chain(of_new.keys()).copied().collect();
    for name in names {
        let part = format!("header {name}");
        if rules.ignores(&part) {
            continue;
        }
        let (a, b) = (of_old.get(name), of_new.get(name));
        // The bodies are compared elsewhere. Content-Length only adds something if they have the same length, as the
        // empty bodies of answers to HEAD have.
        let says_more = same_coding && old.body.length == new.body.length;
        if name == "content-length" && (a.is_none() || b.is_none() || !says_more) {
            continue;
        }
        let equal = match (name, a, b) {
            ("etag", Some(a), Some(b)) if !same_coding => weak(a) == weak(b),
            _ => a == b,
        };
        if !equal {
            let text = |values: Option<&Vec<String>>| values.map(|values| values.join(" | "));
            found.push(Difference::new(Class::Header, part, text(a), text(b)));
        }
    }
}

/// The opaque part of entity tags. Servers that apply a coding often make the tag weak, or append the coding's
/// name.
fn weak(values: &[String]) -> Vec<&str> {
    let opaque = values.iter().map(|value| value.strip_prefix("W/").unwrap_or(value).trim_matches('"'));
    opaque
        .map(|tag| {
            ["-gzip", "-br", "-zstd", ";gz", "--gzip"]
                .iter()
                .find_map(|end| tag.strip_suffix(end))
                .unwrap_or(tag)
        })
        .collect()
}

/// A cookie: its value, and its attributes in lower case by name.
type Cookie = (String, BTreeMap<String, String>);

fn jar(answer: &Answer) -> BTreeMap<String, Cookie> {
    let mut jar = BTreeMap::new();
    for (_, value) in answer.fields.iter().filter(|(name, _)| *name == "set-cookie") {
        let text = String::from_utf8_lossy(value).into_owned();
        let mut parts = text.split(';').map(str::trim);
        let (name, value) = parts.next().unwrap_or_default().split_once('=').unwrap_or_default();
        let attributes = parts.filter(|part| !part.is_empty()).map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (name.trim().to_ascii_lowercase(), value.trim().to_ascii_lowercase())
        });
        jar.insert(name.to_owned(), (value.to_owned(), attributes.collect()));
    }
    jar
}

fn cookies(old: &Answer, new: &Answer, rules: &Rules, found: &mut Vec<Difference>) {
    let (of_old, of_new) = (jar(old), jar(new));
    let names: std::collections::BTreeSet<&String> = of_old.keys().chain(of_new.keys()).collect();
    for name in names {
        let part = format!("cookie {name}");
        if rules.ignores(&part) {
            continue;
        }
        match (of_old.get(name), of_new.get(name)) {
            (Some(a), Some(b)) => {
                if a.0 != b.0 {
                    let part = format!("cookie {name}");
                    found.push(Difference::new(Class::Header, part, Some(a.0.clone()), Some(b.0.clone())));
                }
                let attributes: std::collections::BTreeSet<&String> = a.1.keys().chain(b.1.keys()).collect();
                for attribute in
                    attributes.into_iter().filter(|attribute| a.1.get(*attribute) != b.1.get(*attribute))
                {
                    // The value of Expires depends on the time of the answer.
                    if attribute == "expires" && a.1.contains_key(attribute) && b.1.contains_key(attribute) {
                        continue;
                    }
                    let part = format!("cookie {name}; {attribute}");
                    let text =
                        |cookie: &Cookie| cookie.1.get(attribute).map(|value| format!("{attribute}={value}"));
                    found.push(Difference::new(Class::Header, part, text(a), text(b)));
                }
            }
            (a, b) => {
                let there = |cookie: Option<&Cookie>| cookie.map(|cookie| cookie.0.clone());
                found.push(Difference::new(Class::Header, part, there(a), there(b)));
            }
        }
    }
}

fn order(old: &Answer, new: &Answer, rules: &Rules, found: &mut Vec<Difference>) {
    let names = |answer: &Answer, other: &Answer| -> Vec<String> {
        let compared = answer.fields.iter().map(|(name, _)| name);
        let compared =
            compared.filter(|name| !rules.ignores(&format!("header {name}")) && other.field(name).is_some());
        compared.map(str::to_owned).collect()
    };
    let (a, b) = (names(old, new), names(new, old));
    if a != b && !rules.ignores("order") {
        found.push(Difference::new(Class::Header, "order".into(), Some(a.join(", ")), Some(b.join(", "))));
    }
}

fn bodies(old: &Answer, new: &Answer, rules: &Rules, found: &mut Vec<Difference>) {
    let same_coding = old.field("content-encoding") == new.field("content-encoding");
    if same_coding && old.body.length == new.body.length && old.body.hash == new.body.hash {
        return;
    }
    let (a, b) = (old.decoded(rules.body_limit), new.decoded(rules.body_limit));
    if a.broken != b.broken {
        let text = |decoded: &Decoded| {
            Some(if decoded.broken { "not in the form of its content coding" } else { "fine" }.into())
        };
        found.push(Difference::new(Class::Body, "body".into(), text(&a), text(&b)));
        return;
    }
    if a.whole && b.whole && a.bytes != b.bytes && compare_json(&a.bytes, &b.bytes, rules, found) {
        return;
    }
    if let Some(at) = first_difference(&a, &b) {
        let mut difference =
            Difference::new(Class::Body, "body".into(), Some(around(&a, at)), Some(around(&b, at)));
        difference.place = Some(format!("byte {at}"));
        found.push(difference);
    } else if same_coding && !(a.whole && b.whole) {
        // The kept bytes are the same, but the whole bodies are known to differ.
        let text =
            |answer: &Answer| Some(format!("{} bytes, hash {:016x}", answer.body.length, answer.body.hash));
        let mut difference = Difference::new(Class::Body, "body".into(), text(old), text(new));
        difference.place = Some(format!("behind the first {} bytes", a.bytes.len().min(b.bytes.len())));
        found.push(difference);
    }
}

/// The offset of the first different byte, within the kept bytes of both bodies.
fn first_difference(a: &Decoded, b: &Decoded) -> Option<usize> {
    let common = a.bytes.iter().zip(&b.bytes).take_while(|(a, b)| a == b).count();
    let shorter_ends = |shorter: &Decoded, longer: &Decoded| {
        shorter.bytes.len() == common && shorter.whole && longer.bytes.len() > common
    };
    let differs =
        common < a.bytes.len() && common < b.bytes.len() || shorter_ends(a, b) || shorter_ends(b, a);
    differs.then_some(common)
}

/// The bytes around a place, as text.
fn around(decoded: &Decoded, at: usize) -> String {
    let bytes = &decoded.bytes;
    let (from, to) = (at.saturating_sub(AROUND), (at + AROUND).min(bytes.len()));
    let piece = bytes.get(from..to).unwrap_or_default();
    let mut text = String::new();
    for c in String::from_utf8_lossy(piece).chars() {
        match c {
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c.is_control() => text.push('.'),
            c => text.push(c),
        }
    }
    if to == bytes.len() && decoded.whole { text + "⏹" } else { text }
}

/// Compares two JSON bodies by their values. Returns false if one of them is not JSON.
fn compare_json(old: &[u8], new: &[u8], rules: &Rules, found: &mut Vec<Difference>) -> bool {
    let is_json = |body: &[u8]| body.trim_ascii_start().first().is_some_and(|byte| b"{[".contains(byte));
    if !is_json(old) || !is_json(new) {
        return false;
    }
    let (Ok(old), Ok(new)) = (serde_json::from_slice::<Value>(old), serde_json::from_slice::<Value>(new))
    else {
        return false;
    };
    for difference in json::differences(&old, &new) {
        let part = format!("json {}", difference.general);
        if rules.ignores(&part) {
            continue;
        }
        let text = |value: Option<Value>| value.map(|value| value.to_string());
        let mut made = Difference::new(Class::Body, part, text(difference.old), text(difference.new));
        made.place = Some(difference.exact).filter(|exact| *exact != difference.general);
        found.push(made);
    }
    true
}

/// Returns true if the bodies were compared only up to a limit, and not as a whole by their hashes.
pub(crate) fn is_partial(old: &Answer, new: &Answer, rules: &Rules) -> bool {
    let same_coding = old.field("content-encoding") == new.field("content-encoding");
    !(same_coding || old.decoded(rules.body_limit).whole && new.decoded(rules.body_limit).whole)
}
