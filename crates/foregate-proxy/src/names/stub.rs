//! A stub resolver (RFC 1123, section 6.1.3.1): asks nameservers over UDP and TCP for the addresses of names and the
//! servers of services.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::message::{Name, NameserverReply, Question, RecordKind};
use super::resolv_conf::Nameservers;
use super::schedule::{Absence, LookupOutcome, NameAddresses};
use super::services::ServiceOutcome;
use crate::random;

/// The most sockets at a time, for all lookups; further questions wait. Their descriptors come from the reserve that
/// client connections leave free.
const SOCKETS: usize = 32;
/// After this time without an answer, the next server is asked as well. An answer of the first one still counts.
const NEXT_AFTER: Duration = Duration::from_secs(1);
/// A server that gave no answer is asked after all others for this long.
const TROUBLED_FOR: Duration = Duration::from_secs(30);
/// The most servers that are remembered as giving no answer.
const TROUBLED_LIMIT: usize = 64;
/// The most questions in a row for a name and the names that it is an alias of.
const ALIASES_LIMIT: usize = 8;
/// The longest answer over UDP that is read.
const UDP_LIMIT: usize = 4096;

/// Asks nameservers, and remembers which of them do not answer.
#[derive(Debug)]
pub struct Stub {
    sockets: Semaphore,
    troubled: Mutex<Vec<(SocketAddr, Instant)>>,
    turn: AtomicUsize,
}

/// The answer to the question for one family.
enum FamilyAnswer {
    NameAddresses(Vec<IpAddr>, Duration),
    Absent(Absence),
    Failed(Failure),
}

/// The reason why no server has answered.
struct Failure {
    reason: String,
    /// True if the last server could be reached.
    reached: bool,
}

impl Failure {
    fn of_server(server: SocketAddr, reason: impl std::fmt::Display, reached: bool) -> Self {
        Self { reason: format!("nameserver {server}: {reason}"), reached }
    }
}

impl Default for Stub {
    fn default() -> Self {
        Self { sockets: Semaphore::new(SOCKETS), troubled: Mutex::default(), turn: AtomicUsize::new(0) }
    }
}

impl Stub {
    /// Looks up `candidates` in turn, until one has addresses. Once one address family has been found, waits at most
    /// `patience` for the other.
    pub async fn lookup(
        &self,
        servers: &Nameservers,
        candidates: &[String],
        patience: Duration,
    ) -> LookupOutcome {
        let (mut absence, mut doubt) = (Absence::NoName, None);
        for name in candidates.iter().filter_map(|name| Name::new(name)) {
            match self.both(servers, &name, patience).await {
                (FamilyAnswer::NameAddresses(v4, first), FamilyAnswer::NameAddresses(v6, second)) => {
                    let (v4, v6) = (Some(v4), Some(v6));
                    return LookupOutcome::Found(NameAddresses {
                        v4,
                        v6,
                        valid_for: first.min(second),
                        complete: false,
                        doubt,
                    });
                }
                (FamilyAnswer::NameAddresses(v4, valid_for), v6) => {
                    let v6 = v6.is_absent().then(Vec::new);
                    return LookupOutcome::Found(NameAddresses {
                        v4: Some(v4),
                        v6,
                        valid_for,
                        complete: false,
                        doubt,
                    });
                }
                (v4, FamilyAnswer::NameAddresses(v6, valid_for)) => {
                    let v4 = v4.is_absent().then(Vec::new);
                    return LookupOutcome::Found(NameAddresses {
                        v4,
                        v6: Some(v6),
                        valid_for,
                        complete: false,
                        doubt,
                    });
                }
                // If a server fails for one candidate, the next candidate may exist; libc tries it as well. If no server is reached,
                // the outcome is unknown.
                (FamilyAnswer::Failed(failure), _) | (_, FamilyAnswer::Failed(failure))
                    if failure.reached =>
                {
                    doubt = Some(failure.reason);
                }
                (FamilyAnswer::Failed(failure), _) | (_, FamilyAnswer::Failed(failure)) => {
                    return LookupOutcome::Failed(failure.reason);
                }
                (FamilyAnswer::Absent(v4), FamilyAnswer::Absent(v6)) => {
                    if v4 == Absence::NoAddress || v6 == Absence::NoAddress {
                        absence = Absence::NoAddress;
                    }
                }
            }
        }
        doubt.map_or(LookupOutcome::Absent(absence), LookupOutcome::Failed)
    }

