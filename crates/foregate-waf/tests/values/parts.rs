//! Parts of bodies: where they end, and what is in them by their types.

use foregate_waf::body::{BodyLimits, multipart};

use super::body::{FEW, SeenParameters, TYPE, part};

/// Boundaries that many clients write without the quotes that they need: for some they end earlier, and must not be another one there.
#[test]
fn boundaries_that_end_earlier_for_some() {
    let seen = |boundary: &str, body: &str| {
        let kind = format!("multipart/form-data; boundary={boundary}");
        let body = body.replace("--B", &format!("--{boundary}"));
        let mut seen = SeenParameters::default();
        let outcome = multipart(kind.as_bytes(), body.as_bytes(), true, &BodyLimits::default(), &mut seen);
        (outcome.strict_error(), seen.0.last().cloned())
    };
    for boundary in ["x/y", "x:y", "x=y", "x?y", "x,y", "----=_Part_1_2.3", "=x", "a/b:c=d"] {
        let good = part("name=a", "1") + "--B--\r\n";
        assert_eq!(seen(boundary, &good), (false, Some("a=1".to_owned())), "{boundary}");
    }
    for (boundary, line) in [
        ("x/y", "--x\r\n"),
        ("x/y", "--x--\r\n"),
        ("x/y", "--x \r\n"),
        ("x/y", "1 --x\t\r\n"),
        ("x/y:z", "--x\n"),
        ("x,y", "1\r--x--"),
    ] {
        for hiding in [
            part("name=a", &format!("1\r\n{line}2")) + "--B--\r\n",
            line.to_owned() + "\r\n" + &part("name=a", "1") + "--B--\r\n",
            part("name=a", "1") + "--B--\r\n" + line,
        ] {
            assert!(seen(boundary, &hiding).0, "{boundary} {hiding}");
        }
    }
    let longer = part("name=a", "--xz\r\n--x/yz") + "--B--\r\n";
    assert!(seen("x/y", &longer).0, "the boundary itself within a line");
    let other = part("name=a", "--xz\r\n--x/z") + "--B--\r\n";
    assert!(!seen("x/y", &other).0);
}

/// What is in a part is read by the type that it declares.
#[test]
fn parts_are_read_as_their_types() {
    let seen = |kind: &str, body: String| {
        let mut seen = SeenParameters::default();
        let outcome = multipart(kind.as_bytes(), body.as_bytes(), true, &BodyLimits::default(), &mut seen);
        let seen: Vec<_> = seen
            .0
            .into_iter()
            .filter(|line| !line.starts_with("header") && !line.starts_with("name "))
            .collect();
        (outcome.strict_error(), outcome.hidden.is_some(), seen.join(" "))
    };
    let typed = |name: &str, kind: &str, content: &str| {
        part(&format!("{name}\r\nContent-Type: {kind}"), content) + "--B--\r\n"
    };
    let form = "multipart/form-data; boundary=B";
    for (name, kind, content, expected) in [
        ("name=m", "application/json", r#"{"a":"\u0065vil"}"#, r#"m={\"a\":\"\\u0065vil\"} m.a=evil"#),
        (
            "name=\"m\"; filename=\"blob\"",
            "application/json",
            r#"{"a":["x"]}"#,
            r#"filename blob file m blob: {\"a\":[\"x\"]} m.a.array_0=x"#,
        ),
        ("name=m", "application/x-ndjson", "1\n2", "m=1\\n2 m=1 m=2"),
        ("name=m", "application/x-www-form-urlencoded", "a=e%76il&b=1", "m=a=e%76il&b=1 a=evil b=1"),
        ("name=m", "text/xml", "<a>x<b c='d'/></a>", "m=<a>x<b c=\\'d\\'/></a> text x attribute d"),
        ("name=m", "application/json", "", "m="),
        ("name=\"m\"; filename=\"a.xml\"", "text/xml", "<a>x", "filename a.xml file m a.xml: <a>x text x"),
    ] {
        assert_eq!(seen(form, typed(name, kind, content)), (false, false, expected.to_owned()), "{kind}");
    }
    // The same refusals as for bodies; what a less strict reader sees is seen.
    for (kind, content, sees) in [
        ("application/json", "{'a':'evil'}", "m.a=evil"),
        ("application/json", "{\"a\":NaN,\"b\":\"evil\"}", "m.b=evil"),
        ("text/xml", "<a>x", "text x"),
        ("multipart/mixed", "x", "m=x"),
        ("multipart/mixed; boundary=C", "x", "m=x"),
    ] {
        let (strict, hidden, seen) = seen(form, typed("name=m", kind, content));
        assert!(strict && hidden && seen.contains(sees), "{kind} {content} {seen}");
    }
    // Parts of parts, decoded.
    let mixed = "--C\r\nContent-Disposition: attachment; filename=\"a.txt\"\r\n\r\nfile\r\n\
                 --C\r\nContent-Transfer-Encoding: base64\r\n\r\nZXZpbA==\r\n\
                 --C\r\nContent-Type: application/json\r\nContent-Transfer-Encoding: base64\r\n\r\neyJhIjoiZXZpbCJ9\r\n--C--\r\n";
    let (strict, hidden, all) = seen(form, typed("name=m", "multipart/mixed; boundary=C", mixed));
    assert!(!strict && !hidden, "{all}");
    for sees in ["file m a.txt: file", "m=evil", "m.a=evil"] {
        assert!(all.contains(sees), "{sees}: {all}");
    }
    let related =
        "--B\r\nContent-Type: application/json\r\nContent-ID: <a>\r\n\r\n{\"a\":\"evil\"}\r\n--B--\r\n";
    let (_, hidden, all) =
        seen("multipart/related; type=\"application/json\"; boundary=B", related.to_owned());
    assert!(!hidden && all.contains("json.a=evil"), "{all}");
    // Levels and values have bounds.
    let mut body = "1".to_owned();
    for level in 0..6 {
        body = format!(
            "--C{level}\r\nContent-Type: multipart/mixed; boundary=C{}\r\n\r\n{body}\r\n--C{level}--\r\n",
            level - 1
        );
    }
    assert!(seen("multipart/mixed; boundary=C5", body).1);
    let mut few = SeenParameters::default();
    let outcome = multipart(
        form.as_bytes(),
        typed("name=\"m\"; filename=\"x\"", "application/json", "[1,2,3,4]").as_bytes(),
        true,
        &FEW,
        &mut few,
    );
    assert!(outcome.over_limit && few.0.iter().filter(|line| line.starts_with("m.")).count() == 3);
}

#[test]
fn forms_have_bounds() {
    let body =
        part("name=a", "1") + &part("name=b", "2") + &part("name=c", "3") + &part("name=d", "4") + "--B--";
    let mut seen = SeenParameters::default();
    let outcome = multipart(TYPE, body.as_bytes(), true, &FEW, &mut seen);
    assert!(outcome.over_limit && !outcome.file_limit_exceeded);
    assert!(!seen.0.contains(&"d=4".to_owned()) && seen.0.contains(&"c=3".to_owned()));
    let files = part("name=a; filename=x", "1") + &part("name=b; filename=y", "2") + "--B--";
    let mut seen = SeenParameters::default();
    let outcome = multipart(TYPE, files.as_bytes(), true, &FEW, &mut seen);
    assert!(outcome.file_limit_exceeded && outcome.strict_error());
    assert_eq!(seen.0.iter().filter(|line| line.starts_with("file ")).count(), 1);
    let many = part("name=a", "1").repeat(200);
    assert!(multipart(TYPE, many.as_bytes(), true, &FEW, &mut SeenParameters::default()).error.is_some());
}
