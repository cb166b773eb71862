//! Access to the dashboard: checks viewers, and checks that a change was requested by the dashboard's own page.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::{Request, StatusCode};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::super::http::{HttpResponse, respond};
use super::TEXT;
use crate::random;
use crate::settings::{DashboardPassword, DashboardSettings};

/// The shortest time until a wrong password is refused.
const WRONG_TAKES: Duration = Duration::from_millis(500);
/// The most bytes of a user name that are logged.
const USER: usize = 64;
/// The field in which the page sends the token.
const TOKEN: &str = "x-foregate-token";

/// Decides about viewers.
pub(super) struct DashboardAccess {
    /// A secret that the page contains. Pages of other servers cannot read it.
    token: String,
    /// The credentials that were verified last. A browser sends them with each request, so they need not be verified again.
    verified: Mutex<Option<(DashboardPassword, [u8; 32])>>,
    /// Held during a verification: only one password is verified at a time, because this may take much processor time.
    verifying: tokio::sync::Mutex<()>,
}

/// A viewer.
#[derive(Debug)]
pub(super) struct DashboardViewer {
    user: Option<String>,
    peer: Option<IpAddr>,
}

impl fmt::Display for DashboardViewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dashboard")?;
        if let Some(user) = &self.user {
            write!(f, " user {}", user.escape_default())?;
        }
        match self.peer {
            Some(peer) => write!(f, " from {peer}"),
            None => f.write_str(" over its socket"),
        }
    }
}

impl DashboardAccess {
    pub(super) fn new() -> Self {
        let bytes: Vec<u8> = (0..4).flat_map(|_| random::number().to_be_bytes()).collect();
        Self {
            token: URL_SAFE_NO_PAD.encode(bytes),
            verified: Mutex::default(),
            verifying: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Admits a viewer, or returns the reason for the refusal.
    pub(super) async fn admit<B>(
        &self,
        request: &Request<B>,
        settings: &DashboardSettings,
        peer: Option<IpAddr>,
    ) -> Result<DashboardViewer, HttpResponse> {
        let Some(password) = &settings.password else {
            // An attacker's host name may resolve to this address (DNS rebinding): the attacker's page could then read the
            // dashboard.
            let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
            if is_of_this_machine(host) {
                return Ok(DashboardViewer { user: None, peer });
            }
            let help =
                "without a password, the dashboard is reached by an IP address or as localhost alone\n";
            return Err(respond(StatusCode::MISDIRECTED_REQUEST, TEXT, help));
        };
        let credentials = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let Some((user, secret)) = credentials.and_then(read_basic) else { return Err(ask_for_password()) };
        let known: [u8; 32] = digest(&SHA256, &secret).as_ref().try_into().unwrap_or_default();
        if !self.is_verified(password, &known) && !self.verify(password, secret, known).await {
            tracing::warn!(user = %user.escape_default(), peer = ?peer, "a wrong password for the dashboard");
            return Err(ask_for_password());
        }
        Ok(DashboardViewer { user: Some(user), peer })
    }

    fn is_verified(&self, password: &DashboardPassword, known: &[u8; 32]) -> bool {
        let verified = self.verified.lock();
        verified.as_ref().is_some_and(|(of, digest)| {
            of.is_same(password) && verify_slices_are_equal(digest, known).is_ok()
        })
    }

    async fn verify(&self, password: &DashboardPassword, secret: Vec<u8>, known: [u8; 32]) -> bool {
        let turn = self.verifying.lock().await;
        // Check again: another request of the viewer may have verified the credentials meanwhile.
        let fits =
            self.is_verified(password, &known) || fits(password.clone(), secret).await.unwrap_or(false);
        if fits {
            *self.verified.lock() = Some((password.clone(), known));
        }
        drop(turn);
        if !fits {
            tokio::time::sleep(WRONG_TAKES).await;
        }
        fits
    }

    /// Refuses a request that a page of another server may have caused.
    pub(super) fn is_from_page(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if text(CONTENT_TYPE.as_str()) != Some("application/json") {
            return Err("an order has the content type application/json");
        }
        if text("sec-fetch-site").is_some_and(|site| site != "same-origin") {
            return Err("an order comes from the dashboard's own page");
        }
        let host = text(HOST.as_str()).unwrap_or_default();
        let origin =
            text(ORIGIN.as_str()).map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
        if origin.is_some_and(|origin| origin != host) {
            return Err("an order comes from the dashboard's own page");
        }
        let token = headers.get(TOKEN).map(HeaderValue::as_bytes).unwrap_or_default();
        verify_slices_are_equal(token, self.token.as_bytes())
            .map_err(|_| "the page is of another process: load it again")
    }
}

/// Verifies a password on a thread of its own.
async fn fits(password: DashboardPassword, secret: Vec<u8>) -> io::Result<bool> {
    let (tell, told) = oneshot::channel();
    thread::Builder::new().name("foregate-password".to_owned()).spawn(move || {
        // Sending fails if the viewer has gone.
        let _ = tell.send(password.fits(&secret));
    })?;
    Ok(told.await.unwrap_or(false))
}

/// User and password of Basic authentication (RFC 7617).
fn read_basic(value: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = value.split_at_checked(6)?;
    let decoded =
        STANDARD.decode(encoded.trim_ascii()).ok().filter(|_| scheme.eq_ignore_ascii_case(b"basic "))?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (user, secret) = decoded.split_at(colon);
    let user = String::from_utf8_lossy(user).chars().take(USER).collect();
    Some((user, secret.get(1..).unwrap_or_default().to_vec()))
}

fn ask_for_password() -> HttpResponse {
    let mut response = respond(StatusCode::UNAUTHORIZED, TEXT, "the dashboard needs its password\n");
    let challenge = HeaderValue::from_static("Basic realm=\"Foregate\", charset=\"UTF-8\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

/// Returns true for a host that cannot come from DNS: `localhost`, or an address.
fn is_of_this_machine(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(ip, _)| ip.parse::<IpAddr>().is_ok());
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_not_of_this_machine() {
        for fine in ["127.0.0.1:9146", "localhost", "LocalHost:1", "[::1]:9146", "10.0.0.7"] {
            assert!(is_of_this_machine(fine), "{fine}");
        }
        for wrong in ["", "evil.example:9146", "127.0.0.1.evil.example", "[evil]:1", "localhost.evil.example"]
        {
            assert!(!is_of_this_machine(wrong), "{wrong}");
        }
    }

    #[test]
    fn an_order_comes_from_the_page() {
        let access = DashboardAccess::new();
        let headers = |pairs: &[(&'static str, &str)]| -> HeaderMap {
            pairs
                .iter()
                .map(|(name, value)| {
                    (http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
                })
                .collect()
        };
        let token = access.token().to_owned();
        let fine = [("content-type", "application/json"), ("host", "a:1"), (TOKEN, &*token)];
        assert!(access.is_from_page(&headers(&fine)).is_ok());
        let with = |name, value| {
            let others = fine.into_iter().filter(|(other, _)| *other != name);
            headers(&others.chain([(name, value)]).collect::<Vec<_>>())
        };
        assert!(access.is_from_page(&with("origin", "http://a:1")).is_ok());
        assert!(access.is_from_page(&with("origin", "http://evil.example")).is_err());
        assert!(access.is_from_page(&with("origin", "null")).is_err());
        assert!(access.is_from_page(&with("sec-fetch-site", "cross-site")).is_err());
        assert!(access.is_from_page(&with("content-type", "text/plain")).is_err());
        assert!(access.is_from_page(&headers(&fine[..2])).is_err(), "without the token");
    }
}
