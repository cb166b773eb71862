//! The ends of a fetch, step by step.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::world::{Script, World, request, text};
use bytes::Bytes;
use foregate_cache::{
    AnsweredRequest, Body, CacheTime, Demands, FetchFailure, FlightLimits, FlightPart, Follow, FollowedHead,
    Lead, NotStored, Object, Piece, Policy, Response, StoredHead, store,
};
use foregate_wire::HeaderList;

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn world() -> std::rc::Rc<World> {
    World::new(
        1,
        FlightLimits { largest: 1000, window: 300, ..FlightLimits::default() },
        Script::cacheable(&[]),
    )
}

fn join(world: &World) -> FlightPart {
    world.flights.join(world.key(), world.key(), world.now().cache, || None)
}

fn lead(world: &World) -> Lead {
    match join(world) {
        FlightPart::Lead(lead) => lead,
        other => panic!("{other:?}"),
    }
}

fn follow(world: &World) -> Follow {
    match join(world) {
        FlightPart::Follow(follow) => follow,
        other => panic!("{other:?}"),
    }
}

fn stored(world: &World, fields: &[(&str, &str)]) -> StoredHead {
    let mut headers = HeaderList::new();
    headers.push(b"Cache-Control", b"max-age=60");
    for (name, value) in fields {
        headers.push(name.as_bytes(), value.as_bytes());
    }
    let asked = AnsweredRequest { demands: &Demands::default(), headers: &request("1"), path: b"/" };
    let response = Response { status: 200, headers: &headers, sent: world.now(), received: world.now() };
    store(&asked, &response, &Policy::default(), &world.secret).unwrap()
}

fn object(world: &World, head: StoredHead, body: Body) -> Arc<Object> {
    Arc::new(Object::new(head, body, world.key(), &text(), world.memory.floors().begin()))
}

#[test]
fn followers_are_woken_at_the_head_at_each_piece_and_at_the_end() {
    let world = world();
    let (mut lead, mut follow) = (lead(&world), follow(&world));
    assert!(world.flights.is_filling(world.key()));
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(Arc::clone(&counter));
    let context = Context::from_waker(&waker);
    let woken = || counter.0.swap(0, Ordering::Relaxed);

    assert!(follow.poll_head(&context).is_pending() && follow.poll_head(&context).is_pending());
    let head = stored(&world, &[]);
    assert!(lead.head(Arc::new(head.clone()), None, None, world.now().cache));
    assert_eq!(woken(), 1);
    assert!(matches!(follow.poll_head(&context), Poll::Ready(FollowedHead::Arrived(_))));
    assert!(follow.poll_piece(&context).is_pending());
    assert!(lead.push(Bytes::from_static(b"ab")));
    assert_eq!((woken(), world.flights.memory()), (1, 2));
    // Nobody waits, so nobody is woken.
    lead.push(Bytes::from_static(b"c"));
    lead.push(Bytes::new());
    assert_eq!(woken(), 0);
    let bytes = |text: &'static [u8]| Poll::Ready(Piece::Bytes(Bytes::from_static(text)));
    assert_eq!(follow.poll_piece(&context), bytes(b"ab"));
    assert_eq!(follow.poll_piece(&context), bytes(b"c"));
    assert!(follow.poll_piece(&context).is_pending());
    let complete = lead.complete(|body| Some(object(&world, head, body))).unwrap();
    assert_eq!((woken(), world.flights.memory(), complete.body.len()), (1, 0, 3));
    assert_eq!(follow.poll_piece(&context), Poll::Ready(Piece::End));
    assert_eq!(follow.poll_piece(&context), Poll::Ready(Piece::End));
    assert!(matches!(follow.poll_head(&context), Poll::Ready(FollowedHead::Complete(_))));
    assert!(!world.flights.is_filling(world.key()));
    assert!(matches!(join(&world), FlightPart::Lead(_)));
}

