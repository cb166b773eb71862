//! Content codings (RFC 9110, section 8.4) of bodies while they stream: `gzip`, `deflate`, `br`, `zstd`.
//!
//! [`encoder`] and [`decoder`] make filters of bodies; [`decoded`] puts a decoder before a filter that needs the plain
//! body; [`start`] decodes the available part of a body, for inspection. Their memory is bounded, regardless of
//! the peer's input:
//!
//! | coding | decoder | encoder |
//! |---|---|---|
//! | `gzip`, `deflate` | 48 KiB: a window of 32 KiB | 372 KiB |
//! | `br` | as much as the body needs, at most [`BROTLI_DECODER_MEMORY`]: a window of up to 16 MiB; large windows are refused | 4 MiB at level 3 and 12 at level 4, with a window of 1 MiB; 15 MiB at level 6, with one of 2 MiB; half of that where the length is not known, or less than 1 MiB |
//! | `zstd` | a window as the frame states, at most 8 MiB (RFC 9659); beyond, it is refused | 4 MiB at level 3, 6 at 6, with a window of 2 MiB; 12 at 9, with one of 1 MiB |
//!
//! The encoders of `br` and `zstd` gather up to 64 KiB before they begin, so that they know the length of most
//! bodies. If a body is flushed before that, it counts as a stream and gets a window of 256 KiB.
//! `bench/RESULTS.md` compares all levels with the command-line programs of these codings.
//!
//! Encoders write output once they have gathered enough of it. On a [`flush`](BodyFilter::flush), they write all
//! output that they hold. If the length of the body is known, a shorter body gets a smaller window.
//!
//! Decoders are strict: they break off a body that ends early, is malformed, or has more bytes after the end of
//! the encoded data. Several gzip members or zstd frames may follow each other. An empty body is valid.
//! [`Limits`] bound the ratio of output to input.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod accept;
mod counted;
mod decode;
mod encode;
mod look;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use self::accept::{AcceptEncoding, FULL, Quality, quality};
pub use self::look::{Start, start};

use foregate_module::{Bail, BodyFilter, Chain, Filtered, Sink};

use self::decode::Behind;

/// The most bytes of memory for decoding `br`: its window, and tables.
pub const BROTLI_DECODER_MEMORY: usize = (16 << 20) + (1 << 20);
/// The most bytes of memory for encoding `br`.
pub const BROTLI_ENCODER_MEMORY: usize = 16 << 20;
/// The most bytes of memory for decoding `zstd`: its window, a block, and tables.
pub const ZSTD_DECODER_MEMORY: usize = (8 << 20) + (1 << 20);
/// The most bytes of memory for encoding `zstd`.
pub const ZSTD_ENCODER_MEMORY: usize = 16 << 20;
/// The most bytes of memory for encoding or decoding `gzip` and `deflate`.
pub const DEFLATE_MEMORY: usize = 384 << 10;

/// The bytes that a decoder may keep of its input, in addition to its other memory.
const REST_ROOM: usize = 16 * Chain::PIECE;

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentCoding {
    /// `gzip`, also known as `x-gzip` (RFC 1952).
    Gzip,
    /// `deflate`: the zlib format (RFC 1950). Some servers send the raw format (RFC 1951), which is decoded, too.
    Deflate,
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878, with the window of RFC 9659).
    Zstd,
}

impl ContentCoding {
    /// All values.
    pub const ALL: [Self; 4] = [Self::Gzip, Self::Deflate, Self::Brotli, Self::Zstd];

    /// The coding with this name, in upper or lower case.
    pub fn from_token(token: &[u8]) -> Option<Self> {
        if token.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL.into_iter().find(|coding| token.eq_ignore_ascii_case(coding.token().as_bytes()))
    }

    /// The name of the coding in header fields.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// The lowest and the highest level of an encoder. A higher level is slower and makes smaller bodies. The
    /// highest levels of `br` and `zstd` are left out: they take many times the time and the memory, and are meant
    /// for files that are compressed once.
    pub const fn levels(self) -> (u32, u32) {
        match self {
            Self::Gzip | Self::Deflate => (1, 9),
            Self::Brotli => (0, 6),
            Self::Zstd => (1, 9),
        }
    }

    /// The level for bodies that are compressed as they pass.
    pub const fn default_level(self) -> u32 {
        match self {
            Self::Gzip | Self::Deflate => 5,
            Self::Brotli => 4,
            Self::Zstd => 3,
        }
    }
}

/// The bounds on the output of a decoder. A body that exceeds them fails with [`Bail::TooLarge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most output, bytes.
    pub total: u64,
    /// The most bytes of output for each byte of input. It applies once there is more output than
    /// [`free`](Self::free).
    pub ratio: u64,
    /// The ratio does not apply up to this many bytes of output: small bodies of one repeated line are no attack.
    pub free: u64,
}

