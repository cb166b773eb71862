//! The figures of the last seconds, and the rates computed from them.

use std::collections::VecDeque;

use serde_json::Value;

/// The figures of the last seconds, one sample for each second, the newest last.
pub(super) struct Moments(pub(super) VecDeque<Value>);

/// The traffic of a site or route in the last seconds.
#[derive(Debug, Clone)]
pub(super) struct TrafficRow {
    pub(super) name: String,
    /// Requests per second.
    pub(super) rate: f64,
    /// The number of requests in the span that failed with a 5xx status.
    pub(super) failed: u64,
    /// The number of requests since the start of the process.
    pub(super) total: u64,
    durations: Vec<u64>,
}

impl Moments {
    pub(super) fn push(&mut self, figures: Value, most: usize) {
        // Another process counts from zero, so the old samples are dropped.
        if self.0.back().is_some_and(|last| last["process"] != figures["process"]) {
            self.0.clear();
        }
        while self.0.len() > most {
            self.0.pop_front();
        }
        self.0.push_back(figures);
    }

    /// The newest figures.
    pub(super) fn now(&self) -> &Value {
        self.0.back().unwrap_or(&Value::Null)
    }

    fn before(&self) -> &Value {
        self.0.front().unwrap_or(&Value::Null)
    }

    /// The seconds between the oldest and the newest sample.
    pub(super) fn seconds(&self) -> f64 {
        let time = |figures: &Value| figures["time"].as_f64().unwrap_or_default();
        (time(self.now()) - time(self.before())).max(0.001)
    }

    /// The increase of each counter in the list at `pointer` over the span.
    pub(super) fn counted(&self, pointer: &str) -> Vec<u64> {
        let at = |figures: &Value| figures.pointer(pointer).map(numbers).unwrap_or_default();
        less(at(self.now()), &at(self.before()))
    }

    /// The upper bounds of a histogram's buckets.
    pub(super) fn bounds(&self, name: &str) -> Vec<f64> {
        self.now()[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    }

    /// The traffic of the sites or routes at `pointer`; `name` gives each its name.
    pub(super) fn traffic(&self, pointer: &str, name: impl Fn(&Value) -> String) -> Vec<TrafficRow> {
        let rows =
            |figures: &Value| figures.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
        let old = rows(self.before());
        let seconds = self.seconds();
        let shown = rows(self.now()).into_iter().map(|row| {
            let label = name(&row);
            let then = old.iter().find(|then| name(then) == label);
            let of = |field: &str| {
                let then = then.map(|then| numbers(&then[field])).unwrap_or_default();
                less(numbers(&row[field]), &then)
            };
            let classes = of("classes");
            TrafficRow {
                name: label,
                rate: classes.iter().sum::<u64>() as f64 / seconds,
                failed: classes.get(5).copied().unwrap_or_default(),
                total: numbers(&row["classes"]).iter().sum(),
                durations: of("durations"),
            }
        });
        shown.collect()
    }
}

impl TrafficRow {
    /// A percentile of the durations, milliseconds.
    pub(super) fn percentile(&self, bounds: &[f64], share: f64) -> Option<Percentile> {
        percentile(&self.durations, bounds, share)
    }
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().into_iter().flatten().map(|number| number.as_u64().unwrap_or_default()).collect()
}

fn less(mut now: Vec<u64>, before: &[u64]) -> Vec<u64> {
    now.iter_mut().zip(before).for_each(|(now, before)| *now = now.saturating_sub(*before));
    now
}

/// A percentile, as far as a histogram tells it: the buckets are those of the metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Percentile {
    /// It lies in the bucket with this upper bound.
    AtMost(f64),
    /// It lies beyond the last bound.
    Above(f64),
}

impl Percentile {
    /// The bound.
    pub(super) fn bound(self) -> f64 {
        match self {
            Self::AtMost(bound) | Self::Above(bound) => bound,
        }
    }
}

/// A percentile of a histogram. `None` if the histogram is empty.
pub(super) fn percentile(buckets: &[u64], bounds: &[f64], share: f64) -> Option<Percentile> {
    let all: u64 = buckets.iter().sum();
    let mut left = share * all as f64;
    for (number, count) in buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
        let count = *count as f64;
        if left <= count {
            let last = bounds.last().copied().unwrap_or_default();
            return Some(
                bounds.get(number).map_or(Percentile::Above(last), |bound| Percentile::AtMost(*bound)),
            );
        }
        left -= count;
    }
    (all > 0).then(|| Percentile::Above(bounds.last().copied().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn percentiles_are_the_bounds_of_their_buckets() {
        let bounds = [1.0, 10.0];
        assert_eq!(percentile(&[0, 0, 0], &bounds, 0.5), None);
        assert_eq!(percentile(&[10, 0, 0], &bounds, 0.5), Some(Percentile::AtMost(1.0)));
        assert_eq!(percentile(&[50, 50, 0], &bounds, 0.75), Some(Percentile::AtMost(10.0)));
        assert_eq!(
            percentile(&[0, 0, 3], &bounds, 0.99),
            Some(Percentile::Above(10.0)),
            "beyond the last end"
        );
    }

    #[test]
    fn rates_are_between_moments_of_one_process() {
        let figures = |process: u64, time: f64, count: u64| {
            let row = json!({ "site": "a", "classes": [0, 0, count], "durations": [count] });
            json!({ "process": process, "time": time, "sites": { "shown": [row] } })
        };
        let name = |row: &Value| row["site"].as_str().unwrap_or_default().to_owned();
        let mut moments = Moments(VecDeque::new());
        moments.push(figures(1, 10.0, 100), 2);
        moments.push(figures(1, 12.0, 140), 2);
        let row = &moments.traffic("/sites/shown", name)[0];
        assert_eq!((row.rate, row.total), (20.0, 140));
        moments.push(figures(2, 13.0, 5), 2);
        assert_eq!((moments.0.len(), moments.traffic("/sites/shown", name)[0].rate), (1, 0.0));
    }
}
