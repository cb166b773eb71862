//! Static files: finds the file for a request and makes the reply of it.

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::Bytes;
use foregate_cache::Content;
use foregate_files::listing::{html, json, prefers_json};
use foregate_files::{Answer, Document, FileRequest, Name};
use foregate_module::{Source as MadeBy, Text};
use foregate_wire::serialise::reason_phrase;
use foregate_wire::{BodyLength, Method, NameId};

use super::bodies::renew;
use super::parts::needs_whole;
use super::record::LoggedAction;
use super::reply::{ALLOW_OF_FILES, BodySource, Reply};
use super::shape::shapes;
use super::state::{Exchange, Step, StepResult};
use crate::error::Error;
use crate::folders::body::{FileBody, Part};
use crate::folders::{Folder, FolderError, FolderTarget, FoundFile, LONGEST, seconds_now};
use crate::limits::descriptors::DescriptorPlace;
use crate::message::request::StrippedPart;
use crate::random;

/// Bodies up to this length, bytes, are read completely before the head is sent, so that filters have the whole body.
const READ_AHEAD: u64 = 64 * 1024;
/// Bodies longer than this, bytes, are sent with `sendfile`, if nothing in this process has to read or change them.
const SENT_BY_SYSTEM: u64 = 16 * 1024;
/// The number of attempts for a file that changes while it is read.
const TRIES: usize = 3;

/// Answers with a file. If there is none, the request continues to the upstream, if the route has one.
pub(super) async fn run(exchange: &mut Exchange<'_>, folder: usize, upstream: Option<usize>) -> StepResult {
    let config = exchange.config;
    let Some(folder) = config.folders.get(folder) else { return Err(Error::Internal.into()) };
    exchange.record.action = Some(LoggedAction::Files);
    let method = &exchange.request.head.method;
    if !matches!(method, Method::Get | Method::Head) {
        return match upstream {
            Some(upstream) => Ok(Step::Prepare(upstream)),
            None if *method == Method::Options => Ok(options()),
            None => Err(Error::FileMethod.into()),
        };
    }
    renew(exchange);
    for _ in 0..TRIES {
        let rules = &folder.settings.rules;
        let mut candidates = rules.candidates(exchange.request.target.path());
        if exchange.request.target.stripped() == StrippedPart::All {
            // The slash at the end comes from stripping the prefix, not from the client.
            candidates.iter_mut().for_each(|candidate| candidate.is_folder &= !candidate.is_path);
        }
        let variants = rules.variants(&exchange.request.head.headers);
        let found = match folder.find_open(&candidates, &variants) {
            Some(open) => Ok(FolderTarget::File(open)),
            None => {
                let found = tokio::time::timeout(LONGEST, folder.find(&candidates, &variants)).await;
                found.unwrap_or(Err(FolderError::Read))
            }
        };
        let failed = match found {
            Ok(FolderTarget::File(file)) => match answer(exchange, folder, file).await {
                // The file is being replaced, most likely.
                Err(FolderError::Shrunk) => continue,
                Ok(reply) => return Ok(Step::Reply(Box::new(reply))),
                Err(error) => error,
            },
            Ok(FolderTarget::Folder) => return Ok(to_folder(exchange)),
            Ok(FolderTarget::Listing(entries, is_whole)) => {
                let reply = listing(exchange, folder, &entries, is_whole);
                return Ok(Step::Reply(Box::new(reply)));
            }
            Ok(FolderTarget::Nothing) => return upstream.map(Step::Prepare).ok_or(Error::NoFile.into()),
            Err(error) => error,
        };
        return match (failed, upstream) {
            (FolderError::Busy, Some(upstream)) => Ok(Step::Prepare(upstream)),
            (FolderError::Busy, None) => Err(Error::FileBusy.into()),
            (FolderError::Forbidden, _) => Err(Error::FileForbidden.into()),
            (FolderError::Descriptors, _) => Err(Error::NoDescriptors.into()),
            (FolderError::Read | FolderError::Shrunk, _) => Err(Error::FileRead.into()),
        };
    }
    Err(Error::FileRead.into())
}

