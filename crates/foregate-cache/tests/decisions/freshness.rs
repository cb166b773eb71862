use super::scene::{Fields, Origin, Scene, Source, again, again_in, check};
use foregate_cache::{Heuristics, Policy, StatusLifetime};

#[test]
fn max_age_and_s_maxage_decide() {
    check(&[
        ("RFC 9111 4.2", "nothing stated, no validator", &[], false),
        ("RFC 9111 5.2.2.1", "fresh", &[("Cache-Control", "max-age=3600")], true),
        ("RFC 9111 5.2.2.1", "stale", &[("Cache-Control", "max-age=2"), ("Date", "@0")], false),
        ("RFC 9111 5.2.2.1", "zero", &[("Cache-Control", "max-age=0")], false),
        ("RFC 9111 1.2.2", "2^31 - 1", &[("Cache-Control", "max-age=2147483647")], true),
        ("RFC 9111 1.2.2", "2^31", &[("Cache-Control", "max-age=2147483648")], true),
        ("RFC 9111 1.2.2", "2^31 + 1", &[("Cache-Control", "max-age=2147483649")], true),
        ("RFC 9111 1.2.2", "beyond 32 bits", &[("Cache-Control", "max-age=99999999999")], true),
        ("RFC 9111 1.2.2", "beyond 64 bits", &[("Cache-Control", "max-age=99999999999999999999999")], true),
        ("RFC 9111 5.2", "an extension before it", &[("Cache-Control", "foobar, max-age=3600")], true),
        ("RFC 9111 5.2", "another case", &[("Cache-Control", "MaX-aGe=3600")], true),
        ("RFC 9111 5.2.2.10", "s-maxage", &[("Cache-Control", "s-maxage=3600")], true),
        ("RFC 9111 5.2.2.10", "shorter s-maxage", &[("Cache-Control", "max-age=3600, s-maxage=1")], false),
        (
            "RFC 9111 5.2.2.10",
            "shorter s-maxage first",
            &[("Cache-Control", "s-maxage=1, max-age=3600")],
            false,
        ),
        (
            "RFC 9111 5.2.2.10",
            "shorter s-maxage in a line of its own",
            &[("Cache-Control", "max-age=3600"), ("Cache-Control", "s-maxage=1")],
            false,
        ),
        ("RFC 9111 5.2.2.10", "longer s-maxage", &[("Cache-Control", "max-age=1, s-maxage=3600")], true),
        (
            "RFC 9111 5.2.2.10",
            "longer s-maxage, max-age and Expires past",
            &[("Expires", "@-10"), ("Cache-Control", "max-age=0, s-maxage=3600")],
            true,
        ),
    ]);
}

#[test]
fn arguments_are_numbers_and_nothing_else() {
    check(&[
        ("RFC 9111 4.2.1", "negative", &[("Cache-Control", "max-age=-3600")], false),
        ("RFC 9111 5.2", "quoted", &[("Cache-Control", "max-age=\"3600\"")], true),
        ("RFC 9111 4.2.1", "in single quotes", &[("Cache-Control", "max-age='3600'")], false),
        ("RFC 9111 4.2.1", "decimal", &[("Cache-Control", "max-age=3600.0")], false),
        ("RFC 9111 4.2.1", "letters before", &[("Cache-Control", "max-age=a3600")], false),
        ("RFC 9111 4.2.1", "letters behind", &[("Cache-Control", "max-age=3600a")], false),
        ("RFC 9111 4.2.1", "blank before the sign", &[("Cache-Control", "max-age =3600")], false),
        ("RFC 9111 4.2.1", "blank behind the sign", &[("Cache-Control", "max-age= 3600")], false),
        ("RFC 9111 4.2.1", "no argument", &[("Cache-Control", "max-age")], false),
        (
            "RFC 9111 4.2.1",
            "an unreadable one wins over Expires",
            &[("Cache-Control", "max-age=x"), ("Expires", "@3600")],
            false,
        ),
        ("RFC 9111 1.2.2", "leading zeros", &[("Cache-Control", "max-age=003600")], true),
        ("RFC 9111 5.2", "blanks around commas", &[("Cache-Control", " , a ,\tmax-age=3600\t, ,")], true),
        (
            "RFC 9111 5.2",
            "in the string of another directive before",
            &[("Cache-Control", "extension=\"max-age=3600\", max-age=1")],
            false,
        ),
        (
            "RFC 9111 5.2",
            "in the string of another directive behind",
            &[("Cache-Control", "max-age=1, extension=\"max-age=3600\"")],
            false,
        ),
        (
            "RFC 9111 5.2",
            "a comma in a string",
            &[("Cache-Control", "a=\"x, max-age=1\", max-age=3600")],
            true,
        ),
        (
            "RFC 9111 5.2",
            "an escaped quote",
            &[("Cache-Control", "a=\"x\\\", max-age=3600\", max-age=1")],
            false,
        ),
        ("RFC 9111 4.2.1", "of two the first", &[("Cache-Control", "max-age=1800, max-age=1")], true),
        (
            "RFC 9111 4.2.1",
            "of two lines the first",
            &[("Cache-Control", "max-age=1"), ("Cache-Control", "max-age=1800")],
            false,
        ),
    ]);
}

