//! The client of the admin interface: HTTP over the Unix socket, as `/v1/openapi.json` describes it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

/// The time limit of an answer. A reload takes longest.
const PATIENCE: Duration = Duration::from_secs(60);

/// The largest answer of the process, in bytes.
const ANSWER_LIMIT: u64 = 16 << 20;

/// The resource with the figures of each second.
const EVENTS: &str = "/v1/events";

/// A request to a resource.
#[derive(Debug, PartialEq)]
struct ResourceRequest {
    method: &'static str,
    path: &'static str,
    body: Option<Value>,
}

impl ResourceRequest {
    /// The request for an order such as `{"verb":"reload"}`. `None` if no resource has it.
    fn of(order: &Value) -> Option<Self> {
        let get = |path| Some(Self { method: "GET", path, body: None });
        let post = |path, body| Some(Self { method: "POST", path, body });
        match order["verb"].as_str()? {
            "reload" => post("/v1/reload", None),
            "status" => get("/v1/status"),
            "certificates" => get("/v1/certificates"),
            "upstreams" => match &order["set"] {
                Value::Null => get("/v1/upstreams"),
                set => post("/v1/servers", Some(set.clone())),
            },
            "migrate" => get("/v1/migration"),
            "cache-stat" => get("/v1/cache"),
            "cache-purge" => post("/v1/cache/purge", Some(named_members(order))),
            _ => None,
        }
    }

    /// The bytes of the request. With HTTP/1.0, the answer has no chunks and ends with the connection.
    fn bytes(&self) -> Vec<u8> {
        let mut head =
            format!("{} {} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n", self.method, self.path);
        let body = self.body.as_ref().map(Value::to_string).unwrap_or_default();
        if self.method == "POST" {
            head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        format!("{head}\r\n{body}").into_bytes()
    }
}

/// The members of an order that say something, without the verb.
fn named_members(order: &Value) -> Value {
    let says = |value: &Value| !value.is_null() && *value != Value::Bool(false);
    let members = order.as_object().into_iter().flatten();
    let named = members.filter(|(name, value)| *name != "verb" && says(value));
    Value::Object(named.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
}

/// Sends an order to the process, and returns its answer.
pub(super) fn ask(admin: &Path, order: &Value) -> io::Result<Value> {
    let Some(request) = ResourceRequest::of(order) else { return ask_by_line(admin, order) };
    let mut stream = connect(admin)?;
    stream.write_all(&request.bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_LIMIT).read_to_end(&mut answer)?;
    let body = body(&answer).ok_or_else(|| invalid("the answer is cut off, or no HTTP"))?;
    serde_json::from_slice(body).map_err(|_| invalid("the answer is not JSON"))
}

/// Sends one line of JSON and returns the answer, which is also one line: for orders that no resource has.
fn ask_by_line(admin: &Path, order: &Value) -> io::Result<Value> {
    let mut stream = connect(admin)?;
    stream.write_all(format!("{order}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_LIMIT)).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(|_| invalid("the answer is not JSON"))
}

/// The figures of each second, until the process ends. An answer that refuses them is the only value.
pub(super) fn figures(
    admin: &Path,
    patience: Duration,
) -> io::Result<impl FnMut() -> io::Result<Option<Value>> + Send + 'static> {
    let mut stream = connect(admin)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(&ResourceRequest { method: "GET", path: EVENTS, body: None }.bytes())?;
    let mut lines = BufReader::new(stream).lines();
    Ok(move || {
        for line in lines.by_ref() {
            let line = line?;
            let value = line.strip_prefix("data: ").or(line.starts_with('{').then_some(&*line));
            if let Some(value) = value {
                return Ok(Some(serde_json::from_str(value)?));
            }
        }
        Ok(None)
    })
}

fn connect(admin: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(admin)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The body of an answer. `None` if the answer is cut off. A process of another user answers with a bare line.
fn body(answer: &[u8]) -> Option<&[u8]> {
    if answer.first() == Some(&b'{') {
        return Some(answer);
    }
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = answer.split_at_checked(end + 4)?;
    let head = std::str::from_utf8(head).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
    })?;
    (body.len() == length).then_some(body)
}

fn invalid(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn orders_go_to_their_resources() {
        let of = |order: Value| {
            ResourceRequest::of(&order).map(|request| (request.method, request.path, request.body))
        };
        assert_eq!(of(json!({ "verb": "reload" })), Some(("POST", "/v1/reload", None)));
        assert_eq!(of(json!({ "verb": "upstreams" })), Some(("GET", "/v1/upstreams", None)));
        let set = json!({ "upstream": "a", "server": "b", "order": "drain" });
        assert_eq!(
            of(json!({ "verb": "upstreams", "set": set })),
            Some(("POST", "/v1/servers", Some(set.clone())))
        );
        let purge =
            json!({ "verb": "cache-purge", "url": "http://a/", "tag": null, "all": false, "soft": true });
        let body = json!({ "url": "http://a/", "soft": true });
        assert_eq!(of(purge), Some(("POST", "/v1/cache/purge", Some(body))));
        assert_eq!(of(json!({ "verb": "cache-get", "url": "http://a/" })), None);
    }

    #[test]
    fn a_cut_off_answer_is_none() {
        assert_eq!(body(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}"), Some(&b"{}"[..]));
        assert_eq!(body(b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\n{}"), None);
        assert_eq!(body(b"HTTP/1.0 200 OK\r\n"), None);
        assert_eq!(body(b"{\"ok\":false}\n"), Some(&b"{\"ok\":false}\n"[..]));
        assert_eq!(body(b""), None);
    }
}
