//! Conditions, and whether they hold for one request.

use foregate_rules::Stage;

use crate::{LISTS, SCHEME, facts};

/// For each expression: `1` if it holds, `0` if not.
const TABLE: &str = r####"
1 true
0 false
1 ssl
0 not ssl
1 ssl eq true
0 ssl ne true
0 ssl eq false
0 tls.client.verified
1 tls.client.verified eq false
1 tls.client.verified == false
1 not tls.client.verified
1 !tls.client.verified

1 http.host eq "www.example.com"
1 http.host == "www.example.com"
1 http.host == r"www.example.com"
1 http.host == r#"www.example.com"#
1 http.host == r##"www.example.com"##
0 http.host eq "example.com"
1 http.host ne "example.com"
1 http.host != "example.com"
0 http.host eq "WWW.example.com"
1 http.host eq "\x77ww.example.com"
1 http.host lt "xxx"
1 http.host < "xxx"
0 http.host gt "xxx"
1 http.host ge "www.example.com"
1 http.host le "www.example.com"
0 http.host > "www.example.com"
1 http.host >= "w"
1 http.host <= "x"
1 http.host contains "example"
1 http.host contains ""
0 http.host contains "Example"
1 lower(http.host) contains "example"
1 http.host matches "^www\.ex[a-z]+\.com$"
0 http.host matches "www\\.|nothing"
0 http.host matches "^www\\.e"
1 http.host ~ r"^www\.ex"
1 http.host matches "(?i)EXAMPLE"
0 http.host matches "EXAMPLE"
1 concat("\"", http.host) matches r#"^["]www"#
1 concat("\"", http.host) matches "^[\"]www"
1 http.user_agent matches "Mozilla/\d\.\d \("
1 concat("a\"b", http.host) matches "^a\"b"

1 http.host wildcard "*.EXAMPLE.com"
0 http.host strict wildcard "*.EXAMPLE.com"
1 http.host strict wildcard "*.example.com"
1 http.host wildcard "www.example.com"
1 http.host wildcard "*"
1 http.host wildcard "w*w*e*"
1 http.host wildcard "*M*PLE*"
0 http.host wildcard "*ple*ple*"
0 http.host wildcard "ww.example.com"
0 http.host wildcard "*example"
0 http.host wildcard "www.example.com*www.example.com"
1 http.request.full_uri wildcard "http*://*.example.com/a/*"
0 http.request.uri.path wildcard r"\*"
1 concat("*", http.request.uri.path) wildcard r"\*/a/*"
1 concat("*", http.request.uri.path) wildcard "\\*/a/*"
1 concat("a\\b", http.host) strict wildcard r"a\\b*"

1 http.host in {"a" "www.example.com"}
0 http.host in {"a" "b"}
1 not http.host in {"a" "b"}
1 http.user_agent in {"Mozilla/5.0 (X11)"}
0 http.host in $hosts
1 substring(http.host, 4) in $hosts
0 http.user_agent in $agents
1 http.request.timestamp.sec in {1 1600000000..1800000000}
0 http.request.timestamp.sec in {1 2..3}
1 waf.score in {-5..-5}
1 http.response.code in {0x190..0x19F}
1 http.response.code in {0624 0x1}
0 http.response.code in {0404}
1 concat("a\\101", http.host) matches "^a\\101"
1 concat("A", http.host) matches "^\x41"
1 http.request.headers["x-tag"][01] eq "two"
1 waf.score lt 0
1 waf.score < -4
1 waf.score le -5
1 waf.score ge -5
0 waf.score gt -5
1 waf.score eq -5
0 waf.score ne -5

1 ip.src eq 192.0.2.7
1 ip.src == ::ffff:192.0.2.7
0 ip.src ne 192.0.2.7
1 ip.src ne 2001:db8::1
1 ip.src in {192.0.2.7}
1 ip.src in {10.0.0.0/8 192.0.2.0/24}
0 ip.src in {10.0.0.0/8 ::/0}
1 ip.src in {0.0.0.0/0}
1 ip.src in {192.0.2.1..192.0.2.7}
0 ip.src in {192.0.2.8..192.0.2.255 2001:db8::/32}
1 ip.src in $office
0 not ip.src in $office
1 cidr(ip.src, 24, 64) eq 192.0.2.0
1 cidr(ip.src, 8, 64) eq 192.0.0.0
1 cidr6(ip.src, 64) eq 192.0.2.7
1 ip.src.country eq "DE"
1 ip.geoip.country in {"AT" "DE"}

0 ssl and http.host eq "x"
1 ssl && http.host eq "www.example.com"
1 ssl or http.host eq "x"
1 http.host eq "x" || ssl
0 ssl xor ssl
1 ssl xor tls.client.verified
1 ssl ^^ ssl ^^ ssl
1 ssl or ssl and false
0 (ssl or ssl) and false
0 ssl xor true and true
1 ssl xor true and false
1 ssl or true xor true
0 not ssl or false
1 not (ssl and false)
1 not not ssl
1 not http.host eq "x" and ssl
1 true and ssl
1 false or ssl
0 false xor tls.client.verified
1 true xor tls.client.verified

