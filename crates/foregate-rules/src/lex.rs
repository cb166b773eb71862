//! The tokens of an expression.

use std::net::IpAddr;
use std::ops::Range;

use crate::error::Error;
use crate::sets::IpRange;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'t> {
    /// A field, a function or an operator in letters.
    Name(&'t str),
    Text(Vec<u8>),
    Int(i64),
    /// A range of numbers, from the first to the last, both included.
    Ints(i64, i64),
    Ip(IpAddr),
    /// A network, or a range of addresses.
    Ips(IpRange),
    /// `$name`, without `$`.
    List(&'t str),
    /// An operator or bracket.
    Symbol(&'static str),
    End,
}

/// A word of an expression, for callers that only read expressions without compiling them.
#[derive(Clone, Debug, PartialEq)]
pub enum Word<'t> {
    /// A field, a function or an operator in letters.
    Name(&'t str),
    /// The value of a text in quotes.
    Text(Vec<u8>),
    /// An operator or bracket.
    Symbol(&'static str),
    /// A number, an address, a network, a range or a list.
    Other,
}

/// The words of an expression with their places, up to the first invalid one.
pub fn words(text: &str) -> impl Iterator<Item = (Word<'_>, Range<usize>)> {
    let (mut at, mut quote) = (0, Quote::Text);
    std::iter::from_fn(move || {
        let (token, span) = token(text, at, quote).ok()?;
        at = span.end;
        let before_pattern = matches!(token, Token::Name("matches") | Token::Symbol("~"));
        quote = if before_pattern { Quote::Pattern } else { Quote::Text };
        let word = match token {
            Token::End => return None,
            Token::Name(name) => Word::Name(name),
            Token::Text(text) => Word::Text(text),
            Token::Symbol(symbol) => Word::Symbol(symbol),
            Token::Int(_) | Token::Ints(..) | Token::Ip(_) | Token::Ips(_) | Token::List(_) => Word::Other,
        };
        Some((word, span))
    })
}

/// The meaning of a backslash in a text in plain quotes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Quote {
    /// The escapes are `\"`, `\\`, `\n`, `\r`, `\t`, `\xHH` and `\OOO`.
    Text,
    /// Only `\"` is an escape. All other backslashes belong to the regular expression.
    Pattern,
}

/// The symbols, longest first, so that the first match is the longest.
const SYMBOLS: &[&str] =
    &["==", "!=", "<=", ">=", "&&", "||", "^^", "<", ">", "~", "!", "(", ")", "[", "]", "{", "}", ",", "*"];

/// The token at `from` or after the blanks there, and its place.
pub(crate) fn token(text: &str, from: usize, quote: Quote) -> Result<(Token<'_>, Range<usize>), Error> {
    let rest = text[from..].trim_ascii_start();
    let start = text.len() - rest.len();
    let Some(first) = rest.chars().next() else {
        return Ok((Token::End, start..start));
    };
    if first == '"' {
        let (bytes, len) = quoted(rest, start, quote)?;
        return Ok((Token::Text(bytes), start..start + len));
    }
    if let Some(hashes) = raw_hashes(rest) {
        let len =
            raw_length(rest, hashes).ok_or_else(|| Error::new(start..text.len(), "this text has no end"))?;
        let inner = &rest[hashes + 2..len - hashes - 1];
        return Ok((Token::Text(inner.as_bytes().to_vec()), start..start + len));
    }
    if let Some(name) = rest.strip_prefix('$') {
        let len =
            name.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-')).count();
        return match len {
            0 => Err(Error::new(start..start + 1, "a list's name has to follow `$`")),
            len => Ok((Token::List(&name[..len]), start..start + 1 + len)),
        };
    }
    if let Some(symbol) = SYMBOLS.iter().copied().find(|symbol| rest.starts_with(*symbol)) {
        return Ok((Token::Symbol(symbol), start..start + symbol.len()));
    }
    let word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'/' | b'-');
    let len = rest.as_bytes().iter().take_while(|b| word(b)).count();
    if len == 0 {
        let span = start..start + first.len_utf8();
        return Err(unexpected(first, span));
    }
    let token = classify(&rest[..len], start..start + len)?;
    Ok((token, start..start + len))
}

fn unexpected(character: char, span: Range<usize>) -> Error {
    if is_invisible(character) {
        let error = Error::new(span, format!("{} means nothing here", code_point(character)));
        return error.with_help(match character.is_whitespace() {
            true => "it looks like a blank and is none: write a blank",
            false => "nobody sees this character: take it out",
        });
    }
    let error = Error::new(span, format!("`{character}` means nothing here"));
    match character {
        '=' => error.with_help("to compare, write `==` or `eq`"),
        '&' => error.with_help("write `&&` or `and`"),
        '|' => error.with_help("write `||` or `or`"),
        '^' | '\\' => error.with_help("a pattern stands in double quotes: `matches \"^/admin\"`"),
        '\'' | '\u{201c}' | '\u{201d}' => error.with_help("texts stand in straight double quotes"),
        _ => error,
    }
}

/// Returns true if a character is invisible or looks like a blank.
fn is_invisible(character: char) -> bool {
    character != ' ' && (character.is_whitespace() || character.is_control())
        || matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

fn code_point(character: char) -> String {
    format!("U+{:04X}", u32::from(character))
}

/// A part of an expression as a message shows it: in one line, with invisible characters as code points.
pub(crate) fn visible(text: &str) -> String {
    let shown = |character| if is_invisible(character) { code_point(character) } else { character.into() };
    text.chars().map(shown).collect()
}

fn classify(word: &str, span: Range<usize>) -> Result<Token<'_>, Error> {
    let begins_a_name = word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    // Names may contain hyphens, as those of modules' values do, because there is no subtraction.
    if begins_a_name && !word.contains([':', '/']) {
        return Ok(Token::Name(word));
    }
    if let Some(number) = number(word) {
        return number.map(Token::Int).map_err(|wrong| wrong.at(span));
    }
    if let Ok(address) = word.parse::<IpAddr>() {
        return Ok(Token::Ip(address.to_canonical()));
    }
    if let Some((address, bits)) = word.split_once('/') {
        return network(address, bits, span);
    }
    if let Some((first, last)) = word.split_once("..") {
        return range(first, last, span);
    }
    Err(Error::new(span, format!("`{word}` is neither a name, nor a number, nor an address")))
}

/// The reason why digits are no valid number.
enum NoNumber<'t> {
    TooLarge,
    /// Digits with a leading zero, but not all of them octal.
    NotOctal(&'t str),
}

impl NoNumber<'_> {
    fn at(self, span: Range<usize>) -> Error {
        match self {
            Self::TooLarge => Error::new(span, "this number does not fit into 64 bits"),
            Self::NotOctal(digits) => {
                let error =
                    Error::new(span, format!("`{digits}` begins with 0, as octal numbers do, and is none"));
                error.with_help(format!(
                    "without the zero it is decimal: `{}`",
                    digits.trim_start_matches('0')
                ))
            }
        }
    }
}

