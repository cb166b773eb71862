//! Reads from a Rust file which modules of its crate it names, tests apart.

use std::collections::BTreeSet;
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::CharIndices;

/// A file of a crate.
#[derive(Debug)]
pub struct Source {
    /// Where it is, below the folder of sources.
    pub file: PathBuf,
    /// Its module; empty for that of the crate.
    pub module: Vec<String>,
    /// The paths of the crate that it names, from the crate's root, with their lines.
    pub paths: Vec<(Vec<String>, usize)>,
    /// The types and traits that it defines, with their lines.
    pub types: Vec<(String, usize)>,
    /// The types of its implementations without a trait, with the functions of each.
    pub methods: Vec<(String, usize)>,
}

/// A word, `::`, or one character of punctuation, with its line.
type Token = (String, usize);

impl Source {
    /// Reads all files below `folder` that are not for tests alone.
    pub fn all(folder: &Path) -> Vec<Self> {
        let mut files = Vec::new();
        collect(folder, &mut files);
        let modules: Vec<_> =
            files.iter().map(|file| module_of(file.strip_prefix(folder).unwrap())).collect();
        let mut tests = BTreeSet::new();
        let mut read = Vec::new();
        for (file, module) in files.iter().zip(&modules) {
            let (tokens, test_modules) = without_tests(&tokens(&fs::read_to_string(file).unwrap()));
            tests.extend(test_modules.into_iter().map(|name| [&module[..], &[name]].concat()));
            let paths = paths(&tokens, module, |path| modules.iter().any(|module| module == path));
            let file = file.strip_prefix(folder).unwrap().to_owned();
            read.push(Self {
                file,
                module: module.clone(),
                paths,
                types: types(&tokens),
                methods: methods(&tokens),
            });
        }
        read.retain(|source| !tests.iter().any(|test| source.module.starts_with(test)));
        read
    }
}

/// The names of types and traits that are defined. Associated types belong to their trait and are left out.
fn types(tokens: &[Token]) -> Vec<(String, usize)> {
    let mut modules = Vec::new();
    let mut types = Vec::new();
    for (at, (word, line)) in tokens.iter().enumerate() {
        match &**word {
            "{" => modules.push(at >= 2 && tokens[at - 2].0 == "mod"),
            "}" => drop(modules.pop()),
            "struct" | "enum" | "trait" => types.extend(defined(tokens.get(at + 1), *line)),
            "type" if modules.iter().all(|module| *module) => {
                types.extend(defined(tokens.get(at + 1), *line));
            }
            _ => {}
        }
    }
    types
}

fn defined(name: Option<&Token>, line: usize) -> Option<(String, usize)> {
    let (name, _) = name?;
    name.starts_with(|first: char| first.is_ascii_uppercase()).then(|| (name.clone(), line))
}

/// The types of implementations without a trait, with the number of functions in each.
fn methods(tokens: &[Token]) -> Vec<(String, usize)> {
    let word = |at: usize| tokens.get(at).map_or("", |token| &*token.0);
    let mut found = Vec::new();
    for (at, (token, _)) in tokens.iter().enumerate() {
        // Elsewhere the word stands in a type.
        let is_item = at == 0 || matches!(word(at - 1), "}" | "{" | ";" | "]" | "unsafe");
        if token != "impl" || !is_item {
            continue;
        }
        let mut next = at + 1;
        if word(next) == "<" {
            let mut depth = 0;
            while next < tokens.len() {
                match word(next) {
                    "<" => depth += 1,
                    ">" if word(next - 1) != "-" => depth -= 1,
                    _ => {}
                }
                next += 1;
                if depth == 0 {
                    break;
                }
            }
        }
        let Some(body) = (next..tokens.len()).find(|at| word(*at) == "{") else { break };
        let header = (next..body).take_while(|at| word(*at) != "where");
        if header.clone().any(|at| word(at) == "for" && word(at + 1) != "<") {
            continue;
        }
        let path = header.take_while(|at| word(*at) != "<").filter(|at| word(*at) != "::");
        let Some(name) = path.last() else { continue };
        let (mut depth, mut count) = (0_usize, 0);
        for at in body..tokens.len() {
            match word(at) {
                "{" => depth += 1,
                "}" => depth -= 1,
                "fn" if depth == 1 && word(at + 1) != "(" => count += 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        found.push((word(name).to_owned(), count));
    }
    found
}

/// Adds the Rust files below `folder`.
pub fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<_> =
        file.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if module.last().is_some_and(|last| last == "mod")
        || matches!(&module[..], [root] if root == "lib" || root == "main")
    {
        module.pop();
    }
    module
}

/// The words and the punctuation of a text, without comments and literals of text.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = text.char_indices().peekable();
    let mut line = 1;
    while let Some((at, char)) = chars.next() {
        let rest = &text[at..];
        let begins = tokens.len();
        let skipped = match char {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => quoted(rest),
            'r' | 'b' | 'c' if literal(rest).is_some() => literal(rest).unwrap(),
            '\'' => character(rest),
            _ if char.is_alphanumeric() || char == '_' => {
                let word = rest.split(|char: char| !char.is_alphanumeric() && char != '_').next().unwrap();
                tokens.push((word.to_owned(), line));
                word.len()
            }
            ':' if rest.starts_with("::") => {
                tokens.push(("::".to_owned(), line));
                2
            }
            _ => {
                if !char.is_whitespace() {
                    tokens.push((char.to_string(), line));
                }
                char.len_utf8()
            }
        };
        line += rest[..skipped].matches('\n').count();
        debug_assert!(tokens.len() <= begins + 1);
        skip_to(&mut chars, at + skipped);
    }
    tokens
}

