//! Header blocks of HTTP/2.

use std::collections::VecDeque;

use foregate_wire::hpack::{BlockError, Inspector, MalformedReason, Section};
use proptest::prelude::*;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The codes of all bytes, and their lengths (RFC 7541, appendix B).
#[rustfmt::skip]
const CODES: [(u32, u32); 256] = [
    (0x1ff8, 13), (0x7fffd8, 23), (0xfffffe2, 28), (0xfffffe3, 28), (0xfffffe4, 28), (0xfffffe5, 28), (0xfffffe6, 28), (0xfffffe7, 28),
    (0xfffffe8, 28), (0xffffea, 24), (0x3ffffffc, 30), (0xfffffe9, 28), (0xfffffea, 28), (0x3ffffffd, 30), (0xfffffeb, 28), (0xfffffec, 28),
    (0xfffffed, 28), (0xfffffee, 28), (0xfffffef, 28), (0xffffff0, 28), (0xffffff1, 28), (0xffffff2, 28), (0x3ffffffe, 30), (0xffffff3, 28),
    (0xffffff4, 28), (0xffffff5, 28), (0xffffff6, 28), (0xffffff7, 28), (0xffffff8, 28), (0xffffff9, 28), (0xffffffa, 28), (0xffffffb, 28),
    (0x14, 6), (0x3f8, 10), (0x3f9, 10), (0xffa, 12), (0x1ff9, 13), (0x15, 6), (0xf8, 8), (0x7fa, 11),
    (0x3fa, 10), (0x3fb, 10), (0xf9, 8), (0x7fb, 11), (0xfa, 8), (0x16, 6), (0x17, 6), (0x18, 6),
    (0x0, 5), (0x1, 5), (0x2, 5), (0x19, 6), (0x1a, 6), (0x1b, 6), (0x1c, 6), (0x1d, 6),
    (0x1e, 6), (0x1f, 6), (0x5c, 7), (0xfb, 8), (0x7ffc, 15), (0x20, 6), (0xffb, 12), (0x3fc, 10),
    (0x1ffa, 13), (0x21, 6), (0x5d, 7), (0x5e, 7), (0x5f, 7), (0x60, 7), (0x61, 7), (0x62, 7),
    (0x63, 7), (0x64, 7), (0x65, 7), (0x66, 7), (0x67, 7), (0x68, 7), (0x69, 7), (0x6a, 7),
    (0x6b, 7), (0x6c, 7), (0x6d, 7), (0x6e, 7), (0x6f, 7), (0x70, 7), (0x71, 7), (0x72, 7),
    (0xfc, 8), (0x73, 7), (0xfd, 8), (0x1ffb, 13), (0x7fff0, 19), (0x1ffc, 13), (0x3ffc, 14), (0x22, 6),
    (0x7ffd, 15), (0x3, 5), (0x23, 6), (0x4, 5), (0x24, 6), (0x5, 5), (0x25, 6), (0x26, 6),
    (0x27, 6), (0x6, 5), (0x74, 7), (0x75, 7), (0x28, 6), (0x29, 6), (0x2a, 6), (0x7, 5),
    (0x2b, 6), (0x76, 7), (0x2c, 6), (0x8, 5), (0x9, 5), (0x2d, 6), (0x77, 7), (0x78, 7),
    (0x79, 7), (0x7a, 7), (0x7b, 7), (0x7ffe, 15), (0x7fc, 11), (0x3ffd, 14), (0x1ffd, 13), (0xffffffc, 28),
    (0xfffe6, 20), (0x3fffd2, 22), (0xfffe7, 20), (0xfffe8, 20), (0x3fffd3, 22), (0x3fffd4, 22), (0x3fffd5, 22), (0x7fffd9, 23),
    (0x3fffd6, 22), (0x7fffda, 23), (0x7fffdb, 23), (0x7fffdc, 23), (0x7fffdd, 23), (0x7fffde, 23), (0xffffeb, 24), (0x7fffdf, 23),
    (0xffffec, 24), (0xffffed, 24), (0x3fffd7, 22), (0x7fffe0, 23), (0xffffee, 24), (0x7fffe1, 23), (0x7fffe2, 23), (0x7fffe3, 23),
    (0x7fffe4, 23), (0x1fffdc, 21), (0x3fffd8, 22), (0x7fffe5, 23), (0x3fffd9, 22), (0x7fffe6, 23), (0x7fffe7, 23), (0xffffef, 24),
    (0x3fffda, 22), (0x1fffdd, 21), (0xfffe9, 20), (0x3fffdb, 22), (0x3fffdc, 22), (0x7fffe8, 23), (0x7fffe9, 23), (0x1fffde, 21),
    (0x7fffea, 23), (0x3fffdd, 22), (0x3fffde, 22), (0xfffff0, 24), (0x1fffdf, 21), (0x3fffdf, 22), (0x7fffeb, 23), (0x7fffec, 23),
    (0x1fffe0, 21), (0x1fffe1, 21), (0x3fffe0, 22), (0x1fffe2, 21), (0x7fffed, 23), (0x3fffe1, 22), (0x7fffee, 23), (0x7fffef, 23),
    (0xfffea, 20), (0x3fffe2, 22), (0x3fffe3, 22), (0x3fffe4, 22), (0x7ffff0, 23), (0x3fffe5, 22), (0x3fffe6, 22), (0x7ffff1, 23),
    (0x3ffffe0, 26), (0x3ffffe1, 26), (0xfffeb, 20), (0x7fff1, 19), (0x3fffe7, 22), (0x7ffff2, 23), (0x3fffe8, 22), (0x1ffffec, 25),
    (0x3ffffe2, 26), (0x3ffffe3, 26), (0x3ffffe4, 26), (0x7ffffde, 27), (0x7ffffdf, 27), (0x3ffffe5, 26), (0xfffff1, 24), (0x1ffffed, 25),
    (0x7fff2, 19), (0x1fffe3, 21), (0x3ffffe6, 26), (0x7ffffe0, 27), (0x7ffffe1, 27), (0x3ffffe7, 26), (0x7ffffe2, 27), (0xfffff2, 24),
    (0x1fffe4, 21), (0x1fffe5, 21), (0x3ffffe8, 26), (0x3ffffe9, 26), (0xffffffd, 28), (0x7ffffe3, 27), (0x7ffffe4, 27), (0x7ffffe5, 27),
    (0xfffec, 20), (0xfffff3, 24), (0xfffed, 20), (0x1fffe6, 21), (0x3fffe9, 22), (0x1fffe7, 21), (0x1fffe8, 21), (0x7ffff3, 23),
    (0x3fffea, 22), (0x3fffeb, 22), (0x1ffffee, 25), (0x1ffffef, 25), (0xfffff4, 24), (0xfffff5, 24), (0x3ffffea, 26), (0x7ffff4, 23),
    (0x3ffffeb, 26), (0x7ffffe6, 27), (0x3ffffec, 26), (0x3ffffed, 26), (0x7ffffe7, 27), (0x7ffffe8, 27), (0x7ffffe9, 27), (0x7ffffea, 27),
    (0x7ffffeb, 27), (0xffffffe, 28), (0x7ffffec, 27), (0x7ffffed, 27), (0x7ffffee, 27), (0x7ffffef, 27), (0x7fffff0, 27), (0x3ffffee, 26),
];

