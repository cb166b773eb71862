//! The keys of modules. Sites and routes inherit them from the blocks around; equal nodes are read once, and
//! routes with equal settings share a plan.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use foregate_module::settings::{self, Argument, Context, Node, UpstreamId, Wrong};
use foregate_module::{
    ChooseUpstream, Condition, Configured, Expression, Output as _, PhaseId, Pipeline, Plan, PlanBuilder,
    PlannedStep, Slot,
};
use foregate_modules::expressions::{COUNTRY_VALUE, Compiler, VARIABLES};
use foregate_rules::{Word, words};

use super::block::{Decoder, ModuleNodes, turns_off};
use super::context::{Reading, host_place};
use super::files::Files;
use crate::load::{Item, Tree};
use crate::problem::{Place, Problem};

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The upstreams that modules may name.
pub trait Upstreams {
    /// The upstream of this name.
    ///
    /// # Errors
    ///
    /// There is none, or the host has no upstreams.
    fn find(&self, name: &str) -> Result<UpstreamId, Wrong>;

    /// Like [`find`](Self::find), for a key with steps that choose the upstream of a request. A host may require more
    /// of such an upstream. By default, it does not.
    ///
    /// # Errors
    ///
    /// The errors of [`find`](Self::find), or the host cannot follow such a choice.
    fn choose(&self, name: &str) -> Result<UpstreamId, Wrong> {
        self.find(name)
    }
}

/// The modules of a configuration.
pub struct Modules<'t> {
    tree: &'t Tree,
    pipeline: &'t Pipeline,
    upstreams: &'t dyn Upstreams,
    expressions: Compiler,
    files: Files,
    /// The log files that settings name, each with the first place.
    logs: Vec<(PathBuf, Place)>,
    keys: Vec<ModuleKey>,
    /// The index in `settings` for the nodes of a key, by their content.
    known: Map<KeyNodes, u32>,
    settings: Vec<Configured>,
    /// For settings, by their index: a digest of what is written, if bodies depend on it; otherwise 0.
    versions: Vec<u32>,
    /// For settings, by their index: the place of the first node.
    places: Vec<Option<Place>>,
    /// Problems of combinations of settings that cannot work.
    impossible: Vec<Problem>,
    /// The plans, by the settings of all keys and by whether an upstream is asked.
    plans: Map<(Vec<u32>, bool), Arc<Plan>>,
    /// For settings, by their index: the values that their expressions read. With each value comes the place of the
    /// node that reads the value.
    reads: Map<u32, Vec<(u16, Place)>>,
    /// For a node and a value that the node reads: the place of the node, and true if a step writes the value on some
    /// route with this node. The key has the node's file and offset, and the name of the value. A node in an outer
    /// block belongs to all routes within that block.
    written: BTreeMap<(u32, u32, &'static str), (Place, bool)>,
}

/// A key of a module, with properties of its steps.
struct ModuleKey {
    key: &'static settings::Key,
    /// The number of the step that reads the settings of the key.
    step: usize,
    /// The first phase in which a step of the key runs.
    phase: PhaseId,
    /// Set if a step of the key chooses an upstream.
    chooses: bool,
    /// Set if a step of the key may change bodies of responses.
    changes: bool,
}

/// All nodes of a key that apply at one place, the outermost first.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct KeyNodes {
    key: usize,
    nodes: Vec<Node>,
    /// For each node, the folder from which its paths start.
    folders: Vec<u32>,
    when: Option<Argument>,
    dry_run: bool,
}

/// The keys of modules at one place of the file: at its top, in a site, or in a route.
#[derive(Clone)]
pub struct Scope(Rc<ModuleMistakes>);

#[derive(Default)]
struct ModuleMistakes {
    /// The keys with their settings, in the order of their numbers.
    entries: Vec<ScopeEntry>,
    /// The plan for a route that asks no upstream, and the plan for a route that does.
    plans: [OnceCell<Arc<Plan>>; 2],
}

/// A key that has nodes in this scope.
#[derive(Clone)]
struct ScopeEntry {
    key: usize,
    /// The nodes of this scope and of the scopes around it, for a key that may occur several times.
    said: Option<Rc<KeyNodes>>,
    /// The index in [`Modules::settings`]. `None` after an error.
    settings: Option<u32>,
}

