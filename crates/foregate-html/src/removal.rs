//! Elements that are being taken out of a document.
//!
//! The rewriter could drop them itself, but it takes any end tag that closes an element for the element's own, and what it has
//! dropped is gone when it gives up amid an element. So what stands in such an element is written as it came, and held until it is
//! clear where the element ends; then it is cut off, or handed on after all.

use lol_html::html_content::{ContentType, EndTag, StreamingHandler, StreamingHandlerSink};
use lol_html::{HandlerResult, send};

use crate::fragments::Written;
use crate::rewriter::{shared, written};

/// The element that is being taken out, with all in it.
#[derive(Debug)]
pub(crate) struct Removing {
    /// Which one of the document.
    number: u64,
    /// It only would be: other features of a dry run do nothing in it either, and nothing is held.
    dry: bool,
    /// Nobody is given its texts.
    pub hushes_texts: bool,
    ends: Ends,
    /// How many elements are open in it beyond which a start tag does not end it.
    within: u32,
}

/// What ends an element beside its own end tag (HTML, sections 13.1.2.4 and 13.2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Nothing.
    Never,
    /// The end of what it is in: it is none of HTML, or nothing that follows could be in it.
    Outer,
    Paragraph,
    Item,
    Definition,
    Choice,
    Choices,
    Row,
    Cell,
    Rows,
    Caption,
    Columns,
    Ruby,
    Head,
}

impl Ends {
    fn of(name: &str, is_html: bool) -> Self {
        match name {
            _ if !is_html => Self::Outer,
            "html" | "body" => Self::Outer,
            "p" => Self::Paragraph,
            "li" => Self::Item,
            "dt" | "dd" => Self::Definition,
            "option" => Self::Choice,
            "optgroup" => Self::Choices,
            "tr" => Self::Row,
            "td" | "th" => Self::Cell,
            "tbody" | "thead" | "tfoot" => Self::Rows,
            "caption" => Self::Caption,
            "colgroup" => Self::Columns,
            "rb" | "rt" | "rtc" | "rp" => Self::Ruby,
            "head" => Self::Head,
            _ => Self::Never,
        }
    }

    /// Whether a start tag ends it.
    fn at(self, name: &str) -> bool {
        let is_rows = || matches!(name, "tbody" | "thead" | "tfoot" | "caption" | "col" | "colgroup");
        match self {
            Self::Never | Self::Outer => false,
            Self::Paragraph => ends_paragraph(name),
            Self::Item => name == "li",
            Self::Definition => matches!(name, "dt" | "dd"),
            Self::Choice => matches!(name, "option" | "optgroup" | "hr"),
            Self::Choices => matches!(name, "optgroup" | "hr"),
            Self::Row => name == "tr" || is_rows(),
            Self::Cell | Self::Caption => matches!(name, "td" | "th" | "tr") || is_rows(),
            Self::Rows => is_rows(),
            Self::Columns => !matches!(name, "col" | "template"),
            Self::Ruby => matches!(name, "rb" | "rt" | "rtc" | "rp"),
            Self::Head => !matches!(
                name,
                "base"
                    | "basefont"
                    | "bgsound"
                    | "link"
                    | "meta"
                    | "noframes"
                    | "noscript"
                    | "script"
                    | "style"
                    | "template"
                    | "title"
            ),
        }
    }

    /// Whether it is a part of a table. Outside of one there is no such element for a browser, and nothing that it would end.
    fn is_in_table(self) -> bool {
        matches!(self, Self::Row | Self::Cell | Self::Rows | Self::Caption | Self::Columns)
    }

    /// Whether no start tag in such an element ends it.
    fn is_beyond(self, name: &str) -> bool {
        if matches!(name, "template" | "table" | "svg" | "math") {
            return true;
        }
        match self {
            Self::Never
            | Self::Outer
            | Self::Row
            | Self::Cell
            | Self::Rows
            | Self::Caption
            | Self::Columns => false,
            Self::Paragraph => matches!(name, "applet" | "button" | "marquee" | "object"),
            Self::Item | Self::Definition => {
                ends_paragraph(name) && !matches!(name, "address" | "div" | "p" | "hr")
                    || matches!(name, "applet" | "button" | "marquee" | "object" | "select")
            }
            Self::Choice | Self::Choices => matches!(name, "select" | "datalist"),
            Self::Ruby => name == "ruby",
            Self::Head => name == "noscript",
        }
    }
}

/// Whether a start tag ends a paragraph.
fn ends_paragraph(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "blockquote"
            | "center"
            | "dd"
            | "details"
            | "dialog"
            | "dir"
            | "div"
            | "dl"
            | "dt"
            | "fieldset"
            | "figcaption"
            | "figure"
            | "footer"
            | "form"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "header"
            | "hgroup"
            | "hr"
            | "li"
            | "listing"
            | "main"
            | "menu"
            | "nav"
            | "ol"
            | "p"
            | "plaintext"
            | "pre"
            | "search"
            | "section"
            | "summary"
            | "table"
            | "ul"
            | "xmp"
    )
}

/// Whether elements of this name may end without an end tag.
pub(crate) fn may_lack_its_end(name: &str) -> bool {
    Ends::of(name, true) != Ends::Never
}

