use std::time::{Duration, Instant};

use super::*;
use foregate_cache::{FetchUnderWay, Purge, Strength, Tag};

const PATHS: [&str; 8] = ["/", "/img/a", "/img/a?x=1", "/img/ab", "/img/", "/img?x", "/im", "/other"];

/// The paths that a purge leaves, for each host.
fn left(purge: &Purge<'_>) -> Vec<String> {
    let memory = memory(1 << 20);
    for host in ["a", "b"] {
        for path in PATHS {
            assert!(put(&memory, &uri(host, path), &[("Cache-Tag", &format!("all, {path}"))], 10));
        }
    }
    memory.floors().purge(purge, Strength::Hard);
    let mut left = Vec::new();
    for host in ["a", "b"] {
        for path in PATHS {
            if find(&memory, &uri(host, path)).is_some() {
                left.push(format!("{host}{path}"));
            }
        }
    }
    // A later fetch of the same is not concerned.
    for host in ["a", "b"] {
        for path in PATHS {
            assert!(put(&memory, &uri(host, path), &[("Cache-Tag", "all")], 10));
            assert!(find(&memory, &uri(host, path)).is_some());
        }
    }
    left
}

fn without(gone: impl Fn(&str) -> bool) -> Vec<String> {
    let all = ["a", "b"].iter().flat_map(|host| PATHS.iter().map(move |path| format!("{host}{path}")));
    all.filter(|place| !gone(place)).collect()
}

#[test]
fn purges_select_by_everything_site_key_tag_and_prefix() {
    assert_eq!(left(&Purge::All), without(|_| true));
    assert_eq!(left(&Purge::Site(&uri("a", "/ignored"))), without(|place| place.starts_with('a')));
    assert_eq!(left(&Purge::Key(key(&uri("a", "/img/a")))), without(|place| place == "a/img/a"));
    let tag = |text: &str| Purge::Tag(Tag::new(text.as_bytes()));
    assert_eq!(left(&tag("all")), without(|_| true));
    assert_eq!(left(&tag("/other")), without(|place| place.ends_with("/other")));
    assert_eq!(left(&tag("none")), without(|_| false));
    for (prefix, gone) in [
        ("/", &PATHS[..]),
        ("/img/", &["/img/", "/img/a", "/img/a?x=1", "/img/ab"]),
        ("/img/a", &["/img/a", "/img/a?x=1", "/img/ab"]),
        ("/img/a?x", &["/img/a?x=1"]),
        ("/img/a?", &["/img/a?x=1"]),
        ("/img", &["/img/", "/img/a", "/img/a?x=1", "/img/ab", "/img?x"]),
        ("/img?x", &["/img?x"]),
        ("/none", &[]),
    ] {
        let expected = without(|place| place.strip_prefix('a').is_some_and(|path| gone.contains(&path)));
        assert_eq!(left(&Purge::Prefix(&uri("a", prefix))), expected, "{prefix}");
    }
}

#[test]
fn a_soft_purge_makes_stale_until_the_next_fetch() {
    let (memory, uri) = (memory(1 << 20), uri("a", "/"));
    put(&memory, &uri, &[], 10);
    memory.floors().purge(&Purge::All, Strength::Soft);
    let (object, outdated) = find(&memory, &uri).unwrap();
    assert!(outdated && find(&memory, &uri).unwrap().1);
    let sequence = memory.floors().begin();
    assert!(memory.insert(Arc::new(object.refreshed(object.head.clone(), sequence)), NOW));
    let (object, outdated) = find(&memory, &uri).unwrap();
    assert!(!outdated && object.body.len() == 10);
    memory.floors().purge(&Purge::All, Strength::Soft);
    memory.floors().purge(&Purge::All, Strength::Hard);
    assert!(find(&memory, &uri).is_none());
}

#[test]
fn a_fetch_that_began_before_a_purge_is_not_stored() {
    let (memory, uri) = (memory(1 << 20), uri("a", "/"));
    let early = memory.floors().begin();
    memory.floors().purge(&Purge::Prefix(&uri), Strength::Hard);
    let make = |sequence| object(&uri, head(&HeaderList::new(), &[]), body(1), sequence);
    assert!(!memory.insert(make(early), NOW));
    // Not even after a sweep has forgotten the purge.
    let mut sweep = memory.begin_sweep();
    while memory.sweep(&mut sweep) {}
    assert!(memory.floors().is_empty());
    assert!(!memory.insert(make(early), NOW));
    assert!(memory.insert(make(memory.floors().begin()), NOW));
}

