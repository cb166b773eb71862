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

mod accept_encoding;
pub mod access;
mod arguments;
pub mod basic_auth;
pub mod body_limits;
pub mod clear_headers;
pub mod client_address;
pub mod coding;
pub mod compression;
pub mod cors;
pub mod decompression;
pub mod expressions;
pub mod canary;
pub mod forward_auth;
pub mod error_pages;
pub mod geo;
pub mod jwt;
mod lists;
mod media_type;
pub mod headers;
pub mod ranges;
pub mod maintenance;
pub mod rate_limit;
pub mod redirects;
pub mod request_id;
pub mod rules;
pub mod security_headers;
pub mod rules;
#[cfg(test)]
mod test_expressions;
pub mod trace;

use self::arguments::{content_type, cookie, field_name, host, quotable, target};
#[cfg(test)]
mod test_expressions;
pub mod static_answers;

foregate_module::pipeline! {
    /// The steps that ship, in the order of their phases.
    pub fn shipped {
        // request-early
        client_address::ClientAddress,
        clear_headers::ClearRequest,
        request_id::Identify,
        trace::Continue,
        decompression::DecompressRequest,
        // request-identity
        geo::Lookup,
        static_answers::SecurityTxt,
        maintenance::Maintenance,
        rate_limit::RateLimit<rate_limit::Identity>,
        forward_auth::Ask,
        jwt::AskForKeys,
        // request-security
        access::Judge,
        cors::CorsPreflight,
        // request-security: rules first, so that they can leave out the others
        rules::EvaluateRequest,
        rules::StopRequest,
        rate_limit::RateLimit<rate_limit::Security>,
        body_limits::LimitRequest,
        body_limits::CheckUpload,
        rules::EvaluateRequest,
        rules::StopRequest,
        redirects::FollowRedirects,
        redirects::FollowLists,
        basic_auth::LookUp,
        basic_auth::Verify,
        basic_auth::BasicAuth,
        forward_auth::ForwardAuth,
        jwt::Jwt,
        // request-body
        rate_limit::RateLimit<rate_limit::Late>,
        // request-rewrite
        rules::ChangeRequest,
        rules::EvaluateRewrite,
        rules::StopRewrite,
        // upstream-select
        rules::SelectUpstream,
        // upstream-response
        body_limits::LimitResponse,
        static_answers::Answer,
        canary::Canary,
        // upstream-select
        canary::CanaryUpstream,
        // response-headers
        headers::Request,
        headers::Response,
        request_id::Tell,
        rules::EvaluateResponse,
        rules::ReplaceResponse,
        forward_auth::ToClient,
        cors::CorsResponse,
        security_headers::SecurityHeaders,
        rate_limit::RateLimitFields,
        rules::EvaluateResponse,
        rules::ReplaceResponse,
        // response-body
        decompression::DecompressResponse,
        compression::Compress,
        error_pages::Ask,
        error_pages::Make,
        error_pages::Serve,
        clear_headers::ClearResponse,
    }
}
        canary::CanaryCookie,
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

/// The name of a cookie (RFC 6265, section 4.1.1): a token.
pub(crate) fn cookie_name(
    argument: &foregate_module::Argument,
) -> Result<alloc::string::String, foregate_module::Problem> {
    field_name(argument).map_err(|_| argument.wrong("this is not the name of a cookie"))?;
    Ok(argument.text()?.into())
}
