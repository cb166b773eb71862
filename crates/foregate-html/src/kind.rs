//! The kind of a body, as its start suggests.
//!
//! Servers send JSON, text, and parts of pages as `text/html`. Markup for the edges of head and body is inserted only
//! into documents: after JSON it would break scripts that parse the body, and in a part of a page inserted scripts
//! would run a second time.

use crate::charset::PRESCAN;

/// The kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum BodyKind {
    /// A document.
    #[default]
    Document,
    /// The body begins with head content, such as a script. It is a document if a tag of `html`, `head` or `body` follows.
    HeadContent,
    /// The body begins with another element. It is a document if a tag of `html` follows: the element may be a warning of
    /// an interpreter.
    Fragment,
    /// The body begins with text. It is never a document, because the text may quote tags.
    Text,
    /// The body is not HTML: JSON, XML, or UTF-16 without a byte-order mark.
    Other,
    /// The body consists of blanks, or is empty.
    Empty,
}

/// Determines the kind of a body from its start, without a byte-order mark; `None` if more input is needed. `whole`
/// says that `start` is the whole body. At most [`PRESCAN`] bytes after leading blanks are read.
pub(crate) fn body_kind(start: &[u8], whole: bool) -> Option<BodyKind> {
    let start = start.trim_ascii_start();
    let rest = start.get(..PRESCAN).unwrap_or(start);
    let is_cut = start.len() >= PRESCAN;
    let undecided = || match whole && !is_cut {
        true => Some(BodyKind::Fragment),
        false => is_cut.then_some(BodyKind::HeadContent),
    };
    match rest {
        [] => whole.then_some(BodyKind::Empty),
        [b'{' | b'[', ..] | [0, ..] | [_, 0, ..] => Some(BodyKind::Other),
        [b'<'] => undecided(),
        // The next byte may show that the body is in UTF-16.
        [_] if !whole => None,
        [b'<', ..] => by_tags(rest).or_else(undecided),
        _ => Some(BodyKind::Text),
    }
}

/// The kind of a body that begins with `<`: comments, declarations and end tags are skipped.
fn by_tags(mut rest: &[u8]) -> Option<BodyKind> {
    let mut is_xml = false;
    let other = |is_xml| Some(if is_xml { BodyKind::Other } else { BodyKind::Fragment });
    loop {
        rest = match rest.trim_ascii_start() {
            [] => return None,
            [b'<', rest @ ..] => rest,
            _ => return other(is_xml),
        };
        let skips_to: &[u8] = match rest {
            [] => return None,
            [b'!', ..] if b"!--".starts_with(rest) => return None,
            [b'!', b'-', b'-', text @ ..] => {
                let includes = text.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"#include"));
                if includes || text.starts_with(b"# ") {
                    // A server-side include: the head may be in the included file.
                    return Some(BodyKind::Document);
                }
                // `<!-->` is a whole comment.
                rest = rest.get(1..).unwrap_or_default();
                b"-->"
            }
            [b'!', declaration @ ..] => {
                let end = memchr::memchr(b'>', declaration)?;
                if is_doctype(declaration.get(..end).unwrap_or_default()) {
                    return Some(BodyKind::Document);
                }
                b">"
            }
            [b'?', ..] => {
                is_xml |= rest.get(1..4).is_some_and(|name| name.eq_ignore_ascii_case(b"xml"));
                b">"
            }
            [b'/', ..] => b">",
            [first, ..] if first.is_ascii_alphabetic() => {
                let ends = |byte: &u8| byte.is_ascii_whitespace() || b"/>".contains(byte);
                let end = rest.iter().position(ends)?;
                return match by_name(&rest.get(..end)?.to_ascii_lowercase()) {
                    kind if !is_xml => Some(kind),
                    _ if rest.get(..end)?.eq_ignore_ascii_case(b"html") => Some(BodyKind::Document),
                    _ => Some(BodyKind::Other),
                };
            }
            _ => return other(is_xml),
        };
        let end = memchr::memmem::find(rest, skips_to)?;
        rest = rest.get(end + skips_to.len()..).unwrap_or_default();
    }
}

/// Returns true if it is `doctype html ...`.
fn is_doctype(declaration: &[u8]) -> bool {
    let Some((word, name)) = declaration.split_at_checked(7) else { return false };
    let name = name.trim_ascii_start();
    let name = name.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    word.eq_ignore_ascii_case(b"doctype") && name.eq_ignore_ascii_case(b"html")
}

