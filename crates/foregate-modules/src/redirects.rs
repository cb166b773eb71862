//! Redirects: single redirects with exact paths or patterns, and very long lists from files.
//!
//! ```kdl
//! redirect "/old" to="/new" status=301
//! redirect "/blog/**" to="https://blog.example.com/${1}" keep-query=#true
//! redirects "moved.csv" status=308
//! ```
//!
//! Exact sources are looked up in a hash table. If none matches, patterns are tried in the order of the configuration.

pub(crate) mod address;
mod table;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use foregate_module::settings::value::text_of_file;
use foregate_module::settings::{
    Argument, Context, FromNode, Key, Mistakes, Node, Problem, Prop, each, together,
};
use foregate_module::{Authority, Filter, Host, Path, Query, Redirect, Scheme, Step, Text, phase};

use self::address::{Source, SourcePattern, Target, TargetTemplate, normal_path};
use self::table::{Builder, RedirectTable, TableRefusal};

/// The most patterns of a route.
const PATTERNS_LIMIT: usize = 1000;
/// The text for wildcards when redirects are followed to detect loops.
const SAMPLE: &[u8] = b"a-sample";
/// Browsers give up after this many redirects in a row.
const FOLLOWED_MOST: usize = 20;

/// The largest list, bytes.
const LIST_LIMIT: usize = 128 * 1024 * 1024;

/// The statuses with which a client follows the `location` of a response.
pub const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

/// The default status of a redirect.
const STATUS: u16 = 302;

const STATUS_PROP: Prop = Prop {
    name: "status",
    usage: "301|302|303|307|308",
    required: false,
    default: "302",
    about: "The status. Browsers remember 301 and 308, which are permanent. With 307 and 308, clients keep the method.",
};

const QUERY_PROP: Prop = Prop {
    name: "keep-query",
    usage: "#true|#false",
    required: false,
    default: "#false",
    about: "Whether the request's query is added to the target.",
};

const REDIRECT: Key = Key::one(
    "redirect",
    "SOURCE to=TARGET",
    "redirect \"/blog/**\" to=\"/journal/${1}\" status=301",
    "Redirects requests for a path. The source is a path (`/old`), or a host and a path (`example.com/old`); `*` matches \
     one segment, and `/**` at the end the rest. The target may contain the text that each wildcard has matched: as `*` and \
     `**`, in the same order, or as `${1}`, `${2}` by number.",
)
.props(&[
    Prop {
        name: "to",
        usage: "TARGET",
        required: true,
        default: "",
        about: "The target: a path of the same site, or an address that begins with `http://` or `https://`.",
    },
    STATUS_PROP,
    QUERY_PROP,
])
.many();

const REDIRECTS: Key = Key::one(
    "redirects",
    "FILE",
    "redirects \"moved.csv\" status=301",
    "Redirects requests by the lines of a file. Each line is `source,target` or `source,target,status`, with sources like those \
     of `redirect`, but without wildcards. `#` at the start of a line begins a comment; put a text with a comma in double quotes.",
)
.props(&[STATUS_PROP, QUERY_PROP])
.many();

/// The nodes `redirect`.
#[derive(Default)]
pub struct Redirects {
    exact: RedirectTable,
    patterns: Box<[PatternRedirect]>,
}

struct PatternRedirect {
    source: SourcePattern,
    target: TargetTemplate,
    status: u16,
    keeps_query: bool,
}

/// All nodes `redirects`, in one table.
#[derive(Default)]
pub struct RedirectLists(RedirectTable);

impl RedirectLists {
    /// The number of redirects.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// The memory of the table, bytes.
    pub fn memory(&self) -> usize {
        self.0.memory()
    }
}

