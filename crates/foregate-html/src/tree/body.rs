//! The insertion mode "in body" (HTML, section 13.2.6.4.7).

use super::kinds::*;
use super::modes::{end_template, in_head};
use super::stack::Scope;
use super::{Content, Done, Facts, Mode, Origin, Space, Token, Tree};
use crate::scan::names::Name;

pub(super) fn in_body(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Null | Token::Doctype(_) | Token::Comment => {}
        Token::Blank => {
            tree.reconstruct();
            tree.open.insert_text();
        }
        Token::Text => {
            tree.reconstruct();
            tree.open.insert_text();
            tree.frameset_ok = false;
        }
        Token::Start(name, facts) => return start_in_body(tree, token, name, facts),
        Token::End(name) => return end_in_body(tree, token, name),
    }
    Done::Yes
}

fn start_in_body(tree: &mut Tree, token: Token, name: Name, facts: Facts) -> Done {
    match name {
        BASE | BASEFONT | BGSOUND | LINK | META | NOFRAMES | SCRIPT | STYLE | TEMPLATE | TITLE => {
            return in_head(tree, token);
        }
        HTML | CAPTION | COL | COLGROUP | FRAME | HEAD | TBODY | TD | TFOOT | TH | THEAD | TR => {}
        BODY => {
            if tree.open.nodes.get(1).is_some_and(|node| node.is(BODY)) && !tree.open.is_open(TEMPLATE) {
                tree.frameset_ok = false;
            }
        }
        FRAMESET => {
            if tree.frameset_ok && tree.open.nodes.get(1).is_some_and(|node| node.is(BODY)) {
                tree.open.pop_to(1);
                tree.open.insert(FRAMESET, Origin::Tag);
                tree.mode = Mode::InFrameset;
            }
        }
        P => start_block(tree, name),
        PRE | LISTING => {
            start_block(tree, name);
            tree.frameset_ok = false;
        }
        _ if closes_p(name) => start_block(tree, name),
        _ if is_heading(name) => {
            tree.open.close_p_in_button_scope();
            if tree.open.current_is(is_heading) {
                tree.open.pop();
            }
            tree.open.insert(name, Origin::Tag);
        }
        FORM => start_form(tree),
        LI | DD | DT => start_item(tree, name),
        PLAINTEXT => {
            tree.open.close_p_in_button_scope();
            tree.open.insert(name, Origin::Tag);
            tree.content = Content::Plain;
        }
        BUTTON => {
            if tree.open.has(BUTTON) {
                tree.open.imply_ends(0);
                tree.open.pop_until(|name| name == BUTTON);
            }
            tree.reconstruct();
            tree.open.insert(name, Origin::Tag);
            tree.frameset_ok = false;
        }
        _ => start_phrase(tree, name, facts),
    }
    Done::Yes
}

fn start_block(tree: &mut Tree, name: Name) {
    tree.open.close_p_in_button_scope();
    tree.open.insert(name, Origin::Tag);
}

fn start_form(tree: &mut Tree) {
    let in_template = tree.open.is_open(TEMPLATE);
    if tree.form.is_some() && !in_template {
        return;
    }
    tree.open.close_p_in_button_scope();
    let form = tree.open.insert(FORM, Origin::Tag);
    if !in_template {
        tree.form = Some(form.id);
    }
}

fn start_item(tree: &mut Tree, name: Name) {
    tree.frameset_ok = false;
    let ends = |other: Name| match name {
        LI => other == LI,
        _ => matches!(other, DD | DT),
    };
    for at in (0..tree.open.nodes.len()).rev() {
        let Some(node) = tree.open.nodes.get(at).copied() else { break };
        if node.space == Space::Html && ends(node.name) {
            tree.open.imply_ends(node.name);
            tree.open.pop_until(|other| other == node.name);
            break;
        }
        let special = match node.space {
            Space::Html => is_special(node.name) && !matches!(node.name, ADDRESS | DIV | P),
            Space::Svg => bounds_scope_in_svg(node.name),
            Space::Math => bounds_scope_in_math(node.name),
        };
        if special {
            break;
        }
    }
    start_block(tree, name);
}

