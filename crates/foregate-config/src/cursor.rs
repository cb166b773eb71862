//! Finds the place of a cursor in a file that is being edited: the blocks around it, and the part of a node at
//! it.
//!
//! The reader of KDL needs a complete file. This module only goes through the tokens, and skips incomplete
//! ones.

use super::document::Span;
use super::scan::{Scanner, Token};
use super::string;

/// The place of a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The names of the nodes around, the outermost first.
    pub path: Vec<String>,
    /// The names of the nodes before the cursor in its block.
    pub before: Vec<String>,
    /// The part of a node at the cursor.
    pub spot: CursorSpot,
    /// The text under the cursor; empty between words.
    pub span: Span,
}

/// A part of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CursorSpot {
    /// The name of a node, or a place for a name.
    Name,
    /// An argument, or a place for an argument or for the name of a property.
    Argument {
        /// The name of the node.
        node: String,
        /// The number of the argument, from 0.
        number: usize,
        /// The properties that the node has before the cursor.
        props: Vec<String>,
    },
    /// The name of a property.
    Property {
        /// The name of the node.
        node: String,
        /// The property.
        name: String,
    },
    /// The value of a property.
    Value {
        /// The name of the node.
        node: String,
        /// The property.
        name: String,
    },
    /// A comment.
    Comment,
}

/// A block that is open.
#[derive(Default)]
struct OpenBlock {
    name: String,
    /// The names of the nodes in the block so far.
    nodes: Vec<String>,
}

/// A node that has not ended.
struct OpenNode {
    name: String,
    arguments: usize,
    props: Vec<String>,
    /// The property whose value has not been read yet.
    pending: Option<String>,
}

/// Finds the place of byte `at` in a KDL file: the blocks around it, and the part of a node at it.
pub fn cursor(source: &str, at: usize) -> Cursor {
    let mut walk = Walk { blocks: vec![OpenBlock::default()], node: None };
    let mut position = 0;
    let mut continued = false;
    loop {
        let mut scanner = Scanner::from(source, position);
        let (token, span) = match scanner.next() {
            Ok(found) => found,
            // An unterminated text, or a word that is no value: it counts as a value that is still being written.
            Err(_) => (Token::Word, Span::new(position, end_of_wrong(source, position))),
        };
        let (start, end) = (span.start as usize, span.end());
        let is_text = token.is_value();
        let is_here = if is_text { start <= at && at <= end } else { start <= at && at < end };
        if matches!(token, Token::LineComment | Token::BlockComment) && start < at && at <= end {
            return walk.place(CursorSpot::Comment, span);
        }
        // If a `{` or `;` directly follows a name, a cursor directly before it still belongs to the name.
        if token == Token::End || start > at || is_here {
            let is_value = is_text && is_here;
            let span = if is_value { span } else { Span::new(at, at) };
            let is_prop = is_value && is_before_equals(source, end);
            let text = if is_prop { text(source, token, span) } else { String::new() };
            let spot = walk.spot(text);
            return walk.place(spot, span);
        }
        position = end;
        match token {
            Token::LineContinuation => continued = true,
            Token::Newline if continued => continued = false,
            Token::Newline | Token::Semicolon => walk.node = None,
            Token::Open => {
                let name = walk.node.take().map_or(String::new(), |node| node.name);
                walk.blocks.push(OpenBlock { name, nodes: Vec::new() });
            }
            Token::Close => {
                walk.node = None;
                if walk.blocks.len() > 1 {
                    walk.blocks.pop();
                }
            }
            _ if is_text => walk.value(text(source, token, span), is_before_equals(source, end)),
            _ => {}
        }
    }
}

struct Walk {
    /// The open blocks, the outermost first. The file itself is always there.
    blocks: Vec<OpenBlock>,
    node: Option<OpenNode>,
}

impl Walk {
    fn value(&mut self, text: String, is_prop: bool) {
        let Some(node) = &mut self.node else {
            if let Some(block) = self.blocks.last_mut() {
                block.nodes.push(text.clone());
            }
            self.node = Some(OpenNode { name: text, arguments: 0, props: Vec::new(), pending: None });
            return;
        };
        if is_prop {
            node.props.push(text.clone());
            node.pending = Some(text);
        } else if node.pending.take().is_none() {
            node.arguments += 1;
        }
    }

    /// The spot of a text at the cursor. `prop` is the text if it is the name of a property, and empty otherwise.
    fn spot(&self, prop: String) -> CursorSpot {
        let Some(node) = &self.node else { return CursorSpot::Name };
        let name = node.name.clone();
        match &node.pending {
            Some(pending) => CursorSpot::Value { node: name, name: pending.clone() },
            None if !prop.is_empty() => CursorSpot::Property { node: name, name: prop },
            None => CursorSpot::Argument { node: name, number: node.arguments, props: node.props.clone() },
        }
    }

