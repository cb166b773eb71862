//! A scanner of tags, for features that only need the edges of head and body.
//!
//! The scanner tracks just enough to tell tags from text that looks like tags, and to know the element that an end tag
//! closes: comments, texts of scripts and similar elements, SVG and MathML with the HTML in them, and the names of open
//! elements. It decides exactly as the rewriter does. For all other tags it reads no attributes, keeps no bytes and
//! makes no calls, so it takes a small part of the rewriter's time.
//!
//! In two cases the scanner follows the standard and the rewriter does not: `<script x=>` begins a script, and `<svg/>`
//! has no content.
//!
//! A second kind of scanner [watches](Scanner::watching) a part of a document that a browser may read differently from
//! the rewriter.

mod attributes;
mod doubt;
mod foreign;
pub(crate) mod names;
mod open;
pub(crate) mod text;
mod whole;

use self::attributes::{Attribute, Attributes};
use self::doubt::{Doubt, Start};
pub(crate) use self::doubt::{Root, Watching};
use self::foreign::Foreign;
use self::names::{EMPTY, Means, Name, end_mark, is_long, meaning, push};
use self::open::Open;
use self::text::{CommentState, Declaration, Raw, Script};
use self::whole::Whole;
use crate::edges::Mark;

/// The scanner.
#[derive(Debug)]
pub(crate) struct Scanner {
    state: State,
    /// The tag that is being read.
    tag: Tag,
    /// The start of the tag, as long as the tag may have to be reported.
    begins: Begins,
    /// Attributes, where they matter.
    attributes: Attributes,
    /// The element whose text is being read.
    last: Name,
    /// True if the awaited end tag ends a script within a comment in the script's text.
    escaped: bool,
    /// True if some of the element's text has been read.
    read: bool,
    foreign: Foreign,
    open: Open,
    /// True if tags that may come first in a head are reported too.
    firsts: bool,
    /// The watched constructs, for a scanner that watches.
    doubt: Option<Box<Doubt>>,
}

/// The state of a [watching](Scanner::watching) scanner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchState {
    /// The scanner continues to watch.
    On,
    /// The watched part ended without ambiguity.
    Over,
    /// The following text is ambiguous.
    Ambiguous,
}

/// A tag that is being read.
#[derive(Debug, Clone, Copy)]
struct Tag {
    name: Name,
    ends: bool,
    /// True if the name has capital letters.
    capital: bool,
    /// True if the tag ends with `/>`: an element of SVG or MathML then has no content.
    empty: bool,
    /// True if the tag ends where the value of an attribute was expected.
    lacks: bool,
    means: Means,
    mark: Option<Mark>,
}

impl Tag {
    const NONE: Self = Self {
        name: EMPTY,
        ends: false,
        capital: false,
        empty: false,
        lacks: false,
        means: Means::Element,
        mark: None,
    };
}

/// The beginning of a tag that may be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    /// No tag has begun.
    Nowhere,
    /// The tag began in an earlier piece.
    Before,
    /// The tag begins at this position of the piece.
    At(usize),
}

/// A tag that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundTag {
    /// The start of the tag in this piece; `None` if the tag began in an earlier piece.
    pub start: Option<usize>,
    /// The position after the tag.
    pub end: usize,
    pub what: TagKind,
}

/// The kind of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagKind {
    /// A start tag of HTML.
    Start(Mark),
    /// An end tag that closes an element with this mark.
    End(Mark),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Text that may contain tags.
    Data,
    /// Text up to the end of the document, without tags.
    Plain,
    /// After `<`.
    Opens,
    /// After `</`.
    Closes,
    Name,
    Attribute(Attribute),
    /// After `<!`.
    Declaration(Declaration),
    Comment(CommentState),
    /// A bogus comment, which ends at the next `>`.
    Bogus,
    /// Within `<![CDATA[`, after this number of `]`; 2 means two or more.
    Cdata(u8),
    Raw(Raw),
    Script(Script),
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b'\x0c')
}

