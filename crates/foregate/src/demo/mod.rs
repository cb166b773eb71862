//! The quickstart: a demo origin inside the binary, a certificate made at first start, and a
//! configuration that shows proxying, HTTP/2 and TLS at once.
//!
//! `foregate demo` is [`DemoArguments::run`]: the origin alone. `foregate quickstart` is
//! [`QuickstartArguments::start`], which makes everything ready and serves the origin from a thread of
//! its own; then the proxy is started with the file that [`Started`] names.

mod certificate;
mod large;
mod live;
mod origin;

use std::{
    env,
    fmt::Write as _,
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
};

use clap::Args;

/// The tour's configuration, as shipped in `examples/quickstart.kdl`.
const CONFIGURATION: &str = include_str!("../../../../examples/quickstart.kdl");

/// The admin socket of [`CONFIGURATION`], beside it.
const SOCKET: &str = "quickstart.sock";

/// Where the demo origin listens unless told otherwise.
const ORIGIN: SocketAddr = loopback(8081);

/// The names that the quickstart's certificate is made for.
const NAMES: &[&str] = &["localhost", "127.0.0.1", "::1"];

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
        /// What the system said.
        source: io::Error,
    },
    /// The demo origin could not be started.
    #[error("cannot start the demo origin: {0}")]
    Origin(io::Error),
    /// No loopback port could be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address tried.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// The arguments of `foregate quickstart`.
#[derive(Debug, Args)]
pub(crate) struct QuickstartArguments {
    /// Start the proxy with this file in place of the tour's; its upstream is 127.0.0.1:8081
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    configuration: Option<PathBuf>,
    /// Where to keep the certificate [default: $XDG_STATE_HOME/foregate, else ~/.local/state/foregate]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

/// What is ready when the quickstart has started.
#[derive(Debug)]
pub(crate) struct Started {
    /// The configuration to run the proxy with.
    pub(crate) configuration: PathBuf,
    /// What to print: where everything is, and the commands to try.
    pub(crate) banner: String,
    /// Held while the proxy runs: the configuration is ours.
    _lock: Option<fs::File>,
}

impl QuickstartArguments {
    /// Makes certificate and configuration if needed and starts the demo origin on a thread of its own,
    /// which ends with the process.
    ///
    /// # Errors
    ///
    /// See [`QuickstartError`].
    pub(crate) fn start(self) -> Result<Started, QuickstartError> {
        let folder = self.state.map_or_else(state_folder, Ok)?;
        let Some(configuration) = self.configuration else {
            let quickstart = prepare(&folder)?;
            let banner = quickstart.banner();
            let Quickstart { configuration, lock, origin, .. } = quickstart;
            origin::spawn(origin).map_err(QuickstartError::Origin)?;
            return Ok(Started { configuration, banner, _lock: Some(lock) });
        };
        let pair = certificate::ensure(&folder, NAMES)?;
        // No other port will do: the file names this one.
        let listener = TcpListener::bind(ORIGIN)
            .map_err(|source| QuickstartError::Listen { address: ORIGIN, source })?;
        origin::spawn(listener).map_err(QuickstartError::Origin)?;
        let banner = format!(
            "A demo origin is on http://{ORIGIN}.\nA certificate for localhost: {}, key {}\n",
            pair.certificate.display(),
            pair.key.display()
        );
        Ok(Started { configuration, banner, _lock: None })
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
        let listener = TcpListener::bind(self.listen)
            .map_err(|source| QuickstartError::Listen { address: self.listen, source })?;
        ready(address(&listener, self.listen)?);
        origin::run(listener).map_err(QuickstartError::Origin)
    }
}

/// Everything that the quickstart needs to start.
#[derive(Debug)]
struct Quickstart {
    /// The configuration to start the proxy with: [`CONFIGURATION`], written beside the certificate
    /// so that its relative paths hold, with other ports where the usual ones are taken.
    configuration: PathBuf,
    /// Says to others who start in the same folder that the usual configuration is in use.
    lock: fs::File,
    /// What the configuration before is called now, where somebody has edited it.
    kept: Option<PathBuf>,
    /// The demo origin's socket.
    origin: TcpListener,
    /// The certificate that the configuration names.
    certificate: certificate::Pair,
    addresses: Addresses,
}

/// Where the quickstart's parts listen.
#[derive(Debug, Clone, Copy)]
struct Addresses {
    http: SocketAddr,
    https: SocketAddr,
    metrics: SocketAddr,
    origin: SocketAddr,
}

/// The folder for what outlives a run: `$XDG_STATE_HOME/foregate`, or `~/.local/state/foregate`.
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
/// in `folder` (see [`state_folder`]).
///
/// A usual port that is taken is replaced by a free one. The proxy opens its own sockets a moment
/// later, so in theory somebody else can be faster; it then says which address is taken.
///
/// # Errors
///
/// See [`QuickstartError`].
fn prepare(folder: &Path) -> Result<Quickstart, QuickstartError> {
    let certificate = certificate::ensure(folder, NAMES)?;
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
    let Written { configuration, lock, kept } = write(folder, &addresses)?;
    Ok(Quickstart { configuration, lock, kept, origin, certificate, addresses })
}

/// A configuration that was written.
struct Written {
    configuration: PathBuf,
    lock: fs::File,
    /// What the one before is called now, where somebody has edited it.
    kept: Option<PathBuf>,
}

/// Writes the configuration, into a file of its own where another quickstart runs with the usual one. It runs for as long
/// as it holds the lock, which is no lock of the configuration: editors replace files.
fn write(folder: &Path, addresses: &Addresses) -> Result<Written, QuickstartError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| QuickstartError::Write { path, source }
    };
    let path = folder.join("quickstart.lock");
    let lock = fs::File::create(&path).map_err(failed(&path))?;
    let name = match lock.try_lock() {
        Ok(()) => "quickstart".to_owned(),
        // Nobody else has this port.
        Err(fs::TryLockError::WouldBlock) => format!("quickstart-{}", addresses.http.port()),
        Err(fs::TryLockError::Error(source)) => return Err(QuickstartError::Write { path, source }),
    };
    let configuration = folder.join(format!("{name}.kdl"));
    let text = configuration_for(addresses).replace(&format!("\"{SOCKET}\""), &format!("\"{name}.sock\""));
    // Somebody may have tried something in it.
    let edited =
        fs::read_to_string(&configuration).is_ok_and(|old| without_ports(&old) != without_ports(&text));
    let kept = edited.then(|| free_name(&configuration));
    if let Some(kept) = &kept {
        fs::rename(&configuration, kept).map_err(failed(kept))?;
    }
    fs::write(&configuration, text).map_err(failed(&configuration))?;
    Ok(Written { configuration, lock, kept })
}

