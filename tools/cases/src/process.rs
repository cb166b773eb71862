//! The proxy's process: its configuration, its start, its end.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};

use crate::case::{Case, OriginMode};
use crate::text::{Text, Variables};

/// How long the proxy may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(10);

/// How long the proxy may take to end when nothing holds it.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// How long processes may take to be gone once they are killed.
const GONE_LIMIT: Duration = Duration::from_millis(500);

/// A pause between two looks at a process.
const POLL: Duration = Duration::from_millis(3);

/// The running proxy.
pub struct Proxy {
    child: Child,
    /// The socket that it inherited: as long as it is open here, the proxy cannot have bound it itself.
    _inherited: Option<TcpListener>,
    stderr: PathBuf,
    exit: Option<i32>,
}

impl Proxy {
    /// Starts `BINARY run -c CONFIG` in the folder and waits until it listens wherever the configuration says. It gets
    /// `inherited` by `LISTEN_FDS`, and at most so many `descriptors`.
    ///
    /// # Errors
    ///
    /// When it ends or does not listen in time, with its standard error.
    pub fn start(
        binary: &Path,
        folder: &Path,
        config: &str,
        inherited: Option<TcpListener>,
        descriptors: Option<u32>,
    ) -> Result<Self, String> {
        let stderr = folder.join("stderr");
        let output = File::create(&stderr).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = output.map_err(|error| format!("{}: {error}", stderr.display()))?;
        let mut input = Stdio::null();
        let mut script = String::new();
        if let Some(number) = descriptors {
            script.push_str(&format!("ulimit -n {number}; "));
        }
        if let Some(listener) = &inherited {
            // The socket comes as standard input; LISTEN_PID has to be that of the proxy, which the shell becomes.
            input = OwnedFd::from(listener.try_clone().map_err(|error| error.to_string())?).into();
            script.push_str("exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; ");
        }
        script.push_str("exec \"$@\"");
        let child = Command::new("/bin/sh")
            .args(["-c", &script, "sh"])
            .arg(binary)
            .args(["run", "-c"])
            .arg(folder.join("case.kdl"))
            .current_dir(folder)
            .process_group(0)
            .stdin(input)
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let mut proxy = Self { child, _inherited: inherited, stderr, exit: None };
        let addresses = listening_addresses(config);
        let deadline = Instant::now() + START_LIMIT;
        // Twice in a row: another run that looks for free ports may hold one of them for a moment.
        let mut seen = 0;
        while seen < 2 {
            seen = if addresses.iter().all(|address| is_listening(address)) { seen + 1 } else { 0 };
            if let Some(code) = proxy.try_exit() {
                return Err(format!("the proxy ended with {code} at its start:\n{}", proxy.stderr()));
            }
            if Instant::now() > deadline {
                proxy.kill();
                return Err(format!("the proxy does not listen on {addresses:?}:\n{}", proxy.stderr()));
            }
            std::thread::sleep(POLL);
        }
        Ok(proxy)
    }

    /// Its output so far.
    pub fn stderr(&self) -> String {
        fs::read(&self.stderr).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Its exit code when it has ended; minus the signal's number when a signal ended it.
    pub fn try_exit(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt as _;
        if self.exit.is_none() {
            let status = self.child.try_wait().ok().flatten();
            self.exit = status.map(|status| status.code().unwrap_or_else(|| -status.signal().unwrap_or(0)));
        }
        self.exit
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// When there is no such signal.
    pub fn signal(&self, name: &str) -> Result<(), String> {
        let signal = match name {
            "HUP" => Signal::HUP,
            "INT" => Signal::INT,
            "TERM" => Signal::TERM,
            "QUIT" => Signal::QUIT,
            "USR1" => Signal::USR1,
            "USR2" => Signal::USR2,
            _ => return Err(format!("no signal `{name}`")),
        };
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).map_err(|error| format!("kill: {error}"))
    }

    /// Resident memory in bytes, of the process and of those that it has started.
    pub fn memory(&self) -> u64 {
        let memory = |process: u32| {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            number.unwrap_or(0) * 1024
        };
        let own = self.child.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|child| child.parse::<u32>().ok());
        memory(own) + children.map(memory).sum::<u64>()
    }