/// A string in the Huffman code.
fn huffman(text: &[u8]) -> Vec<u8> {
    let (mut out, mut bits, mut have) = (Vec::new(), 0u64, 0);
    for byte in text {
        let (code, length) = CODES[usize::from(*byte)];
        bits = bits << length | u64::from(code);
        have += length;
        while have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    if have > 0 {
        out.push((bits << (8 - have)) as u8 | (0xff >> have));
    }
    out
}

fn integer(out: &mut Vec<u8>, first: u8, prefix: u32, value: usize) {
    let most = (1usize << prefix) - 1;
    if value < most {
        return out.push(first | value as u8);
    }
    out.push(first | most as u8);
    let mut left = value - most;
    while left >= 128 {
        out.push(0x80 | (left % 128) as u8);
        left /= 128;
    }
    out.push(left as u8);
}

fn text(out: &mut Vec<u8>, text: &[u8], coded: bool) {
    if coded {
        let coded = huffman(text);
        integer(out, 0x80, 7, coded.len());
        out.extend(coded);
    } else {
        integer(out, 0, 7, text.len());
        out.extend(text);
    }
}

/// A field that is not added to the table.
fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    text(&mut out, name, false);
    text(&mut out, value, true);
    out
}

/// `:method GET`, `:scheme http`, `:path /`.
const GET: &[u8] = b"\x82\x86\x84";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn inspector() -> Inspector {
    Inspector::new(4096, 256 * 1024)
}

