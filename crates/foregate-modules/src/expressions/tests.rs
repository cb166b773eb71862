use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use core::ops::ControlFlow;

use foregate_module::testing::{Handshake, Sample};
use foregate_module::{
    Doubt, Emit, Filter, Kind, Never, PhaseId, Pipeline, Shown, State, Step, Text, Value, View, erase, phase,
};
use foregate_rules::{Entries, List, Lists, Stage, limits};

use super::{Compiler, Mistake};

macro_rules! values {
    ($($name:ident $label:literal $data:ty, $kind:ident, $show:expr;)*) => { $(
        struct $name;
        impl Value for $name {
            type Data = $data;
            const NAME: &'static str = $label;
            const ABOUT: &'static str = "A value of the tests.";
            const SHOWS: Option<Kind> = Some(Kind::$kind);
            fn show(data: &$data) -> Option<Shown<'_>> {
                let show: fn(&$data) -> Option<Shown<'_>> = $show;
                show(data)
            }
        }
    )* };
}

values! {
    Score "bot.hot-score" i64, Int, |score| Some(Shown::Int(*score));
    Known "known" bool, Bool, |known| Some(Shown::Bool(*known));
    Country "geo.country" Vec<u8>, Bytes, |country| Some(Shown::Bytes(country));
    Upstream "proxy" IpAddr, Ip, |address| Some(Shown::Ip(*address));
    First "vars" Vec<(Text, Text)>, Map, |entries| Some(Shown::Map(entries));
    Second "vars-rewrite" Vec<(Text, Text)>, Map, |entries| Some(Shown::Map(entries));
}

type Outputs = (Emit<Score>, Emit<Known>, Emit<Country>, Emit<Upstream>);

#[derive(Default)]
struct Judge;

impl Step for Judge {
    type At = phase::RequestIdentity;
    type Settings = ();
    type In<'r> = ();
    type Out = Outputs;
    type Stop = Never;
    const NAME: &'static str = "judge";
    const ABOUT: &'static str = "Writes values.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, (): &(), (): ()) -> ControlFlow<Never, Outputs> {
        let address = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));
        let country = Emit(Some(b"DE".to_vec()));
        ControlFlow::Continue((Emit(Some(70)), Emit(Some(true)), country, Emit(Some(address))))
    }
}

macro_rules! variables {
    ($step:ident $phase:ident $value:ident $name:literal $entries:expr) => {
        #[derive(Default)]
        struct $step;

        impl Step for $step {
            type At = phase::$phase;
            type Settings = ();
            type In<'r> = ();
            type Out = (Emit<$value>,);
            type Stop = Never;
            const NAME: &'static str = $name;
            const ABOUT: &'static str = "Writes variables.";
            const FILTERS: &'static [Filter] = &[];
            fn run(&self, (): &(), (): ()) -> ControlFlow<Never, Self::Out> {
                let entry =
                    |(name, value): &(&'static str, &'static str)| (Text::from(*name), Text::from(*value));
                ControlFlow::Continue((Emit(Some($entries.iter().map(entry).collect())),))
            }
        }
    };
}

variables! { SetFirst RequestSecurity First "first" [("a", "1"), ("b", "2")] }
variables! { SetSecond RequestRewrite Second "second" [("a", "3"), ("b", "2")] }

fn pipeline() -> Pipeline {
    Pipeline::new(Vec::from([Vec::from([erase::<Judge>(), erase::<SetFirst>(), erase::<SetSecond>()])]))
}

fn compiler(pipeline: &Pipeline) -> Compiler {
    let mut lists = Lists::new();
    lists.insert("office", List::parse_ips("192.0.2.0/24\n").expect("a list"));
    Compiler::new(pipeline, lists).expect("names that fit")
}

