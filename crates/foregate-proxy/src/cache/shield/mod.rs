//! The shield: a group of proxies in which one node asks the origin for each address, and the others ask that node.
//!
//! Each node keeps a log of its own purges, and follows the logs of the other nodes all the time ([`follow`]). If a
//! node has not heard from another node for some seconds, it does not use its store until that node answers, or is
//! known to be away. So a node that was stopped, suspended or cut off applies the purges that it missed before it
//! serves stored responses again.

mod call;
mod follow;
mod positions;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use foregate_cache::{PurgeLog, owner};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use self::call::CallKey;
pub use self::call::{
    AnswerKind, CallKind, FetchCall, LogPosition, NodeCall, Recipient, SHIELD_FIELD, TAGS_FIELD,
};
use self::positions::Positions;
use super::Cache;
use crate::counters::cache::{NodeFigures, ShieldFigures};
use crate::counters::metrics::Counter;
use crate::settings::ShieldSettings;
use crate::time::clock::Clock;

/// If the last answer of a node is older than this, the store is not used before its next answer. Nodes answer each
/// second.
const SILENCE: Duration = Duration::from_secs(5);
/// How long a purge waits for the other nodes to confirm it. It takes effect on this node at once, and reaches the
/// other nodes later if they do not confirm it in time.
const CONFIRM: Duration = Duration::from_secs(2);
/// A node that has not asked for purges for this long is away: no purge waits for it.
const AWAY: Duration = Duration::from_secs(4);
/// How long a request of another node waits for purges that the other node knows and this one does not.
const CATCH_UP: Duration = Duration::from_millis(300);
/// The most purges in one answer.
const AT_ONCE: usize = 1000;

/// The state of the shield in this process. It exists without a group, too.
#[derive(Debug)]
pub struct Shield {
    log: Mutex<PurgeLog>,
    /// When the log began.
    began: Instant,
    /// Notified when there is a new purge in the log.
    news: Notify,
    /// Notified when another node has confirmed purges.
    confirmed: Notify,
    /// For each node, by name: the number of the last purge of this log that the node knows, and the time of the node's
    /// last question.
    readers: Mutex<HashMap<Box<str>, (u64, Instant)>>,
    group: ArcSwapOption<ShieldGroup>,
    /// The file with the positions in the logs of the other nodes. There is one only if the store outlives the process.
    positions: Positions,
    /// Counters.
    pub counters: ShieldCounters,
    clock: Clock,
}

/// Counters of the shield.
#[derive(Debug, Default)]
pub struct ShieldCounters {
    /// Responses that came from the node that owns their address.
    pub asked: Counter,
    /// Requests that went to the origin directly, because the node that owns the address was away or declined.
    pub direct: Counter,
    /// Requests of other nodes that this node served.
    pub served: Counter,
    /// Requests on the listener of the group without a valid proof.
    pub refused: Counter,
    /// Requests that did not use the store, because purges may have been missing.
    pub behind: Counter,
    /// Purges of other nodes that were applied here.
    pub purges: Counter,
}

/// A running group, as one node sees it.
#[derive(Debug)]
pub struct ShieldGroup {
    /// The settings.
    pub settings: Arc<ShieldSettings>,
    key: CallKey,
    /// The id of the group in the field `CDN-Loop`.
    pub loop_id: String,
    nodes: Vec<NodeState>,
    /// Notified when purges of another node were applied.
    learned: Notify,
    start: Instant,
    clock: Clock,
    /// True once the group has ended or was replaced.
    over: AtomicBool,
}

/// The known state of a node.
#[derive(Debug, Default)]
struct NodeState {
    position: Mutex<Option<LogPosition>>,
    /// The time at which the latest question with an answer was sent, in milliseconds after the start of the group; 0
    /// if no question was answered yet.
    heard: AtomicU64,
    /// When the last question was sent, answered or not, in the same unit.
    tried: AtomicU64,
    presence: Mutex<Presence>,
    changed: Notify,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// The node has not been asked yet.
    #[default]
    Unknown,
    Up,
    Away,
}

