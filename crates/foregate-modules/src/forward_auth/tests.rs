use alloc::vec;

use foregate_module::testing::{Literals, Sample, node};
use foregate_module::{Action, FetchError, FetchResult, Fields, Verdict};

use super::*;

fn auth() -> Node {
    node("forward-auth").prop_literal("upstream", "auth").prop_literal("path", "/verify?a=b")
}

fn names(key: &str, names: &[&str]) -> Node {
    names.iter().fold(node(key), |node, name| node.arg_literal(*name))
}

fn read(node: Node) -> Result<ForwardAuthSettings, Problem> {
    let mut literals = Literals { upstreams: vec!["app", "auth"], ..Literals::default() };
    ForwardAuthSettings::from_nodes(&[node], &mut literals)
}

fn asked(sample: &mut Sample, settings: &ForwardAuthSettings) -> Option<FetchRequest> {
    assert_eq!(sample.run(&AskForAccess, settings), Verdict::Continue);
    sample.value::<Fetch<Question>>().cloned()
}

fn told(request: &FetchRequest) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    request.fields.iter().map(|field| (text(field.name()), text(field.value()))).collect()
}

fn answer(status: u16, fields: &[(&'static str, &'static str)], body: &'static str) -> FetchResult {
    let fields = fields.iter().map(|(name, value)| Field::new(*name, *value).unwrap()).collect();
    Ok(FetchResponse { status, fields, body: body.into() })
}

fn answered(sample: &mut Sample, settings: &ForwardAuthSettings, answer: FetchResult) -> Verdict {
    sample.put::<Fetched<Question>>(answer);
    sample.run(&ForwardAuth, settings)
}

#[test]
fn the_server_is_told_what_is_asked_for_and_not_what_the_client_says_of_it() {
    let settings = read(auth().with_child(names("send", &["X-Api-Key", "cookie"]))).unwrap();
    let mut sample = Sample::get("/admin?x=1")
        .method("POST")
        .field("cookie", "a=1")
        .field("cookie", "b=2")
        .field("authorization", "Bearer t")
        .field("x-api-key", "k")
        .field("x-secret", "s")
        .field("x-forwarded-uri", "/public")
        .field("x-forwarded-for", "203.0.113.1")
        .field("x-forwarded-method", "GET");
    let request = asked(&mut sample, &settings).unwrap();
    assert_eq!((&*request.path, &*request.method), (&b"/verify?a=b"[..], &b"GET"[..]));
    assert_eq!(request.target, FetchTarget::Upstream(UpstreamId(1)));
    assert_eq!((request.timeout, request.limit, request.keep), (TIMEOUT, BODY_MOST, Duration::ZERO));
    let expected = [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "example.com"),
        ("x-forwarded-uri", "/admin?x=1"),
        ("x-forwarded-for", "192.0.2.1"),
        ("authorization", "Bearer t"),
        ("cookie", "a=1; b=2"),
        ("x-api-key", "k"),
    ];
    assert_eq!(told(&request), expected.map(|(name, value)| (name.into(), value.into())));
}

#[test]
fn what_cannot_be_told_is_not_asked_and_lets_nobody_in() {
    let settings = read(auth()).unwrap();
    let mut sample = Sample::get("/");
    sample.path = b"/a\x01".to_vec();
    assert_eq!(asked(&mut sample, &settings), None);
    let Verdict::Stop(Action::Respond(response)) = sample.run(&ForwardAuth, &settings) else {
        unreachable!()
    };
    assert_eq!(response.status, 503);
}

#[test]
fn several_credentials_let_nobody_in() {
    for (node, second) in [
        (auth(), "Bearer other"),
        (auth(), ""),
        (auth().with_child(names("copy", &["authorization"])), "Bearer other"),
    ] {
        let settings = read(node).unwrap();
        let mut sample = Sample::get("/").field("authorization", "Bearer t").field("Authorization", second);
        assert_eq!(asked(&mut sample, &settings), None);
        let Verdict::Stop(Action::Respond(response)) = sample.run(&ForwardAuth, &settings) else {
            unreachable!()
        };
        assert_eq!(response.status, 400);
        assert_eq!(sample.state.notes, vec![("forward-auth".into(), "several credentials".into())]);
    }
}

