//! The tokens of the HTML standard's tokenizer (HTML, section 13.2.5).
//!
//! A tag is emitted once it is complete; scanned bytes are not scanned again.

use std::collections::HashSet;
use std::ops::Range;

use super::{Content, Facts, Token};
use crate::scan::names::{EMPTY, Name, is_long, push};
use crate::scan::text::CommentState;

/// The most attributes of a tag that are compared by name, one by one, to find duplicates.
const FEW: usize = 16;

/// An attribute as it is written: references are not resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TagAttribute<'b> {
    pub name: &'b [u8],
    pub value: &'b [u8],
}

/// A token, with its position in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundToken {
    pub token: Token,
    pub start: usize,
    pub end: usize,
    /// True if a `<` directly before the token is text.
    pub opens: bool,
    /// True if the text before the token ends with the possible start of a reference.
    pub refers: bool,
    /// The position up to which the input has to be known to recognise the token: after the first byte of a run of text,
    /// after the end of any other token.
    pub known: usize,
    /// True if the token continues the last emitted run of text, and has no other effect.
    pub continues: bool,
}

/// The tokenizer. Its positions count from the start of its input.
#[derive(Debug, Clone)]
pub(crate) struct Tokens {
    state: TokenizerState,
    /// The start of the present token, or of a possible one.
    start: usize,
    /// The position up to which the input has been examined.
    at: usize,
    /// The element whose text is being read.
    last: Name,
    /// True if a `<` directly before the token is text.
    pub opens: bool,
    /// True if the preceding text ends with the possible start of a reference.
    pub refers: bool,
    cdata: bool,
    /// True if some of the element's text has been read.
    read: bool,
    /// The last reported token, if it is a run of text.
    run: Option<Token>,
    /// True if comments are held until they are complete.
    holds_comments: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenizerState {
    Data,
    Tag(InTag),
    Comment(CommentState),
    /// A bogus comment, which ends at the next `>`.
    Bogus,
    Doctype,
    Cdata(u8),
    Raw,
    Script(Level),
    Plain,
}

/// The position within a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InTag {
    Name,
    Before,
    AttributeName,
    AfterName,
    BeforeValue,
    Quoted(u8),
    Unquoted,
}

/// The state of a script's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Plain,
    /// In a comment, after this many dashes.
    Escaped(u8),
    /// In an inner script within a comment, after this many dashes.
    Twice(u8),
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b'\x0c')
}

fn ends_name(byte: u8) -> bool {
    is_blank(byte) || matches!(byte, b'/' | b'>')
}

/// The result of looking for a word at this position.
enum Look {
    Yes,
    No,
    More,
}

fn looks_like(rest: &[u8], word: &[u8], last: bool) -> Look {
    let length = rest.len().min(word.len());
    let same =
        rest.get(..length).unwrap_or_default().eq_ignore_ascii_case(word.get(..length).unwrap_or_default());
    match same {
        true if length == word.len() => Look::Yes,
        true if !last => Look::More,
        _ => Look::No,
    }
}

impl Tokens {
    pub fn new() -> Self {
        Self {
            state: TokenizerState::Data,
            start: 0,
            at: 0,
            last: EMPTY,
            opens: false,
            refers: false,
            cdata: false,
            read: false,
            run: None,
            holds_comments: false,
        }
    }

    /// If `holds_comments` is true, comments do not [pass](Self::passed) until they are complete.
    pub fn holding_comments(self, holds_comments: bool) -> Self {
        Self { holds_comments, ..self }
    }

    /// The position up to which the input has been examined. The next token needs at least one byte after it.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The number of bytes read of an unfinished tag or comment that is held back until it is complete.
    pub fn begun(&self) -> usize {
        match self.state {
            TokenizerState::Tag(_) | TokenizerState::Doctype => self.at - self.start,
            TokenizerState::Comment(_) | TokenizerState::Bogus if self.holds_comments => self.at - self.start,
            _ => 0,
        }
    }

