//! Pages of commands.

use clap::{Arg, ArgAction, Command};

use super::Page;
use super::roff::Roff;

/// The pages: one for the program, and one for each command. A command's own commands are sections of its page.
pub(super) fn pages(mut command: Command) -> Vec<Page> {
    command.build();
    let mut pages = vec![program(&command)];
    pages.extend(verbs(&command).map(verb));
    pages
}

fn verbs(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

fn program(command: &Command) -> Page {
    let mut roff = Roff::page("foregate", 1);
    roff.section("NAME");
    roff.line("foregate - a programmable edge reverse proxy");
    roff.section("SYNOPSIS");
    roff.line("foregate COMMAND [OPTIONS]");
    roff.section("DESCRIPTION");
    roff.paragraph(
        "Terminates HTTP/1.1, HTTP/2 and TLS, runs checked modules on requests and responses, and forwards to origins. One file \
         describes listeners, sites, routes and upstreams: see `foregate.kdl`(5).",
    );
    roff.section("COMMANDS");
    for verb in verbs(command) {
        roff.term(&format!("foregate {}", verb.get_name()), &about(verb));
    }
    roff.section("SIGNALS");
    for (signal, effect) in [
        ("HUP", "Reloads the configuration."),
        ("USR1", "Reopens log files."),
        ("USR2", "Upgrades to the binary's file as it is now."),
        ("QUIT", "Stops gracefully; open requests finish within `timeouts { drain }`."),
        ("TERM", "Stops gracefully within `timeouts { drain-term }`."),
        ("INT", "Stops at once."),
    ] {
        roff.term(signal, effect);
    }
    roff.section("EXIT STATUS");
    exit_codes(&mut roff);
    roff.section("ENVIRONMENT");
    roff.term(
        "FOREGATE_LOG",
        "The level of diagnostics: `off`, `error`, `warn`, `info`, `debug` or `trace`, also for one part, such as \
         `info,foregate_proxy=debug`.",
    );
    roff.section("FILES");
    let [here, system] = crate::config::DEFAULT_FILES;
    roff.term(here, "The configuration in the present folder.");
    roff.term(system, "The configuration, where there is none in the present folder.");
    roff.section("SEE ALSO");
    let pages: Vec<String> = verbs(command).map(|verb| format!("foregate-{}(1)", verb.get_name())).collect();
    roff.line(&format!("foregate.kdl(5), {}", pages.join(", ")));
    Page { name: "foregate".to_owned(), section: 1, text: roff.finish() }
}

fn verb(command: &Command) -> Page {
    let name = format!("foregate-{}", command.get_name());
    let mut roff = Roff::page(&name, 1);
    roff.section("NAME");
    roff.line(&format!("{name} - {}", first_sentence(&about(command)).replace('`', "")));
    roff.section("SYNOPSIS");
    let full = format!("foregate {}", command.get_name());
    for inner in std::iter::once(command).filter(|verb| !verb.has_subcommands()).chain(verbs(command)) {
        let path = if inner.get_name() == command.get_name() && !command.has_subcommands() {
            full.clone()
        } else {
            format!("{full} {}", inner.get_name())
        };
        roff.line(&synopsis(&path, inner));
        roff.line("");
    }
    roff.section("DESCRIPTION");
    roff.paragraph(&about(command));
    if command.has_subcommands() {
        for inner in verbs(command) {
            roff.section(&format!("{} {}", command.get_name(), inner.get_name()).to_uppercase());
            roff.paragraph(&about(inner));
            options(&mut roff, inner);
        }
    } else {
        roff.section("OPTIONS");
        options(&mut roff, command);
    }
    roff.section("EXIT STATUS");
    match command.get_after_help() {
        Some(text) => roff.paragraph(&text.to_string()),
        None => exit_codes(&mut roff),
    }
    roff.section("SEE ALSO");
    roff.line("foregate(1), foregate.kdl(5)");
    Page { name, section: 1, text: roff.finish() }
}

fn exit_codes(roff: &mut Roff) {
    roff.term("0", "Success.");
    roff.term("1", "The command found a mistake, or failed.");
    roff.term("2", "Wrong usage.");
}

fn about(command: &Command) -> String {
    command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default()
}

fn first_sentence(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end_matches('.')
}

/// The command with its arguments, as in its help text.
fn synopsis(path: &str, command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let arguments = usage.split_once(command.get_name()).map_or("", |(_, arguments)| arguments);
    format!("{path}{}", arguments.replace('\n', " "))
}

fn options(roff: &mut Roff, command: &Command) {
    let shown = |argument: &&Arg| !argument.is_hide_set();
    for argument in command.get_positionals().chain(command.get_opts()).filter(shown) {
        roff.term(&term(argument), &help(argument));
    }
    let flags = command.get_arguments().filter(|argument| {
        !argument.is_positional()
            && !argument.get_action().takes_values()
            && !matches!(argument.get_action(), ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong)
    });
    for argument in flags.filter(shown) {
        roff.term(&term(argument), &help(argument));
    }
}

fn term(argument: &Arg) -> String {
    let mut names = Vec::new();
    names.extend(argument.get_short().map(|letter| format!("-{letter}")));
    names.extend(argument.get_long().map(|name| format!("--{name}")));
    let names = names.join(", ");
    let values = argument.get_value_names().unwrap_or_default();
    let values: Vec<&str> = values.iter().map(|value| value.as_str()).collect();
    match (argument.is_positional(), argument.get_action().takes_values()) {
        (true, _) => values.join(" "),
        (false, true) => format!("{names} {}", values.join(" ")),
        (false, false) => names,
    }
}

fn help(argument: &Arg) -> String {
    let mut text = argument.get_help().map(ToString::to_string).unwrap_or_default();
    if !text.ends_with('.') && !text.is_empty() {
        text.push('.');
    }
    let choices: Vec<String> =
        argument.get_possible_values().iter().map(|choice| format!("`{}`", choice.get_name())).collect();
    if !choices.is_empty() && argument.get_action().takes_values() {
        text.push_str(&format!(" One of {}.", choices.join(", ")));
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        text.push_str(&format!(" Default: {}.", defaults.join(", ")));
    }
    text
}
