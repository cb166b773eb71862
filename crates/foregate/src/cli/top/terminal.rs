//! The terminal: its screen, its size and its keys. Its former state is restored on drop.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The sequences that switch to an alternate screen without a cursor, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// A key that `foregate top` understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminalKey {
    /// A character.
    Character(char),
    /// The Enter key.
    Enter,
    /// Escape.
    Escape,
    /// Deletes the last character.
    Backspace,
    /// Switches to the next part of the view.
    Tab,
    /// Control and C, or the end of the input.
    Quit,
}

pub(super) struct Terminal {
    former: Termios,
}

impl Terminal {
    /// Takes the terminal of the standard input and output.
    pub(super) fn open() -> io::Result<Self> {
        let former = tcgetattr(io::stdin())?;
        let mut raw = former.clone();
        raw.make_raw();
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let terminal = Self { former };
        let mut out = io::stdout().lock();
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(terminal)
    }

    /// The size of the terminal in columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(io::stdout()).map(|size| (size.ws_col as usize, size.ws_row as usize));
        size.ok().filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or((80, 24))
    }

    /// Shows these lines, and nothing else.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut screen = String::from("\x1b[H");
        for (number, line) in lines.iter().enumerate() {
            if number > 0 {
                screen.push_str("\r\n");
            }
            screen.push_str(line);
            screen.push_str("\x1b[K");
        }
        screen.push_str("\x1b[J");
        let mut out = io::stdout().lock();
        out.write_all(screen.as_bytes())?;
        out.flush()
    }

    /// The next key; `None` if there is none within this time. Keys that send a sequence, such as arrows, are ignored.
    pub(super) fn key(&mut self, within: Duration) -> io::Result<Option<TerminalKey>> {
        let stdin = io::stdin();
        let nanos = i64::from(within.subsec_nanos());
        let timeout = Timespec { tv_sec: i64::try_from(within.as_secs()).unwrap_or(1), tv_nsec: nanos };
        match poll(&mut [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 64];
        let length = rustix::io::read(stdin, &mut bytes)?;
        let read = bytes.get(..length).unwrap_or_default();
        Ok(match read {
            [] | [3 | 4, ..] => Some(TerminalKey::Quit),
            [0x1b] => Some(TerminalKey::Escape),
            [0x1b, ..] => None,
            [b'\r' | b'\n', ..] => Some(TerminalKey::Enter),
            [b'\t', ..] => Some(TerminalKey::Tab),
            [8 | 127, ..] => Some(TerminalKey::Backspace),
            _ => {
                let first = String::from_utf8_lossy(read).chars().next();
                first.filter(|character| !character.is_control()).map(TerminalKey::Character)
            }
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // If the terminal has gone, nothing needs to be restored.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.former);
        let mut out = io::stdout().lock();
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
    }
}
