//! `acme`, and the host names for which the proxy obtains certificates itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use foregate_acme::{Obstacle, obstacle};
use foregate_config::value::{self, Wrong, choose};
use foregate_config::{Decoder, Item, Place, Problem};
use foregate_module::settings::value::ScalarKind;
use foregate_proxy::routing::HostPattern;
use foregate_proxy::settings::automatic::{
    Authority, Automatic, ChallengeKind, DnsHook, ExternalAccount, IssuedBy, OnDemand,
};
use rustix::fs::{Access, access};

use super::dns_update::{self, DNS_WAIT, HOUR};
use super::writable;
use crate::config::schema::{ACME, Key, ON_DEMAND};

/// Words for the issuer of certificates.
const ISSUERS: &[(&str, IssuedBy)] = &[("auto", IssuedBy::Authorities), ("internal", IssuedBy::Internal)];

/// Reads the word for an issuer.
pub(super) fn issuer(value: &value::Value<'_>) -> Result<IssuedBy, Wrong> {
    choose(value, ISSUERS).map_err(|wrong| {
        let file_form = "write `tls { certificate \"FILE\" key=\"FILE\" }` for a certificate in files";
        match &*value.text {
            _ if wrong.help.is_some() => wrong,
            "letsencrypt" | "lets-encrypt" | "acme" | "on" => wrong.help("write \"auto\""),
            "self-signed" | "selfsigned" | "local" => wrong.help("write \"internal\""),
            _ if value.kind == ScalarKind::Bool(true) => {
                wrong.help(format!("write \"auto\", or {}", &file_form[6..]))
            }
            text if value::is_off(text) || value.kind == ScalarKind::Bool(false) => {
                wrong.help("leave `tls` out: without it, the listener or site has no TLS of its own")
            }
            text if text.contains(['.', '/']) => wrong.help(file_form),
            _ => wrong,
        }
    })
}

const CHALLENGES: &[(&str, ChallengeKind)] = &[
    ("http-01", ChallengeKind::Http),
    ("tls-alpn-01", ChallengeKind::TlsAlpn),
    ("dns-01", ChallengeKind::Dns),
];

/// The default of `on-demand { rate }`: the number of certificates, and the time.
const RATE: (u32, Duration) = (10, Duration::from_secs(60));

/// A site that may get certificates by itself: the site or a listener asks for them, and the site has no certificate in
/// files.
pub(super) struct CertifiedSite {
    pub(super) hosts: Vec<HostPattern>,
    pub(super) place: Place,
    /// The issuer in the site's own `tls`.
    pub(super) issuer: Option<IssuedBy>,
}

/// The settings of `acme`. The names of sites are added by [`finish`](Self::finish).
pub(super) struct Acme {
    pub(super) automatic: Automatic,
    place: Option<Place>,
    /// The place of the key `challenges`, if there is one.
    challenges: Option<Place>,
}

