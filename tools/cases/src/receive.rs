//! The step `receive`: waits for a message, a part of one, bytes or frames.

use std::time::Instant;

use crate::case::{Extent, Receive, Wanted};
use crate::http1::{Message, Peer, find};
use crate::http2::{Http2, Stream};
use crate::script::{Script, check_not_early};
use crate::steps::ERROR_CODES;
use crate::text::show;
use crate::wire::Got;

/// Runs the step.
pub(crate) fn run(script: &mut Script<'_>, wanted: &Receive) -> Result<(), String> {
    let start = Instant::now();
    let deadline = start + wanted.time.within;
    if let (Some(h2), Some(stream)) = (&mut script.http2, wanted.stream) {
        h2.current = stream;
    }
    match &wanted.what {
        Wanted::Message { start: words, extent, no_body } => {
            let words = words.iter().map(|word| script.string(word)).collect::<Result<Vec<_>, _>>()?;
            let before = script.message.take();
            let result = if script.http2.is_some() {
                stream_message(script, *extent, deadline, wanted.stream)
            } else {
                message(script, *extent, *no_body, deadline)
            };
            result.inspect_err(|_| {
                if script.message.is_none() {
                    script.message = before;
                }
            })?;
            check_start(script, &words)?;
            if *extent == Extent::Cut && script.message.as_ref().is_some_and(|message| message.complete) {
                return Err("the message is complete, not cut".to_owned());
            }
        }
        Wanted::Body => body(script, deadline, |_, complete| complete)?,
        Wanted::Data(text) => data(script, &script.bytes(text)?, deadline)?,
        Wanted::Bytes(text) => bytes(script, &script.bytes(text)?, deadline)?,
        Wanted::Until(text) => until(script, &script.bytes(text)?, deadline)?,
        frames => receive_frames(script, frames, deadline)?,
    }
    check_not_early(start, wanted.time)
}

fn message(script: &mut Script<'_>, extent: Extent, no_body: bool, deadline: Instant) -> Result<(), String> {
    let peer = script.peer();
    let conn = script.conn.as_mut().ok_or("there is no connection")?;
    let mut message = loop {
        if let Some(message) = Message::take_head(&mut conn.inbox, peer, no_body)? {
            break message;
        }
        match conn.fill(deadline) {
            Got::Bytes => {}
            Got::End => {
                return Err(format!("no message: the connection ended after {}", show(&conn.inbox)));
            }
            Got::Timeout => return Err(format!("no message in time, only {}", show(&conn.inbox))),
        }
    };
    script.shared.note(&script.name, &format!("  < {}", show(&message.wire)));
    let result = read_body(conn, &mut message, deadline, |_, complete| complete || extent == Extent::Head);
    let complete = message.complete;
    script.message = Some(message);
    match (result, extent) {
        (Err(ended), Extent::Cut) if ended.starts_with("the connection ended") && !complete => Ok(()),
        (result, _) => result,
    }
}

fn read_body(
    conn: &mut crate::wire::Conn,
    message: &mut Message,
    deadline: Instant,
    enough: impl Fn(usize, bool) -> bool,
) -> Result<(), String> {
    loop {
        message.take_body(&mut conn.inbox, conn.end.is_some())?;
        if enough(message.body.len(), message.complete) {
            return Ok(());
        }
        match conn.fill(deadline) {
            Got::Bytes => {}
            Got::End if conn.inbox.is_empty() => {
                message.take_body(&mut conn.inbox, true)?;
                if enough(message.body.len(), message.complete) {
                    return Ok(());
                }
                return Err(so_far(message, "the connection ended"));
            }
            Got::End => return Err(so_far(message, "the connection ended")),
            Got::Timeout => return Err(so_far(message, "nothing more came in time")),
        }
    }
}

fn so_far(message: &Message, what: &str) -> String {
    format!("{what} after {} bytes of the body: {}", message.body.len(), show(&message.body))
}

