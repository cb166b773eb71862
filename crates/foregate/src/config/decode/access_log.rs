//! `access-log`, at the top of the file and in sites.

use std::path::PathBuf;
use std::time::Duration;

use foregate_config::value::{self, Value, Wrong};
use foregate_config::{Decoder, Item, Modules, Problem};
use foregate_module::PhaseId;
use foregate_module::settings::value::ScalarKind;
use foregate_proxy::settings::{
    AccessLogSettings, LOG_FIELDS, LineFormat, LogTarget, Rotation, SyslogFacility, SyslogServer,
    TemplatePart,
};
use foregate_rules::nearest;

use super::log_files::PlacedLog;
use super::writable;
use crate::config::schema::ACCESS_LOG;

/// The formats with a name.
const FORMATS: [(&str, LineFormat); 3] =
    [("json", LineFormat::Json), ("combined", LineFormat::Combined), ("common", LineFormat::Common)];
/// The default number of rotated files that are kept.
const KEPT: u32 = 7;
/// The longest `age` at which a file is rotated.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// The file that an access log is written to; `None` for another target.
pub(in crate::config) fn log_file(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<PathBuf> {
    match decoder.read(item, 0, |value| read_target(value, item))? {
        LogTarget::File { path, .. } if !path.starts_with("/dev") => Some(path),
        _ => None,
    }
}

/// Reads an `access-log`; `None` if a problem was found.
pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    modules: &mut Modules<'_>,
    inspect: bool,
) -> Option<PlacedLog> {
    let mut target = decoder.read(item, 0, |value| read_target(value, item))?;
    let mut log = AccessLogSettings::json(PathBuf::new());
    let mut rotated = None;
    let mut chosen = None;
    let mut sorted = None;
    for (key, item) in decoder.block(item, &ACCESS_LOG) {
        match key.name {
            "when" => log.when.extend(modules.conditions(decoder, (item, key), PhaseId::Log)),
            "sample" => log.share = decoder.read(item, 0, share)?,
            "field" => {
                let (name, value) = modules.named_expression(decoder, (item, key), PhaseId::Log)?;
                if LOG_FIELDS.contains(&&*name) || log.fields.iter().any(|(known, _)| *known == name) {
                    let problem =
                        Problem::new(Some(item.place()), format!("there is a field `{name}` already"));
                    decoder.push(problem.help("take another name"));
                    return None;
                }
                log.fields.push((name, value));
            }
            "fields" => chosen = Some((decoder.read_all(item, known), item.place())),
            "rotate" => rotated = Some((rotation(decoder, item)?, item.place())),
            "facility" => sorted = Some((decoder.read(item, 0, facility)?, item.place())),
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    let added: Vec<_> = log.fields.iter().map(|(name, _)| name.clone()).collect();
    if let Some(format) = decoder
        .prop(item, "format", |value| format(value, &added.iter().map(|name| &**name).collect::<Vec<_>>()))
    {
        log.format = format;
    }
    if let Some((names, place)) = chosen {
        if log.format != LineFormat::Json {
            let problem = Problem::new(Some(place), "`fields` chooses the values of the format `json` alone");
            decoder.push(problem.help("leave out `format`, or write a template"));
            return None;
        }
        log.format = LineFormat::JsonOf(names);
    }
    if let Some((wanted, place)) = rotated {
        match &mut target {
            LogTarget::File { path, rotation } if !path.starts_with("/dev") => *rotation = Some(wanted),
            _ => {
                let problem =
                    Problem::new(Some(place), format!("`{target}` cannot be rotated: it is not a file"));
                decoder.push(problem.help("leave out `rotate`"));
                return None;
            }
        }
    }
    if let Some((wanted, place)) = sorted {
        let LogTarget::Syslog { facility, .. } = &mut target else {
            let problem = Problem::new(Some(place), format!("`{target}` takes no `facility`"));
            decoder.push(problem.help("leave it out: it belongs to messages to a syslog server"));
            return None;
        };
        *facility = wanted;
    }
    if let LogTarget::File { path, .. } = &target
        && inspect
    {
        writable::log(decoder, path, item.place());
    }
    let place = rotated.map_or(item.place(), |(_, place)| place);
    Some((AccessLogSettings { target, ..log }, place))
}

fn read_target(value: &Value<'_>, item: Item<'_>) -> Result<LogTarget, Wrong> {
    if value.kind == ScalarKind::Bool(false) {
        return Err(Wrong::new("expected a file, `stdout`, `stderr` or a syslog server")
            .help("leave it out: without it, nothing is logged"));
    }
    let text = value::string(value)?;
    if text.is_empty() || value::is_off(text) {
        let wrong = Wrong::new("a word does not turn it off, but is the name of a file");
        return Err(wrong.help("leave it out; for a file of this name, begin with `./`"));
    }
    if text == "stdout" || text == "stderr" {
        return Ok(LogTarget::File { path: format!("/dev/{text}").into(), rotation: None });
    }
    let Some((scheme, server)) = text.split_once(':').filter(|(scheme, _)| scheme.starts_with("syslog"))
    else {
        return Ok(LogTarget::File { path: item.base().join(text), rotation: None });
    };
    let help = "write \"syslog+udp://HOST:PORT\", \"syslog+tcp://HOST:PORT\" or \"syslog+unix:/dev/log\"";
    let address = || {
        let server = server.strip_prefix("//").filter(|server| {
            let port = server.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0))
        });
        server.map(Box::<str>::from).ok_or_else(|| Wrong::new("expected HOST:PORT").help(help))
    };
    let server = match scheme {
        "syslog" | "syslog+udp" => SyslogServer::Udp(address()?),
        "syslog+tcp" => SyslogServer::Tcp(address()?),
        "syslog+unix" if !server.is_empty() => {
            SyslogServer::Unix(item.base().join(server.strip_prefix("//").unwrap_or(server)))
        }
        _ => return Err(Wrong::new("no target of this kind is known").help(help)),
    };
    Ok(LogTarget::Syslog { server, facility: SyslogFacility::default() })
}

