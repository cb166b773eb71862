//! The admin interface over HTTP, which `openapi.json` describes. Every answer, except events and the metrics, is a JSON
//! object with `ok`; if `ok` is false, it also has `error`.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::stream;
use http::header::{ALLOW, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::http::{
    ClientPatience, HttpRequest, HttpResponse, read_body, respond, respond_events, respond_json,
};
use super::observers::Observer;
use super::parameters::{GivenParameters, ParameterRule, Parameters};
use super::refusal::ApiError;
use super::{
    AdminRequest, ConfigurationRefusal, GivenConfiguration, PATIENCE, ProcessControls, all_metrics, cache,
    certificates, comparisons, figures, migration, servers, verification,
};
use crate::proxy::Proxy;
use crate::telemetry::exposition::ExpositionFormat;

/// The description of the interface.
const OPENAPI: &str = include_str!("openapi.json");
/// The largest configuration, bytes.
const CONFIGURATION_LIMIT: usize = 64 << 20;
/// The largest body of any other request, bytes.
const BODY_LIMIT: usize = 64 << 10;
/// The time limit of an answer: a reload of 100,000 sites needs about a second.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// The time after which an answer with events ends.
const EVENTS_FOR: Duration = Duration::from_secs(24 * 3600);

/// The resource with answers that do not end.
const EVENTS: &str = "/v1/events";
/// The resource that checks the cache's disk, with events until the end of the check.
const VERIFY: &str = "/v1/cache/verify";

/// The resources, with the methods of each.
const RESOURCES: [(&str, &[Method]); 21] = [
    ("/v1/openapi.json", &[Method::GET]),
    ("/v1/status", &[Method::GET]),
    ("/v1/figures", &[Method::GET]),
    (EVENTS, &[Method::GET]),
    ("/v1/metrics", &[Method::GET]),
    ("/v1/configuration", &[Method::GET, Method::PUT]),
    ("/v1/reload", &[Method::POST]),
    ("/v1/upstreams", &[Method::GET]),
    ("/v1/servers", &[Method::POST]),
    ("/v1/certificates", &[Method::GET]),
    ("/v1/cache", &[Method::GET]),
    ("/v1/cache/purge", &[Method::POST]),
    ("/v1/cache/response", &[Method::GET]),
    (VERIFY, &[Method::POST]),
    ("/v1/comparisons", &[Method::GET]),
    ("/v1/comparisons/sample", &[Method::GET]),
    ("/v1/comparisons/ignore", &[Method::POST]),
    ("/v1/errors", &[Method::GET]),
    ("/v1/audit", &[Method::GET]),
    ("/v1/migration", &[Method::GET]),
    ("/v1/log-level", &[Method::GET, Method::PUT]),
];

/// The type of a member, and whether it is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberRule {
    Text,
    RequiredText,
    Flag,
}

type Members = &'static [(&'static str, MemberRule)];

const ORDER_MEMBERS: Members = &[
    ("upstream", MemberRule::RequiredText),
    ("server", MemberRule::RequiredText),
    ("order", MemberRule::RequiredText),
];
const LEVEL_MEMBERS: Members = &[("level", MemberRule::RequiredText)];
const PURGE_MEMBERS: Members = &[
    ("url", MemberRule::Text),
    ("prefix", MemberRule::Text),
    ("tag", MemberRule::Text),
    ("all", MemberRule::Flag),
    ("soft", MemberRule::Flag),
];

const IGNORE_MEMBERS: Members = &[("part", MemberRule::RequiredText)];

const RESPONSE_PARAMETERS: Parameters =
    &[("url", ParameterRule::Required), ("field", ParameterRule::Repeated)];
const REPORT_PARAMETERS: Parameters = &[("format", ParameterRule::Optional)];
const SAMPLE_PARAMETERS: Parameters = &[("id", ParameterRule::Required)];

/// The process that is administered.
pub(super) struct AdminApi {
    pub(super) proxy: Arc<Proxy>,
    pub(super) requests: mpsc::Sender<AdminRequest>,
    pub(super) controls: Arc<dyn ProcessControls>,
}

