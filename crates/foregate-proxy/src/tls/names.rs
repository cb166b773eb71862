//! Host names: the names in a certificate, and values by host pattern.

use std::collections::HashMap;
use std::net::IpAddr;
use std::str;

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::time::clock::Clock;

/// The names that a certificate is valid for (its subject alternative names; RFC 9525 has retired
/// the CN).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CertificateNames {
    /// The names in lower case. A wildcard is stored in `wildcard`, without its `*.`.
    pub(super) exact: Vec<Box<str>>,
    pub(super) wildcard: Vec<Box<str>>,
    addresses: Vec<IpAddr>,
    /// Seconds since 1970.
    not_before: i64,
    /// Seconds since 1970.
    not_after: i64,
}

impl CertificateNames {
    /// Reads the names of a certificate. `None` if it is malformed.
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let validity = certificate.validity();
        let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        let mut names = Self { not_before, not_after, ..Self::default() };
        let alternatives = certificate.subject_alternative_name().ok()?;
        for name in alternatives.iter().flat_map(|extension| &extension.value.general_names) {
            match name {
                GeneralName::DNSName(name) => {
                    let name = name.trim_end_matches('.').to_ascii_lowercase();
                    match name.strip_prefix("*.") {
                        Some(suffix) => names.wildcard.push(suffix.into()),
                        None => names.exact.push(name.into()),
                    }
                }
                GeneralName::IPAddress(bytes) => names.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        Some(names)
    }

    /// The addresses among the names.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// All names and addresses as text.
    pub(super) fn shown(&self) -> Vec<String> {
        let exact = self.exact.iter().map(ToString::to_string);
        let wildcards = self.wildcard.iter().map(|suffix| format!("*.{suffix}"));
        exact.chain(wildcards).chain(self.addresses.iter().map(ToString::to_string)).collect()
    }

    /// The end of the certificate's validity, seconds since 1970.
    pub(super) fn not_after(&self) -> i64 {
        self.not_after
    }

    pub(super) fn expired(&self, clock: Clock) -> bool {
        i64::try_from(clock.unix()).is_ok_and(|now| now > self.not_after)
    }

    /// Returns true if the validity has not begun.
    pub(super) fn not_yet_valid(&self, clock: Clock) -> bool {
        i64::try_from(clock.unix()).is_ok_and(|now| now < self.not_before)
    }

    /// The names, as [`Self::shown`] has them, that `other` is not valid for.
    pub(super) fn missing_in(&self, other: &Self) -> Vec<String> {
        let mut shown = self.shown();
        shown.retain(|name| match name.strip_prefix("*.") {
            Some(suffix) => other.wildcard.iter().all(|wildcard| &**wildcard != suffix),
            None => !other.cover(name.as_bytes()),
        });
        shown
    }

    /// Returns true if the certificate is valid for `host` (lower case; an IPv6 address with or
    /// without brackets).
    pub(super) fn cover(&self, host: &[u8]) -> bool {
        let parent = parent(host);
        self.exact.iter().any(|name| name.as_bytes() == host)
            || parent.is_some_and(|parent| self.wildcard.iter().any(|suffix| suffix.as_bytes() == parent))
            || (!self.addresses.is_empty()
                && host_address(host).is_some_and(|host| self.addresses.contains(&host)))
    }
}

/// An address of 4 or 16 bytes.
pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

/// The host name that a client asks for; empty if it names none. A dot at the end is forbidden (RFC
/// 6066, section 3), but would not change the meaning, so it is dropped.
pub(super) fn asked_name(sni: Option<&str>) -> &str {
    let name = sni.unwrap_or_default();
    name.strip_suffix('.').unwrap_or(name)
}

fn host_address(host: &[u8]) -> Option<IpAddr> {
    let host = str::from_utf8(host).ok()?;
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

/// The name without its first label.
fn parent(host: &[u8]) -> Option<&[u8]> {
    let dot = memchr::memchr(b'.', host)?;
    host.get(dot + 1..).filter(|parent| !parent.is_empty())
}

/// Values by host pattern: an exact name, `*.suffix` (any depth below it), or `*`.
#[derive(Debug)]
pub(super) struct HostMap<T> {
    exact: HashMap<Box<[u8]>, T>,
    wildcard: HashMap<Box<[u8]>, T>,
    any: Option<T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), wildcard: HashMap::new(), any: None }
    }
}

