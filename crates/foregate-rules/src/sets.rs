//! Sets for `in`: numbers, texts and addresses.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::RandomState;

/// A range of addresses of one family, from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpRange {
    pub(crate) v4: bool,
    pub(crate) first: u128,
    pub(crate) last: u128,
}

/// The family of an address, and its bits as a number.
pub(crate) fn key(address: IpAddr) -> (bool, u128) {
    match address.to_canonical() {
        IpAddr::V4(address) => (true, address.to_bits().into()),
        IpAddr::V6(address) => (false, address.to_bits()),
    }
}

/// The address with all but its first `bits` bits cleared.
pub(crate) fn mask(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

impl IpRange {
    pub(crate) fn single(address: IpAddr) -> Self {
        let (v4, first) = key(address);
        Self { v4, first, last: first }
    }

    /// The network of an address's first `bits` bits. The other bits must be zero; otherwise the network is probably a
    /// mistake.
    pub(crate) fn network(address: IpAddr, bits: u8) -> Result<Self, String> {
        let width = if address.is_ipv4() { 32 } else { 128 };
        if bits > width {
            return Err(format!("an address like {address} has {width} bits, not {bits}"));
        }
        let base = mask(address, bits);
        if base != address {
            return Err(format!(
                "{address}/{bits} has bits set behind the first {bits}: the network is {base}/{bits}"
            ));
        }
        // An IPv6 address mapped from IPv4 counts as IPv4. `bits` is at least 96 here: with fewer, bits outside of the
        // network would not be zero, which was refused above.
        let (v4, first) = key(address);
        let last = first | u128::MAX.checked_shr(128 - u32::from(width - bits)).unwrap_or(0);
        Ok(Self { v4, first, last })
    }

    pub(crate) fn new(first: IpAddr, last: IpAddr) -> Result<Self, String> {
        let ((v4, first), (last_v4, last)) = (key(first), key(last));
        if v4 != last_v4 {
            return Err("this range is between an IPv4 and an IPv6 address".to_owned());
        }
        if first > last {
            return Err("this range ends before it begins".to_owned());
        }
        Ok(Self { v4, first, last })
    }
}

/// A set of numbers, stored as ranges that neither overlap nor touch.
#[derive(Debug)]
pub(crate) struct IntSet(Box<[(i64, i64)]>);

impl IntSet {
    pub(crate) fn new(mut ranges: Vec<(i64, i64)>) -> Self {
        ranges.sort_unstable();
        ranges.dedup_by(|next, before| {
            let touches = next.0 <= before.1.saturating_add(1);
            before.1 = if touches { before.1.max(next.1) } else { before.1 };
            touches
        });
        Self(ranges.into())
    }

    pub(crate) fn contains(&self, number: i64) -> bool {
        let after = self.0.partition_point(|range| range.0 <= number);
        after.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|range| number <= range.1)
    }

    pub(crate) fn ranges(&self) -> &[(i64, i64)] {
        &self.0
    }
}

/// A set of addresses, stored as ranges that neither overlap nor touch.
#[derive(Clone, Debug)]
pub(crate) struct IpSet {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl IpSet {
    pub(crate) fn new(ranges: &[IpRange]) -> Self {
        let bits = |bits: u128| u32::try_from(bits).unwrap_or(u32::MAX);
        let v4 = ranges.iter().filter(|range| range.v4).map(|range| (bits(range.first), bits(range.last)));
        let v6 = ranges.iter().filter(|range| !range.v4).map(|range| (range.first, range.last));
        let (mut v4, mut v6) = (v4.collect::<Vec<_>>(), v6.collect::<Vec<_>>());
        v4.sort_unstable();
        v6.sort_unstable();
        v4.dedup_by(|next, before| merge(next, before, next.0 <= before.1.saturating_add(1)));
        v6.dedup_by(|next, before| merge(next, before, next.0 <= before.1.saturating_add(1)));
        Self { v4: v4.into(), v6: v6.into() }
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => holds(&self.v4, address.to_bits()),
            IpAddr::V6(address) => holds(&self.v6, address.to_bits()),
        }
    }

    /// The ranges, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = IpRange> {
        let v4 = self.v4.iter().map(|&(first, last)| (true, first.into(), last.into()));
        let v6 = self.v6.iter().map(|&(first, last)| (false, first, last));
        v4.chain(v6).map(|(v4, first, last)| IpRange { v4, first, last })
    }
}

fn merge<N: Ord + Copy>(next: &mut (N, N), before: &mut (N, N), touches: bool) -> bool {
    if touches {
        before.1 = before.1.max(next.1);
    }
    touches
}

fn holds<N: Ord + Copy>(ranges: &[(N, N)], value: N) -> bool {
    let after = ranges.partition_point(|range| range.0 <= value);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|range| value <= range.1)
}

/// A set of texts, stored by hash.
pub(crate) type TextSet = HashSet<Box<[u8]>, RandomState>;
