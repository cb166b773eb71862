//! Messages of dynamic updates (RFC 2136), signed by a shared key (TSIG, RFC 8945), without I/O.

use foregate_proxy::settings::automatic::{DnsUpdate, KeyAlgorithm, TransactionKey};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384, Sha512};

/// Bytes of the longest name (RFC 1035, section 2.3.4).
const NAME_LIMIT: usize = 255;
/// Bytes of the longest label.
const LABEL_LIMIT: usize = 63;
/// The time for which DNS caches may keep a record, in seconds.
const TTL: u32 = 60;
/// The largest difference between our clock and the server's that a signature allows, in seconds (RFC 8945,
/// section 10).
const FUDGE: u16 = 300;

const OPCODE_UPDATE: u16 = 5 << 11;
const OPCODE_MASK: u16 = 0xf << 11;
const IS_ANSWER: u16 = 1 << 15;
const CODE_MASK: u16 = 0xf;

const TYPE_SOA: u16 = 6;
const TYPE_TXT: u16 = 16;
const TYPE_TSIG: u16 = 250;
const CLASS_IN: u16 = 1;
const CLASS_NONE: u16 = 254;
const CLASS_ANY: u16 = 255;

/// A change of one TXT record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordChange {
    Add,
    Remove,
}

/// The reason why an update was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UpdateRefusal {
    #[error("its answer is malformed")]
    Malformed,
    #[error("its answer is not signed, or by another key")]
    Unsigned,
    #[error("its clock and ours differ by more than 5 minutes (BADTIME)")]
    Clock,
    #[error("it does not know the key (BADKEY)")]
    UnknownKey,
    #[error("it refused the signature (BADSIG)")]
    WrongSignature,
    #[error("it answered {}", code_name(*.0))]
    Code(u16),
}

/// The name of a response code.
fn code_name(code: u16) -> String {
    let name = match code {
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        9 => "NOTAUTH",
        10 => "NOTZONE",
        _ => return format!("with code {code}"),
    };
    name.to_owned()
}

/// The message that updates one record, and the key that verifies the answer.
#[derive(Debug)]
pub(super) struct UpdateMessage<'k> {
    bytes: Vec<u8>,
    id: u16,
    key: Option<&'k TransactionKey>,
    /// The message authentication code of the request.
    code: Vec<u8>,
}

