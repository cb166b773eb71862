//! `multipart/form-data` (RFC 7578, RFC 2046 section 5.1), and other bodies of parts.
//!
//! A part that declares a type which is read elsewhere is read as that type, whether it has a file name or not: browsers send a `Blob`
//! of JSON as a file, and frameworks look at the type.

use std::borrow::Cow;

use memchr::{memchr, memmem};

use super::boundary::{Boundary, boundary};
use super::charset;
use super::disposition::{self, Disposition};
use super::kind::{BodyFormat, kind, media_type};
use super::part::Header;
use super::sink::{BodyError, BodyLimits, File, Sink};
use super::transfer::{self, TransferContent};
use super::typed::TypedPart;

/// The most parts that are read beyond the arguments and files that are wanted.
const SPARE_PARTS: usize = 100;
/// How many bodies of parts may be within each other; a part that is one more is an error.
const LEVELS: usize = 4;

/// The errors of a form, a field for each variable `MULTIPART_*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Multipart {
    /// The first thing that is wrong, if there is any.
    pub error: Option<BodyError>,
    /// The first error that hides content of a part from rules. It counts as an error of the body, also of multipart bodies
    /// that are no forms.
    pub hidden: Option<BodyError>,
    /// The boundary was in quotes.
    pub boundary_quoted: bool,
    /// White space around the boundary's `=`.
    pub boundary_whitespace: bool,
    /// Text before the first boundary, other than one line end. Parsers ignore it.
    pub data_before: bool,
    /// Text after the last boundary and the end of its line, other than one more line end. Parsers ignore it unless it has a boundary,
    /// which is an error.
    pub data_after: bool,
    /// A folded line in a part's header.
    pub header_folding: bool,
    /// One that is not folded by spaces and tabs alone.
    pub invalid_header_folding: bool,
    /// A line of a header or boundary that ends in LF alone.
    pub lf_line: bool,
    /// A line that ends in CRLF.
    pub crlf_line: bool,
    /// No semicolon before the boundary parameter.
    pub missing_semicolon: bool,
    /// Quotes in a `Content-Disposition` that not all parsers read as quotes.
    pub invalid_quoting: bool,
    /// A part that is not to be understood.
    pub invalid_part: bool,
    /// There are more files than the limit allows; the others are left out.
    pub file_limit_exceeded: bool,
    /// More arguments than the limit allows, more parts, or more or longer lines in a part's header; those beyond are left
    /// out.
    pub over_limit: bool,
    /// 1: a line that looks like a boundary but is not; 2: real boundaries follow it.
    pub unmatched_boundary: u8,
    /// The number of bytes, without the contents of files.
    pub length_without_files: usize,
}

impl Multipart {
    /// Returns true if some lines end in CRLF and others in LF (`MULTIPART_CRLF_LF_LINES`).
    pub fn mixed_lines(&self) -> bool {
        self.crlf_line && self.lf_line
    }

    /// Returns true if the form has any error (`MULTIPART_STRICT_ERROR`). Quotes around the boundary are none: .NET and Java clients
    /// send them, as RFC 2046 allows.
    pub fn strict_error(&self) -> bool {
        self.error.is_some()
            || self.boundary_whitespace
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

    /// Records an error that hides content.
    fn hide(&mut self, what: impl std::fmt::Display) {
        self.fail(&what);
        if self.hidden.is_none() {
            self.hidden = Some(BodyError::new("Multipart", format_args!("Multipart: {what}")));
        }
    }
}

/// Splits a form: texts become arguments, parts with a file name become files. If `whole` is false, an early end is no
/// error.
///
/// An error in a part does not end the pass: the content is emitted as an argument, without a name if there is none,
/// so that nothing is hidden from rules.
pub fn multipart(
    content_type: &[u8],
    body: &[u8],
    whole: bool,
    limits: &BodyLimits,
    sink: &mut dyn Sink,
) -> Multipart {
    let mut found = FormFindings { outcome: Multipart::default(), arguments: 0, files: 0 };
    parts(content_type, body, whole, Within { level: 1, name: b"" }, limits, sink, &mut found);
    found.outcome
}

/// The errors and counts so far.
struct FormFindings {
    outcome: Multipart,
    arguments: usize,
    files: usize,
}

/// The position within a body of parts.
#[derive(Clone, Copy)]
struct Within<'a> {
    /// In how many of them, itself counted.
    level: usize,
    /// The name of the part that it is.
    name: &'a [u8],
}

