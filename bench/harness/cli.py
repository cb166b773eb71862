"""The command line of the macro benchmark."""

import argparse
import fnmatch
import json
import os
import platform
import shlex
import signal
import sys
import time
from pathlib import Path

from . import report
from .measure import Bench, summary
from .processes import Failed
from .proxies import (
    BENCH, TARGET, Coraza, Foregate, Haproxy, Modsecurity, Nginx, NginxLua, NginxModule, Pingora, Zentinel, cargo_build,
)
from .waf import REFUSED
from .works import WORKS

OUT = BENCH / "out"
RESULTS = BENCH / "RESULTS.md"


def arguments(argv):
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", metavar="WORK,...", help="the works to measure, `*` for any part of a name (default: all but h2-tls-1k and waf-*)")
    parser.add_argument("--peers", metavar="NAME,...", default=",".join(report.EVERYONE),
                        help="the proxies to measure (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: %(default)s)")
    parser.add_argument("--run-ms", type=int, default=1200, help="length of a measurement (default: %(default)s)")
    parser.add_argument("--warm-ms", type=int, default=250, help="load before it (default: %(default)s)")
    parser.add_argument("--foregate", metavar="PATH", help="the program (default: $FOREGATE, or the release build)")
    parser.add_argument("--proxy-cpu", type=int, help="core of the proxy (default: the last)")
    parser.add_argument("--load-cpu", type=int, help="core of load and origin (default: the first)")
    parser.add_argument("--list", action="store_true", help="list the works and stop")
    parser.add_argument("--report", nargs="?", const=OUT / "latest.json", type=Path, metavar="JSON",
                        help="measure nothing; write bench/RESULTS.md from the last run, or from the file named")
    options = parser.parse_args(argv)
    if options.rounds < 1 or options.run_ms < 100:
        parser.error("at least one round of at least 100 ms")
    known = {work.name: work for work in WORKS}
    names = [work.name for work in WORKS if work.default]
    if options.only:
        names = [name for wanted in options.only.split(",") for name in fnmatch.filter(known, wanted) or [wanted]]
    for name in names:
        if name not in known:
            parser.error(f"no work is called {name!r}; bench/run --list tells them")
    options.works = [known[name] for name in names]
    options.peers = options.peers.split(",")
    for name in options.peers:
        if name not in report.EVERYONE:
            parser.error(f"no proxy is called {name!r}; they are {', '.join(report.EVERYONE)}")
    return options


def parsed(parser, argv, parts):
    """Parses a command line with `--only PART,...`, which is checked against the parts there are."""
    options = parser.parse_args(argv)
    options.parts = options.only.split(",")
    for part in options.parts:
        if part not in parts:
            parser.error(f"no part is called {part!r}; they are {', '.join(parts)}")
    return options


def foregate_path(named):
    """Where the release build of this repository is, unless another is named."""
    if named or os.environ.get("FOREGATE"):
        return named or os.environ["FOREGATE"]
    target = os.environ.get("CARGO_TARGET_DIR", BENCH.parent / "target")
    return Path(target) / "release" / "foregate"


