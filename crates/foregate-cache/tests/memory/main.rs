//! The RAM tier: which objects stay, how much memory they take, and that purged ones are gone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at what they do not expect")]

mod bodies;
mod hit_ratio;
mod model;
mod purges;
mod variants;

use std::sync::Arc;

use bytes::Bytes;
use foregate_cache::{
    AnsweredRequest, Body, CacheTime, Demands, Floors, Key, KeyParts, KeyText, Memory, MemoryLookup, Moment,
    Object, Policy, Response, Secret, Sequence, StoredHead, Uri, store,
};
use foregate_wire::{HeaderList, Scheme};

const SECRET: [u8; 16] = [9; 16];
const NOW: CacheTime = CacheTime(1_000_000);

fn secret() -> Secret {
    Secret::new(SECRET)
}

fn memory(limit: usize) -> Memory {
    Memory::new(limit, secret(), Arc::new(Floors::default()))
}

fn headers(fields: &[(&str, &str)]) -> HeaderList {
    let mut list = HeaderList::new();
    for (name, value) in fields {
        list.push(name.as_bytes(), value.as_bytes());
    }
    list
}

fn uri<'a>(host: &'a str, path: &'a str) -> Uri<'a> {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    Uri { scheme: Scheme::Http, host, port: None, path: path.as_bytes(), query: query.map(str::as_bytes) }
}

fn text(uri: &Uri<'_>) -> KeyText {
    let mut text = KeyText::new();
    text.write(uri, &KeyParts::default());
    text
}

fn key(uri: &Uri<'_>) -> Key {
    text(uri).key(&secret())
}

/// The head of a response with these fields to a request with those.
fn head(request: &HeaderList, fields: &[(&str, &str)]) -> StoredHead {
    let fields = headers(&[&[("Cache-Control", "max-age=60")], fields].concat());
    let at = Moment { wall: 1_795_867_200, cache: NOW };
    let asked = AnsweredRequest { demands: &Demands::default(), headers: request, path: b"/" };
    let response = Response { status: 200, headers: &fields, sent: at, received: at };
    store(&asked, &response, &Policy::default(), &secret()).unwrap()
}

fn object(uri: &Uri<'_>, head: StoredHead, body: Body, sequence: Sequence) -> Arc<Object> {
    let text = text(uri);
    Arc::new(Object::new(head, body, text.key(&secret()), &text, sequence))
}

fn body(length: usize) -> Body {
    Body::new(vec![Bytes::from(vec![b'x'; length])])
}

fn put(memory: &Memory, uri: &Uri<'_>, fields: &[(&str, &str)], length: usize) -> bool {
    let head = head(&HeaderList::new(), fields);
    memory.insert(object(uri, head, body(length), memory.floors().begin()), NOW)
}

/// The object that a request without fields finds, and whether it is outdated.
fn find(memory: &Memory, uri: &Uri<'_>) -> Option<(Arc<Object>, bool)> {
    find_for(memory, uri, &HeaderList::new())
}

fn find_for(memory: &Memory, uri: &Uri<'_>, request: &HeaderList) -> Option<(Arc<Object>, bool)> {
    match memory.get(key(uri), &text(uri), request) {
        MemoryLookup::Object { object, outdated } => {
            assert_eq!(object.text(), text(uri).as_bytes());
            Some((object, outdated))
        }
        MemoryLookup::Nothing { .. } => None,
    }
}