    /// Ends it gracefully, at the end of a case.
    ///
    /// # Errors
    ///
    /// When it had ended before, does not end in time, ends with another code than 0, or panicked.
    pub fn finish(&mut self, expected_end: Option<i32>) -> Result<(), String> {
        if let Some(code) = self.try_exit()
            && expected_end != Some(code)
        {
            return Err(format!("the proxy ended by itself with {code}"));
        }
        if self.exit.is_none() {
            self.signal("QUIT")?;
            let deadline = Instant::now() + STOP_LIMIT;
            while self.try_exit().is_none() {
                if Instant::now() > deadline {
                    self.kill();
                    return Err(format!("the proxy did not end within {STOP_LIMIT:?} after SIGQUIT"));
                }
                std::thread::sleep(POLL);
            }
            if self.exit != Some(0) {
                return Err(format!("after SIGQUIT the proxy ended with {:?}, not 0", self.exit));
            }
        }
        if self.stderr().contains("panicked") {
            return Err("the proxy panicked".to_owned());
        }
        Ok(())
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        // With those that it has started: they are of its group.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        drop(self.child.kill());
        drop(self.child.wait());
        // A process of the group may still hold its sockets for a moment, and the next proxy would seem to listen.
        let deadline = Instant::now() + GONE_LIMIT;
        while test_kill_process_group(Pid::from_child(&self.child)).is_ok() && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        self.exit = self.exit.or(Some(-9));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.kill();
        }
    }
}

/// The configuration of a case, variables replaced.
///
/// # Errors
///
/// An unknown variable.
pub fn render_config(case: &Case, variables: &Variables) -> Result<String, String> {
    let text = |text: &Text| text.string(variables);
    let parts = &case.config;
    if let Some(whole) = &parts.whole {
        return text(whole);
    }
    let servers = match &parts.server {
        Some(server) => text(server)?,
        None => default_servers(case, variables),
    };
    Ok(format!(
        "workers 1\n{top}listen \"{listen_address}\" {{\n{listen}}}\nupstream \"app\" {{\n{servers}{upstream}}}\n\
         site \"*\" {{\n{site}route \"/**\" {{\n{route}proxy \"app\"\n}}\n}}\n",
        top = text(&parts.top)?,
        listen_address = variables.get("listen").map_or("", String::as_str),
        listen = text(&parts.listen)?,
        upstream = text(&parts.upstream)?,
        site = text(&parts.site)?,
        route = text(&parts.route)?,
    ))
}

fn default_servers(case: &Case, variables: &Variables) -> String {
    let line = |name: &str| format!("server \"{}\"\n", variables.get(name).map_or("", String::as_str));
    if case.origins.is_empty() {
        return line("spare");
    }
    case.origins.iter().map(|origin| line(&origin.name)).collect()
}

/// Returns true if an origin of this mode needs a listener.
pub fn listens(mode: OriginMode) -> bool {
    mode != OriginMode::Down
}

/// The addresses on `listen` and `metrics` lines.
fn listening_addresses(config: &str) -> Vec<String> {
    let lines = config.lines().map(str::trim_start);
    lines
        .filter_map(|line| line.strip_prefix("listen \"").or_else(|| line.strip_prefix("metrics \"")))
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect()
}

/// Looks into the kernel's tables, so that the proxy sees no connection that the case does not make.
fn is_listening(address: &str) -> bool {
    if let Some(path) = address.strip_prefix("unix:") {
        let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        return table.lines().any(|line| line.ends_with(path));
    }
    let Some(port) = address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()) else {
        return true;
    };
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|path| {
        let table = fs::read_to_string(path).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let local = columns.next().and_then(|local| local.rsplit(':').next());
            let state = columns.nth(1);
            local.and_then(|hex| u16::from_str_radix(hex, 16).ok()) == Some(port) && state == Some("0A")
        })
    })
}

/// The sum of the series that begin with `series`, as the metrics address shows them.
///
/// # Errors
///
/// When the address does not answer or no series begins so.
pub fn metric(address: &str, series: &str) -> Result<f64, String> {
    let told = |error: std::io::Error| format!("metrics at {address}: {error}");
    let mut stream = TcpStream::connect(address).map_err(told)?;
    stream.set_read_timeout(Some(STOP_LIMIT)).map_err(told)?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(told)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(told)?;
    let answer = String::from_utf8_lossy(&answer);
    let values: Vec<f64> = answer
        .lines()
        .filter(|line| line.starts_with(series))
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    if values.is_empty() {
        return Err(format!("no series begins with {series} in:\n{answer}"));
    }
    Ok(values.iter().sum())
}
