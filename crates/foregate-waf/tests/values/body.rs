//! Bodies taken apart.

use foregate_waf::body::{
    BodyError, BodyLimits, Documents, File, Multipart, Sink, multipart, urlencoded, xml,
};
use proptest::prelude::*;

/// One document of JSON.
pub(crate) fn json(
    body: &[u8],
    whole: bool,
    limits: &BodyLimits,
    sink: &mut dyn Sink,
) -> Result<(), BodyError> {
    foregate_waf::body::json(body, Documents::One, whole, limits, sink)
}

/// The emitted values, as text.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct SeenParameters(pub(crate) Vec<String>);

pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

impl Sink for SeenParameters {
    fn argument(&mut self, name: &[u8], value: &[u8]) {
        self.0.push(format!("{}={}", text(name), text(value)));
    }

    fn file(&mut self, file: &File<'_>) {
        self.0.push(format!("file {} {}: {}", text(file.name), text(file.filename), text(file.content)));
    }

    fn multipart_name(&mut self, name: &[u8]) {
        self.0.push(format!("name {}", text(name)));
    }

    fn multipart_filename(&mut self, filename: &[u8]) {
        self.0.push(format!("filename {}", text(filename)));
    }

    fn part_header(&mut self, part: &[u8], line: &[u8]) {
        self.0.push(format!("header {} {}", text(part), text(line)));
    }

    fn text(&mut self, piece: &[u8]) {
        self.0.push(format!("text {}", text(piece)));
    }

    fn attribute(&mut self, value: &[u8]) {
        self.0.push(format!("attribute {}", text(value)));
    }
}

pub(crate) const FEW: BodyLimits = BodyLimits { arguments: 3, depth: 3, files: 1, unclear_files: false };

