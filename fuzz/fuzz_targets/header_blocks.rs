#![no_main]

#[allow(dead_code, reason = "each target uses one function of the module")]
#[path = "../targets/wire.rs"]
mod wire;

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::header_blocks(data));
