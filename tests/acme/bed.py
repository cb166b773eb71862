"""A folder with an origin, names that lead to this machine, and an authority; and tests side by side."""

import concurrent.futures
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

PEBBLE = "github.com/letsencrypt/pebble/v2/cmd/{}@v2.10.3"
CACHE = pathlib.Path(os.environ.get("CACHE") or pathlib.Path.home() / ".cache/foregate")
BINARY = str(pathlib.Path(os.environ.get("BINARY") or CACHE / "target/release/foregate").resolve())
PROGRAMS = CACHE / "pebble-2.10.3"
# The tests that run at the same time. They wait more than they work.
LANES = int(os.environ.get("LANES") or 4)
# The ports that tests were given. None is given twice, since programs bind theirs later than that.
GIVEN = set()
GIVING = threading.Lock()


def install():
    for program in ("pebble", "pebble-challtestsrv"):
        if not (PROGRAMS / program).exists():
            print(f"installing {program}", file=sys.stderr)
            environment = {**os.environ, "GOBIN": str(PROGRAMS), "GOFLAGS": "-mod=mod"}
            done = subprocess.run(["go", "install", PEBBLE.format(program)], env=environment)
            if done.returncode:
                sys.exit(f"{program} could not be installed; see the messages of Go above")


def free_ports(count):
    sockets = []
    try:
        with GIVING:
            ports = []
            while len(ports) < count:
                one = socket.socket()
                sockets.append(one)
                one.bind(("127.0.0.1", 0))
                port = one.getsockname()[1]
                if port not in GIVEN:
                    GIVEN.add(port)
                    ports.append(port)
            return ports
    finally:
        for one in sockets:
            one.close()


def eventually(look, seconds=15.0, what="it"):
    """The first true value of `look`; exceptions of the network count as none."""
    end = time.monotonic() + seconds
    last = None
    while time.monotonic() < end:
        try:
            found = look()
            if found:
                return found
        except (OSError, AssertionError) as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {seconds} s; last: {last!r}")


