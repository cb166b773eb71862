//! Reads KDL 2 into a [`Document`].
//!
//! A library that keeps every space for editing would be too slow and too large for 100,000 sites; here, files
//! only need to be read. This reader differs from the specification in two ways. It refuses type annotations,
//! since the type of each value is fixed. It also refuses two kinds of bare words: those that begin with `'`,
//! which are texts in the wrong quotes, and those that end in `:` before a comment, which are URLs without
//! quotes.

use super::document::{
    DEPTH_LIMIT, Document, FILE_LIMIT, ScalarKind, Span, SyntaxError, TOO_LONG, Text, TreeEntry,
};
use super::problem::line_and_column;
use super::scan::{Scanner, Token};
use super::string;

/// Reads a file.
///
/// # Errors
///
/// The first mistake in the syntax, and the text of the file.
pub(super) fn read(source: String) -> Result<Document, (SyntaxError, String)> {
    let mut document = Document::with_room(source.len());
    match read_into(&source, &mut document) {
        Ok(()) => {
            document.set_source(source);
            Ok(document)
        }
        Err(error) => Err((error, source)),
    }
}

fn read_into(source: &str, document: &mut Document) -> Result<(), SyntaxError> {
    if source.len() > FILE_LIMIT {
        return Err(SyntaxError::new(Span::new(0, 0), TOO_LONG));
    }
    let mut reader =
        KdlReader { scanner: Scanner::new(source), document, token: Token::End, span: Span::new(0, 0) };
    reader.advance()?;
    reader.version()?;
    reader.nodes(0, None)
}

struct KdlReader<'s, 'd> {
    scanner: Scanner<'s>,
    document: &'d mut Document,
    /// The current token. `span` is its place.
    token: Token,
    span: Span,
}

impl KdlReader<'_, '_> {
    fn advance(&mut self) -> Result<(), SyntaxError> {
        (self.token, self.span) = self.scanner.next()?;
        Ok(())
    }

    /// Skips `/- kdl-version 2`, which may stand on the first line.
    fn version(&mut self) -> Result<(), SyntaxError> {
        let rest = &self.scanner.source()[self.span.start as usize..];
        let Some(rest) = rest.strip_prefix("/-") else { return Ok(()) };
        let Some(rest) = rest.trim_start_matches([' ', '\t']).strip_prefix("kdl-version") else {
            return Ok(());
        };
        if rest.starts_with([' ', '\t']) && rest.trim_start_matches([' ', '\t']).starts_with('1') {
            return Err(SyntaxError::new(self.span, "the file says that it is KDL 1; this reads KDL 2"));
        }
        Ok(())
    }

    /// Reads nodes up to the end of the block that was opened at `open`, or up to the end of the file.
    fn nodes(&mut self, depth: usize, open: Option<Span>) -> Result<(), SyntaxError> {
        if depth > DEPTH_LIMIT {
            let span = open.unwrap_or(self.span);
            return Err(SyntaxError::new(
                span,
                format!("blocks are nested deeper than {DEPTH_LIMIT} levels"),
            ));
        }
        loop {
            self.line_space()?;
            match (self.token, open) {
                (Token::Close, Some(_)) => return self.advance(),
                (Token::Close, None) => {
                    let error = SyntaxError::new(self.span, "this `}` closes nothing");
                    return Err(match self.commented_open() {
                        Some(line) => error.help(format!(
                            "the `{{` at the end of line {line} is in a comment: `//` begins one, also in a path without quotes"
                        )),
                        None => error,
                    });
                }
                (Token::End, None) => return Ok(()),
                (Token::End, Some(open)) => {
                    return Err(SyntaxError::new(open, "this `{` is never closed"));
                }
                (Token::Slashdash, _) => {
                    let mark = self.document.mark();
                    self.advance()?;
                    self.line_space()?;
                    self.node(depth)?;
                    self.document.forget(mark);
                }
                _ => self.node(depth)?,
            }
        }
    }

