// The dashboard in a real browser, with traffic of all kinds behind it. Called by `run`.
"use strict";

const { execFileSync, spawn } = require("node:child_process");
const fs = require("node:fs");
const http = require("node:http");
const os = require("node:os");
const path = require("node:path");
const { chromium } = require("playwright-core");

const [binary, browserPath, pictures] = process.argv.slice(2);
const axeSource = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const WATCH_SECONDS = Number(process.env.WATCH_SECONDS || 12);
const PASSWORD = "correct horse";

const start = Date.now();
let passed = 0, failed = 0;

function check(name, holds, detail) {
  if (holds) passed++;
  else {
    failed++;
    console.log(`FAILED ${name}${detail === undefined ? "" : ": " + JSON.stringify(detail)}`);
  }
}

const pause = millis => new Promise(done => setTimeout(done, millis));

async function until(name, holds, within = 8000) {
  const end = Date.now() + within;
  let last;
  while (Date.now() < end) {
    last = await holds();
    if (last) return check(name, true);
    await pause(100);
  }
  check(name, false, last);
}

function freePort() {
  return new Promise((done, fail) => {
    const server = http.createServer();
    server.on("error", fail);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

function origin() {
  const server = http.createServer((request, response) => {
    const wait = request.url.startsWith("/slow") ? 900 : Math.random() ** 4 * 120;
    setTimeout(() => {
      if (request.url.startsWith("/broken")) return request.socket.destroy();
      const status = request.url.startsWith("/teapot") ? 418 : request.url.startsWith("/moved") ? 302 : 200;
      response.writeHead(status, { "content-type": "text/plain", "cache-control": "max-age=30" });
      response.end("hello\n".repeat(40));
    }, wait);
  });
  return new Promise(done => server.listen(0, "127.0.0.1", () => done(server)));
}

function get(port, target, headers = {}, method = "GET", body) {
  return new Promise((done, fail) => {
    const request = http.request({ port, host: "127.0.0.1", path: target, headers, method }, response => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", data => { text += data; });
      response.on("end", () => done({ status: response.statusCode, headers: response.headers, text }));
      response.on("error", fail);
    });
    request.on("error", fail);
    request.end(body);
  });
}

function configuration(folder, ports) {
  fs.writeFileSync(path.join(folder, "rules.conf"), `
SecRuleEngine On
SecRule ARGS "@contains attack" "id:1001,phase:1,pass,log,setvar:tx.blocking_inbound_anomaly_score=+5"
SecRule ARGS "@contains worse" "id:1002,phase:1,pass,log,setvar:tx.blocking_inbound_anomaly_score=+15"
SecRule ARGS "@contains worst" "id:1003,phase:1,deny,status:403,log"
`);
  execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9", "-subj", "/CN=shop.example",
    "-addext", "subjectAltName=DNS:shop.example", "-keyout", path.join(folder, "shop.key"), "-out", path.join(folder, "shop.pem")], { stdio: "ignore" });
  const file = path.join(folder, "foregate.kdl");
  fs.writeFileSync(file, `
workers 2
listen "127.0.0.1:${ports.listen}"
listen "127.0.0.1:${ports.tls}" { tls { certificate "shop.pem" key="shop.key"; } }
metrics "127.0.0.1:${ports.metrics}"
admin "admin.sock"
dashboard "127.0.0.1:${ports.dashboard}" { allow-changes; password "plain:${PASSWORD}"; }
upstream "app" { server "127.0.0.1:${ports.one}"; server "127.0.0.1:${ports.two}"; }
upstream "billing" { server "127.0.0.1:${ports.none}"; }
site "shop.example" {
    route "/cached/**" { cache; proxy "app"; }
    route "/search" { waf mode="block" { rules "rules.conf"; }; proxy "app"; }
    route "/billing/**" { proxy "billing"; }
    route "/staff/**" { basic-auth realm="staff" { user "ada" "$2y$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"; }; proxy "app"; }
    route "/**" { proxy "app"; }
}
site "api.example" { route "/**" { proxy "app"; } }
`);
  return file;
}

/** Sends requests of all kinds until it is stopped. */
function traffic(port) {
  const targets = ["/", "/index.html", "/cached/a", "/cached/b", "/cached/a", "/search?q=shoes", "/search?q=attack", "/search?q=worse", "/search?q=worst",
    "/teapot", "/moved", "/slow", "/broken", "/billing/17", "/staff/"];
  const state = { on: true, sent: 0, open: 0 };
  state.timer = setInterval(() => {
    for (let one = 0; one < 6 && state.open < 200; one++) {
      const turn = state.sent++;
      const target = turn % 4 ? targets[Math.floor(turn / 4) * 7 % 3] : targets[Math.floor(turn / 4) % targets.length];
      const headers = { host: turn % 5 ? "shop.example" : "api.example", "user-agent": "tests/dashboard" };
      if (target === "/staff/") headers.authorization = "Basic " + Buffer.from("ada:" + turn).toString("base64");
      state.open++;
      get(port, target, headers).catch(() => {}).finally(() => { state.open--; });
    }
  }, 100);
  state.stop = async () => {
    clearInterval(state.timer);
    while (state.open > 0) await pause(50);
  };
  return state;
}

