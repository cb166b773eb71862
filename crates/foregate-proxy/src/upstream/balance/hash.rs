//! Consistent hashing like ketama: requests that agree in one part, such as a cookie, get the same server.

use foregate_wire::NameId;

use super::round_robin::RoundRobin;
use super::{BalanceMethod, BalancedRequest, Choice};
use crate::settings::HashBy;

/// Points on the ring for each unit of weight.
const POINTS: usize = 256;
/// The most points on a ring. If [`POINTS`] would give more, each server gets fewer in proportion, but at
/// least [`LEAST_POINTS`].
const POINTS_MOST: usize = 1 << 16;
/// The fewest points of a server.
const LEAST_POINTS: usize = 16;

/// A ring of points, many for each server. The hash of a request leads to the next point and its server.
/// If that server is not available, the following points lead to another one. When a server is added or
/// removed, only the requests of this server move.
#[derive(Debug)]
pub(super) struct Hash {
    by: HashBy,
    /// Points and their servers, sorted by point. A point is a hash of the server's address, so the order
    /// of servers in the configuration does not matter.
    ring: Box<[(u64, u16)]>,
    servers: usize,
    /// Balances requests that lack the hashed part.
    turns: RoundRobin,
}

impl Hash {
    pub(super) fn new(by: HashBy, servers: Vec<(String, u32)>) -> Self {
        let weights: Vec<u32> = servers.iter().map(|(_, weight)| *weight).collect();
        let units: usize = weights.iter().map(|weight| *weight as usize).sum();
        let mut ring = Vec::new();
        for (number, (address, weight)) in servers.iter().enumerate() {
            let wanted = POINTS * *weight as usize;
            let fitting = POINTS_MOST * *weight as usize / units.max(1);
            for point in 0..wanted.min(fitting).max(LEAST_POINTS) {
                let hash = hash(&[address.as_bytes(), b"#", point.to_string().as_bytes()]);
                ring.push((hash, u16::try_from(number).unwrap_or(u16::MAX)));
            }
        }
        ring.sort_unstable();
        Self { by, ring: ring.into(), servers: servers.len(), turns: RoundRobin::new(&weights) }
    }
}

impl BalanceMethod for Hash {
    fn key(&self, asked: &BalancedRequest<'_>) -> Option<u64> {
        key(&self.by, asked)
    }

    fn choose(&self, choice: &Choice<'_>, admits: &mut dyn FnMut(usize) -> bool) -> Option<usize> {
        let Some(key) = choice.key else { return self.turns.choose(choice, admits) };
        let at = self.ring.partition_point(|(point, _)| *point < key);
        let (before, behind) = self.ring.split_at(at);
        let mut refused = Vec::new();
        for (_, server) in behind.iter().chain(before) {
            let server = usize::from(*server);
            if refused.contains(&server) {
                continue;
            }
            if admits(server) {
                return Some(server);
            }
            refused.push(server);
            if refused.len() == self.servers {
                break;
            }
        }
        None
    }
}

/// The hash of the part of a request that decides on the server; `None` if the request lacks it.
pub(super) fn key(by: &HashBy, asked: &BalancedRequest<'_>) -> Option<u64> {
    let request = asked.request;
    match by {
        HashBy::Client => asked.client.map(|client| hash(&[client.to_canonical().to_string().as_bytes()])),
        HashBy::Path => Some(hash(&[request.target.path()])),
        HashBy::Target => Some(hash(&[request.target.as_bytes()])),
        HashBy::Header(name) => request.head.headers.get_name(name.as_bytes()).map(|value| hash(&[value])),
        HashBy::Cookie(name) => request
            .head
            .headers
            .get_all(NameId::Cookie)
            .find_map(|field| cookie(field, name))
            .map(|value| hash(&[value])),
        HashBy::Expression(expression) => {
            let value = asked.evaluate(&*expression.value);
            value.filter(|value| !value.is_empty()).map(|value| hash(&[&value]))
        }
    }
}

/// The value of a cookie in a `Cookie` field (RFC 6265, section 4.2.1).
pub fn cookie<'f>(field: &'f [u8], name: &str) -> Option<&'f [u8]> {
    field.split(|byte| *byte == b';').find_map(|pair| {
        let pair = pair.trim_ascii();
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (found, value) = pair.split_at(at);
        (found == name.as_bytes()).then(|| value.get(1..).unwrap_or_default())
    })
}

