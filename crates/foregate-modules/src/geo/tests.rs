use super::*;
use foregate_module::testing::{Literals, Sample, node};

/// Writes databases in the format of MaxMind DB 2.0: a binary tree over the bits of addresses, IPv4 below `::/96`.
struct Writer {
    nodes: Vec<[u32; 2]>,
    data: Vec<u8>,
}

/// A record without anything, and the least one that is an offset of the data section.
const NOTHING: u32 = u32::MAX;
const DATA: u32 = 1 << 30;

impl Writer {
    fn new() -> Self {
        Self { nodes: Vec::from([[NOTHING; 2]]), data: Vec::new() }
    }

    fn network(mut self, address: &str, bits: usize, data: &[u8]) -> Self {
        let (address, bits) = match address.parse().unwrap() {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), bits + 96),
            IpAddr::V6(v6) => (u128::from(v6), bits),
        };
        let record = DATA + self.data.len() as u32;
        self.data.extend(data);
        let mut node = 0;
        for at in 0..bits {
            let side = (address >> (127 - at) & 1) as usize;
            if at + 1 == bits {
                self.nodes[node][side] = record;
            } else if self.nodes[node][side] == NOTHING {
                self.nodes.push([NOTHING; 2]);
                self.nodes[node][side] = self.nodes.len() as u32 - 1;
                node = self.nodes.len() - 1;
            } else {
                node = self.nodes[node][side] as usize;
            }
        }
        self
    }

    fn finish(self, kind: &str) -> Vec<u8> {
        let count = self.nodes.len() as u32;
        let mut bytes = Vec::new();
        for record in self.nodes.iter().flatten() {
            let record = match *record {
                NOTHING => count,
                data if data >= DATA => count + 16 + data - DATA,
                node => node,
            };
            bytes.extend(&record.to_be_bytes()[1..]);
        }
        bytes.extend([0; 16]);
        bytes.extend(self.data);
        bytes.extend(b"\xab\xcd\xefMaxMind.com");
        bytes.push(0xe0 | 9);
        for (name, value) in [
            ("node_count", [&[0xc4][..], &count.to_be_bytes()].concat()),
            ("record_size", Vec::from([0xa1, 24])),
            ("ip_version", Vec::from([0xa1, 6])),
            ("database_type", string(kind)),
            ("languages", Vec::from([0x00, 0x04])),
            ("binary_format_major_version", Vec::from([0xa1, 2])),
            ("binary_format_minor_version", Vec::from([0xa0])),
            ("build_epoch", Vec::from([0x04, 0x02, 0x66, 0x00, 0x00, 0x00])),
            ("description", Vec::from([0xe0])),
        ] {
            bytes.extend(string(name));
            bytes.extend(value);
        }
        bytes
    }
}

/// A text of up to 28 bytes, or of up to 284.
fn string(text: &str) -> Vec<u8> {
    assert!(text.len() < 29);
    [&[0x40 | text.len() as u8][..], text.as_bytes()].concat()
}

/// `{"country": {"iso_code": CODE}}`
fn country(code: &str) -> Vec<u8> {
    [&[0xe1][..], &string("country"), &[0xe1], &string("iso_code"), &string(code)].concat()
}

fn database() -> Vec<u8> {
    Writer::new()
        .network("192.0.2.0", 24, &country("DE"))
        .network("198.51.100.0", 25, &country("FR"))
        .network("203.0.113.7", 32, &country("too long"))
        .network("2001:db8::", 32, &country("JP"))
        .finish("Test-Country")
}

fn read(file: Vec<u8>, field: Option<&str>) -> Result<Geoip, Problem> {
    let mut context = Literals { files: Vec::from([("test.mmdb", file)]), ..Literals::default() };
    let mut key = node("geoip").prop_literal("database", "test.mmdb");
    if let Some(field) = field {
        key = key.prop_literal("field", field);
    }
    Geoip::from_nodes(&[key], &mut context)
}

#[test]
fn countries_are_looked_up_for_both_families() {
    let geoip = read(database(), None).unwrap();
    let look = |address: &str| {
        let mut sample = Sample::get("/").from(address);
        sample.run(&Lookup, &geoip);
        sample.value::<Country>().copied()
    };
    let code = |text: &str| text.parse().ok();
    assert_eq!(look("192.0.2.1"), code("DE"));
    assert_eq!(look("198.51.100.127"), code("FR"));
    assert_eq!(look("198.51.100.128"), None);
    assert_eq!(look("203.0.113.7"), None);
    assert_eq!(look("2001:db8:ffff::1"), code("JP"));
    assert_eq!(look("2001:db9::1"), None);
    assert_eq!(look("::ffff:192.0.2.200"), code("DE"));
    assert_eq!(look("8.8.8.8"), None);
    let mut sample = Sample::get("/");
    sample.client = None;
    sample.run(&Lookup, &geoip);
    assert_eq!(sample.value::<Country>(), None);
    assert_eq!(Country::show(&"de".parse().unwrap()), Some(Shown::Bytes(b"DE")));
}

#[test]
fn other_databases_have_the_country_elsewhere() {
    let flat = [&[0xe1][..], &string("country_code"), &string("se")].concat();
    let file = Writer::new().network("192.0.2.0", 24, &flat).finish("Flat");
    let geoip = read(file.clone(), Some("country_code")).unwrap();
    assert_eq!(geoip.country("192.0.2.9".parse().unwrap()), "SE".parse().ok());
    let problem = read(file, None).unwrap_err();
    assert_eq!(problem.message, "this database (`Flat`) has no countries at `country.iso_code`");
}

#[test]
fn what_is_no_database_is_refused() {
    let message = read(b"nonsense".to_vec(), None).unwrap_err().message;
    assert!(message.starts_with("this is not a database of MaxMind's format: "), "{message}");
    let whole = database();
    for length in 0..whole.len() {
        // Whatever is cut off: an error, or a database that answers something.
        if let Ok(geoip) = read(whole[..length].to_vec(), None) {
            let _ = geoip.country("192.0.2.1".parse().unwrap());
        }
    }
    let problem = read(database(), Some("country..code")).unwrap_err();
    assert_eq!(problem.message, "expected names joined by dots, such as country.iso_code");
    let missing = Geoip::from_nodes(&[node("geoip")], &mut Literals::default()).unwrap_err();
    assert_eq!(missing.message, "`geoip` needs database=\"FILE\"");
    let argument = node("geoip").arg_literal("a.mmdb");
    let argument = Geoip::from_nodes(&[argument], &mut Literals::default()).unwrap_err();
    assert_eq!(argument.message, "`geoip` takes no value");
}