impl<'t> Modules<'t> {
    /// Creates the state for one tree. `expressions` knows the lists of the tree, and `files` holds the files that
    /// were read for these lists.
    pub fn new(
        tree: &'t Tree,
        pipeline: &'t Pipeline,
        upstreams: &'t dyn Upstreams,
        expressions: Compiler,
        files: Files,
    ) -> Self {
        let keys = pipeline.keys().into_iter().map(|(key, step)| {
            let steps = pipeline.named(key.name);
            let decls = || pipeline.steps().enumerate().filter(|(number, _)| steps.contains(*number));
            let phase = decls().next().map_or(PhaseId::Log, |(_, decl)| decl.phase);
            let chooses = decls().any(|(_, decl)| decl.outputs.iter().any(is_choice));
            let changes = decls().any(|(_, decl)| decl.phase == PhaseId::ResponseBody);
            ModuleKey { key, step, phase, chooses, changes }
        });
        Self {
            tree,
            pipeline,
            upstreams,
            expressions,
            files,
            logs: Vec::new(),
            keys: keys.collect(),
            known: Map::default(),
            settings: Vec::new(),
            versions: Vec::new(),
            places: Vec::new(),
            impossible: Vec::new(),
            plans: Map::default(),
            reads: Map::default(),
            written: BTreeMap::new(),
        }
    }

    /// The files that were read, and the log files that settings name, each with the first place.
    pub fn into_files(self) -> (Files, Vec<(PathBuf, Place)>) {
        (self.files, self.logs)
    }

