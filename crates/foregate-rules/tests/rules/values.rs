//! Results of expressions, function by function.

use foregate_rules::{FactTable, Facts, Lists, Stage, Type, Value};

use crate::{LISTS, SCHEME, facts};

fn text(expression: &str, facts: &dyn Facts) -> Option<String> {
    let compiled = SCHEME
        .compile_value(expression, Stage::Response, &LISTS)
        .unwrap_or_else(|error| panic!("{expression}: {error}"));
    compiled.evaluate(facts).map(|value| String::from_utf8_lossy(&value.to_text()).into_owned())
}

/// An expression and its result; nothing behind `=>` if it is absent, `""` for an empty text.
const TABLE: &str = r####"
"a"  =>  a
"tab\tquote\"back\\slash\x21"  =>  tab	quote"back\slash!
r"\d"  =>  \d
42  =>  42
0  =>  0
00  =>  0
010  =>  8
-010  =>  -10
0x1F  =>  31
0x7fffffffffffffff  =>  9223372036854775807
0777777777777777777777  =>  9223372036854775807
"\101\0602\303\244"  =>  A02ä
r"\101"  =>  \101
-9223372036854775808  =>  -9223372036854775808
9223372036854775807  =>  9223372036854775807
true  =>  true
ssl  =>  true
tls.client.verified  =>  false
http.host eq "x"  =>  false
2001:db8::1  =>  2001:db8::1
::ffff:192.0.2.1  =>  192.0.2.1
::  =>  ::
ip.src  =>  192.0.2.7
http.host  =>  www.example.com
tls.version  =>
foregate.error  =>
waf.score  =>  -5

lower("ABC\xc3\x84")  =>  abcÄ
upper(http.host)  =>  WWW.EXAMPLE.COM
len(http.host)  =>  15
len("")  =>  0
len(http.request.headers.names)  =>  4
len(split(http.host, ".", 10))  =>  3
concat("a", 1, ssl, ip.src, tls.version, -2)  =>  a1true192.0.2.7-2
concat("https://", http.host, http.request.uri.path, "?", http.request.uri.query)  =>  https://www.example.com/a/b.html?x=1&y=two&x=3
concat(tls.version)  =>  ""
to_string(http.response.code)  =>  404
to_string(ssl)  =>  true
to_string(ip.src)  =>  192.0.2.7
to_string(http.host eq "www.example.com")  =>  true

substring("asdfghjk", 2, 5)  =>  dfg
substring("asdfghjk", 2)  =>  dfghjk
substring("asdfghjk", -2)  =>  jk
substring("asdfghjk", 0, -2)  =>  asdfgh
substring("asdfghjk", 5, 2)  =>  ""
substring("asdfghjk", 100)  =>  ""
substring("asdfghjk", -100, 100)  =>  asdfghjk
substring("asdfghjk", -9223372036854775808, 9223372036854775807)  =>  asdfghjk
substring(http.host, len(tls.version))  =>
remove_bytes(http.host, "\x2ew")  =>  examplecom
remove_bytes(http.host, "")  =>  www.example.com

url_decode("John%20Doe")  =>  John Doe
url_decode("John+Doe")  =>  John Doe
url_decode("%2520")  =>  %20
url_decode("%2520", "r")  =>  " "
url_decode("%25252520", "r")  =>  " "
url_decode("%E4%BD%A0")  =>  你
url_decode("%u2601")  =>  %u2601
url_decode("%u2601", "u")  =>  ☁
url_decode("%uD83D%uDE00", "u")  =>  😀
url_decode("%uD83Dx", "u")  =>  %uD83Dx
url_decode("%u260", "ru")  =>  %u260
url_decode("100%")  =>  100%
url_decode("%4")  =>  %4
url_decode("%zz%41")  =>  %zzA
url_decode("%+1")  =>  % 1

