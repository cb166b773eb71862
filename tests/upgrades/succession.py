"""The supervisor's own upgrade: its process goes on as the new program."""

import asyncio
import os
import pathlib
import shutil
import signal

import load
from testing import equal, test


def program_of(pid):
    return os.readlink(f"/proc/{pid}/exe")


async def until_it_is(pid, program):
    for _ in range(200):
        if program_of(pid) == str(program):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the supervisor runs {program_of(pid)}, not {program}")


def names_of(pid):
    """Its name, and that of its program, as `ps` shows them."""
    process = pathlib.Path(f"/proc/{pid}")
    return (process / "comm").read_text().strip(), (process / "cmdline").read_bytes().split(b"\0")[0].decode()


def zombies_of(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    states = [pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] for child in children]
    return states.count("Z")


@test
async def the_supervisor_goes_on_as_the_new_program(setting):
    """The same process, no connection refused, no command lost; then all that a supervisor does works as before."""
    proxy = await setting.proxy(tls=True)
    supervisor, first = proxy.process.pid, os.path.realpath(proxy.binary)
    second = pathlib.Path(setting.folder) / "second" / "foregate"
    second.parent.mkdir()
    shutil.copy(first, second)
    clients = load.Load(proxy.port, proxy.tls_port)
    await clients.open_tunnels(10)
    clients.start()
    commands = 0

    async def ask_all_the_time():
        nonlocal commands
        while not clients.stopping:
            equal((await proxy.status())["supervisor"]["pid"], supervisor, "the supervisor")
            commands += 1
            await asyncio.sleep(0.05)

    asking = asyncio.ensure_future(ask_all_the_time())
    requests = proxy.metric("foregate_requests_total")
    code, out, err = await proxy.upgrade("--binary", second)
    equal((code, err), (0, ""), out)
    await until_it_is(supervisor, second)
    after = await proxy.status()
    for pid in (supervisor, (await proxy.serving())["pid"]):
        equal(names_of(pid), ("foregate", str(second)), "names of the process")
    equal(after["upgrade"]["last"]["binary"], str(second), "the last upgrade is remembered")
    assert any(known["state"] == "draining" for known in after["generations"]), "the tunnels hold the old version"
    assert proxy.metric("foregate_requests_total") >= requests, "counters"
    # The next one is to the same file: there is nothing to change for the supervisor.
    code, out, err = await proxy.upgrade()
    equal((code, err), (0, ""), out)
    equal(program_of((await proxy.serving())["pid"]), str(second))
    # Signals are followed, and a crash is noticed.
    os.kill(supervisor, signal.SIGHUP)
    killed = (await proxy.serving())["pid"]
    equal(dict(clients.failures), {}, "failures before the crash")
    os.kill(killed, signal.SIGKILL)
    await asyncio.sleep(1)
    assert (await proxy.serving())["pid"] != killed
    # Back to the program before.
    code, out, err = await proxy.command("upgrade", "-c", proxy.configuration, "--rollback")
    equal((code, err), (0, ""), out)
    await until_it_is(supervisor, first)
    equal(program_of((await proxy.serving())["pid"]), first)
    equal(await clients.echo(), 10, "tunnels that echo")
    for _, writer in clients.tunnels:
        writer.close()
    await clients.stop()
    await asking
    refused = [name for name in clients.failures if "Refused" in name]
    equal(refused, [], "refused connections")
    for _ in range(100):
        if len((await proxy.status())["generations"]) == 1:
            break
        await asyncio.sleep(0.1)
    equal(len((await proxy.status())["generations"]), 1, "the old versions have ended")
    equal(zombies_of(supervisor), 0, "children that nobody waits for")
    os.kill(supervisor, signal.SIGTERM)
    equal(proxy.process.wait(20), 0, "the exit code")
    return f"{sum(clients.statuses.values())} requests, {commands} commands"


@test
async def a_supervisor_that_went_on_is_replaced_when_it_dies(setting):
    proxy = await setting.proxy()
    second = pathlib.Path(setting.folder) / "second"
    shutil.copy(proxy.binary, second)
    clients = load.Load(proxy.port)
    clients.start()
    code, out, err = await proxy.upgrade("--binary", second, stages="100%", bake="200ms")
    equal((code, err), (0, ""), out)
    await until_it_is(proxy.process.pid, second)
    os.kill(proxy.process.pid, signal.SIGKILL)
    await asyncio.sleep(1.5)
    status = await proxy.status()
    assert status["supervisor"]["pid"] != proxy.process.pid
    equal(program_of(status["supervisor"]["pid"]), str(second))
    code, out, err = await proxy.upgrade(stages="100%", bake="200ms")
    equal((code, err), (0, ""), out)
    await clients.stop()
    equal(dict(clients.failures), {}, "failures")
