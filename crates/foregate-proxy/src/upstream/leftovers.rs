//! The handling of bytes after the end of a response: a counter, a warning, and no reuse of connections to a distrusted server.

use std::sync::Arc;
use std::time::Instant;

use foregate_wire::{BodyLength, Method, NameId, ResponseHead};

use super::excess::DISTRUSTED_FOR;
use super::server::Server;
use crate::counters::metrics::{Metrics, UpstreamCounters};
use crate::error::{EXCESS, Side};

/// Takes note of bytes behind the ends of responses.
#[derive(Debug)]
pub(super) struct ExcessReport {
    pub(super) upstream: Arc<str>,
    pub(super) counters: Arc<UpstreamCounters>,
    pub(super) metrics: Arc<Metrics>,
}

impl ExcessReport {
    /// Records that bytes of an earlier response arrived in place of the response to a request.
    pub(super) fn note(&self, server: &Server, now: Instant) {
        server.pool.excess.note(now);
        self.report(server);
    }

    /// Counts the responses with excess bytes that were noted since the last call, and tells operators if
    /// the distrust is new.
    pub(super) fn report(&self, server: &Server) {
        let Some((responses, is_news)) = server.pool.excess.take() else { return };
        self.count(responses);
        if is_news {
            tracing::warn!(
                upstream = %self.upstream,
                server = %server.label,
                "the server has sent bytes behind the end of a response: for {} minutes connections to it are closed behind responses to \
                 HEAD and behind 204 and 304",
                DISTRUSTED_FOR.as_secs() / 60
            );
        }
    }

    /// Counts responses that were followed by excess bytes.
    pub(super) fn count(&self, responses: u64) {
        for _ in 0..responses {
            tracing::debug!(upstream = %self.upstream, "an origin has sent bytes behind the end of a response");
            // The bytes may arrive after their request has ended, so no route is known.
            self.metrics.unrouted().error(EXCESS, Side::Upstream.as_str(), Some(&self.upstream));
        }
    }

    /// Returns true if an HTTP/1 connection may be reused after this response, with regard to late
    /// bytes. If the answer is false because the server is distrusted, the closed connection is counted.
    pub(super) fn trusts_behind(
        &self,
        server: &Server,
        method: &Method,
        head: &ResponseHead,
        length: BodyLength,
        now: Instant,
    ) -> bool {
        if length != BodyLength::Empty {
            return true;
        }
        if announces_forbidden_body(method, head) {
            return false;
        }
        let is_distrusted = server.pool.excess.is_distrusted(now);
        if is_distrusted {
            self.counters.distrusted.inc();
        }
        !is_distrusted
    }
}

/// Returns true if a response to another method than HEAD announces a body that its status forbids
/// (RFC 9110, sections 15.3.5 and 15.4.5). The origin may send that body later, as if it were the
/// response to the connection's next request.
fn announces_forbidden_body(method: &Method, head: &ResponseHead) -> bool {
    let has_length = || !matches!(foregate_wire::content_length(&head.headers), Ok(None | Some(0)));
    let has_coding = || head.headers.contains(NameId::TransferEncoding);
    match head.status {
        _ if *method == Method::Head => false,
        204 => has_coding() || has_length(),
        304 => has_coding(),
        _ => false,
    }
}
