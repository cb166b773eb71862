//! Hints that save browsers work: images that load only when they come into view, and image sizes that are known before
//! the image arrives.
//!
//! ```kdl
//! html-images {
//!     lazy after=2
//!     sizes-from-names
//!     size "img.logo" 120 40
//! }
//! ```

use std::sync::Arc;

use foregate_module::settings::{Block, Context, Key, Mistakes, Node, Problem, Prop, together};

use super::{Configured, chooses, flag};
use crate::references;
use crate::{Act, Element, Feature, Page, Rewrite, Rule, Selector};

/// The step that chooses the feature.
const STEP: &str = "html-images";
/// The number of images that count as visible at once, and load immediately.
const VISIBLE: u64 = 2;
/// The most selectors.
const SELECTORS: usize = 128;
/// The largest width or height, pixels.
const PIXELS: u64 = 65_535;

static KEY: Key = Key::block(
    STEP,
    &BLOCK,
    "html-images { lazy }",
    "Adds `loading=\"lazy\"`, `width` and `height` to images in HTML that lack these attributes.",
);

static BLOCK: Block = Block {
    keys: &[
        Key::flag(
            "lazy",
            "#false",
            "lazy after=4",
            "Adds `loading=\"lazy\"`, so that browsers load images and frames only when they come into view.",
        )
        .props(&[Prop {
            name: "after",
            usage: "NUMBER",
            required: false,
            default: "2",
            about: "The number of images at the start of a document that stay without it, because they are visible at once.",
        }]),
        Key::flag(
            "sizes-from-names",
            "#false",
            "sizes-from-names",
            "Takes `width` and `height` from file names: `photo-640x480.jpg` gets 640 and 480.",
        ),
        Key::one("size", "SELECTOR WIDTH HEIGHT", "size \"img.logo\" 120 40", "The `width` and `height` of the images that match the selector.")
            .args(3, 3)
            .many(),
    ],
    later: &[],
};

impl Configured for Images {
    const STEP: &'static str = STEP;
    const KEY: &'static Key = &KEY;

    fn from_node(node: &Node, _: &mut dyn Context) -> Result<Self, Problem> {
        let mut images = Images::default();
        let mut mistakes = Mistakes::default();
        let after = node.child("lazy").and_then(|child| child.prop("after"));
        let after = after.map_or(Ok(VISIBLE), |after| after.number(0..=1000));
        if let Some((true, after)) = mistakes.kept(together((flag(node, "lazy"), after))) {
            images = images.lazy(after);
        }
        images.from_names = mistakes.kept(flag(node, "sizes-from-names")) == Some(true);
        for child in node.children_named("size") {
            let number = |at: usize| child.arg(at)?.number(1..=PIXELS);
            let selector = child.arg(0).and_then(Selector::from_argument);
            if let Some((selector, width, height)) = mistakes.kept(together((selector, number(1), number(2))))
            {
                images.size(selector, (width, height));
            }
        }
        mistakes.none()?;
        if images.sizes.len() > SELECTORS {
            return Err(node.wrong(format!("at most {SELECTORS} selectors")));
        }
        if images.lazy.is_none() && !images.from_names && images.sizes.is_empty() {
            return Err(node.wrong("this hints at nothing").help("add `lazy`, `size` or `sizes-from-names`"));
        }
        Ok(images)
    }
}

chooses! {
    /// Chooses the feature.
    ChooseImages, Images, "Gives images of documents hints for browsers."
}

/// The feature.
#[derive(Debug)]
pub struct Images {
    /// Selectors of `size`, then images, then frames: explicit sizes come before sizes by name.
    selectors: Vec<Selector>,
    sizes: Vec<(u64, u64)>,
    lazy: Option<u64>,
    from_names: bool,
}

impl Default for Images {
    fn default() -> Self {
        let selectors = ["img", "iframe"].map(Selector::constant).into();
        Self { selectors, sizes: Vec::new(), lazy: None, from_names: false }
    }
}

impl Images {
    /// Makes frames, and all images except the first `after`, load only when they come into view.
    #[must_use]
    pub fn lazy(self, after: u64) -> Self {
        Self { lazy: Some(after), ..self }
    }

    /// Takes sizes from names of files.
    #[must_use]
    pub fn sizes_from_names(self) -> Self {
        Self { from_names: true, ..self }
    }

    /// Gives images that a selector matches a size: width and height in pixels.
    pub fn size(&mut self, selector: Selector, size: (u64, u64)) {
        self.selectors.insert(self.sizes.len(), selector);
        self.sizes.push(size);
    }
}

