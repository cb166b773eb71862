//! The requests of an access log, judged by two configurations.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use foregate_module::Now;
use foregate_proxy::configuration::Settings;
use serde::Serialize;

use super::logged::{self, Assumed, LINE_LIMIT, LoggedRequest, NoRequest};
use super::treatment::{Judge, Treatment};

/// The most groups of differences; requests with further differences are only counted.
const GROUPS_LIMIT: usize = 1000;

/// The number of requests that are read and then judged together.
const BATCH: usize = 1024;

/// The most examples in a group.
const EXAMPLES: usize = 3;

/// The longest text of an example, in characters.
const EXAMPLE_LIMIT: usize = 300;

/// The result of a replay.
#[derive(Debug, Default, Serialize)]
pub(super) struct Replay {
    /// Requests that were judged.
    pub requests: u64,
    /// The number of these that the new configuration would treat differently.
    pub different: u64,
    /// The number of lines from which no request could be read.
    pub unread: u64,
    /// The number of differing requests that are in no group.
    pub ungrouped: u64,
    /// The groups of differing requests, the largest first.
    pub groups: Vec<DifferenceGroup>,
    /// The steps that would have sent a request to an upstream, with the number of these requests. The replay assumed that
    /// each was answered with 200.
    pub assumed: BTreeMap<&'static str, u64>,
}

/// Requests that differ in the same way.
#[derive(Debug, Serialize)]
pub(super) struct DifferenceGroup {
    pub count: u64,
    pub old: String,
    pub new: String,
    pub examples: Vec<Example>,
}

#[derive(Debug, Serialize)]
pub(super) struct Example {
    pub line: u64,
    pub request: String,
    /// The difference in parts that the summaries of the two treatments leave out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Judges all requests of a log.
///
/// # Errors
///
/// The log cannot be read, or holds no request.
pub(super) fn replay(
    log: &Path,
    old: &Settings,
    new: &Settings,
    assumed: &Assumed<'_>,
) -> Result<Replay, String> {
    let wrong = |error: std::io::Error| format!("cannot read {}: {error}", log.display());
    let mut file = BufReader::with_capacity(1 << 20, File::open(log).map_err(wrong)?);
    let judges = [Judge::new(old), Judge::new(new)];
    let mut found = ReplayState::default();
    let (mut line, mut number, mut without_host) = (Vec::new(), 0u64, 0u64);
    let mut batch = Vec::new();
    loop {
        line.clear();
        let limit = LINE_LIMIT as u64;
        if (&mut file).take(limit).read_until(b'\n', &mut line).map_err(wrong)? == 0 {
            break;
        }
        number += 1;
        if line.len() == LINE_LIMIT && !line.ends_with(b"\n") {
            skip_line(&mut file).map_err(wrong)?;
            found.replay.unread += 1;
            continue;
        }
        match logged::read(&line, assumed) {
            Ok(logged) => batch.push((number, found.now(&logged), logged)),
            Err(why) => {
                found.replay.unread += 1;
                without_host += u64::from(why == NoRequest::NoHost);
            }
        }
        if batch.len() == BATCH {
            found.judge(&judges, &batch);
            batch.clear();
        }
    }
    found.judge(&judges, &batch);
    let ReplayState { mut replay, groups, .. } = found;
    if replay.requests == 0 {
        return Err(nothing(log, number, without_host));
    }
    replay.groups = groups.into_values().collect();
    replay.groups.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.old.cmp(&other.old)));
    Ok(replay)
}

/// The result so far.
#[derive(Default)]
struct ReplayState {
    replay: Replay,
    groups: HashMap<(String, String), DifferenceGroup>,
    /// The time of the first request, in milliseconds since 1970.
    first: Option<u64>,
    /// Milliseconds since the first request, never decreasing.
    steady: u64,
}

