//! The tree of one configuration file, for all syntaxes.
//!
//! A file of 100,000 sites has more than a million nodes. So the tree is two flat arrays, and texts are slices
//! of the file: a node with one argument takes about 60 bytes.

pub use foregate_module::settings::value::ScalarKind;

/// The most bytes of one configuration file: about ten times the length of a file with 100,000 sites. Every
/// position fits into 32 bits.
pub(super) const FILE_LIMIT: usize = 256 << 20;

/// The error for a longer file.
pub(super) const TOO_LONG: &str = "the file is longer than 256 MiB";

/// The deepest nesting of blocks.
pub(super) const DEPTH_LIMIT: usize = 64;

/// Bytes of a short node such as `proxy "app"` with its space.
const BYTES_PER_NODE: usize = 16;

/// A range of bytes of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The length in bytes.
    pub len: u32,
}

impl Span {
    /// From `start` up to, but without, `end`; both below [`FILE_LIMIT`].
    pub(super) fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, len: (end - start) as u32 }
    }

    /// The position after the last byte.
    pub fn end(self) -> usize {
        self.start as usize + self.len as usize
    }
}

/// A text: a slice of the file, or of the decoded texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Text {
    start: u32,
    len: u32,
}

impl Text {
    const ABSENT: Self = Self { start: 0, len: u32::MAX };

    /// The text of a range of the file.
    pub(super) fn of(span: Span) -> Self {
        Self { start: span.start, len: span.len }
    }
}

/// An argument or a property.
#[derive(Debug, Clone, Copy)]
pub(super) struct TreeEntry {
    key: Text,
    text: Text,
    /// The kind of the value.
    pub kind: ScalarKind,
    /// The place of the value.
    pub span: Span,
}

impl TreeEntry {
    /// A value; `key` makes it a property.
    pub(super) fn new(key: Option<Text>, kind: ScalarKind, text: Text, span: Span) -> Self {
        Self { key: key.unwrap_or(Text::ABSENT), text, kind, span }
    }
}

#[derive(Debug, Clone, Copy)]
struct Node {
    name: Text,
    span: Span,
    /// The index of its first entry. They end where those of the next node begin.
    entries: u32,
    /// The index after the last node of its block.
    end: u32,
}

/// The tree of one file.
#[derive(Debug, Default)]
pub(super) struct Document {
    source: String,
    decoded: String,
    nodes: Vec<Node>,
    entries: Vec<TreeEntry>,
}

/// A mistake in the syntax of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// The place of the mistake.
    pub span: Span,
    /// The error.
    pub message: String,
    /// The suggestion.
    pub help: Option<String>,
}

impl SyntaxError {
    /// A mistake without further advice.
    pub(super) fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: None }
    }

    /// Adds a suggestion.
    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

/// A state of the tree. [`Document::forget`] removes everything that was read since then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    nodes: usize,
    entries: usize,
}

impl Document {
    /// An empty tree for `source`, for messages about a file that could not be read as a tree.
    pub(super) fn new(source: String) -> Self {
        Self { source, ..Self::default() }
    }

    /// An empty tree with capacity for a typical file of this length. Unused capacity takes no memory, but an array
    /// without enough capacity exists twice while it grows.
    pub(super) fn with_room(source_len: usize) -> Self {
        let room = source_len / BYTES_PER_NODE;
        Self { nodes: Vec::with_capacity(room), entries: Vec::with_capacity(room), ..Self::default() }
    }

    /// The file.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The text of the file, without the tree.
    pub(super) fn into_source(self) -> String {
        self.source
    }

    /// Puts the file's text back, after it was taken out to be read alongside the tree.
    pub(super) fn set_source(&mut self, source: String) {
        self.source = source;
    }

    /// Stores a decoded text, which differs from its source in the file. `source_len` is the length of the file.
    pub(super) fn decode(&mut self, source_len: usize, text: &str) -> Text {
        let start = source_len + self.decoded.len();
        self.decoded.push_str(text);
        Text { start: start as u32, len: text.len() as u32 }
    }

    /// Adds a node; its entries follow, and then its block. It must be ended by [`Self::end_node`].
    pub(super) fn start_node(&mut self, name: Text, span: Span) -> usize {
        let entries = self.entries.len() as u32;
        self.nodes.push(Node { name, span, entries, end: 0 });
        self.nodes.len() - 1
    }

    /// Adds an entry to the node that was started last.
    pub(super) fn push_entry(&mut self, entry: TreeEntry) {
        self.entries.push(entry);
    }

