//! `foregate logs`.

mod filter;
mod pretty;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use foregate_module::Pipeline;
use foregate_proxy::configuration::Settings;
use foregate_proxy::settings::{LineFormat, LogTarget};
use serde_json::Value;

use self::filter::LogFilter;
use super::arguments::ConfigFile;
use super::output::{Outcome, complain, print, show_refused};
use crate::config;

/// The time between two looks at a followed file.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The longest line that is shown as one, in bytes; a longer one is split.
const LINE_MOST: u64 = 1 << 20;
/// The bytes to read from the end of the file for each requested line.
const LINE_USUAL: u64 = 4096;

#[derive(Debug, Args)]
pub(super) struct Logs {
    #[command(flatten)]
    file: ConfigFile,
    /// The log file [default: the first access log in JSON that the configuration names]
    #[arg(long, value_name = "PATH")]
    log: Option<PathBuf>,
    /// The log of this site, by its first host, instead of the one of all sites
    #[arg(long, value_name = "HOST", conflicts_with = "log")]
    site: Option<String>,
    /// Go on with lines as they are written, also into another file after a rotation
    #[arg(short, long)]
    follow: bool,
    /// The number of lines to begin with
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 10)]
    lines: usize,
    /// Show only requests for which this expression is true: `http.response.code ge 500 and log.duration_us gt 100000`
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// List the fields that a filter may use
    #[arg(long)]
    fields: bool,
    /// Print the lines as they stand in the file
    #[arg(long)]
    json: bool,
}

impl Logs {
    pub(super) fn run(&self, pipeline: &Arc<Pipeline>) -> Outcome {
        if self.fields {
            print(&filter::fields());
            return Outcome::Fine;
        }
        let filter = match self.filter.as_deref().map(LogFilter::compile).transpose() {
            Ok(filter) => filter,
            Err(error) => {
                complain(&error);
                return Outcome::Usage;
            }
        };
        let path = match self.find(pipeline) {
            Ok(path) => path,
            Err(outcome) => return outcome,
        };
        match self.show(&path, filter.as_ref()) {
            Ok(()) => Outcome::Fine,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Outcome::Fine,
            Err(error) => {
                complain(&format!("{}: {error}", path.display()));
                Outcome::Wrong
            }
        }
    }

    /// The file to read.
    fn find(&self, pipeline: &Arc<Pipeline>) -> Result<PathBuf, Outcome> {
        if let Some(log) = &self.log {
            return Ok(log.clone());
        }
        let file = self.file.path();
        let chosen = match config::load_and_warn(&file, pipeline) {
            Ok((settings, _)) => choose(&settings, self.site.as_deref()),
            // If the configuration has errors elsewhere, the log is shown anyway.
            Err(refused) => match (config::access_log(&file), &self.site) {
                (Ok(Some(path)), None) => {
                    complain(&format!(
                        "the configuration has errors (`foregate check`); this is {}",
                        path.display()
                    ));
                    Ok(path)
                }
                _ => {
                    let outcome = show_refused(&refused, self.json);
                    complain(
                        "  help: the file is read here to find the `access-log`; `--log PATH` names the log itself",
                    );
                    return Err(outcome);
                }
            },
        };
        chosen.map_err(|error| {
            complain(&error);
            Outcome::Wrong
        })
    }

    fn show(&self, path: &Path, filter: Option<&LogFilter>) -> io::Result<()> {
        let mut reader = LogReader::open(path)?;
        if filter.is_none() {
            reader.skip_to_tail((self.lines as u64).saturating_mul(LINE_USUAL))?;
        }
        let mut last = VecDeque::new();
        while let Some(line) = reader.next_line()? {
            if self.lines > 0 && filter.is_none_or(|filter| filter.keeps(&line)) {
                if last.len() >= self.lines {
                    last.pop_front();
                }
                last.push_back(line);
            }
        }
        let colour = !self.json && io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let show = |line: &str| -> io::Result<()> {
            let shown = if self.json { line.to_owned() } else { pretty::line(line, colour) };
            io::Write::write_all(&mut io::stdout().lock(), format!("{shown}\n").as_bytes())
        };
        last.iter().try_for_each(|line| show(line))?;
        if !self.follow {
            return Ok(());
        }
        loop {
            match reader.next_line()? {
                Some(line) if filter.is_none_or(|filter| filter.keeps(&line)) => show(&line)?,
                Some(_) => {}
                None if reader.follow(path)? => {}
                None => std::thread::park_timeout(LOOK_EVERY),
            }
        }
    }
}

