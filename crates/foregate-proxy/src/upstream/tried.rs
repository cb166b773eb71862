//! Which servers a request has tried.

/// The servers that a request has tried, in order.
///
/// Nearly every request tries only one server, so the last one is stored without an allocation.
#[derive(Debug, Default)]
pub struct TriedServers {
    last: Option<ServerNumber>,
    before: Vec<ServerNumber>,
}

/// The number of a server in its upstream. It takes half of the memory of a `usize`, because each request in flight
/// holds several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerNumber(u32);

impl ServerNumber {
    /// The number of this server.
    pub fn new(server: usize) -> Self {
        Self(u32::try_from(server).unwrap_or(u32::MAX))
    }

    /// The number as an index.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

impl TriedServers {
    /// Adds the server that is tried now.
    pub fn push(&mut self, server: usize) {
        if let Some(last) = self.last.replace(ServerNumber::new(server)) {
            self.before.push(last);
        }
    }

    /// Adds a server that is tried beside the last one, which stays the last.
    pub fn push_beside(&mut self, server: usize) {
        self.before.push(ServerNumber::new(server));
    }

    /// The last server that was tried.
    pub fn last(&self) -> Option<usize> {
        self.last.map(ServerNumber::get)
    }

    /// Returns true if `server` has been tried.
    pub fn contains(&self, server: usize) -> bool {
        let server = ServerNumber::new(server);
        self.last == Some(server) || self.before.contains(&server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_that_was_tried_is_known() {
        let mut tried = TriedServers::default();
        assert!(tried.last().is_none() && !tried.contains(0));
        for server in [2, 0, 2] {
            tried.push(server);
            assert_eq!(tried.last(), Some(server));
            assert!(tried.contains(server) && tried.contains(2) && !tried.contains(1));
        }
    }
}
