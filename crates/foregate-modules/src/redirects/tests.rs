use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use foregate_module::settings::{FromNode, Node, Problem};
use foregate_module::testing::{Handshake, Literals, Sample, node, settings};
use foregate_module::{Action, Verdict};

use super::address::{REFERENCE, VARIABLE};
use super::{FollowLists, FollowRedirects, RedirectLists, Redirects};

fn redirect(source: &str, to: &str) -> Node {
    node("redirect").arg_literal(source).prop_literal("to", to)
}

fn taken(nodes: &[Node]) -> Redirects {
    settings(nodes).unwrap_or_else(|problem: Problem| panic!("{problem:?}"))
}

fn refused(nodes: &[Node]) -> String {
    settings::<Redirects>(nodes).err().map(|problem| problem.message).unwrap_or_default()
}

/// Status and location.
fn led(verdict: Verdict) -> Option<(u16, String)> {
    let Verdict::Stop(Action::Respond(response)) = verdict else { return None };
    let location = response.fields.iter().find(|field| field.name() == b"location")?;
    Some((response.status, String::from_utf8(location.value().to_vec()).ok()?))
}

fn ask(settings: &Redirects, target: &str) -> Option<(u16, String)> {
    led(Sample::get(target).run(&FollowRedirects, settings))
}

fn to(status: u16, location: &str) -> Option<(u16, String)> {
    Some((status, location.to_string()))
}

#[test]
fn an_exact_path_leads_to_its_target() {
    let settings = taken(&[
        redirect("/old", "/new").prop_literal("status", 301),
        redirect("/q", "/r?a=1#end").prop_literal("keep-query", true),
        redirect("Example.com/only", "https://other.example/"),
        redirect("/only", "/everybody-else"),
    ]);
    assert_eq!(ask(&settings, "/old"), to(301, "/new"));
    assert_eq!(ask(&settings, "/old?a=b"), to(301, "/new"));
    assert_eq!(ask(&settings, "/q?b=2"), to(302, "/r?a=1&b=2#end"));
    assert_eq!(ask(&settings, "/q"), to(302, "/r?a=1#end"));
    assert_eq!(ask(&settings, "/only"), to(302, "https://other.example/"));
    for path in ["/old/", "/ol", "/oldest", "/", "/Old"] {
        assert_eq!(ask(&settings, path), None, "{path}");
    }
    let mut elsewhere = Sample::get("/only");
    elsewhere.host = "other.example".into();
    assert_eq!(led(elsewhere.run(&FollowRedirects, &settings)), to(302, "/everybody-else"));
}

#[test]
fn patterns_hand_on_what_their_wildcards_stand_for() {
    let settings = taken(&[
        redirect("/blog/**", "/journal/${1}"),
        redirect("/u/*/posts/*", "https://people.example/*/*").prop_literal("status", 308),
        redirect("/swap/*/*", "/turned/${2}/${1}"),
        redirect("/gone/**", "/archive"),
        redirect("/blog/first", "/exact"),
    ]);
    assert_eq!(ask(&settings, "/blog/a/b?x"), to(302, "/journal/a/b"));
    assert_eq!(ask(&settings, "/blog"), to(302, "/journal/"));
    assert_eq!(ask(&settings, "/blog/"), to(302, "/journal/"));
    assert_eq!(ask(&settings, "/blog/first"), to(302, "/exact"));
    assert_eq!(ask(&settings, "/u/ann/posts/7"), to(308, "https://people.example/ann/7"));
    assert_eq!(ask(&settings, "/swap/1/2"), to(302, "/turned/2/1"));
    assert_eq!(ask(&settings, "/gone/x"), to(302, "/archive"));
    for path in ["/blogs", "/u/ann/posts", "/u//posts/7", "/u/a/b/posts/7", "/swap/1"] {
        assert_eq!(ask(&settings, path), None, "{path}");
    }
}

#[test]
fn what_stands_in_a_query_is_one_value() {
    let settings = taken(&[redirect("/s/**", "/find?q=${1}&from=s#${1}"), redirect("/t/*", "/u/*")]);
    assert_eq!(
        ask(&settings, "/s/a&admin=1+2/b"),
        to(302, "/find?q=a%26admin%3D1%2B2/b&from=s#a&admin=1+2/b")
    );
    assert_eq!(ask(&settings, "/t/a&b=c"), to(302, "/u/a&b=c"));
}

