//! Detection of documents in which the rewriter and a browser disagree about text and markup.
//!
//! The rewriter builds no tree. A tag of interest is a tag at which rewriter and browser could disagree
//! ([`scan`](crate::scan)). Up to the first such tag, the rewriter reads a document as a browser does. To find the tag,
//! only `<` and two letters are searched for. From this tag on, a [scanner](crate::scan) reads the document as well. It
//! stops when all open constructs are closed again, so that rewriter and browser are sure to agree. At a possible
//! disagreement, the rest of the document stays unchanged.
//!
//! Text that looks like a tag of interest may be in a comment or an attribute. A scanner that begins there misreads the
//! following text. So a further scanner begins at each later text that looks like a tag of interest: one of the
//! scanners is right. Such text is frequent in scripts. If a scanner is in the text of a script, the reader of the
//! document tells whether the document is in such a text, too.

use crate::scan::{Root, Scanner, WatchState, Watching};

/// The largest number of scanners. Only crafted documents need as many.
const SCANNERS: usize = 8;

/// For each possible first byte of a name of interest, the set of possible second letters: one bit for each, numbered
/// by the last five bits of the letter. First bytes are compared by their last five bits and the bit that all letters
/// have.
static SECOND: [u32; 256] = {
    let pairs = b"svmasefrtescstteifxmnotipl";
    let mut second = [0; 256];
    let mut at = 0;
    while at + 1 < pairs.len() {
        let letter = (pairs[at] & 31) as usize;
        let mut high = 0;
        while high < 256 {
            if high & 0x40 != 0 {
                second[high | letter] |= 1 << (pairs[at + 1] & 31);
            }
            high += 32;
        }
        at += 2;
    }
    second
};

/// Names of elements up to this length do not count for the limit on names, bytes.
const NAME: usize = 128;

/// The reason why the rewriter may not get all of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The following text is ambiguous.
    Ambiguous,
    /// The long names of elements exceed the limit on names.
    Names,
    /// The following text may be that of a script or a similar element. Only the reader of the preceding text can tell.
    Unknown,
}

impl Why {
    /// The name of the event to count.
    pub fn event(self) -> &'static str {
        match self {
            Self::Ambiguous | Self::Unknown => "markup-ambiguous",
            Self::Names => "memory-exceeded",
        }
    }
}

/// The state of the detection.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    scanners: Vec<Scanner>,
    /// The start of a tag at the end of the last piece, if there is one.
    begun: TrailingBytes,
    /// The length of a possible element name, as far as it has been read.
    name: Option<usize>,
    /// The number of bytes of the next piece in which names have already been read.
    ahead: usize,
    /// True if the tag that `begun` starts may be in the text of a script or a similar element.
    in_text: bool,
    /// True if the start of the present piece is in the text of a script or a similar element.
    text: bool,
    /// The total length of long names, bytes.
    names: usize,
    /// True if a style or script of SVG is, or may be, open.
    in_code: bool,
    /// The open SVG or MathML that an end tag of HTML would close. Tracked only for features that remove something.
    root: Option<Root>,
    /// The purpose of the scan.
    pub how: Watching,
}

/// The end of the last piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum TrailingBytes {
    #[default]
    Nothing,
    /// `<`
    Opens,
    /// `<` and this letter.
    Letter(u8),
}

impl TrailingBytes {
    /// The state after this piece.
    fn behind(self, bytes: &[u8]) -> Self {
        match bytes {
            [.., b'<'] => Self::Opens,
            [.., b'<', letter] => Self::Letter(*letter),
            [letter] if self == Self::Opens => Self::Letter(*letter),
            _ => Self::Nothing,
        }
    }
}

/// A position within a piece.
struct Position {
    /// The position up to which all scanners have read.
    done: usize,
    /// The position up to which names have been read. No name continues here.
    read: usize,
    /// True if `</` is at `read`, and no other `<` follows before the present block.
    closes: bool,
}

/// The number of bytes that are examined at once.
const BLOCK: usize = 16;
/// Eight `<`, to compare eight bytes at once.
const OPENS: u64 = u64::from_ne_bytes([b'<'; 8]);
const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);

/// Returns true if a tag of interest may begin with these letters.
#[inline]
fn may_begin(first: u8, second: u8) -> bool {
    SECOND.get(usize::from(first)).is_some_and(|seconds| seconds >> (second & 31) & 1 != 0)
        && second & 0x40 != 0
}

