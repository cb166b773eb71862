//! The client of the admin interface: HTTP over the Unix socket, as `/v1/openapi.json` describes it.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// The time limit of an answer. A reload takes longest.
const PATIENCE: Duration = Duration::from_secs(60);

/// The largest answer of the process, and its largest event, in bytes.
const ANSWER_LIMIT: u64 = 16 << 20;
/// The largest head of an answer, in bytes.
const HEAD_LIMIT: u64 = 64 << 10;

/// The resource that describes all others.
const DESCRIPTION: &str = "/v1/openapi.json";

/// A request to a resource of the admin interface.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ResourceRequest {
    method: &'static str,
    path: &'static str,
    query: String,
    body: Option<Value>,
}

impl ResourceRequest {
    /// A request that changes nothing.
    pub(super) fn get(path: &'static str) -> Self {
        Self { method: "GET", path, query: String::new(), body: None }
    }

    /// A request for a change.
    pub(super) fn post(path: &'static str) -> Self {
        Self { method: "POST", path, query: String::new(), body: None }
    }

    /// Adds a parameter.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        self.query.push_str(name);
        self.query.push('=');
        for byte in value.bytes() {
            match byte {
                b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                    self.query.push(char::from(byte));
                }
                _ => self.query.push_str(&format!("%{byte:02X}")),
            }
        }
        self
    }

    /// Adds the body.
    pub(super) fn with_body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(super) fn path(&self) -> &'static str {
        self.path
    }

    /// The bytes of the request. With HTTP/1.0, the answer has no chunks and ends with the connection.
    fn bytes(&self) -> Vec<u8> {
        let Self { method, path, query, body } = self;
        let mut head = format!("{method} {path}{query} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n");
        let body = body.as_ref().map(Value::to_string).unwrap_or_default();
        if *method == "POST" {
            head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        format!("{head}\r\n{body}").into_bytes()
    }
}

/// Sends a request to the process, and returns its answer: an object with `ok`.
///
/// # Errors
///
/// The process cannot be asked, or does not answer. The kind is `Unsupported` if it is an older version without this
/// resource.
pub(super) fn ask(admin: &Path, request: &ResourceRequest) -> io::Result<Value> {
    let reply = AdminReply::of(admin, request, PATIENCE)?;
    let status = reply.status;
    let answer = reply.json()?;
    check_age(admin, request, status)?;
    Ok(answer)
}

/// The reason of an answer that refuses a request.
pub(super) fn reason(answer: &Value) -> &str {
    answer.get("error").and_then(Value::as_str).unwrap_or("refused without a reason")
}

/// The answer to a request for events.
pub(super) enum AdminEvents {
    /// The process refuses them; its answer has the reason.
    Refused(Value),
    /// The events until the answer ends.
    Stream(EventStream),
}

/// Asks for events, which come at least once in `patience`.
///
/// # Errors
///
/// Like [`ask`].
pub(super) fn events(admin: &Path, request: &ResourceRequest, patience: Duration) -> io::Result<AdminEvents> {
    let reply = AdminReply::of(admin, request, patience)?;
    if reply.status == 200 {
        return Ok(AdminEvents::Stream(EventStream(reply.body)));
    }
    let status = reply.status;
    let answer = reply.json()?;
    check_age(admin, request, status)?;
    Ok(AdminEvents::Refused(answer))
}

/// Server-sent events.
pub(super) struct EventStream(BufReader<UnixStream>);

/// One event.
#[derive(Debug, PartialEq)]
pub(super) struct AdminEvent {
    pub(super) name: String,
    pub(super) data: Value,
}

impl EventStream {
    /// The next event. `None` at the end of the answer.
    pub(super) fn next(&mut self) -> io::Result<Option<AdminEvent>> {
        next_event(&mut self.0)
    }
}

