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
pub mod rate_limit;
pub mod redirects;
#[cfg(test)]
mod test_expressions;
pub mod client_address;
pub mod geo;
pub mod ranges;
pub mod request_id;
pub mod trace;

foregate_module::pipeline! {
    /// The steps that ship, in the order of their phases.
    pub fn shipped {
        // request-early
        client_address::ClientAddress,
        clear_headers::ClearRequest,
        // request-identity
        rate_limit::RateLimit<rate_limit::Identity>,
        forward_auth::Ask,
        // request-security
        rate_limit::RateLimit<rate_limit::Security>,
        redirects::FollowRedirects,
        redirects::FollowLists,
        basic_auth::LookUp,
        basic_auth::Verify,
        basic_auth::BasicAuth,
        forward_auth::ForwardAuth,
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
