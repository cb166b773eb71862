//! The readings of a path: the other paths for which an origin may take it.
//!
//! The model of an origin is a sequence of operations on the path that it receives. It decodes escapes (all of them,
//! or all but separators; once or twice), takes a backslash for a slash, strips parameters, merges slashes and
//! resolves dot segments, in any order. The search applies each operation to each text that it has found.
//! `tests/wire/origins.rs` compares its result with that of all sequences.

use std::collections::VecDeque;

use crate::chars::of;
use crate::path::{PATH, Slashes, UNRESERVED, normalize_path};

/// The number of times that an origin may decode `%25` in a path.
const DECODINGS: u8 = 2;
/// The most texts that are searched for one path. A path with more readings than this is refused.
const TEXTS: usize = 128;
/// The bytes that a search may write, where each text counts [`WORK_OF_TEXT`] bytes more than it has. A long path may
/// use more: enough for [`TEXTS_LEAST`] texts of its length. The search is limited because a client needs only one byte
/// to repeat a path that is in the header table of an HTTP/2 connection.
const WORK: usize = 48 * 1024;
const WORK_OF_TEXT: usize = 64;
const TEXTS_LEAST: usize = 10;

/// Returns the other readings of a path in normal form (see the module). For some origins, an empty segment (`//`)
/// counts as a segment, so that `..` after it removes only the empty segment. `slashes` says how the normal form
/// treats several slashes in a row. Returns `None` if there are too many readings, or as soon as `admits` refuses one.
/// The list is empty, and nothing is allocated, if there is no other reading.
pub fn other_readings(
    path: &[u8],
    slashes: Slashes,
    admits: impl FnMut(&[u8]) -> bool,
) -> Option<Vec<Vec<u8>>> {
    let merges = slashes == Slashes::Keep && path.windows(2).any(|pair| pair == b"//");
    if memchr::memchr2(b'%', b';', path).is_none() && !merges {
        return Some(Vec::new());
    }
    let mut escapes = Vec::new();
    if signs(path, &mut escapes) & READ_OTHERWISE == 0 && !merges {
        return Some(Vec::new());
    }
    let mut search = Search {
        bytes: path.to_vec(),
        texts: vec![ReadingText { start: 0, end: path.len(), decodings: 0, skipped: 0, done: 0 }],
        unread: VecDeque::from([0]),
        escapes,
        written: Vec::new(),
        work: WORK.max(TEXTS_LEAST * (path.len() + WORK_OF_TEXT)),
        admits,
    };
    while let Some(at) = search.unread.pop_front() {
        search.read(at)?;
    }
    let readings = search.texts.iter().skip(1);
    Some(readings.map(|text| text.of(&search.bytes).to_vec()).collect())
}

/// A search over the results of all operations on a path.
struct Search<F> {
    /// The bytes of all texts, one after the other. The first text is the path itself.
    bytes: Vec<u8>,
    texts: Vec<ReadingText>,
    /// Indexes in `texts`: texts to which operations have yet to be applied.
    unread: VecDeque<usize>,
    /// The escapes in the text to which operations are being applied.
    escapes: Vec<Escape>,
    /// The result of an operation; it may be a text that was found before.
    written: Vec<u8>,
    /// The number of bytes that may still be written.
    work: usize,
    admits: F,
}

#[derive(Clone, Copy)]
struct ReadingText {
    start: usize,
    end: usize,
    /// The number of times that `%25` was decoded to get this text.
    decodings: u8,
    /// Operations that are not applied, because another order of the same operations leads to the same text.
    skipped: u16,
    /// Operations that were applied.
    done: u16,
}

impl ReadingText {
    fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start..self.end).unwrap_or_default()
    }
}

impl<F: FnMut(&[u8]) -> bool> Search<F> {
    /// Applies each operation to a text. `None` if that is too much work, or if `admits` refuses a result.
    fn read(&mut self, at: usize) -> Option<()> {
        let Some(&text) = self.texts.get(at) else { return Some(()) };
        self.escapes.clear();
        let signs = signs(text.of(&self.bytes), &mut self.escapes);
        let mut open = operations(signs) & !text.skipped & !text.done;
        if text.decodings == DECODINGS {
            open &= !PERCENT;
        }
        if let Some(text) = self.texts.get_mut(at) {
            text.done |= open;
        }
        let mut earlier = 0;
        for operation in OPERATIONS {
            if open & operation == 0 {
                continue;
            }
            let (from, to) = (text.of(&self.bytes), &mut self.written);
            match operation {
                PARAMETERS => without_parameters(from, to),
                QUERY => without_query(from, &self.escapes, to),
                EMPTY_SEGMENT => merge_slashes(from, to),
                DOTS => resolve(from, Empty::Counts, to),
                DOTS_PAST_EMPTY => resolve(from, Empty::IsPassed, to),
                // An origin would refuse an invalid path, so it is no reading.
                LOOSE if normalize_path(from, Slashes::Keep, to).is_err() => continue,
                LOOSE => {}
                sign => decode(from, &self.escapes, sign, to),
            }
            let skipped = if COMMUTING & operation == 0 { 0 } else { earlier | text.skipped };
            self.add(text.decodings + u8::from(operation == PERCENT), skipped)?;
            earlier |= operation & COMMUTING;
        }
        Some(())
    }

