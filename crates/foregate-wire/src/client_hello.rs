//! The server name and the protocols in a TLS ClientHello (RFC 8446, section 4.1.2), for connections that the proxy
//! forwards without decrypting them.

/// The parts of a ClientHello by which its connection is routed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The name that the client asks for, lower case, without a dot at its end.
    pub server_name: Option<String>,
    /// The first protocol in the client's ALPN list.
    pub protocol: Option<Vec<u8>>,
}

/// The error for bytes that are no ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection does not begin with a TLS ClientHello")]
pub struct NoClientHello;

/// The type of records that hold handshake messages.
const HANDSHAKE: u8 = 22;
/// The handshake type of a ClientHello.
const CLIENT_HELLO: u8 = 1;
/// The largest payload of a record.
const RECORD_MOST: usize = 1 << 14;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;

/// Reads the ClientHello at the start of a connection; it may span several records. `None` asks for another call with
/// the same bytes and more behind them. The caller limits the length of the input.
///
/// # Errors
/// The bytes cannot become a ClientHello.
pub fn parse(input: &[u8]) -> Result<Option<ClientHello>, NoClientHello> {
    let mut message = Vec::new();
    let mut rest = input;
    loop {
        let (record, behind) = match rest {
            [kind, ..] if *kind != HANDSHAKE => return Err(NoClientHello),
            [_, major, ..] if *major != 3 => return Err(NoClientHello),
            [_, _, _, high, low, behind @ ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                if length == 0 || length > RECORD_MOST {
                    return Err(NoClientHello);
                }
                behind.split_at(length.min(behind.len()))
            }
            _ => return Ok(None),
        };
        message.extend_from_slice(record);
        if let [kind, ..] = *message
            && kind != CLIENT_HELLO
        {
            return Err(NoClientHello);
        }
        if let [_, a, b, c, body @ ..] = &*message {
            let length = usize::from(*a) << 16 | usize::from(u16::from_be_bytes([*b, *c]));
            if let Some(body) = body.get(..length) {
                return read(body).map(Some).ok_or(NoClientHello);
            }
        }
        if behind.is_empty() {
            return Ok(None);
        }
        rest = behind;
    }
}

fn read(body: &[u8]) -> Option<ClientHello> {
    let mut hello = ClientHello::default();
    // Skip the version and the random number.
    let mut rest = body.get(34..)?;
    take_short(&mut rest, 1)?;
    take_short(&mut rest, 2)?;
    take_short(&mut rest, 1)?;
    if rest.is_empty() {
        return Some(hello);
    }
    let mut extensions = take_short(&mut rest, 2)?;
    while !extensions.is_empty() {
        let kind = u16::from_be_bytes(*extensions.first_chunk()?);
        extensions = extensions.get(2..)?;
        let mut value = take_short(&mut extensions, 2)?;
        match kind {
            SERVER_NAME => {
                let mut names = take_short(&mut value, 2)?;
                let (kind, behind) = names.split_first()?;
                names = behind;
                let name = take_short(&mut names, 2)?;
                if *kind == 0 {
                    let name = core::str::from_utf8(name).ok()?.to_ascii_lowercase();
                    hello.server_name = Some(name.strip_suffix('.').unwrap_or(&name).to_owned());
                }
            }
            ALPN => {
                let mut protocols = take_short(&mut value, 2)?;
                hello.protocol = take_short(&mut protocols, 1).map(<[u8]>::to_vec);
            }
            _ => {}
        }
    }
    Some(hello)
}

/// Removes a vector from the start of `rest` and returns it. Its length comes before it, in `width` bytes.
fn take_short<'b>(rest: &mut &'b [u8], width: usize) -> Option<&'b [u8]> {
    let (length, behind) = rest.split_at_checked(width)?;
    let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    let (vector, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    Some(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(width: usize, bytes: &[u8]) -> Vec<u8> {
        let length = (bytes.len() as u32).to_be_bytes();
        [&length[4 - width..], bytes].concat()
    }

    fn message() -> Vec<u8> {
        let name = vector(2, &[&[0][..], &vector(2, b"Shop.Example.")].concat());
        let protocols = vector(2, &[vector(1, b"h2"), vector(1, b"http/1.1")].concat());
        let extensions =
            [&[0, 23][..], &vector(2, b""), &[0, 0], &vector(2, &name), &[0, 16], &vector(2, &protocols)]
                .concat();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &vector(1, &[1; 32]),
            &vector(2, &[0x13, 1]),
            &vector(1, &[0]),
            &vector(2, &extensions),
        ]
        .concat();
        [&[1][..], &vector(3, &body)].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message.chunks(size).flat_map(|piece| [&[22, 3, 1][..], &vector(2, piece)].concat()).collect()
    }

    #[test]
    fn the_name_and_the_preferred_protocol_are_found_at_any_split() {
        let expected =
            ClientHello { server_name: Some("shop.example".to_owned()), protocol: Some(b"h2".to_vec()) };
        for size in [1, 3, 50, 1000] {
            let bytes = records(&message(), size);
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes[..end]), Ok(None), "{size} {end}");
            }
            assert_eq!(parse(&bytes), Ok(Some(expected.clone())));
            assert_eq!(parse(&[&bytes[..], b"more"].concat()), Ok(Some(expected.clone())));
        }
    }

    #[test]
    fn other_bytes_are_refused_and_never_read_beyond_their_end() {
        for bytes in [&b"GET / HTTP/1.1"[..], &[21, 3, 1], &[22, 2], &[22, 3, 1, 0, 0], &[22, 3, 1, 0, 1, 2]]
        {
            assert_eq!(parse(bytes), Err(NoClientHello), "{bytes:?}");
        }
        let message = message();
        for at in 0..message.len() {
            for value in [0, 1, 127, 255] {
                let mut changed = message.clone();
                changed[at] = value;
                let _ = parse(&records(&changed, 40));
            }
        }
    }
}