class Process:
    """A program with its output in a file."""

    def __init__(self, folder, name, arguments, environment=None):
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                arguments, stdout=log, stderr=log, cwd=folder, env={**os.environ, **(environment or {})}
            )

    def output(self):
        return self.log.read_text(errors="replace")

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Server(http.server.ThreadingHTTPServer):
    """Answers at a port until the test ends."""

    def __init__(self, test, port, handler):
        super().__init__(("127.0.0.1", port), handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        test.addCleanup(self.server_close)
        test.addCleanup(self.shutdown)


class Origin(http.server.BaseHTTPRequestHandler):
    """Says hello; at /allowed it is the address that is asked about names. `asked` of its server has these names."""

    def do_GET(self):
        status, body = 200, b"hello"
        if self.path.startswith("/allowed?domain="):
            name = self.path.split("=", 1)[1]
            self.server.asked.append(name)
            status = 200 if name.endswith(".good.test") else 403
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Bed(unittest.TestCase):
    """A folder with an origin, names that lead to this machine, and an authority."""

    validity = 7776000
    environment = {}
    external = False
    responder = ""
    algorithm = "ecdsa"

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="foregate-acme-"))
        self.processes = []
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.stop_all)
        ports = free_ports(9)
        self.http, self.https, self.acme, self.management, self.dns, self.names, self.origin, self.metrics, self.spare = ports
        self.origin_server = Server(self, self.origin, Origin)
        self.origin_server.asked = []
        subprocess.run(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority "
            "-addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:localhost,IP:127.0.0.1 "
            "-keyout ca.key -out ca.pem".split(),
            cwd=self.folder, check=True, capture_output=True,
        )
        self.directory = f"https://127.0.0.1:{self.acme}/dir"
        self.start(
            "names",
            [PROGRAMS / "pebble-challtestsrv", "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-dnsserver", f"127.0.0.1:{self.dns}",
             "-management", f"127.0.0.1:{self.names}", "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""],
        )
        self.start_authority()

    def stop_all(self):
        failed = self._outcome and any(error for _, error in getattr(self._outcome.result, "errors", []) + getattr(self._outcome.result, "failures", []))
        for process in reversed(self.processes):
            process.stop()
        if failed and "-v" in sys.argv:
            for process in self.processes:
                print(f"--- {process.log.name}\n{process.output()[-6000:]}", file=sys.stderr)

    def start(self, name, arguments, environment=None):
        process = Process(self.folder, name, [str(argument) for argument in arguments], environment)
        self.processes.append(process)
        return process

    def start_authority(self):
        config = {
            "listenAddress": f"127.0.0.1:{self.acme}",
            "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": "ca.pem", "privateKey": "ca.key",
            "httpPort": self.http, "tlsPort": self.https, "ocspResponderURL": self.responder,
            "externalAccountBindingRequired": self.external,
            "externalAccountMACKeys": {"kid-1": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"},
            "domainBlocklist": ["blocked.test"],
            "retryAfter": {"authz": 1, "order": 1}, "keyAlgorithm": self.algorithm,
            "profiles": {
                "default": {"description": "", "validityPeriod": self.validity},
                "shortlived": {"description": "", "validityPeriod": 518400},
            },
        }
        (self.folder / "pebble.json").write_text(json.dumps({"pebble": config}))
        environment = {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0", "PEBBLE_AUTHZREUSE": "0", **self.environment}
        arguments = [PROGRAMS / "pebble", "-config", "pebble.json", "-dnsserver", f"127.0.0.1:{self.dns}"]
        self.authority = self.start("authority", arguments, environment)
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")

        def root():
            with urllib.request.urlopen(f"https://127.0.0.1:{self.management}/roots/0", context=context) as answer:
                return answer.read().decode()

        self.root = eventually(root, what="the start of the authority")

    def orders(self):
        return len(re.findall(r"POST /order-plz", self.authority.output()))

    def proxy(self, text, name="proxy", environment=None):
        (self.folder / f"{name}.kdl").write_text(text)
        return self.start(name, [BINARY, "run", "-c", f"{name}.kdl"], environment)

    def config(self, site="", acme="", tls='tls "auto"', hosts='"a.test"', listen="", ports=None, top=""):
        http, https = ports or (self.http, self.https)
        return (
            f'acme {{ email "me@example.com"; storage "store"; directory "{self.directory}" ca="ca.pem"\n{acme}\n}}\n'
            f'admin "admin.sock"\nmetrics "127.0.0.1:{self.metrics}"\n{top}\n'
            f'listen "127.0.0.1:{http}" {{ {listen} }}\nlisten "127.0.0.1:{https}" {{ {tls}; {listen} }}\n'
            f'upstream "app" {{ server "127.0.0.1:{self.origin}" }}\n'
            f'site {hosts} {{ {site}\n route "/**" {{ proxy "app" }}\n}}\n'
        )

    def handshake(self, name, port=None, root=None, timeout=10):
        """The certificate that a client verifies which trusts the authority alone; raises if it does not."""
        context = ssl.create_default_context(cadata=root or self.root)
        context.set_alpn_protocols(["http/1.1"])
        with socket.create_connection(("127.0.0.1", port or self.https), timeout=timeout) as plain:
            with context.wrap_socket(plain, server_hostname=name) as secure:
                return secure.getpeercert()

    def certified(self, name, seconds=20.0, port=None):
        return eventually(lambda: self.handshake(name, port), seconds, f"a certificate for {name}")

    def get(self, path="/", host="a.test", port=None):
        request = urllib.request.Request(f"http://127.0.0.1:{port or self.http}{path}", headers={"Host": host})
        opener = urllib.request.build_opener(NoRedirect)
        try:
            with opener.open(request, timeout=10) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def command(self, *arguments):
        done = subprocess.run([BINARY, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def reports(self):
        code, out, err = self.command("certificates", "--json", "--admin", "admin.sock")
        self.assertEqual(code, 0, err)
        return {one["name"]: one for one in json.loads(out)["certificates"]}

    def metric(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class SideBySide(unittest.TextTestRunner):
    """Runs tests on several threads. Each has an authority, a proxy, a folder and ports of its own."""

    def run(self, test):
        return super().run(Lanes(one for one in flat(test)))


class Lanes(unittest.TestSuite):
    def run(self, result, debug=False):
        # The longest tests begin first, so that none of them is alone at the end.
        tests = sorted(self, key=lambda test: not getattr(test, "is_long", False))
        with concurrent.futures.ThreadPoolExecutor(LANES) as lanes:
            for done in concurrent.futures.as_completed([lanes.submit(alone, test) for test in tests]):
                test, own, seconds = done.result()
                result.testsRun += own.testsRun
                for kind in ("errors", "failures", "skipped"):
                    getattr(result, kind).extend(getattr(own, kind))
                word = "FAILED" if own.errors or own.failures else "skipped" if own.skipped else "ok"
                result.stream.writeln(f"{test} ... {word} ({seconds:.0f} s)")
                result.stream.flush()
        return result


def alone(test):
    began, own = time.monotonic(), unittest.TestResult()
    test.run(own)
    return test, own, time.monotonic() - began


def flat(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from flat(one)
        else:
            yield one