impl Feature for Images {
    fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    fn growth(&self) -> usize {
        12
    }

    fn rules(&self, _: &Page) -> Vec<Rule> {
        let sized = self.selectors.iter().take(self.sizes.len()).enumerate();
        sized
            .map(|(number, selector)| Rule {
                selector: selector.clone(),
                act: Act::Tell(number),
                limit: None,
            })
            .collect()
    }

    fn follows(&self, selector: usize) -> bool {
        selector < self.sizes.len()
    }

    fn begin(self: Arc<Self>, _: &Page) -> Box<dyn Rewrite> {
        Box::new(Hints { left: self.lazy.unwrap_or_default(), images: self })
    }
}

struct Hints {
    images: Arc<Images>,
    /// The number of further images that load at once.
    left: u64,
}

impl Rewrite for Hints {
    fn element(&mut self, selector: usize, element: &mut Element<'_, '_, '_>) {
        let images = &self.images;
        let (image, frame) = (images.sizes.len(), images.sizes.len() + 1);
        if let Some(size) = images.sizes.get(selector) {
            return give_size(element, *size);
        }
        if selector == image
            && images.from_names
            && let Some(size) = element.attribute("src").as_deref().and_then(size_of_name)
        {
            give_size(element, size);
        }
        if images.lazy.is_none() {
            return;
        }
        if selector == image && self.left > 0 {
            self.left -= 1;
        } else if (selector == image || selector == frame)
            && !element.has_attribute("loading")
            && !is_urgent(element)
        {
            element.set_attribute("loading", "lazy");
        }
    }
}

/// Returns true if the page marks the image as urgent.
fn is_urgent(element: &Element<'_, '_, '_>) -> bool {
    let priority = element.attribute("fetchpriority");
    priority.is_some_and(|priority| references::resolve(&priority).trim().eq_ignore_ascii_case("high"))
}

/// Sets the size of an image, unless the image states a size itself.
fn give_size(element: &mut Element<'_, '_, '_>, (width, height): (u64, u64)) {
    if !element.has_attribute("width") && !element.has_attribute("height") {
        element.set_attribute("width", &width.to_string());
        element.set_attribute("height", &height.to_string());
    }
}

/// The image size at the end of a file name, as in `photo-640x480.jpg` or `photo_640x480.jpg`.
fn size_of_name(address: &str) -> Option<(u64, u64)> {
    let path = address.split(['?', '#']).next().unwrap_or_default();
    let (stem, _) = path.rsplit('/').next().unwrap_or_default().rsplit_once('.')?;
    let (_, size) = stem.rsplit_once(['-', '_'])?;
    let (width, height) = size.split_once('x')?;
    let number = |digits: &str| {
        let fits = (1..=5).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u64>().ok().filter(|number| fits && (1..=PIXELS).contains(number))
    };
    Some((number(width)?, number(height)?))
}

#[cfg(test)]
mod tests {
    use foregate_module::testing::filtered_at_every_split;

    use super::*;
    use crate::tests::{Boxed, of};

    #[test]
    fn images_get_the_hints_that_they_lack() {
        let make = || {
            let mut images = Images::default().lazy(1).sizes_from_names();
            images.size(Selector::constant("img.logo"), (12, 4));
            Boxed(of(vec![Arc::new(images)], "text/html; charset=utf-8").filter)
        };
        let html = "<img src=/a-640x480.jpg?v=1><img class=logo src=l-1x1.png><img loading=eager src=x-0x1.png>\
                    <img width=3 src=y-3x4.png><iframe src=z></iframe><p>x</p>\
                    <img fetchpriority=high src=h.png><img fetchpriority=\" HIGH\" src=i.png><img fetchpriority=low src=l.png>";
        let out = String::from_utf8(filtered_at_every_split(make, html.as_bytes()).unwrap()).unwrap();
        assert_eq!(
            out,
            "<img src=/a-640x480.jpg?v=1 width=\"640\" height=\"480\">\
             <img class=logo src=l-1x1.png width=\"12\" height=\"4\" loading=\"lazy\"><img loading=eager src=x-0x1.png>\
             <img width=3 src=y-3x4.png loading=\"lazy\"><iframe src=z loading=\"lazy\"></iframe><p>x</p>\
             <img fetchpriority=high src=h.png><img fetchpriority=\" HIGH\" src=i.png>\
             <img fetchpriority=low src=l.png loading=\"lazy\">"
        );
    }
}
