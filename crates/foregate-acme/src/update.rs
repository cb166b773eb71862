//! Publishes the TXT records of challenges by dynamic updates of a zone (RFC 2136), over TCP.

mod message;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foregate_proxy::settings::automatic::DnsUpdate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

pub(crate) use self::message::RecordChange;
use self::message::{UpdateMessage, UpdateRefusal};
use crate::failure::{Failure, FailureKind};
use crate::http::connect;

/// The time limit for an update, including the connection.
const PATIENCE: Duration = Duration::from_secs(20);

/// Adds or removes a TXT record.
pub(crate) async fn change(
    update: &DnsUpdate,
    change: RecordChange,
    record: &str,
    value: &str,
) -> Result<(), Failure> {
    let (host, port) = &update.server;
    let failed = |why: String, remedy: &str| {
        let message = format!("dns-update of {} at {host} port {port}: {why}", update.zone);
        Failure::new(FailureKind::Local, message, remedy)
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The id only serves to match an answer to its request, and each connection has one request. So the id
    // need not be hard to guess.
    let id = (now.subsec_micros() & 0xffff) as u16;
    let Some(message) = UpdateMessage::new(update, (change, record, value), id, now.as_secs()) else {
        return Err(failed("the record does not fit in a message".to_owned(), "take a shorter name"));
    };
    let answer = match timeout(PATIENCE, exchange(host, *port, message.bytes())).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            return Err(failed(error.to_string(), "see that this machine can reach it over TCP"));
        }
        Err(_) => {
            let why = format!("no answer within {} s", PATIENCE.as_secs());
            return Err(failed(why, "see that this machine can reach it over TCP"));
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    message.check(&answer, now).map_err(|refusal| failed(refusal.to_string(), remedy(refusal)))
}

/// The advice to the operator for a refusal.
fn remedy(refusal: UpdateRefusal) -> &'static str {
    match refusal {
        UpdateRefusal::Malformed => "see that the address is that of a nameserver that takes updates",
        UpdateRefusal::Unsigned | UpdateRefusal::WrongSignature => {
            "compare `secret` and `algorithm` with the key in the nameserver's configuration"
        }
        UpdateRefusal::Clock => "set the clocks of both machines",
        UpdateRefusal::UnknownKey => {
            "compare `key` and `algorithm` with the nameserver's configuration, and let the key update the zone"
        }
        UpdateRefusal::Code(5) => "let the key, or this machine, update TXT records of the zone",
        UpdateRefusal::Code(9 | 10) => {
            "name the nameserver's own zone in `zone`, and a server that is its primary"
        }
        UpdateRefusal::Code(_) => "see the log of the nameserver",
    }
}

/// Sends a message, and returns the answer. Over TCP, two bytes with the length precede each message (RFC
/// 1035, section 4.2.2), so an answer has at most 64 KiB.
async fn exchange(
    host: &str,
    port: u16,
    message: &[u8],
) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
    let mut stream = connect(host, port).await?;
    let mut framed = u16::try_from(message.len())?.to_be_bytes().to_vec();
    framed.extend(message);
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
