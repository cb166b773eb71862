//! Looks up one value in a JSON document, without building a tree of the document.

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

/// Looks up the raw value at `path`; the whole document must be JSON.
///
/// A rule must see the same value as the origin. If a name occurs several times, the last value therefore counts, as
/// for most readers of JSON. Only the value itself must be representable: half a surrogate pair or an oversized number
/// elsewhere in the document does not hide the value. Bytes that are not UTF-8 count as U+FFFD.
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
            // A name that is no valid text differs from any wanted name.
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
