//! The contract between Foregate and its modules.
//!
//! A module is pure product logic: it has no I/O, no clock and no globals. It consists of [`Step`]s. Each step declares
//! its [`Phase`] of an exchange, its inputs and outputs, and the ways in which it may end the request. The compiler
//! checks the list of all steps, which is made with [`pipeline!`]. These are compile errors, each explained in a
//! sentence: a value that is read before a step writes it, two writers of one value, a status code that is read before
//! there is one.
//!
//! ```
//! use core::ops::ControlFlow;
//! use foregate_module::{Edits, EditResponse, Never, Step, Filter, phase, pipeline};
//!
//! /// Says who made it.
//! #[derive(Debug, Default)]
//! pub struct Signature;
//!
//! impl Step for Signature {
//!     type At = phase::ResponseHeaders;
//!     type Settings = ();
//!     type In<'r> = ();
//!     type Out = (EditResponse,);
//!     type Stop = Never;
//!     const NAME: &'static str = "signature";
//!     const ABOUT: &'static str = "Adds `x-signature` to every response.";
//!     const FILTERS: &'static [Filter] = &[];
//!     fn run(&self, (): &(), (): ()) -> ControlFlow<Never, Self::Out> {
//!         ControlFlow::Continue((EditResponse(Edits::new().set("x-signature", "foregate")),))
//!     }
//! }
//!
//! pipeline! { pub fn steps { Signature } }
//! assert_eq!(steps().steps().count(), 1);
//! ```
//!
//! The crate is `no_std`: the names of files, sockets and clocks do not resolve in it, nor in the crates of modules. A step
//! that needs a response from elsewhere emits a [`Fetch`]; the platform performs it between phases.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod action;
mod answers;
mod body;
mod check;
mod condition;
mod exchange;
mod fetch;
mod fields;
mod ids;
mod inheritance;
mod input;
mod output;
mod phase_id;
mod pipeline;
mod plan;
mod response;
mod runner;
pub mod settings;
mod slot;
mod state;
mod step;
mod steps;
mod target;
pub mod testing;
mod text;
mod validators;
mod value;

pub use action::{
    Abort, Action, Either, EmitAnd, Never, Noted, Redirect, Replace, Respond, StopAt, Terminal,
};
pub use answers::{AnswerKey, KeptAnswers};
pub use body::{
    Bail, BodyFilter, Chain, Decoded, DecodedBody, Filtered, Finding, Guard, PART_PASSED, Passed, PlainBody,
    Sink, Start, Traffic, Wish,
};
pub use check::{Decl, check, decl, merged};
pub use condition::{Condition, Conditions, Expression};
pub use exchange::{Exchange, Now, Received, Refusal, Source, Summary, TlsFacts, TraceContext};
pub use fetch::{
    Fetch, FetchError, FetchKey, FetchRequest, FetchResponse, FetchResult, FetchTarget, Fetched, Usable,
};
pub use fields::{Edit, Edits, Field, FieldError, Fields, FieldsMut};
pub use ids::{LogId, UpstreamId};
pub use input::{
    Authority, Body, ClientAddress, Doubt, DryRun, ErrorKind, GiveWay, Host, Input, Inputs, MemoryIsShort,
    Method, OtherPaths, Outcome, Path, PeerAddress, PlanVersion, Protocol, Query, Random, RawTarget,
    ReadableAt, ReceivedRequest, RequestFields, RequestLength, ResponseBody, ResponseFields, ResponseSource,
    RouteName, Scheme, SiteName, Status, Time, Tls, Unseen, View,
};
pub use output::{
    Add, Apply, AskWhole, ChooseUpstream, Count, Counts, EditRequest, EditResponse, Emit, FilterRequestBody,
    FilterResponseBody, Findings, HoldResponseBody, Holds, LimitRequestBody, LogLine, Note, Notes, Output,
    Outputs, RewriteTarget, SetClientAddress, SetClientScheme, SetTrace, Skip, Tally, WritableAt, WriteLog,
};
pub use phase_id::{Phase, PhaseId, phase};
pub use pipeline::{Entry, Group, Pipeline, TooLate, group, groups};
pub use plan::{Configured, Plan, PlanBuilder, PlannedStep, Untakable};
pub use response::Response;
pub use runner::{Fault, Next, Platform, Runner, StepEnd, StepPlace};
pub use settings::{Argument, Context, FromNode, Key, Node, Problem};
pub use slot::{Access, Slot, ValueInfo};
pub use state::{Added, Question, Read, Slots, State, Take};
pub use step::{ErasedStep, Filter, Load, Step, Swept, Verdict, Weight, WhenFull, erase};
pub use steps::Steps;
pub use target::has_parent_segment;
pub use text::Text;
pub use validators::{restore_validators, versioned, versioned_validators};
pub use value::{Kind, Shown, Value};

/// The name of the event, and of the note, for an effect that was skipped because of a dry run.
pub(crate) const DRY_RUN: &str = "dry-run";
