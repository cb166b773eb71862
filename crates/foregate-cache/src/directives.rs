//! `Cache-Control` of requests and responses (RFC 9111, section 5.2), and targeted fields such as `CDN-Cache-Control` (RFC 9213).
//!
//! In doubt, a response is less cacheable. A directive that restricts caching counts even if its argument is
//! broken. A directive that permits caching only counts if it follows the grammar. A lifetime that cannot be
//! parsed counts as zero (RFC 9111, section 4.2.1). If `Cache-Control` has a directive twice, the first one
//! counts.

use foregate_wire::{HeaderList, NameId};

use crate::structured::{self, Value};
use crate::text::{MAX_SECONDS, is_token, members, seconds, string_length, trim};

/// The most field names that `private` and `no-cache` may list. A longer list counts as no list, so the
/// directive applies to the whole response.
const MAX_LISTED_FIELDS: usize = 32;

/// The directives of a response that decide about storing and reuse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseControl {
    /// Lifetimes in seconds. 0 if the argument is no number.
    pub(crate) max_age: Option<u32>,
    pub(crate) s_maxage: Option<u32>,
    pub(crate) stale_while_revalidate: Option<u32>,
    pub(crate) stale_if_error: Option<u32>,
    pub(crate) no_store: bool,
    /// `true` for `no-cache` without a list of fields. The same holds for `private`.
    pub(crate) no_cache: bool,
    pub(crate) private: bool,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
    pub(crate) proxy_revalidate: bool,
    pub(crate) must_understand: bool,
    /// The fields that `private` and `no-cache` list: they are not stored.
    pub(crate) fields: Vec<Vec<u8>>,
    /// `true` if the directives come from a targeted field: Cache-Control and Expires do not count then.
    pub(crate) targeted: bool,
}

impl ResponseControl {
    /// Reads the field that applies: the first targeted field that is valid and not empty (RFC 9213, section 2.2),
    /// or else Cache-Control.
    pub(crate) fn read(headers: &HeaderList, targets: &[String]) -> Self {
        if let Some(control) = targets.iter().find_map(|target| targeted(headers, target)) {
            return control;
        }
        let mut control = Self::default();
        for line in headers.get_all(NameId::CacheControl) {
            for member in members(line) {
                control.add(member);
            }
        }
        control
    }

    fn add(&mut self, member: &[u8]) {
        let (name, argument) = split(member);
        if !is_token(name) || argument == Argument::Broken {
            // The member may hold several directives: some origins separate them by semicolons or blanks.
            for word in member.split(|byte| b"; \t=\"".contains(byte)) {
                self.add_word(word);
            }
            return;
        }
        let mut lower = [0; LONGEST];
        let Some(known) = lower.get_mut(..name.len()) else { return };
        known.copy_from_slice(name);
        known.make_ascii_lowercase();
        let number = || match argument {
            Argument::Text(digits) => seconds(digits).unwrap_or(0),
            _ => 0,
        };
        match &*known {
            b"max-age" => self.max_age = self.max_age.or_else(|| Some(number())),
            b"s-maxage" => self.s_maxage = self.s_maxage.or_else(|| Some(number())),
            b"stale-while-revalidate" => {
                self.stale_while_revalidate = self.stale_while_revalidate.or_else(|| Some(number()));
            }
            b"stale-if-error" => self.stale_if_error = self.stale_if_error.or_else(|| Some(number())),
            b"public" => self.public = true,
            b"must-understand" => self.must_understand = true,
            b"no-cache" | b"private" => {
                let listed = match argument {
                    Argument::Text(list) => self.list(members(list)),
                    _ => false,
                };
                let private = known.first() == Some(&b'p');
                self.private |= private && !listed;
                self.no_cache |= !private && !listed;
            }
            known => self.restrict(known),
        }
    }

    /// Adds a word of a member that is not a valid directive. Only words that restrict caching count.
    fn add_word(&mut self, word: &[u8]) {
        let word = word.to_ascii_lowercase();
        match &*word {
            b"max-age" => self.max_age = self.max_age.or(Some(0)),
            b"s-maxage" => self.s_maxage = self.s_maxage.or(Some(0)),
            b"private" => self.private = true,
            b"no-cache" => self.no_cache = true,
            word => self.restrict(word),
        }
    }

    fn restrict(&mut self, name: &[u8]) {
        match name {
            b"no-store" => self.no_store = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            _ => {}
        }
    }

    /// Adds the field names that a directive lists. Returns false if one is not a valid name, or if there are too
    /// many.
    fn list<'a>(&mut self, names: impl Iterator<Item = &'a [u8]>) -> bool {
        let before = self.fields.len();
        for name in names {
            if !is_token(name) || self.fields.len() >= MAX_LISTED_FIELDS {
                return false;
            }
            self.fields.push(name.to_ascii_lowercase());
        }
        self.fields.len() > before
    }

    /// Returns whether `private` or `no-cache` lists a field, which must not be stored then.
    pub(crate) fn lists(&self, name: &[u8]) -> bool {
        self.fields.iter().any(|listed| listed.eq_ignore_ascii_case(name))
    }
}

/// The length of the longest name of a directive.
const LONGEST: usize = b"stale-while-revalidate".len();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument<'a> {
    None,
    /// A token, or the text of a quoted string.
    Text(&'a [u8]),
    Broken,
}

