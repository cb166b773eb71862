use super::*;
use alloc::string::ToString;
use foregate_module::Verdict;
use foregate_module::testing::{Literals, Sample, node, settings};

fn names(sample: &Sample) -> Vec<&str> {
    sample.request.0.iter().map(|(name, _)| core::str::from_utf8(name).unwrap()).collect()
}

#[test]
fn requests_lose_what_is_named() {
    let clear: ClearHeaders =
        settings(&[node("clear-headers").arg_literal("x-internal-*").arg_literal("X-Debug")]).unwrap();
    let mut sample = Sample::get("/")
        .field("Host", "example.com")
        .field("X-Internal-User", "root")
        .field("x-debug", "1")
        .field("x-debugger", "2")
        .field("X-DEBUG", "3");
    assert_eq!(sample.run(&ClearRequest, &clear), Verdict::Continue);
    assert_eq!(names(&sample), ["Host", "x-debugger"]);
}

#[test]
fn an_underscore_is_a_hyphen() {
    let clear: ClearHeaders = settings(&[node("clear-headers")
        .arg_literal("x-internal-*")
        .arg_literal("x_debug")
        .prop_literal("builtin", true)
        .prop_literal("responses", true)])
    .unwrap();
    let mut sample = Sample::get("/")
        .field("X_Internal_User", "root")
        .field("X-Internal_User", "root")
        .field("X-Debug", "1")
        .field("X_Remote_User", "root")
        .field("X_Real-IP", "192.0.2.9")
        .field("x_mine", "stays");
    sample.run(&ClearRequest, &clear);
    assert_eq!(names(&sample), ["x_mine"]);
    assert!(!ClearResponse.keeps(&clear, Swept::Trailers, b"x_internal_cost"));
    assert!(ClearResponse.keeps(&clear, Swept::Trailers, b"x_mine"));
    assert!(
        !ClearRequest.keeps(&clear, Swept::Trailers, b"X_Internal_Cost")
            && ClearRequest.keeps(&clear, Swept::Trailers, b"x_mine")
    );
}

#[test]
fn what_the_platform_tells_origins_itself_is_not_in_the_list() {
    let clear: ClearHeaders = settings(&[node("clear-headers").prop_literal("builtin", true)]).unwrap();
    for own in
        ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded", "via", "x-request-id"]
    {
        assert!(!clear.names.contains(own.as_bytes()), "{own}");
    }
    let told = "x-real-ip x-forwarded-port x-forwarded-ssl x-forwarded-scheme x-forwarded-server x-forwarded-prefix \
        x-forwarded-uri x-forwarded-method x-host x-original-forwarded-for x-user x-proxyuser-ip forwarded-for \
        x-forwarded true-client-ip client-cert x-consumer-username oidc-claim-sub";
    for name in told.split_whitespace() {
        assert!(clear.names.contains(name.as_bytes()), "{name}");
    }
    let mut sorted: Vec<&str> = builtin().collect();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), builtin().count(), "a name stands in the list twice");
}

#[test]
fn responses_are_cleared_when_told_so() {
    let plain: ClearHeaders = settings(&[node("clear-headers").arg_literal("x-a")]).unwrap();
    let mut sample = Sample::get("/").response(200).response_field("x-a", "1").response_field("x-b", "2");
    sample.run(&ClearResponse, &plain);
    assert_eq!(sample.response.count(), 2);
    let both: ClearHeaders = settings(&[node("clear-headers")
        .arg_literal("x-a")
        .prop_literal("requests", false)
        .prop_literal("responses", true)])
    .unwrap();
    sample.run(&ClearResponse, &both);
    assert_eq!(sample.response.get("x-a"), None);
    assert_eq!(sample.response.get("x-b"), Some(&b"2"[..]));
    let mut sample = Sample::get("/").field("x-a", "1");
    sample.run(&ClearRequest, &both);
    assert_eq!(sample.request.count(), 1);
}

#[test]
fn more_than_64_fields_are_counted_right() {
    let clear: ClearHeaders = settings(&[node("clear-headers").arg_literal("x-gone")]).unwrap();
    let mut sample = Sample::get("/");
    for number in 0..130 {
        let name = if number % 3 == 0 { "x-gone".to_string() } else { format!("x-{number}") };
        sample = sample.field(&name, "");
    }
    sample.run(&ClearRequest, &clear);
    assert_eq!(sample.request.count(), 130 - 44);
    assert!(names(&sample).iter().all(|name| *name != "x-gone"));
}

#[test]
fn the_list_that_ships_has_more_than_a_hundred_names() {
    assert!(builtin().count() > 100);
    for name in builtin() {
        check(name.as_bytes()).unwrap();
        assert_eq!(name, name.to_ascii_lowercase());
    }
    let clear: ClearHeaders = settings(&[node("clear-headers").prop_literal("builtin", true)]).unwrap();
    let mut sample = Sample::get("/").field("CF-Connecting-IP", "1.2.3.4").field("accept", "*/*");
    sample.run(&ClearRequest, &clear);
    assert_eq!(names(&sample), ["accept"]);
}

#[test]
fn a_file_has_a_name_on_each_line() {
    let mut context = Literals {
        files: Vec::from([
            ("names.txt", b"# ours\n\nx-one\r\n x-two-* # all of them\n".to_vec()),
            ("bad.txt", b"x-one\nx one\n".to_vec()),
        ]),
        ..Literals::default()
    };
    let read = |file: &str, context: &mut Literals| {
        ClearHeaders::from_nodes(&[node("clear-headers").prop_literal("file", file)], context)
    };
    let clear = read("names.txt", &mut context).unwrap();
    assert!(clear.names.contains(b"X-One") && clear.names.contains(b"x-two-3"));
    let problem = read("bad.txt", &mut context).unwrap_err();
    assert_eq!(problem.message, "line 2: `x one`: this is not the name of a field");
    assert_eq!(read("none.txt", &mut context).unwrap_err().message, "cannot read none.txt");
}

#[test]
fn mistakes_are_told() {
    let told = |node: Node| settings::<ClearHeaders>(&[node]).unwrap_err().message;
    let key = || node("clear-headers");
    assert_eq!(told(key()), "`clear-headers` needs names");
    assert_eq!(told(key().arg_literal("*")), "`*` alone would clear every field");
    assert_eq!(told(key().arg_literal("x-*-y")), "`x-*-y`: a `*` can only stand at the end");
    assert_eq!(
        told(key().arg_literal("Host")),
        "`host` is the target of the request, which no field changes"
    );
    assert_eq!(
        told(key().arg_literal("Content-Length")),
        "`Content-Length`: this field belongs to the connection or the framing, which no module changes"
    );
    assert_eq!(told(key().arg_literal("a b")), "`a b`: this is not the name of a field");
    assert_eq!(told(key().arg_literal(5)), "expected a text, found a number");
    assert_eq!(
        told(key().arg_literal("x-a").prop_literal("requests", false)),
        "`clear-headers` has nothing to clear: both requests and responses are left out"
    );
    assert_eq!(told(key().arg_literal("x".repeat(256).as_str())), "a name of more than 255 bytes");
}
