"""Filters of requests' bodies: what origins get instead of what clients have sent."""

import gzip
import os
import random
import re
import socket
import struct
import threading
import zlib

from harness import PATIENCE, Case, Origin, response

SITE = """
    client_max_body_size 20m;
    server {
        listen 127.0.0.1:PORT; listen 127.0.0.1:TLS_PORT http2; server_name example.com; root html;
        foregate route.kdl;
        location / { proxy_pass http://ORIGIN; proxy_http_version 1.1; }
        location /old/ { proxy_pass http://ORIGIN; proxy_http_version 1.0; }
        location /through/ { proxy_pass http://ORIGIN; proxy_http_version 1.1; proxy_request_buffering off; }
        location /memory/ { client_body_buffer_size 4m; proxy_pass http://ORIGIN; proxy_http_version 1.1; }
        location /file/ { client_body_in_file_only on; proxy_pass http://ORIGIN; proxy_http_version 1.1; add_header X-Body-File $request_body_file; }
        location /small/ { client_body_buffer_size 1k; proxy_pass http://ORIGIN; proxy_http_version 1.1; }
        location /told/ { error_page 400 413 = @told; proxy_pass http://ORIGIN; proxy_http_version 1.1; }
        location @told { proxy_pass http://ORIGIN; proxy_http_version 1.1; }
        location /short/ { return 200 "short"; }
        location /try/ { try_files /nothing /moved; }
        location /moved { proxy_pass http://ORIGIN; proxy_http_version 1.1; }
        location /mirrored/ { mirror /mirror; proxy_pass http://ORIGIN; proxy_http_version 1.1; }
        location = /mirror { internal; proxy_pass http://ORIGIN/mirror; proxy_http_version 1.1; }
        location /off/ { foregate off; mirror /packed; proxy_pass http://ORIGIN; proxy_http_version 1.1; }
        location = /packed { internal; foregate packed.kdl; proxy_pass http://ORIGIN/packed; proxy_http_version 1.1; }
    }
"""
ROUTE = "decompress { requests; }\n"
PLACES = ["/", "/old/", "/through/", "/memory/", "/file/", "/small/", "/try/"]
TEXT = b"".join(f"line {number} of some text\n".encode() for number in range(40_000))
NOISE = random.Random(3).randbytes(700_000)


class Sink(Origin):
    """An origin that reads bodies as they are framed, and keeps them."""

    def __init__(self):
        super().__init__(None)
        self.got = []

    def serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            head = b""
            while (line := stream.readline()) not in [b"\r\n", b""]:
                head += line
            if not head:
                return
            head = head.decode("latin-1")
            length = re.search(r"(?im)^content-length: (\d+)", head)
            body = stream.read(int(length.group(1))) if length else b""
            if re.search(r"(?im)^transfer-encoding: chunked", head):
                while size := int(stream.readline(), 16):
                    body += stream.read(size)
                    stream.readline()
                stream.readline()
            self.got.append((head, body))
            connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\ntaken")


