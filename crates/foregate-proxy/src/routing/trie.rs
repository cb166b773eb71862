//! The edges of a tree of labels, in three flat arrays.
//!
//! A hash table leads from (node, label) to the next node, so that a step costs the same whether a node has one
//! child or 100,000, and a node costs some twenty bytes and its label instead of allocations of its own.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

use super::narrow;

/// A node of a [`Trie`]; the root is 0, and nodes are numbered in the order in which they were added.
pub(super) type Node = u32;

/// The node that every walk starts from.
pub(super) const ROOT: Node = 0;

/// A tree with at most this many edges has no hash table; its edges are compared one after the other.
const SCANNED_EDGES: usize = 8;

/// An unused slot of the table.
const FREE: u32 = u32::MAX;

/// An edge. Edge `i` leads to node `i + 1`, because exactly one edge leads to every node except the root.
#[derive(Debug, Clone, Copy)]
struct Edge {
    parent: Node,
    label_start: u32,
    label_len: u32,
}

/// A tree of labels.
#[derive(Debug, Default)]
pub(super) struct Trie {
    edges: Vec<Edge>,
    labels: Vec<u8>,
    /// A hash table by open addressing with linear probing. Its size is a power of two, and at most half of the slots are
    /// in use; it is empty for small trees.
    slots: Vec<u32>,
}

impl Trie {
    /// The number of nodes, the root included.
    pub(super) fn nodes(&self) -> usize {
        self.edges.len() + 1
    }

    /// The node that `label` leads to from `parent`.
    #[inline]
    pub(super) fn child(&self, parent: Node, label: &[u8]) -> Option<Node> {
        if self.slots.is_empty() {
            let edge = (0..self.edges.len()).find(|index| self.is(*index, parent, label))?;
            return Some(edge as Node + 1);
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash(parent, label) as usize & mask;
        loop {
            match self.slots[slot] {
                FREE => return None,
                edge if self.is(edge as usize, parent, label) => return Some(edge + 1),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// The node that `label` leads to from `parent`. Adds it if there is none.
    pub(super) fn child_or_add(&mut self, parent: Node, label: &[u8]) -> Node {
        if let Some(node) = self.child(parent, label) {
            return node;
        }
        let edge = self.edges.len();
        self.edges.push(Edge {
            parent,
            label_start: narrow(self.labels.len()),
            label_len: narrow(label.len()),
        });
        self.labels.extend_from_slice(label);
        if self.edges.len() > SCANNED_EDGES {
            if self.edges.len() * 2 > self.slots.len() {
                self.rebuild_slots();
            } else {
                self.place(edge);
            }
        }
        narrow(edge) + 1
    }

    /// Frees the memory that growing has left over.
    pub(super) fn shrink(&mut self) {
        self.edges.shrink_to_fit();
        self.labels.shrink_to_fit();
    }

    fn rebuild_slots(&mut self) {
        let size = (self.edges.len() * 2).next_power_of_two();
        self.slots = vec![FREE; size];
        for edge in 0..self.edges.len() {
            self.place(edge);
        }
    }

    fn place(&mut self, index: usize) {
        let edge = self.edges[index];
        let mask = self.slots.len() - 1;
        let mut slot = hash(edge.parent, self.label(edge)) as usize & mask;
        while self.slots[slot] != FREE {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = narrow(index);
    }

    fn is(&self, index: usize, parent: Node, label: &[u8]) -> bool {
        let edge = self.edges[index];
        edge.parent == parent && self.label(edge) == label
    }

    fn label(&self, edge: Edge) -> &[u8] {
        &self.labels[edge.label_start as usize..][..edge.label_len as usize]
    }
}

/// Hashes an edge. The hash function has no random key, because only the operator adds labels to the table.
fn hash(parent: Node, label: &[u8]) -> u64 {
    let mut hasher = FixedState::with_seed(0).build_hasher();
    hasher.write_u32(parent);
    hasher.write(label);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_in_small_and_large_trees() {
        for count in [1, SCANNED_EDGES, SCANNED_EDGES + 1, 1000] {
            let mut trie = Trie::default();
            let label = |i: usize| format!("label{i}").into_bytes();
            let nodes: Vec<_> = (0..count).map(|i| trie.child_or_add((i / 3) as Node, &label(i))).collect();
            trie.shrink();
            assert_eq!(trie.nodes(), count + 1);
            for (i, node) in nodes.into_iter().enumerate() {
                assert_eq!(trie.child((i / 3) as Node, &label(i)), Some(node));
                assert_eq!(trie.child((i / 3) as Node, b"other"), None);
                assert_eq!(trie.child_or_add((i / 3) as Node, &label(i)), node);
            }
        }
    }
}
