#![no_main]

#[allow(dead_code, reason = "each target uses one function of the module")]
#[path = "../targets/html.rs"]
mod html;

libfuzzer_sys::fuzz_target!(|data: &[u8]| html::html_rewrite(data));
