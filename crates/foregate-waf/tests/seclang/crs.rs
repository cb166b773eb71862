//! All of the Core Rule Set, where `CRS` names the folder of its Go module.

use std::collections::BTreeMap;

use foregate_waf::model::{EngineMode, Operator, RuleSet};
use foregate_waf::seclang::{Source, load};

use crate::files::Disk;
use crate::shown;

/// The folder, or nothing to test with: `make test-waf` sets it.
fn folder() -> Option<String> {
    std::env::var("CRS").ok()
}

fn loaded(paths: &[&str]) -> Option<RuleSet> {
    let crs = folder()?;
    let sources: Vec<_> = paths.iter().map(|path| Source::files(format!("{crs}/rules/{path}"))).collect();
    Some(load(&sources, &mut Disk).unwrap_or_else(|problems| panic!("{}", shown(&problems))))
}

#[test]
fn all_of_it_loads_without_a_word() {
    let Some(set) = loaded(&["@crs-setup.conf.example", "@owasp_crs/*.conf"]) else { return };
    assert_eq!(shown(&set.warnings), "");
    let links: usize = set.rules.iter().map(|rule| rule.links.len()).sum();
    assert_eq!((set.rules.len(), links), (626, 698));
    assert_eq!(set.settings.components, [Box::from("OWASP_CRS/4.25.0")]);
    let mut phases = BTreeMap::new();
    for rule in &set.rules {
        *phases.entry(rule.phase.number()).or_insert(0) += 1;
        for link in &rule.links {
            if let Operator::Pm(phrases) = &link.operator {
                assert!(phrases.iter().len() > 0, "{}", rule.id);
            }
        }
    }
    println!("{phases:?}");
}

#[test]
fn what_is_recommended_with_it_is_understood() {
    let files = ["@coraza.conf-recommended", "@crs-setup.conf.example", "@owasp_crs/*.conf"];
    let Some(set) = loaded(&files) else { return };
    let links: usize = set.rules.iter().map(|rule| rule.links.len()).sum();
    assert_eq!(links, 703);
    let warnings: Vec<&str> = set.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert_eq!(
        warnings,
        [
            "`SecDataDir` has no effect: collections are kept in memory",
            "`SecAuditLogFormat` has no effect: where the log goes, and how it is written, is said where rules are named",
        ]
    );
    assert_eq!(set.settings.engine, Some(EngineMode::DetectionOnly));
    assert!(set.settings.audit_relevant_status.contains(503));
    assert!(!set.settings.audit_relevant_status.contains(422));
}
