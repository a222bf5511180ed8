// The whole site, as `make site` builds it: every link leads somewhere, and pages fit wide and narrow
// screens, light and dark, without a word to another host.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { browse, serve } from "./chromium.js";

const site = resolve(process.env.HALTWISE_SITE ?? fileURLToPath(new URL("../../../target/site/", import.meta.url)));
const shots = process.env.HALTWISE_SHOTS;
const folder = mkdtempSync(join(tmpdir(), "haltwise-book-"));
let page;
let host;

function files(at) {
  return readdirSync(at, { withFileTypes: true }).flatMap((entry) => {
    const path = join(at, entry.name);
    return entry.isDirectory() ? files(path) : [path];
  });
}

const pages = files(site).filter((path) => path.endsWith(".html"));
const texts = new Map(pages.map((path) => [path, readFileSync(path, "utf8")]));

function plain(text) {
  return decodeURIComponent(text.replaceAll("&amp;", "&").replaceAll("&#x27;", "'"));
}

function anchors(path) {
  return new Set([...texts.get(path).matchAll(/\sid="([^"]*)"/g)].map((found) => plain(found[1])));
}

test("every link and every file that a page names is there", () => {
  const dead = [];
  for (const [path, text] of texts) {
    for (const [, to] of text.matchAll(/\s(?:href|src)="([^"]*)"/g)) {
      if (/^[a-z]+:/.test(to) || to === "") continue;
      const [file, anchor] = plain(to).split("#");
      let target = file.startsWith("/") ? join(site, file) : file ? resolve(dirname(path), file) : path;
      if (existsSync(target) && statSync(target).isDirectory()) target = join(target, "index.html");
      const lost = !existsSync(target) || (anchor && texts.has(target) && !anchors(target).has(anchor));
      if (lost) dead.push(`${relative(site, path)}: ${to}`);
    }
  }
  assert.deepEqual(dead, []);
  assert.ok(pages.length > 25, `${pages.length} pages`);
});

before(async () => {
  host = await serve(site);
  page = await browse(join(folder, "profile"));
  await page.send("Network.enable");
  await page.send("Log.enable");
});

after(async () => {
  await page.close();
  host.close();
  rmSync(folder, { recursive: true, force: true });
});

test("pages fit any screen, in both themes, and ask no other host", async () => {
  const elsewhere = [];
  page.on(({ method, params }) => {
    if (method === "Network.requestWillBeSent" && !/^(data:|blob:)/.test(params.request.url) &&
        !params.request.url.startsWith(host.url)) elsewhere.push(params.request.url);
  });
  const wanted = ["index.html", "start/python.html", "cli.html", "rule-file.html", "gallery/crops.html", "field.html",
    "measured.html", "playground/index.html"];
  for (const [look, width, mobile] of [["desktop", 1280, false], ["phone", 390, true]]) {
    await page.send("Emulation.setDeviceMetricsOverride", { width, height: 844, deviceScaleFactor: 1, mobile });
    for (const theme of ["light", "dark"]) {
      await page.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: theme }] });
      for (const name of wanted) {
        const loaded = new Promise((done) => {
          const listener = ({ method }) => {
            if (method !== "Page.loadEventFired") return;
            page.off(listener);
            done();
          };
          page.on(listener);
        });
        await page.send("Page.navigate", { url: host.url + name });
        await loaded;
        const wide = await page.run("document.documentElement.scrollWidth - innerWidth");
        assert.ok(wide <= 1, `${name} is ${wide} pixels wider than a ${look}`);
        const paper = await page.run(`(() => {
          const colours = [document.body, document.documentElement].map((one) => getComputedStyle(one).backgroundColor);
          const shown = colours.find((colour) => colour !== "rgba(0, 0, 0, 0)") ?? "rgb(255, 255, 255)";
          return shown.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0);
        })()`);
        assert.equal(paper < 384, theme === "dark", `${name} on ${theme}: ${paper}`);
        if (shots) {
          const { data } = await page.send("Page.captureScreenshot");
          writeFileSync(join(shots, `${name.replaceAll("/", "-")}-${look}-${theme}.png`), Buffer.from(data, "base64"));
        }
      }
    }
  }
  // The last page is the playground: it works there, and leads back.
  await page.until("document.documentElement?.dataset.ready === 'yes'");
  assert.equal(await page.run("document.querySelector('.brand a').href"), `${host.url}index.html`);
  assert.deepEqual(elsewhere, []);
});
