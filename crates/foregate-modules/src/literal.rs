//! Finds texts of the configuration that are taken literally, although the user has probably meant an expression.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use foregate_module::{Argument, Problem};
use foregate_rules::FUNCTIONS;

/// The longest text that advice repeats, bytes.
const SHOWN_LIMIT: usize = 60;

/// The use of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// An address or a part of an address, in which a literal `$` is written `%24`.
    Address,
    /// The value of a field, a variable or a note. Here a `$` is more likely to be literal, such as in the hash of a
    /// password.
    Value,
    /// A body, which may contain any text, such as a script.
    Body,
}

/// Checks that a text is probably meant literally; `written` returns the expression to suggest instead.
///
/// # Errors
///
/// The text has a variable or a capture in the style of NGINX, or calls a function of the expression language.
pub(crate) fn check(argument: &Argument, of: Use, written: fn(&str) -> String) -> Result<(), Problem> {
    let text = argument.text()?;
    if let Some(function) = called(text) {
        return Err(argument
            .wrong(format!("`{function}` is not called here: the text is taken as it stands"))
            .help(format!("write {}", written(text.trim()))));
    }
    let Some((_, variable)) = variable(text, of) else { return Ok(()) };
    let name = bare(variable);
    let problem = argument.wrong(format!("`{variable}` is no variable here: it is taken as it stands"));
    let advice = if name.bytes().all(|byte| byte.is_ascii_digit()) {
        part_of_path(written)
    } else {
        match expression(text, of) {
            Ok(whole) => format!("what depends on the request is an expression: {}", written(&whole)),
            Err(unknown) if bare(unknown).bytes().all(|byte| byte.is_ascii_digit()) => part_of_path(written),
            Err(unknown) => format!(
                "what depends on the request is an expression, with `expression=#true`; none has what `{unknown}` stands for"
            ),
        }
    };
    Err(problem.help(match of {
        Use::Address => format!("{advice}; the character itself is `%24`"),
        _ => advice,
    }))
}

fn part_of_path(written: fn(&str) -> String) -> String {
    let replaced = r#"regex_replace(http.request.uri.path, "^/old/(.*)$", "/new/${1}")"#;
    format!("a part of the path is had by an expression: {}", written(replaced))
}

fn bare(variable: &str) -> &str {
    variable.trim_matches(['$', '{', '}'])
}

/// The expression that the user has probably meant by a text with variables.
///
/// # Errors
///
/// Returns the variable for which there is no field.
fn expression(text: &str, of: Use) -> Result<String, &str> {
    // One field of expressions contains scheme, host, path and query.
    const WHOLE: [&str; 2] = ["$scheme://$host$request_uri", "$scheme://$http_host$request_uri"];
    if WHOLE.contains(&text) {
        return Ok("http.request.full_uri".to_string());
    }
    let (mut parts, mut rest) = (Vec::new(), text);
    loop {
        let (before, found) = match variable(rest, of) {
            Some((before, found)) => (before, Some(found)),
            None => (rest, None),
        };
        if !before.is_empty() {
            let plain = before.len() <= SHOWN_LIMIT && !before.contains(['"', '\\', '#']);
            parts.push(format!("\"{}\"", if plain { before } else { "..." }));
        }
        let Some(found) = found else { break };
        parts.push(field(bare(found)).ok_or(found)?);
        rest = &rest[before.len() + found.len()..];
    }
    if let [only] = &*parts {
        return Ok(only.clone());
    }
    parts.iter_mut().filter(|part| *part == "ip.src").for_each(|part| *part = format!("to_string({part})"));
    Ok(format!("concat({})", parts.join(", ")))
}

/// The function that a text calls, if the whole text is a single call.
fn called(text: &str) -> Option<&'static str> {
    let (name, rest) = text.trim().split_once('(')?;
    let function = FUNCTIONS.iter().find(|function| function.name == name)?;
    rest.ends_with(')').then_some(function.name)
}

/// The first variable in a text, and the text before it.
fn variable(text: &str, of: Use) -> Option<(&str, &str)> {
    let in_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    // `${...}` may also name a field of the expression language.
    let in_field = |byte: &u8| in_name(byte) || b".[]\"-".contains(byte);
    let found = |at: usize| {
        let rest = text.get(at + 1..)?;
        let length = match rest.strip_prefix('{') {
            Some(inner) => {
                let (name, _) = inner.split_once('}')?;
                let is_field = name.contains('.') && name.as_bytes().iter().all(in_field);
                let is_name = !name.is_empty() && name.as_bytes().iter().all(in_name);
                (is_field || is_name).then_some(name.len() + 2)?
            }
            None => {
                let name: &[u8] = rest.as_bytes();
                let name = name.get(..name.iter().take_while(|byte| in_name(byte)).count())?;
                let meant = match of {
                    Use::Address => !name.is_empty(),
                    // Must look like a name, and not like a piece of encoded data.
                    _ => {
                        name.len() > 1
                            && !name[0].is_ascii_digit()
                            && !name.iter().any(u8::is_ascii_uppercase)
                    }
                };
                meant.then_some(name.len())?
            }
        };
        Some((text.get(..at)?, text.get(at..at + 1 + length)?))
    };
    match of {
        Use::Body => None,
        _ => text.match_indices('$').find_map(|(at, _)| found(at)),
    }
}

