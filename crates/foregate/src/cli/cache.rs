//! `foregate cache`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::admin::{AdminEvents, EventStream, ResourceRequest, events, reason};
use super::arguments::{ConfigFile, Json};
use super::output::{Outcome, complain, print, print_json};
use super::progress::Progress;
use super::reload::{ask_process, cannot_ask, find_admin};

/// The time within which the proxy must send the next event of a check: it sends one each second.
const PATIENCE: Duration = Duration::from_secs(60);

/// A verb of the cache.
#[derive(Debug, Subcommand)]
pub(super) enum Cache {
    /// Make stored responses invalid, at once
    Purge(Purge),
    /// Show the figures of the cache
    Stat(Stat),
    /// Show what is stored for a URL
    Get(Get),
    /// Read and check everything on disk; damaged responses are removed
    Verify(Verify),
}

/// The options that name the process to ask.
#[derive(Debug, Args)]
struct RunningProxy {
    #[command(flatten)]
    file: ConfigFile,
    /// The admin socket [default: the one that the configuration names]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
    #[command(flatten)]
    output: Json,
}

#[derive(Debug, Args)]
pub(super) struct Purge {
    #[command(flatten)]
    what: What,
    /// Make the responses stale: they are validated before use, except in the cases that allow stale responses
    #[arg(long)]
    soft: bool,
    #[command(flatten)]
    running: RunningProxy,
}

/// The options that select the responses to purge.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct What {
    /// The responses for this URL, in all variants
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The responses with this tag, which the origin has named in Cache-Tag or Surrogate-Key
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// The responses whose URL begins like this one
    #[arg(long, value_name = "URL")]
    prefix: Option<String>,
    /// All responses
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(super) struct Stat {
    #[command(flatten)]
    running: RunningProxy,
}

#[derive(Debug, Args)]
pub(super) struct Verify {
    #[command(flatten)]
    running: RunningProxy,
}

#[derive(Debug, Args)]
pub(super) struct Get {
    /// The URL
    #[arg(value_name = "URL")]
    url: String,
    /// A field of the request, for responses that vary
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    #[command(flatten)]
    running: RunningProxy,
}

impl Cache {
    pub(super) fn run(&self) -> Outcome {
        match self {
            Self::Purge(purge) => {
                let request = ResourceRequest::post("/v1/cache/purge").with_body(purge.body());
                purge.running.ask(&request, |answer| {
                    Ok(show_purged(answer) + &without_effect(answer, purge.what.url.as_deref()))
                })
            }
            Self::Stat(stat) => {
                stat.running.ask(&ResourceRequest::get("/v1/cache"), |answer| Ok(show_stat(answer)))
            }
            Self::Verify(verify) => verify.running.verify(),
            Self::Get(get) => {
                let request = ResourceRequest::get("/v1/cache/response").with("url", &get.url);
                let request = get.headers.iter().fold(request, |request, field| request.with("field", field));
                get.running.ask(&request, |answer| show_stored(answer, &get.url))
            }
        }
    }
}

impl Purge {
    fn body(&self) -> Value {
        let What { url, tag, prefix, all } = &self.what;
        let mut body = Map::new();
        for (name, text) in [("url", url), ("tag", tag), ("prefix", prefix)] {
            if let Some(text) = text {
                body.insert(name.to_owned(), text.clone().into());
            }
        }
        for (name, _) in [("all", *all), ("soft", self.soft)].iter().filter(|(_, is_set)| *is_set) {
            body.insert((*name).to_owned(), true.into());
        }
        Value::Object(body)
    }
}

