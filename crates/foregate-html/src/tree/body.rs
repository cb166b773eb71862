//! The insertion mode "in body" (HTML, section 13.2.6.4.7).

use super::kinds::*;
use super::stack::Scope;
use super::{Content, Done, Facts, Mode, Origin, Space, Token, Tree};
use crate::scan::names::Name;

impl Tree {
    pub(super) fn in_body(&mut self, token: Token) -> Done {
        match token {
            Token::Null | Token::Doctype(_) | Token::Comment => {}
            Token::Blank => {
                self.reconstruct();
                self.insert_text();
            }
            Token::Text => {
                self.reconstruct();
                self.insert_text();
                self.frameset_ok = false;
            }
            Token::Start(name, facts) => return self.start_in_body(token, name, facts),
            Token::End(name) => return self.end_in_body(token, name),
        }
        Done::Yes
    }

    fn start_in_body(&mut self, token: Token, name: Name, facts: Facts) -> Done {
        match name {
            BASE | BASEFONT | BGSOUND | LINK | META | NOFRAMES | SCRIPT | STYLE | TEMPLATE | TITLE => {
                return self.in_head(token);
            }
            HTML | CAPTION | COL | COLGROUP | FRAME | HEAD | TBODY | TD | TFOOT | TH | THEAD | TR => {}
            BODY => {
                if self.stack.get(1).is_some_and(|node| node.is(BODY)) && !self.is_open(TEMPLATE) {
                    self.frameset_ok = false;
                }
            }
            FRAMESET => {
                if self.frameset_ok && self.stack.get(1).is_some_and(|node| node.is(BODY)) {
                    self.pop_to(1);
                    self.insert(FRAMESET, Origin::Tag);
                    self.mode = Mode::InFrameset;
                }
            }
            P => self.start_block(name),
            PRE | LISTING => {
                self.start_block(name);
                self.frameset_ok = false;
            }
            _ if closes_p(name) => self.start_block(name),
            _ if is_heading(name) => {
                self.close_p_in_button_scope();
                if self.current_is(is_heading) {
                    self.pop();
                }
                self.insert(name, Origin::Tag);
            }
            FORM => self.start_form(),
            LI | DD | DT => self.start_item(name),
            PLAINTEXT => {
                self.close_p_in_button_scope();
                self.insert(name, Origin::Tag);
                self.content = Content::Plain;
            }
            BUTTON => {
                if self.has(BUTTON) {
                    self.imply_ends(0);
                    self.pop_until(|name| name == BUTTON);
                }
                self.reconstruct();
                self.insert(name, Origin::Tag);
                self.frameset_ok = false;
            }
            _ => self.start_phrase(name, facts),
        }
        Done::Yes
    }

    fn start_block(&mut self, name: Name) {
        self.close_p_in_button_scope();
        self.insert(name, Origin::Tag);
    }

    fn start_form(&mut self) {
        let in_template = self.is_open(TEMPLATE);
        if self.form.is_some() && !in_template {
            return;
        }
        self.close_p_in_button_scope();
        let form = self.insert(FORM, Origin::Tag);
        if !in_template {
            self.form = Some(form.id);
        }
    }

