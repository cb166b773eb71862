//! One pass over a document for all features that are chosen for it, as a filter of bodies.

use std::sync::Arc;

use foregate_module::{Bail, BodyFilter, Filtered, Finding, Sink};
use lol_html::errors::RewritingError;
use lol_html::html_content::{BailOut, ContentType, TextType};
use lol_html::send::{HtmlRewriter, Settings};
use lol_html::{AsciiCompatibleEncoding, DocumentContentHandlers, ElementContentHandlers, MemorySettings};
use lol_html::{HandlerResult, OutputSink};
use parking_lot::Mutex;

use crate::charset::{Charset, Sniffed, sniff};
use crate::feature::{Chosen, Comment, Deed, Element, End, EndTag, Feature, Page, Reads, Rewrite};
use crate::selector::Selector;
use crate::text;

/// The step that documents are counted for.
pub const STEP: &str = "html";
/// The default of the most that the rewriter may hold of a document, bytes.
pub const BUDGET: usize = 512 * 1024;
/// What is written at once, bytes; more only where one slice makes more.
const ROUND: usize = 16 * 1024;
/// What a slice may make at most, as far as features say truly how much they add, bytes.
const ROOM: usize = 64 * 1024;
/// The bounds of a slice, bytes.
const SLICE: (usize, usize) = (16, 4096);
/// What a buffer may keep of its memory once it is empty, bytes.
const KEPT: usize = 4 * ROUND;

/// What a pass has to know beside its features.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The value of `content-type`.
    pub content_type: Option<Vec<u8>>,
    /// What scripts and styles that are inserted may say.
    pub nonce: Option<Arc<str>>,
    /// The most that the rewriter may hold, bytes; see [`BUDGET`].
    pub budget: usize,
}

impl Default for Terms {
    fn default() -> Self {
        Self { content_type: None, nonce: None, budget: BUDGET }
    }
}

/// A feature at work.
pub(crate) struct Running {
    pub step: &'static str,
    pub dry: bool,
    pub reads: Reads,
    pub rewrite: Box<dyn Rewrite>,
    pub matches: u64,
}

/// The pass. See [`Pass::filter`].
pub struct Pass {
    state: State,
    /// What has come and was not consumed yet: from `at` on.
    queue: Vec<u8>,
    at: usize,
    slice: usize,
    shared: Arc<Mutex<Shared>>,
    output: Output,
    terms: Terms,
    /// Why it gave up.
    gave_up: Option<&'static str>,
}

enum State {
    /// The encoding is not known yet.
    Begins(Vec<(Chosen, bool)>),
    Rewrites(Box<HtmlRewriter<'static, Output>>),
    /// It has given up, or the document is over.
    Over,
}

/// What handlers share.
#[derive(Default)]
struct Shared {
    running: Vec<Running>,
    /// For documents whose second bytes may look like ASCII.
    masks: Option<Masks>,
    /// Whether text of escapable elements is that of a `title`, not of a `textarea`.
    in_title: bool,
    /// Whether the present text is that of a `title`.
    is_title: bool,
    /// Nothing is to be changed any more.
    quiet: bool,
    /// The text that features have made of a piece.
    text: String,
}

struct Masks {
    charset: Charset,
    lead: bool,
    masked: String,
}

/// Where the rewriter writes.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl OutputSink for Output {
    fn handle_chunk(&mut self, chunk: &[u8]) {
        self.0.lock().extend_from_slice(chunk);
    }
}

impl Pass {
    /// A filter that runs these features over a document; each comes with whether it is in a dry run.
    ///
    /// What it holds is bounded, however much the document grows: it takes the document in slices, and stops while what it
    /// has written waits to be taken away. When the rewriter needs more than its budget (for a tag or a comment that is
    /// huge, or for elements inside each other), the rest of the document passes as it is, and no byte is lost.
    pub fn filter(features: Vec<(Chosen, bool)>, terms: Terms) -> Filtered {
        let dry = features.iter().all(|(_, dry)| *dry);
        let budget = usize::MAX;
        Filtered { budget, dry, ..Filtered::new(STEP, Self::new(features, terms)) }
    }