/// The values of steps at the end of a phase.
fn state_after(pipeline: &Pipeline, phase: PhaseId) -> State {
    let mut state = State::default();
    let plan = foregate_module::PlanBuilder::new(pipeline).build(true);
    let mut sample = Sample::get("/");
    for planned in plan.steps() {
        let decl = pipeline.entries()[usize::from(planned.step)].decl();
        if decl.phase <= phase {
            pipeline.run(planned, &mut sample, &mut state);
        }
    }
    state
}

fn sample() -> Sample {
    let mut sample = Sample::get("/a/b.tar.GZ?x=1&y=%20&x=2&flag")
        .field("User-Agent", "test")
        .field("X-Role", "admin")
        .field("x-role", "guest")
        .field("Cookie", "a=1; b=2 ;c")
        .response(404)
        .response_field("Content-Type", "Text/HTML; charset=utf-8");
    sample.raw_target = b"http://EXAMPLE.com/a//b.tar.GZ?x=1".to_vec();
    sample
}

#[test]
fn every_field_is_answered() {
    let pipeline = pipeline();
    let compiler = compiler(&pipeline);
    let mut encrypted = sample();
    encrypted.error = Some("timeout".into());
    encrypted.tls = Some(Handshake {
        version: "TLSv1.3".into(),
        server_name: Some("Example.com".into()),
        client_subject: Some("CN=ann".into()),
    });
    let state = state_after(&pipeline, PhaseId::Log);
    let view = View::new(&encrypted, &state.slots, pipeline.values());
    for text in [
        r#"http.host eq "example.com""#,
        r#"http.request.uri eq "/a/b.tar.GZ?x=1&y=%20&x=2&flag""#,
        r#"http.request.uri.path eq "/a/b.tar.GZ""#,
        r#"http.request.uri.path.extension eq "gz""#,
        r#"http.request.uri.query eq "x=1&y=%20&x=2&flag""#,
        r#"http.request.uri.args["x"][1] eq "2""#,
        r#"any(http.request.uri.args.names[*] eq "flag")"#,
        r#"any(http.request.uri.args.values[*] eq " ") and http.request.uri.args["y"][0] eq " ""#,
        r#"any(raw.http.request.uri.args.values[*] eq "1") and raw.http.request.uri.args["x"][0] eq "1""#,
        r#"any(raw.http.request.uri.args.names[*] eq "x") and len(raw.http.request.uri.args.names) eq 1"#,
        r#"http.request.full_uri eq "https://example.com/a/b.tar.GZ?x=1&y=%20&x=2&flag""#,
        r#"http.request.method eq "GET""#,
        r#"http.request.version eq "HTTP/1.1""#,
        r#"http.request.headers["x-role"][1] eq "guest""#,
        r#"any(http.request.headers.names[*] eq "x-role")"#,
        r#"any(http.request.headers.values[*] eq "admin")"#,
        r#"http.request.cookies["b"][0] eq "2""#,
        r#"http.request.cookies["c"][0] eq """#,
        r#"http.cookie contains "a=1""#,
        r#"http.user_agent eq "test""#,
        r#"http.referer eq """#,
        r#"http.request.body.size eq 0"#,
        r#"raw.http.request.uri eq "/a//b.tar.GZ?x=1""#,
        r#"raw.http.request.uri.path eq "/a//b.tar.GZ""#,
        r#"raw.http.request.uri.query eq "x=1""#,
        "http.request.timestamp.sec eq 1767225600",
        "ip.src in $office and ip.src eq 192.0.2.1",
        r#"ip.src.country eq "DE" and ip.geoip.country in {"DE" "FR"}"#,
        r#"geo.country eq "DE""#,
        "ssl and tls.client.verified",
        r#"tls.version eq "TLSv1.3" and tls.server_name eq "example.com""#,
        r#"tls.client.subject eq "CN=ann""#,
        r#"foregate.site eq "example.com" and foregate.route eq "/**""#,
        "http.response.code eq 404",
        r#"http.response.headers["content-type"][0] contains "charset""#,
        r#"any(http.response.headers.names[*] eq "content-type")"#,
        r#"http.response.content_type.media_type eq "text/html""#,
        r#"foregate.error eq "timeout""#,
        "bot.hot_score eq 70 and known and proxy eq 198.51.100.7",
        r#"vars["a"][0] eq "3" and vars["b"][0] eq "2""#,
    ] {
        let condition = compiler.condition(text, PhaseId::Log).expect(text);
        assert!(condition.holds(&view), "{text}");
    }
}

