"""Reloads under load, and configurations with very many sites."""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .cli import foregate_path, parsed
from .processes import Failed, Process, free_port, memory_kib
from .proxies import BENCH, TARGET, cargo_build

ROUTES = 5
# What has to be reached: see `Report.row`.
CHECK_S, CHECK_MIB = 3.0, 300
COST = 1.05
# A reload must add no pause: the longest gap between answers stays within what a busy machine shows without one.
GAP_FACTOR, GAP_SLACK_MS = 2.0, 20.0
# Memory after the last reload over memory after the first tenth: allocators keep some of what they were given.
GROWTH_MIB = 4.0


def arguments(argv):
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="bench/reload", description=__doc__, allow_abbrev=False)
    parser.add_argument("--foregate", metavar="PATH", help="the program (default: $FOREGATE, or the release build)")
    parser.add_argument("--only", default="reloads,sites,cost,large-reloads", metavar="PART,...",
                        help="what to measure (default: %(default)s)")
    parser.add_argument("--reloads", type=int, default=1000, help="reloads under load (default: %(default)s)")
    parser.add_argument("--large-reloads", type=int, default=10, help="of the large one (default: %(default)s)")
    parser.add_argument("--sites", type=int, default=100_000, help="sites of the large one (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the cost (default: %(default)s)")
    return parsed(parser, argv, PARTS)


class Report:
    """Prints figures with their bounds and remembers whether one was missed."""

    def __init__(self):
        self.missed = 0

    def row(self, name, figure, unit, bound=None):
        """One figure; `bound` is what it is at most."""
        verdict = "" if bound is None else f"  at most {bound:g}: {'reached' if figure <= bound else 'MISSED'}"
        self.missed += bound is not None and figure > bound
        print(f"  {name:46} {figure:10.2f} {unit}{verdict}", flush=True)


