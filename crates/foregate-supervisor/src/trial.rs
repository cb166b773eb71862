//! An upgrade: a new version gets a growing share of the connections, and is kept if it serves them
//! as well as the old one.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use crate::binary::Binary;
use crate::channel::DESCRIPTORS_LIMIT;
use crate::diagnosis::{AT_ONCE, last_words};
use crate::gate::{Gate, Look, MemoryBounds, Reason, Side, Verdict};
use crate::generation::{Exit, Generation, NoAnswer, Phase};
use crate::protocol::{Order, Role};
use crate::questions::{STEP_WITHIN, connect, done, move_cache, noise, probe, stats};
use crate::state::{State, Trial};
use crate::supervisor::{DRAINING_PATIENCE, PATIENCE, Supervisor};

/// The default stages, hundredths of a percent.
const STAGES: [u32; 4] = [100, 1_000, 5_000, 10_000];
/// The default time of a stage.
const BAKE: Duration = Duration::from_secs(10);
/// The longest time of a stage that a command may ask for.
const BAKE_MOST: Duration = Duration::from_secs(24 * 3600);
/// The most stages that a command may ask for.
const STAGES_MOST: usize = 64;
/// The time between two looks at both versions.
const TICK: Duration = Duration::from_millis(200);
/// Requests that the new version should have answered by the end of a stage.
const REQUESTS_LEAST: u64 = 50;
/// A stage with too few requests lasts this many times as long.
const LONGER: u32 = 3;
/// The longest time that a stage may pause for memory to fall.
const PAUSE_MOST: Duration = Duration::from_secs(30);
/// The least time limit for a new version to become ready.
const READY_WITHIN: Duration = Duration::from_secs(15);
/// A new version may take this many times as long to become ready as the old one took, if that is more than
/// [`READY_WITHIN`].
const READY_FACTOR: u32 = 10;
/// How long a version that is not kept may serve its open connections.
const REFUSED_PATIENCE: Duration = Duration::from_secs(10);

/// The channel for lines about the progress.
pub(crate) type Progress = mpsc::UnboundedSender<Value>;

/// The upgrade that is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The path of the new program. `None` for the path of the present program, where a package may have put a
    /// new file.
    pub(crate) binary: Option<PathBuf>,
    /// Set for a trial of another configuration with the present program.
    pub(crate) same: bool,
    /// Shares of the connections, hundredths of a percent.
    pub(crate) stages: Vec<u32>,
    /// The time of each stage.
    pub(crate) bake: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self { binary: None, same: false, stages: STAGES.into(), bake: BAKE }
    }
}

impl Plan {
    /// Reads a command.
    ///
    /// # Errors
    ///
    /// A message about the mistake in the command.
    pub(crate) fn of(command: &Value) -> Result<Self, String> {
        let mut plan = Self::default();
        if let Some(binary) = command.get("binary").and_then(Value::as_str) {
            plan.binary = Some(binary.into());
        }
        plan.same = command.get("same") == Some(&Value::Bool(true));
        if let Some(stages) = command.get("stages").and_then(Value::as_array) {
            let shares = stages.iter().map(|share| {
                let share = share.as_f64().filter(|share| *share > 0.0 && *share <= 100.0);
                share.map(|share| (share * 100.0).round().max(1.0) as u32)
            });
            plan.stages =
                shares.collect::<Option<_>>().ok_or("a stage is a share from 0.01 to 100 percent")?;
            if plan.stages.is_empty() || plan.stages.len() > STAGES_MOST {
                return Err(format!("there have to be 1 to {STAGES_MOST} stages"));
            }
            if !plan.stages.is_sorted() {
                return Err("each stage has to have a larger share than the one before".to_owned());
            }
        }
        if let Some(bake) = command.get("bake_ms").and_then(Value::as_u64) {
            plan.bake = Duration::from_millis(bake).min(BAKE_MOST);
        }
        Ok(plan)
    }

    /// A plan that returns to the program before the present one at once, without stages.
    pub(crate) fn back(state: &State) -> Option<Self> {
        let before = state.binaries.len().checked_sub(2)?;
        let binary = state.binaries.get(before)?.path.clone();
        Some(Self { binary: Some(binary), same: false, stages: vec![10_000], bake: Duration::ZERO })
    }
}

