//! The settings of a shield: a group of proxies in which only one asks the origin for each URL.

use std::fmt;

use crate::address::ServerAddress;

/// A group of proxies, and the number of this one in it.
#[derive(Clone, PartialEq, Eq)]
pub struct ShieldSettings {
    /// The name of the group.
    pub name: Box<str>,
    /// The nodes, this one among them.
    pub nodes: Vec<ShieldNode>,
    /// The number of this node.
    pub own: usize,
    /// The secret that all nodes share.
    pub secret: Box<[u8]>,
}

/// A node of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShieldNode {
    /// Its name.
    pub name: Box<str>,
    /// The address at which the other nodes reach its listener for the group.
    pub address: ServerAddress,
}

impl ShieldSettings {
    /// The name of the upstream for a node. An operator cannot use this name in the configuration.
    pub fn upstream_name(&self, node: usize) -> String {
        let node = self.nodes.get(node).map_or("", |node| &node.name);
        format!("shield {} {node}", self.name)
    }

    /// The name of this node.
    pub fn own_name(&self) -> &str {
        self.nodes.get(self.own).map_or("", |node| &node.name)
    }
}

impl fmt::Debug for ShieldSettings {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShieldSettings")
            .field("name", &self.name)
            .field("nodes", &self.nodes)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}
