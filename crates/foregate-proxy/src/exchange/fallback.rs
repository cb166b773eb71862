//! Requests that fall back to the proxy that Foregate replaces. The decision is made before any step runs and before
//! any origin is asked.
//!
//! Over HTTP/1 the bytes of the client and of the old proxy are forwarded unchanged in both directions: see
//! [`crate::message::verbatim`]. Other requests are serialised with their original fields.

use std::fmt::Write as _;
use std::hash::BuildHasher;

use foregate_wire::proxy_protocol::{
    TLV_ALPN, TLV_AUTHORITY, TLV_SSL, TLV_SSL_CIPHER, TLV_SSL_CN, TLV_SSL_VERSION, write_tlv,
};
use foregate_wire::{BodyLength, HeaderList, NameId, Version, connection};

use super::client::Peer;
use crate::address::ServerAddress;
use crate::link::Link;
use crate::link::copy::{BodyCopy, Underscores};
use crate::loops::{self, MARKER};
use crate::message::request::Request;
use crate::message::verbatim::{self, Verbatim};
use crate::settings::{TlsVersion, UpstreamProtocol};
use crate::tls::{TlsInfo, subject};
use crate::upstream::Upstream;

/// Fields for framing and routing: they are generated, never copied.
const FRAMING: [NameId; 3] = [NameId::ContentLength, NameId::TransferEncoding, NameId::Host];

/// The fields that describe the client's TLS connection. If a client sends them, they are removed.
static TLS_FIELDS: [&[u8]; 7] = [
    b"X-Forwarded-Proto",
    b"X-SSL-Protocol",
    b"X-SSL-Cipher",
    b"X-SSL-Server-Name",
    b"X-SSL-Client-Verify",
    b"X-SSL-Client-S-DN",
    b"X-SSL-Client-Fingerprint",
];

/// The hash of a request's method and target. Equal requests have equal hashes.
pub(super) fn key_of(request: &Request) -> u64 {
    RANDOM.with(|random| random.hash_one((request.method(), request.head.target())))
}

/// Returns true if the request has passed through this proxy before, and the old proxy has sent it back.
pub(super) fn is_marked(request: &Request) -> bool {
    is_marked_by(request, MARKER)
}

/// As [`is_marked`], by the field of this name.
pub(super) fn is_marked_by(request: &Request, marker: &[u8]) -> bool {
    let mut fields = request.head.headers.iter();
    fields.any(|field| field.name.eq_ignore_ascii_case(marker) && loops::has_been_here(field.value))
}

thread_local! {
    /// A hasher with a fixed seed, so that all threads compute the same hashes.
    static RANDOM: foldhash::fast::FixedState = const { foldhash::fast::FixedState::with_seed(0) };
}

/// Uses the client's own bytes for the request to the old proxy. Returns false if the request has to be serialised.
/// This is also necessary if fields about TLS are added and trailers may follow, because a trailer could have the name
/// of such a field.
pub(super) fn take_bytes(request: &mut Request, link: &mut Link, tls_fields: bool) -> bool {
    let Link::H1(link) = link else { return false };
    if link.head.bytes().is_empty()
        || tls_fields && request.length == BodyLength::Chunked
        || !verbatim::is_safe(&request.head, request.length)
        || !verbatim::names_one_host(link.head.bytes(), &request.head)
        || !link.receive_verbatim()
    {
        return false;
    }
    let bytes = link.head.bytes().to_vec();
    request.verbatim = Some(Box::new(Verbatim { request: bytes, response: Vec::new() }));
    true
}

/// Turns the parsed request into one for the next hop. Fields that do not concern the hop stay unchanged.
pub(super) fn serialise(request: &mut Request, upload: &mut BodyCopy, upstream: &Upstream) {
    let fits = request.fits_extended_connect();
    if upstream.settings.protocol == UpstreamProtocol::Http2 && !fits {
        request.upgrade = None;
    }
    upload.underscores = Underscores::All;
    request.keeps_target = true;
    if request.head.version == Version::Http2 && request.upgrade.is_some() {
        request.websocket_key = Some(crate::websocket::new_key());
        request.head.headers.remove_name(b"sec-websocket-key");
    }
    upload.leave_out(connection::named_options(&request.head.headers));
    leave_hop(&mut request.head.headers);
}

/// Removes the fields that are about the client's connection, or about framing.
pub(super) fn leave_hop(headers: &mut HeaderList) {
    connection::strip_hop_by_hop(headers, true);
    headers.remove_each(&FRAMING);
    // The old proxy could read a misspelt name as a framing field.
    connection::drop_misspelt_names_before(headers, usize::MAX);
}

