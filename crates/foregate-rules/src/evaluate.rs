//! Evaluates expressions over facts. Evaluation never fails: a value that is unknown is absent.

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::ControlFlow;

use crate::facts::{Facts, Value};
use crate::functions;
use crate::program::{Address, AddressTest, Cond, Item, Number, NumberTest, Quantor, Source, Text, TextTest};
use crate::sets::{key, mask};

/// The facts, and the current element while the elements of an array are visited.
#[derive(Clone, Copy)]
pub(crate) struct Context<'e> {
    pub(crate) facts: &'e dyn Facts,
    pub(crate) element: Option<&'e Value<'e>>,
}

impl<'e> Context<'e> {
    pub(crate) fn new(facts: &'e dyn Facts) -> Self {
        Self { facts, element: None }
    }
}

impl Cond {
    pub(crate) fn holds(&self, context: Context<'_>) -> bool {
        match self {
            Self::Const(value) => *value,
            Self::Field(field) => context.facts.bool(*field) == Some(true),
            Self::FieldIs(field, value) => context.facts.bool(*field) == Some(*value),
            Self::Element => matches!(context.element, Some(Value::Bool(true))),
            Self::At(source, at) => matches!(source.nth(context, *at), Some(Value::Bool(true))),
            Self::Not(inner) => !inner.holds(context),
            Self::All(parts) => parts.iter().all(|part| part.holds(context)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(context)),
            Self::Odd(parts) => parts.iter().fold(false, |odd, part| odd ^ part.holds(context)),
            Self::Text(text, test) => text.get(context).is_some_and(|text| test.holds(&text)),
            Self::Number(number, test) => number.get(context).is_some_and(|number| test.holds(number)),
            Self::Address(address, test) => address.get(context).is_some_and(|address| test.holds(address)),
            Self::StartsWith(pair) => both(pair, context, |text, start| text.starts_with(start)),
            Self::EndsWith(pair) => both(pair, context, |text, end| text.ends_with(end)),
            Self::Each(source, each, quantor) => {
                let decides = *quantor == Quantor::Any;
                let flow = source.each(context, &mut |element| {
                    let context = Context { element: Some(&element), ..context };
                    if each.holds(context) == decides {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                });
                flow.is_break() == decides
            }
            Self::HasKey(field, name) => name.get(context).is_some_and(|name| {
                context.facts.each(*field, Some(&name), &mut |_| ControlFlow::Break(())).is_break()
            }),
        }
    }
}

fn both(pair: &(Text, Text), context: Context<'_>, test: impl Fn(&[u8], &[u8]) -> bool) -> bool {
    pair.0.get(context).zip(pair.1.get(context)).is_some_and(|(text, part)| test(&text, &part))
}

impl TextTest {
    fn holds(&self, text: &[u8]) -> bool {
        match self {
            Self::Eq(other) => *text == **other,
            Self::Order(order, other) => order.holds(text, other),
            Self::Contains(finder) => finder.find(text).is_some(),
            Self::StartsWith(start) => text.starts_with(start),
            Self::EndsWith(end) => text.ends_with(end),
            Self::Matches(regex) => regex.is_match(text),
            Self::Wildcard(wildcard) => wildcard.matches(text),
            Self::In(set) => set.contains(text),
            Self::InList(list) => list.contains_text(text),
        }
    }
}

impl NumberTest {
    fn holds(&self, number: i64) -> bool {
        match self {
            Self::Eq(other) => number == *other,
            Self::Order(order, other) => order.holds(&number, other),
            Self::In(set) => set.contains(number),
        }
    }
}

impl AddressTest {
    fn holds(&self, address: IpAddr) -> bool {
        match self {
            Self::Eq(other) => key(address) == key(*other),
            Self::In(set) => set.contains(address),
            Self::InList(list) => list.contains_ip(address),
        }
    }
}

impl Text {
    pub(crate) fn get<'e>(&'e self, context: Context<'e>) -> Option<Cow<'e, [u8]>> {
        match self {
            Self::Literal(text) => Some(Cow::Borrowed(text)),
            Self::Absent => None,
            Self::Field(field) => context.facts.bytes(*field),
            Self::Element => match context.element? {
                Value::Bytes(text) => Some(Cow::Borrowed(text)),
                _ => None,
            },
            Self::At(source, at) => match source.nth(context, *at)? {
                Value::Bytes(text) => Some(text),
                _ => None,
            },
            Self::Lower(text) => Some(functions::lower(text.get(context)?)),
            Self::Upper(text) => Some(functions::upper(text.get(context)?)),
            Self::Concat(texts) => {
                let mut all = Vec::new();
                for part in texts.iter().filter_map(|text| text.get(context)) {
                    all.extend_from_slice(&part);
                }
                Some(Cow::Owned(all))
            }
            Self::Substring(text, from, to) => {
                let to = to.as_ref().map_or(Some(i64::MAX), |to| to.get(context))?;
                Some(functions::substring(text.get(context)?, from.get(context)?, to))
            }
            Self::RemoveBytes(text, bytes) => Some(functions::remove_bytes(text.get(context)?, bytes)),
            Self::Replace(text, replacement) => replacement.apply(text.get(context)?),
            Self::UrlDecode(text, options) => Some(functions::url_decode(text.get(context)?, *options)),
            Self::Json(text, path) => functions::json_string(&text.get(context)?, path).map(Cow::Owned),
            Self::Join(source, item, separator) => join(source, item, separator, context),
            Self::Sha256(text) => Some(Cow::Owned(functions::sha256(&text.get(context)?))),
            Self::EncodeBase64(text, options) => {
                Some(Cow::Owned(functions::encode_base64(&text.get(context)?, *options)))
            }
            Self::DecodeBase64(text) => functions::decode_base64(&text.get(context)?).map(Cow::Owned),
            Self::OfNumber(number) => Some(Cow::Owned(functions::number(number.get(context)?))),
            Self::OfAddress(address) => {
                Some(Cow::Owned(functions::address(address.get(context)?.to_canonical())))
            }
            Self::OfCond(cond) => Some(Cow::Borrowed(if cond.holds(context) { b"true" } else { b"false" })),
        }
    }
}

/// Joins the elements with a separator. The result is absent if there is no element.
fn join<'e>(
    source: &'e Source,
    item: &'e Item,
    separator: &'e Text,
    context: Context<'e>,
) -> Option<Cow<'e, [u8]>> {
    let separator = separator.get(context)?;
    let mut joined: Option<Vec<u8>> = None;
    // The visit never breaks, because all elements are wanted.
    let _ = source.each(context, &mut |element| {
        let context = Context { element: Some(&element), ..context };
        let Some(text) = item.text(context) else {
            return ControlFlow::Continue(());
        };
        match &mut joined {
            Some(joined) => {
                joined.extend_from_slice(&separator);
                joined.extend_from_slice(&text);
            }
            None => joined = Some(text.into_owned()),
        }
        ControlFlow::Continue(())
    });
    joined.map(Cow::Owned)
}

