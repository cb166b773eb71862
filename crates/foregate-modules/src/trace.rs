//! Trace context (W3C Trace Context): each request belongs to a trace, and each hop has its own number in it.
//!
//! ```kdl
//! trace
//! trace keep="always" sample="1%" sample-when="starts_with(http.request.uri.path, \"/pay/\")"
//! ```
//!
//! A trace from a trusted proxy is continued: this hop gets a new parent id, the proxy's decision about recording is
//! kept, and `tracestate` is sent on unchanged. If a request has no trace, a malformed one, or one from an untrusted
//! peer, a new trace begins, and `tracestate` is removed. Of the new traces, those that match a condition and a
//! configured share of the others are recorded.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::ControlFlow;

use foregate_module::settings::{Prop, together};
use foregate_module::{
    Argument, Condition, Context, Doubt, EditRequest, Edits, Emit, Fields, Filter, FromNode, Key, Kind,
    Never, Node, PhaseId, Problem, Random, Read, RequestFields, SetTrace, Shown, Step, Swept, TraceContext,
    Value, View, phase,
};

use crate::client_address::PeerTrusted;
use crate::request_id::{Keep, hex};

/// The most members of `tracestate` (section 3.3.1.1).
const MEMBERS_LIMIT: usize = 32;

/// The longest accepted `traceparent` of a later version, bytes.
const PARENT_LIMIT: usize = 512;

/// The flag of `traceparent` for a trace that is recorded.
const SAMPLED: u8 = TraceContext::SAMPLED;

/// The flag of `traceparent` for a trace id that ends with seven random bytes (level 2 of the standard).
const RANDOM: u8 = 2;

const KEY: Key = Key {
    usage: "keep=\"trusted\"|\"always\"|\"never\" sample=SHARE sample-when=EXPRESSION",
    ..Key::flag(
        "trace",
        "",
        "trace sample=\"1%\"",
        "Continues the trace of the request, or begins a new one (W3C Trace Context), and passes it to the origin in `traceparent`.",
    )
}
.otherwise("`traceparent` and `tracestate` pass unchanged")
.props(&[
    Prop {
        name: "keep",
        usage: "\"trusted\"|\"always\"|\"never\"",
        required: false,
        default: "\"trusted\"",
        about: "The requests that continue their own trace: those from `trusted-proxies`, all, or none. For all others, a new trace begins.",
    },
    Prop {
        name: "sample",
        usage: "SHARE",
        required: false,
        default: "\"0%\"",
        about: "The share of the traces begun by Foregate that is marked for recording, such as `\"1%\"` or `\"0.05%\"`.",
    },
    Prop {
        name: "sample-when",
        usage: "EXPRESSION",
        required: false,
        default: "",
        about: "Marks the traces begun by Foregate for recording if this expression is true for the request, in addition to the share of `sample`.",
    },
]);

/// The context of this hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceHop {
    trace: [u8; 32],
    parent: [u8; 16],
    flags: u8,
}

impl TraceHop {
    /// The id of the trace: 32 hexadecimal digits.
    pub fn trace(&self) -> &[u8] {
        &self.trace
    }

    /// The id of this hop, which is the parent id for the next hop: 16 hexadecimal digits.
    pub fn parent(&self) -> &[u8] {
        &self.parent
    }

    /// Returns true if the trace is recorded.
    pub fn sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The value of `traceparent` for the next hop.
    fn to_field(self) -> Vec<u8> {
        let mut flags = [0; 2];
        hex(u64::from(self.flags), &mut flags);
        [b"00-", &self.trace[..], b"-", &self.parent, b"-", &flags].concat()
    }
}

macro_rules! shown {
    ($($(#[$doc:meta])* $value:ident, $name:literal, $about:literal, $data:ty, $kind:ident, $show:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $value {}

        impl Value for $value {
            type Data = $data;
            const NAME: &'static str = $name;
            const ABOUT: &'static str = $about;
            const SHOWS: Option<Kind> = Some(Kind::$kind);
            fn show(data: &$data) -> Option<Shown<'_>> {
                let show: fn(&$data) -> Shown<'_> = $show;
                Some(show(data))
            }
        }
    )* };
}

shown! {
    /// The trace, and this hop in it. Expressions and logs see the trace's id.
    Trace, "trace.id", "The id of the trace: 32 hexadecimal digits.", TraceHop, Bytes, |hop| Shown::Bytes(hop.trace());
    /// This hop's id.
    Span, "trace.span", "The id of this hop in the trace: 16 hexadecimal digits.", [u8; 16], Bytes,
        |span| Shown::Bytes(span);
    /// Whether the trace is recorded.
    Sampled, "trace.sampled", "Whether the trace is recorded.", bool, Bool, |sampled| Shown::Bool(*sampled);
}