fn fault_in(section: Section, block: &[u8]) -> Result<Option<MalformedReason>, BlockError> {
    inspector().inspect(block, section, &mut Vec::new()).map(|inspected| inspected.fault())
}

fn fault(block: &[u8]) -> Result<Option<MalformedReason>, BlockError> {
    fault_in(Section::Request, block)
}

/// The fault of a request that holds this field beside the usual ones.
fn fault_of(name: &[u8], value: &[u8]) -> Option<MalformedReason> {
    let block = [GET, &literal(name, value)].concat();
    fault(&block).unwrap()
}

fn fields(inspector: &mut Inspector, block: &[u8], section: Section) -> Fields {
    let mut scratch = Vec::new();
    let inspected = inspector.inspect(block, section, &mut scratch).unwrap();
    let mut fields = Fields::new();
    inspected.fields(&mut scratch, |name, value| fields.push((name.to_vec(), value.to_vec())));
    fields
}

fn check(section: Section, first: &[u8], blocks: &[(&str, &str)]) {
    let mut inspector = inspector();
    let mut before = first.to_vec();
    for (block, expected) in blocks {
        let block = [std::mem::take(&mut before), hex(block)].concat();
        let lines: Vec<String> = fields(&mut inspector, &block, section)
            .iter()
            .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()))
            .collect();
        assert_eq!(lines.join("\n"), *expected);
    }
}

const REQUESTS: [&str; 3] = [
    ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com",
    ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache",
    ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value",
];

#[test]
fn the_requests_of_appendix_c() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, coded] {
        check(Section::Request, b"", &std::array::from_fn::<_, 3, _>(|at| (blocks[at], REQUESTS[at])));
    }
}

const RESPONSES: [&str; 3] = [
    ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com",
    ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com",
    ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\nlocation: https://www.example.com\n\
     content-encoding: gzip\nset-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
];

/// With a table of 256 bytes, from which entries are evicted.
#[test]
fn the_responses_of_appendix_c() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 \
         474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 \
         666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 \
         3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let coded = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 \
         63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 \
         b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    for blocks in [plain, coded] {
        let pairs = std::array::from_fn::<_, 3, _>(|at| (blocks[at], RESPONSES[at]));
        check(Section::Response, b"\x3f\xe1\x01", &pairs);
    }
}

#[test]
fn names() {
    for byte in 0..=255u8 {
        let allowed = matches!(byte, b'a'..=b'z' | b'0'..=b'9') || b"!#$%&'*+-.^_`|~".contains(&byte);
        let expected = match byte {
            _ if allowed => None,
            b'A'..=b'Z' => Some(MalformedReason::UpperCase),
            _ => Some(MalformedReason::BadName),
        };
        assert_eq!(fault_of(&[b'a', byte], b"1"), expected, "{byte:#x}");
    }
    assert_eq!(fault_of(b"", b"1"), Some(MalformedReason::BadName));
    assert_eq!(fault_of(&[b'a'; 65535], b"1"), None);
    assert_eq!(fault_of(&[b'a'; 65536], b"1"), Some(MalformedReason::BadName));
    for name in ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"] {
        assert_eq!(fault_of(name.as_bytes(), b"x"), Some(MalformedReason::ConnectionField), "{name}");
    }
    assert_eq!(fault(b"\x82\x86\x84\xb9"), Ok(Some(MalformedReason::ConnectionField)));
    assert_eq!(fault_of(b"te", b"trailers"), None);
    assert_eq!(fault_of(b"te", b"trailers, gzip"), Some(MalformedReason::Te));
}