    fn new(features: Vec<(Chosen, bool)>, terms: Terms) -> Self {
        let growth =
            features.iter().map(|(chosen, _)| chosen.feature.growth()).fold(1, usize::saturating_add);
        Self {
            state: State::Begins(features),
            queue: Vec::new(),
            at: 0,
            slice: (ROOM / growth).clamp(SLICE.0, SLICE.1),
            shared: Arc::default(),
            output: Output::default(),
            terms,
            gave_up: None,
        }
    }

    /// Rewrites what is queued, as far as it may be written now.
    fn work(&mut self, all: bool, out: &mut dyn Sink) -> Result<(), Bail> {
        let mut written = 0;
        while self.at < self.queue.len() && (all || written < ROUND) {
            let State::Rewrites(rewriter) = &mut self.state else { break };
            let rest = self.queue.get(self.at..).unwrap_or_default();
            let slice = rest.get(..self.slice).unwrap_or(rest);
            self.at += slice.len();
            let done = rewriter.write(slice);
            written += self.output.hand_over(out);
            if let Err(error) = done {
                return self.failed(&error, out);
            }
        }
        self.compact();
        Ok(())
    }

    /// The rewriter has failed, and has written all that it was given.
    fn failed(&mut self, error: &RewritingError, out: &mut dyn Sink) -> Result<(), Bail> {
        self.state = State::Over;
        let RewritingError::MemoryLimitExceeded(_) = error else { return Err(Bail::Break) };
        self.gave_up = Some("memory-exceeded");
        self.hand_on(out);
        Err(Bail::Pass)
    }

    /// Hands on what is queued as it is.
    fn hand_on(&mut self, out: &mut dyn Sink) {
        out.write(self.queue.get(self.at..).unwrap_or_default());
        self.queue = Vec::new();
        self.at = 0;
    }

    fn compact(&mut self) {
        if self.at == self.queue.len() {
            self.queue.clear();
            self.at = 0;
            self.queue.shrink_to(KEPT);
        }
    }

    /// Finds the encoding, and begins to rewrite once it is known.
    fn begin(&mut self, whole: bool, out: &mut dyn Sink) -> Result<(), Bail> {
        let State::Begins(features) = &mut self.state else { return Ok(()) };
        let content_type = self.terms.content_type.as_deref();
        match sniff(content_type, &self.queue, whole) {
            Sniffed::More => Ok(()),
            Sniffed::Unsupported => {
                self.state = State::Over;
                self.gave_up = Some("encoding-not-supported");
                self.hand_on(out);
                Err(Bail::Pass)
            }
            Sniffed::Known(charset) => {
                let features = std::mem::take(features);
                let rewriter = self.rewriter(features, charset);
                self.state = State::Rewrites(Box::new(rewriter));
                Ok(())
            }
        }
    }

