//! Forms as the HTTP libraries that are used most write them: types, boundaries, headers of parts, ends of bodies.

use foregate_waf::body::{BodyLimits, multipart};

use crate::body::SeenParameters;

/// A library, the `Content-Type` that it sends, its boundary, its body with `B` for the boundary, and the names of the fields and
/// files in it.
type Form = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

const TEXT: &str = "Content-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n";

#[rustfmt::skip]
const FORMS: &[Form] = &[
    ("curl", "multipart/form-data; boundary=------------------------d74496d66958873e", "------------------------d74496d66958873e",
     "--B\r\n{T}--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\nContent-Type: text/plain\r\n\r\n2\r\n--B--\r\n", &["a", "f"]),
    ("curl with an encoder", "multipart/form-data; boundary=------------------------d74496d66958873e", "------------------------d74496d66958873e",
     "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Transfer-Encoding: base64\r\n\r\nMQ==\r\n--B--\r\n", &["a"]),
    ("Chrome", "multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW", "----WebKitFormBoundary7MA4YWxkTrZu0gW",
     "--B\r\n{T}--B\r\nContent-Disposition: form-data; name=\"f%22\"; filename=\"x.txt\"\r\nContent-Type: application/octet-stream\r\n\r\n2\r\n--B--\r\n", &["a", "f%22"]),
    ("Firefox", "multipart/form-data; boundary=----geckoformboundary1c04a1e41d4a4b0c8c2ef2ae4b0e0d35", "----geckoformboundary1c04a1e41d4a4b0c8c2ef2ae4b0e0d35",
     "--B\r\n{T}--B--\r\n", &["a"]),
    ("Firefox, with a charset", "multipart/form-data; boundary=----geckoformboundary1c04a1e41d4a4b0c8c2ef2ae4b0e0d35;charset=UTF-8", "----geckoformboundary1c04a1e41d4a4b0c8c2ef2ae4b0e0d35",
     "--B\r\n{T}--B--\r\n", &["a"]),
    ("Firefox before 128", "multipart/form-data; boundary=---------------------------9051914041544843365972754266", "---------------------------9051914041544843365972754266",
     "--B\r\n{T}--B--\r\n", &["a"]),
    ("python-requests", "multipart/form-data; boundary=8b1cd2ad1f7a4c4b9c4d5a6b7c8d9e0f", "8b1cd2ad1f7a4c4b9c4d5a6b7c8d9e0f",
     "--B\r\n{T}--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.bin\"\r\n\r\n2\r\n--B--\r\n", &["a", "f"]),
    ("aiohttp", "multipart/form-data; boundary=b1d9e2c2f0ab4d1e8d4ab0a5d5d0e1f2", "b1d9e2c2f0ab4d1e8d4ab0a5d5d0e1f2",
     "--B\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--B\r\nContent-Type: application/octet-stream\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\n\r\n2\r\n--B--\r\n", &["a", "f"]),
    ("httpx", "multipart/form-data; boundary=4a5d3c1e0f9b8a7c6d5e4f3a2b1c0d9e", "4a5d3c1e0f9b8a7c6d5e4f3a2b1c0d9e",
     "--B\r\n{T}--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\nContent-Type: text/plain\r\n\r\n2\r\n--B--\r\n", &["a", "f"]),
    ("okhttp", "multipart/form-data; boundary=3c4b1c0e-9a63-4a4f-8a0e-6f1a9d9c2b11", "3c4b1c0e-9a63-4a4f-8a0e-6f1a9d9c2b11",
     "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Length: 1\r\n\r\n1\r\n--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\n2\r\n--B--\r\n", &["a", "f"]),
    ("Retrofit", "multipart/form-data; boundary=3c4b1c0e-9a63-4a4f-8a0e-6f1a9d9c2b11", "3c4b1c0e-9a63-4a4f-8a0e-6f1a9d9c2b11",
     "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Transfer-Encoding: binary\r\nContent-Type: application/json; charset=UTF-8\r\nContent-Length: 1\r\n\r\n1\r\n--B--\r\n", &["a"]),
    ("Apache HttpClient", "multipart/form-data; boundary=EsdWmdLOm3xHkOgjTEl5CdMVn6BPXs5XkT0", "EsdWmdLOm3xHkOgjTEl5CdMVn6BPXs5XkT0",
     "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: text/plain; charset=ISO-8859-1\r\nContent-Transfer-Encoding: 8bit\r\n\r\n1\r\n--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary\r\n\r\n2\r\n--B--\r\n", &["a", "f"]),
    ("Apache HttpClient with a charset", "multipart/form-data; boundary=EsdWmdLOm3xHkOgjTEl5CdMVn6BPXs5XkT0; charset=UTF-8", "EsdWmdLOm3xHkOgjTEl5CdMVn6BPXs5XkT0",
     "--B\r\n{T}--B--\r\n", &["a"]),
    ("Apache HttpClient 5", "multipart/form-data; charset=UTF-8; boundary=httpclient_boundary_9c3f5b7e-1f6e-4f5b-8a53-2f0e9f6d7a10", "httpclient_boundary_9c3f5b7e-1f6e-4f5b-8a53-2f0e9f6d7a10",
     "--B\r\n{T}--B--\r\n", &["a"]),
    ("HttpURLConnection for Android", "multipart/form-data;boundary=*****", "*****",
     "--B\r\nContent-Disposition: form-data; name=\"uploaded_file\";filename=\"x.png\"\r\n\r\n2\r\n--B--\r\n", &["uploaded_file"]),
    ("HttpURLConnection by a utility class", "multipart/form-data; boundary====1437222345===", "===1437222345===",
     "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: text/plain; charset=UTF-8\r\n\r\n1\r\n--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.png\"\r\nContent-Type: image/png\r\nContent-Transfer-Encoding: binary\r\n\r\n2\r\n\r\n--B--\r\n", &["a", "f"]),
    (".NET HttpClient", "multipart/form-data; boundary=\"c3e1b5d8-4a42-4be7-a0a3-1e2d6f8b9c0a\"", "c3e1b5d8-4a42-4be7-a0a3-1e2d6f8b9c0a",
     "--B\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--B\r\nContent-Disposition: form-data; name=f; filename=x.txt; filename*=utf-8''x.txt\r\n\r\n2\r\n--B--\r\n", &["a", "f"]),
    (".NET WebClient", "multipart/form-data; boundary=---------------------8dc4e5f0a1b2c3d", "---------------------8dc4e5f0a1b2c3d",
     "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.txt\"\r\nContent-Type: application/octet-stream\r\n\r\n2\r\n--B--\r\n", &["file"]),
    ("JavaMail", "multipart/form-data; boundary=\"----=_Part_0_1330966.1234567890123\"", "----=_Part_0_1330966.1234567890123",
     "--B\r\nContent-Type: text/plain; charset=us-ascii\r\nContent-Transfer-Encoding: 7bit\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--B--\r\n", &["a"]),
    ("JavaMail, encoded", "multipart/form-data; boundary=\"----=_Part_0_1330966.1234567890123\"", "----=_Part_0_1330966.1234567890123",
     "--B\r\nContent-Type: text/plain; charset=UTF-8\r\nContent-Transfer-Encoding: quoted-printable\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n=C3=A4\r\n--B--\r\n", &["a"]),
    ("form-data for Node, axios, Postman", "multipart/form-data; boundary=--------------------------123456789012345678901234", "--------------------------123456789012345678901234",
     "--B\r\n{T}--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\nContent-Type: text/plain\r\n\r\n2\r\n--B--\r\n", &["a", "f"]),
    ("axios", "multipart/form-data; boundary=axios-1.7.9-boundary-aB3dE5fG7hI9jK1lM3nO5pQ7r", "axios-1.7.9-boundary-aB3dE5fG7hI9jK1lM3nO5pQ7r",
     "--B\r\n{T}--B--\r\n\r\n", &["a"]),
    ("undici", "multipart/form-data; boundary=----formdata-undici-012345678901", "----formdata-undici-012345678901",
     "--B\r\n{T}--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"blob\"\r\nContent-Type: application/octet-stream\r\n\r\n2\r\n--B--", &["a", "f"]),
    ("Go", "multipart/form-data; boundary=5a1f0c4e9f3b7d2c8e6a1b0d4c3f2e1a9b8c7d6e5f4a3b2c1d0e9f8a7b6c", "5a1f0c4e9f3b7d2c8e6a1b0d4c3f2e1a9b8c7d6e5f4a3b2c1d0e9f8a7b6c",
     "--B\r\n{T}--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x \\\"y\\\".txt\"\r\nContent-Type: application/octet-stream\r\n\r\n2\r\n--B--\r\n", &["a", "f"]),
    ("Go with a boundary of its own", "multipart/form-data; boundary=\"a b/c\"", "a b/c", "--B\r\n{T}--B--\r\n", &["a"]),
    ("reqwest", "multipart/form-data; boundary=1a2b3c4d5e6f7a8b-1a2b3c4d5e6f7a8b-1a2b3c4d5e6f7a8b-1a2b3c4d5e6f7a8b", "1a2b3c4d5e6f7a8b-1a2b3c4d5e6f7a8b-1a2b3c4d5e6f7a8b-1a2b3c4d5e6f7a8b",
     "--B\r\n{T}--B\r\nContent-Disposition: form-data; name*=utf-8''b%20c; filename=\"x.txt\"\r\nContent-Type: text/plain\r\n\r\n2\r\n--B--\r\n", &["a", "b c"]),
    ("Faraday, multipart-post", "multipart/form-data; boundary=-----------RubyMultipartPost-5f1e2d3c4b5a6978", "-----------RubyMultipartPost-5f1e2d3c4b5a6978",
     "--B\r\n{T}--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\nContent-Length: 1\r\nContent-Type: text/plain\r\nContent-Transfer-Encoding: binary\r\n\r\n2\r\n--B--\r\n\r\n", &["a", "f"]),
    ("rest-client", "multipart/form-data; boundary=----RubyFormBoundaryaB3dE5fG7hI9jK1l", "----RubyFormBoundaryaB3dE5fG7hI9jK1l",
     "--B\r\n{T}--B--\r\n", &["a"]),
    ("Guzzle", "multipart/form-data; boundary=0f1e2d3c4b5a69788796a5b4c3d2e1f001234567", "0f1e2d3c4b5a69788796a5b4c3d2e1f001234567",
     "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Length: 1\r\n\r\n1\r\n--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\nContent-Length: 1\r\nContent-Type: text/plain\r\n\r\n2\r\n--B--\r\n", &["a", "f"]),
    ("RestSharp before 107", "multipart/form-data; boundary=-----------------------------28947758029299", "-----------------------------28947758029299",
     "--B\r\n{T}--B--\r\n", &["a"]),
    ("RestSharp", "multipart/form-data; boundary=\"formboundary-c3e1b5d8\"", "formboundary-c3e1b5d8",
     "--B\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--B--\r\n", &["a"]),
    ("Alamofire", "multipart/form-data; boundary=alamofire.boundary.0a1b2c3d4e5f6a7b", "alamofire.boundary.0a1b2c3d4e5f6a7b",
     "--B\r\n{T}--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x.png\"\r\nContent-Type: image/png\r\n\r\n2\r\n--B--\r\n", &["a", "f"]),
    ("http for Dart", "multipart/form-data; boundary=dart-http-boundary-_+.aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7bC", "dart-http-boundary-_+.aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7bC",
     "--B\r\ncontent-disposition: form-data; name=\"a\"\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-transfer-encoding: binary\r\n\r\n1\r\n--B\r\ncontent-type: application/octet-stream\r\ncontent-disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\n2\r\n--B--\r\n", &["a", "f"]),
    ("dio for Dart", "multipart/form-data; boundary=--dio-boundary-1234567890", "--dio-boundary-1234567890",
     "--B\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n1\r\n--B--\r\n", &["a"]),
    ("Unity", "multipart/form-data; boundary=\"aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7b\"", "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7b",
     "\r\n--B\r\nContent-Type: text/plain; charset=\"utf-8\"\r\nContent-disposition: form-data; name=\"a\"\r\n\r\n1\r\n--B--\r\n", &["a"]),
    ("a charset first", "multipart/form-data; charset=UTF-8; boundary=x", "x", "--B\r\n{T}--B--\r\n", &["a"]),
    ("a charset in quotes", "multipart/form-data; charset=\"utf-8\"; boundary=\"x\";", "x", "--B\r\n{T}--B--\r\n", &["a"]),
];

