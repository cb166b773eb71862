//! The treatment of a logged request by one configuration: its site, its route, and the work of steps up to the origin.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use foregate_module::{
    Entry, Exchange, Fault, FetchRequest, FetchResponse, FetchTarget, Next, Now, PhaseId, Plan, PlannedStep,
    Platform, Runner, State, StepEnd, StepPlace, Text,
};
use foregate_proxy::configuration::Settings;
use foregate_proxy::routing::HostId;
use foregate_proxy::settings::{
    Destination, Entrance, Fallback, FallbackReason, Listen, ListenAddress, Route, RouteConditions,
    share_bucket,
};
use foregate_wire::Method;

use super::logged::LoggedRequest;
use super::request::JudgedRequest;

const HTTPS_PORT: u16 = 443;
const AMBIGUOUS: &str = "400: the path is ambiguous";

/// The treatment of a request: the answer that the client would get, or the request that the origin would get.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Treatment {
    pub site: Option<String>,
    pub route: Option<String>,
    /// The outcome in words, such as `proxy "app"` or `403 by rule`. Many requests have the same.
    pub outcome: Cow<'static, str>,
    /// The target that an origin or a folder would be asked for.
    pub target: Vec<u8>,
    /// Where a redirect leads.
    pub location: Vec<u8>,
    /// The fields that the origin would get, beyond those that every request has.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The upstreams that steps would have asked.
    pub asked: Vec<(&'static str, String)>,
    /// The notes of steps, such as `rule` with its name. Recorded for trials only.
    pub notes: Vec<(String, String)>,
}

impl Treatment {
    /// The treatment in words, without the parts that vary from request to request.
    pub(super) fn summary(&self) -> String {
        let place = match (&self.site, &self.route) {
            (Some(site), Some(route)) => format!("site \"{site}\", route \"{route}\": "),
            (Some(site), None) => format!("site \"{site}\": "),
            _ => String::new(),
        };
        let asked: String =
            self.asked.iter().map(|(step, whom)| format!(" after {step} has asked {whom}")).collect();
        format!("{place}{}{asked}", self.outcome)
    }
}

/// Judges requests by one configuration.
pub(super) struct Judge<'a> {
    settings: &'a Settings,
    /// The listeners without TLS, and those with TLS.
    listeners: [Vec<&'a Listen>; 2],
    /// Set if treatments include the notes of steps.
    keeps_notes: bool,
}

