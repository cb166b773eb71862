//! Names with a spelling that the parser changes in SVG and MathML (HTML, section 13.2.6.1).

use std::borrow::Cow;

const ELEMENTS: &str = "altGlyph altGlyphDef altGlyphItem animateColor animateMotion animateTransform clipPath feBlend feColorMatrix \
    feComponentTransfer feComposite feConvolveMatrix feDiffuseLighting feDisplacementMap feDistantLight feDropShadow feFlood \
    feFuncA feFuncB feFuncG feFuncR feGaussianBlur feImage feMerge feMergeNode feMorphology feOffset fePointLight \
    feSpecularLighting feSpotLight feTile feTurbulence foreignObject glyphRef linearGradient radialGradient textPath";

/// The name with the spelling that the parser gives it.
pub(crate) fn adjusted(name: &[u8]) -> Cow<'_, str> {
    let name = String::from_utf8_lossy(name);
    let known = ELEMENTS.split_ascii_whitespace().find(|known| known.eq_ignore_ascii_case(&name));
    match known {
        Some(known) => Cow::Borrowed(known),
        None if name.bytes().any(|byte| byte.is_ascii_uppercase()) => Cow::Owned(name.to_ascii_lowercase()),
        None => name,
    }
}

/// Returns true if an attribute gets a namespace, so that selectors without one do not match it.
pub(crate) fn has_namespace(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    lower == b"xmlns" || [&b"xlink:"[..], b"xml:", b"xmlns:"].iter().any(|start| lower.starts_with(start))
}
