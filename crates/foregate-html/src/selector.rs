//! Selectors of elements, for settings.

use std::borrow::Cow;
use std::fmt;

use foregate_module::{Argument, Problem};

use crate::charset::Charset;
use crate::tree::select::Select;

/// The longest selector, bytes.
const LIMIT: usize = 1024;

/// A CSS selector (level 4). It can refer to the tag of an element and to the tags around it.
#[derive(Clone)]
pub struct Selector {
    text: Box<str>,
    parsed: lol_html::Selector,
    select: Select,
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    ///
    /// The error as a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let select = Self::read(text)?;
        let parsed = text.parse::<lol_html::Selector>().map_err(|error| error.to_string())?;
        Ok(Self { text: text.into(), parsed, select })
    }

    /// Parses a selector that is matched against the browser's tree: see [`Feature::follows`](crate::Feature::follows).
    ///
    /// # Errors
    ///
    /// The error as a sentence.
    pub fn followed(text: &str) -> Result<Self, String> {
        let select = Self::read(text)?;
        let parsed = select.wider().parse::<lol_html::Selector>().map_err(|error| error.to_string())?;
        Ok(Self { text: text.into(), parsed, select })
    }

    fn read(text: &str) -> Result<Select, String> {
        if text.len() > LIMIT {
            return Err(format!("a selector has at most {LIMIT} bytes"));
        }
        if has_foreign_escape(text) {
            return Err("write the character itself instead of a reference with \\".into());
        }
        Select::parse(text)
    }

    /// Parses the selector in a value of the configuration; see [`followed`](Self::followed).
    ///
    /// # Errors
    ///
    /// The error with its place.
    pub fn from_argument(argument: &Argument) -> Result<Self, Problem> {
        Self::followed(argument.text()?).map_err(|wrong| argument.wrong(format!("no selector: {wrong}")))
    }

    /// A selector from our own code, which is known to be valid.
    pub(crate) fn constant(text: &'static str) -> Self {
        Self::parse(text).expect("constant selectors are tested")
    }

    /// Returns true if matching requires counting elements by their names, as for `:nth-of-type()`.
    pub(crate) fn counts_names(&self) -> bool {
        self.text.to_ascii_lowercase().contains("of-type")
    }

    /// The matcher for elements of the browser's tree, in documents in this encoding.
    pub(crate) fn select_of(&self, charset: Charset) -> Cow<'_, Select> {
        match charset.transparent(&self.text) {
            Cow::Borrowed(_) => Cow::Borrowed(&self.select),
            Cow::Owned(text) => Select::parse(&text).map_or(Cow::Borrowed(&self.select), Cow::Owned),
        }
    }

    /// The selector for the rewriter if the follower decides about matches. It may match more elements than this selector.
    pub(crate) fn wider(&self) -> lol_html::Selector {
        self.select.wider().parse().unwrap_or_else(|_| self.parsed.clone())
    }

    /// The selector in the form for documents in this encoding.
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

/// Returns true if a backslash precedes a character outside of ASCII, which the transparent form would split.
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
