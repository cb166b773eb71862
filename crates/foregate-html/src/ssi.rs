//! Directives of server-side includes, `<!--# include virtual="/path" wait="yes" -->`, as NGINX and Apache read them: blanks may
//! follow the `#`, names may be in capitals, and a value may be without quotes.

/// A directive in a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Directive {
    /// The inclusion of the fragment at this path.
    Include(String),
    /// A directive that is not understood.
    Unsupported,
}

/// The commands of NGINX, and those that Apache has in addition.
const COMMANDS: [&str; 13] = [
    "include", "echo", "set", "config", "if", "elif", "else", "endif", "block", "endblock", "exec", "fsize",
    "flastmod",
];

/// Reads the directive in a comment; `None` for an ordinary comment.
pub(crate) fn directive(comment: &str) -> Option<Directive> {
    let rest = comment.strip_prefix('#')?.trim_start_matches(is_blank);
    let (command, mut rest) = rest.split_at(rest.find(is_blank).unwrap_or(rest.len()));
    if !COMMANDS.iter().any(|known| known.eq_ignore_ascii_case(command)) {
        return None;
    }
    if !command.eq_ignore_ascii_case("include") {
        return Some(Directive::Unsupported);
    }
    let mut source = None;
    loop {
        rest = rest.trim_start_matches(is_blank);
        if rest.is_empty() {
            return Some(source.map_or(Directive::Unsupported, Directive::Include));
        }
        let Some((name, value, behind)) = parameter(rest) else { return Some(Directive::Unsupported) };
        rest = behind;
        match &*name.to_ascii_lowercase() {
            // `wait` changes nothing here: the text after an include always waits for the fragment.
            "wait" if ["yes", "no"].iter().any(|known| known.eq_ignore_ascii_case(&value)) => {}
            "virtual" | "file" if source.is_none() && !value.is_empty() => source = Some(value),
            _ => return Some(Directive::Unsupported),
        }
    }
}

/// Reads a parameter and returns the rest. The value may not contain a variable; without quotes it ends at a blank.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = text.split_at(text.find(|byte| is_blank(byte) || byte == '=')?);
    let rest = rest.trim_start_matches(is_blank).strip_prefix('=')?.trim_start_matches(is_blank);
    let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\'' | '`'));
    let (mut value, mut escaped) = (String::new(), false);
    let mut characters = rest.char_indices().skip(usize::from(quote.is_some())).peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            _ if std::mem::take(&mut escaped) => value.push(character),
            '\\' => escaped = true,
            '$' if characters.peek().is_some_and(|(_, next)| is_variable(*next)) => return None,
            _ if Some(character) == quote => return Some((name, value, rest.get(at + 1..)?)),
            _ if quote.is_none() && is_blank(character) => return Some((name, value, rest.get(at..)?)),
            _ => value.push(character),
        }
    }
    quote.is_none().then_some((name, value, ""))
}

fn is_variable(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '{' | '_')
}

fn is_blank(character: char) -> bool {
    character.is_ascii_whitespace()
}

/// Resolves a path that may be relative to the path of the document.
pub(crate) fn absolute(path: String, document: Option<&str>) -> String {
    let scheme = path.split(['/', '?']).next().is_some_and(|first| first.contains(':'));
    match document.and_then(|document| document.rsplit_once('/')) {
        Some((folder, _)) if !scheme && !path.is_empty() && !path.starts_with(['/', '?', '#']) => {
            format!("{folder}/{path}")
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_read_as_nginx_and_apache_read_them() {
        let includes = |path: &str| Some(Directive::Include(path.into()));
        for (comment, expected) in [
            ("#include virtual=\"/a\" ", includes("/a")),
            ("# include virtual=\"/a\"", includes("/a")),
            ("#\t\r\ninclude\nvirtual = '/a?x=\"1\"' wait=\"yes\" ", includes("/a?x=\"1\"")),
            ("# include wait='no' file=\"b.html\" ", includes("b.html")),
            ("#include virtual=\"/a\\\"b\\$c\" ", includes("/a\"b$c")),
            ("#include virtual=\"/a?p=5$\" ", includes("/a?p=5$")),
            ("#include virtual=\"/a?u=$arg_u\" ", Some(Directive::Unsupported)),
            ("#include virtual=\"/a\" stub=\"one\" ", Some(Directive::Unsupported)),
            ("#include virtual=\"/a\" set=\"one\" ", Some(Directive::Unsupported)),
            ("#include virtual=\"/a\" wait=\"maybe\" ", Some(Directive::Unsupported)),
            ("#include virtual=\"/a\" file=\"b\" ", Some(Directive::Unsupported)),
            ("#INCLUDE virtual=/a", includes("/a")),
            ("#Include VIRTUAL=/a?x=1 Wait=YES ", includes("/a?x=1")),
            ("#include virtual=`/a b`", includes("/a b")),
            ("#include virtual=/$a", Some(Directive::Unsupported)),
            ("#include virtual= ", Some(Directive::Unsupported)),
            ("#ECHO var=x", Some(Directive::Unsupported)),
            ("#include virtual=\"/a ", Some(Directive::Unsupported)),
            ("#include ", Some(Directive::Unsupported)),
            ("#include", Some(Directive::Unsupported)),
            ("# echo var=\"x\" ", Some(Directive::Unsupported)),
            ("# if expr=\"$a\" ", Some(Directive::Unsupported)),
            ("#endif ", Some(Directive::Unsupported)),
            (" #include virtual='/a'", None),
            ("#includes virtual='/a'", None),
            ("# 42", None),
            ("", None),
        ] {
            assert_eq!(directive(comment), expected, "{comment}");
        }
    }

    #[test]
    fn relative_paths_are_taken_from_the_folder_of_the_document() {
        let of = |path: &str| absolute(path.into(), Some("/shop/index.html"));
        assert_eq!(
            (&*of("foot.html"), &*of("../a?x"), &*of("/a")),
            ("/shop/foot.html", "/shop/../a?x", "/a")
        );
        assert_eq!(
            (&*of("//host/a"), &*of("http://host/a"), &*of("?x"), &*of("")),
            ("//host/a", "http://host/a", "?x", "")
        );
        assert_eq!(absolute("a".into(), None), "a");
        assert_eq!(absolute("a?b:c".into(), Some("/")), "/a?b:c");
    }
}
