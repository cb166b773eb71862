//! The arithmetic of limits. It uses only whole numbers, so that there are no rounding errors.

use super::table::State;

/// The method of counting requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitAlgorithm {
    /// Consecutive windows; each of them admits `limit` requests.
    FixedWindow,
    /// Like fixed windows, but a part of the previous window's requests also counts: the fraction of that window that lies
    /// within the last `window` milliseconds.
    SlidingWindow,
    /// Each request takes a token; tokens are refilled at an even pace.
    TokenBucket,
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RateRule {
    /// The method of counting.
    pub algorithm: LimitAlgorithm,
    /// Requests in a window, 1 to [`COUNT_MOST`](super::table::COUNT_MOST).
    pub limit: u32,
    /// The window, milliseconds; at least 1.
    pub window: u64,
    /// The most requests at once: the size of a token bucket; for windows equal to `limit`.
    pub burst: u32,
}

/// The state of a key after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Set if the request is within the limit. Refused requests do not count.
    pub admitted: bool,
    /// The number of further requests that would be admitted now.
    pub remaining: u32,
    /// The time until the window ends or the bucket is full, milliseconds. For an exhausted sliding window: the time until
    /// the next request would be admitted, which may be in the next window.
    pub reset: u64,
    /// The time until a request would be admitted, milliseconds; 0 if this request was admitted.
    pub retry: u64,
}

impl RateRule {
    /// Counts a request at `now`. `known` is the state of its key; for a new key, the part of the limit that counts as
    /// used, in 255ths.
    pub fn take(&self, known: Result<State, u8>, now: u64) -> (Option<State>, Standing) {
        match self.algorithm {
            LimitAlgorithm::FixedWindow => self.take_fixed(known, now),
            LimitAlgorithm::SlidingWindow => self.take_sliding(known, now),
            LimitAlgorithm::TokenBucket => self.take_token(known, now),
        }
    }

    fn inherited(&self, used: u8) -> u32 {
        (u64::from(self.limit) * u64::from(used) / 255) as u32
    }

    fn used(part: u128, whole: u128) -> u8 {
        (part * 255 / whole.max(1)).min(255) as u8
    }

    /// `until` is the end of the window, `first` the count.
    fn take_fixed(&self, known: Result<State, u8>, now: u64) -> (Option<State>, Standing) {
        let end = (now / self.window + 1) * self.window;
        let (end, count) = match known {
            // The window has ended; another thread has already begun the next.
            Ok(state) if state.until >= end => (state.until, state.first),
            Ok(_) => (end, 0),
            Err(used) => (end, self.inherited(used)),
        };
        let reset = end - now;
        if count >= self.limit {
            return (None, Standing { admitted: false, remaining: 0, reset, retry: reset });
        }
        let first = count + 1;
        let used = Self::used(first.into(), self.limit.into());
        let standing = Standing { admitted: true, remaining: self.limit - first, reset, retry: 0 };
        (Some(State { until: end, first, second: 0, used }), standing)
    }

    /// `until` is the end of the next window, `first` the count of the current window, `second` the count of the previous
    /// one.
    fn take_sliding(&self, known: Result<State, u8>, now: u64) -> (Option<State>, Standing) {
        let window = self.window;
        let end = (now / window + 1) * window;
        let (end, current, before) = match known {
            Ok(state) if state.until >= end + window => (state.until - window, state.first, state.second),
            Ok(state) if state.until == end => (end, 0, state.first),
            Ok(_) => (end, 0, 0),
            Err(used) => (end, self.inherited(used), 0),
        };
        let reset = end - now;
        let [limit, wide, left, count, earlier] =
            [self.limit.into(), window.into(), reset.into(), current.into(), before.into()].map(|n: u128| n);
        // Both numbers are in units of requests times milliseconds.
        let (most, weighed) = (limit * wide, earlier * left.min(wide) + count * wide);
        let wait = |count: u128| {
            let wait = if count < limit {
                // The time until the fraction of the previous window has become small enough.
                left - ((limit - count - 1) * wide / earlier.max(1)).min(left)
            } else {
                // The time until this window has become the previous one, and its fraction is small enough.
                left + wide - ((limit - 1) * wide / count.max(1)).min(wide)
            };
            wait.max(1) as u64
        };
        if weighed + wide > most {
            let retry = wait(count);
            return (None, Standing { admitted: false, remaining: 0, reset: retry, retry });
        }
        let weighed = weighed + wide;
        let remaining = ((most - weighed) / wide) as u32;
        let reset = if remaining == 0 { wait(count + 1) } else { reset };
        let used = Self::used(weighed, most);
        let state = State { until: end + window, first: current + 1, second: before, used };
        (Some(state), Standing { admitted: true, remaining, reset, retry: 0 })
    }

    /// The generic cell rate algorithm. `until` and `first` are the time at which the bucket will be full: `until` in
    /// milliseconds, `first` the fraction in units of 1/limit. Each request moves this time by window/limit.
    fn take_token(&self, known: Result<State, u8>, now: u64) -> (Option<State>, Standing) {
        let [limit, window, burst] =
            [self.limit.into(), self.window.into(), self.burst.into()].map(|n: u128| n);
        let capacity = burst * window;
        let now = u128::from(now) * limit;
        let full = match known {
            Ok(state) => (u128::from(state.until) * limit + u128::from(state.first)).max(now),
            Err(used) => now + capacity * u128::from(used) / 255 / window * window,
        };
        let level = full - now + window;
        if level > capacity {
            let retry = (level - capacity).div_ceil(limit) as u64;
            let reset = (full - now).div_ceil(limit) as u64;
            return (None, Standing { admitted: false, remaining: 0, reset, retry });
        }
        let full = full + window;
        let remaining = ((capacity - level) / window) as u32;
        let state = State {
            until: (full / limit) as u64,
            first: (full % limit) as u32,
            second: 0,
            used: Self::used(level, capacity),
        };
        (Some(state), Standing { admitted: true, remaining, reset: level.div_ceil(limit) as u64, retry: 0 })
    }
}
