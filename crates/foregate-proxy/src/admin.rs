//! The admin socket and the metrics endpoint.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::link::Socket;
use crate::listener::Listener;
use crate::proxy::Proxy;

/// The longest admin request or metrics request head, in bytes.
const LONGEST_REQUEST: u64 = 8 * 1024;
/// How long a client of either may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clients of either that are served at the same time.
const CLIENTS: usize = 16;
/// How long accepting pauses when there are no descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// What an admin asks for.
#[derive(Debug)]
pub enum Request {
    /// Read the configuration again; the answer says why it was refused.
    Reload(oneshot::Sender<Result<(), String>>),
}

/// Serves the admin socket: one line of JSON in, one line out.
pub async fn serve(listener: UnixListener, requests: mpsc::Sender<Request>) {
    let places = Arc::new(Semaphore::new(CLIENTS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let requests = requests.clone();
                tokio::spawn(async move {
                    if let Err(error) = answer(stream, requests).await {
                        tracing::debug!(%error, "admin client");
                    }
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn answer(stream: UnixStream, requests: mpsc::Sender<Request>) -> io::Result<()> {
    let credentials = stream.peer_cred()?;
    let own = rustix::process::geteuid().as_raw();
    let mut stream = BufReader::new(stream);
    let allowed = credentials.uid() == own || credentials.uid() == 0;
    let line = if allowed {
        let mut line = Vec::new();
        timeout(PATIENCE, (&mut stream).take(LONGEST_REQUEST).read_until(b'\n', &mut line)).await??;
        reply(&line, &requests).await
    } else {
        refusal("only the user that runs the proxy may ask")
    };
    stream.write_all(line.as_bytes()).await
}

async fn reply(line: &[u8], requests: &mpsc::Sender<Request>) -> String {
    let Some(verb) = serde_json::from_slice::<serde_json::Value>(line)
        .ok()
        .and_then(|request| Some(request.get("verb")?.as_str()?.to_owned()))
    else {
        return refusal("expected one line such as {\"verb\":\"reload\"}");
    };
    if verb != "reload" {
        return refusal(&format!("unknown verb {verb:?}; known is: reload"));
    }
    let (answer, answered) = oneshot::channel();
    if requests.send(Request::Reload(answer)).await.is_err() {
        return refusal("the proxy is stopping");
    }
    match answered.await {
        Ok(Ok(())) => "{\"ok\":true}\n".to_owned(),
        Ok(Err(error)) => refusal(&error),
        Err(_) => refusal("the proxy is stopping"),
    }
}

fn refusal(error: &str) -> String {
    format!("{}\n", serde_json::json!({ "ok": false, "error": error }))
}

/// Serves the metrics to whoever asks for `/metrics`.
pub async fn serve_metrics(listener: Listener, proxy: Arc<Proxy>) {
    let places = Arc::new(Semaphore::new(CLIENTS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((socket, _)) => {
                let proxy = Arc::clone(&proxy);
                tokio::spawn(async move {
                    // A client that fails or dawdles is its own loss.
                    let _ = timeout(PATIENCE, metrics(socket, &proxy)).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn metrics(socket: Socket, proxy: &Proxy) -> io::Result<()> {
    let mut socket = BufReader::new(socket);
    let mut head = Vec::new();
    let mut limited = (&mut socket).take(LONGEST_REQUEST);
    while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        if limited.read_until(b'\n', &mut head).await? == 0 {
            return Ok(());
        }
    }
    let target = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let (status, kind, body) = match (head.starts_with(b"GET ") || head.starts_with(b"HEAD "), target) {
        (true, b"/metrics") => {
            ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", proxy.metrics.render())
        }
        (true, _) => ("404 Not Found", "text/plain", "see /metrics\n".to_owned()),
        (false, _) => ("405 Method Not Allowed", "text/plain", "only GET and HEAD\n".to_owned()),
    };
    respond(&mut socket, status, kind, &body, head.starts_with(b"HEAD ")).await
}

async fn respond(
    out: &mut (impl AsyncWrite + Unpin),
    status: &str,
    kind: &str,
    body: &str,
    head_only: bool,
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    out.write_all(head.as_bytes()).await?;
    if !head_only {
        out.write_all(body.as_bytes()).await?;
    }
    out.shutdown().await
}
