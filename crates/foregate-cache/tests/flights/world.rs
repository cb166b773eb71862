//! A proxy in small: requests that look into the tier, join fetches and read bodies, and an origin by script.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use foregate_cache::{
    AnsweredRequest, CacheTime, Demands, FetchFailure, FlightLimits, FlightPart, Flights, Floors, Follow,
    FollowedHead, Key, KeyParts, KeyText, Lead, Memory, MemoryLookup, Moment, Object, Piece, Policy,
    Response, Secret, StoredHead, Uri, other_variant, store,
};
use foregate_wire::{HeaderList, Scheme};

use super::executor::{Executor, pause};

/// How the origin answers.
#[derive(Clone, Debug)]
pub struct Script {
    pub fields: Vec<(&'static str, String)>,
    /// Lengths of the pieces.
    pub pieces: Vec<usize>,
    pub announced: Option<u64>,
    pub ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    Whole,
    /// The leader goes away before the head.
    NoHead,
    /// The origin fails before the head.
    Refused,
    /// The body breaks off.
    BreaksOff,
}

impl Script {
    pub fn cacheable(pieces: &[usize]) -> Self {
        Self {
            fields: vec![("Cache-Control", "max-age=60".to_owned())],
            pieces: pieces.to_vec(),
            announced: None,
            ending: Ending::Whole,
        }
    }

    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.fields.push((name, value.to_owned()));
        self
    }
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The value of the selecting field that the response is for, and the body.
    Whole {
        mark: String,
        body: Vec<u8>,
    },
    /// The body broke off.
    Broken,
    Lagged,
    /// No head.
    Failed,
}

pub struct World {
    pub memory: Memory,
    pub flights: Flights,
    pub secret: Secret,
    pub script: RefCell<Script>,
    pub fetches: Cell<usize>,
    /// Requests at the origin, now and at most.
    pub running: Cell<usize>,
    pub most: Cell<usize>,
    pub now: Cell<u64>,
    pub outcomes: RefCell<Vec<Outcome>>,
    pub executor: Executor,
    /// `true` if followers pause between pieces.
    pub slow: Cell<bool>,
}

pub fn body_of(mark: &str, pieces: &[usize]) -> Vec<u8> {
    let length = pieces.iter().sum();
    mark.bytes().chain(*b"-").cycle().take(length).collect()
}

pub fn request(value: &str) -> HeaderList {
    let mut headers = HeaderList::new();
    headers.push(b"V", value.as_bytes());
    headers
}

pub fn text() -> KeyText {
    let mut text = KeyText::new();
    let uri = Uri { scheme: Scheme::Http, host: "a", port: None, path: b"/", query: None };
    text.write(&uri, &KeyParts::default());
    text
}

impl World {
    pub fn new(seed: u64, limits: FlightLimits, script: Script) -> Rc<Self> {
        let (secret, floors) = (Secret::new([5; 16]), Arc::new(Floors::default()));
        Rc::new(Self {
            memory: Memory::new(16 << 20, secret, floors),
            flights: Flights::new(limits),
            secret,
            script: RefCell::new(script),
            fetches: Cell::new(0),
            running: Cell::new(0),
            most: Cell::new(0),
            now: Cell::new(1_000_000),
            outcomes: RefCell::default(),
            executor: Executor::new(seed),
            slow: Cell::new(false),
        })
    }

    pub fn now(&self) -> Moment {
        Moment { wall: 1_795_867_200, cache: CacheTime(self.now.get()) }
    }

    pub fn key(&self) -> Key {
        text().key(&self.secret)
    }

    /// Adds a request with this value of the selecting field.
    pub fn ask(self: &Rc<Self>, value: &str) {
        let (world, value) = (Rc::clone(self), value.to_owned());
        self.executor.spawn(async move {
            let outcome = world.serve(&value).await;
            world.outcomes.borrow_mut().push(outcome);
        });
    }

    fn find(&self, headers: &HeaderList) -> Result<Arc<Object>, Option<Key>> {
        match self.memory.get(self.key(), &text(), headers) {
            MemoryLookup::Object { object, .. } => Ok(object),
            MemoryLookup::Nothing { variant } => Err(variant),
        }
    }

    async fn serve(self: &Rc<Self>, value: &str) -> Outcome {
        let (address, headers) = (self.key(), request(value));
        let mut key = match self.find(&headers) {
            Ok(object) => return whole(&object),
            Err(variant) => variant.unwrap_or(address),
        };
        for _ in 0..5 {
            let recheck = || self.find(&headers).ok();
            match self.flights.join(key, address, self.now().cache, recheck) {
                FlightPart::Found(object) => return whole(&object),
                FlightPart::Alone(_) => return self.fetch_alone(value).await,
                FlightPart::Lead(lead) => return self.lead(lead, value, &headers).await,
                FlightPart::Follow(mut follow) => {
                    let head = poll_fn(|context| follow.poll_head(context)).await;
                    let head = match &head {
                        FollowedHead::Arrived(head) => head,
                        FollowedHead::Complete(object) => &object.head,
                        FollowedHead::Uncacheable => return self.fetch_alone(value).await,
                        FollowedHead::Failed(FetchFailure::Origin) => return Outcome::Failed,
                        FollowedHead::Failed(FetchFailure::Abandoned) => continue,
                    };
                    match other_variant(head, address, &headers, &self.secret) {
                        Some(variant) => key = variant,
                        None => return self.read(follow, head).await,
                    }
                }
            }
        }
        panic!("a request joined five fetches in vain");
    }

