//! Handles the directives that set a value.

use super::findings::Findings;
use super::line::Part;
use super::number;
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

/// The settings that have been read so far.
#[derive(Default)]
pub(super) struct DirectiveSettings {
    pub(super) settings: Settings,
    /// Set once `SecResponseBodyMimeType` was used. Its first use replaces the default types; further uses add to
    /// them.
    types_named: bool,
}

/// The effect of a directive.
#[derive(Clone, Copy)]
enum DirectiveEffect {
    /// Sets a value; there must be exactly one argument.
    Set(fn(&mut DirectiveSettings, Part<'_>, &mut Findings) -> Option<()>),
    /// Sets a value; there may be any number of arguments.
    SetAll(fn(&mut DirectiveSettings, &[Part<'_>], &mut Findings) -> Option<()>),
    /// The directive has no effect, for this reason.
    None(&'static str),
    /// The directive has no effect, for the reason in the second text. If its argument is the first text, no
    /// warning is given.
    NoneBut(&'static str, &'static str),
    /// The directive is refused, for this reason.
    Refused(&'static str),
    /// The directive is refused unless its argument is the first text; the second text is the reason.
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

/// Every directive that neither is a rule nor changes rules, sorted by name.
const DIRECTIVES: &[(&str, DirectiveEffect)] = &[
    (
        "SecArgumentSeparator",
        DirectiveEffect::NoneBut(
            "&",
            "arguments are separated by `&`, and what stands between `;` is seen besides",
        ),
    ),
    (
        "SecArgumentsLimit",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.arguments_limit =
                number::bounded(part, 1..=u32::MAX, "a number of arguments", findings)?;
            Some(())
        }),
    ),
    (
        "SecAuditEngine",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.audit_engine = choice(part, AUDIT_ENGINES, findings)?;
            Some(())
        }),
    ),
    ("SecAuditLog", DirectiveEffect::None(LOG)),
    ("SecAuditLog2", DirectiveEffect::None(LOG)),
    ("SecAuditLogDirMode", DirectiveEffect::None(LOG)),
    ("SecAuditLogFileMode", DirectiveEffect::None(LOG)),
    ("SecAuditLogFormat", DirectiveEffect::None(LOG)),
    (
        "SecAuditLogParts",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.audit_parts = audit_parts(part, findings)?;
            Some(())
        }),
    ),
    ("SecAuditLogPrefix", DirectiveEffect::None(LOG)),
    (
        "SecAuditLogRelevantStatus",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.audit_relevant_status = status::statuses(part, findings)?;
            Some(())
        }),
    ),
    ("SecAuditLogStorageDir", DirectiveEffect::None(LOG)),
    ("SecAuditLogType", DirectiveEffect::NoneBut("Serial", LOG)),
    ("SecCacheTransformations", DirectiveEffect::None("values are transformed once whatever it says")),
    ("SecChrootDir", DirectiveEffect::None("where the proxy runs is said by what starts it")),
    (
        "SecCollectionTimeout",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.collection_timeout =
                number::bounded(part, 1..=u32::MAX, "a number of seconds", findings)?;
            Some(())
        }),
    ),
    (
        "SecComponentSignature",
        DirectiveEffect::Set(|said, part, _| {
            said.settings.components.push(part.text().into());
            Some(())
        }),
    ),
    ("SecConnEngine", DirectiveEffect::NoneBut("Off", CONNECTIONS)),
    ("SecConnReadStateLimit", DirectiveEffect::None(CONNECTIONS)),
    ("SecConnWriteStateLimit", DirectiveEffect::None(CONNECTIONS)),
    ("SecContentInjection", DirectiveEffect::NoneBut("Off", "bodies are not rewritten by rules")),
    ("SecCookieFormat", DirectiveEffect::NoneBut("0", COOKIES)),
    ("SecCookieV0Separator", DirectiveEffect::NoneBut(";", COOKIES)),
    ("SecDataDir", DirectiveEffect::None(MEMORY)),
    ("SecDataset", DirectiveEffect::Refused("a list in a file is `@pmFromFile` or `@ipMatchFromFile`")),
    ("SecDebugLog", DirectiveEffect::None(DIAGNOSTICS)),
    ("SecDebugLogLevel", DirectiveEffect::None(DIAGNOSTICS)),
    (
        "SecDisableBackendCompression",
        DirectiveEffect::None("what the proxy asks of origins is said by routes"),
    ),
    ("SecGeoLookupDb", DirectiveEffect::None(UNASKED)),
    ("SecGsbLookupDb", DirectiveEffect::None(UNASKED)),
    ("SecGuardianLog", DirectiveEffect::None(LOG)),
    ("SecHashEngine", DirectiveEffect::RefusedBut("Off", UNSIGNED)),
    ("SecHashKey", DirectiveEffect::None(UNSIGNED)),
    ("SecHashMethodPm", DirectiveEffect::None(UNSIGNED)),
    ("SecHashMethodRx", DirectiveEffect::None(UNSIGNED)),
    ("SecHashParam", DirectiveEffect::None(UNSIGNED)),
    ("SecHttpBlKey", DirectiveEffect::None(UNASKED)),
    (
        "SecIgnoreRuleCompilationErrors",
        DirectiveEffect::RefusedBut("Off", "rules that are wrong are never left out"),
    ),
    ("SecInterceptOnError", DirectiveEffect::None("an operator has no errors once it is loaded")),
    (
        "SecParseXmlIntoArgs",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.xml_arguments = choice(part, XML_ARGUMENTS, findings)?;
            Some(())
        }),
    ),
    ("SecPcreMatchLimit", DirectiveEffect::None(LINEAR)),
    ("SecPcreMatchLimitRecursion", DirectiveEffect::None(LINEAR)),
    ("SecReadStateLimit", DirectiveEffect::None(CONNECTIONS)),
    ("SecRemoteRules", DirectiveEffect::Refused("rules are read from files")),
    ("SecRemoteRulesFailAction", DirectiveEffect::None("rules are read from files")),
    (
        "SecRequestBodyAccess",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.request_body_access = choice(part, SWITCH, findings)?;
            Some(())
        }),
    ),
    (
        "SecRequestBodyInMemoryLimit",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.request_body_in_memory_limit = bytes(part, findings)?;
            Some(())
        }),
    ),
    (
        "SecRequestBodyJsonDepthLimit",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.request_body_json_depth_limit =
                number::bounded(part, 1..=u32::MAX, "a number of levels", findings)?;
            Some(())
        }),
    ),
    (
        "SecRequestBodyLimit",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.request_body_limit = bytes(part, findings)?;
            said.settings.request_body_limit_said = true;
            Some(())
        }),
    ),
    (
        "SecRequestBodyLimitAction",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.request_body_limit_action = choice(part, BEYOND, findings)?;
            said.settings.request_body_limit_action_said = true;
            Some(())
        }),
    ),
    (
        "SecRequestBodyNoFilesLimit",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.request_body_no_files_limit = bytes(part, findings)?;
            Some(())
        }),
    ),
    ("SecRequestEncoding", DirectiveEffect::None("values are bytes, whatever their encoding")),
    (
        "SecResponseBodyAccess",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.response_body_access = choice(part, SWITCH, findings)?;
            Some(())
        }),
    ),
    (
        "SecResponseBodyLimit",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.response_body_limit = bytes(part, findings)?;
            Some(())
        }),
    ),
    (
        "SecResponseBodyLimitAction",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.response_body_limit_action = choice(part, BEYOND, findings)?;
            Some(())
        }),
    ),
    ("SecResponseBodyMimeType", DirectiveEffect::SetAll(response_body_types)),
    ("SecResponseBodyMimeTypesClear", DirectiveEffect::SetAll(clear_response_body_types)),
    (
        "SecRuleEngine",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.engine = Some(choice(part, ENGINES, findings)?);
            Some(())
        }),
    ),
    ("SecRuleInheritance", DirectiveEffect::NoneBut("On", "which rules hold where is said by routes")),
    ("SecRulePerfTime", DirectiveEffect::None("the proxy's metrics say how long rules take")),
    ("SecRuleScript", DirectiveEffect::Refused("no scripts are run")),
    (
        "SecSensorId",
        DirectiveEffect::Set(|said, part, _| {
            said.settings.sensor_id = Some(part.text().into());
            Some(())
        }),
    ),
    ("SecServerSignature", DirectiveEffect::None("the `Server` field is said by routes")),
    ("SecStatusEngine", DirectiveEffect::NoneBut("Off", "nothing is reported to anybody")),
    ("SecStreamInBodyInspection", DirectiveEffect::NoneBut("Off", BODIES)),
    ("SecStreamOutBodyInspection", DirectiveEffect::NoneBut("Off", BODIES)),
    ("SecTmpDir", DirectiveEffect::None(DISK)),
    ("SecTmpSaveUploadedFiles", DirectiveEffect::NoneBut("Off", DISK)),
    ("SecUnicodeCodePage", DirectiveEffect::None("`SecUnicodeMapFile` names the page with its file")),
    ("SecUploadDir", DirectiveEffect::None(DISK)),
    (
        "SecUploadFileLimit",
        DirectiveEffect::Set(|said, part, findings| {
            said.settings.upload_file_limit =
                number::bounded(part, 1..=u32::MAX, "a number of files", findings)?;
            Some(())
        }),
    ),
    ("SecUploadFileMode", DirectiveEffect::None(DISK)),
    ("SecUploadKeepFiles", DirectiveEffect::NoneBut("Off", DISK)),
    (
        "SecWebAppId",
        DirectiveEffect::Set(|said, part, _| {
            said.settings.web_app_id = Some(part.text().into());
            Some(())
        }),
    ),
    ("SecWriteStateLimit", DirectiveEffect::None(CONNECTIONS)),
    ("SecXmlExternalEntity", DirectiveEffect::NoneBut("Off", "XML entities are never loaded")),
];

