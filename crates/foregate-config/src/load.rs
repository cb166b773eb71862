//! Reads a configuration file and everything that it includes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::document::{Document, EntryRef, FILE_LIMIT, NodeRef, Siblings, Span, SyntaxError, TOO_LONG};
use super::kept::Texts;
use super::problem::{Place, Problem, Problems, line_and_column};
use super::value;
use super::{files, foreign, glob, json, kdl};

/// The most files of one configuration.
pub(crate) const FILES_LIMIT: usize = 10_000;

/// The most levels of files that include each other.
const INCLUDE_DEPTH_LIMIT: usize = 16;

/// The node that is replaced by the content of files.
pub const INCLUDE: &str = "include";

/// All files of a configuration, and the `include` nodes that stand for them.
#[derive(Debug, Default)]
pub struct Tree {
    files: Vec<File>,
    includes: HashMap<(u32, u32), Vec<u32>>,
    /// For each file, the number of the first file in the same folder.
    folders: Vec<u32>,
    folder_numbers: HashMap<PathBuf, u32>,
    unsaved: Unsaved,
}

/// The texts of files as an editor has them, by their canonical paths.
pub type Unsaved = HashMap<PathBuf, String>;

/// One file.
#[derive(Debug)]
pub(crate) struct File {
    /// The path as it was given, for messages.
    pub path: PathBuf,
    /// The tree of the file.
    pub document: Document,
}

impl Tree {
    /// Reads `path` and the files that it includes. Errors are added to `problems`.
    pub fn read(path: &Path, problems: &mut Problems) -> Self {
        Self::read_unsaved(path, Unsaved::new(), problems)
    }

    /// Like [`Self::read`], but the texts in `unsaved` replace the content of their files.
    pub fn read_unsaved(path: &Path, unsaved: Unsaved, problems: &mut Problems) -> Self {
        let mut tree = Self { unsaved, ..Self::default() };
        if let Err(error) = tree.read_file(path, &mut Vec::new(), problems) {
            problems.push(Problem::new(None, format!("cannot read {}: {error}", path.display())));
        }
        tree
    }

    /// Reports, before all other problems, if the file seems to be for another program.
    pub(crate) fn name_other_program(&self, problems: &mut Problems) {
        if let Some(file) = self.files.first()
            && let Some(other) = foreign::program_of(&file.path, file.document.source())
        {
            let message = format!("{} looks like a configuration of {other}", file.path.display());
            problems.push_first(Problem::new(None, message).help(foreign::INSTEAD_OF_FILE));
        }
    }

    /// Reads `text` as if it were the content of the file `path`.
    pub fn read_text(path: &Path, text: String, problems: &mut Problems) -> Self {
        let mut tree = Self::default();
        tree.add(path, text, &mut Vec::new(), problems);
        tree
    }

    /// Reads kept texts, without looking at their files.
    pub fn read_kept(texts: &Texts, problems: &mut Problems) -> Self {
        let mut tree = Self::default();
        for (path, text) in texts.files() {
            // Every text gets a number, even after an error: the numbers in `includes` must stay valid.
            tree.add_file(path, text.to_owned(), problems);
        }
        for (ordinal, node) in tree.include_nodes() {
            if let Some(files) = texts.included(ordinal) {
                tree.includes.insert(node, files.to_vec());
            }
        }
        tree
    }

    /// The texts, to be read again by [`Self::read_kept`].
    pub fn into_texts(mut self) -> Texts {
        let mut includes = HashMap::new();
        for (ordinal, node) in self.include_nodes() {
            includes.extend(self.includes.remove(&node).map(|files| (ordinal, files)));
        }
        let files = self.files.into_iter().map(|file| (file.path, file.document.into_source())).collect();
        Texts::new(files, includes)
    }

    /// All `include` nodes: the number of the file with the ordinal among the `include` nodes of this file, and the number
    /// of the file with the index of the node.
    fn include_nodes(&self) -> Vec<((u32, u32), (u32, u32))> {
        let mut found = Vec::new();
        for (file, number) in self.files.iter().zip(0..) {
            let nodes = file.document.all().filter(|node| node.name() == INCLUDE);
            found.extend(nodes.zip(0..).map(|(node, ordinal)| ((number, ordinal), (number, node.index()))));
        }
        found
    }

    /// Reads the text of one file, but nothing that it includes.
    pub fn read_syntax(path: &Path, text: String, problems: &mut Problems) -> Self {
        let mut tree = Self::default();
        tree.add_file(path, text, problems);
        tree
    }