    /// Looks up `candidates` in turn, until one is a service with servers.
    pub async fn services(&self, servers: &Nameservers, candidates: &[String]) -> ServiceOutcome {
        let (mut absence, mut doubt) = (Absence::NoName, None);
        for name in candidates.iter().filter_map(|name| Name::new(name)) {
            match self.follow(servers, &name, RecordKind::Srv).await {
                Ok(NameserverReply::Targets(targets, ttl))
                    if targets.iter().any(|target| !target.name.is_root()) =>
                {
                    let valid_for = Duration::from_secs(ttl.into());
                    return ServiceOutcome::Found { targets, valid_for, doubt };
                }
                Ok(NameserverReply::NoName) => {}
                Ok(_) => absence = Absence::WithoutServer,
                Err(failure) if failure.reached => doubt = Some(failure.reason),
                Err(failure) => return ServiceOutcome::Failed(failure.reason),
            }
        }
        doubt.map_or(ServiceOutcome::Absent(absence), ServiceOutcome::Failed)
    }

    /// Asks for both families of a name.
    async fn both(
        &self,
        servers: &Nameservers,
        name: &Name,
        patience: Duration,
    ) -> (FamilyAnswer, FamilyAnswer) {
        if servers.only_v4 {
            return (self.ask(servers, name, RecordKind::A).await, FamilyAnswer::Absent(Absence::NoAddress));
        }
        if servers.one_at_a_time {
            return (
                self.ask(servers, name, RecordKind::A).await,
                self.ask(servers, name, RecordKind::Aaaa).await,
            );
        }
        let v4 = pin!(self.ask(servers, name, RecordKind::A));
        let v6 = pin!(self.ask(servers, name, RecordKind::Aaaa));
        match select(v4, v6).await {
            Either::Left((v4, v6)) => {
                let v6 = within(patience, v4.is_found(), v6).await;
                (v4, v6)
            }
            Either::Right((v6, v4)) => (within(patience, v6.is_found(), v4).await, v6),
        }
    }

    /// Asks for one family of a name.
    async fn ask(&self, servers: &Nameservers, name: &Name, kind: RecordKind) -> FamilyAnswer {
        match self.follow(servers, name, kind).await {
            Ok(NameserverReply::Addresses(found, ttl)) => {
                FamilyAnswer::NameAddresses(found, Duration::from_secs(ttl.into()))
            }
            Ok(NameserverReply::NoName) => FamilyAnswer::Absent(Absence::NoName),
            Ok(_) => FamilyAnswer::Absent(Absence::NoAddress),
            Err(failure) => FamilyAnswer::Failed(failure),
        }
    }

    /// Asks for records of a name. If it is an alias and the answer lacks the records of its target, asks for the target.
    async fn follow(
        &self,
        servers: &Nameservers,
        name: &Name,
        kind: RecordKind,
    ) -> Result<NameserverReply, Failure> {
        let (mut name, mut valid) = (name.clone(), u32::MAX);
        for _ in 0..ALIASES_LIMIT {
            match self.ask_servers(servers, &name, kind).await? {
                NameserverReply::Addresses(found, ttl) => {
                    return Ok(NameserverReply::Addresses(found, ttl.min(valid)));
                }
                NameserverReply::Targets(found, ttl) => {
                    return Ok(NameserverReply::Targets(found, ttl.min(valid)));
                }
                NameserverReply::Alias(target, ttl) => (name, valid) = (target, ttl.min(valid)),
                reply => return Ok(reply),
            }
        }
        Err(Failure { reason: format!("too many aliases lead to {name}"), reached: true })
    }

    /// Asks the servers one after the other, with the configured number of attempts. While a server is slow, the next one
    /// is asked as well.
    async fn ask_servers(
        &self,
        servers: &Nameservers,
        name: &Name,
        kind: RecordKind,
    ) -> Result<NameserverReply, Failure> {
        let order = self.order(servers, Instant::now());
        let tries: Vec<_> = order.iter().cycle().take(order.len() * servers.attempts).copied().collect();
        let mut tries = tries.into_iter();
        let mut pending = FuturesUnordered::new();
        let mut failure = Failure { reason: "there is no nameserver".to_owned(), reached: false };
        loop {
            match tries.next() {
                Some(server) => pending.push(self.exchange(server, servers, name, kind)),
                None if pending.is_empty() => return Err(failure),
                None => {}
            }
            tokio::select! {
                biased;
                Some(result) = pending.next() => match result {
                    Ok(reply) => return Ok(reply),
                    Err(reason) => failure = reason,
                },
                () = sleep(servers.timeout.min(NEXT_AFTER)), if tries.len() > 0 => {}
            }
        }
    }

