//! The lowest sequence of the objects on the disks. When the sweeps of the RAM tier end, floors above this
//! sequence must be kept.

use std::sync::Arc;

use foregate_cache::{Floors, Sequence};
use parking_lot::Mutex;

/// The lowest sequence in one directory. The lowest one of all directories decides.
#[derive(Clone, Debug)]
pub(crate) struct Lowest {
    shared: Arc<LowestShared>,
    at: usize,
}

#[derive(Debug)]
struct LowestShared {
    floors: Arc<Floors>,
    values: Mutex<Vec<u64>>,
}

impl Lowest {
    /// Creates a value for each of several directories. At first, all floors are kept.
    pub(crate) fn several(floors: &Arc<Floors>, count: usize) -> Vec<Self> {
        let shared =
            Arc::new(LowestShared { floors: Arc::clone(floors), values: Mutex::new(vec![0; count]) });
        floors.keep_above(Sequence::new(0));
        (0..count).map(|at| Self { shared: Arc::clone(&shared), at }).collect()
    }

    pub(crate) fn set(&self, lowest: u64) {
        let mut values = self.shared.values.lock();
        if let Some(value) = values.get_mut(self.at) {
            *value = lowest;
        }
        let all = values.iter().min().copied().unwrap_or(0);
        self.shared.floors.keep_above(Sequence::new(all));
    }

    pub(crate) fn lower(&self, lowest: u64) {
        let now = self.shared.values.lock().get(self.at).copied().unwrap_or(0);
        if lowest < now {
            self.set(lowest);
        }
    }
}
