//! Adds up the metrics of several processes, as if they were the metrics of one process. The metrics are texts in the
//! OpenMetrics format. No input or output.

use std::collections::{BTreeMap, HashMap};

/// Parts of the names of gauges for which the largest value is shown. The values of all other gauges are
/// added up.
const LARGEST: &[&str] =
    &["_info", "start_time", "expiry", "_up", "_down", "_limit", "not_after", "max_fds", "share"];

/// The lines of one metric family.
#[derive(Debug, Default)]
struct Family {
    comments: Vec<String>,
    kind: String,
    samples: Vec<String>,
}

/// The sum of the texts that have been added so far.
#[derive(Debug, Default)]
pub struct Sum {
    order: Vec<String>,
    families: HashMap<String, Family>,
    values: HashMap<String, f64>,
    /// The exemplar of each series, from the first text that contains the series.
    exemplars: HashMap<String, String>,
}

impl Sum {
    /// Adds the metrics of a process. If `ended`, the process has ended, and only its counters are added.
    pub fn add(&mut self, text: &str, ended: bool) {
        let mut name = String::new();
        let mut kinds = BTreeMap::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ")
                && let Some((name, kind)) = rest.split_once(' ')
            {
                kinds.insert(name.to_owned(), kind.to_owned());
            }
        }
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (Some(_), Some(family)) = (words.next(), words.next()) else { continue };
                let kind = kinds.get(family).map_or("", String::as_str);
                if ended && !only_rises(kind) {
                    family.clone_into(&mut name);
                    continue;
                }
                if family != name {
                    family.clone_into(&mut name);
                }
                let entry = self.families.entry(name.clone()).or_insert_with(|| {
                    self.order.push(name.clone());
                    Family { kind: kind.to_owned(), ..Family::default() }
                });
                if !entry.comments.iter().any(|known| same_comment(known, line)) {
                    entry.comments.push(line.to_owned());
                }
                continue;
            }
            let Some((series, value, exemplar)) = sample(line) else { continue };
            let Some(family) = self.families.get_mut(&name) else { continue };
            if ended && !only_rises(kinds.get(&name).map_or("", String::as_str)) {
                continue;
            }
            let largest = !only_rises(&family.kind) && LARGEST.iter().any(|part| name.contains(part));
            match self.values.get_mut(series) {
                Some(known) if largest => *known = known.max(value),
                Some(known) => *known += value,
                None => {
                    self.values.insert(series.to_owned(), value);
                    family.samples.push(series.to_owned());
                    if !ended && !exemplar.is_empty() {
                        self.exemplars.insert(series.to_owned(), exemplar.to_owned());
                    }
                }
            }
        }
    }

    /// The sum, in the same format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for family in self.order.iter().filter_map(|name| self.families.get(name)) {
            for comment in &family.comments {
                text.extend([comment, "\n"]);
            }
            for series in &family.samples {
                let value = self.values.get(series).copied().unwrap_or_default();
                let exemplar = self.exemplars.get(series).map_or("", String::as_str);
                text.extend([series, " ", &shown(value), exemplar, "\n"]);
            }
        }
        text.push_str("# EOF\n");
        text
    }
}

/// The line of a sample without its exemplar.
pub fn without_exemplar(line: &str) -> &str {
    let exemplar = sample(line).map_or(0, |(_, _, exemplar)| exemplar.len());
    &line[..line.len() - exemplar]
}

/// A series, its value, and the rest of the line: an exemplar, or nothing.
fn sample(line: &str) -> Option<(&str, f64, &str)> {
    let start = line.find(['{', ' '])?;
    let end = if line[start..].starts_with('{') { start + labels(&line[start..])? } else { start };
    let (series, rest) = line.split_at(end);
    let rest = rest.strip_prefix(' ')?;
    let (value, exemplar) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
    Some((series, value.parse().ok()?, exemplar))
}

/// The length of the labels in braces at the start of a text.
fn labels(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(place + 1),
            _ => {}
        }
    }
    None
}

fn only_rises(kind: &str) -> bool {
    matches!(kind, "counter" | "histogram" | "summary")
}

/// Returns true if both comments have the same keyword (HELP, TYPE or UNIT). A family may have each keyword
/// once.
fn same_comment(one: &str, other: &str) -> bool {
    let kind = |comment: &str| comment.split(' ').nth(1).map(str::to_owned);
    kind(one) == kind(other)
}

/// Formats a value; whole numbers have no fraction.
fn shown(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 9e15 { format!("{value:.0}") } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "# HELP requests Requests.\n# TYPE requests counter\nrequests_total{site=\"a b\"} 3\n\
                       requests_total{site=\"c\"} 1\n# HELP open Open now.\n# TYPE open gauge\nopen 2\n\
                       # HELP start_time When.\n# TYPE start_time gauge\nstart_time 17.5\n# EOF\n";
    const OTHER: &str = "# HELP open Open now.\n# TYPE open gauge\nopen 5\n# HELP requests Requests.\n\
                         # TYPE requests counter\nrequests_total{site=\"a b\"} 40\nrequests_total{site=\"new\"} 2\n\
                         # HELP start_time When.\n# TYPE start_time gauge\nstart_time 18.5\n# EOF\n";

    #[test]
    fn series_are_added_up_within_their_families() {
        let mut sum = Sum::default();
        sum.add(ONE, false);
        sum.add(OTHER, false);
        assert_eq!(
            sum.text(),
            "# HELP requests Requests.\n# TYPE requests counter\nrequests_total{site=\"a b\"} 43\n\
             requests_total{site=\"c\"} 1\nrequests_total{site=\"new\"} 2\n# HELP open Open now.\n# TYPE open gauge\nopen 7\n\
             # HELP start_time When.\n# TYPE start_time gauge\nstart_time 18.5\n# EOF\n"
        );
    }

    #[test]
    fn a_sample_is_shown_without_its_exemplar() {
        let line = "h_bucket{path=\"a } # {\",le=\"1\"} 3";
        assert_eq!(without_exemplar(&format!("{line} # {{trace_id=\"5\"}} 0.5")), line);
        assert_eq!(without_exemplar(line), line);
        assert_eq!(without_exemplar("what is none"), "what is none");
    }

    #[test]
    fn labels_and_exemplars_are_told_apart() {
        let text = "# HELP h H.\n# TYPE h histogram\nh_bucket{path=\"a } # {\",le=\"1\"} 3 # {trace_id=\"5\"} 0.5\nh_count 3\n";
        let mut sum = Sum::default();
        sum.add(text, false);
        sum.add(&text.replace("=\"5\"", "=\"6\""), false);
        assert_eq!(
            sum.text(),
            "# HELP h H.\n# TYPE h histogram\nh_bucket{path=\"a } # {\",le=\"1\"} 6 # {trace_id=\"5\"} 0.5\nh_count 6\n# EOF\n"
        );
        for odd in ["", "x", "x{", "x{a=\"b} 1", "x 1y", "{", "x{} ", "x{a=\"\\\"} 1"] {
            assert_eq!(sample(odd), None, "{odd}");
        }
    }

    #[test]
    fn what_rises_stays_of_those_that_have_ended() {
        let mut sum = Sum::default();
        sum.add(OTHER, true);
        assert!(!sum.text().contains("open"), "{}", sum.text());
        sum.add(ONE, false);
        assert!(sum.text().contains("requests_total{site=\"a b\"} 43\n"), "{}", sum.text());
        assert!(sum.text().contains("open 2\n"), "{}", sum.text());
        // A sum is a text like others.
        let mut again = Sum::default();
        again.add(&sum.text(), false);
        assert_eq!(again.text(), sum.text());
    }
}
