//! The rewriter of one document: the handlers of features on top of `lol_html`.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::mem::ManuallyDrop;
use std::sync::LazyLock;

use lol_html::errors::RewritingError;
use lol_html::html_content::{BailOut, ContentType, TextChunk, TextType};
use lol_html::send::{HtmlRewriter, Settings};
use lol_html::{DocumentContentHandlers, ElementContentHandlers, MemorySettings};
use lol_html::{HandlerResult, OutputSink};

use crate::charset::Charset;
use crate::feature::{
    ChosenFeature, Comment, Element, End, EndTag, Feature, HandlerEffect as Done, Page, Reads, Rewrite, joins,
};
use crate::follow::{Due, Follower, Operation};
use crate::fragments::{FragmentMark, RewriterOutput};
use crate::removal::{self, Removing};
use crate::scan::{Root, Scanner};
use crate::selector::Selector;
use crate::tail::Tail;
use crate::text::{self, TextOutput};

/// A feature at work.
pub(crate) struct Running {
    pub step: &'static str,
    pub dry: bool,
    pub reads: Reads,
    /// The number of features between this one and the next that reads texts.
    pub deaf: usize,
    pub rewrite: Box<dyn Rewrite>,
    pub matches: u64,
}

thread_local! {
    /// The state that the rewriter at work on this thread shares with its handlers. Handlers are called thousands of times
    /// for a document, and output is written still more often: taking a lock each time would cost more than most handlers.
    ///
    /// [`at_work`] puts the value here and takes it away again. The thread's end does not drop a value that is here, so
    /// accesses need not check whether it has been dropped.
    static AT_WORK: Cell<ManuallyDrop<Option<Box<HandlerState>>>> = const { Cell::new(ManuallyDrop::new(None)) };
    /// The output of the rewriter at work on this thread. It is separate from the state, because at the end of the document
    /// output is written while a handler runs and has taken out the state.
    static WRITTEN: RefCell<ManuallyDrop<RewriterOutput>> = const {
        let written = RewriterOutput { bytes: Vec::new(), holes: VecDeque::new(), stands_in: false, cut: None };
        RefCell::new(ManuallyDrop::new(written))
    };
}

/// The state shared by handlers.
#[derive(Default)]
pub(crate) struct HandlerState {
    pub running: Vec<Running>,
    /// The number of features before the first that reads texts.
    deaf: usize,
    /// The masking of texts, for documents in which second bytes may look like ASCII.
    masks: Option<Masks>,
    /// Set while a `title` is open.
    in_title: bool,
    /// Set while the present text is that of a `title`.
    is_title: bool,
    /// True if the document is within the text of a script or a similar element, and some of that text has been read.
    pub in_text: bool,
    /// True if a style or script of SVG is open. The rewriter treats its text as normal text.
    pub in_code: bool,
    /// The open SVG or MathML that an end tag of an enclosing element would close. Known only if features remove something.
    pub foreign: Option<Root>,
    /// True once nothing may be changed any more.
    pub quiet: bool,
    /// The element that is being removed. Nothing is changed within it.
    pub removing: Option<Removing>,
    /// The number of removals.
    pub removals: u64,
    /// The tree of the browser's elements, ahead of the rewriter.
    pub follower: Option<Box<Follower>>,
    /// The number of removals that were not possible.
    pub left: u64,
    /// The number of directives that are not supported.
    pub unsupported: u64,
    /// True if a handler has run.
    pub ran: bool,
    /// The construct in which the document ends.
    pub tail: Tail,
    /// True if the document ends within the text of a script or a similar element.
    ends_in_text: bool,
    /// True if something could not be appended at the end of the document.
    pub left_out: bool,
    /// The output of the rewriter. While the rewriter is at work, the output is in [`WRITTEN`].
    pub written: RewriterOutput,
    /// True if the document is in UTF-8, like the texts: changed text is then written without the rewriter.
    writes_texts: bool,
    /// The changed form of the present text.
    made: TextOutput,
}

struct Masks {
    charset: Charset,
    lead: bool,
    masked: String,
}

