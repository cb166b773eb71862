//! The demo origin over real sockets, spoken to in plain bytes.

use std::{net::SocketAddr, time::Instant};

use futures_util::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    task::JoinHandle,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message, tungstenite::protocol::Role};

use super::*;

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

async fn start() -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(serve(listener, async {
        let _ = stopped.await;
    }));
    Running { address, stop, serving }
}

impl Running {
    /// Sends `request` with `Connection: close` and returns head and body of the answer.
    async fn ask(&self, request: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let (line, rest) = request.split_once("\r\n").unwrap_or((request, "\r\n"));
        let head = format!("{line} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n{rest}");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let end = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        (head.to_ascii_lowercase(), answer[end + 4..].to_vec())
    }

    async fn json(&self, request: &str) -> serde_json::Value {
        let (_, body) = self.ask(request).await;
        serde_json::from_slice(&body).unwrap()
    }

    async fn status(&self, request: &str) -> u16 {
        let (head, _) = self.ask(request).await;
        head.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

#[tokio::test]
async fn page_lists_the_endpoints() {
    let demo = start().await;
    let (head, body) = demo.ask("GET /").await;
    assert!(head.starts_with("http/1.1 200"));
    assert!(head.contains("content-type: text/html; charset=utf-8"));
    assert!(head.contains("x-origin: foregate-demo"));
    let body = String::from_utf8(body).unwrap();
    for endpoint in ["/api/echo", "/api/time", "/large", "/slow", "/events", "/ws", "/upload"] {
        assert!(body.contains(endpoint), "{endpoint}");
    }
}

#[tokio::test]
async fn echo_tells_what_arrived() {
    let demo = start().await;
    let told =
        demo.json("PATCH /api/echo?a=b\r\nX-One: 1\r\nX-One: 2\r\nContent-Length: 5\r\n\r\nhello").await;
    assert_eq!(told["method"], "PATCH");
    assert_eq!(told["path"], "/api/echo");
    assert_eq!(told["query"], "a=b");
    assert_eq!(told["version"], "HTTP/1.1");
    assert_eq!(told["body_bytes"], 5);
    let headers = told["headers"].as_array().unwrap();
    assert!(headers.contains(&json!(["x-one", "1"])));
    assert!(headers.contains(&json!(["x-one", "2"])));
}

#[tokio::test]
async fn time_is_now_and_not_stored() {
    let demo = start().await;
    let (head, body) = demo.ask("GET /api/time").await;
    assert!(head.contains("cache-control: no-store"));
    let told: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert!(told["unix_milliseconds"].as_u64().unwrap() > 1_700_000_000_000);
}

#[tokio::test]
async fn large_in_whole_and_in_parts() {
    let demo = start().await;
    let (head, whole) = demo.ask("GET /large?bytes=200000").await;
    assert!(head.contains("content-length: 200000"));
    assert_eq!(whole.len(), 200_000);

    let (head, part) = demo.ask("GET /large?bytes=200000\r\nRange: bytes=1000-1999\r\n\r\n").await;
    assert!(head.starts_with("http/1.1 206"));
    assert!(head.contains("content-range: bytes 1000-1999/200000"));
    assert_eq!(part, &whole[1000..2000]);

    let (head, body) = demo.ask("GET /large?bytes=10\r\nRange: bytes=10-\r\n\r\n").await;
    assert!(head.starts_with("http/1.1 416"));
    assert!(head.contains("content-range: bytes */10"));
    assert!(body.is_empty());

    let stale = "GET /large?bytes=10\r\nRange: bytes=1-2\r\nIf-Range: \"large-9\"\r\n\r\n";
    assert_eq!(demo.status(stale).await, 200);
    let fresh = "GET /large?bytes=10\r\nRange: bytes=1-2\r\nIf-Range: \"large-10\"\r\n\r\n";
    assert_eq!(demo.status(fresh).await, 206);

    let (head, body) = demo.ask("HEAD /large").await;
    assert!(head.contains("content-length: 67108864"));
    assert!(body.is_empty());

    let (_, body) = demo.ask("GET /large?bytes=0").await;
    assert!(body.is_empty());
    assert_eq!(demo.status("GET /large?bytes=1073741825").await, 400);
    assert_eq!(demo.status("GET /large?bytes=-1").await, 400);
}

#[tokio::test]
async fn slow_takes_its_time_within_bounds() {
    let demo = start().await;
    let start = Instant::now();
    let told = demo.json("GET /slow?ms=60").await;
    assert!(start.elapsed() >= Duration::from_millis(60));
    assert_eq!(told["slept_milliseconds"], 60);
    assert_eq!(demo.status("GET /slow?ms=30001").await, 400);
}

#[tokio::test]
async fn events_are_numbered_and_resume() {
    let demo = start().await;
    let (head, body) = demo.ask("GET /events?count=3&every=1").await;
    assert!(head.contains("content-type: text/event-stream"));
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains("id: 1\ndata: {\"number\":1,"), "{body}");
    assert!(body.contains("id: 3\n") && !body.contains("id: 4\n"));

    let (_, body) = demo.ask("GET /events?count=1\r\nLast-Event-ID: 7\r\n\r\n").await;
    assert!(String::from_utf8(body).unwrap().contains("id: 8\n"));
}

#[tokio::test]
async fn statuses() {
    let demo = start().await;
    for code in [200, 204, 301, 304, 404, 418, 503, 999] {
        assert_eq!(demo.status(&format!("GET /status/{code}")).await, code);
    }
    for wrong in ["100", "1000", "abc", ""] {
        assert_eq!(demo.status(&format!("GET /status/{wrong}")).await, 400);
    }
    assert_eq!(demo.status("GET /nothing").await, 404);
    let (head, _) = demo.ask("DELETE /").await;
    assert!(head.starts_with("http/1.1 405") && head.contains("allow: get, head"));
}

#[tokio::test]
async fn upload_counts_both_framings() {
    let demo = start().await;
    let plain = "POST /upload\r\nContent-Length: 6\r\n\r\nabcdef";
    assert_eq!(demo.json(plain).await["bytes"], 6);
    let chunked = "PUT /upload\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
    assert_eq!(demo.json(chunked).await["bytes"], 7);
    assert_eq!(demo.status("GET /upload").await, 400);
}

async fn open_websocket(demo: &Running) -> WebSocketStream<TcpStream> {
    let mut stream = TcpStream::connect(demo.address).await.unwrap();
    // Key and answer of RFC 6455, section 1.3.
    let head = "GET /ws HTTP/1.1\r\nHost: demo\r\nConnection: keep-alive, Upgrade\r\n\
                Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    assert!(answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
    WebSocketStream::from_raw_socket(stream, Role::Client, None).await
}

#[tokio::test]
async fn websocket_echoes_and_closes() {
    let demo = start().await;
    let mut socket = open_websocket(&demo).await;
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("hello"));
    let bytes = Message::binary(vec![7; 100_000]);
    socket.send(bytes.clone()).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), bytes);
    socket.send(Message::Ping(Bytes::from_static(b"p"))).await.unwrap();
    assert!(matches!(socket.next().await.unwrap().unwrap(), Message::Pong(_)));
    socket.close(None).await.unwrap();
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_))) | None));
}

