use std::sync::Arc;

use foregate_module::testing::{Sample, filtered_at_every_split};
use foregate_module::{Action, Verdict};

use super::*;
use crate::tests::{Boxed, of};

fn rewritten(html: &str) -> String {
    let make = || Boxed(of(vec![Arc::new(Emails::new(PLACEHOLDER))], "text/html; charset=utf-8").filter);
    String::from_utf8(filtered_at_every_split(make, html.as_bytes()).unwrap()).unwrap()
}

/// The script's output for an encoded address.
fn decoded(code: &str) -> String {
    let byte = |at: usize| u8::from_str_radix(&code[at..at + 2], 16).unwrap();
    let bytes = (1..code.len() / 2).map(|at| byte(2 * at) ^ byte(0)).collect();
    String::from_utf8(bytes).unwrap()
}

/// The document with addresses in braces in place of their encoded form, and the script as `S`.
fn shown(html: &str) -> String {
    let script = format!("<script src={SCRIPT_PATH} defer></script>");
    let mut rest = &*rewritten(html).replace(&script, "S");
    let mut shown = String::new();
    while let Some((before, after)) = rest.split_once("<span data-fg-email=") {
        let (code, after) = after.split_once(">[email&#160;protected]</span>").unwrap();
        shown.push_str(&format!("{before}{{{}}}", decoded(code)));
        rest = after;
    }
    shown + rest
}

#[test]
fn addresses_in_text_are_hidden_wherever_the_document_is_split() {
    assert_eq!(shown("<p>Write to a.b+c@example.co.uk.</p>"), "<p>Write to {a.b+c@example.co.uk}S.</p>");
    assert_eq!(shown("<body>x@y.de</body></html>"), "<body>{x@y.de}S</body></html>");
    assert_eq!(shown("<html><body>x@y.de</html>"), "<html><body>{x@y.de}S</html>");
    assert_eq!(shown("a@b.de,c@d.de;&lt;e@f.de&gt;"), "{a@b.de}S,{c@d.de};&lt;{e@f.de}&gt;");
    assert_eq!(shown("x@y@z.de a@b.de@c"), "x@{y@z.de}S {a@b.de}@c");
    assert_eq!(shown("联系a@b.de谢谢"), "联系{a@b.de}S谢谢");
    assert_eq!(shown("a@b..de a@-b.de a@xn--p1ai.xn--p1ai"), "a@b..de a@-b.de {a@xn--p1ai.xn--p1ai}S");
}

#[test]
fn what_the_script_does_not_find_stays() {
    let html =
        "<template><p>a@b.de<a href='mailto:a@b.de'>x</a><template></template><b>a@b.de</b></template>";
    assert_eq!(rewritten(html), html);
    assert_eq!(shown("<template>a@b.de</template>c@d.de"), "<template>a@b.de</template>{c@d.de}S");
    assert!(shown("<template></template><a href='mailto:a@b.de'>x</a>").contains("data-fg-email"));
}

#[test]
fn what_is_no_address_stays() {
    let long = format!("{}@b.de {}@b.de", "a".repeat(65), "x".repeat(500));
    let domain = format!("a@{}.de", "b.".repeat(130));
    for html in [
        "no address @ all, @b.de, a@, .a@b.de, a.@b.de, a@b, a@1.2.3.4",
        "<img src=x> logo@2x.png",
        &long,
        &domain,
        "<p title='a@b.de'>x</p>",
        "",
    ] {
        assert_eq!(rewritten(html), html);
    }
    let longest = format!("{}@b.de", "a".repeat(64));
    assert_eq!(shown(&longest), format!("{{{longest}}}S"));
}

#[test]
fn scripts_styles_comments_and_form_controls_are_left_alone() {
    for html in [
        "<script>a@b.de</script>",
        "<style>a@b.de</style>",
        "<!-- a@b.de -->",
        "<textarea>a@b.de</textarea>",
        "<title>a@b.de</title>",
        "<noscript>a@b.de</noscript>",
        "<xmp>a@b.de</xmp><iframe>a@b.de</iframe>",
        "<svg><text>a@b.de</text></svg>",
        "<math><mi>a@b.de</mi></math>",
        "<select><option>a@b.de</option></select>",
        "<!--email_off-->a@b.de<a href=mailto:a@b.de>x</a><!--/email_off-->",
        "<!-- email_off -->a@b.de",
    ] {
        assert_eq!(rewritten(html), html, "{html}");
    }
    assert_eq!(shown("<svg>a@b.de<g></g></svg>a@b.de"), "<svg>a@b.de<g></g></svg>{a@b.de}S");
    assert_eq!(
        shown("<!--email_off-->a@b.de<!--/email_off-->a@b.de"),
        "<!--email_off-->a@b.de<!--/email_off-->{a@b.de}S"
    );
}

