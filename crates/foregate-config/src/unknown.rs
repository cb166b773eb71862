//! Advice for names that are not known in their block.

use crate::block::Decoder;
use crate::elsewhere::{self, Keys};
use crate::foreign::{self, Instead};
use crate::load::Item;
use crate::problem::Problem;
use crate::schema::{Block, GENERIC, Key};
use foregate_rules::nearest;

/// Each message may list up to this many names of keys. A longer list is only shown once.
const FEW: usize = 12;

/// The block around a name.
#[derive(Clone, Copy)]
struct Around<'t> {
    /// The name of the node that has the block. Empty at the top of the file.
    name: &'t str,
    /// Set if the block belongs to a module, or lies within such a block.
    in_module: bool,
}

impl Decoder<'_> {
    /// Reports an unknown node. Returns the number of the key that was probably meant. With `open`, keys of modules are
    /// allowed here.
    pub(crate) fn unknown(
        &mut self,
        item: Item<'_>,
        block: &'static Block,
        of: Option<Item<'_>>,
        open: bool,
    ) -> Option<usize> {
        let name = item.node.name();
        let in_module = !open && elsewhere::module_of(block, &self.modules).is_some();
        let around = Around { name: of.map_or("", |item| item.node.name()), in_module };
        let modules: &[_] = if open { &self.modules } else { &[] };
        let known: Vec<_> = block.keys.iter().chain(modules.iter().copied()).map(|key| key.name).collect();
        let keys = Keys { root: self.root, modules: &self.modules };
        let place = elsewhere::of(name, (block, around.name, open), keys);
        let instead = self.instead_of(item, around, &known, place.is_some());
        let property = of.and_then(|of| self.as_property(block, of, item));
        if place.is_none() && block.later.iter().any(|later| foreign::is_spelling_of(later, name))
            || property.is_none() && matches!(instead, Some(Instead::Missing(_)))
        {
            let problem = Problem::new(Some(item.place()), format!("`{name}` is not in this version"));
            let help = property.or_else(|| Some(instead?.sentence(true)));
            self.push(Problem { help, ..problem });
            return None;
        }
        let help = property.or_else(|| Some(instead?.sentence(false)));
        let near = if help.is_some() { None } else { near(name, &known, place.is_some()) };
        let help = help
            .or_else(|| {
                let near = format!("did you mean `{}`?", near?);
                // If keys of modules are allowed here, a typing error and a wrong place are both likely.
                Some(match place.as_ref().filter(|_| open) {
                    Some(place) => format!("{near} As `{name}`, {place}"),
                    None => near,
                })
            })
            .or_else(|| {
                // If keys of modules are allowed here, some key begins with the name by chance.
                let by_chance = open && place.is_some();
                if by_chance { None } else { elsewhere::longer(name, known.iter().copied()) }
            })
            .or(place)
            .or_else(|| elsewhere::of_spelling(name, keys))
            .or_else(|| elsewhere::of_property(name, keys))
            .unwrap_or_else(|| self.list(&known));
        let number = block.keys.iter().position(|key| Some(key.name) == near);
        let where_to = of.map_or(String::new(), |item| format!(" in `{}`", item.node.name()));
        let problem = Problem::new(Some(item.place()), format!("`{name}` is not known{where_to}"));
        self.push(problem.help(help));
        number
    }

    /// The advice for a word of another proxy. `is_key` is true if the word is a key of another block here.
    fn instead_of(
        &self,
        item: Item<'_>,
        around: Around<'_>,
        known: &[&'static str],
        is_key: bool,
    ) -> Option<Instead> {
        let name = item.node.name();
        let within = around.name;
        if let Some(instead) = foreign::within(within, name) {
            return Some(instead);
        }
        let is_plural = |known: &str| is_plural(name, known) || is_plural(known, name);
        if known.iter().any(|known| foreign::is_spelling_of(known, name) || is_plural(known)) {
            return None;
        }
        // A rule accepts keys of many modules; any other module has only keys of its own.
        let may_write = !around.in_module || within == "rule";
        let has_block = item.node.children().next().is_some();
        let is_ours = self.root.keys.iter().any(|key| key.name == name);
        let of_nginx = foreign::of_nginx(name, within, has_block).filter(|_| may_write && !is_ours);
        of_nginx.or_else(|| {
            // If one of our keys in another block has this name, the advice is about that key, and not about the word of
            // another proxy.
            let instead = foreign::of_others(name, within).filter(|_| !is_key && !is_ours)?;
            let is_near = || near(name, known, false).is_some();
            (!around.in_module || !is_near() && !matches!(instead, Instead::Write(_))).then_some(instead)
        })
    }

    /// The replacement for an unknown property of a key, if there is one.
    pub(crate) fn instead_of_prop(
        &self,
        key: &Key,
        name: &str,
        usage: &impl Fn() -> String,
    ) -> Option<String> {
        let has_key = key.block.is_some_and(|block| block.keys.iter().any(|key| key.name == name));
        if has_key {
            return Some(format!("it belongs in the block: `{} {{ {name} ... }}`", key.name));
        }
        if let Some(instead) = foreign::within(key.name, name) {
            return Some(instead.sentence(false));
        }
        // Keys of modules that may occur several times have no `when`: all nodes of such a key are combined, whatever
        // the request.
        let of_module = self.modules.iter().any(|module| module.name == key.name);
        if of_module {
            let is_generic = GENERIC.iter().any(|prop| prop.name == name) && name == "when";
            return is_generic
                .then(|| "a condition belongs in a rule: `rule \"EXPRESSION\" { ... }`".to_owned());
        }
        // The advice is about keys. If this key has values or properties, its usage says more about them.
        let is_bare = key.args.0 == 0 && key.props.is_empty();
        let words =
            || foreign::of_nginx(name, key.name, false).or_else(|| foreign::of_others(name, key.name));
        let keys = Keys { root: self.root, modules: &self.modules };
        let instead = if is_bare { words() } else { None };
        instead.map(|instead| instead.sentence(false)).or_else(|| {
            let place = elsewhere::of(name, (self.root, "", true), keys)
                .or_else(|| elsewhere::of_property(name, keys))?;
            Some(if is_bare { place } else { format!("{place}; here, {}", usage()) })
        })
    }

    /// Lists the names that are known in a block, unless an earlier message had a long list already.
    fn list(&mut self, known: &[&'static str]) -> String {
        if self.listed && known.len() > FEW {
            return "`foregate check --show-defaults` prints all keys".to_owned();
        }
        self.listed |= known.len() > FEW;
        let names: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
        format!("known here: {}", names.join(", "))
    }
}

/// The known name that was probably meant. If the name is a key of another block, only the plural or singular of
/// the name is accepted.
fn near(name: &str, known: &[&'static str], is_key: bool) -> Option<&'static str> {
    let spelling = known.iter().copied().find(|known| foreign::is_spelling_of(known, name));
    spelling.or_else(|| {
        let near = nearest(name, known.iter().copied())?;
        (!is_key || is_plural(name, near) || is_plural(near, name)).then_some(near)
    })
}

/// Returns true if `name` is `of` with an `s` at its end, such as `rules` and `rule`.
fn is_plural(name: &str, of: &str) -> bool {
    name.strip_suffix('s') == Some(of)
}
