"""What the other tests rely on."""

import socket
import subprocess

from harness import PATIENCE, Case, Origin, response


def ask(origin):
    with socket.create_connection(("127.0.0.1", origin.port), PATIENCE) as client:
        client.settimeout(PATIENCE)
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        got = b""
        while data := client.recv(65536):
            got += data
        return got.split(b"\r\n\r\n", 1)[1]


class Origins(Case):
    def test_one_that_is_closed_takes_no_connection(self):
        origin = Origin(lambda head: response(b"page"))
        self.assertEqual(ask(origin), b"page")
        origin.close()
        with self.assertRaises(ConnectionRefusedError):
            ask(origin)

    def test_the_next_one_answers_for_itself(self):
        """Its socket gets the number of the one that was closed before."""
        Origin(lambda head: response(b"closed")).close()
        origin = self.origin(lambda head: response(b"next"))
        for _ in range(300):
            # Its end may come while the main thread, busy with its start, takes no signals, so that another thread is woken for it.
            subprocess.run(["true"], check=True)
        self.assertEqual([ask(origin) for _ in range(4)], [b"next"] * 4)
