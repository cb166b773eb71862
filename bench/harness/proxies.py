"""The proxies compared: how each is built or found, configured and started."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from . import same, waf
from .processes import Failed, Process, free_port

BENCH = Path(__file__).resolve().parent.parent
PEERS = BENCH / "peers"
TARGET = BENCH / "target"
# The page that takes the place of an origin's error.
ERROR_PAGE = PEERS / "error.html"

# The same fields in every proxy's log.
NGINX_LOG = (
    "log_format bench escape=json '{\"time\":\"$time_iso8601\",\"client\":\"$remote_addr\","
    '"host":"$host","method":"$request_method","target":"$request_uri","status":$status,'
    '"bytes":$body_bytes_sent,"seconds":$request_time,"agent":"$http_user_agent"}\';\n'
    "    access_log %s bench buffer=64k flush=1s;"
)
HAPROXY_LOG = (
    "log global\n"
    "    http-request capture req.hdr(host) len 64\n"
    "    http-request capture req.hdr(user-agent) len 64\n"
    '    log-format "{\\"time\\":\\"%tr\\",\\"client\\":\\"%ci\\",\\"host\\":\\"%[capture.req.hdr(0),json]\\",'
    '\\"method\\":\\"%HM\\",\\"target\\":\\"%HP\\",\\"status\\":%ST,\\"bytes\\":%B,\\"milliseconds\\":%Ta,'
    '\\"agent\\":\\"%[capture.req.hdr(1),json]\\"}"'
)


def fill(template, values):
    """The text of a template with each @NAME@ replaced; an unknown name is an error."""
    text = (PEERS / template).read_text()
    text = text.replace("@NAMES@", "Names in at signs")
    return re.sub(r"@([A-Z_]+)@", lambda match: str(values[match.group(1)]), text)


def output_of(command):
    """What a command prints, on either stream."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()


def need(program):
    """The path of an installed program."""
    # Debian has the servers in /usr/sbin, which is not in every user's path.
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin")
    if not path:
        raise Failed(f"{program} is not installed (apt-get install {program})")
    return path


class Proxy:
    """One of the proxies. `start` gives a running process and its port."""

    name = ""

    def prepare(self):
        """Builds or finds the program; says what is missing."""

    def version(self):
        """Name and version of the program, for the report."""
        raise NotImplementedError

    def command(self, work, port, origin, folder, tls):
        """The command line; writes the configuration into the folder."""
        raise NotImplementedError

    def start(self, work, origin, folder, tls, cpus):
        """Starts the proxy for a work and waits until it listens."""
        port = free_port()
        command = self.command(work, port, f"127.0.0.1:{origin}", folder, tls)
        log = folder / "output.log"
        stdout = self.access_log(folder).open("ab") if work.log and self.logs_to_stdout else None
        process = Process(command, cpus, log, stdout=stdout)
        if stdout:
            stdout.close()
        try:
            process.wait_for_port(port)
            process.wait_for_children(self.children(work))
        except BaseException:
            process.stop()
            raise
        return process, port

    logs_to_stdout = False

    def children(self, work):
        """How many processes the first one starts."""
        return 0

    @staticmethod
    def access_log(folder):
        """Where the access log of a work that has one is written."""
        return folder / "access.log"