    fn place(mut self, spot: CursorSpot, span: Span) -> Cursor {
        let before = self.blocks.pop().map_or(Vec::new(), |block| {
            let (name, nodes) = (block.name, block.nodes);
            self.blocks.push(OpenBlock { name, nodes: Vec::new() });
            nodes
        });
        let path = self.blocks.into_iter().skip(1).map(|block| block.name).collect();
        Cursor { path, before, spot, span }
    }
}

/// The end of an invalid token. An unterminated text ends with its line.
fn end_of_wrong(source: &str, start: usize) -> usize {
    let rest = source.get(start..).unwrap_or_default();
    let is_open = rest.trim_start_matches('#').starts_with('"');
    let ends = |c: char| if is_open { c == '\n' } else { c.is_whitespace() || matches!(c, '{' | '}' | ';') };
    // The token has at least one character, so that the loop ends.
    let first = rest.chars().next().map_or(0, char::len_utf8);
    start + rest.find(ends).unwrap_or(rest.len()).max(first).min(rest.len())
}

fn is_before_equals(source: &str, end: usize) -> bool {
    source.get(end..).unwrap_or_default().trim_start_matches([' ', '\t']).starts_with('=')
}

/// The text of a token, without quotes.
fn text(source: &str, token: Token, span: Span) -> String {
    let written = source.get(span.start as usize..span.end()).unwrap_or_default();
    let bare = written.trim_matches('#');
    let body = bare.strip_prefix('"').map_or(bare, |body| body.strip_suffix('"').unwrap_or(body));
    match token {
        Token::Quoted { escapes: true } => string::unescape(body, 0).unwrap_or_else(|_| body.to_owned()),
        _ => body.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place of `^` in a text.
    fn at(text: &str) -> Cursor {
        let at = text.find('^').unwrap();
        cursor(&text.replace('^', ""), at)
    }

    fn argument(node: &str, number: usize, props: &[&str]) -> CursorSpot {
        let props = props.iter().map(|prop| (*prop).to_owned()).collect();
        CursorSpot::Argument { node: node.to_owned(), number, props }
    }

    #[test]
    fn blocks_are_known() {
        let place = at("listen \":80\"\nsite \"*\" {\n    route \"/**\" { respond 200; }\n    ro^\n}\n");
        assert_eq!((place.path, place.before), (vec!["site".to_owned()], vec!["route".to_owned()]));
        assert_eq!((place.spot, place.span.len), (CursorSpot::Name, 2));
        assert_eq!(at("site \"*\" { route \"/\" { ^").path, ["site", "route"]);
        assert_eq!(at("site \"*\" { route \"/\" { } ^").path, ["site"]);
        assert_eq!(at("^").spot, CursorSpot::Name);
        assert_eq!(at("} } ^").path, [""; 0]);
    }

    #[test]
    fn parts_of_nodes_are_known() {
        assert_eq!(at("proxy ^").spot, argument("proxy", 0, &[]));
        assert_eq!(at("proxy \"ap^\" timeout=\"5s\"").spot, argument("proxy", 0, &[]));
        assert_eq!(at("server \"a\" weight=2 ^").spot, argument("server", 1, &["weight"]));
        let value = |name: &str| CursorSpot::Value { node: "a".into(), name: name.into() };
        assert_eq!(at("a b=^").spot, value("b"));
        assert_eq!(at("a b=\"x^y\" c").spot, value("b"));
        assert_eq!(at("a b^c=1").spot, CursorSpot::Property { node: "a".into(), name: "bc".into() });
        assert_eq!(at("a 1; b^").spot, CursorSpot::Name);
        assert_eq!(at("a \\\n  ^").spot, argument("a", 0, &[]));
        assert_eq!(at("a // b^").spot, CursorSpot::Comment);
        assert_eq!(at("proxy^ \"a\"").span, Span::new(0, 5));
    }

    #[test]
    fn texts_without_an_end_are_passed() {
        assert_eq!(at("site \"*\" {\n  proxy \"ap^\n  respond 200\n}").spot, argument("proxy", 0, &[]));
        let place = at("site \"*\" {\n  proxy \"ap\n  res^\n}");
        assert_eq!((place.path, place.spot), (vec!["site".to_owned()], CursorSpot::Name));
        assert_eq!(at("timeouts { head 10s^; }").spot, argument("head", 0, &[]));
        assert_eq!(at("a ) b (c^").spot, argument("a", 2, &[]));
    }

    #[test]
    fn every_place_of_any_text_is_found() {
        for source in
            ["a \"b\n{ } = ; \\\n /* c */ // d\n#\"e\"# (f) /- \"\"\"\ng\n\"\"\" é=1 'x'", "/* ", "\"", "#"]
        {
            for at in 0..=source.len() {
                let place = cursor(source, at);
                assert!(place.span.end() <= source.len(), "{source} at {at}: {place:?}");
            }
        }
    }
}
