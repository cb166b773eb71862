//! A case from its start to its verdict, and many of them at a time.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::case::{Case, CaseFileKind, Command, Origin, OriginMode};
use crate::certificates;
use crate::dns::Nameserver;
use crate::http1::{Message, Peer};
use crate::parse::parse;
use crate::ports::free_port;
use crate::process::{Proxy, listens, render_config};
use crate::proxy_steps::run_binary;
use crate::script::{Listener, Script, Side};
use crate::shared::{Failure, Shared};
use crate::text::{Variables, show};
use crate::wire::{Conn, Got};

/// The extension of a case's file.
pub const EXTENSION: &str = "case";

/// The ports that every case has at its disposal, beside those of its origins.
const PORTS: [&str; 4] = ["listen", "listen2", "metrics", "spare"];

/// Pause between two looks for a new connection.
const ACCEPT_POLL: Duration = Duration::from_millis(2);

/// A connection that takes so long meets a full queue.
const FULL_AFTER: Duration = Duration::from_millis(200);

/// How many cases run at a time unless told otherwise: they wait most of the time.
pub const JOBS: usize = 8;

/// How cases are run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The proxy's binary.
    pub binary: PathBuf,
    /// Cases at a time.
    pub jobs: usize,
    /// Keep the folders of the cases.
    pub keep: bool,
}

/// The result of a case.
#[derive(Debug)]
pub struct Verdict {
    /// The case's name.
    pub name: String,
    /// How long it took.
    pub took: Duration,
    /// `None`: passed. Otherwise the report: expectation, input, transcript.
    pub report: Option<String>,
}

/// All cases below a folder, in the order of their names.
///
/// # Errors
///
/// The error in the folder or in a case.
pub fn load(folder: &Path) -> Result<Vec<Case>, String> {
    let mut paths = Vec::new();
    collect(folder, &mut paths)?;
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let source = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let inside = path.strip_prefix(folder).unwrap_or(&path).with_extension("");
            parse(&inside.to_string_lossy(), &path, &source).map_err(|error| error.to_string())
        })
        .collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(told)? {
        let path = entry.map_err(told)?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == EXTENSION) {
            paths.push(path);
        }
    }
    Ok(())
}

/// Runs cases, several at a time; `told` gets each verdict as it comes.
pub fn run_all(cases: &[Case], options: &Options, told: impl Fn(&Verdict) + Sync) -> Vec<Verdict> {
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = run(case, options);
                    told(&verdict);
                    verdicts.lock().push(verdict);
                }
            });
        }
    });
    let mut verdicts = verdicts.into_inner();
    verdicts.sort_by(|a, b| a.name.cmp(&b.name));
    verdicts
}

/// Runs one case.
pub fn run(case: &Case, options: &Options) -> Verdict {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let start = Instant::now();
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("foregate-cases-{}-{number}", std::process::id()));
    let report = run_in(case, options, &folder).err();
    if options.keep {
        eprintln_kept(case, &folder);
    } else {
        drop(fs::remove_dir_all(&folder));
    }
    Verdict { name: case.name.clone(), took: start.elapsed(), report }
}

fn eprintln_kept(case: &Case, folder: &Path) {
    eprintln!("kept {}: {}", case.name, folder.display());
}

fn run_in(case: &Case, options: &Options, folder: &Path) -> Result<(), String> {
    let bare = |message: String| format!("{}\n  {message}\n", case.path.display());
    fs::create_dir_all(folder).map_err(|error| bare(error.to_string()))?;
    let variables = variables(case, options, folder).map_err(bare)?;
    certificates_and_files(case, folder, &variables).map_err(bare)?;
    let listeners = case.origins.iter().map(|origin| listen(origin, &variables));
    let listeners: Vec<Option<Listener>> = listeners.collect::<Result<_, _>>().map_err(bare)?;
    let config = render_config(case, &variables).map_err(bare)?;
    fs::write(folder.join("case.kdl"), &config).map_err(|error| bare(error.to_string()))?;
    let nameservers = case.nameservers.iter().map(|(name, records)| {
        let address = variables.get(name).map(String::as_str).unwrap_or_default();
        Nameserver::new(name, address, records, &variables).map_err(|error| format!("dns {name}: {error}"))
    });
    let nameservers = nameservers.collect::<Result<Vec<_>, _>>().map_err(bare)?;
    let mut shared = Shared::new(variables, folder.to_owned());
    shared.nameservers = nameservers;
    for command in &case.commands {
        run_command(&shared, options, command);
    }
    if !case.clients.is_empty() && shared.failure().is_none() {
        let inherited = case.start.inherit.as_ref().map(|address| address.string(&shared.variables));
        let inherited = inherited.transpose().map_err(bare)?;
        let inherited =
            inherited.map(TcpListener::bind).transpose().map_err(|error| bare(error.to_string()))?;
        let start = || Proxy::start(&options.binary, folder, &config, inherited, case.start.descriptors);
        run_scripts(case, &shared, &listeners, start).map_err(bare)?;
        let expected_end = shared.expected_end();
        if let Some(Err(message)) = shared.proxy.lock().as_mut().map(|proxy| proxy.finish(expected_end)) {
            shared.fail_late(Failure { line: 0, step: "(the proxy's process)".to_owned(), message });
        }
    }
    match shared.failure() {
        None => Ok(()),
        Some(failure) => Err(report(case, &shared, &failure, &config)),
    }
}

