//! The interface of features: selectors as data, and handlers with a separate state for each response.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use foregate_module::Value;
use lol_html::html_content::ContentType;
use lol_html::send;

use crate::charset::Charset;
use crate::edges::Edges;
use crate::follow::Rule;
use crate::fragments::Fragment;
use crate::kind::BodyKind;
use crate::removal;
use crate::rewriter::end_text;
use crate::selector::Selector;
use crate::text::TextOut;

/// A feature with the settings of a route, shared by all responses of the route.
///
/// All features that are chosen for a response share one pass over the document. Each feature sees the original
/// document. Only text is different: a feature sees it with the changes of the features before it.
pub trait Feature: Send + Sync + 'static {
    /// The selectors of the elements that the feature handles. [`Rewrite::element`] gets the number of the selector that
    /// matched.
    fn selectors(&self) -> &[Selector] {
        &[]
    }

    /// The inputs of the feature other than elements.
    fn reads(&self) -> Reads {
        Reads::default()
    }

    /// The largest number of bytes that the feature may add for each byte of the document. The larger it is, the smaller
    /// are the slices of the pass, so that the output of one slice is bounded. Insertions that happen once in a document do
    /// not count.
    fn growth(&self) -> usize;

    /// The approximate size of the insertions that happen once in a document, bytes. Default: 0.
    fn adds_once(&self) -> usize {
        0
    }

    /// Returns true if the feature needs a nonce for scripts and styles ([`Page::nonce`]), which the response's
    /// `content-security-policy` then allows. Default: false.
    fn wants_nonce(&self) -> bool {
        false
    }

    /// Returns true if the insertions of the feature may change while the document stays the same. The validators of the
    /// document are then removed, because they do not cover the output. The step that chooses the feature has to declare
    /// this as well ([`Step::RENEWS`](foregate_module::Step::RENEWS)). Default: false.
    fn renews(&self) -> bool {
        false
    }

    /// The kinds of content that the feature may remove in any document. Default: none.
    fn removes(&self) -> Removes {
        Removes::Nothing
    }

    /// Returns true if the feature removes the elements that this selector matches, or their tags. Such selectors run after
    /// all other selectors of all features, so that an insertion before a removed element stays. Default: true if the
    /// feature removes anything.
    fn takes(&self, _selector: usize) -> bool {
        self.removes() != Removes::Nothing
    }

    /// The rules of the feature for elements of the browser's tree: insertions around or in them, and removals. They hold
    /// for elements with omitted tags too. Default: none.
    fn rules(&self, _: &Page) -> Vec<Rule> {
        Vec::new()
    }

    /// Returns true if a [rule](Self::rules) with [`Act::Tell`](crate::Act::Tell) handles this [selector](Self::selectors).
    /// [`Rewrite::element`] is then called for matching elements of the browser's tree, not for matching tags. Default:
    /// false.
    fn follows(&self, _selector: usize) -> bool {
        false
    }

    /// Returns true if the feature also runs over [fetched](Element::include) fragments. Default: false.
    fn in_fragments(&self) -> bool {
        false
    }

    /// The insertions of the feature at the edges of head and body; `None` if it does anything else in this document. A
    /// pass with only such features costs a small part of a full pass. [`begin`](Self::begin) is not called in such a pass,
    /// and the result must be the same as with it. Default: `None`.
    fn edges(&self, _: &Page) -> Option<Edges> {
        None
    }

    /// Creates the state of the feature for one response.
    fn begin(self: Arc<Self>, page: &Page) -> Box<dyn Rewrite>;
}

/// The kinds of content other than comments that a feature removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Removes {
    /// Nothing.
    #[default]
    Nothing,
    /// Attributes, tags, or elements with an end tag. The context decides whether browsers read the content as text.
    Closed,
}

/// The inputs of a feature other than elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// Text, except that of a `title`.
    pub text: bool,
    /// The text of a `title` too, which cannot contain markup ([`TextOut::allows_markup`]). If one feature asks for this,
    /// all features of the pass that read text get it.
    pub titles: bool,
    /// Comments.
    pub comments: bool,
    /// The construct in which the document ends. A feature that [appends](End::append) markup has to ask for this, so that
    /// the markup does not become part of an unfinished tag or comment.
    pub end: bool,
}

