//! Ids for common field names.
//!
//! The id is one byte. So a field is found by comparing bytes, and testing one bit shows that a field is absent (see
//! [`HeaderList`](crate::HeaderList)).

use crate::chars::{SPACES, has, short_word};

macro_rules! names {
    ($($variant:ident: $lower:literal, $canonical:literal;)*) => {
        /// A field name, known or not.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum NameId {
            /// Any name that has no id of its own.
            Unknown,
            $(
                #[doc = concat!("`", $canonical, "`")]
                $variant,
            )*
        }

        /// Every known name, at the index of its id.
        const ALL: &[NameId] = &[NameId::Unknown, $(NameId::$variant),*];
        const LOWER: &[&str] = &["", $($lower),*];
        const CANONICAL: &[&str] = &["", $($canonical),*];
    };
}

names! {
    Host: "host", "Host";
    ContentLength: "content-length", "Content-Length";
    TransferEncoding: "transfer-encoding", "Transfer-Encoding";
    Connection: "connection", "Connection";
    KeepAlive: "keep-alive", "Keep-Alive";
    ProxyConnection: "proxy-connection", "Proxy-Connection";
    Te: "te", "TE";
    Trailer: "trailer", "Trailer";
    Upgrade: "upgrade", "Upgrade";
    Expect: "expect", "Expect";
    Http2Settings: "http2-settings", "HTTP2-Settings";
    Cookie: "cookie", "Cookie";
    SetCookie: "set-cookie", "Set-Cookie";
    Authorization: "authorization", "Authorization";
    ProxyAuthorization: "proxy-authorization", "Proxy-Authorization";
    ProxyAuthenticate: "proxy-authenticate", "Proxy-Authenticate";
    WwwAuthenticate: "www-authenticate", "WWW-Authenticate";
    Forwarded: "forwarded", "Forwarded";
    XForwardedFor: "x-forwarded-for", "X-Forwarded-For";
    XForwardedProto: "x-forwarded-proto", "X-Forwarded-Proto";
    XForwardedHost: "x-forwarded-host", "X-Forwarded-Host";
    XForwardedPort: "x-forwarded-port", "X-Forwarded-Port";
    XRealIp: "x-real-ip", "X-Real-IP";
    XRequestId: "x-request-id", "X-Request-ID";
    Via: "via", "Via";
    Date: "date", "Date";
    Server: "server", "Server";
    Range: "range", "Range";
    IfRange: "if-range", "If-Range";
    ContentRange: "content-range", "Content-Range";
    AcceptRanges: "accept-ranges", "Accept-Ranges";
    Accept: "accept", "Accept";
    AcceptEncoding: "accept-encoding", "Accept-Encoding";
    AcceptLanguage: "accept-language", "Accept-Language";
    AcceptCharset: "accept-charset", "Accept-Charset";
    ContentType: "content-type", "Content-Type";
    ContentEncoding: "content-encoding", "Content-Encoding";
    ContentLanguage: "content-language", "Content-Language";
    ContentLocation: "content-location", "Content-Location";
    ContentDisposition: "content-disposition", "Content-Disposition";
    ContentSecurityPolicy: "content-security-policy", "Content-Security-Policy";
    StrictTransportSecurity: "strict-transport-security", "Strict-Transport-Security";
    CacheControl: "cache-control", "Cache-Control";
    CdnCacheControl: "cdn-cache-control", "CDN-Cache-Control";
    SurrogateControl: "surrogate-control", "Surrogate-Control";
    SurrogateKey: "surrogate-key", "Surrogate-Key";
    Age: "age", "Age";
    Expires: "expires", "Expires";
    Pragma: "pragma", "Pragma";
    Vary: "vary", "Vary";
    Etag: "etag", "ETag";
    LastModified: "last-modified", "Last-Modified";
    IfMatch: "if-match", "If-Match";
    IfNoneMatch: "if-none-match", "If-None-Match";
    IfModifiedSince: "if-modified-since", "If-Modified-Since";
    IfUnmodifiedSince: "if-unmodified-since", "If-Unmodified-Since";
    Location: "location", "Location";
    RetryAfter: "retry-after", "Retry-After";
    Allow: "allow", "Allow";
    AltSvc: "alt-svc", "Alt-Svc";
    Link: "link", "Link";
    Origin: "origin", "Origin";
    Referer: "referer", "Referer";
    UserAgent: "user-agent", "User-Agent";
    From: "from", "From";
    MaxForwards: "max-forwards", "Max-Forwards";
    Dnt: "dnt", "DNT";
    SecFetchSite: "sec-fetch-site", "Sec-Fetch-Site";
    SecFetchMode: "sec-fetch-mode", "Sec-Fetch-Mode";
    SecFetchDest: "sec-fetch-dest", "Sec-Fetch-Dest";
    SecFetchUser: "sec-fetch-user", "Sec-Fetch-User";
    SecChUa: "sec-ch-ua", "Sec-CH-UA";
    SecChUaMobile: "sec-ch-ua-mobile", "Sec-CH-UA-Mobile";
    SecChUaPlatform: "sec-ch-ua-platform", "Sec-CH-UA-Platform";
    UpgradeInsecureRequests: "upgrade-insecure-requests", "Upgrade-Insecure-Requests";
    AccessControlAllowOrigin: "access-control-allow-origin", "Access-Control-Allow-Origin";
    AccessControlAllowMethods: "access-control-allow-methods", "Access-Control-Allow-Methods";
    AccessControlAllowHeaders: "access-control-allow-headers", "Access-Control-Allow-Headers";
    AccessControlAllowCredentials: "access-control-allow-credentials", "Access-Control-Allow-Credentials";
    AccessControlExposeHeaders: "access-control-expose-headers", "Access-Control-Expose-Headers";
    AccessControlMaxAge: "access-control-max-age", "Access-Control-Max-Age";
    AccessControlRequestMethod: "access-control-request-method", "Access-Control-Request-Method";
    AccessControlRequestHeaders: "access-control-request-headers", "Access-Control-Request-Headers";
    XFrameOptions: "x-frame-options", "X-Frame-Options";
    XContentTypeOptions: "x-content-type-options", "X-Content-Type-Options";
    XXssProtection: "x-xss-protection", "X-XSS-Protection";
    XPoweredBy: "x-powered-by", "X-Powered-By";
    XRequestedWith: "x-requested-with", "X-Requested-With";
    SecWebsocketKey: "sec-websocket-key", "Sec-WebSocket-Key";
    SecWebsocketAccept: "sec-websocket-accept", "Sec-WebSocket-Accept";
    SecWebsocketVersion: "sec-websocket-version", "Sec-WebSocket-Version";
    SecWebsocketProtocol: "sec-websocket-protocol", "Sec-WebSocket-Protocol";
    SecWebsocketExtensions: "sec-websocket-extensions", "Sec-WebSocket-Extensions";
    Traceparent: "traceparent", "Traceparent";
    Tracestate: "tracestate", "Tracestate";
    Baggage: "baggage", "Baggage";
    Priority: "priority", "Priority";
    EarlyData: "early-data", "Early-Data";
    GrpcStatus: "grpc-status", "gRPC-Status";
    GrpcMessage: "grpc-message", "gRPC-Message";
    GrpcTimeout: "grpc-timeout", "gRPC-Timeout";
    GrpcEncoding: "grpc-encoding", "gRPC-Encoding";
    ServerTiming: "server-timing", "Server-Timing";
    ReferrerPolicy: "referrer-policy", "Referrer-Policy";
    PermissionsPolicy: "permissions-policy", "Permissions-Policy";
    ContentMd5: "content-md5", "Content-MD5";
    Digest: "digest", "Digest";
}

