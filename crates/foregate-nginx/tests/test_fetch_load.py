"""Everything that may go wrong while something is fetched, all at once."""

import random
import signal
import socket
import threading
import time

from harness import VALGRIND, response
from test_fetch import FORWARD, Asking
from test_fetched_responses import INCLUDE, PAGES

# How long clients go on.
SECONDS = 20 if VALGRIND else 6
CLIENTS = 8
ROUTE = (FORWARD.replace("TIME", "200ms") + PAGES.replace("20s", "200ms").replace('keep="1ms"', 'keep="1s"')
         + INCLUDE.replace("20s", "200ms").replace("900KiB", "30KiB"))


class Load(Asking):
    def auth(self, head):
        kind = self.random.randrange(8)
        if kind == 0:
            time.sleep(0.25)
        if kind == 1:
            return []
        if kind == 2:
            return [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"]
        if kind == 3:
            return [b"HTTP/1.1 200 OK\r\n\r\n"] + [b"x" * 65536] * 20
        if kind == 4:
            return response(b"no", status="404 Not Found")
        return response(b"y" * self.random.randrange(40_000), pieces=5000, fields=[("X-User", "anna")])

    def page(self, head):
        kind = self.random.randrange(4)
        if kind == 0:
            return response(b"o" * 200_000, status="404 Not Found", pieces=9000)
        if kind == 1:
            return []
        html = b"<p>" + b"".join(b"text " * self.random.randrange(4000) + b"<esi:include src=/x>" for _ in range(5))
        return response(html, fields=[("Content-Type", "text/html")], pieces=7000)

    def client(self, nginx, seed, until):
        """Asks, and often goes before all has come."""
        choice = random.Random(seed)
        while time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", nginx.port), 5) as connection:
                    for _ in range(3):
                        method = choice.choice(["GET", "GET", "HEAD", "POST"])
                        body = b"z" * choice.choice([0, 10, 50_000]) if method == "POST" else b""
                        head = f"{method} /{choice.choice(['a', 'files/none'])} HTTP/1.1\r\nHost: example.com\r\nContent-Length: {len(body)}\r\n\r\n"
                        connection.sendall(head.encode() + body)
                        if choice.random() < 0.3:
                            time.sleep(choice.random() * 0.3)
                            break
                        connection.settimeout(5)
                        self.answers += connection.recv(65536).startswith(b"HTTP/1.1 ")
                        if choice.random() < 0.5:
                            break
                        connection.settimeout(0.3)
                        while connection.recv(65536):
                            pass
            except OSError:
                pass

    def test_nothing_breaks_and_nothing_stays(self):
        self.random, self.answers = random.Random(7), 0
        # One process under memcheck, which sees what a worker would leave.
        nginx = self.start_site(ROUTE, self.auth, origin=self.origin(self.page), master=not VALGRIND)
        until = time.monotonic() + SECONDS
        clients = [threading.Thread(target=self.client, args=(nginx, seed, until)) for seed in range(CLIENTS)]
        for client in clients:
            client.start()
        if not VALGRIND:
            time.sleep(SECONDS / 2)
            nginx.process.send_signal(signal.SIGHUP)
        for client in clients:
            client.join()
        self.assertGreater(self.answers, 10)
        if not VALGRIND:
            self.assertLess(nginx.resident(), 60_000)
