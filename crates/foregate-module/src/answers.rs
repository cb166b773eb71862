//! A store of answers to fetches, which platforms keep for later requests.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::fetch::{FetchRequest, FetchResponse, FetchResult};
use crate::fields::Field;
use crate::text::Text;

/// The largest body of an answer that is kept, bytes.
const BODY_LIMIT: usize = 1 << 20;
/// The time for which a failure, or a response with another status than 200, serves equal fetches.
const FAILURE: Duration = Duration::from_secs(1);

/// The key of a kept answer: all parts of a fetch that have to be equal for the answer to be reused. `W` is the server
/// that is asked.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct AnswerKey<W> {
    whom: W,
    authority: Vec<u8>,
    method: Vec<u8>,
    path: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

impl<W> AnswerKey<W> {
    /// The key of a fetch. `authority` is the host of the fetch, or the platform's default if the fetch names none.
    pub fn new(whom: W, authority: &[u8], ask: &FetchRequest) -> Self {
        let field = |field: &Field| (field.name().to_ascii_lowercase(), field.value().to_vec());
        Self {
            whom,
            authority: authority.to_vec(),
            method: ask.method.to_vec(),
            path: ask.path.to_vec(),
            fields: ask.fields.iter().map(field).collect(),
            body: ask.body.to_vec(),
        }
    }
}

impl<W: fmt::Debug> fmt::Debug for AnswerKey<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Clients' credentials may be among the fields.
        f.debug_struct("AnswerKey").field("whom", &self.whom).finish_non_exhaustive()
    }
}

/// The kept answers for one key. The fetch decides how long they are used ([`FetchRequest::keep`],
/// [`FetchRequest::renew_after`]). All times are those of a monotonic clock.
#[derive(Debug, Default)]
pub struct KeptAnswers {
    /// The last [good](FetchRequest::is_good) answer, and the time of its arrival.
    good: Option<(Duration, FetchResponse)>,
    /// The result of the latest fetch if it was not good, and the time of its arrival.
    other: Option<(Duration, FetchResult)>,
}

impl KeptAnswers {
    /// The most keys for which a platform keeps answers. Beyond this number, the least fresh answer is dropped.
    pub const QUESTIONS: usize = 256;

    /// The time at which the good answer arrived; zero without one. If there are too many keys, the one with the earliest
    /// time is dropped.
    pub fn fresh_since(&self) -> Duration {
        self.good.as_ref().map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// Returns true if nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.good.is_none() && self.other.is_none()
    }

    /// The kept answer that can be used without a new fetch, if there is one.
    pub fn known(&self, ask: &FetchRequest, now: Duration) -> Option<FetchResult> {
        if let Some((at, answer)) = &self.good {
            let age = now.saturating_sub(*at);
            // If fetching a newer answer has failed recently, the kept answer is used, and no fetch is made yet.
            let is_new = |after: Duration| {
                let failed = self.other.as_ref().is_some_and(|(at, _)| now.saturating_sub(*at) < after);
                age < after || failed
            };
            if age < ask.keep && ask.renew_after.is_none_or(is_new) {
                return Some(Ok(answer.clone()));
            }
        }
        let (at, other) = self.other.as_ref()?;
        let is_new = now.saturating_sub(*at) < FAILURE;
        is_new.then(|| self.stale(ask, now).map_or_else(|| other.clone(), Ok))
    }

    /// Keeps an answer that has arrived, unless it is too large. Returns this answer, or an older one if the fetch failed.
    pub fn keep(&mut self, ask: &FetchRequest, mut result: FetchResult, now: Duration) -> FetchResult {
        let mut fits = true;
        if let Ok(answer) = &mut result {
            fits = answer.body.len() <= BODY_LIMIT;
            if fits {
                // The body is shared, because every use of the answer copies it.
                let body = core::mem::replace(&mut answer.body, Text::EMPTY);
                answer.body = Text::Shared(Vec::from(body).into());
            }
        }
        self.other = None;
        match &result {
            Ok(answer) if ask.is_good(answer) => {
                self.good = fits.then(|| (now, answer.clone()));
                return result;
            }
            _ => self.other = fits.then(|| (now, result.clone())),
        }
        let stale = if ask.has_failed(&result) { self.stale(ask, now) } else { None };
        stale.map_or(result, Ok)
    }

