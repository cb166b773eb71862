//! A page that admits clients which have done some work.
//!
//! The page contains a token: an expiry, and a code that only this configuration can make for this client and host.
//! The page's script searches for an answer such that the hash of token and answer begins with enough zero bits. It
//! then sets a cookie with the token and the answer. The proxy keeps no state for a client.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::RangeInclusive;
use core::time::Duration;

use foregate_module::settings::value::text_of_file;
use foregate_module::settings::{Context, Node, Problem};
use foregate_module::{Exchange, Response};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The largest page, bytes.
const PAGE_LIMIT: usize = 256 * 1024;

/// The shortest key, bytes.
const KEY_LEAST: usize = 16;

/// The bounds of a cookie's validity.
const VALID: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(30 * 24 * 3600);

/// The most bits that a client can be asked for: minutes of work.
const DIFFICULTY_LIMIT: u64 = 24;

/// The number of the code's bytes that are in a token.
const CODE_LENGTH: usize = 16;

/// The longest accepted answer, bytes.
const ANSWER_LIMIT: usize = 32;

/// The most cookies of the name that are checked.
const COOKIES_LIMIT: usize = 4;

/// The default page, for settings without a file.
const PAGE: &str = include_str!("challenge.html");

/// The settings of one `challenge`.
pub(super) struct Challenge {
    page: Box<[PagePart]>,
    key: Hmac<Sha256>,
    status: u16,
    cookie: Box<str>,
    /// The validity of a cookie, seconds.
    valid: u64,
    /// The required number of zero bits.
    difficulty: u32,
}

/// A part of the page.
enum PagePart {
    Text(Box<str>),
    Token,
    Difficulty,
    Cookie,
    MaxAge,
    Nonce,
}

impl Challenge {
    pub(super) fn read(node: &Node, context: &mut dyn Context) -> Result<Self, Problem> {
        let page = match node.args() {
            [] => parts(PAGE).ok_or_else(|| node.wrong("the page has no `{{token}}`"))?,
            [file, ..] => {
                let bytes = context.file(file, PAGE_LIMIT)?;
                let text = text_of_file(&bytes).map_err(|_| file.wrong("the page is not UTF-8"))?;
                parts(text)
                    .ok_or_else(|| file.wrong("the page has no `{{token}}`, which its script needs"))?
            }
        };
        let key = node.prop("key").ok_or_else(|| node.wrong("`challenge` needs `key`"))?;
        if key.text()?.len() < KEY_LEAST {
            return Err(key.wrong(format!("a key has at least {KEY_LEAST} bytes")));
        }
        let secret = Hmac::new_from_slice(key.text()?.as_bytes());
        let secret = secret.map_err(|_| key.wrong("this cannot be a key"))?;
        let status = match node.prop("status") {
            None => 403,
            Some(argument) => match argument.number(400..=599)? {
                status @ (401 | 403 | 429 | 503) => status as u16,
                _ => return Err(argument.wrong("expected 401, 403, 429 or 503")),
            },
        };
        let cookie = match node.prop("cookie") {
            None => "foregate-pass",
            Some(argument) => {
                let name = argument.text()?;
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
                if name.is_empty() || !name.bytes().all(fits) {
                    return Err(argument.wrong("the name of a cookie has letters, digits, `-`, `_` and `.`"));
                }
                name
            }
        };
        let valid =
            node.prop("valid").map_or(Ok(Duration::from_secs(3600)), |valid| valid.duration(VALID))?;
        let difficulty = node.prop("difficulty").map_or(Ok(12), |bits| bits.number(0..=DIFFICULTY_LIMIT))?;
        Ok(Self {
            page,
            key: secret,
            status,
            cookie: cookie.into(),
            valid: valid.as_secs(),
            difficulty: difficulty as u32,
        })
    }

    /// Returns true if the request has a valid cookie.
    pub(super) fn is_solved(&self, exchange: &dyn Exchange) -> bool {
        crate::arguments::cookies(exchange.request_fields(), &self.cookie, COOKIES_LIMIT)
            .into_iter()
            .any(|value| self.is_answer(value, exchange).is_some())
    }

