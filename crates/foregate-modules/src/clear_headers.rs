//! Removes internal fields: from requests, so that no client can pretend to be a part of the system, and from responses,
//! so that no client sees internal messages of the system.
//!
//! ```kdl
//! clear-headers "x-internal-*" "x-debug-token" file="internal-headers.txt" builtin=#true responses=#true
//! ```
//!
//! Names are exact, or prefixes with a `*` at the end; `_` counts as `-`, as it does for CGI programs. The fields are
//! found in one pass over the head, by a trie made at load (see [`trie`]), and removed in one pass, by their numbers.

pub mod trie;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use foregate_module::settings::value::text_of_file;
use foregate_module::settings::{ANY, Argument, Mistakes, Prop, each, together};
use foregate_module::{
    Context, Edit, EditRequest, EditResponse, Edits, FieldError, Fields, Filter, FromNode, Key, Never, Node,
    Problem, RequestFields, ResponseFields, Step, Swept, phase,
};

use self::trie::{LENGTH_LIMIT, NAMES_LIMIT, NameSet};

/// The largest file of names, bytes.
const FILE_LIMIT: usize = 1 << 20;

/// Names of fields that proxies, clouds and gateways set for servers that trust them, one per line.
const BUILTIN: &str = include_str!("clear_headers/builtin.txt");

const KEY: Key = Key {
    usage: "NAME... file=FILE builtin=#true|#false requests=#true|#false responses=#true|#false",
    ..Key::one(
        "clear-headers",
        "",
        "clear-headers \"x-internal-*\" builtin=#true",
        "Removes the fields of these names from requests, before any other module except `trusted-proxies` reads them. With `responses=#true`, it removes them from responses, too. `*` at the end of a name stands for any rest. `_` is equal to `-`.",
    )
}
.args(0, ANY)
.otherwise("all fields of requests and responses pass")
.props(&[
    Prop {
        name: "file",
        usage: "FILE",
        required: false,
        default: "",
        about: "A file with more names, one per line; `#` begins a comment.",
    },
    Prop {
        name: "builtin",
        usage: "#true|#false",
        required: false,
        default: "#false",
        about: "Adds a built-in list of fields with which proxies, clouds and gateways identify the client, such as `cf-connecting-ip`, `x-real-ip`, `x-remote-user`, `x-original-url`.",
    },
    Prop {
        name: "requests",
        usage: "#true|#false",
        required: false,
        default: "#true",
        about: "Whether the fields are removed from requests.",
    },
    Prop {
        name: "responses",
        usage: "#true|#false",
        required: false,
        default: "#false",
        about: "Whether the fields are removed from responses.",
    },
]);

/// The settings: the names, and whether they are cleared from requests, responses or both.
#[derive(Debug)]
pub struct ClearHeaders {
    names: NameSet,
    requests: bool,
    responses: bool,
}

impl FromNode for ClearHeaders {
    const KEY: Option<&'static Key> = Some(&KEY);

    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let [node] = nodes else {
            return Ok(Self { names: NameSet::default(), requests: false, responses: false });
        };
        let mut mistakes = Mistakes::default();
        let cleared = mistakes.kept(cleared(node));
        let mut patterns = Patterns::default();
        for name in node.args() {
            mistakes.kept(name.text().and_then(|text| patterns.add(text, |message| name.wrong(message))));
        }
        let file = node.prop("file").map(|path| Ok((path, context.file(path, FILE_LIMIT)?))).transpose();
        let file: Option<(&Argument, Arc<[u8]>)> = mistakes.kept(file).flatten();
        if let Some((path, bytes)) = &file {
            mistakes.kept(patterns.add_lines(path, bytes));
        }
        if mistakes.kept(flag(node, "builtin", false)) == Some(true) {
            for name in builtin() {
                patterns.exact.push(name.as_bytes());
            }
        }
        mistakes.none()?;
        if patterns.exact.is_empty() && patterns.prefixes.is_empty() {
            return Err(node
                .wrong("`clear-headers` needs names")
                .help("write names, file=FILE, or builtin=#true for those that ship"));
        }
        let names = NameSet::new(patterns.exact, patterns.prefixes)
            .ok_or_else(|| node.wrong(format!("more than {NAMES_LIMIT} names")))?;
        let (requests, responses) = cleared.unwrap_or_default();
        Ok(Self { names, requests, responses })
    }
}

fn flag(node: &Node, name: &str, default: bool) -> Result<bool, Problem> {
    node.prop(name).map_or(Ok(default), Argument::flag)
}

/// The settings for requests and for responses.
fn cleared(node: &Node) -> Result<(bool, bool), Problem> {
    let cleared = together((flag(node, "requests", true), flag(node, "responses", false)))?;
    if cleared == (false, false) {
        return Err(
            node.wrong("`clear-headers` has nothing to clear: both requests and responses are left out")
        );
    }
    Ok(cleared)
}

