//! Filters of bodies.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Where a filter writes.
pub trait Sink {
    /// Takes these bytes.
    fn write(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn write(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Changes a body while it streams.
///
/// A filter gets the body in pieces of any size, at most [`Chain::PIECE`] bytes, and writes what shall go on. It must not
/// keep more than its budget; what it writes is taken away before it gets more, so that a filter whose output grows needs
/// no memory for that.
pub trait BodyFilter: Send {
    /// Takes a piece.
    ///
    /// # Errors
    ///
    /// The filter cannot go on: see [`Bail`].
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail>;

    /// Whether more is to be written without another piece. A filter that can make much of little, such as one that
    /// decompresses, writes some ten KiB at once, keeps the rest of the piece, and says so here; it is given empty pieces
    /// until it has no more. Default: no.
    fn pending(&self) -> bool {
        false
    }

    /// The body's source has nothing more for now, and its receiver may wait for what is held: a filter that holds output
    /// back, as compression does, writes it. Input of which the end has not come, such as half a token, stays held. Called
    /// at any time before the end, several times in a row too. Default: nothing is held back.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn flush(&mut self, _out: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    /// The body has ended; what is still held is written.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail>;

    /// Gives up: what is held is written as it came, so that no byte is lost. Called when the budget is exceeded.
    ///
    /// # Errors
    ///
    /// [`Bail::Break`] if the rest cannot pass unchanged, as within a compressed stream.
    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail>;

    /// Bytes that the filter holds now.
    fn held(&self) -> usize {
        0
    }
}

/// Why a filter cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bail {
    /// It has written all that it held, the present piece included; the rest passes as it comes.
    Pass,
    /// The body is broken off, so that its receiver sees that something is missing.
    Break,
    /// The body is longer than it may be. For a request: 413.
    TooLarge,
}

/// A filter, and what the platform has to know of it.
pub struct Filtered {
    /// The step that it belongs to, for metrics.
    pub name: &'static str,
    /// The filter.
    pub filter: Box<dyn BodyFilter>,
    /// The most that it may hold, bytes. Beyond, it is told to bail out.
    pub budget: usize,
    /// Whether the body has the same length afterwards. If not, `content-length` goes, a strong validator becomes weak,
    /// and ranges are no longer offered.
    pub keeps_length: bool,
}

impl Filtered {
    /// A filter that changes lengths and takes the body as it comes, with a budget of 64 KiB.
    pub fn new(name: &'static str, filter: impl BodyFilter + 'static) -> Self {
        Self { name, filter: Box::new(filter), budget: 64 * 1024, keeps_length: false }
    }
}

/// Filters behind each other: what one writes the next one gets.
pub struct Chain {
    links: Vec<Link>,
}

struct Link {
    filtered: Filtered,
    passing: bool,
}

impl Link {
    fn pending(&self) -> bool {
        !self.passing && self.filtered.filter.pending()
    }
}

/// What became of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// The filter that has bailed out now, and will no longer be asked.
    pub bailed: Option<&'static str>,
}

impl Chain {
    /// The largest piece that filters get at once, bytes.
    pub const PIECE: usize = 4096;

