//! The interface to the C half: the functions that `module/foregate.h` declares. This is the only file of the crate
//! with unsafe code.
//!
//! Two rules hold for the whole file. First, a text from the C half lives at least as long as the call, and a text of
//! a request as long as the request, because NGINX frees nothing of a request before its end. So the lifetime `'r` of
//! a call bounds everything that is read here. Second, no panic unwinds out of a function that C calls: [`guard`]
//! catches it.
#![allow(unsafe_code, reason = "this is the border")]

use std::ffi::{OsStr, c_int, c_void};
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

pub(crate) use foregate_module::Summary;
use foregate_module::{Field as OwnedField, Now, Pipeline};

use crate::abi::{
    FG_END, FG_FLUSH, fg_address, fg_facts, fg_field, fg_host, fg_moved, fg_question, fg_shaped, fg_summary,
    fg_terms, fg_text, fg_tls,
};
use crate::body::BodyProgress;
use crate::border::{self, BodyOf, Facts, Level, Maker, Outcome, PANICS, Tls, Which, guard};
use crate::heavy::PostedWork;
use crate::random;
use crate::request::Request;
use crate::route::{Cycle, Route, Terms};
use crate::run::{self, Unreadable};

static HOST: OnceLock<fg_host> = OnceLock::new();

impl BodyProgress {
    fn told(&self) -> fg_moved {
        fg_moved {
            consumed: self.consumed,
            produced: self.produced,
            more: u8::from(self.more),
            asks: u8::from(self.question.is_some()),
            soon: u8::from(self.soon),
            over: u8::from(self.over),
        }
    }
}

impl fg_text {
    const EMPTY: Self = Self { data: std::ptr::null(), len: 0 };

    fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), len: bytes.len() }
    }

    /// The bytes.
    ///
    /// # Safety
    ///
    /// The bytes live for `'t` and do not change.
    unsafe fn bytes<'t>(self) -> &'t [u8] {
        // If there are no bytes, NGINX sometimes leaves an old pointer.
        if self.len == 0 || self.data.is_null() {
            return &[];
        }
        // SAFETY: the caller vouches for the bytes, and the pointer is not null.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

impl fg_address {
    fn to_address(self) -> Option<SocketAddr> {
        let ip: IpAddr = match self.family {
            4 => {
                let [a, b, c, d, ..] = self.bytes;
                Ipv4Addr::new(a, b, c, d).into()
            }
            6 => IpAddr::from(Ipv6Addr::from(self.bytes)).to_canonical(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, self.port))
    }
}

/// A log file of NGINX's, which lives as long as its configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogFile(*mut c_void);

/// A field of a head of NGINX's.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Field<'r> {
    field: fg_field,
    request: PhantomData<&'r ()>,
}

impl<'r> Field<'r> {
    /// A field that does not belong to NGINX.
    pub(crate) fn lent(name: &'r [u8], value: &'r [u8]) -> Self {
        let (name, value) = (fg_text::of(name), fg_text::of(value));
        let field = fg_field { name, value, element: std::ptr::null_mut() };
        Self { field, request: PhantomData }
    }

    pub(crate) fn name(&self) -> &'r [u8] {
        // SAFETY: either the C half has passed the field for this request, and its texts live as long as the request; or the
        // field was lent for `'r`.
        unsafe { self.field.name.bytes() }
    }

    pub(crate) fn value(&self) -> &'r [u8] {
        // SAFETY: as for the name.
        unsafe { self.field.value.bytes() }
    }

    /// Returns true if NGINX keeps the field outside of its list of fields, such as the content type.
    pub(crate) fn is_unlisted(&self) -> bool {
        self.field.element.is_null()
    }
}

impl fg_facts {
    /// # Safety
    ///
    /// The texts live for `'r`.
    unsafe fn lent<'r>(&self) -> Facts<'r> {
        let facts = self;
        // SAFETY: the caller vouches for the texts.
        unsafe {
            Facts {
                client: facts.client.to_address(),
                https: facts.https != 0,
                raw_is_valid: facts.raw_is_valid != 0,
                chunked: facts.chunked != 0,
                version: facts.version,
                content_length: facts.content_length,
                method: facts.method.bytes(),
                server: facts.server.bytes(),
                host: facts.host.bytes(),
                uri: facts.uri.bytes(),
                args: facts.args.bytes(),
                raw: facts.raw.bytes(),
                site: facts.site.bytes(),
                route: facts.route.bytes(),
            }
        }
    }
}

