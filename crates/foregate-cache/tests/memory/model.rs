//! The tier beside a model that keeps everything: the tier may forget, and may never say more than the model.

use std::collections::HashMap;

use super::*;
use foregate_cache::{Purge, Strength, Tag};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Insert { path: u8, value: u8, tag: u8, size: usize, early: bool },
    Get { path: u8, value: u8 },
    PurgeKey(u8, bool),
    PurgeTag(u8, bool),
    PurgePrefix(u8),
    PurgeAll(bool),
    Invalidate(u8),
    Sweep,
    Limit(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let path = || 0_u8..12;
    prop_oneof![
        12 => (path(), 0_u8..4, 0_u8..3, 0_usize..60_000, prop::bool::weighted(0.2))
            .prop_map(|(path, value, tag, size, early)| Step::Insert { path, value, tag, size, early }),
        20 => (path(), 0_u8..4).prop_map(|(path, value)| Step::Get { path, value }),
        2 => (path(), any::<bool>()).prop_map(|(path, soft)| Step::PurgeKey(path, soft)),
        2 => (0_u8..3, any::<bool>()).prop_map(|(tag, soft)| Step::PurgeTag(tag, soft)),
        1 => path().prop_map(Step::PurgePrefix),
        1 => any::<bool>().prop_map(Step::PurgeAll),
        1 => path().prop_map(Step::Invalidate),
        1 => Just(Step::Sweep),
        1 => (0_usize..3).prop_map(|size| Step::Limit(1 << (19 + size))),
    ]
}

fn path(number: u8) -> String {
    format!("/{}/{number}", number % 3)
}

/// The state of the newest object of a path and value of the selecting field.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Live(u64),
    Outdated(u64),
    Gone,
}

#[derive(Default)]
struct Model {
    objects: HashMap<(u8, u8), (State, u8)>,
}

impl Model {
    fn purge(&mut self, soft: bool, concerns: impl Fn(u8, u8) -> bool) {
        for ((path, _), (state, tag)) in &mut self.objects {
            if concerns(*path, *tag) {
                *state = match *state {
                    State::Live(id) | State::Outdated(id) if soft => State::Outdated(id),
                    _ => State::Gone,
                };
            }
        }
    }
}

/// Paths with an odd number vary.
fn varies(path: u8) -> bool {
    path % 2 == 1
}

fn request(path: u8, value: u8) -> HeaderList {
    let value = if varies(path) { value } else { 0 };
    headers(&[("V", &value.to_string())])
}

fn run(steps: &[Step]) {
    let (memory, mut model) = (memory(1 << 20), Model::default());
    let mut limit = 1 << 20;
    for (id, step) in steps.iter().enumerate() {
        let strength = |soft: bool| if soft { Strength::Soft } else { Strength::Hard };
        match *step {
            Step::Insert { path: number, value, tag, size, early } => {
                let (path, request) = (path(number), request(number, value));
                let vary = if varies(number) { "V" } else { "" };
                let (mark, tags) = (id.to_string(), format!("t{tag}"));
                let fields = [("Vary", vary), ("Mark", &mark), ("Cache-Tag", &tags)];
                let sequence = memory.floors().begin();
                if early {
                    memory.floors().purge(&Purge::Key(key(&uri("a", &path))), Strength::Hard);
                    model.purge(false, |of, _| of == number);
                }
                let object = object(&uri("a", &path), head(&request, &fields), body(size), sequence);
                let fits = object.memory() <= memory.largest();
                assert_eq!(memory.insert(object, NOW), fits && !early);
                let value = if varies(number) { value } else { 0 };
                if fits && !early {
                    model.objects.insert((number, value), (State::Live(id as u64), tag));
                }
            }
            Step::Get { path: number, value } => {
                let found = find_for(&memory, &uri("a", &path(number)), &request(number, value));
                let value = if varies(number) { value } else { 0 };
                let expected = model.objects.get(&(number, value)).map_or(State::Gone, |(state, _)| *state);
                if let Some((object, outdated)) = found {
                    let mark = object.head.headers.get_name(b"mark").unwrap();
                    let mark = std::str::from_utf8(mark).unwrap().parse().unwrap();
                    let state = if outdated { State::Outdated(mark) } else { State::Live(mark) };
                    assert_eq!(state, expected, "{step:?}");
                }
            }
            Step::PurgeKey(number, soft) => {
                memory.floors().purge(&Purge::Key(key(&uri("a", &path(number)))), strength(soft));
                model.purge(soft, |of, _| of == number);
            }
            Step::PurgeTag(tag, soft) => {
                let name = format!("t{tag}");
                memory.floors().purge(&Purge::Tag(Tag::new(name.as_bytes())), strength(soft));
                model.purge(soft, |_, of| of == tag);
            }
            Step::PurgePrefix(number) => {
                let prefix = format!("/{}/", number % 3);
                memory.floors().purge(&Purge::Prefix(&uri("a", &prefix)), Strength::Hard);
                model.purge(false, |of, _| of % 3 == number % 3);
            }
            Step::PurgeAll(soft) => {
                memory.floors().purge(&Purge::All, strength(soft));
                model.purge(soft, |_, _| true);
            }
            Step::Invalidate(number) => {
                memory.invalidate(key(&uri("a", &path(number))), false);
                model.purge(false, |of, _| of == number);
            }
            Step::Sweep => {
                let mut sweep = memory.begin_sweep();
                while memory.sweep(&mut sweep) {}
                assert!(memory.floors().is_empty());
            }
            Step::Limit(new) => {
                limit = new;
                memory.set_limit(limit, NOW);
            }
        }
        assert!(memory.stat().bytes <= limit, "{} of {limit} bytes after {step:?}", memory.stat().bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_tier_forgets_and_never_invents(steps in prop::collection::vec(step(), 0..300)) {
        run(&steps);
    }
}

/// Threads insert, look and purge at once; whatever is found after a purge by the same thread is newer.
#[test]
fn threads_see_purges_at_once() {
    let memory = memory(2 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let memory = &memory;
            scope.spawn(move || {
                let path = format!("/{thread}");
                let (own, shared) = (uri("a", &path), uri("a", "/shared"));
                for round in 0..3000_u32 {
                    // Refused if another thread has purged and swept meanwhile.
                    let stored = put(memory, &own, &[("Mark", &round.to_string())], 500);
                    put(memory, &shared, &[], 500);
                    if stored && let Some((object, _)) = find(memory, &own) {
                        assert_eq!(object.head.headers.get_name(b"mark"), Some(round.to_string().as_bytes()));
                    }
                    if round % 7 == 0 {
                        memory.floors().purge(&Purge::Key(key(&own)), Strength::Hard);
                        assert!(find(memory, &own).is_none());
                    }
                    if round % 500 == 0 {
                        let mut sweep = memory.begin_sweep();
                        while memory.sweep(&mut sweep) {}
                    }
                    find(memory, &shared);
                }
            });
        }
    });
    assert!(memory.stat().bytes <= 2 << 20);
}
