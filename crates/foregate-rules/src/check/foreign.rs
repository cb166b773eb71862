//! The names that other languages and everyday speech give to fields, each with the field of this language.

/// The field that is meant by a foreign name. The `$` of NGINX's variables is ignored, and so is the difference between
/// `.`, `_` and `-`.
pub(super) fn field_of(name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches('$').replace(['_', '-'], ".").to_ascii_lowercase();
    NAMES.iter().find(|(names, _)| names.contains(&&*name)).map(|(_, field)| *field)
}

/// The spelling of a header field, a cookie or an argument in this language. `name` is its name in another language,
/// such as `http_accept` or `headers.accept`.
pub(super) fn entry_of(name: &str) -> Option<String> {
    let name = name.trim_start_matches('$');
    let (map, entry) = ENTRIES.iter().find_map(|(starts, map)| {
        let entry = starts.iter().find_map(|start| name.strip_prefix(start));
        entry.filter(|entry| !entry.is_empty()).map(|entry| (map, entry))
    })?;
    // NGINX writes the dashes of a field's name as underscores.
    let entry = if map.ends_with("headers") {
        entry.replace('_', "-").to_ascii_lowercase()
    } else {
        entry.to_owned()
    };
    Some(format!("{map}[\"{entry}\"][0]"))
}

/// Prefixes of the names of single entries in other languages, each with the map in this language.
const ENTRIES: &[(&[&str], &str)] = &[
    (
        &[
            "http.request.headers.",
            "http.request.header.",
            "request.headers.",
            "request.header.",
            "req.header.",
            "headers.",
            "header.",
            "http_",
        ],
        "http.request.headers",
    ),
    (
        &["http.response.headers.", "response.headers.", "resp.header.", "upstream_http_", "sent_http_"],
        "http.response.headers",
    ),
    (
        &["http.request.cookies.", "request.cookies.", "cookies.", "cookie.", "cookie_"],
        "http.request.cookies",
    ),
    (&["http.request.uri.args.", "request.args.", "args.", "query.", "arg_"], "http.request.uri.args"),
];

/// The replacement for a field that other languages have and this one lacks. A name that ends in `*` in the table
/// matches all names with this beginning.
pub(super) fn instead_of(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let fits = |known: &&str| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == **known,
    };
    MISSING.iter().find(|(names, _)| names.iter().any(fits)).map(|(_, instead)| *instead)
}

const MISSING: &[(&[&str], &str)] = &[
    (
        &["cf.bot*", "cf.client.bot", "cf.verified_bot*", "bot", "bots", "is_bot", "bot_score"],
        "nothing tells bots apart in this version; `http.user_agent` is the name that a client gives itself, and the action `challenge` of a rule lets browsers through",
    ),
    (
        &["cf.threat_score", "threat_score", "reputation"],
        "addresses have no score in this version; `ip.src in $NAME` looks into a list of addresses",
    ),
    (&["cf.waf*"], "the module `waf` judges by rules of its own"),
    (
        &[
            "asn",
            "ip.asn",
            "ip.src.asn*",
            "ip.geoip.as*",
            "ip.src.city",
            "ip.geoip.city",
            "ip.src.continent",
            "ip.geoip.continent",
            "ip.src.region*",
            "ip.src.subdivision*",
            "ip.geoip.subdivision*",
            "ip.src.lat",
            "ip.src.lon",
            "ip.src.postal_code",
            "ip.src.timezone*",
            "ip.src.is_in_european_union",
            "ip.geoip.is_in_european_union",
            "city",
            "continent",
            "region",
        ],
        "only the country of an address is known in this version: `ip.src.country`",
    ),
    (
        &["http.request.body", "http.request.body.*", "body", "request_body", "request.body"],
        "expressions do not see bodies, only `http.request.body.size`; the module `waf` looks into them",
    ),
    (
        &["http.response.body*", "response.body"],
        "expressions do not see bodies; `substitute` and the `html-` modules change those of responses",
    ),
    (
        &["http.request.accepted_languages", "accept_language"],
        "write `http.request.headers[\"accept-language\"][0]`",
    ),
    (
        &["cf.edge.*", "cf.colo*", "cf.zone*", "cf.worker*", "cf.ray*", "cf.hostname*"],
        "it is about the network of Cloudflare",
    ),
    (
        &["server_port", "port", "server.port", "dst_port", "listener"],
        "the port of the listener is not known in this version",
    ),
    (
        &[
            "cf.tls_cipher",
            "cf.tls_client*random",
            "ja3*",
            "ja4*",
            "tls.ja3*",
            "tls.ja4*",
            "tls.cipher*",
            "cf.tls_client_hello*",
            "cf.tls_ciphers*",
            "cf.tls_client_ext*",
        ],
        "of TLS, `tls.version`, `tls.server_name` and the certificate of the client are known in this version",
    ),
    (
        &["http.request.jwt*", "claims"],
        "the module `jwt` gives `jwt.subject` and `jwt.claims`, for `lookup_json_string`, to later phases",
    ),
];

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
    (&["cf.tls.client.auth.cert.verified", "ssl.client.verify"], "tls.client.verified"),
    (&["cf.tls.version"], "tls.version"),
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
        for (names, _) in MISSING {
            for name in *names {
                assert!(scheme.id(name).is_none() && field_of(name).is_none(), "{name}");
                assert!(instead_of(name.trim_end_matches('*')).is_some(), "{name}");
            }
        }
        assert_eq!(instead_of("cf.bot_management.score"), instead_of("cf.bot"));
        assert_eq!(instead_of("bottle"), None);
        assert_eq!(field_of("$remote_addr"), Some("ip.src"));
        assert_eq!(field_of("vars"), None);
        for (_, map) in ENTRIES {
            assert!(scheme.id(map).is_some(), "{map}");
        }
        let key = "http.request.headers[\"x-api-key\"][0]";
        assert_eq!(entry_of("http.request.headers.x-api-key").as_deref(), Some(key));
        assert_eq!(entry_of("$http_x_api_key").as_deref(), Some(key));
        assert_eq!(entry_of("arg_A").as_deref(), Some("http.request.uri.args[\"A\"][0]"));
        assert_eq!(entry_of("headers."), None);
    }
}
