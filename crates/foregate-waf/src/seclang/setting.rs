//! Directives that set something.

use super::action;
use super::findings::Findings;
use super::line::Part;
use super::status;
use crate::model::{AuditEngine, AuditParts, BeyondLimit, EngineMode, Settings, XmlArguments};

pub(super) const SWITCH: &[(&str, bool)] = &[("On", true), ("Off", false)];

pub(super) const ENGINES: &[(&str, EngineMode)] =
    &[("On", EngineMode::On), ("Off", EngineMode::Off), ("DetectionOnly", EngineMode::DetectionOnly)];

pub(super) const AUDIT_ENGINES: &[(&str, AuditEngine)] =
    &[("On", AuditEngine::On), ("Off", AuditEngine::Off), ("RelevantOnly", AuditEngine::RelevantOnly)];

pub(super) const XML_ARGUMENTS: &[(&str, XmlArguments)] =
    &[("On", XmlArguments::On), ("Off", XmlArguments::Off), ("OnlyArgs", XmlArguments::Only)];

const BEYOND: &[(&str, BeyondLimit)] =
    &[("Reject", BeyondLimit::Reject), ("ProcessPartial", BeyondLimit::ProcessPartial)];

/// Settings so far.
#[derive(Default)]
pub(super) struct Said {
    pub(super) settings: Settings,
    /// Set once types of responses were named: the first ones replace the defaults.
    types_named: bool,
}

