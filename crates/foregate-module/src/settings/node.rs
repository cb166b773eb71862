//! Nodes of the configuration, as modules read them.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::ops::RangeInclusive;
use core::time::Duration;

use super::value::{self, Scalar, ScalarKind, Wrong};

/// A place in the configuration. Only the platform can interpret it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The file, by its number.
    pub file: u32,
    /// The first byte.
    pub start: u32,
    /// The length in bytes.
    pub length: u32,
}

/// A mistake in the configuration, and further mistakes that were found together with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub place: Place,
    /// The error.
    pub message: String,
    /// A suggestion.
    pub help: Option<String>,
    /// Mistakes at other places, each with an empty list `further`. See [`and`](Self::and).
    pub further: Vec<Problem>,
}

/// The most further mistakes that one [`Problem`] holds. Any more are not reported.
pub const FURTHER_LIMIT: usize = 1000;

impl Problem {
    /// A mistake without advice.
    pub fn new(place: Place, message: impl Into<String>) -> Self {
        Self { place, message: message.into(), help: None, further: Vec::new() }
    }

    /// Adds another mistake to this one, up to [`FURTHER_LIMIT`]. With [`together`](super::together) and
    /// [`each`](super::each), a module reports all mistakes at once, so that a user does not have to fix one mistake to
    /// see the next.
    #[must_use]
    pub fn and(mut self, mut other: Self) -> Self {
        let further = core::mem::take(&mut other.further);
        let room = FURTHER_LIMIT.saturating_sub(self.further.len());
        self.further.extend(core::iter::once(other).chain(further).take(room));
        self
    }

    /// Adds a suggestion.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// A value of a node: an argument, or the value of a property. References to the environment and to files are
/// resolved.
#[derive(Debug, Clone)]
pub struct Argument {
    scalar: Scalar<'static>,
    place: Place,
}

impl Argument {
    /// A value at a place.
    pub fn new(scalar: Scalar<'static>, place: Place) -> Self {
        Self { scalar, place }
    }

    /// The place in its file.
    pub fn place(&self) -> Place {
        self.place
    }

    /// A problem at this argument.
    pub fn problem(&self, wrong: Wrong) -> Problem {
        Problem { help: wrong.help, ..Problem::new(self.place, wrong.message) }
    }

    /// A problem at this argument, described by a sentence.
    pub fn wrong(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.place, message)
    }

    /// A text.
    ///
    /// # Errors
    ///
    /// The argument is of another kind.
    pub fn text(&self) -> Result<&str, Problem> {
        value::string(&self.scalar).map_err(|wrong| self.problem(wrong))
    }

    /// A truth value.
    ///
    /// # Errors
    ///
    /// The argument is of another kind.
    pub fn flag(&self) -> Result<bool, Problem> {
        value::boolean(&self.scalar).map_err(|wrong| self.problem(wrong))
    }

    /// A whole number within a range.
    ///
    /// # Errors
    ///
    /// The argument is of another kind, or out of range.
    pub fn number(&self, range: RangeInclusive<u64>) -> Result<u64, Problem> {
        value::number(&self.scalar, range).map_err(|wrong| self.problem(wrong))
    }

    /// A number of bytes within a range.
    ///
    /// # Errors
    ///
    /// The argument is of another kind, or out of range.
    pub fn size(&self, range: RangeInclusive<u64>) -> Result<u64, Problem> {
        value::size(&self.scalar, range).map_err(|wrong| self.problem(wrong))
    }

    /// A span of time within a range.
    ///
    /// # Errors
    ///
    /// The argument is of another kind, or out of range.
    pub fn duration(&self, range: RangeInclusive<Duration>) -> Result<Duration, Problem> {
        value::duration(&self.scalar, range).map_err(|wrong| self.problem(wrong))
    }

    /// The value for a word. The argument must be one of `words`.
    ///
    /// # Errors
    ///
    /// The argument is none of these words.
    pub fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, Problem> {
        value::choose(&self.scalar, words).map_err(|wrong| self.problem(wrong))
    }

