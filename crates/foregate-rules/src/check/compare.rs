//! Comparisons: which operator goes with which values.

use std::ops::Range;
use std::sync::Arc;

use memchr::memmem::Finder;

use super::{Checker, Shape, Typed};
use crate::error::Error;
use crate::lists::{List, ListKind};
use crate::nearest::nearest;
use crate::parse::{Item as Member, Operator, Right};
use crate::pattern::{Regex, Wildcard};
use crate::program::{Address, AddressTest, Cond, Item, Number, NumberTest, Order, Text, TextTest};
use crate::scheme::Type;
use crate::sets::{IntSet, IpSet, TextSet};

impl Checker<'_> {
    pub(super) fn compare(
        &mut self,
        left: Typed,
        operator: Operator,
        right: Right<'_>,
        right_span: Range<usize>,
        span: Range<usize>,
    ) -> Result<Typed, Error> {
        let kind = left.kind();
        let cond = match left.shape {
            Shape::Item(Item::Text(text)) => self.text(text, operator, right, &right_span)?,
            Shape::Item(Item::Number(number)) => self.number(number, operator, right, &right_span)?,
            Shape::Item(Item::Address(address)) => self.address(address, operator, right, &right_span)?,
            Shape::Item(Item::Cond(cond)) => boolean(cond, operator, right, &right_span)?,
            Shape::Array(..) | Shape::Map(_) => {
                let message = format!("`{}` compares one value, and this is a {kind}", operator.name());
                let error = Error::new(left.span, message);
                return Err(error.with_help(match kind {
                    Type::Map => "take the first value under a name with `[\"name\"][0]`, or all with `any(...[\"name\"][*] ...)`",
                    _ => "take one element with `[0]`, or all with `any(...[*] ...)`",
                }));
            }
        };
        let cond = if operator == Operator::Ne { Cond::Not(Box::new(cond)) } else { cond };
        Ok(Typed { span, shape: Shape::Item(Item::Cond(cond)), each: left.each, constant: left.constant })
    }

    fn text(
        &mut self,
        text: Text,
        operator: Operator,
        right: Right<'_>,
        span: &Range<usize>,
    ) -> Result<Cond, Error> {
        let test = match right {
            Right::Text(literal) => self.text_test(operator, literal, span)?,
            Right::Set(members) => {
                let texts = members.into_iter().map(|(member, span)| match member {
                    Member::Text(text) => Ok(text.into()),
                    _ => Err(misfit(span, Type::Bytes, "\"...\"")),
                });
                TextTest::In(Arc::new(texts.collect::<Result<TextSet, _>>()?))
            }
            Right::List(name) => TextTest::InList(self.list(name, Type::Bytes, span)?),
            Right::Int(_) | Right::Ip(_) | Right::Bool(_) => {
                return Err(misfit(span.clone(), Type::Bytes, "\"...\""));
            }
        };
        Ok(Cond::Text(text, test))
    }

    fn text_test(
        &mut self,
        operator: Operator,
        literal: Vec<u8>,
        span: &Range<usize>,
    ) -> Result<TextTest, Error> {
        if let Some(order) = order(operator) {
            return Ok(TextTest::Order(order, literal.into()));
        }
        Ok(match operator {
            Operator::Contains => TextTest::Contains(Box::new(Finder::new(&literal).into_owned())),
            Operator::Matches => {
                let regex = Regex::new(&literal).map_err(|problem| Error::new(span.clone(), problem))?;
                self.account(regex.memory(), span)?;
                TextTest::Matches(Box::new(regex))
            }
            Operator::Wildcard | Operator::StrictWildcard => {
                let strict = operator == Operator::StrictWildcard;
                let wildcard =
                    Wildcard::new(&literal, strict).map_err(|problem| Error::new(span.clone(), problem))?;
                self.account(wildcard.memory(), span)?;
                TextTest::Wildcard(Box::new(wildcard))
            }
            _ => TextTest::Eq(literal.into()),
        })
    }

    fn number(
        &mut self,
        number: Number,
        operator: Operator,
        right: Right<'_>,
        span: &Range<usize>,
    ) -> Result<Cond, Error> {
        let test = match right {
            Right::Int(literal) => match (operator, order(operator)) {
                (_, Some(order)) => NumberTest::Order(order, literal),
                (Operator::Eq | Operator::Ne, None) => NumberTest::Eq(literal),
                _ => return Err(wrong_operator(operator, Type::Int, span)),
            },
            Right::Set(members) => {
                let ranges = members.into_iter().map(|(member, span)| match member {
                    Member::Ints(first, last) => Ok((first, last)),
                    _ => Err(misfit(span, Type::Int, "`80` or `8000..8080`")),
                });
                NumberTest::In(IntSet::new(ranges.collect::<Result<_, _>>()?))
            }
            Right::List(name) => {
                self.list(name, Type::Int, span)?;
                return Err(misfit(span.clone(), Type::Int, "`{80 8000..8080}`"));
            }
            Right::Text(_) | Right::Ip(_) | Right::Bool(_) => {
                return Err(match operator {
                    Operator::Contains
                    | Operator::Matches
                    | Operator::Wildcard
                    | Operator::StrictWildcard => wrong_operator(operator, Type::Int, span),
                    _ => misfit(span.clone(), Type::Int, "a number"),
                });
            }
        };
        Ok(Cond::Number(number, test))
    }

    fn address(
        &mut self,
        address: Address,
        operator: Operator,
        right: Right<'_>,
        span: &Range<usize>,
    ) -> Result<Cond, Error> {
        if !matches!(operator, Operator::Eq | Operator::Ne | Operator::In) {
            return Err(wrong_operator(operator, Type::Ip, span));
        }
        let test = match right {
            Right::Ip(literal) => AddressTest::Eq(literal),
            Right::Set(members) => {
                let ranges = members.into_iter().map(|(member, span)| match member {
                    Member::Ips(range) => Ok(range),
                    _ => Err(misfit(span, Type::Ip, "`192.0.2.1` or `10.0.0.0/8`")),
                });
                AddressTest::In(IpSet::new(&ranges.collect::<Result<Vec<_>, _>>()?))
            }
            Right::List(name) => AddressTest::InList(self.list(name, Type::Ip, span)?),
            Right::Text(_) | Right::Int(_) | Right::Bool(_) => {
                return Err(misfit(span.clone(), Type::Ip, "an address without quotes"));
            }
        };
        Ok(Cond::Address(address, test))
    }

    /// The list of this name, if it holds what it is asked for.
    fn list(&mut self, name: &str, kind: Type, span: &Range<usize>) -> Result<Arc<List>, Error> {
        let Some(list) = self.lists.get(name) else {
            let error = Error::new(span.clone(), format!("there is no list `${name}`"));
            return Err(match nearest(name, self.lists.names()) {
                Some(nearest) => error.with_help(format!("did you mean `${nearest}`?")),
                None => error,
            });
        };
        let (holds, what) = match list.kind {
            ListKind::Ips(_) => (Type::Ip, "addresses"),
            ListKind::Hosts { .. } => (Type::Bytes, "hosts"),
            ListKind::Strings(_) => (Type::Bytes, "texts"),
        };
        if holds != kind {
            let message = format!("the list `${name}` holds {what}, and a {kind} is looked up in it");
            return Err(Error::new(span.clone(), message));
        }
        self.uses.lists.insert(name.into());
        Ok(Arc::clone(list))
    }
}