    /// The paths of the files, the main one first.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| &*file.path)
    }

    /// The path and the text of a file.
    pub fn text(&self, file: u32) -> Option<(&Path, &str)> {
        let file = self.file(file)?;
        Some((&file.path, file.document.source()))
    }

    /// The file with this number.
    pub(crate) fn file(&self, number: u32) -> Option<&File> {
        self.files.get(number as usize)
    }

    /// The folder from which relative paths in a file start.
    pub fn base(&self, file: u32) -> Option<&Path> {
        self.file(file)?.path.parent()
    }

    /// A number for the folder of an item's file. It is the same for all files of one folder.
    pub fn folder(&self, item: Item<'_>) -> u32 {
        self.folders.get(item.file as usize).copied().unwrap_or_default()
    }

    /// A place as text: `FILE:LINE:COLUMN`.
    pub(crate) fn line_of(&self, place: Place) -> Option<String> {
        let file = self.file(place.file)?;
        let (line, column) = line_and_column(file.document.source(), place.span.start as usize);
        Some(format!("{}:{line}:{column}", file.path.display()))
    }

    /// The source text of a range of a file.
    pub fn source_at(&self, file: u32, start: u32, length: u32) -> &str {
        let source = self.file(file).map_or("", |file| file.document.source());
        source.get(start as usize..start as usize + length as usize).unwrap_or_default()
    }

    /// The nodes of the outermost level, with included nodes instead of each `include`.
    pub fn roots(&self) -> Vec<Item<'_>> {
        let mut items = Vec::new();
        if let Some(file) = self.files.first() {
            self.level(0, file.document.roots(), &mut items);
        }
        items
    }

    fn level<'t>(&'t self, file: u32, nodes: Siblings<'t>, items: &mut Vec<Item<'t>>) {
        // Counted first: a list that grows exists twice for a moment.
        items.reserve(nodes.count());
        for node in nodes {
            match self.includes.get(&(file, node.index())) {
                None => items.push(Item { tree: self, file, node }),
                Some(files) => {
                    for file in files {
                        self.level(*file, self.files[*file as usize].document.roots(), items);
                    }
                }
            }
        }
    }

    fn read_file(
        &mut self,
        path: &Path,
        stack: &mut Vec<PathBuf>,
        problems: &mut Problems,
    ) -> std::io::Result<Option<u32>> {
        // The first file may be a pipe from a shell: its name cannot be resolved.
        let same = match path.canonicalize() {
            Err(_) if stack.is_empty() => path.to_owned(),
            found => found?,
        };
        if stack.contains(&same) {
            return Err(std::io::Error::other("it includes itself"));
        }
        if stack.len() >= INCLUDE_DEPTH_LIMIT {
            return Err(std::io::Error::other(format!(
                "files include each other over {INCLUDE_DEPTH_LIMIT} levels"
            )));
        }
        if self.files.len() >= FILES_LIMIT {
            return Err(std::io::Error::other(format!("there are more than {FILES_LIMIT} files")));
        }
        // Reading an included file must not block, as a pipe would.
        if !stack.is_empty() && !same.is_file() {
            return Err(std::io::Error::other("it is not a file"));
        }
        let text = match self.unsaved.remove(&same) {
            Some(text) => Ok(text),
            None => as_text(read_bytes(path)?),
        };
        match text {
            Ok(text) => {
                stack.push(same);
                let number = self.add(path, text, stack, problems);
                stack.pop();
                Ok(number)
            }
            Err((error, text)) => Ok(self.add_document(path, Document::new(text), Some(error), problems)),
        }
    }

    fn add(
        &mut self,
        path: &Path,
        text: String,
        stack: &mut Vec<PathBuf>,
        problems: &mut Problems,
    ) -> Option<u32> {
        let number = self.add_file(path, text, problems)?;
        self.include_all(number, stack, problems);
        Some(number)
    }

    /// Parses a file and adds it. `None` if its syntax has a mistake.
    fn add_file(&mut self, path: &Path, text: String, problems: &mut Problems) -> Option<u32> {
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let (document, error) = match if is_json { json::read(text) } else { kdl::read(text) } {
            Ok(document) => (document, None),
            Err((error, text)) => (Document::new(text), Some(error)),
        };
        self.add_document(path, document, error, problems)
    }

    fn add_document(
        &mut self,
        path: &Path,
        document: Document,
        error: Option<SyntaxError>,
        problems: &mut Problems,
    ) -> Option<u32> {
        let number = self.files.len() as u32;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        self.folders.push(*self.folder_numbers.entry(folder).or_insert(number));
        self.files.push(File { path: path.into(), document });
        if let Some(SyntaxError { span, message, help }) = error {
            let problem = Problem::new(Some(Place { file: number, span }), message);
            problems.push(Problem { help, ..problem });
            return None;
        }
        Some(number)
    }

    /// Reads the files of every `include` node of a file.
    fn include_all(&mut self, number: u32, stack: &mut Vec<PathBuf>, problems: &mut Problems) {
        let file = &self.files[number as usize];
        let base = file.path.parent().unwrap_or(Path::new("")).to_owned();
        let mut wanted = Vec::new();
        for node in file.document.all().filter(|node| node.name() == INCLUDE) {
            for entry in include_arguments(number, node, problems) {
                let place = Place { file: number, span: entry.span() };
                let hide = &mut |reference: &str, value: &str| problems.hide(reference, value);
                match value::expand(entry.text(), &base, hide) {
                    Ok(pattern) => wanted.push((node.index(), place, base.join(&*pattern))),
                    Err(wrong) => problems.push(value::at(wrong, place)),
                }
            }
        }
        for (node, place, pattern) in wanted {
            self.includes.entry((number, node)).or_default();
            let paths = match glob::expand(&pattern) {
                Ok(paths) => paths,
                Err(error) => {
                    let message = format!("cannot list {}: {error}", pattern.display());
                    problems.push_missing(Problem::new(Some(place), message));
                    continue;
                }
            };
            if paths.is_empty() {
                problems.warn(Problem::new(Some(place), "no file fits this path"));
            }
            for path in paths {
                match self.read_file(&path, stack, problems) {
                    Ok(Some(file)) => self.includes.entry((number, node)).or_default().push(file),
                    Ok(None) => {}
                    Err(error) => {
                        let message = format!("cannot include {}: {error}", path.display());
                        problems.push_missing(Problem::new(Some(place), message));
                    }
                }
            }
        }
    }
}

