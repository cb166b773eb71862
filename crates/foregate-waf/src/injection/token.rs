//! Tokens of SQL.

/// The most bytes of a token's text that are kept. No known word is longer.
pub(super) const MAX_TEXT: usize = 31;

/// The kind of a token. Its value is the letter in fingerprints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum TokenKind {
    /// No token.
    #[default]
    None = 0,
    Keyword = b'k',
    Union = b'U',
    Group = b'B',
    Expression = b'E',
    Type = b't',
    Function = b'f',
    Bareword = b'n',
    Number = b'1',
    Variable = b'v',
    Text = b's',
    Operator = b'o',
    Logic = b'&',
    Comment = b'c',
    Collate = b'A',
    LeftParenthesis = b'(',
    RightParenthesis = b')',
    LeftBrace = b'{',
    RightBrace = b'}',
    Dot = b'.',
    Comma = b',',
    Colon = b':',
    Semicolon = b';',
    /// A word that begins a statement of Transact-SQL.
    Transact = b'T',
    Unknown = b'?',
    /// Text that counts as malicious, because databases read it in different ways.
    Evil = b'X',
    Backslash = b'\\',
}

impl TokenKind {
    const ALL: [Self; 26] = [
        Self::Keyword,
        Self::Union,
        Self::Group,
        Self::Expression,
        Self::Type,
        Self::Function,
        Self::Bareword,
        Self::Number,
        Self::Variable,
        Self::Text,
        Self::Operator,
        Self::Logic,
        Self::Comment,
        Self::Collate,
        Self::LeftParenthesis,
        Self::RightParenthesis,
        Self::LeftBrace,
        Self::RightBrace,
        Self::Dot,
        Self::Comma,
        Self::Colon,
        Self::Semicolon,
        Self::Transact,
        Self::Unknown,
        Self::Evil,
        Self::Backslash,
    ];

    /// The kind with this letter; [`TokenKind::None`] for an unknown letter.
    pub(super) fn of_letter(letter: u8) -> Self {
        Self::ALL.into_iter().find(|kind| *kind as u8 == letter).unwrap_or_default()
    }
}

/// One token, with the first [`MAX_TEXT`] bytes of its text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InjectionToken {
    pub(super) kind: TokenKind,
    /// The quote that opens the text; 0 if the text began before the input, or if the token is not a text.
    pub(super) open: u8,
    /// The quote that closes the text; 0 if there is none.
    pub(super) close: u8,
    pub(super) len: u8,
    pub(super) text: [u8; MAX_TEXT],
}

impl InjectionToken {
    pub(super) fn new(kind: TokenKind, text: &[u8]) -> Self {
        let len = text.len().min(MAX_TEXT);
        let mut token = Self { kind, len: len as u8, ..Self::default() };
        token.text[..len].copy_from_slice(&text[..len]);
        token
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text[..usize::from(self.len)]
    }

    /// Returns true if the token's text is this word, in any case.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.text().eq_ignore_ascii_case(word.as_bytes())
    }

    pub(super) fn is_any_word(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is_word(word))
    }

    pub(super) fn is_any(&self, kinds: &[TokenKind]) -> bool {
        kinds.contains(&self.kind)
    }

    pub(super) fn is_arithmetic(&self) -> bool {
        self.kind == TokenKind::Operator && matches!(self.text(), [b'*' | b'/' | b'-' | b'+' | b'%'])
    }

    pub(super) fn is_unary(&self) -> bool {
        let unary = matches!(self.text(), [b'+' | b'-' | b'!' | b'~'] | b"!!") || self.is_word("NOT");
        self.kind == TokenKind::Operator && unary
    }
}
