use super::*;
use alloc::boxed::Box;
use alloc::string::String;
use foregate_module::testing::{Compile, List, Literals, Sample, node};
use foregate_module::{Conditions, Verdict};

/// Knows the words `path` and `absent`, and the condition `root`.
struct Words;

struct Word(bool);

impl Expression for Word {
    fn evaluate<'v>(&'v self, view: &View<'v>) -> Option<Cow<'v, [u8]>> {
        self.0.then(|| view.exchange().path().into())
    }
}

impl Condition for Word {
    fn holds(&self, view: &View<'_>) -> bool {
        view.exchange().path() == b"/"
    }
}

impl Compile for Words {
    fn condition(&self, text: &str, _: PhaseId) -> Result<Arc<dyn Condition>, String> {
        if text == "root" { Ok(Arc::new(Word(true))) } else { Err("unknown condition".into()) }
    }

    fn expression(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Expression>, String> {
        match text {
            "path" => Ok(Arc::new(Word(true))),
            "absent" => Ok(Arc::new(Word(false))),
            _ => Err(format!("unknown in {phase}")),
        }
    }

    fn conditions(&self, _: &[&str], _: PhaseId) -> Result<Arc<dyn Conditions>, (usize, String)> {
        Err((0, "none".into()))
    }
}

fn read(nodes: &[Node]) -> Result<HeaderSettings, Problem> {
    let mut context = Literals { compile: Some(Box::new(Words)), ..Literals::default() };
    HeaderSettings::from_nodes(nodes, &mut context)
}

fn line(name: &str, field: &str, value: &str) -> Node {
    node(name).arg_literal(field).arg_literal(value)
}

fn made(name: &str, field: &str, expression: &str) -> Node {
    node(name).arg_literal(field).prop_literal("expression", expression)
}

fn block(name: &str, lines: &[Node]) -> Node {
    lines.iter().cloned().fold(node(name), Node::with_child)
}

fn shown(list: &List) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    list.0.iter().map(|(name, value)| format!("{}: {}", text(name), text(value))).collect()
}

#[test]
fn fixed_lines_are_done_in_their_order() {
    let outer =
        node("headers").with_child(block("response", &[line("set", "a", "1"), line("add", "a", "2")]));
    let inner = node("headers").with_child(block(
        "response",
        &[
            line("default", "A", "3"),
            line("default", "b", "4"),
            node("remove").arg_literal("c").arg_literal("d"),
        ],
    ));
    let headers = read(&[outer, inner]).unwrap();
    assert!(headers.response.fixed.is_some());
    let mut sample =
        Sample::get("/").field("c", "").response(500).response_field("c", "").response_field("D", "");
    assert_eq!(sample.run(&Response, &headers), Verdict::Continue);
    assert_eq!(sample.run(&EditRequestFields, &headers), Verdict::Continue);
    assert_eq!(shown(&sample.response), ["a: 1", "a: 2", "b: 4"]);
    assert_eq!(shown(&sample.request), ["c: "]);
}

#[test]
fn what_is_spoken_of_does_not_come_in_trailers() {
    let lines = [
        node("remove").arg_literal("x-debug"),
        line("set", "x-set", "1"),
        made("set", "x-made", "absent"),
        made("default", "x-default", "absent"),
        made("add", "x-added", "absent"),
    ];
    for when in [None, Some("root")] {
        let of = |what| {
            let block = block(what, &lines);
            let block = when.map_or(block.clone(), |when| block.prop_literal("when", when));
            read(&[node("headers").with_child(block)]).unwrap()
        };
        let headers = of("request");
        assert!(<EditRequestFields as Step>::sweeps(&headers) && !<Response as Step>::sweeps(&headers));
        let keeps = |name: &str| EditRequestFields.keeps(&headers, Swept::Trailers, name.as_bytes());
        for name in ["x-debug", "X_Debug", "x-set", "x-made", "X-Made", "x_default", "x-added"] {
            assert!(!keeps(name), "{name} {when:?}");
        }
        assert!(keeps("x-debugger") && keeps("x-other"));
        let headers = of("response");
        assert!(!<EditRequestFields as Step>::sweeps(&headers) && <Response as Step>::sweeps(&headers));
        let keeps = |swept, name: &str| Response.keeps(&headers, swept, name.as_bytes());
        for (name, interim, trailer) in [
            ("X-Debug", when.is_some(), false),
            ("x-set", true, false),
            ("X-Made", true, false),
            ("x-default", true, true),
            ("x-added", true, true),
            ("x_debug", true, true),
        ] {
            assert_eq!(keeps(Swept::Interim, name), interim, "{name} {when:?}");
            assert_eq!(keeps(Swept::Trailers, name), trailer, "{name} {when:?}");
        }
    }
    let added = node("headers").with_child(block("response", &[line("add", "x", "1")]));
    assert!(!<Response as Step>::sweeps(&read(&[added]).unwrap()));
}

