"""The firewall beside the traffic that it must not hold up: loading, reloads, and heavy requests among plain ones."""

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
from contextlib import ExitStack
from pathlib import Path

from . import waf
from .cli import foregate_path, parsed
from .processes import Failed, Process, free_port
from .proxies import BENCH, TARGET, cargo_build
from .reload import Report, reload, resident
from .works import Work

KIB = 1024
# What has to be reached.
LOAD_S, LOAD_MIB = 1.5, 60.0
P99_FACTOR = 1.5
# A reload may add to the longest gap between answers what a busy machine shows without one.
GAP_SLACK_MS = 20.0
# Load before what is measured.
WARM_MS = 500
# One request of so many is heavy.
HEAVY_OF = 20
# The part of what can be answered that is asked for.
LOAD_PART = 0.5


def heavy():
    """A document of 900 values in 256 KiB, as many as the rules' limits let pass."""
    each = 256 * KIB // 900
    text = json.dumps([(waf.PROSE * 2)[at % 40:][:each - 6] for at in range(900)])
    return text[:-1] + " " * max(0, 256 * KIB - len(text)) + "]"


def arguments(argv):
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="bench/firewall", description=__doc__, allow_abbrev=False)
    parser.add_argument("--foregate", metavar="PATH", help="the program (default: $FOREGATE, or the release build)")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,...",
                        help="what to measure (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which medians are taken (default: %(default)s)")
    parser.add_argument("--run-ms", type=int, default=5000, help="length of one measurement (default: %(default)s)")
    parser.add_argument("--paranoia", type=int, default=1, help="level of the rules (default: %(default)s)")
    parser.add_argument("--first", action="store_true",
                        help="let what is measured go before everything else on a busy machine, where the kernel groups"
                        " processes by session (needs root)")
    return parsed(parser, argv, PARTS)


