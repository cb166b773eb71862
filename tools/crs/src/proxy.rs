//! The proxy with the rules, in a folder of its own.

use std::fs;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// What the suite needs beside the rules' own defaults; its readme lists it.
const SETUP: &str = include_str!("../setup.conf");
/// How long it may take to load the rules and listen.
const START: Duration = Duration::from_secs(30);
/// How long it may take to end.
const STOP: Duration = Duration::from_secs(30);
/// Between two looks.
const POLL: Duration = Duration::from_millis(10);

/// The proxy at work.
pub struct Proxy {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    log: PathBuf,
    stderr: PathBuf,
}

impl Proxy {
    /// Starts it with the rules of `crs` in front of an origin, in an empty folder.
    ///
    /// # Errors
    ///
    /// It does not start; with what it has said.
    pub fn start(binary: &Path, crs: &Path, origin: SocketAddr, folder: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(failed)?;
        let (config, log, stderr) =
            (folder.join("foregate.kdl"), folder.join("waf.log"), folder.join("stderr"));
        fs::write(folder.join("setup.conf"), SETUP).map_err(failed)?;
        let rules = crs.join("rules");
        let text = format!(
            "listen \"{address}\"\n\
             upstream \"origin\" {{ server \"{origin}\" }}\n\
             waf mode=\"block\" log=\"waf.log\" {{\n\
             \x20   rules \"{rules}/@coraza.conf-recommended\" \"{rules}/@crs-setup.conf.example\" \"setup.conf\" \"{rules}/@owasp_crs/*.conf\"\n\
             }}\n\
             site \"*\" {{ allow-underscores #true; route \"/**\" {{ allow-connect #true; proxy \"origin\" }} }}\n",
            rules = rules.display()
        );
        fs::write(&config, text).map_err(failed)?;
        let output = fs::File::create(&stderr).map_err(failed)?;
        let child = Command::new(binary)
            .arg("run")
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

    /// What it has written to its standard error.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Ends it in good order, and gives what it has logged.
    ///
    /// # Errors
    ///
    /// It does not end, or there is no log.
    pub fn finish(mut self) -> Result<Vec<u8>, String> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).map_err(|error| error.to_string())?;
        let deadline = Instant::now() + STOP;
        while self.child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if Instant::now() > deadline {
                return Err(format!("the proxy does not end:\n{}", self.said()));
            }
            pause();
        }
        let mut log = Vec::new();
        let mut file =
            fs::File::open(&self.log).map_err(|error| format!("{}: {error}", self.log.display()))?;
        file.read_to_end(&mut log).map_err(|error| error.to_string())?;
        Ok(log)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "this thread has nothing else to do")]
fn pause() {
    thread::sleep(POLL);
}