type ApiResult = Result<HttpResponse, ApiError>;

impl AdminApi {
    /// Answers a request.
    pub(super) async fn answer(
        &self,
        request: HttpRequest,
        who: &str,
        patience: &ClientPatience,
    ) -> HttpResponse {
        patience.extend(ANSWER_WITHIN);
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let Some((_, methods)) = RESOURCES.iter().find(|(known, _)| *known == path) else {
            return failed(ApiError(
                StatusCode::NOT_FOUND,
                "there is nothing of this name; see /v1/openapi.json".to_owned(),
            ));
        };
        // A resource with GET also has HEAD (RFC 9110, section 9.3.2), except the events: their answer does not end.
        let has_head = methods.contains(&Method::GET) && path != EVENTS;
        let is_head = has_head && method == Method::HEAD;
        if !methods.contains(&method) && !is_head {
            let mut names: Vec<&str> = methods.iter().map(Method::as_str).collect();
            if has_head {
                names.push("HEAD");
            }
            let mut response = failed(ApiError(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("the methods here are: {}", names.join(", ")),
            ));
            if let Ok(allowed) = HeaderValue::from_str(&names.join(", ")) {
                response.headers_mut().insert(ALLOW, allowed);
            }
            return response;
        }
        let answered = match method {
            Method::GET | Method::HEAD => self.read(&path, request.uri().query(), patience).await,
            _ if path == VERIFY => self.verify(who, patience),
            _ => self.change(request, &path, who).await,
        };
        answered.unwrap_or_else(failed)
    }

    /// The answer to a user who may not ask.
    pub(super) fn forbid() -> HttpResponse {
        failed(ApiError(
            StatusCode::FORBIDDEN,
            "only the user that runs the proxy may ask, and root".to_owned(),
        ))
    }

    async fn read(&self, path: &str, query: Option<&str>, patience: &ClientPatience) -> ApiResult {
        let proxy = &self.proxy;
        Ok(match path {
            "/v1/openapi.json" => respond(StatusCode::OK, "application/json", OPENAPI),
            "/v1/status" => {
                let (answer, answered) = oneshot::channel();
                fine(self.ask(AdminRequest::Status(answer), answered).await?)
            }
            "/v1/figures" => fine(figures::figures(proxy)),
            EVENTS => {
                patience.extend(EVENTS_FOR);
                self.events()?
            }
            "/v1/metrics" => {
                let format = ExpositionFormat::OpenMetrics;
                respond(StatusCode::OK, format.content_type(), all_metrics(proxy, format).await)
            }
            "/v1/configuration" => self.configuration()?,
            "/v1/upstreams" => fine(json!({ "upstreams": servers::list(&proxy.config().upstreams) })),
            "/v1/certificates" => fine(certificates(proxy)),
            "/v1/cache" => fine(cache::stat(proxy)),
            "/v1/cache/response" => {
                let given = parameters(query, RESPONSE_PARAMETERS)?;
                let url = given.get("url").unwrap_or_default();
                fine(cache::get(proxy, url, given.all("field")).await?)
            }
            "/v1/comparisons" => {
                let given = parameters(query, REPORT_PARAMETERS)?;
                fine(comparisons::report(proxy, given.get("format")).await?)
            }
            "/v1/comparisons/sample" => {
                let given = parameters(query, SAMPLE_PARAMETERS)?;
                fine(comparisons::sample(proxy, given.get("id").unwrap_or_default()).await?)
            }
            "/v1/errors" => fine(figures::failures(proxy)),
            "/v1/audit" => fine(json!({ "changes": self.changes() })),
            "/v1/log-level" => fine(json!({ "level": self.controls.log_filter() })),
            _ => fine(migration::report(proxy)),
        })
    }

