//! `user` in the configuration: the serving process gives up the rights of root, and can still bind low ports.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// `CAP_NET_BIND_SERVICE` alone, as `/proc/PID/status` has it.
const LOW_PORTS: &str = "0000000000000400";

struct Running(Child, PathBuf);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-QUIT", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
        let _ = fs::remove_dir_all(&self.1);
    }
}

fn foregate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foregate")).args(arguments).output().unwrap()
}

#[allow(clippy::disallowed_methods, reason = "no worker waits here")]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let held = (0..200).any(|_| {
        let held = holds();
        if !held {
            std::thread::sleep(Duration::from_millis(50));
        }
        held
    });
    assert!(held, "{what}");
}

/// Two ports below 1024 that nothing has.
fn low_ports() -> [u16; 2] {
    let free: Vec<u16> =
        (600..1000).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).take(2).collect();
    free.try_into().unwrap()
}

fn configuration(ports: &[u16]) -> String {
    let listeners: String = ports.iter().map(|port| format!("listen \"127.0.0.1:{port}\"\n")).collect();
    format!("user \"nobody\"\n{listeners}site \"*\" {{ route \"/**\" {{ respond 204 }} }}\n")
}

/// The value of a line of `/proc/PID/status`.
fn status(pid: &str, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').split_whitespace().next().unwrap().to_owned()
}

#[test]
fn root_becomes_an_ordinary_user_that_may_bind_low_ports() {
    let folder = std::env::temp_dir().join(format!("foregate-user-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("foregate.kdl");
    let path = file.to_str().unwrap();
    let is_root = status("self", "Uid") == "0";
    if !is_root {
        fs::write(&file, configuration(&[0])).unwrap();
        let refused = foregate(&["run", "--single", "-c", path]);
        assert_eq!(refused.status.code(), Some(1));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("only root can change to the user `nobody`"), "{said}");
        fs::remove_dir_all(&folder).unwrap();
        return;
    }
    let [first, second] = low_ports();
    fs::write(&file, configuration(&[first])).unwrap();
    let supervisor = Command::new(env!("CARGO_BIN_EXE_foregate"))
        .args(["run", "-c", path])
        .current_dir(&folder)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let running = Running(supervisor, folder.clone());
    let answers = |port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
    eventually("it serves", || answers(first));
    let generations = || -> serde_json::Value {
        let shown = foregate(&["status", "-c", path, "--json"]);
        serde_json::from_slice(&shown.stdout).unwrap_or_default()
    };
    let pid = generations()["generations"][0]["pid"].to_string();
    assert_ne!(status(&pid, "Uid"), "0");
    assert_eq!(status(&pid, "CapEff"), LOW_PORTS);
    assert_eq!(status(&pid, "CapPrm"), LOW_PORTS);
    assert_ne!(status(&pid, "Gid"), "0");
    // Every thread has given them up.
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let thread = thread.unwrap().file_name().into_string().unwrap();
        assert_eq!(status(&format!("{pid}/task/{thread}"), "CapEff"), LOW_PORTS, "thread {thread}");
    }
    // The supervisor can still start another one.
    assert_eq!(status(&running.0.id().to_string(), "Uid"), "0");

    // A reload binds another low port.
    fs::write(&file, configuration(&[first, second])).unwrap();
    Command::new("kill").args(["-HUP", &running.0.id().to_string()]).status().unwrap();
    eventually("the reload binds a low port", || answers(second));
}
