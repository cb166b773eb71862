//! Properties of any text.

use foregate_waf::seclang::{Source, load};
use proptest::prelude::*;

use crate::files::Memory;

/// Pieces that rules are made of, so that random texts get far.
const PIECES: &[&str] = &[
    "SecRule ",
    "SecAction ",
    "SecMarker ",
    "SecDefaultAction ",
    "SecRuleRemoveById ",
    "SecRuleUpdateTargetById ",
    "SecRuleUpdateActionById ",
    "Include ",
    "ARGS",
    "TX:",
    "&",
    "!",
    "|",
    "XML:/*",
    "/a|b/",
    "'",
    "\"",
    "\\",
    "\\\n",
    "\n",
    " ",
    "@rx ",
    "@pm ",
    "@within ",
    "@ipMatch ",
    "@pmFromFile ",
    "@validateByteRange ",
    "%{",
    "}",
    "tx.a",
    "id:",
    "1",
    "2",
    ",",
    "phase:",
    "chain",
    "setvar:",
    "=",
    "=+",
    "ctl:",
    "ruleRemoveTargetById",
    ";",
    "skipAfter:",
    "END",
    "t:none",
    "t:lowercase",
    "msg:",
    "(",
    ")",
    "[",
    "{9}",
    "é",
    "\u{0}",
    "#",
    "SecAuditLogRelevantStatus ",
    "(?!",
];

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..60).prop_map(|pieces| pieces.concat())
}

fn check(text: &[u8]) {
    let mut files = Memory::default().with("f", text).with("1", text).with("END", text);
    let outcome = load(&[Source::files("f")], &mut files);
    let problems = match &outcome {
        Ok(set) => {
            for (at, rule) in set.rules.iter().enumerate() {
                assert!(!rule.links.is_empty() && rule.id > 0);
                assert!(rule.skip_to.is_none_or(|to| to > at && to <= set.rules.len()));
            }
            &set.warnings
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            problems
        }
    };
    let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
    for problem in problems {
        assert!(problem.place.line as usize <= lines && problem.place.column >= 1, "{problem}");
        assert!(!problem.to_string().contains('\n'), "{problem:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_loaded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
    }

    #[test]
    fn texts_like_rules_are_loaded_or_refused(text in text()) {
        check(text.as_bytes());
    }

    #[test]
    fn what_is_loaded_is_loaded_again_with_white_space(text in text()) {
        // Lines that hold nothing change no meaning, only places.
        let load = |text: &str| load(&[Source::text("t", text)], &mut Memory::default());
        let spaced = text.split_inclusive('\n').fold((String::new(), false), |(mut all, continued), line| {
            if !continued {
                all.push_str("\n  # nothing\n");
            }
            all.push_str(line);
            let ends = line.trim_end_matches('\n').ends_with('\\');
            (all, ends)
        }).0;
        match (load(&text), load(&spaced)) {
            (Ok(before), Ok(after)) => {
                prop_assert_eq!(before.rules.len(), after.rules.len());
                prop_assert_eq!(before.settings, after.settings);
            }
            (Err(before), Err(after)) => prop_assert_eq!(before.len(), after.len()),
            _ => prop_assert!(false, "only one of them is right"),
        }
    }
}