impl<'k> UpdateMessage<'k> {
    /// Makes a message that adds or removes the TXT record `record` with the text `value`, signed at `now`, in
    /// seconds since 1970. `None` if a name or the text is too long for a message.
    pub(super) fn new(
        update: &'k DnsUpdate,
        (change, record, value): (RecordChange, &str, &str),
        id: u16,
        now: u64,
    ) -> Option<Self> {
        let length = u8::try_from(value.len()).ok()?;
        let mut bytes = Vec::with_capacity(512);
        // The head: one zone, no prerequisites, one change, no additional records.
        for number in [id, OPCODE_UPDATE, 1, 0, 1, 0] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(wire_name(&update.zone)?);
        bytes.extend(TYPE_SOA.to_be_bytes());
        bytes.extend(CLASS_IN.to_be_bytes());
        bytes.extend(wire_name(record)?);
        bytes.extend(TYPE_TXT.to_be_bytes());
        let (class, ttl) = match change {
            RecordChange::Add => (CLASS_IN, TTL),
            RecordChange::Remove => (CLASS_NONE, 0),
        };
        bytes.extend(class.to_be_bytes());
        bytes.extend(ttl.to_be_bytes());
        bytes.extend((u16::from(length) + 1).to_be_bytes());
        bytes.push(length);
        bytes.extend(value.as_bytes());
        let mut message = Self { bytes, id, key: update.key.as_ref(), code: Vec::new() };
        message.sign(now)?;
        Some(message)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn sign(&mut self, now: u64) -> Option<()> {
        let Some(key) = self.key else { return Some(()) };
        let (name, algorithm) = (wire_name(&key.name)?, wire_name(key.algorithm.name())?);
        let time = Signed { time: now, fudge: FUDGE, error: 0, other: &[] };
        let code = Code::new(key, &[&self.bytes, &time.variables(&name, &algorithm)])?.finish();
        self.bytes.extend(&name);
        self.bytes.extend(TYPE_TSIG.to_be_bytes());
        self.bytes.extend(CLASS_ANY.to_be_bytes());
        self.bytes.extend(0_u32.to_be_bytes());
        let mut data = algorithm;
        data.extend(time.time_and_fudge());
        data.extend(u16::try_from(code.len()).ok()?.to_be_bytes());
        data.extend(&code);
        // The original id, no error, and no other data.
        for number in [self.id, 0, 0] {
            data.extend(number.to_be_bytes());
        }
        self.bytes.extend(u16::try_from(data.len()).ok()?.to_be_bytes());
        self.bytes.extend(data);
        // The count of additional records in the head.
        self.bytes.get_mut(10..12)?.copy_from_slice(&1_u16.to_be_bytes());
        self.code = code;
        Some(())
    }

    /// Reads the server's answer at `now`. With a key, only a signed answer confirms the update.
    pub(super) fn check(&self, answer: &[u8], now: u64) -> Result<(), UpdateRefusal> {
        let read = Answer::read(answer).ok_or(UpdateRefusal::Malformed)?;
        if read.id != self.id {
            return Err(UpdateRefusal::Malformed);
        }
        let refused = match read.code {
            0 => Ok(()),
            code => Err(UpdateRefusal::Code(code)),
        };
        let Some(key) = self.key else { return refused };
        let Some(signature) = read.signature else { return refused.and(Err(UpdateRefusal::Unsigned)) };
        match signature.signed.error {
            0 => {}
            16 => return Err(UpdateRefusal::WrongSignature),
            17 => return Err(UpdateRefusal::UnknownKey),
            18 => return Err(UpdateRefusal::Clock),
            code => return Err(UpdateRefusal::Code(code)),
        }
        if !self.is_signed(key, answer, &signature) {
            return Err(UpdateRefusal::Unsigned);
        }
        if signature.signed.time.abs_diff(now) > u64::from(FUDGE) {
            return Err(UpdateRefusal::Clock);
        }
        refused
    }

    fn is_signed(&self, key: &TransactionKey, answer: &[u8], signature: &Signature<'_>) -> bool {
        let name = wire_name(&key.name).filter(|name| *name == signature.name);
        let algorithm = wire_name(key.algorithm.name()).filter(|algorithm| *algorithm == signature.algorithm);
        let (Some(name), Some(algorithm)) = (name, algorithm) else { return false };
        let Some(signed) = answer.get(12..signature.begins) else { return false };
        let Some(others) = signature.records.checked_sub(1) else { return false };
        let mut head = answer.get(..10).unwrap_or_default().to_vec();
        // The server signed the head as it was before the signature was added. That head has the original id, and its
        // count of additional records excludes the signature.
        head.splice(..2, signature.id.to_be_bytes());
        head.extend(others.to_be_bytes());
        let Ok(length) = u16::try_from(self.code.len()) else { return false };
        let variables = signature.signed.variables(&name, &algorithm);
        let parts = [&length.to_be_bytes(), &*self.code, &head, signed, &variables];
        Code::new(key, &parts).is_some_and(|code| code.is(signature.code))
    }
}

/// Encodes a name for a message, in lower case. A trailing dot makes no difference.
fn wire_name(text: &str) -> Option<Vec<u8>> {
    let mut wire = Vec::with_capacity(text.len() + 2);
    for label in text.strip_suffix('.').unwrap_or(text).split('.') {
        let length = u8::try_from(label.len()).ok().filter(|_| (1..=LABEL_LIMIT).contains(&label.len()))?;
        wire.push(length);
        wire.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
    wire.push(0);
    (wire.len() <= NAME_LIMIT).then_some(wire)
}

/// The values that the signature covers in addition to the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Signed<'m> {
    time: u64,
    fudge: u16,
    error: u16,
    other: &'m [u8],
}

impl Signed<'_> {
    fn time_and_fudge(&self) -> Vec<u8> {
        let time = self.time.to_be_bytes();
        // The time is a field of 48 bits.
        let mut bytes = time[2..].to_vec();
        bytes.extend(self.fudge.to_be_bytes());
        bytes
    }

