//! The messages between the supervisor and the processes that serve.
//!
//! Two versions of the program speak with each other, so that each message is one JSON object with
//! a name in `kind`; unknown fields are skipped, and a message with an unknown name is
//! [`Order::Unknown`] or [`Report::Unknown`]. Descriptors go along with the message in the order of
//! its list.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The version of these messages. It rises when an older program could not go on with a newer one.
pub const PROTOCOL: u32 = 1;

/// The version of [`Bequest`] that a supervisor takes over from one that replaces itself.
pub const BEQUEST: u32 = 1;

/// A message with the number of the question that it asks or answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// The number of a question, which its answer repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The message.
    #[serde(flatten)]
    pub body: T,
}

/// The purpose of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// For clients.
    Clients,
    /// The socket serves metrics.
    Metrics,
    /// The admin socket.
    Admin,
    /// The socket serves the dashboard.
    Dashboard,
}

/// A listening socket that the supervisor holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSocket {
    /// The address in the configuration, with `unix:` before a path; empty if only the socket itself has it.
    pub address: String,
    /// Its purpose.
    pub purpose: Purpose,
    /// The service manager created it (`LISTEN_FDS`).
    pub from_manager: bool,
}

/// Why a process is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Nothing served before.
    First,
    /// The process that served has ended.
    Restart,
    /// Takes over from a process that serves.
    Candidate,
}

/// A piece of state for the next generation, in a blob of its own. A process skips pieces that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its name.
    pub tag: String,
    /// The version of its format.
    pub version: u32,
}

/// A message of the supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Order {
    /// Sockets that are held; a descriptor for each.
    Sockets {
        /// The sockets.
        sockets: Vec<HeldSocket>,
    },
    /// The coordination socket, at its path, for a supervisor that the process may have to start; its
    /// descriptor.
    Control {
        /// The path.
        path: PathBuf,
    },
    /// The first messages end here: the process loads its configuration and reports
    /// [`Report::Ready`].
    Begin {
        /// [`PROTOCOL`] of the supervisor.
        protocol: u32,
        /// The number of this generation.
        generation: u64,
        /// The reason for which it is started.
        role: Role,
        /// The path of its program.
        binary: PathBuf,
        /// Pieces of state, a blob for each.
        items: Vec<Item>,
    },
    /// Asks for a request to itself on each listener; [`Report::Probed`].
    Probe,
    /// Connections arrive over the descriptor.
    Receive,
    /// Passes this share of the connections, in hundredths of a percent, over the descriptor that
    /// came with the first such message. With a share of zero, connections that were passed and not
    /// accepted come back. [`Report::Done`].
    Pass {
        /// The share.
        share: u32,
    },
    /// Accepts alone, and serves metrics and the admin socket. [`Report::Done`].
    Accept,
    /// No other generation is bound to cores any more: the process binds its workers, if its configuration says so. Has
    /// no answer.
    Pin,
    /// Stops accepting, lets go of its cores, and ends once its connections have ended, without hurry.
    Retire {
        /// The time after which the open connections are cut off, milliseconds.
        patience: u64,
        /// Another generation serves the sockets now, so their files stay.
        replaced: bool,
    },
    /// Asks for [`Report::Stats`].
    Stats {
        /// The process reads [`Stats::memory`] and [`Stats::open`] itself, since its supervisor may
        /// not.
        #[serde(default)]
        holdings: bool,
    },
    /// Asks for the metrics of this process alone: [`Report::Exposition`].
    Exposition,
    /// Asks for the state that goes to the next generation: [`Report::Items`].
    Items,
    /// Adds the present state of the version that serves to its own; a blob for each piece.
    /// [`Report::Done`]. Only for processes that say so ([`Report::Ready`]).
    Inherit {
        /// The pieces.
        items: Vec<Item>,
    },
    /// Purges of another generation, in a blob. [`Report::Done`]. Only for processes that say so
    /// ([`Report::Ready`]).
    Purges,
    /// Moves the stored responses in memory over the descriptor to the process that serves from now on. Has no answer. Only for processes
    /// that say so ([`Report::Ready`]).
    GiveCache,
    /// Stored responses of the process before come over the descriptor. Has no answer.
    TakeCache,
    /// The answer to [`Report::Purges`]: the others have them.
    Purged,
    /// The answer to [`Report::Share`]: the others have it.
    Shared,
    /// Asks for [`Report::Status`].
    Status,
    /// The answer to [`Report::Others`]: a blob with the metrics of each of the others that live,
    /// and of those that have ended.
    Others,
    /// A message of a newer version.
    #[serde(other)]
    Unknown,
}

