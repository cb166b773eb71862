//! The rewriter of one document: what features have asked for, as handlers of `lol_html`.

use std::sync::Arc;

use lol_html::errors::RewritingError;
use lol_html::html_content::{BailOut, ContentType, TextType};
use lol_html::send::{HtmlRewriter, Settings};
use lol_html::{AsciiCompatibleEncoding, DocumentContentHandlers, ElementContentHandlers, MemorySettings};
use lol_html::{HandlerResult, OutputSink};
use parking_lot::Mutex;

use crate::charset::Charset;
use crate::feature::{Chosen, Comment, Deed, Element, End, EndTag, Feature, Page, Reads, Rewrite};
use crate::fragments::{Mark, Written};
use crate::pass::Terms;
use crate::selector::Selector;
use crate::text;

/// A feature at work.
pub(crate) struct Running {
    pub step: &'static str,
    pub dry: bool,
    pub reads: Reads,
    pub rewrite: Box<dyn Rewrite>,
    pub matches: u64,
}

/// What handlers share.
#[derive(Default)]
pub(crate) struct Shared {
    pub running: Vec<Running>,
    /// For documents whose second bytes may look like ASCII.
    masks: Option<Masks>,
    /// Whether text of escapable elements is that of a `title`, not of a `textarea`.
    in_title: bool,
    /// Whether the present text is that of a `title`.
    is_title: bool,
    /// Nothing is to be changed any more.
    pub quiet: bool,
    output: Output,
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
pub(crate) struct Output(pub Arc<Mutex<Written>>);

impl OutputSink for Output {
    fn handle_chunk(&mut self, chunk: &[u8]) {
        self.0.lock().bytes.extend_from_slice(chunk);
    }
}

/// A rewriter that runs features over one document, and what its handlers share.
pub(crate) fn rewriter(
    features: Vec<(Chosen, bool)>,
    charset: Charset,
    terms: &Terms,
    output: Output,
) -> (HtmlRewriter<'static, Output>, Arc<Mutex<Shared>>) {
    let page = Page::new(charset, terms.nonce.clone());
    let shared: Arc<Mutex<Shared>> = Arc::default();
    let memory = MemorySettings::new()
        .with_max_allowed_memory_usage(terms.budget)
        .with_graceful_bail_out_on_memory_limit_exceeded(true);
    let transparent = AsciiCompatibleEncoding::new(encoding_rs::WINDOWS_1252)
        .expect("windows-1252 is compatible with ASCII");
    let mut settings = Settings::new_send()
        .with_encoding(transparent)
        .with_adjust_charset_on_meta_tag(false)
        .with_strict(false)
        .with_enable_esi_tags(true)
        .with_memory_settings(memory);
    let mut all = Reads::default();
    let mut running = Vec::with_capacity(features.len());
    for (number, (chosen, dry)) in features.into_iter().enumerate() {
        let Chosen { step, feature } = chosen;
        for (selector, matched) in feature.selectors().iter().enumerate() {
            let handler = element_handler(Arc::clone(&shared), number, selector);
            let handlers = ElementContentHandlers::default().element(handler);
            // Only read until the rewriter is made, but for longer than the compiler can see here.
            let matched = matched.of_charset(charset).into_owned();
            settings = settings.append_element_content_handler((std::borrow::Cow::Owned(matched), handlers));
        }
        let reads = feature.reads();
        all = Reads { text: all.text || reads.text, comments: all.comments || reads.comments };
        let rewrite = Feature::begin(feature, &page);
        running.push(Running { step, dry, reads, rewrite, matches: 0 });
    }
    if all.text {
        for (name, is_title) in [("title", true), ("textarea", false)] {
            let shared = Arc::clone(&shared);
            let handlers =
                ElementContentHandlers::default().element(move |_: &mut lol_html::send::Element<'_, '_>| {
                    shared.lock().in_title = is_title;
                    Ok(())
                });
            let selector = Selector::constant(name).of_charset(charset).into_owned();
            settings = settings.append_element_content_handler((std::borrow::Cow::Owned(selector), handlers));
        }
    }
    let masks = charset.needs_mask().then(|| Masks { charset, lead: false, masked: String::new() });
    *shared.lock() = Shared { running, masks, output: output.clone(), ..Shared::default() };
    let (document, bail_out) = document_handlers(&shared, all);
    let settings = settings.append_document_content_handler(document).append_bail_out_handler(bail_out);
    (HtmlRewriter::new(settings, output), shared)
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
    pub fn text(&mut self, text: &str, last: bool) -> Option<&mut String> {
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
        if let Some(fragment) = deed.include {
            let output = Arc::clone(&shared.lock().output.0);
            inner.streaming_replace(Box::new(Mark { output, fragment }));
        }
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
                let deed = shared.run(number, |rewrite, deed| {
                    let mut comment = Comment { inner: &mut *inner, deed };
                    rewrite.comment(&mut comment);
                    comment.deed
                });
                if let Some(fragment) = deed.include {
                    let output = Arc::clone(&shared.output.0);
                    inner.streaming_replace(Box::new(Mark { output, fragment }));
                }
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
