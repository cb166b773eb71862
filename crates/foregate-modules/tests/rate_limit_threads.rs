//! Rate limits under many threads: no request too many, none too few.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use foregate_module::Verdict;
use foregate_module::testing::{Sample, node, settings};
use foregate_modules::rate_limit::{Identity, RateLimit, RateLimits};

const THREADS: usize = 8;

#[test]
fn threads_share_a_limit_exactly() {
    for algorithm in ["fixed-window", "sliding-window", "token-bucket"] {
        let limit = node("rate-limit")
            .arg_literal(1000)
            .prop_literal("per", "1h")
            .prop_literal("algorithm", algorithm);
        let settings: RateLimits = settings(&[limit]).unwrap();
        let step = RateLimit::<Identity>::default();
        let admitted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (step, settings, admitted) = (&step, &settings, &admitted);
                scope.spawn(move || {
                    for number in 0..2000 {
                        // Another key of each thread in between, which has its own limit.
                        let other = format!("198.51.100.{thread}");
                        let client = if number % 4 == 3 { &*other } else { "192.0.2.1" };
                        let passed = Sample::get("/").from(client).run(step, settings) == Verdict::Continue;
                        if number % 4 == 3 {
                            assert!(passed, "{algorithm}: a thread's own key is refused");
                        } else {
                            admitted.fetch_add(usize::from(passed), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 1000, "{algorithm}");
    }
}

#[test]
fn threads_with_more_keys_than_there_is_room_keep_limits_within_their_bound() {
    // More keys than the table has entries, by all threads at once: a client over its limit stays refused.
    let settings: RateLimits =
        settings(&[node("rate-limit").arg_literal(20).prop_literal("per", "1h")]).unwrap();
    let step = RateLimit::<Identity>::default();
    let request = |client: &str| Sample::get("/").from(client).run(&step, &settings) == Verdict::Continue;
    assert_eq!((0..40).filter(|_| request("192.0.2.1")).count(), 20);
    thread::scope(|scope| {
        for thread in 0..4_u32 {
            let request = &request;
            scope.spawn(move || {
                for number in 0..100_000_u32 {
                    let client =
                        format!("2001:db8:{:x}:{:x}::1", (thread << 8) + (number >> 16), number & 0xffff);
                    assert!(request(&client), "a new key has at least half of its limit");
                    if number % 64 == 0 {
                        assert!(!request("192.0.2.1"), "other keys have lifted a limit");
                    }
                }
            });
        }
    });
}
