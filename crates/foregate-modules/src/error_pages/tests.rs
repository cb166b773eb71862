use super::*;
use foregate_module::testing::{Literals, Sample, node};
use foregate_module::{Action, FetchError, FetchTarget, Verdict};

fn page(statuses: &[&str], name: &str, value: &str) -> Node {
    let page = statuses.iter().fold(node("page"), |page, status| page.arg_literal(*status));
    page.prop_literal(name, value)
}

fn pages(pages: &[Node]) -> Node {
    pages.iter().cloned().fold(node("error-pages"), Node::with_child)
}

fn read(node: Node) -> Result<ErrorPages, Problem> {
    let mut context = Literals {
        upstreams: Vec::from(["pages"]),
        files: Vec::from([("404.html", b"<b>{host}</b>".to_vec())]),
        ..Literals::default()
    };
    ErrorPages::from_nodes(&[node], &mut context)
}

/// A response that the proxy made because of an error.
fn error(status: u16) -> Sample {
    let mut sample = Sample::get("/secret?a").response(status);
    sample.error = Some("upstream-connect".into());
    sample
}

/// Runs the three steps; between the phases, `answer` provides the fetched response.
fn serve(
    sample: &mut Sample,
    settings: &ErrorPages,
    answer: impl FnOnce(&FetchRequest) -> FetchResult,
) -> Option<Response> {
    sample.run(&AskForPage, settings);
    if let Some(answer) = sample.value::<Fetch<PageFetch>>().map(answer) {
        sample.put::<Fetched<PageFetch>>(answer);
    }
    sample.run(&Make, settings);
    match sample.run(&Serve, settings) {
        Verdict::Stop(Action::Respond(response)) => Some(response),
        _ => None,
    }
}

fn unasked(request: &FetchRequest) -> FetchResult {
    panic!("nothing is to be fetched: {request:?}")
}

fn body(response: Option<Response>) -> String {
    response.map_or("original".into(), |response| String::from_utf8(response.body.into()).unwrap())
}

fn source(sample: &Sample) -> &'static str {
    sample.value::<Chosen>().unwrap()
}

#[test]
fn the_first_page_with_the_status_is_taken() {
    let settings = read(pages(&[
        page(&["404"], "file", "404.html"),
        page(&["4xx", "520-530"], "text", "{status}"),
        page(&["999"], "text", "far out"),
    ]))
    .unwrap();
    let shown = |status: u16| body(serve(&mut error(status), &settings, unasked));
    assert_eq!(shown(404), "<b>example.com</b>");
    assert_eq!(shown(403), "403");
    assert_eq!(shown(499), "499");
    assert_eq!(shown(520), "520");
    assert_eq!(shown(530), "530");
    assert_eq!(shown(999), "far out");
    for status in [200, 301, 399, 500, 519, 531, 600, 998] {
        assert_eq!(shown(status), "original", "{status}");
    }
}

#[test]
fn fields_of_the_original_stay_unless_they_describe_its_body() {
    let settings =
        read(pages(&[page(&["503"], "text", "later").prop_literal("type", "text/plain")])).unwrap();
    let mut sample = error(503)
        .response_field("Retry-After", "5")
        .response_field("Content-Type", "text/html")
        .response_field("ETag", "\"1\"")
        .response_field("Content-Length", "9")
        .response_field("set-cookie", "a=1");
    let response = serve(&mut sample, &settings, unasked).unwrap();
    assert_eq!(response.status, 503);
    let names: Vec<_> = response.fields.iter().map(|field| String::from_utf8_lossy(field.name())).collect();
    assert_eq!(names, ["Retry-After", "set-cookie", "content-type"]);
    assert_eq!(source(&sample), "text");
    assert_eq!(Chosen::show(sample.value::<Chosen>().unwrap()), Some(Shown::Bytes(b"text")));
    assert_eq!(sample.state.notes.len(), 1);
}

#[test]
fn whose_errors_is_a_setting() {
    let of = |of: &str, error: Option<&str>| {
        let settings = read(pages(&[page(&["5xx"], "text", "ours")]).prop_literal("of", of)).unwrap();
        let mut sample = Sample::get("/").response(502);
        sample.error = error.map(String::from);
        body(serve(&mut sample, &settings, unasked))
    };
    assert_eq!(of("proxy", Some("timeout")), "ours");
    assert_eq!(of("proxy", None), "original");
    assert_eq!(of("origin", Some("timeout")), "original");
    assert_eq!(of("origin", None), "ours");
    assert_eq!(of("both", Some("timeout")), "ours");
    assert_eq!(of("both", None), "ours");
    assert!(Of::Proxy.holds(Source::Step { name: "access", meant: false }));
    assert!(!Of::Both.holds(Source::Step { name: "maintenance", meant: true }));
    assert!(!Of::Both.holds(Source::Route));
}

