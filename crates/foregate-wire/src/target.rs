//! The forms of a request target (RFC 9112, 3.2).

use crate::chars::{byte_at, target_end, word_end};
use crate::host::HostError;
use crate::method::Method;

/// Why a request target was refused: 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TargetError {
    /// A fragment: `#` is not allowed in a request.
    #[error("the request target holds a `#`")]
    Fragment,
    /// The target is no path that begins with `/`, no URL, and no other form that is allowed for the method.
    #[error("the request target is not a path that begins with `/`, nor an http or https URL")]
    BadForm,
    /// `*` with a method other than OPTIONS.
    #[error("the request target `*` belongs to OPTIONS alone")]
    Asterisk,
    /// A control byte or a space.
    #[error("the request target holds a control byte or a space")]
    BadByte,
    /// A `%` without two hexadecimal digits after it.
    #[error("the path holds a `%` without two hexadecimal digits after it")]
    BadPercent,
    /// `%00`.
    #[error("the path holds `%00`")]
    Nul,
    /// The authority in the target is not valid.
    #[error("the authority in the request target is not valid: {0}")]
    Host(#[from] HostError),
}

/// The scheme of an absolute form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

/// The form of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetForm<'a> {
    /// `/path?query`
    Origin,
    /// `http://authority/path?query`
    Absolute {
        /// http or https.
        scheme: Scheme,
        /// Host and port as received; it replaces the Host field.
        authority: &'a [u8],
    },
    /// `host:port`, for CONNECT alone.
    Authority {
        /// Host and port as received.
        authority: &'a [u8],
    },
    /// `*`, for OPTIONS alone.
    Asterisk,
}

/// A request target split into its parts. Nothing is decoded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The form of the target.
    pub form: TargetForm<'a>,
    /// The raw path. It begins with `/` in origin form and absolute form (an empty path in absolute form becomes `/`). It
    /// is `*` in asterisk form, and empty in authority form.
    pub path: &'a [u8],
    /// The text after the first `?`.
    pub query: Option<&'a [u8]>,
}

impl<'a> Target<'a> {
    /// Splits a raw target into its parts. Of an authority, only user information is refused here; the caller checks the
    /// rest with [`parse_authority`](crate::parse_authority).
    ///
    /// # Errors
    /// A form that does not fit the method, a `#`, a control byte.
    pub fn parse(method: &Method, raw: &'a [u8]) -> Result<Self, TargetError> {
        if *method == Method::Connect {
            check_bytes(raw)?;
            return parse_connect(raw);
        }
        match raw {
            [b'/', ..] => {
                let (path, query) = split_query(raw)?;
                Ok(Self { form: TargetForm::Origin, path, query })
            }
            b"*" if *method == Method::Options => {
                Ok(Self { form: TargetForm::Asterisk, path: raw, query: None })
            }
            b"*" => Err(TargetError::Asterisk),
            _ => parse_absolute(method, raw),
        }
    }

    /// The authority in the target, if its form has one.
    pub fn authority(&self) -> Option<&'a [u8]> {
        match self.form {
            TargetForm::Absolute { authority, .. } | TargetForm::Authority { authority } => Some(authority),
            TargetForm::Origin | TargetForm::Asterisk => None,
        }
    }
}

fn parse_connect(raw: &[u8]) -> Result<Target<'_>, TargetError> {
    if raw.contains(&b'@') {
        return Err(HostError::UserInfo.into());
    }
    // RFC 9112, 3.2.3: host and port only; the port is required.
    match raw.iter().rposition(|&byte| byte == b':') {
        Some(colon) if colon > 0 && colon + 1 < raw.len() && !raw.contains(&b'/') && !raw.contains(&b'?') => {
            Ok(Target { form: TargetForm::Authority { authority: raw }, path: b"", query: None })
        }
        _ => Err(TargetError::BadForm),
    }
}

fn parse_absolute<'a>(method: &Method, raw: &'a [u8]) -> Result<Target<'a>, TargetError> {
    let (scheme, rest) = if let Some(rest) = strip_prefix(raw, b"http://") {
        (Scheme::Http, rest)
    } else if let Some(rest) = strip_prefix(raw, b"https://") {
        (Scheme::Https, rest)
    } else {
        check_bytes(raw)?;
        return Err(TargetError::BadForm);
    };
    let (before_query, query) = split_query(rest)?;
    let slash = memchr::memchr(b'/', before_query).unwrap_or(before_query.len());
    let (authority, path) = before_query.split_at(slash);
    if authority.contains(&b'@') {
        return Err(HostError::UserInfo.into());
    }
    if authority.is_empty() {
        return Err(HostError::Empty.into());
    }
    let form = TargetForm::Absolute { scheme, authority };
    if path.is_empty() && query.is_none() && *method == Method::Options {
        // RFC 9112, 3.2.4: in absolute form, OPTIONS for the whole server is a URL without a path.
        return Ok(Target { form, path: b"*", query: None });
    }
    Ok(Target { form, path: if path.is_empty() { b"/" } else { path }, query })
}

/// Splits at the first `?` and refuses bytes that no target may contain.
fn split_query(raw: &[u8]) -> Result<(&[u8], Option<&[u8]>), TargetError> {
    check_bytes(raw)?;
    let path_end = byte_at(raw, b'?');
    Ok((raw.get(..path_end).unwrap_or(raw), raw.get(path_end + 1..)))
}

/// Refuses bytes that no target may contain.
pub(crate) fn check_bytes(raw: &[u8]) -> Result<(), TargetError> {
    if target_end(raw) == raw.len() {
        return Ok(());
    }
    // If both are present, a control byte or space is reported rather than a `#`, wherever each is.
    Err(if word_end(raw, 0) != raw.len() { TargetError::BadByte } else { TargetError::Fragment })
}

fn strip_prefix<'a>(raw: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = raw.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}
