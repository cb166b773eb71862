//! The configuration: files in KDL or JSON, read into a tree, checked by one table of keys, and turned into
//! [`Settings`]. Texts from the file go no further than this folder.

pub mod blocks;
mod decode;
mod domains;
#[cfg(test)]
mod module_tests;
pub mod schema;
#[cfg(test)]
mod schema_tests;
mod single;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use foregate_config::{
    Findings, ProblemReport, RefusedConfiguration, Texts, Unsaved, Warnings, format, json_form,
};
use foregate_config::{Item, Problems, Tree};
use foregate_module::Pipeline;
use foregate_proxy::configuration::Settings;
use foregate_proxy::settings::ListenAddress;

pub use self::domains::Domains;
pub use self::single::{Single, SingleError, origin, single};

/// The folder for certificates unless the configuration names one.
pub fn default_storage() -> PathBuf {
    decode::default_storage()
}

/// Where the configuration is looked for when no file is named, in this order.
pub const DEFAULT_FILES: [&str; 2] = ["foregate.kdl", "/etc/foregate/foregate.kdl"];

/// The configuration that is used when no file is named: the first that is there.
pub fn default_file() -> PathBuf {
    let found = DEFAULT_FILES.iter().map(Path::new).find(|path| path.exists());
    found.unwrap_or(Path::new(DEFAULT_FILES[0])).into()
}

/// Reads and checks a configuration file (JSON when its name ends with `.json`, else KDL) and all that it
/// includes. The keys of the pipeline's modules may stand in it beside our own. Certificates, keys and authorities are
/// looked into, and whether logs and the admin socket can be made.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn load(path: &Path, pipeline: &Arc<Pipeline>) -> Result<Settings, Box<RefusedConfiguration>> {
    foregate_config::read(path, |tree, problems| decode::decode(tree, pipeline, true, problems))
}

/// Like [`load()`]; also returns the warnings instead of logging them.
///
/// # Errors
///
/// The errors of [`load()`].
pub fn load_and_warn(
    path: &Path,
    pipeline: &Arc<Pipeline>,
) -> Result<(Settings, Warnings), Box<RefusedConfiguration>> {
    foregate_config::read_and_warn(path, |tree, problems| decode::decode(tree, pipeline, true, problems))
}

/// The errors and warnings of a file and those that it includes, with these texts in place of their content.
pub fn look(path: &Path, unsaved: Unsaved, pipeline: &Arc<Pipeline>) -> Findings {
    foregate_config::look(path, unsaved, |tree, problems| decode::decode(tree, pipeline, true, problems))
}

/// Like [`load()`]; also returns the texts of its files, for [`load_kept()`].
///
/// # Errors
///
/// The errors of [`load()`].
pub fn load_and_keep(
    path: &Path,
    pipeline: &Arc<Pipeline>,
) -> Result<(Settings, Texts), Box<RefusedConfiguration>> {
    foregate_config::read_and_keep(path, |tree, problems| decode::decode(tree, pipeline, true, problems))
}

/// Like [`load_and_keep()`], for a text that could stand in the file `path`.
///
/// # Errors
///
/// The errors of [`load()`].
pub fn load_given(
    path: &Path,
    text: String,
    pipeline: &Arc<Pipeline>,
) -> Result<(Settings, Texts), Box<RefusedConfiguration>> {
    foregate_config::read_text_and_keep(path, text, |tree, problems| {
        decode::decode(tree, pipeline, true, problems)
    })
}

/// Reads kept texts, with the present content of the files that they refer to, such as lists and pages. TLS files
/// are not read: their users watch them.
///
/// # Errors
///
/// The errors of [`load()`].
pub fn load_kept(texts: &Texts, pipeline: &Arc<Pipeline>) -> Result<Settings, Box<RefusedConfiguration>> {
    foregate_config::read_kept(texts, |tree, problems| decode::decode(tree, pipeline, false, problems))
}

/// The folder in `acme { storage }`, regardless of errors elsewhere in the files.
///
/// # Errors
///
/// A file that cannot be read, or a syntax error, or an error in the path.
pub fn storage(path: &Path) -> Result<Option<PathBuf>, Box<RefusedConfiguration>> {
    foregate_config::find(path, "acme", decode::storage)
}

/// The file of the first `access-log`, regardless of errors elsewhere in the files.
///
/// # Errors
///
/// A file that cannot be read, or a syntax error, or an error in the target.
pub fn access_log(path: &Path) -> Result<Option<PathBuf>, Box<RefusedConfiguration>> {
    foregate_config::find(path, "access-log", decode::log_file)
}

/// The socket in `admin`, regardless of errors elsewhere in the files.
///
/// # Errors
///
/// A file that cannot be read, or a syntax error, or an error in the path.
pub fn admin(path: &Path) -> Result<Option<PathBuf>, Box<RefusedConfiguration>> {
    foregate_config::find(path, "admin", |decoder, item| decode::admin(decoder, item, false))
}

/// The place, `FILE:LINE:COLUMN`, where `listen`, `metrics`, `admin` or `dashboard` names an address, regardless of errors elsewhere in
/// the files. `None` if none does.
pub fn place_of(path: &Path, key: &str, address: &ListenAddress) -> Option<String> {
    // A pipe was read at the start.
    if !path.is_file() {
        return None;
    }
    let tree = Tree::read(path, &mut Problems::default());
    let names_it = |item: &&Item<'_>| {
        let Some(entry) = item.node.entries().next().filter(|_| item.node.name() == key) else {
            return false;
        };
        match address {
            ListenAddress::Unix(path) if key == "admin" => item.base().join(entry.text()) == *path,
            _ => decode::listen_addresses(entry.text(), item.base())
                .is_some_and(|named| named.contains(address)),
        }
    };
    tree.roots().iter().find(names_it).map(|item| item.line())
}

/// As [`load()`], for a text that could stand in the file `path`; the files of TLS must be there, and are not looked into.
///
/// # Errors
///
/// The errors of [`load()`].
pub fn load_text(
    path: &Path,
    text: String,
    pipeline: &Arc<Pipeline>,
) -> Result<Settings, Box<RefusedConfiguration>> {
    foregate_config::read_text(path, text, |tree, problems| decode::decode(tree, pipeline, false, problems))
}
