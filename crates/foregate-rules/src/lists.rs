//! Named lists, for `in $name`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use crate::limits::{MAX_LIST, MAX_LIST_ENTRY};
use crate::sets::{IpRange, IpSet, TextSet};

/// The entries of one list, of one kind.
#[derive(Clone, Debug)]
pub struct List {
    pub(crate) kind: ListKind,
    len: usize,
}

/// The kind of values in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Addresses, networks and ranges.
    Ips,
    /// Names of hosts.
    Hosts,
    /// Texts of any kind.
    Strings,
}

#[derive(Clone, Debug)]
pub(crate) enum ListKind {
    Ips(IpSet),
    /// Whole names, and names with subdomains that all match; both in lower case.
    Hosts {
        exact: TextSet,
        below: TextSet,
    },
    Strings(TextSet),
}

/// Why a list was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ListError {
    /// The line, counted from 1.
    pub line: usize,
    /// The error, one sentence without full stop.
    pub message: String,
}

/// The lines with content and their numbers. Comments and surrounding blanks are removed.
fn entries(text: &str) -> impl Iterator<Item = (usize, Result<&str, ListError>)> {
    let lines = (1..).zip(text.lines()).filter_map(|(line, entry)| {
        // A `#` begins a comment only at the start of the line or after a blank; elsewhere it belongs to the entry.
        let end = entry
            .match_indices('#')
            .map(|(at, _)| at)
            .find(|&at| at == 0 || entry.as_bytes().get(at - 1).is_some_and(u8::is_ascii_whitespace));
        let entry = entry[..end.unwrap_or(entry.len())].trim();
        (!entry.is_empty()).then_some((line, entry))
    });
    lines.enumerate().map(|(count, (line, entry))| {
        if count >= MAX_LIST {
            return (
                line,
                Err(ListError { line, message: format!("the list has more than {MAX_LIST} entries") }),
            );
        }
        if entry.len() > MAX_LIST_ENTRY {
            let message = format!("the entry is longer than {MAX_LIST_ENTRY} bytes");
            return (line, Err(ListError { line, message }));
        }
        (line, Ok(entry))
    })
}

impl ListKind {
    pub(crate) fn entries(&self) -> Entries {
        match self {
            Self::Ips(_) => Entries::Ips,
            Self::Hosts { .. } => Entries::Hosts,
            Self::Strings(_) => Entries::Strings,
        }
    }
}

impl List {
    /// Reads addresses (`192.0.2.1`), networks (`2001:db8::/32`) and ranges (`192.0.2.1..192.0.2.9`), one a line. A `#`
    /// at the start of a line or after a blank begins a comment.
    ///
    /// # Errors
    ///
    /// A line is not an address or network, or there are more than [`MAX_LIST`] of them.
    pub fn parse_ips(text: &str) -> Result<Self, ListError> {
        let mut ranges = Vec::new();
        for (line, entry) in entries(text) {
            ranges.push(ip_range(entry?).map_err(|message| ListError { line, message })?);
        }
        Ok(Self { len: ranges.len(), kind: ListKind::Ips(IpSet::new(&ranges)) })
    }

    /// Reads hosts, one a line. `*.example.com` stands for all names below `example.com` at any depth, but not for
    /// `example.com` itself. Hosts are compared regardless of case. An IPv6 address must be in brackets, in any
    /// spelling. Comments are as in [`parse_ips`](Self::parse_ips).
    ///
    /// # Errors
    ///
    /// A line is no host, or there are more than [`MAX_LIST`] of them.
    pub fn parse_hosts(text: &str) -> Result<Self, ListError> {
        let (mut exact, mut below, mut len) = (TextSet::default(), TextSet::default(), 0);
        for (line, entry) in entries(text) {
            let entry = entry?.to_ascii_lowercase();
            len += 1;
            if let Some(address) = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
                && let Ok(address) = address.parse::<Ipv6Addr>()
            {
                exact.insert(format!("[{address}]").into_bytes().into());
                continue;
            }
            let (set, host) = match entry.strip_prefix("*.") {
                Some(parent) => (&mut below, parent),
                None => (&mut exact, &*entry),
            };
            host_name(host).map_err(|wrong| ListError { line, message: format!("`{entry}` {wrong}") })?;
            set.insert(host.as_bytes().into());
        }
        Ok(Self { kind: ListKind::Hosts { exact, below }, len })
    }

