//! Reads a configuration in JSON into a [`Document`].
//!
//! The tree is the same as for KDL. A file is an array of nodes. A node is an object with a `name` and,
//! optionally, `args` (an array of texts, numbers, booleans and nulls), `props` (an object with such values)
//! and `children` (an array of nodes).

use super::document::{
    DEPTH_LIMIT, Document, FILE_LIMIT, ScalarKind, Span, SyntaxError, TOO_LONG, Text, TreeEntry,
};

/// Reads a file.
///
/// # Errors
///
/// The first mistake in the syntax, and the text of the file.
pub(super) fn read(source: String) -> Result<Document, (SyntaxError, String)> {
    let mut document = Document::with_room(source.len());
    let result = if source.len() > FILE_LIMIT {
        Err(SyntaxError::new(Span::new(0, 0), TOO_LONG))
    } else {
        let mut reader = JsonReader { source: &source, at: 0, document: &mut document };
        reader.file()
    };
    match result {
        Ok(()) => {
            document.set_source(source);
            Ok(document)
        }
        Err(error) => Err((error, source)),
    }
}

const MEMBERS: &str = "a node is an object with `name`, `args`, `props` and `children`";

struct JsonReader<'s, 'd> {
    source: &'s str,
    at: usize,
    document: &'d mut Document,
}

/// The parts of a node that were read before its name.
#[derive(Default)]
struct Parts {
    name: Option<(Text, Span)>,
    args: Option<usize>,
    props: Option<usize>,
    children: Option<usize>,
}

impl JsonReader<'_, '_> {
    fn file(&mut self) -> Result<(), SyntaxError> {
        self.nodes(0)?;
        self.space();
        if self.at < self.source.len() { Err(self.unexpected("the end of the file")) } else { Ok(()) }
    }

    fn nodes(&mut self, depth: usize) -> Result<(), SyntaxError> {
        if depth > DEPTH_LIMIT {
            let message = format!("nodes are nested deeper than {DEPTH_LIMIT} levels");
            return Err(SyntaxError::new(Span::new(self.at, self.at), message));
        }
        self.list(b'[', b']', "an array of nodes", |reader| reader.node(depth))
    }

    /// Reads a node. Its members may stand in any order: this function first notes their places, and then reads
    /// them in the order that the tree needs.
    fn node(&mut self, depth: usize) -> Result<(), SyntaxError> {
        let start = self.at;
        let mut parts = Parts::default();
        self.list(b'{', b'}', "a node", |reader| reader.member(&mut parts))?;
        let end = self.at;
        let Some((name, span)) = parts.name else {
            return Err(
                SyntaxError::new(Span::new(start, start + 1), "this node has no `name`").help(MEMBERS)
            );
        };
        let node = self.document.start_node(name, span);
        if let Some(at) = parts.args {
            self.at = at;
            self.list(b'[', b']', "an array of values", |reader| reader.value(None))?;
        }
        if let Some(at) = parts.props {
            self.at = at;
            self.list(b'{', b'}', "an object of values", |reader| {
                let (key, _) = reader.key()?;
                reader.value(Some(key))
            })?;
        }
        if let Some(at) = parts.children {
            self.at = at;
            self.nodes(depth + 1)?;
        }
        self.document.end_node(node);
        self.at = end;
        Ok(())
    }

    fn member(&mut self, parts: &mut Parts) -> Result<(), SyntaxError> {
        let (key, span) = self.key()?;
        self.space();
        let at = self.at;
        let slot = match self.slice(span) {
            "\"name\"" => {
                let name = self.string()?;
                if parts.name.replace((name, Span::new(at, self.at))).is_some() {
                    return Err(SyntaxError::new(span, "this member is here twice"));
                }
                return Ok(());
            }
            "\"args\"" => &mut parts.args,
            "\"props\"" => &mut parts.props,
            "\"children\"" => &mut parts.children,
            _ => {
                let _ = key;
                return Err(SyntaxError::new(span, "a node has no such member").help(MEMBERS));
            }
        };
        if slot.replace(at).is_some() {
            return Err(SyntaxError::new(span, "this member is here twice"));
        }
        self.skip()
    }

    /// Reads a key and its colon.
    fn key(&mut self) -> Result<(Text, Span), SyntaxError> {
        self.space();
        let at = self.at;
        let text = self.string()?;
        let span = Span::new(at, self.at);
        self.space();
        self.expect(b':', "`:`")?;
        Ok((text, span))
    }