/// The settings.
pub struct TraceSettings {
    on: bool,
    keep: Keep,
    /// Of 2^64 new traces, this many are recorded.
    share: u128,
    /// The condition for new traces that are recorded regardless of the share.
    always: Option<Arc<dyn Condition>>,
}

impl fmt::Debug for TraceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceSettings")
            .field("on", &self.on)
            .field("keep", &self.keep)
            .field("share", &self.share)
            .field("always", &self.always.is_some())
            .finish()
    }
}

impl FromNode for TraceSettings {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let [node] = nodes else { return Ok(Self { on: false, keep: Keep::Never, share: 0, always: None }) };
        let on = node.args().first().map_or(Ok(true), Argument::flag);
        let share = node.prop("sample").map_or(Ok(0), |argument| {
            share(argument.text()?).ok_or_else(|| argument.wrong("expected a share from \"0%\" to \"100%\""))
        });
        let always = node.prop("sample-when").map(|text| context.condition(text, PhaseId::RequestEarly));
        let (on, keep, share, always) = together((on, Keep::of(node), share, always.transpose()))?;
        Ok(Self { on, keep, share, always })
    }
}

/// Reads a share in percent, with at most six digits after the point, and returns it in units of 1/2^64.
fn share(text: &str) -> Option<u128> {
    let text = text.strip_suffix('%')?.trim_end();
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !digits(whole, 3) || !digits(part, 6) {
        return None;
    }
    let millionths = whole.parse::<u128>().ok()? * 1_000_000
        + part.parse::<u128>().ok()? * 10_u128.pow(6 - part.len() as u32);
    (millionths <= 100_000_000).then_some((millionths << 64) / 100_000_000)
}

/// A trace that continues.
struct Continued {
    trace: [u8; 32],
    parent: [u8; 16],
    flags: u8,
}

/// Reads `traceparent` (section 3.2).
fn parse(value: &[u8]) -> Option<Continued> {
    let digits = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let (head, rest) = value.split_first_chunk::<55>()?;
    let (version, trace, parent, flags) = (
        head.get(..2)?,
        head.get(3..35)?.first_chunk::<32>()?,
        head.get(36..52)?.first_chunk::<16>()?,
        head.get(53..55)?,
    );
    let dashes = [2, 35, 52].iter().all(|at| head.get(*at) == Some(&b'-'));
    if !dashes
        || ![version, &trace[..], &parent[..], flags].iter().all(|part| digits(part))
        || version == b"ff"
    {
        return None;
    }
    // A later version may have further parts after another dash; version 00 ends here.
    let ends = if version == b"00" { rest.is_empty() } else { matches!(rest, [] | [b'-', ..]) };
    let zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == b'0');
    if !ends || value.len() > PARENT_LIMIT || zero(trace) || zero(parent) {
        return None;
    }
    let flags = u8::from_str_radix(core::str::from_utf8(flags).ok()?, 16).ok()?;
    Some(Continued { trace: *trace, parent: *parent, flags: flags & (SAMPLED | RANDOM) })
}

/// Parses hexadecimal digits into bytes. The caller has checked that all of them are hexadecimal.
fn bytes<const N: usize>(digits: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
        *byte = pair.iter().fold(0, |byte, digit| byte << 4 | value(*digit));
    }
    bytes
}

/// Returns true if `tracestate` is well-formed (section 3.3.1): at most 32 members, each key once.
fn state_is_valid(fields: &dyn Fields) -> bool {
    let mut keys: Vec<&[u8]> = Vec::new();
    for member in fields.all("tracestate").flat_map(|value| value.split(|byte| *byte == b',')) {
        let member = member.trim_ascii();
        if member.is_empty() {
            continue;
        }
        let Some(equals) = member.iter().position(|byte| *byte == b'=') else { return false };
        let (key, value) = (&member[..equals], &member[equals + 1..]);
        let printable = |byte: &u8| (b' '..=b'~').contains(byte) && *byte != b'=';
        let valid = is_key(key) && (1..=256).contains(&value.len()) && value.iter().all(printable);
        if !valid || keys.len() == MEMBERS_LIMIT || keys.contains(&key) {
            return false;
        }
        keys.push(key);
    }
    true
}

