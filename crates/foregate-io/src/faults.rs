//! Faults for tests: every system call of a directory can be made to fail, to transfer fewer bytes, or to take longer.

use std::time::Duration;

/// A kind of system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `openat2` for a file that exists.
    Open,
    /// `openat2` for a new file, and `mkdirat`.
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

/// A fault of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with this error number.
    Error(i32),
    /// The call transfers at most this many bytes. It has no effect on calls that transfer no bytes.
    Short(usize),
    /// The call takes this much longer.
    Slow(Duration),
}

/// A source of faults. [`fault`](Self::fault) is called before each system call.
pub trait Faults: Send + Sync {
    /// The fault of this call; `None` if the call is to run normally.
    fn fault(&self, call: Call) -> Option<Fault>;
}
