//! The insertion modes before, after and outside of the body (HTML, sections 13.2.6.4.1 to 13.2.6.4.6 and from 13.2.6.4.18
//! on).

use super::body::in_body;
use super::kinds::*;
use super::{Content, Done, Mode, Origin, Token, Tree};
use crate::scan::names::Name;

/// Returns true for end tags that imply the start tags of `html`, head and body.
fn implies_body(name: Name) -> bool {
    matches!(name, HEAD | BODY | HTML | BR)
}

pub(super) fn initial(tree: &mut Tree, token: Token) -> Done {
    tree.mode = Mode::BeforeHtml;
    match token {
        Token::Blank => tree.mode = Mode::Initial,
        Token::Doctype(quirks) => tree.quirks = quirks,
        _ => {
            tree.quirks = true;
            return Done::Again;
        }
    }
    Done::Yes
}

pub(super) fn before_html(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Blank | Token::Doctype(_) => Done::Yes,
        Token::Start(HTML, _) => {
            tree.open.insert(HTML, Origin::Tag);
            tree.mode = Mode::BeforeHead;
            Done::Yes
        }
        Token::End(name) if !implies_body(name) => Done::Yes,
        _ => {
            tree.open.insert(HTML, Origin::Implied);
            tree.mode = Mode::BeforeHead;
            Done::Again
        }
    }
}

pub(super) fn before_head(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Blank | Token::Doctype(_) => Done::Yes,
        Token::Start(HTML, _) => in_body(tree, token),
        Token::Start(HEAD, _) => {
            tree.head = Some(tree.open.insert(HEAD, Origin::Tag).id);
            tree.mode = Mode::InHead;
            Done::Yes
        }
        Token::End(name) if !implies_body(name) => Done::Yes,
        _ => {
            tree.head = Some(tree.open.insert(HEAD, Origin::Implied).id);
            tree.mode = Mode::InHead;
            Done::Again
        }
    }
}

pub(super) fn in_head(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Blank => tree.open.insert_text(),
        Token::Start(HTML, _) => return in_body(tree, token),
        Token::Start(BASE | BASEFONT | BGSOUND | LINK | META, _) => {
            if let Token::Start(name, _) = token {
                tree.open.insert_void(name);
            }
        }
        Token::Start(name @ (TITLE | NOSCRIPT | NOFRAMES | STYLE), _) => {
            tree.insert_text_element(name, Content::Text);
        }
        Token::Start(SCRIPT, _) => tree.insert_text_element(SCRIPT, Content::Script),
        Token::End(HEAD) => {
            tree.open.pop();
            tree.mode = Mode::AfterHead;
        }
        Token::Start(TEMPLATE, _) => {
            tree.open.insert(TEMPLATE, Origin::Tag);
            tree.formatting.push_marker();
            tree.frameset_ok = false;
            tree.mode = Mode::InTemplate;
            tree.templates.push(Mode::InTemplate);
        }
        Token::End(TEMPLATE) => end_template(tree),
        Token::Start(HEAD, _) | Token::Doctype(_) => {}
        Token::End(name) if !matches!(name, BODY | HTML | BR) => {}
        _ => {
            tree.open.pop();
            tree.mode = Mode::AfterHead;
            return Done::Again;
        }
    }
    Done::Yes
}

pub(super) fn end_template(tree: &mut Tree) {
    if !tree.open.is_open(TEMPLATE) {
        return;
    }
    tree.open.imply_ends_thoroughly();
    tree.open.pop_until(|name| name == TEMPLATE);
    tree.formatting.clear_to_marker();
    tree.templates.pop();
    tree.reset_mode();
}

pub(super) fn after_head(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Blank => tree.open.insert_text(),
        Token::Start(HTML, _) => return in_body(tree, token),
        Token::Start(BODY, _) => {
            tree.open.insert(BODY, Origin::Tag);
            tree.frameset_ok = false;
            tree.mode = Mode::InBody;
        }
        Token::Start(FRAMESET, _) => {
            tree.open.insert(FRAMESET, Origin::Tag);
            tree.mode = Mode::InFrameset;
        }
        Token::Start(
            BASE | BASEFONT | BGSOUND | LINK | META | NOFRAMES | SCRIPT | STYLE | TEMPLATE | TITLE,
            _,
        ) => in_head_again(tree, token),
        Token::End(TEMPLATE) => return in_head(tree, token),
        Token::Start(HEAD, _) | Token::Doctype(_) => {}
        Token::End(name) if !matches!(name, BODY | HTML | BR) => {}
        _ => {
            tree.open.insert(BODY, Origin::Implied);
            tree.mode = Mode::InBody;
            return Done::Again;
        }
    }
    Done::Yes
}

/// Handles head content after the head.
fn in_head_again(tree: &mut Tree, token: Token) {
    let Some(id) = tree.head else { return };
    let parent = tree.open.current_id();
    let head = super::Node { id, parent, name: HEAD, space: super::Space::Html, point: false };
    tree.open.nodes.push(head);
    in_head(tree, token);
    // The head had ended already, so no end of it is reported.
    if let Some(at) = tree.open.position(id) {
        tree.open.nodes.remove(at);
    }
}

