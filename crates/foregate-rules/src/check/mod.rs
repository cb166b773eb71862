//! Turns the tree into a program: resolves names, checks types, and folds constants.

mod call;
mod compare;
mod foreign;

use std::collections::BTreeSet;
use std::ops::Range;

use crate::error::Error;
use crate::evaluate::Context;
use crate::facts::{Nothing, Value};
use crate::limits::MAX_COMPILED_PATTERNS;
use crate::lists::Lists;
use crate::parse::{Index, Kind, Logic, Node};
use crate::program::{Address, Cond, Item, Number, Source, Text};
use crate::scheme::{FieldId, Scalar, Scheme, Stage, Type};

/// The results of the check apart from the program.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    pub(crate) reads: BTreeSet<FieldId>,
    pub(crate) lists: BTreeSet<Box<str>>,
    /// The memory of the regular expressions, in bytes.
    pub(crate) pattern_memory: usize,
}

pub(crate) struct Checker<'c> {
    scheme: &'c Scheme,
    stage: Stage,
    lists: &'c Lists,
    pub(crate) uses: Uses,
}

/// A part of the program with its place and type.
#[derive(Debug)]
pub(crate) struct TypedPart {
    pub(crate) span: Range<usize>,
    pub(crate) shape: Shape,
    /// The array over whose elements the part ranges, if it stands for one value per element.
    pub(crate) each: Option<Source>,
    /// True if the part depends on no field.
    constant: bool,
}

#[derive(Debug)]
pub(crate) enum Shape {
    Item(Item),
    Array(Source, Item),
    Map(FieldId),
}

impl TypedPart {
    fn item(span: Range<usize>, item: Item, constant: bool) -> Self {
        Self { span, shape: Shape::Item(item), each: None, constant }
    }

    pub(crate) fn kind(&self) -> Type {
        match &self.shape {
            Shape::Item(item) => item.scalar().into(),
            Shape::Array(_, item) => Type::Array(item.scalar()),
            Shape::Map(_) => Type::Map,
        }
    }
}

impl Item {
    pub(crate) fn scalar(&self) -> Scalar {
        match self {
            Self::Cond(_) => Scalar::Bool,
            Self::Text(_) => Scalar::Bytes,
            Self::Number(_) => Scalar::Int,
            Self::Address(_) => Scalar::Ip,
        }
    }

    fn element(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Bool => Self::Cond(Cond::Element),
            Scalar::Bytes => Self::Text(Text::Element),
            Scalar::Int => Self::Number(Number::Element),
            Scalar::Ip => Self::Address(Address::Element),
        }
    }

    fn is_element(&self) -> bool {
        matches!(
            self,
            Self::Cond(Cond::Element)
                | Self::Text(Text::Element)
                | Self::Number(Number::Element)
                | Self::Address(Address::Element)
        )
    }

    fn at(scalar: Scalar, source: Source, at: u32) -> Self {
        let source = Box::new(source);
        match scalar {
            Scalar::Bool => Self::Cond(Cond::At(source, at)),
            Scalar::Bytes => Self::Text(Text::At(source, at)),
            Scalar::Int => Self::Number(Number::At(source, at)),
            Scalar::Ip => Self::Address(Address::At(source, at)),
        }
    }

    /// The constant result, as a literal.
    fn folded(&self) -> Self {
        let context = Context::new(&Nothing);
        match self {
            Self::Cond(cond) => Self::Cond(Cond::Const(cond.holds(context))),
            Self::Text(text) => Self::Text(match text.get(context) {
                Some(text) => Text::Literal(text.into_owned().into()),
                None => Text::Absent,
            }),
            Self::Number(number) => Self::Number(number.get(context).map_or(Number::Absent, Number::Literal)),
            Self::Address(address) => {
                Self::Address(address.get(context).map_or(Address::Absent, Address::Literal))
            }
        }
    }

    pub(crate) fn get<'e>(&'e self, context: Context<'e>) -> Option<Value<'e>> {
        match self {
            Self::Cond(cond) => Some(Value::Bool(cond.holds(context))),
            Self::Text(text) => text.get(context).map(Value::Bytes),
            Self::Number(number) => number.get(context).map(Value::Int),
            Self::Address(address) => address.get(context).map(|address| Value::Ip(address.to_canonical())),
        }
    }
}

