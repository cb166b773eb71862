//! Values that rules hide from logs: `sanitiseArg` and its relatives.

use foldhash::HashSet;

use super::expression::Expression;
use super::plan::Plan;
use super::report::{Match, VALUES, shorten};
use super::run::Run;
use super::secrets::{HIDDEN, MaskedNames, hide_pairs_and, is_name};
use crate::model::{Mask, Variable};
use crate::transform::Transformation;

/// The most masked names. If there are more, a value is masked if its name could be one of them.
const NAMES: usize = 4_096;
/// The most masked names with unusual characters, each of which is searched for at every byte. If there are more, a
/// value is masked if its name could be one of them.
const ODD: usize = 64;

/// A part of a transaction that is not shown at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestPart {
    /// The target of the request.
    Target,
    /// The body of the request.
    Body,
    /// The names of the uploaded files.
    Files,
    /// The body of the response.
    ResponseBody,
}

impl RequestPart {
    /// The part that the value of a variable shows.
    fn of(variable: Variable) -> Option<Self> {
        use Variable::{
            Files, MultipartFilename, PathInfo, QueryString, RequestBasename, RequestBody, RequestFilename,
            RequestLine, RequestUri, RequestUriRaw, ResponseBody, Xml,
        };
        Some(match variable {
            PathInfo | QueryString | RequestBasename | RequestFilename | RequestLine | RequestUri
            | RequestUriRaw => Self::Target,
            RequestBody | Xml => Self::Body,
            Files | MultipartFilename => Self::Files,
            ResponseBody => Self::ResponseBody,
            _ => return None,
        })
    }
}

/// The masked values of one transaction. Names are in small letters.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    arguments: HashSet<Box<[u8]>>,
    request_fields: HashSet<Box<[u8]>>,
    response_fields: HashSet<Box<[u8]>>,
    /// The names of arguments as they appear in bodies. An argument with a JSON path adds a second name, the path's
    /// last part.
    keys: HashSet<Box<[u8]>>,
    /// The names with characters that [`is_name`] rejects.
    odd: Vec<Box<[u8]>>,
    parts: Vec<RequestPart>,
    /// Set if a rule masks its own matches.
    pub(super) matched: bool,
    /// Set once there were more names than there is room for: everything is masked.
    all: bool,
    /// The number of changes to the masks so far.
    pub(super) version: usize,
}

impl Masks {
    pub(super) fn is_empty(&self) -> bool {
        self.version == 0
    }

    /// Returns true if the whole part is masked.
    pub(super) fn hides(&self, part: RequestPart) -> bool {
        self.all || self.parts.contains(&part)
    }

    /// Returns true if the value of a variable under this name is masked.
    pub(super) fn covers(&self, variable: Variable, name: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let has = |names: &HashSet<Box<[u8]>>| names.contains(&*name.to_ascii_lowercase());
        self.all
            || match variable {
                Variable::Args | Variable::ArgsGet | Variable::ArgsPost => {
                    // The name of a JSON value is a path; values inside a masked one are masked too.
                    has(&self.arguments)
                        || name
                            .split(|byte| *byte == b'.')
                            .any(|part| self.arguments.contains(&*part.to_ascii_lowercase()))
                }
                Variable::RequestHeaders => has(&self.request_fields),
                Variable::ResponseHeaders => has(&self.response_fields),
                _ => RequestPart::of(variable).is_some_and(|part| self.hides(part)),
            }
    }

    /// Hides the values of masked arguments and fields, and of other secret ones, in a text.
    pub(super) fn hide(&self, text: &[u8]) -> Vec<u8> {
        if self.all { HIDDEN.to_vec() } else { self.without_pairs(text) }
    }

    /// Hides the masked values in the value of a variable that has only one.
    pub(super) fn hide_of(&self, variable: Variable, text: &[u8]) -> Vec<u8> {
        match RequestPart::of(variable) {
            Some(part) if self.hides(part) => HIDDEN.to_vec(),
            _ => self.without_pairs(text),
        }
    }

