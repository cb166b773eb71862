//! Rooms of the proxy, which are its top-level modules, and circles of files in every crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::source::Source;
use super::{name, packages, root};

/// The rooms of `foregate-proxy`, the lowest first, each with the rooms that it uses. All of them stand above it in this list, so
/// there is no circle. A new arrow is written down here, and only if it leads to a lower room; a lower room that needs something
/// of a higher one is given a value, a callback or a type of its own.
const ROOMS: &[(&str, &[&str])] = &[
    ("address", &[]),
    ("sys", &[]),
    ("random", &[]),
    ("files", &[]),
    ("watch", &[]),
    ("memory", &["sys"]),
    ("notify", &[]),
    ("pinning", &[]),
    ("websocket", &[]),
    ("shelf", &[]),
    ("counters", &[]),
    ("time", &["shelf", "counters"]),
    ("settings", &["address"]),
    ("limits", &["counters", "time", "settings"]),
    ("tls", &["files", "watch", "counters", "time", "settings"]),
    ("transport", &["shelf", "settings", "limits", "tls"]),
    ("handover", &["transport"]),
    ("error", &["limits", "transport"]),
    ("message", &["shelf", "settings", "limits", "error"]),
    ("http2", &["time", "settings", "limits", "transport", "error", "message"]),
    ("folders", &["time", "settings", "limits"]),
    ("comparison", &["random", "counters", "settings", "limits"]),
    ("link", &["time", "settings", "limits", "transport", "message", "http2", "folders", "comparison"]),
    ("names", &["random", "counters", "time"]),
    ("routing", &["address", "sys", "counters", "settings"]),
    ("configuration", &["settings", "routing"]),
    ("offload", &["sys", "counters", "limits"]),
    ("fetches", &["settings", "limits"]),
    ("loops", &["random"]),
    ("spans", &["random", "counters"]),
    (
        "upstream",
        &[
            "address",
            "random",
            "websocket",
            "counters",
            "time",
            "settings",
            "spans",
            "limits",
            "tls",
            "transport",
            "error",
            "message",
            "link",
            "names",
        ],
    ),
    (
        "cache",
        &[
            "address", "random", "files", "counters", "time", "settings", "spans", "limits", "tls", "error",
            "message", "link", "upstream",
        ],
    ),
    ("telemetry", &["address", "files", "counters", "time", "settings", "limits", "folders"]),
    (
        "proxy",
        &[
            "counters",
            "time",
            "settings",
            "limits",
            "tls",
            "handover",
            "routing",
            "configuration",
            "offload",
            "fetches",
            "loops",
            "folders",
            "comparison",
            "upstream",
            "cache",
            "spans",
            "telemetry",
        ],
    ),
    ("relay", &["time", "transport", "link"]),
    (
        "exchange",
        &[
            "address",
            "random",
            "shelf",
            "websocket",
            "counters",
            "time",
            "settings",
            "limits",
            "tls",
            "transport",
            "error",
            "message",
            "folders",
            "comparison",
            "link",
            "routing",
            "offload",
            "fetches",
            "loops",
            "upstream",
            "cache",
            "spans",
            "telemetry",
            "proxy",
            "relay",
        ],
    ),
    ("exporter", &["random", "settings", "spans", "proxy", "exchange"]),
    (
        "connection",
        &[
            "counters",
            "time",
            "settings",
            "limits",
            "tls",
            "transport",
            "error",
            "message",
            "http2",
            "link",
            "configuration",
            "upstream",
            "proxy",
            "relay",
            "exchange",
        ],
    ),
    ("listener", &["time", "settings", "limits", "transport", "handover", "proxy", "connection"]),
    (
        "admin",
        &[
            "random",
            "pinning",
            "counters",
            "time",
            "settings",
            "limits",
            "tls",
            "transport",
            "comparison",
            "upstream",
            "cache",
            "telemetry",
            "proxy",
            "listener",
        ],
    ),
    (
        "server",
        &[
            "sys",
            "random",
            "watch",
            "memory",
            "notify",
            "pinning",
            "counters",
            "time",
            "settings",
            "limits",
            "tls",
            "handover",
            "configuration",
            "names",
            "upstream",
            "cache",
            "telemetry",
            "proxy",
            "listener",
            "admin",
            "exporter",
        ],
    ),
];

/// The rooms that `room` may use.
pub(super) fn used_by(room: &str) -> &'static [&'static str] {
    let (_, used) = ROOMS.iter().find(|(name, _)| *name == room).unwrap();
    used
}

/// The most files that may use each other in a circle, in any crate.
const LARGEST_CIRCLE: usize = 8;

