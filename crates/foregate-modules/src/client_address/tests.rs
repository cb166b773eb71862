use alloc::format;

use super::*;
use foregate_module::testing::{Literals, Sample, node, settings};

fn trust(header: &str) -> TrustedProxies {
    settings(&[node("trusted-proxies")
        .arg_literal("10.0.0.0/8")
        .arg_literal("2001:db8:1::/48")
        .prop_literal("header", header)])
    .unwrap()
}

/// The effective client, for requests from 10.0.0.1 with these fields.
fn client(header: &str, values: &[&str]) -> alloc::string::String {
    client_from("10.0.0.1", header, values)
}

fn client_from(peer: &str, header: &str, values: &[&str]) -> alloc::string::String {
    let mut sample = Sample::get("/").from(peer).field("host", "example.com");
    for value in values {
        sample = sample.field(header, value);
    }
    sample.run(&ClientAddress, &trust(header));
    sample.client.map_or("none".into(), |client| client.to_string())
}

#[test]
fn nobody_is_believed_who_is_not_trusted() {
    assert_eq!(client_from("192.0.2.9", "x-forwarded-for", &["1.2.3.4"]), "192.0.2.9");
    let mut sample = Sample::get("/").from("192.0.2.9").field("x-forwarded-for", "1.2.3.4");
    sample.run(&ClientAddress, &trust("x-forwarded-for"));
    assert_eq!(sample.value::<PeerTrusted>(), Some(&false));
    let mut sample = Sample::get("/").from("::ffff:10.0.0.1").field("x-forwarded-for", "1.2.3.4");
    sample.run(&ClientAddress, &trust("x-forwarded-for"));
    assert_eq!(sample.value::<PeerTrusted>(), Some(&true));
    assert_eq!(sample.client, "1.2.3.4".parse().ok());
}

#[test]
fn the_list_is_walked_from_the_right() {
    let name = "x-forwarded-for";
    assert_eq!(client(name, &["6.6.6.6, 1.2.3.4, 10.0.0.7"]), "1.2.3.4");
    assert_eq!(client(name, &["6.6.6.6, 1.2.3.4", "10.0.0.7"]), "1.2.3.4");
    assert_eq!(client(name, &["10.0.0.9, 10.0.0.7"]), "10.0.0.9");
    assert_eq!(client(name, &[]), "10.0.0.1");
    assert_eq!(client(name, &["", " , "]), "10.0.0.1");
    assert_eq!(client(name, &["1.2.3.4:5555"]), "1.2.3.4");
    assert_eq!(client(name, &["[2001:db8::1]:443"]), "2001:db8::1");
    assert_eq!(client(name, &["6.6.6.6,[2001:db8::1]"]), "2001:db8::1");
    assert_eq!(client(name, &["2001:db8::1, 2001:db8:1::2"]), "2001:db8::1");
    assert_eq!(client(name, &["::ffff:1.2.3.4"]), "1.2.3.4");
    assert_eq!(client("x-real-ip", &["1.2.3.4"]), "1.2.3.4");
    assert_eq!(client("CF-Connecting-IP", &["1.2.3.4"]), "1.2.3.4");
}

#[test]
fn the_walk_stops_at_garbage() {
    let name = "x-forwarded-for";
    assert_eq!(client(name, &["1.2.3.4, unknown"]), "10.0.0.1");
    assert_eq!(client(name, &["1.2.3.4, unknown, 10.0.0.7"]), "10.0.0.7");
    for garbage in [
        "_hidden",
        "1.2.3",
        "01.2.3.4",
        "1.2.3.4.",
        "[::1",
        "1.2.3.4:99999",
        "1.2.3.4:",
        "a.example",
        "1.2.3.4 5.6.7.8",
        "0x7f.1",
    ] {
        assert_eq!(client(name, &[garbage]), "10.0.0.1", "{garbage}");
    }
}

