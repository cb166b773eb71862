#![no_main]

#[path = "../targets/coding.rs"]
mod coding;

libfuzzer_sys::fuzz_target!(|data: &[u8]| coding::content_coding(data));