    async fn change(&self, request: HttpRequest, path: &str, who: &str) -> ApiResult {
        let headers = request.headers().clone();
        let (change, result) = match path {
            "/v1/reload" => ("reload".to_owned(), self.reload().await),
            "/v1/configuration" => {
                let given = given(&headers, body(request, CONFIGURATION_LIMIT).await?)?;
                ("a configuration in a request".to_owned(), self.configure(given).await)
            }
            "/v1/servers" => {
                let order = object(&headers, body(request, BODY_LIMIT).await?)?;
                check_members(&order, ORDER_MEMBERS)?;
                let text = |name: &str| order.get(name).and_then(Value::as_str).unwrap_or_default();
                let change = format!("server {} of {}: {}", text("server"), text("upstream"), text("order"));
                let result = servers::order(&self.proxy, &order).await;
                (change, result.map(|()| json!({})).map_err(|error| ApiError(StatusCode::CONFLICT, error)))
            }
            "/v1/cache/purge" => {
                let purge = object(&headers, body(request, BODY_LIMIT).await?)?;
                check_members(&purge, PURGE_MEMBERS)?;
                check_choice(&purge)?;
                let result = cache::purge(&purge, &self.proxy).await;
                (
                    format!("purge {purge}"),
                    result.map_err(|error| ApiError(StatusCode::UNPROCESSABLE_ENTITY, error)),
                )
            }
            "/v1/comparisons/ignore" => {
                let ignore = object(&headers, body(request, BODY_LIMIT).await?)?;
                check_members(&ignore, IGNORE_MEMBERS)?;
                let part = ignore.get("part").and_then(Value::as_str).unwrap_or_default();
                let change = format!("comparisons ignore {}", part.escape_debug());
                (change, comparisons::ignore(&self.proxy, part).await)
            }
            _ => {
                let level = object(&headers, body(request, BODY_LIMIT).await?)?;
                check_members(&level, LEVEL_MEMBERS)?;
                let level = level.get("level").and_then(Value::as_str).unwrap_or_default();
                let result = self.controls.set_log_filter(level);
                let result = result.map(|()| json!({ "level": level }));
                (
                    format!("log level {}", level.escape_debug()),
                    result.map_err(|error| ApiError(StatusCode::UNPROCESSABLE_ENTITY, error)),
                )
            }
        };
        self.proxy.audit.record(who, &change, result.as_ref().err().map(|ApiError(_, error)| &**error));
        result.map(fine)
    }

    /// Checks the cache's disk. The answer ends with the check.
    fn verify(&self, who: &str, patience: &ClientPatience) -> ApiResult {
        let result = verification::verify(&self.proxy).map(respond_events);
        let refused = result.as_ref().err().map(|ApiError(_, error)| &**error);
        self.proxy.audit.record(who, "check of the cache's disk", refused);
        if result.is_ok() {
            patience.extend(EVENTS_FOR);
        }
        result
    }

    /// Sends a request to the server, and waits for its answer.
    async fn ask<T>(&self, request: AdminRequest, answered: oneshot::Receiver<T>) -> Result<T, ApiError> {
        let stopping = || ApiError(StatusCode::SERVICE_UNAVAILABLE, "the proxy is stopping".to_owned());
        self.requests.send(request).await.map_err(|_| stopping())?;
        answered.await.map_err(|_| stopping())
    }

    async fn reload(&self) -> Result<Value, ApiError> {
        let (answer, answered) = oneshot::channel();
        let result = self.ask(AdminRequest::Reload(answer), answered).await?;
        result.map_err(|error| ApiError(StatusCode::UNPROCESSABLE_ENTITY, error))?;
        Ok(self.tag())
    }

    async fn configure(&self, given: GivenConfiguration) -> Result<Value, ApiError> {
        let (answer, answered) = oneshot::channel();
        match self.ask(AdminRequest::Configure(given, answer), answered).await? {
            Ok(()) => Ok(self.tag()),
            Err(ConfigurationRefusal::Stale) => Err(ApiError(
                StatusCode::PRECONDITION_FAILED,
                "another configuration is in effect by now; read it, and try again".to_owned(),
            )),
            Err(ConfigurationRefusal::Wrong(error)) => Err(ApiError(StatusCode::UNPROCESSABLE_ENTITY, error)),
        }
    }

