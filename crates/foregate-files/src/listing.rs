//! Listings of folders.

use foregate_cache::format_date;

use crate::name::encode;

/// The most names in a listing. A listing of a larger folder is cut after them, and says so.
pub const NAMES_MOST: usize = 10_000;

/// A file or folder of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// True if the entry is a folder.
    pub is_folder: bool,
    /// Bytes.
    pub size: u64,
    /// Seconds since 1970.
    pub modified: u64,
}

/// Sorts entries: folders first, then by name, ignoring case.
pub fn sort(entries: &mut [Entry]) {
    entries
        .sort_by_cached_key(|entry| (!entry.is_folder, entry.name.to_ascii_lowercase(), entry.name.clone()));
}

/// Returns true if the Accept field prefers JSON to HTML.
pub fn prefers_json(accept: Option<&[u8]>) -> bool {
    let quality = |wanted: &str| {
        let elements = accept.unwrap_or_default().split(|&byte| byte == b',');
        let quality = |element: &[u8]| {
            let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let is_wanted = parts.next()?.eq_ignore_ascii_case(wanted.as_bytes());
            let said = parts.find_map(foregate_coding::quality).unwrap_or(foregate_coding::FULL);
            is_wanted.then_some(said)
        };
        elements.filter_map(quality).max().unwrap_or(0)
    };
    quality("application/json") > quality("text/html")
}

/// An HTML page with the entries of the folder at the decoded path `path`. `is_whole` is false if entries are missing.
pub fn html(path: &[u8], entries: &[Entry], is_whole: bool) -> Vec<u8> {
    let mut title = b"Index of ".to_vec();
    escape(path, &mut title);
    let mut out = Vec::with_capacity(512 + entries.len() * 160);
    out.extend_from_slice(b"<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    out.extend_from_slice(b"<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    out.extend_from_slice(&title);
    out.extend_from_slice(
        b"</title>\n<style>body{font:1em/1.5 system-ui,sans-serif;margin:2em;color-scheme:light dark}",
    );
    out.extend_from_slice(
        b"td{padding-right:2em}td+td{text-align:right;font-variant-numeric:tabular-nums}</style>\n<h1>",
    );
    out.extend_from_slice(&title);
    out.extend_from_slice(b"</h1>\n<table>\n");
    if path != b"/" {
        out.extend_from_slice(b"<tr><td><a href=\"../\">../</a><td><td>\n");
    }
    for entry in entries {
        let slash: &[u8] = if entry.is_folder { b"/" } else { b"" };
        // Without `./`, a browser would read a name with a colon as a scheme.
        out.extend_from_slice(b"<tr><td><a href=\"./");
        encode(&entry.name, &mut out);
        out.extend_from_slice(slash);
        out.extend_from_slice(b"\">");
        escape(&entry.name, &mut out);
        out.extend_from_slice(slash);
        out.extend_from_slice(b"</a><td>");
        if !entry.is_folder {
            out.extend_from_slice(size(entry.size).as_bytes());
        }
        out.extend_from_slice(b"<td>");
        out.extend_from_slice(format_date(entry.modified).as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"</table>\n");
    if !is_whole {
        out.extend_from_slice(format!("<p>Only the first {NAMES_MOST} names are shown.\n").as_bytes());
    }
    out
}

/// The entries of a folder as JSON, with the same members as in NGINX: `name`, `type`, `mtime` and `size`.
pub fn json(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + entries.len() * 100);
    out.extend_from_slice(b"[");
    for (number, entry) in entries.iter().enumerate() {
        out.extend_from_slice(if number == 0 { b"\n{\"name\":\"" } else { b",\n{\"name\":\"" });
        for character in String::from_utf8_lossy(&entry.name).chars() {
            match character {
                '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
                '\0'..=' ' | '<' | '\x7f' if character != ' ' => {
                    out.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes());
                }
                _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        let kind = if entry.is_folder { "directory" } else { "file" };
        let modified = format_date(entry.modified);
        out.extend_from_slice(format!("\",\"type\":\"{kind}\",\"mtime\":\"{modified}\"").as_bytes());
        if !entry.is_folder {
            out.extend_from_slice(format!(",\"size\":{}", entry.size).as_bytes());
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"\n]\n");
    out
}

/// Appends text, escaped for HTML. Bytes that are not valid UTF-8 are replaced.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '&' => out.extend_from_slice(b"&amp;"),
            '<' => out.extend_from_slice(b"&lt;"),
            '>' => out.extend_from_slice(b"&gt;"),
            '"' => out.extend_from_slice(b"&quot;"),
            '\'' => out.extend_from_slice(b"&#39;"),
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// A size in human-readable form.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = UNITS.iter();
    let mut name = unit.next().copied().unwrap_or_default();
    for larger in unit {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        name = larger;
    }
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, is_folder: bool) -> Entry {
        Entry { name: name.as_bytes().to_vec(), is_folder, size: 1536, modified: 784_111_777 }
    }

    #[test]
    fn names_are_escaped() {
        let evil = entry("\"><script>alert('x')</script>&.html", false);
        let page =
            String::from_utf8(html(b"/<b>/", &[evil.clone(), entry("javascript:x", true)], true)).unwrap();
        assert!(!page.contains("<script>") && !page.contains("<b>"), "{page}");
        assert!(page.contains("href=\"./javascript%3Ax/\""), "{page}");
        assert!(page.contains("Index of /&lt;b&gt;/") && page.contains("href=\"../\""), "{page}");
        assert!(page.contains("1.5 KiB") && page.contains("Sun, 06 Nov 1994 08:49:37 GMT"), "{page}");
        let text = String::from_utf8(json(&[evil, entry("a\\\n", true)])).unwrap();
        assert!(
            text.contains(r#""name":"\">\u003cscript>"#)
                && text.contains(r#""name":"a\\\u000a","type":"directory""#),
            "{text}"
        );
        assert_eq!(String::from_utf8(json(&[])).unwrap(), "[\n]\n");
    }

    #[test]
    fn folders_come_first() {
        let mut entries = ["b", "A", "c"].map(|name| entry(name, name == "c"));
        sort(&mut entries);
        assert_eq!(entries.map(|entry| entry.name), [b"c", b"A", b"b"]);
    }

    #[test]
    fn json_is_for_those_who_ask_for_it() {
        for (accept, expected) in [
            ("application/json", true),
            ("application/json, text/plain, */*", true),
            ("text/html;q=0.5, application/json", true),
            ("text/html, application/xhtml+xml, */*;q=0.8", false),
            ("application/json;q=0", false),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(prefers_json(Some(accept.as_bytes())), expected, "{accept}");
        }
        assert!(!prefers_json(None));
    }

    #[test]
    fn sizes_are_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (5 << 40, "5.0 TiB"),
            (u64::MAX, "16383.9 PiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
