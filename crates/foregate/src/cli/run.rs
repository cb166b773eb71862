//! `foregate run`.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use crate::config::{self, Domains, RefusedConfiguration, Texts};
use clap::Args;
use foregate_module::Pipeline;
use foregate_proxy::configuration::Settings;
use foregate_proxy::server::{EffectiveConfiguration, FailureNotice, SettingsSource, Supervised};
use foregate_proxy::settings::ListenAddress;
use foregate_supervisor::{ADOPTING_VARIABLE, Options, SERVING_VARIABLE};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::arguments::ConfigFile;
use super::keeper::WithKeeper;
use super::output::{Outcome, complain, print, show_refused};
use super::panics::log_panics;
use super::privileges;

/// The environment variable that sets the log levels, such as `info` or `foregate_proxy=debug`.
const LOG_VARIABLE: &str = "FOREGATE_LOG";

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("without-file").multiple(true)))]
pub(super) struct Run {
    #[command(flatten)]
    file: ConfigFile,
    /// Send everything to this origin; needs no file. Repeat it for several servers
    #[arg(long, value_name = "URL", conflicts_with = "config", group = "without-file")]
    to: Vec<String>,
    /// Serve the files of this folder; needs no file. With --to, the origin gets the requests without a file
    #[arg(long, value_name = "FOLDER", conflicts_with = "config", group = "without-file")]
    files: Option<PathBuf>,
    /// List folders without an index, with --files
    #[arg(long, requires = "files")]
    listing: bool,
    /// Where to accept with --to or --files [default: :8080, with --domain :80]
    #[arg(long, value_name = "ADDRESS", requires = "without-file")]
    listen: Vec<String>,
    /// Serve in this one process, without a supervisor: a crash ends the service, and an upgrade is a restart
    #[arg(long)]
    single: bool,
    #[command(flatten)]
    domains: DomainArguments,
    #[arg(skip)]
    announced: Option<StartMessages>,
}

/// Names with certificates, for `--to` and `--files`.
#[derive(Debug, Default, Args)]
struct DomainArguments {
    /// Serve this name over HTTPS with a certificate that is obtained and renewed by itself, and redirect HTTP to it
    #[arg(long, value_name = "NAME", requires = "without-file")]
    domain: Vec<String>,
    /// Where to accept HTTPS with --domain [default: :443]
    #[arg(long, value_name = "ADDRESS", requires = "domain")]
    listen_tls: Vec<String>,
    /// The mail address of the account at the authority
    #[arg(long, value_name = "ADDRESS", requires = "domain")]
    email: Option<String>,
    /// The ACME directory of another authority than Let's Encrypt
    #[arg(long, value_name = "URL", requires = "domain")]
    directory: Option<String>,
    /// A PEM file with the roots that the authority's own server is verified with
    #[arg(long, value_name = "FILE", requires = "directory")]
    ca: Option<PathBuf>,
    /// The folder for certificates [default: $STATE_DIRECTORY, /var/lib/foregate or ~/.local/share/foregate]
    #[arg(long, value_name = "FOLDER", requires = "domain")]
    storage: Option<PathBuf>,
}

impl DomainArguments {
    fn domains(self) -> Domains {
        let listen_tls = if self.listen_tls.is_empty() { vec![":443".to_owned()] } else { self.listen_tls };
        let Self { domain: names, email, directory, ca, storage, .. } = self;
        Domains { names, listen_tls, email, directory, ca, storage }
    }
}

/// The messages that a start prints.
#[derive(Debug, Clone)]
pub(super) struct StartMessages {
    /// Printed once all addresses are bound.
    pub(super) text: String,
    /// The command to type if an address is taken.
    pub(super) if_taken: String,
}

impl Run {
    /// The arguments that stand for `-c FILE`.
    pub(super) fn file(path: PathBuf) -> Self {
        let file = ConfigFile { config: Some(path) };
        Self {
            file,
            to: Vec::new(),
            files: None,
            listing: false,
            listen: Vec::new(),
            domains: DomainArguments::default(),
            single: true,
            announced: None,
        }
    }

    pub(super) fn announcing(self, announced: StartMessages) -> Self {
        Self { announced: Some(announced), ..self }
    }

