//! The guarantees of the framework for any features.

use std::sync::Arc;

use foregate_module::testing::{filtered, filtered_at_every_split};
use foregate_module::{Bail, BodyFilter, Chain, Filtered, Sink};

use crate::{
    Charset, ChosenFeature, Comment, Element, End, EndTag, Feature, Page, Pass, Reads, Rewrite, Selector,
    Terms, TextOut,
};

/// Does a little of everything: marks elements, their ends, words that begin with `x`, comments and the end.
struct Everything {
    selectors: Vec<Selector>,
    word: &'static str,
}

struct Marks {
    word: &'static str,
    held: String,
}

impl Everything {
    fn new(word: &'static str) -> Arc<Self> {
        let selectors = ["a[href]", "p", "div > span"].map(Selector::constant);
        Arc::new(Self { selectors: selectors.into(), word })
    }
}

impl Feature for Everything {
    fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    fn reads(&self) -> Reads {
        Reads { text: true, titles: true, comments: true, end: true }
    }

    fn growth(&self) -> usize {
        8
    }

    fn begin(self: Arc<Self>, page: &Page) -> Box<dyn Rewrite> {
        let charset = page.charset();
        let told = Charset::of_label(charset.name().as_bytes()) == Some(charset);
        let expected = if charset.name() == "KOI8-R" || !told { "&#252;" } else { "ü" };
        assert_eq!(page.text("ü"), expected);
        Box::new(Marks { word: self.word, held: String::new() })
    }
}

impl Rewrite for Marks {
    fn element(&mut self, selector: usize, element: &mut Element<'_, '_, '_>) {
        match selector {
            0 => element.set_attribute("rel", "nofollow"),
            1 => element.before("<hr>"),
            _ => {
                element.watch_end();
                element.set_attribute("class", "seen");
            }
        }
    }

    fn end_tag(&mut self, _: usize, tag: &mut EndTag<'_, '_>) {
        tag.before("<b>end</b>");
    }

    fn text(&mut self, text: &str, last: bool, out: &mut TextOut<'_>) {
        for character in text.chars() {
            if character.is_ascii_alphanumeric() {
                self.held.push(character);
                continue;
            }
            self.word(out);
            out.keep(character.encode_utf8(&mut [0; 4]));
        }
        if last {
            self.word(out);
        }
    }

    fn comment(&mut self, comment: &mut Comment<'_, '_>) {
        if comment.text().contains("gone") {
            comment.remove();
        }
    }

    fn end(&mut self, end: &mut End<'_, '_>) {
        end.append("<!-- over -->");
    }
}

impl Marks {
    fn word(&mut self, out: &mut TextOut<'_>) {
        let held = std::mem::take(&mut self.held);
        if held == self.word {
            out.matched();
            out.markup("<i>");
            out.keep(&held.to_uppercase());
            out.markup("</i>");
        } else {
            out.keep(&held);
        }
    }
}

