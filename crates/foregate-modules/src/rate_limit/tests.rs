use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec;

use foregate_module::settings::Problem;
use foregate_module::testing::{Literals, Sample, node, settings};
use foregate_module::{Action, Fields, Node, Pipeline, Verdict};
use foregate_rules::Lists;
use proptest::prelude::*;

use super::table::State;
use super::*;
use crate::expressions::Compiler;
use crate::test_expressions::literals;

fn limit(requests: u64, per: &str) -> Node {
    node("rate-limit").arg_literal(requests).prop_literal("per", per)
}

fn read(nodes: &[Node]) -> RateLimits {
    RateLimits::from_nodes(nodes, &mut literals()).unwrap()
}

fn refused(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Stop(Action::Respond(_)))
}

/// A simple model of the counts.
#[derive(Default)]
struct Model {
    admitted: BTreeMap<u8, Vec<u64>>,
    tokens: BTreeMap<u8, (u128, u64)>,
}

impl Model {
    fn take(&mut self, rule: &RateRule, key: u8, now: u64) -> bool {
        let admits = match rule.algorithm {
            LimitAlgorithm::FixedWindow => {
                let window = now / rule.window;
                self.count(key, |time| time / rule.window == window) < u128::from(rule.limit)
            }
            LimitAlgorithm::SlidingWindow => {
                let window = now / rule.window;
                let current = self.count(key, |time| time / rule.window == window);
                let before = self.count(key, |time| time / rule.window + 1 == window);
                let left = u128::from(rule.window - now % rule.window);
                let wide = u128::from(rule.window);
                before * left + (current + 1) * wide <= u128::from(rule.limit) * wide
            }
            LimitAlgorithm::TokenBucket => {
                // A token is `window` parts; `limit` parts come back each millisecond.
                let [limit, window, burst] =
                    [rule.limit.into(), rule.window.into(), rule.burst.into()].map(|n: u128| n);
                let (parts, last) = self.tokens.get(&key).copied().unwrap_or((burst * window, now));
                let parts = (parts + u128::from(now - last) * limit).min(burst * window);
                let admits = parts >= window;
                self.tokens.insert(key, (if admits { parts - window } else { parts }, now));
                admits
            }
        };
        if admits {
            self.admitted.entry(key).or_default().push(now);
        }
        admits
    }

    fn count(&self, key: u8, of: impl Fn(u64) -> bool) -> u128 {
        self.admitted.get(&key).map_or(0, |times| times.iter().filter(|time| of(**time)).count() as u128)
    }
}