/// Handles start tags of elements that are not blocks.
fn start_phrase(tree: &mut Tree, name: Name, facts: Facts) {
    match name {
        A => {
            if let Some((_, node)) = tree.formatting.last(A) {
                tree.adopt(A);
                tree.formatting.forget(node.id);
                if let Some(at) = tree.open.position(node.id) {
                    tree.open.remove(at);
                }
            }
            start_formatting(tree, name, facts);
        }
        NOBR => {
            tree.reconstruct();
            if tree.open.has(NOBR) {
                tree.adopt(NOBR);
                tree.reconstruct();
            }
            let node = tree.open.insert(name, Origin::Tag);
            tree.formatting.push(node, facts.attributes);
        }
        _ if is_formatting(name) => start_formatting(tree, name, facts),
        APPLET | MARQUEE | OBJECT => {
            tree.reconstruct();
            tree.open.insert(name, Origin::Tag);
            tree.formatting.push_marker();
            tree.frameset_ok = false;
        }
        TABLE => {
            if !tree.quirks {
                tree.open.close_p_in_button_scope();
            }
            tree.open.insert(name, Origin::Tag);
            tree.frameset_ok = false;
            tree.mode = Mode::InTable;
        }
        AREA | BR | EMBED | IMG | IMAGE | KEYGEN | WBR => {
            tree.reconstruct();
            tree.open.insert_void(if name == IMAGE { IMG } else { name });
            tree.frameset_ok = false;
        }
        INPUT => {
            if tree.open.has(SELECT) {
                tree.open.pop_until(|name| name == SELECT);
            }
            tree.reconstruct();
            tree.open.insert_void(name);
            tree.frameset_ok &= facts.hidden;
        }
        PARAM | SOURCE | TRACK => tree.open.insert_void(name),
        HR => {
            tree.open.close_p_in_button_scope();
            if tree.open.has(SELECT) {
                tree.open.imply_ends(0);
            }
            tree.open.insert_void(name);
            tree.frameset_ok = false;
        }
        TEXTAREA => {
            tree.insert_text_element(name, Content::Text);
            tree.frameset_ok = false;
        }
        XMP => {
            tree.open.close_p_in_button_scope();
            tree.reconstruct();
            tree.frameset_ok = false;
            tree.insert_text_element(name, Content::Text);
        }
        IFRAME => {
            tree.frameset_ok = false;
            tree.insert_text_element(name, Content::Text);
        }
        NOEMBED | NOSCRIPT => tree.insert_text_element(name, Content::Text),
        _ => start_other(tree, name, facts),
    }
}

fn start_formatting(tree: &mut Tree, name: Name, facts: Facts) {
    tree.reconstruct();
    let node = tree.open.insert(name, Origin::Tag);
    tree.formatting.push(node, facts.attributes);
}

fn start_other(tree: &mut Tree, name: Name, facts: Facts) {
    match name {
        SELECT => {
            if is_select_in_scope(tree) {
                tree.open.pop_until(|name| name == SELECT);
                return;
            }
            tree.reconstruct();
            tree.open.insert(name, Origin::Tag);
            tree.frameset_ok = false;
        }
        OPTION => {
            if is_select_in_scope(tree) {
                tree.open.imply_ends(OPTGROUP);
            } else if tree.open.current_is(|name| name == OPTION) {
                tree.open.pop();
            }
            tree.reconstruct();
            tree.open.insert(name, Origin::Tag);
        }
        OPTGROUP => {
            if is_select_in_scope(tree) {
                tree.open.imply_ends(0);
            } else if tree.open.current_is(|name| name == OPTION) {
                tree.open.pop();
            }
            tree.reconstruct();
            tree.open.insert(name, Origin::Tag);
        }
        RB | RTC => {
            if tree.open.has(RUBY) {
                tree.open.imply_ends(0);
            }
            tree.open.insert(name, Origin::Tag);
        }
        RP | RT => {
            if tree.open.has(RUBY) {
                tree.open.imply_ends(RTC);
            }
            tree.open.insert(name, Origin::Tag);
        }
        MATH | SVG => {
            tree.reconstruct();
            tree.open.insert_foreign(if name == SVG { Space::Svg } else { Space::Math }, name, facts);
        }
        _ => {
            tree.reconstruct();
            tree.open.insert(name, Origin::Tag);
        }
    }
}

