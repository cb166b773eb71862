//! A table of clients and of the resources that each of them holds. The same type counts connections and their
//! memory, parts of a memory budget, requests in flight, temporary files, and jobs for other threads.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::num::NonZeroU64;

use parking_lot::Mutex;

use super::account::Account;

/// The number of parts of a table. Each has its own lock.
const SHARDS: usize = 16;

type TableShard<T> = Mutex<HashMap<NonZeroU64, T, foldhash::fast::RandomState>>;

/// The resources that one client holds. The default is none.
pub trait ClientHolding: Default {
    /// Returns true if the client holds nothing any more. Then the table forgets the client.
    fn is_nothing(&self) -> bool;
}

impl ClientHolding for usize {
    fn is_nothing(&self) -> bool {
        *self == 0
    }
}

/// The holdings of the clients that have any.
pub struct ClientTable<T> {
    shards: [TableShard<T>; SHARDS],
}

impl<T> Default for ClientTable<T> {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl<T> fmt::Debug for ClientTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTable").finish_non_exhaustive()
    }
}

impl<T: ClientHolding> ClientTable<T> {
    fn shard(&self, client: NonZeroU64) -> &TableShard<T> {
        let bits = client.get();
        &self.shards[(bits ^ (bits >> 8) ^ (bits >> 16) ^ (bits >> 32)) as usize % SHARDS]
    }

    /// Reads the holdings of a client that has some.
    pub fn read<R>(&self, account: Account, read: impl FnOnce(&T) -> R) -> Option<R> {
        let client = account.client()?;
        self.shard(client).lock().get(&client).map(read)
    }

    /// Changes the holdings of a client under a lock. Returns `None` for accounts that are not
    /// [bounded](Account::is_client) as one client; the table records nothing for them.
    pub fn update<R>(&self, account: Account, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let client = account.client()?;
        Some(match self.shard(client).lock().entry(client) {
            Entry::Occupied(mut entry) => {
                let result = change(entry.get_mut());
                if entry.get().is_nothing() {
                    entry.remove();
                }
                result
            }
            Entry::Vacant(entry) => {
                let mut holdings = T::default();
                let result = change(&mut holdings);
                if !holdings.is_nothing() {
                    entry.insert(holdings);
                }
                result
            }
        })
    }

    /// Looks at the holdings of all clients, one part of the table after the other.
    pub fn each(&self, mut look: impl FnMut(&T)) {
        for shard in &self.shards {
            shard.lock().values().for_each(&mut look);
        }
    }

    /// The number of clients that hold something.
    #[cfg(test)]
    pub fn clients(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_forgotten_with_the_last_thing_that_they_hold() {
        let table = ClientTable::<usize>::default();
        let [one, other] = [1, 2].map(|last| Account::of(Some([192, 0, 2, last].into())));
        assert_eq!(table.update(one, |held| *held), Some(0));
        assert_eq!(table.clients(), 0, "nothing was taken");
        table.update(one, |held| *held += 2);
        table.update(other, |held| *held += 1);
        let mut all = 0;
        table.each(|held| all += held);
        assert_eq!((table.read(one, |held| *held), table.clients(), all), (Some(2), 2, 3));
        table.update(one, |held| *held -= 2);
        assert_eq!((table.read(one, |held| *held), table.clients()), (None, 1));
        assert_eq!(table.update(Account::PROCESS, |held| *held += 1), None);
    }
}
