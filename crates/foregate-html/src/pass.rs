//! One pass over a document for all features that are chosen for it, as a filter of bodies.

mod frames;

use std::borrow::Cow;
use std::sync::Arc;

use foregate_module::{Bail, BodyFilter, FetchRequest, FetchResult, Filtered, Finding, Sink};
use lol_html::errors::RewritingError;
use lol_html::send::HtmlRewriter;

use crate::charset::{Charset, MARKS, SniffResult, sniff};
use crate::declaration::keep_declared;
use crate::feature::{ChosenFeature, Page, Removes};
use crate::follow::Follower;
use crate::fragments::{Fragment, Frame, is_usable};
use crate::guard::{Guard, Why};
use crate::holding::Holding;
use crate::insertion::Insertion;
use crate::kind::{BodyKind, body_kind};
use crate::rewriter::{HandlerState, Output, at_work, rewriter};
use crate::spare::Plan;

/// The name of the step under which documents are counted.
pub const STEP: &str = "html";
/// The default limit of the rewriter's memory for one document, bytes.
pub const BUDGET: usize = 512 * 1024;
/// The amount of output after which the pass pauses, bytes. One slice may make more.
const ROUND: usize = 16 * 1024;
/// The intended limit of a slice's output, bytes. The declared growth of the features then gives the size of slices.
const ROOM: usize = 64 * 1024;
/// The bounds of a slice, bytes.
const SLICE: (usize, usize) = (16, 4096);
/// The largest size of the first slice, bytes; the size doubles with each further slice. A small first slice lets the
/// client get the start of the document soon, and avoids parsing in vain if features only act in the head.
const FIRST_SLICE: usize = 512;
/// The capacity that an empty buffer keeps, bytes.
const KEPT: usize = 4 * ROUND;

/// The settings of a pass other than its features.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The value of `content-type`.
    pub content_type: Option<Vec<u8>>,
    /// The nonce for inserted scripts and styles.
    pub nonce: Option<Arc<str>>,
    /// The path of the document, if relative paths in it are resolved against it.
    pub path: Option<Arc<str>>,
    /// The most that the rewriter may hold, bytes; see [`BUDGET`].
    pub budget: usize,
}

impl Default for Terms {
    fn default() -> Self {
        Self { content_type: None, nonce: None, path: None, budget: BUDGET }
    }
}

/// The pass. See [`Pass::filter`].
pub struct Pass {
    state: PassState,
    /// Unprocessed input, from `at` on.
    queue: Vec<u8>,
    at: usize,
    /// True if the rest of the queue is an incomplete character.
    begun: bool,
    /// The sizes of the next slice and of the largest.
    slice: usize,
    most: usize,
    /// The state that the handlers share, once there is a rewriter. It is taken out while the rewriter is at work.
    shared: Option<Box<HandlerState>>,
    /// The selectors and features for which the rewriter was made.
    plan: Option<Plan>,
    /// The lighter pass, if no rewriter is needed.
    insertion: Option<Box<Insertion>>,
    terms: Terms,
    /// The memory of the rewriter.
    holding: Holding,
    /// Detection of disagreement with browsers.
    guard: Guard,
    /// The reason for giving up.
    gave_up: Option<&'static str>,
    /// The encoding. It is valid once `sniffed` is set.
    charset: Charset,
    sniffed: bool,
    /// True if the document begins with a byte-order mark.
    marked: bool,
    /// True if a byte-order mark or leading blanks have been passed on.
    began: bool,
    /// Features that run over fragments too.
    nested: Vec<ChosenFeature>,
    /// Output that waits for fragments.
    frames: Vec<Frame>,
    /// The fragment that is being fetched.
    asking: Option<Asking>,
    asked: usize,
    missing: u64,
    /// Directives within fragments that are not understood.
    unsupported: u64,
    /// True once the body has ended.
    ending: bool,
}

struct Asking {
    fragment: Fragment,
    /// The fetch, until the chain takes it.
    question: Option<FetchRequest>,
}

