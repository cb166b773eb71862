"""The documents of `bench/html`, made while they are sent, and what they have to be when they have been rewritten."""

import hashlib
import random
import re
import socket
import threading

# With it a line of 75 bytes becomes one of 200.
PLACEHOLDER = "(address hidden from programs)"
SCRIPT = b'<script src=/.foregate/email-decode.min.js defer></script>'
HEAD = b"<!doctype html><html><head><title>People</title></head><body>\n"
TAIL = b"</body></html>\n"
LINES_AT_ONCE = 500
# Pieces in which the origin writes: the least and the most bytes, and whether in chunks of HTTP.
CHUNKINGS = {
    "64 KiB": (65536, 65536, False),
    "1 to 3000 bytes": (1, 3000, True),
    "1 to 100,000 bytes": (1, 100_000, True),
}
HIDDEN = re.compile(rb'<span data-fg-email=([0-9a-f]+)>([^<]*)</span>')
FIRST = ("anna", "bernhard", "cleo", "dimitri-alexander", "eleonore", "fynn.o")
TEAMS = ("sales", "research-and-development", "it", "logistics", "legal-affairs")
KEYS = [bytes(byte ^ key for byte in range(256)) for key in range(256)]


def address(number):
    """The address of a line: 48 bytes on average, of different lengths."""
    first, team = FIRST[number % len(FIRST)], TEAMS[number % len(TEAMS)]
    return f"{first}{number:06d}@{team}.office{number % 97:02d}.company.example"


def lines(start, end):
    """Lines of the document, each with an address."""
    line = "<p>{} {:03d} at work here</p>\n".format
    return "".join(line(address(number), number * 7919 % 1000) for number in range(start, end)).encode()


def document(addresses):
    """The document in parts."""
    yield HEAD
    for start in range(0, addresses, LINES_AT_ONCE):
        yield lines(start, min(start + LINES_AT_ONCE, addresses))
    yield TAIL


def measured(addresses):
    """Length and SHA-256 of the document."""
    length, digest = 0, hashlib.sha256()
    for part in document(addresses):
        length += len(part)
        digest.update(part)
    return length, digest.hexdigest()


def pieces(addresses, least, most):
    """The document in pieces of random lengths, the same each time."""
    chance, held = random.Random(least + most), b""
    for part in document(addresses):
        held += part
        at = 0
        while len(held) - at >= most:
            length = chance.randint(least, most)
            yield held[at:at + length]
            at += length
        held = held[at:]
    if held:
        yield held


class Restored:
    """Reads what a client gets: puts each address back and takes the script out, so that the document is there again."""

    def __init__(self):
        self.out, self.original = hashlib.sha256(), hashlib.sha256()
        self.length = self.found = self.wrong = self.scripts = 0
        self.held = b""

    def write(self, data):
        """The next bytes of a body."""
        self.length += len(data)
        self.out.update(data)
        self.held += data
        # A line has all of what is looked for in it, once it is whole.
        end = self.held.rfind(b"\n") + 1
        self.read(self.held[:end])
        self.held = self.held[end:]

    def end(self):
        """The body is over."""
        self.read(self.held)
        self.held = b""

    def read(self, text):
        self.scripts += text.count(SCRIPT)
        self.original.update(HIDDEN.sub(self.address, text.replace(SCRIPT, b"")))

    def address(self, match):
        code = bytes.fromhex(match[1].decode())
        decoded = code[1:].translate(KEYS[code[0]])
        self.wrong += decoded != address(self.found).encode()
        self.found += 1
        return decoded


def ordinary():
    """A page of some 100 KB with what pages have."""
    cards = "".join(
        f'<div class="card n{number}"><h2>Heading {number}</h2><p>Some text of ordinary length, with <b>bold</b> and '
        f'<a href="http://www.example.com/page/{number}?x=1">a link</a> in it, so that there is something to read in every '
        f'paragraph of the page.</p><img src="/images/{number}.jpg" alt="picture {number}"><!-- card -->'
        + (f"<p>Write to {address(number)}.</p>" if number % 10 == 0 else "")
        + "<ul><li>one</li><li>two</li></ul></div>\n"
        for number in range(280)
    )
    head = "<!doctype html><html><head><meta charset=utf-8><title>Page</title></head><body>\n"
    return f"{head}{cards}</body></html>\n".encode()


class Origin:
    """Sends the document on each request for `/CHUNKING/ADDRESSES/...`, CHUNKING being a number in CHUNKINGS."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head = b""
            while b"\r\n\r\n" not in head:
                data = connection.recv(65536)
                if not data:
                    return
                head += data
            path = head.split()[1].decode()
            found = re.search(r"/(\d)/(\d+)/", path)
            least, most, chunked = list(CHUNKINGS.values())[int(found[1])]
            framing = "Transfer-Encoding: chunked\r\n" if chunked else ""
            fields = f"Content-Type: text/html; charset=utf-8\r\nConnection: close\r\n{framing}"
            try:
                connection.sendall(f"HTTP/1.1 200 OK\r\n{fields}\r\n".encode())
                for piece in pieces(int(found[2]), least, most):
                    connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                if chunked:
                    connection.sendall(b"0\r\n\r\n")
            except OSError:
                # The client's end is told by the client.
                pass

    def close(self):
        """Accepts no more: a thread that waits for a connection goes on waiting when its socket is closed."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.socket.close()