/// A feature at work on one response. All texts are *transparent*: in a document in UTF-8, text is unchanged, except
/// that private-use characters represent invalid bytes; in other documents ASCII is unchanged, and every other byte
/// becomes one character. [`Page::text`] converts other text into this form.
pub trait Rewrite: Send {
    /// Handles an element; `selector` is the index of the matching selector in [`Feature::selectors`]. If several selectors
    /// match, this is called for each of them.
    fn element(&mut self, _selector: usize, _element: &mut Element<'_, '_, '_>) {}

    /// Handles the end tag that ends an element which was [watched](Element::watch_end): its own, or the end tag of an
    /// element around it.
    fn end_tag(&mut self, _selector: usize, _tag: &mut EndTag<'_, '_>) {}

    /// Handles a piece of text outside of scripts, styles, comments, form controls, SVG and MathML. References such as
    /// `&amp;` are not resolved. Text is split into pieces arbitrarily. `last` is set at the end of the text: a feature
    /// that holds text has to write it then.
    fn text(&mut self, text: &str, _last: bool, out: &mut TextOut<'_>) {
        out.keep(text);
    }

    /// A comment.
    fn comment(&mut self, _comment: &mut Comment<'_, '_>) {}

    /// The end of the document.
    fn end(&mut self, _end: &mut End<'_, '_>) {}

    /// Returns true if the feature has nothing more to do in this document, including insertions at the end of the
    /// document, and those [after](Element::after) or at the [end](Element::append) of an open element. Once all features
    /// of a pass return true, the rest of the document passes without being parsed. Default: false.
    fn is_done(&self) -> bool {
        false
    }
}

/// The facts about a document that features get before it begins.
#[derive(Debug, Clone)]
pub struct Page {
    pub(crate) charset: Charset,
    pub(crate) nonce: Option<Arc<str>>,
    /// True if a text of a feature contains stand-ins for bytes.
    pub(crate) stands_in: Cell<bool>,
    /// The kind of body, as its start suggests.
    pub(crate) kind: BodyKind,
    /// The path of the document: the base of relative paths in it.
    pub(crate) path: Option<Arc<str>>,
}

impl Page {
    /// The facts about a document in this encoding. Its `content-security-policy` allows the nonce.
    pub fn new(charset: Charset, nonce: Option<Arc<str>>) -> Self {
        let (stands_in, kind) = (Cell::new(false), BodyKind::Document);
        Self { charset, nonce, stands_in, kind, path: None }
    }

    /// Its encoding.
    pub fn charset(&self) -> Charset {
        self.charset
    }

    /// Converts a text to the form in which it has to be inserted into this document.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.charset.plain(text) {
            Cow::Borrowed(text) => self.found(text),
            // `plain` has turned the text into ASCII.
            plain => plain,
        }
    }

    /// Converts a text to the form in which this document contains it.
    pub(crate) fn found<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let transparent = self.charset.transparent(text);
        if self.charset.is_utf8() && matches!(transparent, Cow::Owned(_)) {
            self.stands_in.set(true);
        }
        transparent
    }

    /// Converts a text to the form that [`Rewrite::text`] reads and keeps. This form differs from that of
    /// [`text`](Self::text) in two cases:
    /// - The encoding has characters with a second byte that looks like ASCII.
    /// - Nothing declares the encoding. [`text`](Self::text) then returns only ASCII.
    pub fn reading(&self, text: &str) -> String {
        let text = self.found(text);
        let mut masked = String::new();
        match self.charset.needs_mask() {
            true => self.charset.mask(&text, &mut false, &mut masked),
            false => masked.push_str(&text),
        }
        masked
    }

    /// The nonce for inserted scripts and styles, if a feature has asked for it.
    pub fn nonce(&self) -> Option<&str> {
        self.nonce.as_deref()
    }
}

/// A feature that was chosen for a response.
#[derive(Clone)]
pub struct ChosenFeature {
    /// The step that has chosen the feature, for metrics.
    pub step: &'static str,
    /// The feature.
    pub feature: Arc<dyn Feature>,
}

/// The list of features that are chosen for a response: steps of any phase add to it, and one pass runs them all.
#[derive(Debug)]
pub struct Features;

impl Value for Features {
    type Data = ChosenFeature;
    const NAME: &'static str = "html.features";
    const ABOUT: &'static str = "The features for the response if it is HTML.";
}

/// Returns true if the markup would form a tag or a similar construct with a `<` before it.
pub(crate) fn joins(html: &str) -> bool {
    html.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '/' | '!' | '?'))
}

/// Prevents markup that is inserted here from forming a tag with a `<` before it.
fn stand_apart(html: &str) {
    if joins(html) {
        end_text();
    }
}