fn order(operator: Operator) -> Option<Order> {
    Some(match operator {
        Operator::Lt => Order::Lt,
        Operator::Le => Order::Le,
        Operator::Gt => Order::Gt,
        Operator::Ge => Order::Ge,
        _ => return None,
    })
}

/// `eq` and `ne` with `true` or `false`.
fn boolean(cond: Cond, operator: Operator, right: Right<'_>, span: &Range<usize>) -> Result<Cond, Error> {
    if !matches!(operator, Operator::Eq | Operator::Ne) {
        return Err(wrong_operator(operator, Type::Bool, span));
    }
    match (cond, right) {
        (Cond::Field(field), Right::Bool(value)) => Ok(Cond::FieldIs(field, value)),
        (cond, Right::Bool(true)) => Ok(cond),
        (cond, Right::Bool(false)) => Ok(Cond::Not(Box::new(cond))),
        _ => Err(misfit(span.clone(), Type::Bool, "`true` or `false`")),
    }
}

fn misfit(span: Range<usize>, kind: Type, what: &str) -> Error {
    Error::new(span, format!("a {kind} is compared with something else")).with_help(format!("write {what}"))
}

fn wrong_operator(operator: Operator, kind: Type, span: &Range<usize>) -> Error {
    let fits = match kind {
        Type::Int => "`eq`, `ne`, `lt`, `le`, `gt`, `ge` and `in`",
        Type::Ip => "`eq`, `ne` and `in`",
        _ => "`eq` and `ne`, `and`, `or`, `xor` and `not`",
    };
    Error::new(span.clone(), format!("`{}` does not go with a {kind}", operator.name()))
        .with_help(format!("what does: {fits}"))
}
