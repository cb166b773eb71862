//! A scripted nameserver: answers questions over UDP and TCP by the records of a `dns` block, which steps may replace.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::text::Variables;
use crate::words::{Words, duration};

/// Pause between two looks for a question.
const POLL: Duration = Duration::from_millis(5);
const ALIASES: usize = 8;
const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_AAAA: u16 = 28;
const TYPE_SRV: u16 = 33;

/// The records of one line of a `dns` block.
#[derive(Debug, Clone)]
pub struct Record {
    /// The name, in lower case.
    pub name: String,
    /// The type that is answered so; `None`: any.
    kind: Option<u16>,
    reply: Reply,
    ttl: u32,
    delay: Duration,
    /// The answer does not fit into UDP.
    truncated: bool,
}

#[derive(Debug, Clone)]
enum Reply {
    Addresses(Vec<IpAddr>),
    /// Priority, weight, port or the name of an origin, target.
    Services(Vec<(u16, u16, String, String)>),
    Alias(String),
    /// A response code.
    Code(u8),
    /// The name is there, and has no such record.
    NoData,
    /// No answer at all.
    Silence,
}

impl Record {
    /// Reads `NAME A|AAAA ADDRESS...`, `NAME SRV PRIORITY WEIGHT PORT|ORIGIN TARGET...`, `NAME CNAME TARGET` or
    /// `NAME [A|AAAA|SRV] NXDOMAIN|SERVFAIL|REFUSED|NODATA|SILENCE`, with `ttl=N`, `delay=DURATION`, and `truncated` in front of them.
    ///
    /// # Errors
    ///
    /// A sentence about the part that cannot be parsed.
    pub(crate) fn read(words: &mut Words) -> Result<Self, String> {
        let ttl = words.number_option("ttl")?.unwrap_or(1);
        let delay = words.option("delay").map(|delay| duration(&delay)).transpose()?.unwrap_or_default();
        let truncated = words.flag("truncated");
        let name = words.word("a name")?.to_ascii_lowercase();
        let kind = match words.next_if(|word| ["A", "AAAA", "SRV"].contains(&word)).as_deref() {
            Some("A") => Some(TYPE_A),
            Some("SRV") => Some(TYPE_SRV),
            Some(_) => Some(TYPE_AAAA),
            None => None,
        };
        let word = words.word("what is answered")?;
        let reply = match (word.as_str(), kind) {
            ("NXDOMAIN", _) => Reply::Code(3),
            ("SERVFAIL", _) => Reply::Code(2),
            ("REFUSED", _) => Reply::Code(5),
            ("NODATA", _) => Reply::NoData,
            ("SILENCE", _) => Reply::Silence,
            ("CNAME", None) => Reply::Alias(words.word("the target")?.to_ascii_lowercase()),
            (first, Some(TYPE_SRV)) => Reply::Services(services(first, words)?),
            (first, Some(_)) => {
                let mut all = addresses(first)?;
                while let Some(more) = words.next_if(|_| true) {
                    all.extend(addresses(&more)?);
                }
                Reply::Addresses(all)
            }
            (word, None) => return Err(format!("`{word}` is no answer to a question")),
        };
        Ok(Self { name, kind, reply, ttl, delay, truncated })
    }
}

/// Servers of a service, four words each.
fn services(first: &str, words: &mut Words) -> Result<Vec<(u16, u16, String, String)>, String> {
    let number = |word: &str| word.parse().map_err(|_| format!("`{word}` is no number"));
    let (mut all, mut priority) = (Vec::new(), Some(first.to_owned()));
    while let Some(word) = priority {
        let weight = words.word("the weight")?;
        let port = words.word("the port, or the name of an origin")?;
        let target = words.word("the target")?.to_ascii_lowercase();
        all.push((number(&word)?, number(&weight)?, port, target));
        priority = words.next_if(|_| true);
    }
    Ok(all)
}

/// An address, or all between two: `127.0.0.1..127.0.0.100`.
fn addresses(word: &str) -> Result<Vec<IpAddr>, String> {
    let wrong = |error| format!("`{word}`: {error}");
    let Some((first, last)) = word.split_once("..") else {
        return Ok(vec![word.parse().map_err(wrong)?]);
    };
    match (first.parse().map_err(wrong)?, last.parse().map_err(wrong)?) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Ok((first.to_bits()..=last.to_bits())
            .map(|bits| std::net::Ipv4Addr::from_bits(bits).into())
            .collect()),
        _ => Err(format!("`{word}` is not between two IPv4 addresses")),
    }
}

/// A nameserver: its sockets and its records.
#[derive(Debug)]
pub struct Nameserver {
    /// Its name; `${NAME}` is the address.
    pub name: String,
    udp: UdpSocket,
    tcp: TcpListener,
    records: Mutex<Vec<Record>>,
    asked: Mutex<Vec<(String, u16)>>,
    /// The ports of origins.
    ports: Variables,
}