    /// Returns true if a token of this kind is held until it is complete.
    pub fn holds(&self, token: Token) -> bool {
        match token {
            Token::Start(..) | Token::End(_) | Token::Doctype(_) => true,
            Token::Comment => self.holds_comments,
            Token::Blank | Token::Null | Token::Text => false,
        }
    }

    /// The number of bytes that need not be held back: they belong to reported tokens, or to text in which no tag can
    /// begin any more.
    pub fn passed(&self) -> usize {
        match self.state {
            // The byte after a `<` that is text decides if the `<` can stay unescaped.
            TokenizerState::Data | TokenizerState::Tag(_) => {
                self.start - usize::from(self.opens).min(self.start)
            }
            TokenizerState::Doctype | TokenizerState::Raw | TokenizerState::Script(_) => self.start,
            TokenizerState::Comment(_) | TokenizerState::Bogus if self.holds_comments => self.start,
            TokenizerState::Comment(_)
            | TokenizerState::Bogus
            | TokenizerState::Cdata(_)
            | TokenizerState::Plain => self.at,
        }
    }

    /// Drops this many bytes from the start of the input: positions now count from after them.
    pub fn forget(&mut self, count: usize) {
        self.start = self.start.saturating_sub(count);
        self.at = self.at.saturating_sub(count);
    }

    /// Returns true if the position is in text between tags, with no unfinished construct.
    pub fn is_between(&self) -> bool {
        self.state == TokenizerState::Data && self.start == self.at && !self.opens
    }

    /// Returns true if markup would become part of an unfinished construct, or of a script.
    pub fn is_unfinished(&self) -> bool {
        !matches!(self.state, TokenizerState::Data | TokenizerState::Plain | TokenizerState::Raw)
    }

    /// Returns true if the position is within the text of an element, and some of it has been read.
    pub fn is_in_text(&self) -> bool {
        self.read
            && matches!(self.state, TokenizerState::Raw | TokenizerState::Script(_) | TokenizerState::Plain)
    }

    /// Sets the state after a start tag of this name.
    pub fn go_on(&mut self, content: Content, name: Name, cdata: bool) {
        self.cdata = cdata;
        if content != Content::Markup {
            (self.last, self.read) = (name, false);
        }
        match content {
            Content::Markup => {}
            Content::Text => self.state = TokenizerState::Raw,
            Content::Script => self.state = TokenizerState::Script(Level::Plain),
            Content::Plain => self.state = TokenizerState::Plain,
        }
    }

