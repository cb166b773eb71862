use alloc::vec::Vec;

use foregate_module::testing::{Sample, node, settings};
use foregate_module::{Chain, Fields, FromNode};

use super::*;
use crate::coding::{Limits, decoder};

fn standard() -> Compression {
    settings(&[node("compress")]).unwrap()
}

fn json(accept: &str) -> Sample {
    Sample::get("/")
        .field("Accept-Encoding", accept)
        .response(200)
        .response_field("Content-Type", "application/json; charset=utf-8")
}

/// The coding that a response gets, and its `vary`.
fn compressed<'s>(sample: &'s mut Sample, settings: &Compression) -> (Option<&'s str>, Option<&'s str>) {
    sample.run(&Compress, settings);
    let text = |name| sample.response.get(name).map(|value| core::str::from_utf8(value).unwrap());
    let coding = text("content-encoding").filter(|_| !sample.state.response_filters.is_empty());
    assert!(sample.state.response_filters.len() < 2);
    (coding, text("vary"))
}

const VARIES: Option<&str> = Some("Accept-Encoding");

#[test]
fn a_response_is_compressed_as_the_client_likes_it() {
    let settings = standard();
    assert_eq!(compressed(&mut json("gzip, br, zstd"), &settings), (Some("zstd"), VARIES));
    assert_eq!(compressed(&mut json("gzip, deflate, br"), &settings), (Some("br"), VARIES));
    assert_eq!(compressed(&mut json("gzip"), &settings), (Some("gzip"), VARIES));
    // Other clients would get another coding, so caches need `Vary`.
    assert_eq!(compressed(&mut json("deflate"), &settings), (None, VARIES));
    assert_eq!(compressed(&mut json(""), &settings), (None, VARIES));
}

#[test]
fn a_response_passes_as_it_is_while_memory_is_short() {
    let mut sample = json("gzip, br, zstd");
    sample.memory_is_short = true;
    assert_eq!(compressed(&mut sample, &standard()), (None, VARIES));
}

#[test]
fn the_body_is_what_it_was() {
    let mut sample = json("gzip");
    sample.run(&Compress, &standard());
    let filters = core::mem::take(&mut sample.state.response_filters);
    assert!(filters.iter().all(|filter| !filter.keeps_length), "length, ranges and strong validators go");
    let (mut chain, mut encoded, mut plain) = (Chain::new(filters), Vec::new(), Vec::new());
    let body = b"{\"a\":1}".repeat(1000);
    chain.write(&body[..4096], &mut encoded).unwrap();
    chain.write(&body[4096..], &mut encoded).unwrap();
    chain.end(&mut encoded).unwrap();
    assert!(encoded.len() < 100, "{}", encoded.len());
    let mut reader = Chain::new(Vec::from([decoder("decode", ContentCoding::Gzip, Limits::default())]));
    reader.write(&encoded, &mut plain).unwrap();
    reader.end(&mut plain).unwrap();
    assert_eq!(plain, body);
}

#[test]
fn other_types_and_short_bodies_pass_without_a_word() {
    let settings = standard();
    for (name, value) in [
        ("Content-Length", "255"),
        ("Content-Length", "0"),
        ("Content-Encoding", "identity"),
        ("Content-Encoding", "br"),
        ("Cache-Control", "public, No-Transform"),
        ("Content-Range", "bytes 0-1/5"),
    ] {
        let mut sample = json("gzip").response_field(name, value);
        let before = sample.response.clone();
        sample.run(&Compress, &settings);
        assert!(sample.state.response_filters.is_empty(), "{name}: {value}");
        assert_eq!(sample.response, before, "{name}: {value}");
    }
    let mut image = Sample::get("/")
        .field("Accept-Encoding", "gzip")
        .response(200)
        .response_field("Content-Type", "image/png");
    assert_eq!(compressed(&mut image, &settings), (None, None));
    let mut untyped = Sample::get("/").field("Accept-Encoding", "gzip").response(200);
    assert_eq!(compressed(&mut untyped, &settings), (None, None));
    let mut long_enough = json("gzip").response_field("Content-Length", "256");
    assert_eq!(compressed(&mut long_enough, &settings), (Some("gzip"), VARIES));
}

#[test]
fn responses_without_a_whole_body_pass() {
    for (status, expected) in [
        (200, true),
        (201, true),
        (404, true),
        (500, true),
        (204, false),
        (205, false),
        (206, false),
        (101, false),
        (600, false),
    ] {
        let mut sample = json("gzip").response(status);
        assert_eq!(compressed(&mut sample, &standard()).0.is_some(), expected, "{status}");
    }
}