impl Acme {
    /// Reads the block `acme`; without a block, returns the defaults.
    pub(super) fn decode(decoder: &mut Decoder<'_>, item: Option<Item<'_>>) -> Self {
        let mut automatic = Automatic::new(default_storage());
        let Some(item) = item else { return Self { automatic, place: None, challenges: None } };
        let place = Some(item.place());
        let mut authorities = Vec::new();
        let mut challenges = None;
        for (key, item) in decoder.block(item, &ACME) {
            match key.name {
                "email" => automatic.email = decoder.read(item, 0, email),
                "storage" => automatic.storage = decoder.path(item, 0).unwrap_or_default(),
                "directory" => authorities.extend(authority(decoder, item, key)),
                "challenges" => {
                    challenges = Some((item.place(), decoder.read_all(item, |v| choose(v, CHALLENGES))));
                }
                "dns-hook" => {
                    let command = decoder.read_all(item, |v| Ok(value::string(v)?.to_owned()));
                    let wait = decoder.prop(item, "wait", |v| value::duration(v, Duration::ZERO..=HOUR));
                    automatic.dns_hook = Some(DnsHook { command, wait: wait.unwrap_or(DNS_WAIT) });
                }
                "dns-update" => {
                    let Some(update) = dns_update::decode(decoder, item, key) else { continue };
                    if automatic.dns_updates.iter().any(|other| other.zone == update.zone) {
                        let message = format!("the zone `{}` has a `dns-update` already", update.zone);
                        decoder.push(Problem::new(Some(item.place()), message).help("keep one of them"));
                    }
                    automatic.dns_updates.push(update);
                }
                "on-demand" => automatic.on_demand = Some(on_demand(decoder, item)),
                name => debug_assert!(false, "{name} is not read"),
            }
        }
        if !authorities.is_empty() {
            automatic.authorities = authorities;
        }
        let publishes = automatic.dns_hook.is_some() || !automatic.dns_updates.is_empty();
        let stated_at = challenges.as_ref().map(|(place, _)| *place);
        match challenges {
            Some((place, stated)) => {
                if stated.contains(&ChallengeKind::Dns) && !publishes {
                    let problem = Problem::new(Some(place), "\"dns-01\" needs a way to publish records");
                    decoder.push(problem.help(
                        "add `dns-update \"SERVER\" zone=\"ZONE\"` or `dns-hook \"COMMAND\"` to `acme`",
                    ));
                }
                automatic.challenges = stated;
            }
            None if publishes => automatic.challenges.push(ChallengeKind::Dns),
            None => {}
        }
        Self { automatic, place, challenges: stated_at }
    }

    /// The certificates that the proxy obtains, with the names of all sites; `None` if there are none. `listener` is the
    /// issuer in a listener's `tls`, which applies to sites without their own. `in_clear` is true if a listener accepts
    /// requests without TLS. `stapled` is the place of an `ocsp`, which uses the storage without obtaining certificates.
    pub(super) fn finish(
        self,
        decoder: &mut Decoder<'_>,
        (listener, in_clear): (Option<IssuedBy>, bool),
        (sites, stapled): (&[CertifiedSite], Option<Place>),
        inspect: bool,
    ) -> Option<Arc<Automatic>> {
        let Self { mut automatic, place, challenges } = self;
        if !in_clear {
            without_clear(decoder, &mut automatic, challenges);
        }
        let mut names: BTreeMap<Arc<str>, IssuedBy> = BTreeMap::new();
        for site in sites {
            let Some(issuer) = site.issuer.or(listener) else { continue };
            for host in &site.hosts {
                let name = host.to_string();
                match hindrance(&automatic, issuer, &name) {
                    None => drop(names.insert(name.into(), issuer)),
                    Some(_) if automatic.on_demand.is_some() && site.issuer.is_none() => {}
                    Some(hindrance) => hindrance.tell(decoder, &name, site),
                }
            }
        }
        let is_used = !names.is_empty() || listener.is_some() && automatic.on_demand.is_some();
        if inspect && (is_used || stapled.is_some()) {
            writable::storage(decoder, &automatic.storage, place.or(stapled.filter(|_| !is_used)));
        }
        if !is_used {
            if place.is_some() && stapled.is_none() {
                let message = "nothing asks for certificates by `acme`, so that this has no effect";
                decoder.warn(
                    Problem::new(place, message).help("write `tls \"auto\"` in a `listen` or in a `site`"),
                );
            }
            return None;
        }
        automatic.names = names;
        Some(Arc::new(automatic))
    }
}

/// Handles a configuration without a listener for plain HTTP, on which HTTP-01 cannot be answered: drops that
/// challenge, or warns if the file demands it alone.
fn without_clear(decoder: &mut Decoder<'_>, automatic: &mut Automatic, stated: Option<Place>) {
    let others = automatic.challenges.iter().any(|kind| *kind != ChallengeKind::Http);
    if let (Some(place), false) = (stated, others) {
        let message = "\"http-01\" is answered at port 80, and no `listen` takes requests in the clear";
        decoder.warn(Problem::new(Some(place), message).help("add `listen \":80\"`"));
    } else if stated.is_none() {
        automatic.challenges.retain(|kind| *kind != ChallengeKind::Http);
    }
}

