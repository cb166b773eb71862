//! The origin: answers from memory, checks uploads, counts its connections.
//!
//! `GET /b/N`, `/plain/N` or `/slow/N` is answered with N pattern bytes, `GET /errors/STATUS/N` with this
//! status and as many; a query and a body are ignored. `POST /u/N` must carry the pattern
//! and is answered with N pattern bytes, or with 400 when a byte differs. `GET .../page` is
//! answered with a document from a file. A second address answers every connection with the
//! counts as JSON.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use serde_json::json;

use crate::pattern;

/// Bytes read at once; a whole upload fits, so that one read takes it.
const READ: usize = 256 * 1024;
/// Largest request head.
const HEAD_LIMIT: usize = 16 * 1024;
/// Largest body that is made.
const BODY_LIMIT: usize = 64 << 20;
/// Fields of a request that are looked at.
const FIELDS_LIMIT: usize = 64;
/// How often idle connections are looked for.
const SWEEP: Duration = Duration::from_millis(10);

const LISTENER: Token = Token(usize::MAX - 1);
const CONTROL: Token = Token(usize::MAX - 2);

/// The rest of a request's body.
#[derive(Clone, Copy)]
enum Rest {
    Sized(usize),
    /// Within a chunk, of which so much is left, its CRLF included.
    Chunk(usize),
    /// Before a chunk's size line.
    Size,
    /// Behind the last chunk, in the trailers.
    Trailers,
    None,
}

struct Upload {
    rest: Rest,
    come: usize,
    /// Set if it has to be the pattern.
    compared: bool,
    intact: bool,
    answer: Answer,
}

/// The resource of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Answer {
    status: u16,
    length: usize,
    /// The document in the place of the pattern.
    page: bool,
}

struct Client {
    socket: TcpStream,
    number: u64,
    /// Bytes of a head or of a chunk's frame that are not whole yet.
    pending: Vec<u8>,
    upload: Option<Upload>,
    /// The request is whole and its answer is not due yet.
    waiting: bool,
    answer: Option<(Rc<[u8]>, usize)>,
    close: bool,
    active: Instant,
}

/// Where the origin listens and how it treats idle connections.
pub struct Settings {
    /// Where requests come in.
    pub listen: SocketAddr,
    /// Where the counts are told.
    pub control: SocketAddr,
    /// After how long without a request a connection is closed; none: never.
    pub idle: Option<Duration>,
    /// How long every answer takes.
    pub delay: Duration,
    /// The document for `.../page`.
    pub page: Vec<u8>,
}

/// An answer that is not due yet.
struct Due {
    at: Instant,
    index: usize,
    /// Which of the connections that had this index, by its number in order of accepting.
    number: u64,
    answer: Option<Answer>,
}

struct Origin {
    poll: Poll,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    answers: HashMap<Answer, Rc<[u8]>>,
    page: Vec<u8>,
    accepted: u64,
    requests: u64,
    idle_closed: u64,
    delay: Duration,
    /// In the order in which they are due, as every answer takes equally long.
    due: VecDeque<Due>,
}

/// Serves until the process is ended.
pub fn serve(settings: &Settings) -> io::Result<()> {
    let mut listener = TcpListener::bind(settings.listen)?;
    let mut control = TcpListener::bind(settings.control)?;
    let poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    poll.registry().register(&mut control, CONTROL, Interest::READABLE)?;
    let mut origin = Origin {
        poll,
        clients: Vec::new(),
        free: Vec::new(),
        answers: HashMap::new(),
        page: settings.page.clone(),
        accepted: 0,
        requests: 0,
        idle_closed: 0,
        delay: settings.delay,
        due: VecDeque::new(),
    };
    let mut events = Events::with_capacity(1024);
    let mut buffer = vec![0; READ];
    loop {
        let next = origin.due.front().map(|due| due.at.saturating_duration_since(Instant::now()));
        let wait = next.into_iter().chain(settings.idle.map(|_| SWEEP)).min();
        match origin.poll.poll(&mut events, wait) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        }
        for event in &events {
            match event.token() {
                LISTENER => origin.accept(&listener)?,
                CONTROL => origin.tell(&control),
                Token(index) => {
                    let ended = event.is_read_closed() || event.is_error();
                    if origin.turn(index, &mut buffer, ended).is_err() {
                        origin.remove(index);
                    }
                }
            }
        }
        origin.answer_due();
        if let Some(idle) = settings.idle {
            origin.sweep(idle);
        }
    }
}

