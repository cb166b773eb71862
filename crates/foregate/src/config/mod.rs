//! The configuration: files in KDL or JSON, read into a tree, checked by one table of keys, and turned into
//! [`Settings`]. Texts from the file go no further than this folder.

mod decode;
mod document;
mod format;
mod glob;
mod json;
mod kdl;
mod load;
#[cfg(test)]
mod module_tests;
mod problem;
mod scan;
pub mod schema;
#[cfg(test)]
mod schema_tests;
mod single;
mod string;
#[cfg(test)]
mod tests;
mod value;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foregate_module::Pipeline;
use foregate_proxy::settings::Settings;

pub use self::format::format;
use self::load::Tree;
use self::problem::Problems;
pub(crate) use self::problem::nearest as nearest_name;
pub use self::problem::{Refused, Shown};
pub use self::single::{SingleError, single};

/// Where the configuration is looked for when no file is named, in this order.
pub const DEFAULT_FILES: [&str; 2] = ["foregate.kdl", "/etc/foregate/foregate.kdl"];

/// The configuration that is used when no file is named: the first that is there.
pub fn default_file() -> PathBuf {
    let found = DEFAULT_FILES.iter().map(Path::new).find(|path| path.exists());
    found.unwrap_or(Path::new(DEFAULT_FILES[0])).into()
}

/// Reads and checks a configuration file (JSON when its name ends with `.json`, else KDL) and all that it
/// includes. The keys of the pipeline's modules may stand in it beside our own.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn load(path: &Path, pipeline: &Arc<Pipeline>) -> Result<Settings, Box<Refused>> {
    let mut problems = Problems::default();
    let tree = Tree::read(path, &mut problems);
    finish(tree, pipeline, problems)
}

/// The same for a text that could stand in the file `path`.
///
/// # Errors
///
/// As for [`load()`].
pub fn load_text(path: &Path, text: String, pipeline: &Arc<Pipeline>) -> Result<Settings, Box<Refused>> {
    let mut problems = Problems::default();
    let tree = Tree::read_text(path, text, &mut problems);
    finish(tree, pipeline, problems)
}

/// What a file with mistakes in its syntax says is not looked at: most of it would be said twice.
fn finish(tree: Tree, pipeline: &Arc<Pipeline>, mut problems: Problems) -> Result<Settings, Box<Refused>> {
    if problems.is_empty() {
        let settings = decode::decode(&tree, pipeline, &mut problems);
        if problems.is_empty() {
            return Ok(settings);
        }
    }
    Err(Box::new(Refused::new(tree, problems)))
}
