//! The report of a transaction: its matches, as values and as log lines.

use std::sync::Arc;

use super::budget::Over;
use super::expand::View;
use super::expression::Expression;
use super::limits::LOOK;
use super::secrets::{HIDDEN, may_copy};
use super::state::{MatchedValue, NameRef};
use super::values::Span;
use super::verdict::Verdict;
use crate::model::{
    Action, Change, Number, Operator, Phase, Place, Rule, RuleId, Severity, Template, Variable,
    WritableCollection,
};

/// The most bytes of an operator's argument that a report shows.
const PARAMETER: usize = 200;
/// The most values that one match lists.
pub(super) const VALUES: usize = 10;

/// A rule that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The id of the rule.
    pub rule: RuleId,
    /// The place of the rule in its file.
    pub place: Place,
    /// The phase in which the rule ran.
    pub phase: Phase,
    /// `msg`, expanded.
    pub message: String,
    /// `logdata`, expanded, secrets hidden.
    pub data: String,
    /// `severity`.
    pub severity: Option<Severity>,
    /// `tag`s, expanded.
    pub tags: Vec<String>,
    /// `rev`.
    pub revision: Option<Box<str>>,
    /// `ver`.
    pub version: Option<Box<str>>,
    /// `maturity`.
    pub maturity: Option<u8>,
    /// `accuracy`.
    pub accuracy: Option<u8>,
    /// The operator of the link that matched last, such as `rx` or `!rx`; empty if the rule is a `SecAction`.
    pub operator: String,
    /// The argument of the operator, shortened.
    pub parameter: String,
    /// The full name of the variable that matched last, shortened.
    pub variable: String,
    /// The value that matched last, shortened, with secrets hidden.
    pub value: String,
    /// The first ten matches of all links: the full name and the value of each.
    pub values: Vec<(String, String)>,
    /// The effect of the match on the request; [`Verdict::Pass`] unless the engine is on.
    pub verdict: Verdict,
    /// Set if the rule adds to a score.
    pub scores: bool,
    /// Set if the match is written to the log.
    pub log: bool,
    /// Set if the match is written to the audit log.
    pub audit_log: bool,
}

/// The matches of a transaction, its verdict and its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The transaction's id.
    pub unique_id: Arc<str>,
    /// The client's address.
    pub client: String,
    /// The host that the client asked for.
    pub host: String,
    /// The path of the request, as received.
    pub uri: String,
    /// The matches, in order.
    pub matches: Vec<Match>,
    /// The number of further matches that were not kept.
    pub omitted: u64,
    /// The verdict that was applied.
    pub verdict: Verdict,
    /// The verdict of a blocking host: see [`would`](super::Transaction::would).
    pub would: Verdict,
    /// The limit of the budget that was exceeded, if any.
    pub over: Option<Over>,
    /// The limit that the request's body exceeded, if nothing had been decided before. Because of the limit, the
    /// request was denied, or a blocking host would have denied the request. Neither is the case if a rule has switched
    /// the engine to detection. See [`deny_for`](super::Transaction::deny_for).
    pub beyond: Option<&'static str>,
    /// The reason why rules could not read the request's body, if the host has denied the request for it or would
    /// have.
    pub unreadable: Option<String>,
    /// Set if the request passed although rules could not read its body.
    pub unread: bool,
    /// The worst severity of the rules that matched.
    pub highest_severity: Option<u8>,
    /// `TX.blocking_inbound_anomaly_score`, the sum by which the Core Rule Set decides; `None` if no rule sets it.
    pub inbound_score: Option<i64>,
    /// `TX.blocking_outbound_anomaly_score`.
    pub outbound_score: Option<i64>,
    /// The number of times that an operator looked at a value.
    pub looks: u64,
    /// Work done, in units of [`Limits::work`](super::TransactionLimits::work).
    pub work: u64,
    /// The record for the audit log, if it is to be written: one JSON object.
    pub audit: Option<String>,
}

impl Report {
    /// The rules that added to the score, the most severe first; at most `most` of them.
    pub fn scoring_rules(&self, most: usize) -> Vec<RuleId> {
        let mut found: Vec<(u8, RuleId)> = Vec::new();
        for matched in self.matches.iter().filter(|matched| matched.scores && matched.log) {
            if !found.iter().any(|(_, rule)| *rule == matched.rule) {
                found.push((matched.severity.map_or(u8::MAX, Severity::number), matched.rule));
            }
        }
        found.sort_by_key(|(severity, _)| *severity);
        found.into_iter().take(most).map(|(_, rule)| rule).collect()
    }

