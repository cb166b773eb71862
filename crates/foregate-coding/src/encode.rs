//! Encoders: one loop for all codings, and each coding behind a trait of two functions.

use alloc::boxed::Box;
use alloc::vec::Vec;

use brotli::enc::encode::{
    BrotliEncoderDestroyInstance, BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct,
};
use flate2::{Compress, Compression, FlushCompress, Status};
use foregate_module::{Bail, BodyFilter, Chain, Sink};
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use super::counted::CountedBytes;
use super::decode::{CodecProgress, MalformedCoding};
use super::{ContentCoding, DEFLATE_MEMORY};

/// The base-2 logarithms of the largest windows: larger windows would save few bytes, but cost both sides much
/// memory.
const DEFLATE_WINDOW_LOG: u32 = 15;
const BROTLI_WINDOW_LOG: u32 = 20;
const BROTLI_DEEP_WINDOW_LOG: u32 = 21;
const ZSTD_WINDOW_LOG: u32 = 21;
const ZSTD_DEEP_WINDOW_LOG: u32 = 20;
/// The base-2 logarithm of the largest window of streams.
const STREAM_WINDOW_LOG: u32 = 18;
/// The base-2 logarithms of the smallest windows that the formats allow.
const DEFLATE_LEAST_WINDOW_LOG: u32 = 9;
const BROTLI_LEAST_WINDOW_LOG: u32 = 10;
const ZSTD_LEAST_WINDOW_LOG: u32 = 10;
/// From this level on, brotli copes badly with small windows. For windows of up to 64 KiB, its search needs
/// 32 MiB. For windows below 1 MiB, the output is 1.5 times as large as at lower levels. So these levels get a
/// window of at least 1 MiB.
const BROTLI_DEEP_LEVEL: u32 = 5;
const BROTLI_DEEP_LEAST_WINDOW_LOG: u32 = 20;

/// From this level on, zstd has tables that need several times the window's memory.
const ZSTD_DEEP_LEVEL: u32 = 7;
/// Up to this level, brotli searches only within one input.
const BROTLI_SHALLOW_LEVEL: u32 = 1;

/// The bytes of a body that are gathered before encoding begins. Most bodies end before that: their length is
/// known then, and they need little memory.
const GATHERED: usize = 64 * 1024;
/// For bodies of at least this length in bytes, brotli uses a search that looks further, with tables of 4 MiB.
const LONG: u64 = 1 << 20;

/// The aim of one call of an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// Take input, and write once enough was gathered.
    Gather,
    /// Write everything gathered.
    Flush,
    /// Write everything gathered, and the end.
    Finish,
}

/// An encoder for one coding. It fills `output` as far as it can.
trait Encode: Send {
    /// Encodes `input`, which is empty unless `aim` is [`Aim::Gather`]. The second value is true if the aim is
    /// reached.
    fn encode(
        &mut self,
        aim: Aim,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(CodecProgress, bool), MalformedCoding>;
    /// The memory that the encoder holds, in bytes.
    fn held(&self) -> usize;
}

/// The filter that encodes a body.
pub(super) struct Encoder {
    coding: ContentCoding,
    level: u32,
    length: Option<u64>,
    /// `true` if the body was flushed before its length was known. The body then counts as a stream: its encoder
    /// probably holds memory for long.
    streams: bool,
    /// Input that is gathered before it is encoded.
    gathered: Vec<u8>,
    /// The codec, made once output is due, or much input has arrived.
    codec: Option<Box<dyn Encode>>,
    /// Set if input arrived since the last flush.
    dirty: bool,
}

impl Encoder {
    pub(super) fn new(coding: ContentCoding, level: u32, length: Option<u64>) -> Self {
        Self { coding, level, length, streams: false, gathered: Vec::new(), codec: None, dirty: false }
    }

    /// Returns true if input is gathered first.
    fn gathers(&self) -> bool {
        match self.coding {
            ContentCoding::Gzip | ContentCoding::Deflate => false,
            ContentCoding::Brotli => self.codec.is_none() || self.level <= BROTLI_SHALLOW_LEVEL,
            ContentCoding::Zstd => self.codec.is_none(),
        }
    }

    /// Encodes the gathered input.
    fn let_go(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        let gathered = core::mem::take(&mut self.gathered);
        if gathered.is_empty() { Ok(()) } else { self.run(Aim::Gather, &gathered, out) }
    }

