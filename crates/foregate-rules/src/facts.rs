//! The values of a request that expressions read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::ControlFlow;

use crate::functions;
use crate::scheme::{FieldId, Scheme};

/// A single value: an element of an array, or the result of an [`Expression`](crate::Expression).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'v> {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Text: bytes in any encoding.
    Bytes(Cow<'v, [u8]>),
    /// An address.
    Ip(IpAddr),
}

impl Value<'_> {
    /// The value as text: numbers in decimal, addresses in their usual form, `true` and `false`.
    #[must_use]
    pub fn to_text(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Bool(value) => Cow::Borrowed(if *value { b"true" } else { b"false" }),
            Self::Int(value) => Cow::Owned(functions::number(*value)),
            Self::Bytes(value) => Cow::Borrowed(value),
            Self::Ip(value) => Cow::Owned(functions::address(*value)),
        }
    }

    /// An owned copy of the value.
    #[must_use]
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::Int(value),
            Self::Bytes(value) => Value::Bytes(Cow::Owned(value.into_owned())),
            Self::Ip(value) => Value::Ip(value),
        }
    }
}

/// The known values of a request: the source from which expressions read fields.
///
/// Only the getter that fits the field's [`Type`](crate::Type) is called. `None` means that the request has no such
/// value, which is no error (see the [crate's documentation](crate#absent-values)). A getter may be called any number
/// of times, or never, and must return the same value each time.
///
/// ```
/// use std::borrow::Cow;
/// use std::net::IpAddr;
/// use std::ops::ControlFlow;
///
/// use foregate_rules::{Facts, FieldId, Lists, Scheme, Stage, StandardField, Value};
///
/// struct Head<'h> {
///     host: &'h str,
///     fields: &'h [(&'h str, &'h str)],
/// }
///
/// impl Facts for Head<'_> {
///     fn bytes(&self, field: FieldId) -> Option<Cow<'_, [u8]>> {
///         match field.standard()? {
///             StandardField::Host => Some(Cow::Borrowed(self.host.as_bytes())),
///             _ => None,
///         }
///     }
///
///     fn int(&self, _: FieldId) -> Option<i64> {
///         None
///     }
///
///     fn bool(&self, _: FieldId) -> Option<bool> {
///         None
///     }
///
///     fn ip(&self, _: FieldId) -> Option<IpAddr> {
///         None
///     }
///
///     fn each<'f>(
///         &'f self,
///         field: FieldId,
///         name: Option<&[u8]>,
///         visit: &mut dyn FnMut(Value<'f>) -> ControlFlow<()>,
///     ) -> ControlFlow<()> {
///         if field.standard() != Some(StandardField::Headers) {
///             return ControlFlow::Continue(());
///         }
///         let wanted = |key: &str| name.is_none_or(|name| key.as_bytes().eq_ignore_ascii_case(name));
///         let mut values = self.fields.iter().filter(|(key, _)| wanted(key)).map(|(_, value)| value.as_bytes());
///         values.try_for_each(|value| visit(Value::Bytes(Cow::Borrowed(value))))
///     }
/// }
///
/// let head = Head { host: "example.com", fields: &[("Accept", "text/html"), ("X-Tag", "one")] };
/// let text = r#"http.host eq "example.com" and any(http.request.headers["x-tag"][*] in {"one" "two"})"#;
/// assert!(Scheme::standard().compile(text, Stage::Request, &Lists::new())?.matches(&head));
/// # Ok::<(), foregate_rules::Error>(())
/// ```
pub trait Facts {
    /// The value of a text field. Some fields are described as empty if the request lacks a value: for these, return
    /// the empty text, never `None`.
    fn bytes(&self, field: FieldId) -> Option<Cow<'_, [u8]>>;

    /// The value of a number field.
    fn int(&self, field: FieldId) -> Option<i64>;

    /// The value of a yes-or-no field.
    fn bool(&self, field: FieldId) -> Option<bool>;

    /// The value of an address field. An IPv4 address that is mapped into IPv6 counts as IPv4.
    fn ip(&self, field: FieldId) -> Option<IpAddr>;

    /// Calls `visit` for each element of an array or each value of a map (`name` is `None`), or for each value that a
    /// map has under `name`. The order is that of the request. Stops when `visit` breaks, and returns its last
    /// result.
    ///
    /// For header fields, `name` is in lower case, and must be compared with the request's names regardless of case.
    fn each<'f>(
        &'f self,
        field: FieldId,
        name: Option<&[u8]>,
        visit: &mut dyn FnMut(Value<'f>) -> ControlFlow<()>,
    ) -> ControlFlow<()>;

    /// The first value that [`each`](Self::each) would visit for `name`. Most expressions read only this value.
    fn first<'f>(&'f self, field: FieldId, name: &[u8]) -> Option<Value<'f>> {
        let mut first = None;
        let _ = self.each(field, Some(name), &mut |value| {
            first = Some(value);
            ControlFlow::Break(())
        });
        first
    }
}

/// A request without any values, to evaluate constants.
pub(crate) struct Nothing;

