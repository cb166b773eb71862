//! Rules for elements of the browser's tree.
//!
//! A tokenizer and the [open elements](crate::tree) run ahead of the rewriter. They find the start and end of elements,
//! even if tags are omitted. Markup is inserted, or an element removed, only if tree construction is in the same state
//! after the change as without it: the rest of the document then keeps its meaning. Other changes are skipped and
//! counted.

mod endings;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::charset::Charset;
use crate::references;
use crate::scan::names::{EMPTY, Name};
use crate::selector::Selector;
use crate::splice::{Next, SpliceTarget, close_to, inserted};
use crate::tree::select::{self, ElementFacts, Select, Subject};
use crate::tree::{
    Content, DEPTH, Event, FRAMESET, FoundToken, Id, Mode, Node, Origin, Space, TEMPLATE, Token, Tokens,
    Tree, adjusted, attributes,
};

/// The most bytes of a document that are held until it is certain that no `frameset` replaces the body.
const UNDECIDED: usize = 4096;

/// The most work for one document, counted in open elements that are examined or copied. This is the limit at the
/// start; each byte of the document or of an insertion raises it. Only documents crafted for an attack need more work;
/// the rest of such a document stays unchanged.
const WORK_AT_START: u64 = 1 << 20;
const WORK_PER_BYTE: u64 = 256;

/// The work of finding the selectors that match an element, in the unit of [`WORK_AT_START`].
const MATCHING: u64 = 32;

/// A rule for elements that a selector matches.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The selector of the elements.
    pub selector: Selector,
    /// The action.
    pub act: Act,
    /// The most elements in a document that the rule applies to.
    pub limit: Option<u64>,
}

/// An action on an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Markup is inserted before it.
    Before(String),
    /// Markup is inserted after it.
    After(String),
    /// Markup is inserted at the start of its content.
    Prepend(String),
    /// Markup is inserted at the end of its content.
    Append(String),
    /// The element is removed with its content.
    Remove,
    /// [`Rewrite::element`](crate::Rewrite::element) is called with this selector number.
    Tell(usize),
}

/// An operation at a position of the document.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// Markup is written.
    Insert(Arc<str>),
    /// Hold the following text, which may be removed.
    Hold,
    /// Remove the held text and insert this.
    Cut(String),
    /// Release the held text.
    Keep,
    /// Nothing.
    Nothing,
}

/// A count for a completed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tally {
    Nothing,
    /// The feature with this number has made a change.
    Match(usize),
    /// A change was skipped.
    Left,
}

#[derive(Debug)]
struct Op {
    at: u64,
    deed: Operation,
    /// True if the operation is dropped in case a `frameset` replaces the body.
    undecided: bool,
    /// True if a `<` before the operation is text, and has to be escaped so that it stays text.
    opens: bool,
    tally: Tally,
}

impl Op {
    fn new(at: u64, deed: Operation, tally: Tally) -> Self {
        Self { at, deed, undecided: false, opens: false, tally }
    }
}

struct FollowedFeature {
    act: Act,
    html: Arc<str>,
    feature: usize,
    dry: bool,
    left: Option<u64>,
}

/// An operation that has to be applied once a part of a document has been read.
pub(crate) struct Due {
    pub deed: Operation,
    /// True if a `<` before the operation is text, and was left out of the rewriter's input.
    pub opens: bool,
    /// The count for the operation. It is added only when the operation is applied, because the rewriter may give up
    /// before that.
    pub tally: Tally,
}

/// The parameters of an action on an element.
#[derive(Clone, Copy)]
struct Doing {
    feature: usize,
    dry: bool,
    /// True if the `<` before this position is text.
    opens: bool,
}

/// An element at whose end a rule has to act.
#[derive(Debug, Clone, Copy)]
struct WatchedElement {
    id: Id,
    rule: usize,
}

/// The removal of an element that is still open.
struct Removal {
    node: Node,
    /// The position at which the element begins.
    start: u64,
    /// The state of tree construction before the element.
    before: Tree,
    /// If the start tag closes other elements: the state after closing them, and the markup that closes them.
    closed: Option<(Tree, String)>,
}

