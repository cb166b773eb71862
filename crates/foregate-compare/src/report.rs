//! The report of a tally.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::difference::Class;
use crate::tally::{Route, Tally, is_slower};

/// Lines of the table on a screen.
const LINES: usize = 30;

/// The verdict about the differences in one part of a route's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Old and new differ.
    Difference,
    /// Old and new do not differ clearly more often than two answers of the old system do.
    Noise,
}

/// One part of the answers of a route.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldReport {
    /// The class of the differences.
    pub class: &'static str,
    /// The part: `header etag`.
    pub part: String,
    /// Difference or noise.
    pub verdict: Verdict,
    /// The number of comparisons of old and new that differ in this part.
    pub count: u64,
    /// The number of comparisons of old and old that differ in this part.
    pub noise: u64,
    /// The place of the first difference.
    pub place: Option<String>,
    /// The old value in the first difference.
    pub old: Option<String>,
    /// See `old`.
    pub new: Option<String>,
    /// The number of a sample.
    pub sample: Option<String>,
}

/// The times of both systems, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Times {
    /// The median of the old and of the new system.
    pub p50: [f64; 2],
    /// The time that 90 per cent of the answers do not exceed, of the old and of the new system.
    pub p90: [f64; 2],
    /// The time that 99 per cent of the answers do not exceed, of the old and of the new system.
    pub p99: [f64; 2],
    /// `true` if the new system is clearly slower. Either its `p50` is more than 1.5 times that of the old system,
    /// or its `p90` is more than twice that of the old system. In both cases the increase must exceed 5 ms. With
    /// fewer than 20 comparisons, this is always `false`.
    pub slower: bool,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RouteReport {
    /// The name of the route.
    pub route: String,
    /// The number of requests that were compared.
    pub compared: u64,
    /// The number of comparisons of old and old, from which the noise is learned.
    pub learned: u64,
    /// The number of requests with a difference.
    pub different: u64,
    /// The number of comparisons in each class.
    pub classes: BTreeMap<&'static str, u64>,
    /// The number of requests that were not compared, by reason.
    pub not_compared: BTreeMap<String, u64>,
    /// The number of comparisons in which the bodies were only compared up to the limit.
    pub partial_bodies: u64,
    /// The times.
    pub time: Times,
    /// The parts that differ, the worst first.
    pub parts: Vec<FieldReport>,
}

/// A report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The number of requests that were compared.
    pub compared: u64,
    /// The number of requests with a difference.
    pub different: u64,
    /// The number of comparisons in each class.
    pub classes: BTreeMap<&'static str, u64>,
    /// The number of routes on which the new system is slower.
    pub slower: u64,
    /// The routes, the worst first.
    pub routes: Vec<RouteReport>,
    /// Parts that are ignored on request.
    pub ignored: Vec<String>,
}

impl Report {
    /// The report of a tally, with the parts that are ignored on request.
    pub fn new<'i>(tally: &Tally, ignored: impl Iterator<Item = &'i str>) -> Self {
        let mut routes: Vec<RouteReport> =
            tally.routes.iter().map(|(name, route)| of_route(name, route)).collect();
        let worst = |route: &RouteReport| {
            Class::ALL
                .iter()
                .position(|class| class.is_difference() && route.classes.contains_key(class.name()))
        };
        routes.sort_by(|a, b| {
            let order = worst(a).unwrap_or(usize::MAX).cmp(&worst(b).unwrap_or(usize::MAX));
            let order = order.then_with(|| b.different.cmp(&a.different));
            order
                .then_with(|| b.time.slower.cmp(&a.time.slower))
                .then_with(|| b.compared.cmp(&a.compared))
                .then_with(|| a.route.cmp(&b.route))
        });
        let mut classes = BTreeMap::new();
        for (class, count) in routes.iter().flat_map(|route| &route.classes) {
            *classes.entry(*class).or_default() += count;
        }
        Self {
            compared: routes.iter().map(|route| route.compared).sum(),
            different: routes.iter().map(|route| route.different).sum(),
            classes,
            slower: routes.iter().filter(|route| route.time.slower).count() as u64,
            routes,
            ignored: ignored.map(str::to_owned).collect(),
        }
    }

    /// Returns true if the two systems differ in an answer, or if one of them did not answer.
    pub fn is_different(&self) -> bool {
        self.different > 0 || self.classes.contains_key(Class::Error.name())
    }

    /// The report as text that fits on one screen.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let classes = Class::ALL
            .iter()
            .filter_map(|class| Some(format!("{} {}", class.name(), self.classes.get(class.name())?)));
        let classes: Vec<String> = classes.collect();
        let _ = writeln!(
            text,
            "{} compared, {} different: {}",
            self.compared,
            self.different,
            classes.join(", ")
        );
        if self.slower > 0 {
            let _ = writeln!(text, "slower: {} of {} routes", self.slower, self.routes.len());
        }
        for part in &self.ignored {
            let _ = writeln!(text, "ignored on request: {part}");
        }
        if self.compared == 0 {
            text.push_str("no request was compared yet: routes with `compare` compare what they serve, not what falls back\n");
        }
        let mut lines = Vec::new();
        for route in &self.routes {
            route.lines(&mut lines);
        }
        let rest = lines.len().saturating_sub(LINES);
        for line in lines.iter().take(LINES) {
            text.push('\n');
            text.push_str(line);
        }
        if !lines.is_empty() {
            text.push('\n');
        }
        if rest > 0 {
            let _ = writeln!(text, "… and {rest} more lines; --json and --html have all");
        }
        text
    }
}