fn variables(case: &Case, options: &Options, folder: &Path) -> Result<Variables, String> {
    let mut variables = Variables::new();
    for name in PORTS {
        variables.insert(name.to_owned(), format!("127.0.0.1:{}", free_port()?));
    }
    for origin in &case.origins {
        let address = if origin.ipv6 {
            format!("[::1]:{}", free_port()?)
        } else if origin.unix {
            format!("unix:{}", folder.join(format!("{}.sock", origin.name)).display())
        } else {
            format!("127.0.0.1:{}", free_port()?)
        };
        variables.insert(origin.name.clone(), address);
    }
    for (name, _) in &case.nameservers {
        variables.insert(name.clone(), format!("127.0.0.1:{}", free_port()?));
    }
    for (name, address) in variables.clone() {
        if let Some((_, port)) = address.rsplit_once(':') {
            variables.insert(format!("{name}.port"), port.to_owned());
        }
    }
    variables.insert("dir".to_owned(), folder.display().to_string());
    variables.insert("config".to_owned(), folder.join("case.kdl").display().to_string());
    variables.insert("binary".to_owned(), options.binary.display().to_string());
    Ok(variables)
}

fn certificates_and_files(case: &Case, folder: &Path, variables: &Variables) -> Result<(), String> {
    if !case.certificates.is_empty() {
        certificates::write(folder, &case.certificates)?;
    }
    for file in &case.files {
        let path = folder.join(&file.name);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        let told = |error: std::io::Error| format!("{}: {error}", file.name);
        made.map_err(told)?;
        match &file.kind {
            CaseFileKind::File { content, modified, size } => {
                write_file(&path, &content.bytes(variables)?, *modified, *size).map_err(told)?;
            }
            CaseFileKind::Folder => fs::create_dir_all(&path).map_err(told)?,
            CaseFileKind::Link(target) => {
                std::os::unix::fs::symlink(target.string(variables)?, &path).map_err(told)?;
            }
            CaseFileKind::Pipe => {
                let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
                    .map_err(|error| told(error.into()))?;
            }
        }
    }
    Ok(())
}

fn write_file(path: &Path, content: &[u8], modified: Option<u64>, size: Option<u64>) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(content)?;
    if let Some(size) = size {
        file.set_len(size)?;
    }
    if let Some(seconds) = modified {
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(seconds))?;
    }
    Ok(())
}

fn listen(origin: &Origin, variables: &Variables) -> Result<Option<Listener>, String> {
    if !listens(origin.mode) {
        return Ok(None);
    }
    let address = variables.get(&origin.name).cloned().unwrap_or_default();
    let told = |error: std::io::Error| format!("origin {}: {error}", origin.name);
    if let Some(path) = address.strip_prefix("unix:") {
        let listener = UnixListener::bind(path).map_err(told)?;
        listener.set_nonblocking(true).map_err(told)?;
        return Ok(Some(Listener::Unix(listener)));
    }
    if origin.mode == OriginMode::Full {
        return full(&address).map(Some).map_err(told);
    }
    // Another run's probe for free ports may hold it for a moment.
    let patience = Instant::now() + Duration::from_secs(2);
    let listener = loop {
        match TcpListener::bind(&address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < patience => {
                std::thread::sleep(ACCEPT_POLL);
            }
            bound => break bound.map_err(told)?,
        }
    };
    listener.set_nonblocking(true).map_err(told)?;
    Ok(Some(Listener::Tcp(listener)))
}

/// A listener with a full queue, so that the kernel drops further connection requests.
fn full(address: &str) -> std::io::Result<Listener> {
    let address: SocketAddr = address.parse().map_err(std::io::Error::other)?;
    let listener = TcpListener::bind(address)?;
    socket2::SockRef::from(&listener).listen(0)?;
    let mut queue = Vec::new();
    loop {
        match TcpStream::connect_timeout(&address, FULL_AFTER) {
            Ok(stream) => queue.push(stream),
            Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(Listener::Full(listener, queue)),
            Err(error) => return Err(error),
        }
    }
}

fn run_scripts(
    case: &Case,
    shared: &Shared,
    listeners: &[Option<Listener>],
    start: impl FnOnce() -> Result<Proxy, String>,
) -> Result<(), String> {
    let scripted = case.origins.iter().filter(|origin| origin.mode == OriginMode::Script).count();
    std::thread::scope(|scope| {
        for nameserver in &shared.nameservers {
            scope.spawn(move || nameserver.serve(scope, || shared.stopped()));
        }
        // They are asked while it starts.
        match start() {
            Ok(proxy) => *shared.proxy.lock() = Some(proxy),
            Err(error) => {
                shared.finish();
                return Err(error);
            }
        }
        for (origin, listener) in case.origins.iter().zip(listeners) {
            let Some(listener) = listener else { continue };
            match origin.mode {
                OriginMode::Script => {
                    scope.spawn(|| Script::new(shared, Side::Origin(origin, listener)).run_origin(origin));
                }
                OriginMode::Each => {
                    scope.spawn(move || run_each(scope, shared, origin, listener));
                }
                OriginMode::Untouched | OriginMode::Incomplete => {
                    scope.spawn(|| run_untouched(shared, origin, listener));
                }
                OriginMode::Down | OriginMode::Full => {}
            }
        }
        let clients: Vec<_> = case
            .clients
            .iter()
            .map(|client| scope.spawn(|| Script::new(shared, Side::Client(client)).run_client(client)))
            .collect();
        for client in clients {
            drop(client.join());
        }
        shared.wait_for_origins(scripted);
        shared.finish();
        Ok(())
    })
}