impl Shield {
    /// A shield without nodes. The file of positions is in `folder`, if there is one.
    pub(super) fn new(folder: Option<PathBuf>, clock: Clock) -> Self {
        Self {
            log: Mutex::new(PurgeLog::new(crate::random::number())),
            began: clock.now(),
            news: Notify::new(),
            confirmed: Notify::new(),
            readers: Mutex::default(),
            group: ArcSwapOption::empty(),
            positions: Positions::new(folder),
            counters: ShieldCounters::default(),
            clock,
        }
    }

    /// The group, if the process belongs to one.
    pub fn group(&self) -> Option<Arc<ShieldGroup>> {
        self.group.load_full()
    }

    /// Starts the group with these settings, in place of the present one. Without settings, the present group ends.
    pub(super) fn set(&self, cache: &Arc<Cache>, settings: Option<&Arc<ShieldSettings>>) {
        let present = self.group();
        if present.as_ref().map(|group| &*group.settings) == settings.map(|settings| &**settings) {
            return;
        }
        if let Some(present) = &present {
            present.over.store(true, Ordering::Relaxed);
        }
        let group = settings.map(|settings| {
            let known = match &present {
                Some(group) => group.positions(),
                None => self.positions.read(settings),
            };
            Arc::new(ShieldGroup::new(settings, &known, self.clock))
        });
        self.group.store(group.clone());
        if let Some(group) = group
            && let Err(error) = follow::start(cache, group)
        {
            tracing::error!(%error, "the shield does not work: there is no thread for it");
            self.group.store(None);
        }
    }

    /// Sends a purge to the other nodes. `None` without a group. The future ends once all nodes that are not away have the
    /// purge, or after the time limit.
    pub(super) fn tell(self: &Arc<Self>, purge: &[u8]) -> Option<impl Future<Output = ()> + Send + use<>> {
        let group = self.group()?;
        let number = self.log.lock().add(purge);
        self.news.notify_waiters();
        let shield = Arc::clone(self);
        Some(async move {
            let confirmed = async {
                loop {
                    let told = shield.confirmed.notified();
                    if shield.is_confirmed(number) {
                        break;
                    }
                    told.await;
                }
            };
            if timeout(CONFIRM, confirmed).await.is_err() {
                tracing::warn!(group = %group.settings.name, "a node of the shield has not confirmed a purge yet");
            }
        })
    }

    /// Returns whether all nodes that are not away have a purge of this node's log.
    fn is_confirmed(&self, number: u64) -> bool {
        let now = self.clock.now();
        let is_away = |seen| now.saturating_duration_since(seen) > AWAY;
        self.readers.lock().values().all(|(known, seen)| *known >= number || is_away(*seen))
    }

    /// The end of this node's own log.
    pub fn position(&self) -> LogPosition {
        let log = self.log.lock();
        LogPosition { epoch: log.epoch(), number: log.latest() }
    }

    /// The encoded purges that come after the position that a node knows. If there are none, waits up to `wait` for one.
    pub async fn purges_for(&self, node: &str, position: LogPosition, wait: Duration) -> Vec<u8> {
        let mut number = position.number;
        {
            let log = self.log.lock();
            if log.epoch() == position.epoch {
                let mut readers = self.readers.lock();
                // Only nodes of the configuration can ask, so the table stays small.
                readers.insert(node.into(), (number, self.clock.now()));
                drop(readers);
                self.confirmed.notify_waiters();
            } else {
                number = 0;
            }
        }
        if number > 0 || position.epoch == self.position().epoch {
            let _ = timeout(wait, async {
                loop {
                    let news = self.news.notified();
                    if self.position().number > number {
                        break;
                    }
                    news.await;
                }
            })
            .await;
        }
        let log = self.log.lock();
        let age = self.clock.now().saturating_duration_since(self.began);
        follow::encode((log.epoch(), log.latest()), age, &log.since(number, AT_ONCE))
    }

    /// Forgets nodes that are no longer in the group.
    fn forget_readers(&self, group: &ShieldGroup) {
        self.readers.lock().retain(|name, _| group.settings.nodes.iter().any(|node| node.name == *name));
    }

    /// The figures, if the process belongs to a group.
    pub fn figures(&self) -> Option<ShieldFigures> {
        let (group, counters) = (self.group()?, &self.counters);
        Some(ShieldFigures {
            name: group.settings.name.to_string(),
            asked: counters.asked.get(),
            direct: counters.direct.get(),
            served: counters.served.get(),
            refused: counters.refused.get(),
            behind: counters.behind.get(),
            purges: counters.purges.get(),
            nodes: self.nodes(),
        })
    }