enum PassState {
    /// The encoding is not known yet.
    Begins(Vec<(ChosenFeature, bool)>),
    Rewrites(Box<HtmlRewriter<'static, Output>>),
    /// All features only insert at the edges of head and body.
    Inserts,
    /// The pass has given up, or the document is over.
    Over,
}

impl Pass {
    /// A filter that runs these features over a document. The flag of a feature is true if it is in a dry run.
    ///
    /// The memory of the filter is bounded, however much the document grows: the filter processes the document in slices,
    /// and pauses until its output is taken. If the rewriter needs more than its budget (for a huge tag or comment, or for
    /// deeply nested elements), the rest of the document passes unchanged, and no byte is lost.
    pub fn filter(features: Vec<(ChosenFeature, bool)>, terms: Terms) -> Filtered {
        let dry = features.iter().all(|(_, dry)| *dry);
        let budget = usize::MAX;
        Filtered { budget, dry, ..Filtered::new(STEP, Self::new(features, terms)) }
    }

    fn new(features: Vec<(ChosenFeature, bool)>, terms: Terms) -> Self {
        let growth =
            features.iter().map(|(chosen, _)| chosen.feature.growth()).fold(1, usize::saturating_add);
        let most = (ROOM / growth).clamp(SLICE.0, SLICE.1);
        Self {
            state: PassState::Begins(features),
            queue: Vec::new(),
            at: 0,
            begun: false,
            slice: most.min(FIRST_SLICE),
            most,
            shared: None,
            plan: None,
            insertion: None,
            terms,
            holding: Holding::default(),
            guard: Guard::default(),
            gave_up: None,
            charset: Charset::UTF_8,
            sniffed: false,
            marked: false,
            began: false,
            nested: Vec::new(),
            frames: Vec::new(),
            asking: None,
            asked: 0,
            missing: 0,
            unsupported: 0,
            ending: false,
        }
    }

    /// Rewrites the queued input, until enough output for one call is written.
    fn work(&mut self, all: bool, out: &mut dyn Sink) -> Result<(), Bail> {
        let mut written = 0;
        while self.at < self.queue.len() && (all || written < ROUND) && !self.is_held_up() {
            let Some(count) = self.slice(out)? else { break };
            written += count;
        }
        self.compact();
        Ok(())
    }

    /// Rewrites a slice of the queued input and returns the size of the output; `None` if the pass cannot continue now.
    fn slice(&mut self, out: &mut dyn Sink) -> Result<Option<usize>, Bail> {
        let PassState::Rewrites(rewriter) = &mut self.state else { return Ok(None) };
        let Some(shared) = &mut self.shared else { return Ok(None) };
        let rest = self.queue.get(self.at..).unwrap_or_default();
        let slice = rest.get(..self.slice).unwrap_or(rest);
        let (mut loaded, mut taken) = self.charset.load(slice, self.ending && slice.len() == rest.len());
        self.begun = taken == 0;
        if self.begun {
            return Ok(None);
        }
        let slice = slice.get(..taken).unwrap_or_default();
        let before = (shared.in_code, shared.foreign);
        shared.in_code = self.guard.is_in_code();
        shared.foreign = self.guard.root();
        if let Some(follower) = &mut shared.follower {
            // The new state does not apply to text that the follower holds, so this text goes to the rewriter first.
            if (shared.in_code, shared.foreign) != before {
                follower.decide(false);
            }
        }
        let reads_text = shared.follower.as_ref().is_some_and(|follower| follower.is_in_text());
        let fits = self.guard.look(slice, self.terms.budget, shared.in_text || reads_text);
        if let Some((fits, why)) = fits {
            // If the part ends before a `<`, an incomplete character at its end is invalid.
            let slice = slice.get(..fits).unwrap_or_default();
            (loaded, taken) = self.charset.load(slice, why == Why::Unknown);
        }
        self.at += taken;
        self.slice = self.most.min(2 * self.slice);
        shared.written.stands_in |= matches!(loaded, Cow::Owned(_));
        shared.see(&loaded);
        shared.ran = false;
        let kept = shared.written.bytes.len();
        let done = write(&mut self.shared, rewriter, &loaded, self.charset);
        let shared = self.shared.as_ref();
        let silent = shared.is_some_and(|shared| !shared.ran && shared.written.bytes.len() == kept);
        let is_done = self.shared.as_ref().is_some_and(|shared| shared.ran && shared.is_done());
        self.holding.got(loaded.len(), silent);
        let follower = self.shared.as_ref().and_then(|shared| shared.follower.as_ref());
        let lost = follower.and_then(|follower| follower.gave_up);
        let count = self.hand_over(out);
        if let Err(error) = done {
            return self.failed(&error, out).map(|()| None);
        }
        let ends = fits.filter(|(_, why)| *why != Why::Unknown).map(|(_, why)| why.event());
        let held = self.shared.as_ref().map_or(0, |shared| shared.written.held());
        let exceeded = (held > self.terms.budget).then_some("memory-exceeded");
        if let Some(event) = lost.or(ends).or(exceeded) {
            self.gave_up = Some(event);
            self.leave(out)?;
            // If a fragment is awaited, the rest of the document is written after it.
            return if self.is_held_up() { Ok(None) } else { Err(Bail::Pass) };
        }
        if is_done {
            return self.leave(out).map(|()| None);
        }
        Ok(Some(count))
    }