#[test]
fn a_captured_slash_names_no_other_host() {
    let settings = taken(&[redirect("/go/**", "/${1}"), redirect("/at/**", "/**")]);
    for path in ["/go//evil.example/x", "/go///evil.example/x", "/at//evil.example/x"] {
        assert_eq!(ask(&settings, path), to(302, "/evil.example/x"), "{path}");
    }
}

#[test]
fn nobody_is_led_to_where_they_are() {
    let settings = taken(&[
        redirect("/a", "https://example.com/a"),
        redirect("/docs/**", "/docs/index.html"),
        redirect("/", "https://EXAMPLE.com"),
    ]);
    assert_eq!(ask(&settings, "/a"), to(302, "https://example.com/a"));
    let encrypted = |target: &str| {
        let mut sample = Sample::get(target);
        sample.tls = Some(Handshake::default());
        led(sample.run(&FollowRedirects, &settings))
    };
    assert_eq!(encrypted("/a"), None);
    assert_eq!(encrypted("/a?x"), to(302, "https://example.com/a"));
    assert_eq!(encrypted("/"), None);
    assert_eq!(ask(&settings, "/docs/index.html"), None);
    assert_eq!(ask(&settings, "/docs/other.html"), to(302, "/docs/index.html"));
}

#[test]
fn an_address_is_the_same_however_it_is_written() {
    let asks = |target: &str, asked: &str, scheme: &str| {
        let (path, query) = asked.split_once('?').map_or((asked, None), |(path, query)| (path, Some(query)));
        super::is_same(target.as_bytes(), scheme, "example.com", path.as_bytes(), query.map(str::as_bytes))
    };
    for (target, asked, scheme, same) in [
        ("https://example.com:443/a", "/a", "https", true),
        ("https://example.com:/a", "/a", "https", true),
        ("http://example.com:80/a?b#c", "/a?b", "http", true),
        ("HTTPS://Example.com:443", "/", "https", true),
        ("https://example.com:80/a", "/a", "https", false),
        ("https://example.com:443/a", "/a", "http", false),
        ("https://example.com.evil/a", "/a", "https", false),
        ("https://example.com?b", "/?b", "https", true),
        ("/./a", "/a", "http", true),
        ("/b/../a", "/a", "http", true),
        ("/%2e%2E/a/.", "/a/", "http", true),
        ("/..", "/", "http", true),
        ("/%61", "/a", "http", true),
        ("/a%2fb", "/a%2Fb", "http", true),
        ("/a%2fb", "/a/b", "http", false),
        ("/a%zz%4", "/a%zz%4", "http", true),
        ("/a.", "/a", "http", false),
        ("/a//b", "/a/b", "http", true),
        ("/a//b", "/a//b", "http", true),
        ("/a/..b", "/a/..b", "http", true),
    ] {
        assert_eq!(asks(target, asked, scheme), same, "{target} {asked}");
    }
}

#[test]
fn who_follows_patterns_comes_to_an_end() {
    let circles = |redirects: &[(&str, &str)]| {
        let nodes: Vec<Node> = redirects.iter().map(|(from, to)| redirect(from, to)).collect();
        let settings = taken(&nodes);
        settings.patterns.iter().filter(|redirect| settings.circles(redirect)).count()
    };
    assert_eq!(circles(&[("/a/*", "/b/*"), ("/b/*", "/a/*")]), 2);
    assert_eq!(circles(&[("/a/**", "/b/x/${1}"), ("/b/**", "/a/${1}")]), 2);
    assert_eq!(circles(&[("/a", "/b/x"), ("/b/*", "/a")]), 1);
    assert_eq!(circles(&[("/a/*", "/b/*"), ("/b/*", "/c/*"), ("/c/**", "/c/index")]), 0);
    assert_eq!(circles(&[("/a/*", "https://b.example/b/*"), ("/b/*", "/a/*")]), 0);
    assert_eq!(refused(&[redirect("/f/**", "/f/./${1}")]), "this target leads back to its own source");
    assert_eq!(refused(&[redirect("/f/*", "/f//*")]), "this target leads back to its own source");
    assert_eq!(refused(&[redirect("/a", "/./a")]), "this redirect leads back to itself");
    assert_eq!(refused(&[redirect("/a", "/%61")]), "this redirect leads back to itself");
}

