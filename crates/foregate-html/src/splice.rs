//! Checks whether markup may be inserted at a position of a document.

use crate::scan::names::{EMPTY, Name, is_long};
use crate::tree::{
    Content, Event, HR, Id, Mode, Node, OPTGROUP, OPTION, Origin, SCRIPT, Space, TEMPLATE, Token, Tokens,
    Tree,
};

/// The text of a name; `None` if the name is too long to be stored in its number.
pub(crate) fn text_of(name: Name) -> Option<String> {
    if is_long(name) {
        return None;
    }
    let bytes: Vec<u8> = name.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).skip(1).collect();
    String::from_utf8(bytes).ok()
}

/// The token after an insertion, and the state that it has to lead to.
pub(crate) struct Next<'t> {
    pub token: Token,
    /// The state after the token if nothing is inserted.
    pub then: &'t Tree,
}

/// The place of an insertion: in the element `parent`, after the open elements beyond `depth` are closed.
#[derive(Clone, Copy)]
pub(crate) struct SpliceTarget {
    pub parent: Id,
    pub depth: Option<usize>,
}

/// The number of copies of the state that an insertion makes.
const COPIES: u64 = 4;

/// Returns `Some` if markup may be inserted here: the text to write before the markup, the state after the markup, and
/// true if the insertion is only valid without a later `frameset`. Adds the cost of the check to `work`.
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
                    // The markup first opens an implied element.
                    || place.parent >= from && (parent >= from || tree.open.events.len() > 1);
                if !landed {
                    return None;
                }
            }
        }
        // If a tag is ignored here, its content would be inserted without it.
        let opens = |event: &Event| matches!(event, Event::Opened { origin: Origin::Tag, .. });
        if matches!(found.token, Token::Start(..)) && !tree.open.events.iter().any(opens) {
            return None;
        }
        // The markup must not close elements around the insertion.
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

/// Closes the elements beyond a depth. Returns the markup that closes them.
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
