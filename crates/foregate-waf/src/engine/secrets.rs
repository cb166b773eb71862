//! Recognises and hides secret values in logs.

mod names;
mod pairs;

pub(crate) use self::names::{HIDDEN, is_secret_field, is_secret_name};
use self::names::{NAMING, VALUES, is_among, is_secret_named, last_word};
pub(crate) use self::pairs::{MaskedNames, hide_pairs_and, is_name};
use super::expand::View;
use super::masks::origin;
use super::state::{MatchedValue, NameRef};
use super::values::Family;
use crate::model::{Mask, Variable};

/// The most arguments that are searched for a value's name. With more, the value counts as a secret.
const ARGUMENTS: usize = 256;

impl View<'_> {
    /// Returns true if the matched value is a secret, by its name or by a mask of a rule.
    pub(crate) fn is_secret(&self, found: &MatchedValue) -> bool {
        let name = match found.name {
            NameRef::Span(span) => self.state.values.text.get(span),
            NameRef::Slot(_) | NameRef::None => b"",
        };
        let is_copy = matches!(found.variable, Variable::MatchedVars);
        let origin = if is_copy { origin(name) } else { Some((found.variable, name)) };
        self.masks_matched() || origin.is_some_and(|(variable, name)| self.is_secret_value(variable, name))
    }

    /// Returns true if a value under this name is a secret in every log.
    pub(crate) fn is_secret_value(&self, variable: Variable, name: &[u8]) -> bool {
        self.state.masks.covers(variable, name)
            || match variable {
                Variable::RequestCookies => true,
                Variable::RequestHeaders | Variable::ResponseHeaders => is_secret_field(name),
                Variable::Args | Variable::ArgsGet | Variable::ArgsPost | Variable::FilesTmpContent => {
                    is_secret_name(name) || self.is_named_beside(name)
                }
                _ => false,
            }
    }

    /// Returns true if the argument is the value of a secret that a sibling names, as in `{"name": "password", "value": "x"}`.
    fn is_named_beside(&self, name: &[u8]) -> bool {
        let (path, last) = last_word(name);
        if path.is_empty() || !is_among(last, VALUES) {
            return false;
        }
        let values = &self.state.values;
        let units = values.units(Family::Args);
        units.len() > ARGUMENTS
            || units.iter().any(|unit| {
                let (other, naming) = last_word(values.text.get(unit.name));
                other.eq_ignore_ascii_case(path)
                    && is_among(naming, NAMING)
                    && is_secret_named(values.text.get(unit.value))
            })
    }

    /// Returns true if the running rule masks its matches.
    pub(crate) fn masks_matched(&self) -> bool {
        if !self.state.masks.matched {
            return false;
        }
        let effects = self.plan.rules[self.state.rule].links.iter().flat_map(|link| &link.effects);
        effects.into_iter().any(|effect| {
            matches!(effect, super::plan::Effect::Mask(Mask::Matched | Mask::MatchedBytes { .. }))
        })
    }
}

/// The secret values of a transaction, in small letters. They are hidden in the values of variables that
/// [`may_copy`] them.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    /// The number of values and masks when the secrets were gathered. If it has changed, they are gathered again.
    of: usize,
    values: Vec<Vec<u8>>,
    /// Secrets in XML elements and attributes. Rules see the texts of all elements as one value, in which these
    /// are hidden.
    xml: Vec<Vec<u8>>,
}

/// The most bytes of an XML secret that are kept and searched for. Logs show less of a value anyway.
const XML_SECRET: usize = 2048;

impl Secrets {
    /// Records a text in XML that is a secret.
    pub(crate) fn of_xml(&mut self, text: &[u8]) {
        let text = text.trim_ascii();
        if self.xml.len() <= SECRETS && text.len() >= SECRET_LEAST {
            self.xml.push(text.get(..XML_SECRET).unwrap_or(text).to_ascii_lowercase());
        }
    }
}

/// The most secrets of a transaction. If there are more, values that [`may_copy`] a secret are hidden as a
/// whole.
const SECRETS: usize = 128;
/// The least length of a secret for which texts are searched. Shorter secrets occur in most texts by chance.
const SECRET_LEAST: usize = crate::body::SECRET_LEAST;
/// The number of bytes at the start of a secret that are searched for. The end of the secret may be cut off
/// in the text.
const SECRET_START: usize = 16;
/// Searching one byte of text for this many secrets costs one unit of work.
const SEARCHED: usize = 8;

/// Families with values that may be secrets, and the variable that stands for each.
const FAMILIES: &[(Family, Variable)] = &[
    (Family::Headers, Variable::RequestHeaders),
    (Family::ResponseHeaders, Variable::ResponseHeaders),
    (Family::Cookies, Variable::RequestCookies),
    (Family::Args, Variable::Args),
    (Family::FileContents, Variable::FilesTmpContent),
];

