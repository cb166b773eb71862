//! The compiled tables against matchers that read the rules from the documentation.

use proptest::prelude::*;

use super::*;
use crate::settings::Action;

fn route(pattern: &PathPattern) -> Route {
    Route::new(pattern.text().clone(), Action::Proxy(0))
}

fn site_of(patterns: &[&str]) -> Result<SiteTable, Vec<Unreachable>> {
    let mut builder = SiteTableBuilder::default();
    let routes = patterns
        .iter()
        .map(|text| {
            let pattern = builder.pattern(text).unwrap();
            let route = builder.route(route(&pattern));
            (pattern, route)
        })
        .collect();
    let routes = builder.route_set(routes)?;
    let site = builder.site("test".into(), SiteOptions::default(), routes);
    builder.host(site, &HostPattern::Any).unwrap();
    Ok(builder.build())
}

fn chosen<'s>(table: &'s SiteTable, path: &str) -> Option<&'s str> {
    table.route(table.find(b"any").unwrap(), path.as_bytes()).map(|route| &*route.pattern)
}

fn table_of(hosts: &[&str]) -> SiteTable {
    let mut builder = SiteTableBuilder::default();
    let routes = builder.route_set(Vec::new()).unwrap();
    for host in hosts {
        let site = builder.site((*host).into(), SiteOptions::default(), routes.clone());
        builder.host(site, &host.parse().unwrap()).unwrap();
    }
    builder.build()
}