    fn without_pairs(&self, text: &[u8]) -> Vec<u8> {
        match self.arguments.is_empty() {
            true => hide_pairs_and(text, self),
            false => hide_pairs_and(&self.without_arguments(text), self),
        }
    }

    /// Hides the values of masked arguments in a text, if they are written as in a query or a form. The names may
    /// contain any characters.
    fn without_arguments(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        let divides = |byte: &u8| matches!(byte, b'?' | b'&' | b';' | b' ' | b'"' | b'\r' | b'\n');
        for piece in text.split_inclusive(divides) {
            let end = piece.len() - usize::from(piece.last().is_some_and(divides));
            match memchr::memchr(b'=', &piece[..end]) {
                Some(equals) if equals + 1 < end && self.is_argument(&piece[..equals]) => {
                    out.extend_from_slice(&piece[..=equals]);
                    out.extend_from_slice(HIDDEN);
                    out.extend_from_slice(&piece[end..]);
                }
                _ => out.extend_from_slice(piece),
            }
        }
        out
    }

    fn is_argument(&self, name: &[u8]) -> bool {
        let name = Transformation::UrlDecode.apply(name);
        self.arguments.contains(&*name.to_ascii_lowercase())
    }

    fn add_argument(&mut self, name: &[u8]) {
        let name = name.to_ascii_lowercase();
        if name.is_empty() || !self.has_room() || !self.arguments.insert(name.as_slice().into()) {
            return;
        }
        self.version += 1;
        let last = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
        for key in [&*name, last].into_iter().filter(|key| !key.is_empty()) {
            let is_odd =
                !key.iter().all(|byte| is_name(*byte)) || key.contains(&b'%') || key.contains(&b'\\');
            if self.keys.insert(key.into()) && is_odd {
                self.odd.push(key.into());
            }
        }
        self.all |= self.odd.len() > ODD;
    }

    fn add_field(&mut self, name: &[u8], of_response: bool) {
        if !self.has_room() {
            return;
        }
        let fields = if of_response { &mut self.response_fields } else { &mut self.request_fields };
        self.version += usize::from(fields.insert(name.to_ascii_lowercase().into()));
    }

    /// Returns true if there is room for one more name; otherwise everything is masked.
    fn has_room(&mut self) -> bool {
        let fits = self.arguments.len() + self.request_fields.len() + self.response_fields.len() < NAMES;
        self.version += usize::from(!fits && !self.all);
        self.all |= !fits;
        fits
    }

    fn add_part(&mut self, part: RequestPart) {
        if !self.parts.contains(&part) {
            self.parts.push(part);
            self.version += 1;
        }
    }

    /// Returns true if the value of a match is masked, given the displayed name of its variable.
    fn covers_shown(&self, label: &str) -> bool {
        let (variable, name) = label.split_once(':').unwrap_or((label, ""));
        let Some(variable) = Variable::parse(variable) else { return self.all };
        if let Variable::MatchedVars = variable {
            return self.covers_shown(name);
        }
        // A name that was shortened, or is not UTF-8, may be a masked one.
        let is_unclear = name.ends_with("...") || name.contains(char::REPLACEMENT_CHARACTER);
        let names = match variable {
            Variable::Args | Variable::ArgsGet | Variable::ArgsPost => &self.arguments,
            Variable::RequestHeaders => &self.request_fields,
            Variable::ResponseHeaders => &self.response_fields,
            _ => return self.covers(variable, name.as_bytes()),
        };
        self.covers(variable, name.as_bytes()) || (is_unclear && !names.is_empty())
    }

