"""A slow disk: hits of the cache and static files in a file system in which one of a hundred opens and reads takes a second. Foregate
with both engines and NGINX with `aio threads` have the same objects, and a load of their own in interleaved rounds."""

import ctypes
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from .cache import KIB, LOAD_TIMEOUT_S, CacheForegate, CacheNginx, Origin, OriginServer, content
from .processes import Failed, Process, free_port
from .proxies import BENCH, TARGET, cargo_build

NAME = "slow-disk"
# Percent of opens and reads, and their delay.
SHARE, DELAY_MS = 1, 1000
# Foregate's memory has room for 64 of them at most.
SIZE, OBJECTS = 16 * KIB, 2000
# The first one is what the bounds are for; with the second one, slow operations need all threads of all proxies.
CONNECTIONS = (32, 256)
# What has to be reached: p99 of the requests that no slow operation is part of, answers beside NGINX's, p99 of the time for which the
# event loop is blocked.
P99_MS, FACTOR, BLOCKED_MS = 20.0, 5.0, 5.0
CLONE_NEWNS = 0x00020000


class SlowDisk(Process):
    """The file system. It ends with its standard input."""

    def __init__(self, program, folder, mountpoint, cpus, log):
        for path in (folder, mountpoint):
            path.mkdir()
        super().__init__([program, folder, mountpoint, SHARE], cpus, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.tell("")

    def tell(self, delay):
        """Sets the delay of slow operations in milliseconds, and gives the operations so far."""
        self.process.stdin.write(f"{delay}\n".encode())
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"the slow file system ended: {self.tail()}")
        return json.loads(line)

    def stop(self):
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            pass
        super().stop()


