//! The configuration of modules: which keys there are, and how a module reads its own.
//!
//! A module states its key as a constant table ([`Key`]). By this table, the platform checks names, counts and blocks,
//! and writes the reference. It passes the valid nodes to the module, which turns them into its own type once, at load.
//!
//! ```
//! use foregate_module::settings::{Context, FromNode, Key, Node, Problem};
//!
//! /// `greeting "hello"`
//! pub struct Greeting {
//!     text: String,
//! }
//!
//! impl FromNode for Greeting {
//!     const KEY: Option<&'static Key> = Some(&Key::one(
//!         "greeting",
//!         "TEXT",
//!         "greeting \"hello\"",
//!         "Adds `x-greeting` to every response.",
//!     ));
//!     fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
//!         let [node] = nodes else { return Ok(Self { text: String::new() }) };
//!         Ok(Self { text: node.arg(0)?.text()?.into() })
//!     }
//! }
//! ```

mod mistakes;
mod node;
mod schema;
pub mod value;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub use self::mistakes::{Mistakes, Parts, each, together};
pub use self::node::{Argument, FURTHER_LIMIT, Node, Place, Problem};
pub use self::schema::{ANY, Block, Key, Prop};
pub use self::value::{Scalar, Wrong};
use crate::condition::{Condition, Conditions, Expression};
pub use crate::ids::{LogId, UpstreamId};
use crate::phase_id::PhaseId;
use crate::steps::Steps;

/// Settings of a module, read from the configuration.
pub trait FromNode: Sized + Send + Sync + 'static {
    /// The key; `None` for steps that need none and are always on.
    ///
    /// The key may be at the top of the file, in a site and in a route. If the key may occur only once, the innermost
    /// node is used; if it may occur several times, all nodes are used, the outermost first. `KEY #false` turns off the
    /// inherited nodes. Every key that may occur only once also has the properties `when="EXPRESSION"` and
    /// `dry-run=#true`. If a key may occur several times, its module reads the properties of each node itself.
    const KEY: Option<&'static Key>;

    /// Reads the nodes: one, or any number if the key may occur several times. They have been checked against the table.
    ///
    /// # Errors
    ///
    /// The errors with their places: all of them at once, see [`together`] and [`each`].
    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem>;
}

impl FromNode for () {
    const KEY: Option<&'static Key> = None;
    fn from_nodes(_: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        Ok(())
    }
}

/// The services for a module that reads its settings.
pub trait Context {
    /// The upstream of this name.
    ///
    /// # Errors
    ///
    /// There is none.
    fn upstream(&mut self, name: &Argument) -> Result<UpstreamId, Problem>;

    /// The content of a file, with a path relative to the folder of the configuration file. A change of the file reloads the
    /// configuration.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has more than `limit` bytes.
    fn file(&mut self, path: &Argument, limit: usize) -> Result<Arc<[u8]>, Problem>;

    /// The files that match a pattern with `*` and `?`, sorted by name. Each is a path for [`file`](Self::file), to be
    /// used in place of the argument's text. A path without wildcards is returned even if there is no such file.
    ///
    /// # Errors
    ///
    /// A folder that cannot be listed, or a platform without files.
    fn glob(&mut self, pattern: &Argument) -> Result<Vec<String>, Problem> {
        Err(pattern.wrong("files are not listed here"))
    }

    /// A log file, with a path relative to the folder of the configuration file: the target of [`WriteLog`](crate::WriteLog).
    /// It is opened when the configuration takes effect, created with mode 0640, appended to, and reopened when the
    /// access log is. Equal paths are the same file.
    ///
    /// # Errors
    ///
    /// An empty path, or a platform without log files.
    fn log(&mut self, path: &Argument) -> Result<LogId, Problem> {
        Err(path.wrong("log files are not written here"))
    }

    /// Warns, when the configuration is loaded or checked, of a valid setting that does not have its apparent effect.
    /// Default: the warning is dropped.
    fn warn(&mut self, _: Problem) {}

    /// The time of reading, in seconds since the start of 1970, UTC: for settings that can expire.
    /// `None`, the default, if the platform does not provide it.
    fn unix_seconds(&self) -> Option<u64> {
        None
    }

    /// An expression of type bool, to be evaluated in `phase`.
    ///
    /// # Errors
    ///
    /// The expression is invalid, or refers to something that is not known in that phase.
    fn condition(&mut self, text: &Argument, phase: PhaseId) -> Result<Arc<dyn Condition>, Problem>;

    /// An expression of any type, to be evaluated in `phase`.
    ///
    /// # Errors
    ///
    /// As [`condition`](Self::condition).
    fn expression(&mut self, text: &Argument, phase: PhaseId) -> Result<Arc<dyn Expression>, Problem>;

    /// Many conditions, evaluated together in `phase`.
    ///
    /// # Errors
    ///
    /// As [`condition`](Self::condition).
    fn conditions(&mut self, texts: &[Argument], phase: PhaseId) -> Result<Arc<dyn Conditions>, Problem>;

    /// The steps of a module, by the name of its key or of a step.
    ///
    /// # Errors
    ///
    /// There is no such module.
    fn steps(&mut self, name: &Argument) -> Result<Steps, Problem>;

    /// The same as [`steps`](Self::steps), for a step that skips them: the step `after`.
    ///
    /// # Errors
    ///
    /// As [`steps`](Self::steps); or the named steps run before `after`, so that `after` could not skip them.
    fn steps_after(&mut self, name: &Argument, after: &str) -> Result<Steps, Problem> {
        let _ = after;
        self.steps(name)
    }
}
