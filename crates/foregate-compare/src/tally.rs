//! Counts of comparisons, by route, and the noise of the old system.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::answer::{Answer, Outcome};
use crate::difference::{Class, Difference, compare, is_partial};
use crate::histogram::Histogram;
use crate::rules::Rules;

/// The most routes that are counted separately. Further routes are counted together.
const ROUTES_MOST: usize = 1000;
/// The most parts of the answers of a route that are counted separately.
const PARTS_MOST: usize = 200;
/// The most combinations of differing parts that are counted separately for a route.
const COMBINATIONS_MOST: usize = 400;
/// The most reasons for not comparing that are counted separately for a route.
const REASONS_MOST: usize = 20;
/// The name under which all further routes are counted.
pub(crate) const OTHERS: &str = "(others)";

/// Counts of one part of the answers of a route.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub class: Class,
    pub name: String,
    /// The number of comparisons between the two systems that differ in this part. `noise` is the number of
    /// comparisons between two answers of the old system that do.
    pub raw: u64,
    pub noise: u64,
    /// The first difference, and the number of its sample.
    pub example: Option<(Difference, Option<u64>)>,
}

/// Counts of a route.
#[derive(Debug, Clone, Default)]
pub(crate) struct Route {
    /// The number of comparisons of old and new. `learned` counts those of old and old.
    pub compared: u64,
    pub learned: u64,
    pub same: u64,
    /// Comparisons whose bodies were compared up to a limit only.
    pub partial: u64,
    pub not_compared: BTreeMap<String, u64>,
    pub parts: Vec<Part>,
    /// For each combination of parts, the number of comparisons in which exactly these parts differed.
    pub combinations: HashMap<Vec<u16>, u64>,
    pub old_time: Histogram,
    pub new_time: Histogram,
}

impl Route {
    /// The index of a part.
    fn part(&mut self, difference: &Difference) -> u16 {
        let is_it = |part: &Part| part.class == difference.class && part.name == difference.part;
        let found = self.parts.iter().position(is_it).or_else(|| {
            (self.parts.len() >= PARTS_MOST).then_some(()).and_then(|()| {
                self.parts.iter().position(|part| part.class == difference.class && part.name == OTHERS)
            })
        });
        let at = found.unwrap_or_else(|| {
            let full = self.parts.len() >= PARTS_MOST;
            let name = if full { OTHERS.to_owned() } else { difference.part.clone() };
            self.parts.push(Part { class: difference.class, name, raw: 0, noise: 0, example: None });
            self.parts.len() - 1
        });
        u16::try_from(at).unwrap_or(u16::MAX)
    }

    /// The indices of the parts of these differences, each once.
    fn indices(&mut self, differences: &[Difference]) -> Vec<u16> {
        let mut all: Vec<u16> = differences.iter().map(|difference| self.part(difference)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns true if the differences of a part are noise, by the rule of Diffy: the old and the new system do not
    /// differ in the part clearly more often than two answers of the old system do.
    pub fn is_noise(&self, part: &Part) -> bool {
        if part.noise == 0 || self.learned == 0 || self.compared == 0 {
            return false;
        }
        let raw = 100.0 * part.raw as f64 / self.compared as f64;
        let noise = 100.0 * part.noise as f64 / self.learned as f64;
        let relative = 100.0 * (raw - noise).abs() / (raw + noise);
        // With few comparisons, both percentages vary by chance. So they may differ by three standard errors more than
        // the rule allows.
        let variance = |share: f64, count: u64| {
            let (p, n) = (share / 100.0, count as f64);
            p * (1.0 - p) / n + 0.25 / (n * n)
        };
        let doubt = 300.0 * (variance(raw, self.compared) + variance(noise, self.learned)).sqrt();
        !(raw > noise + doubt && relative > 20.0 && raw - noise > 0.03)
    }

    /// The class of a comparison in which these parts differ.
    pub fn class(&self, parts: &[u16]) -> Class {
        let parts = parts.iter().filter_map(|at| self.parts.get(usize::from(*at)));
        let true_ones = parts.filter(|part| !self.is_noise(part));
        true_ones.map(|part| part.class).min().unwrap_or(Class::Noise)
    }
}

/// The result of one comparison.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The class, by the noise that is known so far.
    pub class: Class,
    /// The differences, including those that are noise.
    pub differences: Vec<Difference>,
}

/// The counts of all comparisons; memory is bounded whatever the systems answer.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub(crate) routes: BTreeMap<String, Route>,
}

impl Tally {
    fn route(&mut self, name: &str) -> &mut Route {
        let is_known = self.routes.contains_key(name);
        let name = if is_known || self.routes.len() < ROUTES_MOST { name } else { OTHERS };
        self.routes.entry(name.to_owned()).or_default()
    }

    /// Compares an answer of each system, and counts it.
    pub fn compare(&mut self, route: &str, old: &Outcome, new: &Outcome, rules: &Rules) -> Comparison {
        if let (Outcome::Answered(old), Outcome::Answered(new)) = (old, new) {
            let route = self.route(route);
            route.old_time.record(old.time);
            route.new_time.record(new.time);
        }
        self.compare_with(route, Vec::new(), old, new, rules)
    }

