//! Heavy steps: they run on NGINX's threads, with copies of their inputs, so that only the worker touches NGINX's
//! request.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use foregate_module::{
    ChooseUpstream, Decl, EditRequest, EditResponse, Exchange as _, Fault, LimitRequestBody, Output,
    Pipeline, PlannedStep, RewriteTarget, SetClientAddress, SetClientScheme, State, Verdict, WhenFull,
};
use foregate_wire::client_network;
use parking_lot::Mutex;

use crate::border::{FactsOf, TlsOf, Which};
use crate::exchange::{Exchange, Head};
use crate::request::{ExchangeChanges, Request};

/// The most jobs of a worker, waiting or running. If there are more, the step's setting for a full queue applies,
/// which is mostly 503.
const QUEUE: usize = 1024;
/// The most jobs of one client: one client with wrong passwords must not lock out others. IPv6 clients are
/// distinguished by the first 64 bits of their addresses.
const PER_CLIENT: usize = 16;
/// The longest wait for a thread, regardless of the step's setting. Most clients do not wait longer for a response.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A step that is to run on a thread.
pub(crate) struct Work {
    moved: Box<MovedJob>,
    when_full: WhenFull,
    wait: Duration,
    client: Option<IpAddr>,
}

/// The inputs of a step on a thread.
struct MovedJob {
    pipeline: Arc<Pipeline>,
    planned: PlannedStep,
    facts: FactsOf<Vec<u8>>,
    tls: Option<TlsOf<Vec<u8>>>,
    request: Vec<(Vec<u8>, Vec<u8>)>,
    response: Vec<(Vec<u8>, Vec<u8>)>,
    status: Option<u16>,
    kept: ExchangeChanges,
    state: State,
}

enum Stage {
    Waits(Box<MovedJob>),
    /// A thread runs the step, or the request does not wait for it any more.
    Taken,
    /// The step is done. Without a verdict, it has panicked.
    Done(Box<MovedJob>, Option<Verdict>),
}

/// A job, shared by a thread and the worker: the first to take it owns it.
pub(crate) struct Job(Mutex<Stage>);

/// Checks that [`Job`] is `Send` and `Sync`. C passes a pointer to it to a thread, which the compiler cannot see.
const _: () = {
    const fn is_for_several_threads<T: Send + Sync>() {}
    is_for_several_threads::<Job>();
};

/// A posted job, with the data that only the worker uses.
pub(crate) struct PostedWork {
    pub job: Job,
    /// The longest wait for a thread.
    pub wait: Duration,
    when_full: WhenFull,
    _share: ClientShare,
}

/// The numbers of jobs of a worker, in total and by client.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue(Rc<RefCell<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    clients: HashMap<IpAddr, usize>,
}

/// A job's place in the queue and among the jobs of its client. Dropping it frees the place.
struct ClientShare {
    queue: Queue,
    client: Option<IpAddr>,
}

/// Returns true if a step can run on another thread, with copies of its inputs. It must not change the exchange
/// directly: its output is applied later, on the worker.
pub(crate) fn can_leave(decl: &Decl) -> bool {
    const CHANGES: [&str; 7] = [
        EditRequest::SLOT.name,
        EditResponse::SLOT.name,
        SetClientAddress::SLOT.name,
        SetClientScheme::SLOT.name,
        RewriteTarget::SLOT.name,
        ChooseUpstream::SLOT.name,
        LimitRequestBody::SLOT.name,
    ];
    decl.outputs.iter().all(|output| output.is_kept() || !CHANGES.contains(&output.name))
}

impl Queue {
    fn reserve(&self, client: Option<IpAddr>) -> Option<ClientShare> {
        let mut taken = self.0.borrow_mut();
        if taken.all >= QUEUE {
            return None;
        }
        let client = client.map(client_network);
        if let Some(client) = client {
            let count = taken.clients.entry(client).or_default();
            if *count >= PER_CLIENT {
                return None;
            }
            *count += 1;
        }
        taken.all += 1;
        Some(ClientShare { queue: self.clone(), client })
    }
}

impl Drop for ClientShare {
    fn drop(&mut self) {
        let mut taken = self.queue.0.borrow_mut();
        taken.all -= 1;
        let Some(client) = self.client else { return };
        if let Some(count) = taken.clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                taken.clients.remove(&client);
            }
        }
    }
}

