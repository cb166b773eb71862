//! The insertion modes in tables (HTML, sections 13.2.6.4.9 to 13.2.6.4.15).

use super::body::in_body;
use super::kinds::*;
use super::modes::in_head;
use super::stack::Scope;
use super::{Done, Mode, Origin, Token, Tree};

/// Inserts content that is not allowed in a table before the table.
fn foster(tree: &mut Tree, token: Token) -> Done {
    tree.open.fosters = true;
    let done = in_body(tree, token);
    tree.open.fosters = false;
    done
}

pub(super) fn in_table(tree: &mut Tree, token: Token) -> Done {
    let is_table = tree.open.current_is(|name| matches!(name, TABLE | TEMPLATE | TR) || is_row_group(name));
    match token {
        Token::Blank | Token::Null if is_table => {
            if token == Token::Blank {
                tree.open.insert_text();
            }
        }
        Token::Doctype(_) | Token::Comment => {}
        Token::Start(CAPTION, _) => {
            clear_to_table(tree);
            tree.formatting.push_marker();
            tree.open.insert(CAPTION, Origin::Tag);
            tree.mode = Mode::InCaption;
        }
        Token::Start(COLGROUP, _) => {
            clear_to_table(tree);
            tree.open.insert(COLGROUP, Origin::Tag);
            tree.mode = Mode::InColumns;
        }
        Token::Start(COL, _) => {
            clear_to_table(tree);
            tree.open.insert(COLGROUP, Origin::Implied);
            tree.mode = Mode::InColumns;
            return Done::Again;
        }
        Token::Start(name @ (TBODY | TFOOT | THEAD), _) => {
            clear_to_table(tree);
            tree.open.insert(name, Origin::Tag);
            tree.mode = Mode::InRows;
        }
        Token::Start(TD | TH | TR, _) => {
            clear_to_table(tree);
            tree.open.insert(TBODY, Origin::Implied);
            tree.mode = Mode::InRows;
            return Done::Again;
        }
        Token::Start(TABLE, _) => {
            if end_table(tree) {
                return Done::Again;
            }
        }
        Token::End(TABLE) => drop(end_table(tree)),
        Token::End(BODY | HTML) => {}
        Token::End(name) if is_in_table(name) => {}
        Token::Start(STYLE | SCRIPT | TEMPLATE, _) | Token::End(TEMPLATE) => return in_head(tree, token),
        Token::Start(INPUT, facts) if facts.hidden => tree.open.insert_void(INPUT),
        Token::Start(FORM, _) => {
            if tree.form.is_none() && !tree.open.is_open(TEMPLATE) {
                tree.form = Some(tree.open.insert(FORM, Origin::Tag).id);
                tree.open.pop();
            }
        }
        _ => return foster(tree, token),
    }
    Done::Yes
}

fn clear_to_table(tree: &mut Tree) {
    tree.open.clear_to(|name| matches!(name, TABLE | TEMPLATE));
}

/// Ends the table; returns false if no table is open.
fn end_table(tree: &mut Tree) -> bool {
    let ends = tree.open.has_in_table(TABLE);
    if ends {
        tree.open.pop_until(|name| name == TABLE);
        tree.reset_mode();
    }
    ends
}

pub(super) fn in_caption(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::End(CAPTION) => drop(end_caption(tree)),
        Token::Start(name, _) if is_in_table(name) => {
            if end_caption(tree) {
                return Done::Again;
            }
        }
        Token::End(TABLE) => {
            if end_caption(tree) {
                return Done::Again;
            }
        }
        Token::End(BODY | HTML) => {}
        Token::End(name) if is_in_table(name) => {}
        _ => return in_body(tree, token),
    }
    Done::Yes
}

fn end_caption(tree: &mut Tree) -> bool {
    let ends = tree.open.has_in_table(CAPTION);
    if ends {
        tree.open.imply_ends(0);
        tree.open.pop_until(|name| name == CAPTION);
        tree.formatting.clear_to_marker();
        tree.mode = Mode::InTable;
    }
    ends
}

