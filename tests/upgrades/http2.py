"""A client of HTTP/2 that is just enough for the tests of upgrades (RFC 9113): requests without a body, on several streams at a time."""

import asyncio
import ssl

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK, PADDED, PRIORITY = 1, 4, 1, 8, 0x20
# No dynamic table in responses, no pushes, and room for every body.
OWN_SETTINGS = b"".join(number.to_bytes(2, "big") + value.to_bytes(4, "big") for number, value in ((1, 0), (2, 0), (4, 1 << 24)))


class StreamFailed(Exception):
    pass


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def status_of(block):
    """The status, if it is one of the static table; 0 otherwise."""
    while block and block[0] & 0xE0 == 0x20:
        block = block[1:]  # A change of the table's size.
    return {0x88: 200, 0x89: 204, 0x8C: 400, 0x8D: 404, 0x8E: 500}.get(block[0] if block else None, 0)


class Connection:
    def __init__(self, reader, writer, tls):
        self.reader, self.writer, self.tls = reader, writer, tls
        self.streams, self.next_stream = {}, 1
        # Told to go away: no new streams.
        self.leaves = False

    @classmethod
    async def open(cls, host, port, tls, source):
        context = None
        if tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection(host, port, local_addr=source, ssl=context)
        if tls:
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        connection = cls(reader, writer, tls)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, OWN_SETTINGS))
        writer.write(frame(WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")))
        connection.task = asyncio.ensure_future(connection.receive())
        return connection

    async def ask(self, target):
        """The status and body of a GET, and whether the connection was told to go away meanwhile."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        # GET, the scheme, and literals for the path and the authority.
        block = bytes([0x82, 0x87 if self.tls else 0x86, 0x04, len(target)]) + target.encode() + b"\x01\x01a"
        state = self.streams[stream] = {"status": 0, "body": bytearray(), "done": asyncio.get_running_loop().create_future()}
        self.writer.write(frame(HEADERS, END_STREAM | END_HEADERS, stream, block))
        await self.writer.drain()
        try:
            await state["done"]
        finally:
            self.streams.pop(stream, None)
            if self.leaves and not self.streams:
                self.writer.close()
        return state["status"], bytes(state["body"]), self.leaves

    def fail(self, reason, above=0):
        for stream, state in list(self.streams.items()):
            if stream > above and not state["done"].done():
                state["done"].set_exception(StreamFailed(reason))

    async def receive(self):
        try:
            while True:
                head = await self.reader.readexactly(9)
                payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
                self.take(head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, payload)
        except Exception as error:  # Whatever it is, nobody may wait for ever.
            self.leaves = True
            self.fail(f"the connection ended: {error!r}")

    def acknowledge(self, answer):
        # The server may have closed already, with frames before that which are still to be read.
        if not self.writer.is_closing():
            self.writer.write(answer)

    def take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            self.acknowledge(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.acknowledge(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            self.leaves = True
            last, code = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF, int.from_bytes(payload[4:8], "big")
            # The server has not seen these. It has said so after a warning, so that there should be none.
            self.fail(f"GOAWAY with code {code} past the stream", above=last)
            if not self.streams:
                self.writer.close()
        state = self.streams.get(stream)
        if state is None or state["done"].done():
            return
        if kind == RST_STREAM:
            state["done"].set_exception(StreamFailed(f"reset with code {int.from_bytes(payload, 'big')}"))
            return
        if kind == HEADERS and not state["status"]:
            assert not flags & (PADDED | PRIORITY)
            state["status"] = status_of(payload)
        elif kind == DATA:
            assert not flags & PADDED
            state["body"] += payload
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            state["done"].set_result(None)