/// The expression language's name for a variable of NGINX, named without `$`.
pub(crate) fn field(variable: &str) -> Option<String> {
    const FIELDS: [(&str, &str); 14] = [
        ("request_uri", "http.request.uri"),
        ("uri", "http.request.uri.path"),
        ("document_uri", "http.request.uri.path"),
        ("args", "http.request.uri.query"),
        ("query_string", "http.request.uri.query"),
        ("host", "http.host"),
        ("http_host", "http.host"),
        ("server_name", "http.host"),
        ("remote_addr", "ip.src"),
        ("binary_remote_addr", "ip.src"),
        ("request_method", "http.request.method"),
        ("http_user_agent", "http.user_agent"),
        ("http_referer", "http.referer"),
        ("http_cookie", "http.cookie"),
    ];
    if let Some((_, field)) = FIELDS.iter().find(|(name, _)| *name == variable) {
        return Some((*field).to_string());
    }
    if variable.contains('.') {
        return Some(variable.to_string());
    }
    let part = |prefix: &str, field: &str| Some((variable.strip_prefix(prefix)?, field.to_string()));
    let of_map = part("http_", "http.request.headers").map(|(name, field)| (name.replace('_', "-"), field));
    let of_map = of_map
        .or_else(|| part("arg_", "http.request.uri.args").map(|(name, field)| (name.into(), field)))
        .or_else(|| part("cookie_", "http.request.cookies").map(|(name, field)| (name.into(), field)));
    of_map.map(|(name, field)| format!("{field}[\"{name}\"][0]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, of: Use) -> Option<(String, String)> {
        let written = |expression: &str| format!("#\"{expression}\"#");
        let problem = check(&text.into(), of, written).err()?;
        Some((problem.message, problem.help.unwrap_or_default()))
    }

    #[test]
    fn variables_are_no_literals() {
        let (message, help) = told("https://www.example.com$request_uri", Use::Address).unwrap();
        assert_eq!(message, "`$request_uri` is no variable here: it is taken as it stands");
        assert_eq!(
            help,
            "what depends on the request is an expression: \
             #\"concat(\"https://www.example.com\", http.request.uri)\"#; the character itself is `%24`"
        );
        let (_, help) = told("${http_x_team}", Use::Value).unwrap();
        assert!(help.ends_with("#\"http.request.headers[\"x-team\"][0]\"#"), "{help}");
        let (_, help) = told("a \"b\" $cookie_id", Use::Value).unwrap();
        assert!(help.contains("concat(\"...\", http.request.cookies[\"id\"][0])"), "{help}");
        let (_, help) = told("https://$host$request_uri", Use::Address).unwrap();
        assert!(help.contains("#\"concat(\"https://\", http.host, http.request.uri)\"#"), "{help}");
        let (_, help) = told("$scheme://$host$request_uri", Use::Address).unwrap();
        assert!(help.contains("#\"http.request.full_uri\"#"), "{help}");
        let (_, help) = told("at $msec", Use::Value).unwrap();
        assert!(help.ends_with("none has what `$msec` stands for"), "{help}");
        let (message, help) = told("by ${http.host}", Use::Value).unwrap();
        assert!(message.starts_with("`${http.host}` is no variable"), "{message}");
        assert!(help.ends_with("#\"concat(\"by \", http.host)\"#"), "{help}");
        let (_, help) = told("/${http.request.headers[\"x-a\"][0]}", Use::Address).unwrap();
        assert!(help.contains("concat(\"/\", http.request.headers[\"x-a\"][0])"), "{help}");
        let (message, help) = told("/q/${1}", Use::Address).unwrap();
        assert!(message.starts_with("`${1}` ") && help.contains("regex_replace("), "{message} {help}");
        for text in ["/$1", "/$Upper", "/a$b", "/%24${x}"] {
            assert!(told(text, Use::Address).is_some(), "{text}");
        }
        for text in ["$remote_addr", "by $host", "${1}", "$5 and $tax_rate"] {
            assert!(told(text, Use::Value).is_some(), "{text}");
        }
        for text in ["$5", "a $ b", "$", "${", "${}", "${a-b}", "$2b$10$nQ.zDyFtfRZuDzFO/UipBe", "a$b"] {
            assert_eq!(told(text, Use::Value), None, "{text}");
        }
        assert_eq!(told("<script>$name + `${name}`</script>", Use::Body), None);
        assert_eq!(told("/%24name", Use::Address), None);
    }

    #[test]
    fn calls_are_no_literals() {
        for of in [Use::Address, Use::Value, Use::Body] {
            let (message, help) = told(r#" concat("a", http.host) "#, of).unwrap();
            assert_eq!(message, "`concat` is not called here: the text is taken as it stands");
            assert_eq!(help, r##"write #"concat("a", http.host)"#"##);
            for text in
                ["concat", "concat(", "concatenate(a)", "any (of)", "all(a) of them", "f(x)", "(lower(x))"]
            {
                assert_eq!(told(text, of), None, "{text}");
            }
        }
    }
}
