#![no_main]

#[path = "../targets/html.rs"]
mod html;

libfuzzer_sys::fuzz_target!(|data: &[u8]| html::html_rewrite(data));