class SlowForegate(CacheForegate):
    """Foregate with its folder on the slow file system."""

    def __init__(self, path, engine):
        super().__init__(path)
        self.name, self.engine = f"foregate, {engine}", engine
        self.metrics = free_port()

    def command(self, work, port, origin, folder, tls):
        store = 'memory "1MiB"' if work.tier == "files" else f'memory "1MiB"; disk "{folder}/slow" size="2GiB"'
        route = f'files "{folder}/slow"' if work.tier == "files" else 'proxy "origin"; cache'
        config = folder / "foregate.kdl"
        config.write_text(
            f'workers 1\nlisten "127.0.0.1:{port}"\nmetrics "127.0.0.1:{self.metrics}"\n'
            f'disk-engine "{self.engine}"\ncache-store {{ {store} }}\n'
            f'upstream "origin" {{ server "{origin}" }}\nsite "*" {{ route "/**" {{ {route} }} }}\n'
        )
        return [self.path, "run", "--single", "-c", config]

    def blocked(self):
        """The histogram of the time for which tasks blocked the worker: counts by upper ends in seconds."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10).read().decode()
        found = re.findall(r'^foregate_event_loop_blocked_seconds_bucket\{le="([^"]+)"\} (\S+)$', text, re.M)
        return {float(end): float(count) for end, count in found}


class SlowNginx(CacheNginx):
    """NGINX with `aio threads`; with `open_file_cache` if that is asked for."""

    def __init__(self, keeps_open):
        self.keeps_open = keeps_open
        self.name = "nginx, open_file_cache" if keeps_open else "nginx"

    def command(self, work, port, origin, folder, tls):
        command = super().command(work, port, origin, folder, tls)
        config = folder / "nginx.conf"
        text = config.read_text().replace("sendfile on;", "sendfile on;\n    aio threads;")
        text = text.replace(f"proxy_cache_path {folder}/store", f"proxy_cache_path {folder}/slow")
        text = text.replace(f"root {folder}/www;", f"root {folder}/slow;")
        if not self.keeps_open:
            text = re.sub(r"\n *open_file_cache.*;", "", text)
        config.write_text(text)
        return command

    def blocked(self):
        return {}


class Tier:
    """A work as the proxies read it."""

    log, workers, tls = False, 1, None

    def __init__(self, tier):
        self.tier, self.name = tier, f"slow-disk-{tier}"


class Subject:
    """A proxy on a slow disk of its own, with its rounds."""

    def __init__(self, stack, setup, proxy, tier):
        self.proxy, self.tier = proxy, tier
        self.folder = setup.top / f"{tier}-{len(setup.subjects)}"
        self.folder.mkdir()
        self.disk = SlowDisk(setup.slowdisk, self.folder / "disk", self.folder / "slow", setup.load_cpus,
                             self.folder / "disk.log")
        stack.enter_context(self.disk)
        setup.first(self.disk)
        if tier == "files":
            for path in paths():
                file = self.folder / "disk" / path[1:]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content(SIZE))
        self.process, self.port = proxy.start(Tier(tier), setup.origin, self.folder, self.folder, setup.proxy_cpus)
        stack.enter_context(self.process)
        setup.first(self.process)
        if tier == "disk":
            self.fill()
        self.slow = self.find_slow()
        self.exchanges = self.folder / "exchanges.json"
        self.exchanges.write_text(json.dumps([self.exchange(path) for path in paths()]))
        self.rounds = {connections: [] for connections in CONNECTIONS}
        self.failures = dict.fromkeys(CONNECTIONS, 0)

    def exchange(self, path):
        text = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nUser-Agent: bench-load/1\r\nAccept: */*\r\n\r\n"
        return {"request": text, "status": 200, "fields": {}, "class": "slow" if path in self.slow else "fast"}

    def fill(self):
        """Has each object asked for once, so that the cache has it."""
        def ask(names):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            for path in names:
                get(connection, path)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, [paths()[part::8] for part in range(8)]))
        # What is written in the background is on the disk then.
        time.sleep(1)

    def find_slow(self):
        """The objects with a slow operation: each is asked for alone, and the file system tells whether one was part of it. An object that
        is not read from the disk is asked for again."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        slow, left, before = set(), paths(), self.disk.tell("0")
        for _ in range(5):
            unread = []
            for path in left:
                asked = Origin.count
                get(connection, path)
                now = self.disk.tell("0")
                if now["reads"] == before["reads"]:
                    unread.append(path)
                if now["slow"] != before["slow"]:
                    slow.add(path)
                if Origin.count != asked:
                    raise Failed(f"{self.proxy.name} asks the origin for {path} although it has it")
                before = now
            left = unread
        # What is left stays in memory.
        if len(left) > OBJECTS // 20:
            raise Failed(f"{self.proxy.name} reads {len(left)} of {OBJECTS} objects from no disk")
        return slow

    def measure(self, setup, connections):
        """One round: the delays are on meanwhile."""
        before, blocked = self.disk.tell(str(DELAY_MS)), self.proxy.blocked()
        asked = Origin.count
        command = [
            setup.program, "load", f"127.0.0.1:{self.port}", "--work", "kept", "--connections", connections,
            "--exchanges", self.exchanges, "--warm-ms", 1500, "--run-ms", setup.run_ms,
        ]
        with Process(command, setup.load_cpus, self.folder / "load.log", stdout=subprocess.PIPE) as load:
            setup.first(load)
            out, _ = load.process.communicate(timeout=LOAD_TIMEOUT_S)
            failed = load.tail() if load.process.returncode != 0 else ""
        self.disk.tell("0")
        if failed:
            # The load gives up after a hundred wrong answers.
            print(f"{NAME}: {self.tier}, {self.proxy.name}, {connections} connections: {failed}", flush=True)
            self.failures[connections] += 1
            return
        counts = json.loads(out)
        self.failures[connections] += sum(counts["faults"].values())
        after = self.disk.tell("0")
        counts["disk"] = {name: after[name] - before[name] for name in after}
        counts["origin"] = Origin.count - asked
        counts["blocked"] = {end: count - blocked[end] for end, count in self.proxy.blocked().items()}
        self.rounds[connections].append(counts)
        fast = counts["classes"]["fast"]
        print(f"{NAME}: {self.tier}, {self.proxy.name}, {connections} connections: {counts['requests']} answers, "
              f"p99 of fast ones {fast['p99_us'] / 1000:.1f} ms, {counts['faults'] or 'no faults'}", flush=True)

    def figure(self, connections, of):
        return statistics.median(of(counts) for counts in self.rounds[connections])


class Setup:
    """What all subjects share."""

    def __init__(self, options, program, stack):
        if not is_possible():
            raise Failed(f"{NAME} mounts a file system: it needs root and /dev/fuse")
        # The mounts are seen by this process and what it starts, and go with them.
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
            raise Failed(f"no mount namespace: {os.strerror(ctypes.get_errno())}")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        self.slowdisk = cargo_build(BENCH / "slowdisk" / "Cargo.toml", TARGET, "foregate-slowdisk")
        self.program = program
        self.run_ms, self.goes_first = options.slow_ms, options.first
        self.subjects = []
        cpus = sorted(os.sched_getaffinity(0))
        self.load_cpus, self.proxy_cpus = {cpus[0]}, {cpus[-1]}
        self.top = Path(tempfile.mkdtemp(prefix="foregate-bench-slow-"))
        stack.callback(shutil.rmtree, self.top, ignore_errors=True)
        server = OriginServer(("127.0.0.1", 0), Origin)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        self.origin = server.server_address[1]

    def first(self, process):
        """Has the kernel prefer a process to everything else, if that is asked for."""
        if self.goes_first:
            Path(f"/proc/{process.process.pid}/autogroup").write_text("-19")


