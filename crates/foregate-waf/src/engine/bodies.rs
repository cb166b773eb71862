//! The values that rules see of a request's body and query.

use super::budget::Over;
use super::intake::Intake;
use super::limits::{Beyond, NAMES, Unreadable};
use super::values::{Family, Span, Values};
use crate::body::{self, BodyFormat, BodyLimits, Documents, File, Multipart, Sink, charset};
use crate::model::{BeyondLimit, BodyProcessor, EngineMode, Variable, XmlArguments};

/// The error for a body that exceeds the limit, not counting its files.
const TOO_LONG: &str = "the body without its files is larger than SecRequestBodyNoFilesLimit";

/// The number of bytes of a body that are searched for texts at the cost of one unit of work.
const SKIMMED: usize = 8;

impl Intake<'_> {
    /// Adds the arguments of a query.
    pub(crate) fn query(&mut self, text: &[u8]) {
        let outcome = self.urlencoded(text);
        if outcome.invalid_encoding {
            self.state.values.set_text(Variable::UrlencodedError, b"1");
        }
    }

    fn urlencoded(&mut self, text: &[u8]) -> body::UrlEncoded {
        let limits = self.body_limits();
        let outcome = body::urlencoded(text, b'&', &limits, &mut Collector::new(self));
        if outcome.over_limit {
            self.too_many();
        }
        outcome
    }

    /// The limits for the body: arguments of the query count towards the limit of arguments.
    fn body_limits(&self) -> BodyLimits {
        let settings = &self.plan.settings;
        let have = self.state.values.units(Family::Args).len();
        BodyLimits {
            arguments: (settings.arguments_limit as usize).saturating_sub(have),
            depth: settings.request_body_json_depth_limit as usize,
            files: settings.upload_file_limit as usize,
            unclear_files: self.plan.limits.unclear_files,
        }
    }

    /// Parses a body. Returns true if it is within `SecRequestBodyNoFilesLimit`; if not, `REQBODY_ERROR` is set as well.
    pub(crate) fn request_body(&mut self, body: &[u8], whole: bool) -> bool {
        let most = self.plan.settings.request_body_no_files_limit;
        // A body in an unknown format is a file, such as an upload by PUT.
        let is_file = matches!(self.state.switches.processor, None | Some(BodyProcessor::Raw));
        let has_files = self.state.switches.processor == Some(BodyProcessor::Multipart);
        if !is_file && !has_files && body.len() as u64 > most && self.refuses_long_bodies() {
            // The request is denied anyway, so the long body need not be scanned.
            self.body_error(TOO_LONG);
            return false;
        }
        self.state.budget.add_room(body.len());
        let values = &mut self.state.values;
        values.set_number(Variable::RequestBodyLength, body.len() as u64);
        values.set_text(Variable::InboundDataError, if whole { b"0" } else { b"1" });
        let switches = self.state.switches;
        // By default, rules do not see the raw body of a form with files or of XML. Files would cost more than all
        // other values, and the Core Rule Set expects no raw body for XML. Operators can switch on the raw body for
        // both.
        let is_alone = !matches!(switches.processor, Some(BodyProcessor::Multipart | BodyProcessor::Xml));
        let is_wanted = self.uses(Variable::RequestBody) && is_alone
            || switches.processor == Some(BodyProcessor::UrlEncoded)
            || switches.force_request_body;
        if is_wanted {
            self.raw_body(body, switches.processor.is_none().then_some(most));
        }
        let files = match switches.processor.or_else(|| self.processor_of_type()) {
            _ if body.is_empty() => 0,
            Some(processor) => {
                let files = self.take_apart(processor, body, whole);
                // The body may be JSON or XML that is declared as a form: some clients declare every body so, and many
                // programs ignore the type.
                if processor == BodyProcessor::UrlEncoded {
                    self.guess(body, whole);
                }
                files
            }
            None => {
                self.guess_all(body, whole);
                0
            }
        };
        if !body.is_empty() && is_coded(&self.state.values) {
            // Rules have seen only the encoded content. An origin that decodes it would see text that rules have not seen.
            self.unreadable("the body has a content coding");
        }
        if !body.is_empty() && has_several_types(&self.state.values) {
            self.unreadable("there are several fields Content-Type, and they differ");
        }
        let unclear = types_of_body(&self.state.values).find_map(super::media::unclear);
        if let Some(why) = unclear.filter(|_| !body.is_empty()) {
            self.unreadable(why);
        }
        self.sums(files);
        self.full_request(body);
        self.state.has_room(0);
        let within = is_file || (body.len() as u64).saturating_sub(files) <= most;
        if !within {
            self.body_error(TOO_LONG);
        }
        within
    }

    /// Adds the unparsed body as a value. Rules see all of a short body. Of a long body, such as an archive or a
    /// picture, they see the start and the texts in the rest, because scanning all of it for each rule would take
    /// seconds.
    fn raw_body(&mut self, body: &[u8], whole: Option<u64>) {
        let whole = whole.and_then(|whole| usize::try_from(whole).ok()).filter(|whole| body.len() > *whole);
        let texts = whole.and_then(|whole| body::texts(body, whole));
        if whole.is_some() {
            self.state.budget.spend((body.len() / SKIMMED) as u64);
        }
        let text = texts.as_deref().unwrap_or(body);
        if self.state.has_room(text.len()) {
            self.state.values.set_text(Variable::RequestBody, text);
        }
    }

    /// Returns true if a body above `SecRequestBodyNoFilesLimit` denies the request.
    pub(crate) fn refuses_long_bodies(&self) -> bool {
        self.state.switches.mode == EngineMode::On
            && self.plan.settings.request_body_limit_action == BeyondLimit::Reject
    }

    /// Records that arguments were left out. For rules, the body is then unreadable, even if the omitted arguments were
    /// in the query.
    fn too_many(&mut self) {
        self.state.budget.exceed(Over::Arguments);
        self.body_error("there is more than SecArgumentsLimit and the limits of parts allow");
    }

    /// Records that the body is unreadable, or that parsers disagree about it.
    fn unreadable(&mut self, why: &str) {
        self.state.unreadable.get_or_insert_with(|| why.to_owned());
        self.body_error(why);
    }

    /// The status with which the host refuses an unreadable body; `None` if the body is readable, or if a rule checks
    /// for unreadable bodies.
    pub(crate) fn refuses_unreadable(&self) -> Option<u16> {
        let limits = &self.plan.limits;
        let Unreadable::Deny(status) = limits.unreadable else { return None };
        self.state.unreadable.as_ref()?;
        let form = self.state.values.text.get(self.state.values.scalar(Variable::ReqbodyError)) != b"1";
        let asked = if form { Variable::MultipartStrictError } else { Variable::ReqbodyError };
        // With `Beyond::Continue`, the operator chose to let requests over their budget pass.
        let is_over = self.state.budget.over().is_some() && limits.beyond == Beyond::Continue;
        (!self.uses(asked) && !is_over).then_some(status)
    }

    fn body_error(&mut self, why: &str) {
        self.state.values.set_text(Variable::ReqbodyError, b"1");
        self.state.values.set_text(Variable::ReqbodyErrorMsg, why.as_bytes());
    }

    /// The parser for a JSON or XML type if no rule selects one: a body that does not match its declared type is unreadable, regardless of
    /// the rules.
    fn processor_of_type(&self) -> Option<BodyProcessor> {
        match body::kind(&type_of_body(&self.state.values)) {
            BodyFormat::Json(_) => Some(BodyProcessor::Json),
            BodyFormat::Xml => Some(BodyProcessor::Xml),
            BodyFormat::UrlEncoded | BodyFormat::Multipart | BodyFormat::Other => None,
        }
    }

    /// Extracts names and values from a body for which neither a rule nor the type selects a parser: many programs
    /// ignore the type. Syntax errors are not reported, since the format is a guess; exceeded limits are.
    fn guess_all(&mut self, body: &[u8], whole: bool) {
        let is_one = self.guess(body, whole);
        let field = type_of_body(&self.state.values);
        let limits = self.body_limits();
        if body::kind(&field) == BodyFormat::Multipart {
            let mut collector = Collector::new(self);
            let found = body::multipart(&field, body, whole, &limits, &mut collector);
            collector.finish();
            if found.over_limit {
                self.too_many();
            }
            if let Some(hidden) = found.hidden {
                self.unreadable(&hidden.to_string());
            }
            return;
        }
        let kind = body::media_type(&field).to_ascii_lowercase();
        let is_text = !is_one && (kind.is_empty() || kind.starts_with(b"text/"));
        // A long binary body looks like a form only by chance. If it has too many arguments, this does not count as
        // an error.
        let most = self.plan.settings.request_body_no_files_limit;
        let over =
            is_text && body::urlencoded(body, b'&', &limits, &mut Pairs(Collector::new(self))).over_limit;
        if over && (body.len() as u64 <= most || body::is_text(body)) {
            self.too_many();
        }
    }

    /// Parses a body that begins like JSON or XML. Returns true if the body is JSON or XML. Values that a lenient
    /// parser would find in invalid JSON are emitted too.
    fn guess(&mut self, body: &[u8], whole: bool) -> bool {
        if let Some(text) = body::narrowed(body) {
            // The declaration is removed: it names the original encoding, and the text is now in UTF-8.
            let declaration =
                text.starts_with(b"<?xml").then(|| memchr::memmem::find(&text, b"?>")).flatten();
            let text = text.get(declaration.map_or(0, |end| end + 2)..).unwrap_or_default();
            self.guess_plain(text, whole);
        }
        self.guess_plain(body, whole)
    }

    fn guess_plain(&mut self, body: &[u8], whole: bool) -> bool {
        let limits = self.body_limits();
        let start = body.strip_prefix(body::MARK).unwrap_or(body);
        let mut collector = Collector::new(self);
        let outcome = if start.trim_ascii_start().starts_with(b"<") {
            body::xml(body, whole, false, &limits, &mut collector)
        } else if body::begins_like_json(start) {
            body::json(body, Documents::One, whole, &limits, &mut collector)
        } else {
            return false;
        };
        collector.finish();
        if outcome.as_ref().is_err_and(body::BodyError::is_limit) {
            self.too_many();
        }
        outcome.is_ok()
    }

    /// Extracts the names and values of a body. Returns the size of its files in bytes.
    fn take_apart(&mut self, processor: BodyProcessor, body: &[u8], whole: bool) -> u64 {
        let limits = self.body_limits();
        let arguments = self.state.switches.xml_arguments;
        let mut multipart = None;
        let mut collector = Collector::new(self);
        let outcome = match processor {
            BodyProcessor::UrlEncoded => {
                drop(collector);
                if self.urlencoded(body).invalid_encoding {
                    self.state.values.set_text(Variable::UrlencodedError, b"1");
                }
                return 0;
            }
            BodyProcessor::Multipart => {
                let kind = type_of_body(&collector.intake.state.values);
                let found = body::multipart(&kind, body, whole, &limits, &mut collector);
                let error = found.error.clone();
                multipart = Some(found);
                error.map_or(Ok(()), Err)
            }
            BodyProcessor::Json => {
                let documents = match body::kind(&type_of_body(&collector.intake.state.values)) {
                    BodyFormat::Json(documents) => documents,
                    _ => Documents::One,
                };
                body::json(body, documents, whole, &limits, &mut collector)
            }
            BodyProcessor::Xml => {
                collector.texts = arguments != XmlArguments::Only;
                body::xml(body, whole, arguments != XmlArguments::Off, &limits, &mut collector)
            }
            BodyProcessor::Raw => Ok(()),
        };
        let files = collector.files;
        collector.finish();
        if let Some(multipart) = multipart {
            self.multipart(&multipart);
        }
        if let Err(error) = outcome {
            self.unreadable(&error.to_string());
            // Other parsers read the values beyond the limit, which rules have not seen. This counts as exceeding the
            // budget, whether rules check for errors or not.
            if error.is_limit() {
                self.state.budget.exceed(Over::Arguments);
            }
        }
        files
    }

    /// Sets the `MULTIPART_*` variables of a form with files.
    fn multipart(&mut self, found: &Multipart) {
        let values = &mut self.state.values;
        for (variable, set) in [
            (Variable::MultipartBoundaryQuoted, found.boundary_quoted),
            (Variable::MultipartBoundaryWhitespace, found.boundary_whitespace),
            (Variable::MultipartCrlfLfLines, found.mixed_lines()),
            (Variable::MultipartDataAfter, found.data_after),
            (Variable::MultipartDataBefore, found.data_before),
            (Variable::MultipartFileLimitExceeded, found.file_limit_exceeded),
            (Variable::MultipartHeaderFolding, found.header_folding),
            (Variable::MultipartInvalidHeaderFolding, found.invalid_header_folding),
            (Variable::MultipartInvalidPart, found.invalid_part),
            (Variable::MultipartInvalidQuoting, found.invalid_quoting),
            (Variable::MultipartLfLine, found.lf_line),
            (Variable::MultipartMissingSemicolon, found.missing_semicolon),
            (Variable::MultipartStrictError, found.strict_error()),
        ] {
            values.set_text(variable, if set { b"1" } else { b"0" });
        }
        values.set_number(Variable::MultipartUnmatchedBoundary, u64::from(found.unmatched_boundary));
        if found.strict_error() {
            let unclear = "two programs may read the form in different ways";
            let why = found.error.as_ref().map_or_else(|| unclear.to_owned(), ToString::to_string);
            self.state.unreadable.get_or_insert(why);
        }
        if found.over_limit {
            self.too_many();
        }
    }

    /// Sets the variables with the total sizes of arguments and files.
    fn sums(&mut self, files: u64) {
        let values = &mut self.state.values;
        let sum: usize =
            values.units(Family::Args).iter().map(|unit| unit.name.len() + unit.value.len()).sum();
        values.set_number(Variable::ArgsCombinedSize, sum as u64);
        values.set_number(Variable::FilesCombinedSize, files);
    }

    /// Returns true if a rule uses the variable.
    fn uses(&self, variable: Variable) -> bool {
        self.plan.used.contains(variable as usize)
    }

    /// Sets `FULL_REQUEST` if a rule uses it: request line, header fields and body in one text.
    fn full_request(&mut self, body: &[u8]) {
        if !self.uses(Variable::FullRequest) && !self.uses(Variable::FullRequestLength) {
            return;
        }
        let values = &mut self.state.values;
        let mut out = values.text.get(values.scalar(Variable::RequestLine)).to_vec();
        out.extend_from_slice(b"\r\n");
        for field in values.units(Family::Headers) {
            for part in [values.text.get(field.name), b": ", values.text.get(field.value), b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
        values.set_number(Variable::FullRequestLength, out.len() as u64);
        values.set_text(Variable::FullRequest, &out);
    }
}

fn type_of_body(values: &Values) -> Vec<u8> {
    types_of_body(values).next().unwrap_or_default().to_vec()
}

/// Returns true if programs behind the firewall may disagree about the type of the body.
fn has_several_types(values: &Values) -> bool {
    let mut types = types_of_body(values);
    types.next().is_some_and(|first| types.any(|other| other != first))
}

fn types_of_body(values: &Values) -> impl Iterator<Item = &[u8]> {
    let is_it = |name| values.text.get(name).eq_ignore_ascii_case(b"content-type");
    let fields = values.units(Family::Headers).iter().filter(move |field| is_it(field.name));
    fields.map(|field| values.text.get(field.value))
}

/// Returns true if the body has a content coding (RFC 9110, section 8.4) other than `identity`.
fn is_coded(values: &Values) -> bool {
    let mut fields = values.units(Family::Headers).iter();
    fields.any(|field| {
        let codings = values.text.get(field.value).split(|byte| *byte == b',');
        values.text.get(field.name).eq_ignore_ascii_case(b"content-encoding")
            && codings
                .map(<[u8]>::trim_ascii)
                .any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
    })
}

/// The longest name of an argument in a text that may or may not be a form, bytes. A longer text before a `=`
/// is hardly a name.
const GUESSED_NAME: usize = 8192;

/// Collects names and values from a text that may be a form.
struct Pairs<'r, 'p>(Collector<'r, 'p>);

impl Sink for Pairs<'_, '_> {
    fn argument(&mut self, name: &[u8], value: &[u8]) {
        if name.len() <= GUESSED_NAME && !value.is_empty() {
            self.0.argument(name, value);
        }
    }

    fn value(&mut self, name: &[u8], value: &[u8]) {
        if name.len() <= GUESSED_NAME && !value.is_empty() {
            self.0.value(name, value);
        }
    }
}

/// Adds the values of a body to the families.
struct Collector<'r, 'p> {
    intake: &'r mut Intake<'p>,
    /// Set if rules use texts of XML.
    texts: bool,
    /// The text of an XML document so far.
    text: Vec<u8>,
    /// Bytes of files so far.
    files: u64,
    /// The name that was added last.
    name: Span,
    /// Bytes of names so far.
    names: usize,
}

impl<'r, 'p> Collector<'r, 'p> {
    fn new(intake: &'r mut Intake<'p>) -> Self {
        Self { intake, texts: true, text: Vec::new(), files: 0, name: Span::EMPTY, names: 0 }
    }

    fn add(&mut self, family: Family, names: Option<Family>, name: &[u8], value: &[u8]) {
        let state = &mut *self.intake.state;
        self.names = self.names.saturating_add(name.len());
        if self.names > NAMES {
            state.budget.exceed(Over::Text);
            return;
        }
        if !state.has_room(name.len() + value.len()) {
            return;
        }
        let text = &mut state.values.text;
        // The same name is emitted with each header line of a part, but stored only once.
        if text.get(self.name) != name {
            self.name = text.push(name);
        }
        let value = if value == name { self.name } else { text.push(value) };
        self.intake.add(family, names, self.name, value);
    }

    /// Emits the values that are complete only at the end.
    fn finish(mut self) {
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            self.add(Family::XmlText, None, b"/*", &text);
        }
    }
}

