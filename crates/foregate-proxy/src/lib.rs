//! The asynchronous half of Foregate: listeners, TLS, connections, the exchange, upstreams and
//! telemetry.
//!
//! Everything else in the workspace is pure; this crate is the only one that awaits. Its modules are
//! layers, called rooms. A room uses only rooms before it in this order: `counters, time, settings ->
//! limits -> transport -> message -> link -> upstream -> proxy -> exchange -> connection -> listener ->
//! server`. `crates/foregate/tests/house` holds the full list.

#![deny(unsafe_code)]

pub mod address;
mod admin;
mod cache;
mod comparison;
pub mod configuration;
mod connection;
pub mod counters;
mod error;
mod exchange;
mod exporter;
mod fetches;
mod files;
mod folders;
mod handover;
#[cfg(fuzzing)]
pub mod http2;
#[cfg(not(fuzzing))]
mod http2;
mod limits;
mod link;
mod listener;
mod loops;
mod memory;
mod message;
mod names;
mod notify;
mod offload;
mod pinning;
mod proxy;
mod random;
mod relay;
pub mod routing;
pub mod server;
pub mod settings;
mod shelf;
mod spans;
mod sys;
pub mod telemetry;
mod time;
pub mod tls;
mod transport;
mod upstream;
mod watch;
mod websocket;