#[test]
fn values() {
    for byte in 0..=255u8 {
        let control = byte != b'\t' && (byte < b' ' || byte == 0x7f);
        let expected = control.then_some(MalformedReason::BadValue);
        for length in [1, 9, 40] {
            let value = [&vec![b'a'; length][..], &[byte], b"z"].concat();
            assert_eq!(fault_of(b"x-a", &value), expected, "{byte:#x}");
        }
    }
    assert_eq!(fault_of(b"x-a", b""), None);
    for value in [" a", "a ", "\ta", "a\t", " "] {
        assert_eq!(fault_of(b"x-a", value.as_bytes()), Some(MalformedReason::Blank), "{value:?}");
    }
}

/// A request of these pseudo-fields.
fn pseudo(fields: &[(&str, &str)]) -> Option<MalformedReason> {
    let block: Vec<u8> =
        fields.iter().flat_map(|(name, value)| literal(name.as_bytes(), value.as_bytes())).collect();
    fault(&block).unwrap()
}

#[test]
fn paths() {
    let of = |path: &str| pseudo(&[(":method", "GET"), (":scheme", "http"), (":path", path)]);
    assert_eq!(of("/a?b=%20"), None);
    assert_eq!(of("/caf\u{e9}"), None);
    assert_eq!(of("/a#b"), Some(MalformedReason::Fragment));
    assert_eq!(of("/a?b#c"), Some(MalformedReason::Fragment));
    assert_eq!(of(""), Some(MalformedReason::PathEmpty));
    for path in ["/a b", "/\0", "/ HTTP/1.1\r\nX-Evil: 1", "/\x7f", " /"] {
        assert_eq!(of(path), Some(MalformedReason::PathByte), "{path:?}");
    }
    let block = [&b"\x82\x86"[..], &literal(b":path", b"/\xff")].concat();
    assert_eq!(fault(&block), Ok(Some(MalformedReason::PseudoBytes)));
}

#[test]
fn pseudo_fields() {
    let (method, scheme, path) = ((":method", "GET"), (":scheme", "http"), (":path", "/"));
    assert_eq!(pseudo(&[path, method, scheme]), None);
    assert_eq!(pseudo(&[path, method, scheme, (":authority", "a")]), None);
    assert_eq!(pseudo(&[path, method]), Some(MalformedReason::PseudoMissing));
    assert_eq!(pseudo(&[scheme, method]), Some(MalformedReason::PseudoMissing));
    assert_eq!(pseudo(&[]), Some(MalformedReason::PseudoMissing));
    assert_eq!(pseudo(&[method, scheme, path, (":method", "POST")]), Some(MalformedReason::PseudoTwice));
    assert_eq!(pseudo(&[method, scheme, ("a", "b"), path]), Some(MalformedReason::PseudoLate));
    assert_eq!(pseudo(&[method, scheme, path, (":status", "200")]), Some(MalformedReason::PseudoMisplaced));
    assert_eq!(pseudo(&[method, scheme, path, (":evil", "1")]), Some(MalformedReason::PseudoUnknown));
    assert_eq!(pseudo(&[method, scheme, path, (":", "1")]), Some(MalformedReason::PseudoUnknown));
    assert_eq!(pseudo(&[(":method", "G T"), scheme, path]), Some(MalformedReason::Method));
    assert_eq!(pseudo(&[(":method", ""), scheme, path]), Some(MalformedReason::Method));
    assert_eq!(pseudo(&[method, scheme, path, (":authority", "a\nb")]), Some(MalformedReason::BadValue));
    let (connect, authority, protocol) =
        ((":method", "CONNECT"), (":authority", "a"), (":protocol", "websocket"));
    assert_eq!(pseudo(&[connect, authority]), None);
    assert_eq!(pseudo(&[connect, authority, path]), Some(MalformedReason::PseudoMisplaced));
    assert_eq!(pseudo(&[connect, authority, path, scheme, protocol]), None);
    assert_eq!(pseudo(&[connect, authority, path, protocol]), Some(MalformedReason::PseudoMissing));
    assert_eq!(pseudo(&[method, authority, path, scheme, protocol]), Some(MalformedReason::PseudoMisplaced));
}

