//! The messages of a new version that has ended before it was ready, without a report to the supervisor.

use std::fs::File;
use std::io::{self, Read, pipe};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::timeout;

use crate::binary::Binary;
use crate::generation::Generation;
use crate::protocol::Role;
use crate::supervisor::Supervisor;

/// A program that has ended within this time is started again. It then gets this time to end once more.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(5);
/// The most bytes that are read of the standard error.
const READ_MOST: u64 = 64 << 10;
/// The most lines that are shown, and the most characters of each.
const LINES: usize = 4;
const LINE: usize = 200;

/// A process that is killed when this is dropped.
struct Killed(Rc<Generation>);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.signal(Signal::KILL);
    }
}

/// Starts a program once more and returns the last lines of its standard error; `None` if it does not end soon, or says
/// nothing. The standard error of the first process is that of the service: if it were a pipe to the supervisor, the process
/// could no longer log after the supervisor has died.
pub(crate) async fn last_words(supervisor: &Supervisor, binary: &Binary) -> Option<String> {
    let (said, stderr) = pipe().ok()?;
    let number = supervisor.next_number();
    let (arguments, events) = (&supervisor.options.arguments, &supervisor.events);
    let stderr = Some(Stdio::from(stderr));
    let process = Generation::start(number, binary, arguments, Role::Candidate, events, stderr).ok()?;
    let process = Killed(process);
    // An error is ignored: a process that has ended reads nothing.
    let _ = supervisor.begin(&process.0, &[], &[]).await;
    timeout(AT_ONCE, process.0.ended()).await.ok()?;
    last_lines(&read(said.into()).ok()?)
}

/// Reads the bytes that are in a pipe. Its other end may still be open in another process.
fn read(pipe: OwnedFd) -> io::Result<Vec<u8>> {
    rustix::io::ioctl_fionbio(&pipe, true)?;
    let mut bytes = Vec::new();
    match File::from(pipe).take(READ_MOST).read_to_end(&mut bytes) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(bytes),
    }
}

/// The last lines of a text, without control characters. `None` if it has no line with text.
fn last_lines(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let clean = |line: &str| line.chars().filter(|c| !c.is_control()).take(LINE).collect::<String>();
    let lines: Vec<_> = text.lines().map(clean).filter(|line| !line.trim().is_empty()).collect();
    let last = lines.get(lines.len().saturating_sub(LINES)..).filter(|last| !last.is_empty())?;
    Some(last.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_last_lines_are_short_and_have_no_control_characters() {
        assert_eq!(last_lines(b""), None);
        assert_eq!(last_lines(b"\n \r\n\x07\n"), None);
        assert_eq!(
            last_lines(b"error: no\x1b such\tthing\xff\r\n\n"),
            Some("error: no suchthing\u{fffd}".to_owned())
        );
        assert_eq!(last_lines(b"1\n2\n3\n4\n\n5"), Some("2\n3\n4\n5".to_owned()));
        assert_eq!(last_lines(&[b'x'; 5000]).map(|line| line.len()), Some(LINE));
    }

    #[test]
    fn a_pipe_is_read_although_another_process_may_write_to_it() {
        let (said, mut open) = pipe().unwrap();
        open.write_all(b"panicked").unwrap();
        assert_eq!(read(said.into()).unwrap(), b"panicked");
    }
}
