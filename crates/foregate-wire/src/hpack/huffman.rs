//! The Huffman code of HPACK (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: shorter codes come before longer ones, and codes of one length are consecutive numbers in the
//! order of their symbols. So the lengths determine the code, and the tables are computed from them at compile time.

use crate::chars::of;

/// The number of symbols: all bytes, and the symbol for the end.
const SYMBOLS: usize = 257;
/// The symbol for the end of a string. Its first bits pad the last byte; the complete symbol is not allowed anywhere.
const END: u16 = 256;
/// The longest code, in bits.
const LONGEST: u32 = 30;
/// The shortest code, in bits.
const SHORTEST: usize = 5;
/// The number of bits that are looked up at once: they hold two frequent symbols, or one that is not rare.
const LOOKUP: u32 = 11;

/// The length of each symbol's code, in bits.
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, // 0x00
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, // 0x10
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, // 0x20
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, // 0x30
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, // 0x40
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, // 0x50
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, // 0x60
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, // 0x70
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, // 0x80
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, // 0x90
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, // 0xa0
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, // 0xb0
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, // 0xc0
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, // 0xd0
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, // 0xe0
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, // 0xf0
    30, // the end
];

/// The codes of one length.
#[derive(Clone, Copy)]
struct Codes {
    /// One more than the last code of this length, left-aligned in 32 bits. Bits below this value begin with a code of this
    /// length or a shorter one.
    end: u64,
    /// The first code of this length.
    first: u32,
    /// The index of the first code's symbol in [`SORTED`].
    at: u16,
}

/// The symbols in the order of their codes.
static SORTED: [u16; SYMBOLS] = tables().0;
/// The codes by their length.
static CODES: [Codes; LONGEST as usize + 1] = tables().1;

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, for which a place out of bounds is an error"
)]
const fn tables() -> ([u16; SYMBOLS], [Codes; LONGEST as usize + 1]) {
    let mut sorted = [0; SYMBOLS];
    let mut codes = [Codes { end: 0, first: 0, at: 0 }; LONGEST as usize + 1];
    let mut count = 0;
    let mut next = 0u32;
    let mut length = 1;
    while length <= LONGEST {
        next <<= 1;
        codes[length as usize].first = next;
        codes[length as usize].at = count as u16;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as u32 == length {
                sorted[count] = symbol as u16;
                count += 1;
                next += 1;
            }
            symbol += 1;
        }
        codes[length as usize].end = (next as u64) << (32 - length);
        length += 1;
    }
    (sorted, codes)
}

/// A symbol's code.
#[derive(Clone, Copy)]
struct Code {
    /// The code, right-aligned.
    bits: u32,
    /// The length of the code in bits.
    length: u32,
}

/// The codes of all bytes.
pub(super) struct Alphabet {
    codes: [Code; END as usize],
    /// Set if upper-case letters are encoded as lower-case letters.
    pub(super) lower: bool,
}

/// The alphabet for values: each byte is encoded as itself.
pub(super) static EXACT: Alphabet = alphabet(false);
/// The alphabet for names: letters are encoded in lower case.
pub(super) static LOWER: Alphabet = alphabet(true);

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, for which a place out of bounds is an error"
)]
const fn alphabet(lower: bool) -> Alphabet {
    let (sorted, codes) = tables();
    let mut bytes = [Code { bits: 0, length: 0 }; END as usize];
    let mut place = 0;
    while place < SYMBOLS {
        let symbol = sorted[place] as usize;
        if symbol < bytes.len() {
            let length = LENGTHS[symbol] as u32;
            let of_length = codes[length as usize];
            bytes[symbol] = Code { bits: of_length.first + (place as u32 - of_length.at as u32), length };
        }
        place += 1;
    }
    let mut capital = b'A';
    while lower && capital <= b'Z' {
        bytes[capital as usize] = bytes[capital.to_ascii_lowercase() as usize];
        capital += 1;
    }
    Alphabet { codes: bytes, lower }
}

/// The most bytes of a decimal number in this code.
const NUMBER: usize = size_of::<u128>();