/// The bytes of a form.
pub(crate) fn body(boundary: &str, pattern: &str) -> String {
    let text = pattern.replace("{T}", TEXT);
    let delimiter = format!("--{boundary}");
    text.replace("--B", &delimiter)
}

#[test]
fn forms_of_real_clients_are_read() {
    for (client, kind, boundary, pattern, names) in FORMS {
        let body = body(boundary, pattern);
        let mut seen = SeenParameters::default();
        let outcome = multipart(kind.as_bytes(), body.as_bytes(), true, &BodyLimits::default(), &mut seen);
        assert!(!outcome.strict_error() && !outcome.over_limit, "{client}: {outcome:?}");
        let read: Vec<_> = seen.0.iter().filter_map(|line| line.strip_prefix("name ")).collect();
        assert_eq!(read, *names, "{client}");
        assert!(seen.0.iter().any(|line| line.starts_with("a=") || line.starts_with("file ")), "{client}");
    }
}

/// The recommended rules let them pass.
#[test]
fn forms_of_real_clients_pass_the_recommended_rules() {
    use foregate_waf::engine::{Compile, Engine, Options, Transaction, Verdict};
    use foregate_waf::seclang::{NoFiles, Source, load};

    let source = Source::text("recommended.conf", foregate_waf::RECOMMENDED);
    let rules = load(&[source], &mut NoFiles).expect("rules");
    let engine = std::sync::Arc::new(Engine::compile(rules, Compile::default()).expect("a plan"));
    let ask = |kind: &str, body: &str| {
        let mut transaction = Transaction::new(&engine, Options::default());
        transaction.request_line(b"POST", b"/", b"HTTP/1.1");
        transaction.request_field(b"Host", b"example.com");
        transaction.request_field(b"Content-Type", kind.as_bytes());
        transaction.request_headers();
        transaction.request_body(body.as_bytes(), true)
    };
    for (client, kind, boundary, pattern, _) in FORMS {
        assert_eq!(ask(kind, &body(boundary, pattern)), Verdict::Pass, "{client}");
    }
    // As the standard has it, or as many write it.
    for (kind, boundary) in [
        ("multipart/form-data; Boundary=x", "x"),
        ("multipart/form-data; BOUNDARY=\"x\"", "x"),
        ("multipart/form-data; boundary=x/y:z=1", "x/y:z=1"),
        ("multipart/form-data; boundary=----=_Part_1_2.3", "----=_Part_1_2.3"),
    ] {
        for around in ["{}", "This is a multi-part message in MIME format.\r\n{}", "{}epilogue"] {
            let body = around.replace("{}", &body(boundary, "--B\r\n{T}--B--\r\n"));
            assert_eq!(ask(kind, &body), Verdict::Pass, "{kind} {around}");
        }
    }
    // Boundaries that two programs read differently are refused.
    for kind in [
        "multipart/form-data; boundary=x; boundary=y",
        "multipart/form-data; boundary*=utf-8''x",
        "multipart/form-data; boundary*0=x",
        "multipart/form-data; boundary=x; boundary*=utf-8''y",
        "multipart/form-data; charset=\"; boundary=y\"; boundary=x",
        "multipart/form-data; boundary=x; charset=\"; boundary=y\"",
        "multipart/form-data; boundary=\"x; boundary=y\"",
        "multipart/form-data; xboundary=y; boundary=x",
        "multipart/form-data; boundary=\"x\\\"y\"",
        "multipart/form-data; boundary=\"x\"y",
        "multipart/form-data; boundary='x'; charset=utf-8, boundary=y",
        "multipart/form-data; boundary=x, multipart/form-data; boundary=y",
        "multipart/form-data; boundary=x y",
        "multipart/form-data; charset=utf-7; boundary=x",
    ] {
        assert_ne!(ask(kind, &body("x", "--B\r\n{T}--B--\r\n")), Verdict::Pass, "{kind}");
    }
}