#[test]
fn the_scheme_is_taken_where_it_is_asked_for() {
    let scheme = |peer: &str, header: &str, scheme: Option<&str>, fields: &[(&str, &str)]| {
        let key = node("trusted-proxies").arg_literal("10.0.0.0/8").prop_literal("header", header);
        let key = scheme.into_iter().fold(key, |key, name| key.prop_literal("scheme-header", name));
        let mut sample = Sample::get("/").from(peer).field("host", "example.com");
        for (name, value) in fields {
            sample = sample.field(name, value);
        }
        sample.run(&ClientAddress, &settings(&[key]).unwrap());
        sample.secure
    };
    let list = |scheme_header, value| {
        scheme("10.0.0.1", "x-forwarded-for", scheme_header, &[("X-Forwarded-Proto", value)])
    };
    assert_eq!(list(None, "https"), None, "nobody has asked");
    for (value, secure) in [
        ("https", Some(true)),
        ("HTTPS", Some(true)),
        ("wss", Some(true)),
        ("http", Some(false)),
        ("https, http", Some(false)),
        ("http,https ", Some(true)),
        ("https,", Some(true)),
        ("http, ,", Some(false)),
        ("on", Some(true)),
        ("ftp", None),
        ("", None),
    ] {
        assert_eq!(list(Some("x-forwarded-proto"), value), secure, "{value}");
    }
    let name = Some("x-forwarded-proto");
    assert_eq!(scheme("192.0.2.1", "x-forwarded-for", name, &[("x-forwarded-proto", "https")]), None);
    let twice = [("x-forwarded-proto", "http"), ("x-forwarded-proto", "https")];
    assert_eq!(scheme("10.0.0.1", "x-forwarded-for", name, &twice), Some(true), "the last was written last");
    let forwarded = |value| scheme("10.0.0.1", "forwarded", Some("forwarded"), &[("forwarded", value)]);
    assert_eq!(forwarded("for=1.2.3.4;proto=https, for=10.0.0.2;proto=http"), Some(true), "the client's own");
    assert_eq!(forwarded("for=1.2.3.4;proto=https, for=5.6.7.8"), None);
    assert_eq!(forwarded("for=1.2.3.4;proto=https;proto=http"), None);
    assert_eq!(forwarded("proto=\"https\";for=1.2.3.4"), Some(true));
    assert_eq!(forwarded("for=unknown;proto=https"), Some(true), "of whomever");
    assert_eq!(forwarded("proto=https"), Some(true));
    assert_eq!(forwarded("for=1.2.3.4;proto=http, for=_hidden;proto=https"), Some(true));
}

#[test]
fn the_scheme_is_in_the_elements_that_have_the_address() {
    let key = node("trusted-proxies").arg_literal("10.0.0.0/8").prop_literal("scheme-header", "forwarded");
    let error = settings::<TrustedProxies>(&[key]).unwrap_err();
    assert_eq!(error.message, "the scheme is in `Forwarded`, and the address is not");
}

#[test]
fn the_walk_is_bounded() {
    let mut list = "1.2.3.4".to_string();
    for number in 0..HOPS_LIMIT {
        list.push_str(&format!(", 10.1.0.{number}"));
    }
    assert_eq!(client("x-forwarded-for", &[&list]), "10.1.0.0");
}

#[test]
fn forwarded_is_read_as_its_standard_says() {
    let name = "forwarded";
    assert_eq!(client(name, &["for=1.2.3.4"]), "1.2.3.4");
    assert_eq!(
        client(name, &["for=6.6.6.6, For=\"1.2.3.4:80\";proto=https;by=10.0.0.1 , for=10.0.0.7"]),
        "1.2.3.4"
    );
    assert_eq!(client(name, &["for=\"[2001:db8::1]:4711\""]), "2001:db8::1");
    assert_eq!(client(name, &["for=\"[2001:db8::1]\";host=\"a,b;for=\\\"6.6.6.6\""]), "2001:db8::1");
    assert_eq!(client(name, &["host=x;for=1.2.3.4;"]), "1.2.3.4");
    for garbage in [
        "for=unknown",
        "for=_hidden",
        "for=\"_hidden\"",
        "for=\"2001:db8::1\"",
        "for=[2001:db8::1]",
        "for=1.2.3.4:80",
        "for=1.2.3.4;for=5.6.7.8",
        "by=1.2.3.4",
        "1.2.3.4",
        "for=",
        "for=\"1.2.3.4",
        "for=\"1.2.3.4\"x",
        "=1.2.3.4",
        "f or=1.2.3.4",
    ] {
        assert_eq!(client(name, &[garbage]), "10.0.0.1", "{garbage}");
    }
}

