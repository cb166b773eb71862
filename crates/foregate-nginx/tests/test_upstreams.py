"""Who answers is chosen by steps: `$foregate_upstream` names one of NGINX's own upstreams."""

import re

from harness import Case, response

# APP and NEXT are origins beside ORIGIN.
UPSTREAMS = "upstream app { server APP; } upstream app-v2 { server NEXT; }"
SITE = UPSTREAMS + """
    log_format told "$foregate_upstream $uri";
    server {
        listen 127.0.0.1:PORT; listen 127.0.0.1:TLS_PORT http2; server_name example.com; root html; access_log told.log told;
        foregate route.kdl upstream=app;
        location / { proxy_pass http://$foregate_upstream; }
        location /error/ { error_page 404 = @other; proxy_intercept_errors on; proxy_pass http://$foregate_upstream; }
        location @other { proxy_pass http://$foregate_upstream; }
        location /try/ { try_files /nothing /moved; }
        location /moved { proxy_pass http://$foregate_upstream; }
        location /own/ { foregate own.kdl upstream=app-v2; proxy_pass http://$foregate_upstream; }
        location /last/ { rewrite ^/last/(.*) /own/$1 last; }
        location /page { ssi on; ssi_types text/plain; }
        location /off/ { foregate off; set $kept "$foregate_upstream"; return 200 "[$kept]"; }
        location /deaf/ { proxy_pass http://app; }
    }
"""
RULE = 'rule #"http.request.headers["x-to"][0] eq "next""# { upstream "app-v2"; }\n'
NEXT = [("X-To", "next")]


class Upstreams(Case):
    def start_site(self, route=RULE, http=SITE, files=None):
        def answer(name):
            return lambda head: response(f"{name} {head.split()[1]}".encode(), status="404 Not Found" if "/missing" in head.split()[1] else "200 OK")

        self.app, self.next = self.origin(answer("app")), self.origin(answer("next"))
        http = http.replace("APP", f"127.0.0.1:{self.app.port}").replace("NEXT", f"127.0.0.1:{self.next.port}")
        return self.start(http, {"route.kdl": route, "own.kdl": "", **(files or {})})

    def test_rules_choose(self):
        nginx = self.start_site()
        self.assertEqual(nginx.get("/a").body, b"app /a", nginx.log())
        self.assertEqual(nginx.get("/a", headers=NEXT).body, b"next /a")
        self.assertEqual(nginx.get("/a", "POST", headers=NEXT, body=b"x" * 100_000).body, b"next /a")
        self.assertEqual(nginx.lines("told.log", 3), ["app /a", "app-v2 /a", "app-v2 /a"])
        self.assertEqual(nginx.get("/off/a").body, b"[]")

    def test_http2(self):
        nginx = self.start_site()
        url = f"http://127.0.0.1:{nginx.tls_port}/a"
        self.assertEqual(nginx.curl(url), b"app /a", nginx.log())
        self.assertEqual(nginx.curl("-H", "X-To: next", url), b"next /a")
        self.assertEqual(nginx.curl("-H", "X-To: next", "-d", "x=y", url), b"next /a")

    def test_a_choice_holds_through_internal_redirects(self):
        nginx = self.start_site()
        for headers, name in [([], b"app"), (NEXT, b"next")]:
            self.assertEqual(nginx.get("/error/missing", headers=headers).body, name + b" /error/missing")
            self.assertEqual(nginx.get("/try/a", headers=headers).body, name + b" /moved", nginx.log())
        # Another file begins anew.
        for headers in [[], NEXT]:
            self.assertEqual(nginx.get("/last/a", headers=headers).body, b"next /own/a")

    def test_parts_of_a_response_come_from_where_the_rest_does(self):
        page = b'[<!--# include virtual="/part" -->|<!--# include virtual="/own/part" -->|<!--# include virtual="/part2" -->]'
        nginx = self.start_site(files={"html/page.txt": page})
        self.assertEqual(nginx.get("/page.txt").body, b"[app /part|next /own/part|app /part2]", nginx.log())
        self.assertEqual(nginx.get("/page.txt", headers=NEXT).body, b"[next /part|next /own/part|next /part2]")

    def test_canaries(self):
        nginx = self.start_site('canary upstream="app-v2" share="50%" cookie="canary" header="x-canary"\n')
        for word, name in [("always", b"next"), ("never", b"app")]:
            got = nginx.get("/a", headers=[("X-Canary", word)])
            self.assertEqual((got.body, got.get("set-cookie")), (name + b" /a", None))
        seen = set()
        for _ in range(40):
            got = nginx.get("/a")
            number = re.match(r"canary=(\d+); Path=/; .*HttpOnly", got.get("set-cookie")).group(1)
            name = b"next" if int(number) < 5000 else b"app"
            self.assertEqual(got.body, name + b" /a")
            again = nginx.get("/b", headers=[("Cookie", f"canary={number}")])
            self.assertEqual((again.body, again.get("set-cookie")), (name + b" /b", None))
            seen.add(name)
        self.assertEqual(seen, {b"next", b"app"})

    def test_a_choice_that_nobody_asks_for_is_told(self):
        nginx = self.start_site()
        self.assertEqual(nginx.get("/deaf/a").body, b"app /deaf/a")
        self.assertNotIn("does not ask $foregate_upstream", nginx.log())
        self.assertEqual(nginx.get("/deaf/a", headers=NEXT).body, b"app /deaf/a")
        self.assertIn("does not ask $foregate_upstream", nginx.log())

    def test_names_are_checked_when_the_configuration_is_read(self):
        blocks = "upstream app { server 127.0.0.1:1; } upstream app-v2 { server 127.0.0.1:1; }"
        location = "location / { proxy_pass http://$foregate_upstream; }"
        directive = "foregate route.kdl upstream=app;"

        def check(route=RULE, blocks=blocks, location=location, directive=directive):
            nginx = self.nginx(f"{blocks} server {{ listen 127.0.0.1:PORT; {directive} {location} }}", {"route.kdl": route})
            checked = nginx.check()
            return checked.returncode, checked.stderr

        self.assertEqual(check()[0], 0, check()[1])
        self.assertEqual(check(route="canary #false\n", location="")[0], 0)
        refused = [
            (dict(route=RULE.replace("app-v2", "app-v3")), ["route.kdl:1:", "has no block `upstream app-v3`", "did you mean \"app-v2\"?"]),
            (dict(route='canary upstream="elsewhere" share="5%"\n'), ["route.kdl:1:17", "write `upstream elsewhere { server ...; }`"]),
            # An upstream that stands for a location is nobody who could answer.
            (dict(route='canary upstream="auth" share="5%"\n', location=location + "foregate_upstream auth /@auth/; location /@auth/ { internal; }"),
             ["has no block `upstream auth`"]),
            (dict(location="location / { proxy_pass http://app; }"), ["nothing in nginx.conf asks for `$foregate_upstream`"]),
            (dict(directive="foregate route.kdl;"), ["does not say to which upstream all other requests go", "upstream=NAME"]),
            (dict(directive="foregate route.kdl upstream=ap;"), ["upstream=ap: nginx.conf has no block `upstream ap`", "did you mean \"app\"?"]),
            (dict(directive="foregate route.kdl upstream=app upstream=app;"), ["invalid parameter \"upstream=app\""]),
            (dict(directive="foregate route.kdl upstream=;"), ["invalid parameter \"upstream=\""]),
        ]
        for change, expected in refused:
            code, said = check(**change)
            self.assertNotEqual(code, 0, change)
            for text in expected:
                self.assertIn(text, said)
