//! Sets, adds and removes fields of requests and responses, without rules.
//!
//! ```kdl
//! headers {
//!     request {
//!         set "x-country" expression="ip.geoip.country"
//!         remove "x-powered-by" "server-timing"
//!     }
//!     response when="http.request.uri.path matches \"^/api/\"" {
//!         default "cache-control" "no-store"
//!         add "link" "</style.css>; rel=preload"
//!     }
//! }
//! ```
//!
//! Blocks of the top, the site and the route all count, the outermost first; within a block the lines are done in their
//! order. Responses are changed whoever made them, and whatever their status.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use foregate_module::settings::{ANY, Argument, Block, Prop};
use foregate_module::{
    Condition, Context, Edit, EditRequest, EditResponse, Edits, Expression, Field, Filter, FromNode, Key,
    Never, Node, PhaseId, Problem, Step, Swept, Text, View, phase,
};

use crate::literal::{self, Use};
use crate::mistakes::Mistakes;
use crate::names::Names;

/// The most lines of all blocks.
const LINES_LIMIT: usize = 1000;

/// The longest value that an expression may make, bytes; a longer one counts as none.
const VALUE_LIMIT: usize = 8192;

const EXPRESSION: &[Prop] = &[Prop {
    name: "expression",
    usage: "EXPRESSION",
    required: false,
    default: "",
    about: "Makes the value; where a part that it needs is absent, or what it makes cannot stand in a field, nothing is \
            added.",
}];

const SET_EXPRESSION: &[Prop] = &[Prop {
    about: "Makes the value; where that is empty, a part that it needs is absent, or what it makes cannot stand in a field, \
            the fields of the name go: nobody else's value is left.",
    ..EXPRESSION[0]
}];

const LINES: Block = Block {
    keys: &[
        Key {
            usage: "NAME VALUE | NAME expression=EXPRESSION",
            ..Key::one(
                "set",
                "",
                "set \"x-served-by\" \"foregate\"",
                "Gives the field exactly this value; others of its name go.",
            )
        }
        .args(1, 2)
        .props(SET_EXPRESSION)
        .many(),
        Key {
            usage: "NAME VALUE | NAME expression=EXPRESSION",
            ..Key::one("add", "", "add \"vary\" \"accept-language\"", "Adds one more field.")
        }
        .args(1, 2)
        .props(EXPRESSION)
        .many(),
        Key {
            usage: "NAME VALUE | NAME expression=EXPRESSION",
            ..Key::one(
                "default",
                "",
                "default \"cache-control\" \"no-store\"",
                "Adds the field unless there is one of its name.",
            )
        }
        .args(1, 2)
        .props(EXPRESSION)
        .many(),
        Key {
            usage: "NAME...",
            ..Key::one("remove", "", "remove \"x-powered-by\"", "Removes all fields of these names.")
        }
        .args(1, ANY)
        .many(),
    ],
    later: &[],
};

const WHEN: &[Prop] = &[Prop {
    name: "when",
    usage: "EXPRESSION",
    required: false,
    default: "always",
    about: "A condition for this block.",
}];

const BLOCK: Block = Block {
    keys: &[
        Key {
            usage: "when=EXPRESSION { ... }",
            ..Key::block(
                "request",
                &LINES,
                "request { set \"x-tenant\" \"blue\" }",
                "Changes what the origin gets.",
            )
        }
        .props(WHEN)
        .many(),
        Key {
            usage: "when=EXPRESSION { ... }",
            ..Key::block(
                "response",
                &LINES,
                "response { remove \"server\" }",
                "Changes what the client gets.",
            )
        }
        .props(WHEN)
        .many(),
    ],
    later: &[],
};

const KEY: Key = Key {
    usage: "{ request { ... }; response { ... } }",
    ..Key::one(
        "headers",
        "",
        "headers { response { set \"x-frame-options\" \"deny\" } }",
        "Sets, adds and removes fields of requests and responses. Those of the top, the site and the route all count.",
    )
}
.args(0, 1)
.with(&BLOCK)
.many()
.otherwise("fields pass as they come");

/// The settings.
#[derive(Default)]
pub struct Headers {
    request: Changes,
    response: Changes,
    /// What of requests is spoken of: it comes in the head, or not at all.
    of_requests: Names,
    /// What of responses is set or removed.
    of_responses: Names,
    /// What is removed from every response.
    removed: Names,
}

