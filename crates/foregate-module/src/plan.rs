//! The part of a pipeline that a route uses.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::ops::Range;
use core::time::Duration;

use crate::condition::Condition;
use crate::exchange::Exchange;
use crate::phase_id::PhaseId;
use crate::pipeline::{Entry, Pipeline};
use crate::settings::Key;
use crate::steps::Steps;
use crate::text::Text;

/// The most bytes of a request's body that are received before steps run.
const BODY_LIMIT: usize = 64 << 20;

/// One step as a route uses it.
#[derive(Clone)]
pub struct PlannedStep {
    /// Its number in the pipeline.
    pub step: u16,
    /// The number of the route's key that has turned the step on. Steps of the same key have the same number.
    pub key: u16,
    /// True for a dry run: the step runs without effect.
    pub dry_run: bool,
    /// True if the step [guards](crate::Step::guards) something, or if another step of the same key guards something
    /// before there is a response.
    pub guards: bool,
    /// True if an acting step reads the output of the step. The step then counts as acting, even if it only watches.
    pub decides: bool,
    /// Its settings.
    pub settings: Arc<dyn Any + Send + Sync>,
    /// The condition under which it runs.
    pub when: Option<Arc<dyn Condition>>,
}

/// The part of a pipeline that a route uses: its steps in their order. Unused steps are absent, and cost nothing.
#[derive(Default)]
pub struct Plan {
    steps: Box<[PlannedStep]>,
    /// For each phase, the index of its first step. The last entry is the number of all steps.
    phases: [u16; PhaseId::COUNT + 1],
    /// The phases with steps, as bits: the position of a phase in the order is the number of its bit.
    used: u32,
    body: usize,
    body_in_memory: usize,
    body_is_optional: bool,
    body_pause: Option<Duration>,
    hold_is_optional: bool,
    identity: Box<[Text]>,
    request_sweeps: Box<[PlannedStep]>,
    sweeps: Box<[PlannedStep]>,
    parts: Box<[PlannedStep]>,
    renews: bool,
    changes_bodies: bool,
    version: u32,
    keeps_received: bool,
    keeps_fields: bool,
    sees_refused: bool,
    logs_first: bool,
}

/// The values of `Sec-Fetch-Dest` with which browsers request parts of a page (Fetch, section 2.2.7).
const PARTS_OF_PAGES: [&[u8]; 9] =
    [b"audio", b"font", b"image", b"manifest", b"script", b"style", b"track", b"video", b"worker"];

impl fmt::Debug for PlannedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secrets may be among the settings.
        f.debug_struct("Planned")
            .field("step", &self.step)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

impl Plan {
    /// Returns true if no step is used.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The steps of a phase, in their order.
    #[inline]
    pub fn phase(&self, phase: PhaseId) -> &[PlannedStep] {
        let range = self.range(phase.order()..phase.order() + 1);
        self.steps.get(range).unwrap_or_default()
    }

    /// Returns true if any of the phases from the first to the second, inclusive, has a step.
    #[inline]
    pub fn has_any(&self, first: PhaseId, last: PhaseId) -> bool {
        self.next_phase(first.order(), last).is_some()
    }

    /// The first phase that has steps, among the phases from position `from` up to `last`, both inclusive.
    #[inline]
    pub fn next_phase(&self, from: usize, last: PhaseId) -> Option<PhaseId> {
        let used = self.used & ((2 << last.order()) - 1);
        let used = used.checked_shr(u32::try_from(from).ok()?)?;
        if used == 0 {
            return None;
        }
        PhaseId::ALL.get(from + used.trailing_zeros() as usize).copied()
    }

    /// The keys with a `when` that has been evaluated before there was a response, by [`PlannedStep::key`].
    pub(crate) fn decided_by_request(&self) -> Steps {
        let steps = self.steps.get(self.range(0..PhaseId::UpstreamResponse.order())).unwrap_or_default();
        steps.iter().fold(Steps::NONE, |keys, planned| keys.with(usize::from(planned.key)))
    }