/// The variable that stands for the values of a family; `None` if values of this family are never secrets.
pub(crate) fn variable_of(family: Family) -> Option<Variable> {
    FAMILIES.iter().find(|(known, _)| *known == family).map(|(_, variable)| *variable)
}

/// Returns true if values of a variable may contain copies of other values, such as secrets. This is true for
/// variables that rules set, for the whole request, and for the text of all XML elements. It is false for
/// arguments: if a client sends a secret a second time as an argument, that is shown. Otherwise a client
/// could hide an attack by sending the same text as a cookie.
pub(crate) fn may_copy(variable: Variable) -> bool {
    use Variable::{Env, FullRequest, Global, Ip, Resource, Session, Tx, User, Xml};
    matches!(variable, Env | FullRequest | Global | Ip | Resource | Session | Tx | User | Xml)
}

impl View<'_> {
    /// Gathers the secrets, unless there are no new values or masks since the last time.
    pub(crate) fn gather_secrets(&mut self) {
        let values = &self.state.values;
        let of = FAMILIES.iter().map(|(family, _)| values.units(*family).len()).sum::<usize>();
        let of = of + self.state.masks.version + self.state.secrets.xml.len();
        if self.state.secrets.of == of {
            return;
        }
        let xml = std::mem::take(&mut self.state.secrets.xml);
        let values = &self.state.values;
        let mut found = xml.clone();
        for (family, variable) in FAMILIES.iter().filter(|(family, _)| *family != Family::FileContents) {
            for unit in values.units(*family) {
                let value = values.text.get(unit.value).trim_ascii();
                if found.len() > SECRETS || !self.is_secret_value(*variable, values.text.get(unit.name)) {
                    continue;
                }
                // In `Basic dXNlcg==`, the second word alone is a secret as well.
                let scheme = value.iter().position(|byte| *byte == b' ').map(|space| &value[space + 1..]);
                let scheme = scheme.filter(|_| *family == Family::Headers);
                found.extend(
                    std::iter::once(value)
                        .chain(scheme)
                        .filter(|secret| secret.len() >= SECRET_LEAST)
                        .map(<[u8]>::to_ascii_lowercase),
                );
            }
        }
        self.state.secrets = Secrets { of, values: found, xml };
    }

    /// The variable and name from which a matched value originally comes: `MATCHED_VAR` refers to an earlier match.
    pub(super) fn origin_of(&self, found: MatchedValue, at: usize) -> Option<(Variable, &[u8])> {
        let name = match found.name {
            NameRef::Span(span) => self.state.values.text.get(span),
            NameRef::Slot(_) | NameRef::None => b"",
        };
        match found.variable {
            Variable::MatchedVar => {
                let before = at.checked_sub(1)?;
                self.origin_of(*self.state.matched.get(before)?, before)
            }
            Variable::MatchedVars => origin(name),
            variable => Some((variable, name)),
        }
    }

    /// Hides the secrets in a value. If `parts` is true, a value that is a part of a secret is hidden too. `xml`
    /// is true for the text of XML: then only secrets of the document count, because a cookie with the same bytes
    /// must not hide an element.
    pub(crate) fn without_secrets(&mut self, text: &[u8], parts: bool, xml: bool) -> Vec<u8> {
        let (shown, work) = self.state.secrets.hide(text, parts, xml);
        self.state.budget.spend(work);
        shown
    }
}

impl Secrets {
    /// Hides the secrets in a text. Also returns the work that this took.
    pub(crate) fn hide(&self, text: &[u8], parts: bool, xml: bool) -> (Vec<u8>, u64) {
        let secrets = if xml { &self.xml } else { &self.values };
        if secrets.is_empty() || text.len() < SECRET_LEAST {
            return (text.to_vec(), 0);
        }
        let lower = text.to_ascii_lowercase();
        let is_part = |secret: &Vec<u8>| parts && memchr::memmem::find(secret, &lower).is_some();
        if secrets.len() > SECRETS || secrets.iter().any(is_part) {
            return (HIDDEN.to_vec(), 0);
        }
        let mut hidden = vec![false; text.len()];
        for secret in secrets {
            let start = memchr::memmem::Finder::new(secret.get(..SECRET_START).unwrap_or(secret));
            let mut from = 0;
            while let Some(at) = start.find(&lower[from..]).map(|at| from + at) {
                let same = lower[at..].iter().zip(secret).take_while(|(byte, own)| byte == own).count();
                from = at + same;
                hidden[at..from].fill(true);
            }
        }
        let work = text.len() * (1 + secrets.len() / SEARCHED);
        let mut out = Vec::with_capacity(text.len());
        for (at, byte) in text.iter().enumerate() {
            match (hidden[at], at > 0 && hidden[at - 1]) {
                (false, _) => out.push(*byte),
                (true, false) => out.extend_from_slice(HIDDEN),
                (true, true) => {}
            }
        }
        (out, work as u64)
    }
}
