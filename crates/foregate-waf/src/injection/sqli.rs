//! Detection of SQL injection.

use memchr::{memchr, memmem};

use super::fold::{FoldedTokens, MAX_TOKENS, fold};
use super::token::{InjectionToken, TokenKind};
use super::tokenizer::{Reading, Tokenizer};
use super::words::is_injection;

/// The kinds of the tokens by which an injection was recognised, each as one letter.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    letters: [u8; MAX_TOKENS],
    len: u8,
}

impl Fingerprint {
    fn new(tokens: &[InjectionToken]) -> Self {
        if tokens.iter().any(|token| token.kind == TokenKind::Evil) {
            return Self { letters: [TokenKind::Evil as u8, 0, 0, 0, 0], len: 1 };
        }
        let mut letters = [0; MAX_TOKENS];
        letters.iter_mut().zip(tokens).for_each(|(letter, token)| *letter = token.kind as u8);
        Self { letters, len: tokens.len().min(MAX_TOKENS) as u8 }
    }

    fn letters(&self) -> &[u8] {
        &self.letters[..usize::from(self.len)]
    }

    /// The fingerprint as up to five ASCII letters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.letters()).unwrap_or_default()
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?}", self.as_str())
    }
}

/// Returns a fingerprint if the input would change an SQL statement into which it is inserted, either as it is or after
/// an opening quote.
pub fn sqli(input: &[u8]) -> Option<Fingerprint> {
    if is_one_token(input) {
        return None;
    }
    let has = |quote| memchr(quote, input).is_some();
    read(input, None).or_else(|| has(b'\'').then(|| read(input, Some(b'\'')))?).or_else(|| {
        let reading = Reading { quote: Some(b'"'), mysql: true };
        has(b'"').then(|| judge(input, reading).0)?
    })
}

/// Returns true for a single word or number. Most values have this form, and no injection consists of one token.
fn is_one_token(input: &[u8]) -> bool {
    match input.first() {
        None => true,
        Some(first) if first.is_ascii_digit() => input.iter().all(u8::is_ascii_digit),
        Some(first) if first.is_ascii_alphabetic() => {
            input.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        }
        Some(_) => false,
    }
}

/// Reads the input by the SQL standard. If that finds nothing and MySQL may read the input differently, reads
/// it by MySQL's rules.
fn read(input: &[u8], quote: Option<u8>) -> Option<Fingerprint> {
    let (found, ambiguous) = judge(input, Reading { quote, mysql: false });
    found.or_else(|| ambiguous.then(|| judge(input, Reading { quote, mysql: true }).0)?)
}

/// Reads the input in one way. Returns the fingerprint of an injection, if found, and true if MySQL may read
/// the input differently.
fn judge(input: &[u8], reading: Reading) -> (Option<Fingerprint>, bool) {
    let mut tokenizer = Tokenizer::new(input, reading);
    let mut folded = fold(&mut tokenizer);
    close_with_tick(&mut folded);
    let fingerprint = Fingerprint::new(folded.tokens());
    let is_found = !fingerprint.letters().is_empty()
        && is_injection(fingerprint.letters())
        && !is_harmless(input, &fingerprint, folded.tokens(), tokenizer.count);
    (is_found.then_some(fingerprint), tokenizer.ambiguous)
}

/// Turns a single tick at the end into a comment, as PHP programs with MySQL read it.
fn close_with_tick(folded: &mut FoldedTokens) {
    if folded.tokens().len() <= 2 {
        return;
    }
    if let Some(last) = folded.last_mut()
        && last.kind == TokenKind::Bareword
        && last.open == b'`'
        && last.close == 0
        && last.text().is_empty()
    {
        last.kind = TokenKind::Comment;
    }
}

/// Returns true for inputs that have the fingerprint of an injection, but are common in ordinary text.
fn is_harmless(input: &[u8], fingerprint: &Fingerprint, tokens: &[InjectionToken], read: usize) -> bool {
    let letters = fingerprint.letters();
    if letters.len() > 1
        && letters.last() == Some(&(TokenKind::Comment as u8))
        && memmem::find(input, b"sp_password").is_some()
    {
        // `sp_password` in a comment keeps the statement out of the log of Microsoft's SQL Server.
        return false;
    }
    match (letters, tokens) {
        ([_, _], [first, second]) => is_harmless_pair(input, first, second, read),
        ([_, _, _], [first, second, third]) => match letters {
            b"sos" | b"s&s" => {
                // An injection only in the form `foo" + "bar`, without quotes at both ends.
                !(first.open == 0 && third.close == 0 && first.close == third.open)
            }
            b"s&n" | b"n&1" | b"1&1" | b"1&v" | b"1&s" => read == 3,
            _ if second.kind == TokenKind::Keyword => {
                let text = second.text();
                text.len() < 5 || !text[..4].eq_ignore_ascii_case(b"INTO")
            }
            _ => false,
        },
        _ => false,
    }
}

fn is_harmless_pair(input: &[u8], first: &InjectionToken, second: &InjectionToken, read: usize) -> bool {
    let comment = second.text().first().copied();
    match (first.kind, second.kind) {
        (_, TokenKind::Union) => read == 2,
        _ if comment == Some(b'#') => true,
        (TokenKind::Bareword, TokenKind::Comment) => comment != Some(b'/'),
        (TokenKind::Number, TokenKind::Comment) if comment == Some(b'/') || read > 2 => false,
        (TokenKind::Number, TokenKind::Comment) => {
            // The first token has to be a whole number, and not a part of a longer word such as `1234-ABCD--`.
            let rest = input.get(first.text().len()..).unwrap_or_default();
            !match rest {
                [] => true,
                [b'/', b'*', ..] | [b'-', b'-', ..] => true,
                [next, ..] => *next <= 32 || *next >= 0x80,
            }
        }
        _ => second.text().len() > 2 && comment == Some(b'-'),
    }
}
