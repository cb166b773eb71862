//! The step `expect`: looks at the message read last, or at the connection.

use crate::case::{Expect, StartPart};
use crate::http1::{Message, Peer, find, values};
use crate::script::Script;
use crate::text::show;
use crate::tls;

/// Runs the step.
pub(crate) fn check(script: &mut Script<'_>, expect: &Expect) -> Result<(), String> {
    match expect {
        Expect::Setting(name, wanted) => {
            let settings = script.http2.as_ref().and_then(|h2| h2.settings.as_ref());
            let got = settings.ok_or("no SETTINGS came")?.get(name);
            compare(got == Some(wanted), || format!("the setting is {got:?}"))
        }
        Expect::Alpn(wanted) => {
            let wanted = script.string(wanted)?;
            let got = script.conn()?.alpn.clone().unwrap_or_else(|| "none".to_owned());
            compare(got == wanted, || format!("the protocol is {got}"))
        }
        Expect::Certificate(name) => {
            let wanted = if name == "none" {
                None
            } else {
                Some(tls::read_certificate(&script.shared.folder, name)?.to_vec())
            };
            let got = script.conn()?.certificate.clone();
            compare(got == wanted, || "another certificate (or none) was shown".to_owned())
        }
        about_message => {
            let message = script.message.as_ref().ok_or("no message was read")?;
            check_message(script, message, about_message)
                .map_err(|error| format!("{error}\nthe message: {}", show(&message.wire)))
        }
    }
}

fn check_message(script: &Script<'_>, message: &Message, expect: &Expect) -> Result<(), String> {
    match expect {
        Expect::Status(wanted) => {
            compare(wanted.contains(&message.status()), || format!("the status is {}", message.status()))
        }
        Expect::Start(part, wanted) => {
            let got = start_word(script.peer(), message, *part);
            let wanted = script.string(wanted)?;
            compare(got == wanted, || format!("it is `{got}`"))
        }
        Expect::Field(name, wanted) => compare_values(script, &message.fields, name, wanted),
        Expect::Trailer(name, wanted) => compare_values(script, &message.trailers, name, wanted),
        Expect::FieldPresent(name) => {
            let name = script.string(name)?;
            compare(message.values(&name).next().is_some(), || format!("there is no field {name}"))
        }
        Expect::FieldContains(name, wanted) => {
            let (name, wanted) = (script.string(name)?, script.bytes(wanted)?);
            compare(message.values(&name).any(|value| find(value, &wanted).is_some()), || {
                format!("no field {name} holds {}", show(&wanted))
            })
        }
        Expect::NoField(name) => absent(&script.string(name)?, &message.fields),
        Expect::NoTrailer(name) => absent(&script.string(name)?, &message.trailers),
        Expect::Body(wanted) => {
            let wanted = script.bytes(wanted)?;
            compare(message.body == wanted, || {
                format!("the body is {}, not {}", show(&message.body), show(&wanted))
            })
        }
        Expect::BodyContains(wanted) => {
            let wanted = script.bytes(wanted)?;
            compare(find(&message.body, &wanted).is_some(), || format!("the body is {}", show(&message.body)))
        }
        Expect::BodySize(wanted) => {
            compare(message.body.len() == *wanted, || format!("the body has {} bytes", message.body.len()))
        }
        Expect::Framing(wanted) => {
            let wanted = script.string(wanted)?;
            compare(message.framing == wanted, || format!("the body is delimited by: {}", message.framing))
        }
        Expect::Wire(text, present) => {
            let text = script.bytes(text)?;
            let found = find(&message.wire, &text).is_some();
            compare(found == *present, || if found { "it is there" } else { "it is not there" }.to_owned())
        }
        Expect::Setting(..) | Expect::Alpn(_) | Expect::Certificate(_) => Ok(()),
    }
}

fn start_word(peer: Peer, message: &Message, part: StartPart) -> &str {
    let [first, second, third] = &message.start;
    match (part, peer) {
        (StartPart::Version, Peer::Client) | (StartPart::Reason, _) => third,
        (StartPart::Method | StartPart::Version, _) => first,
        (StartPart::Target, _) => second,
    }
}

fn compare(fits: bool, told: impl FnOnce() -> String) -> Result<(), String> {
    if fits { Ok(()) } else { Err(told()) }
}

fn compare_values(
    script: &Script<'_>,
    fields: &[(String, Vec<u8>)],
    name: &crate::text::Text,
    wanted: &[crate::text::Text],
) -> Result<(), String> {
    let name = script.string(name)?;
    let wanted = wanted.iter().map(|value| script.bytes(value)).collect::<Result<Vec<_>, _>>()?;
    let got: Vec<&[u8]> = values(fields, &name).collect();
    compare(got == wanted, || {
        let got: Vec<String> = got.iter().map(|value| show(value)).collect();
        format!("{name} is there {} times: {}", got.len(), got.join(", "))
    })
}

fn absent(name: &str, fields: &[(String, Vec<u8>)]) -> Result<(), String> {
    match values(fields, name).next() {
        None => Ok(()),
        Some(value) => Err(format!("{name} is there: {}", show(value))),
    }
}
