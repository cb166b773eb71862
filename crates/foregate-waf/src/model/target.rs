//! Targets: the values that a rule reads.

use std::fmt;

use super::{Phase, Regex};

/// A target: the values that a rule reads, or their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The variable.
    pub variable: Variable,
    /// The selected elements of the collection; `None` for all of them.
    pub selector: Option<Selector>,
    /// Set if the rule reads the number of values instead of the values (`&`).
    pub count: bool,
}

/// An exclusion (`!`): values that are removed from the targets of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// The variable.
    pub variable: Variable,
    /// The selected elements of the collection; `None` for all of them.
    pub selector: Option<Selector>,
}

/// A selection of elements of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The values with this name, in any case.
    Name(Box<str>),
    /// The values with names that match this pattern (`/PATTERN/`), in any case.
    Regex(Regex),
    /// The nodes that this XPath finds. Only for [`Variable::Xml`].
    XPath(XPath),
}

/// The values taken from an XML document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XPath {
    /// `/*`: the texts of elements.
    Texts,
    /// `//@*`: the values of its attributes.
    Attributes,
}

impl XPath {
    /// All values with their spelling.
    pub const ALL: &[(&str, Self)] = &[("/*", Self::Texts), ("//@*", Self::Attributes)];
}

/// The kind of values that a [`Variable`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// One value.
    Scalar,
    /// Values under names.
    Collection,
    /// A document, from which an XPath selects values.
    Document,
}

/// Declares each variable with its name, its kind, and the first phase in which it can have a value.
macro_rules! variables {
    ($($name:ident $text:literal $kind:ident $phase:ident $about:literal;)*) => {
        /// A variable that rules can read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Variable {
            $(
                #[doc = concat!("`", $text, "`: ", $about, ".")]
                $name,
            )*
        }

        impl Variable {
            /// All values with their names, sorted by name.
            pub const ALL: &[(&str, Self)] = &[$(($text, Self::$name)),*];

            /// The kind of the variable.
            pub fn kind(self) -> VariableKind {
                match self {
                    $(Self::$name => VariableKind::$kind,)*
                }
            }

            /// The first phase in which the variable can have a value.
            pub fn known_from(self) -> Phase {
                match self {
                    $(Self::$name => Phase::$phase,)*
                }
            }
        }
    };
}

