//! Purges as bytes.

use super::{Prefix, Purge, Sequence, Strength, Table};
use crate::key::{Key, address, site};
use crate::record::{Reader, part};
use crate::tags::Tag;

/// The selection of a purge, as its floor keeps it.
pub(super) enum Kind<'a> {
    All,
    Site(&'a [u8]),
    Key(Key),
    Address(&'a [u8]),
    Tag(Tag),
    Prefix(&'a [u8], &'a [u8]),
}

impl Purge<'_> {
    /// Appends the purge with its number, for [`Floors::restore`](super::Floors::restore).
    pub fn write(&self, strength: Strength, number: Sequence, out: &mut Vec<u8>) {
        match self {
            Self::All => write(&Kind::All, strength, number.0, out),
            Self::Site(uri) => write(&Kind::Site(&site(uri)), strength, number.0, out),
            Self::Key(key) => write(&Kind::Key(*key), strength, number.0, out),
            Self::Address(uri) => write(&Kind::Address(&address(uri)), strength, number.0, out),
            Self::Tag(tag) => write(&Kind::Tag(*tag), strength, number.0, out),
            Self::Prefix(uri) => {
                let start = super::start(uri);
                write(&Kind::Prefix(&site(uri), &start), strength, number.0, out);
            }
        }
    }
}

fn write(kind: &Kind<'_>, strength: Strength, floor: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&floor.to_le_bytes());
    out.push(u8::from(strength == Strength::Soft));
    match kind {
        Kind::All => out.push(0),
        Kind::Site(site) => {
            out.push(1);
            part(out, site);
        }
        Kind::Key(key) => {
            out.push(2);
            out.extend_from_slice(&key.0.to_le_bytes());
        }
        Kind::Address(address) => {
            out.push(5);
            part(out, address);
        }
        Kind::Tag(tag) => {
            out.push(3);
            out.extend_from_slice(&tag.0.to_le_bytes());
        }
        Kind::Prefix(site, start) => {
            out.push(4);
            part(out, site);
            part(out, start);
        }
    }
}

pub(super) fn read(bytes: &[u8]) -> Option<(u64, Strength, Kind<'_>)> {
    let mut from = Reader(bytes);
    let floor = from.u64()?;
    let strength = if from.flag()? { Strength::Soft } else { Strength::Hard };
    let kind = match from.u8()? {
        0 => Kind::All,
        1 => Kind::Site(from.part()?),
        2 => Kind::Key(Key(from.u128()?)),
        3 => Kind::Tag(Tag(from.u64()?)),
        4 => Kind::Prefix(from.part()?, from.part()?),
        5 => Kind::Address(from.part()?),
        _ => return None,
    };
    from.0.is_empty().then_some((floor, strength, kind))
}

impl Table {
    pub(super) fn restore(&mut self, kind: Kind<'_>, floor: u64) {
        let raise = |known: &mut u64| *known = floor.max(*known);
        match kind {
            Kind::All => raise(&mut self.all),
            Kind::Site(site) => raise(self.sites.entry(Box::from(site)).or_default()),
            Kind::Key(key) => raise(self.keys.entry(key).or_default()),
            Kind::Address(address) => raise(self.addresses.entry(Box::from(address)).or_default()),
            Kind::Tag(tag) => raise(self.tags.entry(tag).or_default()),
            Kind::Prefix(site, start) => self.push_prefix(Box::from(site), start.to_vec(), floor),
        }
        self.bound(floor);
    }

    pub(super) fn save(&self, strength: Strength, out: &mut impl FnMut(&[u8])) {
        let mut bytes = Vec::new();
        let mut save = |kind: &Kind<'_>, floor: u64| {
            bytes.clear();
            write(kind, strength, floor, &mut bytes);
            out(&bytes);
        };
        if self.all > 0 {
            save(&Kind::All, self.all);
        }
        for (site, &floor) in &self.sites {
            save(&Kind::Site(site), floor);
        }
        for (&key, &floor) in &self.keys {
            save(&Kind::Key(key), floor);
        }
        for (address, &floor) in &self.addresses {
            save(&Kind::Address(address), floor);
        }
        for (&tag, &floor) in &self.tags {
            save(&Kind::Tag(tag), floor);
        }
        for Prefix { site, start, floor } in &self.prefixes {
            save(&Kind::Prefix(site, start), *floor);
        }
    }
}
