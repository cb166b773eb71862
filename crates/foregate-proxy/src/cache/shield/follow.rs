//! Following the logs of the other nodes: a task for each of them, on a thread of its own.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use foregate_cache::{Purge, PurgesSince, Sequence, Strength};
use http::header::HOST;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::{AnswerKind, CallKind, LogPosition, NodeCall, Presence, ShieldGroup};
use crate::address::ServerAddress;
use crate::cache::Cache;
use crate::random;

/// [`SHIELD_FIELD`](super::SHIELD_FIELD) in the spelling of this client.
const FIELD_NAME: &str = "foregate-shield";
/// The host of requests for purges.
const AUTHORITY: &str = "shield";
/// The time limit of a connection to a node.
const CONNECT: Duration = Duration::from_secs(1);
/// The time limit of an answer. It is longer than a second, because a node without new purges answers only after a
/// second.
const ANSWER: Duration = Duration::from_secs(3);
/// If a question fails only after this many milliseconds, this process was suspended, and the node may be up.
const SUSPENDED: u64 = 5000;
/// The pause after a failed question, before the node is asked again.
const AGAIN: Duration = Duration::from_millis(300);
/// How often the thread checks whether its group is still in use.
const LOOK: Duration = Duration::from_millis(200);
/// The longest answer, bytes: the most purges of one answer, each with the longest address of a request.
const LONGEST: usize = 16 << 20;

/// A question to a node that failed.
#[derive(Debug, thiserror::Error)]
enum FollowFailure {
    /// The process of the node has ended, or is ending. It had sent all its purges to this node.
    #[error("{0}")]
    Gone(String),
    /// Unknown: the node does not answer.
    #[error("no answer in time")]
    Silent,
}

/// The answer of a node.
struct LogAnswer {
    epoch: u64,
    latest: u64,
    until: u64,
    /// The age of the log, milliseconds.
    age: u64,
    purges: Option<Vec<Vec<u8>>>,
}

/// Writes the answer to a node that asks for purges: the epoch and the age of the log, the number of its last purge,
/// and the purges.
pub(super) fn encode((epoch, latest): (u64, u64), age: Duration, since: &PurgesSince) -> Vec<u8> {
    let mut out = Vec::new();
    let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    for number in [epoch, latest, since.until, u64::from(since.purges.is_some()), age] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for purge in since.purges.iter().flatten() {
        out.extend_from_slice(&(purge.len() as u32).to_le_bytes());
        out.extend_from_slice(purge);
    }
    out
}

