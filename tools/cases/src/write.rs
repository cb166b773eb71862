//! The steps that write: raw bytes, requests, responses, HTTP/2 frames.

use std::time::Duration;

use crate::case::{FrameOut, Request, Respond, Send};
use crate::http2::{self, HeadersShape, PREFACE, settings_payload};
use crate::script::Script;
use crate::wire::Wrote;

/// Bytes that a repeated text is written in at once.
const WRITE_BLOCK: usize = 1 << 20;

impl Script<'_> {
    /// Writes; that the peer has gone is for the next step to see.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), String> {
        match self.conn()?.write(bytes, false) {
            Wrote::All => Ok(()),
            Wrote::Stalled(done) => Err(format!("the peer stopped reading after {done} bytes")),
            Wrote::Broken(error) => {
                self.shared.note(&self.name, &format!("  (writing: {error})"));
                Ok(())
            }
        }
    }

    pub(crate) fn send(&mut self, send: &Send) -> Result<(), String> {
        let text = self.bytes(&send.text)?;
        if send.drip.is_some() || send.piece.is_some() {
            for piece in text.repeat(send.times).chunks(send.piece.unwrap_or(1).max(1)) {
                self.put(piece)?;
                self.shared.pause(send.drip.unwrap_or(Duration::from_millis(1)));
            }
            return Ok(());
        }
        self.put_times(&text, send.times, send.stalls)
    }

    fn put_times(&mut self, text: &[u8], times: usize, stalls: bool) -> Result<(), String> {
        let in_block = (WRITE_BLOCK / text.len().max(1)).clamp(1, times.max(1));
        let block = text.repeat(in_block);
        let (mut left, mut done) = (times, 0);
        while left > 0 {
            let count = left.min(in_block);
            let piece = &block[..text.len() * count];
            if !stalls {
                self.put(piece)?;
            } else {
                match self.conn()?.write(piece, true) {
                    Wrote::All => {}
                    Wrote::Stalled(_) => return Ok(()),
                    Wrote::Broken(error) => {
                        return Err(format!("no stall, but after {done} bytes: {error}"));
                    }
                }
            }
            done += piece.len();
            left -= count;
        }
        if stalls { Err(format!("all {done} bytes were taken, no stall")) } else { Ok(()) }
    }

    pub(crate) fn request(&mut self, request: &Request) -> Result<(), String> {
        let (method, target) = (self.bytes(&request.method)?, self.bytes(&request.target)?);
        let host =
            request.host.as_ref().map_or_else(|| Ok(b"example.com".to_vec()), |host| self.bytes(host))?;
        let fields: Vec<Vec<u8>> =
            request.fields.iter().map(|field| self.bytes(field)).collect::<Result<_, _>>()?;
        let body = request.body.as_ref().map(|body| self.bytes(body)).transpose()?;
        let Some(h2) = &mut self.http2 else {
            let mut head =
                [&method[..], b" ", &target[..], b" HTTP/1.1\r\nHost: ", &host[..], b"\r\n"].concat();
            append_fields(&mut head, &fields);
            return self.put_with_body(head, body.as_deref(), 1, !request.open);
        };
        let number = h2.open_stream(request.stream);
        let conn = self.conn.as_mut().ok_or("there is no connection")?;
        let scheme = if conn.alpn.is_some() { "https" } else { "http" };
        let mut all = vec![
            [b":method: ", &method[..]].concat(),
            format!(":scheme: {scheme}").into_bytes(),
            [b":authority: ", &host[..]].concat(),
            [b":path: ", &target[..]].concat(),
        ];
        all.extend(fields);
        let end = body.is_none() && !request.open;
        http2::write_headers(
            conn,
            number,
            &all,
            HeadersShape { end, open_block: false, continuation: false },
        )?;
        match body {
            Some(body) if !h2.send_data(conn, number, &body, !request.open)? => {
                Err("the window stayed full".to_owned())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn respond(&mut self, respond: &Respond) -> Result<(), String> {
        let fields: Vec<Vec<u8>> =
            respond.fields.iter().map(|field| self.bytes(field)).collect::<Result<_, _>>()?;
        let body = respond.body.as_ref().map(|body| self.bytes(body)).transpose()?;
        let Some(h2) = &mut self.http2 else {
            let reason = reason(respond.status);
            let mut head = format!("HTTP/1.1 {} {reason}\r\n", respond.status).into_bytes();
            append_fields(&mut head, &fields);
            let bodyless = respond.open || matches!(respond.status, 100..200 | 204 | 304);
            let body = if bodyless { body } else { Some(body.unwrap_or_default()) };
            return self.put_with_body(head, body.as_deref(), respond.times, !bodyless);
        };
        let number = respond.stream.unwrap_or(h2.current);
        let conn = self.conn.as_mut().ok_or("there is no connection")?;
        let mut all = vec![format!(":status: {}", respond.status).into_bytes()];
        all.extend(fields);
        let end = body.is_none() && !respond.open && respond.status >= 200;
        http2::write_headers(
            conn,
            number,
            &all,
            HeadersShape { end, open_block: false, continuation: false },
        )?;
        let body = body.map(|body| body.repeat(respond.times));
        match body {
            Some(body) if !h2.send_data(conn, number, &body, !respond.open)? => {
                Err("the window stayed full".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn put_with_body(
        &mut self,
        mut head: Vec<u8>,
        body: Option<&[u8]>,
        times: usize,
        length: bool,
    ) -> Result<(), String> {
        let body = body.filter(|_| length || body.is_some());
        if let (true, Some(body)) = (length, body) {
            head.extend(format!("Content-Length: {}\r\n", body.len() * times).into_bytes());
        }
        head.extend_from_slice(b"\r\n");
        let body = body.unwrap_or_default();
        if body.len() * times <= WRITE_BLOCK {
            head.extend(body.repeat(times));
            return self.put(&head);
        }
        self.put(&head)?;
        self.put_times(body, times, false)
    }

    pub(crate) fn write_frame(&mut self, frame: &FrameOut) -> Result<(), String> {
        let variables = &self.shared.variables;
        let h2 = self.http2.as_mut().ok_or("this connection does not speak HTTP/2")?;
        let conn = self.conn.as_mut().ok_or("there is no connection")?;
        match frame {
            FrameOut::Headers { fields, stream, end, open_block, continuation } => {
                let fields: Vec<Vec<u8>> =
                    fields.iter().map(|field| field.bytes(variables)).collect::<Result<_, _>>()?;
                let request = fields.iter().any(|field| field.starts_with(b":method"));
                let number = if request { h2.open_stream(*stream) } else { stream.unwrap_or(h2.current) };
                let shape = HeadersShape { end: *end, open_block: *open_block, continuation: *continuation };
                http2::write_headers(conn, number, &fields, shape)
            }
            FrameOut::Data { text, stream, end, force, stalls } => {
                let bytes = text.bytes(variables)?;
                let number = stream.unwrap_or(h2.current);
                if *force {
                    return http2::write_frame(conn, 0, u8::from(*end), number, &bytes);
                }
                match (h2.send_data(conn, number, &bytes, *end)?, stalls) {
                    (true, true) => Err("everything was taken, no stall".to_owned()),
                    (false, false) => Err("the window stayed full".to_owned()),
                    _ => Ok(()),
                }
            }
            FrameOut::Rst(stream, code) => {
                http2::write_frame(conn, 3, 0, stream.unwrap_or(h2.current), &code.to_be_bytes())
            }
            FrameOut::Settings(settings) => http2::write_frame(conn, 4, 0, 0, &settings_payload(settings)),
            FrameOut::Ping => http2::write_frame(conn, 6, 0, 0, b"foregate"),
            FrameOut::Window(stream, increment) => {
                http2::write_frame(conn, 8, 0, *stream, &increment.to_be_bytes())
            }
            FrameOut::Goaway(code) => http2::write_frame(
                conn,
                7,
                0,
                0,
                &[&h2.current.to_be_bytes()[..], &code.to_be_bytes()[..]].concat(),
            ),
            FrameOut::Raw(kind, flags, stream, payload) => http2::write_frame(
                conn,
                *kind,
                *flags,
                stream.unwrap_or(h2.current),
                &payload.bytes(variables)?,
            ),
            FrameOut::Preface => self.put(PREFACE),
        }
    }
}

fn append_fields(head: &mut Vec<u8>, fields: &[Vec<u8>]) {
    for field in fields {
        head.extend_from_slice(field);
        head.extend_from_slice(b"\r\n");
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        204 => "No Content",
        304 => "Not Modified",
        404 => "Not Found",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Scripted",
    }
}