/// A request of NGINX's, for the time of a call.
#[derive(Clone, Copy)]
pub(crate) struct Host<'r> {
    table: &'static fg_host,
    r: *mut c_void,
    request: PhantomData<&'r ()>,
}

impl<'r> Host<'r> {
    /// # Safety
    ///
    /// `r` is a request of NGINX's that lives for `'r`, and this thread is the one that serves it.
    unsafe fn new(r: *mut c_void) -> Option<Self> {
        Some(Self { table: HOST.get()?, r, request: PhantomData })
    }

    /// The fields of a head.
    pub(crate) fn fields(self, which: Which) -> Vec<Field<'r>> {
        const ROOM: usize = 32;
        let mut fields: Vec<Field<'r>> = Vec::with_capacity(ROOM);
        loop {
            let room = fields.capacity();
            // SAFETY: the request lives; the C half writes at most `room` fields into memory of the same layout, and returns the
            // number of all fields.
            let count = unsafe {
                let count =
                    (self.table.fields)(self.r, which as c_int, fields.as_mut_ptr().cast::<fg_field>(), room);
                fields.set_len(count.min(room));
                count
            };
            if count <= room {
                return fields;
            }
            fields.reserve(count);
        }
    }

    /// Adds a field; `None` when NGINX has no memory for it.
    pub(crate) fn append(self, which: Which, name: &[u8], value: &[u8]) -> Option<Field<'r>> {
        let (name, value) = (fg_text::of(name), fg_text::of(value));
        let mut field = fg_field { name, value, element: std::ptr::null_mut() };
        // SAFETY: the request lives; name and value are copied, and the field points to the copies afterwards.
        let added = unsafe { (self.table.append)(self.r, which as c_int, &raw mut field) };
        if added != 0 {
            self.log(Level::Error, "no memory for a field");
            return None;
        }
        if field.element.is_null() {
            // NGINX has copied only the value. This happens for one name only.
            field.name = fg_text::of(b"Content-Type");
        }
        Some(Field { field, request: PhantomData })
    }

    /// Replaces the value of a field.
    pub(crate) fn replace(self, which: Which, field: &mut Field<'r>, value: &[u8]) {
        // SAFETY: the request lives, and the field belongs to it; the value is copied.
        let done =
            unsafe { (self.table.replace)(self.r, which as c_int, &raw mut field.field, fg_text::of(value)) };
        if done != 0 {
            self.log(Level::Error, "no memory for a field");
        }
    }

    /// Removes fields. The remaining fields move in memory, so they have to be looked up again.
    pub(crate) fn remove(self, which: Which, fields: &[Field<'r>]) {
        // SAFETY: the request lives; the fields belong to it, and have the layout that the C half expects.
        let done = unsafe {
            (self.table.remove)(self.r, which as c_int, fields.as_ptr().cast::<fg_field>(), fields.len())
        };
        if done != 0 {
            self.log(Level::Error, "no memory to remove a field");
        }
    }

    /// Changes the target: the decoded path, and the query.
    pub(crate) fn target(self, path: &[u8], args: &[u8]) {
        // SAFETY: the request lives; both texts are copied.
        if unsafe { (self.table.target)(self.r, fg_text::of(path), fg_text::of(args)) } != 0 {
            self.log(Level::Error, "no memory for a target");
        }
    }

    /// Makes this the response, without fields.
    pub(crate) fn answer(self, status: u16, body: &[u8]) {
        // SAFETY: the request lives; the body is copied.
        if unsafe { (self.table.answer)(self.r, u32::from(status), fg_text::of(body)) } != 0 {
            self.log(Level::Error, "no memory for an answer");
        }
    }

    /// The facts about the TLS handshake.
    pub(crate) fn tls(self) -> Option<Tls<'r>> {
        let mut tls = fg_tls {
            is_tls: 0,
            client_verified: 0,
            version: fg_text::EMPTY,
            server_name: fg_text::EMPTY,
            client_subject: fg_text::EMPTY,
        };
        // SAFETY: the request lives, and the texts that are filled in live as long as the request.
        unsafe {
            (self.table.tls)(self.r, &raw mut tls);
            (tls.is_tls != 0).then(|| Tls {
                client_verified: tls.client_verified != 0,
                version: tls.version.bytes(),
                server_name: tls.server_name.bytes(),
                client_subject: tls.client_subject.bytes(),
            })
        }
    }

    /// NGINX's cached time: the time of the last event.
    pub(crate) fn now(self) -> Now {
        let (mut unix_ms, mut steady_ms) = (0, 0);
        // SAFETY: both point to memory for a number.
        unsafe { (self.table.now)(&raw mut unix_ms, &raw mut steady_ms) };
        Now { unix_ms, steady_ms }
    }

    /// The location that an upstream's number stands for at this request: the server block of NGINX, and the prefix of the
    /// location, which is empty for the site itself. `None` if it stands for no location.
    pub(crate) fn place(self, upstream: Option<u32>) -> Option<(u64, Vec<u8>)> {
        let (mut server, mut prefix) = (0, fg_text::EMPTY);
        let upstream = upstream.map_or(Some(-1), |upstream| i32::try_from(upstream).ok())?;
        // SAFETY: the request lives; there is memory for both results, and the prefix lives as long as the configuration.
        unsafe {
            let found = (self.table.place)(self.r, upstream, &raw mut server, &raw mut prefix);
            (found == 0).then(|| (server, prefix.bytes().to_vec()))
        }
    }

    /// Limits the request's body to this many bytes, unless a smaller limit is in effect.
    pub(crate) fn limit_body(self, bytes: u64) {
        // SAFETY: the request lives.
        unsafe { (self.table.limit_body)(self.r, bytes) };
    }

    /// The local address of the client's connection.
    pub(crate) fn local(self) -> Option<SocketAddr> {
        let mut address = fg_address::default();
        // SAFETY: the request lives; there is memory for an address.
        unsafe { (self.table.local)(self.r, &raw mut address) };
        address.to_address()
    }

    /// Writes a line into a log file.
    pub(crate) fn write_log(self, file: LogFile, line: &[u8]) {
        let line = [line, b"\n"].concat();
        // SAFETY: the file belongs to the configuration that serves the request, and lives as long as the configuration. The
        // line is written at once.
        unsafe { (self.table.write_log)(file.0, fg_text::of(&line)) };
    }

    /// Writes a line into the error log.
    pub(crate) fn log(self, level: Level, line: &str) {
        // SAFETY: the request lives; the line is written at once.
        unsafe { (self.table.log)(self.r, level as c_int, fg_text::of(line.as_bytes())) };
    }
}