impl Item {
    fn text<'e>(&'e self, context: Context<'e>) -> Option<Cow<'e, [u8]>> {
        match self {
            Self::Text(text) => text.get(context),
            Self::Number(number) => Some(Cow::Owned(functions::number(number.get(context)?))),
            Self::Address(address) => Some(Cow::Owned(functions::address(address.get(context)?))),
            Self::Cond(cond) => Some(Cow::Borrowed(if cond.holds(context) { b"true" } else { b"false" })),
        }
    }
}

impl Number {
    pub(crate) fn get(&self, context: Context<'_>) -> Option<i64> {
        match self {
            Self::Literal(number) => Some(*number),
            Self::Absent => None,
            Self::Field(field) => context.facts.int(*field),
            Self::Length(field) => Some(context.facts.int(*field).unwrap_or(i64::MAX)),
            Self::Element => match context.element? {
                Value::Int(number) => Some(*number),
                _ => None,
            },
            Self::At(source, at) => match source.nth(context, *at)? {
                Value::Int(number) => Some(number),
                _ => None,
            },
            Self::Len(text) => i64::try_from(text.get(context)?.len()).ok(),
            Self::Count(source) => source.count(context),
            Self::Json(text, path) => functions::json_integer(&text.get(context)?, path),
        }
    }
}

impl Address {
    pub(crate) fn get(&self, context: Context<'_>) -> Option<IpAddr> {
        match self {
            Self::Literal(address) => Some(*address),
            Self::Absent => None,
            Self::Field(field) => context.facts.ip(*field),
            Self::Element => match context.element? {
                Value::Ip(address) => Some(*address),
                _ => None,
            },
            Self::At(source, at) => match source.nth(context, *at)? {
                Value::Ip(address) => Some(address),
                _ => None,
            },
            Self::Cidr(inner, v4, v6) => {
                let address = inner.get(context)?.to_canonical();
                Some(mask(address, if address.is_ipv4() { *v4 } else { *v6 }))
            }
        }
    }
}

impl Source {
    /// Visits the elements in order until a visit breaks.
    pub(crate) fn each<'e>(
        &'e self,
        context: Context<'e>,
        visit: &mut dyn FnMut(Value<'e>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            Self::Field(field) => context.facts.each(*field, None, visit),
            Self::Named(field, name) => context.facts.each(*field, Some(name), visit),
            Self::Split(text, separator, limit) => match text.get(context) {
                Some(Cow::Borrowed(text)) => {
                    functions::split(text, separator, *limit, |part| visit(Value::Bytes(Cow::Borrowed(part))))
                }
                Some(Cow::Owned(text)) => functions::split(&text, separator, *limit, |part| {
                    visit(Value::Bytes(Cow::Owned(part.to_vec())))
                }),
                None => ControlFlow::Continue(()),
            },
        }
    }

    fn nth<'e>(&'e self, context: Context<'e>, at: u32) -> Option<Value<'e>> {
        if let (Self::Named(field, name), 0) = (self, at) {
            return context.facts.first(*field, name);
        }
        let mut left = at;
        let mut found = None;
        let _ = self.each(context, &mut |element| {
            if left == 0 {
                found = Some(element);
                return ControlFlow::Break(());
            }
            left -= 1;
            ControlFlow::Continue(())
        });
        found
    }

    /// The number of elements. The count is absent for a name that a map does not have, and for an absent text that is
    /// split.
    fn count(&self, context: Context<'_>) -> Option<i64> {
        let mut count = 0;
        let _ = self.each(context, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        match self {
            Self::Field(_) => Some(count),
            Self::Named(..) | Self::Split(..) => (count > 0).then_some(count),
        }
    }
}