/// The decimal digits of a number in this code, at the end of an array, and their length in bytes. The code is never
/// longer than the digits themselves, because a digit's code has at most six bits.
#[inline]
pub(super) fn encode_number(mut number: u64) -> ([u8; NUMBER], usize) {
    // The codes are collected from the last digit to the first; 20 digits at most.
    let (mut bits, mut have) = (0u128, 0u32);
    loop {
        let code = of(&EXACT.codes, b'0' + (number % 10) as u8);
        bits |= u128::from(code.bits).wrapping_shl(have);
        have = have.wrapping_add(code.length);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let fill = have.wrapping_neg() % 8;
    bits = bits << fill | ((1 << fill) - 1);
    (bits.to_be_bytes(), have.div_ceil(8) as usize)
}

/// The number of bytes that [`encode`] makes of `text`.
pub(super) fn encoded_len(text: &[u8], alphabet: &Alphabet) -> usize {
    let length = |byte: &u8| of(&alphabet.codes, *byte).length as usize;
    text.iter().map(length).sum::<usize>().div_ceil(8)
}

/// Writes `text` in this code to the start of `room`. Returns the number of bytes written; `None` if `room` is too
/// small.
#[inline]
pub(super) fn encode(text: &[u8], alphabet: &Alphabet, room: &mut [u8]) -> Option<usize> {
    let mut at = 0;
    // `bits` has the last `have` bits, fewer than 32, that are not written yet. They are right-aligned.
    let (mut bits, mut have) = (0u64, 0u32);
    for byte in text {
        let code = of(&alphabet.codes, *byte);
        // A code is far shorter than the word: nothing wraps.
        bits = bits.wrapping_shl(code.length) | u64::from(code.bits);
        have = have.wrapping_add(code.length);
        if have >= 32 {
            have -= 32;
            *room.get_mut(at..)?.first_chunk_mut()? = (bits.wrapping_shr(have) as u32).to_be_bytes();
            at += 4;
        }
    }
    // Ones fill up the last byte.
    let last = (bits << (32 - have)) as u32 | u32::MAX >> have;
    let end = at + have.div_ceil(8) as usize;
    for (to, byte) in room.get_mut(at..end)?.iter_mut().zip(last.to_be_bytes()) {
        *to = byte;
    }
    Some(end)
}

/// The symbols at the start of [`LOOKUP`] bits.
#[derive(Clone, Copy)]
struct Symbols {
    bytes: [u8; 2],
    /// The length of the first symbol's code in bits; 0 if the looked-up bits do not hold a whole code.
    first: u8,
    /// The length of both codes together in bits; equal to `first` if there is no second symbol.
    all: u8,
}

/// The symbols at the start of these left-aligned bits.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "there is a place for each value of so many bits")]
fn looked_up(bits: u64) -> Symbols {
    LOOKED_UP[(bits >> (64 - LOOKUP)) as usize]
}

static LOOKED_UP: [Symbols; 1 << LOOKUP] = lookup();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, for which a place out of bounds is an error"
)]
const fn lookup() -> [Symbols; 1 << LOOKUP] {
    let (sorted, codes) = tables();
    let mut table = [Symbols { bytes: [0; 2], first: 0, all: 0 }; 1 << LOOKUP];
    let mut bits = 0;
    while bits < 1 << LOOKUP {
        let left = (bits as u32) << (32 - LOOKUP);
        let (symbol, first) = symbol(left, &sorted, &codes);
        if first <= LOOKUP {
            table[bits].bytes[0] = symbol as u8;
            table[bits].first = first as u8;
            table[bits].all = first as u8;
            let (symbol, second) = self::symbol(left << first, &sorted, &codes);
            if first + second <= LOOKUP {
                table[bits].bytes[1] = symbol as u8;
                table[bits].all = (first + second) as u8;
            }
        }
        bits += 1;
    }
    table
}

/// The symbol whose code these bits begin with, and the length of that code.
#[expect(
    clippy::indexing_slicing,
    reason = "the code is complete: whatever the bits are, they begin with a symbol's"
)]
const fn symbol(bits: u32, sorted: &[u16; SYMBOLS], codes: &[Codes; LONGEST as usize + 1]) -> (u16, u32) {
    let mut length = SHORTEST as u32;
    while length < LONGEST && bits as u64 >= codes[length as usize].end {
        length += 1;
    }
    let of_length = codes[length as usize];
    let code = bits >> (32 - length);
    (sorted[(of_length.at as u32 + (code - of_length.first)) as usize], length)
}

/// Decodes `input` and appends the text to `out`. Returns false for an invalid string: the padding must be fewer than
/// eight one bits, and the end symbol is not allowed.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    // Two bytes are written at a time, so the buffer is two bytes longer than the longest text.
    out.resize(start + input.len() * 8 / SHORTEST + 2, 0);
    let decoded = decode_into(input, out.get_mut(start..).unwrap_or_default());
    out.truncate(start + decoded.unwrap_or(0));
    decoded.is_some()
}

fn decode_into(mut input: &[u8], out: &mut [u8]) -> Option<usize> {
    // The next bits to decode, left-aligned.
    let mut bits = 0u64;
    let mut have = 0u32;
    let mut count = 0;
    while !input.is_empty() {
        if let Some((chunk, _)) = input.split_first_chunk::<8>() {
            bits |= u64::from_be_bytes(*chunk) >> have;
            let bytes = (63 - have) / 8;
            have += bytes * 8;
            // Clear the bits of a byte that was read only in part; the byte will be read again.
            bits &= !(u64::MAX >> have);
            input = input.get(bytes as usize..)?;
        } else {
            while have <= 56
                && let Some((byte, rest)) = input.split_first()
            {
                bits |= u64::from(*byte) << (56 - have);
                have += 8;
                input = rest;
            }
        }
        while have >= LOOKUP {
            let symbols = looked_up(bits);
            let length = u32::from(symbols.all);
            if length == 0 {
                if have < LONGEST {
                    break;
                }
                let (symbol, length) = symbol((bits >> 32) as u32, &SORTED, &CODES);
                *out.get_mut(count)? = u8::try_from(symbol).ok()?;
                count += 1;
                bits <<= length;
                have -= length;
                continue;
            }
            *out.get_mut(count..)?.first_chunk_mut()? = symbols.bytes;
            count += 1 + usize::from(symbols.all != symbols.first);
            bits <<= length;
            have -= length;
        }
    }
    // The rest may be shorter than a code, so it is padded with ones, like the end of any string.
    bits |= u64::MAX >> have;
    while have > 0 {
        let found = looked_up(bits);
        let (symbol, length) = match found.first {
            0 => symbol((bits >> 32) as u32, &SORTED, &CODES),
            first => (u16::from(found.bytes[0]), u32::from(first)),
        };
        if length > have || symbol == END {
            return (have < 8 && bits == u64::MAX).then_some(count);
        }
        *out.get_mut(count)? = u8::try_from(symbol).ok()?;
        count += 1;
        bits = !(!bits << length);
        have -= length;
    }
    Some(count)
}
