"""Limits of requests' bodies."""

import socket

from harness import PATIENCE, Case, response

SITE = """
    client_max_body_size 1m;
    server {
        listen 127.0.0.1:PORT; listen 127.0.0.1:TLS_PORT http2; server_name example.com; root html;
        foregate route.kdl;
        location / { proxy_pass http://ORIGIN; proxy_http_version 1.1; }
        location /through/ { proxy_pass http://ORIGIN; proxy_http_version 1.1; proxy_request_buffering off; }
    }
"""
LIMIT = 'limit-request-body "5000B" when="not starts_with(http.request.uri.path, \\"/large\\")"\nheaders { response { set "x-out" "1"; } }\n'


class Limits(Case):
    def start_site(self, route):
        self.site = self.origin(lambda head: response(b"taken"))
        return self.start(SITE, {"route.kdl": route}, origin=self.site)

    def chunked(self, nginx, path, size):
        """The status for a body that does not say how long it is."""
        with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
            client.settimeout(PATIENCE)
            client.sendall(f"POST {path} HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode())
            got = b""
            try:
                for at in range(0, size, 1000):
                    piece = b"x" * min(1000, size - at)
                    client.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                client.sendall(b"0\r\n\r\n")
            except OSError:
                pass
            try:
                while data := client.recv(65536):
                    got += data
            except ConnectionResetError:
                pass
        return int(got.split()[1])

    def check(self, nginx, more=()):
        for path in ["/a", "/through/a"]:
            for size, status in [(0, 200), (5000, 200), (5001, 413), (900_000, 413)]:
                got = nginx.get(path, "POST", body=b"x" * size)
                self.assertEqual((got.status, got.get("x-out")), (status, "1"), (path, size, nginx.log()))
        count = len(self.site.requests)
        self.assertEqual(self.chunked(nginx, "/a", 5001), 413)
        self.assertEqual(self.chunked(nginx, "/a", 300_000), 413)
        self.assertEqual(len(self.site.requests), count, "nothing of it has gone to the origin")
        self.assertEqual(nginx.get("/large", "POST", body=b"x" * 900_000).status, 200)
        self.assertEqual(nginx.get("/large", "POST", body=b"x" * 1_100_000).status, 413, "NGINX's own limit holds besides")
        count = len(self.site.requests)
        # NGINX resets a stream whose body it does not want; curl then may not tell what came before.
        for size, statuses in [(5000, [b"200"]), (5001, [b"413", b"000"]), (300_000, [b"413", b"000"])]:
            nginx.write("body", b"x" * size)
            # A length that is said, and one that is not.
            for extra in [[], ["-H", "Content-Length:"]]:
                url = f"http://127.0.0.1:{nginx.tls_port}/a"
                got = nginx.curl("-o", "/dev/null", "-w", "%{http_code}", "--data-binary", f"@{nginx.folder}/body", *extra, url)
                self.assertIn(got, statuses, (size, extra))
        self.assertEqual(len(self.site.requests), count + 2)

    def test_bodies_that_are_too_large_are_refused(self):
        nginx = self.start_site(LIMIT)
        self.check(nginx)
        self.assertEqual(self.chunked(nginx, "/a", 5000), 200)

    def test_bodies_that_steps_look_at(self):
        nginx = self.start_site(LIMIT + 'probe body="20000B"\n')
        self.check(nginx)
        self.assertEqual(self.chunked(nginx, "/a", 5000), 200)

    def test_the_error_has_a_page(self):
        nginx = self.start_site(LIMIT + 'error-pages { page 413 text="too large"; }\n')
        self.assertEqual(nginx.get("/a", "POST", body=b"x" * 5001).body, b"too large")
        nginx = self.nginx(SITE.replace("location / {", "error_page 413 /413.html; location = /413.html { foregate page.kdl; } location / {"),
                           {"route.kdl": LIMIT, "page.kdl": 'headers { response { set "x-page" "1"; } }\n', "html/413.html": b"page of NGINX"}, origin=self.site)
        nginx.start()
        for path in ["/a", "/through/a"]:
            got = nginx.get(path, "POST", body=b"x" * 5001)
            self.assertEqual((got.status, got.body, got.get("x-page")), (413, b"page of NGINX", "1"))
