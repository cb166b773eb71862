//! The bytes that a client sends for an input of a regression file.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// An input. Missing parts are filled in as the official runner does.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Input {
    method: Option<String>,
    uri: Option<String>,
    version: Option<String>,
    headers: Headers,
    data: Option<String>,
    encoded_request: Option<String>,
    autocomplete_headers: Option<bool>,
    /// Ignored: all requests go to the proxy that was started for them.
    #[serde(rename = "dest_addr")]
    _address: IgnoredAny,
    #[serde(rename = "port")]
    _port: IgnoredAny,
    #[serde(rename = "protocol")]
    _protocol: IgnoredAny,
}

/// Fields, in the order in which they stand.
#[derive(Debug, Default)]
struct Headers(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Headers;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("fields by their names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    headers.push(pair);
                }
                Ok(Headers(headers))
            }
        }
        from.deserialize_map(Pairs)
    }
}

impl Headers {
    /// Returns true if there is a field with this text in its value, in small letters.
    fn has(&self, name: &str, part: &str) -> bool {
        let fits = |(found, value): &(String, String)| {
            found.eq_ignore_ascii_case(name) && value.to_ascii_lowercase().contains(part)
        };
        self.0.iter().any(fits)
    }

    fn add(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }
}

impl Input {
    /// The whole request.
    ///
    /// # Errors
    ///
    /// An encoded one that is not in Base64.
    pub(super) fn request(self) -> Result<Vec<u8>, String> {
        if let Some(encoded) = self.encoded_request {
            let encoded: String = encoded.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
            return STANDARD.decode(encoded).map_err(|error| format!("encoded_request: {error}"));
        }
        let method = self.method.unwrap_or_else(|| "GET".into());
        let uri = self.uri.unwrap_or_else(|| "/".into());
        let version = self.version.unwrap_or_else(|| "HTTP/1.1".into());
        let mut data = self.data.unwrap_or_default().into_bytes();
        let complete = self.autocomplete_headers != Some(false);
        let mut headers = self.headers;
        if complete && !data.is_empty() {
            if !headers.has("content-type", "") {
                headers.add("Content-Type", "application/x-www-form-urlencoded");
            }
            let form = |(name, value): &(String, String)| {
                name.eq_ignore_ascii_case("content-type")
                    && value.eq_ignore_ascii_case("application/x-www-form-urlencoded")
            };
            if headers.0.iter().any(form) && unescape(&data).as_deref() == Some(&data) {
                data = escape_form(&data);
            }
        }
        if headers.has("content-type", "multipart/form-data;") {
            data = String::from_utf8_lossy(&data).replace('\n', "\r\n").into_bytes();
        }
        if complete {
            if !headers.has("connection", "") {
                headers.add("Connection", "close");
            }
            // The official runner looks for these anywhere in the method but for the first and the last.
            let bodied = method.starts_with("POST")
                || method.contains("PUT")
                || method.contains("PATCH")
                || method.ends_with("DELETE");
            if (bodied || !data.is_empty()) && !headers.has("content-length", "") {
                headers.add("Content-Length", data.len().to_string());
            }
        }
        let mut request = format!("{method} {uri} {version}\r\n").into_bytes();
        for (name, value) in headers.0 {
            request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(&data);
        Ok(request)
    }
}

/// A query without its escapes; `None` where one is broken.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'+' => plain.push(b' '),
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                plain.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            other => plain.push(*other),
        }
    }
    Some(plain)
}

/// A form with the names and values of this one, escaped.
fn escape_form(data: &[u8]) -> Vec<u8> {
    let mut form = Vec::new();
    // A separator at the end separates nothing.
    let data = data.strip_suffix(b"&").unwrap_or(data);
    for (number, pair) in data.split(|byte| *byte == b'&').enumerate() {
        if number > 0 {
            form.push(b'&');
        }
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        escape(parts.next().unwrap_or_default(), &mut form);
        if let Some(value) = parts.next() {
            form.push(b'=');
            escape(value, &mut form);
        }
    }
    form
}

fn escape(text: &[u8], into: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b' ' => into.push(b'+'),
            b'-' | b'_' | b'.' | b'~' => into.push(*byte),
            byte if byte.is_ascii_alphanumeric() => into.push(*byte),
            byte => into.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_of(input: &str) -> String {
        let input: Input = serde_saphyr::from_str(input).unwrap();
        String::from_utf8(input.request().unwrap()).unwrap()
    }

    #[test]
    fn what_a_case_leaves_out_is_filled_in() {
        assert_eq!(request_of("uri: /a"), "GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
        assert_eq!(
            request_of("method: POST\nheaders:\n  Host: h\n  Age: 007\ndata: a=b c&d"),
            "POST / HTTP/1.1\r\nHost: h\r\nAge: 007\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Connection: close\r\nContent-Length: 7\r\n\r\na=b+c&d"
        );
        // Escaped characters stay.
        assert!(request_of("data: a=%41 b").ends_with("\r\n\r\na=%41 b"));
        assert_eq!(
            request_of("autocomplete_headers: false\nversion: ''\ndata: a=b c"),
            "GET / \r\n\r\na=b c"
        );
        assert_eq!(request_of("encoded_request: R0VU\n"), "GET");
        assert_eq!(
            request_of("port: 80\nheaders: {}\nautocomplete_headers: false"),
            "GET / HTTP/1.1\r\n\r\n"
        );
    }

    #[test]
    fn keys_that_are_not_understood_are_told() {
        let wrong = serde_saphyr::from_str::<Input>("urI: /a").unwrap_err().to_string();
        assert!(wrong.contains("urI"), "{wrong}");
    }
}