    /// Returns `Some` if the value of a cookie was made for this client, and has not expired.
    fn is_answer(&self, value: &[u8], exchange: &dyn Exchange) -> Option<()> {
        let text = core::str::from_utf8(value).ok()?;
        let mut parts = text.split('.');
        let (ends, code, answer) = (parts.next()?, parts.next()?, parts.next()?);
        let now = exchange.now().unix_seconds();
        let number: u64 = ends.parse().ok()?;
        if parts.next().is_some() || answer.len() > ANSWER_LIMIT || number <= now || number > now + self.valid
        {
            return None;
        }
        let mut bytes = [0; CODE_LENGTH];
        if code.len() != 2 * CODE_LENGTH || !code.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(code.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        self.code(exchange, number).verify_truncated_left(&bytes).ok()?;
        let hash = Sha256::digest(value);
        let start = hash.first_chunk().map(|start| u32::from_be_bytes(*start))?;
        (start.leading_zeros() >= self.difficulty).then_some(())
    }

    /// The page for a client.
    pub(super) fn page(&self, exchange: &dyn Exchange) -> Response {
        let ends = exchange.now().unix_seconds() + self.valid;
        let code = self.code(exchange, ends).finalize().into_bytes();
        // The nonce lets the page's scripts run, even if the site's policy forbids scripts. Nothing else is changed.
        let nonce = format!("{:016x}{:016x}", exchange.random(), exchange.random());
        let has_nonce = self.page.iter().any(|part| matches!(part, PagePart::Nonce));
        let mut body = String::new();
        for part in &self.page {
            match part {
                PagePart::Text(text) => body.push_str(text),
                PagePart::Token => {
                    body.push_str(&ends.to_string());
                    body.push('.');
                    for byte in code.iter().take(CODE_LENGTH) {
                        // Writing to a string cannot fail.
                        let _ = write!(body, "{byte:02x}");
                    }
                }
                PagePart::Difficulty => body.push_str(&self.difficulty.to_string()),
                PagePart::Cookie => body.push_str(&self.cookie),
                PagePart::MaxAge => body.push_str(&self.valid.to_string()),
                PagePart::Nonce => body.push_str(&nonce),
            }
        }
        let response = Response::new(self.status).body("text/html; charset=utf-8", body).meant();
        let response = response.field("cache-control", "no-store");
        match has_nonce {
            true => response.field("content-security-policy", policy(&nonce)),
            false => response,
        }
    }

    /// The signature of a token: over the client, the host, and the expiry.
    fn code(&self, exchange: &dyn Exchange, ends: u64) -> Hmac<Sha256> {
        let mut code = self.key.clone();
        code.update(b"foregate challenge\0");
        code.update(exchange.host().as_bytes());
        code.update(b"\0");
        if let Some(client) = exchange.client() {
            code.update(client.to_canonical().to_string().as_bytes());
        }
        code.update(b"\0");
        code.update(&ends.to_be_bytes());
        code
    }
}

/// The policy of a page with a nonce for scripts (CSP 3).
fn policy(nonce: &str) -> String {
    format!("script-src 'nonce-{nonce}'; object-src 'none'; base-uri 'none'")
}

/// The parts of a page; `None` if it has no token.
fn parts(page: &str) -> Option<Box<[PagePart]>> {
    let mut parts = Vec::new();
    let mut rest = page;
    let mut has_token = false;
    while let Some(at) = rest.find("{{") {
        let (before, behind) = rest.split_at(at);
        parts.push(PagePart::Text(before.into()));
        let names = [
            ("{{token}}", PagePart::Token),
            ("{{difficulty}}", PagePart::Difficulty),
            ("{{cookie}}", PagePart::Cookie),
            ("{{max-age}}", PagePart::MaxAge),
            ("{{nonce}}", PagePart::Nonce),
        ];
        let found = names.into_iter().find_map(|(name, part)| Some((behind.strip_prefix(name)?, part)));
        let (behind, part) = found.unwrap_or((&behind[2..], PagePart::Text("{{".into())));
        has_token |= matches!(part, PagePart::Token);
        parts.push(part);
        rest = behind;
    }
    parts.push(PagePart::Text(rest.into()));
    has_token.then(|| parts.into())
}
