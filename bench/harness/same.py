"""Whether the proxies of the works of modules answer alike, asked before they are measured."""

import http.client
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .processes import Failed

AGENT = "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Mobile Safari/537.36"
# A request that passes all rules, three of which change its fields.
FIELDS = {
    "Host": "www.example.com",
    "User-Agent": AGENT,
    "Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "de-DE,de;q=0.9,en;q=0.5",
    "Accept-Encoding": "gzip, br",
    "Referer": "https://www.example.com/start",
    "Cookie": "session=0123456789abcdef; theme=dark",
    "X-Debug": "1",
    "X-Internal-User": "root",
}
REDIRECTS = 10_000
# Statuses whose pages are replaced, with their reasons.
ERRORS = {404: "Not Found", 502: "Bad Gateway"}
# Bytes of the origin's error.
ERROR_LENGTH = 512
# What the origin is told of a request that passes.
TOLD = {
    "host": "www.example.com", "x-device": "mobile", "x-language": "de", "x-client-ip": "127.0.0.1",
    "x-site": "www.example.com", "x-debug": None, "x-internal-user": None, "x-internal-role": None,
}
EDITED = {
    "x-frame-options": "deny", "x-content-type-options": "nosniff", "etag": None,
    "cache-control": "public, max-age=60",
}
# What the response's fields are when nothing that an origin has sent is in it.
OWN = {"x-frame-options": "deny", "x-content-type-options": "nosniff"}


def old(number):
    """A path that is in the list of redirects."""
    return f"/old/articles/{number}/a-title-of-usual-length"


def new(number):
    """Where it leads."""
    return f"https://www.example.com/new/{number}/a-title-of-usual-length"


def redirects():
    """The list of redirects, as both proxies read it."""
    return "".join(f"{old(number)},{new(number)}\n" for number in range(REDIRECTS))


def page(template, status, path):
    """What a client must get instead of an origin's error."""
    values = {
        "status": str(status), "reason": ERRORS[status], "path": path, "host": FIELDS["Host"],
        "client-ip": "127.0.0.1",
    }
    for name, value in values.items():
        template = template.replace("{" + name + "}", value)
    return template


def cases(template):
    """Requests (method, target, changed fields) with the status, fields and body that each must get, and with what
    the origin must be told; none: it must not be asked."""
    refused = [
        ("GET", "/x/.git/config", {}, 404), ("GET", "/x/.env", {}, 404), ("GET", "/shop/index.php", {}, 404),
        ("GET", "/shop/a.aspx", {}, 404), ("PATCH", "/b/64", {}, 405),
        ("GET", "/b/64", {"User-Agent": "SQLmap/1.0"}, 403), ("GET", "/b/64", {"User-Agent": None}, 403),
        ("GET", "/admin/users", {}, 403), ("GET", "/api/items", {}, 401),
        ("GET", "/api/items", {"X-Api-Key": "key-5"}, 401), ("GET", "/b/64?q=%3CScript", {}, 403),
        ("GET", "/b/64?q=1+Union+Select+2", {}, 403), ("GET", "/b/64", {"Host": "c.example"}, 410),
        ("GET", "/b/64", {"Referer": "http://www.casino.example/"}, 403),
        ("GET", "/b/64", {"Cookie": "a=b; banned=1"}, 403), ("GET", "/b/" + "6" * 600, {}, 414),
    ]
    for method, target, fields, status in refused:
        yield (method, target, fields), status, OWN, None, None
    yield ("GET", "/b/64", {}), 200, EDITED, "x" * 64, TOLD
    desktop = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)", "Accept-Language": "en"}
    yield ("GET", "/b/64", desktop), 200, EDITED, "x" * 64, {**TOLD, "x-device": "desktop", "x-language": None}
    yield ("GET", "/api/items", {"X-Api-Key": "key-2"}), 200, EDITED, "x" * 64, TOLD
    yield ("GET", "/b/64?q=select", {"Cookie": "banned=0"}), 200, EDITED, "x" * 64, TOLD
    for number in (0, 4711, REDIRECTS - 1):
        yield ("GET", old(number), {}), 301, {"location": new(number)}, None, None
    yield ("GET", old(REDIRECTS), {}), 404, {"location": None}, None, None
    for status in ERRORS:
        path = f"/errors/{status}/{ERROR_LENGTH}"
        html = {"content-type": "text/html; charset=utf-8", "etag": None}
        yield ("GET", path, {}), status, html, page(template, status, path), {"host": FIELDS["Host"]}
    awkward, escaped = "/errors/404/'&'", "/errors/404/&#39;&amp;&#39;"
    yield ("GET", awkward, {}), 404, {"content-type": "text/html; charset=utf-8"}, page(template, 404, escaped), {}
    yield ("GET", "/errors/200/1", {}), 200, {"etag": '"1"'}, "x" * 64, {}


