//! The cost of a pass compared with the rewriter alone with the same handlers: `cargo bench -p foregate-html --bench rewrite`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark stops at what it did not expect, and says what it found"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group};
use foregate_html::features::emails::Emails;
use foregate_html::features::images::Images;
use foregate_html::features::insert::{Insert, Place};
use foregate_html::features::links::Links;
use foregate_html::features::remove::Remove;
use foregate_html::{
    ChosenFeature, Comment, Element, Feature, Page, Pass, Reads, Rewrite, Selector, Terms, TextOut,
};
use foregate_module::{Chain, Sink};
use lol_html::html_content::ContentType;
use lol_html::send::{HtmlRewriter, Settings};
use lol_html::{DocumentContentHandlers, ElementContentHandlers};

/// Texts of pages, which many pages have no more than ASCII for: a language, a sentence, and a word.
const TEXTS: [(&str, &str, &str); 3] = [
    (
        "English",
        "Some text of ordinary length, so that there is something to read in each paragraph of the page.",
        "Heading",
    ),
    (
        "German",
        "Einige Wörter in gewöhnlicher Länge, damit es in jedem Absatz für längere Zeit etwas zu lesen gibt.",
        "Überschrift",
    ),
    (
        "Japanese",
        "これは普通の長さの文章で、ページの各段落に読むものがあるようにするためのものです。",
        "見出し",
    ),
];

/// A typical page of some 100 KB.
fn page((language, text, word): (&str, &str, &str)) -> Vec<u8> {
    let mut html =
        format!("<!doctype html><html><head><meta charset=utf-8><title>{language}</title></head><body>");
    for number in 0..200 {
        html.push_str(&format!(
            "<div class=\"card n{number}\"><h2>{word} {number}</h2><p>{text} <b>{word}</b> <a href=\"/page/{number}?x=1\">{word}</a>, \
             {text}</p><img src=\"/images/{number}.jpg\" alt=\"{word} {number}\"><!-- card --><ul><li>{word}</li><li>two</li></ul>\
             </div>\n"
        ));
    }
    html.push_str("</body></html>");
    html.into_bytes()
}

/// A sink that counts bytes.
struct Counter(usize);

impl Sink for Counter {
    fn write(&mut self, bytes: &[u8]) {
        self.0 += black_box(bytes).len();
    }
}

/// Five features with the same work as the handlers of `bare`.
struct Five(usize, [Selector; 1]);

impl Feature for Five {
    fn selectors(&self) -> &[Selector] {
        if self.0 < 3 { &self.1 } else { &[] }
    }
    fn reads(&self) -> Reads {
        Reads { text: self.0 == 3, titles: self.0 == 3, comments: self.0 == 4, ..Reads::default() }
    }
    fn growth(&self) -> usize {
        2
    }
    fn begin(self: Arc<Self>, _: &Page) -> Box<dyn Rewrite> {
        Box::new(Run(self.0))
    }
}

struct Run(usize);

impl Rewrite for Run {
    fn element(&mut self, _: usize, element: &mut Element<'_, '_, '_>) {
        match self.0 {
            0 => {
                if let Some(href) = element.attribute("href") {
                    element.set_attribute("href", &format!("https://example.com{href}"));
                }
            }
            1 => element.set_attribute("loading", "lazy"),
            _ => element.before("<hr>"),
        }
    }
    fn text(&mut self, text: &str, _: bool, out: &mut TextOut<'_>) {
        black_box(memchr::memchr(b'@', text.as_bytes()));
        out.keep(text);
    }
    fn comment(&mut self, comment: &mut Comment<'_, '_>) {
        comment.remove();
    }
}

const SELECTORS: [&str; 3] = ["a[href]", "img", "h2"];

fn five() -> Vec<(ChosenFeature, bool)> {
    let feature = |number: usize| {
        let selector = Selector::parse(SELECTORS.get(number).unwrap_or(&"b")).unwrap();
        (
            ChosenFeature { step: "bench", feature: Arc::new(Five(number, [selector])) as Arc<dyn Feature> },
            false,
        )
    };
    (0..5).map(feature).collect()
}

/// Features that ship, as `bench/html` has them in its routes.
fn shipped(what: &str) -> Vec<(ChosenFeature, bool)> {
    let insert = |place: Place| -> Arc<dyn Feature> {
        let mut insert = Insert::default();
        insert.edge(place, "<script src=/x.js></script>");
        Arc::new(insert)
    };
    let emails = || Arc::new(Emails::new("[email protected]")) as Arc<dyn Feature>;
    let features: Vec<Arc<dyn Feature>> = match what {
        "head" => vec![insert(Place::HeadEnd)],
        "body" => vec![insert(Place::BodyEnd)],
        "emails" => vec![emails()],
        _ => {
            let mut remove = Remove::default();
            remove.comments();
            let links = Arc::new(Links::default().https());
            let images = Arc::new(Images::default().lazy(2));
            vec![Arc::new(remove), links, images, emails(), insert(Place::HeadEnd)]
        }
    };
    features.into_iter().map(|feature| (ChosenFeature { step: "bench", feature }, false)).collect()
}

