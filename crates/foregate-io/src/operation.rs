//! A running operation, as a future.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// A future with the result of an operation. If it is dropped, the result is lost, but the operation still completes.
#[derive(Debug)]
#[must_use = "the answer is lost if nobody awaits it"]
pub struct Operation<T>(OperationState<T>);

#[derive(Debug)]
enum OperationState<T> {
    Ready(Option<Result<T>>),
    Waiting(Arc<Slot<T>>),
}

/// The slot in which the engine's thread leaves the result for the future.
#[derive(Debug)]
pub(crate) struct Slot<T>(Mutex<Content<T>>);

#[derive(Debug)]
struct Content<T> {
    result: Option<Result<T>>,
    waker: Option<Waker>,
}

impl<T> Operation<T> {
    pub(crate) fn ready(result: Result<T>) -> Self {
        Self(OperationState::Ready(Some(result)))
    }

    pub(crate) fn waiting() -> (Self, Arc<Slot<T>>) {
        let slot = Arc::new(Slot(Mutex::new(Content { result: None, waker: None })));
        (Self(OperationState::Waiting(Arc::clone(&slot))), slot)
    }

    /// Returns the result, if there is one already.
    ///
    /// # Errors
    /// The operation itself, if it is still running.
    pub fn now(mut self) -> std::result::Result<Result<T>, Self> {
        let result = match &mut self.0 {
            OperationState::Ready(result) => result.take(),
            OperationState::Waiting(slot) => slot.0.lock().result.take(),
        };
        result.ok_or(self)
    }
}

impl<T> Slot<T> {
    pub(crate) fn complete(&self, result: Result<T>) {
        let waker = {
            let mut content = self.0.lock();
            content.result = Some(result);
            content.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

// No field is pinned.
impl<T> Unpin for Operation<T> {}

impl<T> Future for Operation<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.0 {
            // A future must not be polled again after it has completed. If it is, it returns an error instead of panicking.
            OperationState::Ready(result) => Poll::Ready(result.take().unwrap_or(Err(Error::Busy))),
            OperationState::Waiting(slot) => {
                let mut content = slot.0.lock();
                if let Some(result) = content.result.take() {
                    drop(content);
                    self.0 = OperationState::Ready(None);
                    return Poll::Ready(result);
                }
                match &mut content.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => content.waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

/// Blocks the calling thread until a future completes: for tests, and for threads that serve no requests.
pub fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}