impl Supervisor {
    /// Runs an upgrade to its end.
    ///
    /// # Errors
    ///
    /// The reason for keeping the old version.
    pub(crate) async fn upgrade(self: Rc<Self>, plan: Plan, progress: Progress) -> Result<Value, Reason> {
        let binary = {
            let mut state = self.state.borrow_mut();
            if state.trial.is_some() {
                return Err(Reason("another upgrade is under way; `upgrade --status` shows it".to_owned()));
            }
            let Some(present) = state.binaries.last() else {
                return Err(Reason("nothing serves yet".to_owned()));
            };
            let known =
                plan.binary.as_ref().and_then(|path| state.binaries.iter().find(|known| known.path == *path));
            let path = plan.binary.clone().unwrap_or_else(|| present.path.clone());
            let binary = match known {
                _ if plan.same => Rc::clone(present),
                // For a return to a known program, the file that is still open is used: a package may have replaced it on
                // the disk.
                Some(known) if plan.bake.is_zero() => Rc::clone(known),
                _ => Rc::new(Binary::at(&path)),
            };
            state.trial = Some(Trial { binary: path, step: "check".to_owned(), since: Instant::now() });
            binary
        };
        self.abort.send_replace(None);
        match plan.same {
            true => tracing::info!("a gradual reload begins"),
            false => tracing::info!(binary = %binary.path.display(), "an upgrade begins"),
        }
        let mut aborted = self.abort.subscribe();
        let mut candidate = None;
        let result = tokio::select! {
            result = self.try_upgrade(&plan, &binary, &mut candidate, &progress) => result,
            reason = aborted.wait_for(Option::is_some) => {
                Err(Reason(reason.ok().and_then(|reason| reason.clone()).unwrap_or_default()))
            }
        };
        if let Err(reason) = &result {
            if let Some(candidate) = &candidate {
                self.take_back(candidate).await;
            }
            match plan.same {
                true => tracing::error!("the gradual reload is rolled back: {reason}"),
                false => {
                    tracing::error!(binary = %binary.path.display(), "the upgrade is rolled back: {reason}");
                }
            }
        }
        let last = match &result {
            Ok(done) => done.clone(),
            Err(reason) => json!({ "ok": false, "binary": binary.path, "error": reason.0 }),
        };
        self.state.borrow_mut().last = Some(last);
        self.trial_is_over();
        result
    }