/// Reads more of the body of the message read last, until its size and completeness are `enough`.
fn body(
    script: &mut Script<'_>,
    deadline: Instant,
    enough: impl Fn(usize, bool) -> bool,
) -> Result<(), String> {
    let message = script.message.as_mut().ok_or("no message was read")?;
    let conn = script.conn.as_mut().ok_or("there is no connection")?;
    let Some(h2) = &mut script.http2 else {
        return read_body(conn, message, deadline, enough);
    };
    let number = h2.current;
    let got = h2.pump(conn, deadline, |h2| {
        h2.streams.get(&number).is_some_and(|stream| {
            enough(stream.data.len(), stream.ended) || stream.reset.is_some() || stream.ended
        })
    })?;
    if let Some(stream) = h2.streams.get(&number) {
        fill(message, stream);
    }
    if enough(message.body.len(), message.complete) {
        return Ok(());
    }
    Err(format!("{got:?} after {} bytes of the body: {}", message.body.len(), show(&message.body)))
}

fn fill(message: &mut Message, stream: &Stream) {
    message.body.clone_from(&stream.data);
    message.trailers.clone_from(&stream.trailers);
    message.complete = stream.ended && stream.reset.is_none_or(|code| code == 0);
}

fn data(script: &mut Script<'_>, wanted: &[u8], deadline: Instant) -> Result<(), String> {
    let taken = script.message.as_ref().map_or(0, |message| message.taken);
    body(script, deadline, |size, _| size >= taken + wanted.len())?;
    let message = script.message.as_mut().ok_or("no message was read")?;
    let got = &message.body[message.taken..message.taken + wanted.len()];
    if got != wanted {
        return Err(format!("the next part of the body is {}, not {}", show(got), show(wanted)));
    }
    message.taken += wanted.len();
    Ok(())
}

fn bytes(script: &mut Script<'_>, wanted: &[u8], deadline: Instant) -> Result<(), String> {
    let conn = script.conn()?;
    while conn.inbox.len() < wanted.len() && conn.fill(deadline) == Got::Bytes {}
    if !conn.inbox.starts_with(wanted) {
        return Err(format!("expected the bytes {}, got {}", show(wanted), show(&conn.inbox)));
    }
    conn.inbox.drain(..wanted.len());
    Ok(())
}

fn until(script: &mut Script<'_>, wanted: &[u8], deadline: Instant) -> Result<(), String> {
    let conn = script.conn()?;
    loop {
        if let Some(place) = find(&conn.inbox, wanted) {
            let wire: Vec<u8> = conn.inbox.drain(..place + wanted.len()).collect();
            script.message = Some(Message { wire, ..Message::default() });
            return Ok(());
        }
        if conn.fill(deadline) != Got::Bytes {
            return Err(format!("{} does not come, only {}", show(wanted), show(&conn.inbox)));
        }
    }
}

/// Compares the start line: method and target, or a status (`400/431` means either).
fn check_start(script: &Script<'_>, words: &[String]) -> Result<(), String> {
    let Some(message) = &script.message else {
        return Ok(());
    };
    let [first, second, _] = &message.start;
    let fits = match (script.peer(), words) {
        (_, []) => true,
        (Peer::Server, [status]) => status.split('/').any(|status| status == second),
        (Peer::Client, [method]) => method == first,
        (Peer::Client, [method, target]) => method == first && target == second,
        _ => return Err("give a status, or a method and a target".to_owned()),
    };
    if fits {
        return Ok(());
    }
    Err(format!(
        "expected `{}`, got `{}`\nwhole: {}",
        words.join(" "),
        message.start.join(" "),
        show(&message.wire)
    ))
}

fn stream_message(
    script: &mut Script<'_>,
    extent: Extent,
    deadline: Instant,
    wanted: Option<u32>,
) -> Result<(), String> {
    let peer = script.peer();
    let conn = script.conn.as_mut().ok_or("there is no connection")?;
    let h2 = script.http2.as_mut().ok_or("this connection does not speak HTTP/2")?;
    if peer == Peer::Client && wanted.is_none() {
        let got = h2.pump(conn, deadline, |h2| !h2.opened.is_empty())?;
        h2.current = h2.opened.pop_front().ok_or_else(|| format!("no request: {got:?}"))?;
    } else if let Some(number) = wanted {
        h2.opened.retain(|opened| *opened != number);
    }
    let number = h2.current;
    let over = |h2: &Http2, stream: &Stream| {
        stream.reset.is_some() || h2.goaway.is_some_and(|(last, _)| last < number)
    };
    let has_head = |stream: &Stream| !stream.heads.is_empty();
    h2.pump(conn, deadline, |h2| h2.streams.get(&number).is_some_and(|s| has_head(s) || over(h2, s)))?;
    let head = h2.streams.get_mut(&number).and_then(|stream| stream.heads.pop_front());
    let mut message = head.ok_or_else(|| format!("no message on stream {number}: {}", state(h2, number)))?;
    script.shared.note(&script.name, &format!("  < stream {number}: {}", show(&message.wire)));
    let interim = matches!(message.status(), 100..200);
    if extent != Extent::Head && !interim {
        h2.pump(conn, deadline, |h2| h2.streams.get(&number).is_some_and(|s| s.ended || over(h2, s)))?;
    }
    message.complete = interim;
    if let (false, Some(stream)) = (interim, h2.streams.get(&number)) {
        fill(&mut message, stream);
    }
    let (complete, told) = (message.complete, state(h2, number));
    let ended = conn.end.is_some()
        || h2.goaway.is_some()
        || h2.streams.get(&number).is_some_and(|s| s.reset.is_some());
    script.message = Some(message);
    match extent {
        Extent::Head => Ok(()),
        Extent::Whole if complete => Ok(()),
        Extent::Cut if complete || ended => Ok(()),
        _ => Err(format!("the message on stream {number} does not end: {told}")),
    }
}

