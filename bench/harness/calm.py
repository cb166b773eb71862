"""Attacks on the proxy while it serves others: latency, failures and memory."""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from .attacks import ATTACKS, MODULES
from .cli import foregate_path
from .processes import Failed, Process, free_port, memory_kib
from .proxies import BENCH, TARGET, cargo_build
from .reload import Report

# What has to be reached: latency of the others, memory while it lasts, and what is left of it later.
P99_FACTOR, P99_SLACK_MS = 2.0, 20.0
GROWTH_MIB, LEFT_MIB = 200.0, 20.0
# How long an origin takes that keeps requests waiting.
SLOW_MS = 4000
# Were attackers to open as many as they can, those on a proxy that makes less of each would open more, up to what the system can
# accept: none could be compared with another.
RATE = 10_000
# The first requests take memory that is not the attack's.
IDLE_S = 6
SAMPLE_S = 0.1


def arguments(argv):
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="bench/calm", description=__doc__, allow_abbrev=False)
    parser.add_argument("--foregate", metavar="PATH", help="the program (default: $FOREGATE, or the release build)")
    parser.add_argument("--only", default=",".join(ATTACKS), metavar="ATTACK,...",
                        help="which attacks (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=10, help="how long each lasts (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=RATE,
                        help="connections per second that an attack opens at most; 0: as many as it can "
                        "(default: %(default)s)")
    parser.add_argument("--settle", type=int, default=60,
                        help="seconds until memory is looked at again (default: %(default)s)")
    options = parser.parse_args(argv)
    options.attacks = options.only.split(",")
    for name in options.attacks:
        if name not in ATTACKS:
            parser.error(f"no attack is called {name!r}; they are {', '.join(ATTACKS)}")
    return options


class Target:
    """A proxy of its own for one attack, so that each begins with a fresh one."""

    def __init__(self, foregate, folder, origins, stack, asks=None):
        self.folder = folder
        self.port, self.tls_port = free_port(), free_port()
        config = folder / f"{self.port}.kdl"
        tls = f'tls {{ certificate "{folder}/site.pem" key="{folder}/site.key"; }}'
        config.write_text(
            f'workers 2\nlisten "127.0.0.1:{self.port}"\nlisten "127.0.0.1:{self.tls_port}" {{ {tls}; }}\n'
            + "".join(f'upstream "{name}" {{ server "127.0.0.1:{port}"; }}\n' for name, port in origins.items())
            + 'site "*" {\n    route "/slow/**" { proxy "slow"; }\n    route "/u/**" { proxy "uploads"; }\n'
            '    route "/**" { proxy "origin"; }\n}\n'
            + (f'upstream "silent" {{ server "127.0.0.1:{asks}"; }}\nmisbehaving-asks "silent"\n' if asks else "")
        )
        command = [foregate, "run", "--single", "-c", config]
        self.log = folder / f"{self.port}.log"
        self.process = stack.enter_context(Process(command, os.sched_getaffinity(0), self.log))
        self.process.wait_for_port(self.tls_port)
        self.before = self.left = None

    def resident(self):
        """Resident memory in MiB."""
        if self.process.process.poll() is not None:
            raise Failed(f"the proxy ended with {self.process.process.returncode}: {self.process.tail()}")
        return memory_kib([self.process.process.pid])["Rss"] / 1024

    def program(self, module, *options):
        """Starts a program of the harness against this proxy; `result` gives what it says at its end."""
        command = [sys.executable, "-B", "-m", f"harness.{module}", "--port", self.port, "--tls-port", self.tls_port]
        os.environ["PYTHONPATH"] = str(BENCH)
        # The load has a core of its own that it shares with the proxy only, as far as that can be had.
        cpus = sorted(os.sched_getaffinity(0))
        cpu = {cpus[0]} if module == "attacks" else {cpus[-1]}
        return Process([*command, *options], cpu, self.folder / f"{module}.log", stdout=subprocess.PIPE)

    def later(self, seconds):
        """Looks at the memory when it has had time to settle."""
        def look():
            time.sleep(seconds)
            self.left = self.resident()
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        return thread


def check_slow(port):
    """Whether the origin that keeps requests waiting does: attacks that count on it would be none otherwise."""
    begun = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/slow/64") as answer:
        answer.read()
    if time.monotonic() - begun < SLOW_MS / 1000:
        raise Failed("the slow origin is not slow")


def result(process):
    """What a program says at its end."""
    out, _ = process.process.communicate(timeout=300)
    if process.process.returncode != 0:
        raise Failed(process.tail())
    return json.loads(out)


def attack(target, name, options, report):
    """One attack, and what others notice of it."""
    print(f"{name}: {ATTACKS[name].__doc__.splitlines()[0]}", flush=True)
    with target.program("others", "--seconds", IDLE_S) as others:
        idle = result(others)
    target.before = target.resident()
    peak = target.before
    with target.program("others", "--seconds", options.seconds + 1) as others:
        time.sleep(0.5)
        attack_options = ["--attack", name, "--seconds", options.seconds, "--rate", options.rate]
        with target.program("attacks", *attack_options) as attacker:
            while attacker.process.poll() is None:
                peak = max(peak, target.resident())
                time.sleep(SAMPLE_S)
            done = result(attacker)
        loaded = result(others)
    print("  " + ", ".join(f"{count} {what}" for what, count in done.items()))
    report.row("requests of others", loaded["requests"], "")
    report.row("failed", loaded["failed"] + idle["failed"], f"{loaded['errors'] or ''}", 0)
    report.row("p99, idle", idle["p99_ms"], "ms")
    report.row("p99, under attack", loaded["p99_ms"], "ms",
               max(P99_FACTOR * idle["p99_ms"], idle["p99_ms"] + P99_SLACK_MS))
    report.row("memory before", target.before, "MiB")
    report.row("memory, most over before", peak - target.before, "MiB", GROWTH_MIB)
    if min(done.values()) == 0:
        raise Failed(f"{name} did nothing")


def main(argv=None):
    """Attacks; 0 when all bounds are reached, 1 when not or when something failed, 2 for wrong usage."""
    options = arguments(argv)
    # Symbols for a backtrace take 40 MB once; who runs a proxy does not ask for them.
    os.environ.pop("RUST_BACKTRACE", None)
    report = Report()
    try:
        with ExitStack() as stack:
            foregate = Path(foregate_path(options.foregate))
            if not foregate.is_file():
                raise Failed(f"no foregate program at {foregate}: build it, or name it with --foregate or $FOREGATE")
            program = cargo_build(BENCH / "Cargo.toml", TARGET, "bench-load")
            folder = Path(tempfile.mkdtemp(prefix="foregate-bench-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            subprocess.run([program, "certificate", folder], check=True)
            # What an origin suffers is not what the proxy does to others: attacks have their own.
            origins = {}
            for name, delay in (("origin", 0), ("slow", SLOW_MS), ("uploads", 0)):
                origins[name], control = free_port(), free_port()
                command = [program, "origin", f"127.0.0.1:{origins[name]}", f"127.0.0.1:{control}", "--delay-ms", delay]
                origin = stack.enter_context(Process(command, os.sched_getaffinity(0), folder / "origin.log"))
                origin.wait_for_port(control)
            check_slow(origins["slow"])
            misbehaving = None
            if set(options.attacks) & set(MODULES):
                manifest = BENCH / "misbehaving" / "Cargo.toml"
                misbehaving = cargo_build(manifest, TARGET, "foregate-misbehaving")
            # Takes connections and says nothing.
            silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1000))
            settling = []
            for name in options.attacks:
                program, asks = (misbehaving, silent.getsockname()[1]) if name in MODULES else (foregate, None)
                target = Target(program, folder, origins, stack, asks)
                attack(target, name, options, report)
                settling.append((name, target, target.later(options.settle)))
            print(f"memory {options.settle} s after the end of each attack, over before")
            for name, target, thread in settling:
                thread.join()
                if target.left is None:
                    raise Failed(f"{name}: {target.process.tail()}")
                panics = target.log.read_text(errors="replace").count("panicked")
                report.row(name, target.left - target.before, "MiB", LEFT_MIB)
                if panics and name not in MODULES:
                    report.row(f"{name}: panics", panics, "", 0)
    except (Failed, OSError, ValueError, KeyError, subprocess.CalledProcessError) as error:
        print(f"bench/calm: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench/calm: interrupted", file=sys.stderr)
        return 130
    return 1 if report.missed else 0
