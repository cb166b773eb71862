"""A real NGINX with the module, an origin that does as it is told, and a plain client."""

import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

NGINX = os.environ.get("NGINX_BINARY", "nginx")
MODULE = os.environ["MODULE"]
MODULES = "/usr/lib/nginx/modules"
# Runs every NGINX under memcheck; what it finds makes the test fail that started it.
VALGRIND = os.environ.get("VALGRIND") == "1"
SUPPRESSIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "valgrind.supp")
# Under memcheck everything takes its time.
PATIENCE = 180 if VALGRIND else 10


GIVEN = set()


def free_port():
    """A port that nobody listens on, and that was not given before: the system may hand out the same again."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port not in GIVEN:
            GIVEN.add(port)
            return port


def version():
    shown = subprocess.run([NGINX, "-v"], capture_output=True, text=True, check=True).stderr
    return tuple(int(part) for part in re.search(r"nginx/([\d.]+)", shown).group(1).split("."))


class Origin:
    """Answers every connection with `answer(request head) -> iterable of pieces`, then closes."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head = b""
            while b"\r\n\r\n" not in head:
                data = connection.recv(65536)
                if not data:
                    return
                head += data
            # One that answers before it has taken all would have its answer lost by a reset.
            found = re.search(rb"(?i)content-length: (\d+)", head)
            left = int(found.group(1)) - len(head.split(b"\r\n\r\n", 1)[1]) if found else 0
            while left > 0 and (data := connection.recv(65536)):
                left -= len(data)
            self.requests.append(head.decode("latin-1"))
            try:
                for piece in self.answer(head.decode("latin-1")):
                    connection.sendall(piece)
            except OSError:
                pass

    def close(self):
        """Accepts no more. A thread that waits for a connection goes on waiting when its socket is closed, and begins anew when a signal
        comes, such as that of a child's end: at the number of the socket, which by then is that of the next origin."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.socket.close()


class Answer:
    """What a client got."""

    def __init__(self, status, fields, body):
        self.status = status
        self.fields = fields
        self.body = body

    def all(self, name):
        return [value for found, value in self.fields if found.lower() == name]

    def get(self, name):
        values = self.all(name)
        return values[0] if values else None


class Nginx:
    """NGINX in a folder of its own. `http` is the content of its http block, with PORT, TLS_PORT and ORIGIN filled in."""

    def __init__(self, http, files=None, origin=None, master=False, main="", extra_modules=()):
        self.folder = tempfile.mkdtemp(prefix="foregate-nginx-")
        self.port = free_port()
        self.tls_port = free_port()
        for name in ["html", "logs"]:
            os.mkdir(os.path.join(self.folder, name))
        os.chmod(self.folder, 0o755)
        for name, content in (files or {}).items():
            self.write(name, content)
        modules = [os.path.join(MODULES, name) for name in extra_modules] + [MODULE]
        loads = "\n".join(f"load_module {module};" for module in modules)
        http = http.replace("TLS_PORT", str(self.tls_port)).replace("PORT", str(self.port))
        http = http.replace("ORIGIN", f"127.0.0.1:{origin.port}" if origin else "127.0.0.1:1")
        process = "on" if master else "off"
        # A signal that comes before this is lost, or waits for the next one.
        self.ready = "start worker processes" if master else 'using the "epoll" event method'
        self.write("nginx.conf", f"""{loads}
