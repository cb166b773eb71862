//! Targets and selectors.

use super::{Compiler, TOO_MANY, compile_pattern, problem};
use crate::engine::plan::{Effect, Pick, PlanRule, PlanTarget, ValueSource};
use crate::engine::values::{Family, Half};
use crate::model::{self, PersistentCollection, Place, Problem, Selector, Variable, XPath};
use crate::scan::PatternOptions;

/// The source of the values of a variable.
pub(in crate::engine) fn source(variable: Variable, selector: Option<&Selector>) -> ValueSource {
    use ValueSource::Units;
    use Variable as V;
    match variable {
        V::Args => Units(Family::Args, Half::Whole),
        V::ArgsGet => Units(Family::Args, Half::Query),
        V::ArgsPost => Units(Family::Args, Half::Body),
        V::ArgsNames => Units(Family::ArgNames, Half::Whole),
        V::ArgsGetNames => Units(Family::ArgNames, Half::Query),
        V::ArgsPostNames => Units(Family::ArgNames, Half::Body),
        V::Files => Units(Family::Files, Half::Whole),
        V::FilesNames => Units(Family::FileNames, Half::Whole),
        V::FilesSizes => Units(Family::FileSizes, Half::Whole),
        V::FilesTmpContent => Units(Family::FileContents, Half::Whole),
        V::MultipartFilename => Units(Family::PartFileNames, Half::Whole),
        V::MultipartName => Units(Family::PartNames, Half::Whole),
        V::MultipartPartHeaders => Units(Family::PartHeaders, Half::Whole),
        V::RequestCookies => Units(Family::Cookies, Half::Whole),
        V::RequestCookiesNames => Units(Family::CookieNames, Half::Whole),
        V::RequestHeaders => Units(Family::Headers, Half::Whole),
        V::RequestHeadersNames => Units(Family::HeaderNames, Half::Whole),
        V::ResponseHeaders => Units(Family::ResponseHeaders, Half::Whole),
        V::ResponseHeadersNames => Units(Family::ResponseHeaderNames, Half::Whole),
        V::Xml => match selector {
            Some(Selector::XPath(XPath::Attributes)) => Units(Family::XmlAttributes, Half::Whole),
            _ => Units(Family::XmlText, Half::Whole),
        },
        V::Tx => ValueSource::Tx,
        V::Env => ValueSource::Env,
        V::Rule => ValueSource::Rule,
        V::Global => ValueSource::Stored(PersistentCollection::Global),
        V::Ip => ValueSource::Stored(PersistentCollection::Ip),
        V::Resource => ValueSource::Stored(PersistentCollection::Resource),
        V::Session => ValueSource::Stored(PersistentCollection::Session),
        V::User => ValueSource::Stored(PersistentCollection::User),
        V::MatchedVar => ValueSource::Matched { names: false, all: false },
        V::MatchedVars => ValueSource::Matched { names: false, all: true },
        V::MatchedVarName => ValueSource::Matched { names: true, all: false },
        V::MatchedVarsNames => ValueSource::Matched { names: true, all: true },
        V::Duration
        | V::HighestSeverity
        | V::SessionId
        | V::UserId
        | V::Time
        | V::TimeDay
        | V::TimeEpoch
        | V::TimeHour
        | V::TimeMin
        | V::TimeMon
        | V::TimeSec
        | V::TimeWday
        | V::TimeYear => ValueSource::Computed(variable),
        other => ValueSource::Scalar(canonical(other)),
    }
}

/// The variable under which a value is stored. Some values are known by two variables.
pub(in crate::engine) fn canonical(variable: Variable) -> Variable {
    match variable {
        Variable::ReqbodyProcessorError => Variable::ReqbodyError,
        Variable::ReqbodyProcessorErrorMsg => Variable::ReqbodyErrorMsg,
        other => other,
    }
}

impl Compiler<'_> {
    pub(super) fn targets(&mut self, link: &model::Link) -> Result<Box<[PlanTarget]>, Problem> {
        let mut targets = Vec::with_capacity(link.targets.len());
        for target in &link.targets {
            let source = source(target.variable, target.selector.as_ref());
            self.mark_used(target.variable);
            let excluded = || {
                link.exclusions
                    .iter()
                    .filter(|out| self::source(out.variable, out.selector.as_ref()) == source)
            };
            if excluded().any(|out| matches!(out.selector, None | Some(Selector::XPath(_)))) {
                continue;
            }
            targets.push(PlanTarget {
                variable: target.variable,
                source,
                pick: self.pick(source, target.selector.as_ref(), &link.place)?,
                count: target.count,
                without: excluded()
                    .map(|out| self.pick(source, out.selector.as_ref(), &link.place))
                    .collect::<Result<_, _>>()?,
            });
        }
        Ok(targets.into())
    }

    pub(super) fn pick(
        &mut self,
        source: ValueSource,
        selector: Option<&Selector>,
        place: &Place,
    ) -> Result<Pick, Problem> {
        match selector {
            None | Some(Selector::XPath(_)) => Ok(Pick::All),
            Some(Selector::Name(name)) => self.named(source, name.as_bytes(), place),
            Some(Selector::Regex(regex)) => {
                let options = PatternOptions { ignore_case: true, ..PatternOptions::default() };
                Ok(Pick::Pattern(Box::new(compile_pattern(regex, options, place)?), Box::default()))
            }
        }
    }

    pub(super) fn named(&mut self, source: ValueSource, name: &[u8], place: &Place) -> Result<Pick, Problem> {
        let lower: Box<[u8]> = name.to_ascii_lowercase().into();
        let number = match source {
            ValueSource::Tx => self.slot(name, place)?,
            ValueSource::Units(family, _) => {
                let table = &mut self.tables[family as usize];
                let next = u16::try_from(table.len()).ok().filter(|next| *next < u16::MAX);
                match table.get(&lower) {
                    Some(number) => *number,
                    None => {
                        let next = next.ok_or_else(|| problem(place, TOO_MANY))?;
                        table.insert(lower.clone(), next);
                        next
                    }
                }
            }
            _ => 0,
        };
        Ok(Pick::Name(number, lower))
    }

    /// Finds the slots for selectors of `TX` that are patterns. Called once all names are known.
    pub(super) fn resolve_patterns(&self, rules: &mut [PlanRule]) {
        for link in rules.iter_mut().flat_map(|rule| &mut rule.links) {
            for target in &mut link.targets {
                if target.source == ValueSource::Tx {
                    std::iter::once(&mut target.pick)
                        .chain(&mut target.without)
                        .for_each(|pick| self.resolve(pick));
                }
            }
            for effect in &mut link.effects {
                if let Effect::RemoveTarget(_, ValueSource::Tx, pick) = effect {
                    self.resolve(pick);
                }
            }
        }
    }

    fn resolve(&self, pick: &mut Pick) {
        if let Pick::Pattern(pattern, slots) = pick {
            let matching =
                (0..self.names.len() as u16).filter(|slot| pattern.is_match(self.names.name(*slot)));
            *slots = matching.collect();
        }
    }
}
