//! The clock for deadlines, timers, and the time that polls take.

pub mod clock;
pub mod poll_length;
pub mod timer;
