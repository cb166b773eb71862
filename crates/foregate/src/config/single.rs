//! The configuration of `foregate run --to URL` and `foregate run --files FOLDER`, which needs no
//! file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foregate_files::Rules;
use foregate_module::{Pipeline, PlanBuilder};
use foregate_proxy::address::ServerAddress;
use foregate_proxy::configuration::Settings;
use foregate_proxy::routing::SiteTableBuilder;
use foregate_proxy::settings::{
    Action, Files, FollowLinks, Listen, Route, RoutePlan, ServerSettings, UpstreamProtocol, UpstreamSettings,
    UpstreamTls,
};

use super::decode::{listen_addresses, look_at_folder};
use super::domains::Domains;

/// The reason why the command line makes no valid configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SingleError {
    /// The text is not the URL of an origin server.
    #[error("`{0}` is not an origin: {advice}", advice = origin_advice(.0))]
    Origin(String),
    /// The origins have different schemes.
    #[error("all origins must have the same scheme")]
    Schemes,
    /// The path is not a folder that can be served.
    #[error("{0}")]
    Folder(String),
    /// No certificate can be obtained for this name.
    #[error("`{0}` is no name that gets a certificate: write a host name, such as example.com")]
    Domain(String),
    /// The text is not the URL of an authority's directory.
    #[error("`{0}` is not the directory of an authority: write https://HOST/PATH")]
    Directory(String),
    /// The file with the roots of the authority cannot be used.
    #[error("{0}")]
    Roots(String),
    /// The text is not an address to listen on.
    #[error("`{0}` is not an address to listen on: write IP:PORT, [IPV6]:PORT, :PORT or unix:PATH")]
    Listen(String),
}

/// The settings on the command line for a configuration without a file.
#[derive(Debug, Clone, Default)]
pub struct Single {
    /// The URLs of origins.
    pub to: Vec<String>,
    /// A folder of files that are served; the origins get requests without a file.
    pub files: Option<PathBuf>,
    /// True if its folders without an index are listed.
    pub listing: bool,
    /// The names that are served over TLS. Requests without TLS are redirected to HTTPS.
    pub domains: Domains,
}

/// Makes settings that accept requests at `listen`, and answer them with the files, or else by the servers.
///
/// The scheme of an origin decides its protocol: `http` is HTTP/1.1, `https` is the protocol that ALPN selects, and
/// `h2c` is HTTP/2 without TLS.
///
/// # Errors
///
/// A URL, an address or a name is invalid.
pub fn single(single: &Single, listen: &[String], pipeline: &Arc<Pipeline>) -> Result<Settings, SingleError> {
    let mut settings = Settings::new(Arc::clone(pipeline));
    settings.upstreams.extend(upstream(&single.to)?.map(Arc::new));
    let upstream = (!settings.upstreams.is_empty()).then_some(0);
    let action = match (&single.files, upstream) {
        (Some(folder), upstream) => {
            look_at_folder(folder).map_err(|wrong| SingleError::Folder(wrong.message))?;
            let rules = Rules { listing: single.listing, ..Rules::default() };
            let files = Files { folder: folder.clone(), rules, links: FollowLinks::default() };
            settings.folders.push(Arc::new(files));
            Action::Files { folder: 0, upstream }
        }
        (None, _) => Action::Proxy(0),
    };
    settings.listeners = listeners(listen)?;
    let mut sites = SiteTableBuilder::default();
    let pattern = sites.pattern("/**").expect("the pattern for every path is one");
    // Nothing is configured, but some steps are always on.
    let plan = |proxied| RoutePlan::new(PlanBuilder::new(pipeline).build(proxied));
    let route = Route::new(pattern.text().clone(), action);
    let route = sites.route(Route { plan: plan(upstream.is_some()), ..route });
    let routes = sites.route_set(vec![(pattern, route)]).expect("a single route is reached");
    let (hosts, options) = single.domains.apply(&mut settings)?;
    let first = hosts.first().map_or_else(|| "*".to_owned(), ToString::to_string);
    let site = sites.site(first.into(), options, routes);
    for host in &hosts {
        // An error means that the host was given twice, which is harmless.
        let _ = sites.host(site, host);
    }
    settings.unrouted = plan(false);
    settings.sites = sites.build();
    Ok(settings)
}

