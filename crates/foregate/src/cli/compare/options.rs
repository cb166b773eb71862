//! How requests are sent.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::client::ClientSettings;

/// Options of commands that send requests.
#[derive(Debug, Args)]
pub(super) struct RequestOptions {
    /// Requests at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = jobs)]
    pub(super) jobs: usize,
    /// Requests a second, to each system
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(super) rate: Option<f64>,
    /// The host of requests that name none, such as lines of NGINX's format `combined` [default: that of the URL]
    #[arg(long, value_name = "HOST", value_parser = host)]
    pub(super) host: Option<String>,
    /// Seconds until an answer must be complete
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(super) timeout: u64,
    /// Accept any certificate
    #[arg(long)]
    pub(super) insecure: bool,
    /// Trust the authorities of this PEM file [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub(super) authorities: Option<PathBuf>,
}

impl RequestOptions {
    pub(super) fn client(&self, body_limit: usize) -> ClientSettings {
        ClientSettings {
            patience: Duration::from_secs(self.timeout),
            body_limit,
            host: self.host.clone(),
            insecure: self.insecure,
            authorities: self.authorities.clone(),
        }
    }
}

fn host(text: &str) -> Result<String, String> {
    let authority = text.parse::<http::uri::Authority>().ok().filter(|_| !text.contains('@'));
    authority.map(|_| text.to_owned()).ok_or_else(|| "expected a host such as shop.example.com".into())
}

fn jobs(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|jobs| (1..=1000).contains(jobs))
        .ok_or_else(|| "expected a number from 1 to 1000".into())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.001..=1_000_000.0).contains(rate));
    rate.ok_or_else(|| "expected requests a second, from 0.001 to 1000000".into())
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse().ok());
    number
        .filter(|number| (0.0..=100.0).contains(number))
        .ok_or_else(|| "expected a share such as 10%".into())
}

pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The runtime of a command.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    built.map_err(|error| format!("no threads: {error}"))
}