    /// No feature has anything more to do: the rewriter's held text and the rest of the document pass unchanged.
    fn leave(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        self.stop(out)?;
        if !self.is_held_up() {
            self.hand_on(out);
        }
        Ok(())
    }

    /// Writes the text held by features and the rewriter unchanged, and stops changing anything.
    fn stop(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        let PassState::Rewrites(rewriter) = std::mem::replace(&mut self.state, PassState::Over) else {
            return Ok(());
        };
        if let Some(shared) = &mut self.shared {
            if let Some(held) = shared.text("", true) {
                shared.written.bytes.extend_from_slice(&self.charset.bytes_of(&held));
            }
            shared.quiet = true;
            shared.let_go();
        }
        let done = at_work(&mut self.shared, || rewriter.end());
        self.hand_over(out);
        match done {
            // Even with one of these errors, the rewriter has written all of its input.
            Ok(()) | Err(RewritingError::MemoryLimitExceeded(_) | RewritingError::ContentHandlerError(_)) => {
                Ok(())
            }
            Err(_) => Err(Bail::Break),
        }
    }

    /// Handles a failure of the rewriter, which has still written all of its input.
    fn failed(&mut self, error: &RewritingError, out: &mut dyn Sink) -> Result<(), Bail> {
        self.state = PassState::Over;
        self.shared.iter_mut().for_each(|shared| shared.let_go());
        self.gave_up = Some(match error {
            RewritingError::MemoryLimitExceeded(_) => "memory-exceeded",
            RewritingError::ContentHandlerError(_) => "names-exceeded",
            _ => return Err(Bail::Break),
        });
        self.hand_over(out);
        if self.is_held_up() {
            // The rest of the document is written once the fragments have arrived.
            return Ok(());
        }
        self.hand_on(out);
        Err(Bail::Pass)
    }

    /// Passes the queued input on unchanged.
    fn hand_on(&mut self, out: &mut dyn Sink) {
        if let Some(follower) = self.shared.as_mut().and_then(|shared| shared.follower.as_mut()) {
            let rest = follower.take_rest();
            let mut bytes = Vec::with_capacity(rest.len());
            match self.charset.is_utf8() {
                true => crate::carry::unload(&rest, &mut bytes),
                false => bytes = rest,
            }
            out.write(&bytes);
        }
        out.write(self.queue.get(self.at..).unwrap_or_default());
        self.queue = Vec::new();
        self.at = 0;
    }

    fn compact(&mut self) {
        if self.begun {
            self.queue.drain(..self.at);
            self.at = 0;
        }
        if self.at == self.queue.len() {
            self.queue.clear();
            self.at = 0;
            self.queue.shrink_to(KEPT);
        }
    }

