//! Every refusal: its place, message and suggestion.

use foregate_rules::{Entries, Error, FieldError, Lists, Scheme, Stage, Type, Word, limits, words};

use crate::{LISTS, SCHEME};

fn refused(text: &str) -> Error {
    match SCHEME.compile(text, Stage::Request, &LISTS) {
        Ok(_) => panic!("not refused: {text}"),
        Err(error) => error,
    }
}

/// Three lines each: the expression, carets under the place, message and, in brackets, help.
const TABLE: &str = include_str!("errors.txt");

fn shown(text: &str) -> String {
    let error = refused(text);
    let span = error.span();
    let carets = "^".repeat(text[span.clone()].chars().count().max(1));
    let help = error.help().map(|help| format!(" [{help}]")).unwrap_or_default();
    format!("{text}\n{}{carets}\n{}{help}\n", " ".repeat(text[..span.start].chars().count()), error.message())
}

#[test]
fn messages_are_these() {
    let mut shown_all = String::new();
    let mut count = 0;
    for case in TABLE.split("\n\n").filter(|case| !case.trim().is_empty()) {
        let text = case.lines().next().unwrap();
        shown_all.push_str(&shown(text));
        shown_all.push('\n');
        count += 1;
    }
    assert!(count > 80, "{count}");
    if std::env::var_os("UPDATE_ERRORS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rules/errors.txt");
        std::fs::write(path, format!("{}\n", shown_all.trim_end())).unwrap();
        return;
    }
    assert_eq!(
        shown_all.trim_end(),
        TABLE.trim_end(),
        "UPDATE_ERRORS=1 writes errors.txt anew; read what changed"
    );
}

#[test]
fn an_error_is_one_line() {
    let error = refused("http.hots eq \"a\"");
    assert_eq!(error.to_string(), "at byte 0: there is no field `http.hots` (did you mean `http.host`?)");
    assert_eq!(error.span(), 0..9);
}

#[test]
fn what_nobody_sees_is_named() {
    for (text, message, help) in [
        ("ssl\u{a0}and ssl", "U+00A0 means nothing here", "it looks like a blank and is none: write a blank"),
        ("\u{200b}ssl", "U+200B means nothing here", "nobody sees this character: take it out"),
        ("ssl \u{7f}", "U+007F means nothing here", "nobody sees this character: take it out"),
    ] {
        let error = refused(text);
        assert_eq!((error.message(), error.help()), (message, Some(help)));
    }
    let message = |text| refused(text).message().to_owned();
    assert_eq!(message("http.host eq \"\\\u{a0}\""), "`\\U+00A0` is no escape");
    assert_eq!(message("ssl \"\n\""), "`\"U+000A\"` stands where an operator or the end has to stand");
}

#[test]
fn it_is_told_what_a_missing_list_would_hold() {
    for (text, expected) in [
        ("ip.src in $none", Some(Entries::Ips)),
        ("cidr(ip.src, 24, 64) in $none", Some(Entries::Ips)),
        ("http.host in $none", Some(Entries::Hosts)),
        ("lower(tls.server_name) in $none", Some(Entries::Hosts)),
        ("http.user_agent in $none", Some(Entries::Strings)),
        ("any(http.request.headers[\"x\"][*] in $none)", Some(Entries::Strings)),
        ("waf.score in $none", None),
        ("http.host in $hots", None),
        ("http.host in $office", None),
    ] {
        assert_eq!(refused(text).missing_list(), expected, "{text}");
    }
}

