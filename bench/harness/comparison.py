"""The costs of fallback and comparison: CPU per request, latency beside a shadow that stalls, sets of requests."""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from .cli import foregate_path, parsed
from .processes import Failed, Process, free_port, memory_kib
from .proxies import BENCH, TARGET, cargo_build, need
from .reload import Report

# The bounds: see README.md.
FALLBACK, UNUSED, SHADOW = 1.05, 1.02, 1.15
# An idle machine varies by less; a busy one adds some tenths of a millisecond to both.
P99_FACTOR, P99_SLACK_MS = 1.1, 1.0
STALL_RATE = 1000
SET_S, SCREEN_LINES = 10.0, 50
CONNECTIONS, ANSWER = 32, 1024
# Comparisons under way are finished by then.
SETTLE_S = 0.4
COMPARED_LEAST = 0.9
PARTS = ("fallback", "comparison", "stall", "set", "equal")

# The origin, and servers of NGINX: in front of it, the same with PROXY headers, in front of two listeners, with random answers.
UPSTREAMS = ("origin", "old", "old-told", "back", "back-plain", "equal")
# The configurations that are measured: their sites and routes, without listeners and upstreams.
PLAIN = 'site "*" { route "/**" { proxy "origin"; }; }\n'
WORKS = {
    "plain": PLAIN,
    "unused": 'fallback upstream="old"\n' + PLAIN + (
        'site "other.example" { route "/a/**" { proxy "origin"; fallback upstream="old" share="50%"; '
        'compare upstream="old"; }; route "/b" { proxy "origin"; compare upstream="old" mode="tap"; }; }\n'
    ),
    "fallback": 'fallback upstream="origin"\n',
    "fallback of a route": 'site "*" { route "/**" { proxy "origin"; fallback upstream="origin" share="0%"; }; }\n',
    "plain to NGINX": 'site "*" { route "/**" { proxy "old"; }; }\n',
    "fallback to NGINX": 'fallback upstream="old-told"\n',
    "shadow": 'site "*" { route "/**" { proxy "origin"; compare upstream="origin" learn="0%"; }; }\n',
    "shadow that learns": 'site "*" { route "/**" { proxy "origin"; compare upstream="origin"; }; }\n',
    "dry run": 'site "*" { route "/**" { proxy "origin"; compare upstream="origin" mode="dry-run"; }; }\n',
    "tap": 'site "*" { route "/**" { proxy "origin"; compare upstream="back" mode="tap"; }; }\n',
    # The two requests of a tap without comparison: from the client to NGINX, and from there to the origin.
    "twice": 'site "*" { listeners "@FRONT"; route "/**" { proxy "back-plain"; }; }\n'
             'site "*" { listeners "@BACK"; route "/**" { proxy "origin"; }; }\n',
}
SHADOWED = 'site "*" { route "/**" { proxy "%s"; compare upstream="%s"; }; }\n'


