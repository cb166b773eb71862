//! Values from outside the configuration file: references to the environment and to other files.

use std::borrow::Cow;
use std::path::Path;

use foregate_rules::nearest;

use foregate_module::settings::value as basic;
pub use foregate_module::settings::value::{
    Scalar as Value, Wrong, boolean, duration, is_off, number, show_duration, show_size, size, string,
    text_of_file,
};

use super::files;
use super::foreign::is_spelling_of;
use super::problem::{Place, Problem};

/// The most bytes of a file that a value refers to.
const REFERENCED_FILE_LIMIT: u64 = 64 * 1024;

/// The problem at a place of a file.
pub fn at(wrong: Wrong, place: Place) -> Problem {
    Problem { help: wrong.help, ..Problem::new(Some(place), wrong.message) }
}

/// The value that `words` assigns to a word. The error asks for a similar word, if there is one.
pub fn choose<T: Copy>(value: &Value<'_>, words: &[(&str, T)]) -> Result<T, Wrong> {
    basic::choose(value, words).map_err(|wrong| match &wrong.help {
        Some(_) => wrong,
        None => did_you_mean(wrong, &value.text, words.iter().map(|(word, _)| *word)),
    })
}

/// Adds the question for the known word that was probably meant: it differs in spelling only, it alone begins with the
/// text, or it is similar.
pub fn did_you_mean<'w>(wrong: Wrong, text: &str, known: impl Iterator<Item = &'w str> + Clone) -> Wrong {
    /// Shorter texts begin too many words.
    const SHORTEST: usize = 3;
    let spelling = known.clone().find(|word| is_spelling_of(word, text));
    let longer = || {
        let mut longer = known.clone().filter(|word| text.len() >= SHORTEST && word.starts_with(text));
        longer.next().filter(|_| longer.next().is_none())
    };
    // Numbers, such as versions, are not mistyped into each other.
    let near = || nearest(text, known.clone()).filter(|_| text.contains(char::is_alphabetic));
    match spelling.or_else(longer).or_else(near) {
        Some(word) => wrong.help(format!("did you mean \"{word}\"?")),
        None => wrong,
    }
}

/// Replaces `${env:NAME}` and `${file:PATH}` in a text; `$${` stands for `${`. Other dollar signs are not
/// changed, and neither are names without a colon, as in `${1}`. Each reference is passed to `used` with its
/// value, so that no message shows the value.
///
/// # Errors
///
/// The variable is not set, the file cannot be read, a `${env:` or `${file:` is not closed, or the word before
/// the colon is unknown. Without the last error, a mistyped reference to a secret would itself be used as the
/// secret.
pub fn expand<'t>(
    text: &'t str,
    base: &Path,
    used: &mut dyn FnMut(&str, &str),
) -> Result<Cow<'t, str>, Wrong> {
    if !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            expanded.push_str(&rest[..at - 1]);
            expanded.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        expanded.push_str(&rest[..at]);
        let reference = &rest[at + 2..];
        let Some((source, name)) =
            ["env:", "file:"].iter().find_map(|s| Some((*s, reference.strip_prefix(s)?)))
        else {
            no_reference(reference)?;
            expanded.push_str("${");
            rest = reference;
            continue;
        };
        let Some((name, after)) = name.split_once('}') else {
            return Err(
                Wrong::new(format!("`${{{source}` is not closed")).help("write `$${` for the text `${`")
            );
        };
        let value = if source == "env:" { variable(name)? } else { file(name, base)? };
        used(&format!("${{{source}{name}}}"), &value);
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(Cow::Owned(expanded))
}

/// Refuses text after `${` that looks like a reference but is none. The message does not show the text, since
/// it may be a secret.
fn no_reference(text: &str) -> Result<(), Wrong> {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b' ');
    let word = &text[..text.bytes().take_while(|byte| is_of_word(*byte)).count()];
    if word.is_empty() || !text[word.len()..].starts_with(':') {
        return Ok(());
    }
    let word = word.trim().to_ascii_lowercase();
    let advice = match nearest(&word, ["env", "file"].into_iter()) {
        Some(meant) => format!("did you mean `{meant}:`? "),
        None => String::new(),
    };
    let wrong = Wrong::new("a reference begins with `${env:` or `${file:`");
    Err(wrong.help(advice + "`$${` is the text `${`"))
}