    /// The lines for the log: one for each logged match, one if the budget was exceeded, and one if the body
    /// exceeded a limit.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let matched = self.matches.iter().filter(|matched| matched.log).map(|matched| matched.line(self));
        let over = self.over.map(|over| {
            self.line(
                self.denied(),
                &format!("Over the budget by the limit `{}'.", over.name()),
                "over-budget",
            )
        });
        let beyond = self.beyond.map(|limit| {
            self.line(
                self.denied(),
                &format!("The request's body is longer than the limit `{limit}'."),
                "body-limit",
            )
        });
        let unreadable = self.unreadable.as_ref().map(|why| {
            self.line(
                self.denied(),
                &format!("Rules cannot read the request's body: {}.", escape(why.as_bytes())),
                "unreadable",
            )
        });
        matched.chain(over).chain(beyond).chain(unreadable)
    }

    /// The status with which the request was denied, if something other than a rule denied it.
    fn denied(&self) -> Option<u16> {
        match self.verdict {
            Verdict::Deny { status, rule: None } => Some(status),
            _ => None,
        }
    }

    /// A log line about the transaction as a whole: a denial if `denied` has a status, and otherwise a warning.
    pub fn line(&self, denied: Option<u16>, what: &str, kind: &str) -> String {
        let denied = denied
            .map_or_else(|| "Warning. ".to_owned(), |status| format!("Access denied with code {status}. "));
        format!(
            "[client {}] ModSecurity: {denied}{what} [msg \"{kind}\"] [hostname \"{}\"] [uri \"{}\"] [unique_id \"{}\"]",
            self.client,
            escape(self.host.as_bytes()),
            escape(self.uri.as_bytes()),
            self.unique_id
        )
    }

    /// Turns the verdict into a hypothetical one, because it did not stop the request.
    pub(crate) fn stopped_nothing(&mut self) {
        let decided = std::mem::replace(&mut self.verdict, Verdict::Pass);
        if !decided.passes() {
            self.would = decided;
        }
        self.matches.iter_mut().for_each(|matched| matched.verdict = Verdict::Pass);
    }
}

impl Match {
    /// The match as one log line, in the format of ModSecurity's log, which tools understand.
    pub fn line(&self, report: &Report) -> String {
        let mut line = format!("[client {}] ModSecurity: ", report.client);
        let phase = self.phase.number();
        match &self.verdict {
            Verdict::Pass => line.push_str("Warning. "),
            Verdict::Deny { status, .. } => {
                line.push_str(&format!("Access denied with code {status} (phase {phase}). "));
            }
            Verdict::Redirect { status, to, .. } => {
                let to = escape(to);
                line.push_str(&format!(
                    "Access denied with redirection to {to} using status {status} (phase {phase}). "
                ));
            }
            Verdict::Drop { .. } => {
                line.push_str(&format!("Access denied with connection close (phase {phase}). "));
            }
        }
        line.push_str(&self.reason());
        let mut part = |name: &str, value: &str| {
            line.push_str(" [");
            line.push_str(name);
            line.push_str(" \"");
            line.push_str(&escape(value.as_bytes()));
            line.push_str("\"]");
        };
        part("file", &self.place.file);
        part("line", &self.place.line.to_string());
        part("id", &self.rule.to_string());
        part("rev", self.revision.as_deref().unwrap_or_default());
        part("msg", &self.message);
        part("data", &self.data);
        part("severity", &self.severity.map_or(0, Severity::number).to_string());
        part("ver", self.version.as_deref().unwrap_or_default());
        part("maturity", &self.maturity.unwrap_or(0).to_string());
        part("accuracy", &self.accuracy.unwrap_or(0).to_string());
        self.tags.iter().for_each(|tag| part("tag", tag));
        part("hostname", &report.host);
        part("uri", &report.uri);
        part("unique_id", &report.unique_id);
        line
    }

    fn reason(&self) -> String {
        if self.operator.is_empty() {
            return "Unconditional match in SecAction.".to_owned();
        }
        let (not, name) = match self.operator.strip_prefix('!') {
            Some(name) => ("!", name),
            None => ("", &*self.operator),
        };
        let mut letters = name.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase()).into_iter();
        let name: String = first.chain(letters).collect();
        format!(
            "Matched \"Operator `{not}{name}' with parameter `{}' against variable `{}' (Value: `{}' )",
            escape(self.parameter.as_bytes()),
            escape(self.variable.as_bytes()),
            escape(self.value.as_bytes()),
        )
    }
}

