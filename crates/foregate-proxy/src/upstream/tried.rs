//! Which servers a request has tried.

/// The servers that a request has tried, in order.
///
/// Nearly every request tries one, so the last one is held without an allocation.
#[derive(Debug, Default)]
pub struct TriedServers {
    last: Option<usize>,
    before: Vec<usize>,
}

impl TriedServers {
    /// Adds the server that is tried now.
    pub fn push(&mut self, server: usize) {
        if let Some(last) = self.last.replace(server) {
            self.before.push(last);
        }
    }

    /// The last server that was tried.
    pub fn last(&self) -> Option<usize> {
        self.last
    }

    /// Returns true if `server` has been tried.
    pub fn contains(&self, server: usize) -> bool {
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
