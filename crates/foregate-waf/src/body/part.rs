//! The header of a form's part.

use super::multipart::Multipart;

/// The most bytes in a header line of a part, together with the lines folded into it; more are an error.
const MAX_LINE: usize = 4096;
/// The most lines in a part's header; more are an error.
const MAX_LINES: usize = 64;

/// Characters beyond ASCII that end a line: U+0085, U+2028 and U+2029.
const LINE_ENDS: [&[u8]; 3] = [b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9"];

/// The header fields read so far.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// Unfolded lines without their ends.
    lines: Vec<Vec<u8>>,
    count: usize,
}

impl Header {
    /// Adds a non-empty line, without its end.
    pub(super) fn line(&mut self, line: &[u8], outcome: &mut Multipart) {
        self.count += 1;
        if self.count > MAX_LINES {
            outcome.over_limit = true;
            outcome.fail("a part's header has more than 64 lines");
            return;
        }
        if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            // For some parsers, such as Werkzeug's, a CR ends a line, and two CRs end the header.
            outcome.fail("a control character in a part's header");
        }
        if !line.is_ascii() && LINE_ENDS.iter().any(|end| memchr::memmem::find(line, end).is_some()) {
            // Some parsers end a line at such a character.
            outcome.fail("the end of a line in a part's header");
        }
        let white = line.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
        if white > 0 {
            outcome.header_folding = true;
            outcome.invalid_header_folding |= line[..white].iter().any(|byte| !matches!(byte, b' ' | b'\t'));
            let Some(last) = self.lines.last_mut() else {
                outcome.fail("a part's header begins with a folded line");
                return;
            };
            last.push(b' ');
            last.extend_from_slice(&line[white..]);
        } else {
            check_name(line, outcome);
            if self.field(name(line)).is_some() {
                outcome.fail(format_args!("a part's header has `{}` twice", name(line).escape_ascii()));
            }
            self.lines.push(line.to_vec());
        }
        if let Some(last) = self.lines.last_mut().filter(|last| last.len() > MAX_LINE) {
            last.truncate(MAX_LINE);
            outcome.over_limit = true;
            outcome.fail(format_args!("a line of a part's header is longer than {MAX_LINE} bytes"));
        }
    }

    pub(super) fn lines(&self) -> &[Vec<u8>] {
        &self.lines
    }

    /// The value of the first field with this name.
    pub(super) fn field(&self, wanted: &[u8]) -> Option<&[u8]> {
        let line = self.lines.iter().find(|line| name(line).eq_ignore_ascii_case(wanted))?;
        let value = line.get(name(line).len() + 1..)?;
        let white = value.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        Some(&value[white..])
    }
}

/// The text before the colon of a line.
fn name(line: &[u8]) -> &[u8] {
    &line[..memchr::memchr(b':', line).unwrap_or(line.len())]
}

fn check_name(line: &[u8], outcome: &mut Multipart) {
    let name = name(line);
    if name.len() == line.len() {
        outcome.fail("a line of a part's header has no colon");
    } else if name.is_empty() {
        outcome.fail("a field of a part's header has no name");
    } else if !name.iter().all(u8::is_ascii_graphic) {
        outcome.fail("the name of a field in a part's header has an invalid character");
    }
}