    /// Reads texts, one a line, compared byte by byte. Comments are as in [`parse_ips`](Self::parse_ips).
    ///
    /// # Errors
    ///
    /// There are more than [`MAX_LIST`] of them, or one is longer than [`MAX_LIST_ENTRY`].
    pub fn parse_strings(text: &str) -> Result<Self, ListError> {
        let (mut strings, mut len) = (TextSet::default(), 0);
        for (_, entry) in entries(text) {
            strings.insert(entry?.as_bytes().into());
            len += 1;
        }
        Ok(Self { kind: ListKind::Strings(strings), len })
    }

    /// The number of entries that were read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the list has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn contains_text(&self, text: &[u8]) -> bool {
        match &self.kind {
            ListKind::Ips(_) => false,
            ListKind::Strings(strings) => strings.contains(text),
            ListKind::Hosts { exact, below } => {
                if text.iter().any(u8::is_ascii_uppercase) {
                    let folded = text.to_ascii_lowercase();
                    return is_host(exact, below, &folded);
                }
                is_host(exact, below, text)
            }
        }
    }

    pub(crate) fn contains_ip(&self, address: IpAddr) -> bool {
        match &self.kind {
            ListKind::Ips(ips) => ips.contains(address),
            ListKind::Hosts { .. } | ListKind::Strings(_) => false,
        }
    }
}

/// Checks a host name. The error is the reason why no request can have it.
fn host_name(name: &str) -> Result<(), &'static str> {
    if name.contains(':') {
        return Err("has a port, or lacks brackets: no host is written so");
    }
    if name.len() > 1 && name.ends_with('.') && !name.ends_with("..") {
        return Err("has a dot at its end: no host is written so");
    }
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    match name.split('.').all(|label| !label.is_empty() && label.bytes().all(fits)) {
        true => Ok(()),
        false => Err("is no host; write `example.com` or `*.example.com`"),
    }
}

fn is_host(exact: &TextSet, below: &TextSet, host: &[u8]) -> bool {
    let mut parents = memchr::memchr_iter(b'.', host).filter_map(|dot| host.get(dot + 1..));
    exact.contains(host) || (!below.is_empty() && parents.any(|parent| below.contains(parent)))
}

fn ip_range(entry: &str) -> Result<IpRange, String> {
    let wrong = || format!("`{entry}` is neither an address, nor a network, nor a range");
    if let Some((address, bits)) = entry.split_once('/') {
        let address = address.parse().map_err(|_| wrong())?;
        return IpRange::network(address, bits.parse().map_err(|_| wrong())?);
    }
    if let Some((first, last)) = entry.split_once("..") {
        return IpRange::new(first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
    }
    entry.parse().map(IpRange::single).map_err(|_| wrong())
}

/// The lists that expressions may name.
///
/// An expression copies a list when it is compiled. After a list has changed, expressions that name it must be compiled
/// again.
#[derive(Clone, Debug, Default)]
pub struct Lists(BTreeMap<Box<str>, Arc<List>>);

impl Lists {
    /// No lists.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a list, or replaces the list that has this name.
    pub fn insert(&mut self, name: &str, list: List) {
        self.0.insert(name.into(), Arc::new(list));
    }

    /// The list of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<List>> {
        self.0.get(name)
    }

    /// The names of the lists that no compiled expression uses.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, list)| Arc::strong_count(list) == 1).map(|(name, _)| &**name)
    }

    /// The names of all lists, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }
}
