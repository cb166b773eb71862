//! SVG and MathML (HTML, section 13.2.6.5).

use super::kinds::*;
use super::{Done, Space, Token, Tree};

impl Tree {
    /// Returns true if the rules of SVG and MathML apply to a token.
    pub(super) fn is_foreign(&self, token: Token) -> bool {
        let Some(node) = self.stack.last().filter(|node| node.space != Space::Html) else { return false };
        let is_text = matches!(token, Token::Blank | Token::Null | Token::Text);
        let may_be_html = match node.space {
            Space::Math if node.name != ANNOTATION_XML => match token {
                Token::Start(name, _) => node.point && !matches!(name, MGLYPH | MALIGNMARK),
                _ => node.point && is_text,
            },
            Space::Math if matches!(token, Token::Start(SVG, _)) => true,
            _ => node.point && (is_text || matches!(token, Token::Start(..))),
        };
        !may_be_html
    }

    pub(super) fn foreign(&mut self, token: Token) -> Done {
        match token {
            Token::Start(name, facts) => {
                if ends_foreign(name) || name == FONT && facts.font {
                    return self.leave_foreign(token);
                }
                let space = self.stack.last().map_or(Space::Html, |node| node.space);
                self.insert_foreign(space, name, facts);
            }
            Token::End(P | BR) => return self.leave_foreign(token),
            Token::End(name) => return self.end_foreign(token, name),
            Token::Text => {
                self.frameset_ok = false;
                self.insert_text();
            }
            Token::Blank | Token::Null => self.insert_text(),
            Token::Comment | Token::Doctype(_) => {}
        }
        Done::Yes
    }

    fn leave_foreign(&mut self, token: Token) -> Done {
        while self.stack.last().is_some_and(|node| node.space != Space::Html && !node.point) {
            self.pop();
        }
        self.by_mode(token)
    }

    fn end_foreign(&mut self, token: Token, name: crate::scan::names::Name) -> Done {
        for at in (1..self.stack.len()).rev() {
            let Some(node) = self.stack.get(at) else { break };
            if node.space == Space::Html {
                return self.by_mode(token);
            }
            if node.name == name {
                self.pop_to(at);
                return Done::Yes;
            }
        }
        Done::Yes
    }
}
