"""An OCSP responder: openssl answers, with the key of the authority's intermediate certificate."""

import datetime
import http.server
import pathlib
import re
import subprocess
import tempfile
import threading
import time

import bed


class Responder(bed.Server):
    """
    asked: the serial number and the content type of each request
    revoked: so many certificates, the first ones that were asked about, are revoked
    away: whether requests fail
    refusal: the error status of all responses (RFC 6960, section 4.2.1), if any
    held: an event for which answers wait
    life: from when to when a response holds, in seconds from its making
    """

    def __init__(self, test, port, folder):
        self.folder, self.asked, self.revoked, self.away, self.life = folder, [], 0, False, (0, 3600)
        self.held = self.refusal = None
        # openssl works on files.
        self.turn = threading.Lock()
        super().__init__(test, port, Handler)

    def answer(self, request):
        """The response to a request, or None."""
        with self.turn, tempfile.TemporaryDirectory(dir=self.folder) as folder:
            folder = pathlib.Path(folder)
            (folder / "request.der").write_bytes(request)
            serial = re.search(r"Serial Number: ([0-9A-F]+)", self.openssl(folder, "-req_text")).group(1)
            self.asked.append(serial)
            if self.held:
                self.held.wait(60)
            if self.away:
                return None
            if self.refusal:
                return bytes((0x30, 3, 0x0A, 1, self.refusal))
            state = "R\t401231235959Z\t260101000000Z" if serial in self.first_ones() else "V\t401231235959Z\t"
            (folder / "index.txt").write_text(f"{state}\t{serial}\tunknown\t/CN=a\n")
            self.openssl(
                folder, "-index", "index.txt", "-CA", "../issuer.pem", "-rsigner", "../issuer.pem", "-rkey", "../issuer.key",
                "-nmin", "1", "-respout", "response.der",
            )
            return self.timed(folder, (folder / "response.der").read_bytes())

    def first_ones(self):
        return list(dict.fromkeys(self.asked))[: self.revoked]

    def openssl(self, folder, *arguments):
        command = ["openssl", "ocsp", "-reqin", "request.der", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout

    def timed(self, folder, response):
        """The response with the times of `life`, which openssl knows in whole minutes only, signed again."""
        # A response has its status and the type of its content before the basic response (RFC 6960, section 4.2.1).
        _, outer, _ = element(response, 0)
        _, at, _ = element(response, element(response, outer)[2])
        _, at, _ = element(response, at)
        _, basic, _ = element(response, element(response, at)[2])
        _, data, _ = element(response, basic)
        data, _, end = element(response, data)
        signed = bytearray(response[data:end])
        times = list(re.finditer(rb"\x18\x0f\d{14}Z", signed))[-2:]
        for place, seconds in zip(times, self.life):
            moment = datetime.datetime.fromtimestamp(time.time() + seconds, datetime.timezone.utc)
            signed[place.start() + 2 : place.end()] = moment.strftime("%Y%m%d%H%M%SZ").encode()
        command = ["openssl", "dgst", "-sha256", "-sign", "../issuer.key"]
        signature = subprocess.run(command, cwd=folder, input=bytes(signed), capture_output=True, check=True).stdout
        # Behind the data is the algorithm, then the signature, whose first byte counts unused bits.
        _, value, rest = element(response, element(response, end)[2])
        assert rest - value - 1 == len(signature), "the signature has another length"
        return response[:data] + bytes(signed) + response[end : value + 1] + signature + response[rest:]


def element(der, at):
    """Where the element at this place begins, where its content does, and where it ends."""
    length, content = der[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, content = int.from_bytes(der[content : content + count], "big"), content + count
    return at, content, content + length


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Type"] != "application/ocsp-request":
            self.send_error(415)
            return
        body = self.server.answer(request)
        if body is None:
            self.send_error(500)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
