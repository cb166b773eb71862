//! Places where tags alone do not determine how a browser reads the following text, or where the rewriter reads it differently.
//!
//! A browser builds a tree, which decides whether `<style>` or `<![CDATA[` begins a text, and whether a tag has any
//! effect. Nearly always, tags alone are enough to decide this. This module tracks SVG and MathML, `select`, `frameset`
//! and `template`. It reports relevant places where tags are not enough, or where the rewriter decides differently.

use super::names::{
    ANNOTATION_XML, BASE, BASEFONT, BGSOUND, BODY, BR, CAPTION, COL, COLGROUP, DESC, FONT, FOREIGN_OBJECT,
    FORM, FRAMESET, HTML, IFRAME, INPUT, KEYGEN, LINK, MALIGNMARK, MATH, META, MGLYPH, MI, MN, MO, MS, MTEXT,
    Means, NOEMBED, NOFRAMES, NOSCRIPT, Name, P, PLAINTEXT, SCRIPT, SELECT, STYLE, SVG, TABLE, TBODY, TD,
    TEMPLATE, TEXTAREA, TFOOT, TH, THEAD, TITLE, TR, XMP, ends_foreign,
};

/// The most open elements in SVG or MathML, including those that only the rewriter considers open. The limit is needed
/// because the rewriter records all of them.
const DEPTH: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DoubtContext {
    Html,
    Svg,
    Math,
}

/// The outermost element of SVG or MathML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    Svg,
    Math,
}

impl Root {
    /// The end tag of the element.
    pub fn end_tag(self) -> &'static str {
        match self {
            Self::Svg => "</svg>",
            Self::Math => "</math>",
        }
    }
}

#[derive(Debug)]
struct DoubtfulElement {
    name: Name,
    space: DoubtContext,
    /// True for an element of SVG or MathML with HTML as its content.
    point: bool,
    /// True if the element is, or is in, a style or script of SVG.
    code: bool,
}

/// Other context that decides the meaning of tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Nothing,
    /// In a `select`, where some browsers ignore most tags.
    Select,
    /// In a template within a `select`, with this many templates within that template.
    SelectTemplate(u32),
    /// In a `frameset`, or after it.
    Frameset,
    /// In a template, with this many templates within it. At the start of a template, a `col` makes browsers ignore most
    /// later tags.
    Template(u32),
}

/// A start tag.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    pub name: Name,
    pub means: Means,
    /// `/>`
    pub empty: bool,
    /// True if the attributes contain a relevant fact.
    pub said: bool,
    /// True if the tag ends where the value of an attribute was expected.
    pub lacks: bool,
    /// True if the rewriter treats the following text as the text of this element.
    pub text: bool,
    /// True if the rewriter treats the tag as an element of SVG or MathML.
    pub foreign: bool,
    /// True if features, or the rewriter for the element's content, depend on whether the element is an HTML element.
    pub matters: bool,
}

/// The state of the scan, from a tag on that begins a relevant construct.
#[derive(Debug)]
pub(super) struct Doubt {
    /// The open elements, from the outermost element of SVG or MathML to the innermost.
    open: Vec<DoubtfulElement>,
    /// True if all of these elements may have been closed.
    maybe_closed: bool,
    within: Within,
    ambiguous: bool,
    /// True once the name of the first tag has been read.
    begun: bool,
    how: Watching,
}

/// The purpose of the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Watching {
    /// True if no rewriter is used, so that differences between it and a browser do not matter.
    pub alone: bool,
    /// True if features remove elements, tags or attributes. A removal must not change where SVG or MathML ends.
    pub removes: bool,
}

/// Returns true for parts of a table: their tags close everything in a cell around them.
fn is_in_table(name: Name) -> bool {
    matches!(name, CAPTION | COL | COLGROUP | TBODY | TD | TFOOT | TH | THEAD | TR)
}

impl Doubt {
    /// The state before the first tag.
    pub fn new(how: Watching) -> Self {
        let within = Within::Nothing;
        Self { open: Vec::new(), maybe_closed: false, within, ambiguous: false, begun: false, how }
    }

    pub fn is_ambiguous(&self) -> bool {
        self.ambiguous
    }

    /// Handles the name of a tag. Returns false only for the first tag, if no construct that browser and rewriter may read
    /// differently begins with that name: the scanner then has nothing to watch.
    pub fn begins(&mut self, name: Name) -> bool {
        let first = !std::mem::replace(&mut self.begun, true);
        let begins = matches!(
            name,
            SVG | MATH
                | SELECT
                | FRAMESET
                | TEMPLATE
                | TEXTAREA
                | TITLE
                | PLAINTEXT
                | SCRIPT
                | STYLE
                | IFRAME
                | XMP
                | NOEMBED
                | NOFRAMES
                | NOSCRIPT
        );
        begins || !first
    }

