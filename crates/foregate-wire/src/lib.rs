//! HTTP/1, and header blocks of HTTP/2, without I/O: bytes in, values out.
//!
//! Heads ([`HeadParser`]), the length of a body ([`request_length`], [`response_length`]), bodies ([`BodyDecoder`]),
//! the parts that belong to the connection ([`connection`]), targets, paths and hosts in their normal form ([`Target`],
//! [`normalize_path`], [`parse_authority`]), dates ([`date`](mod@date)), serialising ([`serialise`]), the PROXY protocol
//! ([`proxy_protocol`]) and blocks of HPACK ([`hpack`]).
//!
//! The crate uses no sockets and no clock, and allocates nothing for a message once the buffers have grown. Framing is
//! strict: input that two readers could understand differently is refused.
//!
//! ```
//! use foregate_wire::{
//!     BodyDecoder, BodyLength, HeadLimits, HeadParser, HeaderList, NameId, RequestHead, request_length,
//! };
//!
//! let input = b"POST /upload HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n\r\nhello";
//! let limits = HeadLimits::default();
//! let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
//!
//! // Half a head: more input is needed. The next call passes the same bytes, with more behind them.
//! assert_eq!(parser.parse_request(&input[..20], &limits, &mut head), Ok(None));
//! let consumed = parser.parse_request(input, &limits, &mut head)?.ok_or("incomplete")?;
//! assert_eq!(head.target(), b"/upload");
//! assert_eq!(head.headers.get(NameId::Host), Some(&b"example.com"[..]));
//!
//! let length = request_length(&head)?;
//! assert_eq!(length, BodyLength::Fixed(5));
//! let mut body = BodyDecoder::new(length, &limits);
//! let decoded = body.decode(&input[consumed..], &mut HeaderList::new())?;
//! assert_eq!((decoded.data, decoded.done), (0..5, true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
// Peers control offsets, and an invalid offset must not cause a panic.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod body;
mod chars;
pub mod client_hello;
pub mod connection;
pub mod date;
mod framing;
mod head;
mod headers;
mod host;
pub mod hpack;
mod method;
mod name_id;
mod path;
pub mod proxy_protocol;
mod readings;
pub mod serialise;
mod target;

pub use body::{BodyDecoder, BodyError, DecodeProgress, MAX_CHUNK_OVERHEAD, may_be_trailer};
pub use connection::Expectation;
pub use framing::{
    BodyLength, FramingError, collapse_content_length, content_length, request_length, response_length,
};
pub use head::{
    HeadLimits, HeadParser, MAX_LEADING_EMPTY_LINES, RequestError, RequestHead, ResponseError, ResponseHead,
};
pub use headers::{Field, FieldError, HeaderList, Iter, MAX_NAME};
pub use host::{
    Authority, HostError, HostKind, MAX_AUTHORITY, client_network, parse_authority, request_authority,
};
pub use method::{MAX_METHOD, Method, OtherMethod, Version};
pub use name_id::{FieldName, NameId};
pub use path::{Slashes, is_normal, normalize_path, normalize_query};
pub use readings::other_readings;
pub use target::{Scheme, Target, TargetError, TargetForm};