class Uploads(Case):
    def start_site(self, route=ROUTE, http=SITE, **files):
        self.site = Sink()
        self.addCleanup(self.site.close)
        return self.start(http, {"route.kdl": route, "packed.kdl": ROUTE, **files}, origin=self.site)

    def chunked(self, nginx, path, body, pieces=3000, fields="Content-Encoding: gzip\r\n"):
        """The answer to a body that does not say how long it is."""
        with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
            client.settimeout(PATIENCE)
            head = f"POST {path} HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n{fields}\r\n"
            got = b""
            try:
                client.sendall(head.encode())
                for at in range(0, len(body), pieces):
                    piece = body[at:at + pieces]
                    client.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                client.sendall(b"0\r\n\r\n")
                while data := client.recv(65536):
                    got += data
            except (ConnectionResetError, BrokenPipeError):
                pass
        return int(got.split()[1])

    def arrived(self, expected, path):
        head, body = self.site.got.pop()
        self.assertTrue(body == expected, (path, len(body), len(expected)))
        self.assertEqual(re.findall(r"(?im)^content-length: (\d+)\r$", head), [str(len(expected))], head)
        for name in ["transfer-encoding", "content-encoding"]:
            self.assertNotIn(f"\n{name}", head.lower())
        self.assertEqual(self.site.got, [])

    def test_bodies_arrive_decoded(self):
        nginx = self.start_site()
        for plain in [b"", b"x", TEXT[:3000], TEXT, NOISE, TEXT + NOISE]:
            packed = gzip.compress(plain)
            for path in PLACES:
                got = nginx.get(path, "POST", headers=[("Content-Encoding", "gzip")], body=packed)
                self.assertEqual((got.status, got.body), (200, b"taken"), (path, len(plain), nginx.log()[-500:]))
                self.arrived(plain, path)
                self.assertEqual(self.chunked(nginx, path, packed), 200, (path, nginx.log()[-500:]))
                self.arrived(plain, path)

    def test_other_codings_and_none(self):
        nginx = self.start_site()
        for coding, pack in [("deflate", zlib.compress), ("x-gzip", gzip.compress)]:
            self.assertEqual(nginx.get("/", "POST", headers=[("Content-Encoding", coding)], body=pack(TEXT)).status, 200)
            self.arrived(TEXT, coding)
        for headers in [[], [("Content-Encoding", "identity")]]:
            for path in PLACES:
                self.assertEqual(nginx.get(path, "POST", headers=headers, body=TEXT).status, 200)
                head, body = self.site.got.pop()
                self.assertTrue(body == TEXT)
        got = nginx.get("/", "POST", headers=[("Content-Encoding", "exotic")], body=TEXT)
        self.assertEqual((got.status, got.get("accept-encoding")), (415, "gzip, deflate, br, zstd"))
        self.assertEqual(nginx.get("/", headers=[("Content-Encoding", "gzip")]).status, 200, "without a body there is nothing to decode")

    def test_http2(self):
        nginx = self.start_site()
        for plain in [TEXT, NOISE, b""]:
            nginx.write("body", gzip.compress(plain))
            for path in PLACES:
                # A length that is said, and one that is not.
                for extra in [[], ["-H", "Content-Length:"]]:
                    url = f"http://127.0.0.1:{nginx.tls_port}{path}"
                    got = nginx.curl("-H", "Content-Encoding: gzip", "--data-binary", f"@{nginx.folder}/body", *extra, url)
                    self.assertEqual(got, b"taken", (path, len(plain), extra, nginx.log()[-500:]))
                    self.arrived(plain, path)

    def test_any_pieces_come_out_the_same(self):
        nginx = self.start_site()
        packed = gzip.compress(TEXT[:200_000])
        for pieces in [1, 7, 1000, len(packed) - 1]:
            for path in ["/", "/small/", "/through/"]:
                self.assertEqual(self.chunked(nginx, path, packed, pieces), 200)
                self.arrived(TEXT[:200_000], path)

    def test_what_cannot_be_decoded_is_refused(self):
        nginx = self.start_site()
        packed = gzip.compress(TEXT)
        broken = {"half": packed[:len(packed) // 2], "no gzip": b"not packed at all", "more": packed + b"more", "nothing": b" "}
        for what, body in broken.items():
            for path in PLACES:
                self.assertEqual(nginx.get(path, "POST", headers=[("Content-Encoding", "gzip")], body=body).status, 400, (what, path))
                self.assertEqual(self.chunked(nginx, path, body), 400, (what, path))
        self.assertEqual(self.site.got, [])
        self.assertIn('filter "decompress-request" of a request\'s body: it cannot be read', nginx.log())
        self.assertEqual(nginx.get("/", "POST", headers=[("Content-Encoding", "gzip")], body=packed).status, 200)

    def test_who_answers_instead_gets_nothing_of_it(self):
        nginx = self.start_site("decompress { requests; request-ratio 20; }\n")
        for body in [b"not packed at all", gzip.compress(bytes(10_000_000))]:
            self.assertEqual(nginx.get("/told/", "POST", headers=[("Content-Encoding", "gzip")], body=body).body, b"taken")
            self.arrived(b"", "/told/")
            self.assertEqual(self.chunked(nginx, "/told/", body), 200)
            self.arrived(b"", "/told/")

    def test_bombs_are_refused(self):
        bomb = gzip.compress(bytes(30_000_000))
        for setting in ["", 'limit "1MiB";', "request-ratio 20;"]:
            nginx = self.start_site("decompress { requests; %s }" % setting)
            for path in ["/", "/through/", "/memory/", "/small/"]:
                before = nginx.resident()
                self.assertEqual(nginx.get(path, "POST", headers=[("Content-Encoding", "gzip")], body=bomb).status, 413, (setting, path))
                self.assertEqual(self.chunked(nginx, path, bomb), 413)
                self.assertLess(nginx.resident() - before, 20_000, path)
                left = [name for folder, _, names in os.walk(os.path.join(nginx.folder, "t1")) for name in names]
                self.assertEqual(left, [], "files of bodies are taken away")
        self.assertEqual(self.site.got, [])

    def test_limits_count_what_is_sent(self):
        packed = gzip.compress(TEXT)
        nginx = self.start_site(ROUTE + f'limit-request-body "{len(packed)}B"\n')
        self.assertEqual(nginx.get("/", "POST", headers=[("Content-Encoding", "gzip")], body=packed).status, 200, nginx.log())
        self.assertEqual(self.chunked(nginx, "/", packed), 200)
        self.site.got.clear()
        nginx = self.start_site(ROUTE + f'limit-request-body "{len(packed) - 1}B"\n')
        self.assertEqual(nginx.get("/", "POST", headers=[("Content-Encoding", "gzip")], body=packed).status, 413)
        self.assertEqual(self.chunked(nginx, "/", packed), 413)
        self.assertEqual(self.site.got, [])

    def test_steps_look_at_the_body_as_it_was_sent(self):
        nginx = self.start_site(ROUTE + 'probe body="1000B"\n')
        packed = gzip.compress(NOISE)
        for path in PLACES:
            self.assertEqual(nginx.get(path, "POST", headers=[("Content-Encoding", "gzip")], body=packed).status, 200)
            self.assertIn("\r\nx-body: 1000 false", self.site.got[-1][0])
            self.arrived(NOISE, path)

    def test_who_does_not_pass_it_on(self):
        nginx = self.start_site()
        packed = gzip.compress(TEXT)
        self.assertEqual(nginx.get("/short/", "POST", headers=[("Content-Encoding", "gzip")], body=packed).body, b"short")
        with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
            client.settimeout(PATIENCE)
            for _ in range(3):
                client.sendall(b"POST / HTTP/1.1\r\nHost: example.com\r\nContent-Encoding: gzip\r\nExpect: 100-continue\r\n"
                               + f"Content-Length: {len(packed)}\r\n\r\n".encode())
                self.assertTrue(client.recv(65536).startswith(b"HTTP/1.1 100 Continue"))
                client.sendall(packed)
                got = b""
                while b"taken" not in got:
                    data = client.recv(65536)
                    self.assertTrue(data)
                    got += data
        self.assertEqual([len(body) for _, body in self.site.got], [len(TEXT)] * 3)

    def test_subrequests(self):
        """One without a route of its own shares what the main request has; one with has its own."""
        nginx = self.start_site()
        packed = gzip.compress(TEXT)
        for path, mirror, plain in [("/mirrored/", "/mirror", TEXT), ("/off/", "/packed", packed)]:
            self.assertEqual(nginx.get(path, "POST", headers=[("Content-Encoding", "gzip")], body=packed).status, 200)
            for _ in range(200):
                if len(self.site.got) == 2:
                    break
                threading.Event().wait(0.05)
            got = {head.split()[1]: (head, body) for head, body in self.site.got}
            self.assertTrue(got[path][1] == plain)
            self.assertTrue(got[mirror][1] == TEXT, len(got[mirror][1]))
            self.assertIn(f"\r\nContent-Length: {len(TEXT)}\r\n", got[mirror][0])
            self.assertIn(f"\r\nContent-Length: {len(plain)}\r\n", got[path][0])
            self.site.got.clear()

    def test_clients_that_go(self):
        nginx = self.start_site()
        packed = gzip.compress(TEXT, 1)
        for left in [0, 10, len(packed) // 2]:
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
                    client.sendall(f"POST / HTTP/1.1\r\nHost: example.com\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n".encode())
                    client.sendall(packed[:len(packed) - left])
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.assertEqual(nginx.get("/", "POST", headers=[("Content-Encoding", "gzip")], body=packed).status, 200)

    def test_others_are_served_in_between(self):
        nginx = self.start_site('decompress { requests; request-ratio 2000; }\n')
        bomb = gzip.compress(bytes(100_000_000))
        done = threading.Event()

        def send():
            try:
                nginx.get("/", "POST", headers=[("Content-Encoding", "gzip")], body=bomb)
            finally:
                done.set()

        threading.Thread(target=send).start()
        served = 0
        while not done.is_set():
            self.assertEqual(nginx.get("/short/").body, b"short")
            served += 1
        self.assertGreater(served, 5)
        self.arrived(bytes(100_000_000), "/")