fn run_each<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    shared: &'scope Shared,
    origin: &'scope Origin,
    listener: &'scope Listener,
) {
    while !shared.stopped() {
        match listener.accept(&shared.stop) {
            Some(Ok(conn)) => {
                scope.spawn(move || {
                    Script::new(shared, Side::Origin(origin, listener)).run_each(origin, conn);
                });
            }
            Some(Err(_)) => {}
            None => std::thread::sleep(ACCEPT_POLL),
        }
    }
}

fn run_untouched(shared: &Shared, origin: &Origin, listener: &Listener) {
    let mut conns = Vec::new();
    while !shared.stopped() {
        match listener.accept(&shared.stop) {
            Some(conn) => conns.extend(conn),
            None => std::thread::sleep(ACCEPT_POLL),
        }
        // Unread data would block the sender.
        conns.iter_mut().for_each(drain);
    }
    for conn in &mut conns {
        drain(conn);
        let message = match origin.mode {
            OriginMode::Incomplete if !is_whole_request(&mut conn.inbox.clone()) => continue,
            OriginMode::Incomplete => format!("a whole request arrived: {}", show(&conn.inbox)),
            _ if conn.inbox.is_empty() => continue,
            _ => format!("not one byte may arrive here, but {} did", show(&conn.inbox)),
        };
        let step = format!("{}: untouched or incomplete", origin.name);
        shared.fail_late(Failure { line: origin.line, step, message });
    }
}

fn drain(conn: &mut Conn) {
    while conn.fill(Instant::now()) == Got::Bytes {}
}

fn is_whole_request(inbox: &mut Vec<u8>) -> bool {
    let head = Message::take_head(inbox, Peer::Client, false);
    let Ok(Some(mut message)) = head else { return false };
    message.take_body(inbox, true).is_ok() && message.complete
}

fn run_command(shared: &Shared, options: &Options, command: &Command) {
    let fail = |line: usize, message: String| {
        shared.fail(Failure { line, step: "command".to_owned(), message });
    };
    let arguments =
        command.arguments.iter().map(|text| text.string(&shared.variables)).collect::<Result<Vec<_>, _>>();
    let output = arguments.and_then(|arguments| run_binary(&options.binary, &shared.folder, &arguments));
    let output = match output {
        Ok(output) => output,
        Err(message) => return fail(command.line, message),
    };
    let whole = format!("standard output:\n{}\nstandard error:\n{}", output.stdout, output.stderr);
    if output.exit != command.exit {
        return fail(
            command.line,
            format!("the exit code is {}, not {}\n{whole}", output.exit, command.exit),
        );
    }
    for check in &command.output {
        let text = match check.text.string(&shared.variables) {
            Ok(text) => text,
            Err(message) => return fail(check.line, message),
        };
        let stream = if check.stderr { &output.stderr } else { &output.stdout };
        if stream.contains(&text) != check.present {
            let verb = if check.present { "does not hold" } else { "holds" };
            return fail(check.line, format!("the output {verb} `{text}`\n{whole}"));
        }
    }
}

/// The explanation of a failure.
fn report(case: &Case, shared: &Shared, failure: &Failure, config: &str) -> String {
    let indent = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let mut out = format!("{}:{}\n  {}\n", case.path.display(), failure.line, case.title);
    out.push_str(&format!("  {}\n{}", failure.step, indent(&failure.message)));
    if !case.clients.is_empty() {
        out.push_str(&format!(
            "  transcript (seconds, who, what)\n{}",
            indent(&shared.transcript().join("\n"))
        ));
        let stderr = shared.proxy.lock().as_ref().map(Proxy::stderr).unwrap_or_default();
        if !stderr.trim().is_empty() {
            let lines: Vec<&str> = stderr.lines().collect();
            let last = &lines[lines.len().saturating_sub(20)..];
            out.push_str(&format!("  the proxy's output\n{}", indent(&last.join("\n"))));
        }
    }
    out.push_str(&format!("  configuration\n{}", indent(config)));
    out
}

/// The options when nothing is said.
impl Default for Options {
    fn default() -> Self {
        Self { binary: default_binary(), jobs: JOBS, keep: false }
    }
}

/// `$FOREGATE`, or the release build in `$CARGO_TARGET_DIR` or `target`.
pub fn default_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("FOREGATE") {
        return PathBuf::from(path);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    target.join("release/foregate")
}
