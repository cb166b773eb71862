//! HTTP messages as the proxy understands them, independent of the protocol version.

pub mod grpc;
pub mod request;
pub mod response;
pub mod scratch;
pub mod verbatim;
