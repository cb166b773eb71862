//! Configuration files. The crate reads KDL or JSON into a tree, checks the tree by tables of keys, and turns
//! nodes into settings of modules. The host defines its own keys, such as listeners and upstreams: it supplies
//! the tables of its blocks ([`schema::Block`]) and reads the nodes that fit them ([`Decoder`]). The keys of
//! modules are the same for every host, and are read here ([`Modules`]).
//!
//! The crate reads no other files than those that a configuration names.
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
mod kept;
pub mod lists;
mod load;
mod modules;
mod positional;
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
pub use self::files::{Files, open, open_first};
pub use self::format::format;
pub use self::glob::expand;
pub use self::kept::Texts;
pub use self::load::{INCLUDE, Item, Tree, Unsaved};
pub use self::modules::{Modules, Scope, Upstreams};
pub use self::problem::{Findings, Place, Problem, ProblemReport, Problems, RefusedConfiguration, Warnings};
pub use foregate_rules::nearest;

use self::schema::Block;

/// Reads a file (JSON if its name ends with `.json`, else KDL) and all files that it includes, and calls
/// `decode` with the tree. Errors are added to the problems that `decode` gets. After a syntax error, `decode`
/// is not called, since it would report most errors a second time. If files are missing, `decode` is called, so
/// that all errors are reported at once; [`Problems::miss_files`] is true then.
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

/// Reads kept texts as if their files still had this content. Other files that the texts refer to, such as
/// lists, are read with their present content.
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

/// Looks for errors and warnings in a file and the files that it includes. The texts in `unsaved` replace the
/// content of their files.
pub fn look<T>(path: &Path, unsaved: Unsaved, decode: impl FnOnce(&Tree, &mut Problems) -> T) -> Findings {
    let mut problems = Problems::default();
    let tree = Tree::read_unsaved(path, unsaved, &mut problems);
    if problems.are_of_missing_files() {
        decode(&tree, &mut problems);
    }
    Findings::new(tree, problems)
}

/// Like [`read_text`]; also returns the texts of the files, for [`read_kept`].
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

/// The JSON form of a file. Each `include` is kept as a node.
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

/// The result of `decode` for the first node with this name at the outermost level. Errors elsewhere do not
/// matter. `None` if there is no such node.
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