/// What is done to one head.
#[derive(Default)]
struct Changes {
    /// All of it, where no part depends on the exchange.
    fixed: Option<Arc<[Edit]>>,
    /// Otherwise, block by block.
    blocks: Vec<Lines>,
}

/// One block.
struct Lines {
    when: Option<Arc<dyn Condition>>,
    lines: Vec<Line>,
}

enum Line {
    /// One behind the other.
    Fixed(Arc<[Edit]>),
    /// The field has the name and no value.
    Made(Verb, Field, Arc<dyn Expression>),
}

impl Line {
    fn fixed(&self) -> Option<&[Edit]> {
        if let Self::Fixed(edits) = self { Some(edits) } else { None }
    }
}

/// The same lines, with those that are fixed and stand behind each other as one.
fn gathered(lines: Vec<Line>) -> Vec<Line> {
    let mut gathered: Vec<Line> = Vec::new();
    for line in lines {
        match (gathered.last_mut(), line) {
            (Some(Line::Fixed(before)), Line::Fixed(edits)) => {
                *before = before.iter().chain(&*edits).cloned().collect();
            }
            (_, line) => gathered.push(line),
        }
    }
    gathered
}

/// What is done with a value.
#[derive(Clone, Copy)]
enum Verb {
    Set,
    Add,
    Default,
}

impl Verb {
    fn edit(self, field: Field) -> Edit {
        match self {
            Self::Set => Edit::Set(field),
            Self::Add => Edit::Append(field),
            Self::Default => Edit::Default(field),
        }
    }

    /// What is done with the value that an expression has made.
    fn made(self, named: &Field, value: Option<Vec<u8>>) -> Option<Edit> {
        let field = value.and_then(|value| named.with_value(value).ok());
        match (self, field) {
            // What was to be ours must not be what the client says.
            (Self::Set, field) => Some(match field.filter(|field| !field.value().is_empty()) {
                Some(field) => Edit::Set(field),
                None => named.removal(),
            }),
            (verb, field) => field.map(|field| verb.edit(field)),
        }
    }
}

impl FromNode for Headers {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        for node in nodes {
            if let Some(argument) = node.args().first() {
                return Err(argument
                    .wrong("`headers` takes a block")
                    .help("write headers { response { ... } }"));
            }
            if node.children().is_empty() {
                return Err(node.wrong("`headers` needs `request` or `response`"));
            }
        }
        let mut mistakes = Mistakes::default();
        let request = Changes::read(nodes, "request", PhaseId::RequestRewrite, context, &mut mistakes)?;
        let response = Changes::read(nodes, "response", PhaseId::ResponseHeaders, context, &mut mistakes)?;
        mistakes.none()?;
        let removes = |edit: &&Edit| matches!(edit, Edit::Remove(_));
        let owns = |edit: &&Edit| matches!(edit, Edit::Set(_) | Edit::Remove(_));
        let (all, always) = (response.all(false), response.all(true));
        Ok(Self {
            of_requests: Names::of_requests(request.all(false).iter().filter_map(Edit::name)),
            of_responses: Names::of_responses(all.iter().filter(owns).filter_map(Edit::name)),
            removed: Names::of_responses(always.iter().filter(removes).filter_map(Edit::name)),
            request,
            response,
        })
    }
}

impl Changes {
    /// Reads the blocks of this name. What is wrong with single lines is only taken note of.
    fn read(
        nodes: &[Node],
        name: &str,
        phase: PhaseId,
        context: &mut dyn Context,
        mistakes: &mut Mistakes,
    ) -> Result<Self, Problem> {
        let mut blocks = Vec::new();
        let mut count = 0;
        for node in nodes.iter().flat_map(|node| node.children_named(name)) {
            let when = node.prop("when").map(|when| context.condition(when, phase)).transpose();
            let when = mistakes.kept(when).flatten();
            let mut lines = Vec::new();
            for line in node.children() {
                mistakes.kept(read_line(line, phase, context, &mut lines));
            }
            if node.children().is_empty() {
                return Err(node.wrong(format!("`{name}` changes nothing")));
            }
            count += lines.len();
            if count > LINES_LIMIT {
                return Err(node.wrong(format!("more than {LINES_LIMIT} changes")));
            }
            blocks.push(Lines { when, lines: gathered(lines) });
        }
        let fixed = |block: &Lines| {
            block.when.is_none() && block.lines.iter().all(|line| matches!(line, Line::Fixed(_)))
        };
        if !blocks.iter().all(fixed) {
            return Ok(Self { fixed: None, blocks });
        }
        let edits = blocks.iter().flat_map(|block| &block.lines).filter_map(Line::fixed).flatten();
        Ok(Self { fixed: Some(edits.cloned().collect()), blocks: Vec::new() })
    }

