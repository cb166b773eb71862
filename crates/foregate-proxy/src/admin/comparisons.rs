//! Comparisons with the proxy that this proxy replaces: the report, samples, and the parts of responses to ignore.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::comparison::ComparisonQuestion;
use crate::proxy::Proxy;

/// The answer to `{"verb":"compare","report":"json"}`, `{"verb":"compare","show":ID}` or
/// `{"verb":"compare","ignore":PART}`.
pub(super) async fn reply(request: &Value, proxy: &Proxy) -> Result<Value, String> {
    let text = |name: &str| request.get(name).and_then(Value::as_str).map(str::to_owned);
    let question = text("report")
        .map(ComparisonQuestion::Report)
        .or_else(|| text("show").map(ComparisonQuestion::Show))
        .or_else(|| text("ignore").map(ComparisonQuestion::Ignore))
        .ok_or("expected `report`, `show` or `ignore`")?;
    let config = proxy.config();
    let samples = Arc::clone(&config.settings.compare_samples);
    let compares = config.settings.compares;
    let answer = proxy.comparisons.answer(question, samples).await?;
    Ok(json!({ "ok": true, "compares": compares, "answer": answer }))
}
