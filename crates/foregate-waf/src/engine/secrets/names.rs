//! The names under which values are secrets.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

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
pub(super) const NAMING: &[&[u8]] =
    &[b"name", b"key", b"field", b"id", b"param", b"parameter", b"label", b"header", b"type", b"k", b"n"];
/// The last words of names under which the value itself is found: see [`NAMING`].
pub(super) const VALUES: &[&[u8]] =
    &[b"value", b"val", b"values", b"v", b"content", b"data", b"text", b"answer", b"input"];
/// The number of bytes at the start and at the end of a name that decide whether it counts as the name of a secret.
pub(super) const NAME: usize = 256;

/// Returns true if the value of a field with this name is a secret. A malformed head may have blanks around
/// the name.
pub(crate) fn is_secret_field(name: &[u8]) -> bool {
    is_known_field(name.trim_ascii()) || is_secret_name(name)
}

/// Returns true if the name is one of [`FIELDS`].
pub(super) fn is_known_field(name: &[u8]) -> bool {
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
pub(super) fn last_word(name: &[u8]) -> (&[u8], &[u8]) {
    let name = name.strip_suffix(b"]").unwrap_or(name);
    let length = name.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    name.split_at(name.len() - length)
}

pub(super) fn is_among(word: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Returns true if a name contains one of [`NAMES`].
fn has_secret_part(name: &[u8]) -> bool {
    PARTS.as_ref().is_none_or(|parts| parts.is_match(name))
}

/// Returns true if the value that may follow this key is a secret. In a dotted name, the last part that is
/// not a number counts: `session.name` is a setting. An encoded key may contain its value, and is then
/// checked as a whole.
pub(super) fn is_secret_key(key: &[u8]) -> bool {
    let is_path = !key.iter().any(|byte| matches!(byte, b'=' | b':'));
    let is_name = |part: &&[u8]| !part.iter().all(u8::is_ascii_digit);
    match key.rsplit(|byte| *byte == b'.').find(is_name) {
        Some(last) if is_path => is_secret_name(last) || has_secret_part(key),
        _ => is_secret_name(key),
    }
}

/// Returns true if a value is the name of a secret argument or field.
pub(super) fn is_secret_named(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    value.len() <= NAME && (is_secret_key(value) || is_known_field(value))
}

#[cfg(test)]
mod tests {
    use super::*;

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
