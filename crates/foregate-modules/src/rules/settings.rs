//! Rules in the configuration.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use foregate_module::settings::{
    Argument, Context, FURTHER_LIMIT, FromNode, Key, Mistakes, Node, Problem, UpstreamId, each, together,
};
use foregate_module::{Conditions, Edit, Expression, Field, PhaseId, Step, Steps, Text, View};

use super::challenge::Challenge;
use super::keys::RULE;
use crate::literal::{self, Use};
use crate::names::Names;
use crate::redirects;

/// The longest name of a variable, bytes.
const NAME_LIMIT: usize = 64;

/// The rules of a route.
#[derive(Default)]
pub struct Rules {
    pub(super) request: PhaseRules,
    pub(super) rewrite: PhaseRules,
    pub(super) response: PhaseRules,
    /// Names of request fields that rules set or remove.
    pub(super) of_requests: Names,
    /// Names of response fields that rules set or remove.
    pub(super) of_responses: Names,
}

/// The rules of one phase.
#[derive(Default)]
pub(super) struct PhaseRules {
    pub(super) segments: Box<[Segment]>,
    pub(super) rules: Box<[Rule]>,
}

impl PhaseRules {
    /// Returns true if there is no rule.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The actions of all rules, without those in a dry run.
    fn changes(&self) -> impl Iterator<Item = &Action> {
        self.rules.iter().filter(|rule| !rule.dry_run).flat_map(|rule| &rule.actions)
    }

    /// Returns true if any rule guards something.
    pub(super) fn guards(&self) -> bool {
        self.rules.iter().any(Rule::guards)
    }

    /// Returns true if any rule has an action of a kind.
    pub(super) fn any(&self, kind: fn(&Action) -> bool) -> bool {
        self.rules.iter().any(|rule| rule.actions.iter().any(kind))
    }
}

/// Rules with conditions that are evaluated together. A rule that may read a variable of an earlier rule begins a new
/// segment.
pub(super) struct Segment {
    /// The number of the segment's first rule.
    pub(super) first: usize,
    pub(super) conditions: Arc<dyn Conditions>,
}

/// One rule: its name and its actions. The [`Segment`] has its condition.
pub(super) struct Rule {
    pub(super) name: Arc<[u8]>,
    pub(super) dry_run: bool,
    pub(super) actions: Box<[Action]>,
}

impl Rule {
    /// Returns true if no client may get around the rule, because it does more than report.
    pub(super) fn guards(&self) -> bool {
        !self.dry_run && self.actions.iter().any(Action::guards)
    }
}

/// One action of a rule.
pub(super) enum Action {
    Respond { status: u16, content_type: Arc<[u8]>, body: ActionValue },
    Redirect { status: u16, target: ActionValue },
    Rewrite { path: Option<ActionValue>, query: Option<ActionValue> },
    EditRequest(Change),
    EditResponse(Change),
    Set { name: Arc<[u8]>, value: ActionValue },
    Upstream(UpstreamId),
    Skip { steps: Steps, rules: bool },
    Log { name: Arc<[u8]>, value: ActionValue },
    Challenge(Box<Challenge>),
}

impl Action {
    /// Returns true if no client may get around the action.
    pub(super) fn guards(&self) -> bool {
        !matches!(self, Self::Log { .. })
    }

    /// Returns true if the action always ends the request.
    fn is_terminal(&self) -> bool {
        matches!(self, Self::Respond { .. } | Self::Redirect { .. })
    }

    /// Returns true if the action may end the request.
    pub(super) fn may_stop(&self) -> bool {
        self.is_terminal() || matches!(self, Self::Challenge(_))
    }

    /// Returns true if the action changes the request to the origin, apart from the choice of the upstream.
    pub(super) fn edits_request(&self) -> bool {
        matches!(self, Self::Rewrite { .. } | Self::EditRequest(_))
    }

    /// Returns true if the action changes the fields of the response.
    pub(super) fn edits_response(&self) -> bool {
        matches!(self, Self::EditResponse(_))
    }

    /// The name of the request field that the action changes.
    fn named_in_requests(&self) -> Option<&[u8]> {
        if let Self::EditRequest(change) = self { change.name() } else { None }
    }