/// A number as Cloudflare writes it: decimal, hexadecimal after `0x`, or octal after `0`. Only a decimal one may have a
/// sign. `None` if the word is not a number.
fn number(word: &str) -> Option<Result<i64, NoNumber<'_>>> {
    let all = |digits: &str, is: fn(&u8) -> bool| !digits.is_empty() && digits.as_bytes().iter().all(is);
    let parsed = |digits, radix| i64::from_str_radix(digits, radix).map_err(|_| NoNumber::TooLarge);
    if let Some(digits) = word.strip_prefix("0x") {
        return all(digits, u8::is_ascii_hexdigit).then(|| parsed(digits, 16));
    }
    if !all(word.strip_prefix('-').unwrap_or(word), u8::is_ascii_digit) {
        return None;
    }
    Some(match word.strip_prefix('0') {
        Some(octal) if octal.contains(['8', '9']) => Err(NoNumber::NotOctal(word)),
        Some(octal) if !octal.is_empty() => parsed(octal, 8),
        _ => parsed(word, 10),
    })
}

fn network(address: &str, bits: &str, span: Range<usize>) -> Result<Token<'static>, Error> {
    let parsed = address.parse::<IpAddr>().ok().zip(bits.parse::<u8>().ok());
    let Some((address, bits)) = parsed else {
        let error = Error::new(span, format!("`{address}/{bits}` is not a network"));
        return Err(error.with_help(
            "a network is an address and a number of bits: `10.0.0.0/8`; a text stands in double quotes",
        ));
    };
    IpRange::network(address, bits).map(Token::Ips).map_err(|problem| Error::new(span, problem))
}

