//! Request and response heads: start line and fields (RFC 9112, 2 to 5).
//!
//! Each call passes all unread bytes. The parser remembers its position, so input that arrives byte by byte costs
//! about as much as input that arrives at once. The result depends on the bytes alone, not on how they are split: an
//! error is reported for the first byte that makes it certain, also if that byte exceeds a limit.

mod error;
mod line;

pub(crate) use self::error::LineError;
pub use self::error::{RequestError, ResponseError};
pub(crate) use self::line::{Line, field_line};
use self::line::{request_line, status_line};
use crate::chars::{token_end, value_end, word_end};
use crate::headers::{HeaderList, MAX_NAME};
use crate::method::{Method, Version};

/// Empty lines that are skipped before a request line (RFC 9112, 2.2 asks for at least one).
pub const MAX_LEADING_EMPTY_LINES: u8 = 4;
/// No head is larger than this, whatever the limits say: offsets are 32 bits wide.
const MAX_HEAD_BYTES: usize = 1 << 30;

/// A head's fields are remembered for the next head only if they have at most this many bytes.
const REMEMBERED: usize = 4096;

/// The limits of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadLimits {
    /// Bytes of the whole head, line ends and the empty line included. Default 64 KiB.
    pub bytes: usize,
    /// Bytes of one line without its line end. Default 16 KiB.
    pub line: usize,
    /// Number of fields. Default 128.
    pub fields: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { bytes: 64 * 1024, line: 16 * 1024, fields: 128 }
    }
}

/// A parsed request head. Meant to be reused: parsing clears it and keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The version of the request line.
    pub version: Version,
    /// The fields in order.
    pub headers: HeaderList,
    target: Vec<u8>,
    before: Before,
}

/// The fields of the last head that was parsed, as they came. The next head on a connection usually repeats all or
/// most of them, and repeated fields need not be parsed again.
#[derive(Clone, Debug, Default)]
struct Before(Option<Box<Fields>>);

/// Parsed fields, and the limits with which they were parsed.
#[derive(Clone, Debug)]
struct Fields {
    headers: HeaderList,
    limits: HeadLimits,
}

impl Before {
    /// Records the fields of a complete head, unless they are larger than [`REMEMBERED`].
    #[inline]
    fn remember(&mut self, headers: &HeaderList, limits: &HeadLimits) {
        if headers.arena_len() > REMEMBERED {
            self.0 = None;
            return;
        }
        match &mut self.0 {
            Some(before) => {
                before.headers.clone_from(headers);
                before.limits = *limits;
            }
            None => self.0 = Some(Box::new(Fields { headers: headers.clone(), limits: *limits })),
        }
    }

    /// The remembered fields, if they were parsed with the same limits.
    #[inline]
    fn within(&self, limits: &HeadLimits) -> Option<&HeaderList> {
        self.0.as_deref().filter(|before| before.limits == *limits).map(|before| &before.headers)
    }

    /// Copies the fields of the last head if the input repeats all of them from `at` on. Returns where they end.
    #[inline]
    fn repeat(
        &self,
        headers: &mut HeaderList,
        input: &[u8],
        at: usize,
        limits: &HeadLimits,
    ) -> Option<usize> {
        let before = self.within(limits)?;
        let rest = input.get(at..input.len().min(limits.bytes))?;
        headers.repeat(before, rest).map(|length| at + length)
    }

    fn memory(&self) -> usize {
        self.0.as_deref().map_or(0, |before| size_of::<Fields>() + before.headers.memory())
    }
}

impl RequestHead {
    /// An empty head that has not allocated.
    pub const fn new() -> Self {
        Self {
            method: Method::Get,
            version: Version::Http11,
            headers: HeaderList::new(),
            target: Vec::new(),
            before: Before(None),
        }
    }

    /// The request target as it came, never empty after a successful parse.
    #[inline]
    pub fn target(&self) -> &[u8] {
        &self.target
    }

    /// Replaces the raw target, for heads that do not come from the HTTP/1 parser.
    pub fn set_target(&mut self, target: &[u8]) {
        self.target.clear();
        self.target.extend_from_slice(target);
    }

    /// Empties the head and keeps its memory.
    #[inline]
    pub fn clear(&mut self) {
        self.method = Method::Get;
        self.version = Version::Http11;
        self.headers.clear();
        self.target.clear();
    }

    /// The memory that the head has allocated, in bytes.
    pub fn memory(&self) -> usize {
        self.headers.memory() + self.target.capacity() + self.before.memory()
    }

    /// Frees memory beyond these sizes, so that one large request does not occupy memory until the connection ends.
    pub fn shrink_to(&mut self, bytes: usize, fields: usize) {
        self.headers.shrink_to(bytes, fields);
        self.target.shrink_to(bytes);
    }

    /// Forgets the last head's fields, which are kept for comparison. Their memory stays allocated. Called before a
    /// request of another client.
    pub fn forget(&mut self) {
        if let Some(before) = &mut self.before.0 {
            before.headers.clear();
        }
    }
}

