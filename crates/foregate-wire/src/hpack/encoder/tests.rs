use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::table::static_field;
use super::super::{Inspector, Section};
use super::*;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// An encoder with a decoder for its blocks.
struct Pair {
    encoder: Encoder,
    inspector: Inspector,
    scratch: Vec<u8>,
}

impl Pair {
    fn new() -> Self {
        let inspector = Inspector::new(INITIAL_TABLE, usize::MAX);
        Self { encoder: Encoder::new(), inspector, scratch: Vec::new() }
    }

    /// The block of these fields, which have to be read from it.
    fn block(&mut self, fields: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            self.encoder.field(NameId::from_name(name), name, value, &mut block);
        }
        let expected = fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec()));
        assert_eq!(self.read(&block), expected.collect::<Fields>());
        block
    }

    fn read(&mut self, block: &[u8]) -> Fields {
        let inspected = self.inspector.inspect(block, Section::Response, &mut self.scratch).unwrap();
        let mut fields = Fields::new();
        inspected.fields(&mut self.scratch, |name, value| fields.push((name.to_vec(), value.to_vec())));
        fields
    }

    fn entries(&self) -> usize {
        self.encoder.table.entries.len()
    }
}

fn text(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_text(text, &huffman::EXACT, &mut out);
    out
}

