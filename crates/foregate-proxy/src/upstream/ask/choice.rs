//! The choice of upstream and server for an attempt.

use std::time::Instant;

use super::{Ask, Asker};
use crate::message::request::Request;
use crate::time::clock;
use crate::upstream::balance::BalancedRequest;

impl Ask<'_> {
    /// Returns true if the first attempt goes to another upstream, because this one has no server for it.
    pub(super) fn passes_over<A: Asker>(&mut self, asker: &mut A) -> bool {
        let (upstream, client, now) = (self.upstream, self.terms.behalf, clock::now());
        let Some(rules) = &mut self.rules else { return false };
        let (request, _) = asker.heads();
        let has_session = || upstream.picker.has_session(&BalancedRequest { request, client }, now);
        !upstream.picker.takes_requests(now) && !has_session() && rules.pass_over(upstream, now)
    }

    /// Begins the next attempt, as [`Attempts::begin`](crate::upstream::attempts::Attempts::begin). The choice of a server
    /// depends on the request as this upstream gets it.
    pub(super) fn begin_attempt(
        &mut self,
        request: &mut Request,
        bound: Option<usize>,
        now: Instant,
    ) -> Option<(usize, bool)> {
        let (upstream, client) = (self.upstream, self.terms.behalf);
        let diversions = self.rules.as_ref().map_or(&[][..], |rules| rules.diversions());
        if diversions.is_empty() || self.attempts.last().is_some() {
            return self.attempts.begin(upstream, BalancedRequest { request, client }, bound, now);
        }
        let present = request.present();
        request.divert(diversions);
        let begun = self.attempts.begin(upstream, BalancedRequest { request, client }, bound, now);
        request.return_to(present);
        begun
    }
}