fn is_select_in_scope(tree: &Tree) -> bool {
    tree.open.has(SELECT)
}

fn end_in_body(tree: &mut Tree, token: Token, name: Name) -> Done {
    match name {
        TEMPLATE => end_template(tree),
        BODY | HTML => {
            if tree.open.has(BODY) {
                tree.mode = Mode::AfterBody;
                if name == HTML {
                    return Done::Again;
                }
            }
        }
        FORM => end_form(tree),
        P => {
            if !tree.open.has_in(Scope::Button, |name| name == P) {
                tree.open.insert(P, Origin::Implied);
            }
            tree.open.close_p();
        }
        LI => {
            if tree.open.has_in(Scope::Item, |name| name == LI) {
                end_implied(tree, name);
            }
        }
        DD | DT => {
            if tree.open.has(name) {
                end_implied(tree, name);
            }
        }
        _ if is_heading(name) => {
            if tree.open.has_in(Scope::Default, is_heading) {
                tree.open.imply_ends(0);
                tree.open.pop_until(is_heading);
            }
        }
        BUTTON | LISTING | PRE | SELECT => end_block(tree, name),
        _ if closes_p(name) => end_block(tree, name),
        A | NOBR => return end_formatting(tree, name),
        _ if is_formatting(name) => return end_formatting(tree, name),
        APPLET | MARQUEE | OBJECT => {
            if tree.open.has(name) {
                tree.open.imply_ends(0);
                tree.open.pop_until(|other| other == name);
                tree.formatting.clear_to_marker();
            }
        }
        BR => {
            tree.reconstruct();
            tree.open.insert(BR, Origin::Implied);
            tree.open.pop();
            tree.frameset_ok = false;
        }
        _ => end_other(tree, name),
    }
    let _ = token;
    Done::Yes
}

fn end_formatting(tree: &mut Tree, name: Name) -> Done {
    if tree.adopt(name) {
        end_other(tree, name);
    }
    Done::Yes
}

fn end_implied(tree: &mut Tree, name: Name) {
    tree.open.imply_ends(name);
    tree.open.pop_until(|other| other == name);
}

fn end_block(tree: &mut Tree, name: Name) {
    if tree.open.has(name) {
        tree.open.imply_ends(0);
        tree.open.pop_until(|other| other == name);
    }
}

fn end_form(tree: &mut Tree) {
    if tree.open.is_open(TEMPLATE) {
        return end_block(tree, FORM);
    }
    let Some(form) = tree.form.take() else { return };
    if !tree.open.has_element(form) {
        return;
    }
    tree.open.imply_ends(0);
    if let Some(at) = tree.open.position(form) {
        tree.open.remove(at);
    }
}

fn end_other(tree: &mut Tree, name: Name) {
    for at in (0..tree.open.nodes.len()).rev() {
        let Some(node) = tree.open.nodes.get(at).copied() else { break };
        if node.is(name) {
            tree.open.imply_ends(name);
            tree.open.pop_to(at);
            break;
        }
        let special = match node.space {
            Space::Html => is_special(node.name),
            Space::Svg => bounds_scope_in_svg(node.name),
            Space::Math => bounds_scope_in_math(node.name),
        };
        if special {
            break;
        }
    }
}
