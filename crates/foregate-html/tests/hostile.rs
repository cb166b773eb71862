//! Documents that are made to cost time: how long each takes beside a plain one.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement stops at what it did not expect, and says what it found"
)]

use std::sync::Arc;
use std::time::Instant;

use foregate_html::features::insert::{Insert, Place};
use foregate_html::features::remove::{Remove, What};
use foregate_html::{ChosenFeature, Feature, Pass, Selector, Terms};
use foregate_module::Chain;

const LENGTH: usize = 1 << 20;

fn features() -> Vec<Arc<dyn Feature>> {
    let mut insert = Insert::default();
    insert.at(Place::Before, Selector::followed("p").unwrap(), "<i>1</i>", None);
    insert.at(Place::After, Selector::followed("b").unwrap(), "<i>2</i>", None);
    let mut remove = Remove::default();
    remove.add(Selector::followed("li:first-child").unwrap(), What::Element);
    vec![Arc::new(remove), Arc::new(insert)]
}

fn run(name: &str, html: &[u8]) {
    let terms = Terms { content_type: Some(b"text/html; charset=utf-8".to_vec()), ..Terms::default() };
    let chosen = features().into_iter().map(|feature| (ChosenFeature { step: "test", feature }, false));
    let mut chain = Chain::new(vec![Pass::filter(chosen.collect(), terms)]);
    let begun = Instant::now();
    let (mut length, mut held) = (0, 0);
    for piece in html.chunks(64 << 10) {
        let mut out = Vec::new();
        chain.write(piece, &mut out).unwrap();
        held = held.max(chain.held());
        while chain.is_pending() {
            chain.resume(&mut out).unwrap();
            held = held.max(chain.held());
        }
        length += out.len();
    }
    let mut out = Vec::new();
    chain.end(&mut out).unwrap();
    let took = begun.elapsed();
    let mut events = Vec::new();
    chain.report(&mut |_| {}, &mut |finding| events.push((finding.event, finding.count)));
    println!(
        "{name:24} {:8.1} ms, held {held}, out {} {events:?}",
        took.as_secs_f64() * 1e3,
        length + out.len()
    );
}

fn filled(start: &str, part: &str) -> Vec<u8> {
    let mut html = start.as_bytes().to_vec();
    while html.len() < LENGTH {
        html.extend_from_slice(part.as_bytes());
    }
    html
}

#[test]
#[ignore = "it measures times"]
fn hostile_documents_are_timed() {
    let doc = "<!doctype html><body>x";
    let plain = "<div class=card><h2>Some words</h2><p>Text of ordinary length <b>word</b> and <a href=/x>more</a> of it, as pages have</p><ul><li>one</li><li>two</li></ul></div>\n";
    let formats: String = (0..60).map(|number| format!("<b id={number}>")).collect();
    let attributes: String = (0..15000).map(|number| format!(" {:x}", number)).collect();
    for (name, html) in [
        ("plain", filled(doc, plain)),
        ("plain, 100 deep", filled(&format!("{doc}{}", "<div>".repeat(100)), plain)),
        ("bibi", filled(doc, "<b><i>")),
        ("bibi, closed", filled(doc, &format!("{}{}", "<b><i>".repeat(100), "</i></b>".repeat(100)))),
        ("p", filled(doc, "<p>")),
        ("p frameset", filled("<!doctype html><body>", "<p>")),
        ("p in 480 div", filled(&format!("{doc}{}", "<div>".repeat(480)), "<p>")),
        ("p in 480 span", filled(&format!("{doc}{}", "<span>".repeat(480)), "<p>")),
        ("p reopening 60", filled(&format!("{doc}<p>{formats}"), "<p>x")),
        ("p reopening 3", filled(&format!("{doc}<p><b><b><b>"), "<p>x")),
        ("a storm", filled(doc, "<a>")),
        ("a p storm", filled(doc, "<a><p>")),
        ("a div storm", filled(doc, "<a><div>")),
        ("b div storm", filled(doc, "<b><div></b>")),
        ("b p i storm", filled(doc, "<b><p><i></b></p>")),
        ("li", filled(doc, "<li>")),
        ("ul li", filled(doc, "<ul><li>")),
        ("ul li closed", filled(doc, "<ul><li>1<li>2</ul>")),
        ("li first in 480", filled(&format!("{doc}{}", "<span>".repeat(480)), "<ul><li></ul>")),
        ("attributes", filled(doc, &format!("<p{attributes}>"))),
        ("attribute 60 KiB", filled(doc, &format!("<p a='{}'>", "x".repeat(60 << 10)))),
        (
            "names of children",
            (0..130_000).fold(doc.as_bytes().to_vec(), |mut html, number| {
                html.extend_from_slice(format!("<x{number:x}/></>").as_bytes());
                html
            }),
        ),
        ("nulls", filled(&format!("{doc}{}<li>", "<div>".repeat(480)), "\0a")),
        ("brackets in script", filled(&format!("{doc}{}<li><script>", "<div>".repeat(480)), "<")),
        ("brackets", filled(doc, "<")),
        ("td", filled(&format!("{doc}<table>"), "<td>")),
        ("foster", filled(&format!("{doc}<table>"), "<p>x")),
        ("foster b", filled(&format!("{doc}<table>"), "<b>x</b><tr>")),
        ("end tags", filled(&format!("{doc}{}", "<span>".repeat(480)), "</p>")),
        ("end tags b", filled(&format!("{doc}{}{formats}", "<span>".repeat(400)), "</i>")),
        ("end tags u in b", filled(&format!("{doc}<b>{}", "<span>".repeat(400)), "<div></b>")),
        ("reopening, closed", filled(&format!("{doc}<p>{formats}</p>"), "<p>x</p>")),
        ("reopening, div", filled(&format!("{doc}<p>{formats}</p>"), "<div>x</div>")),
        ("reopening, ul", filled(&format!("{doc}<p>{formats}</p>"), "<ul><li>x</ul>")),
        ("a, closed", filled(doc, "<a><p></a></p>")),
        (
            "a storm, closed",
            filled(doc, &format!("{}{}{}", "<a><i><u><s><div>".repeat(20), "</a>", "</div>".repeat(20))),
        ),
        (
            "adoption",
            filled(
                doc,
                &format!(
                    "{}{}{}{}",
                    "<b><i><u><s>".repeat(10),
                    "<div>".repeat(100),
                    "</b></i></u></s>".repeat(10),
                    "</div>".repeat(100)
                ),
            ),
        ),
        ("cells", filled(&format!("{doc}<table>"), "<tr><td>1<td>2<b></td></tr>")),
        ("foster, closed", filled(&format!("{doc}<table>"), "<p>x</p>")),
        (
            "names, closed",
            (0..110_000).fold(doc.as_bytes().to_vec(), |mut html, number| {
                html.extend_from_slice(format!("<x{number:x}></x{number:x}>").as_bytes());
                html
            }),
        ),
        ("b watched", filled(doc, "<p><b><b><b>x</p>")),
    ] {
        run(name, &html);
    }
}
