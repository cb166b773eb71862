//! Writes manual pages with a few requests of man(7).

use std::fmt::Write as _;

/// A page under construction.
pub(super) struct Roff(String);

impl Roff {
    /// A new page with its title line.
    pub(super) fn page(name: &str, section: u8) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let title = plain(&name.to_uppercase());
        Self(format!(".TH \"{title}\" {section} \"\" \"foregate {version}\" \"Foregate\"\n"))
    }

    pub(super) fn section(&mut self, title: &str) {
        let _ = writeln!(self.0, ".SH {}", plain(title));
    }

    pub(super) fn subsection(&mut self, title: &str) {
        let _ = writeln!(self.0, ".SS \"{}\"", plain(title));
    }

    /// Adds a paragraph of prose; text in backticks becomes bold.
    pub(super) fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.0, ".PP\n{}", prose(text));
    }

    /// Adds a term and its explanation.
    pub(super) fn term(&mut self, term: &str, text: &str) {
        let _ = writeln!(self.0, ".TP\n\\fB{}\\fR\n{}", plain(term), prose(text));
    }

    /// Adds lines without changing their layout.
    pub(super) fn example(&mut self, text: &str) {
        let lines: Vec<String> = text.lines().map(guarded).collect();
        let _ = writeln!(self.0, ".PP\n.RS 4\n.nf\n{}\n.fi\n.RE", lines.join("\n"));
    }

    /// Adds a line of text without markup.
    pub(super) fn line(&mut self, text: &str) {
        let _ = writeln!(self.0, "{}", guarded(text));
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Escapes text so that roff prints it as it is.
fn plain(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq").replace('\'', "\\(aq")
}

/// Escapes a line, also at its start, where roff would read a dot as a request.
fn guarded(line: &str) -> String {
    let line = plain(line);
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}

/// Converts prose with Markdown's backticks, emphasis and links.
fn prose(text: &str) -> String {
    let text = without_links(text).replace("**", "");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<String> = lines
        .map(|line| {
            let mut shown = String::new();
            for (at, part) in line.split('`').enumerate() {
                match at % 2 {
                    1 => shown.push_str(&format!("\\fB{}\\fR", plain(part))),
                    _ => shown.push_str(&plain(part)),
                }
            }
            if shown.starts_with('.') { format!("\\&{shown}") } else { shown }
        })
        .collect();
    lines.join("\n")
}

/// Replaces links by their text.
fn without_links(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        let link = after.split_once("](").and_then(|(name, after)| Some((name, after.split_once(')')?.1)));
        match link {
            Some((name, after)) if !name.contains(['[', '`']) => {
                kept.push_str(before);
                kept.push_str(name);
                rest = after;
            }
            _ => {
                kept.push_str(before);
                kept.push('[');
                rest = after;
            }
        }
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_taken_for_a_request() {
        assert_eq!(prose(".TH x\n'br"), "\\&.TH x\n\\(aqbr");
        assert_eq!(prose("Set `a-b`, see [the guide](x.md)."), "Set \\fBa\\-b\\fR, see the guide.");
        assert_eq!(prose("`[A]` and [x"), "\\fB[A]\\fR and [x");
        assert_eq!(guarded("a \\ \"b\""), "a \\e \\(dqb\\(dq");
    }
}
