//! Checks if markup may be inserted at a place of a document.

use crate::scan::names::{EMPTY, Name, is_long};
use crate::tree::{
    Content, Event, HR, Id, Mode, Node, OPTGROUP, OPTION, Origin, SCRIPT, Space, TEMPLATE, Token, Tokens,
    Tree,
};

/// The name that a number stands for.
pub(crate) fn text_of(name: Name) -> Option<String> {
    if is_long(name) {
        return None;
    }
    let bytes: Vec<u8> = name.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).skip(1).collect();
    String::from_utf8(bytes).ok()
}

/// A state, and the state that it has to lead to.
pub(crate) struct Next<'t> {
    pub token: Token,
    /// The next state without an insertion.
    pub then: &'t Tree,
}

/// The target of markup: an element, after its open content is closed.
#[derive(Clone, Copy)]
pub(crate) struct SpliceTarget {
    pub parent: Id,
    pub depth: Option<usize>,
}

/// How many copies of a state an insertion makes.
const COPIES: u64 = 4;

/// Returns `Some` if markup may be inserted here, with the text to write before it, the state after it, and true if that depends on the
/// absence of a `frameset`. Adds its cost to `work`.
pub(crate) fn inserted(
    state: &Tree,
    place: SpliceTarget,
    html: &str,
    next: Option<&Next<'_>>,
    from: Id,
    work: &mut u64,
) -> Option<(String, Tree, bool)> {
    let mut tree = state.clone();
    tree.work = 0;
    let found = insert_into(&mut tree, state, place, html, next, from);
    *work += COPIES * state.size() + std::mem::take(&mut tree.work);
    found.map(|(closers, undecided)| (closers, tree, undecided))
}

fn insert_into(
    tree: &mut Tree,
    state: &Tree,
    place: SpliceTarget,
    html: &str,
    next: Option<&Next<'_>>,
    from: Id,
) -> Option<(String, bool)> {
    let closers = close_to(tree, place.depth)?;
    let closed = next.is_none().then(|| tree.clone());
    if tree.mode == Mode::Text && html.contains('<') {
        return None;
    }
    let in_select = tree.open.is_in_select();
    let mut tokens = Tokens::new();
    tokens.go_on(Content::Markup, EMPTY, tree.open.has_cdata());
    let html_id = state.open.nodes.first().map_or(0, |html| html.id);
    let mut landed = false;
    while let Some(found) = tokens.next(html.as_bytes(), true) {
        let fits = |name| matches!(name, OPTION | OPTGROUP | HR | SCRIPT | TEMPLATE);
        if in_select && matches!(found.token, Token::Start(name, _) if !fits(name)) {
            return None;
        }
        tree.take(found.token);
        if !landed {
            let first = tree.open.events.iter().find_map(|event| match event {
                Event::Opened { node, .. } => Some(node.parent),
                Event::Inserted(parent) => Some(*parent),
                Event::Closed(_) => None,
            });
            if let Some(parent) = first {
                landed = parent == place.parent
                    || place.parent == html_id
                    // An element that is implied comes first.
                    || place.parent >= from && (parent >= from || tree.open.events.len() > 1);
                if !landed {
                    return None;
                }
            }
        }
        // A tag that means nothing here would leave its content behind.
        let opens = |event: &Event| matches!(event, Event::Opened { origin: Origin::Tag, .. });
        if matches!(found.token, Token::Start(..)) && !tree.open.events.iter().any(opens) {
            return None;
        }
        // The elements around it stay open.
        if tree.open.events.iter().any(|event| matches!(event, Event::Closed(node) if node.id < from)) {
            return None;
        }
        match found.token {
            Token::Start(name, _) => tokens.go_on(tree.content, name, tree.open.has_cdata()),
            _ => tokens.go_on(Content::Markup, EMPTY, tree.open.has_cdata()),
        }
    }
    if !landed || !tokens.is_between() || tokens.passed() != html.len() || tree.exceeded {
        return None;
    }
    let behind = match next {
        None => (closed?, tree.clone()),
        Some(next) => {
            let mut then = tree.clone();
            then.take(next.token);
            tree.work = then.work;
            (next.then.clone(), then)
        }
    };
    let same = behind.0.goes_on_like(&behind.1, from);
    same.then_some((closers, behind.0.frameset_ok && !behind.1.frameset_ok))
}

/// Closes the elements beyond a depth; returns the text to write for that.
pub(crate) fn close_to(tree: &mut Tree, depth: Option<usize>) -> Option<String> {
    let mut closers = String::new();
    while let Some(depth) = depth
        && tree.open.nodes.len() > depth
    {
        let (length, node) = (tree.open.nodes.len(), *tree.open.nodes.last()?);
        closers.push_str("</");
        closers.push_str(&text_of(node.name)?);
        closers.push('>');
        tree.take(Token::End(node.name));
        if tree.open.nodes.len() != length - 1 {
            return None;
        }
    }
    Some(closers)
}

/// Returns true if the end tag of an element is optional.
pub(crate) fn may_lack_its_end(node: &Node) -> bool {
    node.space != Space::Html
        || text_of(node.name).is_some_and(|name| crate::removal::may_lack_its_end(&name))
}