/// The request behind a pointer that [`fg_request_new`] gave.
///
/// # Safety
///
/// The request has not been freed, and nothing else uses it for `'r`.
unsafe fn request_of<'r>(request: *mut c_void) -> Option<&'r mut Request> {
    // SAFETY: the pointer was made from a box of this type; the caller keeps the conditions of `# Safety`.
    unsafe { request.cast::<Request>().as_mut() }
}

/// Stores the functions of the C half. Called before all others.
///
/// # Safety
///
/// `host` points to a table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_start(host: *const fg_host) {
    // SAFETY: the caller vouches for the table, which is copied. A call after a reload passes the same table.
    if let Some(host) = unsafe { host.as_ref() } {
        let _ = HOST.set(*host);
    }
}

/// Called in a worker process after it has been forked.
#[unsafe(no_mangle)]
pub extern "C" fn fg_worker_start() {
    guard((), || {
        random::forget();
        Some(())
    });
}

/// How many steps and filters have panicked in this process.
#[unsafe(no_mangle)]
pub extern "C" fn fg_panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// The steps. They are made once for the process, so that data which a step has read from files serves later
/// configurations as well.
static PIPELINE: LazyLock<Arc<Pipeline>> = LazyLock::new(|| {
    #[cfg(not(feature = "probe"))]
    let pipeline = crate::modules::shipped();
    #[cfg(feature = "probe")]
    let pipeline = crate::probe::probed();
    Arc::new(pipeline)
});

/// Begins a configuration. Returns null on failure.
#[unsafe(no_mangle)]
pub extern "C" fn fg_cycle_new() -> *mut c_void {
    guard(std::ptr::null_mut(), || {
        let cycle = Cycle::new(Arc::clone(&PIPELINE));
        Some(Box::into_raw(Box::new(cycle)).cast::<c_void>())
    })
}

/// Ends a configuration.
///
/// # Safety
///
/// `cycle` came from [`fg_cycle_new`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_cycle_free(cycle: *mut c_void) {
    guard((), || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        drop(unsafe { Box::from_raw(cycle.cast::<Cycle>()) });
        Some(())
    });
}

