"""What rewriting adds: to the time until the first byte, and to the CPU of a request, beside NGINX."""

import json
import socket
import statistics
import subprocess
import time

from . import pages
from .processes import Failed, Process

# What has to be reached. Microseconds; of sub_filter's CPU; of the same feature's CPU in foregate.
FIRST_BYTE_US = 100
OF_SUB_FILTER, OF_FOREGATE = 1.1, 1.15
TIMEOUT_S = 10
WARM_REQUESTS = 100
RUN_MS, WARM_MS, CONNECTIONS = 600, 150, 8
HEAD = b"<script src=/stats.js></script></head>"
BODY = b"<script src=/chat.js></script></body>"


def request(kind):
    """The request for the page on a route."""
    return f"GET /{kind}/page HTTP/1.1\r\nHost: site.example\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n".encode()


class Closed(Failed):
    """A connection ended before the first byte of an answer."""


def received(connection):
    """The next bytes, of which there have to be some."""
    data = connection.recv(1 << 18)
    if not data:
        raise Failed("the connection ended within an answer")
    return data


def ask(connection, kind):
    """One request on a kept-alive connection: seconds to its first byte and to the first of its body, the body."""
    start = time.perf_counter()
    try:
        connection.sendall(request(kind))
        start_of_it = connection.recv(65536)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed(f"/{kind}/: {error}") from error
    first = in_body = time.perf_counter() - start
    if not start_of_it:
        raise Closed(f"/{kind}/: the connection was closed")
    if not start_of_it.startswith(b"HTTP/1.1 200"):
        raise Failed(f"/{kind}/: {start_of_it[:40]!r}")
    while not start_of_it.partition(b"\r\n\r\n")[2]:
        start_of_it += received(connection)
        in_body = time.perf_counter() - start
    head, _, body = start_of_it.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        while not body.endswith(b"\r\n0\r\n\r\n"):
            body += received(connection)
        return first, in_body, joined(body)
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += received(connection)
    return first, in_body, body


def joined(chunks):
    """The data of a body in chunks."""
    out, at = b"", 0
    while True:
        end = chunks.index(b"\r\n", at)
        size = int(chunks[at:end], 16)
        if size == 0:
            return out
        out += chunks[end + 2:end + 2 + size]
        at = end + 4 + size


def connect(port):
    """A connection to a proxy."""
    connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def expected(setup):
    """What each route makes of the page: computed where that is simple, else what foregate makes of it."""
    page = setup.page
    known = {"none": page, "head": page.replace(b"</head>", HEAD), "body": page.replace(b"</body>", BODY)}
    with setup.running(setup.foregate) as (_, port, _), connect(port) as connection:
        for kind in ("emails", "five"):
            known[kind] = ask(connection, kind)[2]
    if pages.HIDDEN.sub(restore, known["emails"]).replace(pages.SCRIPT, b"") != page:
        raise Failed("foregate does not hide addresses as it should")
    count = known["emails"].count(b"data-fg-email")
    if known["five"].count(b"data-fg-email") != count or b"<!-- card" in known["five"]:
        raise Failed("foregate does not do the five features")
    return known


def restore(match):
    """The address that a placeholder holds."""
    code = bytes.fromhex(match[1].decode())
    return code[1:].translate(pages.KEYS[code[0]])


def compare_first_byte(setup, options, report):
    """Time to the first byte with and without features, in alternation on one connection."""
    known = expected(setup)
    print(f"time to first byte, page of {len(setup.page)} bytes, {options.requests} requests of each kind in alternation")
    for proxy in (setup.foregate, setup.module):
        times = {"none": ([], []), "emails": ([], []), "five": ([], [])}
        with setup.running(proxy) as (_, port, _), connect(port) as connection:
            for number in range(WARM_REQUESTS + options.requests):
                # Each kind comes after each other equally often.
                for kind in list(times)[:: 1 if number % 2 else -1]:
                    first, in_body, body = ask(connection, kind)
                    if body != known[kind]:
                        raise Failed(f"{proxy.name}, /{kind}/: the body is not what it should be")
                    if number >= WARM_REQUESTS:
                        times[kind][0].append(1e6 * first)
                        times[kind][1].append(1e6 * in_body)
        for place, what in enumerate(("first byte", "first byte of the body")):
            base = quantiles(times["none"][place])
            report.row(f"{proxy.name}: {what}, no feature", base[0], f"us (median {base[1]:.0f})")
            for kind in ("emails", "five"):
                low, median = quantiles(times[kind][place])
                report.row(f"{proxy.name}: {what}, {kind}, more", low - base[0], f"us (median {median - base[1]:.0f})",
                           FIRST_BYTE_US)