    /// Adds the written text, unless it was found before. `None` if there are too many texts, or if `admits` refuses it.
    fn add(&mut self, decodings: u8, skipped: u16) -> Option<()> {
        let written = std::mem::take(&mut self.written);
        self.work = self.work.checked_sub(written.len() + WORK_OF_TEXT)?;
        let known = self.texts.iter().position(|text| text.of(&self.bytes) == written);
        let at = known.unwrap_or(self.texts.len());
        if at == TEXTS {
            return None;
        }
        if let Some(text) = self.texts.get_mut(at) {
            if decodings < text.decodings || text.skipped & !skipped != 0 {
                text.decodings = text.decodings.min(decodings);
                text.skipped &= skipped;
                self.unread.push_back(at);
            }
        } else {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&written);
            self.texts.push(ReadingText { start, end: self.bytes.len(), decodings, skipped, done: 0 });
            self.unread.push_back(at);
            if !(self.admits)(&written) {
                return None;
            }
        }
        self.written = written;
        self.written.clear();
        Some(())
    }
}

// These bits are the signs: things that are found in a text, each of which calls for one operation. The first six are
// the escapes of a slash, of a backslash, of a semicolon, of other path characters, of `?` and `#`, and of a percent
// sign that starts an escape once decoded. The seventh is a plain semicolon.
const SLASH: u16 = 1;
const BACKSLASH: u16 = 1 << 1;
const SEMICOLON: u16 = 1 << 2;
const OTHER: u16 = 1 << 3;
const QUERY: u16 = 1 << 4;
const PERCENT: u16 = 1 << 5;
const PARAMETERS: u16 = 1 << 6;
/// Escapes that cannot be in a normal form: of unreserved characters, with lower-case digits, or broken.
const LOOSE: u16 = 1 << 7;
/// Several slashes in a row.
const EMPTY_SEGMENT: u16 = 1 << 8;
/// A segment that begins with a dot. Dot segments are resolved; an empty segment counts as a segment.
const DOTS: u16 = 1 << 9;
/// `..` and several slashes in a row. Dot segments are resolved; `..` skips empty segments.
const DOTS_PAST_EMPTY: u16 = 1 << 10;
const READ_OTHERWISE: u16 = SLASH | BACKSLASH | SEMICOLON | OTHER | QUERY | PERCENT | PARAMETERS;
/// The order in which operations are applied.
const OPERATIONS: [u16; 11] = [
    QUERY,
    SLASH,
    BACKSLASH,
    SEMICOLON,
    OTHER,
    DOTS,
    EMPTY_SEGMENT,
    DOTS_PAST_EMPTY,
    PARAMETERS,
    LOOSE,
    PERCENT,
];
/// Operations that commute, since they act on different escapes.
const COMMUTING: u16 = QUERY | SLASH | BACKSLASH | SEMICOLON | OTHER;

/// The operations that may change a text with these signs.
fn operations(signs: u16) -> u16 {
    const PAST_EMPTY: u16 = DOTS | EMPTY_SEGMENT;
    if signs & PAST_EMPTY == PAST_EMPTY { signs | DOTS_PAST_EMPTY } else { signs }
}

/// The sign for the escape of each byte.
static ESCAPES: [u16; 256] = escapes();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, for which a place out of bounds is an error"
)]
const fn escapes() -> [u16; 256] {
    let mut escapes = [0; 256];
    let mut byte = 0;
    while byte < escapes.len() {
        if PATH[byte] {
            escapes[byte] = OTHER;
        }
        if UNRESERVED[byte] {
            escapes[byte] |= LOOSE;
        }
        byte += 1;
    }
    escapes[0] = LOOSE;
    escapes[b'/' as usize] = SLASH;
    escapes[b'\\' as usize] = BACKSLASH;
    escapes[b';' as usize] = SEMICOLON;
    escapes[b'?' as usize] = QUERY;
    escapes[b'#' as usize] = QUERY;
    escapes[b'%' as usize] = PERCENT;
    escapes
}

/// The values of hexadecimal digits, and [`NO_DIGIT`].
static DIGITS: [u8; 256] = digits();
const NO_DIGIT: u8 = 0xff;

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, for which a place out of bounds is an error"
)]
const fn digits() -> [u8; 256] {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789ABCDEF"[value] as usize] = value as u8;
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        value += 1;
    }
    digits
}

