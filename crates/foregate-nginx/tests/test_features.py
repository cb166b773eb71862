"""What modules do inside NGINX, and what is refused there."""

import gzip
import json
import os
import re
import subprocess
import unittest

from harness import Case, MODULES, response


SITE = """
    server {
        listen 127.0.0.1:PORT; server_name example.com; root html;
        foregate route.kdl;
        location /echo { return 200 "in=$http_x_in,cookie=$http_cookie,uri=$uri,args=$args"; }
        location /plain { foregate off; return 200 "plain"; }
        location /origin { proxy_pass http://ORIGIN; proxy_http_version 1.1; }
    }
"""


class Features(Case):
    def test_fields_of_requests_and_responses(self):
        route = """headers {
            request { set "x-in" "one"; remove "x-gone" "cookie"; set "user-agent" "foregate"; add "x-more" "2"; }
            response { set "x-out" "1"; remove "server" "x-origin"; default "cache-control" "no-store"; add "link" "</a>"; }
        }"""
        answer = response(b"hello", fields=[("X-Origin", "1"), ("Cache-Control", "private"), ("Server", "other")])
        origin = self.origin(lambda head: answer)
        nginx = self.start(SITE, {"route.kdl": route}, origin=origin)
        got = nginx.get("/origin/x", headers=[("X-Gone", "1"), ("Cookie", "a=b"), ("Cookie", "c=d"), ("X-Kept", "1"),
                                              ("User-Agent", "test"), ("X-More", "1"), ("X-Last", "9")])
        self.assertEqual((got.status, got.body), (200, b"hello"))
        self.assertEqual((got.get("x-out"), got.get("server"), got.get("x-origin")), ("1", None, None))
        self.assertEqual((got.all("cache-control"), got.all("link")), (["private"], ["</a>"]))
        head = origin.requests[0].lower()
        for field in ["x-in: one", "user-agent: foregate", "x-kept: 1", "x-more: 1", "x-more: 2", "x-last: 9"]:
            self.assertIn(f"\r\n{field}\r\n", head)
        for field in ["x-gone", "cookie", "user-agent: test"]:
            self.assertNotIn(f"\r\n{field}", head)
        got = nginx.get("/echo", headers=[("Cookie", "a=b")])
        self.assertEqual(got.body, b"in=one,cookie=,uri=/echo,args=")
        self.assertEqual(got.get("cache-control"), "no-store")
        got = nginx.get("/plain")
        self.assertEqual((got.body, got.get("x-out")), (b"plain", None))
        self.assertRegex(got.get("server"), "^nginx")

    def test_other_spellings_of_a_name_go(self):
        """CGI programs take `_` for `-`: a client must not say under another spelling what only modules may."""
        route = """headers { request { set "x-real-ip" "192.0.2.1"; remove "x-secret" "x_odd-name"; set "x_under" "ours"; add "x-more" "2"; } }
            rule "true" { set-header "x-user" "rules"; }"""
        origin = self.origin(lambda head: response(b"x"))
        nginx = self.start("underscores_in_headers on;" + SITE, {"route.kdl": route}, origin=origin)
        sent = [("X_Real_IP", "forged"), ("X-Real_IP", "forged"), ("X_Secret", "forged"), ("X-Odd_Name", "forged"), ("X-Odd-Name", "forged"),
                ("x_user", "forged"), ("X-Under", "forged"), ("X_UNDER", "forged"), ("X_Kept", "kept"), ("X_More", "1"), ("X-Real-IPs", "kept")]
        for client in [lambda: nginx.get("/origin/a", headers=sent).body,
                       lambda: nginx.get("/origin/a", headers=[("X-Real-IP", "1"), ("x-user", "2"), *sent, ("X-Real-IP", "3")]).body]:
            self.assertEqual(client(), b"x")
            fields = dict(line.split(": ", 1) for line in origin.requests[-1].lower().split("\r\n")[1:] if line)
            self.assertNotIn("forged", fields.values(), fields)
            self.assertEqual({name: value for name, value in fields.items() if name.startswith("x")},
                             {"x-real-ip": "192.0.2.1", "x_under": "ours", "x_kept": "kept", "x_more": "1", "x-more": "2", "x-user": "rules", "x-real-ips": "kept"})
        # The names of a response are nobody's to take for others.
        nginx = self.start(SITE, {"route.kdl": 'headers { response { remove "x-gone"; } }\n'},
                           origin=self.origin(lambda head: response(b"x", fields=[("X-Gone", "1"), ("X_Gone", "2")])))
        got = nginx.get("/origin/a")
        self.assertEqual((got.get("x-gone"), got.get("x_gone")), (None, "2"))

    def test_fields_that_nginx_keeps_elsewhere(self):
        route = """headers { response {
            set "content-type" "text/css; charset=utf-8"; remove "last-modified" "etag" "content-length"; } }"""
        with_length = 'headers { response { set "content-type" "text/css; charset=utf-8"; remove "last-modified" "etag"; } }'
        nginx = self.nginx(SITE, {"route.kdl": route, "html/a.html": "<p>"})
        self.assertIn("framing", nginx.check().stderr)
        nginx.write("route.kdl", with_length)
        nginx.start()
        got = nginx.get("/a.html")
        self.assertEqual((got.get("content-type"), got.get("last-modified"), got.get("etag")),
                         ("text/css; charset=utf-8", None, None))
        self.assertEqual((got.get("content-length"), got.body), ("3", b"<p>"))

    def test_requests_that_are_answered(self):
        route = """
            access { deny "192.0.2.0/24"; allow "127.0.0.0/8"; }
            redirect "/old" to="/new" status=301
            redirect "/deep/**" to="https://example.org/${1}" keep-query=#true
            security-headers
            security-txt { contact "mailto:security@example.com"; expires "2030-01-01T00:00:00Z"; }
            cors { origins "https://app.example.com"; methods "GET" "PUT"; }
        """
        nginx = self.start(SITE, {"route.kdl": route, "html/new": "new"})
        self.assertIn(b"Contact: mailto:security@example.com", nginx.get("/.well-known/security.txt").body)
        got = nginx.get("/new", "OPTIONS", [("Origin", "https://app.example.com"), ("Access-Control-Request-Method", "PUT")])
        self.assertEqual((got.status, got.get("access-control-allow-origin")), (204, "https://app.example.com"))
        got = nginx.get("/new", headers=[("Origin", "https://app.example.com")])
        self.assertEqual((got.status, got.get("access-control-allow-origin")), (200, "https://app.example.com"))
        got = nginx.get("/old")
        self.assertEqual((got.status, got.get("location"), got.body), (301, "/new", b""))
        self.assertEqual(got.get("x-content-type-options"), "nosniff")
        got = nginx.get("/deep/a/b?c=d", method="POST", body=b"x" * 100000)
        self.assertEqual((got.status, got.get("location")), (302, "https://example.org/a/b?c=d"))
        self.assertEqual(nginx.get("/new").body, b"new")
        self.assertEqual(nginx.get("/old", method="HEAD").status, 301)

    def test_rules_rewrite_and_stop(self):
        route = """
            rule #"http.request.uri.path eq "/stop""# name="stop" { block 451; }
            rule #"starts_with(http.request.uri.path, "/echo/a")"# { rewrite path="/echo/b c" query="x=1"; log "was" "a"; }
            rule #"http.response.code eq 404"# phase="response" { set-response-header "x-missing" "1"; }
        """
        nginx = self.start(SITE, {"route.kdl": route})
        self.assertEqual(nginx.get("/stop").status, 451)
        self.assertEqual(nginx.get("/echo/a/b?y=2").body, b"in=,cookie=,uri=/echo/b c,args=x=1")
        self.assertEqual(nginx.get("/echo/z?y=2").body, b"in=,cookie=,uri=/echo/z,args=y=2")
        self.assertEqual(nginx.get("/nothing").get("x-missing"), "1")
        origin = self.origin(lambda head: response(b"x"))
        nginx = self.start(SITE, {"route.kdl": 'rule "true" { rewrite path="/b c/%41%2f"; }'}, origin=origin)
        nginx.get("/origin/x?q=1")
        self.assertIn("GET /b%20c/A/?q=1 HTTP/1.1", origin.requests[0])

    def test_what_a_rule_makes_no_path_of_goes_to_no_origin(self):
        route = 'rule "true" { rewrite path=#"concat("/files", http.request.uri.path)"# expression=#true; }'
        origin = self.origin(lambda head: response(b"x"))
        nginx = self.start(SITE, {"route.kdl": route}, origin=origin)
        for path in ["/%252e%252e/admin", "/%252e%252e%252fadmin", "/..%252fadmin", "/..%253b/admin", "/..%3f", "/..%23x"]:
            self.assertEqual(nginx.get("/origin" + path).status, 400, path)
        self.assertEqual(origin.requests, [])
        self.assertEqual(nginx.get("/origin/a..b").status, 200)
        self.assertIn("GET /files/origin/a..b HTTP/1.1", origin.requests[0])

    def test_the_path_that_rules_see_is_the_normal_one(self):
        route = """
            headers { response { set "x-path" expression="http.request.uri.path"; set "x-query" expression="http.request.uri.query"; set "x-host" expression="http.host"; } }
        """
        nginx = self.start(SITE, {"route.kdl": route})
        got = nginx.get("/plain/../echo//%7euser/%2e/a%2Fb?q=%41", headers=[("Host", "EXAMPLE.com:8080")])
        self.assertEqual((got.get("x-path"), got.get("x-query"), got.get("x-host")),
                         ("/echo/~user/a%2Fb", "q=%41", "example.com"))

    def test_trusted_proxies_name_the_client(self):
        route = 'trusted-proxies "127.0.0.0/8" header="x-forwarded-for"\naccess { deny "198.51.100.0/24"; }\n'
        http = 'log_format told "$remote_addr $foregate_client";' + SITE.replace("root html;", "root html; access_log told.log told;")
        nginx = self.start(http, {"route.kdl": route})
        self.assertEqual(nginx.get("/echo", headers=[("X-Forwarded-For", "192.0.2.7")]).status, 200)
        self.assertEqual(nginx.get("/echo", headers=[("X-Forwarded-For", "198.51.100.7")]).status, 403)
        self.assertEqual(nginx.lines("told.log", 2), ["127.0.0.1 192.0.2.7", "127.0.0.1 198.51.100.7"])

    def test_access_and_rate_limit(self):
        route = 'access { deny "127.0.0.0/8"; }\n'
        nginx = self.start(SITE, {"route.kdl": route})
        self.assertEqual(nginx.get("/echo").status, 403)
        self.assertEqual(nginx.get("/plain").status, 200)
        limited = self.start(SITE, {"route.kdl": 'rate-limit 3 per="1m"\n'})
        statuses = [limited.get("/echo").status for _ in range(5)]
        self.assertEqual(statuses, [200, 200, 200, 429, 429])

    def test_error_pages_replace(self):
        route = 'error-pages of="both" { page 404 502 text="<h1>{status} of foregate</h1>" type="text/html"; }\nheaders { response { set "x-out" "1"; } }\n'
        origin = self.origin(lambda head: response(b"x" * 200000, status="404 Not Found", pieces=1000))
        nginx = self.start(SITE, {"route.kdl": route}, origin=origin)
        for path in ["/nothing", "/origin/nothing"]:
            got = nginx.get(path)
            self.assertEqual((got.status, got.body), (404, b"<h1>404 of foregate</h1>"), path)
            self.assertEqual((got.get("x-out"), got.get("content-length")), ("1", "24"))
            got = nginx.get(path, method="HEAD")
            self.assertEqual((got.status, got.body, got.get("content-length")), (404, b"", "24"))
        self.assertEqual(nginx.curl(nginx.url("/nothing")), b"")

    def test_error_pages_leave_what_is_meant(self):
        pages = 'error-pages { page "4xx" "5xx" text="page"; }\n'
        for route, body in [('rule "true" { block 403 "own"; }', b"own"), ('rule "true" { block 403; }', b"page"),
                            ('maintenance body="own"', b"own"), ("maintenance", b"page")]:
            self.assertEqual(self.start(SITE, {"route.kdl": pages + route + "\n"}).get("/echo").body, body, route)
        route = pages + 'security-headers { content-security-policy "default-src \'self\'"; force; }\n'
        route += 'rule "true" { challenge key="0123456789abcdef"; }\n'
        got = self.start(SITE, {"route.kdl": route}).get("/echo")
        nonce = got.body.split(b'<script nonce="')[1].split(b'"')[0].decode()
        self.assertEqual(got.get("content-security-policy").split(";")[0], f"script-src 'nonce-{nonce}'")

    def test_the_error_page_of_an_origin_that_is_gone(self):
        route = 'error-pages { page "5xx" text="gone"; }\n'
        nginx = self.start(SITE, {"route.kdl": route})
        got = nginx.get("/origin/x")
        self.assertEqual((got.status, got.body), (502, b"gone"))

    def test_compression_here_and_there(self):
        body = b"<p>" + b"some text " * 5000
        packed = gzip.compress(body)
        origin = self.origin(lambda head: response(packed, fields=[("Content-Encoding", "gzip"), ("Content-Type", "text/html"), ("ETag", '"a"')], pieces=777))
        nginx = self.start("gzip on; gzip_proxied any; gzip_http_version 1.0;" + SITE,
                           {"route.kdl": 'decompress { responses "always"; }\nheaders { response { set "x-out" "1"; } }'}, origin=origin)
        got = nginx.get("/origin/a", headers=[("Accept-Encoding", "gzip")])
        self.assertEqual((got.get("content-encoding"), gzip.decompress(got.body)), ("gzip", body))
        self.assertEqual(got.get("etag"), 'W/"a"')
        got = nginx.get("/origin/a")
        self.assertEqual((got.get("content-encoding"), got.body), (None, body))
        ours = self.start("gzip on; gzip_proxied any;" + SITE, {"route.kdl": "compress", "html/a.html": body})
        got = ours.get("/a.html", headers=[("Accept-Encoding", "gzip")])
        self.assertEqual((got.get("content-encoding"), gzip.decompress(got.body)), ("gzip", body))

    def test_the_firewall_stops_requests_and_responses(self):
        rules = """
SecRuleEngine On
SecRequestBodyAccess On
SecResponseBodyAccess On
SecResponseBodyMimeType text/html
SecRule ARGS_GET "@contains <script" "id:1,phase:1,deny,status:403"
SecRule ARGS_POST:comment "@contains union select" "id:2,phase:2,deny,status:406,t:lowercase"
SecRule RESPONSE_BODY "@contains secret" "id:3,phase:4,deny,status:403"
"""
        route = 'waf mode="block" log="waf.log" { rules "rules.conf"; body-limit "1MiB"; }\n'
        page = b"<p>" + b"text " * 10_000
        origin = self.origin(lambda head: response(page + (b"" if "fine" in head else b"secret"), fields=[("Content-Type", "text/html")], pieces=999))
        nginx = self.start(SITE, {"route.kdl": route, "rules.conf": rules}, origin=origin)
        form = [("Content-Type", "application/x-www-form-urlencoded")]
        self.assertEqual(nginx.get("/echo?a=%3Cscript%3E").status, 403)
        self.assertEqual(nginx.get("/origin/", "POST", form, b"comment=Union+SELECT+1").status, 406)
        self.assertEqual(origin.requests, [])
        self.assertEqual(nginx.get("/origin/").status, 403)
        got = nginx.get("/origin/fine", "POST", form, b"comment=fine")
        self.assertEqual((got.status, got.body), (200, page))
        self.assertEqual(len(nginx.lines("waf.log", 3)), 3)

    def test_html_is_rewritten(self):
        """Some thousand addresses, in pieces: each comes back as the script of the page reads it."""
        part = "<p>write to u{0}@example.com or <a href=\"mailto:v{0}@example.org\">V</a>, not to logo@2x.png</p>\n"
        page = ("<!doctype html><body>" + "".join(part.format(number) for number in range(3000))).encode()
        origin = self.origin(lambda head: response(page, fields=[("Content-Type", "text/html; charset=utf-8")], pieces=1777))
        nginx = self.start(SITE, {"route.kdl": "html-emails\n", "html/a.html": page}, origin=origin)
        got = nginx.get("/origin/")
        self.assertNotIn(b"@example", got.body)
        self.assertEqual((got.body.count(b"data-fg-email="), got.body.count(b"logo@2x.png")), (6000, 3000))
        # The first byte is combined with each of the others.
        found = [bytes.fromhex(text.decode()) for text in re.findall(b'data-fg-email="?([0-9a-f]+)', got.body)]
        addresses = [bytes(byte ^ text[0] for byte in text[1:]).decode() for text in found]
        self.assertEqual(addresses, [f"{name}{number}@example.{end}" for number in range(3000) for name, end in [("u", "com"), ("v", "org")]])
        self.assertEqual(nginx.get("/.foregate/email-decode.min.js").status, 200)

    def test_parts_of_documents_are_counted_or_not_asked_for(self):
        page, kind = b"<p>a@example.com</p>", ("Content-Type", "text/html; charset=utf-8")

        def answer(head):
            if "range:" not in head.lower():
                return response(page, fields=[kind])
            return response(page[3:9], "206 Partial Content", [kind, ("Content-Range", f"bytes 3-8/{len(page)}")])

        http = 'log_format told escape=none "$foregate_events";' + SITE.replace("root html;", "root html; access_log told.log told;")
        whole = 'headers { request { remove "range" "if-range"; } }\n'
        fields = [("Range", "bytes=3-8"), ("If-Range", '"x"')]
        for route, status in [("html-emails\n", 206), ("html-emails\n" + whole, 200)]:
            nginx = self.start(http, {"route.kdl": route}, origin=self.origin(answer))
            got = nginx.get("/origin/", headers=fields)
            self.assertEqual((got.status, b"data-fg-email" in got.body), (status, status == 200))
            told = nginx.lines("told.log", 1)[0]
            self.assertEqual("html-choose.part-passed=1" in told, status == 206, told)

    def test_notes_events_and_steps_are_told(self):
        route = 'redirect "/old" to="/new"\naccess dry-run=#true { deny "127.0.0.0/8"; }\n'
        http = 'log_format told escape=none "$foregate_step|$foregate_notes|$foregate_panics";' + SITE.replace(
            "root html;", "root html; access_log told.log told;")
        nginx = self.start(http, {"route.kdl": route})
        self.assertEqual(nginx.get("/old").status, 302)
        self.assertEqual(nginx.get("/echo").status, 200)
        lines = nginx.lines("told.log", 2)
        self.assertEqual(lines[0].split("|")[0], "redirect")
        self.assertIn('"dry-run":"access: respond 403"', lines[1])
        self.assertTrue(lines[1].endswith("|0"))

    def test_several_values_of_a_note_are_an_array(self):
        route = 'access dry-run=#true { deny "127.0.0.0/8"; }\nmaintenance dry-run=#true\n'
        http = "log_format told escape=none $foregate_notes;" + SITE.replace("root html;", "root html; access_log told.log told;")
        nginx = self.start(http, {"route.kdl": route})
        self.assertEqual(nginx.get("/echo").status, 200)
        noted = json.loads(nginx.lines("told.log", 1)[0])["dry-run"]
        self.assertEqual(sorted(noted), ["access: respond 403", "maintenance: respond 503"])

    def test_the_handshake_is_known(self):
        route = 'headers { response { set "x-tls" expression="tls.version"; set "x-scheme" expression="ip.src"; set "x-name" expression="tls.server_name"; } }'
        http = """server { listen 127.0.0.1:PORT; listen 127.0.0.1:TLS_PORT ssl; server_name example.com;
            ssl_certificate cert.pem; ssl_certificate_key key.pem; foregate route.kdl; location / { return 200 "x"; } }"""
        nginx = self.nginx(http, {"route.kdl": route})
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                        "/CN=example.com", "-keyout", "key.pem", "-out", "cert.pem"], cwd=nginx.folder, check=True,
                       capture_output=True)
        checked = nginx.check()
        if checked.returncode:
            self.fail(checked.stderr)
        nginx.start()
        got = nginx.get("/", tls=True)
        self.assertIn(got.get("x-tls"), ["TLSv1.2", "TLSv1.3"])
        self.assertEqual(got.get("x-scheme"), "127.0.0.1")
        got = nginx.get("/")
        self.assertEqual((got.get("x-tls"), got.get("x-scheme")), (None, "127.0.0.1"))


