#![no_main]

#[allow(dead_code, reason = "each target uses one function of the module")]
#[path = "../targets/coding.rs"]
mod coding;

libfuzzer_sys::fuzz_target!(|data: &[u8]| coding::content_coding(data));
