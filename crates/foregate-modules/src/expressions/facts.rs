//! The fields of an exchange, as expressions read them.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::ControlFlow;

use foregate_module::{Exchange, Fields, Shown, Source, View};
use foregate_rules::{Facts, FieldId, StandardField as Standard, Value};

use crate::pairs::Pairs;

/// The slots of the values of a pipeline.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The slot of each added field; `None` for the variables.
    pub(super) added: Vec<Option<u16>>,
    /// The slots of the variables, in the order of their phases.
    pub(super) variables: Vec<u16>,
    /// The slot of the country.
    pub(super) country: Option<u16>,
}

/// Returns true if a field is derived from the path in its normal form.
pub(super) fn is_of_path(field: FieldId) -> bool {
    use Standard::{FullUri, Uri, UriPath, UriPathExtension};
    matches!(field.standard(), Some(Uri | UriPath | UriPathExtension | FullUri))
}

/// The values of an exchange.
pub(super) struct ExchangeFacts<'v> {
    pub(super) view: View<'v>,
    pub(super) numbers: &'v Numbers,
    /// The reading of the path to evaluate, if it is not the usual one.
    pub(super) path: Option<&'v [u8]>,
}

impl<'v> ExchangeFacts<'v> {
    fn exchange(&self) -> &'v dyn Exchange {
        self.view.exchange()
    }

    fn path(&self) -> &'v [u8] {
        self.path.unwrap_or_else(|| self.exchange().path())
    }

    /// Joins `start`, the path, and the query, if there is one.
    fn with_query(&self, start: &[u8]) -> Cow<'v, [u8]> {
        match (start, self.exchange().query()) {
            (b"", None) => Cow::Borrowed(self.path()),
            (start, None) => Cow::Owned([start, self.path()].concat()),
            (start, Some(query)) => Cow::Owned([start, self.path(), b"?", query].concat()),
        }
    }

    /// The value of a field that stands for a value of the pipeline.
    fn shown(&self, field: FieldId) -> Option<Shown<'v>> {
        match self.numbers.added.get(field.added()?)? {
            Some(number) => self.view.value(*number),
            // A later value has all entries of the earlier ones, so the latest one is enough.
            None => self.numbers.variables.iter().rev().find_map(|number| self.view.value(*number)),
        }
    }

    /// The value of a field. If a client sends several fields of the name, they are joined, because an origin may use any
    /// of them, or all. Empty if there is none, as in Cloudflare's rules: users write `http.user_agent eq ""`.
    fn request_field(&self, name: &'v str) -> Cow<'v, [u8]> {
        crate::arguments::joined(self.exchange().request_fields(), name).unwrap_or(Cow::Borrowed(b""))
    }

    fn standard(&self, field: Standard) -> Option<Cow<'v, [u8]>> {
        let exchange = self.exchange();
        let text = |text: &'v str| Some(Cow::Borrowed(text.as_bytes()));
        match field {
            Standard::Host => text(exchange.host()),
            Standard::Uri => Some(self.with_query(b"")),
            Standard::UriPath => Some(Cow::Borrowed(self.path())),
            Standard::UriPathExtension => Some(lower(extension(self.path()))),
            Standard::UriQuery => Some(Cow::Borrowed(exchange.query().unwrap_or_default())),
            Standard::FullUri => {
                // The port is the one in the client's host, not that of the connection.
                let start = [exchange.scheme(), "://", exchange.host()].concat();
                Some(self.with_query(start.as_bytes()))
            }
            Standard::Method => Some(Cow::Borrowed(exchange.method())),
            Standard::Version => text(exchange.protocol()),
            Standard::Cookie => Some(self.request_field("cookie")),
            Standard::UserAgent => Some(self.request_field("user-agent")),
            Standard::Referer => Some(self.request_field("referer")),
            Standard::XForwardedFor => Some(self.request_field("x-forwarded-for")),
            Standard::RawUri => Some(Cow::Borrowed(origin_form(exchange.raw_target()))),
            Standard::RawUriPath => Some(Cow::Borrowed(split_query(origin_form(exchange.raw_target())).0)),
            Standard::RawUriQuery => Some(Cow::Borrowed(split_query(origin_form(exchange.raw_target())).1)),
            Standard::Country => match self.view.value(self.numbers.country?)? {
                Shown::Bytes(country) => Some(Cow::Borrowed(country)),
                _ => None,
            },
            Standard::TlsVersion => text(exchange.tls()?.version),
            Standard::TlsClientSubject => text(exchange.tls()?.client_subject?),
            Standard::TlsServerName => Some(lower(exchange.tls()?.server_name?.as_bytes())),
            Standard::Site => text(exchange.site()),
            Standard::Route => text(exchange.route()),
            Standard::ResponseMediaType => {
                let value = exchange.response_fields().get("content-type")?;
                Some(lower(value.split(|byte| *byte == b';').next()?.trim_ascii()))
            }
            Standard::Error => match exchange.source() {
                Source::Error(kind) => text(kind),
                _ => text(""),
            },
            _ => None,
        }
    }
}

