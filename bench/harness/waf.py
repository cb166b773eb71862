"""The firewalls compared: what they are sent, which rules they run, and whether they do."""

import http.client
import json
import os
import random
from pathlib import Path
from urllib.parse import quote_plus

from .processes import Failed

KIB = 1024
# Fields of a browser's request that no rule at any level of paranoia minds.
FIELDS = {
    "Host": "www.example.com",
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en-US,en;q=0.5",
    "Accept-Encoding": "gzip, deflate, br",
}
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
ATTACK = "1' or '1'='1' union select password from users-- "
PROSE = (
    "The rest of the way was flat, and nobody spoke until the lights of the town came up behind the trees. "
    "There had been rain, and the road was a long mirror with two or three people walking on it. "
)
# The answer that all of them pass on, bytes.
ANSWER = 64


def few():
    """A document of few values."""
    return json.dumps({"id": 4711, "name": "blue shirt", "tags": ["new", "sale"], "price": 19.9, "sold": False})


def many():
    """A document of 720 values in 16 KiB."""
    items = [{"id": 1000 + at, "name": f"item {at}", "stock": at % 7, "note": "x" * 30} for at in range(180)]
    text = json.dumps(items)
    return text[:-1] + " " * max(0, 16 * KIB - len(text)) + "]"


def nested(text, times):
    """A text in percent-encoding, so many times over."""
    for _ in range(times):
        text = "".join(f"%{byte:02x}" for byte in text.encode()) if "%" not in text else text.replace("%", "%25")
    return text


def value(length, text):
    """A form with one long value."""
    return FORM, "value=" + (text * (length // len(text) + 1))[:length]


def noise(length):
    """Letters, digits and signs at random, the same each time."""
    dice = random.Random(1)
    return "".join(dice.choice("abcdefghijklmnopqrstuvwxyz0123456789-_.~") for _ in range(length))


# What is sent: a target's query, a type and a body. The long values are what an attacker would try.
TRAFFIC = {
    "get": ("a plain GET", "", None),
    "get-10": ("a GET with 10 arguments", "&".join(f"name{at}=value+{at}" for at in range(10)), None),
    "form-2k": ("a form of 2 KiB", "", (FORM, "&".join(f"field{at}={quote_plus(PROSE[:90])}" for at in range(20)))),
    "json-few": ("JSON of six values", "", (JSON, few())),
    "json-many": ("JSON of 720 values, 16 KiB", "", (JSON, many())),
    "injection": ("an SQL injection in a GET", "id=" + quote_plus(ATTACK), None),
    "letter-64k": ("a form with 64 KiB of one letter", "", value(64 * KIB, "a")),
    "prose-64k": ("a form with 64 KiB of prose", "", value(64 * KIB, PROSE.replace(" ", "+"))),
    "random-64k": ("a form with 64 KiB of random letters and signs", "", value(64 * KIB, noise(64 * KIB))),
    "nested-64k": ("a form with 64 KiB encoded four times", "", value(64 * KIB, nested("<a", 4))),
}
# These are refused, so that the firewalls are seen to work; the others are only judged, as the strictest rules refuse
# what is here called ordinary.
REFUSED = ("injection",)


def request(traffic, **changed):
    """The bytes of a request, as a text."""
    _, query, body = TRAFFIC[traffic] if isinstance(traffic, str) else traffic
    target = f"/plain/{ANSWER}" + (f"?{query}" if query else "")
    fields = {**FIELDS, **changed}
    if body:
        fields |= {"Content-Type": body[0], "Content-Length": str(len(body[1].encode()))}
    lines = "".join(f"{name}: {text}\r\n" for name, text in fields.items())
    return f"{'POST' if body else 'GET'} {target} HTTP/1.1\r\n{lines}\r\n" + (body[1] if body else "")


def exchanges(work):
    """What the load generator sends and must get."""
    if work.traffic in REFUSED and work.paranoia:
        return [{"request": request(work.traffic), "status": 403, "fields": {}}]
    return [{"request": request(work.traffic), "status": 200, "fields": {}, "pattern": ANSWER}]


def core_rule_set():
    """The folder of the Core Rule Set: the environment's CRS."""
    folder = os.environ.get("CRS")
    if not folder:
        raise Failed("the firewalls need the Core Rule Set: name its folder in the environment variable CRS")
    rules = [folder for folder in Path(folder).glob("**/*owasp_crs")] or [Path(folder) / "rules"]
    setups = list(Path(folder).glob("**/*crs-setup.conf.example"))
    if not rules[0].is_dir() or not setups:
        raise Failed(f"{folder} has no rules of the Core Rule Set")
    return setups[0].resolve(), rules[0].resolve()


def rules(work, folder):
    """Writes the rules of a work, the same for every firewall, and gives the file."""
    # ModSecurity reads no path with an `@`, which folders of Go modules have, and no rule without actions unless an
    # empty line follows, which the rules in them do not have.
    given_setup, given = core_rule_set()
    setup, rules_folder = folder / "crs-setup.conf", folder / "crs"
    setup.symlink_to(given_setup)
    rules_folder.mkdir()
    for file in given.iterdir():
        if file.suffix == ".conf":
            (rules_folder / file.name).write_text(file.read_text().replace("\nSec", "\n\nSec"))
        else:
            (rules_folder / file.name).symlink_to(file)
    lines = [
        f"SecRuleEngine {'On' if work.traffic in REFUSED else 'DetectionOnly'}",
        "SecRequestBodyAccess On",
        f"SecRequestBodyLimit {KIB * KIB}",
        f"SecRequestBodyNoFilesLimit {KIB * KIB}",
        "SecResponseBodyAccess Off",
        "SecAuditEngine Off",
        'SecRule REQUEST_HEADERS:Content-Type "^application/json" '
        '"id:200001,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON"',
        f"Include {setup}",
        'SecAction "id:200100,phase:1,t:none,pass,nolog,'
        f'setvar:tx.blocking_paranoia_level={work.paranoia},setvar:tx.detection_paranoia_level={work.paranoia}"',
        *(f"Include {file}" for file in sorted(rules_folder.glob("*.conf"))),
    ]
    path = folder / "rules.conf"
    path.write_text("\n".join(lines) + "\n")
    return path


def check(proxy, port):
    """Raises unless a firewall sees what is in queries, forms and JSON, and lets the rest pass."""
    cases = [("get", 200), ("get-10", 200), ("json-few", 200), ("injection", 403)]
    hidden = [
        ("", "", (FORM, "id=" + quote_plus(ATTACK))),
        ("", "", (JSON, json.dumps({"a": {"b": [1, ATTACK]}}))),
    ]
    for case, status in cases + [(case, 403) for case in hidden]:
        got = ask(port, request(case, Connection="close"))
        if got != status:
            raise Failed(f"{proxy} answers {got} instead of {status} to {case}")


def ask(port, text):
    """The status of the answer to a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.connect()
    connection.sock.sendall(text.encode())
    answer = http.client.HTTPResponse(connection.sock)
    answer.begin()
    connection.close()
    return answer.status
