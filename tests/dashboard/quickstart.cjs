// The page of the quickstart in a real browser: each card does what it says, and nothing is wrong with its accessibility. Called by `run`.
"use strict";

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { chromium } = require("playwright-core");

const [binary, browserPath, pictures] = process.argv.slice(2);
const axeSource = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const start = Date.now();
let passed = 0, failed = 0;

function check(name, holds, detail) {
  if (holds) passed++;
  else {
    failed++;
    console.log(`FAILED ${name}${detail === undefined ? "" : ": " + JSON.stringify(detail)}`);
  }
}

/** The quickstart, and the address that its output names. */
function quickstart(folder) {
  const child = spawn(binary, ["quickstart", "--state", folder], { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  const address = new Promise((done, fail) => {
    const read = data => {
      output += data;
      const found = /^Open (http:\S+) /m.exec(output);
      if (found && output.includes("Ctrl-C")) done(found[1]);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("exit", code => fail(new Error(`the quickstart ended with ${code}:\n${output}`)));
    setTimeout(() => fail(new Error(`the quickstart does not listen:\n${output}`)), 20000).unref();
  });
  return { child, address, output: () => output };
}

async function text(page, id, holds) {
  const end = Date.now() + 8000;
  let last = "";
  while (Date.now() < end) {
    last = await page.textContent("#" + id);
    if (holds.test(last)) return check(`${id} shows ${holds}`, true);
    await new Promise(done => setTimeout(done, 50));
  }
  check(`${id} shows ${holds}`, false, last);
}

async function tryAll(page) {
  await page.click('button[data-get="/.git/config"]');
  await text(page, "rule", /^404/);
  await page.click('button[data-get="/hello"]');
  await text(page, "rule", /^200Hello from the proxy/);
  await page.click("#limit-go");
  await text(page, "limit", /429Again in \d+ s/);
  await page.click("#waf-form button");
  await text(page, "waf", /^403this request was refused/);
  await page.fill("#waf-text", "shoes");
  await page.click("#waf-form button");
  await text(page, "waf", /^200Nothing was found/);
  await page.click("#rewrite-go");
  await text(page, "rewrite", /^200The origin saw GET \/api\/echo\?shop=winter$/);
  await page.click("#compress-go");
  await text(page, "compress", /256\.0 KiB(zstd|br|gzip)\d\.\d KiB/);
  await page.click("#ws-form button");
  await text(page, "ws", /sent back: hello/);
  await text(page, "events", /number \d+ at \d\d:\d\d:\d\d/);
  await text(page, "log", /403GET \/search\?q=1/);
  await text(page, "log", /GET \/compressed/);
}

async function main() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "foregate-quickstart-"));
  const { child, address, output } = quickstart(folder);
  const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox"] });
  try {
    for (const [name, colorScheme, width] of [["light", "light", 1280], ["dark", "dark", 1280], ["wide", "light", 1440], ["phone", "light", 390]]) {
      const context = await browser.newContext({ colorScheme, viewport: { width, height: 844 } });
      const page = await context.newPage();
      page.on("pageerror", error => check(`${name}: no script fails`, false, error.message));
      await page.goto(await address);
      await tryAll(page);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      check(`${name}: the page is no wider than the screen`, over <= 0, over);
      await page.evaluate(axeSource);
      const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
      check(`${name}: axe-core finds nothing`, violations.length === 0, violations.map(one => one.id + ": " + one.nodes.map(node => node.target.join(" "))));
      if (pictures) {
        fs.mkdirSync(pictures, { recursive: true });
        await page.evaluate(() => window.scrollTo(0, 0));
        await page.screenshot({ path: path.join(pictures, `quickstart-${name}.png`), fullPage: true });
      }
      await context.close();
    }
    check("the terminal has the requests, and not those for the log", output().includes("/compressed") && !output().includes("access.log"));
  } finally {
    await browser.close();
    child.removeAllListeners("exit");
    child.kill("SIGTERM");
    await new Promise(done => child.on("exit", done));
    fs.rmSync(folder, { recursive: true, force: true });
  }
  console.log(`${passed} passed, ${failed} failed in ${((Date.now() - start) / 1000).toFixed(1)} s`);
  process.exit(failed ? 1 : 0);
}

main().catch(error => {
  console.log(`FAILED ${error.stack}\n${passed} passed, ${failed + 1} failed in ${((Date.now() - start) / 1000).toFixed(1)} s`);
  process.exit(1);
});
