//! Messages of HTTP as the proxy understands them, whatever the protocol.

pub mod request;
pub mod response;
pub mod scratch;
pub mod verbatim;