    /// The name of the response field that the action sets or removes.
    fn owned_in_responses(&self) -> Option<&[u8]> {
        match self {
            Self::EditResponse(change) if !change.appends() => change.name(),
            _ => None,
        }
    }

    /// Returns true if the action chooses the upstream.
    pub(super) fn chooses_upstream(&self) -> bool {
        matches!(self, Self::Upstream(_))
    }

    /// Returns true if the action concerns the request to the origin.
    fn changes_request(&self) -> bool {
        matches!(self, Self::Rewrite { .. } | Self::EditRequest(_) | Self::Upstream(_) | Self::Challenge(_))
    }
}

/// A value of an action.
pub(super) enum ActionValue {
    Text(Arc<[u8]>),
    Expression(Arc<dyn Expression>),
}

impl ActionValue {
    /// The value for a request; `None` if the expression has no value.
    pub(super) fn get(&self, view: &View<'_>) -> Option<Text> {
        match self {
            Self::Text(text) => Some(Text::Shared(Arc::clone(text))),
            Self::Expression(expression) => Some(Text::Owned(expression.evaluate(view)?.into_owned())),
        }
    }
}

/// A change to the fields of a head.
pub(super) enum Change {
    Fixed(Arc<[Edit]>),
    /// An expression makes the value. The field has the name and an empty value.
    Computed {
        field: Field,
        appends: bool,
        value: Arc<dyn Expression>,
    },
}

impl Change {
    /// The name of the field.
    fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Fixed(edits) => edits.first().and_then(Edit::name),
            Self::Computed { field, .. } => Some(field.name()),
        }
    }

    /// Returns true if the change keeps other fields of the name.
    fn appends(&self) -> bool {
        match self {
            Self::Fixed(edits) => matches!(**edits, [Edit::Append(_)]),
            Self::Computed { appends, .. } => *appends,
        }
    }
}

/// The phase in which a rule is evaluated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Request,
    Rewrite,
    Response,
}

impl When {
    const WORDS: [(&'static str, Self); 3] =
        [("request", Self::Request), ("rewrite", Self::Rewrite), ("response", Self::Response)];

    fn phase(self) -> PhaseId {
        match self {
            Self::Request => PhaseId::RequestSecurity,
            Self::Rewrite => PhaseId::RequestRewrite,
            Self::Response => PhaseId::ResponseHeaders,
        }
    }

    /// The step that evaluates the rules.
    fn step(self) -> &'static str {
        match self {
            Self::Request => super::EvaluateRequest::NAME,
            Self::Rewrite => super::EvaluateRewrite::NAME,
            Self::Response => super::EvaluateResponse::NAME,
        }
    }

    /// Advice to move a rule to the first later phase for which `fits` holds.
    fn advise(self, problem: Problem, mut fits: impl FnMut(PhaseId) -> bool) -> Problem {
        let mut later = Self::WORDS.iter().filter(|(_, when)| when.phase() > self.phase());
        match later.find(|(_, when)| fits(when.phase())) {
            Some((word, when)) => problem.help(format!(
                "with phase=\"{word}\", the rule is evaluated in {}, where this is known",
                when.phase()
            )),
            None => problem,
        }
    }
}

impl FromNode for Rules {
    const KEY: Option<&'static Key> = Some(&RULE);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let mut wrong = Mistakes::default();
        let mut groups: [Vec<(&Argument, Rule)>; 3] = Default::default();
        for (number, node) in (1..).zip(nodes) {
            if let Some((when, text, rule)) = rule(node, number, context, &mut wrong) {
                groups[when as usize].push((text, rule));
            }
        }
        let [request, rewrite, response] = groups;
        let mut rules = Self {
            request: group(request, When::Request, context, &mut wrong),
            rewrite: group(rewrite, When::Rewrite, context, &mut wrong),
            response: group(response, When::Response, context, &mut wrong),
            ..Self::default()
        };
        let groups = [&rules.request, &rules.rewrite, &rules.response];
        let changes = || groups.into_iter().flat_map(|group| group.changes());
        let (of_requests, of_responses) = (
            Names::of_requests(changes().filter_map(Action::named_in_requests)),
            Names::of_responses(changes().filter_map(Action::owned_in_responses)),
        );
        (rules.of_requests, rules.of_responses) = (of_requests, of_responses);
        wrong.none().map(|()| rules)
    }
}

