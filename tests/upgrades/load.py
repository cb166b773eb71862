"""Clients of several kinds for the tests of upgrades, and what they have seen."""

import asyncio
import collections
import ssl
import time


class Origin:
    """An origin that answers at once, after a while, or takes bodies."""

    def __init__(self, delay=0):
        self.server, self.delay = None, delay
        self.requests = 0

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=1024)
        return self.server.sockets[0].getsockname()[1]

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                lines = head.decode("latin-1").split("\r\n")
                fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
                target = lines[0].split(" ")[1]
                if "upgrade" in fields.get("connection", "").lower():
                    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
                    await writer.drain()
                    while data := await reader.read(65536):
                        writer.write(data)
                        await writer.drain()
                    return
                length = int(fields.get("content-length", 0))
                body = await reader.readexactly(length) if length else b""
                await asyncio.sleep(self.delay)
                if target.startswith("/slow"):
                    await asyncio.sleep(1.0)
                text = b"got %d" % len(body)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


class Load:
    """Runs clients until it is told to stop. `failures` counts what should not happen, by its name."""

    def __init__(self, port, tls_port=None, sources=200):
        self.port, self.tls_port, self.sources = port, tls_port, sources
        self.stopping = False
        self.requests = collections.Counter()
        self.failures = collections.Counter()
        self.statuses = collections.Counter()
        self.longest = 0.0
        self.tasks = []
        self.tunnels = []
        self.next_source = 0

    def source(self):
        """Another address of the loopback network each time, since a share is one of addresses."""
        self.next_source += 1
        number = self.next_source % self.sources
        return ("127.1.%d.%d" % (number // 250, 1 + number % 250), 0)

    async def connect(self, tls=False):
        context = None
        if tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        port = self.tls_port if tls else self.port
        return await asyncio.open_connection("127.0.0.1", port, local_addr=self.source(), ssl=context)

    async def ask(self, reader, writer, method="GET", target="/", body=b"", close=False):
        """One request; whether the connection goes on."""
        began = time.monotonic()
        more = "Connection: close\r\n" if close else ""
        writer.write(
            f"{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body
        )
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        await reader.readexactly(length)
        self.longest = max(self.longest, time.monotonic() - began)
        self.statuses[int(head.split(" ")[1])] += 1
        return "connection: close" not in head

    async def keep_alive(self, kind, pause, tls=False, **request):
        while not self.stopping:
            try:
                reader, writer = await self.connect(tls)
            except OSError as error:
                self.failures[f"{kind}: connect: {type(error).__name__}"] += 1
                await asyncio.sleep(0.05)
                continue
            try:
                while not self.stopping:
                    goes_on = await self.ask(reader, writer, **request)
                    self.requests[kind] += 1
                    await asyncio.sleep(pause)
                    if not goes_on:
                        break
            except (asyncio.IncompleteReadError, OSError) as error:
                self.failures[f"{kind}: {type(error).__name__}"] += 1
            finally:
                writer.close()

    async def fresh(self, kind, pause, tls=False):
        while not self.stopping:
            try:
                reader, writer = await self.connect(tls)
                await self.ask(reader, writer, close=True)
                writer.close()
                self.requests[kind] += 1
            except (asyncio.IncompleteReadError, OSError) as error:
                self.failures[f"{kind}: {type(error).__name__}"] += 1
            await asyncio.sleep(pause)

    async def open_tunnels(self, count, tls=False):
        for _ in range(count):
            reader, writer = await self.connect(tls)
            writer.write(b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101"), head
            self.tunnels.append((reader, writer))

    async def echo(self):
        """How many tunnels still echo."""
        alive = 0
        for number, (reader, writer) in enumerate(self.tunnels):
            word = b"word %d" % number
            try:
                writer.write(word)
                await writer.drain()
                alive += await asyncio.wait_for(reader.readexactly(len(word)), 5) == word
            except (asyncio.IncompleteReadError, OSError, asyncio.TimeoutError):
                pass
        return alive

    def start(self, clients=4, slow=4):
        tls = [False, True] if self.tls_port else [False]
        for over_tls in tls:
            name = "tls " if over_tls else ""
            for _ in range(clients):
                self.run(self.keep_alive(name + "keep-alive", 0.005, over_tls))
                self.run(self.fresh(name + "new connection", 0.005, over_tls))
            self.run(self.keep_alive(name + "upload", 0.01, over_tls, method="POST", body=b"x" * 200_000))
        for _ in range(slow):
            self.run(self.keep_alive("slow", 0.0, target="/slow"))

    def run(self, task):
        self.tasks.append(asyncio.ensure_future(task))

    async def stop(self):
        self.stopping = True
        await asyncio.wait(self.tasks, timeout=10)