class Foregate(Proxy):
    """The proxy of this repository, as built by `cargo build --release`."""

    name = "foregate"

    def __init__(self, path):
        self.path = path

    def prepare(self):
        if not (self.path and Path(self.path).is_file()):
            raise Failed(
                f"no foregate program at {self.path}: build it (cargo build --release), name it with"
                " --foregate or $FOREGATE, or leave it out with --peers nginx,haproxy,pingora"
            )
        self.path = Path(self.path).resolve()

    def version(self):
        return (output_of([self.path, "version"]).splitlines() or ["Foregate of unknown version"])[0]

    def command(self, work, port, origin, folder, tls):
        # KDL's raw strings are not needed: the paths are made here.
        tls_node = f'{{ tls {{ certificate "{tls}/site.pem" key="{tls}/site.key"; }}; }}' if work.tls else ""
        config = folder / "foregate.kdl"
        rules = ""
        if work.paranoia:
            # Here as elsewhere the firewall's own work counts, on whichever thread it is done.
            mode = "block" if work.traffic in waf.REFUSED else "detect"
            rules = f'waf mode="{mode}" {{ rules "{waf.rules(work, folder)}"; }}'
        config.write_text(fill("foregate-modules.kdl" if work.modules else "foregate.kdl", {
            **(module_files(folder) if work.modules else {"RULES": rules}),
            "WORKERS": work.workers,
            "LISTEN": f"127.0.0.1:{port}",
            "ORIGIN": origin,
            "TLS": tls_node,
            "LOG": f'access-log "{self.access_log(folder)}"' if work.log else "",
        }))
        return [self.path, "run", "--single", "-c", config]


class Nginx(Proxy):
    """NGINX as the system has it."""

    name = "nginx"

    def prepare(self):
        self.path = need("nginx")

    def children(self, work):
        # The first process listens before it starts the workers, whose CPU time is what counts.
        return work.workers

    def version(self):
        return output_of([self.path, "-v"]).rpartition("nginx version: ")[2].replace("/", " ")

    def command(self, work, port, origin, folder, tls):
        listen = f"127.0.0.1:{port}" + (" ssl" if work.tls else "") + (" http2" if work.http2 else "")
        # TLS 1.3 is off by default before 1.23.4.
        tls_lines = (
            f"ssl_certificate {tls}/site.pem; ssl_certificate_key {tls}/site.key; ssl_protocols TLSv1.2 TLSv1.3;"
        )
        config = folder / "nginx.conf"
        config.write_text(fill("nginx.conf", {
            "USER": "user root;" if os.geteuid() == 0 else "",
            "WORKERS": work.workers,
            "FOLDER": folder,
            "LISTEN": listen,
            "ORIGIN": origin,
            "TLS": tls_lines if work.tls else "",
            "LOG": NGINX_LOG % self.access_log(folder) if work.log else "access_log off;",
        }))
        return [self.path, "-p", folder, "-e", folder / "error.log", "-c", config]


class NginxLua(Nginx):
    """NGINX with the Lua module as the system has it, and the work of modules in Lua."""

    name = "nginx-lua"
    modules = ("ndk_http_module.so", "ngx_http_lua_module.so")

    def prepare(self):
        super().prepare()
        found = re.search(r"--modules-path=(\S+)", output_of([self.path, "-V"]))
        self.folder = Path(found.group(1) if found else "/usr/lib/nginx/modules")
        if not all((self.folder / module).is_file() for module in self.modules):
            raise Failed(
                "NGINX's Lua module is not installed (apt-get install libnginx-mod-http-lua lua-resty-core);"
                " --peers foregate,nginx,haproxy,pingora leaves it out"
            )

    def version(self):
        # The module does not tell its version without a configuration; Debian's package does.
        asked = shutil.which("dpkg-query") and output_of(["dpkg-query", "-W", "-f", "${Version}", "libnginx-mod-http-lua"])
        version = asked if asked and asked[0].isdigit() else "of unknown version"
        return f"{super().version()} with Lua module {version}"

    def command(self, work, port, origin, folder, tls):
        config = folder / "nginx.conf"
        config.write_text(fill("nginx-lua.conf", {
            **module_files(folder),
            "MODULES": "\n".join(f"load_module {self.folder / module};" for module in self.modules),
            "USER": "user root;" if os.geteuid() == 0 else "",
            "WORKERS": work.workers,
            "FOLDER": folder,
            "LISTEN": f"127.0.0.1:{port}",
            "ORIGIN": origin,
            "LUA": PEERS / "lua",
        }))
        return [self.path, "-p", folder, "-e", folder / "error.log", "-c", config]


