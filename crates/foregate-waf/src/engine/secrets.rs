//! Recognises and hides secret values in logs.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use super::expand::View;
use super::masks::{Masks, origin};
use super::state::{MatchedValue, NameRef};
use super::values::Family;
use crate::model::{Mask, Variable};
use crate::transform::Transformation;

/// The replacement for a hidden value.
pub(crate) const HIDDEN: &[u8] = b"***";

/// Header fields with secret values.
const FIELDS: &[&[u8]] = &[
    b"authorization",
    b"proxy-authorization",
    b"cookie",
    b"set-cookie",
    b"x-api-key",
    b"x-auth-token",
    b"x-csrf-token",
    b"x-amz-security-token",
    b"ocp-apim-subscription-key",
    b"cookie2",
    // Scripts in browsers cannot set other fields of a WebSocket request, so they put their token here.
    b"sec-websocket-protocol",
];

/// An argument is a secret if its name contains one of these texts.
const NAMES: &[&str] = &[
    "passw",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "apikey",
    "api-key",
    "private_key",
    "privatekey",
    "private-key",
    "access_key",
    "accesskey",
    "access-key",
    "signing_key",
    "signingkey",
    "signing-key",
    "encryption_key",
    "encryptionkey",
    "encryption-key",
    "account_key",
    "accountkey",
    "subscription-key",
    "credential",
    "session_id",
    "sessionid",
    "session-id",
    "sessid",
    "card_number",
    "cardnumber",
    "card-number",
    "security_code",
    "securitycode",
    "security-code",
    "verification_code",
    "verificationcode",
    "verification-code",
    "one_time",
    "onetime",
    "one-time",
    "passcode",
    "passkey",
    "passwort",
    "kennwort",
    "mnemonic",
    "samlresponse",
    "assertion",
    "cvv",
];

/// Finds [`NAMES`] in any case with one search, because each name in a log line is checked. The automaton cannot be
/// `None` for such a list; if it were, every value would be hidden.
static PARTS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let mut builder = AhoCorasick::builder();
    builder.ascii_case_insensitive(true).kind(Some(AhoCorasickKind::DFA)).build(NAMES).ok()
});

/// An argument is a secret if its name contains one of these as a whole word. Parts of words do not count:
/// `author`, `shipping` and `design` are no secrets.
const WORDS: &[&[u8]] = &[
    b"pass",
    b"pw",
    b"session",
    b"jwt",
    b"auth",
    b"otp",
    b"totp",
    b"hotp",
    b"pin",
    b"puk",
    b"tan",
    b"sig",
    b"signature",
    b"hmac",
    b"mfa",
    b"csrf",
    b"xsrf",
    b"bearer",
    b"cvc",
    b"csc",
    b"sid",
    b"ssn",
    b"iban",
];

/// Some forms and JSON objects have the name of a value in a neighbouring value, as in `{"name": "password", "value":
/// "x"}`. These are the last words by which such a neighbour is recognised; in the example, `name`.
const NAMING: &[&[u8]] =
    &[b"name", b"key", b"field", b"id", b"param", b"parameter", b"label", b"header", b"type", b"k", b"n"];
/// The last words of names under which the value itself is found: see [`NAMING`].
const VALUES: &[&[u8]] =
    &[b"value", b"val", b"values", b"v", b"content", b"data", b"text", b"answer", b"input"];
/// The number of bytes before and after a value that are searched for its name.
const BESIDE: usize = 1024;
/// The most arguments that are searched for a value's name. With more, the value counts as a secret.
const ARGUMENTS: usize = 256;

/// The number of bytes at the start and at the end of a name that decide whether it counts as the name of a secret.
const NAME: usize = 256;

/// Returns true if the value of a field with this name is a secret. A malformed head may have blanks around
/// the name.
pub(crate) fn is_secret_field(name: &[u8]) -> bool {
    is_known_field(name.trim_ascii()) || is_secret_name(name)
}

/// Returns true if the name is one of [`FIELDS`].
fn is_known_field(name: &[u8]) -> bool {
    FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field))
}

