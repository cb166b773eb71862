//! Requests that this proxy has sent to the old proxy, and that come back to a tap of this proxy on their way to the
//! origin.

use std::collections::HashMap;
use std::sync::Arc;

use foregate_compare::{Answer, AskedRequest, Body, Outcome};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::limits::budget::BudgetShare;
use crate::random;

/// The name of the field with the id of a comparison.
pub const ID_FIELD: &[u8] = b"X-Foregate-Compare";
/// The most visits of one request that are recorded. More than one visit is already an error, so two are enough.
const VISITS_MOST: usize = 2;

/// The result of an exchange that was watched for a comparison.
#[derive(Debug)]
pub struct WatchedOutcome {
    /// The response.
    pub answer: Outcome,
    /// The body of the request as it was sent to the origin. `None`: there was none.
    pub sent: Option<Body>,
    /// True if all of that body was sent.
    pub all_sent: bool,
    /// The memory of the bodies.
    pub held: Vec<BudgetShare>,
}

/// A request of the old proxy at a tap.
#[derive(Debug)]
pub struct TapVisit {
    /// The request, without its body.
    pub request: AskedRequest,
    /// Receives the response of the origin once it is complete.
    pub ended: oneshot::Receiver<WatchedOutcome>,
}

/// The visits of one request, and how many bytes of each body are kept.
#[derive(Debug)]
struct TapVisits {
    limit: usize,
    visits: Vec<TapVisit>,
}

/// The requests under way, by the id that they carry. Their number is bounded, because the number of comparisons is.
#[derive(Debug, Default)]
pub struct Taps(Mutex<HashMap<u128, TapVisits>>);

/// A request under way. When this value is dropped, its id becomes unknown.
#[derive(Debug)]
pub struct TapPass {
    taps: Arc<Taps>,
    id: u128,
}

impl Taps {
    /// Gives a request an id that cannot be guessed.
    pub fn enter(self: &Arc<Self>, limit: usize) -> TapPass {
        let id = u128::from(random::number()) << 64 | u128::from(random::number());
        self.0.lock().insert(id, TapVisits { limit, visits: Vec::new() });
        TapPass { taps: Arc::clone(self), id }
    }

    /// The number of bytes of each body to keep, if the id belongs to a request under way.
    pub fn find(&self, id: &[u8]) -> Option<usize> {
        parse(id).and_then(|id| Some(self.0.lock().get(&id)?.limit))
    }

    /// Records that a request with this id has come to a tap.
    pub fn visit(&self, id: &[u8], visit: TapVisit) {
        if let Some(id) = parse(id)
            && let Some(passing) = self.0.lock().get_mut(&id)
            && passing.visits.len() < VISITS_MOST
        {
            passing.visits.push(visit);
        }
    }
}

/// Parses an id: exactly 32 lower-case hexadecimal digits.
fn parse(id: &[u8]) -> Option<u128> {
    let text = std::str::from_utf8(id).ok().filter(|text| text.len() == 32)?;
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).then_some(())?;
    u128::from_str_radix(text, 16).ok()
}

impl TapPass {
    /// The value of the field.
    pub fn id(&self) -> String {
        format!("{:032x}", self.id)
    }

    /// The visits so far.
    pub fn visits(&self) -> Vec<TapVisit> {
        self.taps
            .0
            .lock()
            .get_mut(&self.id)
            .map(|passing| std::mem::take(&mut passing.visits))
            .unwrap_or_default()
    }
}

impl Drop for TapPass {
    fn drop(&mut self) {
        self.taps.0.lock().remove(&self.id);
    }
}

/// A request that is served again without effect: it reaches no origin, and its response reaches no client.
#[derive(Debug)]
pub struct Replay {
    /// The response to use in place of the origin's. `None`: there is none.
    pub answer: Option<Answer>,
    /// Bytes of the body that are kept.
    pub limit: usize,
    asked: Mutex<Option<AskedRequest>>,
    ours: Mutex<Option<oneshot::Sender<WatchedOutcome>>>,
}

impl Replay {
    /// A replay. Its response is sent to `ours` at its end.
    pub fn new(answer: Option<Answer>, limit: usize, ours: oneshot::Sender<WatchedOutcome>) -> Self {
        Self { answer, limit, asked: Mutex::default(), ours: Mutex::new(Some(ours)) }
    }

    /// Records the request that an origin would get.
    pub fn asks(&self, request: AskedRequest) {
        *self.asked.lock() = Some(request);
    }

    /// The request that an origin would have got, if any.
    pub fn asked(&self) -> Option<AskedRequest> {
        self.asked.lock().take()
    }

    /// Takes the sender for the response. `None` if it was taken before.
    pub fn waiter(&self) -> Option<oneshot::Sender<WatchedOutcome>> {
        self.ours.lock().take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit() -> TapVisit {
        TapVisit { request: AskedRequest::default(), ended: oneshot::channel().1 }
    }

    #[test]
    fn ids_of_strangers_are_unknown_and_visits_are_bounded() {
        let taps = Arc::<Taps>::default();
        let (one, other) = (taps.enter(7), taps.enter(7));
        let id = one.id();
        assert!(taps.find(id.as_bytes()) == Some(7) && other.id() != id);
        for stranger in
            ["", "0", &"0".repeat(32), &id.to_uppercase().replace('0', "F"), &format!("+{}", &id[1..])]
        {
            assert!(taps.find(stranger.as_bytes()).is_none(), "{stranger}");
        }
        for _ in 0..5 {
            taps.visit(id.as_bytes(), visit());
        }
        assert_eq!((one.visits().len(), other.visits().len()), (VISITS_MOST, 0));
        drop(one);
        assert!(taps.find(id.as_bytes()).is_none());
        taps.visit(id.as_bytes(), visit());
        assert_eq!(taps.0.lock().len(), 1);
    }
}