/// The path of the first access log that is a file with lines in JSON.
fn choose(settings: &Settings, site: Option<&str>) -> Result<PathBuf, String> {
    let mut other = None;
    for log in settings.access_logs.iter().filter(|log| log.site.as_deref() == site) {
        match (&log.target, &log.format) {
            (LogTarget::File { path, .. }, LineFormat::Json | LineFormat::JsonOf(_))
                if !path.starts_with("/dev") =>
            {
                return Ok(path.clone());
            }
            (target, _) => other = Some(target.to_string()),
        }
    }
    Err(match (other, site) {
        (Some(target), _) => {
            format!("the access log {target} is no file in JSON; name one with `--log PATH`")
        }
        (None, Some(site)) => format!("the site {site} has no access log of its own; leave out `--site`"),
        (None, None) if settings.access_logs.iter().any(|log| log.site.is_some()) => {
            let mut sites: Vec<_> =
                settings.access_logs.iter().filter_map(|log| log.site.as_deref()).collect();
            sites.dedup();
            format!("only sites have an `access-log`; name one with `--site`: {}", sites.join(", "))
        }
        (None, None) => "the configuration names no `access-log`; add `access-log \"access.log\"`".to_owned(),
    })
}

/// A reader of a log file that grows.
struct LogReader {
    file: BufReader<File>,
    inode: u64,
    /// The start of a line that has no end yet.
    rest: Vec<u8>,
}

impl LogReader {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
        }
        Ok(Self { inode: metadata.ino(), file: BufReader::new(file), rest: Vec::new() })
    }

    /// Moves to the first whole line in the last `bytes` of the file.
    fn skip_to_tail(&mut self, bytes: u64) -> io::Result<()> {
        let length = self.file.get_ref().metadata()?.len();
        if length > bytes {
            // Start one byte earlier: if that is a line feed, the line after it is whole.
            self.file.seek(SeekFrom::Start(length - bytes - 1))?;
            let mut cut = Vec::new();
            (&mut self.file).take(LINE_MOST).read_until(b'\n', &mut cut)?;
        }
        Ok(())
    }

    /// The next whole line; `None` at the current end of the file.
    fn next_line(&mut self) -> io::Result<Option<String>> {
        let room = LINE_MOST.saturating_sub(self.rest.len() as u64);
        let read = (&mut self.file).take(room).read_until(b'\n', &mut self.rest)?;
        if self.rest.ends_with(b"\n") || (read > 0 && self.rest.len() as u64 >= LINE_MOST) {
            let line = String::from_utf8_lossy(self.rest.trim_ascii_end()).into_owned();
            self.rest.clear();
            return Ok(Some(line));
        }
        Ok(None)
    }

    /// Switches to the file that is now at the path, as soon as the old file is read to its end. Returns true if there is
    /// more to read.
    fn follow(&mut self, path: &Path) -> io::Result<bool> {
        let Ok(present) = std::fs::metadata(path) else { return Ok(false) };
        if present.ino() != self.inode {
            // Lines may have been written after the last read and before the file was renamed.
            if !self.file.fill_buf()?.is_empty() {
                return Ok(true);
            }
            *self = Self::open(path)?;
            return Ok(true);
        }
        if present.len() < self.file.stream_position()? {
            self.file.rewind()?;
            self.rest.clear();
            return Ok(true);
        }
        Ok(false)
    }
}

/// A line as a JSON object.
fn object(line: &str) -> Option<Value> {
    serde_json::from_str::<Value>(line).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_is_followed_through_a_rotation() {
        let folder = std::env::temp_dir().join(format!("foregate-logs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("access.log");
        std::fs::write(&path, "one\ntwo\npart").unwrap();
        let mut reader = LogReader::open(&path).unwrap();
        reader.skip_to_tail(9).unwrap();
        let next = |reader: &mut LogReader| reader.next_line().unwrap();
        assert_eq!((next(&mut reader).as_deref(), next(&mut reader)), (Some("two"), None));
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b" and end\nlast\n").unwrap();
        assert_eq!(next(&mut reader).as_deref(), Some("part and end"));
        std::fs::rename(&path, folder.join("access.log.1")).unwrap();
        assert!(reader.follow(&path).is_ok_and(|more| !more), "no new one yet");
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(next(&mut reader).as_deref(), Some("last"));
        assert!(reader.follow(&path).unwrap());
        assert_eq!(next(&mut reader).as_deref(), Some("new"));
        std::fs::write(&path, "a\n").unwrap();
        assert!(reader.follow(&path).unwrap(), "cut off");
        assert_eq!(next(&mut reader).as_deref(), Some("a"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
