#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| foregate_proxy::http2::fuzz(data));
