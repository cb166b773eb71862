//! Folds the tokens of an input to the few that distinguish injections from other texts.

use super::token::{InjectionToken, MAX_TEXT, TokenKind};
use super::tokenizer::Tokenizer;
use super::words::kind_of;

/// The most tokens of a fingerprint.
pub(super) const MAX_TOKENS: usize = 5;

/// Words that are functions before a parenthesis, and functions or names otherwise.
const FUNCTIONS: [&str; 11] = [
    "USER_ID",
    "USER_NAME",
    "DATABASE",
    "PASSWORD",
    "USER",
    "CURRENT_USER",
    "CURRENT_DATE",
    "CURRENT_TIME",
    "CURRENT_TIMESTAMP",
    "LOCALTIME",
    "LOCALTIMESTAMP",
];

/// The tokens of an input after folding.
#[derive(Debug, Default)]
pub(super) struct FoldedTokens {
    tokens: [InjectionToken; MAX_TOKENS + 1],
    len: usize,
}

impl FoldedTokens {
    pub(super) fn tokens(&self) -> &[InjectionToken] {
        &self.tokens[..self.len]
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut InjectionToken> {
        self.tokens[..self.len].last_mut()
    }
}

/// Reads and folds tokens until there are enough for a fingerprint, or until the input ends.
pub(super) fn fold(tokenizer: &mut Tokenizer<'_>) -> FoldedTokens {
    let mut fold =
        Fold { tokenizer, tokens: Default::default(), filled: 0, left: 0, more: true, comment: None };
    // Comments, opening parentheses, types and signs at the beginning are skipped: they tell nothing about an
    // injection.
    let first = loop {
        let Some(token) = fold.tokenizer.next() else { return FoldedTokens::default() };
        if !token.is_any(&[TokenKind::Comment, TokenKind::LeftParenthesis, TokenKind::Type])
            && !token.is_unary()
        {
            break token;
        }
    };
    fold.tokens[0] = first;
    fold.filled = 1;
    let len = match fold.run() {
        FoldEnd::Evil(len) => len,
        FoldEnd::Whole(len) => {
            if let (Some(comment), true) = (fold.comment, len < MAX_TOKENS) {
                fold.tokens[len] = comment;
                len + 1
            } else {
                // A sixth token may have been read to classify the fifth.
                len.min(MAX_TOKENS)
            }
        }
    };
    FoldedTokens { tokens: fold.tokens, len }
}

struct Fold<'a, 'b> {
    tokenizer: &'a mut Tokenizer<'b>,
    tokens: [InjectionToken; MAX_TOKENS + 1],
    /// The number of tokens in `tokens`.
    filled: usize,
    /// The number of tokens that are already folded.
    left: usize,
    more: bool,
    /// The last comment, if no other token has followed it.
    comment: Option<InjectionToken>,
}

/// The effect of a folding rule.
enum FoldChange {
    /// The rule does not apply.
    Nothing,
    /// The rule has changed the tokens: all rules are tried again.
    Again,
    /// The input cannot be interpreted, so it counts as malicious.
    Evil,
}

/// The number of tokens that are left when folding ends.
enum FoldEnd {
    Whole(usize),
    /// The last of them is malicious.
    Evil(usize),
}

impl Fold<'_, '_> {
    fn run(&mut self) -> FoldEnd {
        loop {
            self.restart_when_full();
            if !self.more || self.left >= MAX_TOKENS {
                return FoldEnd::Whole(self.filled);
            }
            self.fill(2);
            if self.filled - self.left < 2 {
                self.left = self.filled;
                continue;
            }
            match self.two() {
                FoldChange::Nothing => {}
                FoldChange::Again => continue,
                FoldChange::Evil => return FoldEnd::Evil(self.left + 2),
            }
            self.fill(3);
            if self.filled - self.left < 3 {
                self.left = self.filled;
                continue;
            }
            if let FoldChange::Nothing = self.three() {
                self.left += 1;
            }
        }
    }