impl Facts for Nothing {
    fn bytes(&self, _: FieldId) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn int(&self, _: FieldId) -> Option<i64> {
        None
    }

    fn bool(&self, _: FieldId) -> Option<bool> {
        None
    }

    fn ip(&self, _: FieldId) -> Option<IpAddr> {
        None
    }

    fn each<'f>(
        &'f self,
        _: FieldId,
        _: Option<&[u8]>,
        _: &mut dyn FnMut(Value<'f>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Facts that are set one by one: for tests, and to try an expression on a hypothetical request.
///
/// ```
/// use foregate_rules::{FactTable, Lists, Scheme, Stage, Value};
///
/// let scheme = Scheme::standard();
/// let mut facts = FactTable::new(&scheme);
/// facts.set("http.host", "example.com").set("ip.src", std::net::Ipv4Addr::LOCALHOST);
/// facts.add("http.request.headers", "X-Role", "admin");
///
/// let text = r#"http.host eq "example.com" and http.request.headers["x-role"][0] eq "admin""#;
/// assert!(scheme.compile(text, Stage::Request, &Lists::new())?.matches(&facts));
/// # Ok::<(), foregate_rules::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FactTable<'s> {
    scheme: &'s Scheme,
    values: HashMap<FieldId, Value<'static>>,
    entries: HashMap<FieldId, Vec<(Vec<u8>, Value<'static>)>>,
}

impl<'s> FactTable<'s> {
    /// Facts without any values.
    #[must_use]
    pub fn new(scheme: &'s Scheme) -> Self {
        Self { scheme, values: HashMap::new(), entries: HashMap::new() }
    }

    fn id(&self, field: &str) -> FieldId {
        self.scheme.id(field).expect("a field of the scheme that the table was made for")
    }

    /// Sets the value of a field that is not an array or map.
    ///
    /// # Panics
    ///
    /// The scheme has no such field.
    pub fn set(&mut self, field: &str, value: impl Into<Value<'static>>) -> &mut Self {
        self.values.insert(self.id(field), value.into());
        self
    }

    /// Adds a value to an array field.
    ///
    /// # Panics
    ///
    /// The scheme has no such field.
    pub fn push(&mut self, field: &str, value: impl Into<Value<'static>>) -> &mut Self {
        self.entries.entry(self.id(field)).or_default().push((Vec::new(), value.into()));
        self
    }

    /// Adds a value to a map field, and to the map's `.names` and `.values` fields if the scheme has them.
    ///
    /// # Panics
    ///
    /// The scheme has no such field.
    pub fn add(&mut self, field: &str, name: &str, value: impl Into<Value<'static>>) -> &mut Self {
        let id = self.id(field);
        let folds = self.scheme.field(id).is_some_and(|field| field.names_fold);
        let name = if folds { name.to_ascii_lowercase() } else { name.to_owned() };
        let value = value.into();
        for (part, copy) in [("names", Value::from(name.as_str())), ("values", value.clone())] {
            if let Some(id) = self.scheme.id(&format!("{field}.{part}")) {
                self.entries.entry(id).or_default().push((Vec::new(), copy));
            }
        }
        self.entries.entry(id).or_default().push((name.into_bytes(), value));
        self
    }
}

impl Facts for FactTable<'_> {
    fn bytes(&self, field: FieldId) -> Option<Cow<'_, [u8]>> {
        match self.values.get(&field)? {
            Value::Bytes(value) => Some(Cow::Borrowed(value)),
            _ => None,
        }
    }

    fn int(&self, field: FieldId) -> Option<i64> {
        match self.values.get(&field)? {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    fn bool(&self, field: FieldId) -> Option<bool> {
        match self.values.get(&field)? {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    fn ip(&self, field: FieldId) -> Option<IpAddr> {
        match self.values.get(&field)? {
            Value::Ip(value) => Some(*value),
            _ => None,
        }
    }

    fn each<'f>(
        &'f self,
        field: FieldId,
        name: Option<&[u8]>,
        visit: &mut dyn FnMut(Value<'f>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for (key, value) in self.entries.get(&field).into_iter().flatten() {
            if name.is_none_or(|name| name == key) {
                visit(match value {
                    Value::Bytes(value) => Value::Bytes(Cow::Borrowed(value)),
                    other => other.clone(),
                })?;
            }
        }
        ControlFlow::Continue(())
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Value<'_> {
    fn from(value: &str) -> Self {
        Self::Bytes(Cow::Owned(value.as_bytes().to_vec()))
    }
}

impl From<&[u8]> for Value<'_> {
    fn from(value: &[u8]) -> Self {
        Self::Bytes(Cow::Owned(value.to_vec()))
    }
}

impl From<IpAddr> for Value<'_> {
    fn from(value: IpAddr) -> Self {
        Self::Ip(value)
    }
}

impl From<Ipv4Addr> for Value<'_> {
    fn from(value: Ipv4Addr) -> Self {
        Self::Ip(value.into())
    }
}

impl From<Ipv6Addr> for Value<'_> {
    fn from(value: Ipv6Addr) -> Self {
        Self::Ip(value.into())
    }
}
