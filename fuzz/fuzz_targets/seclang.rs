#![no_main]

#[allow(dead_code, reason = "each target uses one function of the module")]
#[path = "../targets/waf.rs"]
mod waf;

libfuzzer_sys::fuzz_target!(|data: &[u8]| waf::seclang(data));
