//! The messages between the supervisor and the processes that serve.
//!
//! The two processes may be of different versions of the program. Each message is therefore one JSON object
//! with its name in `kind`. Unknown fields are skipped, and a message with an unknown name becomes
//! [`Order::Unknown`] or [`Report::Unknown`]. Descriptors are sent with the message, in the order of the list
//! that the message contains.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The version of these messages. It is raised when an older program could not work with a newer one.
pub const PROTOCOL: u32 = 1;

/// The version of [`Bequest`].
pub const BEQUEST: u32 = 1;

/// The most bytes of the error in [`Report::Failed`]: about twenty lines.
pub const FAILURE_LIMIT: usize = 2000;

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
    /// The socket accepts clients.
    Clients,
    /// The socket serves metrics.
    Metrics,
    /// The socket is the admin socket.
    Admin,
    /// The socket serves the dashboard.
    Dashboard,
}

/// A listening socket that the supervisor holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSocket {
    /// The address as in the configuration, with `unix:` before a path. Empty for a socket of the service manager: the
    /// address has to be read from the socket.
    pub address: String,
    /// Its purpose.
    pub purpose: Purpose,
    /// The service manager created it (`LISTEN_FDS`).
    pub from_manager: bool,
}

/// The reason for which a process is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It is the first: no process served before.
    First,
    /// The process that served has ended.
    Restart,
    /// It is to take over from a process that serves.
    Candidate,
}

/// The description of a piece of state for the next generation; the piece itself is in a blob. A process skips
/// pieces with unknown tags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its name.
    pub tag: String,
    /// The version of its format.
    pub version: u32,
}

/// A message from the supervisor to a process that serves.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Order {
    /// The sockets that the supervisor holds. With a descriptor for each.
    Sockets {
        /// The sockets.
        sockets: Vec<HeldSocket>,
    },
    /// The coordination socket, which the process passes on if it has to start a new supervisor. The message comes with
    /// the socket's descriptor.
    Control {
        /// The path.
        path: PathBuf,
    },
    /// The last of the first messages: the process loads its configuration and answers with
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
        /// The reason why the process that was started after the crash could not start. This process then leaves the
        /// configuration files alone, and uses the piece of state with the configuration that was in effect last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
    },
    /// Has the process send a request to itself on each listener. The answer is [`Report::Probed`].
    Probe,
    /// Has the process take connections that arrive over the descriptor.
    Receive,
    /// Has the process pass this share of its connections, in hundredths of a percent, over the descriptor that
    /// came with the first such message. With a share of zero, connections that were passed but not yet
    /// accepted are taken back. The answer is [`Report::Done`].
    Pass {
        /// The share.
        share: u32,
    },
    /// Has the process accept all connections, and serve metrics and the admin socket. The answer is
    /// [`Report::Done`].
    Accept,
    /// Tells the process that no other generation is bound to cores any more. The process then binds its workers to
    /// cores if its configuration says so. Has no answer.
    Pin,
    /// Has the process stop accepting, release its cores, and end once its connections have ended.
    Retire {
        /// The time after which the open connections are cut off, milliseconds.
        patience: u64,
        /// Another generation serves the sockets now, so their files stay.
        replaced: bool,
    },
    /// Asks for [`Report::Stats`].
    Stats {
        /// Set if the process has to fill in [`Stats::memory`] and [`Stats::open`], because the supervisor may not
        /// read them.
        #[serde(default)]
        holdings: bool,
    },
    /// Asks for the metrics of this process alone: [`Report::Exposition`].
    Exposition,
    /// Asks for the state that goes to the next generation: [`Report::Items`].
    Items,
    /// Has the process add the present state of the version that serves to its own state. The message comes with a blob
    /// for each piece of state. The answer is [`Report::Done`]. Sent only if [`Report::Ready`] says that the process
    /// knows this order.
    Inherit {
        /// The pieces.
        items: Vec<Item>,
    },
    /// Purges of another generation, in a blob. The answer is [`Report::Done`]. Sent only if [`Report::Ready`] says
    /// that the process knows this order.
    Purges,
    /// Has the process send its stored responses in memory over the descriptor, to the process that serves from now on.
    /// Has no answer. Sent only if [`Report::Ready`] says that the process knows this order.
    GiveCache,
    /// Has the process take the stored responses of its predecessor, which arrive over the descriptor. Has no
    /// answer.
    TakeCache,
    /// The answer to [`Report::Purges`]: the other generations have the purges.
    Purged,
    /// The answer to [`Report::Share`]: the other generations have the pieces of state.
    Shared,
    /// Asks for [`Report::Status`].
    Status,
    /// The answer to [`Report::Others`]: a blob with the metrics of each other generation that runs, and one blob
    /// with the metrics of all generations that have ended.
    Others,
    /// An unknown message, from a newer version.
    #[serde(other)]
    Unknown,
}

