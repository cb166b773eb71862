//! The shield: a group of proxies in which one node asks the origin for each address, and the others ask that node.
//!
//! Each node keeps a log of its own purges, and follows the logs of the others all the time ([`follow`]). A node that has not heard from another one for a
//! moment uses nothing from its store until it has, or until the other one is known to be away. So a node that was stopped,
//! suspended or cut off purges what it has missed before it serves again.

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

/// A node that has said nothing for this long is asked again before the store is used. Nodes answer each second.
const SILENCE: Duration = Duration::from_secs(5);
/// How long a purge waits for the nodes to confirm it. It takes effect here at once, and reaches the others in any case.
const CONFIRM: Duration = Duration::from_secs(2);
/// A node that has not asked for purges for this long is away: no purge waits for it.
const AWAY: Duration = Duration::from_secs(4);
/// How long a call waits for purges that the asking node knows and this one does not.
const CATCH_UP: Duration = Duration::from_millis(300);
/// Purges in one answer.
const AT_ONCE: usize = 1000;

/// The part of the process in a shield, whether it belongs to one or not.
#[derive(Debug)]
pub struct Shield {
    log: Mutex<PurgeLog>,
    /// When the log began.
    began: Instant,
    /// There is a new purge in the log.
    news: Notify,
    /// Another node has confirmed purges.
    confirmed: Notify,
    /// For each node by name: the position up to which it knows the log, and when it last asked.
    readers: Mutex<HashMap<Box<str>, (u64, Instant)>>,
    group: ArcSwapOption<ShieldGroup>,
    /// The file that keeps the positions in the logs of the others, where the store outlives the process.
    positions: Positions,
    /// Counters.
    pub counters: ShieldCounters,
}

/// Counters of the shield.
#[derive(Debug, Default)]
pub struct ShieldCounters {
    /// Responses that came from the node that owns their address.
    pub asked: Counter,
    /// Requests that went to the origin directly, since the owner was away or declined.
    pub direct: Counter,
    /// Requests of other nodes that were taken.
    pub served: Counter,
    /// Requests on the listener of the group without a valid proof.
    pub refused: Counter,
    /// Requests that went past the store, since purges may be missing.
    pub behind: Counter,
    /// Purges of other nodes.
    pub purges: Counter,
}

/// A group at work.
#[derive(Debug)]
pub struct ShieldGroup {
    /// The settings.
    pub settings: Arc<ShieldSettings>,
    key: CallKey,
    /// The member of `CDN-Loop`.
    pub loop_id: String,
    nodes: Vec<NodeState>,
    /// Purges of another node were applied.
    learned: Notify,
    start: Instant,
    /// The group was replaced.
    over: AtomicBool,
}