/// A hash that is equal in each process and version, because several proxies, and a proxy after a
/// restart, must agree. It is FNV-1a with the last step of MurmurHash3, which spreads the results of
/// short texts.
pub fn hash(parts: &[&[u8]]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.iter().copied().flatten() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::tests::are_near;
    use super::*;
    use crate::message::request::Request;

    const KEYS: u64 = 60_000;

    fn servers(weights: &[(&str, u32)]) -> Vec<(String, u32)> {
        weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect()
    }

    fn at(balance: &Hash, key: u64, out: Option<usize>) -> usize {
        let choice = Choice { key: Some(hash(&[&key.to_be_bytes()])), is_further: false, in_flight: &|_| 0 };
        balance.choose(&choice, &mut |server| Some(server) != out).unwrap()
    }

    fn shares(balance: &Hash) -> Vec<usize> {
        let mut shares = vec![0; balance.servers];
        (0..KEYS).for_each(|key| shares[at(balance, key, None)] += 1);
        shares
    }

    #[test]
    fn keys_are_spread_by_weight() {
        let equal = Hash::new(HashBy::Path, servers(&[("a:1", 1), ("b:1", 1), ("c:1", 1)]));
        assert!(are_near(&shares(&equal), &[20_000; 3], 15), "{:?}", shares(&equal));
        let weighted = Hash::new(HashBy::Path, servers(&[("a:1", 1), ("b:1", 4), ("c:1", 1)]));
        assert!(are_near(&shares(&weighted), &[10_000, 40_000, 10_000], 15), "{:?}", shares(&weighted));
    }

    #[test]
    fn a_server_that_is_out_or_goes_moves_its_own_keys_alone() {
        let three = Hash::new(HashBy::Path, servers(&[("a:1", 1), ("b:1", 1), ("c:1", 1)]));
        let without_b = Hash::new(HashBy::Path, servers(&[("c:1", 1), ("a:1", 1)]));
        let mut moved = [0; 3];
        for key in 0..KEYS {
            let (before, after) = (at(&three, key, None), at(&three, key, Some(1)));
            assert!(before == 1 || before == after);
            moved[after] += usize::from(before == 1);
            assert_eq!(at(&without_b, key, None), [1, 9, 0][after], "whether it is out or gone");
        }
        assert!(moved[0] > 5000 && moved[2] > 5000, "both take over: {moved:?}");
    }

    #[test]
    fn rings_are_bounded_and_the_same_everywhere() {
        let many: Vec<_> = (0..1000).map(|number| (format!("10.0.0.1:{number}"), 1000)).collect();
        assert!(Hash::new(HashBy::Path, many).ring.len() <= POINTS_MOST + 1000 * LEAST_POINTS);
        assert_eq!(hash(&[b""]), 0xefd0_1f60_ba99_2926);
        assert_eq!(hash(&[b"10.0.", b"0.1"]), hash(&[b"10.0.0.1"]));
    }

    #[test]
    fn the_part_of_a_request_decides() {
        let mut request = Request::new();
        request.head.headers.push_id(NameId::Cookie, b"a=1; sid=x=y;b=2");
        request.head.headers.set_name(b"X-User", b"ann");
        let key = |by: HashBy, client: Option<&str>| {
            let client = client.map(|client| client.parse::<IpAddr>().unwrap());
            Hash::new(by, servers(&[("a:1", 1)])).key(&BalancedRequest { request: &request, client })
        };
        assert_eq!(key(HashBy::Client, None), None);
        assert_eq!(key(HashBy::Client, Some("::ffff:10.0.0.1")), key(HashBy::Client, Some("10.0.0.1")));
        assert_ne!(key(HashBy::Client, Some("10.0.0.2")), key(HashBy::Client, Some("10.0.0.1")));
        assert_eq!(key(HashBy::Header("x-user".into()), None), Some(hash(&[b"ann"])));
        assert_eq!(key(HashBy::Header("x-other".into()), None), None);
        assert_eq!(key(HashBy::Cookie("sid".into()), None), Some(hash(&[b"x=y"])));
        assert_eq!(key(HashBy::Cookie("b".into()), None), Some(hash(&[b"2"])));
        assert_eq!(key(HashBy::Cookie("id".into()), None), None);
    }
}
