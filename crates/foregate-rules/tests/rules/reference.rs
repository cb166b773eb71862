//! docs/guide/expressions.md agrees with the crate: its tables are the crate's, its examples compile.
//!
//! `UPDATE_DOCS=1 cargo test -p foregate-rules reference` writes the tables anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use foregate_rules::{FUNCTIONS, Lists, Scheme, Stage, StandardField, limits};

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn fields() -> String {
    let mut table = "| field | type | known from | meaning |\n|---|---|---|---|\n".to_owned();
    for (_, field) in Scheme::standard().fields() {
        let aliases: String = field.aliases.iter().map(|alias| format!(", also `{alias}`")).collect();
        let name = format!("`{}`{aliases}", field.name);
        writeln!(table, "| {name} | {} | {} | {} |", field.kind, field.stage, cell(&field.about)).unwrap();
    }
    table
}

fn functions() -> String {
    let mut table = "| function | effect |\n|---|---|\n".to_owned();
    for function in FUNCTIONS {
        writeln!(table, "| `{}` | {} |", cell(function.usage), cell(function.about)).unwrap();
    }
    table
}

fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

fn bounds() -> String {
    let rows = [
        ("text of an expression", size(limits::MAX_EXPRESSION)),
        ("parentheses, `not` and calls within each other", limits::MAX_DEPTH.to_string()),
        ("values in a set", limits::MAX_SET.to_string()),
        ("arguments of a call", limits::MAX_ARGUMENTS.to_string()),
        ("text of a regular expression or pattern", size(limits::MAX_PATTERN)),
        ("memory of one compiled regular expression", size(limits::MAX_COMPILED_PATTERN)),
        ("positions of a regular expression that may be active at once", limits::MAX_POSITIONS.to_string()),
        ("groups within each other in a regular expression", limits::MAX_PATTERN_DEPTH.to_string()),
        ("memory of all patterns of an expression or of a set of rules", size(limits::MAX_COMPILED_PATTERNS)),
        ("references such as `${1}` in a replacement", limits::MAX_REFERENCES.to_string()),
        ("parts that `split` makes", limits::MAX_SPLIT.to_string()),
        ("times that `url_decode` with `r` decodes", limits::MAX_DECODINGS.to_string()),
        ("rules of a set", limits::MAX_RULES.to_string()),
        ("entries of a list", limits::MAX_LIST.to_string()),
        ("an entry of a list", size(limits::MAX_LIST_ENTRY)),
    ];
    let mut table = "| limit | at most |\n|---|---|\n".to_owned();
    for (what, most) in rows {
        writeln!(table, "| {what} | {most} |").unwrap();
    }
    table
}

fn page() -> (std::path::PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/expressions.md");
    let text = fs::read_to_string(&path).unwrap();
    (path, text)
}

#[test]
fn tables_are_those_of_the_crate() {
    let (path, text) = page();
    let mut updated = text.clone();
    for (name, table) in [("fields", fields()), ("functions", functions()), ("limits", bounds())] {
        let start = format!("<!-- {name} -->\n");
        let from = updated.find(&start).unwrap() + start.len();
        let length = updated[from..].find("<!-- end -->").unwrap();
        updated.replace_range(from..from + length, &table);
    }
    if updated != text {
        let update = env::var_os("UPDATE_DOCS").is_some();
        assert!(
            update,
            "docs/guide/expressions.md is behind the crate; UPDATE_DOCS=1 writes its tables anew"
        );
        fs::write(path, updated).unwrap();
    }
}

#[test]
fn examples_compile() {
    let (_, text) = page();
    let scheme = Scheme::standard();
    let mut count = 0;
    for block in text.split("```").skip(1).step_by(2) {
        let (kind, example) = block.split_once('\n').unwrap();
        let outcome = match kind {
            "rule" => scheme.compile(example, Stage::Request, &Lists::new()).map(|_| ()),
            "value" => scheme.compile_value(example, Stage::Request, &Lists::new()).map(|_| ()),
            other => panic!("a block of kind `{other}`"),
        };
        outcome.unwrap_or_else(|error| panic!("{example}{error}"));
        count += 1;
    }
    assert!(count >= 8, "{count}");
}

#[test]
fn every_operator_is_explained() {
    let (_, text) = page();
    for operator in [
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "contains",
        "matches",
        "wildcard",
        "strict wildcard",
        "in",
        "not",
        "and",
        "xor",
        "or",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "~",
        "!",
        "&&",
        "^^",
        "\\|\\|",
    ] {
        assert!(text.contains(&format!("`{operator}`")), "{operator}");
    }
}

#[test]
fn fields_have_ids_and_names_of_their_own() {
    let scheme = Scheme::standard();
    let mut names = BTreeSet::new();
    for (id, field) in scheme.fields() {
        assert_eq!(scheme.id(&field.name), Some(id));
        assert_eq!(id.standard().map(Into::into), Some(id));
        assert_eq!(id.added(), None);
        for name in [&*field.name].iter().chain(field.aliases) {
            assert!(names.insert((*name).to_owned()), "{name}");
            assert_eq!(scheme.id(name), Some(id));
        }
        assert!(field.about.ends_with('.'), "{}", field.name);
    }
    assert_eq!(scheme.fields().count(), StandardField::ALL.len());
    let added = crate::SCHEME.id("via.addresses").unwrap();
    assert_eq!((added.standard(), added.added()), (None, Some(1)));
    assert!(scheme.field(added).is_none());
}

#[test]
fn functions_stand_in_order_under_their_names() {
    assert!(FUNCTIONS.is_sorted_by_key(|function| function.name));
    for function in FUNCTIONS {
        assert!(function.usage.starts_with(&format!("{}(", function.name)), "{}", function.name);
    }
}