pub(super) fn in_text(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::End(_) => {
            tree.open.pop();
            tree.mode = tree.behind;
        }
        _ => tree.open.insert_text(),
    }
    Done::Yes
}

pub(super) fn in_template(tree: &mut Tree, token: Token) -> Done {
    let mode = match token {
        Token::Blank | Token::Null | Token::Text | Token::Comment | Token::Doctype(_) => {
            return in_body(tree, token);
        }
        Token::Start(
            BASE | BASEFONT | BGSOUND | LINK | META | NOFRAMES | SCRIPT | STYLE | TEMPLATE | TITLE,
            _,
        )
        | Token::End(TEMPLATE) => return in_head(tree, token),
        Token::Start(CAPTION | COLGROUP | TBODY | TFOOT | THEAD, _) => Mode::InTable,
        Token::Start(COL, _) => Mode::InColumns,
        Token::Start(TR, _) => Mode::InRows,
        Token::Start(TD | TH, _) => Mode::InRow,
        Token::Start(..) => Mode::InBody,
        Token::End(_) => return Done::Yes,
    };
    if let Some(last) = tree.templates.last_mut() {
        *last = mode;
    }
    tree.mode = mode;
    Done::Again
}

pub(super) fn after_body(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Blank | Token::Start(HTML, _) => return in_body(tree, token),
        Token::Doctype(_) => {}
        Token::End(HTML) => tree.mode = Mode::AfterAfterBody,
        _ => {
            tree.mode = Mode::InBody;
            return Done::Again;
        }
    }
    Done::Yes
}

pub(super) fn after_after_body(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Blank | Token::Doctype(_) | Token::Start(HTML, _) => in_body(tree, token),
        _ => {
            tree.mode = Mode::InBody;
            Done::Again
        }
    }
}

pub(super) fn in_frameset(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Blank => tree.open.insert_text(),
        Token::Start(HTML, _) => return in_body(tree, token),
        Token::Start(FRAMESET, _) => drop(tree.open.insert(FRAMESET, Origin::Tag)),
        Token::End(FRAMESET) if tree.open.nodes.len() > 1 => {
            tree.open.pop();
            if !tree.open.current_is(|name| name == FRAMESET) {
                tree.mode = Mode::AfterFrameset;
            }
        }
        Token::Start(FRAME, _) => tree.open.insert_void(FRAME),
        Token::Start(NOFRAMES, _) => return in_head(tree, token),
        _ => {}
    }
    Done::Yes
}

pub(super) fn after_frameset(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Blank => tree.open.insert_text(),
        Token::Start(HTML, _) => return in_body(tree, token),
        Token::End(HTML) => tree.mode = Mode::AfterAfterFrameset,
        Token::Start(NOFRAMES, _) => return in_head(tree, token),
        _ => {}
    }
    Done::Yes
}

pub(super) fn after_after_frameset(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Blank | Token::Start(HTML, _) => in_body(tree, token),
        Token::Start(NOFRAMES, _) => in_head(tree, token),
        _ => Done::Yes,
    }
}

/// Returns true if a document type selects quirks mode.
pub(super) fn is_quirky(doctype: &[u8]) -> bool {
    let text = String::from_utf8_lossy(doctype).to_ascii_lowercase();
    let rest = text.get("<!doctype".len()..).unwrap_or_default().trim_end_matches('>').trim_start();
    let mut words = rest.splitn(2, |each: char| each.is_ascii_whitespace());
    if words.next() != Some("html") {
        return true;
    }
    let rest = words.next().unwrap_or_default().trim_start();
    if rest.is_empty() || rest.starts_with("system") {
        return rest.contains("ibmxhtml1-transitional.dtd");
    }
    let Some(rest) = rest.strip_prefix("public") else { return true };
    let mut ids = rest.split(['"', '\'']);
    let public = ids.nth(1).unwrap_or_default();
    let system = ids.nth(1).is_some();
    let old = [
        "+//silmaril//",
        "-//as//",
        "-//advasoft ltd//",
        "-//ietf//",
        "-//metrius//",
        "-//microsoft//",
        "-//netscape comm. corp.//",
        "-//o'reilly and associates//",
        "-//softquad",
        "-//spyglass//",
        "-//sq//",
        "-//sun microsystems",
        "-//w3c//dtd html 3",
        "-//w3c//dtd html 4.0 frameset//",
        "-//w3c//dtd html 4.0 transitional//",
        "-//w3c//dtd html experimental",
        "-//w3c//dtd w3 html",
        "-//w3o//",
        "-//webtechs//",
    ];
    let without_system = ["-//w3c//dtd html 4.01 frameset//", "-//w3c//dtd html 4.01 transitional//"];
    old.iter().any(|start| public.starts_with(start))
        || matches!(public, "html" | "-/w3c/dtd html 4.0 transitional/en")
        || !system && without_system.iter().any(|start| public.starts_with(start))
}