def arguments(argv):
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="bench/compare", description=__doc__, allow_abbrev=False)
    parser.add_argument("--foregate", metavar="PATH", help="the program (default: $FOREGATE, or the release build)")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,...", help="what to measure (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of the costs (default: %(default)s)")
    parser.add_argument("--run-ms", type=int, default=600, help="length of a measurement (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=100_000, help="of the part `equal` (default: %(default)s)")
    return parsed(parser, argv, PARTS)


def nginx_configuration(folder, ports):
    """The old proxy: plain, with the PROXY protocol, in front of a listener of ours, and a system with random answers."""
    user = "user root;" if os.geteuid() == 0 else ""
    temporary = "".join(f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    forward = 'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;'
    facts = (
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme; "
        "proxy_set_header X-Forwarded-Host $http_host;"
    )
    # Members, a field and a cookie have random values, and one answer of a hundred comes from another node.
    body = '{"id":"$request_id","at":"$time_iso8601","ms":$msec,"path":"$uri","node":"$node","n":1}'
    return f"""{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    {temporary}
    set_real_ip_from 127.0.0.1;
    real_ip_header proxy_protocol;
    split_clients "$request_id" $node {{ 1% b; * a; }}
    upstream origin {{ server 127.0.0.1:{ports["origin"]}; keepalive 256; keepalive_requests 1000000000; }}
    upstream tap {{ server 127.0.0.1:{ports["tap"]}; keepalive 256; keepalive_requests 1000000000; }}
    upstream twice {{ server 127.0.0.1:{ports["twice"]}; keepalive 256; keepalive_requests 1000000000; }}
    server {{ listen 127.0.0.1:{ports["old"]}; listen 127.0.0.1:{ports["old-told"]} proxy_protocol; location / {{ proxy_pass http://origin; {forward} }} }}
    server {{ listen 127.0.0.1:{ports["back"]}; location / {{ proxy_pass http://tap; {forward} {facts} }} }}
    server {{ listen 127.0.0.1:{ports["back-plain"]}; location / {{ proxy_pass http://twice; {forward} {facts} }} }}
    server {{
        listen 127.0.0.1:{ports["equal"]};
        default_type application/json;
        location / {{
            add_header X-Request-Id $request_id; add_header X-Node $node; add_header Last-Modified $date_gmt;
            add_header Set-Cookie "visit=$request_id; Path=/; HttpOnly";
            return 200 '{body}';
        }}
        location /page/ {{ default_type text/html; return 200 '<h1>$uri</h1><i nonce="$request_id">$date_local</i>'; }}
    }}
}}
"""


class Setup:
    """The programs, and the processes beside those that are measured: origin and NGINX."""

    def __init__(self, options, stack):
        self.foregate = Path(foregate_path(options.foregate))
        if not self.foregate.is_file():
            raise Failed(f"no foregate program at {self.foregate}: build it, or name it with --foregate or $FOREGATE")
        self.stack = stack
        self.program = cargo_build(BENCH / "Cargo.toml", TARGET, "bench-load")
        self.folder = Path(tempfile.mkdtemp(prefix="foregate-bench-"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        cpus = sorted(os.sched_getaffinity(0))
        self.load_cpus, self.proxy_cpus = {cpus[0]}, {cpus[-1]}
        self.ports = {name: free_port() for name in (*UPSTREAMS, "tap", "twice", "control")}
        ports = self.ports
        command = [self.program, "origin", f"127.0.0.1:{ports['origin']}", f"127.0.0.1:{ports['control']}"]
        stack.enter_context(Process(command, self.load_cpus, self.folder / "origin.log")).wait_for_port(ports["control"])
        (self.folder / "nginx.conf").write_text(nginx_configuration(self.folder, ports))
        command = [need("nginx"), "-p", self.folder, "-e", self.folder / "error.log", "-c", self.folder / "nginx.conf"]
        nginx = stack.enter_context(Process(command, self.load_cpus, self.folder / "nginx.log"))
        nginx.wait_for_port(ports["old"])

    def proxy(self, name, text, cpus=None, more=None):
        """Starts Foregate with these sites, one worker on one core."""
        return self.stack.enter_context(Foregate(self, name.replace(" ", "-"), text, cpus or self.proxy_cpus, more or {}))


class Foregate(Process):
    """A Foregate with a configuration of its own."""

    def __init__(self, setup, name, text, cpus, more):
        self.setup, self.port = setup, free_port()
        self.config = setup.folder / f"{name}.kdl"
        ports = {**setup.ports, **more}
        told = {"old-told": 'send-proxy "v2"; '}
        upstreams = "".join(
            f'upstream "{upstream}" {{ server "127.0.0.1:{port}"; {told.get(upstream, "")}}}\n'
            for upstream, port in ports.items() if upstream in (*UPSTREAMS, *more)
        )
        # NGINX sends requests back to these two.
        tap = {"tap": '{ tap "origin"; }', "twice": ""}
        tap = f'listen "127.0.0.1:{ports[name]}" {tap[name]}\n' if name in tap else ""
        self.config.write_text(
            f'workers 1\nlisten "127.0.0.1:{self.port}"\nadmin "{setup.folder}/{name}.sock"\n{tap}'
            f'compare-samples "{setup.folder}/samples-{name}"\n{upstreams}' + text.replace("@FRONT", f"127.0.0.1:{self.port}").replace("@BACK", f"127.0.0.1:{ports['twice']}")
        )
        super().__init__([setup.foregate, "run", "--single", "-c", self.config], cpus, setup.folder / f"{name}.log")
        self.wait_for_port(self.port)

    def cpu(self):
        """Nanoseconds of all its threads, user and system together."""
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except OSError:
                # The thread has ended.
                continue
        return total

    def report(self):
        """The report of its comparisons."""
        command = [self.setup.foregate, "compare", "report", "-c", self.config, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"no report: {done.stderr}")
        return json.loads(done.stdout)

    def counts(self):
        """How many requests were compared, and how many were not."""
        routes = self.report()["routes"]
        return sum(route["compared"] for route in routes), sum(sum(route["not_compared"].values()) for route in routes)


def cost(setup, proxy, run_ms, connections=CONNECTIONS):
    """Microseconds of CPU for each request, and the number of requests. Work behind the answer counts."""
    before = proxy.cpu()
    command = [setup.program, "load", f"127.0.0.1:{proxy.port}", "--work", "kept", "--connections", connections,
               "--answer", ANSWER, "--warm-ms", 0, "--run-ms", run_ms]
    with Process(command, setup.load_cpus, setup.folder / "load.log", stdout=subprocess.PIPE) as load:
        out, _ = load.process.communicate(timeout=60)
        if load.process.returncode != 0:
            raise Failed(load.tail())
    counts = json.loads(out)
    if sum(counts["faults"].values()) or not counts["requests"]:
        raise Failed(f"faults: {counts['faults']}; {proxy.tail()}")
    time.sleep(SETTLE_S)
    # Before they are measured, connections have one request each.
    requests = counts["requests"] + connections
    return (proxy.cpu() - before) / 1000 / requests, requests


def costs(setup, names, options):
    """The cost of a request with each configuration: rounds in turns."""
    proxies = {name: setup.proxy(name, WORKS[name]) for name in names}
    for proxy in proxies.values():
        cost(setup, proxy, 150)
    found = {name: [] for name in names}
    for turn in range(options.rounds):
        for at in range(len(names)):
            name = names[(at + turn) % len(names)]
            proxy = proxies[name]
            compares = "compare" in WORKS[name] and name != "unused"
            before = proxy.counts() if compares else (0, 0)
            figure, requests = cost(setup, proxy, options.run_ms)
            if compares:
                after = proxy.counts()
                compared = after[0] - before[0]
                if compared < COMPARED_LEAST * requests:
                    raise Failed(f"{name}: {compared} of {requests} requests were compared, {after[1] - before[1]} were not")
                if proxy.report()["different"]:
                    raise Failed(f"{name}: a difference where there is none: {proxy.report()['routes'][0]['parts']}")
            found[name].append(figure)
    for proxy in proxies.values():
        proxy.stop()
    for name, figures in found.items():
        print(f"  {name:46} {statistics.median(figures):10.2f} us/request  ({min(figures):.1f} .. {max(figures):.1f})", flush=True)
    return found


def ratio(found, name, base, times=1):
    """The median of the rounds' ratios: those of one round were measured one after the other."""
    return statistics.median(one / other / times for one, other in zip(found[name], found[base], strict=True))


def fallback(setup, options, report):
    """Plain proxying, the same with unused fallback and comparison, and fallback."""
    found = costs(setup, ["plain", "unused", "fallback", "fallback of a route"], options)
    report.row("fallback and comparison unused / plain", ratio(found, "unused", "plain"), "", UNUSED)
    report.row("fallback / plain", ratio(found, "fallback", "plain"), "", FALLBACK)
    report.row("fallback of a route / plain", ratio(found, "fallback of a route", "plain"), "", FALLBACK)
    found = costs(setup, ["plain to NGINX", "fallback to NGINX"], options)
    report.row("fallback / plain, NGINX is the old proxy", ratio(found, "fallback to NGINX", "plain to NGINX"), "", FALLBACK)


def comparison(setup, options, report):
    """What comparing adds."""
    found = costs(setup, ["plain", "shadow", "shadow that learns", "dry run", "twice", "tap"], options)
    report.row("shadow / two plain requests", ratio(found, "shadow", "plain", 2), "", SHADOW)
    report.row("shadow that learns / 2.1 plain requests", ratio(found, "shadow that learns", "plain", 2.1), "", SHADOW)
    report.row("dry run / plain", ratio(found, "dry run", "plain"), "", SHADOW)
    report.row("tap / the same two requests without it", ratio(found, "tap", "twice"), "", SHADOW)


class Silent:
    """A server that accepts connections and never answers."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.port = self.socket.getsockname()[1]
        self.kept = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        """Accepts until the program ends."""
        while True:
            self.kept.append(self.socket.accept()[0])


def stall(setup, options, report):
    """The latency of clients while the shadow answers nothing, beside that without comparison."""
    silent = {"silent": Silent().port}
    with_it = setup.proxy("stalled", SHADOWED % ("origin", "silent"), more=silent)
    without = setup.proxy("calm", PLAIN, more=silent)
    exchange = {"request": f"GET /b/{ANSWER} HTTP/1.1\r\nHost: a\r\n\r\n", "status": 200, "fields": {}, "pattern": ANSWER}
    (setup.folder / "exchanges.json").write_text(json.dumps([exchange]))
    times = {with_it: [], without: []}
    before = memory_kib([with_it.process.pid])["Rss"]
    for turn in range(options.rounds):
        for proxy in ((with_it, without) if turn % 2 else (without, with_it)):
            command = [setup.program, "paced", f"127.0.0.1:{proxy.port}", "--exchanges", setup.folder / "exchanges.json",
                       "--rate", STALL_RATE, "--connections", 16, "--run-ms", 3000]
            with Process(command, setup.load_cpus, setup.folder / "load.log", stdout=subprocess.PIPE) as load:
                out, _ = load.process.communicate(timeout=60)
            counts = json.loads(out)["classes"][""]
            if sum(counts["faults"].values()):
                raise Failed(f"faults: {counts['faults']}")
            times[proxy].append(counts["p99_us"] / 1000)
    stalled, calm = (statistics.median(times[proxy]) for proxy in (with_it, without))
    compared, not_compared = with_it.counts()
    print(f"  {not_compared} requests were not compared, {compared} were")
    report.row("p99 without comparison", calm, "ms")
    report.row("p99 while the shadow stalls", stalled, "ms", max(calm * P99_FACTOR, calm + P99_SLACK_MS))
    report.row("its memory grows by", (memory_kib([with_it.process.pid])["Rss"] - before) / 1024, "MiB", 64)


def access_log(path, number, paths):
    """A log in NGINX's combined format."""
    with path.open("w") as file:
        for at in range(number):
            target = paths[at % len(paths)].format(at)
            file.write(f'127.0.0.1 - - [01/Jan/2026:10:00:00 +0000] "GET {target} HTTP/1.1" 200 1 "-" "bench"\n')


def compare_run(setup, log, old, new, *more):
    """Runs `foregate compare run`; seconds, and what it prints."""
    command = [setup.foregate, "compare", "run", log, "--host", "shop.example", "--old", f"http://127.0.0.1:{old}",
               "--new", f"http://127.0.0.1:{new}", *more]
    start = time.monotonic()
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    seconds = time.monotonic() - start
    if done.returncode not in (0, 1) or not done.stdout:
        raise Failed(f"compare run ended with {done.returncode}: {done.stderr[-2000:]}")
    return seconds, done.stdout


def request_set(setup, _, report):
    """500 requests against NGINX and Foregate, each in front of the same origin."""
    proxy = setup.proxy("set", PLAIN, cpus=os.sched_getaffinity(0))
    log = setup.folder / "set.log"
    access_log(log, 500, ["/b/{}", "/b/9{}", "/plain/{}", "/errors/404/{}", "/errors/502/{}"])
    seconds, text = compare_run(setup, log, setup.ports["old"], proxy.port)
    found = json.loads(compare_run(setup, log, setup.ports["old"], proxy.port, "--json")[1])
    if found["compared"] != 500:
        raise Failed(f"{found['compared']} of 500 requests were compared")
    report.row("500 requests against NGINX and Foregate", seconds, "s", SET_S)
    report.row("lines of the report", len(text.splitlines()), "", SCREEN_LINES)
    report.row("requests that differ", found["different"], "", 0)


def equal(setup, options, report):
    """Two equal systems with random ids and dates: by a set of requests, and by a shadow."""
    # The shadow compares the same requests while the set passes through Foregate.
    proxy = setup.proxy("equal", SHADOWED % ("equal", "equal"), cpus=os.sched_getaffinity(0))
    log = setup.folder / "equal.log"
    access_log(log, options.requests, ["/api/{}", "/users/{}/orders", "/page/{}", "/search?q={}", "/health"])
    seconds, text = compare_run(setup, log, setup.ports["equal"], proxy.port, "--json")
    found = json.loads(text)
    if found["compared"] != options.requests:
        raise Failed(f"{found['compared']} of {options.requests} requests were compared")
    print(f"  a set of {options.requests} requests took {seconds:.0f} s: {found['classes']}")
    report.row("requests that differ", found["different"], "", 0)
    time.sleep(SETTLE_S)
    shadowed = proxy.report()
    compared, not_compared = proxy.counts()
    print(f"  the shadow compared {compared} of them, {not_compared} were not: {shadowed['classes']}")
    if compared < COMPARED_LEAST * options.requests:
        raise Failed("the shadow has compared too few")
    report.row("requests whose shadow differs", shadowed["different"], "", 0)


RUN = {"fallback": fallback, "comparison": comparison, "stall": stall, "set": request_set, "equal": equal}


def main(argv=None):
    """Prints the figures; 0 when all bounds are reached, 1 when not."""
    options = arguments(argv)
    report = Report()
    try:
        with ExitStack() as stack:
            setup = Setup(options, stack)
            for part in options.parts:
                print(f"{part}: {RUN[part].__doc__}", flush=True)
                RUN[part](setup, options, report)
    except (Failed, OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"bench/compare: {error}", file=sys.stderr)
        return 1
    return 1 if report.missed else 0