fn rules() -> impl Strategy<Value = RateRule> {
    let algorithms = prop_oneof![
        Just(LimitAlgorithm::FixedWindow),
        Just(LimitAlgorithm::SlidingWindow),
        Just(LimitAlgorithm::TokenBucket)
    ];
    (algorithms, 1_u32..12, 1_u64..60, 1_u32..20).prop_map(|(algorithm, limit, window, burst)| {
        let burst = if algorithm == LimitAlgorithm::TokenBucket { burst } else { limit };
        RateRule { algorithm, limit, window, burst }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn each_algorithm_does_what_its_model_does(
        rule in rules(),
        requests in proptest::collection::vec((0_u8..3, 0_u64..9), 0..200),
    ) {
        let table = KeyTable::new(4, 0);
        let mut model = Model::default();
        let mut now = 1000;
        for (key, pause) in requests {
            now += pause;
            let standing = table.update((u64::from(key) + 1) << 33 | u64::from(key), now, |known| rule.take(known, now));
            prop_assert_eq!(standing.admitted, model.take(&rule, key, now), "{:?} at {}", rule, now);
        }
    }

    #[test]
    fn what_remains_can_be_had_and_not_one_more(
        rule in rules(),
        pauses in proptest::collection::vec(0_u64..9, 1..60),
    ) {
        let (mut known, mut now) = (Err(0), 1000);
        for pause in pauses {
            now += pause;
            let (state, standing) = rule.take(known, now);
            known = state.map_or(known, Ok);
            let mut more = known;
            for _ in 0..standing.remaining {
                let (state, standing) = rule.take(more, now);
                prop_assert!(standing.admitted, "{:?} at {}", rule, now);
                more = Ok(state.unwrap());
            }
            prop_assert!(!rule.take(more, now).1.admitted, "{:?} at {}", rule, now);
            if !standing.admitted {
                prop_assert!(standing.retry > 0);
                prop_assert!(rule.take(known, now + standing.retry).1.admitted, "{:?} at {}", rule, now);
                prop_assert!(!rule.take(known, now + standing.retry - 1).1.admitted, "{:?} at {}", rule, now);
            }
        }
    }
}

#[test]
fn the_largest_limits_do_not_overflow() {
    for algorithm in [LimitAlgorithm::FixedWindow, LimitAlgorithm::SlidingWindow, LimitAlgorithm::TokenBucket]
    {
        let most = REQUESTS_MOST as u32;
        let rule = RateRule { algorithm, limit: most, window: WINDOW_MOST.as_millis() as u64, burst: most };
        let now = 1 << 39;
        let (state, standing) = rule.take(Err(0), now);
        assert!(standing.admitted);
        assert_eq!(standing.remaining, most - 1, "{algorithm:?}");
        let full = State { first: most, second: most, used: 255, ..state.unwrap() };
        rule.take(Ok(full), now + 1);
    }
}

#[test]
fn the_largest_bucket_is_emptied_where_a_process_is_old() {
    let bucket = |burst: u64| {
        let node = limit(1, "30d").prop_literal("algorithm", "token-bucket");
        settings::<RateLimits>(&[node.prop_literal("burst", burst)])
    };
    let rule = bucket(212).unwrap().limits[0].rule;
    let problem = bucket(213).err().map(|problem| problem.message);
    assert_eq!(problem.as_deref(), Some("with this limit, a bucket holds 212 requests at most"));
    for now in [0, FILLS_WITHIN] {
        let table = KeyTable::new(1, 0);
        let admitted =
            (0..500).filter(|_| table.update(1 << 32, now, |known| rule.take(known, now)).admitted);
        assert_eq!(admitted.count(), 212);
    }
}

#[test]
fn many_other_keys_do_not_lift_a_limit() {
    // One set of eight entries, and an hour of requests by ten thousand keys that stay below their own limit.
    for algorithm in [LimitAlgorithm::FixedWindow, LimitAlgorithm::SlidingWindow, LimitAlgorithm::TokenBucket]
    {
        let rule = RateRule { algorithm, limit: 10, window: 3_600_000, burst: 10 };
        let table = KeyTable::new(1, 0);
        let take = |key: u64, now| table.update(key << 32, now, |known| rule.take(known, now)).admitted;
        let own = (0..20).filter(|_| take(1, 0)).count();
        assert_eq!(own, 10);
        let mut others = 0;
        for key in 2..10_000 {
            others += usize::from(take(key, key / 100));
            assert!(!take(1, key / 100), "{algorithm:?}: key {key} has lifted the limit");
        }
        assert_eq!(others, 9998, "{algorithm:?}: whoever is new is let through");
    }
}

#[test]
fn what_saturates_a_whole_set_gives_back_half_at_most() {
    let rule = RateRule { algorithm: LimitAlgorithm::FixedWindow, limit: 10, window: 3_600_000, burst: 10 };
    let table = KeyTable::new(1, 0);
    let take = |key: u64| table.update(key << 32, 0, |known| rule.take(known, 0)).admitted;
    assert_eq!((0..20).filter(|_| take(1)).count(), 10);
    for key in 2..=9 {
        let passed = (0..20).filter(|_| take(key)).count();
        assert!(passed >= 5, "key {key} has at least half of its limit");
    }
    let again = (0..20).filter(|_| take(1)).count();
    assert!(again <= 6, "{again} of 10 again");
}

#[test]
fn a_table_begins_anew_for_another_definition_and_not_for_the_same() {
    let step = RateLimit::<Identity>::default();
    let (one, same, other) = (read(&[limit(1, "1m")]), read(&[limit(1, "1m")]), read(&[limit(2, "1m")]));
    let mut sample = Sample::get("/");
    assert_eq!(sample.run(&step, &one), Verdict::Continue);
    assert!(refused(&sample.run(&step, &same)), "as after a reload");
    assert_eq!(sample.run(&step, &other), Verdict::Continue);
}

#[test]
fn a_process_that_takes_over_goes_on_counting() {
    for algorithm in ["fixed-window", "sliding-window", "token-bucket"] {
        let settings = read(&[limit(2, "1h").prop_literal("algorithm", algorithm)]);
        let (old, new) = (RateLimit::<Identity>::default(), RateLimit::<Identity>::default());
        let mut sample = Sample::get("/");
        // Before the first request, and again with the counts.
        new.restore(&old.save(0, 77).unwrap_or_default(), 0);
        for _ in 0..2 {
            assert_eq!(sample.run(&old, &settings), Verdict::Continue);
        }
        new.restore(&old.save(sample.now.steady_ms, 5).unwrap_or_default(), sample.now.steady_ms);
        assert!(refused(&sample.run(&new, &settings)), "{algorithm}");
        let mut other = Sample::get("/").from("192.0.2.99");
        assert_eq!(other.run(&new, &settings), Verdict::Continue, "{algorithm}: another client");
    }
}

#[test]
fn a_state_of_any_bytes_refuses_nobody_for_ever() {
    let settings = read(&[limit(2, "1h")]);
    for bytes in [&[][..], &[1; 7], &[0; 8], &[0xff; 8 + 20], &[0xff; 8 + 2000], &[7; 300_000]] {
        let step = RateLimit::<Identity>::default();
        step.restore(bytes, 0);
        assert_eq!(Sample::get("/").run(&step, &settings), Verdict::Continue);
    }
}

#[test]
fn limits_that_are_alike_count_a_request_once() {
    for alike in
        [[limit(2, "1m"), limit(2, "1m")], [limit(2, "1m"), limit(2, "1m").prop_literal("status", 503)]]
    {
        let (step, settings) = (RateLimit::<Identity>::default(), read(&alike));
        let mut sample = Sample::get("/");
        assert_eq!(sample.run(&step, &settings), Verdict::Continue);
        assert_eq!(sample.run(&step, &settings), Verdict::Continue);
        assert!(refused(&sample.run(&step, &settings)));
    }
}

#[test]
fn limits_under_other_conditions_count_apart() {
    let step = RateLimit::<Identity>::default();
    let under = |condition: &str| read(&[limit(1, "1m").prop_literal("when", condition)]);
    let with = |name: &str| Sample::get("/").field(name, "1");
    assert_eq!(with("x-a").run(&step, &under("field x-a")), Verdict::Continue);
    assert_eq!(with("x-b").run(&step, &under("field x-b")), Verdict::Continue);
    assert!(refused(&with("x-a").run(&step, &under("field x-a"))));
}

#[test]
fn sites_count_apart_unless_the_limit_has_a_name() {
    let step = RateLimit::<Identity>::default();
    for (node, apart) in [(limit(1, "1m"), true), (limit(1, "1m").prop_literal("name", "all"), false)] {
        let settings = read(&[node]);
        assert_eq!(Sample::get("/").run(&step, &settings), Verdict::Continue);
        let mut sample = Sample::get("/");
        sample.host = "other.example".into();
        assert_eq!(refused(&sample.run(&step, &settings)), !apart);
    }
}

#[test]
fn clients_are_told_apart_by_address_and_ipv6_network() {
    let step = RateLimit::<Identity>::default();
    let settings = read(&[limit(1, "1m")]);
    let passes = |client: &str| !refused(&Sample::get("/").from(client).run(&step, &settings));
    assert!(passes("192.0.2.1"));
    assert!(!passes("::ffff:192.0.2.1"), "the same client");
    assert!(passes("192.0.2.2"));
    assert!(passes("2001:db8::1"));
    assert!(!passes("2001:db8::ffff:ffff:ffff:ffff"), "the same network");
    assert!(passes("2001:db8:0:1::1"));
    let mut unix = Sample::get("/");
    unix.client = None;
    assert!(!refused(&unix.run(&step, &settings)));
    assert!(refused(&unix.run(&step, &settings)));

    let exact = read(&[limit(1, "1m").prop_literal("ipv6-prefix", 128)]);
    let passes = |client: &str| !refused(&Sample::get("/").from(client).run(&step, &exact));
    assert!(passes("2001:db8::1"));
    assert!(passes("2001:db8::2"));
}

#[test]
fn clients_of_an_ipv6_network_are_one_in_every_key() {
    let compiler = Compiler::new(&Pipeline::new(Vec::new()), Lists::new()).unwrap();
    let mut context = Literals { compile: Some(Box::new(compiler)), ..Literals::default() };
    for key in ["ip.src", "(ip.src)", "concat(ip.src, http.host)", "concat(http.host, \"/\", (ip.src))"] {
        let step = RateLimit::<Identity>::default();
        let mut read =
            |node: Node| RateLimits::from_nodes(&[node.prop_literal("key", key)], &mut context).unwrap();
        let settings = read(limit(1, "1m"));
        let passes = |client: &str| !refused(&Sample::get("/").from(client).run(&step, &settings));
        assert!(passes("192.0.2.1"), "{key}");
        assert!(!passes("::ffff:192.0.2.1"), "{key}: the same client");
        assert!(passes("192.0.2.2"), "{key}");
        assert!(passes("2001:db8::1"), "{key}");
        assert!(!passes("2001:db8::ffff:ffff:ffff:ffff"), "{key}: the same network");
        assert!(passes("2001:db8:0:1::1"), "{key}");
        let exact = read(limit(1, "1m").prop_literal("ipv6-prefix", 128));
        let passes = |client: &str| !refused(&Sample::get("/").from(client).run(&step, &exact));
        assert!(passes("2001:db8::1") && passes("2001:db8::2"), "{key}");
        // A condition is about the client, not about the network.
        let one = read(limit(1, "1m").prop_literal("when", "ip.src eq 2001:db8::9"));
        let passes = |client: &str| !refused(&Sample::get("/").from(client).run(&step, &one));
        assert!(passes("2001:db8::9") && passes("2001:db8::8") && !passes("2001:db8::9"), "{key}");
    }
}

#[test]
fn the_default_key_written_out_is_the_default() {
    let step = RateLimit::<Identity>::default();
    let named = || limit(1, "1m").prop_literal("name", "all");
    assert!(!refused(&Sample::get("/").run(&step, &read(&[named()]))));
    assert!(refused(&Sample::get("/").run(&step, &read(&[named().prop_literal("key", "ip.src")]))));
}

#[test]
fn a_key_without_value_counts_by_address() {
    let step = RateLimit::<Identity>::default();
    let settings = read(&[limit(1, "1m").prop_literal("key", "field x-key")]);
    let passes = |sample: Sample| !refused(&{ sample }.run(&step, &settings));
    assert!(passes(Sample::get("/").field("x-key", "a")));
    assert!(passes(Sample::get("/").field("x-key", "b")));
    assert!(!passes(Sample::get("/").field("x-key", "a").from("192.0.2.9")));
    assert!(passes(Sample::get("/")));
    assert!(!passes(Sample::get("/").field("x-key", "")), "leaving the field empty does not help");
    // The key cannot be made to look like an address.
    assert!(passes(Sample::get("/").from("192.0.2.7")));
    assert!(passes(Sample::get("/").field("x-key", "192.0.2.7")));
}

#[test]
fn limits_run_where_their_expressions_are_known() {
    let settings = read(&[limit(1, "1m").prop_literal("when", "late x-user")]);
    let (early, late) = (RateLimit::<Identity>::default(), RateLimit::<Late>::default());
    let mut sample = Sample::get("/").field("x-user", "a");
    for _ in 0..3 {
        assert_eq!(sample.run(&early, &settings), Verdict::Continue);
    }
    assert_eq!(sample.run(&late, &settings), Verdict::Continue);
    assert!(refused(&sample.run(&late, &settings)));
    assert_eq!(Sample::get("/").run(&late, &settings), Verdict::Continue, "the condition does not hold");
}

#[test]
fn refusals_say_when_to_come_back() {
    let step = RateLimit::<Identity>::default();
    let settings =
        read(&[limit(1, "1m").prop_literal("name", "login").prop_literal("algorithm", "fixed-window")]);
    let mut sample = Sample::get("/");
    // 20 seconds before the end of a window.
    sample.now.steady_ms = 1_000_000;
    sample.run(&step, &settings);
    let Verdict::Stop(Action::Respond(response)) = sample.run(&step, &settings) else { unreachable!() };
    assert_eq!(response.status, 429);
    assert_eq!(&*response.body, b"Too many requests\n");
    let field = |name: &str| {
        let found = response.fields.iter().find(|field| field.name() == name.as_bytes());
        found.map(|field| String::from_utf8_lossy(field.value()).to_string())
    };
    assert_eq!(field("retry-after").as_deref(), Some("20"));
    assert_eq!(field("ratelimit-policy").as_deref(), Some("\"login\";q=1;w=60"));
    assert_eq!(field("ratelimit").as_deref(), Some("\"login\";r=0;t=20"));
    assert_eq!(sample.state.notes, vec![("rate-limit".into(), Text::from("login"))]);
}

#[test]
fn a_sliding_window_says_when_it_lets_pass_again() {
    let step = RateLimit::<Identity>::default();
    let settings = read(&[limit(2, "10s")]);
    let mut sample = Sample::get("/").response(200);
    // The beginning of a window: both requests count half at the middle of the next.
    sample.now.steady_ms = 1_000_000;
    sample.run(&step, &settings);
    sample.run(&step, &settings);
    sample.run(&RateLimitFields, &settings);
    assert_eq!(sample.response.get("ratelimit"), Some(&b"\"default\";r=0;t=15"[..]));
    let Verdict::Stop(Action::Respond(response)) = sample.run(&step, &settings) else { unreachable!() };
    let field = |name: &str| response.fields.iter().find(|field| field.name() == name.as_bytes());
    assert_eq!(field("retry-after").map(|field| field.value()), Some(&b"15"[..]));
    assert_eq!(field("ratelimit").map(|field| field.value()), Some(&b"\"default\";r=0;t=15"[..]));
    sample.now.steady_ms += 15_000;
    assert!(!refused(&sample.run(&step, &settings)));
}

#[test]
fn responses_say_how_a_client_stands() {
    let step = RateLimit::<Identity>::default();
    let hidden = limit(9, "1s").prop_literal("fields", false);
    let settings = read(&[limit(5, "1m").prop_literal("algorithm", "fixed-window"), hidden, limit(7, "1h")]);
    let mut sample = Sample::get("/").response(200);
    sample.run(&step, &settings);
    sample.run(&RateLimitFields, &settings);
    let policies: Vec<_> = (&sample.response as &dyn Fields).all("ratelimit-policy").collect();
    assert_eq!(policies, [&b"\"default\";q=5;w=60"[..], b"\"default-3\";q=7;w=3600"]);
    assert_eq!(sample.response.get("ratelimit"), Some(&b"\"default\";r=4;t=20"[..]));
    let shown = sample.value::<Remaining<Identity>>().and_then(Remaining::<Identity>::show);
    assert_eq!(shown, Some(Shown::Int(4)));
}

#[test]
fn a_dry_run_only_notes() {
    let step = RateLimit::<Identity>::default();
    let settings = read(&[limit(1, "1m").prop_literal("dry-run", true)]);
    let mut sample = Sample::get("/");
    assert_eq!(sample.run(&step, &settings), Verdict::Continue);
    assert!(sample.state.notes.is_empty());
    assert_eq!(sample.run(&step, &settings), Verdict::Continue);
    assert_eq!(sample.state.notes, vec![("rate-limit-dry-run".into(), Text::from("default"))]);
}

#[test]
fn a_refusal_can_look_otherwise() {
    let step = RateLimit::<Identity>::default();
    let own = limit(1, "1m")
        .prop_literal("status", 503)
        .prop_literal("body", "<p>later</p>")
        .prop_literal("type", "text/html")
        .prop_literal("fields", false);
    let settings = read(&[own]);
    let mut sample = Sample::get("/");
    sample.run(&step, &settings);
    let Verdict::Stop(Action::Respond(response)) = sample.run(&step, &settings) else { unreachable!() };
    assert_eq!((response.status, &*response.body), (503, &b"<p>later</p>"[..]));
    let names: Vec<_> = response.fields.iter().map(|field| field.name().to_vec()).collect();
    assert_eq!(names, [b"content-type".to_vec(), b"retry-after".to_vec()]);
}

#[test]
fn mistakes_are_told() {
    let wrong = |node: Node| settings::<RateLimits>(&[node]).err().map(|problem: Problem| problem.message);
    for (node, message) in [
        (limit(0, "1m"), "expected a whole number from 1 to 10000000"),
        (limit(1, "10ms"), "expected a duration from 1s to 30d"),
        (
            limit(1, "1m").prop_literal("algorithm", "leaky"),
            "expected \"fixed-window\" or \"sliding-window\" or \"token-bucket\"",
        ),
        (limit(1, "1m").prop_literal("burst", 5), "only a token bucket has a burst"),
        (limit(1, "1m").prop_literal("name", "a\"b"), "this cannot be the name of a limit"),
        (limit(1, "1m").prop_literal("status", 200), "expected a whole number from 400 to 599"),
        (limit(1, "1m").prop_literal("type", "html"), "this is not a media type"),
        (limit(1, "1m").prop_literal("ipv6-prefix", 0), "expected a whole number from 1 to 128"),
        (limit(1, "1m").prop_literal("key", "field x"), "nobody compiles expressions here"),
        (node("rate-limit").arg_literal(1), "`rate-limit` needs the property `per`"),
    ] {
        assert_eq!(wrong(node).as_deref(), Some(message));
    }
    let many: Vec<_> = (0..=LIMITS_MOST).map(|_| limit(1, "1m")).collect();
    let problem = settings::<RateLimits>(&many).err().map(|problem| problem.message);
    assert_eq!(problem.as_deref(), Some("a route may have 64 rate limits at most"));
}
