//! Fields: their types, and the stage of a request at which they become known.

use std::collections::HashMap;
use std::fmt;

use crate::nearest::nearest;

/// The type of an expression or a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// `true` or `false`.
    Bool,
    /// A whole number of 64 bits with sign.
    Int,
    /// Text: bytes in any encoding.
    Bytes,
    /// An IPv4 or IPv6 address.
    Ip,
    /// Values in order, all of one type.
    Array(Scalar),
    /// A map from names to one or more texts in order, such as header fields, cookies or query arguments.
    Map,
}

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// `true` or `false`.
    Bool,
    /// A whole number of 64 bits with sign.
    Int,
    /// Text: bytes in any encoding.
    Bytes,
    /// An IPv4 or IPv6 address.
    Ip,
}

impl From<Scalar> for Type {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Bool => Self::Bool,
            Scalar::Int => Self::Int,
            Scalar::Bytes => Self::Bytes,
            Scalar::Ip => Self::Ip,
        }
    }
}

impl Type {
    /// The type's name with its article, for messages, such as `a text`.
    pub(crate) fn phrase(self) -> &'static str {
        match self {
            Self::Bool => "a boolean",
            Self::Int => "a number",
            Self::Bytes => "a text",
            Self::Ip => "an address",
            Self::Array(Scalar::Bool) => "an array of booleans",
            Self::Array(Scalar::Int) => "an array of numbers",
            Self::Array(Scalar::Bytes) => "an array of texts",
            Self::Array(Scalar::Ip) => "an array of addresses",
            Self::Map => "a map of texts",
        }
    }
}

impl fmt::Display for Type {
    /// The form in messages and in the reference: `text`, `number`, `array of texts`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phrase = self.phrase();
        formatter.write_str(phrase.split_once(' ').map_or(phrase, |(_, name)| name))
    }
}

/// The stage of a request from which on a field is known. Known values stay known at later stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The head of the request has arrived.
    Request,
    /// The requested part of the request's body is available.
    Body,
    /// The head of the response has arrived.
    Response,
}

impl fmt::Display for Stage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Request => "request",
            Self::Body => "request's body",
            Self::Response => "response",
        })
    }
}

/// A field of a [`Scheme`], as a small number for [`Facts`](crate::Facts).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldId(pub(crate) u16);

impl FieldId {
    /// The standard field with this id; `None` if the field was added by [`Scheme::with_field`].
    #[must_use]
    pub fn standard(self) -> Option<StandardField> {
        StandardField::ALL.get(usize::from(self.0)).copied()
    }

    /// The index of a field among those that were added by [`Scheme::with_field`]; `None` for a standard field.
    #[must_use]
    pub fn added(self) -> Option<usize> {
        usize::from(self.0).checked_sub(StandardField::ALL.len())
    }
}

impl From<StandardField> for FieldId {
    fn from(field: StandardField) -> Self {
        Self(field as u16)
    }
}

/// One field: its name, type, stage and description.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name in expressions.
    pub name: Box<str>,
    /// Other names of the same field.
    pub aliases: &'static [&'static str],
    /// Its type.
    pub kind: Type,
    /// The stage from which on the field is known.
    pub stage: Stage,
    /// True for a map with names that are compared regardless of case.
    pub names_fold: bool,
    /// Its description, a sentence.
    pub about: Box<str>,
}

/// Why [`Scheme::with_field`] refused a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// There is a field of this name.
    #[error("there is a field `{0}` already")]
    Taken(Box<str>),
    /// The name is invalid. A name has lower-case letters, digits, `_`, and `.` between these, and begins with a
    /// letter.
    #[error("`{0}` is not the name of a field: lower-case letters, digits, `_`, and `.` between them")]
    Name(Box<str>),
    /// More than 65,535 fields.
    #[error("there are too many fields")]
    TooMany,
}

/// The fields that expressions may use.
#[derive(Clone, Debug)]
pub struct Scheme {
    fields: Vec<Field>,
    ids: HashMap<Box<str>, FieldId>,
}

