//! `foregate run`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;

use crate::config;
use clap::Args;
use foregate_module::Pipeline;
use foregate_proxy::settings::Settings;
use tracing_subscriber::EnvFilter;

use super::ConfigFile;
use super::output::{Outcome, complain, show_refused};
use super::panics::log_panics;

/// The environment variable that says what is logged, such as `info` or `foregate_proxy=debug`.
const LOG_VARIABLE: &str = "FOREGATE_LOG";

#[derive(Debug, Args)]
pub(super) struct Run {
    #[command(flatten)]
    file: ConfigFile,
    /// Send everything to this origin; needs no file. Repeat it for several servers
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    to: Vec<String>,
    /// Where to accept with --to
    #[arg(long, value_name = "ADDRESS", requires = "to", default_value = ":8080")]
    listen: Vec<String>,
}

impl Run {
    /// The same as `-c FILE`.
    pub(super) fn file(path: PathBuf) -> Self {
        Self { file: ConfigFile { config: Some(path) }, to: Vec::new(), listen: Vec::new() }
    }

    pub(super) fn run(self, pipeline: Arc<Pipeline>) -> Outcome {
        if let Err(error) = log_to_stderr() {
            complain(&format!("{LOG_VARIABLE}: {error}"));
            return Outcome::Usage;
        }
        log_panics();
        if !self.to.is_empty() {
            let (to, listen) = (self.to, self.listen);
            return match config::single(&to, &listen, &pipeline) {
                Err(error) => {
                    complain(&error.to_string());
                    Outcome::Usage
                }
                Ok(settings) => serve(settings, move || {
                    config::single(&to, &listen, &pipeline).map_err(|error| error.to_string())
                }),
            };
        }
        let path = self.file.path();
        match config::load(&path, &pipeline) {
            Err(refused) => show_refused(&refused, false),
            Ok(settings) => {
                serve(settings, move || config::load(&path, &pipeline).map_err(|refused| refused.plain()))
            }
        }
    }
}

fn serve(
    settings: Settings,
    reload: impl Fn() -> Result<Settings, String> + Send + Sync + 'static,
) -> Outcome {
    match foregate_proxy::server::run(settings, Arc::new(reload)) {
        Ok(()) => Outcome::Fine,
        Err(error) => {
            complain(&format!("error: {error}"));
            Outcome::Wrong
        }
    }
}

/// Diagnostics go to the standard error, one line each.
fn log_to_stderr() -> Result<(), tracing_subscriber::filter::ParseError> {
    let filter = match std::env::var(LOG_VARIABLE) {
        Ok(directives) => EnvFilter::builder().parse(directives)?,
        Err(_) => EnvFilter::new("info"),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .init();
    Ok(())
}
