//! Recordings of browsers in the HAR format (version 1.2). They are read entry by entry, and the recorded
//! answers are skipped, so that the memory does not depend on the size of a recording.

use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::case::Case;

/// Fields that belong to the connection of the browser, or that a client generates for each request.
const LEFT_OUT: [&str; 8] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "upgrade",
    "te",
    "proxy-connection",
];

#[derive(Debug, Deserialize)]
struct Entry {
    request: Request,
}

#[derive(Debug, Deserialize)]
struct Request {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Pair>,
    #[serde(rename = "postData")]
    data: Option<Data>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    name: String,
    value: String,
}

#[derive(Debug, Deserialize)]
struct Data {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    params: Vec<Pair>,
}

/// Reads the requests of a recording, and passes each to `take`, which returns false to stop.
///
/// # Errors
///
/// The text is not a recording. The message has line and column.
pub fn read(from: impl Read, mut take: impl FnMut(Case) -> bool) -> Result<(), String> {
    let mut stopped = false;
    let mut found = false;
    let mut deserializer = serde_json::Deserializer::from_reader(from);
    let document = Member {
        name: "log",
        then: Member {
            name: "entries",
            then: Entries { take: &mut take, stopped: &mut stopped, found: &mut found },
        },
    };
    let read = document.deserialize(&mut deserializer);
    match read {
        _ if stopped => Ok(()),
        Err(error) => Err(format!("no recording in the HAR format: {error}")),
        Ok(()) if !found => Err("no recording in the HAR format: `log.entries` is missing".to_owned()),
        Ok(()) => Ok(()),
    }
}

/// One member of an object; the others are skipped.
struct Member<T> {
    name: &'static str,
    then: T,
}

impl<'de, T: DeserializeSeed<'de, Value = ()>> DeserializeSeed<'de> for Member<T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: DeserializeSeed<'de, Value = ()>> Visitor<'de> for Member<T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with `{}`", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut then = Some(self.then);
        while let Some(name) = map.next_key::<String>()? {
            match then.take_if(|_| name == self.name) {
                Some(seed) => map.next_value_seed(seed)?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Entries<'t, F> {
    take: &'t mut F,
    stopped: &'t mut bool,
    found: &'t mut bool,
}

impl<'de, F: FnMut(Case) -> bool> DeserializeSeed<'de> for Entries<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(Case) -> bool> Visitor<'de> for Entries<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        *self.found = true;
        let mut number = 0;
        while let Some(Entry { request }) = list.next_element::<Entry>()? {
            number += 1;
            if !(self.take)(case(request, number)) {
                *self.stopped = true;
                return Err(A::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

fn case(request: Request, number: usize) -> Case {
    let fields = request.headers.into_iter().filter(|pair| {
        let name = pair.name.to_ascii_lowercase();
        !name.starts_with(':') && !LEFT_OUT.contains(&&*name)
    });
    let body = request.data.map(|data| {
        let params =
            || data.params.iter().map(|pair| format!("{}={}", pair.name, pair.value)).collect::<Vec<_>>();
        data.text.clone().unwrap_or_else(|| params().join("&"))
    });
    Case {
        line: number,
        method: request.method,
        url: request.url.split('#').next().unwrap_or_default().to_owned(),
        fields: fields.map(|pair| (pair.name, pair.value)).collect(),
        body: body.unwrap_or_default().into_bytes(),
        // Two braces in a recorded body do not begin a template.
        body_is_text: false,
        status: None,
        asserts: Vec::new(),
        captures: Vec::new(),
    }
}
