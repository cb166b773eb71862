//! Networks, and maps from an address to the first rule that covers it. A lookup takes O(log n) time.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foregate_module::settings::each;
use foregate_module::settings::value::text_of_file;
use foregate_module::{Argument, Context, Problem};

/// The most networks that one list may have.
pub const NETWORKS_LIMIT: usize = 1_000_000;

/// The largest file of networks, bytes.
pub const FILE_LIMIT: usize = 64 << 20;

/// The networks that are not routed on the internet: loopback, private, link-local and unique local addresses.
pub const PRIVATE: [&str; 9] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "100.64.0.0/10",
    "::1",
    "fc00::/7",
    "fe80::/10",
];

/// A network: all addresses from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// A range of IPv4 addresses. It also matches them in the form of IPv4-mapped IPv6 addresses.
    V4(u32, u32),
    /// A range of IPv6 addresses.
    V6(u128, u128),
}

/// Why a text is no network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkError {
    /// The text is not an address or network.
    Syntax,
    /// The address has bits beyond the prefix. Contains the network that the user has perhaps meant.
    HostBits(IpAddr, u8),
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => f.write_str("expected an address or a network, such as 192.0.2.1 or 10.0.0.0/8"),
            Self::HostBits(address, bits) => {
                write!(f, "the address has bits beyond the prefix; the network is {address}/{bits}")
            }
        }
    }
}

impl core::str::FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => {
                let digits = bits.len() <= 3 && bits.bytes().all(|byte| byte.is_ascii_digit());
                (address, Some(bits.parse::<u8>().ok().filter(|_| digits).ok_or(NetworkError::Syntax)?))
            }
            None => (text, None),
        };
        match address.parse().map_err(|_| NetworkError::Syntax)? {
            IpAddr::V4(address) => Self::v4(address, bits.unwrap_or(32)),
            IpAddr::V6(address) => match (address.to_ipv4_mapped(), bits.unwrap_or(128)) {
                (Some(address), bits @ 96..=128) => Self::v4(address, bits - 96),
                (_, bits) => Self::v6(address, bits),
            },
        }
    }
}

impl Network {
    fn v4(address: Ipv4Addr, bits: u8) -> Result<Self, NetworkError> {
        let below = 32_u32.checked_sub(u32::from(bits)).ok_or(NetworkError::Syntax)?;
        let rest = u32::MAX.checked_shr(32 - below).unwrap_or(0);
        let first = u32::from(address);
        if first & rest != 0 {
            return Err(NetworkError::HostBits(Ipv4Addr::from(first & !rest).into(), bits));
        }
        Ok(Self::V4(first, first | rest))
    }

    fn v6(address: Ipv6Addr, bits: u8) -> Result<Self, NetworkError> {
        let below = 128_u32.checked_sub(u32::from(bits)).ok_or(NetworkError::Syntax)?;
        let rest = u128::MAX.checked_shr(128 - below).unwrap_or(0);
        let first = u128::from(address);
        if first & rest != 0 {
            return Err(NetworkError::HostBits(Ipv6Addr::from(first & !rest).into(), bits));
        }
        Ok(Self::V6(first, first | rest))
    }
}

/// The networks of a file; see [`lines`].
///
/// # Errors
///
/// The file cannot be read; or as for `lines`.
pub fn of_file(path: &Argument, context: &mut dyn Context) -> Result<Vec<Network>, Problem> {
    lines(path, &context.file(path, FILE_LIMIT)?)
}

/// The networks of a file: one per line, `#` begins a comment.
///
/// # Errors
///
/// Some lines are no networks (all of them are reported), or there are more than [`NETWORKS_LIMIT`] networks.
pub fn lines(path: &Argument, bytes: &[u8]) -> Result<Vec<Network>, Problem> {
    let text = text_of_file(bytes).map_err(|_| path.wrong("the file of networks is not UTF-8"))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let lines = (1..).zip(lines).filter(|(_, line)| !line.is_empty()).take(NETWORKS_LIMIT + 1);
    let networks: Vec<Network> = each(lines.map(|(number, line): (u32, &str)| {
        line.parse().map_err(|error: NetworkError| path.wrong(format!("line {number}: {error}")))
    }))?;
    if networks.len() > NETWORKS_LIMIT {
        return Err(path.wrong(format!("more than {NETWORKS_LIMIT} networks")));
    }
    Ok(networks)
}

/// For each address, the lowest number of the networks that contain it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges {
    v4: Vec<Range<u32>>,
    v6: Vec<Range<u128>>,
}

/// Ranges of a list do not overlap and are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range<T> {
    first: T,
    last: T,
    number: u32,
}