#[test]
fn a_quote_that_a_client_leaves_open_hides_nothing() {
    let name = "forwarded";
    assert_eq!(client(name, &["for=\"6.6.6.6, for=1.2.3.4"]), "1.2.3.4");
    assert_eq!(client(name, &["for=6.6.6.6;x=\", for=\"1.2.3.4\""]), "1.2.3.4");
    assert_eq!(client(name, &["for=\"6.6.6.6\\\", for=10.0.0.7, for=10.0.0.8"]), "10.0.0.7");
}

#[test]
fn peers_on_unix_sockets_are_trusted_when_told_so() {
    let mut sample = Sample::get("/").field("x-forwarded-for", "1.2.3.4");
    (sample.client, sample.peer) = (None, None);
    sample.run(&ClientAddress, &trust("x-forwarded-for"));
    assert_eq!(sample.client, None);
    let unix: TrustedProxies = settings(&[node("trusted-proxies").arg_literal("unix")]).unwrap();
    sample.run(&ClientAddress, &unix);
    assert_eq!(sample.client, "1.2.3.4".parse().ok());
}

#[test]
fn networks_come_from_words_and_files() {
    let mut context = Literals {
        files: Vec::from([("cdn.txt", b"192.0.2.0/24\n# and\n2001:db8::/32".to_vec())]),
        ..Literals::default()
    };
    let key = node("trusted-proxies").arg_literal("private").prop_literal("file", "cdn.txt");
    let trusted = TrustedProxies::from_nodes(&[key], &mut context).unwrap();
    assert_eq!(trusted.header, Header::List("x-forwarded-for".into()));
    for address in ["127.0.0.1", "192.168.1.1", "::1", "192.0.2.77", "2001:db8::5"] {
        assert!(trusted.trusts(address.parse().ok()), "{address}");
    }
    assert!(!trusted.trusts("8.8.8.8".parse().ok()));
    assert!(!trusted.trusts(None));
}

#[test]
fn mistakes_are_told() {
    let told = |node: Node| settings::<TrustedProxies>(&[node]).unwrap_err().message;
    let key = || node("trusted-proxies");
    assert_eq!(told(key()), "`trusted-proxies` needs at least one network");
    assert_eq!(
        told(key().arg_literal("10.0.0.1/8")),
        "the address has bits beyond the prefix; the network is 10.0.0.0/8"
    );
    assert_eq!(
        told(key().arg_literal("all")),
        "expected an address or a network, such as 192.0.2.1 or 10.0.0.0/8"
    );
    assert_eq!(
        told(key().arg_literal("unix").prop_literal("header", "a b")),
        "this is not the name of a field"
    );
}

proptest::proptest! {
    /// The entry that the trusted proxy appends counts, regardless of the client's input.
    #[test]
    fn clients_cannot_speak_for_proxies(claim in "[ -~]{0,40}") {
        let claim = claim.trim();
        proptest::prop_assert_eq!(client("x-forwarded-for", &[&format!("{claim}, 1.2.3.4")]), "1.2.3.4");
        proptest::prop_assert_eq!(client("forwarded", &[&format!("{claim}, for=1.2.3.4;proto=http")]), "1.2.3.4");
        proptest::prop_assert_eq!(client("forwarded", &[&format!("{claim}, for=\"[2001:db8::1]\";by=\"x\"")]), "2001:db8::1");
    }
}
