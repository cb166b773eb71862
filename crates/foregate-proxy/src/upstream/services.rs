//! Servers of services: in an upstream at work, those that the SRV records name replace each
//! `srv:`.

use std::sync::Arc;
use std::time::Duration;

use crate::address::ServerAddress;
use crate::names::{Resolver, Service, ServiceServer};
use crate::settings::{self, ServerSettings};

/// The largest weight of a server.
const WEIGHT_MOST: u32 = 1000;

/// The servers that are known of a service, if any are.
type KnownServers = Option<Arc<[ServiceServer]>>;

/// The servers of an upstream, as they are at one time.
#[derive(Debug, Default)]
pub(super) struct PresentServers {
    /// With the servers of services instead.
    pub(super) servers: Vec<ServerSettings>,
    /// The rank of each, 0 for those that are preferred. Empty where all have the same.
    pub(super) ranks: Vec<u16>,
    /// The services, and the servers of each that were known.
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
                // A server that is configured next to its service, or is in two services, is one
                // server.
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

    /// Returns true if the services still have the known servers.
    pub(super) fn is_current(&self) -> bool {
        self.services.iter().all(|(service, known)| service.servers() == *known)
    }

    /// Waits for the first lookups of services to end, `limit` at most.
    pub(super) async fn looked_up(&self, limit: Duration) {
        let all = self.services.iter().map(|(service, _)| service.looked_up());
        // Later answers are used when they arrive.
        let _ = tokio::time::timeout(limit, futures_util::future::join_all(all)).await;
    }

    /// Has services without servers looked up again soon. Returns true if there is one.
    pub(super) fn want(&self) -> bool {
        self.services.iter().for_each(|(service, _)| service.want());
        !self.services.is_empty()
    }
}

/// Scales a weight of up to 65,535 to the range of configured weights. A weight of 0 becomes the
/// least (RFC 2782 gives it a small chance).
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