impl RunningProxy {
    /// Sends `request` to the process and prints the answer as `show` formats it; `show` may report an error instead.
    fn ask(&self, request: &ResourceRequest, show: impl FnOnce(&Value) -> Result<String, String>) -> Outcome {
        let json = self.output.json;
        let answer = match ask_process(&self.file, self.admin.as_deref(), request, json) {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        let shown = match answer.get("ok") {
            Some(Value::Bool(true)) => show(&answer),
            _ => Err(reason(&answer).to_owned()),
        };
        if json {
            print_json(&answer);
        }
        match shown {
            Ok(_) if json => Outcome::Fine,
            Ok(text) => {
                print(&text);
                Outcome::Fine
            }
            Err(error) => {
                if !json {
                    complain(&error);
                }
                Outcome::Wrong
            }
        }
    }

    /// Has the process check the stored responses on disk.
    fn verify(&self) -> Outcome {
        let json = self.output.json;
        let request = ResourceRequest::post("/v1/cache/verify");
        let admin = match find_admin(&self.file, self.admin.as_deref(), &request, json) {
            Ok(admin) => admin,
            Err(outcome) => return outcome,
        };
        let checked = events(&admin, &request, PATIENCE).and_then(|asked| match asked {
            AdminEvents::Stream(events) => follow(events),
            AdminEvents::Refused(answer) => Ok(answer),
        });
        match checked {
            Ok(result) if result["ok"] == Value::Bool(true) => show_verified(&result, json),
            Ok(refusal) => {
                if json {
                    print_json(&refusal);
                } else {
                    complain(reason(&refusal));
                }
                Outcome::Wrong
            }
            Err(error) => cannot_ask(&admin, &error),
        }
    }
}

/// Shows the progress of a check, and returns the data of its last event.
fn follow(mut events: EventStream) -> io::Result<Value> {
    let mut progress = Progress::new("responses");
    let result = loop {
        let event = match events.next() {
            Ok(Some(event)) => event,
            Ok(None) => {
                let cut_off = "the process ended before the check did: repeat it";
                break Err(io::Error::new(io::ErrorKind::UnexpectedEof, cut_off));
            }
            Err(error) => break Err(error),
        };
        let number = |name: &str| event.data[name].as_u64().unwrap_or(0);
        match &*event.name {
            "progress" => progress.tell(
                number("whole") + number("damaged") + number("unread"),
                number("entries"),
                &format!("{} damaged", number("damaged")),
            ),
            _ => break Ok(event.data),
        }
    };
    progress.end();
    result
}

fn show_verified(result: &Value, json: bool) -> Outcome {
    let number = |name: &str| result[name].as_u64().unwrap_or(0);
    let (whole, bytes) = (number("whole"), number("bytes"));
    let (damaged, unread) = (number("damaged"), number("unread"));
    let is_fine = damaged == 0 && unread == 0;
    if json {
        print_json(
            &json!({ "ok": is_fine, "whole": whole, "bytes": bytes, "damaged": damaged, "unread": unread }),
        );
    } else {
        let damage = match (damaged, unread) {
            (0, 0) => "none is damaged".to_owned(),
            (damaged, 0) => format!("{damaged} damaged, which are removed"),
            (damaged, unread) => format!(
                "{damaged} damaged, which are removed; {unread} could not be read: the disk is too slow, or off"
            ),
        };
        print(&format!("checked {}, {}: {damage}\n", counted(whole + damaged), size(bytes)));
    }
    if is_fine { Outcome::Fine } else { Outcome::Wrong }
}

fn counted(responses: u64) -> String {
    if responses == 1 { "1 response".to_owned() } else { format!("{responses} responses") }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..0x400 => format!("{bytes} bytes"),
        0x400..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

fn show_purged(answer: &Value) -> String {
    let number = |name: &str| answer[name].as_u64().unwrap_or(0);
    let done = if answer["soft"] == Value::Bool(true) { "made stale" } else { "purged" };
    let memory = format!("{done}: {} in memory ({})", counted(number("responses")), size(number("bytes")));
    let rest = match (answer["folders"].as_str(), answer["on_disk"].as_u64()) {
        (Some("used"), Some(entries)) => format!(", {} on disk\n", counted(entries)),
        (Some("used"), None) => "; those on disk too, which are not counted\n".to_owned(),
        (Some("awaited"), _) => {
            "\nthis process has no disk folder yet: another generation holds it, and takes the purge within a second\n"
                .to_owned()
        }
        _ => "\n".to_owned(),
    };
    let mut text = memory + &rest;
    for (node, state) in answer["nodes"].as_object().into_iter().flatten() {
        text.push_str(&match state.as_str() {
            Some("purged") => format!("node {node}: purged\n"),
            Some("away") => format!("node {node}: away, it purges before it serves again\n"),
            _ => format!("node {node}: has not confirmed it yet\n"),
        });
    }
    text
}

/// Advice after a purge of a URL for which no response was stored; empty after other purges.
fn without_effect(answer: &Value, url: Option<&str>) -> String {
    let none = |name: &str| answer[name].as_u64().is_none_or(|count| count == 0);
    let are_counted = answer["folders"] != "used" || !answer["on_disk"].is_null();
    match url
        .filter(|_| none("responses") && none("on_disk") && are_counted && answer["folders"] != "awaited")
    {
        Some(url) => format!(
            "no response is stored for {url}: scheme, host, port and query count, and `key` of `cache` may add to them;\n\
             `foregate explain {url}` shows the key, and `foregate cache purge --prefix` takes a part of the URL\n"
        ),
        None => String::new(),
    }
}

fn show_stat(answer: &Value) -> String {
    let memory = |name: &str| answer["memory"][name].as_u64().unwrap_or(0);
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let mut text = format!(
        "memory     {} of {}, {} entries, {} evicted\n",
        mib(memory("bytes")),
        mib(memory("limit")),
        memory("entries"),
        memory("evictions")
    );
    if memory("held") > 0 {
        text.push_str(&format!("  {:<8} {} that left it and are still read\n", "held", mib(memory("held"))));
    }
    for disk in answer["disks"].as_array().into_iter().flatten() {
        let number = |name: &str| disk[name].as_u64().unwrap_or(0);
        text.push_str(&format!(
            "disk       {} of {}, {} entries, {} evicted, {} hits: {}{}\n",
            mib(number("bytes")),
            mib(number("limit")),
            number("entries"),
            number("evictions"),
            number("hits"),
            disk["folder"].as_str().unwrap_or_default(),
            if disk["off"] == Value::Bool(true) { " (off, since it fails)" } else { "" },
        ));
        for name in ["dropped", "errors", "corrupt", "busy"].iter().filter(|name| number(name) > 0) {
            text.push_str(&format!("  {name:<8} {}\n", number(name)));
        }
    }
    for folder in answer["awaited"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        text.push_str(&format!("disk       not this process's yet, another generation holds it: {folder}\n"));
    }
    if answer["reserve"].is_object() {
        text.push_str(&show_reserve(&answer["reserve"]));
    }
    if answer["shield"].is_object() {
        text.push_str(&show_shield(&answer["shield"]));
    }
    let counts = |of: &Value| -> Vec<(String, u64)> {
        let all = of.as_object().into_iter().flatten();
        all.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect()
    };
    let requests = counts(&answer["requests"]);
    let all: u64 = requests.iter().map(|(_, count)| count).sum();
    for (outcome, count) in requests.iter().filter(|(_, count)| *count > 0) {
        text.push_str(&format!("{outcome:<10} {count} ({:.1} %)\n", 100.0 * *count as f64 / all as f64));
    }
    for (reason, count) in counts(&answer["not_stored"]).iter().filter(|(_, count)| *count > 0) {
        text.push_str(&format!("not stored {count} ({reason})\n"));
    }
    for name in ["collapsed", "fetches", "validated", "stored", "purges", "invalidated"] {
        text.push_str(&format!("{name:<10} {}\n", answer[name]));
    }
    text
}

fn show_reserve(reserve: &Value) -> String {
    let number = |name: &str| reserve[name].as_u64().unwrap_or(0);
    let state = match (reserve["off"] == Value::Bool(true), reserve["ready"] == Value::Bool(true)) {
        (true, _) => " (off, since it fails)",
        (false, false) => " (not used before its purges are known)",
        (false, true) => "",
    };
    let mut text = format!(
        "reserve    {} hits, {} misses, {} stored, {} removed: {}{state}\n",
        number("hits"),
        number("misses"),
        number("stored"),
        number("evictions"),
        reserve["bucket"].as_str().unwrap_or_default(),
    );
    for name in ["dropped", "errors", "corrupt"].iter().filter(|name| number(name) > 0) {
        text.push_str(&format!("  {name:<8} {}\n", number(name)));
    }
    text
}

fn show_shield(shield: &Value) -> String {
    let number = |name: &str| shield[name].as_u64().unwrap_or(0);
    let mut text = format!(
        "shield     {}: {} from their owners, {} for other nodes, {} to the origin without the owner\n",
        shield["name"].as_str().unwrap_or_default(),
        number("asked"),
        number("served"),
        number("direct"),
    );
    for node in shield["nodes"].as_array().into_iter().flatten() {
        let is = |name: &str| node[name] == Value::Bool(true);
        let state = match (is("self"), is("up"), is("current")) {
            (true, ..) => "this one",
            (_, false, _) => "away",
            (_, true, true) => "up",
            (_, true, false) => "up, without the latest purges",
        };
        let text_of = |name: &str| node[name].as_str().unwrap_or_default();
        text.push_str(&format!("  {:<8} {}: {state}\n", text_of("name"), text_of("address")));
    }
    for name in ["refused", "behind"].iter().filter(|name| number(name) > 0) {
        text.push_str(&format!("  {name:<8} {}\n", number(name)));
    }
    text
}

fn show_stored(answer: &Value, url: &str) -> Result<String, String> {
    if answer["found"] != Value::Bool(true) {
        let other = if answer["other_variants"] == Value::Bool(true) {
            "; there is for other fields of the request: name them, as in -H \"Accept-Language: en\""
        } else {
            ""
        };
        return Err(format!("nothing is stored for {url}{other}"));
    }
    let mut text = format!(
        "status {}, {} bytes, {} tags, age {} s, fresh for {} s\n",
        answer["status"], answer["bytes"], answer["tags"], answer["age"], answer["ttl"]
    );
    if answer["outdated"] == Value::Bool(true) {
        text.push_str("purged softly: it is validated before use\n");
    }
    for field in answer["fields"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        text.push_str(&format!("  {field}\n"));
    }
    Ok(text)
}
