//! The structures of `module/foregate.h`, which C and Rust pass to each other. Their use is documented in
//! [`ffi`](crate::ffi).
#![allow(non_camel_case_types, reason = "the names of the header")]

use std::ffi::{c_int, c_void};

/// Bytes that the other side owns.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fg_text {
    pub(crate) data: *const u8,
    pub(crate) len: usize,
}

/// A field of a head.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fg_field {
    pub(crate) name: fg_text,
    pub(crate) value: fg_text,
    pub(crate) element: *mut c_void,
}

/// The address of one end of a connection.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct fg_address {
    pub(crate) bytes: [u8; 16],
    pub(crate) port: u16,
    pub(crate) family: u8,
}

/// The facts about a request other than its fields.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fg_facts {
    pub(crate) client: fg_address,
    pub(crate) https: u8,
    pub(crate) raw_is_valid: u8,
    pub(crate) chunked: u8,
    pub(crate) version: u32,
    pub(crate) content_length: i64,
    pub(crate) method: fg_text,
    pub(crate) server: fg_text,
    pub(crate) host: fg_text,
    pub(crate) uri: fg_text,
    pub(crate) args: fg_text,
    pub(crate) raw: fg_text,
    pub(crate) site: fg_text,
    pub(crate) route: fg_text,
}

/// The facts about a TLS handshake.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fg_tls {
    pub(crate) is_tls: u8,
    pub(crate) client_verified: u8,
    pub(crate) version: fg_text,
    pub(crate) server_name: fg_text,
    pub(crate) client_subject: fg_text,
}

/// The functions of the C half that the Rust half calls.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fg_host {
    pub(crate) fields: unsafe extern "C" fn(*mut c_void, c_int, *mut fg_field, usize) -> usize,
    pub(crate) append: unsafe extern "C" fn(*mut c_void, c_int, *mut fg_field) -> c_int,
    pub(crate) replace: unsafe extern "C" fn(*mut c_void, c_int, *mut fg_field, fg_text) -> c_int,
    pub(crate) remove: unsafe extern "C" fn(*mut c_void, c_int, *const fg_field, usize) -> c_int,
    pub(crate) target: unsafe extern "C" fn(*mut c_void, fg_text, fg_text) -> c_int,
    pub(crate) answer: unsafe extern "C" fn(*mut c_void, u32, fg_text) -> c_int,
    pub(crate) tls: unsafe extern "C" fn(*mut c_void, *mut fg_tls),
    pub(crate) now: unsafe extern "C" fn(*mut u64, *mut u64),
    pub(crate) log: unsafe extern "C" fn(*mut c_void, c_int, fg_text),
    pub(crate) refuse: unsafe extern "C" fn(*mut c_void, fg_text),
    pub(crate) local: unsafe extern "C" fn(*mut c_void, *mut fg_address),
    pub(crate) open_log: unsafe extern "C" fn(*mut c_void, fg_text) -> *mut c_void,
    pub(crate) write_log: unsafe extern "C" fn(*mut c_void, fg_text),
    pub(crate) place: unsafe extern "C" fn(*mut c_void, i32, *mut u64, *mut fg_text) -> c_int,
    pub(crate) limit_body: unsafe extern "C" fn(*mut c_void, u64),
}

/// A request that is to be made.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fg_question {
    pub(crate) upstream: i32,
    pub(crate) method: fg_text,
    pub(crate) path: fg_text,
    pub(crate) args: fg_text,
    pub(crate) host: fg_text,
    pub(crate) body: fg_text,
    pub(crate) timeout_ms: u64,
}

/// The arguments of a directive other than its file.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fg_terms {
    pub(crate) off: *const fg_text,
    pub(crate) off_count: usize,
    pub(crate) upstreams: *const fg_text,
    pub(crate) upstream_count: usize,
    pub(crate) fallback: fg_text,
}

/// The treatment of a body.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct fg_shaped {
    pub(crate) filters: u8,
    pub(crate) changes: u8,
    pub(crate) hold: usize,
}

/// The result of moving a body.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct fg_moved {
    pub(crate) consumed: usize,
    pub(crate) produced: usize,
    pub(crate) more: u8,
    pub(crate) asks: u8,
    pub(crate) soon: u8,
    pub(crate) over: u8,
}

/// The result of a request.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fg_summary {
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) duration_ms: u64,
}

pub(crate) const FG_END: c_int = 1;
pub(crate) const FG_FLUSH: c_int = 2;
