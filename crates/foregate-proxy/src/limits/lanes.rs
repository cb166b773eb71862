//! Bounded concurrency, shared fairly, for operations such as reads and writes of files. Clients take
//! turns, so that a client with many operations delays only its own.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::limits::account::Account;

/// Entries that wait, such as pieces of work. Clients take turns; clients without an address count as one.
#[derive(Debug)]
pub struct ClientTurns<T> {
    /// The entries of each client that has any.
    lanes: HashMap<Account, VecDeque<T>, foldhash::fast::RandomState>,
    /// The clients with entries, the next one first.
    order: VecDeque<Account>,
}

impl<T> Default for ClientTurns<T> {
    fn default() -> Self {
        Self { lanes: HashMap::default(), order: VecDeque::new() }
    }
}

impl<T> ClientTurns<T> {
    /// Adds an entry behind those of its client.
    pub fn push(&mut self, account: Account, entry: T) {
        self.lane(account).push_back(entry);
    }

    /// Removes those entries of a client for which `keep` returns false, and adds an entry behind the others.
    fn push_behind(&mut self, account: Account, entry: T, keep: impl Fn(&T) -> bool) {
        let lane = self.lane(account);
        lane.retain(keep);
        lane.push_back(entry);
    }

    /// The entries of a client, to add one. Gives the client a place in the order if it had no entries.
    fn lane(&mut self, account: Account) -> &mut VecDeque<T> {
        let lane = self.lanes.entry(account).or_default();
        if lane.is_empty() {
            self.order.push_back(account);
        }
        lane
    }

    /// The next entry.
    pub fn pop(&mut self) -> Option<T> {
        let account = self.order.pop_front()?;
        let lane = self.lanes.get_mut(&account)?;
        let entry = lane.pop_front();
        if lane.is_empty() {
            self.lanes.remove(&account);
        } else {
            self.order.push_back(account);
        }
        entry
    }

    /// The number of clients with entries.
    #[cfg(test)]
    fn clients(&self) -> usize {
        self.lanes.len()
    }
}

/// A bounded number of turns at a time.
#[derive(Debug)]
pub struct Lanes(Mutex<LaneWaiter>);

#[derive(Debug)]
struct LaneWaiter {
    /// The number of further turns that may begin without waiting.
    free: usize,
    lanes: ClientTurns<oneshot::Sender<LaneTurn>>,
}

/// A turn, which ends when this value is dropped.
#[derive(Debug)]
pub struct LaneTurn(Option<Arc<Lanes>>);

impl Lanes {
    /// Allows `turns` turns at a time.
    pub fn new(turns: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(LaneWaiter { free: turns, lanes: ClientTurns::default() })))
    }

    /// Waits for a turn.
    pub async fn turn(self: &Arc<Self>, account: Account) -> LaneTurn {
        loop {
            let waits = {
                let mut waiting = self.0.lock();
                if waiting.free > 0 {
                    waiting.free -= 1;
                    return LaneTurn(Some(Arc::clone(self)));
                }
                let (tell, waits) = oneshot::channel();
                waiting.join(account, tell);
                waits
            };
            // The sender is only dropped after it has sent a turn.
            if let Ok(turn) = waits.await {
                return turn;
            }
        }
    }

    /// Returns true if a turn may begin at once.
    pub fn has_free(&self) -> bool {
        self.0.lock().free > 0
    }

    /// Passes a finished turn to the next waiter.
    fn hand_on(self: Arc<Self>) {
        let mut turn = LaneTurn(Some(Arc::clone(&self)));
        loop {
            let Some(next) = self.0.lock().next() else { break };
            match next.send(turn) {
                Ok(()) => return,
                // This waiter has given up: the turn goes to the next one.
                Err(unused) => turn = unused,
            }
        }
        turn.0 = None;
    }
}

impl LaneWaiter {
    fn join(&mut self, account: Account, tell: oneshot::Sender<LaneTurn>) {
        // The client's waiters that have given up are removed, so that they do not pile up.
        self.lanes.push_behind(account, tell, |waits| !waits.is_closed());
    }

    /// Takes the next waiter. If there is none, the turn becomes free.
    fn next(&mut self) -> Option<oneshot::Sender<LaneTurn>> {
        let next = self.lanes.pop();
        if next.is_none() {
            self.free += 1;
        }
        next
    }
}

impl Drop for LaneTurn {
    fn drop(&mut self) {
        if let Some(lanes) = self.0.take() {
            lanes.hand_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn of(last: u8) -> Account {
        Account::of(Some([192, 0, 2, last].into()))
    }

    #[tokio::test]
    async fn clients_take_turns() {
        let lanes = Lanes::new(1);
        let held = lanes.turn(of(9)).await;
        let (told, mut there) = tokio::sync::mpsc::unbounded_channel();
        for (client, number) in [(1, 11), (1, 12), (1, 13), (2, 21), (1, 14), (2, 22), (3, 31)] {
            let (lanes, told) = (Arc::clone(&lanes), told.clone());
            tokio::spawn(async move {
                let _turn = lanes.turn(of(client)).await;
                told.send(number).unwrap();
            });
            tokio::task::yield_now().await;
        }
        drop(held);
        let mut order = Vec::new();
        for _ in 0..7 {
            order.push(there.recv().await.unwrap());
        }
        assert_eq!(order, [11, 21, 31, 12, 22, 13, 14]);
        assert_eq!(lanes.0.lock().free, 1);
    }

    #[tokio::test]
    async fn turns_of_those_who_have_left_go_to_others() {
        let lanes = Lanes::new(2);
        let held = [lanes.turn(of(1)).await, lanes.turn(of(1)).await];
        for _ in 0..1000 {
            let left = tokio::time::timeout(Duration::ZERO, lanes.turn(of(1)));
            assert!(left.await.is_err());
        }
        assert!(lanes.0.lock().lanes.lanes[&of(1)].len() <= 1, "they leave no trace");
        let waits = tokio::spawn({
            let lanes = Arc::clone(&lanes);
            async move { drop(lanes.turn(of(2)).await) }
        });
        tokio::task::yield_now().await;
        drop(held);
        tokio::time::timeout(Duration::from_secs(10), waits).await.unwrap().unwrap();
        let waiting = lanes.0.lock();
        assert_eq!((waiting.free, waiting.lanes.clients()), (2, 0));
    }
}