impl RouteReport {
    fn lines(&self, lines: &mut Vec<String>) {
        let not_compared: u64 = self.not_compared.values().sum();
        let is_quiet =
            self.different == 0 && !self.time.slower && !self.classes.contains_key(Class::Error.name());
        if is_quiet && not_compared == 0 && self.partial_bodies == 0 {
            return;
        }
        let share = 100.0 * self.different as f64 / self.compared.max(1) as f64;
        lines.push(format!(
            "{:<40} {} compared, {} different ({share:.1} %)",
            self.route, self.compared, self.different
        ));
        if self.time.slower {
            let Times { p50, p90, .. } = &self.time;
            lines.push(format!(
                "  timing    slower: median {:.1} ms, was {:.1}; p90 {:.1} ms, was {:.1}",
                p50[1], p50[0], p90[1], p90[0]
            ));
        }
        for part in self.parts.iter().filter(|part| part.verdict == Verdict::Difference).take(8) {
            let place = part.place.as_deref().map(|place| format!(" at {place}")).unwrap_or_default();
            let sample =
                part.sample.as_deref().map(|sample| format!("  [show {sample}]")).unwrap_or_default();
            lines.push(format!("  {:<9} {} × {}{place}{sample}", part.class, part.count, part.part));
            let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "(none)".to_owned());
            lines.push(format!("            old {}", value(&part.old)));
            lines.push(format!("            new {}", value(&part.new)));
        }
        for (reason, count) in &self.not_compared {
            lines.push(format!("  not compared: {count} × {reason}"));
        }
        if self.partial_bodies > 0 {
            lines.push(format!("  {} bodies were compared up to the limit alone", self.partial_bodies));
        }
    }
}

fn of_route(name: &str, route: &Route) -> RouteReport {
    let mut classes: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut different = 0;
    for (parts, count) in &route.combinations {
        let class = route.class(parts);
        *classes.entry(class.name()).or_default() += count;
        different += if class.is_difference() { *count } else { 0 };
    }
    let not_compared: u64 = route.not_compared.values().sum();
    for (class, count) in [(Class::Same, route.same), (Class::NotCompared, not_compared)] {
        if count > 0 {
            *classes.entry(class.name()).or_default() += count;
        }
    }
    let mut parts: Vec<_> = route.parts.iter().filter(|part| part.raw > 0).collect();
    parts.sort_by(|a, b| {
        route.is_noise(a).cmp(&route.is_noise(b)).then(a.class.cmp(&b.class)).then(b.raw.cmp(&a.raw))
    });
    let parts = parts.into_iter().map(|part| {
        let example = part.example.as_ref();
        FieldReport {
            class: part.class.name(),
            part: part.name.clone(),
            verdict: if route.is_noise(part) { Verdict::Noise } else { Verdict::Difference },
            count: part.raw,
            noise: part.noise,
            place: example.and_then(|(difference, _)| difference.place.clone()),
            old: example.and_then(|(difference, _)| difference.old.clone()),
            new: example.and_then(|(difference, _)| difference.new.clone()),
            sample: example.and_then(|(_, sample)| sample.map(|sample| format!("{sample:x}"))),
        }
    });
    RouteReport {
        route: name.to_owned(),
        compared: route.compared,
        learned: route.learned,
        different,
        classes,
        not_compared: route.not_compared.clone(),
        partial_bodies: route.partial,
        time: times(route),
        parts: parts.collect(),
    }
}

fn times(route: &Route) -> Times {
    let millis = |time: Duration| (time.as_secs_f64() * 100_000.0).round() / 100.0;
    let at = |share: f64| [millis(route.old_time.quantile(share)), millis(route.new_time.quantile(share))];
    let pair = |times: &crate::histogram::Histogram| (times.quantile(0.5), times.quantile(0.9));
    let slower = is_slower(pair(&route.old_time), pair(&route.new_time), route.new_time.count());
    Times { p50: at(0.5), p90: at(0.9), p99: at(0.99), slower }
}
