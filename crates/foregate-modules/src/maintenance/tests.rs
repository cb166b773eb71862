use foregate_module::testing::{Literals, Sample, node};
use foregate_module::{Action, Verdict};

use super::*;
use crate::test_expressions::literals;

fn read(node: Node) -> Result<MaintenanceSettings, Problem> {
    let mut literals = Literals { files: Vec::from([("down.html", b"<p>down</p>".to_vec())]), ..literals() };
    MaintenanceSettings::from_nodes(&[node], &mut literals)
}

fn allowing(networks: &[&str]) -> Node {
    let allow = networks.iter().fold(node("allow"), |node, network| node.arg_literal(*network));
    node("maintenance").with_child(allow)
}

fn answer(mut sample: Sample, settings: &MaintenanceSettings) -> Option<Response> {
    match sample.run(&Maintenance, settings) {
        Verdict::Stop(Action::Respond(response)) => Some(response),
        _ => None,
    }
}

#[test]
fn everybody_gets_the_page() {
    let settings = read(node("maintenance").prop_literal("retry-after", "10m")).unwrap();
    let response = answer(Sample::get("/"), &settings).unwrap();
    assert_eq!((response.status, &*response.body), (503, &b"Down for maintenance\n"[..]));
    let fields: Vec<_> =
        response.fields.iter().map(|field| (field.name().to_vec(), field.value().to_vec())).collect();
    let expected = [
        ("content-type", "text/plain; charset=utf-8"),
        ("cache-control", "no-store"),
        ("retry-after", "600"),
    ];
    assert_eq!(fields, expected.map(|(name, value)| (name.into(), value.into())));

    let page =
        node("maintenance").arg_literal(true).prop_literal("page", "down.html").prop_literal("status", 200);
    let response = answer(Sample::get("/"), &read(page).unwrap()).unwrap();
    assert_eq!((response.status, &*response.body), (200, &b"<p>down</p>"[..]));
    assert_eq!(response.fields[0].value(), b"text/html; charset=utf-8");
}

#[test]
fn a_page_of_the_configuration_is_meant() {
    let meant = |node: Node| answer(Sample::get("/"), &read(node).unwrap()).unwrap().meant;
    assert!(meant(node("maintenance").prop_literal("page", "down.html")));
    assert!(meant(node("maintenance").prop_literal("body", "later")));
    assert!(!meant(node("maintenance")));
}

#[test]
fn who_is_allowed_sees_the_site() {
    let settings = read(allowing(&["192.0.2.0/25", "203.0.113.7", "2001:db8::/33", "0.0.0.0/32"])).unwrap();
    for (client, allowed) in [
        ("192.0.2.0", true),
        ("192.0.2.127", true),
        ("192.0.2.128", false),
        ("::ffff:192.0.2.1", true),
        ("203.0.113.7", true),
        ("203.0.113.8", false),
        ("2001:db8:7fff::1", true),
        ("2001:db8:8000::1", false),
    ] {
        assert_eq!(answer(Sample::get("/").from(client), &settings).is_none(), allowed, "{client}");
    }
    let mut unix = Sample::get("/");
    unix.client = None;
    assert!(answer(unix, &settings).is_some());
    let all = read(allowing(&["0.0.0.0/0"])).unwrap();
    assert!(answer(Sample::get("/"), &all).is_none());
    assert!(answer(Sample::get("/").from("::1"), &all).is_some(), "no IPv6 was allowed");
}

#[test]
fn requests_can_be_let_through() {
    let settings =
        read(node("maintenance").with_child(node("unless").arg_literal("field x-tester"))).unwrap();
    assert!(answer(Sample::get("/"), &settings).is_some());
    assert!(answer(Sample::get("/").field("x-tester", "1"), &settings).is_none());
}

#[test]
fn ipv4_in_ipv6_is_ipv4() {
    let settings = read(allowing(&["::ffff:127.0.0.0/104"])).unwrap();
    assert!(answer(Sample::get("/").from("127.0.0.1"), &settings).is_none());
    assert!(answer(Sample::get("/").from("128.0.0.1"), &settings).is_some());
}

#[test]
fn mistakes_are_told() {
    const NO_NETWORK: &str = "expected an address or a network, such as 192.0.2.1 or 10.0.0.0/8";
    for (node, message) in [
        (allowing(&["192.0.2.1/24"]), "the address has bits beyond the prefix; the network is 192.0.2.0/24"),
        (allowing(&["192.0.2.0/33"]), NO_NETWORK),
        (allowing(&["192.0.2.0/+8"]), NO_NETWORK),
        (allowing(&["example.com"]), NO_NETWORK),
        (node("m").prop_literal("status", 302), "expected 200, or a status from 400 to 599"),
        (
            node("m").prop_literal("page", "down.html").prop_literal("body", "x"),
            "a page is a file or a text, not both",
        ),
        (node("m").prop_literal("page", "none.html"), "cannot read none.html"),
        (node("m").prop_literal("retry-after", "0s"), "expected a duration from 1s to 30d"),
        (
            node("m").arg_literal(false).prop_literal("status", 503),
            "`maintenance #false` takes no properties and no block",
        ),
        (
            node("m").with_child(node("unless").arg_literal("late x")),
            "`late x` is not known in phase request-identity",
        ),
    ] {
        assert_eq!(read(node).err().map(|problem| problem.message).as_deref(), Some(message));
    }
}
