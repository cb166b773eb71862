//! The pass over a document for features that only insert at the edges of head and body.

use foregate_module::{Finding, Sink};

use crate::charset::Charset;
use crate::edges::Edges;
use crate::feature::joins;
use crate::scan::{Begins, Scanner, TagKind};

/// A feature at work.
struct InsertingFeature {
    step: &'static str,
    dry: bool,
    edges: Edges,
    matches: u64,
}

/// The pass.
pub(crate) struct Insertion {
    scanner: Scanner,
    running: Vec<InsertingFeature>,
    charset: Charset,
    /// The bytes of an unfinished tag.
    held: Vec<u8>,
    /// True if the preceding text ends in `<`. An insertion must not form a tag with it.
    opens: bool,
    /// True if an insertion was skipped at the end of the document.
    left_out: bool,
}

impl Insertion {
    /// Creates the pass for features. Each is given by its step, true for a dry run, and its insertions.
    pub fn new(features: impl Iterator<Item = (&'static str, bool, Edges)>, charset: Charset) -> Self {
        let running: Vec<_> =
            features.map(|(step, dry, edges)| InsertingFeature { step, dry, edges, matches: 0 }).collect();
        let firsts = running.iter().any(|running| running.edges.begins_head());
        Self {
            scanner: Scanner::new(firsts),
            running,
            charset,
            held: Vec::new(),
            opens: false,
            left_out: false,
        }
    }

    /// Returns true if some text of a script or a similar element has been read, and the element is still open.
    pub fn reads_text(&self) -> bool {
        self.scanner.has_read_text() == Some(true)
    }

    /// Returns true if everything has been inserted: the rest passes unchanged.
    pub fn is_done(&self) -> bool {
        self.running.iter().all(|running| running.edges.is_done())
    }

    /// Processes a piece and writes the output; an unfinished tag is held if an insertion may come before it.
    pub fn write(&mut self, piece: &[u8], out: &mut dyn Sink) {
        let (mut at, mut written) = (0, 0);
        while !self.is_done()
            && let Some(found) = self.scanner.next(piece, &mut at)
        {
            if let Some(start) = found.start {
                self.pass_held(out);
                self.pass(piece.get(written..start).unwrap_or_default(), out);
                written = start;
            }
            self.found(found.what, piece.get(written..found.end).unwrap_or_default(), out);
            written = found.end;
        }
        let rest = piece.get(written..).unwrap_or_default();
        let begins = if self.is_done() { Begins::Nowhere } else { self.scanner.end_piece() };
        let passes = match begins {
            Begins::Nowhere => rest.len(),
            Begins::Before => 0,
            Begins::At(start) => start.saturating_sub(written),
        };
        if begins != Begins::Before {
            self.pass_held(out);
        }
        self.pass(rest.get(..passes).unwrap_or_default(), out);
        if self.is_done() {
            self.let_go(out);
        }
        self.held.extend_from_slice(rest.get(passes..).unwrap_or_default());
    }

    /// Handles a tag; `rest` follows the held part.
    fn found(&mut self, what: TagKind, rest: &[u8], out: &mut dyn Sink) {
        let mut behind = Vec::new();
        for running in &mut self.running {
            let (before, inside) = match what {
                TagKind::Start(mark) => running.edges.start(mark),
                TagKind::End(mark) => ([running.edges.end(mark), None], None),
            };
            for html in before.into_iter().flatten() {
                running.insert(&html, self.charset, &mut self.opens, out);
            }
            behind.push(inside);
        }
        self.let_go(out);
        out.write(rest);
        // The insertion of each feature has to come directly after the start tag, so before the insertions of earlier
        // features. So the features are processed in reverse order.
        for (running, html) in self.running.iter_mut().zip(behind).rev() {
            if let Some(html) = html {
                running.insert(&html, self.charset, &mut self.opens, out);
            }
        }
    }

    /// Writes a part of the document, all but a `<` at its end.
    fn pass(&mut self, bytes: &[u8], out: &mut dyn Sink) {
        if bytes.is_empty() {
            return;
        }
        if std::mem::take(&mut self.opens) {
            out.write(b"<");
        }
        let before = bytes.strip_suffix(b"<");
        self.opens = before.is_some();
        out.write(before.unwrap_or(bytes));
    }

    /// Writes the held part as a part of the document.
    fn pass_held(&mut self, out: &mut dyn Sink) {
        let held = std::mem::take(&mut self.held);
        self.pass(&held, out);
    }

    /// Writes the held part unchanged.
    pub fn let_go(&mut self, out: &mut dyn Sink) {
        if std::mem::take(&mut self.opens) {
            out.write(b"<");
        }
        out.write(&std::mem::take(&mut self.held));
    }

    /// Handles the end of the document. Nothing is inserted if the document ends within a tag or a similar construct.
    pub fn end(&mut self, out: &mut dyn Sink) {
        self.pass_held(out);
        if self.scanner.is_unfinished() {
            self.left_out = self.running.iter().any(|running| !running.dry && running.edges.lacks_place());
            return self.let_go(out);
        }
        for running in &mut self.running {
            self.left_out |= !running.dry && running.edges.lacks_place() && running.edges.is_in_template();
            for html in running.edges.rest().collect::<Vec<_>>() {
                running.insert(&html, self.charset, &mut self.opens, out);
            }
        }
        self.let_go(out);
    }

    /// Returns true if an insertion was skipped at the end of the document.
    pub fn has_left_out(&self) -> bool {
        self.left_out
    }

    /// The number of held bytes.
    pub fn held(&self) -> usize {
        self.held.capacity() + self.scanner.held()
    }

    /// Reports the insertions.
    pub fn report(&self, tell: &mut dyn FnMut(Finding)) {
        for running in self.running.iter().filter(|running| running.matches > 0) {
            let event = if running.dry { "dry-run-matches" } else { "matches" };
            tell(Finding { step: running.step, event, count: running.matches });
        }
    }
}

impl InsertingFeature {
    /// Inserts markup. `opens` is true if there is a `<` before the markup that has not been written.
    fn insert(&mut self, html: &str, charset: Charset, opens: &mut bool, out: &mut dyn Sink) {
        self.matches += 1;
        if self.dry {
            return;
        }
        if std::mem::take(opens) {
            out.write(if joins(html) { b"&lt;" } else { b"<" });
        }
        out.write(&charset.bytes_of(html));
    }
}