#[test]
fn links_carry_what_they_had() {
    let out = rewritten("<a class=x HREF='MailTo:a@b.de?subject=A&amp;B%20c'>me</a>");
    let (_, code) = out.split_once("data-fg-email=\"").unwrap();
    let script = format!("<script src={SCRIPT_PATH} defer></script>");
    assert!(out.starts_with(&format!("{script}<a class=x HREF=\"#\" data-fg-email=\"")), "{out}");
    assert_eq!(decoded(code.split('"').next().unwrap()), "a@b.de?subject=A&B%20c");
    for html in ["<a href=mailto:>x</a>", "<a href=https://a@b.de>x</a>", "<a name=mailto:a@b.de>"] {
        assert_eq!(rewritten(html), html);
    }
    for (link, whole) in [
        ("ü@b.de", "ü@b.de"),
        ("a@b.de?subject=Gr&uuml;&szlig;e&amp;body=5&nbsp;&#8364;", "a@b.de?subject=Grüße&body=5\u{a0}€"),
        ("J&ouml;rg%20&lt;a@b.de&gt;", "Jörg%20<a@b.de>"),
        ("a@b.de?subject=a&notin=b", "a@b.de?subject=a&notin=b"),
    ] {
        let out = rewritten(&format!("<a href='mailto:{link}'>x</a>"));
        let (_, code) = out.split_once("data-fg-email=\"").unwrap();
        assert_eq!(decoded(code.split('"').next().unwrap()), whole);
    }
    // Addresses that would not decode to the original.
    for html in [
        &b"<a href='mailto:a@b.de?subject=a&euro;b'>x</a>"[..],
        b"<a href='mailto:a@b.de?subject=Gr\xfcn'>x</a>",
    ] {
        for kind in ["text/html; charset=utf-8", "text/html; charset=koi8-r"] {
            let make = || Boxed(of(vec![Arc::new(Emails::new(PLACEHOLDER))], kind).filter);
            assert_eq!(filtered_at_every_split(make, html).unwrap(), html);
        }
    }
}

#[test]
fn the_script_is_there_whatever_comes_behind_the_first_address() {
    for address in ["<p>a@b.de</p>", "<a href='mailto:a@b.de'>x</a>"] {
        let html = format!("{address}<svg/><style></style><img src='{}'>c@d.de", "x".repeat(600_000));
        let filtered = of(vec![Arc::new(Emails::new(PLACEHOLDER))], "text/html; charset=utf-8");
        let mut chain = foregate_module::Chain::new(vec![filtered]);
        let mut out = Vec::new();
        chain.write(html.as_bytes(), &mut out).unwrap();
        chain.end(&mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert_eq!((out.matches("<script").count(), out.contains("c@d.de")), (1, true), "{address}");
    }
}

#[test]
fn the_script_is_served_for_long() {
    let settings = Settings::from_nodes(&[], &mut foregate_module::testing::Literals::default()).unwrap();
    let Verdict::Stop(Action::Respond(response)) = Sample::get(SCRIPT_PATH).run(&Script, &settings) else {
        panic!()
    };
    assert_eq!((response.status, &*response.body), (200, SCRIPT.as_bytes()));
    assert!(response.fields.iter().any(|field| field.name() == b"cache-control"));
    let mut again = Sample::get(SCRIPT_PATH).field("if-none-match", SCRIPT_TAG);
    let Verdict::Stop(Action::Respond(response)) = again.run(&ScriptAlone, &ScriptSettings) else { panic!() };
    assert_eq!((response.status, response.body.len()), (304, 0));
    assert_eq!(Sample::get("/").run(&Script, &settings), Verdict::Continue);
    assert_eq!(Sample::get(SCRIPT_PATH).method("POST").run(&Script, &settings), Verdict::Continue);
}

#[test]
fn what_looks_like_an_address_by_its_second_bytes_is_none() {
    let make = || Boxed(of(vec![Arc::new(Emails::new(PLACEHOLDER))], "text/html; charset=shift_jis").filter);
    let html = b"<p>a\x83@b.de x@y.de \x83\x5c</p>";
    let out = filtered_at_every_split(make, html).unwrap();
    assert!(out.starts_with(b"<p>a\x83@b.de <span"), "{}", String::from_utf8_lossy(&out));
    assert!(out.windows(7).any(|bytes| bytes == b" \x83\x5c</p>"));
}

#[test]
fn links_are_found_as_browsers_read_them() {
    for link in ["mail\nto:a@b.de", "&#109;ailto&colon;a@b&period;de", " \tMAILTO:a@b\r.de"] {
        let out = rewritten(&format!("<a href=\"{link}\">x</a>"));
        let (_, code) = out.split_once("data-fg-email=\"").expect(link);
        assert_eq!(decoded(code.split('"').next().unwrap()), "a@b.de", "{link}");
        assert!(!out.to_ascii_lowercase().contains("mail\nto"), "{out}");
    }
}