/// The reply with a file that was found.
async fn answer(
    exchange: &mut Exchange<'_>,
    folder: &Folder,
    found: FoundFile,
) -> Result<Reply, FolderError> {
    let rules = &folder.settings.rules;
    let is_head = exchange.request.head.method == Method::Head;
    let document = Document { name: &found.name, stat: found.open.stat, coding: found.coding };
    let decide = |exchange: &Exchange<'_>| {
        let mut reply = Reply::new(200, "", Text::EMPTY, MadeBy::Route);
        let headers = &exchange.request.head.headers;
        let (now, boundary) = (seconds_now(), random::number());
        let asked = FileRequest { headers, head: is_head, now, boundary };
        let kept = found.open.whole(rules, &found.name, found.coding).filter(|_| asked.is_plain());
        let answer = match kept {
            Some(fields) => {
                reply.head.headers.append(fields);
                Answer::whole(document.stat.size)
            }
            None => rules.answer(&document, &asked, &mut reply.head.headers),
        };
        reply.head.status = answer.status;
        (reply, answer)
    };
    let (mut reply, mut answer) = decide(exchange);
    if answer.status == 206 && shapes(exchange) && exchange.request.asks_for_part() {
        // A step may need all of the body.
        (exchange.response.status, exchange.response.headers) = (206, reply.head.headers.clone());
        if needs_whole(exchange) {
            exchange.request.ask_for_all();
            (reply, answer) = decide(exchange);
        }
    }
    reply.body = match answer.status {
        412 | 416 => {
            reply.head.headers.push_id(NameId::ContentType, b"text/plain; charset=utf-8");
            BodySource::Bytes(format!("{} {}\n", answer.status, reason_phrase(answer.status)).into())
        }
        304 => BodySource::Bytes(Text::EMPTY),
        _ => body(exchange, found, answer, is_head, &mut reply).await?,
    };
    Ok(reply)
}

/// The body of an answer with content.
async fn body(
    exchange: &mut Exchange<'_>,
    found: FoundFile,
    answer: Answer,
    is_head: bool,
    reply: &mut Reply,
) -> Result<BodySource, FolderError> {
    let length = answer.length;
    if is_head {
        reply.head.headers.push_id(NameId::ContentLength, length.to_string().as_bytes());
        return Ok(BodySource::File(None, BodyLength::Empty));
    }
    let sends = length > SENT_BY_SYSTEM && !shapes(exchange) && exchange.down.client.link.takes_files();
    if length <= READ_AHEAD && !sends {
        let bytes = match whole(&found, &answer) {
            Some(bytes) => bytes,
            None => {
                let read = read(&found, answer);
                tokio::time::timeout(LONGEST, read).await.unwrap_or(Err(FolderError::Read))?
            }
        };
        return Ok(in_memory(exchange, bytes, reply));
    }
    let percent = exchange.proxy.filter_memory.per_client();
    let place =
        DescriptorPlace::take_for_file(exchange.account(), percent).ok_or(FolderError::Descriptors)?;
    reply.head.headers.push_id(NameId::ContentLength, length.to_string().as_bytes());
    let parts = parts(answer, found.open.stat.size);
    let body = FileBody::new(found.open.file.clone(), parts, place);
    Ok(BodySource::File(Some(Box::new(body)), BodyLength::Fixed(length)))
}

/// A short body in memory. It counts as memory until the client has read it.
fn in_memory(exchange: &mut Exchange<'_>, bytes: Bytes, reply: &mut Reply) -> BodySource {
    let mut share = exchange.proxy.filter_memory.share(exchange.account());
    if let Some(run) = &mut exchange.modules.run
        && share.hold(bytes.len())
    {
        // With steps, the body is passed as bytes, so that filters have all of it.
        run.facts.shares.push(share);
        return BodySource::Bytes(Vec::from(bytes).into());
    }
    let length = bytes.len() as u64;
    reply.head.headers.push_id(NameId::ContentLength, length.to_string().as_bytes());
    BodySource::File(Some(Box::new(FileBody::of_bytes(bytes))), BodyLength::Fixed(length))
}

/// The parts of a body in their order.
fn parts(answer: Answer, size: u64) -> VecDeque<Part> {
    match answer.content {
        Content::None => VecDeque::new(),
        Content::Whole => [Part::Range(0..size)].into(),
        Content::Part(range) => [Part::Range(range)].into(),
        Content::Parts(multipart) => {
            let parts = multipart.parts.into_iter();
            let parts = parts.flat_map(|(head, range)| [Part::Bytes(head), Part::Range(range)]);
            parts.chain([Part::Bytes(multipart.end)]).collect()
        }
    }
}

