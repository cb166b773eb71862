//! The command line.

mod admin;
mod arguments;
mod cache;
mod certificates;
mod check;
mod compare;
mod defaults;
mod diff;
mod doctor;
mod explain;
mod explain_cache;
mod explain_fallback;
mod explain_servers;
mod fmt;
mod init;
mod keeper;
mod logs;
mod lsp;
mod man;
mod migrate;
mod module;
mod modules;
mod output;
mod panics;
mod privileges;
mod progress;
mod reload;
mod run;
mod schema;
mod status;
mod top;
mod upgrade;
mod upstreams;
mod version;
mod waf;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};
use foregate_module::Pipeline;

use self::arguments::Json;
use self::output::{Outcome, complain, ended, print};
use crate::config::schema as keys;
use crate::demo::{DemoArguments, QuickstartArguments, QuickstartError};

/// A programmable edge reverse proxy.
#[derive(Debug, Parser)]
#[command(name = "foregate", disable_version_flag = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the proxy
    Run(run::Run),
    /// Start a tour: the proxy with HTTP/2 and TLS, and a demo origin
    Quickstart(QuickstartArguments),
    /// Serve the demo origin alone
    Demo(DemoArguments),
    /// Check the configuration (also: -t)
    Check(check::Check),
    /// Format configuration files
    Fmt(fmt::Fmt),
    /// Show the listener, site, route and upstream for a URL, and the reasons
    Explain(explain::Explain),
    /// Show the differences between two configurations, and the requests of a log that they treat differently
    Diff(diff::Diff),
    /// List the modules: their steps in order, with inputs, outputs and effects
    Modules(modules::Modules),
    /// Write a module
    #[command(subcommand)]
    Module(module::Module),
    /// Check rules of the web application firewall, and run them on a request
    #[command(subcommand)]
    Waf(waf::Waf),
    /// Purge the cache of a running proxy, and show what is in it
    #[command(subcommand)]
    Cache(cache::Cache),
    /// Reload the configuration of a running proxy
    Reload(reload::Reload),
    /// Show the servers of upstreams in a running proxy, or change one
    Upstreams(upstreams::Upstreams),
    /// Show the certificates of a running proxy: their state, the days left, and failed renewals
    Certificates(certificates::Certificates),
    /// Compare the answers of two systems
    #[command(subcommand)]
    Compare(compare::Compare),
    /// Send the cases of files to one system, and judge its answers
    Test(compare::TestCases),
    /// Replace the running proxy by another version, judged by its answers to a growing share of the clients
    Upgrade(upgrade::Upgrade),
    /// Show the running proxy: its processes, their versions, shares and requests
    Status(status::Status),
    /// Show the access log: pretty, filtered by an expression, as it grows
    Logs(logs::Logs),
    /// Watch the running proxy: traffic, latencies, servers, the slowest requests
    Top(top::Top),
    /// Show how far the move from another proxy has come
    #[command(subcommand)]
    Migrate(migrate::Migrate),
    /// Look at limits, rights and names of this machine, and say what to type
    Doctor(doctor::Doctor),
    /// Write a commented configuration, from flags or from the answers to three questions
    Init(init::Init),
    /// Print a manual page, or write all of them
    Man(man::Man),
    /// Help an editor with configurations: errors, completion, documentation (a language server)
    Lsp(lsp::Lsp),
    /// Print the JSON Schema of configurations in JSON
    Schema(schema::Schema),
    /// Print the version (also: --version)
    Version(Json),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Runs the verb of the command line.
