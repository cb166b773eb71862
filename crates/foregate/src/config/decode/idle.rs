//! Warnings about valid settings that have no effect at their place.

use std::collections::HashMap;

use foregate_config::{Decoder, EntryRef, Item, ModuleNodes, Place, Problem, turns_off};
use foregate_module::{Entry, Filter, Pipeline};
use foregate_modules::expressions::COUNTRY_VALUE;
use foregate_proxy::routing::PathPattern;

/// Keys that need another key or a value to have an effect, with that key or value, and its name in the warning.
const COMPANIONS: &[(&str, &str, &str)] = &[
    ("html", "html.features", "a feature, such as `html-links`"),
    ("html-email-script", "html-emails", "`html-emails`"),
];

/// Keys that answer a fixed path, with the path.
const OWN_PATHS: &[(&str, &str)] = &[
    ("security-txt", "/.well-known/security.txt"),
    ("html-email-script", foregate_html::features::emails::SCRIPT_PATH),
];

/// The keys of modules seen so far.
pub(super) struct Idle<'p> {
    pipeline: &'p Pipeline,
    /// The name and the place of each key's first node, indexed by the key's number.
    first: Vec<Option<(&'static str, Place)>>,
    /// The place of the first `access` that needs the client's country.
    asks_country: Option<Place>,
    /// The `answer` nodes that a later one in the same block replaces, with their paths.
    replaced: Vec<(Place, String)>,
    firewall: Firewall,
}

/// The use of the firewall's results in rules.
#[derive(Default)]
struct Firewall {
    /// The rules that end requests by the firewall's score.
    by_score: Vec<Place>,
    /// Set if the firewall's refusals have an effect without a score as well: a rule reads them, or a `waf` blocks.
    otherwise: bool,
}

impl Firewall {
    fn see(&mut self, item: Item<'_>) {
        let text = |name| item.node.entries().find(|entry| entry.key() == name).map(|entry| entry.text());
        match item.node.name() {
            // The value of a reference such as `${env:NAME}` is unknown here.
            "waf" => self.otherwise |= text(Some("mode")).is_some_and(|mode| mode != "detect"),
            "rule" => {
                let expression = text(None).unwrap_or_default();
                self.otherwise |= expression.contains("waf.blocked") || expression.contains("waf.rule");
                let ends = |child: &Item<'_>| matches!(child.node.name(), "block" | "respond" | "redirect");
                if expression.contains("waf.score") && item.children().iter().any(ends) {
                    self.by_score.push(item.place());
                }
            }
            _ => {}
        }
    }

    fn tell(self, decoder: &mut Decoder<'_>) {
        for place in self.by_score.into_iter().filter(|_| !self.otherwise) {
            let message = "a rule on the score alone passes requests that rules of the firewall would stop by themselves";
            decoder.warn(Problem::new(Some(place), message).help(
                "bodies that cannot be read, and requests over their budget, add nothing to it: \
                 write `waf.score ge NUMBER or (waf.blocked and not waf.rule in {949110 949111})`, or `waf mode=\"block\"`",
            ));
        }
    }
}

impl<'p> Idle<'p> {
    pub(super) fn new(pipeline: &'p Pipeline) -> Self {
        let first = pipeline.keys().iter().map(|_| None).collect();
        let (replaced, firewall) = (Vec::new(), Firewall::default());
        Self { pipeline, first, asks_country: None, replaced, firewall }
    }

    /// Records the modules' keys of one block.
    pub(super) fn see(&mut self, nodes: &ModuleNodes<'_>) {
        let mut answers = HashMap::new();
        for (number, item) in nodes {
            if turns_off(*item) {
                continue;
            }
            if item.node.name() == "answer"
                && let Some(path) = path_of(*item)
                && let Some(before) = answers.insert(path, item.place())
            {
                self.replaced.push((before, path.to_owned()));
            }
            if let Some(first @ None) = self.first.get_mut(*number) {
                *first = self.pipeline.keys().get(*number).map(|(key, _)| (key.name, item.place()));
            }
            self.firewall.see(*item);
            if self.asks_country.is_none() && is_of_country(*item) {
                self.asks_country = Some(item.place());
            }
        }
    }

    /// Returns true if the configuration uses a key with this name, or a key with steps that write a value with this
    /// name.
    fn has(&self, name: &str) -> bool {
        let writes = |key: &str| {
            let steps = self.pipeline.named(key);
            let mut decls = self.pipeline.steps().enumerate().filter(|(number, _)| steps.contains(*number));
            decls.any(|(_, decl)| decl.outputs.iter().any(|output| output.is_kept() && output.name == name))
        };
        self.first.iter().flatten().any(|(key, _)| *key == name || writes(key))
    }

