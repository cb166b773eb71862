"""Where bodies end, and what clients see of it when they do not."""

import http.client
import os
import random
import socket
import ssl
import subprocess
import tempfile
import time

from harness import PATIENCE, Case, response
from test_bodies import GROW, grown, site


class Ends(Case):
    """A filter takes the length away. To a client of HTTP/1.0 nothing but the end of the connection tells the end of the body then:
    it has to see all the same where that is not the end."""

    SERVER = """
        location /unbuffered/ { proxy_buffering off; proxy_pass http://ORIGIN; }
        location /lingering/ { lingering_close always; proxy_pass http://ORIGIN; }
        location /unmarked/ { chunked_transfer_encoding off; proxy_pass http://ORIGIN; }
        location /plain/ { foregate off; proxy_pass http://ORIGIN; }
        location /elsewhere/ { proxy_pass http://ORIGIN; }
        location /added/ { addition_types *; add_after_body /a.txt; proxy_pass http://ORIGIN; }
        location /files/ { internal; send_timeout 1s; alias html/; }
    """
    BODY = random.Random(5).randbytes(20_000)
    PAGE = b"<html><head></head><body>" + BODY.hex().encode()

    def start_site(self, route=GROW, server=""):
        def answer(head):
            if "elsewhere" in head:
                return response(b"", fields=[("X-Accel-Redirect", "/files/big.txt")])
            whole = response(self.PAGE if "page" in head else self.BODY, fields=[("Content-Type", "text/html")], pieces=7000)
            return whole if "whole" in head else whole[:-1]

        files = {"route.kdl": route, "html/a.txt": b"abc", "html/big.txt": self.BODY * 100}
        return self.start(site(server=self.SERVER + server), files, origin=self.origin(answer))

    def read(self, connection, path, more=b"", version="1.0"):
        connection.settimeout(PATIENCE)
        connection.sendall(f"GET {path} HTTP/{version}\r\nHost: example.com\r\nConnection: close\r\n\r\n".encode() + more)
        got = b""
        while data := connection.recv(65536):
            got += data
        return got.split(b"\r\n\r\n", 1)[1]

    def get(self, nginx, *arguments, **options):
        with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
            return self.read(client, *arguments, **options)

    def test_a_body_that_its_upstream_breaks_off_is_not_taken_for_whole(self):
        nginx = self.start_site()
        for place in ["origin", "unbuffered", "lingering"]:
            # What a client has sent beside its request makes NGINX linger.
            for more in [b"", b"more"]:
                self.assertTrue(self.get(nginx, f"/{place}/whole", more) == grown(self.BODY, 3), place)
                with self.assertRaises(ConnectionResetError, msg=f"{place} {more}"):
                    self.get(nginx, f"/{place}/broken", more)
        with self.assertRaises(ConnectionResetError):
            self.get(nginx, "/unmarked/broken", version="1.1")
        self.assertTrue(self.get(nginx, "/unmarked/whole", version="1.1") == grown(self.BODY, 3))
        self.assertTrue(self.get(nginx, "/added/whole") == grown(self.BODY, 3) + b"abc")
        self.assertTrue(self.get(nginx, "/elsewhere/whole") == grown(self.BODY * 100, 3))

    def test_length_and_chunks_tell_it_themselves(self):
        nginx = self.start_site()
        self.assertEqual(self.get(nginx, "/plain/broken"), self.BODY[:14_000])
        got = self.get(nginx, "/origin/broken", version="1.1")
        self.assertFalse(got.endswith(b"0\r\n\r\n"))
        with self.assertRaises(http.client.IncompleteRead):
            nginx.get("/origin/broken")

    def test_a_filter_whose_rest_passes(self):
        """Nothing is left to do for it; what comes behind goes by without it."""
        nginx = self.start_site('html-insert { head-start "<i>"; }\n')
        self.assertEqual(self.get(nginx, "/origin/whole-page"), self.PAGE.replace(b"<head>", b"<head><i>"))
        for place in ["origin", "lingering"]:
            with self.assertRaises(ConnectionResetError):
                self.get(nginx, f"/{place}/page", b"more")

    def test_digests_in_trailers_are_of_the_body_as_it_was(self):
        nginx = self.start_site(server="add_trailer Content-Digest x; add_trailer Repr-Digest x; add_trailer ETag x; add_trailer X-Sum x;")
        trailers = self.get(nginx, "/origin/whole", version="1.1").rsplit(b"0\r\n", 1)[1]
        self.assertEqual(trailers, b"X-Sum: x\r\n\r\n")

    def test_tls_and_clients_that_are_too_slow(self):
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=example.com"]
        with tempfile.TemporaryDirectory() as folder:
            key, certificate = os.path.join(folder, "key.pem"), os.path.join(folder, "certificate.pem")
            subprocess.run(make + ["-keyout", key, "-out", certificate], check=True, capture_output=True)
            nginx = self.start_site(server=f"listen 127.0.0.1:TLS_PORT ssl; ssl_certificate {certificate}; ssl_certificate_key {key};")
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

            def get(path):
                with socket.create_connection(("127.0.0.1", nginx.tls_port), PATIENCE) as client:
                    with context.wrap_socket(client, suppress_ragged_eofs=False) as client:
                        return self.read(client, path)

            self.assertTrue(get("/origin/whole") == grown(self.BODY, 3))
            with self.assertRaises(OSError):
                get("/origin/broken")
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(PATIENCE)
            client.connect(("127.0.0.1", nginx.port))
            client.sendall(b"GET /elsewhere/x HTTP/1.0\r\nHost: example.com\r\n\r\n")
            time.sleep(4)
            with self.assertRaises(ConnectionResetError):
                while client.recv(65536):
                    pass
