//! The tiers of the store: everything that is stored, found and removed goes through here. There is one so far, the memory; a further one
//! stands behind it.

use std::sync::Arc;

use foregate_cache::{CacheTime, Floors, Found, Key, KeyText, Memory, MemoryStat, Purge, Secret, Strength};
use foregate_wire::HeaderList;
use parking_lot::Mutex;

use crate::settings::CacheStore;

/// The stored responses, in all tiers.
#[derive(Debug)]
pub struct Store {
    memory: Memory,
    limit: Mutex<usize>,
    /// One sweep at a time; `true` if another purge came meanwhile.
    sweeping: Mutex<Sweeping>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Sweeping {
    #[default]
    No,
    Once,
    Again,
}

/// The figures of the store.
#[derive(Debug, Default, Clone, Copy)]
pub struct StoreStat {
    /// Those of the memory.
    pub memory: MemoryStat,
    /// Its limit, bytes.
    pub limit: usize,
    /// Purges that are remembered.
    pub floors: usize,
}

impl Store {
    /// An empty store.
    pub fn new(settings: CacheStore, secret: Secret) -> Self {
        let memory = Memory::new(settings.memory, secret, Arc::new(Floors::default()));
        Self { memory, limit: Mutex::new(settings.memory), sweeping: Mutex::default() }
    }

    /// Changes the limits.
    pub fn set_limits(&self, settings: CacheStore, now: CacheTime) {
        let mut limit = self.limit.lock();
        if std::mem::replace(&mut *limit, settings.memory) != settings.memory {
            self.memory.set_limit(settings.memory, now);
        }
    }

    /// Looks for a response to a request with this key, in the memory. It waits for nothing.
    pub fn get(&self, key: Key, text: &KeyText, request: &HeaderList) -> Found {
        self.memory.get(key, text, request)
    }

    /// The purges that concern what is stored.
    pub fn floors(&self) -> &Floors {
        self.memory.floors()
    }

    /// The longest body that is stored, bytes.
    pub fn largest(&self) -> u64 {
        self.memory.largest() as u64
    }

    /// Stores an object. `false` if it is too large, or was purged while it was fetched.
    pub fn insert(&self, object: Arc<foregate_cache::Object>, now: CacheTime) -> bool {
        self.memory.insert(object, now)
    }

    /// Removes an object, unless another one has taken its place.
    pub fn remove(&self, object: &Arc<foregate_cache::Object>) {
        self.memory.remove(object);
    }

    /// Purges, at once.
    pub fn purge(&self, purge: &Purge<'_>, strength: Strength) {
        self.memory.floors().purge(purge, strength);
    }

    /// Removes what was purged from memory, a part at a time, and then forgets the purges.
    pub async fn sweep(&self) {
        {
            let mut sweeping = self.sweeping.lock();
            if *sweeping != Sweeping::No {
                *sweeping = Sweeping::Again;
                return;
            }
            *sweeping = Sweeping::Once;
        }
        loop {
            let mut sweep = self.memory.begin_sweep();
            while self.memory.sweep(&mut sweep) {
                tokio::task::yield_now().await;
            }
            let mut sweeping = self.sweeping.lock();
            if *sweeping == Sweeping::Once {
                *sweeping = Sweeping::No;
                return;
            }
            *sweeping = Sweeping::Once;
        }
    }

    /// The figures of the store.
    pub fn stat(&self) -> StoreStat {
        StoreStat { memory: self.memory.stat(), limit: *self.limit.lock(), floors: self.floors().len() }
    }
}