#[derive(Debug, Default)]
struct Info {
    known: ElementFacts,
    children: u32,
    names: HashMap<Name, u32>,
}

/// Follows the tree of a document ahead of the rewriter.
pub(crate) struct Follower {
    tokens: Tokens,
    tree: Tree,
    before: Tree,
    /// The bytes that the rewriter had not received at the last cleanup. `base` is their position in its input.
    held: Vec<u8>,
    /// The number of bytes at the start of `held` that the rewriter has received in the meantime.
    gone: usize,
    base: u64,
    rules: Vec<FollowedFeature>,
    selects: Vec<Select>,
    counts_names: bool,
    changes: bool,
    infos: HashMap<Id, Info>,
    watched: Vec<WatchedElement>,
    removal: Option<Removal>,
    ops: VecDeque<Op>,
    /// The position of the first operation that is still undecided.
    undecided: Option<u64>,
    tells: VecDeque<(u64, usize, usize)>,
    /// The number of changes of each feature.
    pub matches: Vec<u64>,
    /// The number of skipped operations.
    pub left: u64,
    charset: Charset,
    /// The most bytes of a tag, or of an element that is removed.
    limit: u64,
    last: bool,
    /// The start of a tag that is too long. The rewriter gets no input from this position on.
    stop: Option<u64>,
    /// The number of bytes that were written without the rewriter.
    skipped: u64,
    skips: bool,
    /// Set if removed content kept a `frameset` from replacing the body.
    loosened: bool,
    /// The work so far, in the unit of [`WORK_AT_START`].
    pub work: u64,
    inserted: u64,
    named: usize,
    /// The event to count if the follower has given up: too many elements were open, or the document took too much work.
    pub gave_up: Option<&'static str>,
}

impl Follower {
    /// Creates a follower for these rules. Each comes with the number of its feature and true for a dry run. No tag, and no
    /// element that is removed, may have more than `limit` bytes.
    pub fn new(rules: Vec<(usize, bool, Rule)>, features: usize, charset: Charset, limit: usize) -> Self {
        let selects: Vec<_> =
            rules.iter().map(|(_, _, rule)| rule.selector.select_of(charset).into_owned()).collect();
        let changes = rules.iter().any(|(_, _, rule)| !matches!(rule.act, Act::Tell(_)));
        let rules = rules.into_iter().map(|(feature, dry, rule)| {
            let html = match &rule.act {
                Act::Before(html) | Act::After(html) | Act::Prepend(html) | Act::Append(html) => &**html,
                Act::Remove | Act::Tell(_) => "",
            };
            FollowedFeature { html: html.into(), act: rule.act, feature, dry, left: rule.limit }
        });
        Self {
            tokens: Tokens::new(),
            tree: Tree::new(),
            before: Tree::new(),
            held: Vec::new(),
            gone: 0,
            base: 0,
            rules: rules.collect(),
            counts_names: selects.iter().any(Select::counts_names),
            selects,
            changes,
            infos: HashMap::new(),
            watched: Vec::new(),
            removal: None,
            ops: VecDeque::new(),
            undecided: None,
            tells: VecDeque::new(),
            matches: vec![0; features],
            left: 0,
            charset,
            limit: limit as u64,
            last: false,
            stop: None,
            skipped: 0,
            skips: false,
            loosened: false,
            work: 0,
            inserted: 0,
            named: 0,
            gave_up: None,
        }
    }

    /// If `comments` is set, because a feature reads comments, the rewriter receives each comment in one piece.
    pub fn holding(self, comments: bool) -> Self {
        Self { tokens: self.tokens.holding_comments(comments), ..self }
    }

