//! The keys of each block, those of modules included, for programs that work with the file: schemas and editors.

use foregate_module::Pipeline;

use super::schema::{Block, GENERIC, INCLUDE_KEY, Key, Prop, ROOT, ROUTE, SITE};

static INCLUDE: Key = INCLUDE_KEY;

/// A key that may stand in a block.
#[derive(Debug, Clone, Copy)]
pub struct KeyChoice {
    /// The key.
    pub key: &'static Key,
    /// Set if it is the key of a module: `KEY #false` turns it off.
    pub of_module: bool,
}

impl KeyChoice {
    /// The key's properties, including those that all keys of modules have.
    pub fn props(self) -> impl Iterator<Item = &'static Prop> {
        let generic = if self.of_module && !self.key.many { GENERIC } else { &[] };
        self.key.props.iter().chain(generic)
    }
}

/// The tables of keys by block.
#[derive(Debug)]
pub struct BlockKeys {
    modules: Vec<&'static Key>,
}

impl BlockKeys {
    /// The tables with the keys of these modules.
    pub fn new(pipeline: &Pipeline) -> Self {
        let mut modules: Vec<&'static Key> = pipeline.keys().into_iter().map(|(key, _)| key).collect();
        modules.sort_by_key(|key| key.name);
        Self { modules }
    }

    /// All keys that may stand in a block.
    pub fn of(&self, block: &'static Block) -> Vec<KeyChoice> {
        let mut choices: Vec<KeyChoice> =
            block.keys.iter().map(|key| KeyChoice { key, of_module: false }).collect();
        if takes_modules(block) {
            choices.extend(self.modules.iter().map(|key| KeyChoice { key, of_module: true }));
        }
        if !choices.iter().any(|choice| choice.key.name == INCLUDE.name) {
            choices.push(KeyChoice { key: &INCLUDE, of_module: false });
        }
        choices
    }

    /// The key of this name in a block.
    pub fn find(&self, block: &'static Block, name: &str) -> Option<KeyChoice> {
        self.of(block).into_iter().find(|choice| choice.key.name == name)
    }

    /// The block inside these nested nodes, given from the outermost; `None` if a key is unknown or has no block.
    pub fn within<'n>(&self, path: impl IntoIterator<Item = &'n str>) -> Option<&'static Block> {
        path.into_iter().try_fold(&ROOT, |block, name| self.find(block, name)?.key.block)
    }
}

/// Returns true for the blocks in which keys of modules may stand.
fn takes_modules(block: &'static Block) -> bool {
    [&ROOT, &SITE, &ROUTE].into_iter().any(|open| std::ptr::eq(open, block))
}

/// The words for arguments in the usage of a key, without brackets; empty if the usage has alternatives.
pub fn argument_words(usage: &str) -> Vec<&str> {
    if usage.contains(" | ") {
        return Vec::new();
    }
    let is_argument = |word: &&str| !word.contains('=') && !word.contains('{');
    let words = usage.split_whitespace().take_while(is_argument);
    words.map(|word| word.trim_start_matches('[').trim_end_matches(']')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_from_usages() {
        assert_eq!(argument_words("NAME [group=NAME]"), ["NAME"]);
        assert_eq!(argument_words("[\"auto\"|\"internal\"] { ... }"), ["\"auto\"|\"internal\""]);
        assert_eq!(argument_words("STATUS... text=TEXT | file=FILE"), [""; 0]);
    }

    #[test]
    fn blocks_are_found_by_the_nodes_around_them() {
        let keys = BlockKeys::new(&crate::shipped());
        assert!(keys.within([]).is_some_and(|block| std::ptr::eq(block, &ROOT)));
        assert!(keys.within(["site", "route"]).is_some_and(|block| std::ptr::eq(block, &ROUTE)));
        assert!(keys.within(["site", "rule"]).is_some(), "the block of a module");
        assert!(keys.within(["site", "no-such-key"]).is_none());
        assert!(keys.find(&ROUTE, "rate-limit").is_some_and(|choice| choice.of_module));
        assert!(keys.find(&ROUTE, "include").is_some_and(|choice| !choice.of_module));
    }
}
