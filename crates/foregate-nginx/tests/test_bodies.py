"""How bodies move: pieces, slow clients, requests that come by several times, and what goes wrong."""

import gzip
import hashlib
import http.client
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

from harness import Case, Nginx, PATIENCE, VALGRIND, response, version

RELOADS = int(os.environ.get("RELOADS", "20"))
# Seconds of load with reloads.
SOAK = float(os.environ.get("SOAK", "5"))
GROW = "probe grow=3\n"


def grown(body, times):
    return b"".join(bytes([byte]) * times for byte in body) + b"END"


def site(more="", server=""):
    return f"""
    {more}
    server {{
        listen 127.0.0.1:PORT; server_name example.com; root html; {server}
        foregate route.kdl;
        location /origin {{ proxy_pass http://ORIGIN; proxy_http_version 1.1; }}
    }}
"""


OWN = {"own.kdl": "probe grow=2\n"}


def http2(text):
    """The same, speaking HTTP/2 with prior knowledge on the port."""
    return text.replace("listen 127.0.0.1:PORT;", "listen 127.0.0.1:PORT http2;")


class Pieces(Case):
    BODY = bytes(random.Random(1).randbytes(70_000))

    def test_any_pieces_come_out_the_same(self):
        pieces = {"length": None}
        origin = self.origin(lambda head: response(self.BODY, fields=[("X", "1")], **pieces))
        nginx = self.start(site(), {"route.kdl": GROW}, origin=origin)
        expected = grown(self.BODY, 3)
        for piece in [None, 70_000, 16_384, 4097, 1000, 61]:
            for length in [True, False]:
                pieces.clear()
                pieces.update(pieces=piece, length=length)
                got = nginx.get("/origin/")
                self.assertEqual((got.status, got.get("content-length")), (200, None))
                self.assertTrue(got.body == expected, f"{piece} {length} {len(got.body)}")

    def test_any_buffers_come_out_the_same(self):
        body = self.BODY
        for buffering in ["proxy_buffering off; proxy_buffer_size 1k;", "proxy_buffers 2 1k; proxy_buffer_size 1k; proxy_busy_buffers_size 1k;",
                          "output_buffers 1 512; sendfile on;"]:
            origin = self.origin(lambda head: response(body, pieces=3000))
            nginx = self.start(site(buffering + "postpone_output 0;"), {"route.kdl": GROW, "html/a.txt": body}, origin=origin)
            for path in ["/origin/", "/a.txt"]:
                self.assertTrue(nginx.get(path).body == grown(body, 3), f"{buffering} {path}")

    def test_flushes_without_data_do_not_take_its_place(self):
        """An origin sends byte by byte what decodes only now and then, and has it flushed, while the client takes nothing."""
        body = random.Random(6).randbytes(1_500_000).hex().encode()
        packed = gzip.compress(body)

        def answer(head):
            yield b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Encoding: gzip\r\n\r\n"
            yield packed[:-200]
            for at in range(len(packed) - 200, len(packed)):
                time.sleep(0.003)
                yield packed[at:at + 1]

        origin = self.origin(answer)
        nginx = self.start(site("proxy_buffering off;"), {"route.kdl": 'decompress { responses "always"; }\n'}, origin=origin)
        got = b""
        with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.sendall(b"GET /origin/ HTTP/1.0\r\nHost: example.com\r\n\r\n")
            time.sleep(0.3)
            while data := client.recv(1 << 14):
                got += data
                time.sleep(0.002)
        self.assertTrue(got.endswith(b"\r\n\r\n" + body), len(got))

    def test_http2_gets_the_same(self):
        origin = self.origin(lambda head: response(self.BODY, pieces=5000))
        nginx = self.start(http2(site()), {"route.kdl": GROW, "html/a.txt": self.BODY}, origin=origin)
        for path in ["/origin/", "/a.txt"]:
            self.assertTrue(nginx.curl(nginx.url(path)) == grown(self.BODY, 3), path)
        head = nginx.curl("-I", nginx.url("/a.txt")).decode()
        self.assertIn("HTTP/2 200", head)
        self.assertNotIn("content-length", head.lower())

    def test_flushes_go_through(self):
        """What an origin sends and NGINX does not buffer reaches the client before the rest comes."""
        go_on = threading.Event()

        def answer(head):
            yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfirst"
            go_on.wait(PATIENCE)
            yield b"second"

        origin = self.origin(answer)
        nginx = self.start(site("proxy_buffering off;"), {"route.kdl": GROW}, origin=origin)
        with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
            client.sendall(b"GET /origin/ HTTP/1.0\r\nHost: example.com\r\n\r\n")
            got = b""
            while not got.endswith(grown(b"first", 3)[:-3]):
                data = client.recv(65536)
                self.assertTrue(data, got)
                got += data
            go_on.set()
            while data := client.recv(65536):
                got += data
        self.assertTrue(got.endswith(grown(b"firstsecond", 3)), got)

    def test_what_became_large_comes_though_the_origin_waits(self):
        """A piece of the origin becomes megabytes, and the origin goes on only when the client has all of them."""
        go_on, waited = threading.Event(), []

        def answer(head):
            yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
            time.sleep(0.1)
            # NGINX hands on whole buffers; the first one holds the head, too.
            yield b"x" * 4096
            waited.append(not go_on.wait(PATIENCE))
            yield b"y"

        for options in ["proxy_buffers 8 4k; proxy_busy_buffers_size 8k;", "proxy_buffering off;"]:
            go_on.clear()
            waited.clear()
            origin = self.origin(answer)
            nginx = self.start(site(options), {"route.kdl": "probe grow=2500\n"}, origin=origin)
            with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                client.sendall(b"GET /origin/ HTTP/1.0\r\nHost: example.com\r\n\r\n")
                time.sleep(0.5)
                got = 0
                while got < 9_900_000:
                    data = client.recv(1 << 16)
                    self.assertTrue(data, options)
                    got += len(data)
                go_on.set()
                while data := client.recv(1 << 16):
                    got += len(data)
            self.assertEqual((waited, got > 10_242_503), ([False], True), options)

    def test_filters_that_keep_the_length_keep_it(self):
        origin = self.origin(lambda head: response(b"x" * 5000, pieces=999))
        nginx = self.start(site(), {"route.kdl": 'limit-response-body "6000B"\n', "html/a.txt": b"x" * 5000}, origin=origin)
        got = nginx.get("/origin/")
        self.assertEqual((got.get("content-length"), len(got.body)), ("5000", 5000))
        got = nginx.get("/a.txt", headers=[("Range", "bytes=10-19")])
        self.assertEqual((got.status, got.body), (206, b"x" * 10))

    def test_a_body_that_is_broken_off_looks_like_it(self):
        origin = self.origin(lambda head: response(b"x" * 50_000, length=False))
        nginx = self.start(site(), {"route.kdl": 'limit-response-body "20kB"\n'}, origin=origin)
        with self.assertRaises(Exception):
            nginx.get("/origin/")
        self.assertIn("the body is too large", nginx.log())


