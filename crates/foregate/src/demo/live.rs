//! The two endpoints with endless responses: `/events` and `/ws`.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures_util::{SinkExt, Stream, StreamExt, stream};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message, Utf8Bytes,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

/// The largest WebSocket message that is echoed; a longer one ends the connection with code 1009.
const MESSAGE_LIMIT: usize = 1024 * 1024;

/// A WebSocket that has received nothing for this long is closed.
const IDLE_LIMIT: Duration = Duration::from_secs(120);

/// A stream of server-sent events, one per `every`, numbered from `first` on. It ends after `count` events, or never.
pub(crate) fn events(
    first: u64,
    count: Option<u64>,
    every: Duration,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let end = count.map_or(u64::MAX, |count| first.saturating_add(count));
    stream::unfold(first, move |number| async move {
        if number >= end {
            return None;
        }
        // The first event goes out at once, so that a reader sees that the stream is open.
        if number > first {
            tokio::time::sleep(every).await;
        }
        let now = httpdate::fmt_http_date(std::time::SystemTime::now());
        let event = format!("id: {number}\ndata: {{\"number\":{number},\"time\":\"{now}\"}}\n\n");
        Some((Ok(Bytes::from(event)), number + 1))
    })
}

/// Sends every message back until the peer closes, breaks the protocol, or is silent for too long.
pub(crate) async fn echo(upgrade: OnUpgrade) {
    let Ok(upgraded) = upgrade.await else {
        return; // The client left before the switch.
    };
    let limits =
        WebSocketConfig::default().max_message_size(Some(MESSAGE_LIMIT)).max_frame_size(Some(MESSAGE_LIMIT));
    let mut socket =
        WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(limits)).await;
    let farewell = loop {
        let message = match tokio::time::timeout(IDLE_LIMIT, socket.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(Error::Capacity(_)))) => break Some(CloseCode::Size),
            // The peer is gone, has closed the WebSocket, or does not speak the protocol.
            Ok(Some(Err(_)) | None) => return,
            Err(_elapsed) => break None,
        };
        let sent = match message {
            Message::Text(_) | Message::Binary(_) => socket.send(message).await,
            // The library prepares the answers to pings and to the closing handshake; the flush sends them.
            _ => socket.flush().await,
        };
        if sent.is_err() {
            return;
        }
    };
    let frame = farewell.map(|code| CloseFrame { code, reason: Utf8Bytes::default() });
    // The peer may be gone: the socket is dropped next.
    let _ = socket.close(frame).await;
}
