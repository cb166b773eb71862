//! Comparisons with the proxy that this proxy replaces: the report, samples, and the parts of responses to ignore.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::refusal::ApiError;
use crate::comparison::{ComparisonQuestion, ComparisonRefusal, ReportFormat};
use crate::proxy::Proxy;

/// The longest name of a part to ignore, in bytes: each report and line of the audit log has it.
const PART_LIMIT: usize = 256;

/// The report: an object, or for `text` and `html` a string.
pub(super) async fn report(proxy: &Proxy, format: Option<&str>) -> Result<Value, ApiError> {
    let format = match format {
        None | Some("json") => ReportFormat::Json,
        Some("text") => ReportFormat::Text,
        Some("html") => ReportFormat::Html,
        Some(_) => {
            let help = "`format` is json, text or html".to_owned();
            return Err(ApiError(StatusCode::UNPROCESSABLE_ENTITY, help));
        }
    };
    let report = ask(proxy, ComparisonQuestion::Report(format)).await?;
    Ok(json!({ "compares": proxy.config().settings.compares, "report": report }))
}

/// A sample: a request, and both responses.
pub(super) async fn sample(proxy: &Proxy, id: &str) -> Result<Value, ApiError> {
    let is_number = id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(id, 16).ok().filter(|_| is_number).ok_or_else(|| {
        let help = format!("{id:?} is no id of a sample: the report shows them");
        ApiError(StatusCode::UNPROCESSABLE_ENTITY, help)
    })?;
    Ok(json!({ "sample": ask(proxy, ComparisonQuestion::Show(number)).await? }))
}

/// Leaves a part of the responses out from now on.
pub(super) async fn ignore(proxy: &Proxy, part: &str) -> Result<Value, ApiError> {
    if part.len() > PART_LIMIT {
        let help = format!("the name of a part has at most {PART_LIMIT} bytes");
        return Err(ApiError(StatusCode::UNPROCESSABLE_ENTITY, help));
    }
    Ok(json!({ "part": ask(proxy, ComparisonQuestion::Ignore(part.to_owned())).await? }))
}

async fn ask(proxy: &Proxy, question: ComparisonQuestion) -> Result<Value, ApiError> {
    let samples = Arc::clone(&proxy.config().settings.compare_samples);
    proxy.comparisons.answer(question, samples).await.map_err(|refusal| {
        let status = match refusal {
            ComparisonRefusal::Busy | ComparisonRefusal::Folder(_) => StatusCode::SERVICE_UNAVAILABLE,
            ComparisonRefusal::NoSample(_) => StatusCode::NOT_FOUND,
            ComparisonRefusal::NoPart(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ComparisonRefusal::TooMany(_) => StatusCode::CONFLICT,
        };
        ApiError(status, refusal.to_string())
    })
}
