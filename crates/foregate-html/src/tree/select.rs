//! Selectors (level 4) that are matched against the open elements of the browser's tree.

use super::tokens::TagAttribute;
use super::{Node, Space};
use crate::scan::names::{EMPTY, Name, push};

/// A set of compound selectors, one bit for each.
type Bits = Box<[u64]>;

fn has(bits: &[u64], at: usize) -> bool {
    bits.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
}

fn add(bits: &mut [u64], at: usize) {
    if let Some(word) = bits.get_mut(at / 64) {
        *word |= 1 << (at % 64);
    }
}

/// A list of selectors, separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Select {
    alternatives: Vec<Vec<(Combinator, Compound)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Combinator {
    /// No combinator: the compound is the first of its selector.
    None,
    Child,
    Descendant,
}

/// The conditions on one element.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Compound {
    element: Option<(Box<str>, Name)>,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Id(Box<str>),
    Class(Box<str>),
    Attribute {
        name: Box<str>,
        test: Option<Test>,
    },
    /// The position among the children of the parent, or with `of_type` among those of the same name, is `a`·n + `b`.
    Nth {
        a: i32,
        b: i32,
        of_type: bool,
    },
    Root,
    Not(Vec<Compound>),
    Any(Vec<Compound>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Test {
    operator: u8,
    value: Box<str>,
    /// The flag `i` or `s` of the selector; `None` if the selector has neither.
    ignore_case: Option<bool>,
}

/// The HTML attributes with values that are compared without regard to case.
const LOOSE: &str = " accept accept-charset align alink axis bgcolor charset checked clear codetype color compact declare defer dir \
    direction disabled enctype face frame hreflang http-equiv lang language link media method multiple nohref noresize noshade \
    nowrap readonly rel rev rules scope scrolling selected shape target text type valign valuetype vlink ";

impl Select {
    /// Parses a list of selectors.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader { rest: text };
        let mut alternatives = Vec::new();
        loop {
            alternatives.push(reader.complex()?);
            if !reader.takes(',') {
                break;
            }
        }
        match reader.rest.chars().next() {
            None => Ok(Self { alternatives }),
            Some(other) => Err(format!("`{other}` is not expected here")),
        }
    }

    pub fn count(&self) -> usize {
        self.alternatives.iter().map(Vec::len).sum()
    }

    /// A selector without positions and combinators, which matches at least all elements that this one matches.
    pub fn wider(&self) -> String {
        let name = |alternative: &Vec<(Combinator, Compound)>| {
            let element = alternative.last().and_then(|(_, compound)| compound.element.as_ref());
            let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
            element
                .filter(|(text, _)| is_plain(text))
                .map_or("*".into(), |(text, _)| text.to_ascii_lowercase())
        };
        let names: Vec<String> = self.alternatives.iter().map(name).collect();
        if names.iter().any(|name| name == "*") { "*".into() } else { names.join(", ") }
    }

    pub fn counts_names(&self) -> bool {
        self.alternatives.iter().flatten().any(|(_, compound)| compound.counts_names())
    }
}

impl Compound {
    fn counts_names(&self) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Nth { of_type, .. } => *of_type,
            Part::Not(list) | Part::Any(list) => list.iter().any(Self::counts_names),
            _ => false,
        })
    }
}

struct Reader<'t> {
    rest: &'t str,
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_') || !character.is_ascii()
}

