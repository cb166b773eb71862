//! Judges cases by the status that was answered and the lines of the log.

use std::collections::HashMap;

use regex::bytes::Regex;

use super::client::TestAnswer;
use super::suite::TestExpectation;

/// The lines of the log, by the port of the client.
pub(super) struct Log<'l> {
    lines: HashMap<u16, Vec<&'l [u8]>>,
    id: Regex,
}

impl<'l> Log<'l> {
    /// Sorts the lines of a log by clients.
    ///
    /// # Errors
    ///
    /// The line has no client.
    pub(super) fn read(log: &'l [u8]) -> Result<Self, String> {
        let client = Regex::new(r"\[client [^\]]*:([0-9]+)\]").map_err(|error| error.to_string())?;
        let id = Regex::new(r#"\[id "([0-9]+)"\]"#).map_err(|error| error.to_string())?;
        let mut lines: HashMap<u16, Vec<&[u8]>> = HashMap::new();
        for line in log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let port =
                client.captures(line).and_then(|found| std::str::from_utf8(&found[1]).ok()?.parse().ok());
            let port = port
                .ok_or_else(|| format!("this line belongs to no case: {}", String::from_utf8_lossy(line)))?;
            lines.entry(port).or_default().push(line);
        }
        Ok(Self { lines, id })
    }

    /// The number of lines.
    pub(super) fn len(&self) -> usize {
        self.lines.values().map(Vec::len).sum()
    }

    fn of(&self, port: u16) -> &[&'l [u8]] {
        self.lines.get(&port).map_or(&[], Vec::as_slice)
    }

    /// The rules that the lines of a request name.
    pub(super) fn ids(&self, port: u16) -> Vec<u64> {
        let lines = self.of(port).iter();
        let found = lines.flat_map(|line| self.id.captures_iter(line));
        let mut ids: Vec<u64> =
            found.filter_map(|id| std::str::from_utf8(id.get(1)?.as_bytes()).ok()?.parse().ok()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    fn matches(&self, port: u16, pattern: &str) -> Result<bool, String> {
        let pattern = Regex::new(pattern).map_err(|error| error.to_string())?;
        Ok(self.of(port).iter().any(|line| pattern.is_match(line)))
    }
}

/// The errors in a request's outcome; empty if it is as expected.
///
/// # Errors
///
/// A pattern of the case that cannot be used.
pub(super) fn judge(
    expected: &TestExpectation,
    got: TestAnswer,
    log: &Log<'_>,
) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    let shown = |status: Option<u16>| status.map_or("no answer".to_owned(), |status| status.to_string());
    if expected.error {
        if got.status.is_some() {
            wrong.push(format!("status {} instead of no answer", shown(got.status)));
        }
    } else if expected.status.is_some() && expected.status != got.status {
        wrong.push(format!("status {} instead of {}", shown(got.status), shown(expected.status)));
    }
    let ids = log.ids(got.port);
    wrong.extend(
        expected.log.ids.iter().filter(|id| !ids.contains(id)).map(|id| format!("{id} did not match")),
    );
    wrong.extend(expected.log.no_ids.iter().filter(|id| ids.contains(id)).map(|id| format!("{id} matched")));
    if let Some(pattern) = &expected.log.has
        && !log.matches(got.port, pattern)?
    {
        wrong.push(format!("no line has {pattern}"));
    }
    if let Some(pattern) = &expected.log.has_not
        && log.matches(got.port, pattern)?
    {
        wrong.push(format!("a line has {pattern}"));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::super::suite::ExpectedLog;
    use super::*;

    #[test]
    fn each_expectation_can_fail() {
        let log = b"[client 127.0.0.1:5] x [id \"7\"] [msg \"a\"]\n[client 127.0.0.1:6] x [id \"8\"]\n";
        let log = Log::read(log).unwrap();
        let got = TestAnswer { port: 5, status: Some(200) };
        let wrong = |expected: TestExpectation| judge(&expected, got, &log).unwrap().len();
        let any = TestExpectation::default;
        let log_of = |ids: &[u64], no_ids: &[u64], has: &str, has_not: &str| ExpectedLog {
            ids: ids.to_vec(),
            no_ids: no_ids.to_vec(),
            has: (!has.is_empty()).then(|| has.to_owned()),
            has_not: (!has_not.is_empty()).then(|| has_not.to_owned()),
        };
        let with = |status, log| wrong(TestExpectation { status: Some(status), log, ..any() });
        assert_eq!(with(200, log_of(&[7], &[8], "msg \"a", "id \"8")), 0);
        assert_eq!(with(403, log_of(&[8], &[7], "id \"8", "msg \"a")), 5);
        assert_eq!(wrong(TestExpectation { error: true, ..any() }), 1);
        assert!(Log::read(b"nobody's line\n").is_err());
    }
}
