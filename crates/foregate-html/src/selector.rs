//! Selectors of elements, as they stand in settings.

use std::borrow::Cow;
use std::fmt;

use foregate_module::{Argument, Problem};

use crate::charset::Charset;

/// The longest selector, bytes.
const LIMIT: usize = 1024;

/// A selector (CSS, level 4, as far as elements can be told by their own tag and those around them).
#[derive(Clone)]
pub struct Selector {
    text: Box<str>,
    parsed: lol_html::Selector,
}

impl Selector {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LIMIT {
            return Err(format!("a selector has at most {LIMIT} bytes"));
        }
        if has_foreign_escape(text) {
            return Err("write the character itself instead of a reference with \\".into());
        }
        let parsed = text.parse::<lol_html::Selector>().map_err(|error| error.to_string())?;
        Ok(Self { text: text.into(), parsed })
    }

    /// Reads one of the configuration.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and where.
    pub fn from_argument(argument: &Argument) -> Result<Self, Problem> {
        Self::parse(argument.text()?).map_err(|wrong| argument.wrong(format!("no selector: {wrong}")))
    }

    /// One of ours.
    pub(crate) fn constant(text: &'static str) -> Self {
        Self::parse(text).expect("constant selectors are tested")
    }

    /// Whether elements have to be counted by their names for it, as for `:nth-of-type()`.
    pub(crate) fn counts_names(&self) -> bool {
        self.text.to_ascii_lowercase().contains("of-type")
    }

    /// Whether it may match an element whose name is such a one. In doubt it may.
    pub(crate) fn may_match(&self, name: &dyn Fn(&str) -> bool) -> bool {
        let (mut depth, mut quote, mut begins) = (0_u32, None, 0);
        let mut last = Vec::new();
        for (at, character) in self.text.char_indices() {
            match (quote, character) {
                (_, '\\') => return true,
                (Some(open), _) => quote = quote.filter(|_| character != open),
                (None, '"' | '\'') => quote = Some(character),
                (None, '[' | '(') => depth += 1,
                (None, ']' | ')') => depth = depth.saturating_sub(1),
                (None, ',') if depth == 0 => {
                    last.push(self.text.get(begins..at));
                    begins = at + 1;
                }
                (None, '>' | '+' | '~') if depth == 0 => begins = at + 1,
                (None, ' ' | '\t' | '\n' | '\r' | '\x0c') if depth == 0 => {
                    // A blank before a comma or the end combines nothing.
                    let rest = self.text.get(at..).unwrap_or_default().trim_start();
                    if !rest.is_empty() && !rest.starts_with(',') {
                        begins = at + 1;
                    }
                }
                _ => {}
            }
        }
        last.push(self.text.get(begins..));
        last.into_iter().any(|compound| {
            let compound = compound.unwrap_or_default().trim();
            let end = compound.find(['.', '#', '[', ':']).unwrap_or(compound.len());
            let element = compound.get(..end).unwrap_or_default().to_ascii_lowercase();
            matches!(&*element, "" | "*") || name(&element)
        })
    }

    /// As it has to be for documents in this encoding.
    pub(crate) fn of_charset(&self, charset: Charset) -> Cow<'_, lol_html::Selector> {
        match charset.transparent(&self.text) {
            Cow::Borrowed(_) => Cow::Borrowed(&self.parsed),
            Cow::Owned(text) => text.parse().map_or(Cow::Borrowed(&self.parsed), Cow::Owned),
        }
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Whether a backslash stands for a character that is not ASCII, which the transparent form would have to take apart.
fn has_foreign_escape(text: &str) -> bool {
    text.split('\\').skip(1).any(|rest| {
        let digits: String = rest.chars().take(6).take_while(char::is_ascii_hexdigit).collect();
        u32::from_str_radix(&digits, 16).is_ok_and(|code| code >= 0x80)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_element_of_a_selector_tells_what_it_may_match() {
        let is_item = |text: &str| Selector::parse(text).unwrap().may_match(&|name| name == "li");
        for may in
            ["li", ".ad", "ul > LI.x", "b, li , i", "[a=', x']", "*", "p:not(b)", "p li", "i,#x", ":not(p)"]
        {
            assert_eq!(is_item(may), may != "p:not(b)", "{may}");
        }
        for never in ["p", "li > p", "li p", "script[src*=' li']", "li b:not([a]) , i.li", "p[x='>']"] {
            assert!(!is_item(never), "{never}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused_with_its_reason() {
        for good in [
            "p",
            "main > h1.title",
            "img:not([loading])",
            "a[href^='mailto:' i]",
            "*",
            ".größe",
            "ul li:first-child",
        ] {
            assert!(Selector::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "p >", "p:hover", "::before", ".\\fc x", "p + p", &"a".repeat(2000)] {
            assert!(Selector::parse(bad).is_err(), "{bad}");
        }
    }
}
