//! Phases 1 and 2: the request.

use std::ops::ControlFlow;
use std::time::Duration;

use foregate_module::{
    Abort, Body, Either, Emit, EmitAnd, Filter, GiveWay, Holds, Load, Now, Respond, Step, Swept, Take, Time,
    Unseen, Weight, phase,
};

use super::answer::{End, end};
use super::settings::WafSettings;
use super::values::{Blocked, HeldTransaction, MatchedRule, OverBudget, Rules, Score, TransactionValue};
use crate::engine::{Over, Transaction, Verdict};

/// The ways to stop a request. The transaction is passed on, so that its matches are logged.
type RequestStop = EmitAnd<TransactionValue, Either<Respond, Abort>>;

fn stop(end: End, held: Box<HeldTransaction>) -> RequestStop {
    EmitAnd { value: Some(held), stop: end.of_request() }
}

/// Calls `look` with the transaction, after setting its time. Returns `None` if there is no transaction.
pub(super) fn with<T>(
    held: &mut HeldTransaction,
    now: Now,
    GiveWay(give_way): GiveWay,
    look: impl FnOnce(&mut Transaction) -> T,
) -> Option<T> {
    let transaction = held.transaction.as_mut()?;
    transaction.give_way(give_way);
    transaction.elapsed(Duration::from_millis(now.steady_ms.saturating_sub(held.began)));
    Some(look(transaction))
}

/// The step that runs phase 1.
#[derive(Debug, Default)]
pub struct RequestHead;

impl Step for RequestHead {
    type At = phase::RequestSecurity;
    type Settings = WafSettings;
    type In<'r> = (Take<TransactionValue>, Time, GiveWay);
    type Out = (Emit<TransactionValue>,);
    type Stop = RequestStop;
    const NAME: &'static str = "waf-request";
    const ABOUT: &'static str = "Runs the firewall's rules over the request's head.";
    const FILTERS: &'static [Filter] = &[];
    const WEIGHT: Weight = Weight::Varies;

    fn load(&self, settings: &WafSettings, (Take(held), ..): &Self::In<'_>) -> Load {
        held.as_ref().map_or(Load::Light, |held| settings.load(held.head, || held.values))
    }

    fn only_watches(settings: &WafSettings) -> bool {
        settings.only_detects()
    }

    fn run(&self, _: &WafSettings, input: Self::In<'_>) -> ControlFlow<RequestStop, Self::Out> {
        let (Take(held), Time(now), way) = input;
        let Some(mut held) = held else { return ControlFlow::Continue((Emit(None),)) };
        let verdict = with(&mut held, now, way, Transaction::request_headers).unwrap_or(Verdict::Pass);
        match end(verdict, &held) {
            Some(end) => ControlFlow::Break(stop(end, held)),
            None => ControlFlow::Continue((Emit(Some(held)),)),
        }
    }
}

/// The step that runs phase 2.
#[derive(Debug, Default)]
pub struct RequestBody;

impl Step for RequestBody {
    type At = phase::RequestBody;
    type Settings = WafSettings;
    type In<'r> = (Take<TransactionValue>, Body<'r>, Time, Unseen, GiveWay);
    type Out = (
        Emit<TransactionValue>,
        Emit<Score>,
        Emit<Blocked>,
        Emit<MatchedRule>,
        Emit<Rules>,
        Emit<OverBudget>,
        Holds,
    );
    type Stop = RequestStop;
    const NAME: &'static str = "waf-body";
    const ABOUT: &'static str =
        "Runs the firewall's rules over the request with its body, and says what they found.";
    const FILTERS: &'static [Filter] = &[];
    const WEIGHT: Weight = Weight::Varies;

    fn only_watches(settings: &WafSettings) -> bool {
        settings.only_detects()
    }

    fn body(settings: &WafSettings) -> usize {
        settings.body
    }

    fn body_in_memory(settings: &WafSettings) -> usize {
        settings.body_in_memory
    }

    fn body_pause(settings: &WafSettings) -> Option<Duration> {
        settings.stream_pause
    }

    fn sweeps(settings: &WafSettings) -> bool {
        settings.drops_trailers
    }

    fn keeps(&self, _: &WafSettings, _: Swept, _: &[u8]) -> bool {
        false
    }

    fn load(&self, settings: &WafSettings, (Take(held), body, ..): &Self::In<'_>) -> Load {
        // The number of values is estimated by the separators of forms and JSON.
        let values = || memchr::memchr2_iter(b'&', b',', body.bytes).count();
        held.as_ref()
            .map_or(Load::Light, |held| settings.load(held.head + body.length, || held.values + values()))
    }

    fn run(&self, settings: &WafSettings, input: Self::In<'_>) -> ControlFlow<RequestStop, Self::Out> {
        let (Take(held), body, Time(now), Unseen(unseen), way) = input;
        let nothing = |held| {
            let nothing = (Emit(held), Emit(None), Emit(None), Emit(None), Emit(None), Emit(None), Holds(0));
            ControlFlow::Continue(nothing)
        };
        let Some(mut held) = held else { return nothing(None) };
        // In a dry run, phase 1 may have reached a verdict that did not stop the request. Phase 2 is skipped then.
        if held.transaction.as_ref().is_some_and(|transaction| !transaction.verdict().passes()) {
            return nothing(Some(held));
        }
        // A body that could not be stored counts as unseen, not as too long.
        let has_more = settings.body > 0 && !body.whole && unseen.is_none();
        let seen = with(&mut held, now, way, |transaction| {
            let (verdict, is_cut) = look_at_body(transaction, settings, body.bytes, body.whole, has_more);
            let score = transaction.variable("blocking_inbound_anomaly_score");
            let score = score.and_then(|score| std::str::from_utf8(&score).ok()?.parse().ok());
            let over = transaction.over().map(Over::name);
            let would = (transaction.would(), transaction.would_stop());
            (verdict, score.unwrap_or(0), would, over, transaction.text(), is_cut)
        });
        let Some((verdict, score, (would, rules), over, text, is_cut)) = seen else {
            return nothing(Some(held));
        };
        held.is_cut = is_cut;
        if let Some(end) = end(verdict, &held) {
            return ControlFlow::Break(stop(end, held));
        }
        let rule = would.rule().map(|rule| rule as i64);
        let holds = Holds(held.count(text));
        let rules = (!rules.is_empty()).then(|| rules.into_iter().map(|rule| rule as i64).collect());
        let blocked = Emit(Some(!would.passes()));
        let score = Emit(Some(score));
        ControlFlow::Continue((Emit(Some(held)), score, blocked, Emit(rule), Emit(rules), Emit(over), holds))
    }
}

/// Runs phase 2 over the start of a body, or refuses a body that is longer than rules may see. Returns the
/// verdict, and true if the body has a rest that rules do not see.
pub(super) fn look_at_body(
    transaction: &mut Transaction,
    settings: &WafSettings,
    start: &[u8],
    whole: bool,
    has_more: bool,
) -> (Verdict, bool) {
    let has_more = has_more && transaction.request_body_limit().is_some();
    let is_long = has_more && settings.refuses_long;
    let denied = if is_long { transaction.deny_for("body-limit") } else { Verdict::Pass };
    // If rules only detect, the body is not refused, and rules read its start.
    let verdict = match denied {
        Verdict::Pass => transaction.request_body(start, whole),
        denied => denied,
    };
    (verdict, has_more && !is_long)
}
