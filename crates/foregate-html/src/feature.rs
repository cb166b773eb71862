//! The interface of features: selectors as data, and handlers with a state of their own for each response.

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

/// A feature with the settings of a route, shared by all of its responses.
///
/// All features that are chosen for a response share one pass over the document. Each sees the original document, except
/// for text: a feature sees the text after the changes of the features before it.
pub trait Feature: Send + Sync + 'static {
    /// The elements that it looks at; [`Rewrite::element`] gets the one that has matched.
    fn selectors(&self) -> &[Selector] {
        &[]
    }

    /// Its inputs other than elements.
    fn reads(&self) -> Reads {
        Reads::default()
    }

    /// The largest number of bytes that it may add for each byte of the document. A large growth makes the pass use smaller
    /// slices, to bound the output of one. Insertions that happen once in a document do not count.
    fn growth(&self) -> usize;

    /// About how much it adds once for a document, bytes. Default: nothing.
    fn adds_once(&self) -> usize {
        0
    }

    /// Returns true if it needs a nonce for scripts and styles ([`Page::nonce`]), which the response's
    /// `content-security-policy` then allows. Default: false.
    fn wants_nonce(&self) -> bool {
        false
    }

    /// Returns true if its insertions may change while the document stays the same. Validators of the document do not
    /// cover the output then, and are removed; the step that chooses the feature has to declare it as well
    /// ([`Step::RENEWS`](foregate_module::Step::RENEWS)). Default: false.
    fn renews(&self) -> bool {
        false
    }

    /// The kinds of removals that it may do in any document. Default: none.
    fn removes(&self) -> Removes {
        Removes::Nothing
    }

    /// Returns true if it removes the elements that a selector matches, or their tags. These selectors run after those of all
    /// features: an insertion before a removed element stays. Default: true if it removes anything.
    fn takes(&self, _selector: usize) -> bool {
        self.removes() != Removes::Nothing
    }

    /// Its rules for elements of the browser's tree, regardless of omitted tags: insertions around or in them, and removals. Default: none.
    fn rules(&self, _: &Page) -> Vec<Rule> {
        Vec::new()
    }

    /// Returns true if [`Rewrite::element`] is called for the browser's elements that one of its [selectors](Self::selectors) matches, by
    /// a [rule](Self::rules) ([`Act::Tell`](crate::Act::Tell)), instead of for tags. Default: false.
    fn follows(&self, _selector: usize) -> bool {
        false
    }

    /// Returns true if it also runs over [fetched](Element::include) fragments. Default: false.
    fn in_fragments(&self) -> bool {
        false
    }

    /// Its insertions at the edges of head and body, if it does nothing else in this document. A pass with only such
    /// features costs a small part of a full pass; the result equals that of [`begin`](Self::begin),
    /// which is not called then. Default: `None`.
    fn edges(&self, _: &Page) -> Option<Edges> {
        None
    }

    /// Its state for one response.
    fn begin(self: Arc<Self>, page: &Page) -> Box<dyn Rewrite>;
}

/// The kinds of content that a feature removes other than comments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Removes {
    /// Nothing.
    #[default]
    Nothing,
    /// Attributes, tags, or elements with an end tag. Browsers decide by the context if content is text.
    Closed,
}

/// The inputs of a feature other than elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// Text, except that of a `title`.
    pub text: bool,
    /// Text of a `title` too, which cannot contain markup ([`TextOut::allows_markup`]). All features of a pass that read text get
    /// it if one of them asks for it.
    pub titles: bool,
    /// Comments.
    pub comments: bool,
    /// The construct in which the document ends. A feature that [appends](End::append) has to ask for this, so that its text does not
    /// become part of that construct.
    pub end: bool,
}

/// A feature at work on one response. All texts are *transparent*: those of a document in UTF-8 are unchanged, with
/// private-use characters for invalid bytes; in other documents ASCII is itself, and every other byte is
/// one character. [`Page::text`] converts other text into this form.
pub trait Rewrite: Send {
    /// An element; `selector` is the number of the one of [`Feature::selectors`] that matched. If several matched, the element is passed
    /// several times.
    fn element(&mut self, _selector: usize, _element: &mut Element<'_, '_, '_>) {}

    /// The end tag of an element that was [watched](Element::watch_end), or of an element around it, which ends it as well.
    fn end_tag(&mut self, _selector: usize, _tag: &mut EndTag<'_, '_>) {}

    /// A part of a text, outside of scripts, styles, comments, form controls and foreign content. References such as
    /// `&amp;` are not resolved. Texts are split arbitrarily; `last` says that the text ends here, so that held text
    /// has to be written.
    fn text(&mut self, text: &str, _last: bool, out: &mut TextOut<'_>) {
        out.keep(text);
    }

    /// A comment.
    fn comment(&mut self, _comment: &mut Comment<'_, '_>) {}

    /// The end of the document.
    fn end(&mut self, _end: &mut End<'_, '_>) {}

    /// Returns true if it has nothing more to do in this document, whatever follows: no more insertions at the end, nor at end tags
    /// [after](Element::after) or at the [end](Element::append) of an element. Once all features of a pass return true, the rest of the
    /// document passes without being parsed. Default: false.
    fn is_done(&self) -> bool {
        false
    }
}

/// The facts about a document that features get before it begins.
#[derive(Debug, Clone)]
pub struct Page {
    pub(crate) charset: Charset,
    pub(crate) nonce: Option<Arc<str>>,
    /// A text of a feature contains stand-ins for bytes.
    pub(crate) stands_in: Cell<bool>,
    /// The kind of body, by its start.
    pub(crate) kind: BodyKind,
    /// The path of the document: the base of relative paths in it.
    pub(crate) path: Option<Arc<str>>,
}

impl Page {
    /// A document in an encoding, with a nonce that its `content-security-policy` allows.
    pub fn new(charset: Charset, nonce: Option<Arc<str>>) -> Self {
        let (stands_in, kind) = (Cell::new(false), BodyKind::Document);
        Self { charset, nonce, stands_in, kind, path: None }
    }

