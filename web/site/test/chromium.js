// A browser without a window, spoken to through a pipe; and the site, served.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const TYPES = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm",
  ".json": "application/json", ".npz": "application/octet-stream", ".svg": "image/svg+xml", ".png": "image/png",
};

/** Serves a folder as any static host would. */
export async function serve(folder) {
  const asked = [];
  const server = createServer((request, answer) => {
    const path = join(folder, normalize(new URL(request.url, "http://h").pathname).replace(/\/$/, "/index.html"));
    asked.push(`${request.method} ${request.url}`);
    if (!existsSync(path) || !statSync(path).isFile()) {
      answer.writeHead(404).end();
      return;
    }
    answer.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" });
    createReadStream(path).pipe(answer);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { url: `http://127.0.0.1:${server.address().port}/`, asked, close: () => server.close() };
}

/** Starts Chromium with one page. */
export async function browse(profile) {
  const browser = spawn("chromium", [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
    `--user-data-dir=${profile}`, "about:blank",
  ], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const [, , , into, out] = browser.stdio;
  const waiting = new Map();
  const listeners = new Set();
  let number = 0;
  let rest = Buffer.alloc(0);
  out.on("data", (bytes) => {
    rest = Buffer.concat([rest, bytes]);
    for (let end = rest.indexOf(0); end >= 0; end = rest.indexOf(0)) {
      const message = JSON.parse(rest.subarray(0, end));
      rest = rest.subarray(end + 1);
      const promise = waiting.get(message.id);
      waiting.delete(message.id);
      if (promise === undefined) listeners.forEach((listener) => listener(message));
      else if (message.error) promise.reject(new Error(message.error.message));
      else promise.resolve(message.result);
    }
  });
  const raw = (method, params, sessionId) => new Promise((resolve, reject) => {
    number += 1;
    waiting.set(number, { resolve, reject });
    into.write(`${JSON.stringify({ id: number, method, params, sessionId })}\0`);
  });
  const { targetId } = await raw("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await raw("Target.attachToTarget", { targetId, flatten: true });
  const send = (method, params = {}) => raw(method, params, sessionId);
  const page = {
    send,
    browser: raw,
    on: (listener) => listeners.add(listener),
    off: (listener) => listeners.delete(listener),
    async run(expression) {
      const { result, exceptionDetails } = await send("Runtime.evaluate", {
        expression, awaitPromise: true, returnByValue: true, userGesture: true,
      });
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      return result.value;
    },
    /** Waits, in the page, until an expression is true. */
    async until(expression, seconds = Number(process.env.HALTWISE_PATIENCE ?? 60)) {
      const found = await page.run(`new Promise((done) => {
        const end = Date.now() + ${1000 * seconds};
        (function look() {
          if (${expression}) done(true);
          else if (Date.now() > end) done(false);
          else requestAnimationFrame(look);
        })();
      })`);
      if (!found) {
        const seen = await page.run("document.getElementById('status').textContent + ' | ' + document.getElementById('problem').textContent");
        throw new Error(`never: ${expression} (${seen})`);
      }
    },
    async close() {
      await raw("Browser.close").catch(() => {});
      if (browser.exitCode === null) await once(browser, "exit");
    },
  };
  await send("Page.enable");
  await send("Runtime.enable");
  return page;
}
