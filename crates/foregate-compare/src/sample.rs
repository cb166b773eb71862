//! Reads samples of a running proxy as requests that can be sent again. A request can only be sent again if its
//! sample is complete: without hashes in the query, and without a body.

use serde::Deserialize;

use crate::case::Case;

/// Fields that a client generates for each request, or that belong to one connection.
const LEFT_OUT: [&str; 9] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "upgrade",
    "te",
    "proxy-connection",
    "expect",
];
/// The start of the hash of a value.
const HASH: &str = "hash:";

#[derive(Debug, Deserialize)]
struct Sample {
    request: SampledRequest,
}

#[derive(Debug, Deserialize)]
struct SampledRequest {
    method: String,
    url: String,
    fields: Vec<String>,
    #[serde(default)]
    length: u64,
}

/// The request of a sample, or the reason why it cannot be sent again.
#[derive(Debug)]
pub enum Replayed {
    /// The request. The named fields are left out, because their values are hashes.
    Sent(Box<Case>, Vec<String>),
    /// The method and the URL of the request, and the reason why it cannot be sent again.
    Unknown(String, &'static str),
}

/// Reads a sample.
///
/// # Errors
///
/// The text is not a sample.
pub fn read(text: &str) -> Result<Replayed, String> {
    let sample: Sample =
        serde_json::from_str(text).map_err(|error| format!("no sample of a comparison: {error}"))?;
    let SampledRequest { method, url, fields, length } = sample.request;
    let unknown = |why| Ok(Replayed::Unknown(format!("{method} {url}"), why));
    if url.split_once('?').is_some_and(|(_, query)| query.contains(HASH)) {
        return unknown("values of its query are hashes; `compare-samples raw=#true` keeps them");
    }
    if length > 0 {
        return unknown("samples hold no bodies of requests");
    }
    let (mut kept, mut hashed) = (Vec::new(), Vec::new());
    for field in fields {
        let Some((name, value)) = field.split_once(": ") else { continue };
        match name.to_ascii_lowercase() {
            lower if LEFT_OUT.contains(&&*lower) || lower.starts_with("x-foregate-") => {}
            lower if value.contains(HASH) => hashed.push(lower),
            _ => kept.push((name.to_owned(), value.to_owned())),
        }
    }
    let case = Case { fields: kept, ..Case::line(&method, &url) };
    Ok(Replayed::Sent(Box::new(case), hashed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(url: &str, fields: &str, length: u64) -> Replayed {
        let request = format!(r#"{{"method":"GET","url":"{url}","fields":[{fields}],"length":{length}}}"#);
        read(&format!(r#"{{"time":1,"request":{request}}}"#)).unwrap()
    }

    #[test]
    fn hashes_are_never_sent() {
        let fields = r#""Host: a", "Accept: x: y", "Cookie: hash:abc", "Referer: http://a/?q=hash:x""#;
        let Replayed::Sent(case, hashed) = sample("http://a/b?c", fields, 0) else { panic!() };
        assert_eq!(
            (&*case.url, &*case.fields),
            ("http://a/b?c", &[("Accept".to_owned(), "x: y".to_owned())][..])
        );
        assert_eq!(hashed, ["cookie", "referer"]);
        assert!(matches!(sample("http://a/?q=hash:x", "", 0), Replayed::Unknown(..)));
        assert!(matches!(sample("http://a/", "", 3), Replayed::Unknown(..)));
        assert!(read("{}").is_err() && read("no").is_err());
    }
}
