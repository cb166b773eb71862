#![no_main]

#[path = "../targets/cache.rs"]
mod cache;

libfuzzer_sys::fuzz_target!(|data: &[u8]| cache::cache_decisions(data));
