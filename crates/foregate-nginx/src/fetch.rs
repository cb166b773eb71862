//! What steps and filters want to have fetched: NGINX makes subrequests of it, and answers are kept in each worker.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use foregate_module::{FetchError, FetchRequest, FetchResponse, FetchResult, FetchTarget, Field, Text};

use crate::ffi::Host;
use crate::target;

/// Questions whose answers are kept. Beyond, the one that is least fresh goes.
const KEPT: usize = 256;
/// The largest answer that is kept, bytes of its body.
const KEPT_BODY: usize = 1 << 20;
/// How long an answer other than 200, or a failure, is kept for those who ask the same, milliseconds.
const KEPT_FAILURE: u64 = 1000;

/// For whom something is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// A step; the answer goes into the slot that belongs to this one. Only steps in a dry run see it if a step in one
    /// has asked.
    Step { slot: u16, dry: bool },
    /// A filter of the response's body.
    Filter,
}

/// A request that is to be made, and what has come of it.
pub(crate) struct Asked {
    pub whom: For,
    pub request: FetchRequest,
    /// The path of the subrequest: decoded, without the prefix of the upstream.
    pub path: Vec<u8>,
    pub args: Vec<u8>,
    /// The field `host`.
    pub authority: Vec<u8>,
    /// Where the answer is to be kept.
    question: Option<Question>,
    body: Vec<u8>,
    answer: Option<FetchResult>,
}

/// What has to be the same for an answer to serve again.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    /// The server of NGINX and the prefix within it: a name may mean another location elsewhere.
    place: (u64, Vec<u8>),
    authority: Vec<u8>,
    method: Vec<u8>,
    path: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What clients authenticate themselves with may be among the fields.
        f.debug_struct("Question").field("place", &self.place).finish_non_exhaustive()
    }
}

/// The answers that are kept for the requests of a worker.
#[derive(Debug, Default, Clone)]
pub(crate) struct Answers(Rc<RefCell<HashMap<Question, Kept>>>);

#[derive(Debug, Default)]
struct Kept {
    /// The last answer with 200, and when it came.
    good: Option<(u64, FetchResponse)>,
    /// What came instead last, and when.
    other: Option<(u64, FetchResult)>,
}

impl Asked {
    /// A request that is to be made at `now`; it is answered at once where it cannot be made, or where an answer was
    /// kept. `authority` is that of the client's request.
    pub(crate) fn new(
        whom: For,
        request: FetchRequest,
        host: Host<'_>,
        authority: &str,
        answers: &Answers,
        now: u64,
    ) -> Self {
        let keeps = !request.keep.is_zero();
        let (path, args) = split(&request.path);
        // What serves other clients must not depend on what this one has put into its Host.
        let authority = match &request.authority {
            Some(authority) => authority.to_vec(),
            None if keeps => b"localhost".to_vec(),
            None => authority.as_bytes().to_vec(),
        };
        let place = host.place(upstream(&request));
        let decoded = target::normal_path(path).map(|path| target::decoded(&path));
        let mut asked = Self {
            whom,
            path: decoded.unwrap_or_default(),
            args: args.to_vec(),
            authority,
            question: None,
            body: Vec::new(),
            answer: None,
            request,
        };
        match place {
            Some(place) if is_plain(&asked.path) => {
                if keeps {
                    let question = asked.question(place);
                    asked.answer = answers.fresh(&question, &asked.request, now);
                    asked.question = Some(question);
                }
            }
            _ => asked.answer = Some(Err(FetchError::BadRequest)),
        }
        asked
    }

    fn question(&self, place: (u64, Vec<u8>)) -> Question {
        let field = |field: &Field| (field.name().to_ascii_lowercase(), field.value().to_vec());
        Question {
            place,
            authority: self.authority.clone(),
            method: self.request.method.to_vec(),
            path: self.request.path.to_vec(),
            fields: self.request.fields.iter().map(field).collect(),
            body: self.request.body.to_vec(),
        }
    }

