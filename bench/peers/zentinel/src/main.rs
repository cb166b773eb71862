//! A reverse proxy with zentinel-modsec, for the macro benchmark.
//!
//! `bench-zentinel LISTEN ORIGIN [RULES]`: RULES is a file of SecLang; without it there is no firewall.

use std::convert::Infallible;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use zentinel_modsec::ModSecurity;

struct Proxy {
    origin: String,
    client: Client<HttpConnector, Full<Bytes>>,
    rules: Option<ModSecurity>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // As all proxies of the benchmark: one thread that does the work.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(serve(&arguments)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-zentinel: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [listen, origin, rules @ ..] = arguments else {
        return Err("usage: bench-zentinel LISTEN ORIGIN [RULES]".into());
    };
    let rules = rules.first().map(|path| ModSecurity::from_file(path)).transpose()?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let proxy = Arc::new(Proxy { origin: origin.clone(), client, rules });
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let proxy = Arc::clone(&proxy);
                async move { Ok::<_, Infallible>(proxy.answer(request).await) }
            });
            // A connection that breaks is its client's business.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl Proxy {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        self.pass(request).await.unwrap_or_else(|error| status(StatusCode::BAD_GATEWAY, error.to_string()))
    }

    async fn pass(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Box<dyn Error>> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        if let Some(rules) = &self.rules
            && let Some(refused) = judge(rules, &parts, &body)?
        {
            return Ok(status(StatusCode::from_u16(refused)?, "refused\n".to_owned()));
        }
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        parts.uri = format!("http://{}{target}", self.origin).parse::<Uri>()?;
        parts.headers.entry(HOST).or_insert(HeaderValue::from_static("localhost"));
        let (parts, body) =
            self.client.request(Request::from_parts(parts, Full::new(body))).await?.into_parts();
        Ok(Response::from_parts(parts, Full::new(body.collect().await?.to_bytes())))
    }
}

/// The status with which the rules refuse a request, if they do.
fn judge(
    rules: &ModSecurity,
    parts: &hyper::http::request::Parts,
    body: &[u8],
) -> Result<Option<u16>, Box<dyn Error>> {
    let mut transaction = rules.new_transaction();
    transaction.set_client_addr("127.0.0.1", 40_000);
    transaction.set_server_addr("127.0.0.1", 80);
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    transaction.process_uri(target, parts.method.as_str(), "HTTP/1.1")?;
    for (name, value) in &parts.headers {
        transaction.add_request_header(name.as_str(), value.to_str()?)?;
    }
    transaction.process_request_headers()?;
    if !transaction.has_intervention() {
        if !body.is_empty() {
            transaction.append_request_body(body)?;
        }
        transaction.process_request_body()?;
    }
    let refused = transaction.intervention().map(|intervention| intervention.status);
    transaction.process_logging()?;
    Ok(refused)
}

fn status(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}
