//! A small HTTP/1.1 client: each worker has one connection to each system, and reuses it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use foregate_compare::case::Case;
use foregate_compare::{Answer, BodyReader, Outcome};
use foregate_proxy::settings::{UpstreamProtocol, UpstreamTls};
use foregate_proxy::tls::Connector;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time limit for connecting to one address.
const CONNECT: Duration = Duration::from_secs(5);

/// The address of a system.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    secure: bool,
    host: String,
    port: u16,
    authority: String,
    /// The path of the system's URL, which is put before the path of each request.
    prefix: String,
}

impl std::str::FromStr for Base {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected a URL such as http://127.0.0.1:8080, not {text:?}");
        let uri: Uri = text.parse().map_err(|_| expected())?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(expected()),
        };
        let authority = uri.authority().ok_or_else(expected)?;
        if authority.as_str().contains('@') {
            return Err("a user in a URL is not supported; cases have `[BasicAuth]`".to_owned());
        }
        Ok(Self {
            secure,
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// A client that sends requests to one system.
pub(crate) struct Client {
    base: Option<Base>,
    connector: Arc<Connector>,
    host: Option<String>,
    patience: Duration,
    body_limit: usize,
}

/// The settings for connecting and waiting.
#[derive(Debug, Clone)]
pub(crate) struct ClientSettings {
    pub patience: Duration,
    pub body_limit: usize,
    /// The host, and perhaps the port, for requests that name none. The default is the authority of the system's URL.
    pub host: Option<String>,
    /// Set if any certificate is accepted.
    pub insecure: bool,
    pub authorities: Option<PathBuf>,
}

/// The connection of a worker to a system, if one is open.
#[derive(Default)]
pub(crate) struct Connection {
    sender: Option<(String, SendRequest<Full<Bytes>>)>,
}

/// A request that can be sent.
pub(crate) struct Prepared {
    request: Request<Full<Bytes>>,
    base: Base,
    /// The host name for which the system's certificate must be valid.
    name: String,
    is_safe: bool,
}

impl Client {
    /// A client for the system at `base`; without `base`, each request goes to the host in its URL.
    pub fn new(base: Option<Base>, settings: &ClientSettings) -> Result<Self, String> {
        let tls = UpstreamTls {
            authorities: settings.authorities.clone(),
            verify: !settings.insecure,
            ..UpstreamTls::default()
        };
        let connector = Connector::new(&tls, UpstreamProtocol::Http1).map_err(|error| error.to_string())?;
        let (patience, body_limit) = (settings.patience, settings.body_limit);
        let host = settings.host.clone();
        Ok(Self { base, host, connector: Arc::new(connector), patience, body_limit })
    }

    /// Makes the request of a case; its templates must have been replaced.
    pub fn prepare(&self, case: &Case) -> Result<Prepared, String> {
        let (named, target) = match case.url.starts_with('/') {
            true => (None, case.url.clone()),
            false => {
                let named: Base = case.url.split(['?', '#']).next().unwrap_or_default().parse()?;
                let behind = case.url.split_once("://").map_or("", |(_, behind)| behind);
                let target = behind.find(['/', '?']).and_then(|at| behind.get(at..)).unwrap_or("/");
                let target = if target.starts_with('?') { format!("/{target}") } else { target.to_owned() };
                (Some(named), target)
            }
        };
        let base = self.base.as_ref().or(named.as_ref());
        let base = base.ok_or("the URL names no host; --to names the system that is asked")?.clone();
        let prefix = self.base.as_ref().map_or("", |base| &base.prefix);
        let (authority, name) = match (&named, &self.host) {
            (Some(named), _) => (named.authority.clone(), named.host.clone()),
            (None, Some(host)) => {
                let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
                let name = name.map_or(&**host, |(name, _)| name);
                (host.clone(), name.trim_start_matches('[').trim_end_matches(']').to_owned())
            }
            (None, None) => (base.authority.clone(), base.host.clone()),
        };
        let target = target.split('#').next().unwrap_or("/");
        let uri: Uri = format!("{prefix}{target}")
            .parse()
            .map_err(|_| format!("{target:?} is no target of a request"))?;
        let method = Method::from_bytes(case.method.as_bytes())
            .map_err(|_| format!("{:?} is no method", case.method))?;
        let mut request = Request::new(Full::new(Bytes::from(case.body.clone())));
        (*request.uri_mut(), *request.method_mut()) = (uri, method);
        let fields = request.headers_mut();
        for (name, value) in &case.fields {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("{name:?} is no name of a field"))?;
            let value = HeaderValue::from_bytes(value.as_bytes())
                .map_err(|_| format!("the value of {name} has bytes that no field has"))?;
            // The client frames the body by itself.
            if name != CONTENT_LENGTH && name != TRANSFER_ENCODING {
                fields.append(name, value);
            }
        }
        if !fields.contains_key(HOST) {
            fields
                .insert(HOST, HeaderValue::from_str(&authority).map_err(|_| "the host is none".to_owned())?);
        }
        Ok(Prepared { request, base, name, is_safe: case.is_safe() })
    }

    /// Sends a request, and receives the whole answer. If a reused connection turns out to be closed, a request with a safe
    /// method is sent once more on a new connection.
    pub async fn send(&self, connection: &mut Connection, prepared: &Prepared) -> Outcome {
        let kept = connection.sender.is_some();
        let first = self.attempt(connection, prepared).await;
        let is_stale = matches!(&first, Err(NoAnswer { answered: false, timed_out: false, .. }));
        let answered = if kept && is_stale && prepared.is_safe {
            self.attempt(connection, prepared).await
        } else {
            first
        };
        match answered {
            Ok(answer) => Outcome::Answered(Box::new(answer)),
            Err(failure) => Outcome::Failed(failure.reason),
        }
    }

    async fn attempt(&self, connection: &mut Connection, prepared: &Prepared) -> Result<Answer, NoAnswer> {
        let mut answered = false;
        let result = timeout(self.patience, self.exchange(connection, prepared, &mut answered)).await;
        let result = match result {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(reason)) => NoAnswer { reason, answered, timed_out: false },
            Err(_) => {
                let reason = format!("no answer within {} s", self.patience.as_secs_f64());
                NoAnswer { reason, answered, timed_out: true }
            }
        };
        connection.sender = None;
        Err(result)
    }

    async fn exchange(
        &self,
        connection: &mut Connection,
        prepared: &Prepared,
        answered: &mut bool,
    ) -> Result<Answer, String> {
        let key = format!("{} {} {}", prepared.base.secure, prepared.base.authority, prepared.name);
        let mut sender = match connection.sender.take() {
            Some((own, sender)) if own == key && sender.is_ready() => sender,
            _ => self.connect(prepared).await?,
        };
        sender.ready().await.map_err(|error| reason(&error))?;
        let began = Instant::now();
        let (head, mut body) =
            sender.send_request(prepared.request.clone()).await.map_err(|error| reason(&error))?.into_parts();
        *answered = true;
        let fields = head.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
        let mut answer = Answer::new(head.status.as_u16(), fields);
        let mut reader = BodyReader::new(self.body_limit);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| format!("the answer breaks off: {}", reason(&error)))?;
            if let Some(data) = frame.data_ref() {
                reader.take(data);
            }
        }
        (answer.body, answer.time) = (reader.end(), began.elapsed());
        connection.sender = Some((key, sender));
        Ok(answer)
    }

    async fn connect(&self, prepared: &Prepared) -> Result<SendRequest<Full<Bytes>>, String> {
        let Base { host, port, secure, .. } = &prepared.base;
        let stream = connect(host, *port).await?;
        if *secure {
            let connected = self.connector.connect(&prepared.name, true, stream).await;
            let (stream, _) = connected.map_err(|error| format!("TLS: {error}"))?;
            handshake(stream).await
        } else {
            handshake(stream).await
        }
    }
}

/// Why there is no answer.
struct NoAnswer {
    reason: String,
    /// Set if the head of the answer had been received.
    answered: bool,
    timed_out: bool,
}

/// An error's text with that of its cause, which names the real problem.
fn reason(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

async fn handshake<IO>(stream: IO) -> Result<SendRequest<Full<Bytes>>, String>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| reason(&error))?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Tries the addresses of a host in turn.
async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let addresses =
        tokio::net::lookup_host((host, port)).await.map_err(|error| format!("{host}: {error}"))?;
    let mut last = format!("{host}: the name has no address");
    for address in addresses {
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // A request is written in one piece, so nothing is gained by waiting for more data.
                let _: io::Result<()> = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => last = format!("no connection: {error}"),
            Err(_) => last = "no connection within 5 s".to_owned(),
        }
    }
    Err(last)
}
