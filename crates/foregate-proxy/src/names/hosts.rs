//! The hosts file (`hosts(5)`): addresses of names for which no nameserver is asked.

use std::collections::HashMap;
use std::net::IpAddr;

/// The addresses that a hosts file gives to names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hosts(HashMap<Box<str>, Vec<IpAddr>>);

impl Hosts {
    /// Parses a file. Each line has an address and the names that have it; `#` begins a comment. A name on several lines
    /// has all their addresses. A line without an address is skipped, as libc does.
    pub fn parse(text: &str) -> Self {
        let mut hosts: HashMap<Box<str>, Vec<IpAddr>> = HashMap::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else { continue };
            for name in words {
                let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
                let addresses = hosts.entry(name.into()).or_default();
                if !addresses.contains(&address.to_canonical()) {
                    addresses.push(address.to_canonical());
                }
            }
        }
        Self(hosts)
    }

    /// The addresses of a name, which is in lower case and without a dot at its end; empty if the file does not have it.
    pub fn get(&self, name: &str) -> &[IpAddr] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_addresses_of_all_its_lines() {
        let hosts = Hosts::parse(
            "# 192.0.2.9 no\n127.0.0.1\tlocalhost\n192.0.2.1 Shop_Web_1  shop # web\n\n\
             2001:db8::1 shop\r\n  192.0.2.2 shop.\n192.0.2.1 shop\nnonsense shop\n192.0.2.300 shop\n\
             ::ffff:192.0.2.7 mapped\nfe80::1%eth0 local\n192.0.2.5\n192.0.2.6#gone shop",
        );
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(hosts.get("shop"), ["192.0.2.1", "2001:db8::1", "192.0.2.2"].map(ip));
        assert_eq!(hosts.get("shop_web_1"), [ip("192.0.2.1")]);
        assert_eq!(hosts.get("mapped"), [ip("192.0.2.7")]);
        assert!(hosts.get("no").is_empty() && hosts.get("web").is_empty() && hosts.get("local").is_empty());
        assert_eq!(Hosts::parse(""), Hosts::default());
    }
}
