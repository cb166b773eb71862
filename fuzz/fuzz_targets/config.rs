#![no_main]

#[path = "../targets/config.rs"]
mod config;

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::config(data));
