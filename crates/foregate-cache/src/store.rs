//! The decision on storing a response, and how long it is fresh (RFC 9111, sections 3 and 4.2).

use foregate_wire::date::{format_date, parse_date};
use foregate_wire::{HeaderList, NameId, connection};

use crate::armor;
use crate::conditions::Representation;
use crate::directives::ResponseControl;
use crate::moment::Moment;
use crate::policy::{Policy, SetCookie};
use crate::request::Demands;
use crate::secret::Secret;
use crate::stored::{Life, StoredHead};
use crate::tags;
use crate::text::{seconds, trim};
use crate::vary::Vary;

/// A response as it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The status, 200 or more.
    pub status: u16,
    /// The fields as the origin sent them.
    pub headers: &'a HeaderList,
    /// When the request went to the origin.
    pub sent: Moment,
    /// When the head arrived.
    pub received: Moment,
}

/// The request that a response answers.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest<'a> {
    /// The client's demands.
    pub demands: &'a Demands,
    /// The fields of the request. Vary selects some of them.
    pub headers: &'a HeaderList,
    /// The path in normal form.
    pub path: &'a [u8],
}

/// The reason why a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStored {
    /// The response answers a HEAD.
    Method,
    /// The status is interim, 206, 304, 428, 429, 431, 511, or above 599; or it is unknown, and the response has `must-understand`.
    Status,
    /// `no-store`.
    NoStore,
    /// `private`.
    Private,
    /// The request had Authorization and the response does not permit storing.
    Authorization,
    /// The response sets a cookie.
    SetCookie,
    /// `Vary: *`, or more names than are looked at.
    Vary,
    /// The response has more tags than are read, so a purge could miss it.
    Tags,
    /// The extension of the path does not fit Content-Type.
    Deception,
    /// The stored response would be of no use: never fresh, and without a validator.
    Lifetime,
}

impl NotStored {
    /// A word for logs, metrics and the detail of Cache-Status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Status => "status",
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::Authorization => "authorization",
            Self::SetCookie => "set-cookie",
            Self::Vary => "vary",
            Self::Tags => "tags",
            Self::Deception => "deception",
            Self::Lifetime => "lifetime",
        }
    }
}

/// Decides whether a response may be stored by this shared cache, and makes the stored head.
///
/// # Errors
/// The first reason that forbids storing. The client gets the response all the same.
pub fn store(
    asked: &AnsweredRequest<'_>,
    response: &Response<'_>,
    policy: &Policy,
    secret: &Secret,
) -> Result<StoredHead, NotStored> {
    if asked.demands.head {
        return Err(NotStored::Method);
    }
    if !(200..600).contains(&response.status) || is_never_stored(response.status) {
        return Err(NotStored::Status);
    }
    let mut headers = response.headers.clone();
    let control = ResponseControl::read(&headers, &policy.targeted);
    permitted(asked.demands, response.status, &control)?;
    let tags = tags::read(&headers).ok_or(NotStored::Tags)?;
    let vary = Vary::read(&headers, asked.headers, secret).ok_or(NotStored::Vary)?;
    let dates = Dates::read(&headers, response.received.wall);
    let life = life(asked, response, &control, &dates, policy)?;
    keep_stored_fields(&mut headers, &control, policy);
    // A response without Date gets one (RFC 9110, section 6.6.1).
    if !headers.contains(NameId::Date) {
        headers.push_id(NameId::Date, format_date(dates.date).as_bytes());
    }
    if policy.set_cookie == SetCookie::Refuse && headers.contains(NameId::SetCookie) {
        return Err(NotStored::SetCookie);
    }
    let stays = life.lifetime > life.initial_age || life.stale_while_revalidate.max(life.stale_if_error) > 0;
    if !has_validator(&headers, &dates) && (life.always_validate || !stays) {
        return Err(NotStored::Lifetime);
    }
    Ok(StoredHead {
        status: response.status,
        headers: compact(&headers),
        life,
        vary,
        tags: Box::from(tags),
        last_modified: dates.last_modified,
        date: dates.date,
    })
}

