// The playground in a real browser, from the first load to the downloaded rule.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { browse, serve } from "./chromium.js";

const site = process.env.HALTWISE_SITE ?? fileURLToPath(new URL("../../../target/playground/", import.meta.url));
const cli = process.env.HALTWISE_CLI;
const shots = process.env.HALTWISE_SHOTS;
const folder = mkdtempSync(join(tmpdir(), "haltwise-site-"));
let page;
let host;
const said = [];

before(async () => {
  host = await serve(site);
  page = await browse(join(folder, "profile"));
  page.on(({ method, params }) => {
    if (method === "Runtime.exceptionThrown") said.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Log.entryAdded" && params.entry.level === "error") said.push(params.entry.text);
  });
  await page.send("Log.enable");
  await page.send("Network.enable");
  await page.browser("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: folder, eventsEnabled: true });
});

after(async () => {
  await page.close();
  host.close();
  rmSync(folder, { recursive: true, force: true });
});

async function shoot(name) {
  if (!shots) return;
  const { data } = await page.send("Page.captureScreenshot", { captureBeyondViewport: true });
  writeFileSync(join(shots, `${name}.png`), Buffer.from(data, "base64"));
}

// Results of the latest wish, whole.
async function shown(after) {
  await page.until(`+(document.documentElement.dataset.shown ?? 0) > ${after || 0} && document.getElementById("results").getAttribute("aria-busy") === "false"`);
  return page.run("+document.documentElement.dataset.shown");
}

async function choose(input, path) {
  const { root } = await page.send("DOM.getDocument");
  const { nodeId } = await page.send("DOM.querySelector", { nodeId: root.nodeId, selector: input });
  await page.send("DOM.setFileInputFiles", { nodeId, files: [path] });
}

async function downloaded(button, name) {
  const path = join(folder, name);
  rmSync(path, { force: true });
  const done = new Promise((resolve) => {
    const listener = ({ method, params }) => {
      if (method !== "Browser.downloadProgress" || params.state === "inProgress") return;
      page.off(listener);
      resolve(params.state);
    };
    page.on(listener);
  });
  await page.run(`document.getElementById("${button}").click()`);
  assert.equal(await done, "completed");
  assert.ok(existsSync(path), readdirSync(folder).join());
  return readFileSync(path, "utf8");
}

function byCommandLine(traces, ...words) {
  execFileSync(cli, ["calibrate", traces, "-o", join(folder, "cli.json"), ...words], { stdio: "ignore" });
  return readFileSync(join(folder, "cli.json"), "utf8");
}

async function key(name, code) {
  for (const type of ["rawKeyDown", "keyUp"]) {
    await page.send("Input.dispatchKeyEvent", { type, key: name, code: name, windowsVirtualKeyCode: code });
  }
}

test("the page loads little, soon, and from its own host only", async () => {
  await page.send("Page.navigate", { url: host.url });
  await page.until("document.documentElement?.dataset.ready === 'yes'");
  const soon = await page.run("performance.now()");
  const files = new Set(host.asked.map((line) => line.split(" ")[1].replace(/^\/$/, "/index.html")));
  const sizes = [...files].filter((file) => existsSync(join(site, file))).map((file) => gzipSync(readFileSync(join(site, file))).length);
  const all = sizes.reduce((a, b) => a + b);
  console.log(`${files.size} files, ${all} bytes compressed, ready after ${Math.round(soon)} ms`);
  assert.ok(all <= 1.2e6, `${all} bytes`);
  assert.ok(![...files].some((file) => /columnar|pendigits/.test(file)), [...files].join());
});

test("PenDigits can be tried, and its rule is the command line's", { skip: !cli && "no HALTWISE_CLI" }, async () => {
  await page.run("document.getElementById('try').click()");
  await page.until("document.getElementById('opened').textContent.includes('Measured on')");
  let at = await shown(1);
  await page.until("!document.getElementById('player').hidden");
  assert.equal(await page.run("document.querySelectorAll('#results svg').length"), 7);
  assert.equal(await page.run("document.querySelectorAll('#decisions tr').length"), 3);
  const traces = join(site, "pendigits/calibration.npz");
  assert.equal(await downloaded("rule", "rule.json"), byCommandLine(traces));
  const report = await downloaded("report", "report.html");
  assert.match(report, /^<!DOCTYPE html>/);
  await shoot("pendigits");

  // Another promise, by clicking; another level, by the keyboard.
  await page.run("document.querySelector('input[value=conditional]').click()");
  at = await shown(at);
  await page.run("document.getElementById('alpha').focus()");
  await key("ArrowRight", 39);
  at = await shown(at);
  const alpha = await page.run("document.getElementById('alpha').value");
  assert.equal(alpha, "0.105");
  assert.equal(await downloaded("rule", "rule.json"), byCommandLine(traces, "--method", "conditional", "--alpha", alpha));
});

test("a stroke is played step by step, and each rule stops once", async () => {
  const steps = await page.run("+document.getElementById('step').max");
  for (let step = 1; step <= steps; step++) {
    const rows = await page.run(`(() => {
      const input = document.getElementById("step");
      input.value = ${step};
      input.dispatchEvent(new Event("input", { bubbles: true }));
      return [...document.querySelectorAll("#decisions tr")].map((row) => [...row.cells].map((cell) => cell.textContent));
    })()`);
    for (const [, stop, , now] of rows) {
      assert.equal(now, step >= +stop.slice(5) ? "stopped" : "reads on");
    }
  }
  await page.run("document.getElementById('play').click()");
  await page.until("+document.getElementById('step').value === 3");
  await page.run("document.getElementById('play').click()");
});

test("files of every kind are read here, and Parquet's reader is loaded for Parquet only", { skip: !cli && "no HALTWISE_CLI" }, async () => {
  const rows = Array.from({ length: 600 }, (_, i) => {
    const clear = 1 + (i * 7919) % 5;
    const scores = [1, 2, 3, 4, 5, 6].map((t) => (t >= clear ? 0.9 + (i % 10) / 100 : 0.2 + ((i * 31 + t) % 60) / 100));
    const predictions = [1, 2, 3, 4, 5, 6].map((t) => (t >= clear || (i + t) % 3 === 0 ? i % 2 : 1 - (i % 2)));
    return { id: `s${i}`, label: i % 2, predictions, scores };
  });
  const jsonl = join(folder, "mine.jsonl");
  writeFileSync(jsonl, rows.map((row) => JSON.stringify(row)).join("\n"));
  const csv = join(folder, "mine.csv");
  const lines = rows.flatMap(({ id, label, predictions, scores }) => scores.map((score, t) => `${id},${t + 1},${label},${predictions[t]},${score}`));
  writeFileSync(csv, `id,t,label,prediction,score\n${lines.join("\n")}\n`);
  await page.run("document.querySelector('input[value=adaptive]').click()");
  await page.run("document.getElementById('alpha').value = 0.1");
  const parquet = process.env.HALTWISE_COLUMNAR;
  for (const file of [jsonl, csv, parquet]) {
    if (!file) continue;
    assert.ok(!host.asked.some((line) => line.includes("columnar")), "no Parquet yet");
    const at = await page.run("+document.documentElement.dataset.shown");
    await choose("#traces", file);
    await shown(at);
    assert.equal(await downloaded("rule", "rule.json"), byCommandLine(file), file);
    assert.equal(await page.run("document.getElementById('player').hidden"), true);
  }
  if (parquet) assert.ok(host.asked.some((line) => line.includes("columnar/wasm/haltwise_bg.wasm")));
});

test("on average, by group, by unit and by cost: the rule is the command line's", { skip: !cli && "no HALTWISE_CLI" }, async () => {
  const rows = Array.from({ length: 1500 }, (_, i) => {
    const clear = 1 + (i * 7919) % 5;
    const steps = [1, 2, 3, 4, 5, 6];
    return {
      id: `s${i}`,
      label: i % 2,
      predictions: steps.map((t) => (t >= clear || (i + t) % 3 === 0 ? i % 2 : 1 - (i % 2))),
      scores: steps.map((t) => (t >= clear ? 0.9 + (i % 10) / 100 : 0.2 + ((i * 31 + t) % 60) / 100)),
      site: i % 3 === 0 ? "north" : "south",
      patient: `p${i >> 1}`,
      tokens: steps.map((t) => t * (1 + (i % 4))),
    };
  });
  const file = join(folder, "more.jsonl");
  writeFileSync(file, rows.map((row) => JSON.stringify(row)).join("\n"));
  let at = await page.run("+document.documentElement.dataset.shown");
  await page.run("document.getElementById('alpha').value = 0.2");
  await choose("#traces", file);
  at = await shown(at);
  await page.run("document.querySelector('.more summary').focus()");
  for (const type of ["keyDown", "keyUp"]) {
    await page.send("Input.dispatchKeyEvent", { type, key: "Enter", code: "Enter", text: "\r", windowsVirtualKeyCode: 13 });
  }
  await page.until("document.querySelector('.more').open");
  for (const [method, wishes, words] of [
    ["adaptive", { promise: "average" }, ["--promise", "average"]],
    ["adaptive", { by: "site" }, ["--by", "site"]],
    ["conditional", { by: "label" }, ["--by", "label"]],
    ["adaptive", { unit: "patient" }, ["--unit", "patient"]],
    ["adaptive", { cost: "tokens" }, ["--cost", "tokens"]],
    ["adaptive", { promise: "average", cost: "1,1,4" }, ["--promise", "average", "--cost", "1,1,4"]],
    ["marginal", { unit: "patient" }, ["--unit", "patient"]],
  ]) {
    const fields = { promise: "", by: "", unit: "", cost: "", ...wishes };
    await page.run(`(() => {
      document.querySelector("input[value=${method}]").checked = true;
      for (const [id, value] of Object.entries(${JSON.stringify(fields)})) document.getElementById(id).value = value;
      document.getElementById("by").dispatchEvent(new Event("change", { bubbles: true }));
    })()`);
    at = await shown(at);
    const expected = byCommandLine(file, "--method", method, "--alpha", "0.2", ...words);
    assert.equal(await downloaded("rule", "rule.json"), expected, words.join(" "));
  }
  // A column that is not there is named, and what was asked for before can be asked for again.
  const ask = (by) => page.run(`(() => {
    for (const id of ["by", "unit", "cost"]) document.getElementById(id).value = "";
    const input = document.getElementById("by");
    input.value = ${JSON.stringify(by)};
    input.dispatchEvent(new Event("change", { bubbles: true }));
  })()`);
  await ask("nowhere");
  await page.until("/nowhere/.test(document.getElementById('problem').textContent)");
  await ask("");
  await shown(at);
  assert.equal(await page.run("document.getElementById('problem').hidden"), true);
  await page.run("document.querySelector('input[value=adaptive]').click()");
  await page.run("document.getElementById('promise').value = ''");
});

test("what cannot be read is explained, and the page goes on", async () => {
  const bad = join(folder, "bad.csv");
  writeFileSync(bad, "id,t,label,prediction,score\na,1,0,0,7\n");
  await choose("#traces", bad);
  await page.until("/bad\\.csv.*7/.test(document.getElementById('problem').textContent)");
  const at = await page.run("+document.documentElement.dataset.shown");
  await choose("#traces", join(site, "pendigits/calibration.npz"));
  await shown(at);
  assert.equal(await page.run("document.getElementById('problem').hidden"), true);
});

test("the page stays responsive while the sliders move", async () => {
  await page.browser("Target.setDiscoverTargets", { discover: false });
  const events = [];
  const listener = ({ method, params }) => method === "Tracing.dataCollected" && events.push(...params.value);
  page.on(listener);
  await page.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["devtools.timeline", "disabled-by-default-devtools.timeline", "toplevel", "__metadata"] } });
  let at = await page.run("+document.documentElement.dataset.shown");
  for (const alpha of [0.12, 0.15, 0.2, 0.08, 0.1]) {
    await page.run(`(() => { const input = document.getElementById("alpha"); input.value = ${alpha}; input.dispatchEvent(new Event("input", { bubbles: true })); })()`);
    at = await shown(at);
  }
  const complete = new Promise((resolve) => page.on(({ method }) => method === "Tracing.tracingComplete" && resolve()));
  await page.send("Tracing.end");
  await complete;
  page.off(listener);
  const mains = new Set(events.filter((e) => e.name === "thread_name" && e.args.name === "CrRendererMain").map((e) => `${e.pid}:${e.tid}`));
  const tasks = events.filter((e) => /RunTask/.test(e.name) && e.dur >= 0 && mains.has(`${e.pid}:${e.tid}`));
  assert.ok(tasks.length > 0, "tasks were traced");
  // The task's processor time: on a busy machine the clock also counts others.
  const cost = (e) => (e.tdur ?? e.dur) / 1000;
  const worst = tasks.reduce((a, b) => (cost(a) >= cost(b) ? a : b));
  const longest = cost(worst);
  const within = events.filter((e) => e !== worst && e.dur && e.pid === worst.pid && e.tid === worst.tid && e.ts >= worst.ts && e.ts + e.dur <= worst.ts + worst.dur);
  const parts = within.sort((a, b) => cost(b) - cost(a)).slice(0, 6).map((e) => `${e.name} ${cost(e).toFixed(1)}`);
  const clocked = tasks.reduce((a, b) => (a.dur >= b.dur ? a : b));
  console.log(
    `${tasks.length} tasks on the main thread, the longest took ${longest.toFixed(1)} ms (${parts.join(", ")}); ` +
      `by the clock ${(clocked.dur / 1000).toFixed(1)} ms, processor ${cost(clocked).toFixed(1)}`,
  );
  assert.ok(longest <= 50, `${longest} ms`);
});

