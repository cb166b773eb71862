//! Fragments of other documents that are fetched while a document streams.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use foregate_module::{FetchRequest, FetchResponse, FetchTarget, Text};
use lol_html::html_content::{StreamingHandler, StreamingHandlerSink};

use crate::carry;
use crate::charset::MARKS;
use crate::rewriter::written;

/// Rules for fetching fragments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FragmentRules {
    /// The upstream to ask.
    pub target: FetchTarget,
    /// The time limit of each fetch.
    pub timeout: Duration,
    /// The largest size of a fragment, bytes.
    pub size: usize,
    /// The most fragments of one document, including fragments of fragments.
    pub count: usize,
    /// The deepest nesting of fragments; 1 if fragments may not contain fragments.
    pub depth: usize,
    /// The markup in place of a fragment that cannot be fetched. A document may ask to insert no such markup
    /// ([`Fragment::optional`]).
    pub fallback: String,
}

/// A place of a document where a fragment belongs.
#[derive(Debug, Clone)]
pub struct Fragment {
    /// The path and query of the fragment. For a literal fragment, the path of the document.
    pub path: String,
    /// The content of a fragment that need not be fetched, as bytes of the document.
    pub literal: Option<Vec<u8>>,
    /// The path of the alternative that is fetched if the first fetch fails.
    pub alternative: Option<String>,
    /// True if the element is replaced by nothing when no fetch succeeds.
    pub optional: bool,
    /// The rules for fetching it.
    pub rules: Arc<FragmentRules>,
}

impl Fragment {
    /// The request for the fragment; `None` if the path is not valid.
    pub(crate) fn request(&self) -> Option<FetchRequest> {
        let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"<>#".contains(&byte);
        if !self.path.starts_with('/') || self.path.starts_with("//") || !self.path.bytes().all(fits) {
            return None;
        }
        let FragmentRules { target, timeout, size, .. } = *self.rules;
        Some(FetchRequest {
            target,
            timeout,
            limit: size,
            ..FetchRequest::get(foregate_module::UpstreamId(0), Text::from(self.path.clone()))
        })
    }
}

/// Returns true if a response can be inserted into a document: complete, without content coding, and not in UTF-16.
pub(crate) fn is_usable(answer: &FetchResponse) -> bool {
    (200..300).contains(&answer.status)
        && answer.status != 206
        && !MARKS.iter().skip(1).any(|mark| answer.body.starts_with(mark))
        && answer.field("content-encoding").is_none_or(|coding| coding.eq_ignore_ascii_case(b"identity"))
}

/// Output of the rewriter, and the places of fragments in it.
#[derive(Debug, Default)]
pub(crate) struct RewriterOutput {
    pub bytes: Vec<u8>,
    pub holes: VecDeque<(usize, Fragment)>,
    /// True if the output contains characters that [represent bytes](crate::carry).
    pub stands_in: bool,
    /// The start of the output that may still be cut off: see [`removal`](crate::removal).
    pub cut: Option<usize>,
}

impl RewriterOutput {
    /// Appends output of the rewriter, or output that a feature writes instead.
    #[inline]
    pub fn add(&mut self, written: &[u8]) {
        if self.stands_in {
            return carry::unload(written, &mut self.bytes);
        }
        self.bytes.extend_from_slice(written);
    }

    /// Takes the output, except the part that may be cut off. Unless `all` is set, a `<` at the end stays too, because it
    /// may have to be [escaped](Self::end_text).
    pub fn take(&mut self, all: bool) -> Self {
        let stands_in = self.stands_in;
        if let Some(cut) = self.cut {
            let bytes = self.bytes.split_off(cut);
            return std::mem::replace(self, Self { bytes, stands_in, cut: Some(0), ..Self::default() });
        }
        let opens = !all && self.bytes.pop_if(|last| *last == b'<').is_some();
        let bytes = if opens { vec![b'<'] } else { Vec::new() };
        std::mem::replace(self, Self { bytes, stands_in, ..Self::default() })
    }

    /// Cuts off the held part.
    pub fn cut_off(&mut self) {
        if let Some(cut) = self.cut.take() {
            self.bytes.truncate(cut);
        }
    }

    /// The bytes that are held because they may be cut off.
    pub fn held(&self) -> usize {
        self.cut.map_or(0, |cut| self.bytes.len() - cut)
    }

    /// Ends a text before a removed part of the document: a `<` at the end of the text is escaped, so that it begins no tag
    /// with the text after the removed part.
    pub fn end_text(&mut self) {
        if self.bytes.pop_if(|last| *last == b'<').is_some() {
            self.bytes.extend_from_slice(b"&lt;");
        }
    }
}

/// Output that waits for a fragment. There is a frame for the document, and one for each enclosing fragment.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub written: RewriterOutput,
    /// The number of bytes of `written` that have been passed on.
    pub at: usize,
    /// True if the fragment was not fetched, but is part of the surrounding document.
    pub literal: bool,
}

/// Marks the place of a fragment, once the text before it has been written.
pub(crate) struct FragmentMark {
    pub fragment: Fragment,
}

impl StreamingHandler for FragmentMark {
    fn write_all(
        self: Box<Self>,
        _: &mut StreamingHandlerSink<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync + 'static>> {
        written(|written| {
            let at = written.bytes.len();
            written.holes.push_back((at, self.fragment));
        });
        Ok(())
    }
}