impl Sink for Collector<'_, '_> {
    fn argument(&mut self, name: &[u8], value: &[u8]) {
        // Some parsers decode the other values of a form from the charset that `_charset_` names.
        if name == b"_charset_" && !value.is_empty() && !charset::is_ascii_based(value) {
            self.intake.unreadable("the field _charset_ names a charset in which rules cannot read the form");
        }
        self.add(Family::Args, Some(Family::ArgNames), name, value);
    }

    fn value(&mut self, name: &[u8], value: &[u8]) {
        self.add(Family::Args, None, name, value);
    }

    fn file(&mut self, file: &File<'_>) {
        self.files += file.content.len() as u64;
        self.add(Family::Files, None, file.name, file.filename);
        file.other_filenames.iter().for_each(|other| self.add(Family::Files, None, file.name, other));
        self.add(Family::FileNames, None, file.name, file.name);
        self.add(Family::FileSizes, None, file.name, file.content.len().to_string().as_bytes());
        if self.intake.uses(Variable::FilesTmpContent) {
            self.add(Family::FileContents, None, file.name, file.content);
            if let Some(decoded) = file.decoded {
                self.add(Family::FileContents, None, file.name, decoded);
            }
        }
    }

    fn multipart_name(&mut self, name: &[u8]) {
        self.add(Family::PartNames, None, name, name);
    }

    fn multipart_filename(&mut self, filename: &[u8]) {
        self.add(Family::PartFileNames, None, filename, filename);
    }

    fn part_header(&mut self, part: &[u8], line: &[u8]) {
        self.add(Family::PartHeaders, None, part, line);
    }

    fn text(&mut self, text: &[u8]) {
        if self.texts {
            self.text.extend_from_slice(text);
        }
    }

    fn is_secret(&self, name: &[u8]) -> bool {
        self.texts && super::secrets::is_secret_name(name)
    }

    fn secret(&mut self, text: &[u8]) {
        self.intake.state.secrets.of_xml(text);
    }

    fn attribute(&mut self, value: &[u8]) {
        if self.texts {
            self.add(Family::XmlAttributes, None, b"//@*", value);
        }
    }
}
