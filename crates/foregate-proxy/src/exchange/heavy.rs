//! Heavy steps, run on threads of their own with everything that they may see.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use foregate_module::{Pipeline, Planned, Verdict, WhenFull};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Exchange;
use super::client::Peer;
use super::modules::{Fault, Run, site_name, slashes};
use super::request::Request;
use super::response::Response;
use super::view::View;
use crate::error::Error;
use crate::link::LinkError;
use crate::offload::LONGEST_WAIT;
use crate::proxy::Config;
use crate::routing::HostId;
use crate::settings::Route;
use crate::telemetry::clock;

/// What has come of waiting for a heavy step.
enum Waited {
    /// It was run; `None` if its thread ended.
    Told(Option<Box<Done>>),
    /// The client has gone.
    Gone(LinkError),
    /// No thread took it in time.
    Late,
}

/// What comes back from another thread.
struct Done {
    moved: Moved,
    verdict: std::thread::Result<Verdict>,
    took: Duration,
    /// What of that the thread ran on a processor.
    processor: Duration,
}

/// What a heavy step takes along to another thread.
struct Moved {
    request: Request,
    response: Response,
    run: Box<Run>,
    peer: Peer,
    config: Arc<Config>,
    site: Option<HostId>,
    route: Option<Arc<Route>>,
}

impl Exchange<'_> {
    /// Runs a step on the threads for heavy work, with everything that it may see. It waits at most `wait` for one.
    pub(super) async fn run_heavy(
        &mut self,
        planned: &Planned,
        full: WhenFull,
        wait: Duration,
    ) -> Result<Verdict, Fault> {
        let config = Arc::clone(&self.config);
        let pipeline = &config.settings.pipeline;
        let Some(place) = self.proxy.offload.reserve(self.client_address()) else {
            return self.run_otherwise(planned, pipeline, full);
        };
        let Some(run) = self.run.take() else { return Ok(Verdict::Passed) };
        let moved = Moved {
            request: std::mem::take(self.request),
            response: std::mem::take(self.response),
            run,
            peer: self.peer.clone(),
            config: Arc::clone(&config),
            site: self.site,
            route: self.route.clone(),
        };
        // Whoever takes it out first has it: the thread, or we when the time is up or the client has gone.
        let ours = Arc::new(Mutex::new(Some(moved)));
        let theirs = Arc::clone(&ours);
        let (tell, mut told) = oneshot::channel();
        let step = planned.clone();
        place.submit(Box::new(move || {
            let Some(mut moved) = theirs.lock().take() else { return };
            let (began, before) = (Instant::now(), clock::thread_time());
            let verdict = catch_unwind(AssertUnwindSafe(|| moved.call(&step)));
            let (took, processor) = (began.elapsed(), clock::thread_time().saturating_sub(before));
            // Nobody waits any more if the process ends.
            let _ = tell.send(Box::new(Done { moved, verdict, took, processor }));
        }));
        let deadline = Instant::now() + wait.min(LONGEST_WAIT);
        let waited = poll_fn(|cx| {
            if let Poll::Ready(told) = Pin::new(&mut told).poll(cx) {
                return Poll::Ready(Waited::Told(told.ok()));
            }
            if let Poll::Ready(error) = self.client.poll_abandoned(cx) {
                return Poll::Ready(Waited::Gone(error));
            }
            self.timer.poll(cx, deadline).map(|()| Waited::Late)
        })
        .await;
        let (told, left) = match waited {
            Waited::Told(told) => (told, None),
            Waited::Late | Waited::Gone(_) => {
                let left = if let Waited::Gone(error) = waited { Some(error) } else { None };
                let back = ours.lock().take();
                if let Some(moved) = back {
                    self.take_back(moved);
                    return match left {
                        Some(error) => Err(Fault::Lost(Error::Client(error))),
                        None => self.run_otherwise(planned, pipeline, full),
                    };
                }
                (told.await.ok(), left)
            }
        };
        let Some(done) = told else {
            // Only if the process ends.
            self.client.close = true;
            return Err(Fault::Lost(Error::Internal));
        };
        let Done { moved, verdict, took, processor } = *done;
        self.take_back(moved);
        if let Some(error) = left {
            return Err(Fault::Lost(Error::Client(error)));
        }
        if let Some(step) = self.proxy.steps.get(planned.step) {
            step.timed.inc();
            step.nanos.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            if self.is_slow(planned) {
                step.moved.inc();
                step.used(processor, self.phase_began());
            }
        }
        verdict.map_err(|_| Fault::Panicked)
    }

    fn take_back(&mut self, moved: Moved) {
        *self.request = moved.request;
        *self.response = moved.response;
        self.run = Some(moved.run);
    }

    /// Does with a heavy step for which there is no thread what is to be done then.
    fn run_otherwise(
        &mut self,
        planned: &Planned,
        pipeline: &Pipeline,
        full: WhenFull,
    ) -> Result<Verdict, Fault> {
        match full {
            WhenFull::Inline => self.run_light(planned, pipeline),
            full => Err(Fault::Full(full)),
        }
    }
}

impl Moved {
    fn call(&mut self, planned: &Planned) -> Verdict {
        let mut view = View {
            request: &mut self.request,
            response: &mut self.response,
            peer: &self.peer,
            site: site_name(&self.config, self.site),
            route: self.route.as_ref().map_or("", |route| &route.pattern),
            slashes: slashes(&self.config, self.site),
            facts: &mut self.run.facts,
        };
        self.config.settings.pipeline.run(planned, &mut view, &mut self.run.state)
    }
}
