//! `multipart/form-data` (RFC 7578, RFC 2046 section 5.1).

use std::borrow::Cow;

use memchr::{memchr, memmem};

use super::boundary::{Boundary, boundary};
use super::charset;
use super::disposition::{self, Disposition};
use super::part::Header;
use super::transfer::{self, Decoded};
use super::{BodyError, File, Limits, Sink};

/// The most parts that are read beyond the arguments and files that are wanted.
const SPARE_PARTS: usize = 100;

/// What was wrong with a form, one field for each variable `MULTIPART_*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Multipart {
    /// The first thing that is wrong, if there is any.
    pub error: Option<BodyError>,
    /// The boundary was in quotes.
    pub boundary_quoted: bool,
    /// White space around the boundary's `=`.
    pub boundary_whitespace: bool,
    /// Something before the first boundary that is not one line end.
    pub data_before: bool,
    /// Something behind the last one, and behind the end of its line, that is not one more line end.
    pub data_after: bool,
    /// A folded line in a part's header.
    pub header_folding: bool,
    /// One that is not folded by spaces and tabs alone.
    pub invalid_header_folding: bool,
    /// A line of a header or boundary that ends in LF alone.
    pub lf_line: bool,
    /// One that ends in CRLF.
    pub crlf_line: bool,
    /// No semicolon before the boundary parameter.
    pub missing_semicolon: bool,
    /// Quotes in a `Content-Disposition` that are none to everybody.
    pub invalid_quoting: bool,
    /// A part that is not to be understood.
    pub invalid_part: bool,
    /// More files than the limit allows; those beyond are left out.
    pub file_limit_exceeded: bool,
    /// More arguments than the limit allows, more parts, or more or longer lines in a part's header; those beyond are left
    /// out.
    pub over_limit: bool,
    /// 1: a line that looks like a boundary and is none; 2: boundaries that are some come behind it.
    pub unmatched_boundary: u8,
    /// How many bytes there are without the contents of files.
    pub length_without_files: usize,
}

impl Multipart {
    /// Whether lines end in CRLF and in LF alone (`MULTIPART_CRLF_LF_LINES`).
    pub fn mixed_lines(&self) -> bool {
        self.crlf_line && self.lf_line
    }

    /// Whether anything is wrong (`MULTIPART_STRICT_ERROR`). Quotes around the boundary are not: clients of .NET and Java write
    /// them, as RFC 2046 has it.
    pub fn strict_error(&self) -> bool {
        self.error.is_some()
            || self.boundary_whitespace
            || self.data_before
            || self.data_after
            || self.header_folding
            || self.invalid_header_folding
            || self.lf_line
            || self.missing_semicolon
            || self.invalid_quoting
            || self.invalid_part
            || self.file_limit_exceeded
    }

    /// The first thing counts.
    pub(super) fn fail(&mut self, what: impl std::fmt::Display) {
        if self.error.is_none() {
            self.error = Some(BodyError::new("Multipart", format_args!("Multipart: {what}")));
        }
    }
}

/// Takes a form apart: texts are arguments, and parts with a file name are files. If not the whole body is given, it is no
/// error that it ends too early.
///
/// What is wrong with a part does not end the pass: its content is handed on as an argument, without name if it has none,
/// so that nothing is hidden from rules.
pub fn multipart(
    content_type: &[u8],
    body: &[u8],
    whole: bool,
    limits: &Limits,
    sink: &mut dyn Sink,
) -> Multipart {
    let mut outcome = Multipart::default();
    let boundary = match boundary(content_type) {
        Ok(boundary) => boundary,
        Err(what) => {
            outcome.fail(what);
            return outcome;
        }
    };
    let Boundary { text, quoted, whitespace, missing_semicolon } = boundary;
    outcome.boundary_quoted = quoted;
    outcome.boundary_whitespace = whitespace;
    outcome.missing_semicolon = missing_semicolon;
    let delimiter = [b"--", text].concat();
    let finder = memmem::Finder::new(&delimiter);
    let mut reader =
        Reader { body, outcome, finder, limits, sink, place: Place::Before, arguments: 0, files: 0 };
    reader.run(whole);
    reader.outcome
}

enum Place {
    Before,
    Header(Header),
    /// In the content that starts there.
    Content {
        header: Header,
        start: usize,
    },
    Behind,
}

struct Reader<'a> {
    body: &'a [u8],
    outcome: Multipart,
    /// Finds two dashes and the boundary.
    finder: memmem::Finder<'a>,
    limits: &'a Limits,
    sink: &'a mut dyn Sink,
    place: Place,
    arguments: usize,
    files: usize,
}