#[test]
fn expires_counts_from_date() {
    check(&[
        ("RFC 9111 5.3", "future", &[("Expires", "@2592000"), ("Date", "@0")], true),
        ("RFC 9111 5.3", "past", &[("Expires", "@-2592000"), ("Date", "@0")], false),
        ("RFC 9111 4.2", "present", &[("Expires", "@0"), ("Date", "@0")], false),
        ("RFC 9111 4.2.1", "before Date, both ahead", &[("Expires", "@300"), ("Date", "@400")], false),
        ("RFC 9111 5.3", "0", &[("Expires", "0"), ("Date", "@0")], false),
        ("RFC 9110 6.6.1", "without Date", &[("Expires", "@10")], true),
        ("RFC 9110 6.6.1", "Date is no date", &[("Date", "foo"), ("Expires", "@10")], true),
        (
            "RFC 9111 5.3",
            "max-age wins over a past one",
            &[("Cache-Control", "max-age=3600"), ("Expires", "@-7200"), ("Date", "@0")],
            true,
        ),
        (
            "RFC 9111 5.3",
            "max-age wins over a bad one",
            &[("Cache-Control", "max-age=3600"), ("Expires", "0"), ("Date", "@0")],
            true,
        ),
        (
            "RFC 9111 5.3",
            "max-age=0 wins",
            &[("Expires", "@3600"), ("Cache-Control", "max-age=0"), ("Date", "@0")],
            false,
        ),
        (
            "RFC 9111 4.2.3",
            "Age beyond it, Date slow",
            &[("Date", "@-10"), ("Expires", "@10"), ("Age", "25")],
            false,
        ),
        (
            "RFC 9111 4.2.3",
            "Age beyond it, Date fast",
            &[("Date", "@10"), ("Expires", "@20"), ("Age", "15")],
            false,
        ),
    ]);
    let dates = [
        ("Tue, 19 Jan 2038 14:14:08 GMT", true),
        ("Sun, 21 Nov 2286 04:46:39 GMT", true),
        ("Thursday, 18-Aug-50 02:01:18 GMT", true),
        ("Thu Aug  8 02:01:18 2050", true),
        ("THU, 18 Aug 2050 02:01:18 GMT", true),
        ("Thu, 18 AUG 2050 02:01:18 GMT", true),
        ("Thu, 18 Aug 2050 02:01:18 gMT", true),
        ("Thu, 18 Aug 2050 02:01:18 UTC", false),
        ("Thu, 18 Aug 2050 02:01:18 AEST", false),
        ("Thu, 18 Aug 50 02:01:18 GMT", false),
        ("Thu 18 Aug 2050 02:01:18 GMT", false),
        ("Thu, 18  Aug  2050 02:01:18 GMT", false),
        ("Thu, 18-Aug-2050 02:01:18 GMT", false),
        ("Thu, 18 Aug 2050 02.01.18 GMT", false),
        ("Thu, 18 Aug 2050 2:01:18 GMT", false),
    ];
    for (date, reused) in dates {
        check(&[("RFC 9110 5.6.7", date, &[("Expires", date), ("Date", "@0")], reused)]);
    }
    let two = [
        ("Expires", "Thu, 18 Aug 2050 02:01:18 GMT"),
        ("Expires", "Thu, 18 Aug 2050 02:01:19 GMT"),
        ("Date", "@0"),
    ];
    check(&[("RFC 9111 4.2.1", "two lines", &two, false)]);
}