    fn rewriter(&mut self, features: Vec<(Chosen, bool)>, charset: Charset) -> HtmlRewriter<'static, Output> {
        let page = Page::new(charset, self.terms.nonce.clone());
        let memory = MemorySettings::new()
            .with_max_allowed_memory_usage(self.terms.budget)
            .with_graceful_bail_out_on_memory_limit_exceeded(true);
        let transparent = AsciiCompatibleEncoding::new(encoding_rs::WINDOWS_1252)
            .expect("windows-1252 is compatible with ASCII");
        let mut settings = Settings::new_send()
            .with_encoding(transparent)
            .with_adjust_charset_on_meta_tag(false)
            .with_strict(false)
            .with_memory_settings(memory);
        let mut all = Reads::default();
        let mut running = Vec::with_capacity(features.len());
        for (number, (chosen, dry)) in features.into_iter().enumerate() {
            let Chosen { step, feature } = chosen;
            for (selector, matched) in feature.selectors().iter().enumerate() {
                let handler = element_handler(Arc::clone(&self.shared), number, selector);
                let handlers = ElementContentHandlers::default().element(handler);
                // Only read until the rewriter is made, but for longer than the compiler can see here.
                let matched = matched.of_charset(charset).into_owned();
                settings =
                    settings.append_element_content_handler((std::borrow::Cow::Owned(matched), handlers));
            }
            let reads = feature.reads();
            all = Reads { text: all.text || reads.text, comments: all.comments || reads.comments };
            let rewrite = Feature::begin(feature, &page);
            running.push(Running { step, dry, reads, rewrite, matches: 0 });
        }
        if all.text {
            for (name, is_title) in [("title", true), ("textarea", false)] {
                let shared = Arc::clone(&self.shared);
                let handlers = ElementContentHandlers::default().element(
                    move |_: &mut lol_html::send::Element<'_, '_>| {
                        shared.lock().in_title = is_title;
                        Ok(())
                    },
                );
                let selector = Selector::constant(name).of_charset(charset).into_owned();
                settings =
                    settings.append_element_content_handler((std::borrow::Cow::Owned(selector), handlers));
            }
        }
        let masks = charset.needs_mask().then(|| Masks { charset, lead: false, masked: String::new() });
        *self.shared.lock() = Shared { running, masks, ..Shared::default() };
        let (document, bail_out) = document_handlers(&self.shared, all);
        let settings = settings.append_document_content_handler(document).append_bail_out_handler(bail_out);
        HtmlRewriter::new(settings, self.output.clone())
    }
}

impl Output {
    /// Hands on what the rewriter has written; says how much that was.
    fn hand_over(&self, out: &mut dyn Sink) -> usize {
        let mut written = self.0.lock();
        let count = written.len();
        out.write(&written);
        written.clear();
        written.shrink_to(KEPT);
        count
    }
}

impl BodyFilter for Pass {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        self.queue.extend_from_slice(piece);
        self.begin(false, out)?;
        self.work(false, out)
    }

    fn pending(&self) -> bool {
        matches!(self.state, State::Rewrites(_)) && self.at < self.queue.len()
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        self.begin(true, out)?;
        self.work(true, out)?;
        let State::Rewrites(rewriter) = std::mem::replace(&mut self.state, State::Over) else {
            return Ok(());
        };
        let done = rewriter.end();
        self.output.hand_over(out);
        match done {
            Ok(()) => Ok(()),
            Err(error) => self.failed(&error, out),
        }
    }

    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        if let State::Rewrites(rewriter) = std::mem::replace(&mut self.state, State::Over) {
            let mut shared = self.shared.lock();
            if let Some(held) = shared.text("", true) {
                out.write(&encoding_rs::WINDOWS_1252.encode(held).0);
            }
            shared.quiet = true;
            drop(shared);
            let done = rewriter.end();
            self.output.hand_over(out);
            if let Err(error) = done {
                let _ = self.failed(&error, out);
            }
        }
        self.hand_on(out);
        Ok(())
    }

    fn held(&self) -> usize {
        self.queue.len() - self.at
    }

    fn report(&mut self, tell: &mut dyn FnMut(Finding)) {
        for running in &self.shared.lock().running {
            let event = if running.dry { "dry-run-matches" } else { "matches" };
            if running.matches > 0 {
                tell(Finding { step: running.step, event, count: running.matches });
            }
        }
        if let Some(event) = self.gave_up {
            tell(Finding { step: STEP, event, count: 1 });
        }
    }
}

impl Shared {
    /// Runs a handler of one feature; says what it has done.
    fn run(&mut self, number: usize, run: impl FnOnce(&mut dyn Rewrite, Deed) -> Deed) -> Deed {
        let quiet = self.quiet;
        match self.running.get_mut(number) {
            Some(running) if !quiet => {
                let deed = run(&mut *running.rewrite, Deed { dry: running.dry, ..Deed::default() });
                running.matches += deed.matches;
                deed
            }
            _ => Deed::default(),
        }
    }

