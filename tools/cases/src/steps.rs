//! The steps of a script: one line each, with the `|` lines below it.

use std::time::Duration;

use crate::case::{
    Action, CloseKind, Expect, Extent, FrameOut, Goodbye, ProxyAction, Receive, Request, Respond, RunOutput,
    Send, StartPart, Wanted,
};
use crate::dns::Record;
use crate::parse::read_connect;
use crate::text::Text;
use crate::words::{Words, duration};

/// Error codes of HTTP/2 (RFC 9113 section 7), by number.
pub const ERROR_CODES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

/// Parameters of SETTINGS (RFC 9113 section 6.5.2, RFC 8441), by name.
const SETTINGS: [(&str, u16); 8] = [
    ("HEADER_TABLE_SIZE", 1),
    ("ENABLE_PUSH", 2),
    ("MAX_CONCURRENT_STREAMS", 3),
    ("INITIAL_WINDOW_SIZE", 4),
    ("MAX_FRAME_SIZE", 5),
    ("MAX_HEADER_LIST_SIZE", 6),
    ("ENABLE_CONNECT_PROTOCOL", 8),
    ("NO_RFC7540_PRIORITIES", 9),
];

/// Reads one step.
///
/// # Errors
///
/// A sentence about the part that cannot be parsed.
pub(crate) fn read(words: &mut Words) -> Result<Action, String> {
    let verb = words.word("a step")?;
    Ok(match verb.as_str() {
        "accept" => Action::Accept(words.time()?),
        "connect" => Action::Connect(connect_words(words)?),
        "refused" => Action::Refused(connect_words(words)?),
        "send" => Action::Send(send(words)?),
        "request" => Action::Request(request(words)?),
        "respond" => Action::Respond(respond(words)?),
        "receive" => Action::Receive(receive(words)?),
        "expect" => Action::Expect(expect(words)?),
        "closed" => {
            let kind = match words.next_if(|_| true).as_deref() {
                None => CloseKind::Any,
                Some("cleanly") => CloseKind::Cleanly,
                Some("reset") => CloseKind::Reset,
                Some(word) => return Err(format!("closed `{word}`: cleanly or reset")),
            };
            Action::Closed(words.time()?, kind)
        }
        "quiet" => Action::Quiet(duration(&words.word("a duration")?)?),
        "close" => Action::Close,
        "ignore" => Action::Ignore,
        "shutdown" => match words.next_if(|_| true).as_deref() {
            None => Action::Shutdown(Goodbye::Said),
            Some("silently") => Action::Shutdown(Goodbye::Unsaid),
            Some(word) => return Err(format!("shutdown `{word}`: silently, or nothing")),
        },
        "reset" => Action::Reset,
        "leave" => Action::Leave,
        "pause" => Action::Pause(duration(&words.word("a duration")?)?),
        "mark" => Action::Mark(words.word("a name")?),
        "await" => Action::Await(words.word("a name")?),
        "repeat" => Action::Repeat(words.number("a number")?, Vec::new()),
        "eventually" => Action::Eventually(words.time()?, Vec::new()),
        "proxy" => Action::Proxy(proxy(words)?),
        "dns" => dns(words)?,
        _ => Action::Frames(words.number_option("times")?.unwrap_or(1), frames(&verb, words)?),
    })
}

/// `None` means: as the block says.
fn connect_words(words: &mut Words) -> Result<Option<Box<crate::case::Connect>>, String> {
    let again = !words.flag("with");
    let connect = read_connect(words, None)?;
    Ok(if again { None } else { Some(Box::new(connect)) })
}

fn send(words: &mut Words) -> Result<Send, String> {
    let drip: Option<Duration> = words.duration_option("drip")?;
    let piece = words.number_option("piece")?;
    let times = words.number_option("times")?.unwrap_or(1);
    let stalls = words.option("stalls").is_some_and(|value| value == "yes");
    Ok(Send { text: words.text("the text to send")?, times, drip, piece, stalls })
}

fn request(words: &mut Words) -> Result<Request, String> {
    let host = words.text_option("host")?;
    let stream = words.number_option("stream")?;
    let method = Text::parse(&words.word("the method")?)?;
    let target = Text::parse(&words.word("the target")?)?;
    let open = words.flag("open");
    let fields = words.fields()?;
    Ok(Request { method, target, fields, body: words.text_if_any()?, open, host, stream })
}