#[test]
fn sections() {
    assert_eq!(fault_in(Section::Trailers, &literal(b"x-sum", b"1")), Ok(None));
    assert_eq!(fault_in(Section::Trailers, b"\x84"), Ok(Some(MalformedReason::PseudoMisplaced)));
    assert_eq!(fault_in(Section::Trailers, b""), Ok(None));
    assert_eq!(fault_in(Section::Response, b"\x88"), Ok(None));
    assert_eq!(fault_in(Section::Response, b""), Ok(Some(MalformedReason::PseudoMissing)));
    assert_eq!(fault_in(Section::Response, b"\x88\x82"), Ok(Some(MalformedReason::PseudoMisplaced)));
    for status in ["20", "2000", "abc", "020"] {
        let block = literal(b":status", status.as_bytes());
        assert_eq!(fault_in(Section::Response, &block), Ok(Some(MalformedReason::Status)), "{status}");
    }
}

#[test]
fn what_cannot_be_decoded() {
    let blocks: [&[u8]; 15] = [
        b"\x80",
        b"\xbe",
        b"\x7e\x01a",
        b"\xff",
        b"\xff\xff\xff\xff\xff\xff",
        b"\x40",
        b"\x40\x01",
        b"\x40\x01a",
        b"\x40\x01a\x02b",
        // Eight bits that fill up; bits that are no ones; the end itself.
        b"\x00\x01a\x81\xff",
        b"\x00\x01a\x82\x1f\xff",
        b"\x00\x01a\x81\x18",
        b"\x00\x01a\x84\xff\xff\xff\xff",
        // A size beyond the announced one, and one behind a field.
        b"\x3f\xe2\x1f",
        b"\x82\x20",
    ];
    for block in blocks {
        assert_eq!(fault(block), Err(BlockError::Compression), "{}", block.escape_ascii());
    }
    assert_eq!(fault(b"\x3f\xe1\x1f\x20\x82\x86\x84"), Ok(None));
}

#[test]
fn fields_have_a_limit() {
    let mut inspector = Inspector::new(4096, 100);
    let mut inspect = |block: &[u8]| inspector.inspect(block, Section::Trailers, &mut Vec::new()).map(|_| ());
    assert_eq!(inspect(&literal(b"a", &[b'a'; 67])), Ok(()));
    assert_eq!(inspect(&literal(b"a", &[b'a'; 68])), Err(BlockError::TooLarge));
}

#[test]
fn what_is_malformed_stays_so() {
    let mut inspector = inspector();
    let scratch = &mut Vec::new();
    let mut fault = |block: &[u8]| inspector.inspect(block, Section::Trailers, scratch).unwrap().fault();
    assert_eq!(fault(b"\x40\x03X-a\x011\x40\x03x-b\x02\r\n"), Some(MalformedReason::UpperCase));
    // The value alone, the name with it, the name with another value.
    assert_eq!(fault(b"\xbe"), Some(MalformedReason::BadValue));
    assert_eq!(fault(b"\xbf"), Some(MalformedReason::UpperCase));
    assert_eq!(fault(b"\x0f\x2f\x011"), None);
    assert_eq!(fault(b"\x0f\x30\x011"), Some(MalformedReason::UpperCase));
}

#[test]
fn fields_that_no_table_takes_can_be_left_out() {
    let mut inspector = inspector();
    let mut without = |block: &[u8]| {
        let (scratch, mut out) = (&mut Vec::new(), b"<".to_vec());
        let inspected = inspector.inspect(block, Section::Trailers, scratch).unwrap();
        let left = inspected.without(b"b", scratch, &mut out);
        (left, out)
    };
    // One that is added first, then those that are not: a literal, the one in the table, and a name from there.
    assert_eq!(without(b"\x40\x01b\x011\x00\x01a\x012"), (false, b"<".to_vec()));
    let block = [b"\x3f\xe1\x1f\x00\x01a\x011", &literal(b"b", b"2")[..], b"\xbe\x00\x01c\x013\x0f\x2f\x014"]
        .concat();
    assert_eq!(without(&block), (true, b"<\x3f\xe1\x1f\x00\x01a\x011\x00\x01c\x013".to_vec()));
    assert_eq!(without(b"\xbe"), (true, b"<".to_vec()));
    assert_eq!(without(b"\x00\x01a\x012"), (false, b"<".to_vec()));
}