fn range(first: &str, last: &str, span: Range<usize>) -> Result<Token<'static>, Error> {
    if let (Some(first), Some(last)) = (number(first), number(last)) {
        let wrong = |wrong: NoNumber<'_>| wrong.at(span.clone());
        let (first, last) = (first.map_err(wrong)?, last.map_err(wrong)?);
        if first > last {
            return Err(Error::new(span, "this range ends before it begins"));
        }
        return Ok(Token::Ints(first, last));
    }
    if let (Ok(first), Ok(last)) = (first.parse::<IpAddr>(), last.parse::<IpAddr>()) {
        return IpRange::new(first, last).map(Token::Ips).map_err(|problem| Error::new(span, problem));
    }
    let error = Error::new(span, format!("`{first}..{last}` is not a range"));
    Err(error.with_help("a range is between two numbers or two addresses: `8000..8080`"))
}

/// A text in plain quotes that begins at the start of `rest`, and its length with quotes.
fn quoted(rest: &str, start: usize, quote: Quote) -> Result<(Vec<u8>, usize), Error> {
    let bytes = rest.as_bytes();
    let mut text = Vec::new();
    let mut at = 1;
    loop {
        match (bytes.get(at), bytes.get(at + 1)) {
            (None, _) => return Err(Error::new(start..start + rest.len(), "this text has no end")),
            (Some(b'"'), _) => return Ok((text, at + 1)),
            (Some(b'\\'), Some(b'"')) => {
                text.push(b'"');
                at += 2;
            }
            (Some(b'\\'), Some(&next)) if quote == Quote::Pattern => {
                // Both characters are taken, so that an escaped backslash does not escape the next character.
                text.extend([b'\\', next]);
                at += 2;
            }
            (Some(b'\\'), _) => {
                let (byte, len) =
                    escape(&rest[at..]).ok_or_else(|| unknown_escape(&rest[at..], start + at))?;
                text.push(byte);
                at += len;
            }
            (Some(&byte), _) => {
                text.push(byte);
                at += 1;
            }
        }
    }
}

/// The byte of an escape, and its length.
fn escape(rest: &str) -> Option<(u8, usize)> {
    match rest.as_bytes().get(1)? {
        b'\\' => Some((b'\\', 2)),
        b'n' => Some((b'\n', 2)),
        b'r' => Some((b'\r', 2)),
        b't' => Some((b'\t', 2)),
        b'x' => {
            let digits = rest.get(2..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
            Some((u8::from_str_radix(digits, 16).ok()?, 4))
        }
        b'0'..=b'7' => Some((u8::from_str_radix(rest.get(1..4)?, 8).ok()?, 4)),
        _ => None,
    }
}

fn unknown_escape(rest: &str, at: usize) -> Error {
    let length = if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) { 4 } else { 2 };
    let sequence: String = rest.chars().take(length).take_while(|&character| character != '"').collect();
    Error::new(at..at + sequence.len(), format!("`{}` is no escape", visible(&sequence))).with_help(
        r#"known are `\"`, `\\`, `\n`, `\r`, `\t`, `\xHH` and `\OOO` up to `\377`; in r"..." a backslash is a backslash"#,
    )
}

/// The number of `#` before a raw text; `None` if `rest` does not begin with a raw text.
fn raw_hashes(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let hashes = after.bytes().take_while(|&b| b == b'#').count();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// The length of a raw text with its delimiters; `None` if it has no end.
fn raw_length(rest: &str, hashes: usize) -> Option<usize> {
    let start = hashes + 2;
    let end = format!("\"{}", "#".repeat(hashes));
    rest[start..].find(&end).map(|at| start + at + end.len())
}