fn respond(words: &mut Words) -> Result<Respond, String> {
    let stream = words.number_option("stream")?;
    let times = words.number_option("times")?.unwrap_or(1);
    let status = words.number("a status")?;
    let open = words.flag("open");
    let fields = words.fields()?;
    Ok(Respond { status, fields, body: words.text_if_any()?, times, open, stream })
}

fn receive(words: &mut Words) -> Result<Receive, String> {
    let time = words.time()?;
    let stream = words.number_option("stream")?;
    let kinds = [
        "body",
        "data",
        "bytes",
        "until",
        "rst",
        "goaway",
        "refusal",
        "pong",
        "settings",
        "settings-ack",
        "head",
        "cut",
    ];
    let what = match words.next_if(|word| kinds.contains(&word)).as_deref() {
        Some("body") => Wanted::Body,
        Some("data") => Wanted::Data(words.text("the text")?),
        Some("bytes") => Wanted::Bytes(words.text("the bytes")?),
        Some("until") => Wanted::Until(words.text("the text")?),
        Some("rst") => Wanted::Rst(codes(words)?),
        Some("goaway") => Wanted::Goaway(codes(words)?),
        Some("refusal") => Wanted::Refusal,
        Some("pong") => Wanted::Pong,
        Some("settings") => Wanted::Settings,
        Some("settings-ack") => Wanted::SettingsAck,
        Some("head") => message(words, Extent::Head)?,
        Some("cut") => message(words, Extent::Cut)?,
        _ => message(words, Extent::Whole)?,
    };
    Ok(Receive { what, time, stream })
}

fn message(words: &mut Words, extent: Extent) -> Result<Wanted, String> {
    let mut start = words.rest()?;
    let no_body = start.last() == Some(&Text::plain(b"no-body"));
    if no_body {
        start.pop();
    }
    Ok(Wanted::Message { start, extent, no_body })
}

fn codes(words: &mut Words) -> Result<Vec<u32>, String> {
    std::iter::from_fn(|| words.next_if(|_| true)).map(|word| code(&word)).collect()
}

fn code(word: &str) -> Result<u32, String> {
    let place = ERROR_CODES.iter().position(|name| *name == word);
    let number = place.and_then(|place| u32::try_from(place).ok()).or_else(|| word.parse().ok());
    number.ok_or_else(|| format!("`{word}` is no error code of HTTP/2"))
}

fn setting(word: &str) -> Result<u16, String> {
    let known = SETTINGS.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
    known.or_else(|| word.parse().ok()).ok_or_else(|| format!("`{word}` is no parameter of SETTINGS"))
}

fn expect(words: &mut Words) -> Result<Expect, String> {
    let what = words.word("what to expect")?;
    Ok(match what.as_str() {
        "status" => {
            let mut statuses = vec![words.number("a status")?];
            while words.flag("or") {
                statuses.push(words.number("a status")?);
            }
            Expect::Status(statuses)
        }
        "method" => Expect::Start(StartPart::Method, words.text("the method")?),
        "target" => Expect::Start(StartPart::Target, words.text("the target")?),
        "version" => Expect::Start(StartPart::Version, words.text("the version")?),
        "reason" => Expect::Start(StartPart::Reason, words.text("the reason")?),
        "field" => {
            let name = words.text("the field's name")?;
            if words.flag("contains") {
                return Ok(Expect::FieldContains(name, words.text("the text")?));
            }
            match words.rest()? {
                values if values.is_empty() => Expect::FieldPresent(name),
                values => Expect::Field(name, values),
            }
        }
        "trailer" => Expect::Trailer(words.text("the field's name")?, words.rest()?),
        "body" if words.flag("size") => Expect::BodySize(words.number("a size")?),
        "body" if words.flag("contains") => Expect::BodyContains(words.text("the text")?),
        "body" => Expect::Body(words.text("the body")?),
        "framing" => Expect::Framing(words.text("length, chunked, close or none")?),
        "wire" => Expect::Wire(words.text("the text")?, true),
        "setting" => Expect::Setting(setting(&words.word("the name")?)?, words.number("a value")?),
        "alpn" => Expect::Alpn(words.text("the protocol")?),
        "certificate" => Expect::Certificate(words.word("the name")?),
        "no" => match words.word("field, trailer or wire")?.as_str() {
            "field" => Expect::NoField(words.text("the field's name")?),
            "trailer" => Expect::NoTrailer(words.text("the field's name")?),
            "wire" => Expect::Wire(words.text("the text")?, false),
            word => return Err(format!("expect no `{word}`: field, trailer or wire")),
        },
        _ => return Err(format!("nothing to expect about `{what}`")),
    })
}

