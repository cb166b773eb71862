"""Processes that are pinned, ended for certain, and asked for what they use."""

import ctypes
import os
import random
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 3.0
# Below the range that the kernel takes client ports from, so that none is in the way.
PORTS = range(20000, 32000)


class Failed(Exception):
    """A process did not do what it was started for."""


def free_port():
    """A port of 127.0.0.1 that nothing listens on."""
    for _ in range(200):
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Failed("no free port found")


class Process:
    """A process in its own group, which ends, with its children, when `stop` is
    called, when the `with` block is left, or when this program dies."""

    def __init__(self, command, cpus, log, stdin=None, stdout=None):
        self.command = [str(part) for part in command]
        self.log = Path(log)
        parent = os.getpid()

        def prepare():
            os.sched_setaffinity(0, cpus)
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            # Not SIGKILL: NGINX's first process has to end its workers.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command,
                stdin=stdin or subprocess.DEVNULL,
                stdout=stdout or errors,
                stderr=errors,
                preexec_fn=prepare,
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends the whole group: asked first, then forced."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(STOP_TIMEOUT_S)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                # Nothing is left of the group, or it needs the second signal. When
                # the first one ended the leader, the second ends what it left.
                continue
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()

    def wait_for_port(self, port):
        """Returns when something accepts connections on the port."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Failed(f"{self.command[0]} ended with {self.process.returncode}: {self.tail()}")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise Failed(f"{self.command[0]} does not listen on port {port}: {self.tail()}")

    def wait_for_children(self, number):
        """Returns when the process has so many descendants."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while len(self.pids()) <= number:
            if time.monotonic() > deadline:
                raise Failed(f"{self.command[0]} has not started {number} processes: {self.tail()}")
            time.sleep(0.02)

    def tail(self):
        """The end of what the process wrote, for an error message."""
        return self.log.read_text(errors="replace")[-600:].strip()

    def pids(self):
        """The process, then all its descendants in the order in which they began."""
        parents, began = {}, {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                parents[int(entry.name)], began[int(entry.name)] = int(fields[1]), int(fields[19])
        return family(self.process.pid, parents, began)


def family(first, parents, began):
    """A process and its descendants by when they began, from who is whose parent: numbers are given out anew after the highest."""
    tree = {first}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return [first, *sorted(tree - {first}, key=lambda pid: (began[pid], pid))]


def memory_kib(pids):
    """Memory of all the processes together, in KiB: resident, proportional, anonymous."""
    total = {"Rss": 0, "Pss": 0, "Anonymous": 0}
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in total:
                total[name] += int(rest.split()[0])
    return total