#[test]
fn sources_that_no_request_has_are_refused() {
    for (source, message) in [
        ("old", "a source is a path, `/old`, or a host and a path, `example.com/old`"),
        ("https://a.example/", "a source has no scheme: write the host and the path, `example.com/old`"),
        ("a.example:80/", "a source has no port"),
        ("a b.example/", "this is not a host"),
        ("/a?b", "a source has no query and no fragment: it takes the path, whatever the query is"),
        ("/a/../b", "paths are compared after their dot segments have been resolved; no path has one then"),
        ("/a b", "a path has this byte percent-encoded, with upper-case digits, as in `/a%20b`"),
        ("/a%2fb", "a path has this byte percent-encoded, with upper-case digits, as in `/a%20b`"),
        ("/%41", "paths are compared with letters, digits, `-`, `.`, `_` and `~` decoded"),
        ("/%00", "no path has `%00`"),
        ("/a**", "`**` stands at the end, after a slash: `/blog/**`"),
        ("/a*", "`*` stands for one whole segment: `/users/*/posts`"),
        ("/*/*/*/*/*/*/*/*/*/*", "a pattern has at most 9 wildcards"),
    ] {
        assert_eq!(refused(&[redirect(source, "/to")]), message, "{source}");
    }
    assert_eq!(ask(&taken(&[redirect("/caf%C3%A9", "/to")]), "/caf%C3%A9"), to(302, "/to"));
}

#[test]
fn all_that_is_wrong_is_told() {
    let nodes = [redirect("/a", "b"), redirect("/c", "/d"), redirect("e", "/f"), redirect("/*", "/${2}")];
    let problem = settings::<Redirects>(&nodes).err().unwrap();
    assert!(problem.message.starts_with("a target is a path"), "{problem:?}");
    let further: Vec<&str> = problem.further.iter().map(|problem| &*problem.message).collect();
    assert_eq!(further.len(), 2, "{further:?}");
    assert!(
        further[0].starts_with("a source is a path") && further[1].contains("fewer wildcards"),
        "{further:?}"
    );
}

#[test]
fn targets_that_lead_astray_are_refused() {
    for (source, target, message) in [
        ("/a", "/b\r\nset-cookie: x", "a target has no control bytes, so no line breaks either"),
        (
            "/a",
            "/b c",
            "a target has blanks, quotes, `<`, `>`, `\\`, `^`, `|` and what is no ASCII percent-encoded, as in `/a%20b`",
        ),
        (
            "/a",
            "/\\evil.example",
            "a target has blanks, quotes, `<`, `>`, `\\`, `^`, `|` and what is no ASCII percent-encoded, as in `/a%20b`",
        ),
        ("/a", "//evil.example", "a target that begins with `//` names another host; write its scheme too"),
        ("/a", "b", "a target is a path, `/new`, or begins with `http://` or `https://`"),
        ("/a", "", "a target is a path, `/new`, or begins with `http://` or `https://`"),
        ("/a", "javascript:x", "a target is a path, `/new`, or begins with `http://` or `https://`"),
        ("/a", "https:///x", "a target with a scheme has a host behind it, and no user"),
        ("/a", "https://a@b/x", "a target with a scheme has a host behind it, and no user"),
        ("/a", "/a", "this redirect leads back to itself"),
        ("/a", "/a?b", "this redirect leads back to itself"),
        ("/a", "https://b.example$request_uri", "a host has no `$`; variables have no place in a target"),
        ("/a", "https://b$.example/", "a host has no `$`; variables have no place in a target"),
        ("/a", "https://b.example/$1", VARIABLE),
        ("/a", "https://b.example/?x=$args", VARIABLE),
        ("/a", "/$_x", VARIABLE),
        ("/a/*", "https://b.example$request_uri", REFERENCE),
        ("/a", "/price$", ""),
        ("/a", "/$/x?$=$&y", ""),
        ("/a", "/${1}", "the source has no wildcard that the target could name"),
        ("/a/*", "/${2}", "the source has fewer wildcards than the target names"),
        ("/a/*", "/${0}", "the source has fewer wildcards than the target names"),
        ("/a/*", "/b/*/*", "the source has fewer wildcards than the target names"),
        ("/a/*", "/b/$1", "`$` stands before a number in braces: `${1}`; write `%24` for the character"),
        ("/a/**", "/a/b/${1}", "this target leads back to its own source"),
        ("/a/**", "/a/*", "this target leads back to its own source"),
        (
            "/a/*",
            "https://${1}.example/",
            "a part of the request's path cannot stand in the host that a redirect leads to",
        ),
        (
            "/a/*",
            "https://b.example${1}",
            "a part of the request's path cannot stand in the host that a redirect leads to",
        ),
        ("/a/*", "${1}", "a part of the request's path cannot stand in the host that a redirect leads to"),
    ] {
        assert_eq!(refused(&[redirect(source, target)]), message, "{source} {target}");
    }
    let circle = [redirect("/a", "/b"), redirect("/b", "/c?x"), redirect("/c", "/a")];
    assert_eq!(refused(&circle), "this redirect leads back to itself");
    let chain = [redirect("/a", "/b"), redirect("/b", "/c"), redirect("/d", "/b")];
    assert_eq!(refused(&chain), "");
    let twice = [redirect("/a", "/b"), redirect("/a", "/c")];
    assert_eq!(refused(&twice), "there is a redirect from this source already");
    let status = redirect("/a", "/b").prop_literal("status", 304);
    assert_eq!(refused(&[status]), "expected 301, 302, 303, 307 or 308");
}