    pub(super) fn run(self, pipeline: Arc<Pipeline>) -> Outcome {
        if let Err(error) = log_to_stderr() {
            complain(&format!("error: {LOG_VARIABLE}: {error}"));
            return Outcome::Usage;
        }
        log_panics();
        name_process();
        let mut supervised = match Supervised::attach() {
            Ok(supervised) => supervised,
            Err(error) => {
                complain(&format!(
                    "error: the standard input is no supervisor's ({SERVING_VARIABLE} is set): {error}"
                ));
                return Outcome::Wrong;
            }
        };
        if !self.to.is_empty() || self.files.is_some() {
            let (mut listen, domains) = (self.listen, self.domains.domains());
            if listen.is_empty() {
                listen.push(if domains.names.is_empty() { ":8080" } else { ":80" }.to_owned());
            }
            let single = config::Single { to: self.to, files: self.files, listing: self.listing, domains };
            return match config::single(&single, &listen, &pipeline) {
                Err(error) => {
                    complain(&error.to_string());
                    Outcome::Usage
                }
                Ok(settings) => {
                    let again = move || {
                        config::single(&single, &listen, &pipeline).map_err(|error| error.to_string())
                    };
                    ended(serve(settings, Arc::new(again), None, None), None)
                }
            };
        }
        let path = self.file.path();
        // A pipe can be read only once, so it cannot be passed to a supervised process. A supervisor that takes over running
        // processes needs no configuration.
        let goes_on = std::env::var_os(ADOPTING_VARIABLE).is_some();
        if supervised.is_none() && !self.single && (goes_on || path.is_file()) {
            return supervise(&path);
        }
        let notice = supervised.as_ref().and_then(Supervised::failure_notice);
        let (banner, if_taken) = self.announced.map(|told| (told.text, told.if_taken)).unzip();
        let files = Files {
            path,
            pipeline,
            banner,
            is_supervised: supervised.is_some(),
            present: Mutex::default(),
            read: Mutex::default(),
            unsaved: Mutex::default(),
        };
        // If signals cannot be caught yet, one ends the process, which does no harm before it serves.
        if let Err(error) = foregate_proxy::server::catch_early() {
            tracing::warn!(%error, "signals are caught only from when it listens");
        }
        match files.load_first(supervised.as_mut()) {
            Err(refused) => {
                if let Some(notice) = notice {
                    notice.send(&refused.plain());
                }
                show_refused(&refused, false)
            }
            Ok(settings) => {
                files.took_effect();
                ended(serve(settings, Arc::new(files), if_taken, supervised), notice)
            }
        }
    }
}

/// The source of a configuration that is read from files.
struct Files {
    path: PathBuf,
    pipeline: Arc<Pipeline>,
    /// Printed once all addresses are bound.
    banner: Option<String>,
    /// The texts of the configuration in effect. They are read again if a file to which they refer changes.
    present: Mutex<Option<Arc<Texts>>>,
    /// The texts that were read last, until they take effect.
    read: Mutex<Option<ReadTexts>>,
    /// If there is a supervisor: the texts of the configuration in effect, until they are written for the process that
    /// follows a crash.
    unsaved: Mutex<Option<Arc<Texts>>>,
    is_supervised: bool,
}

struct ReadTexts {
    texts: Arc<Texts>,
    /// They may be needed again in this process, because they refer to watched files or because there is an admin socket.
    stay: bool,
}

impl Files {
    fn load(&self) -> Result<Settings, Box<RefusedConfiguration>> {
        let (settings, texts) = config::load_and_keep(&self.path, &self.pipeline)?;
        self.keep(&settings, texts);
        Ok(settings)
    }

    /// Loads the configuration for the start of this process: from the files, or, if they are refused after a crash, the
    /// one that was in effect before the crash.
    fn load_first(&self, supervised: Option<&mut Supervised>) -> Result<Settings, Box<RefusedConfiguration>> {
        let Some(supervised) = supervised else { return self.load() };
        let kept = supervised.kept_configuration().and_then(|texts| Texts::decode(&texts));
        let failed_start = supervised.failed_start().map(str::to_owned);
        supervised.refuse_files(None);
        let Some(texts) = kept else { return self.load() };
        let reason = match failed_start {
            Some(reason) => reason,
            None => match self.load() {
                Ok(settings) => return Ok(settings),
                Err(refused) => refused.plain(),
            },
        };
        match config::load_kept(&texts, &self.pipeline) {
            Ok(settings) => {
                self.keep(&settings, texts);
                supervised.refuse_files(Some(reason));
                Ok(settings)
            }
            Err(refused) => {
                tracing::error!("the configuration before the crash is refused as well: {}", refused.plain());
                self.load()
            }
        }
    }