    /// Finds the encoding and the kind of the body, and begins to rewrite once both are known.
    fn begin(&mut self, whole: bool, out: &mut dyn Sink) -> Result<(), Bail> {
        if !matches!(self.state, PassState::Begins(_)) {
            return Ok(());
        }
        if !self.sniffed {
            match sniff(self.terms.content_type.as_deref(), &self.queue, whole) {
                SniffResult::More => return Ok(()),
                SniffResult::Unsupported => return self.pass_all("encoding-not-supported", out),
                SniffResult::Known(charset) => (self.charset, self.sniffed) = (charset, true),
            }
        }
        let mark = if self.began { None } else { self.queue.strip_prefix(MARKS[0]) };
        self.marked |= mark.is_some();
        let start = mark.unwrap_or(&self.queue);
        match body_kind(start, whole) {
            None => {
                // A server may send blanks first, only to keep the connection open.
                if start.trim_ascii_start().is_empty() {
                    self.began |= !self.queue.is_empty();
                    self.hand_on(out);
                }
                Ok(())
            }
            Some(BodyKind::Other) => self.pass_all("not-html", out),
            Some(BodyKind::Empty) => {
                self.state = PassState::Over;
                Ok(())
            }
            Some(kind) => {
                self.start(kind);
                Ok(())
            }
        }
    }

    /// Lets the body pass unchanged, and counts this event.
    fn pass_all(&mut self, event: &'static str, out: &mut dyn Sink) -> Result<(), Bail> {
        self.state = PassState::Over;
        self.gave_up = Some(event);
        self.hand_on(out);
        Err(Bail::Pass)
    }

    /// The facts about this document for features.
    fn page(&self, path: Option<Arc<str>>, kind: BodyKind) -> Page {
        Page { kind, path, ..Page::new(self.charset, self.terms.nonce.clone()) }
    }

    /// Begins to rewrite.
    fn start(&mut self, kind: BodyKind) {
        let page = self.page(self.terms.path.clone(), kind);
        let PassState::Begins(features) = &mut self.state else { return };
        let (mut features, charset) = (std::mem::take(features), self.charset);
        if charset.is_told() && !self.marked {
            let content_type = self.terms.content_type.as_deref();
            keep_declared(&mut features, content_type, &self.queue, &page, self.terms.budget);
        }
        let edges: Option<Vec<_>> = features
            .iter()
            .map(|(chosen, dry)| Some((chosen.step, *dry, chosen.feature.edges(&page)?)))
            .collect();
        if let Some(edges) = edges {
            self.insertion = Some(Box::new(Insertion::new(edges.into_iter(), charset)));
            self.state = PassState::Inserts;
            self.guard.how.alone = true;
            return;
        }
        self.nested = features
            .iter()
            .filter(|(chosen, dry)| !dry && chosen.feature.in_fragments())
            .map(|(chosen, _)| chosen.clone())
            .collect();
        // A feature in a dry run must not cause the rewriter to give up on features that are in effect.
        let all_dry = features.iter().all(|(_, dry)| *dry);
        let removes = |(chosen, dry): &(ChosenFeature, bool)| {
            (!dry || all_dry) && chosen.feature.removes() != Removes::Nothing
        };
        self.guard.how.removes = features.iter().any(removes);
        let plan = Plan::new(&features, charset, self.terms.budget);
        let rewriter = plan.take().unwrap_or_else(|| {
            let features = features.iter().map(|(chosen, _)| &*chosen.feature);
            Box::new(rewriter(features, charset, self.terms.budget))
        });
        self.plan = Some(plan);
        let rules = features.iter().enumerate().flat_map(|(number, (chosen, dry))| {
            chosen.feature.rules(&page).into_iter().map(move |rule| (number, *dry, rule))
        });
        let (rules, count): (Vec<_>, _) = (rules.collect(), features.len());
        let comments = features.iter().any(|(chosen, _)| chosen.feature.reads().comments);
        let mut shared = HandlerState::of(features, &page);
        if !rules.is_empty() {
            let follower = Follower::new(rules, count, charset, self.terms.budget).holding(comments);
            shared.follower = Some(Box::new(follower));
        }
        self.shared = Some(shared);
        self.state = PassState::Rewrites(rewriter);
    }