/// The names of these directives.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    DIRECTIVES.iter().map(|(name, _)| *name)
}

/// Applies a directive. Returns false if there is no directive with this name; that is not recorded as an
/// error.
pub(super) fn directive(
    said: &mut DirectiveSettings,
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
        (DirectiveEffect::NoneBut(text, _) | DirectiveEffect::RefusedBut(text, _), _) if says(text) => {}
        (DirectiveEffect::None(reason) | DirectiveEffect::NoneBut(_, reason), _) => {
            findings.warn(name.at, no_effect(reason), None);
        }
        (DirectiveEffect::Refused(reason) | DirectiveEffect::RefusedBut(_, reason), _) => {
            findings.error(name.at, format!("`{known}` is not offered: {reason}"), None);
        }
        (DirectiveEffect::Set(set), [argument]) => {
            // After a failure there is nothing to do: the error has been recorded.
            let _ = set(said, *argument, findings);
        }
        (DirectiveEffect::Set(_), _) => {
            let message = format!("`{known}` takes one argument, not {}", arguments.len());
            findings.error(name.at, message, None);
        }
        (DirectiveEffect::SetAll(set), arguments) => {
            let _ = set(said, arguments, findings);
        }
    }
    true
}

/// Parses one of these words, in any case, and returns its value.
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

/// Parses the letters of audit log parts.
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
    number::bounded(part, 0..=u64::MAX, "a number of bytes", findings)
}

fn response_body_types(
    said: &mut DirectiveSettings,
    types: &[Part<'_>],
    findings: &mut Findings,
) -> Option<()> {
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

fn clear_response_body_types(
    said: &mut DirectiveSettings,
    arguments: &[Part<'_>],
    findings: &mut Findings,
) -> Option<()> {
    if let [argument, ..] = arguments {
        findings.error(argument.at, "`SecResponseBodyMimeTypesClear` takes no argument", None);
    }
    said.types_named = true;
    said.settings.response_body_types.clear();
    Some(())
}