    /// If there are five tokens that are only a part of an expression, folds them into one.
    fn restart_when_full(&mut self) {
        use TokenKind::{Bareword, Comma, LeftParenthesis, Number, Operator, RightParenthesis};
        if self.filled < MAX_TOKENS {
            return;
        }
        let kinds: [TokenKind; MAX_TOKENS] = std::array::from_fn(|at| self.tokens[at].kind);
        let is_part = matches!(
            kinds,
            [Number, Operator | Comma, LeftParenthesis, Number, RightParenthesis]
                | [Bareword, Operator, LeftParenthesis, Bareword | Number, RightParenthesis]
                | [Number, RightParenthesis, Comma, LeftParenthesis, Number]
                | [Bareword, RightParenthesis, Operator, LeftParenthesis, Bareword]
        );
        if is_part {
            self.left = 0;
            if self.filled > MAX_TOKENS {
                self.tokens[1] = self.tokens[MAX_TOKENS];
                self.filled = 2;
            } else {
                self.filled = 1;
            }
        }
    }

    /// Reads until there are `wanted` tokens that are not folded yet.
    fn fill(&mut self, wanted: usize) {
        while self.more && self.filled <= MAX_TOKENS && self.filled - self.left < wanted {
            match self.tokenizer.next() {
                None => self.more = false,
                Some(comment) if comment.kind == TokenKind::Comment => self.comment = Some(comment),
                Some(token) => {
                    self.comment = None;
                    self.tokens[self.filled] = token;
                    self.filled += 1;
                }
            }
        }
    }

    /// Removes the last `count` tokens; folding continues at the token `left`.
    fn drop(&mut self, count: usize, left: usize) -> FoldChange {
        self.filled -= count;
        self.left = left;
        FoldChange::Again
    }

    /// Replaces the token at `place` with the one after it.
    fn replace(&mut self, place: usize) {
        self.tokens[place] = self.tokens[place + 1];
    }

    fn two(&mut self) -> FoldChange {
        use TokenKind as K;
        let left = self.left;
        let (first, second) = (self.tokens[left], self.tokens[left + 1]);
        match (first.kind, second.kind) {
            (K::Text, K::Text) | (K::Semicolon, K::Semicolon) => return self.drop(1, left),
            (K::Operator | K::Logic, kind) if kind == K::Type || second.is_unary() => return self.drop(1, 0),
            (K::LeftParenthesis, _) if second.is_unary() => return self.drop(1, left.saturating_sub(1)),
            _ => {}
        }
        if let Some(merged) = merge(&first, &second) {
            self.tokens[left] = merged;
            return self.drop(1, left.saturating_sub(1));
        }
        let place = &mut self.tokens[left];
        match (first.kind, second.kind) {
            // `IF` is a function, but in Transact-SQL it begins a statement.
            (K::Semicolon, K::Function)
                if second.text().len() > 1 && second.text()[..2].eq_ignore_ascii_case(b"IF") =>
            {
                self.tokens[left + 1].kind = K::Transact;
                FoldChange::Again
            }
            (K::Bareword | K::Variable, K::LeftParenthesis) if first.is_any_word(&FUNCTIONS) => {
                place.kind = K::Function;
                FoldChange::Again
            }
            (K::Keyword, kind) if first.is_any_word(&["IN", "NOT IN"]) => {
                place.kind = if kind == K::LeftParenthesis { K::Operator } else { K::Bareword };
                FoldChange::Again
            }
            (K::Operator, kind) if first.is_any_word(&["LIKE", "NOT LIKE"]) => {
                if kind == K::LeftParenthesis {
                    place.kind = K::Function;
                }
                FoldChange::Nothing
            }
            (
                K::Type,
                K::Bareword | K::Number | K::Type | K::LeftParenthesis | K::Function | K::Variable | K::Text,
            ) => {
                self.replace(left);
                self.drop(1, 0)
            }
            (K::Collate, K::Bareword) => {
                // There are too many collations to list, so every word with an underscore counts as one.
                if second.text().split(|byte| *byte == 0).next().is_some_and(|name| name.contains(&b'_')) {
                    self.tokens[left + 1].kind = K::Type;
                    self.left = 0;
                }
                FoldChange::Nothing
            }
            (K::Backslash, _) if second.is_arithmetic() => {
                // Transact-SQL reads `\%1` as `0 % 1`.
                place.kind = K::Number;
                self.drop(0, 0)
            }
            (K::Backslash, _) => {
                self.replace(left);
                self.drop(1, 0)
            }
            (K::LeftParenthesis, K::LeftParenthesis) | (K::RightParenthesis, K::RightParenthesis) => {
                self.drop(1, 0)
            }
            (K::LeftBrace, K::Bareword) if second.text().is_empty() => {
                // MySQL reads {``.``.name} as a name.
                self.tokens[left + 1].kind = K::Evil;
                FoldChange::Evil
            }
            (K::LeftBrace, K::Bareword) => self.drop(2, 0),
            (_, K::RightBrace) => self.drop(1, 0),
            _ => FoldChange::Nothing,
        }
    }