#[test]
fn a_head_request_gets_the_same_head() {
    let mut sample = json("gzip").method("HEAD").response_field("Content-Length", "5000");
    assert_eq!(compressed(&mut sample, &standard()), (Some("gzip"), VARIES));
}

#[test]
fn vary_is_said_once() {
    for value in ["accept-encoding", "Origin, Accept-Encoding", "*"] {
        let mut sample = json("gzip").response_field("Vary", value);
        assert_eq!(compressed(&mut sample, &standard()), (Some("gzip"), Some(value)));
        assert_eq!(sample.response.iter_count("vary"), 1);
    }
    let mut sample = json("gzip").response_field("Vary", "Origin");
    compressed(&mut sample, &standard());
    assert_eq!(sample.response.iter_count("vary"), 2);
}

trait Count {
    fn iter_count(&self, name: &str) -> usize;
}

impl Count for foregate_module::testing::List {
    fn iter_count(&self, name: &str) -> usize {
        let fields: &dyn Fields = self;
        fields.all(name).count()
    }
}

#[test]
fn a_client_that_asks_by_the_weak_validator_is_told_that_one() {
    let ask = |tag: &str| {
        let mut sample =
            Sample::get("/").field("If-None-Match", tag).response(304).response_field("ETag", "\"v1\"");
        sample.run(&Compress, &standard());
        assert!(sample.state.response_filters.is_empty());
        core::str::from_utf8(sample.response.get("etag").unwrap()).unwrap().to_owned()
    };
    use alloc::borrow::ToOwned;
    let varies = |sample: Sample| {
        let mut sample = sample.response(304);
        sample.run(&Compress, &standard());
        sample.response.get("vary").is_some()
    };
    assert!(varies(Sample::get("/")), "a cache has to know it of the stored response");
    assert!(varies(Sample::get("/").response_field("content-type", "text/html")));
    for (name, value) in
        [("content-type", "image/png"), ("content-encoding", "gzip"), ("cache-control", "no-transform")]
    {
        assert!(!varies(Sample::get("/").response_field(name, value)), "{name}");
    }
    assert_eq!(ask("W/\"v0\", W/\"v1\""), "W/\"v1\"");
    assert_eq!(ask("\"v1\""), "\"v1\"");
    assert_eq!(ask("*"), "\"v1\"");
}

#[test]
fn settings_replace_the_defaults() {
    let node = node("compress")
        .with_child(node("codings").arg_literal("deflate").arg_literal("gzip"))
        .with_child(node("types").arg_literal("image/*"))
        .with_child(node("minimum").arg_literal(10))
        .with_child(node("level").arg_literal("gzip").arg_literal(9));
    let settings: Compression = settings(&[node]).unwrap();
    assert_eq!(settings.codings, [(ContentCoding::Deflate, 5), (ContentCoding::Gzip, 9)]);
    let mut image = Sample::get("/")
        .field("Accept-Encoding", "zstd, gzip, deflate")
        .response(200)
        .response_field("Content-Type", "image/bmp")
        .response_field("Content-Length", "10");
    assert_eq!(compressed(&mut image, &settings), (Some("deflate"), VARIES));
    assert_eq!(compressed(&mut json("deflate"), &settings), (None, None));
}

fn refused(node: Node) -> alloc::string::String {
    Compression::from_nodes(&[node], &mut foregate_module::testing::Literals::default()).unwrap_err().message
}

#[test]
fn wrong_settings_are_refused_with_a_reason() {
    let with = |child: Node| refused(node("compress").with_child(child));
    assert_eq!(
        with(node("codings").arg_literal("lzw")),
        "expected \"zstd\" or \"br\" or \"gzip\" or \"deflate\""
    );
    assert_eq!(with(node("codings").arg_literal("br").arg_literal("br")), "this coding is named twice");
    assert_eq!(with(node("types").arg_literal("text")), "this is not a media type");
    assert_eq!(with(node("level").arg_literal("br").arg_literal(11)), "expected a whole number from 0 to 6");
    assert_eq!(
        with(node("level").arg_literal("deflate").arg_literal(1)),
        "this coding is not among `codings`"
    );
    assert_eq!(with(node("minimum").arg_literal("1x")), "this is not a size");
    assert_eq!(
        refused(node("compress").arg_literal(false).with_child(node("codings").arg_literal("br"))),
        "`#false` stands alone: it turns off what stands further out"
    );
    assert_eq!(refused(node("compress").arg_literal("on")), "expected #true or #false");
}