class Setup:
    """The programs, the rules and the origin."""

    def __init__(self, foregate, options, stack):
        self.foregate = Path(foregate)
        if not self.foregate.is_file():
            raise Failed(f"no foregate program at {foregate}: build it, or name it with --foregate or $FOREGATE")
        self.first = options.first
        self.program = cargo_build(BENCH / "Cargo.toml", TARGET, "bench-load")
        self.folder = Path(tempfile.mkdtemp(prefix="foregate-bench-"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        cpus = sorted(os.sched_getaffinity(0))
        self.load_cpus, self.proxy_cpus = {cpus[0]}, {cpus[-1]}
        self.rules = waf.rules(Work("", "", "", {}, traffic="get", paranoia=options.paranoia), self.folder)
        self.exchanges("plain", 0)
        self.exchanges("mixed", 1)
        self.exchanges("heavy", HEAVY_OF)
        self.port, self.metrics, self.admin = free_port(), free_port(), self.folder / "admin"
        self.origin, control = free_port(), free_port()
        command = [self.program, "origin", f"127.0.0.1:{self.origin}", f"127.0.0.1:{control}"]
        origin = stack.enter_context(self.process(command, self.load_cpus, "origin.log"))
        origin.wait_for_port(control)

    def process(self, command, cpus, log, **more):
        """A process, which goes first if that is asked for."""
        process = Process(command, cpus, self.folder / log, **more)
        if self.first:
            Path(f"/proc/{process.process.pid}/autogroup").write_text("-19")
        return process

    def exchanges(self, name, heavy_ones):
        """Writes what is sent: so many heavy requests of each `HEAVY_OF`."""
        expected = {"status": 200, "fields": {}, "pattern": waf.ANSWER}
        plain = {"request": waf.request("get"), "class": "plain", **expected}
        big = {"request": waf.request(("", "", (waf.JSON, heavy()))), "class": "heavy", **expected}
        made = [big] * heavy_ones + [plain] * (HEAVY_OF - heavy_ones)
        (self.folder / f"{name}.json").write_text(json.dumps(made))

    def configuration(self, firewall, more="", mode="detect"):
        """Writes a configuration with these lines within `waf`, or without one for `None`, and gives its file."""
        rules = f'waf mode="{mode}" {{ rules "{self.rules}"\n{firewall}\n}}' if firewall is not None else ""
        file = self.folder / "foregate.kdl"
        file.write_text(
            f'workers 1\nlisten "127.0.0.1:{self.port}"\nmetrics "127.0.0.1:{self.metrics}"\nadmin "{self.admin}"\n'
            f'upstream "origin" {{ server "127.0.0.1:{self.origin}"; }}\n{more}\n{rules}\n'
            'site "*" { route "/**" { proxy "origin"; }; }\n'
        )
        return file

    def proxy(self, firewall, more="", cpus=None, mode="detect"):
        """The proxy, from when it listens."""
        command = [self.foregate, "run", "--single", "-c", self.configuration(firewall, more, mode)]
        process = self.process(command, cpus or self.proxy_cpus, "output.log")
        try:
            process.wait_for_port(self.port)
        except BaseException:
            process.stop()
            raise
        return process

    def load(self, what, rate, run_ms):
        """Starts load at a pace."""
        command = [self.program, "paced", f"127.0.0.1:{self.port}", "--exchanges", self.folder / f"{what}.json",
                   "--rate", rate, "--run-ms", run_ms]
        return self.process(command, self.load_cpus, "load.log", stdout=subprocess.PIPE)

    def told(self, load):
        """What a load says at its end."""
        out, _ = load.process.communicate(timeout=300)
        if load.process.returncode != 0:
            raise Failed(load.tail())
        told = json.loads(out)
        return told["classes"], told["seconds"], told["unsent"]

    def metric(self, pattern):
        """The values of metrics whose name and labels match, by their groups."""
        with socket.create_connection(("127.0.0.1", self.metrics), 5) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            text = b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()
        return {match.groups()[:-1]: float(match.groups()[-1])
                for match in re.finditer(rf"^{pattern} (\S+)$", text, re.M)}


def loading(setup, options, report):
    """What the rules add to the start and to the memory."""
    print(f"loading the Core Rule Set, paranoia {options.paranoia}")
    seconds, mib = {None: [], "": []}, {None: [], "": []}
    for _ in range(options.rounds):
        for firewall in seconds:
            began = time.monotonic()
            with setup.proxy(firewall, cpus=set(os.sched_getaffinity(0))) as process:
                seconds[firewall].append(time.monotonic() - began)
                time.sleep(0.5)
                mib[firewall].append(resident(process))
    added = {what: statistics.median(values[""]) - statistics.median(values[None])
             for what, values in (("s", seconds), ("MiB", mib))}
    report.row("start without", statistics.median(seconds[None]), "s")
    report.row("start, more with", added["s"], "s", LOAD_S)
    report.row("resident without", statistics.median(mib[None]), "MiB")
    report.row("resident, more with", added["MiB"], "MiB", LOAD_MIB)


def reloads(setup, options, report):
    """Reloads with other rules under load."""
    print("reloads with other rules under load")
    rate, everywhere = 500, set(os.sched_getaffinity(0))
    count = max(2, options.rounds)
    with setup.proxy("", cpus=everywhere) as process:
        with setup.load("plain", rate, options.run_ms) as load:
            quiet = setup.told(load)[0]["plain"]
        before, times, memory = resident(process), [], []
        with setup.load("plain", rate, count * 2500) as load:
            for number in range(count):
                # Another limit is another plan: nothing of the old one is used again.
                setup.configuration(f'budget "{64 + number + 1}MiB"')
                times.append(reload(setup.admin))
                time.sleep(0.5)
                memory.append(resident(process))
            busy = setup.told(load)[0]["plain"]
    print("  MiB resident: before " + f"{before:.1f}; after each " + ", ".join(f"{value:.1f}" for value in memory))
    report.row("requests answered", busy["requests"], "")
    report.row("requests failed", sum(busy["faults"].values()), f"{busy['faults'] or ''}", 0)
    report.row("a reload, median", statistics.median(times), "s", LOAD_S)
    report.row("p99 without and with reloads", quiet["p99_us"] / 1000, f"ms, {busy['p99_us'] / 1000:.2f} ms")
    gap = quiet["gap_us"] / 1000
    report.row("longest gap between answers, no reload", gap, "ms")
    report.row("longest gap between answers, reloads", busy["gap_us"] / 1000, "ms", max(2 * gap, gap + GAP_SLACK_MS))


# All of the body is looked at; `heavy` beyond all that is sent keeps everything on the worker.
KINDS = {"off": None, "offload": 'body-limit "1MiB"', "inline": 'body-limit "1MiB"; heavy "1MiB"'}


def calm(setup, options, report):
    """Heavy requests among plain ones at half of what can be answered."""
    print(f"{100 // HEAVY_OF} % heavy requests (256 KiB of JSON) among plain ones, paranoia {options.paranoia}")
    with setup.proxy(KINDS["offload"]), setup.load("mixed", 100_000, 3000) as load:
        classes, seconds, _ = setup.told(load)
        capacity = sum(counts["requests"] for counts in classes.values()) / seconds
    rate = max(20.0, LOAD_PART * capacity)
    report.row("capacity", capacity, f"requests/s, of which {rate:.0f} are asked for")
    figures = {kind: [] for kind in KINDS}
    lost = 0
    for number in range(options.rounds):
        for kind in list(KINDS)[number % 3:] + list(KINDS)[:number % 3]:
            with setup.proxy(KINDS[kind]):
                # Connections, threads and the caches of patterns come with the first requests.
                with setup.load("mixed", rate, WARM_MS) as load:
                    setup.told(load)
                with setup.load("mixed", rate, options.run_ms) as load:
                    classes, _, unsent = setup.told(load)
                blocked = setup.metric(r'foregate_event_loop_blocked_seconds_bucket\{le="([^"]+)"\}')
            plain = classes["plain"]
            lost += unsent + sum(sum(counts["faults"].values()) for counts in classes.values())
            heavy_p50 = classes["heavy"]["p50_us"] / 1000
            figures[kind].append((plain["p50_us"] / 1000, plain["p99_us"] / 1000, heavy_p50, blocked))
    for kind, rounds in figures.items():
        for at, what in ((0, "p50 of plain ones"), (1, "p99 of plain ones"), (2, "p50 of heavy ones")):
            values = [figure[at] for figure in rounds]
            report.row(f"{kind}: {what}", statistics.median(values), f"ms ({min(values):.2f} .. {max(values):.2f})")
        print("    event_loop_blocked, polls: " + histogram([figure[3] for figure in rounds]))
    p99 = {kind: statistics.median(figure[1] for figure in rounds) for kind, rounds in figures.items()}
    report.row("inline: p99 over off", p99["inline"] / p99["off"], "")
    report.row("offload: p99 over off", p99["offload"] / p99["off"], "", P99_FACTOR)
    report.row("not answered as they should be", lost, "", 0)


def histogram(rounds):
    """How many polls took longer than so long, of all rounds."""
    shown = []
    for end in ("0.0001", "0.001", "0.01", "0.1"):
        total = sum(blocked[("+Inf",)] - blocked[(end,)] for blocked in rounds)
        shown.append(f"{total:.0f} over {1000 * float(end):g} ms")
    return ", ".join(shown) + f", of {sum(blocked[('+Inf',)] for blocked in rounds):.0f}"


def full(setup, options, report):
    """A queue that is full: what each policy makes of it."""
    print("a full queue: 32 heavy requests at a time, a single place to wait")
    for policy in ("inline", "shed", "error"):
        firewall = f'{KINDS["offload"]}; when-full "{policy}"; deadline "100ms"'
        # One that only detects refuses nothing.
        with setup.proxy(firewall, "limits { offload-queue 1; }", mode="block"):
            with setup.load("heavy", 100_000, min(options.run_ms, 3000)) as load:
                counts = setup.told(load)[0]["heavy"]
            shed = sum(setup.metric(r"foregate_step_shed_total\{([^}]*)\}").values())
            refused = counts["faults"].pop("status 5xx", 0)
        report.row(f"{policy}: answered", counts["requests"], f"and {refused} refused, {shed:.0f} without a step")
        report.row(f"{policy}: lost", sum(counts["faults"].values()), f"{counts['faults'] or ''}", 0)
        if policy != "error":
            report.row(f"{policy}: refused", refused, "", 0)


PARTS = {"loading": loading, "reloads": reloads, "calm": calm, "full": full}


def main(argv=None):
    """Measures; 0 when all bounds are reached, 1 when not or when something failed, 2 for wrong usage."""
    options = arguments(argv)
    report = Report()
    try:
        with ExitStack() as stack:
            setup = Setup(foregate_path(options.foregate), options, stack)
            for part in options.parts:
                PARTS[part](setup, options, report)
    except (Failed, OSError, ValueError, KeyError) as error:
        print(f"bench/firewall: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench/firewall: interrupted", file=sys.stderr)
        return 130
    return 1 if report.missed else 0