impl<'c> Checker<'c> {
    pub(crate) fn new(scheme: &'c Scheme, stage: Stage, lists: &'c Lists) -> Self {
        Self { scheme, stage, lists, uses: Uses::default() }
    }

    /// Checks the whole expression, which must be one value, not one for each element of an array.
    pub(crate) fn whole(&mut self, node: Node<'_>) -> Result<(Item, Range<usize>), Error> {
        let typed = self.node(node)?;
        let help = match (&typed.each, &typed.shape) {
            (None, Shape::Item(_)) => None,
            (Some(_), Shape::Item(Item::Cond(_))) => Some("write `any(...)` or `all(...)` around it"),
            (_, Shape::Map(_)) => Some("take one of its values: `[\"name\"][0]`"),
            _ => Some("take one of its elements with `[0]`, or all as one text with `join`"),
        };
        match (typed.shape, help) {
            (Shape::Item(item), None) => Ok((item, typed.span)),
            (_, help) => {
                let error = Error::new(typed.span, "the expression comes to many values and not to one");
                Err(error.with_help(help.unwrap_or_default()))
            }
        }
    }

    fn node(&mut self, node: Node<'_>) -> Result<TypedPart, Error> {
        let span = node.span;
        let typed = match node.kind {
            Kind::Field(name) => return self.field(name, span),
            Kind::Text(text) => TypedPart::item(span, Item::Text(Text::Literal(text.into())), true),
            Kind::Int(number) => TypedPart::item(span, Item::Number(Number::Literal(number)), true),
            Kind::Ip(address) => TypedPart::item(span, Item::Address(Address::Literal(address)), true),
            Kind::Bool(value) => TypedPart::item(span, Item::Cond(Cond::Const(value)), true),
            Kind::Indexed(base, indexes) => return self.indexed(*base, indexes),
            Kind::Call(name, name_span, arguments) => {
                let mut call = self.call(name, name_span, &span, arguments)?;
                call.span = span;
                return Ok(call.fold());
            }
            Kind::Not(inner) => {
                let inner = self.node(*inner)?;
                let (cond, each, constant) = condition(inner, "not")?;
                let cond = match cond {
                    Cond::Const(value) => Cond::Const(!value),
                    other => Cond::Not(Box::new(other)),
                };
                TypedPart { span, shape: Shape::Item(Item::Cond(cond)), each, constant }
            }
            Kind::Logic(logic, operands) => self.logic(logic, operands, span)?,
            Kind::Compare(left, comparison) => {
                let left = self.node(*left)?;
                self.compare(left, comparison, span)?
            }
        };
        Ok(typed.fold())
    }

