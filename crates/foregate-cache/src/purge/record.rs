//! Purges as bytes.

use super::{Prefix, Purge, Sequence, Strength, Table};
use crate::key::{Key, address, site};
use crate::record::{Reader, part};
use crate::tags::Tag;

/// The selection of a purge, in the form in which its floor is stored.
pub(super) enum Selection<'a> {
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
            Self::All => write(&Selection::All, strength, number.0, out),
            Self::Site(uri) => write(&Selection::Site(&site(uri)), strength, number.0, out),
            Self::Key(key) => write(&Selection::Key(*key), strength, number.0, out),
            Self::Address(uri) => write(&Selection::Address(&address(uri)), strength, number.0, out),
            Self::Tag(tag) => write(&Selection::Tag(*tag), strength, number.0, out),
            Self::Prefix(uri) => {
                let start = super::start(uri);
                write(&Selection::Prefix(&site(uri), &start), strength, number.0, out);
            }
        }
    }
}

fn write(kind: &Selection<'_>, strength: Strength, floor: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&floor.to_le_bytes());
    out.push(u8::from(strength == Strength::Soft));
    match kind {
        Selection::All => out.push(0),
        Selection::Site(site) => {
            out.push(1);
            part(out, site);
        }
        Selection::Key(key) => {
            out.push(2);
            out.extend_from_slice(&key.0.to_le_bytes());
        }
        Selection::Address(address) => {
            out.push(5);
            part(out, address);
        }
        Selection::Tag(tag) => {
            out.push(3);
            out.extend_from_slice(&tag.0.to_le_bytes());
        }
        Selection::Prefix(site, start) => {
            out.push(4);
            part(out, site);
            part(out, start);
        }
    }
}

pub(super) fn read(bytes: &[u8]) -> Option<(u64, Strength, Selection<'_>)> {
    let mut from = Reader(bytes);
    let floor = from.u64()?;
    let strength = if from.flag()? { Strength::Soft } else { Strength::Hard };
    let kind = match from.u8()? {
        0 => Selection::All,
        1 => Selection::Site(from.part()?),
        2 => Selection::Key(Key(from.u128()?)),
        3 => Selection::Tag(Tag(from.u64()?)),
        4 => Selection::Prefix(from.part()?, from.part()?),
        5 => Selection::Address(from.part()?),
        _ => return None,
    };
    from.0.is_empty().then_some((floor, strength, kind))
}

impl Table {
    pub(super) fn restore(&mut self, kind: Selection<'_>, floor: u64) {
        let raise = |known: &mut u64| *known = floor.max(*known);
        match kind {
            Selection::All => raise(&mut self.all),
            Selection::Site(site) => raise(self.sites.entry(Box::from(site)).or_default()),
            Selection::Key(key) => raise(self.keys.entry(key).or_default()),
            Selection::Address(address) => raise(self.addresses.entry(Box::from(address)).or_default()),
            Selection::Tag(tag) => {
                raise(self.tags.entry(tag).or_default());
                raise(&mut self.latest_tag);
            }
            Selection::Prefix(site, start) => self.push_prefix(Box::from(site), start.to_vec(), floor),
        }
        self.bound(floor);
    }

    pub(super) fn save(&self, strength: Strength, out: &mut impl FnMut(&[u8])) {
        let mut bytes = Vec::new();
        let mut save = |kind: &Selection<'_>, floor: u64| {
            bytes.clear();
            write(kind, strength, floor, &mut bytes);
            out(&bytes);
        };
        if self.all > 0 {
            save(&Selection::All, self.all);
        }
        for (site, &floor) in &self.sites {
            save(&Selection::Site(site), floor);
        }
        for (&key, &floor) in &self.keys {
            save(&Selection::Key(key), floor);
        }
        for (address, &floor) in &self.addresses {
            save(&Selection::Address(address), floor);
        }
        for (&tag, &floor) in &self.tags {
            save(&Selection::Tag(tag), floor);
        }
        for Prefix { site, start, floor } in &self.prefixes {
            save(&Selection::Prefix(site, start), *floor);
        }
    }
}
