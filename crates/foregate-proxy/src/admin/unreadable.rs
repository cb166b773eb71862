//! Bodies for the answers to requests that cannot be read.
//!
//! The HTTP library answers such requests by itself, with a status and an empty body. [`Explaining`] replaces these answers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{LONGEST_REQUEST, ServingFlag};

/// A client's stream. As long as no request has been read from it, an answer that is written is one of the HTTP library.
pub(super) struct Explaining<S> {
    stream: S,
    asked: ServingFlag,
    /// The rest of an answer of our own.
    own: Vec<u8>,
}

impl<S> Explaining<S> {
    /// `asked` is set when a request has been read.
    pub(super) fn new(stream: S, asked: ServingFlag) -> Self {
        Self { stream, asked, own: Vec::new() }
    }
}

impl<S: AsyncWrite + Unpin> Explaining<S> {
    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.own.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.own))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.own.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Explaining<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Explaining<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.asked.get()
            && let Some(own) = explained(bytes)
        {
            self.own = own;
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_own(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The answer with the reason in JSON. `None` if the bytes are no whole head of an answer with a status of 4xx.
fn explained(head: &[u8]) -> Option<Vec<u8>> {
    let head = str::from_utf8(head).ok().filter(|head| head.ends_with("\r\n\r\n"))?;
    let line = head.lines().next()?;
    let status = line.strip_prefix("HTTP/1.1 ").filter(|status| status.starts_with('4'))?;
    let kib = LONGEST_REQUEST / 1024;
    let error = match status.get(..3)? {
        "400" => "the request is not valid HTTP/1.1".to_owned(),
        "408" => "the request did not arrive in time".to_owned(),
        "414" => "the target of the request is too long".to_owned(),
        "431" => format!("the head of the request is longer than {kib} KiB, or has too many fields"),
        _ => status.to_owned(),
    };
    let body = json!({ "ok": false, "error": error });
    let body = format!("{body}\n");
    let fields = "Content-Type: application/json\r\nCache-Control: no-store\r\nConnection: close";
    Some(format!("{line}\r\n{fields}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::super::http::{respond, serve_one};
    use super::*;

    async fn answer(request: &str) -> String {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        client.write_all(request.as_bytes()).await.unwrap();
        let asked = ServingFlag::default();
        let answer = |_, _| async { respond(StatusCode::NOT_FOUND, "text/plain", "none") };
        let _ = serve_one(server, &asked, answer).await;
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn requests_that_cannot_be_read_get_a_reason() {
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(20_000));
        for (request, status, reason) in [
            ("GET\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n", "not valid HTTP/1.1"),
            ("GET / HTTP/1.1\r\nHo st: a\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n", "not valid HTTP/1.1"),
            (&*long, "HTTP/1.1 431 ", "longer than 8 KiB"),
        ] {
            let text = answer(request).await;
            assert!(text.starts_with(status) && text.contains(reason), "{text}");
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{text}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap()["ok"], false);
        }
        // An answer to a request is not touched.
        let text = answer("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(text.starts_with("HTTP/1.1 404 ") && text.ends_with("\r\n\r\nnone"), "{text}");
    }
}
