//! The verbs, from outside.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at what it did not expect")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// A folder for the files of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("foregate-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_foregate")).args(arguments).current_dir(&self.0).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

const FINE: &str = "\
listen \"127.0.0.1:8080\"
upstream \"app\" { server \"127.0.0.1:3000\"; server \"unix:app.sock\" weight=2 }
site \"example.com\" \"*.example.com\" {
    route \"/static/**\" { proxy \"app\" }
    route \"/a\" { respond 200 \"x\" }
}
";

#[test]
fn check_counts_what_is_there() {
    let folder = Folder::new("check");
    folder.write("foregate.kdl", FINE);
    for arguments in [&["check"][..], &["-t"], &["check", "-c", "foregate.kdl"]] {
        let output = folder.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).starts_with("foregate.kdl is fine: 1 listener"));
    }
    let counts = json(&folder.run(&["check", "--json"]));
    assert_eq!((&counts["ok"], &counts["servers"], &counts["routes"]), (&true.into(), &2.into(), &2.into()));
}

#[test]
fn check_tells_mistakes_as_json() {
    let folder = Folder::new("check-json");
    folder.write("foregate.kdl", "listen \"127.0.0.1:1\"\nsit \"*\"\n");
    let output = folder.run(&["check", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let error = &json(&output)["errors"][0];
    assert_eq!((&error["line"], &error["column"], &error["length"]), (&2.into(), &1.into(), &3.into()));
    assert_eq!(error["help"], "did you mean `site`?");
}

/// A command whose output is lost has not succeeded; a reader that has gone, such as `head`, loses nothing that it wants.
#[test]
fn lost_output_is_an_error() {
    let folder = Folder::new("full");
    let run = |stdout: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foregate"));
        command.arg("schema").current_dir(&folder.0).stdout(stdout).output().unwrap()
    };
    let full = run(std::fs::File::options().write(true).open("/dev/full").unwrap().into());
    assert_eq!(full.status.code(), Some(1));
    assert_eq!(stderr(&full), "error: the output cannot be written: No space left on device (os error 28)\n");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let gone = run(writer.into());
    assert_eq!((gone.status.code(), &*stderr(&gone)), (Some(0), ""));
}

/// The log writer does not complain about the terminal.
#[test]
fn a_terminal_gets_nothing_but_what_was_asked_for() {
    let folder = Folder::new("terminal");
    folder.write("f.kdl", FINE);
    let check = format!("{} check -c f.kdl", env!("CARGO_BIN_EXE_foregate"));
    let output =
        Command::new("script").args(["-qec", &check, "/dev/null"]).current_dir(&folder.0).output().unwrap();
    assert!(output.status.success(), "{}", stdout(&output));
    assert!(!stdout(&output).contains("tracing"), "{}", stdout(&output));
}

#[test]
fn check_watches_files() {
    let folder = Folder::new("watch");
    let write = |name: &str, text: &str| {
        // As editors do.
        std::fs::write(folder.0.join("new"), text).unwrap();
        std::fs::rename(folder.0.join("new"), folder.0.join(name)).unwrap();
    };
    let site = "site \"*\" { route \"/**\" { respond 204; }; }\n";
    write("foregate.kdl", &format!("listen \"127.0.0.1:1\"\n{site}include \"more/*.kdl\"\n"));
    std::fs::create_dir(folder.0.join("more")).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_foregate"))
        .args(["check", "--watch", "--json"])
        .current_dir(&folder.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(check.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let first = next();
    assert_eq!((&first["ok"], &first["routes"]), (&true.into(), &1.into()), "{first}");
    write("foregate.kdl", &format!("listen \"127.0.0.1:1\"\nsitte\n{site}include \"more/*.kdl\"\n"));
    let refused = next();
    let error = &refused["errors"][0];
    assert_eq!((&refused["ok"], &error["line"], &error["column"]), (&false.into(), &2.into(), &1.into()));
    assert!(error["help"].as_str().unwrap().contains("site"), "{refused}");
    std::fs::remove_file(folder.0.join("foregate.kdl")).unwrap();
    assert!(next()["errors"][0]["message"].as_str().unwrap().contains("cannot read"));
    write("foregate.kdl", &format!("listen \"127.0.0.1:1\"\n{site}include \"more/*.kdl\"\n"));
    assert_eq!(next()["ok"], true);
    // A file that a pattern finds is not known before.
    write("more/a.kdl", "upstream \"a\" { server \"127.0.0.1:2\"; }\n");
    assert_eq!(next()["upstreams"], 1);
    write("more/a.kdl", "upstream \"a\" { server \"127.0.0.1:99999\"; }\n");
    let refused = next();
    assert!(refused["errors"][0]["file"].as_str().unwrap().ends_with("more/a.kdl"), "{refused}");
    // The reader goes, and the process follows.
    drop(lines);
    assert!(check.wait().unwrap().success());
}

#[test]
fn check_shows_defaults() {
    let folder = Folder::new("defaults");
    let text = stdout(&folder.run(&["check", "--show-defaults"]));
    assert!(text.contains("limits head-bytes "), "{text}");
    let keys = json(&folder.run(&["check", "--show-defaults", "--json"]));
    assert!(
        keys.as_array()
            .unwrap()
            .iter()
            .any(|key| key["key"] == "timeouts head" && key["default"] == "\"10s\"")
    );
}

#[test]
fn fmt_changes_files_only_when_asked() {
    let folder = Folder::new("fmt");
    let path = folder.write("foregate.kdl", "listen   \":8080\" // all\n");
    let output = folder.run(&["fmt", "--check"]);
    assert_eq!((output.status.code(), &*stdout(&output)), (Some(1), "foregate.kdl\n"));
    assert_eq!(folder.run(&["fmt"]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "listen \":8080\" // all\n");
    assert_eq!(folder.run(&["fmt", "--check"]).status.code(), Some(0));
    folder.write("broken.kdl", "listen {");
    let output = folder.run(&["fmt", "broken.kdl"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("broken.kdl:1:8: error:"));
}

#[test]
fn fmt_passes_the_standard_input_on() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_foregate"))
        .args(["fmt", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"a   1").unwrap();
    assert_eq!(stdout(&child.wait_with_output().unwrap()), "a 1\n");
}

#[test]
fn explain_says_what_answers_and_why() {
    let folder = Folder::new("explain");
    folder.write("foregate.kdl", FINE);
    let output = folder.run(&["explain", "http://www.example.com:8080/x/../static/%41"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let unix = folder.run(&["explain", "example.com/static", "--json"]);
    let expected = "\
listener  127.0.0.1:8080
host      www.example.com
site      example.com  (it has the longest wildcard for this host)
path      /static/A
route     /static/**  (the first with wildcards that takes this path, and none is exactly this path)
answer    proxy \"app\"
servers   127.0.0.1:3000, unix:app.sock weight=2
choice    in turns, by weight
          3 failures in a row take a server out
retry     1 further attempts where no response has begun and repeating is safe
          at most 20 % of the requests, or 3 at a time
";
    assert_eq!(stdout(&output), expected);
    assert_eq!(json(&unix)["upstream"], "app");
    let elsewhere = "listen \"127.0.0.1:8080\"
upstream \"a\" { server \"127.0.0.1:1\"; }
upstream \"b\" { server \"127.0.0.1:2\"; }
site \"*\" {
    rule \"http.request.uri.path eq \\\"/b\\\"\" { upstream \"b\"; }
    rule \"true\" { set-header \"x\" \"y\"; }
    route \"/**\" { canary upstream=\"b\" share=\"1%\"; proxy \"a\"; }
    route \"/fixed\" { respond 200; }
}
";
    folder.write("elsewhere.kdl", elsewhere);
    let output = folder.run(&["explain", "example.com/b", "-c", "elsewhere.kdl"]);
    let expected = "or        canary (elsewhere.kdl:7:19) may choose another upstream
          rule (elsewhere.kdl:5:5) may choose another upstream\n";
    assert!(stdout(&output).contains(expected), "{}", stdout(&output));
    assert!(
        !stdout(&folder.run(&["explain", "example.com/fixed", "-c", "elsewhere.kdl"])).contains("upstream")
    );
    let output = folder.run(&["explain", "http://example.com/b"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("none: no route of the site takes this path"));
    assert_eq!(folder.run(&["explain", "http://a b/"]).status.code(), Some(2));
}

#[test]
fn reload_asks_the_admin_socket() {
    let folder = Folder::new("reload");
    // The process has its own environment; it reports missing variables.
    folder.write(
        "foregate.kdl",
        &format!("admin \"admin.sock\"\naccess-log \"${{env:SURELY_NOT_SET_1}}\"\n{FINE}"),
    );
    let listener = UnixListener::bind(folder.0.join("admin.sock")).unwrap();
    let server = std::thread::spawn(move || {
        let http = |body: &str| {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        };
        let answers = [
            http("{\"ok\":true}\n"),
            http("{\"ok\":false,\"error\":\"line 1 is wrong\"}\n"),
            http("nonsense\n"),
        ];
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let head: Vec<_> = BufReader::new(&stream)
                .lines()
                .map(Result::unwrap)
                .take_while(|line| !line.is_empty())
                .collect();
            assert_eq!(head.first().map(String::as_str), Some("POST /v1/reload HTTP/1.0"));
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    assert_eq!(folder.run(&["reload"]).status.code(), Some(0));
    let output = folder.run(&["reload", "--admin", "admin.sock"]);
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(1), "line 1 is wrong\n"));
    assert_eq!(folder.run(&["reload"]).status.code(), Some(1));
    server.join().unwrap();
    let output = folder.run(&["reload", "--admin", "nobody.sock"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is it running?"), "{}", stderr(&output));
    folder.write("foregate.kdl", "listen {\n");
    let output = folder.run(&["reload"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("foregate.kdl:") && said.contains("`--admin PATH` names the socket itself"),
        "{said}"
    );
}

#[test]
fn the_service_manager_is_told_how_long_the_end_may_take() {
    let folder = Folder::new("notify");
    folder.write(
        "foregate.kdl",
        "listen \"127.0.0.1:0\"\ntimeouts { drain \"3m\" }\nsite \"*\" { route \"/**\" { respond 204 } }\n",
    );
    let manager = UnixDatagram::bind(folder.0.join("notify.sock")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut proxy = Command::new(env!("CARGO_BIN_EXE_foregate"))
        .arg("run")
        .current_dir(&folder.0)
        .env("NOTIFY_SOCKET", folder.0.join("notify.sock"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let told = || {
        let mut message = [0; 200];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    assert_eq!(told(), "READY=1\n");
    Command::new("kill").args(["-QUIT", &proxy.id().to_string()]).status().unwrap();
    assert_eq!(told(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=190000000\n");
    assert!(proxy.wait().unwrap().success());
}

/// Waits until a file holds this text.
#[allow(clippy::disallowed_methods, reason = "no worker waits here")]
fn wait_for(path: &Path, text: &str) {
    let read = || std::fs::read_to_string(path).unwrap();
    let holds = (0..200).any(|_| {
        let holds = read().contains(text);
        if !holds {
            std::thread::sleep(Duration::from_millis(50));
        }
        holds
    });
    assert!(holds, "no {text} in {}", read());
}

#[test]
fn a_log_to_the_standard_output_shares_its_file_with_the_diagnostics() {
    let folder = Folder::new("stdout");
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    folder.write(
        "foregate.kdl",
        &format!(
            "listen \"{address}\"\naccess-log \"/dev/stdout\"\nsite \"*\" {{ route \"/**\" {{ respond 204 }} }}\n"
        ),
    );
    // As `> out.txt 2>&1` of a shell: one place in the file for both, and not at its end by itself.
    let path = folder.0.join("out.txt");
    let out = std::fs::File::create(&path).unwrap();
    let mut proxy = Command::new(env!("CARGO_BIN_EXE_foregate"))
        .args(["run", "-c", "foregate.kdl"])
        .current_dir(&folder.0)
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .spawn()
        .unwrap();
    let until = |text: &str| wait_for(&path, text);
    let ask = |target: &str| {
        let mut client = std::net::TcpStream::connect(address).unwrap();
        write!(client, "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
        until(target);
    };
    let send = |signal: &str| Command::new("kill").args([signal, &proxy.id().to_string()]).status().unwrap();
    until("listening");
    ask("/first");
    send("-HUP");
    until("reloaded");
    ask("/second");
    send("-QUIT");
    assert!(proxy.wait().unwrap().success());
    let out = std::fs::read_to_string(&path).unwrap();
    for (text, start) in [("listening", "20"), ("/first", "{"), ("reloaded", "20"), ("/second", "{")] {
        assert!(out.lines().any(|line| line.contains(text) && line.starts_with(start)), "{text} in {out}");
    }
}

#[test]
fn a_reload_that_hangs_does_not_keep_the_process_from_ending() {
    let folder = Folder::new("hangs");
    folder.write("foregate.kdl", "listen \"127.0.0.1:0\"\nsite \"*\" { route \"/**\" { respond 204 } }\n");
    let manager = UnixDatagram::bind(folder.0.join("notify.sock")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let said = folder.write("stderr.txt", "");
    let mut proxy = Command::new(env!("CARGO_BIN_EXE_foregate"))
        .arg("run")
        .current_dir(&folder.0)
        .env("NOTIFY_SOCKET", folder.0.join("notify.sock"))
        .stderr(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let told = |start: &str| {
        let mut message = [0; 200];
        let length = manager.recv(&mut message).unwrap();
        assert!(
            message[..length].starts_with(start.as_bytes()),
            "{:?}",
            message[..length].escape_ascii().to_string()
        );
    };
    let send = |signal: &str| Command::new("kill").args([signal, &proxy.id().to_string()]).status().unwrap();
    told("READY=1");
    // Nobody writes to it, so that to read it would have no end: it is refused, and the next reload is as usual.
    let file = folder.0.join("foregate.kdl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    for outcome in ["reload refused", "reloaded"] {
        send("-HUP");
        told("RELOADING=1");
        told("READY=1");
        wait_for(&said, outcome);
        let _ = std::fs::remove_file(&file);
        std::fs::write(&file, &text).unwrap();
    }
    // To read this one takes seconds.
    std::fs::write(&file, text + &"/- a { b; }\n".repeat(4_000_000)).unwrap();
    send("-HUP");
    told("RELOADING=1");
    send("-TERM");
    told("STOPPING=1");
    assert!(proxy.wait().unwrap().success());
}

#[test]
fn a_taken_address_is_told_with_what_to_do() {
    let folder = Folder::new("taken");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = folder.run(&["run", "--to", "http://127.0.0.1:1", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains(&format!("error: listen {address}: ")) && said.contains("`ss -ltnp`"), "{said}");
    for (key, written) in [("listen", "  listen"), ("metrics", "listen \"127.0.0.1:0\"\n  metrics")] {
        folder.write(
            "foregate.kdl",
            &format!("{written} \"{address}\"\nsite \"*\" {{ route \"/**\" {{ respond 204 }} }}\n"),
        );
        let output = folder.run(&["run"]);
        assert_eq!(output.status.code(), Some(1));
        let line = written.lines().count();
        let expected = format!("error: {key} {address}: ");
        let said = stderr(&output);
        assert!(
            said.contains(&expected) && said.contains(&format!("\n  at foregate.kdl:{line}:3\n")),
            "{said}"
        );
    }
}

#[test]
fn what_hinders_a_socket_file_is_told_with_what_to_do() {
    let folder = Folder::new("taken-file");
    let _taken = UnixListener::bind(folder.0.join("taken.sock")).unwrap();
    for (path, help) in [("taken.sock", "`ss -lxnp`"), ("none/x.sock", "make it, and let the user")] {
        let address = format!("unix:{}", folder.0.join(path).display());
        let output = folder.run(&["run", "--to", "http://127.0.0.1:1", "--listen", &address]);
        assert_eq!(output.status.code(), Some(1));
        let said = stderr(&output);
        assert!(said.contains(&format!("error: listen {address}: ")) && said.contains(help), "{said}");
    }
}

/// As shells make them for `<(...)`.
#[test]
fn a_configuration_may_come_through_a_pipe() {
    let folder = Folder::new("pipe");
    let mut check = Command::new(env!("CARGO_BIN_EXE_foregate"))
        .args(["check", "-c", "/dev/stdin"])
        .current_dir(&folder.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(FINE.replace("unix:app.sock", "app:1").as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    assert!(stdout(&output).starts_with("/dev/stdin is fine"), "{}", stdout(&output));
}

#[test]
fn modules_are_listed() {
    let folder = Folder::new("modules");
    let text = stdout(&folder.run(&["modules"]));
    assert!(text.starts_with("request-early\n"), "{text}");
    assert!(text.contains("\nresponse-body\n") && text.contains("\n  clear-headers-response  "), "{text}");
    let all = json(&folder.run(&["modules", "--json"]));
    let steps = all["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["name"] == "clear-headers-response").unwrap();
    assert_eq!((&step["phase"], &step["key"]), (&"response-body".into(), &"clear-headers".into()));
    assert_eq!(step["writes"][0]["name"], "response fields");
    let graph = stdout(&folder.run(&["modules", "--graph"]));
    assert!(graph.starts_with("digraph foregate {\n") && graph.ends_with("}\n"), "{graph}");
    assert!(graph.contains("label=\"response-body\";"), "{graph}");

    let one = stdout(&folder.run(&["modules", "clear-headers"]));
    assert!(
        one.starts_with("clear-headers") && one.contains("\nexample\n") && one.contains("\nsteps\n"),
        "{one}"
    );
    assert!(one.contains("when=EXPRESSION"), "{one}");
    let output = folder.run(&["modules", "clear-header"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("did you mean `clear-headers`?"), "{}", stderr(&output));
}

#[test]
fn influence_is_told_with_its_reason() {
    let folder = Folder::new("affects");
    let part = json(&folder.run(&["modules", "--affects", "response fields", "--json"]));
    let changed_by = part["changed_by"].as_array().unwrap();
    let clear = changed_by.iter().find(|link| link["step"] == "clear-headers-response").unwrap();
    assert_eq!((&clear["by"], &clear["via"]), (&serde_json::json!(["response fields"]), &Value::Null));
    let text = stdout(&folder.run(&["modules", "--affects", "clear-headers"]));
    assert!(text.contains("can be changed by\n") && text.contains("can change\n"), "{text}");
    // Nothing changes earlier steps: not a value that is written later, nor a response that is not there yet.
    for late in ["waf.score", "status", "response body"] {
        let changes = json(&folder.run(&["modules", "--affects", late, "--json"]))["changes"].clone();
        let changes = changes.as_array().unwrap();
        assert!(changes.iter().all(|link| link["phase"] != "request-identity"), "{late}: {changes:?}");
        assert!(late == "response body" || !changes.is_empty(), "{late}");
    }
    assert_eq!(folder.run(&["modules", "--affects", "nothing-like-it"]).status.code(), Some(1));
}

/// A new module compiles, and its tests pass, against the contract of this repository.
#[test]
fn a_new_module_builds_and_passes_its_tests() {
    let folder = Folder::new("module-new");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = folder.run(&["module", "new", "my-greeting", "--foregate", root.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let made = folder.0.join("my-greeting");
    std::fs::copy(root.join("Cargo.lock"), made.join("Cargo.lock")).unwrap();
    // The binary that it shows is of the form of `examples/custom-binary`, which is built below.
    let readme = std::fs::read_to_string(made.join("README.md")).unwrap();
    for part in
        ["use foregate::shipped; my_greeting::MyGreeting }", "crates/foregate\" }", "my-greeting = { path"]
    {
        assert!(readme.contains(part), "{part} in {readme}");
    }
    let cargo = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args(arguments)
            .current_dir(&made)
            .env("CARGO_TARGET_DIR", target().join("generated"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}\n{}", stderr(&output));
        stdout(&output)
    };
    let tests = cargo(&["test", "--offline"]);
    assert!(tests.contains("2 passed"), "{tests}");
    cargo(&["fmt", "--check"]);
    let again = folder.run(&["module", "new", "my-greeting"]);
    assert_eq!((again.status.code(), stderr(&again).contains("exists already")), (Some(1), true));
    for (name, why) in [("site", "a key of the configuration"), ("foregate-module", "our own crates")] {
        let refused = folder.run(&["module", "new", name]);
        assert!(!refused.status.success() && stderr(&refused).contains(why), "{name}: {}", stderr(&refused));
    }
    let taken = folder.run(&["module", "new", "clear-headers"]);
    assert_eq!((taken.status.code(), stderr(&taken).contains("there is one of this name")), (Some(2), true));
}

/// The folder that the workspace is built in.
fn target() -> PathBuf {
    // This test lies in its `debug/deps`.
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// `examples/custom-binary` has two modules more, and all the others.
#[test]
fn the_custom_binary_runs() {
    let folder = Folder::new("custom");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/custom-binary");
    // With the versions and the profile of this workspace, all but our own crates are there already.
    std::fs::copy(example.join("../../Cargo.lock"), example.join("Cargo.lock")).unwrap();
    for verb in ["build", "test"] {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([verb, "--offline"]).current_dir(&example).env("CARGO_TARGET_DIR", target());
        for ours in ["", "-module", "-modules", "-proxy", "-rules", "-wire"] {
            let of = format!("profile.dev.package.foregate{ours}");
            cargo.args(["--config", &format!("{of}.opt-level=0")]);
            cargo.args(["--config", &format!("{of}.debug=\"line-tables-only\"")]);
        }
        let output = cargo.output().unwrap();
        assert!(output.status.success(), "{verb}: {}", stderr(&output));
    }
    let binary = target().join("debug/my-foregate");
    let run =
        |arguments: &[&str]| Command::new(&binary).args(arguments).current_dir(&folder.0).output().unwrap();
    let text = stdout(&run(&["modules"]));
    assert!(text.contains("  office-hours  ") && text.contains("  clear-headers-response  "), "{text}");
    // Own filters of bodies see the uncompressed body.
    let place = |step: &str| text.find(&format!("  {step}  ")).unwrap();
    assert!(
        place("decode-for-filters") < place("quote-write") && place("quote-write") < place("compress"),
        "{text}"
    );
    folder.write(
        "foregate.kdl",
        "listen \":1\"\noffice-hours from=9 to=25\nsite \"*\" { route \"/**\" { respond 200 } }\n",
    );
    let output = run(&["check"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("foregate.kdl:2:24: error: `to=25`: expected a whole number"),
        "{}",
        stderr(&output)
    );
    folder.write("foregate.kdl", "listen \":1\"\noffice-hours from=9 to=17 dry-run=#true\nsite \"*\" { route \"/**\" { respond 200 } }\n");
    let text = stdout(&run(&["explain", "http://example.com:1/"]));
    assert!(text.contains("request-security  office-hours  (dry-run)"), "{text}");
}

#[test]
fn wrong_usage_is_2() {
    let folder = Folder::new("usage");
    for arguments in
        [&["jump"][..], &[], &["run", "--to", "nonsense"], &["run", "--listen", ":1"], &["check", "-x"]]
    {
        assert_eq!(folder.run(arguments).status.code(), Some(2), "{arguments:?}");
    }
    assert_eq!(folder.run(&["check", "-c", "nothing.kdl"]).status.code(), Some(1));
    let output = folder.run(&["check", "some.kdl"]);
    assert!(stderr(&output).contains("`-c some.kdl`"), "{}", stderr(&output));
    assert!(stdout(&folder.run(&["version"])).starts_with("foregate "));
    assert!(stdout(&folder.run(&["completions", "bash"])).contains("explain"));
}

/// 100,000 sites with five routes each. `cargo test --release -p foregate --test cli -- --ignored --nocapture`
#[test]
#[ignore = "takes long without optimisation"]
fn many_sites_are_read_fast() {
    let folder = Folder::new("many");
    let mut text =
        String::from("listen \"127.0.0.1:8080\"\nupstream \"app\" { server \"127.0.0.1:3000\" }\n");
    for i in 0..100_000 {
        text.push_str(&format!(
            "site \"host{i}.example.com\" \"*.host{i}.example.net\" {{\n    route \"/\" {{ proxy \"app\" }}\n    \
             route \"/static/**\" {{ proxy \"app\" }}\n    route \"/api/*/items\" {{ proxy \"app\"; body-limit \
             \"10MiB\" }}\n    route \"/health\" {{ respond 200 \"ok\" }}\n    route \"/**\" {{ proxy \"app\" }}\n}}\n"
        ));
    }
    let path = folder.write("many.kdl", &text);
    let (seconds, kibibytes) = measured(&["check", "-c", path.to_str().unwrap()]);
    println!("{seconds:.2} s, {} MiB", kibibytes / 1024);
    assert!(seconds < 3.0, "{seconds} s");
    assert!(kibibytes < 300_000, "{kibibytes} KiB");
}

/// Wall-clock seconds and peak memory of a run.
fn measured(arguments: &[&str]) -> (f64, u64) {
    let start = std::time::Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_foregate")).args(arguments).spawn().unwrap();
    let status = Path::new("/proc").join(child.id().to_string()).join("status");
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(peak);
        std::thread::yield_now();
    }
    assert!(child.wait().unwrap().success());
    (start.elapsed().as_secs_f64(), peak)
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test's thread may sleep")]
fn a_standard_error_that_cannot_be_written_ends_nothing() {
    let folder = Folder::new("full");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let text = format!("listen \"{address}\"\nsite \"*\" {{ route \"/**\" {{ respond 204 }} }}\n");
    let file = folder.write("foregate.kdl", &text);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_foregate"))
        .args(["run", "--single"])
        .arg("-c")
        .arg(&file)
        .stderr(full)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let connect = || std::net::TcpStream::connect(address).ok();
    let connected = (0..200).find_map(|_| {
        connect().or_else(|| {
            std::thread::sleep(Duration::from_millis(50));
            None
        })
    });
    let mut connected = connected.unwrap();
    connected.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut start = [0; 12];
    connected.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 204");
    assert!(child.try_wait().unwrap().is_none(), "it goes on");
    child.kill().unwrap();
    child.wait().unwrap();
}
