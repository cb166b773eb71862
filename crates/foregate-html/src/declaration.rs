//! The declaration of a document's encoding, kept within reach of browsers.
//!
//! Browsers search the first 1,024 bytes of a document for a `meta` with its encoding (HTML, section 13.2.3.2). If
//! insertions of features push the `meta` beyond them, another `meta` is inserted at the start of the head.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::charset::{Charset, PRESCAN, declaring_meta, is_declared};
use crate::edges::Side;
use crate::feature::{ChosenFeature, Feature, Page};
use crate::features::insert::Insert;
use crate::fragments::RewriterOutput;
use crate::insertion::Insertion;
use crate::pass::STEP;
use crate::rewriter::{HandlerState, at_work, rewriter};

/// Two features that declare an encoding: the first inserts before a tag, the second after the tag of the head.
type Declaring = [Arc<Insert>; 2];

thread_local! {
    /// The features for each encoding, by its name. They are kept because a rewriter is reused only for the same features.
    static FEATURES: RefCell<HashMap<&'static str, Declaring>> = RefCell::default();
}

/// Adds features that declare the encoding again, if insertions of the other features push the declaration out of
/// reach. `start` is the start of the document.
pub(crate) fn keep_declared(
    features: &mut Vec<(ChosenFeature, bool)>,
    content_type: Option<&[u8]>,
    start: &[u8],
    page: &Page,
    budget: usize,
) {
    let Some(end) = declaring_meta(content_type, start) else { return };
    let work: Vec<_> = features.iter().filter(|(_, dry)| !dry).collect();
    let most = work.iter().fold(end, |sum, (chosen, _)| {
        let feature = &chosen.feature;
        sum.saturating_add(end.saturating_mul(feature.growth())).saturating_add(feature.adds_once())
    });
    if most <= PRESCAN {
        return;
    }
    let start = start.get(..end).unwrap_or_default();
    // The trial does not include insertions at elements. If features make such insertions, the declaration is always
    // added.
    let inserts = |rule: &crate::Rule| !matches!(rule.act, crate::Act::Tell(_) | crate::Act::Remove);
    let follows = work.iter().any(|(chosen, _)| chosen.feature.rules(page).iter().any(inserts));
    let written = trial(work.into_iter().cloned().collect(), start, page, budget);
    if !follows && is_declared(page.charset(), &written) {
        return;
    }
    let [before, behind] = declaring(page.charset());
    let chosen =
        |feature: Arc<Insert>| (ChosenFeature { step: STEP, feature: feature as Arc<dyn Feature> }, false);
    // The added declaration has to come before all other insertions. Before a tag, the insertion of the first feature
    // comes first; after a tag, the insertion of the last feature comes first.
    features.insert(0, chosen(before));
    features.push(chosen(behind));
}

/// The features that declare this encoding at the start of the head.
fn declaring(charset: Charset) -> Declaring {
    let make = || {
        let html = format!("<meta charset=\"{}\">", charset.name());
        [Side::Before, Side::Behind].map(|side| Arc::new(Insert::head_start(&html, side)))
    };
    FEATURES.with_borrow_mut(|features| features.entry(charset.name()).or_insert_with(make).clone())
}

/// The output of features for the start of a document. It ends before the first fragment that would be fetched.
fn trial(features: Vec<(ChosenFeature, bool)>, start: &[u8], page: &Page, budget: usize) -> Vec<u8> {
    let edges =
        |(chosen, dry): &(ChosenFeature, bool)| Some((chosen.step, *dry, chosen.feature.edges(page)?));
    if let Some(edges) = features.iter().map(edges).collect::<Option<Vec<_>>>() {
        let mut written = Vec::new();
        Insertion::new(edges.into_iter(), page.charset()).write(start, &mut written);
        return written;
    }
    let mut rewriter = rewriter(features.iter().map(|(chosen, _)| &*chosen.feature), page.charset(), budget);
    let mut shared = Some(HandlerState::of(features, page));
    let (loaded, _) = page.charset().load(start, true);
    // The rewriter is dropped without an end, so that features do not add their output for the end of the document.
    let done = at_work(&mut shared, || rewriter.write(&loaded));
    let Some(RewriterOutput { mut bytes, holes, .. }) = shared.map(|shared| shared.written) else {
        return Vec::new();
    };
    at_work(&mut None, || drop(rewriter));
    if let Some((at, _)) = holes.front() {
        bytes.truncate(*at);
    }
    if done.is_err() { Vec::new() } else { bytes }
}

