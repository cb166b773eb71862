//! What servers may take a path for that read it in another way than it is read here.

use crate::path::{PATH, Slashes, UNRESERVED, normalize_path};

/// How often a path may be decoded on its way before nobody can be expected to mean what then stands there.
const DECODINGS: u8 = 2;
/// Texts that are looked at for one path. Whoever layers more upon each other means harm.
const TEXTS: usize = 128;
/// Bytes that are written to find them, with some on top for each text, though at least as many as some texts of the path's own
/// length have. A path that stands in the table of a connection of HTTP/2 costs its sender one byte each time.
const WORK: usize = 48 * 1024;
const WORK_OF_TEXT: usize = 64;
const TEXTS_LEAST: usize = 10;

/// What servers may take a path in normal form for that is another one in the normal form, or the form itself with several slashes
/// in a row merged: those that decode `%2F`, `%5C` or all that a path may hold before they look at segments, that take what follows
/// `;` in a segment for parameters (RFC 3986, section 3.3), or that do so with a path that they have decoded already, in whatever
/// order. `slashes` is what the normal form makes of several in a row. `None` if there are too many to look at, or `admits` says no
/// to one, behind which none is looked at; empty, and without an allocation, where there is nothing to read otherwise.
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
        texts: vec![Text { start: 0, end: path.len(), decodings: 0, is_reading: false }],
        escapes,
        written: Vec::new(),
        work: WORK.max(TEXTS_LEAST * (path.len() + WORK_OF_TEXT)),
        admits,
    };
    let mut at = 0;
    while let Some(text) = search.texts.get(at) {
        let text = *text;
        search.read(at, text, slashes)?;
        at += 1;
    }
    let readings = search.texts.iter().filter(|text| text.is_reading);
    Some(readings.map(|text| text.of(&search.bytes).to_vec()).collect())
}

/// What a path turns into, step by step.
struct Search<F> {
    /// All texts, one behind the other.
    bytes: Vec<u8>,
    texts: Vec<Text>,
    /// The escapes of the text that is being read.
    escapes: Vec<Escape>,
    /// The text that is being written, which may be a known one.
    written: Vec<u8>,
    /// How much more may be written.
    work: usize,
    admits: F,
}

#[derive(Clone, Copy)]
struct Text {
    start: usize,
    end: usize,
    /// How often it was decoded.
    decodings: u8,
    /// Whether it is the normal form of a text, and not the path itself.
    is_reading: bool,
}

impl Text {
    fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start..self.end).unwrap_or_default()
    }
}

impl<F: FnMut(&[u8]) -> bool> Search<F> {
    /// Adds what may become of a text. `None` if it is too much, or not admitted.
    fn read(&mut self, at: usize, text: Text, slashes: Slashes) -> Option<()> {
        self.escapes.clear();
        let signs = signs(text.of(&self.bytes), &mut self.escapes);
        for sign in [SLASH, BACKSLASH, SEMICOLON, OTHER, PARAMETERS, QUERY, PERCENT] {
            let is_decoding = sign == PERCENT;
            if signs & sign == 0 || is_decoding && text.decodings == DECODINGS {
                continue;
            }
            let (from, to) = (text.of(&self.bytes), &mut self.written);
            match sign {
                PARAMETERS => without_parameters(from, to),
                QUERY => without_query(from, &self.escapes, to),
                sign => decode(from, &self.escapes, sign, to),
            }
            self.add(text.decodings + u8::from(is_decoding))?;
        }
        if slashes == Slashes::Keep {
            self.normalise(at, text, Slashes::Keep, signs & LOOSE == 0)?;
        }
        self.normalise(at, text, Slashes::Merge, signs & (LOOSE | EMPTY_SEGMENT) == 0)
    }

    fn normalise(&mut self, at: usize, text: Text, slashes: Slashes, is_normal: bool) -> Option<()> {
        if is_normal {
            return self.found(at);
        }
        // What is no path is no reading.
        if normalize_path(text.of(&self.bytes), slashes, &mut self.written).is_err() {
            return Some(());
        }
        let normal = self.add(text.decodings)?;
        self.found(normal)
    }

    /// Adds what was written, unless it is there. Where it is, unless it is too much.
    fn add(&mut self, decodings: u8) -> Option<usize> {
        let written = std::mem::take(&mut self.written);
        self.work = self.work.checked_sub(written.len() + WORK_OF_TEXT)?;
        let known = self.texts.iter().position(|text| text.of(&self.bytes) == written);
        let at = known.unwrap_or(self.texts.len());
        if at == TEXTS {
            return None;
        }
        if known.is_none() {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&written);
            self.texts.push(Text { start, end: self.bytes.len(), decodings, is_reading: false });
        }
        self.written = written;
        self.written.clear();
        Some(at)
    }

    /// Notes that a text is in normal form.
    fn found(&mut self, at: usize) -> Option<()> {
        let Some(text) = self.texts.get_mut(at).filter(|text| at > 0 && !text.is_reading) else {
            return Some(());
        };
        text.is_reading = true;
        (self.admits)(text.of(&self.bytes)).then_some(())
    }
}

// What stands in a text: escapes of a slash, of a backslash, of a semicolon, of others that a path may hold, of what begins a query
// or a fragment, of a percent sign before what then is an escape; and a semicolon.
const SLASH: u16 = 1;
const BACKSLASH: u16 = 1 << 1;
const SEMICOLON: u16 = 1 << 2;
const OTHER: u16 = 1 << 3;
const QUERY: u16 = 1 << 4;
const PERCENT: u16 = 1 << 5;
const PARAMETERS: u16 = 1 << 6;
/// What is not in normal form, whatever becomes of slashes; it may say so of what is.
const LOOSE: u16 = 1 << 7;
/// Several slashes in a row.
const EMPTY_SEGMENT: u16 = 1 << 8;
const READ_OTHERWISE: u16 = SLASH | BACKSLASH | SEMICOLON | OTHER | QUERY | PERCENT | PARAMETERS;

/// What an escape of each byte is.
static ESCAPES: [u16; 256] = escapes();

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

/// The byte that the two digits behind a percent sign stand for.
#[inline]
fn escaped(path: &[u8], at: usize) -> Option<u8> {
    let [high, low] = *path.get(at + 1..)?.first_chunk()?;
    let (high, low) = (DIGITS[usize::from(high)], DIGITS[usize::from(low)]);
    (high != NO_DIGIT && low != NO_DIGIT).then_some(high << 4 | low)
}

/// Where an escape stands, and what it is.
type Escape = (usize, u16);

/// What stands in a text, and where its escapes do that are read otherwise.
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
                Some(b'.') => signs |= LOOSE,
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
    let mut signs = ESCAPES[usize::from(byte)];
    // What decodes to NUL stays.
    if signs == PERCENT && escaped(path, at + 2).is_none_or(|again| again == 0) {
        signs = 0;
    }
    let is_lower = |at: usize| path.get(at).is_some_and(u8::is_ascii_lowercase);
    if is_lower(at + 1) || is_lower(at + 2) { signs | LOOSE } else { signs }
}

/// With the escapes of that kind decoded.
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

/// Up to what would begin a query or a fragment if it were not encoded.
fn without_query(path: &[u8], escapes: &[Escape], out: &mut Vec<u8>) {
    let end = escapes.iter().find(|(_, is)| is & QUERY != 0).map_or(path.len(), |(at, _)| *at);
    out.extend_from_slice(path.get(..end).unwrap_or_default());
}

/// Without what follows a `;` in each segment.
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