impl Scheme {
    /// The fields that every request has.
    #[must_use]
    pub fn standard() -> Self {
        let mut scheme = Self { fields: Vec::new(), ids: HashMap::new() };
        for field in StandardField::ALL {
            let (name, aliases, kind, stage, names_fold, about) = field.row();
            for name in [name].iter().chain(aliases) {
                scheme.ids.insert((*name).into(), (*field).into());
            }
            let (name, about) = (name.into(), about.into());
            scheme.fields.push(Field { name, aliases, kind, stage, names_fold, about });
        }
        scheme
    }

    /// Adds a field, such as a value that a module sets. The names of an added map are compared byte by byte.
    ///
    /// # Errors
    ///
    /// The name is taken or invalid.
    pub fn with_field(
        mut self,
        name: &str,
        kind: Type,
        stage: Stage,
        about: &str,
    ) -> Result<Self, FieldError> {
        let letters = |part: &str| {
            part.starts_with(|first: char| first.is_ascii_lowercase())
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        if !name.split('.').all(letters) {
            return Err(FieldError::Name(name.into()));
        }
        let id = FieldId(u16::try_from(self.fields.len()).map_err(|_| FieldError::TooMany)?);
        if self.ids.contains_key(name) || crate::is_reserved(name) {
            return Err(FieldError::Taken(name.into()));
        }
        self.ids.insert(name.into(), id);
        let (name, about) = (name.into(), about.into());
        self.fields.push(Field { name, aliases: &[], kind, stage, names_fold: false, about });
        Ok(self)
    }

    /// The field with this name or alias.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<FieldId> {
        self.ids.get(name).copied()
    }

    /// The declaration of a field; `None` if the id comes from another scheme with more fields.
    #[must_use]
    pub fn field(&self, id: FieldId) -> Option<&Field> {
        self.fields.get(usize::from(id.0))
    }

    /// All fields, in the order of the reference.
    pub fn fields(&self) -> impl Iterator<Item = (FieldId, &Field)> {
        (0..).map(FieldId).zip(&self.fields)
    }

    /// The most similar name of a field, if one is similar enough.
    pub(crate) fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.ids.keys().map(|known| &**known))
    }
}

type Row = (&'static str, &'static [&'static str], Type, Stage, bool, &'static str);

macro_rules! standard_fields {
    ($($variant:ident $name:literal $(= $alias:literal)* $kind:ident $stage:ident $about:literal)*) => {
        /// The fields of [`Scheme::standard`]. An implementation of [`Facts`](crate::Facts) can match on them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum StandardField {
            $(#[doc = concat!("`", $name, "`: ", $about)] $variant,)*
        }

        impl StandardField {
            /// All values, in the order of their ids.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn row(self) -> Row {
                match self {
                    $(Self::$variant => {
                        let (kind, fold) = $kind;
                        ($name, &[$($alias),*], kind, Stage::$stage, fold, $about)
                    })*
                }
            }
        }
    };
}

const BOOL: (Type, bool) = (Type::Bool, false);
const INT: (Type, bool) = (Type::Int, false);
const BYTES: (Type, bool) = (Type::Bytes, false);
const IP: (Type, bool) = (Type::Ip, false);
const TEXTS: (Type, bool) = (Type::Array(Scalar::Bytes), false);
const MAP: (Type, bool) = (Type::Map, false);
const HEADERS: (Type, bool) = (Type::Map, true);