#[test]
fn a_leader_that_is_dropped_has_failed() {
    let world = world();
    let waker = Waker::noop();
    let context = Context::from_waker(waker);
    let (leader, mut follower) = (lead(&world), follow(&world));
    drop(leader);
    assert!(matches!(
        follower.poll_head(&context),
        Poll::Ready(FollowedHead::Failed(FetchFailure::Abandoned))
    ));
    let (mut leader, mut follower) = (lead(&world), follow(&world));
    leader.head(Arc::new(stored(&world, &[])), None, None, world.now().cache);
    leader.push(Bytes::from_static(b"ab"));
    drop(leader);
    assert!(matches!(follower.poll_head(&context), Poll::Ready(FollowedHead::Arrived(_))));
    assert_eq!(follower.poll_piece(&context), Poll::Ready(Piece::Bytes(Bytes::from_static(b"ab"))));
    assert_eq!(follower.poll_piece(&context), Poll::Ready(Piece::Broken(FetchFailure::Abandoned)));
    assert_eq!(world.flights.memory(), 0);
}

#[test]
fn a_validation_is_shared() {
    let world = world();
    let waker = Waker::noop();
    let context = Context::from_waker(waker);
    let (leader, mut follower) = (lead(&world), follow(&world));
    leader.refreshed(object(&world, stored(&world, &[]), Body::new(vec![Bytes::from_static(b"x")])));
    let Poll::Ready(FollowedHead::Complete(object)) = follower.poll_head(&context) else {
        panic!("not complete")
    };
    assert_eq!(object.body.len(), 1);
}

#[test]
fn an_object_that_was_stored_meanwhile_is_found() {
    let world = world();
    let head = stored(&world, &[]);
    let joined = world
        .flights
        .join(world.key(), world.key(), CacheTime(0), || Some(object(&world, head, Body::default())));
    assert!(matches!(joined, FlightPart::Found(_)));
    assert!(!world.flights.is_filling(world.key()));
}

#[test]
fn a_fetch_is_known_under_its_variant() {
    let world = world();
    let mut leader = lead(&world);
    let head = stored(&world, &[("Vary", "V")]);
    let key = world.key().variant(head.vary.clone().unwrap().variant, &world.secret);
    leader.head(Arc::new(head), None, Some(key), world.now().cache);
    let by_variant = || world.flights.join(key, world.key(), world.now().cache, || None);
    assert!(matches!(by_variant(), FlightPart::Follow(_)) && matches!(join(&world), FlightPart::Follow(_)));
    drop(leader);
    assert!(matches!(by_variant(), FlightPart::Lead(_)));
}

#[test]
fn a_mark_ends_early_where_a_response_is_stored_after_all() {
    let world = world();
    lead(&world).uncacheable(world.now().cache, Some(NotStored::NoStore));
    assert!(matches!(join(&world), FlightPart::Alone(Some(NotStored::NoStore))));
    world.flights.unmark(world.key());
    assert!(matches!(join(&world), FlightPart::Lead(_)));
}

#[test]
fn a_leader_keeps_the_body_of_a_response_that_it_does_not_share() {
    let world = world();
    let mut leader = lead(&world);
    let head = Arc::new(stored(&world, &[("Cache-Control", "no-cache"), ("ETag", "\"a\"")]));
    assert!(!leader.head(Arc::clone(&head), None, None, world.now().cache));
    assert!(leader.push(Bytes::from_static(b"ab")) && leader.push(Bytes::from_static(b"c")));
    let object = leader.complete(|body| Some(object(&world, (*head).clone(), body))).unwrap();
    assert_eq!((object.body.len(), world.flights.memory()), (3, 0));
    // Beyond the longest body it keeps nothing.
    world.flights.unmark(world.key());
    let mut leader = lead(&world);
    leader.head(head, Some(2000), None, world.now().cache);
    assert!(!leader.push(Bytes::from_static(b"ab")));
    assert_eq!(world.flights.memory(), 0);
}

