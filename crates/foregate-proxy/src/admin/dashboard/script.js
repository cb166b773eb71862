
// The page: figures come each second as server-sent events; rates are the differences of two of them.

const SPAN = 10; // seconds over which rates and percentiles of tables are taken
const LOST_AFTER = 5000; // milliseconds without an event

const byId = id => document.getElementById(id);
const token = document.querySelector("meta[name=foregate-token]").content;
const history = [];
let received = 0;
let described = 0;

// ---- text ----

const sum = values => values.reduce((all, value) => all + value, 0);
const less = (now, before) => now.map((value, index) => Math.max(0, value - (before ? before[index] : 0)));

function count(value) {
  if (value >= 1e9) return (value / 1e9).toFixed(1) + " G";
  if (value >= 1e6) return (value / 1e6).toFixed(1) + " M";
  if (value >= 1e4) return (value / 1e3).toFixed(1) + " k";
  return value >= 100 || Number.isInteger(value) ? Math.round(value).toString() : value.toFixed(1);
}

function counted(number, thing) {
  return `${count(number)} ${thing}${number === 1 ? "" : "s"}`;
}

function bytes(value) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return (value >= 100 || unit === "B" ? Math.round(value) : value.toFixed(1)) + " " + unit;
    value /= 1024;
  }
  return value.toFixed(1) + " TiB";
}

function millis(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10000) return (value / 1000).toFixed(0) + " s";
  if (value >= 1000) return (value / 1000).toFixed(1) + " s";
  if (value >= 10) return value.toFixed(0) + " ms";
  return value >= 1 ? value.toFixed(1) + " ms" : (value * 1000).toFixed(0) + " µs";
}

function span(seconds) {
  if (seconds < 120) return Math.floor(seconds) + " s";
  if (seconds < 7200) return Math.floor(seconds / 60) + " min";
  if (seconds < 172800) return Math.floor(seconds / 3600) + " h";
  return Math.floor(seconds / 86400) + " days";
}

const percent = share => (share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0) + " %";

/** A percentile of a histogram, as far as its buckets tell it: `≤` the upper bound of the bucket that it lies in. */
function percentile(buckets, bounds, share) {
  const all = sum(buckets);
  if (all === 0) return millis(null);
  let left = share * all;
  for (let bucket = 0; bucket < bounds.length; bucket++) {
    if (buckets[bucket] > 0 && left <= buckets[bucket]) return "≤ " + millis(bounds[bucket]);
    left -= buckets[bucket];
  }
  return "> " + millis(bounds[bounds.length - 1]);
}

// ---- elements ----

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Has `parent` show `items` in their order; elements stay as long as their keys do, so that the focus stays. */
function list(parent, items, keyOf, create, update) {
  const known = new Map([...parent.children].map(child => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const key = keyOf(item);
    let element = known.get(key);
    if (element) known.delete(key);
    else {
      element = create(item);
      element.dataset.key = key;
    }
    update(element, item);
    if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] || null);
  });
  known.forEach(element => element.remove());
  const empty = byId(parent.id + "-empty");
  if (empty) empty.hidden = items.length > 0;
}

function bar() {
  const item = make("li");
  item.append(make("span", "name"), make("span", "value"));
  const track = make("div", "track");
  track.append(make("div", "fill"));
  item.append(track, make("span", "note"));
  return item;
}

/** A name, a value and a bar; `share` is from 0 to 1. */
function showBar(item, { name, title, value, share, kind, note }) {
  put(item.children[0], name);
  item.children[0].title = title || name;
  put(item.children[1], value);
  item.children[1].className = "value " + (kind === "warn" || kind === "bad" ? kind : "");
  const fill = item.children[2].firstChild;
  fill.className = "fill " + (kind || "");
  fill.style.width = Math.max(0, Math.min(1, share || 0)) * 100 + "%";
  put(item.children[3], note || "");
  item.children[3].hidden = !note;
}

function bars(id, items) {
  list(byId(id), items, item => item.key || item.name, bar, showBar);
}

// ---- moments ----

/** The figures some seconds ago, or the oldest that there are. */
function ago(seconds) {
  const now = history[history.length - 1];
  return history.find(figures => now.time - figures.time <= seconds + 0.5) || now;
}

function pairs(moments) {
  return moments.slice(1).map((figures, index) => [figures, moments[index], Math.max(0.001, figures.time - moments[index].time)]);
}