    /// Returns the variables of the signature in the order of RFC 8945, section 4.3.3.
    fn variables(&self, key: &[u8], algorithm: &[u8]) -> Vec<u8> {
        let mut bytes = key.to_vec();
        bytes.extend(CLASS_ANY.to_be_bytes());
        bytes.extend(0_u32.to_be_bytes());
        bytes.extend(algorithm);
        bytes.extend(self.time_and_fudge());
        bytes.extend(self.error.to_be_bytes());
        // The length fits: `other` was read from a message, with a length of 16 bits.
        bytes.extend(u16::try_from(self.other.len()).unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend(self.other);
        bytes
    }
}

/// A message authentication code.
enum Code {
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
    Sha512(Hmac<Sha512>),
}

impl Code {
    fn new(key: &TransactionKey, parts: &[&[u8]]) -> Option<Self> {
        fn keyed<M: Mac + KeyInit>(secret: &[u8], parts: &[&[u8]]) -> Option<M> {
            let mut mac = <M as KeyInit>::new_from_slice(secret).ok()?;
            parts.iter().for_each(|part| mac.update(part));
            Some(mac)
        }
        let secret = &*key.secret;
        Some(match key.algorithm {
            KeyAlgorithm::Sha256 => Self::Sha256(keyed(secret, parts)?),
            KeyAlgorithm::Sha384 => Self::Sha384(keyed(secret, parts)?),
            KeyAlgorithm::Sha512 => Self::Sha512(keyed(secret, parts)?),
        })
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Sha256(mac) => mac.finalize().into_bytes().to_vec(),
            Self::Sha384(mac) => mac.finalize().into_bytes().to_vec(),
            Self::Sha512(mac) => mac.finalize().into_bytes().to_vec(),
        }
    }

    /// Compares two codes in constant time. A truncated code never matches.
    fn is(self, code: &[u8]) -> bool {
        match self {
            Self::Sha256(mac) => mac.verify_slice(code).is_ok(),
            Self::Sha384(mac) => mac.verify_slice(code).is_ok(),
            Self::Sha512(mac) => mac.verify_slice(code).is_ok(),
        }
    }
}

/// The parts of a server's answer that we read.
#[derive(Debug, PartialEq, Eq)]
struct Answer<'m> {
    id: u16,
    code: u16,
    signature: Option<Signature<'m>>,
}

/// The record with the signature. It is the last record of a message.
#[derive(Debug, PartialEq, Eq)]
struct Signature<'m> {
    /// The position in the message at which the record begins.
    begins: usize,
    /// The number of additional records in the head, this one included.
    records: u16,
    name: Vec<u8>,
    algorithm: Vec<u8>,
    code: &'m [u8],
    id: u16,
    signed: Signed<'m>,
}

impl<'m> Answer<'m> {
    /// Reads a whole message. Each record takes up some bytes of the message, so its length bounds the counts of
    /// records.
    fn read(message: &'m [u8]) -> Option<Self> {
        let mut reader = Reader { message, at: 0 };
        let (id, flags) = (reader.number()?, reader.number()?);
        if flags & (IS_ANSWER | OPCODE_MASK) != IS_ANSWER | OPCODE_UPDATE {
            return None;
        }
        let [zones, conditions, changes, records] =
            [reader.number()?, reader.number()?, reader.number()?, reader.number()?];
        for _ in 0..zones {
            reader.skip_name()?;
            reader.take(4)?;
        }
        let mut signature = None;
        for _ in 0..u32::from(conditions) + u32::from(changes) + u32::from(records) {
            if signature.is_some() {
                return None;
            }
            let begins = reader.at;
            reader.skip_name()?;
            let kind = reader.number()?;
            let class_and_ttl = reader.take(6)?;
            let length = reader.number()?;
            let data = reader.take(usize::from(length))?;
            if kind == TYPE_TSIG {
                // The signature assumes these values: class ANY, and a TTL of 0.
                if class_and_ttl != [0, 255, 0, 0, 0, 0] {
                    return None;
                }
                let name = Reader { message, at: begins }.name()?;
                signature = Some(Signature::read(begins, records, name, data)?);
            }
        }
        (reader.at == message.len()).then_some(Self { id, code: flags & CODE_MASK, signature })
    }
}

