"""CPU per hit: responses in memory, on a disk whose pages the system holds, and static files. Foregate, NGINX and Varnish
serve the same bytes in one run, in interleaved rounds."""

import argparse
import http.server
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .cli import foregate_path
from .processes import Failed, Process, free_port
from .proxies import BENCH, TARGET, Foregate, Nginx, cargo_build, need, output_of

KIB = 1 << 10
LOAD_TIMEOUT_S = 120
# The work of `slow_disk.py`.
SLOW_DISK = "slow-disk"


@dataclass(frozen=True)
class CacheWork:
    """A row: how many objects of which size, where they are, and what Foregate may cost beside each peer."""

    name: str
    title: str
    size: int
    objects: int
    tier: str
    limits: dict
    connections: int = 64


WORKS = [
    CacheWork("ram-1k", "hit in memory, 1 KiB", KIB, 100, "memory", {"nginx": 0.70, "varnish": 0.90}),
    CacheWork("ram-32k", "hit in memory, 32 KiB", 32 * KIB, 100, "memory", {"nginx": 0.95, "varnish": 0.90}),
    CacheWork("disk-1k", "hit on disk, in the page cache, 1 KiB", KIB, 8_000, "disk", {"nginx": 0.80}),
    CacheWork("disk-32k", "hit on disk, in the page cache, 32 KiB", 32 * KIB, 2_000, "disk", {"nginx": 1.25}),
    CacheWork("files-1k", "static file, 1 KiB", KIB, 100, "files", {"nginx": 0.80}),
    CacheWork("files-32k", "static file, 32 KiB", 32 * KIB, 100, "files", {"nginx": 0.80}),
    CacheWork("files-10m", "static file, 10 MiB", 10 << 20, 4, "files", {"nginx": 1.00}, connections=8),
]


def arguments(argv):
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="bench/cache", description=__doc__, allow_abbrev=False)
    parser.add_argument("--foregate", metavar="PATH", help="the program (default: $FOREGATE, or the release build)")
    every = [work.name for work in WORKS] + [SLOW_DISK]
    parser.add_argument("--only", metavar="WORK,...", help=f"the works: {', '.join(every)}")
    parser.add_argument("--peers", metavar="NAME,...", default="nginx,varnish", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: %(default)s)")
    parser.add_argument("--run-ms", type=int, default=1500, help="length of a measurement (default: %(default)s)")
    parser.add_argument("--slow-rounds", type=int, default=3, help=f"rounds of {SLOW_DISK} (default: %(default)s)")
    parser.add_argument("--slow-ms", type=int, default=5000, help="length of one of its measurements (default: %(default)s)")
    parser.add_argument("--first", action="store_true",
                        help=f"let what {SLOW_DISK} measures go before everything else on a busy machine, where the kernel groups"
                        " processes by session (needs root)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there as well")
    options = parser.parse_args(argv)
    names = options.only.split(",") if options.only else every
    for name in names:
        if name not in every:
            parser.error(f"no work is called {name!r}; they are {', '.join(every)}")
    options.works = [work for work in WORKS if work.name in names]
    options.slow_disk = SLOW_DISK in names
    options.peers = [peer for peer in options.peers.split(",") if peer]
    for name in options.peers:
        if name not in ("nginx", "varnish"):
            parser.error(f"no peer is called {name!r}; they are nginx and varnish")
    return options


class Origin(http.server.BaseHTTPRequestHandler):
    """Answers each path with as many bytes as it names."""

    protocol_version = "HTTP/1.1"
    count = 0

    def do_GET(self):
        Origin.count += 1
        body = content(int(self.path.split("/")[1]))
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Cache-Control", "max-age=86400")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class OriginServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def content(size):
    """The bytes of every object of a size."""
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


def paths(work):
    """The objects of a work."""
    return [f"/{work.size}/{number}" for number in range(work.objects)]


