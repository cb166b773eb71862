//! All chains of transformations as one tree: chains with a common beginning share its nodes. A value is
//! transformed once for each node.

use crate::transform::Transformation;

/// The number of a node. A node stands for the chain of transformations from the root to it.
pub(crate) type Node = u16;

/// The root: the chain without a transformation.
pub(crate) const RAW: Node = 0;

/// All chains that rules use.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    /// Parent and transformation of each node but [`RAW`]. A parent's number is lower than its child's.
    nodes: Vec<(Node, Transformation)>,
}

impl Chains {
    /// Returns the node of a chain, which is added if it is new; `None` if there would be more than 65,536 nodes.
    pub(crate) fn intern(&mut self, chain: &[Transformation]) -> Option<Node> {
        let mut at = RAW;
        for next in chain {
            let found = self.nodes.iter().position(|node| *node == (at, *next));
            let place = found.unwrap_or_else(|| {
                self.nodes.push((at, *next));
                self.nodes.len() - 1
            });
            at = Node::try_from(place + 1).ok()?;
        }
        Some(at)
    }

    /// The number of nodes, including [`RAW`].
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() + 1
    }

    /// The parent and the transformation of a node.
    #[inline]
    pub(crate) fn node(&self, node: Node) -> Option<(Node, Transformation)> {
        self.nodes.get(usize::from(node).checked_sub(1)?).copied()
    }

    /// The nodes from a chain's first transformation to the chain itself.
    pub(crate) fn path(&self, node: Node) -> Vec<Node> {
        let mut path = Vec::new();
        let mut at = node;
        while let Some((parent, _)) = self.node(at) {
            path.push(at);
            at = parent;
        }
        path.reverse();
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_shared() {
        use Transformation::{HtmlEntityDecode, Lowercase, UrlDecodeUni};
        let mut chains = Chains::default();
        let long = chains.intern(&[UrlDecodeUni, HtmlEntityDecode, Lowercase]).unwrap();
        let short = chains.intern(&[UrlDecodeUni, HtmlEntityDecode]).unwrap();
        assert_eq!(chains.node(long), Some((short, Lowercase)));
        assert_eq!(chains.path(long).len(), 3);
        assert_eq!(chains.intern(&[]), Some(RAW));
    }
}
