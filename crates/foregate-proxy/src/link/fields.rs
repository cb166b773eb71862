//! Conversions between our header list and the `http` crate's map, which only the interface to `h2` uses.

use std::sync::LazyLock;

use bytes::Bytes;
use foregate_wire::{HeaderList, NameId};
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The largest list, in bytes, with values that share one allocation. In a larger list each value has its
/// own, because `h2` keeps some values for its compression, and each would keep the whole allocation
/// alive.
const SHARED: usize = 2 * 1024;

/// Appends the fields of `map` to `list`, in order.
pub fn append(list: &mut HeaderList, map: &HeaderMap) {
    for (name, value) in map {
        list.push(name.as_str().as_bytes(), value.as_bytes());
    }
}

/// The fields of `list` as a map. Fields that HTTP/2 cannot carry were taken out before.
pub fn to_map(list: &HeaderList) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(list.len());
    if list.arena_len() > SHARED {
        for field in list.iter() {
            if let (Some(name), Ok(value)) =
                (name(field.id, field.name), HeaderValue::from_bytes(field.value))
            {
                map.append(name, value);
            }
        }
        return map;
    }
    let mut values = Vec::with_capacity(list.arena_len());
    for field in list.iter() {
        values.extend_from_slice(field.value);
    }
    // One allocation serves all values; each is a slice of it.
    let values = Bytes::from(values);
    let mut at = 0;
    for field in list.iter() {
        let value = values.slice(at..at + field.value.len());
        at += field.value.len();
        // Name and value were checked when they were parsed. A field that `http` refuses nevertheless is left out.
        if let (Some(name), Ok(value)) = (name(field.id, field.name), HeaderValue::from_maybe_shared(value)) {
            map.append(name, value);
        }
    }
    map
}

fn name(id: NameId, name: &[u8]) -> Option<HeaderName> {
    /// The known names in the order of their ids. They are made once, because making a name
    /// checks each of its bytes, and cloning it does not.
    static KNOWN: LazyLock<Vec<HeaderName>> =
        LazyLock::new(|| NameId::all().map(|id| HeaderName::from_static(id.as_str())).collect());
    match (id as usize).checked_sub(1) {
        None => HeaderName::from_bytes(name).ok(),
        Some(known) => KNOWN.get(known).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_itself() {
        for id in NameId::all() {
            assert_eq!(name(id, b"").unwrap().as_str(), id.as_str());
        }
    }
}
