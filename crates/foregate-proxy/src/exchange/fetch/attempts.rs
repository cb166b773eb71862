//! The attempts of one fetch.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use foregate_module::{FetchError, FetchRequest, FetchResponse, FetchResult, Field};
use foregate_wire::{BodyLength, HeaderList, ResponseHead, connection};

use crate::budget::Share;
use crate::connection::registry::Holdings;
use crate::error::Error;
use crate::exchange::forward::InterimBytes;
use crate::exchange::request::Request;
use crate::link::Received;
use crate::link::start::extend;
use crate::upstream::{Addresses, Attempts, Origin, Terms, Upstream, authentication};

/// The server that has been asked and not answered yet, and since when.
pub(super) type Asked = Option<(usize, Instant)>;

/// The attempts of one fetch.
pub(super) struct AttemptsOf<'a> {
    pub(super) upstream: &'a Arc<Upstream>,
    pub(super) request: &'a Request,
    pub(super) ask: &'a FetchRequest,
    pub(super) client: Option<&'a Arc<Holdings>>,
    /// The memory of the answer's body.
    pub(super) share: &'a mut Share,
}

impl AttemptsOf<'_> {
    /// Asks once, and again if a kept connection turns out to be dead, or another server within the upstream's `retries`, where nothing
    /// of a response has come. `asked` is who has not answered yet, `origin` the connection to it, and since when it is there.
    pub(super) async fn make(
        &mut self,
        asked: &mut Asked,
        origin: &mut Option<(Origin, Instant)>,
    ) -> FetchResult {
        let (upstream, request) = (self.upstream, self.request);
        let mut active = upstream.enter();
        let mut attempts = Attempts::default();
        loop {
            let now = Instant::now();
            let (server, fresh) = attempts.begin(upstream, None, now).ok_or(FetchError::Connection)?;
            *asked = Some((server, now));
            let terms = Terms {
                fresh,
                addresses: Addresses { client: None, local: None },
                client: self.client,
                // Steps of different clients may ask the same: no user is bound to a connection that they have used.
                own: None,
                http1: false,
                authenticates: authentication::has_credentials(&request.head.headers),
            };
            let error = match upstream.open(server, terms, now).await {
                Ok(opened) => {
                    let (opened, _) = origin.insert((opened, Instant::now()));
                    let result = self.attempt(opened, asked).await;
                    let Some((origin, _)) = origin.take() else { return Err(FetchError::Connection) };
                    let error = match result {
                        Ok(answer) => {
                            upstream.recycle(origin, Instant::now());
                            return answer;
                        }
                        Err(error) => error,
                    };
                    if !attempts.failed_on(&origin, &error) {
                        origin.gave_up(&error, &upstream.settings);
                        upstream.attempt_failed(server, &origin, now, Instant::now(), &error);
                    }
                    // What has begun is not repeated.
                    if origin.has_begun() {
                        return Err(fetch_error(error));
                    }
                    error
                }
                Err(error) => error,
            };
            if !attempts.may_go_on(&mut active, &error, request.is_repeatable(), Instant::now()) {
                return Err(fetch_error(error));
            }
        }
    }

    /// One request and its answer. The outer error is the connection's, the inner one that of what came. `asked` is told once the
    /// server has answered, if only with a head.
    async fn attempt(&mut self, origin: &mut Origin, asked: &mut Asked) -> Result<FetchResult, Error> {
        let (upstream, request, ask) = (self.upstream, self.request, self.ask);
        origin.send_head(request, &upstream.settings).await?;
        let mut sent = 0;
        while sent < ask.body.len() {
            let taken = poll_fn(|cx| origin.link.poll_send(cx, &ask.body[sent..])).await;
            sent += taken.map_err(|_| Error::OriginClosed)?;
        }
        if !ask.body.is_empty() {
            origin.link.finish(&HeaderList::new()).map_err(Error::Origin)?;
        }
        let mut head = ResponseHead::new();
        let mut interim = InterimBytes::new();
        loop {
            let came = poll_fn(|cx| {
                if let Poll::Ready(Err(_)) = origin.link.poll_flush(cx) {
                    // An origin may close its side and still have an answer for us, which comes next.
                }
                origin.poll_head(cx, upstream, &mut head)
            });
            match tokio::time::timeout(upstream.settings.first_byte_timeout, came).await {
                Ok(came) => came?,
                Err(_) => return Err(Error::FirstByteTimeout),
            }
            if head.status >= 200 {
                if let Some((server, _)) = asked.take() {
                    upstream.succeeded(server, Instant::now());
                    upstream.address_answered(server, origin);
                }
                break;
            }
            interim.add(&head)?;
            if head.status == 101 {
                return Err(Error::Interim("an interim response that was not asked for"));
            }
        }
        if origin.begin_body(upstream, request, &head)? == BodyLength::Tunnel {
            return Err(Error::Switch("a protocol switch that was not asked for"));
        }
        let mut body = Vec::new();
        while poll_fn(|cx| origin.link.poll_receive(cx)).await.map_err(Error::Origin)? == Received::Data {
            let data = origin.link.data();
            if body.len() + data.len() > ask.limit {
                return Ok(Err(FetchError::TooLarge));
            }
            if !extend(&mut body, data, ask.limit, Some(&mut *self.share)) {
                return Ok(Err(FetchError::Busy));
            }
            let count = data.len();
            origin.link.consume(count);
        }
        connection::strip_hop_by_hop(&mut head.headers, false);
        // A field that modules may not set, such as a length, is left out.
        let fields = head
            .headers
            .iter()
            .filter_map(|field| Field::new(field.name.to_vec(), field.value.to_vec()).ok());
        Ok(Ok(FetchResponse { status: head.status, fields: fields.collect(), body: body.into() }))
    }
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
