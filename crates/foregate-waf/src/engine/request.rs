//! The values that rules see of a request's head.

use super::budget::Over;
use super::intake::Intake;
use super::values::{Family, Span, Text, UNNAMED};
use crate::body::media_type;
use crate::model::{BodyProcessor, Variable};

impl Intake<'_> {
    /// Adds a value under a name. Also adds the name to the family `names`, if there is one.
    pub(crate) fn add(&mut self, family: Family, names: Option<Family>, name: Span, value: Span) {
        let known = self.known(family, name);
        self.state.values.add(family, name, value, known);
        if let Some(names) = names {
            let known = self.known(names, name);
            self.state.values.add(names, name, name, known);
        }
    }

    /// The number of a name among the names that rules mention for this family; [`UNNAMED`] for others.
    fn known(&mut self, family: Family, name: Span) -> u16 {
        let table = &self.plan.tables[family as usize];
        if table.is_empty() {
            return UNNAMED;
        }
        let lower = &mut self.state.scratch.text;
        lower.clear();
        lower.extend(self.state.values.text.get(name).iter().map(u8::to_ascii_lowercase));
        table.get(&**lower).copied().unwrap_or(UNNAMED)
    }

    /// Parses a request line.
    pub(crate) fn request_line(&mut self, method: &[u8], target: &[u8], protocol: &[u8]) {
        let values = &mut self.state.values;
        let line = values.text.push_with(|out| {
            for part in [method, b" ", target, b" ", protocol] {
                out.extend_from_slice(part);
            }
        });
        values.set(Variable::RequestLine, line);
        values.set(Variable::RequestMethod, line.part(0, method.len()));
        let start = method.len() + 1;
        let raw = line.part(start, start + target.len());
        values.set(Variable::RequestUriRaw, raw);
        let after = start + target.len() + 1;
        values.set(Variable::RequestProtocol, line.part(after, after + protocol.len()));
        self.target(target, raw);
    }

    fn target(&mut self, target: &[u8], raw: Span) {
        let from = origin_form(target);
        let origin = &target[from..];
        let values = &mut self.state.values;
        values.set(Variable::RequestUri, raw.part(from, target.len()));
        let question = memchr::memchr(b'?', origin).unwrap_or(origin.len());
        let path = raw.part(from, from + question);
        let query = raw.part((from + question + 1).min(target.len()), target.len());
        values.set(Variable::QueryString, query);
        let filename = super::feed::piece(&mut values.text, path, crate::transform::decode_path);
        values.set(Variable::RequestFilename, filename);
        values.set(Variable::PathInfo, filename);
        let basename = basename(&values.text, filename);
        values.set(Variable::RequestBasename, basename);
        self.query(target.get(from + question + 1..).unwrap_or_default());
        self.state.values.end_of_query();
    }

    /// Adds the normal form of a target. If the normal form changes the value of a variable, the variable has
    /// both values.
    pub(crate) fn normal_target(&mut self, path: &[u8], query: Option<&[u8]>) {
        let values = &mut self.state.values;
        let sent = values.text.get(values.scalar(Variable::RequestUri));
        let same = match (sent.strip_prefix(path), query) {
            (Some(rest), Some(query)) => rest.strip_prefix(b"?") == Some(query),
            (Some(rest), None) => rest.is_empty(),
            (None, _) => false,
        };
        // CONNECT has no path.
        if same || path.is_empty() {
            return;
        }
        let uri = values.text.push_with(|out| {
            out.extend_from_slice(path);
            for part in query.iter().flat_map(|query| [&b"?"[..], query]) {
                out.extend_from_slice(part);
            }
        });
        let path = uri.part(0, path.len());
        let filename = super::feed::piece(&mut values.text, path, crate::transform::decode_path);
        for (variable, normal) in [
            (Variable::RequestUri, uri),
            (Variable::RequestFilename, filename),
            (Variable::PathInfo, filename),
            (Variable::RequestBasename, basename(&values.text, filename)),
        ] {
            if values.text.get(values.scalar(variable)) != values.text.get(normal) {
                values.set_normal(variable, normal);
            }
        }
    }

    /// Adds a header field of the request.
    pub(crate) fn request_field(&mut self, name: &[u8], value: &[u8]) {
        if self.state.values.units(Family::Headers).len() >= self.plan.limits.fields {
            self.state.budget.exceed(Over::Fields);
            return;
        }
        let name_span = self.state.values.text.push(name);
        let value_span = self.state.values.text.push(value);
        self.add(Family::Headers, Some(Family::HeaderNames), name_span, value_span);
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value, value_span),
            6 if name.eq_ignore_ascii_case(b"cookie") => self.cookies(value, value_span),
            12 if name.eq_ignore_ascii_case(b"content-type") => self.choose_processor(value),
            13 if name.eq_ignore_ascii_case(b"authorization") => {
                let end = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
                self.state.values.set(Variable::AuthType, value_span.part(0, end));
            }
            _ => {}
        }
    }

    fn host(&mut self, value: &[u8], span: Span) {
        self.state.values.set(Variable::ServerName, span.part(0, without_port(value).len()));
    }

    /// Adds the normal form of the host. If it differs from the host that was sent, `SERVER_NAME` has both.
    pub(crate) fn normal_host(&mut self, authority: &[u8]) {
        let values = &mut self.state.values;
        let host = without_port(authority);
        // If no `Host` field was sent, there is no other value to compare with.
        let sent = values.scalar_place(Variable::ServerName).map(|_| values.scalar(Variable::ServerName));
        if sent.is_some_and(|sent| values.text.get(sent) != host) && !host.is_empty() {
            let host = values.text.push(host);
            values.set_normal(Variable::ServerName, host);
        }
    }

    /// Selects the parser of the body from its `Content-Type`.
    fn choose_processor(&mut self, value: &[u8]) {
        let kind = media_type(value);
        if kind.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
            self.state.set_processor(BodyProcessor::UrlEncoded);
        } else if kind.eq_ignore_ascii_case(b"multipart/form-data") {
            self.state.set_processor(BodyProcessor::Multipart);
        }
    }
}

