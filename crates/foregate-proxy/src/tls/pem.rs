//! PEM files (RFC 7468): blocks of Base64 between `-----BEGIN X-----` and `-----END X-----`, with
//! text around them.
//!
//! A file is read like OpenSSL reads it, or refused with the line at fault. No block is left out
//! silently, because only clients would notice that a certificate is missing.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A block of a PEM file.
#[derive(Debug)]
pub(super) struct PemBlock<'f> {
    /// The line on which it begins, from 1.
    pub line: usize,
    /// The text after `BEGIN`, such as `CERTIFICATE`.
    pub label: &'f str,
    /// True if header fields before the content mark it as encrypted (RFC 1421, section 4.6).
    pub encrypted: bool,
    /// Its content.
    pub content: Vec<u8>,
}

/// Why a file is not PEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PemFault {
    /// The file is empty.
    Empty,
    /// There are no blocks. The value tells how the file begins.
    NoBlocks(Beginning),
    /// A line looks like a boundary, but is not a valid one.
    Boundary(usize),
    /// The end of a block is on this line, but no block has begun, or one with another label.
    End(usize),
    /// The block that begins on this line does not end.
    Unended(usize),
    /// A line is not Base64.
    Base64(usize),
    /// The content of the block that begins on this line is cut off.
    Cut(usize),
}

/// The likely format of a file without blocks, by its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Like DER.
    Der,
    /// Like PKCS#12.
    Pkcs12,
    /// Like UTF-16.
    Utf16,
    /// Like anything else.
    Text,
}

impl fmt::Display for PemFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the file is empty"),
            Self::NoBlocks(Beginning::Der) => f.write_str("this is DER, not PEM"),
            Self::NoBlocks(Beginning::Pkcs12) => f.write_str("this is PKCS#12, not PEM"),
            Self::NoBlocks(Beginning::Utf16) => f.write_str("this is text in UTF-16"),
            Self::NoBlocks(Beginning::Text) => f.write_str("there is no line `-----BEGIN ...-----` in it"),
            Self::Boundary(line) => {
                write!(f, "line {line}: this looks like the begin or end of a block, and is neither")
            }
            Self::End(line) => {
                write!(f, "line {line}: the end of a block that has not begun under this name")
            }
            Self::Unended(line) => write!(f, "line {line}: the block that begins here has no end"),
            Self::Base64(line) => write!(f, "line {line}: this is not Base64"),
            Self::Cut(line) => write!(f, "line {line}: the Base64 of the block that begins here is cut off"),
        }
    }
}

impl PemFault {
    /// How to fix the file. `is_key` is true if it should contain a private key, false for certificates.
    pub(super) fn fix(self, is_key: bool) -> &'static str {
        match self {
            Self::NoBlocks(Beginning::Der) if is_key => {
                "convert it: `openssl pkey -inform der -in FILE -out FILE.pem`"
            }
            Self::NoBlocks(Beginning::Der) => "convert it: `openssl x509 -inform der -in FILE -out FILE.pem`",
            Self::NoBlocks(Beginning::Pkcs12) => "convert it: `openssl pkcs12 -nodes -in FILE -out FILE.pem`",
            Self::NoBlocks(Beginning::Utf16) => "save it as ASCII or UTF-8",
            Self::Empty | Self::NoBlocks(Beginning::Text) if is_key => super::store::KEY_FIX,
            Self::Empty | Self::NoBlocks(Beginning::Text) => super::store::CHAIN_FIX,
            Self::Boundary(_) => {
                "write the line as `-----BEGIN X-----` or `-----END X-----`, five dashes on each side and nothing else"
            }
            Self::End(_) => "give each block its own begin and end, with the same name in both",
            Self::Unended(_) | Self::Cut(_) => "the file is incomplete: copy it again, with all of its lines",
            Self::Base64(_) => "copy the file again as it was issued; comments stand outside of blocks",
        }
    }
}

/// A line that begins or ends a block.
enum Boundary<'f> {
    Begin(&'f str),
    End(&'f str),
}

/// The blocks of a file, in their order.
pub(super) fn blocks(file: &[u8]) -> Result<Vec<PemBlock<'_>>, PemFault> {
    let text = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
    if text.trim_ascii().is_empty() {
        return Err(PemFault::Empty);
    }
    let mut blocks = Vec::new();
    let mut open: Option<OpenBlock<'_>> = None;
    for (number, line) in lines(text) {
        // If files were joined without a line break between them, two boundaries are on one line.
        for line in parts(line.trim_ascii_end()) {
            match (boundary(line), &mut open) {
                (Some(Boundary::Begin(label)), None) => open = Some(OpenBlock::new(number, label)),
                (Some(Boundary::End(label)), Some(block)) if block.label == label => {
                    blocks.extend(open.take().map(OpenBlock::close).transpose()?);
                }
                (Some(Boundary::Begin(_)), Some(block)) => return Err(PemFault::Unended(block.line)),
                (Some(Boundary::End(_)), _) => return Err(PemFault::End(number)),
                (None, _) if is_nearly_boundary(line) => return Err(PemFault::Boundary(number)),
                (None, Some(block)) => block.add(number, line)?,
                (None, None) => {}
            }
        }
    }
    match open {
        Some(block) => Err(PemFault::Unended(block.line)),
        None if blocks.is_empty() => Err(PemFault::NoBlocks(beginning(file))),
        None => Ok(blocks),
    }
}