    /// The nodes, for operators.
    pub fn nodes(&self) -> Vec<NodeFigures> {
        let Some(group) = self.group() else { return Vec::new() };
        let (latest, readers) = (self.position().number, self.readers.lock());
        let nodes = group.settings.nodes.iter().enumerate().map(|(number, node)| {
            let own = number == group.settings.own;
            NodeFigures {
                name: node.name.to_string(),
                address: node.address.to_string(),
                own,
                up: own || group.is_up(number),
                current: own || readers.get(&node.name).is_some_and(|(known, _)| *known >= latest),
            }
        });
        nodes.collect()
    }
}

impl ShieldGroup {
    fn new(settings: &Arc<ShieldSettings>, known: &HashMap<String, LogPosition>, clock: Clock) -> Self {
        let key = CallKey::new(&settings.secret);
        let state = |node: &crate::settings::ShieldNode| NodeState {
            position: Mutex::new(known.get(&*node.name).copied()),
            ..NodeState::default()
        };
        Self {
            loop_id: key.loop_id(&settings.name),
            nodes: settings.nodes.iter().map(state).collect(),
            key,
            settings: Arc::clone(settings),
            learned: Notify::new(),
            start: clock.now(),
            clock,
            over: AtomicBool::new(false),
        }
    }

    fn others(&self) -> impl Iterator<Item = (usize, &NodeState)> {
        self.nodes.iter().enumerate().filter(|(number, _)| *number != self.settings.own)
    }