    /// The base-2 logarithm of the largest window that the codec may have.
    fn most_window_log(&self) -> u32 {
        match (self.coding, self.level) {
            (ContentCoding::Gzip | ContentCoding::Deflate, _) => DEFLATE_WINDOW_LOG,
            (ContentCoding::Brotli | ContentCoding::Zstd, _) if self.streams => STREAM_WINDOW_LOG,
            (ContentCoding::Brotli, ..BROTLI_DEEP_LEVEL) => BROTLI_WINDOW_LOG,
            (ContentCoding::Brotli, _) => BROTLI_DEEP_WINDOW_LOG,
            (ContentCoding::Zstd, ..ZSTD_DEEP_LEVEL) => ZSTD_WINDOW_LOG,
            (ContentCoding::Zstd, _) => ZSTD_DEEP_WINDOW_LOG,
        }
    }

    /// The base-2 logarithm of the least window that holds the whole body, within bounds.
    fn window_log(&self, least: u32) -> u32 {
        let most = self.most_window_log();
        let whole = |length: u64| length.max(1).checked_next_power_of_two().map_or(most, u64::ilog2);
        self.length.map_or(most, whole).min(most).max(least)
    }

    /// The expected memory in bytes, which accounting needs before the body arrives.
    fn expected(&self) -> usize {
        let is_long = self.length.is_some_and(|length| length >= LONG);
        let is_short = self.length.is_some_and(|length| length <= GATHERED as u64);
        match (self.coding, self.level) {
            (ContentCoding::Gzip | ContentCoding::Deflate, _) => DEFLATE_MEMORY,
            (ContentCoding::Brotli, ..BROTLI_DEEP_LEVEL) if is_short => 3 << 19,
            (ContentCoding::Brotli, ..BROTLI_DEEP_LEVEL) if !is_long => 6 << 20,
            (ContentCoding::Brotli, ..BROTLI_DEEP_LEVEL) => 12 << 20,
            (ContentCoding::Brotli, _) if !is_long => 8 << 20,
            (ContentCoding::Brotli, _) => 15 << 20,
            (ContentCoding::Zstd, _) if is_short => 2 << 20,
            (ContentCoding::Zstd, ..=3) => 4 << 20,
            (ContentCoding::Zstd, ..ZSTD_DEEP_LEVEL) => 6 << 20,
            (ContentCoding::Zstd, _) => 12 << 20,
        }
    }

    fn make(&self) -> Result<Box<dyn Encode>, MalformedCoding> {
        let level = Compression::new(self.level);
        let deflate_window = self.window_log(DEFLATE_LEAST_WINDOW_LOG) as u8;
        Ok(match self.coding {
            ContentCoding::Gzip => Box::new(DeflateEncoder(Compress::new_gzip(level, deflate_window))),
            ContentCoding::Deflate => {
                Box::new(DeflateEncoder(Compress::new_with_window_bits(level, true, deflate_window)))
            }
            ContentCoding::Brotli => {
                let deep = self.level >= BROTLI_DEEP_LEVEL;
                let least = if deep { BROTLI_DEEP_LEAST_WINDOW_LOG } else { BROTLI_LEAST_WINDOW_LOG };
                Box::new(BrotliEncoder::new(self.level, self.window_log(least), self.length.unwrap_or(0)))
            }
            ContentCoding::Zstd => {
                Box::new(ZstdEncoder::new(self.level, self.window_log(ZSTD_LEAST_WINDOW_LOG))?)
            }
        })
    }

    fn run(&mut self, aim: Aim, mut input: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        let mut buffer = [0; Chain::PIECE];
        if self.codec.is_none() {
            self.codec = Some(self.make().map_err(|MalformedCoding| Bail::Break)?);
        }
        let Some(codec) = &mut self.codec else { return Err(Bail::Break) };
        loop {
            let (moved, reached) =
                codec.encode(aim, input, &mut buffer).map_err(|MalformedCoding| Bail::Break)?;
            out.write(buffer.get(..moved.written).unwrap_or_default());
            input = input.get(moved.read..).unwrap_or_default();
            if reached {
                return Ok(());
            }
            if moved == CodecProgress::default() {
                return Err(Bail::Break);
            }
        }
    }
}

impl BodyFilter for Encoder {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        if piece.is_empty() {
            return Ok(());
        }
        self.dirty = true;
        if !self.gathers() {
            return self.run(Aim::Gather, piece, out);
        }
        self.gathered.extend_from_slice(piece);
        if self.gathered.len() >= GATHERED { self.let_go(out) } else { Ok(()) }
    }

    fn flush(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        if !core::mem::take(&mut self.dirty) {
            return Ok(());
        }
        self.streams |= self.codec.is_none() && self.length.is_none();
        self.let_go(out)?;
        self.run(Aim::Flush, b"", out)
    }

    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        if self.codec.is_none() {
            self.length = Some(self.gathered.len() as u64);
        }
        self.let_go(out)?;
        self.run(Aim::Finish, b"", out)
    }

    fn bail(&mut self, _: &mut dyn Sink) -> Result<(), Bail> {
        // Plain bytes cannot follow encoded ones.
        Err(Bail::Break)
    }

    fn held(&self) -> usize {
        let codec = self.codec.as_ref().map_or_else(|| self.expected(), |codec| codec.held());
        codec + self.gathered.capacity()
    }
}