    /// Returns true if the name of the first tag has been read.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// The memory that it holds, bytes.
    pub fn held(&self) -> usize {
        size_of::<Self>() + size_of::<DoubtfulElement>() * self.open.capacity()
    }

    /// Returns true once all relevant constructs are closed.
    pub fn is_over(&self) -> bool {
        self.open.is_empty() && self.within == Within::Nothing
    }

    /// Returns true if an element of SVG or MathML is open.
    pub fn is_foreign(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns true if a style or script of SVG is open.
    pub fn is_in_code(&self) -> bool {
        self.open.last().is_some_and(|last| last.code)
    }

    /// The open SVG or MathML, if no element in it prevents an outer end tag from closing both.
    pub fn root(&self) -> Option<Root> {
        let root = match self.open.first()?.space {
            DoubtContext::Html => return None,
            DoubtContext::Svg => Root::Svg,
            DoubtContext::Math => Root::Math,
        };
        self.open.iter().all(|open| open.space != DoubtContext::Html && !open.point).then_some(root)
    }

    /// Handles `<![CDATA[`. `rewriter` is true if the rewriter reads it as the start of a text.
    pub fn cdata(&mut self, rewriter: bool) {
        let begins = self.open.last().is_some_and(|last| last.space != DoubtContext::Html);
        self.ambiguous |= begins != rewriter || begins && self.maybe_closed;
    }

    /// Handles the name of a start tag. If features remove something, the text after a tag that ends SVG, MathML or a
    /// `select` is ambiguous: the tag may be removed, and the text would be read differently without it.
    pub fn named(&mut self, name: Name) {
        let in_foreign = self.open.last().is_some_and(|last| last.space != DoubtContext::Html && !last.point);
        let ends = in_foreign && (ends_foreign(name) || name == FONT)
            || self.within == Within::Select && matches!(name, SELECT | INPUT | TEXTAREA | KEYGEN);
        self.ambiguous |= self.how.removes && ends;
    }

    /// A start tag.
    pub fn start(&mut self, tag: Start) {
        let Start { name, means, empty, said, lacks, text, foreign, matters } = tag;
        // The rewriter treats a tag that lacks a value as an element without content.
        let text = text && (!lacks || self.how.alone);
        let inside = !self.open.is_empty();
        self.ambiguous |= inside && matches!(name, MGLYPH | MALIGNMARK);
        let space = self.open.last().filter(|last| !last.point).map_or(DoubtContext::Html, |last| last.space);
        if space == DoubtContext::Html {
            self.ambiguous |= means.is_text() && !text;
            return self.start_html(tag);
        }
        if ends_foreign(name) || name == FONT && said {
            self.leave();
            return self.start_html(tag);
        }
        // If SVG or MathML has been closed, the element is an HTML element.
        self.ambiguous |= text || (means.is_text() || matters) && self.maybe_closed || matters && !foreign;
        let other = match space {
            DoubtContext::Svg => Means::Math,
            _ => Means::Svg,
        };
        // An attribute decides if the content of `annotation-xml` is HTML, but its references are not resolved here.
        self.ambiguous |= means == other || space == DoubtContext::Math && name == ANNOTATION_XML;
        if !empty {
            let point = match space {
                DoubtContext::Svg => matches!(name, DESC | TITLE | FOREIGN_OBJECT),
                _ => matches!(name, MI | MN | MO | MS | MTEXT),
            };
            self.push(DoubtfulElement { name, space, point, code: false });
        }
    }

    /// Leaves SVG and MathML, because of a tag that cannot be in them.
    fn leave(&mut self) {
        while self.open.pop_if(|last| last.space != DoubtContext::Html && !last.point).is_some() {}
        self.maybe_closed &= !self.open.is_empty();
    }

    fn push(&mut self, mut open: DoubtfulElement) {
        open.code =
            self.is_in_code() || open.space == DoubtContext::Svg && matches!(open.name, SCRIPT | STYLE);
        self.open.push(open);
        self.ambiguous |= self.open.len() > DEPTH;
    }

    /// Handles a start tag with its HTML meaning.
    fn start_html(&mut self, Start { name, means, empty, foreign, matters, .. }: Start) {
        let space = match means {
            Means::Svg => DoubtContext::Svg,
            Means::Math => DoubtContext::Math,
            _ => DoubtContext::Html,
        };
        self.ambiguous |= matters && foreign && space == DoubtContext::Html;
        if self.open.is_empty() {
            self.decide(name, means);
            if space != DoubtContext::Html && !empty {
                self.push(DoubtfulElement { name, space, point: false, code: false });
            }
            return;
        }
        self.ambiguous |= matches!(name, SELECT | FRAMESET);
        self.maybe_closed |=
            is_in_table(name) && !self.html().any(|open| matches!(open.name, TABLE | TEMPLATE));
        let has_content = if space == DoubtContext::Html { means != Means::Void } else { !empty };
        if has_content {
            self.push(DoubtfulElement { name, space, point: false, code: false });
        }
    }

    /// The open HTML elements in the innermost element of SVG or MathML that contains HTML, from inside out.
    fn html(&self) -> impl Iterator<Item = &DoubtfulElement> {
        self.open.iter().rev().take_while(|open| open.space == DoubtContext::Html)
    }

    /// Handles a start tag outside of SVG and MathML.
    fn decide(&mut self, name: Name, means: Means) {
        let is_foreign = matches!(means, Means::Svg | Means::Math);
        let unclear = means.is_text() || is_foreign || name == FRAMESET;
        match self.within {
            Within::Nothing => self.begin(name),
            Within::Select => match name {
                SELECT | TEXTAREA | INPUT | KEYGEN => self.within = Within::Nothing,
                TEMPLATE => self.within = Within::SelectTemplate(0),
                _ => self.ambiguous |= unclear && name != SCRIPT,
            },
            Within::SelectTemplate(more) if name == TEMPLATE => {
                self.within = Within::SelectTemplate(more.saturating_add(1));
            }
            Within::SelectTemplate(_) => self.ambiguous |= unclear,
            Within::Frameset => self.ambiguous |= unclear && name != NOFRAMES && name != FRAMESET,
            Within::Template(more) if name == TEMPLATE => {
                self.within = Within::Template(more.saturating_add(1));
            }
            Within::Template(0) => match name {
                COL => self.ambiguous = true,
                SCRIPT | STYLE | LINK | META | BASE | BASEFONT | BGSOUND | TITLE | NOFRAMES => {}
                _ => self.begin(name),
            },
            Within::Template(_) => {}
        }
    }

    fn begin(&mut self, name: Name) {
        self.within = match name {
            SELECT => Within::Select,
            FRAMESET => Within::Frameset,
            TEMPLATE => Within::Template(0),
            _ => Within::Nothing,
        };
    }

    /// Handles an end tag.
    pub fn end(&mut self, name: Name) {
        match self.open.last() {
            None => self.end_outside(name),
            Some(DoubtfulElement { space: DoubtContext::Html, .. }) => self.end_html(name),
            Some(_) => self.end_foreign(name),
        }
    }

    fn end_outside(&mut self, name: Name) {
        self.within = match (self.within, name) {
            (Within::Select, SELECT) | (Within::Template(0), TEMPLATE) => Within::Nothing,
            (Within::SelectTemplate(0), TEMPLATE) => Within::Select,
            (Within::SelectTemplate(more), TEMPLATE) => Within::SelectTemplate(more - 1),
            (Within::Template(more), TEMPLATE) => Within::Template(more - 1),
            (within, _) => within,
        };
    }

    /// Handles an end tag while an HTML element is open within SVG or MathML.
    fn end_html(&mut self, name: Name) {
        let count = self.html().count();
        let point = self.open.len().checked_sub(count + 1).and_then(|at| self.open.get(at));
        let is_point = point.is_some_and(|point| point.name == name);
        let found = self.html().position(|open| open.name == name);
        match found {
            Some(0) => drop(self.open.pop()),
            // It is uncertain which elements in between end as well, and whether all of them have been closed.
            Some(_) => self.ambiguous = true,
            None if is_point => self.ambiguous = true,
            None => {
                let closes =
                    is_in_table(name) || matches!(name, TABLE | SELECT | TEMPLATE | FORM | BODY | HTML);
                self.maybe_closed |= closes;
            }
        }
    }

    /// Handles an end tag in SVG or MathML.
    fn end_foreign(&mut self, name: Name) {
        let count = self.open.iter().rev().take_while(|open| open.space != DoubtContext::Html).count();
        let from = self.open.len() - count;
        let found = self.open.iter().skip(from).rposition(|open| open.name == name);
        match found {
            Some(at) => {
                self.open.truncate(from + at);
                self.maybe_closed &= !self.open.is_empty();
            }
            // The tag may close an HTML element around the SVG or MathML. Its effect on elements in between is unknown.
            None if from > 0 || self.within != Within::Nothing => self.ambiguous = true,
            // Browsers differ for these tags.
            None if matches!(name, P | BR) && self.open.iter().any(|open| open.point) => {
                self.ambiguous = true;
            }
            None => self.maybe_closed = true,
        }
    }

    /// Ends the scan if the rewriter has too many open elements.
    pub fn bound(&mut self, open: usize) {
        self.ambiguous |= open > DEPTH;
    }
}