class CacheForegate(Foregate):
    """Foregate with a cache, or with a folder."""

    def command(self, work, port, origin, folder, tls):
        store = {"memory": 'memory "256MiB"', "files": 'memory "1MiB"'}.get(work.tier)
        if store is None:
            (folder / "store").mkdir()
            # So little memory that hits are read from the disk.
            store = f'memory "1MiB"; disk "{folder}/store" size="2GiB"'
        route = f'files "{folder}/www"' if work.tier == "files" else 'proxy "origin"; cache'
        config = folder / "foregate.kdl"
        config.write_text(
            f'workers 1\nlisten "127.0.0.1:{port}"\ncache-store {{ {store} }}\n'
            f'upstream "origin" {{ server "{origin}" }}\nsite "*" {{ route "/**" {{ {route} }} }}\n'
        )
        return [self.path, "run", "--single", "-c", config]


class CacheNginx(Nginx):
    """NGINX with `proxy_cache`, or with `root`."""

    def command(self, work, port, origin, folder, tls):
        cached = "proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_cache c;"
        route = f"root {folder}/www;" if work.tier == "files" else cached
        config = folder / "nginx.conf"
        # `sendfile` and `open_file_cache` favour NGINX.
        config.write_text(f"""
{"user root;" if os.geteuid() == 0 else ""}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    sendfile on;
    tcp_nopush on;
    open_file_cache max=50000 inactive=60s;
    open_file_cache_valid 60s;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    proxy_cache_path {folder}/store levels=1:2 keys_zone=c:64m max_size=4g inactive=1d use_temp_path=off;
    upstream origin {{ server {origin}; keepalive 64; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ {route} }}
    }}
}}
""")
        return [self.path, "-p", folder, "-e", folder / "error.log", "-c", config]


class Varnish(Foregate):
    """Varnish as the system has it, with its built-in rules."""

    name = "varnish"

    def __init__(self):
        super().__init__(None)

    def prepare(self):
        self.path = need("varnishd")

    def version(self):
        return output_of([self.path, "-V"]).splitlines()[0].partition("(")[2].rstrip(")")

    def children(self, work):
        return 1

    def command(self, work, port, origin, folder, tls):
        host, _, origin_port = origin.partition(":")
        rules = folder / "default.vcl"
        rules.write_text(f'vcl 4.1;\nbackend default {{ .host = "{host}"; .port = "{origin_port}"; }}\n')
        return [
            self.path, "-F", "-n", folder / "varnish", "-a", f"127.0.0.1:{port}", "-f", rules, "-s", "malloc,256m",
            "-T", "none", "-p", "thread_pools=1", "-p", "thread_pool_min=100", "-j", "none",
        ]