class NginxModule(Nginx):
    """NGINX as the system has it with the module of this repository: the same routes as Foregate's."""

    name = "nginx-module"
    # The routes of foregate-modules.kdl, and the files that the locations name.
    routes = {"/old/**": "old.kdl", "/errors/**": "errors.kdl", "/**": "rules.kdl"}

    def prepare(self):
        super().prepare()
        named = os.environ.get("FOREGATE_NGINX_MODULE")
        if not (named and Path(named).is_file()):
            raise Failed(
                "$FOREGATE_NGINX_MODULE names no module (make nginx-module prints its path);"
                " --peers foregate,nginx,haproxy,pingora,nginx-lua leaves it out"
            )
        self.module = Path(named).resolve()

    def version(self):
        return f"{super().version()} with Foregate's module"

    def command(self, work, port, origin, folder, tls):
        values = {
            **module_files(folder), "MODULE": self.module, "WORKERS": work.workers, "FOLDER": folder,
            "USER": "user root;" if os.geteuid() == 0 else "", "LISTEN": f"127.0.0.1:{port}", "ORIGIN": origin,
        }
        text = fill("foregate-modules.kdl", values)
        for route, name in self.routes.items():
            (folder / name).write_text(route_of(text, route))
        config = folder / "nginx.conf"
        config.write_text(fill("nginx-module.conf", values))
        return [self.path, "-p", folder, "-e", folder / "error.log", "-c", config]


def route_of(configuration, pattern):
    """What stands in a route but for the line that says who answers."""
    lines = configuration.splitlines()
    first = lines.index(f'    route "{pattern}" {{') + 1
    inside = lines[first:lines.index("    }", first)]
    answers = re.compile(r"\s*(proxy|respond) ")
    return "".join(line[8:] + "\n" for line in inside if not answers.match(line))


class Modsecurity(Nginx):
    """NGINX with the ModSecurity module as the system has it."""

    name = "modsecurity"
    module = "ngx_http_modsecurity_module.so"

    def prepare(self):
        super().prepare()
        found = re.search(r"--modules-path=(\S+)", output_of([self.path, "-V"]))
        self.folder = Path(found.group(1) if found else "/usr/lib/nginx/modules")
        if not (self.folder / self.module).is_file():
            raise Failed("NGINX's ModSecurity module is not installed (apt-get install libnginx-mod-http-modsecurity)")

    def version(self):
        asked = shutil.which("dpkg-query") and output_of(["dpkg-query", "-W", "-f", "${Version}", "libmodsecurity3"])
        return f"{super().version()} with ModSecurity {asked if asked and asked[0].isdigit() else 'of unknown version'}"

    def command(self, work, port, origin, folder, tls):
        config = folder / "nginx.conf"
        rules = f"modsecurity on; modsecurity_rules_file {waf.rules(work, folder)};" if work.paranoia else ""
        config.write_text(fill("modsecurity.conf", {
            "MODULE": self.folder / self.module,
            "USER": "user root;" if os.geteuid() == 0 else "",
            "WORKERS": work.workers,
            "FOLDER": folder,
            "LISTEN": f"127.0.0.1:{port}",
            "ORIGIN": origin,
            "RULES": rules,
        }))
        return [self.path, "-p", folder, "-e", folder / "error.log", "-c", config]


class Coraza(Proxy):
    """The small reverse proxy with Coraza in bench/peers/coraza."""

    name = "coraza"
    source = PEERS / "coraza"

    def prepare(self):
        self.path = TARGET / "coraza" / "bench-coraza"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        print("building bench-coraza ...", flush=True)
        done = subprocess.run([need("go"), "build", "-o", self.path, "."], cwd=self.source, capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"bench-coraza does not build:\n{done.stderr[-3000:]}")

    def version(self):
        found = re.search(r"corazawaf/coraza/v3 v(\S+)", (self.source / "go.mod").read_text())
        return "Coraza " + (found.group(1) if found else "of unknown version")

    def command(self, work, port, origin, folder, tls):
        rules = [waf.rules(work, folder)] if work.paranoia else []
        return [self.path, f"127.0.0.1:{port}", origin, *rules]


