//! Parses a text to a tree. The names in it are resolved later, by `check`.

use std::net::IpAddr;
use std::ops::Range;

use crate::error::Error;
use crate::lex::{Quote, Token, token, visible};
use crate::limits::{MAX_ARGUMENTS, MAX_DEPTH, MAX_EXPRESSION, MAX_SET};
use crate::sets::IpRange;

#[derive(Debug)]
pub(crate) struct Node<'t> {
    pub(crate) span: Range<usize>,
    pub(crate) kind: Kind<'t>,
}

#[derive(Debug)]
pub(crate) enum Kind<'t> {
    Field(&'t str),
    Text(Vec<u8>),
    Int(i64),
    Ip(IpAddr),
    Bool(bool),
    Indexed(Box<Node<'t>>, Vec<(Index, Range<usize>)>),
    Call(&'t str, Range<usize>, Vec<Node<'t>>),
    Not(Box<Node<'t>>),
    Logic(Logic, Vec<Node<'t>>),
    Compare(Box<Node<'t>>, Comparison<'t>),
}

/// The operator after the left side of a comparison.
#[derive(Debug)]
pub(crate) struct Comparison<'t> {
    pub(crate) operator: Operator,
    pub(crate) operator_span: Range<usize>,
    pub(crate) right: Right<'t>,
    pub(crate) right_span: Range<usize>,
}

#[derive(Debug)]
pub(crate) enum Index {
    At(u32),
    Name(Vec<u8>),
    Each,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Contains,
    Matches,
    Wildcard,
    StrictWildcard,
    In,
}

/// The right side of an operator, always literal.
#[derive(Debug)]
pub(crate) enum Right<'t> {
    Text(Vec<u8>),
    Int(i64),
    Ip(IpAddr),
    Bool(bool),
    /// The elements of a set, each with its place.
    Set(Vec<(SetItem, Range<usize>)>),
    List(&'t str),
}

#[derive(Debug)]
pub(crate) enum SetItem {
    Text(Vec<u8>),
    Ints(i64, i64),
    Ips(IpRange),
}

const OPERATORS: &[(&str, Operator)] = &[
    ("eq", Operator::Eq),
    ("==", Operator::Eq),
    ("ne", Operator::Ne),
    ("!=", Operator::Ne),
    ("lt", Operator::Lt),
    ("<", Operator::Lt),
    ("le", Operator::Le),
    ("<=", Operator::Le),
    ("gt", Operator::Gt),
    (">", Operator::Gt),
    ("ge", Operator::Ge),
    (">=", Operator::Ge),
    ("contains", Operator::Contains),
    ("matches", Operator::Matches),
    ("~", Operator::Matches),
    ("wildcard", Operator::Wildcard),
    ("strict", Operator::StrictWildcard),
    ("in", Operator::In),
];

/// Names of operators in other languages.
const FOREIGN: &[(&str, &str)] =
    &[("equal", "eq"), ("equals", "eq"), ("is", "eq"), ("like", "wildcard"), ("ilike", "wildcard")];

/// The logical operators with their two spellings. The one that binds least comes first.
const LOGIC: &[(Logic, &str, &str)] =
    &[(Logic::Or, "or", "||"), (Logic::Xor, "xor", "^^"), (Logic::And, "and", "&&")];

/// Returns true if a name is a keyword rather than a field or function.
pub(crate) fn is_keyword(name: &str) -> bool {
    matches!(name, "not" | "true" | "false" | "and" | "or" | "xor")
        || OPERATORS.iter().any(|(operator, _)| *operator == name)
}

impl Operator {
    /// The operator's spelling in letters.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::StrictWildcard => "strict wildcard",
            other => {
                let known = OPERATORS.iter().find(|(_, operator)| *operator == other);
                known.map_or("", |(name, _)| *name)
            }
        }
    }
}