#[test]
fn age_is_read_leniently_and_counted_strictly() {
    let rows: &[(&str, &[&str], bool)] = &[
        ("above the lifetime", &["7200"], false),
        ("no number", &["abc"], true),
        ("negative", &["-7200"], true),
        ("decimal", &["7200.0"], true),
        ("2^31 - 1", &["2147483647"], false),
        ("2^31", &["2147483648"], false),
        ("2^31 + 1", &["2147483649"], false),
        ("beyond 64 bits", &["99999999999999999999999"], false),
        ("old first", &["7200, 0"], false),
        ("old last", &["0, 7200"], true),
        ("old in the first line", &["7200", "0"], false),
        ("old in the second line", &["0", "7200"], true),
        ("twice 0", &["0, 0"], true),
        ("two lines of 0", &["0", "0"], true),
        ("with a parameter", &["7200;foo=bar"], true),
    ];
    for (name, ages, reused) in rows {
        let mut fields = vec![("Date", "@0"), ("Cache-Control", "max-age=3600")];
        fields.extend(ages.iter().map(|age| ("Age", *age)));
        check(&[("RFC 9111 5.1", name, &fields, *reused)]);
    }
    check(&[
        (
            "RFC 9111 4.2.3",
            "a Date in the past is an age",
            &[("Date", "@-7200"), ("Cache-Control", "max-age=3600")],
            false,
        ),
        (
            "RFC 9111 4.2.3",
            "a Date ahead is none",
            &[("Date", "@7200"), ("Cache-Control", "max-age=3600")],
            true,
        ),
        (
            "RFC 9111 5.1",
            "twice a young age",
            &[("Cache-Control", "max-age=10000"), ("Age", "3600"), ("Age", "3600")],
            true,
        ),
    ]);
}

#[test]
fn answers_tell_their_age_and_keep_their_dates() {
    let rows = [
        ("RFC 9111 5.1", vec![("Cache-Control", "max-age=100000"), ("Date", "@0")], 0, "3"),
        ("RFC 9111 5.1", vec![("Cache-Control", "max-age=100000"), ("Date", "@0"), ("Age", "30")], 0, "33"),
        ("RFC 9111 5.1", vec![("Expires", "@2592000"), ("Date", "@0"), ("Age", "30")], 0, "33"),
        ("RFC 9111 4.2.3", vec![("Cache-Control", "max-age=100000"), ("Age", "30")], 4, "37"),
        (
            "RFC 9111 4.2.3",
            vec![("Cache-Control", "max-age=100000"), ("Date", "@-60"), ("Age", "30")],
            0,
            "63",
        ),
    ];
    for (section, fields, delay, age) in rows {
        let mut scene = Scene { delay: delay * 1000, ..Scene::new() };
        scene.get(&[], &Origin::Reply(200, &fields));
        let (date, expires) = (scene.objects[0].0.headers.clone(), scene.fields(&fields));
        scene.wait(3);
        let seen = scene.get(&[], &Origin::Down);
        assert_eq!((seen.source, seen.field("age").as_deref()), (Source::Store, Some(age)), "{section}");
        assert_eq!(seen.headers.count(foregate_wire::NameId::Age), 1);
        assert_eq!(seen.headers.get_name(b"date"), date.get_name(b"date"));
        assert_eq!(seen.headers.get_name(b"expires"), expires.get_name(b"expires"));
    }
}

#[test]
fn a_response_without_date_gets_that_of_its_receipt() {
    let mut scene = Scene::new();
    scene.get(&[], &Origin::Reply(200, &[("Cache-Control", "max-age=9")]));
    scene.wait(3);
    assert_eq!(scene.get(&[], &Origin::Down).field("date").as_deref(), Some("Sat, 28 Nov 2026 12:00:00 GMT"));
}

#[test]
fn steps_of_the_system_clock_expire_nothing_and_make_no_age_negative() {
    for step in [3600_i64, -3600] {
        let mut scene = Scene::new();
        scene.get(&[], &Origin::Reply(200, &[("Cache-Control", "max-age=60"), ("Date", "@0")]));
        scene.wait(3);
        let stored = &scene.objects[0].0;
        let now = scene.now();
        let stepped = foregate_cache::Moment { wall: now.wall.checked_add_signed(step).unwrap(), ..now };
        assert_eq!((stored.life.age(stepped.cache), stored.life.remaining(stepped.cache)), (3, 57));
    }
}

