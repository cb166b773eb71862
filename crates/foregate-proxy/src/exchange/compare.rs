//! Compares a response with the response of the proxy that Foregate replaces.
//!
//! A separate task sends the request to the old proxy as the client has sent it. The client's response is not delayed:
//! its head and its body are recorded while they are sent, and handed over at the end.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foregate_compare::{Answer, Outcome as Answered};
use foregate_wire::{BodyLength, Method};
use tokio::sync::oneshot;

use super::client::Peer;
use super::fallback;
use super::fetch::copies::observe;
use crate::comparison::{ComparedRequest, Comparisons, Pair, SeenBody, TapPass, WatchedOutcome};
use crate::limits::account::{Account, AccountPlace};
use crate::limits::budget::BudgetShare;
use crate::loops::{self, MARKER};
use crate::message::request::Request;
use crate::proxy::{Config, Proxy};
use crate::random;
use crate::settings::{Compare, CompareSamples, Route, SHARE_WHOLE};
use crate::upstream::{Addresses, Upstream};

/// The time limit of the old proxy for a whole response.
const PATIENCE: Duration = Duration::from_secs(30);

/// A response that is compared, while it is sent.
pub(super) struct WatchedAnswer {
    /// Bytes of the body that are kept.
    pub limit: usize,
    pub account: Account,
    pub answer: Option<Answer>,
    pub ours: oneshot::Sender<WatchedOutcome>,
    /// The id by which a tap recognises the request.
    pub id: Option<String>,
    /// The request to serve again at the end of the response.
    pub tapped: Option<Box<TappedRequest>>,
}

/// A request that the old proxy answers. It holds everything that the comparison needs in addition to the responses.
pub(super) struct TappedRequest {
    pub proxy: Arc<Proxy>,
    pub config: Arc<Config>,
    pub peer: Peer,
    pub request: Request,
    pub shown: ComparedRequest,
    pub route: Arc<str>,
    pub compare: Arc<Compare>,
    pub pass: Option<TapPass>,
    pub place: AccountPlace,
    /// Gets the client's response.
    pub ours: oneshot::Receiver<WatchedOutcome>,
}

/// The request for the old proxy, and all that a comparison needs.
struct ShadowRequest {
    upstream: Arc<Upstream>,
    request: Request,
    addresses: Addresses,
    tlvs: Option<Vec<u8>>,
    account: Account,
    limit: usize,
}

/// The exchange of a request that may be compared.
pub(super) struct Compared<'a> {
    pub comparisons: &'a Arc<Comparisons>,
    pub config: &'a Config,
    pub peer: &'a Peer,
    pub request: &'a Request,
    /// The name of the site.
    pub site: &'a str,
    pub account: Account,
}

/// Begins a comparison, if this request is to be compared.
pub(super) fn begin(
    compared: &Compared<'_>,
    route: &Route,
    compare: &Arc<Compare>,
) -> Option<Box<WatchedAnswer>> {
    let Compared { comparisons, config, peer, request, site, account } = *compared;
    if !random::hits(compare.share, SHARE_WHOLE) || fallback::is_marked(request) {
        return None;
    }
    let name: Arc<str> = format!("{site} {}", route.pattern).into();
    let begun = match (unfit(request), config.upstreams.get(compare.upstream)) {
        (Some(reason), _) => Err(reason),
        (None, None) => Err("there is no such upstream"),
        (None, Some(upstream)) => comparisons.begin(account).map(|place| (upstream, place)),
    };
    let (upstream, place) = match begun {
        Ok(begun) => begun,
        Err(reason) => {
            comparisons.not_compared(name, reason);
            return None;
        }
    };
    let (sender, ours) = oneshot::channel();
    let shadow = ShadowRequest {
        upstream: Arc::clone(upstream),
        request: for_old(request),
        addresses: peer.addresses,
        tlvs: upstream.settings.send_proxy.map(|_| fallback::tlvs(peer.tls.as_deref()).clone()),
        account,
        limit: compare.rules.body_limit,
    };
    let samples = Arc::clone(&config.settings.compare_samples);
    let settings = (Arc::clone(compare), samples);
    tokio::spawn(run(Arc::clone(comparisons), (name, settings), shadow, shown(request), ours, place));
    Some(Box::new(WatchedAnswer {
        limit: compare.rules.body_limit,
        account,
        answer: None,
        ours: sender,
        id: None,
        tapped: None,
    }))
}

/// The reason why a request cannot be compared, if there is one.
fn unfit(request: &Request) -> Option<&'static str> {
    if !matches!(request.head.method, Method::Get | Method::Head | Method::Options) {
        return Some("the method is not safe: the origin would get the request twice");
    }
    if request.opens_tunnel() {
        return Some("it switches protocols");
    }
    (!request.length.is_empty()).then_some("it has a body")
}