impl ReplayState {
    /// The time at which a request is judged: rate limits see the times of the log. A line is written when its request
    /// ends, so a logged time may be earlier than that of the line before; the monotonic time then stays as it was.
    fn now(&mut self, logged: &LoggedRequest) -> Now {
        let first = *self.first.get_or_insert(logged.unix_ms);
        self.steady = self.steady.max(logged.unix_ms.saturating_sub(first));
        Now { unix_ms: logged.unix_ms, steady_ms: self.steady + 1_000_000 }
    }

    /// Judges a batch of requests by both configurations. Each configuration has one thread, because rate limits depend on
    /// the order of requests.
    fn judge(&mut self, [old, new]: &[Judge<'_>; 2], batch: &[(u64, Now, LoggedRequest)]) {
        let all = |judge: &Judge<'_>| -> Vec<Treatment> {
            batch.iter().map(|(_, now, logged)| judge.judge(logged, *now)).collect()
        };
        let (before, after) = std::thread::scope(|scope| {
            let before = scope.spawn(|| all(old));
            let after = all(new);
            (before.join(), after)
        });
        // A panic of a step is caught earlier, so a panic here is a mistake in this command.
        let before = before.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for (((line, _, logged), before), after) in batch.iter().zip(&before).zip(&after) {
            self.replay.requests += 1;
            for (step, _) in &after.asked {
                *self.replay.assumed.entry(step).or_default() += 1;
            }
            if before != after {
                self.replay.different += 1;
                let example = example(*line, logged, before, after);
                let kind = (before.summary(), after.summary());
                self.replay.ungrouped += u64::from(!add(&mut self.groups, kind, example));
            }
        }
    }
}

fn nothing(log: &Path, lines: u64, without_host: u64) -> String {
    let log = log.display();
    if without_host > 0 {
        return format!("{log} names no hosts; `--host NAME` says which one its requests are for");
    }
    format!(
        "{log} holds no request in {lines} lines; it has to be an access log of Foregate, or of NGINX in the format `combined`"
    )
}

fn skip_line(file: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let (end, read) = match file.fill_buf()? {
            [] => return Ok(()),
            bytes => match bytes.iter().position(|byte| *byte == b'\n') {
                Some(at) => (true, at + 1),
                None => (false, bytes.len()),
            },
        };
        file.consume(read);
        if end {
            return Ok(());
        }
    }
}

/// Adds a request to its group; false if there are too many groups.
fn add(
    groups: &mut HashMap<(String, String), DifferenceGroup>,
    kind: (String, String),
    example: Example,
) -> bool {
    if groups.len() >= GROUPS_LIMIT && !groups.contains_key(&kind) {
        return false;
    }
    let (old, new) = kind.clone();
    let none = || DifferenceGroup { count: 0, old, new, examples: Vec::new() };
    let group = groups.entry(kind).or_insert_with(none);
    group.count += 1;
    if group.examples.len() < EXAMPLES {
        group.examples.push(example);
    }
    true
}

fn example(line: u64, logged: &LoggedRequest, old: &Treatment, new: &Treatment) -> Example {
    let scheme = if logged.secure { "https" } else { "http" };
    let request = format!("{} {scheme}://{}{}", logged.method, logged.host, logged.target);
    Example { line, request: cut(request), detail: detail(old, new).map(cut) }
}

fn cut(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(EXAMPLE_LIMIT) {
        text.truncate(at);
        text.push_str("...");
    }
    text
}

/// The differences in parts that vary from request to request, such as the target.
fn detail(old: &Treatment, new: &Treatment) -> Option<String> {
    let mut parts = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for (name, before, after) in
        [("target", &old.target, &new.target), ("location", &old.location, &new.location)]
    {
        if before != after && !before.is_empty() && !after.is_empty() {
            parts.push(format!("the {name} was {}, now {}", text(before), text(after)));
        }
    }
    if !old.target.is_empty() && !new.target.is_empty() {
        let gone = old.fields.iter().filter(|field| !new.fields.contains(field));
        let come = new.fields.iter().filter(|field| !old.fields.contains(field));
        parts.extend(gone.map(|(name, value)| format!("without the field {}: {}", text(name), text(value))));
        parts.extend(come.map(|(name, value)| format!("with the field {}: {}", text(name), text(value))));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}