/// The kind of a body that begins with an element of this name.
fn by_name(name: &[u8]) -> BodyKind {
    match name {
        b"html" | b"head" | b"body" | b"frameset" | b"title" | b"meta" | b"base" => BodyKind::Document,
        // The head may be in the included fragment.
        b"esi:include" => BodyKind::Document,
        b"script" | b"style" | b"link" | b"noscript" => BodyKind::HeadContent,
        _ => BodyKind::Fragment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_says_what_a_body_is() {
        for (start, expected) in [
            ("<!DOCTYPE html><p>x", BodyKind::Document),
            ("\u{feff} \n<!-- a > b --><!doctype HTML PUBLIC \"x\"><p>", BodyKind::Document),
            ("<?xml version=\"1.0\"?><!DOCTYPE html PUBLIC 'x'><html>", BodyKind::Document),
            ("<?xml version=\"1.0\"?>\n<html xmlns=x>", BodyKind::Document),
            ("<HTML><p>", BodyKind::Document),
            ("<!--><head/>", BodyKind::Document),
            ("<body class=a>", BodyKind::Document),
            ("<title>t</title><p>", BodyKind::Document),
            ("<!--#include virtual=\"/head.html\" --><p>", BodyKind::Document),
            ("<!--# include virtual=\"/head.html\" --><p>", BodyKind::Document),
            ("<!--#INCLUDE virtual=/head.html--><p>", BodyKind::Document),
            ("<esi:include src=/head.html /><p>", BodyKind::Document),
            ("<script>x</script><body>", BodyKind::HeadContent),
            ("<link rel=a href=b>", BodyKind::HeadContent),
            ("<p>x</p>", BodyKind::Fragment),
            ("<tr><td>1</td></tr>", BodyKind::Fragment),
            ("<header>x</header>", BodyKind::Fragment),
            ("<!-- c -->x", BodyKind::Fragment),
            ("<3 <html>", BodyKind::Fragment),
            ("<template><body></body></template>", BodyKind::Fragment),
            ("<!-- c ", BodyKind::Fragment),
            ("<", BodyKind::Fragment),
            ("<ht", BodyKind::Fragment),
            ("<!doctype note SYSTEM 'x'><note>", BodyKind::Fragment),
            ("Hello <html>", BodyKind::Text),
            ("\"<html><body></body>\"", BodyKind::Text),
            (")]}',\n{\"a\":\"<body>\"}", BodyKind::Text),
            ("while(1);[\"<html>\"]", BodyKind::Text),
            ("true", BodyKind::Text),
            (" \r\n\t{\"a\": \"<html>\"}", BodyKind::Other),
            ("\u{feff}[]", BodyKind::Other),
            ("<?xml version='1.0'?><rss><title>x</title>", BodyKind::Other),
            ("<?xml version='1.0'?><!-- x --><title>x</title>", BodyKind::Other),
            ("<\0h\0t\0m\0l\0>\0", BodyKind::Other),
            ("\0<\0h", BodyKind::Other),
            ("", BodyKind::Empty),
            ("\u{feff}", BodyKind::Empty),
            (" \n", BodyKind::Empty),
        ] {
            let start = start.trim_start_matches('\u{feff}');
            assert_eq!(body_kind(start.as_bytes(), true), Some(expected), "{start:?}");
            for at in 0..start.len() {
                let early = body_kind(&start.as_bytes()[..at], false);
                assert!(early.is_none_or(|early| early == expected), "{at} of {start:?}: {early:?}");
            }
        }
    }

    #[test]
    fn no_more_than_a_kilobyte_is_awaited() {
        let comment = ["<!--", &"x".repeat(PRESCAN - 4)].concat();
        assert_eq!(body_kind(&comment.as_bytes()[..PRESCAN - 1], false), None);
        assert_eq!(body_kind(b"x", false), None, "the next byte may be 0");
        assert_eq!(body_kind(b" x", true), Some(BodyKind::Text));
        for more in ["", "--><html>"] {
            let start = [" \n", &comment, more].concat();
            assert_eq!(body_kind(start.as_bytes(), false), Some(BodyKind::HeadContent));
            assert_eq!(body_kind(start.as_bytes(), true), Some(BodyKind::HeadContent), "as if more followed");
        }
    }
}