/// The obstacle because of which a name gets no certificate.
struct Hindrance(Obstacle);

fn hindrance(automatic: &Automatic, issuer: IssuedBy, name: &str) -> Option<Hindrance> {
    let found = obstacle(
        name,
        automatic.challenges.contains(&ChallengeKind::Dns) && automatic.publishes_records(name),
    )?;
    // A private authority may issue certificates for local names too.
    let is_private = automatic.authorities.iter().all(|authority| authority.roots.is_some());
    let is_fine = match (found, issuer) {
        (Obstacle::Any | Obstacle::Malformed, _) => false,
        (_, IssuedBy::Internal) => true,
        (Obstacle::Local, IssuedBy::Authorities) => is_private,
        (Obstacle::Wildcard | Obstacle::Address, IssuedBy::Authorities) => false,
    };
    (!is_fine).then_some(Hindrance(found))
}

impl Hindrance {
    fn tell(&self, decoder: &mut Decoder<'_>, name: &str, site: &CertifiedSite) {
        let (reason, help) = match self.0 {
            Obstacle::Any => (
                "`*` gets no certificate: it stands for every name",
                "name the hosts, or allow names with `acme { on-demand { ... } }` and `tls \"auto\"` in the `listen`",
            ),
            Obstacle::Wildcard => (
                "gets no certificate: a wildcard needs the DNS-01 challenge, and a way to publish its record",
                "add `dns-update \"SERVER\" zone=\"ZONE\"` or `dns-hook \"COMMAND\"` to `acme`, or name the hosts",
            ),
            Obstacle::Address => {
                ("gets no certificate: it is an address", "write `tls \"internal\"`, or name a `certificate`")
            }
            Obstacle::Local => (
                "gets no certificate: no public authority issues one for a name of the own network",
                "write `tls \"internal\"`, or name a private authority: `acme { directory \"https://...\" ca=\"root.pem\" }`",
            ),
            Obstacle::Malformed => {
                ("gets no certificate: it is no host name", "use letters, digits, hyphens and dots")
            }
        };
        let message = if self.0 == Obstacle::Any { reason.to_owned() } else { format!("`{name}` {reason}") };
        let problem = Problem::new(Some(site.place), message).help(help);
        // If only the listener asks for certificates, the name may be meant for plain HTTP alone, so this is a warning.
        if site.issuer.is_some() { decoder.push(problem) } else { decoder.warn(problem) }
    }
}

fn email(value: &value::Value<'_>) -> Result<String, Wrong> {
    let text = value::string(value)?;
    let text = text.strip_prefix("mailto:").unwrap_or(text);
    let is_address = text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'));
    if !is_address || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Wrong::new("expected a mail address").help("write \"you@example.com\""));
    }
    Ok(text.to_owned())
}

fn authority(decoder: &mut Decoder<'_>, item: Item<'_>, table: &'static Key) -> Option<Authority> {
    let directory = decoder.read(item, 0, |value| {
        let text = value::string(value)?;
        let is_address = text.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()));
        match text.starts_with("https://") && is_address {
            true => Ok(text.to_owned()),
            false => Err(Wrong::new("expected the https:// address of an authority's directory")
                .help("Let's Encrypt's test authority is \"https://acme-staging-v02.api.letsencrypt.org/directory\"")),
        }
    });
    let roots = decoder.prop_file(item, "ca");
    let profile = decoder.prop(item, "profile", |v| Ok(value::string(v)?.to_owned()));
    let id = decoder.prop(item, "account", |v| Ok(value::string(v)?.to_owned()));
    let key = decoder.prop_secret(item, table, "account-key", |v| {
        let text = value::string(v)?.trim_end_matches('=');
        let decoded = URL_SAFE_NO_PAD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text));
        decoded.map_err(|_| Wrong::new("expected the key in base64, as the authority shows it"))
    });
    let external = match (id, key) {
        (Some(id), Some(key)) => Some(ExternalAccount { id, key }),
        (None, None) => None,
        _ => {
            let stands = item
                .node
                .entries()
                .filter(|entry| matches!(entry.key(), Some("account" | "account-key")))
                .count();
            if stands == 1 {
                let problem = Problem::new(Some(item.place()), "`account` and `account-key` belong together");
                decoder.push(problem.help("write both, as the authority shows them"));
            }
            None
        }
    };
    Some(Authority { roots, profile, external, ..Authority::new(&directory?) })
}