test("it fits a phone, is dark in the dark, and everything has a name", async () => {
  for (const [name, width, dark] of [["phone", 390, false], ["phone-dark", 390, true], ["desktop-dark", 1280, true]]) {
    await page.send("Emulation.setDeviceMetricsOverride", { width, height: 844, deviceScaleFactor: 1, mobile: width < 500 });
    await page.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }] });
    await page.run("new Promise(requestAnimationFrame)");
    const [wide, inner, paper] = await page.run("[document.documentElement.scrollWidth, innerWidth, getComputedStyle(document.body).backgroundColor]");
    assert.ok(wide <= inner, `${name}: ${wide} > ${inner}`);
    const light = paper.match(/\d+/g).slice(0, 3).every((part) => +part > 128);
    assert.equal(light, !dark, `${name}: ${paper}`);
    await shoot(name);
  }
  const { nodes } = await page.send("Accessibility.getFullAXTree");
  const roles = new Set(["button", "slider", "radio", "combobox", "spinbutton", "textbox", "DisclosureTriangle", "image", "progressbar"]);
  const named = nodes.filter((node) => !node.ignored && roles.has(node.role?.value));
  assert.ok(named.length > 10);
  for (const node of named) assert.ok(node.name?.value, JSON.stringify(node));
});

test("nothing was sent anywhere, and nothing went wrong in the page", () => {
  assert.ok(host.asked.every((line) => line.startsWith("GET ")), host.asked.join());
  assert.deepEqual(said, []);
});