/// Returns true if the client may be the old proxy itself.
pub(super) fn may_come_from(peer: &Peer, upstream: &Upstream) -> bool {
    let relayed = peer.listen.as_ref().is_some_and(|listen| !listen.proxy_protocol_from.is_empty());
    let Some(client) = peer.addresses.client.map(|client| client.ip().to_canonical()) else { return true };
    relayed
        || upstream.servers.iter().any(|server| match &server.address {
            ServerAddress::Ip(address) => address.ip().to_canonical() == client,
            ServerAddress::Unix(_) => client.is_loopback(),
            ServerAddress::Name { .. } | ServerAddress::Service(_) => true,
        })
}

/// Sets a field of the request, which may be in bytes or parsed.
pub(super) fn set_field(request: &mut Request, name: &[u8], value: &[u8]) {
    match &mut request.verbatim {
        Some(verbatim) => verbatim::add_field(&mut verbatim.request, name, value),
        None => request.head.headers.push(name, value),
    }
}

/// Removes a field of the request, which may be in bytes or parsed.
pub(super) fn remove_field(request: &mut Request, name: &[u8]) {
    match &mut request.verbatim {
        Some(verbatim) => verbatim::remove_fields(&mut verbatim.request, &[name]),
        None => request.head.headers.retain(|field| !connection::is_spelling(field.name, name)),
    }
}

/// Adds fields that describe the client's TLS connection to the old proxy. Fields with these names that the client sent
/// are removed, in trailers too.
pub(super) fn tell_about_tls(request: &mut Request, upload: &mut BodyCopy, peer: &Peer) {
    upload.forbid(&TLS_FIELDS);
    match &mut request.verbatim {
        Some(verbatim) => verbatim::remove_fields(&mut verbatim.request, &TLS_FIELDS),
        None => request
            .head
            .headers
            .retain(|field| !TLS_FIELDS.iter().any(|known| connection::is_spelling(field.name, known))),
    }
    let scheme = request.scheme();
    set_field(request, b"X-Forwarded-Proto", scheme.as_bytes());
    let Some(tls) = &peer.tls else { return };
    set_field(request, b"X-SSL-Protocol", version(tls).as_bytes());
    set_field(request, b"X-SSL-Cipher", openssl_name(tls.cipher).as_bytes());
    if let Some(name) = &tls.sni {
        set_field(request, b"X-SSL-Server-Name", name.as_bytes());
    }
    let Some(client) = &tls.client else {
        return set_field(request, b"X-SSL-Client-Verify", b"NONE");
    };
    set_field(request, b"X-SSL-Client-Verify", b"SUCCESS");
    set_field(request, b"X-SSL-Client-S-DN", subject::reversed_subject(&client.subject).as_bytes());
    let mut digits = String::with_capacity(64);
    for byte in client.fingerprint {
        let _ = write!(digits, "{byte:02x}");
    }
    set_field(request, b"X-SSL-Client-Fingerprint", digits.as_bytes());
}

/// The name of a cipher suite in OpenSSL, and so in NGINX. TLS 1.3 suites have the same name everywhere.
fn openssl_name(name: &'static str) -> &'static str {
    match name {
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" => "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" => "ECDHE-RSA-CHACHA20-POLY1305",
        name => name,
    }
}

fn version(tls: &TlsInfo) -> &'static str {
    match tls.version {
        TlsVersion::Tls12 => "TLSv1.2",
        TlsVersion::Tls13 => "TLSv1.3",
    }
}

/// The facts about a connection, as TLVs of the PROXY protocol.
pub(super) fn tlvs(tls: Option<&TlsInfo>) -> &Vec<u8> {
    static NONE: Vec<u8> = Vec::new();
    tls.map_or(&NONE, |tls| tls.tlvs.get_or_init(|| tlvs_of(tls)))
}

fn tlvs_of(tls: &TlsInfo) -> Vec<u8> {
    let mut tlvs = Vec::new();
    if let Some(name) = &tls.sni {
        write_tlv(&mut tlvs, TLV_AUTHORITY, name.as_bytes());
    }
    // The old proxy gets HTTP/1.1 or HTTP/2 without TLS, whatever the client speaks.
    write_tlv(&mut tlvs, TLV_ALPN, b"http/1.1");
    // The flags say: the client uses TLS (1), and has presented a certificate on this connection (2) and in this session
    // (4).
    let (flags, verified) = if tls.client.is_some() { (0x07, 0) } else { (0x01, 1_u32) };
    let mut ssl = vec![flags];
    ssl.extend_from_slice(&verified.to_be_bytes());
    write_tlv(&mut ssl, TLV_SSL_VERSION, version(tls).as_bytes());
    write_tlv(&mut ssl, TLV_SSL_CIPHER, openssl_name(tls.cipher).as_bytes());
    if let Some(name) = tls.client.as_ref().and_then(|client| subject::common_name(&client.subject)) {
        write_tlv(&mut ssl, TLV_SSL_CN, name.as_bytes());
    }
    write_tlv(&mut tlvs, TLV_SSL, &ssl);
    tlvs
}
