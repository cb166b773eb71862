//! Every error and every warning, with its text and place.
//!
//! `problems.txt` holds cases between empty lines: the text of rules, then `=> ` before each error and `~> ` before each
//! warning. `\n` in a text is a line of its own that is empty.

use foregate_waf::seclang::load;

use crate::files::Memory;
use crate::{Source, set, shown};

const TABLE: &str = include_str!("problems.txt");

fn files() -> Memory {
    Memory::default()
        .with("self.conf", "Include self.conf")
        .with("round.conf", "SecMarker a\nInclude other.conf")
        .with("other.conf", "\n  Include round.conf")
        .with("latin.conf", b"SecMarker a\nSecMarker \xe9".as_slice())
        .with("open.conf", "SecRule ARGS a id:1,chain")
        .with("broken.conf", "\nSecRuleEngin On")
        .with("codes.map", "1 (ANSI)\n\n2 (ASCII)\n2044:2f\n\n3\n2044:2f\n2045:x\n")
        .with("ips.data", "# ours\n192.0.2.0/24\n\n  2001:db8::/129\n192.0.2.300 # no\n")
}

fn outcome(text: &str) -> String {
    let problems = |sign: &str, problems: &[_]| {
        shown(problems).lines().map(|line| format!("{sign} {line}\n")).collect::<String>()
    };
    match load(&[Source::text("t", text.replace("\\n", ""))], &mut files()) {
        Ok(set) => problems("~>", &set.warnings),
        Err(errors) => problems("=>", &errors),
    }
}

#[test]
fn messages_are_these() {
    let mut all = String::new();
    let mut count = 0;
    for case in TABLE.split("\n\n").map(str::trim_end).filter(|case| !case.is_empty()) {
        let is_text = |line: &&str| !line.starts_with("=> ") && !line.starts_with("~> ");
        let text: Vec<&str> = case.lines().filter(is_text).collect();
        let text = text.join("\n");
        all.push_str(&format!("{text}\n{}\n", outcome(&text)));
        count += 1;
    }
    assert!(count > 100, "{count}");
    if std::env::var_os("UPDATE_PROBLEMS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/seclang/problems.txt");
        return std::fs::write(path, format!("{}\n", all.trim_end())).unwrap();
    }
    let differs = all.lines().zip(TABLE.lines()).find(|(now, then)| now != then);
    assert_eq!(differs, None, "UPDATE_PROBLEMS=1 writes problems.txt anew; read what changed");
    assert_eq!(all.trim_end(), TABLE.trim_end());
}

#[test]
fn nothing_is_said_where_nothing_is_wrong() {
    let rules = set("SecRule ARGS \"@rx a\" \"id:1,phase:2,deny\"\n# comment \\\nSecAction id:2,pass");
    assert_eq!(shown(&rules.warnings), "");
    assert_eq!(rules.rules.len(), 2);
}