/// A message of a process that serves.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Report {
    /// All is loaded and bound.
    Ready {
        /// [`PROTOCOL`] of the process.
        protocol: u32,
        /// Its version.
        version: String,
        /// Its own process, which a wrapper may have started.
        pid: u32,
        /// The parts of the configuration that are not in effect until its next start, in words.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lacks: Vec<String>,
        /// Knows [`Order::Inherit`].
        #[serde(default)]
        inherits: bool,
        /// The version of [`Bequest`] that a supervisor of this program takes over; 0 for one that
        /// takes over from a process that serves alone.
        #[serde(default)]
        adopts: u32,
        /// Knows [`Order::Purges`].
        #[serde(default)]
        purges: bool,
        /// Knows [`Order::GiveCache`] and [`Order::TakeCache`].
        #[serde(default)]
        moves_cache: bool,
    },
    /// Sockets that were bound, to be held; a descriptor for each.
    Hold {
        /// The sockets.
        sockets: Vec<HeldSocket>,
    },
    /// Sockets that are no longer listened on, by their addresses.
    Release {
        /// The addresses.
        addresses: Vec<String>,
    },
    /// A message for the service manager.
    Notify {
        /// Its text.
        text: String,
    },
    /// Asks for [`Order::Others`]; a blob with its own metrics, as they are about to be shown.
    Others,
    /// Purges for the other generations, in a blob; [`Order::Purged`].
    Purges,
    /// Pieces of state that have just changed, a blob for each, for the other generations and for one that follows a crash;
    /// [`Order::Shared`].
    Share {
        /// The pieces.
        items: Vec<Item>,
    },
    /// The last message of a process: its metrics, in a blob.
    Last,
    /// See [`Order::Probe`].
    Probed {
        /// The failure, for the operator.
        error: Option<String>,
    },
    /// The order has been carried out.
    Done,
    /// See [`Order::Stats`].
    Stats {
        /// The numbers.
        #[serde(flatten)]
        stats: Stats,
    },
    /// A blob.
    Exposition,
    /// See [`Order::Items`]; a blob for each.
    Items {
        /// The pieces.
        items: Vec<Item>,
    },
    /// See [`Order::Status`].
    Status {
        /// An object.
        status: serde_json::Value,
    },
    /// A message of a newer version.
    #[serde(other)]
    Unknown,
}

/// The state that a new supervisor takes over, from one that replaces itself or, where that has
/// died, from the process that serves. These messages lie on its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Bequest {
    /// Sockets to hold; a descriptor for each.
    Sockets {
        /// The sockets.
        sockets: Vec<HeldSocket>,
        /// The generation of each; none where all are of the one that serves.
        #[serde(default)]
        owners: Vec<u64>,
    },
    /// The coordination socket, at its path; its descriptor.
    Control {
        /// The path.
        path: PathBuf,
    },
    /// Programs that were kept, the present one last; a descriptor for each that has an open file.
    Programs {
        /// Each with its path, and whether its file is open.
        programs: Vec<(PathBuf, bool)>,
    },
    /// The end of the last upgrade.
    Last {
        /// An object.
        last: serde_json::Value,
    },
    /// A process that serves, with its channel.
    Generation {
        /// Its number.
        number: u64,
        /// Its program.
        binary: PathBuf,
        /// Its process.
        pid: u32,
        /// Its version.
        version: String,
        /// This generation accepts; the others are ending.
        serving: bool,
        /// Further knowledge of a supervisor that replaces itself.
        #[serde(default)]
        past: Past,
    },
    /// Pieces of state; a blob for each.
    Items {
        /// The pieces.
        items: Vec<Item>,
    },
    /// The metrics of generations that have ended, in a blob.
    Ended,
    /// Nothing follows.
    End {
        /// The number of the next generation.
        next: u64,
    },
    /// A message of a newer version.
    #[serde(other)]
    Unknown,
}

/// The history of a generation, for the next supervisor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Past {
    /// The process that was started; 0 where it is the one that serves.
    pub spawned: u32,
    /// Milliseconds since its start.
    pub age: u64,
    /// Milliseconds until it was ready.
    pub start_took: u64,
    /// The number of the next question to it.
    pub next_question: u64,
    /// See [`Report::Ready`].
    pub lacks: Vec<String>,
    /// See [`Report::Ready`].
    pub inherits: bool,
    /// See [`Report::Ready`].
    pub adopts: u32,
    /// See [`Report::Ready`].
    pub purges: bool,
    /// See [`Report::Ready`].
    pub moves_cache: bool,
}

