//! Looking up one value in a JSON document without building the rest of it.

use std::fmt;

use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::program::JsonKey;

pub(crate) fn json_string(document: &[u8], path: &[JsonKey]) -> Option<Vec<u8>> {
    let document = String::from_utf8_lossy(document);
    serde_json::from_str::<String>(look_up(&document, path)?).ok().map(String::into_bytes)
}

pub(crate) fn json_integer(document: &[u8], path: &[JsonKey]) -> Option<i64> {
    let document = String::from_utf8_lossy(document);
    serde_json::from_str(look_up(&document, path)?).ok()
}

/// The whole document has to be JSON. Of several values under one name the last counts, as for
/// most readers of JSON: the origin must not see another value than the rule. For the same reason only the
/// value itself has to be representable: half a surrogate pair or a number beyond all bounds
/// elsewhere, in a name or under the same one, hides nothing. Bytes that are no text count as U+FFFD.
fn look_up<'d>(document: &'d str, path: &[JsonKey]) -> Option<&'d str> {
    path.iter().try_fold(document, |value, key| {
        let mut value = serde_json::Deserializer::from_str(value);
        let found = value.deserialize_any(JsonLookup(key)).ok()?;
        value.end().ok()?;
        found.map(RawValue::get)
    })
}

/// Finds the raw value under a key.
struct JsonLookup<'k>(&'k JsonKey);

impl<'de> Visitor<'de> for JsonLookup<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            // A name that is no text is another than any that is asked for.
            let name = serde_json::from_str::<String>(name.get()).ok();
            if matches!(self.0, JsonKey::Name(wanted) if name.as_deref() == Some(wanted)) {
                found = Some(value);
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        for at in 0.. {
            let Some(element) = array.next_element()? else { break };
            if matches!(self.0, JsonKey::At(wanted) if *wanted == at) {
                found = Some(element);
            }
        }
        Ok(found)
    }
}
