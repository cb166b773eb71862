//! The event loop that drives all client connections from one thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use rustls::ClientConfig;

use crate::exchange::Exchange;
use crate::h1::{Answer, Fed};
use crate::h2;
use crate::link::{self, Link, Received};
use crate::tally::Tally;

/// Bytes read at once.
const READ: usize = 256 * 1024;
/// Faults after which a run is given up.
const FAULTS_LIMIT: u64 = 100;
/// How long the requests in flight may take to end once no more are sent.
const DRAIN: Duration = Duration::from_secs(20);
/// Connections that may be without an answer at a time while many are being opened.
const OPENING: usize = 64;

/// The use of each connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Carries one request after the other.
    Kept,
    /// Carries one request, then a new one takes its place.
    Once,
    /// Carries a request when told to.
    Told,
}

/// The load to generate.
pub struct Plan {
    /// The proxy.
    pub target: SocketAddr,
    /// Number of connections.
    pub connections: usize,
    /// Requests at a time on each, over HTTP/2; none: HTTP/1.1.
    pub streams: Option<usize>,
    /// The use of the connections.
    pub usage: Use,
    /// Body bytes of the answers.
    pub answer: usize,
    /// Body bytes of the requests.
    pub upload: usize,
    /// The certificate to trust, and whether to resume sessions; none: cleartext.
    pub tls: Option<(PathBuf, bool)>,
    /// Hosts that the HTTP/1.1 requests name, picked at random: `s0.example` and so on; 0: always the same.
    pub hosts: usize,
    /// Pages that the HTTP/1.1 requests say they come from, picked at random, each with a cookie of its own; 0: the fields
    /// are the same each time.
    pub pages: usize,
    /// Number of source addresses; 0: the kernel's choice.
    pub sources: u32,
    /// The HTTP/1.1 requests with their expected responses, picked at random; none: made of `answer`, `upload`,
    /// `hosts` and `pages`.
    pub exchanges: Option<Vec<Exchange>>,
}

/// One client connection, which is replaced by a new one when it ends.
struct Client {
    link: Option<Link>,
    /// TLS settings of its own, so that the tickets it collects are its own.
    config: Option<Arc<ClientConfig>>,
    /// The HTTP/1.1 request that waits for an answer, since when.
    waiting: Option<Instant>,
    /// Which of the exchanges it belongs to.
    exchange: usize,
    answer: Answer,
    h2: Option<h2::Connection>,
    /// The answer is complete and the server's close is awaited.
    closing: bool,
    tls_noted: bool,
}

/// All connections with their counts.
pub struct Driver {
    plan: Plan,
    poll: Poll,
    events: Events,
    clients: Vec<Client>,
    /// The HTTP/1.1 requests that the connections send, and their answers.
    exchanges: Vec<Exchange>,
    random: Random,
    buffer: Vec<u8>,
    out: Vec<u8>,
    /// Set if connections send the next request by themselves.
    open: bool,
    /// The counts of the present phase.
    pub tally: Tally,
    /// The same for each class of exchanges that has a name.
    pub classes: BTreeMap<String, Tally>,
    /// When the last answer was complete.
    pub last: Instant,
    /// Connections with complete responses since this was last emptied.
    finished: VecDeque<usize>,
}