fn on_demand(decoder: &mut Decoder<'_>, item: Item<'_>) -> OnDemand {
    let place = item.place();
    let mut on_demand = OnDemand { names: Vec::new(), ask: None, rate: RATE.0, per: RATE.1 };
    let mut stands = false;
    for (key, item) in decoder.block(item, &ON_DEMAND) {
        match key.name {
            "names" => {
                stands = true;
                on_demand.names = decoder.read_all(item, |value| {
                    let pattern = value::string(value)?.parse::<HostPattern>();
                    match pattern.map_err(|error| Wrong::new(format!("{error}")))? {
                        HostPattern::Any => {
                            Err(Wrong::new("anybody could have certificates issued for any name")
                                .help("name domains, such as \"*.customers.example.com\", or use `ask`"))
                        }
                        pattern => Ok(pattern.to_string()),
                    }
                });
            }
            "ask" => {
                stands = true;
                on_demand.ask = decoder.read(item, 0, |value| {
                    let text = value::string(value)?;
                    let uri = text.parse::<http::Uri>().ok();
                    let is_http = uri.is_some_and(|uri| {
                        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
                    });
                    let wrong = || {
                        Wrong::new("expected an http:// or https:// address")
                            .help("write \"http://127.0.0.1:3000/allowed\"")
                    };
                    is_http.then(|| text.to_owned()).ok_or_else(wrong)
                });
            }
            "rate" => {
                let rate = decoder.read(item, 0, |v| value::number(v, 1..=1_000_000));
                on_demand.rate = rate.map_or(RATE.0, |rate| rate as u32);
                let per =
                    decoder.prop(item, "per", |v| value::duration(v, Duration::from_secs(1)..=HOUR * 24));
                on_demand.per = per.unwrap_or(RATE.1);
            }
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    if !stands {
        let problem = Problem::new(
            Some(place),
            "`on-demand` needs `names` or `ask`: without them anybody could have certificates issued",
        );
        decoder.push(
            problem
                .help("add `names \"*.customers.example.com\"`, or `ask \"http://127.0.0.1:3000/allowed\"`"),
        );
    }
    on_demand
}

/// The `storage` folder in the block `acme`.
pub(in crate::config) fn storage(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<PathBuf> {
    Some(Acme::decode(decoder, Some(item)).automatic.storage)
}

/// The folder for certificates if `storage` is not set: from the service manager, else of the system, else of the user.
pub(in crate::config) fn default_storage() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folders) = variable("STATE_DIRECTORY")
        && let Some(first) = std::env::split_paths(&folders).next()
    {
        return first;
    }
    // The process may have changed from root to another user, and a reload must find the same folder. So the system's
    // folder is also used if this user can write to it.
    let system = Path::new("/var/lib/foregate");
    if rustix::process::geteuid().is_root() || access(system, Access::WRITE_OK).is_ok() {
        return system.to_owned();
    }
    let data = variable("XDG_DATA_HOME").map(PathBuf::from);
    let home = || variable("HOME").map(|home| Path::new(&home).join(".local/share"));
    data.or_else(home).unwrap_or_else(|| PathBuf::from("/var/lib")).join("foregate")
}
