//! Calls: the arguments and the result of functions.

use std::ops::{Range, RangeInclusive};

use memchr::memmem::Finder;

use super::{Checker, Shape, TypedPart};
use crate::error::Error;
use crate::functions::FUNCTIONS;
use crate::limits::{MAX_ARGUMENTS, MAX_SPLIT};
use crate::nearest::nearest;
use crate::parse::Node;
use crate::pattern::Replacement;
use crate::program::{
    Address, AddressTest, Base64, Cond, Item, JsonKey, Number, NumberTest, Quantor, Source, Text, TextTest,
    UrlDecoding,
};
use crate::scheme::Type;

/// The arguments of one call, which are taken one after the other.
struct Arguments {
    function: &'static str,
    usage: &'static str,
    /// The whole call.
    span: Range<usize>,
    rest: std::vec::IntoIter<TypedPart>,
}

impl Arguments {
    fn next(&mut self) -> Option<TypedPart> {
        self.rest.next()
    }

    fn error(&self, span: Range<usize>, message: String) -> Error {
        Error::new(span, message).with_help(self.usage)
    }

    fn wrong(&self, argument: &TypedPart, wanted: &str) -> Error {
        let message =
            format!("`{}` takes {wanted} here, and this is {}", self.function, argument.kind().phrase());
        let error = self.error(argument.span.clone(), message);
        match argument.kind() {
            // The usual cause is a missing index, so the help suggests one.
            Type::Array(_) => error.with_help("take one element with `[0]`, or each with `[*]`"),
            Type::Map => {
                error.with_help("take a value of the map: `[\"name\"][0]`, or each with `[\"name\"][*]`")
            }
            _ => error,
        }
    }

    fn not_literal(&self, argument: &TypedPart, wanted: &str) -> Error {
        let message = format!("`{}` takes a literal {wanted} here", self.function);
        self.error(argument.span.clone(), message)
    }

    fn required(&mut self) -> Result<TypedPart, Error> {
        let end = self.span.end.saturating_sub(1)..self.span.end;
        let message = format!("`{}` takes more arguments", self.function);
        self.next().ok_or_else(|| self.error(end, message))
    }

    fn text(&mut self) -> Result<Text, Error> {
        let argument = self.required()?;
        self.as_text(argument)
    }

    fn as_text(&self, argument: TypedPart) -> Result<Text, Error> {
        match argument.shape {
            Shape::Item(Item::Text(text)) => Ok(text),
            _ => Err(self.wrong(&argument, "a text")),
        }
    }

    fn number(&self, argument: TypedPart) -> Result<Number, Error> {
        match argument.shape {
            Shape::Item(Item::Number(number)) => Ok(number),
            _ => Err(self.wrong(&argument, "a number")),
        }
    }

    fn address(&mut self) -> Result<Address, Error> {
        let argument = self.required()?;
        match argument.shape {
            Shape::Item(Item::Address(address)) => Ok(address),
            _ => Err(self.wrong(&argument, "an address")),
        }
    }

    /// Takes an argument that must be a literal text.
    fn literal(&mut self) -> Result<(Box<[u8]>, Range<usize>), Error> {
        let argument = self.required()?;
        match argument.shape {
            Shape::Item(Item::Text(Text::Literal(text))) => Ok((text, argument.span)),
            Shape::Item(Item::Text(_)) => Err(self.not_literal(&argument, "text")),
            _ => Err(self.wrong(&argument, "a literal text")),
        }
    }

    /// Takes an argument that must be a literal number in a range.
    fn literal_number(&mut self, range: RangeInclusive<i64>) -> Result<u8, Error> {
        let argument = self.required()?;
        let number = match argument.shape {
            Shape::Item(Item::Number(Number::Literal(number))) => number,
            Shape::Item(Item::Number(_)) => return Err(self.not_literal(&argument, "number")),
            _ => return Err(self.wrong(&argument, "a literal number")),
        };
        let fitting = u8::try_from(number).ok().filter(|_| range.contains(&number));
        fitting.ok_or_else(|| {
            let message = format!("this number has to lie between {} and {}", range.start(), range.end());
            self.error(argument.span, message)
        })
    }

    /// Takes an optional last argument of option letters. For each of `letters`, true if it is given.
    fn flags<const N: usize>(&mut self, letters: [u8; N]) -> Result<[bool; N], Error> {
        if self.rest.len() == 0 {
            return Ok([false; N]);
        }
        let (text, span) = self.literal()?;
        if let Some(other) = text.iter().find(|letter| !letters.contains(letter)) {
            let message = format!("`{}` has no option `{}`", self.function, other.escape_ascii());
            return Err(self.error(span, message));
        }
        Ok(letters.map(|letter| text.contains(&letter)))
    }

