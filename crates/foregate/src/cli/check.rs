//! `foregate check`.

mod watch;

use std::path::Path;
use std::sync::Arc;

use crate::config::{self, ProblemReport};
use clap::Args;
use foregate_config::{Item, Tree};
use foregate_module::Pipeline;
use foregate_proxy::configuration::Settings;
use serde::Serialize;

use super::arguments::{ConfigFile, Json};
use super::defaults;
use super::output::{Outcome, complain, print, print_json, show_refused};
use super::privileges::with_rights_of;

#[derive(Debug, Args)]
pub(super) struct Check {
    #[command(flatten)]
    file: ConfigFile,
    /// Print every key with its default, instead of checking a file
    #[arg(long)]
    show_defaults: bool,
    /// Check again after each change of the files, until the reader of the output is gone; with `--json`, one line for each check
    #[arg(long, conflicts_with = "show_defaults")]
    watch: bool,
    #[command(flatten)]
    output: Json,
}

/// The counts of a configuration.
#[derive(Debug, Serialize)]
struct ConfigurationCounts {
    ok: bool,
    file: String,
    listeners: usize,
    upstreams: usize,
    servers: usize,
    sites: usize,
    routes: usize,
}

/// The output for machines.
#[derive(Serialize)]
struct MachineOutput<'w> {
    #[serde(flatten)]
    counts: ConfigurationCounts,
    warnings: Vec<ProblemReport<'w>>,
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
        if self.watch {
            return watch::run(&path, pipeline, json);
        }
        match config::load_and_warn(&path, pipeline) {
            Err(refused) => show_refused(&refused, json),
            Ok((settings, warnings)) => {
                let counts = count(&settings, warnings.tree(), path.display().to_string());
                if json {
                    print_json(&MachineOutput { counts, warnings: warnings.shown() });
                } else {
                    // Warnings are about valid settings that seem to have no effect.
                    let warnings = warnings.plain();
                    if !warnings.is_empty() {
                        complain(&warnings);
                    }
                    warn_about_user(&path, pipeline, &settings);
                    print(&fine_line(&counts));
                }
                // The process ends, so dropping 100,000 sites would be wasted work.
                std::mem::forget(settings);
                Outcome::Fine
            }
        }
    }
}

/// Warns if root checks a configuration that its `user` could not start with.
fn warn_about_user(path: &Path, pipeline: &Arc<Pipeline>, settings: &Settings) {
    let Some(user) = &settings.user else { return };
    let refused = with_rights_of(user, || config::load(path, pipeline).err().map(|refused| refused.plain()));
    let Some(refused) = refused.flatten() else { return };
    let first = refused.lines().next().unwrap_or_default();
    complain(&format!(
        "warning: `{}`, which `user` names, could not start with this file: {first}",
        user.name
    ));
    complain("  help: let this user read and write there");
}

/// The line that is printed for a configuration without errors.
fn fine_line(counts: &ConfigurationCounts) -> String {
    let ConfigurationCounts { file, listeners, upstreams, servers, sites, routes, .. } = counts;
    let servers = counted(*servers, "server");
    format!(
        "{file} is fine: {}, {} with {servers}, {}, {}\n",
        counted(*listeners, "listener"),
        counted(*upstreams, "upstream"),
        counted(*sites, "site"),
        counted(*routes, "route"),
    )
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Sends log messages to the standard error.
fn warn_on_stderr() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        // Colours would need one more crate.
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .init();
}

/// Counts the nodes in the files, not the settings: `listen ":80"` makes two sockets, and equal routes share their
/// memory.
fn count(settings: &Settings, tree: &Tree, file: String) -> ConfigurationCounts {
    let roots = tree.roots();
    let named = |name: &'static str| roots.iter().filter(move |item| item.node.name() == name);
    let routes = |site: &Item<'_>| site.children().iter().filter(|item| item.node.name() == "route").count();
    ConfigurationCounts {
        ok: true,
        file,
        listeners: named("listen").count(),
        upstreams: settings.upstreams.len(),
        servers: settings.upstreams.iter().map(|upstream| upstream.servers.len()).sum(),
        sites: named("site").count(),
        routes: named("site").map(routes).sum(),
    }
}