fn variable(name: &str) -> Result<String, Wrong> {
    std::env::var(name).map_err(|error| match error {
        std::env::VarError::NotPresent => Wrong::new(format!("the environment variable {name} is not set")),
        std::env::VarError::NotUnicode(_) => {
            Wrong::new(format!("the environment variable {name} is not UTF-8"))
        }
    })
}

/// The content of a file without a line break at its end.
fn file(name: &str, base: &Path) -> Result<String, Wrong> {
    use std::io::Read;
    let path = base.join(name);
    let read = || {
        let mut content = Vec::new();
        files::open(&path)?.take(REFERENCED_FILE_LIMIT + 1).read_to_end(&mut content)?;
        Ok(content)
    };
    let content = read().map_err(|error: std::io::Error| files::cannot_read(&path, &error))?;
    if content.len() as u64 > REFERENCED_FILE_LIMIT {
        return Err(Wrong::new(format!("{} is longer than 64 KiB", path.display())));
    }
    let text = text_of_file(&content).map_err(|_| Wrong::new(format!("{} is not UTF-8", path.display())))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_word_is_asked_for() {
        let known = ["http-01", "tls-alpn-01", "dns-01"];
        let help = |text: &str| did_you_mean(Wrong::new(""), text, known.into_iter()).help;
        for (text, word) in [("http", "http-01"), ("TLS_ALPN_01", "tls-alpn-01"), ("dns-O1", "dns-01")] {
            assert_eq!(help(text), Some(format!("did you mean \"{word}\"?")), "{text}");
        }
        assert_eq!((help("d"), help("manual"), help("")), (None, None, None));
        assert_eq!(did_you_mean(Wrong::new(""), "1.1", ["1.2", "1.3"].into_iter()).help, None);
    }

    #[test]
    fn references_are_resolved() {
        let expand = |text: &str| expand(text, Path::new("/proc/self"), &mut |_, _| {}).map(Cow::into_owned);
        assert_eq!(expand("a$b${c}").as_deref(), Ok("a$b${c}"));
        assert_eq!(expand("$${env:HOME}").as_deref(), Ok("${env:HOME}"));
        assert_eq!(expand("<${env:PATH}>"), Ok(format!("<{}>", std::env::var("PATH").unwrap())));
        assert!(!expand("${file:comm}").unwrap().ends_with('\n'));
        assert!(expand("${env:SURELY_NOT_SET_1}").is_err());
        assert!(expand("${file:no-such-file}").is_err());
        assert!(expand("${env:HOME").is_err());
    }

    #[test]
    fn what_looks_like_a_reference_is_one() {
        let expand = |text: &'static str| expand(text, Path::new("/"), &mut |_, _| {});
        for text in ["${ENV:HOME}", "a${ env:HOME}", "${evn:HOME}", "${env :HOME}", "${Env:HOME"] {
            let wrong = expand(text).unwrap_err();
            assert_eq!(wrong.message, "a reference begins with `${env:` or `${file:`", "{text}");
            let help = wrong.help.unwrap();
            assert_eq!(help, "did you mean `env:`? `$${` is the text `${`", "{text}");
        }
        assert!(expand("${flie:a}").unwrap_err().help.unwrap().starts_with("did you mean `file:`?"));
        assert_eq!(expand("${vault:a}").unwrap_err().help.unwrap(), "`$${` is the text `${`");
        assert_eq!(expand("$${vault:a}").as_deref(), Ok("${vault:a}"));
        for text in
            ["${1}", "${nonce}", "{nonce:a}", "${:a}", "${}:", "${a}:b", "$ {env:A}", "${a?b:c}", "${a.b:c}"]
        {
            assert_eq!(expand(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = std::env::temp_dir().join(format!("foregate-value-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let wrong = expand("${file:pipe}", &folder, &mut |_, _| {}).unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(wrong.message.ends_with("it is not a file"), "{}", wrong.message);
    }
}
