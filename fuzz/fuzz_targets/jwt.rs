#![no_main]

#[allow(dead_code, reason = "each target uses one function of the module")]
#[path = "../targets/jwt.rs"]
mod jwt;

libfuzzer_sys::fuzz_target!(|data: &[u8]| jwt::jwt(data));