#[test]
fn strings_are_those_of_the_rfc() {
    // RFC 7541, C.4 and C.6.
    assert_eq!(text(b"www.example.com"), b"\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
    assert_eq!(text(b"no-cache"), b"\x86\xa8\xeb\x10\x64\x9c\xbf");
    assert_eq!(text(b"custom-key"), b"\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f");
    assert_eq!(text(b"custom-value"), b"\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf");
    assert_eq!(text(b"302"), b"\x82\x64\x02");
    assert_eq!(
        text(b"Mon, 21 Oct 2013 20:13:21 GMT"),
        b"\x96\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff"
    );
    assert_eq!(
        text(b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
        b"\xad\x94\xe7\x82\x1d\xd7\xf2\xe6\xc7\xb3\x35\xdf\xdf\xcd\x5b\x39\x60\xd5\xaf\x27\x08\x7f\x36\x72\
        \xc1\xab\x27\x0f\xb5\x29\x1f\x95\x87\x31\x60\x65\xc0\x03\xed\x4e\xe5\xb1\x06\x3d\x50\x07"
    );
    // Not shorter in the code, or nothing at all.
    assert_eq!(text(b"X|~"), b"\x03X|~");
    assert_eq!(text(b""), b"\x00");
}

#[test]
fn all_bytes_are_coded() {
    for length in 0..9 {
        for byte in 0..=u8::MAX {
            let text = [byte].repeat(length);
            let (mut room, mut decoded) = ([0; 40], Vec::new());
            let coded = huffman::encoded_len(&text, &huffman::EXACT);
            assert_eq!(huffman::encode(&text, &huffman::EXACT, &mut room), Some(coded));
            assert!(huffman::decode(&room[..coded], &mut decoded));
            assert_eq!(decoded, text);
            if let Some(less) = coded.checked_sub(1) {
                assert_eq!(huffman::encode(&text, &huffman::EXACT, &mut room[..less]), None);
            }
        }
    }
}

#[test]
fn lengths_of_strings_are_told() {
    let mut pair = Pair::new();
    for length in (0..300).chain([1000, 16_000, 70_000]) {
        // Shorter in the code, as long as without, longer; names and values.
        for text in [[b'a'].repeat(length), [b'X'].repeat(length), b"~A".repeat(length), vec![0xff; length]] {
            pair.block(&[(b"etag", &text), (&[b"x-".as_slice(), &text].concat(), b"")]);
        }
    }
}

#[test]
fn names_have_their_static_numbers() {
    for (id, number) in NameId::all().map(|id| (id, usize::from(STATIC_NAMES[id as usize]))) {
        let found = (15..=STATIC).find(|at| static_field(*at).unwrap().0 == id.as_str().as_bytes());
        assert_eq!(found.unwrap_or(0), number, "{id:?}");
    }
    assert_eq!(STATIC_NAMES[NameId::Unknown as usize], 0);
}

#[test]
fn statuses_and_lengths_are_written() {
    let mut pair = Pair::new();
    for status in 100..1000u16 {
        let mut block = Vec::new();
        pair.encoder.begin(&mut block);
        pair.encoder.status(status, &mut block);
        let in_table = [200, 204, 206, 304, 400, 404, 500].contains(&status);
        assert_eq!(block.len() == 1, in_table, "{status}");
        assert_eq!(pair.read(&block), [(b":status".to_vec(), status.to_string().into_bytes())]);
    }
    for length in (0..2000).chain((0..64).flat_map(|bit| [1 << bit, u64::MAX >> bit])) {
        let mut block = Vec::new();
        pair.encoder.content_length(length, &mut block);
        assert_eq!(pair.read(&block), [(b"content-length".to_vec(), length.to_string().into_bytes())]);
    }
    assert_eq!(pair.entries(), 0);
}

#[test]
fn what_comes_again_is_indexed() {
    let mut pair = Pair::new();
    let fields: [(&[u8], &[u8]); 3] =
        [(b"Content-Type", b"text/html"), (b"X-Custom", b"1"), (b"Vary", b"Accept-Encoding")];
    assert_eq!(pair.block(&fields)[0], LITERAL | 0x0f);
    assert_eq!(pair.entries(), 0);
    assert_eq!(pair.block(&fields)[0], LITERAL_INDEXED | 31);
    assert_eq!(pair.block(&fields), [0x80 | 64, 0x80 | 63, 0x80 | 62]);
    // Another case is the same name, another value is another field.
    assert_eq!(pair.block(&[(b"x-cUSTOM", b"1")]), [0x80 | 63]);
    assert!(pair.block(&[(b"x-custom", b"2")]).len() > 1);
    assert!(pair.block(&[(b"x-custon", b"1")]).len() > 1);
}

#[test]
fn secrets_are_never_indexed() {
    let mut pair = Pair::new();
    for _ in 0..4 {
        for name in [&b"Set-Cookie"[..], b"Cookie", b"Authorization", b"Proxy-Authorization"] {
            assert_eq!(pair.block(&[(name, b"secret")])[0], NEVER_INDEXED | 0x0f);
        }
    }
    assert_eq!(pair.entries(), 0);
}

#[test]
fn what_differs_each_time_stays_out_of_the_table() {
    let mut pair = Pair::new();
    for number in 0..1000 {
        let id = format!("{number:032x}");
        let block =
            pair.block(&[(b"Server", b"x"), (b"X-Request-Id", id.as_bytes()), (b"X-Id", id.as_bytes())]);
        if number > 1 {
            assert_eq!(block[0], 0x80 | 62);
        }
    }
    for name in ["ETag", "Last-Modified", "Location", "Content-Range", "Age", "Expires", "Content-Length"] {
        for _ in 0..3 {
            assert_eq!(pair.block(&[(name.as_bytes(), b"0")])[0] & 0xf0, LITERAL);
        }
    }
    assert_eq!(pair.entries(), 1);
}

#[test]
fn fields_of_one_set_keep_each_other() {
    let mut pair = Pair::new();
    let of_set = |value: &String| {
        hash(NameId::Vary, b"vary", value.as_bytes()) as usize % SETS == 3 && value.len() == 4
    };
    let values: Vec<String> = (1000..).map(|value| format!("{value}")).filter(of_set).take(WAYS).collect();
    for round in 0..4 {
        for value in &values {
            assert_eq!(pair.block(&[(b"vary", value.as_bytes())]).len() == 1, round > 1);
        }
    }
}

#[test]
fn large_fields_are_literals() {
    let mut pair = Pair::new();
    // Name, value and 32 bytes more are a quarter of the table.
    let fits = vec![b'v'; 1024 - 32 - 4];
    let (over, far) = (vec![b'v'; fits.len() + 1], vec![b'v'; 100_000]);
    for value in [&over, &far] {
        for _ in 0..3 {
            pair.block(&[(b"link", value)]);
        }
    }
    assert_eq!(pair.entries(), 0);
    for _ in 0..3 {
        pair.block(&[(b"link", &fits)]);
    }
    assert_eq!(pair.entries(), 1);
    let name = [b'N'; 70_000];
    for _ in 0..3 {
        pair.block(&[(&name, b"")]);
    }
    assert_eq!(pair.entries(), 1);
}

#[test]
fn memory_is_bounded() {
    let mut pair = Pair::new();
    for number in 0..20_000 {
        let value = format!("{number}").repeat(1 + number % 90);
        for _ in 0..2 {
            pair.block(&[(b"x-a", value.as_bytes())]);
        }
        let table = &pair.encoder.table;
        let size: usize = table.entries.iter().map(|entry| entry.len() + OVERHEAD).sum();
        assert_eq!(table.size, size);
        assert!(size <= INITIAL_TABLE);
    }
    assert!(pair.encoder.table.bytes.capacity() <= 4 * INITIAL_TABLE);
    assert!(pair.encoder.table.entries.capacity() <= 2 * INITIAL_TABLE / OVERHEAD);
}

#[test]
fn numbers_may_wrap() {
    let mut pair = Pair::new();
    pair.encoder.table.added = u32::MAX - 20;
    pair.encoder.table.before = u32::MAX - 20;
    for number in 0..400 {
        let value = format!("{}", number / 3);
        let block = pair.block(&[(b"x-a", value.as_bytes())]);
        assert_eq!(block.len() == 1, number % 3 == 2);
    }
}

#[test]
fn one_hash_is_not_one_field() {
    let mut pair = Pair::new();
    for _ in 0..3 {
        pair.block(&[(b"vary", b"a"), (b"via", b"b")]);
    }
    for seen in pair.encoder.recent.sets.iter_mut().flatten() {
        seen.hash = hash(NameId::Vary, b"vary", b"c");
    }
    pair.encoder.latest = [1; NAMES];
    assert!(pair.block(&[(b"vary", b"c")]).len() > 1);
}

#[test]
fn sizes_are_told() {
    let told = |before: u32, sizes: &[u32]| {
        let mut pair = Pair::new();
        let mut block = Vec::new();
        pair.encoder.set_table(before);
        pair.encoder.begin(&mut block);
        block.clear();
        sizes.iter().for_each(|size| pair.encoder.set_table(*size));
        pair.encoder.begin(&mut block);
        let mut again = Vec::new();
        pair.encoder.begin(&mut again);
        assert_eq!(again, b"");
        block
    };
    assert_eq!(told(4096, &[]), b"");
    assert_eq!(told(4096, &[4096]), b"");
    assert_eq!(told(4096, &[u32::MAX]), b"");
    assert_eq!(told(4096, &[0]), b"\x20");
    assert_eq!(told(4096, &[100, 20]), b"\x34");
    assert_eq!(told(4096, &[20, 30]), b"\x34\x3e");
    assert_eq!(told(4096, &[0, 65536]), b"\x20\x3f\xe1\x1f");
    assert_eq!(told(0, &[65536]), b"\x3f\xe1\x1f");
    assert_eq!(told(20, &[30]), b"\x3e");
    assert_eq!(told(20, &[30, 20]), b"");
    assert_eq!(told(20, &[10, 20]), b"\x2a\x34");
}

#[test]
fn the_table_follows_its_size() {
    let mut pair = Pair::new();
    let fields: [(&[u8], &[u8]); 2] = [(b"server", b"x"), (b"vary", b"y")];
    for _ in 0..3 {
        pair.block(&fields);
    }
    assert_eq!(pair.entries(), 2);
    pair.encoder.set_table(0);
    // Nothing has changed for the peer until the next block.
    assert_eq!(pair.entries(), 2);
    for _ in 0..3 {
        pair.block(&fields);
        assert_eq!(pair.entries(), 0);
    }
    pair.encoder.set_table(200);
    for _ in 0..3 {
        pair.block(&fields);
    }
    assert_eq!(pair.entries(), 2);
    pair.encoder.set_table(30);
    pair.encoder.set_table(200);
    let block = pair.block(&fields);
    assert_eq!(block, b"\x3e\x3f\xa9\x01\x76\x01x\x7b\x01y");
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0..6u8).prop_map(|number| format!("value {number}").into_bytes()),
        2 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => (0..1200usize).prop_map(|length| vec![b'a'; length]),
        1 => Just(b"0123456789abcdef".repeat(10)),
    ]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..NameId::all().count()).prop_map(|at| {
            NameId::all().nth(at).unwrap().as_canonical().as_bytes().to_vec()
        }),
        6 => proptest::sample::select(vec!["Server", "Vary", "Date", "X-Powered-By", "Set-Cookie"])
            .prop_map(|name| name.as_bytes().to_vec()),
        4 => (0..8u8).prop_map(|number| format!("X-Name-{number}").into_bytes()),
        1 => "[A-Za-z@_`0-9-]{1,300}".prop_map(String::into_bytes),
    ]
}

