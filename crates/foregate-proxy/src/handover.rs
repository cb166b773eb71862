//! Passes unread connections to another generation (process) of the program while that generation is on trial.
//!
//! A connection stays open here until the other side has acknowledged it. So if the other generation hangs or dies,
//! only the connections that it has begun to serve are lost.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use foregate_supervisor::channel::Channel;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use crate::transport::stream::Socket;

/// The share that means all connections, in hundredths of a percent.
const ALL: u32 = 10_000;
/// The most connections that are passed but not acknowledged yet. Further ones are served here.
const UNTAKEN_MOST: usize = 1024;
/// The time limit for other generations to show their metrics.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of a number in a message.
const NUMBER: usize = 8;

/// A question for the metrics of the other generations.
#[derive(Debug)]
pub struct MetricsQuestion {
    /// The metrics of this process, which the other generations may show, too.
    pub own: String,
    /// The destination of the answer.
    pub answer: oneshot::Sender<Vec<String>>,
}

/// The role of this process in a trial: it accepts connections, passes some of them on, or waits.
#[derive(Debug)]
pub struct Handover {
    accepting: watch::Sender<bool>,
    passage: ArcSwapOption<Passage>,
    others: ArcSwapOption<mpsc::Sender<MetricsQuestion>>,
    orders: ArcSwapOption<mpsc::Sender<oneshot::Sender<()>>>,
}

impl Default for Handover {
    /// The process accepts all connections and passes none.
    fn default() -> Self {
        Self {
            accepting: watch::channel(true).0,
            passage: ArcSwapOption::empty(),
            others: ArcSwapOption::empty(),
            orders: ArcSwapOption::empty(),
        }
    }
}

impl Handover {
    /// Reports whether listeners accept, now and after each change.
    pub fn accepting(&self) -> watch::Receiver<bool> {
        self.accepting.subscribe()
    }

    /// Has listeners accept, or leave new connections to another process.
    pub fn accept(&self, accepts: bool) {
        self.accepting.send_replace(accepts);
    }

    /// Returns true if listeners accept.
    pub fn accepts(&self) -> bool {
        *self.accepting.borrow()
    }

    /// The passage to another generation, if connections are passed.
    pub fn passage(&self) -> Option<Arc<Passage>> {
        // This costs hardly anything while there is no passage.
        if self.passage.load().is_none() { None } else { self.passage.load_full() }
    }

    /// Sets the passage through which connections are passed from now on. Returns the previous one.
    pub fn set_passage(&self, passage: Option<Arc<Passage>>) -> Option<Arc<Passage>> {
        self.passage.swap(passage)
    }

    /// Sets the channel for questions to the other generations about their metrics.
    pub fn set_others(&self, others: mpsc::Sender<MetricsQuestion>) {
        self.others.store(Some(Arc::new(others)));
    }

    /// Sets the channel that tells the other generations when an operator has given orders for servers.
    pub fn set_orders(&self, orders: mpsc::Sender<oneshot::Sender<()>>) {
        self.orders.store(Some(Arc::new(orders)));
    }

    /// Makes the other generations follow this generation's present orders for servers. Returns once they do, or after a
    /// time limit.
    pub async fn tell_orders(&self) {
        let Some(orders) = self.orders.load_full() else { return };
        let (told, answered) = oneshot::channel();
        let telling = async {
            // This fails if there is no supervisor.
            let _ = orders.send(told).await;
            let _ = answered.await;
        };
        let _ = tokio::time::timeout(PATIENCE, telling).await;
    }

    /// The metrics of the other generations, including ended ones. Generations that do not answer are left out. The
    /// supervisor remembers `own`, the metrics of this process: if the process crashes, no counter falls below a value
    /// that was shown.
    pub async fn others(&self, own: &str) -> Vec<String> {
        let Some(others) = self.others.load_full() else { return Vec::new() };
        let (answer, answered) = oneshot::channel();
        if others.try_send(MetricsQuestion { own: own.to_owned(), answer }).is_err() {
            return Vec::new();
        }
        tokio::time::timeout(PATIENCE, answered).await.ok().and_then(Result::ok).unwrap_or_default()
    }
}

