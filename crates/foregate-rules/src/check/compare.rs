//! Comparisons: which operators apply to which types of values.

use std::ops::Range;
use std::sync::Arc;

use memchr::memmem::Finder;

use super::{Checker, Shape, TypedPart};
use crate::error::Error;
use crate::lists::{Entries, List};
use crate::nearest::nearest;
use crate::parse::{Comparison, Operator, Right, SetItem as Member};
use crate::pattern::{Regex, Wildcard};
use crate::program::{Address, AddressTest, Cond, Item, Number, NumberTest, Order, Text, TextTest};
use crate::scheme::{StandardField, Type};
use crate::sets::{IntSet, IpSet, TextSet};

impl Checker<'_> {
    pub(super) fn compare(
        &mut self,
        left: TypedPart,
        comparison: Comparison<'_>,
        span: Range<usize>,
    ) -> Result<TypedPart, Error> {
        let kind = left.kind();
        let operator = comparison.operator;
        let cond = match left.shape {
            Shape::Item(Item::Text(text)) => self.text(text, comparison)?,
            Shape::Item(Item::Number(number)) => self.number(number, comparison)?,
            Shape::Item(Item::Address(address)) => self.address(address, comparison)?,
            Shape::Item(Item::Cond(cond)) => boolean(cond, comparison)?,
            Shape::Array(..) | Shape::Map(_) => {
                let message =
                    format!("`{}` compares one value, and this is {}", operator.name(), kind.phrase());
                let error = Error::new(left.span, message);
                return Err(error.with_help(match kind {
                    Type::Map => {
                        "take the first value under a name with `[\"name\"][0]`, or each with `any(...[\"name\"][*] ...)`"
                    }
                    _ => "take one element with `[0]`, or each with `any(...[*] ...)`",
                }));
            }
        };
        let cond = if operator == Operator::Ne { Cond::Not(Box::new(cond)) } else { cond };
        Ok(TypedPart { span, shape: Shape::Item(Item::Cond(cond)), each: left.each, constant: left.constant })
    }

    fn text(&mut self, text: Text, comparison: Comparison<'_>) -> Result<Cond, Error> {
        let span = comparison.right_span;
        let test = match comparison.right {
            Right::Text(literal) => self.text_test(comparison.operator, literal, &span)?,
            Right::Set(members) => {
                let texts = members.into_iter().map(|(member, span)| match member {
                    Member::Text(text) => Ok(text.into()),
                    other => Err(misfit(span, Type::Bytes, other.kind(), "a text in quotes")),
                });
                TextTest::In(Arc::new(texts.collect::<Result<TextSet, _>>()?))
            }
            Right::List(name) => {
                let wanted = if is_host(&text) { Entries::Hosts } else { Entries::Strings };
                TextTest::InList(self.list(name, Type::Bytes, Some(wanted), &span)?)
            }
            other => return Err(misfit(span, Type::Bytes, other.kind(), "a text in quotes")),
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

    fn number(&mut self, number: Number, comparison: Comparison<'_>) -> Result<Cond, Error> {
        let order = order(comparison.operator);
        if order.is_none() && !matches!(comparison.operator, Operator::Eq | Operator::Ne | Operator::In) {
            return Err(wrong_operator(&comparison, Type::Int));
        }
        let span = comparison.right_span;
        let test = match comparison.right {
            Right::Int(literal) => {
                order.map_or(NumberTest::Eq(literal), |order| NumberTest::Order(order, literal))
            }
            Right::Set(members) => {
                let ranges = members.into_iter().map(|(member, span)| match member {
                    Member::Ints(first, last) => Ok((first, last)),
                    other => Err(misfit(span, Type::Int, other.kind(), "`80` or `8000..8080`")),
                });
                NumberTest::In(IntSet::new(ranges.collect::<Result<_, _>>()?))
            }
            Right::List(name) => {
                // Lists hold no numbers, so this is always an error. A missing list is reported first.
                self.list(name, Type::Int, None, &span)?;
                return Err(misfit(span, Type::Int, Type::Bytes, "`{80 8000..8080}`"));
            }
            other => return Err(misfit(span, Type::Int, other.kind(), "a number without quotes")),
        };
        let number = match number {
            // A body of unknown length counts as longer than any number. Otherwise a client could evade a rule against
            // long bodies by not declaring the length.
            Number::Field(field) if field.standard() == Some(StandardField::BodySize) => {
                Number::Length(field)
            }
            number => number,
        };
        Ok(Cond::Number(number, test))
    }

    fn address(&mut self, address: Address, comparison: Comparison<'_>) -> Result<Cond, Error> {
        if !matches!(comparison.operator, Operator::Eq | Operator::Ne | Operator::In) {
            return Err(wrong_operator(&comparison, Type::Ip));
        }
        let span = comparison.right_span;
        let test = match comparison.right {
            Right::Ip(literal) => AddressTest::Eq(literal),
            Right::Set(members) => {
                let ranges = members.into_iter().map(|(member, span)| match member {
                    Member::Ips(range) => Ok(range),
                    other => Err(misfit(span, Type::Ip, other.kind(), "`192.0.2.1` or `10.0.0.0/8`")),
                });
                AddressTest::In(IpSet::new(&ranges.collect::<Result<Vec<_>, _>>()?))
            }
            Right::List(name) => AddressTest::InList(self.list(name, Type::Ip, Some(Entries::Ips), &span)?),
            other => return Err(misfit(span, Type::Ip, other.kind(), "an address without quotes")),
        };
        Ok(Cond::Address(address, test))
    }

    /// The list of this name, if its values have the type `kind`. If the list is missing, the error tells `wanted`,
    /// the kind of list that would fit.
    fn list(
        &mut self,
        name: &str,
        kind: Type,
        wanted: Option<Entries>,
        span: &Range<usize>,
    ) -> Result<Arc<List>, Error> {
        let holds = |list: &List| match list.kind.entries() {
            Entries::Ips => (Type::Ip, "addresses"),
            Entries::Hosts => (Type::Bytes, "hosts"),
            Entries::Strings => (Type::Bytes, "texts"),
        };
        let Some(list) = self.lists.get(name) else {
            let error = Error::new(span.clone(), format!("there is no list `${name}`"));
            let fits = |other: &&str| self.lists.get(other).is_some_and(|list| holds(list).0 == kind);
            return Err(match (nearest(name, self.lists.names().filter(fits)), wanted) {
                (Some(nearest), _) => error.with_help(format!("did you mean `${nearest}`?")),
                (None, Some(wanted)) => error.with_missing_list(wanted),
                (None, None) => error.with_help("no list holds numbers: write `{80 8000..8080}`"),
            });
        };
        let (holds, what) = holds(list);
        if holds != kind {
            let message =
                format!("the list `${name}` holds {what}, and {} is looked up in it", kind.phrase());
            return Err(Error::new(span.clone(), message));
        }
        self.uses.lists.insert(name.into());
        Ok(Arc::clone(list))
    }
}

/// Returns true if a text is a host name, as the fields for the host and the TLS server name are.
fn is_host(text: &Text) -> bool {
    match text {
        Text::Field(field) => {
            matches!(field.standard(), Some(StandardField::Host | StandardField::TlsServerName))
        }
        Text::Lower(inner) => is_host(inner),
        _ => false,
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
fn boolean(cond: Cond, comparison: Comparison<'_>) -> Result<Cond, Error> {
    if !matches!(comparison.operator, Operator::Eq | Operator::Ne) {
        return Err(wrong_operator(&comparison, Type::Bool));
    }
    match (cond, comparison.right) {
        (Cond::Field(field), Right::Bool(value)) => Ok(Cond::FieldIs(field, value)),
        (cond, Right::Bool(true)) => Ok(cond),
        (cond, Right::Bool(false)) => Ok(Cond::Not(Box::new(cond))),
        (_, other) => Err(misfit(comparison.right_span, Type::Bool, other.kind(), "`true` or `false`")),
    }
}

impl Right<'_> {
    /// The type of a single value; for a set, of its first value.
    fn kind(&self) -> Type {
        match self {
            Self::Int(_) => Type::Int,
            Self::Ip(_) => Type::Ip,
            Self::Bool(_) => Type::Bool,
            Self::Set(members) => members.first().map_or(Type::Bytes, |(member, _)| member.kind()),
            Self::Text(_) | Self::List(_) => Type::Bytes,
        }
    }
}

impl Member {
    fn kind(&self) -> Type {
        match self {
            Self::Text(_) => Type::Bytes,
            Self::Ints(..) => Type::Int,
            Self::Ips(_) => Type::Ip,
        }
    }
}

fn misfit(span: Range<usize>, kind: Type, other: Type, what: &str) -> Error {
    let message = format!("{} is compared with {}", kind.phrase(), other.phrase());
    Error::new(span, message).with_help(format!("write {what}"))
}

fn wrong_operator(comparison: &Comparison<'_>, kind: Type) -> Error {
    let fits = match kind {
        Type::Int => "`eq`, `ne`, `lt`, `le`, `gt`, `ge` and `in`",
        Type::Ip => "`eq`, `ne` and `in`",
        _ => "`eq` and `ne`, and between conditions `and`, `or` and `xor`",
    };
    let message = format!("`{}` does not go with {}", comparison.operator.name(), kind.phrase());
    Error::new(comparison.operator_span.clone(), message).with_help(format!("these do: {fits}"))
}
