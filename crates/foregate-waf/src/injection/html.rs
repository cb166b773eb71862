//! Splits text into tokens of HTML in the way of browsers, including old ones.

use memchr::{memchr, memchr_iter};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HtmlToken {
    Text,
    TagName,
    /// The end of a tag, or a closing tag.
    TagEnd,
    AttributeName,
    AttributeValue,
    Comment,
    Doctype,
}

/// The assumed position of an input in a document.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    Text,
    Tag,
    /// In the value of an attribute that began with this quote.
    Value(u8),
}

#[derive(Clone, Copy)]
enum TokenizerState {
    Text,
    TagOpen,
    TagNameEnd,
    SelfClosing,
    BeforeName,
    AfterName,
    BeforeValue,
    Value(u8),
    AfterValue,
    End,
}

/// Reads tokens one after the other.
pub(super) struct Html<'a> {
    input: &'a [u8],
    at: usize,
    state: TokenizerState,
    closing: bool,
}

type HtmlPiece<'a> = Option<(HtmlToken, &'a [u8])>;

fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0)
}

impl<'a> Html<'a> {
    pub(super) fn new(input: &'a [u8], start: Start) -> Self {
        let state = match start {
            Start::Text => TokenizerState::Text,
            Start::Tag => TokenizerState::BeforeName,
            Start::Value(quote) => TokenizerState::Value(quote),
        };
        Self { input, at: 0, state, closing: false }
    }