/// Escapes a text as `\xHH` where a byte could end a quoted part or a line of the log.
pub(crate) fn escape(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text {
        match byte {
            b'"' | b'\\' | 0..0x20 | 0x7f.. => out.push_str(&format!("\\x{byte:02x}")),
            byte => out.push(char::from(*byte)),
        }
    }
    out
}

/// The first `limit` bytes of a text, with a mark at the end if it is longer.
pub(crate) fn shorten(text: &[u8], limit: usize) -> String {
    match text.get(..limit) {
        Some(beginning) if text.len() > limit => format!("{}...", String::from_utf8_lossy(beginning)),
        _ => String::from_utf8_lossy(text).into_owned(),
    }
}

/// An operator's argument as text.
fn parameter(operator: &Operator) -> String {
    let template = |text: &Template| shorten(text.to_string().as_bytes(), PARAMETER);
    match operator {
        Operator::Pm(phrases) => {
            let mut all = Vec::new();
            for phrase in phrases.iter() {
                all.extend_from_slice(phrase);
                all.push(b' ');
                if all.len() > PARAMETER {
                    break;
                }
            }
            shorten(all.trim_ascii_end(), PARAMETER)
        }
        Operator::Compare(_, Number::Fixed(number)) => number.to_string(),
        Operator::IpMatch(networks) => {
            let first: Vec<String> = networks
                .iter()
                .take(8)
                .map(|network| format!("{}/{}", network.address(), network.prefix()))
                .collect();
            shorten(first.join(",").as_bytes(), PARAMETER)
        }
        other => match (other.regex(), other.template()) {
            (Some(regex), _) => shorten(regex.text().as_bytes(), PARAMETER),
            (_, Some(text)) => template(text),
            _ => String::new(),
        },
    }
}

/// Returns true if a rule adds to a variable with `score` in its name, like the variables of the Core Rule Set.
fn adds_to_score(rule: &Rule) -> bool {
    let is_score = |name: &str| name.to_ascii_lowercase().contains("score");
    rule.links.iter().flat_map(|link| &link.actions).any(|action| match action {
        Action::SetVar(set) => {
            set.collection == WritableCollection::Tx
                && matches!(set.change, Change::Add(_))
                && set.name.literal().is_some_and(is_score)
        }
        _ => false,
    })
}

/// The text of a rule about a match.
enum MatchText<'a> {
    /// A constant text. It contains nothing from a request that could be a secret.
    Fixed(&'a [u8]),
    /// A text that contains values of the transaction.
    Made(Span),
}

impl<'a> View<'a> {
    fn told(&mut self, text: &'a Expression) -> MatchText<'a> {
        match text {
            Expression::Fixed(text) => MatchText::Fixed(text),
            Expression::Pieces(_) => MatchText::Made(self.expand(text)),
        }
    }

    /// Records the messages of a rule that matched.
    pub(crate) fn record(&mut self, rule: usize, verdict: Option<&Verdict>) {
        if self.state.matches.len() >= self.plan.limits.matches {
            self.state.omitted += 1;
            return;
        }
        let plan = self.plan;
        let compiled = &plan.rules[rule];
        let about = &compiled.about;
        let listed = self.listed();
        // The last match of each link may have been captured, so its value may be in a text too.
        let ends = self.state.matched.windows(2).filter(|pair| pair[0].link != pair[1].link);
        let secret = listed.iter().chain(ends.map(|pair| &pair[0])).any(|found| self.is_secret(found));
        self.state.hiding = secret;
        self.gather_secrets();
        let before = self.state.values.text.len();
        // Secrets are masked afterwards, which shortens the text. Twice the shown length is therefore read, so that
        // enough is left to show.
        self.state.piece = plan.limits.message.saturating_mul(2);
        let message = compiled.message.as_ref().map(|text| self.told(text));
        let data = compiled.data.as_ref().map(|text| self.told(text));
        let tags = compiled.tags.iter().map(|tag| self.told(tag)).collect::<Vec<_>>();
        self.state.hiding = false;
        self.state.piece = usize::MAX;
        let limit = plan.limits.message;
        let shown = |run: &Self, told: MatchText<'_>| match told {
            MatchText::Fixed(text) => shorten(text, limit),
            MatchText::Made(span) => {
                let text = run.state.values.text.get(span.part(0, limit.saturating_mul(4)));
                shorten(&run.state.masks.hide(text), limit)
            }
        };
        let mut values: Vec<(String, String)> =
            listed.iter().map(|found| self.shown(found, secret)).collect();
        let verdict = verdict.map_or(Verdict::Pass, |verdict| self.shown_verdict(verdict));
        let (variable, value) = values.last().cloned().unwrap_or_default();
        values.truncate(VALUES);
        let [message, data] =
            [message, data].map(|told| told.map_or(String::new(), |told| shown(self, told)));
        let tags = tags.into_iter().map(|tag| shown(self, tag)).collect();
        // The expanded text is no longer needed: no span refers to it.
        self.state.values.text.truncate(before);
        let link = self.last().map(|found| &about.links[found.link]);
        let operator = link.map_or(String::new(), |link| {
            format!("{}{}", if link.negated { "!" } else { "" }, link.operator.name())
        });
        self.state.masked.push(self.state.masks.version);
        self.state.matches.push(Match {
            rule: about.id,
            place: about.place.clone(),
            phase: about.phase,
            message,
            data,
            severity: about.severity,
            tags,
            revision: about.revision.clone(),
            version: about.version.clone(),
            maturity: about.maturity,
            accuracy: about.accuracy,
            operator,
            parameter: link.map_or(String::new(), |link| parameter(&link.operator)),
            variable,
            value,
            values,
            verdict,
            scores: adds_to_score(about),
            log: about.log,
            audit_log: about.audit_log,
        });
    }