pub(crate) fn main(pipeline: Pipeline) -> ExitCode {
    if let Some(wrong) = wrong_key(&pipeline) {
        complain(&format!("error: {wrong}"));
        return Outcome::Wrong.into();
    }
    let pipeline = Arc::new(pipeline);
    let verb = Cli::try_parse_from(arguments()).unwrap_or_else(|error| with_advice(error).exit()).verb;
    let outcome = match verb {
        Verb::Run(run) => run.run(pipeline),
        Verb::Quickstart(arguments) => quickstart(arguments, pipeline),
        Verb::Demo(arguments) => demo(arguments),
        Verb::Check(check) => check.run(&pipeline),
        Verb::Fmt(fmt) => fmt.run(),
        Verb::Explain(explain) => explain.run(&pipeline),
        Verb::Diff(diff) => diff.run(&pipeline),
        Verb::Modules(modules) => modules.run(&pipeline),
        Verb::Module(module) => module.run(&pipeline),
        Verb::Waf(waf) => waf.run(&pipeline),
        Verb::Cache(cache) => cache.run(),
        Verb::Reload(reload) => reload.run(),
        Verb::Upstreams(upstreams) => upstreams.run(),
        Verb::Certificates(certificates) => certificates.run(&pipeline),
        Verb::Compare(compare) => compare.run(),
        Verb::Test(test) => test.run(),
        Verb::Upgrade(upgrade) => upgrade.run(),
        Verb::Status(status) => status.run(),
        Verb::Logs(logs) => logs.run(&pipeline),
        Verb::Top(top) => top.run(),
        Verb::Migrate(migrate) => migrate.run(),
        Verb::Doctor(doctor) => doctor.run(&pipeline),
        Verb::Init(init) => init.run(&pipeline),
        Verb::Man(man) => man.run(&pipeline, Cli::command()),
        Verb::Lsp(lsp) => lsp.run(&pipeline),
        Verb::Schema(schema) => schema.run(&pipeline),
        Verb::Version(Json { json }) => version::run(json),
        Verb::Completions { shell } => completions(shell),
    };
    ended(outcome)
}

/// The error if keys of a binary's own modules conflict with other keys: a module would do nothing, or disable another.
fn wrong_key(pipeline: &Pipeline) -> Option<String> {
    if let Some([one, other]) = pipeline.conflicting_keys() {
        let name = other.key.map_or("", |key| key.name);
        let (one, other) = (one.name, other.name);
        return Some(format!(
            "steps `{one}` and `{other}` have the key `{name}` with settings of two types; steps of one module share a type, \
             another module needs another name"
        ));
    }
    let (key, _) = pipeline.keys().into_iter().find(|(key, _)| keys::is_key(key.name))?;
    Some(format!("a module has the key `{}`, which is one of the configuration's own", key.name))
}

/// The arguments of the command line. A leading `-t`, `-V` or `--version` is replaced by its verb, because clap would
/// take it for an option.
fn arguments() -> impl Iterator<Item = OsString> {
    let verb = |(at, argument): (usize, OsString)| match argument.to_str() {
        Some("-t") if at == 1 => "check".into(),
        Some("-V" | "--version") if at == 1 => "version".into(),
        _ => argument,
    };
    let all = std::env::args_os().enumerate().map(verb).collect();
    options_last(all, &Cli::command()).into_iter()
}

/// Moves the options between a verb and its second verb behind the second one, which has them: `upstreams -c FILE set ...`
/// becomes `upstreams set -c FILE ...`.
fn options_last(mut all: Vec<OsString>, command: &clap::Command) -> Vec<OsString> {
    const WITH_VALUE: [&str; 3] = ["-c", "--config", "--admin"];
    const WHOLE: [&str; 4] = ["--json", "-c", "--config=", "--admin="];
    let Some(verb) = all.get(1).and_then(|verb| command.find_subcommand(verb)) else { return all };
    let mut at = 2;
    while let Some(option) = all.get(at).and_then(|option| option.to_str()) {
        at += match option {
            option if WITH_VALUE.contains(&option) => 2,
            option if WHOLE.iter().any(|whole| option.starts_with(whole)) => 1,
            _ => break,
        };
    }
    if at < all.len() && all.get(at).is_some_and(|inner| verb.find_subcommand(inner).is_some()) {
        all[2..=at].rotate_right(1);
    }
    all
}

/// Adds advice to an error about another program's verb, or about a file name without `-c`.
fn with_advice(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) {
        let instead = VERBS_ELSEWHERE.iter().find(|(names, _)| names.contains(&&**name));
        if let Some((_, instead)) = instead {
            // Remove clap's own suggestion: a verb with a similar spelling does something else.
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::None);
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![(*instead).into()]));
        }
        return error;
    }
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidArg) else { return error };
    let is_first = std::env::args().nth(1).as_ref() == Some(name);
    let advice = match &**name {
        file if file.ends_with(".kdl") || file.ends_with(".json") => {
            format!("a configuration is named by `-c {file}`")
        }
        "-c" | "--config" if is_first => {
            "a verb comes first: `foregate run -c FILE` starts the proxy, `foregate check -c FILE` checks the file"
                .to_owned()
        }
        "-s" if is_first => "`foregate reload` takes a new configuration; SIGTERM stops the proxy".to_owned(),
        file if file.ends_with(".log") => format!("a log is named by `--log {file}`"),
        _ => return error,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    error
}