/// Slots of the table from hash to id. A power of two.
const SLOTS: usize = 1024;
/// A multiplier with which [`hash`] has no collisions between known names. It was found by trial; the compiler checks
/// it.
const MULTIPLIER: u64 = 0x8d72_8cbe_0741_1c3d;

/// The id for each hash; 0 if no known name has the hash.
static TABLE: [u8; SLOTS] = build_table();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, for which a place out of bounds is an error"
)]
const fn build_table() -> [u8; SLOTS] {
    assert!(LOWER.len() <= 127, "ids must fit the bit mask of HeaderList, which uses the last bit otherwise");
    let mut table = [0u8; SLOTS];
    let mut id = 1;
    while id < LOWER.len() {
        let slot = hash(KNOWN[id].words[0].bytes, KNOWN[id].last.bytes, KNOWN[id].len);
        assert!(table[slot] == 0, "two names with one hash: choose another MULTIPLIER");
        table[slot] = id as u8;
        id += 1;
    }
    table
}

/// The hash of a name: of its first and last eight bytes, regardless of case, and its length.
#[inline(always)]
const fn hash(first: u64, last: u64, length: usize) -> usize {
    let first = (first | SPACES).wrapping_mul(MULTIPLIER);
    let key = (first ^ (last | SPACES)).wrapping_add(length as u64).wrapping_mul(MULTIPLIER);
    (key >> (64 - SLOTS.trailing_zeros())) as usize
}

/// The longest known name, in bytes.
pub(crate) const LONGEST: usize = 32;

/// A known name in lower case, padded with zeros so that it can be compared a word at a time.
#[derive(Clone, Copy)]
struct KnownName {
    len: usize,
    words: [Word; LONGEST / 8],
    /// The name's last eight bytes; for a shorter name, its first word.
    last: Word,
}

/// Eight bytes of a known name.
#[derive(Clone, Copy)]
struct Word {
    bytes: u64,
    /// The bits by which upper-case and lower-case letters of the word differ.
    cases: u64,
}