impl Driver {
    /// Prepares the connections; none is opened yet.
    pub fn new(mut plan: Plan) -> Result<Self, Box<dyn std::error::Error>> {
        let mut clients = Vec::with_capacity(plan.connections);
        let shared = match &plan.tls {
            Some((certificate, false)) => Some(link::tls(certificate, false, plan.streams.is_some())?),
            _ => None,
        };
        for _ in 0..plan.connections {
            let config = match &plan.tls {
                Some((certificate, true)) => Some(link::tls(certificate, true, plan.streams.is_some())?),
                _ => shared.clone(),
            };
            clients.push(Client {
                link: None,
                config,
                waiting: None,
                exchange: 0,
                answer: Answer::default(),
                h2: None,
                closing: false,
                tls_noted: false,
            });
        }
        let given = plan.exchanges.take();
        let exchange = |host: &str, fields: &str| {
            Exchange::pattern(host, fields, plan.answer, plan.upload, plan.usage == Use::Once)
        };
        let from = |page: usize| {
            let name = link::NAME;
            let fields = format!("Referer: http://{name}/pages/{page}\r\nCookie: visit={page:08}\r\n");
            exchange(name, &fields)
        };
        let exchanges = match (given, plan.hosts, plan.pages) {
            (Some(exchanges), ..) => exchanges,
            (None, 0, 0) => vec![exchange(link::NAME, "")],
            (None, 0, pages) => (0..pages).map(from).collect(),
            (None, hosts, _) => (0..hosts).map(|host| exchange(&format!("s{host}.example"), "")).collect(),
        };
        Ok(Self {
            exchanges,
            random: Random::new(),
            poll: Poll::new()?,
            events: Events::with_capacity(1024),
            clients,
            buffer: vec![0; READ],
            out: Vec::new(),
            open: false,
            tally: Tally::default(),
            classes: BTreeMap::new(),
            last: Instant::now(),
            finished: VecDeque::new(),
            plan,
        })
    }

    /// Sends requests on all connections until the deadline, then waits for their answers.
    pub fn closed_loop(&mut self, length: Duration) -> Result<(), String> {
        let deadline = Instant::now() + length;
        self.open = true;
        for index in 0..self.clients.len() {
            self.go(index);
        }
        while Instant::now() < deadline {
            self.step(deadline)?;
        }
        self.open = false;
        self.drain()
    }

    /// Opens all connections, a limited number at a time, with one request on each.
    pub fn one_each(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut next = 0;
        while next < self.clients.len() {
            let done = self.tally.requests + self.tally.faulty();
            while next < self.clients.len() && next as u64 - done < OPENING as u64 {
                self.go(next);
                next += 1;
            }
            self.step(deadline)?;
            if Instant::now() > deadline {
                return Err("the connections did not open in time".to_owned());
            }
        }
        self.drain()
    }

    /// Sends bursts of requests on connections picked at random until this number was
    /// sent. A burst starts `interval` after the one before it, or, with no
    /// interval, when that one is over. Unspecified sizes and the picks
    /// depend only on the number of connections, so that every proxy gets
    /// the same.
    pub fn bursts(&mut self, requests: u64, size: Option<usize>, interval: Duration) -> Result<(), String> {
        let mut random = Random::new();
        let mut sent = 0;
        while sent < requests {
            let next = Instant::now() + interval;
            let size =
                size.unwrap_or_else(|| random.burst(self.clients.len())).min((requests - sent) as usize);
            for _ in 0..size {
                let from = random.below(self.clients.len());
                let idle = |client: &Client| client.waiting.is_none();
                let picked =
                    (from..self.clients.len()).chain(0..from).find(|index| idle(&self.clients[*index]));
                let Some(index) = picked else { break };
                self.go(index);
                sent += 1;
            }
            while Instant::now() < next {
                self.step(next)?;
            }
            if interval.is_zero() {
                self.drain()?;
            }
        }
        self.drain()
    }

    /// Has each client send a request, wait for the answer and think for as long as planned, until so many were sent. Clients begin at times
    /// that are spread over the first think time.
    pub fn thinking(&mut self, requests: u64, think: Duration) -> Result<(), String> {
        let mut random = Random::new();
        let (start, parts) = (Instant::now(), 1_000_000);
        let mut due: BTreeSet<(Instant, usize)> = (0..self.clients.len())
            .map(|index| (start + think * random.below(parts) as u32 / parts as u32, index))
            .collect();
        let (mut asking, mut sent) = (vec![false; self.clients.len()], 0);
        while sent < requests {
            let now = Instant::now();
            for index in 0..self.clients.len() {
                if asking[index] && self.clients[index].waiting.is_none() {
                    asking[index] = false;
                    due.insert((now + think, index));
                }
            }
            while sent < requests
                && let Some(&(at, index)) = due.first()
                && at <= now
            {
                due.pop_first();
                asking[index] = true;
                self.go(index);
                sent += 1;
            }
            self.step(due.first().map_or(now + think, |(at, _)| *at))?;
        }
        self.drain()
    }