#[test]
fn rooms_of_the_proxy_use_lower_rooms_alone() {
    let sources = Source::all(&root().join("crates/foregate-proxy/src"));
    let mut used: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for source in &sources {
        let Some(room) = source.module.first() else { continue };
        for (path, line) in &source.paths {
            let Some(other) = path.first().filter(|other| *other != room) else { continue };
            if sources.iter().any(|source| source.module.first() == Some(other)) {
                used.entry((room, other)).or_default().push(format!("{}:{line}", source.file.display()));
            }
        }
    }
    assert!(used.len() > 50, "the arrows were not found: {used:?}");

    let listed: BTreeMap<_, _> = ROOMS.iter().copied().collect();
    let mut wrong = Vec::new();
    for room in sources.iter().filter_map(|source| source.module.first()).collect::<BTreeSet<_>>() {
        if !listed.contains_key(&**room) {
            wrong.push(format!("{room} is not in the list of rooms: add it behind the rooms that it uses"));
        }
    }
    for ((room, other), places) in &used {
        if !listed.get(room).is_some_and(|others| others.contains(other)) {
            wrong.push(format!("{room} must not use {other}: {}", places.join(", ")));
        }
    }
    for (at, (room, others)) in ROOMS.iter().enumerate() {
        for other in *others {
            if !ROOMS[..at].iter().any(|(lower, _)| lower == other) {
                wrong.push(format!("{other} does not stand above {room}, which uses it"));
            }
            if !used.contains_key(&(*room, *other)) {
                wrong.push(format!("{room} does not use {other}: take it out of the list"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A name that a search or a message of the compiler shows must mean one type.
#[test]
fn names_of_types_are_unique_in_their_crate() {
    let mut wrong = Vec::new();
    let mut all = 0;
    for package in &packages() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("src");
        if !fs::exists(&folder).unwrap() {
            continue;
        }
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for source in Source::all(&folder) {
            for (name, line) in &source.types {
                let place = format!("{}:{line}", source.file.display());
                places.entry(name.clone()).or_default().push(place);
            }
        }
        all += places.len();
        for (name_of_type, places) in places.iter().filter(|(_, places)| places.len() > 1) {
            wrong.push(format!("{} defines {name_of_type} in {}", name(package), places.join(", ")));
        }
    }
    assert!(all > 1000, "only {all} types were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn circles_of_files_are_small() {
    let mut wrong = Vec::new();
    for package in &packages() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("src");
        if !fs::exists(&folder).unwrap() {
            continue;
        }
        let circle = largest_circle(&Source::all(&folder));
        if circle.len() > LARGEST_CIRCLE {
            wrong.push(format!("{}: a circle of {}: {}", name(package), circle.len(), circle.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The modules of the files that use each other in the largest circle.
fn largest_circle(sources: &[Source]) -> Vec<String> {
    let numbers: BTreeMap<_, _> =
        sources.iter().enumerate().map(|(at, source)| (&source.module[..], at)).collect();
    // The file of a path is the longest start of it that is one. That of the crate itself is in no circle.
    let file = |path: &[String]| (1..=path.len()).rev().find_map(|end| numbers.get(&path[..end]).copied());
    let uses: Vec<BTreeSet<usize>> = sources
        .iter()
        .map(|source| {
            let used = source.paths.iter().filter_map(|(path, _)| file(path));
            used.filter(|used| sources[*used].module != source.module).collect()
        })
        .collect();
    let reached: Vec<_> = (0..sources.len())
        .map(|from| {
            let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(at) = next.pop() {
                next.extend(uses[at].iter().copied().filter(|at| reached.insert(*at)));
            }
            reached
        })
        .collect();
    let circles = (0..sources.len()).map(|at| {
        let others = reached[at].iter().copied().filter(|other| reached[*other].contains(&at));
        others.map(|other| sources[other].module.join("::")).collect::<Vec<_>>()
    });
    circles.max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn circles_are_found() {
    let source = |module: &str, paths: &[&str]| Source {
        file: module.into(),
        module: vec![module.to_owned()],
        paths: paths.iter().map(|path| (path.split("::").map(str::to_owned).collect(), 1)).collect(),
        types: Vec::new(),
        methods: Vec::new(),
    };
    let sources =
        [source("a", &["b::Item"]), source("b", &["c"]), source("c", &["a::x::y", "c"]), source("d", &["a"])];
    let circle: BTreeSet<_> = largest_circle(&sources).into_iter().collect();
    assert_eq!(circle, ["a", "b", "c"].map(str::to_owned).into());
}
