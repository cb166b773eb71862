//! Operators: comparisons of values, and their arguments.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::Template;

/// A comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `@unconditionalMatch`: matches every value. Also the operator of a `SecAction`.
    Unconditional,
    /// `@noMatch`: matches no value.
    Never,
    /// `@rx`: values in which the pattern matches.
    Rx(Regex),
    /// `@rxGlobal`: like `@rx`, but the captures are those of all matches of the pattern.
    RxGlobal(Regex),
    /// `@pm`, `@pmFromFile`: values that contain one of the phrases. The case of ASCII letters is ignored.
    Pm(Phrases),
    /// `@contains`: values that contain the argument.
    Contains(Template),
    /// `@containsWord`: values that contain the argument, with no letter directly before or after it.
    ContainsWord(Template),
    /// `@beginsWith`: values that begin with the argument.
    BeginsWith(Template),
    /// `@endsWith`: values that end with the argument.
    EndsWith(Template),
    /// `@streq`: values that equal the argument, including case.
    StrEq(Template),
    /// `@strmatch`: the same as `@contains`.
    StrMatch(Template),
    /// `@within`: values that occur in the argument.
    Within(Template),
    /// `@eq`, `@ge`, `@gt`, `@le`, `@lt`: values for which the comparison with the argument holds. Text that is
    /// not a number counts as 0.
    Compare(Comparison, Number),
    /// `@ipMatch`, `@ipMatchFromFile`: addresses within one of these networks.
    IpMatch(Arc<[Network]>),
    /// `@detectSQLi`: SQL injection.
    DetectSqli,
    /// `@detectXSS`: cross-site scripting.
    DetectXss,
    /// `@validateByteRange`: values with a byte that is not in this set.
    ValidateByteRange(ByteSet),
    /// `@validateUrlEncoding`: values with broken percent-encoding.
    ValidateUrlEncoding,
    /// `@validateUtf8Encoding`: values with broken UTF-8.
    ValidateUtf8Encoding,
    /// `@verifyCC`: the match of the pattern is the number of a credit card.
    VerifyCreditCard(Regex),
    /// `@verifyCPF`: the match of the pattern is a Brazilian taxpayer's number.
    VerifyCpf(Regex),
    /// `@verifySSN`: the match of the pattern is a social security number of the United States.
    VerifySsn(Regex),
    /// `@verifySVNR`: the match of the pattern is an Austrian social security number.
    VerifySvnr(Regex),
}

impl Operator {
    /// The name in SecLang, without `@`. A variant that reads its argument from a file has the plain name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unconditional => "unconditionalMatch",
            Self::Never => "noMatch",
            Self::Rx(_) => "rx",
            Self::RxGlobal(_) => "rxGlobal",
            Self::Pm(_) => "pm",
            Self::Contains(_) => "contains",
            Self::ContainsWord(_) => "containsWord",
            Self::BeginsWith(_) => "beginsWith",
            Self::EndsWith(_) => "endsWith",
            Self::StrEq(_) => "streq",
            Self::StrMatch(_) => "strmatch",
            Self::Within(_) => "within",
            Self::Compare(comparison, _) => comparison.name(),
            Self::IpMatch(_) => "ipMatch",
            Self::DetectSqli => "detectSQLi",
            Self::DetectXss => "detectXSS",
            Self::ValidateByteRange(_) => "validateByteRange",
            Self::ValidateUrlEncoding => "validateUrlEncoding",
            Self::ValidateUtf8Encoding => "validateUtf8Encoding",
            Self::VerifyCreditCard(_) => "verifyCC",
            Self::VerifyCpf(_) => "verifyCPF",
            Self::VerifySsn(_) => "verifySSN",
            Self::VerifySvnr(_) => "verifySVNR",
        }
    }

    /// The text of its argument, which may have macros.
    pub fn template(&self) -> Option<&Template> {
        match self {
            Self::Contains(text)
            | Self::ContainsWord(text)
            | Self::BeginsWith(text)
            | Self::EndsWith(text)
            | Self::StrEq(text)
            | Self::StrMatch(text)
            | Self::Within(text)
            | Self::Compare(_, Number::Computed(text)) => Some(text),
            _ => None,
        }
    }

    /// The pattern of its argument.
    pub fn regex(&self) -> Option<&Regex> {
        match self {
            Self::Rx(regex)
            | Self::RxGlobal(regex)
            | Self::VerifyCreditCard(regex)
            | Self::VerifyCpf(regex)
            | Self::VerifySsn(regex)
            | Self::VerifySvnr(regex) => Some(regex),
            _ => None,
        }
    }
}