/// The numbers by which a generation is judged, since its start. All but the gauges only rise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Requests that have ended.
    pub requests: u64,
    /// Of these, answered with a status from 500 on.
    pub errors: u64,
    /// Of these, requests that ended without an answer.
    pub aborted: u64,
    /// Times from a request's start to the head of its response, by bucket; see [`latency_bucket`].
    pub latencies: Vec<u64>,
    /// The sum of these times, microseconds.
    pub latency_micros: u64,
    /// TLS handshakes that succeeded.
    pub handshakes: u64,
    /// TLS handshakes that failed.
    pub handshakes_failed: u64,
    /// Panics.
    pub panics: u64,
    /// How often a task blocked its worker for 100 ms or longer.
    pub blocked: u64,
    /// Connections accepted or taken.
    pub accepted: u64,
    /// Connections open now.
    pub connections: u64,
    /// Descriptors of clients, origins and temporary files that are accounted for now.
    pub descriptors: u64,
    /// The cores that its workers are bound to now, by worker; empty if they are not bound.
    pub cores: Vec<u32>,
    /// Its memory (proportional set size) in bytes, if it was asked for.
    pub memory: u64,
    /// Its open descriptors, where they were asked for.
    pub open: u64,
}

/// Buckets of latencies: four for each doubling, from 64 us on.
pub const LATENCY_BUCKETS: usize = 88;

/// The bucket of a latency in microseconds.
pub fn latency_bucket(micros: u64) -> usize {
    let units = (micros >> 4).max(4);
    let doublings = 63 - units.leading_zeros() as usize;
    let quarter = (units >> (doublings - 2)) as usize & 3;
    ((doublings - 2) * 4 + quarter).min(LATENCY_BUCKETS - 1)
}

/// The lower end of a bucket, microseconds.
pub fn latency_of(bucket: usize) -> u64 {
    let (doublings, quarter) = (bucket / 4, bucket as u64 % 4);
    (4 + quarter) << doublings << 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_a_fifth_to_a_quarter_wide() {
        assert_eq!((latency_bucket(0), latency_bucket(79), latency_bucket(80)), (0, 0, 1));
        for bucket in 0..LATENCY_BUCKETS - 1 {
            let (from, to) = (latency_of(bucket), latency_of(bucket + 1));
            assert_eq!((latency_bucket(from), latency_bucket(to - 1)), (bucket, bucket));
            assert!(to - from <= from / 4, "{from} to {to}");
        }
        assert_eq!(latency_bucket(u64::MAX), LATENCY_BUCKETS - 1);
    }

    #[test]
    fn messages_of_newer_versions_are_skipped() {
        let message = r#"{"id":7,"kind":"dance","steps":3}"#;
        let order: Envelope<Order> = serde_json::from_str(message).unwrap();
        assert!(matches!(order, Envelope { id: Some(7), body: Order::Unknown }));
        let message = r#"{"kind":"ready","protocol":2,"version":"9","pid":1,"mood":"fine"}"#;
        let report: Envelope<Report> = serde_json::from_str(message).unwrap();
        assert!(matches!(report.body, Report::Ready { protocol: 2, inherits: false, adopts: 0, .. }));
        let message =
            r#"{"kind":"generation","number":3,"binary":"/x","pid":7,"version":"1","serving":true}"#;
        let bequest: Bequest = serde_json::from_str(message).unwrap();
        assert!(matches!(bequest, Bequest::Generation { number: 3, past, .. } if past == Past::default()));
        let message = r#"{"kind":"sockets","sockets":[]}"#;
        assert!(
            matches!(serde_json::from_str(message).unwrap(), Bequest::Sockets { owners, .. } if owners.is_empty())
        );
        let stats = Report::Stats { stats: Stats { requests: 3, latencies: vec![1, 2], ..Stats::default() } };
        let text = serde_json::to_string(&Envelope { id: Some(1), body: stats }).unwrap();
        let Report::Stats { stats } = serde_json::from_str::<Envelope<Report>>(&text).unwrap().body else {
            panic!("{text}");
        };
        assert_eq!((stats.requests, stats.latencies), (3, vec![1, 2]));
    }
}