impl Origin {
    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            let mut socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            socket.set_nodelay(true)?;
            self.accepted += 1;
            let index = self.free.pop().unwrap_or_else(|| {
                self.clients.push(None);
                self.clients.len() - 1
            });
            self.poll.registry().register(
                &mut socket,
                Token(index),
                Interest::READABLE | Interest::WRITABLE,
            )?;
            self.clients[index] = Some(Client {
                socket,
                number: self.accepted,
                waiting: false,
                pending: Vec::new(),
                upload: None,
                answer: None,
                close: false,
                active: Instant::now(),
            });
        }
    }

    fn tell(&self, control: &TcpListener) {
        while let Ok((mut socket, _)) = control.accept() {
            let counts = json!({
                "accepted": self.accepted,
                "open": self.clients.len() - self.free.len(),
                "requests": self.requests,
                "idle_closed": self.idle_closed,
            });
            // A fresh socket's buffer takes these few bytes; a caller that is gone needs none.
            let _ = socket.write_all(counts.to_string().as_bytes());
        }
    }

    fn sweep(&mut self, idle: Duration) {
        for index in 0..self.clients.len() {
            let quiet = |client: &Client| {
                !client.waiting
                    && client.answer.is_none()
                    && client.upload.is_none()
                    && client.active.elapsed() > idle
            };
            if self.clients[index].as_ref().is_some_and(quiet) {
                self.idle_closed += 1;
                self.remove(index);
            }
        }
    }

    fn answer_due(&mut self) {
        while let Some(due) = self.due.pop_front_if(|due| due.at <= Instant::now()) {
            // The connection may be gone by now, and another may be in its place.
            let Some(mut client) = self.clients[due.index].take_if(|client| client.number == due.number)
            else {
                continue;
            };
            client.waiting = false;
            let outcome = self.answer(&mut client, due.answer);
            self.clients[due.index] = Some(client);
            if outcome.is_err() {
                self.remove(due.index);
            }
        }
    }

    fn remove(&mut self, index: usize) {
        if self.clients[index].take().is_some() {
            self.free.push(index);
        }
    }

    /// Writes pending output and reads the available bytes. An error ends the connection.
    fn turn(&mut self, index: usize, buffer: &mut [u8], ended: bool) -> io::Result<()> {
        // An event of a connection that a turn before it in this batch removed.
        let Some(mut client) = self.clients[index].take() else { return Ok(()) };
        let outcome = self.talk(index, &mut client, buffer, ended);
        self.clients[index] = Some(client);
        outcome
    }

    fn talk(&mut self, index: usize, client: &mut Client, buffer: &mut [u8], ended: bool) -> io::Result<()> {
        client.write()?;
        loop {
            match client.socket.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.feed(index, client, &buffer[..bytes])?;
                    if bytes < buffer.len() && !ended {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn feed(&mut self, index: usize, client: &mut Client, bytes: &[u8]) -> io::Result<()> {
        let mut joined = std::mem::take(&mut client.pending);
        let mut rest = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined
        };
        loop {
            if let Some(upload) = &mut client.upload {
                rest = upload.feed(rest)?;
                if !matches!(upload.rest, Rest::None) {
                    break;
                }
                let (intact, answer) = (upload.intact, upload.answer);
                client.upload = None;
                let answer = intact.then_some(answer);
                if self.delay.is_zero() {
                    self.answer(client, answer)?;
                } else {
                    client.waiting = true;
                    let at = Instant::now() + self.delay;
                    self.due.push_back(Due { at, index, number: client.number, answer });
                }
            }
            if rest.is_empty() {
                break;
            }
            let mut fields = [httparse::EMPTY_HEADER; FIELDS_LIMIT];
            let mut head = httparse::Request::new(&mut fields);
            match head.parse(rest).map_err(io::Error::other)? {
                httparse::Status::Partial if rest.len() > HEAD_LIMIT => {
                    return Err(io::Error::other("request head too long"));
                }
                httparse::Status::Partial => break,
                httparse::Status::Complete(end) => {
                    client.start(&head)?;
                    rest = &rest[end..];
                }
            }
        }
        client.pending = rest.to_vec();
        Ok(())
    }

    /// Answers as asked for, or with 400 for none.
    fn answer(&mut self, client: &mut Client, answer: Option<Answer>) -> io::Result<()> {
        self.requests += 1;
        let bytes = match answer {
            None => Rc::from(&b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..]),
            Some(answer) => {
                let make = || match answer.page {
                    true => answer_bytes(answer.status, "text/html; charset=utf-8", &self.page),
                    false => {
                        let body = pattern::body(answer.length);
                        answer_bytes(answer.status, "application/octet-stream", &body)
                    }
                };
                Rc::clone(self.answers.entry(answer).or_insert_with(make))
            }
        };
        if client.answer.is_some() {
            return Err(io::Error::other("pipelined request"));
        }
        client.answer = Some((bytes, 0));
        client.active = Instant::now();
        client.write()
    }
}