function show(figures) {
  const previous = history[history.length - 1];
  if (previous && (previous.process !== figures.process || figures.time <= previous.time)) history.length = 0;
  history.push(figures);
  if (history.length > MOMENTS + 1) history.shift();
  const before = ago(SPAN);
  const seconds = Math.max(0.001, figures.time - before.time);
  put(byId("uptime"), "up " + span(figures.time - figures.started));
  put(byId("process"), String(figures.process));
  showTiles(figures, before, seconds);
  if (!document.hidden) showCharts(figures);
  showRows("sites", figures, before, seconds, figures.sites.shown, before.sites.shown, row => row.site);
  put(byId("sites-sub"), figures.sites.count > figures.sites.shown.length ? `the first ${figures.sites.shown.length} of ${figures.sites.count}` : "");
  showRows("routes", figures, before, seconds, figures.routes, before.routes, row => row.site + " " + row.route);
  showUpstreams(figures);
  showCache(figures);
  showFirewall(figures);
  showSteps(figures, before);
  showRequests(figures);
}

function showTiles(figures, before, seconds) {
  const classes = less(figures.sites.classes, before.sites.classes);
  const durations = less(figures.sites.durations, before.sites.durations);
  const requests = sum(classes), failed = classes[5];
  const share = requests ? failed / requests : 0;
  put(byId("t-rate"), count(requests / seconds));
  put(byId("t-rate-sub"), count(sum(figures.sites.classes)) + " in all");
  put(byId("t-errors"), percent(share));
  put(byId("t-errors-sub"), `${count(failed)} in ${Math.round(seconds)} s`);
  byId("t-errors").parentNode.className = "tile" + (share > 0.05 ? " bad" : share > 0.01 ? " warn" : "");
  put(byId("t-p50"), percentile(durations, figures.duration_bounds_ms, 0.5));
  put(byId("t-p50-sub"), `of the last ${Math.round(seconds)} s`);
  put(byId("t-p99"), percentile(durations, figures.duration_bounds_ms, 0.99));
  put(byId("t-p99-sub"), "95th: " + percentile(durations, figures.duration_bounds_ms, 0.95));
  put(byId("t-connections"), count(figures.connections.active));
  put(byId("t-connections-sub"), counted(figures.requests_active, "request") + " under way");
  const blocked = less(figures.event_loop_blocked.buckets, before.event_loop_blocked.buckets);
  const long = sum(blocked.filter((_, bucket) => bucket >= figures.wait_bounds_ms.findIndex(bound => bound > 10)));
  put(byId("t-loop"), percentile(blocked, figures.wait_bounds_ms, 0.999));
  put(byId("t-loop-sub"), long ? counted(long, "poll") + " over 10 ms" : "99.9 % of polls");
  byId("t-loop").parentNode.className = "tile" + (long > 0 ? " warn" : "");
}

const CLASSES = [[2, "2xx", "--c2"], [3, "3xx", "--c3"], [1, "1xx", "--c1"], [4, "4xx", "--c4"], [5, "5xx", "--c5"], [0, "no answer", "--cn"], [6, "other", "--co"]];

function showCharts(figures) {
  const moments = pairs(history);
  const traffic = moments.map(([now, before, seconds]) => {
    const classes = less(now.sites.classes, before.sites.classes);
    return CLASSES.map(([index]) => classes[index] / seconds);
  });
  stackedAreas("c-traffic", traffic, CLASSES.map(([, , name]) => name), count);
  const last = traffic[traffic.length - 1] || CLASSES.map(() => 0);
  list(byId("l-traffic"), CLASSES.filter(([index]) => [2, 3, 4, 5].includes(index) || figures.sites.classes[index] > 0), ([, name]) => name, ([index, name]) => {
    const item = make("li");
    item.append(make("span", "swatch s" + index), make("span"));
    return item;
  }, (item, entry) => put(item.lastChild, `${entry[1]} ${count(last[CLASSES.indexOf(entry)])}/s`));
  const bounds = figures.duration_bounds_ms;
  const labels = bounds.map(bound => "≤ " + millis(bound)).concat("> " + millis(bounds[bounds.length - 1]));
  heatMap("c-latency", moments.map(([now, before]) => less(now.sites.durations, before.sites.durations)), labels);
  line("c-offload", history.map(moment => moment.offload.queue), count);
  if (Date.now() - described > 10000) {
    described = Date.now();
    const rate = count(sum(last));
    byId("c-traffic").setAttribute("aria-label", `Requests per second of the last two minutes; now ${rate} per second`);
    byId("c-latency").setAttribute("aria-label", `Heat map of latencies of the last two minutes; median ${byId("t-p50").textContent}, 99th percentile ${byId("t-p99").textContent}`);
    byId("c-offload").setAttribute("aria-label", `Heavy steps that wait for a thread; now ${figures.offload.queue}`);
  }
}