    fn end(&mut self) -> Result<(), Error> {
        match self.next() {
            None => Ok(()),
            Some(more) => {
                let message = format!("`{}` takes no argument here", self.function);
                Err(self.error(more.span, message))
            }
        }
    }
}

impl Checker<'_> {
    pub(super) fn call(
        &mut self,
        name: &str,
        name_span: Range<usize>,
        span: &Range<usize>,
        arguments: Vec<Node<'_>>,
    ) -> Result<TypedPart, Error> {
        let Some(function) = FUNCTIONS.iter().find(|function| function.name == name) else {
            return Err(self.unknown_function(name, name_span));
        };
        let mut typed = Vec::with_capacity(arguments.len().min(MAX_ARGUMENTS));
        for argument in arguments {
            typed.push(self.node(argument)?);
        }
        let constant = typed.iter().all(|argument| argument.constant);
        let each = take_each(&mut typed, function.name)?;
        let rest = typed.into_iter();
        let mut arguments =
            Arguments { function: function.name, usage: function.usage, span: span.clone(), rest };
        let shape = match name {
            "any" | "all" => {
                let quantor = if name == "any" { Quantor::Any } else { Quantor::All };
                let cond = quantified(&mut arguments, each, quantor)?;
                arguments.end()?;
                return Ok(TypedPart {
                    span: span.clone(),
                    shape: Shape::Item(Item::Cond(cond)),
                    each: None,
                    constant: false,
                });
            }
            "join" => Shape::Item(Item::Text(join(&mut arguments, &each)?)),
            "split" => split(&mut arguments, &each)?,
            _ => Shape::Item(self.item(name, &mut arguments)?),
        };
        arguments.end()?;
        // A function that is applied to each element of an array results in an array.
        let shape = match (each, shape) {
            (Some(source), Shape::Item(item)) => Shape::Array(source, item),
            (_, shape) => shape,
        };
        Ok(TypedPart { span: span.clone(), shape, each: None, constant })
    }

    fn unknown_function(&self, name: &str, span: Range<usize>) -> Error {
        let error = Error::new(span, format!("there is no function `{name}`"));
        let known = FUNCTIONS.iter().map(|function| function.name);
        match nearest(name, known) {
            Some(nearest) => error.with_help(format!("did you mean `{nearest}`?")),
            None if self.scheme.id(name).is_some() => error.with_help(format!("`{name}` is a field")),
            None => error,
        }
    }

    /// Checks a function that has one result for each value of its first argument.
    fn item(&mut self, name: &str, arguments: &mut Arguments) -> Result<Item, Error> {
        let text = match name {
            "starts_with" | "ends_with" => return Ok(Item::Cond(begins_or_ends(name, arguments)?)),
            "has_key" => return self.has_key(arguments).map(Item::Cond),
            "has_value" => return has_value(arguments).map(Item::Cond),
            "len" => return length(arguments).map(Item::Number),
            "lookup_json_integer" => {
                let document = Box::new(arguments.text()?);
                return Ok(Item::Number(Number::Json(document, json_path(arguments)?)));
            }
            "lookup_json_string" => {
                let document = Box::new(arguments.text()?);
                Text::Json(document, json_path(arguments)?)
            }
            "cidr" | "cidr6" => {
                let address = Box::new(arguments.address()?);
                let v4 = if name == "cidr" { arguments.literal_number(1..=32)? } else { 32 };
                return Ok(Item::Address(Address::Cidr(address, v4, arguments.literal_number(1..=128)?)));
            }
            "concat" => concat(arguments)?,
            "lower" => Text::Lower(Box::new(arguments.text()?)),
            "upper" => Text::Upper(Box::new(arguments.text()?)),
            "sha256" => Text::Sha256(Box::new(arguments.text()?)),
            "decode_base64" => Text::DecodeBase64(Box::new(arguments.text()?)),
            "encode_base64" => {
                let text = Box::new(arguments.text()?);
                let [url_safe, padded] = arguments.flags([b'u', b'p'])?;
                Text::EncodeBase64(text, Base64 { url_safe, padded })
            }
            "url_decode" => {
                let text = Box::new(arguments.text()?);
                let [repeated, unicode] = arguments.flags([b'r', b'u'])?;
                Text::UrlDecode(text, UrlDecoding { repeated, unicode })
            }
            "remove_bytes" => Text::RemoveBytes(Box::new(arguments.text()?), arguments.literal()?.0),
            "substring" => substring(arguments)?,
            "regex_replace" | "wildcard_replace" => self.replace(name, arguments)?,
            _ => to_string(arguments)?,
        };
        Ok(Item::Text(text))
    }

    fn replace(&mut self, name: &str, arguments: &mut Arguments) -> Result<Text, Error> {
        let text = Box::new(arguments.text()?);
        let (pattern, pattern_span) = arguments.literal()?;
        let (template, template_span) = arguments.literal()?;
        let replacement = if name == "regex_replace" {
            Replacement::regex(&pattern, &template)
        } else {
            let [strict] = arguments.flags([b's'])?;
            Replacement::wildcard(&pattern, &template, strict)
        };
        let span = pattern_span.start..template_span.end;
        let replacement = replacement.map_err(|problem| arguments.error(span.clone(), problem))?;
        self.account(replacement.memory(), &span)?;
        Ok(Text::Replace(text, Box::new(replacement)))
    }

    fn has_key(&self, arguments: &mut Arguments) -> Result<Cond, Error> {
        let argument = arguments.required()?;
        let Shape::Map(field) = argument.shape else {
            return Err(arguments.wrong(&argument, "a map"));
        };
        let name = match arguments.text()? {
            Text::Literal(name) => Text::Literal(self.map_name(field, name.into_vec())),
            other if self.scheme.field(field).is_some_and(|field| field.names_fold) => {
                Text::Lower(Box::new(other))
            }
            other => other,
        };
        Ok(Cond::HasKey(field, name))
    }
}

