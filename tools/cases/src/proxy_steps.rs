//! The step `proxy`: signals, configuration files, logs and metrics of the proxy's process.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::case::ProxyAction;
use crate::process::{self, Proxy};
use crate::shared::Shared;
use crate::text::Text;

/// Runs the step.
pub(crate) fn run(shared: &Shared, action: &ProxyAction) -> Result<(), String> {
    let text = |text: &Text| text.string(&shared.variables);
    match action {
        ProxyAction::Signal(name) => {
            if ["INT", "TERM", "QUIT"].contains(&name.as_str()) {
                shared.expect_end(0);
            }
            with_proxy(shared, |proxy| proxy.signal(name))
        }
        ProxyAction::Config(config) => write(&shared.folder.join("case.kdl"), &text(config)?),
        ProxyAction::File(path, content) => write(&shared.folder.join(text(path)?), &text(content)?),
        ProxyAction::Copy(from, to) => {
            let content =
                fs::read_to_string(shared.folder.join(text(from)?)).map_err(|error| error.to_string())?;
            write(&shared.folder.join(text(to)?), &content)
        }
        ProxyAction::Move(from, to) => {
            let (from, to) = (shared.folder.join(text(from)?), shared.folder.join(text(to)?));
            fs::rename(&from, to).map_err(|error| format!("{}: {error}", from.display()))
        }
        ProxyAction::Truncate(path, size) => {
            let path = shared.folder.join(text(path)?);
            let file = fs::OpenOptions::new().write(true).open(&path);
            file.and_then(|file| file.set_len(*size)).map_err(|error| format!("{}: {error}", path.display()))
        }
        ProxyAction::Run(arguments, exit, wanted) => {
            let arguments = arguments.iter().map(text).collect::<Result<Vec<_>, _>>()?;
            let binary = shared.variables.get("binary").cloned().unwrap_or_default();
            let output = run_binary(Path::new(&binary), &shared.folder, &arguments)?;
            shared.note("proxy", &format!("{}{}", output.stdout, output.stderr));
            if output.exit != *exit {
                return Err(format!(
                    "ended with {}, not {exit}:\n{}{}",
                    output.exit, output.stdout, output.stderr
                ));
            }
            let streams =
                [("output", &wanted.stdout, &output.stdout), ("error", &wanted.stderr, &output.stderr)];
            for (name, wanted, got) in streams {
                let wanted = wanted.as_ref().map(text).transpose()?.unwrap_or_default();
                if !got.contains(&wanted) {
                    return Err(format!("standard {name} does not hold `{wanted}`:\n{got}"));
                }
            }
            Ok(())
        }
        ProxyAction::Stderr(wanted, time) => {
            let wanted = text(wanted)?;
            shared.until(time.within, || {
                let stderr = with_proxy(shared, |proxy| Ok(proxy.stderr()))?;
                if stderr.contains(&wanted) { Ok(()) } else { Err(format!("standard error is:\n{stderr}")) }
            })
        }
        ProxyAction::Log(path, wanted, time) => {
            let (path, wanted) = (shared.folder.join(text(path)?), text(wanted)?);
            shared.until(time.within, || {
                let content =
                    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                if content.contains(&wanted) { Ok(()) } else { Err(format!("the file holds:\n{content}")) }
            })
        }
        ProxyAction::NoLog(path, unwanted) => {
            let (path, unwanted) = (shared.folder.join(text(path)?), text(unwanted)?);
            let content =
                fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            if content.contains(&unwanted) { Err(format!("the file holds:\n{content}")) } else { Ok(()) }
        }
        ProxyAction::Exits(code, time) => {
            let got = shared.until(time.within, || {
                let exit = with_proxy(shared, |proxy| Ok(proxy.try_exit()))?;
                exit.ok_or_else(|| "the proxy still runs".to_owned())
            })?;
            shared.expect_end(*code);
            if got == *code { Ok(()) } else { Err(format!("the proxy ended with {got}")) }
        }
        ProxyAction::Metric { series, compare, value, time } => {
            let series = text(series)?;
            let address = shared.variables.get("metrics").cloned().unwrap_or_default();
            shared.until(time.within, || {
                let got = process::metric(&address, &series)?;
                let fits = match compare.as_str() {
                    ">=" => got >= *value,
                    "<=" => got <= *value,
                    _ => (got - value).abs() < f64::EPSILON,
                };
                if fits { Ok(()) } else { Err(format!("{series} is {got}")) }
            })
        }
        ProxyAction::Memory(most) => with_proxy(shared, |proxy| {
            let got = proxy.memory();
            if got <= *most { Ok(()) } else { Err(format!("the proxy holds {} MiB", got >> 20)) }
        }),
        ProxyAction::Restart { kill } => restart(shared, *kill),
        ProxyAction::Alive => with_proxy(shared, |proxy| match proxy.try_exit() {
            None => Ok(()),
            Some(code) => Err(format!("the proxy ended with {code}")),
        }),
    }
}

fn with_proxy<T>(shared: &Shared, act: impl FnOnce(&mut Proxy) -> Result<T, String>) -> Result<T, String> {
    act(shared.proxy.lock().as_mut().ok_or("no proxy runs in this case")?)
}

fn restart(shared: &Shared, kill: bool) -> Result<(), String> {
    let binary = shared.variables.get("binary").cloned().unwrap_or_default();
    let config = fs::read_to_string(shared.folder.join("case.kdl")).map_err(|error| error.to_string())?;
    with_proxy(shared, |proxy| {
        if kill {
            proxy.kill();
        } else {
            proxy.finish(None)?;
        }
        *proxy = Proxy::start(Path::new(&binary), &shared.folder, &config, None, None)?;
        Ok(())
    })
}

fn write(path: &Path, content: &str) -> Result<(), String> {
    // In one step, so that a watcher never sees half of it.
    let beside = path.with_extension("new");
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::write(&beside, content).map_err(told)?;
    fs::rename(&beside, path).map_err(told)
}

/// The output of a command.
pub(crate) struct Output {
    /// Its exit code; -1 when a signal ended it.
    pub exit: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Runs the binary to its end.
///
/// # Errors
///
/// When it cannot be started.
pub(crate) fn run_binary(binary: &Path, folder: &Path, arguments: &[String]) -> Result<Output, String> {
    let output = Command::new(binary)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", binary.display()))?;
    let string = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Output {
        exit: output.status.code().unwrap_or(-1),
        stdout: string(output.stdout),
        stderr: string(output.stderr),
    })
}