/// Evaluates a condition for a request, in the phase in which most is known of it.
fn holds(sample: &Sample, text: &str) -> bool {
    let pipeline = Pipeline::default();
    let compiler = compiler(&pipeline);
    let state = State::default();
    let condition = compiler.condition(text, PhaseId::RequestRewrite).expect(text);
    condition.holds(&View::new(sample, &state.slots, pipeline.values()))
}

#[test]
fn a_length_that_is_not_known_is_longer_than_any_number() {
    let of = |body: &[u8], whole| {
        let mut sample = Sample::get("/");
        sample.body = (body.to_vec(), whole);
        sample
    };
    let size = |sample: &Sample, comparison| holds(sample, &format!("http.request.body.size {comparison}"));
    for comparison in ["gt 2", "ge 9223372036854775806", "ne 0", "in {11..9223372036854775807}"] {
        assert!(size(&of(b"a", false), comparison), "{comparison}");
        assert!(!size(&of(b"", true), comparison), "{comparison}");
    }
    for comparison in ["le 2", "lt 9223372036854775807", "eq 0", "in {0..10}"] {
        assert!(!size(&of(b"a", false), comparison), "{comparison}");
        assert!(size(&of(b"", true), comparison), "{comparison}");
    }
    assert!(size(&of(b"abc", true), "gt 2") && !size(&of(b"ab", true), "gt 2"));
    let as_text = r#"concat("size:", http.request.body.size) eq "size:""#;
    assert!(holds(&of(b"a", false), as_text), "in a text, it is absent");
}