/// For each byte, flags for the names and values that the byte ends.
static ENDS: [u8; 256] = {
    let mut ends = [0; 256];
    let mut byte = 0;
    while byte < ends.len() {
        ends[byte] = match byte as u8 {
            b' ' | b'\n' | b'\r' | b'\t' | b'\x0c' | b'>' => TAG | NAME | VALUE,
            b'/' => TAG | NAME,
            b'=' => NAME,
            _ => 0,
        };
        byte += 1;
    }
    ends
};
/// Ends the name of a tag.
const TAG: u8 = 1;
/// Ends the name of an attribute.
const NAME: u8 = 2;
/// Ends a value without quotes.
const VALUE: u8 = 4;

/// The number of bytes before the first byte that ends the present run of text.
#[inline]
fn run(bytes: &[u8], ends: u8) -> usize {
    let found = bytes.iter().position(|byte| ENDS.get(usize::from(*byte)).is_some_and(|of| of & ends != 0));
    found.unwrap_or(bytes.len())
}

impl Scanner {
    /// A scanner at the start of a document. If `firsts` is true, tags that may come first in a head are reported.
    pub fn new(firsts: bool) -> Self {
        Self {
            state: State::Data,
            tag: Tag::NONE,
            begins: Begins::Nowhere,
            attributes: Attributes::default(),
            last: EMPTY,
            escaped: false,
            read: false,
            foreign: Foreign::exact(),
            open: Open::default(),
            firsts,
            doubt: None,
        }
    }

    /// A scanner that begins at a `<` of a possible tag of interest, and watches until everything that this tag opened is
    /// closed.
    pub fn watching(how: Watching) -> Self {
        let foreign = if how.alone { Foreign::exact() } else { Foreign::default() };
        Self { doubt: Some(Box::new(Doubt::new(how))), foreign, ..Self::new(false) }
    }