/// Returns true if a value under this name is a secret.
pub(crate) fn is_secret_name(name: &[u8]) -> bool {
    let has_secret = |name: &[u8]| has_secret_word(name) || has_secret_part(name);
    let Some(start) = name.get(..NAME) else { return has_secret(name) };
    // The end is checked as well: the path of a JSON value ends with the name.
    has_secret(start) || has_secret(&name[NAME.max(name.len() - NAME)..])
}

/// Returns true if one of [`WORDS`] is a word of the name, as in `user_pin`, `user-pin`, `userPin` and `pin1`.
fn has_secret_word(name: &[u8]) -> bool {
    let is_secret = |word: &[u8]| WORDS.iter().any(|secret| word.eq_ignore_ascii_case(secret));
    name.split(|byte| !byte.is_ascii_alphanumeric()).any(|word| is_secret(word) || parts(word).any(is_secret))
}

/// Splits a word between letters and digits, and before a capital that follows a small letter.
fn parts(word: &[u8]) -> impl Iterator<Item = &[u8]> {
    let begins = |before: &u8, byte: &u8| {
        before.is_ascii_lowercase() && byte.is_ascii_uppercase()
            || before.is_ascii_digit() != byte.is_ascii_digit()
    };
    word.chunk_by(move |before, byte| !begins(before, byte))
}

/// Splits off the last word of a name: `json.0.value` gives `json.0.` and `value`, and `fields[0][value]`
/// gives `fields[0][` and `value`.
fn last_word(name: &[u8]) -> (&[u8], &[u8]) {
    let name = name.strip_suffix(b"]").unwrap_or(name);
    let length = name.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    name.split_at(name.len() - length)
}

fn is_among(word: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Returns true if a name contains one of [`NAMES`].
fn has_secret_part(name: &[u8]) -> bool {
    PARTS.as_ref().is_none_or(|parts| parts.is_match(name))
}

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
        self.state.spend(work);
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

/// The number of times that a text is decoded in search of names. Names that are encoded more times than that are not
/// recognised.
const LAYERS: usize = 4;

/// Hides the values of secret arguments (`password=...`, `"token":"..."`) and fields (`Cookie: ...`, up to
/// the end of the line) in a text. If name and value are encoded together, both are hidden.
#[cfg(test)]
pub(crate) fn hide_pairs(text: &[u8]) -> Vec<u8> {
    hide_pairs_and(text, &Masks::default())
}

/// Hides the values of secret arguments and fields in a text, and those that rules mask. If name and value
/// are encoded together, both are hidden.
pub(crate) fn hide_pairs_and(text: &[u8], masks: &Masks) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let len = masks.odd_name(rest);
        let len = len.unwrap_or_else(|| rest.iter().take_while(|byte| is_name(**byte)).count());
        let name = &rest[..len];
        at += len.max(1);
        if len == 0 {
            match password(rest) {
                Some(password) => {
                    out.extend_from_slice(&rest[..password.start]);
                    out.extend_from_slice(HIDDEN);
                    at += password.end - 1;
                }
                None => out.push(rest[0]),
            }
            continue;
        }
        let plain = decoded(name);
        let is_key = |key: &[u8]| is_secret_key(key) || masks.has_key(key) || masks.has_key(name);
        // An encoded `NAME:PASSWORD@`.
        if plain.len() < len && text[..at - len].ends_with(b"//") && userinfo(&plain).is_some() {
            out.extend_from_slice(HIDDEN);
            continue;
        }
        let may_open = matches!(text.get((at - len).wrapping_sub(1)), Some(b'<' | b':'));
        if may_open
            && is_key(&plain)
            && let Some(end) = element_end(text, at - len, at)
        {
            out.extend_from_slice(name);
            out.extend_from_slice(HIDDEN);
            at = end;
            continue;
        }
        // After a quoted name, as in JSON, there may be line breaks before the value.
        let lines = text.get(at) == Some(&b'"');
        let signs = text[at..].iter().take_while(|byte| match byte {
            b'"' | b'\'' | b'\\' | b':' | b'=' | b' ' | b'\t' => true,
            b'\r' | b'\n' => lines,
            _ => false,
        });
        let signs = &text[at..at + signs.count()];
        let divides = signs.iter().any(|byte| matches!(byte, b':' | b'='));
        // Most words in a text are not followed by a value.
        if !divides && plain.len() == len {
            out.extend_from_slice(name);
            continue;
        }
        let is_field = is_known_field(&plain) || masks.has_field(&plain);
        if !is_field && !is_key(&plain) && !is_named_beside(text, at - len, &plain) {
            out.extend_from_slice(name);
            continue;
        }
        let divides = |byte: &u8| *byte == b':' || (*byte == b'=' && !is_field);
        if !signs.iter().any(divides) {
            // The pair may be encoded as a whole, such as `%70assword%3dx`, also within the value of another pair.
            let is_pair = plain.len() < len && plain.iter().any(|byte| matches!(byte, b'=' | b':'));
            if is_pair {
                out.extend_from_slice(HIDDEN);
                at += value_length(&text[at..], b"");
            } else {
                out.extend_from_slice(name);
            }
            continue;
        }
        out.extend_from_slice(name);
        out.extend_from_slice(signs);
        at += signs.len();
        let is_line = is_field && !matches!(signs.last(), Some(b'"' | b'\''));
        let is_member = signs.contains(&b':') && matches!(text.get(at), Some(b'[' | b'{'));
        let len = match () {
            () if is_line => line_length(&text[at..]),
            () if is_member => member_length(&text[at..]),
            () => value_length(&text[at..], signs),
        };
        if len > 0 {
            out.extend_from_slice(HIDDEN);
        }
        at += len;
    }
    out
}