/// The built-in names.
pub fn builtin() -> impl Iterator<Item = &'static str> {
    BUILTIN.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The names as they are written in the settings.
#[derive(Default)]
struct Patterns<'t> {
    exact: Vec<&'t [u8]>,
    prefixes: Vec<&'t [u8]>,
}

impl<'t> Patterns<'t> {
    fn add(&mut self, text: &'t str, wrong: impl Fn(String) -> Problem) -> Result<(), Problem> {
        let (name, list) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, &mut self.prefixes),
            None => (text, &mut self.exact),
        };
        if name.is_empty() && text == "*" {
            return Err(wrong("`*` alone would clear every field".into()));
        }
        if name.contains('*') {
            return Err(wrong(format!("`{text}`: a `*` can only stand at the end")));
        }
        if name.len() > LENGTH_LIMIT {
            return Err(wrong(format!("a name of more than {LENGTH_LIMIT} bytes")));
        }
        check(name.as_bytes()).map_err(|error| wrong(format!("`{text}`: {error}")))?;
        if text.eq_ignore_ascii_case("host") {
            return Err(wrong("`host` is the target of the request, which no field changes".into()));
        }
        list.push(name.as_bytes());
        Ok(())
    }

    fn add_lines(&mut self, path: &Argument, bytes: &'t [u8]) -> Result<(), Problem> {
        let text = text_of_file(bytes).map_err(|_| path.wrong("the file of names is not UTF-8"))?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let lines = (1..).zip(lines).filter(|(_, line)| !line.is_empty());
        each(lines.map(|(number, line): (u32, _)| {
            self.add(line, |message| path.wrong(format!("line {number}: {message}")))
        }))
    }
}

/// Checks that a name may be cleared.
fn check(name: &[u8]) -> Result<(), FieldError> {
    foregate_module::Field::new(name.to_vec(), "").map(|_| ())
}

/// Removals of the fields with names in the set.
fn found(names: &NameSet, fields: &dyn Fields) -> Edits {
    let mut words: Vec<u64> = Vec::new();
    for number in 0..fields.count() {
        if fields.field(number).is_some_and(|(name, _)| names.contains(name)) {
            if words.is_empty() {
                words.resize(fields.count().div_ceil(64), 0);
            }
            words[number / 64] |= 1 << (number % 64);
        }
    }
    let mut edits = Edits::new();
    if !words.is_empty() {
        edits.push(Edit::RemoveNumbers(words));
    }
    edits
}

/// Clears requests.
#[derive(Debug, Default)]
pub struct ClearRequest;

impl Step for ClearRequest {
    type At = phase::RequestEarly;
    type Settings = ClearHeaders;
    type In<'r> = (RequestFields<'r>,);
    type Out = (EditRequest,);
    type Stop = Never;
    const NAME: &'static str = "clear-headers-request";
    const ABOUT: &'static str = "Removes internal fields from the request.";
    const FILTERS: &'static [Filter] = &[];
    fn is_idle(settings: &ClearHeaders) -> bool {
        !settings.requests
    }

    fn sweeps(settings: &ClearHeaders) -> bool {
        settings.requests
    }

    fn keeps(&self, settings: &ClearHeaders, _: Swept, name: &[u8]) -> bool {
        !settings.requests || !settings.names.contains(name)
    }

    fn run(
        &self,
        settings: &ClearHeaders,
        (RequestFields(fields),): (RequestFields<'_>,),
    ) -> ControlFlow<Never, Self::Out> {
        let edits = if settings.requests { found(&settings.names, fields) } else { Edits::new() };
        ControlFlow::Continue((EditRequest(edits),))
    }
}

/// Clears responses, after every other step has seen and changed them.
#[derive(Debug, Default)]
pub struct ClearResponse;

impl Step for ClearResponse {
    type At = phase::ResponseBody;
    type Settings = ClearHeaders;
    type In<'r> = (ResponseFields<'r>,);
    type Out = (EditResponse,);
    type Stop = Never;
    const NAME: &'static str = "clear-headers-response";
    const ABOUT: &'static str = "Removes internal fields from the response.";
    const FILTERS: &'static [Filter] = &[];
    // This step runs last, so that no later step adds a field.
    const LAST: bool = true;
    fn is_idle(settings: &ClearHeaders) -> bool {
        !settings.responses
    }

    fn sweeps(settings: &ClearHeaders) -> bool {
        settings.responses
    }

    fn keeps(&self, settings: &ClearHeaders, _: Swept, name: &[u8]) -> bool {
        !settings.responses || !settings.names.contains(name)
    }

    fn run(
        &self,
        settings: &ClearHeaders,
        (ResponseFields(fields),): (ResponseFields<'_>,),
    ) -> ControlFlow<Never, Self::Out> {
        let edits = if settings.responses { found(&settings.names, fields) } else { Edits::new() };
        ControlFlow::Continue((EditResponse(edits),))
    }
}

#[cfg(test)]
mod tests;
