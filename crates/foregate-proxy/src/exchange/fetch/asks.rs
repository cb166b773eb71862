//! One fetch: the request of a step, and its response with the body.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use foregate_coding::{coding_of, start};
use foregate_module::{FetchError, FetchRequest, FetchResponse, FetchResult, Field};
use foregate_wire::{BodyLength, HeaderList, NameId, ResponseHead, connection};

use crate::error::Error;
use crate::limits::budget::BudgetShare;
use crate::limits::clients::Holdings;
use crate::link::start::extend;
use crate::link::{Link, ReceiveOutcome};
use crate::message::request::Request;
use crate::settings;
use crate::spans::SpanParent;
use crate::time::clock;
use crate::time::timer::Timer;
use crate::upstream::{Addresses, Answer, Ask, Asker, OpeningTerms, Origin, Upstream};

/// A request that no client waits for, with its body in memory: the request of a step, or a copy of a client's request.
pub(super) struct StepAsks<'e> {
    request: Request,
    pub head: ResponseHead,
    body: &'e [u8],
    /// The number of bytes of the body that the origin has got, and the time of the last progress.
    sent: usize,
    since: Instant,
    /// True if the origin has got the whole body.
    pub finished: bool,
    timer: Timer,
}

impl<'e> StepAsks<'e> {
    /// A request of which nothing has been sent yet.
    pub fn new(upstream: &Upstream, request: Request, body: &'e [u8]) -> Self {
        Self {
            request,
            head: ResponseHead::new(),
            body,
            sent: 0,
            since: clock::now(),
            finished: false,
            timer: Timer::new(upstream.settings.first_byte_timeout),
        }
    }
}

impl Asker for StepAsks<'_> {
    fn heads(&mut self) -> (&mut Request, &mut ResponseHead) {
        (&mut self.request, &mut self.head)
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<Error> {
        Poll::Pending
    }

    fn begin_body(&mut self, now: Instant) {
        (self.sent, self.since, self.finished) = (0, now, self.body.is_empty());
    }

    fn poll_body(&mut self, cx: &mut Context<'_>, origin: &mut Link) -> Result<bool, Error> {
        while let Some(rest) = self.body.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let Poll::Ready(taken) = origin.poll_send(cx, rest) else { return Ok(true) };
            self.sent += taken.map_err(|_| Error::OriginClosed)?;
            self.since = clock::now();
        }
        if !std::mem::replace(&mut self.finished, true) {
            origin.finish(&HeaderList::new()).map_err(Error::Origin)?;
        }
        if let Poll::Ready(Err(_)) = origin.poll_flush(cx) {
            // An origin may close its side and still have sent a response, which is read next.
        }
        Ok(true)
    }

    fn body_is_whole(&self) -> Poll<bool> {
        if self.finished { Poll::Ready(true) } else { Poll::Pending }
    }

    fn poll_deadline(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &settings::UpstreamSettings,
    ) -> Poll<Result<(), Error>> {
        let until = self.since + upstream.first_byte_timeout;
        self.timer.poll(cx, until).map(|()| Err(Error::FirstByteTimeout))
    }

    fn awaits_origin_since(&self) -> Option<Instant> {
        Some(self.since)
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        self.timer.poll(cx, until)
    }

    fn may_repeat(&mut self, _: &Error) -> bool {
        true
    }
}

/// Makes the fetch of a step, with retries if they are safe. It opens connections on the account of `client`, records
/// attempts under `span`, and counts the answer's body in `share`. It ends by `deadline`, which is `ask.timeout` away.
pub(super) async fn make(
    upstream: &Arc<Upstream>,
    (request, ask): (Request, &FetchRequest),
    (client, span): (Option<&Arc<Holdings>>, Option<SpanParent>),
    share: &mut BudgetShare,
    deadline: Instant,
) -> FetchResult {
    let terms = OpeningTerms { client, ..terms(Addresses::NONE, None) };
    let mut asks = StepAsks::new(upstream, request, &ask.body);
    let mut asked = Ask::new(upstream, terms);
    asked.set_span(span);
    let answered = tokio::time::timeout_at(deadline.into(), final_head(&mut asked, &mut asks)).await;
    let Ok(answered) = answered else {
        asked.ran_out(ask.timeout);
        return Err(FetchError::Timeout);
    };
    let (mut origin, length) = answered.map_err(fetch_error)?;
    let received = receive(&mut origin, length, ask.limit, share);
    let body = match tokio::time::timeout_at(deadline.into(), received).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            asked.has_failed(&origin, &error);
            return Err(fetch_error(error));
        }
        Err(_) => {
            asked.ran_out_on(&origin);
            return Err(FetchError::Timeout);
        }
    };
    if asks.finished {
        upstream.connections.recycle(origin, clock::now());
    }
    let head = &mut asks.head;
    connection::strip_hop_by_hop(&mut head.headers, false);
    let body = decoded(&mut head.headers, body?, ask.limit, share)?;
    // A field that modules may not set, such as a length, is left out.
    let fields = head.headers.iter();
    let fields = fields.filter_map(|field| Field::new(field.name.to_vec(), field.value.to_vec()).ok());
    Ok(FetchResponse { status: head.status, fields: fields.collect(), body: body.into() })
}

