//! The memory that the RAM tier says it takes, beside the memory that the process takes. The only test of its process, so that nothing
//! else allocates meanwhile.

#![allow(clippy::unwrap_used, reason = "tests stop at what they do not expect")]

use std::sync::Arc;

use bytes::Bytes;
use foregate_cache::{
    AnsweredRequest, Body, CacheTime, Demands, Floors, KeyParts, KeyText, Memory, Moment, Object, Policy,
    Response, Secret, Uri, store,
};
use foregate_wire::{HeaderList, Scheme};

/// Bytes of resident memory of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

fn object(number: usize, length: usize, secret: &Secret, floors: &Floors) -> Object {
    let mut headers = HeaderList::new();
    for (name, value) in [
        ("Cache-Control", "max-age=60"),
        ("Content-Type", "text/css"),
        ("ETag", "\"0123456789\""),
        ("Cache-Tag", "a, b, c"),
    ] {
        headers.push(name.as_bytes(), value.as_bytes());
    }
    let at = Moment { wall: 1_795_867_200, cache: CacheTime(5) };
    let request = HeaderList::new();
    let asked = AnsweredRequest { demands: &Demands::default(), headers: &request, path: b"/" };
    let response = Response { status: 200, headers: &headers, sent: at, received: at };
    let head = store(&asked, &response, &Policy::default(), secret).unwrap();
    let path = format!("/{number:08}");
    let uri =
        Uri { scheme: Scheme::Http, host: "www.example.com", port: None, path: path.as_bytes(), query: None };
    let mut text = KeyText::new();
    text.write(&uri, &KeyParts::default());
    let body = Body::new(vec![Bytes::from(vec![b'x'; length])]);
    Object::new(head, body, text.key(secret), &text, floors.begin())
}

#[test]
fn memory_is_counted_honestly() {
    let (secret, floors) = (Secret::new([1; 16]), Arc::new(Floors::default()));
    // Kept, since freed memory would be used again without being counted.
    let mut kept = Vec::new();
    for (objects, length) in [(50_000, 200), (20_000, 2000), (1000, 60_000)] {
        let before = resident();
        let memory = Memory::new(512 << 20, secret, Arc::clone(&floors));
        for number in 0..objects {
            assert!(memory.insert(Arc::new(object(number, length, &secret, &floors)), CacheTime(5)));
        }
        let (counted, taken) = (memory.stat().bytes, resident() - before);
        let percent = counted * 100 / taken;
        println!("{objects} of {length}: counted {counted}, taken {taken}, {percent} %");
        assert!((90..=115).contains(&percent), "{objects} of {length}: counted {counted}, taken {taken}");
        kept.push(memory);
    }
}