/// The position of the password in a text that begins with `://NAME:PASSWORD@`.
fn password(text: &[u8]) -> Option<Range<usize>> {
    let rest = text.strip_prefix(b"://")?;
    let found = userinfo(rest)?;
    Some(found.start + 3..found.end + 3)
}

/// The position of the password in a text that begins with `NAME:PASSWORD@`. The `@` must be within the first 2 *
/// [`NAME`] bytes.
fn userinfo(text: &[u8]) -> Option<Range<usize>> {
    let text = text.get(..2 * NAME).unwrap_or(text);
    let ends = |byte: &u8| {
        matches!(byte, b'/' | b'?' | b'#' | b'"' | b'\'' | b'<' | b'>') || byte.is_ascii_whitespace()
    };
    let authority = &text[..text.iter().position(ends).unwrap_or(text.len())];
    // The last `@` counts: a password may contain one, a host may not.
    let end = memchr::memrchr(b'@', authority)?;
    let colon = memchr::memchr(b':', &authority[..end])?;
    (colon + 1 < end).then_some(colon + 1..end)
}

/// The length of the JSON array or object at the start of a text; the whole length if it does not end.
fn member_length(text: &[u8]) -> usize {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    let ends = |byte: &u8| {
        match byte {
            _ if std::mem::take(&mut escaped) => {}
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    };
    text.iter().position(ends).map_or(text.len(), |end| end + 1)
}

/// The longest namespace prefix of an element's name, bytes.
const PREFIX: usize = 32;

/// The end of the content of an XML element: the next end tag. The element's name, without its prefix, is at `start` to `end`.
/// `None` if there is no content.
fn element_end(text: &[u8], start: usize, end: usize) -> Option<usize> {
    let before = &text[..start];
    let before = match before.strip_suffix(b":") {
        Some(before) => {
            let prefix = before.iter().rev().take(PREFIX).take_while(|byte| is_name(**byte)).count();
            &before[..before.len() - prefix]
        }
        None => before,
    };
    if !before.ends_with(b"<") {
        return None;
    }
    let rest = &text[end..];
    let Some(close) = memchr::memchr(b'>', rest) else { return Some(text.len()) };
    let is_empty = rest[..close].ends_with(b"/");
    let content = || memchr::memmem::find(rest, b"</").map_or(text.len(), |len| end + len);
    (!is_empty).then(content)
}

/// Returns true if the value that may follow this key is a secret. In a dotted name, the last part that is
/// not a number counts: `session.name` is a setting. An encoded key may contain its value, and is then
/// checked as a whole.
fn is_secret_key(key: &[u8]) -> bool {
    let is_path = !key.iter().any(|byte| matches!(byte, b'=' | b':'));
    let is_name = |part: &&[u8]| !part.iter().all(u8::is_ascii_digit);
    match key.rsplit(|byte| *byte == b'.').find(is_name) {
        Some(last) if is_path => is_secret_name(last) || has_secret_part(key),
        _ => is_secret_name(key),
    }
}

/// Returns true if a value is the name of a secret argument or field.
fn is_secret_named(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    value.len() <= NAME && (is_secret_key(value) || is_known_field(value))
}

/// Returns true if the value whose name (`"value": "x"`, `fields[0][value]=x`) is at `start` is a secret according to its
/// sibling (`"name": "password"`, `fields[0][name]=password`).
fn is_named_beside(text: &[u8], start: usize, name: &[u8]) -> bool {
    let (path, last) = last_word(name);
    if !is_among(last, VALUES) {
        return false;
    }
    let near = &text[start.saturating_sub(BESIDE)..text.len().min(start + BESIDE)];
    if !path.is_empty() {
        return pairs(near).any(|(other, value)| {
            let (other, naming) = last_word(other);
            other.eq_ignore_ascii_case(path) && is_among(naming, NAMING) && is_secret_named(value)
        });
    }
    // In JSON, only members of the same object count.
    let at = start - start.saturating_sub(BESIDE);
    let from = near[..at].iter().rposition(|byte| matches!(byte, b'{' | b'}')).map_or(0, |brace| brace + 1);
    let to =
        near[at..].iter().position(|byte| matches!(byte, b'{' | b'}')).map_or(near.len(), |brace| at + brace);
    pairs(&near[from..to]).any(|(name, value)| is_among(name, NAMING) && is_secret_named(value))
}

/// All parts of a text that look like a name and its value, as in JSON or in a form.
fn pairs(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
            let len = rest.iter().take_while(|byte| is_name(**byte)).count();
            at += len.max(1);
            let behind = &rest[len..];
            let signs = behind.iter().take_while(|byte| {
                matches!(byte, b'"' | b'\'' | b'\\' | b':' | b'=' | b' ' | b'\t' | b'\r' | b'\n')
            });
            let signs = signs.count();
            if len == 0 || !behind[..signs].iter().any(|byte| matches!(byte, b':' | b'=')) {
                continue;
            }
            let value = &behind[signs..];
            let length = value.iter().take_while(|byte| is_name(**byte)).count();
            return Some((&rest[..len], &value[..length]));
        }
    })
}