/// The body of an answer from the content in memory.
fn whole(found: &FoundFile, answer: &Answer) -> Option<Bytes> {
    let content = found.open.content()?;
    match &answer.content {
        Content::Whole => Some(content.clone()),
        Content::Part(range) => {
            let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
            (start <= end && end <= content.len()).then(|| content.slice(start..end))
        }
        Content::Parts(_) | Content::None => None,
    }
}

/// Reads all of a short body.
async fn read(found: &FoundFile, answer: Answer) -> Result<Bytes, FolderError> {
    let is_whole = answer.content == Content::Whole;
    let length = usize::try_from(answer.length).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    for part in parts(answer, found.open.stat.size) {
        let read = match part {
            Part::Bytes(part) => part,
            Part::Range(range) if range.is_empty() => continue,
            Part::Range(range) => {
                // No longer than `READ_AHEAD`.
                let wanted = (range.end - range.start) as usize;
                let read = found.open.file.read(range.start, wanted).await.map_err(FolderError::of_read)?;
                if read.len() < wanted {
                    return Err(FolderError::Shrunk);
                }
                read
            }
        };
        if bytes.is_empty() && read.len() == length {
            bytes = read;
            break;
        }
        bytes.extend_from_slice(&read);
    }
    let bytes = Bytes::from(bytes);
    if is_whole {
        found.open.keep_content(&bytes);
    }
    Ok(bytes)
}

/// Redirects the client to the folder's path with a slash at its end, because links in its pages are relative to that.
fn to_folder(exchange: &Exchange<'_>) -> Step {
    let request = &*exchange.request;
    let path = path_of_client(exchange);
    let mut target = Vec::with_capacity(request.target.as_bytes().len() + 2);
    if request.target.is_rewritten() {
        // Only the last segment is sent, relative to the client's path, which most likely ends with the same segment. The
        // client must not learn the rewritten path.
        let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        target.extend_from_slice(b"./");
        target.extend_from_slice(last);
    } else {
        // The path does not start with an empty segment, which clients would read as another host: such a path has no file.
        target.extend_from_slice(&path);
    }
    target.push(b'/');
    if let Some(query) = request.target.query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    let mut reply =
        Reply::new(301, "text/plain; charset=utf-8", "301 Moved Permanently\n".into(), MadeBy::Route);
    reply.head.headers.push_id(NameId::Location, &target);
    Step::Reply(Box::new(reply))
}

/// The path with the prefix that the route has stripped.
fn path_of_client<'e>(exchange: &'e Exchange<'_>) -> Cow<'e, [u8]> {
    let path = exchange.request.target.path();
    let prefix = exchange.routed.route.and_then(|route| route.strip_prefix.as_deref()).unwrap_or_default();
    match exchange.request.target.stripped() {
        StrippedPart::Nothing => Cow::Borrowed(path),
        StrippedPart::Start => Cow::Owned([prefix.as_bytes(), path].concat()),
        StrippedPart::All => Cow::Borrowed(prefix.as_bytes()),
    }
}

/// The listing of a folder.
fn listing(
    exchange: &Exchange<'_>,
    folder: &Folder,
    entries: &[foregate_files::listing::Entry],
    is_whole: bool,
) -> Reply {
    let accept = exchange.request.head.headers.get(NameId::Accept);
    let path = path_of_client(exchange);
    let (kind, body) = if prefers_json(accept) {
        ("application/json", json(entries))
    } else {
        let rules = &folder.settings.rules;
        let name = Name::read(&path, rules.dotfiles).map_or_else(Vec::new, |name| name.bytes);
        let mut shown = b"/".to_vec();
        if !name.is_empty() {
            shown.extend_from_slice(&name);
            shown.push(b'/');
        }
        ("text/html; charset=utf-8", html(&shown, entries, is_whole))
    };
    let mut reply = Reply::new(200, kind, body.into(), MadeBy::Route);
    reply.head.headers.push_id(NameId::Vary, b"Accept");
    reply.head.headers.push_id(NameId::XContentTypeOptions, b"nosniff");
    reply
}

/// The answer to OPTIONS.
fn options() -> Step {
    let mut reply = Reply::new(204, "", Text::EMPTY, MadeBy::Route);
    reply.head.headers.push_id(NameId::Allow, ALLOW_OF_FILES);
    Step::Reply(Box::new(reply))
}
