use super::*;
use alloc::string::String;
use foregate_module::testing::{Literals, Sample, node, settings};
use foregate_module::{Action, Verdict};

fn rules(rules: &[(&str, &str)]) -> Access {
    settings(&[key(rules)]).unwrap()
}

fn key(rules: &[(&str, &str)]) -> Node {
    rules.iter().fold(node("access"), |key, (verb, who)| key.with_child(node(verb).arg_literal(*who)))
}

/// The status that a client gets, 200 for being let in.
fn status(access: &Access, client: &str, country: Option<&str>) -> u16 {
    let mut sample = Sample::get("/").from(client);
    if let Some(country) = country {
        sample.put::<Country>(country.parse().unwrap());
    }
    match sample.run(&Judge, access) {
        Verdict::Stop(Action::Respond(response)) => response.status,
        _ => 200,
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let access = rules(&[
        ("deny", "10.1.0.0/16"),
        ("allow", "10.0.0.0/8"),
        ("allow", "2001:db8::/32"),
        ("deny", "all"),
    ]);
    assert_eq!(status(&access, "10.1.2.3", None), 403);
    assert_eq!(status(&access, "10.2.0.1", None), 200);
    assert_eq!(status(&access, "2001:db8::1", None), 200);
    assert_eq!(status(&access, "192.0.2.1", None), 403);
    let turned = rules(&[("allow", "10.0.0.0/8"), ("deny", "10.1.0.0/16")]);
    assert_eq!(status(&turned, "10.1.2.3", None), 200);
    assert_eq!(status(&turned, "192.0.2.1", None), 200);
}

#[test]
fn a_refusal_is_noted() {
    let access = rules(&[("allow", "10.0.0.0/8"), ("deny", "country:de"), ("deny", "192.0.2.0/24")]);
    for (client, notes) in [("192.0.2.1", &["refused by rule 3"][..]), ("10.0.0.1", &[])] {
        let mut sample = Sample::get("/").from(client);
        sample.run(&Judge, &access);
        let noted = sample.state.notes.iter();
        let noted: Vec<String> = noted
            .map(|(name, why)| String::from_utf8_lossy(&[name, why].map(|t| &**t).concat()).into())
            .collect();
        assert_eq!(noted, notes.iter().map(|why| format!("access{why}")).collect::<Vec<_>>());
    }
}

#[test]
fn countries_stand_among_the_networks() {
    let access = rules(&[("allow", "192.0.2.1"), ("deny", "country:de"), ("deny", "192.0.2.0/24")]);
    assert_eq!(status(&access, "192.0.2.1", Some("DE")), 200);
    assert_eq!(status(&access, "198.51.100.1", Some("DE")), 403);
    assert_eq!(status(&access, "198.51.100.1", Some("FR")), 200);
    assert_eq!(status(&access, "192.0.2.2", Some("FR")), 403);
    let known = rules(&[("deny", "country:unknown")]);
    assert_eq!(status(&known, "192.0.2.1", None), 403);
    assert_eq!(status(&known, "192.0.2.1", Some("FR")), 200);
}

#[test]
fn unix_sockets_have_a_word() {
    let access = rules(&[("allow", "unix"), ("deny", "all")]);
    let mut sample = Sample::get("/");
    sample.client = None;
    assert_eq!(sample.run(&Judge, &access), Verdict::Continue);
    assert_eq!(status(&access, "127.0.0.1", None), 403);
}

#[test]
fn files_have_thousands_of_networks() {
    let mut lines = String::from("# blocked\n");
    for number in 0..20_000 {
        lines.push_str(&format!("100.{}.{}.0/25\n", number / 256, number % 256));
    }
    let mut context =
        Literals { files: Vec::from([("blocked.txt", lines.into_bytes())]), ..Literals::default() };
    let key = node("access")
        .prop_literal("status", 451)
        .with_child(node("deny").prop_literal("file", "blocked.txt"));
    let access = Access::from_nodes(&[key], &mut context).unwrap();
    assert_eq!(status(&access, "100.78.31.127", None), 451);
    assert_eq!(status(&access, "100.78.31.128", None), 200);
    assert_eq!(status(&access, "100.78.32.1", None), 200);
}

#[test]
fn mistakes_are_told() {
    let told = |node: Node| settings::<Access>(&[node]).unwrap_err().message;
    assert_eq!(told(node("access")), "`access` needs a rule");
    assert_eq!(told(node("access").arg_literal("10.0.0.0/8")), "`access` takes a block");
    assert_eq!(told(node("access").with_child(node("deny"))), "`deny` needs somebody, or file=FILE");
    assert_eq!(
        told(key(&[("deny", "everybody")])),
        "expected an address or a network, such as 192.0.2.1 or 10.0.0.0/8"
    );
    assert_eq!(
        told(key(&[("deny", "country:GER")])),
        "expected `country:` and two letters, such as country:DE"
    );
    assert_eq!(
        told(key(&[("deny", "all"), ("allow", "10.0.0.0/8")])),
        "this rule is never reached: the one before matches everybody"
    );
    assert_eq!(
        told(key(&[("deny", "10.0.0.1/8")])),
        "the address has bits beyond the prefix; the network is 10.0.0.0/8"
    );
    assert_eq!(
        told(key(&[("deny", "all")]).prop_literal("status", 200)),
        "expected a whole number from 400 to 599"
    );
}
