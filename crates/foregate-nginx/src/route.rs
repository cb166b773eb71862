//! Route files: what stands in one, and what cannot be done inside NGINX.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use foregate_config::schema::{Block, INCLUDE_KEY, LIST_KEY};
use foregate_config::{
    Decoder, Files, INCLUDE, Item, Modules, Problem, Problems, Tree, Upstreams, lists, nearest, read,
};
use foregate_module::settings::{UpstreamId, Wrong};
use foregate_module::{Pipeline, Plan, Steps, Weight};
use foregate_modules::expressions::Compiler;

use crate::fetch::Answers;
use crate::ffi::LogFile;

/// What stands in a route file beside the keys of modules.
static ROOT: Block = Block { keys: &[LIST_KEY, INCLUDE_KEY], later: &[] };

/// Keys of a Foregate configuration that NGINX has directives for.
const OF_NGINX: &[(&str, &str)] = &[
    ("proxy", "`proxy_pass` in the location says who answers"),
    ("respond", "`return` in the location says what answers"),
    ("body-limit", "write `client_max_body_size` in the location"),
    ("allow-connect", "NGINX does not know CONNECT"),
    ("route", "a route file holds what would stand in a route; the location is the route"),
    ("site", "a route file holds what would stand in a route; the server is the site"),
    ("upstream", "upstreams are NGINX's own"),
    ("listen", "listeners are NGINX's own"),
    ("workers", "write `worker_processes`"),
    ("metrics", "the variables `$foregate_events` and `$foregate_notes` tell the access log what happened"),
    ("access-log", "write `access_log`"),
];

/// Parts of keys that cannot be done inside NGINX, although the rest of the key can.
const REFUSED_PARTS: &[(&str, &str, &str)] =
    &[("decompress", "requests", "bodies of requests are not filtered inside NGINX")];

/// All route files of one configuration of NGINX.
pub(crate) struct Cycle {
    pipeline: Arc<Pipeline>,
    routes: HashMap<Named, Rc<Route>>,
    /// The names of upstreams, by number.
    upstreams: Vec<String>,
    answers: Answers,
}

/// What makes a route: the file, the keys that have to be switched on, and the names of upstreams that it may use.
type Named = (PathBuf, Vec<String>, Vec<String>);

/// A route file, ready to run.
pub(crate) struct Route {
    pub pipeline: Arc<Pipeline>,
    pub plan: Plan,
    /// The log files that steps write, by number.
    pub logs: Vec<LogFile>,
    /// Steps that run only when the request has them switched on.
    pub off: Steps,
    /// The numbers of the upstreams that it asks.
    pub asks: Vec<u32>,
    /// What others have been told that asked the same.
    pub answers: Answers,
}

impl Cycle {
    pub(crate) fn new(pipeline: Arc<Pipeline>) -> Self {
        Self { pipeline, routes: HashMap::new(), upstreams: Vec::new(), answers: Answers::default() }
    }

    /// The number of the upstream of this name.
    pub(crate) fn upstream(&mut self, name: &str) -> u32 {
        let known = self.upstreams.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.upstreams.push(name.to_owned());
            self.upstreams.len() - 1
        }) as u32
    }

    /// The route of a file, which is read once; the steps of the keys in `off` have to be switched on. `upstreams` are the
    /// names that stand for a location where the directive stands.
    ///
    /// # Errors
    ///
    /// What is wrong with it, line by line.
    pub(crate) fn route(
        &mut self,
        path: &Path,
        off: Vec<String>,
        upstreams: Vec<String>,
        open_log: &mut dyn FnMut(&Path) -> Option<LogFile>,
    ) -> Result<Rc<Route>, String> {
        let numbers = upstreams.iter().map(|name| self.upstream(name)).collect();
        let names = Names { names: &upstreams, numbers, asked: RefCell::default() };
        let key = (path.to_owned(), off, upstreams.clone());
        if let Some(route) = self.routes.get(&key) {
            return Ok(Rc::clone(route));
        }
        let pipeline = &self.pipeline;
        let (plan, logs) = read(path, |tree, problems| decode(tree, pipeline, &names, problems))
            .map_err(|refused| refused.plain())?
            .ok_or("nothing was read")?;
        let off = switched_off(pipeline, &plan, &key.1)?;
        let open = |log: &PathBuf| open_log(log).ok_or(format!("cannot open {}", log.display()));
        let logs = logs.iter().map(open).collect::<Result<_, _>>()?;
        let (pipeline, answers) = (Arc::clone(pipeline), self.answers.clone());
        let route = Rc::new(Route { pipeline, plan, logs, off, asks: names.asked.take(), answers });
        self.routes.insert(key, Rc::clone(&route));
        Ok(route)
    }
}

/// The steps of these keys.
fn switched_off(pipeline: &Pipeline, plan: &Plan, names: &[String]) -> Result<Steps, String> {
    let mut off = Steps::NONE;
    for name in names {
        let steps = pipeline.named(name);
        if !plan.steps().iter().any(|planned| steps.contains(usize::from(planned.step))) {
            return Err(format!("off={name}: the file has no such key"));
        }
        off = off.and(steps);
    }
    Ok(off)
}

/// The upstreams that stand for a location of NGINX.
struct Names<'n> {
    names: &'n [String],
    numbers: Vec<u32>,
    /// The numbers of those that were named.
    asked: RefCell<Vec<u32>>,
}