#[test]
fn fields_as_a_whole_are_all_of_their_name() {
    let twice = |name: &str| Sample::get("/").field(name, "good").field(name, "evil");
    for (field, name) in [
        ("http.user_agent", "user-agent"),
        ("http.referer", "referer"),
        ("http.x_forwarded_for", "x-forwarded-for"),
    ] {
        assert!(
            holds(&twice(name), &format!(r#"{field} contains "evil" and {field} eq "good, evil""#)),
            "{field}"
        );
        let absent = format!(r#"http.request.headers["{name}"][0]"#);
        for said in [r#"FIELD eq """#, r#"FIELD contains """#, r#"FIELD matches "^$""#, "len(FIELD) eq 0"] {
            assert!(holds(&Sample::get("/"), &said.replace("FIELD", field)), "{said} of {field}");
            assert!(!holds(&Sample::get("/"), &said.replace("FIELD", &absent)), "{said} of {absent}");
        }
        let not_ours = format!(r#"{field} ne "" and not {field} contains "ours""#);
        assert!(!holds(&Sample::get("/"), &not_ours) && holds(&twice(name), &not_ours), "{field}");
    }
    assert!(holds(&Sample::get("/"), r#"http.cookie eq "" and not has_key(http.request.headers, "cookie")"#));
    let cookies = Sample::get("/").field("Cookie", "a=1").field("cookie", "evil=2");
    assert!(holds(&cookies, r#"http.cookie eq "a=1; evil=2""#));
}

#[test]
fn other_spellings_of_names_are_the_same_names() {
    let sample = |target: &str| Sample::get(target).field("cookie", "a=1").field("cookie", "s%69d =%41");
    for (text, expected) in [
        (r#"any(http.request.uri.args["cmd"][*] eq "drop")"#, true),
        (r#"any(raw.http.request.uri.args["cmd"][*] eq "drop")"#, false),
        (r#"http.request.uri.args["cmd"][0] eq "drop""#, true),
        (r#"len(http.request.uri.args["cmd"]) eq 2 and len(http.request.uri.args["cmd"][0]) eq 4"#, true),
        (
            r#"has_key(http.request.uri.args, "cmd") and has_value(http.request.uri.args["cmd"], "drop")"#,
            true,
        ),
        (r#"any(http.request.uri.args.names[*] eq "c%6dd")"#, false),
        (r#"any(lower(http.request.uri.args[*][*])[*] in {"drop"})"#, true),
        (r#"all(http.request.uri.args["cmd"][*] eq "drop")"#, false),
        (r#"join(http.request.uri.args["cmd"], "|") eq "drop|a b""#, true),
        (r#"any(http.request.cookies["sid"][*] eq "%41")"#, true),
        (r#"url_decode(http.request.cookies["sid"][0]) eq "A""#, true),
    ] {
        let mut sample = sample("/?c%6dd=dr%6Fp&cmd=a+b");
        sample.raw_target = b"/?c%6dd=dr%6Fp&cmd=a+b".to_vec();
        assert_eq!(holds(&sample, text), expected, "{text}");
    }
}

#[test]
fn what_a_request_lacks_is_absent() {
    let pipeline = pipeline();
    let compiler = compiler(&pipeline);
    let (plain, state) = (Sample::get("/a"), State::default());
    let view = View::new(&plain, &state.slots, pipeline.values());
    for text in [
        r#"tls.version eq "" or ssl or tls.client.verified or known"#,
        r#"any(http.request.headers["x"][*] eq "") or any(http.request.uri.args["x"][*] eq "")"#,
        r#"ip.src.country eq "" or bot.hot_score lt 1 or vars["a"][0] eq """#,
    ] {
        assert!(!compiler.condition(text, PhaseId::CacheKey).expect(text).holds(&view), "{text}");
    }
    let uri = compiler.condition(r#"http.request.uri eq "/a""#, PhaseId::CacheKey).expect("a condition");
    assert!(uri.holds(&view));
}

#[test]
fn what_begins_with_its_only_dot_or_ends_with_one_has_no_extension() {
    for (path, extension) in [
        ("/foo", ""),
        ("/foo.mp3", "mp3"),
        ("/.mp3", ""),
        ("/.foo.mp3", "mp3"),
        ("/foo.tar.bz2", "bz2"),
        ("/foo.", ""),
        ("/foo.MP3", "mp3"),
        ("/a.b/", ""),
        ("/a.b/c", ""),
        ("/", ""),
    ] {
        let text = format!("http.request.uri.path.extension eq \"{extension}\"");
        assert!(holds(&Sample::get(path), &text), "{path}");
    }
}

#[test]
fn sets_of_rules_find_what_is_empty() {
    let (pipeline, state, sample) = (Pipeline::default(), State::default(), Sample::get("/"));
    let said =
        [r#"eq """#, r#"in {"a" ""}"#, r#"matches "^$""#, r#"wildcard "*""#, r#"ne """#, r#"contains "a""#];
    let fields = ["http.user_agent", "http.request.uri.path.extension"];
    let texts: Vec<_> =
        said.iter().flat_map(|said| fields.map(|field| [field, " ", said].concat())).collect();
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    let conditions = compiler(&pipeline).conditions(&texts, PhaseId::RequestSecurity).expect("conditions");
    let mut visited = Vec::new();
    conditions.each(&View::new(&sample, &state.slots, pipeline.values()), &mut |number| {
        visited.push(number);
        ControlFlow::Continue(())
    });
    assert_eq!(visited, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_phase_knows_what_earlier_ones_have_written() {
    let pipeline = pipeline();
    let compiler = compiler(&pipeline);
    let wrong = |text: &str, phase| compiler.condition(text, phase).err().map(|mistake| mistake.message);
    for (text, first) in [
        ("bot.hot_score eq 1", PhaseId::RequestSecurity),
        (r#"ip.geoip.country eq "DE""#, PhaseId::RequestSecurity),
        (r#"vars["a"][0] eq "1""#, PhaseId::RequestSecurity),
        ("http.request.body.size gt 1", PhaseId::RequestBody),
        ("http.response.code eq 200", PhaseId::UpstreamResponse),
        ("ssl", PhaseId::RequestEarly),
    ] {
        for phase in PhaseId::ALL {
            assert_eq!(wrong(text, phase).is_none(), phase >= first, "{text} in {phase}");
        }
    }
    let mistake = compiler.condition("ssl and bot.hot_score eq 1", PhaseId::RequestEarly).err();
    let message =
        "`bot.hot_score` is not known before phase request-security, and this is evaluated in request-early";
    assert_eq!(mistake, Some(Mistake::new(8..21, message, None)));
    for text in [
        r#"http.host eq "bot.hot_score" and bot.hot_score eq 1"#,
        r#"http.host matches "\"bot.hot_score" and bot.hot_score eq 1"#,
        r##"http.host eq r#"bot.hot_score "bot.hot_score"# and bot.hot_score eq 1"##,
    ] {
        let mistake = compiler.condition(text, PhaseId::RequestEarly).err();
        assert_eq!(mistake.map(|mistake| mistake.span.end), Some(text.len() - " eq 1".len()), "{text}");
    }
    let mistake = compiler.condition(r#"ip.geoip.country eq "DE""#, PhaseId::RequestEarly).err();
    assert_eq!(mistake.map(|mistake| mistake.span), Some(0..16));
    let mistake = Compiler::new(&Pipeline::default(), Lists::new()).expect("a compiler");
    let mistake =
        mistake.condition(r#"ip.src.country eq "DE""#, PhaseId::Log).err().expect("nobody knows it");
    assert_eq!(
        mistake.to_string(),
        "at byte 0: nobody tells `ip.src.country` (configure a module that knows it)"
    );
}

#[test]
fn mistakes_have_their_place() {
    let compiler = compiler(&Pipeline::default());
    let mistake =
        compiler.condition(r#"ssl and http.hots eq "a""#, PhaseId::Log).err().expect("no such field");
    assert_eq!((mistake.span, &*mistake.message), (8..17, "there is no field `http.hots`"));
    assert_eq!(mistake.help.as_deref(), Some("did you mean `http.host`?"));
    let texts = ["ssl", "not ssl", "ssl and"];
    assert_eq!(compiler.conditions(&texts, PhaseId::Log).err().map(|(number, _)| number), Some(2));
    let mistake = compiler.condition("http.host in $offices", PhaseId::Log).err().expect("no such list");
    assert_eq!((mistake.span, mistake.missing_list), (13..21, Some(Entries::Hosts)));
}

#[test]
fn patterns_beyond_their_budget_are_told_with_the_rule() {
    let compiler = compiler(&Pipeline::default());
    let text = r#"http.host matches "^a{1,9000}b""#;
    let rule = compiler.scheme().compile(text, Stage::Request, &Lists::new()).expect("a rule");
    let fits = limits::MAX_COMPILED_PATTERNS / rule.pattern_memory();
    let mut texts = vec![text; fits + 1];
    texts.insert(0, "ssl");
    let (number, mistake) = compiler.conditions(&texts, PhaseId::Log).err().expect("too many patterns");
    assert_eq!((number, mistake.span), (fits + 1, 0..text.len()));
    assert_eq!(mistake.message, "up to this rule the patterns of the rules take more than 67108864 bytes");
}

#[test]
fn values_become_bytes() {
    let pipeline = pipeline();
    let compiler = compiler(&pipeline);
    let (sample, state) = (sample(), state_after(&pipeline, PhaseId::RequestIdentity));
    let view = View::new(&sample, &state.slots, pipeline.values());
    let value = |text: &str| {
        let expression = compiler.expression(text, PhaseId::RequestSecurity).expect(text);
        expression.evaluate(&view).map(|value| String::from_utf8_lossy(&value).into_owned())
    };
    for (text, expected) in [
        (r#""constant""#, Some("constant")),
        ("bot.hot_score", Some("70")),
        ("ip.src", Some("192.0.2.1")),
        ("ssl", Some("false")),
        (r#"concat("https://", http.host, http.request.uri.path)"#, Some("https://example.com/a/b.tar.GZ")),
        (r#"http.request.headers["x-role"][0]"#, Some("admin")),
        (r#"http.request.headers["x-none"][0]"#, None),
        (r#"vars["a"][0]"#, None),
    ] {
        assert_eq!(value(text).as_deref(), expected, "{text}");
    }
}

#[test]
fn a_step_shows_its_own_value_before_it_is_written() {
    let pipeline = pipeline();
    let compiler = compiler(&pipeline);
    let condition =
        compiler.condition(r#"vars["a"][0] eq "own""#, PhaseId::RequestSecurity).expect("a condition");
    let (sample, state) = (sample(), State::default());
    let view = View::new(&sample, &state.slots, pipeline.values());
    assert!(!condition.holds(&view));
    let own = Vec::from([(Text::from("a"), Text::from("own"))]);
    assert!(condition.holds(&view.with::<First>(&own)));
}

#[test]
fn a_condition_in_doubt_refuses_counts_or_does_not_hold() {
    let pipeline = Pipeline::default();
    let condition = compiler(&pipeline)
        .condition("http.request.uri.path eq \"/a\"", PhaseId::RequestSecurity)
        .expect("a condition");
    let state = State::default();
    // The result of the condition, and true if the request is refused.
    let asked = |path: &str, other: &[&str], doubt: Doubt, dry: bool| {
        let mut sample = Sample::get(path);
        sample.other_paths = other.iter().map(|path| path.as_bytes().to_vec()).collect();
        let view = View::new(&sample, &state.slots, pipeline.values()).dry(dry).in_doubt(doubt);
        (condition.holds(&view), sample.doubted.into_inner())
    };
    for doubt in [Doubt::Refuses, Doubt::Ignored, Doubt::Denies] {
        assert_eq!(asked("/a", &[], doubt, false), (true, false), "{doubt:?}");
        assert_eq!(asked("/a", &["/a"], doubt, false), (true, false), "{doubt:?}");
        assert_eq!(asked("/b", &["/c"], doubt, false), (false, false), "{doubt:?}");
    }
    for (doubt, dry, own, other) in [
        (Doubt::Refuses, false, (true, true), (false, true)),
        (Doubt::Refuses, true, (true, false), (false, false)),
        (Doubt::Ignored, false, (true, false), (false, false)),
        (Doubt::Denies, false, (false, false), (false, false)),
        (Doubt::Denies, true, (false, false), (false, false)),
    ] {
        assert_eq!(asked("/a", &["/a", "/b"], doubt, dry), own, "{doubt:?}");
        assert_eq!(asked("/b", &["/a"], doubt, dry), other, "{doubt:?}");
    }
}

#[test]
fn many_conditions_are_visited_in_order() {
    let pipeline = pipeline();
    let compiler = compiler(&pipeline);
    let texts =
        [r#"http.host eq "example.com""#, "ssl", "ip.src in {192.0.2.0/24}", r#"http.host eq "a""#, "known"];
    let conditions = compiler.conditions(&texts, PhaseId::RequestSecurity).expect("conditions");
    let (sample, state) = (sample(), state_after(&pipeline, PhaseId::RequestIdentity));
    let view = View::new(&sample, &state.slots, pipeline.values());
    let visited = |last: usize| {
        let mut visited = Vec::new();
        conditions.each(&view, &mut |number| {
            visited.push(number);
            if number == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        visited
    };
    assert_eq!(visited(usize::MAX), [0, 2, 4]);
    assert_eq!(visited(2), [0, 2]);
}