/// Sets the surroundings of a configuration's route files. Must be called before any route file is read. The
/// surroundings are the names of NGINX's own upstreams, whether a variable reads the chosen upstream, and whether
/// there are threads for heavy steps.
///
/// # Safety
///
/// `cycle` came from [`fg_cycle_new`]; the texts live for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_surround(
    cycle: *mut c_void,
    blocks: *const fg_text,
    count: usize,
    follows: c_int,
    threads: c_int,
) {
    guard((), || {
        // SAFETY: the caller vouches for the cycle and the texts.
        let (cycle, blocks) = unsafe { (cycle.cast::<Cycle>().as_mut()?, names(blocks, count)) };
        cycle.surround(blocks, follows != 0, threads != 0);
        Some(())
    });
}

/// The route of a file; null if the file is refused, which is reported to `cf`.
///
/// # Safety
///
/// `cycle` came from [`fg_cycle_new`]; `cf` is for [`fg_host`]; the texts, to which `terms` points, live for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_route(
    cycle: *mut c_void,
    cf: *mut c_void,
    path: fg_text,
    terms: *const fg_terms,
) -> *const c_void {
    let refuse = |line: &str| {
        if let Some(host) = HOST.get() {
            // SAFETY: the caller vouches for `cf`; the line is written at once.
            unsafe { (host.refuse)(cf, fg_text::of(line.as_bytes())) };
        }
    };
    let loaded = guard(Err("reading it has panicked".to_owned()), || {
        // SAFETY: the caller vouches for the cycle and the texts.
        let (cycle, path, terms) = unsafe {
            let terms = terms.as_ref()?;
            let fallback = names(&raw const terms.fallback, 1).pop().filter(|name| !name.is_empty());
            let (off, upstreams) =
                (names(terms.off, terms.off_count), names(terms.upstreams, terms.upstream_count));
            let terms = Terms { off, upstreams, fallback };
            (cycle.cast::<Cycle>().as_mut()?, Path::new(OsStr::from_bytes(path.bytes())), terms)
        };
        let mut open = |path: &Path| {
            let host = HOST.get()?;
            // SAFETY: the caller vouches for `cf`; the path is copied.
            let file = unsafe { (host.open_log)(cf, fg_text::of(path.as_os_str().as_bytes())) };
            (!file.is_null()).then_some(LogFile(file))
        };
        Some(cycle.route(path, terms, &mut open))
    });
    match loaded {
        // The cycle owns the route, so the pointer stays valid.
        Ok(route) => Rc::as_ptr(&route).cast::<c_void>(),
        Err(lines) => {
            lines.lines().for_each(refuse);
            std::ptr::null()
        }
    }
}

/// # Safety
///
/// `names` points to `count` texts, which live for the call.
unsafe fn names(names: *const fg_text, count: usize) -> Vec<String> {
    // SAFETY: the caller vouches for the texts; without texts, the pointer may be null.
    unsafe {
        let names: &[fg_text] = if count == 0 { &[] } else { std::slice::from_raw_parts(names, count) };
        names.iter().map(|name| String::from_utf8_lossy(name.bytes()).into_owned()).collect()
    }
}

/// The number of the upstream of this name, which is the same in all routes of a configuration; -1 on failure.
///
/// # Safety
///
/// `cycle` came from [`fg_cycle_new`]; the name lives for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_upstream(cycle: *mut c_void, name: fg_text) -> i32 {
    guard(-1, || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let (cycle, name) = unsafe { (cycle.cast::<Cycle>().as_mut()?, name.bytes()) };
        i32::try_from(cycle.upstream(&String::from_utf8_lossy(name))).ok()
    })
}

/// Returns 1 if steps of a route send requests to this upstream.
///
/// # Safety
///
/// `route` came from [`fg_route`] and its cycle lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_route_asks(route: *const c_void, upstream: i32) -> c_int {
    guard(0, || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let route = unsafe { route.cast::<Route>().as_ref()? };
        Some(c_int::from(route.asks.iter().any(|asked| i32::try_from(*asked) == Ok(upstream))))
    })
}

/// Returns 1 if a route has filters of the response's body.
///
/// # Safety
///
/// `route` came from [`fg_route`] and its cycle lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_route_filters(route: *const c_void) -> c_int {
    guard(0, || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let route = unsafe { route.cast::<Route>().as_ref()? };
        Some(c_int::from(route.filters()))
    })
}

