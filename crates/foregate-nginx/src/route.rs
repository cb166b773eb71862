//! Route files: their keys, and the features that are unavailable inside NGINX.

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
use foregate_module::{FilterResponseBody, Output, Pipeline, Plan, Steps, Weight};
use foregate_modules::expressions::Compiler;

use crate::fetch::Answers;
use crate::ffi::LogFile;
use crate::heavy::Queue;

/// The keys of a route file other than those of modules.
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

/// All route files of one configuration of NGINX.
pub(crate) struct Cycle {
    pipeline: Arc<Pipeline>,
    routes: HashMap<Named, Rc<Route>>,
    /// The names of upstreams, by number.
    upstreams: Vec<String>,
    surroundings: Surroundings,
    answers: Answers,
    queue: Queue,
}

/// The surrounding configuration of route files.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    /// The names of NGINX's own blocks `upstream`, with their numbers.
    blocks: Vec<(String, u32)>,
    /// Set if the configuration uses the variable that names the chosen upstream.
    follows: bool,
    /// Set if there are threads for heavy steps.
    threads: bool,
}

/// The arguments of the directive, apart from the file.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// The keys that are off until a request switches them on.
    pub off: Vec<String>,
    /// The names that stand for a location in the server block of the directive.
    pub upstreams: Vec<String>,
    /// The upstream of requests for which none is chosen.
    pub fallback: Option<String>,
}

/// The identity of a route: the file, the keys that are off until a request switches them on, the names that stand
/// for a location, and true if there is a fallback upstream.
type Named = (PathBuf, Vec<String>, Vec<String>, bool);

/// A route file, ready to run.
pub(crate) struct Route {
    pub pipeline: Arc<Pipeline>,
    pub plan: Plan,
    /// The log files that steps write, by number.
    pub logs: Vec<LogFile>,
    /// Steps that run only if the request has switched them on.
    pub off: Steps,
    /// The numbers of the upstreams to which the route's steps send requests of their own.
    pub asks: Vec<u32>,
    /// The upstreams that the route may choose for a request, with their names.
    pub choices: Vec<(u32, String)>,
    /// Set if heavy steps run on threads.
    pub threads: bool,
    /// The heavy steps of the worker.
    pub queue: Queue,
    /// The cached answers to fetches.
    pub answers: Answers,
}

impl Route {
    /// Returns true if a step may filter the body of a response, or read its start.
    pub(crate) fn filters(&self) -> bool {
        let filter = <FilterResponseBody as Output>::SLOT.name;
        self.plan.steps().iter().any(|planned| {
            let entry = self.pipeline.entries().get(usize::from(planned.step));
            entry.is_some_and(|entry| {
                entry.holds_response() || entry.decl().outputs.iter().any(|slot| slot.name == filter)
            })
        })
    }
}

impl Cycle {
    pub(crate) fn new(pipeline: Arc<Pipeline>) -> Self {
        Self {
            pipeline,
            routes: HashMap::new(),
            upstreams: Vec::new(),
            surroundings: Surroundings::default(),
            answers: Answers::default(),
            queue: Queue::default(),
        }
    }

    /// Stores the surroundings of the route files. Called before any of them is read.
    pub(crate) fn surround(&mut self, blocks: Vec<String>, follows: bool, threads: bool) {
        let blocks = blocks.into_iter().map(|name| (name.clone(), self.upstream(&name))).collect();
        self.surroundings = Surroundings { blocks, follows, threads };
    }

    /// The number of the upstream of this name.
    pub(crate) fn upstream(&mut self, name: &str) -> u32 {
        let known = self.upstreams.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.upstreams.push(name.to_owned());
            self.upstreams.len() - 1
        }) as u32
    }

    /// The route of a file, which is read once.
    ///
    /// # Errors
    ///
    /// The errors in the file, line by line.
    pub(crate) fn route(
        &mut self,
        path: &Path,
        terms: Terms,
        open_log: &mut dyn FnMut(&Path) -> Option<LogFile>,
    ) -> Result<Rc<Route>, String> {
        let upstreams: Vec<_> =
            terms.upstreams.iter().map(|name| (name.clone(), self.upstream(name))).collect();
        let (pipeline, around) = (&self.pipeline, &self.surroundings);
        let (asked, chosen) = (RefCell::default(), RefCell::default());
        let names = Names { upstreams, around, terms: &terms, asked, chosen };
        names.check_fallback()?;
        let key = (path.to_owned(), terms.off.clone(), terms.upstreams.clone(), terms.fallback.is_some());
        if let Some(route) = self.routes.get(&key) {
            return Ok(Rc::clone(route));
        }
        let (plan, logs) = read(path, |tree, problems| decode(tree, pipeline, &names, problems))
            .map_err(|refused| refused.plain())?
            .ok_or("nothing was read")?;
        if plan.body() > BODY_MOST {
            return Err(format!(
                "{}: modules look at more than 1 MiB of a request's body, which inside NGINX is held in memory: lower \
                 `body-limit`",
                path.display()
            ));
        }
        if plan.logs_first() {
            return Err(format!(
                "{}: inside NGINX lines of logs are written when the response is over: leave out `log-sync`",
                path.display()
            ));
        }
        let off = switched_off(pipeline, &plan, &terms.off)?;
        let open = |log: &PathBuf| open_log(log).ok_or(format!("cannot open {}", log.display()));
        let route = Rc::new(Route {
            pipeline: Arc::clone(pipeline),
            plan,
            logs: logs.iter().map(open).collect::<Result<_, _>>()?,
            off,
            asks: names.asked.take(),
            choices: names.chosen.take(),
            threads: around.threads,
            queue: self.queue.clone(),
            answers: self.answers.clone(),
        });
        self.routes.insert(key, Rc::clone(&route));
        Ok(route)
    }
}