/// Reads an event. An event without its last, empty line is left out.
fn next_event(reader: &mut impl BufRead) -> io::Result<Option<AdminEvent>> {
    let (mut name, mut data) = (String::new(), Value::Null);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(ANSWER_LIMIT).read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.strip_suffix('\n').ok_or_else(|| invalid("an event is cut off, or too long"))?;
        if let Some(text) = line.strip_prefix("event: ") {
            text.clone_into(&mut name);
        } else if let Some(text) = line.strip_prefix("data: ") {
            data = serde_json::from_str(text)?;
        } else if line.is_empty() && !data.is_null() {
            return Ok(Some(AdminEvent { name, data }));
        }
    }
}

/// An answer with its body still to be read.
struct AdminReply<R> {
    status: u16,
    length: Option<u64>,
    body: R,
}

impl AdminReply<BufReader<UnixStream>> {
    fn of(admin: &Path, request: &ResourceRequest, patience: Duration) -> io::Result<Self> {
        let mut stream = UnixStream::connect(admin).map_err(|error| unconnected(admin, error))?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&request.bytes())?;
        Self::read(BufReader::new(stream))
    }
}

/// The error for a socket to which no connection can be made. The system calls connections to other kinds of files refused,
/// as it does when no process listens.
fn unconnected(admin: &Path, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::ConnectionRefused {
        return error;
    }
    let kind = match fs::metadata(admin).map(|found| found.file_type()) {
        Ok(found) if found.is_socket() => {
            return io::Error::new(io::ErrorKind::ConnectionRefused, "no process listens on this socket");
        }
        Ok(found) if found.is_dir() => "a folder",
        Ok(found) if found.is_fifo() => "a pipe",
        Ok(found) if found.is_file() => "a file",
        Ok(_) => "a device",
        Err(_) => return error,
    };
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {kind}, not a socket"))
}

impl<R: BufRead> AdminReply<R> {
    /// Reads the head.
    fn read(mut body: R) -> io::Result<Self> {
        let mut head = Vec::new();
        let mut limited = body.by_ref().take(HEAD_LIMIT);
        while !head.ends_with(b"\r\n\r\n") {
            if limited.read_until(b'\n', &mut head)? == 0 {
                return Err(invalid("the answer is cut off, or no HTTP"));
            }
        }
        let head = String::from_utf8(head).map_err(|_| invalid("the answer is no HTTP"))?;
        let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        let status = status.ok_or_else(|| invalid("the answer is no HTTP"))?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok()).flatten()
        });
        Ok(Self { status, length, body })
    }

    /// The whole body, which is JSON.
    fn json(self) -> io::Result<Value> {
        let mut body = Vec::new();
        self.body.take(ANSWER_LIMIT).read_to_end(&mut body)?;
        if self.length != Some(body.len() as u64) {
            return Err(invalid("the answer is cut off"));
        }
        match (serde_json::from_slice(&body), self.status) {
            (Ok(answer), _) => Ok(answer),
            (Err(_), 414 | 431) => Err(invalid("the request is longer than the process accepts")),
            (Err(_), status) => {
                Err(invalid(&format!("the answer, which has the status {status}, is not JSON")))
            }
        }
    }
}