class Refused(Case):
    """What cannot be done inside NGINX is said when the file is read, and where."""

    FINE = 'headers { response { remove "x"; } }\n'

    def refused(self, route, expected, directive="foregate route.kdl;", more=None):
        files = {"route.kdl": route, **(more or {})}
        nginx = self.nginx(f"server {{ listen 127.0.0.1:PORT; {directive} }}", files)
        checked = nginx.check()
        self.assertNotEqual(checked.returncode, 0, route)
        for text in [expected] if isinstance(expected, str) else expected:
            self.assertIn(text, checked.stderr)

    def test_mistakes_have_their_place(self):
        self.refused("headers {\n  respons\n}\n", ["route.kdl:2:3: error", "did you mean `response`?"])
        self.refused("heders\n", ["route.kdl:1:1: error: `heders` is not known", "did you mean `headers`?"])
        self.refused("headers {", "route.kdl:1:")
        self.refused("", "cannot read", "foregate missing.kdl;")

    def test_what_belongs_to_nginx(self):
        self.refused('proxy "app"\n', ["`proxy` does not stand in a route file of NGINX", "proxy_pass"])
        self.refused('site "*" {\n}\n', "the server is the site")

    def test_what_has_no_place_inside_nginx(self):
        self.refused('upstream "app" { server "127.0.0.1:1"; }\n', ["route.kdl:1:1", "upstreams are NGINX's own"])
        self.refused('error-pages { page 404 upstream="pages" path="/404.html"; }\n',
                     ["route.kdl:1:", "no `foregate_upstream` in nginx.conf says what `pages` is"])

    def test_slices_of_what_is_changed(self):
        """They would pass by the filters."""
        route = 'substitute { replace "a" "b"; }\n'
        passes = "proxy_pass http://127.0.0.1:1;"
        for directive in [f"slice 1k; foregate route.kdl; location / {{ {passes} }}",
                          f"location / {{ slice 1k; foregate route.kdl; {passes} }}",
                          f"location / {{ slice 1k; foregate route.kdl; if ($arg_a) {{ {passes} }} }}",
                          f"slice 1k; location / {{ foregate route.kdl; location /a {{ {passes} }} }}"]:
            self.refused(route, ['"slice" is on in a location', "slice 0;"], directive)
        looks = 'SecResponseBodyAccess On\nSecRule RESPONSE_BODY "@contains secret" "id:1,phase:4,deny"\n'
        held = {"route.kdl": 'waf mode="block" { rules "r.conf"; }\n', "r.conf": looks}
        nginx = self.nginx(f"server {{ listen 127.0.0.1:PORT; location / {{ slice 1k; foregate route.kdl; {passes} }} }}", held)
        self.assertIn('"slice" is on in a location', nginx.check().stderr)
        for directive in [f"location /a {{ slice 1k; foregate off; {passes} }} foregate route.kdl;",
                          f"slice 0; foregate route.kdl; location / {{ {passes} }}",
                          f"foregate other.kdl; slice 1k; location / {{ {passes} }}",
                          # Each location of its own, whatever the server says.
                          f"foregate route.kdl; slice 1k; location / {{ slice 0; {passes} }} location /a {{ foregate off; {passes} }}",
                          "foregate route.kdl; slice 1k; location / { } location /a { return 204; }"]:
            files = {"route.kdl": route, "other.kdl": self.FINE + 'access { allow "127.0.0.0/8"; }\n'}
            nginx = self.nginx(f"server {{ listen 127.0.0.1:PORT; {directive} }}", files)
            self.assertEqual(nginx.check().stderr.count("emerg"), 0, f"{directive} {nginx.check().stderr}")

    def test_slices_beside_what_is_changed(self):
        """Where a server says both, and no location of it does."""
        body = b"a0123456789" * 1000

        def answer(head):
            asked = re.search(r"(?i)range: bytes=(\d+)-(\d+)", head)
            if not asked:
                return response(body, fields=[("Content-Type", "text/plain")])
            first, last = (int(number) for number in asked.groups())
            part = body[first:last + 1]
            fields = [("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(body)}"), ("ETag", '"x"')]
            return response(part, "206 Partial Content", fields)

        origin = self.origin(answer)
        nginx = self.start("""
            slice 1k;
            server {
                listen 127.0.0.1:PORT; root html; foregate route.kdl;
                location /files/ { }
                location / { slice 0; proxy_pass http://ORIGIN; }
                location /video/ { foregate off; proxy_set_header Range $slice_range; proxy_http_version 1.1; proxy_pass http://ORIGIN; }
            }""", {"route.kdl": 'substitute { replace "a0" "b"; }\n', "html/files/a.txt": body}, origin=origin)
        for path in ["/files/a.txt", "/page"]:
            self.assertTrue(nginx.get(path).body == body.replace(b"a0", b"b"), path)
            self.assertTrue(nginx.get(path, headers=[("Range", "bytes=0-2000")]).status in [200, 206])
        asked = len(origin.requests)
        self.assertTrue(nginx.get("/video/a").body == body)
        self.assertEqual(len(origin.requests) - asked, 11)

    def test_the_directive(self):
        self.refused(self.FINE, "off=headerss: the file has no such key", "foregate route.kdl off=headerss;")
        self.refused(self.FINE, "is duplicate", "foregate route.kdl; foregate route.kdl;")
        self.refused(self.FINE, 'invalid parameter "on=x"', "foregate route.kdl on=x;")