    /// Filters in their order.
    pub fn new(filters: Vec<Filtered>) -> Self {
        Self { links: filters.into_iter().map(|filtered| Link { filtered, passing: false }).collect() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Takes a piece; what comes out goes to `out`.
    ///
    /// # Errors
    ///
    /// The body cannot go on, and which filter says so: never [`Bail::Pass`].
    pub fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<Passed, (Bail, &'static str)> {
        let mut passed = Passed::default();
        push(&mut self.links, piece, out, &mut passed)?;
        Ok(passed)
    }

    /// Whether a filter has more to write without another piece. Platforms take away what was written and call
    /// [`resume`](Self::resume) before they hand in more, so that a small piece that becomes large needs no memory. Where
    /// they do not, nothing is lost: the rest is written with the next piece, all at once.
    pub fn is_pending(&self) -> bool {
        self.links.iter().any(Link::pending)
    }

    /// Lets the filter that is pending, and nearest to the receiver, write more.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn resume(&mut self, out: &mut dyn Sink) -> Result<Passed, (Bail, &'static str)> {
        let mut passed = Passed::default();
        let last = self.links.iter().rposition(Link::pending).and_then(|last| self.links.get_mut(last..));
        if let Some([link, rest @ ..]) = last {
            give(link, rest, b"", out, &mut passed)?;
        }
        Ok(passed)
    }

    /// Bytes that all filters hold now.
    pub fn held(&self) -> usize {
        let held = |link: &Link| if link.passing { 0 } else { link.filtered.filter.held() };
        self.links.iter().map(held).fold(0, usize::saturating_add)
    }

    /// Tells the filter that holds most to give up, as if it had exceeded its budget: for platforms whose filters hold too
    /// much together.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write): the filter cannot let the rest of the body pass unchanged.
    pub fn relieve(&mut self, out: &mut dyn Sink) -> Result<Passed, (Bail, &'static str)> {
        let mut passed = Passed::default();
        let active = self.links.iter().enumerate().filter(|(_, link)| !link.passing);
        let most = active.max_by_key(|(_, link)| link.filtered.filter.held()).map(|(number, _)| number);
        if let Some([link, rest @ ..]) = most.and_then(|most| self.links.get_mut(most..)) {
            let mut next = Next { links: rest, out, passed: &mut passed, failed: None };
            let bailed = link.filtered.filter.bail(&mut next);
            if let Some(failed) = next.failed {
                return Err(failed);
            }
            settle(link, bailed.and(Err(Bail::Pass)), &mut passed)?;
        }
        Ok(passed)
    }

    /// The body's source has nothing more for now; what filters hold back for no other reason than to do better with more
    /// goes to `out`. For platforms to call before they wait for the source.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn flush(&mut self, out: &mut dyn Sink) -> Result<Passed, (Bail, &'static str)> {
        self.each(out, |filter, next| filter.flush(next))
    }

    /// The body has ended; what is still held goes to `out`.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn end(&mut self, out: &mut dyn Sink) -> Result<Passed, (Bail, &'static str)> {
        self.each(out, |filter, next| filter.end(next))
    }

    /// Tells the filters something, each after it has got what those before it had to write.
    fn each(
        &mut self,
        out: &mut dyn Sink,
        tell: impl Fn(&mut dyn BodyFilter, &mut Next<'_>) -> Result<(), Bail>,
    ) -> Result<Passed, (Bail, &'static str)> {
        let mut passed = Passed::default();
        let mut links = &mut *self.links;
        while let [link, rest @ ..] = links {
            if !link.passing {
                drain(link, rest, out, &mut passed)?;
            }
            if !link.passing {
                let mut next = Next { links: &mut *rest, out: &mut *out, passed: &mut passed, failed: None };
                let told = tell(&mut *link.filtered.filter, &mut next);
                if let Some(failed) = next.failed {
                    return Err(failed);
                }
                settle(link, told, &mut passed)?;
            }
            links = rest;
        }
        Ok(passed)
    }
}

/// What comes after a filter.
struct Next<'a> {
    links: &'a mut [Link],
    out: &'a mut dyn Sink,
    passed: &'a mut Passed,
    failed: Option<(Bail, &'static str)>,
}

impl Sink for Next<'_> {
    fn write(&mut self, bytes: &[u8]) {
        if self.failed.is_none() && !bytes.is_empty() {
            self.failed = push(self.links, bytes, self.out, self.passed).err();
        }
    }
}