/// A connection that was accepted, with the listener's address as the configuration names it.
#[derive(Debug)]
pub struct PassedConnection {
    /// The listener.
    pub address: Arc<str>,
    /// The connection.
    pub socket: Socket,
    /// The peer.
    pub remote: Option<SocketAddr>,
}

/// The passage of connections to another generation.
#[derive(Debug)]
pub struct Passage {
    channel: Channel,
    /// The share of the connections that is passed, in hundredths of a percent.
    share: AtomicU32,
    next: AtomicU64,
    untaken: Mutex<VecDeque<(u64, PassedConnection)>>,
}

impl Passage {
    /// A passage over this channel. No connections are passed until a share is set.
    pub fn new(channel: Channel) -> Self {
        Self { channel, share: AtomicU32::new(0), next: AtomicU64::new(0), untaken: Mutex::default() }
    }

    /// Passes this share from now on, in hundredths of a percent.
    pub fn set_share(&self, share: u32) {
        self.share.store(share.min(ALL), Ordering::Relaxed);
    }

    /// Returns true if a connection should be passed. All connections of a client go to the same generation, except with
    /// `speaks_for_many`: a peer that stands for many clients has its connections distributed one by one.
    pub fn takes(&self, remote: Option<SocketAddr>, speaks_for_many: bool) -> bool {
        let share = self.share.load(Ordering::Relaxed);
        let part = match remote {
            Some(remote) => {
                let port = if speaks_for_many { remote.port() } else { 0 };
                let (high, low) = match remote.ip() {
                    std::net::IpAddr::V4(address) => (0, u64::from(address.to_bits())),
                    // A network of 64 bits is one client.
                    std::net::IpAddr::V6(address) => (1, (address.to_bits() >> 64) as u64),
                };
                mix(mix(low ^ high << 40) ^ u64::from(port))
            }
            // Peers of a Unix socket have no address, so their connections are distributed one by one.
            None => mix(self.next.fetch_add(1, Ordering::Relaxed)),
        };
        part % u64::from(ALL) < u64::from(share)
    }

    /// Passes a connection. Returns it if it has to be served here.
    pub fn pass(&self, passed: PassedConnection) -> Option<PassedConnection> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut untaken = self.untaken.lock();
        if untaken.len() >= UNTAKEN_MOST {
            return Some(passed);
        }
        let message = [&number.to_le_bytes()[..], passed.address.as_bytes()].concat();
        let Some(descriptor) = passed.socket.descriptor() else {
            drop(untaken);
            return Some(passed);
        };
        match self.channel.try_send(&message, &[descriptor]) {
            Ok(()) => {
                untaken.push_back((number, passed));
                None
            }
            Err(_) => Some(passed),
        }
    }

    /// Processes the answers of the other side until it closes the channel. Connections that it refuses are passed to
    /// `refused`.
    pub async fn follow(&self, mut refused: impl FnMut(PassedConnection)) {
        while let Ok(Some(message)) = self.channel.receive().await {
            if let Some(passed) = self.taken(&message.bytes) {
                refused(passed);
            }
        }
    }

    /// Records an answer. Returns the connection if it was refused.
    fn taken(&self, answer: &[u8]) -> Option<PassedConnection> {
        let (number, rest) = answer.split_first_chunk::<NUMBER>()?;
        let number = u64::from_le_bytes(*number);
        let mut untaken = self.untaken.lock();
        let at = untaken.iter().position(|(known, _)| *known == number)?;
        let (_, passed) = untaken.remove(at)?;
        (!rest.is_empty()).then_some(passed)
    }

    /// Returns true if the other side has answered for all connections.
    pub fn is_settled(&self) -> bool {
        self.untaken.lock().is_empty()
    }

    /// Closes the channel, and returns the connections that were not acknowledged. The other side will not serve these any
    /// more.
    pub fn take_back(&self) -> Vec<PassedConnection> {
        self.channel.shut_down();
        // Answers that were sent before the channel was shut down still count.
        while let Ok(Some(message)) = self.channel.try_receive() {
            drop(self.taken(&message.bytes));
        }
        std::mem::take(&mut *self.untaken.lock()).into_iter().map(|(_, passed)| passed).collect()
    }
}