#[test]
fn a_follower_that_is_left_behind_holds_nobody_up() {
    let world = world();
    let context = Context::from_waker(Waker::noop());
    let mut leader = lead(&world);
    let (mut fast, mut slow) = (follow(&world), follow(&world));
    assert!(leader.head(Arc::new(stored(&world, &[])), None, None, world.now().cache));
    let piece = || Bytes::from(vec![1; 100]);
    while leader.push(piece()) {}
    assert!(leader.poll_room(&context).is_pending() && !leader.keeps_followers_waiting());
    let mut read = 0;
    while let Poll::Ready(Piece::Bytes(_)) = fast.poll_piece(&context) {
        read += 1;
    }
    assert_eq!(read, 11);
    assert!(leader.poll_room(&context).is_pending() && leader.keeps_followers_waiting());
    leader.leave_behind();
    assert_eq!((leader.poll_room(&context), world.flights.memory()), (Poll::Ready(true), 300));
    // It has not noticed yet, as its client takes nothing.
    for _ in 0..20 {
        leader.push(piece());
        assert!(matches!(fast.poll_piece(&context), Poll::Ready(Piece::Bytes(_))));
        assert_eq!(leader.poll_room(&context), Poll::Ready(true));
    }
    assert_eq!(slow.poll_piece(&context), Poll::Ready(Piece::Lagged));
    drop(fast);
    assert_eq!(leader.poll_room(&context), Poll::Ready(false));
}

#[test]
fn all_fetches_together_are_bounded() {
    let limits = FlightLimits { largest: 1000, window: 100, total: 1500, mark: 10_000 };
    let world = World::new(1, limits, Script::cacheable(&[]));
    let waker = Waker::noop();
    let context = Context::from_waker(waker);
    let now = world.now().cache;
    let key = |number: u8| {
        let mut text = foregate_cache::KeyText::new();
        let path = [b'/', number];
        let uri = foregate_cache::Uri {
            scheme: foregate_wire::Scheme::Http,
            host: "b",
            port: None,
            path: &path,
            query: None,
        };
        text.write(&uri, &foregate_cache::KeyParts::default());
        text.key(&world.secret)
    };
    let lead = |number| match world.flights.join(key(number), key(number), now, || None) {
        FlightPart::Lead(lead) => lead,
        other => panic!("{other:?}"),
    };
    let head = Arc::new(stored(&world, &[]));
    let mut first = lead(1);
    assert!(first.head(Arc::clone(&head), Some(900), None, now));
    assert!(first.push(Bytes::from(vec![1; 900])));
    // The length is known: not shared, and no mark, since another time there may be room.
    let mut second = lead(2);
    let FlightPart::Follow(mut follower) = world.flights.join(key(2), key(2), now, || None) else { panic!() };
    assert!(!second.head(Arc::clone(&head), Some(700), None, now));
    assert!(matches!(follower.poll_head(&context), Poll::Ready(FollowedHead::Uncacheable)));
    assert_eq!(world.flights.marks(), 0);
    assert!(!second.push(Bytes::from(vec![1; 700])));
    // The length is not known: a window, as of a body that is too long.
    let mut third = lead(3);
    assert!(third.head(head, None, None, now));
    assert!(third.push(Bytes::from(vec![1; 90])));
    assert!(!third.push(Bytes::from(vec![1; 600])));
    assert_eq!(world.flights.memory(), 900 + 600);
    assert!(!third.push(Bytes::from(vec![1; 50])));
    assert_eq!(world.flights.memory(), 900 + 50);
    drop((first, second, third));
    assert_eq!(world.flights.memory(), 0);
}

#[test]
fn marks_are_bounded() {
    let world = world();
    let now = world.now().cache;
    for number in 0..300_000_u32 {
        let mut text = foregate_cache::KeyText::new();
        let path = format!("/{number}");
        let uri = foregate_cache::Uri {
            scheme: foregate_wire::Scheme::Http,
            host: "a",
            port: None,
            path: path.as_bytes(),
            query: None,
        };
        text.write(&uri, &foregate_cache::KeyParts::default());
        let key = text.key(&world.secret);
        if let FlightPart::Lead(lead) = world.flights.join(key, key, now, || None) {
            lead.uncacheable(now, None);
        }
    }
    assert!(world.flights.marks() <= 64 * 4096, "{}", world.flights.marks());
}
