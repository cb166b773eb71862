//! The common parts of every host's tables of keys.

pub use foregate_module::settings::{ANY, Block, Key, Prop};

/// `list`, at the outermost level of a file; [`lists::decode`](crate::lists::decode) reads it.
pub const LIST_KEY: Key = Key::one("list", "NAME [ENTRY...] type=TYPE", "list \"office\" \"192.0.2.0/24\" type=\"ip\"", "A named list, for `in $NAME` in expressions. Its entries are written after the name, in `entry`, or in a file with one entry per line, in which `#` begins a comment.")
    .args(1, ANY)
    .props(&[
        Prop { name: "type", usage: "\"ip\"|\"host\"|\"string\"", required: true, default: "", about: "The type of the entries: addresses (`192.0.2.1`, `192.0.2.0/24`, `192.0.2.1..192.0.2.9`); hosts (`example.com`, or `*.example.com` for all names below it); or texts." },
        Prop { name: "file", usage: "FILE", required: false, default: "", about: "A file with more entries. When the file changes, the list is loaded again." },
    ])
    .with(&LIST)
    .many();

/// The block of `list`.
pub static LIST: Block = Block {
    keys: &[Key::one("entry", "ENTRY...", "entry \"198.51.100.7\"", "More entries.").args(1, ANY).many()],
    later: &[],
};

/// `include`, in every block; the reader replaces it by the named files.
pub const INCLUDE_KEY: Key = Key::one("include", "PATH...", "include \"sites/*.kdl\"", "Inserts the content of other files at this place, in any block. `*` and `?` match parts of names; a path with one of them may match no file.")
    .args(1, ANY)
    .many();

/// The properties of every key of a module that may occur only once.
pub static GENERIC: &[Prop] = &[
    Prop {
        name: "when",
        usage: "EXPRESSION",
        required: false,
        default: "",
        about: "The module runs only on requests for which this expression is true.",
    },
    Prop {
        name: "dry-run",
        usage: "#true|#false",
        required: false,
        default: "#false",
        about: "A trial run: the module runs, and its decisions are counted and logged, but have no effect.",
    },
];

/// A key and the names of the blocks around it.
pub type Path = Vec<&'static str>;

/// Calls `visit` for each of these keys and for the keys of their blocks. A key comes before the keys of its
/// block.
pub fn walk_keys(keys: impl IntoIterator<Item = &'static Key>, visit: &mut impl FnMut(&Path, &'static Key)) {
    fn level(key: &'static Key, path: &mut Path, visit: &mut impl FnMut(&Path, &'static Key)) {
        path.push(key.name);
        visit(path, key);
        for key in key.block.into_iter().flat_map(|block| block.keys) {
            level(key, path, visit);
        }
        path.pop();
    }
    for key in keys {
        level(key, &mut Vec::new(), visit);
    }
}
