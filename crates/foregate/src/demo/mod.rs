//! The quickstart: a demo origin inside the binary, a certificate made at first start, and a
//! configuration that shows proxying, HTTP/2 and TLS at once.
//!
//! `foregate demo` is [`DemoArguments::run`]: the origin alone. `foregate quickstart` is
//! [`QuickstartArguments::start`], which makes everything ready and serves the origin from a thread of
//! its own; then the proxy is started with the file that [`PreparedQuickstart`] names.

mod banner;
mod certificate;
mod large;
mod live;
mod origin;

use std::{
    env, fs,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
};

use clap::Args;

/// The tour's configuration, as shipped in `examples/quickstart.kdl`.
const CONFIGURATION: &str = include_str!("../../../../examples/quickstart.kdl");

/// The firewall rules of the tour: the file name that the configuration uses, and the content.
const RULES: (&str, &str) = ("rules.conf", include_str!("rules.conf"));

/// The folder of the access log that the demo page shows.
const LOG: &str = "log";

/// The extension of the copy of the shipped configuration. A difference from the copy shows that the file was edited.
const SHIPPED: &str = "kdl.shipped";

/// The default address of the demo origin.
const ORIGIN: SocketAddr = loopback(8081);

/// The names for which the quickstart's certificate is made.
const NAMES: &[&str] = &["localhost", "127.0.0.1", "::1"];

/// The advice if the address of the demo origin is taken.
const OTHER_PORT: &str = "name another address: `foregate demo --listen 127.0.0.1:PORT`";

const HTTP: SocketAddr = loopback(8080);
const HTTPS: SocketAddr = loopback(8443);
const METRICS: SocketAddr = loopback(9145);

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Why the quickstart could not be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuickstartError {
    /// Neither `XDG_STATE_HOME` nor `HOME` is an absolute path.
    #[error("no folder for the state: set XDG_STATE_HOME or HOME to an absolute path")]
    NoStateFolder,
    /// The certificate is missing and could not be made.
    #[error(transparent)]
    Certificate(#[from] certificate::CertificateError),
    /// The configuration cannot be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The demo origin could not be started.
    #[error("cannot start the demo origin: {0}")]
    Origin(io::Error),
    /// No socket could be opened at this address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address tried.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
        /// The advice if the address is taken.
        if_taken: String,
    },
    /// Another quickstart is using the folder.
    #[error("another quickstart is running with {folder}{process}", folder = folder.display())]
    Running {
        /// The state folder of the other quickstart.
        folder: PathBuf,
        /// The process id of the other quickstart, in brackets; empty if it is unknown.
        process: String,
    },
}