/// Fails if the process has no such resource. A 404 alone does not say so: it is also the answer for a thing that a
/// resource does not have.
fn check_age(admin: &Path, request: &ResourceRequest, status: u16) -> io::Result<()> {
    if !matches!(status, 404 | 405) {
        return Ok(());
    }
    let description = AdminReply::of(admin, &ResourceRequest::get(DESCRIPTION), PATIENCE)?.json()?;
    let has_resource = description["paths"][request.path].get(request.method.to_ascii_lowercase()).is_some();
    if has_resource {
        return Ok(());
    }
    let older = format!("the running proxy is older than this command: it has no {}", request.path);
    Err(io::Error::new(io::ErrorKind::Unsupported, older))
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_has_encoded_parameters_or_a_body() {
        let request =
            ResourceRequest::get("/v1/a").with("url", "http://ä/?x=1&y=+").with("field", "A: \"b\"");
        let bytes = String::from_utf8(request.bytes()).unwrap();
        assert!(
            bytes.starts_with(
                "GET /v1/a?url=http://%C3%A4/%3Fx%3D1%26y%3D%2B&field=A:%20%22b%22 HTTP/1.0\r\nHost: "
            ),
            "{bytes}"
        );
        assert!(bytes.ends_with("close\r\n\r\n"), "{bytes}");
        let bytes = String::from_utf8(ResourceRequest::post("/v1/a").bytes()).unwrap();
        assert!(bytes.ends_with("\r\nContent-Length: 0\r\n\r\n"), "{bytes}");
        let bytes = ResourceRequest::post("/v1/a").with_body(json!({ "a": 1 })).bytes();
        assert!(bytes.ends_with(b"\r\nContent-Length: 7\r\n\r\n{\"a\":1}"));
    }

    #[test]
    fn an_answer_that_is_cut_off_is_an_error() {
        let read = |bytes: &'static [u8]| {
            let reply = AdminReply::read(bytes).and_then(AdminReply::json);
            reply.map_err(|error| error.to_string())
        };
        assert_eq!(read(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}"), Ok(json!({})));
        assert_eq!(read(b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\n{}"), Ok(json!({})));
        let cut_off = Err("the answer is cut off".to_owned());
        assert_eq!(read(b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\n{}"), cut_off);
        assert_eq!(read(b"HTTP/1.0 200 OK\r\n\r\n{}"), cut_off);
        for no_head in [&b"HTTP/1.0 200 OK\r\n"[..], b"", b"{\"ok\":false}\n"] {
            assert_eq!(read(no_head), Err("the answer is cut off, or no HTTP".to_owned()));
        }
        assert_eq!(read(b"SSH-2.0\r\n\r\n"), Err("the answer is no HTTP".to_owned()));
        let too_long = read(b"HTTP/1.1 431 Too Large\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(too_long, Err("the request is longer than the process accepts".to_owned()));
        let other = read(b"HTTP/1.1 500 No\r\ncontent-length: 1\r\n\r\n?");
        assert_eq!(other, Err("the answer, which has the status 500, is not JSON".to_owned()));
    }

    #[test]
    fn events_are_read_until_the_answer_ends() {
        let mut text =
            &b"event: progress\ndata: {\"a\":1}\n\n\nevent: done\ndata: {\"a\":2}\n\nevent: x\n"[..];
        let event = |name: &str, data| Some(AdminEvent { name: name.to_owned(), data });
        assert_eq!(next_event(&mut text).unwrap(), event("progress", json!({ "a": 1 })));
        assert_eq!(next_event(&mut text).unwrap(), event("done", json!({ "a": 2 })));
        assert_eq!(next_event(&mut text).unwrap(), None);
        assert!(next_event(&mut &b"data: {\"a\":"[..]).is_err());
        assert!(next_event(&mut &b"data: nonsense\n\n"[..]).is_err());
    }

    /// The outcome of a request that is answered with 404, in a process with this description.
    fn asked_without(described: &Value) -> Result<Value, io::ErrorKind> {
        let folder = std::env::temp_dir().join(format!("foregate-admin-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("admin.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let answers = [("404 Not Found", json!({ "ok": false })), ("200 OK", described.clone())];
        let server = thread::spawn(move || {
            for (status, answer) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let answer = answer.to_string();
                let head = format!("HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n", answer.len());
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                assert!(lines.by_ref().any(|line| line.is_empty()));
                stream.write_all(format!("{head}{answer}").as_bytes()).unwrap();
            }
        });
        let asked = ask(&socket, &ResourceRequest::get("/v1/new")).map_err(|error| error.kind());
        server.join().unwrap();
        fs::remove_dir_all(&folder).unwrap();
        asked
    }

    #[test]
    fn a_process_without_the_resource_is_older() {
        let described = json!({ "paths": { "/v1/new": { "get": {} } } });
        assert_eq!(asked_without(&described), Ok(json!({ "ok": false })));
        assert_eq!(asked_without(&json!({ "paths": {} })), Err(io::ErrorKind::Unsupported));
        let other_method = json!({ "paths": { "/v1/new": { "post": {} } } });
        assert_eq!(asked_without(&other_method), Err(io::ErrorKind::Unsupported));
    }
}
