//! The clock for deadlines, timers, the time that polls take, and the pace of notices to operators.

pub mod clock;
pub mod notices;
pub mod poll_length;
pub mod steady;
pub mod timer;