impl Reader<'_> {
    fn blanks(&mut self) -> bool {
        let before = self.rest.len();
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
        self.rest.len() < before
    }

    fn takes(&mut self, wanted: char) -> bool {
        self.blanks();
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.takes(wanted) { Ok(()) } else { Err(format!("`{wanted}` is missing")) }
    }

    fn complex(&mut self) -> Result<Vec<(Combinator, Compound)>, String> {
        let mut all = vec![(Combinator::None, self.compound()?)];
        loop {
            let blank = self.blanks();
            let combinator = match self.rest.chars().next() {
                None | Some(',' | ')') => return Ok(all),
                Some('>') => {
                    self.rest = self.rest.get(1..).unwrap_or_default();
                    Combinator::Child
                }
                Some(sibling @ ('+' | '~')) => {
                    return Err(format!(
                        "`{sibling}` is not supported; write the element that is meant with a class, an attribute or its parent (`ul > li`)"
                    ));
                }
                Some(_) if blank => Combinator::Descendant,
                Some(other) => return Err(format!("`{other}` is not expected here")),
            };
            all.push((combinator, self.compound()?));
        }
    }

    fn compound(&mut self) -> Result<Compound, String> {
        self.blanks();
        let mut compound = Compound::default();
        let before = self.rest;
        if self.rest.starts_with('*') {
            self.takes('*');
        } else if self.begins_name() {
            let name = self.name()?;
            let number = name.bytes().fold(EMPTY, push);
            compound.element = Some((name.into(), number));
        }
        if self.rest.starts_with('|') {
            return Err("namespaces (`|`) are not supported; leave them out".into());
        }
        while let Some(part) = self.part()? {
            compound.parts.push(part);
        }
        if before.len() == self.rest.len() {
            return Err(match self.rest.chars().next() {
                None => "an element is missing at the end".into(),
                Some(other) => format!("an element is missing before `{other}`"),
            });
        }
        Ok(compound)
    }

    fn begins_name(&self) -> bool {
        let mut rest = self.rest.chars();
        match rest.next() {
            Some('-') => {
                rest.next().is_some_and(|next| is_name(next) && !next.is_ascii_digit() || next == '\\')
            }
            Some('\\') => true,
            Some(first) => is_name(first) && !first.is_ascii_digit(),
            None => false,
        }
    }

    fn name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        if !self.begins_name() {
            return Err(match self.rest.chars().next() {
                Some(other) => {
                    format!("a name cannot begin with `{other}`; write `[id=\"..\"]` or `[class~=\"..\"]`")
                }
                None => "a name is missing at the end".into(),
            });
        }
        while let Some(character) = self.rest.chars().next() {
            if character == '\\' {
                name.push(self.escape()?);
            } else if is_name(character) {
                name.push(character);
                self.rest = self.rest.get(character.len_utf8()..).unwrap_or_default();
            } else {
                break;
            }
        }
        Ok(name)
    }

    /// Reads the character of an escape.
    fn escape(&mut self) -> Result<char, String> {
        let rest = self.rest.get(1..).unwrap_or_default();
        let digits = rest.bytes().take(6).take_while(u8::is_ascii_hexdigit).count();
        if digits > 0 {
            let (digits, behind) = rest.split_at(digits);
            self.rest = behind.strip_prefix([' ', '\n', '\t']).unwrap_or(behind);
            let code = u32::from_str_radix(digits, 16).ok().filter(|code| *code != 0);
            return Ok(code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let Some(character) = rest.chars().next() else {
            return Err("a character is missing behind `\\`".into());
        };
        self.rest = rest.get(character.len_utf8()..).unwrap_or_default();
        Ok(character)
    }

    fn part(&mut self) -> Result<Option<Part>, String> {
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        if !matches!(first, '#' | '.' | '[' | ':') {
            return Ok(None);
        }
        self.rest = self.rest.get(1..).unwrap_or_default();
        let part = match first {
            '#' => Part::Id(self.name()?.into()),
            '.' => Part::Class(self.name()?.into()),
            '[' => self.attribute()?,
            _ => self.pseudo()?,
        };
        Ok(Some(part))
    }

    fn attribute(&mut self) -> Result<Part, String> {
        self.blanks();
        let name = self.name()?;
        self.blanks();
        if self.rest.starts_with('|') && !self.rest.starts_with("|=") {
            return Err("namespaces (`|`) are not supported; leave them out".into());
        }
        if self.takes(']') {
            return Ok(Part::Attribute { name: name.into(), test: None });
        }
        let operator = match self.rest.as_bytes().first() {
            Some(b'=') => b'=',
            Some(other @ (b'~' | b'|' | b'^' | b'$' | b'*')) => {
                self.rest = self.rest.get(1..).unwrap_or_default();
                *other
            }
            _ => return Err("`]` is missing".into()),
        };
        self.expect('=')?;
        self.blanks();
        let value = match self.rest.chars().next() {
            Some(quote @ ('"' | '\'')) => self.string(quote)?,
            _ if self.begins_name() => self.name()?,
            _ => return Err("put the value of an attribute in quotes: `[href='/a']`".into()),
        };
        self.blanks();
        let ignore_case = match self.rest.chars().next() {
            Some('i' | 'I') => Some(true),
            Some('s' | 'S') => Some(false),
            _ => None,
        };
        if ignore_case.is_some() {
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
        self.expect(']')?;
        Ok(Part::Attribute {
            name: name.into(),
            test: Some(Test { operator, value: value.into(), ignore_case }),
        })
    }

    fn string(&mut self, quote: char) -> Result<String, String> {
        self.rest = self.rest.get(1..).unwrap_or_default();
        let mut text = String::new();
        loop {
            match self.rest.chars().next() {
                None => return Err(format!("`{quote}` is missing")),
                Some('\\') => text.push(self.escape()?),
                Some(character) => {
                    self.rest = self.rest.get(character.len_utf8()..).unwrap_or_default();
                    if character == quote {
                        return Ok(text);
                    }
                    text.push(character);
                }
            }
        }
    }

    fn pseudo(&mut self) -> Result<Part, String> {
        if self.rest.starts_with(':') {
            return Err("pseudo-elements (`::`) are none of a document's elements".into());
        }
        let name = self.name()?.to_ascii_lowercase();
        let nth = |a, b, of_type| Ok(Part::Nth { a, b, of_type });
        match &*name {
            "first-child" => nth(0, 1, false),
            "first-of-type" => nth(0, 1, true),
            "root" => Ok(Part::Root),
            "nth-child" | "nth-of-type" => {
                self.expect('(')?;
                let (a, b) = self.steps()?;
                self.expect(')')?;
                nth(a, b, name == "nth-of-type")
            }
            "not" => Ok(Part::Not(self.list()?)),
            "is" | "where" | "matches" => Ok(Part::Any(self.list()?)),
            "last-child" | "only-child" | "last-of-type" | "only-of-type" | "nth-last-child"
            | "nth-last-of-type" | "empty" | "has" => Err(format!(
                "`:{name}` depends on what follows in the document, which streams; use `:first-child` or `:nth-child(n)`"
            )),
            _ => Err(format!(
                "`:{name}` is not supported; there are `:first-child`, `:nth-child()`, `:first-of-type`, `:nth-of-type()`, `:not()`, `:is()` and `:root`"
            )),
        }
    }

    fn list(&mut self) -> Result<Vec<Compound>, String> {
        self.expect('(')?;
        let mut list = Vec::new();
        loop {
            list.push(self.compound()?);
            if !self.takes(',') {
                break;
            }
        }
        self.blanks();
        if !self.rest.starts_with(')') {
            return Err(
                "in `:not()` and `:is()` stand single elements, without blanks or `>` between them".into()
            );
        }
        self.expect(')')?;
        Ok(list)
    }

    /// Reads `odd`, `even`, or a form like `2n+1`.
    fn steps(&mut self) -> Result<(i32, i32), String> {
        let end = self.rest.find(')').unwrap_or(self.rest.len());
        let (inside, rest) = self.rest.split_at(end);
        let text = inside.trim().to_ascii_lowercase();
        let wrong =
            || format!("`{}` is no place of a child; write such as `2`, `odd` or `3n+1`", inside.trim());
        self.rest = rest;
        let number = |text: &str| {
            let compact: String = text.chars().filter(|each| !each.is_ascii_whitespace()).collect();
            compact.strip_prefix('+').unwrap_or(&compact).parse::<i32>().map_err(|_| wrong())
        };
        match &*text {
            "odd" => return Ok((2, 1)),
            "even" => return Ok((2, 0)),
            _ => {}
        }
        let Some((a, b)) = text.split_once('n') else { return number(&text).map(|b| (0, b)) };
        let a = match a.trim() {
            "" | "+" => 1,
            "-" => -1,
            a => number(a)?,
        };
        let b = if b.trim().is_empty() { 0 } else { number(b)? };
        Ok((a, b))
    }
}

/// An element that selectors are matched against.
pub(crate) struct Subject<'a, 'b> {
    pub node: &'a Node,
    /// The name as the document spells it.
    pub name: &'a str,
    pub attributes: &'a [TagAttribute<'b>],
    /// The position among all children, and among the children of the same name; 1 for the first.
    pub place: (u32, u32),
    pub is_root: bool,
    pub quirks: bool,
    /// The value of an attribute as text, with references resolved.
    pub text: &'a dyn Fn(&[u8]) -> String,
}

/// The facts about an element that are needed to match the elements in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ElementFacts {
    /// The compounds for which this element matches the selector up to and including the compound.
    pub here: Bits,
    /// The compounds for which this element, or an element around it, matches in this way.
    pub around: Bits,
}