fn decode(bytes: &[u8]) -> Option<LogAnswer> {
    let (head, mut rest) = bytes.split_at_checked(40)?;
    let mut numbers = [0; 5];
    for (number, bytes) in numbers.iter_mut().zip(head.chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    let [epoch, latest, until, has_purges, age] = numbers;
    let mut purges = Vec::new();
    while let Some((length, more)) = rest.split_first_chunk() {
        let (purge, more) = more.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        purges.push(purge.to_vec());
        rest = more;
    }
    let purges = (has_purges == 1).then_some(purges);
    rest.is_empty().then_some(LogAnswer { epoch, latest, until, age, purges })
}

/// Starts the thread of a group. The thread ends once the group is replaced or the cache is dropped.
pub(super) fn start(cache: &Arc<Cache>, group: Arc<ShieldGroup>) -> io::Result<()> {
    cache.shield.forget_readers(&group);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cache = Arc::downgrade(cache);
    let run = move || {
        runtime.block_on(async move {
            for (number, _) in group.others() {
                tokio::spawn(follow(Weak::clone(&cache), Arc::clone(&group), number));
            }
            while !group.over.load(Ordering::Relaxed) && cache.strong_count() > 0 {
                sleep(LOOK).await;
            }
        });
    };
    thread::Builder::new().name("foregate-shield".to_owned()).spawn(run).map(drop)
}

/// Asks a node for its purges, again and again.
async fn follow(cache: Weak<Cache>, group: Arc<ShieldGroup>, number: usize) {
    let Some(node) = group.nodes.get(number) else { return };
    let mut link = None;
    // The process of the node was seen to end, and this node has all purges of its log.
    let mut ended = false;
    let mut is_first = true;
    loop {
        let (sent, position) = (group.now(), *node.position.lock());
        let answer = ask(&mut link, &group, number, position).await;
        let Some(cache) = cache.upgrade() else { return };
        let presence = match answer {
            Ok(answer) => {
                let is_whole = answer.until == answer.latest;
                // If the other process started after this one, no purge of its log is missing.
                let is_new = position.is_none() && (is_first || answer.age < group.now());
                let start = if is_first && position.is_none() { LogStart::Now } else { LogStart::Whole };
                apply(&cache, &group, number, answer, (ended || is_new).then_some(start)).await;
                if is_whole {
                    node.heard.store(sent, Ordering::Release);
                }
                ended = false;
                Presence::Up
            }
            // This process was suspended, and the answer came too late. The store is not used before the next answer.
            Err(_) if group.now().saturating_sub(sent) > SUSPENDED => {
                link = None;
                Presence::Unknown
            }
            Err(failure) => {
                link = None;
                ended = match failure {
                    FollowFailure::Silent => false,
                    FollowFailure::Gone(_) => ended || *node.presence.lock() == Presence::Up,
                };
                tell(&group, number, &failure);
                Presence::Away
            }
        };
        is_first = false;
        node.tried.store(sent, Ordering::Release);
        let was = std::mem::replace(&mut *node.presence.lock(), presence);
        if was != presence {
            node.changed.notify_waiters();
        }
        drop(cache);
        if presence == Presence::Away {
            sleep(AGAIN).await;
        }
    }
}

/// Logs once that a node is away.
fn tell(group: &ShieldGroup, number: usize, failure: &FollowFailure) {
    let (Some(state), Some(node)) = (group.nodes.get(number), group.settings.nodes.get(number)) else {
        return;
    };
    if *state.presence.lock() != Presence::Away {
        tracing::warn!(group = %group.settings.name, node = %node.name, %failure, "a node of the shield is away: its part of requests goes to the origin");
    }
}

/// The position from which this node starts to follow a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogStart {
    /// The end of the log: earlier purges do not matter, because nothing is stored yet.
    Now,
    /// The beginning of the log: no purge is missing.
    Whole,
}

/// Applies the purges of an answer. If the node has begun a new log since the last answer, and `start` is `None`,
/// purges may be missing, so everything is purged.
async fn apply(
    cache: &Arc<Cache>,
    group: &ShieldGroup,
    number: usize,
    answer: LogAnswer,
    start: Option<LogStart>,
) {
    let (Some(state), Some(node)) = (group.nodes.get(number), group.settings.nodes.get(number)) else {
        return;
    };
    let position = *state.position.lock();
    let is_same = position.is_some_and(|position| position.epoch == answer.epoch);
    let (next, recordings) = match answer.purges {
        _ if start == Some(LogStart::Now) => (answer.latest, Vec::new()),
        Some(purges) if is_same || start.is_some() => {
            let mut recordings = Vec::new();
            for purge in &purges {
                cache.shield.counters.purges.inc();
                recordings.extend(cache.repeat_purge(purge));
            }
            (answer.until, recordings)
        }
        _ => {
            tracing::warn!(
                group = %group.settings.name, node = %node.name,
                "purges of a node of the shield are missing: everything that is stored is purged"
            );
            let mut all = Vec::new();
            Purge::All.write(Strength::Hard, Sequence::new(0), &mut all);
            (answer.latest, cache.repeat_purge(&all).into_iter().collect())
        }
    };
    let next = LogPosition { epoch: answer.epoch, number: next };
    let is_new = state.position.lock().replace(next) != Some(next);
    if is_new {
        group.learned.notify_waiters();
    }
    let mut written = true;
    for recording in recordings {
        written &= recording.await;
    }
    if written {
        cache.shield.positions.write(&group.positions());
    }
}