fn push(
    links: &mut [Link],
    piece: &[u8],
    out: &mut dyn Sink,
    passed: &mut Passed,
) -> Result<(), (Bail, &'static str)> {
    match links.split_first_mut() {
        None => out.write(piece),
        Some((link, rest)) => {
            drain(link, rest, out, passed)?;
            if link.passing {
                return push(rest, piece, out, passed);
            }
            give(link, rest, piece, out, passed)?;
        }
    }
    Ok(())
}

/// Lets a filter write all that it can without another piece.
fn drain(
    link: &mut Link,
    rest: &mut [Link],
    out: &mut dyn Sink,
    passed: &mut Passed,
) -> Result<(), (Bail, &'static str)> {
    while link.pending() {
        give(link, rest, b"", out, passed)?;
    }
    Ok(())
}

/// Gives a piece to a filter that has not bailed out.
fn give(
    link: &mut Link,
    rest: &mut [Link],
    piece: &[u8],
    out: &mut dyn Sink,
    passed: &mut Passed,
) -> Result<(), (Bail, &'static str)> {
    let mut next = Next { links: rest, out, passed, failed: None };
    let mut written = link.filtered.filter.write(piece, &mut next);
    let mut over = false;
    if written.is_ok() && link.filtered.filter.held() > link.filtered.budget {
        written = link.filtered.filter.bail(&mut next);
        over = true;
    }
    if let Some(failed) = next.failed {
        return Err(failed);
    }
    if over && written.is_ok() {
        written = Err(Bail::Pass);
    }
    settle(link, written, passed)
}

/// Stands in the place of a filter that has bailed out, and is asked nothing.
struct Gone;

impl BodyFilter for Gone {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        out.write(piece);
        Ok(())
    }

    fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Ok(())
    }
}

