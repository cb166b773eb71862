//! The insertion modes before, after and outside of the body (HTML, sections 13.2.6.4.1 to 13.2.6.4.6 and from 13.2.6.4.18
//! on).

use super::kinds::*;
use super::{Content, Done, Mode, Origin, Token, Tree};
use crate::scan::names::Name;

/// End tags that imply the elements before the body.
fn implies_body(name: Name) -> bool {
    matches!(name, HEAD | BODY | HTML | BR)
}

impl Tree {
    pub(super) fn initial(&mut self, token: Token) -> Done {
        self.mode = Mode::BeforeHtml;
        match token {
            Token::Blank => self.mode = Mode::Initial,
            Token::Doctype(quirks) => self.quirks = quirks,
            _ => {
                self.quirks = true;
                return Done::Again;
            }
        }
        Done::Yes
    }

    pub(super) fn before_html(&mut self, token: Token) -> Done {
        match token {
            Token::Blank | Token::Doctype(_) => Done::Yes,
            Token::Start(HTML, _) => {
                self.insert(HTML, Origin::Tag);
                self.mode = Mode::BeforeHead;
                Done::Yes
            }
            Token::End(name) if !implies_body(name) => Done::Yes,
            _ => {
                self.insert(HTML, Origin::Implied);
                self.mode = Mode::BeforeHead;
                Done::Again
            }
        }
    }

    pub(super) fn before_head(&mut self, token: Token) -> Done {
        match token {
            Token::Blank | Token::Doctype(_) => Done::Yes,
            Token::Start(HTML, _) => self.in_body(token),
            Token::Start(HEAD, _) => {
                self.head = Some(self.insert(HEAD, Origin::Tag).id);
                self.mode = Mode::InHead;
                Done::Yes
            }
            Token::End(name) if !implies_body(name) => Done::Yes,
            _ => {
                self.head = Some(self.insert(HEAD, Origin::Implied).id);
                self.mode = Mode::InHead;
                Done::Again
            }
        }
    }

    pub(super) fn in_head(&mut self, token: Token) -> Done {
        match token {
            Token::Blank => self.insert_text(),
            Token::Start(HTML, _) => return self.in_body(token),
            Token::Start(BASE | BASEFONT | BGSOUND | LINK | META, _) => {
                if let Token::Start(name, _) = token {
                    self.insert_void(name);
                }
            }
            Token::Start(name @ (TITLE | NOSCRIPT | NOFRAMES | STYLE), _) => {
                self.insert_text_element(name, Content::Text);
            }
            Token::Start(SCRIPT, _) => self.insert_text_element(SCRIPT, Content::Script),
            Token::End(HEAD) => {
                self.pop();
                self.mode = Mode::AfterHead;
            }
            Token::Start(TEMPLATE, _) => {
                self.insert(TEMPLATE, Origin::Tag);
                self.push_marker();
                self.frameset_ok = false;
                self.mode = Mode::InTemplate;
                self.templates.push(Mode::InTemplate);
            }
            Token::End(TEMPLATE) => self.end_template(),
            Token::Start(HEAD, _) | Token::Doctype(_) => {}
            Token::End(name) if !matches!(name, BODY | HTML | BR) => {}
            _ => {
                self.pop();
                self.mode = Mode::AfterHead;
                return Done::Again;
            }
        }
        Done::Yes
    }

    pub(super) fn end_template(&mut self) {
        if !self.is_open(TEMPLATE) {
            return;
        }
        self.imply_ends_thoroughly();
        self.pop_until(|name| name == TEMPLATE);
        self.clear_to_marker();
        self.templates.pop();
        self.reset_mode();
    }

    pub(super) fn after_head(&mut self, token: Token) -> Done {
        match token {
            Token::Blank => self.insert_text(),
            Token::Start(HTML, _) => return self.in_body(token),
            Token::Start(BODY, _) => {
                self.insert(BODY, Origin::Tag);
                self.frameset_ok = false;
                self.mode = Mode::InBody;
            }
            Token::Start(FRAMESET, _) => {
                self.insert(FRAMESET, Origin::Tag);
                self.mode = Mode::InFrameset;
            }
            Token::Start(
                BASE | BASEFONT | BGSOUND | LINK | META | NOFRAMES | SCRIPT | STYLE | TEMPLATE | TITLE,
                _,
            ) => self.in_head_again(token),
            Token::End(TEMPLATE) => return self.in_head(token),
            Token::Start(HEAD, _) | Token::Doctype(_) => {}
            Token::End(name) if !matches!(name, BODY | HTML | BR) => {}
            _ => {
                self.insert(BODY, Origin::Implied);
                self.mode = Mode::InBody;
                return Done::Again;
            }
        }
        Done::Yes
    }

    /// Handles head content after the head.
    fn in_head_again(&mut self, token: Token) {
        let Some(id) = self.head else { return };
        let parent = self.current_id();
        let head = super::Node { id, parent, name: HEAD, space: super::Space::Html, point: false };
        self.stack.push(head);
        self.in_head(token);
        // It had not ended before, and does not end now.
        if let Some(at) = self.position(id) {
            self.stack.remove(at);
        }
    }

