//! Names of fields in other languages and in everyday speech, with the field here.

/// The field that is meant by a name; `$` of NGINX's variables and `.` or `_` between words make no difference.
pub(super) fn field_of(name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches('$').replace(['_', '-'], ".").to_ascii_lowercase();
    NAMES.iter().find(|(names, _)| names.contains(&&*name)).map(|(_, field)| *field)
}

const NAMES: &[(&[&str], &str)] = &[
    (
        &[
            "path",
            "uri",
            "url.path",
            "request.path",
            "request.uri",
            "http.path",
            "http.request.path",
            "req.path",
            "request.url.path",
            "document.uri",
            "path.prefix",
            "pathprefix",
        ],
        "http.request.uri.path",
    ),
    (&["url", "request.url", "http.url", "full.uri", "request.uri.raw"], "http.request.full_uri"),
    (
        &["query", "querystring", "query.string", "args", "request.query", "request.uri.query", "http.query"],
        "http.request.uri.query",
    ),
    (
        &[
            "ip",
            "src",
            "client.ip",
            "clientip",
            "remote.addr",
            "remote.ip",
            "remote.host",
            "source.ip",
            "source.address",
            "http.client.ip",
            "real.ip",
            "ip.address",
            "src.ip",
            "client",
            "addr",
        ],
        "ip.src",
    ),
    (&["country", "geo", "geoip", "geoip.country", "ip.country", "geo.country"], "ip.src.country"),
    (&["method", "request.method", "http.method", "req.method", "verb"], "http.request.method"),
    (
        &[
            "host",
            "request.host",
            "http.request.host",
            "server.name",
            "domain",
            "hostname",
            "authority",
            "req.host",
        ],
        "http.host",
    ),
    (
        &[
            "status",
            "code",
            "status.code",
            "response.status",
            "response.code",
            "http.status",
            "http.response.status",
        ],
        "http.response.code",
    ),
    (&["user.agent", "useragent", "http.user.agent", "agent", "ua", "browser"], "http.user_agent"),
    (&["referer", "referrer", "http.referrer", "http.referer"], "http.referer"),
    (
        &[
            "header",
            "headers",
            "request.headers",
            "http.headers",
            "req.headers",
            "request.header",
            "http.header",
        ],
        "http.request.headers",
    ),
    (&["response.headers", "resp.headers", "response.header"], "http.response.headers"),
    (&["cookie", "cookies", "request.cookies", "http.cookies"], "http.request.cookies"),
    (&["scheme", "https", "is.https", "is.tls", "http.scheme", "request.scheme", "tls"], "ssl"),
    (&["sni", "tls.sni", "ssl.sni", "ssl.server.name"], "tls.server_name"),
    (
        &["protocol", "http.version", "server.protocol", "proto", "request.protocol", "http.protocol"],
        "http.request.version",
    ),
    (&["body.size", "content.length", "request.body.size", "request.length"], "http.request.body.size"),
    (&["extension", "ext", "file.extension", "path.extension"], "http.request.uri.path.extension"),
    (&["content.type", "media.type", "mime", "mime.type"], "http.response.content_type.media_type"),
    (&["time", "timestamp", "now", "date"], "http.request.timestamp.sec"),
    (&["x.forwarded.for", "xff", "forwarded.for"], "http.x_forwarded_for"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Scheme;

    #[test]
    fn each_name_leads_to_a_field() {
        let scheme = Scheme::standard();
        for (names, field) in NAMES {
            assert!(scheme.id(field).is_some(), "{field}");
            for name in *names {
                assert_eq!(field_of(name), Some(*field), "{name}");
            }
        }
        assert_eq!(field_of("$remote_addr"), Some("ip.src"));
        assert_eq!(field_of("vars"), None);
    }
}