/// Sweeps keep the purges that may concern the response of a fetch under way, and no others.
#[test]
fn purges_are_kept_for_fetches_under_way() {
    let (memory, uri) = (memory(1 << 20), uri("a", "/"));
    let sweep = || {
        let mut sweep = memory.begin_sweep();
        while memory.sweep(&mut sweep) {}
    };
    let text = text(&uri);
    let concerned = |fetch: &FetchUnderWay| {
        memory.floors().may_concern(text.key(&secret()), text.as_bytes(), fetch.sequence())
    };
    let store = |fetch: &FetchUnderWay| {
        memory.insert(object(&uri, head(&HeaderList::new(), &[]), body(1), fetch.sequence()), NOW)
    };
    let first = memory.floors().begin_fetch();
    memory.floors().purge(&Purge::Tag(Tag::new(b"other")), Strength::Hard);
    let second = memory.floors().begin_fetch();
    memory.floors().purge(&Purge::Prefix(&self::uri("b", "/")), Strength::Hard);
    sweep();
    assert!(concerned(&first), "its tags are not known");
    assert!(!concerned(&second));
    assert!(store(&first) && store(&second));
    memory.floors().purge(&Purge::Prefix(&uri), Strength::Hard);
    sweep();
    assert!(concerned(&second));
    assert!(!store(&first) && !store(&second));
    drop(first);
    sweep();
    assert_eq!(memory.floors().len(), 2, "those after the second fetch has begun");
    drop(second);
    sweep();
    assert!(memory.floors().is_empty());
    // A fetch that lasts longer than 32,768 purges does not keep them all, and is not stored.
    let third = memory.floors().begin_fetch();
    assert!(!concerned(&third));
    for number in 0..40_000 {
        memory.floors().purge(&Purge::Tag(Tag::new(format!("{number}").as_bytes())), Strength::Hard);
    }
    sweep();
    assert_eq!(memory.floors().len(), 1 << 15);
    assert!(concerned(&third) && !store(&third));
}

#[test]
fn a_sweep_removes_the_dead_and_forgets_their_purges() {
    let memory = memory(1 << 20);
    for number in 0..100 {
        let tags = if number % 2 == 0 { "even" } else { "odd" };
        put(&memory, &uri("a", &format!("/{number}")), &[("Cache-Tag", tags)], 10);
    }
    memory.floors().purge(&Purge::Tag(Tag::new(b"even")), Strength::Hard);
    memory.floors().purge(&Purge::Tag(Tag::new(b"odd")), Strength::Soft);
    let mut sweep = memory.begin_sweep();
    while memory.sweep(&mut sweep) {}
    assert_eq!((sweep.removed, memory.stat().entries, memory.floors().len()), (50, 50, 0));
    // The soft purge has left its mark.
    assert!(find(&memory, &uri("a", "/1")).unwrap().1);
    assert!(find(&memory, &uri("a", "/2")).is_none());
}

#[test]
fn purges_beyond_the_bounds_purge_more_and_never_less() {
    let memory = memory(4 << 20);
    let target = uri("a", "/0/x");
    put(&memory, &target, &[], 10);
    for number in 0..1500 {
        memory.floors().purge(&Purge::Prefix(&uri("a", &format!("/{number}/"))), Strength::Hard);
    }
    assert!(memory.floors().len() <= 1001);
    assert!(find(&memory, &target).is_none());
    // Another site is not concerned, and tags have a bound too.
    put(&memory, &uri("b", "/"), &[("Cache-Tag", "first")], 10);
    memory.floors().purge(&Purge::Tag(Tag::new(b"first")), Strength::Hard);
    for number in 0..200_000 {
        memory.floors().purge(&Purge::Tag(Tag::new(format!("{number}").as_bytes())), Strength::Hard);
    }
    assert!(memory.floors().len() <= (1 << 17) + 1002, "{}", memory.floors().len());
    assert!(find(&memory, &uri("b", "/")).is_none());
}

#[test]
fn addresses_beyond_the_bound_purge_their_own_site_alone() {
    let memory = memory(4 << 20);
    for page in [uri("a", "/kept"), uri("b", "/kept"), uri("b", "/gone")] {
        put(&memory, &page, &[], 10);
    }
    memory.floors().purge(&Purge::Address(&uri("b", "/gone")), Strength::Hard);
    for number in 0..200_000 {
        memory.floors().purge(&Purge::Address(&uri("a", &format!("/{number}"))), Strength::Hard);
    }
    assert!(memory.floors().len() <= (1 << 17) + 2, "{}", memory.floors().len());
    assert!(find(&memory, &uri("a", "/kept")).is_none(), "the bound is reached");
    assert!(find(&memory, &uri("b", "/gone")).is_none(), "a purge is never lost");
    assert!(find(&memory, &uri("b", "/kept")).is_some(), "another site is not concerned");
    put(&memory, &uri("a", "/new"), &[], 10);
    assert!(find(&memory, &uri("a", "/new")).is_some());
}

#[test]
fn a_tag_of_many_objects_is_purged_at_once() {
    let memory = memory(256 << 20);
    for number in 0..100_000 {
        assert!(put(&memory, &uri("a", &format!("/{number}")), &[("Cache-Tag", "t")], 100));
    }
    // The shortest of some, since other processes run too.
    let times = (0..5).map(|number| {
        let start = Instant::now();
        memory.floors().purge(&Purge::Tag(Tag::new(b"t")), Strength::Hard);
        assert!(find(&memory, &uri("a", &format!("/{number}"))).is_none());
        start.elapsed()
    });
    let shortest = times.min().unwrap();
    assert!(shortest < Duration::from_millis(5), "{shortest:?}");
    for number in 0..100_000 {
        assert!(find(&memory, &uri("a", &format!("/{number}"))).is_none());
    }
    assert_eq!(memory.stat().entries, 0);
}