    /// The number of bytes of the request's body that the steps ask for.
    pub fn body(&self) -> usize {
        self.body
    }

    /// The most bytes of the request's body that are held in memory. Platforms may keep a longer start of the body in a
    /// file: see [`Step::body_in_memory`](crate::Step::body_in_memory).
    pub fn body_in_memory(&self) -> usize {
        self.body_in_memory
    }

    /// Returns true if the request continues when the steps cannot get as much of its body as they need. This is the case
    /// if all of these steps are in a dry run or [only watch](crate::Step::only_watches).
    pub fn body_is_optional(&self) -> bool {
        self.body_is_optional
    }

    /// The longest pause while a request's body of unknown length is received. After a longer pause, the steps run with
    /// the part that has arrived: see [`Step::body_pause`](crate::Step::body_pause). `None` if a step waits for the
    /// body regardless of pauses.
    pub fn body_pause(&self) -> Option<Duration> {
        self.body_pause
    }

    /// Returns true if all steps that may ask for the start of the response's body are in a dry run or only watch.
    pub fn hold_is_optional(&self) -> bool {
        self.hold_is_optional
    }

    /// Fields of the request that clients must not set on this route, because modules use them to identify the client to
    /// the origin: see [`Step::identity`](crate::Step::identity). Platforms remove these fields between the phases
    /// `request-early` and `request-identity`.
    pub fn identity(&self) -> &[Text] {
        &self.identity
    }

    /// The steps outside of dry runs that check the trailer fields of requests: see [`Step::sweeps`](crate::Step::sweeps).
    pub fn request_sweeps(&self) -> &[PlannedStep] {
        &self.request_sweeps
    }

    /// The steps outside of dry runs that check the fields of interim responses and the trailer fields of responses: see
    /// [`Step::sweeps`](crate::Step::sweeps).
    pub fn sweeps(&self) -> &[PlannedStep] {
        &self.sweeps
    }

    /// The steps that are tried on parts of bodies: see [`Step::TRIES_PARTS`](crate::Step::TRIES_PARTS).
    #[inline]
    pub fn parts(&self) -> &[PlannedStep] {
        &self.parts
    }

    /// Returns true if a step outside of a dry run [renews](crate::Step::RENEWS) responses. Platforms then call
    /// [`renew`](Self::renew).
    #[inline]
    pub fn renews(&self) -> bool {
        self.renews
    }

    /// Returns true if a step of the phase `response-body` outside of a dry run may filter bodies. Platforms then remove
    /// `Content-Length` from a 304, because it is the length of the origin's body and not of the filtered body (RFC 9110,
    /// section 8.6).
    #[inline]
    pub fn changes_bodies(&self) -> bool {
        self.changes_bodies
    }

    /// The version of the settings on which changed bodies depend: it differs if these settings differ. 0 if the builder
    /// was given none.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Removes `If-None-Match` and `If-Modified-Since` from a GET or HEAD request, so that its response is complete.
    /// Requests of browsers for images, scripts and similar parts of a page keep these fields: they are frequent, and the
    /// responses are not documents.
    pub fn renew(exchange: &mut dyn Exchange) {
        if !matches!(exchange.method(), b"GET" | b"HEAD") {
            return;
        }
        if let Some(part) = exchange.request_fields().get("sec-fetch-dest")
            && PARTS_OF_PAGES.contains(&part)
        {
            return;
        }
        for name in ["if-none-match", "if-modified-since"] {
            if exchange.request_fields().get(name).is_some() {
                exchange.request_fields_mut().remove(name.as_bytes());
            }
        }
    }

    /// Returns true if a step reads the request as it was received, so that a copy has to be kept.
    pub fn keeps_received(&self) -> bool {
        self.keeps_received
    }