pub(super) fn in_columns(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Blank => tree.open.insert_text(),
        Token::Doctype(_) | Token::Comment | Token::End(COL) => {}
        Token::Start(HTML, _) => return in_body(tree, token),
        Token::Start(COL, _) => tree.open.insert_void(COL),
        Token::Start(TEMPLATE, _) | Token::End(TEMPLATE) => return in_head(tree, token),
        _ => {
            if tree.open.current_is(|name| name == COLGROUP) {
                tree.open.pop();
                tree.mode = Mode::InTable;
                if token != Token::End(COLGROUP) {
                    return Done::Again;
                }
            }
        }
    }
    Done::Yes
}

pub(super) fn in_rows(tree: &mut Tree, token: Token) -> Done {
    let clear = |tree: &mut Tree| tree.open.clear_to(|name| is_row_group(name) || name == TEMPLATE);
    match token {
        Token::Start(TR, _) => {
            clear(tree);
            tree.open.insert(TR, Origin::Tag);
            tree.mode = Mode::InRow;
        }
        Token::Start(TH | TD, _) => {
            clear(tree);
            tree.open.insert(TR, Origin::Implied);
            tree.mode = Mode::InRow;
            return Done::Again;
        }
        Token::End(name @ (TBODY | TFOOT | THEAD)) => {
            if tree.open.has_in_table(name) {
                clear(tree);
                tree.open.pop();
                tree.mode = Mode::InTable;
            }
        }
        Token::Start(CAPTION | COL | COLGROUP | TBODY | TFOOT | THEAD, _) | Token::End(TABLE) => {
            if tree.open.has_in(Scope::Table, is_row_group) {
                clear(tree);
                tree.open.pop();
                tree.mode = Mode::InTable;
                return Done::Again;
            }
        }
        Token::End(BODY | CAPTION | COL | COLGROUP | HTML | TD | TH | TR) => {}
        _ => return in_table(tree, token),
    }
    Done::Yes
}

fn end_row(tree: &mut Tree) -> bool {
    let ends = tree.open.has_in_table(TR);
    if ends {
        tree.open.clear_to(|name| matches!(name, TR | TEMPLATE));
        tree.open.pop();
        tree.mode = Mode::InRows;
    }
    ends
}

pub(super) fn in_row(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Start(name @ (TH | TD), _) => {
            tree.open.clear_to(|name| matches!(name, TR | TEMPLATE));
            tree.open.insert(name, Origin::Tag);
            tree.mode = Mode::InCell;
            tree.formatting.push_marker();
        }
        Token::End(TR) => drop(end_row(tree)),
        Token::Start(CAPTION | COL | COLGROUP | TBODY | TFOOT | THEAD | TR, _) | Token::End(TABLE) => {
            if end_row(tree) {
                return Done::Again;
            }
        }
        Token::End(name @ (TBODY | TFOOT | THEAD)) => {
            if tree.open.has_in_table(name) && end_row(tree) {
                return Done::Again;
            }
        }
        Token::End(BODY | CAPTION | COL | COLGROUP | HTML | TD | TH) => {}
        _ => return in_table(tree, token),
    }
    Done::Yes
}

fn end_cell(tree: &mut Tree) {
    tree.open.imply_ends(0);
    tree.open.pop_until(|name| matches!(name, TD | TH));
    tree.formatting.clear_to_marker();
    tree.mode = Mode::InRow;
}

pub(super) fn in_cell(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::End(name @ (TD | TH)) => {
            if tree.open.has_in_table(name) {
                tree.open.imply_ends(0);
                tree.open.pop_until(|other| other == name);
                tree.formatting.clear_to_marker();
                tree.mode = Mode::InRow;
            }
        }
        Token::Start(name, _) if is_in_table(name) => {
            if tree.open.has_in(Scope::Table, |name| matches!(name, TD | TH)) {
                end_cell(tree);
                return Done::Again;
            }
        }
        Token::End(BODY | CAPTION | COL | COLGROUP | HTML) => {}
        Token::End(name @ (TABLE | TBODY | TFOOT | THEAD | TR)) => {
            if tree.open.has_in_table(name) {
                end_cell(tree);
                return Done::Again;
            }
        }
        _ => return in_body(tree, token),
    }
    Done::Yes
}
