//! Gives each request an id, by which its lines can be found in the logs of all systems.
//!
//! ```kdl
//! request-id
//! request-id header="x-correlation-id" response-header=#false keep="always"
//! ```
//!
//! An id from a trusted proxy is kept (see `trusted-proxies`). Any other request gets a new id, a UUID of version 7
//! (RFC 9562): the time, then 74 random bits, so that ids sort by time. The id is sent to the origin and to the
//! client. It is also in the value `request.id`, which expressions can read, and in the access log.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::ControlFlow;

use foregate_module::settings::{Prop, together};
use foregate_module::{
    Argument, Context, EditRequest, EditResponse, Edits, Emit, Field, Filter, FromNode, Key, Kind, Never,
    Node, Note, Notes, Problem, Random, Read, RequestFields, Shown, Step, Text, Time, Value, phase,
};

use crate::client_address::PeerTrusted;

/// The longest id that is kept, bytes.
const ID_LIMIT: usize = 128;

const KEY: Key = Key {
    usage: "header=NAME response-header=NAME|#false keep=\"trusted\"|\"always\"|\"never\"",
    ..Key::flag(
        "request-id",
        "#false",
        "request-id header=\"x-correlation-id\"",
        "Gives every request an id, for the origin, the client, expressions and logs.",
    )
}
.props(&[
    Prop {
        name: "header",
        usage: "NAME",
        required: false,
        default: "\"x-request-id\"",
        about: "The request field that holds the id.",
    },
    Prop {
        name: "response-header",
        usage: "NAME|#false",
        required: false,
        default: "the same",
        about: "The response field that carries the id to the client; `#false` for none.",
    },
    Prop {
        name: "keep",
        usage: "\"trusted\"|\"always\"|\"never\"",
        required: false,
        default: "\"trusted\"",
        about: "The requests that keep the id in this field instead of getting a new one: those from `trusted-proxies`, all, or none.",
    },
]);

/// The request's id.
#[derive(Debug)]
pub enum RequestId {}

impl Value for RequestId {
    type Data = Text;
    const NAME: &'static str = "request.id";
    const ABOUT: &'static str = "The request's id.";
    const SHOWS: Option<Kind> = Some(Kind::Bytes);
    fn show(id: &Text) -> Option<Shown<'_>> {
        Some(Shown::Bytes(id))
    }
}

/// The peers whose ids are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Ids of trusted proxies.
    Trusted,
    /// Ids of all peers.
    Always,
    /// No peer's ids.
    Never,
}

impl Keep {
    /// Reads the property `keep`.
    pub(crate) fn of(node: &Node) -> Result<Self, Problem> {
        const WORDS: [(&str, Keep); 3] =
            [("trusted", Keep::Trusted), ("always", Keep::Always), ("never", Keep::Never)];
        node.prop("keep").map_or(Ok(Self::Trusted), |keep| keep.choice(&WORDS))
    }

