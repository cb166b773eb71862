//! Admission of names for which a handshake demands a certificate although no site lists them. The checks
//! are a list of patterns, a request to the operator's `ask` address, and a rate limit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foregate_proxy::settings::automatic::OnDemand;
use parking_lot::Mutex;

use crate::http::Client;
use crate::names::{is_host_name, matches};

/// The most refused names that are remembered. When there are more, the expired ones are forgotten, and
/// if that does not suffice, all of them.
const REFUSED_MOST: usize = 10_000;
/// How long a name is refused without another request to the `ask` address.
const REFUSED_FOR: Duration = Duration::from_secs(30);
/// The rate of requests to the `ask` address is this many times the rate of orders: attackers send many
/// names, and the operator's server refuses most of them.
const QUESTIONS: u32 = 10;

/// Decides which names may get a certificate on demand.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    refused: Mutex<HashMap<String, Instant>>,
    orders: Mutex<Option<Bucket>>,
    questions: Mutex<Option<Bucket>>,
}

/// The decision whether a name may have a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// The name may have a certificate.
    Yes,
    /// The name may have no certificate.
    Refused,
    /// The rate limit is exhausted.
    Limited,
}

impl Admission {
    /// Decides if an order for this name may begin.
    pub(crate) async fn admit(&self, on_demand: &OnDemand, name: &str) -> Admitted {
        if !is_host_name(name) || !name.contains('.') || self.was_refused(name, Instant::now()) {
            return Admitted::Refused;
        }
        let allowed = self.is_allowed(on_demand, name).await;
        if allowed == Admitted::Yes && !take(&self.orders, on_demand, 1, Instant::now()) {
            return Admitted::Limited;
        }
        allowed
    }

    /// Decides like [`Self::admit`] without counting an order: for a renewal.
    pub(crate) async fn is_allowed(&self, on_demand: &OnDemand, name: &str) -> Admitted {
        if on_demand.names.iter().any(|pattern| matches(pattern, name)) {
            return Admitted::Yes;
        }
        let Some(address) = &on_demand.ask else { return Admitted::Refused };
        if !take(&self.questions, on_demand, QUESTIONS, Instant::now()) {
            return Admitted::Limited;
        }
        match ask(address, name).await {
            Ok(true) => Admitted::Yes,
            Ok(false) => {
                self.refuse(name, Instant::now());
                Admitted::Refused
            }
            Err(error) => {
                tracing::warn!(%error, address, "the address that is asked about names does not answer");
                Admitted::Limited
            }
        }
    }

    fn was_refused(&self, name: &str, now: Instant) -> bool {
        self.refused.lock().get(name).is_some_and(|since| is_recent(*since, now))
    }

    /// Remembers for a while that a name gets no certificate.
    pub(crate) fn refuse(&self, name: &str, now: Instant) {
        let mut refused = self.refused.lock();
        if refused.len() >= REFUSED_MOST {
            refused.retain(|_, since| is_recent(*since, now));
        }
        if refused.len() >= REFUSED_MOST {
            refused.clear();
        }
        refused.insert(name.to_owned(), now);
    }
}

fn is_recent(refused: Instant, now: Instant) -> bool {
    now.saturating_duration_since(refused) < REFUSED_FOR
}

/// Asks the operator's server whether a name may have a certificate.
async fn ask(address: &str, name: &str) -> Result<bool, String> {
    let separator = if address.contains('?') { '&' } else { '?' };
    // A host name needs no percent-encoding.
    let address = format!("{address}{separator}domain={name}");
    let client = Client::new(None).map_err(|error| error.to_string())?;
    let status = client.get(&address).await.map_err(|error| error.to_string())?;
    Ok((200..300).contains(&status))
}

/// A token bucket.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// Takes a token, if there is one. Over `per`, `times` the rate of orders may be taken.
fn take(bucket: &Mutex<Option<Bucket>>, on_demand: &OnDemand, times: u32, now: Instant) -> bool {
    let most = f64::from(on_demand.rate) * f64::from(times);
    let mut bucket = bucket.lock();
    let bucket = bucket.get_or_insert_with(|| Bucket { tokens: most, at: now });
    let passed = now.saturating_duration_since(bucket.at);
    bucket.at += passed;
    bucket.tokens =
        (bucket.tokens + most * passed.as_secs_f64() / on_demand.per.as_secs_f64().max(0.001)).min(most);
    let is_there = bucket.tokens >= 1.0;
    if is_there {
        bucket.tokens -= 1.0;
    }
    is_there
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_demand() -> OnDemand {
        OnDemand { names: vec!["*.example".to_owned()], ask: None, rate: 3, per: Duration::from_secs(3600) }
    }

    #[tokio::test]
    async fn orders_are_limited_and_strangers_refused() {
        let (admission, on_demand) = (Admission::default(), on_demand());
        for name in ["a.test", "example", "*.example", "A.example", "a..example", ""] {
            assert_eq!(admission.admit(&on_demand, name).await, Admitted::Refused, "{name}");
        }
        let mut admitted = 0;
        for number in 0..1000 {
            admitted +=
                u32::from(admission.admit(&on_demand, &format!("n{number}.example")).await == Admitted::Yes);
        }
        assert_eq!(admitted, 3);
        admission.refuse("b.example", Instant::now());
        assert_eq!(admission.admit(&on_demand, "b.example").await, Admitted::Refused);
    }

    #[test]
    fn tokens_come_back_evenly_and_no_more_than_the_rate() {
        let (bucket, on_demand, start) = (Mutex::default(), on_demand(), Instant::now());
        let taken = |minutes: u64| {
            let now = start + Duration::from_mins(minutes);
            (0..10).filter(|_| take(&bucket, &on_demand, 1, now)).count()
        };
        assert_eq!([0, 19, 20, 40, 80, 1000].map(taken), [3, 0, 1, 1, 2, 3]);
    }

    #[test]
    fn a_refusal_is_remembered_for_a_while() {
        let (admission, start) = (Admission::default(), Instant::now());
        admission.refuse("b.example", start);
        let end = start + REFUSED_FOR;
        assert!(admission.was_refused("b.example", end - Duration::from_millis(1)));
        assert!(!admission.was_refused("b.example", end) && !admission.was_refused("c.example", start));
    }

    #[test]
    fn refused_names_are_bounded() {
        let (admission, now) = (Admission::default(), Instant::now());
        for number in 0..=REFUSED_MOST {
            admission.refuse(&number.to_string(), now);
        }
        assert!(admission.refused.lock().len() <= REFUSED_MOST);
    }
}
