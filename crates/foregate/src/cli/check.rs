//! `foregate check`.

use std::io::IsTerminal;
use std::sync::Arc;

use crate::config;
use clap::Args;
use foregate_module::Pipeline;
use foregate_proxy::settings::Settings;
use serde::Serialize;

use super::output::{Outcome, print, print_json, show_refused};
use super::{ConfigFile, Json, defaults};

#[derive(Debug, Args)]
pub(super) struct Check {
    #[command(flatten)]
    file: ConfigFile,
    /// Print every key with what holds without it, instead of checking a file
    #[arg(long)]
    show_defaults: bool,
    #[command(flatten)]
    output: Json,
}

/// What a configuration consists of.
#[derive(Debug, Serialize)]
struct Counts {
    ok: bool,
    file: String,
    listeners: usize,
    upstreams: usize,
    servers: usize,
    sites: usize,
    routes: usize,
}

impl Check {
    pub(super) fn run(&self, pipeline: &Arc<Pipeline>) -> Outcome {
        let json = self.output.json;
        if self.show_defaults {
            defaults::show(pipeline, json);
            return Outcome::Fine;
        }
        warn_on_stderr();
        let path = self.file.path();
        match config::load(&path, pipeline) {
            Err(refused) => show_refused(&refused, json),
            Ok(settings) => {
                let counts = count(&settings, path.display().to_string());
                if json {
                    print_json(&counts);
                } else {
                    let Counts { file, listeners, upstreams, servers, sites, routes, .. } = counts;
                    let servers = counted(servers, "server");
                    let routes = match routes {
                        1 => "1 route".to_owned(),
                        _ => format!("{routes} different routes"),
                    };
                    print(&format!(
                        "{file} is fine: {}, {} with {servers}, {}, {routes}\n",
                        counted(listeners, "listener"),
                        counted(upstreams, "upstream"),
                        counted(sites, "site"),
                    ));
                }
                // The process ends: taking 100,000 sites apart would be for nothing.
                std::mem::forget(settings);
                Outcome::Fine
            }
        }
    }
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// What is right, and does not do what it seems to be there for, goes to the standard error.
fn warn_on_stderr() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .init();
}

fn count(settings: &Settings, file: String) -> Counts {
    Counts {
        ok: true,
        file,
        listeners: settings.listeners.len(),
        upstreams: settings.upstreams.len(),
        servers: settings.upstreams.iter().map(|upstream| upstream.servers.len()).sum(),
        sites: settings.sites.sites().len(),
        routes: settings.sites.routes().len(),
    }
}