    /// The servers in the order in which a lookup asks them. Those that recently gave no answer come last.
    fn order(&self, servers: &Nameservers, now: Instant) -> Vec<SocketAddr> {
        let mut order = servers.servers.clone();
        if servers.rotate && !order.is_empty() {
            let first = self.turn.fetch_add(1, Ordering::Relaxed) % order.len();
            order.rotate_left(first);
        }
        let mut troubled = self.troubled.lock();
        troubled.retain(|(_, since)| now.saturating_duration_since(*since) < TROUBLED_FOR);
        order.sort_by_key(|server| troubled.iter().any(|(of, _)| of == server));
        order
    }

    /// Asks one server one question.
    async fn exchange(
        &self,
        server: SocketAddr,
        servers: &Nameservers,
        name: &Name,
        kind: RecordKind,
    ) -> Result<NameserverReply, Failure> {
        let _socket = self.sockets.acquire().await;
        let question = Question { id: random::number() as u16, name: name.clone(), kind };
        let result = timeout(servers.timeout, talk(server, &question, servers.tcp)).await;
        let result = result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let mut troubled = self.troubled.lock();
        troubled.retain(|(of, _)| *of != server);
        match result {
            Ok(NameserverReply::Code(code)) => Err(Failure::of_server(server, code_name(code), true)),
            Ok(NameserverReply::Malformed | NameserverReply::Truncated) => {
                Err(Failure::of_server(server, "the answer cannot be understood", true))
            }
            Ok(reply) => Ok(reply),
            Err(error) => {
                if troubled.len() >= TROUBLED_LIMIT {
                    troubled.remove(0);
                }
                troubled.push((server, Instant::now()));
                let reason = match error.kind() {
                    io::ErrorKind::TimedOut => "no answer in time".to_owned(),
                    _ => error.to_string(),
                };
                Err(Failure::of_server(server, reason, false))
            }
        }
    }
}

impl FamilyAnswer {
    fn is_found(&self) -> bool {
        matches!(self, Self::NameAddresses(..))
    }

    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent(_))
    }
}

async fn within(patience: Duration, found: bool, other: impl Future<Output = FamilyAnswer>) -> FamilyAnswer {
    if !found {
        return other.await;
    }
    let late = Failure { reason: "no answer in time".to_owned(), reached: false };
    timeout(patience, other).await.unwrap_or(FamilyAnswer::Failed(late))
}

/// The name of a response code (RFC 1035, section 4.1.1).
fn code_name(code: u16) -> String {
    match code {
        1 => "FORMERR".to_owned(),
        2 => "SERVFAIL".to_owned(),
        4 => "NOTIMP".to_owned(),
        5 => "REFUSED".to_owned(),
        code => format!("response code {code}"),
    }
}

async fn talk(server: SocketAddr, question: &Question, tcp: bool) -> io::Result<NameserverReply> {
    if !tcp {
        match over_udp(server, question).await? {
            NameserverReply::Truncated => {}
            reply => return Ok(reply),
        }
    }
    over_tcp(server, question).await
}

/// Asks over UDP. The kernel chooses a random port, and delivers only packets from this server. Answers to other
/// questions are ignored.
async fn over_udp(server: SocketAddr, question: &Question) -> io::Result<NameserverReply> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&question.message()).await?;
    let mut message = vec![0; UDP_LIMIT];
    loop {
        let length = socket.recv(&mut message).await?;
        if let Some(reply) = question.reply(message.get(..length).unwrap_or_default()) {
            return Ok(reply);
        }
    }
}

async fn over_tcp(server: SocketAddr, question: &Question) -> io::Result<NameserverReply> {
    let mut stream = TcpStream::connect(server).await?;
    let message = question.message();
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), &*message].concat()).await?;
    loop {
        let length = stream.read_u16().await?;
        let mut message = vec![0; length.into()];
        stream.read_exact(&mut message).await?;
        if let Some(reply) = question.reply(&message) {
            return Ok(reply);
        }
    }
}
