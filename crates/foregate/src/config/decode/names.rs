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
    /// For each upstream, by its index, true if anything refers to it.
    pub(super) used: Vec<Cell<bool>>,
    /// The upstreams that a `retry` asks instead of the first: the index of the first one, the name of the other, and
    /// the place of that name.
    pub(super) elsewhere: Vec<(usize, Arc<str>, Place)>,
    /// The same as a graph: pairs of indexes, from an upstream to the one that is asked instead.
    pub(super) ways: Vec<(usize, usize)>,
    /// Set if a file is missing that may define more upstreams.
    pub(super) incomplete: bool,
}

impl UpstreamNames {
    /// Warns about upstreams to which nothing refers.
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
        // The missing file may define this name. The configuration is refused anyway, so no further error is needed.
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