#[tokio::test]
async fn websocket_refuses_a_message_beyond_the_limit() {
    let demo = start().await;
    let mut socket = open_websocket(&demo).await;
    // Fails if the origin closes before all of it is written; the close frame counts.
    let _ = socket.send(Message::binary(vec![0; 1024 * 1024 + 1])).await;
    match socket.next().await {
        Some(Ok(Message::Close(Some(frame)))) => assert_eq!(u16::from(frame.code), 1009),
        // The reset that follows unread bytes may overtake the close frame.
        Some(Err(_)) | None => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn websocket_without_a_handshake_is_426() {
    let demo = start().await;
    let (head, _) = demo.ask("GET /ws").await;
    assert!(head.starts_with("http/1.1 426"), "{head}");
    assert!(head.contains("sec-websocket-version: 13"));
}

async fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
}

#[tokio::test]
async fn shutdown_lets_requests_end_and_closes_idle_connections() {
    let demo = start().await;
    let mut idle = TcpStream::connect(demo.address).await.unwrap();
    let mut busy = TcpStream::connect(demo.address).await.unwrap();
    // The origin has seen both before it is told to stop, one of them to its end.
    idle.write_all(b"GET /status/204 HTTP/1.1\r\nHost: demo\r\n\r\n").await.unwrap();
    read_head(&mut idle).await;
    busy.write_all(b"GET /events?count=3&every=50 HTTP/1.1\r\nHost: demo\r\n\r\n").await.unwrap();
    read_head(&mut busy).await;
    demo.stop.send(()).unwrap();
    let mut answer = String::new();
    busy.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("id: 3"), "{answer}");
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap(), 0);
    tokio::time::timeout(Duration::from_secs(1), demo.serving)
        .await
        .expect("nothing holds the origin")
        .unwrap();
    assert!(TcpStream::connect(demo.address).await.is_err());
}
