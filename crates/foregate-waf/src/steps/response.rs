//! Phases 3 and 4: the response.

use std::ops::ControlFlow;

use foregate_coding::ContentCoding;
use foregate_module::{
    Abort, AskWhole, Count, DryRun, Either, Emit, EmitAnd, Fields, Filter, GiveWay, HoldResponseBody, Holds,
    Load, Never, Protocol, Replace, ResponseBody, ResponseFields, Status, Step, Take, Time, Weight, phase,
};

use super::answer::{End, end};
use super::request::with;
use super::settings::WafSettings;
use super::values::{HeldTransaction, TransactionValue};
use crate::engine::Verdict;

/// The ways to stop a response. The transaction is passed on, so that its matches are logged.
type ResponseStop = EmitAnd<TransactionValue, Either<Replace, Abort>>;

fn stop(end: End, held: Box<HeldTransaction>) -> ResponseStop {
    let stop = match end {
        End::Respond(response) => Either::A(Replace(response)),
        End::Abort => Either::B(Abort),
    };
    EmitAnd { value: Some(held), stop }
}

/// The event for responses with a body that rules would read but cannot, because its coding is not supported or
/// because the body is not in the coding that it declares.
const UNREADABLE: &str = "unreadable";

/// The factor by which a body is assumed to grow when it is decoded. The choice of the thread depends on the
/// decoded size.
const CODED: usize = 8;

/// The content coding of a response. Several codings, and an unknown one, are errors.
fn coding(fields: &dyn Fields) -> Result<Option<ContentCoding>, ()> {
    let mut values = fields.all("content-encoding").map(<[u8]>::trim_ascii);
    let plain = |value: &[u8]| value.is_empty() || value.eq_ignore_ascii_case(b"identity");
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) if plain(value) => Ok(None),
        (Some(value), None) => foregate_coding::coding_of(value).map(Some).ok_or(()),
        _ => Err(()),
    }
}

/// The step that runs phase 3.
#[derive(Debug, Default)]
pub struct ResponseHead;

impl Step for ResponseHead {
    type At = phase::ResponseHeaders;
    type Settings = WafSettings;
    type In<'r> = (Take<TransactionValue>, Status, Protocol<'r>, ResponseFields<'r>, Time, GiveWay);
    type Out = (Emit<TransactionValue>, HoldResponseBody, Count);
    type Stop = ResponseStop;
    const NAME: &'static str = "waf-response";
    const ABOUT: &'static str = "Runs the firewall's rules over the response's head, and asks for its body.";
    const FILTERS: &'static [Filter] = &[];

    fn only_watches(settings: &WafSettings) -> bool {
        settings.only_detects()
    }

    fn run(&self, _: &WafSettings, input: Self::In<'_>) -> ControlFlow<ResponseStop, Self::Out> {
        let (Take(held), Status(status), Protocol(protocol), ResponseFields(fields), Time(now), way) = input;
        let nothing = |held, count| ControlFlow::Continue((Emit(held), HoldResponseBody(None), Count(count)));
        let Some(mut held) = held else { return nothing(None, None) };
        // The response is our own, because the request was stopped or because it replaces a response that rules have
        // read. Rules need not read it.
        if std::mem::replace(&mut held.answered, true)
            || held.transaction.as_ref().is_none_or(|transaction| !transaction.verdict().passes())
        {
            return nothing(Some(held), None);
        }
        let seen = with(&mut held, now, way, |transaction| {
            let verdict = transaction.response_headers(status, protocol.as_bytes(), fields.iter());
            (verdict, transaction.response_body_limit())
        });
        let (verdict, limit) = seen.unwrap_or((Verdict::Pass, None));
        if let Some(end) = end(verdict, &held) {
            return ControlFlow::Break(stop(end, held));
        }
        let Some(limit) = limit.filter(|limit| *limit > 0) else { return nothing(Some(held), None) };
        let limit = limit as usize;
        let Ok(coding) = coding(fields) else { return nothing(Some(held), Some(UNREADABLE)) };
        (held.holds, held.coding, held.limit) = (true, coding, limit);
        ControlFlow::Continue((Emit(Some(held)), HoldResponseBody(Some(limit)), Count(None)))
    }
}