impl<'a> Judge<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        let of = |secure: bool| {
            settings.listeners.iter().filter(|listen| listen.tls.is_some() == secure).collect()
        };
        Self { settings, listeners: [of(false), of(true)], keeps_notes: false }
    }

    /// A judge for one trial request, which `listener` receives if it is given.
    pub(super) fn for_trial(settings: &'a Settings, listener: Option<&'a Listen>) -> Self {
        let all = Self { keeps_notes: true, ..Self::new(settings) };
        match listener {
            Some(listener) => Self { listeners: [vec![listener], vec![listener]], ..all },
            None => all,
        }
    }

    /// The treatment of a request that has come at this time.
    pub(super) fn judge(&self, logged: &'a LoggedRequest, now: Now) -> Treatment {
        let mut treatment = Treatment::default();
        let Some(mut request) = JudgedRequest::new(logged, self.settings, now) else {
            treatment.outcome = "400: no request that can be routed".into();
            return treatment;
        };
        let outcome = self.outcome(&mut request, &mut treatment);
        treatment.outcome = outcome.unwrap_or_else(|refused| refused);
        treatment
    }

    fn outcome(
        &self,
        request: &mut JudgedRequest<'a>,
        treatment: &mut Treatment,
    ) -> Result<Cow<'static, str>, Cow<'static, str>> {
        let sites = &self.settings.sites;
        let Some((site, listener)) = self.site(request) else {
            return self.unknown(None).ok_or("404: no site has this host".into());
        };
        treatment.site = Some(sites.site(site).name.to_string());
        if !request.logged.secure && sites.requires_certificate(site) {
            return Err("421: the site asks for client certificates".into());
        }
        request.site = Some(site);
        if sites.keeps_slashes(site) && !request.keep_slashes() {
            return Err("400: the path has no normal form".into());
        }
        let Some(route) = self.route(request, site, listener)? else {
            return self.unknown(Some(site)).ok_or("404: no route of the site takes the path".into());
        };
        treatment.route = Some(match &route.conditions {
            Some(conditions) => format!("{} {}", route.pattern, conditions.text),
            None => route.pattern.to_string(),
        });
        if let Some(fallback) = self.fallback(request, route, listener)? {
            return Ok(fallback);
        }
        request.route = Some(route);
        if request.method == Method::Connect && !route.allow_connect {
            return Err("405: CONNECT is not allowed".into());
        }
        within(route.body_limit, request)?;
        match route.plan.get() {
            Some(plan) => self.screen(request, site, plan, treatment)?,
            None => self.redirect_https(request, site, treatment)?,
        }
        self.dispatch(request, route, treatment)
    }

    /// The site of the request, from the first listener with the request's scheme that has a site for it.
    fn site(&self, request: &JudgedRequest<'_>) -> Option<(HostId, Option<&'a Listen>)> {
        let sites = &self.settings.sites;
        let host = request.host.as_bytes();
        let listeners = &self.listeners[usize::from(request.logged.secure)];
        if !sites.depends_on_listener() {
            return Some((sites.find(host)?, listeners.first().copied()));
        }
        let on = |listen: &&'a Listen| Some((sites.explain_on(host, &listen.address)?.0, Some(*listen)));
        listeners.iter().find_map(on).or_else(|| Some((sites.find(host)?, None)))
    }

    fn route(
        &self,
        request: &mut JudgedRequest<'a>,
        site: HostId,
        listener: Option<&Listen>,
    ) -> Result<Option<&'a Route>, Cow<'static, str>> {
        let sites = &self.settings.sites;
        let path = request.routed_path().to_vec();
        let (readings, route) = if sites.has_conditions(site) {
            let entrance = entrance(listener);
            let pipeline = &self.settings.pipeline;
            let mut holds = |conditions: &RouteConditions| conditions.hold(&*request, pipeline, entrance);
            let readings = sites.readings_if(site, &path, &mut holds).map_err(|_| AMBIGUOUS)?;
            let route = sites.route_if(site, &path, &mut holds);
            if request.path_is_in_doubt.get() {
                return Err(AMBIGUOUS.into());
            }
            (readings, route)
        } else {
            (sites.readings(site, &path).map_err(|_| AMBIGUOUS)?, sites.route(site, &path))
        };
        if let Some(readings) = readings {
            request.has_readings(readings);
        }
        Ok(route.map(|route| &**route))
    }

    /// The fallback of a request that no site or route takes.
    fn unknown(&self, site: Option<HostId>) -> Option<Cow<'static, str>> {
        let of_site = site.and_then(|site| self.settings.sites.site(site).options.fallback.as_ref());
        let old = of_site.or(self.settings.fallback.as_ref())?;
        match site {
            None => old.host.then(|| self.falls_back(old, FallbackReason::UnknownHost)),
            Some(_) => old.route.then(|| self.falls_back(old, FallbackReason::UnknownRoute)),
        }
    }

    fn falls_back(&self, old: &Fallback, reason: FallbackReason) -> Cow<'static, str> {
        format!("fallback to \"{}\" ({})", self.upstream(old.upstream), reason.as_str()).into()
    }

    fn upstream(&self, index: usize) -> &'a str {
        self.settings.upstreams.get(index).map_or("", |upstream| &*upstream.name)
    }

    /// The decision of the route's own fallback.
    fn fallback(
        &self,
        request: &JudgedRequest<'_>,
        route: &Route,
        listener: Option<&Listen>,
    ) -> Result<Option<Cow<'static, str>>, Cow<'static, str>> {
        let Some(old) = &route.fallback else { return Ok(None) };
        let entrance = entrance(listener);
        let reason = old.of_route(
            |conditions| conditions.hold(request, &self.settings.pipeline, entrance),
            || share_bucket(request.peer()),
        );
        if request.path_is_in_doubt.get() {
            return Err(AMBIGUOUS.into());
        }
        Ok(reason.map(|reason| self.falls_back(old, reason)))
    }

    /// Runs the steps of modules as the proxy does, up to those that change the request for its origin.
    fn screen(
        &self,
        request: &mut JudgedRequest<'a>,
        site: HostId,
        plan: &'a Plan,
        treatment: &mut Treatment,
    ) -> Result<(), Cow<'static, str>> {
        let mut steps =
            Steps { settings: self.settings, plan, runner: Runner::default(), state: State::default() };
        let screened = self.screen_with(&mut steps, request, site, treatment);
        if self.keeps_notes {
            let text = |text: &Text| String::from_utf8_lossy(text).into_owned();
            treatment.notes =
                steps.state.notes.iter().map(|(name, value)| (text(name), text(value))).collect();
        }
        screened
    }

    fn screen_with(
        &self,
        steps: &mut Steps<'a>,
        request: &mut JudgedRequest<'a>,
        site: HostId,
        treatment: &mut Treatment,
    ) -> Result<(), Cow<'static, str>> {
        steps.run_to(PhaseId::RequestEarly, request, treatment)?;
        self.redirect_https(request, site, treatment)?;
        request.fields.remove_identity(steps.plan.identity());
        steps.run_to(PhaseId::RequestSecurity, request, treatment)?;
        within(request.body_limit, request)?;
        steps.run_to(PhaseId::UpstreamSelect, request, treatment)?;
        if request.path_is_in_doubt.get() {
            return Err(AMBIGUOUS.into());
        }
        if request.target_is_wrong {
            return Err("500: a step has set a target that is none".into());
        }
        steps.run_to(PhaseId::UpstreamRequest, request, treatment)
    }

    fn redirect_https(
        &self,
        request: &JudgedRequest<'_>,
        site: HostId,
        treatment: &mut Treatment,
    ) -> Result<(), Cow<'static, str>> {
        match self.settings.sites.redirects(site) {
            Some(port) if !request.secure && request.method != Method::Connect => {
                let port = if port == HTTPS_PORT { String::new() } else { format!(":{port}") };
                let target =
                    if request.logged.target.starts_with('/') { &*request.logged.target } else { "/" };
                treatment.location = format!("https://{}{port}{target}", request.host).into();
                Err("308 to https".into())
            }
            _ => Ok(()),
        }
    }

    fn dispatch(
        &self,
        request: &mut JudgedRequest<'a>,
        route: &Route,
        treatment: &mut Treatment,
    ) -> Result<Cow<'static, str>, Cow<'static, str>> {
        let name = |index: usize| self.upstream(index);
        let chosen = request.upstream.map(|upstream| upstream.0 as usize);
        let outcome = match route.action.destination(chosen) {
            Destination::Files { folder, upstream } => {
                let folder =
                    self.settings.folders.get(folder).map(|files| files.folder.display().to_string());
                let then = upstream.map(|index| format!(", then proxy \"{}\"", name(index)));
                format!("files \"{}\"{}", folder.unwrap_or_default(), then.unwrap_or_default())
            }
            Destination::Upstream(index) => format!("proxy \"{}\"", name(index)),
            Destination::Answer(fixed) => return Ok(format!("respond {}", fixed.status).into()),
        };
        let path = strip(&request.path, route.strip_prefix.as_deref());
        treatment.target = path.into_owned();
        if let Some(query) = &request.query {
            treatment.target.push(b'?');
            treatment.target.extend_from_slice(query);
        }
        treatment.fields = std::mem::take(&mut request.fields.0);
        Ok(outcome.into())
    }
}

