//! The origin behind the proxy, scripted by the request: a POST to `/reflect` describes the response as JSON with
//! `status`, `headers`, `body` or `encodedBody`; everything else is answered with 200 and no body.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The most that is read of a request's body, bytes.
const BODY: u64 = 64 << 20;

/// Starts it; it ends with the process.
///
/// # Errors
///
/// No socket can be had.
pub(super) fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection that fails has told its proxy.
            thread::spawn(move || drop(serve(&stream)));
        }
    });
    Ok(address)
}

fn serve(stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (method, target) = (method.to_owned(), target.to_owned());
        let (mut length, mut chunked) = (0, false);
        loop {
            let mut field = Vec::new();
            reader.read_until(b'\n', &mut field)?;
            let field = String::from_utf8_lossy(&field).trim_end().to_owned();
            if field.is_empty() {
                break;
            }
            let (name, value) = field.split_once(':').unwrap_or((&field, ""));
            match &*name.to_ascii_lowercase() {
                "content-length" => length = value.trim().parse().unwrap_or(0),
                "transfer-encoding" => chunked = true,
                _ => {}
            }
        }
        let mut body = Vec::new();
        if chunked {
            read_chunks(&mut reader, &mut body)?;
        } else {
            reader.by_ref().take(length.min(BODY)).read_to_end(&mut body)?;
        }
        let path = target.split('?').next().unwrap_or_default();
        let answer = match (&*method, path) {
            ("POST", "/reflect" | "/reflect/") => reflect(&body),
            _ => b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
        };
        (&*stream).write_all(&answer)?;
        if method == "CONNECT" {
            return Ok(());
        }
    }
}

fn read_chunks(reader: &mut BufReader<&TcpStream>, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = line.trim().split(';').next().unwrap_or_default();
        let size = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
        if size > BODY {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        reader.by_ref().take(size).read_to_end(body)?;
        line.clear();
        reader.read_line(&mut line)?;
        if size == 0 {
            return Ok(());
        }
    }
}

fn reflect(body: &[u8]) -> Vec<u8> {
    let Ok(wanted) = serde_json::from_slice::<Value>(body) else {
        return b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec();
    };
    let status = wanted["status"].as_u64().unwrap_or(200);
    let content = match (wanted["body"].as_str(), wanted["encodedBody"].as_str()) {
        (Some(body), _) if !body.is_empty() => body.as_bytes().to_vec(),
        (_, Some(encoded)) => STANDARD.decode(encoded).unwrap_or_default(),
        _ => Vec::new(),
    };
    let mut answer = format!("HTTP/1.1 {status} X\r\n");
    let mut typed = false;
    if let Some(headers) = wanted["headers"].as_object() {
        for (name, value) in headers {
            typed |= name.eq_ignore_ascii_case("content-type");
            if !name.eq_ignore_ascii_case("content-length") {
                answer.push_str(&format!("{name}: {}\r\n", value.as_str().unwrap_or_default()));
            }
        }
    }
    if !typed && !content.is_empty() {
        answer.push_str(&format!("Content-Type: {}; charset=utf-8\r\n", media_type(&content)));
    }
    answer.push_str(&format!("Content-Length: {}\r\n\r\n", content.len()));
    let mut answer = answer.into_bytes();
    answer.extend_from_slice(&content);
    answer
}

/// The apparent type of a body.
fn media_type(content: &[u8]) -> &'static str {
    let start = content.trim_ascii_start();
    let begins =
        |tag: &str| start.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag.as_bytes()));
    let html = [
        "<!doctype html",
        "<html",
        "<head",
        "<script",
        "<iframe",
        "<h1",
        "<div",
        "<font",
        "<table",
        "<a",
        "<style",
        "<title",
        "<b",
        "<body",
        "<br",
        "<p",
        "<!--",
    ];
    match () {
        () if begins("<?xml") => "text/xml",
        () if html.iter().any(|tag| begins(tag)) => "text/html",
        () => "text/plain",
    }
}