#[test]
fn each_path_that_an_origin_may_serve_has_to_pass() {
    let settings = read(auth()).unwrap();
    let yes = || answer(204, &[], "");
    let sample_of = |paths: &[&str]| {
        let mut sample = Sample::get("/x/..%2Fadmin");
        sample.other_paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        assert!(asked(&mut sample, &settings).is_some());
        assert_eq!(sample.run(&AskOthers, &settings), Verdict::Continue);
        sample
    };
    let uri = |request: &FetchRequest| {
        told(request).into_iter().find(|(name, _)| name == "x-forwarded-uri").map(|(_, value)| value)
    };
    let mut sample = sample_of(&["/x/../admin", "/admin"]);
    let others = [sample.value::<Fetch<Other<0>>>(), sample.value::<Fetch<Other<1>>>()];
    assert_eq!(others.map(|other| other.and_then(uri)), [Some("/x/../admin".into()), Some("/admin".into())]);
    assert!(sample.value::<Fetch<Other<2>>>().is_none());
    sample.put::<Fetched<Other<0>>>(yes());
    sample.put::<Fetched<Other<1>>>(yes());
    assert_eq!(answered(&mut sample, &settings, yes()), Verdict::Continue);

    for (no, status) in [(Some(answer(403, &[], "")), 403), (Some(Err(FetchError::Busy)), 503), (None, 503)] {
        let mut sample = sample_of(&["/x/../admin", "/admin"]);
        sample.put::<Fetched<Other<0>>>(yes());
        if let Some(no) = no {
            sample.put::<Fetched<Other<1>>>(no);
        }
        let Verdict::Stop(Action::Respond(response)) = answered(&mut sample, &settings, yes()) else {
            unreachable!()
        };
        assert_eq!(response.status, status);
        let note = String::from_utf8_lossy(&sample.state.notes[0].1).into_owned();
        assert!(note.contains(" for /admin, as which"), "{note}");
    }
    let mut sample = sample_of(&["/a", "/b", "/c", "/d", "/e", "/f"]);
    assert!(sample.value::<Fetch<Other<0>>>().is_none(), "what is refused anyway is not asked");
    let Verdict::Stop(Action::Respond(response)) = answered(&mut sample, &settings, yes()) else {
        unreachable!()
    };
    assert_eq!(response.status, 400);
}

#[test]
fn an_empty_cookie_field_hinders_nobody() {
    let settings = read(auth()).unwrap();
    for (cookies, expected) in [
        (&["a=1", ""][..], Some("a=1")),
        (&["", "a=1", "", "b=2"], Some("a=1; b=2")),
        (&["", ""], None),
        (&[], None),
    ] {
        let with = |sample: Sample, value: &&str| sample.field("cookie", value);
        let mut sample = cookies.iter().fold(Sample::get("/"), with);
        let request = asked(&mut sample, &settings).unwrap();
        let sent = request.fields.iter().find(|field| field.name() == b"cookie").map(Field::value);
        assert_eq!(sent, expected.map(str::as_bytes), "{cookies:?}");
    }
}

#[test]
fn a_yes_brings_fields_which_no_client_can_bring() {
    let settings = read(auth().with_child(names("copy", &["X-User", "x-group"]))).unwrap();
    let mut sample = Sample::get("/").field("x-user", "root").field("X-Group", "wheel").field("x-other", "o");
    asked(&mut sample, &settings);
    assert_eq!(sample.request.get("x-user"), None, "gone before anybody could believe it");
    let yes = answer(204, &[("x-user", "ada"), ("X-Group", "a"), ("x-group", "b"), ("x-more", "m")], "");
    // Whatever came in between does not count either.
    let mut sample = sample.field("x-user", "eve");
    assert_eq!(answered(&mut sample, &settings, yes), Verdict::Continue);
    let all = |name: &str| (&sample.request as &dyn Fields).all(name).map(<[u8]>::to_vec).collect::<Vec<_>>();
    assert_eq!(all("x-user"), [b"ada"]);
    assert_eq!(all("x-group"), [b"a", b"b"]);
    assert_eq!(all("x-other"), [b"o"]);
    assert!(all("x-more").is_empty());

    let mut sample = Sample::get("/").field("x-user", "root");
    assert_eq!(answered(&mut sample, &settings, answer(200, &[], "")), Verdict::Continue);
    assert_eq!(sample.request.get("x-user"), None, "what the answer does not say is not there");
}