    /// The number of the last earlier line on which a comment after other text ends with a `{`.
    fn commented_open(&self) -> Option<usize> {
        let source = self.scanner.source();
        let mut scanner = Scanner::new(source);
        let (mut found, mut starts_line) = (None, true);
        while let Ok((token, span)) = scanner.next()
            && span.start < self.span.start
        {
            let text = &source[span.start as usize..span.end()];
            if token == Token::LineComment && !starts_line && text.trim_end().ends_with('{') {
                found = Some(line_and_column(source, span.start as usize).0);
            }
            starts_line = token == Token::Newline || (starts_line && token == Token::Space);
        }
        found
    }

    fn node(&mut self, depth: usize) -> Result<(), SyntaxError> {
        let span = self.span;
        if self.token == Token::Open {
            return Err(SyntaxError::new(span, "this `{` belongs to no node")
                .help("write `{` on the line of its node, such as `site \"*\" {`"));
        }
        if !self.token.is_string() {
            return Err(self.unexpected("the name of a node"));
        }
        let name = self.string()?;
        let node = self.document.start_node(name, span);
        self.advance()?;
        self.entries(depth)?;
        self.blocks(depth)?;
        self.document.end_node(node);
        self.terminator()
    }

    /// Reads arguments and properties, up to a block or the end of the node.
    fn entries(&mut self, depth: usize) -> Result<(), SyntaxError> {
        let mut spaced = false;
        loop {
            spaced |= self.node_space()?;
            match self.token {
                Token::Slashdash => {
                    self.advance()?;
                    self.line_space()?;
                    if self.token == Token::Open {
                        let mark = self.document.mark();
                        self.block(depth)?;
                        self.document.forget(mark);
                        return Ok(());
                    }
                    if !spaced {
                        return Err(SyntaxError::new(self.span, "a space is missing before this value"));
                    }
                    let mark = self.document.mark();
                    spaced = self.entry()?;
                    self.document.forget(mark);
                }
                token if token.is_value() => {
                    if !spaced {
                        return Err(SyntaxError::new(self.span, "a space is missing before this value"));
                    }
                    spaced = self.entry()?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Reads one argument or property. Returns true if space followed it.
    fn entry(&mut self) -> Result<bool, SyntaxError> {
        if !self.token.is_value() {
            return Err(self.unexpected("a value"));
        }
        let (token, span) = (self.token, self.span);
        let text = self.value()?;
        self.advance()?;
        let spaced = self.node_space()?;
        if self.token != Token::Equals {
            self.document.push_entry(TreeEntry::new(None, kind(token), text, span));
            return Ok(spaced);
        }
        if !token.is_string() {
            return Err(SyntaxError::new(span, "the name of a property is a text"));
        }
        self.advance()?;
        self.node_space()?;
        if !self.token.is_value() {
            let error = self.unexpected("a value after `=`");
            return Err(match self.token {
                Token::Equals => error.help("put an expression in quotes"),
                _ => error,
            });
        }
        let (token, span) = (self.token, self.span);
        let value = self.value()?;
        self.document.push_entry(TreeEntry::new(Some(text), kind(token), value, span));
        self.advance()?;
        self.node_space()
    }

    /// Reads the blocks after the entries. At most one of them may be without `/-`.
    fn blocks(&mut self, depth: usize) -> Result<(), SyntaxError> {
        let mut counted = false;
        loop {
            self.node_space()?;
            match self.token {
                Token::Open if counted => {
                    return Err(SyntaxError::new(self.span, "a node has one block"));
                }
                Token::Open => {
                    counted = true;
                    self.block(depth)?;
                }
                Token::Slashdash => {
                    self.advance()?;
                    self.line_space()?;
                    if self.token != Token::Open {
                        return Err(self.unexpected("a block: values stand before it"));
                    }
                    let mark = self.document.mark();
                    self.block(depth)?;
                    self.document.forget(mark);
                }
                token if token.is_value() => {
                    return Err(self.unexpected("`;` or a line break after the block").help(
                        "another node begins after `;` or on a line of its own; values of this one stand before its block",
                    ));
                }
                _ => return Ok(()),
            }
        }
    }

    fn block(&mut self, depth: usize) -> Result<(), SyntaxError> {
        let open = self.span;
        self.advance()?;
        self.nodes(depth + 1, Some(open))
    }

    fn terminator(&mut self) -> Result<(), SyntaxError> {
        match self.token {
            Token::Newline | Token::LineComment | Token::Semicolon => self.advance(),
            Token::End | Token::Close => Ok(()),
            Token::Equals => Err(self
                .unexpected("a new line or `;`")
                .help("values stand behind the name, without `=`: `proxy \"app\"`")),
            _ => Err(self.unexpected("a new line or `;`")),
        }
    }

    /// The text of the current token, which is a string or a number.
    fn value(&mut self) -> Result<Text, SyntaxError> {
        if self.token.is_string() { self.string() } else { Ok(Text::of(self.span)) }
    }

    fn string(&mut self) -> Result<Text, SyntaxError> {
        let (start, end) = (self.span.start as usize, self.span.end());
        let source = self.scanner.source();
        let inner = |quotes: usize| (&source[start + quotes..end - quotes], start + quotes);
        let decoded = match self.token {
            Token::Quoted { escapes: false } => return Ok(Text::of(Span::new(start + 1, end - 1))),
            Token::Raw { hashes } => {
                let quotes = hashes as usize + 1;
                return Ok(Text::of(Span::new(start + quotes, end - quotes)));
            }
            Token::Quoted { escapes: true } => {
                let (body, at) = inner(1);
                string::unescape(body, at)?
            }
            Token::MultiLine => {
                let (body, at) = inner(3);
                string::multi_line(body, at, false)?
            }
            Token::RawMultiLine { hashes } => {
                let (body, at) = inner(hashes as usize + 3);
                string::multi_line(body, at, true)?
            }
            _ => return Ok(Text::of(self.span)),
        };
        Ok(self.document.decode(source.len(), &decoded))
    }

    /// Skips space inside of a node. Returns true if there was any.
    fn node_space(&mut self) -> Result<bool, SyntaxError> {
        let mut any = false;
        loop {
            match self.token {
                Token::Space | Token::BlockComment => self.advance()?,
                Token::LineContinuation => self.line_continuation()?,
                _ => return Ok(any),
            }
            any = true;
        }
    }

    /// Skips space and line breaks between nodes.
    fn line_space(&mut self) -> Result<(), SyntaxError> {
        loop {
            match self.token {
                Token::Space | Token::BlockComment | Token::Newline | Token::LineComment => self.advance()?,
                Token::LineContinuation => self.line_continuation()?,
                _ => return Ok(()),
            }
        }
    }

    fn line_continuation(&mut self) -> Result<(), SyntaxError> {
        let span = self.span;
        self.advance()?;
        while matches!(self.token, Token::Space | Token::BlockComment | Token::LineComment) {
            self.advance()?;
        }
        match self.token {
            Token::Newline => self.advance(),
            Token::End => Ok(()),
            _ => Err(SyntaxError::new(span, "a `\\` that continues a line is the last of it")),
        }
    }

    fn unexpected(&self, wanted: &str) -> SyntaxError {
        let found = match self.token {
            Token::End => "the end of the file".to_owned(),
            Token::Newline | Token::LineComment => "the end of the line".to_owned(),
            _ => {
                let text = &self.scanner.source()[self.span.start as usize..self.span.end()];
                format!("`{}`", text.chars().take(40).collect::<String>())
            }
        };
        SyntaxError::new(self.span, format!("expected {wanted}, found {found}"))
    }
}

fn kind(token: Token) -> ScalarKind {
    match token {
        Token::Number => ScalarKind::Number,
        Token::Bool(value) => ScalarKind::Bool(value),
        Token::Null => ScalarKind::Null,
        _ => ScalarKind::String,
    }
}
