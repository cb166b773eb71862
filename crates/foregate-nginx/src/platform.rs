//! Implements the runner's platform for a request of NGINX: it runs steps, and counts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use foregate_module::{
    self as module, Entry, Fault, PhaseId, PlannedStep, Platform, State, StepPlace, Steps, Weight,
};

use crate::border::{Level, PANICS};
use crate::exchange::Exchange;
use crate::heavy;
use crate::request::Events;
use crate::route::Route;

/// The platform for one request, for the time of a call.
pub(crate) struct RequestPlatform<'p, 'r, 'k> {
    pub exchange: &'p mut Exchange<'r, 'k>,
    pub state: &'p mut State,
    pub events: &'p mut Events,
    pub route: &'p Route,
    /// Steps that are switched off for this request.
    pub off: Steps,
}

impl Platform for RequestPlatform<'_, '_, '_> {
    fn unharmed(work: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(work)).is_ok()
    }

    fn parts(&mut self) -> (&mut dyn module::Exchange, &mut State) {
        (self.exchange, self.state)
    }

    fn place(&mut self, entry: &Entry, planned: &PlannedStep) -> StepPlace {
        let decl = entry.decl();
        // Steps of the log stay on this thread, because nothing would wait for them.
        let may_leave = self.route.threads && decl.phase < PhaseId::Log;
        match decl.weight {
            _ if self.off.contains(usize::from(planned.step)) => StepPlace::Off,
            Weight::Heavy(_) | Weight::Varies if may_leave && heavy::can_leave(decl) => StepPlace::Asked,
            _ => StepPlace::Here,
        }
    }

    fn news(&mut self, entry: &Entry, _: &PlannedStep) {
        let name = entry.decl().name;
        for event in self.state.events.drain(..) {
            self.events.count(name, event, 1);
        }
        for (what, which) in self.state.tallies.drain(..) {
            self.events.count(name, &format!("{what}.{}", String::from_utf8_lossy(&which)), 1);
        }
        for line in self.state.lines.drain(..) {
            if let (Some(host), Some(file)) = (self.exchange.host, self.route.logs.get(line.log.0 as usize)) {
                host.write_log(*file, &line.line);
            }
        }
    }

    fn stopped(&mut self, entry: &Entry, planned: &PlannedStep) {
        if planned.dry_run {
            self.events.count(entry.decl().name, "dry-run-stop", 1);
        }
    }

    fn failed(&mut self, entry: &Entry, _: &PlannedStep, fault: Fault, _: bool) {
        let name = entry.decl().name;
        let full = matches!(fault, Fault::Full(_));
        if entry.reads_body() {
            // The proxy uses the same words.
            self.exchange.kept.unseen = Some(if full { "step_queue" } else { "step" });
        }
        if full {
            self.exchange.log(Level::Warn, &format!("there is no thread for the step \"{name}\""));
            self.events.count(name, "shed", 1);
        } else {
            PANICS.fetch_add(1, Ordering::Relaxed);
            self.exchange.log(Level::Error, &format!("step \"{name}\" has panicked"));
            self.events.count(name, "panic", 1);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;

    use foregate_module::{Exchange as _, Plan, WhenFull};

    use super::*;
    use crate::border::{FactsOf, Which};
    use crate::exchange::Head;
    use crate::fetch::Answers;
    use crate::heavy::Queue;
    use crate::request::Request;

    /// The value for later steps if `waf-body` could not run in a dry run.
    fn told(fault: Fault) -> Option<&'static str> {
        let pipeline = Arc::new(crate::modules::shipped());
        let step = pipeline.steps().position(|decl| decl.name == "waf-body").unwrap();
        let planned = PlannedStep {
            step: step as u16,
            key: 0,
            dry_run: true,
            guards: false,
            decides: false,
            settings: Arc::new(()),
            when: None,
        };
        let route = Rc::new(Route {
            pipeline: Arc::clone(&pipeline),
            plan: Plan::default(),
            logs: Vec::new(),
            off: Steps::NONE,
            asks: Vec::new(),
            choices: Vec::new(),
            threads: true,
            queue: Queue::default(),
            answers: Answers::default(),
        });
        let none: &[u8] = b"";
        let facts = FactsOf {
            client: None,
            https: false,
            raw_is_valid: true,
            chunked: false,
            version: 1001,
            content_length: 3,
            method: &b"POST"[..],
            server: none,
            host: none,
            uri: &b"/"[..],
            args: none,
            raw: &b"/"[..],
            site: none,
            route: none,
        };
        let Request { mut run, mut kept } = Request::new(Rc::clone(&route), &facts);
        let heads = (Head::lent(Which::Request, &[]), Head::lent(Which::Response, &[]));
        let mut exchange = Exchange::lent(&facts, &mut kept, heads, None, None);
        let mut platform = RequestPlatform {
            exchange: &mut exchange,
            state: &mut run.state,
            events: &mut run.events,
            route: &route,
            off: Steps::NONE,
        };
        platform.failed(&pipeline.entries()[step], &planned, fault, true);
        exchange.request_body_unseen()
    }

    #[test]
    fn steps_are_told_of_a_body_that_another_could_not_look_at() {
        assert_eq!(told(Fault::Panicked), Some("step"));
        assert_eq!(told(Fault::Full(WhenFull::Error)), Some("step_queue"));
    }
}
