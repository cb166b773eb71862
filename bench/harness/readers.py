"""Clients that take a body no faster than they are told to, over HTTP/1.1 and HTTP/2."""

import http.client
import socket
import struct
import time

RECEIVE_BUFFER = 128 * 1024
TIMEOUT_S = 60
PIECE = 16 * 1024
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
# `:status: 200` is an entry of HPACK's static table.
STATUS_200 = 0x88


class Pace:
    """So many bytes a second; none: as fast as they come."""

    def __init__(self, rate):
        self.rate, self.start, self.taken = rate, time.monotonic(), 0

    def take(self, length):
        """So many bytes have been read."""
        self.taken += length
        if self.rate:
            time.sleep(max(0.0, self.start + self.taken / self.rate - time.monotonic()))


def connect(port):
    """A connection whose kernel takes little."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    connection.settimeout(TIMEOUT_S)
    connection.connect(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def http1(port, path, rate, write):
    """GET over HTTP/1.1; `write` gets the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.sock = connect(port)
    try:
        connection.request("GET", path, headers={"Host": "site.example"})
        response = connection.getresponse()
        if response.status != 200:
            raise OSError(f"status {response.status}")
        pace = Pace(rate)
        while data := response.read(PIECE):
            write(data)
            pace.take(len(data))
    except http.client.HTTPException as error:
        raise OSError(f"{path}: {error!r}") from error
    finally:
        connection.close()


def frame(kind, flags, stream, payload=b""):
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def http2(port, path, rate, write):
    """GET over HTTP/2 with prior knowledge and windows as they are by default; `write` gets the body."""
    def field(index, value):
        return bytes([index, len(value)]) + value

    # Literals without indexing, whose names are of the static table; the path is shorter than 127 bytes.
    head = b"\x82\x86" + field(4, path.encode()) + field(1, b"site.example")
    with connect(port) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)
                           + frame(HEADERS, END_STREAM | END_HEADERS, 1, head))
        source, pace = connection.makefile("rb", buffering=PIECE), Pace(rate)
        while True:
            prefix = source.read(9)
            if len(prefix) < 9:
                raise OSError("the connection ended before the stream did")
            length, kind, flags = int.from_bytes(prefix[:3], "big"), prefix[3], prefix[4]
            payload = source.read(length)
            if kind == HEADERS and not (payload[0] == STATUS_200 or STATUS_200 in payload[:4]):
                raise OSError("the status is not 200")
            if kind in (RST_STREAM, GOAWAY):
                raise OSError(f"frame {kind} with {payload.hex()}")
            if kind == SETTINGS and not flags & ACK:
                connection.sendall(frame(SETTINGS, ACK, 0))
            if kind == PING and not flags & ACK:
                connection.sendall(frame(PING, ACK, 0, payload))
            if kind == DATA and flags & PADDED:
                raise OSError("padding was not expected")
            if kind == DATA and length:
                write(payload)
                pace.take(length)
                update = struct.pack(">I", length)
                connection.sendall(frame(WINDOW_UPDATE, 0, 0, update) + frame(WINDOW_UPDATE, 0, 1, update))
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                return
