"""What is measured, and what has to be reached."""

from dataclasses import dataclass

from .waf import TRAFFIC

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Target:
    """Foregate's figure is at most `factor` times the best of `peers`' figures, or,
    without peers, at most `factor` itself. An aim is wished for, not required. With
    `throughput`, it is the bytes per second that are at least `factor` times the
    best of the peers'."""

    factor: float
    peers: tuple = ()
    aim: bool = False
    throughput: bool = False


@dataclass(frozen=True)
class Work:
    """One row of the table."""

    name: str
    title: str
    # How the main figure is made: see `figure` in measure.py. Lower is better for all.
    kind: str
    load: dict
    targets: tuple = ()
    # cleartext, tls, h2c or h2-tls.
    front: str = "cleartext"
    log: bool = False
    workers: int = 1
    # Rounds beyond this number add nothing, as the figure hardly varies.
    rounds_limit: int = 1000
    # Origin connections without a request for so long are closed by the origin.
    origin_idle_ms: int = 0
    # So long does the origin take for each answer.
    origin_delay_ms: int = 0
    default: bool = True
    # Requests other than those of `load` (see `exchanges` in same.py), for proxies that do the work of modules.
    exchanges: str = ""
    # What the firewalls are sent (see TRAFFIC in waf.py), and their level of paranoia; 0: none is asked.
    traffic: str = ""
    paranoia: int = 0

    @property
    def modules(self):
        return bool(self.exchanges)

    @property
    def proxies(self):
        """Who is measured."""
        if self.traffic:
            return FIREWALLS
        return ("foregate", *LUA, *MODULE) if self.modules else PROXIES

    @property
    def tls(self):
        return self.front in ("tls", "h2-tls")

    @property
    def http2(self):
        return self.front in ("h2c", "h2-tls")


PROXIES = ("foregate", "nginx", "haproxy", "pingora")
LUA = ("nginx-lua",)
MODULE = ("nginx-module",)
FIREWALLS = ("foregate", "modsecurity", "coraza", "zentinel")
NGINX, HAPROXY, PINGORA = ("nginx",), ("haproxy",), ("pingora",)
BEST = ("nginx", "haproxy", "pingora")
TWO = ("nginx", "haproxy")

