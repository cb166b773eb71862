//! The documentation is correct: the binary checks its configurations, and its commands run.
//!
//! CONTRIBUTING.md explains the kinds of fences.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at what they do not expect"
)]

use std::{
    env,
    fmt::Write as _,
    fs,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

const BINARY: &str = env!("CARGO_BIN_EXE_foregate");

/// How long the quickstart may take to accept connections; a debug build on a busy machine needs a while.
const START_LIMIT: Duration = Duration::from_secs(20);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A block between fences in a Markdown file.
struct Snippet {
    /// File and line, for messages.
    place: String,
    /// The text behind the fence, for example `kdl site`.
    kind: String,
    text: String,
}

fn snippets() -> Vec<Snippet> {
    let mut documents: Vec<_> = ["", "docs", "docs/guide", "docs/guide/modules", "bench", "conformance"]
        .iter()
        .filter_map(|folder| fs::read_dir(root().join(folder)).ok())
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    documents.sort();
    documents.iter().flat_map(|path| snippets_of(path)).collect()
}

fn snippets_of(path: &Path) -> Vec<Snippet> {
    let text = fs::read_to_string(path).unwrap();
    let mut found: Vec<Snippet> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(kind) = line.strip_prefix("```") {
            open = !open;
            if open {
                let place = format!("{}:{}", path.display(), number + 1);
                found.push(Snippet { place, kind: kind.trim().to_owned(), text: String::new() });
            }
        } else if open {
            let snippet = found.last_mut().expect("a fence has opened it");
            snippet.text.push_str(line);
            snippet.text.push('\n');
        }
    }
    assert!(!open, "{}: a fence is not closed", path.display());
    found
}

/// Files that snippets name, beside certificates.
const FILES: &[(&str, &str)] = &[
    ("www/index.html", "<p>Hello.</p>\n"),
    ("moved.csv", "/old,/new\n"),
    ("5xx.html", "<p>Sorry.</p>\n"),
    ("rules.conf", "SecRuleEngine On\n"),
    ("log/access.log", ""),
    ("users", "ada:$2y$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy\n"),
    ("s3", "key-id\nsecret\n"),
    ("crs/recommended.conf", "SecRequestBodyAccess On\n"),
    ("crs/crs-setup.conf", "SecAction id:2,phase:1,nolog\n"),
    ("crs/rules/rules.conf", "SecRule ARGS \"@contains <script\" \"id:1,phase:2,deny\"\n"),
];

/// Completes a fragment to a file that can be checked.
fn completed(snippet: &Snippet) -> String {
    // These folders are there on the reader's machine.
    let text = &snippet
        .text
        .replace("/var/cache/foregate", "www")
        .replace("/run/foregate/", "")
        .replace("/etc/foregate/s3", "s3");
    let listen = "listen \"127.0.0.1:1\"\n";
    let app = "upstream \"app\" { server \"127.0.0.1:2\" }\n";
    let site = "site \"site.example\" { route \"/**\" { respond 204 } }\n";
    let around = |open: &str, close: &str| format!("{open}{text}{close}");
    match snippet.kind.strip_prefix("kdl").expect("only KDL gets here").trim() {
        "" | "refused" => text.to_owned(),
        "file" => {
            let mut text = around("", site);
            if !snippet.text.contains("listen ") {
                text.push_str(listen);
            }
            if snippet.text.contains("upstream \"app\"") { text } else { text + app }
        }
        "listen" => around("listen \"127.0.0.1:1\" {\n", "}\n") + site,
        "upstream" => around("upstream \"other\" {\nserver \"127.0.0.1:3\"\n", "}\n") + listen + site,
        "site" => around("site \"*\" {\n", "}\n") + listen + app,
        // The narrowest block in which a module's key is allowed.
        "route" | "module" if !["proxy ", "respond "].iter().any(|key| text.contains(key)) => {
            around("site \"*\" {\nroute \"/**\" {\nproxy \"app\"\n", "}\n}\n") + listen + app
        }
        "route" | "module" => around("site \"*\" {\nroute \"/**\" {\n", "}\n}\n") + listen + app,
        // A route file of NGINX contains the keys of a route, except for lists.
        "nginx" => {
            let is_list = |line: &&str| line.starts_with("list ");
            let lists: String = text.lines().filter(is_list).map(|line| format!("{line}\n")).collect();
            let rest: String =
                text.lines().filter(|line| !is_list(line)).map(|line| format!("{line}\n")).collect();
            let next = app.replace("\"app\"", "\"app-v2\"");
            format!(
                "{lists}site \"*\" {{\nroute \"/**\" {{\nproxy \"app\"\n{rest}}}\n}}\n{listen}{app}{next}"
            )
        }
        other => panic!("{}: `kdl {other}` means nothing", snippet.place),
    }
}