#[test]
fn values_are_made_by_expressions() {
    let request = block(
        "request",
        &[
            line("set", "x", "first"),
            made("add", "x", "path"),
            made("set", "y", "absent"),
            made("set", "z", "path"),
        ],
    );
    let headers = read(&[node("headers").with_child(request)]).unwrap();
    let mut sample = Sample::get("/p").field("y", "theirs").field("Y", "theirs");
    sample.run(&EditRequestFields, &headers);
    assert_eq!(shown(&sample.request), ["x: first", "x: /p", "z: /p"]);
    // An invalid value cannot break out of the field, and removes the client's value.
    for path in ["/a\r\nx: y", &"/".repeat(VALUE_LIMIT + 1), ""] {
        let mut sample = Sample::get("/").field("z", "theirs");
        sample.path = path.into();
        sample.run(&EditRequestFields, &headers);
        assert_eq!(shown(&sample.request), ["x: first"]);
    }
}

#[test]
fn what_comes_to_nothing_adds_nothing() {
    let lines = [made("add", "x", "absent"), made("default", "y", "absent"), made("default", "z", "path")];
    let headers = read(&[node("headers").with_child(block("request", &lines))]).unwrap();
    let mut sample = Sample::get("/p").field("x", "theirs").field("z", "theirs");
    sample.run(&EditRequestFields, &headers);
    assert_eq!(shown(&sample.request), ["x: theirs", "z: theirs"]);
}

#[test]
fn blocks_have_conditions() {
    let when = block("response", &[line("set", "a", "1")]).prop_literal("when", "root");
    let always = block("response", &[line("set", "b", "1")]);
    let headers = read(&[node("headers").with_child(when).with_child(always)]).unwrap();
    for (path, fields) in [("/", &["a: 1", "b: 1"][..]), ("/x", &["b: 1"])] {
        let mut sample = Sample::get(path).response(200);
        sample.run(&Response, &headers);
        assert_eq!(shown(&sample.response), fields);
    }
}

#[test]
fn mistakes_are_told() {
    let told = |lines: &[Node]| {
        let headers = node("headers").with_child(block("request", lines));
        read(&[headers]).err().unwrap().message
    };
    assert_eq!(told(&[]), "`request` changes nothing");
    assert_eq!(told(&[line("set", "a b", "")]), "this is not the name of a field");
    assert_eq!(
        told(&[line("set", "a", "b\nc")]),
        "this cannot be the value of a field: it has a control byte, or a blank at an end"
    );
    assert_eq!(
        told(&[node("remove").arg_literal("Connection")]),
        "this field belongs to the connection or the framing, which no module changes"
    );
    assert_eq!(told(&[node("remove").arg_literal("x-*")]), "`*` stands for nothing here");
    assert_eq!(
        told(&[line("set", "Host", "a")]),
        "`host` is the target of the request, which no field changes"
    );
    assert_eq!(told(&[node("set").arg_literal("a")]), "`set` needs either a value or expression=EXPRESSION");
    assert_eq!(told(&[made("set", "a", "nonsense")]), "unknown in request-rewrite");
    assert_eq!(
        told(&[line("set", "a", "b").prop_literal("expression", "path")]),
        "`set` needs either a value or expression=EXPRESSION"
    );
    assert_eq!(
        told(&[line("set", "a", "$remote_addr")]),
        "`$remote_addr` is no variable here: it is taken as it stands"
    );
    let nothing = line("set", "a", "");
    let fixed = read(&[node("headers").with_child(block("request", &[nothing]))]).unwrap().request.fixed;
    assert!(matches!(fixed.as_deref(), Some([Edit::Remove(_)])), "what has no value is removed");
    let both = |line: Node| {
        let blocks = node("headers").with_child(block("request", &[line]));
        read(&[blocks]).err().unwrap().further.len()
    };
    assert_eq!(both(line("set", "a b", "$remote_addr")), 1, "name and value");
    assert_eq!(both(made("set", "a b", "nonsense")), 1);
    assert_eq!(both(node("remove").arg_literal("x-*").arg_literal("connection")), 1);
    let lines = [line("set", "a b", ""), line("add", "a", "b"), made("add", "a", "nonsense")];
    let blocks = node("headers")
        .with_child(block("request", &lines))
        .with_child(block("response", &[node("remove").arg_literal("connection")]).prop_literal("when", "x"));
    let all = read(&[blocks]).err().unwrap();
    let further: Vec<&str> = all.further.iter().map(|problem| &*problem.message).collect();
    assert_eq!(all.message, "this is not the name of a field");
    assert_eq!(further[..2], ["unknown in request-rewrite", "unknown condition"]);
    assert_eq!(further.len(), 3);
    let message = |node: Node| read(&[node]).err().unwrap().message;
    assert_eq!(message(node("headers")), "`headers` needs `request` or `response`");
    assert_eq!(message(node("headers").arg_literal("a")), "`headers` takes a block");
    let when = block("response", &[line("set", "a", "1")]).prop_literal("when", "x");
    assert_eq!(message(node("headers").with_child(when)), "unknown condition");
    let many: Vec<Node> = (0..=LINES_LIMIT).map(|_| line("add", "a", "b")).collect();
    assert_eq!(told(&many), "more than 1000 changes");
}