/// Returns true if a byte ends the name of an element.
#[inline]
fn ends_name(byte: u8) -> bool {
    matches!(byte, b'>' | b' ' | b'/' | b'\t'..=b'\r')
}

/// The halves of a block.
#[inline]
fn words(window: &[u8; BLOCK + 2]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, _, _] = *window;
    [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p])]
}

impl Guard {
    /// Scans input for the rewriter. All long names together may take `limit` bytes. If the rewriter may not receive all of
    /// the input, returns the length that it may receive, and the reason. `text` is true if the rewriter is within the text
    /// of a script or a similar element and has read some of it, and false otherwise or if this is unknown.
    ///
    /// Text that looks like a name counts as a name, which is harmless because the blanks in text keep such names short.
    /// The end of an element does not reduce the count.
    pub fn look(&mut self, bytes: &[u8], limit: usize, text: bool) -> Option<(usize, Why)> {
        self.find(bytes, limit, text).err()
    }

    fn find(&mut self, bytes: &[u8], limit: usize, text: bool) -> Result<(), (usize, Why)> {
        let Some(first) = bytes.first() else { return Ok(()) };
        let mut place = Position { done: 0, read: std::mem::take(&mut self.ahead), closes: false };
        self.text = text;
        let begun = std::mem::take(&mut self.begun);
        match (begun, bytes) {
            (TrailingBytes::Opens, [first, second, ..]) if may_begin(*first, *second) => {
                self.begin(b"<", 2, self.in_text, text)?;
            }
            (TrailingBytes::Letter(first), [second, ..]) if may_begin(first, *second) => {
                self.begin(&[b'<', first], 1, self.in_text, text)?;
            }
            _ => {}
        }
        if begun == TrailingBytes::Opens && first.is_ascii_alphabetic() {
            self.name.get_or_insert(0);
        }
        if self.name.is_some() {
            self.read_name(bytes, &mut place, limit)?;
        }
        self.find_tags(bytes, &mut place, limit)?;
        self.begun = begun.behind(bytes);
        self.read_names(bytes, &mut place, bytes.len(), limit)?;
        let before = match self.begun {
            TrailingBytes::Nothing => None,
            TrailingBytes::Opens => Some(1),
            TrailingBytes::Letter(_) => Some(2),
        };
        if let Some(at) = before.and_then(|before| bytes.len().checked_sub(before)) {
            self.go(bytes, &mut place, at)?;
            self.in_text = self.may_be_text();
        }
        self.go(bytes, &mut place, bytes.len())
    }

    /// Finds possible starts of tags of interest. This is a separate function because it runs for each byte.
    #[inline(never)]
    fn find_tags(&mut self, bytes: &[u8], place: &mut Position, limit: usize) -> Result<(), (usize, Why)> {
        let mut start = 0;
        while let Some(window) = bytes.get(start..).and_then(<[u8]>::first_chunk::<{ BLOCK + 2 }>) {
            // All bytes are compared without a branch, which compiles to a few instructions.
            let opens = |block: &[u8; BLOCK]| block.iter().fold(false, |opens, byte| opens | (*byte == b'<'));
            if window.first_chunk().is_some_and(opens) {
                self.block(bytes, window, start, place, limit)?;
            }
            start += BLOCK;
        }
        let rest = bytes.get(start..).unwrap_or_default();
        for (at, window) in rest.windows(3).enumerate() {
            if let [b'<', first, second] = window
                && may_begin(*first, *second)
            {
                self.found(bytes, start + at, place, limit)?;
            }
        }
        Ok(())
    }