impl QuickstartError {
    /// The advice for this error.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::Listen { source, if_taken, .. } if source.kind() == io::ErrorKind::AddrInUse => Some(format!(
                "another process listens there: stop it, or {if_taken}"
            )),
            Self::Running { .. } => Some(
                "stop it with Ctrl-C, or start a second one beside it with a folder of its own: `foregate quickstart --state FOLDER`"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// The arguments of `foregate quickstart`.
#[derive(Debug, Args)]
pub(crate) struct QuickstartArguments {
    /// Start the proxy with this file instead of the tour's; the demo origin listens on 127.0.0.1:8081
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    configuration: Option<PathBuf>,
    /// The folder of this quickstart: its configuration quickstart.kdl, its certificate and its admin socket. A second
    /// quickstart beside a running one needs another folder [default: $XDG_STATE_HOME/foregate, else ~/.local/state/foregate]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Restore the original configuration; an edited one is kept as quickstart.kdl.old
    #[arg(long, conflicts_with = "configuration")]
    reset: bool,
}

/// The prepared quickstart.
#[derive(Debug)]
pub(crate) struct PreparedQuickstart {
    /// The configuration to run the proxy with.
    pub(crate) configuration: PathBuf,
    /// The text to print once the proxy listens: all addresses, and the commands to try.
    pub(crate) banner: String,
    /// The advice if an address of the configuration is taken.
    pub(crate) if_taken: String,
    /// The lock on the folder, held while the proxy runs so that no other quickstart changes the configuration.
    _lock: Option<fs::File>,
}

impl QuickstartArguments {
    /// Makes certificate and configuration if needed and starts the demo origin on a thread of its own,
    /// which ends with the process.
    ///
    /// # Errors
    ///
    /// See [`QuickstartError`].
    pub(crate) fn start(self) -> Result<PreparedQuickstart, QuickstartError> {
        let folder = self.state.map_or_else(state_folder, Ok)?;
        let Some(configuration) = self.configuration else {
            let quickstart = prepare(&folder, self.reset)?;
            let banner = quickstart.banner();
            let Quickstart { configuration, lock, origin, .. } = quickstart;
            origin::spawn(origin).map_err(QuickstartError::Origin)?;
            let if_taken = if_taken(&configuration);
            return Ok(PreparedQuickstart { configuration, banner, if_taken, _lock: Some(lock) });
        };
        let pair = certificate::ensure(&folder, NAMES)?;
        // The file given by `-c` names this port, so no other port can be used.
        let elsewhere = "start without `-c`, which takes free ports";
        let listener = TcpListener::bind(ORIGIN).map_err(not_bound(ORIGIN, elsewhere))?;
        origin::spawn(listener).map_err(QuickstartError::Origin)?;
        let banner = format!(
            "A demo origin is on http://{ORIGIN}.\nA certificate for localhost: {}, key {}\n",
            pair.certificate.display(),
            pair.key.display()
        );
        let if_taken = format!("change the address in {}", configuration.display());
        Ok(PreparedQuickstart { configuration, banner, if_taken, _lock: None })
    }
}

/// The arguments of `foregate demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value_t = ORIGIN)]
    listen: SocketAddr,
}

impl DemoArguments {
    /// Serves the demo origin until the process is interrupted or terminated. Calls `ready` with the
    /// address once it listens.
    ///
    /// # Errors
    ///
    /// [`QuickstartError::Listen`] and [`QuickstartError::Origin`].
    pub(crate) fn run(self, ready: impl FnOnce(SocketAddr)) -> Result<(), QuickstartError> {
        let listener = TcpListener::bind(self.listen).map_err(not_bound(self.listen, OTHER_PORT))?;
        ready(address(&listener, self.listen)?);
        origin::run(listener).map_err(QuickstartError::Origin)
    }
}

/// Everything that the quickstart needs to start.
#[derive(Debug)]
struct Quickstart {
    /// The file to start the proxy with.
    configuration: PathBuf,
    /// The file that is locked while this process runs, so that no other quickstart starts with the same folder.
    lock: fs::File,
    /// The source of the configuration.
    origin_of_file: FileOrigin,
    /// The demo origin's socket.
    origin: TcpListener,
    addresses: Addresses,
}

/// The source of the configuration of a start.
#[derive(Debug, PartialEq, Eq)]
enum FileOrigin {
    /// The shipped configuration, written at this start.
    Shipped,
    /// An edited file, which is used as it is.
    Edited,
    /// The shipped configuration; the edited file has been renamed to this path.
    Reset(PathBuf),
}

/// The addresses on which the quickstart's parts listen.
#[derive(Debug, Clone, Copy)]
struct Addresses {
    http: SocketAddr,
    https: SocketAddr,
    metrics: SocketAddr,
    origin: SocketAddr,
}

/// The folder for files that outlive a run: `$XDG_STATE_HOME/foregate`, or `~/.local/state/foregate`.
///
/// # Errors
///
/// [`QuickstartError::NoStateFolder`]. Relative paths count as unset, as the XDG specification asks.
fn state_folder() -> Result<PathBuf, QuickstartError> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("foregate"))
        .ok_or(QuickstartError::NoStateFolder)
}

