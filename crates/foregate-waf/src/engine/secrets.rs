//! What logs do not show.

use std::borrow::Cow;

use super::run::Run;
use super::state::{Found, NameRef};
use crate::model::{Mask, Variable};
use crate::transform::Transformation;

/// What stands for a value that is not shown.
pub(crate) const HIDDEN: &[u8] = b"***";

/// Fields whose values are secrets.
const FIELDS: &[&[u8]] = &[
    b"authorization",
    b"proxy-authorization",
    b"cookie",
    b"set-cookie",
    b"x-api-key",
    b"x-auth-token",
    b"x-csrf-token",
    b"x-amz-security-token",
];

/// What names of arguments have in them whose values are secrets.
const NAMES: &[&[u8]] = &[
    b"passw",
    b"passwd",
    b"pwd",
    b"passphrase",
    b"secret",
    b"token",
    b"api_key",
    b"apikey",
    b"api-key",
    b"private_key",
    b"credential",
    b"session_id",
    b"sessionid",
    b"card_number",
    b"cardnumber",
    b"cvv",
];

/// Last words of such names, before numbers (`session[1]`); as parts of words they say nothing (`author`), and a
/// word in front of others says whose setting it is (`session.referer_check`).
const WORDS: &[&[u8]] = &[b"pass", b"pw", b"session", b"jwt", b"auth"];

/// Bytes at the beginning and at the end of a name by which it is taken for that of a secret.
const NAME: usize = 256;

/// Whether a field's value is a secret.
pub(crate) fn is_secret_field(name: &[u8]) -> bool {
    FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field))
}

/// Whether a value under this name is a secret.
pub(crate) fn is_secret_name(name: &[u8]) -> bool {
    // The end as well: there it stands in the path of a value of JSON.
    let ends = [
        name.get(..NAME).unwrap_or(name),
        &name[NAME.max(name.len().saturating_sub(NAME)).min(name.len())..],
    ];
    ends.iter().any(|end| {
        let mut words = end.rsplit(|byte| !byte.is_ascii_alphanumeric());
        let last = words.find(|word| !word.iter().all(u8::is_ascii_digit)).unwrap_or(b"");
        let lower = end.to_ascii_lowercase();
        WORDS.iter().any(|secret| last.eq_ignore_ascii_case(secret))
            || NAMES.iter().any(|part| memchr::memmem::find(&lower, part).is_some())
    })
}

impl Run<'_> {
    /// Whether a value that matched is a secret, by what it is or by what rules say.
    pub(crate) fn is_secret(&self, found: &Found) -> bool {
        let name = match found.name {
            NameRef::Span(span) => self.state.values.text.get(span),
            NameRef::Slot(_) | NameRef::None => b"",
        };
        let by_rule = self.state.masks.iter().any(|mask| match (mask, found.variable) {
            (Mask::Argument(masked), Variable::Args | Variable::ArgsGet | Variable::ArgsPost)
            | (Mask::RequestHeader(masked), Variable::RequestHeaders)
            | (Mask::ResponseHeader(masked), Variable::ResponseHeaders) => {
                name.eq_ignore_ascii_case(masked.as_bytes())
            }
            (Mask::Matched | Mask::MatchedBytes { .. }, _) => self.masks_matched(),
            _ => false,
        });
        by_rule
            || match found.variable {
                Variable::RequestCookies => true,
                Variable::RequestHeaders | Variable::ResponseHeaders => is_secret_field(name),
                Variable::Args | Variable::ArgsGet | Variable::ArgsPost | Variable::FilesTmpContent => {
                    is_secret_name(name)
                }
                _ => false,
            }
    }

    /// Whether the rule that runs says that what it matches is not to be shown.
    fn masks_matched(&self) -> bool {
        let effects = self.plan.rules[self.state.rule].links.iter().flat_map(|link| &link.effects);
        effects.into_iter().any(|effect| {
            matches!(effect, super::plan::Effect::Mask(Mask::Matched | Mask::MatchedBytes { .. }))
        })
    }
}

/// A text in which values of secret arguments (`password=...`, `"token":"..."`) are hidden, up to what ends them.
pub(crate) fn hide_pairs(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let len = rest.iter().take_while(|byte| is_name(**byte)).count();
        out.extend_from_slice(&rest[..len.max(1)]);
        at += len.max(1);
        if len == 0 || !is_secret_name(&decoded(&rest[..len])) {
            continue;
        }
        let signs =
            text[at..].iter().take_while(|byte| matches!(byte, b'"' | b'\'' | b':' | b'=' | b' ')).count();
        if !text[at..at + signs].iter().any(|byte| matches!(byte, b'=' | b':')) {
            continue;
        }
        out.extend_from_slice(&text[at..at + signs]);
        at += signs;
        let value =
            text[at..].iter().take_while(|byte| !matches!(byte, b'&' | b'"' | b';' | b' ' | b'\r' | b'\n'));
        let len = value.count();
        if len > 0 {
            out.extend_from_slice(HIDDEN);
        }
        at += len;
    }
    out
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'[' | b']' | b'%')
}

/// A name without percent-encoding.
fn decoded(name: &[u8]) -> Cow<'_, [u8]> {
    if name.contains(&b'%') { Transformation::UrlDecode.apply(name) } else { Cow::Borrowed(name) }
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
            ("/?p%61ssword=hunter2&a=%2fb", "/?p%61ssword=***&a=%2fb"),
            ("a=b%26password=x", "a=b%26password=***"),
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
        assert!(is_secret_field(b"Authorization") && !is_secret_field(b"Accept"));
    }
}