/// Writes the next fetch to `question`. Returns 1 if the fetch has to be made, 0 if it already has an answer, -1 if
/// there is no further fetch. The texts live until the answer comes.
///
/// # Safety
///
/// `request` came from [`fg_request_new`]; `question` is memory for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_ask(request: *mut c_void, number: usize, question: *mut fg_question) -> c_int {
    guard(-1, || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let (request, question) = unsafe { (request_of(request)?, question.as_mut()?) };
        let asked = request.run.asked.get(number)?;
        *question = fg_question {
            upstream: asked.upstream().map_or(Some(-1), |upstream| i32::try_from(upstream).ok())?,
            method: fg_text::of(&asked.request.method),
            path: fg_text::of(&asked.path),
            args: fg_text::of(&asked.args),
            host: fg_text::of(&asked.authority),
            body: fg_text::of(&asked.request.body),
            timeout_ms: u64::try_from(asked.request.timeout.as_millis()).unwrap_or(u64::MAX),
        };
        Some(c_int::from(!asked.is_answered()))
    })
}

/// Writes the next field of the fetch to `out`. Returns 1, or 0 if there is no further field.
///
/// # Safety
///
/// `request` came from [`fg_request_new`]; `out` is memory for a field.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_ask_field(
    request: *mut c_void,
    number: usize,
    field: usize,
    out: *mut fg_field,
) -> c_int {
    guard(0, || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let (request, out) = unsafe { (request_of(request)?, out.as_mut()?) };
        let field = request.run.asked.get(number)?.request.fields.get(field)?;
        let (name, value) = (fg_text::of(field.name()), fg_text::of(field.value()));
        *out = fg_field { name, value, element: std::ptr::null_mut() };
        Some(1)
    })
}

/// Takes a part of an answer's body. Returns -1 if the body has become too large.
///
/// # Safety
///
/// `request` came from [`fg_request_new`]; the text lives for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_receive(request: *mut c_void, number: usize, part: fg_text) -> c_int {
    guard(-1, || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let (request, part) = unsafe { (request_of(request)?, part.bytes()) };
        request.run.asked.get_mut(number)?.receive(part).then_some(0)
    })
}

/// Takes an answer with a body that has already been received, or the reason why there is no answer.
///
/// # Safety
///
/// `request` came from [`fg_request_new`] for `r`, which lives; there are this many fields, and their texts live for
/// the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_answered(
    request: *mut c_void,
    r: *mut c_void,
    number: usize,
    how: c_int,
    status: u32,
    fields: *const fg_field,
    count: usize,
) {
    guard((), || {
        // SAFETY: the caller keeps the conditions of `# Safety`; without fields, the pointer may be null.
        let (request, host, fields) = unsafe {
            let fields: &[fg_field] =
                if count == 0 { &[] } else { std::slice::from_raw_parts(fields, count) };
            // A field that modules may not set, such as a length, is left out.
            let owned = |field: &fg_field| {
                OwnedField::new(field.name.bytes().to_vec(), field.value.bytes().to_vec()).ok()
            };
            (request_of(request)?, Host::new(r)?, fields.iter().filter_map(owned).collect())
        };
        let result = border::answer(how, status, fields);
        let run = &mut request.run;
        run.asked.get_mut(number)?.settle(result, &run.route.answers, host.now().steady_ms);
        Some(())
    });
}

/// Begins a request. Returns null on failure.
///
/// # Safety
///
/// `route` came from [`fg_route`] and its cycle lives; the texts of `facts` live for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_request_new(route: *const c_void, facts: *const fg_facts) -> *mut c_void {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the caller vouches for the facts and the route. The route is shared: its reference count is raised before
        // use.
        let (route, facts) = unsafe {
            let route = route.cast::<Route>();
            Rc::increment_strong_count(route);
            (Rc::from_raw(route), facts.as_ref()?.lent())
        };
        Some(Box::into_raw(Box::new(Request::new(route, &facts))).cast::<c_void>())
    })
}

/// Ends a request.
///
/// # Safety
///
/// `request` came from [`fg_request_new`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_request_free(request: *mut c_void) {
    guard((), || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        drop(unsafe { Box::from_raw(request.cast::<Request>()) });
        Some(())
    });
}