/// Runs a rewriter with its shared state available to its handlers.
pub(crate) fn at_work<T>(shared: &mut Option<Box<HandlerState>>, work: impl FnOnce() -> T) -> T {
    let written = shared.as_mut().map(|shared| std::mem::take(&mut shared.written));
    let written = ManuallyDrop::new(written.unwrap_or_default());
    let outer = (WRITTEN.replace(written), AT_WORK.replace(ManuallyDrop::new(shared.take())));
    let done = work();
    *shared = ManuallyDrop::into_inner(AT_WORK.replace(outer.1));
    let written = ManuallyDrop::into_inner(WRITTEN.replace(outer.0));
    if let Some(shared) = shared {
        shared.written = written;
    }
    done
}

/// Calls a function with the shared state of the rewriter at work, for handlers.
#[inline]
pub(crate) fn shared<T: Default>(run: impl FnOnce(&mut HandlerState) -> T) -> T {
    AT_WORK.with(|at_work| {
        // The state is taken out during the call, so that it is dropped if the handler panics.
        let Some(mut shared) = ManuallyDrop::into_inner(at_work.take()) else { return T::default() };
        shared.ran = true;
        let done = run(&mut shared);
        at_work.set(ManuallyDrop::new(Some(shared)));
        done
    })
}

/// Calls a function with the output of the rewriter at work.
#[inline]
pub(crate) fn written(run: impl FnOnce(&mut RewriterOutput)) {
    WRITTEN.with_borrow_mut(|written| run(written));
}

/// Ends the text before a construct that a handler removes: see [`RewriterOutput::end_text`]. Called when this text has
/// been written.
pub(crate) fn end_text() {
    written(RewriterOutput::end_text);
}

/// The sink of the rewriter.
pub(crate) struct Output;

impl OutputSink for Output {
    fn handle_chunk(&mut self, chunk: &[u8]) {
        written(|written| written.add(chunk));
    }
}

/// Makes the rewriter of a document, which has to be [at work](at_work) with its [shared state](HandlerState::of).
/// Handlers refer to features by number, so the rewriter can serve any document in this encoding with the same
/// features. Its memory is at most `budget` bytes.
pub(crate) fn rewriter<'f>(
    features: impl Iterator<Item = &'f dyn Feature>,
    charset: Charset,
    budget: usize,
) -> HtmlRewriter<'static, Output> {
    let memory = MemorySettings::new()
        .with_max_allowed_memory_usage(budget)
        .with_graceful_bail_out_on_memory_limit_exceeded(true);
    let mut settings = Settings::new_send()
        .with_encoding(charset.carrier())
        .with_adjust_charset_on_meta_tag(false)
        .with_strict(false)
        .with_enable_esi_tags(true)
        .with_graceful_bail_out_on_content_handler_error(true)
        .with_memory_settings(memory);
    let (mut all, mut counts_names) = (Reads::default(), false);
    let features: Vec<_> = features.enumerate().collect();
    let mut selectors: Vec<_> = features
        .iter()
        .flat_map(|(number, feature)| {
            let all = feature.selectors().iter().enumerate();
            all.map(|(selector, matched)| {
                (feature.takes(selector), *number, selector, matched, feature.follows(selector))
            })
        })
        .collect();
    selectors.sort_by_key(|(takes, ..)| *takes);
    for (_, number, selector, matched, follows) in selectors {
        let handlers = ElementContentHandlers::default().element(element_handler(number, selector, follows));
        // The rewriter needs the selector only while the rewriter is made, but its type demands a longer lifetime of the
        // selector. So the selector is owned.
        let matched = if follows { matched.wider() } else { matched.of_charset(charset).into_owned() };
        settings = settings.append_element_content_handler((std::borrow::Cow::Owned(matched), handlers));
    }
    for (_, feature) in features {
        let mut selectors = feature.selectors().iter().enumerate();
        counts_names |=
            selectors.any(|(number, selector)| !feature.follows(number) && selector.counts_names());
        let reads = feature.reads();
        all = Reads {
            text: all.text || reads.text,
            titles: all.titles || reads.text && reads.titles,
            comments: all.comments || reads.comments,
            end: all.end || reads.end,
        };
    }
    if counts_names {
        let handlers = ElementContentHandlers::default().element(different_names());
        settings = settings.append_element_content_handler((ANY.of_charset(charset), handlers));
    }
    if all.titles {
        let handlers = ElementContentHandlers::default().element(title);
        settings = settings.append_element_content_handler((TITLE.of_charset(charset), handlers));
    }
    if !all.text {
        let handlers = ElementContentHandlers::default().element(script);
        settings = settings.append_element_content_handler((SCRIPT.of_charset(charset), handlers));
    }
    let settings =
        settings.append_document_content_handler(document_handlers(all)).append_bail_out_handler(bail_out);
    HtmlRewriter::new(settings, Output)
}