/// Reads the name of a syslog facility.
fn facility(value: &Value<'_>) -> Result<SyslogFacility, Wrong> {
    let name = value::string(value)?;
    SyslogFacility::named(name).ok_or_else(|| {
        let wrong = Wrong::new(format!("there is no facility `{name}`"));
        match nearest(name, SyslogFacility::names()) {
            Some(near) => wrong.help(format!("did you mean \"{near}\"?")),
            None => wrong.help(format!(
                "the facilities are {}",
                SyslogFacility::names().collect::<Vec<_>>().join(", ")
            )),
        }
    })
}

/// Reads the name of a log field, and returns the field's number.
fn known(value: &Value<'_>) -> Result<usize, Wrong> {
    let name = value::string(value)?;
    let found = LOG_FIELDS.iter().position(|known| *known == name);
    found.ok_or_else(|| unknown(name, LOG_FIELDS.iter().copied()))
}

fn unknown<'n>(name: &str, names: impl Iterator<Item = &'n str> + Clone) -> Wrong {
    let wrong = Wrong::new(format!("there is no field `{name}`"));
    match nearest(name, names) {
        Some(near) => wrong.help(format!("did you mean `{near}`?")),
        None => wrong.help(format!("the fields are {}", LOG_FIELDS.join(", "))),
    }
}

/// Reads a format: a name, or a template with fields in braces.
fn format(value: &Value<'_>, added: &[&str]) -> Result<LineFormat, Wrong> {
    let text = value::string(value)?;
    if let Some((_, format)) = FORMATS.iter().find(|(name, _)| *name == text) {
        return Ok(format.clone());
    }
    if !text.contains('{') {
        let wrong = Wrong::new("expected json, combined, common, or a template with fields in braces");
        return Err(match nearest(text, FORMATS.iter().map(|(name, _)| *name)) {
            Some(near) => wrong.help(format!("did you mean \"{near}\"?")),
            None => wrong.help("such as \"{client} {status} {path}\""),
        });
    }
    if text.contains(['\n', '\r']) {
        return Err(Wrong::new("a template is one line"));
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        if !before.is_empty() {
            parts.push(TemplatePart::Text(before.into()));
        }
        if let Some(after) = after.strip_prefix('{') {
            parts.push(TemplatePart::Text("{".into()));
            rest = after;
            continue;
        }
        let Some((name, behind)) = after.split_once('}') else {
            return Err(Wrong::new("a `{` of the template has no `}`").help("write `{{` for the character"));
        };
        rest = behind;
        let of_ours = LOG_FIELDS.iter().position(|known| *known == name).map(TemplatePart::Known);
        let of_theirs = || added.iter().position(|known| *known == name).map(TemplatePart::Added);
        let names = LOG_FIELDS.iter().copied().chain(added.iter().copied());
        parts.push(of_ours.or_else(of_theirs).ok_or_else(|| unknown(name, names))?);
    }
    if !rest.is_empty() {
        parts.push(TemplatePart::Text(rest.into()));
    }
    Ok(LineFormat::Template(parts))
}

/// Reads a percentage and returns it as a fraction of 2^64; `None` for 100 %.
fn share(value: &Value<'_>) -> Result<Option<u64>, Wrong> {
    let number = value::string(value)?.strip_suffix('%').and_then(|text| text.parse::<f64>().ok());
    match number.filter(|share| (0.0..=100.0).contains(share)) {
        Some(100.0) => Ok(None),
        Some(share) => Ok(Some((share / 100.0 * 2_f64.powi(64)) as u64)),
        None => Err(Wrong::new("expected a share from \"0%\" to \"100%\"")),
    }
}

/// Reads `rotate`: when a log file is rotated.
fn rotation(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<Rotation> {
    let size = decoder.prop(item, "size", |value| value::size(value, 1024..=u64::MAX));
    let age = decoder.prop(item, "age", |value| value::duration(value, Duration::from_secs(1)..=LONGEST));
    let keep = decoder.prop(item, "keep", |value| value::number(value, 1..=1000));
    if size.is_none() && age.is_none() {
        let problem = Problem::new(Some(item.place()), "`rotate` needs a `size` or an `age`");
        decoder.push(problem.help("such as `rotate size=\"100MiB\" keep=7`"));
        return None;
    }
    Some(Rotation { size, age, keep: keep.map_or(KEPT, |keep| keep as u32) })
}
