//! Formats a KDL file: four spaces for each level, and one node on each line. Short blocks on one line stay on
//! one line. Comments, the spelling of values and single empty lines are kept, and aligned comments stay
//! aligned.

use super::document::{SyntaxError, same};
use super::kdl;
use super::problem::{Problems, RefusedConfiguration};
use super::scan::{Scanner, Token};
use std::path::Path;

use super::load::Tree;

/// The last column that a block on one line may reach.
const WIDTH: usize = 100;

const INDENT: &str = "    ";

/// The formatted text of a file.
///
/// # Errors
///
/// A mistake in its syntax.
pub fn format(path: &Path, source: &str) -> Result<String, Box<RefusedConfiguration>> {
    let refuse = || {
        let mut problems = Problems::default();
        let tree = Tree::read_syntax(path, source.to_owned(), &mut problems);
        Box::new(RefusedConfiguration::new(tree, problems))
    };
    let before = kdl::read(source.to_owned()).map_err(|_| refuse())?;
    let text = write(source).map_err(|_| refuse())?;
    // Nobody reviews a formatted file of 10,000 lines, so its content is compared with the original here.
    let formatted = kdl::read(text).ok().filter(|after| same(&before, after));
    debug_assert!(formatted.is_some(), "the formatter has changed what this says: {source:?}");
    Ok(formatted.map_or_else(|| source.to_owned(), |after| after.source().to_owned()))
}

fn write(source: &str) -> Result<String, SyntaxError> {
    let mut tokens = Vec::new();
    let mut scanner = Scanner::new(source);
    loop {
        let (token, span) = scanner.next()?;
        if token == Token::End {
            break;
        }
        let text = &source[span.start as usize..span.end()];
        let column = match token {
            Token::LineComment => column(source, span.start as usize),
            _ => 0,
        };
        if token != Token::Space {
            tokens.push((token, text, column));
        }
    }
    let mut writer = Writer { tokens: &tokens, line_start: true, ..Writer::default() };
    writer.all();
    Ok(align(&writer.out, &writer.trailing))
}

/// Aligns comments that were aligned before, in the column after the longest of their lines.
fn align(text: &str, trailing: &[Trailing]) -> String {
    let column = |comment: &Trailing| column(text, comment.at);
    let mut aligned = String::with_capacity(text.len());
    let mut copied = 0;
    let below = |upper: &Trailing, lower: &Trailing| {
        let is_next = text[upper.at..lower.at].bytes().filter(|byte| *byte == b'\n').count() == 1;
        is_next && upper.column == lower.column
    };
    for group in trailing.chunk_by(below) {
        let furthest = group.iter().map(column).max().unwrap_or_default();
        for comment in group {
            aligned.push_str(&text[copied..comment.at]);
            aligned.extend(std::iter::repeat_n(' ', furthest - column(comment)));
            copied = comment.at;
        }
    }
    aligned + &text[copied..]
}

/// The number of characters before a byte on its line.
fn column(text: &str, at: usize) -> usize {
    let line = text[..at].rfind('\n').map_or(0, |at| at + 1);
    text[line..at].chars().count()
}

/// A comment at the end of a line.
struct Trailing {
    /// The byte of the output at which the comment begins.
    at: usize,
    /// The original column.
    column: usize,
}

/// Tokens with their texts, and the columns of comments.
type Tokens<'s> = [(Token, &'s str, usize)];

#[derive(Default)]
struct Writer<'s, 't> {
    tokens: &'t Tokens<'s>,
    out: String,
    depth: usize,
    /// The number of open blocks on the present line.
    inline: usize,
    /// `true` while the line is empty.
    line_start: bool,
    /// `true` once the node has ended: only a comment may follow on the line.
    ended: bool,
    /// `true` if no space is written before the next piece.
    glue: bool,
    /// `true` if the next token stays on the same line: after a slashdash, and in an empty block.
    held: bool,
    /// `true` between a line continuation and its line break.
    continued: bool,
    /// `true` if the line continues the line before.
    resumed: bool,
    /// Line breaks since the last piece.
    breaks: usize,
    trailing: Vec<Trailing>,
}

impl Writer<'_, '_> {
    fn all(&mut self) {
        for at in 0..self.tokens.len() {
            self.token(at);
        }
        if !self.resumed {
            self.end_line();
        }
    }

    fn token(&mut self, at: usize) {
        let (token, text, column) = self.tokens[at];
        match token {
            Token::Newline => self.line_break(),
            Token::Semicolon if self.inline == 0 => self.ended = true,
            Token::Semicolon => {
                if self.next(at).is_some_and(|next| next != Token::Close) {
                    self.out.push(';');
                }
            }
            Token::Equals => {
                self.out.push('=');
                self.glue = true;
            }
            Token::LineComment => {
                self.ended = false;
                let alone = self.line_start;
                self.piece(text.trim_end());
                if !alone && self.inline == 0 {
                    self.trailing.push(Trailing { at: self.out.len() - text.trim_end().len(), column });
                }
                if !self.continued {
                    self.end_line();
                    self.breaks = 0;
                }
            }
            Token::Slashdash => {
                // If a block follows the `/-`, it belongs to the same node, which has not ended yet.
                if self.next(at) == Some(Token::Open) {
                    self.ended = false;
                }
                self.piece("/-");
                self.glue = true;
                self.held = true;
            }
            Token::LineContinuation => {
                self.piece("\\");
                self.continued = true;
            }
            Token::Open => self.open(at),
            Token::Close => self.close(at),
            _ => self.piece(text),
        }
    }

