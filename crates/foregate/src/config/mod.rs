//! The configuration: files in KDL or JSON, read into a tree, checked by one table of keys, and turned into
//! [`Settings`]. All text is parsed here; the rest of the program gets typed values.

pub mod blocks;
mod decode;
mod domains;
#[cfg(test)]
mod module_tests;
pub mod schema;
#[cfg(test)]
mod schema_tests;
mod single;

use std::io::Read as _;
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

/// The folder for certificates if the configuration names none.
pub fn default_storage() -> PathBuf {
    decode::default_storage()
}

/// The paths at which the configuration is searched if no file is named, in this order.
pub const DEFAULT_FILES: [&str; 2] = ["foregate.kdl", "/etc/foregate/foregate.kdl"];

/// The configuration file that is used if none is named: the first of [`DEFAULT_FILES`] that exists.
pub fn default_file() -> PathBuf {
    let found = DEFAULT_FILES.iter().map(Path::new).find(|path| path.exists());
    found.unwrap_or(Path::new(DEFAULT_FILES[0])).into()
}

/// Reads and checks a configuration file (JSON if its name ends with `.json`, else KDL) and all files that it includes.
/// Besides Foregate's own keys, it may have the keys of the pipeline's modules. The files with certificates, keys and
/// authorities are read. Logs and the admin socket are checked: it must be possible to make them.
///
/// # Errors
///
/// All errors in the configuration.
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

/// The errors and warnings of a file and of the files that it includes. The texts in `unsaved` replace the files'
/// content.
pub fn look(path: &Path, unsaved: Unsaved, pipeline: &Arc<Pipeline>) -> Findings {
    foregate_config::look(path, unsaved, |tree, problems| decode::decode(tree, pipeline, true, problems))
}

/// Like [`load()`]; also returns the texts of the configuration's files, for [`load_kept()`].
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

/// Reads kept texts again, with the present content of the files to which they refer, such as lists and pages. TLS
/// files are not read, because the code that uses them watches them.
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

/// The text of a configuration file, which may also be a pipe.
///
/// # Errors
///
/// The file cannot be read, or no process writes to the pipe.
pub fn read_to_string(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    foregate_config::open_first(path)?.read_to_string(&mut text)?;
    Ok(text)
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

/// Like [`load()`], for a text that could be the content of the file `path`. TLS files must exist, but are not read.
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
