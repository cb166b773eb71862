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
//! The blocks of the top level, the site and the route all apply, the outermost first. Within a block, the lines
//! apply in their order. Responses of any source and status are changed.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use foregate_module::settings::{ANY, Argument, Block, Mistakes, Prop, each, together};
use foregate_module::{
    Condition, Context, Edit, EditRequest, EditResponse, Edits, Expression, Field, Filter, FromNode, Key,
    Never, Node, PhaseId, Problem, Step, Swept, Text, View, phase,
};

use crate::literal::{self, Use};
use crate::names::Names;

/// The most lines of all blocks.
const LINES_LIMIT: usize = 1000;

/// The longest value that an expression may make, bytes. A longer value counts as no value.
const VALUE_LIMIT: usize = 8192;

const EXPRESSION: &[Prop] = &[Prop {
    name: "expression",
    usage: "EXPRESSION",
    required: false,
    default: "",
    about: "Computes the value by this expression. If it has no value, an empty value, or a value that a field cannot have, nothing is added.",
}];

const SET_EXPRESSION: &[Prop] = &[Prop {
    about: "Computes the value by this expression. If it has no value, an empty value, or a value that a field cannot have, all fields of this name are removed.",
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
                "Sets the field to this value, and removes all other fields of this name.",
            )
        }
        .args(1, 2)
        .props(SET_EXPRESSION)
        .many(),
        Key {
            usage: "NAME VALUE | NAME expression=EXPRESSION",
            ..Key::one(
                "add",
                "",
                "add \"vary\" \"accept-language\"",
                "Adds this field; other fields of this name stay.",
            )
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
                "Adds the field if there is none of this name.",
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
    about: "Applies this block only if the expression is true.",
}];

const BLOCK: Block = Block {
    keys: &[
        Key {
            usage: "when=EXPRESSION { ... }",
            ..Key::block(
                "request",
                &LINES,
                "request { set \"x-tenant\" \"blue\" }",
                "Changes the fields of requests to the origin.",
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
                "Changes the fields of responses to the client.",
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
        "Sets, adds and removes fields of requests and responses. `headers` at the top of the file, in the site and in the route apply together.",
    )
}
.args(0, 1)
.with(&BLOCK)
.many()
.otherwise("fields pass unchanged");

/// The settings.
#[derive(Default)]
pub struct HeaderSettings {
    request: Changes,
    response: Changes,
    /// Names that request lines set or remove.
    of_requests: Names,
    /// Names that response lines set or remove.
    of_responses: Names,
    /// Names that are removed from every response.
    removed: Names,
}

/// The changes of one head.
#[derive(Default)]
struct Changes {
    /// All changes in one list, if none of them depends on the exchange.
    fixed: Option<Arc<[Edit]>>,
    /// The changes block by block, if some depend on the exchange.
    blocks: Vec<Lines>,
}

/// One block.
struct Lines {
    when: Option<Arc<dyn Condition>>,
    lines: Vec<Line>,
}

enum Line {
    /// The edits in their order.
    Fixed(Arc<[Edit]>),
    /// A line with a value that an expression makes. The field has the name and an empty value.
    Made(Verb, Field, Arc<dyn Expression>),
}

impl Line {
    fn fixed(&self) -> Option<&[Edit]> {
        if let Self::Fixed(edits) = self { Some(edits) } else { None }
    }
}

/// Merges adjacent lines with fixed values.
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

/// The use of a value.
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

    /// The change that gives a field its value; an empty value is not sent.
    fn done(self, field: Field) -> Edit {
        let removes = matches!(self, Self::Set) && field.value().is_empty();
        if removes { field.removal() } else { self.edit(field) }
    }

    /// The change for the value of an expression. An empty value counts as no value: `http.user_agent` is empty if the
    /// request has no such field.
    fn made(self, named: &Field, value: Option<Vec<u8>>) -> Option<Edit> {
        let field = value.and_then(|value| named.with_value(value).ok());
        match (self, field.filter(|field| !field.value().is_empty())) {
            // Without a value of ours, the client's value is removed: the origin could mistake it for ours.
            (Self::Set, None) => Some(named.removal()),
            (verb, field) => field.map(|field| verb.edit(field)),
        }
    }
}

impl FromNode for HeaderSettings {
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
    /// Reads the blocks of this name. Errors in single lines are collected.
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

    /// The changes that the lines of the block may make, without values. With `always`, only the changes of lines
    /// without a condition.
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
            let removal = |name| Ok(Line::Fixed([field(name)?.removal()].into()));
            lines.extend(each::<_, Vec<Line>>(line.args().iter().map(removal))?);
            return Ok(());
        }
    };
    let named = line.arg(0).and_then(field);
    lines.push(match (line.args().get(1), line.prop("expression")) {
        (Some(value), None) => {
            let shown = |expression: &str| format!("expression=#\"{expression}\"#");
            let text = literal::check(value, Use::Value, shown).and_then(|()| value.text());
            let (named, text) = together((named, text))?;
            let field = named.with_value(Text::Shared(text.as_bytes().into()));
            let field = field.map_err(|error| value.wrong(error.to_string()))?;
            Line::Fixed([verb.done(field)].into())
        }
        (None, Some(expression)) => {
            let (named, expression) = together((named, context.expression(expression, phase)))?;
            Line::Made(verb, named, expression)
        }
        _ => {
            let message = format!("`{}` needs either a value or expression=EXPRESSION", line.name());
            return Err(line.wrong(message));
        }
    });
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
pub struct EditRequestFields;

impl Step for EditRequestFields {
    type At = phase::RequestRewrite;
    type Settings = HeaderSettings;
    type In<'r> = (View<'r>,);
    type Out = (EditRequest,);
    type Stop = Never;
    const NAME: &'static str = "headers-request";
    const ABOUT: &'static str = "Sets, adds and removes fields of the request.";
    const FILTERS: &'static [Filter] = &[];
    fn is_idle(settings: &HeaderSettings) -> bool {
        settings.request.is_empty()
    }

    fn sweeps(settings: &HeaderSettings) -> bool {
        !settings.of_requests.is_empty()
    }

    fn keeps(&self, settings: &HeaderSettings, _: Swept, name: &[u8]) -> bool {
        !settings.of_requests.contains(name)
    }

    fn run(&self, settings: &HeaderSettings, (view,): (View<'_>,)) -> ControlFlow<Never, Self::Out> {
        ControlFlow::Continue((EditRequest(settings.request.edits(&view)),))
    }
}

/// Changes responses.
#[derive(Debug, Default)]
pub struct Response;

impl Step for Response {
    type At = phase::ResponseHeaders;
    type Settings = HeaderSettings;
    type In<'r> = (View<'r>,);
    type Out = (EditResponse,);
    type Stop = Never;
    const NAME: &'static str = "headers-response";
    const ABOUT: &'static str = "Sets, adds and removes fields of the response.";
    const FILTERS: &'static [Filter] = &[];
    fn is_idle(settings: &HeaderSettings) -> bool {
        settings.response.is_empty()
    }

    fn sweeps(settings: &HeaderSettings) -> bool {
        !settings.of_responses.is_empty()
    }

    fn keeps(&self, settings: &HeaderSettings, swept: Swept, name: &[u8]) -> bool {
        match swept {
            Swept::Interim => !settings.removed.contains(name),
            Swept::Trailers => !settings.of_responses.contains(name),
        }
    }

    fn run(&self, settings: &HeaderSettings, (view,): (View<'_>,)) -> ControlFlow<Never, Self::Out> {
        ControlFlow::Continue((EditResponse(settings.response.edits(&view)),))
    }
}

#[cfg(test)]
mod tests;
