//! One line of a case, cut into words and options.

use std::time::Duration;

use crate::case::Time;
use crate::text::Text;

/// The default time that a step waits for its expectation.
pub const DEFAULT_WITHIN: Duration = Duration::from_secs(5);

/// The words of a line, taken from the front, and its options, taken by name.
#[derive(Debug)]
pub struct Words {
    words: std::collections::VecDeque<Word>,
    options: Vec<(String, String)>,
    /// The `|` lines below the step.
    pub lines: Vec<String>,
}

#[derive(Debug)]
struct Word {
    source: String,
    quoted: bool,
}

impl Words {
    /// Cuts a line. A word is bare or in double quotes; `name=value` is an option; `#` begins a comment.
    ///
    /// # Errors
    ///
    /// A sentence about a quote that is not closed.
    pub fn cut(line: &str) -> Result<Self, String> {
        let mut words = std::collections::VecDeque::new();
        let mut options = Vec::new();
        let mut rest = line.trim();
        while !rest.is_empty() && !rest.starts_with('#') {
            let name_length = option_name(rest);
            let (name, value) = rest.split_at(name_length);
            let (source, quoted, after) = cut_word(value)?;
            if name.is_empty() {
                words.push_back(Word { source, quoted });
            } else {
                options.push((name.trim_end_matches('=').to_owned(), source));
            }
            rest = after.trim_start();
        }
        Ok(Self { words, options, lines: Vec::new() })
    }

    /// The next word when it is a bare one that `accept` likes.
    pub fn next_if(&mut self, accept: impl Fn(&str) -> bool) -> Option<String> {
        let word = self.words.front()?;
        if word.quoted || !accept(&word.source) {
            return None;
        }
        self.words.pop_front().map(|word| word.source)
    }

    /// Takes the next word if it is this bare one.
    pub fn flag(&mut self, name: &str) -> bool {
        self.next_if(|word| word == name).is_some()
    }

    /// Takes the next word.
    ///
    /// # Errors
    ///
    /// A sentence about the missing word.
    pub fn word(&mut self, what: &str) -> Result<String, String> {
        self.words.pop_front().map(|word| word.source).ok_or_else(|| format!("{what} is missing"))
    }

    /// The next word as a text, or the `|` lines when no word is left.
    ///
    /// # Errors
    ///
    /// As for [`Words::word`] and [`Text::parse`].
    pub fn text(&mut self, what: &str) -> Result<Text, String> {
        self.text_if_any()?.ok_or_else(|| format!("{what} is missing"))
    }

    /// The next word as a text, or the `|` lines, or nothing.
    ///
    /// # Errors
    ///
    /// As for [`Text::parse`].
    pub fn text_if_any(&mut self) -> Result<Option<Text>, String> {
        match self.words.pop_front() {
            Some(word) => Text::parse(&word.source).map(Some),
            None if self.lines.is_empty() => Ok(None),
            None => self.message().map(Some),
        }
    }

    /// The next word as a number.
    ///
    /// # Errors
    ///
    /// When it is missing or not a number.
    pub fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.word(what)?;
        word.parse().map_err(|_| format!("`{word}` is not {what}"))
    }

    /// All words that are left, as texts.
    ///
    /// # Errors
    ///
    /// As for [`Text::parse`].
    pub fn rest(&mut self) -> Result<Vec<Text>, String> {
        self.words.drain(..).map(|word| Text::parse(&word.source)).collect()
    }

    /// The `|` lines as the lines of a message: each ends with CRLF, unless its last character is `\`.
    fn message(&mut self) -> Result<Text, String> {
        let mut text = Text::default();
        for line in self.lines.drain(..) {
            match line.strip_suffix('\\').filter(|line| !line.ends_with('\\')) {
                Some(line) => text.append(Text::parse(line)?),
                None => text.append(Text::parse(&format!("{line}\\r\\n"))?),
            }
        }
        Ok(text)
    }

    /// The `|` lines, one text each.
    ///
    /// # Errors
    ///
    /// As for [`Text::parse`].
    pub fn fields(&mut self) -> Result<Vec<Text>, String> {
        self.lines.drain(..).map(|line| Text::parse(&line)).collect()
    }

    /// The `|` lines as the lines of a file.
    ///
    /// # Errors
    ///
    /// As for [`Text::parse_raw`].
    pub fn file(&mut self) -> Result<Text, String> {
        let whole: String = self.lines.drain(..).map(|line| line + "\n").collect();
        Text::parse_raw(&whole)
    }

    /// The value of an option.
    pub fn option(&mut self, name: &str) -> Option<String> {
        let place = self.options.iter().position(|(key, _)| key == name)?;
        Some(self.options.swap_remove(place).1)
    }

    /// The value of an option as a text.
    ///
    /// # Errors
    ///
    /// As for [`Text::parse`].
    pub fn text_option(&mut self, name: &str) -> Result<Option<Text>, String> {
        self.option(name).map(|value| Text::parse(&value)).transpose()
    }

    /// The value of an option as a number.
    ///
    /// # Errors
    ///
    /// When it is not a number.
    pub fn number_option<T: std::str::FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        self.option(name)
            .map(|value| value.parse().map_err(|_| format!("{name}={value} is not a number")))
            .transpose()
    }

    /// The value of an option as a duration.
    ///
    /// # Errors
    ///
    /// When it is not a duration.
    pub fn duration_option(&mut self, name: &str) -> Result<Option<Duration>, String> {
        self.option(name).map(|value| duration(&value)).transpose()
    }

    /// The options `within=` and `after=`.
    ///
    /// # Errors
    ///
    /// When one is not a duration.
    pub fn time(&mut self) -> Result<Time, String> {
        Ok(Time {
            after: self.duration_option("after")?,
            within: self.duration_option("within")?.unwrap_or(DEFAULT_WITHIN),
        })
    }

    /// Checks that all words were used.
    ///
    /// # Errors
    ///
    /// Names the rest.
    pub fn finish(self) -> Result<(), String> {
        if let Some(word) = self.words.front() {
            return Err(format!("`{}` is one word too many", word.source));
        }
        if let Some((name, _)) = self.options.first() {
            return Err(format!("this step has no option `{name}`"));
        }
        if !self.lines.is_empty() {
            return Err("this step takes no `|` lines".to_owned());
        }
        Ok(())
    }
}

/// The length of `name=` at the beginning, 0 when there is none.
fn option_name(rest: &str) -> usize {
    let name = rest.bytes().take_while(|byte| byte.is_ascii_lowercase() || *byte == b'-').count();
    if name > 0 && rest.as_bytes().get(name) == Some(&b'=') { name + 1 } else { 0 }
}

/// Takes a word from the front: its source, whether it was quoted, and the rest.
fn cut_word(rest: &str) -> Result<(String, bool, &str), String> {
    let Some(inside) = rest.strip_prefix('"') else {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        return Ok((rest[..end].to_owned(), false, &rest[end..]));
    };
    let mut escaped = false;
    for (place, character) in inside.char_indices() {
        match character {
            '"' if !escaped => return Ok((inside[..place].to_owned(), true, &inside[place + 1..])),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Err("a quote is not closed".to_owned())
}

/// Reads `250ms`, `5s` or `1m`.
///
/// # Errors
///
/// When it is neither.
pub fn duration(word: &str) -> Result<Duration, String> {
    let digits = word.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| format!("`{word}` is not a duration such as 250ms"))?;
    match &word[digits.len()..] {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        _ => Err(format!("`{word}` needs a unit: ms, s or m")),
    }
}