impl Upstreams for Names<'_> {
    fn find(&self, name: &str) -> Result<UpstreamId, Wrong> {
        let known = self.names.iter().zip(&self.numbers).find(|(known, _)| *known == name);
        let Some((_, number)) = known else {
            let wrong = Wrong::new(format!("no `foregate_upstream` in nginx.conf says what `{name}` is"));
            return Err(match nearest(name, self.names.iter().map(String::as_str)) {
                Some(near) => wrong.help(format!("did you mean \"{near}\"?")),
                None => wrong.help(format!(
                    "write `foregate_upstream {name} /@{name}/;` and an internal location `/@{name}/` that proxies there"
                )),
            });
        };
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(number) {
            asked.push(*number);
        }
        Ok(UpstreamId(*number))
    }
}

/// The plan of a route file, and the log files that its steps write.
fn decode(
    tree: &Tree,
    pipeline: &Arc<Pipeline>,
    names: &Names<'_>,
    problems: &mut Problems,
) -> Option<(Plan, Vec<PathBuf>)> {
    let keys = pipeline.keys().into_iter().map(|(key, _)| key).collect();
    let mut decoder = Decoder::new(problems, keys);
    let (of_nginx, items): (Vec<_>, Vec<_>) =
        tree.roots().into_iter().partition(|item| help_of_nginx(*item).is_some());
    for item in of_nginx {
        let message = format!("`{}` does not stand in a route file of NGINX", item.node.name());
        let problem = Problem::new(Some(item.place()), message);
        decoder.push(problem.help(help_of_nginx(item).unwrap_or_default()));
    }
    let items = refuse_choices(&mut decoder, items);
    let (nodes, of_modules) = decoder.open_level(items, &ROOT, None);
    let mut files = Files::default();
    let of_lists: Vec<_> =
        nodes.iter().filter(|(key, _)| key.name == LIST_KEY.name).map(|(_, item)| *item).collect();
    debug_assert!(nodes.iter().all(|(key, _)| matches!(key.name, "list" | INCLUDE)));
    let lists = lists::decode(&mut decoder, &of_lists, &mut files);
    let expressions = match Compiler::new(pipeline, lists) {
        Ok(expressions) => expressions,
        // A mistake in the program, not in the file.
        Err(error) => {
            let message = format!("the modules of this program do not fit together: {error}");
            decoder.push(Problem::new(None, message));
            return None;
        }
    };
    let places: Vec<Item<'_>> = of_modules.iter().map(|(_, item)| *item).collect();
    let mut modules = Modules::new(tree, pipeline, names, expressions, files);
    let scope = modules.scope(&mut decoder, None, of_modules);
    // NGINX is the origin, whether it asks another or not.
    let plan = modules.plan(&scope, true);
    drop(scope);
    let (_, logs) = modules.into_files();
    refuse_parts(&mut decoder, &places);
    refuse_steps(&mut decoder, pipeline, &plan, &places);
    Some((Arc::into_inner(plan)?, logs))
}

fn help_of_nginx(item: Item<'_>) -> Option<&'static str> {
    OF_NGINX.iter().find(|(name, _)| *name == item.node.name()).map(|(_, help)| *help)
}

/// Refuses keys that choose who answers; gives the others.
fn refuse_choices<'t>(decoder: &mut Decoder<'_>, items: Vec<Item<'t>>) -> Vec<Item<'t>> {
    let choice = |item: &Item<'t>| match item.node.name() {
        "canary" => {
            Some(*item).filter(|item| item.node.entries().next().is_none_or(|entry| entry.text() != "#false"))
        }
        "rule" => item.children().into_iter().find(|child| child.node.name() == "upstream"),
        _ => None,
    };
    let (choices, others): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| choice(item).is_some());
    for place in choices.iter().filter_map(choice) {
        let message =
            format!("`{}` cannot run inside NGINX: `proxy_pass` says who answers", place.node.name());
        let problem = Problem::new(Some(place.place()), message);
        decoder.push(problem.help("it comes with the move to foregate itself"));
    }
    others
}

fn refuse_parts(decoder: &mut Decoder<'_>, items: &[Item<'_>]) {
    for (key, part, why) in REFUSED_PARTS {
        for item in items.iter().filter(|item| item.node.name() == *key) {
            for child in item.children().into_iter().filter(|child| child.node.name() == *part) {
                if child
                    .node
                    .entries()
                    .next()
                    .is_none_or(|entry| entry.text() != "#false" && entry.text() != "false")
                {
                    decoder.push(Problem::new(Some(child.place()), format!("`{key} {{ {part} }}`: {why}")));
                }
            }
        }
    }
}

/// Refuses keys whose steps need threads of their own.
fn refuse_steps(decoder: &mut Decoder<'_>, pipeline: &Pipeline, plan: &Plan, items: &[Item<'_>]) {
    let mut refused: Vec<&str> = Vec::new();
    for planned in plan.steps() {
        let Some(entry) = pipeline.entries().get(usize::from(planned.step)) else { continue };
        let (decl, Some(key)) = (entry.decl(), entry.key()) else { continue };
        if refused.contains(&key.name) {
            continue;
        }
        if !matches!(decl.weight, Weight::Heavy(_)) {
            continue;
        }
        refused.push(key.name);
        let place = items.iter().find(|item| item.node.name() == key.name).map(|item| item.place());
        let message = format!(
            "`{}` cannot run inside NGINX: its work would hold up a worker, which has no threads for it",
            key.name
        );
        decoder.push(Problem::new(place, message).help("it comes with the move to foregate itself"));
    }
}
