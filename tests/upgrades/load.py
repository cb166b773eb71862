"""Clients of several kinds for the tests of upgrades, and what they have seen."""

import asyncio
import base64
import collections
import hashlib
import ssl
import time

import http2

# The body of each object that may be stored, bytes.
OBJECT = 256 << 10
# Pieces of a body that comes slowly, and the pause between them.
DRIPS, DRIP, DRIP_PAUSE = 20, b"x" * 1000, 0.1


async def read_frame(reader):
    """The opcode and the payload of a frame of WebSocket."""
    start, length = await reader.readexactly(2)
    masked, length = length & 0x80, length & 0x7F
    if length == 126:
        length = int.from_bytes(await reader.readexactly(2), "big")
    mask = await reader.readexactly(4) if masked else bytes(4)
    payload = await reader.readexactly(length)
    return start & 0x0F, bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))


def text_frame(payload, mask=b""):
    assert len(payload) < 126
    masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload)) if mask else payload
    return bytes([0x81, len(payload) | (0x80 if mask else 0)]) + mask + masked


def accept_of(key):
    return base64.b64encode(hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()


class Origin:
    """An origin that answers at once, after a while, or takes bodies."""

    def __init__(self, delay=0):
        self.server, self.delay = None, delay
        self.requests = self.objects = 0

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
                if fields.get("upgrade", "").lower() == "websocket":
                    accept = accept_of(fields["sec-websocket-key"])
                    writer.write(
                        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                        + f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
                    )
                    while True:
                        kind, payload = await read_frame(reader)
                        if kind != 1:
                            return
                        writer.write(text_frame(payload))
                        await writer.drain()
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
                if target.startswith("/drip"):
                    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    for _ in range(DRIPS):
                        writer.write(b"%x\r\n%s\r\n" % (len(DRIP), DRIP))
                        await writer.drain()
                        await asyncio.sleep(DRIP_PAUSE)
                    writer.write(b"0\r\n\r\n")
                    continue
                if target.startswith("/object/"):
                    self.objects += 1
                    fields = b"Cache-Control: max-age=86400\r\nContent-Length: %d" % OBJECT
                    writer.write(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n%s" % (fields, b"o" * OBJECT))
                    await writer.drain()
                    continue
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
        # For all connections: the default one reads the authorities of the system, which take a megabyte.
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE

    def source(self):
        """Another address of the loopback network each time, since a share is one of addresses."""
        self.next_source += 1
        number = self.next_source % self.sources
        return ("127.1.%d.%d" % (number // 250, 1 + number % 250), 0)

    async def connect(self, tls=False):
        context = self.context if tls else None
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

    async def open_tunnel(self, tls):
        reader, writer = await self.connect(tls)
        key = base64.b64encode(b"%016d" % self.next_source).decode()
        writer.write(
            f"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        assert head.startswith("HTTP/1.1 101") and accept_of(key) in head, head
        self.tunnels.append((reader, writer))

    async def open_tunnels(self, count, tls=False):
        """Opens connections of WebSocket, some at a time."""
        for start in range(0, count, 20):
            await asyncio.gather(*(self.open_tunnel(tls) for _ in range(min(20, count - start))))

    async def echo_one(self, number, reader, writer):
        word = b"word %d" % number
        try:
            writer.write(text_frame(word, b"mask"))
            await writer.drain()
            return await asyncio.wait_for(read_frame(reader), 20) == (1, word)
        except (asyncio.IncompleteReadError, OSError, asyncio.TimeoutError):
            return False

    async def echo(self):
        """How many tunnels still echo."""
        echoed = []
        for start in range(0, len(self.tunnels), 50):
            some = enumerate(self.tunnels[start:start + 50], start)
            echoed += await asyncio.gather(*(self.echo_one(number, *tunnel) for number, tunnel in some))
        return sum(echoed)

    async def streams(self, kind, pause, tls, target, length):
        """Streams of HTTP/2, one after the other; a connection that is told to go away ends with its last one."""
        connection = self.h2[tls]
        while not self.stopping:
            try:
                while connection.leaves:
                    connection = await self.another_h2(tls, connection)
                began = time.monotonic()
                status, body, leaves = await connection.ask(target)
                self.longest = max(self.longest, time.monotonic() - began)
                self.statuses[status] += 1
                self.requests[kind] += 1
                # It began before the connection was told to go away.
                self.requests[kind + " across"] += leaves
                if len(body) != length:
                    self.failures[f"{kind}: {len(body)} bytes"] += 1
            except (http2.StreamFailed, OSError, AssertionError) as error:
                self.failures[f"{kind}: {type(error).__name__}: {error}"] += 1
                await asyncio.sleep(0.05)
                connection = await self.another_h2(tls, connection)
            await asyncio.sleep(pause)

    async def another_h2(self, tls, before):
        """Workers share connections: the first one that needs another makes it."""
        async with self.h2_lock:
            if self.h2[tls] is before:
                self.h2[tls] = await http2.Connection.open(
                    "127.0.0.1", self.tls_port if tls else self.port, tls, self.source()
                )
            return self.h2[tls]

    async def start_streams(self):
        """Short and long streams of HTTP/2, over TLS and without it."""
        self.h2, self.h2_lock = {False: None, True: None}, asyncio.Lock()
        for tls in [False, True] if self.tls_port else [False]:
            name = "h2 tls" if tls else "h2"
            await self.another_h2(tls, None)
            for _ in range(2):
                self.run(self.streams(f"{name} stream", 0.01, tls, "/", len(b"got 0")))
            for _ in range(3):
                self.run(self.streams(f"{name} long stream", 0, tls, "/drip", DRIPS * len(DRIP)))

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
        _, hanging = await asyncio.wait(self.tasks, timeout=20)
        if hanging:
            self.failures["requests without an end"] += len(hanging)
