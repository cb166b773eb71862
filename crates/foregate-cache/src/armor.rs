//! Caching by extension, and the check that keeps it from storing private pages (web cache deception).
//!
//! An attacker sends a victim to `/account/x.css`. An origin that ignores the end of the path answers with the account page, and a cache that
//! goes by the extension stores it for all clients. So the extension has to fit Content-Type, and it counts
//! only if every origin would find the same extension in the path.

use foregate_wire::{Slashes, other_readings};

use crate::text::trim;

/// The longest extension that is recognized, in bytes.
const MAX_EXTENSION: usize = 12;

/// Caching by the extension of the path, for responses without a lifetime of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionRule {
    /// The extensions in lower case, without the dot.
    pub extensions: Vec<String>,
    /// The lifetime in seconds.
    pub seconds: u32,
}

impl Default for ExtensionRule {
    /// Two hours for the extensions of static content.
    fn default() -> Self {
        let extensions =
            KINDS.iter().filter(|(_, kind)| kind.is_static()).flat_map(|(names, _)| names.split(' '));
        Self { extensions: extensions.map(str::to_owned).collect(), seconds: 7200 }
    }
}

impl ExtensionRule {
    /// Returns whether a response is cached by this rule.
    pub(crate) fn covers(&self, status: u16, extension: &str) -> bool {
        status == 200 && self.extensions.iter().any(|covered| covered == extension)
    }
}

/// The extension of a path in normal form, in lower case. `None` if the path has no extension, or if an origin
/// could find another one in it, as in `/x%2Fy.css`, `/account%3F.css` and `/account;.css`.
pub(crate) fn extension(path: &[u8]) -> Option<String> {
    let extension = last_extension(path)?;
    let same = |reading: &[u8]| last_extension(reading).is_some_and(|other| other == extension);
    other_readings(path, Slashes::Keep, same)?;
    Some(extension)
}

fn last_extension(path: &[u8]) -> Option<String> {
    let segment = path.rsplit(|&byte| byte == b'/').next()?;
    let dot = segment.iter().rposition(|&byte| byte == b'.')?;
    let extension = segment.get(dot + 1..)?;
    let plain =
        (1..=MAX_EXTENSION).contains(&extension.len()) && extension.iter().all(u8::is_ascii_alphanumeric);
    plain.then(|| String::from_utf8_lossy(extension).to_ascii_lowercase())
}

/// Returns whether a Content-Type fits the extension of a path. Every type fits if there is no extension, or if
/// the extension says nothing about the content.
pub(crate) fn content_fits(extension: Option<&str>, content_type: Option<&[u8]>) -> bool {
    let Some(extension) = extension else { return true };
    let known = KINDS.iter().find(|(names, _)| names.split(' ').any(|name| name == extension));
    let Some((_, kind)) = known else { return true };
    let Some(content_type) = content_type else { return false };
    let essence = trim(content_type.split(|&byte| byte == b';').next().unwrap_or_default());
    let essence = String::from_utf8_lossy(essence).to_ascii_lowercase();
    // Browsers save this type and do not show it, so it is not a page.
    matches!(&*essence, "application/octet-stream" | "binary/octet-stream") || kind.fits(extension, &essence)
}

/// The kind of content that a group of extensions stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContentKind {
    Image,
    Media,
    Font,
    Style,
    Script,
    Text,
    Data,
    Binary,
    Page,
}

const KINDS: [(&str, ContentKind); 9] = [
    ("jpg jpeg png gif webp avif bmp ico svg svgz tif tiff pict eps", ContentKind::Image),
    ("mp3 mp4 m4a m4v ogg ogv oga webm avi mkv mov flac wav mid midi pls aac", ContentKind::Media),
    ("woff woff2 ttf otf eot", ContentKind::Font),
    ("css", ContentKind::Style),
    ("js mjs ejs", ContentKind::Script),
    ("txt csv", ContentKind::Text),
    ("json map webmanifest xml rss atom", ContentKind::Data),
    (
        "pdf doc docx xls xlsx ppt pptx ps zip gz bz2 7z rar tar zst jar class exe dmg iso apk bin swf wasm deb rpm",
        ContentKind::Binary,
    ),
    ("html htm xhtml", ContentKind::Page),
];

impl ContentKind {
    /// Returns whether the default rule caches files of this kind by their extension.
    fn is_static(self) -> bool {
        !matches!(self, Self::Page | Self::Data | Self::Text)
    }

    fn fits(self, extension: &str, essence: &str) -> bool {
        let (major, minor) = essence.split_once('/').unwrap_or((essence, ""));
        match self {
            // Some origins convert images: a `.jpg` may arrive as image/webp, a `.gif` as video/webm.
            Self::Image => {
                major == "image"
                    || extension == "gif" && matches!(essence, "video/webm" | "video/mp4")
                    || extension == "eps" && minor == "postscript"
            }
            Self::Media => {
                matches!(major, "audio" | "video") || matches!(essence, "application/ogg" | "application/mp4")
            }
            Self::Font => {
                major == "font"
                    || major == "application" && (minor.contains("font") || minor.contains("woff"))
                    || essence == "image/svg+xml"
            }
            Self::Style => essence == "text/css",
            Self::Script => minor.ends_with("javascript") || minor.ends_with("ecmascript"),
            Self::Text => matches!(essence, "text/plain" | "text/csv" | "application/csv"),
            Self::Data => {
                matches!(minor, "json" | "xml" | "manifest" | "manifest+json")
                    || (minor.ends_with("+json") || minor.ends_with("+xml")) && minor != "xhtml+xml"
            }
            Self::Binary => {
                let readable =
                    ["json", "xml", "javascript", "ecmascript"].iter().any(|kind| minor.ends_with(kind));
                major == "application" && !readable
            }
            Self::Page => matches!(essence, "text/html" | "application/xhtml+xml"),
        }
    }
}
