"""Rewriting HTML: memory for a large page that grows, time to the first byte, CPU, and reloads of NGINX under load."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from . import pages, readers, soak
from .cli import foregate_path, parsed
from .compare import compare_cpu, compare_first_byte
from .processes import Failed, Process, free_port, memory_kib
from .proxies import BENCH, TARGET, Foregate, Nginx, NginxModule, cargo_build, fill, route_of
from .reload import Report
from .works import Work

# What has to be reached. A client that takes so much in a second has to get it.
GROWTH_MIB = 1.0
OF_ITS_TIME = 1.1
SAMPLE_S = 0.1
# What a process has for any page, it has after these.
WARM_PAGES, WARM_ADDRESSES = 10, 1000
MIB = 1 << 20


def arguments(argv):
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="bench/html", description=__doc__, allow_abbrev=False)
    parser.add_argument("--foregate", metavar="PATH", help="the program (default: $FOREGATE, or the release build)")
    parser.add_argument("--only", default="memory,pieces,first-byte,cpu", metavar="PART,...",
                        help=f"which of {', '.join(PARTS)} (default: %(default)s)")
    parser.add_argument("--full", action="store_true", help="the page of 60 MB (default: an eighth of it)")
    parser.add_argument("--rate", type=float, default=2.0, help="MB/s that the slow client takes (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=1500, help="of each kind for the first byte (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds of the CPU (default: %(default)s)")
    parser.add_argument("--soak-s", type=float, default=600, help="length of `soak` (default: %(default)s)")
    options = parsed(parser, argv, PARTS)
    options.addresses = 800_000 if options.full else 100_000
    return options


WORK = Work("html", "", "request", {})


class HtmlForegate(Foregate):
    """Foregate with the routes of peers/html.kdl."""

    def values(self, port, origin, work):
        return {"LISTEN": f"127.0.0.1:{port}", "ORIGIN": origin, "WORKERS": work.workers, "PLACEHOLDER": pages.PLACEHOLDER}

    def command(self, work, port, origin, folder, tls):
        config = folder / "foregate.kdl"
        config.write_text(fill("html.kdl", self.values(port, origin, work)))
        return [self.path, "run", "--single", "-c", config]


class HtmlNginx(Nginx):
    """NGINX alone, which inserts by its `sub_filter`."""

    name = "nginx"
    LOCATIONS = {
        "none": "",
        "head": "sub_filter '</head>' '<script src=/stats.js></script></head>';",
        "body": "sub_filter '</body>' '<script src=/chat.js></script></body>';",
    }

    def load(self):
        return ""

    def locations(self, folder, origin):
        return dict(self.LOCATIONS)

    def listen(self, work, port):
        return f"127.0.0.1:{port}" + (" http2" if work.http2 else "")

    def command(self, work, port, origin, folder, tls):
        inside = "".join(
            f"        location /{name}/ {{ {line} proxy_pass http://origin; }}\n"
            for name, line in self.locations(folder, origin).items()
        )
        config = folder / "nginx.conf"
        config.write_text(fill("nginx-html.conf", {
            "LOAD": self.load(), "USER": "user root;" if os.geteuid() == 0 else "", "WORKERS": work.workers,
            "FOLDER": folder, "LISTEN": self.listen(work, port), "ORIGIN": origin, "LOCATIONS": inside,
        }))
        return [self.path, "-p", folder, "-e", folder / "error.log", "-c", config]


class HtmlModule(HtmlNginx, NginxModule):
    """NGINX with the module of this repository and the routes of peers/html.kdl."""

    name = "nginx-module"
    ROUTES = ("none", "large", "emails", "head", "body", "five", "steps")

    def prepare(self):
        NginxModule.prepare(self)

    def version(self):
        return NginxModule.version(self)

    def load(self):
        return f"load_module {self.module};"

    def locations(self, folder, origin):
        values = {"LISTEN": "-", "ORIGIN": "-", "WORKERS": 1, "PLACEHOLDER": pages.PLACEHOLDER}
        text = fill("html.kdl", values)
        for name in self.ROUTES:
            (folder / f"{name}.kdl").write_text(route_of(text, f"/{name}/**"))
        return {name: "" if name == "none" else f"foregate {folder}/{name}.kdl;" for name in self.ROUTES}


class Setup:
    """The programs and the folder; the origin of small pages runs for as long as this does."""

    def __init__(self, options, stack):
        self.options = options
        self.foregate, self.nginx, self.module = HtmlForegate(foregate_path(options.foregate)), HtmlNginx(), HtmlModule()
        for proxy in (self.foregate, self.nginx, self.module):
            proxy.prepare()
        self.program = cargo_build(BENCH / "Cargo.toml", TARGET, "bench-load")
        self.folder = Path(tempfile.mkdtemp(prefix="foregate-html-"))
        # A worker of NGINX that is no root reads its routes there.
        self.folder.chmod(0o755)
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        cpus = sorted(os.sched_getaffinity(0))
        self.cpus, self.load_cpus, self.proxy_cpus = set(cpus), {cpus[0]}, {cpus[-1]}
        self.page = pages.ordinary()
        page = self.folder / "page.html"
        page.write_bytes(self.page)
        self.origin, control = free_port(), free_port()
        command = [self.program, "origin", f"127.0.0.1:{self.origin}", f"127.0.0.1:{control}", "--page", page]
        stack.enter_context(Process(command, self.load_cpus, self.folder / "origin.log")).wait_for_port(control)

    @contextmanager
    def running(self, proxy, origin=None, cpus=None, work=WORK):
        """A proxy at work: its process, its port and its folder."""
        folder = Path(tempfile.mkdtemp(prefix=f"{proxy.name}-", dir=self.folder))
        folder.chmod(0o755)
        process, port = proxy.start(work, origin or self.origin, folder, folder, cpus or self.cpus)
        with process:
            yield process, port, folder


def paths(setup):
    """The ways that a page takes: a name, a proxy, the work that starts it, and a client."""
    http2 = Work("html", "", "request", {}, front="h2c")
    yield "foregate, HTTP/1.1", setup.foregate, WORK, readers.http1
    yield "foregate, HTTP/2", setup.foregate, WORK, readers.http2
    yield "nginx-module, HTTP/1.1", setup.module, WORK, readers.http1
    yield "nginx-module, HTTP/2", setup.module, http2, readers.http2


def serving(process):
    """The processes that serve: NGINX's first one does not."""
    return process.pids()[1:] or process.pids()