/// The actions of a handler. In a dry run they have no effect.
#[derive(Debug, Default)]
pub(crate) struct HandlerEffect {
    pub include: Option<Box<Fragment>>,
    /// True if the element is removed with its content.
    pub remove: bool,
    /// The number of elements that could not be changed.
    pub left: u64,
    /// The number of directives that are not understood.
    pub unsupported: u64,
    pub dry: bool,
    pub matches: u64,
    pub watch: bool,
    /// True if something could not be appended at the end of the document.
    pub left_out: bool,
}

/// An element, at its start tag. In a dry run the methods have no effect.
pub struct Element<'a, 'r, 'i> {
    pub(crate) inner: &'a mut send::Element<'r, 'i>,
    pub(crate) deed: HandlerEffect,
}

impl Element<'_, '_, '_> {
    /// Its name, in lower case.
    pub fn name(&self) -> String {
        self.inner.tag_name()
    }

    /// Returns true if this is an element of HTML, not of SVG or MathML.
    pub fn is_html(&self) -> bool {
        self.inner.namespace_uri() == "http://www.w3.org/1999/xhtml"
    }

    /// Returns true if the element can have content and an end tag.
    pub fn has_content(&self) -> bool {
        self.inner.can_have_content()
    }

    /// The value of an attribute as it is written: references are not resolved. Empty if the attribute has no value; `None`
    /// if there is no such attribute.
    pub fn attribute(&self, name: &str) -> Option<String> {
        self.inner.get_attribute(name)
    }

    /// Returns true if it has an attribute.
    pub fn has_attribute(&self, name: &str) -> bool {
        self.inner.has_attribute(name)
    }

    /// Returns true if the tag must stay as it is, because a blank between its attributes would change their meaning: in
    /// `<img x/="y">` the name of the second attribute begins with `=` (HTML, section 13.2.5.32). After a blank it would be
    /// read as the value of the first.
    fn must_stay(&mut self) -> bool {
        let attributes = self.inner.attributes();
        // Check this first: it needs no string for each name.
        let lacks_value = attributes.iter().any(|attribute| attribute.value_source_location().is_none());
        let stays = lacks_value && attributes.iter().any(|attribute| attribute.name().starts_with('='));
        self.deed.left += u64::from(stays);
        stays
    }

    /// Sets the value of an attribute. The caller has to escape an `&` that could begin a reference; double quotes are
    /// escaped here. Does nothing if `name` is not a valid name, or if the name of another attribute begins with `=`.
    pub fn set_attribute(&mut self, name: &str, value: &str) {
        if self.must_stay() {
            return;
        }
        self.deed.matches += 1;
        if !self.deed.dry {
            let _ = self.inner.set_attribute(name, value);
        }
    }

    /// Removes an attribute, unless another attribute's name begins with `=`.
    pub fn remove_attribute(&mut self, name: &str) {
        if self.inner.has_attribute(name) && !self.must_stay() {
            self.deed.matches += 1;
            if !self.deed.dry {
                self.inner.remove_attribute(name);
            }
        }
    }

    fn insert(&mut self, insert: impl FnOnce(&mut send::Element<'_, '_>)) {
        self.deed.matches += 1;
        if !self.deed.dry {
            insert(self.inner);
        }
    }

    /// Inserts markup before it.
    pub fn before(&mut self, html: &str) {
        self.insert(|inner| {
            stand_apart(html);
            inner.before(html, ContentType::Html);
        });
    }

    /// Inserts markup after its end.
    pub fn after(&mut self, html: &str) {
        self.insert(|inner| inner.after(html, ContentType::Html));
    }

    /// Inserts markup at the start of its content.
    pub fn prepend(&mut self, html: &str) {
        self.insert(|inner| inner.prepend(html, ContentType::Html));
    }

    /// Inserts markup at the end of its content.
    pub fn append(&mut self, html: &str) {
        self.insert(|inner| {
            if joins(html) {
                // An element without content has no end tag, and no end of its content either.
                let _ = inner.on_end_tag(Box::new(|_| {
                    end_text();
                    Ok(())
                }));
            }
            inner.append(html, ContentType::Html);
        });
    }

    /// Replaces the element with markup; its content is removed, as by [`Self::remove`].
    pub fn replace(&mut self, html: &str) {
        self.insert(|inner| {
            end_text();
            inner.before(html, ContentType::Html);
        });
        self.go();
    }

    /// Removes the element with its content. No feature changes anything within it. If the end tag is optional and
    /// omitted, the element ends where a browser ends it. The element stays, unchanged, if its end tag is required but
    /// missing, if the rewriter gives up within it, or if it exceeds the buffer.
    pub fn remove(&mut self) {
        self.deed.matches += 1;
        self.go();
    }

    fn go(&mut self) {
        self.deed.remove = self.inner.can_have_content();
        if self.deed.dry {
            return;
        }
        end_text();
        if !self.deed.remove {
            self.inner.start_tag().remove();
        }
    }

    /// Removes the tags of the element and keeps its content. Does nothing if the content would mean something else
    /// without the tags, such as the text of a `style`.
    pub fn unwrap(&mut self) {
        let name = self.inner.tag_name();
        if removal::decides_about_content(&name) {
            self.deed.left += 1;
            return;
        }
        self.insert(|inner| {
            end_text();
            inner.start_tag().remove();
            // An element without content has no end tag.
            let _ = inner.on_end_tag(Box::new(move |tag| {
                // If the end tag is that of an element around this one, it stays.
                if tag.name() == name {
                    end_text();
                    removal::remove_end(tag);
                }
                Ok(())
            }));
        });
    }

    /// Replaces the tags of the element by a fragment, which is fetched once the preceding output has been sent. If the
    /// element has content, which is only possible in SVG and MathML, the content stays, because its end is found too late.
    pub fn include(&mut self, fragment: Fragment) {
        self.deed.matches += 1;
        if self.deed.dry {
            return;
        }
        let name = self.inner.tag_name();
        end_text();
        self.inner.start_tag().remove();
        let _ = self.inner.on_end_tag(Box::new(move |tag| {
            if tag.name() == name {
                end_text();
                tag.remove();
            }
            Ok(())
        }));
        self.deed.include = Some(Box::new(fragment));
    }

    /// Counts a directive that is not understood.
    pub(crate) fn leave(&mut self) {
        self.deed.unsupported += u64::from(!self.deed.dry);
    }

    /// Requests a call for its end tag.
    pub fn watch_end(&mut self) {
        self.deed.watch = true;
    }
}

