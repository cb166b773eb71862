use alloc::vec;

use foregate_module::testing::{Literals, Sample, node, settings};
use foregate_module::{Action, Verdict};

use super::*;

/// `secret` with bcrypt at the least cost.
const BCRYPT: &str = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
const VERIFY: usize = 1;

fn literals() -> Literals {
    Literals { steps: vec![(Verify::NAME, Steps::NONE.with(VERIFY))], ..Literals::default() }
}

fn user(name: &str, hash: &str) -> Node {
    node("user").arg_literal(name).arg_literal(hash)
}

fn read(node: Node) -> Result<Users, Problem> {
    Users::from_nodes(&[node], &mut literals())
}

fn with(users: &[(&str, &str)]) -> Users {
    read(users.iter().fold(node("basic-auth"), |node, (name, hash)| node.with_child(user(name, hash))))
        .unwrap()
}

fn asking(credentials: &str) -> Sample {
    Sample::get("/").field("authorization", &format!("Basic {}", STANDARD.encode(credentials)))
}

/// All steps, as the platform runs them; and whether credentials were verified again.
fn run(sample: &mut Sample, users: &Users) -> (Verdict, bool) {
    sample.run(&LookUp, users);
    let verified = !sample.state.skipped.contains(VERIFY);
    if verified {
        sample.run(&Verify, users);
    }
    (sample.run(&BasicAuth, users), verified)
}

fn let_in(credentials: &str, users: &Users) -> bool {
    run(&mut asking(credentials), users).0 == Verdict::Continue
}

#[test]
fn each_kind_of_hash_is_verified() {
    let argon2 = {
        use argon2::PasswordHasher;
        let params = argon2::Params::new(64, 1, 1, None).unwrap();
        Argon2Hash::from(params).hash_password_with_salt(b"secret", b"saltsaltsalt").unwrap()
    };
    // Made by `openssl passwd -6`.
    let sha512 = "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1";
    let bcrypt = bcrypt::hash_with_salt("secret", 4, *b"sixteen bytes...").unwrap();
    let bcrypt = bcrypt.format_for_version(bcrypt::Version::TwoY);
    for (hash, password) in [
        (&*bcrypt, "secret"),
        (&*format!("{argon2}"), "secret"),
        (sha512, "Hello world!"),
        ("plain:secret", "secret"),
    ] {
        let users = with(&[("ada", hash)]);
        assert!(let_in(&format!("ada:{password}"), &users), "{hash}");
        for wrong in ["", "Secret", "secret ", "hello world!"] {
            assert!(!let_in(&format!("ada:{wrong}"), &users), "{hash} {wrong}");
        }
        assert!(!let_in(&format!("bob:{password}"), &users), "{hash}");
    }
}

type Argon2Hash = argon2::Argon2<'static>;

#[test]
fn credentials_are_verified_once() {
    let hash = bcrypt::hash_with_salt("secret", 4, [7; 16]).unwrap();
    let users = with(&[("ada", &hash.format_for_version(bcrypt::Version::TwoB))]);
    assert_eq!(run(&mut asking("ada:secret"), &users), (Verdict::Continue, true));
    assert_eq!(run(&mut asking("ada:secret"), &users), (Verdict::Continue, false));
    for _ in 0..2 {
        let (verdict, verified) = run(&mut asking("ada:wrong"), &users);
        assert!(verdict != Verdict::Continue && verified, "what is wrong is not remembered");
    }
    assert!(!let_in("eve:secret", &users));
}

#[test]
fn the_cache_forgets_but_never_invents() {
    let cache = Cache::default();
    let credentials = |number: usize| {
        let text = format!("ada:{number}").into_bytes();
        Credentials { text, colon: 3 }
    };
    for number in 0..10_000 {
        assert!(!cache.holds(&credentials(number), 1));
        cache.insert(&credentials(number), 1);
        assert!(cache.holds(&credentials(number), 2), "the secret stays the first one");
    }
    let held = (0..10_000).filter(|number| cache.holds(&credentials(*number), 1)).count();
    assert!((800..=1024).contains(&held), "{held}");
}

#[test]
fn who_has_no_password_is_asked_for_one() {
    let users = read(node("basic-auth").prop_literal("realm", "the staff").with_child(user("ada", BCRYPT)));
    let users = users.unwrap();
    let mut sample = Sample::get("/");
    let (verdict, verified) = run(&mut sample, &users);
    assert!(!verified);
    let Verdict::Stop(Action::Respond(response)) = verdict else { unreachable!() };
    assert_eq!(response.status, 401);
    let challenge = response.fields.iter().find(|field| field.name() == b"www-authenticate").unwrap();
    assert_eq!(challenge.value(), b"Basic realm=\"the staff\", charset=\"UTF-8\"");
    assert_eq!(sample.state.notes, vec![("basic-auth".into(), Text::from("no credentials"))]);
}