    fn tag(&self) -> Value {
        json!({ "tag": self.controls.effective().map(|effective| effective.tag) })
    }

    /// The configuration in effect, with its tag as `ETag`.
    fn configuration(&self) -> ApiResult {
        let effective = self.controls.effective().ok_or_else(|| {
            ApiError(StatusCode::NOT_FOUND, "the proxy was started without a configuration file".to_owned())
        })?;
        let files = effective.files.iter().map(|(path, text)| json!({ "path": path, "text": text }));
        let value = json!({ "tag": effective.tag, "files": files.collect::<Vec<_>>() });
        let mut response = fine(value);
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", effective.tag)) {
            response.headers_mut().insert(ETAG, tag);
        }
        Ok(response)
    }

    fn changes(&self) -> Vec<Value> {
        let shown = self.proxy.audit.changes().into_iter().map(|change| {
            let time = change.time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            json!({ "time": time, "who": change.who, "change": change.change, "refused": change.refused })
        });
        shown.collect()
    }

    /// The figures of each second.
    fn events(&self) -> ApiResult {
        let observer =
            Observer::new(&self.proxy).map_err(|error| ApiError(StatusCode::SERVICE_UNAVAILABLE, error))?;
        Ok(respond_events(stream::unfold(observer, |mut observer| async move {
            let figures = observer.next().await?;
            Some((format!("event: figures\ndata: {figures}\n\n"), observer))
        })))
    }
}

fn fine(mut value: Value) -> HttpResponse {
    value["ok"] = true.into();
    respond_json(StatusCode::OK, &value)
}

fn failed(ApiError(status, error): ApiError) -> HttpResponse {
    respond_json(status, &json!({ "ok": false, "error": error }))
}

/// The parameters of a request.
fn parameters(query: Option<&str>, known: Parameters) -> Result<GivenParameters, ApiError> {
    GivenParameters::read(query, known).map_err(|error| ApiError(StatusCode::UNPROCESSABLE_ENTITY, error))
}

async fn body(request: HttpRequest, limit: usize) -> Result<Bytes, ApiError> {
    match timeout(PATIENCE, read_body(request.into_body(), limit)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(StatusCode::PAYLOAD_TOO_LARGE)) => {
            Err(ApiError(StatusCode::PAYLOAD_TOO_LARGE, format!("a body has at most {limit} bytes here")))
        }
        Ok(Err(status)) => Err(ApiError(status, "the body could not be read".to_owned())),
        Err(_) => Err(ApiError(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned())),
    }
}

