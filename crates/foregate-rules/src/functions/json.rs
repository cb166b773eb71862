//! Looking up one value in a JSON document without building the rest of it.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::program::JsonKey;

/// What was looked for.
enum Found {
    Text(Vec<u8>),
    Number(i64),
}

pub(crate) fn json_string(document: &[u8], path: &[JsonKey]) -> Option<Vec<u8>> {
    match look_up(document, path)? {
        Found::Text(text) => Some(text),
        Found::Number(_) => None,
    }
}

pub(crate) fn json_integer(document: &[u8], path: &[JsonKey]) -> Option<i64> {
    match look_up(document, path)? {
        Found::Number(number) => Some(number),
        Found::Text(_) => None,
    }
}

/// The whole document has to be JSON. Of several values under one name the last counts, as it does for
/// most who read JSON: the origin shall not see another than the rule. `serde_json` goes 128 levels
/// deep at most, and no deeper than the keys go on the stack.
fn look_up(document: &[u8], path: &[JsonKey]) -> Option<Found> {
    let mut document = serde_json::Deserializer::from_slice(document);
    let found = Path(path).deserialize(&mut document).ok()?;
    document.end().ok()?;
    found
}

/// What is left of the path below the value at hand.
#[derive(Clone, Copy)]
struct Path<'p>(&'p [JsonKey]);

impl<'de> DeserializeSeed<'de> for Path<'_> {
    type Value = Option<Found>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Path<'_> {
    type Value = Option<Found>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(self.0.is_empty().then_some(Found::Number(number)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        let number = i64::try_from(number).ok().filter(|_| self.0.is_empty());
        Ok(number.map(Found::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0.is_empty().then(|| Found::Text(text.as_bytes().to_vec())))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            match self.0.split_first() {
                Some((JsonKey::Name(wanted), rest)) if **wanted == *name => {
                    found = map.next_value_seed(Path(rest))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        for at in 0.. {
            let more = match self.0.split_first() {
                Some((JsonKey::At(wanted), rest)) if *wanted == at => {
                    match array.next_element_seed(Path(rest))? {
                        Some(value) => {
                            found = value;
                            true
                        }
                        None => false,
                    }
                }
                _ => array.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                break;
            }
        }
        Ok(found)
    }
}