/// Takes the array from a first argument that stands for each element of it (`[*]`); `None` for another
/// first argument. The other arguments must be single values.
fn take_each(arguments: &mut [TypedPart], function: &str) -> Result<Option<Source>, Error> {
    let mut first = None;
    for (number, argument) in arguments.iter_mut().enumerate() {
        let Some(source) = argument.each.take() else { continue };
        if number > 0 {
            let message = format!("`{function}` takes `[*]` in its first argument only");
            return Err(Error::new(argument.span.clone(), message));
        }
        first = Some(source);
    }
    Ok(first)
}

fn quantified(arguments: &mut Arguments, each: Option<Source>, quantor: Quantor) -> Result<Cond, Error> {
    let argument = arguments.required()?;
    let (source, cond) = match (each, argument.shape) {
        (Some(source), Shape::Item(Item::Cond(cond))) | (None, Shape::Array(source, Item::Cond(cond))) => {
            (source, cond)
        }
        (_, Shape::Item(Item::Cond(_))) => {
            let message =
                format!("`{}` is about the elements of an array, and this is one value", arguments.function);
            let error = Error::new(argument.span, message);
            return Err(error.with_help("write `[*]` behind the array: `any(x[*] eq \"...\")`"));
        }
        _ => {
            let message = format!("`{}` takes a condition for each element", arguments.function);
            let error = Error::new(argument.span, message);
            return Err(error.with_help("compare the elements: `any(x[*] eq \"...\")`"));
        }
    };
    Ok(Cond::Each(Box::new(source), Box::new(cond), quantor))
}

fn join(arguments: &mut Arguments, each: &Option<Source>) -> Result<Text, Error> {
    let argument = arguments.required()?;
    if each.is_some() {
        return Err(arguments.error(argument.span, "`join` takes the array itself, without `[*]`".to_owned()));
    }
    let Shape::Array(source, item) = argument.shape else {
        let wrong = arguments.wrong(&argument, "an array");
        return Err(wrong);
    };
    Ok(Text::Join(Box::new(source), Box::new(item), Box::new(arguments.text()?)))
}

fn split(arguments: &mut Arguments, each: &Option<Source>) -> Result<Shape, Error> {
    let argument = arguments.required()?;
    if each.is_some() {
        let message = "`split` takes one text: arrays of arrays do not exist".to_owned();
        return Err(arguments.error(argument.span, message));
    }
    let text = arguments.as_text(argument)?;
    let (separator, span) = arguments.literal()?;
    if separator.is_empty() {
        return Err(arguments.error(span, "the separator is empty".to_owned()));
    }
    let most = i64::try_from(MAX_SPLIT).unwrap_or(i64::MAX);
    let limit = arguments.literal_number(1..=most)?;
    let separator = Box::new(Finder::new(&separator).into_owned());
    Ok(Shape::Array(Source::Split(text, separator, limit.into()), Item::Text(Text::Element)))
}