    /// Whom to ask: the number of an upstream, or none for the site itself.
    pub(crate) fn upstream(&self) -> Option<u32> {
        upstream(&self.request)
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// Takes a part of the answer's body; false when it has become too large.
    pub(crate) fn receive(&mut self, part: &[u8]) -> bool {
        if self.body.len() + part.len() > self.request.limit {
            self.body = Vec::new();
            return false;
        }
        self.body.extend_from_slice(part);
        true
    }

    /// Takes the answer without its body, which has been received, or why there is none.
    pub(crate) fn settle(
        &mut self,
        result: Result<(u16, Vec<Field>), FetchError>,
        answers: &Answers,
        now: u64,
    ) {
        if self.answer.is_some() {
            return;
        }
        let body = std::mem::take(&mut self.body).into();
        let result = result.map(|(status, fields)| FetchResponse { status, fields, body });
        self.answer = Some(match self.question.take() {
            Some(question) => answers.keep(question, &self.request, result, now),
            None => result,
        });
    }

    /// The answer.
    pub(crate) fn into_answer(self) -> FetchResult {
        self.answer.unwrap_or(Err(FetchError::Connection))
    }
}

fn upstream(request: &FetchRequest) -> Option<u32> {
    match request.target {
        FetchTarget::Upstream(upstream) => Some(upstream.0),
        FetchTarget::Site => None,
    }
}

/// Path and query.
fn split(target: &[u8]) -> (&[u8], &[u8]) {
    match target.iter().position(|byte| *byte == b'?') {
        Some(at) => (&target[..at], target.get(at + 1..).unwrap_or_default()),
        None => (target, &[]),
    }
}

/// Whether a decoded path leads where it seems to: an encoded slash, which the normal form keeps, could have hidden dots
/// that lead out of the location, and files have no names with NUL.
fn is_plain(path: &[u8]) -> bool {
    path.starts_with(b"/")
        && !path.contains(&0)
        && !path.split(|byte| *byte == b'/').any(|segment| segment == b".." || segment == b".")
}

impl Answers {
    /// The answer to a question, if one is kept and still fresh.
    fn fresh(&self, question: &Question, ask: &FetchRequest, now: u64) -> Option<FetchResult> {
        let kept = self.0.borrow();
        let kept = kept.get(question)?;
        let age = |at: u64| u128::from(now.saturating_sub(at));
        if let Some((at, answer)) = &kept.good
            && age(*at) < ask.keep.as_millis()
        {
            return Some(Ok(answer.clone()));
        }
        let (_, other) = kept.other.as_ref().filter(|(at, _)| now.saturating_sub(*at) < KEPT_FAILURE)?;
        Some(kept.stale(ask, now).map_or_else(|| other.clone(), Ok))
    }