impl Work {
    /// Copies the inputs of a step, and the values of earlier steps.
    pub(crate) fn new(
        exchange: &mut Exchange<'_, '_>,
        state: &mut State,
        (pipeline, planned): (&Arc<Pipeline>, &PlannedStep),
        (when_full, wait): (WhenFull, Duration),
    ) -> Box<Self> {
        let client = exchange.client();
        let moved = MovedJob {
            pipeline: Arc::clone(pipeline),
            planned: planned.clone(),
            facts: exchange.facts.each(|text| text.to_vec()),
            tls: exchange.handshake().map(|tls| tls.each(|text| text.to_vec())),
            request: exchange.request.copied(),
            response: exchange.response.copied(),
            status: exchange.status,
            kept: exchange.kept.lend(),
            state: std::mem::take(state),
        };
        Box::new(Self { moved: Box::new(moved), when_full, wait: wait.min(LONGEST_WAIT), client })
    }
}

impl MovedJob {
    fn call(&mut self) -> Verdict {
        let facts = self.facts.each(Vec::as_slice);
        let tls = self.tls.as_ref().map(|tls| tls.each(Vec::as_slice));
        let heads = (Head::lent(Which::Request, &self.request), Head::lent(Which::Response, &self.response));
        let mut exchange = Exchange::lent(&facts, &mut self.kept, heads, self.status, tls);
        self.pipeline.run(&self.planned, &mut exchange, &mut self.state)
    }
}

impl Job {
    /// Runs the step, unless the worker has taken it back. Called on another thread.
    pub(crate) fn run(&self) {
        let taken = std::mem::replace(&mut *self.0.lock(), Stage::Taken);
        let Stage::Waits(mut moved) = taken else { return };
        let verdict = catch_unwind(AssertUnwindSafe(|| moved.call())).ok();
        *self.0.lock() = Stage::Done(moved, verdict);
    }

    /// Tells the job that its request no longer waits for it.
    pub(crate) fn forget(&self) {
        drop(std::mem::replace(&mut *self.0.lock(), Stage::Taken));
    }
}

impl Request {
    /// The job for the next step, if the step has to run on a thread and the queue has a place for it.
    pub(crate) fn post(&mut self) -> Option<Box<PostedWork>> {
        let Work { moved, when_full, wait, client } = *self.run.work.take()?;
        let Some(share) = self.run.route.queue.reserve(client) else {
            self.take_back(*moved, Err(Fault::Full(when_full)));
            return None;
        };
        let job = Job(Mutex::new(Stage::Waits(moved)));
        Some(Box::new(PostedWork { job, wait, when_full, _share: share }))
    }

    /// Takes back a posted step: with its verdict, or unstarted, if no thread has taken it. Returns false while a thread
    /// runs the step.
    pub(crate) fn settle(&mut self, posted: &PostedWork) -> bool {
        let stage = std::mem::replace(&mut *posted.job.0.lock(), Stage::Taken);
        match stage {
            Stage::Taken => false,
            Stage::Waits(moved) => {
                self.take_back(*moved, Err(Fault::Full(posted.when_full)));
                true
            }
            Stage::Done(moved, verdict) => {
                self.take_back(*moved, verdict.ok_or(Fault::Panicked));
                true
            }
        }
    }

    fn take_back(&mut self, moved: MovedJob, verdict: Result<Verdict, Fault>) {
        self.kept = moved.kept;
        self.run.state = moved.state;
        self.run.runner.tell(verdict);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_a_part_of_the_places() {
        let queue = Queue::default();
        let address = |text: &str| Some(text.parse::<IpAddr>().unwrap_or(IpAddr::from([0, 0, 0, 0])));
        let mut shares: Vec<_> = (0..PER_CLIENT).map(|_| queue.reserve(address("2001:db8::1"))).collect();
        assert!(shares.iter().all(Option::is_some));
        assert!(queue.reserve(address("2001:db8::2")).is_none(), "the same network");
        assert!(queue.reserve(address("192.0.2.1")).is_some());
        shares.pop();
        assert!(queue.reserve(address("2001:db8::2")).is_some());
        let all: Vec<_> = (shares.len()..QUEUE).map(|_| queue.reserve(None)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(queue.reserve(None).is_none());
        drop((all, shares));
        assert!(queue.0.borrow().clients.is_empty());
        assert_eq!(queue.0.borrow().all, 0);
    }
}
