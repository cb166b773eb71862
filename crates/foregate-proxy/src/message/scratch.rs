//! Memory for a request and its response, which the requests of a thread reuse one after the other.

use super::request::Request;
use super::response::Response;
use crate::error::Error;
use crate::shelf::{self, Shelf};

/// The number of objects that a thread keeps.
const KEPT: usize = 128;

/// A request and its response, empty when they are taken.
///
/// Another connection may have used the object before. Its forwarding fields stay in it, but they are
/// only used again for the same client address, so they reveal nothing to other clients.
#[derive(Debug)]
pub struct Scratch {
    /// The request.
    pub request: Request,
    /// Its response.
    pub response: Response,
    /// The result of admission control, until the request is served.
    pub admitted: Result<(), Unserved>,
}

/// Why a request must not be served.
#[derive(Debug, Clone, Copy)]
pub enum Unserved {
    /// The request is malformed.
    Malformed(Error),
    /// There is no memory for it.
    NotAdmitted(Error),
}

thread_local! {
    // Boxed, so that moving a value into a task and back copies no more than a pointer.
    static SCRATCH: Shelf<Box<Scratch>> = const { Shelf::new(KEPT) };
}

impl Scratch {
    /// An object of this thread's shelf, or a new one.
    pub fn take() -> Box<Self> {
        shelf::take(&SCRATCH).unwrap_or_else(|| {
            Box::new(Self { request: Request::new(), response: Response::new(), admitted: Ok(()) })
        })
    }

    /// Returns the object to the shelf.
    pub fn give(mut self: Box<Self>) {
        self.request.put_away();
        self.response.put_away();
        shelf::give(&SCRATCH, self);
    }
}

#[cfg(test)]
mod tests {
    use foregate_wire::{HeadLimits, HeadParser, NameId};

    use super::*;

    /// Parses a head, and has it understood.
    fn understand(scratch: &mut Scratch, text: &str) {
        let limits = HeadLimits::default();
        let parsed = HeadParser::new().parse_request(text.as_bytes(), &limits, &mut scratch.request.head);
        assert_eq!(parsed, Ok(Some(text.len())));
        scratch.request.understand_h1(Default::default()).unwrap();
    }

    #[test]
    fn the_next_sees_nothing_of_the_last() {
        let mut scratch = Scratch::take();
        let (line, fields) = ("POST /a?b HTTP/1.1\r\n", "Host: one.example:81\r\nCookie: secret\r\n\r\n");
        understand(&mut scratch, &format!("{line}{fields}"));
        scratch.response.status = 404;
        scratch.response.headers.push_id(NameId::SetCookie, b"secret");
        scratch.give();

        let mut scratch = Scratch::take();
        assert!(!format!("{:?}", scratch.request.head).contains("ookie"), "not what is remembered either");
        assert_eq!((scratch.request.authority.host(), scratch.request.target.as_bytes()), ("", &b""[..]));
        assert_eq!((scratch.response.status, scratch.response.headers.len()), (0, 0));
        for text in [format!("{line}{fields}"), "GET / HTTP/1.1\r\nHost: two.example\r\n\r\n".to_owned()] {
            understand(&mut scratch, &text);
        }
        assert_eq!(
            (scratch.request.authority.as_str(), scratch.request.target.as_bytes()),
            ("two.example", &b"/"[..])
        );
        assert_eq!(scratch.request.head.headers.get(NameId::Cookie), None);
    }
}