/// The listeners without TLS.
pub(super) fn listeners(listen: &[String]) -> Result<Vec<Listen>, SingleError> {
    let mut listeners = Vec::new();
    for text in listen {
        let addresses =
            listen_addresses(text, Path::new("")).ok_or_else(|| SingleError::Listen(text.clone()))?;
        listeners.extend(addresses.into_iter().map(Listen::new));
    }
    Ok(listeners)
}

/// The upstream with these servers, if there are any.
fn upstream(to: &[String]) -> Result<Option<UpstreamSettings>, SingleError> {
    if to.is_empty() {
        return Ok(None);
    }
    let mut servers = Vec::new();
    let mut schemes = Vec::new();
    for url in to {
        let (scheme, address) = origin(url)?;
        schemes.push(scheme);
        servers.push(ServerSettings::new(address));
    }
    if schemes.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(SingleError::Schemes);
    }
    let mut upstream = UpstreamSettings::new("origin", servers);
    match schemes.first() {
        Some(&"https") => {
            upstream.tls = Some(UpstreamTls::default());
            upstream.protocol = UpstreamProtocol::Auto;
        }
        Some(&"h2c") => upstream.protocol = UpstreamProtocol::Http2,
        _ => {}
    }
    Ok(Some(upstream))
}

/// The scheme and the address in the URL of an origin.
///
/// # Errors
///
/// The text is not such a URL.
pub fn origin(url: &str) -> Result<(&str, ServerAddress), SingleError> {
    read_origin(url).ok_or_else(|| SingleError::Origin(url.to_owned()))
}

/// The advice for a text that is not the URL of an origin: the URL that was probably meant, or the form.
fn origin_advice(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix(':').unwrap_or(authority) {
        port if port.parse::<u16>().is_ok() => format!("127.0.0.1:{port}"),
        _ => authority.to_owned(),
    };
    let meant = format!("{scheme}://{host}");
    match read_origin(&meant) {
        Some(_) if rest.len() > authority.len() => format!("write {meant}, without a path"),
        Some(_) => format!("write {meant}"),
        None => "write http://HOST:PORT, https://HOST:PORT or h2c://HOST:PORT, without a path".to_owned(),
    }
}

fn read_origin(url: &str) -> Option<(&str, ServerAddress)> {
    let (scheme, rest) = url.split_once("://")?;
    let port = match scheme {
        "http" | "h2c" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let address = authority.parse().or_else(|_| format!("{authority}:{port}").parse()).ok()?;
    (!authority.starts_with("unix:")).then_some((scheme, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_without_its_scheme_gets_the_url_that_was_meant() {
        for (text, advice) in [
            ("localhost:3000", "write http://localhost:3000"),
            ("3000", "write http://127.0.0.1:3000"),
            (":3000", "write http://127.0.0.1:3000"),
            ("https://a.test/x", "write https://a.test, without a path"),
            ("ftp://a.test", "write http://HOST:PORT, https://HOST:PORT or h2c://HOST:PORT, without a path"),
            ("", "write http://HOST:PORT, https://HOST:PORT or h2c://HOST:PORT, without a path"),
        ] {
            let error = origin(text).unwrap_err().to_string();
            assert_eq!(error, format!("`{text}` is not an origin: {advice}"));
        }
    }

    #[test]
    fn origins_are_urls_without_a_path() {
        let origin = |url: &str| read_origin(url).map(|(scheme, address)| format!("{scheme} {address}"));
        assert_eq!(origin("http://127.0.0.1:3000").as_deref(), Some("http 127.0.0.1:3000"));
        assert_eq!(origin("https://origin.example/").as_deref(), Some("https origin.example:443"));
        assert_eq!(origin("h2c://[::1]").as_deref(), Some("h2c [::1]:80"));
        for bad in ["127.0.0.1:80", "ftp://a", "http://", "http://a/b", "http://a:b", "http://u@a"] {
            assert_eq!(origin(bad), None, "{bad}");
        }
        let of = |to: &[&str]| {
            let to: Vec<_> = to.iter().map(|t| (*t).to_owned()).collect();
            let to = Single { to, ..Single::default() };
            single(&to, &["127.0.0.1:0".into()], &Arc::default())
        };
        assert_eq!(of(&["http://a", "h2c://b"]).err(), Some(SingleError::Schemes));
        let settings = of(&["https://a", "https://b"]).unwrap();
        assert_eq!(settings.upstreams[0].servers.len(), 2);
        assert!(settings.sites.find(b"x").is_some_and(|site| settings.sites.route(site, b"/y").is_some()));
    }
}