/// Whether the content of an element means what it means since it is in that one, so that it cannot stay without it.
pub(crate) fn decides_about_content(name: &str) -> bool {
    matches!(
        name,
        "annotation-xml"
            | "desc"
            | "foreignobject"
            | "frameset"
            | "iframe"
            | "math"
            | "mi"
            | "mn"
            | "mo"
            | "ms"
            | "mtext"
            | "noembed"
            | "noframes"
            | "noscript"
            | "plaintext"
            | "script"
            | "select"
            | "style"
            | "svg"
            | "template"
            | "textarea"
            | "title"
            | "xmp"
    )
}

fn is_html(element: &send::Element<'_, '_>) -> bool {
    element.namespace_uri() == "http://www.w3.org/1999/xhtml"
}

/// What is written from here on is held.
struct Begins;

impl StreamingHandler for Begins {
    fn write_all(
        self: Box<Self>,
        _: &mut StreamingHandlerSink<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync + 'static>> {
        written(|written| written.cut = Some(written.bytes.len()));
        Ok(())
    }
}

/// What is held goes.
struct CutsOff;

impl StreamingHandler for CutsOff {
    fn write_all(
        self: Box<Self>,
        _: &mut StreamingHandlerSink<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync + 'static>> {
        written(Written::cut_off);
        Ok(())
    }
}

impl Removing {
    /// An element whose end is found by those who [follow](crate::follow) the document.
    pub fn followed() -> Self {
        Self { number: 0, dry: false, hushes_texts: true, ends: Ends::Never, within: 0 }
    }

    /// Whether a feature changes nothing in it.
    pub fn hushes(&self, dry: bool) -> bool {
        dry || !self.dry
    }
}

/// An element with content is taken out: for the handler of its start tag, behind all that is inserted before it.
pub(crate) fn begin(element: &mut send::Element<'_, '_>, dry: bool) {
    let name = element.tag_name();
    let ends = Ends::of(&name, is_html(element));
    let stays = ends.is_in_table() && shared(|shared| shared.tables == 0);
    if stays {
        shared(|shared| shared.left += u64::from(!dry));
        return;
    }
    let number = shared(|shared| {
        shared.removals += 1;
        let (number, hushes_texts) =
            (shared.removals, !dry || shared.running.iter().all(|running| running.dry));
        shared.removing = Some(Removing { number, dry, hushes_texts, ends, within: 0 });
        number
    });
    if !dry {
        element.streaming_before(Box::new(Begins));
    }
    let ended = element.on_end_tag(Box::new(move |tag| {
        end(number, &name, tag);
        Ok(())
    }));
    debug_assert!(ended.is_ok(), "it has content");
}

/// The end tag that ends it: its own, or that of an element around it.
fn end(number: u64, name: &str, tag: &mut EndTag<'_>) {
    shared(|shared| {
        let Some(removing) = shared.removing.take_if(|removing| removing.number == number) else { return };
        if removing.dry {
            return;
        }
        if tag.name() == name {
            // Behind all that features have inserted at its end.
            tag.streaming_before(Box::new(CutsOff));
            tag.remove();
        } else if removing.ends != Ends::Never {
            written(Written::cut_off);
        } else {
            // Where it ends for a browser is anybody's guess.
            shared.left += 1;
            written(|written| written.cut = None);
        }
    });
}

/// Takes the end tag of an element away whose content stays. What it would have closed beside that element is closed by itself: in
/// SVG that goes on, what follows would mean something else.
pub(crate) fn remove_end(tag: &mut EndTag<'_>) {
    if let Some(root) = shared(|shared| shared.foreign) {
        tag.before(root.end_tag(), ContentType::Html);
    }
    tag.remove();
}

/// The document is over. An element whose end tag may be left out ends here; of any other nobody can tell how much of what follows
/// was to be in it. Says whether it stays.
pub(crate) fn end_all(removing: &mut Option<Removing>) -> bool {
    let Some(removing) = removing.take() else { return false };
    let stays = removing.ends == Ends::Never;
    if stays {
        written(|written| written.cut = None);
    } else {
        written(Written::cut_off);
    }
    stays && !removing.dry
}

/// Something begins in which parts of tables may stand: a handler of tables and templates.
pub(crate) fn table(element: &mut send::Element<'_, '_>) -> HandlerResult {
    if is_html(element) {
        shared(|shared| shared.tables = shared.tables.saturating_add(1));
        element.on_end_tag(Box::new(|_| {
            shared(|shared| shared.tables = shared.tables.saturating_sub(1));
            Ok(())
        }))?;
    }
    Ok(())
}

/// Whether a start tag ends the element that is being taken out: a handler of all elements, before that of any feature.
pub(crate) fn look(element: &mut send::Element<'_, '_>) -> HandlerResult {
    if !shared(|shared| shared.removing.is_some()) || !is_html(element) {
        return Ok(());
    }
    let (name, has_content) = (element.tag_name(), element.can_have_content());
    let beyond = shared(|shared| {
        let removing = shared.removing.as_mut()?;
        if removing.within == 0 && removing.ends.at(&name) {
            shared.removing = None;
            written(Written::cut_off);
            return None;
        }
        (has_content && removing.ends.is_beyond(&name)).then(|| {
            removing.within += 1;
            removing.number
        })
    });
    if let Some(number) = beyond {
        element.on_end_tag(Box::new(move |_| {
            shared(|shared| {
                if let Some(removing) = shared.removing.as_mut().filter(|removing| removing.number == number)
                {
                    removing.within = removing.within.saturating_sub(1);
                }
            });
            Ok(())
        }))?;
    }
    Ok(())
}