/// A comparison of numbers: the value is on the left, the argument on the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `@eq`
    Equal,
    /// `@ge`
    AtLeast,
    /// `@gt`
    Above,
    /// `@le`
    AtMost,
    /// `@lt`
    Below,
}

impl Comparison {
    /// Its name in SecLang, without `@`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Equal => "eq",
            Self::AtLeast => "ge",
            Self::Above => "gt",
            Self::AtMost => "le",
            Self::Below => "lt",
        }
    }

    /// Returns true if the comparison of `value` with `argument` holds.
    pub fn holds(self, value: i64, argument: i64) -> bool {
        match self {
            Self::Equal => value == argument,
            Self::AtLeast => value >= argument,
            Self::Above => value > argument,
            Self::AtMost => value <= argument,
            Self::Below => value < argument,
        }
    }
}

/// The argument of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Number {
    /// A constant.
    Fixed(i64),
    /// Computed from the transaction; text that is no number counts as 0.
    Computed(Template),
}

/// A regular expression over bytes, as written. Its syntax has been checked. Compiling it may still fail, if
/// it is too large.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Regex {
    text: Arc<str>,
}

impl Regex {
    /// A pattern. The caller has checked its syntax.
    pub fn new(text: &str) -> Self {
        Self { text: text.into() }
    }

    /// The pattern.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Phrases to search for, none of them empty, in the given order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phrases {
    phrases: Arc<[Box<[u8]>]>,
}

impl Phrases {
    /// A set of phrases; empty ones are left out.
    pub fn new(phrases: impl IntoIterator<Item = Box<[u8]>>) -> Self {
        Self { phrases: phrases.into_iter().filter(|phrase| !phrase.is_empty()).collect() }
    }

    /// The phrases.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.phrases.iter().map(|phrase| &**phrase)
    }
}

/// A set of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct ByteSet([u64; 4]);

impl ByteSet {
    /// This set with one more byte.
    #[must_use]
    pub fn with(mut self, byte: u8) -> Self {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
        self
    }

    /// Returns true if this byte is in the set.
    pub fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
    }
}

impl fmt::Debug for ByteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries((0..=u8::MAX).filter(|byte| self.contains(*byte))).finish()
    }
}

/// An address, or the range of all addresses with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// The reason why a text is not a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// The text before the slash is not an address.
    Address,
    /// The text after the slash is not a number of bits, or the address has fewer bits.
    Prefix,
}

impl Network {
    /// Parses an address or `ADDRESS/BITS`. Only the first `BITS` bits of the address count.
    pub fn parse(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Address)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match bits {
            None => most,
            Some(bits) if !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().ok().filter(|bits| *bits <= most).ok_or(NetworkError::Prefix)?
            }
            Some(_) => return Err(NetworkError::Prefix),
        };
        Ok(Self { address, prefix })
    }

    /// Returns true if the address is in this network. An IPv4 address that is written as IPv6
    /// (`::ffff:192.0.2.1`) counts as an IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let bits = self.prefix.saturating_sub(if self.address.is_ipv4() { 0 } else { 96 });
                (network.to_bits() ^ address.to_bits()).checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                (network.to_bits() ^ address.to_bits()).checked_shr(128 - u32::from(self.prefix)).unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }

    /// The address as written.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The number of leading bits that count.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }
}
