"""Load on the module in NGINX while that is reloaded again and again: no request fails, and nothing grows."""

import statistics
import subprocess
import threading
import time

from .compare import Closed, ask, connect, expected
from .processes import Failed, memory_kib

PACE_S, RELOAD_S = 0.005, 10.0
CLIENTS, NEW_EVERY = 8, 20
# MiB that workers of the last third may have more than those of the first, and the first process, too.
GROWTH_MIB = 0.5
# Steps of the request are on the first; its nonce makes each answer different.
KINDS = ("steps", "emails", "five", "head")


class Load:
    """Requests at a steady pace by several clients, on a kept-alive connection each, and now and then on a new one."""

    def __init__(self, port, known):
        self.port, self.known, self.over = port, known, threading.Event()
        self.counts, self.closed, self.wrong = [0] * CLIENTS, 0, []
        self.threads = [threading.Thread(target=self.run, args=(client,), daemon=True) for client in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def requests(self):
        """How many there were."""
        return sum(self.counts)

    def run(self, client):
        kept, start = connect(self.port), time.monotonic()
        while not self.over.is_set():
            count = self.counts[client]
            time.sleep(max(0.0, start + count * CLIENTS * PACE_S - time.monotonic()))
            kind = KINDS[count % len(KINDS)]
            self.counts[client] += 1
            try:
                if count % NEW_EVERY == 0:
                    kept.close()
                    kept = connect(self.port)
                try:
                    body = ask(kept, kind)[2]
                except Closed:
                    # A worker that ends closes what is idle (RFC 9112, section 9.3.1); it may not do so to a new one.
                    if count % NEW_EVERY == 0:
                        raise
                    self.closed += 1
                    kept.close()
                    kept = connect(self.port)
                    body = ask(kept, kind)[2]
                self.check(kind, body)
            except (OSError, Failed, ValueError, IndexError) as error:
                self.wrong.append(f"/{kind}/: {error!r}")
                kept.close()
                kept = connect(self.port)
        kept.close()

    def stop(self):
        """Ends it when what is under way is done."""
        self.over.set()
        for thread in self.threads:
            thread.join()

    def check(self, kind, body):
        """Whether the answer is what it should be."""
        if kind == "steps":
            count = self.known["emails"].count(b"data-fg-email")
            right = body.count(b"data-fg-email") == count and b"chat.js nonce=" in body
        else:
            right = body == self.known[kind]
        if not right:
            raise Failed(f"{len(body)} bytes that are wrong")


def thirds(values):
    """By how much the median of the last third is over that of the first, MiB."""
    third = max(1, len(values) // 3)
    return (statistics.median(values[-third:]) - statistics.median(values[:third])) / 1024


def soak(setup, options, report):
    """Minutes of load with reloads."""
    print(f"{options.soak_s:.0f} s of at most {1 / PACE_S:.0f} requests/s, a reload of NGINX every {RELOAD_S:.0f} s")
    known = expected(setup)
    workers, masters = [], []
    with setup.running(setup.module) as (process, port, folder):
        load, end = Load(port, known), time.monotonic() + options.soak_s
        command = [setup.module.path, "-p", folder, "-e", folder / "error.log", "-c", folder / "nginx.conf"]
        command += ["-s", "reload"]
        while time.monotonic() < end:
            time.sleep(RELOAD_S)
            pids = process.pids()
            # The newest worker has served since the last reload.
            workers.append(memory_kib(pids[-1:])["Rss"])
            masters.append(memory_kib(pids[:1])["Rss"])
            if len(workers) % 6 == 0:
                print(f"  {len(workers)} reloads, {load.requests()} requests, {len(load.wrong)} failed; "
                      f"MiB: worker {workers[-1] / 1024:.2f}, first process {masters[-1] / 1024:.2f}", flush=True)
            subprocess.run(command, check=True, timeout=30, capture_output=True)
        load.stop()
        time.sleep(2)
        left = len(process.pids()) - 2
        log = (folder / "error.log").read_text(errors="replace")
    if load.requests() < options.soak_s / PACE_S / 10:
        raise Failed(f"only {load.requests()} requests were made: the machine is too slow for this pace")
    report.row("requests", load.requests(), f"({load.closed} connections closed by a worker that ended)")
    report.row("requests failed", len(load.wrong), "; ".join(load.wrong[:3]), 0)
    report.row("reloads", len(workers), "")
    for name, sizes in (("new workers", workers), ("first process", masters)):
        report.row(f"{name}, last third over first", thirds(sizes),
                   f"MiB ({min(sizes) / 1024:.2f} .. {max(sizes) / 1024:.2f})", GROWTH_MIB)
    report.row("workers that did not end", left, "", 0)
    alarms = sum(log.count(word) for word in ("[alert]", "[emerg]", "panicked"))
    report.row("alerts and panics in the log", alarms, "", 0)