/// Parses a body of parts.
fn parts(
    content_type: &[u8],
    body: &[u8],
    whole: bool,
    within: Within<'_>,
    limits: &BodyLimits,
    sink: &mut dyn Sink,
    found: &mut FormFindings,
) {
    let Boundary { text, cut, quoted, whitespace, missing_semicolon } = match boundary(content_type) {
        Ok(boundary) => boundary,
        Err(what) => return found.outcome.hide(what),
    };
    let outcome = &mut found.outcome;
    outcome.boundary_quoted = quoted;
    outcome.boundary_whitespace = whitespace;
    outcome.missing_semicolon = missing_semicolon;
    let (delimiter, cut) = ([b"--", text].concat(), cut.map(|cut| [b"--", cut].concat()));
    let is_form = media_type(content_type).eq_ignore_ascii_case(b"multipart/form-data");
    let mut reader = FormReader {
        body,
        found,
        finder: memmem::Finder::new(&delimiter),
        cut: cut.as_deref().map(memmem::Finder::new),
        is_form,
        within,
        limits,
        sink,
        place: FormPlace::Before,
    };
    reader.run(whole);
}

enum FormPlace {
    Before,
    Header(Header),
    /// In the content that starts at this position.
    Content {
        header: Header,
        start: usize,
    },
    Behind,
}

struct FormReader<'a> {
    body: &'a [u8],
    found: &'a mut FormFindings,
    /// Finds two dashes and the boundary.
    finder: memmem::Finder<'a>,
    /// A finder for the boundary as parsers see it that end it earlier.
    cut: Option<memmem::Finder<'a>>,
    /// Set for `multipart/form-data`, where each part needs a `Content-Disposition`.
    is_form: bool,
    within: Within<'a>,
    limits: &'a BodyLimits,
    sink: &'a mut dyn Sink,
    place: FormPlace,
}

/// A line of the body.
#[derive(Clone, Copy)]
struct FormLine<'a> {
    start: usize,
    /// Without its end.
    text: &'a [u8],
    /// `\r\n`, `\n`, or nothing at the end of the body.
    end: &'a [u8],
    /// The start of the next one.
    next: usize,
}

/// The role of a line.
enum Mark {
    Boundary { last: bool },
    Other,
}