fn entrance(listener: Option<&Listen>) -> Entrance<'_> {
    Entrance {
        listener: listener.map(|listen| &listen.address),
        port: listener.and_then(|listen| match &listen.address {
            ListenAddress::Tcp(address) => Some(address.port()),
            ListenAddress::Unix(_) => None,
        }),
    }
}

/// The path without the prefix, if the prefix is followed by a slash or by the end of the path.
fn strip<'p>(path: &'p [u8], prefix: Option<&str>) -> Cow<'p, [u8]> {
    let rest = prefix.and_then(|prefix| path.strip_prefix(prefix.as_bytes()));
    match rest {
        Some(b"") => Cow::Borrowed(b"/"),
        Some(rest @ [b'/', ..]) => Cow::Borrowed(rest),
        _ => Cow::Borrowed(path),
    }
}

fn within(limit: Option<u64>, request: &JudgedRequest<'_>) -> Result<(), Cow<'static, str>> {
    match limit {
        Some(limit) if request.logged.body > limit => Err("413: the body is too long".into()),
        _ => Ok(()),
    }
}

/// The steps of a route at work on one request.
struct Steps<'a> {
    settings: &'a Settings,
    plan: &'a Plan,
    runner: Runner,
    state: State,
}

impl Steps<'_> {
    fn run_to(
        &mut self,
        last: PhaseId,
        request: &mut JudgedRequest<'_>,
        treatment: &mut Treatment,
    ) -> Result<(), Cow<'static, str>> {
        let pipeline = &self.settings.pipeline;
        loop {
            let mut platform = DryPlatform { request, state: &mut self.state };
            match self.runner.run(pipeline, self.plan, last, &mut platform) {
                Next::Done => return Ok(()),
                // A log has no bodies, so the body is empty.
                Next::Body => self.runner.has_body(),
                Next::Fetch => self.answer_fetches(treatment),
                // Every step runs here: see `DryPlatform::place`.
                Next::Offload { .. } => self.runner.tell(Err(Fault::Lost)),
                Next::Ended(ended) => return Err(told(ended, treatment)),
            }
        }
    }

    /// Answers the steps' requests to upstreams with 200 and no body; nothing is sent.
    fn answer_fetches(&mut self, treatment: &mut Treatment) {
        for (slot, step) in std::mem::take(&mut self.state.fetches) {
            let Some(question) = self.state.slots.take_question(slot) else { continue };
            treatment.asked.push((step, self.asked(&question.request)));
            if let Some(answer) = self.settings.pipeline.answer_slot(slot) {
                let good = FetchResponse { status: 200, fields: Vec::new(), body: Text::EMPTY };
                self.state.slots.answer(answer, Ok(good), question.dry);
            }
        }
    }

    fn asked(&self, ask: &FetchRequest) -> String {
        match ask.target {
            FetchTarget::Upstream(upstream) => {
                let upstream = self.settings.upstreams.get(upstream.0 as usize);
                upstream.map_or_else(String::new, |upstream| format!("upstream \"{}\"", upstream.name))
            }
            FetchTarget::Site => "the site".to_owned(),
        }
    }
}