    /// Returns true if the name of the first tag has been read.
    pub fn has_begun(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| doubt.has_begun())
    }

    /// Returns `Some` within the text of a script or a similar element: true if some of the text has been read.
    pub fn has_read_text(&self) -> Option<bool> {
        matches!(self.state, State::Raw(_) | State::Script(_) | State::Plain).then_some(self.read)
    }

    /// For a scanner that watches: returns true if an element of SVG or MathML is open.
    pub fn is_foreign(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| doubt.is_foreign())
    }

    /// For a scanner that watches: returns true if a style or script of SVG is open.
    pub fn is_in_code(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| doubt.is_in_code())
    }

    /// For a scanner that watches: the open SVG or MathML, if an end tag of HTML would close it.
    pub fn root(&self) -> Option<Root> {
        self.doubt.as_ref().and_then(|doubt| doubt.root())
    }

    /// Returns true if the scanner only watches for the end of the text of a script or a similar element.
    pub fn only_reads_text(&self) -> bool {
        self.has_read_text().is_some()
            && self.doubt.as_ref().is_some_and(|doubt| doubt.is_over())
            && !self.foreign.is_around()
    }

    /// Returns true if markup at this position would become part of an unfinished tag or comment, or of a text without
    /// markup.
    pub fn is_unfinished(&self) -> bool {
        !matches!(self.state, State::Data | State::Opens)
    }

    /// Reads on from `at` of a piece, for a scanner that watches. If the following text is ambiguous, `at` is its start.
    pub fn watch(&mut self, bytes: &[u8], at: &mut usize) -> WatchState {
        while let Some(&byte) = bytes.get(*at) {
            let mut ends = false;
            match self.state {
                State::Data => drop(self.data(bytes, at)),
                State::Attribute(attribute) => {
                    ends = self.attribute(attribute, bytes, at);
                    if ends {
                        *at += 1;
                        self.end_tag(*at);
                    }
                }
                _ => self.other(byte, bytes, at),
            }
            let Some(doubt) = &mut self.doubt else { return WatchState::Over };
            if doubt.is_ambiguous() {
                return WatchState::Ambiguous;
            }
            let in_text = matches!(self.state, State::Raw(_) | State::Plain);
            let over = ends && doubt.is_over() && !self.foreign.is_around() && !in_text;
            let is_none = match self.state {
                State::Opens => false,
                State::Name => is_long(self.tag.name) && !doubt.has_begun(),
                State::Attribute(_) => !doubt.begins(self.tag.name),
                _ => !doubt.has_begun(),
            };
            if over || is_none {
                return WatchState::Over;
            }
        }
        WatchState::On
    }

    /// Reads on from `at` of a piece, up to the end of the next reported tag, or of the piece.
    pub fn next(&mut self, bytes: &[u8], at: &mut usize) -> Option<FoundTag> {
        while let Some(&byte) = bytes.get(*at) {
            match self.state {
                State::Data => {
                    let found = self.data(bytes, at);
                    if found.is_some() {
                        return found;
                    }
                }
                State::Attribute(attribute) => {
                    if self.attribute(attribute, bytes, at) {
                        *at += 1;
                        let found = self.end_tag(*at);
                        self.begins = Begins::Nowhere;
                        if found.is_some() {
                            return found;
                        }
                    }
                }
                _ => self.other(byte, bytes, at),
            }
        }
        None
    }

    /// Reads constructs other than tags and the text between them.
    #[inline]
    fn other(&mut self, byte: u8, bytes: &[u8], at: &mut usize) {
        match self.state {
            State::Opens => self.opens(byte, at),
            State::Closes => self.closes(byte, at),
            State::Name => self.name(bytes, at),
            State::Bogus => self.skip_to(b'>', State::Data, bytes, at),
            State::Plain => (self.read, *at) = (true, bytes.len()),
            State::Raw(Raw::Text) => {
                self.read |= byte != b'<';
                self.skip_to(b'<', State::Raw(Raw::Opens), bytes, at);
            }
            State::Comment(CommentState::Text) => {
                self.skip_to(b'-', State::Comment(CommentState::Dash), bytes, at);
            }
            _ => self.step(byte, at),
        }
    }

    /// Reads tags and text up to the end of a reported tag, or to input that has to be read step by step.
    #[inline]
    fn data(&mut self, bytes: &[u8], at: &mut usize) -> Option<FoundTag> {
        let mut rest = bytes.get(*at..).unwrap_or_default();
        // Attributes and `/>` matter only in SVG and MathML, and to a scanner that watches.
        let is_html = !self.foreign.is_around() && self.doubt.is_none();
        while let Some(opened) = whole::behind(b'<', rest) {
            let start = bytes.len() - opened.len() - 1;
            let Some((what, behind)) = is_html.then(|| self.whole(opened)).flatten() else {
                self.state = State::Opens;
                self.begins = Begins::At(start);
                *at = start + 1;
                return None;
            };
            rest = behind;
            if what.is_some() || self.state != State::Data {
                let end = bytes.len() - rest.len();
                *at = end;
                return what.map(|what| FoundTag { start: Some(start), end, what });
            }
        }
        *at = bytes.len();
        None
    }

    /// Reads a tag that is complete in this piece; the input begins after its `<`. Returns the report of the tag and the
    /// rest of the input. `None` if the tag has to be read step by step.
    #[inline]
    fn whole<'b>(&mut self, rest: &'b [u8]) -> Option<(Option<TagKind>, &'b [u8])> {
        let Whole { name: short, ends, behind } = Whole::read(rest)?;
        let name = Name::from(short);
        if ends {
            let awaited = self.open.close(name);
            return Some((end_mark(name).filter(|_| awaited).map(TagKind::End), behind));
        }
        let (means, mark) = names::meaning_of_short(short);
        let has_content = match means {
            Means::Svg | Means::Math => return None,
            Means::Void => false,
            Means::Element => true,
            Means::Text | Means::Script | Means::Plain => {
                self.tag.means = means;
                self.begin_content(name, means);
                true
            }
        };
        let found = self.begin_element(name, mark, true, has_content);
        Some((found.filter(|_| mark.is_some_and(|mark| self.tells(mark))), behind))
    }

    /// Reads one byte outside of tags.
    fn step(&mut self, byte: u8, at: &mut usize) {
        let (state, taken) = match self.state {
            State::Declaration(declaration) => self.declaration(declaration, byte),
            State::Comment(comment) => comment.next(byte),
            State::Cdata(brackets) => text::cdata(brackets, byte),
            State::Raw(raw) => self.raw(raw, byte),
            State::Script(script) => script.next(byte),
            state => (state, true),
        };
        // The script's end tag is searched for within a comment.
        if state == State::Script(Script::Closes) {
            (self.state, self.escaped) = (State::Raw(Raw::Closes), true);
        } else {
            self.state = state;
        }
        *at += usize::from(taken);
    }

    /// After `<!`.
    fn declaration(&mut self, declaration: Declaration, byte: u8) -> (State, bool) {
        let may_be_cdata = self.foreign.is_inside();
        let next = declaration.next(byte, may_be_cdata || self.doubt.is_some());
        if next.0 == State::Cdata(0)
            && let Some(doubt) = &mut self.doubt
        {
            doubt.cdata(may_be_cdata);
            return (if may_be_cdata { next.0 } else { State::Bogus }, true);
        }
        next
    }

    /// Skips everything up to and including a byte, and then changes to the state `then`.
    fn skip_to(&mut self, byte: u8, then: State, bytes: &[u8], at: &mut usize) {
        match memchr::memchr(byte, bytes.get(*at..).unwrap_or_default()) {
            Some(skipped) => {
                *at += skipped + 1;
                self.state = then;
            }
            None => *at = bytes.len(),
        }
    }

    fn opens(&mut self, byte: u8, at: &mut usize) {
        match byte {
            b'/' => {
                self.state = State::Closes;
                *at += 1;
                return;
            }
            byte if byte.is_ascii_alphabetic() => return self.begin_name(false),
            b'!' => (self.state, *at) = (State::Declaration(Declaration::Begins), *at + 1),
            b'?' => (self.state, *at) = (State::Bogus, *at + 1),
            _ => self.state = State::Data,
        }
        self.begins = Begins::Nowhere;
    }

    fn closes(&mut self, byte: u8, at: &mut usize) {
        match byte {
            byte if byte.is_ascii_alphabetic() => return self.begin_name(true),
            b'>' => (self.state, *at) = (State::Data, *at + 1),
            _ => self.state = State::Bogus,
        }
        self.begins = Begins::Nowhere;
    }

    fn begin_name(&mut self, ends: bool) {
        self.tag = Tag { ends, ..Tag::NONE };
        self.state = State::Name;
    }

    fn name(&mut self, bytes: &[u8], at: &mut usize) {
        let rest = bytes.get(*at..).unwrap_or_default();
        let length = run(rest, TAG);
        let part = rest.get(..length).unwrap_or_default();
        self.tag.name = part.iter().fold(self.tag.name, |name, byte| push(name, *byte));
        self.tag.capital |= part.iter().any(u8::is_ascii_uppercase);
        *at += length;
        if length < rest.len() {
            self.finish_name();
        } else if is_long(self.tag.name) {
            self.begins = Begins::Nowhere;
        }
    }

    /// Handles the end of a tag's name: decides whether the tag is reported.
    fn finish_name(&mut self) {
        let Tag { name, ends, .. } = self.tag;
        if ends {
            self.tag.mark = end_mark(name);
        } else {
            (self.tag.means, self.tag.mark) = meaning(name);
        }
        if !self.tag.mark.is_some_and(|mark| self.tells(mark)) {
            self.begins = Begins::Nowhere;
        }
        let wanted = if ends { None } else { self.foreign.reads(name).or(self.doubt.as_ref().map(|_| name)) };
        self.attributes.begin(wanted);
        if !ends && let Some(doubt) = &mut self.doubt {
            doubt.named(name);
        }
        self.state = State::Attribute(Attribute::Before);
    }

    /// Handles the end of a tag.
    fn end_tag(&mut self, end: usize) -> Option<FoundTag> {
        self.state = State::Data;
        let what = if self.tag.ends { self.close() } else { self.start() };
        let start = match self.begins {
            Begins::Nowhere => return None,
            Begins::Before => None,
            Begins::At(at) => Some(at),
        };
        what.map(|what| FoundTag { start, end, what })
    }

    /// Returns true if tags with this mark are reported.
    fn tells(&self, mark: Mark) -> bool {
        mark != Mark::First || self.firsts
    }

    fn close(&mut self) -> Option<TagKind> {
        self.foreign.close(self.tag.name);
        if let Some(doubt) = &mut self.doubt {
            doubt.end(self.tag.name);
        }
        let awaited = self.open.close(self.tag.name);
        self.tag.mark.filter(|_| awaited).map(TagKind::End)
    }

    fn start(&mut self) -> Option<TagKind> {
        let Tag { name, capital, empty, lacks, means, mark, .. } = self.tag;
        let said = self.attributes.said();
        let (inside, depth) = (self.foreign.is_inside(), self.foreign.depth());
        let is_text = self.foreign.start(name, means, empty, said) && means.is_text();
        if is_text {
            self.begin_content(name, means);
        }
        let is_html = !self.foreign.is_inside() && !matches!(means, Means::Svg | Means::Math);
        if let Some(doubt) = &mut self.doubt {
            // An element of SVG or MathML with HTML content is not an HTML element itself.
            let foreign = if self.foreign.depth() > depth { inside } else { !is_html };
            let is_edge = mark.is_some_and(|mark| mark != Mark::Scope);
            let matters = is_edge || name == names::A || empty || means == Means::Void;
            doubt.start(Start { name, means, empty, said, lacks, text: is_text, foreign, matters });
            doubt.bound(self.foreign.depth());
        }
        let is_void = means == Means::Void && !(capital && names::is_void_in_lower_case(name));
        self.begin_element(name, mark, is_html, if is_html { !is_void } else { !empty })
    }

    /// Handles the start of the content of an HTML element.
    #[inline]
    fn begin_content(&mut self, name: Name, means: Means) {
        self.read = false;
        self.state = match means {
            Means::Text | Means::Script => {
                self.last = name;
                State::Raw(Raw::Text)
            }
            Means::Plain => State::Plain,
            Means::Element | Means::Void | Means::Svg | Means::Math => return,
        }
    }

    /// Handles the start of an element.
    #[inline]
    fn begin_element(
        &mut self,
        name: Name,
        mark: Option<Mark>,
        is_html: bool,
        has_content: bool,
    ) -> Option<TagKind> {
        if has_content {
            let awaited = match mark {
                Some(Mark::Html) => true,
                Some(Mark::Head | Mark::Body | Mark::Template) => is_html,
                Some(Mark::Scope) => true,
                Some(Mark::First) | None => false,
            };
            self.open.push(name, awaited);
        }
        mark.filter(|mark| if *mark == Mark::Scope { has_content } else { is_html }).map(TagKind::Start)
    }

    /// Handles the end of a piece. Returns the start of an unfinished tag that may have to be reported; the next piece
    /// continues within this tag.
    pub fn end_piece(&mut self) -> Begins {
        let goes_on = if self.begins == Begins::Nowhere { Begins::Nowhere } else { Begins::Before };
        std::mem::replace(&mut self.begins, goes_on)
    }

    /// The approximate memory of the scanner, bytes.
    pub fn held(&self) -> usize {
        size_of::<Self>()
            + self.doubt.as_ref().map_or(0, |doubt| doubt.held())
            + self.open.held()
            + self.foreign.held()
    }
}