daemon off; master_process {process}; worker_processes 1; user root; pid nginx.pid; error_log error.log info;
{main}
events {{ worker_connections 256; }}
http {{
    access_log off; default_type text/plain; keepalive_timeout 5;
    client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
    types {{ text/html html; text/plain txt; text/css css; }}
{http}
}}
""")
        self.process = None
        self.memcheck = os.path.join(self.folder, "memcheck.log")

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())

    def command(self):
        return [NGINX, "-p", self.folder, "-e", "error.log", "-c", "nginx.conf"]

    def check(self):
        """What `nginx -t` says."""
        return subprocess.run(self.command() + ["-t"], capture_output=True, text=True)

    def start(self):
        command = self.command()
        if VALGRIND:
            command = ["valgrind", "--quiet", "--error-exitcode=99", f"--log-file={self.memcheck}", "--leak-check=full",
                       "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite",
                       f"--suppressions={SUPPRESSIONS}"] + command
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                if self.ready in self.log():
                    return self
                time.sleep(0.02)
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"it does not start: {self.process.stderr.read().decode()}{self.log()}")
                time.sleep(0.02)

    def stop(self):
        """Stops it and says what memcheck has found."""
        found = ""
        if self.process and self.process.poll() is None:
            deadline = time.monotonic() + PATIENCE
            # A single process may go to sleep right after it has looked for signals, and not see one.
            while self.process.poll() is None and time.monotonic() < deadline:
                self.process.send_signal(signal.SIGQUIT)
                try:
                    self.process.wait(1)
                except subprocess.TimeoutExpired:
                    pass
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
                found = "it does not stop"
        if self.process:
            self.process.stderr.close()
        if VALGRIND and os.path.exists(self.memcheck):
            with open(self.memcheck, errors="replace") as file:
                found += file.read()
        shutil.rmtree(self.folder, ignore_errors=True)
        return found

    def log(self):
        try:
            with open(os.path.join(self.folder, "error.log"), errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def read(self, name):
        with open(os.path.join(self.folder, name), errors="replace") as file:
            return file.read()

    def lines(self, name, count):
        """The lines of a file, once there are so many: NGINX writes its log after the client has got its answer."""
        deadline = time.monotonic() + PATIENCE
        while True:
            lines = self.read(name).splitlines() if os.path.exists(os.path.join(self.folder, name)) else []
            if len(lines) >= count or time.monotonic() > deadline:
                return lines
            time.sleep(0.01)

    def get(self, path="/", method="GET", headers=(), body=None, tls=False):
        if tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            connection = http.client.HTTPSConnection("127.0.0.1", self.tls_port, timeout=PATIENCE, context=context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if not any(name.lower() == "host" for name, _ in headers):
                connection.putheader("Host", "example.com")
            for name, value in headers:
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            return Answer(response.status, response.getheaders(), response.read())
        finally:
            connection.close()

    def curl(self, *arguments):
        """The output of curl over HTTP/2 with prior knowledge."""
        command = ["curl", "-s", "--http2-prior-knowledge", "-m", str(PATIENCE), *arguments]
        return subprocess.run(command, capture_output=True).stdout

    def url(self, path="/"):
        return f"http://127.0.0.1:{self.port}{path}"

    def resident(self):
        """Resident memory of the process that serves, KiB."""
        pids = [self.process.pid]
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(children) as file:
            pids += [int(pid) for pid in file.read().split()]
        with open(f"/proc/{pids[-1]}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))


class Case(unittest.TestCase):
    """A test that stops what it has started."""

    maxDiff = None

    def nginx(self, http, files=None, **options):
        nginx = Nginx(http, files, **options)
        self.addCleanup(self.stop, nginx)
        return nginx

    def start(self, http, files=None, **options):
        return self.nginx(http, files, **options).start()

    def stop(self, nginx):
        log = nginx.log()
        found = nginx.stop()
        self.assertEqual(found, "")
        self.assertNotRegex(log, r"\[alert\]|\[emerg\] .*worker process|exited on signal")

    def origin(self, answer):
        origin = Origin(answer)
        self.addCleanup(origin.close)
        return origin


def response(body, status="200 OK", fields=(), pieces=None, length=True):
    """An origin's answer, whole or in pieces of this length."""
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields), "Connection: close"]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    if pieces is None:
        return [head + body]
    return [head] + [body[at:at + pieces] for at in range(0, len(body), pieces)]