/// The request as the client has sent it, for the next hop.
fn for_old(request: &Request) -> Request {
    let mut copy = request.as_sent(BodyLength::Empty);
    copy.keeps_target = true;
    let headers = &mut copy.head.headers;
    fallback::leave_hop(headers);
    // If the old proxy sends it back here, it is not compared again.
    headers.push(MARKER, loops::marker());
    copy
}

pub(super) fn shown(request: &Request) -> ComparedRequest {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ComparedRequest {
        method: text(request.method()),
        origin: format!("{}://{}", request.scheme(), request.authority.as_str()),
        target: text(request.target.as_bytes()),
        fields: request.head.headers.clone(),
        length: 0,
    }
}

/// Asks the old proxy, waits for the client's response, and hands both over.
async fn run(
    comparisons: Arc<Comparisons>,
    (route, (compare, samples)): (Arc<str>, (Arc<Compare>, Arc<CompareSamples>)),
    asked: ShadowRequest,
    request: ComparedRequest,
    mut ours: oneshot::Receiver<WatchedOutcome>,
    place: AccountPlace,
) {
    let mut held = Vec::new();
    let Some((old, WatchedOutcome { answer: new, held: of_ours, .. })) =
        both(asked.ask(&comparisons, &mut held), &mut ours).await
    else {
        return comparisons.not_compared(route, "the client left before the end of the response");
    };
    held.extend(of_ours);
    let learns = comparisons.should_learn(&route) || random::hits(compare.learn, SHARE_WHOLE);
    let again = if learns { Some(asked.ask(&comparisons, &mut held).await) } else { None };
    comparisons.compare(Pair { route, compare, samples, request, old, again, new, asked: None, held, place });
}

/// Waits for both responses. If the client stops reading Foregate's response, the old proxy's response is not read any
/// further either: the process never reads more than a client does.
async fn both(
    old: impl Future<Output = Answered>,
    ours: &mut oneshot::Receiver<WatchedOutcome>,
) -> Option<(Answered, WatchedOutcome)> {
    let mut old = pin!(old);
    tokio::select! {
        old = &mut old => Some((old, ours.await.ok()?)),
        ours = &mut *ours => {
            let ours = ours.ok()?;
            Some((old.await, ours))
        }
    }
}

impl ShadowRequest {
    async fn ask(&self, comparisons: &Comparisons, held: &mut Vec<BudgetShare>) -> Answered {
        let seen = comparisons.reader(self.account, self.limit);
        let mut request = self.request.as_sent(BodyLength::Empty);
        request.keeps_target = self.request.keeps_target;
        let asked = observe(&self.upstream, request, (&self.addresses, self.tlvs.as_ref()), seen);
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok((answer, share))) => {
                held.push(share);
                Answered::Answered(Box::new(answer))
            }
            Ok(Err(error)) => Answered::Failed(error.kind().to_owned()),
            Err(_) => Answered::Failed(format!("no whole answer within {} s", PATIENCE.as_secs())),
        }
    }
}

impl WatchedAnswer {
    /// Copies the head of the response, which is about to be sent. Returns the reader for the body.
    pub fn head(
        &mut self,
        comparisons: &Comparisons,
        status: u16,
        headers: &foregate_wire::HeaderList,
        began: Instant,
    ) -> Box<SeenBody> {
        let mut answer = Answer::new(status, headers.iter().map(|field| (field.name, field.value)));
        answer.time = began.elapsed();
        self.answer = Some(answer);
        Box::new(comparisons.reader(self.account, self.limit))
    }
}

/// The end of a response that was compared.
pub(super) struct WatchedEnd {
    pub seen: Option<Box<SeenBody>>,
    /// The body of the request, and whether all of it was sent to the origin.
    pub sent: (Option<Box<SeenBody>>, bool),
    /// True if all of the response was sent.
    pub is_whole: bool,
    /// True if the client left before that.
    pub is_left: bool,
    /// The kind of the error.
    pub error: Option<&'static str>,
}

/// Hands the response over to the comparison, unless the comparison has already ended.
pub(super) fn end(watched: WatchedAnswer, end: WatchedEnd) {
    let WatchedAnswer { answer, ours, .. } = watched;
    let (sent, all_sent) = end.sent;
    let (mut held, mut body_sent) = (Vec::new(), None);
    if let Some(sent) = sent {
        let (body, share) = sent.end();
        body_sent = Some(body);
        held.push(share);
    }
    let answer = match (answer, end.seen) {
        (Some(mut answer), Some(seen)) if end.is_whole => {
            let (body, share) = seen.end();
            answer.body = body;
            held.push(share);
            Answered::Answered(Box::new(answer))
        }
        // The client broke the response off, so it cannot be compared.
        _ if end.is_left => return,
        _ => Answered::Failed(end.error.unwrap_or("no answer").to_owned()),
    };
    // An error says that the comparison has given up.
    let _ = ours.send(WatchedOutcome { answer, sent: body_sent, all_sent, held });
}