    fn field(&mut self, name: &str, span: Range<usize>) -> Result<TypedPart, Error> {
        let Some(id) = self.scheme.id(name) else {
            let error = Error::new(span, format!("there is no field `{name}`"));
            if crate::functions::is_known(name) {
                return Err(error.with_help(format!("`{name}` is a function: `{name}(...)`")));
            }
            let meant = foreign::field_of(name).filter(|field| self.scheme.id(field).is_some());
            if let Some(entry) = foreign::entry_of(name).filter(|_| meant.is_none()) {
                return Err(error.with_help(format!("write `{entry}`")));
            }
            if let Some(instead) = foreign::instead_of(name).filter(|_| meant.is_none()) {
                return Err(error.with_help(instead));
            }
            return Err(match meant.or_else(|| self.scheme.nearest(name)) {
                Some(nearest) => error.with_help(format!("did you mean `{nearest}`?")),
                None => error,
            });
        };
        let field = self.scheme.field(id).expect("the scheme has the fields that it has names for");
        if field.stage > self.stage {
            let used = match self.stage {
                Stage::Request => "requests",
                Stage::Body => "requests with their body",
                Stage::Response => "responses",
            };
            let message =
                format!("`{name}` is known from the {} on; this expression is used on {used}", field.stage);
            return Err(Error::new(span, message));
        }
        self.uses.reads.insert(id);
        let shape = match field.kind {
            Type::Bool => Shape::Item(Item::Cond(Cond::Field(id))),
            Type::Int => Shape::Item(Item::Number(Number::Field(id))),
            Type::Bytes => Shape::Item(Item::Text(Text::Field(id))),
            Type::Ip => Shape::Item(Item::Address(Address::Field(id))),
            Type::Array(scalar) => Shape::Array(Source::Field(id), Item::element(scalar)),
            Type::Map => Shape::Map(id),
        };
        Ok(TypedPart { span, shape, each: None, constant: false })
    }

    fn indexed(&mut self, base: Node<'_>, indexes: Vec<(Index, Range<usize>)>) -> Result<TypedPart, Error> {
        let mut typed = self.node(base)?;
        let mut all_of_map = false;
        for (index, span) in indexes {
            let whole = typed.span.start..span.end;
            let constant = typed.constant;
            let kind = typed.kind();
            let (shape, each) = match (typed.shape, index) {
                (Shape::Map(id), Index::Name(name)) => {
                    let name = self.map_name(id, name);
                    (Shape::Array(Source::Named(id, name), Item::Text(Text::Element)), None)
                }
                (Shape::Map(id), Index::Each) => {
                    all_of_map = true;
                    (Shape::Array(Source::Field(id), Item::Text(Text::Element)), None)
                }
                (Shape::Map(_), Index::At(_)) => {
                    let error = Error::new(span, "a map is indexed by name");
                    return Err(
                        error.with_help("write `[\"name\"]`, and `[0]` behind it for the first value")
                    );
                }
                (Shape::Array(source, item), Index::Each) => {
                    all_of_map = false;
                    (Shape::Item(item), Some(source))
                }
                (Shape::Array(..), Index::At(_)) if all_of_map => {
                    return Err(Error::new(span, "all values of a map have no order among them"));
                }
                (Shape::Array(source, item), Index::At(at)) if item.is_element() => {
                    (Shape::Item(Item::at(item.scalar(), source, at)), None)
                }
                (Shape::Array(..), Index::At(_)) => {
                    let error =
                        Error::new(span, "an element cannot be taken of what a function made of an array");
                    return Err(error.with_help("take the element first, as in `lower(x[0])`"));
                }
                (Shape::Array(..), Index::Name(_)) => {
                    return Err(
                        Error::new(span, "an array is indexed by number").with_help("write `[0]` or `[*]`")
                    );
                }
                (Shape::Item(_), _) => {
                    return Err(Error::new(span, format!("{} cannot be indexed", kind.phrase())));
                }
            };
            typed = TypedPart { span: whole, shape, each, constant };
        }
        if all_of_map {
            let error = Error::new(typed.span, "`[*]` of a map gives all its arrays of values");
            return Err(error.with_help("write `[*][*]` for all values in them"));
        }
        Ok(typed)
    }

    /// The name of an entry in the form in which the map is asked for it.
    fn map_name(&self, map: FieldId, mut name: Vec<u8>) -> Box<[u8]> {
        if self.scheme.field(map).is_some_and(|field| field.names_fold) {
            name.make_ascii_lowercase();
        }
        name.into()
    }