    fn value(&mut self, key: Option<Text>) -> Result<(), SyntaxError> {
        self.space();
        let start = self.at;
        let rest = &self.source.as_bytes()[start..];
        let (kind, text) = match rest.first() {
            Some(b'"') => (ScalarKind::String, Some(self.string()?)),
            Some(b'-' | b'0'..=b'9') => {
                let part = |b: &u8| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                self.at += rest.iter().take_while(|byte| part(byte)).count();
                let text = &self.source[start..self.at];
                if text.parse::<f64>().is_err() || text.trim_start_matches('-').starts_with('.') {
                    return Err(SyntaxError::new(Span::new(start, self.at), "this is not a number"));
                }
                (ScalarKind::Number, None)
            }
            _ => {
                let words = [
                    ("true", ScalarKind::Bool(true)),
                    ("false", ScalarKind::Bool(false)),
                    ("null", ScalarKind::Null),
                ];
                let word = words.into_iter().find(|(word, _)| rest.starts_with(word.as_bytes()));
                let Some((word, kind)) = word else {
                    return Err(self.unexpected("a text, a number, a boolean or null"));
                };
                self.at += word.len();
                (kind, None)
            }
        };
        let span = Span::new(start, self.at);
        self.document.push_entry(TreeEntry::new(key, kind, text.unwrap_or(Text::of(span)), span));
        Ok(())
    }

    fn string(&mut self) -> Result<Text, SyntaxError> {
        let start = self.at;
        let escapes = self.skip_string()?;
        let quoted = Span::new(start, self.at);
        if !escapes {
            return Ok(Text::of(Span::new(start + 1, self.at - 1)));
        }
        let text: String = serde_json::from_str(self.slice(quoted))
            .map_err(|_| SyntaxError::new(quoted, "an escape in this text is not known"))?;
        Ok(self.document.decode(self.source.len(), &text))
    }

    /// Skips a string. Returns true if it has escapes.
    fn skip_string(&mut self) -> Result<bool, SyntaxError> {
        let start = self.at;
        self.expect(b'"', "a text")?;
        let mut escapes = false;
        loop {
            match self.source.as_bytes().get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escapes = true;
                    self.at += 2;
                }
                Some(0x20..) => self.at += 1,
                _ => {
                    return Err(SyntaxError::new(
                        Span::new(start, start + 1),
                        "this text has no end on its line",
                    ));
                }
            }
        }
        self.at += 1;
        Ok(escapes)
    }

    /// Skips an array or object by counting its brackets. Its content is read later.
    fn skip(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.source.as_bytes().get(self.at) {
                Some(b'"') if depth > 0 => {
                    self.skip_string()?;
                    continue;
                }
                Some(b'[' | b'{') => depth += 1,
                Some(b']' | b'}') if depth > 0 => depth -= 1,
                Some(_) if depth > 0 => {}
                Some(_) => return Err(self.unexpected("an array or an object")),
                None => return Err(SyntaxError::new(Span::new(start, start), "this is never closed")),
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Reads a list between `open` and `close`, with commas between its parts.
    fn list(
        &mut self,
        open: u8,
        close: u8,
        what: &str,
        mut part: impl FnMut(&mut Self) -> Result<(), SyntaxError>,
    ) -> Result<(), SyntaxError> {
        self.space();
        self.expect(open, what)?;
        self.space();
        if self.source.as_bytes().get(self.at) == Some(&close) {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            part(self)?;
            self.space();
            match self.source.as_bytes().get(self.at) {
                Some(b',') => self.at += 1,
                Some(byte) if *byte == close => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected(&format!("`,` or `{}`", char::from(close)))),
            }
        }
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<(), SyntaxError> {
        if self.source.as_bytes().get(self.at) != Some(&byte) {
            return Err(self.unexpected(what));
        }
        self.at += 1;
        Ok(())
    }

    fn space(&mut self) {
        let rest = &self.source.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    }

    fn slice(&self, span: Span) -> &str {
        &self.source[span.start as usize..span.end()]
    }

    fn unexpected(&self, wanted: &str) -> SyntaxError {
        match self.source.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some('"') => {
                SyntaxError::new(Span::new(self.at, self.at + 1), format!("expected {wanted}, found a text"))
            }
            Some(c) => {
                let span = Span::new(self.at, self.at + c.len_utf8());
                SyntaxError::new(span, format!("expected {wanted}, found `{c}`"))
            }
            None => {
                let end = self.source.len();
                SyntaxError::new(Span::new(end, end), format!("expected {wanted}, found the end of the file"))
            }
        }
    }
}