def quantiles(values):
    """The tenth percentile, to which other work of the machine adds little, and the median."""
    return statistics.quantiles(values, n=10)[0], statistics.median(values)


def cpu(setup, proxy, kind, body):
    """Microseconds of CPU for a request, each answer compared."""
    with setup.running(proxy, cpus=setup.proxy_cpus) as (process, port, folder):
        exchange = {"request": request(kind).decode(), "status": 200, "fields": {}, "text": body.decode()}
        (folder / "exchanges.json").write_text(json.dumps([exchange]))
        command = [setup.program, "load", f"127.0.0.1:{port}", "--work", "kept", "--connections", CONNECTIONS,
                   "--run-ms", RUN_MS, "--warm-ms", WARM_MS, "--exchanges", folder / "exchanges.json",
                   "--pids", ",".join(map(str, process.pids()))]
        with Process(command, setup.load_cpus, folder / "load.log", stdout=subprocess.PIPE) as load:
            out, _ = load.process.communicate(timeout=60)
            if load.process.returncode != 0:
                raise Failed(f"{proxy.name}, /{kind}/: {load.tail()} {process.tail()}")
        counts = json.loads(out)
    if sum(counts["faults"].values()) or not counts["requests"]:
        raise Failed(f"{proxy.name}, /{kind}/: {counts['faults']}")
    return counts["cpu_s"] * 1e6 / counts["requests"]


def compare_cpu(setup, options, report):
    """CPU of a request for the page by each proxy, in turns."""
    known = expected(setup)
    rows = [(setup.foregate, kind) for kind in ("none", "head", "body", "emails", "five")]
    rows += [(setup.nginx, kind) for kind in ("none", "head", "body")]
    rows += [(setup.module, kind) for kind in ("none", "head", "body", "emails", "five")]
    print(f"CPU of a request for a page of {len(setup.page)} bytes, {options.rounds} rounds in turns")
    figures = {(proxy.name, kind): [] for proxy, kind in rows}
    for turn in range(options.rounds):
        start = turn * 5 % len(rows)
        for proxy, kind in rows[start:] + rows[:start]:
            figures[proxy.name, kind].append(cpu(setup, proxy, kind, known[kind]))
    middle = {row: statistics.median(values) for row, values in figures.items()}
    for (name, kind), values in figures.items():
        per_mb = middle[name, kind] / len(setup.page) * 1e3
        report.row(f"{name}, {kind}", middle[name, kind],
                   f"us ({min(values):.1f} .. {max(values):.1f}), {per_mb:.2f} ms/MB")
    added = {row: value - middle[row[0], "none"] for row, value in middle.items()}
    for kind in ("head", "body"):
        ratio = middle["foregate", kind] / middle["nginx", kind]
        report.row(f"insertion, {kind}: foregate / sub_filter", ratio, "", OF_SUB_FILTER)
        report.row(f"insertion, {kind}: what it adds, foregate", added["foregate", kind],
                   f"us, sub_filter {added['nginx', kind]:.1f} us")
    for kind in ("head", "body", "emails", "five"):
        more = added["nginx-module", kind], added["foregate", kind]
        ratio = middle["nginx-module", kind] / middle["foregate", kind]
        report.row(f"{kind}: nginx-module / foregate", ratio, "")
        report.row(f"{kind}: what it adds, nginx-module / foregate", more[0] / more[1],
                   f"({more[0]:.1f} us, {more[1]:.1f} us)", OF_FOREGATE)
