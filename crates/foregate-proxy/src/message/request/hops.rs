//! The way of a request through proxies, as its fields tell it.

use foregate_wire::{HeaderList, NameId, RequestHead};

use super::onward::OWN_NAME;

/// The most times that a request may have passed a Foregate, by its `Via` field. Without this limit, an upstream that
/// leads back here would let the request loop until its head is too large.
const HOPS_MOST: usize = 10;

/// The number of times that OPTIONS or TRACE may still be forwarded, if the client limits it (RFC
/// 9110, section 7.6.2).
pub fn left(head: &RequestHead) -> Option<u32> {
    let limited = matches!(head.method.as_bytes(), b"OPTIONS" | b"TRACE");
    let value = head.headers.get(NameId::MaxForwards).filter(|_| limited)?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Sets how many more times the request may be forwarded.
pub fn set_left(headers: &mut HeaderList, hops: u32) {
    headers.set(NameId::MaxForwards, hops.to_string().as_bytes());
}

/// Returns true if the request has passed servers of our name so often that it most likely loops.
pub fn go_in_circles(headers: &HeaderList) -> bool {
    let via = headers.get_all(NameId::Via);
    let members = via.flat_map(|value| value.split(|byte| *byte == b','));
    members.filter(|member| member.trim_ascii().ends_with(OWN_NAME)).count() >= HOPS_MOST
}
