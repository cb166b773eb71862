//! Decoders: one loop for all codings, and each coding behind a trait of three functions.

use alloc::boxed::Box;
use alloc::vec::Vec;

use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::{Decompress, FlushDecompress, Status};
use foregate_module::{Bail, BodyFilter, Chain, Sink};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::Limits;
use super::counted::CountedBytes;

/// The bytes that a decoder writes before it pauses and is pending.
const BURST: usize = 64 * 1024;
/// The base-2 logarithm of the largest window that zstd frames may have (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;
/// The base-2 logarithm of the largest window that gzip and deflate have.
const DEFLATE_WINDOW_LOG: u8 = 15;
/// The memory of the inflater in bytes: its window and its tables of codes, but not its buffers.
const INFLATE_MEMORY: usize = 48 * 1024;

/// The bytes that one call of a codec has read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CodecProgress {
    pub(super) read: usize,
    pub(super) written: usize,
}

/// The body does not have the form of its coding.
#[derive(Debug)]
pub(super) struct MalformedCoding;

/// A decoder for one coding. It fills `output` as far as its input allows.
pub(super) trait Decode: Send {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<CodecProgress, MalformedCoding>;
    /// Returns true if the body may end here.
    fn complete(&self) -> bool;
    /// Returns true if a further gzip member or zstd frame may begin with this byte after a complete one.
    fn goes_on(&self, byte: u8) -> bool;
    /// The most memory that the decoder may hold, in bytes.
    fn held(&self) -> usize;
}

/// A filter that decodes. Nothing is allocated before the first byte arrives, since many requests may be
/// waiting for their bodies.
pub(super) fn filter<D: Decode + 'static>(
    make: fn() -> D,
    limits: Limits,
    behind: Behind,
) -> Box<dyn BodyFilter> {
    let (total, rest) = ((0, 0), Vec::new());
    Box::new(Decoder { make, codec: None, limits, behind, over: false, total, rest, pending: false })
}

/// The treatment of bytes after the end of the encoded data, such as zeros that fill a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// The body counts as invalid.
    Breaks,
    /// The bytes are dropped.
    Dropped,
}

struct Decoder<D> {
    make: fn() -> D,
    codec: Option<D>,
    limits: Limits,
    behind: Behind,
    /// `true` once there were bytes after the end of the encoded data. All further bytes are dropped.
    over: bool,
    /// Bytes of input and of output so far.
    total: (u64, u64),
    /// Input that waits until more may be written.
    rest: Vec<u8>,
    pending: bool,
}

impl<D: Decode> Decoder<D> {
    /// Decodes until the input is used up or enough has been written. Returns how many bytes of the input were
    /// used.
    fn run(&mut self, input: &[u8], out: &mut dyn Sink) -> Result<usize, Bail> {
        let mut buffer = [0; Chain::PIECE];
        let (mut used, mut burst) = (0, 0);
        loop {
            let rest = input.get(used..).unwrap_or_default();
            let codec = self.codec.get_or_insert_with(self.make);
            if self.behind == Behind::Dropped && codec.complete() {
                self.over |= rest.first().is_some_and(|byte| !codec.goes_on(*byte));
            }
            if self.over {
                self.pending = false;
                return Ok(input.len());
            }
            let moved = codec.decode(rest, &mut buffer).map_err(|MalformedCoding| Bail::Break)?;
            let bytes = buffer.get(..moved.written).unwrap_or_default();
            used += moved.read;
            burst += bytes.len();
            self.total.1 = self.total.1.saturating_add(bytes.len() as u64);
            self.check()?;
            out.write(bytes);
            let full = bytes.len() == Chain::PIECE;
            if used >= input.len() && !full {
                self.pending = false;
                return Ok(used);
            }
            if moved == CodecProgress::default() {
                return Err(Bail::Break);
            }
            if burst >= BURST {
                self.pending = true;
                return Ok(used);
            }
        }
    }

    fn check(&self) -> Result<(), Bail> {
        let (read, written) = self.total;
        let ratio = written > self.limits.free && written > read.saturating_mul(self.limits.ratio);
        if ratio || written > self.limits.total { Err(Bail::TooLarge) } else { Ok(()) }
    }
}