    /// Reads a part of the rewriter's input.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.compact();
        self.held.extend_from_slice(bytes);
        self.read();
    }

    /// Handles the end of the document.
    pub fn end(&mut self) {
        self.last = true;
        self.compact();
        self.read();
        self.decide(true);
        self.end_all();
    }

    /// Drops the bytes that the rewriter has received, and the memory that a long tag took.
    fn compact(&mut self) {
        self.held.drain(..std::mem::take(&mut self.gone).min(self.held.len()));
        if self.held.capacity() > 2 * self.held.len() + 4 * UNDECIDED {
            self.held.shrink_to(2 * UNDECIDED);
        }
    }

    fn read(&mut self) {
        let held = std::mem::take(&mut self.held);
        while self.gave_up.is_none()
            && let Some(found) = self.tokens.next(&held, self.last)
        {
            self.bound_begun();
            if found.continues {
                continue;
            }
            self.settle(self.base + found.known as u64);
            if self.tokens.holds(found.token) && (found.end - found.start) as u64 > self.limit {
                self.stop = Some(self.base + (found.start - usize::from(found.opens)) as u64);
                self.give_up("memory-exceeded");
            }
            if self.gave_up.is_none() {
                let raw = held.get(found.start..found.end).unwrap_or_default();
                self.token(&found, raw);
                self.bound_work(self.base + found.known as u64);
            }
        }
        self.held = held;
        // The next token needs at least one more byte.
        self.settle(self.base + self.tokens.at() as u64 + 1);
        self.bound_begun();
    }

    /// Gives up if an unfinished token is too long to be held.
    fn bound_begun(&mut self) {
        if self.tokens.begun() as u64 >= self.limit {
            self.give_up("memory-exceeded");
        }
    }

    /// Decides all operations that cannot wait any longer, before a token that needs the bytes up to `known`. The decision
    /// depends on this position, not on the length of the input so far: how the input is split must not change the result.
    fn settle(&mut self, known: u64) {
        if self.undecided.is_some_and(|at| known - at > UNDECIDED as u64) {
            self.decide(false);
        }
        if self.removal.as_ref().is_some_and(|removal| known - removal.start > self.limit) {
            self.give_up("memory-exceeded");
        }
    }

    /// Gives up: the rest of the document stays unchanged.
    fn give_up(&mut self, event: &'static str) {
        if self.gave_up.is_none() {
            self.decide(false);
            self.gave_up = Some(event);
        }
    }

    /// Gives up if the document has taken more work so far than its length allows.
    fn bound_work(&mut self, known: u64) {
        if self.work > WORK_AT_START + WORK_PER_BYTE * (known + self.inserted) {
            self.give_up("memory-exceeded");
        }
    }

    /// Decides the undecided operations: they are carried out if `done` is true, and dropped otherwise.
    pub fn decide(&mut self, done: bool) {
        if self.undecided.take().is_some() {
            for op in self.ops.iter_mut().filter(|op| op.undecided) {
                match done {
                    true => op.undecided = false,
                    false => *op = Op::new(op.at, Operation::Nothing, Tally::Left),
                }
            }
        }
    }

    /// The next bytes for the rewriter, and the operations after these bytes; `None` if more input is needed.
    pub fn next(&mut self) -> Option<(Vec<u8>, Option<Due>)> {
        self.skipped += u64::from(std::mem::take(&mut self.skips));
        let length = self.held.len() - self.gone;
        let ready = if self.last { length } else { self.tokens.passed().min(length) };
        let stop = self.stop.and_then(|stop| usize::try_from(stop.saturating_sub(self.base)).ok());
        let ready = stop.map_or(ready, |stop| stop.min(ready));
        let op = self.ops.front();
        let opens = op.is_some_and(|op| op.opens && op.undecided);
        let ready = ready - usize::from(opens).min(ready);
        let to = op.map_or(ready, |op| usize::try_from(op.at - self.base).unwrap_or(ready).min(ready));
        let due = op.is_some_and(|op| !op.undecided && op.at == self.base + to as u64);
        if to == 0 && !due {
            return None;
        }
        let mut bytes = self.held.get(self.gone..self.gone + to).unwrap_or_default().to_vec();
        self.gone += to;
        self.tokens.forget(to);
        self.base += to as u64;
        let due = if due { self.ops.pop_front() } else { None };
        let due = due.map(|op| {
            let opens = op.opens && bytes.pop_if(|last| *last == b'<').is_some();
            Due { deed: op.deed, opens, tally: op.tally }
        });
        // The rewriter gets the preceding bytes first.
        self.skips = due.as_ref().is_some_and(|due| due.opens);
        Some((bytes, due))
    }

    /// Adds counts.
    pub fn count(&mut self, tally: Tally) {
        match tally {
            Tally::Nothing => {}
            Tally::Match(feature) => self.matches.get_mut(feature).into_iter().for_each(|count| *count += 1),
            Tally::Left => self.left += 1,
        }
    }

    /// The bytes that the rewriter has not received.
    pub fn take_rest(&mut self) -> Vec<u8> {
        self.ops.clear();
        self.compact();
        std::mem::take(&mut self.held)
    }

    /// Returns true if the start tag at this position belongs to an element that the feature's selector matches.
    pub fn tells(&mut self, at: u64, feature: usize, selector: usize) -> bool {
        let at = at + self.skipped;
        while self.tells.front().is_some_and(|(place, ..)| *place < at) {
            self.tells.pop_front();
        }
        self.tells
            .iter()
            .take_while(|(place, ..)| *place == at)
            .any(|(_, one, two)| (*one, *two) == (feature, selector))
    }

    /// Returns true if the document is within the text of an element.
    pub fn is_in_text(&self) -> bool {
        self.tokens.is_in_text()
    }

    /// Returns true if nothing more can be done.
    pub fn is_done(&self) -> bool {
        self.watched.is_empty()
            && self.removal.is_none()
            && self.ops.is_empty()
            && self.rules.iter().all(|rule| rule.left == Some(0))
    }

    /// The memory that it holds, bytes.
    pub fn held(&self) -> usize {
        self.held.capacity()
            + 2 * self.tree.held()
            + self.removal.as_ref().map_or(0, |removal| 2 * removal.before.held())
            + 2 * self.infos.capacity() * size_of::<(Id, Info)>()
            + 2 * self.named * size_of::<(Name, u32)>()
            + self.ops.capacity() * size_of::<Op>()
    }

    fn token(&mut self, found: &FoundToken, raw: &[u8]) {
        let is_tag = matches!(found.token, Token::Start(..) | Token::End(_));
        let watches = !self.watched.is_empty() || self.removal.is_some();
        if self.changes && (watches || is_tag) {
            self.work += self.tree.size();
            self.before.take_from(&self.tree);
        }
        let from = self.tree.next_id();
        let (opens, refers) = (found.opens, found.refers);
        if self.loosened && matches!(found.token, Token::Start(FRAMESET, _)) {
            // Within the body, a start tag of `body` has no other effect.
            let deed = Operation::Insert("<body>".into());
            let at = self.base + found.start as u64;
            self.push(Op { opens, ..Op::new(at, deed, Tally::Nothing) });
        }
        self.tree.take(found.token);
        let is_deep = self.tree.exceeded || self.tree.open.nodes.len() > DEPTH;
        let events = std::mem::take(&mut self.tree.open.events);
        self.work += std::mem::take(&mut self.tree.work) + (events.len() * self.watched.len()) as u64;
        let (start, end) = (self.base + found.start as u64, self.base + found.end as u64);
        let at = At { token: found.token, start, end, from, opens, refers };
        if watches {
            self.ended(&events, &at);
        }
        for event in &events {
            match event {
                Event::Opened { node, origin, table } => self.opened(*node, *origin, *table, raw, &at),
                Event::Closed(_) | Event::Inserted(_) => {}
            }
        }
        // Elements without content, and elements with insertions after their end tag.
        self.ended_behind(&events, &at);
        self.tree.open.events = events;
        match found.token {
            Token::Start(name, _) => self.tokens.go_on(self.tree.content, name, self.tree.open.has_cdata()),
            _ => self.tokens.go_on(Content::Markup, EMPTY, self.tree.open.has_cdata()),
        }
        if self.infos.len() > 64 + 4 * self.tree.open.nodes.len() {
            let tree = &self.tree;
            self.work += self.infos.len() as u64 * tree.size();
            self.infos.retain(|id, _| {
                *id == 0 || tree.open.position(*id).is_some() || tree.formatting.contains(*id)
            });
            self.named = self.infos.values().map(|info| info.names.capacity()).sum();
        }
        if !self.tree.frameset_ok {
            self.decide(self.tree.mode != Mode::InFrameset);
        } else if self.tree.mode == Mode::InFrameset {
            self.decide(false);
        }
        if is_deep {
            self.give_up("markup-ambiguous");
        }
    }
}