class Setup:
    """The programs, the folder and the ports; the origin runs for as long as this does."""

    def __init__(self, foregate, stack):
        self.foregate = Path(foregate)
        if not self.foregate.is_file():
            raise Failed(f"no foregate program at {foregate}: build it, or name it with --foregate or $FOREGATE")
        self.program = cargo_build(BENCH / "Cargo.toml", TARGET, "bench-load")
        self.folder = Path(tempfile.mkdtemp(prefix="foregate-bench-"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.config, self.admin = self.folder / "foregate.kdl", self.folder / "admin"
        self.port, self.origin, control = free_port(), free_port(), free_port()
        cpus = sorted(os.sched_getaffinity(0))
        self.load_cpus, self.proxy_cpus = {cpus[0]}, {cpus[-1]}
        command = [self.program, "origin", f"127.0.0.1:{self.origin}", f"127.0.0.1:{control}"]
        origin = stack.enter_context(Process(command, self.load_cpus, self.folder / "origin.log"))
        origin.wait_for_port(control)

    def head(self, weight=1):
        """The part of every configuration that holds no site."""
        # One worker, and two cores: a reload works on another thread than requests do.
        return (
            f'workers 1\nlisten "127.0.0.1:{self.port}"\nadmin "{self.admin}"\n'
            f'upstream "origin" {{ server "127.0.0.1:{self.origin}"; }}\n'
            f'upstream "other" {{ server "127.0.0.1:{self.origin}" weight={weight}; server "127.0.0.1:1"; }}\n'
        )

    def write(self, sites, weight=1):
        """Replaces the configuration."""
        self.config.write_text(self.head(weight) + sites)

    @contextmanager
    def proxy(self, cpus=None):
        """The proxy at work on the present configuration."""
        log = self.folder / "output.log"
        with Process([self.foregate, "run", "--single", "-c", self.config], cpus or self.proxy_cpus, log) as process:
            process.wait_for_port(self.port)
            yield process

    def reload(self):
        """Asks for a reload and gives the seconds that it took."""
        return reload(self.admin)

    def load(self, run_ms, hosts=0, pids=(), warm_ms=300):
        """Starts load that ends by itself; `finish` gives its counts."""
        command = [self.program, "load", f"127.0.0.1:{self.port}", "--work", "kept", "--connections", 32,
                   "--hosts", hosts, "--run-ms", run_ms, "--warm-ms", warm_ms, "--pids", ",".join(map(str, pids))]
        return Process(command, self.load_cpus, self.folder / "load.log", stdout=subprocess.PIPE)


def reload(admin):
    """Asks for a reload over the admin socket and gives the seconds that it took."""
    start = time.monotonic()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(admin))
        client.sendall(b"POST /v1/reload HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        head, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")
    if head.split(b" ")[1:2] != [b"200"]:
        raise Failed(f"a reload was refused: {body.decode(errors='replace')}")
    return time.monotonic() - start


def finish(load):
    """The counts of a load when it has ended."""
    out, _ = load.process.communicate(timeout=300)
    if load.process.returncode != 0:
        raise Failed(load.tail())
    return json.loads(out)


def failed(counts):
    """How many requests were not answered as they should be."""
    return sum(counts["faults"].values())


def resident(process):
    """Resident memory in MiB."""
    return memory_kib(process.pids())["Rss"] / 1024


ANY = 'site "*" { route "/**" { proxy "origin"; }; }\n'


def large(sites):
    """Sites with five routes each, no two of them alike in all, and one for the rest."""
    one = (
        'site "s%d.example" {\n    route "/" { proxy "origin"; }\n    route "/static%d/**" { proxy "origin"; }\n'
        '    route "/api/v%d/**" { proxy "origin"; }\n    route "/health" { respond 200 "fine %d"; }\n'
        '    route "/**" { proxy "origin"; }\n}\n'
    )
    return "".join(one % (n, n, n, n) for n in range(sites)) + ANY


def reloads(setup, options, report):
    """Many reloads under load, each with another configuration."""
    def configuration(number):
        setup.write(f'site "g{number % 10}.example" {{ route "/**" {{ respond 200 "{number}"; }}; }}\n' + ANY,
                    weight=number % 7 + 1)

    def generation(number):
        """Whether a new connection gets the answer of this configuration."""
        with socket.create_connection(("127.0.0.1", setup.port), 5) as client:
            client.sendall(f"GET / HTTP/1.1\r\nHost: g{number % 10}.example\r\nConnection: close\r\n\r\n".encode())
            return client.makefile().read().endswith(f"\n{number}")

    print(f"{options.reloads} reloads under load")
    configuration(0)
    pace = 0.012
    with setup.proxy() as process, setup.load(int(options.reloads * pace * 1000) + 3000) as load:
        time.sleep(1)
        first, memory, times, stale = resident(process), {}, [], 0
        for number in range(1, options.reloads + 1):
            next_at = time.monotonic() + pace
            configuration(number)
            times.append(setup.reload())
            if number % max(options.reloads // 10, 1) == 0:
                memory[number] = resident(process)
                stale += not generation(number)
            time.sleep(max(0, next_at - time.monotonic()))
        if load.process.poll() is not None:
            print("  the load ended before the last reload: the machine is too slow for this pace")
        counts = finish(load)
    print("  MiB resident: before " + f"{first:.1f}; after " +
          ", ".join(f"{number}: {value:.1f}" for number, value in memory.items()))
    values = list(memory.values())
    report.row("requests answered", counts["requests"], "")
    report.row("requests failed", failed(counts), f"{counts['faults'] or ''}", 0)
    report.row("reloads without effect, of ten looked at", stale, "", 0)
    report.row("a reload, median", 1000 * statistics.median(times), "ms")
    report.row("memory, last over first tenth", values[-1] - values[0], "MiB", GROWTH_MIB)
    report.row("longest gap between answers", counts["gap_us"] / 1000, "ms")


def sites(setup, options, report):
    """Loading and checking many sites."""
    print(f"check of {options.sites} sites with {ROUTES} routes each")
    for name, text in (("all sites alike", alike(large(options.sites))), ("no two alike", large(options.sites))):
        setup.write(text)
        seconds, mib = [], []
        for _ in range(3):
            start = time.monotonic()
            child = subprocess.Popen([setup.foregate, "check", "-c", setup.config], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                raise Failed("foregate check refused the configuration")
            seconds.append(time.monotonic() - start)
            mib.append(usage.ru_maxrss / 1024)
        report.row(f"{name}: time", statistics.median(seconds), "s", CHECK_S)
        report.row(f"{name}: most memory", max(mib), "MiB", CHECK_MIB)


def alike(text):
    """The same sites with routes that are the same for all."""
    return re.sub(r"(/static|/api/v|fine )\d+", r"\1", text)


def cost(setup, options, report):
    """CPU of a request among many sites and with one, in turns."""
    print(f"CPU of a request, {options.rounds} rounds in turns; each names one of {options.sites} hosts")
    texts = {"one site": ANY, "many sites": large(options.sites)}
    # At random each request waits for memory that no cache holds; nearly every site is named while warming up.
    for name, hosts, warm_ms in (("the same host each time", 1, 300), ("hosts at random", options.sites, 5000)):
        figures = {kind: [] for kind in texts}
        for turn in range(options.rounds):
            for kind in list(texts)[:: 1 if turn % 2 else -1]:
                setup.write(texts[kind])
                with setup.proxy() as process, setup.load(1200, hosts, process.pids(), warm_ms) as load:
                    counts = finish(load)
                if failed(counts):
                    raise Failed(f"requests failed: {counts['faults']}")
                figures[kind].append(counts["cpu_s"] * 1e6 / counts["requests"])
        one, many = (statistics.median(figures[kind]) for kind in texts)
        for kind, values in figures.items():
            report.row(f"{name}: {kind}", statistics.median(values), f"us ({min(values):.2f} .. {max(values):.2f})")
        report.row(f"{name}: ratio", many / one, "", COST)


def large_reloads(setup, options, report):
    """Reloads of many sites under load, with a connection that stays from each configuration."""
    print(f"{options.large_reloads} reloads of {options.sites} sites under load")
    text = large(options.sites)
    setup.write(text)
    everywhere = set(os.sched_getaffinity(0))
    with setup.proxy(everywhere) as process, ExitStack() as held:
        with setup.load(4000, options.sites) as load:
            quiet = finish(load)
        first, memory, times = resident(process), [], []
        with setup.load(3000 * options.large_reloads, options.sites) as load:
            time.sleep(0.5)
            for number in range(options.large_reloads):
                # Kept alive, and idle from now on.
                client = held.enter_context(socket.create_connection(("127.0.0.1", setup.port), 5))
                client.sendall(b"GET /b/64 HTTP/1.1\r\nHost: s1.example\r\n\r\n")
                client.recv(1)
                setup.write(text, weight=number % 7 + 2)
                times.append(setup.reload())
                time.sleep(0.3)
                memory.append(resident(process))
            if load.process.poll() is not None:
                print("  the load ended before the last reload: the machine is too slow for this pace")
            counts = finish(load)
    gap = quiet["gap_us"] / 1000
    memory_bound = 0.25 * first
    print(f"  MiB resident: before {first:.0f}; after each " + ", ".join(f"{value:.0f}" for value in memory))
    report.row("requests answered", counts["requests"], "")
    report.row("requests failed", failed(counts), f"{counts['faults'] or ''}", 0)
    report.row("a reload, median", statistics.median(times), "s")
    report.row("longest gap between answers, no reload", gap, "ms")
    report.row("longest gap between answers, reloads", counts["gap_us"] / 1000, "ms",
               max(GAP_FACTOR * gap, gap + GAP_SLACK_MS))
    report.row("p99 without and with reloads", quiet["p99_us"] / 1000, f"ms, {counts['p99_us'] / 1000:.2f} ms")
    if len(memory) > 2:
        # Two configurations at a time are what a reload needs.
        report.row("memory, last reload over second", memory[-1] - memory[1], "MiB", memory_bound)


PARTS = {"reloads": reloads, "sites": sites, "cost": cost, "large-reloads": large_reloads}


def main(argv=None):
    """Measures; 0 when all bounds are reached, 1 when not or when something failed, 2 for wrong usage."""
    options = arguments(argv)
    report = Report()
    try:
        with ExitStack() as stack:
            setup = Setup(foregate_path(options.foregate), stack)
            for part in options.parts:
                PARTS[part](setup, options, report)
    except (Failed, OSError, ValueError, KeyError) as error:
        print(f"bench/reload: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench/reload: interrupted", file=sys.stderr)
        return 130
    return 1 if report.missed else 0