/// An unfinished block.
struct OpenBlock<'f> {
    line: usize,
    label: &'f str,
    encrypted: bool,
    /// True within the header fields: a field continues on lines that begin with a space.
    in_head: bool,
    digits: Vec<u8>,
}

impl<'f> OpenBlock<'f> {
    fn new(line: usize, label: &'f str) -> Self {
        Self { line, label, encrypted: false, in_head: false, digits: Vec::new() }
    }

    fn add(&mut self, number: usize, line: &[u8]) -> Result<(), PemFault> {
        let is_field = self.digits.is_empty() && line.contains(&b':');
        let continues = self.in_head && line.first().is_some_and(u8::is_ascii_whitespace);
        self.in_head = is_field || continues;
        if self.in_head {
            self.encrypted |= line.windows(b"ENCRYPTED".len()).any(|part| part == b"ENCRYPTED");
            return Ok(());
        }
        let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        for digit in line.iter().filter(|byte| !byte.is_ascii_whitespace()) {
            if !is_digit(digit) || *digit != b'=' && self.digits.last() == Some(&b'=') {
                return Err(PemFault::Base64(number));
            }
            self.digits.push(*digit);
        }
        Ok(())
    }

    fn close(self) -> Result<PemBlock<'f>, PemFault> {
        // Encrypted content cannot be used, so it is not decoded.
        let content = match self.encrypted {
            true => Vec::new(),
            false => STANDARD.decode(self.digits).map_err(|_| PemFault::Cut(self.line))?,
        };
        Ok(PemBlock { line: self.line, label: self.label, encrypted: self.encrypted, content })
    }
}

/// Lines with their numbers. They end with CR LF, LF or CR.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let (mut rest, mut number) = (text, 0);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        number += 1;
        let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
        let (line, behind) = rest.split_at(end);
        let ending = if behind.starts_with(b"\r\n") { 2 } else { 1 };
        rest = behind.get(ending..).unwrap_or_default();
        Some((number, line))
    })
}

/// The line itself, or two parts if an END boundary is followed by a BEGIN boundary on the same line.
fn parts(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    const BETWEEN: &[u8] = b"----------BEGIN ";
    let at = if line.starts_with(b"-----END ") {
        line.windows(BETWEEN.len()).position(|part| part == BETWEEN)
    } else {
        None
    };
    let (first, second) = line.split_at(at.map_or(line.len(), |at| at + 5));
    std::iter::once(first).chain(at.map(|_| second))
}

fn boundary(line: &[u8]) -> Option<Boundary<'_>> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix("-----")?.strip_suffix("-----")?;
    let is_label = |label: &str| !label.is_empty() && !label.contains('-');
    if let Some(label) = line.strip_prefix("BEGIN ") {
        return is_label(label).then_some(Boundary::Begin(label));
    }
    line.strip_prefix("END ").filter(|label| is_label(label)).map(Boundary::End)
}

/// Returns true if a line was probably meant as a boundary, but has too few dashes, spaces before it, or
/// text around it.
fn is_nearly_boundary(line: &[u8]) -> bool {
    [&b"-BEGIN "[..], b"-END ", b"--BEGIN", b"--END"]
        .iter()
        .any(|word| line.windows(word.len()).any(|part| part == *word))
}

