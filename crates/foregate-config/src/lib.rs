//! Configuration files: read in KDL or JSON into a tree, checked by tables of keys, and turned into settings of modules.
//! The host defines its own keys, such as listeners and upstreams: it supplies the tables of its
//! blocks ([`schema::Block`]) and reads the nodes that fit them ([`Decoder`]); the keys of modules are read here,
//! once for every host ([`Modules`]).
//!
//! The crate reads the files that a configuration names, and nothing else.
#![forbid(unsafe_code)]

mod block;
mod context;
mod cursor;
mod document;
mod elsewhere;
mod files;
pub mod foreign;
mod format;
mod glob;
mod json;
mod json_form;
mod kdl;
pub mod lists;
mod load;
mod modules;
mod problem;
mod references;
mod scan;
pub mod schema;
mod string;
#[cfg(test)]
mod tests;
mod unknown;
pub mod value;

use std::path::Path;

pub use self::block::{Decoder, ModuleNodes, Nodes, turns_off};
pub use self::cursor::{Cursor, CursorSpot, cursor};
pub use self::document::{EntryRef, NodeRef, ScalarKind, Siblings, Span};
pub use self::files::{Files, open};
pub use self::format::format;
pub use self::glob::expand;
pub use self::load::{INCLUDE, Item, Texts, Tree, Unsaved};
pub use self::modules::{Modules, Scope, Upstreams};
pub use self::problem::{Findings, Place, Problem, ProblemReport, Problems, RefusedConfiguration, Warnings};
pub use foregate_rules::nearest;

use self::schema::Block;

/// Reads a file (JSON when its name ends with `.json`, else KDL) and all files that it includes, and calls `decode` with
/// the tree. Errors are added to the problems that `decode` gets. `decode` is not called after a syntax error,
/// because it would report most errors a second time. It is called if files are missing, so that all errors are reported at once: then
/// [`Problems::miss_files`] is true.
///
/// # Errors
///
/// All errors in the configuration.
pub fn read<T>(
    path: &Path,
    decode: impl FnOnce(&Tree, &mut Problems) -> T,
) -> Result<T, Box<RefusedConfiguration>> {
    let mut problems = Problems::default();
    let tree = Tree::read(path, &mut problems);
    finish(tree, problems, decode).map(logged).map(|(decoded, _)| decoded)
}

/// Like [`read`]; also returns the warnings instead of logging them.
///
/// # Errors
///
/// The errors of [`read`].
pub fn read_and_warn<T>(
    path: &Path,
    decode: impl FnOnce(&Tree, &mut Problems) -> T,
) -> Result<(T, Warnings), Box<RefusedConfiguration>> {
    let mut problems = Problems::default();
    let tree = Tree::read(path, &mut problems);
    let (decoded, tree, problems) = finish(tree, problems, decode)?;
    Ok((decoded, Warnings::new(tree, problems)))
}

/// Like [`read`]; also returns the texts of all files, for [`read_kept`].
///
/// # Errors
///
/// The errors of [`read`].
pub fn read_and_keep<T>(
    path: &Path,
    decode: impl FnOnce(&Tree, &mut Problems) -> T,
) -> Result<(T, Texts), Box<RefusedConfiguration>> {
    let mut problems = Problems::default();
    let tree = Tree::read(path, &mut problems);
    let (decoded, tree) = finish(tree, problems, decode).map(logged)?;
    Ok((decoded, tree.into_texts()))
}

/// Reads texts that were kept, as if their files still held them. Files that they refer to, but for included ones, are
/// read as they are now.
///
/// # Errors
///
/// The errors of [`read`].
pub fn read_kept<T>(
    texts: &Texts,
    decode: impl FnOnce(&Tree, &mut Problems) -> T,
) -> Result<T, Box<RefusedConfiguration>> {
    let mut problems = Problems::default();
    let tree = Tree::read_kept(texts, &mut problems);
    finish(tree, problems, decode).map(logged).map(|(decoded, _)| decoded)
}