/// Makes the certificate if needed, opens the demo origin's socket and writes the configuration, all
/// in `folder` (see [`state_folder`]). An edited configuration is left as it is, unless `reset` is true.
///
/// If a default port is taken, a free one replaces it. An edited configuration keeps its ports; if one is taken, the
/// proxy reports it when it opens its sockets.
///
/// # Errors
///
/// See [`QuickstartError`].
fn prepare(folder: &Path, reset: bool) -> Result<Quickstart, QuickstartError> {
    certificate::ensure(folder, NAMES)?;
    let lock = lock(folder)?;
    let rules = folder.join(RULES.0);
    if !rules.exists() || reset {
        fs::write(&rules, RULES.1).map_err(failed(&rules))?;
    }
    let log = folder.join(LOG);
    fs::create_dir_all(&log).map_err(failed(&log))?;
    let usual = folder.join("quickstart.kdl");
    let edited = fs::read_to_string(&usual).ok().filter(|text| is_edited(&usual, text));
    if let Some(text) = edited.as_ref().filter(|_| !reset) {
        let addresses = Addresses::of(text);
        let origin =
            TcpListener::bind(addresses.origin).map_err(not_bound(addresses.origin, &if_taken(&usual)))?;
        let origin_of_file = FileOrigin::Edited;
        return Ok(Quickstart { configuration: usual, lock, origin_of_file, origin, addresses });
    }
    let origin_of_file = match edited {
        None => FileOrigin::Shipped,
        Some(_) => {
            let kept = free_name(&usual);
            fs::rename(&usual, &kept).map_err(failed(&kept))?;
            FileOrigin::Reset(kept)
        }
    };
    // All four are held until each has its port, so that no two get the same one.
    let http = listen(HTTP)?;
    let https = listen(HTTPS)?;
    let metrics = listen(METRICS)?;
    let origin = listen(ORIGIN)?;
    let addresses = Addresses {
        http: address(&http, HTTP)?,
        https: address(&https, HTTPS)?,
        metrics: address(&metrics, METRICS)?,
        origin: address(&origin, ORIGIN)?,
    };
    let configuration = write(folder, &addresses)?;
    Ok(Quickstart { configuration, lock, origin_of_file, origin, addresses })
}

/// Locks the folder for this process, as long as the returned file is open.
fn lock(folder: &Path) -> Result<fs::File, QuickstartError> {
    let path = folder.join("quickstart.lock");
    let mut lock = fs::File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(failed(&path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            let process = holder.trim().parse::<u32>().map_or(String::new(), |id| format!(" (process {id})"));
            return Err(QuickstartError::Running { folder: folder.to_owned(), process });
        }
        Err(fs::TryLockError::Error(source)) => return Err(QuickstartError::Write { path, source }),
    }
    // The process id is for the error message of a second quickstart.
    lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(failed(&path))?;
    Ok(lock)
}

fn not_bound(address: SocketAddr, if_taken: &str) -> impl FnOnce(io::Error) -> QuickstartError {
    let if_taken = if_taken.to_owned();
    move |source| QuickstartError::Listen { address, source, if_taken }
}

/// The advice if an address of an edited configuration is taken.
fn if_taken(configuration: &Path) -> String {
    format!(
        "change the address in {}, or type `foregate quickstart --reset` for the original file with free ports",
        configuration.display()
    )
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> QuickstartError {
    let path = path.to_owned();
    move |source| QuickstartError::Write { path, source }
}

/// Writes the shipped configuration, and a copy that tells later whether it was edited.
fn write(folder: &Path, addresses: &Addresses) -> Result<PathBuf, QuickstartError> {
    let configuration = folder.join("quickstart.kdl");
    let text = configuration_for(addresses);
    for path in [&configuration.with_extension(SHIPPED), &configuration] {
        fs::write(path, &text).map_err(failed(path))?;
    }
    Ok(configuration)
}

/// Returns true if a configuration differs from the text that was written for it, perhaps by an older version.
fn is_edited(configuration: &Path, text: &str) -> bool {
    let written = fs::read_to_string(configuration.with_extension(SHIPPED));
    let written = written.as_deref().unwrap_or(CONFIGURATION);
    without_ports(text) != without_ports(written)
}

/// The text without the ports, which depend on the machine.
fn without_ports(text: &str) -> String {
    let parts = text.split("\"127.0.0.1:").enumerate();
    parts
        .map(|(at, part)| if at == 0 { part } else { part.trim_start_matches(|c: char| c.is_ascii_digit()) })
        .collect()
}

/// An unused name for an edited file.
fn free_name(configuration: &Path) -> PathBuf {
    let names = (1..).map(|number| configuration.with_extension(format!("kdl.old.{number}")));
    let mut names = std::iter::once(configuration.with_extension("kdl.old")).chain(names);
    names.find(|name| !name.exists()).expect("there are more names than files")
}

fn listen(usual: SocketAddr) -> Result<TcpListener, QuickstartError> {
    let listener = match TcpListener::bind(usual) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => TcpListener::bind(loopback(0)),
        other => other,
    };
    listener.map_err(not_bound(usual, OTHER_PORT))
}