/// Reads a rule without its condition; `None` if it has an error.
fn rule<'n>(
    node: &'n Node,
    number: usize,
    context: &mut dyn Context,
    wrong: &mut Mistakes,
) -> Option<(When, &'n Argument, Rule)> {
    let when = node.prop("phase").map_or(Ok(When::Request), |phase| phase.choice(&When::WORDS));
    let name = match node.prop("name") {
        Some(argument) => argument.text().and_then(|name| match name {
            "" => Err(argument.wrong("this name is empty")),
            name => Ok(name.as_bytes().into()),
        }),
        None => Ok(format!("rule {number}").into_bytes().into()),
    };
    let dry_run = node.prop("dry-run").map_or(Ok(false), Argument::flag);
    let (when, name, dry_run) = (wrong.kept(when), wrong.kept(name), wrong.kept(dry_run));
    // Without the phase, nothing else can be checked.
    let when = when?;
    let (text, actions) = (wrong.kept(node.arg(0)), actions(node, when, context, wrong));
    let whole = (|| Some((when, text?, Rule { name: name?, dry_run: dry_run?, actions: actions? })))();
    if whole.is_none()
        && let Some(text) = text
    {
        // A rule with an error is not compiled later, so its condition has to be checked here.
        wrong.kept(condition(text, when, context));
    }
    whole
}

/// Checks that a condition is valid in the phase of its rule.
fn condition(text: &Argument, when: When, context: &mut dyn Context) -> Result<(), Problem> {
    let compiled = context.condition(text, when.phase()).map(|_| ());
    compiled.map_err(|problem| when.advise(problem, |phase| context.condition(text, phase).is_ok()))
}

/// Compiles the rules of a phase.
fn group(
    rules: Vec<(&Argument, Rule)>,
    when: When,
    context: &mut dyn Context,
    wrong: &mut Mistakes,
) -> PhaseRules {
    let mut segments = Vec::new();
    let mut texts: Vec<Argument> = Vec::new();
    let (mut first, mut sets) = (0, false);
    for (number, (text, rule)) in rules.iter().enumerate() {
        // A rule may contain the word without reading a variable: then the new segment does no harm.
        if sets && text.text().is_ok_and(|text| text.contains("vars")) {
            segments.extend(
                conditions(&texts, when, context, wrong).map(|all| Segment { first, conditions: all }),
            );
            (first, sets) = (number, false);
            texts.clear();
        }
        texts.push((*text).clone());
        sets |= rule.actions.iter().any(|action| matches!(action, Action::Set { .. }));
    }
    if !texts.is_empty() {
        segments
            .extend(conditions(&texts, when, context, wrong).map(|all| Segment { first, conditions: all }));
    }
    PhaseRules { segments: segments.into(), rules: rules.into_iter().map(|(_, rule)| rule).collect() }
}

fn conditions(
    texts: &[Argument],
    when: When,
    context: &mut dyn Context,
    wrong: &mut Mistakes,
) -> Option<Arc<dyn Conditions>> {
    let problem = match context.conditions(texts, when.phase()) {
        Ok(conditions) => return Some(conditions),
        Err(problem) => problem,
    };
    // Compile each condition alone, to find the faulty ones.
    let each: Vec<Problem> =
        texts.iter().filter_map(|text| condition(text, when, context).err()).take(FURTHER_LIMIT).collect();
    let all_of_them = if each.is_empty() { Vec::from([problem]) } else { each };
    all_of_them.into_iter().for_each(|problem| wrong.add(problem));
    None
}

/// The actions of a rule; `None` if one of them has an error.
fn actions(
    rule: &Node,
    when: When,
    context: &mut dyn Context,
    wrong: &mut Mistakes,
) -> Option<Box<[Action]>> {
    let mut actions = Vec::new();
    for node in rule.children() {
        let read = if actions.last().is_some_and(Action::is_terminal) {
            let message = format!("`{}` does not run: the action before it ends the request", node.name());
            Err(node.wrong(message))
        } else {
            action(node, when, context)
        };
        actions.extend(wrong.kept(read));
    }
    if rule.children().is_empty() {
        let problem = rule.wrong("a rule has an action");
        wrong.add(problem.help("write one in its block: `rule \"ssl\" { block }`"));
    }
    let whole = !actions.is_empty() && actions.len() == rule.children().len();
    whole.then(|| actions.into())
}