fn is_key(key: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(byte);
    let starts = key.first().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let tenants = key.iter().filter(|byte| **byte == b'@').count();
    starts && key.len() <= 256 && tenants <= 1 && key.iter().all(plain)
}

/// Continues or begins the trace.
#[derive(Debug, Default)]
pub struct Continue;

impl Step for Continue {
    type At = phase::RequestEarly;
    type Settings = TraceSettings;
    type In<'r> = (RequestFields<'r>, Read<'r, PeerTrusted>, View<'r>, Random, Random, Random, Random);
    type Out = (Emit<Trace>, Emit<Span>, Emit<Sampled>, EditRequest, SetTrace);
    type Stop = Never;
    const NAME: &'static str = "trace";
    const ABOUT: &'static str = "Continues a trusted proxy's trace, or begins one.";
    const FILTERS: &'static [Filter] = &[];

    fn guards(_: &TraceSettings) -> bool {
        false
    }

    fn sweeps(settings: &TraceSettings) -> bool {
        settings.on
    }

    /// Removes trace fields from trailers: a trace that was refused in the head must not arrive in the trailers.
    fn keeps(&self, _: &TraceSettings, _: Swept, name: &[u8]) -> bool {
        !name.eq_ignore_ascii_case(b"tracestate") && !name.eq_ignore_ascii_case(b"traceparent")
    }

    fn run(
        &self,
        settings: &TraceSettings,
        (RequestFields(fields), Read(trusted), view, Random(high), Random(low), Random(span), Random(dice)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        if !settings.on {
            let nothing = (Emit(None), Emit(None), Emit(None), EditRequest(Edits::new()), SetTrace(None));
            return ControlFlow::Continue(nothing);
        }
        let mut sent = fields.all("traceparent");
        let parent = match (sent.next(), sent.next()) {
            (Some(parent), None) if settings.keep.holds(trusted) => parse(parent),
            _ => None,
        };
        let (trace, flags) =
            parent.as_ref().map(|parent| (parent.trace, parent.flags)).unwrap_or_else(|| {
                let mut trace = [0; 32];
                // An id that consists of zeros is invalid.
                hex(high, &mut trace[..16]);
                hex(low | 1, &mut trace[16..]);
                // Recording a trace guards nothing, so an ambiguous path is no reason to refuse the request.
                let always = |always: &Arc<dyn Condition>| always.holds(&view.in_doubt(Doubt::Ignored));
                let sampled =
                    u128::from(dice) < settings.share || settings.always.as_ref().is_some_and(always);
                (trace, if sampled { SAMPLED } else { 0 } | RANDOM)
            });
        let mut hop = TraceHop { trace, parent: [0; 16], flags };
        hex(if span == 0 { 1 } else { span }, &mut hop.parent);
        let mut edits = Edits::new().set("traceparent", hop.to_field());
        if parent.is_none() || !state_is_valid(fields) {
            edits = edits.remove("tracestate");
        }
        let context = TraceContext {
            trace: bytes(&trace),
            span: bytes(&hop.parent),
            parent: parent.map(|parent| bytes(&parent.parent)),
            flags,
        };
        let (span, sampled) = (hop.parent, hop.sampled());
        ControlFlow::Continue((
            Emit(Some(hop)),
            Emit(Some(span)),
            Emit(Some(sampled)),
            EditRequest(edits),
            SetTrace(Some(context)),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use foregate_module::testing::{Sample, node, settings};

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn run(keep: &str, fields: &[(&str, &str)]) -> Sample {
        let settings = settings(&[node("trace").prop_literal("keep", keep)]).unwrap();
        let mut sample =
            fields.iter().fold(Sample::get("/"), |sample, (name, value)| sample.field(name, value));
        sample.random = 0xabc;
        sample.run(&Continue, &settings);
        sample
    }

    fn field(sample: &Sample, name: &str) -> Option<String> {
        sample.request.get(name).map(|value| String::from_utf8(value.to_vec()).unwrap())
    }

    const NEW: &str = "00-0000000000000abc0000000000000abd-0000000000000abc-02";

    #[test]
    fn a_trace_goes_on_with_a_new_parent() {
        let sample =
            run("always", &[("Traceparent", PARENT), ("tracestate", "a=1,b@c=2"), ("tracestate", "d=3")]);
        assert_eq!(
            field(&sample, "traceparent").unwrap(),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000abc-01"
        );
        let fields: &dyn Fields = &sample.request;
        assert_eq!(fields.all("tracestate").collect::<Vec<_>>(), [&b"a=1,b@c=2"[..], b"d=3"]);
        assert_eq!(sample.value::<Sampled>(), Some(&true));
        assert_eq!(
            Trace::show(sample.value::<Trace>().unwrap()),
            Some(Shown::Bytes(&PARENT.as_bytes()[3..35]))
        );
        assert_eq!(sample.value::<Span>(), Some(b"0000000000000abc"));
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        let later = PARENT.replacen("00", "cc", 1);
        assert!(
            field(&run("always", &[("traceparent", &later)]), "traceparent").unwrap().starts_with("00-4bf")
        );
        let longer = format!("{later}-what-the-future-brings");
        assert!(
            field(&run("always", &[("traceparent", &longer)]), "traceparent").unwrap().starts_with("00-4bf")
        );
        let flags = PARENT.replace("-01", "-ff");
        assert!(field(&run("always", &[("traceparent", &flags)]), "traceparent").unwrap().ends_with("-03"));
    }

    #[test]
    fn malformed_ones_are_replaced() {
        let longer = format!("{PARENT}-00");
        let endless = format!("cc{}-{}", &PARENT[2..], "0".repeat(PARENT_LIMIT));
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-010",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
            "00.4bf92f3577b34da6a3ce929d0e0e4736.00f067aa0ba902b7.01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.x",
            &longer,
            &endless,
        ] {
            let sample = run("always", &[("traceparent", bad), ("tracestate", "a=1")]);
            assert_eq!(field(&sample, "traceparent").unwrap(), NEW, "{bad}");
            assert_eq!(field(&sample, "tracestate"), None);
        }
        let twice = run("always", &[("traceparent", PARENT), ("traceparent", PARENT)]);
        let fields: &dyn Fields = &twice.request;
        assert_eq!(fields.all("traceparent").collect::<Vec<_>>(), [NEW.as_bytes()]);
    }

    #[test]
    fn a_malformed_state_goes_and_the_trace_stays() {
        let many = (0..33).map(|number| format!("k{number}=1")).collect::<Vec<_>>().join(",");
        let long = format!("a={}", "v".repeat(257));
        for bad in ["a", "A=1", "a=", "a=1,a=2", "=1", "a=b=c", "a@b@c=1", "a=\u{e4}", &many, &long] {
            let sample = run("always", &[("traceparent", PARENT), ("tracestate", bad)]);
            assert_eq!(field(&sample, "tracestate"), None, "{bad}");
            assert!(field(&sample, "traceparent").unwrap().starts_with("00-4bf"), "{bad}");
        }
        let fine = (0..32).map(|number| format!("{number}k=1")).collect::<Vec<_>>().join(" , ,");
        let sample = run("always", &[("traceparent", PARENT), ("tracestate", &fine)]);
        assert_eq!(field(&sample, "tracestate").unwrap(), fine);
    }

    #[test]
    fn only_the_traces_of_the_trusted_go_on() {
        assert_eq!(field(&run("trusted", &[("traceparent", PARENT)]), "traceparent").unwrap(), NEW);
        assert_eq!(field(&run("never", &[("traceparent", PARENT)]), "traceparent").unwrap(), NEW);
        let settings = settings(&[node("trace")]).unwrap();
        let mut sample = Sample::get("/").field("traceparent", PARENT);
        sample.put::<PeerTrusted>(true);
        sample.run(&Continue, &settings);
        assert!(field(&sample, "traceparent").unwrap().starts_with("00-4bf"));
    }

    #[test]
    fn a_share_of_the_new_ones_is_recorded() {
        let sampled = |sample: &str, random: u64| {
            let settings = settings(&[node("trace").prop_literal("sample", sample)]).unwrap();
            let mut request = Sample::get("/");
            request.random = random;
            request.run(&Continue, &settings);
            *request.value::<Sampled>().unwrap()
        };
        assert!(!sampled("0%", 0));
        assert!(sampled("100%", u64::MAX));
        assert!(sampled("50%", u64::MAX / 2) && !sampled("50%", u64::MAX / 2 + 1));
        assert!(sampled("0.000001%", 0) && !sampled("0.000001%", u64::MAX / 1_000_000));
        for bad in ["", "%", "1", "101%", "100.000001%", "-1%", "1.0000001%", "1e1%", "0.%"] {
            let problem =
                settings::<TraceSettings>(&[node("trace").prop_literal("sample", bad)]).unwrap_err();
            assert_eq!(problem.message, "expected a share from \"0%\" to \"100%\"", "{bad}");
        }
    }
}