#[test]
fn words_are_told_apart_without_compiling() {
    let text = r##"http.host eq "http.cookie" or a-b matches "\d\"x" and r#"ssl "a"# in {1 $l} ? ssl"##;
    let names: Vec<_> =
        words(text).filter(|(word, _)| matches!(word, Word::Name(_))).map(|(_, span)| &text[span]).collect();
    assert_eq!(names, ["http.host", "eq", "or", "a-b", "matches", "and", "in"]);
    let texts: Vec<_> = words(text)
        .filter_map(|(word, _)| if let Word::Text(text) = word { Some(text) } else { None })
        .collect();
    assert_eq!(texts, [&b"http.cookie"[..], br#"\d"x"#, b"ssl \"a"]);
}

#[test]
fn fields_are_refused_before_they_are_known() {
    for (stage, field, expected) in [
        (
            Stage::Request,
            "http.response.code",
            Some("`http.response.code` is known from the response on; this expression is used on requests"),
        ),
        (
            Stage::Request,
            "http.request.body.size",
            Some(
                "`http.request.body.size` is known from the request's body on; this expression is used on requests",
            ),
        ),
        (
            Stage::Body,
            "http.response.code",
            Some(
                "`http.response.code` is known from the response on; this expression is used on requests with their body",
            ),
        ),
        (Stage::Body, "http.request.body.size", None),
        (Stage::Response, "http.response.code", None),
        (Stage::Response, "http.request.body.size", None),
    ] {
        let outcome = SCHEME.compile(&format!("{field} eq 1"), stage, &Lists::new());
        assert_eq!(outcome.err().as_ref().map(Error::message), expected, "{field} at {stage}");
    }
}

#[test]
fn values_that_are_many_are_refused() {
    for (text, help) in [
        ("http.request.headers", "take one of its values: `[\"name\"][0]`"),
        ("http.request.headers.names", "take one of its elements with `[0]`, or all as one text with `join`"),
        (
            "http.request.headers[\"x\"]",
            "take one of its elements with `[0]`, or all as one text with `join`",
        ),
        (
            "lower(http.request.headers[\"x\"][*])",
            "take one of its elements with `[0]`, or all as one text with `join`",
        ),
        ("http.request.headers[\"x\"][*] eq \"a\"", "write `any(...)` or `all(...)` around it"),
    ] {
        let error = SCHEME.compile_value(text, Stage::Request, &LISTS).unwrap_err();
        assert_eq!(error.message(), "the expression comes to many values and not to one", "{text}");
        assert_eq!(error.help(), Some(help), "{text}");
    }
}

/// Input just within a bound is accepted, input just beyond it is refused with a message that names it.
fn bound(within: &str, beyond: &str, message: &str) {
    let compile = |text: &str| SCHEME.compile(text, Stage::Request, &Lists::new());
    compile(within).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(compile(beyond).unwrap_err().message(), message);
}

#[test]
fn bounds() {
    let padded = |len: usize| format!("ssl{}", " ".repeat(len - 3));
    bound(
        &padded(limits::MAX_EXPRESSION),
        &padded(limits::MAX_EXPRESSION + 1),
        "an expression is longer than 262144 bytes",
    );
    let nested = |depth: usize| format!("{}ssl{}", "(".repeat(depth), ")".repeat(depth));
    let deep = "the expression nests deeper than 64 levels";
    bound(&nested(limits::MAX_DEPTH), &nested(limits::MAX_DEPTH + 1), deep);
    let denied = |depth: usize| format!("{}ssl", "not ".repeat(depth));
    bound(&denied(limits::MAX_DEPTH), &denied(limits::MAX_DEPTH + 1), deep);
    let called = |depth: usize| format!("{}http.host{} eq \"\"", "lower(".repeat(depth), ")".repeat(depth));
    bound(&called(limits::MAX_DEPTH), &called(limits::MAX_DEPTH + 1), deep);
    let set = |count: usize| format!("http.host in {{{}}}", "\"\" ".repeat(count));
    bound(&set(limits::MAX_SET), &set(limits::MAX_SET + 1), "a set holds more than 16384 values");
    let arguments = |count: usize| format!("concat({}) eq \"\"", vec!["ssl"; count].join(","));
    bound(
        &arguments(limits::MAX_ARGUMENTS),
        &arguments(limits::MAX_ARGUMENTS + 1),
        "`concat` has more than 64 arguments",
    );
    let references =
        |count: usize| format!("regex_replace(http.host, \"a\", \"{}\") eq \"\"", "$0".repeat(count));
    bound(
        &references(limits::MAX_REFERENCES),
        &references(limits::MAX_REFERENCES + 1),
        "the replacement has more than 8 references",
    );
}

#[test]
fn bounds_of_patterns() {
    let compile = |text: &str| SCHEME.compile(text, Stage::Request, &Lists::new());
    let regex = |pattern: &str| compile(&format!("http.host matches r\"{pattern}\""));
    let message = |outcome: Result<_, Error>| outcome.err().map(|error| error.message().to_owned());
    assert_eq!(message(regex(&"a".repeat(1000))), None);
    assert_eq!(
        message(regex(&"a".repeat(limits::MAX_PATTERN + 1))).as_deref(),
        Some("the regular expression is longer than 65536 bytes")
    );
    assert_eq!(
        message(regex("(((a{100}){100}){100}){100}")).as_deref(),
        Some("the regular expression takes more than 1048576 bytes when it is compiled")
    );
    let nested = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(message(regex(&nested(100))), None);
    assert!(message(regex(&nested(101))).unwrap().contains("nest"), "{:?}", message(regex(&nested(101))));
    let wildcard = |pattern: &str| compile(&format!("http.host wildcard r\"{pattern}\""));
    assert_eq!(
        message(wildcard(&"a".repeat(limits::MAX_PATTERN + 1))).as_deref(),
        Some("the pattern is longer than 65536 bytes")
    );
    let many: Vec<_> = (0..300).map(|n| format!("http.host matches \"^a{{1,5000}}{n}\"")).collect();
    assert_eq!(
        message(compile(&many.join(" or "))).as_deref(),
        Some("the patterns of the expression take more than 67108864 bytes")
    );
}

#[test]
fn patterns_that_can_be_slow() {
    let message = |pattern: &str| {
        let text = format!("http.host matches r\"{pattern}\"");
        SCHEME.compile(&text, Stage::Request, &Lists::new()).err().map(|error| error.message().to_owned())
    };
    let slow = "the regular expression is slow on texts made for it: more than 1000 of its positions may be active at once, \
                with its repetitions written out; smaller counts help, `*` and `+` in the place of counts, and for long lists of words \
                `lower()` in the place of `(?i)`";
    let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
    let word = |n: usize| [n, n / 3, n / 7, n / 26, n / 5].map(letter).iter().collect::<String>();
    let words = |count: usize| (0..count).map(word).collect::<Vec<_>>().join("|");
    let aa = |count: usize| "a".repeat(count);
    let lockstep = (0..200).map(|n| format!("[ab]{{15}}c{n}|")).collect::<String>() + "z";
    let slow_ones = [
        "a.{0,1000}z",
        "(?:.{0,100}a){80}z",
        "a[ab]{1200}z",
        "(?i)a{4096}",
        "(?:a?){1100}b",
        "^x?[a-z]{1,4096}$",
        "^.*[a-z]{1,4096}$",
        &format!("x|{}", aa(1100)),
        &format!("(?i)({})", words(1100)),
        &format!("(?:{})z", "|".repeat(1100)),
        &lockstep,
    ];
    for pattern in slow_ones {
        assert_eq!(message(pattern).as_deref(), Some(slow), "{pattern:.60}");
    }
    let fast = [
        "(?i)select.{1,200}from",
        "^[a-z]{1,4096}$",
        "(?:.*a){100}z",
        &words(2000),
        &format!("(?i)({})", words(800)),
        &format!("(?i)\\b({})\\b", words(800)),
        &format!("x(?:{})y", ["abcdef"; 100].join("|")),
        "^([a-z0-9-]{1,2000})[.]example$",
        &(0..300)
            .map(|n| format!("/wp-content/plugins/{}/readme.txt", word(n)))
            .collect::<Vec<_>>()
            .join("|"),
        &(0..200).map(|n| format!("/{}/.*[.]php$", word(n))).collect::<Vec<_>>().join("|"),
    ];
    for pattern in fast {
        assert_eq!(message(pattern), None, "{pattern:.60}");
    }
}

#[test]
fn fields_are_added_under_names_that_are_free() {
    let add = |name: &str| Scheme::standard().with_field(name, Type::Int, Stage::Request, "").map(|_| ());
    assert_eq!(add("waf.score_1"), Ok(()));
    assert_eq!(add("http.host"), Err(FieldError::Taken("http.host".into())));
    assert_eq!(add("ip.geoip.country"), Err(FieldError::Taken("ip.geoip.country".into())));
    for keyword in ["and", "lower", "true", "in"] {
        assert_eq!(add(keyword), Err(FieldError::Taken(keyword.into())));
    }
    for name in ["", "a..b", ".a", "1a", "A", "a-b", "a.", "ä"] {
        let error = add(name).unwrap_err();
        assert_eq!(error, FieldError::Name(name.into()));
        assert!(error.to_string().contains("is not the name of a field"));
    }
}