/// Texts that end a value if they follow a blank: the protocol of a request line, and the Core Rule Set's
/// note on the place of a match.
const BEHIND: &[&[u8]] = &[b"HTTP/", b"found within "];

/// The length of the value at the start of `text`. `signs` are the characters before the value; the last of them may be
/// its opening quote. The value ends at the closing quote or, without a quote, at the next separator of arguments,
/// cookies, members or lines, or at one of [`BEHIND`]. Other blanks belong to the value.
fn value_length(text: &[u8], signs: &[u8]) -> usize {
    let quote = signs.last().filter(|byte| matches!(byte, b'"' | b'\''));
    let mut escaped = false;
    let ends = |(at, byte): (usize, &u8)| {
        let ends = match (quote, byte) {
            _ if escaped => false,
            (_, b'\r' | b'\n') => true,
            (Some(quote), byte) => byte == quote,
            (None, b'&' | b'"') => true,
            (None, b';' | b',') => matches!(text.get(at + 1), None | Some(b' ' | b'"')),
            (None, b' ') => BEHIND.iter().any(|behind| text[at + 1..].starts_with(behind)),
            (None, b'}' | b']') => true,
            (None, _) => false,
        };
        escaped = !escaped && *byte == b'\\';
        ends
    };
    text.iter().enumerate().position(ends).unwrap_or(text.len())
}

