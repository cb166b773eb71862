//! `foregate module`.

use std::io;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use foregate_module::Pipeline;

use crate::config::schema;

use super::output::{Outcome, complain, print};

/// The default repository of the crates that a module builds against.
const REPOSITORY: &str = "https://github.com/foregate/foregate";

/// The longest name of a module, in characters.
const NAME_LIMIT: usize = 64;

/// The files of a new module; `{{...}}` is replaced.
const FILES: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("template/Cargo.toml.in")),
    ("README.md", include_str!("template/README.md.in")),
    ("src/lib.rs", include_str!("template/lib.rs.in")),
];

/// Names that a crate cannot have.
const RESERVED: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

#[derive(Debug, Subcommand)]
pub(super) enum Module {
    /// Write the crate of a new module: one step, its settings, and tests that pass
    New {
        /// Its name: lower case, words joined by `-`
        name: String,
        /// The folder to make [default: NAME]
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
        /// A checkout of Foregate to build against [default: its repository, at this version]
        #[arg(long, value_name = "FOLDER")]
        foregate: Option<PathBuf>,
    },
}

impl Module {
    pub(super) fn run(&self, pipeline: &Pipeline) -> Outcome {
        let Self::New { name, folder, foregate } = self;
        if let Some(problem) = problem_with(name, pipeline) {
            complain(&format!("`{name}` cannot be the name of a module: {problem}"));
            return Outcome::Usage;
        }
        let folder = folder.clone().unwrap_or_else(|| name.into());
        let foregate = foregate.as_deref();
        let sources = source(foregate, "foregate-module")
            .and_then(|contract| Ok([contract, source(foregate, "foregate")?]));
        match sources.and_then(|sources| write(name, &folder, &sources)) {
            Ok(()) => {
                let folder = folder.display();
                print(&format!("{folder} is there: try `cargo test` in it, and read {folder}/src/lib.rs.\n"));
                Outcome::Fine
            }
            Err(error) => {
                complain(&format!("cannot write the module: {error}"));
                Outcome::Wrong
            }
        }
    }
}

fn problem_with(name: &str, pipeline: &Pipeline) -> Option<&'static str> {
    let words = name.split('-');
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    if name.len() > NAME_LIMIT || !words.into_iter().all(is_word) {
        return Some("write words of lower case letters and digits, joined by `-`");
    }
    if RESERVED.contains(&name) {
        return Some("it is a word of Rust");
    }
    if name.split('-').next() == Some("foregate") {
        return Some("names that begin so are those of our own crates");
    }
    if schema::is_key(name) {
        return Some("a key of the configuration has this name already");
    }
    (!pipeline.named(name).is_empty()).then_some("there is one of this name already")
}

/// The location of one of Foregate's crates, as a manifest writes it.
fn source(checkout: Option<&Path>, name: &str) -> io::Result<String> {
    let Some(checkout) = checkout else {
        return Ok(format!("git = \"{REPOSITORY}\", tag = \"v{}\"", env!("CARGO_PKG_VERSION")));
    };
    let path = checkout.join("crates").join(name);
    let path =
        path.canonicalize().map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    Ok(format!("path = {:?}", path.display().to_string()))
}

fn write(name: &str, folder: &Path, [contract, program]: &[String; 2]) -> io::Result<()> {
    if folder.exists() {
        return Err(io::Error::other(format!("{} exists already", folder.display())));
    }
    let capital = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_ascii_uppercase() + rest
    };
    let type_name: String = name.split('-').map(capital).collect();
    let of_crate = name.replace('-', "_");
    for (file, template) in FILES {
        let text = template
            .replace("{{name}}", name)
            .replace("{{crate}}", &of_crate)
            .replace("{{Type}}", &type_name)
            .replace("{{rust}}", env!("CARGO_PKG_RUST_VERSION"))
            .replace("{{source}}", contract)
            .replace("{{program}}", program);
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        std::fs::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words() {
        let problem = |name: &str| problem_with(name, &Pipeline::default());
        assert_eq!(problem("my-module2"), None);
        for bad in ["", "-", "My", "a_b", "a--b", "2a", "a/b", "..", "fn", "std", &"a".repeat(65)] {
            assert!(problem(bad).is_some(), "{bad}");
        }
    }
}