/// Looks for errors and warnings in a file and those that it includes, with these texts in place of their content.
pub fn look<T>(path: &Path, unsaved: Unsaved, decode: impl FnOnce(&Tree, &mut Problems) -> T) -> Findings {
    let mut problems = Problems::default();
    let tree = Tree::read_unsaved(path, unsaved, &mut problems);
    if problems.are_of_missing_files() {
        decode(&tree, &mut problems);
    }
    Findings::new(tree, problems)
}

/// As [`read_text`]; also returns the texts of the files, for [`read_kept`].
///
/// # Errors
///
/// The errors of [`read`].
pub fn read_text_and_keep<T>(
    path: &Path,
    text: String,
    decode: impl FnOnce(&Tree, &mut Problems) -> T,
) -> Result<(T, Texts), Box<RefusedConfiguration>> {
    let mut problems = Problems::default();
    let tree = Tree::read_text(path, text, &mut problems);
    let (decoded, tree) = finish(tree, problems, decode).map(logged)?;
    Ok((decoded, tree.into_texts()))
}

/// Like [`read`], for a text that replaces the content of the file `path`.
///
/// # Errors
///
/// The errors of [`read`].
pub fn read_text<T>(
    path: &Path,
    text: String,
    decode: impl FnOnce(&Tree, &mut Problems) -> T,
) -> Result<T, Box<RefusedConfiguration>> {
    let mut problems = Problems::default();
    let tree = Tree::read_text(path, text, &mut problems);
    finish(tree, problems, decode).map(logged).map(|(decoded, _)| decoded)
}

/// A file in its JSON form. Each `include` stays as it is.
///
/// # Errors
///
/// Errors in the syntax of the file.
pub fn json_form(path: &Path, text: String) -> Result<String, Box<RefusedConfiguration>> {
    let mut problems = Problems::default();
    let tree = Tree::read_syntax(path, text, &mut problems);
    match tree.file(0).filter(|_| problems.is_empty()) {
        Some(file) => Ok(json_form::write(file.document.roots())),
        None => Err(Box::new(RefusedConfiguration::new(tree, problems))),
    }
}

/// The result of `decode` for the first node of this name at the outermost level, regardless of other errors; `None`
/// without such a node.
///
/// # Errors
///
/// Errors in the node, or errors that prevent finding it.
pub fn find<T>(
    path: &Path,
    name: &str,
    decode: impl FnOnce(&mut Decoder<'_>, Item<'_>) -> Option<T>,
) -> Result<Option<T>, Box<RefusedConfiguration>> {
    let mut others = Problems::default();
    let tree = Tree::read(path, &mut others);
    static NO_KEYS: Block = Block { keys: &[], later: &[] };
    let found = tree.roots().into_iter().find(|item| item.node.name() == name);
    let mut problems = Problems::default();
    let value = found.and_then(|item| decode(&mut Decoder::new(&mut problems, &NO_KEYS, Vec::new()), item));
    let problems = if found.is_some() { problems } else { others };
    if problems.is_empty() { Ok(value) } else { Err(Box::new(RefusedConfiguration::new(tree, problems))) }
}

type Finished<T> = (T, Tree, Problems);

/// Writes the warnings to the log.
fn logged<T>((decoded, tree, problems): Finished<T>) -> (T, Tree) {
    problems.tell_warnings(&tree);
    (decoded, tree)
}

fn finish<T>(
    tree: Tree,
    mut problems: Problems,
    decode: impl FnOnce(&Tree, &mut Problems) -> T,
) -> Result<Finished<T>, Box<RefusedConfiguration>> {
    if problems.are_of_missing_files() {
        let decoded = decode(&tree, &mut problems);
        if problems.is_empty() {
            return Ok((decoded, tree, problems));
        }
    }
    tree.name_other_program(&mut problems);
    Err(Box::new(RefusedConfiguration::new(tree, problems)))
}