impl<D: Decode> BodyFilter for Decoder<D> {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        // A piece counts as input before it is decoded. Otherwise a body that is most repetitive at its start could
        // exceed the ratio.
        self.total.0 = self.total.0.saturating_add(piece.len() as u64);
        if self.rest.is_empty() {
            if !piece.is_empty() || self.pending {
                let used = self.run(piece, out)?;
                self.rest.extend_from_slice(piece.get(used..).unwrap_or_default());
            }
            return Ok(());
        }
        let mut input = core::mem::take(&mut self.rest);
        input.extend_from_slice(piece);
        let used = self.run(&input, out)?;
        input.drain(..used.min(input.len()));
        self.rest = input;
        Ok(())
    }

    fn pending(&self) -> bool {
        self.pending
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        while self.pending {
            self.write(b"", out)?;
        }
        if self.total.0 == 0 || self.codec.as_ref().is_some_and(Decode::complete) {
            Ok(())
        } else {
            Err(Bail::Break)
        }
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        // The rest is useless for a client that was promised the plain body.
        Err(Bail::Break)
    }

    fn held(&self) -> usize {
        self.codec.as_ref().map_or(0, Decode::held).saturating_add(self.rest.capacity())
    }
}

/// Passes a piece to the inflater. The second value is true if the stream has ended.
fn inflate(
    state: &mut Decompress,
    input: &[u8],
    output: &mut [u8],
) -> Result<(CodecProgress, bool), MalformedCoding> {
    let before = (state.total_in(), state.total_out());
    let status = state.decompress(input, output, FlushDecompress::Sync).map_err(|_| MalformedCoding)?;
    // Both differences fit, since they are at most the lengths of the slices.
    let moved = CodecProgress {
        read: (state.total_in() - before.0) as usize,
        written: (state.total_out() - before.1) as usize,
    };
    Ok((moved, status == Status::StreamEnd))
}

/// Decodes gzip members, one after the other, and verifies their checksums and lengths.
pub(super) struct Gzip {
    state: Decompress,
    ended: bool,
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self { state: Decompress::new_gzip(DEFLATE_WINDOW_LOG), ended: false }
    }
}

impl Decode for Gzip {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<CodecProgress, MalformedCoding> {
        if self.ended {
            if input.is_empty() {
                return Ok(CodecProgress::default());
            }
            // Only another member may follow.
            self.state.reset(true);
            self.ended = false;
        }
        let (moved, ended) = inflate(&mut self.state, input, output)?;
        self.ended = ended;
        Ok(moved)
    }

    fn complete(&self) -> bool {
        self.ended
    }

    fn goes_on(&self, byte: u8) -> bool {
        // The first byte of a member (RFC 1952, section 2.3.1).
        byte == 0x1f
    }

    fn held(&self) -> usize {
        INFLATE_MEMORY
    }
}

/// Decodes deflate with or without the header of zlib. The first two bytes decide which form it is.
pub(super) struct DeflateDecoder {
    first: Option<u8>,
    state: Option<Decompress>,
    ended: bool,
}

impl DeflateDecoder {
    pub(super) fn new() -> Self {
        Self { first: None, state: None, ended: false }
    }

    /// Returns true if two bytes begin a zlib stream (RFC 1950, section 2.2) without a preset dictionary.
    fn is_zlib([method, flags]: [u8; 2]) -> bool {
        const DICTIONARY: u8 = 0x20;
        method & 0x0f == 8
            && method >> 4 <= 7
            && u16::from_be_bytes([method, flags]).is_multiple_of(31)
            && flags & DICTIONARY == 0
    }
}

