//! Route files: what stands in one, and what cannot be done inside NGINX.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use foregate_config::schema::{Block, INCLUDE_KEY, LIST_KEY};
use foregate_config::{
    Decoder, Files, INCLUDE, Item, Modules, Problem, Problems, Tree, Upstreams, lists, read,
};
use foregate_module::settings::{UpstreamId, Wrong};
use foregate_module::{Pipeline, Plan, Steps, Weight};
use foregate_modules::expressions::Compiler;

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

/// Keys whose steps fetch only from an upstream that the key names, which is refused where it stands. Steps of others may
/// fetch from the site itself, of which nothing in the file tells.
const FETCH_BY_NAME: &[&str] = &["error-pages", "forward-auth", "jwt"];

/// All route files of one configuration of NGINX.
pub(crate) struct Cycle {
    pipeline: Arc<Pipeline>,
    routes: HashMap<(PathBuf, Vec<String>), Rc<Route>>,
}

/// A route file, ready to run.
pub(crate) struct Route {
    pub pipeline: Arc<Pipeline>,
    pub plan: Plan,
    /// The log files that steps write, by number.
    pub logs: Vec<LogFile>,
    /// Steps that run only when the request has them switched on.
    pub off: Steps,
}

impl Cycle {
    pub(crate) fn new(pipeline: Arc<Pipeline>) -> Self {
        Self { pipeline, routes: HashMap::new() }
    }

    /// The route of a file, which is read once; the steps of the keys in `off` have to be switched on.
    ///
    /// # Errors
    ///
    /// What is wrong with it, line by line.
    pub(crate) fn route(
        &mut self,
        path: &Path,
        off: Vec<String>,
        open_log: &mut dyn FnMut(&Path) -> Option<LogFile>,
    ) -> Result<Rc<Route>, String> {
        let key = (path.to_owned(), off);
        if let Some(route) = self.routes.get(&key) {
            return Ok(Rc::clone(route));
        }
        let pipeline = &self.pipeline;
        let (plan, logs) = read(path, |tree, problems| decode(tree, pipeline, problems))
            .map_err(|refused| refused.plain())?
            .ok_or("nothing was read")?;
        let off = switched_off(pipeline, &plan, &key.1)?;
        let open = |log: &PathBuf| open_log(log).ok_or(format!("cannot open {}", log.display()));
        let logs = logs.iter().map(open).collect::<Result<_, _>>()?;
        let route = Rc::new(Route { pipeline: Arc::clone(pipeline), plan, logs, off });
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

/// There are none: `proxy_pass` chooses.
struct NoUpstreams;

impl Upstreams for NoUpstreams {
    fn find(&self, _: &str) -> Result<UpstreamId, Wrong> {
        Err(Wrong::new("inside NGINX no upstream of Foregate can be chosen or asked")
            .help("`proxy_pass` says who answers; what needs another upstream comes with the move to foregate itself"))
    }
}

/// The plan of a route file, and the log files that its steps write.
fn decode(tree: &Tree, pipeline: &Arc<Pipeline>, problems: &mut Problems) -> Option<(Plan, Vec<PathBuf>)> {
    let keys = pipeline.keys().into_iter().map(|(key, _)| key).collect();
    let mut decoder = Decoder::new(problems, keys);
    let (of_nginx, items): (Vec<_>, Vec<_>) =
        tree.roots().into_iter().partition(|item| help_of_nginx(*item).is_some());
    for item in of_nginx {
        let message = format!("`{}` does not stand in a route file of NGINX", item.node.name());
        let problem = Problem::new(Some(item.place()), message);
        decoder.push(problem.help(help_of_nginx(item).unwrap_or_default()));
    }
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
    let mut modules = Modules::new(tree, pipeline, &NoUpstreams, expressions, files);
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

/// Refuses keys whose steps need what is not done inside NGINX.
fn refuse_steps(decoder: &mut Decoder<'_>, pipeline: &Pipeline, plan: &Plan, items: &[Item<'_>]) {
    let mut refused: Vec<&str> = Vec::new();
    for planned in plan.steps() {
        let Some(entry) = pipeline.entries().get(usize::from(planned.step)) else { continue };
        let (decl, Some(key)) = (entry.decl(), entry.key()) else { continue };
        if refused.contains(&key.name) {
            continue;
        }
        let why = if matches!(decl.weight, Weight::Heavy(_)) {
            Some(("its work would hold up a worker of NGINX, which has no threads for it", None))
        } else if decl.outputs.iter().any(|slot| slot.name == "request body limit") {
            Some(("NGINX limits the bodies of requests itself", Some("write `client_max_body_size`")))
        } else if decl.asks
            || (decl.outputs.iter().any(|slot| slot.answer.is_some()) && !FETCH_BY_NAME.contains(&key.name))
        {
            Some(("it asks for other pages, which is not done there", None))
        } else {
            None
        };
        let Some((why, help)) = why else { continue };
        refused.push(key.name);
        let place = items.iter().find(|item| item.node.name() == key.name).map(|item| item.place());
        let problem = Problem::new(place, format!("`{}` cannot run inside NGINX: {why}", key.name));
        decoder.push(match help {
            Some(help) => problem.help(help),
            None => problem.help("it comes with the move to foregate itself"),
        });
    }
}