    /// A value parsed from a text.
    ///
    /// # Errors
    ///
    /// The argument is not a text, or is an invalid text; `expected` describes the valid texts.
    pub fn parse<T: core::str::FromStr>(&self, expected: &str) -> Result<T, Problem> {
        self.text()?.parse().map_err(|_| self.wrong(format!("expected {expected}")))
    }
}

impl PartialEq for Argument {
    /// Equal values, regardless of their places.
    fn eq(&self, other: &Self) -> bool {
        self.scalar == other.scalar
    }
}

impl Eq for Argument {}

impl Hash for Argument {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.scalar.hash(state);
    }
}

/// A node of the configuration. Two nodes with the same content are equal, regardless of their places.
#[derive(Debug, Clone)]
pub struct Node {
    name: Box<str>,
    place: Place,
    args: Vec<Argument>,
    props: Vec<(Box<str>, Argument)>,
    children: Vec<Node>,
}

impl Node {
    /// A node without values and block.
    pub fn new(name: &str, place: Place) -> Self {
        Self { name: name.into(), place, args: Vec::new(), props: Vec::new(), children: Vec::new() }
    }

    /// Adds an argument.
    #[must_use]
    pub fn with_arg(mut self, argument: Argument) -> Self {
        self.args.push(argument);
        self
    }

    /// Adds a property.
    #[must_use]
    pub fn with_prop(mut self, name: &str, argument: Argument) -> Self {
        self.props.push((name.into(), argument));
        self
    }

    /// Adds a node to its block.
    #[must_use]
    pub fn with_child(mut self, child: Node) -> Self {
        self.children.push(child);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The place of its name.
    pub fn place(&self) -> Place {
        self.place
    }

    /// A problem at this node.
    pub fn wrong(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.place, message)
    }

    /// Its arguments.
    pub fn args(&self) -> &[Argument] {
        &self.args
    }

    /// Checks a key that is turned on by its name alone, or by `#true`. The platform handles a single `#false`.
    ///
    /// # Errors
    ///
    /// There is another value, or `#false` is not alone.
    pub fn only_flag(&self) -> Result<(), Problem> {
        match self.args.first() {
            Some(argument) if !argument.flag()? => {
                Err(argument.wrong("`#false` stands alone: it turns off what stands further out"))
            }
            _ => Ok(()),
        }
    }

    /// The argument with this number, from 0.
    ///
    /// # Errors
    ///
    /// The argument is missing.
    pub fn arg(&self, number: usize) -> Result<&Argument, Problem> {
        self.args.get(number).ok_or_else(|| self.wrong(format!("`{}` needs a value", self.name)))
    }

    /// The property of this name.
    pub fn prop(&self, name: &str) -> Option<&Argument> {
        self.props.iter().find(|(found, _)| **found == *name).map(|(_, argument)| argument)
    }

    /// Its properties, in the order of the file.
    pub fn props(&self) -> impl Iterator<Item = (&str, &Argument)> {
        self.props.iter().map(|(name, argument)| (&**name, argument))
    }

    /// Removes a property and returns it.
    pub fn take_prop(&mut self, name: &str) -> Option<Argument> {
        let at = self.props.iter().position(|(found, _)| **found == *name)?;
        Some(self.props.remove(at).1)
    }

    /// The nodes of its block.
    pub fn children(&self) -> &[Node] {
        &self.children
    }

    /// The first node of this name in this node's block.
    pub fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|child| *child.name == *name)
    }

    /// All nodes of this name in this node's block.
    pub fn children_named<'n>(&'n self, name: &'n str) -> impl Iterator<Item = &'n Node> {
        self.children.iter().filter(move |child| *child.name == *name)
    }

    /// Returns true if the node only turns off an inherited key: `NAME #false`.
    pub fn turns_off(&self) -> bool {
        matches!(&*self.args, [argument] if argument.scalar.kind == ScalarKind::Bool(false))
            && self.props.is_empty()
            && self.children.is_empty()
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.args == other.args
            && self.props == other.props
            && self.children == other.children
    }
}

impl Eq for Node {}

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.args.hash(state);
        self.props.hash(state);
        self.children.hash(state);
    }
}
