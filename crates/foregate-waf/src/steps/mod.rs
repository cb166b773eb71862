//! The module: its settings and its steps in a pipeline.
//!
//! | step | phase | what it does |
//! |---|---|---|
//! | `waf-begin` | `request-security` | starts a transaction with the head of the request as it was sent |
//! | `waf-request` | `request-security` | phase 1 of the rules |
//! | `waf-body` | `request-body` | phase 2, and what later steps and expressions may know |
//! | `waf-response` | `response-headers` | phase 3; asks for the response's body where rules look at it |
//! | `waf-response-part` | `response-body` | asks for the whole where the origin has sent a part that rules would look at |
//! | `waf-response-body` | `response-body` | phase 4 |
//! | `waf-log` | `log` | phase 5, the logs; also of requests that were refused as malformed |
//!
//! The transaction moves from step to step ([`Take`](foregate_module::Take), [`Emit`](foregate_module::Emit)), and with them to the
//! threads for heavy work where a step has much to look at.

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
pub use self::explain::Explained;
pub use self::log::Log;
pub use self::request::{RequestBody, RequestHead};
pub use self::response::{ResponseHead, ResponsePart, ResponseStart};
pub use self::settings::Settings;
pub use self::values::{Blocked, Held, OverBudget, Rule, Rules, Score, TransactionValue};

group! {
    /// The steps of the firewall, for lists that take them in. The list of a program stands in its binary.
    pub enum waf { Begin, RequestHead, RequestBody, ResponseHead, ResponsePart, ResponseStart, Log }
}
