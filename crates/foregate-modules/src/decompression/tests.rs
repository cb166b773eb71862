use foregate_module::testing::{Sample, filtered, node, settings};
use foregate_module::{Action, Fields, Verdict};

use super::*;

const GZIP: &[u8] =
    b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\xcb\x48\xcd\xc9\xc9\xd7\x51\xc8\x40\xa2\0\x9f\xa1\xca\x09\x13\0\0\0";

fn with(children: &[Node]) -> Result<Decompression, Problem> {
    let node = children.iter().cloned().fold(node("decompress"), Node::with_child);
    settings(&[node])
}

/// `content-encoding` of the response, the output of its body, and `vary`.
fn respond(settings: &Decompression, sample: Sample) -> (Option<alloc::vec::Vec<u8>>, bool, bool) {
    let mut sample = sample;
    sample.run(&DecompressResponse, settings);
    let filters = &sample.state.response_filters;
    assert!(filters.iter().all(|filter| !filter.keeps_length));
    let coding = sample.response.get("content-encoding").map(<[u8]>::to_vec);
    (coding, filters.len() == 1, sample.response.get("vary").is_some())
}

fn encoded(accept: Option<&str>) -> Sample {
    let sample = Sample::get("/").response(200).response_field("Content-Encoding", "gzip");
    match accept {
        Some(accept) => sample.field("Accept-Encoding", accept),
        None => sample,
    }
}

#[test]
fn responses_are_decoded_for_clients_that_cannot() {
    let settings = with(&[]).unwrap();
    let (kept, decoded) = ((Some(b"gzip".to_vec()), false, true), (None, true, true));
    assert_eq!(respond(&settings, encoded(Some("br, gzip"))), kept);
    assert_eq!(respond(&settings, encoded(Some("br"))), decoded);
    assert_eq!(respond(&settings, encoded(Some("gzip;q=0"))), decoded);
    assert_eq!(respond(&settings, encoded(None)), decoded);
}

#[test]
fn responses_are_decoded_always_or_never() {
    let always = with(&[node("responses").arg_literal("always")]).unwrap();
    assert_eq!(respond(&always, encoded(Some("gzip"))), (None, true, false));
    let never = with(&[node("responses").arg_literal("never"), node("requests")]).unwrap();
    assert_eq!(respond(&never, encoded(None)), (Some(b"gzip".to_vec()), false, false));
}

#[test]
fn what_cannot_be_decoded_passes() {
    let always = with(&[node("responses").arg_literal("always")]).unwrap();
    let plain = |sample: Sample| respond(&always, sample) == (Some(b"gzip".to_vec()), false, false);
    assert!(plain(encoded(None).response(206)));
    assert!(plain(encoded(None).response_field("Cache-Control", "no-transform")));
    assert!(plain(encoded(None).response_field("Content-Encoding", "br")));
    let unknown = Sample::get("/").response(200).response_field("Content-Encoding", "dcb");
    assert_eq!(respond(&always, unknown), (Some(b"dcb".to_vec()), false, false));
}

#[test]
fn requests_are_decoded_where_the_origin_cannot() {
    let settings = with(&[node("requests")]).unwrap();
    let mut sample = Sample::get("/").method("POST").field("Content-Encoding", "gzip");
    assert_eq!(sample.run(&DecompressRequest, &settings), Verdict::Continue);
    assert_eq!(sample.request.get("content-encoding"), None);
    let filter = sample.state.request_filters.pop().unwrap();
    assert_eq!(filter.name, "decompress-request");
    assert_eq!(filtered(Boxed(filter.filter), &[GZIP]).as_deref(), Some(&b"hello, hello, hello"[..]));
}

/// The filter alone, without its budget.
struct Boxed(alloc::boxed::Box<dyn foregate_module::BodyFilter>);

impl foregate_module::BodyFilter for Boxed {
    fn write(
        &mut self,
        piece: &[u8],
        out: &mut dyn foregate_module::Sink,
    ) -> Result<(), foregate_module::Bail> {
        self.0.write(piece, out)
    }

    fn end(&mut self, out: &mut dyn foregate_module::Sink) -> Result<(), foregate_module::Bail> {
        self.0.end(out)
    }