    fn three(&mut self) -> FoldChange {
        use TokenKind as K;
        let left = self.left;
        let [first, second, third] = [self.tokens[left], self.tokens[left + 1], self.tokens[left + 2]];
        let unary = second.is_unary();
        match (first.kind, second.kind, third.kind) {
            (K::Number, K::Operator, K::Number) => self.drop(2, 0),
            (K::Operator, middle, K::Operator) if middle != K::LeftParenthesis => self.drop(2, 0),
            (K::Logic, _, K::Logic) => self.drop(2, 0),
            (K::Variable, K::Operator, K::Variable | K::Number | K::Bareword) => self.drop(2, 0),
            (K::Bareword | K::Number, K::Operator, K::Number | K::Bareword) => self.drop(2, 0),
            (K::Bareword | K::Number | K::Variable | K::Text, K::Operator, K::Type)
                if second.text() == b"::" =>
            {
                self.drop(2, 0)
            }
            (
                K::Bareword | K::Number | K::Text | K::Variable,
                K::Comma,
                K::Number | K::Bareword | K::Text | K::Variable,
            ) => self.drop(2, 0),
            (K::Expression | K::Group | K::Comma, _, K::LeftParenthesis) if unary => self.skip_sign(1),
            (
                K::Keyword | K::Expression | K::Group,
                _,
                K::Number | K::Bareword | K::Variable | K::Text | K::Function,
            ) if unary => self.skip_sign(1),
            // The comma goes as well: `1,-1` becomes `1`.
            (K::Comma, _, K::Number | K::Bareword | K::Variable | K::Text) if unary => self.skip_sign(3),
            (K::Comma, _, K::Function) if unary => self.skip_sign(1),
            (K::Bareword, K::Dot, K::Bareword) => self.drop(2, 0),
            (K::Expression, K::Dot, K::Bareword) => self.skip_sign(1),
            (K::Function, K::LeftParenthesis, third) if third != K::RightParenthesis => {
                // `USER` takes no arguments, so with arguments it is not this function.
                if first.is_word("USER") {
                    self.tokens[left].kind = K::Bareword;
                }
                FoldChange::Nothing
            }
            _ => FoldChange::Nothing,
        }
    }

    /// Replaces the second of three tokens with the third, and removes the last `count` tokens.
    fn skip_sign(&mut self, count: usize) -> FoldChange {
        self.replace(self.left + 1);
        self.drop(count, 0)
    }
}

/// Merges two words that form one token, such as `UNION ALL`.
fn merge(first: &InjectionToken, second: &InjectionToken) -> Option<InjectionToken> {
    use TokenKind as K;
    const PARTS: [TokenKind; 8] =
        [K::Keyword, K::Bareword, K::Operator, K::Union, K::Function, K::Expression, K::Transact, K::Type];
    if !first.is_any(&PARTS) || !(second.is_any(&PARTS) || second.kind == K::Logic) {
        return None;
    }
    let (start, end) = (first.text(), second.text());
    let len = start.len() + 1 + end.len();
    if len > MAX_TEXT {
        return None;
    }
    let mut text = [b' '; MAX_TEXT];
    text[..start.len()].copy_from_slice(start);
    text[start.len() + 1..len].copy_from_slice(end);
    let kind = kind_of(&text[..len]);
    (kind != K::None).then(|| InjectionToken {
        open: first.open,
        close: first.close,
        ..InjectionToken::new(kind, &text[..len])
    })
}
