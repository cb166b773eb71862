//! Output with fragments in it: each is asked for when the text before it has been written.

use std::borrow::Cow;

use foregate_module::Sink;

use super::{Asking, KEPT, Pass, PassState, ROUND};
use crate::charset::MARKS;
use crate::fragments::{Fragment, Frame, RewriterOutput};
use crate::kind::BodyKind;
use crate::rewriter::{HandlerState, at_work, rewriter};

impl Pass {
    /// Returns true if output waits for a fragment.
    pub(super) fn is_held_up(&self) -> bool {
        self.asking.is_some() || !self.frames.is_empty()
    }

    /// Passes the rewriter's output on, up to the first fragment, and returns the size of the part that was passed on.
    /// While the rewriter is at work, a `<` at the end is held, because the text after it may be removed.
    pub(super) fn hand_over(&mut self, out: &mut dyn Sink) -> usize {
        let all = !matches!(self.state, PassState::Rewrites(_));
        let Some(HandlerState { written, .. }) = self.shared.as_deref_mut() else { return 0 };
        let count = written.bytes.len();
        if let Some(cut) = written.cut.filter(|_| written.holes.is_empty() && self.frames.is_empty()) {
            out.write(written.bytes.get(..cut).unwrap_or_default());
            written.bytes.drain(..cut);
            written.cut = Some(0);
            return cut;
        }
        if written.holes.is_empty() && self.frames.is_empty() {
            let opens = !all && written.bytes.pop_if(|last| *last == b'<').is_some();
            out.write(&written.bytes);
            written.bytes.clear();
            written.bytes.extend(opens.then_some(b'<'));
            written.bytes.shrink_to(if all { 0 } else { KEPT });
            return count;
        }
        let taken = written.take(all);
        match self.frames.first_mut() {
            // The new output comes after the part that already waits.
            Some(document) => document.written.bytes.extend(taken.bytes),
            None => {
                self.frames.push(Frame { written: taken, ..Frame::default() });
                self.advance(out);
            }
        }
        count
    }

    /// Writes the waiting output up to the next fragment and asks for the fragment. Writes at most [`ROUND`] bytes at once,
    /// and one fallback.
    pub(super) fn advance(&mut self, out: &mut dyn Sink) {
        let mut room = ROUND;
        while room > 0
            && self.asking.is_none()
            && let Some(frame) = self.frames.last_mut()
        {
            let end = frame.written.holes.front().map_or(frame.written.bytes.len(), |(at, _)| *at);
            let rest = frame.written.bytes.get(frame.at..end).unwrap_or_default();
            let piece = rest.get(..room).unwrap_or(rest);
            out.write(piece);
            frame.at += piece.len();
            room -= piece.len();
            if frame.at < end {
                return;
            }
            match frame.written.holes.pop_front() {
                Some((_, fragment)) => room = room.saturating_sub(self.ask(fragment, out)),
                None => drop(self.frames.pop()),
            }
        }
    }

    /// Asks for a fragment. If that is impossible, writes the replacement and returns its size.
    pub(super) fn ask(&mut self, mut fragment: Fragment, out: &mut dyn Sink) -> usize {
        if let Some(literal) = fragment.literal.take() {
            let written = self.nested(&literal, &fragment.path);
            self.frames.push(Frame { written, at: 0, literal: true });
            return 0;
        }
        let depth = self.frames.iter().filter(|frame| !frame.literal).count();
        let allowed = self.asked < fragment.rules.count && depth <= fragment.rules.depth;
        match fragment.request().filter(|_| allowed) {
            Some(request) => {
                self.asked += 1;
                self.asking = Some(Asking { fragment, question: Some(request) });
                0
            }
            None => self.miss(fragment, out),
        }
    }

    /// Handles a missing fragment: asks for its alternative, or writes the fallback of the configuration. Returns the number of bytes
    /// written.
    pub(super) fn miss(&mut self, mut fragment: Fragment, out: &mut dyn Sink) -> usize {
        if let Some(path) = fragment.alternative.take() {
            return self.ask(Fragment { path, ..fragment }, out);
        }
        self.fall_back(&fragment, out)
    }

    /// Writes the configured fallback for a fragment. Returns its size.
    pub(super) fn fall_back(&mut self, fragment: &Fragment, out: &mut dyn Sink) -> usize {
        self.missing += 1;
        if fragment.optional {
            return 0;
        }
        let fallback = self.charset.plain(&fragment.rules.fallback);
        let fallback = self.charset.encode(&fallback);
        out.write(&fallback);
        fallback.len()
    }

    /// Writes the rest of a frame. Fragments in it are not fetched any more, but replaced by fallbacks.
    pub(super) fn write_out(&mut self, frame: Frame, out: &mut dyn Sink) {
        let Frame { written, mut at, .. } = frame;
        for (end, fragment) in written.holes {
            out.write(written.bytes.get(at..end).unwrap_or_default());
            match &fragment.literal {
                Some(literal) => out.write(literal),
                None => drop(self.fall_back(&fragment, out)),
            }
            at = end;
        }
        out.write(written.bytes.get(at..).unwrap_or_default());
    }

    /// Rewrites a fragment. The output contains the places of the fragments within it.
    pub(super) fn nested(&mut self, body: &[u8], path: &str) -> RewriterOutput {
        // A byte-order mark is only valid at the start of a document.
        let body = body.strip_prefix(MARKS[0]).unwrap_or(body);
        let features = self.nested.iter().map(|chosen| &*chosen.feature);
        let mut rewriter = rewriter(features, self.charset, self.terms.budget);
        let features = self.nested.iter().map(|chosen| (chosen.clone(), false)).collect();
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let mut shared = HandlerState::of(features, &self.page(Some(path.into()), BodyKind::Fragment));
        let (loaded, _) = self.charset.load(body, true);
        shared.written.stands_in |= matches!(loaded, Cow::Owned(_));
        let mut shared = Some(shared);
        at_work(&mut shared, || {
            // If a fragment needs too much memory, the rewriter writes the rest of it unchanged.
            if rewriter.write(&loaded).is_ok() {
                let _ = rewriter.end();
            }
        });
        let mut written = shared.map(|mut shared| {
            shared.let_go();
            self.unsupported += shared.unsupported;
            shared.written
        });
        let mut written = written.take().unwrap_or_default();
        written.end_text();
        written
    }
}