impl FromNode for Redirects {
    const KEY: Option<&'static Key> = Some(&REDIRECT);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let mut read = Read::default();
        each::<_, ()>(nodes.iter().map(|node| read.add(node)))?;
        let Read { exact, arguments, patterns, targets } = read;
        let problem = |number: usize, message: &str| match arguments.get(number) {
            Some(argument) => argument.wrong(message),
            None => Problem::new(nodes.first().map(Node::place).unwrap_or_default(), message),
        };
        let refused = |refused| match refused {
            TableRefusal::Duplicate(_, second) => {
                problem(second, "there is a redirect from this source already")
            }
            TableRefusal::Loop(number) => problem(number, "this redirect leads back to itself"),
        };
        let exact = exact.build().map_err(|all| all.problem(refused))?;
        let read = Self { exact, patterns: patterns.into() };
        for (redirect, to) in read.patterns.iter().zip(targets) {
            if read.circles(redirect) {
                let warning = to.wrong("this redirect leads back to its own source, by way of others");
                context.warn(warning.help("unless requests on the way take other routes, browsers give up"));
            }
        }
        Ok(read)
    }
}

impl Redirects {
    /// The target of the redirect for a request, if the target is a path.
    fn next(&self, host: &str, path: &[u8]) -> Option<Vec<u8>> {
        let target = match self.exact.find(host, path) {
            Some(found) => found.target.into(),
            None => self.patterns.iter().find_map(|redirect| {
                redirect.source.captures(host, path).map(|captures| redirect.target.expand(&captures))
            })?,
        };
        let target = target.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
        target.starts_with(b"/").then(|| normal_path(target).into_owned())
    }

    /// Returns true if a client that follows this redirect comes back to its source, or never stops. The walk ends at a
    /// path that would be redirected to itself, because such a request is not redirected.
    fn circles(&self, redirect: &PatternRedirect) -> bool {
        let host = redirect.source.host();
        let first = redirect.source.sample(SAMPLE);
        let mut path = first.clone();
        for _ in 0..FOLLOWED_MOST {
            match self.next(host, &path) {
                Some(next) if next == first => return true,
                Some(next) if next != path => path = next,
                _ => return false,
            }
        }
        true
    }
}

/// The nodes `redirect` that have been read.
#[derive(Default)]
struct Read<'n> {
    exact: Builder,
    /// The sources of those redirects, in order.
    arguments: Vec<&'n Argument>,
    patterns: Vec<PatternRedirect>,
    /// The targets of those redirects.
    targets: Vec<&'n Argument>,
}

impl<'n> Read<'n> {
    fn add(&mut self, node: &'n Node) -> Result<(), Problem> {
        let argument = node.arg(0)?;
        let source =
            argument.text().and_then(|text| Source::parse(text).map_err(|message| argument.wrong(message)));
        let to = node.prop("to").ok_or_else(|| node.wrong("`redirect` needs `to`"));
        let (source, to, (status, keeps_query)) = together((source, to, properties(node)))?;
        let Some(pattern) = SourcePattern::parse(&source).map_err(|message| argument.wrong(message))? else {
            let text = to.text()?;
            if text.contains("${") {
                let message = "the source has no wildcard that the target could name";
                return Err(to.wrong(message).help(address::INSTEAD));
            }
            let target = Target::parse(text).map_err(|message| match message {
                address::HOST => to.wrong(message).help(address::INSTEAD),
                _ => to.wrong(message),
            })?;
            if address::names_variable(text) {
                return Err(to.wrong(address::VARIABLE).help(address::INSTEAD));
            }
            if !self.exact.add(&source, &target, status, keeps_query) {
                return Err(argument.wrong("there are too many redirects"));
            }
            self.arguments.push(argument);
            return Ok(());
        };
        let target = TargetTemplate::parse(to.text()?, pattern.wildcards());
        let target = target.map_err(|message| match to.text() {
            Ok(text) if text.contains("${") && message == address::REFERENCE => to.wrong(message).help(
                "more of a request is named in a rule: \
                 rule \"true\" { redirect #\"concat(\"https://\", http.host, http.request.uri.path)\"# expression=#true }",
            ),
            _ => to.wrong(message),
        })?;
        check_circle(&pattern, &target, to)?;
        if self.patterns.len() >= PATTERNS_LIMIT {
            let message = format!("there are more than {PATTERNS_LIMIT} redirects with wildcards");
            return Err(argument.wrong(message));
        }
        self.patterns.push(PatternRedirect { source: pattern, target, status, keeps_query });
        self.targets.push(to);
        Ok(())
    }
}

