//! The values that rules see of a response's head.

use super::budget::Over;
use super::intake::Intake;
use super::values::Family;
use crate::model::Variable;

impl Intake<'_> {
    /// Adds the status line.
    pub(crate) fn response_head(&mut self, status: u16, protocol: &[u8]) {
        let values = &mut self.state.values;
        values.set_number(Variable::ResponseStatus, u64::from(status));
        values.set_text(Variable::ResponseProtocol, protocol);
        let line = values.text.push_with(|out| {
            out.extend_from_slice(protocol);
            out.push(b' ');
            out.extend_from_slice(status.to_string().as_bytes());
        });
        values.set(Variable::StatusLine, line);
    }

    /// Adds a header field of the response.
    pub(crate) fn response_field(&mut self, name: &[u8], value: &[u8]) {
        if self.state.values.units(Family::ResponseHeaders).len() >= self.plan.limits.fields {
            self.state.budget.exceed(Over::Fields);
            return;
        }
        let name_span = self.state.values.text.push(name);
        let value_span = self.state.values.text.push(value);
        self.add(Family::ResponseHeaders, Some(Family::ResponseHeaderNames), name_span, value_span);
        if name.eq_ignore_ascii_case(b"content-type") {
            self.state.values.set(Variable::ResponseContentType, value_span);
        } else if name.eq_ignore_ascii_case(b"content-length") {
            self.state.values.set(Variable::ResponseContentLength, value_span);
        }
    }
}