    /// The pipeline of the modules.
    pub fn pipeline(&self) -> &'t Pipeline {
        self.pipeline
    }

    /// The lists that no expression has named.
    pub fn unused_lists(&self) -> Vec<&str> {
        self.expressions.unused_lists().collect()
    }

    /// The values that an expression reads although no step writes them on any route with the expression, each with
    /// the place of the node that reads it.
    pub fn unwritten(&self) -> Vec<(Place, &'static str)> {
        let unwritten = self.written.iter().filter(|(_, (_, written))| !written);
        unwritten.map(|((_, _, name), (place, _))| (*place, *name)).collect()
    }

    /// The name of a value in expressions. Values that belong to one field have the same name.
    fn value(&self, number: u16) -> &'static str {
        self.pipeline.values().get(usize::from(number)).map_or("", |value| field_of(value.name))
    }

    /// Compiles the arguments of a node with a key of the host as conditions of a phase, and reports errors in
    /// them.
    pub fn conditions(
        &mut self,
        decoder: &mut Decoder<'_>,
        (item, key): (Item<'_>, &'static settings::Key),
        phase: PhaseId,
    ) -> Vec<Arc<dyn Condition>> {
        self.compile(decoder, (item, key), |context, argument| context.condition(argument, phase))
    }

    /// Like [`Self::conditions`], but compiles the arguments as expressions of any type.
    pub fn expressions(
        &mut self,
        decoder: &mut Decoder<'_>,
        (item, key): (Item<'_>, &'static settings::Key),
        phase: PhaseId,
    ) -> Vec<Arc<dyn Expression>> {
        self.compile(decoder, (item, key), |context, argument| {
            let cookie = argument.text().ok().and_then(of_cookie);
            let short = cookie.map(|text| {
                let text = settings::Scalar { kind: settings::value::ScalarKind::String, text: text.into() };
                Argument::new(text, argument.place())
            });
            context.expression(short.as_ref().unwrap_or(argument), phase)
        })
    }

    /// Reads a name and compiles the expression after it, for a node with a key of the host.
    pub fn named_expression(
        &mut self,
        decoder: &mut Decoder<'_>,
        (item, key): (Item<'_>, &'static settings::Key),
        phase: PhaseId,
    ) -> Option<(Arc<str>, Arc<dyn Expression>)> {
        let mut first = true;
        let compiled = self.compile(decoder, (item, key), |context, argument| {
            if std::mem::take(&mut first) {
                return Ok((argument.text().ok().map(Arc::<str>::from), None));
            }
            Ok((None, Some(context.expression(argument, phase)?)))
        });
        let name = compiled.iter().find_map(|(name, _)| name.clone());
        name.zip(compiled.into_iter().find_map(|(_, expression)| expression))
    }

    fn compile<T>(
        &mut self,
        decoder: &mut Decoder<'_>,
        (item, key): (Item<'_>, &'static settings::Key),
        mut compile: impl FnMut(&mut Reading<'_>, &Argument) -> Result<T, settings::Problem>,
    ) -> Vec<T> {
        let Some(node) = decoder.node(item, key) else { return Vec::new() };
        let mut context = Reading {
            tree: self.tree,
            pipeline: self.pipeline,
            upstreams: self.upstreams,
            chooses: false,
            expressions: &self.expressions,
            files: &mut self.files,
            logs: &mut self.logs,
            warnings: Vec::new(),
        };
        let compiled: Vec<_> = node.args().iter().map(|argument| compile(&mut context, argument)).collect();
        context.warnings.drain(..).for_each(|warning| decoder.warn(warning));
        self.expressions.take_read();
        let tree = self.tree;
        let told = |result: Result<T, _>| {
            result.map_err(|problem| decoder.push_of_module(tree, std::slice::from_ref(&node), problem)).ok()
        };
        compiled.into_iter().filter_map(told).collect()
    }

    /// Records which of the values that settings read are written by a step of the plan.
    fn note_reads(&mut self, numbers: &[u32], plan: &Plan) {
        for (value, place) in numbers.iter().filter_map(|number| self.reads.get(number)).flatten() {
            let name = self.value(*value);
            let writes = |planned: &PlannedStep| {
                let entry = self.pipeline.entries().get(usize::from(planned.step));
                let mut outputs = entry.iter().flat_map(|entry| entry.decl().outputs);
                outputs.any(|slot| slot.is_kept() && field_of(slot.name) == name)
            };
            let key = (place.file, place.span.start, name);
            let (_, written) = self.written.entry(key).or_insert((*place, false));
            *written = *written || plan.steps().iter().any(writes);
        }
    }

    /// Records the problem of a plan in which a step takes a value that no other step emits.
    fn note_untakable(&mut self, numbers: &[u32], plan: &Plan) {
        let Some(wrong) = plan.untakable(self.pipeline) else { return };
        let is_of_step = |number: &&u32| {
            let configured = self.settings.get(**number as usize);
            configured.is_some_and(|configured| wrong.key.is_some_and(|key| key.name == configured.key))
        };
        let number = numbers.iter().find(is_of_step);
        let place = number.and_then(|number| self.places.get(*number as usize).copied().flatten());
        let problem = Problem::new(place, wrong.to_string());
        let help = "turn on the module that emits it, in a dry run if this one is, or turn this one off";
        if self.impossible.iter().all(|known| known.message != problem.message || known.place != place) {
            self.impossible.push(problem.help(help));
        }
    }

    /// Reports the problems of plans that cannot work.
    pub fn refuse_impossible(&mut self, decoder: &mut Decoder<'_>) {
        self.impossible.drain(..).for_each(|problem| decoder.push(problem));
    }

    /// The keys of `nodes`, and the keys that are inherited from `outer`.
    pub fn scope(
        &mut self,
        decoder: &mut Decoder<'_>,
        outer: Option<&Scope>,
        nodes: ModuleNodes<'_>,
    ) -> Scope {
        if let Some(outer) = outer
            && nodes.is_empty()
        {
            return outer.clone();
        }
        let mut entries = outer.map(|outer| outer.0.entries.clone()).unwrap_or_default();
        // Remove the keys that are turned off first, so that the order of nodes does not matter.
        entries.retain(|entry| !nodes.iter().any(|(key, item)| *key == entry.key && turns_off(*item)));
        let mut keys: Vec<usize> = nodes.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let items: Vec<_> = nodes
                .iter()
                .filter(|(number, item)| *number == key && !turns_off(*item))
                .map(|(_, item)| *item)
                .collect();
            if items.is_empty() {
                continue;
            }
            let at = entries.binary_search_by_key(&key, |entry| entry.key);
            let outer = at.ok().and_then(|at| entries.get(at)).cloned();
            let entry = self.entry(decoder, key, outer, &items);
            match at {
                Ok(at) => entries[at] = entry,
                Err(at) => entries.insert(at, entry),
            }
        }
        Scope(Rc::new(ModuleMistakes { entries, plans: Default::default() }))
    }

    /// Reads one key at one place. `outer` is the inherited entry of the key.
    fn entry(
        &mut self,
        decoder: &mut Decoder<'_>,
        key: usize,
        outer: Option<ScopeEntry>,
        items: &[Item<'_>],
    ) -> ScopeEntry {
        let many = self.keys[key].key.many;
        let mut said = KeyNodes { key, ..KeyNodes::default() };
        if many && let Some(outer) = outer {
            match outer.said {
                Some(outer) if outer.key == key => said = (*outer).clone(),
                // The inherited nodes of the key have an error, which has been reported.
                _ => return outer,
            }
        }
        let mut settings = None;
        if self.add(decoder, &mut said, items).is_some() {
            settings = self.decode(decoder, &said);
        }
        let said = (many && settings.is_some()).then(|| Rc::new(said));
        ScopeEntry { key, said, settings }
    }

    /// Adds the nodes `items` to those of a key. `None` after an error.
    fn add(&self, decoder: &mut Decoder<'_>, said: &mut KeyNodes, items: &[Item<'_>]) -> Option<()> {
        let key = self.keys[said.key].key;
        let mut whole = Some(());
        for item in items {
            let Some(mut node) = decoder.node(*item, key) else {
                whole = None;
                continue;
            };
            if !key.many {
                said.when = node.take_prop("when");
                if let Some(dry_run) = node.take_prop("dry-run") {
                    match dry_run.flag() {
                        Ok(dry_run) => said.dry_run = dry_run,
                        Err(problem) => {
                            let of = holding(key.name, "dry-run", &dry_run);
                            decoder.push_of_module(self.tree, &[of], problem);
                            whole = None;
                        }
                    }
                }
            }
            said.nodes.push(node);
            said.folders.push(self.tree.folder(*item));
        }
        whole
    }

    /// Reads the settings of a key, unless equal nodes were read before. The result is their index, or `None` after
    /// an error.
    fn decode(&mut self, decoder: &mut Decoder<'_>, said: &KeyNodes) -> Option<u32> {
        if let Some(known) = self.known.get(said) {
            return Some(*known);
        }
        let ModuleKey { key, step, phase, chooses, changes } = self.keys[said.key];
        let mut context = Reading {
            tree: self.tree,
            pipeline: self.pipeline,
            upstreams: self.upstreams,
            chooses,
            expressions: &self.expressions,
            files: &mut self.files,
            logs: &mut self.logs,
            warnings: Vec::new(),
        };
        // Drop the values that earlier expressions have read: they belong to other settings.
        self.expressions.take_read();
        let when = said.when.as_ref().map(|when| context.condition(when, phase)).transpose();
        let entry = &self.pipeline.entries()[step];
        // A module that panics must not end the process: a reload then keeps the old configuration.
        let settings = catch_unwind(AssertUnwindSafe(|| entry.decode(&said.nodes, &mut context)))
            .unwrap_or_else(|_| Err(panicked(&said.nodes, entry.decl().name)));
        context.warnings.drain(..).for_each(|warning| decoder.warn(warning));
        let mut problem = |nodes: &[Node], problem| decoder.push_of_module(self.tree, nodes, problem);
        let when: Option<Option<Arc<dyn Condition>>> = when
            .map_err(|wrong| {
                let of = said.when.iter().map(|when| holding(key.name, "when", when));
                problem(&of.collect::<Vec<_>>(), wrong);
            })
            .ok();
        let settings = settings.map_err(|wrong| problem(&said.nodes, wrong)).ok();
        let reads = self.expressions.take_read();
        let configured =
            Configured { key: key.name, settings: settings?, when: when?, dry_run: said.dry_run, reads };
        let number = self.settings.len() as u32;
        let place = |value: &u16| {
            let names = match self.value(*value) {
                COUNTRY_VALUE => {
                    [COUNTRY_VALUE, "ip.src.country", "ip.geoip.country"].map(str::to_owned).into()
                }
                name => vec![name.replace('-', "_")],
            };
            let node = said.nodes.iter().find(|node| mentions(node, &names)).or(said.nodes.first());
            node.map(|node| (*value, host_place(node.place())))
        };
        let reads: Vec<_> = configured.reads.iter().filter_map(place).collect();
        if !reads.is_empty() {
            self.reads.insert(number, reads);
        }
        let shapes_bodies = changes && !configured.dry_run;
        self.versions.push(if shapes_bodies { digest(&(key.name, &said.nodes, &said.when)) } else { 0 });
        self.settings.push(configured);
        self.places.push(said.nodes.first().map(|node| host_place(node.place())));
        self.known.insert(said.clone(), number);
        Some(number)
    }

    /// Compiles the condition in the property `name` of a key of the host. `None` after an error.
    pub fn condition(
        &mut self,
        decoder: &mut Decoder<'_>,
        (key, name): (&'static str, &'static str),
        condition: &Argument,
        phase: PhaseId,
    ) -> Option<Arc<dyn Condition>> {
        let mut context = Reading {
            tree: self.tree,
            pipeline: self.pipeline,
            upstreams: self.upstreams,
            chooses: false,
            expressions: &self.expressions,
            files: &mut self.files,
            logs: &mut self.logs,
            warnings: Vec::new(),
        };
        let compiled = context.condition(condition, phase);
        context.warnings.drain(..).for_each(|warning| decoder.warn(warning));
        let tell = |wrong| decoder.push_of_module(self.tree, &[holding(key, name, condition)], wrong);
        compiled.map_err(tell).ok()
    }

    /// Compiles a condition from a text that the host has made.
    ///
    /// # Errors
    ///
    /// The text does not compile, for example because it is too long.
    pub fn made_condition(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Condition>, String> {
        self.expressions.condition(text, phase).map_err(|mistake| mistake.to_string())
    }

    /// The plan of a route. `proxied` is true if the route asks an upstream.
    pub fn plan(&mut self, scope: &Scope, proxied: bool) -> Arc<Plan> {
        let known = &scope.0.plans[usize::from(proxied)];
        if let Some(plan) = known.get() {
            return Arc::clone(plan);
        }
        let numbers: Vec<u32> = scope.0.entries.iter().filter_map(|entry| entry.settings).collect();
        let key = (numbers, proxied);
        let plan = match self.plans.get(&key) {
            Some(plan) => Arc::clone(plan),
            None => {
                let mut builder = PlanBuilder::new(self.pipeline);
                for configured in key.0.iter().filter_map(|number| self.settings.get(*number as usize)) {
                    builder.configure(configured.clone());
                }
                let versions: Vec<u32> =
                    key.0.iter().filter_map(|number| self.versions.get(*number as usize).copied()).collect();
                let version =
                    if versions.iter().all(|version| *version == 0) { 0 } else { digest(&versions) };
                let plan = Arc::new(builder.version(version).build(proxied));
                self.note_reads(&key.0, &plan);
                self.note_untakable(&key.0, &plan);
                self.plans.insert(key, Arc::clone(&plan));
                plan
            }
        };
        known.get_or_init(|| plan).clone()
    }
}