/// The present token.
struct At {
    token: Token,
    start: u64,
    end: u64,
    /// The first number that was free before the token: elements with this number or a higher one began with the token.
    from: Id,
    /// True if the `<` before this position is text.
    opens: bool,
    /// The preceding text may be the start of a reference.
    refers: bool,
}

impl At {
    /// Returns true if the markup would become part of a reference before it.
    fn joins(&self, html: &str) -> bool {
        self.refers
            && html.starts_with(|first: char| first.is_ascii_alphanumeric() || matches!(first, '#' | ';'))
    }
}

impl Follower {
    /// Handles an element that has begun.
    fn opened(&mut self, node: Node, origin: Origin, table: Option<Id>, raw: &[u8], at: &At) {
        let parent = self.infos.entry(node.parent).or_default();
        parent.children += 1;
        let mut place = (parent.children, 1);
        if self.counts_names {
            let before = parent.names.capacity();
            let count = parent.names.entry(node.name).or_default();
            *count += 1;
            place.1 = *count;
            self.named += parent.names.capacity() - before;
        }
        // The content of a template is a separate document.
        let is_template = self.tree.open.nodes.iter().rev().find(|open| open.id == node.parent);
        let known = match is_template.is_some_and(|open| open.is(TEMPLATE)) {
            true => ElementFacts::default(),
            false => parent.known.clone(),
        };
        let (mut list, mut name) = (Vec::new(), String::new());
        if origin == Origin::Tag {
            attributes(raw, &mut list);
            if node.space != Space::Html {
                let end =
                    raw.iter().skip(1).position(|byte| matches!(byte, b'>' | b'/' | b' ' | b'\t'..=b'\r'));
                name = adjusted(raw.get(1..end.map_or(1, |end| end + 1)).unwrap_or_default()).into_owned();
            }
        }
        let mut found = Vec::new();
        let charset = self.charset;
        let text = |value: &[u8]| match charset.is_utf8() {
            true => references::resolve_value(&String::from_utf8_lossy(value), charset),
            false => references::resolve_value(&crate::carry::text_of(value), charset),
        };
        let subject = Subject {
            node: &node,
            name: &name,
            attributes: &list,
            place,
            is_root: node.parent == 0,
            quirks: self.tree.quirks,
            text: &text,
        };
        self.work += MATCHING;
        let known = select::matched(&self.selects, &subject, &known, |number| found.push(number));
        self.infos.insert(node.id, Info { known, ..Info::default() });
        if origin != Origin::Tag || self.removal.is_some() {
            return;
        }
        for take in [false, true] {
            found.iter().for_each(|number| self.act(*number, take, node, table, at));
        }
    }

