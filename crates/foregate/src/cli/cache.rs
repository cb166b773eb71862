//! `foregate cache`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::output::{Outcome, complain, print, print_json};
use super::reload::ask_process;
use super::{ConfigFile, Json};

/// A verb of the cache.
#[derive(Debug, Subcommand)]
pub(super) enum Cache {
    /// Make stored responses invalid, at once
    Purge(Purge),
    /// Show the figures of the cache
    Stat(Stat),
    /// Show what is stored for a URL
    Get(Get),
}

/// The process that is asked.
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
    /// Make the responses stale: they are validated before use, and still serve where stale responses do
    #[arg(long)]
    soft: bool,
    #[command(flatten)]
    running: RunningProxy,
}

/// The responses that are purged.
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
                let What { url, tag, prefix, all } = &purge.what;
                let request = json!({
                    "verb": "cache-purge", "url": url, "tag": tag, "prefix": prefix, "all": all, "soft": purge.soft,
                });
                purge.running.ask(&request, |_| "purged\n".to_owned())
            }
            Self::Stat(stat) => stat.running.ask(&json!({ "verb": "cache-stat" }), show_stat),
            Self::Get(get) => {
                let request = json!({ "verb": "cache-get", "url": get.url, "fields": get.headers });
                get.running.ask(&request, show_stored)
            }
        }
    }
}

impl RunningProxy {
    fn ask(&self, request: &Value, show: impl FnOnce(&Value) -> String) -> Outcome {
        let json = self.output.json;
        let answer = match ask_process(&self.file, self.admin.as_deref(), request, json) {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        let fine = answer.get("ok") == Some(&Value::Bool(true));
        if json {
            print_json(&answer);
        } else if fine {
            print(&show(&answer));
        } else {
            complain(answer.get("error").and_then(Value::as_str).unwrap_or("refused without a reason"));
        }
        if fine { Outcome::Fine } else { Outcome::Wrong }
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
    if answer["reserve"].is_object() {
        text.push_str(&show_reserve(&answer["reserve"]));
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

fn show_stored(answer: &Value) -> String {
    if answer["found"] != Value::Bool(true) {
        let other = if answer["other_variants"] == Value::Bool(true) {
            "; for other fields of the request, there is"
        } else {
            ""
        };
        return format!("nothing is stored for this request{other}\n");
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
    text
}