    /// What its lines may do, values apart; with `always` those only that do it whatever the exchange is.
    fn all(&self, always: bool) -> Vec<Edit> {
        let blocks = self.blocks.iter().filter(|block| !always || block.when.is_none());
        let mut edits: Vec<Edit> = self.fixed.iter().flat_map(|fixed| fixed.iter().cloned()).collect();
        for line in blocks.flat_map(|block| &block.lines) {
            match line {
                Line::Fixed(fixed) => edits.extend(fixed.iter().cloned()),
                Line::Made(verb, named, _) => edits.push(verb.edit(named.clone())),
            }
        }
        edits
    }

    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.fixed.as_ref().is_none_or(|fixed| fixed.is_empty())
    }

    fn edits(&self, view: &View<'_>) -> Edits {
        if let Some(fixed) = &self.fixed {
            return Edits::shared(fixed);
        }
        let mut edits = Edits::new();
        for block in &self.blocks {
            if block.when.as_ref().is_some_and(|when| !when.holds(view)) {
                continue;
            }
            for line in &block.lines {
                match line {
                    Line::Fixed(fixed) => edits.push_shared(fixed),
                    Line::Made(verb, named, expression) => {
                        let value = expression.evaluate(view).filter(|value| value.len() <= VALUE_LIMIT);
                        if let Some(edit) = verb.made(named, value.map(Cow::into_owned)) {
                            edits.push(edit);
                        }
                    }
                }
            }
        }
        edits
    }
}

fn read_line(
    line: &Node,
    phase: PhaseId,
    context: &mut dyn Context,
    lines: &mut Vec<Line>,
) -> Result<(), Problem> {
    let verb = match line.name() {
        "set" => Verb::Set,
        "add" => Verb::Add,
        "default" => Verb::Default,
        _ => {
            for name in line.args() {
                lines.push(Line::Fixed([field(name)?.removal()].into()));
            }
            return Ok(());
        }
    };
    let named = field(line.arg(0)?)?;
    match (line.args().get(1), line.prop("expression")) {
        (Some(value), None) => {
            literal::check(value, Use::Value, |expression| format!("expression=#\"{expression}\"#"))?;
            let text = Text::Shared(value.text()?.as_bytes().into());
            let field = named.with_value(text).map_err(|error| value.wrong(error.to_string()))?;
            lines.push(Line::Fixed([verb.edit(field)].into()));
        }
        (None, Some(expression)) => {
            lines.push(Line::Made(verb, named, context.expression(expression, phase)?));
        }
        _ => {
            return Err(
                line.wrong(format!("`{}` needs either a value or expression=EXPRESSION", line.name()))
            );
        }
    }
    Ok(())
}

/// A field that may be changed, without its value.
fn field(name: &Argument) -> Result<Field, Problem> {
    let text = name.text()?;
    if text.contains('*') {
        return Err(name
            .wrong("`*` stands for nothing here")
            .help("`clear-headers` removes fields by the beginnings of their names"));
    }
    let field = Field::new(Text::Shared(text.as_bytes().into()), Text::EMPTY);
    let field = field.map_err(|error| name.wrong(error.to_string()))?;
    if field.name().eq_ignore_ascii_case(b"host") {
        return Err(name.wrong("`host` is the target of the request, which no field changes"));
    }
    Ok(field)
}

/// Changes requests.
#[derive(Debug, Default)]
pub struct Request;

impl Step for Request {
    type At = phase::RequestRewrite;
    type Settings = Headers;
    type In<'r> = (View<'r>,);
    type Out = (EditRequest,);
    type Stop = Never;
    const NAME: &'static str = "headers-request";
    const ABOUT: &'static str = "Sets, adds and removes fields of the request.";
    const FILTERS: &'static [Filter] = &[];
    fn is_idle(settings: &Headers) -> bool {
        settings.request.is_empty()
    }

    fn sweeps(settings: &Headers) -> bool {
        !settings.of_requests.is_empty()
    }

    fn keeps(&self, settings: &Headers, _: Swept, name: &[u8]) -> bool {
        !settings.of_requests.contains(name)
    }

    fn run(&self, settings: &Headers, (view,): (View<'_>,)) -> ControlFlow<Never, Self::Out> {
        ControlFlow::Continue((EditRequest(settings.request.edits(&view)),))
    }
}

