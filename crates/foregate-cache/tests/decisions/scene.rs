//! A cache of one address, with a clock and an origin by hand.

use foregate_cache::{
    AnsweredRequest, CacheTime, Content, Demands, Failure, Lookup, Moment, NotStored, Policy,
    RefreshedResponse, Request, Response, Reuse, Secret, StoredHead, ask_for_whole, ask_to_validate,
    format_date, lookup, refresh, refresh_by_head, reuse, store,
};
use foregate_wire::{HeaderList, Method};

/// 28 November 2026, 12:00.
pub const START: u64 = 1_795_867_200;

pub type Fields<'a> = &'a [(&'a str, &'a str)];

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Store,
    Stale,
    /// Served stale, to be validated behind the client's back.
    StaleRefreshing,
    Origin,
    /// The store, after the origin said that it is current.
    Validated,
    /// Nowhere: 502 or 504.
    Nothing,
}

pub enum Origin<'a> {
    Reply(u16, Fields<'a>),
    Down,
}

pub struct Seen {
    pub source: Source,
    pub status: u16,
    pub headers: HeaderList,
    pub body: Vec<u8>,
    /// The request as the origin saw it.
    pub sent: Option<HeaderList>,
    /// The decision on storing the origin's response, if there was one.
    pub stored: Option<Result<(), NotStored>>,
}