/// Receives a connection: its number, the address of its listener, its socket. `None` at the end.
pub async fn receive(channel: &Channel) -> Option<(u64, String, OwnedFd)> {
    loop {
        let mut message = channel.receive().await.ok()??;
        let Some((number, address)) = message.bytes.split_first_chunk::<NUMBER>() else { continue };
        let Some(socket) = message.descriptors.pop() else { continue };
        return Some((u64::from_le_bytes(*number), String::from_utf8_lossy(address).into_owned(), socket));
    }
}

/// Tells the other side that a connection is taken, or refused. Returns false if the channel is closed: then the
/// other side serves the connection itself.
pub async fn answer(channel: &Channel, number: u64, takes: bool) -> bool {
    let mut message = number.to_le_bytes().to_vec();
    if !takes {
        message.push(1);
    }
    channel.send(&message, &[]).await.is_ok()
}

/// Spreads the bits of a number (the finish of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use foregate_supervisor::channel::pair;

    use super::*;

    fn passage() -> (Passage, Channel) {
        let (here, there) = pair().unwrap();
        (Passage::new(Channel::new(here).unwrap()), Channel::new(there).unwrap())
    }

    fn connection() -> (TcpStream, PassedConnection) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, remote) = listener.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        let socket = tokio::net::TcpStream::from_std(accepted).unwrap().into();
        (client, PassedConnection { address: "127.0.0.1:80".into(), socket, remote: Some(remote) })
    }

    #[tokio::test]
    async fn a_connection_is_passed_with_its_listener() {
        let (passage, there) = passage();
        let (mut client, passed) = connection();
        assert!(passage.pass(passed).is_none());
        let (number, address, socket) = receive(&there).await.unwrap();
        assert_eq!(address, "127.0.0.1:80");
        assert!(answer(&there, number, true).await);
        drop(there);
        passage.follow(|_| panic!("it was taken")).await;
        assert!(passage.is_settled());
        let mut socket = TcpStream::from(socket);
        socket.set_nonblocking(false).unwrap();
        socket.write_all(b"hello").unwrap();
        drop(socket);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello", "no other descriptor keeps it open");
    }

    #[tokio::test]
    async fn what_is_not_taken_comes_back_and_is_taken_by_one_side_only() {
        let (passage, there) = passage();
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let (client, passed) = connection();
                assert!(passage.pass(passed).is_none());
                client
            })
            .collect();
        let (number, ..) = receive(&there).await.unwrap();
        assert!(answer(&there, number, true).await);
        let back = passage.take_back();
        assert_eq!(back.len(), clients.len() - 1);
        let (number, ..) = receive(&there).await.unwrap();
        assert!(!answer(&there, number, true).await, "it is served where it came from");
        assert!(passage.pass(connection().1).is_some());
    }

    #[tokio::test]
    async fn a_refused_one_comes_back() {
        let (passage, there) = passage();
        let (_client, passed) = connection();
        assert!(passage.pass(passed).is_none());
        let (number, ..) = receive(&there).await.unwrap();
        answer(&there, number, false).await;
        drop(there);
        let mut back = 0;
        passage.follow(|_| back += 1).await;
        assert_eq!(back, 1);
    }

    #[tokio::test]
    async fn a_share_is_one_of_clients_and_grows() {
        let (passage, _there) = passage();
        let address = |n: u32| Some(SocketAddr::from((n.to_be_bytes(), 4000)));
        let taken = |share| {
            passage.set_share(share);
            (0..10_000).filter(|n| passage.takes(address(*n), false)).collect::<Vec<_>>()
        };
        let (one, ten, all) = (taken(100), taken(1000), taken(10_000));
        assert!(
            (50..200).contains(&one.len()) && (800..1200).contains(&ten.len()),
            "{} {}",
            one.len(),
            ten.len()
        );
        assert!(one.iter().all(|n| ten.contains(n)), "whoever has the new version keeps it");
        assert_eq!((all.len(), taken(0).len()), (10_000, 0));
        passage.set_share(5000);
        let ports =
            |many| (0..1000).filter(|port| passage.takes(Some(([127, 0, 0, 1], *port).into()), many)).count();
        assert!([0, 1000].contains(&ports(false)));
        assert!((400..600).contains(&ports(true)));
    }
}