/// Takes the content coding off an answer, because steps read the body. A request without `Accept-Encoding` permits every
/// coding (RFC 9110, section 12.5.3), and some servers have only encoded files. A body that cannot be decoded stays as it is,
/// with its coding.
fn decoded(
    headers: &mut HeaderList,
    body: Vec<u8>,
    limit: usize,
    share: &mut BudgetShare,
) -> Result<Vec<u8>, FetchError> {
    let mut codings = headers.get_all(NameId::ContentEncoding);
    let coding = codings.next().and_then(coding_of).filter(|_| codings.next().is_none());
    drop(codings);
    let Some(coding) = coding.filter(|_| !body.is_empty()) else { return Ok(body) };
    let plain = start(coding, &body, true, limit);
    if plain.broken {
        return Ok(body);
    }
    if !plain.whole {
        return Err(FetchError::TooLarge);
    }
    if !share.hold(plain.bytes.len()) {
        return Err(FetchError::Busy);
    }
    headers.retain(|field| field.id != NameId::ContentEncoding);
    Ok(plain.bytes)
}

/// The terms for a request that no client waits for. Such requests of different clients share connections, so no
/// connection may be bound to one user.
pub(super) fn terms<'a>(addresses: &'a Addresses, handed_over: Option<&'a Vec<u8>>) -> OpeningTerms<'a> {
    OpeningTerms {
        fresh: false,
        addresses,
        behalf: addresses.client.map(|client| client.ip()),
        client: None,
        own: None,
        http1: false,
        authenticates: false,
        handed_over,
    }
}

/// Waits for the final response and drops interim ones.
pub(super) async fn final_head(
    ask: &mut Ask<'_>,
    asks: &mut StepAsks<'_>,
) -> Result<(Origin, BodyLength), Error> {
    loop {
        match ask.answer(asks).await? {
            Answer::Final(origin, length) => return Ok((origin, length)),
            Answer::Interim => asks.since = clock::now(),
        }
    }
}

/// Receives a body of at most `limit` bytes. The outer error means that the connection failed.
async fn receive(
    origin: &mut Origin,
    length: BodyLength,
    limit: usize,
    share: &mut BudgetShare,
) -> Result<Result<Vec<u8>, FetchError>, Error> {
    if length == BodyLength::Tunnel {
        return Err(Error::Switch("a protocol switch that was not asked for"));
    }
    let mut body = Vec::new();
    while poll_fn(|cx| origin.link.poll_receive(cx)).await.map_err(Error::Origin)? == ReceiveOutcome::Data {
        let data = origin.link.data();
        if body.len() + data.len() > limit {
            return Ok(Err(FetchError::TooLarge));
        }
        if !extend(&mut body, data, limit, Some(&mut *share)) {
            return Ok(Err(FetchError::Busy));
        }
        let count = data.len();
        origin.link.consume(count);
    }
    Ok(Ok(body))
}

fn fetch_error(error: Error) -> FetchError {
    match error {
        Error::Response(_) | Error::ResponseFraming(_) | Error::Interim(_) | Error::Switch(_) => {
            FetchError::Malformed
        }
        Error::ConnectTimeout | Error::FirstByteTimeout => FetchError::Timeout,
        Error::Internal => FetchError::BadRequest,
        Error::NoDescriptors => FetchError::Busy,
        _ => FetchError::Connection,
    }
}
