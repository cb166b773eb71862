#![no_main]

#[allow(dead_code, reason = "each target uses one function of the module")]
#[path = "../targets/modules.rs"]
mod modules;

libfuzzer_sys::fuzz_target!(|data: &[u8]| modules::modules(data));
