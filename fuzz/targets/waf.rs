//! Invariants for any rules of the firewall. The bodies of fuzz targets, also run over their corpora by
//! `cargo test`.

use std::collections::BTreeMap;

use foregate_waf::model::RuleSet;
use foregate_waf::seclang::{Files, Source, limits, load};

/// Files that an input holds: the first is unnamed, each further one follows a line `#file NAME`.
struct Input<'d>(BTreeMap<&'d [u8], &'d [u8]>);

impl<'d> Input<'d> {
    fn new(data: &'d [u8]) -> Self {
        const MARK: &[u8] = b"\n#file ";
        let mut files = BTreeMap::new();
        let (mut name, mut rest) = (b"main".as_slice(), data);
        while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK) {
            files.insert(name, &rest[..at]);
            let after = &rest[at + MARK.len()..];
            let end = after.iter().position(|byte| *byte == b'\n').unwrap_or(after.len());
            (name, rest) = after.split_at(end);
        }
        files.insert(name, rest);
        Self(files)
    }
}

impl Files for Input<'_> {
    fn read(&mut self, path: &str, limit: usize) -> Result<Vec<u8>, String> {
        let text = self.0.get(path.as_bytes()).ok_or("there is no such file")?;
        if text.len() > limit { Err("it is too large".into()) } else { Ok(text.to_vec()) }
    }

    fn glob(&mut self, _: &str) -> Result<Vec<String>, String> {
        Ok(self.0.keys().filter_map(|name| String::from_utf8(name.to_vec()).ok()).collect())
    }
}

/// Loading never panics, ends, and reports places of errors; its result is complete.
pub(crate) fn seclang(data: &[u8]) {
    let sources = [Source::files("main")];
    let outcome = load(&sources, &mut Input::new(data));
    let again = load(&sources, &mut Input::new(data));
    let lines = data.iter().filter(|byte| **byte == b'\n').count() + 1;
    let problems = match (&outcome, &again) {
        (Ok(set), Ok(same)) => {
            whole(set);
            assert_eq!((set.rules.len(), &set.settings), (same.rules.len(), &same.settings));
            &set.warnings
        }
        (Err(problems), Err(same)) => {
            assert!(!problems.is_empty() && problems.len() <= limits::MAX_ERRORS);
            assert_eq!(problems, same, "the same each time");
            problems
        }
        _ => panic!("refused once and not again"),
    };
    for problem in problems {
        let (line, column) = (problem.place.line as usize, problem.place.column as usize);
        assert!((1..=lines).contains(&line) && (1..=data.len() + 1).contains(&column), "{problem}");
        assert!(!problem.to_string().contains('\n'), "{problem:?}");
    }
}

fn whole(set: &RuleSet) {
    let mut ids: Vec<_> = set.rules.iter().map(|rule| rule.id).collect();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "ids are unique");
    for (at, rule) in set.rules.iter().enumerate() {
        assert!((1..=limits::MAX_CHAIN).contains(&rule.links.len()));
        assert!(rule.skip_to.is_none_or(|to| to > at && to <= set.rules.len()));
        for link in &rule.links {
            assert!(link.targets.len() + link.exclusions.len() <= limits::MAX_TARGETS);
            assert!(!link.targets.is_empty() || link.exclusions.is_empty());
        }
    }
}
