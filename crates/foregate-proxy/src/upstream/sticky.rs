//! Sessions: a signed cookie binds a client to a server.

use std::fmt::Write as _;
use std::sync::LazyLock;

use aws_lc_rs::hmac;
use foregate_wire::{HeaderList, NameId};

use super::balance::{cookie, hash};
use crate::random;
use crate::settings;

/// The length of a cookie's signature.
const SIGNATURE: usize = 16;

/// Makes and reads the cookies of one upstream.
#[derive(Debug)]
pub(super) struct StickyCookies {
    settings: settings::Sticky,
    /// The cookie's value for each server, by the server's number.
    values: Box<[String]>,
}

impl StickyCookies {
    /// The cookies for servers with these addresses.
    pub(super) fn new<'s>(settings: &settings::Sticky, servers: impl Iterator<Item = &'s str>) -> Self {
        static RANDOM: LazyLock<[u8; 32]> = LazyLock::new(|| {
            let mut key = [0; 32];
            key.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random::number().to_le_bytes()));
            key
        });
        let key = settings.secret.as_deref().unwrap_or(&*RANDOM);
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let value = |server: &str| {
            // A hash, because clients must not learn the server's address.
            let mut value = format!("{:016x}.", hash(&[server.as_bytes()]));
            let mut signed = hmac::Context::with_key(&key);
            for part in [settings.cookie.as_bytes(), b"\0", server.as_bytes()] {
                signed.update(part);
            }
            for byte in signed.sign().as_ref().iter().take(SIGNATURE) {
                let _ = write!(value, "{byte:02x}");
            }
            value
        };
        Self { settings: settings.clone(), values: servers.map(value).collect() }
    }

    /// The server that a request's cookie names. `None` if the cookie was signed with another key, or if its server no
    /// longer exists.
    pub(super) fn server(&self, headers: &HeaderList) -> Option<usize> {
        let fields = headers.get_all(NameId::Cookie);
        let mut values = fields.filter_map(|field| cookie(field, &self.settings.cookie));
        values.find_map(|value| {
            let is_equal = |known: &String| {
                known.len() == value.len()
                    && aws_lc_rs::constant_time::verify_slices_are_equal(known.as_bytes(), value).is_ok()
            };
            self.values.iter().position(is_equal)
        })
    }

    /// The `Set-Cookie` field that binds a client to a server.
    pub(super) fn field(&self, server: usize) -> Option<String> {
        let settings::Sticky { cookie, secure, max_age, .. } = &self.settings;
        let mut field = format!("{cookie}={}; Path=/; HttpOnly; SameSite=Lax", self.values.get(server)?);
        if let Some(age) = max_age {
            let _ = write!(field, "; Max-Age={}", age.as_secs());
        }
        if *secure {
            field.push_str("; Secure");
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sticky(secret: &str, servers: &[&str]) -> StickyCookies {
        let settings = settings::Sticky {
            cookie: "s".into(),
            secret: Some(secret.as_bytes().into()),
            secure: true,
            max_age: Some(std::time::Duration::from_secs(60)),
        };
        StickyCookies::new(&settings, servers.iter().copied())
    }

    fn read(sticky: &StickyCookies, cookie: &str) -> Option<usize> {
        let mut headers = HeaderList::default();
        headers.push_id(NameId::Cookie, cookie.as_bytes());
        sticky.server(&headers)
    }

    #[test]
    fn cookies_name_servers_and_cannot_be_made_up() {
        let two = sticky("0123456789abcdef", &["a:1", "b:1"]);
        let value = |server: usize| two.field(server).unwrap().split(';').next().unwrap().to_owned();
        assert_eq!((read(&two, &value(0)), read(&two, &value(1))), (Some(0), Some(1)));
        assert_eq!(read(&two, &format!("x=1; {}; y=2", value(1))), Some(1));
        assert!(value(0).len() == 2 + 16 + 1 + 2 * SIGNATURE && !value(0).contains("a:1"));
        assert!(two.field(0).unwrap().ends_with("; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure"));
        // The cookie identifies the server by its address, whatever its position.
        let other_way = sticky("0123456789abcdef", &["b:1", "a:1", "c:1"]);
        assert_eq!(read(&other_way, &value(0)), Some(1));
        assert_eq!(read(&sticky("another secret..", &["a:1", "b:1"]), &value(0)), None);
        for length in 0..value(0).len() {
            assert_eq!(read(&two, &value(0)[..length]), None);
        }
    }
}
