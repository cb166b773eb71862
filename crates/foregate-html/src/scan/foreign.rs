//! SVG and MathML in HTML, and HTML in them, as far as they can be recognised without a tree.

use super::names::{
    ANNOTATION_XML, BR, DESC, FONT, FOREIGN_OBJECT, MATH, MI, MN, MO, MS, MTEXT, Means, Name, P, SVG, TITLE,
    ends_foreign,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForeignContext {
    Html,
    Svg,
    Math,
}

/// The SVG, MathML and HTML around the scanner's position.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    /// The contexts from the outermost to the innermost, without the HTML around all of them.
    spaces: Vec<ForeignContext>,
    /// True if `<svg/>` has no content, as in browsers. The rewriter treats it as an element with content.
    exact: bool,
}

/// Returns true if the content of an SVG element of this name is HTML.
fn is_point_in_svg(name: Name) -> bool {
    matches!(name, DESC | TITLE | FOREIGN_OBJECT)
}

/// Returns true if the content of a MathML element of this name is HTML.
fn is_point_in_math(name: Name) -> bool {
    matches!(name, MI | MN | MO | MS | MTEXT)
}

impl Foreign {
    /// A context for scans that need not agree with the rewriter.
    pub fn exact() -> Self {
        Self { exact: true, ..Self::default() }
    }

    fn space(&self) -> ForeignContext {
        self.spaces.last().copied().unwrap_or(ForeignContext::Html)
    }

    /// Returns true if the next element is SVG or MathML.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.space() != ForeignContext::Html
    }

    /// Returns true if SVG or MathML encloses the next element, even if that element is HTML.
    #[inline]
    pub fn is_around(&self) -> bool {
        !self.spaces.is_empty()
    }

    /// Returns the name of an element if its attributes matter here, and `None` otherwise.
    pub fn reads(&self, name: Name) -> Option<Name> {
        (self.is_inside() && matches!(name, FONT | ANNOTATION_XML)).then_some(name)
    }

    /// Handles a start tag. `empty` is true for `/>`, and `said` if the attributes contain a relevant fact. Returns true
    /// for an HTML element that may contain text.
    pub fn start(&mut self, name: Name, means: Means, empty: bool, said: bool) -> bool {
        match (means, self.space()) {
            (Means::Svg | Means::Math, _) if empty && self.exact => {}
            (Means::Svg, _) => self.spaces.push(ForeignContext::Svg),
            (Means::Math, _) => self.spaces.push(ForeignContext::Math),
            (_, ForeignContext::Html) => return true,
            _ if ends_foreign(name) || name == FONT && said => drop(self.spaces.pop()),
            (_, ForeignContext::Svg) if is_point_in_svg(name) && !empty => {
                self.spaces.push(ForeignContext::Html);
            }
            (_, ForeignContext::Math) if is_point_in_math(name) && !empty => {
                self.spaces.push(ForeignContext::Html);
            }
            (_, ForeignContext::Math) if name == ANNOTATION_XML && said && !empty => {
                self.spaces.push(ForeignContext::Html);
            }
            _ => {}
        }
        false
    }

    /// Handles an end tag.
    pub fn close(&mut self, name: Name) {
        let Some(around) = self.spaces.len().checked_sub(1) else { return };
        let around =
            around.checked_sub(1).and_then(|at| self.spaces.get(at)).copied().unwrap_or(ForeignContext::Html);
        let closes = match self.space() {
            ForeignContext::Svg => matches!(name, SVG | P | BR),
            ForeignContext::Math => matches!(name, MATH | P | BR),
            ForeignContext::Html => match around {
                ForeignContext::Html => false,
                ForeignContext::Svg => is_point_in_svg(name),
                ForeignContext::Math => is_point_in_math(name) || name == ANNOTATION_XML,
            },
        };
        if closes {
            self.spaces.pop();
        }
    }

    /// The number of open elements.
    pub fn depth(&self) -> usize {
        self.spaces.len()
    }

    /// The memory that it holds, bytes.
    pub fn held(&self) -> usize {
        self.spaces.capacity()
    }
}