#[test]
fn hosts_are_found_by_the_longest_match() {
    let table =
        table_of(&["example.com", "*.example.com", "*.a.example.com", "*", "127.0.0.1", "::1", "localhost"]);
    let find = |host: &str| table.find(host.as_bytes()).map(|id| table.site(id).name.to_string());
    for (host, site) in [
        ("example.com", "example.com"),
        ("x.example.com", "*.example.com"),
        ("x.y.example.com", "*.example.com"),
        ("a.example.com", "*.example.com"),
        ("x.a.example.com", "*.a.example.com"),
        ("notexample.com", "*"),
        ("com", "*"),
        ("", "*"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[::2]", "*"),
        ("[", "*"),
        ("localhost", "localhost"),
    ] {
        assert_eq!(find(host).as_deref(), Some(site), "{host}");
    }
    assert!(table_of(&["a.b"]).find(b"b").is_none());
    assert!(SiteTable::default().find(b"b").is_none());
}

#[test]
fn sites_with_equal_options_share_them() {
    let mut builder = SiteTableBuilder::with_room(1);
    let routes = builder.route_set(Vec::new()).unwrap();
    for (host, keep_slashes) in [("a", false), ("b", true), ("c", false)] {
        let options = SiteOptions { keep_slashes, ..SiteOptions::default() };
        let site = builder.site(host.into(), options, routes.clone());
        builder.host(site, &host.parse().unwrap()).unwrap();
    }
    let table = builder.build();
    let [a, b, c] = table.sites() else { panic!("{} sites", table.sites().len()) };
    assert!(Arc::ptr_eq(&a.options, &c.options) && b.options.keep_slashes && !a.options.keep_slashes);
    let keeps = |host: &[u8]| table.find(host).map(|id| table.keeps_slashes(id));
    assert_eq!(
        [keeps(b"a"), keeps(b"b"), keeps(b"c"), keeps(b"d")],
        [Some(false), Some(true), Some(false), None]
    );
}

#[test]
fn a_host_belongs_to_one_site() {
    let mut builder = SiteTableBuilder::default();
    let routes = builder.route_set(Vec::new()).unwrap();
    let site = builder.site("a".into(), SiteOptions::default(), routes);
    let host: HostPattern = "A.b".parse().unwrap();
    assert_eq!(builder.host(site, &host), Ok(()));
    assert_eq!(builder.host(site, &host), Err(DuplicateHost { site }));
    assert_eq!(builder.host(site, &"*.a.b".parse().unwrap()), Ok(()));
}

#[test]
fn routes_are_exact_before_wildcards_then_in_order() {
    let site =
        site_of(&["/static/**", "/users/*/posts", "/users/me/posts", "/users/*", "/users/**", "/", "/**"])
            .unwrap();
    for (path, pattern) in [
        ("/", "/"),
        ("/static", "/static/**"),
        ("/static/", "/static/**"),
        ("/static/a/b", "/static/**"),
        ("/statics", "/**"),
        ("/users/me/posts", "/users/me/posts"),
        ("/users/7/posts", "/users/*/posts"),
        ("/users/7", "/users/*"),
        ("/users/", "/users/**"),
        ("/users", "/users/**"),
        ("/users/*", "/users/*"),
        ("/users/7/posts/1", "/users/**"),
        ("*", "/**"),
        ("", "/**"),
    ] {
        assert_eq!(chosen(&site, path), Some(pattern), "{path}");
    }
    let site = site_of(&["/a/", "/b/*"]).unwrap();
    assert_eq!(chosen(&site, "/a"), None);
    assert_eq!(chosen(&site, "/a/"), Some("/a/"));
    assert_eq!(chosen(&site, "/b/"), None);
    assert_eq!(chosen(&site, "*"), None);
}

#[test]
fn routes_that_are_never_reached_are_told() {
    let unreachable = |patterns: &[&str]| site_of(patterns).err().map(|all| (all[0].index, all[0].by));
    assert_eq!(unreachable(&["/a", "/b", "/a"]), Some((2, 0)));
    assert_eq!(unreachable(&["/**", "/a/**"]), Some((1, 0)));
    assert_eq!(unreachable(&["/a/**", "/a/*"]), Some((1, 0)));
    assert_eq!(unreachable(&["/*/b", "/a/*", "/*/b"]), Some((2, 0)));
    assert_eq!(unreachable(&["/*/**", "/a/**"]), Some((1, 0)));
    assert_eq!(unreachable(&["/**", "/a"]), None);
    assert_eq!(unreachable(&["/a/*", "/*/b", "/**"]), None);
    assert_eq!(unreachable(&["/a/*", "/a/**"]), None);
}

#[test]
fn patterns_that_no_path_can_match_are_refused() {
    let parse = |text: &str| text.parse::<PathPattern>().unwrap_err();
    assert_eq!(parse("a"), PathPatternError::NoSlash);
    assert_eq!(parse(""), PathPatternError::NoSlash);
    assert_eq!(parse("/**/a"), PathPatternError::InnerRest);
    assert_eq!(parse("/a**"), PathPatternError::InnerRest);
    assert_eq!(parse("/a*"), PathPatternError::PartialStar);
    assert_eq!(parse("/a?b"), PathPatternError::Query);
    for (text, normal) in
        [("/a/../b", "/b"), ("/a b", "/a%20b"), ("/%c3", "/%C3"), ("/%41", "/A"), ("/é", "/%C3%A9")]
    {
        assert_eq!(parse(text), PathPatternError::NotNormal(normal.into()));
    }
    assert!(matches!(parse("/%4"), PathPatternError::NotAPath(_)));
    assert!("/caf%C3%A9//x".parse::<PathPattern>().unwrap().has_duplicate_slash());
}

#[test]
fn patterns_that_share_a_path_meet() {
    let meet = |pattern: &str, other: &str| pattern.parse::<PathPattern>().unwrap().meets(other);
    for (one, other) in
        [("/**", "/"), ("/a/**", "/a"), ("/a/*/c", "/a/b/*"), ("/a", "/**"), ("/a/**", "/*/b/**")]
    {
        assert!(meet(one, other) && meet(other, one), "{one} {other}");
    }
    for (one, other) in
        [("/a/**", "/b"), ("/a", "/a/"), ("/a/*", "/a/b/c"), ("/a/*", "/a/"), ("/a/b", "/a/c/**")]
    {
        assert!(!meet(one, other) && !meet(other, one), "{one} {other}");
    }
}

#[test]
fn equal_sets_are_one_in_memory() {
    let mut builder = SiteTableBuilder::default();
    let mut set = || {
        let pattern = builder.pattern("/**").unwrap();
        let route = builder.route(route(&pattern));
        builder.route_set(vec![(pattern, route)]).unwrap()
    };
    assert_eq!(set().set, set().set);
}

/// `cargo test --release -p foregate-proxy routing -- --ignored --nocapture`
#[test]
#[ignore = "measures"]
fn a_lookup_costs_the_same_with_many_sites() {
    for count in [1, 1000, 100_000] {
        let mut builder = SiteTableBuilder::default();
        for i in 0..count {
            let patterns = ["/", &format!("/static{i}/**"), &format!("/api/v{i}/**"), "/health", "/**"];
            let routes = patterns.map(|text| {
                let pattern = builder.pattern(text).unwrap();
                let route = builder.route(route(&pattern));
                (pattern, route)
            });
            let routes = builder.route_set(routes.into()).unwrap();
            let host = format!("host{i}.example.com");
            let site = builder.site(host.as_str().into(), SiteOptions::default(), routes);
            builder.host(site, &host.parse().unwrap()).unwrap();
        }
        let table = builder.build();
        let start = std::time::Instant::now();
        let rounds = 2_000_000_u64;
        let mut found = 0_u64;
        let mut host = String::new();
        for round in 0..rounds {
            // A stride without a common factor with the number of hosts visits all of them. The
            // text is rewritten, so that reading it does not dominate.
            host.clear();
            host.push_str("host");
            host.push_str(itoa::Buffer::new().format(round * 7919 % count));
            host.push_str(".example.com");
            let id = table.find(host.as_bytes()).unwrap();
            found += u64::from(table.route(id, b"/b/1024").is_some());
        }
        assert_eq!(found, rounds);
        println!("{count} sites: {} ns", start.elapsed().as_nanos() as u64 / rounds);
    }
}

/// Returns true if `pattern` matches `path`, by the words of the documentation.
fn takes(pattern: &str, path: &str) -> bool {
    if !path.starts_with('/') {
        return pattern == "/**";
    }
    let (segments, open) = match pattern.strip_suffix("/**") {
        Some(prefix) => (prefix.split('/').skip(1).collect::<Vec<_>>(), true),
        None => (pattern.split('/').skip(1).collect(), false),
    };
    let path: Vec<&str> = path.split('/').skip(1).collect();
    (path.len() == segments.len() || (open && path.len() > segments.len()))
        && segments.iter().zip(&path).all(|(s, p)| if *s == "*" { !p.is_empty() } else { s == p })
}

fn naive<'p>(patterns: &[&'p str], path: &str) -> Option<&'p str> {
    let exact = patterns.iter().find(|pattern| !pattern.contains('*') && takes(pattern, path));
    exact.or_else(|| patterns.iter().find(|pattern| takes(pattern, path))).copied()
}