    fn start_item(&mut self, name: Name) {
        self.frameset_ok = false;
        let ends = |other: Name| match name {
            LI => other == LI,
            _ => matches!(other, DD | DT),
        };
        for at in (0..self.stack.len()).rev() {
            let Some(node) = self.stack.get(at).copied() else { break };
            if node.space == Space::Html && ends(node.name) {
                self.imply_ends(node.name);
                self.pop_until(|other| other == node.name);
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
        self.start_block(name);
    }

    /// Handles start tags of elements that are no blocks.
    fn start_phrase(&mut self, name: Name, facts: Facts) {
        match name {
            A => {
                if let Some((_, node)) = self.last_formatting(A) {
                    self.adopt(A);
                    self.forget_formatting(node.id);
                    if let Some(at) = self.position(node.id) {
                        self.remove(at);
                    }
                }
                self.start_formatting(name, facts);
            }
            NOBR => {
                self.reconstruct();
                if self.has(NOBR) {
                    self.adopt(NOBR);
                    self.reconstruct();
                }
                let node = self.insert(name, Origin::Tag);
                self.push_formatting(node, facts.attributes);
            }
            _ if is_formatting(name) => self.start_formatting(name, facts),
            APPLET | MARQUEE | OBJECT => {
                self.reconstruct();
                self.insert(name, Origin::Tag);
                self.push_marker();
                self.frameset_ok = false;
            }
            TABLE => {
                if !self.quirks {
                    self.close_p_in_button_scope();
                }
                self.insert(name, Origin::Tag);
                self.frameset_ok = false;
                self.mode = Mode::InTable;
            }
            AREA | BR | EMBED | IMG | IMAGE | KEYGEN | WBR => {
                self.reconstruct();
                self.insert_void(if name == IMAGE { IMG } else { name });
                self.frameset_ok = false;
            }
            INPUT => {
                if self.has(SELECT) {
                    self.pop_until(|name| name == SELECT);
                }
                self.reconstruct();
                self.insert_void(name);
                self.frameset_ok &= facts.hidden;
            }
            PARAM | SOURCE | TRACK => self.insert_void(name),
            HR => {
                self.close_p_in_button_scope();
                if self.has(SELECT) {
                    self.imply_ends(0);
                }
                self.insert_void(name);
                self.frameset_ok = false;
            }
            TEXTAREA => {
                self.insert_text_element(name, Content::Text);
                self.frameset_ok = false;
            }
            XMP => {
                self.close_p_in_button_scope();
                self.reconstruct();
                self.frameset_ok = false;
                self.insert_text_element(name, Content::Text);
            }
            IFRAME => {
                self.frameset_ok = false;
                self.insert_text_element(name, Content::Text);
            }
            NOEMBED | NOSCRIPT => self.insert_text_element(name, Content::Text),
            _ => self.start_other(name, facts),
        }
    }

    fn start_formatting(&mut self, name: Name, facts: Facts) {
        self.reconstruct();
        let node = self.insert(name, Origin::Tag);
        self.push_formatting(node, facts.attributes);
    }

    fn start_other(&mut self, name: Name, facts: Facts) {
        match name {
            SELECT => {
                if self.is_select_in_scope() {
                    self.pop_until(|name| name == SELECT);
                    return;
                }
                self.reconstruct();
                self.insert(name, Origin::Tag);
                self.frameset_ok = false;
            }
            OPTION => {
                if self.is_select_in_scope() {
                    self.imply_ends(OPTGROUP);
                } else if self.current_is(|name| name == OPTION) {
                    self.pop();
                }
                self.reconstruct();
                self.insert(name, Origin::Tag);
            }
            OPTGROUP => {
                if self.is_select_in_scope() {
                    self.imply_ends(0);
                } else if self.current_is(|name| name == OPTION) {
                    self.pop();
                }
                self.reconstruct();
                self.insert(name, Origin::Tag);
            }
            RB | RTC => {
                if self.has(RUBY) {
                    self.imply_ends(0);
                }
                self.insert(name, Origin::Tag);
            }
            RP | RT => {
                if self.has(RUBY) {
                    self.imply_ends(RTC);
                }
                self.insert(name, Origin::Tag);
            }
            MATH | SVG => {
                self.reconstruct();
                self.insert_foreign(if name == SVG { Space::Svg } else { Space::Math }, name, facts);
            }
            _ => {
                self.reconstruct();
                self.insert(name, Origin::Tag);
            }
        }
    }

    fn is_select_in_scope(&self) -> bool {
        self.has(SELECT)
    }

    fn end_in_body(&mut self, token: Token, name: Name) -> Done {
        match name {
            TEMPLATE => self.end_template(),
            BODY | HTML => {
                if self.has(BODY) {
                    self.mode = Mode::AfterBody;
                    if name == HTML {
                        return Done::Again;
                    }
                }
            }
            FORM => self.end_form(),
            P => {
                if !self.has_in(Scope::Button, |name| name == P) {
                    self.insert(P, Origin::Implied);
                }
                self.close_p();
            }
            LI => {
                if self.has_in(Scope::Item, |name| name == LI) {
                    self.end_implied(name);
                }
            }
            DD | DT => {
                if self.has(name) {
                    self.end_implied(name);
                }
            }
            _ if is_heading(name) => {
                if self.has_in(Scope::Default, is_heading) {
                    self.imply_ends(0);
                    self.pop_until(is_heading);
                }
            }
            BUTTON | LISTING | PRE | SELECT => self.end_block(name),
            _ if closes_p(name) => self.end_block(name),
            A | NOBR => return self.end_formatting(name),
            _ if is_formatting(name) => return self.end_formatting(name),
            APPLET | MARQUEE | OBJECT => {
                if self.has(name) {
                    self.imply_ends(0);
                    self.pop_until(|other| other == name);
                    self.clear_to_marker();
                }
            }
            BR => {
                self.reconstruct();
                self.insert(BR, Origin::Implied);
                self.pop();
                self.frameset_ok = false;
            }
            _ => self.end_other(name),
        }
        let _ = token;
        Done::Yes
    }

    fn end_formatting(&mut self, name: Name) -> Done {
        if self.adopt(name) {
            self.end_other(name);
        }
        Done::Yes
    }

    fn end_implied(&mut self, name: Name) {
        self.imply_ends(name);
        self.pop_until(|other| other == name);
    }

    fn end_block(&mut self, name: Name) {
        if self.has(name) {
            self.imply_ends(0);
            self.pop_until(|other| other == name);
        }
    }

    fn end_form(&mut self) {
        if self.is_open(TEMPLATE) {
            return self.end_block(FORM);
        }
        let Some(form) = self.form.take() else { return };
        if !self.has_element(form) {
            return;
        }
        self.imply_ends(0);
        if let Some(at) = self.position(form) {
            self.remove(at);
        }
    }

    fn end_other(&mut self, name: Name) {
        for at in (0..self.stack.len()).rev() {
            let Some(node) = self.stack.get(at).copied() else { break };
            if node.is(name) {
                self.imply_ends(name);
                self.pop_to(at);
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
}