/** Processor time of a process, seconds. */
function processorTime(pid) {
  const fields = fs.readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

async function axe(page, name) {
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
  check(`${name}: axe-core finds nothing`, violations.length === 0,
    violations.map(one => `${one.id}: ${one.nodes.slice(0, 3).map(node => node.target.join(" ") + " " + node.failureSummary).join("; ")}`));
}

async function picture(page, name) {
  if (pictures) {
    fs.mkdirSync(pictures, { recursive: true });
    await page.evaluate(() => window.scrollTo(0, 0));
    await page.screenshot({ path: path.join(pictures, name + ".png"), fullPage: true });
  }
}

async function agrees(ports) {
  const authorization = "Basic " + Buffer.from("anybody:" + PASSWORD).toString("base64");
  const figures = JSON.parse((await get(ports.dashboard, "/figures", { authorization })).text);
  const metrics = (await get(ports.metrics, "/metrics")).text.split("\n");
  const total = (prefix, ...parts) => metrics.filter(line => line.startsWith(prefix) && parts.every(part => line.includes(part)))
    .reduce((all, line) => all + Number(line.slice(line.lastIndexOf(" "))), 0);
  figures.status_classes.forEach((name, index) => {
    check(`requests ${name} agree`, figures.sites.classes[index] === total("foregate_requests_total{", `status="${name}"`), figures.sites.classes[index]);
  });
  for (const site of figures.sites.shown) {
    const of = site.classes.reduce((all, one) => all + one, 0);
    check(`site ${site.site} agrees`, of === total("foregate_requests_total{", `site="${site.site}"`), of);
    check(`latencies of ${site.site} agree`, site.durations.reduce((all, one) => all + one, 0) === total("foregate_request_duration_seconds_count{", `site="${site.site}"`));
  }
  for (const [outcome, times] of Object.entries(figures.cache.requests)) {
    check(`cache ${outcome} agrees`, times === total("foregate_cache_requests_total{", `outcome="${outcome}"`), times);
  }
  for (const step of figures.steps) {
    check(`step ${step.step} agrees`, step.runs === total("foregate_step_runs_total{", `step="${step.step}"`), step);
  }
  check("accepted connections agree", Math.abs(figures.connections.accepted - total("foregate_connections_accepted_total")) === 0);
  check("the firewall has scores", figures.firewall.scores.length >= 2 && figures.firewall.stops > 0, figures.firewall);
  check("heavy work was counted", figures.offload.wait.buckets.some(one => one > 0));
}

async function orders(page, ports, servers) {
  const row = page.locator(".servers tbody tr", { hasText: `127.0.0.1:${ports.one}` });
  await row.getByRole("button", { name: "Take out" }).focus();
  page.once("dialog", dialog => dialog.accept());
  await page.keyboard.press("Enter");
  await until("a server is taken out from the page", async () => (await row.locator(".state").textContent()) === "off");
  const before = servers[0].requests;
  for (let one = 0; one < 20; one++) await get(ports.listen, "/index.html", { host: "shop.example" });
  check("a server that was taken out gets nothing", servers[0].requests === before, servers[0].requests - before);
  await row.getByRole("button", { name: "Put to work" }).click();
  await until("it is put to work again", async () => (await row.locator(".state").textContent()) === "up");
  await row.getByRole("button", { name: "Drain" }).click();
  await until("it drains", async () => (await row.locator(".state").textContent()) === "draining");
  await row.getByRole("button", { name: "Put to work" }).click();
  await until("it works again", async () => (await row.locator(".state").textContent()) === "up");
}

async function refusals(ports) {
  const right = "Basic " + Buffer.from("ada:" + PASSWORD).toString("base64");
  const wrong = "Basic " + Buffer.from("ada:guess").toString("base64");
  check("no password, no page", (await get(ports.dashboard, "/")).status === 401);
  check("a wrong password, no page", (await get(ports.dashboard, "/", { authorization: wrong })).status === 401);
  const page = await get(ports.dashboard, "/", { authorization: right });
  check("the policy is strict", /default-src 'none'; script-src 'self'; style-src 'self'/.test(page.headers["content-security-policy"]));
  check("nothing of others is named", !/(?:src|href)="(?:https?:)?\/\//.test(page.text));
  const token = /name="foregate-token" content="([^"]+)"/.exec(page.text)[1];
  const order = JSON.stringify({ upstream: "app", server: `127.0.0.1:${ports.one}`, order: "down" });
  const good = { authorization: right, "content-type": "application/json", "x-foregate-token": token };
  const post = headers => get(ports.dashboard, "/servers", headers, "POST", order).then(answer => answer.status);
  check("an order without the token", await post({ ...good, "x-foregate-token": "x" }) === 403);
  check("an order of another origin", await post({ ...good, origin: "https://evil.example" }) === 403);
  check("an order of a form", await post({ ...good, "content-type": "text/plain" }) === 403);
  check("an order without the password", await post({ ...good, authorization: wrong }) === 401);
  const unknown = await get(ports.dashboard, "/servers", good, "POST", JSON.stringify({ upstream: "app", server: "nobody", order: "down" }));
  check("an order for nobody", unknown.status === 409 && unknown.text.includes("has no server"), unknown);
}

