#![no_main]

#[allow(dead_code, unreachable_pub, reason = "the proxy uses all of it")]
#[path = "../../crates/foregate-proxy/src/names/message.rs"]
mod message;
#[path = "../targets/names.rs"]
mod names;

libfuzzer_sys::fuzz_target!(|data: &[u8]| names::name_answers(data));