#[test]
fn heuristics_are_a_tenth_of_the_time_unchanged() {
    let day = [("Last-Modified", "@-86400"), ("Date", "@0")];
    for (status, reused) in [
        (200, true),
        (201, false),
        (202, false),
        (203, true),
        (204, true),
        (300, true),
        (301, true),
        (302, false),
        (308, true),
        (403, false),
        (404, false),
        (410, false),
        (501, false),
        (502, false),
        (503, false),
        (504, false),
        (599, false),
    ] {
        let expected = if reused { Source::Store } else { Source::Origin };
        assert_eq!(again(status, &day), expected, "RFC 9111 4.2.2, RFC 9110 15.1: {status}");
    }
    // Errors on demand.
    for (status, reused) in
        [(404, true), (405, true), (410, true), (414, true), (501, true), (403, false), (599, false)]
    {
        let heuristics = Heuristics { errors: true, ..Heuristics::default() };
        let mut scene = Scene::with(Policy { heuristics, ..Policy::default() });
        let expected = if reused { Source::Store } else { Source::Origin };
        assert_eq!(again_in(&mut scene, status, &day), expected, "RFC 9111 4.2.2: {status}");
        let mut scene = Scene::with(Policy { heuristics, ..Policy::default() });
        let public = [("Last-Modified", "@-86400"), ("Date", "@0"), ("Cache-Control", "public")];
        assert_eq!(again_in(&mut scene, status, &public), Source::Store, "RFC 9111 5.2.2.9: {status}");
    }
    check(&[
        (
            "RFC 9111 4.2.2",
            "ten seconds unchanged give one",
            &[("Last-Modified", "@-10"), ("Date", "@0")],
            false,
        ),
        ("RFC 9111 4.2.2", "sixty give six", &[("Last-Modified", "@-60"), ("Date", "@0")], true),
        ("RFC 9111 4.2.2", "changed in the future", &[("Last-Modified", "@60"), ("Date", "@0")], false),
        ("RFC 9111 4.2.2", "no date", &[("Last-Modified", "yesterday"), ("Date", "@0")], false),
        (
            "RFC 9111 5.4",
            "Pragma in a response means nothing",
            &[("Last-Modified", "@-10000"), ("Date", "@0"), ("Pragma", "no-cache")],
            true,
        ),
    ]);
}

#[test]
fn heuristics_stop_at_a_day_and_leave_personal_requests_alone() {
    let old = [("Last-Modified", "@-100000000"), ("Date", "@0")];
    let mut scene = Scene::new();
    scene.get(&[], &Origin::Reply(200, &old));
    scene.wait(86_399);
    assert_eq!(scene.get(&[], &Origin::Reply(304, &[("Date", "@0")])).source, Source::Store);
    scene.wait(1);
    assert_eq!(scene.get(&[], &Origin::Reply(304, &[("Date", "@0")])).source, Source::Validated);

    let mut scene = Scene { query: true, ..Scene::new() };
    assert_eq!(again_in(&mut scene, 200, &old), Source::Origin);
    let mut scene = Scene::new();
    scene.get(&[("Cookie", "a=b")], &Origin::Reply(200, &old));
    scene.wait(3);
    assert_eq!(scene.get(&[], &Origin::Reply(200, &old)).source, Source::Origin);
    let off = Heuristics { percent: 0, ..Heuristics::default() };
    let mut scene = Scene::with(Policy { heuristics: off, ..Policy::default() });
    assert_eq!(again_in(&mut scene, 200, &old), Source::Origin);
}

#[test]
fn settings_state_lifetimes_by_status() {
    let policy = |over_origin| Policy {
        lifetimes: vec![
            StatusLifetime { statuses: 200..=200, seconds: 60, over_origin, condition: None },
            StatusLifetime { statuses: 404..=404, seconds: 2, over_origin, condition: None },
        ],
        ..Policy::default()
    };
    let rows: &[(u16, Fields<'_>, bool, bool)] = &[
        (200, &[], false, true),
        (404, &[], false, false),
        (500, &[], false, false),
        (200, &[("Cache-Control", "max-age=1")], false, false),
        (200, &[("Cache-Control", "max-age=1")], true, true),
        (404, &[("Cache-Control", "max-age=60")], false, true),
        (404, &[("Cache-Control", "max-age=60")], true, false),
        (200, &[("Cache-Control", "no-cache")], false, false),
        (200, &[("Cache-Control", "no-cache")], true, true),
        (200, &[("Cache-Control", "no-store")], true, false),
        (200, &[("Cache-Control", "private, max-age=60")], true, false),
        (200, &[("Set-Cookie", "a=b")], true, false),
        (200, &[("Vary", "*")], true, false),
    ];
    for (status, fields, over_origin, reused) in rows {
        let mut scene = Scene::with(policy(*over_origin));
        let expected = if *reused { Source::Store } else { Source::Origin };
        assert_eq!(again_in(&mut scene, *status, fields), expected, "{status} {fields:?} {over_origin}");
    }
}
