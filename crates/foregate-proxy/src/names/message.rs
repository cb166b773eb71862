//! DNS messages (RFC 1035): a question for the addresses of a name or the servers of a service, and the
//! answer to it. Without I/O.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name, as it is encoded in messages, bytes (RFC 1035, section 2.3.4).
const NAME_LIMIT: usize = 255;
const LABEL_LIMIT: usize = 63;
const HEADER: usize = 12;
/// The most aliases that are followed within one answer.
const ALIASES_LIMIT: usize = 16;

const CLASS_IN: u16 = 1;
const TYPE_CNAME: u16 = 5;
const FLAG_RESPONSE: u16 = 0x8000;
const FLAG_AUTHORITATIVE: u16 = 0x0400;
const FLAG_TRUNCATED: u16 = 0x0200;
const FLAG_RECURSION_DESIRED: u16 = 0x0100;
const FLAG_RECURSION_AVAILABLE: u16 = 0x0080;
const OPCODE: u16 = 0x7800;
const CODE: u16 = 0x000f;
const CODE_NO_NAME: u16 = 3;

/// The type of the records that a question asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Addresses of IPv4.
    A,
    /// Addresses of IPv6.
    Aaaa,
    /// The servers of a service (RFC 2782).
    Srv,
}

/// A server of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Servers with a lower number are preferred.
    pub priority: u16,
    /// The server's share of the requests among servers of the same priority.
    pub weight: u16,
    /// Its port.
    pub port: u16,
    /// The name of the server. The root means that the service is not offered.
    pub name: Name,
}

impl RecordKind {
    fn record_type(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
            Self::Srv => 33,
        }
    }
}

/// The content of a record.
enum Content {
    Address(IpAddr),
    Target(Target),
}

impl Content {
    fn read(kind: RecordKind, message: &[u8], at: usize, end: usize) -> Option<Self> {
        let data = message.get(at..end)?;
        Some(match kind {
            RecordKind::A => Self::Address(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into()),
            RecordKind::Aaaa => Self::Address(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).into()),
            RecordKind::Srv => {
                // The name must not be compressed (RFC 2782), but some nameservers compress it.
                let (name, behind) = Name::read(message, at + 6)?;
                let number = |place: usize| number_at(message, at + place);
                let [priority, weight, port] = [number(0)?, number(2)?, number(4)?];
                (behind == end).then_some(Self::Target(Target { priority, weight, port, name }))?
            }
        })
    }
}

/// An absolute name in lower case, encoded as in messages but without compression.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Vec<u8>);

impl Name {
    /// Parses `text` as an absolute name; a dot at its end is optional. Returns `None` if a label or the
    /// whole name has an invalid length.
    pub fn new(text: &str) -> Option<Self> {
        let mut wire = Vec::with_capacity(text.len() + 2);
        for label in text.strip_suffix('.').unwrap_or(text).split('.') {
            let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
            wire.push(length);
            wire.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        wire.push(0);
        (wire.len() <= NAME_LIMIT).then_some(Self(wire))
    }

    /// The name of the root.
    pub fn is_root(&self) -> bool {
        self.0.len() <= 1
    }

    /// Returns true if the name can be that of a host: it consists of letters, digits, `-` and `_`.
    pub fn is_host(&self) -> bool {
        let mut rest = &*self.0;
        while let Some((label, after)) =
            rest.split_first().and_then(|(length, after)| after.split_at_checked(usize::from(*length)))
        {
            if !label.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
                return false;
            }
            rest = after;
        }
        !self.is_root()
    }