fn answer_bytes(status: u16, content_type: &str, body: &[u8]) -> Rc<[u8]> {
    let length = body.len();
    let reason = if status == 200 { "OK" } else { "Error" };
    let mut bytes = format!(
        "HTTP/1.1 {status} {reason}\r\nServer: origin\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
         Content-Type: {content_type}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nETag: \"{length:x}\"\r\n\r\n"
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    Rc::from(bytes)
}

impl Answer {
    fn of(target: &str) -> Option<Self> {
        let path = target.split('?').next()?;
        if path.ends_with("/page") {
            return Some(Self { status: 200, length: 0, page: true });
        }
        let (status, length) = match path.strip_prefix("/errors/") {
            Some(rest) => rest.split_once('/')?,
            None => {
                let folder =
                    ["/b/", "/u/", "/plain/", "/slow/"].iter().find_map(|folder| path.strip_prefix(folder));
                ("200", folder?)
            }
        };
        Some(Self { status: status.parse().ok()?, length: length.parse().ok()?, page: false })
    }
}

impl Client {
    /// Takes note of a request's head; every request is an upload, most of no bytes.
    fn start(&mut self, head: &httparse::Request<'_, '_>) -> io::Result<()> {
        let answer = head
            .path
            .and_then(Answer::of)
            .filter(|answer| answer.length <= BODY_LIMIT)
            .ok_or_else(|| io::Error::other("request for what is not here"))?;
        let mut rest = Rest::None;
        for field in head.headers.iter() {
            if field.name.eq_ignore_ascii_case("content-length") {
                let length = std::str::from_utf8(field.value).ok().and_then(|value| value.parse().ok());
                rest = Rest::Sized(length.ok_or_else(|| io::Error::other("bad Content-Length"))?);
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                rest = Rest::Size;
            } else if field.name.eq_ignore_ascii_case("connection") {
                self.close = field.value.eq_ignore_ascii_case(b"close");
            }
        }
        if head.version == Some(0) {
            self.close = true;
        }
        let compared = head.path.is_some_and(|path| path.starts_with("/u/"));
        self.upload = Some(Upload { rest, come: 0, compared, intact: true, answer });
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let Some((bytes, sent)) = &mut self.answer else { return Ok(()) };
        while *sent < bytes.len() {
            match self.socket.write(&bytes[*sent..]) {
                Ok(taken) => *sent += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.answer = None;
        self.active = Instant::now();
        if self.close { Err(io::Error::other("closed as asked for")) } else { Ok(()) }
    }
}

impl Upload {
    /// Takes body bytes and gives back those that it cannot use yet or does not own.
    fn feed<'b>(&mut self, mut bytes: &'b [u8]) -> io::Result<&'b [u8]> {
        loop {
            match self.rest {
                Rest::Sized(left) => {
                    let (body, behind) = bytes.split_at(left.min(bytes.len()));
                    self.take(body);
                    bytes = behind;
                    self.rest = if left == body.len() { Rest::None } else { Rest::Sized(left - body.len()) };
                    return Ok(bytes);
                }
                Rest::Chunk(left) => {
                    let (chunk, behind) = bytes.split_at(left.min(bytes.len()));
                    // The last two bytes of `left` are the CRLF behind the chunk's data.
                    self.take(&chunk[..chunk.len().min(left.saturating_sub(2))]);
                    bytes = behind;
                    self.rest =
                        if left == chunk.len() { Rest::Size } else { Rest::Chunk(left - chunk.len()) };
                }
                Rest::Size => match httparse::parse_chunk_size(bytes) {
                    Ok(httparse::Status::Complete((end, size))) => {
                        bytes = &bytes[end..];
                        let size = usize::try_from(size).map_err(io::Error::other)?;
                        self.rest = if size == 0 { Rest::Trailers } else { Rest::Chunk(size + 2) };
                    }
                    Ok(httparse::Status::Partial) => return Ok(bytes),
                    Err(_) => return Err(io::Error::other("bad chunk size")),
                },
                Rest::Trailers => {
                    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
                        return Ok(bytes);
                    };
                    bytes = &bytes[end + 2..];
                    if end == 0 {
                        self.rest = Rest::None;
                    }
                }
                Rest::None => return Ok(bytes),
            }
            if bytes.is_empty() && !matches!(self.rest, Rest::None) {
                return Ok(bytes);
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.intact &= !self.compared || pattern::matches(self.come, bytes);
        self.come += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(rest: Rest, bytes: &[u8], split: usize) -> (bool, usize, bool) {
        let mut upload = Upload {
            rest,
            come: 0,
            compared: true,
            intact: true,
            answer: Answer { status: 200, length: 0, page: false },
        };
        let mut pending = upload.feed(&bytes[..split]).unwrap().to_vec();
        pending.extend_from_slice(&bytes[split..]);
        upload.feed(&pending).unwrap();
        (upload.intact, upload.come, matches!(upload.rest, Rest::None))
    }

    #[test]
    fn uploads_are_checked_however_they_are_split() {
        let body = pattern::body(20);
        let mut chunked = b"5\r\n".to_vec();
        chunked.extend_from_slice(&body[..5]);
        chunked.extend_from_slice(b"\r\nF\r\n");
        chunked.extend_from_slice(&body[5..]);
        chunked.extend_from_slice(b"\r\n0\r\nX: y\r\n\r\n");
        for split in 0..=body.len() {
            assert_eq!(upload(Rest::Sized(20), &body, split), (true, 20, true), "split at {split}");
        }
        for split in 0..=chunked.len() {
            assert_eq!(upload(Rest::Size, &chunked, split), (true, 20, true), "chunked, split at {split}");
        }
        let mut flipped = body;
        flipped[19] ^= 1;
        assert!(!upload(Rest::Sized(20), &flipped, 3).0);
    }
}
