//! The modules that ship: pure product logic, one file each, on the contract of `foregate-module`.
//!
//! [`shipped`] is the one list of their steps. A program with modules of its own takes it in:
//!
//! ```
//! foregate_module::pipeline! { pub fn steps { use foregate_modules::shipped; } }
//! assert_eq!(steps().steps().count(), foregate_modules::shipped().steps().count());
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod access;
pub mod clear_headers;
pub mod coding;
pub mod expressions;
pub mod basic_auth;
#[cfg(test)]
mod expressions;
pub mod forward_auth;
pub mod jwt;
pub mod rate_limit;
pub mod redirects;
#[cfg(test)]
mod test_expressions;
pub mod client_address;
pub mod geo;
pub mod ranges;
pub mod request_id;
pub mod trace;
mod accept_encoding;
pub mod body_limits;
pub mod coding;
pub mod compression;
pub mod cors;
pub mod decompression;
mod lists;
mod media_type;
pub mod security_headers;
pub mod rules;

foregate_module::pipeline! {
    /// The steps that ship, in the order of their phases.
    pub fn shipped {
        // request-early
        client_address::ClientAddress,
        clear_headers::ClearRequest,
        // request-identity
        rate_limit::RateLimit<rate_limit::Identity>,
        forward_auth::Ask,
        jwt::AskForKeys,
        // request-security
        rate_limit::RateLimit<rate_limit::Security>,
        redirects::FollowRedirects,
        redirects::FollowLists,
        basic_auth::LookUp,
        basic_auth::Verify,
        basic_auth::BasicAuth,
        forward_auth::ForwardAuth,
        jwt::Jwt,
        // request-body
        rate_limit::RateLimit<rate_limit::Late>,
        // response-headers
        rate_limit::RateLimitFields,
        // response-body
        request_id::Identify,
        trace::Continue,
        geo::Lookup,
        access::Judge,
        request_id::Tell,
        clear_headers::ClearResponse,
        forward_auth::ToClient,
        decompression::DecompressRequest,
        cors::CorsPreflight,
        body_limits::LimitRequest,
        body_limits::CheckUpload,
        body_limits::LimitResponse,
        cors::CorsResponse,
        security_headers::SecurityHeaders,
        decompression::DecompressResponse,
        compression::Compress,
        rules::EvaluateRequest,
        rules::StopRequest,
        redirects::FollowRedirects,
        redirects::FollowLists,
        rules::ChangeRequest,
        rules::EvaluateRewrite,
        rules::StopRewrite,
        rules::SelectUpstream,
        rules::EvaluateResponse,
        rules::ReplaceResponse,
    }
}

/// A media type for `content-type`.
pub(crate) fn content_type(argument: &foregate_module::Argument) -> Result<&str, foregate_module::Problem> {
    let text = argument.text()?;
    let well_formed = text.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty());
    if well_formed && foregate_module::Field::new("content-type", alloc::string::String::from(text)).is_ok() {
        return Ok(text);
    }
    Err(argument.wrong("this is not a media type").help("write something like \"text/html; charset=utf-8\""))
}

/// The name of a field that a module may set.
pub(crate) fn field_name(
    argument: &foregate_module::Argument,
) -> Result<foregate_module::Text, foregate_module::Problem> {
    let name = foregate_module::Text::from(alloc::string::String::from(argument.text()?));
    match foregate_module::Field::new(name.clone(), "") {
        Ok(_) => Ok(name),
        Err(error) => Err(argument.wrong(alloc::format!("{error}"))),
    }
}

/// Path and query of a request that a module makes.
pub(crate) fn target(
    argument: &foregate_module::Argument,
) -> Result<foregate_module::Text, foregate_module::Problem> {
    let text = argument.text()?;
    if !text.starts_with('/') || !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(argument.wrong("this is not a path").help("write something like \"/verify\""));
    }
    Ok(alloc::string::String::from(text).into())
}

/// A host, with or without port, for a request that a module makes.
pub(crate) fn host(
    argument: &foregate_module::Argument,
) -> Result<foregate_module::Text, foregate_module::Problem> {
    let text = argument.text()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if text.is_empty() || !text.bytes().all(fits) {
        return Err(argument.wrong("this is not a host"));
    }
    Ok(alloc::string::String::from(text).into())
}

/// A text that can stand in quotes in a field: a realm.
pub(crate) fn quotable<'a>(
    argument: Option<&'a foregate_module::Argument>,
    otherwise: &'a str,
) -> Result<&'a str, foregate_module::Problem> {
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
pub(crate) fn cookie<'f>(fields: &'f dyn foregate_module::Fields, name: &str) -> Option<&'f [u8]> {
    let number = |number: usize| fields.field(number);
    let cookies =
        (0..fields.count()).filter_map(number).filter(|(name, _)| name.eq_ignore_ascii_case(b"cookie"));
    cookies.flat_map(|(_, value)| value.split(|byte| *byte == b';')).find_map(|pair| {
        let pair = pair.trim_ascii();
        let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(value)
    })
}