    /// Handles a block that contains `<`. `window` is the block and the two bytes after it.
    #[inline(always)]
    fn block(
        &mut self,
        bytes: &[u8],
        window: &[u8; BLOCK + 2],
        start: usize,
        place: &mut Position,
        limit: usize,
    ) -> Result<(), (usize, Why)> {
        let mut last = 0;
        for (half, word) in words(window).into_iter().enumerate() {
            let word = word ^ OPENS;
            // The highest bit of each byte that was `<`.
            let mut found = !((word & !HIGH).wrapping_add(!HIGH) | word) & HIGH;
            while found != 0 {
                last = 8 * half + ((found.trailing_zeros() as usize / 8) & 7);
                if let [Some(&first), Some(&second)] = [window.get(last + 1), window.get(last + 2)]
                    && may_begin(first, second)
                {
                    self.found(bytes, start + last, place, limit)?;
                }
                found &= found - 1;
            }
        }
        // Most names end within the block, and need not be read.
        let (at, closes) = (start + last, window.get(last + 1) == Some(&b'/'));
        if at.wrapping_sub(place.read) > NAME {
            if !place.closes {
                self.read_names(bytes, place, at, limit)?;
                place.closes = closes;
                return Ok(());
            }
            place.read = start;
        }
        // A name that began before this `<` has ended.
        place.closes = closes;
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        if closes || before.is_some_and(|before| ends_name(*before)) {
            place.read = at;
        }
        Ok(())
    }

    /// Handles the possible start of a tag of interest.
    #[cold]
    #[inline(never)]
    fn found(
        &mut self,
        bytes: &[u8],
        at: usize,
        place: &mut Position,
        limit: usize,
    ) -> Result<(), (usize, Why)> {
        self.read_names(bytes, place, at, limit)?;
        self.go(bytes, place, at)?;
        let in_text = self.may_be_text();
        if at > 0 && in_text {
            self.begun = TrailingBytes::Nothing.behind(bytes.get(..at).unwrap_or_default());
            self.ahead = place.read - at;
            return Err((at, Why::Unknown));
        }
        self.begin(&[], at + 3, in_text, self.text)
    }

    /// Returns true if a scanner is in the text of a script or a similar element, and has read some of it.
    fn may_be_text(&self) -> bool {
        let mut texts = self.scanners.iter().filter_map(Scanner::has_read_text).peekable();
        texts.peek().is_some() && texts.all(|read| read)
    }

    /// Reads names that begin before `to`.
    #[cold]
    #[inline(never)]
    fn read_names(
        &mut self,
        bytes: &[u8],
        place: &mut Position,
        to: usize,
        limit: usize,
    ) -> Result<(), (usize, Why)> {
        while let Some(found) = bytes.get(place.read..to).and_then(|bytes| memchr::memchr(b'<', bytes)) {
            place.read += found + 1;
            if bytes.get(place.read).is_some_and(u8::is_ascii_alphabetic) {
                self.name = Some(0);
                self.read_name(bytes, place, limit)?;
            }
        }
        place.read = place.read.max(to);
        place.closes = false;
        Ok(())
    }

    /// Reads a possible name, or the rest of one that began in the last piece.
    ///
    /// # Errors
    ///
    /// Long names now take more than `limit` bytes.
    fn read_name(&mut self, bytes: &[u8], place: &mut Position, limit: usize) -> Result<(), (usize, Why)> {
        let at = place.read;
        let (rest, read) = (bytes.get(at..).unwrap_or_default(), self.name.unwrap_or_default());
        let end = rest.iter().position(|byte| ends_name(*byte));
        let length = read + end.unwrap_or(rest.len());
        if length > NAME {
            let (before, room) = (if read > NAME { read } else { 0 }, limit.saturating_sub(self.names));
            if length - before > room {
                // The position of the error is never before the name becomes a long one.
                let most = (before + room + 1).max(NAME + 1);
                self.names += most - before;
                self.go(bytes, place, at + most - read)?;
                return Err((at + most - read, Why::Names));
            }
            self.names += length - before;
        }
        self.name = end.is_none().then_some(length);
        place.read = at + end.unwrap_or(rest.len());
        Ok(())
    }

    /// Adds a scanner that starts with the input `before`, unless the tag is in the text of a script: `may` is true if this
    /// is possible, and `text` is true if it is the case. If there are too many scanners, the text from `behind` on counts
    /// as ambiguous.
    #[cold]
    fn begin(&mut self, before: &[u8], behind: usize, may: bool, text: bool) -> Result<(), (usize, Why)> {
        if may {
            if text {
                return Ok(());
            }
            // These scanners misread their first tag: it did not begin the text of a script.
            self.scanners.retain(|scanner| !scanner.only_reads_text());
        }
        if self.scanners.iter().filter(|scanner| scanner.only_reads_text()).count() >= SCANNERS
            && let Some(oldest) = self.scanners.iter().position(Scanner::only_reads_text)
        {
            self.scanners.remove(oldest);
        }
        let counts = |scanner: &&Scanner| scanner.has_begun() && !scanner.only_reads_text();
        let count = self.scanners.iter().filter(counts).count();
        let mut scanner = Scanner::watching(self.how);
        scanner.watch(before, &mut 0);
        self.scanners.push(scanner);
        if count < SCANNERS { Ok(()) } else { Err((behind, Why::Ambiguous)) }
    }

