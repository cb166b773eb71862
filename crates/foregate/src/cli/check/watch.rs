//! `foregate check --watch`.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use foregate_module::Pipeline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use super::super::output::{Outcome, complain, print, refused_json, show_refused};
use super::{MachineOutput, count, fine_line};
use crate::config::{self, RefusedConfiguration};

/// The time between two looks at the files for changes.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time between two checks if no known file changes: certificates, and files that a pattern of `include` matches,
/// may appear or disappear.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// After a check without a change, the next one waits for this many times the check's duration, so that a large
/// configuration does not occupy the machine.
const CHECK_SHARE: u32 = 20;

/// A file's modification time, size and inode, which show a change; `None` while the file does not exist.
type FileStamp = Option<(SystemTime, u64, u64)>;

/// The outcome of one check.
struct CheckResult {
    /// The output for machines; a result is shown again only if this differs.
    json: Value,
    /// The output for people.
    output: CheckOutput,
    stamps: BTreeMap<PathBuf, FileStamp>,
}

enum CheckOutput {
    Fine { line: String, warnings: String },
    Refused(Box<RefusedConfiguration>),
}

/// Checks the configuration now and after each change, until nobody reads the output.
pub(super) fn run(path: &Path, pipeline: &Arc<Pipeline>, json: bool) -> Outcome {
    let mut result = check(path, pipeline, stamps([&path.to_owned()].into_iter()));
    show(&result, json);
    let mut checked = Instant::now();
    let mut pause = CHECK_EVERY;
    loop {
        if is_unread(LOOK_EVERY) {
            return Outcome::Fine;
        }
        let stamps = stamps(result.stamps.keys());
        let is_changed = stamps != result.stamps;
        if !is_changed && checked.elapsed() < pause {
            continue;
        }
        if is_changed && !is_settled(&stamps) {
            continue;
        }
        let began = Instant::now();
        let next = check(path, pipeline, stamps);
        pause = CHECK_EVERY.max(began.elapsed().saturating_mul(CHECK_SHARE));
        if is_changed || next.json != result.json {
            show(&next, json);
        }
        (result, checked) = (next, Instant::now());
    }
}

/// Returns true if the files have not changed again after a short wait, because editors write a file in several steps.
fn is_settled(seen: &BTreeMap<PathBuf, FileStamp>) -> bool {
    is_unread(LOOK_EVERY) || stamps(seen.keys()) == *seen
}

/// Checks the files. `before` has the stamps that known files had before this check reads them, so that a change during
/// the check is noticed later.
fn check(path: &Path, pipeline: &Arc<Pipeline>, before: BTreeMap<PathBuf, FileStamp>) -> CheckResult {
    let (json, output, paths) = match config::load_and_warn(path, pipeline) {
        Ok((settings, warnings)) => {
            let counts = count(&settings, warnings.tree(), path.display().to_string());
            let paths: Vec<_> = warnings.tree().paths().map(Path::to_owned).collect();
            let output = CheckOutput::Fine { line: fine_line(&counts), warnings: warnings.plain() };
            let taken = serde_json::to_value(MachineOutput { counts, warnings: warnings.shown() });
            (taken.unwrap_or_default(), output, paths)
        }
        Err(refused) => {
            let paths = refused.tree().paths().map(Path::to_owned).collect();
            (refused_json(&refused), CheckOutput::Refused(refused), paths)
        }
    };
    // The tree does not name a file that cannot be read, so the main file is added.
    let mut known = stamps(paths.iter().chain([&path.to_owned()]));
    for (path, stamp) in before {
        if let Some(known) = known.get_mut(&path) {
            *known = stamp;
        }
    }
    CheckResult { json, output, stamps: known }
}

fn show(result: &CheckResult, json: bool) {
    if json {
        // Print one line for each check.
        print(&format!("{}\n", result.json));
        return;
    }
    match &result.output {
        CheckOutput::Refused(refused) => {
            show_refused(refused, false);
        }
        CheckOutput::Fine { line, warnings } => {
            if !warnings.is_empty() {
                complain(warnings);
            }
            print(line);
        }
    }
}

fn stamps<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> BTreeMap<PathBuf, FileStamp> {
    let stamp = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len(), found.ino()))
    };
    paths.map(|path| (path.clone(), stamp(path))).collect()
}

/// Waits for `span`, and returns true early if the reader of the output, such as an editor, has gone.
fn is_unread(span: Duration) -> bool {
    let out = io::stdout();
    let mut watched = [PollFd::new(&out, PollFlags::empty())];
    let span = Timespec { tv_sec: span.as_secs().cast_signed(), tv_nsec: i64::from(span.subsec_nanos()) };
    // A signal may end the wait early, which does no harm.
    let ready = poll(&mut watched, Some(&span)).unwrap_or_default();
    ready > 0 && watched.iter().any(|watched| watched.revents().intersects(PollFlags::ERR | PollFlags::HUP))
}