/// The most bytes of a request's body that modules may read: they are held in memory.
const BODY_MOST: usize = 1 << 20;

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

/// The upstreams that a route file may name. Steps can send their own requests to names that stand for a location. For
/// the client's request, steps can choose NGINX's own upstreams.
struct Names<'n> {
    /// The names that stand for a location, with their numbers.
    upstreams: Vec<(String, u32)>,
    around: &'n Surroundings,
    terms: &'n Terms,
    /// The numbers of the upstreams to which steps send requests.
    asked: RefCell<Vec<u32>>,
    /// The upstreams that steps may choose for the client's request.
    chosen: RefCell<Vec<(u32, String)>>,
}

impl Names<'_> {
    fn block(&self, name: &str) -> Result<u32, Wrong> {
        let blocks = &self.around.blocks;
        if let Some((_, number)) = blocks.iter().find(|(known, _)| known == name) {
            return Ok(*number);
        }
        let wrong = Wrong::new(format!("nginx.conf has no block `upstream {name}`"));
        Err(match nearest(name, blocks.iter().map(|(name, _)| name.as_str())) {
            Some(near) => wrong.help(format!("did you mean \"{near}\"?")),
            None => wrong.help(format!("write `upstream {name} {{ server ...; }}` into its block `http`")),
        })
    }

    /// Checks that the upstream in the directive exists.
    fn check_fallback(&self) -> Result<(), String> {
        let Some(name) = &self.terms.fallback else { return Ok(()) };
        let told = |wrong: Wrong| {
            let help = wrong.help.map(|help| format!(": {help}")).unwrap_or_default();
            format!("upstream={name}: {}{help}", wrong.message)
        };
        self.block(name).map(|_| ()).map_err(told)
    }
}

impl Upstreams for Names<'_> {
    fn find(&self, name: &str) -> Result<UpstreamId, Wrong> {
        let Some((_, number)) = self.upstreams.iter().find(|(known, _)| known == name) else {
            let wrong = Wrong::new(format!("no `foregate_upstream` in nginx.conf says what `{name}` is"));
            return Err(match nearest(name, self.upstreams.iter().map(|(name, _)| name.as_str())) {
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

    fn choose(&self, name: &str) -> Result<UpstreamId, Wrong> {
        let number = self.block(name)?;
        if !self.around.follows {
            return Err(Wrong::new(
                "nothing in nginx.conf asks for `$foregate_upstream`, so that no choice would count",
            )
            .help("write `proxy_pass http://$foregate_upstream;` into the location"));
        }
        if self.terms.fallback.is_none() {
            return Err(Wrong::new("the directive does not say to which upstream all other requests go")
                .help("write `foregate FILE upstream=NAME;`"));
        }
        let mut chosen = self.chosen.borrow_mut();
        if !chosen.iter().any(|(known, _)| *known == number) {
            chosen.push((number, name.to_owned()));
        }
        Ok(UpstreamId(number))
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
    let mut decoder = Decoder::new(problems, &ROOT, keys);
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
        // This is an error of the program, not of the file.
        Err(error) => {
            let message = format!("the modules of this program do not fit together: {error}");
            decoder.push(Problem::new(None, message));
            return None;
        }
    };
    let places: Vec<Item<'_>> = of_modules.iter().map(|(_, item)| *item).collect();
    let mut modules = Modules::new(tree, pipeline, names, expressions, files);
    let scope = modules.scope(&mut decoder, None, of_modules);
    // For the steps, NGINX is always the origin, whether it has an upstream or not.
    let plan = modules.plan(&scope, true);
    drop(scope);
    modules.refuse_impossible(&mut decoder);
    let (_, logs) = modules.into_files();
    if !names.around.threads {
        refuse_heavy(&mut decoder, pipeline, &plan, &places);
    }
    Some((Arc::into_inner(plan)?, logs.into_iter().map(|(path, _)| path).collect()))
}

fn help_of_nginx(item: Item<'_>) -> Option<&'static str> {
    OF_NGINX.iter().find(|(name, _)| *name == item.node.name()).map(|(_, help)| *help)
}

/// Refuses keys with heavy steps if there are no threads.
fn refuse_heavy(decoder: &mut Decoder<'_>, pipeline: &Pipeline, plan: &Plan, items: &[Item<'_>]) {
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
        let message =
            format!("`{}` needs threads: its work would hold up all requests of a worker", key.name);
        decoder.push(Problem::new(place, message).help(
            "write `thread_pool foregate threads=2;` at the top of nginx.conf, and `foregate_threads foregate;` into its \
             block `http`",
        ));
    }
}
