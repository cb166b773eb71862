//! Access logs: one line per request.
//!
//! A line is formatted by the thread that served the request, and then passed to a [`LogFile`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use foregate_module::Text;

use super::log_file::LogFile;
use crate::settings::{self, LineFormat};

mod format;
mod layout;

pub(in crate::telemetry) use self::format::time as write_time;

/// An access log of a configuration.
#[derive(Debug, Clone)]
pub struct AccessLog {
    settings: settings::AccessLogSettings,
    file: LogFile,
}

/// One line of the access log. A member that is `None` is left out of the line. Each field of the
/// line has the name of its member, unless the member's comment gives another one.
#[derive(Debug, Clone, Copy)]
pub struct LogEntry<'a> {
    /// When the request began: `time`, RFC 3339 in UTC with milliseconds.
    pub time: SystemTime,
    /// The client, after the PROXY protocol.
    pub client: Option<IpAddr>,
    /// The request's method, any bytes; empty if it could not be parsed.
    pub method: &'a [u8],
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The requested host, any bytes.
    pub host: &'a [u8],
    /// The request's target as it was received, any bytes.
    pub path: &'a [u8],
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub protocol: &'static str,
    /// The status that was sent; `None` if none was sent. A malformed HTTP/2 request is logged as 400,
    /// although its stream is reset without a response.
    pub status: Option<u16>,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the response's body.
    pub bytes_out: u64,
    /// The time from the request's first byte to the response's last byte: `duration_us`.
    pub duration: Duration,
    /// The site's name.
    pub site: Option<&'a str>,
    /// The route's pattern.
    pub route: Option<&'a str>,
    /// The action of the route that answered the request or would have answered it: `proxy`, `files` or `respond`.
    pub action: Option<&'static str>,
    /// The upstream's name.
    pub upstream: Option<&'a str>,
    /// The server of the last attempt.
    pub server: Option<&'a str>,
    /// The number of attempts at an origin. 0 is left out of the line.
    pub attempts: u32,
    /// The time from the start of the last attempt to the first byte of the origin's response:
    /// `upstream_first_byte_us`.
    pub upstream_first_byte: Option<Duration>,
    /// True if the last attempt used a kept connection.
    pub upstream_reused: Option<bool>,
    /// How the cache handled the request.
    pub cache: Option<&'a str>,
    /// Why the cache handled the request so, if `cache` alone does not say it.
    pub cache_reason: Option<&'a str>,
    /// The reason for which the request was handed to the fallback proxy.
    pub fallback: Option<&'a str>,
    /// The error.
    pub error: Option<&'a str>,
    /// The side of the error: `downstream`, `upstream` or `internal`.
    pub error_side: Option<&'a str>,
    /// The side that ended a tunnel, or that closed its connection early but without an error:
    /// `client` or `origin`.
    pub ended_by: Option<&'static str>,
    /// `TLSv1.2` or `TLSv1.3`.
    pub tls: Option<&'static str>,
    /// The field `User-Agent`, any bytes.
    pub user_agent: Option<&'a [u8]>,
    /// The field `Referer`, any bytes.
    pub referer: Option<&'a [u8]>,
    /// The notes of modules' steps. The line shows them as an object.
    pub notes: &'a [(Text, Text)],
}

impl LogEntry<'_> {
    /// The entry as an object of JSON, with the names of the default format.
    pub fn json(&self) -> String {
        let mut line = Vec::new();
        format::line(&mut line, self);
        String::from_utf8_lossy(line.trim_ascii_end()).into_owned()
    }
}

impl AccessLog {
    /// An access log with these settings that writes to `file`.
    pub fn new(settings: settings::AccessLogSettings, file: LogFile) -> Self {
        Self { settings, file }
    }

    /// The settings.
    pub fn settings(&self) -> &settings::AccessLogSettings {
        &self.settings
    }

    /// Returns true if the settings contain expressions (conditions or further fields) that must be
    /// evaluated for each request.
    pub fn has_expressions(&self) -> bool {
        !self.settings.when.is_empty() || !self.settings.fields.is_empty()
    }

    /// Adds a line. `added` has the values of the settings' further fields. This never blocks on the
    /// target: if the backlog exceeds 4 MiB, the line is dropped and counted.
    pub fn record(&self, entry: &LogEntry<'_>, added: &[Option<Vec<u8>>]) {
        thread_local! {
            static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        LINE.with_borrow_mut(|line| {
            line.clear();
            match &self.settings.format {
                LineFormat::Json if added.is_empty() => format::line(line, entry),
                _ => layout::line(line, entry, &self.settings, added),
            }
            self.file.push(line);
        });
    }
}

/// The access logs of a configuration.
#[derive(Debug, Clone, Default)]
pub struct AccessLogs {
    all: Vec<AccessLog>,
    /// The logs of individual sites, by the site's first host.
    of_sites: HashMap<Arc<str>, Vec<AccessLog>, foldhash::fast::RandomState>,
}

impl AccessLogs {
    /// Adds a log.
    pub fn add(&mut self, log: AccessLog) {
        match log.settings.site.clone() {
            Some(site) => self.of_sites.entry(site).or_default().push(log),
            None => self.all.push(log),
        }
    }

    /// Returns true if no request is logged.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.of_sites.is_empty()
    }

    /// The logs for the requests of a site.
    pub fn of(&self, site: Option<&str>) -> impl Iterator<Item = &AccessLog> {
        let of_site = site.filter(|_| !self.of_sites.is_empty()).and_then(|site| self.of_sites.get(site));
        self.all.iter().chain(of_site.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests;
