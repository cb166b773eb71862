//! Tasks on one thread, in an order that a seed decides. A task runs only when it was woken.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Clone)]
pub struct Executor {
    tasks: Rc<RefCell<Vec<Option<Task>>>>,
    ready: Ready,
    seed: Rc<RefCell<u64>>,
}

type Ready = Arc<Mutex<BTreeSet<usize>>>;

struct Woken {
    task: usize,
    ready: Ready,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.ready.lock().insert(self.task);
    }
}

impl Executor {
    pub fn new(seed: u64) -> Self {
        Self { tasks: Rc::default(), ready: Ready::default(), seed: Rc::new(RefCell::new(seed)) }
    }

    pub fn random(&self, below: usize) -> usize {
        let mut seed = self.seed.borrow_mut();
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as usize % below
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.tasks.borrow_mut();
        self.ready.lock().insert(tasks.len());
        tasks.push(Some(Box::pin(task)));
    }

    /// Runs until no task is ready. The result is the number of tasks that wait for ever.
    pub fn run(&self) -> usize {
        loop {
            let next = {
                let mut ready = self.ready.lock();
                if ready.is_empty() {
                    break;
                }
                let task = *ready.iter().nth(self.random(ready.len())).unwrap();
                ready.remove(&task);
                task
            };
            let Some(mut task) = self.tasks.borrow_mut()[next].take() else { continue };
            let waker = Waker::from(Arc::new(Woken { task: next, ready: Arc::clone(&self.ready) }));
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                self.tasks.borrow_mut()[next] = Some(task);
            }
        }
        self.tasks.borrow().iter().flatten().count()
    }
}

/// Lets others run first.
pub async fn pause() {
    let mut paused = false;
    poll_fn(|context| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