/// Calls `found` with the number of each selector that matches, and returns the facts about the element. `parent` has
/// the facts about its parent.
pub(crate) fn matched(
    selectors: &[Select],
    subject: &Subject<'_, '_>,
    parent: &ElementFacts,
    mut found: impl FnMut(usize),
) -> ElementFacts {
    let words = selectors.iter().map(Select::count).sum::<usize>().div_ceil(64);
    let around = if parent.around.len() == words { parent.around.clone() } else { vec![0; words].into() };
    let mut known = ElementFacts { here: vec![0; words].into(), around };
    let mut at = 0;
    for (number, selector) in selectors.iter().enumerate() {
        let mut matches = false;
        for alternative in &selector.alternatives {
            for (place, (combinator, compound)) in alternative.iter().enumerate() {
                let may = match combinator {
                    Combinator::None => true,
                    Combinator::Child => has(&parent.here, at - 1),
                    Combinator::Descendant => has(&parent.around, at - 1),
                };
                if may && compound.fits(subject) {
                    add(&mut known.here, at);
                    add(&mut known.around, at);
                    matches |= place + 1 == alternative.len();
                }
                at += 1;
            }
        }
        if matches {
            found(number);
        }
    }
    known
}

impl Compound {
    fn fits(&self, subject: &Subject<'_, '_>) -> bool {
        let named = self.element.as_ref().is_none_or(|(text, name)| match subject.node.space {
            Space::Html => subject.node.name == *name,
            // Browsers match `foreignObject` regardless of case.
            _ => text.eq_ignore_ascii_case(subject.name),
        });
        named && self.parts.iter().all(|part| part.fits(subject))
    }
}

