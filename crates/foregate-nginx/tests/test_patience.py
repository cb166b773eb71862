"""How long NGINX waits for an upstream while a response waits for something else."""

import os
import socket
import subprocess
import threading
import time

from harness import PATIENCE, VALGRIND, Origin, response
from test_fetch import Asking

HTML = [("Content-Type", "text/html; charset=utf-8")]
# How long an origin may be silent, and what takes longer than that, seconds.
SILENT, FRAGMENT = (4, 10) if VALGRIND else (2, 4)
INCLUDE = 'html-include upstream="auth" { timeout "50s"; fallback "<none>"; }\n'
PAGES = 'error-pages of="both" { page 404 upstream="auth" path="/gone" timeout="50s" keep="1ms"; }\n'
SITE = """
    proxy_cache_path cache keys_zone=kept:1m;
    foregate_upstream auth /@auth/;
    foregate route.kdl;
    server {
        listen 127.0.0.1:PORT sndbuf=64k; listen 127.0.0.1:TLS_PORT http2; server_name localhost;
        proxy_read_timeout SILENT; uwsgi_read_timeout SILENT; proxy_http_version 1.1; ssi_types text/plain;
        location /buffered/ { foregate route.kdl; proxy_pass http://ORIGIN; }
        location /unkept/ { proxy_max_temp_file_size 0; proxy_pass http://ORIGIN; }
        location /unbuffered/ { proxy_buffering off; proxy_pass http://ORIGIN; }
        location /unbuffered/large/ { proxy_buffering off; proxy_buffer_size 64k; proxy_buffers 4 64k; proxy_pass http://ORIGIN; }
        location /hurried/ { send_timeout SENDING; proxy_read_timeout 50s; proxy_max_temp_file_size 0; proxy_pass http://ORIGIN; }
        location /cached/ { proxy_cache kept; proxy_cache_valid 1h; proxy_pass http://ORIGIN; }
        location /slowed/ { limit_rate 60k; proxy_pass http://ORIGIN; }
        location /uwsgi/ { uwsgi_pass UWSGI; }
        location /around/ { ssi on; foregate off; root html; }
        location /@auth/ { internal; proxy_read_timeout 50s; proxy_pass http://AUTH/; }
    }
"""
KINDS = ["buffered", "unkept", "unbuffered", "unbuffered/large", "cached"]