    /// Handles pending events without waiting, and counts closed connections.
    pub fn gone(&mut self) -> Result<usize, String> {
        self.step(Instant::now())?;
        Ok(self.clients.iter().filter(|client| client.link.is_none()).count())
    }

    fn drain(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + DRAIN;
        while self.clients.iter().any(Client::busy) {
            if Instant::now() > deadline {
                return Err("requests were not answered in time".to_owned());
            }
            self.step(deadline)?;
        }
        Ok(())
    }

    /// Waits for events until the deadline at most and handles them.
    fn step(&mut self, deadline: Instant) -> Result<(), String> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        match self.poll.poll(&mut events, Some(left)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => other.map_err(|error| error.to_string())?,
        }
        for event in &events {
            let Token(index) = event.token();
            let ended = event.is_read_closed() || event.is_error();
            if let Err(kind) = self.turn(index, event.is_writable(), ended) {
                self.fail(index, kind);
            }
        }
        self.events = events;
        while let Some(index) = self.finished.pop_front() {
            if self.open {
                self.go(index);
            }
            if self.tally.faulty() > FAULTS_LIMIT {
                return Err(format!("too many faults: {:?}", self.tally.faults));
            }
        }
        Ok(())
    }

    /// Lets a connection send, and opens it if need be.
    fn go(&mut self, index: usize) {
        if let Err(error) = self.send(index) {
            self.fail(index, kind_of(&error));
        }
    }

    fn send(&mut self, index: usize) -> io::Result<()> {
        if self.clients[index].link.is_none() {
            self.connect(index)?;
        }
        let client = &mut self.clients[index];
        let Some(link) = &mut client.link else { return Ok(()) };
        let (Some(h2), Some(streams)) = (&mut client.h2, self.plan.streams) else {
            if client.waiting.is_none() && !client.closing {
                client.waiting = Some(Instant::now());
                client.exchange = self.random.below(self.exchanges.len());
                link.send(&self.exchanges[client.exchange].request)?;
            }
            return Ok(());
        };
        self.out.clear();
        while self.open && h2.usable() && h2.waiting() < streams {
            h2.request(&mut self.out);
        }
        if !self.out.is_empty() {
            link.send(&self.out)?;
        }
        Ok(())
    }

    fn connect(&mut self, index: usize) -> io::Result<()> {
        let client = &mut self.clients[index];
        let source = (self.plan.sources > 0).then(|| index as u32 % self.plan.sources);
        let mut link = Link::open(self.plan.target, source, client.config.clone())?;
        self.poll.registry().register(
            &mut link.socket,
            Token(index),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        self.tally.connects += 1;
        client.closing = false;
        client.tls_noted = self.plan.tls.is_none();
        client.answer = Answer::default();
        if self.plan.streams.is_some() {
            let (connection, first) = h2::Connection::new(self.plan.tls.is_some(), self.plan.answer);
            client.h2 = Some(connection);
            link.send(&first)?;
        }
        client.link = Some(link);
        Ok(())
    }

    fn fail(&mut self, index: usize, kind: &'static str) {
        self.tally.fault(kind);
        self.clients[index].forget();
        self.finished.push_back(index);
    }

    /// Handles one connection's events. An error is the kind of fault.
    fn turn(&mut self, index: usize, writable: bool, ended: bool) -> Result<(), &'static str> {
        // An event of a connection that a turn before it in this batch gave up.
        let Some(mut link) = self.clients[index].link.take() else { return Ok(()) };
        if writable {
            link.writable().map_err(|error| kind_of(&error))?;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = loop {
            match link.receive(&mut buffer) {
                Ok(Received::Data { bytes, last }) => {
                    if let Err(kind) = self.feed(index, &mut link, &buffer[..bytes]) {
                        break Err(kind);
                    }
                    if last && !ended {
                        break Ok(true);
                    }
                }
                Ok(Received::Nothing) => break Ok(true),
                Ok(Received::End) => break Ok(false),
                Err(error) => break Err(kind_of(&error)),
            }
        };
        self.buffer = buffer;
        let client = &mut self.clients[index];
        let left = client.h2.as_ref().is_some_and(|h2| h2.leaving() && h2.waiting() == 0);
        if outcome? && !left {
            client.link = Some(link);
            return Ok(());
        }
        let cut = self.clients[index].unanswered();
        self.clients[index].forget();
        self.finished.push_back(index);
        if cut { Err("connection cut") } else { Ok(()) }
    }

    fn feed(&mut self, index: usize, link: &mut Link, bytes: &[u8]) -> Result<(), &'static str> {
        let client = &mut self.clients[index];
        if !client.tls_noted
            && let Some(negotiated) = link.negotiated()
        {
            *self.tally.tls.entry(negotiated).or_default() += 1;
            client.tls_noted = true;
        }
        let length = self.plan.answer;
        let Some(h2) = &mut client.h2 else {
            let Some(started) = client.waiting else { return Err("bytes without a request") };
            match client.answer.feed(bytes, &self.exchanges[client.exchange].expected) {
                Fed::More => return Ok(()),
                Fed::Wrong(kind) => return Err(kind),
                Fed::Done { close, length } => {
                    client.waiting = None;
                    client.closing = close || self.plan.usage == Use::Once;
                    self.last = Instant::now();
                    self.tally.answered(length, started, self.last);
                    let class = &self.exchanges[client.exchange].class;
                    if !class.is_empty() {
                        self.classes.entry(class.clone()).or_default().answered(length, started, self.last);
                    }
                    if !self.clients[index].closing {
                        self.finished.push_back(index);
                    }
                }
            }
            return Ok(());
        };
        let (tally, last) = (&mut self.tally, &mut self.last);
        let mut wrong = None;
        self.out.clear();
        h2.feed(bytes, &mut self.out, |event| match event {
            h2::Event::Answered(started) => {
                *last = Instant::now();
                tally.answered(length, started, *last);
            }
            h2::Event::Wrong(kind) => wrong = Some(kind),
        });
        if let Some(kind) = wrong {
            return Err(kind);
        }
        if !self.out.is_empty() {
            link.send(&self.out).map_err(|error| kind_of(&error))?;
        }
        self.finished.push_back(index);
        Ok(())
    }
}

impl Client {
    /// Returns true if a response, or the close behind it, is still awaited.
    fn busy(&self) -> bool {
        self.unanswered() || (self.closing && self.link.is_some())
    }

    fn unanswered(&self) -> bool {
        self.waiting.is_some() || self.h2.as_ref().is_some_and(|h2| h2.waiting() > 0)
    }

    fn forget(&mut self) {
        self.link = None;
        self.waiting = None;
        self.h2 = None;
        self.closing = false;
    }
}

fn kind_of(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset => "connection reset",
        io::ErrorKind::BrokenPipe => "broken pipe",
        io::ErrorKind::AddrNotAvailable => "no free local port",
        io::ErrorKind::Other => "TLS error",
        _ => "I/O error",
    }
}

/// A small generator of numbers that are the same in every run (xorshift64*).
struct Random(u64);

impl Random {
    fn new() -> Self {
        Self(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    /// Size of a burst: mostly a few, one in eight up to all connections.
    fn burst(&mut self, most: usize) -> usize {
        let bound = if self.below(8) == 0 { most } else { most.div_ceil(8) };
        1 + self.below(bound)
    }
}