    fn step(&self, progress: &Progress, step: String, more: Value) {
        tracing::info!("trial: {step}");
        let mut line = json!({ "step": step });
        if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
            line.extend(more);
        }
        // The command that watches the progress may have ended.
        let _ = progress.send(line);
        if let Some(trial) = &mut self.state.borrow_mut().trial {
            trial.step = step;
        }
    }

    async fn try_upgrade(
        self: &Rc<Self>,
        plan: &Plan,
        binary: &Rc<Binary>,
        candidate: &mut Option<Rc<Generation>>,
        progress: &Progress,
    ) -> Result<Value, Reason> {
        binary.examine()?;
        if let Some(configuration) = &self.options.configuration {
            binary.check(configuration).await?;
            let accepted = match plan.same {
                true => "the new configuration is valid",
                false => "the new version accepts the configuration",
            };
            self.step(progress, accepted.to_owned(), json!({}));
        }
        let old = self.serving().filter(|old| *old.ready.borrow());
        let old = old.ok_or_else(|| Reason("nothing serves at the moment".to_owned()))?;
        let halves = noise(&old).await?;
        let steady = self.state.borrow().memory();
        Rc::clone(self).keep_items(Rc::clone(&old)).await;
        let began = Instant::now();
        let new = self.start(binary, Role::Candidate).await;
        let new = new.map_err(|error| Reason(format!("cannot start {}: {error}", binary.path.display())))?;
        *candidate = Some(Rc::clone(&new));
        self.until_ready(&new, binary).await?;
        probe(&new).await?;
        let version = new.version.borrow().clone();
        let pid = new.pid.get();
        let took = began.elapsed();
        self.step(
            progress,
            match plan.same {
                true => format!("a process with the new configuration is ready after {took:.1?} (pid {pid})"),
                false => format!("version {version} is ready after {took:.1?} (pid {pid})"),
            },
            json!({ "pid": pid, "version": version }),
        );
        for lack in new.lacks.borrow().iter() {
            self.step(progress, format!("until its next start it is {lack}"), json!({ "lacks": lack }));
        }
        new.phase.set(Phase::Trial);
        let first = self.look(&old, &new).await?;
        let mut gate = Gate::new(&first, steady, &halves);
        let MemoryBounds { pause, most } = gate.memory_bounds();
        tracing::info!(
            before_mib = steady >> 20,
            both_mib = first.memory >> 20,
            pauses_above_mib = pause >> 20,
            most_mib = most >> 20,
            "trial: the memory of all processes"
        );
        connect(&old, &new).await?;
        for share in &plan.stages {
            self.hand_on(&old, &new).await;
            self.stage(*share, plan.bake, &mut gate, (&old, &new), progress).await?;
        }
        let look = self.look(&old, &new).await?;
        let (requests, beside) = gate.requests(&look);
        self.commit(&old, &new, binary).await?;
        self.step(progress, format!("committed: version {version} serves"), json!({ "pid": pid }));
        Ok(json!({
            "ok": true, "binary": binary.path, "version": version, "pid": pid, "requests": requests, "requests_old": beside,
        }))
    }

    async fn look(&self, old: &Generation, new: &Generation) -> Result<Look, Reason> {
        let (old_stats, new_stats) = tokio::join!(stats(old, "old"), stats(new, "new"));
        Ok(Look {
            old: Side { stats: old_stats?, open: old.open_descriptors() },
            new: Side { stats: new_stats?, open: new.open_descriptors() },
            memory: self.state.borrow().memory(),
        })
    }

    async fn until_ready(&self, new: &Generation, binary: &Binary) -> Result<(), Reason> {
        let patience = READY_WITHIN.max(self.first_start().saturating_mul(READY_FACTOR));
        let mut ready = new.ready.subscribe();
        let exit = tokio::select! {
            ready = tokio::time::timeout(patience, ready.wait_for(|ready| *ready)) => return match ready {
                Ok(_) => Ok(()),
                Err(_) => Err(Reason(format!("the new version hangs: it was not ready within {patience:?}"))),
            },
            exit = new.ended() => exit,
        };
        let failure = match new.failure.take() {
            None if new.started.elapsed() < AT_ONCE => last_words(self, binary).await,
            failure => failure,
        };
        Err(ended_early(exit, failure))
    }

    fn first_start(&self) -> Duration {
        self.serving().map_or(Duration::ZERO, |serving| serving.start_took.get())
    }

    async fn stage(
        &self,
        share: u32,
        bake: Duration,
        gate: &mut Gate,
        (old, new): (&Generation, &Generation),
        progress: &Progress,
    ) -> Result<(), Reason> {
        done(old, "old", Order::Pass { share }, &[]).await?;
        new.share.set(share);
        old.share.set(10_000 - share);
        let (began, mut paused, mut before) = (Instant::now(), Duration::ZERO, None);
        loop {
            let tick = Instant::now();
            tokio::time::sleep(TICK.min(bake)).await;
            let look = self.look(old, new).await?;
            let (requests, beside) = gate.requests(&look);
            let at_first = *before.get_or_insert(requests);
            if gate.judge(&look)? == Verdict::Pause {
                paused += tick.elapsed();
                if paused > PAUSE_MOST {
                    return Err(Reason(format!(
                        "memory: all processes have {} MiB, and it did not fall within {PAUSE_MOST:?}",
                        look.memory >> 20
                    )));
                }
                continue;
            }
            let elapsed = began.elapsed().saturating_sub(paused);
            let enough = requests - at_first.min(requests) >= REQUESTS_LEAST || elapsed >= bake * LONGER;
            if elapsed >= bake && enough {
                let share = f64::from(share) / 100.0;
                let text = format!(
                    "{share} %: so far {requests} requests by the new version, {beside} by the old one"
                );
                self.step(
                    progress,
                    text,
                    json!({ "share": share, "requests": requests, "requests_old": beside }),
                );
                return Ok(());
            }
        }
    }

    /// Passes the present state of the old version to the new one. Otherwise the new version would keep the older state
    /// that it got when it was started.
    async fn hand_on(self: &Rc<Self>, old: &Rc<Generation>, new: &Rc<Generation>) {
        if !new.inherits.get() {
            return;
        }
        Rc::clone(self).keep_items(Rc::clone(old)).await;
        let items = self.state.borrow().items.clone();
        let items = &items[..items.len().min(DESCRIPTORS_LIMIT)];
        let descriptors: Vec<_> = items.iter().map(|(_, blob)| blob.as_fd()).collect();
        let order = Order::Inherit { items: items.iter().map(|(item, _)| item.clone()).collect() };
        // If the new version hangs, the next question to it fails and ends the trial.
        if let Err(error) = new.ask(order, &descriptors, PATIENCE).await {
            tracing::warn!("the new version does not take the state over: {error}");
        }
    }

    /// Has the new version accept all connections, and the old one end once its connections have ended.
    async fn commit(
        self: &Rc<Self>,
        old: &Rc<Generation>,
        new: &Rc<Generation>,
        binary: &Rc<Binary>,
    ) -> Result<(), Reason> {
        done(new, "new", Order::Accept, &[]).await?;
        self.hand_on(old, new).await;
        {
            let mut state = self.state.borrow_mut();
            state.serving = new.number;
            for held in &mut state.held {
                if held.owner == old.number || held.socket.from_manager {
                    held.owner = new.number;
                }
            }
        }
        new.phase.set(Phase::Serving);
        new.share.set(10_000);
        old.phase.set(Phase::Draining);
        old.share.set(0);
        self.state.borrow_mut().remember(binary);
        self.plan_renewal(new, binary);
        move_cache(old, new).await;
        let patience = u64::try_from(DRAINING_PATIENCE.as_millis()).unwrap_or(u64::MAX);
        // From here on, the upgrade cannot fail: the new version serves, whatever the old one does.
        let retire = Order::Retire { patience, replaced: true };
        if let Err(NoAnswer::Silent(_)) = old.ask(retire, &[], STEP_WITHIN).await {
            tracing::error!("the old version does not answer: it is ended");
            old.signal(Signal::TERM);
            let (old, new) = (Rc::clone(old), Rc::clone(new));
            spawn_local(async move {
                old.ended().await;
                let _ = new.tell(None, Order::Pin, &[]).await;
            });
        } else {
            // The old version has released its cores, or has ended.
            let _ = new.tell(None, Order::Pin, &[]).await;
        }
        self.state.borrow().limit_draining();
        spawn_local(Rc::clone(self).keep_items(Rc::clone(new)));
        Ok(())
    }

    /// Gives all connections back to the old version and ends the new one.
    async fn take_back(self: &Rc<Self>, new: &Rc<Generation>) {
        if let Some(old) = self.serving() {
            old.share.set(10_000);
            // If the channel was not made yet, there is nothing to take back.
            let _ = old.ask(Order::Pass { share: 0 }, &[], STEP_WITHIN).await;
        }
        new.share.set(0);
        new.phase.set(Phase::Draining);
        new.refused.set(true);
        self.state.borrow_mut().held.retain(|held| held.owner != new.number);
        spawn_local(end(Rc::clone(new)));
    }
}

