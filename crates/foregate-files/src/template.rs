//! Places to look for a file, as in `try "$path" "$path/index.html" "/app.html"`.

use crate::name::{Name, relative};
use crate::rules::Candidate;

const PATH: &str = "$path";

/// A place to look for the file of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Template {
    /// `$path`: the file at the path of the request, or the index of the folder there.
    Path,
    /// `$path` with text around it.
    Around(Box<str>, Box<str>),
    /// The same file for all requests.
    Fixed(Box<str>),
}

/// The reason that a text is no template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// The place begins neither with `/` nor with `$path`.
    Relative,
    /// The place has a variable other than `$path`, or has `$path` twice.
    Variable,
    /// The place has empty or dot segments.
    Segments,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// The text is not a valid template.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text == PATH {
            return Ok(Self::Path);
        }
        if !text.starts_with(['/', '$']) {
            return Err(TemplateError::Relative);
        }
        let of_path = |text: &str| relative(text.trim_matches('/')) || text.trim_matches('/').is_empty();
        let Some((before, after)) = text.split_once(PATH) else {
            if text.contains('$') {
                return Err(TemplateError::Variable);
            }
            let name = text.get(1..).filter(|name| relative(name)).ok_or(TemplateError::Segments)?;
            return Ok(Self::Fixed(name.into()));
        };
        if before.contains('$') || after.contains('$') {
            return Err(TemplateError::Variable);
        }
        if !of_path(before) || !of_path(after) || after.ends_with('/') {
            return Err(TemplateError::Segments);
        }
        Ok(Self::Around(before.trim_matches('/').into(), after.into()))
    }

    /// The name to look for if the request has this name. `None` if the template cannot apply to the request.
    pub fn candidate(&self, name: &Name) -> Option<Candidate> {
        match self {
            Self::Path => {
                Some(Candidate { name: name.bytes.clone(), is_folder: name.is_folder, is_path: true })
            }
            Self::Fixed(fixed) => {
                Some(Candidate { name: fixed.as_bytes().to_vec(), is_folder: false, is_path: false })
            }
            Self::Around(before, after) => {
                // Text after `$path` needs a name before it.
                if (name.is_folder || name.bytes.is_empty()) && !after.starts_with('/') && !after.is_empty() {
                    return None;
                }
                let parts = [before.as_bytes(), &name.bytes, after.trim_start_matches('/').as_bytes()];
                let mut bytes = Vec::new();
                let glued = !after.starts_with('/');
                for (number, part) in parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty()) {
                    if !(bytes.is_empty() || number == 2 && glued) {
                        bytes.push(b'/');
                    }
                    bytes.extend_from_slice(part);
                }
                let is_folder = name.is_folder && after.is_empty();
                Some(Candidate { name: bytes, is_folder, is_path: false })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(template: &str, path: &str) -> Option<String> {
        let name = Name::read(path.as_bytes(), false)?;
        let candidate = Template::parse(template).unwrap().candidate(&name)?;
        Some(
            String::from_utf8_lossy(&candidate.name).into_owned()
                + if candidate.is_folder { "/" } else { "" },
        )
    }

    #[test]
    fn templates_give_names() {
        let rows = [
            ("$path", "/a/b", Some("a/b")),
            ("$path", "/a/", Some("a/")),
            ("$path/index.html", "/a", Some("a/index.html")),
            ("$path/index.html", "/a/", Some("a/index.html")),
            ("$path/index.html", "/", Some("index.html")),
            ("$path.html", "/about", Some("about.html")),
            ("$path.html", "/", None),
            ("$path.html", "/a/", None),
            ("/app.html", "/a/b/c", Some("app.html")),
            ("/spa/app.html", "/", Some("spa/app.html")),
            ("/v2$path", "/a", Some("v2/a")),
            ("/v2/$path", "/a/", Some("v2/a/")),
            ("/v2$path.html", "/a", Some("v2/a.html")),
        ];
        for (template, path, expected) in rows {
            assert_eq!(of(template, path).as_deref(), expected, "{template} {path}");
        }
    }

    #[test]
    fn other_texts_are_none() {
        for (text, error) in [
            ("app.html", TemplateError::Relative),
            ("=404", TemplateError::Relative),
            ("@app", TemplateError::Relative),
            ("$uri", TemplateError::Variable),
            ("/$host$path", TemplateError::Variable),
            ("$path$path", TemplateError::Variable),
            ("/../etc/passwd", TemplateError::Segments),
            ("$path/../x", TemplateError::Segments),
            ("$path/", TemplateError::Segments),
            ("/", TemplateError::Segments),
            ("/a/", TemplateError::Segments),
        ] {
            assert_eq!(Template::parse(text), Err(error), "{text}");
        }
    }
}