/// Runs the steps of the request.
///
/// # Safety
///
/// `request` came from [`fg_request_new`] for `r`, which lives, as do the texts of `facts`; `wanted` is memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_run_request(
    request: *mut c_void,
    r: *mut c_void,
    facts: *const fg_facts,
    wanted: *mut usize,
) -> c_int {
    guard(Outcome::Failed, || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let (request, host, facts, wanted) =
            unsafe { (request_of(request)?, Host::new(r)?, facts.as_ref()?.lent(), wanted.as_mut()?) };
        *wanted = request.run.route.plan.body();
        Some(run::request(request, host, &facts))
    }) as c_int
}

/// Takes the start of a body, for the steps that read it.
///
/// # Safety
///
/// `request` came from [`fg_request_new`]; the text lives for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_give_body(request: *mut c_void, which: c_int, start: fg_text, whole: c_int) {
    guard((), || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let (request, start) = unsafe { (request_of(request)?, start.bytes()) };
        let body = if which == Which::Request as c_int {
            &mut request.kept.request_body
        } else {
            &mut request.kept.response_body
        };
        *body = Some((start.to_vec(), whole != 0));
        Some(())
    });
}

/// Runs the steps of the response.
///
/// # Safety
///
/// As for [`fg_run_request`]; `shaped` is memory for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_run_response(
    request: *mut c_void,
    r: *mut c_void,
    facts: *const fg_facts,
    status: u32,
    source: c_int,
    body: c_int,
    shaped: *mut fg_shaped,
) -> c_int {
    guard(Outcome::Failed, || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let (request, host, facts, shaped) =
            unsafe { (request_of(request)?, Host::new(r)?, facts.as_ref()?.lent(), shaped.as_mut()?) };
        let (maker, body) = (Maker::of(source), BodyOf::of(body));
        let (outcome, found) =
            run::response(request, host, &facts, u16::try_from(status).unwrap_or(500), maker, body);
        *shaped = fg_shaped {
            filters: u8::from(found.filters),
            changes: u8::from(found.changes),
            hold: found.hold,
        };
        Some(outcome)
    }) as c_int
}

/// Moves the body through its filters; -1 on an error.
///
/// # Safety
///
/// As for [`fg_run_request`]; `out` is memory for `room` bytes that have been written once and that nothing else uses,
/// `moved` for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_move(
    request: *mut c_void,
    r: *mut c_void,
    input: fg_text,
    flags: c_int,
    out: *mut u8,
    room: usize,
    moved: *mut fg_moved,
) -> c_int {
    // SAFETY: the caller vouches for the request.
    let host = unsafe { Host::new(r) };
    let before = fg_panics();
    let done = guard(None, || {
        // SAFETY: the caller keeps the conditions of `# Safety`; the buffer is static memory of the C half.
        let (request, input, out, moved) = unsafe {
            (request_of(request)?, input.bytes(), std::slice::from_raw_parts_mut(out, room), moved.as_mut()?)
        };
        let flags = (flags & FG_END != 0, flags & FG_FLUSH != 0);
        *moved = run::body(request, host?, input, flags, out)?.told();
        Some(Some(()))
    });
    if let Some(host) = host.filter(|_| fg_panics() > before) {
        host.log(Level::Error, "a filter has panicked, its body is broken off");
    }
    if done.is_some() { 0 } else { -1 }
}

/// Moves the request's body through its filters. Returns 0, or on an error the status of the response.
///
/// # Safety
///
/// The conditions of [`fg_move`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_upload(
    request: *mut c_void,
    r: *mut c_void,
    input: fg_text,
    end: c_int,
    out: *mut u8,
    room: usize,
    moved: *mut fg_moved,
) -> c_int {
    guard(500, || {
        // SAFETY: the caller keeps the conditions of `# Safety`; the C half has filled the new buffer with zeros.
        let (request, host, input, out, moved) = unsafe {
            let out = std::slice::from_raw_parts_mut(out, room);
            (request_of(request)?, Host::new(r)?, input.bytes(), out, moved.as_mut()?)
        };
        Some(match run::upload(request, host, input, end != 0, out) {
            Ok(found) => {
                *moved = found.told();
                0
            }
            Err(Unreadable(status)) => c_int::from(status),
        })
    })
}