/// The effect of a directive.
#[derive(Clone, Copy)]
enum Effect {
    /// Sets something; one argument.
    Set(fn(&mut Said, Part<'_>, &mut Findings) -> Option<()>),
    /// Sets something; at least one argument, or any number.
    SetAll(fn(&mut Said, &[Part<'_>], &mut Findings) -> Option<()>),
    /// No effect, with the reason.
    None(&'static str),
    /// No effect unless the argument differs from this one, with the reason.
    NoneBut(&'static str, &'static str),
    /// Refused, with the reason.
    Refused(&'static str),
    /// Refused unless the argument is this one, with the reason.
    RefusedBut(&'static str, &'static str),
}

const DISK: &str = "nothing is written to disk";
const MEMORY: &str = "collections are kept in memory";
const LOG: &str = "where the log goes, and how it is written, is said where rules are named";
const DIAGNOSTICS: &str = "diagnostics are those of the proxy";
const LINEAR: &str = "patterns are matched in linear time";
const CONNECTIONS: &str = "the proxy limits connections itself";
const UNASKED: &str = "the operator that needs it is not offered";
const BODIES: &str = "how bodies are kept is said by the proxy's limits";
const COOKIES: &str = "cookies are always taken apart as browsers send them";
const UNSIGNED: &str = "pages are not signed";

/// Every directive that is neither a rule nor about rules, sorted by name.
const DIRECTIVES: &[(&str, Effect)] = &[
    (
        "SecArgumentSeparator",
        Effect::NoneBut("&", "arguments are separated by `&`, and what stands between `;` is seen besides"),
    ),
    (
        "SecArgumentsLimit",
        Effect::Set(|said, part, findings| {
            said.settings.arguments_limit =
                action::number(part, 1..=u32::MAX, "a number of arguments", findings)?;
            Some(())
        }),
    ),
    (
        "SecAuditEngine",
        Effect::Set(|said, part, findings| {
            said.settings.audit_engine = choice(part, AUDIT_ENGINES, findings)?;
            Some(())
        }),
    ),
    ("SecAuditLog", Effect::None(LOG)),
    ("SecAuditLog2", Effect::None(LOG)),
    ("SecAuditLogDirMode", Effect::None(LOG)),
    ("SecAuditLogFileMode", Effect::None(LOG)),
    ("SecAuditLogFormat", Effect::None(LOG)),
    (
        "SecAuditLogParts",
        Effect::Set(|said, part, findings| {
            said.settings.audit_parts = audit_parts(part, findings)?;
            Some(())
        }),
    ),
    ("SecAuditLogPrefix", Effect::None(LOG)),
    (
        "SecAuditLogRelevantStatus",
        Effect::Set(|said, part, findings| {
            said.settings.audit_relevant_status = status::statuses(part, findings)?;
            Some(())
        }),
    ),
    ("SecAuditLogStorageDir", Effect::None(LOG)),
    ("SecAuditLogType", Effect::NoneBut("Serial", LOG)),
    ("SecCacheTransformations", Effect::None("values are transformed once whatever it says")),
    ("SecChrootDir", Effect::None("where the proxy runs is said by what starts it")),
    (
        "SecCollectionTimeout",
        Effect::Set(|said, part, findings| {
            said.settings.collection_timeout =
                action::number(part, 1..=u32::MAX, "a number of seconds", findings)?;
            Some(())
        }),
    ),
    (
        "SecComponentSignature",
        Effect::Set(|said, part, _| {
            said.settings.components.push(part.text().into());
            Some(())
        }),
    ),
    ("SecConnEngine", Effect::NoneBut("Off", CONNECTIONS)),
    ("SecConnReadStateLimit", Effect::None(CONNECTIONS)),
    ("SecConnWriteStateLimit", Effect::None(CONNECTIONS)),
    ("SecContentInjection", Effect::NoneBut("Off", "bodies are not rewritten by rules")),
    ("SecCookieFormat", Effect::NoneBut("0", COOKIES)),
    ("SecCookieV0Separator", Effect::NoneBut(";", COOKIES)),
    ("SecDataDir", Effect::None(MEMORY)),
    ("SecDataset", Effect::Refused("a list in a file is `@pmFromFile` or `@ipMatchFromFile`")),
    ("SecDebugLog", Effect::None(DIAGNOSTICS)),
    ("SecDebugLogLevel", Effect::None(DIAGNOSTICS)),
    ("SecDisableBackendCompression", Effect::None("what the proxy asks of origins is said by routes")),
    ("SecGeoLookupDb", Effect::None(UNASKED)),
    ("SecGsbLookupDb", Effect::None(UNASKED)),
    ("SecGuardianLog", Effect::None(LOG)),
    ("SecHashEngine", Effect::RefusedBut("Off", UNSIGNED)),
    ("SecHashKey", Effect::None(UNSIGNED)),
    ("SecHashMethodPm", Effect::None(UNSIGNED)),
    ("SecHashMethodRx", Effect::None(UNSIGNED)),
    ("SecHashParam", Effect::None(UNSIGNED)),
    ("SecHttpBlKey", Effect::None(UNASKED)),
    ("SecIgnoreRuleCompilationErrors", Effect::RefusedBut("Off", "rules that are wrong are never left out")),
    ("SecInterceptOnError", Effect::None("an operator has no errors once it is loaded")),
    (
        "SecParseXmlIntoArgs",
        Effect::Set(|said, part, findings| {
            said.settings.xml_arguments = choice(part, XML_ARGUMENTS, findings)?;
            Some(())
        }),
    ),
    ("SecPcreMatchLimit", Effect::None(LINEAR)),
    ("SecPcreMatchLimitRecursion", Effect::None(LINEAR)),
    ("SecReadStateLimit", Effect::None(CONNECTIONS)),
    ("SecRemoteRules", Effect::Refused("rules are read from files")),
    ("SecRemoteRulesFailAction", Effect::None("rules are read from files")),
    (
        "SecRequestBodyAccess",
        Effect::Set(|said, part, findings| {
            said.settings.request_body_access = choice(part, SWITCH, findings)?;
            Some(())
        }),
    ),
    (
        "SecRequestBodyInMemoryLimit",
        Effect::Set(|said, part, findings| {
            said.settings.request_body_in_memory_limit = bytes(part, findings)?;
            Some(())
        }),
    ),
    (
        "SecRequestBodyJsonDepthLimit",
        Effect::Set(|said, part, findings| {
            said.settings.request_body_json_depth_limit =
                action::number(part, 1..=u32::MAX, "a number of levels", findings)?;
            Some(())
        }),
    ),
    (
        "SecRequestBodyLimit",
        Effect::Set(|said, part, findings| {
            said.settings.request_body_limit = bytes(part, findings)?;
            said.settings.request_body_limit_said = true;
            Some(())
        }),
    ),
    (
        "SecRequestBodyLimitAction",
        Effect::Set(|said, part, findings| {
            said.settings.request_body_limit_action = choice(part, BEYOND, findings)?;
            said.settings.request_body_limit_action_said = true;
            Some(())
        }),
    ),
    (
        "SecRequestBodyNoFilesLimit",
        Effect::Set(|said, part, findings| {
            said.settings.request_body_no_files_limit = bytes(part, findings)?;
            Some(())
        }),
    ),
    ("SecRequestEncoding", Effect::None("values are bytes, whatever their encoding")),
    (
        "SecResponseBodyAccess",
        Effect::Set(|said, part, findings| {
            said.settings.response_body_access = choice(part, SWITCH, findings)?;
            Some(())
        }),
    ),
    (
        "SecResponseBodyLimit",
        Effect::Set(|said, part, findings| {
            said.settings.response_body_limit = bytes(part, findings)?;
            Some(())
        }),
    ),
    (
        "SecResponseBodyLimitAction",
        Effect::Set(|said, part, findings| {
            said.settings.response_body_limit_action = choice(part, BEYOND, findings)?;
            Some(())
        }),
    ),
    ("SecResponseBodyMimeType", Effect::SetAll(response_body_types)),
    ("SecResponseBodyMimeTypesClear", Effect::SetAll(clear_response_body_types)),
    (
        "SecRuleEngine",
        Effect::Set(|said, part, findings| {
            said.settings.engine = Some(choice(part, ENGINES, findings)?);
            Some(())
        }),
    ),
    ("SecRuleInheritance", Effect::NoneBut("On", "which rules hold where is said by routes")),
    ("SecRulePerfTime", Effect::None("the proxy's metrics say how long rules take")),
    ("SecRuleScript", Effect::Refused("no scripts are run")),
    (
        "SecSensorId",
        Effect::Set(|said, part, _| {
            said.settings.sensor_id = Some(part.text().into());
            Some(())
        }),
    ),
    ("SecServerSignature", Effect::None("the `Server` field is said by routes")),
    ("SecStatusEngine", Effect::NoneBut("Off", "nothing is reported to anybody")),
    ("SecStreamInBodyInspection", Effect::NoneBut("Off", BODIES)),
    ("SecStreamOutBodyInspection", Effect::NoneBut("Off", BODIES)),
    ("SecTmpDir", Effect::None(DISK)),
    ("SecTmpSaveUploadedFiles", Effect::NoneBut("Off", DISK)),
    ("SecUnicodeCodePage", Effect::None("`SecUnicodeMapFile` names the page with its file")),
    ("SecUploadDir", Effect::None(DISK)),
    (
        "SecUploadFileLimit",
        Effect::Set(|said, part, findings| {
            said.settings.upload_file_limit =
                action::number(part, 1..=u32::MAX, "a number of files", findings)?;
            Some(())
        }),
    ),
    ("SecUploadFileMode", Effect::None(DISK)),
    ("SecUploadKeepFiles", Effect::NoneBut("Off", DISK)),
    (
        "SecWebAppId",
        Effect::Set(|said, part, _| {
            said.settings.web_app_id = Some(part.text().into());
            Some(())
        }),
    ),
    ("SecWriteStateLimit", Effect::None(CONNECTIONS)),
    ("SecXmlExternalEntity", Effect::NoneBut("Off", "XML entities are never loaded")),
];

/// The names of these directives.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    DIRECTIVES.iter().map(|(name, _)| *name)
}

/// Applies a directive. Returns false if there is none of this name, which is not recorded.
pub(super) fn directive(
    said: &mut Said,
    name: Part<'_>,
    arguments: &[Part<'_>],
    findings: &mut Findings,
) -> bool {
    let Some((known, effect)) = DIRECTIVES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.raw))
    else {
        return false;
    };
    let says = |text: &str| matches!(arguments, [one] if one.text().eq_ignore_ascii_case(text));
    let no_effect = |reason: &str| format!("`{known}` has no effect: {reason}");
    match (*effect, arguments) {
        (Effect::NoneBut(text, _) | Effect::RefusedBut(text, _), _) if says(text) => {}
        (Effect::None(reason) | Effect::NoneBut(_, reason), _) => {
            findings.warn(name.at, no_effect(reason), None);
        }
        (Effect::Refused(reason) | Effect::RefusedBut(_, reason), _) => {
            findings.error(name.at, format!("`{known}` is not offered: {reason}"), None);
        }
        (Effect::Set(set), [argument]) => {
            // An error has been recorded.
            let _ = set(said, *argument, findings);
        }
        (Effect::Set(_), _) => {
            let message = format!("`{known}` takes one argument, not {}", arguments.len());
            findings.error(name.at, message, None);
        }
        (Effect::SetAll(set), arguments) => {
            let _ = set(said, arguments, findings);
        }
    }
    true
}

/// The value of one of these words, in any case.
pub(super) fn choice<T: Copy>(part: Part<'_>, known: &[(&str, T)], findings: &mut Findings) -> Option<T> {
    let text = part.text();
    let found = known.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text));
    if found.is_none() {
        let names: Vec<_> = known.iter().map(|(name, _)| format!("`{name}`")).collect();
        let suggestion = Some(format!("one of {}", names.join(", ")));
        findings.error(part.at, format!("`{text}` is not known here"), suggestion);
    }
    found.map(|(_, found)| *found)
}

/// Letters of parts of the audit log.
pub(super) fn audit_parts(part: Part<'_>, findings: &mut Findings) -> Option<AuditParts> {
    let text = part.text();
    if text.is_empty() {
        findings.error(part.at, "letters of parts are missing", None);
        return None;
    }
    match text.chars().find(|letter| !AuditParts::LETTERS.contains(letter.to_ascii_uppercase())) {
        Some(wrong) => {
            let suggestion = Some(format!("parts are {}", AuditParts::LETTERS));
            findings.error(part.at, format!("there is no part `{wrong}`"), suggestion);
            None
        }
        None => {
            Some(text.chars().fold(AuditParts::NONE, |parts, letter| parts.with(letter.to_ascii_uppercase())))
        }
    }
}

fn bytes(part: Part<'_>, findings: &mut Findings) -> Option<u64> {
    action::number(part, 0..=u64::MAX, "a number of bytes", findings)
}

fn response_body_types(said: &mut Said, types: &[Part<'_>], findings: &mut Findings) -> Option<()> {
    if !std::mem::replace(&mut said.types_named, true) {
        said.settings.response_body_types.clear();
    }
    for one in types.iter().flat_map(|part| part.split_all(char::is_whitespace)) {
        let text = one.text().to_ascii_lowercase();
        if !text.contains('/') {
            findings.error(one.at, format!("`{text}` is no type"), Some("a type is `text/html`".into()));
            continue;
        }
        if !said.settings.response_body_types.iter().any(|known| **known == *text) {
            said.settings.response_body_types.push(text.into());
        }
    }
    Some(())
}

fn clear_response_body_types(said: &mut Said, arguments: &[Part<'_>], findings: &mut Findings) -> Option<()> {
    if let [argument, ..] = arguments {
        findings.error(argument.at, "`SecResponseBodyMimeTypesClear` takes no argument", None);
    }
    said.types_named = true;
    said.settings.response_body_types.clear();
    Some(())
}