/// Splits a member into the name of a directive and its argument.
fn split(member: &[u8]) -> (&[u8], Argument<'_>) {
    let Some(equals) = member.iter().position(|&byte| byte == b'=') else { return (member, Argument::None) };
    let Some((name, argument)) = member.split_at_checked(equals) else { return (member, Argument::None) };
    let argument = match argument.get(1..).unwrap_or_default() {
        [b'"', text @ ..] => match (string_length(text), text) {
            (Some(length), [text @ .., b'"']) if length == text.len() + 1 => Argument::Text(text),
            _ => Argument::Broken,
        },
        token if is_token(token) => Argument::Text(token),
        _ => Argument::Broken,
    };
    (name, argument)
}

/// Reads the directives of a targeted field. `None` if the field is missing or empty, is not a dictionary, or
/// has a known directive with a value of a wrong type.
fn targeted(headers: &HeaderList, target: &str) -> Option<ResponseControl> {
    let mut lines = headers.get_all_name(target.as_bytes());
    let first = lines.next()?;
    let mut control = ResponseControl { targeted: true, ..ResponseControl::default() };
    let joined;
    let text = match lines.next() {
        None => first,
        Some(second) => {
            let all = [first, second].into_iter().chain(lines);
            joined = all.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(&b", "[..]);
            &joined
        }
    };
    let (mut members, mut valid) = (0, true);
    structured::dictionary(text, |key, value| {
        members += 1;
        valid &= control.set(key, &value).is_some();
    })?;
    (members > 0 && valid).then_some(control)
}

impl ResponseControl {
    /// Sets a directive of a targeted field. It replaces an earlier directive of the same name. `None` if the type
    /// of its value is wrong.
    fn set(&mut self, key: &[u8], value: &Value<'_>) -> Option<()> {
        match key {
            b"max-age" => self.max_age = Some(delta(value)?),
            b"s-maxage" => self.s_maxage = Some(delta(value)?),
            b"stale-while-revalidate" => self.stale_while_revalidate = Some(delta(value)?),
            b"stale-if-error" => self.stale_if_error = Some(delta(value)?),
            b"no-store" => self.no_store = boolean(value)?,
            b"public" => self.public = boolean(value)?,
            b"must-revalidate" => self.must_revalidate = boolean(value)?,
            b"proxy-revalidate" => self.proxy_revalidate = boolean(value)?,
            b"must-understand" => self.must_understand = boolean(value)?,
            b"private" => self.private = self.qualified(value)?,
            b"no-cache" => self.no_cache = self.qualified(value)?,
            _ => {}
        }
        Some(())
    }

    /// Reads the value of `private` or `no-cache`. Returns true if the directive applies to the whole response, and
    /// false if it only lists fields.
    fn qualified(&mut self, value: &Value<'_>) -> Option<bool> {
        match value {
            Value::Boolean(set) => Some(*set),
            Value::String(names) | Value::Token(names) => {
                let names = names.split(|byte| b", \t".contains(byte)).map(trim);
                Some(!self.list(names.filter(|name| !name.is_empty())))
            }
            Value::List(items) => {
                let mut names = Vec::new();
                for item in items {
                    match item {
                        Value::String(name) | Value::Token(name) => names.push(*name),
                        _ => return None,
                    }
                }
                Some(!self.list(names.into_iter()))
            }
            Value::Integer(_) | Value::Other => None,
        }
    }
}

/// A number of seconds. A negative number counts as 0.
fn delta(value: &Value<'_>) -> Option<u32> {
    match value {
        Value::Integer(number) => Some((*number).clamp(0, i64::from(MAX_SECONDS)) as u32),
        _ => None,
    }
}

fn boolean(value: &Value<'_>) -> Option<bool> {
    match value {
        Value::Boolean(set) => Some(*set),
        _ => None,
    }
}

/// The directives of a request (RFC 9111, section 5.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestControl {
    pub(crate) no_cache: bool,
    pub(crate) no_store: bool,
    pub(crate) only_if_cached: bool,
    pub(crate) max_age: Option<u32>,
    pub(crate) min_fresh: Option<u32>,
    /// The accepted staleness in seconds. `max-stale` without an argument is `u32::MAX`: any staleness is accepted.
    pub(crate) max_stale: Option<u32>,
}

impl RequestControl {
    pub(crate) fn read(headers: &HeaderList) -> Self {
        let mut control = Self::default();
        for line in headers.get_all(NameId::CacheControl) {
            for member in members(line) {
                control.add(member);
            }
        }
        // RFC 9111, section 5.4: Pragma counts in requests without Cache-Control.
        if !headers.contains(NameId::CacheControl) {
            let mut pragmas = headers.get_all(NameId::Pragma).flat_map(members);
            control.no_cache = pragmas.any(|pragma| pragma.eq_ignore_ascii_case(b"no-cache"));
        }
        control
    }

    /// Returns whether a directive of the request may demand a newer response than the stored one.
    pub(crate) fn demands_newer(&self) -> bool {
        self.no_cache || self.max_age.is_some() || self.min_fresh.is_some()
    }

    fn add(&mut self, member: &[u8]) {
        let (name, argument) = split(member);
        let number = match argument {
            Argument::Text(digits) => seconds(digits),
            _ => None,
        };
        let is = |directive: &[u8]| name.eq_ignore_ascii_case(directive);
        if is(b"no-cache") {
            self.no_cache = true;
        } else if is(b"no-store") {
            self.no_store = true;
        } else if is(b"only-if-cached") {
            self.only_if_cached = true;
        } else if is(b"max-age") {
            self.max_age = self.max_age.or(number);
        } else if is(b"min-fresh") {
            self.min_fresh = self.min_fresh.or(number);
        } else if is(b"max-stale") {
            let any = (argument == Argument::None).then_some(u32::MAX);
            self.max_stale = self.max_stale.or(number).or(any);
        }
    }
}
