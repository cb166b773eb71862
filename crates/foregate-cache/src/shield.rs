//! A group of proxies in front of the same origins: the owner of each address, and the purges that the nodes learn from each other.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::key::ResponseAddress;
use crate::secret::Secret;

/// The secret of the hash. All nodes use the same one, so that they compute the same owners.
const KNOWN: Secret = Secret::new(*b"owners of shield");

/// The most purges in a log. If a node has missed more purges than that, it has to purge everything it stores.
const MOST_PURGES: usize = 10_000;
/// The most bytes of the purges in a log.
const MOST_BYTES: usize = 8 << 20;

/// The index of the node that asks the origin for a key with this text. It is chosen by rendezvous hashing of
/// the address: the variants of a response, and its keys with different additions, have the same owner. When a
/// node joins or leaves, the owner changes only for the addresses that this node takes over or gives up. `None`
/// if the text is no key, or if there are no nodes.
pub fn owner<'n>(nodes: impl IntoIterator<Item = &'n str>, text: &[u8]) -> Option<usize> {
    let address = ResponseAddress::read(text)?.address;
    let weight =
        |name: &str| KNOWN.hash64_of(&[&(name.len() as u64).to_le_bytes(), name.as_bytes(), address]);
    let weights = nodes.into_iter().map(|name| (weight(name), name)).enumerate();
    // The name decides between equal weights, so that the order of the list does not matter.
    weights.max_by(|(_, one), (_, other)| one.cmp(other)).map(|(place, _)| place)
}

/// The recent purges of one node, with their numbers, for the other nodes.
#[derive(Debug)]
pub struct PurgeLog {
    /// A random number that distinguishes this log from the logs of earlier processes.
    epoch: u64,
    latest: u64,
    /// Purges up to this number may be missing.
    forgotten: u64,
    purges: BTreeMap<u64, Arc<[u8]>>,
    /// The number of each purge. A purge that comes again replaces the earlier one.
    numbers: HashMap<Arc<[u8]>, u64>,
    bytes: usize,
}

/// The purges after a number.
#[derive(Debug, PartialEq, Eq)]
pub struct PurgesSince {
    /// The number with which the next call continues. If the log has more purges, it is the number of the last one
    /// in `purges`; otherwise it is the latest number in the log.
    pub until: u64,
    /// The purges, for [`Floors::repeat`](crate::Floors::repeat). `None` if the log has forgotten some of them.
    pub purges: Option<Vec<Arc<[u8]>>>,
}

impl PurgeLog {
    /// An empty log. `epoch` is a random number.
    pub fn new(epoch: u64) -> Self {
        Self { epoch, latest: 0, forgotten: 0, purges: BTreeMap::new(), numbers: HashMap::new(), bytes: 0 }
    }

    /// The number that distinguishes the log from the logs of earlier processes.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of the latest purge.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Adds the bytes of a purge from [`Purge::write`](crate::Purge::write). Returns the number of the purge in the
    /// log.
    pub fn add(&mut self, purge: &[u8]) -> u64 {
        self.latest += 1;
        let purge: Arc<[u8]> = purge.into();
        self.bytes += purge.len();
        if let Some(earlier) = self.numbers.insert(Arc::clone(&purge), self.latest) {
            self.purges.remove(&earlier);
            self.bytes -= purge.len();
        }
        self.purges.insert(self.latest, purge);
        while self.purges.len() > MOST_PURGES || self.bytes > MOST_BYTES {
            let Some((number, purge)) = self.purges.pop_first() else { break };
            self.numbers.remove(&purge);
            self.bytes -= purge.len();
            self.forgotten = number;
        }
        self.latest
    }

    /// The purges after a number, at most `most` of them.
    pub fn since(&self, number: u64, most: usize) -> PurgesSince {
        if number < self.forgotten {
            return PurgesSince { until: self.latest, purges: None };
        }
        let behind = self.purges.range(number.saturating_add(1)..).take(most);
        let (mut until, mut purges) = (number, Vec::new());
        for (number, purge) in behind {
            until = *number;
            purges.push(Arc::clone(purge));
        }
        if purges.len() < most {
            until = self.latest;
        }
        PurgesSince { until, purges: Some(purges) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what they do not expect")]
    use foregate_wire::Scheme;

    use super::*;
    use crate::key::{KeyParts, KeyText};
    use crate::uri::Uri;

    fn text(path: &str, additions: &[&[u8]]) -> KeyText {
        let mut text = KeyText::new();
        let uri = Uri { scheme: Scheme::Https, host: "a", port: None, path: path.as_bytes(), query: None };
        text.write(&uri, &KeyParts { additions, ..KeyParts::default() });
        text
    }

    #[test]
    fn each_node_owns_a_share_and_a_leaving_node_moves_its_own_alone() {
        let (three, two) = (["one", "two", "three"], ["three", "one"]);
        let mut counts = [0; 3];
        for number in 0..3000 {
            let text = text(&format!("/{number}"), &[]);
            let place = owner(three, text.as_bytes()).unwrap();
            counts[place] += 1;
            if three[place] != "two" {
                assert_eq!(two[owner(two, text.as_bytes()).unwrap()], three[place], "{number}");
            }
        }
        assert!(counts.iter().all(|&count| (900..1100).contains(&count)), "{counts:?}");
    }

    #[test]
    fn all_variants_of_an_address_have_one_owner() {
        let nodes = ["one", "two", "three"];
        for number in 0..100 {
            let path = format!("/{number}");
            let plain = owner(nodes, text(&path, &[]).as_bytes());
            assert_eq!(owner(nodes, text(&path, &[b"de"]).as_bytes()), plain);
        }
        assert_eq!(owner(nodes, b"no key"), None);
        assert_eq!(owner([], text("/", &[]).as_bytes()), None);
    }

    #[test]
    fn a_log_tells_what_a_node_has_missed() {
        let mut log = PurgeLog::new(7);
        assert_eq!(log.since(0, 10), PurgesSince { until: 0, purges: Some(Vec::new()) });
        for purge in [b"a", b"b", b"a"] {
            log.add(purge);
        }
        let purges = |since: PurgesSince| since.purges.map(|purges| purges.concat());
        // The first purge was added again.
        assert_eq!(purges(log.since(0, 10)), Some(b"ba".to_vec()));
        assert_eq!(log.since(0, 1).until, 2);
        assert_eq!(purges(log.since(2, 10)), Some(b"a".to_vec()));
        assert_eq!(log.since(3, 10), PurgesSince { until: 3, purges: Some(Vec::new()) });
    }

    #[test]
    fn a_log_is_bounded_and_knows_what_it_has_forgotten() {
        let mut log = PurgeLog::new(7);
        for number in 0..=MOST_PURGES as u64 {
            log.add(&number.to_le_bytes());
        }
        assert_eq!((log.purges.len(), log.numbers.len()), (MOST_PURGES, MOST_PURGES));
        assert!(log.since(0, 10).purges.is_none() && log.since(1, 10).purges.is_some());
        log.add(&vec![0; MOST_BYTES + 1]);
        assert_eq!((log.purges.len(), log.bytes), (0, 0));
        let latest = log.latest();
        assert!(log.since(latest - 1, 10).purges.is_none() && log.since(latest, 10).purges.is_some());
    }
}
