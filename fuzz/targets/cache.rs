//! Invariants of the cache's decisions for any heads. The function is the body of a fuzz target and is also run over that
//! target's corpus by `cargo test`.
//!
//! The first byte of an input chooses the settings, the rest are heads, separated by zero bytes: the first request, its response, a later
//! request, and the response to that.

use foregate_cache::{
    AnsweredRequest, CacheTime, Content, Demands, ExtensionRule, Failure, Heuristics, Lookup, Moment, Policy,
    Request, Response, Secret, SetCookie, StoredHead, Uri, ask_for_whole, ask_to_validate, lookup, refresh,
    refresh_by_head, related, reuse, store,
};
use foregate_wire::{HeaderList, Method, NameId, Scheme, Slashes};

const PATH: &[u8] = b"/account/x.css";
const LENGTH: u64 = 1000;

fn policy(choice: u8) -> Policy {
    Policy {
        client_directives: choice & 1 != 0,
        set_cookie: if choice & 2 != 0 { SetCookie::Store } else { SetCookie::Refuse },
        heuristics: Heuristics { errors: choice & 4 != 0, ..Heuristics::default() },
        extensions: (choice & 8 != 0).then(ExtensionRule::default),
        ..Policy::default()
    }
}

/// Reads lines as fields; lines that are none are left out.
fn fields(text: &[u8]) -> HeaderList {
    let mut list = HeaderList::new();
    for line in text.split(|&byte| byte == b'\n') {
        if let Some(colon) = line.iter().position(|&byte| byte == b':') {
            let _ = list.try_push(&line[..colon], &line[colon + 1..]);
        }
    }
    list
}

/// Returns true if the plain reading of Cache-Control forbids storing: no quotes, nothing targeted.
fn forbids(headers: &HeaderList) -> bool {
    let lines: Vec<_> = headers.get_all(NameId::CacheControl).map(<[u8]>::to_ascii_lowercase).collect();
    let plain = !headers.contains(NameId::CdnCacheControl) && !lines.iter().any(|line| line.contains(&b'"'));
    let mut directives =
        lines.iter().flat_map(|line| line.split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
    let understands = directives.clone().any(|directive| directive.starts_with(b"must-understand"));
    plain && !understands && directives.any(|directive| directive == b"no-store" || directive == b"private")
}

fn demands(headers: &HeaderList, method: Method, policy: &Policy) -> Option<Demands> {
    let request = Request { method: &method, headers, path: PATH, has_query: false, has_body: false };
    match lookup(&request, policy) {
        Lookup::Cache(demands) => Some(demands),
        Lookup::Bypass(_) | Lookup::Unavailable => None,
    }
}

fn moment(seconds: u64) -> Moment {
    Moment { wall: 1_795_867_200 + seconds, cache: CacheTime(seconds * 1000) }
}

/// Decisions about four heads.
pub fn cache_decisions(data: &[u8]) {
    let Some((&choice, text)) = data.split_first() else { return };
    let mut heads = text.splitn(4, |&byte| byte == 0).map(fields);
    let mut head = || heads.next().unwrap_or_default();
    let (first, response, second, update) = (head(), head(), head(), head());
    let (policy, secret) = (policy(choice), Secret::new([1; 16]));
    let Some(by) = demands(&first, Method::Get, &policy) else { return };
    let status = [200, 204, 301, 404, 503, 206, 299, 304][usize::from(choice >> 5)];
    let asked = AnsweredRequest { demands: &by, headers: &first, path: PATH };
    let arrived = Response { status, headers: &response, sent: moment(0), received: moment(1) };
    let uri = Uri { scheme: Scheme::Http, host: "a", port: None, path: PATH, query: None };
    for other in related(&response, &uri, Slashes::Merge) {
        assert!(other.path.starts_with(b"/"));
    }
    let Ok(stored) = store(&asked, &arrived, &policy, &secret) else { return };
    assert!(!forbids(&response), "{response:?}");
    check(&stored, &policy, &first);
    for method in [Method::Get, Method::Head] {
        let Some(later) = demands(&second, method, &policy) else { continue };
        for seconds in [1, 2, 60, 700, 100_000] {
            let now = moment(seconds);
            let _ = reuse(&stored, &later, seconds == 60, now.cache);
            let _ = stored.covers_failure(Failure::NoResponse, now.cache);
            answer(&stored, &later, &second, now);
        }
        let mut asks = second.clone();
        ask_to_validate(&mut asks, &stored);
        let mut whole = asks.clone();
        ask_for_whole(&mut whole);
        assert!(!whole.contains(NameId::Range) && !whole.contains(NameId::IfNoneMatch));
        let asked = AnsweredRequest { demands: &later, headers: &second, path: PATH };
        let validated = Response { status: 304, headers: &update, sent: moment(60), received: moment(60) };
        let refreshed = refresh(&asked, &stored, &validated, &policy, &secret);
        let by_head = Response { status: 200, ..validated };
        let by_head = refresh_by_head(&asked, &stored, LENGTH, &by_head, &policy, &secret);
        for refreshed in [refreshed, by_head].into_iter().flatten() {
            if refreshed.storable.is_ok() {
                check(&refreshed.stored, &policy, &second);
            }
            answer(&refreshed.stored, &later, &second, moment(61));
        }
    }
}

fn check(stored: &StoredHead, policy: &Policy, request: &HeaderList) {
    let gone = [
        NameId::Connection,
        NameId::KeepAlive,
        NameId::TransferEncoding,
        NameId::Upgrade,
        NameId::Age,
        NameId::SurrogateKey,
    ];
    assert!(gone.iter().all(|&id| !stored.headers.contains(id)), "{:?}", stored.headers);
    assert!(stored.headers.contains(NameId::Date));
    assert!(policy.set_cookie == SetCookie::Store || !stored.headers.contains(NameId::SetCookie));
    assert!(stored.vary.as_ref().is_none_or(|vary| vary.selects(request, &Secret::new([1; 16]))));
    let (early, late) = (CacheTime(1000), CacheTime(2000));
    assert!(
        stored.life.age(early) <= stored.life.age(late)
            && stored.life.remaining(early) >= stored.life.remaining(late)
    );
}

fn answer(stored: &StoredHead, demands: &Demands, request: &HeaderList, now: Moment) {
    let mut out = HeaderList::new();
    let answer = stored.answer(demands, request, Some(LENGTH), now, 7, &mut out);
    match answer.content {
        Content::Part(range) => {
            assert!(answer.status == 206 && range.start < range.end && range.end <= LENGTH);
            assert_eq!(
                out.get(NameId::ContentLength),
                Some((range.end - range.start).to_string().as_bytes())
            );
        }
        Content::Parts(parts) => {
            let mut ranges: Vec<_> = parts.parts.iter().map(|(_, range)| range.clone()).collect();
            ranges.sort_by_key(|range| range.start);
            assert!(ranges.iter().all(|range| range.start < range.end && range.end <= LENGTH));
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            assert_eq!(out.get(NameId::ContentLength), Some(parts.length().to_string().as_bytes()));
        }
        Content::Whole => assert!(!demands.is_head() && answer.status == stored.status),
        Content::None => assert!(demands.is_head() || matches!(answer.status, 204 | 304 | 412 | 416)),
    }
    assert!(matches!(answer.status, 412 | 416) || out.count(NameId::Age) == 1);
}
