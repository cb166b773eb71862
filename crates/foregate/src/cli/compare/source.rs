//! The sources of cases: files of cases, recordings, access logs.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foregate_compare::case::{self, Case, CaseError};
use foregate_compare::sample::{self, Replayed};
use foregate_compare::{access_log, har};
use tokio::sync::mpsc;

/// The longest line of an access log, bytes.
const LINE_MOST: u64 = 1 << 20;
/// The most chains that are read ahead of their use.
const AHEAD: usize = 256;
/// The most unreadable lines of an access log that are reported.
const TOLD: usize = 3;

/// A list of cases that must be sent one after the other.
#[derive(Debug)]
pub(crate) struct Chain {
    pub file: Arc<Path>,
    pub cases: Vec<Case>,
    /// Set if the cases are recorded requests. Of these, only requests with safe methods are sent by default.
    pub recorded: bool,
    /// Why the cases cannot be sent; `None` if they can.
    pub unknown: Option<&'static str>,
}

/// The message about a file that cannot be read.
pub(crate) struct Unreadable(pub String);

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Cases in a subset of Hurl's syntax
    Cases,
    /// A recording of a browser
    Har,
    /// Lines of our access log, or of NGINX's format `combined`
    Log,
    /// A sample of `foregate compare`, or a folder of them
    Samples,
}

/// The most bytes of a sample.
const SAMPLE_MOST: u64 = 4 << 20;

/// The chains from files that a separate thread reads, a bounded number ahead of their use.
pub(crate) struct Chains {
    pub chains: mpsc::Receiver<Result<Chain, Unreadable>>,
    /// The number of cases that have been read so far.
    pub read: Arc<AtomicUsize>,
    /// The number of recorded cases so far that name no host.
    pub without_host: Arc<AtomicUsize>,
}

/// Starts the thread that reads the files.
pub(crate) fn start(files: Vec<PathBuf>, format: Option<Format>, limit: usize) -> Chains {
    let (sender, chains) = mpsc::channel(AHEAD);
    let read = Arc::new(AtomicUsize::new(0));
    let without_host = Arc::new(AtomicUsize::new(0));
    let mut out = Out { sender, read: Arc::clone(&read), without_host: Arc::clone(&without_host), limit };
    std::thread::spawn(move || {
        for file in files {
            match read_file(&file, format, &mut out) {
                Ok(true) => {}
                Ok(false) => return,
                Err(message) => {
                    let _ = out.sender.blocking_send(Err(Unreadable(message)));
                    return;
                }
            }
        }
    });
    Chains { chains, read, without_host }
}

struct Out {
    sender: mpsc::Sender<Result<Chain, Unreadable>>,
    read: Arc<AtomicUsize>,
    without_host: Arc<AtomicUsize>,
    limit: usize,
}

impl Out {
    /// Passes a chain on; returns false if no more are needed.
    fn send(&mut self, chain: Chain) -> bool {
        let count = chain.cases.len();
        if chain.recorded {
            let without = chain.cases.iter().filter(|case| case.url.starts_with('/')).count();
            self.without_host.fetch_add(without, Ordering::Relaxed);
        }
        let before = self.read.fetch_add(count, Ordering::Relaxed);
        before < self.limit && self.sender.blocking_send(Ok(chain)).is_ok() && before + count < self.limit
    }
}

fn format_of(file: &Path, text: &[u8]) -> Format {
    let end = file.extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match &*end {
        "har" => Format::Har,
        "hurl" | "case" | "cases" => Format::Cases,
        "log" => Format::Log,
        _ if first.starts_with(b"{\"time\"")
            || access_log::read(&String::from_utf8_lossy(first), 1).is_ok_and(|case| case.is_some()) =>
        {
            Format::Log
        }
        "json" if text.starts_with(b"{\n  \"asked\"") || text.starts_with(b"{\n  \"class\"") => {
            Format::Samples
        }
        _ if text.trim_ascii_start().starts_with(b"{") => Format::Har,
        _ => Format::Cases,
    }
}

