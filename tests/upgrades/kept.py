"""The configuration that was in effect before a crash serves again if the files are refused by then."""

import asyncio
import http.client
import os
import shutil
import signal
import socket

from testing import equal, test

WITH_INCLUDE = 'include "parts/*.kdl"'


async def host(proxy, name):
    """The body of the answer for a host. The request waits in the system's queue while no process serves."""

    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
        connection.request("GET", "/", headers={"Host": name})
        return connection.getresponse().read().decode()

    return await asyncio.to_thread(ask)


async def put(proxy, text):
    """The status and the body of the answer to another configuration in a request."""

    def ask():
        connection = http.client.HTTPConnection("localhost", timeout=10)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(proxy.folder / "admin.sock"))
        connection.request("PUT", "/v1/configuration", text, {"Content-Type": "application/kdl"})
        response = connection.getresponse()
        return response.status, response.read().decode()

    return await asyncio.to_thread(ask)


async def kill(proxy):
    """Kills the process that serves, and waits until another one serves."""
    killed = (await proxy.serving())["pid"]
    os.kill(killed, signal.SIGKILL)
    for _ in range(200):
        pid = (await proxy.serving())["pid"]
        if pid != killed:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("no process follows")


async def start(setting):
    """A proxy with a site in an included file, which names a list by a relative path."""
    proxy = await setting.proxy()
    parts = proxy.folder / "parts"
    parts.mkdir()
    (parts / "list.txt").write_text("192.0.2.1\n")
    (parts / "site.kdl").write_text(
        f'list "some" type="ip" file="list.txt"\nsite "kept.test" {{ route "/**" {{ respond 200 "kept" }} }}\n'
    )
    proxy.configuration.write_text(proxy.configuration.read_text() + WITH_INCLUDE + "\n")
    await reload(proxy)
    return proxy


async def reload(proxy):
    code, out, err = await proxy.command("reload", "-c", proxy.configuration)
    equal(code, 0, out + err)


async def refused(proxy):
    return (await proxy.status())["configuration"]["refused"]


async def kept_serves(proxy):
    equal(await host(proxy, "kept.test"), "kept", "the answer of the included site")


@test
async def a_crash_with_broken_files_keeps_the_configuration(setting):
    """Main file and included file broken, the included one even gone; then a crash of the process that follows, and a mended file."""
    proxy = await start(setting)
    await kept_serves(proxy)
    good = proxy.configuration.read_text()
    proxy.configuration.write_text(good + "nonsense {\n")
    shutil.move(proxy.folder / "parts" / "site.kdl", proxy.folder / "site.kdl.away")
    for _ in range(2):
        await kill(proxy)
        await kept_serves(proxy)
        told = await refused(proxy)
        assert told["at_start"] and "foregate.kdl" in told["reason"], told
    assert "the configuration that was in effect before serves" in proxy.stderr()
    code, out, err = await proxy.command("status", "-c", proxy.configuration)
    assert code == 0 and "after a crash, the files were refused at the start" in out, out + err
    assert proxy.metric('foregate_reloads_total{result="refused"}') >= 1
    # An upgrade to broken files still fails, and the process that serves goes on.
    code, out, err = await proxy.upgrade(stages="100%", bake="200ms")
    equal(code, 1, out + err)
    await kept_serves(proxy)
    # So does a reload. A changed list is read with the kept texts.
    code, out, err = await proxy.command("reload", "-c", proxy.configuration, "--admin", proxy.folder / "admin.sock")
    equal(code, 1, out + err)
    equal((await refused(proxy))["at_start"], False, "the last refusal is that of the reload")
    loaded = proxy.metric('foregate_reloads_total{result="ok"}')
    (proxy.folder / "parts" / "list.txt").write_text("192.0.2.2\n")
    for _ in range(100):
        if proxy.metric('foregate_reloads_total{result="ok"}') > loaded:
            break
        await asyncio.sleep(0.1)
    assert proxy.metric('foregate_reloads_total{result="ok"}') > loaded, "the list was read again"
    await kept_serves(proxy)
    assert await refused(proxy) is not None, "the files are refused still"
    shutil.move(proxy.folder / "site.kdl.away", proxy.folder / "parts" / "site.kdl")
    (proxy.folder / "parts" / "site.kdl").write_text(
        (proxy.folder / "parts" / "site.kdl").read_text().replace('"kept"', '"mended"')
    )
    proxy.configuration.write_text(good)
    await reload(proxy)
    equal(await refused(proxy), None, "no refusal after the reload")
    await kill(proxy)
    equal(await refused(proxy), None, "no refusal with good files")


@test
async def a_crash_with_an_address_in_use_keeps_the_configuration(setting):
    """The files are valid, but a process with them cannot start."""
    proxy = await start(setting)
    good = proxy.configuration.read_text()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = "127.0.0.1:%d" % other.getsockname()[1]
        proxy.configuration.write_text(f'listen "{address}"\n{good}')
        await kill(proxy)
        await kept_serves(proxy)
        told = await refused(proxy)
        assert told["at_start"] and address in told["reason"], told
    # The address is free now.
    await kill(proxy)
    equal(await refused(proxy), None, "no refusal with good files")


@test
async def a_configuration_of_a_request_is_kept(setting):
    proxy = await start(setting)
    text = proxy.configuration.read_text().replace(WITH_INCLUDE, "")
    code, out = await put(proxy, text + 'site "given.test" { route "/**" { respond 200 "given" } }\n')
    equal(code, 200, out)
    proxy.configuration.write_text("nonsense {\n")
    await kill(proxy)
    equal(await host(proxy, "given.test"), "given", "the answer of the given configuration")


@test
async def a_new_supervisor_has_the_configuration(setting):
    """After the supervisor's own upgrade, and after its death."""
    proxy = await start(setting)
    second = proxy.folder / "second"
    shutil.copy(proxy.binary, second)
    code, out, err = await proxy.upgrade("--binary", second, stages="100%", bake="200ms")
    equal((code, err), (0, ""), out)
    for _ in range(200):
        if os.readlink(f"/proc/{proxy.process.pid}/exe") == str(second):
            break
        await asyncio.sleep(0.05)
    proxy.configuration.write_text("nonsense {\n")
    await kill(proxy)
    await kept_serves(proxy)
    os.kill((await proxy.status())["supervisor"]["pid"], signal.SIGKILL)
    await asyncio.sleep(1.5)
    await kill(proxy)
    await kept_serves(proxy)