pub(crate) fn parse(text: &str) -> Result<Node<'_>, Error> {
    if text.len() > MAX_EXPRESSION {
        let message = format!("an expression is longer than {MAX_EXPRESSION} bytes");
        return Err(Error::new(MAX_EXPRESSION..text.len(), message));
    }
    let (token, span) = token(text, 0, Quote::Text)?;
    let mut parser = Parser { text, token, span, end: 0, depth: 0 };
    let node = parser.logic(0)?;
    match &parser.token {
        Token::End => Ok(node),
        _ => Err(parser.after_operand()),
    }
}

struct Parser<'t> {
    text: &'t str,
    /// The next word, and its place.
    token: Token<'t>,
    span: Range<usize>,
    /// The end of the previous word.
    end: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    /// Takes the next word and reads the one after it.
    fn take(&mut self, quote: Quote) -> Result<(Token<'t>, Range<usize>), Error> {
        let (token, span) = token(self.text, self.span.end, quote)?;
        self.end = self.span.end;
        Ok((std::mem::replace(&mut self.token, token), std::mem::replace(&mut self.span, span)))
    }

    /// Consumes the next word if it is one of these.
    fn accept(&mut self, words: &[&str]) -> Result<bool, Error> {
        let is = match self.token {
            Token::Name(name) => words.contains(&name),
            Token::Symbol(symbol) => words.contains(&symbol),
            _ => false,
        };
        if is {
            self.take(Quote::Text)?;
        }
        Ok(is)
    }

    fn expect(&mut self, symbol: &'static str, for_what: &str) -> Result<(), Error> {
        if self.accept(&[symbol])? {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{symbol}` {for_what}")))
    }

    /// An error for an unexpected word, with the expected ones.
    fn unexpected(&self, expected: &str) -> Error {
        match &self.token {
            Token::End => {
                Error::new(self.span.clone(), format!("the expression ends where {expected} has to stand"))
            }
            _ => {
                let found = &self.text[self.span.clone()];
                Error::new(
                    self.span.clone(),
                    format!("`{}` stands where {expected} has to stand", brief(found)),
                )
            }
        }
    }

    /// The error for a word after a complete expression.
    fn after_operand(&self) -> Error {
        let error = self.unexpected("an operator or the end");
        match self.token {
            Token::Name(name) if name.eq_ignore_ascii_case("not") => {
                error.with_help("`not` stands before what it denies: `not http.host in {...}`")
            }
            Token::Name(name) if crate::functions::is_known(name) => {
                error.with_help(format!("`{name}` is a function: `{name}(..., ...)`"))
            }
            Token::Name(name) => {
                let names = OPERATORS.iter().map(|(name, _)| *name).chain(["and", "or", "xor"]);
                let names = names.filter(|name| name.starts_with(|first: char| first.is_ascii_alphabetic()));
                if names.clone().any(|operator| operator == name) {
                    return error
                        .with_help("what a comparison gives is true or false, which is not compared");
                }
                let name = name.to_ascii_lowercase();
                let foreign = FOREIGN.iter().find(|(foreign, _)| *foreign == name).map(|(_, ours)| *ours);
                match foreign.or_else(|| crate::nearest::nearest(&name, names)) {
                    Some(nearest) => error.with_help(format!("did you mean `{nearest}`?")),
                    None => error,
                }
            }
            _ => error,
        }
    }

    fn nest<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth == MAX_DEPTH {
            let message = format!("the expression nests deeper than {MAX_DEPTH} levels");
            return Err(Error::new(self.span.clone(), message));
        }
        self.depth += 1;
        let outcome = inner(self);
        self.depth -= 1;
        outcome
    }

    /// Parses the operators of a level and above: `or` (level 0), `xor`, `and`, then `not` and comparisons.
    fn logic(&mut self, level: usize) -> Result<Node<'t>, Error> {
        let Some((logic, word, symbol)) = LOGIC.get(level) else {
            return self.not();
        };
        let first = self.logic(level + 1)?;
        let mut operands = vec![first];
        while self.accept(&[word, symbol])? {
            operands.push(self.logic(level + 1)?);
        }
        if operands.len() > 1 {
            let span = operands[0].span.start..self.end;
            return Ok(Node { span, kind: Kind::Logic(*logic, operands) });
        }
        Ok(operands.remove(0))
    }

    fn not(&mut self) -> Result<Node<'t>, Error> {
        let start = self.span.start;
        if !self.accept(&["not", "!"])? {
            return self.comparison();
        }
        let inner = self.nest(Self::not)?;
        Ok(Node { span: start..self.end, kind: Kind::Not(Box::new(inner)) })
    }

    fn comparison(&mut self) -> Result<Node<'t>, Error> {
        let left = self.operand()?;
        let word = match self.token {
            Token::Name(name) => name,
            Token::Symbol(symbol) => symbol,
            _ => return Ok(left),
        };
        let Some(&(_, operator)) = OPERATORS.iter().find(|(name, _)| *name == word) else {
            return Ok(left);
        };
        let quote = if operator == Operator::Matches { Quote::Pattern } else { Quote::Text };
        let (_, mut operator_span) = self.take(quote)?;
        if operator == Operator::StrictWildcard && !self.accept(&["wildcard"])? {
            return Err(self.unexpected("`wildcard`"));
        }
        operator_span.end = self.end;
        let (right, right_span) = self.right(operator)?;
        let span = left.span.start..self.end;
        let comparison = Comparison { operator, operator_span, right, right_span };
        Ok(Node { span, kind: Kind::Compare(Box::new(left), comparison) })
    }

    fn right(&mut self, operator: Operator) -> Result<(Right<'t>, Range<usize>), Error> {
        if operator == Operator::In {
            return self.members();
        }
        let right = match &mut self.token {
            Token::Text(text) => Right::Text(std::mem::take(text)),
            Token::Int(number) => Right::Int(*number),
            Token::Ip(address) => Right::Ip(*address),
            Token::Name("true") => Right::Bool(true),
            Token::Name("false") => Right::Bool(false),
            Token::Symbol("{") | Token::List(_) | Token::Ips(_) | Token::Ints(..) => {
                let error = self.unexpected(&format!("the value of `{}`", operator.name()));
                return Err(
                    error.with_help("sets, networks and lists follow `in`: `in {10.0.0.0/8}`, `in $name`")
                );
            }
            Token::Name(name) => {
                let name = *name;
                let error = self.unexpected(&format!("the value of `{}`", operator.name()));
                let help = "on the right of an operator stands a literal; a text stands in double quotes";
                return Err(error.with_help(other_case(name).unwrap_or_else(|| help.to_owned())));
            }
            token => {
                let quotes = operator == Operator::Matches && !matches!(token, Token::End);
                let error = self.unexpected(&format!("the value of `{}`", operator.name()));
                return Err(match quotes {
                    true => error.with_help("a pattern stands in double quotes: `matches \"^/admin\"`"),
                    false => error,
                });
            }
        };
        let (_, span) = self.take(Quote::Text)?;
        Ok((right, span))
    }

    /// Reads the right side of `in`.
    fn members(&mut self) -> Result<(Right<'t>, Range<usize>), Error> {
        let start = self.span.start;
        if let Token::List(name) = self.token {
            let (_, span) = self.take(Quote::Text)?;
            return Ok((Right::List(name), span));
        }
        if !self.accept(&["{"])? {
            return Err(self.unexpected("a set or list").with_help("write `in {...}` or `in $name`"));
        }
        let mut items = Vec::new();
        while !self.accept(&["}"])? {
            if items.len() == MAX_SET {
                let message = format!("a set holds more than {MAX_SET} values");
                return Err(Error::new(self.span.clone(), message).with_help("put them into a list"));
            }
            let item = match &mut self.token {
                Token::Text(text) => SetItem::Text(std::mem::take(text)),
                Token::Int(number) => SetItem::Ints(*number, *number),
                Token::Ints(first, last) => SetItem::Ints(*first, *last),
                Token::Ip(address) => SetItem::Ips(IpRange::single(*address)),
                Token::Ips(range) => SetItem::Ips(*range),
                Token::Symbol(",") => {
                    let error = self.unexpected("a value of the set");
                    return Err(error.with_help("values are separated by blanks"));
                }
                _ => return Err(self.unexpected("a value of the set or `}`")),
            };
            let (_, span) = self.take(Quote::Text)?;
            items.push((item, span));
        }
        if items.is_empty() {
            return Err(Error::new(start..self.end, "a set cannot be empty"));
        }
        Ok((Right::Set(items), start..self.end))
    }

    fn operand(&mut self) -> Result<Node<'t>, Error> {
        let base = self.primary()?;
        let mut indexes = Vec::new();
        while let Token::Symbol("[") = self.token {
            let start = self.span.start;
            if indexes.len() == 2 {
                return Err(Error::new(self.span.clone(), "there is nothing left to index"));
            }
            self.take(Quote::Text)?;
            let index = match &mut self.token {
                Token::Text(name) => Index::Name(std::mem::take(name)),
                Token::Symbol("*") => Index::Each,
                Token::Int(number) => Index::At(u32::try_from(*number).map_err(|_| {
                    Error::new(self.span.clone(), "an index is a number from 0 to 4294967295")
                })?),
                _ => {
                    return Err(self.unexpected("an index").with_help(r#"write `[0]`, `["name"]` or `[*]`"#));
                }
            };
            self.take(Quote::Text)?;
            self.expect("]", "behind the index")?;
            indexes.push((index, start..self.end));
        }
        if indexes.is_empty() {
            return Ok(base);
        }
        Ok(Node { span: base.span.start..self.end, kind: Kind::Indexed(Box::new(base), indexes) })
    }

    fn primary(&mut self) -> Result<Node<'t>, Error> {
        let span = self.span.clone();
        let kind = match &mut self.token {
            Token::Symbol("(") => {
                self.take(Quote::Text)?;
                let mut inner = self.nest(|parser| parser.logic(0))?;
                if self.token != Token::Symbol(")") && self.token != Token::End {
                    return Err(self.after_operand());
                }
                self.expect(")", &format!("to the `(` at byte {}", span.start))?;
                inner.span = span.start..self.end;
                return Ok(inner);
            }
            Token::Text(text) => Kind::Text(std::mem::take(text)),
            Token::Int(number) => Kind::Int(*number),
            Token::Ip(address) => Kind::Ip(*address),
            Token::Name("true") => Kind::Bool(true),
            Token::Name("false") => Kind::Bool(false),
            Token::Name(name) if !is_keyword(name) => {
                let name = *name;
                if let Some(meant) = other_case(name) {
                    return Err(self.unexpected("a field, a function or a value").with_help(meant));
                }
                self.take(Quote::Text)?;
                if self.token == Token::Symbol("(") {
                    let arguments = self.arguments(name)?;
                    let kind = Kind::Call(name, span.clone(), arguments);
                    return Ok(Node { span: span.start..self.end, kind });
                }
                return Ok(Node { span, kind: Kind::Field(name) });
            }
            _ => return Err(self.unexpected("a field, a function or a value")),
        };
        self.take(Quote::Text)?;
        Ok(Node { span, kind })
    }

    fn arguments(&mut self, function: &str) -> Result<Vec<Node<'t>>, Error> {
        self.take(Quote::Text)?;
        let mut arguments = Vec::new();
        if self.accept(&[")"])? {
            return Ok(arguments);
        }
        loop {
            if arguments.len() == MAX_ARGUMENTS {
                let message = format!("`{function}` has more than {MAX_ARGUMENTS} arguments");
                return Err(Error::new(self.span.clone(), message));
            }
            arguments.push(self.nest(|parser| parser.logic(0))?);
            if self.accept(&[")"])? {
                return Ok(arguments);
            }
            if !self.accept(&[","])? {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
    }
}

/// The help for a word in capitals that is a keyword in lower case, such as `NOT` or `TRUE`. Such a word cannot be a
/// field, because no field has capitals.
fn other_case(name: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let meant = lower != name && matches!(&*lower, "not" | "true" | "false");
    meant.then(|| format!("did you mean `{lower}`?"))
}

/// A word for a message, cut off if it is long.
fn brief(word: &str) -> String {
    const LONGEST: usize = 40;
    match word.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", visible(&word[..end])),
        None => visible(word),
    }
}