    /// The first key with steps that write a value.
    fn writer(&self, value: &str) -> Option<&'static str> {
        let writes =
            |entry: &&Entry| entry.decl().outputs.iter().any(|slot| slot.is_kept() && slot.name == value);
        self.pipeline.entries().iter().filter(writes).find_map(|entry| entry.key().map(|key| key.name))
    }

    /// Warns about keys without the keys that they need, and about values that are read where no step writes them.
    pub(super) fn tell(self, decoder: &mut Decoder<'_>, unwritten: Vec<(Place, &str)>) {
        for (key, place) in self.first.iter().flatten() {
            let wants = COMPANIONS.iter().find(|(name, _, _)| name == key);
            if let Some((_, other, shown)) = wants
                && !self.has(other)
            {
                let message =
                    format!("`{key}` has no effect without {shown}, and the configuration has none");
                decoder.warn(Problem::new(Some(*place), message));
            }
        }
        for (place, path) in &self.replaced {
            let message = format!("another `answer` to `{path}` follows in this block, which holds");
            decoder.warn(Problem::new(Some(*place), message));
        }
        let country = self.asks_country.filter(|_| !self.has("geoip")).map(|place| (place, COUNTRY_VALUE));
        for (place, value) in country.into_iter().chain(unwritten) {
            decoder.warn(if value == COUNTRY_VALUE {
                let message = "no client's country is known, as no `geoip` holds here";
                let help = "a country that is denied is let in then, and one that is allowed is not: add `geoip database=FILE`";
                Problem::new(Some(place), message).help(help)
            } else {
                let key = self.writer(value).unwrap_or(value);
                let message = format!("this reads `{}`, which `{key}` finds out, and no `{key}` holds here", value.replace('-', "_"));
                Problem::new(Some(place), message)
            });
        }
        if self.has("waf") {
            self.firewall.tell(decoder);
        }
    }

    /// Warns about keys in a route without an upstream, if their steps run only with an upstream.
    pub(super) fn without_upstream(&self, decoder: &mut Decoder<'_>, nodes: &[(usize, Item<'_>)]) {
        for (_, item) in nodes.iter().filter(|(_, item)| !turns_off(*item)) {
            let steps = self.pipeline.named(item.node.name());
            let mut decls = self.pipeline.steps().enumerate().filter(|(number, _)| steps.contains(*number));
            if decls.all(|(_, decl)| decl.filters.contains(&Filter::Proxied)) {
                let message = format!("`{}` does nothing in a route that answers itself", item.node.name());
                decoder.warn(Problem::new(Some(item.place()), message));
            }
        }
    }
}

/// Returns true if a rule of `access` needs the client's country.
fn is_of_country(item: Item<'_>) -> bool {
    let names = |entry: EntryRef<'_>| entry.text().starts_with("country:");
    item.children().iter().any(|child| child.node.entries().any(names))
}

/// Warns about keys that answer a path which none of these patterns matches: no request reaches them.
pub(super) fn paths(
    decoder: &mut Decoder<'_>,
    nodes: &[(usize, Item<'_>)],
    patterns: &[&PathPattern],
    of: &str,
) {
    for (_, item) in nodes.iter().filter(|(_, item)| !turns_off(*item)) {
        let Some(path) = path_of(*item) else { continue };
        if !patterns.iter().any(|pattern| pattern.meets(path)) {
            let message = format!("`{}` is never asked: {of} `{path}`", item.node.name());
            let problem = Problem::new(Some(item.place()), message);
            decoder.warn(problem.help("modules act within routes; add a route for this path"));
        }
    }
}

/// The keys that refuse clients.
const GUARDS: [&str; 4] = ["access", "basic-auth", "forward-auth", "jwt"];

/// Warns about routes with `*`, which matches one segment here, but everything in other servers. There are two cases:
/// - the route has a guard, and another route without a guard matches deeper paths;
/// - no route but `/*` could match `/a/b`.
pub(super) fn open_below(decoder: &mut Decoder<'_>, patterns: &[&PathPattern], routes: &[Item<'_>]) {
    let guards = |route: &Item<'_>| {
        route.children().iter().any(|child| GUARDS.contains(&child.node.name()) && !turns_off(*child))
    };
    for (pattern, route) in patterns.iter().zip(routes) {
        if &**pattern.text() == "/*" && !patterns.iter().any(|pattern| pattern.meets("/a/b")) {
            let message = "`*` is one segment: `/` and `/a/b` are not taken".to_owned();
            decoder.warn(Problem::new(Some(route.place()), message).help("write `/**` for all paths"));
        }
        let above = pattern.text().strip_suffix("/*").filter(|above| !above.contains('*'));
        let Some(above) = above.filter(|_| guards(route)) else { continue };
        let below = format!("{above}/a/b");
        // Routes with wildcards are tried in the order of the file.
        let takes = patterns.iter().zip(routes).find(|(pattern, _)| pattern.meets(&below));
        if takes.is_some_and(|(_, route)| !guards(route)) {
            let message =
                format!("`*` is one segment: another route serves `{below}`, without the guards of this one");
            decoder.warn(Problem::new(Some(route.place()), message).help(format!("write `{above}/**`")));
        }
    }
}

/// The path or pattern that a key answers; `None` if the key answers no path of its own, or a path that is unknown
/// here.
fn path_of<'t>(item: Item<'t>) -> Option<&'t str> {
    let name = item.node.name();
    if let Some((_, path)) = OWN_PATHS.iter().find(|(key, _)| *key == name) {
        return Some(path);
    }
    if !matches!(name, "answer" | "redirect") {
        return None;
    }
    let text = item.node.entries().find(|entry| entry.key().is_none())?.text();
    // The value of a reference such as `${env:NAME}` is unknown here.
    let path = text.find('/').and_then(|at| text.get(at..))?;
    (!text.contains("${")).then_some(path)
}