    /// Applies a rule to an element. With `take`, only removals are applied; they come after all other operations.
    fn act(&mut self, number: usize, take: bool, node: Node, table: Option<Id>, at: &At) {
        let Some(rule) = self.rules.get(number) else { return };
        if rule.left == Some(0) || take != (rule.act == Act::Remove) || self.removal.is_some() {
            return;
        }
        let (feature, dry, html) = (rule.feature, rule.dry, Arc::clone(&rule.html));
        let depth = match table {
            Some(_) => None,
            None => self.before.open.position(node.parent).map(|place| place + 1),
        };
        let is_open = self.tree.open.position(node.id).is_some();
        let done = match rule.act {
            Act::Tell(selector) => {
                self.tells.push_back((at.start, feature, selector));
                return;
            }
            Act::Before(_) => {
                let state = std::mem::replace(&mut self.before, Tree::new());
                let next = Next { token: at.token, then: &self.tree };
                let place = SpliceTarget { parent: node.parent, depth };
                let found = inserted(&state, place, &html, Some(&next), at.from, &mut self.work)
                    .filter(|_| !at.joins(&html));
                self.before = state;
                self.insert(at.start, found, &html, Doing { feature, dry, opens: at.opens })
            }
            Act::Prepend(_) if !is_open => return,
            Act::Prepend(_) => {
                let place = SpliceTarget { parent: node.id, depth: None };
                let found = inserted(&self.tree, place, &html, None, self.tree.next_id(), &mut self.work);
                // Insertions before the start tag come before the removal.
                let before = std::mem::replace(&mut self.before, Tree::new());
                let done = self.insert(at.end, found, &html, Doing { feature, dry, opens: false });
                self.before = before;
                done
            }
            Act::Append(_) if !is_open => return,
            Act::After(_) | Act::Append(_) => {
                self.watched.push(WatchedElement { id: node.id, rule: number });
                true
            }
            Act::Remove => {
                self.begin_removal(node, depth, Doing { feature, dry, opens: at.opens }, at);
                true
            }
        };
        if done && let Some(rule) = self.rules.get_mut(number) {
            rule.left = rule.left.map(|left| left.saturating_sub(1));
        }
    }

