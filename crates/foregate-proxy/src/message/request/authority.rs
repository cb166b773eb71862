//! Host and port that a request is for.

use foregate_wire::{Method, parse_authority};

use crate::error::Error;

/// Host and port as the origin gets them: lower case, without the scheme's default port.
#[derive(Debug, Default)]
pub struct CanonicalAuthority {
    text: String,
    host_len: usize,
    /// The last Host with its parsed form: most requests of a connection have the same.
    last: Option<Box<LastHost>>,
}

/// The last host and port as received, and their parsed form. Empty before the first request.
#[derive(Debug, Default)]
struct LastHost {
    raw: Vec<u8>,
    secure: bool,
    authority: String,
    host_len: usize,
}

impl CanonicalAuthority {
    /// Host and port.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host, lower case, without a port or trailing dot.
    #[inline]
    pub fn host(&self) -> &str {
        &self.text[..self.host_len.min(self.text.len())]
    }

    /// Takes the value of a Host field.
    pub(super) fn read(&mut self, raw: &[u8], secure: bool) -> Result<(), Error> {
        let last = self.last.get_or_insert_default();
        if raw != last.raw || secure != last.secure || raw.is_empty() {
            last.raw.clear();
            let port = parse_authority(raw, &mut last.authority).map_err(Error::Host)?.port;
            last.host_len = last.authority.len();
            push_port(&mut last.authority, port, secure, &Method::Get);
            last.raw.extend_from_slice(raw);
            last.secure = secure;
        }
        self.text.clone_from(&last.authority);
        self.host_len = last.host_len;
        Ok(())
    }

    /// The text, to which a parser writes a host; [`end_host`](Self::end_host) follows.
    pub(super) fn text(&mut self) -> &mut String {
        &mut self.text
    }

    /// The text is the host; the port follows it where it is not the scheme's own.
    pub(super) fn end_host(&mut self, port: Option<u16>, secure: bool, method: &Method) {
        self.host_len = self.text.len();
        push_port(&mut self.text, port, secure, method);
    }

    /// Removes the port if it is the scheme's own.
    pub(super) fn drop_port_of(&mut self, secure: bool) {
        let own = if secure { ":443" } else { ":80" };
        if self.text.get(self.host_len..) == Some(own) {
            self.text.truncate(self.host_len);
        }
    }

    /// Becomes the same as another, without its memory of the last one.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.text.clone_from(&other.text);
        self.host_len = other.host_len;
    }

    /// Empties the value, and keeps the last Host for the next request of the connection.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.host_len = 0;
    }

    /// Clears the last Host, and keeps its memory.
    pub(super) fn forget(&mut self) {
        if let Some(last) = &mut self.last {
            last.raw.clear();
            last.authority.clear();
        }
    }
}

/// The scheme's own port.
pub(super) fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

fn push_port(authority: &mut String, port: Option<u16>, secure: bool, method: &Method) {
    // The scheme's default port is left out of the normal form (RFC 9110, section 4.2.3).
    if let Some(port) = port.filter(|port| *port != default_port(secure) || *method == Method::Connect) {
        authority.push(':');
        authority.push_str(itoa::Buffer::new().format(port));
    }
}