/// A digest that is the same in each process of this program (FNV-1a), and never 0.
fn digest(of: &impl Hash) -> u32 {
    struct Fnv(u64);
    impl Hasher for Fnv {
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        fn finish(&self) -> u64 {
            self.0
        }
    }
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    of.hash(&mut hasher);
    let digest = hasher.finish();
    ((digest >> 32) as u32 ^ digest as u32).max(1)
}

fn panicked(nodes: &[Node], step: &str) -> settings::Problem {
    let place = nodes.first().map(Node::place).unwrap_or_default();
    settings::Problem::new(place, format!("the module panicked while it read this for its step `{step}`"))
        .help("this is a mistake of the module, whatever is written here; its own message tells where")
}

/// The name of a value in expressions: its own, or that of the map to which it belongs.
fn field_of(value: &'static str) -> &'static str {
    if VARIABLES.contains(&value) { VARIABLES[0] } else { value }
}

/// Returns true if an expression of a node contains one of these field names.
fn mentions(node: &Node, names: &[String]) -> bool {
    let is_named = |word: Word<'_>| matches!(word, Word::Name(word) if names.iter().any(|name| name == word));
    let says = |argument: &Argument| match argument.text() {
        Ok(text) => words(text).any(|(word, _)| is_named(word)),
        Err(_) => false,
    };
    node.args().iter().any(says)
        || node.props().any(|(_, argument)| says(argument))
        || node.children().iter().any(|child| mentions(child, names))
}

/// Returns true if the output of a step chooses an upstream.
fn is_choice(output: &Slot) -> bool {
    !output.is_kept() && output.name == ChooseUpstream::SLOT.name
}

/// The expression for the short form of a cookie: `http.cookie.lang`.
fn of_cookie(text: &str) -> Option<String> {
    let name = text.strip_prefix("http.cookie.")?;
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    is_name.then(|| format!("http.request.cookies[\"{name}\"][0]"))
}

/// A node with this name and one property, for messages about the property.
fn holding(name: &str, prop: &str, value: &Argument) -> Node {
    Node::new(name, settings::Place::default()).with_prop(prop, value.clone())
}
