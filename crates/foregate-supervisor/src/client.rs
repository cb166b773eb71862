//! The client side of the coordination socket: a command sends one line of JSON to a supervisor, and gets
//! lines of JSON back.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::rendezvous;

/// The most bytes of an answer.
const ANSWER_LIMIT: u64 = 64 << 20;

/// Sends a request to the supervisor of a configuration. Calls `line` with each line of the answer and
/// returns the last line. `patience` is the time limit for each line.
///
/// # Errors
///
/// `NotFound`: no supervisor of this configuration runs. Otherwise the system's error.
pub fn ask(
    configuration: &Path,
    request: &Value,
    patience: Option<Duration>,
    mut line: impl FnMut(&Value),
) -> io::Result<Value> {
    let mut refused = None;
    for path in rendezvous::candidates(configuration) {
        match UnixStream::connect(&path) {
            Ok(stream) => return converse(stream, request, patience, &mut line),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && path.exists() => {
                refused = Some(error);
            }
            // There is no socket at this path, or no process listens on it.
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

fn converse(
    mut stream: UnixStream,
    request: &Value,
    patience: Option<Duration>,
    line: &mut impl FnMut(&Value),
) -> io::Result<Value> {
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut reader = BufReader::new(stream.take(ANSWER_LIMIT));
    loop {
        let mut text = String::new();
        if reader.read_line(&mut text)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the supervisor has gone"));
        }
        let answer: Value = serde_json::from_str(&text)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the answer is not JSON"))?;
        line(&answer);
        if answer.get("ok").is_some() {
            return Ok(answer);
        }
    }
}