/// A field, a status or a length.
#[derive(Debug, Clone)]
enum Act {
    Field(Vec<u8>, Vec<u8>),
    Status(u16),
    Length(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => (name(), value()).prop_map(|(name, value)| Act::Field(name, value)),
        1 => (100..1000u16).prop_map(Act::Status),
        1 => any::<u64>().prop_map(Act::Length),
    ]
}

fn sizes() -> impl Strategy<Value = Vec<u32>> {
    let size = prop_oneof![4 => 0..5000u32, 1 => Just(0), 2 => Just(4096), 1 => any::<u32>()];
    prop_oneof![4 => Just(Vec::new()), 1 => proptest::collection::vec(size, 0..4)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn blocks_say_what_was_written(
        blocks in proptest::collection::vec(
            (sizes(), proptest::collection::vec(act(), 0..16), any::<prop::sample::Index>()), 1..40)
    ) {
        let mut pair = Pair::new();
        let mut lately: VecDeque<Vec<Act>> = VecDeque::new();
        for (sizes, acts, repeated) in blocks {
            sizes.iter().for_each(|size| pair.encoder.set_table(*size));
            let mut acts = acts;
            // Most of a message is as in one before.
            if !lately.is_empty() {
                acts.extend_from_slice(&lately[repeated.index(lately.len())]);
            }
            acts.truncate(40);
            let (mut block, mut expected) = (Vec::new(), Fields::new());
            pair.encoder.begin(&mut block);
            for act in &acts {
                expected.push(match act {
                    Act::Field(name, value) => {
                        pair.encoder.field(NameId::from_name(name), name, value, &mut block);
                        (name.to_ascii_lowercase(), value.clone())
                    }
                    Act::Status(status) => {
                        pair.encoder.status(*status, &mut block);
                        (b":status".to_vec(), status.to_string().into_bytes())
                    }
                    Act::Length(length) => {
                        pair.encoder.content_length(*length, &mut block);
                        (b"content-length".to_vec(), length.to_string().into_bytes())
                    }
                });
            }
            prop_assert_eq!(pair.read(&block), expected);
            lately.push_back(acts);
            if lately.len() > 4 {
                lately.pop_front();
            }
        }
    }
}
