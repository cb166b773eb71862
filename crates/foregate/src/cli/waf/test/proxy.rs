//! The proxy with the rules, in a folder of its own.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long it may take to load the rules and listen.
const START: Duration = Duration::from_secs(30);
/// How long it may take to end.
const STOP: Duration = Duration::from_secs(30);
/// Between two looks.
const POLL: Duration = Duration::from_millis(10);

/// The proxy at work.
pub(super) struct Proxy {
    child: Child,
    /// Where it listens.
    pub(super) address: SocketAddr,
    log: PathBuf,
    stderr: PathBuf,
}

impl Proxy {
    /// Starts it with the rules of these files in front of an origin, in an empty folder.
    ///
    /// # Errors
    ///
    /// The proxy does not start; with its output.
    pub(super) fn start(rules: &[String], origin: SocketAddr, folder: &Path) -> Result<Self, String> {
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(failed)?;
        let (config, log, stderr) =
            (folder.join("foregate.kdl"), folder.join("waf.log"), folder.join("stderr"));
        let binary = std::env::current_exe().map_err(|error| format!("this program's file: {error}"))?;
        let rules = rules.iter().map(|file| quoted(file)).collect::<Result<Vec<_>, _>>()?;
        // Checks that a site may apply before any rule, such as for `_` in names, are left to the rules.
        let text = format!(
            "listen \"{address}\"\n\
             upstream \"origin\" {{ server \"{origin}\" }}\n\
             waf mode=\"block\" log=\"waf.log\" {{ rules {}; }}\n\
             site \"*\" {{ allow-underscores #true; route \"/**\" {{ allow-connect #true; proxy \"origin\" }} }}\n",
            rules.join(" ")
        );
        fs::write(&config, text).map_err(failed)?;
        let output = fs::File::create(&stderr).map_err(failed)?;
        let child = Command::new(&binary)
            // It is ended by a signal that no process can pass on.
            .args(["run", "--single"])
            .arg("-c")
            .arg(&config)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let mut proxy = Self { child, address, log, stderr };
        let deadline = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            let ended = proxy.child.try_wait().map_err(failed)?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(format!("the proxy does not listen:\n{}", proxy.said()));
            }
            pause();
        }
        Ok(proxy)
    }

    /// Its standard error so far.
    pub(super) fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Stops it gracefully; returns its log and its standard error.
    ///
    /// # Errors
    ///
    /// The proxy does not end, or there is no log.
    pub(super) fn finish(mut self) -> Result<(Vec<u8>, String), String> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).map_err(|error| error.to_string())?;
        let deadline = Instant::now() + STOP;
        while self.child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if Instant::now() > deadline {
                return Err(format!("the proxy does not end:\n{}", self.said()));
            }
            pause();
        }
        let log = fs::read(&self.log).map_err(|error| format!("{}: {error}", self.log.display()))?;
        Ok((log, self.said()))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "this thread has nothing else to do")]
fn pause() {
    thread::sleep(POLL);
}

/// A path of this folder as a text of a configuration file that lies elsewhere.
fn quoted(path: &str) -> Result<String, String> {
    let path = std::path::absolute(path).map_err(|error| format!("{path}: {error}"))?;
    let path = path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()))?;
    if path.contains(char::is_control) {
        return Err(format!("{path:?} has a control character"));
    }
    Ok(format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"").replace("${", "$${")))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn paths_are_texts_of_a_configuration() {
        assert_eq!(quoted("/a \\ \"b\" ${c}*.conf").as_deref(), Ok(r#""/a \\ \"b\" $${c}*.conf""#));
        assert!(
            quoted("rules.conf").is_ok_and(|text| text.starts_with("\"/") && text.ends_with("/rules.conf\""))
        );
        assert!(quoted("/a\nb").is_err());
    }
}
