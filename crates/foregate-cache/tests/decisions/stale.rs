use super::scene::{Fields, Origin, Scene, Source};
use foregate_cache::Policy;

fn later(policy: Policy, response: Fields<'_>, wait: u64, origin: &Origin<'_>) -> Source {
    let mut scene = Scene::with(policy);
    scene.get(&[], &Origin::Reply(200, response));
    scene.wait(wait);
    scene.get(&[], origin).source
}

#[test]
fn stale_responses_hide_failures_unless_forbidden() {
    let rows: &[(&str, &str, u64, Source)] = &[
        ("RFC 9111 4.2.4", "max-age=2", 3, Source::Stale),
        ("RFC 5861 4, ten minutes by default", "max-age=2", 601, Source::Stale),
        ("RFC 5861 4, and no longer", "max-age=2", 602, Source::Nothing),
        ("RFC 5861 4", "max-age=2, stale-if-error=60", 61, Source::Stale),
        ("RFC 5861 4", "max-age=2, stale-if-error=60", 62, Source::Nothing),
        ("RFC 5861 4", "max-age=2, stale-if-error=6000", 6001, Source::Stale),
        ("RFC 5861 4", "max-age=2, stale-if-error=0", 3, Source::Nothing),
        ("RFC 5861 4", "max-age=2, stale-if-error=x", 3, Source::Nothing),
        ("RFC 9111 5.2.2.2", "max-age=2, must-revalidate", 3, Source::Nothing),
        ("RFC 9111 5.2.2.2", "max-age=2, must-revalidate, stale-if-error=60", 3, Source::Nothing),
        ("RFC 9111 5.2.2.8", "max-age=2, proxy-revalidate", 3, Source::Nothing),
        ("RFC 9111 5.2.2.4", "max-age=2, no-cache", 3, Source::Nothing),
        ("RFC 9111 5.2.2.10", "max-age=2, s-maxage=2", 3, Source::Nothing),
        ("RFC 5861 4, stated beside s-maxage", "s-maxage=2, stale-if-error=60", 3, Source::Stale),
        ("never fresh", "max-age=0", 3, Source::Nothing),
    ];
    for (section, directives, wait, expected) in rows {
        let fields = [("Cache-Control", *directives), ("ETag", "\"a\"")];
        for origin in [
            Origin::Down,
            Origin::Reply(503, &[]),
            Origin::Reply(500, &[]),
            Origin::Reply(502, &[]),
            Origin::Reply(504, &[]),
        ] {
            let source = later(Policy::default(), &fields, *wait, &origin);
            let expected = match (expected, &origin) {
                (Source::Nothing, Origin::Reply(..)) => Source::Origin,
                (expected, _) => *expected,
            };
            assert_eq!(source, expected, "{section}: {directives} after {wait}");
        }
        for status in [200, 404, 501, 505] {
            let source = later(Policy::default(), &fields, *wait, &Origin::Reply(status, &[]));
            assert_eq!(source, Source::Origin, "RFC 5861 4: {status} is no failure");
        }
    }
    let off = Policy { stale_if_error: 0, ..Policy::default() };
    assert_eq!(later(off, &[("Cache-Control", "max-age=2")], 3, &Origin::Down), Source::Nothing);
    // A page without a word on caching is never shown to another client.
    assert_eq!(later(Policy::default(), &[("ETag", "\"a\"")], 3, &Origin::Down), Source::Nothing);
}

#[test]
fn stale_while_revalidate_ends() {
    let default = || Policy::default();
    let origin = Origin::Reply(200, &[]);
    let rows: &[(&str, &str, u64, Source)] = &[
        ("RFC 5861 3", "max-age=1, stale-while-revalidate=3600", 3, Source::StaleRefreshing),
        ("RFC 5861 3", "max-age=1, stale-while-revalidate=4", 4, Source::StaleRefreshing),
        ("RFC 5861 3", "max-age=1, stale-while-revalidate=4", 6, Source::Origin),
        ("RFC 5861 3", "max-age=1", 3, Source::Origin),
        (
            "RFC 5861 3, stated beside s-maxage",
            "s-maxage=1, stale-while-revalidate=9",
            3,
            Source::StaleRefreshing,
        ),
        ("RFC 9111 5.2.2.2", "max-age=1, stale-while-revalidate=9, must-revalidate", 3, Source::Origin),
        ("RFC 9111 5.2.2.4", "max-age=1, stale-while-revalidate=9, no-cache", 3, Source::Origin),
    ];
    for (section, directives, wait, expected) in rows {
        let fields = [("Cache-Control", *directives), ("ETag", "\"abc\"")];
        assert_eq!(
            later(default(), &fields, *wait, &origin),
            *expected,
            "{section}: {directives} after {wait}"
        );
    }
    let hour = Policy { stale_while_revalidate: 3600, ..default() };
    let fields = [("Cache-Control", "max-age=1")];
    assert_eq!(later(hour, &fields, 3, &origin), Source::StaleRefreshing);
}

#[test]
fn a_soft_purge_makes_stale() {
    let rows: &[(&str, Source, Source)] = &[
        ("max-age=60", Source::Origin, Source::Stale),
        ("max-age=60, stale-while-revalidate=60", Source::StaleRefreshing, Source::StaleRefreshing),
        ("max-age=60, must-revalidate", Source::Origin, Source::Nothing),
    ];
    for (directives, up, down) in rows {
        for (origin, expected) in [(Origin::Reply(200, &[]), up), (Origin::Down, down)] {
            let mut scene = Scene::new();
            scene.get(&[], &Origin::Reply(200, &[("Cache-Control", directives)]));
            scene.outdated = true;
            assert_eq!(scene.get(&[], &origin).source, *expected, "{directives}");
        }
    }
}

#[test]
fn responses_that_are_unusable_without_validation_are_not_shared() {
    for (directives, shared) in [("max-age=9", true), ("no-cache", false), ("max-age=0", false)] {
        let mut scene = Scene::new();
        scene.get(&[], &Origin::Reply(200, &[("Cache-Control", directives), ("ETag", "\"a\"")]));
        assert_eq!(scene.objects[0].0.life.is_shareable(), shared, "RFC 9111 4: {directives}");
    }
}
