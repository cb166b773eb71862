//! Texts of a case: escapes, variables, repetition; and how bytes are shown to a reader.

use std::collections::BTreeMap;

/// Longest run of bytes that a report shows of one text; the middle of longer ones is left out.
const SHOWN_BYTES: usize = 600;

/// Most bytes that one `${repeat:N:text}` may grow to.
const REPEAT_LIMIT: usize = 256 << 20;

/// The names that a case may use in `${...}`, with their values.
pub type Variables = BTreeMap<String, String>;

/// A text as it stands in a case, before its variables are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Bytes(Vec<u8>),
    Variable(String),
    Repeat(usize, Vec<u8>),
}

impl Text {
    /// A text without escapes or variables.
    pub fn plain(bytes: &[u8]) -> Self {
        Self { parts: vec![Part::Bytes(bytes.to_vec())] }
    }

    /// Reads a text with the escapes `\r \n \t \0 \\ \" \$ \xNN` and the variables `${NAME}` and
    /// `${repeat:N:TEXT}`.
    ///
    /// # Errors
    ///
    /// A sentence that says which escape or variable is wrong.
    pub fn parse(source: &str) -> Result<Self, String> {
        Self::read(source, true)
    }

    /// Reads a text in which only `${NAME}` means something: a configuration file.
    ///
    /// # Errors
    ///
    /// A sentence that says which variable is wrong.
    pub fn parse_raw(source: &str) -> Result<Self, String> {
        Self::read(source, false)
    }

    fn read(source: &str, escapes: bool) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut bytes = Vec::new();
        let mut rest = source;
        while let Some(character) = rest.chars().next() {
            if escapes && character == '\\' {
                let used = read_escape(rest, &mut bytes)?;
                rest = &rest[used..];
            } else if let Some(inside) = rest.strip_prefix("${") {
                let end = inside.find('}').ok_or("`${` without `}`")?;
                if !bytes.is_empty() {
                    parts.push(Part::Bytes(std::mem::take(&mut bytes)));
                }
                parts.push(read_variable(&inside[..end])?);
                rest = &inside[end + 1..];
            } else {
                let length = character.len_utf8();
                bytes.extend_from_slice(&rest.as_bytes()[..length]);
                rest = &rest[length..];
            }
        }
        if !bytes.is_empty() {
            parts.push(Part::Bytes(bytes));
        }
        Ok(Self { parts })
    }

    /// Adds another text behind this one.
    pub fn append(&mut self, other: Self) {
        self.parts.extend(other.parts);
    }

    /// The bytes, with the variables replaced.
    ///
    /// # Errors
    ///
    /// A sentence that names the variable which is not known.
    pub fn bytes(&self, variables: &Variables) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        for part in &self.parts {
            match part {
                Part::Bytes(bytes) => out.extend_from_slice(bytes),
                Part::Repeat(times, bytes) => out.extend(bytes.repeat(*times)),
                Part::Variable(name) => {
                    let value = variables.get(name).ok_or_else(|| format!("no variable ${{{name}}}"))?;
                    out.extend_from_slice(value.as_bytes());
                }
            }
        }
        Ok(out)
    }

    /// The text as a string.
    ///
    /// # Errors
    ///
    /// As for [`Text::bytes`], and when the text is not UTF-8.
    pub fn string(&self, variables: &Variables) -> Result<String, String> {
        String::from_utf8(self.bytes(variables)?).map_err(|_| "this text must be UTF-8".to_owned())
    }

    /// The names of the variables in use.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

/// Reads one escape at the beginning of `source`, returns how many bytes it took.
fn read_escape(source: &str, out: &mut Vec<u8>) -> Result<usize, String> {
    let (byte, used) = match source.as_bytes().get(1) {
        Some(b'r') => (b'\r', 2),
        Some(b'n') => (b'\n', 2),
        Some(b't') => (b'\t', 2),
        Some(b'0') => (0, 2),
        Some(byte @ (b'\\' | b'"' | b'$' | b'#')) => (*byte, 2),
        Some(b'x') => {
            let digits = source.get(2..4).ok_or("`\\x` needs two hexadecimal digits")?;
            let byte = u8::from_str_radix(digits, 16).map_err(|_| format!("`\\x{digits}` is not a byte"))?;
            (byte, 4)
        }
        _ => {
            return Err(format!("unknown escape in `{}`", source.chars().take(12).collect::<String>()));
        }
    };
    out.push(byte);
    Ok(used)
}

fn read_variable(name: &str) -> Result<Part, String> {
    let Some(rest) = name.strip_prefix("repeat:") else {
        return Ok(Part::Variable(name.to_owned()));
    };
    let (times, text) = rest.split_once(':').ok_or("write ${repeat:N:TEXT}")?;
    let times: usize = times.parse().map_err(|_| format!("`{times}` is not a number"))?;
    let Text { parts } = Text::parse(text)?;
    let bytes = match parts.as_slice() {
        [Part::Bytes(bytes)] => bytes.clone(),
        _ => return Err("${repeat:N:TEXT} takes a plain text".to_owned()),
    };
    if times.saturating_mul(bytes.len()) > REPEAT_LIMIT {
        return Err(format!("${{repeat}} beyond {REPEAT_LIMIT} bytes"));
    }
    Ok(Part::Repeat(times, bytes))
}

/// Bytes as a reader wants to see them: escaped, quoted, the middle left out when long.
pub fn show(bytes: &[u8]) -> String {
    if bytes.len() <= SHOWN_BYTES {
        return format!("\"{}\"", escape(bytes));
    }
    let (head, tail) = (&bytes[..SHOWN_BYTES / 2], &bytes[bytes.len() - SHOWN_BYTES / 4..]);
    format!("\"{}\" .. \"{}\" ({} bytes)", escape(head), escape(tail), bytes.len())
}

fn escape(bytes: &[u8]) -> String {
    let mut out = String::new();
    for &byte in bytes {
        match byte {
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_variables() {
        let variables = Variables::from([("a".to_owned(), "7".to_owned())]);
        let text = Text::parse(r#"x\r\n\x00${a}${repeat:3:\tb}\""#).unwrap();
        assert_eq!(text.bytes(&variables).unwrap(), b"x\r\n\x007\tb\tb\tb\"");
        assert_eq!(Text::parse("${b}").unwrap().bytes(&variables), Err("no variable ${b}".to_owned()));
        assert!(Text::parse("\\q").is_err());
        assert!(Text::parse("${a").is_err());
    }

    #[test]
    fn long_texts_are_cut_in_the_middle() {
        let shown = show(&[b'a'; 5000]);
        assert!(shown.len() < 700, "{shown}");
        assert!(shown.ends_with("(5000 bytes)"), "{shown}");
    }
}
