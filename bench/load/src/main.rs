//! Load generator and origin of the macro benchmark. See `bench/README.md`.
//!
//! - `bench-load origin LISTEN CONTROL [--idle-ms N] [--delay-ms N] [--page FILE]`
//! - `bench-load certificate FOLDER` writes `site.pem`, `site.key` and `both.pem`
//! - `bench-load load TARGET --work kept|once|idle|bursts|thinking [options]`, see [`usage`]
//! - `bench-load paced TARGET --exchanges FILE --rate N [options]` sends so many a second, whatever answers take
//!
//! The counts come out as one line of JSON.

mod cpu;
mod drive;
mod exchange;
mod h1;
mod h2;
mod link;
mod origin;
mod paced;
mod pattern;
mod tally;

use std::collections::HashMap;
use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use drive::{Driver, Plan, Use};
use exchange::Exchange;
use serde_json::{Value, json};
use tally::Tally;

fn usage() -> &'static str {
    "usage: bench-load origin LISTEN CONTROL [--idle-ms N] [--delay-ms N] [--page FILE]
       bench-load certificate FOLDER
       bench-load load TARGET --work kept|once|idle|bursts|thinking [--connections N] [--streams N]
                  [--answer BYTES] [--upload BYTES] [--tls CERTIFICATE] [--resume 1]
                  [--sources N] [--hosts N] [--pages N] [--warm-ms N] [--run-ms N] [--requests N]
                  [--burst N] [--interval-ms N] [--think-ms N] [--pids N,N,...] [--exchanges FILE]
       bench-load paced TARGET --exchanges FILE --rate N [--connections N] [--run-ms N]"
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["origin", listen, control, options @ ..] => run_origin(listen, control, options),
        ["certificate", folder] => write_certificate(Path::new(folder)),
        ["load", target, options @ ..] => run_load(target, options),
        ["paced", target, options @ ..] => run_paced(target, options),
        _ => Err(usage().into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-load: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The `--name value` pairs of a command line.
struct Options<'a>(HashMap<&'a str, &'a str>);

impl<'a> Options<'a> {
    fn parse(arguments: &[&'a str], known: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut pairs = HashMap::new();
        for pair in arguments.chunks(2) {
            match pair {
                [name, value] if name.strip_prefix("--").is_some_and(|name| known.contains(&name)) => {
                    pairs.insert(&name[2..], *value);
                }
                _ => return Err(format!("{pair:?} is no option\n{}", usage()).into()),
            }
        }
        Ok(Self(pairs))
    }

    fn get<T: FromStr>(&self, name: &str) -> Result<Option<T>, Box<dyn Error>>
    where
        T::Err: Error + 'static,
    {
        Ok(self.0.get(name).map(|value| value.parse()).transpose()?)
    }

    fn milliseconds(&self, name: &str, default: u64) -> Result<Duration, Box<dyn Error>> {
        Ok(Duration::from_millis(self.get(name)?.unwrap_or(default)))
    }
}

fn run_origin(listen: &str, control: &str, options: &[&str]) -> Result<(), Box<dyn Error>> {
    let options = Options::parse(options, &["idle-ms", "delay-ms", "page"])?;
    let settings = origin::Settings {
        listen: listen.parse()?,
        control: control.parse()?,
        idle: options.get("idle-ms")?.map(Duration::from_millis),
        delay: options.milliseconds("delay-ms", 0)?,
        page: options.get::<PathBuf>("page")?.map(std::fs::read).transpose()?.unwrap_or_default(),
    };
    Ok(origin::serve(&settings)?)
}

/// Writes a certificate with an ECDSA P-256 key; `both.pem` is for HAProxy.
fn write_certificate(folder: &Path) -> Result<(), Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed([link::NAME.to_owned()])?;
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    std::fs::write(folder.join("site.pem"), &certificate)?;
    std::fs::write(folder.join("site.key"), &key)?;
    std::fs::write(folder.join("both.pem"), certificate + &key)?;
    Ok(())
}

fn run_paced(target: &str, options: &[&str]) -> Result<(), Box<dyn Error>> {
    let options = Options::parse(options, &["exchanges", "rate", "connections", "run-ms"])?;
    let plan = paced::Plan {
        target: target.parse()?,
        rate: options.get("rate")?.filter(|rate: &f64| *rate > 0.0).ok_or_else(usage)?,
        connections: options.get("connections")?.unwrap_or(32),
        run: options.milliseconds("run-ms", 1500)?,
        exchanges: Exchange::read(&options.get::<PathBuf>("exchanges")?.ok_or_else(usage)?)?,
    };
    println!("{}", paced::run(&plan));
    Ok(())
}

fn run_load(target: &str, options: &[&str]) -> Result<(), Box<dyn Error>> {
    const KNOWN: &[&str] = &[
        "work",
        "connections",
        "streams",
        "answer",
        "upload",
        "tls",
        "resume",
        "sources",
        "hosts",
        "pages",
        "warm-ms",
        "run-ms",
        "requests",
        "interval-ms",
        "think-ms",
        "burst",
        "pids",
        "exchanges",
    ];
    let options = Options::parse(options, KNOWN)?;
    let work: String = options.get("work")?.ok_or_else(usage)?;
    let usage = match work.as_str() {
        "kept" => Use::Kept,
        "once" => Use::Once,
        "idle" | "bursts" | "thinking" => Use::Told,
        other => return Err(format!("{other:?} is no work\n{}", usage()).into()),
    };
    let resume = options.get::<u8>("resume")?.is_some_and(|resume| resume != 0);
    let mut driver = Driver::new(Plan {
        target: target.parse()?,
        connections: options.get("connections")?.unwrap_or(32),
        streams: options.get("streams")?,
        usage,
        answer: options.get("answer")?.unwrap_or(1024),
        upload: options.get("upload")?.unwrap_or(0),
        tls: options.get::<PathBuf>("tls")?.map(|certificate| (certificate, resume)),
        sources: options.get("sources")?.unwrap_or(0),
        hosts: options.get("hosts")?.unwrap_or(0),
        pages: options.get("pages")?.unwrap_or(0),
        exchanges: options.get::<PathBuf>("exchanges")?.map(|path| Exchange::read(&path)).transpose()?,
    })?;
    let pids: String = options.get("pids")?.unwrap_or_default();
    let pids =
        pids.split(',').filter(|pid| !pid.is_empty()).map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    if work == "idle" {
        return hold_idle(&mut driver);
    }
    let warm = options.milliseconds("warm-ms", 300)?;
    if usage != Use::Told {
        driver.closed_loop(warm)?;
    }
    let warm_tls = std::mem::take(&mut driver.tally.tls);
    let mut measured = measure(&mut driver, &pids, |driver| {
        if usage == Use::Told {
            let requests = options.get("requests")?.unwrap_or(10_000);
            if work == "thinking" {
                driver.thinking(requests, options.milliseconds("think-ms", 90)?)?;
                return Ok(());
            }
            driver.bursts(requests, options.get("burst")?, options.milliseconds("interval-ms", 0)?)?;
        } else {
            driver.closed_loop(options.milliseconds("run-ms", 1500)?)?;
        }
        Ok(())
    })?;
    if usage == Use::Kept {
        // Kept connections were opened while warming up.
        measured["tls"] = json!(warm_tls);
    }
    println!("{measured}");
    Ok(())
}

/// Runs one phase and gives its counts, with the CPU time that the proxy and this
/// process used. Nothing is in flight before and after it, so nothing is counted
/// that belongs to another phase.
fn measure(
    driver: &mut Driver,
    pids: &[u32],
    phase: impl FnOnce(&mut Driver) -> Result<(), Box<dyn Error>>,
) -> Result<Value, Box<dyn Error>> {
    let own = [std::process::id()];
    driver.tally = Tally::default();
    driver.classes.clear();
    let (cpu, own_cpu, start) = (cpu::used(pids)?, cpu::used(&own)?, Instant::now());
    phase(driver)?;
    let elapsed = driver.last - start;
    let mut counts = driver.tally.to_json();
    let classes = driver.classes.iter().map(|(class, tally)| (class.clone(), tally.to_json()));
    counts["classes"] = Value::Object(classes.collect());
    counts["cpu_s"] = json!((cpu::used(pids)? - cpu).as_secs_f64());
    counts["load_cpu_s"] = json!((cpu::used(&own)? - own_cpu).as_secs_f64());
    counts["seconds"] = json!(elapsed.as_secs_f64());
    Ok(counts)
}

/// Opens the connections, uses each once, says so, and holds them until the
/// standard input ends; then says how many were still open.
fn hold_idle(driver: &mut Driver) -> Result<(), Box<dyn Error>> {
    driver.one_each()?;
    println!("{}", driver.tally.to_json());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("{}", json!({ "gone": driver.gone()? }));
    Ok(())
}
