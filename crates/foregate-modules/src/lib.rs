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

pub mod redirects;
pub mod clear_headers;

foregate_module::pipeline! {
    /// The steps that ship, in the order of their phases.
    pub fn shipped {
        redirects::FollowRedirects,
        redirects::FollowLists,
        clear_headers::ClearRequest,
        clear_headers::ClearResponse,
    }
}
