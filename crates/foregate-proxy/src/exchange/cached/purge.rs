//! Purges over HTTP, for applications.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use foregate_cache::{Purge, Strength, Tag, Uri};
use foregate_module::{Source as MadeBy, Text};
use foregate_wire::{NameId, Scheme};

use super::key::uri;
use crate::cache::Recording;
use crate::exchange::reply::Reply;
use crate::exchange::state::{Exchange, Step};
use crate::settings::CacheSettings;

/// The method of a purge.
const METHOD: &[u8] = b"PURGE";
/// The field with the kind of a purge: `soft`, `prefix`, `site`.
const MODE: &[u8] = b"foregate-purge";

/// Answers a purge. `None` if the request is not a purge, or purging is not allowed here.
pub(super) fn answer(exchange: &Exchange<'_>, settings: &CacheSettings) -> Option<(Vec<Recording>, Step)> {
    let token = settings.purge_token.as_deref()?;
    if exchange.request.head.method.as_bytes() != METHOD {
        return None;
    }
    if !is_allowed(exchange, token) {
        let mut reply = reply(401, "a purge needs the token of this route\n");
        reply.head.headers.push(b"WWW-Authenticate", b"Bearer");
        return Some((Vec::new(), Step::Reply(Box::new(reply))));
    }
    let (recordings, reply) = match purge(exchange, settings) {
        Ok(recordings) => (recordings, reply(200, "purged\n")),
        Err(wrong) => (Vec::new(), reply(400, wrong)),
    };
    Some((recordings, Step::Reply(Box::new(reply))))
}

fn reply(status: u16, text: &'static str) -> Reply {
    Reply::new(status, "text/plain; charset=utf-8", Text::Static(text.as_bytes()), MadeBy::Route)
}

fn is_allowed(exchange: &Exchange<'_>, token: &str) -> bool {
    let headers = &exchange.request.head.headers;
    let Some(credentials) = headers.get(NameId::Authorization) else { return false };
    let given = match credentials.split_at_checked(b"Bearer ".len()) {
        Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"Bearer ") => given.trim_ascii(),
        _ => return false,
    };
    verify_slices_are_equal(given, token.as_bytes()).is_ok()
}

fn purge(exchange: &Exchange<'_>, settings: &CacheSettings) -> Result<Vec<Recording>, &'static str> {
    let headers = &exchange.request.head.headers;
    let (mut strength, mut whole) = (Strength::Hard, None);
    for word in
        headers.get_all_name(MODE).flat_map(|line| line.split(|&byte| byte == b',')).map(<[u8]>::trim_ascii)
    {
        match word {
            b"soft" => strength = Strength::Soft,
            b"prefix" => whole = Some(false),
            b"site" => whole = Some(true),
            _ => return Err("Foregate-Purge takes soft, prefix and site\n"),
        }
    }
    let cache = &exchange.proxy.cache;
    let by_comma = headers.get_all_name(b"cache-tag").flat_map(|line| line.split(|&byte| byte == b','));
    let by_blank =
        headers.get_all(NameId::SurrogateKey).flat_map(|line| line.split(|byte| b" \t".contains(byte)));
    let mut tags = by_comma.chain(by_blank).map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty()).peekable();
    if tags.peek().is_some() {
        return Ok(tags.filter_map(|tag| cache.purge(&Purge::Tag(Tag::new(tag)), strength)).collect());
    }
    let mut query = Vec::new();
    let has_query = match whole {
        Some(_) => false,
        None => settings.query.apply(exchange.request.target.query(), &mut query),
    };
    let raw = exchange.request.target.query();
    let address = uri(exchange.request, if whole.is_some() { raw } else { has_query.then_some(&*query) });
    // The application may send the purge over HTTP although clients use HTTPS, so both addresses are purged.
    let mut recordings = Vec::new();
    for scheme in [Scheme::Http, Scheme::Https] {
        let address = Uri { scheme, ..address };
        let purge = match whole {
            None => Purge::Address(&address),
            Some(false) => Purge::Prefix(&address),
            Some(true) => Purge::Site(&address),
        };
        recordings.extend(cache.purge(&purge, strength));
    }
    Ok(recordings)
}