/// The reason if a new version ends before it is ready. `failure` is its own report or the end of its standard error. It may
/// have neither: a signal may have ended it.
fn ended_early(exit: Exit, failure: Option<String>) -> Reason {
    Reason(match failure {
        Some(failure) => format!("the new version ended with {exit} before it was ready: {failure}"),
        None => format!(
            "the new version ended with {exit} before it was ready; its messages are in the log of the service"
        ),
    })
}

/// Ends a version that is not kept. It may serve its open connections for a while.
async fn end(new: Rc<Generation>) {
    if *new.ready.borrow() {
        let patience = u64::try_from(REFUSED_PATIENCE.as_millis()).unwrap_or(u64::MAX);
        // If the new version hangs, it is killed below.
        let _ = new.tell(None, Order::Retire { patience, replaced: true }, &[]).await;
        if tokio::time::timeout(REFUSED_PATIENCE, new.ended()).await.is_ok() {
            return;
        }
    }
    new.signal(Signal::KILL);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn plans_are_read() {
        let plan = Plan::of(&json!({ "binary": "/x", "stages": [0.5, 10, 100], "bake_ms": 1500 })).unwrap();
        assert_eq!(plan.binary.as_deref(), Some(Path::new("/x")));
        assert_eq!((plan.stages, plan.bake), (vec![50, 1000, 10_000], Duration::from_millis(1500)));
        let plan = Plan::of(&json!({})).unwrap();
        assert_eq!((&plan.stages[..], plan.bake), (&STAGES[..], BAKE));
        for stages in [json!([]), json!([50, 10]), json!([0]), json!([101]), json!(["x"])] {
            assert!(Plan::of(&json!({ "stages": stages })).is_err(), "{stages}");
        }
    }
}
