//! The values that one step passes to the next.

use std::sync::Arc;

use foregate_coding::ContentCoding;
use foregate_module::{Kind, Shown, Value};

use crate::engine::{Report, Transaction};

/// A request's transaction, as it is stored between two steps.
pub struct HeldTransaction {
    /// The transaction; `None` if there was no memory for it.
    pub(super) transaction: Option<Transaction>,
    /// The report at the time when the transaction was given up for its memory.
    pub(super) report: Option<Report>,
    /// The transaction's id, in the logs and in the response to the client.
    pub(super) id: Arc<str>,
    /// When the transaction began, in milliseconds of the monotonic clock.
    pub(super) began: u64,
    /// The size of the request's head, in bytes.
    pub(super) head: usize,
    /// The number of values in the request's head.
    pub(super) values: usize,
    /// Set if rules have seen only the start of a request's body that exceeds the limit.
    pub(super) is_cut: bool,
    /// Set once rules have seen the head of a response.
    pub(super) answered: bool,
    /// Set if the response's body is held back because rules read it.
    pub(super) holds: bool,
    /// The content coding of the response's body.
    pub(super) coding: Option<ContentCoding>,
    /// The most bytes of the response's body that rules look at, counted after decoding.
    pub(super) limit: usize,
    /// The bytes of the transaction's text that [`count`](Self::count) has returned so far.
    pub(super) counted: usize,
}

/// The size of a transaction's text above which the text counts as used memory, in bytes.
const COUNTED: usize = 128 << 10;

impl HeldTransaction {
    /// Returns the number of further bytes to count as used memory, now that the transaction has `text` bytes of text.
    pub(super) fn count(&mut self, text: usize) -> usize {
        let more = if text > COUNTED { text.saturating_sub(self.counted) } else { 0 };
        self.counted += more;
        more
    }
}

/// The transaction of a request.
pub struct TransactionValue;

impl Value for TransactionValue {
    type Data = Box<HeldTransaction>;
    const NAME: &'static str = "waf.transaction";
    const ABOUT: &'static str = "The state of the firewall's rules for the request.";

    /// Frees the transaction and keeps its report, so that the matches are still logged.
    fn shrink(held: &mut Box<HeldTransaction>) -> bool {
        if let Some(transaction) = held.transaction.take() {
            held.report = Some(transaction.log());
        }
        held.report.is_some()
    }
}

/// The score of the request.
pub struct Score;

impl Value for Score {
    type Data = i64;
    const NAME: &'static str = "waf.score";
    const ABOUT: &'static str =
        "The anomaly score of the request by the rules of its head and body; 0 where none matched.";
    const SHOWS: Option<Kind> = Some(Kind::Int);
    fn show(score: &i64) -> Option<Shown<'_>> {
        Some(Shown::Int(*score))
    }
}

/// True if the rules would block the request.
pub struct Blocked;

impl Value for Blocked {
    type Data = bool;
    const NAME: &'static str = "waf.blocked";
    const ABOUT: &'static str =
        "True if the rules would stop the request; it goes on because they only detect.";
    const SHOWS: Option<Kind> = Some(Kind::Bool);
    fn show(blocked: &bool) -> Option<Shown<'_>> {
        Some(Shown::Bool(*blocked))
    }
}

/// The first rule that would block the request.
pub struct MatchedRule;

impl Value for MatchedRule {
    type Data = i64;
    const NAME: &'static str = "waf.rule";
    const ABOUT: &'static str =
        "The number of the rule that would stop the request, the first of several; absent where none would.";
    const SHOWS: Option<Kind> = Some(Kind::Int);
    fn show(rule: &i64) -> Option<Shown<'_>> {
        Some(Shown::Int(*rule))
    }
}

/// All rules that would block the request.
pub struct Rules;

impl Value for Rules {
    type Data = Vec<i64>;
    const NAME: &'static str = "waf.rules";
    const ABOUT: &'static str = "The numbers of all rules that would stop the request, and 0 where it has gone beyond a limit for \
                                 which it would be refused; absent where nothing would.";
    const SHOWS: Option<Kind> = Some(Kind::Ints);
    fn show(rules: &Vec<i64>) -> Option<Shown<'_>> {
        Some(Shown::Ints(rules))
    }
}

/// The limit that the request has gone beyond.
pub struct OverBudget;

impl Value for OverBudget {
    type Data = &'static str;
    const NAME: &'static str = "waf.over_budget";
    const ABOUT: &'static str = "The limit of the firewall that the request has gone beyond, `arguments`, `fields`, `variables`, \
                                 `text` or `work`, so that rules have not seen all of it; absent where it has not.";
    const SHOWS: Option<Kind> = Some(Kind::Bytes);
    fn show<'v>(limit: &'v &'static str) -> Option<Shown<'v>> {
        Some(Shown::Bytes(limit.as_bytes()))
    }
}