fn list(text: &str) -> Result<RedirectLists, Problem> {
    let files = Vec::from([("list.csv", text.as_bytes().to_vec()), ("more.csv", b"/extra,/x\n".to_vec())]);
    let mut context = Literals { files, ..Literals::default() };
    let nodes = [
        node("redirects").arg_literal("list.csv").prop_literal("status", 301),
        node("redirects").arg_literal("more.csv").prop_literal("keep-query", true),
    ];
    RedirectLists::from_nodes(&nodes, &mut context)
}

fn ask_list(settings: &RedirectLists, target: &str) -> Option<(u16, String)> {
    led(Sample::get(target).run(&FollowLists, settings))
}

#[test]
fn lists_are_read_line_by_line() {
    let text = "\u{feff}# old pages\r\n/a,/b\r\n\r\nexample.com/c , https://d.example/ ,308\n\
                \"/e,f\",\"/g,\"\"h\"\"\",\n/i,/j\n";
    let message = list(text).err().map(|problem| problem.message);
    assert_eq!(
        message.as_deref(),
        Some(
            "line 5: a target has blanks, quotes, `<`, `>`, `\\`, `^`, `|` and what is no ASCII percent-encoded, as in `/a%20b`"
        )
    );
    let settings = list(&text.replace("\"\"", "")).expect("a list");
    assert_eq!(settings.len(), 5);
    assert_eq!(ask_list(&settings, "/a?x"), to(301, "/b"));
    assert_eq!(ask_list(&settings, "/c"), to(308, "https://d.example/"));
    assert_eq!(ask_list(&settings, "/e,f"), to(301, "/g,h"));
    assert_eq!(ask_list(&settings, "/extra?x=1"), to(302, "/x?x=1"));
    assert_eq!(ask_list(&settings, "/k"), None);
}

#[test]
fn errors_of_a_list_have_their_line() {
    for (text, message) in [
        ("/a", "line 1: expected `source,target` or `source,target,status`"),
        ("/a,/b,301,x", "line 1: expected `source,target,status`; put texts with a comma in double quotes"),
        ("/a,/b,200", "line 1: expected 301, 302, 303, 307 or 308"),
        ("/a,/b,x", "line 1: expected 301, 302, 303, 307 or 308"),
        ("/a,/b\n#\n/c", "line 3: expected `source,target` or `source,target,status`"),
        ("\"/a,/b", "line 1: double quotes stand around a whole value"),
        ("\"/a\"x,/b", "line 1: double quotes stand around a whole value"),
        ("/a\"b,/b", "line 1: double quotes stand around a whole value"),
        ("/a/*,/b", "line 1: a list has no wildcards; `redirect` takes them"),
        ("/a,/b\n/c,/d\n/a,/e", "line 3: this source stands in line 1 already"),
        ("#\n/extra,/b", "line 1: this source stands in line 2 of another list already"),
        ("/a,/b\n/b,/a", "line 1: this redirect leads back to itself"),
        ("/a,//b", "line 1: a target that begins with `//` names another host; write its scheme too"),
    ] {
        assert_eq!(list(text).err().map(|problem| problem.message).as_deref(), Some(message), "{text}");
    }
}

#[test]
fn a_hundred_thousand_are_looked_up_at_once_in_little_memory() {
    let mut text = String::new();
    for number in 0..100_000 {
        text.push_str(&format!("/article/{number},/archive/{number}\n"));
    }
    let length = text.len() - 200_000;
    let settings = list(&text).expect("a list");
    assert_eq!(settings.len(), 100_001);
    for number in [0, 1, 77_777, 99_999] {
        let found = ask_list(&settings, &format!("/article/{number}"));
        assert_eq!(found, to(301, &format!("/archive/{number}")));
    }
    assert_eq!(ask_list(&settings, "/article/100000"), None);
    let overhead = (settings.memory() - length) as f64 / settings.len() as f64;
    assert!(overhead < 20.0, "{overhead} bytes for each redirect beside its texts");
}
