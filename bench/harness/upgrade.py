"""Upgrades of Foregate, NGINX and HAProxy under the same load."""

import argparse
import asyncio
import datetime
import os
import platform
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import load

from . import waf
from .works import Work

MIB = 1 << 20
# The steady state is the median of so many seconds, and so is the state after the last upgrade.
CALM = 3
# How long the state after an upgrade may take to settle: answers with `Connection: close` have to reach all busy clients.
SETTLE = 8
# How long a version that no idle connection may ask may take to drop its configuration.
DROPS = 15
# A cache takes longer to move: until the memory has stayed within this part for so many seconds, but no longer than this.
STILL, STILL_FOR, STILL_WITHIN = 0.002, 5, 120
# Connections that fill the cache, and how many of its objects are asked for again.
FILLERS, ASKED_AGAIN = 8, 200
# 100,000 blocks of sites take NGINX many minutes to read, seconds.
NGINX_START = 900
FOREGATE_PEAK, FOREGATE_AFTER, SMALL = 1.15, 1.02, 96
NAMES = {"peak": "the peak", "after": "the memory afterwards", "rest": "the memory afterwards without idle connections"}


class Refused(Exception):
    """The proxy did not start an upgrade."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processes(session):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                # The session is the fourth field behind the name, which is in parentheses.
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry))
    return found


def sizes(session):
    """Proportional set sizes of the processes of a session, bytes: shared pages count once."""
    found = []
    for pid in processes(session):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        found.append(sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")))
    return found


class Peer:
    """A proxy with its configuration in a folder of its own."""

    def __init__(self, options, folder, origin):
        self.options, self.folder, self.origin = options, Path(folder), origin
        self.port, self.tls_port = free_port(), free_port()
        self.process = None
        # All its processes belong to this session.
        self.session = None

    def hosts(self):
        return (f"h{number}.example.com" for number in range(self.options.sites))

    def write(self, name, *parts):
        with open(self.folder / name, "w") as file:
            for part in parts:
                file.writelines([part] if isinstance(part, str) else part)
        return self.folder / name

    def certificate(self):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
             self.folder / "key", "-out", self.folder / "pem", "-days", "2", "-subj", "/CN=a", "-addext", "subjectAltName=DNS:a"],
            check=True, capture_output=True,
        )
        self.write("both", (self.folder / "pem").read_text(), (self.folder / "key").read_text())

    async def start(self):
        self.certificate()
        command = self.configure()
        log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self.session = self.process.pid
        for _ in range(10 * NGINX_START):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                self.session = self.find_session()
                return
            except OSError:
                assert self.process.poll() in (None, 0), (self.folder / "log").read_text(errors="replace")[-2000:]
                await asyncio.sleep(0.1)
        raise AssertionError(f"{self.name} does not listen")

    def find_session(self):
        return self.process.pid

    async def run(self, *command):
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        out, _ = await process.communicate()
        assert process.returncode == 0, f"{command}: {out.decode(errors='replace')[-2000:]}"

    def stop(self):
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for pid in processes(self.session):
                try:
                    os.kill(pid, sign)
                except ProcessLookupError:
                    pass
            deadline = time.monotonic() + 5
            while processes(self.session) and time.monotonic() < deadline:
                self.process.poll()
                time.sleep(0.05)
        self.process.wait()


class Foregate(Peer):
    name = "Foregate"

    def configure(self):
        firewall = ""
        if self.options.crs:
            rules = waf.rules(Work("", "", "", {}, traffic="get", paranoia=1), self.folder)
            firewall = f'waf mode="detect" {{ rules "{rules}" }}\n'
        cache, store = "", ""
        if self.options.cache:
            cache, store = "; cache", f'cache-store {{ memory "{self.options.cache}MiB" }}\n'
        route = f'{{ route "/**" {{ proxy "app"{cache} }} }}\n'
        hosts = (f'site "{host}" {route}' for host in self.hosts())
        self.file = self.write(
            "foregate.kdl", f'workers 2\nlisten "127.0.0.1:{self.port}"\nlisten "127.0.0.1:{self.tls_port}" '
            f'{{ tls {{ certificate "pem" key="key" }} }}\nlimits {{ connections-per-client 100000 }}\ntimeouts {{ keep-alive "1h" }}\n{firewall}{store}'
            f'upstream "app" {{ server "127.0.0.1:{self.origin}" }}\nsite "*" {route}', hosts,
        )
        return [self.options.foregate, "run", "-c", self.file]

    async def upgrade(self):
        try:
            await self.run(self.options.foregate, "upgrade", "-c", self.file, "--stages", "10% 100%", "--bake", "2s")
        except AssertionError as error:
            raise Refused(f"Foregate rolled back: {str(error).strip().splitlines()[-1]}") from error


class Nginx(Peer):
    name = "NGINX"

    def configure(self):
        block = (
            f"server {{ listen 127.0.0.1:{self.port}; listen 127.0.0.1:{self.tls_port} ssl; server_name %s; "
            "location / { proxy_pass http://app; } }\n"
        )
        # It has no cache in memory: objects lie in files, their keys in shared memory.
        cache = ""
        if self.options.cache:
            cache = (
                f"proxy_cache_path {self.folder}/cache levels=1:2 keys_zone=objects:16m max_size={self.options.cache}m inactive=1d use_temp_path=off;\n"
                "proxy_cache objects;\n"
            )
        file = self.write(
            "nginx.conf", f"worker_processes 2;\npid {self.folder}/pid;\nerror_log {self.folder}/error.log;\n"
            "events { worker_connections 20000; }\nworker_rlimit_nofile 50000;\nhttp {\naccess_log off;\nkeepalive_timeout 1h;\nserver_names_hash_max_size 1048576;\n"
            f"server_names_hash_bucket_size 128;\nclient_body_temp_path {self.folder}/body;\nproxy_temp_path {self.folder}/proxy;\n"
            f"fastcgi_temp_path {self.folder}/f;\nuwsgi_temp_path {self.folder}/u;\nscgi_temp_path {self.folder}/s;\n"
            f"ssl_certificate {self.folder}/pem;\nssl_certificate_key {self.folder}/key;\nssl_session_cache shared:a:10m;\n"
            "proxy_http_version 1.1;\nproxy_read_timeout 1h;\nproxy_set_header Connection $connection_upgrade;\nproxy_set_header Upgrade $http_upgrade;\n"
            f"map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}\n{cache}"
            f"upstream app {{ server 127.0.0.1:{self.origin}; keepalive 64; }}\n",
            block.replace("%s", "_").replace(";", " default_server;", 1).replace(" ssl;", " ssl default_server;", 1),
            (block.replace("%s", host) for host in self.hosts()), "}\n",
        )
        # By its path: with the bare name the new one would not be found.
        return [shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"), "-c", file]

    def find_session(self):
        # In the foreground it refuses USR2. As a daemon it has a session of its own.
        return int((self.folder / "pid").read_text())

    async def upgrade(self):
        """As its manual has it: USR2, a while for both, WINCH, QUIT."""
        old = int((self.folder / "pid").read_text())
        os.kill(old, signal.SIGUSR2)
        for _ in range(10 * NGINX_START):
            await asyncio.sleep(0.1)
            try:
                new = int((self.folder / "pid").read_text())
            except (OSError, ValueError):
                continue
            children = Path(f"/proc/{new}/task/{new}/children")
            if new != old and children.exists() and len(children.read_text().split()) >= 2:
                break
        else:
            raise Refused("NGINX started no new workers within {NGINX_START} s: it ignores USR2 while the process before it still has tunnels")
        await asyncio.sleep(2)
        os.kill(old, signal.SIGWINCH)
        await asyncio.sleep(2)
        os.kill(old, signal.SIGQUIT)


class Haproxy(Peer):
    name = "HAProxy"

    def configure(self):
        hosts = self.write("hosts.map", (f"{host} app\n" for host in self.hosts()))
        cache, use = "", ""
        if self.options.cache:
            cache = f"cache objects\n  total-max-size {self.options.cache}\n  max-object-size {2 * load.OBJECT}\n  max-age 86400\n"
            use = "  http-request cache-use objects\n  http-response cache-store objects\n"
        file = self.write(
            "haproxy.cfg", f"global\n  nbthread 2\n  maxconn 9000\n  stats socket {self.folder}/admin expose-fd listeners\n"
            "defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  timeout tunnel 1h\n  timeout http-keep-alive 1h\n"
            f"frontend web\n  bind 127.0.0.1:{self.port}\n  bind 127.0.0.1:{self.tls_port} ssl crt {self.folder}/both\n"
            f"  use_backend %[req.hdr(host),lower,map({hosts},app)]\nbackend app\n{use}  server a 127.0.0.1:{self.origin}\n{cache}",
        )
        return [shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin"), "-W", "-db", "-f", file]

    async def upgrade(self):
        workers = set(processes(self.session))
        os.kill(self.process.pid, signal.SIGUSR2)
        for _ in range(600):
            await asyncio.sleep(0.1)
            if set(processes(self.session)) - workers:
                break
        else:
            raise Refused("HAProxy started no new worker within 60 s")
        await asyncio.sleep(4)


PEERS = {"foregate": Foregate, "nginx": Nginx, "haproxy": Haproxy}


async def idle_connections(clients, count):
    """Keep-alive connections over TLS that have been used once."""
    opened = []
    for start in range(0, count, 10):
        some = await asyncio.gather(*[clients.connect(tls=True) for _ in range(min(10, count - start))])
        for reader, writer in some:
            await clients.ask(reader, writer)
        opened += some
    return opened


async def still_served(clients, idle):
    """How many of the idle connections answer one more request."""
    served = 0
    for reader, writer in idle:
        try:
            await asyncio.wait_for(clients.ask(reader, writer), 10)
            served += 1
        except (asyncio.IncompleteReadError, OSError, asyncio.TimeoutError):
            pass
        finally:
            writer.close()
    return served


async def ask_objects(clients, numbers):
    """Asks for objects that may be stored, over some connections at once."""
    left = iter(numbers)

    async def one():
        reader, writer = await clients.connect()
        for number in left:
            if not await clients.ask(reader, writer, target=f"/object/{number}"):
                writer.close()
                reader, writer = await clients.connect()
        writer.close()

    await asyncio.gather(*(one() for _ in range(FILLERS)))


async def stored_again(clients, origin, objects):
    """How many of the last stored objects come without a question to the origin."""
    numbers = range(max(0, objects - ASKED_AGAIN), objects)
    asked = origin.objects
    await ask_objects(clients, numbers)
    return len(numbers) - (origin.objects - asked), len(numbers)


async def measure(kind, options, folder):
    origin = load.Origin()
    peer = kind(options, folder, await origin.start())
    await peer.start()
    try:
        clients = load.Load(peer.port, peer.tls_port)
        objects = options.cache * MIB // load.OBJECT
        await ask_objects(clients, range(objects))
        idle = await idle_connections(clients, options.connections)
        await clients.open_tunnels(options.tunnels // 2)
        await clients.open_tunnels(options.tunnels - options.tunnels // 2, tls=True)
        clients.start(clients=2, slow=4)
        samples, watching = [], True

        async def watch():
            while watching:
                samples.append((time.monotonic(), sum(sizes(peer.session))))
                await asyncio.sleep(0.1)

        watcher = asyncio.ensure_future(watch())
        await asyncio.sleep(2 + CALM)
        while not samples:
            await asyncio.sleep(1)

        def since(begin):
            # The system may take seconds to add up the pages of gigabytes.
            return [size for at, size in samples if at >= begin] or [samples[-1][1]]

        before = sizes(peer.session)
        steady = statistics.median(since(time.monotonic() - CALM))
        began, done, refusals = time.monotonic(), 0, []
        for _ in range(options.upgrades):
            try:
                await peer.upgrade()
                done += 1
            except Refused as error:
                refusals.append(str(error))
        took = time.monotonic() - began

        async def settled():
            await asyncio.sleep(SETTLE)
            limit = time.monotonic() + STILL_WITHIN
            while time.monotonic() < limit:
                await asyncio.sleep(1)
                last = since(time.monotonic() - STILL_FOR)
                if max(last) <= (1 + STILL) * min(last):
                    break
            return statistics.median(since(time.monotonic() - CALM))

        after, parts = await settled(), [before, sizes(peer.session)]
        took_in_all = time.monotonic() - began
        tunnels = await clients.echo()
        await clients.stop()
        failed, requests = sum(clients.failures.values()), sum(clients.statuses.values())
        stored = await stored_again(clients, origin, objects)
        peak = max(since(began))
        served = await still_served(clients, idle)
        await asyncio.sleep(DROPS)
        rest = await settled()
        parts.append(sizes(peer.session))
        watching = False
        await watcher
        return {
            "name": kind.name, "steady": steady, "peak": peak, "after": after, "took": took, "done": done, "refusals": refusals, "requests": requests, "failed": failed,
            "kinds": dict(clients.failures), "tunnels": tunnels, "idle": served, "longest": clients.longest,
            "stored": stored, "parts": parts, "rest": rest, "took_in_all": took_in_all,
        }
    finally:
        peer.stop()


def line(row, options):
    steady, peak, after, rest = (row[name] / MIB for name in ("steady", "peak", "after", "rest"))
    stored = f" {row['stored'][0]} of {row['stored'][1]} |" if options.cache else ""
    return (
        f"| {row['name']} | {row['done']} of {options.upgrades} | {steady:.1f} | {peak:.1f} ({peak / steady:.2f} x) | {after:.1f} ({after / steady:.2f} x) | {rest:.1f} ({rest / steady:.2f} x) | {row['requests']:,} | "
        f"{row['failed']} | {row['idle']} of {options.connections} | {row['tunnels']} of {options.tunnels} | {row['longest'] * 1000:.0f} | {row['took']:.1f} |{stored}"
    )


def missed(row, options):
    """The bounds that Foregate has to keep."""
    found = []
    # A second process is much for a small installation, and little for a large one.
    more = 0 if options.full else row["steady"] + SMALL * MIB
    for name, factor in ("peak", FOREGATE_PEAK), ("after", FOREGATE_AFTER), ("rest", FOREGATE_AFTER):
        bound = max(row["steady"] * factor, more)
        if row[name] > bound:
            found.append(f"{NAMES[name]} is {row[name] / MIB:.0f} MiB, above {bound / MIB:.0f} MiB")
    if row["done"] < options.upgrades:
        found.append(f"{row['done']} of {options.upgrades} upgrades")
    if row["failed"]:
        found.append(f"requests failed: {row['kinds']}")
    if row["stored"][0] < row["stored"][1]:
        found.append(f"{row['stored'][0]} of {row['stored'][1]} objects are still stored")
    if (row["idle"], row["tunnels"]) != (options.connections, options.tunnels):
        found.append("connections were cut")
    return found


def main(argv=None):
    parser = argparse.ArgumentParser(prog="bench/upgrade", description=__doc__)
    parser.add_argument("--foregate", default=os.environ.get("FOREGATE"))
    parser.add_argument("--peers", default="foregate,nginx,haproxy")
    parser.add_argument("--sites", type=int, default=10_000)
    parser.add_argument("--crs", action="store_true", help="with the Core Rule Set in Foregate, in the folder $CRS; the others have none")
    parser.add_argument("--connections", type=int, default=500, help="idle connections over TLS")
    parser.add_argument("--tunnels", type=int, default=100)
    parser.add_argument("--upgrades", type=int, default=2, help="one directly after the other")
    parser.add_argument("--cache", type=int, default=0, help="MiB of a cache that is filled before; in memory, but for NGINX, which has files")
    parser.add_argument("--full", action="store_true", help="100,000 sites, the Core Rule Set, 5,000 idle connections, 500 tunnels, a cache of 1 GiB, one upgrade")
    options = parser.parse_args(argv)
    if options.full:
        options.sites, options.crs, options.connections, options.tunnels, options.cache, options.upgrades = 100_000, True, 5_000, 500, 1024, 1
    if not options.foregate:
        parser.error("name the binary: --foregate or $FOREGATE")
    options.foregate = os.path.abspath(options.foregate)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"- Date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC; {os.cpu_count()} cores, Linux {platform.release()}, "
          f"load average at the start {os.getloadavg()[0]:.1f}")
    rules = ", the Core Rule Set in Foregate alone" if options.crs else ""
    cache = f", a filled cache of {options.cache} MiB" if options.cache else ""
    print(f"- Setup: {options.sites:,} sites{rules}{cache}, {options.connections} idle connections over TLS, {options.tunnels} tunnels (half over TLS), "
          f"{options.upgrades} upgrades in a row\n")
    print("| proxy | upgrades | steady, MiB | peak, MiB | after, MiB | without idle ones, MiB | requests | failed | idle connections served afterwards | tunnels that echo | longest answer, ms | upgrades took, s |"
          + (" objects still stored |" if options.cache else ""))
    print("| --- " * (13 if options.cache else 12) + "|", flush=True)
    rows = []
    for name in options.peers.split(","):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            row = asyncio.run(measure(PEERS[name], options, folder))
        rows.append(row)
        print(line(row, options), flush=True)
    print()
    for row in rows:
        before, after, rest = (" + ".join(f"{size / MIB:.0f}" for size in sorted(sizes, reverse=True)) for sizes in row["parts"])
        print(f"{row['name']}, MiB of each process: {before} before, {after} after {row['took_in_all']:.0f} s, {rest} without idle connections")
        if row["kinds"]:
            print(f"{row['name']}: {row['kinds']}")
        for refusal in row["refusals"]:
            print(refusal)
    wrong = [fault for row in rows if row["name"] == "Foregate" for fault in missed(row, options)]
    for fault in wrong:
        print(f"MISSED: {fault}")
    return 1 if wrong else 0