proptest! {
    #[test]
    fn the_matcher_agrees_with_the_rules(
        patterns in prop::collection::vec("(/(a|b|\\*)){0,4}(/\\*\\*|/|/c)", 0..12),
        paths in prop::collection::vec("(/(a|b|c|\\*|)){0,5}", 1..20),
    ) {
        let mut kept: Vec<&str> = Vec::new();
        for pattern in &patterns {
            kept.push(pattern);
            // A route that is reported as unreachable is never chosen by the rules either.
            if site_of(&kept).is_err() {
                kept.pop();
                for path in &paths {
                    let with: Vec<&str> = kept.iter().copied().chain([pattern.as_str()]).collect();
                    prop_assert_eq!(naive(&with, path), naive(&kept, path));
                }
            }
        }
        let site = site_of(&kept).unwrap();
        for path in &paths {
            prop_assert_eq!(chosen(&site, path), naive(&kept, path), "{} in {:?}", path, kept);
        }
    }

    #[test]
    fn the_trie_agrees_with_the_rules(
        hosts in prop::collection::hash_set("(\\*\\.)?([ab]\\.){0,3}[ab]", 0..12),
        any in any::<bool>(),
        asked in prop::collection::vec("([abc]\\.){0,4}[abc]", 1..20),
    ) {
        let mut hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        if any {
            hosts.push("*");
        }
        let table = table_of(&hosts);
        for host in &asked {
            let below = |pattern: &&&str| pattern.strip_prefix('*').is_some_and(|suffix| host.ends_with(suffix));
            let expected = hosts.iter().find(|pattern| *pattern == host)
                .or_else(|| hosts.iter().filter(below).max_by_key(|pattern| pattern.len()));
            let found = table.find(host.as_bytes()).map(|id| table.site(id).name.to_string());
            prop_assert_eq!(found.as_deref(), expected.copied());
        }
    }
}

fn conditional(text: &str) -> Option<Arc<RouteConditions>> {
    (!text.is_empty()).then(|| {
        Arc::new(RouteConditions { text: text.into(), port: None, listeners: Vec::new(), all: Vec::new() })
    })
}

