//! The open spans of an exchange: one for the proxy's own work, and within it one for a phase of steps.

use std::sync::Arc;
use std::time::Instant;

use crate::spans::{Attributes, RequestTrace, SpanId, SpanKind, SpanParent};

/// The spans under way of an exchange.
#[derive(Debug)]
pub(super) struct ExchangeSpans {
    /// All spans of the request.
    pub trace: Arc<RequestTrace>,
    /// The open span of the proxy's work.
    work: Option<OpenSpan>,
    /// The open span of the running phase.
    phase: Option<OpenSpan>,
}

#[derive(Debug)]
struct OpenSpan {
    name: &'static str,
    id: SpanId,
    began: Instant,
}

impl OpenSpan {
    fn new(name: &'static str) -> Self {
        Self { name, id: SpanId::random(), began: Instant::now() }
    }

    fn end(self, parent: &SpanParent, attributes: &Attributes) {
        let span = (self.id, SpanKind::Internal, self.name);
        parent.record(span, (self.began, Instant::now()), attributes, false);
    }
}

impl ExchangeSpans {
    /// The spans of a trace after the end of the phase `request-early`. That phase began at `early`.
    pub fn new(trace: Arc<RequestTrace>, early: Instant) -> Self {
        let phase = OpenSpan { began: early, ..OpenSpan::new("request-early") };
        let mut spans = Self { trace, work: None, phase: Some(phase) };
        spans.end_phase();
        spans
    }

    /// Returns true while the proxy does this work.
    pub fn is_at(&self, work: &str) -> bool {
        self.work.as_ref().is_some_and(|open| open.name == work)
    }

    /// The span of the request.
    fn root(&self) -> SpanParent {
        SpanParent { id: SpanId(self.trace.context().span), trace: Arc::clone(&self.trace) }
    }

    fn parent_of_phase(&self) -> SpanParent {
        let root = self.root();
        SpanParent { id: self.work.as_ref().map_or(root.id, |work| work.id), ..root }
    }

    /// The parent of new spans.
    pub fn present(&self) -> SpanParent {
        let parent = self.parent_of_phase();
        SpanParent { id: self.phase.as_ref().map_or(parent.id, |phase| phase.id), ..parent }
    }

    /// Begins the span of a phase, unless it is open.
    pub fn begin_phase(&mut self, name: &'static str) {
        if self.phase.as_ref().is_some_and(|phase| phase.name == name) {
            return;
        }
        self.end_phase();
        self.phase = Some(OpenSpan::new(name));
    }

    /// No phase is running any more.
    pub fn end_phase(&mut self) {
        if let Some(phase) = self.phase.take() {
            phase.end(&self.parent_of_phase(), &Attributes::default());
        }
    }

    pub fn begin_work(&mut self, name: &'static str) {
        self.work = Some(OpenSpan::new(name));
    }

    pub fn end_work(&mut self, attributes: &Attributes) {
        self.end_phase();
        if let Some(work) = self.work.take() {
            work.end(&self.root(), attributes);
        }
    }
}
