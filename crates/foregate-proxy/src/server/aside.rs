//! The thread that reads configurations and drops them, so that workers do not have to.
//!
//! With 100,000 sites, reading and dropping a configuration take so long that requests would wait
//! for them on a worker. One permanent thread does both: the allocator returns memory to the system
//! when the thread that allocated it looks through its pages, and the pages of an ended thread
//! would stay until another thread takes them over.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Sender};
use std::thread;

use tokio::sync::oneshot::{self, Receiver};

use crate::sys;

/// The priority of the thread, in steps of `nice` below the priority of workers. A reload may take a
/// little longer, but a worker that has just received a request must not wait for the processor. While
/// workers use all cores, a quarter of a core is left for the thread.
const NICE: i32 = 5;

type AsideJob = Box<dyn FnOnce() + Send>;

/// A handle of the thread. Once the last handle is dropped, the thread finishes its jobs and ends.
pub(super) struct Aside {
    jobs: Sender<AsideJob>,
}

impl Aside {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system's refusal of a thread.
    pub(super) fn start() -> io::Result<Self> {
        let (jobs, given) = mpsc::channel::<AsideJob>();
        thread::Builder::new().name("foregate-reload".to_owned()).spawn(move || {
            sys::yield_to_workers(NICE);
            for job in given {
                // A panic has been logged by the hook, and the waiter gets an error. The thread goes on with the
                // next job.
                let _ = panic::catch_unwind(AssertUnwindSafe(job));
                sys::collect_memory();
            }
        })?;
        Ok(Self { jobs })
    }

    /// Queues `job` for the thread. The receiver gets the result, or an error if the job panics.
    pub(super) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        // The waiter may be gone. The thread still runs, because this handle exists.
        let _ = self.jobs.send(Box::new(move || drop(sender.send(job()))));
        receiver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_below_workers_does_one_job_after_the_other() {
        let aside = Aside::start().unwrap();
        let look = || (thread::current().id(), rustix::process::getpriority_process(None).unwrap());
        let (_, ours) = look();
        let jobs = [aside.run(look), aside.run(look)];
        let [first, second] = jobs.map(|job| job.blocking_recv().unwrap());
        assert_eq!((first, first.1), (second, (ours + NICE).min(19)));
    }

    #[test]
    fn a_panic_ends_its_own_job_alone() {
        let aside = Aside::start().unwrap();
        let panicked = aside.run(|| panic::panic_any("on purpose"));
        let next = aside.run(|| 2);
        assert!(panicked.blocking_recv().is_err());
        assert_eq!(next.blocking_recv(), Ok(2));
    }
}
