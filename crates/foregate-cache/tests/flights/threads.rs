//! One table, used by many threads, each with a waker that unparks it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use bytes::Bytes;
use foregate_cache::{
    AnsweredRequest, Body, CacheTime, Demands, FetchFailure, FlightLimits, FlightPart, Flights, Floors,
    FollowedHead, KeyParts, KeyText, Memory, MemoryLookup, Moment, Object, Piece, Policy, Purge, Response,
    Secret, Strength, Uri, store,
};
use foregate_wire::{HeaderList, Scheme};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn threads_share_fetches_and_see_whole_bodies_or_breaks() {
    const ROUNDS: usize = 300;
    const THREADS: usize = 8;
    let secret = Secret::new([1; 16]);
    let memory = Memory::new(8 << 20, secret, Arc::new(Floors::default()));
    let flights = Flights::new(FlightLimits::default());
    let mut text = KeyText::new();
    let uri = Uri { scheme: Scheme::Http, host: "a", port: None, path: b"/", query: None };
    text.write(&uri, &KeyParts::default());
    let (key, at) = (text.key(&secret), Moment { wall: 1_795_867_200, cache: CacheTime(9) });
    let (fetches, whole, broken) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let request = HeaderList::new();
    let find = || match memory.get(key, &text, &request) {
        MemoryLookup::Object { object, .. } => Some(object),
        MemoryLookup::Nothing { .. } => None,
    };
    let fetch = |mut lead: foregate_cache::Lead| {
        let sequence = memory.floors().begin();
        let number = fetches.fetch_add(1, Ordering::Relaxed);
        let mut headers = HeaderList::new();
        headers.push(b"Cache-Control", b"max-age=60");
        let asked = AnsweredRequest { demands: &Demands::default(), headers: &request, path: b"/" };
        let response = Response { status: 200, headers: &headers, sent: at, received: at };
        let head = Arc::new(store(&asked, &response, &Policy::default(), &secret).unwrap());
        lead.head(Arc::clone(&head), Some(5000), None, at.cache);
        for _ in 0..5 {
            lead.push(Bytes::from(vec![number as u8; 1000]));
            thread::yield_now();
            if number % 5 == 4 {
                return lead.fail(FetchFailure::Origin);
            }
        }
        lead.complete(|body: Body| {
            let object = Arc::new(Object::new((*head).clone(), body, key, &text, sequence));
            memory.insert(Arc::clone(&object), at.cache).then_some(object)
        });
    };
    let ask = || {
        if let Some(object) = find() {
            return Some(object.body.pieces().concat());
        }
        match flights.join(key, key, at.cache, find) {
            FlightPart::Found(object) => Some(object.body.pieces().concat()),
            FlightPart::Lead(lead) => {
                fetch(lead);
                None
            }
            FlightPart::Alone(_) => panic!("nothing is uncacheable here"),
            FlightPart::Follow(mut follow) => {
                match block_on(poll_fn(|context| follow.poll_head(context))) {
                    FollowedHead::Arrived(_) | FollowedHead::Complete(_) => {}
                    other => panic!("{other:?}"),
                }
                let mut body = Vec::new();
                loop {
                    match block_on(poll_fn(|context| follow.poll_piece(context))) {
                        Piece::Bytes(bytes) => body.extend_from_slice(&bytes),
                        Piece::End => return Some(body),
                        Piece::Broken(_) => {
                            broken.fetch_add(1, Ordering::Relaxed);
                            return None;
                        }
                        Piece::Lagged => panic!("the body is short"),
                    }
                }
            }
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (ask, whole, memory) = (&ask, &whole, &memory);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    if let Some(body) = ask() {
                        assert!(body.len() == 5000 && body.iter().all(|byte| Some(byte) == body.first()));
                        whole.fetch_add(1, Ordering::Relaxed);
                    }
                    if round % 10 == thread {
                        memory.floors().purge(&Purge::Key(key), Strength::Hard);
                    }
                }
            });
        }
    });
    assert!(whole.load(Ordering::Relaxed) > 0);
    assert!(fetches.load(Ordering::Relaxed) < THREADS * ROUNDS / 2);
    assert_eq!(flights.memory(), 0);
    assert!(!flights.is_filling(key));
}
