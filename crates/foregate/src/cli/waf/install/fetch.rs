//! Downloads one file over HTTPS.

use std::path::PathBuf;
use std::time::Duration;

use foregate_proxy::settings::{UpstreamProtocol, UpstreamTls};
use foregate_proxy::tls::Connector;
use foregate_wire::{
    BodyDecoder, HeadLimits, HeadParser, HeaderList, Method, NameId, ResponseHead, response_length,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The time limit of a download, redirects included.
const TIME: Duration = Duration::from_secs(120);

/// The most redirects of a download.
const MAX_REDIRECTS: usize = 5;

/// Returns the content at this `https:` URL; more than `limit` bytes are an error.
pub(super) fn fetch(url: &str, authorities: Option<PathBuf>, limit: usize) -> Result<Vec<u8>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let fetched = tokio::time::timeout(TIME, follow(url, authorities, limit)).await;
        fetched.map_err(|_| format!("{url}: it takes longer than {} s", TIME.as_secs()))?
    })
}

async fn follow(url: &str, authorities: Option<PathBuf>, limit: usize) -> Result<Vec<u8>, String> {
    let tls = UpstreamTls { authorities, ..UpstreamTls::default() };
    let connector = Connector::new(&tls, UpstreamProtocol::Http1).map_err(|error| error.to_string())?;
    let mut url = url.to_owned();
    for _ in 0..=MAX_REDIRECTS {
        let (head, body) = get(&connector, &url, limit).await.map_err(|error| format!("{url}: {error}"))?;
        match head.status {
            200 => return Ok(body),
            300..400 => {
                let location = head.headers.get(NameId::Location).unwrap_or_default();
                url = elsewhere(&url, &String::from_utf8_lossy(location))?;
            }
            status => return Err(format!("{url}: it is answered with {status}")),
        }
    }
    Err(format!("{url}: more than {MAX_REDIRECTS} redirects"))
}

/// Host, port and the rest of an `https:` URL.
fn parts(url: &str) -> Option<(&str, u16, &str)> {
    let rest = url.strip_prefix("https://")?;
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (authority, 443),
    };
    (!host.is_empty() && !authority.contains('@')).then_some((host, port, path))
}

/// The URL to which a redirect leads. A redirect away from HTTPS is an error.
fn elsewhere(url: &str, location: &str) -> Result<String, String> {
    if location.starts_with('/') && !location.starts_with("//") {
        let authority =
            url.strip_prefix("https://").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        return Ok(format!("https://{authority}{location}"));
    }
    match location.starts_with("https://") {
        true => Ok(location.to_owned()),
        false => Err(format!("{url}: it is redirected to `{location}`, which is not HTTPS")),
    }
}

async fn get(connector: &Connector, url: &str, limit: usize) -> Result<(ResponseHead, Vec<u8>), String> {
    let (host, port, path) = parts(url).ok_or("this is no HTTPS URL")?;
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) || !host.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err("this is no HTTPS URL".into());
    }
    let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    let (mut stream, _) = connector.connect(host, false, stream).await.map_err(|error| error.to_string())?;
    let authority = if port == 443 { host.to_owned() } else { format!("{host}:{port}") };
    let agent = concat!("foregate/", env!("CARGO_PKG_VERSION"));
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {agent}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let answer = read(stream, limit + MAX_FRAMING).await?;
    understand(&answer, limit)
}

/// The most bytes of the head and of the body's framing.
const MAX_FRAMING: usize = 1 << 20;

/// Reads until the connection ends.
async fn read(mut stream: impl AsyncRead + Unpin, limit: usize) -> Result<Vec<u8>, String> {
    let mut answer = Vec::new();
    loop {
        match stream.read_buf(&mut answer).await {
            Ok(0) => return Ok(answer),
            Ok(_) if answer.len() > limit => return Err(format!("it is larger than {limit} bytes")),
            Ok(_) => {}
            // Some servers close without TLS's closing message. The body's framing shows if data is missing.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(answer),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Parses the head and the body of an answer.
fn understand(answer: &[u8], limit: usize) -> Result<(ResponseHead, Vec<u8>), String> {
    let limits = HeadLimits::default();
    let mut head = ResponseHead::new();
    let parsed = HeadParser::new().parse_response(answer, &limits, &mut head);
    let consumed = parsed.map_err(|error| error.to_string())?.ok_or("the answer is cut off")?;
    let length = response_length(&Method::Get, &head).map_err(|error| error.to_string())?;
    let mut decoder = BodyDecoder::new(length, &limits);
    let (mut rest, mut body) = (&answer[consumed..], Vec::new());
    loop {
        let decoded = decoder.decode(rest, &mut HeaderList::new()).map_err(|error| error.to_string())?;
        body.extend_from_slice(&rest[decoded.data]);
        if body.len() > limit {
            return Err(format!("it is larger than {limit} bytes"));
        }
        rest = &rest[decoded.consumed..];
        if decoded.done || decoded.consumed == 0 || rest.is_empty() {
            break;
        }
    }
    decoder.finish_eof().map_err(|error| error.to_string())?;
    Ok((head, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        assert_eq!(parts("https://a.example/b?c"), Some(("a.example", 443, "/b?c")));
        assert_eq!(parts("https://a.example:8443"), Some(("a.example", 8443, "/")));
        for wrong in ["http://a.example/", "https:///", "https://a:b@c/", "https://a:x/", "https://u@a/"] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn answers_are_taken_apart() {
        let body = |answer: &str| understand(answer.as_bytes(), 5).map(|(head, body)| (head.status, body));
        assert_eq!(body("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"), Ok((200, b"ab".to_vec())));
        assert_eq!(body("HTTP/1.0 200 OK\r\n\r\nabc"), Ok((200, b"abc".to_vec())));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n";
        assert_eq!(body(chunked), Ok((200, b"abc".to_vec())));
        assert!(body(&chunked[..chunked.len() - 6]).is_err());
        assert!(body("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na").is_err());
        assert!(
            body("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef").unwrap_err().contains("larger than 5")
        );
        assert!(body("HTTP/1.1 200").is_err() && body("nothing").is_err());
    }

    #[test]
    fn redirects_stay_with_https() {
        let from = "https://a.example/b";
        assert_eq!(elsewhere(from, "/c"), Ok("https://a.example/c".into()));
        assert_eq!(elsewhere(from, "https://d.example/"), Ok("https://d.example/".into()));
        for wrong in ["http://d.example/", "//d.example/", "c", ""] {
            assert!(elsewhere(from, wrong).is_err(), "{wrong}");
        }
    }
}