function showRows(id, figures, before, seconds, rows, older, keyOf) {
  const known = new Map(older.map(row => [keyOf(row), row]));
  const shown = rows.map(row => {
    const then = known.get(keyOf(row));
    const classes = less(row.classes, then && then.classes), durations = less(row.durations, then && then.durations);
    return { key: keyOf(row), rate: sum(classes) / seconds, failed: classes[5], durations, total: sum(row.classes) };
  });
  // Requests that no site takes are a row once there are some.
  const rest = shown.findIndex(row => row.key === "-" && row.total === 0);
  if (rest >= 0) shown.splice(rest, 1);
  shown.sort((a, b) => b.rate - a.rate || b.total - a.total || a.key.localeCompare(b.key));
  list(byId(id), shown, row => row.key, row => {
    const element = make("tr");
    const name = row.key === "-" ? "no site" : row.key;
    const head = make("th", "", name);
    head.scope = "row";
    head.title = name;
    element.append(head, ...Array.from({ length: 5 }, () => make("td", "n")));
    return element;
  }, (element, row) => {
    const cells = element.children;
    put(cells[1], count(row.rate));
    put(cells[2], count(row.failed));
    cells[2].className = row.failed ? "n hot" : "n";
    put(cells[3], percentile(row.durations, figures.duration_bounds_ms, 0.5));
    put(cells[4], percentile(row.durations, figures.duration_bounds_ms, 0.99));
    put(cells[5], count(row.total));
  });
}

// ---- upstreams ----

const STATES = { up: "good", unchecked: "good", trial: "warn", draining: "warn", ejected: "bad", down: "bad", off: "" };
const COLUMNS = ["Server", "State", "Active", "Conns", "p50", "p99", "Failures", "Since", "Reason"];

function showUpstreams(figures) {
  list(byId("upstreams"), figures.upstreams, upstream => upstream.upstream, upstream => {
    const box = make("div", "upstream");
    const table = make("table", "servers");
    const caption = make("caption", "", upstream.upstream);
    caption.append(make("small"));
    const head = make("tr");
    COLUMNS.forEach((name, index) => {
      const cell = make("th", index > 1 && index < 7 ? "n" : "", name);
      cell.scope = "col";
      head.append(cell);
    });
    if (token) {
      const cell = make("th");
      cell.scope = "col";
      cell.append(make("span", "hidden", "Orders"));
      head.append(cell);
    }
    const top = make("thead");
    top.append(head);
    table.append(caption, top, make("tbody"));
    const scroll = make("div", "scroll");
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Servers of " + upstream.upstream);
    scroll.append(table);
    box.append(scroll);
    return box;
  }, (box, upstream) => {
    const up = upstream.servers.filter(server => ["up", "unchecked"].includes(server.state)).length;
    put(box.querySelector("caption small"), `${up} of ${upstream.servers.length} up, ${counted(upstream.connections_reused || 0, "request")} on kept connections, ${count(upstream.connections_opened || 0)} opened`);
    list(box.querySelector("tbody"), upstream.servers, server => server.server, server => serverRow(upstream.upstream, server), (row, server) => showServer(row, server, figures));
  });
}

function serverRow(upstream, server) {
  const row = make("tr");
  const head = make("th", "", server.server);
  head.scope = "row";
  const state = make("td");
  state.append(make("span", "state"));
  const numbers = COLUMNS.slice(2, 7).map(name => {
    const cell = make("td", "n");
    cell.dataset.label = name;
    return cell;
  });
  const since = make("td");
  since.dataset.label = "Since";
  row.append(head, state, ...numbers, since, make("td", "reason"));
  if (token) {
    const cell = make("td", "actions");
    for (const [order, text] of [["drain", "Drain"], ["down", "Take out"], ["up", "Put to work"]]) {
      const button = make("button", "", text);
      button.type = "button";
      button.setAttribute("aria-label", `${text}: ${server.server} of ${upstream}`);
      button.dataset.order = order;
      button.addEventListener("click", () => give(button, upstream, server.server, order));
      cell.append(button);
    }
    row.append(cell);
  }
  return row;
}

