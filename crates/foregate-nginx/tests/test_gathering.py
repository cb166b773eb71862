"""What NGINX hands on in small pieces is sent together, and never later than the turn in which it came."""

import socket
import threading
import time
import unittest

from harness import Case, PATIENCE, response
from test_bodies import GROW, OWN, grown, http2, site

BUFFERS = "proxy_buffers 8 4k; proxy_busy_buffers_size 8k;"


def chunks(body):
    """The sizes of the chunks of a body."""
    at, sizes = 0, []
    while True:
        end = body.index(b"\r\n", at)
        sizes.append(int(body[at:end], 16))
        if sizes[-1] == 0:
            return sizes
        at = end + 4 + sizes[-1]


# What NGINX may keep until more comes, where it buffers: it hands on whole buffers.
KEPT = 4096


class Gathering(Case):
    BODY = b"0123456789abcdef" * 4096

    def until(self, client, got, least, case, most=1 << 16):
        """What `client` has got with what else it gets until there are `least` bytes of the body, at `most` so many at once."""
        while len(got.partition(b"\r\n\r\n")[2]) < least:
            data = client.recv(most)
            self.assertTrue(data, f"{case} {len(got)}")
            got += data
        return got

    def test_few_pieces_are_sent(self):
        """Without, each two buffers of 4 KiB would be a piece."""
        origin = self.origin(lambda head: response(self.BODY))
        nginx = self.start(site(BUFFERS), {"route.kdl": "probe grow=1\n"}, origin=origin)
        fewest = []
        for _ in range(10):
            got = b""
            with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
                client.sendall(b"GET /origin/ HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
                while data := client.recv(1 << 18):
                    got += data
            sizes = chunks(got.partition(b"\r\n\r\n")[2])
            self.assertEqual(sum(sizes), len(self.BODY) + 3)
            fewest = min(fewest or sizes, sizes, key=len)
        self.assertLessEqual(len(fewest), 6, fewest)

    def test_nothing_waits_for_the_origin(self):
        """An origin sends a piece when the client has all of the last."""
        got_piece = threading.Semaphore(0)
        piece, count = b"x" * 8192, 12

        def answer(head):
            yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
            for _ in range(count):
                yield piece
                if not got_piece.acquire(timeout=PATIENCE):
                    return

        for options in [BUFFERS, "proxy_buffering off;"]:
            origin = self.origin(answer)
            nginx = self.start(site(options), {"route.kdl": GROW}, origin=origin)
            with socket.create_connection(("127.0.0.1", nginx.port), PATIENCE) as client:
                client.sendall(b"GET /origin/ HTTP/1.0\r\nHost: example.com\r\n\r\n")
                got = b""
                for number in range(count):
                    got = self.until(client, got, 3 * (len(piece) * (number + 1) - KEPT), f"{options} {number}")
                    got_piece.release()
                while data := client.recv(1 << 16):
                    got += data
            self.assertEqual(got.partition(b"\r\n\r\n")[2], grown(piece * count, 3), options)

    def test_what_a_slow_client_leaves_is_sent_though_the_origin_waits(self):
        """The client's system takes no more for a while, and the origin goes on only when the client has all."""
        go_on, waited, sent = threading.Event(), [], []

        def answer(head):
            yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
            yield sent[0]
            waited.append(not go_on.wait(PATIENCE))
            yield b"z"

        origin = self.origin(answer)
        for options in [BUFFERS, BUFFERS + " limit_rate 20m;", "proxy_buffers 64 4k; proxy_busy_buffers_size 200k;"]:
            text = site(options).replace("PORT;", "PORT sndbuf=8k;")
            nginx = self.start(text, {"route.kdl": GROW}, origin=origin)
            for buffers in (2, 3, 4, 6, 9, 14, 30, 200):
                go_on.clear()
                waited.clear()
                sent[:] = [b"y" * 4096 * buffers]
                with socket.socket() as client:
                    client.settimeout(PATIENCE)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
                    client.connect(("127.0.0.1", nginx.port))
                    client.sendall(b"GET /origin/ HTTP/1.0\r\nHost: example.com\r\n\r\n")
                    time.sleep(0.1)
                    got = self.until(client, b"", 3 * (len(sent[0]) - KEPT), f"{options} {buffers}", 1 << 13)
                    go_on.set()
                    while data := client.recv(1 << 16):
                        got += data
                self.assertEqual(waited, [False], f"{options} {buffers}")
                self.assertTrue(got.partition(b"\r\n\r\n")[2] == grown(sent[0] + b"z", 3), f"{options} {buffers}")

    def test_http2_and_subrequests_get_all(self):
        """Subrequests before and after a body, each with filters and small buffers of its own."""
        origin = self.origin(lambda head: response(self.BODY, pieces=30_000))
        text = site(BUFFERS).replace("location /origin", """
            location /html/ { addition_types *; add_before_body /origin/a; add_after_body /origin/b; root .; }
            location /origin""").replace("proxy_pass", "foregate own.kdl; proxy_pass")
        part = grown(self.BODY, 2)
        for front in (str, http2):
            nginx = self.start(front(text), {"route.kdl": GROW, "html/a.txt": b"middle", **OWN}, origin=origin)
            get = nginx.curl if front is http2 else lambda url: nginx.get(url.partition(f":{nginx.port}")[2]).body
            for _ in range(5):
                self.assertTrue(get(nginx.url("/origin/")) == part)
                got = get(nginx.url("/html/a.txt"))
                self.assertTrue(got == part + grown(b"middle", 3) + part, len(got))


if __name__ == "__main__":
    unittest.main()