fn beginning(file: &[u8]) -> Beginning {
    match file {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Beginning::Utf16,
        // A PKCS#12 file begins with the version 3 (RFC 7292, section 4).
        [0x30, 0x82, _, _, 2, 1, 3, ..] | [0x30, 0x80, 2, 1, 3, ..] => Beginning::Pkcs12,
        [0x30, 0x80..=0x84, ..] => Beginning::Der,
        [0x30, length, ..] if usize::from(*length) + 2 == file.len() => Beginning::Der,
        _ => Beginning::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels with their lines and contents, or the fault.
    fn read(file: &str) -> Result<Vec<(usize, String, String)>, PemFault> {
        let shown = |block: PemBlock<'_>| {
            (block.line, block.label.to_owned(), String::from_utf8(block.content).unwrap())
        };
        Ok(blocks(file.as_bytes())?.into_iter().map(shown).collect())
    }

    fn block(label: &str, content: &str) -> String {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(content))
    }

    #[test]
    fn whatever_openssl_reads_is_read() {
        let (one, two) = (block("A", "one"), block("B C", "two"));
        let both = vec![(1, "A".into(), "one".into()), (4, "B C".into(), "two".into())];
        assert_eq!(read(&format!("{one}{two}")), Ok(both.clone()));
        for (from, to) in [("\n", "\r\n"), ("\n", "\r"), ("\n", " \t\n"), ("-----\n", "----- \n")] {
            assert_eq!(read(&format!("{one}{two}").replace(from, to)), Ok(both.clone()), "{to:?}");
        }
        assert_eq!(read(format!("\u{feff}{one}{two}").trim_end()), Ok(both));
        let text = format!("subject=CN = a\n\n{one}  # a comment - - -\n{two}---- \n");
        assert_eq!(read(&text).map(|read| read.len()), Ok(2));
        let joined = format!("{one}{two}").replace("-----\n-----B", "----------B");
        assert_eq!(read(&joined), Ok(vec![(1, "A".into(), "one".into()), (3, "B C".into(), "two".into())]));
        let spread = "-----BEGIN A-----\n b\n\n25 l\n-----END A-----";
        assert_eq!(read(spread), Ok(vec![(1, "A".into(), "one".into())]));
        let fields = one.replacen('\n', "\nProc-Type: 4,CLEAR\nNote: a\n b\n\n", 1);
        assert_eq!(read(&fields), Ok(vec![(1, "A".into(), "one".into())]));
        let encrypted = one.replacen('\n', "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n", 1);
        assert!(blocks(encrypted.as_bytes()).unwrap()[0].encrypted);
    }

    #[test]
    fn what_is_not_read_is_refused_with_its_line() {
        let (one, two) = (block("A", "one"), block("B", "two"));
        let cases = [
            (String::new(), PemFault::Empty),
            ("\u{feff} \n".into(), PemFault::Empty),
            ("hello\n".into(), PemFault::NoBlocks(Beginning::Text)),
            (format!("{one} {two}"), PemFault::Boundary(4)),
            (format!("{one}x{two}"), PemFault::Boundary(4)),
            (format!("{one}{}", two.replacen("-----", "----", 1)), PemFault::Boundary(4)),
            (format!("{one}{}", two.replacen("-----\n", "----\n", 1)), PemFault::Boundary(4)),
            (format!("{one}{}", two.replacen("-----\n", "----- x\n", 1)), PemFault::Boundary(4)),
            (one.replace("\n-----END", "-----END"), PemFault::Boundary(2)),
            (one.replace("END A", "END B"), PemFault::End(3)),
            (format!("{one}-----END A-----\n"), PemFault::End(4)),
            (one.replace("-----END A-----\n", ""), PemFault::Unended(1)),
            (format!("{}{two}", one.replace("-----END A-----\n", "")), PemFault::Unended(1)),
            (one.replace("b25l", "b2*5l"), PemFault::Base64(2)),
            (one.replace("b25l", "b25\u{e4}"), PemFault::Base64(2)),
            (one.replace("b25l", "b2==\nb25l"), PemFault::Base64(3)),
            (one.replace("b25l", "b25lb"), PemFault::Cut(1)),
            (one.replace("b25l", "b25"), PemFault::Cut(1)),
        ];
        for (file, fault) in cases {
            assert_eq!(read(&file), Err(fault), "{file}");
        }
        let whole = format!("{one}{two}");
        // The last line break does not belong to the block.
        for end in 0..whole.len() - 1 {
            let read = read(&whole[..end]);
            // Some dashes after a block are text.
            let first = one.len() - 1..one.len() + "-----BEGIN".len();
            assert!(read.is_err() || first.contains(&end) && read.unwrap().len() == 1, "{end}");
        }
    }

    #[test]
    fn other_formats_are_known() {
        for (file, expected) in [
            (&[0x30, 0x82, 1, 2, 0x30, 0x82][..], Beginning::Der),
            (&[0x30, 0x82, 1, 2, 2, 1, 3, 0x30], Beginning::Pkcs12),
            (&[0x30, 3, 2, 1, 0], Beginning::Der),
            (&[0xff, 0xfe, b'-', 0], Beginning::Utf16),
            (b"0 is how it begins", Beginning::Text),
        ] {
            assert_eq!(blocks(file).unwrap_err(), PemFault::NoBlocks(expected), "{file:?}");
        }
    }
}