#[cfg(test)]
mod tests {
    use foregate_module::testing::filtered_at_every_split;

    use crate::features::insert::Place;
    use crate::features::links::Links;
    use crate::tests::{Boxed, of};
    use crate::{Feature, Selector};

    use super::*;

    fn rewritten(features: &dyn Fn() -> Vec<Arc<dyn Feature>>, content_type: &str, html: &str) -> String {
        let make = || Boxed(of(features(), content_type).filter);
        String::from_utf8(filtered_at_every_split(make, html.as_bytes()).unwrap()).unwrap()
    }

    fn at(place: Place, length: usize) -> Vec<Arc<dyn Feature>> {
        let mut insert = Insert::default();
        match place {
            Place::Before => {
                let comment = format!("<!--{}-->", "x".repeat(length));
                insert.at(place, Selector::constant("title"), &comment, None);
            }
            _ => insert.edge(place, &"x".repeat(length)),
        }
        vec![Arc::new(insert)]
    }

    #[test]
    fn a_declaration_that_is_pushed_back_is_repeated() {
        const HEAD: &str = "<html><head><title>ü</title><meta charset=utf-8></head><body>";
        let long = "x".repeat(1100);
        for place in [Place::HeadStart, Place::Before] {
            let out = rewritten(&|| at(place, 1100), "text/html", HEAD);
            let long = if place == Place::Before { format!("<!--{long}-->") } else { long.clone() };
            let expected = format!("<html><head><meta charset=\"UTF-8\">{long}<title>");
            assert!(
                out.starts_with(&expected) && out.ends_with("<meta charset=utf-8></head><body>"),
                "{out}"
            );
        }
        let out = rewritten(&|| at(Place::HeadStart, 1100), "text/html", "<meta charset=koi8-r><title>x");
        assert_eq!(out, format!("<meta charset=\"KOI8-R\">{long}<meta charset=koi8-r><title>x"));
        // Shorter insertions, insertions after it, and documents with the encoding in their field are left alone.
        for (place, length, content_type) in [
            (Place::HeadStart, 500, "text/html"),
            (Place::HeadEnd, 1100, "text/html"),
            (Place::HeadStart, 1100, "text/html; charset=utf-8"),
        ] {
            let out = rewritten(&|| at(place, length), content_type, HEAD);
            assert_eq!(out.len(), HEAD.len() + length, "{out}");
        }
        let marked = format!("\u{feff}{HEAD}");
        assert_eq!(
            rewritten(&|| at(Place::HeadStart, 1100), "text/html", &marked).len(),
            marked.len() + 1100
        );
        let own = "<head><!-- c --></head>";
        assert!(!rewritten(&|| at(Place::HeadStart, 1100), "text/html", own).contains("<meta"));
    }

    #[test]
    fn addresses_that_grow_before_a_declaration_count() {
        let html = format!("<html><head>{}<meta charset=utf-8>", "<link rel=a href=/s/a.css>".repeat(20));
        let links = || -> Vec<Arc<dyn Feature>> {
            let links = Links::default().prefix("/s/", &format!("https://{}.example/", "a".repeat(50)));
            vec![Arc::new(links)]
        };
        let out = rewritten(&links, "text/html", &html);
        assert!(
            out.starts_with("<html><head><meta charset=\"UTF-8\"><link rel=a href=\"https://aaa"),
            "{out}"
        );
    }
}