    /// Reads the next token; `None` if more input is needed, or all of it has been read. `last` is true if no more input
    /// follows.
    pub fn next(&mut self, bytes: &[u8], last: bool) -> Option<FoundToken> {
        while self.at < bytes.len() {
            let found = match self.state {
                TokenizerState::Data => self.data(bytes, last)?,
                TokenizerState::Tag(tag) => return self.tag(tag, bytes),
                TokenizerState::Comment(comment) => self.comment(comment, bytes),
                TokenizerState::Bogus => self.bogus(bytes),
                TokenizerState::Doctype => self.doctype(bytes),
                TokenizerState::Cdata(brackets) => self.cdata(brackets, bytes),
                TokenizerState::Raw => self.raw(bytes, last)?,
                TokenizerState::Script(level) => self.script(level, bytes, last)?,
                TokenizerState::Plain => {
                    self.at = bytes.len();
                    self.told_run(Token::Text)
                }
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Reports a token other than text, which ends at the present position.
    fn told(&mut self, token: Token) -> Option<FoundToken> {
        self.run = None;
        let start = std::mem::replace(&mut self.start, self.at);
        let (opens, refers) = (self.opens, self.refers);
        if matches!(token, Token::Start(..) | Token::End(_)) {
            (self.opens, self.refers) = (false, false);
        }
        Some(FoundToken { token, start, end: self.at, opens, refers, known: self.at, continues: false })
    }

    /// Reports a run of text, which ends here or at the end of the available input.
    fn told_run(&mut self, token: Token) -> Option<FoundToken> {
        self.read |=
            matches!(self.state, TokenizerState::Raw | TokenizerState::Script(_) | TokenizerState::Plain);
        let continues = self.run.replace(token) == Some(token);
        let (start, end) = (std::mem::replace(&mut self.start, self.at), self.at);
        Some(FoundToken {
            token,
            start,
            end,
            opens: self.opens,
            refers: self.refers,
            known: start + 1,
            continues,
        })
    }

    /// Reads a token between tags; `None` if more input is needed.
    #[allow(
        clippy::option_option,
        reason = "one says that more is needed, the other that nothing is told here"
    )]
    fn data(&mut self, bytes: &[u8], last: bool) -> Option<Option<FoundToken>> {
        let rest = bytes.get(self.at..).unwrap_or_default();
        let text = memchr::memchr(b'<', rest).unwrap_or(rest.len());
        if text > 0 {
            return Some(self.text(rest.get(..text).unwrap_or_default()));
        }
        let step = match rest {
            [_, first, ..] if first.is_ascii_alphabetic() => TokenizerState::Tag(InTag::Name),
            [_, b'/', first, ..] if first.is_ascii_alphabetic() => TokenizerState::Tag(InTag::Name),
            [_, b'/', b'>', ..] => {
                self.at += 3;
                self.opens = false;
                return Some(self.told(Token::Comment));
            }
            [_, b'/', _, ..] | [_, b'?', ..] => TokenizerState::Bogus,
            [_, b'!', declaration @ ..] => self.declaration(declaration, last)?,
            [_] | [_, b'/'] if !last => return None,
            _ => {
                // The byte is text.
                self.at += 1;
                self.start = self.at - 1;
                self.opens = true;
                self.refers = false;
                return Some(self.told_run(Token::Text));
            }
        };
        self.start = self.at;
        self.state = step;
        self.at += match step {
            TokenizerState::Comment(_) => 4,
            TokenizerState::Cdata(_) => 9,
            TokenizerState::Doctype => 9,
            _ => 2,
        };
        Some(None)
    }

    fn declaration(&self, rest: &[u8], last: bool) -> Option<TokenizerState> {
        let looked = [
            (looks_like(rest, b"--", last), TokenizerState::Comment(CommentState::Begins)),
            (looks_like(rest, b"doctype", last), TokenizerState::Doctype),
            (
                if self.cdata && rest.starts_with(b"[") || rest.is_empty() {
                    looks_like(rest, b"[CDATA[", last)
                } else {
                    Look::No
                },
                TokenizerState::Cdata(0),
            ),
        ];
        let exact = !rest.starts_with(b"[") || rest.get(..7).is_none_or(|rest| rest == b"[CDATA[");
        for (look, state) in looked {
            match look {
                Look::Yes if state != TokenizerState::Cdata(0) || exact => return Some(state),
                Look::More => return None,
                _ => {}
            }
        }
        Some(TokenizerState::Bogus)
    }

    /// Reports a run of characters of one kind.
    fn text(&mut self, text: &[u8]) -> Option<FoundToken> {
        let kind = |byte: u8| match byte {
            0 => Token::Null,
            byte if is_blank(byte) => Token::Blank,
            _ => Token::Text,
        };
        let token = match text.first().map_or(Token::Text, |first| kind(*first)) {
            // White space after other text changes nothing.
            Token::Blank if self.run == Some(Token::Text) => Token::Text,
            token => token,
        };
        let length = match token {
            Token::Text => memchr::memchr(0, text).unwrap_or(text.len()),
            token => text.iter().position(|byte| kind(*byte) != token).unwrap_or(text.len()),
        };
        let run = text.get(..length).unwrap_or_default();
        let word = run.iter().rposition(|byte| !byte.is_ascii_alphanumeric() && *byte != b'#');
        self.refers = match word {
            Some(at) => run.get(at) == Some(&b'&'),
            None => self.refers && token == Token::Text,
        };
        self.opens = false;
        self.start = self.at;
        self.at += length;
        self.told_run(token)
    }

    fn tag(&mut self, mut tag: InTag, bytes: &[u8]) -> Option<FoundToken> {
        while let Some(&byte) = bytes.get(self.at) {
            tag = match (tag, byte) {
                (InTag::Quoted(quote), byte) => {
                    if byte == quote {
                        InTag::Before
                    } else {
                        let rest = bytes.get(self.at..).unwrap_or_default();
                        self.at += memchr::memchr(quote, rest).unwrap_or(rest.len());
                        continue;
                    }
                }
                (_, b'>') => {
                    self.at += 1;
                    self.state = TokenizerState::Data;
                    let token = token_of(bytes.get(self.start..self.at).unwrap_or_default());
                    return self.told(token);
                }
                (InTag::Unquoted, byte) => {
                    if is_blank(byte) {
                        InTag::Before
                    } else {
                        tag
                    }
                }
                (InTag::BeforeValue, b'"' | b'\'') => InTag::Quoted(byte),
                (InTag::BeforeValue, byte) => {
                    if is_blank(byte) {
                        tag
                    } else {
                        InTag::Unquoted
                    }
                }
                (_, b'/') => InTag::Before,
                (InTag::AttributeName, byte) if is_blank(byte) => InTag::AfterName,
                (InTag::Name, byte) if is_blank(byte) => InTag::Before,
                (InTag::AttributeName | InTag::AfterName, b'=') => InTag::BeforeValue,
                (InTag::Before | InTag::AfterName, byte) => {
                    if is_blank(byte) {
                        tag
                    } else {
                        InTag::AttributeName
                    }
                }
                (InTag::Name | InTag::AttributeName, _) => tag,
            };
            self.at += 1;
        }
        self.state = TokenizerState::Tag(tag);
        None
    }

    fn comment(&mut self, mut comment: CommentState, bytes: &[u8]) -> Option<FoundToken> {
        while let Some(&byte) = bytes.get(self.at) {
            self.at += 1;
            match comment.step(byte) {
                Some(next) => comment = next,
                None => {
                    self.state = TokenizerState::Data;
                    return self.told(Token::Comment);
                }
            }
        }
        self.state = TokenizerState::Comment(comment);
        None
    }

    fn bogus(&mut self, bytes: &[u8]) -> Option<FoundToken> {
        let rest = bytes.get(self.at..).unwrap_or_default();
        match memchr::memchr(b'>', rest) {
            Some(end) => {
                self.at += end + 1;
                self.state = TokenizerState::Data;
                self.told(Token::Comment)
            }
            None => {
                self.at = bytes.len();
                None
            }
        }
    }

    fn doctype(&mut self, bytes: &[u8]) -> Option<FoundToken> {
        let rest = bytes.get(self.at..).unwrap_or_default();
        let Some(end) = memchr::memchr(b'>', rest) else {
            self.at = bytes.len();
            return None;
        };
        self.at += end + 1;
        self.state = TokenizerState::Data;
        let doctype = bytes.get(self.start..self.at).unwrap_or_default();
        self.told(Token::Doctype(super::modes::is_quirky(doctype)))
    }

    fn cdata(&mut self, mut brackets: u8, bytes: &[u8]) -> Option<FoundToken> {
        while let Some(&byte) = bytes.get(self.at) {
            self.at += 1;
            brackets = match byte {
                b']' => 2.min(brackets + 1),
                b'>' if brackets == 2 => {
                    self.state = TokenizerState::Data;
                    self.opens = false;
                    return self.told(Token::Text);
                }
                _ => 0,
            };
        }
        self.state = TokenizerState::Cdata(brackets);
        None
    }

    /// Checks for the end tag of the element whose text is being read.
    fn ends_text(&self, rest: &[u8], last: bool) -> Look {
        let Some(behind) = rest.strip_prefix(b"</") else {
            return if rest.len() < 2 && b"</".starts_with(rest) && !last { Look::More } else { Look::No };
        };
        let mut name = EMPTY;
        for byte in behind {
            if ends_name(*byte) {
                return if name == self.last { Look::Yes } else { Look::No };
            }
            if !byte.is_ascii_alphabetic() || is_long(name) {
                return Look::No;
            }
            name = push(name, *byte);
        }
        if last { Look::No } else { Look::More }
    }

    #[allow(
        clippy::option_option,
        reason = "one says that more is needed, the other that nothing is told here"
    )]
    fn raw(&mut self, bytes: &[u8], last: bool) -> Option<Option<FoundToken>> {
        let rest = bytes.get(self.at..).unwrap_or_default();
        let text = memchr::memchr(b'<', rest).unwrap_or(rest.len());
        if text > 0 {
            self.at += text;
            return Some(self.told_run(Token::Text));
        }
        match self.ends_text(rest, last) {
            Look::More => return None,
            Look::Yes => {
                self.start = self.at;
                self.at += 2;
                self.state = TokenizerState::Tag(InTag::Name);
                return Some(None);
            }
            Look::No => self.at += 1,
        }
        Some(self.told_run(Token::Text))
    }

    #[allow(
        clippy::option_option,
        reason = "one says that more is needed, the other that nothing is told here"
    )]
    fn script(&mut self, level: Level, bytes: &[u8], last: bool) -> Option<Option<FoundToken>> {
        let rest = bytes.get(self.at..).unwrap_or_default();
        let (mut taken, mut next) = (1, level);
        match (level, rest) {
            (Level::Plain, [b'<', b'!', ..] | [b'<', b'!'] | [b'<']) if !matches!(rest, [b'<', other, ..] if *other != b'!') => {
                match looks_like(rest, b"<!--", last) {
                    Look::More => return None,
                    Look::Yes => (taken, next) = (4, Level::Escaped(2)),
                    Look::No => {}
                }
            }
            (Level::Escaped(2) | Level::Twice(2), [b'>', ..]) => next = Level::Plain,
            (Level::Escaped(dashes), [b'-', ..]) => next = Level::Escaped(2.min(dashes + 1)),
            (Level::Twice(dashes), [b'-', ..]) => next = Level::Twice(2.min(dashes + 1)),
            (Level::Escaped(_), [b'<', first, ..]) if first.is_ascii_alphabetic() => {
                match script_word(rest, b"<script", last) {
                    Look::More => return None,
                    Look::Yes => (taken, next) = (8, Level::Twice(0)),
                    Look::No => next = Level::Escaped(0),
                }
            }
            (Level::Twice(_), [b'<', ..]) => match script_word(rest, b"</script", last) {
                Look::More => return None,
                Look::Yes => (taken, next) = (9, Level::Escaped(0)),
                Look::No => next = Level::Twice(0),
            },
            (Level::Escaped(_), [b'<', b'/', ..] | [b'<']) | (Level::Plain, [b'<', ..]) => {
                match self.ends_text(rest, last) {
                    Look::More => return None,
                    Look::Yes => {
                        self.start = self.at;
                        self.at += 2;
                        self.state = TokenizerState::Tag(InTag::Name);
                        return Some(None);
                    }
                    Look::No if level != Level::Plain => next = Level::Escaped(0),
                    Look::No => {}
                }
            }
            (Level::Escaped(_), _) => next = Level::Escaped(0),
            (Level::Twice(_), _) => next = Level::Twice(0),
            (Level::Plain, _) => taken = memchr::memchr(b'<', rest).unwrap_or(rest.len()),
        }
        self.at += taken;
        self.state = TokenizerState::Script(next);
        Some(self.told_run(Token::Text))
    }
}

