#![no_main]

#[allow(dead_code, reason = "each target uses one function of the module")]
#[path = "../targets/config.rs"]
mod config;

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::config(data));