/// A line of the body.
#[derive(Clone, Copy)]
struct Line<'a> {
    start: usize,
    /// Without its end.
    text: &'a [u8],
    /// `\r\n`, `\n`, or nothing at the end of the body.
    end: &'a [u8],
    /// Where the next one starts.
    next: usize,
}

/// What a line is.
enum Kind {
    Boundary { last: bool },
    Other,
}

impl<'a> Reader<'a> {
    fn line(&self, start: usize) -> Line<'a> {
        let rest = &self.body[start..];
        let len = memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
        let line = &rest[..len];
        let text = line.strip_suffix(b"\r\n").or_else(|| line.strip_suffix(b"\n")).unwrap_or(line);
        Line { start, text, end: &line[text.len()..], next: start + len }
    }

    fn run(&mut self, whole: bool) {
        let mut at = 0;
        let mut before: &[u8] = b"";
        while at < self.body.len() {
            if matches!(self.place, Place::Behind) {
                // Some clients end their last line twice.
                self.outcome.data_after = &self.body[at..] != b"\r\n";
                return;
            }
            let line = self.line(at);
            at = line.next;
            match self.kind(&line) {
                Kind::Boundary { last } => {
                    self.outcome.lf_line |= before == b"\n";
                    if !self.boundary(&line, before, last) {
                        return;
                    }
                }
                Kind::Other => self.other(&line),
            }
            before = line.end;
        }
        if matches!(self.place, Place::Behind) {
            return;
        }
        let is_before = matches!(self.place, Place::Before);
        self.finish(self.body.len());
        if whole && is_before {
            self.outcome.fail("No boundaries found in payload.");
        } else if whole {
            self.outcome.fail("Final boundary missing.");
        }
    }

    fn kind(&mut self, line: &Line<'_>) -> Kind {
        let delimiter = self.finder.needle();
        let Some(behind) = line.text.strip_prefix(delimiter) else {
            self.look_alike(line.text);
            return Kind::Other;
        };
        let in_header = matches!(&self.place, Place::Header(_));
        if in_header || matches!(&self.place, Place::Content { start, .. } if *start == line.start) {
            // A part without a header's end, or without a line of content.
            self.outcome.invalid_part = true;
        }
        match behind {
            b"" if !line.end.is_empty() => Kind::Boundary { last: false },
            b"--" => Kind::Boundary { last: true },
            _ => {
                self.outcome.fail(format_args!("Invalid boundary: {}", line.text.escape_ascii()));
                self.outcome.unmatched_boundary = 1;
                Kind::Other
            }
        }
    }

    /// Notices what others may take for a boundary.
    fn look_alike(&mut self, text: &[u8]) {
        let delimiter = self.finder.needle();
        let boundary = &delimiter[2..];
        if self.finder.find(text).is_some() {
            // Some, such as Django, divide parts there; some do behind a CR.
            self.outcome.fail("Invalid boundary (within a line).");
            self.outcome.unmatched_boundary = 1;
        }
        let Some(behind) = text.strip_prefix(b"--").filter(|_| text.len() > 2) else { return };
        let white = behind.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
        if self.outcome.boundary_quoted
            && behind.strip_prefix(b"\"").is_some_and(|text| text.starts_with(boundary))
        {
            self.outcome.fail("Invalid boundary (quotes).");
        } else if white > 0 && behind[white..].starts_with(boundary) {
            self.outcome.fail("Invalid boundary (whitespace).");
        }
        self.outcome.unmatched_boundary = 1;
    }

    /// Whether to go on.
    fn boundary(&mut self, line: &Line<'_>, before: &[u8], last: bool) -> bool {
        match line.end {
            b"\n" => self.outcome.lf_line = true,
            b"\r\n" => self.outcome.crlf_line = true,
            _ => {}
        }
        if self.outcome.unmatched_boundary == 1 {
            self.outcome.unmatched_boundary = 2;
        }
        self.finish(line.start - before.len());
        if self.arguments + self.files > self.limits.arguments + self.limits.files + SPARE_PARTS {
            self.outcome.over_limit = true;
            self.outcome.fail("there are too many parts");
            return false;
        }
        self.place = if last { Place::Behind } else { Place::Header(Header::default()) };
        true
    }

    fn other(&mut self, line: &Line<'_>) {
        match &mut self.place {
            // Some clients begin with the line end that belongs to a boundary.
            Place::Before => {
                self.outcome.data_before |= line.start > 0 || line.end != b"\r\n" || !line.text.is_empty();
            }
            Place::Header(header) => {
                self.outcome.length_without_files += line.text.len() + line.end.len();
                match line.end {
                    b"\r\n" => self.outcome.crlf_line = true,
                    _ => self.outcome.lf_line = true,
                }
                if line.text.is_empty() {
                    let header = std::mem::take(header);
                    self.place = Place::Content { header, start: line.next };
                } else {
                    header.line(line.text, &mut self.outcome);
                }
            }
            Place::Content { .. } | Place::Behind => {}
        }
    }

    /// Hands on the part whose content ends there.
    fn finish(&mut self, end: usize) {
        let (header, content) = match std::mem::replace(&mut self.place, Place::Behind) {
            Place::Before | Place::Behind => return,
            Place::Header(header) => {
                self.outcome.invalid_part = true;
                (header, &b""[..])
            }
            Place::Content { header, start } => (header, &self.body[start..end.max(start)]),
        };
        let disposition = match header.field(b"Content-Disposition") {
            Some(value) => disposition::parse(value),
            None => {
                self.outcome.fail("Part missing Content-Disposition header.");
                Disposition::default()
            }
        };
        self.outcome.invalid_quoting |= disposition.invalid_quoting;
        if let Some(error) = disposition.error {
            self.outcome.fail(format_args!("Invalid Content-Disposition header ({error})."));
        }
        if disposition.name.is_empty() {
            self.outcome.invalid_part = true;
            self.outcome.fail("Content-Disposition header missing name field.");
        } else {
            self.sink.multipart_name(&disposition.name);
        }
        for line in header.lines() {
            self.sink.part_header(&disposition.name, line);
        }
        let decoded = self.decoded(&header, content);
        let is_file = !disposition.filename.is_empty();
        if is_file {
            self.file(&disposition, content, decoded.as_deref());
        }
        let has_type = || header.field(b"Content-Type").is_some_and(|kind| !kind.trim_ascii().is_empty());
        let is_unclear = || self.limits.unclear_files && !(disposition.filename_clear && has_type());
        // Behind a header that is wrong, others may find a text.
        if !is_file || disposition.error.is_some() || is_unclear() {
            self.text(&disposition, content);
            if let Some(decoded) = decoded {
                self.other_text(&disposition, &decoded);
            }
        }
    }

    /// What a part's content is to those who decode it, where that is something else. Encodings and charsets that hide it from
    /// rules are errors.
    fn decoded<'c>(&mut self, header: &Header, content: &'c [u8]) -> Option<Cow<'c, [u8]>> {
        if let Some(why) = header.field(b"Content-Type").and_then(charset::unclear) {
            self.outcome.fail(format_args!("a part of which {why}"));
        }
        let is_plain = |coding: &[u8]| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity");
        if header.field(b"Content-Encoding").is_some_and(|coding| !is_plain(coding.trim_ascii())) {
            self.outcome.fail("a part has a content coding");
        }
        match transfer::decode(header.field(b"Content-Transfer-Encoding")?, content) {
            Decoded::Same => None,
            Decoded::Other(decoded) => Some(decoded),
            Decoded::Unknown(why) => {
                self.outcome.fail(why);
                None
            }
        }
    }

    fn file(&mut self, disposition: &Disposition, content: &[u8], decoded: Option<&[u8]>) {
        let Disposition { name, filename, other_filenames, .. } = disposition;
        self.sink.multipart_filename(filename);
        other_filenames.iter().for_each(|other| self.sink.multipart_filename(other));
        self.files += 1;
        if self.files > self.limits.files {
            self.outcome.file_limit_exceeded = true;
        } else {
            self.sink.file(&File { name, filename, other_filenames, content, decoded });
        }
    }

    fn text(&mut self, disposition: &Disposition, content: &[u8]) {
        self.outcome.length_without_files += content.len();
        for name in std::iter::once(&disposition.name).chain(&disposition.decoded_name) {
            self.arguments += 1;
            if self.arguments > self.limits.arguments {
                self.outcome.over_limit = true;
            } else {
                self.sink.argument(name, content);
            }
        }
    }

    /// Hands on what else a text is to some; it counts as an argument.
    fn other_text(&mut self, disposition: &Disposition, content: &[u8]) {
        self.arguments += 1;
        if self.arguments > self.limits.arguments {
            self.outcome.over_limit = true;
        } else {
            self.sink.value(&disposition.name, content);
        }
    }
}