fn action(node: &Node, when: When, context: &mut dyn Context) -> Result<Action, Problem> {
    let action = Reader { node, when, context }.action()?;
    if when == When::Response && action.changes_request() {
        let message = format!(
            "`{}` is about the request, which has been answered in phase {}",
            node.name(),
            when.phase()
        );
        return Err(node
            .wrong(message)
            .help("leave out phase=\"response\", or use an action on the response"));
    }
    Ok(action)
}

/// Reads one action.
struct Reader<'a> {
    node: &'a Node,
    when: When,
    context: &'a mut dyn Context,
}

impl Reader<'_> {
    fn action(mut self) -> Result<Action, Problem> {
        let node = self.node;
        Ok(match node.name() {
            "block" => self.respond(400, 403)?,
            "respond" => self.respond(200, 200)?,
            "redirect" => self.redirect()?,
            "rewrite" => self.rewrite()?,
            "set-header" => Action::EditRequest(self.change(false)?),
            "add-header" => Action::EditRequest(self.change(true)?),
            "remove-header" => Action::EditRequest(self.removal()?),
            "set-response-header" => Action::EditResponse(self.change(false)?),
            "add-response-header" => Action::EditResponse(self.change(true)?),
            "remove-response-header" => Action::EditResponse(self.removal()?),
            "set" => {
                let (name, value) = together((self.name(), self.value()))?;
                Action::Set { name, value }
            }
            "log" => {
                let (name, value) = together((self.name(), self.value()))?;
                Action::Log { name, value }
            }
            "upstream" => Action::Upstream(self.context.upstream(node.arg(0)?)?),
            "skip" => self.skip()?,
            "challenge" => Action::Challenge(Box::new(Challenge::read(node, self.context)?)),
            name => return Err(node.wrong(format!("there is no action `{name}`"))),
        })
    }

    /// The value after a name.
    fn value(&mut self) -> Result<ActionValue, Problem> {
        let argument = self.node.arg(1)?;
        self.given(argument, Use::Value)
    }

    /// The value of an argument: a literal, or an expression.
    fn given(&mut self, argument: &Argument, of: Use) -> Result<ActionValue, Problem> {
        let is_expression = self.node.prop("expression").map_or(Ok(false), Argument::flag)?;
        if !is_expression {
            literal::check(argument, of, |expression| format!("#\"{expression}\"# expression=#true"))?;
            return Ok(ActionValue::Text(argument.text()?.as_bytes().into()));
        }
        let (when, context) = (self.when, &mut *self.context);
        match context.expression(argument, when.phase()) {
            Ok(expression) => Ok(ActionValue::Expression(expression)),
            Err(problem) => Err(when.advise(problem, |phase| context.expression(argument, phase).is_ok())),
        }
    }

    fn respond(&mut self, least: u64, default: u16) -> Result<Action, Problem> {
        let node = self.node;
        let status = node.args().first().map_or(Ok(u64::from(default)), |status| status.number(least..=999));
        let status = status.and_then(|status| {
            if redirects::STATUSES.iter().all(|redirect| u64::from(*redirect) != status) {
                return Ok(status);
            }
            let message = format!("an answer with status {status} needs an address to send the client to");
            Err(node.wrong(message).help(format!("write `redirect \"TARGET\" status={status}`")))
        });
        let body = node
            .args()
            .get(1)
            .map_or(Ok(ActionValue::Text(Arc::default())), |body| self.given(body, Use::Body));
        let content_type = node.prop("type").map_or(Ok("text/plain; charset=utf-8"), crate::content_type);
        let (status, body, content_type) = together((status, body, content_type))?;
        if let Some(argument) = node.args().get(1).filter(|_| matches!(status, 204 | 205 | 304)) {
            return Err(argument.wrong(format!("an answer with status {status} has no body")));
        }
        Ok(Action::Respond { status: status as u16, content_type: content_type.as_bytes().into(), body })
    }

    fn redirect(&mut self) -> Result<Action, Problem> {
        let status = redirects::status(self.node);
        let target = self.node.arg(0).and_then(|argument| {
            let target = self.given(argument, Use::Address)?;
            if let ActionValue::Text(_) = target {
                redirects::check_target(argument.text()?).map_err(|message| argument.wrong(message))?;
            }
            Ok(target)
        });
        let (status, target) = together((status, target))?;
        Ok(Action::Redirect { status, target })
    }

    fn rewrite(&mut self) -> Result<Action, Problem> {
        let node = self.node;
        let (path, query) = (node.prop("path"), node.prop("query"));
        if path.is_none() && query.is_none() {
            return Err(node.wrong("`rewrite` needs `path`, `query` or both"));
        }
        let mut read = |argument: Option<&Argument>| {
            argument.map(|argument| self.given(argument, Use::Address)).transpose()
        };
        let (path_value, query_value) = together((read(path), read(query)))?;
        if let (Some(argument), Some(ActionValue::Text(text))) = (path, &path_value)
            && (!text.starts_with(b"/") || text.iter().any(|byte| matches!(byte, b'?' | b'#')))
        {
            return Err(argument.wrong("a path begins with `/` and has no query; that has its own property"));
        }
        if let (Some(argument), Some(ActionValue::Text(_))) = (path, &path_value) {
            check_rewritten(argument.text()?).map_err(|why| argument.wrong(why))?;
        }
        if let (Some(argument), Some(ActionValue::Text(text))) = (query, &query_value)
            && (text.starts_with(b"?") || text.contains(&b'#'))
        {
            return Err(argument.wrong("a query is written without `?`, and has no `#`"));
        }
        Ok(Action::Rewrite { path: path_value, query: query_value })
    }

    fn change(&mut self, appends: bool) -> Result<Change, Problem> {
        let (field, value) = together((self.field(), self.value()))?;
        match value {
            ActionValue::Text(value) => {
                let field = field.with_value(Text::Shared(value));
                let field = field.or_else(|error| Err(self.node.arg(1)?.wrong(format!("{error}"))))?;
                let edit = match appends {
                    true => Edit::Append(field),
                    // A field without a value is not sent.
                    false if field.value().is_empty() => field.removal(),
                    false => Edit::Set(field),
                };
                Ok(Change::Fixed([edit].into()))
            }
            ActionValue::Expression(value) => Ok(Change::Computed { field, appends, value }),
        }
    }

    fn removal(&self) -> Result<Change, Problem> {
        Ok(Change::Fixed([self.field()?.removal()].into()))
    }

    /// A field that may be changed, without its value.
    fn field(&self) -> Result<Field, Problem> {
        let argument = self.node.arg(0)?;
        let name: Arc<[u8]> = argument.text()?.as_bytes().into();
        let of_request = !self.node.name().contains("response");
        if of_request && name.eq_ignore_ascii_case(b"host") {
            return Err(argument.wrong("`host` is the target of the request, which no field changes"));
        }
        Field::new(Text::Shared(name), Text::EMPTY).map_err(|error| argument.wrong(format!("{error}")))
    }

    /// The name of a variable or a note.
    fn name(&self) -> Result<Arc<[u8]>, Problem> {
        let argument = self.node.arg(0)?;
        let name = argument.text()?;
        if name.is_empty() || name.len() > NAME_LIMIT {
            return Err(argument.wrong(format!("a name has 1 to {NAME_LIMIT} bytes")));
        }
        Ok(name.as_bytes().into())
    }

    fn skip(&mut self) -> Result<Action, Problem> {
        let mut rules = false;
        let steps: Vec<Steps> = each(self.node.args().iter().map(|argument| match argument.text()? {
            "rules" | "rule" => {
                rules = true;
                Ok(Steps::NONE)
            }
            _ => self.context.steps_after(argument, self.when.step()),
        }))?;
        Ok(Action::Skip { steps: steps.into_iter().fold(Steps::NONE, Steps::and), rules })
    }
}

/// Checks a rewritten path. Any byte is allowed in it, but with an invalid path, each request would be refused.
fn check_rewritten(path: &str) -> Result<(), &'static str> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let byte = match byte {
            b'%' => digit().zip(digit()).map(|(high, low)| (high << 4 | low) as u8),
            byte => Some(byte),
        };
        decoded.push(byte.ok_or("behind `%` stand two hexadecimal digits")?);
    }
    if decoded.contains(&0) {
        return Err("no path has a NUL in it");
    }
    if foregate_module::has_parent_segment(path.as_bytes()) {
        return Err("a path to which a request is rewritten has no `..`");
    }
    Ok(())
}
