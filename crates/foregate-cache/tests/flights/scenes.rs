use std::rc::Rc;

use super::world::{Ending, Outcome, Script, World, body_of};
use foregate_cache::FlightLimits;

const SEEDS: std::ops::Range<u64> = 0..30;

fn worlds(limits: FlightLimits, script: &Script) -> impl Iterator<Item = Rc<World>> {
    let script = script.clone();
    SEEDS.map(move |seed| World::new(seed, limits, script.clone()))
}

fn whole(value: &str, pieces: &[usize]) -> Outcome {
    Outcome::Whole { mark: value.to_owned(), body: body_of(value, pieces) }
}

#[test]
fn fifty_misses_are_one_fetch() {
    let pieces = [100, 5000, 1, 0, 30_000];
    for world in worlds(FlightLimits::default(), &Script::cacheable(&pieces)) {
        for _ in 0..50 {
            world.ask("1");
        }
        let outcomes = world.run();
        assert_eq!(world.fetches.get(), 1);
        // All got the response to the first request.
        assert!(outcomes.len() == 50 && outcomes.iter().all(|outcome| *outcome == whole("1", &pieces)));
        world.ask("1");
        assert_eq!((world.run(), world.fetches.get()), (vec![whole("1", &pieces)], 1));
    }
}

#[test]
fn misses_of_three_variants_are_three_fetches() {
    let pieces = [700, 900];
    for world in worlds(FlightLimits::default(), &Script::cacheable(&pieces).with("Vary", "V")) {
        for number in 0..51 {
            world.ask(["1", "2", "3"][number % 3]);
        }
        let outcomes = world.run();
        assert!((3..=4).contains(&world.fetches.get()), "{} fetches", world.fetches.get());
        for value in ["1", "2", "3"] {
            let own = outcomes.iter().filter(|outcome| **outcome == whole(value, &pieces)).count();
            assert_eq!(own, 17, "each gets its own variant");
        }
        // Now that the address is known to vary, a new variant is fetched once at once.
        let before = world.fetches.get();
        for _ in 0..20 {
            world.ask("4");
        }
        assert!(world.run().iter().all(|outcome| *outcome == whole("4", &pieces)));
        assert_eq!(world.fetches.get(), before + 1);
    }
}

#[test]
fn a_response_that_is_not_stored_releases_all_at_once_and_leaves_a_mark() {
    let mut script = Script::cacheable(&[10]);
    script.fields[0].1 = "no-store".to_owned();
    for world in worlds(FlightLimits::default(), &script) {
        let ask = |requests| {
            world.most.set(0);
            for _ in 0..requests {
                world.ask("1");
            }
            assert!(world.run().iter().all(|outcome| *outcome == whole("1", &[10])));
            (world.fetches.replace(0), world.most.get())
        };
        let (fetches, most) = ask(50);
        assert_eq!(fetches, 50);
        assert!(most >= 10, "they wait for each other: {most}");
        // Under the mark nobody waits, not even for a head.
        world.now.set(world.now.get() + 9_000);
        let (fetches, most) = ask(10);
        assert!(fetches == 10 && most >= 3, "{fetches} {most}");
        // Afterwards one leads again, and its response is shared.
        world.now.set(world.now.get() + 2_000);
        world.script.replace(Script::cacheable(&[10]));
        assert_eq!(ask(10).0, 1);
    }
}

#[test]
fn a_response_that_needs_validation_is_stored_but_not_shared() {
    for directives in ["max-age=0, stale-if-error=9", "no-cache", "max-age=0"] {
        let mut script = Script::cacheable(&[10]).with("ETag", "\"a\"");
        script.fields[0].1 = directives.to_owned();
        for world in worlds(FlightLimits::default(), &script) {
            for _ in 0..50 {
                world.ask("1");
            }
            assert!(world.run().iter().all(|outcome| *outcome == whole("1", &[10])));
            assert!(world.fetches.get() > 1, "{directives}");
            assert_eq!(world.memory.stat().entries, 1, "{directives}");
        }
    }
}

#[test]
fn a_body_that_breaks_off_ends_nobodys_body() {
    let mut script = Script::cacheable(&[100, 200, 300]);
    script.ending = Ending::BreaksOff;
    for world in worlds(FlightLimits::default(), &script) {
        for _ in 0..20 {
            world.ask("1");
        }
        let outcomes = world.run();
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Broken), "{outcomes:?}");
        assert_eq!(world.memory.stat().entries, 0);
    }
    // So does one of another length than announced, in either direction.
    for announced in [599, 601] {
        let mut script = Script::cacheable(&[100, 200, 300]);
        script.announced = Some(announced);
        for world in worlds(FlightLimits::default(), &script).take(10) {
            for _ in 0..20 {
                world.ask("1");
            }
            assert!(world.run().iter().all(|outcome| *outcome == Outcome::Broken));
            assert_eq!(world.memory.stat().entries, 0);
        }
    }
    let mut script = Script::cacheable(&[100, 200, 300]);
    script.announced = Some(600);
    let world = World::new(1, FlightLimits::default(), script);
    world.ask("1");
    assert_eq!(world.run(), [whole("1", &[100, 200, 300])]);
}

#[test]
fn an_origin_that_refuses_is_asked_once() {
    let mut script = Script::cacheable(&[]);
    script.ending = Ending::Refused;
    for world in worlds(FlightLimits::default(), &script) {
        for _ in 0..50 {
            world.ask("1");
        }
        assert!(world.run().iter().all(|outcome| *outcome == Outcome::Failed));
        // Requests after the failure ask again, but not each of them.
        assert!(world.fetches.get() < 50, "{}", world.fetches.get());
    }
}

#[test]
fn followers_of_a_leader_that_goes_away_choose_another_one() {
    let mut script = Script::cacheable(&[100]);
    script.ending = Ending::NoHead;
    for world in worlds(FlightLimits::default(), &script) {
        for _ in 0..50 {
            world.ask("1");
        }
        let outcomes = world.run();
        assert_eq!(world.fetches.get(), 2);
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == whole("1", &[100])).count(), 49);
    }
}

#[test]
fn a_body_that_is_known_to_be_too_long_is_not_shared() {
    let limits = FlightLimits { largest: 1000, window: 100, ..FlightLimits::default() };
    let mut script = Script::cacheable(&[600, 600]);
    script.announced = Some(1200);
    for world in worlds(limits, &script) {
        for _ in 0..20 {
            world.ask("1");
        }
        assert!(world.run().iter().all(|outcome| *outcome == whole("1", &[600, 600])));
        assert_eq!((world.fetches.get(), world.memory.stat().entries), (20, 0));
    }
}

#[test]
fn a_body_that_turns_out_too_long_is_a_window() {
    let limits = FlightLimits { largest: 1000, window: 300, ..FlightLimits::default() };
    let pieces = [100; 40];
    let (mut wholes, mut lagged) = (0, 0);
    for world in worlds(limits, &Script::cacheable(&pieces)) {
        world.slow.set(true);
        for _ in 0..20 {
            world.ask("1");
        }
        for outcome in world.run() {
            match outcome {
                Outcome::Lagged => lagged += 1,
                outcome => {
                    assert_eq!(outcome, whole("1", &pieces));
                    wholes += 1;
                }
            }
        }
        assert_eq!(world.memory.stat().entries, 0);
    }
    assert!(wholes > 0 && lagged > 0, "{wholes} whole, {lagged} behind the window");
}
