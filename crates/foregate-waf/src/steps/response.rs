//! Phases 3 and 4: the response.

use std::ops::ControlFlow;

use foregate_module::{
    Abort, Either, Filter, HoldResponseBody, Holds, Load, Protocol, Read, Replace, ResponseBody,
    ResponseFields, Status, Step, Time, Weight, phase,
};

use super::answer::{End, end};
use super::request::with;
use super::settings::Settings;
use super::values::TransactionValue;
use crate::engine::Verdict;

/// How a response is stopped.
type Stop = Either<Replace, Abort>;

fn stop(end: End) -> Stop {
    match end {
        End::Respond(response) => Either::A(Replace(response)),
        End::Abort => Either::B(Abort),
    }
}

/// Phase 3.
#[derive(Debug, Default)]
pub struct ResponseHead;

impl Step for ResponseHead {
    type At = phase::ResponseHeaders;
    type Settings = Settings;
    type In<'r> = (Read<'r, TransactionValue>, Status, Protocol<'r>, ResponseFields<'r>, Time);
    type Out = (HoldResponseBody,);
    type Stop = Stop;
    const NAME: &'static str = "waf-response";
    const ABOUT: &'static str = "Runs the firewall's rules over the response's head, and asks for its body.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, _: &Settings, input: Self::In<'_>) -> ControlFlow<Stop, Self::Out> {
        let (Read(held), Status(status), Protocol(protocol), ResponseFields(fields), Time(now)) = input;
        let nothing = ControlFlow::Continue((HoldResponseBody(None),));
        let Some(held) = held else { return nothing };
        let held = &mut *held.lock();
        // A request that was stopped has our own answer, which rules need not look at.
        if held.transaction.as_ref().is_none_or(|transaction| !transaction.verdict().passes()) {
            return nothing;
        }
        let coded =
            fields.get("content-encoding").is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity"));
        let seen = with(held, now, |transaction| {
            let verdict = transaction.response_headers(status, protocol.as_bytes(), fields.iter());
            (verdict, transaction.response_body_limit())
        });
        let (verdict, limit) = seen.unwrap_or((Verdict::Pass, None));
        if let Some(end) = end(verdict, held) {
            return ControlFlow::Break(stop(end));
        }
        let hold = limit.filter(|limit| *limit > 0 && !coded).map(|limit| limit as usize);
        held.holds = hold.is_some();
        ControlFlow::Continue((HoldResponseBody(hold),))
    }
}

/// Phase 4.
#[derive(Debug, Default)]
pub struct ResponseStart;

impl Step for ResponseStart {
    type At = phase::ResponseBody;
    type Settings = Settings;
    type In<'r> = (Read<'r, TransactionValue>, ResponseBody<'r>, Time);
    type Out = (Holds,);
    type Stop = Stop;
    const NAME: &'static str = "waf-response-body";
    const ABOUT: &'static str = "Runs the firewall's rules over the start of the response's body.";
    const FILTERS: &'static [Filter] = &[];
    const WEIGHT: Weight = Weight::Varies;

    fn load(&self, settings: &Settings, (Read(held), body, _): &Self::In<'_>) -> Load {
        match held {
            Some(held) if held.lock().holds => settings.load(body.bytes.len(), || 0),
            _ => Load::Light,
        }
    }

    fn run(&self, _: &Settings, (Read(held), body, Time(now)): Self::In<'_>) -> ControlFlow<Stop, Self::Out> {
        let nothing = ControlFlow::Continue((Holds(0),));
        let Some(held) = held else { return nothing };
        let held = &mut *held.lock();
        // What is replaced here comes by here again.
        if !std::mem::take(&mut held.holds) {
            return nothing;
        }
        let seen = with(held, now, |transaction| {
            (transaction.response_body(body.bytes, body.whole), transaction.text())
        });
        let (verdict, text) = seen.unwrap_or((Verdict::Pass, 0));
        match end(verdict, held) {
            Some(end) => ControlFlow::Break(stop(end)),
            None => ControlFlow::Continue((Holds(held.count(text)),)),
        }
    }
}
