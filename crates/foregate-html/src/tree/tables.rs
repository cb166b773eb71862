//! The insertion modes in tables (HTML, sections 13.2.6.4.9 to 13.2.6.4.15).

use super::kinds::*;
use super::stack::Scope;
use super::{Done, Mode, Origin, Token, Tree};

impl Tree {
    /// Moves content that cannot be in a table before it.
    fn foster(&mut self, token: Token) -> Done {
        self.fosters = true;
        let done = self.in_body(token);
        self.fosters = false;
        done
    }

    pub(super) fn in_table(&mut self, token: Token) -> Done {
        let is_table = self.current_is(|name| matches!(name, TABLE | TEMPLATE | TR) || is_row_group(name));
        match token {
            Token::Blank | Token::Null if is_table => {
                if token == Token::Blank {
                    self.insert_text();
                }
            }
            Token::Doctype(_) | Token::Comment => {}
            Token::Start(CAPTION, _) => {
                self.clear_to_table();
                self.push_marker();
                self.insert(CAPTION, Origin::Tag);
                self.mode = Mode::InCaption;
            }
            Token::Start(COLGROUP, _) => {
                self.clear_to_table();
                self.insert(COLGROUP, Origin::Tag);
                self.mode = Mode::InColumns;
            }
            Token::Start(COL, _) => {
                self.clear_to_table();
                self.insert(COLGROUP, Origin::Implied);
                self.mode = Mode::InColumns;
                return Done::Again;
            }
            Token::Start(name @ (TBODY | TFOOT | THEAD), _) => {
                self.clear_to_table();
                self.insert(name, Origin::Tag);
                self.mode = Mode::InRows;
            }
            Token::Start(TD | TH | TR, _) => {
                self.clear_to_table();
                self.insert(TBODY, Origin::Implied);
                self.mode = Mode::InRows;
                return Done::Again;
            }
            Token::Start(TABLE, _) => {
                if self.end_table() {
                    return Done::Again;
                }
            }
            Token::End(TABLE) => drop(self.end_table()),
            Token::End(BODY | HTML) => {}
            Token::End(name) if is_in_table(name) => {}
            Token::Start(STYLE | SCRIPT | TEMPLATE, _) | Token::End(TEMPLATE) => return self.in_head(token),
            Token::Start(INPUT, facts) if facts.hidden => self.insert_void(INPUT),
            Token::Start(FORM, _) => {
                if self.form.is_none() && !self.is_open(TEMPLATE) {
                    self.form = Some(self.insert(FORM, Origin::Tag).id);
                    self.pop();
                }
            }
            _ => return self.foster(token),
        }
        Done::Yes
    }

    fn clear_to_table(&mut self) {
        self.clear_to(|name| matches!(name, TABLE | TEMPLATE));
    }

    /// Ends the table; returns false if there was none.
    fn end_table(&mut self) -> bool {
        let ends = self.has_in_table(TABLE);
        if ends {
            self.pop_until(|name| name == TABLE);
            self.reset_mode();
        }
        ends
    }

    pub(super) fn in_caption(&mut self, token: Token) -> Done {
        match token {
            Token::End(CAPTION) => drop(self.end_caption()),
            Token::Start(name, _) if is_in_table(name) => {
                if self.end_caption() {
                    return Done::Again;
                }
            }
            Token::End(TABLE) => {
                if self.end_caption() {
                    return Done::Again;
                }
            }
            Token::End(BODY | HTML) => {}
            Token::End(name) if is_in_table(name) => {}
            _ => return self.in_body(token),
        }
        Done::Yes
    }

    fn end_caption(&mut self) -> bool {
        let ends = self.has_in_table(CAPTION);
        if ends {
            self.imply_ends(0);
            self.pop_until(|name| name == CAPTION);
            self.clear_to_marker();
            self.mode = Mode::InTable;
        }
        ends
    }

