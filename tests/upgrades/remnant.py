"""A version that has handed over: its memory goes to the next version, and it keeps nothing that only new requests would need."""

import asyncio
import json
import os
import pathlib
import socket
import ssl

import load
from testing import equal, test

MIB = 1 << 20
OBJECT, HUGE, SLOW = 256 << 10, 7 << 20, 100_000


class CachingOrigin(load.Origin):
    """Answers may be stored for ten minutes; those of /vary differ by Accept-Language."""

    def __init__(self):
        super().__init__()
        self.asked, self.open, self.end_of_long = [], 0, asyncio.Event()

    async def serve(self, reader, writer):
        self.open += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                target = head.split(" ")[1]
                self.asked.append(target)
                if target == "/tunnel":
                    writer.write(b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
                    while data := await reader.read(65536):
                        writer.write(data)
                    return
                if target == "/long":
                    writer.write(b"HTTP/1.1 200 x\r\nContent-Length: 1000000\r\nCache-Control: no-store\r\n\r\n" + b"a" * 10)
                    await self.end_of_long.wait()
                    return
                if target == "/slow":
                    writer.write(b"HTTP/1.1 200 x\r\nContent-Length: %d\r\n\r\n" % SLOW)
                    left = SLOW
                    while left > 100 and not self.end_of_long.is_set():
                        writer.write(b"a" * 100)
                        left -= 100
                        await asyncio.sleep(0.1)
                    writer.write(b"a" * left)
                    await writer.drain()
                    continue
                language = head.lower().split("accept-language: ")[-1].split("\r\n")[0] if target == "/vary" else ""
                size = {"/big": OBJECT, "/hug": HUGE}.get(target[:4], 100)
                body = (language or target).encode().ljust(size, b".")
                vary = b"Vary: Accept-Language\r\n" if target == "/vary" else b""
                writer.write(b"HTTP/1.1 200 x\r\nCache-Control: max-age=600\r\nETag: \"%s\"\r\n%sContent-Length: %d\r\n\r\n%s"
                             % (target.encode(), vary, len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.close()


async def get(proxy, target, more=""):
    """The head and the body of an answer, on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: a\r\n{more}Connection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    equal(head[:12], b"HTTP/1.1 200", target)
    return head.decode("latin-1").lower(), body


def age(head):
    return int(head.split("\r\nage: ")[1].split("\r\n")[0])


async def tunnel(proxy):
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
    equal((await reader.readuntil(b"\r\n\r\n"))[:12], b"HTTP/1.1 101")
    return reader, writer


async def echoes(reader, writer):
    writer.write(b"still there")
    return await asyncio.wait_for(reader.readexactly(11), 5) == b"still there"


async def fill(proxy, targets):
    for start in range(0, len(targets), 16):
        await asyncio.gather(*(get(proxy, target) for target in targets[start:start + 16]))


async def caching(setting, memory, upstream=""):
    origin = CachingOrigin()
    port = await origin.start()
    proxy = await setting.proxy(
        top=f'cache-store {{ memory "{memory}" }}\nlimits {{ connections-per-client 1000 }}',
        upstream=f'server "127.0.0.1:{port}"; {upstream}', route="; cache",
    )
    return proxy, origin


def pss(pid):
    """Its memory, its own part of shared pages: private pages alone, since the program's file is shared by all."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:")))


def receive(connection):
    """The length of the body that comes over a connection."""
    connection.settimeout(10)
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(4096)
    length = len(head.split(b"\r\n\r\n", 1)[1])
    while length < HUGE and (piece := connection.recv(1 << 16)):
        length += len(piece)
    return length


async def probes(origin):
    """The number of health checks in three seconds."""
    before = origin.asked.count("/probe")
    await asyncio.sleep(3)
    return origin.asked.count("/probe") - before


def names_of_threads(pid):
    return sorted(path.read_text().strip() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/comm"))


async def until(condition, about, seconds=20):
    for _ in range(seconds * 20):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {seconds} seconds: {about}")


@test
async def a_remnant_keeps_tunnels_and_bodies_alone(setting):
    """Its cache, its idle connections to origins, its probes, its dashboard and its threads for heavy work go, once no client may ask any more."""
    proxy, origin = await caching(setting, "128MiB", upstream='health "/probe" every="500ms"')
    old = (await proxy.serving())["pid"]
    alone = await probes(origin)
    empty = pss(old)
    await fill(proxy, [f"/big{number}" for number in range(256)])
    # It is sent from memory while the cache is dropped.
    await get(proxy, "/huge")
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", proxy.port))
    slow.sendall(b"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n")
    await asyncio.sleep(0.2)
    held = [await tunnel(proxy) for _ in range(3)]
    long_reader, long_writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    long_writer.write(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
    equal((await long_reader.readuntil(b"\r\n\r\n"))[:12], b"HTTP/1.1 200")
    # This one could still ask: until it has, the version is no remnant.
    idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    idle_writer.write(b"GET /big2 HTTP/1.1\r\nHost: a\r\n\r\n")
    await idle_reader.readuntil(b"." * 100)
    full = pss(old)
    assert full > empty + 60 * MIB, f"{empty >> 20} MiB empty, {full >> 20} MiB with 64 MiB of responses"
    threads = names_of_threads(old)
    equal((await proxy.upgrade(stages="100%", bake="200ms"))[0], 0)
    await asyncio.sleep(5)
    assert "only tunnels and bodies" not in proxy.stderr(), "a client may still ask"
    idle_writer.close()
    await until(lambda: "only tunnels and bodies" in proxy.stderr(), "the version lets go")
    await until(lambda: pss(old) < empty + 16 * MIB, f"memory of the remnant: {pss(old) >> 20} MiB, {empty >> 20} MiB empty")
    shrunk = pss(old)
    # Three tunnels, the long body, and a probe of the version that serves.
    assert 4 <= origin.open <= 5, f"{origin.open} connections to the origin"
    left = [name for name in names_of_threads(old) if name not in ("foregate", "foregate-worker")]
    after = await probes(origin)
    assert after <= alone * 1.5, f"{alone} probes in three seconds by one version, {after} by one and a remnant"
    assert all([await echoes(*pair) for pair in held]), "tunnels echo"
    equal(await asyncio.to_thread(receive, slow), HUGE, "the body that was being sent")
    for _, writer in held:
        writer.close()
    slow.close()
    origin.end_of_long.set()
    await until(lambda: not os.path.exists(f"/proc/{old}"), "the old version ends")
    return f"{empty >> 20} MiB empty, {full >> 20} MiB with 64 MiB of responses, {shrunk >> 20} MiB as a remnant; {len(threads)} threads, then beside workers {left}"


@test
async def a_remnant_drops_its_configuration(setting):
    """Of 20,000 sites, once only tunnels and bodies are left that need no more of it. They go on, and are logged with their site and upstream."""
    origin = CachingOrigin()
    port, log = await origin.start(), pathlib.Path(setting.folder) / "access.log"
    sites = "".join(f'site "h{number}.example.com" {{ route "/**" {{ proxy "app"{"; cache" * (number // 2 % 2)} }} }}\n' for number in range(20_000))
    proxy = await setting.proxy(
        tls=True, top=f'cache-store {{ memory "16MiB" }}\naccess-log "{log}" format="json"\nlimits {{ connections-per-client 1000 }}\n{sites}',
        upstream=f'server "127.0.0.1:{port}"',
    )
    old = (await proxy.serving())["pid"]
    full = pss(old)
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    held = []
    for number in range(20):
        over_tls = number % 2 == 1
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", proxy.tls_port if over_tls else proxy.port, ssl=trust if over_tls else None)
        writer.write(f"GET /tunnel HTTP/1.1\r\nHost: h{number}.example.com\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode())
        equal((await reader.readuntil(b"\r\n\r\n"))[:12], b"HTTP/1.1 101")
        assert await echoes(reader, writer)
        held.append((reader, writer))
    # Its answer begins when another version serves, so that its connection brings no other request.
    slow = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(2)]
    equal((await proxy.upgrade(stages="100%", bake="200ms"))[0], 0)
    for number, (reader, writer) in enumerate(slow):
        writer.write(f"GET /slow HTTP/1.1\r\nHost: h{100 + 2 * number}.example.com\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"connection: close" in head.lower(), head
    await until(lambda: "the configuration is dropped" in proxy.stderr(), "the version drops its configuration")
    assert all([await echoes(*pair) for pair in held]), "tunnels echo"
    await until(lambda: pss(old) < full * 0.7, f"memory of the remnant: {pss(old) >> 20} MiB, {full >> 20} MiB before")
    shrunk = pss(old)
    origin.end_of_long.set()
    for reader, _ in slow:
        equal(len(await reader.read()), SLOW, "the body that began before")
    for _, writer in held:
        writer.close()
    await until(lambda: not os.path.exists(f"/proc/{old}"), "the old version ends")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    found = sorted(((line["site"], line["upstream"], line["server"], line["bytes_out"], line.get("cache")) for line in lines
                   if line["path"] in ("/tunnel", "/slow")), key=str)
    server = f"127.0.0.1:{port}"
    known = [(f"h{number}.example.com", "app", server, 22, "bypass" if number // 2 % 2 else None) for number in range(20)]
    bodies = [("h100.example.com", "app", server, SLOW, None), ("h102.example.com", "app", server, SLOW, "miss")]
    equal(found, sorted(known + bodies, key=str))
    return f"{full >> 20} MiB before, {shrunk >> 20} MiB as a remnant"


@test
async def the_next_version_has_the_responses_of_the_cache(setting):
    """Without asking the origin, with their ages, the purged ones left out, and with little more memory than one cache."""
    proxy, origin = await caching(setting, "256MiB")
    small = [f"/small{number}" for number in range(500)]
    big = [f"/big{number}" for number in range(480)]
    await fill(proxy, small + big)
    for language in ("de", "fr"):
        await get(proxy, "/vary", f"Accept-Language: {language}\r\n")
    await asyncio.sleep(2)
    held = await tunnel(proxy)
    old = (await proxy.serving())["pid"]
    steady = pss(old)
    asked = len(origin.asked)
    upgrade = asyncio.ensure_future(proxy.upgrade(stages="1% 100%", bake="3s"))
    while not any(known["state"] == "trial" for known in (await proxy.status())["generations"]):
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)
    code, out, err = await proxy.command("cache", "purge", "--url", "http://a/small7", "-c", proxy.configuration)
    equal(code, 0, out + err)
    peak, done = 0, False

    async def watch():
        nonlocal peak
        while not done:
            pids = [known["pid"] for known in (await proxy.status())["generations"]]
            sizes = []
            for pid in pids:
                try:
                    sizes.append(pss(pid))
                except OSError:
                    pass
            peak = max(peak, sum(sizes))
            await asyncio.sleep(0.05)

    watching = asyncio.ensure_future(watch())
    code, out, err = await upgrade
    equal(code, 0, out + err)
    # A purge while responses are on their way.
    code, out, err = await proxy.command("cache", "purge", "--url", "http://a/small9", "-c", proxy.configuration)
    equal(code, 0, out + err)
    await until(lambda: "are used on" in proxy.stderr(), "the responses are taken over")
    done = True
    await watching
    new = (await proxy.serving())["pid"]
    assert new != old
    tried = len(origin.asked)
    kept = [target for target in small + big if target not in ("/small7", "/small9")]
    heads = [await get(proxy, target) for target in kept]
    for target, (head, body) in zip(kept, heads):
        equal(body.rstrip(b"."), target.encode())
        assert 2 <= age(head) < 60, head
    for language in ("de", "fr"):
        equal((await get(proxy, "/vary", f"Accept-Language: {language}\r\n"))[1].rstrip(b"."), language.encode())
    equal(origin.asked[tried:], [], "requests that reached the origin after the upgrade")
    await get(proxy, "/small7")
    await get(proxy, "/small9")
    equal(origin.asked[tried:], ["/small7", "/small9"], "purged during the trial, and after it")
    assert await echoes(*held), "the tunnel echoes"
    held[1].close()
    assert peak < steady * 1.1 + 16 * MIB, f"{steady >> 20} MiB, at most {peak >> 20} MiB"
    return f"{len(kept)} responses; {steady >> 20} MiB before, both versions at most {peak >> 20} MiB; {tried - asked} requests to the origin during the trial"


@test
async def an_order_during_a_trial_counts_at_once(setting):
    """In both versions, within the stage: the one that an operator speaks to, and the one on trial; and an order that is over, too."""
    other = CachingOrigin()
    port = await other.start()
    proxy = await setting.proxy(upstream=f'server "127.0.0.1:{{origin}}"; server "127.0.0.1:{port}"')

    async def order(what):
        code, out, err = await proxy.command("upstreams", "set", "app", f"127.0.0.1:{port}", what, "-c", proxy.configuration)
        equal(code, 0, out + err)

    async def reached(count=40):
        before = len(other.asked)
        for _ in range(count):
            await get(proxy, "/x")
        return len(other.asked) - before

    upgrade = asyncio.ensure_future(proxy.upgrade(stages="50%", bake="8s"))
    trials = []
    while not any(trials):
        await get(proxy, "/x")
        trials = [known["requests"] for known in (await proxy.status())["generations"] if known["state"] == "trial"]
    assert await reached() >= 10
    await order("down")
    equal(await reached(), 0, "requests to the server that is down")
    await order("up")
    assert 10 <= await reached() <= 30, "it is up again in both"
    await order("weight=0")
    equal(await reached(), 0, "requests to the server without weight")
    await order("drain")
    await order("up")
    assert not upgrade.done(), "all of it happened within the stage"
    assert 10 <= await reached() <= 30, "it is up again"
    await order("weight=9")
    code, out, err = await upgrade
    equal(code, 0, out + err)
    assert await reached(50) >= 40, "the weight holds in the version that serves now"
    # The process that follows a crash knows the last order, which came less than ten seconds ago.
    await order("down")
    pid = (await proxy.serving())["pid"]
    os.kill(pid, 9)
    for _ in range(100):
        await asyncio.sleep(0.05)
        if (await proxy.serving())["pid"] != pid:
            break
    equal(await reached(), 0, "after the crash")
