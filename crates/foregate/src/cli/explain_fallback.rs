//! The part of `foregate explain` about requests that fall back to the old proxy.

use foregate_proxy::configuration::Settings;
use foregate_proxy::routing::HostId;
use foregate_proxy::settings::{Fallback, FallbackReason, Route, SHARE_WHOLE};

/// The fallback if no site has the host, or no route takes the path; `None` if the answer is 404.
pub(super) fn unrouted(settings: &Settings, site: Option<HostId>) -> Option<String> {
    let of_site = site.and_then(|site| settings.sites.site(site).options.fallback.as_ref());
    let old = of_site.or(settings.fallback.as_ref())?;
    let (falls_back, reason) = match site {
        None => (old.host, FallbackReason::UnknownHost),
        Some(_) => (old.route, FallbackReason::UnknownRoute),
    };
    falls_back.then(|| answer(settings, old, reason.as_str()))
}

/// The fallback of a route if all its requests fall back.
pub(super) fn always(settings: &Settings, route: &Route) -> Option<String> {
    let old = route.fallback.as_ref()?;
    match &old.unconverted {
        Some(construct) => Some(answer(settings, old, &format!("unconverted: {construct}"))),
        None if !old.is_about_routes() => Some(answer(settings, old, FallbackReason::Route.as_str())),
        None => None,
    }
}

/// The requests of a route that fall back, if only some do.
pub(super) fn sometimes(settings: &Settings, route: &Route) -> Vec<String> {
    let Some(old) = route.fallback.as_ref().filter(|old| old.unconverted.is_none()) else {
        return Vec::new();
    };
    let condition = old.when.as_ref().map(|when| answer(settings, old, &format!("when {}", when.text)));
    let share = old.share.map(|share| {
        let percent = f64::from(SHARE_WHOLE.saturating_sub(share)) * 100.0 / f64::from(SHARE_WHOLE);
        answer(settings, old, &format!("{percent} % of the clients, by address"))
    });
    condition.into_iter().chain(share).collect()
}

fn answer(settings: &Settings, old: &Fallback, reason: &str) -> String {
    let name = settings.upstreams.get(old.upstream).map_or("", |upstream| &*upstream.name);
    format!("fallback to \"{name}\" ({reason})")
}
