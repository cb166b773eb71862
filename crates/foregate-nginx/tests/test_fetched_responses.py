"""What steps of responses, and filters of bodies, have fetched inside NGINX."""

import base64
import gzip
import json
import os
import random
import subprocess
import threading
import time

from harness import PATIENCE, VALGRIND, response
from test_fetch import FORWARD, SITE, Asking, told

PAGES = 'error-pages of="both" { page 404 502 upstream="auth" path="/{status}.html" timeout="20s" keep="1ms"; }\nheaders { response { set "x-out" "1"; } }\n'
INCLUDE = 'html-include upstream="auth" { timeout "20s"; size "900KiB"; fallback "<none>"; }\n'
HTML = [("Content-Type", "text/html; charset=utf-8")]


def http(buffering="on", more=""):
    return SITE.replace("root html;", f"root html; proxy_buffering {buffering}; {more}")


def page(head):
    return response(f"<h1>{head.split()[1]}</h1>".encode(), fields=[("Content-Type", "text/html"), ("X-Page", "1")])


class ErrorPages(Asking):
    def test_pages_take_the_place_of_errors(self):
        """Of NGINX itself, of an origin with a large body in pieces, and of one that is gone."""
        large = b"x" * 3_000_000
        for buffering in ["on", "off"]:
            origin = self.origin(lambda head: response(large, status="404 Not Found", fields=[("X-Origin", "1")], pieces=50_000))
            nginx = self.start_site(PAGES, page, origin=origin, http=http(buffering, "location /gone/ { proxy_pass http://127.0.0.1:1; } location /none { return 404; }"))
            for path, status in [("/files/nothing", 404), ("/none", 404), ("/origin", 404), ("/gone/", 502)]:
                got = nginx.get(path)
                self.assertEqual((got.status, got.body, got.get("x-out")), (status, f"<h1>/{status}.html</h1>".encode(), "1"), path)
                self.assertEqual((got.get("content-length"), got.get("x-page"), got.get("content-type")), ("18", None, "text/html"))
                got = nginx.get(path, method="HEAD")
                self.assertEqual((got.status, got.body, got.get("content-length")), (status, b"", "18"), path)
                got = nginx.get(path, "POST", body=b"y" * 200_000)
                self.assertEqual((got.status, got.body), (status if not path.startswith("/files") else 404, f"<h1>/{status}.html</h1>".encode()), path)

    def test_the_original_stays_where_there_is_no_page(self):
        origin = self.origin(lambda head: response(b"o" * 300_000, status="404 Not Found", pieces=5000))
        broken = [None, lambda head: response(b"", status="500 Internal Server Error"), lambda head: response(b"x" * 2_000_000, pieces=65536),
                  lambda head: [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"]]
        for auth in broken:
            nginx = self.start_site(PAGES, auth, origin=origin)
            got = nginx.get("/origin")
            self.assertEqual((got.status, got.body, got.get("x-out")), (404, b"o" * 300_000, "1"))
            got = nginx.get("/origin", method="HEAD")
            self.assertEqual((got.status, got.body, got.get("content-length")), (404, b"", "300000"))
        nginx = self.start_site(PAGES.replace("20s", "300ms"), lambda head: time.sleep(2) or [], origin=origin)
        self.assertEqual(nginx.get("/origin").body, b"o" * 300_000)

    def test_pages_are_kept(self):
        nginx = self.start_site(PAGES.replace('keep="1ms"', 'keep="1h"'), page)
        for _ in range(3):
            self.assertEqual(nginx.get("/files/nothing").body, b"<h1>/404.html</h1>")
        self.assertEqual(len(self.auth.requests), 1)
        self.assertEqual(told(self.auth.requests[0], "host"), ["localhost"], "not what a client says")

    def test_what_steps_answer_has_a_page(self):
        """A rule's answer, and what another module refuses; with the question for both at once."""
        route = FORWARD.replace("TIME", "20s") + 'rule #"http.request.uri.path eq "/stop""# { block 404; }\n' + PAGES
        nginx = self.start_site(route, lambda head: page(head) if ".html" in head else response(b"", status="404 Not Found" if "/no" in head else "200 OK"))
        for path in ["/stop", "/no"]:
            got = nginx.get(path)
            self.assertEqual((got.status, got.body), (404, b"<h1>/404.html</h1>"), path)
            self.assertEqual(nginx.get(path, method="HEAD").get("content-length"), "18")
        self.assertEqual(nginx.get("/a").body, b"page")

    def test_a_body_that_is_held_back_first(self):
        """Its start is looked at once the page is there or cannot be had."""
        route = PAGES + 'probe hold="1000B"\n'
        origin = self.origin(lambda head: response(b"o" * 30_000, status="404 Not Found" if "/no" in head else "200 OK", pieces=500))
        nginx = self.start_site(route, None, origin=origin)
        for path in ["/a", "/no"]:
            got = nginx.get(path)
            self.assertEqual((got.body, got.get("x-held")), (b"o" * 30_000, "1000 false"), path)
        nginx = self.start_site(route, page, origin=origin)
        self.assertEqual(nginx.get("/no").body, b"<h1>/404.html</h1>")

    def test_http2_and_gzip(self):
        nginx = self.start_site(PAGES, page, http="gzip on; gzip_min_length 1; gzip_types *;" + SITE)
        url = f"http://127.0.0.1:{nginx.tls_port}/files/nothing"
        for _ in range(2):
            self.assertEqual(nginx.curl(url), b"<h1>/404.html</h1>")
        self.assertEqual(gzip.decompress(nginx.get("/files/nothing", headers=[("Accept-Encoding", "gzip")]).body), b"<h1>/404.html</h1>")

    def test_a_client_that_goes_meanwhile(self):
        waits = threading.Event()

        def slow(head):
            waits.set()
            time.sleep(1)
            return page(head)

        nginx = self.start_site(PAGES, slow)
        client = subprocess.Popen(["curl", "-s", nginx.url("/files/nothing")], stdout=subprocess.DEVNULL)
        self.assertTrue(waits.wait(PATIENCE))
        client.kill()
        client.wait()
        self.assertEqual(nginx.get("/files/nothing").status, 404)


class Include(Asking):
    def fragment(self, head):
        path = head.split()[1]
        if "slow" in path:
            time.sleep(0.3)
        return response(f"<i>{path}</i>".encode(), fields=HTML) if "/no" not in path else response(b"", status="404 Not Found")

    def test_fragments_take_their_places(self):
        html = b"<p>1<esi:include src='/a?x=1'/>2<!--#include virtual=\"/b\" -->3<esi:include src=/no alt='/slow'/>4<esi:include src=/no>5"
        expected = b"<p>1<i>/a?x=1</i>2<i>/b</i>3<i>/slow</i>4<none>5"
        for buffering in ["on", "off"]:
            for pieces in [1, 7, None]:
                origin = self.origin(lambda head: response(html, fields=HTML, pieces=pieces))
                nginx = self.start_site(INCLUDE, self.fragment, origin=origin, http=http(buffering), files={"html/a.html": html})
                for path in ["/origin", "/files/a.html"]:
                    got = nginx.get(path)
                    self.assertEqual((got.status, got.body), (200, expected), (path, buffering, pieces, nginx.log()))
                got = nginx.get("/origin", method="HEAD")
                self.assertEqual((got.status, got.get("content-length")), (200, None))
                self.assertEqual(nginx.curl(f"http://127.0.0.1:{nginx.tls_port}/origin"), expected)
        nginx = self.start_site(INCLUDE, self.fragment, http="gzip on; gzip_proxied any; gzip_http_version 1.0;" + SITE, files={"html/a.html": html})
        self.assertEqual(gzip.decompress(nginx.get("/files/a.html", headers=[("Accept-Encoding", "gzip")]).body), expected)

    def test_fragments_of_the_site_and_within_fragments(self):
        files = {"html/page.html": b"(<esi:include src=/files/part.html>|<esi:include src=/@auth/x>|<esi:include src=/rest>)",
                 "html/part.html": b"[<!--#include virtual='/files/leaf.html' -->]", "html/leaf.html": b"leaf"}
        nginx = self.start_site('html-include { timeout "20s"; depth 3; }\nheaders { response { add "x-out" "1"; } }\nrate-limit 5 per="1h"\n', self.fragment, files=files,
                                origin=self.origin(lambda head: response(b"rest")))
        for _ in range(5):
            got = nginx.get("/files/page.html")
            self.assertEqual((got.body, got.all("x-out")), (b"([leaf]|<i>/x</i>|rest)", ["1"]), nginx.log())
        self.assertEqual(nginx.get("/files/page.html").status, 429)

    def test_a_page_with_fragments_is_sent_whole_each_time(self):
        """A fragment may have changed where the page has not."""
        def page(head):
            if "if-none-match" in head.lower() or "if-modified-since" in head.lower():
                return response(b"", status="304 Not Modified")
            return response(b"<p><esi:include src=/x>", fields=[*HTML, ("ETag", '"v1"'), ("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")])

        nginx = self.start_site(INCLUDE, self.fragment, origin=self.origin(page), files={"html/a.html": b"<p><esi:include src=/x>"})
        conditions = [[], [("If-None-Match", '"v1"')], [("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT")]]
        for path in ["/origin", "/files/a.html"]:
            for headers in conditions:
                got = nginx.get(path, headers=headers)
                self.assertEqual((got.status, got.body, got.get("etag"), got.get("last-modified")), (200, b"<p><i>/x</i>", None, None), (path, headers))
        image = nginx.get("/origin", headers=[("Sec-Fetch-Dest", "image"), *conditions[1]])
        self.assertEqual(image.status, 304, "it is no document")

    def test_paths_lead_nowhere_else(self):
        files = {"html/page.html": b"<esi:include src=/../x>|<esi:include src=/%2e%2e/x>|<esi:include src=/a/..%2f..%2f..%2fsecret>|<esi:include src=//a/b>|<esi:include src='/%00'>",
                 "secret": b"secret"}
        nginx = self.start_site('html-include { timeout "20s"; fallback "<none>"; }\n', None, files=files, origin=self.origin(lambda head: response(head.split()[1].encode())))
        got = nginx.get("/files/page.html").body
        self.assertEqual(got, b"/x|/x|<none>|<none>|<none>")

    def test_the_start_does_not_wait_for_a_fragment(self):
        release = threading.Event()

        def fragment(head):
            release.wait(PATIENCE)
            return response(b"late")

        nginx = self.start_site(INCLUDE, fragment, files={"html/a.html": b"<p>start<esi:include src=/x>end"})
        process = subprocess.Popen(["curl", "-sN", nginx.url("/files/a.html")], stdout=subprocess.PIPE)
        self.assertEqual(os.read(process.stdout.fileno(), 1000), b"<p>start")
        release.set()
        self.assertEqual(process.stdout.read(), b"lateend")
        process.stdout.close()
        process.wait()

    def test_large_pages_and_large_fragments(self):
        filler = random.Random(5).randbytes(100_000).hex().encode()
        html = b"<p>" + b"".join(filler + f"<esi:include src=/f{number}>".encode() for number in range(8)) + filler
        expected = b"<p>" + b"".join(filler + f"{number}".encode() * 400_000 for number in range(8)) + filler
        auth = lambda head: response(head.split()[1][2:].encode() * 400_000, fields=HTML, pieces=100_000)
        for buffering in ["on", "off"]:
            origin = self.origin(lambda head: response(html, fields=HTML, pieces=30_000))
            nginx = self.start_site(INCLUDE, auth, origin=origin, http=http(buffering), files={"html/a.html": html})
            for path in ["/origin", "/files/a.html"]:
                self.assertTrue(nginx.get(path).body == expected, (path, buffering))

    def test_many_fragments_do_not_add_up(self):
        """Each is given back once it has been written."""
        html = b"<esi:include src=/f>" * 200
        body = b"y" * 500_000
        nginx = self.start_site(INCLUDE.replace("timeout", "count 1000; timeout"), lambda head: response(body, pieces=100_000), files={"html/a.html": html})
        got = nginx.get("/files/a.html").body
        self.assertEqual((len(got), got.count(b"y")), (100_000_000, 100_000_000))
        if not VALGRIND:
            self.assertLess(nginx.resident(), 70_000)

    def test_a_client_that_goes_meanwhile(self):
        waits = threading.Event()

        def slow(head):
            waits.set()
            time.sleep(1)
            return response(b"late")

        nginx = self.start_site(INCLUDE, slow, files={"html/a.html": b"<esi:include src=/x>" * 3})
        client = subprocess.Popen(["curl", "-s", nginx.url("/files/a.html")], stdout=subprocess.DEVNULL)
        self.assertTrue(waits.wait(PATIENCE))
        client.kill()
        client.wait()
        self.assertEqual(nginx.get("/files/a.html").body, b"latelatelate")


class Keys(Asking):
    """Tokens whose keys are those of an upstream."""

    def test_keys_are_fetched_once(self):
        def encode(data):
            return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

        nginx = self.start_site('jwt { jwks upstream="auth" keep="1h"; claim "sub" field="x-user"; }\n', lambda head: response(json.dumps(self.keys).encode()))
        openssl = lambda *arguments, **options: subprocess.run(["openssl", *arguments], cwd=nginx.folder, check=True, capture_output=True, **options).stdout
        openssl("genrsa", "-out", "key.pem", "2048")
        modulus = bytes.fromhex(openssl("rsa", "-in", "key.pem", "-noout", "-modulus").decode().strip().split("=")[1])
        self.keys = {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "n": encode(modulus), "e": "AQAB"}]}
        claims = {"sub": "anna", "exp": int(time.time()) + 3600}
        signed = ".".join(encode(json.dumps(part).encode()) for part in [{"alg": "RS256", "kid": "1", "typ": "JWT"}, claims])
        token = f"{signed}.{encode(openssl('dgst', '-sha256', '-sign', 'key.pem', input=signed.encode()))}"
        self.assertEqual(nginx.get("/a").status, 401)
        for _ in range(3):
            got = nginx.get("/a", headers=[("Authorization", f"Bearer {token}")])
            self.assertEqual((got.status, told(self.site.requests[-1], "x-user")), (200, ["anna"]), nginx.log())
        self.assertEqual(nginx.get("/a", headers=[("Authorization", f"Bearer {token[:-9]}aaaaaaaaa")]).status, 401)
        self.assertEqual(len(self.auth.requests), 1)
        self.assertTrue(self.auth.requests[0].startswith("GET /.well-known/jwks.json "))