#[test]
fn a_list_is_counted() {
    let mut inspector = inspector();
    let block = [b"\x82\x86\x84", &literal(b":authority", b"host")[..], b"\x40\x01a\x02bc", b"\x00\x01d\x00"]
        .concat();
    let mut counted = |block: &[u8]| {
        let inspected = inspector.inspect(block, Section::Request, &mut Vec::new()).unwrap();
        (inspected.size(), inspected.count(), inspected.longest())
    };
    assert_eq!(counted(&block), (42 + 43 + 38 + 46 + 35 + 33, 2, 3));
    // The field that was added, by its index.
    assert_eq!(counted(b"\x82\x86\x84\xbe\xbe"), (42 + 43 + 38 + 35 + 35, 2, 3));
    assert_eq!(counted(b"\x82\x86\x84"), (42 + 43 + 38, 0, 0));
}

#[test]
fn an_entry_without_a_byte_has_no_substitute() {
    let mut inspector = inspector();
    let inspected = inspector.inspect(b"\x40\x00\x00", Section::Request, &mut Vec::new()).unwrap();
    assert_eq!(inspected.fault(), Some(MalformedReason::BadName));
    assert!(!inspected.substitute(&mut Vec::new()));
}

/// A block that adds more than the table can hold, and has most of it leave again.
#[test]
fn memory_is_given_back() {
    let mut inspector = inspector();
    let scratch = &mut Vec::new();
    let field = [&b"\x40\x01a\x7f\x81\x06"[..], &[b'v'; 896]].concat();
    for _ in 0..3 {
        assert_eq!(inspector.inspect(&field.repeat(50), Section::Trailers, scratch).unwrap().fault(), None);
        inspector.trim();
        // Four have room, and can still be referred to.
        for (index, known) in [(0xbe, true), (0xc1, true), (0xc2, false)] {
            assert_eq!(inspector.inspect(&[index], Section::Trailers, scratch).is_ok(), known);
        }
    }
}

/// A table with all that an encoder or decoder knows of it, and no care for speed.
#[derive(Debug, Clone)]
struct Model {
    entries: VecDeque<(Vec<u8>, Vec<u8>)>,
    max: usize,
}

impl Model {
    fn new() -> Self {
        Self { entries: VecDeque::new(), max: 4096 }
    }

    fn sizes(&self) -> Vec<usize> {
        self.entries.iter().map(|(name, value)| name.len() + value.len() + 32).collect()
    }

    fn resize(&mut self, max: usize) {
        self.max = max;
        while self.sizes().iter().sum::<usize>() > max {
            self.entries.pop_back();
        }
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) {
        self.entries.push_front((name.to_vec(), value.to_vec()));
        let max = self.max;
        self.resize(max);
    }

    /// Follows the literals with literal names, and the sizes, of which substitutes are made.
    fn follow_substitute(&mut self, mut block: &[u8]) {
        fn integer(block: &mut &[u8], prefix: u32) -> usize {
            let most = (1usize << prefix) - 1;
            let mut value = usize::from(block[0]) & most;
            *block = &block[1..];
            let mut shift = 0;
            while value >= most {
                value += usize::from(block[0] & 0x7f) << shift;
                shift += 7;
                let last = block[0] < 0x80;
                *block = &block[1..];
                if last {
                    break;
                }
            }
            value
        }
        fn text<'b>(block: &mut &'b [u8]) -> &'b [u8] {
            let length = integer(block, 7);
            let (text, rest) = block.split_at(length);
            *block = rest;
            text
        }
        loop {
            match block[0] {
                0x40 => {
                    block = &block[1..];
                    let name = text(&mut block);
                    assert!(!name.is_empty());
                    self.insert(name, text(&mut block));
                }
                0x20..0x40 => {
                    let max = integer(&mut block, 5);
                    self.resize(max);
                }
                _ => return assert_eq!(block, b"\x0f\x2a\x01x"),
            }
        }
    }
}