variables! {
    Args "ARGS" Collection RequestHeaders "arguments of the query string and of the body";
    ArgsCombinedSize "ARGS_COMBINED_SIZE" Scalar RequestHeaders "the bytes in names and values of all arguments";
    ArgsGet "ARGS_GET" Collection RequestHeaders "arguments of the query string";
    ArgsGetNames "ARGS_GET_NAMES" Collection RequestHeaders "their names";
    ArgsNames "ARGS_NAMES" Collection RequestHeaders "the names of all arguments";
    ArgsPost "ARGS_POST" Collection RequestBody "arguments of the body";
    ArgsPostNames "ARGS_POST_NAMES" Collection RequestBody "their names";
    AuthType "AUTH_TYPE" Scalar RequestHeaders "the scheme of the `Authorization` field";
    Duration "DURATION" Scalar RequestHeaders "milliseconds since the transaction began";
    Env "ENV" Collection RequestHeaders "what `setenv` set";
    Files "FILES" Collection RequestBody "the names of uploaded files as the client has them, by form field";
    FilesCombinedSize "FILES_COMBINED_SIZE" Scalar RequestBody "the bytes of all uploaded files";
    FilesNames "FILES_NAMES" Collection RequestBody "the form fields of uploaded files";
    FilesSizes "FILES_SIZES" Collection RequestBody "the sizes of uploaded files, by form field";
    FilesTmpContent "FILES_TMP_CONTENT" Collection RequestBody "the contents of uploaded files, by form field";
    FullRequest "FULL_REQUEST" Scalar RequestBody "request line, fields and body";
    FullRequestLength "FULL_REQUEST_LENGTH" Scalar RequestBody "its length in bytes";
    Global "GLOBAL" Collection RequestHeaders "elements that outlive transactions, for all clients";
    HighestSeverity "HIGHEST_SEVERITY" Scalar RequestHeaders "the worst severity among the rules that matched so far; 255 before the first";
    InboundDataError "INBOUND_DATA_ERROR" Scalar RequestBody "1 if the body of the request is beyond its limit";
    Ip "IP" Collection RequestHeaders "elements that outlive transactions, by what `initcol:ip` says";
    MatchedVar "MATCHED_VAR" Scalar RequestHeaders "the value that matched last";
    MatchedVars "MATCHED_VARS" Collection RequestHeaders "all values that matched in the link before";
    MatchedVarsNames "MATCHED_VARS_NAMES" Collection RequestHeaders "their names";
    MatchedVarName "MATCHED_VAR_NAME" Scalar RequestHeaders "its name";
    MultipartBoundaryQuoted "MULTIPART_BOUNDARY_QUOTED" Scalar RequestBody "1 if the boundary was quoted";
    MultipartBoundaryWhitespace "MULTIPART_BOUNDARY_WHITESPACE" Scalar RequestBody "1 if there was white space in the boundary";
    MultipartCrlfLfLines "MULTIPART_CRLF_LF_LINES" Scalar RequestBody "1 if lines ended in both ways";
    MultipartDataAfter "MULTIPART_DATA_AFTER" Scalar RequestBody "1 if something came after the last part";
    MultipartDataBefore "MULTIPART_DATA_BEFORE" Scalar RequestBody "1 if something came before the first part";
    MultipartFilename "MULTIPART_FILENAME" Collection RequestBody "`filename` parameters";
    MultipartFileLimitExceeded "MULTIPART_FILE_LIMIT_EXCEEDED" Scalar RequestBody "1 if there were too many files";
    MultipartHeaderFolding "MULTIPART_HEADER_FOLDING" Scalar RequestBody "1 if a field of a part was folded";
    MultipartInvalidHeaderFolding "MULTIPART_INVALID_HEADER_FOLDING" Scalar RequestBody "1 if one was folded wrongly";
    MultipartInvalidPart "MULTIPART_INVALID_PART" Scalar RequestBody "1 if a part was broken";
    MultipartInvalidQuoting "MULTIPART_INVALID_QUOTING" Scalar RequestBody "1 if quotes were wrong";
    MultipartLfLine "MULTIPART_LF_LINE" Scalar RequestBody "1 if a line ended in LF alone";
    MultipartMissingSemicolon "MULTIPART_MISSING_SEMICOLON" Scalar RequestBody "1 if a semicolon was missing";
    MultipartName "MULTIPART_NAME" Collection RequestBody "`name` parameters";
    MultipartPartHeaders "MULTIPART_PART_HEADERS" Collection RequestBody "the fields of parts as they came, by form field";
    MultipartStrictError "MULTIPART_STRICT_ERROR" Scalar RequestBody "1 if any of these flags is set";
    MultipartUnmatchedBoundary "MULTIPART_UNMATCHED_BOUNDARY" Scalar RequestBody "1 if a line looks like a boundary and is none";
    OutboundDataError "OUTBOUND_DATA_ERROR" Scalar ResponseBody "1 if the body of the response is beyond its limit";
    PathInfo "PATH_INFO" Scalar RequestHeaders "what follows the script in the path";
    QueryString "QUERY_STRING" Scalar RequestHeaders "what follows the `?`, as it came";
    RemoteAddr "REMOTE_ADDR" Scalar RequestHeaders "the client's address";
    RemoteHost "REMOTE_HOST" Scalar RequestHeaders "the client's name, here its address";
    RemotePort "REMOTE_PORT" Scalar RequestHeaders "the client's port";
    RemoteUser "REMOTE_USER" Scalar RequestHeaders "the user in the `Authorization` field";
    ReqbodyError "REQBODY_ERROR" Scalar RequestBody "1 if the body could not be taken apart";
    ReqbodyErrorMsg "REQBODY_ERROR_MSG" Scalar RequestBody "why";
    ReqbodyProcessor "REQBODY_PROCESSOR" Scalar RequestHeaders "what takes the body apart";
    ReqbodyProcessorError "REQBODY_PROCESSOR_ERROR" Scalar RequestBody "the same as `REQBODY_ERROR`";
    ReqbodyProcessorErrorMsg "REQBODY_PROCESSOR_ERROR_MSG" Scalar RequestBody "the same as `REQBODY_ERROR_MSG`";
    RequestBasename "REQUEST_BASENAME" Scalar RequestHeaders "the last segment of the path";
    RequestBody "REQUEST_BODY" Scalar RequestBody "the body, as it came";
    RequestBodyLength "REQUEST_BODY_LENGTH" Scalar RequestBody "its length in bytes";
    RequestCookies "REQUEST_COOKIES" Collection RequestHeaders "cookies";
    RequestCookiesNames "REQUEST_COOKIES_NAMES" Collection RequestHeaders "their names";
    RequestFilename "REQUEST_FILENAME" Scalar RequestHeaders "the path";
    RequestHeaders "REQUEST_HEADERS" Collection RequestHeaders "fields of the request";
    RequestHeadersNames "REQUEST_HEADERS_NAMES" Collection RequestHeaders "their names";
    RequestLine "REQUEST_LINE" Scalar RequestHeaders "the request line, as it came";
    RequestMethod "REQUEST_METHOD" Scalar RequestHeaders "the method";
    RequestProtocol "REQUEST_PROTOCOL" Scalar RequestHeaders "`HTTP/1.1` and the like";
    RequestUri "REQUEST_URI" Scalar RequestHeaders "path and query string";
    RequestUriRaw "REQUEST_URI_RAW" Scalar RequestHeaders "the target as it came";
    Resource "RESOURCE" Collection RequestHeaders "elements that outlive transactions, by what `setrsc` says";
    ResponseBody "RESPONSE_BODY" Scalar ResponseBody "the body of the response";
    ResponseContentLength "RESPONSE_CONTENT_LENGTH" Scalar ResponseHeaders "its length in bytes";
    ResponseContentType "RESPONSE_CONTENT_TYPE" Scalar ResponseHeaders "its type";
    ResponseHeaders "RESPONSE_HEADERS" Collection ResponseHeaders "fields of the response";
    ResponseHeadersNames "RESPONSE_HEADERS_NAMES" Collection ResponseHeaders "their names";
    ResponseProtocol "RESPONSE_PROTOCOL" Scalar ResponseHeaders "`HTTP/1.1` and the like";
    ResponseStatus "RESPONSE_STATUS" Scalar ResponseHeaders "the status";
    Rule "RULE" Collection RequestHeaders "the rule that runs: `id`, `rev`, `severity`, `logdata`, `msg`";
    ServerAddr "SERVER_ADDR" Scalar RequestHeaders "the address that the client came to";
    ServerName "SERVER_NAME" Scalar RequestHeaders "the host that the client asked for";
    ServerPort "SERVER_PORT" Scalar RequestHeaders "the port that the client came to";
    Session "SESSION" Collection RequestHeaders "elements that outlive transactions, by what `setsid` says";
    SessionId "SESSIONID" Scalar RequestHeaders "what `setsid` said";
    StatusLine "STATUS_LINE" Scalar ResponseHeaders "the status line";
    Time "TIME" Scalar RequestHeaders "`hh:mm:ss`";
    TimeDay "TIME_DAY" Scalar RequestHeaders "the day of the month";
    TimeEpoch "TIME_EPOCH" Scalar RequestHeaders "seconds since 1970";
    TimeHour "TIME_HOUR" Scalar RequestHeaders "the hour";
    TimeMin "TIME_MIN" Scalar RequestHeaders "the minute";
    TimeMon "TIME_MON" Scalar RequestHeaders "the month, from 0";
    TimeSec "TIME_SEC" Scalar RequestHeaders "the second";
    TimeWday "TIME_WDAY" Scalar RequestHeaders "the day of the week, 0 for Sunday";
    TimeYear "TIME_YEAR" Scalar RequestHeaders "the year";
    Tx "TX" Collection RequestHeaders "elements of this transaction; `0` to `9` are captures";
    UniqueId "UNIQUE_ID" Scalar RequestHeaders "the id of this transaction";
    UrlencodedError "URLENCODED_ERROR" Scalar RequestHeaders "1 if percent-encoding was broken in arguments";
    User "USER" Collection RequestHeaders "elements that outlive transactions, by what `setuid` says";
    UserId "USERID" Scalar RequestHeaders "what `setuid` said";
    WebAppId "WEBAPPID" Scalar RequestHeaders "what `SecWebAppId` says";
    Xml "XML" Document RequestBody "what an XPath finds in the body";
}

impl Variable {
    /// The variable with this name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, found)| *found)
    }

    /// Its name in SecLang, in capitals.
    pub fn name(self) -> &'static str {
        // The table has the order of the variants.
        Self::ALL[self as usize].0
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Regex(regex) => write!(f, "/{}/", regex.text()),
            Self::XPath(XPath::Texts) => f.write_str("/*"),
            Self::XPath(XPath::Attributes) => f.write_str("//@*"),
        }
    }
}

impl fmt::Display for Target {
    /// Writes the target as in SecLang.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.count { "&" } else { "" }, self.variable)?;
        self.selector.iter().try_for_each(|selector| write!(f, ":{selector}"))
    }
}

impl fmt::Display for Exclusion {
    /// Writes the exclusion as in SecLang, without the `!`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.variable)?;
        self.selector.iter().try_for_each(|selector| write!(f, ":{selector}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_variants() {
        for (at, (name, variable)) in Variable::ALL.iter().enumerate() {
            assert_eq!(*variable as usize, at, "{name}");
            assert_eq!(Variable::parse(&name.to_lowercase()), Some(*variable));
        }
        assert!(Variable::ALL.is_sorted());
    }
}
