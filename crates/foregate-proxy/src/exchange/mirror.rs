//! Copies of requests for another upstream. A separate task sends the copy once the whole request has reached its own
//! origin. The exchange does not wait for the copy, and the response to the copy is dropped.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use foregate_wire::BodyLength;

use super::fetch::copies::send_copy;
use crate::limits::account::{Account, AccountPlace};
use crate::limits::budget::{Budget, BudgetShare};
use crate::limits::spool::Reader;
use crate::link::copy::BodyCopy;
use crate::link::start::{Front, SharedStart, extend};
use crate::message::request::Request;
use crate::random;
use crate::settings::{Mirror, SHARE_WHOLE};
use crate::upstream::{Addresses, Upstream};

/// The percentage of the places for copies that one client may take.
const PART_OF_CLIENT: usize = 50;

/// The body of a copy.
#[derive(Debug)]
enum CopiedBody {
    Empty,
    Memory(Arc<SharedStart>),
    File(Box<Reader>, BudgetShare),
}

/// A copy on its way.
struct MirrorTask {
    upstream: Arc<Upstream>,
    request: Request,
    body: CopiedBody,
    addresses: Addresses,
    _place: AccountPlace,
}

/// An exchange with a request that is to be copied.
pub(super) struct Mirrored<'a> {
    pub upstream: &'a Arc<Upstream>,
    pub request: &'a Request,
    /// The request's body on its way to its own origin.
    pub upload: &'a BodyCopy,
    pub addresses: Addresses,
    pub account: Account,
    pub memory: &'a Arc<Budget>,
}

/// Returns true if this request should be copied.
pub(super) fn choose(mirror: Option<&Mirror>, request: &Request) -> bool {
    mirror.is_some_and(|mirror| random::hits(mirror.share, SHARE_WHOLE) && !request.opens_tunnel())
}

/// Returns true if the whole request has gone to its own origin.
pub(super) fn is_due(request: &Request, upload: &BodyCopy) -> bool {
    request.length.is_empty() || upload.is_done() && !upload.gave_up()
}

/// Sends the copy.
pub(super) fn begin(mirrored: &Mirrored<'_>, mirror: &Mirror) {
    let Mirrored { upstream, request, upload, addresses, account, memory } = *mirrored;
    let body = body_of(request, upload, (account, memory));
    let body = body.filter(|body| body.len() <= mirror.body as u64);
    let place = upstream.mirrors.take(account, PART_OF_CLIENT);
    let (Some(body), Some(place)) = (body, place) else {
        return upstream.metrics.mirrored_skipped.inc();
    };
    let length = match body {
        CopiedBody::Empty => BodyLength::Empty,
        _ => BodyLength::Fixed(body.len()),
    };
    let (upstream, request) = (Arc::clone(upstream), request.as_sent(length));
    tokio::spawn(MirrorTask { upstream, request, body, addresses, _place: place }.run());
}

/// The whole body that was sent; `None` if it was not kept.
fn body_of(
    request: &Request,
    upload: &BodyCopy,
    (account, memory): (Account, &Arc<Budget>),
) -> Option<CopiedBody> {
    if request.length.is_empty() {
        return Some(CopiedBody::Empty);
    }
    if !upload.is_done() || upload.gave_up() {
        return None;
    }
    match (&upload.front, &upload.kept) {
        (Some(Front::File(reader)), _) if upload.filter.is_none() => {
            let is_whole = !reader.has_rest() && reader.len() == upload.moved;
            let share = || memory.share(account);
            is_whole.then(|| CopiedBody::File(Box::new(Reader::new(reader.spool())), share()))
        }
        (_, Some(kept)) => Some(CopiedBody::Memory(kept.held())),
        _ => None,
    }
}

impl CopiedBody {
    fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Memory(held) => held.bytes.len() as u64,
            Self::File(reader, _) => reader.len(),
        }
    }
}

impl MirrorTask {
    async fn run(self) {
        let Self { upstream, request, body, addresses, _place } = self;
        let patience = upstream.settings.connect_timeout + upstream.settings.first_byte_timeout;
        let is_answered = send(&upstream, request, (addresses, body), patience).await;
        let metrics = &upstream.metrics;
        if is_answered { metrics.mirrored.inc() } else { metrics.mirrored_failed.inc() }
    }
}

async fn send(
    upstream: &Arc<Upstream>,
    request: Request,
    (addresses, body): (Addresses, CopiedBody),
    patience: Duration,
) -> bool {
    match body {
        CopiedBody::Empty => send_copy(upstream, request, (&addresses, &[]), patience).await,
        CopiedBody::Memory(held) => send_copy(upstream, request, (&addresses, &held.bytes), patience).await,
        CopiedBody::File(mut reader, mut share) => {
            let (mut bytes, length) = (Vec::new(), usize::try_from(reader.len()).unwrap_or(usize::MAX));
            while !reader.is_done() {
                if poll_fn(|cx| reader.poll_fill(cx)).await.is_err()
                    || !extend(&mut bytes, reader.data(), length, Some(&mut share))
                {
                    return false;
                }
                let count = reader.data().len();
                reader.consume(count);
            }
            drop(reader);
            send_copy(upstream, request, (&addresses, &bytes), patience).await
        }
    }
}
