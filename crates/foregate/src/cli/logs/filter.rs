//! Expressions of the rules language over lines of an access log.

use std::net::IpAddr;

use foregate_rules::{FactTable, Lists, Predicate, Scheme, Stage, Type};
use serde_json::Value;

use super::object;

/// The members of a line that are texts, and that the language has no name for.
const TEXTS: [&str; 13] = [
    "scheme",
    "protocol",
    "action",
    "upstream",
    "server",
    "cache",
    "cache_reason",
    "fallback",
    "error_side",
    "ended_by",
    "site",
    "route",
    "error",
];
/// Values of a line that are numbers.
const NUMBERS: [&str; 5] = ["bytes_in", "bytes_out", "duration_us", "attempts", "upstream_first_byte_us"];
/// The firewall's notes, with the names from its guide.
const NOTES: [(&str, Type); 5] = [
    ("waf.id", Type::Bytes),
    ("waf.rule", Type::Bytes),
    ("waf.score", Type::Int),
    ("waf.unseen", Type::Bytes),
    ("waf.verdict", Type::Bytes),
];
/// The map of all other members, including notes.
const OTHERS: &str = "log.fields";
/// The language's fields with values that a line has.
const OF_REQUEST: [&str; 17] = [
    "http.host",
    "http.request.uri",
    "http.request.uri.path",
    "http.request.uri.query",
    "http.request.full_uri",
    "http.request.method",
    "http.request.version",
    "http.user_agent",
    "http.referer",
    "raw.http.request.uri",
    "raw.http.request.uri.path",
    "ip.src",
    "ssl",
    "tls.version",
    "foregate.site",
    "foregate.route",
    "foregate.error",
];

/// A condition on the lines of a log.
pub(super) struct LogFilter {
    scheme: Scheme,
    predicate: Predicate,
}

impl LogFilter {
    /// # Errors
    ///
    /// The mistake in the expression, with its place and a suggestion.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let scheme = scheme();
        let predicate = scheme.compile(text, Stage::Response, &Lists::new()).map_err(|error| {
            let marker =
                " ".repeat(text.get(..error.span().start).map_or(0, |before| before.chars().count()));
            let help = error.help().map(|help| format!("\n  help: {help}")).unwrap_or_default();
            format!("error: {}\n  {text}\n  {marker}^{help}", error.message())
        })?;
        let is_known = |name: &str| {
            name == "http.response.code"
                || name.starts_with("log.")
                || OF_REQUEST.contains(&name)
                || NOTES.iter().any(|(note, _)| *note == name)
        };
        let mut names =
            predicate.reads().filter_map(|id| scheme.field(id)).map(|field| field.name.to_string());
        if let Some(missing) = names.find(|name| !is_known(name)) {
            return Err(format!(
                "error: a log does not have `{missing}`\n  help: `foregate logs --fields` lists its fields; `field` in `access-log` adds others"
            ));
        }
        drop(names);
        Ok(Self { scheme, predicate })
    }

    /// Returns true if the condition holds for the line. A line that is not JSON has no values.
    pub(super) fn keeps(&self, line: &str) -> bool {
        object(line).is_some_and(|line| self.predicate.matches(&facts(&self.scheme, &line)))
    }
}

/// The fields that a filter may use, one on a line.
pub(super) fn fields() -> String {
    let scheme = scheme();
    let of_request = OF_REQUEST.iter().chain(&["http.response.code"]);
    let mut text: String = of_request
        .filter_map(|name| scheme.id(name).and_then(|id| scheme.field(id)))
        .map(|field| format!("{:<28} {}\n", field.name, field.about))
        .collect();
    for name in NUMBERS {
        text.push_str(&format!("{:<28} A number, as `{name}` in the log.\n", format!("log.{name}")));
    }
    for name in TEXTS {
        text.push_str(&format!("{:<28} A text, as `{name}` in the log.\n", format!("log.{name}")));
    }
    for (name, _) in NOTES {
        text.push_str(&format!("{name:<28} A note of the firewall.\n"));
    }
    text.push_str(&format!(
        "{:<28} All other members and the notes, as in `{OTHERS}[\"waf.score\"][0]`.\n",
        OTHERS
    ));
    text
}

