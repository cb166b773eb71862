//! The servers of services: in a running upstream, each `srv:` entry is replaced by the servers that the
//! SRV records name.

use std::sync::Arc;
use std::time::Duration;

use crate::address::ServerAddress;
use crate::names::{Resolver, Service, ServiceServer};
use crate::settings::{self, ServerSettings};

/// The largest weight of a server.
const WEIGHT_MOST: u32 = 1000;

/// The servers of a service; `None` if they are not known yet.
type KnownServers = Option<Arc<[ServiceServer]>>;

/// A snapshot of the servers of an upstream.
#[derive(Debug, Default)]
pub(super) struct PresentServers {
    /// The servers, with those of services in place of the `srv:` entries.
    pub(super) servers: Vec<ServerSettings>,
    /// The rank of each server; 0 is the most preferred. Empty if all servers have rank 0.
    pub(super) ranks: Vec<u16>,
    /// The services, each with the servers that were known at that time.
    services: Vec<(Arc<Service>, KnownServers)>,
}

impl PresentServers {
    /// The servers that are known now.
    pub(super) fn new(settings: &settings::UpstreamSettings, resolver: &Resolver) -> Self {
        let mut expanded = Self::default();
        for server in &settings.servers {
            let ServerAddress::Service(name) = &server.address else {
                expanded.servers.push(server.clone());
                expanded.ranks.push(0);
                continue;
            };
            let service = resolver.service(name, settings.resolver.as_ref());
            let known = service.servers();
            for of_service in known.iter().flat_map(|known| known.iter()) {
                let (host, port) = (Arc::clone(&of_service.host), of_service.port);
                let address = ServerAddress::Name { host, port };
                let is_known = |other: &ServerSettings| other.address == address;
                // A server may be configured directly as well, or belong to two services. It is
                // listed once.
                if expanded.servers.iter().any(is_known) {
                    continue;
                }
                let of_rank = known.iter().flat_map(|known| known.iter());
                let of_rank = of_rank.filter(|other| other.rank == of_service.rank);
                let largest = of_rank.map(|other| other.weight).max().unwrap_or_default();
                let weight =
                    scaled(of_service.weight, largest).saturating_mul(server.weight).min(WEIGHT_MOST);
                let mut of_known = server.clone();
                (of_known.address, of_known.weight) = (address, weight);
                expanded.servers.push(of_known);
                expanded.ranks.push(of_service.rank);
            }
            expanded.services.push((service, known));
        }
        if expanded.ranks.iter().all(|rank| *rank == 0) {
            expanded.ranks.clear();
        }
        expanded
    }

    /// Returns true if the services still have the servers of the snapshot.
    pub(super) fn is_current(&self) -> bool {
        self.services.iter().all(|(service, known)| service.servers() == *known)
    }

    /// Waits at most `limit` for the first lookups of services.
    pub(super) async fn looked_up(&self, limit: Duration) {
        let all = self.services.iter().map(|(service, _)| service.looked_up());
        // Later answers are used when they arrive.
        let _ = tokio::time::timeout(limit, futures_util::future::join_all(all)).await;
    }

    /// Makes the resolver look up services again soon if they have no servers. Returns true if there are
    /// any services.
    pub(super) fn want(&self) -> bool {
        self.services.iter().for_each(|(service, _)| service.want());
        !self.services.is_empty()
    }
}

/// Scales a weight of up to 65,535 to the range of configured weights. A weight of 0 becomes the smallest
/// weight, because RFC 2782 gives such a server a small chance.
fn scaled(weight: u16, largest: u16) -> u32 {
    let (weight, largest) = (u32::from(weight), u32::from(largest));
    let scaled = if largest > WEIGHT_MOST { weight * WEIGHT_MOST / largest } else { weight };
    scaled.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_keep_their_ratios_within_our_bounds() {
        assert_eq!([0, 1, 5, 1000].map(|weight| scaled(weight, 1000)), [1, 1, 5, 1000]);
        assert_eq!([0, 100, 32_768, 65_535].map(|weight| scaled(weight, 65_535)), [1, 1, 500, 1000]);
        assert_eq!(scaled(0, 0), 1);
    }
}
