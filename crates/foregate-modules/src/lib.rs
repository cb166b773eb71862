//! The modules that ship with Foregate. Each is in one file, and uses only the interface of `foregate-module`.
//!
//! [`shipped()`] is the only list of their steps. A program with its own modules includes this list:
//!
//! ```
//! foregate_module::pipeline! { pub fn steps { use foregate_modules::shipped; } }
//! assert_eq!(steps().steps().count(), foregate_modules::shipped().steps().count());
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub use foregate_coding as coding;

pub mod access;
mod arguments;
pub mod basic_auth;
pub mod body_limits;
pub mod canary;
pub mod clear_headers;
pub mod client_address;
pub mod compression;
pub mod cors;
pub mod decompression;
pub mod error_pages;
pub mod expressions;
pub mod forward_auth;
pub mod geo;
pub mod headers;
pub mod jwt;
mod lists;
mod literal;
pub mod maintenance;
mod media_type;
mod names;
mod pairs;
pub mod ranges;
pub mod rate_limit;
pub mod redirects;
pub mod request_id;
pub mod rules;
pub mod security_headers;
pub mod static_answers;
#[cfg(test)]
mod test_expressions;
mod token;
pub mod trace;

use self::arguments::{
    content_type, cookie, cookie_name, cookies, field_name, host, quotable, target, told_in,
};

foregate_module::pipeline! {
    /// The steps that ship with this crate, in the order of their phases.
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
        access::Judge,
        maintenance::Maintenance,
        rate_limit::RateLimit<rate_limit::Identity>,
        cors::RecognisePreflight,
        forward_auth::AskForAccess,
        forward_auth::AskOthers,
        jwt::AskForKeys,
        // request-security: rules first, so that they can skip the other modules
        rules::EvaluateRequest,
        rules::StopRequest,
        cors::CorsPreflight,
        rate_limit::RateLimit<rate_limit::Security>,
        body_limits::LimitRequest,
        body_limits::CheckUpload,
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
        static_answers::Answer,
        canary::Canary,
        headers::EditRequestFields,
        rules::ChangeRequest,
        rules::EvaluateRewrite,
        rules::StopRewrite,
        // upstream-select
        canary::CanaryUpstream,
        rules::SelectUpstream,
        // upstream-response
        body_limits::LimitResponse,
        // response-headers
        rules::EvaluateResponse,
        rules::ReplaceResponse,
        rules::ChangeResponse,
        request_id::Tell,
        error_pages::AskForPage,
        headers::Response,
        forward_auth::ToClient,
        canary::CanaryCookie,
        cors::CorsResponse,
        security_headers::SecurityHeaders,
        rate_limit::RateLimitFields,
        // response-error-page
        error_pages::Make,
        error_pages::Serve,
        // response-body
        decompression::DecompressPart,
        decompression::DecompressResponse,
        decompression::DecodeForFilters,
        // after all other steps of response-body, including those of other crates
        compression::Compress,
        compression::EncodeAgain,
        clear_headers::ClearResponse,
    }
}