impl<'a> FormReader<'a> {
    fn line(&self, start: usize) -> FormLine<'a> {
        let rest = &self.body[start..];
        let len = memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
        let line = &rest[..len];
        let text = line.strip_suffix(b"\r\n").or_else(|| line.strip_suffix(b"\n")).unwrap_or(line);
        FormLine { start, text, end: &line[text.len()..], next: start + len }
    }

    fn run(&mut self, whole: bool) {
        let mut at = 0;
        let mut before: &[u8] = b"";
        while at < self.body.len() {
            if matches!(self.place, FormPlace::Behind) {
                return self.behind(at);
            }
            let line = self.line(at);
            at = line.next;
            match self.kind(&line) {
                Mark::Boundary { last } => {
                    self.found.outcome.lf_line |= before == b"\n";
                    if !self.boundary(&line, before, last) {
                        return;
                    }
                }
                Mark::Other => self.other(&line),
            }
            before = line.end;
        }
        if matches!(self.place, FormPlace::Behind) {
            return;
        }
        let is_before = matches!(self.place, FormPlace::Before);
        self.finish(self.body.len(), whole);
        if whole && is_before {
            self.found.outcome.hide("No boundaries found in payload.");
        } else if whole {
            self.found.outcome.fail("Final boundary missing.");
        }
    }

    /// Checks the text after the last boundary. Some clients send its line end twice.
    fn behind(&mut self, at: usize) {
        let rest = self.body.get(at..).unwrap_or_default();
        self.found.outcome.data_after = rest != b"\r\n";
        if self.finder.find(rest).is_some() {
            // To some, the parts go on.
            self.found.outcome.fail("Invalid boundary (behind the last).");
        }
        for line in rest.split(|byte| *byte == b'\n') {
            self.look_for_cut(line.trim_ascii_end());
        }
    }

    fn kind(&mut self, line: &FormLine<'_>) -> Mark {
        let delimiter = self.finder.needle();
        let Some(behind) = line.text.strip_prefix(delimiter) else {
            self.look_alike(line.text);
            return Mark::Other;
        };
        let in_header = matches!(&self.place, FormPlace::Header(_));
        if in_header || matches!(&self.place, FormPlace::Content { start, .. } if *start == line.start) {
            // A part without a header's end, or without a line of content.
            self.found.outcome.invalid_part = true;
        }
        match behind {
            b"" if !line.end.is_empty() => Mark::Boundary { last: false },
            b"--" => Mark::Boundary { last: true },
            _ => {
                self.found.outcome.fail(format_args!("Invalid boundary: {}", line.text.escape_ascii()));
                self.found.outcome.unmatched_boundary = 1;
                Mark::Other
            }
        }
    }

    /// Records text that other parsers may take for a boundary.
    fn look_alike(&mut self, text: &[u8]) {
        self.look_for_cut(text);
        let delimiter = self.finder.needle();
        let boundary = &delimiter[2..];
        if self.finder.find(text).is_some() {
            // Some, such as Django, divide parts there; some do after a CR.
            self.found.outcome.fail("Invalid boundary (within a line).");
            self.found.outcome.unmatched_boundary = 1;
        }
        let Some(behind) = text.strip_prefix(b"--").filter(|_| text.len() > 2) else { return };
        let white = behind.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
        if self.found.outcome.boundary_quoted
            && behind.strip_prefix(b"\"").is_some_and(|text| text.starts_with(boundary))
        {
            self.found.outcome.fail("Invalid boundary (quotes).");
        } else if white > 0 && behind[white..].starts_with(boundary) {
            self.found.outcome.fail("Invalid boundary (whitespace).");
        }
        self.found.outcome.unmatched_boundary = 1;
    }

    /// Records text that is a boundary for parsers that end the boundary earlier.
    fn look_for_cut(&mut self, text: &[u8]) {
        let Some(cut) = &self.cut else { return };
        let divides = |at: usize| match text.get(at + cut.needle().len()..).unwrap_or_default() {
            [] => true,
            [first, ..] if first.is_ascii_whitespace() => true,
            rest => rest.starts_with(b"--"),
        };
        if cut.find_iter(text).any(divides) {
            self.found.outcome.fail("Invalid boundary (its start alone).");
        }
    }

    /// Handles a boundary; returns false at the end of the pass.
    fn boundary(&mut self, line: &FormLine<'_>, before: &[u8], last: bool) -> bool {
        match line.end {
            b"\n" => self.found.outcome.lf_line = true,
            b"\r\n" => self.found.outcome.crlf_line = true,
            _ => {}
        }
        if self.found.outcome.unmatched_boundary == 1 {
            self.found.outcome.unmatched_boundary = 2;
        }
        self.finish(line.start - before.len(), true);
        if self.found.arguments + self.found.files > self.limits.arguments + self.limits.files + SPARE_PARTS {
            self.found.outcome.over_limit = true;
            self.found.outcome.fail("there are too many parts");
            return false;
        }
        self.place = if last { FormPlace::Behind } else { FormPlace::Header(Header::default()) };
        true
    }

    fn other(&mut self, line: &FormLine<'_>) {
        match &mut self.place {
            // Some clients begin with the line end that belongs to a boundary.
            FormPlace::Before => {
                self.found.outcome.data_before |=
                    line.start > 0 || line.end != b"\r\n" || !line.text.is_empty();
            }
            FormPlace::Header(header) => {
                self.found.outcome.length_without_files += line.text.len() + line.end.len();
                match line.end {
                    b"\r\n" => self.found.outcome.crlf_line = true,
                    _ => self.found.outcome.lf_line = true,
                }
                if line.text.is_empty() {
                    let header = std::mem::take(header);
                    self.place = FormPlace::Content { header, start: line.next };
                } else {
                    header.line(line.text, &mut self.found.outcome);
                }
            }
            FormPlace::Content { .. } | FormPlace::Behind => {}
        }
    }

    /// Emits the part whose content ends at `end`.
    fn finish(&mut self, end: usize, whole: bool) {
        let (header, content) = match std::mem::replace(&mut self.place, FormPlace::Behind) {
            FormPlace::Before | FormPlace::Behind => return,
            FormPlace::Header(header) => {
                self.found.outcome.invalid_part = true;
                (header, &b""[..])
            }
            FormPlace::Content { header, start } => (header, self.body.get(start..end).unwrap_or_default()),
        };
        let disposition = self.disposition(&header);
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
        // After a header that is wrong, others may find a text.
        if !is_file || disposition.error.is_some() || is_unclear() {
            self.text(&disposition, content);
            if let Some(decoded) = &decoded {
                self.other_text(&disposition, decoded);
            }
        }
        self.typed(&header, &disposition, content, decoded.as_deref(), whole);
    }

    /// The name of a part from its header. Each part of a form needs one.
    fn disposition(&mut self, header: &Header) -> Disposition {
        let field = header.field(b"Content-Disposition");
        if !self.is_form {
            let mut disposition = field.map(disposition::parse_any).unwrap_or_default();
            if disposition.name.is_empty() {
                disposition.name = self.within.name.to_vec();
            }
            return disposition;
        }
        let disposition = match field {
            Some(value) => disposition::parse(value),
            None => {
                self.found.outcome.fail("Part missing Content-Disposition header.");
                Disposition::default()
            }
        };
        self.found.outcome.invalid_quoting |= disposition.invalid_quoting;
        if let Some(error) = disposition.error {
            self.found.outcome.fail(format_args!("Invalid Content-Disposition header ({error})."));
        }
        if disposition.name.is_empty() {
            self.found.outcome.invalid_part = true;
            self.found.outcome.fail("Content-Disposition header missing name field.");
        } else {
            self.sink.multipart_name(&disposition.name);
        }
        disposition
    }

    /// Emits the values of a part whose type is read: of its content as sent, and decoded.
    fn typed(
        &mut self,
        header: &Header,
        disposition: &Disposition,
        content: &[u8],
        decoded: Option<&[u8]>,
        whole: bool,
    ) {
        let Some(field) = header.field(b"Content-Type") else { return };
        let kind = kind(field);
        match kind {
            BodyFormat::Other => return,
            BodyFormat::Multipart => {
                return self.nested(field, &disposition.name, decoded.unwrap_or(content), whole);
            }
            BodyFormat::Json(_) | BodyFormat::Xml | BodyFormat::UrlEncoded => {}
        }
        let root = if disposition.name.is_empty() { &b"json"[..] } else { &disposition.name };
        for (text, counts) in [(Some(content), decoded.is_none()), (decoded, true)] {
            let Some(text) = text else { continue };
            let left = self.limits.arguments.saturating_sub(self.found.arguments);
            let typed =
                TypedPart { kind, root, whole, limits: BodyLimits { arguments: left, ..*self.limits } };
            let (values, outcome) = typed.read(text, self.sink);
            self.found.arguments += values;
            match outcome {
                Err(error) if error.is_limit() => {
                    self.found.outcome.over_limit = true;
                    self.found.outcome.fail(error);
                }
                // Documents of XML that are uploaded may be any, and are files to most.
                Err(_) if kind == BodyFormat::Xml && !disposition.filename.is_empty() => {}
                Err(error) if counts => self.found.outcome.hide(format_args!("a part: {error}")),
                _ => {}
            }
        }
    }

    /// Splits a part that is multipart itself. Only errors that hide content from rules count.
    fn nested(&mut self, content_type: &[u8], name: &[u8], content: &[u8], whole: bool) {
        let level = self.within.level + 1;
        if level > LEVELS {
            return self.found.outcome.hide(format_args!("more than {LEVELS} levels of parts"));
        }
        let mut found = FormFindings {
            outcome: Multipart::default(),
            arguments: self.found.arguments,
            files: self.found.files,
        };
        parts(content_type, content, whole, Within { level, name }, self.limits, self.sink, &mut found);
        let FormFindings { outcome, arguments, files } = found;
        (self.found.arguments, self.found.files) = (arguments, files);
        self.found.outcome.over_limit |= outcome.over_limit;
        self.found.outcome.file_limit_exceeded |= outcome.file_limit_exceeded;
        if let Some(hidden) = outcome.hidden {
            self.found.outcome.fail(&hidden);
            self.found.outcome.hidden.get_or_insert(hidden);
        }
    }

    /// The content of a part after its transfer encoding is removed, if that changes it. Encodings and charsets that hide it from
    /// rules are errors.
    fn decoded<'c>(&mut self, header: &Header, content: &'c [u8]) -> Option<Cow<'c, [u8]>> {
        if let Some(why) = header.field(b"Content-Type").and_then(charset::unclear) {
            self.found.outcome.hide(format_args!("a part of which {why}"));
        }
        let is_plain = |coding: &[u8]| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity");
        if header.field(b"Content-Encoding").is_some_and(|coding| !is_plain(coding.trim_ascii())) {
            self.found.outcome.hide("a part has a content coding");
        }
        match transfer::decode(header.field(b"Content-Transfer-Encoding")?, content) {
            TransferContent::Same => None,
            TransferContent::Other(decoded) => Some(decoded),
            TransferContent::Unknown(why) => {
                self.found.outcome.hide(why);
                None
            }
        }
    }

    fn file(&mut self, disposition: &Disposition, content: &[u8], decoded: Option<&[u8]>) {
        let Disposition { name, filename, other_filenames, .. } = disposition;
        self.sink.multipart_filename(filename);
        other_filenames.iter().for_each(|other| self.sink.multipart_filename(other));
        self.found.files += 1;
        if self.found.files > self.limits.files {
            self.found.outcome.file_limit_exceeded = true;
        } else {
            self.sink.file(&File { name, filename, other_filenames, content, decoded });
        }
    }

    fn text(&mut self, disposition: &Disposition, content: &[u8]) {
        self.found.outcome.length_without_files += content.len();
        for name in std::iter::once(&disposition.name).chain(&disposition.decoded_name) {
            self.found.arguments += 1;
            if self.found.arguments > self.limits.arguments {
                self.found.outcome.over_limit = true;
            } else {
                self.sink.argument(name, content);
            }
        }
    }

    /// Emits alternative readings of a text as arguments.
    fn other_text(&mut self, disposition: &Disposition, content: &[u8]) {
        self.found.arguments += 1;
        if self.found.arguments > self.limits.arguments {
            self.found.outcome.over_limit = true;
        } else {
            self.sink.value(&disposition.name, content);
        }
    }
}