    /// Returns true if a step that runs after the upstream's response may read the fields of the request. Such a step reads
    /// the fields without later changes for the origin, so platforms keep a copy of the fields after the phase
    /// `request-rewrite`.
    #[inline]
    pub fn keeps_fields(&self) -> bool {
        self.keeps_fields
    }

    /// The steps that run for requests which were refused before they had a route: the steps of the phase `log` that read
    /// the request as it was received.
    pub fn of_refused<'p>(&'p self, pipeline: &'p Pipeline) -> impl Iterator<Item = &'p PlannedStep> {
        let steps = if self.sees_refused { self.phase(PhaseId::Log) } else { &[] };
        let reads = |planned: &&PlannedStep| {
            pipeline.entries().get(usize::from(planned.step)).is_some_and(Entry::reads_received)
        };
        steps.iter().filter(reads)
    }

    /// Returns true if a step of the phase `log` runs before the response begins: see [`Step::logs_first`](crate::Step::logs_first).
    #[inline]
    pub fn logs_first(&self) -> bool {
        self.logs_first
    }

    /// All steps, in their order.
    pub fn steps(&self) -> &[PlannedStep] {
        &self.steps
    }

    /// The first step that [takes](crate::Take) a missing value: programs refuse a configuration with such a plan.
    pub fn untakable(&self, pipeline: &Pipeline) -> Option<Untakable> {
        // A value that a step in a dry run writes exists only for other steps in a dry run.
        let mut values: Vec<(u16, bool, Option<&'static str>)> = Vec::new();
        for planned in &self.steps {
            let Some(entry) = pipeline.entries().get(usize::from(planned.step)) else { continue };
            let (decl, dry) = (entry.decl(), planned.dry_run);
            for slot in entry.takes() {
                let value = values.iter_mut().find(|value| (value.0, value.1) == (slot, dry));
                match value {
                    Some((.., taken @ None)) => *taken = Some(decl.name),
                    value => {
                        let name = pipeline.values().get(usize::from(slot)).map_or("", |value| value.name);
                        let taken_by = value.and_then(|(.., taken)| *taken);
                        return Some(Untakable { step: decl.name, key: entry.key(), value: name, taken_by });
                    }
                }
            }
            for slot in entry.emits() {
                values.retain(|value| (value.0, value.1) != (slot, dry));
                values.push((slot, dry, None));
            }
        }
        None
    }

    fn range(&self, phases: Range<usize>) -> Range<usize> {
        let at = |phase: usize| usize::from(self.phases.get(phase).copied().unwrap_or_default());
        at(phases.start)..at(phases.end)
    }
}

/// A step of a plan that takes a value which no earlier step provides.
#[derive(Debug, Clone)]
pub struct Untakable {
    /// The step.
    pub step: &'static str,
    /// The key that turns it on, if there is one.
    pub key: Option<&'static Key>,
    /// The value.
    pub value: &'static str,
    /// The earlier step that took the value, if there is one.
    pub taken_by: Option<&'static str>,
}

impl fmt::Display for Untakable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, value, .. } = self;
        match self.taken_by {
            Some(other) => {
                write!(
                    f,
                    "the step `{step}` takes `{value}`, but `{other}` has taken it and does not emit it again"
                )
            }
            None => {
                write!(f, "the step `{step}` takes `{value}`, but no step before it on this route emits it")
            }
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps.iter().map(|planned| planned.step)).finish()
    }
}

/// The settings of one key on one route.
#[derive(Clone)]
pub struct Configured {
    /// The name of the key.
    pub key: &'static str,
    /// The settings, of the type that the steps of the key declare.
    pub settings: Arc<dyn Any + Send + Sync>,
    /// The condition under which the steps run; `None` if they always run.
    pub when: Option<Arc<dyn Condition>>,
    /// True for a dry run: the steps run without effect.
    pub dry_run: bool,
    /// The numbers of the values of the pipeline that expressions in the settings or the condition read.
    pub reads: Box<[u16]>,
}