    /// Returns true if this peer's id is kept.
    pub(crate) fn holds(self, trusted: Option<&bool>) -> bool {
        match self {
            Self::Trusted => trusted == Some(&true),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// The settings.
#[derive(Debug)]
pub struct RequestIdSettings {
    on: bool,
    header: String,
    response_header: Option<String>,
    keep: Keep,
}

impl FromNode for RequestIdSettings {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        const HEADER: &str = "x-request-id";
        let [node] = nodes else {
            return Ok(Self { on: false, header: HEADER.into(), response_header: None, keep: Keep::Trusted });
        };
        let header = node
            .prop("header")
            .map_or(Ok(HEADER.into()), |name| crate::told_in(name).and_then(|_| field_name(name)));
        let same = header.as_ref().ok().cloned();
        let response_header = match node.prop("response-header").map(|name| (name, name.flag())) {
            None | Some((_, Ok(true))) => Ok(same),
            Some((_, Ok(false))) => Ok(None),
            Some((name, Err(_))) => field_name(name).map(Some),
        };
        let on = node.args().first().map_or(Ok(true), Argument::flag);
        let (on, header, response_header, keep) = together((on, header, response_header, Keep::of(node)))?;
        Ok(Self { on, header, response_header, keep })
    }
}

/// The name of a field that a module may set.
pub(crate) fn field_name(name: &Argument) -> Result<String, Problem> {
    let text = name.text()?;
    Field::new(text.to_string(), "").map_err(|error| name.wrong(error.to_string()))?;
    Ok(text.into())
}

/// Returns true if bytes are acceptable as an id: short, and without characters that are special in a log, a shell or a
/// page.
fn is_id(value: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:=+/@".contains(byte);
    (1..=ID_LIMIT).contains(&value.len()) && value.iter().all(plain)
}

/// Writes a number in lower case hexadecimal digits, as many as `into` has room for.
pub(crate) fn hex(number: u64, into: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (place, digit) in into.iter_mut().rev().enumerate() {
        let nibble = number.checked_shr(4 * place as u32).unwrap_or(0) & 15;
        *digit = DIGITS[nibble as usize];
    }
}

/// A UUID of version 7 (RFC 9562, section 5.7).
fn uuid(unix_ms: u64, random: [u64; 2]) -> [u8; 36] {
    let mut text = [b'-'; 36];
    hex(unix_ms >> 16, &mut text[..8]);
    hex(unix_ms, &mut text[9..13]);
    hex(0x7000 | (random[0] & 0xfff), &mut text[14..18]);
    hex(0x8000 | (random[0] >> 12 & 0x3fff), &mut text[19..23]);
    hex(random[1], &mut text[24..]);
    text
}

/// Keeps or makes the id.
#[derive(Debug, Default)]
pub struct Identify;

impl Step for Identify {
    type At = phase::RequestEarly;
    type Settings = RequestIdSettings;
    type In<'r> = (RequestFields<'r>, Read<'r, PeerTrusted>, Time, Random, Random);
    type Out = (Emit<RequestId>, EditRequest, Notes);
    type Stop = Never;
    const NAME: &'static str = "request-id";
    const ABOUT: &'static str = "Keeps a trusted proxy's request id, or makes one.";
    const FILTERS: &'static [Filter] = &[];

    fn guards(_: &RequestIdSettings) -> bool {
        false
    }

    fn run(
        &self,
        settings: &RequestIdSettings,
        (RequestFields(fields), Read(trusted), Time(now), Random(first), Random(second)): Self::In<'_>,
    ) -> ControlFlow<Never, Self::Out> {
        if !settings.on {
            return ControlFlow::Continue((Emit(None), EditRequest(Edits::new()), Notes(Vec::new())));
        }
        let noted = |id: &[u8], edits| {
            let id = Text::Shared(id.into());
            let note = Note { name: "request-id".into(), value: id.clone() };
            ControlFlow::Continue((Emit(Some(id)), EditRequest(edits), Notes(Vec::from([note]))))
        };
        if settings.keep.holds(trusted) {
            let mut sent = fields.all(&settings.header);
            if let (Some(id), None) = (sent.next(), sent.next())
                && is_id(id)
            {
                // Set the field again: then it reaches the origin, even if the client's `Connection` names it.
                return noted(id, Edits::new().set(settings.header.clone(), id.to_vec()));
            }
        }
        let id = uuid(now.unix_ms, [first, second]);
        noted(&id, Edits::new().set(settings.header.clone(), id.to_vec()))
    }
}

/// Adds the id to the response.
#[derive(Debug, Default)]
pub struct Tell;

impl Step for Tell {
    type At = phase::ResponseHeaders;
    type Settings = RequestIdSettings;
    type In<'r> = (Read<'r, RequestId>,);
    type Out = (EditResponse,);
    type Stop = Never;
    const NAME: &'static str = "request-id-response";
    const ABOUT: &'static str = "Tells the client the request's id.";
    const FILTERS: &'static [Filter] = &[];

    fn run(
        &self,
        settings: &RequestIdSettings,
        (Read(id),): (Read<'_, RequestId>,),
    ) -> ControlFlow<Never, Self::Out> {
        let edits = match (&settings.response_header, id) {
            (Some(header), Some(id)) => Edits::new().set(header.clone(), id.clone()),
            _ => Edits::new(),
        };
        ControlFlow::Continue((EditResponse(edits),))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foregate_module::Fields;
    use foregate_module::testing::{Sample, node, settings};

    fn read(node: Node) -> RequestIdSettings {
        settings(&[node]).unwrap()
    }

    fn sent(sample: &Sample, name: &str) -> Vec<String> {
        let fields: &dyn Fields = &sample.request;
        fields.all(name).map(|value| String::from_utf8(value.to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_new_id_is_a_uuid_of_the_time() {
        assert_eq!(
            &uuid(0x0123_4567_89ab, [u64::MAX, 0x1122_3344_5566_7788]),
            b"01234567-89ab-7fff-bfff-334455667788"
        );
        assert_eq!(&uuid(0, [0, 0]), b"00000000-0000-7000-8000-000000000000");
        let mut sample = Sample::get("/").response(200);
        let settings = read(node("request-id"));
        sample.run(&Identify, &settings);
        let id = sample.value::<RequestId>().unwrap().clone();
        assert_eq!(sent(&sample, "x-request-id"), [String::from_utf8(id.to_vec()).unwrap()]);
        sample.run(&Tell, &settings);
        assert_eq!(sample.response.get("x-request-id"), Some(&*id));
        assert_eq!(sample.state.notes, [("request-id".into(), id.clone())]);
        assert_eq!(RequestId::show(&id), Some(Shown::Bytes(&id)));
    }

    #[test]
    fn ids_are_kept_from_whom_the_settings_trust() {
        let id_of = |keep: &str, trusted: Option<bool>, ids: &[&str]| {
            let mut sample = ids.iter().fold(Sample::get("/"), |sample, id| sample.field("X-Request-ID", id));
            if let Some(trusted) = trusted {
                sample.put::<PeerTrusted>(trusted);
            }
            sample.run(&Identify, &read(node("request-id").prop_literal("keep", keep)));
            let sent = sent(&sample, "x-request-id");
            assert_eq!(sent.len(), 1);
            assert_eq!(sample.value::<RequestId>().unwrap().to_vec(), sent[0].as_bytes());
            assert_eq!(sample.state.notes, [("request-id".into(), sent[0].clone().into())]);
            sent[0].clone()
        };
        assert_eq!(id_of("trusted", Some(true), &["abc"]), "abc");
        assert_ne!(id_of("trusted", Some(false), &["abc"]), "abc");
        assert_ne!(id_of("trusted", None, &["abc"]), "abc");
        assert_eq!(id_of("always", None, &["abc"]), "abc");
        assert_ne!(id_of("never", Some(true), &["abc"]), "abc");
        let (long, longest) = ("a".repeat(ID_LIMIT + 1), "a".repeat(ID_LIMIT));
        assert_eq!(id_of("always", None, &[&longest]), longest);
        for bad in [&["a", "b"][..], &[""], &["a b"], &["a\"b"], &["a<b"], &["a\u{e4}"], &[&long]] {
            assert!(!bad.contains(&&*id_of("always", None, bad)), "{bad:?}");
        }
    }

    #[test]
    fn names_can_be_chosen() {
        let settings =
            read(node("request-id").prop_literal("header", "X-Id").prop_literal("response-header", "X-Its"));
        let mut sample = Sample::get("/").response(200);
        sample.run(&Identify, &settings);
        sample.run(&Tell, &settings);
        assert_eq!(sample.request.get("x-id"), sample.response.get("x-its"));
        assert!(sample.request.get("x-id").is_some());
        let quiet = read(node("request-id").prop_literal("response-header", false));
        let mut sample = Sample::get("/").response(200);
        sample.run(&Identify, &quiet);
        sample.run(&Tell, &quiet);
        assert_eq!(sample.response.count(), 0);
    }

    #[test]
    fn mistakes_are_told() {
        let told = |node: Node| settings::<RequestIdSettings>(&[node]).unwrap_err().message;
        assert_eq!(told(node("request-id").prop_literal("header", "a b")), "this is not the name of a field");
        assert_eq!(
            told(node("request-id").prop_literal("keep", "maybe")),
            "expected \"trusted\" or \"always\" or \"never\""
        );
        assert_eq!(told(node("request-id").arg_literal("x")), "expected #true or #false");
        assert_eq!(
            told(node("request-id").prop_literal("response-header", "connection")),
            "this field belongs to the connection or the framing, which no module changes"
        );
    }
}