async function main() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "foregate-dashboard-"));
  const servers = [await origin(), await origin()];
  for (const server of servers) {
    server.requests = 0;
    server.on("request", () => { server.requests++; });
  }
  const ports = { one: servers[0].address().port, two: servers[1].address().port };
  for (const name of ["listen", "tls", "metrics", "dashboard", "none"]) ports[name] = await freePort();
  const file = configuration(folder, ports);
  const proxy = spawn(binary, ["run", "--single", "-c", file], { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  proxy.stderr.on("data", data => { log += data; });
  let browser;
  try {
    await until("the proxy starts", () => get(ports.metrics, "/health").then(answer => answer.status === 200, () => false), 15000);
    await refusals(ports);
    const load = traffic(ports.listen);
    browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu"] });
    const faults = [];
    const open = async (name, options) => {
      const context = await browser.newContext({ httpCredentials: { username: "ada", password: PASSWORD }, ...options });
      const page = await context.newPage();
      page.on("console", message => { if (["error", "warning"].includes(message.type())) faults.push(`${name}: ${message.text()}`); });
      page.on("pageerror", error => faults.push(`${name}: ${error.message}`));
      page.on("request", request => { if (!request.url().startsWith(`http://127.0.0.1:${ports.dashboard}/`) && !request.url().startsWith("data:")) faults.push(`${name}: ${request.url()}`); });
      await page.goto(`http://127.0.0.1:${ports.dashboard}/`);
      await until(`${name} is live`, async () => (await page.locator("#link").textContent()) === "live");
      return page;
    };
    const light = await open("light", { viewport: { width: 1440, height: 1000 }, colorScheme: "light" });
    const dark = await open("dark", { viewport: { width: 1440, height: 1000 }, colorScheme: "dark" });
    const tablet = await open("tablet", { viewport: { width: 1024, height: 1366 }, colorScheme: "light" });
    const phone = await open("phone", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme: "light" });
    await pause(WATCH_SECONDS * 1000);
    for (const [name, page] of Object.entries({ light, dark, tablet, phone })) {
      await page.locator("#failures details summary").first().click();
      await picture(page, name);
      await axe(page, name);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      check(`${name} does not scroll sideways`, wide <= 0, wide);
      const cut = await page.evaluate(() => [...document.querySelectorAll(".scroll")].filter(box => box.scrollWidth > box.clientWidth).map(box => box.getAttribute("aria-label")));
      check(`${name}: no table is cut`, cut.length === 0, cut);
    }
    check("the request behind an error is shown", (await light.locator("#failures").textContent()).includes("user_agent"));
    check("the certificate is shown with its days", /shop\.pem.*days left/.test(await light.locator("#certificates").textContent()));
    await load.stop();
    await orders(light, ports, servers);
    await pause(1500);
    await agrees(ports);
    const top = JSON.parse(execFileSync(binary, ["top", "--json", "-c", file], { encoding: "utf8" }));
    const text = execFileSync(binary, ["top", "--once", "-c", file], { encoding: "utf8" });
    const page = JSON.parse((await get(ports.dashboard, "/figures", { authorization: "Basic " + Buffer.from("a:" + PASSWORD).toString("base64") })).text);
    check("`foregate top` agrees", JSON.stringify(top.sites) === JSON.stringify(page.sites), [top.sites, page.sites]);
    check("`foregate top` keeps to 80 columns", text.split("\n").every(line => line.length <= 80) && text.includes("shop.example"), text);
    check("the page breaks no rule of its policy and asks nobody else", faults.length === 0, faults.slice(0, 5));
    // One viewer, no traffic: the cost of looking.
    await dark.context().close();
    await tablet.context().close();
    await phone.context().close();
    await pause(1500);
    const began = processorTime(proxy.pid);
    await pause(5000);
    const used = (processorTime(proxy.pid) - began) / 5;
    check("a viewer costs at most 1 % of a core", used <= 0.012, used);
    console.log(`a viewer costs ${(used * 100).toFixed(1)} % of a core`);
    await light.context().close();
  } finally {
    if (browser) await browser.close();
    proxy.kill("SIGTERM");
    await new Promise(done => { if (proxy.exitCode !== null) done(); else proxy.once("exit", done); });
    servers.forEach(server => { server.closeAllConnections(); server.close(); });
    if (failed) console.log(log.split("\n").slice(-20).join("\n"));
    check("no panic", !log.includes("panicked"));
    fs.rmSync(folder, { recursive: true });
  }
  console.log(`${passed} passed, ${failed} failed in ${Math.round((Date.now() - start) / 1000)} s`);
  process.exit(failed ? 1 : 0);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