/// The step that asks the origin for the whole response if it has sent only a part of a body that rules read.
/// A text that matches a rule may be split between two parts.
#[derive(Debug, Default)]
pub struct ResponsePart;

impl Step for ResponsePart {
    type At = phase::ResponseBody;
    type Settings = WafSettings;
    type In<'r> = (Status, ResponseFields<'r>, DryRun);
    type Out = (AskWhole,);
    type Stop = Never;
    const NAME: &'static str = "waf-response-part";
    const ABOUT: &'static str = "Asks for all of a response of which rules would see a part.";
    const FILTERS: &'static [Filter] = &[Filter::Status(206, 206)];
    const TRIES_PARTS: bool = true;

    fn is_idle(settings: &WafSettings) -> bool {
        settings.only_detects() || !settings.engine().looks_at_responses()
    }

    fn only_watches(settings: &WafSettings) -> bool {
        settings.only_detects()
    }

    fn run(&self, settings: &WafSettings, input: Self::In<'_>) -> ControlFlow<Never, Self::Out> {
        let (Status(status), ResponseFields(fields), DryRun(dry_run)) = input;
        // The type of the content is unknown in a response with several parts, or without a `Content-Type` (RFC
        // 9110, section 15.3.7).
        let is_looked_at = |kind: &[u8]| {
            let is_several = kind.trim_ascii().to_ascii_lowercase().starts_with(b"multipart/byteranges");
            is_several || settings.engine().looks_at_type(kind)
        };
        let mut types = fields.all("content-type").peekable();
        let asks = status == 206 && !dry_run && (types.peek().is_none() || types.any(is_looked_at));
        ControlFlow::Continue((AskWhole(asks),))
    }
}

/// The step that runs phase 4.
#[derive(Debug, Default)]
pub struct ResponseStart;

impl Step for ResponseStart {
    type At = phase::ResponseBody;
    type Settings = WafSettings;
    type In<'r> = (Take<TransactionValue>, ResponseBody<'r>, Time, GiveWay);
    type Out = (Emit<TransactionValue>, Holds, Count);
    type Stop = ResponseStop;
    const NAME: &'static str = "waf-response-body";
    const ABOUT: &'static str = "Runs the firewall's rules over the start of the response's body.";
    const FILTERS: &'static [Filter] = &[];
    const WEIGHT: Weight = Weight::Varies;

    fn only_watches(settings: &WafSettings) -> bool {
        settings.only_detects()
    }

    fn load(&self, settings: &WafSettings, (Take(held), body, ..): &Self::In<'_>) -> Load {
        match held {
            Some(held) if held.holds => {
                let factor = if held.coding.is_some() { CODED } else { 1 };
                settings.load(body.bytes.len().saturating_mul(factor), || 0)
            }
            _ => Load::Light,
        }
    }

    fn run(&self, _: &WafSettings, input: Self::In<'_>) -> ControlFlow<ResponseStop, Self::Out> {
        let (Take(held), body, Time(now), way) = input;
        let Some(mut held) = held else { return ControlFlow::Continue((Emit(None), Holds(0), Count(None))) };
        // If this step replaces a response, the replacement passes through the step again and is not read.
        if !std::mem::take(&mut held.holds) {
            return ControlFlow::Continue((Emit(Some(held)), Holds(0), Count(None)));
        }
        // Rules read the decoded text, as a browser shows it. The client still gets the original body, or the output
        // of filters.
        let plain =
            held.coding.map(|coding| foregate_coding::start(coding, body.bytes, body.whole, held.limit));
        let (bytes, whole) =
            plain.as_ref().map_or((body.bytes, body.whole), |plain| (&*plain.bytes, plain.whole));
        let count = Count(plain.as_ref().is_some_and(|plain| plain.broken).then_some(UNREADABLE));
        let seen = with(&mut held, now, way, |transaction| {
            (transaction.response_body(bytes, whole), transaction.text())
        });
        let (verdict, text) = seen.unwrap_or((Verdict::Pass, 0));
        if let Some(end) = end(verdict, &held) {
            return ControlFlow::Break(stop(end, held));
        }
        let holds = Holds(held.count(text));
        ControlFlow::Continue((Emit(Some(held)), holds, count))
    }
}