fn told(ended: StepEnd, treatment: &mut Treatment) -> Cow<'static, str> {
    match ended {
        StepEnd::Answer(response, step) => {
            let location =
                response.fields.iter().find(|field| field.name().eq_ignore_ascii_case(b"location"));
            treatment.location = location.map(|field| field.value().to_vec()).unwrap_or_default();
            format!("{} by {step}", response.status).into()
        }
        StepEnd::Abort(step) => format!("broken off by {step}").into(),
        StepEnd::Failed(step, _) => format!("500: {step} fails").into(),
    }
}

/// A platform that runs every step on this thread, and counts nothing.
struct DryPlatform<'r, 'a> {
    request: &'r mut JudgedRequest<'a>,
    state: &'r mut State,
}

impl Platform for DryPlatform<'_, '_> {
    fn unharmed(work: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(work)).is_ok()
    }

    fn parts(&mut self) -> (&mut dyn Exchange, &mut State) {
        (self.request, self.state)
    }

    fn place(&mut self, _: &Entry, _: &PlannedStep) -> StepPlace {
        StepPlace::Here
    }

    fn news(&mut self, _: &Entry, _: &PlannedStep) {
        self.state.events.clear();
        self.state.tallies.clear();
        self.state.lines.clear();
    }

    fn stopped(&mut self, _: &Entry, _: &PlannedStep) {}

    fn failed(&mut self, _: &Entry, _: &PlannedStep, _: Fault, _: bool) {}
}