    fn bail(&mut self, out: &mut dyn foregate_module::Sink) -> Result<(), foregate_module::Bail> {
        self.0.bail(out)
    }

    fn held(&self) -> usize {
        0
    }
}

#[test]
fn a_request_whose_coding_is_not_known_is_refused() {
    let settings = with(&[node("requests")]).unwrap();
    for samples in [&["dcb"][..], &["gzip, gzip"], &["gzip", "br"], &["identity", "br"]] {
        let mut sample = Sample::get("/").method("POST");
        for value in samples {
            sample = sample.field("Content-Encoding", value);
        }
        match sample.run(&DecompressRequest, &settings) {
            Verdict::Stop(Action::Respond(response)) => {
                assert_eq!(response.status, 415);
                assert!(response.fields.iter().any(|field| field.name() == b"Accept-Encoding"));
            }
            other => panic!("{samples:?}: {other:?}"),
        }
    }
}

#[test]
fn requests_pass_where_nobody_asked_for_it() {
    for (settings, coding) in [
        (with(&[]).unwrap(), "gzip"),
        (with(&[node("requests")]).unwrap(), "Identity"),
        (with(&[node("requests")]).unwrap(), ""),
    ] {
        let mut sample = Sample::get("/").method("POST").field("Content-Encoding", coding);
        assert_eq!(sample.run(&DecompressRequest, &settings), Verdict::Continue);
        assert!(sample.state.request_filters.is_empty());
        assert!(sample.request.get("content-encoding").is_some());
    }
    let mut none = Sample::get("/");
    assert_eq!(none.run(&DecompressRequest, &with(&[node("requests")]).unwrap()), Verdict::Passed);
}

#[test]
fn wrong_settings_are_refused_with_a_reason() {
    let refused = |children: &[Node]| with(children).unwrap_err().message;
    assert_eq!(refused(&[node("responses").arg_literal("never")]), "this decompresses nothing");
    assert_eq!(
        refused(&[node("responses").arg_literal("sometimes")]),
        "expected \"unless-accepted\" or \"always\" or \"never\""
    );
    assert_eq!(refused(&[node("ratio").arg_literal(1)]), "expected a whole number from 2 to 100000");
    assert_eq!(refused(&[node("limit").arg_literal(1)]), "expected a size from 1KiB to 1TiB");
    let limits = with(&[node("limit").arg_literal("64MiB"), node("ratio").arg_literal(9)]).unwrap().limits;
    assert_eq!(limits, Limits { total: 64 << 20, ratio: 9, ..Limits::default() });
}

#[test]
fn requests_have_bounds_of_their_own() {
    assert_eq!(
        with(&[node("requests"), node("ratio").arg_literal(9)]).unwrap().request_limits,
        Limits { total: 1 << 30, ratio: 100, free: 4096 }
    );
    let children =
        [node("requests"), node("request-ratio").arg_literal(20), node("request-free").arg_literal("1MiB")];
    assert_eq!(with(&children).unwrap().request_limits, Limits { total: 1 << 30, ratio: 20, free: 1 << 20 });
}

#[test]
fn the_whole_is_asked_for_if_a_part_would_have_to_be_decoded() {
    let asks = |settings: &Decompression, status, sample: Sample| {
        let mut sample = sample.response(status);
        sample.run(&DecompressPart, settings);
        sample.state.asks_whole
    };
    let part = |accept: &str, coding: &str| {
        let sample = Sample::get("/").field("Accept-Encoding", accept);
        sample.response(206).response_field("Content-Encoding", coding)
    };
    let (unless, always) = (with(&[]).unwrap(), with(&[node("responses").arg_literal("always")]).unwrap());
    assert!(asks(&unless, 206, part("br", "gzip")));
    assert!(!asks(&unless, 206, part("gzip", "gzip")));
    assert!(asks(&always, 206, part("gzip", "gzip")));
    assert!(!asks(&always, 200, part("gzip", "gzip")));
    assert!(!asks(&always, 206, part("br", "aes128gcm")));
    assert!(!asks(&always, 206, part("br", "gzip").response_field("Cache-Control", "no-transform")));
}