def machine():
    """What the figures depend on, for the report."""
    def first(path, name):
        for line in Path(path).read_text().splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
        return "unknown"

    memory = int(first("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20)
    return {
        "cpu": first("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": f"{memory:.0f} GiB",
        "kernel": platform.release(),
        "load": os.getloadavg(),
    }


def measure_all(bench, works, proxies, rounds):
    """Measures every work with every proxy, in turns, and gives all figures and errors."""
    raw = {work.name: {proxy.name: [] for proxy in proxies if proxy.name in work.proxies} for work in works}
    failed = {}
    check_modules(bench, works, proxies)
    for turn in range(rounds):
        # Each round starts with another proxy, so that none is always first.
        order = proxies[turn % len(proxies):] + proxies[:turn % len(proxies)]
        for work in works:
            if turn >= work.rounds_limit:
                continue
            for proxy in order:
                if proxy.name not in work.proxies or (work.name, proxy.name) in failed:
                    continue
                try:
                    counts = bench.measure(work, proxy)
                except (Failed, OSError, ValueError, KeyError) as error:
                    failed[work.name, proxy.name] = str(error) or repr(error)
                    print(f"round {turn + 1}  {work.name:22} {proxy.name:9} FAILED: {error}", flush=True)
                    continue
                raw[work.name][proxy.name].append(counts)
                faults = f"  faults {counts['faults']}" if counts["faults"] else ""
                print(f"round {turn + 1}  {work.name:22} {proxy.name:9} {counts['figure']:10.3f}{faults}", flush=True)
    return raw, failed


def check_modules(bench, works, proxies):
    """Ends the run if the proxies that do the work of modules, or of firewalls, differ in what they do."""
    modules = next((work for work in works if work.modules), None)
    # The rules of this one refuse.
    firewall = next((work for work in works if work.paranoia), None)
    if firewall:
        firewall = next(work for work in WORKS if work.traffic in REFUSED and work.paranoia)
    for work in filter(None, (modules, firewall)):
        for proxy in proxies:
            if proxy.name in work.proxies:
                bench.check(work, proxy)


def versions(proxies):
    """The version of each proxy."""
    return {proxy.name: proxy.version() for proxy in proxies}


def summarise(works, raw, failed):
    """Medians per work and proxy; a measurement that failed once has no figure."""
    results = {}
    for work in works:
        cells = results[work.name] = {}
        for name, rounds in raw[work.name].items():
            if (work.name, name) in failed:
                cells[name] = {"error": failed[work.name, name]}
            elif rounds:
                cells[name] = summary(work, rounds)
    return results


def print_run(works, run):
    """The tables on the terminal."""
    print()
    for group in report.groups(works):
        print(report.plain(report.rows(group, run["results"])))
        print()
    print(report.plain(report.more_rows(works, run["results"])))
    firewalls = list(report.firewall_rows(works, run["results"]))
    if len(firewalls) > 1:
        print("\nWhat the firewall adds:\n")
        print(report.plain(firewalls))
    for line in report.errors(run["results"]):
        print(f"FAILED {line}")


def save(run):
    """Keeps a run under its date and as the latest."""
    OUT.mkdir(exist_ok=True)
    text = json.dumps(run, indent=1)
    path = OUT / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(text)
    (OUT / "latest.json").write_text(text)
    print(f"\nall figures: {path}")


def write_report(path):
    """Writes bench/RESULTS.md from a run's file."""
    run = json.loads(path.read_text())
    works = [work for work in WORKS if work.name in run["results"]]
    report.write_document(RESULTS, report.document(works, run))
    print(f"wrote {RESULTS}")
    return 0


def main(argv=None):
    """Runs the benchmark; 0 when every measurement was made, 1 when not, 2 for wrong usage."""
    options = arguments(argv)
    if options.list:
        for work in WORKS:
            print(f"{work.name:22} {work.title}")
        return 0
    try:
        return write_report(options.report) if options.report else run_all(options)
    except (Failed, OSError, ValueError) as error:
        print(f"bench/run: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench/run: interrupted", file=sys.stderr)
        return 130


def run_all(options):
    """Prepares everything, measures, and tells the results."""
    # An end by `kill` or a closed terminal cleans up as ctrl-C does, and ctrl-C
    # does so even where a shell without job control had it ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    makers = {
        "foregate": lambda: Foregate(foregate_path(options.foregate)),
        "nginx": Nginx, "haproxy": Haproxy, "pingora": Pingora, "nginx-lua": NginxLua,
        "nginx-module": NginxModule,
        "modsecurity": Modsecurity, "coraza": Coraza, "zentinel": Zentinel,
    }
    needed = {name for work in options.works for name in work.proxies}
    proxies = [makers[name]() for name in report.EVERYONE if name in options.peers and name in needed]
    for proxy in proxies:
        proxy.prepare()
    program = cargo_build(BENCH / "Cargo.toml", TARGET, "bench-load")
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise Failed("two cores are needed: one for the proxy, one for load and origin")
    proxy_cpu = cpus[-1] if options.proxy_cpu is None else options.proxy_cpu
    load_cpu = cpus[0] if options.load_cpu is None else options.load_cpu
    run = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine(),
        "versions": versions(proxies),
        "command": shlex.join(["bench/run", *sys.argv[1:]]),
        "rounds": options.rounds, "run_ms": options.run_ms, "warm_ms": options.warm_ms,
        "proxy_cpus": proxy_cpu, "load_cpus": load_cpu,
    }
    bench = Bench(program, {proxy_cpu}, {load_cpu}, set(cpus), options.run_ms, options.warm_ms)
    try:
        raw, failed = measure_all(bench, options.works, proxies, options.rounds)
    finally:
        bench.close()
    run["results"] = summarise(options.works, raw, failed)
    run["raw"] = raw
    print_run(options.works, run)
    save(run)
    return 1 if failed else 0