/// Checks for this word followed by its end.
fn script_word(rest: &[u8], word: &[u8], last: bool) -> Look {
    match looks_like(rest, word, last) {
        Look::Yes => match rest.get(word.len()) {
            Some(next) if ends_name(*next) => Look::Yes,
            None if !last => Look::More,
            _ => Look::No,
        },
        other => other,
    }
}

/// Reads the attributes of a tag as they are written. Of attributes with the same name, only the first counts.
pub(crate) fn attributes<'b>(tag: &'b [u8], found: &mut Vec<TagAttribute<'b>>) -> bool {
    found.clear();
    let mut at =
        1 + tag.iter().skip(1).position(|byte| ends_name(*byte) && *byte != b'/').unwrap_or(tag.len());
    // An end tag has its `/` before its name.
    let name_end = tag.iter().skip(2).position(|byte| ends_name(*byte)).map_or(tag.len(), |at| at + 2);
    at = at.min(name_end);
    let run = |at: usize, ends: fn(u8) -> bool| {
        at + tag.get(at..).unwrap_or_default().iter().position(|byte| ends(*byte)).unwrap_or_default()
    };
    let mut empty = false;
    let mut names = HashSet::new();
    while let Some(&byte) = tag.get(at) {
        if byte == b'>' {
            break;
        }
        empty = byte == b'/';
        if is_blank(byte) || byte == b'/' {
            at += 1;
            continue;
        }
        let end = run(at + 1, |byte| ends_name(byte) || byte == b'=');
        let name = tag.get(at..end).unwrap_or_default();
        let behind = run(end, |byte| !is_blank(byte));
        at = end;
        let mut value: Range<usize> = end..end;
        if tag.get(behind) == Some(&b'=') {
            let begins = run(behind + 1, |byte| !is_blank(byte));
            match tag.get(begins) {
                Some(quote @ (b'"' | b'\'')) => {
                    let rest = tag.get(begins + 1..).unwrap_or_default();
                    let length = memchr::memchr(*quote, rest).unwrap_or(rest.len());
                    value = begins + 1..begins + 1 + length;
                    at = value.end + 1;
                }
                _ => {
                    value = begins..run(begins, |byte| is_blank(byte) || byte == b'>');
                    at = value.end;
                }
            }
        }
        if found.len() == FEW {
            names.extend(found.iter().map(|other| other.name.to_ascii_lowercase()));
        }
        let is_new = match found.len() < FEW {
            true => !found.iter().any(|other| other.name.eq_ignore_ascii_case(name)),
            false => names.insert(name.to_ascii_lowercase()),
        };
        if is_new {
            found.push(TagAttribute { name, value: tag.get(value).unwrap_or_default() });
        }
    }
    empty
}