/// Returns true if a step guards something before there is a response.
fn guards_early(entry: &Entry, settings: &Arc<dyn Any + Send + Sync>) -> bool {
    entry.decl().phase < PhaseId::UpstreamResponse && !entry.is_idle(settings) && entry.guards(settings)
}

/// Makes the [`Plan`] of a route.
pub struct PlanBuilder<'p> {
    pipeline: &'p Pipeline,
    configured: Vec<Configured>,
    version: u32,
}

impl<'p> PlanBuilder<'p> {
    /// A plan in which nothing is configured.
    pub fn new(pipeline: &'p Pipeline) -> Self {
        Self { pipeline, configured: Vec::new(), version: 0 }
    }

    /// Sets the [version](Plan::version) of the plan.
    pub fn version(&mut self, version: u32) -> &mut Self {
        self.version = version;
        self
    }

    /// Adds the settings of a key.
    pub fn configure(&mut self, configured: Configured) -> &mut Self {
        self.configured.push(configured);
        self
    }

    fn configured(&self, key: &str) -> Option<(usize, &Configured)> {
        self.configured.iter().enumerate().find(|(_, configured)| configured.key == key)
    }

    /// The planned form of a step: with the settings of its key, or with `nothing` if the step has no key. `None` if its
    /// key is not configured.
    fn planned(
        &self,
        step: u16,
        entry: &Entry,
        nothing: &Arc<dyn Any + Send + Sync>,
        read: &[u16],
    ) -> Option<PlannedStep> {
        let Some(key) = entry.key() else {
            let settings = Arc::clone(nothing);
            return Some(PlannedStep {
                step,
                key: u16::MAX,
                dry_run: false,
                guards: false,
                decides: false,
                settings,
                when: None,
            });
        };
        let (place, configured) = self.configured(key.name)?;
        let Configured { settings, when, dry_run, .. } = configured.clone();
        let decides = !dry_run && entry.writes_any(read);
        Some(PlannedStep { step, key: place as u16, dry_run, guards: false, decides, settings, when })
    }

    /// The values that expressions of guarding keys read. A guarding key has a step that guards something before there
    /// is a response.
    fn read(&self) -> Vec<u16> {
        let acts = |configured: &&Configured| {
            let own = |entry: &&Entry| entry.key().is_some_and(|key| key.name == configured.key);
            let mut entries = self.pipeline.entries().iter().filter(own);
            !configured.dry_run
                && !configured.reads.is_empty()
                && entries.any(|entry| guards_early(entry, &configured.settings))
        };
        self.configured.iter().filter(acts).flat_map(|configured| configured.reads.iter().copied()).collect()
    }

