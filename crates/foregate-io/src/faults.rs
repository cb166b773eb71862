//! Faults for tests: every system call of a directory can be made to fail, to be short or to wait.

use std::time::Duration;

/// A kind of system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `openat2`, of a file that exists.
    Open,
    /// `openat2`, of a file that is made, and `mkdirat`.
    Create,
    /// `preadv2`.
    Read,
    /// `pwrite`.
    Write,
    /// `fdatasync` and `fsync`.
    Sync,
    /// `renameat` and `linkat`.
    Rename,
    /// `unlinkat`.
    Unlink,
    /// `statx` of a path.
    Stat,
    /// `getdents64`.
    List,
}

/// The fate of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with this error number.
    Error(i32),
    /// The call transfers at most this many bytes. Calls that transfer none succeed.
    Short(usize),
    /// The call takes longer, by this time.
    Slow(Duration),
}

/// A source of faults. It is asked before each call.
pub trait Faults: Send + Sync {
    /// The fault of this call, `None` for the ordinary course.
    fn fault(&self, call: Call) -> Option<Fault>;
}
