"""One measurement: a fresh proxy, one work, its figures."""

import json
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from . import same, waf
from .processes import Failed, Process, free_port, memory_kib
from .proxies import ERROR_PAGE, check_log

GIB = 1 << 30
KIB = 1 << 10
LOAD_TIMEOUT_S = 120
# Connections that a proxy has served and seen closed before its idle memory is taken.
MEMORY_WARM_CONNECTIONS = 64
MEMORY_SETTLE_S = 0.5


class Bench:
    """The programs, folders and cores that all measurements share."""

    def __init__(self, program, proxy_cpus, load_cpus, all_cpus, run_ms, warm_ms):
        self.program = program
        self.proxy_cpus = proxy_cpus
        self.load_cpus = load_cpus
        self.all_cpus = all_cpus
        self.run_ms = run_ms
        self.warm_ms = warm_ms
        self.folder = Path(tempfile.mkdtemp(prefix="foregate-bench-"))
        self.tls = self.folder / "tls"
        self.tls.mkdir()
        subprocess.run([program, "certificate", self.tls], check=True)

    def close(self):
        """Removes what the measurements left."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def measure(self, work, proxy):
        """Starts origin and proxy, makes the load, and gives the figures."""
        folder = Path(tempfile.mkdtemp(prefix=f"{work.name}-{proxy.name}-", dir=self.folder))
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            origin, control = free_port(), free_port()
            command = [self.program, "origin", f"127.0.0.1:{origin}", f"127.0.0.1:{control}"]
            if work.origin_idle_ms:
                command += ["--idle-ms", work.origin_idle_ms]
            if work.origin_delay_ms:
                command += ["--delay-ms", work.origin_delay_ms]
            stack.enter_context(Process(command, self.load_cpus, folder / "origin.log")).wait_for_port(control)
            # With several workers the cores are shared by all, as pinning would
            # make the workers take turns.
            cpus = self.proxy_cpus if work.workers == 1 else self.all_cpus
            process, port = proxy.start(work, origin, folder, self.tls, cpus)
            stack.enter_context(process)
            before = told(control)
            if work.kind == "memory":
                counts = self.idle_memory(work, process, port, folder)
            else:
                counts = self.load(work, process, port, folder)
            if work.kind == "worker-memory":
                time.sleep(MEMORY_SETTLE_S)
                counts["total_kib"] = memory_kib(process.pids())["Pss"]
            after = told(control)
            counts["origin"] = {name: after[name] - before[name] for name in ("accepted", "requests", "idle_closed")}
            if work.log:
                # HAProxy writes each line at once; the others hold a buffer for a second.
                time.sleep(1.2)
                check_log(proxy.access_log(folder), counts["requests"])
            counts["figure"] = figure(work, counts)
            return counts

    def check(self, work, proxy):
        """Raises unless a proxy does the work of modules, or of a firewall, as it must."""
        folder = Path(tempfile.mkdtemp(prefix=f"same-{proxy.name}-", dir=self.folder))
        with same.echo() as origin:
            process, port = proxy.start(work, origin, folder, self.tls, self.all_cpus)
            with process:
                if work.traffic:
                    waf.check(proxy.name, port)
                else:
                    same.check(proxy.name, port, ERROR_PAGE.read_text())

    def command(self, work, port, **more):
        """The load generator's command line for a work."""
        command = [self.program, "load", f"127.0.0.1:{port}"]
        for name, value in {**work.load, **more}.items():
            command += [f"--{name}", value]
        if work.tls:
            command += ["--tls", self.tls / "site.pem"]
        return command

    def load(self, work, process, port, folder):
        """Makes a work's load and gives what the load generator counted."""
        pids = ",".join(map(str, process.pids()))
        more = {}
        if work.exchanges or work.traffic:
            made = waf.exchanges(work) if work.traffic else same.exchanges(work.exchanges, ERROR_PAGE.read_text())
            more["exchanges"] = folder / "exchanges.json"
            more["exchanges"].write_text(json.dumps(made))
        command = self.command(work, port, pids=pids, **{"run-ms": self.run_ms, "warm-ms": self.warm_ms}, **more)
        with Process(command, self.load_cpus, folder / "load.log", stdout=subprocess.PIPE) as load:
            try:
                out, _ = load.process.communicate(timeout=LOAD_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise Failed(f"the load did not end in {LOAD_TIMEOUT_S} s") from None
            if load.process.returncode != 0:
                raise Failed(f"{load.tail()} {process.tail()}".strip())
        counts = json.loads(out)
        if counts["requests"] == 0:
            raise Failed(f"no request was answered: {counts['faults']}")
        if work.kind in ("request", "gib") and counts["cpu_s"] <= 0:
            raise Failed(f"{counts['requests']} requests cost no CPU: the wrong processes were measured")
        return counts

    def idle_memory(self, work, process, port, folder):
        """Gives the memory that idle connections add to the proxy's processes."""
        self.hold(work, port, folder, lambda: None, connections=MEMORY_WARM_CONNECTIONS)
        time.sleep(MEMORY_SETTLE_S)
        base = memory_kib(process.pids())

        def sample():
            time.sleep(MEMORY_SETTLE_S)
            return memory_kib(process.pids())

        counts, held = self.hold(work, port, folder, sample)
        counts["memory_kib"] = {
            name.lower(): (held[name] - base[name]) / work.load["connections"] for name in base
        }
        counts["memory_base_kib"] = base
        return counts

    def hold(self, work, port, folder, then, **more):
        """Opens connections that stay idle, calls `then`, and lets them go."""
        command = self.command(work, port, **more)
        with Process(
            command, self.load_cpus, folder / "load.log", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as load:
            line = load.process.stdout.readline()
            if not line:
                raise Failed(load.tail())
            counts = json.loads(line)
            result = then()
            out, _ = load.process.communicate(b"", timeout=LOAD_TIMEOUT_S)
            gone = json.loads(out)["gone"]
            if gone or counts["faults"]:
                raise Failed(f"{gone} connections did not stay open, faults: {counts['faults']}")
        return counts, result


def told(control):
    """The origin's counts."""
    with socket.create_connection(("127.0.0.1", control), 2) as connection:
        text = b""
        while part := connection.recv(4096):
            text += part
    return json.loads(text)


def figure(work, counts):
    """The main figure of a measurement, in the unit of the work's kind."""
    if work.kind == "request":
        return counts["cpu_s"] * 1e6 / counts["requests"]
    if work.kind == "gib":
        return counts["cpu_s"] * GIB / counts["bytes"]
    if work.kind == "memory":
        return counts["memory_kib"]["pss"]
    if work.kind == "worker-memory":
        return counts["total_kib"] / KIB / work.workers
    if work.kind == "opened":
        return counts["origin"]["accepted"]
    if work.kind == "renewed":
        return 1000 * counts["origin"]["accepted"] / counts["requests"]
    return 100 * counts["origin"]["accepted"] / counts["requests"]


def summary(work, rounds):
    """The medians of several rounds of one work and proxy."""
    median = lambda values: statistics.median(values)  # noqa: E731
    result = {
        "figure": median([counts["figure"] for counts in rounds]),
        "lowest": min(counts["figure"] for counts in rounds),
        "highest": max(counts["figure"] for counts in rounds),
        "rounds": len(rounds),
        "faults": sum(sum(counts["faults"].values()) for counts in rounds),
        "tls": {},
    }
    for counts in rounds:
        for name, count in counts["tls"].items():
            result["tls"][name] = result["tls"].get(name, 0) + count
    if work.kind in ("request", "gib"):
        result["busy"] = median([counts["cpu_s"] / counts["seconds"] for counts in rounds])
        result["requests_per_s"] = median([counts["requests"] / counts["seconds"] for counts in rounds])
        result["mib_per_s"] = median([counts["bytes"] / counts["seconds"] / (1 << 20) for counts in rounds])
        result["p50_us"] = median([counts["p50_us"] for counts in rounds])
        result["p99_us"] = median([counts["p99_us"] for counts in rounds])
    if work.kind == "memory":
        result["anonymous"] = median([counts["memory_kib"]["anonymous"] for counts in rounds])
    return result