/// An end tag.
pub struct EndTag<'a, 'i> {
    pub(crate) inner: &'a mut lol_html::html_content::EndTag<'i>,
    pub(crate) deed: HandlerEffect,
}

impl EndTag<'_, '_> {
    /// The name in lower case. If the element's own end tag was left out, this is the name of an element around the
    /// element, and the tag ends both.
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// Inserts markup before it.
    pub fn before(&mut self, html: &str) {
        self.deed.matches += 1;
        if !self.deed.dry {
            stand_apart(html);
            self.inner.before(html, ContentType::Html);
        }
    }

    /// Inserts markup after it.
    pub fn after(&mut self, html: &str) {
        self.deed.matches += 1;
        if !self.deed.dry {
            self.inner.after(html, ContentType::Html);
        }
    }
}

/// A comment.
pub struct Comment<'a, 'i> {
    pub(crate) inner: &'a mut lol_html::html_content::Comment<'i>,
    pub(crate) deed: HandlerEffect,
}

impl Comment<'_, '_> {
    /// Its text.
    pub fn text(&self) -> String {
        self.inner.text()
    }

    /// Replaces the comment with markup.
    pub fn replace(&mut self, html: &str) {
        self.deed.matches += 1;
        if !self.deed.dry {
            end_text();
            self.inner.replace(html, ContentType::Html);
        }
    }

    /// Replaces the comment with a fragment: see [`Element::include`].
    pub fn include(&mut self, fragment: Fragment) {
        self.deed.matches += 1;
        if !self.deed.dry {
            end_text();
            self.deed.include = Some(Box::new(fragment));
        }
    }

    /// Counts a directive that is not understood. The comment stays.
    pub(crate) fn leave(&mut self) {
        self.deed.unsupported += u64::from(!self.deed.dry);
    }

    /// Removes the comment.
    pub fn remove(&mut self) {
        self.deed.matches += 1;
        if !self.deed.dry {
            end_text();
            self.inner.remove();
        }
    }
}

/// The end of a document.
pub struct End<'a, 'd> {
    pub(crate) inner: &'a mut lol_html::html_content::DocumentEnd<'d>,
    pub(crate) deed: HandlerEffect,
    /// True if the document ends, or may end, within a tag or a similar construct.
    pub(crate) unfinished: bool,
}

impl End<'_, '_> {
    /// Records that something could not be appended.
    pub(crate) fn leave_out(&mut self) {
        self.deed.left_out |= !self.deed.dry;
    }

    /// Appends markup. The feature has to ask for [`Reads::end`]. Does nothing if the document ends within a tag, a comment
    /// or a script, because the markup would become part of that construct.
    pub fn append(&mut self, html: &str) {
        if self.unfinished {
            self.deed.left_out = !self.deed.dry;
            return;
        }
        self.deed.matches += 1;
        if !self.deed.dry {
            stand_apart(html);
            self.inner.append(html, ContentType::Html);
        }
    }
}