    /// Ends a node: all nodes since `node` are its block.
    pub(super) fn end_node(&mut self, node: usize) {
        self.nodes[node].end = self.nodes.len() as u32;
    }

    /// The present state.
    pub(super) fn mark(&self) -> Mark {
        Mark { nodes: self.nodes.len(), entries: self.entries.len() }
    }

    /// Forgets all nodes and entries since `mark`.
    pub(super) fn forget(&mut self, mark: Mark) {
        self.nodes.truncate(mark.nodes);
        self.entries.truncate(mark.entries);
    }

    /// The nodes of the outermost level.
    pub(super) fn roots(&self) -> Siblings<'_> {
        Siblings { document: self, next: 0, end: self.nodes.len() as u32 }
    }

    /// All nodes of all levels, each before the nodes of its block.
    pub(super) fn all(&self) -> impl Iterator<Item = NodeRef<'_>> {
        (0..self.nodes.len() as u32).map(|index| NodeRef { document: self, index })
    }

    fn text(&self, text: Text) -> &str {
        let start = text.start as usize;
        match start.checked_sub(self.source.len()) {
            Some(start) => &self.decoded[start..][..text.len as usize],
            None => &self.source[start..][..text.len as usize],
        }
    }
}

/// Nodes of one level.
#[derive(Debug, Clone, Copy)]
pub struct Siblings<'d> {
    document: &'d Document,
    next: u32,
    end: u32,
}

impl<'d> Iterator for Siblings<'d> {
    type Item = NodeRef<'d>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let node = NodeRef { document: self.document, index: self.next };
        self.next = self.document.nodes[self.next as usize].end;
        Some(node)
    }
}

/// One node of a tree.
#[derive(Debug, Clone, Copy)]
pub struct NodeRef<'d> {
    document: &'d Document,
    index: u32,
}

impl<'d> NodeRef<'d> {
    /// The number of the node in the tree.
    pub fn index(self) -> u32 {
        self.index
    }

    /// The name of the node.
    pub fn name(self) -> &'d str {
        self.document.text(self.node().name)
    }

    /// The place of the node's name.
    pub fn span(self) -> Span {
        self.node().span
    }

    /// The arguments and properties of the node, in the order of the file.
    pub fn entries(self) -> impl Iterator<Item = EntryRef<'d>> {
        let node = self.node();
        let document = self.document;
        let next = document.nodes.get(self.index as usize + 1);
        let end = next.map_or(document.entries.len(), |next| next.entries as usize);
        document.entries[node.entries as usize..end].iter().map(move |entry| EntryRef { document, entry })
    }

    /// The nodes of the node's block.
    pub fn children(self) -> Siblings<'d> {
        Siblings { document: self.document, next: self.index + 1, end: self.node().end }
    }

    fn node(self) -> &'d Node {
        &self.document.nodes[self.index as usize]
    }
}

/// One argument or property.
#[derive(Debug, Clone, Copy)]
pub struct EntryRef<'d> {
    document: &'d Document,
    entry: &'d TreeEntry,
}

impl<'d> EntryRef<'d> {
    /// The name of a property; `None` for an argument.
    pub fn key(self) -> Option<&'d str> {
        (self.entry.key != Text::ABSENT).then(|| self.document.text(self.entry.key))
    }

    /// The kind of the value.
    pub fn kind(self) -> ScalarKind {
        self.entry.kind
    }

    /// The text of a string, or a number as written.
    pub fn text(self) -> &'d str {
        self.document.text(self.entry.text)
    }

    /// The place of the value.
    pub fn span(self) -> Span {
        self.entry.span
    }
}

/// Returns true if two trees have the same content, regardless of places.
pub(super) fn same(left: &Document, right: &Document) -> bool {
    fn same_level(mut left: Siblings<'_>, mut right: Siblings<'_>) -> bool {
        loop {
            match (left.next(), right.next()) {
                (None, None) => return true,
                (Some(left), Some(right)) if same_node(left, right) => {}
                _ => return false,
            }
        }
    }
    fn same_node(left: NodeRef<'_>, right: NodeRef<'_>) -> bool {
        let entry = |entry: EntryRef<'_>| {
            // The values of other kinds do not depend on their text.
            let is_text = matches!(entry.kind(), ScalarKind::String | ScalarKind::Number);
            let text = if is_text { entry.text() } else { "" };
            (entry.key().map(str::to_owned), entry.kind(), text.to_owned())
        };
        left.name() == right.name()
            && left.entries().map(entry).eq(right.entries().map(entry))
            && same_level(left.children(), right.children())
    }
    same_level(left.roots(), right.roots())
}
