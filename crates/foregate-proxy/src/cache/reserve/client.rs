//! Requests to the object storage: signs addresses, and reuses a few connections.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rusty_s3::actions::{ListObjectsV2, ListObjectsV2Response};
use rusty_s3::{Bucket, Credentials, S3Action};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::settings::{CacheReserve, UpstreamProtocol, UpstreamTls};
use crate::tls::{Connector, TlsError};

/// The validity of a signature. It has to cover the time until the request arrives, and differences between clocks.
const VALID: Duration = Duration::from_secs(300);
/// The most idle connections.
const IDLE: usize = 16;
/// The longest time that a connection stays idle.
const IDLE_TIME: Duration = Duration::from_secs(15);
/// The longest record, bytes.
const LARGEST: usize = 65 << 20;
/// The longest file of credentials, bytes.
const CREDENTIALS: u64 = 64 * 1024;
/// How often the file of credentials is read.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// The time limit of a request to the storage for which no client waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// The reason why a request to the storage came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum StorageFailure {
    #[error("no answer in time")]
    Timeout,
    #[error("{0}")]
    Io(String),
    #[error("the storage answers {0}{1}")]
    Status(StatusCode, String),
    #[error("no credentials: {0}")]
    Credentials(String),
}

impl StorageFailure {
    /// Returns true if the same request may succeed soon.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Timeout | Self::Io(_) | Self::Credentials(_) => true,
            Self::Status(status, _) => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

/// A client for one bucket.
pub(super) struct StorageClient {
    bucket: Bucket,
    connector: Option<Connector>,
    host: String,
    port: u16,
    authority: HeaderValue,
    file: Option<PathBuf>,
    credentials: Mutex<Option<(Instant, Arc<Credentials>)>>,
    idle: Mutex<Vec<(Instant, SendRequest<Full<Bytes>>)>>,
}

/// The reason why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnusableReserve {
    #[error("`reserve`: {0}")]
    Address(String),
    #[error("`reserve`: {0}")]
    Tls(#[from] TlsError),
    #[error("`reserve`: {0}")]
    Credentials(StorageFailure),
}

impl StorageClient {
    pub fn new(settings: &CacheReserve) -> Result<Self, UnusableReserve> {
        let bucket = settings.bucket().map_err(UnusableReserve::Address)?;
        let url = bucket.base_url();
        let secure = url.scheme() == "https";
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().unwrap_or(443);
        let authority = url.port().map_or_else(
            || url.host_str().unwrap_or_default().to_owned(),
            |port| format!("{}:{port}", url.host_str().unwrap_or_default()),
        );
        let authority =
            HeaderValue::from_str(&authority).map_err(|error| UnusableReserve::Address(error.to_string()))?;
        let tls = UpstreamTls { authorities: settings.authorities.clone(), ..UpstreamTls::default() };
        let connector = match secure {
            true => Some(Connector::new(&tls, UpstreamProtocol::Http1)?),
            false => None,
        };
        let file = settings.credentials.clone();
        let (credentials, idle) = (Mutex::default(), Mutex::default());
        let client = Self { bucket, connector, host, port, authority, file, credentials, idle };
        // Without this check, the process would start and serve without the reserve, unnoticed.
        client.credentials().map_err(UnusableReserve::Credentials)?;
        Ok(client)
    }

    /// The credentials, from the file (read again each minute) or the environment.
    fn credentials(&self) -> Result<Arc<Credentials>, StorageFailure> {
        let mut kept = self.credentials.lock();
        if let Some((since, credentials)) = &*kept
            && since.elapsed() < READ_AGAIN
        {
            return Ok(Arc::clone(credentials));
        }
        let read = match &self.file {
            Some(file) => read_file(file)
                .map_err(|error| StorageFailure::Credentials(format!("{}: {error}", file.display())))
                .and_then(|text| {
                    let missing = || {
                        let lines = "aws_access_key_id and aws_secret_access_key";
                        StorageFailure::Credentials(format!("{} has no lines {lines}", file.display()))
                    };
                    read_credentials(&String::from_utf8_lossy(&text)).ok_or_else(missing)
                }),
            None => Credentials::from_env().ok_or_else(|| {
                let message =
                    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file: `credentials=FILE`";
                StorageFailure::Credentials(message.to_owned())
            }),
        };
        match (read, &*kept) {
            (Ok(read), _) => {
                let read = Arc::new(read);
                *kept = Some((Instant::now(), Arc::clone(&read)));
                Ok(read)
            }
            // The file may be in the middle of a replacement: use the previous credentials, which may still be valid.
            (Err(_), Some((_, credentials))) => Ok(Arc::clone(credentials)),
            (Err(error), None) => Err(error),
        }
    }