impl Part {
    fn fits(&self, subject: &Subject<'_, '_>) -> bool {
        match self {
            Self::Id(id) => subject.attribute("id").is_some_and(|value| same(&value, id, subject.quirks)),
            Self::Class(class) => subject.attribute("class").is_some_and(|value| {
                value.split([' ', '\t', '\n', '\r', '\x0c']).any(|each| same(each, class, subject.quirks))
            }),
            Self::Attribute { name, test } => match (subject.attribute(name), test) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(value), Some(test)) => test.fits(name, &value, subject.node.space == Space::Html),
            },
            Self::Nth { a, b, of_type } => {
                let place = if *of_type { subject.place.1 } else { subject.place.0 };
                let from = i64::from(place) - i64::from(*b);
                let a = i64::from(*a);
                if a == 0 { from == 0 } else { from % a == 0 && from / a >= 0 }
            }
            Self::Root => subject.is_root,
            Self::Not(list) => !list.iter().any(|compound| compound.fits(subject)),
            Self::Any(list) => list.iter().any(|compound| compound.fits(subject)),
        }
    }
}

impl Subject<'_, '_> {
    fn attribute(&self, name: &str) -> Option<String> {
        let html = self.node.space == Space::Html;
        let found = self.attributes.iter().find(|attribute| {
            attribute.name.eq_ignore_ascii_case(name.as_bytes())
                && (html || !super::has_namespace(attribute.name))
        })?;
        Some((self.text)(found.value))
    }
}

fn same(one: &str, other: &str, ignore_case: bool) -> bool {
    if ignore_case { one.eq_ignore_ascii_case(other) } else { one == other }
}

impl Test {
    fn fits(&self, name: &str, value: &str, html: bool) -> bool {
        let lower = name.to_ascii_lowercase();
        let loose = || html && LOOSE.split_ascii_whitespace().any(|known| known == lower);
        if !self.ignore_case.unwrap_or_else(loose) {
            return self.fits_exactly(value, &self.value);
        }
        self.fits_exactly(&value.to_ascii_lowercase(), &self.value.to_ascii_lowercase())
    }

    fn fits_exactly(&self, value: &str, wanted: &str) -> bool {
        match self.operator {
            b'=' => value == wanted,
            b'~' => {
                !wanted.is_empty() && value.split([' ', '\t', '\n', '\r', '\x0c']).any(|word| word == wanted)
            }
            b'|' => value.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')),
            b'^' => !wanted.is_empty() && value.starts_with(wanted),
            b'$' => !wanted.is_empty() && value.ends_with(wanted),
            _ => !wanted.is_empty() && value.contains(wanted),
        }
    }
}