/// A folder of its own with everything that the snippets name: certificates, keys, included files.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("foregate-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("sites")).unwrap();
        let hosts = ["localhost", "example.com", "*.example.com", "internal.example.com"];
        let made = rcgen::generate_simple_self_signed(hosts.map(str::to_owned)).unwrap();
        for name in ["site", "other", "localhost", "client", "ca"] {
            fs::write(path.join(name).with_extension("pem"), made.cert.pem()).unwrap();
            fs::write(path.join(name).with_extension("key"), made.signing_key.serialize_pem()).unwrap();
        }
        for (name, text) in FILES {
            let file = path.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn check(folder: &Folder, name: &str, text: &str) -> Output {
    let file = folder.0.join(name);
    fs::write(&file, text).unwrap();
    Command::new(BINARY)
        .arg("check")
        .arg("-c")
        .arg(file)
        .env("BUILD_PASSWORD", "secret")
        .env("API_KEY", "secret")
        .output()
        .unwrap()
}

#[test]
fn configurations_are_taken_and_wrong_ones_refused() {
    let folder = Folder::new("snippets");
    let mut wrong = String::new();
    let mut count = 0;
    let snippets = snippets();
    let followers = snippets.iter().skip(1).map(Some).chain([None]);
    for (snippet, follower) in snippets.iter().zip(followers) {
        if snippet.kind.split(' ').next() != Some("kdl") {
            continue;
        }
        count += 1;
        let output = check(&folder, "snippet.kdl", &completed(snippet));
        if let Some(follower) = follower.filter(|follower| follower.kind == "text refused") {
            let folder = format!("{}/snippet", folder.0.display());
            let said = String::from_utf8_lossy(&output.stderr).replace(&folder, "foregate");
            if said != follower.text {
                writeln!(wrong, "{}: it says\n{said}", follower.place).unwrap();
            }
        }
        // Databases of countries are not ours to ship: all else has to be right.
        if snippet.text.contains(".mmdb") {
            let said = String::from_utf8_lossy(&output.stderr);
            let others: Vec<_> = said.lines().filter(|line| !line.contains(".mmdb")).collect();
            assert!(others.is_empty(), "{}: {others:?}", snippet.place);
            continue;
        }
        let expected = i32::from(snippet.kind == "kdl refused");
        if output.status.code() != Some(expected) {
            let said = String::from_utf8_lossy(&output.stderr);
            writeln!(wrong, "{}: {}, expected {expected}\n{said}", snippet.place, output.status).unwrap();
        }
    }
    assert!(count > 5, "the documents were not found");
    assert!(wrong.is_empty(), "{wrong}");
}

/// Configurations are formatted as by `foregate fmt`.
#[test]
fn configurations_are_formatted() {
    let mut wrong = String::new();
    let is_kdl = |snippet: &Snippet| snippet.kind.split(' ').next() == Some("kdl");
    let mut all: Vec<_> = snippets().into_iter().filter(is_kdl).map(|s| (s.place, s.text)).collect();
    all.extend(examples().map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())));
    assert!(all.len() > 5, "the documents were not found");
    for (place, text) in all {
        match foregate::config::format(Path::new(&place), &text) {
            Ok(formatted) if formatted == text => {}
            Ok(formatted) => writeln!(wrong, "{place}: `foregate fmt` writes\n{formatted}").unwrap(),
            Err(refused) => writeln!(wrong, "{}", refused.plain()).unwrap(),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The code of the chapters on modules is the whole example, which `cli.rs` builds and runs: copying every
/// block gives code that compiles.
#[test]
fn the_code_of_the_guide_is_that_of_the_example() {
    let source =
        |name: &str| fs::read_to_string(root().join("examples/custom-binary/src").join(name)).unwrap();
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let code = |chapter: &str, kind: &str| {
        let chapter = snippets_of(&root().join("docs/guide").join(chapter));
        let of_kind = chapter.iter().filter(|snippet| snippet.kind == kind);
        of_kind.map(|snippet| snippet.text.as_str()).collect::<Vec<_>>().join("\n")
    };
    let (first, second) = ("writing-a-module.md", "asking-and-rewriting.md");
    assert_eq!(lines(&code(first, "rust")), lines(&(source("office_hours.rs") + &source("main.rs"))));
    assert_eq!(lines(&code(second, "rust")), lines(&source("quote.rs")));
    let (manifest, shown) = (source("../Cargo.toml"), code(first, "toml"));
    assert!(manifest.starts_with(&shown) && shown.contains("[dependencies]"), "{manifest}");
}

/// The text of all sources of the crates, without tests in files of their own.
fn sources() -> String {
    let mut folders = vec![root().join("crates")];
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" {
                folders.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                text.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }
    text
}

/// Metrics are registered without their prefix, and get suffixes by their kind and unit.
#[test]
fn metrics_of_the_documentation_exist() {
    const SUFFIXES: [&str; 7] = ["_bucket", "_sum", "_count", "_total", "_seconds", "_bytes", "_ratio"];
    let sources = sources();
    let mut unknown = Vec::new();
    for folder in ["", "docs", "docs/guide", "docs/guide/modules"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for (at, prefix) in text.match_indices("foregate_") {
                let rest = &text[at + prefix.len()..];
                let end = rest.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_');
                let name = &rest[..end.unwrap_or(rest.len())];
                let mut names = vec![name];
                for suffix in SUFFIXES {
                    let shorter: Vec<_> = names.iter().filter_map(|name| name.strip_suffix(suffix)).collect();
                    names.extend(shorter);
                }
                // Directives of the module for NGINX have the prefix in the source, or are made of the names of features.
                let is_known = name.starts_with("feature_")
                    || names.iter().any(|name| sources.contains(&format!("\"{name}\"")))
                    || sources.contains(&format!("foregate_{name}"));
                if !is_known {
                    unknown.push(format!("{}: foregate_{name}", path.display()));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn the_phases_of_the_guide_are_those_of_the_code() {
    let source = fs::read_to_string(root().join("crates/foregate-module/src/phase_id.rs")).unwrap();
    let guide = fs::read_to_string(root().join("docs/guide/writing-a-module.md")).unwrap();
    let variants = source.split_once("pub enum PhaseId {").unwrap().1.split_once("\n}").unwrap().0;
    let mut expected = String::from("| phase | meaning |\n|---|---|\n");
    let mut about = "";
    for line in variants.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            about = text;
        } else if let Some(name) = line.strip_suffix(',') {
            let mut kebab = String::new();
            for letter in name.chars() {
                if letter.is_ascii_uppercase() && !kebab.is_empty() {
                    kebab.push('-');
                }
                kebab.push(letter.to_ascii_lowercase());
            }
            writeln!(expected, "| `{kebab}` | {about} |").unwrap();
        }
    }
    assert!(guide.contains(&expected), "the guide lacks this table:\n{expected}");
}

#[test]
fn examples_are_taken() {
    let folder = Folder::new("examples");
    for path in examples() {
        let output = check(&folder, "example.kdl", &fs::read_to_string(&path).unwrap());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}:\n{said}", path.display());
    }
}

fn examples() -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "kdl"))
}