class Memory:
    """Samples a process until it is told to stop."""

    def __init__(self, process):
        self.pids, self.over, self.most = serving(process), threading.Event(), {}
        self.before = memory_kib(self.pids)
        self.most = dict(self.before)
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self):
        while not self.over.wait(SAMPLE_S):
            now = memory_kib(self.pids)
            self.most = {name: max(value, self.most[name]) for name, value in now.items()}

    def stop(self):
        """MiB over what was there before: at most, and now."""
        self.over.set()
        self.thread.join()
        now = memory_kib(self.pids)
        over = lambda values, name: (values[name] - self.before[name]) / 1024  # noqa: E731
        return {"before": self.before["Rss"] / 1024, "most": over(self.most, "Rss"),
                "anonymous": over(self.most, "Anonymous"), "after": over(now, "Rss")}


def read_large(read, port, addresses, chunking, rate):
    """Reads the large page and gives what it was."""
    got = pages.Restored()
    start = time.monotonic()
    read(port, f"/large/{chunking}/{addresses}/page", rate, got.write)
    got.end()
    got.seconds = time.monotonic() - start
    return got


def large(setup, name, proxy, work, read, origin, rate):
    """One large page for a slow client: what came, and what memory it took."""
    with setup.running(proxy, origin.port, work=work) as (process, port, _):
        for _ in range(WARM_PAGES):
            read_large(read, port, WARM_ADDRESSES, 0, None)
        memory = Memory(process)
        got = read_large(read, port, setup.options.addresses, 0, rate)
        return got, memory.stop()


def check(report, name, got, expected, addresses):
    """Whether a page was rewritten as it has to be."""
    report.row(f"{name}: addresses not replaced or wrong", addresses - got.found + got.wrong, "", 0)
    report.row(f"{name}: differences from the page, restored",
               (got.original.hexdigest() != expected) + abs(got.scripts - 1), "", 0)


def memory(setup, options, report):
    """A large page that grows, for a client that takes it slowly: all paths at once, each with a process of its own."""
    length, expected = pages.measured(options.addresses)
    print(f"a page of {length / 1e6:.1f} MB with {options.addresses} addresses, {options.rate} MB/s")
    origin, results, threads = pages.Origin(), {}, []
    for name, *how in paths(setup):
        def run(name=name, how=how):
            try:
                results[name] = large(setup, name, *how, origin, options.rate * 1e6)
            except (Failed, OSError, ValueError) as error:
                results[name] = error
        threads.append(threading.Thread(target=run))
        threads[-1].start()
    for thread in threads:
        thread.join()
    origin.close()
    sums = set()
    for name, result in results.items():
        if isinstance(result, Exception):
            raise Failed(f"{name}: {result}")
        got, used = result
        sums.add(got.out.hexdigest())
        print(f"  {name}: {got.length / 1e6:.1f} MB in {got.seconds:.0f} s, SHA-256 {got.out.hexdigest()[:16]}...")
        report.row(f"{name}: of the time that the client needs", got.seconds / (got.length / options.rate / 1e6), "", OF_ITS_TIME)
        report.row(f"{name}: resident before", used["before"], "MiB")
        report.row(f"{name}: most over before", used["most"], f"MiB (anonymous {used['anonymous']:.2f})", GROWTH_MIB)
        report.row(f"{name}: after, over before", used["after"], "MiB")
        check(report, name, got, expected, options.addresses)
    report.row("different checksums", len(sums) - 1, "", 0)


def chunkings(setup, options, report):
    """The same page in other pieces of the origin, as fast as it goes: the same bytes on all paths."""
    _, expected = pages.measured(options.addresses)
    print(f"pieces of the origin: {options.addresses} addresses as fast as they go")
    origin, sums = pages.Origin(), set()
    for name, proxy, work, read in paths(setup):
        with setup.running(proxy, origin.port, work=work) as (_, port, _):
            for number, chunking in enumerate(pages.CHUNKINGS):
                got = read_large(read, port, options.addresses, number, None)
                sums.add(got.out.hexdigest())
                print(f"  {name}, {chunking}: {got.length / 1e6:.1f} MB in {got.seconds:.1f} s")
                check(report, name, got, expected, options.addresses)
    origin.close()
    report.row("different checksums", len(sums) - 1, "", 0)


PARTS = {"memory": memory, "pieces": chunkings, "first-byte": compare_first_byte, "cpu": compare_cpu, "soak": soak.soak}


def main(argv=None):
    """Measures; 0 when all bounds are reached, 1 when not or when something failed, 2 for wrong usage."""
    options = arguments(argv)
    report = Report()
    try:
        with ExitStack() as stack:
            setup = Setup(options, stack)
            for part in options.parts:
                PARTS[part](setup, options, report)
    except (Failed, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        print(f"bench/html: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench/html: interrupted", file=sys.stderr)
        return 130
    return 1 if report.missed else 0