class Zentinel(Proxy):
    """The small reverse proxy with zentinel-modsec in bench/peers/zentinel."""

    name = "zentinel"
    source = PEERS / "zentinel"

    def prepare(self):
        self.path = cargo_build(self.source / "Cargo.toml", TARGET, "bench-zentinel")

    def version(self):
        found = re.search(r'name = "zentinel-modsec"\nversion = "(\S+)"', (self.source / "Cargo.lock").read_text())
        return "zentinel-modsec " + (found.group(1) if found else "of unknown version")

    def command(self, work, port, origin, folder, tls):
        rules = [waf.rules(work, folder)] if work.paranoia else []
        return [self.path, f"127.0.0.1:{port}", origin, *rules]


def module_files(folder):
    """Writes the list of redirects, and names the files that the work of modules needs."""
    redirects = folder / "redirects.csv"
    redirects.write_text(same.redirects())
    return {"REDIRECTS": redirects, "PAGE": ERROR_PAGE}


class Haproxy(Proxy):
    """HAProxy as the system has it."""

    name = "haproxy"
    # It writes to a descriptor, not to a file of its own.
    logs_to_stdout = True

    def prepare(self):
        self.path = need("haproxy")

    def version(self):
        return "HAProxy " + output_of([self.path, "-v"]).split()[2]

    def command(self, work, port, origin, folder, tls):
        bind = f"127.0.0.1:{port}"
        if work.tls:
            bind += f" ssl crt {tls}/both.pem alpn " + ("h2,http/1.1" if work.http2 else "http/1.1")
        elif work.http2:
            bind += " proto h2"
        config = folder / "haproxy.cfg"
        config.write_text(fill("haproxy.cfg", {
            "WORKERS": work.workers,
            "LISTEN": bind,
            "ORIGIN": origin,
            "LOG_TARGET": "log stdout format raw local0 info" if work.log else "",
            "LOG_FORMAT": HAPROXY_LOG if work.log else "",
        }))
        return [self.path, "-db", "-f", config]


class Pingora(Proxy):
    """The small Pingora proxy in bench/peers/pingora."""

    name = "pingora"
    manifest = PEERS / "pingora" / "Cargo.toml"

    def prepare(self):
        self.path = cargo_build(self.manifest, TARGET / "pingora", "bench-pingora")

    def version(self):
        lock = self.manifest.with_name("Cargo.lock").read_text()
        return "Pingora " + re.search(r'name = "pingora"\nversion = "([^"]+)"', lock).group(1)

    def command(self, work, port, origin, folder, tls):
        command = [self.path, "h2" if work.http2 else "h1", f"127.0.0.1:{port}", origin, work.workers]
        if work.tls:
            command += ["--tls", tls / "site.pem", tls / "site.key"]
        if work.log:
            command += ["--log", self.access_log(folder)]
        return command


def cargo_build(manifest, target, program):
    """Builds a program of this benchmark, quietly unless it fails, and gives its path."""
    print(f"building {program} ...", flush=True)
    done = subprocess.run(
        ["cargo", "build", "--release", "--locked", "--manifest-path", manifest, "--target-dir", target],
        cwd=manifest.parent, capture_output=True, text=True, check=False,
    )
    if done.returncode != 0:
        raise Failed(f"{program} does not build:\n{done.stderr[-3000:]}")
    return target / "release" / program


def check_log(path, requests):
    """Raises unless a log has about one JSON line per request.

    Some lines may still be in the proxy's buffer, and the warming-up is logged too."""
    lines = path.read_bytes().splitlines()
    if len(lines) < requests * 0.95:
        raise Failed(f"the access log has {len(lines)} lines for {requests} requests")
    entry = json.loads(lines[len(lines) // 2])
    if 200 not in entry.values():
        raise Failed(f"the access log tells no status: {entry}")