/// Refuses a target that matches its own pattern again, with another text each time: such redirects would never end.
fn check_circle(pattern: &SourcePattern, target: &TargetTemplate, to: &Argument) -> Result<(), Problem> {
    let expanded = target.expand(&[SAMPLE; address::WILDCARDS_LIMIT]);
    let path = expanded.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
    if target.varies() && path.starts_with(b"/") && pattern.takes(&normal_path(path)) {
        return Err(to.wrong("this target leads back to its own source"));
    }
    Ok(())
}

impl FromNode for RedirectLists {
    const KEY: Option<&'static Key> = Some(&REDIRECTS);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let mut builder = Builder::default();
        // For each redirect: its list, and its line.
        let mut origins: Vec<(u16, u32)> = Vec::new();
        each::<_, ()>((0..).zip(nodes).map(|(number, node)| {
            let argument = node.arg(0)?;
            let properties = properties(node);
            let (status, keeps_query) = properties.as_ref().map_or((STATUS, false), |read| *read);
            let list = context.file(argument, LIST_LIMIT).and_then(|bytes| {
                read_list(argument, &bytes, |line, row| {
                    let is_added = row.add(&mut builder, status, keeps_query)?;
                    origins.push((number, line));
                    Ok(is_added)
                })
            });
            together((properties, list)).map(|_| ())
        }))?;
        let origin = |number: usize| origins.get(number).copied().unwrap_or_default();
        let problem = |number: usize, message: &str| {
            let (node, line) = origin(number);
            let node = nodes.get(usize::from(node)).or(nodes.first());
            let argument = node.and_then(|node| node.args().first());
            let place = argument.map(Argument::place).unwrap_or_default();
            Problem::new(place, format!("line {line}: {message}"))
        };
        let refused = |refused| match refused {
            TableRefusal::Duplicate(first, second) => {
                let (list, line) = origin(first);
                let there = if list == origin(second).0 { "" } else { " of another list" };
                problem(second, &format!("this source stands in line {line}{there} already"))
            }
            TableRefusal::Loop(number) => problem(number, "this redirect leads back to itself"),
        };
        builder.build().map(Self).map_err(|all| all.problem(refused))
    }
}

/// Passes each row of a list, with the number of its line, to a function. The function returns false when there is no
/// room for more rows.
fn read_list(
    argument: &Argument,
    bytes: &[u8],
    mut add: impl FnMut(u32, Row) -> Result<bool, &'static str>,
) -> Result<(), Problem> {
    let text = text_of_file(bytes).map_err(|_| argument.wrong("the list is not UTF-8"))?;
    let mut mistakes = Mistakes::default();
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim().is_empty() || content.starts_with('#') {
            continue;
        }
        let wrong = |message: &str| argument.wrong(format!("line {line}: {message}"));
        let is_added = Row::parse(content).and_then(|row| add(line, row)).map_err(wrong);
        if mistakes.kept(is_added) == Some(false) {
            mistakes.add(wrong("there are too many redirects"));
            break;
        }
    }
    mistakes.none()
}

/// The status, and true if the query is kept.
fn properties(node: &Node) -> Result<(u16, bool), Problem> {
    together((status(node), node.prop("keep-query").map_or(Ok(false), Argument::flag)))
}

/// The property `status` of a redirect.
pub(crate) fn status(node: &Node) -> Result<u16, Problem> {
    let Some(argument) = node.prop("status") else { return Ok(STATUS) };
    let number = argument.number(0..=u64::from(u16::MAX))? as u16;
    check_status(number).map_err(|message| argument.wrong(message))
}

/// Checks that a text can be the target of a redirect.
///
/// # Errors
///
/// Returns the error as a sentence.
pub(crate) fn check_target(text: &str) -> Result<(), &'static str> {
    Target::parse(text).map(|_| ())
}