    /// Its encoding.
    pub fn charset(&self) -> Charset {
        self.charset
    }

    /// A text in the form in which it has to be inserted into this document.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.charset.plain(text) {
            Cow::Borrowed(text) => self.found(text),
            // In ASCII now.
            plain => plain,
        }
    }

    /// A text in the form in which it is found in this document.
    pub(crate) fn found<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let transparent = self.charset.transparent(text);
        if self.charset.is_utf8() && matches!(transparent, Cow::Owned(_)) {
            self.stands_in.set(true);
        }
        transparent
    }

    /// A text in the form that [`Rewrite::text`] reads and keeps. It differs from that of
    /// [`text`](Self::text) if second bytes of characters look like ASCII, and if nothing declares the encoding: inserted
    /// text is in ASCII then.
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
    /// The step that has chosen it, for metrics.
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

/// Returns true if markup after a text that ends in `<` would form a tag or the like with it.
pub(crate) fn joins(html: &str) -> bool {
    html.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '/' | '!' | '?'))
}

/// Separates markup that is inserted here from a `<` before it.
fn stand_apart(html: &str) {
    if joins(html) {
        end_text();
    }
}

/// The actions of a handler, and if it is allowed to act.
#[derive(Debug, Default)]
pub(crate) struct HandlerEffect {
    pub include: Option<Box<Fragment>>,
    /// The element is removed with its content.
    pub remove: bool,
    /// Elements that should have been changed and could not be.
    pub left: u64,
    /// Directives that are not understood.
    pub unsupported: u64,
    pub dry: bool,
    pub matches: u64,
    pub watch: bool,
    /// Something was not added at the end of the document.
    pub left_out: bool,
}

/// An element, by its start tag. In a dry run nothing that is done to it has an effect.
pub struct Element<'a, 'r, 'i> {
    pub(crate) inner: &'a mut send::Element<'r, 'i>,
    pub(crate) deed: HandlerEffect,
}

impl Element<'_, '_, '_> {
    /// Its name, in lower case.
    pub fn name(&self) -> String {
        self.inner.tag_name()
    }

    /// Returns true if it is HTML, not SVG or MathML.
    pub fn is_html(&self) -> bool {
        self.inner.namespace_uri() == "http://www.w3.org/1999/xhtml"
    }

    /// Returns true if it has content and an end tag.
    pub fn has_content(&self) -> bool {
        self.inner.can_have_content()
    }

    /// The value of an attribute, as it is written: references are not resolved. An empty one for an attribute without.
    pub fn attribute(&self, name: &str) -> Option<String> {
        self.inner.get_attribute(name)
    }

    /// Returns true if it has an attribute.
    pub fn has_attribute(&self, name: &str) -> bool {
        self.inner.has_attribute(name)
    }

    /// Returns true if its attributes cannot be rewritten with blanks between them: in `<img x/="y">` the second name begins with `=`
    /// (HTML, section 13.2.5.32), and after a blank it would be the value of the first. Such a tag is left as it is.
    fn must_stay(&mut self) -> bool {
        let attributes = self.inner.attributes();
        // This is known without making a string of each name.
        let lacks_value = attributes.iter().any(|attribute| attribute.value_source_location().is_none());
        let stays = lacks_value && attributes.iter().any(|attribute| attribute.name().starts_with('='));
        self.deed.left += u64::from(stays);
        stays
    }

    /// Gives an attribute a value, in which `&` has to be written as a reference where it could be taken for the start of
    /// one; double quotes are seen to. A name that cannot be one changes nothing, nor does anything change where the name of
    /// another attribute begins with `=`.
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

    /// Removes it with its content, in which no feature changes anything. An element with an omitted end tag ends where it ends
    /// for a browser; any other that a foreign end tag or the end of the document closes stays, and so does one in which the rewriter gives
    /// up, or that exceeds the buffer. Elements that stay are unchanged.
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

    /// Removes its tags; its content stays. Does nothing if the content would change its meaning, such as the text of
    /// a style.
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
                // The end tag of an element around it stays.
                if tag.name() == name {
                    end_text();
                    removal::remove_end(tag);
                }
                Ok(())
            }));
        });
    }

    /// Replaces its tags by a fragment, which is fetched once the text before has been sent. Its content, which it has
    /// in SVG and MathML alone, stays, since its end is known too late.
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
    /// Its name, in lower case. It differs from the element's name if the element's own end tag was left out; the tag then ends both
    /// elements.
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

    /// Puts a fragment in its place: see [`Element::include`].
    pub fn include(&mut self, fragment: Fragment) {
        self.deed.matches += 1;
        if !self.deed.dry {
            end_text();
            self.deed.include = Some(Box::new(fragment));
        }
    }

    /// Counts a directive that is not understood and stays.
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
    /// The document ends within a tag or the like, or its end is unknown.
    pub(crate) unfinished: bool,
}

impl End<'_, '_> {
    /// Counts that something has found no place.
    pub(crate) fn leave_out(&mut self) {
        self.deed.left_out |= !self.deed.dry;
    }

    /// Appends markup, for features that [declare](Reads::end) it; nothing if the document ends within a tag, a comment or a
    /// script, of which the markup would become a part.
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