/// The verbs of other proxies, with the way to do the same with Foregate.
const VERBS_ELSEWHERE: &[(&[&str], &str)] = &[
    (&["start", "serve", "server", "up", "daemon", "reverse-proxy"], "`foregate run` starts the proxy"),
    (
        &["stop", "quit", "shutdown", "down", "kill"],
        "SIGTERM stops the proxy once its requests are answered: `systemctl stop foregate`, or Ctrl-C where it was started",
    ),
    (
        &["restart"],
        "`foregate reload` takes a new configuration, `foregate upgrade` a new version; neither loses a connection",
    ),
    (
        &["file-server", "files", "static", "http-server"],
        "`foregate run --files FOLDER` serves the files of a folder",
    ),
    (
        &["hash-password", "htpasswd", "passwd"],
        "`htpasswd -nB NAME`, a tool of Apache, makes hashes of passwords",
    ),
    (
        &["dashboard", "ui", "web"],
        "the key `dashboard \"127.0.0.1:9146\"` of the configuration serves a page; `foregate top` shows the figures here",
    ),
    (
        &["metrics", "stats"],
        "the key `metrics \"127.0.0.1:9145\"` of the configuration serves metrics; `foregate top` shows the figures here",
    ),
    (&["validate", "configtest", "lint", "verify"], "`foregate check` checks the configuration"),
    (&["format"], "`foregate fmt` formats configuration files"),
    (&["purge", "ban"], "`foregate cache purge` removes stored responses"),
    (
        &["adapt", "convert", "migrate-config"],
        "docs/guide/nginx-directives.md has the counterparts of the directives of NGINX",
    ),
    (
        &["cert", "certs", "acme", "tls"],
        "`foregate certificates` shows the certificates of the running proxy",
    ),
    (&["ps", "info", "health"], "`foregate status` shows the running proxy"),
    (&["log", "tail"], "`foregate logs` shows the access log"),
    (&["bench"], "`foregate test` sends cases to one system, `foregate compare run` to two"),
    (&["route", "routes", "trace"], "`foregate explain URL` shows the route of a URL, and the reasons"),
    (&["servers", "backends", "clusters"], "`foregate upstreams` shows the servers of upstreams"),
];

fn quickstart(arguments: QuickstartArguments, pipeline: Arc<Pipeline>) -> Outcome {
    match arguments.start() {
        Ok(started) => {
            let announced =
                run::StartMessages { text: started.banner.clone(), if_taken: started.if_taken.clone() };
            // `started` holds the lock on the folder until the proxy has ended.
            run::Run::file(started.configuration.clone()).announcing(announced).run(pipeline)
        }
        Err(error) => wrong(&error),
    }
}

fn demo(arguments: DemoArguments) -> Outcome {
    match arguments.run(|address| print(&format!("The demo origin is on http://{address}.\n"))) {
        Ok(()) => Outcome::Fine,
        Err(error) => wrong(&error),
    }
}

fn wrong(error: &QuickstartError) -> Outcome {
    complain(&format!("error: {error}"));
    if let Some(help) = error.help() {
        complain(&format!("  help: {help}"));
    }
    Outcome::Wrong
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "foregate", &mut script);
    print(&String::from_utf8_lossy(&script));
    Outcome::Fine
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn options_before_a_second_verb_are_its_own() {
        let moved = |line: &str| {
            let all = line.split(' ').map(OsString::from).collect();
            options_last(all, &Cli::command()).join(OsStr::new(" ")).into_string().unwrap()
        };
        for (given, expected) in [
            (
                "foregate upstreams -c a.kdl set app b:1 drain",
                "foregate upstreams set -c a.kdl app b:1 drain",
            ),
            (
                "foregate cache --json --admin=a.sock purge /x",
                "foregate cache purge --json --admin=a.sock /x",
            ),
            ("foregate certificates -ca.kdl root", "foregate certificates root -ca.kdl"),
            ("foregate upstreams -c set", "foregate upstreams -c set"),
            ("foregate upstreams --json", "foregate upstreams --json"),
            ("foregate check -c root", "foregate check -c root"),
            ("foregate", "foregate"),
        ] {
            assert_eq!(moved(given), expected);
        }
        assert!(
            Cli::try_parse_from(moved("foregate upstreams -c a.kdl set app b:1 drain").split(' ')).is_ok()
        );
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