function showServer(row, server, figures) {
  const cells = row.children;
  const state = cells[1].firstChild;
  put(state, server.state + (server.backup ? " (backup)" : ""));
  state.className = "state " + (STATES[server.state] || "");
  put(cells[2], count(server.requests_in_flight));
  put(cells[3], count(server.connections));
  put(cells[4], millis(server.latency_ms && server.latency_ms.p50));
  put(cells[5], millis(server.latency_ms && server.latency_ms.p99));
  const failures = sum(Object.values(server.failures));
  put(cells[6], count(failures));
  cells[6].title = Object.entries(server.failures).map(([kind, times]) => `${kind}: ${times}`).join(", ");
  put(cells[7], span(figures.time - server.since));
  put(cells[8], server.reason);
  row.querySelectorAll("button").forEach(button => {
    const done = { drain: ["draining", "off"], down: ["off"], up: ["up", "unchecked"] }[button.dataset.order];
    button.disabled = done.includes(server.state);
  });
}

async function give(button, upstream, server, order) {
  if (order === "down" && !window.confirm(`No request will go to ${server} of ${upstream}. Take it out?`)) return;
  const notice = byId("order");
  try {
    const answer = await fetch("servers", {
      method: "POST",
      headers: { "content-type": "application/json", "x-foregate-token": token },
      body: JSON.stringify({ upstream, server, order }),
    });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    put(notice, `${server} of ${upstream}: ${button.textContent.toLowerCase()}, done`);
    notice.className = "notice";
  } catch (error) {
    put(notice, `${server} of ${upstream}: ${error.message}`);
    notice.className = "notice bad";
  }
  notice.hidden = false;
}

// ---- the rest ----

function showCache({ cache }) {
  const all = sum(Object.values(cache.requests));
  const served = cache.requests.hit + cache.requests.stale + cache.requests["stale-error"] + cache.requests.revalidated;
  const items = [];
  if (all > 0 || cache.memory.entries > 0) {
    items.push({ name: "Answered by the cache", value: all ? percent(served / all) : "–", share: all ? served / all : 0, kind: "good" });
    items.push({ name: "Memory", value: `${bytes(cache.memory.bytes)} of ${bytes(cache.memory.limit)}`, share: cache.memory.bytes / cache.memory.limit, note: `${counted(cache.memory.entries, "response")}, ${count(cache.memory.evictions)} gone to make room` });
    for (const disk of cache.disks) {
      items.push({ name: disk.folder, value: `${bytes(disk.bytes)} of ${bytes(disk.limit)}`, share: disk.bytes / disk.limit, kind: disk.off ? "bad" : "", note: disk.off ? "off, since it fails" : counted(disk.entries, "response") });
    }
    for (const [outcome, times] of Object.entries(cache.requests).filter(([, times]) => times > 0)) {
      items.push({ name: outcome, value: count(times), share: times / all });
    }
  }
  bars("cache", items);
  put(byId("cache-sub"), all ? counted(all, "request") : "");
}

function showFirewall({ firewall }) {
  const most = Math.max(1, ...firewall.scores.map(score => score.requests));
  const matches = Math.max(1, ...firewall.rules.map(rule => rule.matches));
  bars("scores", firewall.scores.map(score => ({ name: `${score.from} to ${score.from + 4}`, value: count(score.requests), share: score.requests / most, kind: score.from >= 5 ? "warn" : "" })));
  bars("rules", firewall.rules.map(rule => ({ name: "Rule " + rule.rule, value: count(rule.matches), share: rule.matches / matches })));
  const seen = firewall.requests > 0;
  byId("firewall-empty").hidden = seen;
  document.querySelectorAll(".when-firewall").forEach(head => { head.hidden = !seen; });
  put(byId("firewall-sub"), seen ? `${counted(firewall.requests, "request")}, ${count(firewall.stops)} stopped${firewall.dry_run_stops ? `, ${count(firewall.dry_run_stops)} would be` : ""}` : "");
}