    /// Processes a piece in the lighter pass.
    fn insert(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        let Some(insertion) = &mut self.insertion else { return Ok(()) };
        let mut rest = piece;
        let fits = loop {
            let fits = self.guard.look(rest, usize::MAX, insertion.reads_text());
            let piece;
            (piece, rest) = fits.and_then(|(fits, _)| rest.split_at_checked(fits)).unwrap_or((rest, &[]));
            insertion.write(piece, out);
            if insertion.is_done() {
                self.state = PassState::Over;
                out.write(rest);
                return Ok(());
            }
            if !fits.is_some_and(|(_, why)| why == Why::Unknown) {
                break fits;
            }
        };
        if fits.is_none() && insertion.held() <= self.terms.budget {
            return Ok(());
        }
        self.gave_up = Some(fits.map_or("memory-exceeded", |(_, why)| why.event()));
        let bailed = self.bail(out);
        out.write(rest);
        bailed.and(Err(Bail::Pass))
    }

    /// Continues after a piece of input, an answer, or the end of the body.
    fn go_on(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        if matches!(self.state, PassState::Inserts) {
            let queue = std::mem::take(&mut self.queue);
            self.insert(&queue, out)?;
            if self.ending {
                self.state = PassState::Over;
                self.insertion.iter_mut().for_each(|insertion| insertion.end(out));
            }
            return Ok(());
        }
        self.advance(out);
        if self.is_held_up() {
            return Ok(());
        }
        if matches!(self.state, PassState::Over) {
            self.hand_on(out);
        }
        self.work(false, out)?;
        if !self.ending || self.is_held_up() || self.at < self.queue.len() {
            return Ok(());
        }
        let PassState::Rewrites(mut rewriter) = std::mem::replace(&mut self.state, PassState::Over) else {
            return Ok(());
        };
        if let Some(follower) = self.shared.as_mut().and_then(|shared| shared.follower.as_mut()) {
            follower.end();
        }
        let done = write(&mut self.shared, &mut rewriter, &[], self.charset).and_then(|()| {
            self.shared.iter_mut().for_each(|shared| shared.ends());
            at_work(&mut self.shared, || rewriter.end())
        });
        self.hand_over(out);
        self.queue = Vec::new();
        self.at = 0;
        match done {
            Ok(()) => Ok(()),
            Err(error) => self.failed(&error, out),
        }
    }
}

/// Passes a part of the document to the rewriter, and applies the operations of the follower at their positions.
fn write(
    shared: &mut Option<Box<HandlerState>>,
    rewriter: &mut HtmlRewriter<'static, Output>,
    bytes: &[u8],
    charset: Charset,
) -> Result<(), RewritingError> {
    let Some(follower) = shared.as_mut().and_then(|shared| shared.follower.as_mut()) else {
        return if bytes.is_empty() { Ok(()) } else { at_work(shared, || rewriter.write(bytes)) };
    };
    follower.feed(bytes);
    while let Some((bytes, due)) =
        shared.as_mut().and_then(|shared| shared.follower.as_mut()).and_then(|follower| follower.next())
    {
        if !bytes.is_empty() {
            at_work(shared, || rewriter.write(&bytes))?;
        }
        if let (Some(due), Some(shared)) = (due, shared.as_mut()) {
            shared.perform(due, charset);
        }
    }
    Ok(())
}

impl BodyFilter for Pass {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        if self.is_over() {
            out.write(piece);
            return Ok(());
        }
        if matches!(self.state, PassState::Inserts) {
            return self.insert(piece, out);
        }
        self.begun &= piece.is_empty();
        self.queue.extend_from_slice(piece);
        self.begin(false, out)?;
        self.go_on(out)
    }

    fn pending(&self) -> bool {
        let begun = !matches!(self.state, PassState::Begins(_));
        let comes = self.at < self.queue.len() && !self.begun;
        begun && self.asking.is_none() && (comes || !self.frames.is_empty())
            || self.ending && self.asking.is_none() && matches!(self.state, PassState::Rewrites(_))
    }