    /// Advances all scanners and removes finished ones. Also returns an error after a tag that begins or ends a style or
    /// script of SVG, or SVG itself if something is removed: the readers of the following text have to know this.
    fn go(&mut self, bytes: &[u8], place: &mut Position, to: usize) -> Result<(), (usize, Why)> {
        while place.done < to && !self.scanners.is_empty() {
            let mut next = to;
            let foreign = self.how.removes || self.scanners.iter().any(Scanner::is_foreign);
            if !self.how.alone && foreign {
                let rest = bytes.get(place.done..to).unwrap_or_default();
                next = memchr::memchr(b'>', rest).map_or(to, |end| place.done + end + 1);
            }
            self.step(bytes, place, next)?;
            let in_code = self.scanners.iter().any(Scanner::is_in_code);
            let root = self.how.removes.then(|| self.scanners.iter().find_map(Scanner::root)).flatten();
            let changes = (in_code, root) != (self.in_code, self.root);
            (self.in_code, self.root) = (in_code, root);
            if changes && next < bytes.len() {
                (self.begun, self.ahead) = (TrailingBytes::Nothing, place.read.saturating_sub(next));
                return Err((next, Why::Unknown));
            }
        }
        place.done = to;
        Ok(())
    }

    fn step(&mut self, bytes: &[u8], place: &mut Position, to: usize) -> Result<(), (usize, Why)> {
        let from = std::mem::replace(&mut place.done, to);
        let bytes = bytes.get(..to).unwrap_or_default();
        let mut ambiguous: Option<usize> = None;
        self.scanners.retain_mut(|scanner| {
            let mut at = from;
            let watched = scanner.watch(bytes, &mut at);
            if watched == WatchState::Ambiguous {
                ambiguous = Some(ambiguous.map_or(at, |other| other.min(at)));
            }
            watched == WatchState::On
        });
        ambiguous.map_or(Ok(()), |at| Err((at, Why::Ambiguous)))
    }

    /// Returns true if the input is, or may be, the text of a style or script in SVG. The rewriter treats it as normal
    /// text.
    pub fn is_in_code(&self) -> bool {
        self.in_code
    }

    /// The SVG or MathML that is, or may be, open, if an end tag of HTML would close it. Known only if a feature removes
    /// something.
    pub fn root(&self) -> Option<Root> {
        self.root
    }

    /// The total length of long names, bytes.
    pub fn names(&self) -> usize {
        self.names
    }

