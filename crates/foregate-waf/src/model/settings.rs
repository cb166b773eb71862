//! The settings from directives other than rules.

use std::sync::Arc;

use crate::transform::UnicodeMap;

/// Settings of directives; [`Settings::default`] holds the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `SecRuleEngine`; `None` without a directive.
    pub engine: Option<EngineMode>,
    /// `SecRequestBodyAccess`: true if rules read bodies of requests. Default: false.
    pub request_body_access: bool,
    /// `SecRequestBodyLimit`, in bytes. Default: 134,217,728.
    pub request_body_limit: u64,
    /// Set if the files contain `SecRequestBodyLimit`.
    pub request_body_limit_said: bool,
    /// `SecRequestBodyInMemoryLimit`, in bytes: longer bodies may be stored in a file until rules read them.
    /// Default: 131,072.
    pub request_body_in_memory_limit: u64,
    /// `SecRequestBodyNoFilesLimit`, in bytes, not counting the contents of uploaded files. Default: 1,048,576.
    pub request_body_no_files_limit: u64,
    /// `SecRequestBodyLimitAction`: the treatment of requests with bodies beyond the limit. Default: reject.
    pub request_body_limit_action: BeyondLimit,
    /// Set if the files contain `SecRequestBodyLimitAction`. This distinguishes a choice from the default.
    pub request_body_limit_action_said: bool,
    /// `SecRequestBodyJsonDepthLimit`, in levels. Default: 512.
    pub request_body_json_depth_limit: u32,
    /// `SecArgumentsLimit`: the most arguments of a request that rules see. Default: 1,000.
    pub arguments_limit: u32,
    /// `SecUploadFileLimit`: the most uploaded files of a request that rules see. Default: 100.
    pub upload_file_limit: u32,
    /// `SecParseXmlIntoArgs`: decides if the texts of XML become arguments. Default: no.
    pub xml_arguments: XmlArguments,
    /// `SecResponseBodyAccess`: true if rules read bodies of responses. Default: false.
    pub response_body_access: bool,
    /// `SecResponseBodyLimit`, in bytes. Default: 524,288.
    pub response_body_limit: u64,
    /// `SecResponseBodyLimitAction`: the treatment of responses with bodies beyond the limit. Default: reject.
    pub response_body_limit_action: BeyondLimit,
    /// `SecResponseBodyMimeType`: the types of responses with bodies that rules read, in small letters. Default:
    /// `text/plain` and `text/html`.
    pub response_body_types: Vec<Box<str>>,
    /// `SecCollectionTimeout`: the time in seconds after which an element of a persistent collection expires, if
    /// it does not change. Default: 3,600.
    pub collection_timeout: u32,
    /// `SecUnicodeMapFile`: the map from `%uXXXX` codes to characters. By default, the lower byte of a code is
    /// the character.
    pub unicode_map: Option<Arc<UnicodeMap>>,
    /// The values of `SecComponentSignature`, in order.
    pub components: Vec<Box<str>>,
    /// `SecWebAppId`: the value of `WEBAPPID`; it also separates persistent collections.
    pub web_app_id: Option<Box<str>>,
    /// `SecSensorId`: the name of this instance in the audit log.
    pub sensor_id: Option<Box<str>>,
    /// `SecAuditEngine`: the transactions that are written to the audit log. Default: none.
    pub audit_engine: AuditEngine,
    /// `SecAuditLogRelevantStatus`: the statuses that make a transaction relevant to the audit log. Default: none.
    pub audit_relevant_status: StatusSet,
    /// `SecAuditLogParts`. Default: `ABCFHZ`.
    pub audit_parts: AuditParts,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            engine: None,
            request_body_access: false,
            request_body_limit: 134_217_728,
            request_body_limit_said: false,
            request_body_in_memory_limit: 131_072,
            request_body_no_files_limit: 1_048_576,
            request_body_limit_action: BeyondLimit::Reject,
            request_body_limit_action_said: false,
            request_body_json_depth_limit: 512,
            arguments_limit: 1000,
            upload_file_limit: 100,
            xml_arguments: XmlArguments::Off,
            response_body_access: false,
            response_body_limit: 524_288,
            response_body_limit_action: BeyondLimit::Reject,
            response_body_types: vec!["text/plain".into(), "text/html".into()],
            collection_timeout: 3600,
            unicode_map: None,
            components: Vec::new(),
            web_app_id: None,
            sensor_id: None,
            audit_engine: AuditEngine::Off,
            audit_relevant_status: StatusSet::default(),
            audit_parts: AuditParts::default(),
        }
    }
}