fn begins_or_ends(name: &str, arguments: &mut Arguments) -> Result<Cond, Error> {
    let text = arguments.text()?;
    let part = arguments.text()?;
    Ok(match (name, part) {
        ("starts_with", Text::Literal(part)) => Cond::Text(text, TextTest::StartsWith(part)),
        (_, Text::Literal(part)) => Cond::Text(text, TextTest::EndsWith(part)),
        ("starts_with", part) => Cond::StartsWith(Box::new((text, part))),
        (_, part) => Cond::EndsWith(Box::new((text, part))),
    })
}

fn has_value(arguments: &mut Arguments) -> Result<Cond, Error> {
    let argument = arguments.required()?;
    let (source, item) = match argument.shape {
        Shape::Map(field) => (Source::Field(field), Item::Text(Text::Element)),
        Shape::Array(source, item) => (source, item),
        Shape::Item(_) => return Err(arguments.wrong(&argument, "a map or array")),
    };
    let value = arguments.required()?;
    let cond = match (item, &value.shape) {
        (Item::Text(text), Shape::Item(Item::Text(Text::Literal(value)))) => {
            Cond::Text(text, TextTest::Eq(value.clone()))
        }
        (Item::Number(number), Shape::Item(Item::Number(Number::Literal(value)))) => {
            Cond::Number(number, NumberTest::Eq(*value))
        }
        (Item::Address(address), Shape::Item(Item::Address(Address::Literal(value)))) => {
            Cond::Address(address, AddressTest::Eq(*value))
        }
        _ => return Err(arguments.not_literal(&value, "of the elements' type")),
    };
    Ok(Cond::Each(Box::new(source), Box::new(cond), Quantor::Any))
}

fn length(arguments: &mut Arguments) -> Result<Number, Error> {
    let argument = arguments.required()?;
    match argument.shape {
        Shape::Item(Item::Text(text)) => Ok(Number::Len(Box::new(text))),
        Shape::Array(source, _) => Ok(Number::Count(Box::new(source))),
        _ => Err(arguments.wrong(&argument, "a text or array")),
    }
}

fn json_path(arguments: &mut Arguments) -> Result<Box<[JsonKey]>, Error> {
    let mut path = Vec::new();
    let mut next = Some(arguments.required()?);
    while let Some(argument) = next {
        let key = match &argument.shape {
            Shape::Item(Item::Text(Text::Literal(name))) => {
                std::str::from_utf8(name).ok().map(|name| JsonKey::Name(name.into()))
            }
            Shape::Item(Item::Number(Number::Literal(at))) => usize::try_from(*at).ok().map(JsonKey::At),
            _ => None,
        };
        path.push(key.ok_or_else(|| {
            let message = "a key is a literal name or a literal position from 0".to_owned();
            arguments.error(argument.span, message)
        })?);
        next = arguments.next();
    }
    Ok(path.into())
}

fn concat(arguments: &mut Arguments) -> Result<Text, Error> {
    let mut parts = Vec::new();
    let mut next = Some(arguments.required()?);
    while let Some(argument) = next {
        match (as_text(argument, arguments)?, parts.last_mut()) {
            (Text::Absent, _) => {}
            (Text::Literal(literal), Some(Text::Literal(before))) => {
                *before = [&**before, &*literal].concat().into();
            }
            (part, _) => parts.push(part),
        }
        next = arguments.next();
    }
    Ok(Text::Concat(parts.into()))
}

/// A value of any type as a text.
fn as_text(argument: TypedPart, arguments: &Arguments) -> Result<Text, Error> {
    match argument.shape {
        Shape::Item(Item::Text(text)) => Ok(text),
        Shape::Item(Item::Number(number)) => Ok(Text::OfNumber(Box::new(number))),
        Shape::Item(Item::Address(address)) => Ok(Text::OfAddress(Box::new(address))),
        Shape::Item(Item::Cond(cond)) => Ok(Text::OfCond(Box::new(cond))),
        _ => Err(arguments.wrong(&argument, "a single value")),
    }
}

fn to_string(arguments: &mut Arguments) -> Result<Text, Error> {
    let argument = arguments.required()?;
    if argument.kind() == Type::Bytes {
        return Err(arguments.wrong(&argument, "a number, boolean or address"));
    }
    as_text(argument, arguments)
}

fn substring(arguments: &mut Arguments) -> Result<Text, Error> {
    let text = Box::new(arguments.text()?);
    let from = arguments.required()?;
    let from = Box::new(arguments.number(from)?);
    let to = match arguments.next() {
        Some(to) => Some(Box::new(arguments.number(to)?)),
        None => None,
    };
    Ok(Text::Substring(text, from, to))
}
