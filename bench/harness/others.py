"""Those who are not to notice: requests at a steady pace, each checked and timed."""

import argparse
import json
import socket
import time

# On kept-alive connections in turn; each tenth request on a new one.
CONNECTIONS, NEW_EVERY = 8, 10
PACE_S = 0.004
TIMEOUT_S = 5.0
LENGTH = 1024
REQUEST = f"GET /b/{LENGTH} HTTP/1.1\r\nHost: site.example\r\n%s\r\n"


def connect(port):
    """A connection to the proxy."""
    connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(connection, extra=""):
    """One request; an answer that is not as it should be is an error."""
    connection.sendall((REQUEST % extra).encode())
    received = b""
    while b"\r\n\r\n" not in received or len(received.partition(b"\r\n\r\n")[2]) < LENGTH:
        more = connection.recv(65536)
        if not more:
            raise OSError("the connection ended before the answer did")
        received += more
    if not received.startswith(b"HTTP/1.1 200 "):
        raise OSError(received.split(b"\r\n")[0].decode(errors="replace"))


def run(port, seconds):
    """Asks until the time is up."""
    kept = [connect(port) for _ in range(CONNECTIONS)]
    times, errors, number = [], {}, 0
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        due = start + number * PACE_S
        time.sleep(max(0.0, due - time.monotonic()))
        began = time.monotonic()
        slot = number % CONNECTIONS
        number += 1
        try:
            if number % NEW_EVERY == 0:
                with connect(port) as fresh:
                    ask(fresh, "Connection: close\r\n")
            else:
                ask(kept[slot])
        except OSError as error:
            errors[str(error)] = errors.get(str(error), 0) + 1
            kept[slot].close()
            kept[slot] = connect(port)
        times.append(time.monotonic() - began)
    times.sort()
    return {"requests": number, "failed": sum(errors.values()), "errors": errors,
            "p99_ms": 1000 * times[len(times) * 99 // 100]}


def main():
    """Prints what was seen as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tls-port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    print(json.dumps(run(options.port, options.seconds)))


if __name__ == "__main__":
    main()