WORKS = [
    Work(
        "h1-1k", "1 KiB answers, kept-alive HTTP/1.1", "request",
        {"work": "kept", "connections": 32, "answer": KIB},
        (Target(0.90, TWO), Target(0.50, PINGORA), Target(0.80, TWO, aim=True)),
    ),
    Work(
        "h1-1k-varied", "the same, fields other than the request before", "request",
        {"work": "kept", "connections": 32, "answer": KIB, "pages": 1000},
        (Target(0.90, TWO), Target(0.50, PINGORA), Target(0.80, TWO, aim=True)),
    ),
    Work(
        "h1-1k-log", "the same with a JSON access log", "request",
        {"work": "kept", "connections": 32, "answer": KIB},
        (Target(1.00, NGINX), Target(0.90, NGINX, aim=True)),
        log=True,
    ),
    Work(
        "h1-64k", "64 KiB answers", "request",
        {"work": "kept", "connections": 32, "answer": 64 * KIB},
        (Target(1.00, NGINX), Target(0.85, NGINX, aim=True)),
    ),
    Work(
        "upload-64k", "64 KiB uploads", "request",
        {"work": "kept", "connections": 32, "answer": 64, "upload": 64 * KIB},
        (Target(0.95, NGINX), Target(0.85, NGINX, aim=True)),
    ),
    Work(
        "h1-10m", "10 MiB answers", "gib",
        {"work": "kept", "connections": 8, "answer": 10 * MIB},
        (Target(1.00, NGINX), Target(1.00, NGINX, throughput=True), Target(0.80, NGINX, aim=True)),
    ),
    Work(
        "tls-1k", "1 KiB answers, kept-alive TLS", "request",
        {"work": "kept", "connections": 32, "answer": KIB},
        (Target(1.00, HAPROXY), Target(0.90, HAPROXY, aim=True)),
        front="tls",
    ),
    Work(
        "tls-handshake-full", "full TLS 1.3 handshake and one request", "request",
        {"work": "once", "connections": 16, "answer": KIB},
        (Target(0.80, BEST), Target(0.60, BEST, aim=True)),
        front="tls",
    ),
    Work(
        "tls-handshake-resumed", "resumed TLS 1.3 handshake and one request", "request",
        {"work": "once", "connections": 16, "answer": KIB, "resume": 1},
        (Target(0.80, BEST), Target(0.60, BEST, aim=True)),
        front="tls",
    ),
    Work(
        "h2-1k", "1 KiB answers, cleartext HTTP/2, 4 connections of 32 streams", "request",
        {"work": "kept", "connections": 4, "streams": 32, "answer": KIB},
        (Target(0.75, NGINX), Target(1.00, HAPROXY, aim=True)),
        front="h2c",
    ),
    Work(
        "h2-tls-1k", "1 KiB answers, HTTP/2 over TLS, 4 connections of 32 streams", "request",
        {"work": "kept", "connections": 4, "streams": 32, "answer": KIB},
        front="h2-tls",
        default=False,
    ),
    Work(
        "h1-newconn", "a new connection for each 1 KiB answer", "request",
        {"work": "once", "connections": 32, "answer": KIB},
        (Target(1.05, BEST), Target(0.95, BEST, aim=True)),
    ),
    Work(
        "idle-memory", "memory per idle connection, 5,000 of them, cleartext", "memory",
        {"work": "idle", "connections": 5000, "answer": KIB, "sources": 16},
        (Target(4.0), Target(2.0, aim=True)),
        rounds_limit=2,
    ),
    Work(
        "idle-memory-tls", "memory per idle connection, 5,000 of them, TLS", "memory",
        {"work": "idle", "connections": 5000, "answer": KIB, "sources": 16},
        (Target(20.0), Target(14.0, aim=True)),
        front="tls",
        rounds_limit=2,
    ),
    Work(
        "reuse-idle-close", "origin connections opened: bursts, 8 workers, origin closes idle ones", "opened",
        {"work": "bursts", "connections": 64, "answer": KIB, "requests": 3200, "burst": 16, "interval-ms": 20},
        (Target(0.25, NGINX), Target(1.00, HAPROXY)),
        workers=8,
        rounds_limit=3,
        origin_idle_ms=100,
        origin_delay_ms=5,
    ),
    Work(
        "reuse-kept", "requests not on a reused origin connection, of 100,000: bursts, 8 workers", "missed",
        {"work": "bursts", "connections": 64, "answer": KIB, "requests": 100_000},
        (Target(0.08),),
        workers=8,
        rounds_limit=3,
    ),
    Work(
        "reuse-thinking", "origin connections for 1,000 requests: 64 clients think, origin closes idle ones", "renewed",
        {"work": "thinking", "connections": 64, "answer": KIB, "requests": 12_800, "think-ms": 90},
        (Target(6.0),),
        workers=8,
        rounds_limit=3,
        origin_idle_ms=250,
        origin_delay_ms=10,
    ),
    Work(
        "modules-none", "1 KiB answers to the requests of modules-rules, by a route without modules", "request",
        {"work": "kept", "connections": 32},
        exchanges="none",
    ),
    Work(
        "modules-rules", "1 KiB answers through 20 header and access rules", "request",
        {"work": "kept", "connections": 32},
        (Target(0.50, LUA),),
        exchanges="rules",
    ),
    Work(
        "modules-redirects", "redirects, of a list of 10,000", "request",
        {"work": "kept", "connections": 32},
        (Target(0.50, LUA),),
        exchanges="redirects",
    ),
    Work(
        "modules-error-pages", "a page in the place of the origin's 404 or 502", "request",
        {"work": "kept", "connections": 32},
        (Target(0.50, LUA),),
        exchanges="error-pages",
    ),
    Work(
        "modules-memory", "memory after all of them, 4 workers, per worker", "worker-memory",
        {"work": "kept", "connections": 32},
        (Target(0.50, LUA),),
        workers=4,
        rounds_limit=3,
        exchanges="all",
    ),
    Work(
        "modules-memory-one", "the same with a single worker", "worker-memory",
        {"work": "kept", "connections": 32},
        rounds_limit=3,
        exchanges="all",
    ),
]

# What a firewall costs is the difference between with and without: see `firewall_rows` in report.py.
WORKS += [
    Work(
        f"waf-{traffic}-" + (f"pl{paranoia}" if paranoia else "off"),
        f"{title}, " + (f"paranoia {paranoia}" if paranoia else "without firewall"),
        "request",
        # Some firewalls look at 64 KiB for seconds, and a measurement ends when everything that is on its way is answered.
        {"work": "kept", "connections": 1 if traffic.endswith("-64k") else 8},
        default=False,
        traffic=traffic,
        paranoia=paranoia,
    )
    for traffic, (title, _, _) in TRAFFIC.items()
    for paranoia in (0, 1, 4)
]

UNITS = {
    "request": "us/request",
    "gib": "s/GiB",
    "memory": "KiB/connection",
    "opened": "connections",
    "missed": "% of requests",
    "renewed": "connections per 1,000",
    "worker-memory": "MiB/worker",
}