    /// The next token that is neither space nor a line break.
    fn next(&self, at: usize) -> Option<Token> {
        let mut tokens = self.tokens[at + 1..].iter().map(|(token, ..)| *token);
        tokens.find(|token| *token != Token::Newline)
    }

    fn line_break(&mut self) {
        if self.continued {
            self.continued = false;
            self.resumed = true;
            self.out.push('\n');
        } else if !self.held {
            self.end_line();
            self.breaks += 1;
        }
    }

    fn open(&mut self, at: usize) {
        self.piece("{");
        if self.next(at) == Some(Token::Close) {
            self.held = true;
        } else if self.inline > 0 || self.fits(at) {
            self.inline += 1;
        } else {
            self.end_line();
            self.depth += 1;
            self.breaks = 0;
        }
    }

    fn close(&mut self, at: usize) {
        if std::mem::take(&mut self.held) {
            self.out.push('}');
        } else if self.inline > 0 {
            self.inline -= 1;
            self.piece("}");
        } else {
            self.end_line();
            self.depth = self.depth.saturating_sub(1);
            self.breaks = 0;
            self.piece("}");
        }
        // If a `{` follows, it belongs to the same node: the block that closes here was commented out.
        if self.inline == 0 && !matches!(self.next(at), Some(Token::Slashdash | Token::Open)) {
            self.ended = true;
        }
    }

    /// Returns true if the block that begins at a token stands on one line and is not too long for it.
    fn fits(&self, open: usize) -> bool {
        let mut depth = 0_usize;
        for (at, (token, text, _)) in self.tokens.iter().enumerate().skip(open) {
            match token {
                Token::Newline | Token::LineComment | Token::LineContinuation => return false,
                _ if text.contains('\n') => return false,
                Token::Open => depth += 1,
                Token::Close => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let mut writer =
                    Writer { tokens: &self.tokens[open..=at], inline: 1, glue: true, ..Writer::default() };
                writer.all();
                let column = self.out.len() - self.out.rfind('\n').map_or(0, |at| at + 1);
                return column + writer.out.trim_end().len() <= WIDTH;
            }
        }
        false
    }

    fn piece(&mut self, text: &str) {
        if std::mem::take(&mut self.ended) {
            self.end_line();
        }
        if std::mem::take(&mut self.resumed) {
            self.indent(self.depth + 1);
        } else if self.line_start {
            let first = self.out.is_empty() || self.out.ends_with("{\n");
            if self.breaks > 1 && !first && text != "}" {
                self.out.push('\n');
            }
            self.indent(self.depth);
            self.line_start = false;
        } else if !self.glue {
            self.out.push(' ');
        }
        self.out.push_str(text);
        self.glue = false;
        self.held = false;
        self.breaks = 0;
    }

    fn end_line(&mut self) {
        self.ended = false;
        self.resumed = false;
        if !self.line_start {
            self.out.push('\n');
            self.line_start = true;
        }
    }

    fn indent(&mut self, depth: usize) {
        self.out.extend(std::iter::repeat_n(INDENT, depth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(source: &str) -> String {
        let text = format(Path::new("test.kdl"), source).unwrap();
        assert_eq!(format(Path::new("test.kdl"), &text).unwrap(), text, "a second time");
        text
    }

    #[test]
    fn comments_and_spellings_stay() {
        let source = "\
// top
listen   \"0.0.0.0:80\"; listen   \":81\"   // trailing
/* block
   c */
listen \"0.0.0.0:8443\" { tls { certificate \"site.pem\"  key = \"site.key\" };
}   // after



upstream \"app\" { // first

      server \"a:1\"   weight=2 // w
   /- server \"b:1\"

   // last

}
site \"*\" \"b\" \\
   \"c\" { route \"/**\" { proxy \"app\";}}
/- site \"x\" {
   a
}
empty {
}
";
        let expected = "\
// top
listen \"0.0.0.0:80\"
listen \":81\" // trailing
/* block
   c */
listen \"0.0.0.0:8443\" {
    tls { certificate \"site.pem\" key=\"site.key\" }
} // after

upstream \"app\" {
    // first

    server \"a:1\" weight=2 // w
    /-server \"b:1\"

    // last
}
site \"*\" \"b\" \\
    \"c\" { route \"/**\" { proxy \"app\" } }
/-site \"x\" {
    a
}
empty {}
";
        assert_eq!(formatted(source), expected);
    }

    #[test]
    fn comments_in_a_column_stay_in_one() {
        let source = "a \"x\"      // one\nbb   \"yy\"  // two\nc // other\n\nd {\n  e 1     // one\n  fé      // two\n}\n";
        let expected =
            "a \"x\"   // one\nbb \"yy\" // two\nc // other\n\nd {\n    e 1 // one\n    fé  // two\n}\n";
        assert_eq!(formatted(source), expected);
    }

    #[test]
    fn blocks_that_are_commented_out_stay_with_their_node() {
        assert_eq!(formatted("a  /- { b }  { c }  /-{ d }"), "a /-{ b } { c } /-{ d }\n");
        assert_eq!(formatted("a /- {\nb\n} {\nc\n}\nd"), "a /-{\n    b\n} {\n    c\n}\nd\n");
    }

    #[test]
    fn long_lines_are_broken_at_blocks() {
        let body = "x".repeat(90);
        let text = formatted(&format!("site \"*\" {{ route \"/**\" {{ respond 200 \"{body}\" }} }}\n"));
        assert_eq!(
            text,
            format!("site \"*\" {{\n    route \"/**\" {{\n        respond 200 \"{body}\"\n    }}\n}}\n")
        );
    }
}
