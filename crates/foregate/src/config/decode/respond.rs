//! `respond` of a route.

use std::sync::Arc;

use foregate_config::value;
use foregate_config::{Decoder, Item, Problem};
use foregate_module::settings::value::ScalarKind;
use foregate_proxy::settings::{Action, FixedResponse};

pub(super) fn decode(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<Action> {
    let values: Vec<_> = item.node.entries().filter(|entry| entry.key().is_none()).collect();
    let is_status = |text: &str| text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    if let [first, rest @ ..] = &values[..]
        && first.kind() == ScalarKind::String
        && !is_status(first.text())
    {
        let status = rest.first().map(|second| second.text()).filter(|second| is_status(second));
        let problem = Problem::new(Some(item.place()), "`respond` needs a status before the text");
        decoder.push(problem.help(format!(
            "write `respond {} {}`",
            status.unwrap_or("200"),
            item.source_of(first.span())
        )));
        return None;
    }
    let status = decoder.read(item, 0, |v| value::number(v, 200..=599));
    let body = decoder.read(item, 1, |value| Ok(Arc::<[u8]>::from(value::string(value)?.as_bytes())));
    let status = status? as u16;
    let body = body.unwrap_or_default();
    if foregate_modules::redirects::STATUSES.contains(&status) {
        let message = format!("an answer with status {status} needs an address to send the client to");
        let problem = Problem::new(Some(item.place()), message);
        decoder.push(problem.help(format!(
            "write `redirect \"/**\" to=\"TARGET\" status={status}`, and `respond 404` for requests that it does not match"
        )));
        return None;
    }
    if !body.is_empty() && matches!(status, 204 | 205 | 304) {
        decoder.push(Problem::new(Some(item.place()), format!("an answer with status {status} has no body")));
        return None;
    }
    Some(Action::Respond(Arc::new(FixedResponse { status, body })))
}