fn pass(features: &[(&'static str, bool)], content_type: &str, budget: usize) -> Filtered {
    let chosen = |(word, dry): &(&'static str, bool)| {
        (ChosenFeature { step: "test", feature: Everything::new(word) as Arc<dyn Feature> }, *dry)
    };
    let terms = Terms { content_type: Some(content_type.into()), budget, ..Terms::default() };
    Pass::filter(features.iter().map(chosen).collect(), terms)
}

/// A pass of these features.
pub(crate) fn of(features: Vec<Arc<dyn Feature>>, content_type: &str) -> Filtered {
    let chosen = features.into_iter().map(|feature| (ChosenFeature { step: "test", feature }, false));
    let terms = Terms { content_type: Some(content_type.into()), ..Terms::default() };
    Pass::filter(chosen.collect(), terms)
}

/// A filter of a kind that is not known.
pub(crate) struct Boxed(pub Box<dyn BodyFilter>);

impl BodyFilter for Boxed {
    fn write(&mut self, piece: &[u8], out: &mut dyn Sink) -> Result<(), Bail> {
        self.0.write(piece, out)
    }
    fn pending(&self) -> bool {
        self.0.pending()
    }
    fn end(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        self.0.end(out)
    }
    fn bail(&mut self, out: &mut dyn Sink) -> Result<(), Bail> {
        self.0.bail(out)
    }

    fn held(&self) -> usize {
        self.0.held()
    }
}

fn rewritten(words: &[&'static str], html: &[u8]) -> String {
    let features: Vec<_> = words.iter().map(|word| (*word, false)).collect();
    let make = || Boxed(pass(&features, "text/html; charset=utf-8", crate::BUDGET).filter);
    String::from_utf8_lossy(&filtered_at_every_split(make, html).unwrap()).into_owned()
}

#[test]
fn features_share_a_pass_and_later_ones_see_the_text_of_earlier_ones() {
    assert_eq!(
        rewritten(
            &["one", "ONE", "two"],
            b"<p>one two&amp;one</p><textarea>one</textarea><title>one</title>"
        ),
        "<hr><hr><hr><p><i><i>ONE</i></i> <i>TWO</i>&amp;<i><i>ONE</i></i></p><textarea>one</textarea>\
         <title><i><i>ONE</i></i></title><!-- over --><!-- over --><!-- over -->"
    );
    assert_eq!(
        rewritten(&["x"], b"<div><span>x<!-- gone -->y x</span></div><script>x</script><style>x</style>"),
        "<div><span class=\"seen\"><i>X</i>y <i>X</i><b>end</b></span></div><script>x</script><style>x</style><!-- over -->"
    );
}

#[test]
fn every_byte_that_no_feature_changes_comes_out_as_it_went_in() {
    let mut html = b"<!doctype html><h1 title='\xff\xfe'>\xc3\xbc \xe2\x82".to_vec();
    html.extend(0..=255);
    html.extend(b"</h1><svg><path d=x /><![CDATA[ <p> ]]></svg><textarea>\xfc</textarea><unfinished attr='");
    // Text appended at the end would become part of the tag.
    assert_eq!(rewritten(&["no such word"], &html), String::from_utf8_lossy(&html));
    html.push(b'\'');
    html.push(b'>');
    let out = rewritten(&["no such word"], &html);
    assert_eq!(out, String::from_utf8_lossy(&[&html[..], b"<!-- over -->"].concat()));
}

#[test]
fn dry_features_are_counted_and_change_nothing() {
    let html = b"<p>one <a href=x>two</a></p><!-- gone -->";
    let mut mixed =
        Chain::new(vec![pass(&[("one", true), ("two", false)], "text/html;charset=utf-8", crate::BUDGET)]);
    let mut out = Vec::new();
    mixed.write(html, &mut out).unwrap();
    mixed.end(&mut out).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&out),
        "<hr><p>one <a href=x rel=\"nofollow\"><i>TWO</i></a></p><!-- over -->"
    );
    let mut found = Vec::new();
    mixed.report(&mut |_| {}, &mut |finding| found.push((finding.event, finding.count)));
    assert_eq!(found, [("dry-run-matches", 5), ("matches", 5)]);

    let all_dry = pass(&[("one", true), ("two", true)], "text/html", crate::BUDGET);
    assert!(all_dry.dry && !all_dry.changes_length());
    let mut chain = Chain::new(vec![all_dry]);
    let mut out = Vec::new();
    chain.write(html, &mut out).unwrap();
    chain.end(&mut out).unwrap();
    assert_eq!(out, html);
    let mut count = 0;
    chain.report(&mut |_| {}, &mut |finding| count += finding.count);
    assert_eq!(count, 10);
}

/// Takes pieces until the filter bails out, then the rest as it is.
pub(crate) fn bailed(
    filtered: Filtered,
    html: &[u8],
    piece: usize,
) -> (Vec<u8>, Vec<(&'static str, u64)>, bool) {
    let mut chain = Chain::new(vec![filtered]);
    let mut out = Vec::new();
    let mut gave_up = false;
    for piece in html.chunks(piece) {
        gave_up |= chain.write(piece, &mut out).unwrap().bailed.is_some();
        while chain.is_pending() {
            gave_up |= chain.resume(&mut out).unwrap().bailed.is_some();
        }
    }
    gave_up |= chain.end(&mut out).unwrap().bailed.is_some();
    let mut found = Vec::new();
    chain.report(&mut |_| {}, &mut |finding| found.push((finding.event, finding.count)));
    (out, found, gave_up)
}

#[test]
fn what_needs_too_much_memory_passes_and_no_byte_is_lost() {
    let mut html = b"<p>one one".to_vec();
    html.extend(b"<a href='");
    html.extend(b"y".repeat(40_000));
    html.extend(b"'>one</a> one");
    for piece in [1, 7, 1000, 4096, 100_000] {
        let (out, found, gave_up) = bailed(pass(&[("one", false)], "text/html", 16 << 10), &html, piece);
        let expected = [&b"<hr><p><i>ONE</i> <i>ONE</i>"[..], &html[10..]].concat();
        assert!(gave_up);
        assert!(out == expected, "pieces of {piece}: {}", String::from_utf8_lossy(&out[..200]));
        assert_eq!(found, [("matches", 3), ("memory-exceeded", 1)]);
    }
    // Elements inside each other need memory too.
    let html = "<div>one ".repeat(10_000);
    let (out, found, gave_up) = bailed(pass(&[("one", false)], "text/html", 16 << 10), html.as_bytes(), 4096);
    assert!(gave_up && found.contains(&("memory-exceeded", 1)));
    let plain = String::from_utf8(out).unwrap().replace("<i>ONE</i>", "one");
    assert_eq!(plain, html);
}

#[test]
fn what_is_held_is_told_and_bounded() {
    let mut held = Vec::new();
    for html in [
        "<p>some <b>text</b></p>",
        "<p title='",
        "<a href=x><!--",
        "<div>",
        &format!("<{}>", "x".repeat(3000)),
    ] {
        let html = match html {
            "<p title='" | "<a href=x><!--" => format!("{html}{}", "y".repeat(100_000)),
            _ => html.repeat(100_000 / html.len()),
        };
        let mut chain = Chain::new(vec![pass(&[("one", false)], "text/html", 64 << 10)]);
        let (mut most, mut gave_up) = (0, false);
        for piece in html.as_bytes().chunks(1000) {
            gave_up |= chain.write(piece, &mut Vec::new()).unwrap().bailed.is_some();
            most = most.max(chain.held());
        }
        held.push((most >> 10, gave_up));
        chain.end(&mut Vec::new()).unwrap();
        assert_eq!(chain.held(), 0);
    }
    assert!(held[0].0 < 40 && !held[0].1, "{held:?}");
    assert!(held[1..].iter().all(|(most, gave_up)| *most < 250 && *gave_up), "{held:?}");
    assert!([1, 2, 4].iter().all(|number| held[*number].0 > 64), "{held:?}");
}

#[test]
fn names_of_elements_are_bounded_alike_wherever_they_are_split() {
    let html = format!("<p>one<{}>", "name".repeat(500)).repeat(40);
    let whole =
        bailed(pass(&[("one", false)], "text/html; charset=utf-8", 16 << 10), html.as_bytes(), html.len());
    assert!(whole.2 && whole.1.contains(&("memory-exceeded", 1)), "{:?}", whole.1);
    let plain = String::from_utf8(whole.0.clone()).unwrap().replace("<i>ONE</i>", "one").replace("<hr>", "");
    assert!(plain == html && whole.0.len() > html.len());
    for piece in [1, 7, 1000, 4096] {
        assert!(
            bailed(pass(&[("one", false)], "text/html; charset=utf-8", 16 << 10), html.as_bytes(), piece)
                == whole
        );
    }
}

#[test]
fn elements_that_are_counted_by_name_may_not_have_any_number_of_them() {
    let feature = Arc::new(Grows([Selector::parse("br:first-of-type").unwrap()], "z".into()));
    let html: String = (0..600).map(|number| format!("<x{number}><br></x{number}>")).collect();
    for piece in [1, 100, 4096] {
        let filtered = of(vec![Arc::clone(&feature) as Arc<dyn Feature>], "text/html; charset=utf-8");
        let (out, found, gave_up) = bailed(filtered, html.as_bytes(), piece);
        let out = String::from_utf8(out).unwrap();
        assert!(gave_up && found.contains(&("names-exceeded", 1)), "{found:?}");
        assert_eq!((out.matches("z<br>").count(), out.replace('z', "") == html), (511, true));
    }
}

#[test]
fn a_filter_that_is_told_to_give_up_writes_all_that_it_holds() {
    for at in 0..40 {
        let html = b"<p title=x>one tw<!-- gone --><a hre='x'>one".repeat(3);
        let mut pass = pass(&[("one", false)], "text/html", crate::BUDGET).filter;
        let mut out = Vec::new();
        pass.write(&html[..at], &mut out).unwrap();
        pass.bail(&mut out).unwrap();
        let plain = String::from_utf8(out).unwrap().replace("<i>ONE</i>", "one").replace("<hr>", "");
        let plain = plain.replace("<!-- gone -->", "");
        let sent = String::from_utf8(html[..at].to_vec()).unwrap().replace("<!-- gone -->", "");
        assert_eq!(plain, sent, "at {at}");
    }
}

#[test]
fn documents_in_other_encodings_pass_and_are_counted() {
    for (content_type, html) in [
        ("text/html; charset=utf-16le", &b"<\0p\0>\0"[..]),
        ("text/html", b"\xfe\xff\0<\0p"),
        ("text/html", b"<meta charset=iso-2022-jp><p>"),
    ] {
        let (out, found, gave_up) = bailed(pass(&[("one", false)], content_type, crate::BUDGET), html, 1);
        assert!(gave_up);
        assert_eq!(out, html);
        assert_eq!(found, [("encoding-not-supported", 1)]);
    }
    let out =
        filtered(Boxed(pass(&[("one", false)], "text/html; charset=koi8-r", 99999).filter), &[b"<p>\xc1"]);
    assert_eq!(out.unwrap(), b"<hr><p>\xc1<!-- over -->");
}

#[test]
fn what_is_empty_stays_empty() {
    for body in ["", "\u{feff}", " \n"] {
        assert_eq!(rewritten(&["x"], body.as_bytes()), body);
    }
}

#[test]
fn what_is_no_html_passes_as_it_is() {
    for body in
        ["{\"a\": \"<p><a href=/>x</a>\"}", " \r\n[\"<p>\"]", "<?xml version='1.0'?><rss><p>x</p></rss>"]
    {
        let (out, found, gave_up) =
            bailed(pass(&[("x", false)], "text/html; charset=utf-8", crate::BUDGET), body.as_bytes(), 1);
        assert_eq!((String::from_utf8(out).unwrap(), gave_up), (body.into(), true));
        assert_eq!(found, [("not-html", 1)]);
    }
}

#[test]
fn blanks_before_a_body_are_not_held() {
    let mut filter = pass(&[("x", false)], "text/html; charset=utf-8", crate::BUDGET).filter;
    let mut out = Vec::new();
    filter.write(b" \n", &mut out).unwrap();
    assert_eq!(out, b" \n");
    filter.write(b" {", &mut out).unwrap_err();
    assert_eq!(out, b" \n {");
}

/// Repeats its text after every element.
struct Grows([Selector; 1], String);

impl Feature for Grows {
    fn selectors(&self) -> &[Selector] {
        &self.0
    }
    fn growth(&self) -> usize {
        self.1.len() / 3 + 1
    }
    fn begin(self: Arc<Self>, _: &Page) -> Box<dyn Rewrite> {
        struct Adds(Arc<Grows>);
        impl Rewrite for Adds {
            fn element(&mut self, _: usize, element: &mut Element<'_, '_, '_>) {
                element.before(&self.0.1);
            }
        }
        Box::new(Adds(self))
    }
}

#[test]
fn a_small_piece_that_becomes_large_is_written_a_little_at_a_time() {
    let feature = Arc::new(Grows([Selector::constant("br")], "z".repeat(3000)));
    let terms = Terms { content_type: Some(b"text/html; charset=utf-8".to_vec()), ..Terms::default() };
    let mut chain =
        Chain::new(vec![Pass::filter(vec![(ChosenFeature { step: "grows", feature }, false)], terms)]);
    let html = "<br>".repeat(1024);
    let mut out = Vec::new();
    let mut total = 0;
    chain.write(html.as_bytes(), &mut out).unwrap();
    while chain.is_pending() {
        assert!(out.len() < 128 * 1024, "{} bytes at once", out.len());
        total += out.len();
        out.clear();
        chain.resume(&mut out).unwrap();
    }
    chain.end(&mut out).unwrap();
    assert_eq!(total + out.len(), 1024 * 3004);
}

/// The work that a document makes which comes in pieces of 4 KiB, for each byte of it; and why its rest passed.
fn followed(html: &str) -> (u64, Option<&'static str>) {
    use crate::follow::{Act, Follower, Rule};
    let rule =
        |selector: &str, act| Rule { selector: Selector::followed(selector).unwrap(), act, limit: None };
    let rules = vec![
        (0, false, rule("p", Act::Before("<i>1</i>".into()))),
        (0, false, rule("b", Act::After("<i>2</i>".into()))),
        (0, false, rule("li:first-child", Act::Remove)),
    ];
    let mut follower = Follower::new(rules, 1, Charset::of_label(b"utf-8").unwrap(), 1 << 20);
    for piece in html.as_bytes().chunks(4096) {
        follower.feed(piece);
        while follower.gave_up.is_none() && follower.next().is_some() {}
        assert!(follower.held() < 1 << 20, "{html:.60}");
    }
    (follower.work / html.len() as u64, follower.gave_up)
}

#[test]
fn the_work_that_a_document_makes_is_bounded() {
    const LENGTH: usize = 256 << 10;
    let filled = |start: &str, part: &str| {
        let start = format!("<!doctype html><body>x{start}");
        format!("{start}{}", part.repeat((LENGTH - start.len()).div_ceil(part.len())))
    };
    let formats: String = (0..60).map(|number| format!("<b id={number}>")).collect();
    let (spans, divs) = ("<span>".repeat(480), "<div>".repeat(100));
    let card =
        "<div class=card><h2>Words</h2><p>Text <b>word</b> and <a href=/x>more</a><ul><li>1<li>2</ul></div>";
    for (start, part) in [
        ("", card.into()),
        (&*divs, card.into()),
        ("", "<p>x</p>".into()),
        ("", "<b><i>x</i></b>".into()),
        ("", "<a><p></a></p>".into()),
        ("", format!("{}{}", "<b><i>".repeat(100), "</i></b>".repeat(100))),
        ("<table>", "<tr><td>1<td>2<b></td></tr>".into()),
        ("", format!("<p{}>", (0..15_000).map(|number| format!(" {number:x}")).collect::<String>())),
    ] {
        let (work, gave_up) = followed(&filled(start, &part));
        assert!(work < 256 && gave_up.is_none(), "{work} for {part:.60}");
    }
    // Reopened formatting elements, and end tags that look through everything that is open.
    for (start, part) in [
        (format!("<p>{formats}</p>"), "<p>x</p>".to_owned()),
        (format!("<p>{formats}</p>"), "<div>x</div>".into()),
        (spans.clone(), "</p>".into()),
        (spans, "<ul><li></ul>".into()),
        (
            "".into(),
            format!("{}{}", "<b><i><u><s>".repeat(10), "<div>".repeat(100)) + &"</b></div>".repeat(100),
        ),
    ] {
        let (work, gave_up) = followed(&filled(&start, &part));
        assert!(work < 288, "{work} for {part:.60}");
        assert_eq!(gave_up, Some("memory-exceeded"), "{work} for {part:.60}");
    }
}

#[test]
fn of_many_attributes_of_one_name_the_first_counts() {
    use crate::tree::attributes;
    for count in [1, 15, 16, 17, 100] {
        let tag: String = (0..count).map(|number| format!(" a{number}={number}")).collect();
        let tag = format!("<p{tag}{} A0=x b=y B=z>", tag.to_uppercase());
        let mut found = Vec::new();
        attributes(tag.as_bytes(), &mut found);
        assert_eq!(found.len(), count + 1);
        assert!(found.iter().take(count).enumerate().all(|(at, one)| one.value == at.to_string().as_bytes()));
        assert_eq!(found[count].value, b"y");
    }
}