/// A parsed response head. Meant to be reused: parsing clears it and keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    /// The version of the status line.
    pub version: Version,
    /// The status code, 100 to 999 (0 before the first parse).
    pub status: u16,
    /// The fields in order.
    pub headers: HeaderList,
    reason: Vec<u8>,
    before: Before,
}

impl ResponseHead {
    /// An empty head that has not allocated.
    pub const fn new() -> Self {
        Self {
            version: Version::Http11,
            status: 0,
            headers: HeaderList::new(),
            reason: Vec::new(),
            before: Before(None),
        }
    }

    /// The reason phrase as it came, often empty.
    #[inline]
    pub fn reason(&self) -> &[u8] {
        &self.reason
    }

    /// Empties the head and keeps its memory.
    #[inline]
    pub fn clear(&mut self) {
        self.version = Version::Http11;
        self.status = 0;
        self.headers.clear();
        self.reason.clear();
    }

    /// The memory that the head has allocated, in bytes.
    pub fn memory(&self) -> usize {
        self.headers.memory() + self.reason.capacity() + self.before.memory()
    }

    /// Frees memory beyond these sizes.
    pub fn shrink_to(&mut self, bytes: usize, fields: usize) {
        self.headers.shrink_to(bytes, fields);
        self.reason.shrink_to(bytes);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    StartLine,
    Fields,
}

/// The position in a head that is being parsed. Each direction of a connection has its own parser. It is ready for the
/// next head after a complete head, and after [`reset`](Self::reset).
#[derive(Clone, Debug, Default)]
pub struct HeadParser {
    stage: Stage,
    /// The start of the line that is not complete yet.
    line: usize,
    /// The position up to which this line has been scanned.
    seen: usize,
    /// The number of separators before `seen`: spaces in a start line, colons in a field line.
    part: usize,
    /// The start of the fields; the offsets in the list count from here.
    base: usize,
    empty_lines: u8,
}

impl HeadParser {
    /// A parser at the beginning of a head.
    pub const fn new() -> Self {
        Self { stage: Stage::StartLine, line: 0, seen: 0, part: 0, base: 0, empty_lines: 0 }
    }

    /// Resets the state of an incomplete head.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Parses a request head.
    ///
    /// `input` holds all unread bytes: those of the last call, and more. `Some(n)` means that the head is complete and has
    /// `n` bytes. They have been copied into `head`, so the caller may reuse the buffer, and the parser is ready for the
    /// next head. `None` asks for more input; the caller must not change `head` before the next call.
    ///
    /// # Errors
    /// The first error in the order of the bytes; the parser must be reset after it.
    pub fn parse_request(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
        head: &mut RequestHead,
    ) -> Result<Option<usize>, RequestError> {
        if self.stage == Stage::StartLine {
            if self.seen == 0 {
                head.clear();
            }
            if !self.skip_empty_lines(input)? {
                return Ok(None);
            }
            let window = Window::new(self.line, input, limits);
            if !self.is_due(window, [token_end, word_end, word_end]) {
                return Ok(None);
            }
            match request_line(window.bytes, self.line, head)? {
                Some(end) => {
                    if let Some(end) = head.before.repeat(&mut head.headers, input, end, limits) {
                        self.reset();
                        return Ok(Some(end));
                    }
                    self.begin_fields(end);
                }
                None if window.is_full => return Err(RequestError::TargetTooLong),
                None => {
                    self.wait(window, b' ');
                    return Ok(None);
                }
            }
        }
        Ok(self.fields(input, limits, &mut head.headers, &mut head.before)?)
    }

    /// Parses a response head; see [`parse_request`](Self::parse_request).
    ///
    /// # Errors
    /// The first fault in the order of the bytes; the parser must be reset after it.
    pub fn parse_response(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
        head: &mut ResponseHead,
    ) -> Result<Option<usize>, ResponseError> {
        if self.stage == Stage::StartLine {
            if self.seen == 0 {
                head.clear();
            }
            let window = Window::new(self.line, input, limits);
            if !self.is_due(window, [value_end; 3]) {
                return Ok(None);
            }
            match status_line(window.bytes, self.line, head)? {
                Some(end) => {
                    if let Some(end) = head.before.repeat(&mut head.headers, input, end, limits) {
                        self.reset();
                        return Ok(Some(end));
                    }
                    self.begin_fields(end);
                }
                None if window.is_full => return Err(ResponseError::LineTooLong),
                None => {
                    self.wait(window, b' ');
                    return Ok(None);
                }
            }
        }
        Ok(self.fields(input, limits, &mut head.headers, &mut head.before)?)
    }

    /// Skips CRLFs at the start of the line; returns false if more input is needed.
    #[inline]
    fn skip_empty_lines(&mut self, input: &[u8]) -> Result<bool, RequestError> {
        while input.get(self.line) == Some(&b'\r') {
            match input.get(self.line + 1) {
                None => return Ok(false),
                Some(b'\n') if self.empty_lines < MAX_LEADING_EMPTY_LINES => {
                    self.empty_lines += 1;
                    self.line += 2;
                    self.seen = self.line;
                }
                Some(b'\n') => return Err(RequestError::BadRequestLine),
                Some(_) => return Err(RequestError::BareCr),
            }
        }
        Ok(true)
    }

