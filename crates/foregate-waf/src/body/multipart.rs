//! `multipart/form-data` (RFC 7578, RFC 2046 section 5.1), and other bodies of parts.
//!
//! A part that declares the type of another known format, such as JSON, is read in that format, with or
//! without a file name. Browsers send a `Blob` of JSON as a file, and frameworks look at the type.

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

/// The number of parts that a form may have beyond the sum of the limits of arguments and of files. With more parts,
/// the pass ends.
const SPARE_PARTS: usize = 100;
/// The deepest nesting of multipart bodies. A multipart body inside the deepest one is an error.
const LEVELS: usize = 4;

/// The errors of a form; most fields are those of the variables `MULTIPART_*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Multipart {
    /// The first error, if there is any.
    pub error: Option<BodyError>,
    /// The first error that hides content of a part from rules. It counts as an error of the body, also of multipart bodies
    /// that are no forms.
    pub hidden: Option<BodyError>,
    /// Set if the boundary was in quotes.
    pub boundary_quoted: bool,
    /// Set if there was white space around the boundary's `=`.
    pub boundary_whitespace: bool,
    /// Set if there is text before the first boundary, other than one line end. Parsers ignore such text.
    pub data_before: bool,
    /// Set if there is text after the line of the last boundary, other than one more line end. Parsers ignore
    /// such text, unless it contains a boundary, which is an error.
    pub data_after: bool,
    /// Set if a part's header has a folded line.
    pub header_folding: bool,
    /// Set if a header line is folded by something other than spaces and tabs.
    pub invalid_header_folding: bool,
    /// Set if a line of a header or boundary ends in LF alone.
    pub lf_line: bool,
    /// Set if such a line ends in CRLF.
    pub crlf_line: bool,
    /// Set if there is no semicolon before the boundary parameter.
    pub missing_semicolon: bool,
    /// Set if a `Content-Disposition` has quotes that some parsers do not read as quotes.
    pub invalid_quoting: bool,
    /// Set if a part is malformed.
    pub invalid_part: bool,
    /// Set if there are more files than the limit allows. The further files are left out.
    pub file_limit_exceeded: bool,
    /// Set if there are more arguments or parts than the limits allow, or more or longer lines in a part's
    /// header. Everything beyond a limit is left out.
    pub over_limit: bool,
    /// 0 if every line that looks like a boundary is one; 1 if some line only looks like a boundary; 2 if a real
    /// boundary follows such a line.
    pub unmatched_boundary: u8,
    /// The length of the body in bytes, without the contents of files.
    pub length_without_files: usize,
}

impl Multipart {
    /// Returns true if some lines end in CRLF and others in LF (`MULTIPART_CRLF_LF_LINES`).
    pub fn mixed_lines(&self) -> bool {
        self.crlf_line && self.lf_line
    }

    /// Returns true if the form has any error (`MULTIPART_STRICT_ERROR`). Quotes around the boundary are no
    /// error: .NET and Java clients send them, as RFC 2046 allows.
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

    /// Records an error, unless there is an earlier one.
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

/// Splits a form: texts become arguments, and parts with a file name become files. If `whole` is false, an
/// early end is no error.
///
/// An error in a part does not end the pass. The content of the part is then emitted as an argument, with an empty name
/// if the part has no name, so that nothing is hidden from rules.
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

/// The position of a multipart body within others.
#[derive(Clone, Copy)]
struct Within<'a> {
    /// The nesting depth of the body; 1 for the outermost.
    level: usize,
    /// The name of the part that contains the body.
    name: &'a [u8],
}

/// Parses a multipart body.
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
    /// In the content of a part, which starts at this position.
    Content {
        header: Header,
        start: usize,
    },
    Behind,
}

struct FormReader<'a> {
    body: &'a [u8],
    found: &'a mut FormFindings,
    /// Finds the boundary with its two leading dashes.
    finder: memmem::Finder<'a>,
    /// Finds the shorter boundary that some parsers use ([`Boundary::cut`]).
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
    /// The line without its end.
    text: &'a [u8],
    /// The end of the line: `\r\n`, `\n`, or nothing if the body ends there.
    end: &'a [u8],
    /// The position of the next line.
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

    /// Checks the text after the last boundary. A second line end is allowed: some clients send it.
    fn behind(&mut self, at: usize) {
        let rest = self.body.get(at..).unwrap_or_default();
        self.found.outcome.data_after = rest != b"\r\n";
        if self.finder.find(rest).is_some() {
            // Some parsers read further parts here.
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
            // The part's header does not end, or the part has no content.
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

    /// Records an error if the text may be a boundary for other parsers.
    fn look_alike(&mut self, text: &[u8]) {
        self.look_for_cut(text);
        let delimiter = self.finder.needle();
        let boundary = &delimiter[2..];
        if self.finder.find(text).is_some() {
            // Some parsers, such as Django's, end a part at a boundary within a line, and some at a boundary after a CR.
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

    /// Records an error if the text contains the shorter boundary that some parsers use.
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
            // Some clients send the line end of the first boundary although no text precedes it.
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

    /// Emits the part with content that ends at `end`.
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
        // If the header has an error, other parsers may read the part as a text.
        if !is_file || disposition.error.is_some() || is_unclear() {
            self.text(&disposition, content);
            if let Some(decoded) = &decoded {
                self.other_text(&disposition, decoded);
            }
        }
        self.typed(&header, &disposition, content, decoded.as_deref(), whole);
    }

    /// Reads the `Content-Disposition` of a part. In a form, a part without a name is an error.
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

    /// Emits the values of a part in a known format: from its content as sent, and from its decoded content.
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
                // An uploaded XML document may be of any kind, and most applications treat it as a file: its errors do not
                // count.
                Err(_) if kind == BodyFormat::Xml && !disposition.filename.is_empty() => {}
                Err(error) if counts => self.found.outcome.hide(format_args!("a part: {error}")),
                _ => {}
            }
        }
    }

    /// Splits a part that is a multipart body itself. Of its errors, only those count that hide content from rules.
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

    /// The content of a part with its transfer encoding removed, if that changes it. Encodings and charsets that
    /// hide the content from rules are errors.
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

    /// Emits as arguments the readings of a text by other parsers.
    fn other_text(&mut self, disposition: &Disposition, content: &[u8]) {
        self.found.arguments += 1;
        if self.found.arguments > self.limits.arguments {
            self.found.outcome.over_limit = true;
        } else {
            self.sink.value(&disposition.name, content);
        }
    }
}
