"""Tables of the results."""

from .works import FIREWALLS, LUA, MODULE, PROXIES, UNITS

BEGIN = "<!-- bench/run writes from here -->"
END = "<!-- to here -->"
EVERYONE = PROXIES + LUA + MODULE + FIREWALLS[1:]
# What our firewall may add at most, of what the better of ModSecurity and Coraza adds: to ordinary requests, and to those made to
# cost much; and of what zentinel-modsec adds.
FIREWALL_LIMIT, FIREWALL_LIMIT_LARGE, ZENTINEL_LIMIT = 1 / 10, 1 / 3, 1 / 4


def number(value):
    """A figure with three significant digits, as a person writes it."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def limit(target, cells):
    """What Foregate's figure may be at most (at least, for throughput), or None when
    a peer was not measured: the best of some is not the best of all."""
    if not target.peers:
        return target.factor
    column = "mib_per_s" if target.throughput else "figure"
    figures = [cells.get(peer, {}).get(column) for peer in target.peers]
    if None in figures:
        return None
    return target.factor * (max(figures) if target.throughput else min(figures))


def words(target):
    """A target as a person says it."""
    if not target.peers:
        return f"{target.factor:g}"
    who = target.peers[0] if len(target.peers) == 1 else "best of " + ", ".join(target.peers)
    return f"{target.factor:.2f} x {who}" + (", with no less MiB/s" if target.throughput else "")


def verdict(target, cells):
    """Whether a target is reached, in a word."""
    own = cells.get("foregate", {}).get("mib_per_s" if target.throughput else "figure")
    bound = limit(target, cells)
    if own is None or bound is None:
        return "not measured"
    if own >= bound if target.throughput else own <= bound:
        return "reached"
    return f"missed ({number(bound)}{' MiB/s' if target.throughput else ''})"


def groups(works):
    """The works, those together that are measured with the same proxies."""
    everyone = dict.fromkeys(work.proxies for work in works)
    return [[work for work in works if work.proxies == proxies] for proxies in everyone]


def rows(works, results):
    """The main table: figures, ratios and targets of each of a group of works."""
    proxies = works[0].proxies
    peers = proxies[1:]
    yield ("work", "unit", *proxies, *(f"/{peer}" for peer in peers), "at most", "verdict", "aim", "verdict")
    for work in works:
        cells = results.get(work.name, {})
        own = cells.get("foregate", {}).get("figure")
        others = [cells.get(peer, {}).get("figure") for peer in peers]
        musts = [target for target in work.targets if not target.aim]
        aims = [target for target in work.targets if target.aim]
        yield (
            work.name,
            UNITS[work.kind],
            *(cell_text(cells.get(name)) for name in proxies),
            *("-" if own is None or not other else f"{own / other:.2f}" for other in others),
            "; ".join(map(words, musts)) or "-",
            "; ".join(verdict(target, cells) for target in musts) or "-",
            "; ".join(map(words, aims)) or "-",
            "; ".join(verdict(target, cells) for target in aims) or "-",
        )


def firewall_rows(works, results):
    """What the firewalls add to a request: its CPU with them minus that without, in microseconds."""
    yield ("request", "paranoia", *FIREWALLS, "/best of two", "at most", "/zentinel", "at most", "verdict")
    off = {work.traffic: results.get(work.name, {}) for work in works if work.traffic and not work.paranoia}
    for work in works:
        if not work.paranoia or work.traffic not in off:
            continue
        added = {}
        for name in FIREWALLS:
            pair = [cells.get(name, {}).get("figure") for cells in (results.get(work.name, {}), off[work.traffic])]
            added[name] = None if None in pair else pair[0] - pair[1]
        large = work.traffic.endswith("-64k")
        limits = (FIREWALL_LIMIT_LARGE if large else FIREWALL_LIMIT, FIREWALL_LIMIT_LARGE if large else ZENTINEL_LIMIT)
        ratios = (of_best(added, ("modsecurity", "coraza")), of_best(added, ("zentinel",)))
        yield (work.traffic, work.paranoia, *map(number, added.values()),
               *(text for ratio, limit in zip(ratios, limits) for text in ("-" if ratio is None else f"{ratio:.3f}", f"{limit:.2f}")),
               "; ".join("not measured" if ratio is None else "reached" if ratio <= limit else "missed"
                         for ratio, limit in zip(ratios, limits)))


def of_best(added, peers):
    """What ours adds, of what the best of all these peers adds; nothing if one of them was not measured."""
    others = [added[name] for name in peers]
    if added["foregate"] is None or None in others:
        return None
    return added["foregate"] / min(others)


def cell_text(cell):
    """A figure, with a mark where requests failed."""
    if cell is None:
        return "-"
    if "error" in cell:
        return "failed"
    return number(cell["figure"]) + (f" ({cell['faults']} faults)" if cell["faults"] else "")


def more_rows(works, results):
    """The second table: throughput, how busy the proxy was, latency, spread."""
    yield ("work", "proxy", "requests/s", "MiB/s", "core used", "p50 us", "p99 us", "lowest .. highest", "TLS")
    for work in works:
        for name in work.proxies:
            cell = results.get(work.name, {}).get(name)
            if cell is None or "error" in cell:
                continue
            has = "busy" in cell
            yield (
                work.name,
                name,
                number(cell["requests_per_s"]) if has else "-",
                number(cell["mib_per_s"]) if has else "-",
                f"{100 * cell['busy']:.0f} %" if has else "-",
                number(cell["p50_us"]) if has else "-",
                number(cell["p99_us"]) if has else "-",
                f"{number(cell['lowest'])} .. {number(cell['highest'])} ({cell['rounds']})",
                tls_text(cell["tls"]),
            )


def tls_text(negotiated):
    """What was negotiated, most frequent first."""
    total = sum(negotiated.values())
    parts = sorted(negotiated.items(), key=lambda part: -part[1])
    return "; ".join(f"{name} {100 * count / total:.1f} %" for name, count in parts) or "-"


def plain(table):
    """A table for a terminal."""
    table = [[str(cell) for cell in row] for row in table]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def markdown(table):
    """A table for a Markdown file."""
    head, *body = [[str(cell) for cell in row] for row in table]
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body]]
    return "\n".join(lines)


def errors(results):
    """One line for each measurement that failed."""
    return [
        f"{work}, {name}: {cell['error']}"
        for work, cells in results.items()
        for name, cell in cells.items()
        if "error" in cell
    ]


def document(works, run):
    """The generated part of RESULTS.md."""
    machine = run["machine"]
    firewalls = list(firewall_rows(works, run["results"]))
    lines = [
        f"- Date: {run['date']}",
        f"- Machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory']}, Linux {machine['kernel']}",
        "- Versions: " + ", ".join(run["versions"].values()),
        f"- Command: `{run['command']}`",
        f"- {run['rounds']} interleaved rounds of {run['run_ms']} ms after {run['warm_ms']} ms of warming up; medians."
        f" Proxy on core {run['proxy_cpus']}, load and origin on core {run['load_cpus']}.",
        "",
        *(line for group in groups(works) for line in (markdown(rows(group, run["results"])), "")),
        *(("What the firewall adds, us/request:", "", markdown(firewalls), "") if len(firewalls) > 1 else ()),
        "Throughput and spread of the same rounds:",
        "",
        markdown(more_rows(works, run["results"])),
    ]
    failed = errors(run["results"])
    if failed:
        lines += ["", "Not measured:", "", *(f"- {line}" for line in failed)]
    return "\n".join(lines)


def write_document(path, text):
    """Puts the generated part into RESULTS.md and leaves what is written around it."""
    old = path.read_text() if path.exists() else f"# Results\n\n{BEGIN}\n{END}\n"
    if BEGIN not in old or END not in old:
        raise ValueError(f"{path} lacks the lines '{BEGIN}' and '{END}'")
    head, rest = old.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    path.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}")