    /// The memory that it holds, bytes.
    pub fn held(&self) -> usize {
        self.scanners.iter().map(Scanner::held).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of a document that is unambiguous, the same for every split; `None` for all of it.
    fn clear(html: &str) -> Option<usize> {
        let look = |pieces: &[&[u8]]| {
            let (mut guard, mut before) = (Guard::default(), 0);
            for piece in pieces {
                let mut at = 0;
                while let Some((fits, why)) = guard.look(&piece[at..], usize::MAX, false) {
                    at += fits;
                    if why != Why::Unknown {
                        return Some(before + at);
                    }
                }
                before += piece.len();
            }
            None
        };
        let whole = look(&[html.as_bytes()]);
        for at in 0..=html.len() {
            let (head, tail) = html.as_bytes().split_at(at);
            assert_eq!(look(&[head, tail]), whole, "{html} split at {at}");
        }
        assert_eq!(look(&html.as_bytes().chunks(1).collect::<Vec<_>>()), whole, "{html} byte by byte");
        whole
    }

    fn counted(html: &str, piece: usize, limit: usize) -> (usize, usize) {
        let (mut guard, mut allowed) = (Guard::default(), 0);
        for piece in html.as_bytes().chunks(piece) {
            let fits = guard.look(piece, limit, false).map(|(fits, _)| fits);
            allowed += fits.unwrap_or(piece.len());
            if fits.is_some() {
                break;
            }
        }
        (guard.names, allowed)
    }

    #[test]
    fn long_names_are_counted_wherever_they_are_split() {
        let long = format!("<p class=x>text<{}>{}</p>", "n".repeat(1000), "<custom-element>".repeat(99));
        let (names, all) = counted(&long, usize::MAX, usize::MAX);
        assert!((1000 - NAME..=1000).contains(&names), "{names}");
        assert_eq!(all, long.len());
        let stopped = counted(&long, usize::MAX, 500);
        assert!(stopped.1 < 640, "{stopped:?}");
        for piece in [1, 2, 63, 64, 65, 1000] {
            assert_eq!(counted(&long, piece, usize::MAX), (names, all));
            assert_eq!(counted(&long, piece, 500), stopped);
        }
        for other in
            ["<some-element-of-ones-own/>word ".repeat(99), format!("<!--{0}-->1<{0}", "2".repeat(999))]
        {
            for piece in [1, 2, 7, 63, 64, 1000] {
                assert_eq!(counted(&other, piece, 9).0, 0);
            }
        }
    }

    #[test]
    fn documents_are_clear_up_to_where_browsers_may_differ() {
        for html in [
            "<p><svg viewBox='0 0 1 1'><title>a</title><style>a{}</style><path d=''/><g><path></path></g></svg><style>",
            "<svg><foreignObject><div><p>a</p><style></style></div></foreignObject></svg><script></script>",
            "<svg><svg></svg></svg><math><mtext>a<b>b</b></mtext><mi>x</mi></math><title>",
            "<svg/><p><style>",
            "<a><svg/></a><div><script></script>",
            "<button><svg/></button><section><p><a><input><link></p></section><svg><a/><title/></svg>",
            "<math><mi/></math><textarea></textarea><select><option>a</select><iframe>",
            "<select><script></script><template><option></template></select><xmp>",
            "<frameset><frame><noframes></noframes></frameset>",
            "<template><style></style><template><p></template><div><col></template>",
            "<table><colgroup><col></colgroup></table><script>x='<svg>'</script><p><style>",
            "<!-- <svg/> --><p><script></script><strong><section><semantics><time>",
            "<script>'<svg/>'; '<select>'</script><p></select><svg></svg>",
            "<svg><![CDATA[<style>]]></svg><![CDATA[ >",
            "<svg><title>a</title></svg><svg><desc/></svg><sv<svg></svg>",
        ] {
            assert_eq!(clear(html), None, "{html}");
        }
    }

    #[test]
    fn what_may_be_read_otherwise_is_found() {
        for (before, behind) in [
            ("<svg/></a><HTML lang=a>", "<textarea></textarea>"),
            ("<svg/><button></button><link href=x>", "<p>"),
            ("<math/><article><a href='mailto:a@b.c'>", "x</a>"),
            ("<svg/><section/>", "<p>"),
            ("<svg/><input>", "<p>"),
            ("<svg></div><link>", "<p>"),
            ("<svg/><![CDATA[", "<p>"),
            ("<svg><title><![CDATA[", "]]>"),
            ("<svg><path></div><script>", ""),
            ("<svg><foreignObject><table><tr></table>", "</foreignObject>"),
            ("<table><td><svg><desc><td></td></desc><style>", ""),
            ("<math><mtext><mglyph>", "<style>"),
            ("<math><svg>", "<style>"),
            ("<svg><math>", "<style>"),
            ("<math><annotation-xml encoding=text&#47;html>", "<style>"),
            ("<svg><svg><p><script>", "</svg>"),
            ("<svg></p><script>", ""),
            ("<svg><desc><b></desc>", ""),
            ("<select><iframe>", ""),
            ("<select><svg>", ""),
            ("<select><template><script>", ""),
            ("<frameset><style>", ""),
            ("<template><style></style><col>", "<style>"),
            ("<style x=>", ""),
            ("<textarea a= >", ""),
        ] {
            assert_eq!(clear(&[before, behind].concat()), Some(before.len()), "{before}");
        }
        let many = "<!--".to_owned() + &"<svg a='<svg b=\"".repeat(20);
        assert!(clear(&many).is_some_and(|clear| clear < 200));
        assert!(clear(&"<svg>".repeat(300)).is_some());
        assert!(clear(&"<svg/>".repeat(300)).is_some());
    }
}
