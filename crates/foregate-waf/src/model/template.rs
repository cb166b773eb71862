//! Texts with macros: `Matched %{TX.0} within %{MATCHED_VAR_NAME}`.

use super::Variable;

/// A text in which macros stand for values of the transaction. Missing values expand to nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    pieces: Box<[Piece]>,
}

/// A part of a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The text itself; never empty.
    Text(Box<str>),
    /// A macro, which stands for a value.
    Macro(Macro),
}

/// `%{VARIABLE}` or `%{COLLECTION.name}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Macro {
    /// The variable to insert. If it is a collection and there is no name, its first value is inserted.
    pub variable: Variable,
    /// The name of an element in a collection, compared like the selector of a target.
    pub name: Option<Box<str>>,
}

impl Template {
    /// A template of these pieces. Adjacent texts are joined, and empty ones are left out.
    pub fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let mut joined: Vec<Piece> = Vec::new();
        for piece in pieces {
            match (piece, joined.last_mut()) {
                (Piece::Text(text), _) if text.is_empty() => {}
                (Piece::Text(text), Some(Piece::Text(last))) => *last = format!("{last}{text}").into(),
                (piece, _) => joined.push(piece),
            }
        }
        Self { pieces: joined.into() }
    }

    /// A text without macros.
    pub fn text(text: &str) -> Self {
        Self::new([Piece::Text(text.into())])
    }

    /// The pieces in order, without empty texts.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The text, if it contains no macro.
    pub fn literal(&self) -> Option<&str> {
        match &*self.pieces {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The macros in the text, in order.
    pub fn macros(&self) -> impl Iterator<Item = &Macro> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Macro(found) => Some(found),
            Piece::Text(_) => None,
        })
    }
}

impl std::fmt::Display for Template {
    /// Writes the text as in SecLang.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => f.write_str(text)?,
                Piece::Macro(Macro { variable, name: None }) => write!(f, "%{{{variable}}}")?,
                Piece::Macro(Macro { variable, name: Some(name) }) => write!(f, "%{{{variable}.{name}}}")?,
            }
        }
        Ok(())
    }
}