def document(size, included=b"<esi:include src=/f>"):
    return b"<p>1" + included + b"<p>x</p>" * (size // 8) + b"end"


def size_of(path):
    return int(path.rsplit("/", 1)[1])


class Uwsgi(Origin):
    """One that is asked by uwsgi."""

    def __init__(self):
        super().__init__(None)

    def serve(self, connection):
        with connection:
            connection.recv(65536)
            connection.sendall(b"Status: 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + document(96_000))


class Patience(Asking):
    def start_patient(self, answer, route=INCLUDE, auth=None):
        def fragment(head):
            time.sleep(FRAGMENT)
            return response(b"[f]")

        uwsgi = Uwsgi()
        self.addCleanup(uwsgi.close)
        http = SITE.replace("SILENT", f"{SILENT}s").replace("SENDING", f"{3 * SILENT}s").replace("UWSGI", f"127.0.0.1:{uwsgi.port}")
        files = {"html/around/page.txt": b'(<!--# include virtual="/buffered/open/96000" -->)'}
        return self.start_site(route, auth or fragment, self.origin(answer), http, files)

    def clients(self, nginx, paths):
        """What clients of HTTP/1 and HTTP/2 get, and after how long."""
        got = {}

        def ask(path, client):
            start = time.monotonic()
            if client == "h2":
                body = nginx.curl("-m", str(3 * PATIENCE), f"http://127.0.0.1:{nginx.tls_port}{path}")
            else:
                body = subprocess.run(["curl", "-s", "-m", str(3 * PATIENCE), nginx.url(path)], capture_output=True).stdout
            got[client, path] = body, time.monotonic() - start

        threads = [threading.Thread(target=ask, args=(path, client)) for path in paths for client in ["h1", "h2"]]
        # Not all at once: a busy machine would be what they wait for.
        for some in range(0, len(threads), 12):
            for thread in threads[some:some + 12]:
                thread.start()
            for thread in threads[some:some + 12]:
                thread.join()
        return got

    def check(self, nginx, paths, expected):
        got = self.clients(nginx, paths)
        other = {key: len(body) for key, (body, _) in got.items() if body != expected(key[1])}
        self.assertEqual(other, {}, nginx.log())

    @staticmethod
    def whole(head, status="200 OK"):
        """A document as long as its path says, all of it at once; then the connection stays open or is closed."""
        path = head.split()[1]
        yield from response(document(size_of(path)), status, fields=HTML)
        if "open" in path:
            time.sleep(3 * FRAGMENT)

    def test_a_fragment_takes_longer_than_the_origin_may_be_silent(self):
        nginx = self.start_patient(self.whole)
        paths = [f"/{kind}/{end}/96000" for kind in KINDS + ["slowed"] for end in ["open", "closed"]]
        paths += [f"/{kind}/open/{size}" for kind in KINDS for size in [800, 12_000]]
        self.check(nginx, paths, lambda path: document(size_of(path), b"[f]"))
        self.check(nginx, ["/around/page.txt"], lambda path: b"(" + document(96_000, b"[f]") + b")")

    def test_a_page_that_is_fetched_takes_longer(self):
        """The head of the response waits for it, and all of the body with the head."""
        def late(head):
            time.sleep(FRAGMENT)
            return response(b"", "404 Not Found")

        nginx = self.start_patient(lambda head: self.whole(head, "404 Not Found"), PAGES, late)
        paths = [f"/{kind}/{end}/{size}" for kind in KINDS for end, size in [("open", 96_000), ("closed", 96_000), ("open", 800)]]
        self.check(nginx, paths, lambda path: document(size_of(path)))

    def test_fragments_one_after_the_other(self):
        """Each takes less than the origin may be silent, but all of them do not."""
        def fragment(head):
            time.sleep(SILENT * 0.6)
            return response(b"[f]")

        def answer(included):
            return b"".join(document(30_000, included) for _ in range(4))

        nginx = self.start_patient(lambda head: response(answer(b"<esi:include src=/f>"), fields=HTML), auth=fragment)
        self.check(nginx, ["/buffered/", "/unkept/", "/unbuffered/"], lambda path: answer(b"[f]"))

    def test_a_client_that_has_been_slow(self):
        """It is given up when it takes nothing, and not when there is nothing for it."""
        def fragment(head):
            time.sleep(1.5 * SILENT)
            return response(b"[f]")

        def client(size):
            with socket.socket() as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                connection.connect(("127.0.0.1", nginx.port))
                connection.sendall(b"GET /hurried/%d HTTP/1.0\r\n\r\n" % size)
                connection.settimeout(0.1)
                got, part = b"", b"-"
                while part:
                    time.sleep(2.2 * SILENT)
                    try:
                        while part := connection.recv(65536):
                            got += part
                    except TimeoutError:
                        part = b"-"
                    except OSError:
                        part = b""
            ends[size] = got[-100:]

        # In some of these the fragment's place comes when the client has just taken everything.
        nginx = self.start_patient(lambda head: response(b"<p>" + b"y" * size_of(head.split()[1]) + document(30_000), fields=HTML), auth=fragment)
        ends = {}
        threads = [threading.Thread(target=client, args=(size,)) for size in range(200_000, 400_000, 10_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([size for size, end in ends.items() if not end.endswith(b"end")], [], nginx.log())

    def test_an_origin_that_is_silent_is_given_up(self):
        """With the fragment on its way, and once that is there."""
        def half(head):
            (whole,) = response(document(size_of(head.split()[1])), fields=HTML)
            yield whole[:-100]
            time.sleep(10 * FRAGMENT)

        nginx = self.start_patient(half)
        paths = [f"/{kind}/{size}" for kind in KINDS for size in [800, 96_000]]
        for (client, path), (body, took) in self.clients(nginx, paths).items():
            self.assertNotIn(b"end", body, path)
            self.assertLess(took, 5 * FRAGMENT, (client, path))
            self.assertTrue(document(size_of(path), b"[f]").startswith(body), (client, path))
            if size_of(path) == 96_000 and "cached" not in path:
                # NGINX drops what has not filled a buffer.
                self.assertGreater(len(body), 60_000, (client, path))
        self.assertEqual(nginx.log().count("upstream timed out"), 2 * len(paths))

    def test_an_origin_of_uwsgi(self):
        nginx = self.start_patient(lambda head: [])
        self.check(nginx, ["/uwsgi/"], lambda path: document(96_000, b"[f]"))

    def test_a_client_that_goes_meanwhile(self):
        """Before the origin would have been given up, and when it has been spared."""
        gone = threading.Semaphore(0)

        def answer(head):
            yield from response(document(96_000), fields=HTML)
            # More than NGINX reads ahead, so that the end of the connection is seen.
            try:
                while True:
                    time.sleep(0.05)
                    yield b"x" * 100_000
            finally:
                gone.release()

        nginx = self.start_patient(answer)
        for path in ["/buffered/", "/unbuffered/"]:
            for seconds in [SILENT / 2, (SILENT + FRAGMENT) / 2]:
                for url in [nginx.url(path), f"http://127.0.0.1:{nginx.tls_port}{path}"]:
                    version = ["--http2-prior-knowledge"] if url != nginx.url(path) else []
                    subprocess.run(["curl", "-s", "-m", str(seconds), "-o", os.devnull, *version, url])
                    self.assertTrue(gone.acquire(timeout=PATIENCE), (url, seconds))
        self.assertNotIn("timed out", nginx.log())