/// Copies the fields, without the memory of removed ones.
pub(crate) fn compact(headers: &HeaderList) -> HeaderList {
    let bytes = headers.iter().map(|field| field.name.len() + field.value.len() + b": \r\n".len()).sum();
    let mut compact = HeaderList::new();
    compact.reserve(bytes, headers.len());
    for field in headers {
        compact.push(field.name, field.value);
    }
    compact
}

/// RFC 9111, sections 3, 3.5 and 5.2.2.
fn permitted(demands: &Demands, status: u16, control: &ResponseControl) -> Result<(), NotStored> {
    if control.must_understand && !is_understood(status) {
        return Err(NotStored::Status);
    }
    if control.no_store && !control.must_understand {
        return Err(NotStored::NoStore);
    }
    if control.private {
        return Err(NotStored::Private);
    }
    let shared = control.public || control.must_revalidate || control.s_maxage.is_some();
    if demands.authorization && !shared {
        return Err(NotStored::Authorization);
    }
    Ok(())
}

/// Returns whether the status is that of a part of a response or of a validation, or speaks of one client alone (RFC 6585).
pub fn is_never_stored(status: u16) -> bool {
    matches!(status, 206 | 304 | 428 | 429 | 431 | 511)
}

/// Returns whether a status is one of RFC 9110 with caching rules that this cache fully implements, for
/// `must-understand`.
fn is_understood(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300..=303 | 307 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Returns whether a response with this status may be stored without a stated lifetime (RFC 9110, section
/// 15.1).
fn is_heuristic(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

pub(crate) struct Dates {
    pub(crate) date: u64,
    pub(crate) last_modified: Option<u64>,
}

impl Dates {
    /// Reads Date and Last-Modified. A Date that is missing or invalid counts as the moment of receipt (RFC 9110,
    /// section 6.6.1).
    pub(crate) fn read(headers: &HeaderList, received: u64) -> Self {
        let Representation { date, last_modified, .. } = Representation::read(headers, received);
        Self { date, last_modified }
    }
}

fn has_validator(headers: &HeaderList, dates: &Dates) -> bool {
    dates.last_modified.is_some() || headers.contains(NameId::Etag)
}

fn life(
    asked: &AnsweredRequest<'_>,
    response: &Response<'_>,
    control: &ResponseControl,
    dates: &Dates,
    policy: &Policy,
) -> Result<Life, NotStored> {
    let stated = stated_lifetime(response, control, dates);
    let edge = policy.lifetime(response.status, asked.demands.conditions);
    let (lifetime, by_word) = match (edge, stated) {
        (Some(edge), None) => (edge.seconds, true),
        (Some(edge), Some(_)) if edge.over_origin => (edge.seconds, true),
        (_, Some(stated)) => (stated, true),
        (None, None) => (unstated_lifetime(asked, response, control, dates, policy)?, false),
    };
    let must = control.must_revalidate || control.proxy_revalidate || control.no_cache;
    // `s-maxage` forbids stale responses, unless the origin allows them in the same field.
    let forbids = must || control.s_maxage.is_some();
    // Only the client that caused the fetch may have a response that was never fresh.
    let default = |seconds: u32| if forbids || lifetime == 0 { 0 } else { seconds };
    let grace = |stated: Option<u32>, seconds: u32| match stated {
        _ if must => 0,
        Some(stated) => stated,
        None => default(seconds),
    };
    // A lifetime from the settings that replaces the lifetime of the origin replaces `no-cache`, too.
    let over = edge.is_some_and(|edge| edge.over_origin);
    Ok(Life {
        received: response.received.cache,
        initial_age: initial_age(response, dates),
        lifetime: milliseconds(lifetime),
        stale_while_revalidate: milliseconds(grace(
            control.stale_while_revalidate,
            if by_word { policy.stale_while_revalidate } else { 0 },
        )),
        stale_if_error: milliseconds(grace(control.stale_if_error, policy.stale_if_error)),
        always_validate: control.no_cache && !over,
        demanded: asked.demands.control.demands_newer(),
        never_stale: forbids || lifetime == 0,
    })
}

fn milliseconds(seconds: u32) -> u64 {
    u64::from(seconds) * 1000
}

/// The lifetime that the origin states (RFC 9111, section 4.2.1). If Expires is not a date, or if there are
/// several, the lifetime is zero.
fn stated_lifetime(response: &Response<'_>, control: &ResponseControl, dates: &Dates) -> Option<u32> {
    if let Some(seconds) = control.s_maxage.or(control.max_age) {
        return Some(seconds);
    }
    if control.targeted {
        return None;
    }
    let mut lines = response.headers.get_all(NameId::Expires);
    let expires = lines.next()?;
    let expires = parse_date(expires, response.received.wall).filter(|_| lines.next().is_none());
    let seconds = expires.unwrap_or(0).saturating_sub(dates.date);
    Some(u32::try_from(seconds).unwrap_or(u32::MAX).min(crate::text::MAX_SECONDS))
}

/// The lifetime of a response for which neither origin nor settings state one: by the extension of its path, else by heuristics (RFC
/// 9111, section 4.2.2). Heuristics are only used if the request suggests that the response is the same for all
/// clients: it has no query, cookie or credentials.
fn unstated_lifetime(
    asked: &AnsweredRequest<'_>,
    response: &Response<'_>,
    control: &ResponseControl,
    dates: &Dates,
    policy: &Policy,
) -> Result<u32, NotStored> {
    let extension = armor::extension(asked.path);
    let fits = || armor::content_fits(extension.as_deref(), response.headers.get(NameId::ContentType));
    let rule = policy.extensions.as_ref().zip(extension.as_deref());
    if let Some((rule, extension)) = rule
        && rule.covers(response.status, extension)
        && !control.no_cache
    {
        return if fits() { Ok(rule.seconds) } else { Err(NotStored::Deception) };
    }
    let demands = asked.demands;
    let alike = !demands.query && !demands.cookie && !demands.authorization;
    let heuristics = &policy.heuristics;
    let status = is_heuristic(response.status) || control.public;
    // RFC 9111, section 3: without a stated lifetime the status has to permit storing.
    if !status || response.status >= 400 && !heuristics.errors {
        return Err(NotStored::Lifetime);
    }
    if !alike {
        return Ok(0);
    }
    let unchanged = dates.last_modified.map_or(0, |modified| dates.date.saturating_sub(modified));
    let seconds = unchanged.saturating_mul(u64::from(heuristics.percent)) / 100;
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX).min(heuristics.cap);
    if seconds > 0 && !fits() {
        return Err(NotStored::Deception);
    }
    Ok(seconds)
}

/// `corrected_initial_age` of RFC 9111, section 4.2.3, in milliseconds.
pub(crate) fn initial_age(response: &Response<'_>, dates: &Dates) -> u64 {
    let apparent = response.received.wall.saturating_sub(dates.date).saturating_mul(1000);
    let delay = response.received.cache.since(response.sent.cache);
    let stated = response.headers.get(NameId::Age).and_then(age_value).unwrap_or(0);
    apparent.max(milliseconds(stated).saturating_add(delay))
}

/// Reads a value of Age. Only the first member of the list counts, and it is ignored if it is not a number (RFC
/// 9111, section 5.1).
fn age_value(line: &[u8]) -> Option<u32> {
    seconds(line.split(|&byte| byte == b',').next().map(trim)?)
}

/// Removes the fields that are not stored (RFC 9111, section 3.1), and those that are generated for each answer.
pub(crate) fn keep_stored_fields(headers: &mut HeaderList, control: &ResponseControl, policy: &Policy) {
    connection::strip_hop_by_hop(headers, false);
    headers.remove_each(&[
        NameId::TransferEncoding,
        NameId::Trailer,
        NameId::ProxyAuthenticate,
        NameId::ProxyAuthorization,
        NameId::Age,
    ]);
    headers.remove_name(b"proxy-authentication-info");
    if policy.set_cookie == SetCookie::Drop {
        headers.remove(NameId::SetCookie);
    }
    if !policy.keep_tags {
        tags::remove(headers);
    }
    if !control.fields.is_empty() {
        headers.retain(|field| !control.lists(field.name));
    }
}