    fn is_over(&self) -> bool {
        matches!(self.state, PassState::Over) && self.queue.is_empty() && !self.is_held_up()
    }

    fn is_quick(&self) -> bool {
        matches!(self.state, PassState::Inserts | PassState::Over)
    }

    fn question(&mut self) -> Option<FetchRequest> {
        self.asking.as_mut()?.question.take()
    }

    fn waits(&self) -> bool {
        self.asking.is_some()
    }

    fn answer(&mut self, answer: FetchResult, out: &mut dyn Sink) -> Result<(), Bail> {
        let Some(Asking { fragment, .. }) = self.asking.take() else { return Ok(()) };
        match answer {
            Ok(response) if is_usable(&response) => {
                let written = self.nested(&response.body, &fragment.path);
                self.frames.push(Frame { written, ..Frame::default() });
            }
            _ => {
                self.miss(fragment, out);
            }
        }
        self.go_on(out)
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        self.ending = true;
        self.begun = false;
        self.begin(true, out)?;
        self.go_on(out)?;
        while self.pending() {
            self.go_on(out)?;
        }
        Ok(())
    }

    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        self.insertion.iter_mut().for_each(|insertion| insertion.let_go(out));
        self.stop(out)?;
        if let Some(Asking { fragment, .. }) = self.asking.take() {
            self.fall_back(&fragment, out);
        }
        while let Some(frame) = self.frames.pop() {
            self.write_out(frame, out);
        }
        self.hand_on(out);
        Ok(())
    }

    fn held(&self) -> usize {
        let frames = self.frames.iter().map(|frame| frame.written.bytes.capacity()).sum::<usize>();
        let written =
            self.shared.as_ref().map_or(0, |shared| shared.written.bytes.capacity() + shared.tail.held());
        let follower = self.shared.as_ref().and_then(|shared| shared.follower.as_ref());
        let written = written + follower.map_or(0, |follower| follower.held());
        let rewriter = match self.state {
            PassState::Rewrites(_) => self.holding.held(self.terms.budget, self.guard.names()),
            PassState::Inserts => self.insertion.as_ref().map_or(0, |insertion| insertion.held()),
            _ => 0,
        };
        self.queue.capacity() + frames + written + rewriter + self.guard.held()
    }

    fn report(&mut self, tell: &mut dyn FnMut(Finding)) {
        let follower = self.shared.as_ref().and_then(|shared| shared.follower.as_ref());
        for (number, running) in self.shared.iter().flat_map(|shared| &shared.running).enumerate() {
            let event = if running.dry { "dry-run-matches" } else { "matches" };
            let followed = follower.and_then(|follower| follower.matches.get(number)).copied();
            let count = running.matches + followed.unwrap_or_default();
            if count > 0 {
                tell(Finding { step: running.step, event, count });
            }
        }
        self.insertion.iter().for_each(|insertion| insertion.report(tell));
        let left = self.shared.as_ref().map_or(0, |shared| shared.left)
            + follower.map_or(0, |follower| follower.left);
        if left > 0 {
            tell(Finding { step: STEP, event: "elements-left", count: left });
        }
        let unsupported = self.unsupported + self.shared.as_ref().map_or(0, |shared| shared.unsupported);
        if unsupported > 0 {
            tell(Finding { step: STEP, event: "directives-unsupported", count: unsupported });
        }
        if self.missing > 0 {
            tell(Finding { step: STEP, event: "fragments-missing", count: self.missing });
        }
        let left_out = self.insertion.as_ref().is_some_and(|insertion| insertion.has_left_out())
            || self.shared.as_ref().is_some_and(|shared| shared.left_out);
        if left_out {
            tell(Finding { step: STEP, event: "markup-unfinished", count: 1 });
        }
        if let Some(event) = self.gave_up {
            tell(Finding { step: STEP, event, count: 1 });
        }
        // Nothing more has to be done for this document, so making the next rewriter does not delay it.
        if let Some(plan) = self.plan.take() {
            plan.prepare();
        }
    }
}