fn read_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let file = files::open_first(path)?;
    // One byte more, so that the end is found without growing.
    let room = file.metadata().map_or(0, |found| found.len() + 1).min(FILE_LIMIT as u64 + 1);
    let mut bytes = Vec::with_capacity(room as usize);
    file.take(FILE_LIMIT as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > FILE_LIMIT {
        return Err(std::io::Error::other(TOO_LONG));
    }
    Ok(bytes)
}

/// The text of a file. If it is not UTF-8: the error, and a text in which the place of the error can be shown.
fn as_text(bytes: Vec<u8>) -> Result<String, (SyntaxError, String)> {
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        let error = SyntaxError::new(Span::new(0, 0), "the file is UTF-16");
        return Err((error.help("save it as UTF-8"), String::new()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        // In the lossy text below, a replacement character stands at this position.
        let span = Span::new(at, at + char::REPLACEMENT_CHARACTER.len_utf8());
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        (SyntaxError::new(span, "this is not UTF-8").help("save the file as UTF-8"), text)
    })
}

/// The arguments of an `include` node. Anything else in the node is reported as a problem.
fn include_arguments<'d>(file: u32, node: NodeRef<'d>, problems: &mut Problems) -> Vec<EntryRef<'d>> {
    use super::document::ScalarKind;
    let wrong = |span: Span, message: &str| {
        Problem::new(Some(Place { file, span }), message).help("write `include \"sites/*.kdl\"`")
    };
    let mut arguments = Vec::new();
    for entry in node.entries() {
        if entry.key().is_some() || entry.kind() != ScalarKind::String {
            problems.push(wrong(entry.span(), "`include` takes the paths of files"));
        } else {
            arguments.push(entry);
        }
    }
    if node.children().next().is_some() {
        problems.push(wrong(node.span(), "`include` has no block"));
    } else if arguments.is_empty() {
        problems.push(wrong(node.span(), "`include` needs the path of a file"));
    }
    arguments
}

/// A node, and the file that contains it.
#[derive(Debug, Clone, Copy)]
pub struct Item<'t> {
    tree: &'t Tree,
    file: u32,
    /// The node.
    pub node: NodeRef<'t>,
}

impl<'t> Item<'t> {
    /// The place of the node's name.
    pub fn place(self) -> Place {
        self.place_of(self.node.span())
    }

    /// The place as text: `FILE:LINE:COLUMN`.
    pub fn line(self) -> String {
        let file = &self.tree.files[self.file as usize];
        let (line, column) = line_and_column(file.document.source(), self.node.span().start as usize);
        format!("{}:{line}:{column}", file.path.display())
    }

    /// The place of a part of the node.
    pub fn place_of(self, span: Span) -> Place {
        Place { file: self.file, span }
    }

    /// The source text of a part of the node.
    pub fn source_of(self, span: Span) -> &'t str {
        let source = self.tree.files[self.file as usize].document.source();
        source.get(span.start as usize..span.end()).unwrap_or_default()
    }

    /// The source text of the file after a part of the node.
    pub(crate) fn source_behind(self, span: Span) -> &'t str {
        let source = self.tree.files[self.file as usize].document.source();
        source.get(span.end()..).unwrap_or_default()
    }

    /// The nodes of the node's block, with included nodes in place of each `include`.
    pub fn children(self) -> Vec<Item<'t>> {
        let mut items = Vec::new();
        self.tree.level(self.file, self.node.children(), &mut items);
        items
    }

    /// The folder that relative paths start from.
    pub fn base(self) -> &'t Path {
        self.tree.files[self.file as usize].path.parent().unwrap_or(Path::new(""))
    }
}