static KNOWN: [KnownName; 128] = known();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, for which a place out of bounds is an error"
)]
const fn known() -> [KnownName; 128] {
    let none = Word { bytes: 0, cases: 0 };
    let mut known = [KnownName { len: 0, words: [none; LONGEST / 8], last: none }; 128];
    let mut id = 1;
    while id < LOWER.len() {
        let name = LOWER[id].as_bytes();
        known[id].len = name.len();
        let mut at = 0;
        while at < name.len() {
            known[id].words[at / 8].put(at % 8, name[at]);
            if name.len() >= 8 && at + 8 >= name.len() {
                known[id].last.put(at + 8 - name.len(), name[at]);
            }
            at += 1;
        }
        if name.len() < 8 {
            known[id].last = known[id].words[0];
        }
        id += 1;
    }
    known
}

impl Word {
    const fn put(&mut self, at: usize, byte: u8) {
        self.bytes |= (byte as u64) << (at * 8);
        if byte.is_ascii_lowercase() {
            self.cases |= 0x20 << (at * 8);
        }
    }

    #[inline(always)]
    const fn is(self, bytes: u64) -> bool {
        (bytes ^ self.bytes) & !self.cases == 0
    }
}

impl NameId {
    /// The id of a name, regardless of case; [`NameId::Unknown`] if the name has none.
    #[inline]
    pub fn from_name(name: &[u8]) -> Self {
        let first = short_word(name);
        let last = name.last_chunk().map_or(first, |last| u64::from_le_bytes(*last));
        let id = TABLE.get(hash(first, last, name.len())).map_or(0, |id| usize::from(*id));
        match KNOWN.get(id) {
            Some(known) if known.len == name.len() && known.words[0].is(first) && known.last.is(last) => {
                let words = name.as_chunks().0.iter().zip(&known.words).skip(1);
                let same =
                    name.len() <= 16 || { words }.all(|(word, known)| known.is(u64::from_le_bytes(*word)));
                ALL.get(id).copied().filter(|_| same).unwrap_or(Self::Unknown)
            }
            _ => Self::Unknown,
        }
    }

    /// The id of the name in the first `length` of these bytes.
    #[inline]
    pub(crate) fn from_text(text: &[u8; LONGEST], length: usize) -> Self {
        text.get(..length).map_or(Self::Unknown, Self::from_name)
    }

    /// The name in lower case, as HTTP/2 writes it. Empty for [`NameId::Unknown`].
    #[inline]
    pub fn as_str(self) -> &'static str {
        LOWER.get(self as usize).copied().unwrap_or_default()
    }

    /// The name as HTTP/1 usually writes it, for example `Content-Length`. Empty for [`NameId::Unknown`].
    #[inline]
    pub fn as_canonical(self) -> &'static str {
        CANONICAL.get(self as usize).copied().unwrap_or_default()
    }

    /// Every known name.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().skip(1).copied()
    }

    /// Returns true if the field's value is a secret that must not show in logs, metrics or `Debug` output.
    pub fn is_secret(self) -> bool {
        matches!(self, Self::Authorization | Self::ProxyAuthorization | Self::Cookie | Self::SetCookie)
    }

    /// The bit of this id in a mask of ids.
    #[inline]
    pub(crate) const fn bit(self) -> u128 {
        1 << (self as u8)
    }
}

/// The name of a field with its id, for repeated comparisons.
#[derive(Clone, Copy, Debug)]
pub struct FieldName<'n> {
    id: NameId,
    bytes: &'n [u8],
}

impl<'n> FieldName<'n> {
    /// The id of the name.
    pub fn id(self) -> NameId {
        self.id
    }

    /// The name itself.
    pub fn bytes(self) -> &'n [u8] {
        self.bytes
    }

    /// Returns true if the name has a `_`.
    #[inline]
    pub fn has_underscore(self) -> bool {
        // No known name has a `_`.
        self.id == NameId::Unknown && has(self.bytes, b'_')
    }
}

impl<'n> From<&'n [u8]> for FieldName<'n> {
    #[inline]
    fn from(bytes: &'n [u8]) -> Self {
        Self { id: NameId::from_name(bytes), bytes }
    }
}

impl<'n, const N: usize> From<&'n [u8; N]> for FieldName<'n> {
    #[inline]
    fn from(bytes: &'n [u8; N]) -> Self {
        Self::from(&bytes[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if all known names were looked through.
    fn slow(name: &[u8]) -> NameId {
        let same = |id: &NameId| id.as_str().as_bytes().eq_ignore_ascii_case(name);
        NameId::all().find(same).unwrap_or(NameId::Unknown)
    }

    #[test]
    fn names_that_differ_in_a_byte_are_others() {
        for id in NameId::all() {
            let name = id.as_str().as_bytes();
            assert_eq!(NameId::from_name(name), id);
            for at in 0..name.len() {
                for byte in 0..=u8::MAX {
                    let mut other = name.to_vec();
                    other[at] = byte;
                    assert_eq!(NameId::from_name(&other), slow(&other), "{other:?}");
                }
            }
            assert_eq!(NameId::from_name(&name[1..]), slow(&name[1..]));
            assert_eq!(NameId::from_name(&[name, b"s"].concat()), NameId::Unknown);
        }
        assert_eq!(NameId::from_name(b""), NameId::Unknown);
        assert_eq!(NameId::from_name(&[b'a'; 33]), NameId::Unknown);
    }
}