#[test]
fn a_no_goes_to_the_client() {
    let settings = read(auth()).unwrap();
    let fields = [
        ("location", "https://login.example"),
        ("Set-Cookie", "a=b"),
        ("set-cookie", "c=d"),
        ("server", "x"),
    ];
    for status in [302, 401, 403, 500] {
        let mut sample = Sample::get("/");
        let verdict = answered(&mut sample, &settings, answer(status, &fields, "no"));
        let Verdict::Stop(Action::Respond(response)) = verdict else { unreachable!() };
        assert_eq!((response.status, &*response.body), (status, &b"no"[..]));
        let names: Vec<_> = response.fields.iter().map(|field| field.name().to_ascii_lowercase()).collect();
        assert_eq!(names, [b"location".to_vec(), b"set-cookie".to_vec(), b"set-cookie".to_vec()]);
        assert_eq!(sample.state.notes.len(), 1);
    }
}

#[test]
fn no_answer_lets_nobody_in() {
    for (status, node) in [(503, auth()), (502, auth().prop_literal("failure-status", 502))] {
        let settings = read(node).unwrap();
        for error in [FetchError::Connection, FetchError::Timeout, FetchError::TooLarge, FetchError::Busy] {
            let mut sample = Sample::get("/");
            let verdict = answered(&mut sample, &settings, Err(error));
            let Verdict::Stop(Action::Respond(response)) = verdict else { unreachable!() };
            assert_eq!(response.status, status);
            let why = Text::from(error.to_string());
            assert_eq!(sample.state.notes, vec![("forward-auth".into(), why)]);
        }
    }
}

#[test]
fn cookies_of_a_yes_can_go_to_the_client() {
    let settings = read(auth().with_child(names("copy-to-response", &["set-cookie"]))).unwrap();
    for (status, expected) in [(200, Some(&b"a=b"[..])), (401, None)] {
        let mut sample = Sample::get("/").response(200);
        sample.put::<Fetched<Question>>(answer(status, &[("set-cookie", "a=b")], ""));
        sample.run(&ToClient, &settings);
        assert_eq!(sample.response.get("set-cookie"), expected);
    }
}

#[test]
fn mistakes_are_told() {
    for (node, message) in [
        (node("forward-auth").prop_literal("upstream", "auth"), "`forward-auth` needs `upstream` and `path`"),
        (auth().arg_literal(true), "`forward-auth` takes no value but #false"),
        (
            node("f").prop_literal("upstream", "nobody").prop_literal("path", "/"),
            "there is no upstream of this name",
        ),
        (node("f").prop_literal("upstream", "auth").prop_literal("path", "verify"), "this is not a path"),
        (auth().prop_literal("host", "a b"), "this is not a host"),
        (auth().prop_literal("timeout", "0ms"), "expected a duration from 10ms to 1m"),
        (auth().prop_literal("failure-status", 200), "expected a whole number from 500 to 599"),
        (auth().with_child(names("copy", &["a b"])), "this is not the name of a field"),
        (auth().with_child(names("copy", &["Host"])), "this field is set by Foregate itself"),
        (auth().with_child(names("send", &["x-forwarded-uri"])), "this field is set by Foregate itself"),
        (
            auth().with_child(names("send", &["x-key", "X-User"])).with_child(names("copy", &["x-user"])),
            "this field is in `copy`, so that the client's own is removed before the server is asked",
        ),
    ] {
        assert_eq!(read(node).err().map(|problem| problem.message).as_deref(), Some(message));
    }
    let both = auth().with_child(names("send", &["authorization"]));
    assert!(
        read(both.with_child(names("copy", &["authorization"]))).is_ok(),
        "the server is sent the client's own"
    );
}
