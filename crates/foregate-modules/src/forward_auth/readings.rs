//! Asks the authentication server about other readings of the request's path.
//!
//! The server and the origin may read the same path in different ways: for `/x/..%2Fadmin`, some origins serve
//! `/admin`. So the server is asked about each possible reading, and must allow all of them.

use core::ops::ControlFlow;

use foregate_module::{
    Authority, ClientAddress, Emit, Fetch, FetchKey, FetchRequest, FetchResult, Fetched, Filter, Method,
    Never, OtherPaths, Path, Query, Read, RequestFields, Scheme, Step, phase,
};

use super::{ForwardAuthSettings, question};
use crate::cors::Preflight;

/// The most other paths that are asked about. A request with more is refused.
pub(super) const MOST: usize = 5;

const NAMES: [&str; MOST] = [
    "forward-auth.question-2",
    "forward-auth.question-3",
    "forward-auth.question-4",
    "forward-auth.question-5",
    "forward-auth.question-6",
];
const ANSWERS: [&str; MOST] = [
    "forward-auth.answer-2",
    "forward-auth.answer-3",
    "forward-auth.answer-4",
    "forward-auth.answer-5",
    "forward-auth.answer-6",
];

/// The question about one of the other paths, by its number.
#[derive(Debug)]
pub struct Other<const N: usize>;

impl<const N: usize> FetchKey for Other<N> {
    const NAME: &'static str = NAMES[N];
    const ANSWER: &'static str = ANSWERS[N];
}

/// Asks about the other paths.
#[derive(Debug, Default)]
pub struct AskOthers;

impl Step for AskOthers {
    type At = phase::RequestIdentity;
    type Settings = ForwardAuthSettings;
    type In<'r> = (
        Method<'r>,
        Scheme<'r>,
        Authority<'r>,
        OtherPaths<'r>,
        Query<'r>,
        ClientAddress,
        RequestFields<'r>,
        Read<'r, Preflight>,
    );
    type Out = (
        Emit<Fetch<Other<0>>>,
        Emit<Fetch<Other<1>>>,
        Emit<Fetch<Other<2>>>,
        Emit<Fetch<Other<3>>>,
        Emit<Fetch<Other<4>>>,
    );
    type Stop = Never;
    const NAME: &'static str = "forward-auth-ask-others";
    const ABOUT: &'static str =
        "Asks another server about the other paths that the origin may read the path as.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &ForwardAuthSettings,
        (method, scheme, authority, OtherPaths(paths), query, client, fields, Read(preflight)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        let is_asked = preflight != Some(&true) && fields.0.all("authorization").nth(1).is_none();
        let paths = paths.filter(|paths| is_asked && paths.len() <= MOST).unwrap_or_default();
        let ask = |number: usize| -> Option<FetchRequest> {
            let path = Path(paths.get(number)?);
            question(settings, (method, scheme, authority, path, query, client, fields))
        };
        ControlFlow::Continue((Emit(ask(0)), Emit(ask(1)), Emit(ask(2)), Emit(ask(3)), Emit(ask(4))))
    }
}

/// The answers about the other paths.
pub(super) type ReadingAnswers<'r> = (
    OtherPaths<'r>,
    Read<'r, Fetched<Other<0>>>,
    Read<'r, Fetched<Other<1>>>,
    Read<'r, Fetched<Other<2>>>,
    Read<'r, Fetched<Other<3>>>,
    Read<'r, Fetched<Other<4>>>,
);

/// Each other reading of the path, with its answer. The answer is `None` if the server was not asked about this
/// reading. The whole result is `None` if there are too many readings.
pub(super) fn each(
    answers: ReadingAnswers<'_>,
) -> Option<impl Iterator<Item = (&[u8], Option<&FetchResult>)>> {
    let (OtherPaths(paths), Read(a), Read(b), Read(c), Read(d), Read(e)) = answers;
    let paths = paths.filter(|paths| paths.len() <= MOST)?;
    Some(paths.iter().map(|path| &**path).zip([a, b, c, d, e]))
}