impl Seen {
    pub fn field(&self, name: &str) -> Option<String> {
        self.headers.get_name(name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    pub fn sent(&self, name: &str) -> Option<String> {
        let sent = self.sent.as_ref().unwrap();
        sent.get_name(name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned())
    }
}

pub struct Scene {
    pub policy: Policy,
    pub secret: Secret,
    pub path: String,
    pub query: bool,
    /// Milliseconds since the start.
    pub time: u64,
    /// How long the origin takes.
    pub delay: u64,
    pub body: Vec<u8>,
    pub outdated: bool,
    pub objects: Vec<(StoredHead, Vec<u8>)>,
}

impl Scene {
    pub fn new() -> Self {
        Self {
            policy: Policy::default(),
            secret: Secret::new([7; 16]),
            path: "/page".to_owned(),
            query: false,
            time: 0,
            delay: 0,
            body: b"0123456789A".to_vec(),
            outdated: false,
            objects: Vec::new(),
        }
    }

    pub fn with(policy: Policy) -> Self {
        Self { policy, ..Self::new() }
    }

    pub fn now(&self) -> Moment {
        Moment { wall: START + self.time / 1000, cache: CacheTime(5_000_000 + self.time) }
    }

    pub fn wait(&mut self, seconds: u64) {
        self.time += seconds * 1000;
    }

    /// Fields, of which the values `@N` are the date in N seconds.
    pub fn fields(&self, fields: Fields<'_>) -> HeaderList {
        let mut list = HeaderList::new();
        for (name, value) in fields {
            let value = match value.strip_prefix('@') {
                Some(offset) => {
                    let offset: i64 = offset.parse().unwrap();
                    format_date(self.now().wall.checked_add_signed(offset).unwrap())
                }
                None => (*value).to_owned(),
            };
            list.push(name.as_bytes(), value.as_bytes());
        }
        list
    }

    pub fn get(&mut self, fields: Fields<'_>, origin: &Origin<'_>) -> Seen {
        self.request(Method::Get, fields, origin)
    }

    pub fn request(&mut self, method: Method, fields: Fields<'_>, origin: &Origin<'_>) -> Seen {
        let headers = self.fields(fields);
        let path = self.path.clone();
        let request = Request {
            method: &method,
            headers: &headers,
            path: path.as_bytes(),
            has_query: self.query,
            has_body: false,
        };
        let demands = match lookup(&request, &self.policy) {
            Lookup::Cache(demands) => demands,
            Lookup::Bypass(_) => return self.pass(headers, origin),
            Lookup::Unavailable => return nothing(504),
        };
        let selected = self.objects.iter().position(|(stored, _)| {
            stored.vary.as_ref().is_none_or(|vary| vary.selects(&headers, &self.secret))
        });
        let Some(at) = selected else {
            if demands.only_if_cached() {
                return nothing(504);
            }
            return self.miss(&demands, headers, origin);
        };
        match reuse(&self.objects[at].0, &demands, self.outdated, self.now().cache) {
            Reuse::Fresh => self.answer(at, &demands, &headers, Source::Store),
            Reuse::Stale => self.answer(at, &demands, &headers, Source::Stale),
            Reuse::StaleWhileRevalidate => self.answer(at, &demands, &headers, Source::StaleRefreshing),
            Reuse::Unavailable => nothing(504),
            Reuse::Validate(_) => self.validate(at, &demands, headers, origin),
        }
    }

    fn pass(&mut self, headers: HeaderList, origin: &Origin<'_>) -> Seen {
        self.time += self.delay;
        match origin {
            Origin::Down => Seen { sent: Some(headers), ..nothing(502) },
            Origin::Reply(status, fields) => Seen {
                source: Source::Origin,
                status: *status,
                headers: self.fields(fields),
                body: self.body.clone(),
                sent: Some(headers),
                stored: None,
            },
        }
    }

    fn miss(&mut self, demands: &Demands, headers: HeaderList, origin: &Origin<'_>) -> Seen {
        let (sent, mut asked) = (self.now(), headers.clone());
        ask_for_whole(&mut asked);
        let mut seen = self.pass(asked, origin);
        if seen.source == Source::Origin {
            seen.stored = Some(self.store(demands, &headers, sent, seen.status, &seen.headers));
        }
        seen
    }

    fn store(
        &mut self,
        demands: &Demands,
        headers: &HeaderList,
        sent: Moment,
        status: u16,
        response: &HeaderList,
    ) -> Result<(), NotStored> {
        let asked = AnsweredRequest { demands, headers, path: self.path.as_bytes() };
        let response = Response { status, headers: response, sent, received: self.now() };
        let stored = store(&asked, &response, &self.policy, &self.secret)?;
        self.objects
            .retain(|(old, _)| old.vary.is_some() && stored.vary.is_some() && old.vary != stored.vary);
        self.objects.push((stored, self.body.clone()));
        self.outdated = false;
        Ok(())
    }

    fn validate(&mut self, at: usize, demands: &Demands, headers: HeaderList, origin: &Origin<'_>) -> Seen {
        let sent = self.now();
        let mut asked = headers.clone();
        ask_to_validate(&mut asked, &self.objects[at].0);
        self.time += self.delay;
        let now = self.now();
        let (status, fields) = match origin {
            Origin::Reply(status, fields)
                if !self.objects[at].0.covers_failure(Failure::Status(*status), now.cache) =>
            {
                (*status, self.fields(fields))
            }
            Origin::Down if !self.objects[at].0.covers_failure(Failure::NoResponse, now.cache) => {
                return Seen { sent: Some(asked), ..nothing(502) };
            }
            _ => {
                let seen = self.answer(at, demands, &headers, Source::Stale);
                return Seen { sent: Some(asked), ..seen };
            }
        };
        let (stored, body) = self.objects[at].clone();
        let response = Response { status, headers: &fields, sent, received: now };
        let path = self.path.clone();
        let by = AnsweredRequest { demands, headers: &headers, path: path.as_bytes() };
        let refreshed = if status == 304 {
            refresh(&by, &stored, &response, &self.policy, &self.secret)
        } else if demands.is_head() {
            refresh_by_head(&by, &stored, body.len() as u64, &response, &self.policy, &self.secret)
        } else {
            let kept = self.store(demands, &headers, sent, status, &fields);
            let body = self.body.clone();
            let seen = Seen {
                source: Source::Origin,
                status,
                headers: fields,
                body,
                sent: Some(asked),
                stored: Some(kept),
            };
            return seen;
        };
        let Some(RefreshedResponse { stored, storable }) = refreshed else {
            self.outdated = true;
            let source = Source::Origin;
            return Seen {
                source,
                status,
                headers: fields,
                body: Vec::new(),
                sent: Some(asked),
                stored: None,
            };
        };
        self.objects[at].0 = stored;
        self.outdated = false;
        let seen = self.answer(at, demands, &headers, Source::Validated);
        if storable.is_err() {
            self.objects.remove(at);
        }
        Seen { sent: Some(asked), stored: Some(storable), ..seen }
    }

    fn answer(&self, at: usize, demands: &Demands, headers: &HeaderList, source: Source) -> Seen {
        let (stored, whole) = &self.objects[at];
        let mut out = HeaderList::new();
        let length = Some(whole.len() as u64);
        let answer = stored.answer(demands, headers, length, self.now(), 0xabcdef, &mut out);
        let part = |range: &std::ops::Range<u64>| whole[range.start as usize..range.end as usize].to_vec();
        let body = match &answer.content {
            Content::None => Vec::new(),
            Content::Whole => whole.clone(),
            Content::Part(range) => part(range),
            Content::Parts(parts) => {
                let mut body = Vec::new();
                for (head, range) in &parts.parts {
                    body.extend_from_slice(head);
                    body.extend_from_slice(&part(range));
                }
                body.extend_from_slice(&parts.end);
                assert_eq!(body.len() as u64, parts.length());
                body
            }
        };
        Seen { source, status: answer.status, headers: out, body, sent: None, stored: None }
    }
}

fn nothing(status: u16) -> Seen {
    let (headers, body) = (HeaderList::new(), Vec::new());
    Seen { source: Source::Nothing, status, headers, body, sent: None, stored: None }
}

/// A row: a response with these fields, three seconds, the same request again.
pub fn again(status: u16, fields: Fields<'_>) -> Source {
    let mut scene = Scene::new();
    again_in(&mut scene, status, fields)
}

pub fn again_in(scene: &mut Scene, status: u16, fields: Fields<'_>) -> Source {
    scene.get(&[], &Origin::Reply(status, fields));
    scene.wait(3);
    scene.get(&[], &Origin::Reply(status, fields)).source
}

/// Checks rows of section, name, fields of the response, and whether it is reused three seconds later.
pub fn check(rows: &[(&str, &str, Fields<'_>, bool)]) {
    for (section, name, fields, reused) in rows {
        let source = again(200, fields);
        let expected = if *reused { Source::Store } else { Source::Origin };
        assert_eq!(source, expected, "{section}: {name}");
    }
}
