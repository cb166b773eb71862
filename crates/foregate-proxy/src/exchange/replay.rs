//! Requests that are served once more for a comparison, after their client has its answer.

use std::sync::Arc;
use std::time::Duration;

use foregate_compare::{Answer, AskedRequest, Body, Outcome as Answered};
use foregate_wire::BodyLength;
use tokio::sync::oneshot;

use super::client::Client;
use super::compare::TappedRequest;
use super::state::ServedRequest;
use crate::comparison::{AskedPair, Pair, Replay, TapVisit, WatchedOutcome};
use crate::limits::budget::BudgetShare;
use crate::link::{H1Link, Link};
use crate::message::response::Response;
use crate::time::timer::Timer;
use crate::transport::stream::{Socket, Stream};

/// How long after the end of the old proxy's response the origin's response may end.
const LAG: Duration = Duration::from_secs(5);
/// The time limit for serving a request again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Serves the request once more, on its own, when its client's response has ended.
pub(super) fn begin(tapped: Box<TappedRequest>) {
    tokio::spawn(tapped.run());
}

impl TappedRequest {
    /// Waits for the client's response, serves the request again, and hands both responses over to the comparison.
    async fn run(self) {
        let comparisons = Arc::clone(&self.proxy.comparisons);
        let route = Arc::clone(&self.route);
        if let Err(reason) = self.compare().await {
            comparisons.not_compared(route, reason);
        }
    }

    async fn compare(mut self) -> Result<(), &'static str> {
        let Ok(WatchedOutcome { answer: old, sent, all_sent, mut held }) = (&mut self.ours).await else {
            return Err("the client left before the end of the response");
        };
        let body = sent.unwrap_or_default();
        if !all_sent {
            return Err("the old proxy has answered before the end of the request's body");
        }
        if !body.is_whole() {
            return Err("its body is longer than `body`");
        }
        let visit = match &self.pass {
            None => None,
            Some(pass) => {
                let mut visits = pass.visits();
                match (visits.pop(), visits.is_empty()) {
                    (_, false) => return Err("the old proxy has asked the origin more than once"),
                    (visit, true) => visit,
                }
            }
        };
        let is_tapped = self.pass.is_some();
        let (of_old, answer) = match (visit, &old) {
            (Some(visit), _) => {
                let (request, answer) = end_of(visit, &mut held).await?;
                (Some(request), Some(answer))
            }
            (None, Answered::Answered(old)) if !is_tapped => (None, Some((**old).clone())),
            (None, _) => (None, None),
        };
        if answer.as_ref().is_some_and(|answer| !answer.body.is_whole()) {
            return Err("the body of the response is longer than the memory for it");
        }
        let (new, of_new) = self.replay(&body, answer, &mut held).await?;
        let length = body.length;
        let of_new = of_new.map(|asked| asked.with_body(body));
        let samples = Arc::clone(&self.config.settings.compare_samples);
        let Self { proxy, route, compare, shown: mut request, place, .. } = self;
        request.length = length;
        let asked = Some(Box::new(AskedPair { old: of_old, new: of_new, is_tapped }));
        proxy.comparisons.compare(Pair {
            route,
            compare,
            samples,
            request,
            old,
            again: None,
            new,
            asked,
            held,
            place,
        });
        Ok(())
    }

    /// Serves the request again, with `answer` in place of the origin's response. Returns this proxy's response, and the
    /// request that the origin would have got.
    async fn replay(
        &mut self,
        body: &Body,
        answer: Option<Answer>,
        held: &mut Vec<BudgetShare>,
    ) -> Result<(Answered, Option<AskedRequest>), &'static str> {
        const NO_END: &str = "this proxy has not served it once more in time";
        let (sender, ended) = oneshot::channel();
        let replay = Arc::new(Replay::new(answer, self.compare.rules.body_limit, sender));
        self.peer.replay = Some(Arc::clone(&replay));
        if !body.bytes.is_empty() {
            self.request.length = BodyLength::Fixed(body.length);
        }
        let served = serve_again(self, Socket::memory(body.bytes.clone()));
        tokio::time::timeout(PATIENCE, served).await.map_err(|_| NO_END)?;
        let WatchedOutcome { answer, held: of_ours, .. } = ended.await.map_err(|_| NO_END)?;
        held.extend(of_ours);
        Ok((answer, replay.asked()))
    }
}

/// Waits for the end of a visit. Returns the request of the old proxy at the tap, and the response of the origin.
async fn end_of(
    visit: TapVisit,
    held: &mut Vec<BudgetShare>,
) -> Result<(AskedRequest, Answer), &'static str> {
    const NO_END: &str = "the origin's response has not passed the tap as a whole";
    let TapVisit { request, ended } = visit;
    let ended = tokio::time::timeout(LAG, ended).await;
    let Ok(Ok(WatchedOutcome { answer: Answered::Answered(answer), sent, held: of_tap, .. })) = ended else {
        return Err(NO_END);
    };
    held.extend(of_tap);
    Ok((request.with_body(sent.unwrap_or_default()), *answer))
}

/// Serves the request as if it came from this client.
async fn serve_again(tapped: &mut TappedRequest, client: Socket) {
    let TappedRequest { proxy, config, peer, request, .. } = tapped;
    let mut client = Client::new(Link::H1(Box::new(H1Link::new(Stream::Plain(client)))));
    if let Link::H1(link) = &mut client.link {
        link.begin_receive(request.length, &config.head_limits);
    }
    let (mut response, mut timer) = (Response::new(), Timer::new(PATIENCE));
    let served = ServedRequest {
        proxy,
        config,
        peer,
        client: &mut client,
        request,
        response: &mut response,
        timer: &mut timer,
    };
    super::serve(served, Ok(())).await;
}
