//! Checks for which names a certificate can be obtained.

use std::net::IpAddr;

/// The reason why no authority issues a certificate for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The host is `*`: it stands for every name, but a certificate must list names.
    Any,
    /// A wildcard without a way to answer DNS-01: authorities issue wildcards only after a DNS-01 challenge.
    Wildcard,
    /// An IP address.
    Address,
    /// A name that is only valid in a local network, such as `localhost` or `nas.local`.
    Local,
    /// Text that is not a valid host name.
    Malformed,
}

/// Domains below which no public authority issues anything (RFC 6761, RFC 6762, RFC 8375, and
/// `internal`).
const LOCAL: &[&str] = &["localhost", "local", "internal", "home.arpa", "lan", "home", "corp"];

/// Returns the reason why no authority issues a certificate for the host of a site, if there is one. `dns`
/// is true if DNS-01 challenges can be answered.
pub fn obstacle(host: &str, dns: bool) -> Option<Obstacle> {
    if host == "*" {
        return Some(Obstacle::Any);
    }
    if host.starts_with('[') || host.parse::<IpAddr>().is_ok() {
        return Some(Obstacle::Address);
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    if !is_host_name(name) {
        return Some(Obstacle::Malformed);
    }
    let is_below =
        |domain: &str| name == domain || name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    if !name.contains('.') || LOCAL.iter().any(|domain| is_below(domain)) {
        return Some(Obstacle::Local);
    }
    (host != name && !dns).then_some(Obstacle::Wildcard)
}

/// Returns true for a host name in lower case: labels of letters, digits and hyphens.
pub(crate) fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let inner =
            label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Returns true if a name matches a pattern such as `a.example` or `*.example`.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(above) => name.strip_suffix(above).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacles_are_told_apart() {
        for (host, dns, expected) in [
            ("a.example", false, None),
            ("app.test", false, None),
            ("*.a.example", true, None),
            ("*.a.example", false, Some(Obstacle::Wildcard)),
            ("*", true, Some(Obstacle::Any)),
            ("192.0.2.1", false, Some(Obstacle::Address)),
            ("[::1]", false, Some(Obstacle::Address)),
            ("localhost", false, Some(Obstacle::Local)),
            ("a.localhost", false, Some(Obstacle::Local)),
            ("nas.local", false, Some(Obstacle::Local)),
            ("notlocal", false, Some(Obstacle::Local)),
            ("a.notlocal", false, None),
            ("a_b.example", false, Some(Obstacle::Malformed)),
            ("-a.example", false, Some(Obstacle::Malformed)),
            ("a..example", false, Some(Obstacle::Malformed)),
        ] {
            assert_eq!(obstacle(host, dns), expected, "{host}");
        }
    }

    #[test]
    fn patterns_take_names_below_them() {
        assert!(matches("*.example", "a.example") && matches("*.example", "b.a.example"));
        assert!(matches("a.example", "a.example"));
        for name in ["example", ".example", "aexample", "a.example.org"] {
            assert!(!matches("*.example", name), "{name}");
        }
    }
}