/// An authority without its port.
fn without_port(authority: &[u8]) -> &[u8] {
    let end = match memchr::memchr(b']', authority) {
        Some(bracket) if authority.first() == Some(&b'[') => bracket + 1,
        _ => memchr::memchr(b':', authority).unwrap_or(authority.len()),
    };
    &authority[..end]
}

/// The last segment of a path.
fn basename(text: &Text, path: Span) -> Span {
    let last = text.get(path).iter().rposition(|byte| matches!(byte, b'/' | b'\\'));
    last.map_or(path, |at| path.part(at + 1, path.len()))
}

/// The position at which the path of a target begins: after scheme and authority, if the target has them.
fn origin_form(target: &[u8]) -> usize {
    let Some(colon) = memchr::memmem::find(target, b"://") else { return 0 };
    let scheme = &target[..colon];
    if scheme.is_empty() || !scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)) {
        return 0;
    }
    let authority = colon + 3;
    target[authority..].iter().position(|byte| matches!(byte, b'/' | b'?')).map_or(0, |at| authority + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_paths_begin() {
        for (target, path) in [
            ("/a?b", "/a?b"),
            ("http://host/a", "/a"),
            ("http://host?x=http://y/", "?x=http://y/"),
            ("/r?u=http://host/a", "/r?u=http://host/a"),
            ("http://host", "http://host"),
            ("*", "*"),
            ("host:443", "host:443"),
        ] {
            assert_eq!(&target[origin_form(target.as_bytes())..], path, "{target}");
        }
    }

    #[test]
    fn a_plus_in_a_path_is_itself() {
        for (path, decoded) in [("/a+b", "/a+b"), ("/a+%62%2B%zz%4", "/a+b+%zz%4"), ("/%61", "/a"), ("", "")]
        {
            let found = crate::transform::decode_path(path.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), decoded);
        }
    }
}
