//! Removal of elements from a document.
//!
//! The rewriter can remove elements itself, but not safely: it treats any end tag that closes an element as the
//! element's own, and removed content is lost if the rewriter gives up inside the element. So the content of a removed
//! element is written unchanged and held until the end of the element is known. Then it is cut off, or released.

use lol_html::html_content::{ContentType, EndTag, StreamingHandler, StreamingHandlerSink};
use lol_html::send;

use crate::fragments::RewriterOutput;
use crate::rewriter::{shared, written};

/// The element that is being removed with its content.
#[derive(Debug)]
pub(crate) struct Removing {
    /// The number of this removal, counted in the document.
    number: u64,
    /// True in a dry run: nothing is held, and only features in a dry run ignore the content of the element.
    dry: bool,
    /// True if no feature gets the texts in the element.
    pub hushes_texts: bool,
    /// True if the end tag of the element may be left out.
    lacks_end: bool,
}

/// Returns true if elements of this name may end without an end tag (HTML, section 13.1.2.4).
pub(crate) fn may_lack_its_end(name: &str) -> bool {
    matches!(
        name,
        "html"
            | "body"
            | "head"
            | "p"
            | "li"
            | "dt"
            | "dd"
            | "option"
            | "optgroup"
            | "tr"
            | "td"
            | "th"
            | "tbody"
            | "thead"
            | "tfoot"
            | "caption"
            | "colgroup"
            | "rb"
            | "rt"
            | "rtc"
            | "rp"
    )
}

/// Returns true if content in this element would mean something else without the element's tags.
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

/// A marker in the output: output after it is held.
struct HeldStart;

impl StreamingHandler for HeldStart {
    fn write_all(
        self: Box<Self>,
        _: &mut StreamingHandlerSink<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync + 'static>> {
        written(|written| written.cut = Some(written.bytes.len()));
        Ok(())
    }
}

/// A marker in the output: the output held at this point is removed.
struct CutsOff;

impl StreamingHandler for CutsOff {
    fn write_all(
        self: Box<Self>,
        _: &mut StreamingHandlerSink<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync + 'static>> {
        written(RewriterOutput::cut_off);
        Ok(())
    }
}

impl Removing {
    /// The removal of an element. The [follower](crate::follow) finds the element's end.
    pub fn followed() -> Self {
        Self { number: 0, dry: false, hushes_texts: true, lacks_end: false }
    }

    /// Returns true if a feature must not change anything in the element. `dry` is true for a feature in a dry run.
    pub fn hushes(&self, dry: bool) -> bool {
        dry || !self.dry
    }
}

/// Begins to remove an element with content. Called in the handler of its start tag, after all insertions before the element.
pub(crate) fn begin(element: &mut send::Element<'_, '_>, dry: bool) {
    let name = element.tag_name();
    let lacks_end = !is_html(element) || may_lack_its_end(&name);
    let number = shared(|shared| {
        shared.removals += 1;
        let (number, hushes_texts) =
            (shared.removals, !dry || shared.running.iter().all(|running| running.dry));
        shared.removing = Some(Removing { number, dry, hushes_texts, lacks_end });
        number
    });
    if !dry {
        element.streaming_before(Box::new(HeldStart));
    }
    let ended = element.on_end_tag(Box::new(move |tag| {
        end(number, &name, tag);
        Ok(())
    }));
    debug_assert!(ended.is_ok(), "it has content");
}

/// Handles the end tag that ends the element: its own, or the end tag of an element around it.
fn end(number: u64, name: &str, tag: &mut EndTag<'_>) {
    shared(|shared| {
        let Some(removing) = shared.removing.take_if(|removing| removing.number == number) else { return };
        if removing.dry {
            return;
        }
        if tag.name() == name {
            // This comes after all insertions of features at the end of the element.
            tag.streaming_before(Box::new(CutsOff));
            tag.remove();
        } else if removing.lacks_end {
            written(RewriterOutput::cut_off);
        } else {
            // Browsers disagree about the end of the element.
            shared.left += 1;
            written(|written| written.cut = None);
        }
    });
}

/// Removes the end tag of an element, but not its content. If the end tag would have closed SVG or MathML within the
/// element, the end tag of the SVG or MathML is written instead: otherwise the following text would be part of it.
pub(crate) fn remove_end(tag: &mut EndTag<'_>) {
    if let Some(root) = shared(|shared| shared.foreign) {
        tag.before(root.end_tag(), ContentType::Html);
    }
    tag.remove();
}

/// Handles the end of the document. An element with an optional end tag ends here and is removed. Any other element is
/// not closed, so it stays. Returns true if an element stays that should have been removed.
pub(crate) fn end_all(removing: &mut Option<Removing>) -> bool {
    let Some(removing) = removing.take() else { return false };
    let stays = !removing.lacks_end;
    if stays {
        written(|written| written.cut = None);
    } else {
        written(RewriterOutput::cut_off);
    }
    stays && !removing.dry
}
