//! Compiled expressions.

use std::sync::Arc;

use crate::check::{Checker, Uses};
use crate::error::Error;
use crate::evaluate::Context;
use crate::facts::{Facts, Value};
use crate::lists::Lists;
use crate::parse::parse;
use crate::program::{Cond, Item};
use crate::scheme::{FieldId, Scheme, Stage, Type};

impl Scheme {
    /// Compiles a condition for a stage. The lists that it names are copied.
    ///
    /// # Errors
    ///
    /// The text is no expression, its types do not fit, its result is not a boolean, it reads values that are unknown
    /// at this stage, it names a missing list, or it exceeds a [limit](crate::limits).
    pub fn compile(&self, text: &str, stage: Stage, lists: &Lists) -> Result<Predicate, Error> {
        let mut checker = Checker::new(self, stage, lists);
        let (item, span) = checker.whole(parse(text)?)?;
        let kind: Type = item.scalar().into();
        match item {
            Item::Cond(cond) => Ok(Predicate(Arc::new(Program { root: cond, uses: checker.uses }))),
            _ => {
                let error = Error::new(
                    span,
                    format!("a rule has to come to a boolean, and this is {}", kind.phrase()),
                );
                Err(error.with_help("compare it with something: `eq`, `contains`, `in`"))
            }
        }
    }

    /// Compiles an expression for a stage. Its type may be any except an array or map. The lists that it names are
    /// copied.
    ///
    /// # Errors
    ///
    /// The errors of [`compile`](Self::compile), except that the result need not be a boolean.
    pub fn compile_value(&self, text: &str, stage: Stage, lists: &Lists) -> Result<Expression, Error> {
        let mut checker = Checker::new(self, stage, lists);
        let (item, _) = checker.whole(parse(text)?)?;
        Ok(Expression(Arc::new(Program { root: item, uses: checker.uses })))
    }
}

#[derive(Debug)]
struct Program<T> {
    root: T,
    uses: Uses,
}

impl<T> Program<T> {
    fn lists(&self) -> impl Iterator<Item = &str> {
        self.uses.lists.iter().map(|name| &**name)
    }
}

/// A compiled condition. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Predicate(Arc<Program<Cond>>);

impl Predicate {
    /// Returns true if the condition holds for this request.
    #[must_use]
    pub fn matches(&self, facts: &dyn Facts) -> bool {
        self.0.root.holds(Context::new(facts))
    }

    /// The fields that the expression reads, in the order of the scheme.
    pub fn reads(&self) -> impl Iterator<Item = FieldId> {
        self.0.uses.reads.iter().copied()
    }

    /// The names of the lists that the expression uses, in order.
    pub fn lists(&self) -> impl Iterator<Item = &str> {
        self.0.lists()
    }

    /// The memory of the expression's patterns, in bytes.
    #[must_use]
    pub fn pattern_memory(&self) -> usize {
        self.0.uses.pattern_memory
    }

    /// The constant result; `None` if the result depends on the request.
    #[must_use]
    pub fn constant(&self) -> Option<bool> {
        match self.0.root {
            Cond::Const(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn root(&self) -> &Cond {
        &self.0.root
    }
}

/// A compiled expression that computes a value. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Expression(Arc<Program<Item>>);

impl Expression {
    /// The result for this request; `None` if it depends on an absent value.
    #[must_use]
    pub fn evaluate<'v>(&'v self, facts: &'v dyn Facts) -> Option<Value<'v>> {
        self.0.root.get(Context::new(facts))
    }

    /// The type of the result: never an array or map.
    #[must_use]
    pub fn kind(&self) -> Type {
        self.0.root.scalar().into()
    }

    /// The fields that the expression reads, in the order of the scheme.
    pub fn reads(&self) -> impl Iterator<Item = FieldId> {
        self.0.uses.reads.iter().copied()
    }

    /// The names of the lists that the expression uses, in order.
    pub fn lists(&self) -> impl Iterator<Item = &str> {
        self.0.lists()
    }

    /// The memory of the expression's patterns, in bytes.
    #[must_use]
    pub fn pattern_memory(&self) -> usize {
        self.0.uses.pattern_memory
    }
}
