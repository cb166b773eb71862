//! The access logs of a configuration.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use foregate_module::{Condition, Expression};

/// The names of the values of a log line, in the JSON format and in templates.
pub const LOG_FIELDS: [&str; 29] = [
    "time",
    "client",
    "method",
    "scheme",
    "host",
    "path",
    "protocol",
    "status",
    "bytes_in",
    "bytes_out",
    "duration_us",
    "site",
    "route",
    "action",
    "upstream",
    "server",
    "attempts",
    "upstream_first_byte_us",
    "upstream_reused",
    "cache",
    "cache_reason",
    "fallback",
    "error",
    "error_side",
    "ended_by",
    "tls",
    "user_agent",
    "referer",
    "notes",
];

/// One access log.
#[derive(Clone)]
pub struct AccessLogSettings {
    /// The destination of its lines.
    pub target: LogTarget,
    /// The format of a line. Default: [`LineFormat::Json`].
    pub format: LineFormat,
    /// A request is only logged if all these conditions hold.
    pub when: Vec<Arc<dyn Condition>>,
    /// The share of requests that are logged, in units of 2^-64; `None`: all.
    pub share: Option<u64>,
    /// Further values, by their names.
    pub fields: Vec<(Arc<str>, Arc<dyn Expression>)>,
    /// If set, only the requests of one site are logged: the site with this first host. `None`: those of all sites.
    pub site: Option<Arc<str>>,
}

impl AccessLogSettings {
    /// A log of all requests in a file, in JSON.
    pub fn json(path: PathBuf) -> Self {
        Self {
            target: LogTarget::file(&path),
            format: LineFormat::Json,
            when: Vec::new(),
            share: None,
            fields: Vec::new(),
            site: None,
        }
    }
}

impl fmt::Debug for AccessLogSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.fields.iter().map(|(name, _)| name).collect();
        f.debug_struct("AccessLogSettings")
            .field("target", &self.target)
            .field("format", &self.format)
            .field("when", &self.when.len())
            .field("share", &self.share)
            .field("fields", &names)
            .field("site", &self.site)
            .finish()
    }
}

/// The format of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineFormat {
    /// An object with all values that apply.
    Json,
    /// An object with these values, by their indices in [`LOG_FIELDS`].
    JsonOf(Vec<usize>),
    /// The common log format: `CLIENT - - [TIME] "REQUEST" STATUS BYTES`.
    Common,
    /// The common format with `"REFERER" "USER AGENT"` after it.
    Combined,
    /// The concatenation of these parts.
    Template(Vec<TemplatePart>),
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// Text of the operator.
    Text(Box<str>),
    /// A value, by its index in [`LOG_FIELDS`].
    Known(usize),
    /// A further value, by its index in [`AccessLogSettings::fields`].
    Added(usize),
}

/// The destination of a log's lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// A file, a device or a named pipe.
    File {
        /// The path; `/dev/stdout` and `/dev/stderr` are the streams of the process.
        path: PathBuf,
        /// When the proxy rotates the file; `None`: it does not.
        rotation: Option<Rotation>,
    },
    /// A syslog server.
    Syslog {
        /// The receiver.
        server: SyslogServer,
        /// The facility of each message.
        facility: SyslogFacility,
    },
}

impl LogTarget {
    /// A file that the proxy does not rotate.
    pub fn file(path: &Path) -> Self {
        Self::File { path: path.to_owned(), rotation: None }
    }
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => path.display().fmt(f),
            Self::Syslog { server: SyslogServer::Udp(server), .. } => write!(f, "syslog+udp://{server}"),
            Self::Syslog { server: SyslogServer::Tcp(server), .. } => write!(f, "syslog+tcp://{server}"),
            Self::Syslog { server: SyslogServer::Unix(path), .. } => {
                write!(f, "syslog+unix:{}", path.display())
            }
        }
    }
}

/// When a log file is rotated: renamed, and replaced by a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// The size that a file does not exceed, bytes: it is rotated before.
    pub size: Option<u64>,
    /// The age at which a file is rotated.
    pub age: Option<Duration>,
    /// How many files are kept in addition to the present one, at least 1. Default: 7.
    pub keep: u32,
}

/// The facility of a syslog message (RFC 5424, section 6.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyslogFacility(u8);

impl SyslogFacility {
    /// The names of facilities with their numbers, as in `<syslog.h>`.
    const NAMES: [(&str, u8); 20] = [
        ("kern", 0),
        ("user", 1),
        ("mail", 2),
        ("daemon", 3),
        ("auth", 4),
        ("syslog", 5),
        ("lpr", 6),
        ("news", 7),
        ("uucp", 8),
        ("cron", 9),
        ("authpriv", 10),
        ("ftp", 11),
        ("local0", 16),
        ("local1", 17),
        ("local2", 18),
        ("local3", 19),
        ("local4", 20),
        ("local5", 21),
        ("local6", 22),
        ("local7", 23),
    ];

    /// The facility of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| Self(*number))
    }

    /// The names of all facilities.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        Self::NAMES.iter().map(|(name, _)| *name)
    }

    /// The priority of a message with this severity (0 to 7).
    pub fn priority(self, severity: u8) -> u8 {
        self.0 * 8 + severity.min(7)
    }
}

impl Default for SyslogFacility {
    /// `local7`, as NGINX has it.
    fn default() -> Self {
        Self(23)
    }
}

/// A receiver of syslog messages (RFC 5424).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogServer {
    /// One datagram for each message (RFC 5426), to `HOST:PORT`.
    Udp(Box<str>),
    /// Messages with their lengths before them (RFC 6587), to `HOST:PORT`.
    Tcp(Box<str>),
    /// Datagrams to a Unix socket.
    Unix(PathBuf),
}