    pub(super) fn in_text(&mut self, token: Token) -> Done {
        match token {
            Token::End(_) => {
                self.pop();
                self.mode = self.behind;
            }
            _ => self.insert_text(),
        }
        Done::Yes
    }

    pub(super) fn in_template(&mut self, token: Token) -> Done {
        let mode = match token {
            Token::Blank | Token::Null | Token::Text | Token::Comment | Token::Doctype(_) => {
                return self.in_body(token);
            }
            Token::Start(
                BASE | BASEFONT | BGSOUND | LINK | META | NOFRAMES | SCRIPT | STYLE | TEMPLATE | TITLE,
                _,
            )
            | Token::End(TEMPLATE) => return self.in_head(token),
            Token::Start(CAPTION | COLGROUP | TBODY | TFOOT | THEAD, _) => Mode::InTable,
            Token::Start(COL, _) => Mode::InColumns,
            Token::Start(TR, _) => Mode::InRows,
            Token::Start(TD | TH, _) => Mode::InRow,
            Token::Start(..) => Mode::InBody,
            Token::End(_) => return Done::Yes,
        };
        if let Some(last) = self.templates.last_mut() {
            *last = mode;
        }
        self.mode = mode;
        Done::Again
    }

    pub(super) fn after_body(&mut self, token: Token) -> Done {
        match token {
            Token::Blank | Token::Start(HTML, _) => return self.in_body(token),
            Token::Doctype(_) => {}
            Token::End(HTML) => self.mode = Mode::AfterAfterBody,
            _ => {
                self.mode = Mode::InBody;
                return Done::Again;
            }
        }
        Done::Yes
    }

    pub(super) fn after_after_body(&mut self, token: Token) -> Done {
        match token {
            Token::Blank | Token::Doctype(_) | Token::Start(HTML, _) => self.in_body(token),
            _ => {
                self.mode = Mode::InBody;
                Done::Again
            }
        }
    }

    pub(super) fn in_frameset(&mut self, token: Token) -> Done {
        match token {
            Token::Blank => self.insert_text(),
            Token::Start(HTML, _) => return self.in_body(token),
            Token::Start(FRAMESET, _) => drop(self.insert(FRAMESET, Origin::Tag)),
            Token::End(FRAMESET) if self.stack.len() > 1 => {
                self.pop();
                if !self.current_is(|name| name == FRAMESET) {
                    self.mode = Mode::AfterFrameset;
                }
            }
            Token::Start(FRAME, _) => self.insert_void(FRAME),
            Token::Start(NOFRAMES, _) => return self.in_head(token),
            _ => {}
        }
        Done::Yes
    }

    pub(super) fn after_frameset(&mut self, token: Token) -> Done {
        match token {
            Token::Blank => self.insert_text(),
            Token::Start(HTML, _) => return self.in_body(token),
            Token::End(HTML) => self.mode = Mode::AfterAfterFrameset,
            Token::Start(NOFRAMES, _) => return self.in_head(token),
            _ => {}
        }
        Done::Yes
    }

    pub(super) fn after_after_frameset(&mut self, token: Token) -> Done {
        match token {
            Token::Blank | Token::Start(HTML, _) => self.in_body(token),
            Token::Start(NOFRAMES, _) => self.in_head(token),
            _ => Done::Yes,
        }
    }
}

/// Returns true if a document type selects quirks mode.
pub(super) fn is_quirky(doctype: &[u8]) -> bool {
    let text = String::from_utf8_lossy(doctype).to_ascii_lowercase();
    let rest = text.get("<!doctype".len()..).unwrap_or_default().trim_end_matches('>').trim_start();
    let mut words = rest.splitn(2, |each: char| each.is_ascii_whitespace());
    if words.next() != Some("html") {
        return true;
    }
    let rest = words.next().unwrap_or_default().trim_start();
    if rest.is_empty() || rest.starts_with("system") {
        return rest.contains("ibmxhtml1-transitional.dtd");
    }
    let Some(rest) = rest.strip_prefix("public") else { return true };
    let mut ids = rest.split(['"', '\'']);
    let public = ids.nth(1).unwrap_or_default();
    let system = ids.nth(1).is_some();
    let old = [
        "+//silmaril//",
        "-//as//",
        "-//advasoft ltd//",
        "-//ietf//",
        "-//metrius//",
        "-//microsoft//",
        "-//netscape comm. corp.//",
        "-//o'reilly and associates//",
        "-//softquad",
        "-//spyglass//",
        "-//sq//",
        "-//sun microsystems",
        "-//w3c//dtd html 3",
        "-//w3c//dtd html 4.0 frameset//",
        "-//w3c//dtd html 4.0 transitional//",
        "-//w3c//dtd html experimental",
        "-//w3c//dtd w3 html",
        "-//w3o//",
        "-//webtechs//",
    ];
    let without_system = ["-//w3c//dtd html 4.01 frameset//", "-//w3c//dtd html 4.01 transitional//"];
    old.iter().any(|start| public.starts_with(start))
        || matches!(public, "html" | "-/w3c/dtd html 4.0 transitional/en")
        || !system && without_system.iter().any(|start| public.starts_with(start))
}
