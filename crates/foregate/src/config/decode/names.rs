//! Upstreams by name.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use foregate_config::value::Wrong;
use foregate_config::{Decoder, Place, Problem};
use foregate_module::UpstreamId;
use foregate_proxy::settings::UpstreamSettings;
use foregate_rules::nearest;

/// Upstreams by name, with the place of each.
#[derive(Default)]
pub(super) struct UpstreamNames {
    pub(super) list: Vec<Arc<UpstreamSettings>>,
    pub(super) by_name: HashMap<Arc<str>, (usize, Place), foldhash::fast::RandomState>,
    /// By index, whether anything names it.
    pub(super) used: Vec<Cell<bool>>,
    /// The upstreams that are asked instead of others: the index of the other, the name, and where that stands.
    pub(super) elsewhere: Vec<(usize, Arc<str>, Place)>,
    /// Edges from upstreams to the upstreams that are asked instead, by index.
    pub(super) ways: Vec<(usize, usize)>,
    /// Some may stand in files that are missing.
    pub(super) incomplete: bool,
}

impl UpstreamNames {
    /// Warns about upstreams that nothing names.
    pub(super) fn warn(&self, decoder: &mut Decoder<'_>) {
        for (index, place) in self.by_name.values() {
            if self.used.get(*index).is_some_and(|used| !used.get()) {
                decoder.warn(Problem::new(Some(*place), "nothing uses this upstream"));
            }
        }
    }
}

impl foregate_config::Upstreams for UpstreamNames {
    fn find(&self, name: &str) -> Result<UpstreamId, Wrong> {
        if let Some((index, _)) = self.by_name.get(name) {
            self.used.get(*index).inspect(|used| used.set(true));
            return Ok(UpstreamId(*index as u32));
        }
        // A configuration that misses a file is refused, whatever this stands for.
        if self.incomplete {
            return Ok(UpstreamId(0));
        }
        let wrong = Wrong::new("there is no upstream of this name");
        Err(match nearest(name, self.by_name.keys().map(|name| &**name)) {
            Some(near) => wrong.help(format!("did you mean \"{near}\"?")),
            None if name.contains(':') => wrong.help(
                "write `upstream \"app\" { server \"HOST:PORT\" }` at the top of the file, and its name here",
            ),
            None => wrong.help("add `upstream \"NAME\" { server \"HOST:PORT\" }`"),
        })
    }
}
