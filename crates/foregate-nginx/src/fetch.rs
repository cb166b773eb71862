//! Fetches of steps and filters. NGINX makes a subrequest for each, and each worker caches answers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use foregate_module::{
    AnswerKey, FetchError, FetchRequest, FetchResponse, FetchResult, FetchTarget, Field, KeptAnswers,
};

use crate::ffi::Host;
use crate::target;

/// The part of a request that has asked for a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// A step, which wrote the request to `slot`. The answer is written to the answer slot of `slot`. If the step is in
    /// a dry run, only steps in a dry run see the answer.
    Step { slot: u16, dry: bool },
    /// A filter of the response's body.
    Filter,
}

/// A fetch with its result.
pub(crate) struct ModuleFetch {
    pub whom: For,
    pub request: FetchRequest,
    /// The path of the subrequest: decoded, without the prefix of the upstream.
    pub path: Vec<u8>,
    pub args: Vec<u8>,
    /// The field `host`.
    pub authority: Vec<u8>,
    /// The key of the answer in the cache; `None` if the answer is not cached.
    question: Option<AnswerKey<Place>>,
    body: Vec<u8>,
    answer: Option<FetchResult>,
}

/// The server block of NGINX and the prefix of the location: in another server block, the same name may mean another
/// location.
type Place = (u64, Vec<u8>);

/// The cached answers for the requests of a worker.
#[derive(Debug, Default, Clone)]
pub(crate) struct Answers(Rc<RefCell<HashMap<AnswerKey<Place>, KeptAnswers>>>);

impl ModuleFetch {
    /// A fetch that is to be made at `now`. It has an answer at once if it cannot be made, or if the cache has an answer.
    /// `authority` is the authority of the client's request.
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
        // A cached answer serves other clients, so it must not depend on this client's Host.
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
                    let question = AnswerKey::new(place, &asked.authority, &asked.request);
                    asked.answer = answers.fresh(&question, &asked.request, now);
                    asked.question = Some(question);
                }
            }
            _ => asked.answer = Some(Err(FetchError::BadRequest)),
        }
        asked
    }

    /// The number of the upstream; `None` for the site itself.
    pub(crate) fn upstream(&self) -> Option<u32> {
        upstream(&self.request)
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// Takes a part of the answer's body. Returns false if the body has become too large.
    pub(crate) fn receive(&mut self, part: &[u8]) -> bool {
        if self.body.len() + part.len() > self.request.limit {
            self.body = Vec::new();
            return false;
        }
        self.body.extend_from_slice(part);
        true
    }

    /// Takes the answer (without its body, which has already been received), or the reason why there is none.
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

/// Returns true if a decoded path is safe to use. The normal form keeps an encoded slash, which could have hidden a
/// `..` that leads out of the location. A NUL is refused, because file names cannot contain it.
fn is_plain(path: &[u8]) -> bool {
    path.starts_with(b"/")
        && !path.contains(&0)
        && !path.split(|byte| *byte == b'/').any(|segment| segment == b".." || segment == b".")
}

impl Answers {
    /// The cached answer to a question, if there is one that is fresh enough. Times are milliseconds.
    fn fresh(&self, question: &AnswerKey<Place>, ask: &FetchRequest, now: u64) -> Option<FetchResult> {
        self.0.borrow().get(question)?.known(ask, Duration::from_millis(now))
    }

    /// Stores an answer in the cache. Returns it, or an older answer to use in its place.
    fn keep(
        &self,
        question: AnswerKey<Place>,
        ask: &FetchRequest,
        result: FetchResult,
        now: u64,
    ) -> FetchResult {
        let mut all = self.0.borrow_mut();
        let mut kept = all.remove(&question).unwrap_or_default();
        let result = kept.keep(ask, result, Duration::from_millis(now));
        if !kept.is_empty() {
            if all.len() >= KeptAnswers::QUESTIONS {
                let oldest = all.iter().min_by_key(|(_, kept)| kept.fresh_since());
                if let Some(oldest) = oldest.map(|(question, _)| question.clone()) {
                    all.remove(&oldest);
                }
            }
            all.insert(question, kept);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::UpstreamId;

    use super::*;

    fn ask() -> FetchRequest {
        FetchRequest { keep: Duration::from_secs(10), ..FetchRequest::get(UpstreamId(0), "/keys") }
    }

    fn question(number: u64) -> AnswerKey<Place> {
        AnswerKey::new((number, b"/@keys/".to_vec()), b"localhost", &ask())
    }

    fn answer(body: &str) -> FetchResult {
        Ok(FetchResponse { status: 200, fields: Vec::new(), body: body.to_owned().into() })
    }

    #[test]
    fn answers_are_kept_by_question() {
        let (answers, ask) = (Answers::default(), ask());
        assert_eq!(answers.keep(question(1), &ask, answer("a"), 1000), answer("a"));
        assert_eq!(answers.fresh(&question(1), &ask, 10_999), Some(answer("a")));
        assert_eq!(answers.fresh(&question(1), &ask, 11_000), None);
        assert_eq!(answers.fresh(&question(2), &ask, 1000), None, "another server");
        let renewing = FetchRequest { renew_after: Some(Duration::from_secs(1)), ..ask };
        assert_eq!(answers.fresh(&question(1), &renewing, 1999), Some(answer("a")));
        assert_eq!(answers.fresh(&question(1), &renewing, 2000), None);
    }

    #[test]
    fn the_least_fresh_answer_makes_room() {
        let (answers, ask, most) = (Answers::default(), ask(), KeptAnswers::QUESTIONS as u64);
        for number in 0..=most {
            let _ = answers.keep(question(number), &ask, answer("a"), number + 1);
        }
        assert_eq!(answers.0.borrow().len() as u64, most);
        assert_eq!(answers.fresh(&question(0), &ask, 500), None);
        assert_eq!(answers.fresh(&question(most), &ask, 500), Some(answer("a")));
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