def is_possible():
    """Whether this process may mount the file system."""
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


def paths():
    """The objects."""
    return [f"/{SIZE}/{number}" for number in range(OBJECTS)]


def get(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    if answer.read() != content(SIZE) or answer.status != 200:
        raise Failed(f"{path} is not what the origin has: {answer.status}")


def quantile(blocked, share):
    """The upper end, in milliseconds, of the bucket that a share of the counts of a histogram lie within."""
    total = max(blocked.values(), default=0)
    return min((1000 * end for end, count in blocked.items() if count >= share * total), default=0)


def run(options, foregate, program):
    """Measures, prints the tables and gives the bounds that are missed."""
    with ExitStack() as stack:
        setup = Setup(options, program, stack)
        for tier in ("disk", "files"):
            proxies = [SlowForegate(foregate, "threads"), SlowForegate(foregate, "io-uring"), SlowNginx(False)]
            if tier == "disk":
                proxies.append(SlowNginx(True))
            for proxy in proxies:
                proxy.prepare()
                subject = Subject(stack, setup, proxy, tier)
                setup.subjects.append(subject)
                print(f"{NAME}: {tier}, {proxy.name}: {len(subject.slow)} of {OBJECTS} objects are slow", flush=True)
        for _ in range(options.slow_rounds):
            for connections in CONNECTIONS:
                for subject in setup.subjects:
                    subject.measure(setup, connections)
        return show(setup.subjects)


def show(subjects):
    """The tables, and what is missed."""
    missed = []
    for connections in CONNECTIONS:
        print(f"\n{connections} connections\n\n| tier | proxy | slow objects | answers a second | others: p50, p99, max, ms "
              "| slow: p50, ms | all: p99, ms | blocked: p99, ms | delayed operations | asked the origin | failed |\n" + "|---" * 11 + "|")
        rates = {}
        for subject in subjects:
            if not subject.rounds[connections]:
                print(f"| {subject.tier} | {subject.proxy.name} | every measurement was given up |" + " |" * 7)
                if subject.proxy.name.startswith("foregate"):
                    missed.append(f"{NAME}, {subject.tier}, {subject.proxy.name}: given up")
                continue

            def median(of, subject=subject):
                return subject.figure(connections, of)
            fast, slow = (lambda counts: counts["classes"]["fast"]), (lambda counts: counts["classes"].get("slow", {"p50_us": 0}))
            rate = median(lambda counts: counts["requests"] / counts["seconds"])
            p99 = median(lambda counts: fast(counts)["p99_us"]) / 1000
            blocked = median(lambda counts: quantile(counts["blocked"], 0.99))
            rates[subject.tier, subject.proxy.name] = rate
            print(f"| {subject.tier} | {subject.proxy.name} | {100 * len(subject.slow) / OBJECTS:.2f} % | {rate:.0f} "
                  f"| {median(lambda counts: fast(counts)['p50_us']) / 1000:.2f}, {p99:.2f}, "
                  f"{median(lambda counts: fast(counts)['max_us']) / 1000:.0f} "
                  f"| {median(lambda counts: slow(counts)['p50_us']) / 1000:.0f} "
                  f"| {median(lambda counts: counts['p99_us']) / 1000:.0f} | {f'{blocked:g}' if blocked else ''} "
                  f"| {median(lambda counts: counts['disk']['slow']):.0f} | {median(lambda counts: counts['origin']):.0f} "
                  f"| {subject.failures[connections]} |")
            if subject.failures[connections] and subject.proxy.name.startswith("foregate"):
                missed.append(f"{NAME}, {subject.tier}, {subject.proxy.name}: {subject.failures[connections]} failed")
            if connections != CONNECTIONS[0] or not subject.proxy.name.startswith("foregate"):
                continue
            if p99 > P99_MS:
                missed.append(f"{NAME}, {subject.tier}, {subject.proxy.name}: p99 {p99:.1f} ms, {P99_MS:.0f} ms allowed")
            if blocked > BLOCKED_MS:
                missed.append(f"{NAME}, {subject.tier}, {subject.proxy.name}: blocked {blocked:.1f} ms, {BLOCKED_MS:.0f} ms allowed")
        for (tier, name), rate in rates.items():
            if name.startswith("foregate") and (tier, "nginx") in rates:
                factor = rate / rates[tier, "nginx"]
                is_bound = connections == CONNECTIONS[0]
                bound = f" (at least {FACTOR:.0f})" if is_bound else ""
                print(f"{tier}, {name}: {factor:.1f} times the answers of nginx{bound}")
                if is_bound and factor < FACTOR:
                    missed.append(f"{NAME}, {tier}, {name}: {factor:.1f} times the answers, {FACTOR:.0f} required")
    print()
    return missed
