//! The thread that compares.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use foregate_compare::{
    AskedRequest, Class, Key, Name, Redaction, Report, Rules, Tally, compare_requests, page,
};
use serde_json::{Value, json};

use super::queue::QueueWorker;
use super::samples::SampleStore;
use super::{
    ComparisonAnswer, ComparisonQuestion, ComparisonRefusal, ComparisonWork, Pair, Pause, ReportFormat,
};
use crate::counters::comparisons::ComparisonCounters;
use crate::settings::CompareSamples;

/// The most parts of responses that administrators may exclude from comparisons.
const IGNORED_MOST: usize = 1000;

/// The state of the thread.
pub(super) struct Judge {
    counters: Arc<ComparisonCounters>,
    pause: Arc<Pause>,
    tally: Tally,
    /// Parts of responses that administrators have excluded. The list lasts until the process ends.
    ignored: Vec<Name>,
    store: Option<SampleStore>,
    /// The key for hashes of values if the folder of samples has no key.
    key: Key,
}

impl Judge {
    pub fn new(counters: Arc<ComparisonCounters>, pause: Arc<Pause>) -> Self {
        let key = Key::new(super::samples::random_key());
        Self { counters, pause, tally: Tally::default(), ignored: Vec::new(), store: None, key }
    }

    /// Works until the process ends.
    pub fn run(mut self, queue: &QueueWorker) {
        while let Some(works) = queue.take() {
            if works.is_empty()
                && let Some(store) = &mut self.store
            {
                store.expire(now());
            }
            for work in works {
                self.work(work);
            }
        }
    }

    fn work(&mut self, work: ComparisonWork) {
        match work {
            ComparisonWork::Compare(pair) => {
                self.compare(&pair);
                pair.end();
            }
            ComparisonWork::Same(same) => {
                self.counters.count(Class::Same.name());
                self.tally.same(&same.route, same.times, same.is_learned);
            }
            ComparisonWork::NotCompared(route, reason) => {
                self.counters.count(Class::NotCompared.name());
                self.tally.not_compared(&route, reason);
            }
            ComparisonWork::Answer(question, samples, answer) => {
                // The administrator may have left.
                let _ = answer.send(self.answer(&question, &samples));
            }
        }
    }

    fn compare(&mut self, pair: &Pair) {
        let Pair { route, compare, samples, request, old, again, new, asked, .. } = pair;
        let rules = self.rules(&compare.rules);
        let rules = &*rules;
        if let Some(again) = again {
            self.tally.learn(route, old, again, rules);
        }
        let found = match asked {
            None => self.tally.compare(route, old, new, rules),
            // The times are not compared: the response of the origin was replayed.
            Some(asked) if asked.is_tapped => {
                let of_requests = compare_requests(asked.old.as_ref(), asked.new.as_ref(), rules);
                // The old proxy sent no request to the origin, so there was no response to replay, and this proxy's response says
                // nothing.
                let new = if asked.old.is_none() && asked.new.is_some() { old } else { new };
                self.tally.compare_with(route, of_requests, old, new, rules)
            }
            Some(_) => self.tally.compare_with(route, Vec::new(), old, new, rules),
        };
        self.counters.count(found.class.name());
        if found.differences.is_empty() {
            return;
        }
        let group = format!("{route} {}", found.class.name());
        let wants_sample = found.class.is_difference() && self.wants_sample(samples, &group);
        if !wants_sample && self.tally.has_examples(route, &found.differences) {
            return;
        }
        let redaction = self.redaction(samples);
        let shown = redaction.differences(&found.differences);
        let mut number = None;
        if wants_sample {
            let fields = request.fields.iter().map(|field| {
                let name = String::from_utf8_lossy(field.name);
                format!("{name}: {}", redaction.field(&name, field.value))
            });
            let fields = fields.collect::<Vec<_>>();
            let differences = shown.iter().map(|difference| {
                json!({
                    "class": difference.class.name(), "part": difference.part, "place": difference.place,
                    "old": difference.old, "new": difference.new,
                })
            });
            let mut sample = json!({
                "time": now(),
                "route": &**route,
                "class": found.class.name(),
                "request": {
                    "method": request.method,
                    "url": format!("{}{}", request.origin, redaction.target(&request.target)),
                    "fields": fields,
                    "length": request.length,
                },
                "differences": differences.collect::<Vec<_>>(),
                "old": redaction.outcome(old),
                "new": redaction.outcome(new),
            });
            if let Some(asked) = asked.as_ref().filter(|asked| asked.is_tapped) {
                sample["asked"] = json!({
                    "old": shown_request(&redaction, asked.old.as_ref()),
                    "new": shown_request(&redaction, asked.new.as_ref()),
                });
            }
            number = self.write(samples, &group, &sample);
        }
        self.tally.example(route, &shown, number);
    }