    /// The good answer, if it has not expired or has expired only recently.
    pub fn stale(&self, ask: &FetchRequest, now: Duration) -> Option<FetchResponse> {
        let (at, answer) = self.good.as_ref()?;
        (now.saturating_sub(*at) < ask.keep.saturating_mul(2)).then(|| answer.clone())
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::fetch::{FetchError, Usable};
    use crate::ids::UpstreamId;

    fn ask() -> FetchRequest {
        FetchRequest { keep: Duration::from_secs(10), ..FetchRequest::get(UpstreamId(0), "/keys") }
    }

    fn answer(status: u16, size: usize) -> FetchResult {
        Ok(FetchResponse { status, fields: Vec::new(), body: [b'a'].repeat(size).into() })
    }

    fn after(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_good_answer_serves_until_its_time_is_over_and_once_more_while_asking_fails() {
        let (mut answers, ask) = (KeptAnswers::default(), ask());
        assert_eq!((answers.known(&ask, after(0)), answers.is_empty()), (None, true));
        assert_eq!(answers.keep(&ask, answer(200, 1), after(1000)), answer(200, 1));
        assert_eq!(answers.fresh_since(), after(1000));
        assert_eq!(answers.known(&ask, after(10_999)), Some(answer(200, 1)));
        assert_eq!(answers.known(&ask, after(11_000)), None);
        let failed = Err(FetchError::Timeout);
        assert_eq!(answers.keep(&ask, failed.clone(), after(12_000)), answer(200, 1));
        assert_eq!(answers.known(&ask, after(12_999)), Some(answer(200, 1)), "nobody asks again at once");
        assert_eq!(answers.known(&ask, after(13_000)), None);
        assert_eq!(answers.keep(&ask, answer(503, BODY_LIMIT + 1), after(13_000)), answer(200, 1));
        assert_eq!(answers.keep(&ask, answer(404, 2), after(14_000)), answer(404, 2));
        assert_eq!(answers.keep(&ask, failed.clone(), after(21_000)), failed);
        assert_eq!(answers.known(&ask, after(21_999)), Some(failed));
    }

    #[test]
    fn a_newer_answer_is_asked_for_while_the_old_one_serves() {
        let mut answers = KeptAnswers::default();
        let ask = FetchRequest { keep: Duration::from_secs(300), ..ask() };
        let renewing = FetchRequest { renew_after: Some(Duration::from_secs(10)), ..ask.clone() };
        let after = Duration::from_secs;
        let _ = answers.keep(&ask, answer(200, 1), after(0));
        assert_eq!(answers.known(&renewing, after(9)), Some(answer(200, 1)));
        assert_eq!(answers.known(&renewing, after(10)), None);
        assert_eq!(answers.known(&ask, after(10)), Some(answer(200, 1)));
        // The fetch failed.
        assert_eq!(answers.keep(&renewing, answer(503, 2), after(11)), answer(200, 1));
        assert_eq!(answers.known(&renewing, after(20)), Some(answer(200, 1)));
        assert_eq!(answers.known(&renewing, after(21)), None);
        let _ = answers.keep(&renewing, answer(200, 3), after(22));
        assert_eq!(answers.known(&renewing, after(31)), Some(answer(200, 3)));
    }

    #[test]
    fn what_is_too_large_is_not_kept_whatever_its_status() {
        let ask = ask();
        for status in [200, 403, 502] {
            let mut answers = KeptAnswers::default();
            let large = answer(status, BODY_LIMIT + 1);
            assert_eq!(answers.keep(&ask, large.clone(), after(1)), large);
            assert!(answers.is_empty(), "{status}");
            let kept = answers.keep(&ask, answer(status, BODY_LIMIT), after(1)).unwrap();
            assert!(matches!(kept.body, Text::Shared(_)) && !answers.is_empty(), "{status}");
            assert_eq!(answers.keep(&ask, large.clone(), after(1)), large);
            assert!(answers.is_empty(), "{status}: what came before goes");
        }
    }

    #[test]
    fn what_cannot_be_used_is_a_failure() {
        let ask = FetchRequest { usable: Usable(|body| body.len() < 3), ..ask() };
        let mut answers = KeptAnswers::default();
        assert_eq!(answers.keep(&ask, answer(200, 4), after(0)), answer(200, 4), "there is nothing else");
        assert_eq!(answers.keep(&ask, answer(200, 1), after(0)), answer(200, 1));
        assert_eq!(answers.keep(&ask, answer(200, 4), ask.keep), answer(200, 1));
        assert_eq!(answers.keep(&ask, answer(200, 2), ask.keep), answer(200, 2));
    }

    #[test]
    fn questions_hide_their_fields() {
        let fields = Vec::from([Field::new("authorization", "secret").unwrap()]);
        let ask = FetchRequest { fields, body: "secret".into(), ..ask() };
        let shown = format!("{:?} {ask:?}", AnswerKey::new("app", b"localhost", &ask));
        assert!(shown.contains("app") && shown.contains("authorization"), "{shown}");
        assert!(!shown.contains("secret") && !shown.contains("115, 101, 99"), "{shown}");
    }

    #[test]
    fn names_of_fields_are_compared_without_their_case() {
        let question = |name: &'static str| {
            let fields = Vec::from([Field::new(name, "a").unwrap()]);
            AnswerKey::new(0, b"", &FetchRequest { fields, ..ask() })
        };
        assert_eq!(question("X-A"), question("x-a"));
        assert_ne!(question("x-a"), question("x-b"));
        assert_ne!(AnswerKey::new(0, b"", &ask()), AnswerKey::new(1, b"", &ask()));
        assert_ne!(AnswerKey::new(0, b"", &ask()), AnswerKey::new(0, b"a", &ask()));
    }
}