impl HandlerState {
    /// Makes the shared state of features for one document. The flag of a feature is true if it is in a dry run.
    pub fn of(features: Vec<(ChosenFeature, bool)>, page: &Page) -> Box<Self> {
        let begin = |(chosen, dry): (ChosenFeature, bool)| {
            let ChosenFeature { step, feature } = chosen;
            let reads = feature.reads();
            Running { step, dry, reads, deaf: 0, rewrite: Feature::begin(feature, page), matches: 0 }
        };
        let mut running: Vec<_> = features.into_iter().map(begin).collect();
        let tail = match running.iter().any(|running| running.reads.text || running.reads.comments) {
            true => Tail::Held,
            false if running.iter().any(|running| running.reads.end) => {
                Tail::Followed(Box::new(Scanner::new(false)))
            }
            false => Tail::Unknown,
        };
        let mut deaf = 0;
        for running in running.iter_mut().rev() {
            running.deaf = deaf;
            deaf = if running.reads.text { 0 } else { deaf + 1 };
        }
        let charset = page.charset();
        let writes_texts = charset.is_utf8();
        let masks = charset.needs_mask().then(|| Masks { charset, lead: false, masked: String::new() });
        let written = RewriterOutput { stands_in: page.stands_in.get(), ..RewriterOutput::default() };
        Box::new(Self { running, deaf, masks, tail, written, writes_texts, ..Self::default() })
    }

    /// Records input that the rewriter is about to receive.
    pub fn see(&mut self, bytes: &[u8]) {
        if let Tail::Followed(_) = self.tail {
            let adds = |running: &Running| running.reads.end && !running.rewrite.is_done();
            match self.running.iter().any(adds) {
                true => self.tail.see(bytes),
                false => self.tail = Tail::Unknown,
            }
        }
    }

    /// Records that the rewriter has received all input.
    pub fn ends(&mut self) {
        self.ends_in_text = self.in_text;
    }

    /// Returns true if the document ends within a tag or a similar construct. Called when the rewriter has written the
    /// unfinished construct.
    fn is_unfinished(&self) -> bool {
        let mut unfinished = self.ends_in_text;
        written(|written| unfinished |= self.tail.is_unfinished(&written.bytes));
        unfinished
    }

    /// Runs a handler of one feature and returns its actions.
    fn run(&mut self, number: usize, run: impl FnOnce(&mut dyn Rewrite, Done) -> Done) -> Done {
        let quiet = |dry| self.quiet || self.removing.as_ref().is_some_and(|removing| removing.hushes(dry));
        match self.running.get_mut(number) {
            Some(running) if !quiet(running.dry) => {
                let deed = run(&mut *running.rewrite, Done { dry: running.dry, ..Done::default() });
                running.matches += deed.matches;
                self.left += deed.left;
                self.unsupported += deed.unsupported;
                deed
            }
            _ => Done::default(),
        }
    }

    /// Ends the removal of an element when the rewriter gives up: the element stays.
    pub fn let_go(&mut self) {
        self.removing = None;
        self.written.cut = None;
    }

    /// Applies the operations at the rewriter's position.
    pub fn perform(&mut self, due: Due, charset: Charset) {
        let Due { deed: due, opens, tally } = due;
        self.follower.iter_mut().for_each(|follower| follower.count(tally));
        if matches!(due, Operation::Nothing) {
            return;
        }
        self.ran = true;
        if let Some(held) = self.text("", true) {
            self.written.bytes.extend_from_slice(&charset.bytes_of(&held));
        }
        if opens {
            let joined = !matches!(&due, Operation::Insert(html) if !joins(html));
            self.written.bytes.extend_from_slice(if joined { b"&lt;" } else { b"<" });
        }
        match due {
            Operation::Insert(html) => {
                if joins(&html) {
                    self.written.end_text();
                }
                self.written.bytes.extend_from_slice(&charset.bytes_of(&html));
            }
            Operation::Hold => {
                self.written.end_text();
                self.written.cut = Some(self.written.bytes.len());
                self.removing = Some(Removing::followed());
            }
            Operation::Cut(closers) => {
                self.written.cut_off();
                self.written.bytes.extend_from_slice(closers.as_bytes());
                self.removing = None;
            }
            Operation::Keep => self.let_go(),
            Operation::Nothing => {}
        }
    }

