//! Evaluates one request with the settings of a configuration, for `foregate waf explain`.

use foregate_module::{Exchange, View};

use super::begin::{begin, exclude};
use super::request::look_at_body;
use super::settings::WafSettings;
use crate::engine::Transaction;
use crate::model::{EngineMode, RuleSet};

/// A request for which rules have run, up to phase 2.
pub struct ExplainedRequest {
    /// The transaction. Rules only detect, so that all that match are found.
    pub transaction: Transaction,
    /// The keys `exclude` with conditions that hold for the request, as written.
    pub excludes: Vec<String>,
    /// Further notes for the reader.
    pub notes: Vec<String>,
}

impl WafSettings {
    /// Returns true if rules stop requests with these settings.
    pub fn blocks(&self) -> bool {
        !self.only_detects()
    }

    /// The rules from the files, with the changes by the other keys of `waf`. `None` if the files cannot be read again.
    pub fn rule_set(&self) -> Option<RuleSet> {
        self.compiled.rules()
    }

    /// Runs the rules for a request with this body, in the same way as the steps do for a client's request.
    pub fn explain(&self, exchange: &dyn Exchange, view: &View<'_>, body: &[u8]) -> Option<ExplainedRequest> {
        let with = (self.engine(), EngineMode::DetectionOnly);
        let (client, authority) = (exchange.client(), exchange.authority());
        let (now, random) = (exchange.now(), exchange.random());
        let mut held = begin(with, &exchange.received(), client, authority, now, random, false);
        let mut transaction = held.transaction.take()?;
        transaction.normal_target(exchange.path(), exchange.query());
        let holding = exclude(&mut transaction, self, view);
        let excludes = self.excludes.iter().enumerate();
        let excludes = excludes.filter(|(number, key)| !key.has_condition() || holding.contains(number));
        let excludes = excludes.map(|(_, key)| key.written()).collect();
        transaction.request_headers();
        let mut notes = Vec::new();
        let looks = transaction.request_body_limit().is_some();
        if !body.is_empty() && (self.body == 0 || !looks) {
            let why = match self.engine().settings().request_body_access && self.body > 0 {
                true => {
                    "a rule has said that none looks at the body (`ctl:requestBodyAccess`, `ctl:ruleEngine`)"
                }
                false => "no rule looks at the body: `SecRequestBodyAccess On` and a `body-limit` make them",
            };
            notes.push(why.to_owned());
        }
        let start = body.get(..self.body).filter(|_| looks).unwrap_or(if looks { body } else { b"" });
        let whole = start.len() == body.len() || !looks;
        let has_more = self.body > 0 && !whole;
        let (_, is_cut) = look_at_body(&mut transaction, self, start, whole, has_more);
        if is_cut {
            notes.push(format!("rules see the first {} bytes of the body alone", self.body));
        }
        if !self.samples_all() {
            notes.push("requests beyond `sample` pass unseen".to_owned());
        }
        Some(ExplainedRequest { transaction, excludes, notes })
    }
}