/// A message from a process that serves to the supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Report {
    /// The process has loaded its configuration and bound its sockets.
    Ready {
        /// [`PROTOCOL`] of the process.
        protocol: u32,
        /// Its version.
        version: String,
        /// The id of the process itself. It differs from the id of the started process if that was a wrapper.
        pid: u32,
        /// The parts of the configuration that are not in effect until its next start, in words.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lacks: Vec<String>,
        /// Set if the process knows [`Order::Inherit`].
        #[serde(default)]
        inherits: bool,
        /// The version of [`Bequest`] that a supervisor of this program can take over from another supervisor; 0 if it
        /// can take over only from a process that serves.
        #[serde(default)]
        adopts: u32,
        /// Set if the process knows [`Order::Purges`].
        #[serde(default)]
        purges: bool,
        /// Set if the process knows [`Order::GiveCache`] and [`Order::TakeCache`].
        #[serde(default)]
        moves_cache: bool,
    },
    /// The process cannot start, and is about to end.
    Failed {
        /// The error with its advice, for the operator. The receiver cuts a longer text off after [`FAILURE_LIMIT`]
        /// bytes.
        error: String,
    },
    /// Sockets that the process has bound, for the supervisor to hold. The message comes with a descriptor for each.
    Hold {
        /// The sockets.
        sockets: Vec<HeldSocket>,
    },
    /// The addresses of sockets on which the process no longer listens.
    Release {
        /// The addresses.
        addresses: Vec<String>,
    },
    /// A message for the service manager.
    Notify {
        /// Its text.
        text: String,
    },
    /// Asks for [`Order::Others`]. The message comes with a blob of the process's own metrics, which are about to be
    /// shown.
    Others,
    /// Purges for the other generations, in a blob. The answer is [`Order::Purged`].
    Purges,
    /// Pieces of state that have just changed, for the other generations and for a process that is started after a
    /// crash. The message comes with a blob for each piece. The answer is [`Order::Shared`].
    Share {
        /// The pieces.
        items: Vec<Item>,
    },
    /// The last message of a process: its metrics, in a blob.
    Last,
    /// The answer to [`Order::Probe`].
    Probed {
        /// The failure, for the operator.
        error: Option<String>,
    },
    /// The order has been carried out.
    Done,
    /// The answer to [`Order::Stats`].
    Stats {
        /// The numbers.
        #[serde(flatten)]
        stats: Stats,
    },
    /// The answer to [`Order::Exposition`]: the metrics in a blob.
    Exposition,
    /// The answer to [`Order::Items`]. With a blob for each piece.
    Items {
        /// The pieces.
        items: Vec<Item>,
    },
    /// The answer to [`Order::Status`].
    Status {
        /// An object.
        status: serde_json::Value,
    },
    /// An unknown message, from a newer version.
    #[serde(other)]
    Unknown,
}

