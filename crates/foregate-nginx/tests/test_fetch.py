"""What steps have fetched inside NGINX: by subrequests to locations that stand for upstreams."""

import re
import socket
import threading
import time

from harness import PATIENCE, Case, response

# AUTH is another origin than ORIGIN.
SITE = """
    proxy_connect_timeout 3s;
    server {
        listen 127.0.0.1:PORT; listen 127.0.0.1:TLS_PORT http2; server_name example.com; root html;
        foregate_upstream auth /@auth/;
        foregate route.kdl;
        location /@auth/ { internal; proxy_pass http://AUTH/; proxy_set_header Host $http_host; }
        location / { proxy_pass http://ORIGIN; proxy_http_version 1.1; }
        location /files/ { alias html/; }
        location /off/ { foregate off; proxy_pass http://ORIGIN; }
    }
"""
FORWARD = """forward-auth upstream="auth" path="/verify?from=nginx" timeout="TIME" {
    send "x-api-key"
    copy "x-user"
    copy-to-response "x-session"
}
"""


def told(head, name):
    """The values of a field in a head."""
    return re.findall(rf"(?im)^{re.escape(name)}: (.*)\r$", head)


class Asking(Case):
    def start_site(self, route, auth, origin=None, http=SITE, files=None, **options):
        """`auth` says what the upstream answers; None: nobody is there."""
        self.site = origin or self.origin(lambda head: response(b"page", fields=[("X-Origin", "1")]))
        self.auth = self.origin(auth) if auth else None
        http = http.replace("AUTH", f"127.0.0.1:{self.auth.port}" if auth else "127.0.0.1:1")
        return self.start(http, {"route.kdl": route, **(files or {})}, origin=self.site, **options)


