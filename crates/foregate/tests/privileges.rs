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

/// `run` opens files with the rights of the user, so root sees with these what the user may not do.
#[test]
fn doctor_and_check_judge_files_as_the_user() {
    if status("self", "Uid") != "0" {
        return;
    }
    let folder = std::env::temp_dir().join(format!("foregate-user-files-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("foregate.kdl");
    let path = file.to_str().unwrap();
    let log = folder.join("access.log");
    fs::write(&file, format!("access-log \"{}\"\n{}", log.display(), configuration(&[0]))).unwrap();
    let doctor = foregate(&["doctor", "-c", path]);
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert_eq!(doctor.status.code(), Some(1), "{said}");
    assert!(said.contains("as `nobody`") && said.contains("cannot write"), "{said}");
    let check = foregate(&["check", "-c", path]);
    let said = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(check.status.success() && said.contains("`nobody`") && said.contains("cannot write"), "{said}");
    std::os::unix::fs::chown(&folder, Some(65_534), None).unwrap();
    let said = String::from_utf8_lossy(&foregate(&["doctor", "-c", path]).stdout).into_owned();
    assert!(said.contains("`nobody` can read and write"), "{said}");
    fs::remove_dir_all(&folder).unwrap();
}

/// A supervisor that follows a killed one runs as the user of the serving process, which the system lets nobody but root look into.
#[test]
fn a_supervisor_without_rights_knows_the_memory_of_the_process_that_serves() {
    let folder = std::env::temp_dir().join(format!("foregate-user-memory-{}", std::process::id()));
    // The successor of the supervisor belongs to the user, and puts its socket here.
    let sockets = folder.join("run");
    fs::create_dir_all(&sockets).unwrap();
    let file = folder.join("foregate.kdl");
    let path = file.to_str().unwrap().to_owned();
    if status("self", "Uid") != "0" {
        // Only root can give up rights; the other test has shown the refusal.
        fs::remove_dir_all(&folder).unwrap();
        return;
    }
    // The user may not be allowed into the folder of the build.
    let program = folder.join("foregate");
    fs::copy(env!("CARGO_BIN_EXE_foregate"), &program).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    fs::write(&file, configuration(&[port])).unwrap();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).args(["-c", &path]).env("RUNTIME_DIRECTORY", &sockets).current_dir(&folder);
        command
    };
    let first = command(&["run"]).stderr(Stdio::null()).spawn().unwrap();
    let mut first = Running(first, folder.clone());
    eventually("it serves", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let shown = || -> serde_json::Value {
        serde_json::from_slice(&command(&["status", "--json"]).output().unwrap().stdout).unwrap_or_default()
    };
    let memory = |shown: &serde_json::Value| shown["generations"][0]["memory"].as_u64().unwrap_or_default();
    eventually("root sees the memory", || memory(&shown()) > 1 << 20);
    let before = shown()["supervisor"]["pid"].clone();
    // Below /tmp a socket is made in a folder of its user alone.
    let user = status(&shown()["generations"][0]["pid"].to_string(), "Uid").parse().unwrap();
    std::os::unix::fs::chown(&sockets, Some(user), None).unwrap();
    fs::set_permissions(&sockets, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    eventually("another supervisor follows", || {
        let pid = &shown()["supervisor"]["pid"];
        pid.is_u64() && *pid != before
    });
    let now = shown();
    let supervisor = now["supervisor"]["pid"].to_string();
    assert_ne!(status(&supervisor, "Uid"), "0");
    assert!(memory(&now) > 1 << 20, "{now}");
    let upgrade = command(&["upgrade", "--stages", "100%", "--bake", "300ms"]).output().unwrap();
    let end = Command::new("kill").args(["-QUIT", &supervisor]).status().unwrap();
    assert!(upgrade.status.success(), "{}", String::from_utf8_lossy(&upgrade.stderr));
    assert!(end.success());
    eventually("it has ended", || fs::metadata(format!("/proc/{supervisor}")).is_err());
}