#[test]
fn json_values_are_under_their_paths() {
    let cases: &[(&str, &[&str])] = &[
        (r#"{"a":{"b":[1,"x"]},"c":true}"#, &["json.a.b.array_0=1", "json.a.b.array_1=x", "json.c=true"]),
        (
            r#"[[1],{"k":null},[],{}]"#,
            &["json.array_0.array_0=1", "json.array_1.k=", "json.array_2=", "json.array_3="],
        ),
        // Names of which nothing else would tell.
        (
            r#"{"a":{},"b":[{}],"c":[[]],"":{},"__proto__":{ }}"#,
            &["json.a=", "json.b.array_0=", "json.c.array_0=", "json.empty-key=", "json.__proto__="],
        ),
        ("{}", &[]),
        ("[ ]", &[]),
        (r#"{"a":1,"a":2,"":3}"#, &["json.a=1", "json.a=2", "json.empty-key=3"]),
        (r#""alone""#, &["json=alone"]),
        (" -0.5e+10 ", &["json=-0.5e+10"]),
        (
            r#""\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00""#,
            &[r#"json=\"\\/\x08\x0c\n\r\tA\xc3\xa9\xf0\x9f\x98\x80"#],
        ),
        (r#""\ud83d\u0041\udc00\u0000""#, &[r"json=\xef\xbf\xbdA\xef\xbf\xbd\x00"]),
        (r#"{"\u0061b":"x\ny"}"#, &[r"json.ab=x\ny"]),
        ("[false ,\n\ttrue]", &["json.array_0=false", "json.array_1=true"]),
    ];
    for (body, expected) in cases {
        let mut seen = SeenParameters::default();
        json(body.as_bytes(), true, &BodyLimits::default(), &mut seen).unwrap();
        assert_eq!(seen.0, *expected, "{body}");
    }
    let mut seen = SeenParameters::default();
    json(format!("[{}0]", "1,".repeat(120)).as_bytes(), true, &BodyLimits::default(), &mut seen).unwrap();
    assert_eq!((seen.0[10].as_str(), seen.0[120].as_str()), ("json.array_10=1", "json.array_120=0"));
}

#[test]
fn json_that_is_none_is_an_error_with_its_place() {
    let cases: &[(&[u8], &str)] = &[
        (b"", "ends too early"),
        (b"{\"a\":1", "ends too early"),
        (b"\"abc", "ends too early"),
        (b"\"ab\\", "ends too early"),
        (b"tru", "ends too early"),
        (b"1.", "ends too early"),
        (b"{\"a\" 1}", "`1` at byte 5 instead of `:`"),
        (b"{a:1}", "`a` at byte 1 instead of a name or `}`"),
        (b"{\"a\":1,}", "`}` at byte 7 instead of a name"),
        (b"{,\"a\":1}", "`,` at byte 1 instead of a name or `}`"),
        (b"{\"a\":1 \"b\":2}", "instead of `,` or `}`"),
        (b"[1,]", "`]` at byte 3 instead of a value"),
        (b"[,1]", "`,` at byte 1 instead of a value"),
        (b"[1 2]", "`2` at byte 3 instead of `,` or `]`"),
        (b"1 2", "`2` at byte 2 instead of the end"),
        (b"01", "`1` at byte 1 instead of the end"),
        (b"-a", "`a` at byte 1 instead of a digit"),
        (b"trux", "instead of `true`"),
        (b"\"a\nb\"", "`\\n` at byte 2"),
        (b"\"\\q\"", "instead of an escape"),
        (b"\"\\u00g0\"", "`g` at byte 5 instead of a hexadecimal digit"),
        (b"\"a\xffb\"", "what starts at byte 2 is not UTF-8"),
        (b"[1]\xff", "what starts at byte 3 is not UTF-8"),
        (b"\xef\xbb\xbf\xef\xbb\xbf1", "instead of white space"),
        (b"\0{\0\"\0a\0\"\0:\x001\0}", "UTF-16"),
        (b"[[[[1]]]]", "more than 3 levels: depth limit exceeded"),
        (b"[1,2,3,4]", "more than 3 values"),
        (b"[[],{},[],{}]", "more than 3 values"),
    ];
    for (body, expected) in cases {
        let error = json(body, true, &FEW, &mut SeenParameters::default()).unwrap_err().to_string();
        assert!(
            error.starts_with("JSON parsing error: ") && error.contains(expected),
            "{}: {error}",
            text(body)
        );
    }
    assert!(json(b"[[[1,2,3]]]", true, &FEW, &mut SeenParameters::default()).is_ok());
    let long = format!("{{\"{}\":1}}", "a".repeat(10_000));
    assert!(
        json(long.as_bytes(), true, &FEW, &mut SeenParameters::default())
            .unwrap_err()
            .to_string()
            .contains("longer than")
    );
}

/// A truncated body has no error of its own, and its values are seen.
#[test]
fn a_part_of_a_document_is_taken_as_far_as_it_goes() {
    for cut in [&b"[1,2,"[..], b"[1,2,\"abc", b"[1,2,\"a\xc3", b"[1,2,{\"a", b"[1,2"] {
        let mut seen = SeenParameters::default();
        assert_eq!(json(cut, false, &BodyLimits::default(), &mut seen), Ok(()), "{}", text(cut));
        assert_eq!(seen.0, ["json.array_0=1", "json.array_1=2"]);
    }
    assert!(json(b"[1,}", false, &BodyLimits::default(), &mut SeenParameters::default()).is_err());
    for cut in
        ["<a x='1'>t<b", "<a x='1'>t</", "<a x='1'>t<!-- x", "<a x='1'>t<b y='", "<a x='1'>t<![CDATA[u"]
    {
        let mut seen = SeenParameters::default();
        assert_eq!(xml(cut.as_bytes(), false, false, &BodyLimits::default(), &mut seen), Ok(()), "{cut}");
        assert_eq!(seen.0, ["attribute 1", "text t"], "{cut}");
    }
}

#[test]
fn xml_is_texts_and_attributes() {
    let cases: &[(&str, &[&str])] = &[
        ("<a>x<b c='1' d=\"2\">y</b>z</a>", &["text x", "attribute 1", "attribute 2", "text y", "text z"]),
        ("\u{feff}<?xml version='1.0'?><!-- c --><a/><!-- d -->\n", &[]),
        ("<a>&lt;&gt;&amp;&quot;&apos;&#65;&#x42;</a>", &["text <>&\\\"\\'AB"]),
        ("<a b='&lt;&#10;'/>", &["attribute <\\n"]),
        ("<a><![CDATA[<b>&amp;]]></a>", &["text <b>&amp;"]),
        // Attributes that no element shows have the values that the document type says.
        (
            "<!DOCTYPE a [<!ENTITY b 'c]>'> <!-- '> --> <!ATTLIST a x CDATA '&#60;y'>]><a>d</a>",
            &["attribute c]>", "text c]>", "attribute <y", "text <y", "text d"],
        ),
        ("<!DOCTYPE a [ <!ELEMENT a (#PCDATA|b)*> <?p ]> ' ?> <!-- ]> \" --> ] ><a>d</a>", &["text d"]),
        ("<?xml version='1.0' encoding = 'ISO-8859-15'?><a>d</a>", &["text d"]),
        ("<?xml version=\"1.0\" encoding=\"EUC-JP\" standalone=\"yes\"?><a>d</a>", &["text d"]),
        ("<?xml version=\"1.0\" encoding=\"windows-1252\" ?><a>d</a>", &["text d"]),
        ("<?xml version=\"1.0\" encoding=\"Latin1\"?><a>d</a>", &["text d"]),
        ("<?xml version=\"1.0\" encoding=\"latin-10\"?><a>d</a>", &["text d"]),
        ("<ns:a xmlns:ns='u'\n></ns:a >", &["attribute u"]),
        ("<a>x<!-- --><?p i?>y</a>", &["text x", "text y"]),
    ];
    for (body, expected) in cases {
        let mut seen = SeenParameters::default();
        assert_eq!(xml(body.as_bytes(), true, false, &BodyLimits::default(), &mut seen), Ok(()), "{body}");
        assert_eq!(seen.0, *expected, "{body}");
    }
}

#[test]
fn xml_elements_are_arguments_where_asked_for() {
    let mut seen = SeenParameters::default();
    xml(b"<a>x<b>1&amp;2</b><c/>y<d><e>3</e></d></a>", true, true, &BodyLimits::default(), &mut seen)
        .unwrap();
    let arguments: Vec<_> = seen.0.iter().filter(|line| line.starts_with("xml")).collect();
    assert_eq!(arguments, ["xml.a.b=1&2", "xml.a.c=", "xml.a.d.e=3"]);
}

#[test]
fn xml_that_is_none_is_an_error_with_its_place() {
    let cases: &[(&str, &str)] = &[
        ("", "ends too early"),
        ("<a>", "ends too early"),
        ("<a", "ends too early"),
        ("<a><b></a></b>", "the end of another element at byte 6"),
        ("</a>", "an end without beginning"),
        ("<a/><b/>", "a second element"),
        ("x<a/>", "text outside of the document's element at byte 0"),
        ("<a/>x", "text outside of the document's element at byte 4"),
        ("<![CDATA[x]]><a/>", "text outside"),
        ("<a b>", "an attribute without value"),
        ("<a b=c>", "a value without quotes"),
        ("<a b='<'/>", "`<` in the value"),
        ("<a b='1'c='2'/>", "no white space before an attribute"),
        ("<a / >", "`/` within a tag"),
        ("<a></a b>", "something in an end tag"),
        ("<1a/>", "no name"),
        ("<a>&b;</a>", "an entity that is not known here at byte 3"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "an entity that is not known here"),
        ("<a>&#0;</a>", "no character"),
        ("<a>&#xd800;</a>", "no character"),
        ("<a>&#;</a>", "no character"),
        ("<a>& b</a>", "a reference without end"),
        ("<a>&amp</a>", "a reference without end"),
        ("<a>\u{1}</a>", "a character that XML does not allow at byte 3"),
        ("<a><!ELEMENT b></a>", "a declaration"),
        ("<a><!DOCTYPE a></a>", "a declaration"),
        ("<a><b><c><d/></c></b></a>", "more than 3 levels"),
        ("<a b='1' c='2' d='3' e='4'/>", "more than 3 attributes"),
        ("<!DOCTYPE a [<!ENTITY b '1'><!ENTITY c '2'><!ENTITY d '3'><!ENTITY e '4'>]><a/>", "more than 3"),
        ("<?xml version='1.0' encoding='UTF-7'?><a>+ADw-b+AD4-</a>", "an encoding that is not known here"),
        ("<?xml version='1.0' encoding='latin-greek-1'?><a/>", "an encoding that is not known here"),
        ("<?xml version='1.0' encoding='latin'?><a/>", "an encoding that is not known here"),
        ("<?xml version=\"1.0\"\tencoding=\"utf-16\"?><a/>", "an encoding that is not known here"),
        ("<!DOCTYPE a SYSTEM \"file:///x\"><a/>", "something that stands elsewhere at byte 12"),
        ("<!DOCTYPE a PUBLIC '-//x' \"file:///x\"><a/>", "something that stands elsewhere"),
        ("<!DOCTYPE a [<!ENTITY e SYSTEM 'file:///x'>]><a/>", "something that stands elsewhere"),
        ("<!DOCTYPE a [<!NOTATION n PUBLIC 'x'>]><a/>", "something that stands elsewhere"),
        ("<!DOCTYPE a [<!ENTITY % p '<!ELEMENT a ANY>'>]><a/>", "a parameter entity"),
        ("<!DOCTYPE a [%p;]><a/>", "a parameter entity"),
        ("<!DOCTYPE a [<![IGNORE[]]>]><a/>", "no name"),
        ("<!DOCTYPE a [<a>]><a/>", "a declaration that is not known here"),
        ("<!DOCTYPE a [<!ELEMENT a -- ' -- ANY>]><a/>", "no name"),
        ("<!DOCTYPE a [] []><a/>", "something in a document type"),
        ("<!DOCTYPE a 'x'><a/>", "something in a document type"),
        ("<?xml encoding=ibm037 ?><a/>", "an encoding that is not known here"),
        ("<?xml encoding=utf-8 ?><a/>", "an encoding that is not known here"),
        ("<?xml version='1.0encodingutf-8' encoding='UTF-7'?><a/>", "an encoding that is not known here"),
        ("<?xml version=' encoding=\"utf-8\"' encoding='UTF-7'?><a/>", "an encoding that is not known here"),
    ];
    for (body, expected) in cases {
        let error =
            xml(body.as_bytes(), true, false, &FEW, &mut SeenParameters::default()).unwrap_err().to_string();
        assert!(error.starts_with("XML parsing error: ") && error.contains(expected), "{body}: {error}");
    }
}

/// A document type ends here where it ends for other parsers.
#[test]
fn nothing_in_a_document_type_hides_what_comes_behind_it() {
    let cases: &[(&str, &[&str])] = &[
        ("<!DOCTYPE a [<?x ]><a/><!-- ?>]><a>evil</a><!-- -->", &["text evil"]),
        ("<!DOCTYPE a [<?x \" ?>]><a>e<?q?>vil</a><?y \" ]><a/><?z ?>", &["text e", "text vil"]),
        ("<!DOCTYPE a [<!-- ]><a/> ?> ' -->]><a>evil</a><!-- ' -->", &["text evil"]),
    ];
    for (body, expected) in cases {
        let mut seen = SeenParameters::default();
        assert_eq!(xml(body.as_bytes(), true, false, &BodyLimits::default(), &mut seen), Ok(()), "{body}");
        assert_eq!(seen.0, *expected, "{body}");
    }
    let outside =
        "<!DOCTYPE a [<?x ]><a/><!-- ?><!ENTITY e SYSTEM \"file:///etc/passwd\">]><a>&e;</a><!-- -->";
    assert!(
        xml(outside.as_bytes(), true, false, &BodyLimits::default(), &mut SeenParameters::default()).is_err()
    );
}

/// The second byte of a character in these charsets may end markup: a comment here would be text for others.
#[test]
fn xml_in_letters_whose_second_half_is_ascii_is_an_error() {
    let names =
        ["Shift_JIS", "shift-jis", "SJIS", "GBK", "gb2312", "GB18030", "Big5", "Big5-HKSCS", "EUC-CN"];
    for name in names.into_iter().chain(["windows-31j", "Windows-932", "windows-936", "windows-950"]) {
        let mut body = format!("<?xml version=\"1.0\" encoding=\"{name}\"?><a><![CDATA[").into_bytes();
        body.extend_from_slice(b"\x81]]><!-- ' OR 1=1 -- -->]]></a>");
        let error = xml(&body, true, false, &BodyLimits::default(), &mut SeenParameters::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("an encoding that is not known here"), "{name}: {error}");
    }
}

pub(crate) const TYPE: &[u8] = b"multipart/form-data; boundary=B";

/// Checks an outcome.
type Flag = fn(&Multipart) -> bool;

fn form(body: &str) -> (Multipart, Vec<String>) {
    let mut seen = SeenParameters::default();
    let outcome = multipart(TYPE, body.as_bytes(), true, &BodyLimits::default(), &mut seen);
    (outcome, seen.0)
}

pub(crate) fn part(header: &str, content: &str) -> String {
    format!("--B\r\nContent-Disposition: form-data; {header}\r\n\r\n{content}\r\n")
}

#[test]
fn multipart_forms_are_arguments_and_files() {
    let file = "--B\r\ncontent-disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\nContent-Type: text/plain\r\n\r\na\r\n--b\r\n\r\n";
    let body = part("name=\"a\"", "1\r\n2") + file + &part("name=b", "") + "--B--\r\n";
    let (outcome, seen) = form(&body);
    assert_eq!(
        seen,
        [
            "name a",
            "header a Content-Disposition: form-data; name=\\\"a\\\"",
            "a=1\\r\\n2",
            "name f",
            "header f content-disposition: form-data; name=\\\"f\\\"; filename=\\\"x.txt\\\"",
            "header f Content-Type: text/plain",
            "filename x.txt",
            "file f x.txt: a\\r\\n--b\\r\\n",
            "name b",
            "header b Content-Disposition: form-data; name=b",
            "b=",
        ]
    );
    assert!(!outcome.strict_error(), "{outcome:?}");
    assert_eq!((outcome.unmatched_boundary, outcome.crlf_line, outcome.mixed_lines()), (2, true, false));
    // Headers with the empty lines behind them, and texts.
    let headers: usize = [42, 2, 60, 26, 2, 40, 2].iter().sum();
    assert_eq!(outcome.length_without_files, headers + "1\r\n2".len());
}

/// Parts that are files to some parsers and texts to others, if that is enabled; and parts without a valid header.
#[test]
fn files_that_are_texts_to_some() {
    let seen = |header: &str, unclear_files| {
        let limits = BodyLimits { unclear_files, ..BodyLimits::default() };
        let mut seen = SeenParameters::default();
        let body = format!("--B\r\nContent-Disposition: form-data; {header}\r\n\r\n1\r\n--B--\r\n");
        let outcome = multipart(TYPE, body.as_bytes(), true, &limits, &mut seen);
        let seen: Vec<_> = seen.0.into_iter().filter(|line| !line.starts_with("header")).collect();
        (outcome.strict_error(), seen)
    };
    let typed = "\r\nContent-Type: text/plain";
    let quoted = "name=\"a\"; filename=\"x\"";
    let file = ["name a", "filename x", "file a x: 1"].map(str::to_owned).to_vec();
    let both = [file.clone(), vec!["a=1".to_owned()]].concat();
    assert_eq!(seen(&format!("{quoted}{typed}"), true), (false, file.clone()));
    assert_eq!(seen(quoted, false), (false, file.clone()));
    assert_eq!(seen(quoted, true), (false, both.clone()));
    assert_eq!(seen(&format!("{quoted}\r\nContent-Type: "), true), (false, both.clone()));
    assert_eq!(seen(&format!("name=\"a\"; filename=x{typed}"), true), (false, both.clone()));
    assert_eq!(seen("name=a; filename=x; filename*=utf-8''x", false), (false, file));
    assert_eq!(seen(&format!("name=\"a\"; filename=\"x\"; size=1{typed}"), false), (true, both));
    let names = ["name a", "filename x", "filename y", "file a x: 1"].map(str::to_owned).to_vec();
    assert_eq!(seen("name=a; filename=x; filename*=utf-8''%79", false), (false, names));
    let word = ["name =?utf-8?q?a?=", "=?utf-8?q?a?==1", "a=1"].map(str::to_owned).to_vec();
    assert_eq!(seen("name=\"=?utf-8?q?a?=\"", false), (false, word));
    // To some a line ends there.
    for end in ["\u{85}", "\u{2028}", "\u{2029}"] {
        assert!(seen(&format!("name=\"a\"; filename=\"x{end}\""), false).0);
    }
    assert!(!seen("name=\"a\u{e9}\u{2027}\"", false).0);
}

/// A body, the flag that it sets, and its values.
#[test]
fn what_is_wrong_with_a_form_is_said() {
    let good = part("name=a", "1");
    let end = "--B--\r\n";
    let cases: Vec<(String, Flag)> = vec![
        (format!("\n{good}{end}"), |form| form.data_before && form.lf_line),
        (format!("x\n{good}{end}"), |form| form.data_before && form.lf_line),
        (format!("x\r{good}{end}"), |form| form.error.is_some()),
        // To some the parts go on.
        (format!("{good}{end}{good}{end}"), |form| form.data_after && form.error.is_some()),
        (format!("{good}{end}x--B"), |form| form.data_after && form.error.is_some()),
        (good.replace("\r\n", "\n") + "--B--\n", |form| form.lf_line),
        (good.replacen("--B\r\n", "--B\n", 1) + end, |form| form.lf_line && form.mixed_lines()),
        (good.replace("1\r\n", "1\n") + end, |form| form.lf_line),
        (good.replace("; name", ";\r\n name") + end, |form| {
            form.header_folding && !form.invalid_header_folding
        }),
        (good.replace("; name", ";\r\n\x0b name") + end, |form| form.invalid_header_folding),
        (part("name='a'", "1") + end, |form| form.invalid_quoting),
        (part("name=\"a\"b\"", "1") + end, |form| form.error.is_some()),
        // To some the quote behind two backslashes is escaped, and there is no file.
        (part("name=\"a\\\\\"; filename=\"x\"", "1") + end, |form| form.invalid_quoting),
        (part("size=1", "1") + end, |form| form.invalid_part && form.error.is_some()),
        (good.replace("\r\n\r\n1", "") + end, |form| form.invalid_part),
        (good.replace("\r\n\r\n1\r\n", "\r\n\r\n") + end, |form| form.invalid_part),
        (good.replace("Content-Disposition", "X") + end, |form| form.error.is_some()),
        (good.replace("Content-Disposition:", "Content-Disposition\u{e}:") + end, |form| {
            form.error.is_some()
        }),
        (good.replace("Content-Disposition:", "Content Disposition:") + end, |form| form.error.is_some()),
        (good.replace("Content-", ": x\r\nContent-") + end, |form| form.error.is_some()),
        (good.replace("Content-", "x\r\nContent-") + end, |form| form.error.is_some()),
        (good.replace("Content-", " x\r\nContent-") + end, |form| {
            form.error.is_some() && form.header_folding
        }),
        (good.replace("Content-", "A: 1\r\na: 2\r\nContent-") + end, |form| form.error.is_some()),
        (good.replace("Content-", "A: \0\r\nContent-") + end, |form| form.error.is_some()),
        (good.replace("Content-", &format!("A: {}\r\nContent-", "x".repeat(5000))) + end, |form| {
            form.error.is_some()
        }),
        (good.replace("Content-", &("A: b\r\n".repeat(70) + "Content-")) + end, |form| form.error.is_some()),
        (good.clone(), |form| form.error.is_some()),
        (good.clone() + "--B", |form| form.error.is_some()),
        (good.clone() + "--Bx\r\n" + end, |form| form.error.is_some() && form.unmatched_boundary == 2),
        // Some divide parts wherever the boundary stands, or behind a CR.
        (good.replace("1\r\n", "1--B\r\n") + end, |form| form.error.is_some()),
        (good.replace("1\r\n", "1\r--B\r\n") + end, |form| form.error.is_some()),
        (good.replace("1\r\n", "--1--Bx\r\n") + end, |form| form.error.is_some()),
        (good.replace("Content-", "A: --B\r\nContent-") + end, |form| form.error.is_some()),
        (good.replace("\r\n\r\n1", "\r\nX: y\r\r1\r\n\r\n") + end, |form| form.error.is_some()),
        (good.replace("Content-", "A: \x0b\r\nContent-") + end, |form| form.error.is_some()),
        (good.replace("Content-", "A: \x7f\r\nContent-") + end, |form| form.error.is_some()),
        (good.clone() + "-- B\r\n" + end, |form| form.error.is_some()),
        ("a=1".to_owned(), |form| form.error.is_some() && form.data_before),
    ];
    for (body, flag) in cases {
        let (outcome, _) = form(&body);
        assert!(flag(&outcome), "{}: {outcome:?}", text(body.as_bytes()));
        assert!(outcome.strict_error(), "{}", text(body.as_bytes()));
    }
    // Text that nobody reads (RFC 2046 section 5.1.1).
    for before in ["This is a message with multiple parts in MIME format.\r\n", "\r\n\r\n", "--A\r\n\r\n"] {
        let (outcome, seen) = form(&format!("{before}{good}{end}"));
        assert!(outcome.data_before && !outcome.strict_error(), "{before}");
        assert_eq!(seen.last().unwrap(), "a=1");
    }
    for after in ["x", "\r\nx", "\r\n\r\n"] {
        let (outcome, _) = form(&format!("{good}{end}{after}"));
        assert!(outcome.data_after && !outcome.strict_error(), "{after}");
    }
    // The line ends that belong to a boundary.
    assert!(!form(&(good.clone() + end)).0.strict_error());
    assert!(!form(&format!("\r\n{good}{end}\r\n")).0.strict_error());
    let (unmatched, _) = form(&(good.replace("\r\n1", "\r\n--A") + "--B--"));
    assert_eq!((unmatched.unmatched_boundary, unmatched.strict_error()), (2, false));
    let (inside, _) = form(&good.replace("\r\n1", "\r\nx--B"));
    assert_eq!(inside.unmatched_boundary, 1);
}

/// Rules also see the content of a malformed part.
#[test]
fn what_is_in_a_wrong_part_is_not_hidden() {
    let (_, seen) = form("--B\r\n\u{e}X: y\r\n\r\nattack\r\n--B--\r\n");
    assert_eq!(seen, ["header  \\x0eX: y", "=attack"]);
    let (_, seen) = form("--B\r\nContent-Disposition: form-data; name=a; oops\r\n\r\nattack");
    assert_eq!(seen.last().unwrap(), "a=attack");
}

#[test]
fn a_form_that_was_cut_has_no_error() {
    let body = part("name=a", "123");
    let mut seen = SeenParameters::default();
    let outcome =
        multipart(TYPE, &body.as_bytes()[..body.len() - 3], false, &BodyLimits::default(), &mut seen);
    assert!(!outcome.strict_error(), "{outcome:?}");
    assert_eq!(seen.0.last().unwrap(), "a=12");
}

#[test]
fn boundaries_come_from_the_content_type() {
    let body = part("name=a", "1").into_bytes();
    let body = [&body[..], b"--B--"].concat();
    #[rustfmt::skip]
    let good: &[(&str, Flag)] = &[
        ("multipart/form-data; boundary=B", |form| !form.strict_error()),
        ("Multipart/Form-Data;boundary=B", |form| !form.strict_error()),
        ("multipart/form-data; Boundary=B", |form| !form.strict_error()),
        ("multipart/form-data; BOUNDARY=\"B\"", |form| !form.strict_error()),
        ("multipart/form-data; boundary=B; charset=utf-8", |form| !form.strict_error()),
        ("multipart/form-data; boundary=\"B\"", |form| form.boundary_quoted && !form.strict_error()),
        ("multipart/form-data; charset=utf-8; boundary=B", |form| !form.strict_error()),
        ("multipart/form-data; x=1 ; boundary=B ;", |form| !form.strict_error()),
        ("multipart/form-data; boundary =B", |form| form.boundary_whitespace && form.error.is_none()),
        ("multipart/form-data boundary=B", |form| form.missing_semicolon && form.error.is_none()),
    ];
    for (content_type, flag) in good {
        let mut seen = SeenParameters::default();
        let outcome = multipart(content_type.as_bytes(), &body, true, &BodyLimits::default(), &mut seen);
        assert!(flag(&outcome), "{content_type}: {outcome:?}");
        assert_eq!(seen.0.last().unwrap(), "a=1", "{content_type}");
    }
    #[rustfmt::skip]
    let bad = [
        ("text/plain; boundary=B", "MIME type"),
        ("multipart/; boundary=B", "MIME type"),
        ("multipart/form-data", "not found"),
        ("multipart/form-data; boundary=B; boundary=C", "Multiple"),
        ("multipart/form-data; boundary=B; boundary=B", "Multiple"),
        ("multipart/form-data; boundary=B; x=boundary", "Multiple"),
        ("multipart/form-data; x=\"boundary=C\"; boundary=B", "Multiple"),
        ("multipart/form-data; boundary=\"B boundary =C\"", "Multiple"),
        ("multipart/form-data; boundary", "malformed"),
        ("multipart/form-data; x; boundary=B", "malformed"),
        ("multipart/form-data, boundary=B", "malformed"),
        ("multipart/form-data; boundary=\"B\"x", "malformed"),
        ("multipart/form-data; boundary x=B", "parameter name"),
        ("multipart/form-data; boundary*=B", "parameter name"),
        ("multipart/form-data; xboundary=B", "parameter name"),
        ("multipart/form-data; boundary=\"B", "quote"),
        ("multipart/form-data; boundary=B\"", "quote"),
        ("multipart/form-data; boundary=\"B\\C\"", "quote"),
        ("multipart/form-data; boundary=", "empty"),
        ("multipart/form-data; boundary=\"\"", "empty"),
        ("multipart/form-data; boundary=B@C", "characters"),
        ("multipart/form-data; boundary=\"B \"", "characters"),
        ("multipart/form-data; boundary=B(C)", "characters"),
        ("multipart/form-data; boundary=B C", "characters"),
        ("multipart/form-data; boundary=\"B;C\"", "characters"),
    ];
    for (content_type, what) in bad {
        let outcome = multipart(
            content_type.as_bytes(),
            &body,
            true,
            &BodyLimits::default(),
            &mut SeenParameters::default(),
        );
        let error = outcome.error.expect(content_type).to_string();
        assert!(error.contains(what), "{content_type}: {error}");
    }
    let long = [TYPE, &b"x".repeat(2000)].concat();
    assert!(
        multipart(&long, &body, true, &BodyLimits::default(), &mut SeenParameters::default()).error.is_some()
    );
}

fn values() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~\u{e9}\u{1f600}\n\t\"\\\\]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-c\u{e9}\"]{0,3}", inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn expected(path: &str, value: &serde_json::Value, out: &mut Vec<String>) {
    use serde_json::Value;
    let mut leaf = |value: &str| out.push(format!("{}={}", text(path.as_bytes()), text(value.as_bytes())));
    match value {
        Value::Null => leaf(""),
        Value::Bool(value) => leaf(&value.to_string()),
        Value::Number(value) => leaf(&value.to_string()),
        Value::String(value) => leaf(value),
        Value::Array(values) if values.is_empty() && path != "json" => leaf(""),
        Value::Object(members) if members.is_empty() && path != "json" => leaf(""),
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                expected(&format!("{path}.array_{at}"), value, out);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                let name = if name.is_empty() { "empty-key" } else { name };
                expected(&format!("{path}.{name}"), value, out);
            }
        }
    }
}

proptest! {
    /// Every document that another crate writes, however it is spaced.
    #[test]
    fn json_is_read_as_it_was_written(value in values(), pretty in any::<bool>()) {
        let body = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) };
        let mut seen = SeenParameters::default();
        json(&body.expect("a document"), true, &BodyLimits::default(), &mut seen).expect("a document");
        let mut wanted = Vec::new();
        expected("json", &value, &mut wanted);
        prop_assert_eq!(seen.0, wanted);
    }

    /// Accepts the documents that another crate accepts, and refuses those that it refuses.
    #[test]
    fn json_is_what_another_crate_takes_for_it(body in "[\\[\\]{}:,\"a1.eE+\\-0 \\\\untrlfs]{0,12}") {
        let ours = json(body.as_bytes(), true, &BodyLimits::default(), &mut SeenParameters::default());
        // That crate checks the range of numbers; ours does not.
        let theirs = serde_json::from_str::<serde_json::Value>(&body);
        let range = theirs.as_ref().is_err_and(|error| error.to_string().contains("out of range"));
        let surrogate = body.contains("\\u");
        prop_assert!(range || surrogate || ours.is_ok() == theirs.is_ok(), "{:?} {:?}", ours, theirs);
    }

    /// Every body is split or refused, and a truncated one never has values that the whole lacks.
    #[test]
    fn any_body_is_taken_apart(body in prop_oneof![
        "[<>/a='\" &;#x0!\\[\\]?\\-]{0,40}".prop_map(String::into_bytes),
        "(--B|\r\n|\n|Content-Disposition: form-data; name=\"a\"|filename=x|;|--|a|: |\t){0,20}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..60),
    ]) {
        for whole in [true, false] {
            let _ = xml(&body, whole, true, &FEW, &mut SeenParameters::default());
            let _ = json(&body, whole, &FEW, &mut SeenParameters::default());
            let _ = urlencoded(&body, b'&', &FEW, &mut SeenParameters::default());
            let mut seen = SeenParameters::default();
            let outcome = multipart(TYPE, &body, whole, &FEW, &mut seen);
            prop_assert!(outcome.length_without_files <= body.len());
        }
    }
}