/// Converts a complete tag to a token.
fn token_of(tag: &[u8]) -> Token {
    let begins = if tag.get(1) == Some(&b'/') { 2 } else { 1 };
    let rest = tag.get(begins..).unwrap_or_default();
    let element =
        rest.iter().take_while(|byte| !ends_name(**byte)).fold(EMPTY, |name, byte| push(name, *byte));
    if begins == 2 {
        return Token::End(element);
    }
    let behind = rest.iter().position(|byte| ends_name(*byte)).and_then(|at| rest.get(at..));
    if behind == Some(b">") {
        return Token::Start(element, Facts::default());
    }
    let mut found = Vec::new();
    let empty = attributes(tag, &mut found);
    let mut facts = Facts { empty, ..Facts::default() };
    for attribute in &found {
        let value = |text: &[u8]| attribute.value.eq_ignore_ascii_case(text);
        let named = |text: &[u8]| attribute.name.eq_ignore_ascii_case(text);
        facts.hidden |= named(b"type") && value(b"hidden");
        facts.font |= named(b"color") || named(b"face") || named(b"size");
        facts.html |= named(b"encoding") && (value(b"text/html") || value(b"application/xhtml+xml"));
        let hashed = attribute.name.iter().fold(EMPTY, |hash, byte| push(hash, *byte));
        let hashed = attribute.value.iter().fold(hashed << 1 | 1, |hash, byte| {
            (hash ^ Name::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
        });
        facts.attributes = facts.attributes.wrapping_add((hashed >> 64) as u64 ^ hashed as u64);
    }
    Token::Start(element, facts)
}