    /// Reads the name at `at`, and follows compression pointers. Also returns the position after the name.
    /// Pointers must lead backwards, so that they cannot form a loop.
    fn read(message: &[u8], at: usize) -> Option<(Self, usize)> {
        let (mut wire, mut at, mut behind) = (Vec::new(), at, None);
        let mut before = at;
        loop {
            let length = usize::from(*message.get(at)?);
            if length & 0xc0 == 0xc0 {
                let to = (length & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
                behind.get_or_insert(at + 2);
                if to >= before {
                    return None;
                }
                (at, before) = (to, to);
                continue;
            }
            if length > LABEL_LIMIT || wire.len() + length + 1 > NAME_LIMIT {
                return None;
            }
            let label = message.get(at..=at + length)?;
            wire.extend(label.iter().map(u8::to_ascii_lowercase));
            at += length + 1;
            if length == 0 {
                return Some((Self(wire), behind.unwrap_or(at)));
            }
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &*self.0;
        while let Some((length, after)) = rest.split_first().filter(|(length, _)| **length > 0) {
            let (label, after) = after.split_at_checked(usize::from(*length)).unwrap_or((after, &[]));
            write!(f, "{}.", label.escape_ascii())?;
            rest = after;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A question for records of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The id of the message: an unpredictable number.
    pub id: u16,
    /// The name that is asked for.
    pub name: Name,
    /// The type of records.
    pub kind: RecordKind,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameserverReply {
    /// The addresses, and the number of seconds for which they and all aliases that lead to them are valid.
    Addresses(Vec<IpAddr>, u32),
    /// The servers of the service, and the number of seconds for which the records are valid.
    Targets(Vec<Target>, u32),
    /// The name is an alias, and the answer has no records of the target. This value has the target, and
    /// the number of seconds for which the alias is valid.
    Alias(Name, u32),
    /// The name has no record of this type.
    NoRecord,
    /// There is no such name.
    NoName,
    /// The answer did not fit into a UDP message: the question has to be asked over TCP.
    Truncated,
    /// The server failed, or refused to answer, with this response code.
    Code(u16),
    /// The server sent a message that is no usable answer.
    Malformed,
}

impl Question {
    /// The message that asks the question.
    pub fn message(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEADER + self.name.0.len() + 4);
        for number in [self.id, FLAG_RECURSION_DESIRED, 1, 0, 0, 0] {
            message.extend(number.to_be_bytes());
        }
        message.extend(&self.name.0);
        message.extend(self.kind.record_type().to_be_bytes());
        message.extend(CLASS_IN.to_be_bytes());
        message
    }

    /// Reads a message as the answer to this question. Returns `None` if it does not belong to this
    /// question.
    pub fn reply(&self, message: &[u8]) -> Option<NameserverReply> {
        let header = |number: usize| number_at(message, number * 2);
        let (id, flags) = (header(0)?, header(1)?);
        if id != self.id || flags & FLAG_RESPONSE == 0 || flags & OPCODE != 0 {
            return None;
        }
        let code = flags & CODE;
        let [questions, answers, authorities, additional] = [header(2)?, header(3)?, header(4)?, header(5)?];
        if questions == 0 && code != 0 {
            // Some servers do not repeat the question in an error. Such an error is not trusted to say that
            // the name does not exist.
            return Some(if code == CODE_NO_NAME {
                NameserverReply::Malformed
            } else {
                NameserverReply::Code(code)
            });
        }
        let (name, at) = Name::read(message, HEADER)?;
        let (asked, class) = (number_at(message, at)?, number_at(message, at + 2)?);
        if questions != 1 || name != self.name || asked != self.kind.record_type() || class != CLASS_IN {
            return None;
        }
        if flags & FLAG_TRUNCATED != 0 {
            return Some(NameserverReply::Truncated);
        }
        if code == CODE_NO_NAME {
            return Some(NameserverReply::NoName);
        }
        if code != 0 {
            return Some(NameserverReply::Code(code));
        }
        let knows = flags & (FLAG_AUTHORITATIVE | FLAG_RECURSION_AVAILABLE) != 0;
        if answers == 0 && !knows && authorities > 0 && additional == 0 {
            // A referral: the server only names other servers, and does not ask them itself. libc
            // skips such a server as well.
            return Some(NameserverReply::Malformed);
        }
        Some(self.answer(message, at + 4, answers).unwrap_or(NameserverReply::Malformed))
    }

    /// Reads the records of the answer; `None` if they are truncated or malformed.
    fn answer(&self, message: &[u8], mut at: usize, count: u16) -> Option<NameserverReply> {
        let (mut aliases, mut contents) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (owner, behind) = Name::read(message, at)?;
            let (kind, class) = (number_at(message, behind)?, number_at(message, behind + 2)?);
            let ttl =
                u32::from(number_at(message, behind + 4)?) << 16 | u32::from(number_at(message, behind + 6)?);
            // A TTL with the highest bit set counts as 0 (RFC 2181, section 8).
            let ttl = if ttl > i32::MAX.cast_unsigned() { 0 } else { ttl };
            let data = behind + 10;
            at = data + usize::from(number_at(message, behind + 8)?);
            message.get(data..at)?;
            if class == CLASS_IN && kind == TYPE_CNAME {
                aliases.push((owner, Name::read(message, data)?.0, ttl));
            } else if class == CLASS_IN && kind == self.kind.record_type() {
                contents.push((owner, Content::read(self.kind, message, data, at)?, ttl));
            }
        }
        let (mut name, mut valid) = (self.name.clone(), u32::MAX);
        for hop in 0..=ALIASES_LIMIT {
            if let Some(found) = self.records_of(&name, &mut contents, valid) {
                return Some(found);
            }
            match aliases.iter().find(|(owner, ..)| *owner == name) {
                Some((_, target, ttl)) => (name, valid) = (target.clone(), valid.min(*ttl)),
                None if hop == 0 => return Some(NameserverReply::NoRecord),
                None => return Some(NameserverReply::Alias(name, valid)),
            }
        }
        None
    }

    /// The records of a name among those of the answer, if there are any.
    fn records_of(
        &self,
        name: &Name,
        contents: &mut Vec<(Name, Content, u32)>,
        valid: u32,
    ) -> Option<NameserverReply> {
        let own = contents.extract_if(.., |(owner, ..)| owner == name);
        let (mut addresses, mut targets, mut ttl) = (Vec::new(), Vec::new(), valid);
        for (_, content, of_record) in own {
            ttl = ttl.min(of_record);
            match content {
                Content::Address(address) => addresses.push(address),
                Content::Target(target) => targets.push(target),
            }
        }
        match (addresses.is_empty(), targets.is_empty()) {
            (true, true) => None,
            (false, _) => Some(NameserverReply::Addresses(addresses, ttl)),
            (true, false) => Some(NameserverReply::Targets(targets, ttl)),
        }
    }
}

fn number_at(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn question(name: &str, kind: RecordKind) -> Question {
        Question { id: 0x1234, name: Name::new(name).unwrap(), kind }
    }

    /// An answer to `question` with these flags and records.
    fn message(question: &Question, flags: u16, records: &[(&str, u16, u32, Vec<u8>)]) -> Vec<u8> {
        let mut message = question.message();
        message[2..4].copy_from_slice(&(FLAG_RESPONSE | flags).to_be_bytes());
        message[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
        for (owner, kind, ttl, data) in records {
            match *owner {
                // A pointer to the question's name.
                "" => message.extend([0xc0, 12]),
                owner => message.extend(Name::new(owner).unwrap().0),
            }
            message.extend(kind.to_be_bytes());
            message.extend(CLASS_IN.to_be_bytes());
            message.extend(ttl.to_be_bytes());
            message.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            message.extend(data);
        }
        message
    }

    fn a(last: u8) -> Vec<u8> {
        vec![192, 0, 2, last]
    }

    fn alias(name: &str) -> Vec<u8> {
        Name::new(name).unwrap().0
    }

    #[test]
    fn names_have_a_form_in_messages() {
        for name in ["shop_web_1", "_http._tcp.app.internal", "a.b-.c", &"a.".repeat(127)] {
            assert!(Name::new(name).is_some(), "{name}");
        }
        assert_eq!(Name::new("API.example.com."), Name::new("api.example.com"));
        assert_eq!(Name::new("A.b").unwrap().to_string(), "a.b.");
        for bad in ["", ".", "a..b", &"a".repeat(64), &"a.".repeat(128), &"a".repeat(300)] {
            assert_eq!(Name::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_question_is_asked() {
        let asked = question("a.b", RecordKind::Aaaa).message();
        assert_eq!(asked, *b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x01b\x00\x00\x1c\x00\x01");
    }

    #[test]
    fn addresses_are_found_through_aliases_in_any_order() {
        let ask = question("a.test", RecordKind::A);
        let records =
            [("c.test", 1, 30, a(1)), ("b.test", 5, 7, alias("c.test")), ("", 5, 600, alias("B.test"))];
        let found = NameserverReply::Addresses(vec![[192, 0, 2, 1].into()], 7);
        assert_eq!(ask.reply(&message(&ask, 0x80, &records)), Some(found));
        let open = NameserverReply::Alias(Name::new("c.test").unwrap(), 7);
        assert_eq!(ask.reply(&message(&ask, 0x80, &records[1..])), Some(open));
        let circle = [("", 5, 1, alias("b.test")), ("b.test", 5, 1, alias("a.test"))];
        assert_eq!(ask.reply(&message(&ask, 0x80, &circle)), Some(NameserverReply::Malformed));
        let of_others = [("other.test", 1, 30, a(9)), ("", 1, u32::MAX, a(1)), ("", 1, 60, a(2))];
        let both = NameserverReply::Addresses(vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()], 0);
        assert_eq!(ask.reply(&message(&ask, 0, &of_others)), Some(both));
    }

    #[test]
    fn servers_of_a_service_are_read() {
        let ask = question("_http._tcp.test", RecordKind::Srv);
        assert_eq!(ask.message()[ask.message().len() - 4..], [0, 33, 0, 1]);
        let data = |priority: u8, weight: u8, target: &str| {
            [vec![0, priority, 0, weight, 0x1f, 0x90], alias(target)].concat()
        };
        let records = [("", 33, 30, data(20, 0, "b.test")), ("", 33, 9, data(10, 5, "A.test"))];
        let target =
            |priority, weight, name| Target { priority, weight, port: 8080, name: Name::new(name).unwrap() };
        let found = NameserverReply::Targets(vec![target(20, 0, "b.test"), target(10, 5, "a.test")], 9);
        assert_eq!(ask.reply(&message(&ask, 0x80, &records)), Some(found));
        // A target that points to the question's name, and the root.
        let pointed = [("", 33, 30, vec![0, 1, 0, 1, 0x1f, 0x90, 0xc0, 12])];
        let found = NameserverReply::Targets(vec![target(1, 1, "_http._tcp.test")], 30);
        assert_eq!(ask.reply(&message(&ask, 0x80, &pointed)), Some(found));
        let root = [("", 33, 30, vec![0, 0, 0, 0, 0, 0, 0])];
        let Some(NameserverReply::Targets(root, _)) = ask.reply(&message(&ask, 0x80, &root)) else {
            panic!()
        };
        assert!(root[0].name.is_root());
        for cut in [vec![], vec![0; 6], [data(1, 1, "a.test"), vec![0]].concat()] {
            let message = message(&ask, 0x80, &[("", 33, 30, cut)]);
            assert_eq!(ask.reply(&message), Some(NameserverReply::Malformed));
        }
        assert_eq!(ask.reply(&message(&ask, 0x80, &[])), Some(NameserverReply::NoRecord));
    }

    #[test]
    fn what_is_no_address_is_told_apart() {
        let ask = question("a.test", RecordKind::Aaaa);
        let reply = |flags: u16| ask.reply(&message(&ask, flags, &[]));
        assert_eq!(reply(0x80), Some(NameserverReply::NoRecord));
        assert_eq!(reply(3), Some(NameserverReply::NoName));
        assert_eq!(reply(2), Some(NameserverReply::Code(2)));
        assert_eq!(reply(5), Some(NameserverReply::Code(5)));
        assert_eq!(reply(FLAG_TRUNCATED), Some(NameserverReply::Truncated));
        let mut referral = message(&ask, 0, &[]);
        referral[9] = 1;
        assert_eq!(ask.reply(&referral), Some(NameserverReply::Malformed));
        let bare = |code: u8| [0x12, 0x34, 0x80, code, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(ask.reply(&bare(1)), Some(NameserverReply::Code(1)));
        assert_eq!(ask.reply(&bare(3)), Some(NameserverReply::Malformed), "no name that was not asked for");
    }

    #[test]
    fn answers_to_other_questions_are_none() {
        let ask = question("a.test", RecordKind::A);
        let good = message(&ask, 0x80, &[("", 1, 60, a(1))]);
        assert!(matches!(ask.reply(&good), Some(NameserverReply::Addresses(..))));
        let wrong = |other: &Question| other.reply(&good);
        assert_eq!(wrong(&Question { id: 0x1235, ..ask.clone() }), None);
        assert_eq!(wrong(&question("b.test", RecordKind::A)), None);
        assert_eq!(wrong(&question("a.test", RecordKind::Aaaa)), None);
        assert_eq!(ask.reply(&ask.message()), None, "a question is no answer");
        // A message that was cut anywhere is no answer, or a malformed one.
        for cut in 0..good.len() {
            assert!(matches!(ask.reply(&good[..cut]), None | Some(NameserverReply::Malformed)), "{cut}");
        }
    }

    #[test]
    fn pointers_lead_backwards() {
        let ask = question("a.test", RecordKind::A);
        let good = message(&ask, 0x80, &[("", 1, 60, a(1))]);
        let at = ask.message().len();
        for to in [at, at + 1, 0x3fff] {
            let mut bad = good.clone();
            bad[at..at + 2].copy_from_slice(&(0xc000 | u16::try_from(to).unwrap()).to_be_bytes());
            assert_eq!(ask.reply(&bad), Some(NameserverReply::Malformed), "{to}");
        }
    }

    proptest! {
        #[test]
        fn any_message_is_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), from in 0..31_usize) {
            let ask = question("a.test", RecordKind::A);
            let good = message(&ask, 0x80, &[("", 5, 60, alias("b.test")), ("b.test", 1, 60, a(1))]);
            bytes.splice(0..0, good[..from].iter().copied());
            let _ = ask.reply(&bytes);
            prop_assert!(ask.reply(&good).is_some());
        }
    }
}