/// The value of a field that occurs at most once; empty if there is none.
fn field(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The media type of a body, without parameters.
fn media_type(headers: &HeaderMap) -> String {
    let value = field(headers, CONTENT_TYPE);
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The object in a body.
fn object(headers: &HeaderMap, body: Bytes) -> Result<Value, ApiError> {
    if media_type(headers) != "application/json" {
        let help = "the content type is application/json".to_owned();
        return Err(ApiError(StatusCode::UNSUPPORTED_MEDIA_TYPE, help));
    }
    let value = serde_json::from_slice::<Value>(&body)
        .map_err(|error| ApiError(StatusCode::BAD_REQUEST, format!("not JSON: {error}")))?;
    match value.is_object() {
        true => Ok(value),
        false => Err(ApiError(StatusCode::UNPROCESSABLE_ENTITY, "expected an object".to_owned())),
    }
}

/// Refuses an object with a member that is missing, unknown, or of a wrong type. With a misspelt `soft`, for example, a
/// purge would do more than the operator wants.
fn check_members(object: &Value, members: Members) -> Result<(), ApiError> {
    let wrong = |error: String| Err(ApiError(StatusCode::UNPROCESSABLE_ENTITY, error));
    for (name, rule) in members {
        let value = object.get(name);
        let fits = match rule {
            MemberRule::Text => value.is_none_or(Value::is_string),
            MemberRule::RequiredText => value.is_some_and(Value::is_string),
            MemberRule::Flag => value.is_none_or(Value::is_boolean),
        };
        if !fits {
            let kind = if *rule == MemberRule::Flag { "true or false" } else { "a string" };
            return wrong(format!("`{name}` is {kind}"));
        }
    }
    let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    match object.as_object().into_iter().flatten().find(|(name, _)| !names.contains(&&***name)) {
        Some((name, _)) => {
            wrong(format!("unknown member `{}`; known are: {}", name.escape_debug(), names.join(", ")))
        }
        None => Ok(()),
    }
}

/// Refuses a purge that does not say which responses to purge, or says it in two ways.
fn check_choice(purge: &Value) -> Result<(), ApiError> {
    let named = ["url", "prefix", "tag"].iter().filter(|name| purge.get(name).is_some()).count();
    let all = purge.get("all").map(|all| *all == Value::Bool(true));
    match (named, all) {
        (1, None) | (0, Some(true)) => Ok(()),
        _ => {
            let help = "expected one of `url`, `prefix`, `tag`, and `all` with true";
            Err(ApiError(StatusCode::UNPROCESSABLE_ENTITY, help.to_owned()))
        }
    }
}

/// The configuration in a body, with the tags of the configurations that it may replace.
fn given(headers: &HeaderMap, body: Bytes) -> Result<GivenConfiguration, ApiError> {
    let is_json = match &*media_type(headers) {
        "application/json" => true,
        "application/kdl" | "text/plain" => false,
        _ => {
            let help = "the content type is application/kdl or application/json".to_owned();
            return Err(ApiError(StatusCode::UNSUPPORTED_MEDIA_TYPE, help));
        }
    };
    let text = String::from_utf8(body.into())
        .map_err(|_| ApiError(StatusCode::BAD_REQUEST, "a configuration is UTF-8".to_owned()))?;
    let mut replaces = Vec::new();
    for value in headers.get_all(IF_MATCH) {
        let tags = value.to_str().map_err(|_| wrong_tags())?.split(',').map(str::trim);
        for tag in tags.filter(|tag| !tag.is_empty()) {
            replaces.push(read_tag(tag).ok_or_else(wrong_tags)?);
        }
    }
    if replaces.is_empty() && headers.contains_key(IF_MATCH) {
        return Err(wrong_tags());
    }
    Ok(GivenConfiguration { text, is_json, replaces })
}

/// Returns the tag without its quotation marks, or `*`. Returns `None` for a weak tag: it is a mistake, because it
/// would never match (RFC 9110, section 13.1.1).
fn read_tag(tag: &str) -> Option<String> {
    if tag == "*" {
        return Some(tag.to_owned());
    }
    let inner = tag.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.contains('"') && inner != "*").then(|| inner.to_owned())
}

fn wrong_tags() -> ApiError {
    ApiError(
        StatusCode::BAD_REQUEST,
        "If-Match has the tag of `GET /v1/configuration` in quotation marks: If-Match: \"TAG\"".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_has_the_resources() {
        let described: Value = serde_json::from_str(OPENAPI).unwrap();
        let paths = described["paths"].as_object().unwrap();
        for (path, methods) in RESOURCES {
            let of_path = paths.get(path).unwrap_or_else(|| panic!("{path} is not described"));
            let head = (methods.contains(&Method::GET) && path != EVENTS).then_some(Method::HEAD);
            let mut names: Vec<String> =
                methods.iter().chain(&head).map(|method| method.as_str().to_lowercase()).collect();
            names.sort();
            let mut described: Vec<String> = of_path.as_object().unwrap().keys().cloned().collect();
            described.sort();
            assert_eq!(described, names, "{path}");
            for name in names {
                let responses = of_path[&name]["responses"].as_object().unwrap();
                assert!(
                    responses.contains_key("200") && of_path[&name]["summary"].is_string(),
                    "{name} {path}"
                );
            }
        }
        assert_eq!(paths.len(), RESOURCES.len());
    }

    #[test]
    fn members_of_bodies_are_those_that_are_described() {
        let described: Value = serde_json::from_str(OPENAPI).unwrap();
        for (name, members) in [
            ("Order", ORDER_MEMBERS),
            ("Purge", PURGE_MEMBERS),
            ("Ignore", IGNORE_MEMBERS),
            ("Level", LEVEL_MEMBERS),
        ] {
            let schema = &described["components"]["schemas"][name];
            assert_eq!(schema["additionalProperties"], false, "{name}");
            let properties = schema["properties"].as_object().unwrap();
            assert_eq!(properties.len(), members.len(), "{name}");
            for (member, rule) in members {
                let kind = if *rule == MemberRule::Flag { "boolean" } else { "string" };
                assert_eq!(properties[*member]["type"], kind, "{name} {member}");
                let required = schema["required"].as_array().is_some_and(|all| all.contains(&json!(member)));
                assert_eq!(required, *rule == MemberRule::RequiredText, "{name} {member}");
            }
        }
        let purge = |value: Value| check_members(&value, PURGE_MEMBERS).and_then(|()| check_choice(&value));
        for fine in [json!({"url": "http://a/", "soft": true}), json!({"all": true}), json!({"tag": "a"})] {
            assert!(purge(fine.clone()).is_ok(), "{fine}");
        }
        for wrong in [
            json!({}),
            json!({"all": false}),
            json!({"soft": true}),
            json!({"url": "http://a/", "all": true}),
            json!({"url": "http://a/", "tag": "a"}),
            json!({"url": "http://a/", "soft": "yes"}),
            json!({"url": "http://a/", "sofft": true}),
            json!({"url": null}),
        ] {
            assert!(purge(wrong.clone()).is_err_and(|ApiError(status, _)| status == 422), "{wrong}");
        }
    }

    #[test]
    fn parameters_are_those_that_are_described() {
        let described: Value = serde_json::from_str(OPENAPI).unwrap();
        for (path, parameters) in [
            ("/v1/cache/response", RESPONSE_PARAMETERS),
            ("/v1/comparisons", REPORT_PARAMETERS),
            ("/v1/comparisons/sample", SAMPLE_PARAMETERS),
        ] {
            for method in ["get", "head"] {
                let of_method = described["paths"][path][method]["parameters"].as_array().unwrap();
                let of_method = of_method.iter().map(|parameter| match parameter["$ref"].as_str() {
                    Some(name) => {
                        described.pointer(name.strip_prefix('#').unwrap()).expect("a described parameter")
                    }
                    None => parameter,
                });
                let of_method = of_method.map(|parameter| {
                    assert_eq!(parameter["in"], "query");
                    let rule = match (&parameter["required"], &parameter["schema"]["type"]) {
                        (Value::Bool(true), _) => ParameterRule::Required,
                        (_, kind) if kind == "array" => ParameterRule::Repeated,
                        _ => ParameterRule::Optional,
                    };
                    (parameter["name"].as_str().unwrap(), rule)
                });
                assert_eq!(of_method.collect::<Vec<_>>(), parameters, "{method} {path}");
            }
        }
    }

    #[test]
    fn what_a_configuration_replaces_is_read_from_if_match() {
        let read = |kind: &'static str, tags: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            headers.insert(IF_MATCH, HeaderValue::from_static(tags));
            given(&headers, Bytes::from_static(b"x")).map(|given| (given.is_json, given.replaces))
        };
        let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
        assert_eq!(read("application/kdl", "\"a\", \"b\"").ok(), Some((false, tags(&["a", "b"]))));
        assert_eq!(read("application/json; charset=utf-8", "*").ok(), Some((true, tags(&["*"]))));
        assert!(read("image/png", "*").is_err_and(|ApiError(status, _)| status == 415));
        for wrong in ["", " , ", "a", "W/\"a\"", "\"*\"", "\"a", "\"a\" \"b\""] {
            assert!(
                read("application/kdl", wrong).is_err_and(|ApiError(status, _)| status == 400),
                "{wrong}"
            );
        }
    }
}
