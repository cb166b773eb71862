"""Tests of what the benchmark computes: python3 -m unittest discover bench/tests"""

import json
import os
import socket
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import attacks, calm, compare, pages, report, soak, waf
from harness.measure import figure, summary
from harness.processes import family
from harness.proxies import PEERS, fill
from harness.reload import ROUTES, alike, large
from harness.works import UNITS, WORKS, Target


def cells(**figures):
    return {name: {"figure": value, "faults": 0} for name, value in figures.items()}


class Html(unittest.TestCase):
    def hidden(self, addresses, change=lambda number, address: address):
        """The document as it has to come out, in which an address can be changed."""
        out = b"".join(pages.document(addresses))
        for number in range(addresses):
            text = pages.address(number).encode()
            code = bytes([7]) + bytes(byte ^ 7 for byte in change(number, text))
            out = out.replace(text, b'<span data-fg-email=%s>x</span>' % code.hex().encode())
        return out.replace(b"</body>", pages.SCRIPT + b"</body>")

    def read(self, out, piece):
        got = pages.Restored()
        for at in range(0, len(out), piece):
            got.write(out[at:at + piece])
        got.end()
        return got

    def test_the_document_is_restored_in_whatever_pieces_it_comes(self):
        length, expected = pages.measured(20)
        self.assertEqual(length, sum(map(len, pages.document(20))))
        for piece in (1, 7, 4096):
            got = self.read(self.hidden(20), piece)
            self.assertEqual((got.original.hexdigest(), got.found, got.wrong, got.scripts), (expected, 20, 0, 1))

    def test_what_is_not_as_it_has_to_be_is_seen(self):
        _, expected = pages.measured(20)
        wrong = self.read(self.hidden(20, lambda number, text: b"a@b.de" if number == 7 else text), 4096)
        self.assertEqual((wrong.found, wrong.wrong), (20, 1))
        plain = self.read(b"".join(pages.document(20)), 4096)
        self.assertEqual((plain.found, plain.scripts), (0, 0))
        self.assertNotEqual(self.read(self.hidden(20).replace(b"at work", b"at home", 1), 4096).original.hexdigest(), expected)

    def test_an_origin_that_is_closed_takes_no_connection(self):
        origin = pages.Origin()
        with socket.create_connection(("127.0.0.1", origin.port), 10) as client:
            client.sendall(b"GET /0/20/ HTTP/1.1\r\n\r\n")
            while client.recv(65536):
                pass
        origin.close()
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", origin.port), 10)

    def test_the_origin_writes_the_same_in_any_pieces(self):
        whole = b"".join(pages.document(1200))
        for least, most, _ in pages.CHUNKINGS.values():
            parts = list(pages.pieces(1200, least, most))
            self.assertEqual(b"".join(parts), whole)
            self.assertTrue(all(0 < len(part) <= most for part in parts))

    def test_chunks_are_joined_and_growth_is_seen(self):
        self.assertEqual(compare.joined(b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"), b"abc0123456789")
        self.assertEqual(soak.thirds([1024, 1024, 2048, 2048, 4096, 4096]), 3)


class Targets(unittest.TestCase):
    def test_the_best_of_the_peers_counts(self):
        target = Target(0.90, ("nginx", "haproxy"))
        self.assertAlmostEqual(report.limit(target, cells(nginx=20, haproxy=10)), 9.0)
        self.assertEqual(report.verdict(target, cells(foregate=9.0, nginx=20, haproxy=10)), "reached")
        self.assertEqual(report.verdict(target, cells(foregate=9.1, nginx=20, haproxy=10)), "missed (9.00)")

    def test_a_peer_that_was_not_measured_leaves_a_target_open(self):
        target = Target(0.90, ("nginx", "haproxy"))
        self.assertEqual(report.verdict(target, cells(foregate=1, nginx=20)), "not measured")

    def test_a_failed_measurement_leaves_a_target_open(self):
        measured = cells(foregate=1, nginx=20)
        measured["nginx"] = {"error": "no"}
        self.assertEqual(report.verdict(Target(1.0, ("nginx",)), measured), "not measured")

    def test_throughput_is_better_when_higher(self):
        target = Target(1.0, ("nginx",), throughput=True)
        measured = {"foregate": {"mib_per_s": 99.0}, "nginx": {"mib_per_s": 100.0}}
        self.assertEqual(report.verdict(target, measured), "missed (100 MiB/s)")
        measured["foregate"]["mib_per_s"] = 100.0
        self.assertEqual(report.verdict(target, measured), "reached")


class Processes(unittest.TestCase):
    def test_the_newest_is_last_though_numbers_begin_anew(self):
        parents = {1: 0, 300: 1, 32000: 300, 301: 300, 302: 301, 400: 1}
        began = {1: 0, 300: 5, 32000: 6, 301: 7, 302: 8, 400: 9}
        self.assertEqual(family(300, parents, began), [300, 32000, 301, 302])
        parents, began = {32000: 1, 310: 32000, 32001: 32000}, {32000: 5, 32001: 6, 310: 7}
        self.assertEqual(family(32000, parents, began), [32000, 32001, 310])


class Figures(unittest.TestCase):
    def test_units(self):
        counts = {
            "cpu_s": 2.0, "requests": 1000, "bytes": 4 << 30, "memory_kib": {"pss": 3.5},
            "origin": {"accepted": 5}, "total_kib": 8192,
        }
        wanted = {"request": 2000.0, "gib": 0.5, "memory": 3.5, "opened": 5, "missed": 0.5, "renewed": 5.0,
                  "worker-memory": 8.0}
        self.assertEqual(set(wanted), set(UNITS))
        for work in WORKS:
            share = work.workers if work.kind == "worker-memory" else 1
            self.assertAlmostEqual(figure(work, counts), wanted[work.kind] / share)

    def test_the_median_of_the_rounds(self):
        rounds = [
            {"figure": value, "faults": {"cut": 1}, "tls": {"a": 2}, "cpu_s": 1, "seconds": 2,
             "requests": 10, "bytes": 10, "p50_us": 1, "p99_us": 2}
            for value in (5.0, 1.0, 3.0)
        ]
        found = summary(WORKS[0], rounds)
        self.assertEqual((found["figure"], found["lowest"], found["highest"]), (3.0, 1.0, 5.0))
        self.assertEqual((found["faults"], found["tls"], found["busy"]), (3, {"a": 6}, 0.5))


class ManySites(unittest.TestCase):
    def test_every_site_has_its_routes(self):
        text = large(3)
        self.assertEqual(text.count("site "), 4)
        self.assertEqual(text.count("route "), 3 * ROUTES + 1)
        self.assertIn("/static2/**", text)

    def test_alike_means_the_same_routes(self):
        sites = alike(large(3)).split('site "')[1:4]
        self.assertEqual(len({site.partition("{")[2] for site in sites}), 1)


class Documents(unittest.TestCase):
    def test_only_the_generated_part_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "RESULTS.md"
            path.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
            report.write_document(path, "new")
            text = path.read_text()
        self.assertEqual(text, f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n")

    def test_every_name_in_a_template_is_filled(self):
        values = dict.fromkeys(
            "USER WORKERS FOLDER LOG LISTEN ORIGIN TLS LOG_TARGET LOG_FORMAT MODULE RULES".split(), "x"
        )
        for template in ("nginx.conf", "haproxy.cfg", "foregate.kdl", "modsecurity.conf"):
            self.assertTrue((PEERS / template).is_file())
            self.assertNotIn("@", fill(template, values))


class Firewalls(unittest.TestCase):
    def works(self, traffic):
        return [work for work in WORKS if work.traffic == traffic]

    def test_what_is_sent_is_what_it_is_called(self):
        self.assertEqual(len(json.loads(waf.many())) * 4, 720)
        self.assertEqual(len(waf.many()), 16 * waf.KIB)
        for traffic, (_, _, body) in waf.TRAFFIC.items():
            head, _, sent = waf.request(traffic).partition("\r\n\r\n")
            self.assertEqual(sent, body[1] if body else "")
            self.assertEqual(f"Content-Length: {len(sent)}" in head, bool(body), traffic)
            self.assertTrue(all(ord(byte) < 128 for byte in head + sent))
            if traffic.endswith("-64k"):
                self.assertEqual(len(sent), 64 * waf.KIB + len("value="))

    def test_with_the_firewall_injections_are_refused(self):
        for work in self.works("injection"):
            (exchange,) = waf.exchanges(work)
            self.assertEqual(exchange["status"], 403 if work.paranoia else 200)

    def test_what_counts_is_the_difference(self):
        results = {
            "waf-get-off": cells(foregate=10, modsecurity=20, coraza=30, zentinel=20),
            "waf-get-pl1": cells(foregate=60, modsecurity=1020, coraza=530, zentinel=120),
            "waf-get-pl4": cells(foregate=110, modsecurity=1020, zentinel=1020),
        }
        rows = list(report.firewall_rows(self.works("get"), results))[1:]
        self.assertEqual(rows[0][:9], ("get", 1, "50.0", "1,000", "500", "100", "0.100", "0.10", "0.500"))
        self.assertEqual(rows[0][-1], "reached; missed")
        self.assertEqual(rows[1][-5:], ("-", "0.10", "0.100", "0.25", "not measured; reached"))

    def test_rules_are_found_in_the_folder_that_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "rules" / "@owasp_crs").mkdir(parents=True)
            (folder / "rules" / "@crs-setup.conf.example").touch()
            (folder / "rules" / "@owasp_crs" / "REQUEST-901.conf").touch()
            with mock.patch.dict(os.environ, {"CRS": str(folder)}):
                text = waf.rules(self.works("get")[1], folder).read_text()
        self.assertIn("SecRuleEngine DetectionOnly", text)
        self.assertIn("blocking_paranoia_level=1", text)
        self.assertIn("REQUEST-901.conf", text)


class Attacks(unittest.TestCase):
    def test_what_is_sent_is_hpack(self):
        # RFC 7541, sections C.1.1 and C.1.2.
        self.assertEqual(attacks.integer(10, 5, 0), b"\x0a")
        self.assertEqual(attacks.integer(1337, 5, 0), b"\x1f\x9a\x0a")
        # Section C.2.1.
        self.assertEqual(attacks.literal(b"custom-key", b"custom-header", 0x40), b"\x40\x0acustom-key\x0dcustom-header")

    def test_frames_begin_with_nine_bytes(self):
        self.assertEqual(attacks.frame(attacks.HEADERS, attacks.END_HEADERS, 3, b"ab"), b"\0\0\2\1\4\0\0\0\3ab")

    def test_each_attack_says_what_it_is(self):
        self.assertEqual(calm.arguments([]).attacks, list(attacks.ATTACKS))
        for attack in attacks.ATTACKS.values():
            self.assertTrue(attack.__doc__)


if __name__ == "__main__":
    unittest.main()