impl Facts for ExchangeFacts<'_> {
    fn bytes(&self, field: FieldId) -> Option<Cow<'_, [u8]>> {
        match field.standard() {
            Some(standard) => self.standard(standard),
            None => match self.shown(field)? {
                Shown::Bytes(bytes) => Some(Cow::Borrowed(bytes)),
                _ => None,
            },
        }
    }

    fn int(&self, field: FieldId) -> Option<i64> {
        let exchange = self.exchange();
        match field.standard() {
            Some(Standard::BodySize) => {
                let (_, whole) = exchange.request_body();
                let received = whole.then(|| exchange.request_body_length() as u64);
                let length = exchange.request_length().or(received);
                i64::try_from(length?).ok()
            }
            Some(Standard::Timestamp) => i64::try_from(exchange.now().unix_seconds()).ok(),
            Some(Standard::ResponseCode) => exchange.status().map(i64::from),
            Some(_) => None,
            None => match self.shown(field)? {
                Shown::Int(number) => Some(number),
                _ => None,
            },
        }
    }

    fn bool(&self, field: FieldId) -> Option<bool> {
        match field.standard() {
            Some(Standard::Ssl) => Some(self.exchange().scheme() == "https"),
            Some(Standard::TlsClientVerified) => {
                Some(self.exchange().tls().is_some_and(|tls| tls.client_verified))
            }
            Some(_) => None,
            None => match self.shown(field)? {
                Shown::Bool(flag) => Some(flag),
                _ => None,
            },
        }
    }

    fn ip(&self, field: FieldId) -> Option<IpAddr> {
        match field.standard() {
            Some(Standard::IpSrc) => self.view.client(),
            Some(_) => None,
            None => match self.shown(field)? {
                Shown::Ip(address) => Some(address),
                _ => None,
            },
        }
    }

    fn first<'f>(&'f self, field: FieldId, name: &[u8]) -> Option<Value<'f>> {
        let fields = match field.standard() {
            Some(Standard::Headers) => self.exchange().request_fields(),
            Some(Standard::ResponseHeaders) => self.exchange().response_fields(),
            _ => {
                let mut first = None;
                let _ = self.each(field, Some(name), &mut |value| {
                    first = Some(value);
                    ControlFlow::Break(())
                });
                return first;
            }
        };
        fields.find(name, 0).map(|(_, value)| Value::Bytes(Cow::Borrowed(value)))
    }

    fn each<'f>(
        &'f self,
        field: FieldId,
        name: Option<&[u8]>,
        visit: &mut dyn FnMut(Value<'f>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let exchange = self.exchange();
        let Some(standard) = field.standard() else {
            return match self.shown(field) {
                Some(Shown::Map(entries)) => {
                    let wanted = entries.iter().filter(|(found, _)| name.is_none_or(|name| *name == **found));
                    visit_all(wanted.map(|(_, value)| Cow::Borrowed(&**value)), visit)
                }
                Some(Shown::Ints(numbers)) => {
                    numbers.iter().try_for_each(|number| visit(Value::Int(*number)))
                }
                _ => ControlFlow::Continue(()),
            };
        };
        let query = || exchange.query().unwrap_or_default();
        let raw_query = || split_query(origin_form(exchange.raw_target())).1;
        match standard {
            Standard::UriArgs | Standard::UriArgsValues => {
                visit_pairs(Pairs::Arguments, query(), name, visit)
            }
            Standard::UriArgsNames => visit_all(Pairs::Arguments.all(query()).map(|(name, _)| name), visit),
            Standard::RawUriArgs | Standard::RawUriArgsValues => {
                visit_pairs(Pairs::RawArguments, raw_query(), name, visit)
            }
            Standard::RawUriArgsNames => {
                visit_all(Pairs::RawArguments.all(raw_query()).map(|(name, _)| name), visit)
            }
            Standard::Cookies => {
                let mut cookies = exchange.request_fields().all("cookie");
                cookies.try_for_each(|value| visit_pairs(Pairs::Cookies, value, name, visit))
            }
            Standard::Headers | Standard::HeadersValues => {
                visit_fields(exchange.request_fields(), name, visit)
            }
            Standard::ResponseHeaders | Standard::ResponseHeadersValues => {
                visit_fields(exchange.response_fields(), name, visit)
            }
            Standard::HeadersNames => {
                visit_all(exchange.request_fields().iter().map(|(name, _)| lower(name)), visit)
            }
            Standard::ResponseHeadersNames => {
                visit_all(exchange.response_fields().iter().map(|(name, _)| lower(name)), visit)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn visit_all<'f>(
    mut texts: impl Iterator<Item = Cow<'f, [u8]>>,
    visit: &mut dyn FnMut(Value<'f>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    texts.try_for_each(|text| visit(Value::Bytes(text)))
}

/// Visits the values of all fields, or only of the fields with a name.
fn visit_fields<'f>(
    fields: &'f dyn Fields,
    name: Option<&[u8]>,
    visit: &mut dyn FnMut(Value<'f>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    match name {
        Some(name) => visit_all(fields.named(name).map(Cow::Borrowed), visit),
        None => visit_all(fields.iter().map(|(_, value)| Cow::Borrowed(value)), visit),
    }
}

/// Visits the values of all pairs, or only of the pairs with a name.
fn visit_pairs<'f>(
    pairs: Pairs,
    text: &'f [u8],
    name: Option<&[u8]>,
    visit: &mut dyn FnMut(Value<'f>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    match name {
        Some(name) => pairs.named(text, name, &mut |value| visit(Value::Bytes(value))),
        None => visit_all(pairs.all(text).map(|(_, value)| value), visit),
    }
}

fn lower(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().any(u8::is_ascii_uppercase) {
        return Cow::Owned(text.to_ascii_lowercase());
    }
    Cow::Borrowed(text)
}

/// The text after the last dot of the last segment; empty without a dot. A dot at the start of the segment marks a
/// hidden file, and no extension.
fn extension(path: &[u8]) -> &[u8] {
    let segment = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    match segment.iter().rposition(|byte| *byte == b'.') {
        None | Some(0) => b"",
        Some(dot) => segment.get(dot + 1..).unwrap_or_default(),
    }
}

/// Path and query of a target. Scheme and host are removed, if the target has them.
fn origin_form(target: &[u8]) -> &[u8] {
    if target.starts_with(b"/") {
        return target;
    }
    let Some(scheme) = target.windows(3).position(|three| three == b"://") else { return target };
    let rest = target.get(scheme + 3..).unwrap_or_default();
    let path = rest.iter().position(|byte| matches!(byte, b'/' | b'?'));
    path.and_then(|path| rest.get(path..)).unwrap_or_default()
}

/// A path, and the query without `?`.
fn split_query(target: &[u8]) -> (&[u8], &[u8]) {
    let at = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    let (path, query) = target.split_at(at);
    (path, query.get(1..).unwrap_or_default())
}