    /// Keeps the texts as long as they may be needed.
    fn keep(&self, settings: &Settings, texts: Texts) {
        let stay = !settings.watched.is_empty() || settings.admin.is_some();
        let is_wanted = stay || self.is_supervised;
        *self.read.lock() = is_wanted.then(|| ReadTexts { texts: Arc::new(texts), stay });
    }
}

impl SettingsSource for Files {
    fn read(&self) -> Result<Settings, String> {
        // A start can read a pipe. A reload could not: it would wait for a writer, and block later reloads.
        if std::fs::metadata(&self.path).is_ok_and(|found| !found.is_file()) {
            return Err(format!("cannot read {}: it is not a file", self.path.display()));
        }
        self.load().map_err(|refused| refused.plain())
    }

    fn refresh(&self) -> Result<Settings, String> {
        let present = self.present.lock().clone();
        let texts = present.ok_or("the present configuration refers to no file")?;
        let settings = config::load_kept(&texts, &self.pipeline).map_err(|refused| refused.plain())?;
        *self.read.lock() = Some(ReadTexts { texts, stay: true });
        Ok(settings)
    }

    fn read_given(&self, text: String, is_json: bool) -> Result<Settings, String> {
        // The path decides between KDL and JSON by its extension, and relative paths start at its folder.
        let has_its_form = self.path.extension().is_some_and(|extension| extension == "json") == is_json;
        let path = match has_its_form {
            true => self.path.clone(),
            false => self.path.with_extension(if is_json { "json" } else { "kdl" }),
        };
        let given = config::load_given(&path, text, &self.pipeline);
        let (settings, texts) = given.map_err(|refused| refused.plain())?;
        self.keep(&settings, texts);
        Ok(settings)
    }

    fn effective(&self) -> Option<EffectiveConfiguration> {
        let texts = self.present.lock().clone()?;
        let mut digest = Sha256::new();
        let mut files = Vec::new();
        for (path, text) in texts.files() {
            let path = path.display().to_string();
            for part in [&*path, text] {
                digest.update((part.len() as u64).to_be_bytes());
                digest.update(part);
            }
            files.push((path, text.to_owned()));
        }
        let tag = digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Some(EffectiveConfiguration { tag, files })
    }

    fn place_of(&self, key: &str, address: &ListenAddress) -> Option<String> {
        config::place_of(&self.path, key, address)
    }

    fn log_filter(&self) -> Option<String> {
        LOG_LEVEL.get().map(|level| level.text.lock().clone())
    }

    fn set_log_filter(&self, text: &str) -> Result<(), String> {
        let level = LOG_LEVEL.get().ok_or("the level of this process cannot be changed")?;
        (level.set)(filter(text)?)?;
        text.trim().clone_into(&mut level.text.lock());
        Ok(())
    }

    fn took_effect(&self) {
        let (texts, stay) = self.read.lock().take().map(|read| (read.texts, read.stay)).unzip();
        let before =
            std::mem::replace(&mut *self.present.lock(), texts.clone().filter(|_| stay == Some(true)));
        let are_saved = |texts: &Arc<Texts>| before.is_some_and(|before| Arc::ptr_eq(&before, texts));
        if let Some(texts) = texts.filter(|texts| self.is_supervised && !are_saved(texts)) {
            *self.unsaved.lock() = Some(texts);
        }
    }

    fn take_texts(&self, limit: usize) -> Option<Vec<u8>> {
        let texts = self.unsaved.lock().take()?;
        Some(texts.encode(limit).unwrap_or_default())
    }

    fn handed_over(&self) {
        // The process that serves now has its own texts.
        *self.read.lock() = None;
        *self.present.lock() = None;
        *self.unsaved.lock() = None;
    }

    fn started(&self) {
        if let Some(banner) = &self.banner {
            print(banner);
        }
    }
}

/// Sets the name of the process in `ps` and `top` to the name of its program. After an upgrade, the program was
/// executed by a file descriptor, and the system would show the descriptor's number.
fn name_process() {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&program).file_name().and_then(|name| CString::new(name.as_encoded_bytes()).ok());
    if let Some(name) = name {
        // The system shortens a name that is too long.
        let _ = rustix::thread::set_name(&name);
    }
}