/// The target for a request, as a field value. Invalid characters are percent-encoded. Several slashes at the start
/// become one, so that a path cannot be read as a host. `None` for an empty target, and for a scheme that makes a
/// browser run code.
pub(crate) fn made_safe(target: Vec<u8>) -> Option<Vec<u8>> {
    let mut safe = Vec::with_capacity(target.len());
    for byte in target {
        match byte {
            b'/' if safe == b"/" => {}
            byte if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) => safe.push(byte),
            byte => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                let digits = [b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                safe.extend_from_slice(&digits);
            }
        }
    }
    let end = safe.iter().position(|byte| b":/?#".contains(byte));
    let scheme = end.and_then(|end| safe.split_at_checked(end)).filter(|(_, rest)| rest.starts_with(b":"));
    let is_web = |name: &[u8]| name.eq_ignore_ascii_case(b"http") || name.eq_ignore_ascii_case(b"https");
    (!safe.is_empty() && scheme.is_none_or(|(name, _)| is_web(name))).then_some(safe)
}

/// Checks that browsers follow a redirect with this status.
fn check_status(status: u16) -> Result<u16, &'static str> {
    STATUSES.contains(&status).then_some(status).ok_or("expected 301, 302, 303, 307 or 308")
}

/// A line of a list.
struct Row {
    source: String,
    target: String,
    status: Option<u16>,
}

impl Row {
    fn parse(line: &str) -> Result<Self, &'static str> {
        let mut rest = Some(line);
        let mut cells = core::iter::from_fn(|| rest.map(|line| cell(line, &mut rest)));
        let mut next = || cells.next().transpose();
        let (source, target, status) = (next()?, next()?, next()?);
        if next()?.is_some() {
            return Err("expected `source,target,status`; put texts with a comma in double quotes");
        }
        let (Some(source), Some(target)) = (source, target) else {
            return Err("expected `source,target` or `source,target,status`");
        };
        let status = match status.as_deref() {
            None | Some("") => None,
            Some(text) => Some(check_status(text.parse().unwrap_or_default())?),
        };
        Ok(Self { source, target, status })
    }

    /// Adds the redirect to a table; returns false if there is no room for it.
    fn add(&self, builder: &mut Builder, status: u16, keeps_query: bool) -> Result<bool, &'static str> {
        let source = Source::parse(&self.source)?;
        if source.path.contains('*') {
            return Err("a list has no wildcards; `redirect` takes them");
        }
        let target = Target::parse(&self.target)?;
        Ok(builder.add(&source, &target, self.status.unwrap_or(status), keeps_query))
    }
}

/// The first value of a line; `rest` becomes the text after its comma.
fn cell<'l>(line: &'l str, rest: &mut Option<&'l str>) -> Result<String, &'static str> {
    const QUOTES: &str = "double quotes stand around a whole value";
    let Some(quoted) = line.trim_start().strip_prefix('"') else {
        let (value, behind) = line.split_once(',').map_or((line, None), |(value, rest)| (value, Some(rest)));
        *rest = behind;
        return if value.contains('"') { Err(QUOTES) } else { Ok(value.trim().into()) };
    };
    let mut value = String::new();
    let mut left = quoted;
    loop {
        let (before, behind) = left.split_once('"').ok_or(QUOTES)?;
        value.push_str(before);
        match behind.strip_prefix('"') {
            Some(behind) => {
                value.push('"');
                left = behind;
            }
            None => {
                let behind = behind.trim();
                *rest = if behind.is_empty() { None } else { Some(behind.strip_prefix(',').ok_or(QUOTES)?) };
                return Ok(value);
            }
        }
    }
}

/// Redirects requests that match a node `redirect`.
#[derive(Debug, Default)]
pub struct FollowRedirects;

