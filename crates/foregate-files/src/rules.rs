//! The settings of a served folder, and the decisions that depend on them alone.

use foregate_coding::{AcceptEncoding, ContentCoding};
use foregate_wire::{HeaderList, NameId};

use crate::name::Name;
use crate::pattern::Pattern;
use crate::template::Template;

/// The settings of a served folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// The names of index files. The first file that exists is sent for its folder. Default: `index.html`.
    pub index: Vec<Box<str>>,
    /// Places to look for a file, in order. Default: `$path`.
    pub places: Vec<Template>,
    /// The codings of precompressed variants, such as `app.js.br` next to `app.js`, in order of preference.
    /// Default: none.
    pub precompressed: Vec<ContentCoding>,
    /// Folders without an index are listed. Default: no.
    pub listing: bool,
    /// Files with a dot at the start of their names are served. Default: no.
    pub dotfiles: bool,
    /// Lifetimes; the first that matches a file applies. Default: none.
    pub expires: Vec<Expires>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            index: vec!["index.html".into()],
            places: vec![Template::Path],
            precompressed: Vec::new(),
            listing: false,
            dotfiles: false,
            expires: Vec::new(),
        }
    }
}

/// The lifetime of files in caches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expires {
    /// The lifetime in seconds. With 0, a cache revalidates the file for each request.
    pub seconds: u64,
    /// True if a file with this name never changes, so that browsers need not revalidate it on a reload (RFC 8246).
    pub immutable: bool,
    /// The names of the files that this lifetime applies to; `None` for all files.
    pub on: Option<Pattern>,
}

impl Expires {
    /// The value of Cache-Control.
    pub fn cache_control(&self) -> String {
        match (self.seconds, self.immutable) {
            (0, _) => "no-cache".into(),
            (seconds, false) => format!("max-age={seconds}"),
            (seconds, true) => format!("public, max-age={seconds}, immutable"),
        }
    }
}

/// A place to look for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The name below the served folder; empty: the folder itself.
    pub name: Vec<u8>,
    /// True if the request asks for a folder: for its index file or its listing.
    pub is_folder: bool,
    /// True if the name is the path of the request itself. If the path is that of a folder, but lacks the slash at its
    /// end, the request is redirected.
    pub is_path: bool,
}

impl Rules {
    /// The places to look for the file of a request, in order. Empty: no file can have this path.
    pub fn candidates(&self, path: &[u8]) -> Vec<Candidate> {
        let Some(name) = Name::read(path, self.dotfiles) else { return Vec::new() };
        self.places.iter().filter_map(|place| place.candidate(&name)).collect()
    }

    /// The codings of variants to look for, in order.
    pub fn variants(&self, headers: &HeaderList) -> Vec<ContentCoding> {
        if self.precompressed.is_empty() {
            return Vec::new();
        }
        AcceptEncoding::of(headers.get_all(NameId::AcceptEncoding)).order(&self.precompressed)
    }

    /// The lifetime of the file with this name; `None` if no rule applies.
    pub fn expires(&self, name: &[u8]) -> Option<&Expires> {
        let is_for = |expires: &&Expires| expires.on.as_ref().is_none_or(|on| on.matches(name));
        self.expires.iter().find(is_for)
    }
}

/// The suffix of the file names of variants in this coding.
pub fn suffix(coding: ContentCoding) -> &'static str {
    match coding {
        ContentCoding::Gzip => ".gz",
        ContentCoding::Deflate => ".zz",
        ContentCoding::Brotli => ".br",
        ContentCoding::Zstd => ".zst",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_come_in_order() {
        let places = ["$path", "$path/index.html", "/app.html"].map(|text| Template::parse(text).unwrap());
        let rules = Rules { places: places.to_vec(), ..Rules::default() };
        let names = |path: &str| {
            let candidates = rules.candidates(path.as_bytes());
            let name = |candidate: Candidate| String::from_utf8(candidate.name).unwrap();
            candidates.into_iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(names("/a"), ["a", "a/index.html", "app.html"]);
        assert_eq!(names("/"), ["", "index.html", "app.html"]);
        assert!(names("/a%2Fb").is_empty() && names("/.git/config").is_empty());
    }

    #[test]
    fn the_first_lifetime_that_matches_counts() {
        let on = |text| Some(Pattern::parse(text).unwrap());
        let rules = Rules {
            expires: vec![
                Expires { seconds: 0, immutable: false, on: on("*.html") },
                Expires { seconds: 31_536_000, immutable: true, on: on("/assets/**") },
                Expires { seconds: 60, immutable: false, on: None },
            ],
            ..Rules::default()
        };
        let value = |name: &str| rules.expires(name.as_bytes()).map(Expires::cache_control);
        assert_eq!(value("a/index.html").as_deref(), Some("no-cache"));
        assert_eq!(value("assets/a.js").as_deref(), Some("public, max-age=31536000, immutable"));
        assert_eq!(value("a.js").as_deref(), Some("max-age=60"));
        assert_eq!(Rules::default().expires(b"a"), None);
    }
}