/// Changes responses.
#[derive(Debug, Default)]
pub struct Response;

impl Step for Response {
    type At = phase::ResponseHeaders;
    type Settings = Headers;
    type In<'r> = (View<'r>,);
    type Out = (EditResponse,);
    type Stop = Never;
    const NAME: &'static str = "headers-response";
    const ABOUT: &'static str = "Sets, adds and removes fields of the response.";
    const FILTERS: &'static [Filter] = &[];
    fn is_idle(settings: &Headers) -> bool {
        settings.response.is_empty()
    }

    fn sweeps(settings: &Headers) -> bool {
        !settings.of_responses.is_empty()
    }

    fn keeps(&self, settings: &Headers, swept: Swept, name: &[u8]) -> bool {
        match swept {
            Swept::Interim => !settings.removed.contains(name),
            Swept::Trailers => !settings.of_responses.contains(name),
        }
    }

    fn run(&self, settings: &Headers, (view,): (View<'_>,)) -> ControlFlow<Never, Self::Out> {
        ControlFlow::Continue((EditResponse(settings.response.edits(&view)),))
    }
}

#[cfg(test)]
mod tests {
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

    fn read(nodes: &[Node]) -> Result<Headers, Problem> {
        let mut context = Literals { compile: Some(Box::new(Words)), ..Literals::default() };
        Headers::from_nodes(nodes, &mut context)
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
        assert_eq!(sample.run(&Request, &headers), Verdict::Continue);
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
            assert!(<Request as Step>::sweeps(&headers) && !<Response as Step>::sweeps(&headers));
            let keeps = |name: &str| Request.keeps(&headers, Swept::Trailers, name.as_bytes());
            for name in ["x-debug", "X_Debug", "x-set", "x-made", "X-Made", "x_default", "x-added"] {
                assert!(!keeps(name), "{name} {when:?}");
            }
            assert!(keeps("x-debugger") && keeps("x-other"));
            let headers = of("response");
            assert!(!<Request as Step>::sweeps(&headers) && <Response as Step>::sweeps(&headers));
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
        sample.run(&Request, &headers);
        assert_eq!(shown(&sample.request), ["x: first", "x: /p", "z: /p"]);
        // What cannot stand in a field cannot break out of it either, and leaves nobody else's value.
        for path in ["/a\r\nx: y", &"/".repeat(VALUE_LIMIT + 1), ""] {
            let mut sample = Sample::get("/").field("z", "theirs");
            sample.path = path.into();
            sample.run(&Request, &headers);
            let added: &[&str] = if path.is_empty() { &["x: first", "x: "] } else { &["x: first"] };
            assert_eq!(shown(&sample.request), added);
        }
    }

    #[test]
    fn what_comes_to_nothing_adds_nothing() {
        let lines =
            [made("add", "x", "absent"), made("default", "y", "absent"), made("default", "z", "path")];
        let headers = read(&[node("headers").with_child(block("request", &lines))]).unwrap();
        let mut sample = Sample::get("/p").field("x", "theirs").field("z", "theirs");
        sample.run(&Request, &headers);
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
        assert_eq!(
            told(&[node("set").arg_literal("a")]),
            "`set` needs either a value or expression=EXPRESSION"
        );
        assert_eq!(told(&[made("set", "a", "nonsense")]), "unknown in request-rewrite");
        assert_eq!(
            told(&[line("set", "a", "b").prop_literal("expression", "path")]),
            "`set` needs either a value or expression=EXPRESSION"
        );
        assert_eq!(
            told(&[line("set", "a", "$remote_addr")]),
            "`$remote_addr` is no variable here: it is taken as it stands"
        );
        let lines = [line("set", "a b", ""), line("add", "a", "b"), made("add", "a", "nonsense")];
        let blocks = node("headers").with_child(block("request", &lines)).with_child(
            block("response", &[node("remove").arg_literal("connection")]).prop_literal("when", "x"),
        );
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
}
