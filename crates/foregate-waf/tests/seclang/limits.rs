//! Bounds: input just within one is accepted, input just beyond it is refused by name.

use foregate_waf::seclang::{Source, limits, load};

use crate::files::Memory;
use crate::shown;

fn said(text: String) -> String {
    match load(&[Source::text("t", text)], &mut Memory::default()) {
        Ok(_) => String::new(),
        Err(problems) => shown(&problems),
    }
}

fn bound(text: impl Fn(usize) -> String, most: usize, message: &str) {
    assert_eq!(said(text(most)), "", "{message}");
    let beyond = said(text(most + 1));
    assert!(beyond.contains(message), "{message}: {beyond}");
}

#[test]
fn of_a_directive() {
    let directive = |len: usize| format!("SecComponentSignature {}", "a".repeat(len - 22));
    bound(directive, limits::MAX_DIRECTIVE, "the directive is longer than 1048576 bytes");
    let targets = |count: usize| format!("SecRule {} a id:1", vec!["ARGS"; count].join("|"));
    bound(targets, limits::MAX_TARGETS, "a rule has more than 1024 targets");
    let actions = |count: usize| format!("SecRule ARGS a id:1{}", ",t:trim".repeat(count - 1));
    bound(actions, limits::MAX_ACTIONS, "a list has more than 1024 actions");
    let chain =
        |count: usize| format!("SecRule ARGS a id:1{}", ",chain\nSecRule ARGS a t:trim".repeat(count - 1));
    bound(chain, limits::MAX_CHAIN, "a chain has more than 64 rules");
    let updated = |count: usize| {
        format!("SecRule {} a id:1\nSecRuleUpdateTargetById 1 ARGS", vec!["ARGS"; count - 1].join("|"))
    };
    bound(updated, limits::MAX_TARGETS, "the rule 1 has more than 1024 targets");
}

#[test]
fn of_a_pattern() {
    let rule = |pattern: String| format!("SecRule ARGS \"@rx {pattern}\" id:1");
    bound(|len| rule("a".repeat(len)), 65_536, "the pattern is longer than 65536 bytes");
    let nested = |depth: usize| rule(format!("{}a{}", "(".repeat(depth), ")".repeat(depth)));
    assert_eq!(said(nested(249)), "");
    assert!(said(nested(251)).contains("nest"), "{}", said(nested(251)));
    let cost = |cost: usize| rule(format!("(a{{1000}}){{{}}}a{{{}}}", cost / 1000, cost % 1000));
    let most = usize::try_from(limits::MAX_PATTERN_COST).unwrap();
    bound(cost, most, "the pattern is too large once its repetitions are written out");
}

#[test]
fn of_rules_markers_and_updates() {
    let lines = |line: fn(usize) -> String| move |count: usize| (1..=count).map(line).collect::<String>();
    bound(lines(|id| format!("SecAction id:{id}\n")), limits::MAX_RULES, "more than 32768 rules");
    bound(lines(|id| format!("SecMarker {id}\n")), limits::MAX_MARKERS, "more than 16384 markers");
    bound(
        lines(|_| "SecRuleRemoveById 1\n".into()),
        limits::MAX_UPDATES,
        "more than 16384 directives update rules",
    );
}

#[test]
fn of_what_is_told() {
    let wrong = said("SecRool\n".repeat(1000));
    assert_eq!(wrong.lines().count(), limits::MAX_ERRORS);
    let text = "SecTmpDir a\n".repeat(limits::MAX_WARNINGS + 1);
    let set = load(&[Source::text("t", text)], &mut Memory::default()).unwrap();
    assert_eq!(set.warnings.len(), limits::MAX_WARNINGS);
}

#[test]
fn of_files() {
    let chain = |depth: usize| {
        (0..depth).fold(Memory::default().with(&depth.to_string(), ""), |files, at| {
            files.with(&at.to_string(), format!("Include {}", at + 1))
        })
    };
    let loaded = |files: &mut Memory| load(&[Source::files("0")], files).map_err(|problems| shown(&problems));
    assert!(loaded(&mut chain(limits::MAX_INCLUDE_DEPTH - 1)).is_ok());
    let deep = loaded(&mut chain(limits::MAX_INCLUDE_DEPTH)).unwrap_err();
    assert!(deep.contains("more than 16 files include one another"), "{deep}");
    let many = |count: usize| Memory::default().with("a", "").with("0", "Include a\n".repeat(count - 1));
    assert!(loaded(&mut many(limits::MAX_FILES)).is_ok());
    let beyond = loaded(&mut many(limits::MAX_FILES + 1)).unwrap_err();
    assert!(beyond.contains("more than 4096 files"), "{beyond}");
    // Doubled at each level, files that include others twice would be read 2^16 times.
    let doubled = (0..15).fold(Memory::default(), |files, at| {
        files.with(&at.to_string(), format!("Include {0}\nInclude {0}", at + 1))
    });
    assert!(loaded(&mut doubled.with("15", "")).unwrap_err().contains("more than 4096 files"));
    let large = |len: usize| Memory::default().with("0", "#".repeat(len));
    assert!(loaded(&mut large(limits::MAX_FILE)).is_ok());
    assert!(loaded(&mut large(limits::MAX_FILE + 1)).unwrap_err().contains("larger than 8388608 bytes"));
    let all = |len: usize| {
        Memory::default().with("a", "#".repeat(limits::MAX_FILE)).with("0", "Include a\n".repeat(len))
    };
    assert!(loaded(&mut all(7)).is_ok());
    assert!(loaded(&mut all(8)).unwrap_err().contains("cannot be read: it is larger than"));
}
