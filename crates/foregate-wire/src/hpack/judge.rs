//! The rules for header blocks of HTTP/2 (RFC 9113, sections 8.2 and 8.3).

use crate::chars::{is_blank, is_token, of, table, value_end};
use crate::headers::MAX_NAME;
use crate::target::check_bytes;

/// The characters of names: `token` without upper case.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, for which a place out of bounds is an error"
)]
static NAME: [bool; 256] = {
    let mut name = table(b"!#$%&'*+-.^_`|~", true);
    let mut upper = b'A';
    while upper <= b'Z' {
        name[upper as usize] = false;
        upper += 1;
    }
    name
};

/// The reason for which a message is malformed (RFC 9113, section 8.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MalformedReason {
    /// A name with an upper-case letter.
    #[error("a field name is in upper case")]
    UpperCase,
    /// A name that is empty, too long, or no token.
    #[error("a field name is empty or holds a byte that is not allowed in a token")]
    BadName,
    /// A control byte in a value.
    #[error("a field value holds a control byte")]
    BadValue,
    /// A value with a blank at either end.
    #[error("a field value begins or ends with a blank")]
    Blank,
    /// Connection, Transfer-Encoding and their like.
    #[error("a field belongs to connections of HTTP/1")]
    ConnectionField,
    /// TE with anything but `trailers`.
    #[error("TE holds more than `trailers`")]
    Te,
    /// A pseudo-field that is not known.
    #[error("a pseudo-field is unknown")]
    PseudoUnknown,
    /// A pseudo-field that occurs twice.
    #[error("a pseudo-field stands there twice")]
    PseudoTwice,
    /// A pseudo-field after a field that is none.
    #[error("a pseudo-field stands behind a field")]
    PseudoLate,
    /// A pseudo-field of responses in a request, one of requests in a response, or any in trailers.
    #[error("a pseudo-field is where it does not belong")]
    PseudoMisplaced,
    /// A required pseudo-field is missing.
    #[error("a pseudo-field is missing")]
    PseudoMissing,
    /// A pseudo-field's value is not UTF-8.
    #[error("a pseudo-field is not in UTF-8")]
    PseudoBytes,
    /// The method is no token.
    #[error("the method is not a token")]
    Method,
    /// The path is empty.
    #[error("the path is empty")]
    PathEmpty,
    /// A fragment in the path.
    #[error("the path holds a `#`")]
    Fragment,
    /// A control byte or a space in the path.
    #[error("the path holds a control byte or a space")]
    PathByte,
    /// The status is not made of three digits.
    #[error("the status is not made of three digits")]
    Status,
}

/// The place of a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The head of a request.
    Request,
    /// The head of a response, interim ones included.
    Response,
    /// The trailers of a request or a response.
    Trailers,
}

/// The kind of a field's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Field,
    /// A cookie, which may be split into several fields (RFC 9113, section 8.2.3).
    Cookie,
    Te,
    Method,
    /// The method CONNECT.
    Connect,
    Scheme,
    Authority,
    Path,
    Protocol,
    Status,
    /// The status of an interim response.
    Interim,
    /// A field with a name that counts as malformed, so that every field with this name is refused.
    Malformed,
}

impl Kind {
    /// Classifies a name.
    pub(super) fn of(name: &[u8]) -> Result<Self, MalformedReason> {
        if let [b':', pseudo @ ..] = name {
            return match pseudo {
                b"method" => Ok(Self::Method),
                b"scheme" => Ok(Self::Scheme),
                b"authority" => Ok(Self::Authority),
                b"path" => Ok(Self::Path),
                b"protocol" => Ok(Self::Protocol),
                b"status" => Ok(Self::Status),
                _ => Err(MalformedReason::PseudoUnknown),
            };
        }
        if !name.iter().all(|byte| of(&NAME, *byte)) || name.is_empty() || name.len() > MAX_NAME {
            let upper = is_token(name) && name.len() <= MAX_NAME;
            return Err(if upper { MalformedReason::UpperCase } else { MalformedReason::BadName });
        }
        match name {
            b"te" => Ok(Self::Te),
            b"cookie" => Ok(Self::Cookie),
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                Err(MalformedReason::ConnectionField)
            }
            _ => Ok(Self::Field),
        }
    }

    /// Classifies a field with a name of this kind, and checks its value. If the value is invalid, and perhaps no valid
    /// value has the same length, the kind becomes [`Kind::Malformed`].
    pub(super) fn with(self, value: &[u8]) -> (Self, Option<MalformedReason>) {
        match self {
            Self::Field | Self::Cookie => (self, fault_of_value(value)),
            Self::Te => (self, (value != b"trailers").then_some(MalformedReason::Te)),
            Self::Method | Self::Connect => {
                let kind = match value {
                    b"" => Self::Malformed,
                    b"CONNECT" => Self::Connect,
                    _ => Self::Method,
                };
                (kind, (!is_token(value)).then_some(MalformedReason::Method))
            }
            Self::Path => (self, fault_of_path(value)),
            Self::Scheme | Self::Authority | Self::Protocol => {
                (self, fault_of_value(value).or_else(|| fault_of_text(value)))
            }
            Self::Status | Self::Interim => match value {
                [b'1', b'0'..=b'9', b'0'..=b'9'] => (Self::Interim, None),
                [b'2'..=b'9', b'0'..=b'9', b'0'..=b'9'] => (Self::Status, None),
                _ => (Self::Malformed, Some(MalformedReason::Status)),
            },
            Self::Malformed => (self, None),
        }
    }

    /// Returns true for a known pseudo-field.
    #[inline]
    pub(super) fn is_pseudo(self) -> bool {
        self.bit() != 0
    }

    /// The bit of a pseudo-field; 0 for others.
    #[inline]
    fn bit(self) -> u8 {
        match self {
            Self::Field | Self::Cookie | Self::Te | Self::Malformed => 0,
            Self::Method | Self::Connect => METHOD,
            Self::Scheme => SCHEME,
            Self::Authority => AUTHORITY,
            Self::Path => PATH,
            Self::Protocol => PROTOCOL,
            Self::Status | Self::Interim => STATUS,
        }
    }
}