impl Ranges {
    /// A map of networks with their numbers, in any order.
    pub fn new(networks: impl IntoIterator<Item = (Network, u32)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (network, number) in networks {
            match network {
                Network::V4(first, last) => v4.push(Range { first, last, number }),
                Network::V6(first, last) => v6.push(Range { first, last, number }),
            }
        }
        Self {
            v4: flatten(v4, |at| at.checked_add(1), |at| at - 1),
            v6: flatten(v6, |at| at.checked_add(1), |at| at - 1),
        }
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// The lowest number among the networks that contain this address. An IPv4-mapped IPv6 address counts as its IPv4
    /// address.
    #[inline]
    pub fn get(&self, address: IpAddr) -> Option<u32> {
        match address.to_canonical() {
            IpAddr::V4(address) => find(&self.v4, u32::from(address)),
            IpAddr::V6(address) => find(&self.v6, u128::from(address)),
        }
    }
}

fn find<T: Ord + Copy>(ranges: &[Range<T>], at: T) -> Option<u32> {
    let after = ranges.partition_point(|range| range.first <= at);
    let range = ranges.get(after.checked_sub(1)?)?;
    (at <= range.last).then_some(range.number)
}

/// Cuts ranges until none overlap. Each address keeps the lowest number among the ranges that contain it.
fn flatten<T: Ord + Copy>(
    ranges: Vec<Range<T>>,
    next: impl Fn(T) -> Option<T>,
    before: impl Fn(T) -> T,
) -> Vec<Range<T>> {
    // The start of each range, and the address after its end; `None` stands for the end of the address space.
    let mut events: Vec<(T, bool, u32, usize)> = Vec::new();
    for (id, range) in ranges.iter().enumerate() {
        events.push((range.first, true, range.number, id));
        if let Some(end) = next(range.last) {
            events.push((end, false, range.number, id));
        }
    }
    events.sort_unstable();
    let greatest = ranges.iter().map(|range| range.last).max();
    let mut open: BTreeSet<(u32, usize)> = BTreeSet::new();
    let mut flat: Vec<Range<T>> = Vec::new();
    let mut events = events.into_iter().peekable();
    while let Some((at, begins, number, id)) = events.next() {
        if begins {
            open.insert((number, id));
        } else {
            open.remove(&(number, id));
        }
        let until = match events.peek() {
            Some((then, ..)) if *then == at => continue,
            Some((then, ..)) => before(*then),
            None => greatest.unwrap_or(at),
        };
        let Some((number, _)) = open.first() else { continue };
        match flat.last_mut() {
            Some(last) if last.number == *number && next(last.last) == Some(at) => last.last = until,
            _ => flat.push(Range { first: at, last: until, number: *number }),
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_are_parsed() {
        assert_eq!(network("10.0.0.0/8"), Network::V4(0x0a00_0000, 0x0aff_ffff));
        assert_eq!(network("0.0.0.0/0"), Network::V4(0, u32::MAX));
        assert_eq!(network("192.0.2.1"), Network::V4(0xc000_0201, 0xc000_0201));
        assert_eq!(network("::/0"), Network::V6(0, u128::MAX));
        assert_eq!(network("::ffff:10.0.0.0/104"), network("10.0.0.0/8"));
        assert_eq!(network("2001:db8::/32"), Network::V6(0x2001_0db8 << 96, (0x2001_0db9 << 96) - 1));
        for bad in [
            "",
            "10",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "a/8",
            "1.2.3.4/0008",
        ] {
            assert_eq!(bad.parse::<Network>(), Err(NetworkError::Syntax), "{bad}");
        }
        assert_eq!(
            "10.1.2.3/8".parse::<Network>().unwrap_err().to_string(),
            "the address has bits beyond the prefix; the network is 10.0.0.0/8"
        );
        assert_eq!("fe80::1/10".parse::<Network>(), Err(NetworkError::HostBits(address("fe80::"), 10)));
        for private in PRIVATE {
            network(private);
        }
    }

    #[test]
    fn the_least_number_wins_whatever_the_order() {
        let ranges = Ranges::new([
            (network("10.0.0.0/8"), 2),
            (network("10.1.0.0/16"), 1),
            (network("10.1.2.0/24"), 3),
            (network("0.0.0.0/0"), 9),
            (network("255.255.255.255"), 4),
        ]);
        let get = |text: &str| ranges.get(address(text));
        assert_eq!(get("10.1.2.3"), Some(1));
        assert_eq!(get("10.2.0.0"), Some(2));
        assert_eq!(get("10.0.255.255"), Some(2));
        assert_eq!(get("9.255.255.255"), Some(9));
        assert_eq!(get("255.255.255.255"), Some(4));
        assert_eq!(get("::ffff:10.1.0.0"), Some(1));
        assert_eq!(get("2001:db8::1"), None);
        let all = Ranges::new([(network("::/0"), 7)]);
        assert_eq!(all.get(address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")), Some(7));
        assert_eq!(all.get(address("1.2.3.4")), None);
        assert_eq!(Ranges::default().get(address("1.2.3.4")), None);
    }

    proptest! {
        #[test]
        fn it_says_what_a_scan_says(
            networks in prop::collection::vec((any::<u32>(), 0..=32_u8, 0..20_u32), 0..60),
            asked in prop::collection::vec(any::<u32>(), 0..20),
        ) {
            // Few addresses, so that networks nest.
            let networks: Vec<(Network, u32)> = networks.iter().map(|(at, bits, number)| {
                let address = at & 0x0303_0303 & u32::MAX.checked_shl(32 - u32::from(*bits)).unwrap_or(0);
                (Network::v4(address.into(), *bits).unwrap(), *number)
            }).collect();
            let ranges = Ranges::new(networks.clone());
            let edges = networks.iter().flat_map(|(network, _)| match network {
                Network::V4(first, last) => [*first, last.wrapping_add(1), *last, first.wrapping_sub(1)],
                Network::V6(..) => unreachable!(),
            });
            for at in asked.iter().copied().chain(edges) {
                let scan = networks.iter().filter(|(network, _)| match network {
                    Network::V4(first, last) => (first..=last).contains(&&at),
                    Network::V6(..) => false,
                }).map(|(_, number)| *number).min();
                prop_assert_eq!(ranges.get(Ipv4Addr::from(at).into()), scan);
            }
        }
    }
}
