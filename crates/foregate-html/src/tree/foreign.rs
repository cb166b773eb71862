//! SVG and MathML (HTML, section 13.2.6.5).

use super::kinds::*;
use super::{Done, Space, Token, Tree};

/// Returns true if the rules of SVG and MathML apply to a token.
pub(super) fn applies(tree: &Tree, token: Token) -> bool {
    let Some(node) = tree.open.nodes.last().filter(|node| node.space != Space::Html) else { return false };
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

pub(super) fn foreign(tree: &mut Tree, token: Token) -> Done {
    match token {
        Token::Start(name, facts) => {
            if ends_foreign(name) || name == FONT && facts.font {
                return leave_foreign(tree, token);
            }
            let space = tree.open.nodes.last().map_or(Space::Html, |node| node.space);
            tree.open.insert_foreign(space, name, facts);
        }
        Token::End(P | BR) => return leave_foreign(tree, token),
        Token::End(name) => return end_foreign(tree, token, name),
        Token::Text => {
            tree.frameset_ok = false;
            tree.open.insert_text();
        }
        Token::Blank | Token::Null => tree.open.insert_text(),
        Token::Comment | Token::Doctype(_) => {}
    }
    Done::Yes
}

fn leave_foreign(tree: &mut Tree, token: Token) -> Done {
    while tree.open.nodes.last().is_some_and(|node| node.space != Space::Html && !node.point) {
        tree.open.pop();
    }
    tree.by_mode(token)
}

fn end_foreign(tree: &mut Tree, token: Token, name: crate::scan::names::Name) -> Done {
    for at in (1..tree.open.nodes.len()).rev() {
        let Some(node) = tree.open.nodes.get(at) else { break };
        if node.space == Space::Html {
            return tree.by_mode(token);
        }
        if node.name == name {
            tree.open.pop_to(at);
            return Done::Yes;
        }
    }
    Done::Yes
}