    pub(super) fn next(&mut self) -> HtmlPiece<'a> {
        match self.state {
            TokenizerState::Text => self.text(),
            TokenizerState::TagOpen => self.tag_open(),
            TokenizerState::TagNameEnd => self.tag_name_end(),
            TokenizerState::SelfClosing => self.self_closing(),
            TokenizerState::BeforeName => self.before_name(),
            TokenizerState::AfterName => self.after_name(),
            TokenizerState::BeforeValue => self.before_value(),
            TokenizerState::Value(quote) => self.quoted_value(quote),
            TokenizerState::AfterValue => self.after_value(),
            TokenizerState::End => None,
        }
    }

    fn rest(&self) -> &'a [u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    /// Returns the next `len` bytes as a token, and skips `skip` bytes after it.
    fn emit(&mut self, kind: HtmlToken, len: usize, skip: usize, state: TokenizerState) -> HtmlPiece<'a> {
        let token = &self.rest()[..len];
        self.at += len + skip;
        self.state = state;
        Some((kind, token))
    }

    /// Returns the rest of the input as a token.
    fn emit_rest(&mut self, kind: HtmlToken) -> HtmlPiece<'a> {
        let token = self.rest();
        self.at = self.input.len();
        self.state = TokenizerState::End;
        Some((kind, token))
    }

    fn text(&mut self) -> HtmlPiece<'a> {
        match memchr(b'<', self.rest()) {
            Some(0) => {
                self.at += 1;
                self.state = TokenizerState::TagOpen;
                self.tag_open()
            }
            Some(len) => self.emit(HtmlToken::Text, len, 1, TokenizerState::TagOpen),
            None if self.rest().is_empty() => None,
            None => self.emit_rest(HtmlToken::Text),
        }
    }

    fn tag_open(&mut self) -> HtmlPiece<'a> {
        match *self.rest().first()? {
            b'!' => {
                self.at += 1;
                self.declaration()
            }
            b'/' => {
                self.at += 1;
                self.end_tag_open()
            }
            b'?' => {
                self.at += 1;
                self.bogus_comment()
            }
            // Internet Explorer up to 9 reads <% %> as a comment.
            b'%' => {
                self.at += 1;
                self.comment_to(b"%>")
            }
            b'a'..=b'z' | b'A'..=b'Z' | 0 => self.tag_name(),
            _ => {
                self.at -= 1;
                self.emit(HtmlToken::Text, 1, 0, TokenizerState::Text)
            }
        }
    }

    fn end_tag_open(&mut self) -> HtmlPiece<'a> {
        self.closing = true;
        match *self.rest().first()? {
            b'>' => {
                self.state = TokenizerState::Text;
                self.text()
            }
            b'a'..=b'z' | b'A'..=b'Z' => self.tag_name(),
            _ => {
                self.closing = false;
                self.bogus_comment()
            }
        }
    }

    fn tag_name(&mut self) -> HtmlPiece<'a> {
        let ends = |byte: &u8| (is_white(*byte) && *byte != 0) || matches!(byte, b'/' | b'>');
        let Some(len) = self.rest().iter().position(ends) else { return self.emit_rest(HtmlToken::TagName) };
        match self.rest()[len] {
            b'/' => self.emit(HtmlToken::TagName, len, 1, TokenizerState::SelfClosing),
            b'>' if self.closing => {
                self.closing = false;
                self.emit(HtmlToken::TagEnd, len, 1, TokenizerState::Text)
            }
            b'>' => self.emit(HtmlToken::TagName, len, 0, TokenizerState::TagNameEnd),
            _ => self.emit(HtmlToken::TagName, len, 1, TokenizerState::BeforeName),
        }
    }

    /// Reads the `>` at the end of a tag.
    fn tag_name_end(&mut self) -> HtmlPiece<'a> {
        self.closing = false;
        let at_end = self.at + 1 >= self.input.len();
        self.emit(HtmlToken::TagEnd, 1, 0, if at_end { TokenizerState::End } else { TokenizerState::Text })
    }

    /// Skips white space and returns the next byte. Like libinjection, this function takes `\xff` for the end of the
    /// input.
    fn skip_white(&mut self) -> Option<u8> {
        let rest = self.rest();
        let white = rest.iter().take_while(|byte| is_white(**byte)).count();
        self.at += white;
        rest.get(white).copied().filter(|byte| *byte != 0xff)
    }

    /// Reads the text after a slash in a tag.
    fn self_closing(&mut self) -> HtmlPiece<'a> {
        if self.rest().first()? == &b'>' {
            self.at -= 1;
            return self.emit(HtmlToken::TagEnd, 2, 0, TokenizerState::Text);
        }
        self.before_name()
    }

    fn before_name(&mut self) -> HtmlPiece<'a> {
        loop {
            match self.skip_white()? {
                b'/' => {
                    self.at += 1;
                    if self.rest().first()? == &b'>' {
                        return self.self_closing();
                    }
                }
                b'>' => return self.emit(HtmlToken::TagEnd, 1, 0, TokenizerState::Text),
                _ => return self.name(),
            }
        }
    }

    fn name(&mut self) -> HtmlPiece<'a> {
        let ends = |byte: &u8| is_white(*byte) || matches!(byte, b'/' | b'=' | b'>');
        let Some(len) = self.rest().iter().skip(1).position(ends).map(|len| len + 1) else {
            return self.emit_rest(HtmlToken::AttributeName);
        };
        match self.rest()[len] {
            b'/' => self.emit(HtmlToken::AttributeName, len, 1, TokenizerState::SelfClosing),
            b'=' => self.emit(HtmlToken::AttributeName, len, 1, TokenizerState::BeforeValue),
            b'>' => self.emit(HtmlToken::AttributeName, len, 0, TokenizerState::TagNameEnd),
            _ => self.emit(HtmlToken::AttributeName, len, 1, TokenizerState::AfterName),
        }
    }

    fn after_name(&mut self) -> HtmlPiece<'a> {
        match self.skip_white()? {
            b'/' => {
                self.at += 1;
                self.self_closing()
            }
            b'=' => {
                self.at += 1;
                self.before_value()
            }
            b'>' => self.tag_name_end(),
            _ => self.name(),
        }
    }

    fn before_value(&mut self) -> HtmlPiece<'a> {
        match self.skip_white() {
            None => {
                self.state = TokenizerState::End;
                None
            }
            Some(quote @ (b'"' | b'\'' | b'`')) => self.quoted_value(quote),
            Some(_) => self.plain_value(),
        }
    }

    fn quoted_value(&mut self, quote: u8) -> HtmlPiece<'a> {
        // The tokenizer may start within a quoted value: then the input has no opening quote to
        // skip.
        if self.at > 0 {
            self.at += 1;
        }
        match memchr(quote, self.rest()) {
            Some(len) => self.emit(HtmlToken::AttributeValue, len, 1, TokenizerState::AfterValue),
            None => self.emit_rest(HtmlToken::AttributeValue),
        }
    }

    fn plain_value(&mut self) -> HtmlPiece<'a> {
        let ends = |byte: &u8| is_white(*byte) || *byte == b'>';
        let Some(len) = self.rest().iter().position(ends) else {
            return self.emit_rest(HtmlToken::AttributeValue);
        };
        match self.rest()[len] {
            b'>' => self.emit(HtmlToken::AttributeValue, len, 0, TokenizerState::TagNameEnd),
            _ => self.emit(HtmlToken::AttributeValue, len, 1, TokenizerState::BeforeName),
        }
    }

    fn after_value(&mut self) -> HtmlPiece<'a> {
        match *self.rest().first()? {
            b'/' => {
                self.at += 1;
                self.self_closing()
            }
            b'>' => self.emit(HtmlToken::TagEnd, 1, 0, TokenizerState::Text),
            _ => self.before_name(),
        }
    }

    fn bogus_comment(&mut self) -> HtmlPiece<'a> {
        self.comment_to(b">")
    }

    fn comment_to(&mut self, end: &[u8]) -> HtmlPiece<'a> {
        match memchr::memmem::find(self.rest(), end) {
            Some(len) => self.emit(HtmlToken::Comment, len, end.len(), TokenizerState::Text),
            None => self.emit_rest(HtmlToken::Comment),
        }
    }

    /// Reads the declaration or comment after `<!`.
    fn declaration(&mut self) -> HtmlPiece<'a> {
        let rest = self.rest();
        if rest.len() >= 7 && rest[..7].eq_ignore_ascii_case(b"DOCTYPE") {
            return match memchr(b'>', rest) {
                Some(len) => self.emit(HtmlToken::Doctype, len, 1, TokenizerState::Text),
                None => self.emit_rest(HtmlToken::Doctype),
            };
        }
        if rest.starts_with(b"[CDATA[") {
            self.at += 7;
            return match memchr::memmem::find(self.rest(), b"]]>") {
                Some(len) => self.emit(HtmlToken::Text, len, 3, TokenizerState::Text),
                None => self.emit_rest(HtmlToken::Text),
            };
        }
        if rest.starts_with(b"--") {
            self.at += 2;
            return self.comment();
        }
        self.bogus_comment()
    }

    /// Reads a comment up to `-->` or `-!>`. Zero bytes are allowed after the first dash.
    fn comment(&mut self) -> HtmlPiece<'a> {
        let rest = self.rest();
        for dash in memchr_iter(b'-', rest) {
            let zeros = rest[dash + 1..].iter().take_while(|byte| **byte == 0).count();
            match rest[dash + 1 + zeros..] {
                [b'-' | b'!', b'>', ..] => {
                    return self.emit(HtmlToken::Comment, dash, zeros + 3, TokenizerState::Text);
                }
                [] | [b'-' | b'!'] => break,
                _ => {}
            }
        }
        self.emit_rest(HtmlToken::Comment)
    }
}