/// The mode of the engine: `SecRuleEngine`, `ctl:ruleEngine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineMode {
    /// Rules run and stop requests.
    On,
    /// No rule runs.
    Off,
    /// Rules run, but stop nothing.
    DetectionOnly,
}

/// The treatment of a request or response with a body that exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeyondLimit {
    /// The body is rejected.
    Reject,
    /// Rules read the part within the limit.
    ProcessPartial,
}

/// `ctl:requestBodyProcessor`: the parser of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyProcessor {
    /// `URLENCODED`: reads a form.
    UrlEncoded,
    /// `MULTIPART`: reads a form with files.
    Multipart,
    /// `JSON`.
    Json,
    /// `XML`.
    Xml,
    /// `RAW`: does not parse the body.
    Raw,
}

impl BodyProcessor {
    /// All values with their names.
    pub const ALL: &[(&str, Self)] = &[
        ("URLENCODED", Self::UrlEncoded),
        ("MULTIPART", Self::Multipart),
        ("JSON", Self::Json),
        ("XML", Self::Xml),
        ("RAW", Self::Raw),
    ];

    /// Its name in `REQBODY_PROCESSOR`.
    pub fn name(self) -> &'static str {
        // The table has the order of the variants.
        Self::ALL[self as usize].0
    }
}

/// The variables that get the texts of XML: `SecParseXmlIntoArgs`, `ctl:parseXmlIntoArgs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XmlArguments {
    /// The texts are in `XML` only.
    Off,
    /// The texts are in `XML` and in `ARGS`.
    On,
    /// The texts are in `ARGS` only.
    Only,
}

/// The transactions that are written to the audit log: `SecAuditEngine`, `ctl:auditEngine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditEngine {
    /// Every transaction is written.
    On,
    /// No transaction is written.
    Off,
    /// Transactions are written if a rule with `auditlog` matched, or if the status is relevant.
    RelevantOnly,
}

/// A set of parts of an audit log entry. The letters `A` to `K` and `Z` stand for the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditParts(u32);

impl AuditParts {
    /// The letters of all parts. They stand for, in this order: header, head of the request, body of the request,
    /// intended head of the response, intended body of the response, head of the response, body of the response,
    /// trailer, compact body, files, rules, end.
    pub const LETTERS: &str = "ABCDEFGHIJKZ";

    /// No part.
    pub const NONE: Self = Self(0);

    /// This set with one more part; unchanged if no part has this letter.
    #[must_use]
    pub fn with(self, letter: char) -> Self {
        Self(self.0 | Self::bit(letter))
    }

    /// This set without one part.
    #[must_use]
    pub fn without(self, letter: char) -> Self {
        Self(self.0 & !Self::bit(letter))
    }

    /// Returns true if the part with this letter is in the set.
    pub fn has(self, letter: char) -> bool {
        self.0 & Self::bit(letter) != 0
    }

    fn bit(letter: char) -> u32 {
        Self::LETTERS.find(letter).map_or(0, |at| 1 << at)
    }
}

impl Default for AuditParts {
    fn default() -> Self {
        "ABCFHZ".chars().fold(Self::NONE, Self::with)
    }
}

/// A set of response statuses, 100 to 999.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusSet(Vec<u16>);

impl StatusSet {
    /// A set of these statuses.
    pub fn new(statuses: impl IntoIterator<Item = u16>) -> Self {
        let mut statuses: Vec<u16> = statuses.into_iter().collect();
        statuses.sort_unstable();
        statuses.dedup();
        Self(statuses)
    }

    /// Returns true if this status is in the set.
    pub fn contains(&self, status: u16) -> bool {
        self.0.binary_search(&status).is_ok()
    }
}
