//! The table of keys against the reader, the defaults and the text cases.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::load_text;
use super::schema::{Block, GENERIC, ROOT, ROUTE, SITE, walk, walk_keys};

/// A folder with the files that the examples name.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("foregate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for file in ["site.pem", "site.key", "client.pem", "client.key", "ca.pem"] {
            std::fs::write(path.join(file), "").unwrap();
        }
        Self(path)
    }

    fn debug(&self, text: &str) -> String {
        match load_text(&self.0.join("test.kdl"), text.to_owned(), &Arc::new(crate::shipped())) {
            Ok(settings) => without_seeds(&format!("{settings:?}")),
            Err(refused) => panic!("{text}\n{}", refused.plain()),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Each table of hosts has a seed of its own, by which its slots are in another order: that says nothing about the
/// configuration.
fn without_seeds(debug: &str) -> String {
    let mut text = debug.to_owned();
    for (start, end) in [("slots: [", "], any: "), ("per_hasher_seed: ", ",")] {
        let from = text.find(start).expect("the table of hosts has it");
        let length = text[from..].find(end).expect("it has an end");
        text.replace_range(from..from + length, "");
    }
    text
}

/// A listener that uses the settings of `acme`.
const AUTOMATIC: &str =
    "listen \"127.0.0.1:3\" { tls \"auto\"; }\nsite \"a.example.com\" { route \"/\" { respond 200; }; }\n";

/// A shield that listeners and caches can name.
const SHIELD: &str =
    "shield \"eu\" self=\"one\" secret=\"0123456789abcdef\" { node \"one\" \"10.0.0.9:7070\"; }\n";

/// A configuration with `line` in the block at `path`. All blocks around it are there, whether there is a line
/// or not.
fn around(path: &[&str], line: &str) -> String {
    let mut text = line.to_owned();
    for (depth, name) in path.iter().enumerate().rev() {
        text = match (*name, depth) {
            ("listen", _) => format!("listen \"127.0.0.1:1\" {{\n{text}\n}}"),
            ("upstream", _) => format!("upstream \"test\" {{\nserver \"127.0.0.1:1\"\n{text}\n}}"),
            ("files", _) => format!("files \"www\" {{\n{text}\n}}"),
            ("list", _) => format!("list \"test\" type=\"ip\" {{\n{text}\n}}"),
            ("site", _) => format!("site \"test\" {{\nroute \"/test\" {{ proxy \"app\"; }}\n{text}\n}}"),
            ("route", _) if ["proxy", "respond"].iter().any(|key| text.starts_with(key)) => {
                format!("route \"/inner\" {{\n{text}\n}}")
            }
            ("route", _) => format!("route \"/inner\" {{\nproxy \"app\"\n{text}\n}}"),
            ("tls", 1) if path[0] == "listen" => {
                format!("tls {{\ncertificate \"client.pem\" key=\"client.key\"\n{text}\n}}")
            }
            ("on-demand", _) if !text.starts_with("names") => {
                format!("on-demand {{\nnames \"other.example.org\"\n{text}\n}}")
            }
            ("retry", _) => format!("retry upstream=\"elsewhere\" {{\n{text}\n}}"),
            ("shield", _) => {
                let node = "node \"one\" \"10.0.0.9:7070\"";
                format!("shield \"eu\" self=\"one\" secret=\"0123456789abcdef\" {{\n{node}\n{text}\n}}")
            }
            ("dashboard", _) => format!("dashboard \"127.0.0.1:9146\" {{\n{text}\n}}"),
            ("trace-export", _) => format!("trace-export \"https://127.0.0.1:4318\" {{\n{text}\n}}"),
            ("access-log", _) => format!("access-log \"access.log\" {{\n{text}\n}}"),
            ("health", _) => format!("health \"/healthz\" {{\n{text}\n}}"),
            (name, _) => format!("{name} {{\n{text}\n}}"),
        };
    }
    let listen = if path.first() == Some(&"listen") { "" } else { "listen \"127.0.0.1:2\"\n" };
    let automatic = if path.first() == Some(&"acme") { AUTOMATIC } else { "" };
    let upstreams =
        "upstream \"app\" { server \"127.0.0.1:2\"; }\nupstream \"elsewhere\" { server \"127.0.0.1:3\"; }\n";
    format!("{listen}{automatic}{upstreams}{text}\n")
}

/// `facility` belongs to messages to a syslog server, the other keys of an access log to files as well.
fn logs_to(name: &str, text: String) -> String {
    if name == "facility" {
        return text.replace("\"access.log\"", "\"syslog+udp://127.0.0.1:514\"");
    }
    text
}

#[test]
fn every_key_changes_the_settings() {
    let folder = Folder::new("examples");
    walk(&mut |path, key| {
        let (name, outer) = path.split_last().unwrap();
        // A list has none until an expression names it.
        if matches!(*name, "include" | "list" | "entry") {
            return;
        }
        let around = |outer: &[&str], line: &str| match *name {
            "acme" => format!("{AUTOMATIC}{}", around(outer, line)),
            "shield" if !outer.is_empty() => format!("{SHIELD}{}", around(outer, line)),
            _ => around(outer, line),
        };
        // The route around examples has the same `proxy`.
        let base = match *name {
            "proxy" => "allow-connect",
            "queue" => "requests 10",
            "ocsp" => "certificate \"site.pem\" key=\"site.key\"",
            _ => "",
        };
        let example = key.example.replace("upstream \"app\"", "upstream \"other\"");
        let secret = "0123456789abcdef0123456789abcdef";
        let example = example.replace("${env:PURGE_TOKEN}", secret).replace("${env:SHIELD_SECRET}", secret);
        let example = example.replace("127.0.0.1:8081", "127.0.0.1:2");
        let example = example.replace("collector-ca.pem", "ca.pem");
        let example = example.replace("upstream=\"old\"", "upstream=\"elsewhere\"");
        let example = example.replace("mirror \"shadow\"", "mirror \"elsewhere\"");
        // A queue needs a limit, and a response a certificate.
        let example = if matches!(*name, "queue" | "ocsp") { format!("{base}\n{example}") } else { example };
        let with = folder.debug(&logs_to(name, around(outer, &example)));
        let without = folder.debug(&logs_to(name, around(outer, base)));
        assert!(with != without, "{} has no effect", path.join(" "));
        assert_ne!(key.example, format!("{} {}", key.name, key.default), "the example is the default");
    });
}

#[test]
fn the_table_has_the_defaults() {
    let folder = Folder::new("defaults");
    walk(&mut |path, key| {
        let (name, outer) = path.split_last().unwrap();
        if key.default.is_empty() {
            return;
        }
        let with = folder.debug(&logs_to(name, around(outer, &format!("{} {}", key.name, key.default))));
        assert!(with == folder.debug(&logs_to(name, around(outer, ""))), "the default of {}", path.join(" "));
    });
}

#[test]
fn values_stand_in_the_table_as_they_do_in_a_file() {
    walk(&mut |path, key| {
        let ends = |text: &str| text.ends_with('.') || text.is_empty();
        assert!(ends(key.about), "{path:?}");
        assert!(key.default.is_empty() || key.otherwise.is_empty(), "{path:?}");
        assert!(key.example.starts_with(key.name), "{path:?}");
        assert!(!key.required || key.default.is_empty(), "{path:?}");
    });
    fn later_are_unknown(block: &Block) {
        for key in block.keys {
            assert!(!block.later.contains(&key.name), "{} is here already", key.name);
            key.block.into_iter().for_each(later_are_unknown);
        }
        // The reader keeps the keys that it has seen in 64 bits.
        assert!(block.keys.len() <= 64);
    }
    later_are_unknown(&ROOT);
}

/// The keys of the modules that ship.
fn of_modules() -> Vec<&'static foregate_module::Key> {
    crate::shipped().keys().into_iter().map(|(key, _)| key).collect()
}

#[test]
fn keys_of_modules_stand_beside_our_own() {
    for key in of_modules() {
        for block in [&ROOT, &SITE, &ROUTE] {
            assert!(block.keys.iter().all(|own| own.name != key.name), "{} is a key of ours", key.name);
            assert!(!block.later.contains(&key.name), "{} is here already: it is no later name", key.name);
        }
        let generic = |name: &str| GENERIC.iter().any(|prop| prop.name == name);
        assert!(key.many || !key.props.iter().any(|prop| generic(prop.name)), "{}", key.name);
        assert!(!key.required, "{}", key.name);
    }
    walk_keys(of_modules(), &mut |path, key| {
        assert!(key.about.ends_with('.'), "{path:?}");
        assert!(key.example.starts_with(key.name), "{path:?}");
        assert!(key.default.is_empty() || key.otherwise.is_empty(), "{path:?}");
    });
}

/// The message for a misplaced key or property names its right place, or a replacement.
#[test]
fn a_misplaced_name_is_told_its_place() {
    let folder = Folder::new("misplaced");
    let mut names = std::collections::BTreeSet::new();
    let keys = ROOT.keys.iter().chain(of_modules()).chain(ROUTE.keys).chain(SITE.keys);
    walk_keys(keys, &mut |_, key| {
        names.insert(key.name);
        names.extend(key.props.iter().map(|prop| prop.name));
    });
    assert!(names.len() > 200, "{}", names.len());
    let (mut told, pipeline) = (0, Arc::new(crate::shipped()));
    for outer in
        [&[][..], &["listen"], &["upstream"], &["site"], &["site", "route"], &["limits"], &["timeouts"]]
    {
        for name in &names {
            let text = around(outer, name);
            let Err(refused) = load_text(&folder.0.join("test.kdl"), text, &pipeline) else { continue };
            let said = refused.plain();
            let unknown = said.contains(&format!("`{name}` is not known"));
            told += usize::from(unknown);
            let fallback = said.contains("known here") || said.contains("prints all keys");
            assert!(!unknown || said.contains("help: ") && !fallback, "{outer:?}: {said}");
        }
    }
    assert!(told > 500, "{told}");
}

/// Modules with requirements that cases lack: `geoip` needs a database.
const WITHOUT_CASE: &[&str] = &["geoip"];

/// A key without a case that shows its effect may as well do nothing.
#[test]
fn every_key_has_a_text_case() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    if !cases.exists() {
        return;
    }
    let mut texts = String::new();
    read_all(&cases, &mut texts);
    // The keys of `acme` need an authority, which these tests run.
    for file in ["run", "bed.py"] {
        texts.push_str(&std::fs::read_to_string(cases.join("../acme").join(file)).unwrap());
    }
    let words: std::collections::HashSet<&str> =
        texts.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect();
    let mut missing = Vec::new();
    walk(&mut |path, key| {
        if !words.contains(key.name) {
            missing.push(path.join(" "));
        }
    });
    // The blocks of modules are tested by the modules.
    let of_modules = of_modules().into_iter().map(|key| key.name);
    missing.extend(
        of_modules.filter(|name| !words.contains(name) && !WITHOUT_CASE.contains(name)).map(str::to_owned),
    );
    assert!(missing.is_empty(), "no case names: {}", missing.join(", "));
}

fn read_all(folder: &Path, texts: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, texts);
        } else if path.extension().is_some_and(|extension| extension == "case") {
            let text = std::fs::read_to_string(&path).unwrap();
            // Listing a key says nothing about its effect.
            if !text.contains("--show-defaults") {
                texts.push_str(&text);
            }
        }
    }
}