fn conditional_site(routes: &[(&str, &str)]) -> Result<SiteTable, Vec<Unreachable>> {
    let mut builder = SiteTableBuilder::default();
    let routes = routes.iter().map(|(text, conditions)| {
        let pattern = builder.pattern(text).unwrap();
        let route = Route { conditions: conditional(conditions), ..route(&pattern) };
        let route = builder.route(route);
        (pattern, route)
    });
    let routes = routes.collect();
    let routes = builder.route_set(routes)?;
    let site = builder.site("test".into(), SiteOptions::default(), routes);
    builder.host(site, &HostPattern::Any).unwrap();
    Ok(builder.build())
}

#[test]
fn conditions_are_tried_in_the_order_of_routes() {
    let all = [
        ("/a/**", "post"),
        ("/a/*", ""),
        ("/a/b", "get"),
        ("/**", "get"),
        ("/a/b", ""),
        ("/a/**", "late"),
        ("/**", ""),
    ];
    let table = conditional_site(&all).unwrap();
    let id = table.find(b"any").unwrap();
    assert!(table.has_conditions(id));
    let find = |path: &str, holding: &str| {
        let route = table.route_if(id, path.as_bytes(), &mut |conditions| *conditions.text == *holding);
        route.map(|route| (route.pattern.to_string(), route.conditions.as_ref().map(|c| c.text.to_string())))
    };
    for (path, holding, pattern, conditions) in [
        ("/a/b", "get", "/a/b", "get"),
        ("/a/b", "post", "/a/b", ""),
        ("/a/c", "post", "/a/**", "post"),
        ("/a/c", "get", "/a/*", ""),
        ("/a/c/d", "get", "/**", "get"),
        ("/a/c/d", "late", "/a/**", "late"),
        ("/a/c/d", "none", "/**", ""),
        ("/x", "post", "/**", ""),
    ] {
        let expected = (pattern.to_owned(), (!conditions.is_empty()).then(|| conditions.to_owned()));
        assert_eq!(find(path, holding), Some(expected), "{path} {holding}");
    }
}

#[test]
fn conditions_that_come_too_late_are_told() {
    let unreachable = |routes: &[(&str, &str)]| {
        let found = conditional_site(routes).err().unwrap_or_default();
        found.iter().map(|found| (found.index, found.by)).collect::<Vec<_>>()
    };
    assert_eq!(unreachable(&[("/**", ""), ("/a/**", "get")]), [(1, 0)]);
    assert_eq!(unreachable(&[("/**", "get"), ("/a/**", "get"), ("/a/**", "")]), [(1, 0)]);
    assert_eq!(unreachable(&[("/a", "get"), ("/a", ""), ("/a", "post"), ("/a", "")]), [(2, 1), (3, 1)]);
    assert_eq!(unreachable(&[("/**", ""), ("/a", "get"), ("/a", "")]), []);
}

#[test]
fn sites_are_found_by_their_listeners() {
    let mut builder = SiteTableBuilder::default();
    let address = |port: u16| ListenAddress::Tcp(([127, 0, 0, 1], port).into());
    let mut add = |name: &str, host: &str, ports: &[u16]| {
        let listeners = ports.iter().map(|port| address(*port)).collect();
        let options = SiteOptions { listeners, ..SiteOptions::default() };
        let routes = builder.route_set(Vec::new()).unwrap();
        let site = builder.site(name.into(), options, routes);
        builder.host(site, &host.parse().unwrap()).map_err(|rival| rival.site)
    };
    assert_eq!(add("all", "*", &[]), Ok(()));
    assert_eq!(add("inner", "*", &[1, 2]), Ok(()));
    assert_eq!(add("again", "*", &[3, 2]), Err(1));
    assert_eq!(add("a", "a.example", &[]), Ok(()));
    assert_eq!(add("inner-a", "a.example", &[1]), Ok(()));
    assert_eq!(add("below", "*.example", &[1]), Ok(()));
    assert_eq!(add("last", "*.example", &[]), Ok(()));
    let table = builder.build();
    let find = |host: &str, port: u16| {
        let found = table.explain_on(host.as_bytes(), &address(port));
        found.map_or_else(String::new, |(id, _)| table.site(id).name.to_string())
    };
    for (host, port, site) in [
        ("x", 1, "inner"),
        ("x", 2, "inner"),
        ("x", 4, "all"),
        ("a.example", 1, "inner-a"),
        ("a.example", 2, "a"),
        ("b.example", 1, "below"),
        ("b.example", 2, "last"),
    ] {
        assert_eq!(find(host, port), site, "{host} {port}");
    }
}
