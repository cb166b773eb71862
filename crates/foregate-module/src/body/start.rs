//! Early sending of the start of a body, before the rest of the received part is filtered.

use super::Chain;

/// The start of a body that is sent by itself, bytes of the source. Filters need some microseconds for it, and some hundred for
/// all that is taken at a time.
const FIRST_PIECE: usize = 512;
/// Shorter bodies have no start that is sent by itself, bytes. The head of a response is read with at most 4 KiB, so for most
/// bodies only the rest of those has arrived at the beginning.
const SHORT: usize = 2048;

/// How many pieces may go through filters before one of them has made something that is sent by itself. Some wait for a little
/// more than the first, and some for all that there is.
const PIECES: u8 = 3;

/// The way to send the start of a filtered body. Default: together with the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Start {
    /// How many pieces more may be sent by themselves.
    left: u8,
    /// One of the pieces has gone through.
    due: bool,
}

impl Start {
    /// By itself, if more than a little has arrived, so that the client has it soon.
    pub const SOON: Self = Self { left: PIECES, due: false };

    /// The next part of the received data for the filters.
    pub fn piece<'d>(&mut self, data: &'d [u8]) -> &'d [u8] {
        let piece = data.get(..Chain::PIECE).unwrap_or(data);
        if self.left == 0 {
            return piece;
        }
        let is_first = self.left == PIECES;
        // The start of a short body is not worth a packet of its own.
        if is_first && piece.len() <= SHORT {
            self.left = 0;
            return piece;
        }
        self.left -= 1;
        self.due = true;
        if is_first { piece.get(..FIRST_PIECE).unwrap_or(piece) } else { piece }
    }

    /// Returns true if the output so far is to be sent before more is filtered; only once. `written` says that filters have
    /// produced output.
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