    fn logic(
        &mut self,
        logic: Logic,
        operands: Vec<Node<'_>>,
        span: Range<usize>,
    ) -> Result<TypedPart, Error> {
        let name = match logic {
            Logic::And => "and",
            Logic::Or => "or",
            Logic::Xor => "xor",
        };
        let mut conds = Vec::with_capacity(operands.len());
        let mut each: Option<Source> = None;
        let mut constant = true;
        for operand in operands {
            let typed = self.node(operand)?;
            let operand_span = typed.span.clone();
            let (cond, source, known) = condition(typed, name)?;
            match (&each, source) {
                (_, None) => {}
                (None, Some(source)) => each = Some(source),
                (Some(before), Some(source)) if *before == source => {}
                (Some(_), Some(_)) => {
                    let error =
                        Error::new(operand_span, format!("`{name}` combines elements of different arrays"));
                    return Err(error.with_help("write an `any(...)` or `all(...)` for each of them"));
                }
            }
            constant &= known;
            conds.push(cond);
        }
        let cond = simplify(logic, conds);
        let constant = constant || matches!(cond, Cond::Const(_));
        Ok(TypedPart { span, shape: Shape::Item(Item::Cond(cond)), each, constant })
    }

    /// Counts the memory of a pattern. Fails if the total exceeds the limit.
    fn account(&mut self, memory: usize, span: &Range<usize>) -> Result<(), Error> {
        self.uses.pattern_memory = self.uses.pattern_memory.saturating_add(memory);
        if self.uses.pattern_memory > MAX_COMPILED_PATTERNS {
            let message =
                format!("the patterns of the expression take more than {MAX_COMPILED_PATTERNS} bytes");
            return Err(Error::new(span.clone(), message));
        }
        Ok(())
    }
}

impl TypedPart {
    /// Replaces the part by a literal, if it depends on no field.
    fn fold(mut self) -> Self {
        if let Shape::Item(item) = &self.shape
            && self.constant
            && self.each.is_none()
        {
            self.shape = Shape::Item(item.folded());
        }
        self
    }
}

/// Converts an operand of `not`, `and`, `or` or `xor` to a condition. Fails if it is none.
fn condition(typed: TypedPart, operator: &str) -> Result<(Cond, Option<Source>, bool), Error> {
    let kind = typed.kind();
    match typed.shape {
        Shape::Item(Item::Cond(cond)) => Ok((cond, typed.each, typed.constant)),
        // A boolean function of each element is a condition on the element, like a comparison of each element.
        Shape::Array(source, Item::Cond(cond)) => Ok((cond, Some(source), false)),
        _ => {
            let error = Error::new(
                typed.span,
                format!("`{operator}` takes a condition, and this is {}", kind.phrase()),
            );
            Err(error.with_help("compare it with something: `eq`, `contains`, `in`"))
        }
    }
}

/// Combines operands. Redundant ones are left out, and cheap ones come first.
fn simplify(logic: Logic, conds: Vec<Cond>) -> Cond {
    let mut kept = Vec::with_capacity(conds.len());
    let mut odd = false;
    for cond in conds {
        match (logic, cond) {
            (Logic::And, Cond::Const(false)) => return Cond::Const(false),
            (Logic::Or, Cond::Const(true)) => return Cond::Const(true),
            (Logic::And | Logic::Or, Cond::Const(_)) => {}
            (Logic::Xor, Cond::Const(value)) => odd ^= value,
            (Logic::And, Cond::All(inner)) | (Logic::Or, Cond::Any(inner)) => kept.extend(inner),
            (_, other) => kept.push(other),
        }
    }
    kept.sort_by_cached_key(Cond::cost);
    let only = if kept.len() == 1 { kept.pop() } else { None };
    let combined = match (logic, only) {
        (_, Some(only)) => only,
        (_, None) if kept.is_empty() => Cond::Const(logic == Logic::And),
        (Logic::And, None) => Cond::All(kept.into()),
        (Logic::Or, None) => Cond::Any(kept.into()),
        (Logic::Xor, None) => Cond::Odd(kept.into()),
    };
    match (odd, combined) {
        (false, combined) => combined,
        (true, Cond::Const(value)) => Cond::Const(!value),
        (true, combined) => Cond::Not(Box::new(combined)),
    }
}