    /// What features make of a text; `None` if it stays as it is.
    fn text(&mut self, text: &str, last: bool) -> Option<&mut String> {
        if self.quiet {
            return None;
        }
        self.text.clear();
        match &mut self.masks {
            None => text::pass(&mut self.running, text, last, self.is_title, &mut self.text),
            Some(masks) => {
                masks.charset.mask(text, &mut masks.lead, &mut masks.masked);
                text::pass(&mut self.running, &masks.masked, last, self.is_title, &mut self.text);
                masks.lead &= !last;
                Charset::unmask(&mut self.text);
            }
        }
        (self.text != text).then_some(&mut self.text)
    }
}

fn element_handler(
    shared: Arc<Mutex<Shared>>,
    number: usize,
    selector: usize,
) -> impl FnMut(&mut lol_html::send::Element<'_, '_>) -> HandlerResult + Send + 'static {
    move |inner| {
        let deed = shared.lock().run(number, |rewrite, deed| {
            let mut element = Element { inner: &mut *inner, deed };
            rewrite.element(selector, &mut element);
            element.deed
        });
        if deed.watch {
            let shared = Arc::clone(&shared);
            // An element without content has no end tag, and nobody waits for one.
            let _ = inner.on_end_tag(Box::new(move |inner| {
                shared.lock().run(number, |rewrite, deed| {
                    let mut tag = EndTag { inner, deed };
                    rewrite.end_tag(selector, &mut tag);
                    tag.deed
                });
                Ok(())
            }));
        }
        Ok(())
    }
}

type Document = DocumentContentHandlers<'static, lol_html::send::SendHandlerTypes>;

/// The handlers that are not bound to an element, and what writes the text that features hold when the rewriter gives up.
fn document_handlers(
    shared: &Arc<Mutex<Shared>>,
    reads: Reads,
) -> (Document, impl FnMut(&RewritingError, &mut BailOut<'_>) + Send + 'static) {
    let mut document = Document::default();
    if reads.text {
        let shared = Arc::clone(shared);
        document = document.text(move |chunk: &mut lol_html::html_content::TextChunk<'_>| {
            let mut shared = shared.lock();
            let readable = match chunk.text_type() {
                TextType::Data => true,
                TextType::RCData => shared.in_title,
                _ => false,
            };
            shared.is_title = chunk.text_type() == TextType::RCData;
            if readable && let Some(text) = shared.text(chunk.as_str(), chunk.last_in_text_node()) {
                chunk.set_str(std::mem::take(text));
            }
            Ok(())
        });
    }
    if reads.comments {
        let shared = Arc::clone(shared);
        document = document.comments(move |inner: &mut lol_html::html_content::Comment<'_>| {
            let mut shared = shared.lock();
            for number in 0..shared.running.len() {
                shared.run(number, |rewrite, deed| {
                    let mut comment = Comment { inner: &mut *inner, deed };
                    rewrite.comment(&mut comment);
                    comment.deed
                });
            }
            Ok(())
        });
    }
    let at_end = Arc::clone(shared);
    document = document.end(move |inner: &mut lol_html::html_content::DocumentEnd<'_>| {
        let mut shared = at_end.lock();
        for number in 0..shared.running.len() {
            shared.run(number, |rewrite, deed| {
                let mut end = End { inner: &mut *inner, deed };
                rewrite.end(&mut end);
                end.deed
            });
        }
        Ok(())
    });
    let shared = Arc::clone(shared);
    let bail_out = move |_: &RewritingError, bail_out: &mut BailOut<'_>| {
        if let Some(held) = shared.lock().text("", true) {
            bail_out.append(held, ContentType::Html);
        }
    };
    (document, bail_out)
}