/// The quickstart, stopped at the end of the test whatever its result.
struct Quickstart {
    child: Child,
    home: Folder,
}

impl Quickstart {
    fn start() -> Self {
        let home = Folder::new("tour");
        let child = Command::new(BINARY)
            .arg("quickstart")
            .env("HOME", &home.0)
            .env_remove("XDG_STATE_HOME")
            .stdout(fs::File::create(home.0.join("out")).unwrap())
            .stderr(fs::File::create(home.0.join("err")).unwrap())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, home }
    }

    fn output(&self) -> String {
        let read = |name| fs::read_to_string(self.home.0.join(name)).unwrap_or_default();
        read("out") + &read("err")
    }

    /// The addresses in use, in the order HTTP, HTTPS, metrics: other ones where the usual are taken.
    fn addresses(&mut self) -> [SocketAddr; 3] {
        let file = self.home.0.join(".local/state/foregate/quickstart.kdl");
        let end = Instant::now() + START_LIMIT;
        while Instant::now() < end && self.child.try_wait().unwrap().is_none() {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let found: Vec<SocketAddr> = text
                .lines()
                .filter(|line| line.starts_with("listen ") || line.starts_with("metrics "))
                .filter_map(|line| line.split('"').nth(1)?.parse().ok())
                .collect();
            if let Ok(addresses) = <[SocketAddr; 3]>::try_from(found)
                && addresses.iter().all(|address| TcpStream::connect(address).is_ok())
                // It is printed once everything listens.
                && self.output().contains("Ctrl-C")
            {
                return addresses;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("the quickstart does not answer:\n{}", self.output());
    }
}

impl Drop for Quickstart {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_tour_of_the_readme_works() {
    let mut quickstart = Quickstart::start();
    let [http, https, metrics] = quickstart.addresses();
    let banner = quickstart.output();
    assert!(banner.contains(&format!("http://{http}/")), "{banner}");

    let mut path = vec![Path::new(BINARY).parent().unwrap().to_owned()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap()));
    let path = env::join_paths(path).unwrap();
    let tour: Vec<_> = snippets().into_iter().filter(|snippet| snippet.kind == "sh tour").collect();
    assert!(tour.len() > 4, "the tour was not found");
    let words = tour.iter().flat_map(|snippet| snippet.text.split([' ', '\n', '\'', ';']));
    for path in words.filter_map(|word| word.strip_prefix("http://127.0.0.1:8080/")) {
        let path = format!("/{}", path.split('?').next().unwrap());
        assert!(
            banner.contains(&path),
            "{path} is in the tour, and not printed by the quickstart:\n{banner}"
        );
    }
    for snippet in &tour {
        let commands = snippet
            .text
            .replace("127.0.0.1:8080", &http.to_string())
            .replace("127.0.0.1:8443", &https.to_string())
            .replace("127.0.0.1:9145", &metrics.to_string())
            // An error status is an error, unless the tour shows it.
            .replace("curl ", "curl -sS -f ")
            .replace("-f -i ", "-i ")
            .replace("-f -s -o ", "-s -o ")
            .replace(
                "foregate/broken.kdl\nforegate explain",
                "foregate/broken.kdl && exit 1\nforegate explain",
            )
            // A replacement that reads to the end, so that the command before it in the pipe does not fail.
            .replace("| head -20", "| sed -n 1,20p");
        let output = Command::new("bash")
            .args(["-e", "-o", "pipefail", "-c", &commands])
            .current_dir(root())
            .env("HOME", &quickstart.home.0)
            .env("PATH", &path)
            .output()
            .unwrap();
        let (said, failed) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}\n{commands}\n{said}\n{failed}", snippet.place);
        if commands.contains("--http2") {
            assert_eq!(said.matches("HTTP/2 200").count(), 2, "{said}");
        }
        if commands.contains("/upload") {
            assert!(said.contains(" 413"), "{said}");
        }
        if commands.contains("broken.kdl") {
            assert!(failed.contains("did you mean `rate-limit`?"), "{failed}");
        }
        if commands.contains("reload") {
            assert!(said.contains("Hello again"), "{said}");
        }
        if commands.contains("/large") {
            assert!(said.contains("67108864 bytes"), "{said}");
        }
    }
}