class ForwardAuth(Asking):
    def start_auth(self, auth, time="20s", **options):
        return self.start_site(FORWARD.replace("TIME", time), auth, **options)

    def test_who_is_let_in_is_named_to_the_origin(self):
        nginx = self.start_auth(lambda head: response(b"fine", fields=[("X-User", "anna"), ("X-Session", "9"), ("X-Other", "1")]))
        for _ in range(3):
            got = nginx.get("/a/b?c=d", headers=[("X-User", "forged"), ("Cookie", "a=b"), ("Cookie", "c=d"), ("X-Api-Key", "k"),
                                                 ("X-Kept", "1"), ("If-None-Match", '"x"'), ("X-Forwarded-Method", "PUT")])
            self.assertEqual((got.status, got.body, got.get("x-session"), got.get("x-other")), (200, b"page", "9", None), nginx.log())
        asked, head = self.auth.requests[0], self.site.requests[0]
        self.assertTrue(asked.startswith("GET /verify?from=nginx HTTP/1."), asked)
        for name, values in {"host": ["example.com"], "cookie": ["a=b; c=d"], "x-api-key": ["k"], "x-forwarded-method": ["GET"],
                             "x-forwarded-uri": ["/a/b?c=d"], "x-forwarded-host": ["example.com"], "x-forwarded-for": ["127.0.0.1"],
                             "x-kept": [], "if-none-match": [], "x-user": []}.items():
            self.assertEqual(told(asked, name), values, asked)
        for name, values in {"x-user": ["anna"], "x-kept": ["1"], "cookie": ["a=b", "c=d"], "x-session": []}.items():
            self.assertEqual(told(head, name), values, head)
        self.assertEqual((len(self.auth.requests), len(self.site.requests)), (3, 3))

    def test_the_answer_of_who_refuses_goes_to_the_client(self):
        def auth(head):
            if "out" in told(head, "x-forwarded-uri")[0]:
                return response(b"go", status="302 Found", fields=[("Location", "https://login.example.com/?a=1"), ("Set-Cookie", "x=1")])
            return response(b"who?", status="401 Unauthorized", fields=[("WWW-Authenticate", "Bearer"), ("X-Other", "1"), ("Content-Type", "text/html")])

        nginx = self.start_auth(auth)
        for method in ["GET", "HEAD", "POST"]:
            got = nginx.get("/in", method, body=b"x" * 100_000 if method == "POST" else None)
            self.assertEqual((got.status, got.get("www-authenticate"), got.get("content-type"), got.get("x-other")), (401, "Bearer", "text/html", None))
            self.assertEqual(got.body, b"" if method == "HEAD" else b"who?")
        got = nginx.get("/out")
        self.assertEqual((got.status, got.get("location"), got.get("set-cookie")), (302, "https://login.example.com/?a=1", "x=1"))
        self.assertEqual(self.site.requests, [])

    def test_bodies_go_to_the_origin_and_not_to_who_is_asked(self):
        bodies = []

        def auth(head):
            bodies.append((told(head, "content-length"), told(head, "transfer-encoding"), told(head, "x-forwarded-method")))
            return response(b"")

        nginx = self.start_auth(auth, origin=self.origin(lambda head: response(b"+".join(value.encode() for value in told(head, "content-length")))))
        for size in [0, 10, 100_000, 3_000_000]:
            got = nginx.get("/", "POST", body=b"x" * size)
            self.assertEqual((got.status, got.body), (200 if size < 1 << 20 else 413, got.body), size)
            if got.status == 200:
                self.assertEqual(got.body, str(size).encode())
        self.assertEqual(set(map(str, bodies)), {str(([], [], ["POST"]))})

    def test_http2(self):
        nginx = self.start_auth(lambda head: response(b"", fields=[("X-User", "anna")]))
        url = f"http://127.0.0.1:{nginx.tls_port}"
        self.assertEqual(nginx.curl(f"{url}/a"), b"page", nginx.log())
        self.assertEqual(nginx.curl(f"{url}/a", "-d", "x=y"), b"page")
        self.assertEqual([told(head, "x-user") for head in self.site.requests], [["anna"]] * 2)

    def test_files_and_what_has_no_route(self):
        nginx = self.start_auth(lambda head: response(b"", status="204 No Content", length=False), files={"html/a.txt": b"file"})
        self.assertEqual(nginx.get("/files/a.txt").body, b"file")
        self.assertEqual((nginx.get("/off/a").status, len(self.auth.requests)), (200, 1))
        self.assertEqual(nginx.get("/@auth/verify").status, 404, "clients cannot ask it")

    def test_nobody_comes_in_without_an_answer(self):
        broken = {
            "no connection": None,
            "no answer": lambda head: [],
            "half a head": lambda head: [b"HTTP/1.1 200 OK\r\nConte"],
            "half a body": lambda head: [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"],
            "half a chunk": lambda head: [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal"],
            "no HTTP": lambda head: [b"SSH-2.0\r\n\r\n"],
            "too much": lambda head: response(b"x" * 65537),
            "much too much": lambda head: [b"HTTP/1.1 200 OK\r\n\r\n"] + [b"x" * 65536] * 200,
        }
        for what, auth in broken.items():
            nginx = self.start_auth(auth, http=SITE.replace("location /@auth/ {", "location /@auth/ { proxy_http_version 1.1;"))
            for _ in range(2):
                got = nginx.get("/a")
                self.assertEqual((got.status, got.body), (503, b"Authentication is not available\n"), what)
            self.assertEqual(self.site.requests, [], what)

    def test_the_largest_answer(self):
        nginx = self.start_auth(lambda head: response(b"x" * 65536, status="403 Forbidden", pieces=1000))
        self.assertEqual(nginx.get("/a").body, b"x" * 65536)

    def test_an_answer_that_comes_too_late_is_not_waited_for(self):
        closed = threading.Event()

        def auth(head):
            yield b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" if "/begun" in head else b""
            for _ in range(PATIENCE * 10):
                time.sleep(0.1)
                try:
                    yield b"x" if "/begun" in head else b"H"
                except GeneratorExit:
                    closed.set()
                    raise

        nginx = self.start_auth(auth, time="500ms")
        with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
            client.settimeout(PATIENCE)
            for path in ["begun", "silent"]:
                began = time.monotonic()
                client.sendall(f"GET /{path} HTTP/1.1\r\nHost: example.com\r\n\r\n".encode())
                got = b""
                while b"not available\n" not in got:
                    data = client.recv(65536)
                    self.assertTrue(data, got)
                    got += data
                self.assertTrue(got.startswith(b"HTTP/1.1 503"), got)
                self.assertGreater(time.monotonic() - began, 0.4)
                self.assertLess(time.monotonic() - began, PATIENCE / 2)
        self.assertTrue(closed.wait(PATIENCE), "the connection to it is closed")

    def test_a_client_that_goes_ends_its_question(self):
        waits, closed = threading.Event(), threading.Event()

        def auth(head):
            waits.set()
            try:
                while True:
                    time.sleep(0.05)
                    yield b"HTTP/1.1 200 OK\r\n" if not closed.is_set() else b""
            finally:
                closed.set()

        nginx = self.start_auth(auth, time="60s")
        with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
            client.sendall(b"GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n")
            self.assertTrue(waits.wait(PATIENCE))
        self.assertTrue(closed.wait(PATIENCE), nginx.log())
        self.assertEqual(nginx.get("/off/a").status, 200)

    def test_an_include_has_steps_of_its_own(self):
        http = """server { listen 127.0.0.1:PORT; server_name example.com; root html; foregate_upstream auth /@auth/;
            location /@auth/ { internal; proxy_pass http://AUTH/; }
            location /page { ssi on; ssi_types text/plain; }
            location /part/ { foregate route.kdl; proxy_pass http://ORIGIN; } }"""
        page = b'[<!--# include virtual="/part/1" -->|<!--# include virtual="/part/2" -->|<!--# include virtual="/part/out" -->]'

        def auth(head):
            time.sleep(0.1 if "/1" in head else 0)
            return response(b"out", status="403 Forbidden") if "/out" in head else response(b"", fields=[("X-User", "anna")])

        nginx = self.start_auth(auth, http=http, files={"html/page.txt": page},
                                origin=self.origin(lambda head: response(f"{head.split()[1]} of {told(head, 'x-user')}".encode())))
        self.assertEqual(nginx.get("/page.txt").body, b"[/part/1 of ['anna']|/part/2 of ['anna']|out]", nginx.log())

    def test_steps_before_and_behind_it(self):
        """Steps see what was answered; a body that is looked at is read afterwards; a step that panics ends the request."""
        route = FORWARD.replace("TIME", "5s") + """
            headers {
                request { set "x-seen" expression=#"http.request.headers["x-user"][0]"#; }
                response { set "x-out" "1"; }
            }
            probe body="1000B"
        """
        nginx = self.start_site(route, lambda head: response(b"", fields=[("X-User", "anna")]))
        got = nginx.get("/a")
        self.assertEqual((got.status, got.get("x-out"), told(self.site.requests[0], "x-seen")), (200, "1", ["anna"]), nginx.log())
        got = nginx.get("/a", "POST", body=b"y" * 500)
        self.assertEqual((got.status, got.body, told(self.site.requests[-1], "x-body")), (200, b"page", ["500 true"]))
        got = nginx.get("/a", "POST", body=b"an attack")
        self.assertEqual((got.status, got.body), (403, b"refused"))
        nginx = self.start_site(FORWARD.replace("TIME", "5s") + 'probe panic="response"\n', lambda head: response(b""))
        self.assertEqual(nginx.get("/a").status, 500)

    def test_a_location_that_another_takes_the_place_of_is_not_asked(self):
        http = SITE.replace("location / {", r"location ~ verify { proxy_pass http://ORIGIN; } location / {")
        nginx = self.start_auth(lambda head: response(b""), http=http)
        self.assertEqual(nginx.get("/a").status, 503)
        self.assertIn("which is not internal", nginx.log())
        self.assertEqual((self.auth.requests, self.site.requests), ([], []))

    def test_an_error_page_of_the_location_answers(self):
        http = SITE.replace("location /@auth/ {", "location = /let { internal; return 204; } location /@auth/ { error_page 502 =204 /let;")
        nginx = self.start_auth(None, http=http)
        self.assertEqual(nginx.get("/a").status, 200)


class Names(Case):
    """What stands for an upstream is checked when the configuration is read."""

    ROUTE = '\nforward-auth upstream="auth" path="/verify"\n'
    LOCATION = "location /@auth/ { internal; proxy_pass http://127.0.0.1:1/; }"

    def check(self, server, route=ROUTE, http=""):
        nginx = self.nginx(f"{http} server {{\n listen 127.0.0.1:PORT; server_name a.example;\n{server}\n }}", {"route.kdl": route})
        return nginx.check()

    def refused(self, expected, *arguments, **options):
        checked = self.check(*arguments, **options)
        self.assertNotEqual(checked.returncode, 0)
        for text in expected:
            self.assertIn(text, checked.stderr)

    def taken(self, *arguments, **options):
        checked = self.check(*arguments, **options)
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_a_name_must_stand_for_something(self):
        self.refused(["route.kdl:2:23", "no `foregate_upstream` in nginx.conf says what `auth` is",
                      "write `foregate_upstream auth /@auth/;`", "nginx.conf:"], "foregate route.kdl;")
        self.refused(["did you mean \"auht\"?"], f"foregate route.kdl; foregate_upstream auht /@auth/; {self.LOCATION}")

    def test_where_it_may_stand(self):
        self.taken(f"foregate route.kdl; foregate_upstream auth /@auth/; {self.LOCATION}")
        self.taken(f"{self.LOCATION} foregate_upstream auth /@auth; location /x {{ foregate route.kdl; }}".replace("/@auth/ {", "/@auth {"))
        self.taken(f"{self.LOCATION} location /x {{ foregate route.kdl; foregate_upstream auth /@auth/; location /x/y {{ }} }}")
        self.taken(self.LOCATION, http="foregate_upstream auth /@auth/; foregate route.kdl;")
        # What nobody asks needs no location.
        self.taken("foregate_upstream auth /@auth/; foregate route.kdl;", route="")
        self.taken("", http="foregate_upstream auth /@auth/;")
        self.refused(["says what `auth` is"], f"{self.LOCATION} foregate route.kdl; location /x {{ foregate_upstream auth /@auth/; }}")

    def test_the_location_must_be_there_and_internal(self):
        place = "nginx.conf:12"
        self.refused(["the server \"a.example\" has no location \"/@auth/\"", place], "\nforegate_upstream auth /@auth/; foregate route.kdl; location / { }")
        self.refused(["has no location \"/@auth/\""], "foregate_upstream auth /@auth/; foregate route.kdl; location = /@auth/ { internal; }")
        self.refused(["has no location \"/@auth/\""], "foregate_upstream auth /@auth/; foregate route.kdl; location /@auth/x { internal; } location /@au { internal; }")
        self.refused(["clients can reach the location \"/@auth/\"", "internal;"], "foregate_upstream auth /@auth/; foregate route.kdl; location /@auth/ { }")

    def test_the_directive(self):
        self.refused(["duplicate foregate_upstream \"auth\""], "foregate_upstream auth /a/; foregate_upstream auth /b/;")
        self.refused(["\"auth\" is no prefix of a location"], "foregate_upstream auth auth;")
        self.refused(["\"/\" is no prefix"], "foregate_upstream auth /;")