impl Step for FollowRedirects {
    type At = phase::RequestSecurity;
    type Settings = Redirects;
    type In<'r> = (Scheme<'r>, Authority<'r>, Host<'r>, Path<'r>, Query<'r>);
    type Out = ();
    type Stop = Redirect;
    const NAME: &'static str = "redirect";
    const ABOUT: &'static str = "Sends requests for single paths and patterns elsewhere.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, settings: &Redirects, input: Self::In<'_>) -> ControlFlow<Redirect> {
        let (_, _, Host(host), Path(path), _) = input;
        if let Some(found) = settings.exact.find(host, path) {
            return lead(found.target.into(), found.status, found.keeps_query, input);
        }
        for redirect in &settings.patterns {
            if let Some(captures) = redirect.source.captures(host, path) {
                let target = redirect.target.expand(&captures);
                return lead(target, redirect.status, redirect.keeps_query, input);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Redirects requests that are in a list of `redirects`.
#[derive(Debug, Default)]
pub struct FollowLists;

impl Step for FollowLists {
    type At = phase::RequestSecurity;
    type Settings = RedirectLists;
    type In<'r> = (Scheme<'r>, Authority<'r>, Host<'r>, Path<'r>, Query<'r>);
    type Out = ();
    type Stop = Redirect;
    const NAME: &'static str = "redirect-lists";
    const ABOUT: &'static str = "Sends requests for the paths of lists elsewhere.";
    const FILTERS: &'static [Filter] = &[];

    fn run(&self, settings: &RedirectLists, input: Self::In<'_>) -> ControlFlow<Redirect> {
        let (_, _, Host(host), Path(path), _) = input;
        match settings.0.find(host, path) {
            Some(found) => lead(found.target.into(), found.status, found.keeps_query, input),
            None => ControlFlow::Continue(()),
        }
    }
}

/// Redirects a request to a target, unless the request already has that target.
fn lead(
    mut target: Vec<u8>,
    status: u16,
    keeps_query: bool,
    (Scheme(scheme), Authority(authority), _, Path(path), Query(query)): (
        Scheme<'_>,
        Authority<'_>,
        Host<'_>,
        Path<'_>,
        Query<'_>,
    ),
) -> ControlFlow<Redirect> {
    if keeps_query && let Some(query) = query {
        add_query(&mut target, query);
    }
    if is_same(&target, scheme, authority, path, query) {
        return ControlFlow::Continue(());
    }
    ControlFlow::Break(Redirect { status, location: Text::Owned(target) })
}

/// Adds a query to a target, after the target's own query.
fn add_query(target: &mut Vec<u8>, query: &[u8]) {
    let end = target.iter().position(|byte| *byte == b'#').unwrap_or(target.len());
    let fragment = target.split_off(end);
    target.push(if target.contains(&b'?') { b'&' } else { b'?' });
    target.extend_from_slice(query);
    target.extend_from_slice(&fragment);
}

/// Returns true if a target equals the request, so that a client would loop.
pub(crate) fn is_same(
    target: &[u8],
    scheme: &str,
    authority: &str,
    path: &[u8],
    query: Option<&[u8]>,
) -> bool {
    let target = target.split(|byte| *byte == b'#').next().unwrap_or_default();
    let local = if target.starts_with(b"/") {
        Some(target)
    } else {
        let named = target.split_at_checked(scheme.len());
        let named = named.filter(|(named, _)| named.eq_ignore_ascii_case(scheme.as_bytes()));
        let rest = named.and_then(|(_, rest)| rest.strip_prefix(b"://")).unwrap_or_default();
        let host = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        let (host, local) = rest.split_at(host);
        // The default port of a scheme may be left out (RFC 9110, section 4.2.3).
        let own_port: &[u8] = if scheme == "https" { b":443" } else { b":80" };
        let host = host.strip_suffix(own_port).or_else(|| host.strip_suffix(b":")).unwrap_or(host);
        host.eq_ignore_ascii_case(authority.as_bytes()).then_some(local)
    };
    let Some(local) = local else { return false };
    let mut parts = local.splitn(2, |byte| *byte == b'?');
    let target_path = match parts.next() {
        None | Some(b"") => b"/",
        Some(path) => path,
    };
    // Also compares the unnormalised path: a site may keep repeated slashes.
    (target_path == path || *normal_path(target_path) == *path) && parts.next() == query
}