/// Returns a job for the heavy step that is to run on a thread, and writes the longest wait for a thread to `wait_ms`.
/// Returns null if the queue is full; the next run of the phases then records this.
///
/// # Safety
///
/// `request` came from [`fg_request_new`]; `wait_ms` is memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_job_new(request: *mut c_void, wait_ms: *mut u64) -> *mut c_void {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let (request, wait_ms) = unsafe { (request_of(request)?, wait_ms.as_mut()?) };
        let posted = request.post()?;
        *wait_ms = u64::try_from(posted.wait.as_millis()).unwrap_or(u64::MAX);
        Some(Box::into_raw(posted).cast::<c_void>())
    })
}

/// Runs a job. This is the only function that is called on another thread than the worker's own.
///
/// # Safety
///
/// `job` came from [`fg_job_new`], and is not freed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_job_run(job: *mut c_void) {
    guard((), || {
        // SAFETY: the caller vouches for `job`. Only its field `job` is used here, which is `Send + Sync` (`heavy` has the
        // compiler check this); its other fields are used by the worker's thread alone.
        let job = unsafe { &(*job.cast::<PostedWork>()).job };
        job.run();
        Some(())
    });
}

/// Takes a job back, finished or unstarted, and returns 1. Returns 0 while a thread runs the job.
///
/// # Safety
///
/// `request` came from [`fg_request_new`], `job` from [`fg_job_new`] for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_job_settle(request: *mut c_void, job: *mut c_void) -> c_int {
    guard(0, || {
        // SAFETY: the caller keeps the conditions of `# Safety`; other threads use only the field `job`, which is `Sync`.
        let (request, posted) = unsafe { (request_of(request)?, job.cast::<PostedWork>().as_ref()?) };
        Some(c_int::from(request.settle(posted)))
    })
}

/// Tells a job that its request does not wait for it any more. A thread may still run the job.
///
/// # Safety
///
/// `job` came from [`fg_job_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_job_forget(job: *mut c_void) {
    guard((), || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let posted = unsafe { job.cast::<PostedWork>().as_ref()? };
        posted.job.forget();
        Some(())
    });
}

/// Frees a job.
///
/// # Safety
///
/// `job` came from [`fg_job_new`], and no thread is going to run it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_job_free(job: *mut c_void) {
    guard((), || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        drop(unsafe { Box::from_raw(job.cast::<PostedWork>()) });
        Some(())
    });
}

/// Runs the steps of the log.
///
/// # Safety
///
/// The conditions of [`fg_run_request`]; `summary` points to a summary.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_run_log(
    request: *mut c_void,
    r: *mut c_void,
    facts: *const fg_facts,
    status: u32,
    summary: *const fg_summary,
) {
    guard((), || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let (request, host, facts, summary) =
            unsafe { (request_of(request)?, Host::new(r)?, facts.as_ref()?.lent(), summary.as_ref()?) };
        let summary = Summary {
            bytes_in: summary.bytes_in,
            bytes_out: summary.bytes_out,
            duration: Duration::from_millis(summary.duration_ms),
        };
        run::log(request, host, &facts, u16::try_from(status).unwrap_or(500), summary);
        Some(())
    });
}

/// Switches the steps of a key on or off for a request. Returns 1 if this has an effect, 0 if all of these steps have
/// already had their turn, -1 if the route has no such key.
///
/// # Safety
///
/// `request` came from [`fg_request_new`]; the name lives for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_switch(request: *mut c_void, name: fg_text, on: c_int) -> c_int {
    guard(-1, || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let (request, name) = unsafe { (request_of(request)?, name.bytes()) };
        Some(request.run.switch(std::str::from_utf8(name).ok()?, on != 0))
    })
}

/// Returns a text about a request. The argument selects it: 0 for the notes, 1 for the step that has made the
/// response, 2 for the events, 3 for the client, 4 for the upstream that steps have chosen.
///
/// # Safety
///
/// `request` came from [`fg_request_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fg_tell(request: *mut c_void, what: c_int) -> fg_text {
    guard(fg_text::EMPTY, || {
        // SAFETY: the caller keeps the conditions of `# Safety`.
        let Request { run, kept } = unsafe { request_of(request)? };
        run.told = match what {
            0 => run.notes(),
            1 => run.step.to_owned(),
            2 => run.events(),
            4 => run.upstream(kept).to_owned(),
            5 => {
                kept.secure.map(|secure| if secure { "https" } else { "http" }).unwrap_or_default().to_owned()
            }
            _ => kept.client.map(|client| client.to_string()).unwrap_or_default(),
        };
        Some(fg_text::of(run.told.as_bytes()))
    })
}