regex_replace("/foo/bar", "/bar$", "/baz")  =>  /foo/baz
regex_replace("/x", "^/y$", "/mumble")  =>  /x
regex_replace("/foo", "^/FOO$", "/x")  =>  /foo
regex_replace("/a/a", "/a", "/b")  =>  /b/a
regex_replace("/b", "^/b$", "/b$$")  =>  /b$
regex_replace("/foo/a/path", "^/foo/([^/]*)/(.*)$", "/bar/${2}/${1}")  =>  /bar/path/a
regex_replace("/foo/a/path", "^/foo/([^/]*)/(.*)$", "$2-$1")  =>  path-a
regex_replace("ab", "(x)?b", "[${1}]")  =>  a[]
regex_replace("", "^", "x")  =>  x
regex_replace(http.host, "\\.", "")  =>  wwwexample.com
regex_replace(http.host, r"\.", "")  =>  wwwexample.com
regex_replace("a\\b", "\\\\", "/")  =>  a/b
regex_replace(tls.version, "a", "b")  =>
wildcard_replace("https://apps.example.com/calendar/admin?expand=true", "https://*.example.com/*/*", "https://example.com/${1}/${2}/${3}")  =>  https://example.com/apps/calendar/admin?expand=true
wildcard_replace(http.request.full_uri, "/applications/*", "/apps/${1}")  =>  https://www.example.com/a/b.html?x=1&y=two&x=3
wildcard_replace("/calendar", "/*", "/apps/${1}")  =>  /apps/calendar
wildcard_replace("/Apps/calendar", "/apps/*", "/${1}")  =>  /calendar
wildcard_replace("/Apps/calendar", "/apps/*", "/${1}", "s")  =>  /Apps/calendar
wildcard_replace("/apps/calendar/login", "/apps/*/login", "/${1}/login")  =>  /calendar/login
wildcard_replace("a*b", r"a\**", "${1}")  =>  b
wildcard_replace("(x)", "(*)", "$1")  =>  x
wildcard_replace("a\nb", "a*b", "[$1]")  =>  [
]

split(http.host, ".", 10)[0]  =>  www
split(http.host, ".", 10)[2]  =>  com
split(http.host, ".", 10)[3]  =>
split(http.host, ".", 2)[1]  =>  example.com
split("a,,b", ",", 9)[1]  =>  ""
split("", ",", 9)[0]  =>  ""
split(tls.version, ",", 9)[0]  =>
split(upper(http.host), ".", 9)[1]  =>  EXAMPLE
join(split("a,b,c", ",", 9), "-")  =>  a-b-c
join(split("a,b,c", ",", 2), "-")  =>  a-b,c
join(http.request.headers.names, ",")  =>  accept,x-tag,x-tag,content-type
join(http.request.headers["x-tag"], ";")  =>  One;two
join(lower(http.request.headers["x-tag"][*]), ";")  =>  one;two
join(http.request.headers["none"], ";")  =>
join(http.response.headers.names, ";")  =>
join(via.addresses, " ")  =>  10.0.0.1 127.0.0.1
join(waf.flags, " ")  =>  true false
join(waf.rules, ",")  =>  900,942
join(concat(waf.rules[*], "!"), "")  =>  900!942!

sha256("abc")  =>  ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
sha256("")  =>  e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
encode_base64("ab?>")  =>  YWI/Pg
encode_base64("ab?>", "p")  =>  YWI/Pg==
encode_base64("ab?>", "u")  =>  YWI_Pg
encode_base64("ab?>", "up")  =>  YWI_Pg==
decode_base64("YWI/Pg")  =>  ab?>
decode_base64("YWI/Pg==")  =>  ab?>
decode_base64("YWI_Pg")  =>  ab?>
decode_base64("not base64!")  =>
decode_base64("YWI /Pg")  =>
decode_base64("YWI/Pg===")  =>
decode_base64("YWI/Ph==")  =>
decode_base64("YWI/Pg-_")  =>
decode_base64("")  =>  ""

