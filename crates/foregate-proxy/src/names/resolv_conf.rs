//! The resolver's configuration (`resolv.conf(5)`), and the names that are looked up according to it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

/// The most nameservers of a file; further ones are ignored. (libc ignores those beyond three.)
const SERVERS_LIMIT: usize = 8;
/// The most domains of a search list; further ones are ignored.
const SEARCH_LIMIT: usize = 32;

/// The nameservers, and the way to ask them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nameservers {
    /// The nameservers, in the order in which they are asked.
    pub servers: Vec<SocketAddr>,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// How often all servers are asked before a lookup fails.
    pub attempts: usize,
    /// True if successive lookups begin at successive servers.
    pub rotate: bool,
    /// True if all questions are asked over TCP.
    pub tcp: bool,
    /// True if the two address families are asked for one after the other.
    pub one_at_a_time: bool,
    /// True if IPv6 addresses are not asked for.
    pub only_v4: bool,
}

impl Nameservers {
    /// These servers, with the defaults of libc.
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self {
            servers,
            timeout: Duration::from_secs(5),
            attempts: 2,
            rotate: false,
            tcp: false,
            one_at_a_time: false,
            only_v4: false,
        }
    }
}

/// A resolver's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvConf {
    /// The servers. Never empty.
    pub nameservers: Nameservers,
    /// The search list: domains that are appended to a name, without a dot at their ends. An empty one is the
    /// root.
    pub search: Vec<String>,
    /// A name with at least this many dots is looked up as it is before the search list is used.
    pub ndots: usize,
}

