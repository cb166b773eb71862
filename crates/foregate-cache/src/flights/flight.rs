//! One shared fetch, with the handles of its leader and its followers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;

use super::FlightsShared;
use crate::body::Body;
use crate::key::Key;
use crate::moment::CacheTime;
use crate::object::Object;
use crate::purge::{FetchUnderWay, Sequence};
use crate::store::NotStored;
use crate::stored::StoredHead;

/// A fetch under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) state: Mutex<State>,
}

impl Flight {
    /// The number of the latest purge when the request went to the origin. `None` before the request is sent.
    pub(super) fn sequence(&self) -> Option<Sequence> {
        self.state.lock().sequence
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    sequence: Option<Sequence>,
    head: Option<Arc<StoredHead>>,
    /// The head for the leader's own client, if it has more fields than the head for the others.
    own_head: Option<Arc<StoredHead>>,
    /// The number of the first piece that is kept. `pieces` begins with this piece.
    first: usize,
    pieces: VecDeque<Bytes>,
    /// Bytes of the pieces that are kept. `length` counts the bytes of all pieces so far.
    kept: u64,
    length: u64,
    /// The number of bytes that were kept when the body turned out to be too long. Up to this many bytes may stay
    /// for followers that have not read them yet.
    behind: u64,
    end: Option<End>,
    /// Set when the fetch has ended with a body that is not stored: its pieces count as memory of the fetches until
    /// the last follower has gone.
    counted: Option<Arc<FlightsShared>>,
    /// The end of the body for the leader's own client, if the other followers were released at the head.
    own_end: Option<End>,
    waiting: FollowerWakers,
    /// The leader's waker, while the leader waits for the slowest follower.
    leader: Option<Waker>,
}

impl State {
    /// The number of the next piece of the slowest follower that has not fallen behind. `None` if there is no such follower.
    fn slowest(&self) -> Option<usize> {
        let in_window = |next: &usize| *next != FollowerWakers::FREE && *next >= self.first;
        self.waiting.positions.iter().copied().filter(in_window).min()
    }

    /// Drops old pieces of a body that is not kept whole. A window, of at least one piece, stays, so that a
    /// follower that keeps up misses nothing. If the leader waits for room before each piece, no piece is dropped
    /// that a follower still needs.
    fn trim(&mut self, window: u64) {
        let slowest = self.slowest();
        let is_released = matches!(self.end, Some(End::Uncacheable)) && slowest.is_none();
        loop {
            let is_over = self.kept > window && self.pieces.len() > 1;
            let is_read = slowest.is_none_or(|next| next > self.first);
            if !is_released && !(is_over && (is_read || self.kept > (2 * window).max(self.behind))) {
                return;
            }
            let Some(oldest) = self.pieces.pop_front() else { return };
            self.first += 1;
            self.kept -= oldest.len() as u64;
        }
    }
}

/// The ways in which a fetch ends.
#[derive(Clone, Debug)]
enum End {
    /// All bytes are there. `Some` if they are stored.
    Complete(Option<Arc<Object>>),
    Failed(FetchFailure),
    /// The response is for the leader's client alone.
    Uncacheable,
}

/// Why a fetch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchFailure {
    /// The origin failed. Followers that have received no byte fail, too: to ask again would multiply the load of
    /// an origin in trouble.
    Origin,
    /// The leader was dropped without ending the fetch, or the store failed. Followers that have received no byte
    /// join again.
    Abandoned,
}

/// The wakers of followers. Each follower has a place, the index of its waker.
#[derive(Debug, Default)]
struct FollowerWakers {
    wakers: Vec<Option<Waker>>,
    /// The number of the next piece of each follower, or [`Self::FREE`] for a place without a follower.
    positions: Vec<usize>,
    free: Vec<usize>,
}

impl FollowerWakers {
    const FREE: usize = usize::MAX;

    fn enter(&mut self) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.wakers.push(None);
            self.positions.push(Self::FREE);
            self.wakers.len() - 1
        });
        self.advance(place, 0);
        place
    }

    fn advance(&mut self, place: usize, next: usize) {
        if let Some(position) = self.positions.get_mut(place) {
            *position = next;
        }
    }

    fn leave(&mut self, place: usize) {
        if let Some(waker) = self.wakers.get_mut(place) {
            *waker = None;
            self.free.push(place);
        }
        self.advance(place, Self::FREE);
    }

    fn wait(&mut self, place: usize, context: &Context<'_>) {
        if let Some(waker) = self.wakers.get_mut(place) {
            match waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
        }
    }

    /// Takes all wakers, so that the caller can wake them without the lock.
    fn take(&mut self) -> Vec<Waker> {
        self.wakers.iter_mut().filter_map(Option::take).collect()
    }
}

fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

/// The handle of the leader of a fetch. If it is dropped before it has ended the fetch, the fetch fails.
#[derive(Debug)]
pub struct Lead {
    flight: Arc<Flight>,
    shared: Arc<FlightsShared>,
    key: Key,
    /// The key of the variant, if the table has the fetch under that key, too.
    variant: Option<Key>,
    address: Key,
    /// The length that the head announced.
    announced: Option<u64>,
    whole: bool,
    ended: bool,
    /// Keeps the purges that may concern the response.
    fetch: Option<FetchUnderWay>,
}

impl Lead {
    pub(super) fn new(flight: Arc<Flight>, shared: Arc<FlightsShared>, key: Key, address: Key) -> Self {
        Self {
            flight,
            shared,
            key,
            variant: None,
            address,
            announced: None,
            whole: true,
            ended: false,
            fetch: None,
        }
    }

    /// The key of the fetch.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Makes the follower for the leader's own client, which caused the fetch. The fetch itself can then go on in a
    /// task of its own.
    pub fn follow(&self) -> Follow {
        let mut follow = Follow::new(Arc::clone(&self.flight));
        follow.own = true;
        follow
    }

    /// Records that the request goes to the origin. Purges since `fetch` has begun apply to the response.
    pub fn begin(&mut self, fetch: FetchUnderWay) {
        self.flight.state.lock().sequence = Some(fetch.sequence());
        self.fetch = Some(fetch);
    }

    /// Sets the head for the leader's own client, which may get fields that other clients do not get. To be called
    /// before [`head`](Self::head).
    pub fn own_head(&self, head: Arc<StoredHead>) {
        self.flight.state.lock().own_head = Some(head);
    }

    /// A view on the fetch for tasks other than its leader.
    pub fn watch(&self) -> FlightWatch {
        FlightWatch(Arc::clone(&self.flight))
    }

    /// Announces the head of a response that may be stored, with the length of its body if it is known, and the key of its variant if it varies.
    /// Returns false if the response cannot be shared: it needs a validation for each request, or is too long for
    /// the bounds. The followers are then released as by [`uncacheable`](Self::uncacheable). The leader continues
    /// the fetch for the store and for its own client, and the follower of that client stays.
    pub fn head(
        &mut self,
        head: Arc<StoredHead>,
        length: Option<u64>,
        variant: Option<Key>,
        now: CacheTime,
    ) -> bool {
        self.announced = length;
        let limits = &self.shared.limits;
        let too_long = length.is_some_and(|length| length > limits.largest);
        // A lack of room is not a property of the response, so it sets no mark.
        let room = limits.total.saturating_sub(self.shared.memory.load(Ordering::Relaxed)) as u64;
        let no_room = length.is_some_and(|length| length > room);
        self.whole &= !too_long && !no_room;
        if too_long || no_room || !head.life.is_shareable() {
            if !no_room {
                self.shared.mark(self.key, now, None);
            }
            self.end(End::Uncacheable);
            return false;
        }
        let alias = variant.filter(|&variant| variant != self.key);
        self.variant = alias.filter(|&variant| self.shared.alias(variant, &self.flight));
        let mut state = self.flight.state.lock();
        state.head = Some(head);
        let wakers = state.waiting.take();
        drop(state);
        wake(wakers);
        true
    }

    /// Adds a piece of the body, which has to be its own allocation (see [`Body::new`]). Returns false once the
    /// body is too long for the bounds: from then on, only a window of it is kept, and followers must not fall
    /// behind it.
    pub fn push(&mut self, piece: Bytes) -> bool {
        if piece.is_empty() {
            return self.whole;
        }
        let limits = self.shared.limits;
        let wakers = {
            let state = &mut *self.flight.state.lock();
            let before = state.kept;
            state.length += piece.len() as u64;
            let full = self.shared.memory.load(Ordering::Relaxed) + piece.len() > limits.total;
            let was_whole = self.whole;
            self.whole &= state.length <= limits.largest && !full;
            state.kept += piece.len() as u64;
            state.pieces.push_back(piece);
            if was_whole && !self.whole {
                // The body was kept whole so far, so followers may be anywhere in it.
                state.behind = state.kept;
            }
            if !self.whole {
                state.trim(limits.window);
            }
            account(&self.shared, before, state.kept);
            state.waiting.take()
        };
        wake(wakers);
        self.whole
    }