    /// Makes the plan of a route. `proxied` is true if the route uses an upstream.
    pub fn build(&self, proxied: bool) -> Plan {
        let nothing: Arc<dyn Any + Send + Sync> = Arc::new(());
        let read = self.read();
        let mut steps: Vec<PlannedStep> = Vec::new();
        let (mut body, mut body_in_memory) = (0, usize::MAX);
        let (mut body_is_optional, mut hold_is_optional) = (true, true);
        let (mut waits, mut body_pause) = (false, None);
        let mut identity: Vec<Text> = Vec::new();
        let (mut request_sweeps, mut sweeps, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        let (mut renews, mut keeps_received, mut sees_refused) = (false, false, false);
        let (mut keeps_fields, mut logs_first) = (false, false);
        for (number, entry) in self.pipeline.entries().iter().enumerate() {
            let decl = entry.decl();
            let writes = |value: &str| steps.iter().any(|step| self.pipeline.writes(step.step, value));
            if decl.filters.iter().any(|filter| filter.of_route(proxied, writes) == Some(false)) {
                continue;
            }
            let Some(planned) = self.planned(number as u16, entry, &nothing, &read) else { continue };
            for name in entry.identity(&planned.settings) {
                if !identity.contains(&name) {
                    identity.push(name);
                }
            }
            // An idle step with a condition stays in the plan: if it is the first step of its key, the condition is evaluated
            // there.
            if planned.when.is_none() && entry.is_idle(&planned.settings) {
                continue;
            }
            renews |= entry.renews() && !planned.dry_run;
            // If a filter fetches a document, request steps run for that document, with the fields that the client has sent.
            keeps_received |= entry.reads_received() || decl.asks;
            keeps_fields |= decl.phase >= PhaseId::UpstreamResponse
                && (planned.when.is_some() || entry.reads_request_fields());
            sees_refused |= entry.reads_received() && decl.phase == PhaseId::Log;
            logs_first |= entry.logs_first(&planned.settings);
            body = body.max(entry.body(&planned.settings).min(BODY_LIMIT));
            body_is_optional &= entry.body(&planned.settings) == 0 || self.pipeline.may_fail(&planned);
            if entry.body(&planned.settings) > 0 && !self.pipeline.may_fail(&planned) {
                let pause = entry.body_pause(&planned.settings);
                waits |= pause.is_none();
                body_pause = body_pause.max(pause);
            }
            hold_is_optional &= !entry.holds_response() || self.pipeline.may_fail(&planned);
            body_in_memory = body_in_memory.min(entry.body_in_memory(&planned.settings));
            if !planned.dry_run && entry.sweeps(&planned.settings) {
                let of_requests = decl.phase <= PhaseId::UpstreamRequest;
                let sweeps = if of_requests { &mut request_sweeps } else { &mut sweeps };
                sweeps.push(planned.clone());
            }
            if entry.tries_parts() {
                parts.push(planned.clone());
            }
            steps.push(planned);
        }
        let guards = self.guards(&steps);
        for planned in &mut steps {
            planned.guards = guards.contains(usize::from(planned.key));
        }
        let phases = self.phases(&steps);
        let used = |phase: &PhaseId| phases[phase.order()] < phases[phase.order() + 1];
        let used =
            PhaseId::ALL.iter().filter(|phase| used(phase)).fold(0, |used, phase| used | 1 << phase.order());
        Plan {
            phases,
            used,
            body,
            body_in_memory,
            body_is_optional,
            body_pause: body_pause.filter(|_| !waits),
            hold_is_optional,
            identity: identity.into(),
            request_sweeps: request_sweeps.into(),
            sweeps: sweeps.into(),
            parts: parts.into(),
            renews,
            changes_bodies: self.changes_bodies(&steps),
            version: self.version,
            steps: steps.into(),
            keeps_received,
            keeps_fields,
            sees_refused,
            logs_first,
        }
    }

    /// The keys, by [`PlannedStep::key`], that have a step which guards something before there is a response.
    fn guards(&self, steps: &[PlannedStep]) -> Steps {
        let guards = |planned: &&PlannedStep| {
            let entry = self.pipeline.entries().get(usize::from(planned.step));
            planned.decides || entry.is_some_and(|entry| guards_early(entry, &planned.settings))
        };
        let keys = steps.iter().filter(guards).map(|planned| usize::from(planned.key));
        keys.fold(Steps::NONE, Steps::with)
    }

    /// See [`Plan::changes_bodies`].
    fn changes_bodies(&self, steps: &[PlannedStep]) -> bool {
        let changes = |entry: &Entry| entry.decl().phase == PhaseId::ResponseBody && entry.filters_response();
        let mut acting = steps.iter().filter(|planned| !planned.dry_run);
        acting.any(|planned| self.pipeline.entries().get(usize::from(planned.step)).is_some_and(changes))
    }

    /// For each phase, the number of steps that run before it.
    fn phases(&self, steps: &[PlannedStep]) -> [u16; PhaseId::COUNT + 1] {
        let mut phases = [0; PhaseId::COUNT + 1];
        for entry in steps.iter().filter_map(|step| self.pipeline.entries().get(usize::from(step.step))) {
            for phase in &mut phases[entry.decl().phase.order() + 1..] {
                *phase += 1;
            }
        }
        phases
    }
}
