//! Removal of elements from a document.
//!
//! The rewriter could drop elements itself, but it takes any end tag that closes an element for the element's own, and dropped
//! content is lost when it gives up inside an element. So the content of a removed element is written unchanged and held until
//! the end of the element is known; then it is cut off, or released.

use lol_html::html_content::{ContentType, EndTag, StreamingHandler, StreamingHandlerSink};
use lol_html::send;

use crate::fragments::RewriterOutput;
use crate::rewriter::{shared, written};

/// The element that is being taken out, with all in it.
#[derive(Debug)]
pub(crate) struct Removing {
    /// The number of the removal in the document.
    number: u64,
    /// In a dry run: other features of a dry run do nothing in it either, and nothing is held.
    dry: bool,
    /// No feature gets its texts.
    pub hushes_texts: bool,
    /// Its end tag may be left out.
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

/// Returns true if the meaning of content depends on being in this element, so that it cannot stay without it.
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

/// A marker: output from here on is held.
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

/// A marker: the held output is removed.
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
    /// An element whose end the [follower](crate::follow) finds.
    pub fn followed() -> Self {
        Self { number: 0, dry: false, hushes_texts: true, lacks_end: false }
    }

    /// Returns true if features change nothing in it.
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

/// Handles the end tag that ends the element: its own, or that of an element around it.
fn end(number: u64, name: &str, tag: &mut EndTag<'_>) {
    shared(|shared| {
        let Some(removing) = shared.removing.take_if(|removing| removing.number == number) else { return };
        if removing.dry {
            return;
        }
        if tag.name() == name {
            // After all that features have inserted at its end.
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

/// Removes the end tag of an element with content that stays. Other elements that it would have closed are closed explicitly: in
/// SVG, which would stay open, the following text would change its meaning.
pub(crate) fn remove_end(tag: &mut EndTag<'_>) {
    if let Some(root) = shared(|shared| shared.foreign) {
        tag.before(root.end_tag(), ContentType::Html);
    }
    tag.remove();
}

/// Handles the end of the document. An element with an optional end tag ends here; the extent of any other
/// is unknown. Returns true if it stays.
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
