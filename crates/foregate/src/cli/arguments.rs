//! Arguments that several verbs have.

use std::path::PathBuf;

use clap::Args;

use super::output::complain;
use crate::config;

/// The option that names the configuration file.
#[derive(Debug, Args)]
pub(super) struct ConfigFile {
    /// Configuration file [default: foregate.kdl, else /etc/foregate/foregate.kdl]
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

impl ConfigFile {
    /// The path of the configuration file.
    pub(super) fn path(&self) -> PathBuf {
        self.config.clone().unwrap_or_else(|| {
            let file = config::default_file();
            if !file.exists() {
                let [here, system] = config::DEFAULT_FILES;
                complain(&format!("there is neither {here} nor {system}; `-c FILE` names another, `foregate run --to http://HOST:PORT` needs none"));
            }
            file
        })
    }
}

/// The option for output in JSON.
#[derive(Debug, Args)]
pub(super) struct Json {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}