fn skip_to(chars: &mut Peekable<CharIndices<'_>>, end: usize) {
    while chars.next_if(|(at, _)| *at < end).is_some() {}
}

/// The length of the text in quotation marks that `rest` begins with.
fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, char)| {
        let ends = *char == '"' && !escaped;
        escaped = *char == '\\' && !escaped;
        ends
    });
    end.map_or(rest.len(), |(at, _)| at + 1)
}

/// The length of the literal with a prefix that `rest` begins with, such as `r#""#` or `b'a'`.
fn literal(rest: &str) -> Option<usize> {
    let prefix = rest.find(|char| !matches!(char, 'r' | 'b' | 'c'))?;
    let (letters, after) = rest.split_at(prefix);
    if letters.len() > 2 {
        return None;
    }
    if letters.ends_with('r') {
        let hashes = after.find(|char| char != '#')?;
        let body = after[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(prefix + hashes + 1 + body.find(&end).map_or(body.len(), |at| at + end.len()));
    }
    match after.chars().next()? {
        '"' => Some(prefix + quoted(after)),
        '\'' if letters == "b" => Some(prefix + character(after)),
        _ => None,
    }
}

/// The length of the character that `rest` begins with; of a lifetime, that of its mark.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some(_)) => chars.find(|(_, char)| *char == '\'').map_or(1, |(at, _)| at + 1),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// The tokens without code for tests, and the names of test modules in files of their own.
fn without_tests(tokens: &[Token]) -> (Vec<Token>, Vec<String>) {
    let is = |at: usize, words: &[&str]| {
        tokens
            .get(at..at + words.len())
            .is_some_and(|tokens| tokens.iter().zip(words).all(|(token, word)| token.0 == *word))
    };
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        if !is(at, &["#", "[", "cfg", "(", "test", ")", "]"]) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += 7;
        while is(at, &["#", "["]) {
            at = end_of_item(tokens, at + 1);
        }
        let end = end_of_item(tokens, at);
        let item = &tokens[at..end];
        if let Some(module) = item.iter().position(|token| token.0 == "mod")
            && item.last().is_some_and(|last| last.0 == ";")
            && let Some((name, _)) = item.get(module + 1)
        {
            modules.push(name.clone());
        }
        at = end;
    }
    (kept, modules)
}

/// The end of the item that begins at `from`: behind its `;`, its last bracket, or the `,` of a field or variant.
fn end_of_item(tokens: &[Token], from: usize) -> usize {
    const ITEMS: [&str; 12] =
        ["async", "const", "enum", "fn", "impl", "mod", "pub", "static", "struct", "trait", "type", "use"];
    let is_item = tokens.get(from).is_some_and(|token| ITEMS.contains(&&*token.0));
    let mut depth = 0_usize;
    for (at, (token, _)) in tokens.iter().enumerate().skip(from) {
        match &**token {
            "{" | "[" | "(" => depth += 1,
            "}" | "]" | ")" => {
                let Some(less) = depth.checked_sub(1) else { return at };
                depth = less;
                let is_last = token == "}" || !is_item && token == "]";
                if depth == 0 && is_last {
                    let is_use = tokens.get(at + 1).is_some_and(|next| next.0 == ";");
                    return at + 1 + usize::from(is_use);
                }
            }
            ";" if depth == 0 => return at + 1,
            "," if depth == 0 && !is_item => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The paths that are named in `module`, from the crate's root.
fn paths(
    tokens: &[Token],
    module: &[String],
    is_module: impl Fn(&[String]) -> bool,
) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    // Modules in braces, with the depth that they end at.
    let (mut inner, mut depth) = (Vec::<(String, usize)>::new(), 0_usize);
    for (at, (token, _)) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1).map(|token| &*token.0);
        match &**token {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                inner.pop_if(|(_, end)| *end == depth);
            }
            "mod" if tokens.get(at + 2).is_some_and(|brace| brace.0 == "{") => {
                inner.push((next.unwrap().to_owned(), depth));
            }
            word if next == Some("::")
                && at.checked_sub(1).is_none_or(|before| !matches!(&*tokens[before].0, "::" | "in")) =>
            {
                let names = inner.iter().map(|(name, _)| name.clone());
                let mut here: Vec<_> = module.iter().cloned().chain(names).collect();
                let start = match word {
                    "crate" => Some(Vec::new()),
                    "self" => Some(here),
                    "super" => {
                        here.pop();
                        Some(here)
                    }
                    child => {
                        here.push(child.to_owned());
                        Some(here).filter(|path| is_module(path))
                    }
                };
                if let Some(start) = start {
                    follow(tokens, at + 1, start, &mut found);
                }
            }
            _ => {}
        }
    }
    found
}

