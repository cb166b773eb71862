//! Which requests go to the old proxy: the one that Foregate replaces.

use std::net::IpAddr;
use std::sync::Arc;

use super::RouteConditions;

/// The share of all clients or requests. The unit of shares is a hundredth of a percent.
pub const SHARE_WHOLE: u32 = 10_000;

/// One `fallback` node: which requests fall back, and where.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fallback {
    /// The old proxy, by index into
    /// [`Settings::upstreams`](crate::configuration::Settings::upstreams).
    pub upstream: usize,
    /// If no site has the host of a request, the request falls back. Only used in the node at the top
    /// level. Default: yes.
    pub host: bool,
    /// Requests with a path that no route matches fall back. Default: yes.
    pub route: bool,
    /// The share of clients that are served here, of [`SHARE_WHOLE`]. Requests of the others fall back.
    /// Default (`None`): see [`Self::of_route`].
    pub share: Option<u32>,
    /// Requests that fulfil these conditions fall back. Default: none.
    pub when: Option<Arc<RouteConditions>>,
    /// A construct of the old configuration that has no counterpart here. If there is one, all requests fall
    /// back.
    pub unconverted: Option<Arc<str>>,
    /// Tell the old proxy about the client's TLS connection in header fields. They replace the client's
    /// own fields with these names. Default: no.
    pub tls_fields: bool,
}

/// Selects the TLS connections that are passed to the old proxy without being decrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedNames {
    /// The server names in lower case: `a.example`, `*.example` for all names below it, or `*` for names
    /// that no site has.
    pub names: Vec<Box<str>>,
    /// The old proxy, by index into
    /// [`Settings::upstreams`](crate::configuration::Settings::upstreams).
    pub upstream: usize,
}

impl PassedNames {
    /// How closely the names fit this name, in lower case; `None` if its connections are not passed on. The name itself
    /// fits best, then the longest `*.NAME`, then `*`, as for sites. `is_known` returns true if a site has the name. A
    /// client without a server name counts as one with a name that no site has.
    pub fn fit(&self, name: Option<&str>, is_known: impl Fn(&str) -> bool) -> Option<usize> {
        let fit_of = |pattern: &str| match (pattern, name) {
            ("*", name) => name.is_none_or(|name| !is_known(name)).then_some(0),
            (_, None) => None,
            (pattern, Some(name)) => match pattern.strip_prefix('*') {
                Some(end) => (name.len() > end.len() && name.ends_with(end)).then_some(end.len()),
                None => (name == pattern).then_some(usize::MAX),
            },
        };
        self.names.iter().filter_map(|pattern| fit_of(pattern)).max()
    }
}

/// Why a request falls back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FallbackReason {
    /// No site has the request's host.
    UnknownHost,
    /// No route of the site matches the request.
    UnknownRoute,
    /// All requests of the route fall back.
    Route,
    /// A condition of the fallback is true.
    Condition,
    /// The client is not in the share that Foregate serves.
    Share,
    /// The route has a construct that is not converted.
    Unconverted,
    /// Responses of the route are compared, and the old proxy answers.
    Compared,
}

impl FallbackReason {
    /// The word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownHost => "unknown_host",
            Self::UnknownRoute => "unknown_route",
            Self::Route => "route",
            Self::Condition => "condition",
            Self::Share => "share",
            Self::Unconverted => "unconverted",
            Self::Compared => "compared",
        }
    }
}

impl Fallback {
    /// A fallback to this upstream with default settings.
    pub fn to(upstream: usize) -> Self {
        Self {
            upstream,
            host: true,
            route: true,
            share: None,
            when: None,
            unconverted: None,
            tls_fields: false,
        }
    }

    /// Returns true if this selects requests that a route would serve.
    pub fn is_about_routes(&self) -> bool {
        self.share.is_some() || self.when.is_some() || self.unconverted.is_some()
    }

    /// Returns the reason why a request falls back, if it does, on a route that has this fallback. `holds`
    /// evaluates conditions, and `bucket` is the client's number below [`SHARE_WHOLE`].
    pub fn of_route(
        &self,
        holds: impl FnOnce(&RouteConditions) -> bool,
        bucket: impl FnOnce() -> u32,
    ) -> Option<FallbackReason> {
        if self.unconverted.is_some() {
            return Some(FallbackReason::Unconverted);
        }
        if self.when.as_ref().is_some_and(|when| holds(when)) {
            return Some(FallbackReason::Condition);
        }
        match self.share {
            Some(share) if bucket() >= share => Some(FallbackReason::Share),
            None if self.when.is_none() => Some(FallbackReason::Route),
            _ => None,
        }
    }
}

/// The number of a client below [`SHARE_WHOLE`], which is the same on every machine and after every
/// start. All clients of one IPv6 network of 64 bits have the same number.
pub fn share_bucket(client: Option<IpAddr>) -> u32 {
    let number = match client {
        None => 0,
        Some(IpAddr::V4(address)) => u64::from(address.to_bits()),
        Some(IpAddr::V6(address)) => (address.to_bits() >> 64) as u64,
    };
    // The finaliser of SplitMix64.
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ mixed >> 31) % u64::from(SHARE_WHOLE)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_clients_are_even_and_stable() {
        let inside = (0..20_000_u32)
            .filter(|number| share_bucket(Some(IpAddr::V4((0x0a00_0000 + number).into()))) < 1000);
        let inside = inside.count();
        assert!((1800..2200).contains(&inside), "{inside}");
        assert_eq!(share_bucket("127.0.0.1".parse().ok()), share_bucket("127.0.0.1".parse().ok()));
        assert_eq!(share_bucket("2001:db8::1".parse().ok()), share_bucket("2001:db8::2".parse().ok()));
    }

    #[test]
    fn connections_pass_by_their_names() {
        let names = |names: &[&str]| PassedNames {
            names: names.iter().map(|name| (*name).into()).collect(),
            upstream: 0,
        };
        let known = |name: &str| name == "known.example";
        let some = names(&["a.example", "*.b.example"]);
        for name in ["a.example", "x.b.example", "x.y.b.example"] {
            assert!(some.fit(Some(name), known).is_some(), "{name}");
        }
        for name in [None, Some("b.example"), Some("xb.example"), Some("x.a.example")] {
            assert!(some.fit(name, known).is_none(), "{name:?}");
        }
        let unknown = names(&["*"]);
        assert_eq!((unknown.fit(None, known), unknown.fit(Some("x"), known)), (Some(0), Some(0)));
        assert_eq!(unknown.fit(Some("known.example"), known), None);
        let all = names(&["*", "*.example", "*.b.example", "x.b.example"]);
        let fits = ["y", "y.example", "y.b.example", "x.b.example"].map(|name| all.fit(Some(name), known));
        assert!(fits.is_sorted_by(|looser, closer| looser < closer), "{fits:?}");
    }

    #[test]
    fn a_request_falls_back_for_the_first_reason_that_applies() {
        let all = Fallback::to(0);
        assert_eq!(all.of_route(|_| false, || 0), Some(FallbackReason::Route));
        let tenth = Fallback { share: Some(1000), ..all.clone() };
        assert_eq!(tenth.of_route(|_| false, || 999), None);
        assert_eq!(tenth.of_route(|_| false, || 1000), Some(FallbackReason::Share));
        let none = Fallback { share: Some(SHARE_WHOLE), ..all.clone() };
        assert_eq!(none.of_route(|_| false, || SHARE_WHOLE - 1), None);
        let marked = Fallback { unconverted: Some("x".into()), ..none };
        assert_eq!(marked.of_route(|_| false, || 0), Some(FallbackReason::Unconverted));
    }
}
