//! Sending the start of a body early, before the rest of the received data is filtered.

use super::Chain;

/// The length of the start of a body that is filtered and sent by itself, bytes before filtering. Filters take a few
/// microseconds for this start, but a few hundred microseconds for all data that is received at a time.
const FIRST_PIECE: usize = 512;
/// If at most this many bytes of a body have been received, its start is not sent by itself. The head of a response is
/// read together with at most 4 KiB of data, so for most bodies only the rest of these 4 KiB has arrived at first.
const SHORT: usize = 2048;

/// The most pieces that are filtered to get output that can be sent by itself. Some filters need a little more input
/// than the first piece before they write, and others need the whole body.
const PIECES: u8 = 3;

/// The way to send the start of a filtered body. Default: together with the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Start {
    /// The number of further pieces with output that may be sent by itself.
    left: u8,
    /// True if such a piece has just been filtered.
    due: bool,
}

impl Start {
    /// Sends the start of the body by itself, so that the client gets it soon, unless very little data has arrived.
    pub const SOON: Self = Self { left: PIECES, due: false };

    /// The next piece of the received data for the filters.
    pub fn piece<'d>(&mut self, data: &'d [u8]) -> &'d [u8] {
        let piece = data.get(..Chain::PIECE).unwrap_or(data);
        if self.left == 0 {
            return piece;
        }
        let is_first = self.left == PIECES;
        // The start of a short body is not worth a separate packet.
        if is_first && piece.len() <= SHORT {
            self.left = 0;
            return piece;
        }
        self.left -= 1;
        self.due = true;
        if is_first { piece.get(..FIRST_PIECE).unwrap_or(piece) } else { piece }
    }

    /// Returns true, but only once for a body, if the output so far has to be sent before more data is filtered. `written`
    /// is true if filters have written output.
    pub fn is_due(&mut self, written: bool) -> bool {
        let is_due = core::mem::take(&mut self.due) && written;
        if is_due {
            self.left = 0;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_what_is_long_is_sent_by_itself() {
        let data = [0; 3 * Chain::PIECE];
        let mut start = Start::SOON;
        assert!(!start.is_due(true));
        assert_eq!(start.piece(&data).len(), FIRST_PIECE);
        assert!(start.is_due(true) && !start.is_due(true));
        assert_eq!(start.piece(&data).len(), Chain::PIECE);
        assert!(!start.is_due(true));
    }

    #[test]
    fn what_filters_hold_back_at_first_is_sent_with_what_brings_it_out() {
        let data = [0; 3 * Chain::PIECE];
        let mut start = Start::SOON;
        start.piece(&data);
        assert!(!start.is_due(false));
        assert_eq!(start.piece(&data[..100]).len(), 100);
        assert!(start.is_due(true) && start == Start::default());

        let mut start = Start::SOON;
        let pieces = (0..5).map(|_| (start.piece(&data).len(), start.is_due(false)));
        assert_eq!(pieces.map(|(length, _)| length).sum::<usize>(), FIRST_PIECE + 4 * Chain::PIECE);
        assert_eq!(start, Start::default());
    }

    #[test]
    fn what_is_short_or_not_awaited_goes_as_usual() {
        let (data, mut start) = ([0; Chain::PIECE], Start::SOON);
        assert_eq!(start.piece(&data[..SHORT]).len(), SHORT);
        assert_eq!(start.piece(&data).len(), Chain::PIECE);
        assert_eq!(start, Start::default());
    }
}