/// An operation of an encoder.
#[derive(Debug, Clone)]
enum Act {
    Indexed(usize),
    Literal { indexed: bool, name: Result<usize, Vec<u8>>, value: Vec<u8>, coded: bool },
}

fn name_of_any_kind() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => "[a-z-]{1,12}".prop_map(String::into_bytes),
        1 => "[a-zA-Z ]{1,12}".prop_map(String::into_bytes),
        1 => prop_oneof![Just(":path"), Just(":status"), Just(":evil"), Just("connection"), Just("te"), Just("")]
            .prop_map(|name| name.as_bytes().to_vec()),
    ]
}

fn value_of_any_kind() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => "[a-zA-Z0-9/;=.]{1,60}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => (0..5000usize).prop_map(|length| vec![b'v'; length]),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let index = || prop_oneof![1..62usize, 62..70usize];
    let literal =
        (any::<bool>(), any::<bool>(), index(), name_of_any_kind(), value_of_any_kind(), any::<bool>());
    prop_oneof![
        index().prop_map(Act::Indexed),
        literal.prop_map(|(indexed, by_index, index, name, value, coded)| Act::Literal {
            indexed,
            name: if by_index { Ok(index) } else { Err(name) },
            value,
            coded,
        }),
    ]
}

/// Encodes operations; their references are resolved within the existing entries.
fn encode(acts: &[Act], sizes: &[usize], model: &mut Model, static_fields: &Fields) -> (Vec<u8>, Fields) {
    let (mut out, mut fields) = (Vec::new(), Fields::new());
    for size in sizes {
        integer(&mut out, 0x20, 5, *size);
        model.resize(*size);
    }
    for act in acts {
        let known = |model: &Model, index: usize| {
            let index = 1 + (index - 1) % (61 + model.entries.len());
            let field = match index {
                ..=61 => static_fields[index - 1].clone(),
                _ => model.entries[index - 62].clone(),
            };
            (index, field)
        };
        match act {
            Act::Indexed(index) => {
                let (index, field) = known(model, *index);
                integer(&mut out, 0x80, 7, index);
                fields.push(field);
            }
            Act::Literal { indexed, name, value, coded } => {
                let (first, prefix) = if *indexed { (0x40, 6) } else { (0x10, 4) };
                let name = match name {
                    Ok(index) => {
                        let (index, (name, _)) = known(model, *index);
                        integer(&mut out, first, prefix, index);
                        name
                    }
                    Err(name) => {
                        out.push(first);
                        text(&mut out, name, *coded);
                        name.clone()
                    }
                };
                text(&mut out, value, *coded);
                if *indexed {
                    model.insert(&name, value);
                }
                fields.push((name, value.clone()));
            }
        }
    }
    (out, fields)
}

/// The static table, as the inspector shows it.
fn static_fields() -> Fields {
    let block: Vec<u8> = (1..=61).map(|index| 0x80 | index).collect();
    fields(&mut inspector(), &block, Section::Trailers)
}

