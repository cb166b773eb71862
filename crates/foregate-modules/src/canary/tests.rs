use alloc::string::ToString;
use alloc::vec::Vec;

use foregate_module::testing::{Handshake, Literals, Sample, node};

use super::*;
use crate::test_expressions::literals;

fn canary() -> Node {
    node("canary").prop_literal("upstream", "v2")
}

fn read(node: Node) -> Result<CanarySettings, Problem> {
    CanarySettings::from_nodes(&[node], &mut Literals { upstreams: Vec::from(["app", "v2"]), ..literals() })
}

fn run(mut sample: Sample, settings: &CanarySettings) -> Sample {
    sample.run(&Canary, settings);
    sample.run(&CanaryUpstream, settings);
    sample.status = Some(200);
    sample.run(&CanaryCookie, settings);
    let chosen = sample.upstream == Some(UpstreamId(1));
    assert_eq!(chosen, sample.value::<CanaryGroup>() == Some(&Side::Canary));
    sample
}

fn goes(sample: Sample, settings: &CanarySettings) -> bool {
    run(sample, settings).upstream.is_some()
}

fn drawing(random: u64) -> Sample {
    let mut sample = Sample::get("/");
    sample.random = random;
    sample
}

#[test]
fn a_share_of_the_clients_goes_and_stays() {
    let settings = read(canary().prop_literal("share", "5%").prop_literal("cookie", "c")).unwrap();
    let first = run(drawing(123_450_499), &settings);
    assert!(first.upstream.is_some(), "0499 is below 5 %");
    let cookie = first.response.get("set-cookie").unwrap();
    assert_eq!(cookie, b"c=499; Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax");
    assert_eq!(first.response.get("cache-control").unwrap(), b"private");
    assert!(!goes(drawing(500), &settings));
    let again = run(drawing(9999).field("cookie", "a=b; c=499"), &settings);
    assert!(again.upstream.is_some());
    assert_eq!(again.response.get("set-cookie"), None, "it has one");
    assert_eq!(again.response.get("cache-control"), None);
    assert!(!goes(drawing(0).field("cookie", "c=500"), &settings));
    let nonsense = run(drawing(0).field("cookie", "c=12345"), &settings);
    assert!(nonsense.upstream.is_some() && nonsense.response.get("set-cookie").is_some(), "draws anew");
    let mut tls = drawing(0);
    tls.tls = Some(Handshake::default());
    let tls = run(tls, &settings);
    assert!(tls.response.get("set-cookie").unwrap().ends_with(b"; Secure"));
}

#[test]
fn a_greater_share_moves_nobody_back() {
    let share =
        |share: &str| read(canary().prop_literal("share", share).prop_literal("cookie", "c")).unwrap();
    let shares = ["0%", "0.01%", "1%", "12.5%", "99.99%", "100%"].map(share);
    for draw in (0..10_000).step_by(7) {
        let cookie = ["c=".to_string(), draw.to_string()].concat();
        let sides: Vec<_> =
            shares.iter().map(|settings| goes(Sample::get("/").field("cookie", &cookie), settings)).collect();
        assert!(sides.is_sorted(), "{draw}: {sides:?}");
        assert!(!sides[0] && sides[5]);
    }
}

#[test]
fn chance_and_hashes_keep_to_the_share() {
    let settings = read(canary().prop_literal("share", "25%").prop_literal("key", "field x-user")).unwrap();
    let of_user = |user: usize| goes(Sample::get("/").field("x-user", &user.to_string()), &settings);
    let users = (0..4000).filter(|user| of_user(*user)).count();
    assert!((900..1100).contains(&users), "{users} of 4000");
    assert!((0..100).all(|user| of_user(user) == of_user(user)));
    assert!(
        goes(drawing(2499), &settings) && !goes(drawing(2500), &settings),
        "without a value chance decides"
    );
    let empty = |random| drawing(random).field("x-user", "");
    assert!(goes(empty(2499), &settings) && !goes(empty(2500), &settings), "with an empty one as well");
    let other = CanarySettings {
        salt: "v3".into(),
        ..read(canary().prop_literal("share", "25%").prop_literal("key", "field x-user")).unwrap()
    };
    let both = (0..4000)
        .filter(|user| of_user(*user) && goes(Sample::get("/").field("x-user", &user.to_string()), &other));
    assert!((150..350).contains(&both.count()), "canaries do not share their clients");
}

#[test]
fn fields_and_cookies_can_decide() {
    let settings = read(
        canary().prop_literal("header", "x-canary").prop_literal("cookie", "c").prop_literal("share", "50%"),
    );
    let settings = settings.unwrap();
    for (field, cookie, expected) in [
        ("always", "never", true),
        ("never", "always", false),
        ("maybe", "always", true),
        ("", "never", false),
        ("", "0", true),
    ] {
        let sample = drawing(9999).field("x-canary", field).field("cookie", &["c=", cookie].concat());
        assert_eq!(goes(sample, &settings), expected, "{field} {cookie}");
    }
}

#[test]
fn mistakes_are_told() {
    for (node, message) in [
        (canary(), "nothing would ever go to this canary"),
        (node("canary").prop_literal("share", "5%"), "`canary` needs `upstream`"),
        (canary().prop_literal("share", 5), "expected a share from \"0%\" to \"100%\""),
        (canary().prop_literal("share", "101%"), "expected a share from \"0%\" to \"100%\""),
        (canary().prop_literal("share", "1.234%"), "expected a share from \"0%\" to \"100%\""),
        (canary().prop_literal("share", "-1%"), "expected a share from \"0%\" to \"100%\""),
        (canary().prop_literal("share", "5"), "expected a share from \"0%\" to \"100%\""),
        (canary().prop_literal("share", "5%").prop_literal("max-age", "1h"), "`max-age` belongs to `cookie`"),
        (canary().prop_literal("cookie", "a;b"), "this is not the name of a cookie"),
        (
            canary().prop_literal("cookie", "c").prop_literal("key", "field x"),
            "a canary keeps clients together by `cookie` or by `key`, not by both",
        ),
    ] {
        assert_eq!(read(node).err().map(|problem| problem.message).as_deref(), Some(message));
    }
}