    pub(super) fn in_columns(&mut self, token: Token) -> Done {
        match token {
            Token::Blank => self.insert_text(),
            Token::Doctype(_) | Token::Comment | Token::End(COL) => {}
            Token::Start(HTML, _) => return self.in_body(token),
            Token::Start(COL, _) => self.insert_void(COL),
            Token::Start(TEMPLATE, _) | Token::End(TEMPLATE) => return self.in_head(token),
            _ => {
                if self.current_is(|name| name == COLGROUP) {
                    self.pop();
                    self.mode = Mode::InTable;
                    if token != Token::End(COLGROUP) {
                        return Done::Again;
                    }
                }
            }
        }
        Done::Yes
    }

    pub(super) fn in_rows(&mut self, token: Token) -> Done {
        let clear = |tree: &mut Self| tree.clear_to(|name| is_row_group(name) || name == TEMPLATE);
        match token {
            Token::Start(TR, _) => {
                clear(self);
                self.insert(TR, Origin::Tag);
                self.mode = Mode::InRow;
            }
            Token::Start(TH | TD, _) => {
                clear(self);
                self.insert(TR, Origin::Implied);
                self.mode = Mode::InRow;
                return Done::Again;
            }
            Token::End(name @ (TBODY | TFOOT | THEAD)) => {
                if self.has_in_table(name) {
                    clear(self);
                    self.pop();
                    self.mode = Mode::InTable;
                }
            }
            Token::Start(CAPTION | COL | COLGROUP | TBODY | TFOOT | THEAD, _) | Token::End(TABLE) => {
                if self.has_in(Scope::Table, is_row_group) {
                    clear(self);
                    self.pop();
                    self.mode = Mode::InTable;
                    return Done::Again;
                }
            }
            Token::End(BODY | CAPTION | COL | COLGROUP | HTML | TD | TH | TR) => {}
            _ => return self.in_table(token),
        }
        Done::Yes
    }

    fn end_row(&mut self) -> bool {
        let ends = self.has_in_table(TR);
        if ends {
            self.clear_to(|name| matches!(name, TR | TEMPLATE));
            self.pop();
            self.mode = Mode::InRows;
        }
        ends
    }

    pub(super) fn in_row(&mut self, token: Token) -> Done {
        match token {
            Token::Start(name @ (TH | TD), _) => {
                self.clear_to(|name| matches!(name, TR | TEMPLATE));
                self.insert(name, Origin::Tag);
                self.mode = Mode::InCell;
                self.push_marker();
            }
            Token::End(TR) => drop(self.end_row()),
            Token::Start(CAPTION | COL | COLGROUP | TBODY | TFOOT | THEAD | TR, _) | Token::End(TABLE) => {
                if self.end_row() {
                    return Done::Again;
                }
            }
            Token::End(name @ (TBODY | TFOOT | THEAD)) => {
                if self.has_in_table(name) && self.end_row() {
                    return Done::Again;
                }
            }
            Token::End(BODY | CAPTION | COL | COLGROUP | HTML | TD | TH) => {}
            _ => return self.in_table(token),
        }
        Done::Yes
    }

    fn end_cell(&mut self) {
        self.imply_ends(0);
        self.pop_until(|name| matches!(name, TD | TH));
        self.clear_to_marker();
        self.mode = Mode::InRow;
    }

    pub(super) fn in_cell(&mut self, token: Token) -> Done {
        match token {
            Token::End(name @ (TD | TH)) => {
                if self.has_in_table(name) {
                    self.imply_ends(0);
                    self.pop_until(|other| other == name);
                    self.clear_to_marker();
                    self.mode = Mode::InRow;
                }
            }
            Token::Start(name, _) if is_in_table(name) => {
                if self.has_in(Scope::Table, |name| matches!(name, TD | TH)) {
                    self.end_cell();
                    return Done::Again;
                }
            }
            Token::End(BODY | CAPTION | COL | COLGROUP | HTML) => {}
            Token::End(name @ (TABLE | TBODY | TFOOT | THEAD | TR)) => {
                if self.has_in_table(name) {
                    self.end_cell();
                    return Done::Again;
                }
            }
            _ => return self.in_body(token),
        }
        Done::Yes
    }
}
