//! Text outside of tags: comments, declarations, and the content of elements such as scripts. Each function returns the
//! state after a byte, and whether the byte is consumed. If not, the new state reads it.

use super::names::{EMPTY, Means, push};
use super::{Scanner, State, is_blank};

/// The text after `<!` that starts text in SVG and MathML.
const CDATA: &[u8] = b"[CDATA[";
/// The name in the tags that begin and end an inner script within a comment of a script.
const SCRIPT: &[u8] = b"script";

/// The state after `<!`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Declaration {
    Begins,
    Dash,
    /// After this many bytes of [`CDATA`].
    Cdata(u8),
}

impl Declaration {
    pub fn next(self, byte: u8, may_be_cdata: bool) -> (State, bool) {
        match self {
            Self::Begins if byte == b'-' => (State::Declaration(Self::Dash), true),
            Self::Dash if byte == b'-' => (State::Comment(CommentState::Begins), true),
            Self::Begins if may_be_cdata && byte == b'[' => (State::Declaration(Self::Cdata(1)), true),
            Self::Cdata(read) if CDATA.get(usize::from(read)) == Some(&byte) => {
                let whole = usize::from(read) + 1 == CDATA.len();
                (if whole { State::Cdata(0) } else { State::Declaration(Self::Cdata(read + 1)) }, true)
            }
            _ => (State::Bogus, false),
        }
    }
}

/// Within `<![CDATA[`.
pub(super) fn cdata(brackets: u8, byte: u8) -> (State, bool) {
    match byte {
        b']' => (State::Cdata(2.min(brackets + 1)), true),
        b'>' if brackets == 2 => (State::Data, true),
        _ => (State::Cdata(0), true),
    }
}

/// Within a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommentState {
    Begins,
    /// After `<!--` and a dash.
    BeginsDash,
    Text,
    Dash,
    /// After two or more dashes.
    Dashes,
    /// After `--!`.
    Bang,
}

impl CommentState {
    pub(super) fn next(self, byte: u8) -> (State, bool) {
        (self.step(byte).map_or(State::Data, State::Comment), true)
    }

    /// The state after another byte; `None` if the comment has ended.
    pub fn step(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Begins | Self::BeginsDash | Self::Dashes | Self::Bang, b'>') => return None,
            (Self::Begins, b'-') => Self::BeginsDash,
            (Self::BeginsDash | Self::Dash | Self::Dashes, b'-') => Self::Dashes,
            (Self::Text | Self::Bang, b'-') => Self::Dash,
            (Self::Dashes, b'!') => Self::Bang,
            _ => Self::Text,
        })
    }
}

/// Within the text of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Raw {
    Text,
    /// After `<`.
    Opens,
    /// After `</`.
    Closes,
    Name,
}

/// Within a comment in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// The state after `<!`.
    Begins,
    /// After `<!-`.
    BeginsDash,
    Text,
    Dash,
    /// After two or more dashes.
    Dashes,
    /// After `<`.
    Opens,
    /// After `</`, like [`Raw::Closes`].
    Closes,
    /// After `<` and this many bytes of [`SCRIPT`].
    Word(u8),
    /// After `<script`.
    Named,
    /// Within an inner script in the comment.
    Inner,
    InnerDash,
    InnerDashes,
    /// After `<`.
    InnerOpens,
    /// After `</` and this many bytes of [`SCRIPT`].
    InnerWord(u8),
    /// After `</script`.
    InnerNamed,
}

impl Script {
    pub fn next(self, byte: u8) -> (State, bool) {
        let ends_word = is_blank(byte) || matches!(byte, b'/' | b'>');
        let next = match (self, byte) {
            (Self::Begins, b'-') => Self::BeginsDash,
            (Self::Begins, _) => return (State::Raw(Raw::Text), false),
            (Self::BeginsDash, b'-') => Self::Dashes,
            (Self::BeginsDash, _) => return (State::Raw(Raw::Text), false),
            (Self::Dashes | Self::InnerDashes, b'>') => return (State::Raw(Raw::Text), true),
            (Self::Text, b'-') => Self::Dash,
            (Self::Dash | Self::Dashes, b'-') => Self::Dashes,
            (Self::Text | Self::Dash | Self::Dashes, b'<') => Self::Opens,
            (Self::Text | Self::Dash | Self::Dashes, _) => Self::Text,
            (Self::Opens, b'/') => Self::Closes,
            (Self::Opens, b's' | b'S') => Self::Word(1),
            (Self::Word(read), byte) if is_next(read, byte) => {
                if usize::from(read) + 1 == SCRIPT.len() {
                    Self::Named
                } else {
                    Self::Word(read + 1)
                }
            }
            (Self::Named, _) if ends_word => Self::Inner,
            (Self::Opens | Self::Closes | Self::Word(_) | Self::Named, _) => {
                return (State::Script(Self::Text), false);
            }
            (Self::Inner, b'-') => Self::InnerDash,
            (Self::InnerDash | Self::InnerDashes, b'-') => Self::InnerDashes,
            (Self::Inner | Self::InnerDash | Self::InnerDashes, b'<') => Self::InnerOpens,
            (Self::Inner | Self::InnerDash | Self::InnerDashes, _) => Self::Inner,
            (Self::InnerOpens, b'/') => Self::InnerWord(0),
            (Self::InnerWord(read), byte) if is_next(read, byte) => {
                if usize::from(read) + 1 == SCRIPT.len() {
                    Self::InnerNamed
                } else {
                    Self::InnerWord(read + 1)
                }
            }
            (Self::InnerNamed, _) if ends_word => Self::Text,
            (Self::InnerOpens | Self::InnerWord(_) | Self::InnerNamed, _) => {
                return (State::Script(Self::Inner), false);
            }
        };
        (State::Script(next), true)
    }
}

fn is_next(read: u8, byte: u8) -> bool {
    SCRIPT.get(usize::from(read)) == Some(&byte.to_ascii_lowercase())
}

impl Scanner {
    /// Within the text of an element: up to the end tag of the same name.
    pub(super) fn raw(&mut self, raw: Raw, byte: u8) -> (State, bool) {
        let text = if self.escaped { State::Script(Script::Text) } else { State::Raw(Raw::Text) };
        match (raw, byte) {
            (Raw::Opens, b'/') => (State::Raw(Raw::Closes), true),
            (Raw::Opens, b'!') if self.tag.means == Means::Script => (State::Script(Script::Begins), true),
            (Raw::Closes, byte) if byte.is_ascii_alphabetic() => {
                self.tag.name = EMPTY;
                (State::Raw(Raw::Name), false)
            }
            (Raw::Name, byte) if byte.is_ascii_alphabetic() => {
                self.tag.name = push(self.tag.name, byte);
                (State::Raw(Raw::Name), true)
            }
            (Raw::Name, byte)
                if self.tag.name == self.last && (is_blank(byte) || matches!(byte, b'/' | b'>')) =>
            {
                (self.tag.ends, self.tag.capital, self.tag.empty) = (true, false, false);
                self.escaped = false;
                self.finish_name();
                (self.state, false)
            }
            _ => {
                self.escaped = false;
                (text, false)
            }
        }
    }
}