def fill_and_check(work, proxy, port):
    """Asks for each object twice, and compares the bytes of the second answer."""
    for turn in range(2):
        names = paths(work)
        threads = [
            threading.Thread(target=lambda part: [fetch(work, port, path, turn) for path in part], args=(names[n::8],))
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if work.tier == "files":
        return
    before = Origin.count
    for path in random.sample(paths(work), min(50, work.objects)):
        fetch(work, port, path, 1)
    if Origin.count != before:
        raise Failed(f"{proxy.name} asks the origin for {work.name} although it has every object")


def fetch(work, port, path, turn):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        body = answer.read()
    if turn and body != content(work.size):
        raise Failed(f"{path} is not what the origin has")


class Row:
    """The rounds of one work."""

    def __init__(self, work):
        self.work, self.rounds = work, {}

    def figure(self, name):
        return statistics.median(self.rounds[name])

    def ratio(self, peer):
        """The median of the rounds' ratios: each round has both under the same noise."""
        return statistics.median(
            ours / theirs for ours, theirs in zip(self.rounds["foregate"], self.rounds[peer], strict=True)
        )


def measure(program, work, process, port, folder, cpus, run_ms):
    """CPU microseconds for each request of one load."""
    exchanges = folder / "exchanges.json"
    if not exchanges.exists():
        made = [
            {"request": f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: bench-load/1\r\nAccept: */*\r\n\r\n",
             "status": 200, "fields": {}}
            for path in paths(work)
        ]
        exchanges.write_text(json.dumps(made))
    pids = ",".join(map(str, process.pids()))
    command = [
        program, "load", f"127.0.0.1:{port}", "--work", "kept", "--connections", work.connections,
        "--exchanges", exchanges, "--pids", pids, "--warm-ms", 300, "--run-ms", run_ms,
    ]
    with Process(command, cpus, folder / "load.log", stdout=subprocess.PIPE) as load:
        out, _ = load.process.communicate(timeout=LOAD_TIMEOUT_S)
        if load.process.returncode != 0:
            raise Failed(f"{load.tail()} {process.tail()}".strip())
    counts = json.loads(out)
    if counts["requests"] == 0 or any(counts["faults"].values()):
        raise Failed(f"{counts['requests']} requests, faults: {counts['faults']}")
    return counts["cpu_s"] * 1e6 / counts["requests"]


def run_work(options, program, proxies, work, row):
    cpus = sorted(os.sched_getaffinity(0))
    load_cpus, proxy_cpus = {cpus[0]}, {cpus[-1]}
    with ExitStack() as stack:
        top = Path(tempfile.mkdtemp(prefix="foregate-bench-cache-"))
        stack.callback(shutil.rmtree, top, ignore_errors=True)
        origin = OriginServer(("127.0.0.1", 0), Origin)
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        stack.callback(origin.server_close)
        stack.callback(origin.shutdown)
        running = []
        for proxy in proxies:
            if proxy.name == "varnish" and "varnish" not in work.limits:
                continue
            folder = top / proxy.name
            folder.mkdir()
            if work.tier == "files":
                for path in paths(work):
                    file = folder / "www" / path[1:]
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content(work.size))
            process, port = proxy.start(_Wrapped(work), origin.server_address[1], folder, folder, proxy_cpus)
            stack.enter_context(process)
            fill_and_check(work, proxy, port)
            running.append((proxy, process, port, folder))
        time.sleep(2)
        for _ in range(options.rounds):
            for proxy, process, port, folder in running:
                used = measure(program, work, process, port, folder, load_cpus, options.run_ms)
                row.rounds.setdefault(proxy.name, []).append(used)


class _Wrapped:
    """A work as `Proxy.start` reads it."""

    log = False
    workers = 1

    def __init__(self, work):
        self.work = work

    def __getattr__(self, name):
        return getattr(self.work, name)


def show(rows, proxies):
    """The table."""
    names = [proxy.name for proxy in proxies]
    lines = ["| work | " + " | ".join(f"{name}, us" for name in names) + " | ratio (limit) |",
             "|---|" + "---|" * (len(names) + 1)]
    missed = []
    for row in rows:
        figures = [f"{row.figure(name):.1f}" if name in row.rounds else "-" for name in names]
        ratios = []
        for peer, limit in row.work.limits.items():
            if peer in row.rounds:
                ratio = row.ratio(peer)
                ratios.append(f"{ratio:.2f} of {peer} ({limit:.2f})")
                if ratio > limit:
                    missed.append(f"{row.work.name}: {ratio:.2f} of {peer}, {limit:.2f} allowed")
        lines.append(f"| {row.work.title} | " + " | ".join(figures) + f" | {', '.join(ratios)} |")
    return lines, missed


def main():
    """Runs the works and gives the exit code."""
    # That file uses this one.
    from . import slow_disk
    options = arguments(sys.argv[1:])
    random.seed(1)
    try:
        proxies = [CacheForegate(foregate_path(options.foregate))]
        if options.works:
            proxies += [{"nginx": CacheNginx, "varnish": Varnish}[name]() for name in options.peers]
        for proxy in proxies:
            proxy.prepare()
        program = cargo_build(BENCH / "Cargo.toml", TARGET, "bench-load")
        rows = []
        for work in options.works:
            row = Row(work)
            run_work(options, program, proxies, work, row)
            rows.append(row)
            print(f"{work.name}: " + ", ".join(f"{name} {row.figure(name):.1f} us" for name in row.rounds), flush=True)
        slow = []
        if options.slow_disk and (options.only or slow_disk.is_possible()):
            slow = slow_disk.run(options, proxies[0].path, program)
        elif options.slow_disk:
            print(f"{SLOW_DISK}: left out, since it needs root and /dev/fuse")
    except Failed as error:
        print(f"bench/cache: {error}", file=sys.stderr)
        return 2
    lines, missed = show(rows, proxies) if rows else ([], [])
    print("\n".join(["", *(proxy.version() for proxy in proxies), "", *lines, ""]))
    missed += slow
    if options.json:
        options.json.write_text(json.dumps({row.work.name: row.rounds for row in rows}))
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0
