//! The bodies of the fuzz targets over changed payloads of the regression files, for toolchains without a fuzzer: so many
//! seconds for each as `MUTATE_SECONDS` says, one where it says nothing. `MUTATE_SEED` changes the changes.

use std::time::{Duration, Instant};

use super::suite::{Request, outcome, run};
use super::{cases, rules};

#[allow(dead_code, reason = "the rules here are those of the suite")]
#[path = "../../../../fuzz/targets/waf_engine.rs"]
mod engine;
#[path = "../../../../fuzz/targets/waf_values.rs"]
mod values;

/// Payloads grow no longer than this, bytes.
const LONGEST: usize = 4096;
/// Tokens that are inserted into payloads, in addition to random bytes.
const TOKENS: &[&[u8]] = &[
    b"%",
    b"%00",
    b"%25",
    b"%u0041",
    b"\\u0061",
    b"\\x27",
    b"&#x3c;",
    b"/*",
    b"*/",
    b"'",
    b"\"",
    b"<script",
    b"--",
    b" union select ",
    b"../",
    b"${jndi:",
    b"\r\n",
    b"\0",
    b"\xff",
    b"\xc3\xa9",
    b"\xe2\x84\xaa",
    b"&a=",
    b"=",
    b";",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\xf0\x9f\x98\x80",
    b"+",
    b"`",
    b"(",
    b")",
    b"<!--",
    b"0x31",
    b"=?",
    b"base64,",
];

/// A small generator of numbers (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound.max(1)
    }

    fn part(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        start..start + self.below((bytes.len() - start).min(40) + 1)
    }

    /// Changes a payload in up to four places.
    fn change(&mut self, payload: &mut Vec<u8>, others: &[Vec<u8>]) {
        for _ in 0..=self.below(4) {
            let at = self.below(payload.len() + 1);
            match self.below(8) {
                0 if at < payload.len() => payload[at] ^= 1 << self.below(8),
                1 if at < payload.len() => payload[at] = self.below(256) as u8,
                2 => drop(payload.drain(self.part(payload))),
                3 => {
                    let again = payload[self.part(payload)].to_vec();
                    payload.splice(at..at, again);
                }
                4 => {
                    let part = self.part(payload);
                    let coded: Vec<u8> = payload[part.clone()]
                        .iter()
                        .flat_map(|byte| format!("%{byte:02x}").into_bytes())
                        .collect();
                    payload.splice(part, coded);
                }
                5 => {
                    let other = &others[self.below(others.len())];
                    payload.splice(at..at, other[self.part(other)].iter().copied());
                }
                _ => drop(payload.splice(at..at, TOKENS[self.below(TOKENS.len())].iter().copied())),
            }
            payload.truncate(LONGEST);
        }
    }
}

/// Tries changed payloads until the time is up.
#[expect(clippy::print_stdout, reason = "how many there were is for whoever asks for it")]
fn hold(name: &str, payloads: &[Vec<u8>], mut target: impl FnMut(&[u8], &mut Dice)) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let until = Instant::now() + Duration::from_secs(number("MUTATE_SECONDS").unwrap_or(1));
    let seed = number("MUTATE_SEED").unwrap_or(1);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0x0100_0000_01b3));
    let mut count = 0_u64;
    while Instant::now() < until {
        let mut payload = payloads[dice.below(payloads.len())].clone();
        dice.change(&mut payload, payloads);
        let held =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| target(&payload, &mut dice))).is_ok();
        assert!(held, "{name} failed on `{}`", payload.escape_ascii());
        count += 1;
    }
    println!("{name}: {count} changed payloads");
}

fn requests() -> Option<(std::path::PathBuf, Vec<Request>)> {
    let folder = rules::folder()?;
    let files = cases::read(&folder);
    let stages = files.iter().flat_map(|file| &file.tests).flat_map(|test| &test.stages);
    let requests = stages.map(|stage| Request::of(&stage.input)).collect();
    Some((folder, requests))
}

/// The values in the requests that rules read.
fn payloads(requests: &[Request]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    for request in requests {
        payloads.extend([&request.target, &request.body].into_iter().filter(|part| part.len() > 1).cloned());
        payloads.extend(request.fields.iter().map(|(_, value)| value.clone()));
    }
    payloads.iter_mut().for_each(|payload| payload.truncate(LONGEST));
    payloads.sort();
    payloads.dedup();
    payloads
}

/// The Core Rule Set says the same of changed requests with the prefilter and without.
#[test]
fn the_core_rule_set_with_and_without_the_prefilter() {
    let Some((folder, requests)) = requests() else { return };
    let payloads = payloads(&requests);
    for paranoia in [1, 4] {
        let with = rules::for_tests(&folder, paranoia, true);
        let without = rules::for_tests(&folder, paranoia, false);
        hold(&format!("paranoia {paranoia}"), &payloads, |payload, dice| {
            let mut request = requests[dice.below(requests.len())].clone();
            match dice.below(3) {
                0 => request.target = [b"/?a=", payload].concat(),
                1 if !request.fields.is_empty() => {
                    let at = dice.below(request.fields.len());
                    request.fields[at].1 = payload.to_vec();
                }
                _ => request.body = payload.to_vec(),
            }
            let (one, other) = (run(&with, &request), run(&without, &request));
            assert_eq!(outcome(one), outcome(other), "{request:?}");
        });
    }
}

#[test]
fn the_bodies_of_the_fuzz_targets() {
    let Some((_, requests)) = requests() else { return };
    let payloads = payloads(&requests);
    hold("transformations", &payloads, |payload, _| values::transformations(payload));
    hold("injections", &payloads, |payload, _| values::injections(payload));
    hold("bodies", &payloads, |payload, dice| {
        values::bodies(&[&[dice.below(256) as u8], payload].concat());
    });
    hold("patterns", &payloads, |payload, dice| {
        let other = &payloads[dice.below(payloads.len())];
        let part = dice.part(other);
        values::patterns(&[&other[part], b"\n", payload].concat());
    });
    let whole = |request: &Request| {
        let mut bytes = [&request.method[..], b" ", &request.target, b" ", &request.version, b"\n"].concat();
        for (name, value) in &request.fields {
            bytes.extend([&name[..], b": ", value, b"\n"].concat());
        }
        [&bytes[..], b"\n", &request.body].concat()
    };
    let requests: Vec<Vec<u8>> = requests.iter().map(whole).collect();
    hold("engine", &requests, |request, _| engine::waf_engine(request));
}