    /// A request of its own to the origin.
    async fn fetch_alone(&self, value: &str) -> Outcome {
        self.begin();
        pause().await;
        let pieces = self.script.borrow().pieces.clone();
        pause().await;
        self.running.set(self.running.get() - 1);
        Outcome::Whole { mark: value.to_owned(), body: body_of(value, &pieces) }
    }

    fn begin(&self) {
        self.fetches.set(self.fetches.get() + 1);
        self.running.set(self.running.get() + 1);
        self.most.set(self.most.get().max(self.running.get()));
    }

    async fn lead(self: &Rc<Self>, mut lead: Lead, value: &str, headers: &HeaderList) -> Outcome {
        self.begin();
        let (sent, sequence) = (self.now(), self.memory.floors().begin());
        let script = self.script.borrow().clone();
        for _ in 0..3 {
            pause().await;
        }
        match script.ending {
            Ending::NoHead => {
                // The next one fares better.
                self.script.borrow_mut().ending = Ending::Whole;
                self.running.set(self.running.get() - 1);
                drop(lead);
                return Outcome::Failed;
            }
            Ending::Refused => {
                self.running.set(self.running.get() - 1);
                lead.fail(FetchFailure::Origin);
                return Outcome::Failed;
            }
            Ending::Whole | Ending::BreaksOff => {}
        }
        let mut fields = HeaderList::new();
        for (name, field) in &script.fields {
            fields.push(name.as_bytes(), field.as_bytes());
        }
        fields.push(b"Mark", value.as_bytes());
        let asked = AnsweredRequest { demands: &Demands::default(), headers, path: b"/" };
        let response = Response { status: 200, headers: &fields, sent, received: self.now() };
        let Ok(stored) = store(&asked, &response, &Policy::default(), &self.secret) else {
            lead.uncacheable(self.now().cache, None);
            pause().await;
            self.running.set(self.running.get() - 1);
            return Outcome::Whole { mark: value.to_owned(), body: body_of(value, &script.pieces) };
        };
        let stored = Arc::new(stored);
        let variant = stored.vary.as_ref().map(|vary| self.key().variant(vary.variant, &self.secret));
        let shared = lead.head(Arc::clone(&stored), script.announced, variant, self.now().cache);
        let follow = lead.follow();
        let body = body_of(value, &script.pieces);
        let (world, head, content) = (Rc::clone(self), Arc::clone(&stored), body.clone());
        self.executor.spawn(async move { world.fill(lead, head, &content, &script, sequence).await });
        if !shared {
            return Outcome::Whole { mark: value.to_owned(), body };
        }
        self.read(follow, &stored).await
    }

    /// The task that brings the body.
    async fn fill(
        &self,
        mut lead: Lead,
        head: Arc<StoredHead>,
        body: &[u8],
        script: &Script,
        sequence: foregate_cache::Sequence,
    ) {
        let mut at = 0;
        for &length in &script.pieces {
            pause().await;
            lead.push(Bytes::copy_from_slice(&body[at..at + length]));
            at += length;
            let limits = self.most_memory();
            assert!(self.flights.memory() <= limits, "{} bytes in flight", self.flights.memory());
        }
        pause().await;
        self.running.set(self.running.get() - 1);
        if script.ending == Ending::BreaksOff {
            lead.fail(FetchFailure::Origin);
            return;
        }
        lead.complete(|body| {
            let object = Arc::new(Object::new((*head).clone(), body, self.key(), &text(), sequence));
            self.memory.insert(Arc::clone(&object), self.now().cache).then_some(object)
        });
    }

    fn most_memory(&self) -> usize {
        (self.running.get() + 1) * (2 << 20)
    }

    async fn read(&self, mut follow: Follow, head: &StoredHead) -> Outcome {
        let mark = String::from_utf8_lossy(head.headers.get_name(b"mark").unwrap()).into_owned();
        let mut body = Vec::new();
        loop {
            if self.slow.get() && self.executor.random(2) == 0 {
                pause().await;
            }
            match poll_fn(|context| follow.poll_piece(context)).await {
                Piece::Bytes(bytes) => body.extend_from_slice(&bytes),
                Piece::End => return Outcome::Whole { mark, body },
                Piece::Broken(_) => return Outcome::Broken,
                Piece::Lagged => return Outcome::Lagged,
            }
        }
    }

    /// Runs all requests. The result are their outcomes.
    pub fn run(&self) -> Vec<Outcome> {
        assert_eq!(self.executor.run(), 0, "somebody waits for ever");
        assert_eq!((self.flights.memory(), self.running.get()), (0, 0));
        assert!(!self.flights.is_filling(self.key()));
        self.outcomes.take()
    }
}

fn whole(object: &Object) -> Outcome {
    let mark = String::from_utf8_lossy(object.head.headers.get_name(b"mark").unwrap()).into_owned();
    Outcome::Whole { mark, body: object.body.pieces().concat() }
}