/// Encodes gzip, or deflate with the header of zlib.
struct DeflateEncoder(Compress);

impl Encode for DeflateEncoder {
    fn encode(
        &mut self,
        aim: Aim,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(CodecProgress, bool), MalformedCoding> {
        let flush = match aim {
            Aim::Gather => FlushCompress::None,
            Aim::Flush => FlushCompress::Sync,
            Aim::Finish => FlushCompress::Finish,
        };
        let before = (self.0.total_in(), self.0.total_out());
        let room = output.len();
        let status = self.0.compress(input, output, flush).map_err(|_| MalformedCoding)?;
        // Both differences fit, since they are at most the lengths of the slices.
        let moved = CodecProgress {
            read: (self.0.total_in() - before.0) as usize,
            written: (self.0.total_out() - before.1) as usize,
        };
        let reached = match aim {
            Aim::Gather | Aim::Flush => moved.read == input.len() && moved.written < room,
            Aim::Finish => status == Status::StreamEnd,
        };
        Ok((moved, reached))
    }

    fn held(&self) -> usize {
        DEFLATE_MEMORY
    }
}

/// Encodes `br`.
struct BrotliEncoder {
    state: Box<BrotliEncoderStateStruct<CountedBytes>>,
    memory: CountedBytes,
}

impl BrotliEncoder {
    fn new(level: u32, window_log: u32, length: u64) -> Self {
        let memory = CountedBytes::default();
        let mut state = Box::new(BrotliEncoderStateStruct::new(memory.clone()));
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, level);
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, window_log);
        // Long bodies get a search that looks further.
        let hint = length.min(1 << 30) as u32;
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_SIZE_HINT, hint);
        Self { state, memory }
    }
}

impl Encode for BrotliEncoder {
    fn encode(
        &mut self,
        aim: Aim,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(CodecProgress, bool), MalformedCoding> {
        let operation = match aim {
            Aim::Gather => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
            Aim::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
            Aim::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
        };
        let (mut left, mut read) = (input.len(), 0);
        let (mut room, mut written) = (output.len(), 0);
        let taken = self.state.compress_stream(
            operation,
            &mut left,
            input,
            &mut read,
            &mut room,
            output,
            &mut written,
            &mut None,
            &mut |_, _, _, _| (),
        );
        if !taken {
            return Err(MalformedCoding);
        }
        let reached = match aim {
            Aim::Gather | Aim::Flush => left == 0 && !self.state.has_more_output(),
            Aim::Finish => self.state.is_finished(),
        };
        Ok((CodecProgress { read, written }, reached))
    }

    fn held(&self) -> usize {
        self.memory.held().saturating_add(size_of::<BrotliEncoderStateStruct<CountedBytes>>())
    }
}

impl Drop for BrotliEncoder {
    fn drop(&mut self) {
        BrotliEncoderDestroyInstance(&mut self.state);
    }
}

/// Encodes Zstandard.
struct ZstdEncoder(CCtx<'static>);

impl ZstdEncoder {
    fn new(level: u32, window_log: u32) -> Result<Self, MalformedCoding> {
        let mut state = CCtx::try_create().ok_or(MalformedCoding)?;
        // Levels are below ten.
        for parameter in [CParameter::CompressionLevel(level as i32), CParameter::WindowLog(window_log)] {
            state.set_parameter(parameter).map_err(|_| MalformedCoding)?;
        }
        Ok(Self(state))
    }
}

impl Encode for ZstdEncoder {
    fn encode(
        &mut self,
        aim: Aim,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(CodecProgress, bool), MalformedCoding> {
        let room = output.len();
        let (mut source, mut target) = (InBuffer::around(input), OutBuffer::around(output));
        let left = match aim {
            Aim::Gather => self.0.compress_stream(&mut target, &mut source),
            Aim::Flush => self.0.flush_stream(&mut target),
            Aim::Finish => self.0.end_stream(&mut target),
        };
        let left = left.map_err(|_| MalformedCoding)?;
        let moved = CodecProgress { read: source.pos(), written: target.pos() };
        let reached = match aim {
            Aim::Gather => moved.read == input.len() && moved.written < room,
            Aim::Flush | Aim::Finish => left == 0,
        };
        Ok((moved, reached))
    }

    fn held(&self) -> usize {
        self.0.sizeof()
    }
}