impl Nameserver {
    /// Listens on `address`.
    ///
    /// # Errors
    ///
    /// When it cannot.
    pub fn new(name: &str, address: &str, records: &[Record], ports: &Variables) -> std::io::Result<Self> {
        let udp = UdpSocket::bind(address)?;
        let tcp = TcpListener::bind(address)?;
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        let records = Mutex::new(records.to_vec());
        Ok(Self { name: name.to_owned(), udp, tcp, records, asked: Mutex::default(), ports: ports.clone() })
    }

    /// Answers from now on by these records for their names, and by no other of those names.
    pub fn replace(&self, new: &[Record]) {
        let mut records = self.records.lock();
        records.retain(|record| new.iter().all(|new| new.name != record.name));
        records.extend_from_slice(new);
    }

    /// How often a name was asked for.
    pub fn asked(&self, name: &str) -> usize {
        self.asked.lock().iter().filter(|(asked, _)| asked == name).count()
    }

    /// All names that were asked for.
    pub fn all_asked(&self) -> Vec<String> {
        self.asked.lock().iter().map(|(name, kind)| format!("{name} {kind}")).collect()
    }

    /// Answers questions until `stopped`.
    pub fn serve<'scope>(
        &'scope self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        stopped: impl Fn() -> bool,
    ) {
        let mut message = [0; 1024];
        while !stopped() {
            if let Ok((length, from)) = self.udp.recv_from(&mut message) {
                let question = message[..length].to_vec();
                scope.spawn(move || self.answer_udp(&question, from));
            } else if let Ok((stream, _)) = self.tcp.accept() {
                scope.spawn(move || drop(self.answer_tcp(stream)));
            } else {
                std::thread::sleep(POLL);
            }
        }
    }

    fn answer_udp(&self, question: &[u8], from: SocketAddr) {
        if let Some(answer) = self.answer(question, true) {
            drop(self.udp.send_to(&answer, from));
        }
    }

    fn answer_tcp(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut question = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut question)?;
        let Some(answer) = self.answer(&question, false) else { return Ok(()) };
        let length = u16::try_from(answer.len()).map_err(std::io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes(), &*answer].concat())
    }

    fn answer(&self, question: &[u8], udp: bool) -> Option<Vec<u8>> {
        let (name, kind, end) = asked_for(question)?;
        let received = Instant::now();
        self.asked.lock().push((name.clone(), kind));
        let records = self.records.lock().clone();
        let of = |name: &str| {
            let own = || records.iter().filter(|record| record.name == name);
            let fits = own().find(|record| record.kind.is_none_or(|of| of == kind)).cloned();
            fits.or_else(|| own().next().map(|other| Record { reply: Reply::NoData, ..other.clone() }))
        };
        let (mut code, mut answers, mut truncated) = (0, Vec::new(), false);
        let mut at = name;
        for _ in 0..ALIASES {
            let Some(record) = of(&at) else {
                code = if answers.is_empty() { 3 } else { 0 };
                break;
            };
            std::thread::sleep(record.delay.saturating_sub(received.elapsed()));
            truncated |= record.truncated && udp;
            match record.reply {
                Reply::Silence => return None,
                Reply::Code(number) => code = number,
                Reply::NoData => {}
                Reply::Addresses(addresses) => {
                    let data = addresses.into_iter().map(|address| match address {
                        IpAddr::V4(address) => address.octets().to_vec(),
                        IpAddr::V6(address) => address.octets().to_vec(),
                    });
                    answers.extend(data.map(|data| (at.clone(), kind, record.ttl, data)));
                }
                Reply::Services(services) => {
                    for (priority, weight, port, target) in services {
                        let named = self.ports.get(&format!("{port}.port")).unwrap_or(&port);
                        let numbers = [priority, weight, named.parse().ok()?];
                        let numbers = numbers.into_iter().flat_map(u16::to_be_bytes);
                        let data = numbers.chain(wire_name(&target)).collect();
                        answers.push((at.clone(), kind, record.ttl, data));
                    }
                }
                Reply::Alias(target) => {
                    answers.push((at, TYPE_CNAME, record.ttl, wire_name(&target)));
                    at = target;
                    continue;
                }
            }
            break;
        }
        let mut message = question[..2].to_vec();
        let counted = if truncated { 0 } else { u16::try_from(answers.len()).ok()? };
        message.extend([0x81 | u8::from(truncated) << 1, 0x80 | code, 0, 1]);
        message.extend(counted.to_be_bytes());
        message.extend([0; 4]);
        message.extend(&question[12..end]);
        for (owner, kind, ttl, data) in answers.into_iter().take(counted.into()) {
            message.extend(wire_name(&owner));
            message.extend([kind, 1].into_iter().flat_map(u16::to_be_bytes));
            message.extend(ttl.to_be_bytes());
            message.extend(u16::try_from(data.len()).ok()?.to_be_bytes());
            message.extend(data);
        }
        Some(message)
    }
}

fn wire_name(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let mut wire: Vec<u8> =
        labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
    wire.push(0);
    wire
}

/// The name and type that a message asks for, and where its question ends.
fn asked_for(message: &[u8]) -> Option<(String, u16, usize)> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*message.get(at)?);
        let label = message.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
    }
    let kind = u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?);
    Some((labels.join("."), kind, at + 4))
}
