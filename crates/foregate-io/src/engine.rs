//! The engines of a directory, and the choice of the configuration between them.

/// The engine of a directory, for reads and writes of open files. Other operations use threads in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// A bounded pool of threads.
    #[default]
    Threads,
    /// A ring of the kernel, io_uring(7), with one thread.
    IoUring,
}

impl Engine {
    /// The name in configurations and figures.
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
    /// The ring where the kernel permits it, otherwise threads.
    #[default]
    Auto,
    /// Threads.
    Threads,
    /// The ring. Without it, the directory does not open.
    IoUring,
}