    /// Returns true if the current line should be parsed now: if it is new, or if the new bytes contain the end of the
    /// part that was incomplete (method, target, name, value). `ends` has a function for each part that finds this end. So
    /// a line is parsed a few times at most, and an error is reported at the byte that makes it certain.
    #[inline]
    fn is_due<const N: usize>(&mut self, window: Window<'_>, ends: [fn(&[u8], usize) -> usize; N]) -> bool {
        if self.seen <= self.line || window.is_full {
            return true;
        }
        let end = ends.get(self.part).or(ends.last());
        self.seen = end.map_or(self.seen, |end| end(window.bytes, self.seen));
        self.seen < window.bytes.len()
    }

    /// Remembers how far an incomplete line has been scanned, and in which part the scan ended. A CR at the end is scanned
    /// again by the next call.
    fn wait(&mut self, window: Window<'_>, separator: u8) {
        let line = window.bytes.get(self.line..).unwrap_or_default();
        let undecided = usize::from(line.last() == Some(&b'\r'));
        self.seen = window.bytes.len() - undecided;
        self.part = line.iter().filter(|&&byte| byte == separator).count();
    }

    #[inline]
    fn begin_fields(&mut self, at: usize) {
        self.stage = Stage::Fields;
        self.line = at;
        self.seen = at;
        self.base = at;
    }

    fn fields(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
        headers: &mut HeaderList,
        before: &mut Before,
    ) -> Result<Option<usize>, LineError> {
        let read = self.field_lines(input, limits, headers, before.within(limits));
        // Append the bytes of all new entries, even if the head is incomplete or refused: no entry may be without its bytes.
        let end = if let Ok(Some(end)) = read { end } else { self.line };
        headers.append_arena(input.get(self.base + headers.arena_len()..end).unwrap_or_default());
        if let Ok(Some(_)) = read {
            self.reset();
            before.remember(headers, limits);
        }
        read
    }

    /// Takes over fields of the last head as long as each line equals the line at the same position in that head.
    #[inline]
    fn repeat_lines(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
        headers: &mut HeaderList,
        before: &HeaderList,
    ) {
        let head = input.get(..limits.bytes.min(MAX_HEAD_BYTES)).unwrap_or(input);
        while let Some(rest) = head.get(self.line..)
            && let Some(length) = headers.repeat_line(before, self.line - self.base, rest)
        {
            self.line += length;
            self.seen = self.line;
        }
    }

    /// Parses all complete lines. It adds entries only; the caller appends their bytes to the list.
    #[inline]
    fn field_lines(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
        headers: &mut HeaderList,
        before: Option<&HeaderList>,
    ) -> Result<Option<usize>, LineError> {
        loop {
            if let Some(before) = before {
                self.repeat_lines(input, limits, headers, before);
            }
            let window = Window::new(self.line, input, limits);
            if !self.is_due(window, [token_end, value_end]) {
                return Ok(None);
            }
            match field_line(window.bytes, self.line)? {
                Line::Field(field) => {
                    if headers.len() >= limits.fields {
                        return Err(LineError::TooManyFields);
                    }
                    if field.name_len > MAX_NAME {
                        return Err(LineError::LineTooLong);
                    }
                    headers.push_entry(
                        field.id,
                        field.underscore,
                        (self.line - self.base) as u32,
                        field.name_len as u16,
                        (field.value_start - self.base) as u32,
                        field.value_len as u32,
                    );
                    self.line = field.end;
                    self.seen = field.end;
                }
                Line::End(end) => return Ok(Some(end)),
                Line::Incomplete if window.is_full && window.is_head => {
                    return Err(LineError::HeadTooLarge);
                }
                Line::Incomplete if window.is_full => return Err(LineError::LineTooLong),
                Line::Incomplete => {
                    self.wait(window, b':');
                    return Ok(None);
                }
            }
        }
    }
}

/// The input up to the point at which the current line would exceed a limit.
#[derive(Clone, Copy)]
struct Window<'a> {
    bytes: &'a [u8],
    /// Set if a limit ends the window: the line is too long unless it ends within these bytes.
    is_full: bool,
    /// Set if this is the limit for the head, not the one for a line.
    is_head: bool,
}

impl<'a> Window<'a> {
    #[inline]
    fn new(line: usize, input: &'a [u8], limits: &HeadLimits) -> Self {
        let head_end = limits.bytes.min(MAX_HEAD_BYTES);
        let line_end = line.saturating_add(limits.line).saturating_add(2);
        let end = head_end.min(line_end);
        if input.len() < end {
            return Self { bytes: input, is_full: false, is_head: false };
        }
        Self { bytes: input.get(..end).unwrap_or(input), is_full: true, is_head: head_end <= line_end }
    }
}