/// The state of a stream and its connection, for reports.
fn state(h2: &Http2, number: u32) -> String {
    let stream = h2.streams.get(&number).map_or_else(String::new, |stream| {
        format!(
            "{} bytes of data, ended: {}, reset: {}",
            stream.data.len(),
            stream.ended,
            named(stream.reset)
        )
    });
    format!("{stream}; GOAWAY: {}", named(h2.goaway.map(|(_, code)| code)))
}

fn named(code: Option<u32>) -> String {
    let Some(code) = code else {
        return "none".to_owned();
    };
    let name = usize::try_from(code).ok().and_then(|code| ERROR_CODES.get(code));
    name.map_or_else(|| code.to_string(), |name| (*name).to_owned())
}

fn receive_frames(script: &mut Script<'_>, wanted: &Wanted, deadline: Instant) -> Result<(), String> {
    let conn = script.conn.as_mut().ok_or("there is no connection")?;
    let h2 = script.http2.as_mut().ok_or("this connection does not speak HTTP/2")?;
    let number = h2.current;
    let any_of = |codes: &[u32], code: u32| codes.is_empty() || codes.contains(&code);
    let refused = |h2: &Http2| {
        h2.goaway.is_some()
            || h2.streams.get(&number).is_some_and(|stream| {
                stream.reset.is_some_and(|code| code != 0)
                    || stream.heads.front().is_some_and(|head| matches!(head.status(), 400..500))
            })
    };
    let done = |h2: &Http2| match wanted {
        Wanted::Rst(_) => h2.streams.get(&number).is_some_and(|stream| stream.reset.is_some()),
        Wanted::Goaway(_) => h2.goaway.is_some_and(|(_, code)| {
            code != 0 || matches!(wanted, Wanted::Goaway(codes) if any_of(codes, 0))
        }),
        Wanted::Refusal => {
            refused(h2) || h2.streams.get(&number).is_some_and(|stream| !stream.heads.is_empty())
        }
        Wanted::Pong => h2.pongs > 0,
        Wanted::Settings => h2.settings.is_some(),
        Wanted::SettingsAck => h2.settings_acks > 0,
        _ => true,
    };
    let got = h2.pump(conn, deadline, done)?;
    let fits = match wanted {
        Wanted::Rst(codes) => {
            h2.streams.get(&number).and_then(|stream| stream.reset).is_some_and(|code| any_of(codes, code))
        }
        Wanted::Goaway(codes) => h2.goaway.is_some_and(|(_, code)| any_of(codes, code)),
        // An end without any frame refuses, too.
        Wanted::Refusal => {
            refused(h2) || (got == Got::End && h2.streams.get(&number).is_none_or(|s| s.heads.is_empty()))
        }
        _ => done(h2),
    };
    if fits {
        if let Some(stream) = h2.streams.get_mut(&number).filter(|_| matches!(wanted, Wanted::Refusal)) {
            script.message = stream.heads.pop_front();
        }
        return Ok(());
    }
    let head = h2.streams.get(&number).and_then(|stream| stream.heads.front());
    let head = head.map_or_else(String::new, |head| format!(", head {}", show(&head.wire)));
    Err(format!("{got:?}; stream {number}: {}{head}", state(h2, number)))
}
