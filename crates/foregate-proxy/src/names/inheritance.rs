//! The last good addresses of names and servers of services, for a process that takes over. That process uses
//! them while its own lookups fail, and its requests do not wait for a first lookup. The format is JSON:
//! unknown fields are skipped, missing ones have their defaults.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Weak;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::message::Name;
use super::schedule::Schedule;
use super::services::ServiceSchedule;
use super::{NameKey, Resolver, ServiceServer};

/// The most names, and the most services, that are passed to another process. That process looks up further
/// ones itself.
const NAMES_MOST: usize = 20_000;

/// The schedules of names and services that come from another process.
#[derive(Debug, Default)]
pub(super) struct InheritedNames {
    names: HashMap<NameKey, (Schedule, bool)>,
    services: HashMap<NameKey, ServiceSchedule>,
}

impl InheritedNames {
    /// Removes and returns the schedule of a name, or a new one if nothing is known. The second value is true if
    /// the addresses are complete.
    pub(super) fn take_name(&mut self, key: &NameKey) -> (Schedule, bool) {
        self.names.remove(key).unwrap_or_default()
    }

    /// Takes the schedule of a service.
    pub(super) fn take_service(&mut self, key: &NameKey) -> ServiceSchedule {
        self.services.remove(key).unwrap_or_default()
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct NamesState {
    names: Vec<serde_json::Value>,
    services: Vec<serde_json::Value>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct NameState {
    host: String,
    nameservers: Option<Vec<SocketAddr>>,
    v4: Vec<IpAddr>,
    v6: Vec<IpAddr>,
    /// Milliseconds since each family was confirmed.
    age: [u64; 2],
    complete: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ServiceState {
    name: String,
    nameservers: Option<Vec<SocketAddr>>,
    servers: Vec<ServiceServerState>,
    age: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ServiceServerState {
    host: String,
    port: u16,
    rank: u16,
    weight: u16,
}

impl NameKey {
    fn of(host: &str, servers: Option<Vec<SocketAddr>>) -> Self {
        Self { host: host.into(), servers: servers.map(Into::into) }
    }
}

impl ServiceServerState {
    fn server(&self) -> Option<ServiceServer> {
        let name = Name::new(&self.host).filter(|name| name.is_host() && self.port != 0)?;
        let host = name.to_string().into();
        Some(ServiceServer { host, port: self.port, rank: self.rank, weight: self.weight })
    }
}

impl Resolver {
    /// The last good addresses of all names.
    pub fn save(&self, now: Instant) -> Vec<u8> {
        let names: Vec<_> =
            self.shared.names.lock().values().filter_map(Weak::upgrade).take(NAMES_MOST).collect();
        let names = names.into_iter().filter_map(|name| {
            let schedule = name.schedule.lock();
            let [(v4, v4_age), (v6, v6_age)] = schedule.last_good(now);
            let state = NameState {
                host: name.key.host.to_string(),
                nameservers: name.key.servers.as_deref().map(<[_]>::to_vec),
                v4: v4.to_vec(),
                v6: v6.to_vec(),
                age: [v4_age, v6_age].map(millis),
                complete: name.is_complete(),
            };
            (!v4.is_empty() || !v6.is_empty()).then(|| serde_json::to_value(state).ok())?
        });
        let services: Vec<_> =
            self.shared.services.lock().values().filter_map(Weak::upgrade).take(NAMES_MOST).collect();
        let services = services.into_iter().filter_map(|service| {
            let schedule = service.schedule.lock();
            let (servers, age) = schedule.last_good(now)?;
            let server = |server: &ServiceServer| ServiceServerState {
                host: server.host.to_string(),
                port: server.port,
                rank: server.rank,
                weight: server.weight,
            };
            let state = ServiceState {
                name: service.key.host.to_string(),
                nameservers: service.key.servers.as_deref().map(<[_]>::to_vec),
                servers: servers.iter().map(server).collect(),
                age: millis(age),
            };
            serde_json::to_value(state).ok()
        });
        let state = NamesState { names: names.collect(), services: services.collect() };
        serde_json::to_vec(&state).unwrap_or_default()
    }

    /// Takes over the addresses of another process. Names that are first resolved before [`Self::forget_inherited`] start
    /// with them.
    pub fn restore(&self, bytes: &[u8], now: Instant) {
        let state: NamesState = serde_json::from_slice(bytes).unwrap_or_default();
        let mut inherited = self.shared.inherited.lock();
        for name in state.names.into_iter().take(NAMES_MOST) {
            // A name that is not understood is skipped, and the others are kept.
            let Ok(name) = serde_json::from_value::<NameState>(name) else { continue };
            let schedule = Schedule::going_on(&name.v4, &name.v6, name.age.map(Duration::from_millis), now);
            inherited.names.insert(NameKey::of(&name.host, name.nameservers), (schedule, name.complete));
        }
        for service in state.services.into_iter().take(NAMES_MOST) {
            let Ok(service) = serde_json::from_value::<ServiceState>(service) else { continue };
            let servers = service.servers.iter().filter_map(ServiceServerState::server).collect();
            let schedule = ServiceSchedule::going_on(servers, Duration::from_millis(service.age), now);
            inherited.services.insert(NameKey::of(&service.name, service.nameservers), schedule);
        }
    }

    /// Drops the inherited addresses that no name has used.
    pub fn forget_inherited(&self) {
        *self.shared.inherited.lock() = InheritedNames::default();
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::names::schedule::{LookupOutcome, NameAddresses};
    use crate::time::clock::Clock;

    /// A resolver without a runtime: nothing is looked up.
    fn resolver() -> Resolver {
        Resolver::new(Arc::default(), Clock::default())
    }

    const ADDRESSES: [IpAddr; 2] =
        [IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)];

    fn found() -> LookupOutcome {
        let [v4, v6] = ADDRESSES;
        LookupOutcome::Found(NameAddresses {
            v4: Some(vec![v4]),
            v6: Some(vec![v6]),
            valid_for: Duration::from_secs(60),
            complete: true,
            doubt: None,
        })
    }

    #[test]
    fn the_last_good_addresses_are_known_to_the_next_process_for_the_rest_of_their_time() {
        let (old, now) = (resolver(), Instant::now());
        let nameserver: Arc<[SocketAddr]> = [SocketAddr::from(([127, 0, 0, 1], 53))].into();
        let name = old.resolve("app.test", Some(&nameserver));
        let _unknown = old.resolve("other.test", None);
        name.schedule.lock().next(now, found(), 0);
        let state = old.save(now + Duration::from_secs(3000));
        let new = resolver();
        new.restore(&state, now + Duration::from_secs(3000));
        assert_eq!(new.resolve("app.test", None).addresses(), None, "other nameservers");
        let mut schedule = {
            let known = new.resolve("app.test", Some(&nameserver));
            assert_eq!(known.addresses().map(|known| known.len()), Some(2));
            known.schedule.lock().clone()
        };
        let failed = || LookupOutcome::Failed("SERVFAIL".to_owned());
        let later = |seconds: u64| now + Duration::from_secs(3000 + seconds);
        let known = |schedule: &mut Schedule, seconds: u64| {
            schedule.next(later(seconds), failed(), 0);
            schedule.addresses(later(seconds)).len()
        };
        assert_eq!((known(&mut schedule, 599), known(&mut schedule, 601)), (2, 0), "an hour in all");
        let late = resolver();
        late.restore(&state, now);
        late.forget_inherited();
        assert_eq!(late.resolve("app.test", Some(&nameserver)).addresses(), None);
    }

    #[test]
    fn servers_of_services_are_known_to_the_next_process() {
        let now = Instant::now();
        let new = resolver();
        let state = br#"{"services": [{"name": "_http._tcp.app.test", "age": 5, "servers": [
            {"host": "a.test.", "port": 80, "weight": 3}, {"host": "a b", "port": 80}, {"host": "c.test.", "port": 0}]}]}"#;
        new.restore(state, now);
        let service = new.service("_http._tcp.app.test", None);
        let known = service.servers().unwrap();
        assert_eq!((known.len(), &*known[0].host, known[0].port), (1, "a.test.", 80));
        let again = resolver();
        again.restore(&new.save(now), now);
        assert_eq!(again.service("_http._tcp.app.test", None).servers(), Some(known));
    }

    proptest! {
        #[test]
        fn any_bytes_are_restored_without_a_panic(bytes: Vec<u8>, age: u64, host: String, port: u16) {
            let (new, now) = (resolver(), Instant::now());
            new.restore(&bytes, now);
            let state = serde_json::json!({
                "names": [7, { "host": host, "v4": ADDRESSES, "v6": ADDRESSES, "age": [age, age] }],
                "services": [{ "name": host, "age": age, "servers": [{ "host": host, "port": port }] }, []],
            });
            new.restore(state.to_string().as_bytes(), now);
            let _ = (new.resolve(&host, None).addresses(), new.service(&host, None).servers());
            new.save(now);
        }
    }
}
