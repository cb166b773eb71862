"""Heavy steps run on threads of NGINX's, and other requests of the worker do not wait for them."""

import base64
import re
import socket
import threading
import time

from harness import PATIENCE, VALGRIND, Case, response

THREADS = "thread_pool foregate threads=2;"
SITE = """
    foregate_threads foregate;
    server {
        listen 127.0.0.1:PORT; listen 127.0.0.1:TLS_PORT http2; server_name example.com; root html;
        foregate route.kdl;
        location / { proxy_pass http://ORIGIN; }
        location /light { foregate off; return 200 "light"; }
        location /failing { error_page 502 /502.html; proxy_pass http://127.0.0.1:1; }
        location = /502.html { }
        location /page { ssi on; ssi_types text/plain; foregate off; }
        location /part/ { foregate route.kdl; proxy_pass http://ORIGIN; }
    }
"""
# "secret", at the least cost.
BCRYPT = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"


def told(head, name):
    """The values of a field in a head."""
    return re.findall(rf"(?im)^{re.escape(name)}: (.*)\r$", head)


def basic(user, password):
    return ("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


class Site(Case):
    def start_site(self, route, http=SITE, main=THREADS, files=None, **options):
        self.site = self.origin(lambda head: response(b"page of " + head.split()[1].encode(), fields=[("X-Origin", "1")]))
        return self.start(http, {"route.kdl": route, "html/502.html": b"page of an error", **(files or {})}, origin=self.site, main=main, **options)


class Heavy(Site):
    def test_steps_see_the_exchange_and_what_they_write_is_seen(self):
        nginx = self.start_site('headers { request { set "x-kept" "changed"; } }\nprobe-busy in="both"\nprobe body="100B"\n')
        for method, body in [("GET", None), ("POST", b"x" * 50), ("HEAD", None), ("POST", b"y" * 100_000)]:
            got = nginx.get("/a?b", method, headers=[("X-Kept", "1")], body=body)
            self.assertEqual((got.status, got.get("x-seen")), (200, "1 true"), nginx.log())
            head = self.site.requests[-1]
            self.assertEqual(told(head, "x-seen"), ["/a 1 true"])
            if body:
                self.assertEqual(told(head, "x-body"), [f"{min(len(body), 100)} {str(len(body) <= 100).lower()}"])
        self.assertEqual(nginx.get("/a", headers=[("X-Kept", "stop")]).body, b"stopped")
        got = nginx.get("/a", headers=[("X-Kept", "replace")])
        self.assertEqual((got.status, got.body), (200, b"page of /a"), "the field was changed before the response")

    def test_a_response_is_replaced(self):
        nginx = self.start_site('probe-busy in="response"\n')
        got = nginx.get("/a", headers=[("X-Kept", "replace")])
        self.assertEqual((got.status, got.body), (410, b"replaced"), nginx.log())
        got = nginx.get("/failing")
        self.assertEqual((got.status, got.body, got.get("x-seen")), (502, b"page of an error", "none false"))

    def test_ranges_of_a_response_that_waits_are_not_served(self):
        """Nor of one that a step has replaced."""
        http = SITE.replace("location / {", "location /files/ { } location / {")
        body = b"0123456789" * 10_000
        for kept, expected in [("1", (200, body)), ("replace", (410, b"replaced"))]:
            nginx = self.start_site('probe-busy in="response"\n', http, files={"html/files/a.txt": body})
            for part in ["0-15", "999999-", "0-3,10-13"]:
                got = nginx.get("/files/a.txt", headers=[("Range", f"bytes={part}"), ("X-Kept", kept)])
                self.assertEqual((got.status, got.body), expected, part)

    def test_a_response_that_is_replaced_has_no_more_slices(self):
        body = b"0123456789" * 1000

        def answer(head):
            first, last = (int(number) for number in re.search(r"(?i)range: bytes=(\d+)-(\d+)", head).groups())
            part = body[first:last + 1]
            fields = [("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(body)}"), ("ETag", '"x"')]
            return response(part, "206 Partial Content", fields)

        http = SITE.replace("location / {", "location / { slice 1k; proxy_set_header Range $slice_range; proxy_http_version 1.1;")
        nginx = self.start_site('probe-busy in="response"\n', http)
        self.site.answer = answer
        self.assertTrue(nginx.get("/a").body == body)
        asked = len(self.site.requests)
        with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
            client.settimeout(PATIENCE)
            client.sendall(b"GET /a HTTP/1.1\r\nHost: a\r\nX-Kept: replace\r\n\r\nGET /light HTTP/1.1\r\nHost: a\r\n\r\n")
            got = b""
            while not got.endswith(b"light"):
                data = client.recv(65536)
                self.assertTrue(data, got)
                got += data
        self.assertRegex(got, rb"^HTTP/1.1 410 (?s:.)*\r\n\r\nreplacedHTTP/1.1 200 OK\r\n(?s:.)*light$")
        self.assertEqual(len(self.site.requests), asked + 1)

    def test_http2_and_parts(self):
        page = b'[<!--# include virtual="/part/1" -->|<!--# include virtual="/part/2" -->]'
        nginx = self.start_site('probe-busy in="both" time="20ms"\n', files={"html/page.txt": page})
        url = f"http://127.0.0.1:{nginx.tls_port}"
        self.assertEqual(nginx.curl(f"{url}/a"), b"page of /a", nginx.log())
        self.assertEqual(nginx.curl("-d", "x=y", f"{url}/a"), b"page of /a")
        self.assertIn(b"x-seen: 1 true", nginx.curl("-i", f"{url}/a"))
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(nginx.curl(f"{url}/a"))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [b"page of /a"] * 6)
        self.assertEqual(nginx.get("/page.txt").body, b"[page of /part/1|page of /part/2]", nginx.log())

    def test_other_requests_do_not_wait(self):
        nginx = self.start_site('probe-busy in="request" time="3s"\n')
        began = time.monotonic()
        thread = threading.Thread(target=nginx.get, args=("/a",))
        thread.start()
        time.sleep(0.3)
        for _ in range(5):
            self.assertEqual(nginx.get("/light").body, b"light")
        self.assertTrue(VALGRIND or time.monotonic() - began < 2.5)
        thread.join()
        self.assertGreater(time.monotonic() - began, 2.9)

    def test_a_step_that_panics_ends_its_request_alone(self):
        nginx = self.start_site('probe-busy in="panic"\n')
        for _ in range(3):
            self.assertEqual(nginx.get("/a").status, 500)
        self.assertEqual(nginx.get("/light").body, b"light")
        self.assertIn('step "probe-busy-request" has panicked', nginx.log())

    def test_clients_that_go_leave_nothing(self):
        """While a step waits for a thread, while it runs, and with responses that wait."""
        for place in ["request", "response"]:
            nginx = self.start_site(f'probe-busy in="{place}" time="300ms"\n')
            for round in range(3):
                clients = [socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) for _ in range(6)]
                for client in clients:
                    client.sendall(b"GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n")
                time.sleep(0.1 * round)
                for client in clients:
                    client.close()
                self.assertEqual(nginx.get("/light").body, b"light")
            self.assertEqual(nginx.get("/a").body, b"page of /a", nginx.log())

    def test_one_client_has_a_part_of_the_queue(self):
        nginx = self.start_site('probe-busy in="request" time="400ms"\n')
        statuses = []

        def ask():
            statuses.append(nginx.get("/a").status)

        threads = [threading.Thread(target=ask) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(statuses), {200, 503}, statuses)
        self.assertGreaterEqual(statuses.count(503), 1)
        self.assertGreaterEqual(statuses.count(200), 16)
        self.assertEqual(nginx.get("/a").status, 200)

    def test_a_queue_that_is_full_is_503(self):
        nginx = self.start_site('probe-busy in="request" time="1s"\n', main="thread_pool foregate threads=1 max_queue=1;")
        statuses = []
        threads = [threading.Thread(target=lambda: statuses.append(nginx.get("/a").status)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(statuses), {200, 503})
        self.assertIn("there is no thread for the step", nginx.log())

    def test_nobody_waits_longer_than_five_seconds_for_a_thread(self):
        nginx = self.start_site('probe-busy in="request" time="8s"\n', main="thread_pool foregate threads=1;")
        first = threading.Thread(target=nginx.get, args=("/a",))
        first.start()
        time.sleep(0.5)
        began = time.monotonic()
        self.assertEqual(nginx.get("/a").status, 503)
        self.assertGreater(time.monotonic() - began, 4.5)
        self.assertTrue(VALGRIND or time.monotonic() - began < 7)
        first.join()
        self.assertEqual(nginx.get("/light").body, b"light")

    def test_a_response_step_without_a_thread_runs_where_it_is(self):
        nginx = self.start_site('probe-busy in="both" time="1500ms"\n', main="thread_pool foregate threads=1;")
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(nginx.get("/a"))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([(got.status, got.get("x-seen")) for got in answers], [(200, "1 true")] * 2, nginx.log())

    def test_a_reload_while_steps_run(self):
        nginx = self.start_site('probe-busy in="request" time="1s"\n', master=True)
        statuses = []
        threads = [threading.Thread(target=lambda: statuses.append(nginx.get("/a").status)) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        nginx.process.send_signal(1)
        for thread in threads:
            thread.join()
        self.assertEqual(statuses, [200] * 4, nginx.log())
        self.assertEqual(nginx.get("/a").status, 200)

    def test_the_firewall_looks_at_large_bodies_elsewhere(self):
        rules = """
SecRuleEngine On
SecRequestBodyAccess On
SecRule ARGS_POST:comment "@contains union select" "id:2,phase:2,deny,status:406,t:lowercase"
"""
        for http in [SITE, SITE.replace("foregate_threads foregate;", "")]:
            nginx = self.start_site('waf mode="block" log="waf.log" { rules "rules.conf"; body-limit "1MiB"; heavy "1KiB"; }\n', http=http, files={"rules.conf": rules})
            form = [("Content-Type", "application/x-www-form-urlencoded")]
            fine, wrong = b"comment=" + b"fine" * 1000, b"comment=" + b"fine" * 1000 + b"Union+SELECT+1"
            for _ in range(3):
                self.assertEqual(nginx.get("/a", "POST", form, fine).body, b"page of /a", nginx.log())
                self.assertEqual(nginx.get("/a", "POST", form, wrong).status, 406)
            self.assertEqual(len(nginx.lines("waf.log", 3)), 3)


class BasicAuth(Site):
    ROUTE = f'basic-auth realm="staff" user-field="x-user" {{ user "ada" "{BCRYPT}"; user "build" "plain:only for a test"; }}\n'

    def test_who_gives_the_password_is_let_in(self):
        nginx = self.start_site(self.ROUTE)
        url = f"http://127.0.0.1:{nginx.tls_port}/a"
        for _ in range(3):
            got = nginx.get("/a", headers=[("X-User", "forged"), ("X_User", "forged")])
            self.assertEqual((got.status, got.get("www-authenticate")), (401, 'Basic realm="staff", charset="UTF-8"'))
            self.assertEqual(nginx.get("/a", headers=[basic("ada", "wrong")]).status, 401)
            self.assertEqual(nginx.get("/a", headers=[basic("eve", "secret")]).status, 401)
            self.assertEqual(nginx.curl("-u", "ada:wrong", url), b"A user name and a password are needed\n")
        self.assertEqual(self.site.requests, [])
        for _ in range(3):
            for user, password in [("ada", "secret"), ("build", "only for a test")]:
                got = nginx.get("/a", headers=[basic(user, password), ("X-User", "forged")])
                self.assertEqual((got.status, got.body), (200, b"page of /a"), nginx.log())
                self.assertEqual(told(self.site.requests[-1], "x-user"), [user])
                self.assertEqual(nginx.curl("-u", f"{user}:{password}", url), b"page of /a")
        got = nginx.get("/a", "POST", headers=[basic("ada", "secret")], body=b"x" * 200_000)
        self.assertEqual(got.status, 200)

    def test_it_needs_threads(self):
        nginx = self.nginx("server { listen 127.0.0.1:PORT; foregate route.kdl; }", {"route.kdl": self.ROUTE})
        checked = nginx.check()
        self.assertNotEqual(checked.returncode, 0)
        for text in ["route.kdl:1:1", "`basic-auth` needs threads", "thread_pool foregate threads=2;", "foregate_threads foregate;"]:
            self.assertIn(text, checked.stderr)
        for main, directive, expected in [("", "foregate_threads foregate;", 'unknown thread pool "foregate"'),
                                          (THREADS, "foregate_threads foregate; foregate_threads foregate;", "is duplicate")]:
            nginx = self.nginx(f"{directive} server {{ listen 127.0.0.1:PORT; foregate route.kdl; }}", {"route.kdl": self.ROUTE}, main=main)
            self.assertIn(expected, nginx.check().stderr)
        nginx = self.nginx("foregate_threads default; server { listen 127.0.0.1:PORT; foregate route.kdl; }", {"route.kdl": self.ROUTE})
        self.assertEqual(nginx.check().returncode, 0)
