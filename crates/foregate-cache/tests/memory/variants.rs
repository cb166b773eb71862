use super::*;

fn put_for(memory: &Memory, uri: &Uri<'_>, request: &HeaderList, vary: &str, mark: &str) {
    let head = head(request, &[("Vary", vary), ("Mark", mark)]);
    assert!(memory.insert(object(uri, head, body(10), memory.floors().begin()), NOW));
}

fn mark(memory: &Memory, uri: &Uri<'_>, request: &HeaderList) -> Option<String> {
    let (object, _) = find_for(memory, uri, request)?;
    Some(String::from_utf8_lossy(object.head.headers.get_name(b"mark")?).into_owned())
}

#[test]
fn variants_live_side_by_side() {
    let (memory, uri) = (memory(1 << 20), uri("a", "/"));
    let requests = ["de", "en", "fr"].map(|language| headers(&[("Accept-Language", language)]));
    for (request, name) in requests.iter().zip(["1", "2", "3"]) {
        assert_eq!(mark(&memory, &uri, request), None);
        put_for(&memory, &uri, request, "Accept-Language", name);
    }
    for (request, name) in requests.iter().zip(["1", "2", "3"]) {
        assert_eq!(mark(&memory, &uri, request).as_deref(), Some(name));
    }
    assert_eq!(mark(&memory, &uri, &HeaderList::new()), None);
    // Fetches of one variant share a key, also for requests that write it in another way.
    let variant = |fields| match memory.get(key(&uri), &text(&uri), &headers(fields)) {
        MemoryLookup::Nothing { variant } => variant.unwrap(),
        MemoryLookup::Object { .. } => panic!("nothing is stored"),
    };
    assert_eq!(variant(&[("Accept-Language", "it, es")]), variant(&[("Accept-Language", " it , ES")]));
    assert_ne!(variant(&[("Accept-Language", "it")]), variant(&[("Accept-Language", "es")]));
}

#[test]
fn responses_may_vary_by_other_fields_later() {
    let (memory, uri) = (memory(1 << 20), uri("a", "/"));
    let both = headers(&[("A", "1"), ("B", "1")]);
    for vary in ["A", "B", "A, B"] {
        put_for(&memory, &uri, &both, vary, vary);
        // The latest one wins (RFC 9111, section 4.1).
        assert_eq!(mark(&memory, &uri, &both).as_deref(), Some(vary));
    }
    assert_eq!(mark(&memory, &uri, &headers(&[("A", "1")])).as_deref(), Some("A"));
    assert_eq!(mark(&memory, &uri, &headers(&[("B", "1")])).as_deref(), Some("B"));
    // One for all requests replaces them, and the other way round.
    put(&memory, &uri, &[("Mark", "all")], 10);
    assert_eq!(mark(&memory, &uri, &headers(&[("A", "1")])).as_deref(), Some("all"));
    put_for(&memory, &uri, &both, "A", "new");
    assert_eq!(mark(&memory, &uri, &headers(&[("A", "1")])).as_deref(), Some("new"));
    assert_eq!(mark(&memory, &uri, &headers(&[("B", "1")])), None, "an older list of fields leads nowhere");
}

#[test]
fn invalidation_reaches_all_variants_for_ever() {
    let (memory, uri) = (memory(1 << 20), uri("a", "/"));
    let requests = ["1", "2"].map(|value| headers(&[("A", value)]));
    for request in &requests {
        put_for(&memory, &uri, request, "A", "old");
    }
    memory.invalidate(key(&uri), false);
    put_for(&memory, &uri, &requests[0], "A", "new");
    assert_eq!(mark(&memory, &uri, &requests[0]).as_deref(), Some("new"));
    assert_eq!(mark(&memory, &uri, &requests[1]), None);
    assert!(memory.floors().is_empty());
    // A fetch that began before is not stored.
    let early = object(&uri, head(&HeaderList::new(), &[]), body(1), memory.floors().begin());
    memory.invalidate(key(&uri), true);
    assert!(!memory.insert(early, NOW));
}

#[test]
fn an_object_is_removed_only_from_its_own_place() {
    let (memory, uri) = (memory(1 << 20), uri("a", "/"));
    for request in [HeaderList::new(), headers(&[("A", "1")])] {
        let vary: &[(&str, &str)] = if request.is_empty() { &[] } else { &[("Vary", "A")] };
        let make = || object(&uri, head(&request, vary), body(1), memory.floors().begin());
        let (old, new) = (make(), make());
        assert!(memory.insert(Arc::clone(&old), NOW) && memory.insert(Arc::clone(&new), NOW));
        memory.remove(&old);
        assert!(find_for(&memory, &uri, &request).is_some());
        memory.remove(&new);
        assert!(find_for(&memory, &uri, &request).is_none());
    }
}
