//! A small HTTP client for requests to authorities and to the operator's `ask` address. Each request has its
//! own connection.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foregate_proxy::settings::{UpstreamProtocol, UpstreamTls};
use foregate_proxy::tls::Connector;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error as AcmeError, HttpClient};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time limit for a request and its response.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time limit for connecting to one address.
const CONNECT: Duration = Duration::from_secs(5);
/// The most bytes of a response. A certificate chain has a few thousand.
const BODY_MOST: usize = 1024 * 1024;

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// An HTTP client. A clone shares the trusted root certificates.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    connector: Arc<Connector>,
}

impl Client {
    /// Creates a client that trusts the root certificates in the file `roots`, or the default ones.
    pub(crate) fn new(roots: Option<&std::path::Path>) -> Result<Self, foregate_proxy::tls::TlsError> {
        let tls = UpstreamTls { authorities: roots.map(ToOwned::to_owned), ..UpstreamTls::default() };
        Ok(Self { connector: Arc::new(Connector::new(&tls, UpstreamProtocol::Http1)?) })
    }

    /// Sends a GET and returns the status of the response.
    pub(crate) async fn get(&self, uri: &str) -> Result<u16, Fault> {
        let request = Request::get(uri).body(Full::<Bytes>::default())?;
        Ok(self.send(request).await?.status().as_u16())
    }

    async fn send<B>(&self, request: Request<B>) -> Result<Response<Full<Bytes>>, Fault>
    where
        B: http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let answered = timeout(PATIENCE, self.exchange(request)).await;
        answered.map_err(|_| Fault::from("no answer within 30 seconds"))?
    }

    async fn exchange<B>(&self, mut request: Request<B>) -> Result<Response<Full<Bytes>>, Fault>
    where
        B: http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let uri = request.uri().clone();
        let authority = uri.authority().ok_or("an address without a host")?.clone();
        let secure = uri.scheme() == Some(&Scheme::HTTPS);
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        request.headers_mut().insert(HOST, HeaderValue::from_str(authority.as_str())?);
        *request.uri_mut() = uri.path_and_query().map_or(Uri::default(), |target| Uri::from(target.clone()));
        let stream = connect(&host, port).await?;
        if secure {
            let (stream, _) = self.connector.connect(&host, true, stream).await?;
            speak(stream, request).await
        } else {
            speak(stream, request).await
        }
    }
}

/// Sends a POST in the clear, and returns the status and the body of the response.
pub(crate) async fn post(
    uri: &str,
    content_type: &'static str,
    body: Vec<u8>,
) -> Result<(u16, Bytes), Fault> {
    let uri: Uri = uri.parse()?;
    if uri.scheme() != Some(&Scheme::HTTP) {
        return Err("only addresses with http:// are asked".into());
    }
    let authority = uri.authority().ok_or("an address without a host")?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let request = Request::post(target)
        .header(HOST, authority.as_str())
        .header(CONTENT_TYPE, content_type)
        .body(Full::new(Bytes::from(body)))?;
    let exchange = async {
        let stream = connect(host, authority.port_u16().unwrap_or(80)).await?;
        let (head, body) = speak(stream, request).await?.into_parts();
        Ok((head.status.as_u16(), body.collect().await?.to_bytes()))
    };
    timeout(PATIENCE, exchange).await.map_err(|_| Fault::from("no answer within 30 seconds"))?
}

/// Connects to a host, trying its addresses in turn.
pub(crate) async fn connect(host: &str, port: u16) -> Result<TcpStream, Fault> {
    let mut last = Fault::from("the name has no address");
    for address in tokio::net::lookup_host((host, port)).await? {
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = format!("{address}: {error}").into(),
            Err(_) => last = format!("{address}: no connection within 5 seconds").into(),
        }
    }
    Err(last)
}

async fn speak<IO, B>(stream: IO, request: Request<B>) -> Result<Response<Full<Bytes>>, Fault>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, BODY_MOST).collect().await?.to_bytes();
    connection.abort();
    Ok(Response::from_parts(head, Full::new(body)))
}

/// The status of a response to a GET that is neither a success nor a problem document.
#[derive(Debug, thiserror::Error)]
#[error("it answers with status {0}")]
pub(crate) struct UnexpectedStatus(pub(crate) u16);

fn is_problem<B>(response: &Response<B>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/problem+json"))
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, AcmeError>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            // Only the directory and the renewal information are fetched with GET.
            let is_get = request.method() == Method::GET;
            let response = client.send(request).await.map_err(AcmeError::Other)?;
            let status = response.status();
            if is_get && !status.is_success() && !is_problem(&response) {
                return Err(AcmeError::Other(Box::new(UnexpectedStatus(status.as_u16()))));
            }
            Ok(BytesResponse::from(response))
        })
    }
}