/// Returns true if a field with this name and value is well-formed in any section.
fn is_well_formed(name: &[u8], value: &[u8]) -> bool {
    let section = match name {
        b":status" => Section::Response,
        _ => Section::Request,
    };
    let fault = fault_in(section, &literal(name, value)).unwrap();
    matches!(fault, None | Some(MalformedReason::PseudoMissing))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn tables_stay_in_step(
        blocks in proptest::collection::vec(
            (proptest::collection::vec(act(), 0..12), proptest::collection::vec(0..4097usize, 0..3)), 1..12)
    ) {
        let static_fields = static_fields();
        let mut inspector = inspector();
        let (mut encoder, mut decoder) = (Model::new(), Model::new());
        let mut scratch = Vec::new();
        for (number, (acts, sizes)) in blocks.iter().enumerate() {
            // A table that was made small would hold nothing in all the rest.
            let sizes = if number % 3 == 0 { &sizes[..] } else { &[4096] };
            let (block, expected) = encode(acts, sizes, &mut encoder, &static_fields);
            let inspected = inspector.inspect(&block, Section::Trailers, &mut scratch).unwrap();
            let mut fields = Fields::new();
            inspected.fields(&mut scratch, |name, value| fields.push((name.to_vec(), value.to_vec())));
            prop_assert_eq!(&fields, &expected);
            let trailer = |name: &[u8], value: &[u8]| is_well_formed(name, value) && !name.starts_with(b":");
            let well_formed = fields.iter().all(|(name, value)| trailer(name, value));
            prop_assert_eq!(inspected.fault().is_none(), well_formed, "{:?}", inspected.fault());
            let mut substitute = Vec::new();
            if inspected.fault().is_none() {
                prop_assert_eq!(encode(acts, sizes, &mut decoder, &static_fields), (block, expected));
            } else if inspected.substitute(&mut substitute) {
                prop_assert!(substitute.len() <= 4096 + 16);
                decoder.follow_substitute(&substitute);
            } else {
                prop_assert!(encoder.entries.iter().any(|(name, value)| name.is_empty() && value.is_empty()));
                return Ok(());
            }
            prop_assert_eq!(encoder.sizes(), decoder.sizes());
            prop_assert_eq!(encoder.max, decoder.max);
            for ((name, value), other) in encoder.entries.iter().zip(&decoder.entries) {
                // The name becomes invalid if no value can replace its own, also in entries that reuse it.
                let spoilt = matches!(&name[..], b":method" | b":status") && other.0 == b"x";
                if is_well_formed(name, value) && !spoilt {
                    prop_assert_eq!((name, value), (&other.0, &other.1));
                } else {
                    prop_assert!(other.0 == b"x" || other.0 == *name);
                    prop_assert!(other.1.iter().all(|byte| *byte == b'x'));
                }
            }
        }
    }

    #[test]
    fn any_string_in_the_huffman_code_is_decoded(value in proptest::collection::vec(any::<u8>(), 0..300)) {
        let shown = fields(&mut inspector(), &literal(b"a", &value), Section::Trailers);
        prop_assert_eq!(shown, vec![(b"a".to_vec(), value)]);
    }
}

/// Count, size and bytes out of the dynamic table of each of these blocks, which follow each other.
fn lists(blocks: &[(&[u8], Section)]) -> Vec<(usize, usize, usize)> {
    let mut inspector = Inspector::new(4096, 1 << 20);
    let mut scratch = Vec::new();
    let list = |(block, section): &(&[u8], Section)| {
        let inspected = inspector.inspect(block, *section, &mut scratch).unwrap();
        (inspected.count(), inspected.size(), inspected.repeated())
    };
    blocks.iter().map(list).collect()
}

#[test]
fn crumbs_of_a_cookie_are_one_field_of_a_request() {
    // Literal, by the name of the static table, added to the dynamic one, by its index, and by its name.
    let crumbs = b"\x00\x06cookie\x01a\x0f\x11\x01b\x60\x01c\xbe\x0f\x2f\x01d\x00\x01x\x01y";
    let size = 5 * (6 + 1 + 32) + 34;
    assert_eq!(
        lists(&[(crumbs, Section::Request), (crumbs, Section::Response), (b"\xbe\xbe", Section::Request)]),
        [(2, size, 7 + 6), (6, size, 7 + 6), (1, 2 * 39, 14)]
    );
}

#[test]
fn what_the_table_holds_is_told_from_what_the_block_has() {
    let entry = [&b"\x40\x03abc\x7f\x73"[..], &[b'v'; 242]].concat();
    assert_eq!(
        lists(&[
            (&entry, Section::Trailers),
            (b"\xbe\xbe\xbe\x0f\x2f\x00", Section::Trailers),
            // The static table is not counted: 53 bytes at most.
            (b"\x90\x90\x0f\x00\x00", Section::Trailers),
        ]),
        [(1, 277, 0), (4, 3 * 277 + 35, 3 * 245 + 3), (3, 2 * 60 + 46, 0)]
    );
}
