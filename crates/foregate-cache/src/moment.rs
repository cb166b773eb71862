//! The two clocks.

/// Milliseconds on the cache's own clock, which only runs forward.
///
/// Ages and lifetimes are measured on this clock alone, so a step of the system's clock neither expires a store nor makes an age
/// negative. A store on disk continues the clock of the previous process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheTime(pub u64);

impl CacheTime {
    /// Milliseconds since an earlier time; 0 if that time is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970 on the system's clock. The dates in responses are compared with it.
    pub wall: u64,
    /// This moment on the cache's clock.
    pub cache: CacheTime,
}