/// Asks a node once, on the open connection if there is one.
async fn ask(
    link: &mut Option<SendRequest<Empty<Bytes>>>,
    group: &ShieldGroup,
    number: usize,
    position: Option<LogPosition>,
) -> Result<LogAnswer, FollowFailure> {
    if link.as_ref().is_none_or(SendRequest::is_closed) {
        *link = Some(timeout(CONNECT, connect(group, number)).await.map_err(|_| FollowFailure::Silent)??);
    }
    let Some(sender) = link else { return Err(FollowFailure::Silent) };
    timeout(ANSWER, exchange(sender, group, number, position)).await.unwrap_or(Err(FollowFailure::Silent))
}

async fn exchange(
    sender: &mut SendRequest<Empty<Bytes>>,
    group: &ShieldGroup,
    number: usize,
    position: Option<LogPosition>,
) -> Result<LogAnswer, FollowFailure> {
    let gone = |error: &dyn std::fmt::Display| FollowFailure::Gone(error.to_string());
    let nonce = random::number();
    let position = position.unwrap_or(LogPosition { epoch: 0, number: 0 });
    let call =
        NodeCall { from: group.settings.own_name().to_owned(), nonce, kind: CallKind::Purges(position) };
    let field = group.sign(number, &call, b"/", AUTHORITY.as_bytes());
    let field = field.ok_or_else(|| gone(&"a name that is too long"))?;
    let request = Request::get("/").header(HOST, AUTHORITY).header(FIELD_NAME, field);
    let request = request.body(Empty::new()).map_err(|error| gone(&error))?;
    sender.ready().await.map_err(|error| gone(&error))?;
    let response = sender.send_request(request).await.map_err(|error| gone(&error))?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LONGEST).collect().await.map_err(|error| gone(&error))?.to_bytes();
    let proof = head.headers.get(FIELD_NAME).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let status = head.status.as_u16();
    if head.status != StatusCode::OK || !group.is_proof(proof, AnswerKind::Purges, nonce, status, &body) {
        let why = "it does not answer as a node of this group: check the names, the secret and the clocks";
        return Err(FollowFailure::Gone(why.to_owned()));
    }
    decode(&body).ok_or_else(|| gone(&"an answer that cannot be read"))
}

async fn connect(group: &ShieldGroup, number: usize) -> Result<SendRequest<Empty<Bytes>>, FollowFailure> {
    let gone = |error: &dyn std::fmt::Display| FollowFailure::Gone(error.to_string());
    let node = group.settings.nodes.get(number).ok_or(FollowFailure::Silent)?;
    let stream = match &node.address {
        ServerAddress::Ip(address) => TcpStream::connect(address).await,
        ServerAddress::Name { host, port } => TcpStream::connect((&**host, *port)).await,
        ServerAddress::Unix(_) | ServerAddress::Service(_) => Err(io::ErrorKind::Unsupported.into()),
    };
    let stream = stream.map_err(|error| gone(&error))?;
    // If this fails, answers only come later.
    let _ = stream.set_nodelay(true);
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| gone(&error))?;
    tokio::spawn(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what they do not expect")]
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let purges = vec![Arc::from(&b"one"[..]), Arc::from(&b""[..])];
        let age = Duration::from_millis(7);
        let bytes = encode((1, 9), age, &PurgesSince { until: 3, purges: Some(purges) });
        let answer = decode(&bytes).unwrap();
        assert_eq!((answer.epoch, answer.latest, answer.until, answer.age), (1, 9, 3, 7));
        assert_eq!(answer.purges.unwrap().concat(), b"one");
        let missing = decode(&encode((1, 9), age, &PurgesSince { until: 9, purges: None })).unwrap();
        assert!(missing.purges.is_none());
        assert!(decode(&bytes[..39]).is_none() && decode(&bytes[..bytes.len() - 1]).is_none());
        assert!(decode(&[0; 43]).is_none());
    }
}
