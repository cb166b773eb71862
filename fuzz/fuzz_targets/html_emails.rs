#![no_main]

#[allow(dead_code, reason = "each target uses one function of the module")]
#[path = "../targets/emails.rs"]
mod emails;

libfuzzer_sys::fuzz_target!(|data: &[u8]| emails::html_emails(data));