standard_fields! {
    Host "http.host" BYTES Request "The host that the request is for, in lower case, without port."
    Uri "http.request.uri" BYTES Request "Path and query, the path in its normal form."
    UriPath "http.request.uri.path" BYTES Request "The path in its normal form."
    UriPathExtension "http.request.uri.path.extension" BYTES Request
        "The text behind the last dot of the path's last segment, in lower case; empty without a dot, or if the only one begins the segment."
    UriQuery "http.request.uri.query" BYTES Request
        "The query without `?`, not decoded; empty without a query."
    UriArgs "http.request.uri.args" MAP Request
        "The arguments of the query, by name; names and values decoded."
    UriArgsNames "http.request.uri.args.names" TEXTS Request "The names of the query's arguments, decoded."
    UriArgsValues "http.request.uri.args.values" TEXTS Request "The values of the query's arguments, decoded."
    FullUri "http.request.full_uri" BYTES Request "Scheme, host without port, path and query."
    Method "http.request.method" BYTES Request "The method as it was sent: `GET`."
    Version "http.request.version" BYTES Request "`HTTP/1.0`, `HTTP/1.1` or `HTTP/2`."
    Headers "http.request.headers" HEADERS Request "The request's header fields, by name in lower case."
    HeadersNames "http.request.headers.names" TEXTS Request "The names of the header fields, in lower case."
    HeadersValues "http.request.headers.values" TEXTS Request "The values of the header fields."
    Cookies "http.request.cookies" MAP Request
        "The cookies of the request, by name; names decoded, values as they were sent."
    Cookie "http.cookie" BYTES Request
        "The header field Cookie as a whole; several of them joined with `; `; empty without one."
    UserAgent "http.user_agent" BYTES Request
        "The header field User-Agent; several joined with `, `; empty without one."
    Referer "http.referer" BYTES Request
        "The header field Referer; several joined with `, `; empty without one."
    XForwardedFor "http.x_forwarded_for" BYTES Request
        "The header field X-Forwarded-For as the client sent it; several joined with `, `; empty without one."
    BodySize "http.request.body.size" INT Body
        "The length of the request's body in bytes; where it is not known, comparisons take it for longer than any number."
    RawUri "raw.http.request.uri" BYTES Request "Path and query as they were sent."
    RawUriPath "raw.http.request.uri.path" BYTES Request "The path as it was sent."
    RawUriQuery "raw.http.request.uri.query" BYTES Request "The query as it was sent, without `?`."
    RawUriArgs "raw.http.request.uri.args" MAP Request "The arguments of the query as they were sent, by name."
    RawUriArgsNames "raw.http.request.uri.args.names" TEXTS Request
        "The names of the query's arguments as they were sent."
    RawUriArgsValues "raw.http.request.uri.args.values" TEXTS Request
        "The values of the query's arguments as they were sent."
    Timestamp "http.request.timestamp.sec" INT Request "When the request came, in seconds since 1970."
    IpSrc "ip.src" IP Request "The client's address."
    Country "ip.src.country" = "ip.geoip.country" BYTES Request
        "The client's country in two letters; absent when it is not known."
    Ssl "ssl" BOOL Request "True if the client's connection is encrypted, or the one that a trusted proxy reports."
    TlsVersion "tls.version" BYTES Request "The version of TLS: `TLSv1.2` or `TLSv1.3`; absent without TLS."
    TlsClientVerified "tls.client.verified" BOOL Request "True if the client presented a certificate that was verified."
    TlsClientSubject "tls.client.subject" BYTES Request "The subject of the client's certificate, `O=Example, CN=alice`: in the order of the certificate, with a space after each comma and around each plus, otherwise as RFC 4514 has it. What would mean something else there has a backslash before it (`O=a\\, b`), control characters are `\\0A`, and what is no text is `#` and its encoding in hexadecimal digits."
    TlsServerName "tls.server_name" BYTES Request "The server name in the TLS handshake, in lower case."
    Site "foregate.site" BYTES Request "The name of the site that answers."
    Route "foregate.route" BYTES Request "The pattern of the route that answers."
    ResponseCode "http.response.code" INT Response "The status of the response."
    ResponseHeaders "http.response.headers" HEADERS Response
        "The response's header fields, by name in lower case."
    ResponseHeadersNames "http.response.headers.names" TEXTS Response
        "The names of the response's header fields, in lower case."
    ResponseHeadersValues "http.response.headers.values" TEXTS Response
        "The values of the response's header fields."
    ResponseMediaType "http.response.content_type.media_type" BYTES Response
        "The media type of the response in lower case, without parameters."
    Error "foregate.error" BYTES Response "The kind of the error that made the response; empty if none did."
}
