//! Advice for words of other proxies: the key of Foregate that has the same effect.
//!
//! Words that are valid keys of the block around them are not looked up here. Spelling makes no difference:
//! `accessLog`, `access_log`, `access-log` and `AccessLog` are one word. A word of a table that ends in `*`
//! matches all words with this beginning (`gzip-*`). Whole words take precedence over beginnings, and longer
//! beginnings over shorter ones.

mod nginx;
mod within;
mod words;

use crate::schema::Key;

pub(crate) use nginx::rate;

/// The advice for a configuration of another program.
pub(crate) const INSTEAD_OF_FILE: &str = "`foregate init` writes one of ours; docs/guide/nginx-directives.md has the counterparts of the directives of NGINX";

/// The other program for which a file seems to be written, judged by the name of the file and a few words.
pub(crate) fn program_of(path: &std::path::Path, text: &str) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    // In a file of our own format, names of other proxies get separate advice.
    if name.ends_with(".kdl") || name.ends_with(".json") {
        return None;
    }
    let has = |word: &str| text.lines().any(|line| line.trim_start().starts_with(word));
    if name.starts_with("Caddyfile") || has("reverse_proxy ") {
        return Some("Caddy");
    }
    if name.contains("nginx") || has("proxy_pass ") || has("server_name ") || has("worker_processes ") {
        return Some("NGINX");
    }
    if name.starts_with("haproxy") || has("frontend ") && has("backend ") {
        return Some("HAProxy");
    }
    if has("static_resources:") || has("admin:") && has("  listeners:") {
        return Some("Envoy");
    }
    if has("entryPoints:") || has("[entryPoints") {
        return Some("Traefik");
    }
    (has("<VirtualHost") || has("ProxyPass ")).then_some("Apache")
}

/// The directives of NGINX that have another name here, in alphabetical order, each with the advice for a file
/// that uses it. A `*` at the end stands for all directives with this beginning.
pub fn nginx_directives() -> Vec<(String, String)> {
    let mut all: Vec<_> = nginx::INSTEAD
        .iter()
        .map(|(directive, instead)| (directive.replace('-', "_"), instead.sentence(false)))
        .collect();
    all.sort();
    all
}

