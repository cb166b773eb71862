//! The `waf` module: its settings and its steps in a pipeline.
//!
//! | step | phase | effect |
//! |---|---|---|
//! | `waf-begin` | `request-security` | starts a transaction with the head of the request as it was sent |
//! | `waf-request` | `request-security` | phase 1 of the rules |
//! | `waf-body` | `request-body` | phase 2, and the values for later steps and expressions |
//! | `waf-response` | `response-headers` | phase 3; asks for the response's body if rules read it |
//! | `waf-response-part` | `response-body` | asks for the whole if the origin has sent a part that rules would read |
//! | `waf-response-body` | `response-body` | phase 4 |
//! | `waf-log` | `log` | phase 5, the logs; also of requests that were refused as malformed |
//!
//! The transaction moves from step to step ([`Take`](foregate_module::Take),
//! [`Emit`](foregate_module::Emit)). If a step has a large input, the step runs on a thread for heavy work,
//! and the transaction moves there with it.

mod answer;
mod begin;
mod engines;
mod explain;
mod keys;
mod log;
mod request;
mod response;
mod settings;
#[cfg(test)]
mod tests;
mod time;
mod values;

use foregate_module::group;

pub use self::begin::Begin;
pub use self::explain::ExplainedRequest;
pub use self::log::Log;
pub use self::request::{RequestBody, RequestHead};
pub use self::response::{ResponseHead, ResponsePart, ResponseStart};
pub use self::settings::WafSettings;
pub use self::values::{Blocked, HeldTransaction, MatchedRule, OverBudget, Rules, Score, TransactionValue};

group! {
    /// The steps of the firewall, for use in a program's list of steps.
    pub enum waf { Begin, RequestHead, RequestBody, ResponseHead, ResponsePart, ResponseStart, Log }
}
