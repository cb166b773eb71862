"""Instructions per request, counted by Valgrind: the same in each run, whatever else the machine does."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from . import same
from .cli import foregate_path
from .processes import Failed, Process, free_port
from .proxies import BENCH, ERROR_PAGE, TARGET, Foregate, NginxLua, NginxModule, cargo_build, need
from .works import WORKS

# What is counted is the difference of two loads, each after a first one whose instructions, and those of starting, are forgotten: the library
# of TLS makes its first random numbers from the jitter of the clock, which takes another number of instructions each time.
FIRST, FEW, MANY = 2_000, 6_000, 12_000
BURST = 16
LOAD_TIMEOUT_S = 300


def counted(folder):
    """What all processes of a proxy have executed."""
    totals = (re.findall(r"^totals: (\d+)", path.read_text(errors="replace"), re.M) for path in folder.glob("count.*"))
    return sum(int(total) for found in totals for total in found)


def execute(program, valgrind, proxy, work, requests):
    """The instructions of a proxy that starts, answers so many requests, and ends."""
    folder = Path(tempfile.mkdtemp(prefix="foregate-instructions-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        origin, control, port = free_port(), free_port(), free_port()
        cpus = os.sched_getaffinity(0)
        command = [program, "origin", f"127.0.0.1:{origin}", f"127.0.0.1:{control}"]
        stack.enter_context(Process(command, cpus, folder / "origin.log")).wait_for_port(control)
        count = [valgrind, "--tool=callgrind", f"--callgrind-out-file={folder}/count.%p", "--trace-children=yes"]
        command = count + proxy.command(work, port, f"127.0.0.1:{origin}", folder, folder)
        with Process(command, cpus, folder / "output.log") as process:
            process.wait_for_port(port)
            exchanges = folder / "exchanges.json"
            exchanges.write_text(json.dumps(same.exchanges(work.exchanges, ERROR_PAGE.read_text())))
            for count in (FIRST, requests):
                load = [program, "load", f"127.0.0.1:{port}", "--work", "bursts", "--connections", str(BURST),
                        "--burst", str(BURST), "--requests", str(count), "--exchanges", exchanges]
                done = subprocess.run(load, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False)
                if done.returncode != 0 or json.loads(done.stdout)["requests"] != count:
                    raise Failed(f"{proxy.name} did not answer all requests: {done.stderr} {process.tail()}")
                if count == FIRST:
                    zero = subprocess.run(["callgrind_control", "--zero"], capture_output=True, text=True, timeout=60, check=False)
                    if zero.returncode != 0:
                        raise Failed(f"callgrind_control: {zero.stderr}")
        return counted(folder)


def main(argv=None):
    """Prints the counts; 0 when there are all, 1 when not."""
    parser = argparse.ArgumentParser(prog="bench/instructions", description=__doc__, allow_abbrev=False)
    known = [work.name for work in WORKS if work.modules and work.kind == "request"]
    parser.add_argument("--only", metavar="WORK,...", default=",".join(known), help="default: %(default)s")
    parser.add_argument("--peers", metavar="NAME,...", default="foregate,nginx-lua,nginx-module", help="default: %(default)s")
    parser.add_argument("--foregate", metavar="PATH", help="the program (default: $FOREGATE, or the release build)")
    options = parser.parse_args(argv)
    makers = {"foregate": lambda: Foregate(foregate_path(options.foregate)), "nginx-lua": NginxLua,
              "nginx-module": NginxModule}
    names, peers = options.only.split(","), options.peers.split(",")
    if not (set(names) <= set(known) and set(peers) <= set(makers)):
        parser.error(f"works are {', '.join(known)}; proxies are {', '.join(makers)}")
    try:
        valgrind = need("valgrind")
        program = cargo_build(BENCH / "Cargo.toml", TARGET, "bench-load")
        for name in peers:
            proxy = makers[name]()
            proxy.prepare()
            for work in (work for work in WORKS if work.name in names):
                few, many = (execute(program, valgrind, proxy, work, requests) for requests in (FEW, MANY))
                print(f"{work.name:22} {proxy.name:12} {(many - few) / (MANY - FEW):10,.0f}", flush=True)
    except (Failed, OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"bench/instructions: {error}", file=sys.stderr)
        return 1
    return 0