#[test]
fn only_basic_credentials_are_understood() {
    let users = with(&[("ada", "plain:secret")]);
    let good = STANDARD.encode("ada:secret");
    for (value, understood) in [
        (format!("Basic {good}"), true),
        (format!("bAsIc   {good}"), true),
        (format!("Basic{good}"), false),
        (format!("Bearer {good}"), false),
        (format!("Basic {good}="), false),
        ("Basic".into(), false),
        (String::new(), false),
        (format!("Basic {}", STANDARD.encode("ada")), false),
        (format!("Basic {}", STANDARD.encode("a".repeat(2000) + ":")), false),
    ] {
        let mut sample = Sample::get("/").field("authorization", &value);
        assert_eq!(run(&mut sample, &users).0 == Verdict::Continue, understood, "{value}");
    }
    let twice = asking("ada:secret").field("authorization", "Basic x");
    assert_ne!(run(&mut { twice }, &users).0, Verdict::Continue);
}

#[test]
fn the_origin_is_told_the_user_and_not_the_password() {
    let node = node("basic-auth")
        .prop_literal("user-field", "x-user")
        .prop_literal("strip-authorization", true)
        .with_child(user("ada", "plain:secret"));
    let users = read(node).unwrap();
    let mut sample = asking("ada:secret").field("X-User", "root").field("x-user", "admin");
    assert_eq!(run(&mut sample, &users).0, Verdict::Continue);
    assert_eq!((&sample.request as &dyn Fields).all("x-user").collect::<Vec<_>>(), [b"ada"]);
    assert_eq!(sample.request.get("authorization"), None);
    assert_eq!(sample.value::<AuthUser>().map(|user| &**user), Some("ada"));
    assert_eq!(sample.state.notes, vec![("user".into(), Text::from("ada"))]);
}

#[test]
fn without_a_look_up_nobody_comes_in() {
    let users = with(&[("ada", "plain:secret")]);
    assert!(matches!(asking("ada:secret").run(&BasicAuth, &users), Verdict::Stop(_)));
}

#[test]
fn files_hold_a_user_on_each_line() {
    let text = format!("# staff\n\nada:{BCRYPT}\r\nbob:plain:a:b\n");
    let mut literals = Literals { files: vec![("htpasswd", text.into_bytes())], ..literals() };
    let node = node("basic-auth").prop_literal("file", "htpasswd");
    let users = Users::from_nodes(&[node], &mut literals).unwrap();
    assert_eq!(users.users.len(), 2);
    assert!(let_in("bob:a:b", &users));
    assert!(let_in("ada:secret", &users));
}

#[test]
fn mistakes_are_told_without_secrets() {
    let of_file = |text: &str| {
        let mut literals = Literals { files: vec![("f", text.as_bytes().to_vec())], ..literals() };
        Users::from_nodes(&[node("basic-auth").prop_literal("file", "f")], &mut literals)
    };
    let of_hash = |hash: &str| read(node("basic-auth").with_child(user("ada", hash)));
    for (result, message) in [
        (of_hash("secret"), "the second value is not a hash that is known"),
        (of_hash("$apr1$salt$abc"), "hashes made with MD5"),
        (of_hash("{SHA}abc"), "hashes made with SHA-1"),
        (
            of_hash("$2y$31$2JAA5opVHGa1Qev4ROFM0ukv/dI0oLgoaDbMlVbq8pY.zajzIvIaO"),
            "the cost of a bcrypt hash must be 4..=15",
        ),
        (of_hash("$2y$10$short"), "the second value is not a bcrypt hash"),
        (of_hash("$6$rounds=999999999$a$b"), "the rounds of a SHA-512-crypt hash must be 1000..=500000"),
        (of_hash("$6$salt$short"), "the second value is not a SHA-512-crypt hash"),
        (
            of_hash("$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHQ$cZn5d+rFh+ZfuRhm2iGUGg"),
            "an Argon2 hash may take",
        ),
        (of_hash("$argon2id$nonsense"), "the second value is not an Argon2 hash"),
        (of_file("ada:plain:a\nada:plain:b"), "line 2: the user `ada` is there twice"),
        (of_file("ada"), "line 1: there is no colon"),
        (of_file("a:b:c"), "line 1: this is not a hash that is known"),
        (of_file(":plain:a"), "line 1: this cannot be the name of a user"),
        (of_file(""), "`basic-auth` has no users"),
        (read(node("basic-auth")), "`basic-auth` has no users"),
        (
            read(node("basic-auth").arg_literal(true).with_child(user("a", "plain:b"))),
            "`basic-auth` takes no value but #false",
        ),
        (
            read(node("basic-auth").prop_literal("realm", "a\"b").with_child(user("a", "plain:b"))),
            "this cannot be a realm",
        ),
        (
            read(node("basic-auth").prop_literal("user-field", "te").with_child(user("a", "plain:b"))),
            "this field belongs to the connection",
        ),
    ] {
        let found = result.err().map(|problem| problem.message).unwrap_or_default();
        assert!(found.starts_with(message), "{found} instead of {message}");
    }
    let unknown = settings::<Users>(&[node("basic-auth").with_child(user("a", "plain:b"))]);
    assert!(unknown.is_err(), "the step that verifies must be part of the program");
}
