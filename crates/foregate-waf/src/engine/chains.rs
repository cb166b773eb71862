//! Chains of transformations as a tree of prefixes: a value is transformed once for each distinct prefix.

use crate::transform::Transformation;

/// The number of a node: a chain of transformations.
pub(crate) type Node = u16;

/// The chain of no transformation.
pub(crate) const RAW: Node = 0;

/// All chains that rules use.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    /// Parent and transformation of each node but [`RAW`]. A parent's number is lower than its child's.
    nodes: Vec<(Node, Transformation)>,
}

impl Chains {
    /// The node of a chain; nothing beyond 65,535 of them.
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
