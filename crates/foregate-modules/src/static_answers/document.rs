//! A text that is sent as a response, with its validator.

use alloc::format;
use alloc::sync::Arc;
use core::hash::Hasher;

use foregate_module::{Fields, Response, Text};
use siphasher::sip::SipHasher13;

/// A document.
pub struct Document {
    body: Arc<[u8]>,
    content_type: Arc<[u8]>,
    etag: Arc<[u8]>,
    cache_control: Option<Arc<[u8]>>,
}

impl Document {
    /// A document of a media type. `max_age` is the time for which caches may keep it, seconds.
    pub fn new(body: Arc<[u8]>, content_type: &str, max_age: Option<u64>) -> Self {
        // The hash needs no secret: only the operator could make two texts with the same validator.
        let hash = |key| {
            let mut hasher = SipHasher13::new_with_keys(key, 0);
            hasher.write(&body);
            hasher.finish()
        };
        let etag = format!("\"{:016x}{:016x}\"", hash(0), hash(1));
        Self {
            content_type: content_type.as_bytes().into(),
            etag: etag.into_bytes().into(),
            cache_control: max_age.map(|age| format!("max-age={age}").into_bytes().into()),
            body,
        }
    }

    /// The answer to a GET or HEAD request: the document, or 304 if the client has it (RFC 9110, section 13.1.2).
    pub fn answer(&self, request: &dyn Fields) -> Response {
        let response = if self.is_known(request) {
            Response::new(304)
        } else {
            Response::new(200).body(Arc::clone(&self.content_type), Arc::clone(&self.body))
        };
        let response = response.field("etag", Arc::clone(&self.etag));
        match &self.cache_control {
            None => response,
            Some(value) => response.field("cache-control", Text::Shared(Arc::clone(value))),
        }
    }

    /// Returns true if one of the validators of `if-none-match` matches the document's. The comparison is weak, and our
    /// validators contain no comma.
    fn is_known(&self, request: &dyn Fields) -> bool {
        request.all("if-none-match").flat_map(|value| value.split(|byte| *byte == b',')).any(|tag| {
            let tag = tag.trim_ascii();
            tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == &*self.etag
        })
    }
}