/// Adds the paths that go on from `path` at a `::`; the index behind them.
fn follow(
    tokens: &[Token],
    mut at: usize,
    mut path: Vec<String>,
    found: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    let mut line = tokens.get(at).map_or(0, |token| token.1);
    while tokens.get(at).is_some_and(|token| token.0 == "::") {
        let Some((token, next_line)) = tokens.get(at + 1) else { break };
        match &**token {
            "super" => {
                path.pop();
            }
            "{" => {
                at += 2;
                while let Some((word, line)) = tokens.get(at).filter(|token| token.0 != "}") {
                    let is_word = word != "," && word != "as";
                    let path = path.iter().cloned().chain((word != "self").then(|| word.clone())).collect();
                    at = match &**word {
                        // A new name says nothing of a module.
                        "as" => at + 2,
                        _ if is_word && tokens.get(at + 1).is_some_and(|next| next.0 == "::") => {
                            follow(tokens, at + 1, path, found)
                        }
                        _ if is_word => {
                            found.push((path, *line));
                            at + 1
                        }
                        _ => at + 1,
                    };
                }
                return at + 1;
            }
            word if word.starts_with(|char: char| char.is_alphabetic() || char == '_') => {
                path.push(word.to_owned());
            }
            _ => break,
        }
        line = *next_line;
        at += 2;
    }
    found.push((path, line));
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let (tokens, _) = without_tests(&tokens(text));
        let module = ["room".to_owned(), "file".to_owned()];
        let is_module = |path: &[String]| path == ["room", "file", "child"];
        paths(&tokens, &module, is_module)
            .into_iter()
            .map(|(path, line)| format!("{line} {}", path.join("::")))
            .collect()
    }

    #[test]
    fn paths_are_read_from_the_root() {
        let text = "use crate::a::{self, b, c::{D, E as F}};\nuse super::x::Y;\nuse self::z;\nuse super::super::other::T;\nuse child::W;\n\
                    fn f() { crate::v::w::<u8>(); child::g(); not::counted(); }\npub(in crate::a) struct V;\nmod inner { use super::Z; }";
        let expected = [
            "1 a",
            "1 a::b",
            "1 a::c::D",
            "1 a::c::E",
            "2 room::x::Y",
            "3 room::file::z",
            "4 other::T",
            "5 room::file::child::W",
            "6 v::w",
            "6 room::file::child::g",
            "8 room::file::Z",
        ];
        assert_eq!(found(text), expected);
    }

    #[test]
    fn comments_literals_and_tests_name_nothing() {
        let text = r####"
            // crate::a::A
            /// [`crate::b`]
            const C: &str = "crate::c \" crate::d"; const D: &str = r#"crate::e " "#; const E: char = '"'; fn f<'a>() {}
            #[cfg(test)] use crate::g;
            #[cfg(test)] #[allow(dead_code)] mod tests { use crate::h; fn f() { { crate::i::j(); } } }
            struct S { #[cfg(test)] field: crate::k::K, other: crate::l::L }
            #[cfg(test)] fn g<A, B>() -> A { crate::m::m() }
            use crate::n;
        "####;
        assert_eq!(found(text), ["7 l::L", "9 n"]);
    }

    #[test]
    fn files_for_tests_are_known() {
        assert_eq!(without_tests(&tokens("#[cfg(test)] pub(crate) mod tests; mod other;")).1, ["tests"]);
    }

    #[test]
    fn types_are_found_without_associated_ones() {
        let text = "pub struct A; mod m { enum B { T } type C = A; } impl D for A { type E = A; }
            trait D { type E; } #[cfg(test)] mod tests { struct F; } macro_rules! g { () => { struct $name; } }";
        let names: Vec<_> =
            types(&without_tests(&tokens(text)).0).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["A", "B", "C", "D"]);
    }

    #[test]
    fn methods_are_counted_without_those_of_traits_and_tests() {
        let text = "impl A { fn a() -> impl B { fn inner() {} } const C: fn(u8) = d; } impl<'a, T: Fn() -> u8> m::A<'a, T> where T: for<'b> E<'b> \
            { unsafe fn b() {} fn c(x: impl F) {} } impl G for A { fn d() {} } fn e() -> impl H { } \
            #[cfg(test)] impl A { fn f() {} } impl A { #[cfg(test)] fn g() {} }";
        let (tokens, _) = without_tests(&tokens(text));
        assert_eq!(methods(&tokens), [("A".to_owned(), 1), ("A".to_owned(), 2), ("A".to_owned(), 0)]);
    }
}