fn scheme() -> Scheme {
    let mut scheme = Scheme::standard();
    let texts = TEXTS.iter().map(|name| (format!("log.{name}"), Type::Bytes));
    let numbers = NUMBERS.iter().map(|name| (format!("log.{name}"), Type::Int));
    let notes = NOTES.iter().map(|(name, kind)| ((*name).to_owned(), *kind));
    for (name, kind) in texts.chain(numbers).chain(notes).chain([(OTHERS.to_owned(), Type::Map)]) {
        scheme = scheme
            .with_field(&name, kind, Stage::Request, "As in the log.")
            .expect("the names are no fields of the language");
    }
    scheme
}

fn facts<'s>(scheme: &'s Scheme, line: &Value) -> FactTable<'s> {
    let mut facts = FactTable::new(scheme);
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let target = text("path");
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let host = text("host").to_lowercase();
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => {
            name.to_owned()
        }
        _ => host,
    };
    for (name, value) in [
        ("http.request.full_uri", format!("{}://{host}{target}", text("scheme"))),
        ("http.host", host),
        ("http.request.uri", target.clone()),
        ("raw.http.request.uri", target.clone()),
        ("http.request.uri.path", path.to_owned()),
        ("raw.http.request.uri.path", path.to_owned()),
        ("http.request.uri.query", query.to_owned()),
        ("http.request.method", text("method")),
        ("http.request.version", text("protocol")),
        ("http.user_agent", text("user_agent")),
        ("http.referer", text("referer")),
        ("foregate.site", text("site")),
        ("foregate.route", text("route")),
        ("foregate.error", text("error")),
    ] {
        facts.set(name, value.as_str());
    }
    facts.set("ssl", line["scheme"] == "https");
    if let Some(version) = line["tls"].as_str() {
        facts.set("tls.version", version);
    }
    if let Ok(client) = text("client").parse::<IpAddr>() {
        facts.set("ip.src", client);
    }
    if let Some(status) = line["status"].as_i64() {
        facts.set("http.response.code", status);
    }
    for name in NUMBERS {
        if let Some(number) = line[name].as_i64() {
            facts.set(&format!("log.{name}"), number);
        }
    }
    for name in TEXTS {
        if let Some(value) = line[name].as_str() {
            facts.set(&format!("log.{name}"), value);
        }
    }
    for (name, kind) in NOTES {
        let Some(value) = line["notes"][name].as_str() else { continue };
        if kind != Type::Int {
            facts.set(name, value);
        } else if let Ok(number) = value.parse::<i64>() {
            facts.set(name, number);
        }
    }
    let notes = line["notes"].as_object();
    for (name, value) in line.as_object().into_iter().chain(notes).flatten() {
        let known = TEXTS.contains(&&**name) || NUMBERS.contains(&&**name) || name == "notes";
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if !known {
            facts.add(OTHERS, name, value.as_str());
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"time":"2026-01-01T00:00:00.000Z","client":"192.0.2.7","method":"GET","scheme":"https","host":"Example.com:8443","path":"/a?x=1","status":502,"duration_us":120000,"site":"example.com","upstream":"app","error":"connect","user_agent":"curl/8","language":"de","notes":{"waf.score":"15","waf.id":"07"}}"#;

    #[test]
    fn lines_answer_for_the_fields_of_the_language() {
        for holds in [
            "http.response.code ge 500 and log.duration_us gt 100000",
            "http.host eq \"example.com\" and http.request.uri.path eq \"/a\" and http.request.uri.query eq \"x=1\"",
            "ip.src in {192.0.2.0/24} and ssl and starts_with(http.user_agent, \"curl\")",
            "log.upstream eq \"app\" and foregate.error eq \"connect\"",
            "waf.id eq \"07\" and waf.score ge 15",
            "log.fields[\"waf.score\"][0] eq \"15\" and log.fields[\"language\"][0] eq \"de\"",
        ] {
            assert!(LogFilter::compile(holds).unwrap().keeps(LINE), "{holds}");
        }
        let other = LogFilter::compile("http.response.code lt 500").unwrap();
        assert!(!other.keeps(LINE) && !other.keeps("no JSON") && !other.keeps("[1]"));
    }

    #[test]
    fn mistakes_have_a_place_and_what_a_log_lacks_is_told() {
        let error = LogFilter::compile("http.hots eq \"a\"").err().unwrap();
        assert!(error.contains("did you mean `http.host`?") && error.contains("\n  ^"), "{error}");
        let error = LogFilter::compile("http.cookie eq \"a\"").err().unwrap();
        assert!(error.contains("a log does not have `http.cookie`"), "{error}");
        for name in fields().lines().filter_map(|line| line.split(' ').next()) {
            assert!(scheme().id(name).is_some(), "{name}");
        }
    }
}