const METHOD: u8 = 1;
const SCHEME: u8 = 2;
const AUTHORITY: u8 = 4;
const PATH: u8 = 8;
const PROTOCOL: u8 = 16;
const STATUS: u8 = 32;

fn fault_of_value(value: &[u8]) -> Option<MalformedReason> {
    if value_end(value, 0) != value.len() {
        return Some(MalformedReason::BadValue);
    }
    let blank = |byte: Option<&u8>| byte.is_some_and(|byte| is_blank(*byte));
    (blank(value.first()) || blank(value.last())).then_some(MalformedReason::Blank)
}

/// A request's target is judged as in HTTP/1.
fn fault_of_path(value: &[u8]) -> Option<MalformedReason> {
    if value.is_empty() {
        return Some(MalformedReason::PathEmpty);
    }
    match check_bytes(value) {
        Ok(()) => fault_of_text(value),
        Err(crate::TargetError::Fragment) => Some(MalformedReason::Fragment),
        Err(_) => Some(MalformedReason::PathByte),
    }
}

fn fault_of_text(value: &[u8]) -> Option<MalformedReason> {
    core::str::from_utf8(value).is_err().then_some(MalformedReason::PseudoBytes)
}

/// Judges the fields of one block.
#[derive(Debug)]
pub(super) struct Judge {
    section: Section,
    pseudo: u8,
    fields: bool,
    connect: bool,
    interim: bool,
    fault: Option<MalformedReason>,
}

impl Judge {
    #[inline]
    pub(super) fn new(section: Section) -> Self {
        Self { section, pseudo: 0, fields: false, connect: false, interim: false, fault: None }
    }

    /// Takes a field that is well-formed, and no pseudo-field.
    #[inline]
    pub(super) fn plain(&mut self) {
        self.fields = true;
    }

    /// Takes the next field. If the field is both malformed and misplaced, the former fault is reported.
    #[inline]
    pub(super) fn field(&mut self, kind: Kind, fault: Option<MalformedReason>) {
        let bit = kind.bit();
        if fault.is_some() {
            self.blame(fault);
        } else if bit != 0 {
            self.pseudo_field(kind, bit);
        }
        self.fields |= bit == 0;
        self.pseudo |= bit;
    }

    #[inline]
    fn pseudo_field(&mut self, kind: Kind, bit: u8) {
        self.connect |= kind == Kind::Connect;
        self.interim |= kind == Kind::Interim;
        let allowed = match self.section {
            Section::Request => METHOD | SCHEME | AUTHORITY | PATH | PROTOCOL,
            Section::Response => STATUS,
            Section::Trailers => 0,
        };
        if bit & allowed == 0 {
            self.blame(Some(MalformedReason::PseudoMisplaced));
        } else if self.pseudo & bit != 0 {
            self.blame(Some(MalformedReason::PseudoTwice));
        } else if self.fields {
            self.blame(Some(MalformedReason::PseudoLate));
        }
    }

    fn blame(&mut self, fault: Option<MalformedReason>) {
        self.fault = self.fault.or(fault);
    }

    /// Returns true if the status is that of an interim response.
    #[inline]
    pub(super) fn is_interim(&self) -> bool {
        self.interim
    }

    /// The first error, once all fields have been added.
    #[inline]
    pub(super) fn verdict(self) -> Option<MalformedReason> {
        let has = |bits| self.pseudo & bits == bits;
        let missing = match self.section {
            // CONNECT has neither scheme nor path (RFC 9113, section 8.5), unless it names a protocol (RFC 8441, section 4).
            Section::Request if self.connect && !has(PROTOCOL) => {
                let beyond = self.pseudo & (SCHEME | PATH) != 0;
                return self.fault.or(beyond.then_some(MalformedReason::PseudoMisplaced));
            }
            Section::Request if has(PROTOCOL) && !self.connect && self.fault.is_none() => {
                return Some(MalformedReason::PseudoMisplaced);
            }
            Section::Request => !has(METHOD | SCHEME | PATH),
            Section::Response => !has(STATUS),
            Section::Trailers => false,
        };
        self.fault.or(missing.then_some(MalformedReason::PseudoMissing))
    }
}