/// The advice for a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instead {
    /// The replacement.
    Write(&'static str),
    /// The word is not needed, for this reason.
    LeaveOut(&'static str),
    /// No key does the same. This is the nearest alternative.
    Missing(&'static str),
}

impl Instead {
    /// The advice as a sentence. `is_told` is true if the message already says that the word is not in this
    /// version.
    pub(crate) fn sentence(self, is_told: bool) -> String {
        match self {
            Self::Write(text) => text.to_owned(),
            Self::LeaveOut(reason) => format!("leave it out: {reason}"),
            Self::Missing(nearest) if is_told => nearest.to_owned(),
            Self::Missing(nearest) => format!("it is not in this version: {nearest}"),
        }
    }
}

/// The advice for a directive of NGINX in the block with the name `within`. `has_block` is true if the
/// directive has a block of its own.
pub(crate) fn of_nginx(directive: &str, within: &str, has_block: bool) -> Option<Instead> {
    let word = squeezed(directive);
    // Without a block, these words are keys of our own.
    if matches!(&*word, "http" | "server") && !has_block {
        return None;
    }
    let instead = best(&word, nginx::INSTEAD.iter().map(|(directive, instead)| (*directive, *instead)))?;
    let is_known = within == "rule" && word == "if" || is_around(instead, within);
    (!is_known).then_some(instead)
}

/// The advice for a word of any other proxy in the block of this name.
pub(crate) fn of_others(word: &str, within: &str) -> Option<Instead> {
    let rows = words::WORDS.iter();
    let rows = rows.flat_map(|(words, instead)| words.split_whitespace().map(|word| (word, *instead)));
    best(&squeezed(word), rows).filter(|instead| !is_around(*instead, within))
}

/// The advice for a foreign name that has a special meaning within this block, or as a property of this key.
pub(crate) fn within(block: &str, name: &str) -> Option<Instead> {
    let rows = within::WITHIN.iter().filter(|row| row.0 == block);
    let rows = rows.flat_map(|(_, words, instead)| words.split_whitespace().map(|word| (word, *instead)));
    best(&squeezed(name), rows)
}

/// The advice for a word that stands as a value behind this key.
pub(crate) fn within_key(key: &Key, text: &str) -> Option<String> {
    within(key.name, text).map(|instead| instead.sentence(false))
}

/// Returns true if the advice is to write the block that is already around the word.
fn is_around(instead: Instead, within: &str) -> bool {
    matches!(instead, Instead::Write(text) if text.starts_with(&format!("write `{within}`")))
}

/// Returns true if two names differ only in spelling.
pub(crate) fn is_spelling_of(name: &str, other: &str) -> bool {
    squeezed(name) == squeezed(other)
}

/// The letters and digits of a name, in lower case.
fn squeezed(name: &str) -> String {
    let kept = name.chars().filter(|c| !matches!(c, '-' | '_' | '.' | ' '));
    kept.map(|c| c.to_ascii_lowercase()).collect()
}

/// The value of the row with the best match for a squeezed name.
fn best<'w, V>(name: &str, rows: impl Iterator<Item = (&'w str, V)>) -> Option<V> {
    let fits = |word: &str| match word.strip_suffix('*') {
        Some(start) => {
            Some(squeezed(start)).filter(|start| name.starts_with(&**start)).map(|start| start.len())
        }
        None => (squeezed(word) == name).then_some(usize::MAX),
    };
    let found = rows.filter_map(|(word, value)| Some((fits(word)?, value)));
    found.max_by_key(|(length, _)| *length).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_stands_in_one_row() {
        let others = words::WORDS.iter().flat_map(|(words, _)| words.split_whitespace());
        let of_nginx = nginx::INSTEAD.iter().map(|(directive, _)| *directive);
        let mut seen = std::collections::HashMap::new();
        for word in others.chain(of_nginx) {
            assert_eq!(word.to_ascii_lowercase(), word, "tables are in lower case");
            let first = seen.insert(squeezed(word), word);
            assert_eq!(first, None, "{word} stands there twice");
        }
        assert!(seen.len() > 400, "{}", seen.len());
    }

    #[test]
    fn files_of_other_programs_are_known() {
        let program = |name: &str, text: &str| program_of(std::path::Path::new(name), text);
        assert_eq!(program("etc/Caddyfile", ""), Some("Caddy"));
        assert_eq!(program("site.conf", "server {\n  server_name a;\n}"), Some("NGINX"));
        assert_eq!(program("a.cfg", "frontend web\nbackend app"), Some("HAProxy"));
        assert_eq!(program("a.conf", "<VirtualHost *:80>"), Some("Apache"));
        assert_eq!(program("foregate.kdl", "site \"*\" {\n proxy_pass \"app\"\n}"), None);
    }

    #[test]
    fn words_are_known_in_any_spelling() {
        let logs = of_others("log-level", "");
        assert!(logs.is_some());
        for word in ["logLevel", "log_level", "LOG-LEVEL", "log.level", "LogLevel"] {
            assert_eq!(of_others(word, ""), logs, "{word}");
        }
        for word in ["acme", "strip", "otel", "HTTP3", "entryPoints", "stripPath", "certResolver"] {
            assert!(of_others(word, "").is_some(), "{word}");
        }
        assert_eq!(of_others("cashe", ""), None);
        assert_eq!(of_nginx("ProxyPass", "", false), of_nginx("proxy_pass", "", false));
    }

    #[test]
    fn a_whole_word_goes_before_its_beginning_and_a_long_beginning_before_a_short_one() {
        let rows = [("proxy-*", 1), ("proxy-ssl-*", 2), ("proxy-ssl-name", 3)];
        let of = |name: &str| best(&squeezed(name), rows.into_iter());
        assert_eq!(of("proxy_bind"), Some(1));
        assert_eq!(of("proxy_ssl_verify"), Some(2));
        assert_eq!(of("proxy_ssl_name"), Some(3));
        assert_eq!(of("prox"), None);
    }

    #[test]
    fn the_block_in_which_a_word_stands_is_not_advised() {
        assert!(of_nginx("timeout", "", false).is_some());
        assert_eq!(of_nginx("timeout", "timeouts", false), None);
    }
}