    /// Waits until there is room for one more piece without leaving a follower behind. Returns false if the body is
    /// too long for the bounds and has no follower, so that the rest of it is of no use. A body within the bounds
    /// always has room.
    pub fn poll_room(&mut self, context: &Context<'_>) -> Poll<bool> {
        if self.whole {
            return Poll::Ready(true);
        }
        let state = &mut *self.flight.state.lock();
        let (before, window) = (state.kept, self.shared.limits.window);
        state.trim(window);
        account(&self.shared, before, state.kept);
        let is_read = |next: usize| next >= state.first + state.pieces.len();
        match state.slowest() {
            None => Poll::Ready(false),
            Some(next) if state.kept <= window || is_read(next) => Poll::Ready(true),
            Some(_) => {
                state.leader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Returns whether a follower has read everything and waits for the leader.
    pub fn keeps_followers_waiting(&self) -> bool {
        let state = self.flight.state.lock();
        let end = state.first + state.pieces.len();
        state.waiting.positions.iter().any(|&next| next != FollowerWakers::FREE && next >= end)
    }

    /// If the body is too long for the bounds, gives up the followers that are more than a window behind. These
    /// followers get [`Piece::Lagged`] next, and the leader no longer waits for them.
    pub fn leave_behind(&self) {
        if self.whole {
            return;
        }
        let state = &mut *self.flight.state.lock();
        let before = state.kept;
        while state.kept > self.shared.limits.window && state.pieces.len() > 1 {
            let Some(oldest) = state.pieces.pop_front() else { break };
            state.first += 1;
            state.kept -= oldest.len() as u64;
        }
        state.behind = 0;
        account(&self.shared, before, state.kept);
    }

    /// Ends the fetch with a complete body. `store` makes an object of the body and stores the object. `store` is
    /// not called for a body that is too long. The fetch is removed from the table only after `store` has returned,
    /// so that every request finds either the fetch or the object.
    ///
    /// If the length of the body differs from the length that the head announced, the fetch fails.
    pub fn complete(mut self, store: impl FnOnce(Body) -> Option<Arc<Object>>) -> Option<Arc<Object>> {
        let pieces = {
            let state = self.flight.state.lock();
            if self.announced.is_some_and(|announced| announced != state.length) {
                None
            } else {
                Some(self.whole.then(|| state.pieces.iter().cloned().collect::<Vec<_>>()))
            }
        };
        let Some(pieces) = pieces else {
            self.end(End::Failed(FetchFailure::Origin));
            return None;
        };
        let object = pieces.and_then(|pieces| store(Body::new(pieces)));
        self.end(End::Complete(object.clone()));
        object
    }

    /// Ends a validation: the object, with its new head, answers all followers with requests that select it.
    pub fn refreshed(mut self, object: Arc<Object>) {
        self.end(End::Complete(Some(object)));
    }

    /// Ends the fetch with a failure.
    pub fn fail(mut self, failed: FetchFailure) {
        self.end(End::Failed(failed));
    }

    /// Ends the fetch for the followers: the response is not stored, so each of them fetches for itself at once. For some time, requests
    /// under this key do not wait for each other, and get the `reason`.
    pub fn uncacheable(mut self, now: CacheTime, reason: Option<NotStored>) {
        self.shared.mark(self.key, now, reason);
        self.end(End::Uncacheable);
    }

    /// Ends the fetch and removes it from the table. If the followers were released before, sets the end for the
    /// leader's own client.
    fn end(&mut self, end: End) {
        if self.ended {
            let mut state = self.flight.state.lock();
            state.own_end.get_or_insert(end);
            let wakers = state.waiting.take();
            drop(state);
            return wake(wakers);
        }
        self.ended = true;
        let mut state = self.flight.state.lock();
        state.end = Some(end);
        let wakers = state.waiting.take();
        drop(state);
        self.shared.remove(self.key, &self.flight);
        if let Some(variant) = self.variant {
            self.shared.remove(variant, &self.flight);
        }
        wake(wakers);
    }
}

/// A view on a fetch.
#[derive(Debug)]
pub struct FlightWatch(Arc<Flight>);

impl FlightWatch {
    /// Returns whether a request waits for the fetch, or reads from it.
    pub fn is_followed(&self) -> bool {
        self.0.state.lock().slowest().is_some()
    }
}

/// Counts the memory of pieces.
fn account(shared: &FlightsShared, before: u64, after: u64) {
    if after >= before {
        shared.memory.fetch_add((after - before) as usize, Ordering::Relaxed);
    } else {
        shared.memory.fetch_sub((before - after) as usize, Ordering::Relaxed);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.end(End::Failed(FetchFailure::Abandoned));
        let state = &mut *self.flight.state.lock();
        let whole =
            [&state.end, &state.own_end].into_iter().any(|end| matches!(end, Some(End::Complete(None))));
        if whole {
            state.counted = Some(Arc::clone(&self.shared));
        } else {
            account(&self.shared, state.kept, 0);
        }
        self.shared.leave(self.address);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Some(shared) = &state.counted {
            account(shared, state.kept, 0);
        }
    }
}

/// The head of a fetch, for a follower.
#[derive(Clone, Debug)]
pub enum FollowedHead {
    /// The head has arrived, and the body will follow. The follower has to check whether the response is for its
    /// request ([`other_variant`](super::other_variant)).
    Arrived(Arc<StoredHead>),
    /// The whole object is there. As for `Arrived`, the follower has to check whether the object is for its request.
    Complete(Arc<Object>),
    /// There will be no object.
    Failed(FetchFailure),
    /// The response is for the leader's client alone: the follower has to fetch for itself.
    Uncacheable,
}

/// A step of the body, for a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The next bytes, never empty.
    Bytes(Bytes),
    /// The body is complete.
    End,
    /// The body breaks off: the follower's client has to see that something is missing.
    Broken(FetchFailure),
    /// The follower has fallen behind the window of a body that is not stored. Unless the follower can fetch the
    /// rest, its client has to notice that the body is incomplete.
    Lagged,
}

/// A follower of a fetch.
#[derive(Debug)]
pub struct Follow {
    flight: Arc<Flight>,
    place: usize,
    /// The number of the next piece.
    next: usize,
    /// `true` for the follower of the leader's own client. This follower continues when the other followers are released.
    own: bool,
}

impl Follow {
    pub(super) fn new(flight: Arc<Flight>) -> Self {
        let place = flight.state.lock().waiting.enter();
        Self { flight, place, next: 0, own: false }
    }

    /// Makes a follower that reads the body from its start. `None` if the start is gone.
    pub(super) fn from_start(flight: Arc<Flight>) -> Option<Self> {
        let mut state = flight.state.lock();
        if state.first > 0 {
            return None;
        }
        let place = state.waiting.enter();
        drop(state);
        Some(Self { flight, place, next: 0, own: false })
    }

    /// Waits for the head.
    pub fn poll_head(&mut self, context: &Context<'_>) -> Poll<FollowedHead> {
        let mut state = self.flight.state.lock();
        let own_head = state.own_head.as_ref().filter(|_| self.own && state.head.is_some());
        let head = match (&state.end, &state.head) {
            (Some(End::Complete(_)) | None, _) if let Some(head) = own_head => {
                FollowedHead::Arrived(Arc::clone(head))
            }
            (Some(End::Complete(Some(object))), _) => FollowedHead::Complete(Arc::clone(object)),
            (Some(End::Uncacheable), _) => {
                if !self.own {
                    // A released follower does not read from this fetch, so no pieces are kept for it.
                    state.waiting.advance(self.place, FollowerWakers::FREE);
                }
                FollowedHead::Uncacheable
            }
            (_, Some(head)) => FollowedHead::Arrived(Arc::clone(head)),
            (Some(End::Failed(failed)), None) => FollowedHead::Failed(*failed),
            (Some(End::Complete(None)), None) => FollowedHead::Failed(FetchFailure::Abandoned),
            (None, None) => {
                state.waiting.wait(self.place, context);
                return Poll::Pending;
            }
        };
        Poll::Ready(head)
    }

    /// Waits for the next piece of the body.
    pub fn poll_piece(&mut self, context: &Context<'_>) -> Poll<Piece> {
        let mut state = self.flight.state.lock();
        let Some(at) = self.next.checked_sub(state.first) else { return Poll::Ready(Piece::Lagged) };
        if let Some(piece) = state.pieces.get(at).cloned() {
            self.next += 1;
            state.waiting.advance(self.place, self.next);
            let leader = state.leader.take();
            drop(state);
            if let Some(leader) = leader {
                leader.wake();
            }
            return Poll::Ready(Piece::Bytes(piece));
        }
        // Other followers were released before they could read, so this is the follower of the leader's own client.
        let end = match &state.end {
            Some(End::Uncacheable) => &state.own_end,
            end => end,
        };
        let piece = match end {
            Some(End::Complete(_)) => Piece::End,
            Some(End::Failed(failed)) => Piece::Broken(*failed),
            Some(End::Uncacheable) => Piece::Broken(FetchFailure::Abandoned),
            None => {
                state.waiting.wait(self.place, context);
                return Poll::Pending;
            }
        };
        Poll::Ready(piece)
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let mut state = self.flight.state.lock();
        state.waiting.leave(self.place);
        let leader = state.leader.take();
        drop(state);
        if let Some(leader) = leader {
            leader.wake();
        }
    }
}