impl Decode for DeflateDecoder {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<CodecProgress, MalformedCoding> {
        if self.ended {
            return if input.is_empty() { Ok(CodecProgress::default()) } else { Err(MalformedCoding) };
        }
        if let Some(state) = &mut self.state {
            let (moved, ended) = inflate(state, input, output)?;
            self.ended = ended;
            return Ok(moved);
        }
        let Some((&byte, _)) = input.split_first() else { return Ok(CodecProgress::default()) };
        let Some(first) = self.first else {
            self.first = Some(byte);
            return Ok(CodecProgress { read: 1, written: 0 });
        };
        let head = [first, byte];
        let zlib = Self::is_zlib(head);
        let state = self.state.insert(Decompress::new_with_window_bits(zlib, DEFLATE_WINDOW_LOG));
        let (moved, ended) = inflate(state, &head, output)?;
        self.ended = ended;
        // Two bytes cannot fill the output, and no stream ends before its second byte.
        if moved.read == head.len() { Ok(CodecProgress { read: 1, ..moved }) } else { Err(MalformedCoding) }
    }

    fn complete(&self) -> bool {
        self.ended
    }

    fn goes_on(&self, _: u8) -> bool {
        false
    }

    fn held(&self) -> usize {
        INFLATE_MEMORY
    }
}

/// Decodes `br`, without large windows.
pub(super) struct BrotliDecoder {
    state: Box<BrotliState<CountedBytes, CountedBytes, CountedBytes>>,
    memory: CountedBytes,
    ended: bool,
}

impl BrotliDecoder {
    pub(super) fn new() -> Self {
        let memory = CountedBytes::default();
        let state = BrotliState::new_strict(memory.clone(), memory.clone(), memory.clone());
        Self { state: Box::new(state), memory, ended: false }
    }
}

impl Decode for BrotliDecoder {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<CodecProgress, MalformedCoding> {
        if self.ended {
            return if input.is_empty() { Ok(CodecProgress::default()) } else { Err(MalformedCoding) };
        }
        let (mut left, mut read) = (input.len(), 0);
        let (mut room, mut written) = (output.len(), 0);
        let state = &mut *self.state;
        let result = BrotliDecompressStream(
            &mut left,
            &mut read,
            input,
            &mut room,
            &mut written,
            output,
            &mut 0,
            state,
        );
        match result {
            BrotliResult::ResultFailure => Err(MalformedCoding),
            BrotliResult::ResultSuccess => {
                self.ended = true;
                Ok(CodecProgress { read, written })
            }
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {
                Ok(CodecProgress { read, written })
            }
        }
    }

    fn complete(&self) -> bool {
        self.ended
    }

    fn goes_on(&self, _: u8) -> bool {
        false
    }

    fn held(&self) -> usize {
        self.memory.held().saturating_add(size_of::<BrotliState<CountedBytes, CountedBytes, CountedBytes>>())
    }
}

/// Decodes Zstandard frames, one after the other, and skips skippable frames.
pub(super) struct ZstdDecoder {
    /// `None` if its memory could not be allocated.
    state: Option<DCtx<'static>>,
    ended: bool,
}

impl ZstdDecoder {
    pub(super) fn new() -> Self {
        let mut state = DCtx::try_create();
        if let Some(created) = &mut state
            && created.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).is_err()
        {
            state = None;
        }
        Self { state, ended: false }
    }
}

impl Decode for ZstdDecoder {
    fn decode(&mut self, input: &[u8], output: &mut [u8]) -> Result<CodecProgress, MalformedCoding> {
        if self.ended && input.is_empty() {
            return Ok(CodecProgress::default());
        }
        let state = self.state.as_mut().ok_or(MalformedCoding)?;
        let (mut source, mut target) = (InBuffer::around(input), OutBuffer::around(output));
        let wanted = state.decompress_stream(&mut target, &mut source).map_err(|_| MalformedCoding)?;
        self.ended = wanted == 0;
        Ok(CodecProgress { read: source.pos(), written: target.pos() })
    }

    fn complete(&self) -> bool {
        self.ended
    }

    fn goes_on(&self, byte: u8) -> bool {
        // The first byte of a frame, or of a skippable frame (RFC 8878, section 3.1).
        matches!(byte, 0x28 | 0x50..=0x5f)
    }

    fn held(&self) -> usize {
        self.state.as_ref().map_or(0, DCtx::sizeof)
    }
}