/// A message with a part of the state that a new supervisor takes over: from the supervisor that it replaces
/// or, if that has died, from the process that serves. The new supervisor reads these messages from its
/// standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Bequest {
    /// The sockets to hold. With a descriptor for each.
    Sockets {
        /// The sockets.
        sockets: Vec<HeldSocket>,
        /// The number of the generation that owns each socket. Empty if the serving generation owns all of them.
        #[serde(default)]
        owners: Vec<u64>,
    },
    /// The coordination socket. With its descriptor.
    Control {
        /// The path.
        path: PathBuf,
    },
    /// The programs that were kept, the present one last. With a descriptor for each program with an open file.
    Programs {
        /// The path of each program, and true if its file is open.
        programs: Vec<(PathBuf, bool)>,
    },
    /// The outcome of the last upgrade.
    Last {
        /// An object.
        last: serde_json::Value,
    },
    /// A process that serves. With its channel.
    Generation {
        /// Its number.
        number: u64,
        /// Its program.
        binary: PathBuf,
        /// Its process.
        pid: u32,
        /// Its version.
        version: String,
        /// Set for the generation that accepts; the others are ending.
        serving: bool,
        /// The history of the generation, if the state comes from a supervisor.
        #[serde(default)]
        past: Past,
    },
    /// Pieces of state. With a blob for each.
    Items {
        /// The pieces.
        items: Vec<Item>,
    },
    /// The metrics of generations that have ended, in a blob.
    Ended,
    /// The last message.
    End {
        /// The number of the next generation.
        next: u64,
    },
    /// An unknown message, from a newer version.
    #[serde(other)]
    Unknown,
}

/// The history of a generation, for the next supervisor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Past {
    /// The id of the process that was started; 0 if that is the process that serves.
    pub spawned: u32,
    /// The time since the start of the process, milliseconds.
    pub age: u64,
    /// The time that the process needed to become ready, milliseconds.
    pub start_took: u64,
    /// The number of the next question to the process.
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

/// The numbers by which a generation is judged: counters since its start, and gauges.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Requests that have ended.
    pub requests: u64,
    /// The number of these requests that were answered with a status of 500 or more.
    pub errors: u64,
    /// The number of these requests that ended without an answer.
    pub aborted: u64,
    /// The number of requests in each bucket of latency: the time from the start of a request to the head of its
    /// response. See [`latency_bucket`].
    pub latencies: Vec<u64>,
    /// The sum of these latencies, microseconds.
    pub latency_micros: u64,
    /// TLS handshakes that succeeded.
    pub handshakes: u64,
    /// TLS handshakes that failed.
    pub handshakes_failed: u64,
    /// The number of panics.
    pub panics: u64,
    /// How often a task blocked its worker for 100 ms or longer.
    pub blocked: u64,
    /// Connections that were accepted, or taken over from another generation.
    pub accepted: u64,
    /// Connections open now.
    pub connections: u64,
    /// Descriptors of clients, origins and temporary files that are accounted for now.
    pub descriptors: u64,
    /// The cores that its workers are bound to now, by worker; empty if they are not bound.
    pub cores: Vec<u32>,
    /// Its memory (proportional set size) in bytes, if it was asked for.
    pub memory: u64,
    /// The number of its open descriptors, if it was asked for.
    pub open: u64,
}

/// The number of latency buckets: four for each doubling, starting at 64 microseconds.
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
    fn the_failure_of_a_start_is_optional() {
        let message =
            r#"{"kind":"begin","protocol":1,"generation":3,"role":"restart","binary":"/x","items":[]"#;
        for (rest, wanted) in [("}", None), (r#","failure":"in use"}"#, Some("in use"))] {
            let text = format!("{message}{rest}");
            let order: Order = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&order).unwrap(), text);
            let Order::Begin { failure, .. } = order else { panic!("{order:?}") };
            assert_eq!(failure.as_deref(), wanted);
        }
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
