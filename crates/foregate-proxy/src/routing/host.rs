//! Host patterns and their normal form.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use crate::address::is_host_name;

/// The hosts that a site answers for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// One name or address: lower case, without a port or a trailing dot; IPv6 in brackets and in
    /// its shortest form (RFC 5952).
    Exact(Arc<str>),
    /// `*.example.com`: every name below `example.com`, at any depth, but not `example.com` itself.
    Below(Arc<str>),
    /// `*`: every host that no other pattern matches.
    Any,
}

/// A text that is not a host pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostPatternError {
    /// The text has a port. A site is chosen only by the name.
    #[error("a host is written without a port; the port is chosen by `listen`")]
    Port,
    /// A `*` is not at the start.
    #[error("`*` stands for everything to the left of a name: `*.example.com`, or `*` alone for every host")]
    Wildcard,
    /// The text is not ASCII. Names are compared in the form in which clients send them.
    #[error("a host is written in its ASCII form: `xn--bcher-kva.example`, not `bücher.example`")]
    NotAscii,
    /// The text is `_`, which NGINX configurations use for all hosts.
    #[error("`_` is the name of no host")]
    Underscore,
    /// Not a name, and not an address.
    #[error("expected a host name, an IP address, `*.` and a name, or `*`")]
    NotAHost,
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if text == "_" {
            return Err(HostPatternError::Underscore);
        }
        if let Ok(address) = text.trim_start_matches('[').trim_end_matches(']').parse::<Ipv6Addr>() {
            return Ok(Self::Exact(format!("[{address}]").into()));
        }
        if !text.is_ascii() {
            return Err(HostPatternError::NotAscii);
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let (below, name) = match name.strip_prefix("*.") {
            Some(name) => (true, name.to_owned()),
            None => (false, name),
        };
        if name.contains('*') {
            return Err(HostPatternError::Wildcard);
        }
        if name.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())) {
            return Err(HostPatternError::Port);
        }
        // With a last label of digits, the host has to be an IPv4 address (RFC 3986, section 7.4).
        let last = name.rsplit('.').next().unwrap_or_default();
        let numeric = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
        if !is_host_name(&name) || (numeric && (below || name.parse::<Ipv4Addr>().is_err())) {
            return Err(HostPatternError::NotAHost);
        }
        Ok(if below { Self::Below(name.into()) } else { Self::Exact(name.into()) })
    }
}

impl HostPattern {
    /// Its text, which an exact name shares.
    pub fn text(&self) -> Arc<str> {
        match self {
            Self::Exact(name) => Arc::clone(name),
            Self::Below(_) | Self::Any => self.to_string().into(),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Any => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_understood() {
        let parse = |text: &str| text.parse::<HostPattern>();
        assert_eq!(parse("*"), Ok(HostPattern::Any));
        assert_eq!(parse("Example.COM."), Ok(HostPattern::Exact("example.com".into())));
        assert_eq!(parse("*.Example.com"), Ok(HostPattern::Below("example.com".into())));
        assert_eq!(parse("127.0.0.1"), Ok(HostPattern::Exact("127.0.0.1".into())));
        assert_eq!(parse("::0001"), Ok(HostPattern::Exact("[::1]".into())));
        assert_eq!(parse("[::1]"), Ok(HostPattern::Exact("[::1]".into())));
        assert_eq!(parse("example.com:80"), Err(HostPatternError::Port));
        assert_eq!(parse("bücher.example"), Err(HostPatternError::NotAscii));
        assert_eq!(parse("_"), Err(HostPatternError::Underscore));
        assert_eq!(parse("_a.example"), Ok(HostPattern::Exact("_a.example".into())));
        for bad in ["a.*.b", "*a.b", "**", "*.*", "*."] {
            assert_eq!(parse(bad), Err(HostPatternError::Wildcard), "{bad}");
        }
        for bad in ["", ".", "a..b", "a b", "1.2.3", "*.1", "http://a", "a/b"] {
            assert_eq!(parse(bad), Err(HostPatternError::NotAHost), "{bad}");
        }
    }
}
