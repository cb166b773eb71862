//! Values of the configuration that several modules read in the same way.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use foregate_module::{Argument, Field, Fields, Problem, Text};

use crate::pairs::Pairs;

/// A media type for `content-type`.
pub(crate) fn content_type(argument: &Argument) -> Result<&str, Problem> {
    let text = argument.text()?;
    let well_formed = text.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty());
    if well_formed && Field::new("content-type", String::from(text)).is_ok() {
        return Ok(text);
    }
    Err(argument.wrong("this is not a media type").help("write something like \"text/html; charset=utf-8\""))
}

/// The name of a field that a module may set.
pub(crate) fn field_name(argument: &Argument) -> Result<Text, Problem> {
    let name = Text::from(String::from(argument.text()?));
    match Field::new(name.clone(), "") {
        Ok(_) => Ok(name),
        Err(error) => Err(argument.wrong(format!("{error}"))),
    }
}

/// Fields of requests that no module may set: they identify the requested host and the client.
const CLIENTS_OWN: [&str; 3] = ["host", "authorization", "cookie"];

/// The name of a request field in which a module tells something to the origin.
pub(crate) fn told_in(argument: &Argument) -> Result<Text, Problem> {
    let name = field_name(argument)?;
    match CLIENTS_OWN.iter().find(|own| name.eq_ignore_ascii_case(own.as_bytes())) {
        Some(own) => Err(argument.wrong(format!("`{own}` is the client's own, and is not replaced"))),
        None => Ok(name),
    }
}

/// Path and query of a request that a module makes.
pub(crate) fn target(argument: &Argument) -> Result<Text, Problem> {
    let text = argument.text()?;
    if !text.starts_with('/') || !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(argument.wrong("this is not a path").help("write something like \"/verify\""));
    }
    Ok(String::from(text).into())
}

/// A host, with or without port, for a request that a module makes.
pub(crate) fn host(argument: &Argument) -> Result<Text, Problem> {
    let text = argument.text()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if text.is_empty() || !text.bytes().all(fits) {
        return Err(argument.wrong("this is not a host"));
    }
    Ok(String::from(text).into())
}

/// A realm: a text that may be used as a quoted string in a field. `otherwise` is the default.
pub(crate) fn quotable<'a>(argument: Option<&'a Argument>, otherwise: &'a str) -> Result<&'a str, Problem> {
    /// The longest realm, bytes.
    const MOST: usize = 255;
    let Some(argument) = argument else { return Ok(otherwise) };
    let text = argument.text()?;
    let fits = |byte: u8| (byte == b' ' || byte.is_ascii_graphic()) && byte != b'"' && byte != b'\\';
    if text.is_empty() || text.len() > MOST || !text.bytes().all(fits) {
        let problem = argument.wrong("this cannot be a realm");
        return Err(problem.help("use letters, digits, blanks and signs of ASCII, but no \" and no \\"));
    }
    Ok(text)
}

/// The value of the first cookie of this name.
pub(crate) fn cookie<'f>(fields: &'f dyn Fields, name: &str) -> Option<&'f [u8]> {
    cookies(fields, name, 1).pop()
}

/// The values of the first `most` cookies of this name, in any spelling that an origin may read as the name.
pub(crate) fn cookies<'f>(fields: &'f dyn Fields, name: &str, most: usize) -> Vec<&'f [u8]> {
    let mut found = Vec::new();
    let _ = fields.all("cookie").try_for_each(|value| {
        Pairs::Cookies.named(value, name.as_bytes(), &mut |value| {
            if let Cow::Borrowed(value) = value {
                found.push(value);
            }
            if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    });
    found
}

/// The value of a field. If there are several fields of the name, their values are joined: with commas (RFC 9110,
/// section 5.3), or for `cookie` with semicolons (RFC 9113, section 8.2.3).
pub(crate) fn joined<'f>(fields: &'f dyn Fields, name: &'f str) -> Option<Cow<'f, [u8]>> {
    let mut values = fields.all(name);
    let mut value = Cow::Borrowed(values.next()?);
    for more in values {
        let owned = value.to_mut();
        owned.extend_from_slice(if name == "cookie" { b"; " } else { b", " });
        owned.extend_from_slice(more);
    }
    Some(value)
}

/// The name of a cookie (RFC 6265, section 4.1.1): a token.
pub(crate) fn cookie_name(argument: &Argument) -> Result<String, Problem> {
    field_name(argument).map_err(|_| argument.wrong("this is not the name of a cookie"))?;
    Ok(argument.text()?.into())
}