def request_text(target):
    """The bytes of a request of the load."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in FIELDS.items())
    return f"GET {target} HTTP/1.1\r\n{fields}\r\n"


def exchanges(what, template):
    """What the load generator sends and must get, for a kind of load: none, rules, redirects,
    error-pages or all."""
    made = []
    # Among the redirects, the others have to be seen often enough.
    times = 2000 if what == "all" else 1
    if what == "none":
        made.append({"request": request_text("/plain/1024"), "status": 200, "fields": {}, "pattern": 1024})
    if what in ("rules", "all"):
        fields = {name: value for name, value in EDITED.items() if value is not None}
        made += times * [{"request": request_text("/b/1024"), "status": 200, "fields": fields, "pattern": 1024}]
    if what in ("redirects", "all"):
        made += [
            {"request": request_text(old(number)), "status": 301, "fields": {"location": new(number)}}
            for number in range(REDIRECTS)
        ]
    if what in ("error-pages", "all"):
        for status in ERRORS:
            path = f"/errors/{status}/{ERROR_LENGTH}"
            made += times * [{
                "request": request_text(path), "status": status,
                "fields": {"content-type": "text/html; charset=utf-8"}, "text": page(template, status, path),
            }]
    return made


class Echo(BaseHTTPRequestHandler):
    """An origin that remembers what it was told."""

    protocol_version = "HTTP/1.1"
    told = None

    def do_GET(self):
        """Answers 64 bytes, with the status that the path asks for."""
        parts = self.path.split("/")
        status = int(parts[2]) if parts[1] == "errors" else 200
        Echo.told = dict(self.headers.items())
        self.send_response(status)
        for name, value in {"Content-Type": "application/octet-stream", "Content-Length": "64", "ETag": '"1"'}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"x" * 64)

    do_PATCH = do_GET

    def do_POST(self):
        """The same, when the body is there."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def log_message(self, *_):
        """Says nothing."""


@contextmanager
def echo():
    """An origin that remembers, and its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def differences(port, template):
    """Where the proxy on the port answers otherwise than it must, one line for each difference."""
    for (method, target, changed), status, fields, body, told in cases(template):
        sent = {name: value for name, value in {**FIELDS, **changed}.items() if value is not None}
        Echo.told = None
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        content = answer.read().decode()
        connection.close()
        where = f"{method} {target[:60]} {json.dumps(changed)}"
        if answer.status != status:
            yield f"{where}: status {answer.status} instead of {status}"
        for name, value in fields.items():
            if answer.getheader(name) != value:
                yield f"{where}: {name} is {answer.getheader(name)!r} instead of {value!r}"
        if body is not None and content != body:
            yield f"{where}: the body is {content!r} instead of {body!r}"
        got = Echo.told
        if (got is None) != (told is None):
            yield f"{where}: the origin was {'not ' if got is None else ''}asked"
            continue
        got = {name.lower(): value for name, value in (got or {}).items()}
        for name, value in (told or {}).items():
            if got.get(name) != value:
                yield f"{where}: the origin was told {name}: {got.get(name)!r} instead of {value!r}"


def check(proxy, port, template):
    """Raises unless the proxy answers as it must."""
    found = list(differences(port, template))
    if found:
        raise Failed(f"{proxy} does not do what the others do:\n" + "\n".join(found))