    /// Returns true if no feature has anything more to do in the document.
    pub fn is_done(&self) -> bool {
        self.removing.is_none()
            && self.follower.as_ref().is_none_or(|follower| follower.is_done())
            && self.running.iter().all(|running| running.rewrite.is_done())
    }

    /// The text after all features; `None` if it is unchanged.
    pub fn text(&mut self, text: &str, last: bool) -> Option<String> {
        if self.hushes_texts() {
            return None;
        }
        if self.masks.is_some() {
            return self.masked_text(text, last);
        }
        self.let_change(text, last).changed(text).map(str::to_owned)
    }

    /// Has features change a text of the document.
    #[inline(always)]
    fn change_text(&mut self, chunk: &mut TextChunk<'_>) {
        let last = chunk.last_in_text_node();
        if !self.writes_texts {
            if let Some(text) = self.text(chunk.as_str(), last) {
                chunk.set_str(text);
            }
            return;
        }
        if self.hushes_texts() {
            return;
        }
        if let Some(changed) = self.let_change(chunk.as_str(), last).changed(chunk.as_str()) {
            // The text before this one has been written.
            written(|written| written.add(changed.as_bytes()));
            chunk.set_str(String::new());
        }
    }

    #[inline(always)]
    fn hushes_texts(&self) -> bool {
        self.quiet || self.removing.as_ref().is_some_and(|removing| removing.hushes_texts)
    }

    #[inline(always)]
    fn let_change(&mut self, text: &str, last: bool) -> &TextOutput {
        let running = self.running.get_mut(self.deaf..).unwrap_or_default();
        self.made.begin();
        text::first(running, text, last, self.is_title, text, &mut self.made);
        &self.made
    }

    #[cold]
    #[inline(never)]
    fn masked_text(&mut self, text: &str, last: bool) -> Option<String> {
        let masks = self.masks.as_mut()?;
        let running = self.running.get_mut(self.deaf..).unwrap_or_default();
        let is_title = self.is_title;
        masks.charset.mask(text, &mut masks.lead, &mut masks.masked);
        self.made.begin();
        text::pass(running, &masks.masked, last, is_title, &masks.masked, &mut self.made);
        masks.lead &= !last;
        let mut changed = self.made.changed(&masks.masked)?.to_owned();
        Charset::unmask(&mut changed);
        Some(changed)
    }
}

static ANY: LazyLock<Selector> = LazyLock::new(|| Selector::constant("*"));

/// The most different names in a document if its elements are counted by name. The rewriter goes through all
/// counts at each end tag, which could take minutes for a document of a megabyte.
const NAMES: usize = 512;

/// A handler that makes the rewriter give up if elements have too many different names.
fn different_names() -> impl FnMut(&mut lol_html::send::Element<'_, '_>) -> HandlerResult + Send + 'static {
    let mut names = HashSet::new();
    move |element| {
        let name = element.tag_name();
        if !names.contains(&name) {
            names.insert(name);
        }
        if names.len() > NAMES { Err("too many different names".into()) } else { Ok(()) }
    }
}

static SCRIPT: LazyLock<Selector> = LazyLock::new(|| Selector::constant("script"));

/// Records that the document is within a script. This is the only sign of it, because no handler gets the texts of
/// scripts.
fn script(element: &mut lol_html::send::Element<'_, '_>) -> HandlerResult {
    if element.namespace_uri() == "http://www.w3.org/1999/xhtml" {
        shared(|shared| shared.in_text = true);
        element.on_end_tag(Box::new(|_| {
            shared(|shared| shared.in_text = false);
            Ok(())
        }))?;
    }
    Ok(())
}

static TITLE: LazyLock<Selector> = LazyLock::new(|| Selector::constant("title"));

/// Records that a `title` is open. Like a `textarea`, it contains text with references, but no markup.
fn title(element: &mut lol_html::send::Element<'_, '_>) -> HandlerResult {
    if element.namespace_uri() == "http://www.w3.org/1999/xhtml" {
        shared(|shared| shared.in_title = true);
        element.on_end_tag(Box::new(|_| {
            shared(|shared| shared.in_title = false);
            Ok(())
        }))?;
    }
    Ok(())
}