impl Limits {
    /// The default of [`free`](Self::free).
    pub const FREE: u64 = 1 << 20;
    /// The default of [`total`](Self::total). The body streams, so this costs no memory.
    pub const TOTAL: u64 = 1 << 30;
    /// The default of [`ratio`](Self::ratio): text seldom reaches 50.
    pub const RATIO: u64 = 200;
}

impl Default for Limits {
    fn default() -> Self {
        Self { total: Self::TOTAL, ratio: Self::RATIO, free: Self::FREE }
    }
}

/// The coding that a value of `content-encoding` names. `None` if it names no coding, an unknown one, or
/// several.
///
/// A body with several codings is never decoded: the only reason to send such a body is to get past a filter.
pub fn coding_of(content_encoding: &[u8]) -> Option<ContentCoding> {
    ContentCoding::from_token(content_encoding.trim_ascii())
}

/// A filter that removes a coding; its budget is the bound of its memory.
///
/// The filter is [pending](BodyFilter::pending) after each 64 KiB of output. Bytes after the end of the encoded
/// data break the body off, since two receivers might treat them differently.
pub fn decoder(name: &'static str, coding: ContentCoding, limits: Limits) -> Filtered {
    decoding(name, coding, limits, Behind::Breaks)
}

/// A decoder for responses. It drops bytes after the end of the encoded data, as browsers and gzip(1) do.
pub fn response_decoder(name: &'static str, coding: ContentCoding, limits: Limits) -> Filtered {
    decoding(name, coding, limits, Behind::Dropped)
}

fn decoding(name: &'static str, coding: ContentCoding, limits: Limits, behind: Behind) -> Filtered {
    let (filter, budget) = match coding {
        ContentCoding::Gzip => (decode::filter(decode::Gzip::new, limits, behind), DEFLATE_MEMORY),
        ContentCoding::Deflate => {
            (decode::filter(decode::DeflateDecoder::new, limits, behind), DEFLATE_MEMORY)
        }
        ContentCoding::Brotli => {
            (decode::filter(decode::BrotliDecoder::new, limits, behind), BROTLI_DECODER_MEMORY)
        }
        ContentCoding::Zstd => {
            (decode::filter(decode::ZstdDecoder::new, limits, behind), ZSTD_DECODER_MEMORY)
        }
    };
    Filtered { name, filter, budget: budget + REST_ROOM, keeps_length: false, dry: false }
}

/// A filter that applies a coding. Its budget is the most memory that the filter holds.
///
/// A level out of range counts as the nearest valid one. If the length of the body is known, a short body needs
/// less memory; a wrong length does no harm. Nothing is allocated before the first byte arrives, so an encoder
/// for the answer to a HEAD request costs nothing.
pub fn encoder(name: &'static str, coding: ContentCoding, level: u32, length: Option<u64>) -> Filtered {
    let budget = match coding {
        ContentCoding::Gzip | ContentCoding::Deflate => DEFLATE_MEMORY,
        ContentCoding::Brotli => BROTLI_ENCODER_MEMORY,
        ContentCoding::Zstd => ZSTD_ENCODER_MEMORY,
    };
    let (least, most) = coding.levels();
    let filter = Box::new(encode::Encoder::new(coding, level.clamp(least, most), length));
    Filtered { name, filter, budget, keeps_length: false, dry: false }
}

/// Puts a decoder for the coding that `content_encoding` names before a filter that needs the plain body.
/// `identity` and no coding need no decoder. `None` if the coding is not supported: the step then decides how
/// the response continues.
///
/// The step that uses the result removes `content-encoding` by an edit. If the filter bails out, the rest of
/// the body continues in decoded form.
pub fn decoded(filtered: Filtered, content_encoding: Option<&[u8]>, limits: Limits) -> Option<Filtered> {
    let coding = match content_encoding.map(<[u8]>::trim_ascii) {
        None | Some(b"") => return Some(filtered),
        Some(name) if name.eq_ignore_ascii_case(b"identity") => return Some(filtered),
        Some(name) => coding_of(name)?,
    };
    let name = filtered.name;
    let chain = Chain::new(Vec::from([decoder(name, coding, limits), filtered]));
    // Each of the two filters has its own budget within the chain.
    Some(Filtered { budget: usize::MAX, ..Filtered::new(name, FilterChain(chain)) })
}

/// Several filters, one after the other, that act as one filter.
struct FilterChain(Chain);

impl BodyFilter for FilterChain {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        let done = if piece.is_empty() && self.0.is_pending() {
            self.0.resume(out)
        } else {
            self.0.write(piece, out)
        };
        done.map(drop).map_err(|(bail, _)| bail)
    }

    fn pending(&self) -> bool {
        self.0.is_pending()
    }

    fn flush(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        self.0.flush(out).map(drop).map_err(|(bail, _)| bail)
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        self.0.end(out).map(drop).map_err(|(bail, _)| bail)
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        Err(Bail::Break)
    }

    fn held(&self) -> usize {
        self.0.held()
    }
}