/// What is the same whichever ports were free.
fn without_ports(text: &str) -> String {
    let parts = text.split("\"127.0.0.1:").enumerate();
    parts
        .map(|(at, part)| if at == 0 { part } else { part.trim_start_matches(|c: char| c.is_ascii_digit()) })
        .collect()
}

/// A name for what somebody has edited, which nothing has yet.
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
    listener.map_err(|source| QuickstartError::Listen { address: usual, source })
}

fn address(listener: &TcpListener, usual: SocketAddr) -> Result<SocketAddr, QuickstartError> {
    listener.local_addr().map_err(|source| QuickstartError::Listen { address: usual, source })
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

impl Quickstart {
    /// The commands to try, ready to be pasted, for the addresses of this start.
    fn banner(&self) -> String {
        let Addresses { http, https, origin, .. } = self.addresses;
        let configuration = self.configuration.display();
        let kept = self.kept.as_ref().map_or(String::new(), |kept| {
            format!(
                "The one that you have edited is kept as {}; `--config FILE` starts with a file of yours.\n",
                kept.display()
            )
        });
        let mut text = format!(
            "Foregate on http://{http} and https://{https}, \
             with a demo origin on http://{origin}.\n\
             Configuration: {configuration}\n{kept}\n\
             Open http://{http}/ in a browser, or try in another terminal:\n\n"
        );
        for (what, command) in self.tour() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  # {what}\n  {command}");
        }
        text.push_str("\nCtrl-C stops it.\n");
        text
    }

    /// What there is to try: each with the command that does.
    fn tour(&self) -> impl IntoIterator<Item = (&'static str, String)> {
        let Addresses { http, https, metrics, .. } = self.addresses;
        let certificate = self.certificate.certificate.display();
        let configuration = self.configuration.display();
        // As it was started: it need not be on the PATH.
        let program = env::current_exe().unwrap_or_else(|_| "foregate".into());
        let program = program.display();
        let websocket = "-H 'Connection: Upgrade' -H 'Upgrade: websocket' \
                         -H 'Sec-WebSocket-Version: 13' \
                         -H 'Sec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEA=='";
        [
            ("HTTP/1.1", format!("curl -i http://{http}/api/echo")),
            ("HTTP/2 over TLS", format!("curl -i --http2 --cacert '{certificate}' https://{https}/api/echo")),
            ("HTTP/2, cleartext", format!("curl -i --http2-prior-knowledge http://{http}/api/time")),
            ("answered by the proxy", format!("curl -i http://{http}/hello")),
            ("server-sent events", format!("curl -N 'http://{http}/events?count=3'")),
            ("a WebSocket, held open for a second", format!("curl -i -N -m 1 {websocket} http://{http}/ws")),
            (
                "64 MiB",
                format!(
                    "curl -o /dev/null -w '%{{size_download}} bytes in %{{time_total}} s\\n' \
                     http://{http}/large"
                ),
            ),
            ("part of it", format!("curl -r 64-127 'http://{http}/large'")),
            ("a slow answer", format!("curl 'http://{http}/slow?ms=2000'")),
            ("an upload", format!("head -c 8388608 /dev/zero | curl --data-binary @- http://{http}/upload")),
            (
                "more than the route takes: 413",
                format!("head -c 65MiB /dev/zero | curl -i --data-binary @- http://{http}/upload"),
            ),
            ("a rule: the origin does not see it", format!("curl -i http://{http}/.git/config")),
            (
                "a rate limit: the sixth within a minute gets 429",
                format!(
                    "for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%{{http_code}} ' \
                     http://{http}/limited; done; echo"
                ),
            ),
            ("an own page for errors", format!("curl -i http://{http}/no-such-page")),
            ("metrics", format!("curl http://{metrics}/metrics")),
            (
                "break the configuration, and ask what is wrong",
                format!("'{program}' check -c '{configuration}'"),
            ),
            ("after a change of it", format!("'{program}' reload -c '{configuration}'")),
            (
                "which route answers, and what runs before",
                format!("'{program}' explain -c '{configuration}' http://{http}/hello"),
            ),
        ]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A folder of its own for one test, removed at its end.
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
        CONFIGURATION.parse::<kdl::KdlDocument>().unwrap();
    }

    #[test]
    fn taken_ports_are_replaced_in_configuration_and_banner() {
        let folder = Folder::new();
        // Taken by this test or by somebody else: either way the usual origin port is not free.
        let _taken = TcpListener::bind(ORIGIN);
        let quickstart = prepare(folder.path()).unwrap();
        let actual = quickstart.origin.local_addr().unwrap();
        assert_ne!(actual, ORIGIN);
        let text = fs::read_to_string(&quickstart.configuration).unwrap();
        assert!(text.contains(&format!("server \"{actual}\"")), "{text}");
        assert!(!text.contains(&format!("\"{ORIGIN}\"")));
        let banner = quickstart.banner();
        assert!(banner.contains(&actual.to_string()), "{banner}");
        for part in ["curl", "/events", "/ws", "/large", "/slow", "/metrics", "localhost.pem"] {
            assert!(banner.contains(part), "{part} in {banner}");
        }
        for part in ["/.git/config", "/limited", "/no-such-page", "check -c '", "explain -c '"] {
            assert!(banner.contains(part), "{part} in {banner}");
        }
    }

    #[test]
    fn what_was_edited_is_kept_and_told() {
        let folder = Folder::new();
        let edit = |text: &str| fs::write(folder.path().join("quickstart.kdl"), text).unwrap();
        let kept = |name: &str| fs::read_to_string(folder.path().join(name)).ok();
        assert_eq!(prepare(folder.path()).unwrap().kept, None);
        // Other ports are no edit.
        assert_eq!(prepare(folder.path()).unwrap().kept, None);
        for (text, name) in [("first", "quickstart.kdl.old"), ("second", "quickstart.kdl.old.1")] {
            edit(text);
            let banner = prepare(folder.path()).unwrap().banner();
            assert!(banner.contains(&format!("{name};")), "{banner}");
        }
        assert_eq!(kept("quickstart.kdl.old").as_deref(), Some("first"));
        assert_eq!(kept("quickstart.kdl.old.1").as_deref(), Some("second"));
    }

    #[test]
    fn a_second_quickstart_leaves_the_configuration_of_the_first() {
        let folder = Folder::new();
        let first = prepare(folder.path()).unwrap();
        assert_eq!(first.configuration, folder.path().join("quickstart.kdl"));
        let text = fs::read_to_string(&first.configuration).unwrap();
        let second = prepare(folder.path()).unwrap();
        assert_ne!(second.configuration, first.configuration);
        assert!(second.banner().contains(&second.configuration.display().to_string()));
        assert_eq!(fs::read_to_string(&first.configuration).unwrap(), text);
        drop((first, second));
        let third = prepare(folder.path()).unwrap();
        assert_eq!(third.configuration, folder.path().join("quickstart.kdl"));
    }
}