fn pass(features: Vec<(ChosenFeature, bool)>, html: &[u8]) -> usize {
    let terms = Terms { content_type: Some(b"text/html; charset=utf-8".to_vec()), ..Terms::default() };
    let mut chain = Chain::new(vec![Pass::filter(features, terms)]);
    let mut out = Counter(0);
    for piece in html.chunks(Chain::PIECE) {
        chain.write(piece, &mut out).unwrap();
        while chain.is_pending() {
            chain.resume(&mut out).unwrap();
        }
    }
    chain.end(&mut out).unwrap();
    out.0
}

fn bare(html: &[u8], selectors: &[lol_html::Selector; 3]) -> usize {
    let [links, images, headings] = selectors;
    let mut count = 0;
    let settings = Settings::new_send()
        .append_element_content_handler((
            std::borrow::Cow::Borrowed(links),
            ElementContentHandlers::default().element(|element: &mut lol_html::send::Element<'_, '_>| {
                if let Some(href) = element.get_attribute("href") {
                    element.set_attribute("href", &format!("https://example.com{href}"))?;
                }
                Ok(())
            }),
        ))
        .append_element_content_handler((
            std::borrow::Cow::Borrowed(images),
            ElementContentHandlers::default().element(|element: &mut lol_html::send::Element<'_, '_>| {
                element.set_attribute("loading", "lazy")?;
                Ok(())
            }),
        ))
        .append_element_content_handler((
            std::borrow::Cow::Borrowed(headings),
            ElementContentHandlers::default().element(|element: &mut lol_html::send::Element<'_, '_>| {
                element.before("<hr>", ContentType::Html);
                Ok(())
            }),
        ))
        .append_document_content_handler(DocumentContentHandlers::default().text(
            |chunk: &mut lol_html::html_content::TextChunk<'_>| {
                black_box(memchr::memchr(b'@', chunk.as_str().as_bytes()));
                Ok(())
            },
        ))
        .append_document_content_handler(DocumentContentHandlers::default().comments(
            |comment: &mut lol_html::html_content::Comment<'_>| {
                comment.remove();
                Ok(())
            },
        ));
    let mut rewriter = HtmlRewriter::new(settings, |chunk: &[u8]| count += black_box(chunk).len());
    for piece in html.chunks(Chain::PIECE) {
        rewriter.write(piece).unwrap();
    }
    rewriter.end().unwrap();
    count
}

fn rewrite(criterion: &mut Criterion) {
    let html = page(TEXTS[0]);
    let selectors = SELECTORS.map(|selector| selector.parse().unwrap());
    for text in TEXTS {
        let html = page(text);
        assert_eq!(pass(five(), &html), bare(&html, &selectors), "both do the same");
    }
    let mut group = criterion.benchmark_group("100KB");
    group.throughput(Throughput::Bytes(html.len() as u64));
    group.bench_function("five features", |bencher| bencher.iter(|| pass(five(), &html)));
    group.bench_function("bare lol_html", |bencher| bencher.iter(|| bare(&html, &selectors)));
    let mut insert = Insert::default();
    insert.edge(Place::BodyEnd, "<script src=/x.js></script>");
    let insert: Arc<dyn Feature> = Arc::new(insert);
    let chosen = || vec![(ChosenFeature { step: "insert", feature: Arc::clone(&insert) }, false)];
    group.bench_function("insertion alone", |bencher| bencher.iter(|| pass(chosen(), &html)));
    group.finish();
    criterion.bench_function("first byte", |bencher| bencher.iter(|| pass(five(), b"<p>")));
}

/// The throughput of the pass as a share of that of the rewriter alone. Both run in turn, and the fastest run of each counts,
/// so that other load on the machine matters little.
fn share(_: &mut Criterion) {
    let selectors = SELECTORS.map(|selector| selector.parse().unwrap());
    for text in TEXTS {
        let html = page(text);
        let mut fastest = [Duration::MAX; 2];
        for _ in 0..1000 {
            let start = Instant::now();
            black_box(pass(five(), &html));
            let between = Instant::now();
            black_box(bare(&html, &selectors));
            fastest = [fastest[0].min(between - start), fastest[1].min(between.elapsed())];
        }
        let [pass, bare] = fastest;
        let share = bare.as_secs_f64() / pass.as_secs_f64();
        println!("{}: five features {pass:?}, bare lol_html {bare:?}: {share:.3}", text.0);
    }
}

criterion_group!(benches, rewrite, share);

/// With `pass` or `bare`, the number of a text and a count, it runs that alone: for tools that count instructions. So
/// also with `head`, `body`, `emails` and `five` for features that ship, and `head-start` and so on for the work until
/// the first half KiB has gone through.
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, what, text, times] = &*arguments else {
        benches();
        return Criterion::default().configure_from_args().final_summary();
    };
    let html = page(TEXTS[text.parse::<usize>().unwrap()]);
    let selectors = SELECTORS.map(|selector| selector.parse().unwrap());
    let shipped = shipped(what.trim_end_matches("-start"));
    for _ in 0..times.parse::<usize>().unwrap() {
        match &**what {
            "pass" => black_box(pass(five(), &html)),
            "bare" => black_box(bare(&html, &selectors)),
            what if what.ends_with("-start") => black_box(pass(shipped.clone(), &html[..512])),
            _ => black_box(pass(shipped.clone(), &html)),
        };
    }
}
