//! `SecAuditLogRelevantStatus`: a pattern over the three digits of a status, which is tried on each possible
//! status.
//!
//! The pattern that ModSecurity recommends has a look-ahead, which the linear-time patterns for values do not
//! support. Here, a matcher with backtracking is cheap enough, because there are only three digits.

use super::findings::Findings;
use super::line::Part;
use crate::model::StatusSet;

/// The longest pattern, bytes. The limit keeps the number of possible ways to match small.
const MAX_TEXT: usize = 256;

/// The deepest nesting of groups.
const MAX_DEPTH: usize = 16;

/// The most steps of backtracking for one status. If more are needed, the status counts as not matching.
const MAX_STEPS: usize = 1000;

/// The statuses that the pattern in `part` matches. `None` if the pattern is not supported, which is reported.
pub(super) fn statuses(part: Part<'_>, findings: &mut Findings) -> Option<StatusSet> {
    let text = part.text();
    let mut parser = Parser { rest: &text, depth: 0 };
    let parsed = (text.len() <= MAX_TEXT).then(|| parser.alternatives()).flatten();
    let Some(pattern) = parsed.filter(|_| parser.rest.is_empty()) else {
        let at = text.len() - parser.rest.len();
        let suggestion =
            "digits, `.`, `\\d`, classes, groups, `|`, `^`, `$`, `*`, `+`, `?`, `{1,2}` and look-ahead are";
        let message = format!("the pattern over statuses is not understood from byte {at} on");
        findings.error(part.at, message, Some(suggestion.into()));
        return None;
    };
    Some(StatusSet::new((100..=999u16).filter(|status| {
        let digits = status.to_string();
        (0..=digits.len()).any(|from| {
            let mut steps = MAX_STEPS;
            pattern.matches(digits.as_bytes(), from, &mut steps, &mut |_, _| true)
        })
    })))
}

/// A list of alternatives. One of them has to match.
struct Alternatives(Vec<Vec<Repeated>>);

struct Repeated {
    what: Atom,
    min: usize,
    max: usize,
}

enum Atom {
    /// One digit of a set; bit N stands for the digit N.
    Digits(u16),
    Group(Alternatives),
    Ahead {
        group: Alternatives,
        negated: bool,
    },
    Start,
    End,
}

type Continuation<'t> = &'t mut dyn FnMut(usize, &mut usize) -> bool;

impl Alternatives {
    fn matches(&self, text: &[u8], at: usize, steps: &mut usize, then: Continuation<'_>) -> bool {
        self.0.iter().any(|sequence| in_order(sequence, text, at, steps, then))
    }
}

fn in_order(
    sequence: &[Repeated],
    text: &[u8],
    at: usize,
    steps: &mut usize,
    then: Continuation<'_>,
) -> bool {
    match sequence.split_first() {
        None => then(at, steps),
        Some((first, rest)) => {
            first.matches(0, text, at, steps, &mut |at, steps| in_order(rest, text, at, steps, then))
        }
    }
}

impl Repeated {
    fn matches(
        &self,
        done: usize,
        text: &[u8],
        at: usize,
        steps: &mut usize,
        then: Continuation<'_>,
    ) -> bool {
        if *steps == 0 {
            return false;
        }
        *steps -= 1;
        let more = done < self.max
            && self.what.matches(text, at, steps, &mut |after, steps| {
                // A repetition that matches nothing is not repeated further, since it would continue for ever.
                (after > at || done < self.min) && self.matches(done + 1, text, after, steps, then)
            });
        more || (done >= self.min && then(at, steps))
    }
}

impl Atom {
    fn matches(&self, text: &[u8], at: usize, steps: &mut usize, then: Continuation<'_>) -> bool {
        match self {
            Self::Digits(set) => {
                let digit = text.get(at).map(|byte| byte - b'0');
                digit.is_some_and(|digit| set & (1 << digit) != 0) && then(at + 1, steps)
            }
            Self::Group(group) => group.matches(text, at, steps, then),
            Self::Ahead { group, negated } => {
                group.matches(text, at, steps, &mut |_, _| true) != *negated && then(at, steps)
            }
            Self::Start => at == 0 && then(at, steps),
            Self::End => at == text.len() && then(at, steps),
        }
    }
}

struct Parser<'t> {
    rest: &'t str,
    depth: usize,
}

impl Parser<'_> {
    fn take(&mut self, text: &str) -> bool {
        let after = self.rest.strip_prefix(text);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn alternatives(&mut self) -> Option<Alternatives> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut all = vec![Vec::new()];
        loop {
            if self.take("|") {
                all.push(Vec::new());
            } else if self.rest.is_empty() || self.rest.starts_with(')') {
                self.depth -= 1;
                return Some(Alternatives(all));
            } else {
                let what = self.atom()?;
                let (min, max) = self.times()?;
                all.last_mut()?.push(Repeated { what, min, max });
            }
        }
    }

    fn atom(&mut self) -> Option<Atom> {
        const ALL: u16 = 0x3ff;
        if self.take("^") {
            return Some(Atom::Start);
        }
        if self.take("$") {
            return Some(Atom::End);
        }
        if self.take(".") || self.take("\\d") {
            return Some(Atom::Digits(ALL));
        }
        if self.take("[") {
            return self.class();
        }
        let ahead = [("(?!", Some(true)), ("(?=", Some(false)), ("(?:", None), ("(", None)];
        for (open, negated) in ahead {
            if self.take(open) {
                let group = self.alternatives()?;
                let closed = self.take(")");
                return closed.then_some(match negated {
                    Some(negated) => Atom::Ahead { group, negated },
                    None => Atom::Group(group),
                });
            }
        }
        self.digit().map(|digit| Atom::Digits(1 << digit))
    }

    fn digit(&mut self) -> Option<u32> {
        let mut rest = self.rest.chars();
        let digit = rest.next()?.to_digit(10)?;
        self.rest = rest.as_str();
        Some(digit)
    }

    fn class(&mut self) -> Option<Atom> {
        let negated = self.take("^");
        let mut set = 0u16;
        while !self.take("]") {
            let first = self.digit()?;
            let last = if self.take("-") { self.digit()? } else { first };
            set |= (first..=last).fold(0, |set, digit| set | 1 << digit);
        }
        Some(Atom::Digits(if negated { !set & 0x3ff } else { set }))
    }

    fn times(&mut self) -> Option<(usize, usize)> {
        /// The largest number of repetitions that matters: a status has three digits.
        const MOST: usize = 3;
        let times = if self.take("*") {
            (0, MOST)
        } else if self.take("+") {
            (1, MOST)
        } else if self.take("?") {
            (0, 1)
        } else if self.take("{") {
            let min = usize::try_from(self.digit()?).ok()?;
            let max = match (self.take(","), self.rest.starts_with('}')) {
                (false, _) => min,
                (true, true) => MOST.max(min),
                (true, false) => usize::try_from(self.digit()?).ok()?,
            };
            if !self.take("}") {
                return None;
            }
            (min, max)
        } else {
            return Some((1, 1));
        };
        // A lazy quantifier matches the same statuses as a greedy one, so its mark is skipped.
        self.take("?");
        Some(times)
    }
}
