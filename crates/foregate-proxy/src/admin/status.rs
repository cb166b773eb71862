//! Certificates and servers in short, for `foregate status`, which fits one screen.

use serde_json::{Value, json};

/// The most certificates, and the most servers, that are named because something is wrong with them.
const NAMED_MOST: usize = 10;

/// The number of certificates, the end of the one that ends first, and those that an operator has to look at.
pub(super) fn certificates_in_short(all: &Value) -> Value {
    let list = |name: &str| all[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let (obtained, files) = (list("certificates"), list("files"));
    let ends = obtained.iter().chain(files).filter_map(|one| one["not_after"].as_i64());
    let is_wrong = |one: &&Value| {
        (one["state"].is_string() && one["state"] != "valid")
            || one["error"].is_string()
            || one["ocsp"]["error"].is_string()
    };
    let wrong: Vec<_> = obtained.iter().chain(files).filter(is_wrong).collect();
    let named = wrong.iter().take(NAMED_MOST).map(|one| {
        let error = if one["error"].is_string() { &one["error"] } else { &one["ocsp"]["error"] };
        let name = if one["name"].is_string() { &one["name"] } else { &one["file"] };
        // A valid certificate in files is named because of its OCSP response, unless it has an error of its own.
        let is_of_staple =
            one["file"].is_string() && !one["error"].is_string() && one["ocsp"]["error"].is_string();
        let state = if is_of_staple { &one["ocsp"]["state"] } else { &one["state"] };
        json!({ "name": name, "state": state, "error": error })
    });
    json!({
        "count": obtained.len() + files.len(),
        "first_end": ends.min(),
        "wrong": wrong.len(),
        "named": named.collect::<Vec<_>>(),
    })
}

/// The number of servers, and those that get no requests, or only some.
pub(super) fn servers_in_short(upstreams: &[Value]) -> Value {
    let servers = |upstream: &Value| upstream["servers"].as_array().cloned().unwrap_or_default();
    let is_out = |server: &Value| server["state"] != "up" && server["state"] != "unchecked";
    let (mut count, mut out, mut named) = (0, 0, Vec::new());
    for upstream in upstreams {
        for server in servers(upstream) {
            count += 1;
            if !is_out(&server) {
                continue;
            }
            out += 1;
            if named.len() < NAMED_MOST {
                named.push(json!({
                    "upstream": upstream["upstream"], "server": server["server"],
                    "state": server["state"], "reason": server["reason"],
                }));
            }
        }
    }
    json!({ "count": count, "out": out, "named": named })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_with_failures_are_named() {
        let all = json!({
            "certificates": [
                { "name": "a.test", "state": "valid", "not_after": 50 },
                { "name": "b.test", "state": "valid", "not_after": 40, "error": "no answer; wait" },
                { "name": "c.test", "state": "valid", "not_after": 60, "ocsp": { "error": "away" } },
            ],
            "files": [
                { "file": "site.pem", "not_after": 45, "ocsp": null },
                { "file": "other.pem", "not_after": 70, "ocsp": { "state": "missing", "error": "away" } },
            ],
        });
        let short = certificates_in_short(&all);
        assert_eq!(
            (&short["count"], &short["first_end"], &short["wrong"]),
            (&json!(5), &json!(40), &json!(3))
        );
        assert_eq!(
            short["named"][0],
            json!({ "name": "b.test", "state": "valid", "error": "no answer; wait" })
        );
        assert_eq!(short["named"][1]["error"], "away");
        assert_eq!(short["named"][2], json!({ "name": "other.pem", "state": "missing", "error": "away" }));
    }

    #[test]
    fn servers_that_are_out_are_named() {
        let server = |state: &str| json!({ "server": state, "state": state, "reason": "r" });
        let many: Vec<_> = (0..20).map(|_| server("down")).collect();
        let short = servers_in_short(&[
            json!({ "upstream": "a", "servers": [server("up"), server("unchecked"), server("ejected")] }),
            json!({ "upstream": "b", "servers": many }),
        ]);
        assert_eq!((&short["count"], &short["out"]), (&json!(23), &json!(21)));
        assert_eq!(short["named"].as_array().map(Vec::len), Some(NAMED_MOST));
        assert_eq!(short["named"][0]["upstream"], "a");
    }
}