/// Notes what a filter has said of itself.
fn settle(
    link: &mut Link,
    result: Result<(), Bail>,
    passed: &mut Passed,
) -> Result<(), (Bail, &'static str)> {
    match result {
        Ok(()) => Ok(()),
        Err(Bail::Pass) => {
            link.passing = true;
            // What it holds is of no use any more.
            link.filtered.filter = Box::new(Gone);
            passed.bailed = Some(link.filtered.name);
            Ok(())
        }
        Err(bail) => Err((bail, link.filtered.name)),
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec::Vec;

    use super::{Bail, BodyFilter, Chain, Filtered, Sink};

    /// Holds back up to three bytes, and marks what a flush and the end bring out.
    #[derive(Default)]
    struct Threes(Vec<u8>);

    impl BodyFilter for Threes {
        fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
            for byte in piece {
                self.0.push(*byte);
                if self.0.len() == 3 {
                    out.write(&core::mem::take(&mut self.0));
                }
            }
            Ok(())
        }

        fn flush(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
            if self.0.contains(&b'!') {
                return Err(Bail::Break);
            }
            out.write(&core::mem::take(&mut self.0));
            Ok(())
        }

        fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
            out.write(&core::mem::take(&mut self.0));
            out.write(b".");
            Ok(())
        }

        fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
            out.write(&core::mem::take(&mut self.0));
            Ok(())
        }
    }

    /// Passes everything on, and holds nothing.
    struct Plain;

    impl BodyFilter for Plain {
        fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
            out.write(piece);
            Ok(())
        }

        fn end(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
            Ok(())
        }

        fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
            Ok(())
        }
    }

    #[test]
    fn what_one_filter_flushes_the_next_one_gets_and_flushes_too() {
        let filters: [Box<dyn BodyFilter>; 3] =
            [Box::new(Threes::default()), Box::new(Plain), Box::new(Threes::default())];
        let filtered = filters.map(|filter| Filtered { filter, ..Filtered::new("filter", Plain) });
        let mut chain = Chain::new(Vec::from(filtered));
        let mut out = Vec::new();
        chain.write(b"ab", &mut out).unwrap();
        assert_eq!(out, b"");
        chain.flush(&mut out).unwrap();
        assert_eq!(out, b"ab");
        chain.flush(&mut out).unwrap();
        chain.write(b"cdef", &mut out).unwrap();
        assert_eq!(out, b"abcde");
        chain.end(&mut out).unwrap();
        assert_eq!(out, b"abcdef..");
    }

    /// Writes each byte three times, one byte at a time.
    #[derive(Default)]
    struct Thrice(Vec<u8>);

    impl BodyFilter for Thrice {
        fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
            self.0.extend(piece.iter().flat_map(|byte| [*byte; 3]));
            if !self.0.is_empty() {
                out.write(&[self.0.remove(0)]);
            }
            Ok(())
        }

        fn pending(&self) -> bool {
            !self.0.is_empty()
        }

        fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
            assert!(!self.pending(), "told of the end before all was written");
            out.write(b".");
            Ok(())
        }

        fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
            out.write(&core::mem::take(&mut self.0));
            Ok(())
        }
    }

    #[test]
    fn what_becomes_large_is_written_a_little_at_a_time() {
        let mut chain = Chain::new(Vec::from([
            Filtered::new("first", Thrice::default()),
            Filtered::new("second", Thrice::default()),
        ]));
        let mut out = Vec::new();
        chain.write(b"a", &mut out).unwrap();
        let mut rounds = 0;
        while chain.is_pending() {
            let before = out.len();
            chain.resume(&mut out).unwrap();
            assert!(out.len() - before <= 1);
            rounds += 1;
        }
        assert_eq!((out.as_slice(), rounds), (&b"aaaaaaaaa"[..], 8));
        // A platform that does not ask loses nothing.
        chain.write(b"b", &mut out).unwrap();
        chain.write(b"c", &mut out).unwrap();
        chain.end(&mut out).unwrap();
        assert_eq!(out, b"aaaaaaaaabbbbbbbbbccccccccc....");
    }

    /// Gathers the whole body, and can let it pass unchanged or not.
    struct Gathers(Vec<u8>, Result<(), Bail>);

    impl BodyFilter for Gathers {
        fn write(&mut self, piece: &[u8], _: &mut dyn Sink) -> Result<(), Bail> {
            self.0.extend_from_slice(piece);
            Ok(())
        }

        fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
            out.write(b"whole");
            Ok(())
        }

        fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
            out.write(&core::mem::take(&mut self.0));
            self.1
        }

        fn held(&self) -> usize {
            self.0.len()
        }
    }

    #[test]
    fn the_filter_that_holds_most_makes_room() {
        let mut chain = Chain::new(Vec::from([
            Filtered::new("plain", Plain),
            Filtered::new("gathers", Gathers(Vec::new(), Ok(()))),
            Filtered::new("threes", Threes::default()),
        ]));
        let mut out = Vec::new();
        chain.write(b"abcd", &mut out).unwrap();
        assert_eq!((chain.held(), out.as_slice()), (4, &b""[..]));
        assert_eq!(chain.relieve(&mut out).unwrap().bailed, Some("gathers"));
        assert_eq!((chain.held(), out.as_slice()), (0, &b"abc"[..]));
        chain.write(b"ef", &mut out).unwrap();
        chain.end(&mut out).unwrap();
        assert_eq!(out, b"abcdef.");

        let mut chain =
            Chain::new(Vec::from([Filtered::new("strict", Gathers(Vec::new(), Err(Bail::Break)))]));
        chain.write(b"abcd", &mut Vec::new()).unwrap();
        assert_eq!(chain.relieve(&mut Vec::new()).unwrap_err(), (Bail::Break, "strict"));
    }

    #[test]
    fn a_filter_that_breaks_the_body_off_while_flushing_is_named() {
        let mut chain = Chain::new(Vec::from([Filtered::new("threes", Threes::default())]));
        chain.write(b"!", &mut Vec::new()).unwrap();
        assert_eq!(chain.flush(&mut Vec::new()).unwrap_err(), (Bail::Break, "threes"));
    }
}