function showSteps(figures, before) {
  const wait = less(figures.offload.wait.buckets, before.offload.wait.buckets);
  put(byId("offload-sub"), `${figures.offload.queue} waiting` + (sum(wait) === 0 ? "" : `, 99 % ${percentile(wait, figures.wait_bounds_ms, 0.99)}`));
  const cost = step => step.mean_us * step.runs;
  const told = step => [step.stops && counted(step.stops, "stop"), step.blocked && `${count(step.blocked)} blocked a worker`, step.panics && counted(step.panics, "panic")];
  const steps = figures.steps.slice(0, 6);
  const most = Math.max(1, ...steps.map(cost));
  bars("steps", steps.map(step => ({
    name: step.step, value: `${count(step.runs)} × ${step.timed ? millis(step.mean_us / 1000) : "–"}`, share: cost(step) / most,
    note: told(step).filter(Boolean).join(", "),
  })));
}

function requestItem() {
  const item = make("li");
  item.append(make("span", "ms"), make("span", "when"), make("span", "what"));
  return item;
}

function showRequest(item, { ms, status, what }) {
  put(item.children[0], millis(ms));
  put(item.children[1], status);
  put(item.children[2], what);
  item.children[2].title = what;
}

function showRequests(figures) {
  const place = (_, index) => String(index);
  const numbered = items => items.map((item, index) => ({ ...item, index }));
  const key = item => place(item, item.index);
  list(byId("underway"), numbered(figures.under_way.map(one => ({ ms: one.ms, status: "", what: `${one.method} ${one.host}${one.target}` }))), key, requestItem, showRequest);
  list(byId("slowest"), numbered(figures.slowest.map(one => ({ ms: one.duration_us / 1000, status: String(one.status || "–"), what: `${one.method} ${one.host}${one.path}` }))), key, requestItem, showRequest);
}

function showFailures({ count: all, last }) {
  put(byId("failures-sub"), all > last.length ? `the last ${last.length} of ${count(all)}` : "");
  list(byId("failures"), last, failure => String(failure.number), ({ request }) => {
    const details = make("details");
    const summary = make("summary");
    const time = make("span", "when", new Date(request.time).toLocaleTimeString([], { hour12: false }));
    const status = make("span", "hot", String(request.status || "–"));
    const what = make("span", "what", `${request.method || ""} ${request.host || ""}${request.path || ""}`);
    summary.append(time, status, what, make("span", "kind", request.error || ""));
    const fields = make("dl", "fields");
    for (const [name, value] of Object.entries(request)) {
      fields.append(make("dt", "", name), make("dd", "", typeof value === "object" ? JSON.stringify(value) : String(value)));
    }
    details.append(summary, fields);
    return details;
  }, () => {});
}

function showCertificates({ certificates, files }) {
  const now = Date.now() / 1000;
  const item = (name, end, state, note, title) => {
    const left = end - now;
    const revoked = state === "revoked";
    const kind = revoked || state.startsWith("not-") || left < 3 * 86400 ? "bad" : left < 14 * 86400 || state === "temporary" ? "warn" : "good";
    return { name, value: revoked ? "revoked" : left > 0 ? span(left) + " left" : "expired", share: left / (90 * 86400), kind, note, key: title || name, title };
  };
  const stapling = one => (one.ocsp && one.ocsp.error) || "";
  const items = certificates.map(one => item(one.name, one.not_after, one.state, one.error || stapling(one) || (one.state === "valid" ? "" : one.state)))
    .concat(files.map(one => item(one.file.slice(one.file.lastIndexOf("/") + 1), one.not_after, one.state, one.error || stapling(one), one.file)));
  items.sort((a, b) => a.share - b.share);
  bars("certificates", items);
}

// ---- the connection ----

function linkIs(text, className) {
  put(byId("link"), text);
  byId("link").className = "link " + className;
}

const HANDLERS = { figures: show, failures: showFailures, certificates: showCertificates };

function connect() {
  const source = new EventSource("events");
  for (const [name, handle] of Object.entries(HANDLERS)) {
    source.addEventListener(name, event => {
      received = Date.now();
      linkIs("live", "live");
      handle(JSON.parse(event.data));
    });
  }
  source.addEventListener("error", () => {
    // The browser tries again by itself, unless the answer was a refusal.
    if (source.readyState === EventSource.CLOSED) {
      linkIs("refused, trying again", "lost");
      setTimeout(connect, LOST_AFTER);
    }
  });
}

connect();
setInterval(() => {
  if (received && Date.now() - received > LOST_AFTER) linkIs("lost, trying again", "lost");
}, 1000);
window.addEventListener("resize", () => { if (history.length) showCharts(history[history.length - 1]); });