fn element_handler(
    number: usize,
    selector: usize,
    follows: bool,
) -> impl FnMut(&mut lol_html::send::Element<'_, '_>) -> HandlerResult + Send + 'static {
    move |inner| {
        if follows {
            let at = inner.source_location().bytes().start as u64;
            let fits = |shared: &mut HandlerState| {
                shared.follower.as_mut().is_some_and(|follower| follower.tells(at, number, selector))
            };
            if !shared(fits) {
                return Ok(());
            }
        }
        let deed = run(number, |rewrite, deed| {
            let mut element = Element { inner: &mut *inner, deed };
            rewrite.element(selector, &mut element);
            element.deed
        });
        if let Some(fragment) = deed.include {
            inner.streaming_before(Box::new(FragmentMark { fragment: *fragment }));
        }
        if deed.remove {
            removal::begin(inner, deed.dry);
        }
        if deed.watch {
            // An element without content has no end tag to wait for.
            let _ = inner.on_end_tag(Box::new(move |inner| {
                // A removed element hides this tag from features, but the tag may still close that element.
                shared(|shared| {
                    let removing = shared.removing.take();
                    shared.run(number, |rewrite, deed| {
                        let mut tag = EndTag { inner, deed };
                        rewrite.end_tag(selector, &mut tag);
                        tag.deed
                    });
                    shared.removing = removing;
                });
                Ok(())
            }));
        }
        Ok(())
    }
}

/// Runs a handler of one feature of the rewriter that is at work.
fn run(number: usize, run: impl FnOnce(&mut dyn Rewrite, Done) -> Done) -> Done {
    shared(|shared| shared.run(number, run))
}

type DocumentHandlers = DocumentContentHandlers<'static, lol_html::send::SendHandlerTypes>;

/// The handlers for text, comments and the end of the document.
fn document_handlers(reads: Reads) -> DocumentHandlers {
    let mut document = DocumentHandlers::default();
    if reads.text {
        document = document.text(|chunk: &mut TextChunk<'_>| {
            shared(|shared| {
                let kind = chunk.text_type();
                shared.is_title = kind == TextType::RCData;
                // Only the last piece of the text of a script or a similar element needs an action.
                if kind != TextType::Data {
                    shared.in_text = kind != TextType::CDataSection && !chunk.last_in_text_node();
                }
                let readable =
                    kind == TextType::Data && !shared.in_code || shared.is_title && shared.in_title;
                if readable {
                    shared.change_text(chunk);
                }
            });
            Ok(())
        });
    }
    if reads.comments {
        document = document.comments(|inner: &mut lol_html::html_content::Comment<'_>| {
            shared(|shared| comment(shared, inner));
            Ok(())
        });
    }
    document.end(|inner: &mut lol_html::html_content::DocumentEnd<'_>| {
        shared(|shared| {
            let unfinished = shared.is_unfinished();
            shared.left += u64::from(removal::end_all(&mut shared.removing));
            for number in 0..shared.running.len() {
                let deed = shared.run(number, |rewrite, deed| {
                    let mut end = End { inner: &mut *inner, deed, unfinished };
                    rewrite.end(&mut end);
                    end.deed
                });
                shared.left_out |= deed.left_out;
            }
        });
        Ok(())
    })
}

fn comment(shared: &mut HandlerState, inner: &mut lol_html::html_content::Comment<'_>) {
    for number in 0..shared.running.len() {
        if !shared.running.get(number).is_some_and(|running| running.reads.comments) {
            continue;
        }
        let deed = shared.run(number, |rewrite, deed| {
            let mut comment = Comment { inner: &mut *inner, deed };
            rewrite.comment(&mut comment);
            comment.deed
        });
        if let Some(fragment) = deed.include {
            inner.streaming_replace(Box::new(FragmentMark { fragment: *fragment }));
        }
    }
}

/// Writes the text that features hold when the rewriter gives up.
fn bail_out(_: &RewritingError, bail_out: &mut BailOut<'_>) {
    if let Some(held) = shared(|shared| shared.text("", true)) {
        bail_out.append(&held, ContentType::Html);
    }
}
