//! A plain reverse proxy on Pingora, for the macro benchmark: one listener, one
//! origin, kept-alive connections to it, and nothing else unless asked for.
//!
//! Usage: `bench-pingora FRONT LISTEN ORIGIN THREADS [--tls CERT KEY] [--log FILE]`
//! where `FRONT` is `h1`, or `h2` to accept HTTP/2 as well (by prior knowledge on
//! cleartext, by ALPN with `--tls`).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use pingora::apps::HttpServerOptions;
use pingora::listeners::tls::TlsSettings;
use pingora::prelude::*;
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;

/// Idle origin connections kept, the same number as in the other peers' settings.
const ORIGIN_KEEPALIVE: usize = 256;

/// Bytes of log lines gathered before one write, as in NGINX's `buffer=64k`.
const LOG_BUFFER: usize = 64 * 1024;

/// The command line.
struct Options {
    http2: bool,
    listen: String,
    origin: String,
    threads: usize,
    tls: Option<(String, String)>,
    log: Option<String>,
}

fn options() -> Option<Options> {
    let mut args = std::env::args().skip(1);
    let mut options = Options {
        http2: match args.next()?.as_str() {
            "h1" => false,
            "h2" => true,
            _ => return None,
        },
        listen: args.next()?,
        origin: args.next()?,
        threads: args.next()?.parse().ok()?,
        tls: None,
        log: None,
    };
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--tls" => options.tls = Some((args.next()?, args.next()?)),
            "--log" => options.log = Some(args.next()?),
            _ => return None,
        }
    }
    Some(options)
}

struct Bench {
    origin: HttpPeer,
    log: Option<Mutex<BufWriter<File>>>,
}

#[async_trait]
impl ProxyHttp for Bench {
    type CTX = Option<Instant>;

    fn new_ctx(&self) -> Self::CTX {
        self.log.is_some().then(Instant::now)
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Self::CTX) -> Result<Box<HttpPeer>> {
        Ok(Box::new(self.origin.clone()))
    }

    async fn logging(&self, session: &mut Session, _: Option<&Error>, started: &mut Self::CTX) {
        let (Some(log), Some(started)) = (&self.log, started) else { return };
        let head = session.req_header();
        let field = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        let line = serde_json::json!({
            "time": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            "client": session.client_addr().map(ToString::to_string),
            "host": field("host"),
            "method": head.method.as_str(),
            "target": head.uri.path(),
            "status": session.response_written().map_or(0, |answer| answer.status.as_u16()),
            "bytes": session.body_bytes_sent(),
            "seconds": started.elapsed().as_secs_f64(),
            "agent": field("user-agent"),
        });
        let mut file = log.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_writer(&mut *file, &line).is_ok() && file.write_all(b"\n").is_ok();
        if !written {
            eprintln!("bench-pingora: the access log cannot be written");
        }
    }
}

fn main() {
    let Some(options) = options() else {
        eprintln!("usage: bench-pingora h1|h2 LISTEN ORIGIN THREADS [--tls CERT KEY] [--log FILE]");
        std::process::exit(2);
    };
    let conf = ServerConf {
        threads: options.threads,
        upstream_keepalive_pool_size: ORIGIN_KEEPALIVE,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    };
    let log = options.log.map(|path| {
        let file = File::create(path).expect("the access log can be created");
        Mutex::new(BufWriter::with_capacity(LOG_BUFFER, file))
    });
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let origin = HttpPeer::new(options.origin.as_str(), false, String::new());
    let mut service = http_proxy_service(&server.configuration, Bench { origin, log });
    if options.http2
        && options.tls.is_none()
        && let Some(proxy) = service.app_logic_mut()
    {
        let mut http = HttpServerOptions::default();
        http.h2c = true;
        proxy.server_options = Some(http);
    }
    match options.tls {
        None => service.add_tcp(&options.listen),
        Some((certificate, key)) => {
            let mut tls =
                TlsSettings::intermediate(&certificate, &key).expect("the certificate and key are readable");
            if options.http2 {
                tls.enable_h2();
            }
            service.add_tls_with_settings(&options.listen, None, tls);
        }
    }
    server.add_service(service);
    server.run_forever();
}