INSERT = 'html-insert { head-end "<!-- inserted -->"; }\n'


class Passing(Case):
    """The rest of a body that filters have nothing more to do with goes on in the buffers in which it came."""

    REST = random.Random(8).randbytes(300_000).hex().encode()
    START = b"<!doctype html><html><head><title>t</title>"
    BODY = START + b"</head><body>" + REST + b"</body></html>"
    EXPECTED = START + b"<!-- inserted --></head><body>" + REST + b"</body></html>"
    HTML = [("Content-Type", "text/html; charset=utf-8")]

    def test_any_pieces_and_buffers_come_out_the_same(self):
        now = {}
        origin = self.origin(lambda head: response(fields=self.HTML, **now))
        files = {"route.kdl": INSERT, "html/a.html": self.BODY}
        for options in ["", "proxy_buffering off; proxy_buffer_size 1k;", "gzip on; sendfile on; postpone_output 0;",
                        "proxy_buffers 2 1k; proxy_buffer_size 1k; proxy_busy_buffers_size 1k; output_buffers 1 512;"]:
            nginx = self.start(site(options), files, origin=origin)
            for piece, size in [(None, None), (100_000, None), (4097, None), (48, 3000), (7, 3000)]:
                body = self.BODY[:size]
                expected = body.replace(self.START, self.START + b"<!-- inserted -->")
                for length in [True, False]:
                    now.update(body=body, pieces=piece, length=length)
                    got = nginx.get("/origin/")
                    self.assertEqual((got.status, got.get("content-length")), (200, None))
                    self.assertTrue(got.body == expected, f"{options} {piece} {length} {len(got.body)}")
            self.assertTrue(nginx.get("/a.html").body == self.EXPECTED, options)
            zipped = nginx.get("/a.html", headers=[("Accept-Encoding", "gzip")])
            body = gzip.decompress(zipped.body) if "gzip" in options else zipped.body
            self.assertTrue(body == self.EXPECTED, options)

    def test_a_slow_client_gets_all_of_it(self):
        """What it does not take in time lies in a file meanwhile."""
        origin = self.origin(lambda head: response(self.BODY * 8, fields=self.HTML))
        expected = self.EXPECTED + self.BODY * 7
        for options in ["proxy_buffers 4 4k; proxy_busy_buffers_size 4k; proxy_temp_file_write_size 8k;", "proxy_buffering off;", "sendfile on;"]:
            nginx = self.start(site(options), {"route.kdl": INSERT, "html/a.html": self.BODY * 8}, origin=origin)
            for path in [b"/origin/", b"/a.html"]:
                got = b""
                with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                    client.sendall(b"GET " + path + b" HTTP/1.0\r\nHost: example.com\r\n\r\n")
                    time.sleep(0.5)
                    while data := client.recv(1 << 16):
                        got += data
                        time.sleep(0.001)
                self.assertTrue(got.partition(b"\r\n\r\n")[2] == expected, f"{options} {path} {len(got)}")

    def test_http2_and_kept_connections_get_the_same(self):
        origin = self.origin(lambda head: response(self.BODY, fields=self.HTML, pieces=5000))
        files = {"route.kdl": INSERT, "html/a.html": self.BODY}
        nginx = self.start(http2(site()), files, origin=origin)
        for path in ["/origin/", "/a.html"]:
            self.assertTrue(nginx.curl(nginx.url(path)) == self.EXPECTED, path)
        nginx = self.start(site(), files, origin=origin)
        connection = http.client.HTTPConnection("127.0.0.1", nginx.port, timeout=PATIENCE)
        self.addCleanup(connection.close)
        for path in ["/origin/", "/a.html"] * 5:
            connection.request("GET", path, headers={"Host": "example.com"})
            self.assertTrue(connection.getresponse().read() == self.EXPECTED, path)

    def test_the_start_is_sent_before_the_rest_is_filtered(self):
        body = self.START + b"</head><body>" + b"<p>nobody@example.com</p>\n" * 2000
        origin = self.origin(lambda head: response(body, fields=self.HTML))
        nginx = self.start(site(), {"route.kdl": "html-emails\n"}, origin=origin)
        with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
            client.sendall(b"GET /origin/ HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
            got = b""
            while data := client.recv(65536):
                got += data
        first = int(got.partition(b"\r\n\r\n")[2].partition(b"\r\n")[0], 16)
        self.assertLess(first, 4096)
        self.assertTrue(got.endswith(b"\r\n0\r\n\r\n"))


class Memory(Case):
    @unittest.skipIf(VALGRIND, "it measures memory")
    def test_a_slow_client_costs_no_memory(self):
        """Some megabytes become 160, and the client takes them slowly at first."""
        body = random.Random(2).randbytes(1 << 20) * 4
        times = 40
        digest = hashlib.sha256()
        for at in range(0, len(body), 65536):
            digest.update(grown(body[at:at + 65536], times)[:-3])
        digest.update(b"END")
        origin = self.origin(lambda head: response(body, length=False))
        nginx = self.start(site("proxy_max_temp_file_size 0; sendfile on;"), {"route.kdl": f"probe grow={times}\n", "html/a.txt": body}, origin=origin)
        # What NGINX takes for any request is there already.
        nginx.get("/origin/")
        nginx.get("/a.txt")
        for path in ["/a.txt", "/origin/"]:
            before = nginx.resident()
            most, got, size = 0, hashlib.sha256(), 0
            with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                client.sendall(f"GET {path} HTTP/1.0\r\nHost: example.com\r\n\r\n".encode())
                head = b""
                while b"\r\n\r\n" not in head:
                    head += client.recv(1)
                while data := client.recv(1 << 16):
                    got.update(data)
                    size += len(data)
                    if size < 3 << 20:
                        time.sleep(0.02)
                        most = max(most, nginx.resident())
                    elif size % 50 == 0:
                        most = max(most, nginx.resident())
            self.assertEqual(got.hexdigest(), digest.hexdigest())
            print(f"{path}: {size} bytes to a slow client, {most - before} KiB more")
            self.assertLess(most - before, 1024, path)

    @unittest.skipIf(VALGRIND, "it measures memory")
    def test_a_slow_client_of_http2_costs_no_memory(self):
        body = random.Random(4).randbytes(1 << 20)
        nginx = self.start(http2(site()), {"route.kdl": "probe grow=40\n", "html/a.txt": body})
        expected = hashlib.sha256(grown(body, 40)).hexdigest()
        most = []

        def sample(before):
            while not done.wait(0.05):
                most.append(nginx.resident() - before)

        for rate in ["1G", "10M"]:
            done = threading.Event()
            watch = threading.Thread(target=sample, args=(nginx.resident(),))
            watch.start()
            # The rate alone takes four seconds, and others may want the machine, too.
            got = nginx.curl("-m", "120", "--limit-rate", rate, nginx.url("/a.txt"))
            done.set()
            watch.join()
            self.assertEqual((len(got), hashlib.sha256(got).hexdigest()), (40 * len(body) + 3, expected))
            if rate == "10M":
                print(f"HTTP/2: {len(got)} bytes to a slow client, {max(most)} KiB more")
                self.assertLess(max(most), 1024)
            most.clear()

    def test_what_has_come_is_sent_though_the_origin_says_nothing_more(self):
        """By itself, and to its end where the client is slow. NGINX hands on whole buffers."""
        parts, go_on = [random.Random(2).randbytes(length) for length in [9000, 20_000, 400_000, 1]], threading.Semaphore(0)
        self.addCleanup(go_on.release)

        def answer(head):
            yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
            for part in parts:
                yield part
                go_on.acquire(timeout=PATIENCE)

        options = "proxy_buffers 8 4k; proxy_busy_buffers_size 8k;"
        nginx = self.start(site(options), {"route.kdl": GROW}, origin=self.origin(answer))
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(PATIENCE)
            client.connect(("127.0.0.1", nginx.port))
            client.sendall(b"GET /origin/ HTTP/1.0\r\nHost: example.com\r\n\r\n")
            got, come = b"", 0
            for part in parts:
                come += len(part)
                while len(got) < 3 * (come - 4096):
                    data = client.recv(65536)
                    self.assertTrue(data)
                    got += data
                    time.sleep(0.001)
                go_on.release()
            while data := client.recv(65536):
                got += data
        self.assertTrue(got.partition(b"\r\n\r\n")[2] == grown(b"".join(parts), 3))

    def test_a_client_that_goes_away_is_forgotten(self):
        body = b"x" * 1_000_000
        nginx = self.start(site(), {"route.kdl": "probe grow=40\n", "html/a.txt": body})
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
                client.sendall(b"GET /a.txt HTTP/1.1\r\nHost: example.com\r\n\r\n")
                client.recv(1000)
        self.assertEqual(nginx.get("/a.txt").body[-3:], b"END")


class Shapes(Case):
    """HEAD, ranges, conditions, and answers without a body."""

    def test_head_has_the_head_of_get(self):
        nginx = self.start(site(), {"route.kdl": GROW, "html/a.txt": b"abc"})
        got, head = nginx.get("/a.txt"), nginx.get("/a.txt", "HEAD")
        self.assertEqual(got.body, b"aaabbbcccEND")
        self.assertEqual(head.body, b"")
        for name in ["content-length", "etag", "accept-ranges", "last-modified"]:
            self.assertEqual(got.get(name), head.get(name), name)
        self.assertEqual((got.get("content-length"), got.get("accept-ranges")), (None, None))
        self.assertRegex(got.get("etag"), "^W/")

    def test_ranges_of_a_changed_body_are_not_served(self):
        nginx = self.start(site(), {"route.kdl": GROW, "html/a.txt": b"abc"})
        got = nginx.get("/a.txt", headers=[("Range", "bytes=1-1")])
        self.assertEqual((got.status, got.body), (200, b"aaabbbcccEND"))

    def test_a_part_from_the_origin_passes_as_it_is(self):
        answer = response(b"bc", "206 Partial Content", [("Content-Range", "bytes 1-2/3")])
        origin = self.origin(lambda head: answer)
        nginx = self.start(site(), {"route.kdl": GROW}, origin=origin)
        got = nginx.get("/origin/", headers=[("Range", "bytes=1-2")])
        self.assertEqual((got.status, got.body, got.get("content-length")), (206, b"bc", "2"))

    def test_conditions_hold(self):
        route = GROW + 'headers { response { set "x-out" "1"; } }\n'
        nginx = self.start(site(), {"route.kdl": route, "html/a.txt": b"abc"})
        tag = nginx.get("/a.txt").get("etag")
        for condition in [("If-None-Match", tag), ("If-Modified-Since", nginx.get("/a.txt").get("last-modified"))]:
            got = nginx.get("/a.txt", headers=[condition])
            self.assertEqual((got.status, got.body, got.get("x-out")), (304, b"", "1"), condition)

    def test_answers_without_a_body_stay_so(self):
        answers = {"204": response(b"", "204 No Content", length=False), "empty": response(b""), "304": response(b"", "304 Not Modified", length=False)}
        origin = self.origin(lambda head: answers[head.split()[1].rsplit("/", 1)[1]])
        nginx = self.start(site(), {"route.kdl": GROW}, origin=origin)
        for name, status in [("204", 204), ("304", 304), ("empty", 200)]:
            got = nginx.get(f"/origin/{name}")
            self.assertEqual((got.status, got.body), (status, b""), name)

    def test_a_304_tells_no_length_where_bodies_change(self):
        """NGINX writes the length from a number, whatever the list of fields says."""
        answer = response(b"", "304 Not Modified", [("Content-Length", "1000"), ("ETag", '"a"')], length=False)
        origin = self.origin(lambda head: answer)
        for route, length in [(GROW, None), ("compress\n", None), ('headers { response { set "x-out" "1"; } }\n', "1000")]:
            nginx = self.start(site(), {"route.kdl": route}, origin=origin)
            got = nginx.get("/origin/", headers=[("If-None-Match", '"a"')])
            self.assertEqual((got.status, got.get("content-length")), (304, length), route)

    def test_connections_are_kept(self):
        nginx = self.start(site(), {"route.kdl": GROW + 'redirect "/old" to="/new"\n', "html/a.txt": b"abc"})
        with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
            request = b" HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n\r\nhello"
            client.sendall(b"GET /a.txt" + request + b"POST /old" + request + b"GET /a.txt" + request)
            got = b""
            while got.count(b"END") < 2:
                data = client.recv(65536)
                self.assertTrue(data, got)
                got += data
        self.assertEqual(re.findall(rb"HTTP/1.1 (\d+)", got), [b"200", b"302", b"200"])


class Detours(Case):
    """Internal redirects and subrequests."""

    SERVER = """
        error_page 404 /missing.html; error_page 403 @named;
        location = /missing.html { internal; }
        location @named { return 418 "named"; }
        location /try { try_files $uri /a.txt; }
        location /again { rewrite ^/again/(.*)$ /seen/$1 last; }
        location /seen { proxy_pass http://ORIGIN; }
        location /ssi { ssi on; ssi_types text/plain; }
        location /sub.txt { }
        location /own.txt { foregate own.kdl; }
        location /auth { auth_request /check; root html; try_files /a.txt =404; }
        location = /check { internal; return 204; }
        location /added { addition_types text/plain; add_after_body /sub.txt; }
    """

    def test_steps_of_a_request_run_once(self):
        route = 'rate-limit 4 per="1h"\nheaders { response { set "x-out" "1"; add "x-count" "1"; } }\n'
        nginx = self.start(site(server=self.SERVER), {**OWN, "route.kdl": route, "html/missing.html": "missing", "html/a.txt": "a", "html/dir/index.html": "index"})
        got = nginx.get("/nothing")
        self.assertEqual((got.status, got.body, got.all("x-count")), (404, b"missing", ["1"]))
        self.assertEqual((nginx.get("/try/x").body, nginx.get("/dir/").body), (b"a", b"index"))
        self.assertEqual([nginx.get("/a.txt").status for _ in range(2)], [200, 429])

    def test_fields_are_added_once_over_rewrites(self):
        origin = self.origin(lambda head: response(b"x"))
        nginx = self.start(site(server=self.SERVER), {**OWN, "route.kdl": "probe\n"}, origin=origin)
        self.assertEqual(nginx.get("/again/x").status, 200)
        self.assertEqual(origin.requests[0].lower().count("x-probe: 1"), 1)

    def test_error_pages_of_nginx_are_for_errors_of_nginx(self):
        route = 'access { deny "127.0.0.0/8"; }\nheaders { response { set "x-out" "1"; } }\n'
        nginx = self.start(site(server=self.SERVER), {**OWN, "route.kdl": route})
        got = nginx.get("/a.txt")
        self.assertEqual((got.status, got.get("x-out")), (403, "1"))
        self.assertNotEqual(got.body, b"named")

    def test_subrequests_are_part_of_the_response(self):
        files = {"route.kdl": GROW + 'headers { response { add "x-count" "1"; } }\n', "own.kdl": "probe grow=2\n", "html/sub.txt": b"s", "html/own.txt": b"o",
                 "html/a.txt": b"a", "html/added.txt": b"d",
                 "html/ssi.txt": b'[<!--# include virtual="/sub.txt" -->]', "html/ssi2.txt": b'<!--# include virtual="/own.txt" -->'}
        nginx = self.start(site(server=self.SERVER), files)
        got = nginx.get("/auth/x")
        self.assertEqual((got.status, got.body, got.all("x-count")), (200, b"aaaEND", ["1"]))
        got = nginx.get("/added.txt")
        self.assertEqual(got.body, b"dddENDs")
        # SSI looks at what the filter has made of the page, so that the page is taken without it.
        nginx = self.start(site(server=self.SERVER), {**files, "route.kdl": 'headers { response { add "x-count" "1"; } }\n'})
        self.assertEqual(nginx.get("/ssi.txt").body, b"[s]")
        got = nginx.get("/ssi2.txt")
        self.assertEqual((got.body, got.all("x-count")), (b"ooEND", ["1"]))

    def test_steps_that_look_at_bodies_see_none_where_there_is_none(self):
        """A subrequest, and an error page of a request whose body NGINX has begun to drop."""
        server = self.SERVER + """
            error_page 416 /body/416.txt;
            location /body { foregate body.kdl; }
            location /with { addition_types text/plain; add_after_body /body/added.txt; }
        """
        files = {**OWN, "route.kdl": "", "body.kdl": 'probe body="20000B"\n', "html/a.txt": b"abc", "html/with.txt": b"with",
                 "html/body/added.txt": b" added", "html/body/416.txt": b"not this part"}
        nginx = self.start(site(server=server), files)
        self.assertEqual(nginx.get("/with.txt").body, b"with added")
        with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
            client.sendall(b"GET /a.txt HTTP/1.1\r\nHost: example.com\r\nRange: bytes=9-\r\nContent-Length: 9\r\nConnection: close\r\n\r\nsome")
            client.settimeout(PATIENCE)
            got = b""
            while b"not this part" not in got and (data := client.recv(65536)):
                got += data
        self.assertRegex(got, rb"^HTTP/1.1 416 (?s:.)*not this part$")

    def test_a_large_subrequest_comes_in_its_place(self):
        big = random.Random(3).randbytes(300_000).replace(b"<", b"x")
        files = {"route.kdl": 'headers { response { set "x-out" "1"; } }\n', "own.kdl": GROW, "html/own.txt": big,
                 "html/ssi.txt": b'[<!--# include virtual="/own.txt" -->|<!--# include virtual="/own.txt" -->]'}
        nginx = self.start(site(server=self.SERVER), files)
        part = grown(big, 3)
        self.assertTrue(nginx.get("/ssi.txt").body == b"[" + part + b"|" + part + b"]")


class Gunzip(Case):
    def test_a_gzipped_origin_is_seen_decoded(self):
        """gunzip decodes only for clients that take no gzip: for others the route decodes itself."""
        body = b"<p>text</p>" * 3000
        origin = self.origin(lambda head: response(gzip.compress(body), fields=[("Content-Encoding", "gzip")], pieces=100))
        nginx = self.start(site("gunzip on;"), {"route.kdl": GROW}, origin=origin)
        self.assertTrue(nginx.get("/origin/").body == grown(body, 3))
        nginx = self.start(site("gunzip on;"), {"route.kdl": 'decompress { responses "always"; }\n' + GROW}, origin=origin)
        got = nginx.get("/origin/", headers=[("Accept-Encoding", "gzip")])
        self.assertEqual(got.get("content-encoding"), None)
        self.assertTrue(got.body == grown(body, 3))


class Inspection(Case):
    """Steps that look at bodies before they go on."""

    def test_the_start_of_a_request_is_seen_and_all_of_it_sent(self):
        def answer(head):
            return response(head.encode())

        origin = self.origin(answer)
        nginx = self.start(site(server="client_body_buffer_size 8k; client_max_body_size 10m;"), {"route.kdl": 'probe body="20000B"\n'}, origin=origin)
        for size, seen in [(5, "5 true"), (19_000, "19000 true"), (20_000, "20000 true"), (200_000, "20000 false")]:
            got = nginx.get("/origin/", "POST", body=b"x" * size)
            self.assertIn(f"x-body: {seen}\r\n", got.body.decode())
            self.assertIn(f"Content-Length: {size}\r\n", got.body.decode())
        self.assertIn("x-body: 0 true\r\n", nginx.get("/origin/").body.decode())
        got = nginx.get("/origin/", "POST", body=b"x" * 10_000 + b"attack" + b"x" * 50_000)
        self.assertEqual((got.status, got.body), (403, b"refused"))
        nginx = self.start(http2(site()), {"route.kdl": 'probe body="20000B"\n'}, origin=origin)
        self.assertIn(b"x-body: 7 true", nginx.curl("-d", "a=b&c=d", nginx.url("/origin/")))
        self.assertEqual(nginx.curl("-d", "attack", nginx.url("/origin/")), b"refused")

    def test_a_body_that_cannot_be_read_has_its_error_page(self):
        """NGINX finds that it is too large while steps wait for it; the page may have steps of its own."""
        for page in ["html/error.txt", "html/own.txt"]:
            server = f"client_max_body_size 1000; error_page 413 /{page[5:]}; location = /own.txt {{ foregate own.kdl; }}"
            files = {"route.kdl": 'probe body="20000B"\nheaders { response { set "x-out" "route"; } }\n',
                     "own.kdl": 'probe body="20000B"\nheaders { response { set "x-out" "own"; } }\n', page: b"too large"}
            nginx = self.start(site(server=server), files)
            for wait in [0, 0.2]:
                with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
                    client.sendall(b"GET / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
                    time.sleep(wait)
                    client.sendall(b"5dc\r\n" + b"x" * 1500 + b"\r\n0\r\n\r\n")
                    client.settimeout(PATIENCE)
                    got = b""
                    while data := client.recv(65536):
                        got += data
                out = b"own" if "own" in page else b"route"
                self.assertRegex(got, rb"^HTTP/1.1 413 (?s:.)*x-out: " + out + rb"\r\n(?s:.)*too large$", f"{page} {wait}")

    def test_a_file_is_seen_and_sent_from_where_it_is(self):
        body = random.Random(5).randbytes(100_000)
        for options in ["sendfile on;", "sendfile off;", "sendfile on; output_buffers 2 1k;"]:
            nginx = self.start(site(options), {"route.kdl": 'probe hold="20000B"\n', "html/a.txt": body})
            got = nginx.get("/a.txt")
            self.assertEqual(got.get("x-held"), "20000 false", options)
            self.assertTrue(got.body == body, f"{options} {len(got.body)}")

    def test_the_start_of_a_response_is_seen_before_its_head_goes_out(self):
        for grow in ["", " grow=3"]:
            made = (lambda body: grown(body, 3)) if grow else (lambda body: body)
            body = {}
            origin = self.origin(lambda head: response(body["is"], pieces=body["pieces"], length=body["length"]))
            nginx = self.start(site(), {"route.kdl": f'probe hold="20000B"{grow}\n'}, origin=origin)
            for size, seen in [(1, "1 true"), (19_999, "19999 true"), (20_001, "20000 false"), (300_000, "20000 false")]:
                for length in [True, False]:
                    for pieces in [None, 3000]:
                        body.update({"is": random.Random(size).randbytes(size), "pieces": pieces, "length": length})
                        got = nginx.get("/origin/")
                        self.assertEqual((got.status, got.get("x-held")), (200, seen))
                        self.assertTrue(got.body == made(body["is"]), f"{size} {length} {pieces}")
            body.update({"is": b"x" * 15_000 + b"attack" + b"x" * 90_000, "pieces": 1000})
            got = nginx.get("/origin/")
            self.assertEqual((got.status, got.body), (403, made(b"refused") if not grow else b"refused"))
            self.assertEqual(nginx.get("/origin/", "HEAD").status, 200)
            nginx.write("html/a.txt", b"abc" * 10_000)
            got = nginx.get("/a.txt")
            self.assertEqual((got.get("x-held"), got.body), ("20000 false", made(b"abc" * 10_000)))
            nginx.write("html/empty.txt", b"")
            self.assertEqual(nginx.get("/empty.txt").status, 200)

    def test_ranges_of_a_body_that_is_waited_for_are_not_served(self):
        """What cuts them out of a body has seen it go by before its head."""
        body = b"".join(b"%07d\n" % line for line in range(20_000))
        server = """
            location /index { internal; }
            location = /redirected { proxy_pass http://ORIGIN; }
            location /cached { proxy_pass http://ORIGIN; proxy_cache c; }
            location /forced { proxy_pass http://ORIGIN; proxy_force_ranges on; }
        """
        fields = [("Cache-Control", "max-age=60"), ("ETag", '"x"'), ("Accept-Ranges", "bytes")]
        origin = self.origin(lambda head: response(b"", fields=[("X-Accel-Redirect", "/a.txt")]) if "redirected" in head else response(body, fields=fields))
        http = site("proxy_cache_path c keys_zone=c:1m;", server)
        for hold in ["1000B", "100000B"]:
            nginx = self.start(http, {"route.kdl": f'probe hold="{hold}"\n', "html/a.txt": body, "html/dir/index.html": body}, origin=origin)
            self.assertEqual(nginx.get("/cached").body, body)
            for path in ["/a.txt", "/dir/", "/redirected", "/cached", "/forced"]:
                for part in ["0-15", "150000-", "999999-", "0-3,10-13", "-5"]:
                    for fields in [[], [("If-Range", '"x"')], [("If-Range", '"y"')]]:
                        got = nginx.get(path, headers=[("Range", f"bytes={part}"), *fields])
                        self.assertEqual((got.status, got.get("content-length")), (200, str(len(body))), f"{path} {part}")
                        self.assertTrue(got.body == body, f"{path} {part}")
                        self.assertEqual(got.get("x-held"), f"{hold[:-1]} false")

    def test_the_start_of_a_response_is_waited_for_ten_seconds_at_most(self):
        size = 900_000
        body = random.Random(7).randbytes(size)
        stall = threading.Event()
        self.addCleanup(stall.set)

        def answer(head):
            yield b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (size + 3)
            if "nothing" not in head:
                yield body
            stall.wait(60)
            yield b"end" if "nothing" not in head else body + b"end"

        origin = self.origin(answer)
        server = """
            location /off { proxy_pass http://ORIGIN; proxy_buffering off; }
            location /grown { foregate grown.kdl; proxy_pass http://ORIGIN; }
            location /light { foregate off; return 200 "light"; }
        """
        http = site("send_timeout 60s; proxy_buffers 64 32k;", server).replace("listen 127.0.0.1:PORT;", "listen 127.0.0.1:PORT sndbuf=8k;")
        nginx = self.start(http, {"route.kdl": 'probe hold="1000000B"\n', "grown.kdl": 'probe hold="1000000B" grow=2\n'}, origin=origin)
        made = {path: body for path in ["/origin/", "/off", "/origin/nothing", "/off/nothing", "/gone"]}
        made["/grown"] = grown(body, 2)[:-3]
        clients = {}
        began = time.monotonic()
        for path in made:
            client = clients[path] = socket.socket()
            self.addCleanup(client.close)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(10 + PATIENCE)
            client.connect(("127.0.0.1", nginx.port))
            # Not in chunks.
            client.sendall(f"GET {path.replace('/gone', '/origin/gone')} HTTP/1.0\r\nHost: example.com\r\nConnection: close\r\n\r\n".encode())
        clients.pop("/gone").close()
        got = {}
        for path, client in clients.items():
            got[path] = client.recv(100)
            self.assertTrue(got[path].startswith(b"HTTP/1.1 200 OK"), path)
            self.assertTrue(9 < time.monotonic() - began < 10 + PATIENCE / 2, path)
        # What was kept comes whole, though nothing more comes from the origin. NGINX itself keeps what does not fill a buffer.
        for path, client in clients.items():
            while b"\r\n\r\n" not in got[path]:
                got[path] += client.recv(65536)
            held = int(re.search(rb"x-held: (\d+) false\r\n", got[path])[1])
            self.assertTrue(held == 0 if "nothing" in path else held > size - 40_000, f"{path} {held}")
            while len(got[path].split(b"\r\n\r\n", 1)[1]) < held * (2 if path == "/grown" else 1):
                got[path] += client.recv(65536)
        self.assertEqual(nginx.get("/light").body, b"light")
        stall.set()
        for path, client in clients.items():
            while data := client.recv(65536):
                got[path] += data
            end = b"eennddEND" if path == "/grown" else b"end"
            self.assertTrue(got[path].split(b"\r\n\r\n", 1)[1] == made[path] + end, path)

    def test_an_origin_that_breaks_off_while_its_body_is_waited_for(self):
        origin = self.origin(lambda head: [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nsome"])
        nginx = self.start(site(), {"route.kdl": 'probe hold="20000B"\n'}, origin=origin)
        try:
            got = nginx.get("/origin/")
            self.assertNotEqual(got.status, 200)
        except Exception:
            pass
        nginx.write("html/a.txt", b"abc")
        self.assertEqual(nginx.get("/a.txt").body, b"abc")

    def test_steps_see_what_was_received_and_write_their_logs(self):
        route = 'headers { request { remove "x-gone"; } }\nprobe log="probe.log"\n'
        nginx = self.start(site(), {"route.kdl": route, "html/a.txt": b"abc"}, master=True)
        nginx.get("/a.txt?x=1", headers=[("X-Gone", "here")])
        line = 'GET /a.txt?x=1 HTTP/1.1 Some("here") Some(127.0.0.1) Some(127.0.0.1)'
        self.assertEqual(nginx.lines("probe.log", 1), [line])
        os.rename(os.path.join(nginx.folder, "probe.log"), os.path.join(nginx.folder, "old.log"))
        nginx.process.send_signal(signal.SIGUSR1)
        # The worker opens its files anew some time after the master.
        deadline = time.monotonic() + PATIENCE
        while nginx.lines("probe.log", 0) != [line]:
            self.assertLess(time.monotonic(), deadline)
            nginx.get("/a.txt?x=1", headers=[("X-Gone", "here")])
            time.sleep(0.05)
            if nginx.lines("probe.log", 0):
                break
        self.assertEqual(nginx.lines("probe.log", 1)[0], line)


class Panics(Case):
    def test_a_panic_is_the_end_of_one_request(self):
        http = site("log_format told '$status $foregate_panics';",
                    "access_log told.log told; location /fine { foregate fine.kdl; }")
        # A response that a step has failed on is replaced; those that set fields run for what takes its place.
        for place, status, out in [("request", 500, "1"), ("response", 500, "1"), ("log", 200, "1")]:
            nginx = self.start(http, {"route.kdl": f'probe panic="{place}"\nheaders {{ response {{ set "x-out" "1"; }} }}\n', "fine.kdl": "probe\n",
                                      "html/a.txt": b"abc", "html/fine": b"fine"})
            for _ in range(2):
                got = nginx.get("/a.txt")
                self.assertEqual((got.status, got.get("x-out")), (status, out), place)
                self.assertEqual(nginx.get("/fine").body, b"fine")
            self.assertIn("has panicked", nginx.log())
            self.assertRegex(nginx.lines("told.log", 4)[-1], "200 [12]")

    def test_a_panic_in_a_body_breaks_it_off(self):
        nginx = self.start(site(server="location /fine { foregate off; }"), {"route.kdl": 'probe panic="body"\n', "html/a.txt": b"abc" * 10_000, "html/fine": b"fine"})
        for _ in range(2):
            with self.assertRaises(Exception):
                nginx.get("/a.txt")
            self.assertEqual(nginx.get("/fine").body, b"fine")
        self.assertIn("a filter has panicked", nginx.log())

    def test_a_body_that_is_broken_off_is_not_taken_for_whole(self):
        """By clients of HTTP/1.0, to which nothing but the end of the connection tells the end of the body."""
        body = gzip.compress(random.Random(9).randbytes(200_000))
        origin = self.origin(lambda head: response(body if "whole" in head else body[:-9000], fields=[("Content-Encoding", "gzip")]))
        nginx = self.start(site(), {"route.kdl": 'decompress { responses "always"; }\n' + GROW}, origin=origin)

        def read(path):
            with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
                client.settimeout(PATIENCE)
                client.sendall(f"GET {path} HTTP/1.0\r\nHost: example.com\r\n\r\n".encode())
                got = 0
                while data := client.recv(65536):
                    got += len(data)
                return got

        self.assertGreater(read("/origin/whole"), 600_000)
        for _ in range(2):
            with self.assertRaises(ConnectionResetError):
                read("/origin/broken")


class Reloads(Case):
    @unittest.skipIf(VALGRIND, "it measures memory")
    def test_reloads_leak_nothing(self):
        route = "\n".join(f'redirect "/old/{number}" to="/new/{number}"' for number in range(500)) + "\n" + GROW
        nginx = self.start(site(), {"route.kdl": route, "html/a.txt": b"abc"}, master=True)
        master = nginx.process.pid

        def resident():
            with open(f"/proc/{master}/status") as file:
                return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))

        def reload():
            # One is over when the log says that its workers were started.
            before = nginx.log().count("start worker processes")
            nginx.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + PATIENCE
            while nginx.log().count("start worker processes") == before:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.005)

        for _ in range(10):
            reload()
        before = resident()
        for _ in range(RELOADS):
            reload()
        after = resident()
        print(f"{RELOADS} reloads: {after - before} KiB more")
        self.assertEqual(nginx.get("/a.txt").body, b"aaabbbcccEND")
        self.assertLess(after - before, 512 + RELOADS // 4)

    def test_load_with_reloads(self):
        """Requests of all kinds while NGINX is reloaded again and again: none fails, and the newest worker is as small as the first."""
        body = b"some text " * 2000
        origin = self.origin(lambda head: response(body, pieces=5000))
        route = GROW + 'redirect "/old/**" to="/new/${1}"\nheaders {\n request { remove "x-gone"; }\n response { set "x-out" "1"; }\n}\n'
        nginx = self.start(site(), {"route.kdl": route, "html/a.txt": body}, origin=origin, master=True)
        expected, wrong, count = grown(body, 3), [], [0]
        end = time.monotonic() + SOAK

        def load():
            while time.monotonic() < end and not wrong:
                for path, status in [("/a.txt", 200), ("/origin/", 200), ("/old/a", 302), ("/nothing", 404)]:
                    got = nginx.get(path, headers=[("X-Gone", "1")])
                    count[0] += 1
                    if got.status != status or (status == 200 and got.body != expected):
                        wrong.append((path, got.status, len(got.body)))

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        sizes, reloads = [], 0
        while time.monotonic() < end:
            time.sleep(min(1.0, SOAK / 10))
            nginx.process.send_signal(signal.SIGHUP)
            reloads += 1
            with open(f"/proc/{nginx.process.pid}/status") as file:
                sizes.append(int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)))
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        print(f"{count[0]} requests over {reloads} reloads: the master has {sizes[-1] - sizes[len(sizes) // 3]} KiB more")
        if not VALGRIND:
            self.assertLess(sizes[-1] - sizes[len(sizes) // 3], 1024)

    def test_a_refused_reload_changes_nothing(self):
        nginx = self.start(site(), {"route.kdl": 'headers { response { set "x-out" "1"; } }\n', "html/a.txt": b"a"}, master=True)
        nginx.write("route.kdl", "headers {")
        nginx.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE
        while "route.kdl:1:" not in nginx.log():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        self.assertEqual(nginx.get("/a.txt").get("x-out"), "1")
        nginx.write("route.kdl", 'headers { response { set "x-out" "2"; } }\n')
        nginx.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE
        while nginx.get("/a.txt").get("x-out") != "2":
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