impl<'m> Signature<'m> {
    fn read(begins: usize, records: u16, name: Vec<u8>, data: &'m [u8]) -> Option<Self> {
        let mut reader = Reader { message: data, at: 0 };
        let algorithm = reader.name()?;
        let time = reader.take(6)?.iter().fold(0, |time, byte| time << 8 | u64::from(*byte));
        let fudge = reader.number()?;
        let length = reader.number()?;
        let code = reader.take(usize::from(length))?;
        let (id, error) = (reader.number()?, reader.number()?);
        let length = reader.number()?;
        let other = reader.take(usize::from(length))?;
        let signed = Signed { time, fudge, error, other };
        (reader.at == data.len()).then_some(Self { begins, records, name, algorithm, code, id, signed })
    }
}

struct Reader<'m> {
    message: &'m [u8],
    at: usize,
}

impl<'m> Reader<'m> {
    fn take(&mut self, count: usize) -> Option<&'m [u8]> {
        let taken = self.message.get(self.at..)?.get(..count)?;
        self.at += count;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]))
    }

    /// Reads a name without compression pointers, in lower case.
    fn name(&mut self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        loop {
            let length = *self.take(1)?.first()?;
            if usize::from(length) > LABEL_LIMIT || name.len() + usize::from(length) + 1 > NAME_LIMIT {
                return None;
            }
            name.push(length);
            name.extend(self.take(usize::from(length))?.iter().map(u8::to_ascii_lowercase));
            if length == 0 {
                return Some(name);
            }
        }
    }

    /// Skips a name, which may end with a compression pointer.
    fn skip_name(&mut self) -> Option<()> {
        loop {
            let length = *self.take(1)?.first()?;
            match length {
                0 => return Some(()),
                0xc0.. => return self.take(1).map(|_| ()),
                1..=63 => self.take(usize::from(length))?,
                64.. => return None,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn update(key: Option<KeyAlgorithm>) -> DnsUpdate {
        DnsUpdate {
            server: ("192.0.2.1".into(), 53),
            zone: "example.com".into(),
            key: key.map(|algorithm| TransactionKey {
                name: "foregate".into(),
                algorithm,
                secret: b"0123456789abcdef".to_vec(),
            }),
            wait: Duration::ZERO,
        }
    }

    fn message(update: &DnsUpdate) -> UpdateMessage<'_> {
        let change = (RecordChange::Add, "_acme-challenge.Example.com", "value");
        UpdateMessage::new(update, change, 0x1234, NOW).unwrap()
    }

    /// The answer of a server that shares the key.
    fn answer(request: &UpdateMessage<'_>, flags: u16, time: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [request.id, flags, 1, 0, 0, 0] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(wire_name("example.com").unwrap());
        bytes.extend([0, 6, 0, 1]);
        let Some(key) = request.key else { return bytes };
        let (name, algorithm) = (wire_name(&key.name).unwrap(), wire_name(key.algorithm.name()).unwrap());
        let signed = Signed { time, fudge: 300, error: 0, other: &[] };
        let length = u16::try_from(request.code.len()).unwrap().to_be_bytes();
        let variables = signed.variables(&name, &algorithm);
        let code = Code::new(key, &[&length, &request.code, &bytes, &variables]).unwrap().finish();
        bytes[11] = 1;
        bytes.extend(name);
        bytes.extend([0, 250, 0, 255, 0, 0, 0, 0]);
        let mut data = algorithm;
        data.extend(signed.time_and_fudge());
        data.extend(u16::try_from(code.len()).unwrap().to_be_bytes());
        data.extend(code);
        data.extend(request.id.to_be_bytes());
        data.extend([0; 4]);
        bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn an_unsigned_update_is_these_bytes() {
        let update = update(None);
        let expected = b"\x12\x34\x28\0\0\x01\0\0\0\x01\0\0\x07example\x03com\0\0\x06\0\x01\x0f_acme-challenge\x07example\x03com\0\0\x10\0\x01\0\0\0\x3c\0\x06\x05value";
        assert_eq!(message(&update).bytes(), expected);
        let removed = (RecordChange::Remove, "_acme-challenge.example.com", "value");
        let removed = UpdateMessage::new(&update, removed, 1, NOW).unwrap();
        assert!(removed.bytes().ends_with(b"\0\x10\0\xfe\0\0\0\0\0\x06\x05value"));
        let long = (RecordChange::Add, "a.example.com", &*"v".repeat(256));
        assert!(UpdateMessage::new(&update, long, 1, NOW).is_none());
        let request = message(&update);
        assert_eq!(request.check(&answer(&request, 0xa800, NOW), NOW), Ok(()));
        let refused = request.check(&answer(&request, 0xa805, NOW), NOW).unwrap_err();
        assert_eq!((refused, &*refused.to_string()), (UpdateRefusal::Code(5), "it answered REFUSED"));
        assert_eq!(request.check(&answer(&request, 0x8000, NOW), NOW), Err(UpdateRefusal::Malformed));
    }

    #[test]
    fn only_the_signed_answer_counts() {
        for algorithm in [KeyAlgorithm::Sha256, KeyAlgorithm::Sha384, KeyAlgorithm::Sha512] {
            let update = update(Some(algorithm));
            let request = message(&update);
            let signed = answer(&request, 0xa800, NOW);
            assert_eq!(request.check(&signed, NOW), Ok(()));
            assert_eq!(request.check(&signed, NOW + 301), Err(UpdateRefusal::Clock));
            let refused = answer(&request, 0xa809, NOW);
            assert_eq!(request.check(&refused, NOW), Err(UpdateRefusal::Code(9)));
            for end in 0..signed.len() {
                assert!(request.check(&signed[..end], NOW).is_err(), "cut off at {end}");
            }
            assert!(request.check(&[&*signed, b"\0"].concat(), NOW).is_err());
            for (at, bit) in (0..signed.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut changed = signed.clone();
                changed[at] ^= 1 << bit;
                let is_name = changed.eq_ignore_ascii_case(&signed);
                assert!(is_name || request.check(&changed, NOW).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn an_answer_without_or_with_another_signature_is_none() {
        let (plain, keyed) = (update(None), update(Some(KeyAlgorithm::Sha256)));
        let request = message(&keyed);
        let unsigned = answer(&message(&plain), 0xa800, NOW);
        assert_eq!(request.check(&unsigned, NOW), Err(UpdateRefusal::Unsigned));
        let mut other = keyed.clone();
        other.key.as_mut().unwrap().secret.push(b'x');
        assert_eq!(request.check(&answer(&message(&other), 0xa800, NOW), NOW), Err(UpdateRefusal::Unsigned));
        // A server that could not check the signature of a request answers without a signature.
        for (error, refusal) in
            [(16, UpdateRefusal::WrongSignature), (17, UpdateRefusal::UnknownKey), (18, UpdateRefusal::Clock)]
        {
            let mut bytes = answer(&message(&plain), 0xa809, NOW);
            bytes[11] = 1;
            bytes.extend(wire_name("foregate").unwrap());
            bytes.extend([0, 250, 0, 255, 0, 0, 0, 0, 0, 29]);
            bytes.extend(wire_name("hmac-sha256").unwrap());
            bytes.extend([0; 10]);
            bytes.extend([0x12, 0x34, 0, error, 0, 0]);
            assert_eq!(request.check(&bytes, NOW), Err(refusal));
        }
    }
}
