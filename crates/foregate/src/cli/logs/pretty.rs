//! A line of an access log for people.

use super::object;

/// Formats a line, with colours if `colour` is set. A line that is not JSON is not changed.
pub(super) fn line(line: &str, colour: bool) -> String {
    let Some(entry) = object(line) else { return clean(line) };
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    let paint = |text: String, code: &str| match colour && !code.is_empty() {
        true => format!("\x1b[{code}m{text}\x1b[0m"),
        false => text,
    };
    // The time is in UTC, as in the file.
    let time = text("time").replacen('T', " ", 1);
    let time = time.trim_end_matches('Z');
    let status = entry["status"].as_u64();
    let code = match status {
        None | Some(500..) => "1;31",
        Some(400..) => "33",
        Some(300..) => "36",
        Some(_) => "32",
    };
    let status = status.map_or_else(|| "  -".to_owned(), |status| format!("{status:>3}"));
    let took = entry["duration_us"].as_f64().map_or_else(|| "-".to_owned(), millis);
    let request = clean(&format!("{} {}{}", text("method"), text("host"), text("path")));
    let client = match text("client") {
        "" => String::new(),
        client => paint(clean(&format!("{client}  ")), "2"),
    };
    let mut shown =
        format!("{}  {}  {took:>8}  {client}{request}", paint(clean(time), "2"), paint(status, code));
    let server = match (text("upstream"), text("server")) {
        ("", _) => String::new(),
        (upstream, "") => format!("  {upstream}"),
        (upstream, server) => format!("  {upstream} {server}"),
    };
    shown.push_str(&paint(clean(&server), "2"));
    // The part of the time until the origin's first byte.
    if let Some(first_byte) = entry["upstream_first_byte_us"].as_f64() {
        shown.push_str(&paint(format!(" after {}", millis(first_byte)), "2"));
    }
    for name in ["cache", "fallback", "error", "ended_by"] {
        if let Some(value) = entry[name].as_str() {
            let code = if name == "error" { "1;31" } else { "2" };
            shown.push_str(&paint(clean(&format!("  {name}={value}")), code));
        }
    }
    for (name, value) in entry["notes"].as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        shown.push_str(&paint(clean(&format!("  {name}={value}")), "2"));
    }
    shown
}

fn millis(micros: f64) -> String {
    match micros {
        1e6.. => format!("{:.1} s", micros / 1e6),
        1e4.. => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.1} ms", micros / 1e3),
    }
}

/// The text without control characters, because peers chose parts of it and could send commands to the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_line_has_what_matters() {
        let mut entry = Value::from_iter([
            ("time", "2026-01-01T10:00:00.123Z"),
            ("client", "192.0.2.7"),
            ("upstream", "app"),
            ("server", "10.0.0.1:80"),
            ("method", "GET"),
            ("host", "a.example"),
            ("path", "/\u{1b}[2J"),
            ("error", "connect"),
        ]);
        entry["status"] = 502.into();
        entry["duration_us"] = 1234.into();
        entry["upstream_first_byte_us"] = 1100.into();
        entry["notes"] = Value::from_iter([("waf.score", "15")]);
        assert_eq!(
            line(&entry.to_string(), false),
            "2026-01-01 10:00:00.123  502    1.2 ms  192.0.2.7  GET a.example/?[2J  app 10.0.0.1:80 after 1.1 ms  \
             error=connect  waf.score=15"
        );
        assert!(line(&entry.to_string(), true).contains("\x1b[1;31m502\x1b[0m"));
        assert_eq!(line("192.0.2.1 - - \u{7}", false), "192.0.2.1 - - ?");
    }
}