    /// The matches for the log, now that all masks are known.
    pub(crate) fn shown_matches(&mut self) -> Vec<Match> {
        let mut matches = std::mem::take(&mut self.state.matches);
        let known = self.state.masks.version;
        if self.state.masked.first().is_none_or(|first| *first == known) {
            return matches;
        }
        self.gather_secrets();
        for (at, found) in matches.iter_mut().enumerate() {
            if self.state.masked.get(at) != Some(&known) {
                let (secrets, masks) = (&self.state.secrets, &self.state.masks);
                masks.hide_in(found, |text| secrets.hide(text, true, false).0, self.plan);
            }
        }
        matches
    }

    /// The matched values to show: the first [`VALUES`], and the last. Reading them counts as work.
    fn listed(&mut self) -> Vec<MatchedValue> {
        let matched = &self.state.matched;
        let first = matched.iter().take(VALUES);
        let listed: Vec<MatchedValue> =
            first.chain(matched.get(VALUES..).and_then(<[MatchedValue]>::last)).copied().collect();
        let bytes: usize = listed.iter().map(|found| found.value.len().min(self.plan.limits.shown * 4)).sum();
        self.state.budget.spend(bytes as u64 + LOOK * listed.len() as u64);
        listed
    }

    /// A verdict for the log: the target of a redirect may contain secrets.
    fn shown_verdict(&mut self, verdict: &Verdict) -> Verdict {
        let mut verdict = verdict.clone();
        if let Verdict::Redirect { to, .. } = &mut verdict {
            let shown = self.without_secrets(to, false, false);
            *to = self.state.masks.hide(&shown);
        }
        verdict
    }

    fn shown(&mut self, found: &MatchedValue, secret: bool) -> (String, String) {
        let mut label = Vec::new();
        let limit = self.plan.limits.shown;
        self.push_label(found.variable, found.name, limit + 1, &mut label);
        // A variable without a name, such as a body, may contain secrets. Only the secrets are hidden, unless the whole
        // value is a secret.
        let is_whole = match found.variable {
            Variable::MatchedVar => true,
            variable => self.state.masks.covers(variable, b"") || self.masks_matched(),
        };
        let hidden = secret && (found.name != NameRef::None || is_whole);
        let value = if hidden {
            String::from_utf8_lossy(HIDDEN).into_owned()
        } else {
            let value = self.state.values.text.get(found.value);
            // Masking shortens the text. Four times the limit leaves enough to show.
            let value = value.get(..limit * 4).unwrap_or(value).to_vec();
            let value = match may_copy(found.variable) {
                true => self.without_secrets(&value, false, found.variable == Variable::Xml),
                false => value,
            };
            shorten(&self.state.masks.hide(&value), limit)
        };
        // The name comes from the request and may contain secrets, such as JSON that was parsed as a form. The
        // variable before the colon comes from the rule.
        let named = memchr::memchr(b':', &label).map_or(label.len(), |colon| colon + 1);
        let name = self.state.masks.hide(&label.split_off(named));
        label.extend_from_slice(&name);
        (shorten(&label, limit), value)
    }
}