lookup_json_string("{\"company\": \"cloud\"}", "company")  =>  cloud
lookup_json_string(r#"{"network": {"name": "x\u00e9"}}"#, "network", "name")  =>  xé
lookup_json_string(r#"["a", "b"]"#, 1)  =>  b
lookup_json_string(r#"{"n": ["a", "b"]}"#, "n", 1)  =>  b
lookup_json_string(r#"[{"n": "a"}, {"n": "b"}]"#, 1, "n")  =>  b
lookup_json_string(r#"{"n": 1}"#, "n")  =>
lookup_json_string(r#"{"n": "a"} x"#, "n")  =>
lookup_json_string(r#"{"n": "a""#, "n")  =>
lookup_json_string(r#"{"n": "a", "n": "b"}"#, "n")  =>  b
lookup_json_string(r#"{"n": "a", "n": 1}"#, "n")  =>
lookup_json_string(r#"{"n": {}, "m": {"n": "b"}}"#, "n")  =>
lookup_json_string(r#"["a"]"#, 5)  =>
lookup_json_string(r#"{"\u006e": "a"}"#, "n")  =>  a
lookup_json_string(r#"{"\ud800": 1, "n": "a"}"#, "n")  =>  a
lookup_json_string(r#"{"\udc00\ud800": {"\ud800": "\ud800"}, "n": "a"}"#, "n")  =>  a
lookup_json_string(r#"{"m": {"\ud800": 1, "n": "a"}}"#, "m", "n")  =>  a
lookup_json_string(r#"{"n": "\ud800", "n": "a"}"#, "n")  =>  a
lookup_json_string(r#"{"n": "a", "n": "\ud800"}"#, "n")  =>
lookup_json_string(r#"{"n\ud800": "a", "n": "\ud83d\ude00"}"#, "n")  =>  😀
lookup_json_string(r#"{"n": 1e999, "n": "a"}"#, "n")  =>  a
lookup_json_string(r#"{"n": {"n": "b"}, "n": "a"}"#, "n", "n")  =>
lookup_json_string(r#"{"\u00zz": 1, "n": "a"}"#, "n")  =>
lookup_json_string(r#"{"n": "a", "m": {]}"#, "n")  =>
lookup_json_string(r#"["a", "b"]"#, "1")  =>
lookup_json_string(r#"{"1": "a"}"#, 1)  =>
lookup_json_string(decode_base64("eyL/IjoxLCJuIjoiYSJ9"), "n")  =>  a
lookup_json_string(decode_base64("eyJuIjoi/yIsIm4iOiJhIn0"), "n")  =>  a
lookup_json_string(decode_base64("eyJuIjoi/2EifQ"), "n")  =>  �a
lookup_json_integer(r#"{"\ud800": 1, "n": 2}"#, "n")  =>  2
lookup_json_integer(r#"{"n": "2"}"#, "n")  =>
lookup_json_integer(r#"{"record_id": "aed53a", "version": 2}"#, "version")  =>  2
lookup_json_integer(r#"["first_item", -234]"#, 1)  =>  -234
lookup_json_integer(r#"{"network_ids": [123, 456]}"#, "network_ids", 0)  =>  123
lookup_json_integer(r#"[42.0]"#, 0)  =>
lookup_json_integer(r#"[9223372036854775808]"#, 0)  =>
lookup_json_integer(r#"[null, true, "1", {}, []]"#, 2)  =>

cidr(113.10.0.2, 24, 24)  =>  113.10.0.0
cidr(2001:0:130F::9C0:876A:130B, 24, 24)  =>  2001::
cidr6(2001:0:130F::9C0:876A:130B, 24)  =>  2001::
cidr6(113.10.0.2, 24)  =>  113.10.0.2
cidr(ip.src, 1, 1)  =>  128.0.0.0
cidr(ip.src, 32, 128)  =>  192.0.2.7
"####;

#[test]
fn expressions_come_to_values() {
    let facts = facts();
    let mut count = 0;
    // A value may hold a line break: a line without arrow belongs to the one before.
    let mut cases: Vec<(String, String)> = Vec::new();
    for line in TABLE.lines() {
        match line.split_once("  =>") {
            Some((expression, value)) => {
                cases.push((expression.into(), value.strip_prefix("  ").unwrap_or_default().into()));
            }
            None if !line.is_empty() => {
                let (_, value) = cases.last_mut().unwrap();
                value.push('\n');
                value.push_str(line);
            }
            None => {}
        }
    }
    for (expression, expected) in cases {
        let expected = match &*expected {
            "" => None,
            "\"\"" => Some(String::new()),
            "\" \"" => Some(" ".to_owned()),
            other => Some(other.to_owned()),
        };
        assert_eq!(text(&expression, &facts), expected, "{expression}");
        count += 1;
    }
    assert!(count > 120, "{count}");
}

#[test]
fn values_have_the_type_that_was_said() {
    for (text, kind) in [
        ("http.host", Type::Bytes),
        ("len(http.host)", Type::Int),
        ("ip.src", Type::Ip),
        ("ssl", Type::Bool),
        ("http.request.headers[\"x\"][0]", Type::Bytes),
    ] {
        assert_eq!(SCHEME.compile_value(text, Stage::Request, &Lists::new()).unwrap().kind(), kind);
    }
}

#[test]
fn a_replacement_that_grows_beyond_its_bound_is_absent() {
    let mut facts = FactTable::new(&SCHEME);
    let expression = (0..8).fold("http.host".to_owned(), |inner, _| {
        format!("regex_replace({inner}, \"(?s)^(.*)$\", \"$1$1$1$1$1$1$1$1\")")
    });
    facts.set("http.host", "");
    assert_eq!(text(&expression, &facts).as_deref(), Some(""));
    facts.set("http.host", "a");
    assert_eq!(text(&expression, &facts), None);
    // Constant folding is bounded as well.
    assert_eq!(text(&expression.replace("http.host", "\"a\""), &facts), None);
}

#[test]
fn fields_and_lists_that_are_read_are_told() {
    let text = r#"http.host in $hosts and (ip.src in $office or http.geo eq "x")"#
        .replace("http.geo", "ip.geoip.country");
    let predicate = SCHEME.compile(&text, Stage::Request, &LISTS).unwrap();
    let names: Vec<_> = predicate.reads().map(|id| &*SCHEME.field(id).unwrap().name).collect();
    assert_eq!(names, ["http.host", "ip.src", "ip.src.country"]);
    assert_eq!(predicate.lists().collect::<Vec<_>>(), ["hosts", "office"]);
    let value = SCHEME.compile_value("concat(http.host, http.cookie)", Stage::Request, &LISTS).unwrap();
    assert_eq!(value.reads().count(), 2);
    assert_eq!(value.lists().count(), 0);
}

#[test]
fn what_is_constant_is_known_when_it_is_compiled() {
    for (text, expected) in [
        ("true", Some(true)),
        ("not true or false", Some(false)),
        ("lower(\"A\") eq \"a\"", Some(true)),
        ("lookup_json_integer(\"[1]\", 0) in {1..3}", Some(true)),
        ("false and ssl", Some(false)),
        ("ssl or 1 eq 1", Some(true)),
        ("ssl and 1 eq 1", None),
        ("cidr(10.1.1.1, 8, 8) in {10.0.0.0}", Some(true)),
    ] {
        let predicate = SCHEME.compile(text, Stage::Request, &LISTS).unwrap();
        assert_eq!(predicate.constant(), expected, "{text}");
    }
}

#[test]
fn values_are_lent_and_not_copied() {
    let facts = facts();
    for text in
        ["http.host", "lower(http.host)", "substring(http.host, 4)", "http.request.headers[\"x-tag\"][1]"]
    {
        let expression = SCHEME.compile_value(text, Stage::Request, &LISTS).unwrap();
        let value = expression.evaluate(&facts);
        assert!(matches!(value, Some(Value::Bytes(std::borrow::Cow::Borrowed(_)))), "{text}: {value:?}");
    }
}