#[test]
fn pages_are_fetched_and_kept() {
    let settings = read(pages(&[page(&["5xx"], "upstream", "pages")
        .prop_literal("path", "/e/{status}")
        .prop_literal("keep", "5m")]))
    .unwrap();
    let answer = |status: u16, fields: &[(&'static str, &'static str)]| FetchResponse {
        status,
        fields: fields.iter().map(|(name, value)| Field::new(*name, *value).unwrap()).collect(),
        body: "<p>{status} {path}".into(),
    };
    let mut sample = error(502);
    let response = serve(&mut sample, &settings, |request| {
        assert_eq!(request.target, FetchTarget::Upstream(UpstreamId(0)));
        assert_eq!(*request.path, *b"/e/502");
        assert_eq!(request.keep, Duration::from_secs(300));
        Ok(answer(200, &[("content-type", "text/html")]))
    });
    assert_eq!(body(response), "<p>502 /secret");
    assert_eq!(source(&sample), "fetched");
    for failure in
        [Err(FetchError::Timeout), Ok(answer(404, &[])), Ok(answer(200, &[("content-encoding", "gzip")]))]
    {
        let mut sample = error(502);
        assert_eq!(serve(&mut sample, &settings, |_| failure), None);
        assert_eq!(source(&sample), "original");
    }
}

#[test]
fn programs_get_json() {
    let node = pages(&[page(&["5xx"], "upstream", "pages")])
        .with_child(node("json").arg_literal("{\"status\": {status}, \"path\": \"{path}\"}"));
    let settings = read(node).unwrap();
    let mut sample = error(502).field("accept", "application/json");
    sample.path = b"/a\"b".to_vec();
    let response = serve(&mut sample, &settings, unasked).unwrap();
    assert_eq!(*response.body, *br#"{"status": 502, "path": "/a\"b"}"#);
    let fields: Vec<_> = response.fields.iter().map(|field| (field.name(), field.value())).collect();
    assert_eq!(fields, [(&b"content-type"[..], &b"application/json"[..]), (b"vary", b"accept")]);
    assert_eq!(source(&sample), "json");
    for (accept, json) in [
        ("application/json, text/html;q=0.9", true),
        ("text/html, application/json;q=0.9", false),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false),
        ("*/*", false),
        ("", false),
        ("application/problem+json;q=0.001", true),
        ("application/json;q=0", false),
        ("application/json;q=x", false),
        ("application/json;q=1.5", false),
        ("application/*", true),
        ("application/*, text/html;q=0.9", true),
        ("application/json;q=0.1, application/*, text/*;q=0.2", false),
        ("application/vnd.api+json, */*;q=0.1", true),
        ("text/html;q=0.2, */*", true),
    ] {
        let sample = Sample::get("/").field("accept", accept);
        assert_eq!(prefers_json(&sample.request), json, "{accept}");
    }
}

#[test]
fn another_status_can_be_sent() {
    let page = page(&["404"], "text", "gone").prop_literal("status", 410);
    let settings = read(pages(&[page])).unwrap();
    assert_eq!(serve(&mut error(404), &settings, unasked).unwrap().status, 410);
}

#[test]
fn mistakes_are_told() {
    let told = |node: Node| read(node).unwrap_err().message;
    let status = "expected a status from 300 to 999, such as 404, \"4xx\" or \"520-530\"";
    for bad in ["200", "1000", "xx", "4x", "2xx", "530-520", "404-", "40a", ""] {
        assert_eq!(told(pages(&[page(&[bad], "text", "")])), status, "{bad}");
    }
    assert_eq!(told(pages(&[node("page").arg_literal(299).prop_literal("text", "")])), status);
    let one = "a page needs exactly one of text=TEXT, file=FILE and upstream=NAME";
    assert_eq!(told(pages(&[node("page").arg_literal(404)])), one);
    assert_eq!(told(pages(&[page(&["404"], "text", "a").prop_literal("file", "404.html")])), one);
    assert_eq!(
        told(pages(&[page(&["404"], "text", "a").prop_literal("keep", "1m")])),
        "this belongs to pages that are fetched with upstream=NAME"
    );
    assert_eq!(told(pages(&[page(&["404"], "upstream", "none")])), "there is no upstream of this name");
    assert_eq!(
        told(pages(&[page(&["404"], "upstream", "pages").prop_literal("path", "e")])),
        "expected a path that starts with `/`"
    );
    let never = "there is a page for this before it, so that it is never sent";
    assert_eq!(told(pages(&[page(&["4xx"], "text", "a"), page(&["404"], "text", "b")])), never);
    assert!(read(pages(&[page(&["4xx", "404"], "text", "a"), page(&["4xx", "5xx"], "text", "b")])).is_err());
    assert!(read(pages(&[page(&["5xx", "520-530"], "text", "a"), page(&["400-599"], "text", "b")])).is_ok());
    assert_eq!(told(pages(&[])), "`error-pages` needs a page");
    assert_eq!(told(node("error-pages").arg_literal("404.html")), "`error-pages` takes a block");
}