fn address(listener: &TcpListener, usual: SocketAddr) -> Result<SocketAddr, QuickstartError> {
    listener.local_addr().map_err(not_bound(usual, OTHER_PORT))
}

fn configuration_for(addresses: &Addresses) -> String {
    [
        (HTTP, addresses.http),
        (HTTPS, addresses.https),
        (METRICS, addresses.metrics),
        (ORIGIN, addresses.origin),
    ]
    .into_iter()
    .fold(CONFIGURATION.to_owned(), |text, (usual, actual)| {
        text.replace(&format!("\"{usual}\""), &format!("\"{actual}\""))
    })
}

impl Addresses {
    /// The addresses in an edited configuration, at the places where the shipped one has the default addresses.
    fn of(text: &str) -> Self {
        let named = |key: &str, nth: usize, usual| {
            let lines = text.lines().map(str::trim_start);
            let mut found = lines.filter_map(|line| {
                let value = line.strip_prefix(key)?.trim_start().strip_prefix('"')?;
                value.split('"').next()?.parse::<SocketAddr>().ok()
            });
            found.nth(nth).unwrap_or(usual)
        };
        Self {
            http: named("listen ", 0, HTTP),
            https: named("listen ", 1, HTTPS),
            metrics: named("metrics ", 0, METRICS),
            origin: named("server ", 0, ORIGIN),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A lock for tests that use the default ports, which only one test can have at a time.
    pub(super) static PORTS: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

    /// A temporary folder for one test, removed on drop.
    pub(crate) struct Folder(PathBuf);

    impl Folder {
        pub(crate) fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("foregate-demo-{}-{number}", std::process::id());
            let path = env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn shipped_configuration_names_each_usual_address_once() {
        for usual in [HTTP, HTTPS, METRICS, ORIGIN] {
            let quoted = format!("\"{usual}\"");
            assert_eq!(CONFIGURATION.matches(&quoted).count(), 1, "{usual}");
        }
        assert!(CONFIGURATION.contains("\"localhost.pem\""));
        assert!(CONFIGURATION.contains("\"localhost.key\""));
        assert!(CONFIGURATION.contains(&format!("rules \"{}\"", RULES.0)));
        assert!(CONFIGURATION.contains(&format!("files \"{LOG}\"")));
        CONFIGURATION.parse::<kdl::KdlDocument>().unwrap();
    }

    #[test]
    fn taken_ports_are_replaced_in_configuration_and_banner() {
        let _ports = PORTS.lock();
        let folder = Folder::new();
        // Whether this bind succeeds or fails, the default port of the origin is taken afterwards.
        let _taken = TcpListener::bind(ORIGIN);
        let quickstart = prepare(folder.path(), false).unwrap();
        let actual = quickstart.origin.local_addr().unwrap();
        assert_ne!(actual, ORIGIN);
        let text = fs::read_to_string(&quickstart.configuration).unwrap();
        assert!(text.contains(&format!("server \"{actual}\"")), "{text}");
        assert!(!text.contains(&format!("\"{ORIGIN}\"")));
        let banner = quickstart.banner();
        assert!(banner.contains(&format!("(port {})", actual.port())), "{banner}");
        for part in ["curl", "/events", "/ws", "/large", "/slow", "/metrics", "localhost.pem"] {
            assert!(banner.contains(part), "{part} in {banner}");
        }
        for part in ["/.git/config", "/search", "/limited", "/no-such-page", "reload -c ", "explain -c "] {
            assert!(banner.contains(part), "{part} in {banner}");
        }
    }

    #[test]
    fn an_edited_configuration_is_used_until_it_is_reset() {
        let _ports = PORTS.lock();
        let folder = Folder::new();
        let path = folder.path().join("quickstart.kdl");
        let start = |reset| prepare(folder.path(), reset).unwrap();
        assert_eq!(start(false).origin_of_file, FileOrigin::Shipped);
        // Changed ports do not count as an edit.
        assert_eq!(start(false).origin_of_file, FileOrigin::Shipped);
        for name in ["quickstart.kdl.old", "quickstart.kdl.old.1"] {
            let edited = fs::read_to_string(&path).unwrap().replace("Hello from", "Hello again from");
            fs::write(&path, &edited).unwrap();
            let quickstart = start(false);
            assert_eq!(quickstart.origin_of_file, FileOrigin::Edited);
            assert!(quickstart.banner().contains("`--reset`"), "{}", quickstart.banner());
            assert!(edited.contains(&format!("server \"{}\"", quickstart.origin.local_addr().unwrap())));
            assert!(edited.contains(&format!("listen \"{}\" {{", quickstart.addresses.https)));
            assert_eq!(fs::read_to_string(&path).unwrap(), edited);
            drop(quickstart);
            let banner = start(true).banner();
            assert!(banner.contains(&format!("{name}.\n")), "{banner}");
            assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), edited);
        }
    }

    #[test]
    fn the_unedited_configuration_of_another_version_is_replaced() {
        let _ports = PORTS.lock();
        let folder = Folder::new();
        for name in ["quickstart.kdl", "quickstart.kdl.shipped"] {
            fs::write(folder.path().join(name), "listen \"127.0.0.1:8080\"\n").unwrap();
        }
        let quickstart = prepare(folder.path(), false).unwrap();
        assert_eq!(quickstart.origin_of_file, FileOrigin::Shipped);
        assert!(fs::read_to_string(&quickstart.configuration).unwrap().contains("site "));
    }

    #[test]
    fn a_second_quickstart_with_the_same_folder_says_that_another_one_is_running() {
        let _ports = PORTS.lock();
        let folder = Folder::new();
        let first = prepare(folder.path(), false).unwrap();
        let edited =
            fs::read_to_string(&first.configuration).unwrap().replace("Hello from", "Hello again from");
        fs::write(&first.configuration, &edited).unwrap();
        for reset in [false, true] {
            let error = prepare(folder.path(), reset).err().unwrap();
            let process = format!("{} (process {})", folder.path().display(), std::process::id());
            assert!(error.to_string().ends_with(&process), "{error}");
            assert!(error.help().is_some_and(|help| help.contains("--state FOLDER")), "{error}");
        }
        assert_eq!(fs::read_to_string(&first.configuration).unwrap(), edited);
        // In a folder of its own it takes free ports.
        let other = Folder::new();
        let beside = prepare(other.path(), false).unwrap();
        assert_ne!(beside.origin.local_addr().unwrap(), first.origin.local_addr().unwrap());
        drop(first);
        assert_eq!(prepare(folder.path(), false).unwrap().origin_of_file, FileOrigin::Edited);
    }

    #[test]
    fn a_taken_port_of_an_edited_configuration_is_named_with_what_to_type() {
        let _ports = PORTS.lock();
        let folder = Folder::new();
        let first = prepare(folder.path(), false).unwrap();
        let edited =
            fs::read_to_string(&first.configuration).unwrap().replace("Hello from", "Hello again from");
        fs::write(&first.configuration, &edited).unwrap();
        let Quickstart { origin, configuration, lock, .. } = first;
        drop(lock);
        let error = prepare(folder.path(), false).err().unwrap();
        assert!(error.to_string().contains(&origin.local_addr().unwrap().to_string()), "{error}");
        let help = error.help().unwrap();
        assert!(help.contains(&configuration.display().to_string()) && help.contains("--reset"), "{help}");
    }
}