/// The length of a text up to the end of its line.
fn line_length(text: &[u8]) -> usize {
    memchr::memchr2(b'\r', b'\n', text).unwrap_or(text.len())
}

pub(crate) fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'[' | b']' | b'%' | b'\\')
}

/// Decodes percent-encoding and JSON escapes in a name, up to [`LAYERS`] times.
fn decoded(name: &[u8]) -> Cow<'_, [u8]> {
    let mut plain = Cow::Borrowed(name);
    for _ in 0..LAYERS {
        let before = plain.len();
        if plain.contains(&b'%') {
            plain = Cow::Owned(Transformation::UrlDecode.apply(&plain).into_owned());
        }
        if plain.contains(&b'\\') {
            plain = Cow::Owned(Transformation::JsDecode.apply(&plain).into_owned());
        }
        if plain.len() == before {
            break;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_with_secret_names_are_hidden() {
        for (text, shown) in [
            ("a=1&password=hunter2&b=3", "a=1&password=***&b=3"),
            (r#"{"user":"x","api_key": "abc"}"#, r#"{"user":"x","api_key": "***"}"#),
            ("GET /?token=abc HTTP/1.1", "GET /?token=*** HTTP/1.1"),
            ("the password is here", "the password is here"),
            ("user[passwd]=x", "user[passwd]=***"),
            ("password=", "password="),
            ("password=two words;and more&a=b", "password=***&a=b"),
            ("GET /?a=1&token=two words HTTP/1.1", "GET /?a=1&token=*** HTTP/1.1"),
            (r#"{"password":"two \" words","a":"b"}"#, r#"{"password":"***","a":"b"}"#),
            ("{\"password\":\t\"x y\",\"a\":\"b\"}", "{\"password\":\t\"***\",\"a\":\"b\"}"),
            ("{\"password\"\t:\r\n \"x y\",\"a\":\"b\"}", "{\"password\"\t:\r\n \"***\",\"a\":\"b\"}"),
            ("password=\r\nb: c", "password=\r\nb: c"),
            (r#"{"pin":1,"password":1234,"a":2}"#, r#"{"pin":***,"password":***,"a":2}"#),
            ("otp=123456&a=b&pin=1&spin=2&sig=x&design=3", "otp=***&a=b&pin=***&spin=2&sig=***&design=3"),
            (
                "X-Amz-Signature=ab&X-Amz-Date=1&X-Amz-Credential=c",
                "X-Amz-Signature=***&X-Amz-Date=1&X-Amz-Credential=***",
            ),
            (
                r#"{"userPin":1,"otpCode":"2","shipping":3,"accessKey":4}"#,
                r#"{"userPin":***,"otpCode":"***","shipping":3,"accessKey":***}"#,
            ),
            (
                r#"[{"name":"password","value":"x"},{"name":"q","value":"y"}]"#,
                r#"[{"name":"password","value":"***"},{"name":"q","value":"y"}]"#,
            ),
            (
                r#"[{"value":"x","name":"otp"},{"value":5,"key":"pin"}]"#,
                r#"[{"value":"***","name":"otp"},{"value":***,"key":"pin"}]"#,
            ),
            (
                r#"{"headers":[{"name":"Cookie","value":"x"}]}"#,
                r#"{"headers":[{"name":"Cookie","value":"***"}]}"#,
            ),
            (
                "f[0][name]=password&f[0][value]=x&f[1][name]=q&f[1][value]=y",
                "f[0][name]=password&f[0][value]=***&f[1][name]=q&f[1][value]=y",
            ),
            (r#"{"\u0070assword":"x y","a":"b"}"#, r#"{"\u0070assword":"***","a":"b"}"#),
            ("Data: token=two words found within ARGS:q", "Data: token=*** found within ARGS:q"),
            ("session.name=abc&json.session.0=abc", "session.name=abc&json.session.0=***"),
            ("session=abc; theme=dark", "session=***; theme=dark"),
            ("/?p%2561ssword=hunter2&a=b", "/?p%2561ssword=***&a=b"),
            ("q=%70assword%3Dhunter2%26a&b=c", "q=***&b=c"),
            ("q=password%253dhunter2 too&b=c", "q=***&b=c"),
            ("/?p%61ssword=hunter2&a=%2fb", "/?p%61ssword=***&a=%2fb"),
            ("a=b%26password=x", "a=b%26password=***"),
            (
                "GET / HTTP/1.1\r\nAuthorization: Basic a; b\r\nHost: h\r\ncookie:a=1; b=2\r\n\r\nauthor: x",
                "GET / HTTP/1.1\r\nAuthorization: ***\r\nHost: h\r\ncookie:***\r\n\r\nauthor: x",
            ),
            ("<a><password>hunter2</password><b>c</b></a>", "<a><password***</password><b>c</b></a>"),
            (
                "<wsse:Password Type=\"x\"><![CDATA[hunter2]]></wsse:Password><token/><b>c</b>",
                "<wsse:Password***</wsse:Password><token/><b>c</b>",
            ),
            ("<a><b>password</b>c <token>cut off", "<a><b>password</b>c <token***"),
            ("the cookie of authorization", "the cookie of authorization"),
            (r#"{"password": ["x", {"y":"]"}], "a":"b"}"#, r#"{"password": ***, "a":"b"}"#),
            (r#"{"password":{"old":"x\"}","new":["y"]},"a":"b"}"#, r#"{"password":***,"a":"b"}"#),
            (r#"{"token":[]} {"password":{"old":"cut o"#, r#"{"token":***} {"password":***"#),
            (r#"{"a":["b"],"c":{"pin":["d"]}}"#, r#"{"a":["b"],"c":{"pin":***}}"#),
            (r#"{"a":["b"],"c":{"pine":["d"]}}"#, r#"{"a":["b"],"c":{"pine":["d"]}}"#),
            ("ftp://ada:hunter2@10.0.0.1/x?a=b", "ftp://ada:***@10.0.0.1/x?a=b"),
            ("r=ftp%3A//ada%3Ahunter2%4010.0.0.1/x&a=b", "r=ftp%3A//***/x&a=b"),
            ("http://h:80/@a http://ada@h/ http://:p@q@h", "http://h:80/@a http://ada@h/ http://:***@h"),
            ("/x;password=hunter2/<script>", "/x;password=***"),
            ("cookie=crumbs", "cookie=crumbs"),
            (r#"{"authorization":"Basic x","a":"b"}"#, r#"{"authorization":"***","a":"b"}"#),
            (
                "pw=a&user.jwt=b&auth=c&author=d&session[1]=e&session.check=f",
                "pw=***&user.jwt=***&auth=***&author=d&session[1]=***&session.check=f",
            ),
        ] {
            assert_eq!(String::from_utf8_lossy(&hide_pairs(text.as_bytes())), shown);
        }
    }

    #[test]
    fn names_of_secrets() {
        assert!(is_secret_name(b"user.Password") && is_secret_name(b"pass") && is_secret_name(b"csrf_token"));
        let long = "a".repeat(8_000);
        assert!(is_secret_name(format!("json.{long}.password").as_bytes()));
        assert!(is_secret_name(format!("token{long}").as_bytes()) && !is_secret_name(long.as_bytes()));
        assert!(!is_secret_name(b"passenger") && !is_secret_name(b"q"));
        for field in
            ["Authorization", "authorization ", "X-Access-Token", "Private-Token", "X-Vault-Token", "Api-Key"]
        {
            assert!(is_secret_field(field.as_bytes()), "{field}");
        }
        for field in ["X-Secret", "Apikey", "X-Goog-Api-Key", "X-Password", "X-Xsrf-Token", "X-Session-Id"] {
            assert!(is_secret_field(field.as_bytes()), "{field}");
        }
        assert!(is_secret_field(b"Ocp-Apim-Subscription-Key") && is_secret_field(b"\tCookie"));
        for field in
            ["Accept", "User-Agent", "Author", "Sec-Fetch-Site", "WWW-Authenticate", "X-Forwarded-For"]
        {
            assert!(!is_secret_field(field.as_bytes()), "{field}");
        }
    }
}