/// The byte that the two digits after a percent sign stand for.
#[inline]
fn escaped(path: &[u8], at: usize) -> Option<u8> {
    let [high, low] = *path.get(at + 1..)?.first_chunk()?;
    let (high, low) = (of(&DIGITS, high), of(&DIGITS, low));
    (high != NO_DIGIT && low != NO_DIGIT).then_some(high << 4 | low)
}

/// The position of an escape, and its sign.
type Escape = (usize, u16);

/// Returns the signs in a text, and adds the escapes with another reading to `escapes`.
fn signs(path: &[u8], escapes: &mut Vec<Escape>) -> u16 {
    let mut signs = 0;
    for (at, byte) in path.iter().enumerate() {
        match byte {
            b'%' => {
                let sign = escape_signs(path, at);
                if sign & READ_OTHERWISE != 0 {
                    escapes.push((at, sign));
                }
                signs |= sign;
            }
            b';' => signs |= PARAMETERS,
            b'/' => match path.get(at + 1) {
                Some(b'/') => signs |= EMPTY_SEGMENT,
                Some(b'.') => signs |= DOTS,
                _ => {}
            },
            _ => {}
        }
    }
    signs
}

#[inline]
fn escape_signs(path: &[u8], at: usize) -> u16 {
    let Some(byte) = escaped(path, at) else { return LOOSE };
    let mut signs = of(&ESCAPES, byte);
    // The percent sign stays encoded if no escape would follow it, or the escape of a NUL byte.
    if signs == PERCENT && escaped(path, at + 2).is_none_or(|again| again == 0) {
        signs = 0;
    }
    let is_lower = |at: usize| path.get(at).is_some_and(u8::is_ascii_lowercase);
    if is_lower(at + 1) || is_lower(at + 2) { signs | LOOSE } else { signs }
}

/// Writes the path with all escapes of this sign decoded.
fn decode(path: &[u8], escapes: &[Escape], sign: u16, out: &mut Vec<u8>) {
    let mut copied = 0;
    for (at, _) in escapes.iter().filter(|(_, is)| is & sign != 0) {
        let byte = escaped(path, *at).map_or(b'%', |byte| if byte == b'\\' { b'/' } else { byte });
        out.extend_from_slice(path.get(copied..*at).unwrap_or_default());
        out.push(byte);
        copied = at + 3;
    }
    out.extend_from_slice(path.get(copied..).unwrap_or_default());
}

/// Writes the path up to the first encoded `?` or `#`.
fn without_query(path: &[u8], escapes: &[Escape], out: &mut Vec<u8>) {
    let end = escapes.iter().find(|(_, is)| is & QUERY != 0).map_or(path.len(), |(at, _)| *at);
    out.extend_from_slice(path.get(..end).unwrap_or_default());
}

/// Writes the path without the parameters after a `;` in each segment.
fn without_parameters(path: &[u8], out: &mut Vec<u8>) {
    let mut rest = path;
    while let Some(at) = memchr::memchr(b';', rest) {
        let (name, parameters) = rest.split_at(at);
        out.extend_from_slice(name);
        let end = memchr::memchr(b'/', parameters).unwrap_or(parameters.len());
        rest = parameters.get(end..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

/// Writes the path with one slash in place of several in a row.
fn merge_slashes(path: &[u8], out: &mut Vec<u8>) {
    for &byte in path {
        if byte != b'/' || out.last() != Some(&b'/') {
            out.push(byte);
        }
    }
}

/// The effect of `..` on an empty segment before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Empty {
    /// The empty segment counts as a segment, which `..` removes.
    Counts,
    /// `..` passes over the empty segment and removes the segment before it.
    IsPassed,
}

/// Writes the path with its dot segments resolved; encoded ones do not count. `..` at the root stays at the root.
fn resolve(path: &[u8], empty: Empty, out: &mut Vec<u8>) {
    let mut segments = path.split(|&byte| byte == b'/').skip(1).peekable();
    out.push(b'/');
    while let Some(segment) = segments.next() {
        match segment {
            b"." => {}
            b".." => remove_last(out, empty),
            segment => {
                out.extend_from_slice(segment);
                if segments.peek().is_some() {
                    out.push(b'/');
                }
            }
        }
    }
}

/// Removes the last segment, and the slash after it.
fn remove_last(out: &mut Vec<u8>, empty: Empty) {
    let mut end = out.len().saturating_sub(1);
    if empty == Empty::IsPassed {
        while end > 0 && out.get(end - 1) == Some(&b'/') {
            end -= 1;
        }
    }
    if end > 0 {
        let above = out.iter().take(end).rposition(|&byte| byte == b'/').map_or(1, |at| at + 1);
        out.drain(above..=end);
    }
}