impl<T> HostMap<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && !self.has_wildcards()
    }

    pub(super) fn has_wildcards(&self) -> bool {
        !self.wildcard.is_empty() || self.any.is_some()
    }

    /// Adds a value, unless the pattern has one already.
    pub(super) fn insert(&mut self, pattern: &str, value: T) {
        if pattern == "*" {
            self.any.get_or_insert(value);
        } else if let Some(suffix) = pattern.strip_prefix("*.") {
            self.wildcard.entry(suffix.as_bytes().into()).or_insert(value);
        } else {
            self.exact.entry(pattern.as_bytes().into()).or_insert(value);
        }
    }

    /// The value for a host: the value of its exact name, else of the longest matching wildcard, else of
    /// `*`.
    pub(super) fn find(&self, host: &[u8]) -> Option<&T> {
        self.exact(host).or_else(|| self.wildcard(host)).or(self.any.as_ref())
    }

    pub(super) fn exact(&self, host: &[u8]) -> Option<&T> {
        self.exact.get(host)
    }

    /// The value of the longest wildcard that `host` lies below.
    pub(super) fn wildcard(&self, host: &[u8]) -> Option<&T> {
        if self.wildcard.is_empty() {
            return None;
        }
        std::iter::successors(parent(host), |host| parent(host)).find_map(|suffix| self.wildcard.get(suffix))
    }

    /// The value of the wildcard that lies exactly one label above `host`, as wildcard certificates match.
    pub(super) fn near_wildcard(&self, host: &[u8]) -> Option<&T> {
        if self.wildcard.is_empty() {
            return None;
        }
        self.wildcard.get(parent(host)?)
    }

    /// The value of `*`.
    pub(super) fn any(&self) -> Option<&T> {
        self.any.as_ref()
    }

    /// The value of exactly this pattern. It is created if the pattern has none.
    pub(super) fn entry(&mut self, pattern: &str) -> &mut T
    where
        T: Default,
    {
        if pattern == "*" {
            self.any.get_or_insert_default()
        } else if let Some(suffix) = pattern.strip_prefix("*.") {
            self.wildcard.entry(suffix.as_bytes().into()).or_default()
        } else {
            self.exact.entry(pattern.as_bytes().into()).or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_found_from_the_most_to_the_least_exact() {
        let mut map = HostMap::default();
        for pattern in ["a.example", "*.example", "*.b.example"] {
            map.insert(pattern, pattern);
        }
        let find = |map: &HostMap<&'static str>, host: &str| map.find(host.as_bytes()).copied();
        assert_eq!(find(&map, "a.example"), Some("a.example"));
        assert_eq!(find(&map, "x.a.example"), Some("*.example"));
        assert_eq!(find(&map, "x.b.example"), Some("*.b.example"));
        assert_eq!(find(&map, "b.example"), Some("*.example"));
        assert_eq!(find(&map, "example"), None);
        assert_eq!(map.near_wildcard(b"x.a.example"), None);
        map.insert("*", "*");
        assert_eq!(find(&map, "example"), Some("*"));
        assert_eq!(find(&map, ""), Some("*"));
    }

    #[test]
    fn a_certificates_wildcard_covers_one_label() {
        let names = CertificateNames {
            exact: vec!["a.example".into()],
            wildcard: vec!["b.example".into()],
            addresses: vec![[127, 0, 0, 1].into(), "::1".parse().unwrap()],
            ..CertificateNames::default()
        };
        for host in ["a.example", "x.b.example", "127.0.0.1", "[::1]"] {
            assert!(names.cover(host.as_bytes()), "{host}");
        }
        for host in ["b.example", "x.y.b.example", "xa.example", "127.0.0.2", "", "."] {
            assert!(!names.cover(host.as_bytes()), "{host}");
        }
    }
}
