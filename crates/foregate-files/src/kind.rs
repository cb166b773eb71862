//! The media types of files, by their names.

use std::borrow::Cow;

/// The type of a file that has an unknown extension or none.
const UNKNOWN: &str = "application/octet-stream";

/// Extensions, with types that `mime_guess` lacks or gives an outdated name.
const OWN: [(&str, &str); 7] = [
    ("geojson", "application/geo+json"),
    ("jxl", "image/jxl"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("map", "application/json"),
    ("mjs", "text/javascript"),
    ("ts", "video/mp2t"),
    ("webmanifest", "application/manifest+json"),
];

/// The value of Content-Type for a file with this name. Text gets the charset UTF-8.
pub fn content_type(name: &[u8]) -> Cow<'static, str> {
    let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    let Some(dot) = last.iter().rposition(|&byte| byte == b'.').filter(|dot| *dot > 0) else {
        return UNKNOWN.into();
    };
    let Some(extension) = last.get(dot + 1..).and_then(|text| std::str::from_utf8(text).ok()) else {
        return UNKNOWN.into();
    };
    let own = OWN.iter().find(|(known, _)| known.eq_ignore_ascii_case(extension));
    let found = own.map(|(_, kind)| *kind).or_else(|| mime_guess::from_ext(extension).first_raw());
    match found {
        Some(kind) if kind.starts_with("text/") || kind == "application/javascript" => {
            format!("{kind}; charset=utf-8").into()
        }
        Some(kind) => kind.into(),
        None => UNKNOWN.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_names() {
        let rows = [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.HTM", "text/html; charset=utf-8"),
            ("style.css", "text/css; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("app.js.map", "application/json"),
            ("data.json", "application/json"),
            ("site.webmanifest", "application/manifest+json"),
            ("app.wasm", "application/wasm"),
            ("a.svg", "image/svg+xml"),
            ("a.png", "image/png"),
            ("a.jpeg", "image/jpeg"),
            ("a.webp", "image/webp"),
            ("a.avif", "image/avif"),
            ("a.jxl", "image/jxl"),
            ("favicon.ico", "image/x-icon"),
            ("a.woff2", "font/woff2"),
            ("a.mp4", "video/mp4"),
            ("a.webm", "video/webm"),
            ("a.mp3", "audio/mpeg"),
            ("live.m3u8", "application/vnd.apple.mpegurl"),
            ("part-1.ts", "video/mp2t"),
            ("a.pdf", "application/pdf"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.md", "text/markdown; charset=utf-8"),
            ("feed.xml", "text/xml; charset=utf-8"),
            ("a.zip", "application/zip"),
            ("a.tar.gz", "application/gzip"),
            ("a.unknown-extension", UNKNOWN),
            ("README", UNKNOWN),
            ("folder.css/file", UNKNOWN),
            (".css", UNKNOWN),
            ("a.", UNKNOWN),
        ];
        for (name, expected) in rows {
            assert_eq!(content_type(name.as_bytes()), expected, "{name}");
        }
        assert_eq!(content_type(b"a.\xff"), UNKNOWN);
    }
}