    /// The rules of a route, with the parts that administrators have excluded since.
    fn rules<'r>(&self, of_route: &'r Rules) -> Cow<'r, Rules> {
        let mut rules = Cow::Borrowed(of_route);
        for name in &self.ignored {
            rules.to_mut().ignore(name.clone());
        }
        rules
    }

    /// Returns true if a sample of this group should be written. A full group gets at most one new sample a second:
    /// otherwise a difference in each request would cause a file for each request.
    fn wants_sample(&mut self, settings: &CompareSamples, group: &str) -> bool {
        // If this fails, the attempt to write reports the error.
        self.store(settings).map_or(true, |store| store.wants(group, now()))
    }

    /// Writes a sample. If that fails, comparisons pause, because the disk may be full.
    fn write(&mut self, settings: &CompareSamples, group: &str, sample: &Value) -> Option<u64> {
        let written = self.store(settings).and_then(|store| store.write(group, sample, now()));
        match written {
            Ok(number) => Some(number),
            Err(error) => {
                self.counters.samples_failed.inc();
                self.pause.begin();
                tracing::warn!(folder = %settings.folder.display(), %error, "a sample of a comparison cannot be written");
                None
            }
        }
    }

    fn store(&mut self, settings: &CompareSamples) -> std::io::Result<&mut SampleStore> {
        let fits = self.store.as_ref().is_some_and(|store| store.folder() == settings.folder);
        if !fits {
            self.store = Some(SampleStore::open(settings)?);
        }
        let Some(store) = &mut self.store else { return Err(std::io::ErrorKind::NotFound.into()) };
        store.set_limits(settings);
        Ok(store)
    }

    fn redaction(&mut self, settings: &CompareSamples) -> Redaction {
        if settings.raw {
            return Redaction::Raw;
        }
        let key = self.store(settings).ok().map(|store| store.key().clone());
        Redaction::Hashed(key.unwrap_or_else(|| self.key.clone()))
    }

    fn answer(&mut self, question: &ComparisonQuestion, samples: &CompareSamples) -> ComparisonAnswer {
        match question {
            ComparisonQuestion::Report(format) => {
                let report = Report::new(&self.tally, self.ignored.iter().map(Name::as_str));
                Ok(match format {
                    ReportFormat::Text => report.text().into(),
                    ReportFormat::Html => page(&report).into(),
                    ReportFormat::Json => serde_json::to_value(&report)
                        .expect("a report has only texts, numbers and lists and maps of them"),
                })
            }
            ComparisonQuestion::Show(number) => {
                // Opening the folder would create it.
                if self.store.is_none() && !samples.folder.exists() {
                    return Err(ComparisonRefusal::NoSample(*number));
                }
                let store =
                    self.store(samples).map_err(|error| ComparisonRefusal::Folder(error.to_string()))?;
                store.expire(now());
                store.read(*number).ok_or(ComparisonRefusal::NoSample(*number))
            }
            ComparisonQuestion::Ignore(part) => {
                let name = Name::read(part).map_err(ComparisonRefusal::NoPart)?;
                let is_new = !self.ignored.contains(&name);
                if is_new && self.ignored.len() >= IGNORED_MOST {
                    return Err(ComparisonRefusal::TooMany(IGNORED_MOST));
                }
                let shown = name.as_str().to_owned();
                let mut rules = Rules::default();
                rules.ignore(name.clone());
                self.tally.forget(&rules);
                if is_new {
                    self.ignored.push(name);
                }
                Ok(shown.into())
            }
        }
    }
}

/// A request to an origin, as samples show it.
fn shown_request(redaction: &Redaction, asked: Option<&AskedRequest>) -> Value {
    asked.map_or(Value::Null, |asked| {
        let fields = asked.message.fields.iter();
        let fields = fields.map(|(name, value)| format!("{name}: {}", redaction.field(name, value)));
        json!({
            "method": asked.method,
            "target": redaction.target(&asked.target),
            "host": asked.host,
            "fields": fields.collect::<Vec<_>>(),
            "length": asked.message.body.length,
        })
    })
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