    /// Masks a match that was recorded before the mask was set.
    pub(super) fn hide_in(&self, found: &mut Match, copies: impl Fn(&[u8]) -> Vec<u8>, plan: &Plan) {
        // If the list of values is full, the names of further values are unknown, and one of them may be masked.
        let is_copied = found.values.len() >= VALUES
            || found.values.iter().any(|(label, _)| self.covers_shown(label))
            || self.covers_shown(&found.variable);
        let last = (std::mem::take(&mut found.variable), std::mem::take(&mut found.value));
        let mut last = [last];
        for (label, value) in found.values.iter_mut().chain(&mut last) {
            let is_copy = is_copied && label.ends_with(Variable::MatchedVar.name());
            if is_copy || self.covers_shown(label) {
                *value = shown_hidden();
            } else {
                *value = text(&self.hide(value.as_bytes()));
            }
            *label = text(&self.hide(label.as_bytes()));
        }
        [(found.variable, found.value)] = last;
        let rule = plan.rules.iter().find(|rule| rule.about.id == found.rule);
        let made = |told: Option<&Expression>| !matches!(told, Some(Expression::Fixed(_)));
        let hide = |shown: &mut String| {
            *shown = match is_copied && !shown.is_empty() {
                true => shown_hidden(),
                false => text(&self.hide(&copies(shown.as_bytes()))),
            };
        };
        if made(rule.and_then(|rule| rule.message.as_ref())) {
            hide(&mut found.message);
        }
        if made(rule.and_then(|rule| rule.data.as_ref())) {
            hide(&mut found.data);
        }
        for (at, tag) in found.tags.iter_mut().enumerate() {
            if made(rule.and_then(|rule| rule.tags.get(at))) {
                hide(tag);
            }
        }
    }
}

impl MaskedNames for Masks {
    fn has_key(&self, key: &[u8]) -> bool {
        !self.keys.is_empty() && self.keys.contains(&*key.to_ascii_lowercase())
    }

    fn has_field(&self, name: &[u8]) -> bool {
        (!self.request_fields.is_empty() || !self.response_fields.is_empty()) && {
            let name = name.to_ascii_lowercase();
            self.request_fields.contains(&*name) || self.response_fields.contains(&*name)
        }
    }

    fn odd_name(&self, text: &[u8]) -> Option<usize> {
        let begins =
            |len: usize, name: &[u8]| text.get(..len).is_some_and(|start| start.eq_ignore_ascii_case(name));
        self.odd.iter().find(|name| begins(name.len(), name)).map(|name| name.len())
    }
}

fn shown_hidden() -> String {
    text(HIDDEN)
}

fn text(bytes: &[u8]) -> String {
    shorten(bytes, usize::MAX)
}

impl Run<'_> {
    /// Applies a mask of a rule.
    pub(super) fn mask(&mut self, mask: &Mask) {
        let masks = &mut self.view.state.masks;
        match mask {
            Mask::Argument(name) => masks.add_argument(name.as_bytes()),
            Mask::RequestHeader(name) => masks.add_field(name.as_bytes(), false),
            Mask::ResponseHeader(name) => masks.add_field(name.as_bytes(), true),
            Mask::Matched | Mask::MatchedBytes { .. } => {
                masks.version += usize::from(!std::mem::replace(&mut masks.matched, true));
                self.mask_matched();
            }
        }
    }

    /// Masks the value that has just matched, by its variable and name.
    fn mask_matched(&mut self) {
        let Some(found) = self.view.last() else { return };
        let Some((variable, name)) = self.view.origin_of(found, self.view.state.matched.len() - 1) else {
            return;
        };
        let name = name.to_vec();
        let masks = &mut self.view.state.masks;
        match variable {
            Variable::Args | Variable::ArgsGet | Variable::ArgsPost => masks.add_argument(&name),
            Variable::RequestHeaders => masks.add_field(&name, false),
            Variable::ResponseHeaders => masks.add_field(&name, true),
            Variable::FullRequest => masks.all = true,
            _ => {
                if let Some(part) = RequestPart::of(variable) {
                    masks.add_part(part);
                }
            }
        }
    }
}

/// Splits a full name into variable and name. For an element of `MATCHED_VARS`, returns the variable and name of the
/// original value.
pub(super) fn origin(mut label: &[u8]) -> Option<(Variable, &[u8])> {
    loop {
        let colon = memchr::memchr(b':', label).unwrap_or(label.len());
        let variable = Variable::parse(std::str::from_utf8(&label[..colon]).ok()?)?;
        label = label.get(colon + 1..).unwrap_or_default();
        if variable != Variable::MatchedVars {
            return Some((variable, label));
        }
    }
}