    /// Milliseconds since the start, never 0.
    fn now(&self) -> u64 {
        let since = self.clock.now().saturating_duration_since(self.start);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn is_recent(&self, moment: &AtomicU64) -> bool {
        let since = self.now().saturating_sub(moment.load(Ordering::Acquire));
        u128::from(since) < SILENCE.as_millis()
    }

    /// Returns whether a node answers.
    pub fn is_up(&self, number: usize) -> bool {
        self.nodes
            .get(number)
            .is_some_and(|node| *node.presence.lock() == Presence::Up && self.is_recent(&node.heard))
    }

    /// Returns whether the purges of all nodes that can be reached are known.
    pub fn is_current(&self) -> bool {
        self.others().all(|(_, node)| match *node.presence.lock() {
            Presence::Unknown => false,
            Presence::Up => self.is_recent(&node.heard),
            // The last attempt must be recent: if this process was suspended, the node may be back.
            Presence::Away => self.is_recent(&node.tried),
        })
    }

    /// Waits until a node no longer answers.
    pub async fn away(&self, number: usize) {
        while self.is_up(number) {
            let Some(node) = self.nodes.get(number) else { return };
            // A node that only falls silent causes no notification.
            let _ = timeout(Duration::from_millis(500), node.changed.notified()).await;
        }
    }

    /// The number of the node that owns the address of a key.
    pub fn owner(&self, text: &[u8]) -> Option<usize> {
        owner(self.settings.nodes.iter().map(|node| &*node.name), text)
    }

    /// The positions that this node knows in the logs of all nodes. `own` is the position in its own log.
    pub fn known(&self, own: LogPosition) -> Vec<(String, LogPosition)> {
        let nodes = self.nodes.iter().zip(&self.settings.nodes).enumerate();
        let known = nodes.filter_map(|(number, (state, node))| {
            let position = if number == self.settings.own { Some(own) } else { *state.position.lock() };
            // Epoch 0 stands for an unknown position.
            let position = position.filter(|position| position.epoch != 0)?;
            Some((node.name.to_string(), position))
        });
        known.collect()
    }

    fn positions(&self) -> HashMap<String, LogPosition> {
        let nodes = self.others().filter_map(|(number, state)| {
            Some((self.settings.nodes.get(number)?.name.to_string(), (*state.position.lock())?))
        });
        nodes.collect()
    }

    /// Returns whether this node knows all purges that another node knows. Waits a moment for missing purges.
    pub async fn knows(&self, known: &[(String, LogPosition)]) -> bool {
        let caught_up = async {
            loop {
                let learned = self.learned.notified();
                if self.knows_now(known) {
                    break;
                }
                learned.await;
            }
        };
        timeout(CATCH_UP, caught_up).await.is_ok()
    }

    fn knows_now(&self, known: &[(String, LogPosition)]) -> bool {
        known.iter().all(|(name, theirs)| {
            let Some(number) = self.settings.nodes.iter().position(|node| *node.name == **name) else {
                // The node is not in this node's configuration.
                return false;
            };
            if number == self.settings.own {
                return true;
            }
            let Some(state) = self.nodes.get(number) else { return false };
            match *state.position.lock() {
                Some(ours) => ours.epoch == theirs.epoch && ours.number >= theirs.number,
                // The node has been away since this process started. The store was empty at the start, so no purge was missed.
                None => *state.presence.lock() == Presence::Away,
            }
        })
    }

    /// The field of a request to another node.
    pub fn sign(&self, node: usize, call: &NodeCall, target: &[u8], authority: &[u8]) -> Option<String> {
        let node = self.settings.nodes.get(node)?;
        let to = Recipient { group: &self.settings.name, node: &node.name, target, authority };
        self.key.sign(call, &to, self.clock.unix())
    }

    /// Checks and reads the field of a request to this node. `None` if no other node of the group signed it.
    pub fn verify(&self, field: &[u8], target: &[u8], authority: &[u8]) -> Option<NodeCall> {
        let node = self.settings.own_name();
        let to = Recipient { group: &self.settings.name, node, target, authority };
        let call = self.key.verify(field, &to, self.clock.unix())?;
        let is_other = call.from != node && self.settings.nodes.iter().any(|node| *node.name == *call.from);
        is_other.then_some(call)
    }

    /// The field that proves an answer to come from a node of the group.
    pub fn prove(&self, kind: AnswerKind, nonce: u64, status: u16, body: &[u8]) -> String {
        self.key.prove(kind, nonce, status, body)
    }

    /// Returns whether an answer comes from a node of the group.
    pub fn is_proof(&self, field: &[u8], kind: AnswerKind, nonce: u64, status: u16, body: &[u8]) -> bool {
        self.key.is_proof(field, kind, nonce, status, body)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what they do not expect")]
    use futures_util::FutureExt as _;

    use super::*;
    use crate::settings::ShieldNode;

    /// This node is `one`; the other one is `two`.
    fn settings() -> Arc<ShieldSettings> {
        let node = |name: &str| ShieldNode { name: name.into(), address: "127.0.0.1:1".parse().unwrap() };
        let (nodes, secret) = (vec![node("one"), node("two")], Box::from(&b"secret"[..]));
        Arc::new(ShieldSettings { name: "eu".into(), nodes, own: 0, secret })
    }

    #[test]
    fn the_store_is_used_only_while_the_other_node_is_heard_or_known_to_be_away() {
        let clock = Clock::of_a_test();
        let group = ShieldGroup::new(&settings(), &HashMap::new(), clock);
        let node = &group.nodes[1];
        assert!(!group.is_up(1) && !group.is_current(), "it has not been asked yet");
        node.heard.store(group.now(), Ordering::Release);
        *node.presence.lock() = Presence::Up;
        assert!(group.is_up(1) && group.is_current());
        clock.advance(SILENCE);
        assert!(!group.is_up(1) && !group.is_current(), "it has fallen silent");
        node.tried.store(group.now(), Ordering::Release);
        *node.presence.lock() = Presence::Away;
        assert!(!group.is_up(1) && group.is_current());
        clock.advance(SILENCE);
        assert!(!group.is_current(), "it may be back, since it was not asked for a while");
    }

    #[tokio::test]
    async fn a_purge_waits_for_nodes_that_are_not_away() {
        let clock = Clock::of_a_test();
        let shield = Arc::new(Shield::new(None, clock));
        shield.group.store(Some(Arc::new(ShieldGroup::new(&settings(), &HashMap::new(), clock))));
        let start = shield.position();
        shield.purges_for("two", start, Duration::ZERO).await;
        let told = shield.tell(b"a purge").unwrap();
        assert!(told.now_or_never().is_none(), "the other node does not have it yet");
        shield.purges_for("two", shield.position(), Duration::ZERO).await;
        assert!(shield.is_confirmed(shield.position().number));
        let told = shield.tell(b"another purge").unwrap();
        clock.advance(AWAY + Duration::from_millis(1));
        assert!(told.now_or_never().is_some(), "the other node is away");
    }
}