    /// Like [`Self::compare`], for differences that are known already. The times are not counted.
    pub fn compare_with(
        &mut self,
        route: &str,
        mut differences: Vec<Difference>,
        old: &Outcome,
        new: &Outcome,
        rules: &Rules,
    ) -> Comparison {
        differences.extend(compare(old, new, rules));
        let route = self.route(route);
        route.compared += 1;
        if let (Outcome::Answered(old), Outcome::Answered(new)) = (old, new) {
            route.partial += u64::from(is_partial_pair(old, new, rules));
        }
        if differences.is_empty() {
            route.same += 1;
            return Comparison { class: Class::Same, differences };
        }
        let parts = route.indices(&differences);
        for at in &parts {
            if let Some(part) = route.parts.get_mut(usize::from(*at)) {
                part.raw += 1;
            }
        }
        let class = route.class(&parts);
        let is_new =
            route.combinations.len() >= COMBINATIONS_MOST && !route.combinations.contains_key(&parts);
        // There are too many combinations already: only the worst of the parts is counted.
        let worst = || {
            let worst =
                parts.iter().min_by_key(|at| route.parts.get(usize::from(**at)).map(|part| part.class));
            worst.into_iter().copied().collect::<Vec<_>>()
        };
        let counted = if is_new { worst() } else { parts };
        *route.combinations.entry(counted).or_default() += 1;
        Comparison { class, differences }
    }

    /// Counts a comparison without differences. `times` are the times of both answers, unless they are meaningless.
    /// `is_learned` is true if the old system has also given the same answer twice.
    pub fn same(&mut self, route: &str, times: Option<(Duration, Duration)>, is_learned: bool) {
        let route = self.route(route);
        route.compared += 1;
        route.same += 1;
        route.learned += u64::from(is_learned);
        if let Some((old, new)) = times {
            route.old_time.record(old);
            route.new_time.record(new);
        }
    }

    /// Returns true if the route has an example of each of these differences.
    pub fn has_examples(&mut self, route: &str, differences: &[Difference]) -> bool {
        let route = self.route(route);
        differences.iter().all(|difference| {
            let at = usize::from(route.part(difference));
            route.parts.get(at).is_none_or(|part| part.example.is_some())
        })
    }

    /// Learns the noise from two answers of the old system to the same request.
    pub fn learn(&mut self, route: &str, one: &Outcome, other: &Outcome, rules: &Rules) {
        if matches!((one, other), (Outcome::Failed(_), _) | (_, Outcome::Failed(_))) {
            return;
        }
        let differences = compare(one, other, rules);
        let route = self.route(route);
        route.learned += 1;
        for at in route.indices(&differences) {
            if let Some(part) = route.parts.get_mut(usize::from(at)) {
                part.noise += 1;
            }
        }
    }

    /// Counts a request that was not compared, and why.
    pub fn not_compared(&mut self, route: &str, reason: &str) {
        let reasons = &mut self.route(route).not_compared;
        let is_known = reasons.contains_key(reason) || reasons.len() < REASONS_MOST;
        *reasons.entry(if is_known { reason } else { OTHERS }.to_owned()).or_default() += 1;
    }

    /// Keeps the first example of each difference, in a form that may be shown, with the number of its sample.
    pub fn example(&mut self, route: &str, shown: &[Difference], sample: Option<u64>) {
        let route = self.route(route);
        for difference in shown {
            let at = usize::from(route.part(difference));
            if let Some(part) = route.parts.get_mut(at)
                && part.example.as_ref().is_none_or(|(_, known)| known.is_none() && sample.is_some())
            {
                part.example = Some((difference.clone(), sample));
            }
        }
    }

    /// Returns true if the old system has been compared with itself fewer than `least` times for a route.
    pub fn should_learn(&self, route: &str, least: u64) -> bool {
        self.routes.get(route).is_none_or(|route| route.learned < least)
    }

    /// Drops the counts of the parts that `rules` ignore.
    pub fn forget(&mut self, rules: &Rules) {
        for route in self.routes.values_mut() {
            let gone: Vec<bool> = route.parts.iter().map(|part| rules.ignores(&part.name)).collect();
            let is_gone = |at: &u16| gone.get(usize::from(*at)).copied().unwrap_or(false);
            for (parts, count) in std::mem::take(&mut route.combinations) {
                let rest: Vec<u16> = parts.into_iter().filter(|at| !is_gone(at)).collect();
                match rest.is_empty() {
                    true => route.same += count,
                    false => *route.combinations.entry(rest).or_default() += count,
                }
            }
            for (part, gone) in route.parts.iter_mut().zip(gone) {
                if gone {
                    (part.raw, part.noise, part.example) = (0, 0, None);
                }
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.routes.clear();
    }
}

fn is_partial_pair(old: &Answer, new: &Answer, rules: &Rules) -> bool {
    // Most bodies were kept whole, and checking that first is cheap.
    !(old.body.is_whole() && new.body.is_whole()) && is_partial(old, new, rules)
}

/// Returns true if a system takes clearly longer: see [`crate::Report`].
pub(crate) fn is_slower(old: (Duration, Duration), new: (Duration, Duration), count: u64) -> bool {
    const LEAST: u64 = 20;
    const MARGIN: Duration = Duration::from_millis(5);
    let slower = |old: Duration, new: Duration| new > old * 3 / 2 && new > old + MARGIN;
    count >= LEAST && (slower(old.0, new.0) || slower(old.1, new.1) && new.1 > old.1 * 2)
}