0 tls.version eq "x"
1 tls.version ne "x"
0 tls.version contains ""
0 len(tls.version) ge 0
0 starts_with(tls.version, "")
0 tls.version in {""}
0 lower(tls.version) eq ""
1 concat(tls.version, "a") eq "a"
0 http.request.headers["none"][0] eq "x"
1 http.request.headers["none"][0] ne "x"
0 any(http.request.headers["none"][*] ne "x")
1 all(http.request.headers["none"][*] eq "x")
0 len(http.request.headers["none"]) ge 0
1 not len(http.request.headers["none"]) ge 0
1 len(http.request.headers["x-tag"]) eq 2
1 len(http.request.cookies["Session"]) == 1

1 http.request.headers["accept"][0] eq "text/html"
1 http.request.headers["ACCEPT"][0] eq "text/html"
1 http.request.headers["x-tag"][1] eq "two"
0 http.request.headers["x-tag"][2] eq "two"
1 any(http.request.headers["x-tag"][*] eq "two")
0 all(http.request.headers["x-tag"][*] eq "two")
1 all(http.request.headers["x-tag"][*] in {"One" "two"})
1 any(lower(http.request.headers["x-tag"][*])[*] eq "one")
1 any(starts_with(http.request.headers["x-tag"][*], "tw"))
1 all(len(http.request.headers["x-tag"][*])[*] eq 3)
0 all(not len(http.request.headers["x-tag"][*])[*] in {3 4})
1 any(http.request.headers["x-tag"][*] eq "no" or http.request.headers["x-tag"][*] eq "two")
0 any(http.request.headers["x-tag"][*] eq "One" and http.request.headers["x-tag"][*] eq "two")
1 any(lower(http.request.headers["x-tag"][*])[*] eq "no" or http.request.headers["x-tag"][*] eq "two")
1 any(ssl and http.request.headers["x-tag"][*] eq "two")
1 any(http.request.headers.names[*] eq "x-tag")
0 any(http.request.headers.names[*] eq "X-Tag")
1 any(http.request.headers.values[*] contains "html")
1 any(http.request.headers[*][*] eq "two")
1 http.request.headers.names[0] eq "accept"
1 http.request.cookies["Session"][0] eq "abc"
0 http.request.cookies["session"][0] eq "abc"
1 any(http.request.uri.args["x"][*] eq "3")
1 http.request.uri.args["x"][1] eq "3"
1 any(http.request.uri.args.names[*] eq "y")
1 any(via.addresses[*] in {10.0.0.0/8})
0 all(via.addresses[*] in {10.0.0.0/8})
1 via.addresses[1] eq 127.0.0.1
0 via.addresses[2] eq 127.0.0.1
1 any(waf.flags[*])
0 all(waf.flags[*])
1 any(not waf.flags[*])
1 any(waf.flags)
1 waf.flags[0]
0 waf.flags[1]
1 any(waf.rules[*] ge 940)
1 waf.rules[0] eq 900
1 any(cidr(via.addresses[*], 8, 32)[*] eq 10.0.0.0)
1 len(waf.rules) eq 2

1 has_key(http.request.headers, "x-tag")
1 has_key(http.request.headers, "X-TAG")
0 has_key(http.request.headers, "none")
1 has_key(http.request.headers, concat("X", "-Tag"))
1 has_key(http.request.headers, concat("x-", upper(http.request.headers["x-none"][0]), "tag"))
1 has_key(http.request.cookies, "Session")
0 has_key(http.request.cookies, "SESSION")
1 has_value(http.request.headers, "two")
0 has_value(http.request.headers, "three")
1 has_value(http.request.headers["x-tag"], "two")
1 has_value(waf.rules, 942)
0 has_value(waf.rules, 943)
1 has_value(via.addresses, 127.0.0.1)
1 has_value(lower(http.request.headers["x-tag"][*]), "one")

1 starts_with(http.request.uri.path, "/a/")
0 starts_with(http.request.uri.path, "/b")
1 ends_with(http.request.uri.path, ".html")
0 ends_with(http.request.uri.path, ".htm")
1 starts_with(http.host, concat("w", "w"))
1 starts_with(http.request.uri, http.request.uri.path)
1 ends_with(http.request.uri, http.request.uri.query)
0 ends_with(http.request.uri.query, http.request.uri)
1 len(http.host) eq 15
1 (http.host) eq "www.example.com"
1 ((ssl))
"####;

#[test]
fn conditions_hold_or_do_not() {
    let facts = facts();
    let mut count = 0;
    let mut wrong = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let (expected, text) = line.split_once(' ').unwrap();
        match SCHEME.compile(text, Stage::Response, &LISTS) {
            Ok(predicate) if predicate.matches(&facts) == (expected == "1") => count += 1,
            Ok(_) => wrong.push(format!("not so: {line}")),
            Err(error) => wrong.push(format!("refused: {text}\n    {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 180, "{count}");
}