fn read_file(file: &Path, format: Option<Format>, out: &mut Out) -> Result<bool, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    if file.is_dir() {
        return read_samples(file, out);
    }
    let mut reader = BufReader::with_capacity(64 << 10, File::open(file).map_err(failed)?);
    let format = match format {
        Some(format) => format,
        None => format_of(file, reader.fill_buf().map_err(failed)?),
    };
    let path: Arc<Path> = file.into();
    match format {
        Format::Cases => {
            let mut text = Vec::new();
            reader.take(case::FILE_MOST + 1).read_to_end(&mut text).map_err(failed)?;
            if text.len() as u64 > case::FILE_MOST {
                return Err(format!("{}: larger than 16 MiB; split it", file.display()));
            }
            let text =
                String::from_utf8(text).map_err(|_| format!("{}: no text in UTF-8", file.display()))?;
            let cases = case::read(&text).map_err(|error| told(file, &error))?;
            Ok(chains(&path, cases).all(|chain| out.send(chain)))
        }
        Format::Har => {
            let mut goes_on = true;
            let read = har::read(reader, |case| {
                goes_on = out.send(Chain {
                    file: Arc::clone(&path),
                    cases: vec![case],
                    recorded: true,
                    unknown: None,
                });
                goes_on
            });
            read.map_err(|error| format!("{}: {error}", file.display()))?;
            Ok(goes_on)
        }
        Format::Log => read_log(&path, reader, out),
        Format::Samples => {
            let mut text = String::new();
            reader.take(SAMPLE_MOST).read_to_string(&mut text).map_err(failed)?;
            send_sample(&path, &text, out)
        }
    }
}

/// Reads the samples of a folder, the oldest first.
fn read_samples(folder: &Path, out: &mut Out) -> Result<bool, String> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let listed = std::fs::read_dir(folder).map_err(|error| failed(folder, error))?;
    let mut files: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "json"));
    // The files' names begin with their times, so this is the order of time.
    files.sort();
    if files.is_empty() {
        return Err(format!("{}: there are no samples in this folder", folder.display()));
    }
    for file in files {
        let mut text = String::new();
        match File::open(&file) {
            Ok(opened) => {
                opened.take(SAMPLE_MOST).read_to_string(&mut text).map_err(|error| failed(&file, error))?
            }
            // The sample has expired and was removed in the meantime.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&file, error)),
        };
        if !send_sample(&file.clone().into(), &text, out)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn send_sample(file: &Arc<Path>, text: &str, out: &mut Out) -> Result<bool, String> {
    let read = sample::read(text).map_err(|error| format!("{}: {error}", file.display()))?;
    let (case, unknown) = match read {
        Replayed::Sent(case, hashed) => {
            if !hashed.is_empty() {
                tracing::warn!(
                    "{}: sent without {}, whose values are hashes",
                    file.display(),
                    hashed.join(", ")
                );
            }
            (*case, None)
        }
        Replayed::Unknown(line, why) => {
            let (method, url) = line.split_once(' ').unwrap_or(("GET", "/"));
            (Case::line(method, url), Some(why))
        }
    };
    Ok(out.send(Chain { file: Arc::clone(file), cases: vec![case], recorded: true, unknown }))
}

/// The message for an error, with its place in the form that editors read.
fn told(file: &Path, error: &CaseError) -> String {
    let CaseError { line, column, message, help } = error;
    let help = help.as_deref().map(|help| format!("\n  help: {help}")).unwrap_or_default();
    format!("{}:{line}:{column}: {message}{help}", file.display())
}

/// Splits the cases of a file into chains: one chain for each case, or one for the whole file if any case captures
/// values for later ones.
fn chains(file: &Arc<Path>, cases: Vec<Case>) -> impl Iterator<Item = Chain> {
    let linked = cases.iter().any(|case| !case.captures.is_empty());
    let chains = if linked { vec![cases] } else { cases.into_iter().map(|case| vec![case]).collect() };
    let file = Arc::clone(file);
    chains.into_iter().map(move |cases| Chain {
        file: Arc::clone(&file),
        cases,
        recorded: false,
        unknown: None,
    })
}

fn read_log(path: &Arc<Path>, mut reader: BufReader<File>, out: &mut Out) -> Result<bool, String> {
    let (mut number, mut wrong, mut good) = (0, Vec::new(), 0u64);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = reader.by_ref().take(LINE_MOST).read_until(b'\n', &mut bytes);
        if read.map_err(|error| format!("{}: {error}", path.display()))? == 0 {
            break;
        }
        number += 1;
        match access_log::read(&String::from_utf8_lossy(&bytes), number) {
            Ok(Some(case)) => {
                good += 1;
                if !out.send(Chain {
                    file: Arc::clone(path),
                    cases: vec![case],
                    recorded: true,
                    unknown: None,
                }) {
                    return Ok(false);
                }
            }
            Ok(None) => {}
            Err(error) => wrong.push((number, error)),
        }
        // Logs contain some invalid requests; a file with nothing else is not a log.
        if good == 0 && wrong.len() == 100 {
            break;
        }
        wrong.truncate(100);
    }
    match wrong.first() {
        Some((line, error)) if good == 0 => Err(format!("{}:{line}:1: {error}", path.display())),
        _ => {
            for (line, error) in wrong.iter().take(TOLD) {
                tracing::debug!("{}:{line}: {error}", path.display());
            }
            Ok(true)
        }
    }
}
