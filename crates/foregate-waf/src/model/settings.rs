//! The settings of directives that are no rules.

use std::sync::Arc;

use crate::transform::UnicodeMap;

/// Settings of directives; [`Settings::default`] holds the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `SecRuleEngine`; `None` without a directive.
    pub engine: Option<EngineMode>,
    /// `SecRequestBodyAccess`: whether bodies of requests are looked at. Default: no.
    pub request_body_access: bool,
    /// `SecRequestBodyLimit`, in bytes. Default: 134,217,728.
    pub request_body_limit: u64,
    /// Set if the files contain `SecRequestBodyLimit`.
    pub request_body_limit_said: bool,
    /// `SecRequestBodyInMemoryLimit`, in bytes: longer bodies may be kept in a file until rules look at them. Default: 131,072.
    pub request_body_in_memory_limit: u64,
    /// `SecRequestBodyNoFilesLimit`, in bytes without the contents of uploaded files. Default: 1,048,576.
    pub request_body_no_files_limit: u64,
    /// `SecRequestBodyLimitAction`: the treatment of requests with larger bodies. Default: reject.
    pub request_body_limit_action: BeyondLimit,
    /// Set if the files contain `SecRequestBodyLimitAction`, to tell a choice from the default.
    pub request_body_limit_action_said: bool,
    /// `SecRequestBodyJsonDepthLimit`, in levels. Default: 512.
    pub request_body_json_depth_limit: u32,
    /// `SecArgumentsLimit`: arguments of a request that are kept. Default: 1,000.
    pub arguments_limit: u32,
    /// `SecUploadFileLimit`: files in a request that are looked at. Default: 100.
    pub upload_file_limit: u32,
    /// `SecParseXmlIntoArgs`: whether texts of XML become arguments. Default: no.
    pub xml_arguments: XmlArguments,
    /// `SecResponseBodyAccess`: whether bodies of responses are looked at. Default: no.
    pub response_body_access: bool,
    /// `SecResponseBodyLimit`, in bytes. Default: 524,288.
    pub response_body_limit: u64,
    /// `SecResponseBodyLimitAction`: the treatment of responses with larger bodies. Default: reject.
    pub response_body_limit_action: BeyondLimit,
    /// `SecResponseBodyMimeType`: the types of responses whose bodies rules read, in small letters. Default:
    /// `text/plain` and `text/html`.
    pub response_body_types: Vec<Box<str>>,
    /// `SecCollectionTimeout`: after how many seconds without a change an element of a persistent collection is
    /// forgotten. Default: 3,600.
    pub collection_timeout: u32,
    /// `SecUnicodeMapFile`: the meaning of `%uXXXX` codes. Default: their lower byte.
    pub unicode_map: Option<Arc<UnicodeMap>>,
    /// `SecComponentSignature`, in order.
    pub components: Vec<Box<str>>,
    /// `SecWebAppId`: the value of `WEBAPPID`; it also separates persistent collections.
    pub web_app_id: Option<Box<str>>,
    /// `SecSensorId`: the name of this instance in the audit log.
    pub sensor_id: Option<Box<str>>,
    /// `SecAuditEngine`: which transactions are written to the audit log. Default: none.
    pub audit_engine: AuditEngine,
    /// `SecAuditLogRelevantStatus`: which statuses make a transaction relevant. Default: none.
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

/// `SecRuleEngine`, `ctl:ruleEngine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineMode {
    /// Rules run and stop requests.
    On,
    /// No rule runs.
    Off,
    /// Rules run and stop nothing.
    DetectionOnly,
}

/// The treatment of a message with a body beyond its limit.
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
    /// `URLENCODED`: a form.
    UrlEncoded,
    /// `MULTIPART`: a form with files.
    Multipart,
    /// `JSON`.
    Json,
    /// `XML`.
    Xml,
    /// `RAW`: not at all.
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
        // In the order of the variants.
        Self::ALL[self as usize].0
    }
}

/// `SecParseXmlIntoArgs`, `ctl:parseXmlIntoArgs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XmlArguments {
    /// Texts of XML are in `XML` only.
    Off,
    /// The values are in `ARGS` as well.
    On,
    /// The values are in `ARGS` only.
    Only,
}

/// `SecAuditEngine`, `ctl:auditEngine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditEngine {
    /// Every transaction is written.
    On,
    /// None is.
    Off,
    /// Transactions in which an auditing rule matched, or with a relevant status.
    RelevantOnly,
}

/// Parts of an entry in the audit log: letters `A` to `K` and `Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditParts(u32);

impl AuditParts {
    /// The letters there are: header, head of the request, its body, (intended) head of the response, body of the
    /// response, head of the response, (actual) body of the response, trailer, compact body, files, rules, end.
    pub const LETTERS: &str = "ABCDEFGHIJKZ";

    /// No part.
    pub const NONE: Self = Self(0);

    /// This set with one more part; unchanged if there is no such part.
    #[must_use]
    pub fn with(self, letter: char) -> Self {
        Self(self.0 | Self::bit(letter))
    }

    /// This set without one part.
    #[must_use]
    pub fn without(self, letter: char) -> Self {
        Self(self.0 & !Self::bit(letter))
    }

    /// Returns true if this part is in it.
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

/// Statuses of responses, 100 to 999.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusSet(Vec<u16>);

impl StatusSet {
    /// These statuses.
    pub fn new(statuses: impl IntoIterator<Item = u16>) -> Self {
        let mut statuses: Vec<u16> = statuses.into_iter().collect();
        statuses.sort_unstable();
        statuses.dedup();
        Self(statuses)
    }

    /// Returns true if this status is among them.
    pub fn contains(&self, status: u16) -> bool {
        self.0.binary_search(&status).is_ok()
    }
}