@unittest.skipUnless(os.path.exists(os.path.join(MODULES, "ngx_http_lua_module.so")) and not os.environ.get("NO_LUA"),
                     "NGINX has no Lua here")
class Lua(Case):
    HTTP = """
        lua_package_path "/usr/share/lua/5.1/?.lua;;";
        server {
            listen 127.0.0.1:PORT;
            server_rewrite_by_lua_block {
                local early = ngx.var.arg_early
                if early then require("features").set(early, true) end
            }
            location / {
                foregate route.kdl off=headers off=access;
                access_by_lua_block {
                    local features = require "features"
                    ngx.ctx.said = features.set(ngx.var.arg_on or "none", true)
                    if ngx.var.arg_off then features.set(ngx.var.arg_off, false) end
                }
                content_by_lua_block { ngx.say(tostring(ngx.ctx.said)) }
            }
        }
    """
    FEATURES = """
        local ffi = require "ffi"
        local base = require "resty.core.base"
        ffi.cdef[[
            int foregate_feature_enable(void *r, const char *name);
            int foregate_feature_disable(void *r, const char *name);
        ]]
        local features = {}
        function features.set(name, on)
            local r = base.get_request()
            if on then return ffi.C.foregate_feature_enable(r, name) end
            return ffi.C.foregate_feature_disable(r, name)
        end
        return features
    """
    ROUTE = 'headers { response { set "x-out" "1"; } }\nsecurity-headers\naccess { deny "127.0.0.0/8"; }\n'

    def test_features_are_switched_by_request(self):
        http = self.HTTP.replace("?.lua;;", "?.lua;FOLDER/?.lua;;")
        nginx = self.nginx(http, {"route.kdl": self.ROUTE, "features.lua": self.FEATURES},
                           extra_modules=["ndk_http_module.so", "ngx_http_lua_module.so"])
        nginx.write("nginx.conf", nginx.read("nginx.conf").replace("FOLDER", nginx.folder))
        nginx.start()
        got = nginx.get("/")
        self.assertEqual((got.status, got.body, got.get("x-out")), (200, b"-1\n", None), nginx.log())
        self.assertEqual(got.get("x-content-type-options"), "nosniff")
        got = nginx.get("/?on=headers&off=security-headers")
        self.assertEqual((got.body, got.get("x-out"), got.get("x-content-type-options")), (b"1\n", "1", None))
        got = nginx.get("/?on=access")
        self.assertEqual((got.status, got.body), (200, b"0\n"), "the steps of access have had their turn")
        self.assertEqual(nginx.get("/?early=access").status, 403)
        self.assertEqual(nginx.get("/").status, 200)
