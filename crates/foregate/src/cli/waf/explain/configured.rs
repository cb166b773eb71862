//! The result of a configuration's `waf` for a request. The `waf` is that of the route that the request would reach.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use foregate_module::testing::Sample;
use foregate_module::{Now, Pipeline, Plan, PlannedStep, State, View};
use foregate_proxy::configuration::Settings;
use foregate_waf::steps::WafSettings as Waf;
use foregate_wire::{Method, Slashes, Target, TargetForm, normalize_path, parse_authority};
use serde::Serialize;

use super::super::super::output::{Outcome, complain, show_refused};
use super::request::Request;
use super::{RulesExplanation, conclude};
use crate::config;

/// The step that starts a transaction; it has the settings of the `waf`.
const FIRST: &str = "waf-begin";

/// The `waf` for the request, and its settings that apply.
#[derive(Debug, Serialize)]
pub(super) struct WafOfRequest {
    site: String,
    route: String,
    /// The mode: `detect` or `block`.
    mode: &'static str,
    dry_run: bool,
    /// True if the `when` of the `waf` does not hold, so that no rule runs on the request.
    left_out: bool,
    /// The `exclude` keys that apply to the request.
    excludes: Vec<String>,
}

impl fmt::Display for WafOfRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "site {}, route {}", self.site, self.route)?;
        let dry_run = if self.dry_run { ", dry-run=#true" } else { "" };
        writeln!(f, "waf mode=\"{}\"{dry_run}", self.mode)?;
        self.excludes.iter().try_for_each(|exclude| writeln!(f, "{exclude}"))
    }
}

/// Returns the result of the `waf` in this configuration file. If there are errors, shows them and returns the exit
/// code.
pub(super) fn explain(
    file: &Path,
    pipeline: &Arc<Pipeline>,
    request: &Request,
    client: IpAddr,
    json: bool,
) -> Result<RulesExplanation, Outcome> {
    let settings = config::load(file, pipeline).map_err(|refused| show_refused(&refused, json))?;
    explain_with(&settings, request, client).map_err(|reason| {
        complain(&format!("error: {reason}"));
        Outcome::Usage
    })
}

fn explain_with(settings: &Settings, request: &Request, client: IpAddr) -> Result<RulesExplanation, String> {
    let mut sample = sample_of(request, client)?;
    let Place { site, route, plan } = place(settings, &mut sample)?;
    let Some((planned, waf)) = plan.and_then(|plan| waf_of(&settings.pipeline, plan)) else {
        return Err(format!(
            "the route \"{route}\" of the site \"{site}\" has no `waf`: no rule looks at the request"
        ));
    };
    let mut state = State::default();
    let wanted = settings.pipeline.is_wanted(planned, &sample, &mut state);
    if sample.doubted.load(Ordering::Relaxed) {
        return Err("the request is refused with 400 before any rule: other servers may read its path in another way, and the \
                    `when` of the `waf` comes to something else then"
            .into());
    }
    let mode = if waf.blocks() { "block" } else { "detect" };
    let mut configured =
        WafOfRequest { site, route, mode, dry_run: planned.dry_run, left_out: !wanted, excludes: Vec::new() };
    if !wanted {
        let notes =
            vec!["the `when` of the `waf` does not hold for this request: no rule looks at it".into()];
        let verdict = "it passes".into();
        return Ok(RulesExplanation {
            configured: Some(configured),
            verdict,
            notes,
            ..RulesExplanation::default()
        });
    }
    let view = View::new(&sample, &state.slots, settings.pipeline.values()).dry(planned.dry_run);
    let explained = waf.explain(&sample, &view, &request.body);
    let (explained, set) =
        explained.zip(waf.rule_set()).ok_or("the rules of the `waf` cannot be read again")?;
    let mut notes = explained.notes;
    if !waf.blocks() || planned.dry_run {
        notes.push("this `waf` stops no request; the verdict is the one of `mode=\"block\"`".into());
    }
    configured.excludes = explained.excludes;
    Ok(RulesExplanation { configured: Some(configured), ..conclude(explained.transaction, &set, notes) })
}

/// The request as steps see it.
fn sample_of(request: &Request, client: IpAddr) -> Result<Sample, String> {
    let refused = |reason: &dyn fmt::Display| format!("the request is refused before any rule: {reason}");
    let method = Method::from_bytes(&request.method).ok_or_else(|| refused(&"its method is no token"))?;
    let target = Target::parse(&method, &request.target).map_err(|error| refused(&error))?;
    let field = request.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"host"));
    let host = match target.form {
        TargetForm::Absolute { authority, .. } => authority,
        _ => field.map(|(_, value)| &**value).ok_or_else(|| refused(&"it has no host"))?,
    };
    let mut text = String::new();
    let authority = parse_authority(host, &mut text).map_err(|error| refused(&error))?;
    let mut sample = Sample::get("/");
    (sample.host, sample.method) = (authority.host.to_owned(), request.method.clone());
    sample.path = target.path.to_vec();
    sample.query = target.query.map(<[u8]>::to_vec);
    sample.raw_target.clone_from(&request.target);
    sample.protocol = String::from_utf8_lossy(&request.protocol).into_owned();
    (sample.client, sample.peer) = (Some(client), Some(client));
    sample.secure = Some(request.secure);
    sample.request.0.clone_from(&request.fields);
    sample.body = (request.body.clone(), true);
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    sample.now = Now { unix_ms: u64::try_from(unix).unwrap_or(u64::MAX), ..sample.now };
    Ok(sample)
}

/// The site and the route that a request reaches.
struct Place<'s> {
    site: String,
    route: String,
    plan: Option<&'s Arc<Plan>>,
}

/// Finds the route as `foregate explain` does, and sets the request's path to the one by which the route was found.
fn place<'s>(settings: &'s Settings, sample: &mut Sample) -> Result<Place<'s>, String> {
    let sites = &settings.sites;
    let Some((site, _)) = sites.explain(sample.host.as_bytes()) else {
        return Err(format!("no site has the host \"{}\", and there is no site \"*\"", sample.host));
    };
    let name = sites.site(site).name.to_string();
    let slashes = if sites.keeps_slashes(site) { Slashes::Keep } else { Slashes::Merge };
    let mut path = Vec::new();
    normalize_path(&sample.path, slashes, &mut path)
        .map_err(|error| format!("the request is refused before any rule: {error}"))?;
    let readings = sites.readings(site, &path).map_err(|_| {
        "the request is refused with 400 before any rule: where `%2F`, `%5C`, `;` or `//` is read otherwise, it belongs to \
         another route (`ambiguous-paths`)"
    })?;
    sample.other_paths = readings.unwrap_or_default();
    let Some(route) = sites.route(site, &path) else {
        return Err(format!("no route of the site \"{name}\" takes this path: no rule looks at the request"));
    };
    sample.path = path;
    Ok(Place { site: name, route: route.pattern.to_string(), plan: route.plan.get() })
}

/// The step and the settings of the firewall in a plan.
fn waf_of<'p>(pipeline: &Pipeline, plan: &'p Plan) -> Option<(&'p PlannedStep, &'p Waf)> {
    plan.steps().iter().find_map(|planned| {
        let entry = pipeline.entries().get(usize::from(planned.step))?;
        let waf = planned.settings.downcast_ref::<Waf>()?;
        (entry.decl().name == FIRST).then_some((planned, waf))
    })
}