    /// Keeps what came of a question, unless it is too large; gives what is to be said instead, if that is an older answer.
    fn keep(&self, question: Question, ask: &FetchRequest, mut result: FetchResult, now: u64) -> FetchResult {
        let mut all = self.0.borrow_mut();
        let mut fits = true;
        if let Ok(answer) = &mut result {
            fits = answer.body.len() <= KEPT_BODY;
            if fits {
                // Shared, because every request copies it.
                let body = std::mem::replace(&mut answer.body, Text::EMPTY);
                answer.body = Text::Shared(Vec::from(body).into());
            }
        }
        if !all.contains_key(&question) {
            if !fits {
                return result;
            }
            if all.len() >= KEPT {
                let came = |kept: &Kept| kept.good.as_ref().map_or(0, |(at, _)| *at);
                let oldest =
                    all.iter().min_by_key(|(_, kept)| came(kept)).map(|(question, _)| question.clone());
                if let Some(oldest) = oldest {
                    all.remove(&oldest);
                }
            }
        }
        let kept = all.entry(question).or_default();
        kept.other = None;
        match &result {
            Ok(answer) if ask.is_good(answer) => {
                kept.good = fits.then(|| (now, answer.clone()));
                return result;
            }
            _ => kept.other = fits.then(|| (now, result.clone())),
        }
        let stale = if ask.has_failed(&result) { kept.stale(ask, now) } else { None };
        stale.map_or(result, Ok)
    }
}

impl Kept {
    /// A good answer whose time is over, but not long since.
    fn stale(&self, ask: &FetchRequest, now: u64) -> Option<FetchResponse> {
        let (at, answer) = self.good.as_ref()?;
        (u128::from(now.saturating_sub(*at)) < ask.keep.as_millis() * 2).then(|| answer.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use foregate_module::UpstreamId;

    use super::*;

    fn ask() -> FetchRequest {
        FetchRequest { keep: Duration::from_secs(10), ..FetchRequest::get(UpstreamId(0), "/keys") }
    }

    fn question(number: u64) -> Question {
        Question {
            place: (number, b"/@keys/".to_vec()),
            authority: b"localhost".to_vec(),
            method: b"GET".to_vec(),
            path: b"/keys".to_vec(),
            fields: Vec::new(),
            body: Vec::new(),
        }
    }

    fn answer(status: u16, body: &str) -> FetchResult {
        Ok(FetchResponse { status, fields: Vec::new(), body: body.to_owned().into() })
    }

    #[test]
    fn a_good_answer_serves_until_its_time_is_over_and_once_more_while_asking_fails() {
        let (answers, ask) = (Answers::default(), ask());
        assert_eq!(answers.fresh(&question(1), &ask, 0), None);
        assert_eq!(answers.keep(question(1), &ask, answer(200, "a"), 1000), answer(200, "a"));
        assert_eq!(answers.fresh(&question(1), &ask, 10_999), Some(answer(200, "a")));
        assert_eq!(answers.fresh(&question(2), &ask, 1000), None, "another server");
        assert_eq!(answers.fresh(&question(1), &ask, 11_000), None);
        let failed = Err(FetchError::Timeout);
        assert_eq!(answers.keep(question(1), &ask, failed.clone(), 12_000), answer(200, "a"));
        assert_eq!(
            answers.fresh(&question(1), &ask, 12_999),
            Some(answer(200, "a")),
            "nobody asks again at once"
        );
        assert_eq!(answers.fresh(&question(1), &ask, 13_000), None);
        assert_eq!(answers.keep(question(1), &ask, answer(404, "gone"), 14_000), answer(404, "gone"));
        assert_eq!(answers.keep(question(1), &ask, failed.clone(), 21_000), failed);
        assert_eq!(answers.fresh(&question(1), &ask, 21_999), Some(failed));
    }

    #[test]
    fn what_is_too_large_is_not_kept_whatever_its_status() {
        let ask = ask();
        for status in [200, 403, 502] {
            let answers = Answers::default();
            let large = answer(status, &"a".repeat(KEPT_BODY + 1));
            assert_eq!(answers.keep(question(1), &ask, large.clone(), 1), large);
            assert_eq!(answers.fresh(&question(1), &ask, 1), None, "{status}");
            let small = answers.keep(question(1), &ask, answer(status, "a"), 1).unwrap();
            assert!(matches!(small.body, Text::Shared(_)), "{status}");
            assert_eq!(answers.fresh(&question(1), &ask, 1), Some(answer(status, "a")));
            assert_eq!(answers.keep(question(1), &ask, large.clone(), 1), large);
            assert_eq!(answers.fresh(&question(1), &ask, 1), None, "{status}: what came before goes");
        }
    }

    #[test]
    fn questions_hide_their_fields() {
        let fields = vec![(b"authorization".to_vec(), b"secret".to_vec())];
        let shown = format!("{:?}", Question { fields, body: b"secret".to_vec(), ..question(1) });
        assert!(!shown.contains("115, 101, 99"), "{shown}");
    }

    #[test]
    fn the_least_fresh_answer_makes_room() {
        let (answers, ask) = (Answers::default(), ask());
        for number in 0..=KEPT as u64 {
            let _ = answers.keep(question(number), &ask, answer(200, "a"), number + 1);
        }
        assert_eq!(answers.0.borrow().len(), KEPT);
        assert_eq!(answers.fresh(&question(0), &ask, 500), None);
        assert_eq!(answers.fresh(&question(KEPT as u64), &ask, 500), Some(answer(200, "a")));
    }

    #[test]
    fn paths_that_lead_elsewhere_are_none() {
        for path in ["/a", "/", "/a/b.c", "/..a/b.."] {
            assert!(is_plain(path.as_bytes()), "{path}");
        }
        for path in ["", "a", "/..", "/a/../b", "/./a", "/a\0"] {
            assert!(!is_plain(path.as_bytes()), "{path:?}");
        }
        assert_eq!(split(b"/a?b?c"), (&b"/a"[..], &b"b?c"[..]));
    }
}