/// Runs the supervisor, which starts this program again as the serving process.
fn supervise(path: &Path) -> Outcome {
    let adopts =
        std::env::var_os(ADOPTING_VARIABLE).map(|_| foregate_proxy::server::take_stdin()).transpose();
    let supervised = adopts.and_then(|adopts| {
        foregate_supervisor::run(Options {
            arguments: std::env::args_os().skip(1).collect(),
            configuration: Some(path.to_owned()),
            inherited: foregate_proxy::server::inherited_sockets(),
            version: env!("CARGO_PKG_VERSION"),
            adopts,
            replacement: foregate_proxy::server::REPLACEMENT,
        })
    });
    match supervised {
        Ok(code) => Outcome::Code(code),
        Err(error) => {
            complain(&format!("error: {error}"));
            Outcome::Wrong
        }
    }
}

/// Serves until the process is told to end.
///
/// # Errors
///
/// A message with advice: the process cannot start.
fn serve(
    settings: Settings,
    source: Arc<dyn SettingsSource>,
    if_taken: Option<String>,
    supervised: Option<Supervised>,
) -> Result<(), String> {
    if let Some(user) = &settings.user {
        privileges::change_to(user).map_err(|error| error.to_string())?;
    }
    let source = WithKeeper::new(source, &settings).map_err(|error| error.to_string())?;
    foregate_proxy::server::run(settings, Arc::new(source), supervised).map_err(|error| {
        let if_taken = if_taken.filter(|_| error.kind() == io::ErrorKind::AddrInUse);
        let help = match if_taken {
            Some(if_taken) => Some(format!("another process listens there: stop it, or {if_taken}")),
            None => foregate_proxy::server::advice(&error).map(str::to_owned),
        };
        help.map_or_else(|| error.to_string(), |help| format!("{error}\n  help: {help}"))
    })
}

/// Shows the error of a server that could not start, here and to the command that waits for it.
fn ended(served: Result<(), String>, notice: Option<FailureNotice>) -> Outcome {
    let Err(error) = served else { return Outcome::Fine };
    complain(&format!("error: {error}"));
    if let Some(notice) = notice {
        notice.send(&error);
    }
    Outcome::Wrong
}

/// The log level, and the function that changes it.
struct LogLevel {
    text: Mutex<String>,
    set: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
}

static LOG_LEVEL: OnceLock<LogLevel> = OnceLock::new();

/// Starts logging to the standard error, one line for each event.
fn log_to_stderr() -> Result<(), String> {
    let said = std::env::var(LOG_VARIABLE).unwrap_or_default();
    let filter = match said.trim() {
        "" => EnvFilter::new("info"),
        directives => filter(directives)?,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // An error while logging would itself be printed to the standard error. That may be a closed pipe or a full disk, and
        // the print would panic and end the process.
        .log_internal_errors(false)
        // Colours would need one more crate.
        .with_ansi(false)
        .with_target(false)
        .with_filter_reloading();
    let handle = builder.reload_handle();
    builder.init();
    let text = if said.trim().is_empty() { "info" } else { said.trim() };
    let set = move |filter| handle.reload(filter).map_err(|error| error.to_string());
    // This function runs once, so the level cannot be set already.
    let _ = LOG_LEVEL.set(LogLevel { text: Mutex::new(text.to_owned()), set: Box::new(set) });
    Ok(())
}

/// Parses a log filter, and refuses a mistyped level: it would count as the name of a target, and hide all other
/// messages.
fn filter(directives: &str) -> Result<EnvFilter, String> {
    let directives: Vec<&str> = directives.split(',').map(str::trim).collect();
    for directive in &directives {
        let level = directive.rsplit_once('=').map_or(*directive, |(_, level)| level);
        if level.is_empty() || LevelFilter::from_str(level).is_err() {
            return Err(format!(
                "`{directive}`: write off, error, warn, info, debug or trace, or TARGET=LEVEL"
            ));
        }
    }
    EnvFilter::builder().parse(directives.join(",")).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn a_mistyped_level_is_refused() {
        for fine in ["warn", "INFO", "off", "foregate_proxy=debug", "warn, foregate_proxy::tls=trace"] {
            assert!(filter(fine).is_ok(), "{fine}");
        }
        for wrong in ["warning", "info,", "foregate_proxy", "foregate_proxy=loud", "blah=xx"] {
            let error = filter(wrong).err().unwrap_or_default();
            assert!(error.contains("write off, error"), "{wrong}: {error}");
        }
    }
}
