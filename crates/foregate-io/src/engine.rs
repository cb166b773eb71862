//! The engines of a directory, and the setting that chooses between them.

/// The engine of a directory, for reads and writes of open files. All other operations run on threads of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// A bounded pool of threads.
    #[default]
    Threads,
    /// An io_uring(7) ring, served by one thread.
    IoUring,
}

impl Engine {
    /// The name in the configuration and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::IoUring => "io-uring",
        }
    }
}

/// The engine that the configuration asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// The ring if the kernel permits it, otherwise threads.
    #[default]
    Auto,
    /// Threads.
    Threads,
    /// The ring. If the kernel does not permit it, opening the directory fails.
    IoUring,
}
