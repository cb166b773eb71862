"""The state that travels: a new version, and the process that follows a crash, know what the former one has learned."""

import asyncio
import os
import signal
import socket
import struct
import threading

import load
from testing import equal, test


class CountingOrigin(load.Origin):
    """An origin that can fail: it then closes connections without an answer, or answers its health check with 500."""

    def __init__(self):
        super().__init__()
        self.fails, self.is_well, self.asked, self.junk = False, True, [], False
        self.connections = 0

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, target = head.split(" ")[:2]
                if target == "/healthz":
                    status = 200 if self.is_well else 500
                    writer.write(b"HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n" % status)
                    continue
                self.asked.append(target)
                if self.fails:
                    return
                body = b"" if method == "HEAD" else b"ok"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + body + (b"junk" if self.junk else b""))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def ask(proxy, method="GET", target="/", times=1):
    """The statuses of requests, each on a connection of its own."""
    statuses = []
    for _ in range(times):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(f"{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        statuses.append(int((await reader.read()).split(b" ")[1]))
        writer.close()
    return statuses


async def until(condition, about):
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within ten seconds: {about}")


async def upgrade(proxy):
    before = (await proxy.serving())["pid"]
    code, out, err = await proxy.upgrade(stages="30% 100%", bake="200ms")
    equal(code, 0, out + err)
    assert (await proxy.serving())["pid"] != before


async def crash(proxy):
    """Kills the process that serves, and waits for the next one."""
    before = (await proxy.serving())["pid"]
    os.kill(before, signal.SIGKILL)
    for _ in range(100):
        await asyncio.sleep(0.05)
        generations = (await proxy.status())["generations"]
        if any(known["state"] == "serving" and known["pid"] != before for known in generations):
            return
    raise AssertionError("nothing serves after the crash")


async def pair(setting, more):
    """A proxy with two servers that take turns."""
    other = CountingOrigin()
    port = await other.start()
    proxy = await setting.proxy(upstream=f'server "127.0.0.1:{{origin}}"; server "127.0.0.1:{port}"; {more}')
    return proxy, other


@test
async def a_server_that_failed_its_probes_gets_nothing_from_the_next_version(setting):
    """The first probe of a process decides alone where nothing is known; here the server needs a hundred of them."""
    proxy, other = await pair(setting, 'health "/healthz" every="2s" rise=100 fall=1')
    other.is_well = False
    await until(lambda: "status 500" in proxy.stderr(), "the server is down")
    await asyncio.sleep(0.5)
    other.asked.clear()
    equal(await ask(proxy, times=6), [200] * 6)
    equal(other.asked, [], "before the upgrade")
    other.is_well = True
    await upgrade(proxy)
    equal(await ask(proxy, times=20), [200] * 20)
    equal(other.asked, [], "after the upgrade")
    await crash(proxy)
    equal(await ask(proxy, times=20), [200] * 20)
    equal(other.asked, [], "after a crash")


@test
async def an_ejected_server_stays_ejected(setting):
    proxy, other = await pair(setting, 'eject { failures 1; for "1h" at-most="1h" }')
    other.fails = True
    equal(await ask(proxy, times=6), [200] * 6, "with further attempts")
    equal(len(other.asked), 1, "requests to the server that fails")
    other.fails = False
    for number in range(2):
        await upgrade(proxy)
        equal(await ask(proxy, times=20), [200] * 20)
        equal(len(other.asked), 1, f"after upgrade {number}")


@test
async def the_order_of_an_operator_holds(setting):
    proxy, other = await pair(setting, "")
    port = other.server.sockets[0].getsockname()[1]
    code, out, err = await proxy.command("upstreams", "set", "app", f"127.0.0.1:{port}", "down", "-c", proxy.configuration)
    equal(code, 0, out + err)
    await upgrade(proxy)
    equal(await ask(proxy, times=20), [200] * 20)
    equal(other.asked, [])
    code, out, err = await proxy.command("upstreams", "set", "app", f"127.0.0.1:{port}", "up", "-c", proxy.configuration)
    equal(code, 0, out + err)
    await upgrade(proxy)
    await ask(proxy, times=20)
    assert len(other.asked) >= 8, "the order has ended"


@test
async def a_client_over_its_rate_limit_stays_refused(setting):
    for algorithm in ("fixed-window", "sliding-window", "token-bucket"):
        proxy = await setting.proxy(route=f'; rate-limit 5 per="1h" algorithm="{algorithm}"')
        equal(await ask(proxy, times=7), [200] * 5 + [429] * 2, "before")
        await upgrade(proxy)
        equal(await ask(proxy, times=6), [429] * 6, f"{algorithm}: after the upgrade")
        await crash(proxy)
        equal(await ask(proxy, times=6), [429] * 6, f"{algorithm}: after a crash")
        proxy.stop()


class Nameserver:
    """Answers questions for IPv4 with 127.0.0.1, until it is stopped."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port, self.questions = self.socket.getsockname()[1], 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                question, peer = self.socket.recvfrom(4096)
            except OSError:
                return
            self.questions += 1
            end = question.index(b"\0", 12) + 5
            kind = struct.unpack("!H", question[end - 4:end - 2])[0]
            answers = 1 if kind == 1 else 0
            reply = question[:2] + struct.pack("!HHHHH", 0x8180, 1, answers, 0, 0) + question[12:end]
            if answers:
                reply += b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 1, 4) + bytes([127, 0, 0, 1])
            try:
                self.socket.sendto(reply, peer)
            except OSError:
                return

    def stop(self):
        self.socket.close()


@test
async def the_last_good_addresses_of_a_name_are_used_on(setting):
    nameserver = Nameserver()
    proxy = await setting.proxy(
        upstream=f'server "app.internal:{{origin}}"; resolver "127.0.0.1:{nameserver.port}"'
    )
    equal(await ask(proxy), [200])
    nameserver.stop()
    await asyncio.sleep(1.5)
    await upgrade(proxy)
    equal(await ask(proxy, times=5), [200] * 5, "without a nameserver")
    await crash(proxy)
    equal(await ask(proxy, times=5), [200] * 5, "without a nameserver, after a crash")
    assert nameserver.questions >= 1


@test
async def an_origin_that_sent_bytes_behind_a_response_stays_distrusted(setting):
    """Its connections are closed behind responses to HEAD."""
    other = CountingOrigin()
    port = await other.start()
    proxy = await setting.proxy(upstream=f'server "127.0.0.1:{port}"')

    async def connections_of(heads):
        before = other.connections
        equal(await ask(proxy, "HEAD", times=heads), [200] * heads)
        return other.connections - before

    await ask(proxy, "HEAD")
    equal(await connections_of(5), 0, "it is trusted")
    other.junk = True
    await ask(proxy)
    other.junk = False
    await asyncio.sleep(0.2)
    assert await connections_of(5) >= 4, "it is distrusted"
    await upgrade(proxy)
    assert await connections_of(5) >= 4, "the next version trusts it again"


@test
async def counters_do_not_fall_below_what_was_shown(setting):
    """Neither with an upgrade nor with a crash."""
    proxy = await setting.proxy()
    shown = 0
    for happens in (upgrade, crash, upgrade, crash, crash):
        await ask(proxy, times=7)
        now = proxy.metric('foregate_requests_total{')
        assert now >= shown + 7, f"{now} after {shown} and seven more"
        shown = now
        await happens(proxy)
        now = proxy.metric('foregate_requests_total{')
        assert now >= shown, f"fell from {shown} to {now} with {happens.__name__}"
        shown = now