impl ResolvConf {
    /// Parses a file as libc does. The servers listen on `port`. The default search list is the domain of
    /// `hostname`; the default server is this machine. `interface` returns the number of a network
    /// interface. Unknown lines are skipped.
    pub fn parse(text: &str, port: u16, hostname: &str, interface: impl Fn(&str) -> Option<u32>) -> Self {
        let domain = hostname.trim().split_once('.').map(|(_, domain)| domain);
        let search = domain.into_iter().filter_map(search_domain).collect();
        let mut conf = Self { nameservers: Nameservers::new(Vec::new()), search, ndots: 1 };
        for line in text.lines().filter(|line| !line.starts_with(['#', ';'])) {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let word = words.next().and_then(|word| word.split([';', '#']).next());
                    let server = word.and_then(|word| server_address(word, port, &interface));
                    let servers = &mut conf.nameservers.servers;
                    servers.extend(server.filter(|_| servers.len() < SERVERS_LIMIT));
                }
                // The last line of the two counts.
                Some("domain") => conf.search = words.take(1).filter_map(search_domain).collect(),
                Some("search") => {
                    let list = words.take_while(|word| !word.starts_with(['#', ';']));
                    conf.search = list.filter_map(search_domain).take(SEARCH_LIMIT).collect();
                }
                Some("options") => words.for_each(|word| conf.option(word)),
                _ => {}
            }
        }
        if conf.nameservers.servers.is_empty() {
            conf.nameservers.servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
        }
        conf
    }

    fn option(&mut self, word: &str) {
        let (name, value) = word.split_once(':').unwrap_or((word, ""));
        let number = value.parse::<u8>().ok();
        let servers = &mut self.nameservers;
        match (name, number) {
            ("ndots", Some(ndots)) => self.ndots = ndots.min(15).into(),
            ("timeout", Some(seconds)) => servers.timeout = Duration::from_secs(seconds.clamp(1, 30).into()),
            ("attempts", Some(attempts)) => servers.attempts = attempts.clamp(1, 5).into(),
            ("rotate", _) => servers.rotate = true,
            ("use-vc", _) => servers.tcp = true,
            ("single-request" | "single-request-reopen", _) => servers.one_at_a_time = true,
            ("no-aaaa", _) => servers.only_v4 = true,
            _ => {}
        }
    }

    /// The absolute names that `host` may mean, in the order in which they are looked up. A name with a
    /// dot at its end only means itself.
    pub fn candidates(&self, host: &str) -> Vec<String> {
        if let Some(absolute) = host.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let mut names: Vec<String> = Vec::new();
        let searched = self.search.iter().map(|domain| match &**domain {
            "" => host.to_owned(),
            domain => format!("{host}.{domain}"),
        });
        let as_it_is_first = host.bytes().filter(|byte| *byte == b'.').count() >= self.ndots;
        let first = as_it_is_first.then(|| host.to_owned());
        for name in first.into_iter().chain(searched).chain([host.to_owned()]) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

fn search_domain(word: &str) -> Option<String> {
    let domain = word.trim_matches('.').to_ascii_lowercase();
    (word == "." || !domain.is_empty()).then_some(domain)
}

/// Parses the address of a server; a link-local address may have its interface after `%`.
fn server_address(word: &str, port: u16, interface: impl Fn(&str) -> Option<u32>) -> Option<SocketAddr> {
    if let Ok(address) = word.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, port));
    }
    let (address, scope) = word.split_once('%')?;
    let scope = scope.parse().ok().or_else(|| interface(scope))?;
    Some(SocketAddrV6::new(address.parse().ok()?, port, 0, scope).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ResolvConf {
        ResolvConf::parse(text, 53, "web", |name| (name == "eth0").then_some(7))
    }

    fn servers(text: &str) -> Vec<String> {
        parse(text).nameservers.servers.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nameservers_are_read() {
        let text = "; a\n# b\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 # c\nnameserver 192.0.2.3#d\r\n\
                    nameserver nonsense\nnameserver\nnameserver fe80::1%eth0\nnameserver fe80::1%none\nnameserver fe80::1%3";
        assert_eq!(
            servers(text),
            ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.3:53", "[fe80::1%7]:53", "[fe80::1%3]:53"]
        );
        assert_eq!(servers(&"nameserver 192.0.2.1\n".repeat(20)).len(), SERVERS_LIMIT);
        for without in ["", "search a.test\n", "nameserver x", "# nameserver 192.0.2.1"] {
            assert_eq!(servers(without), ["127.0.0.1:53"], "{without}");
        }
    }

    #[test]
    fn options_are_read() {
        let conf = parse(
            "options ndots:5 timeout:1\noptions attempts:3 rotate use-vc no-aaaa single-request edns0 x:y",
        );
        let servers = conf.nameservers;
        assert_eq!((conf.ndots, servers.timeout.as_secs(), servers.attempts), (5, 1, 3));
        assert!(servers.rotate && servers.tcp && servers.only_v4 && servers.one_at_a_time);
        let conf = parse("options ndots:99 timeout:0 attempts:0 ndots:x");
        assert_eq!((conf.ndots, conf.nameservers.timeout.as_secs(), conf.nameservers.attempts), (15, 1, 1));
        let plain = parse("").nameservers;
        assert_eq!((plain.timeout.as_secs(), plain.attempts, plain.rotate), (5, 2, false));
    }

    #[test]
    fn the_last_search_list_counts() {
        let search = |text: &str, hostname: &str| ResolvConf::parse(text, 53, hostname, |_| None).search;
        assert_eq!(search("search a.test B.test. .\n", "x"), ["a.test", "b.test", ""]);
        assert_eq!(search("search a.test\ndomain c.test d.test", "x"), ["c.test"]);
        assert_eq!(search("domain c.test\nsearch a.test # b", "x"), ["a.test"]);
        assert_eq!(search("nameserver 192.0.2.1", "web.example.com\n"), ["example.com"]);
        assert_eq!(search("search\n", "web.example.com"), [""; 0]);
    }

    #[test]
    fn candidates_come_in_the_order_of_libc() {
        let names = |text: &str, host: &str| parse(text).candidates(host);
        let two = "search a.test b.test";
        assert_eq!(names(two, "app"), ["app.a.test", "app.b.test", "app"]);
        assert_eq!(names(two, "app.x"), ["app.x", "app.x.a.test", "app.x.b.test"]);
        assert_eq!(names(two, "api.example.com."), ["api.example.com"]);
        assert_eq!(names(two, "app."), ["app"]);
        let cluster = "search n.svc.cluster.local svc.cluster.local\noptions ndots:5";
        assert_eq!(
            names(cluster, "api.n"),
            ["api.n.n.svc.cluster.local", "api.n.svc.cluster.local", "api.n"]
        );
        assert_eq!(names("search a.test\noptions ndots:0", "app"), ["app", "app.a.test"]);
        assert_eq!(names("search . a.test", "app"), ["app", "app.a.test"]);
        assert_eq!(names("", "shop_web_1"), ["shop_web_1"]);
    }
}
