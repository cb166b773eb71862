//! The export of the spans of recorded traces.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use foregate_module::{Condition, Field};

/// The receiver of spans (OTLP over HTTP), and the requests whose spans it gets.
#[derive(Clone)]
pub struct TraceExport {
    /// The receiver, by its index among the upstreams.
    pub upstream: usize,
    /// The path that spans are posted to.
    pub path: Box<str>,
    /// Further fields of the requests to the receiver, such as `Authorization`.
    pub fields: Vec<Field>,
    /// The attributes of the resource, `service.name` among them.
    pub resource: Vec<(Arc<str>, Arc<str>)>,
    /// Spans of a request are exported if all of these conditions hold at its end.
    pub when: Vec<Arc<dyn Condition>>,
    /// The time limit of the receiver for a batch. Default: 10 s.
    pub timeout: Duration,
}

impl fmt::Debug for TraceExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values of fields are left out, because they may be secrets.
        f.debug_struct("TraceExport")
            .field("upstream", &self.upstream)
            .field("path", &self.path)
            .field("fields", &self.fields.len())
            .field("resource", &self.resource)
            .field("when", &self.when.len())
            .field("timeout", &self.timeout)
            .finish()
    }
}