    /// Plans an insertion of markup, if it is possible here (`found`). The state before the present token then becomes the
    /// state after the markup.
    fn insert(
        &mut self,
        at: u64,
        found: Option<(String, Tree, bool)>,
        html: &Arc<str>,
        Doing { feature, dry, opens }: Doing,
    ) -> bool {
        let Some((closers, tree, undecided)) = found else {
            self.push(Op::new(at, Operation::Nothing, if dry { Tally::Nothing } else { Tally::Left }));
            return false;
        };
        if dry {
            self.push(Op::new(at, Operation::Nothing, Tally::Match(feature)));
            return true;
        }
        let deed = Operation::Insert(if closers.is_empty() {
            Arc::clone(html)
        } else {
            format!("{closers}{html}").into()
        });
        let opens = opens && self.is_first(at);
        self.push(Op { undecided, opens, ..Op::new(at, deed, Tally::Match(feature)) });
        self.before = tree;
        true
    }

    /// Returns true if nothing has been inserted at this position yet.
    fn is_first(&self, at: u64) -> bool {
        !self.ops.iter().rev().any(|op| op.at == at && !matches!(op.deed, Operation::Nothing))
    }

    fn push(&mut self, op: Op) {
        if let Operation::Insert(html) = &op.deed {
            self.inserted += html.len() as u64;
        }
        self.undecided = self.undecided.or(op.undecided.then_some(op.at));
        // Operations are sorted by position. They are not always planned in this order.
        let place = self.ops.iter().rposition(|other| other.at <= op.at).map_or(0, |before| before + 1);
        self.ops.insert(place, op);
    }

    fn begin_removal(&mut self, node: Node, depth: Option<usize>, doing: Doing, at: &At) {
        let tally = Tally::Match(doing.feature);
        if doing.dry {
            return self.push(Op::new(at.start, Operation::Nothing, tally));
        }
        let before = self.before.clone();
        let mut closed = before.clone();
        self.work += 2 * before.size();
        let closers = close_to(&mut closed, depth).filter(|closers| !closers.is_empty());
        let opens = doing.opens && self.is_first(at.start);
        self.push(Op { opens, ..Op::new(at.start, Operation::Hold, tally) });
        let closed = closers.map(|closers| (closed, closers));
        self.removal = Some(Removal { node, start: at.start, before, closed });
    }
}