    /// The bytes of an object; `None` if there is none.
    pub async fn get(&self, name: &str, patience: Duration) -> Result<Option<Bytes>, StorageFailure> {
        let credentials = self.credentials()?;
        let url = self.bucket.get_object(Some(&credentials), name).sign(VALID);
        match self.send(Method::GET, url.as_str(), Bytes::new(), patience).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StorageFailure::Status(StatusCode::NOT_FOUND, _)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores an object.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<(), StorageFailure> {
        let credentials = self.credentials()?;
        let url = self.bucket.put_object(Some(&credentials), name).sign(VALID);
        self.send(Method::PUT, url.as_str(), bytes, PATIENCE).await.map(drop)
    }

    /// Removes an object. A missing object is not an error.
    pub async fn delete(&self, name: &str) -> Result<(), StorageFailure> {
        let credentials = self.credentials()?;
        let url = self.bucket.delete_object(Some(&credentials), name).sign(VALID);
        match self.send(Method::DELETE, url.as_str(), Bytes::new(), PATIENCE).await {
            Ok(_) | Err(StorageFailure::Status(StatusCode::NOT_FOUND, _)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A part of the list of objects with this prefix: those with names after `after`.
    pub async fn list(
        &self,
        prefix: &str,
        after: &str,
        token: Option<&str>,
    ) -> Result<ListObjectsV2Response, StorageFailure> {
        let credentials = self.credentials()?;
        let mut action = self.bucket.list_objects_v2(Some(&credentials));
        action.with_prefix(prefix);
        match token {
            Some(token) => action.with_continuation_token(token),
            None if after.is_empty() => {}
            None => action.with_start_after(after),
        }
        let url = action.sign(VALID);
        let bytes = self.send(Method::GET, url.as_str(), Bytes::new(), PATIENCE).await?;
        ListObjectsV2::parse_response(&String::from_utf8_lossy(&bytes))
            .map_err(|error| StorageFailure::Io(format!("a list that cannot be read: {error}")))
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<Bytes, StorageFailure> {
        timeout(patience, self.exchange(&method, url, &body)).await.unwrap_or(Err(StorageFailure::Timeout))
    }

    async fn exchange(&self, method: &Method, url: &str, body: &Bytes) -> Result<Bytes, StorageFailure> {
        let uri: Uri =
            url.parse().map_err(|_| StorageFailure::Io("an address that cannot be sent".to_owned()))?;
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        loop {
            let (mut sender, is_new) = match self.waiting() {
                Some(sender) => (sender, false),
                None => (self.connect().await?, true),
            };
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = method.clone();
            *request.uri_mut() = target.parse().map_err(io)?;
            request.headers_mut().insert(HOST, self.authority.clone());
            if !body.is_empty() || *method == Method::PUT {
                request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
            }
            match sender.send_request(request).await {
                Ok(response) => {
                    let (head, answer) = response.into_parts();
                    let answer = Limited::new(answer, LARGEST).collect().await.map_err(io)?.to_bytes();
                    self.keep(sender);
                    return match head.status.is_success() {
                        true => Ok(answer),
                        false => Err(StorageFailure::Status(head.status, code(&answer))),
                    };
                }
                // The storage has closed the idle connection. Every request of this client may be repeated.
                Err(_) if !is_new => {}
                Err(error) => return Err(io(error)),
            }
        }
    }

    fn waiting(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock();
        while let Some((since, sender)) = idle.pop() {
            if sender.is_ready() && since.elapsed() < IDLE_TIME {
                return Some(sender);
            }
        }
        None
    }

    fn keep(&self, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock();
        idle.retain(|(since, sender)| !sender.is_closed() && since.elapsed() < IDLE_TIME);
        if idle.len() < IDLE && !sender.is_closed() {
            idle.push((Instant::now(), sender));
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, StorageFailure> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(io)?;
        // A failure only makes the connection slower.
        let _ = stream.set_nodelay(true);
        let Some(connector) = &self.connector else {
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io)?;
            tokio::spawn(connection);
            return Ok(sender);
        };
        let (stream, _) = connector.connect(&self.host, true, stream).await.map_err(io)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io)?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

fn io(error: impl std::fmt::Display) -> StorageFailure {
    StorageFailure::Io(error.to_string())
}

/// The error code in the storage's answer, with a colon before it, such as `: SignatureDoesNotMatch`.
fn code(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let is_word = |code: &&str| code.len() < 100 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    code.map(|(code, _)| code).filter(is_word).map(|code| format!(": {code}")).unwrap_or_default()
}

/// The bytes of a file, which must not be longer than a file of credentials may be.
fn read_file(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    crate::files::open_to_read(file)?.take(CREDENTIALS).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The credentials of the first profile in a file of the AWS command line tool.
fn read_credentials(text: &str) -> Option<Credentials> {
    let (mut id, mut secret, mut token) = (None, None, None);
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') && id.is_some() {
            break;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with(['#', ';'])) else {
            continue;
        };
        let value = Some(value.trim()).filter(|value| !value.is_empty());
        match name.trim() {
            "aws_access_key_id" => id = value,
            "aws_secret_access_key" => secret = value,
            "aws_session_token" => token = value,
            _ => {}
        }
    }
    Some(match token {
        Some(token) => Credentials::new_with_token(id?, secret?, token),
        None => Credentials::new(id?, secret?),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]

    use super::*;

    #[test]
    fn credentials_are_those_of_the_first_profile() {
        let text = "# mine\n[default]\naws_access_key_id = AKIA\naws_secret_access_key=s=e/c\n\n[other]\naws_access_key_id=B\n";
        let credentials = read_credentials(text).unwrap();
        assert_eq!((credentials.key(), credentials.secret(), credentials.token()), ("AKIA", "s=e/c", None));
        assert!(read_credentials("aws_access_key_id = AKIA\n").is_none());
        assert!(read_credentials("aws_access_key_id = AKIA\naws_secret_access_key =\n").is_none());
    }

    #[test]
    fn the_code_of_an_error_is_a_word() {
        assert_eq!(code(b"<Error><Code>AccessDenied</Code></Error>"), ": AccessDenied");
        assert_eq!(code(b"<Code>a\nb</Code>"), "");
        assert_eq!(code(b""), "");
    }
}