/// `dns [at=NAME] asked HOST =|>=|<= N`, or a record.
fn dns(words: &mut Words) -> Result<Action, String> {
    let at = words.option("at").unwrap_or_else(|| "dns".to_owned());
    if !words.flag("asked") {
        return Ok(Action::Records(at, Record::read(words)?));
    }
    let time = words.time()?;
    let name = words.word("a name")?;
    let compare = words.word("=, >= or <=")?;
    if !["=", ">=", "<="].contains(&compare.as_str()) {
        return Err(format!("`{compare}` is not =, >= or <="));
    }
    Ok(Action::Asked { at, name, compare, count: words.number("a number")?, time })
}

fn proxy(words: &mut Words) -> Result<ProxyAction, String> {
    let verb = words.word("what the proxy has to do")?;
    Ok(match verb.as_str() {
        "signal" => ProxyAction::Signal(words.word("a signal")?),
        "config" => ProxyAction::Config(words.file()?),
        "file" => ProxyAction::File(words.text("a path")?, words.file()?),
        "move" => ProxyAction::Move(words.text("a path")?, words.text("another path")?),
        "copy" => ProxyAction::Copy(words.text("a path")?, words.text("another path")?),
        "truncate" => ProxyAction::Truncate(words.text("a path")?, words.number("a size")?),
        "run" => {
            let exit = words.number_option("exit")?.unwrap_or(0);
            let output =
                RunOutput { stdout: words.text_option("stdout")?, stderr: words.text_option("stderr")? };
            ProxyAction::Run(words.rest()?, exit, output)
        }
        "stderr" => ProxyAction::Stderr(words.text("the text")?, words.time()?),
        "log" => ProxyAction::Log(words.text("a path")?, words.text("the text")?, words.time()?),
        "no-log" => ProxyAction::NoLog(words.text("a path")?, words.text("the text")?),
        "exits" => ProxyAction::Exits(words.number("an exit code")?, words.time()?),
        "metric" => {
            let time = words.time()?;
            let series = words.text("the series")?;
            let compare = words.word("=, >= or <=")?;
            if !["=", ">=", "<="].contains(&compare.as_str()) {
                return Err(format!("`{compare}` is not =, >= or <="));
            }
            ProxyAction::Metric { series, compare, value: words.number("a number")?, time }
        }
        "memory" => {
            let word = words.word("a size")?;
            let size = word.strip_suffix("MiB").and_then(|number| number.parse::<u64>().ok());
            ProxyAction::Memory(size.ok_or_else(|| format!("`{word}` is not a size such as 100MiB"))? << 20)
        }
        "alive" => ProxyAction::Alive,
        "restart" => ProxyAction::Restart { kill: words.flag("kill") },
        _ => return Err(format!("the proxy cannot `{verb}`")),
    })
}

fn frames(verb: &str, words: &mut Words) -> Result<FrameOut, String> {
    let stream = words.number_option("stream")?;
    Ok(match verb {
        "headers" | "continuation" => {
            let end = words.flag("end");
            let open_block = words.flag("open-block");
            let continuation = verb == "continuation";
            FrameOut::Headers { fields: words.fields()?, stream, end, open_block, continuation }
        }
        "data" => {
            let stalls = words.option("stalls").is_some_and(|value| value == "yes");
            let (end, force) = (words.flag("end"), words.flag("force"));
            let text = words.text_if_any()?.unwrap_or_default();
            FrameOut::Data { text, stream, end, force, stalls }
        }
        "rst" => FrameOut::Rst(stream, code(&words.word("an error code")?)?),
        "set" => {
            let mut settings = Vec::new();
            while let Some(name) = words.next_if(|_| true) {
                settings.push((setting(&name)?, words.number("a value")?));
            }
            FrameOut::Settings(settings)
        }
        "ping" => FrameOut::Ping,
        "window" => FrameOut::Window(stream.unwrap_or(0), words.number("an increment")?),
        "goaway" => FrameOut::Goaway(code(&words.word("an error code")?)?),
        "preface" => FrameOut::Preface,
        "frame" => FrameOut::Raw(
            words.number("a frame type")?,
            words.number("flags")?,
            stream,
            words.text_if_any()?.unwrap_or_default(),
        ),
        _ => return Err(format!("no step `{verb}`")),
    })
}