/// The known state of a node.
#[derive(Debug, Default)]
struct NodeState {
    position: Mutex<Option<LogPosition>>,
    /// When the last answered question was sent, milliseconds after the start; 0 if there was none.
    heard: AtomicU64,
    /// The same for the last question, answered or not.
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
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            log: Mutex::new(PurgeLog::new(crate::random::number())),
            began: Instant::now(),
            news: Notify::new(),
            confirmed: Notify::new(),
            readers: Mutex::default(),
            group: ArcSwapOption::empty(),
            positions: Positions::new(folder),
            counters: ShieldCounters::default(),
        }
    }

    /// The group, if the process belongs to one.
    pub fn group(&self) -> Option<Arc<ShieldGroup>> {
        self.group.load_full()
    }

    /// Puts a group to work, or ends the present one.
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
            Arc::new(ShieldGroup::new(settings, &known))
        });
        self.group.store(group.clone());
        if let Some(group) = group
            && let Err(error) = follow::start(cache, group)
        {
            tracing::error!(%error, "the shield does not work: there is no thread for it");
            self.group.store(None);
        }
    }

    /// Sends a purge to the other nodes. `None` without a group. The future ends once all present nodes have it.
    pub(super) fn tell(self: &Arc<Self>, purge: &[u8]) -> Option<impl Future<Output = ()> + Send + use<>> {
        let group = self.group()?;
        let number = self.log.lock().add(purge);
        self.news.notify_waiters();
        let shield = Arc::clone(self);
        Some(async move {
            let confirmed = async {
                loop {
                    let told = shield.confirmed.notified();
                    if shield
                        .readers
                        .lock()
                        .values()
                        .all(|(known, seen)| *known >= number || seen.elapsed() > AWAY)
                    {
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

    /// The position in the own log.
    pub fn position(&self) -> LogPosition {
        let log = self.log.lock();
        LogPosition { epoch: log.epoch(), number: log.latest() }
    }

    /// The purges after the position that a node knows. Waits some time for the first one.
    pub async fn purges_for(&self, node: &str, position: LogPosition, wait: Duration) -> Vec<u8> {
        let mut number = position.number;
        {
            let log = self.log.lock();
            if log.epoch() == position.epoch {
                let mut readers = self.readers.lock();
                // Names are those of the configuration, so there are few.
                readers.insert(node.into(), (number, Instant::now()));
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
        follow::encode((log.epoch(), log.latest()), self.began.elapsed(), &log.since(number, AT_ONCE))
    }

    /// Forgets a node that is no longer in the group.
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
    fn new(settings: &Arc<ShieldSettings>, known: &HashMap<String, LogPosition>) -> Self {
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
            start: Instant::now(),
            over: AtomicBool::new(false),
        }
    }

    fn others(&self) -> impl Iterator<Item = (usize, &NodeState)> {
        self.nodes.iter().enumerate().filter(|(number, _)| *number != self.settings.own)
    }

    /// Milliseconds since the start, never 0.
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
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
            // Unless this process was suspended meanwhile.
            Presence::Away => self.is_recent(&node.tried),
        })
    }

    /// Waits until a node no longer answers.
    pub async fn away(&self, number: usize) {
        while self.is_up(number) {
            let Some(node) = self.nodes.get(number) else { return };
            // Silence alone is no event.
            let _ = timeout(Duration::from_millis(500), node.changed.notified()).await;
        }
    }

    /// The number of the node that owns the address of a key.
    pub fn owner(&self, text: &[u8]) -> Option<usize> {
        owner(self.settings.nodes.iter().map(|node| &*node.name), text)
    }

    /// The purges that this node knows, with its own.
    pub fn known(&self, own: LogPosition) -> Vec<(String, LogPosition)> {
        let nodes = self.nodes.iter().zip(&self.settings.nodes).enumerate();
        let known = nodes.filter_map(|(number, (state, node))| {
            let position = if number == self.settings.own { Some(own) } else { *state.position.lock() };
            // One that is nowhere in a log says nothing.
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

    /// Returns whether this node knows all purges that another one does. It waits a moment for missing ones.
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
                // A node that this one is not connected to.
                return false;
            };
            if number == self.settings.own {
                return true;
            }
            let Some(state) = self.nodes.get(number) else { return false };
            match *state.position.lock() {
                Some(ours) => ours.epoch == theirs.epoch && ours.number >= theirs.number,
                // A node that has been away since this process started, which was then with an empty store.
                None => *state.presence.lock() == Presence::Away,
            }
        })
    }

    /// The field of a request to another node.
    pub fn sign(&self, node: usize, call: &NodeCall, target: &[u8], authority: &[u8]) -> Option<String> {
        let node = self.settings.nodes.get(node)?;
        let to = Recipient { group: &self.settings.name, node: &node.name, target, authority };
        self.key.sign(call, &to)
    }

    /// Reads the field of a request to this node, from another node of the group.
    pub fn verify(&self, field: &[u8], target: &[u8], authority: &[u8]) -> Option<NodeCall> {
        let node = self.settings.own_name();
        let call =
            self.key.verify(field, &Recipient { group: &self.settings.name, node, target, authority })?;
        let is_other = call.from != node && self.settings.nodes.iter().any(|node| *node.name == *call.from);
        is_other.then_some(call)
    }

    /// The field of an answer.
    pub fn prove(&self, kind: AnswerKind, nonce: u64, status: u16, body: &[u8]) -> String {
        self.key.prove(kind, nonce, status, body)
    }

    /// Returns whether an answer comes from a node of the group.
    pub fn is_proof(&self, field: &[u8], kind: AnswerKind, nonce: u64, status: u16, body: &[u8]) -> bool {
        self.key.is_proof(field, kind, nonce, status, body)
    }
}
