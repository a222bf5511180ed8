// Reads traces and finds rules, off the page's own thread. All numbers come from the package.
const METHODS = ["adaptive", "conditional", "marginal"];
const COLUMNAR = /\.(parquet|arrow|feather|ipc)$/i;

let api = null;
let columnar = false;
// The opened files, by role: "traces" and "test". Their bytes stay, because the larger module that
// reads Parquet cannot see what the smaller one has read.
const files = new Map();
const opened = new Map();
let rules = [];
let latest = 0;
// The wishes that files are read by: which columns matter beside what the classifier said.
let columns = {};

async function load(withColumns) {
  if (api !== null && (columnar || !withColumns)) return;
  const loaded = await import(withColumns ? "./haltwise/columnar/browser.js" : "./haltwise/browser.js");
  await loaded.default();
  api = loaded;
  columnar = withColumns;
  api.onProgress((done, total) => postMessage({ kind: "progress", done, total }));
  rules = [];
  again(columns);
}

// Reads all files again, with these columns. If one fails, all stay as they are.
function again(asked) {
  const read = [...files].map(([role, { name, bytes }]) => [role, api.Traces.read(name, bytes, asked)]);
  for (const [role, traces] of read) opened.set(role, traces);
  columns = asked;
}

// Wishes as options.
function values(wishes, wanted) {
  const all = Object.entries(wishes).filter(([, wish]) => wanted(wish));
  return Object.fromEntries(all.map(([name, { value }]) => [name, value]));
}

function lookAt(wishes) {
  const asked = values(wishes, ({ reads }) => reads);
  if (JSON.stringify(asked) !== JSON.stringify(columns)) again(asked);
}

async function open({ role, name, bytes }) {
  await load(columnar || COLUMNAR.test(name));
  // Another file may have other columns; calibrating asks for them.
  if (role === "traces") columns = {};
  const traces = api.Traces.read(name, new Uint8Array(bytes), columns);
  files.set(role, { name, bytes: new Uint8Array(bytes) });
  opened.set(role, traces);
  if (role === "traces") rules = [];
  postMessage({ kind: "opened", role, name, sequences: traces.length, steps: traces.steps });
}

function close({ role }) {
  files.delete(role);
  opened.delete(role);
}

function find(method, wishes) {
  const began = performance.now();
  // Ask a method only for the options that it takes.
  const asked = values(wishes, ({ methods }) => methods === undefined || methods.includes(method));
  const { rule, warnings } = api.calibrate(opened.get("traces"), { ...asked, method });
  return { method, rule, warnings, took: performance.now() - began };
}

function show(number, found, chosen, whole) {
  const names = found.map(({ method }) => method);
  const html = api.results(found.map(({ rule }) => rule), names, chosen, measured());
  const { took, warnings } = found[chosen];
  postMessage({ kind: "results", number, html, took, warnings, whole });
}

function measured() {
  return opened.get("test") ?? opened.get("traces");
}

// Lets messages that came meanwhile go first.
function others() {
  return new Promise((done) => setTimeout(done, 0));
}

async function calibrate({ number, wishes }) {
  latest = number;
  await others();
  if (latest !== number || !opened.has("traces")) return;
  lookAt(wishes);
  const method = wishes.method.value;
  rules = [find(method, wishes)];
  show(number, rules, 0, false);
  // The other methods are for comparison: one that refuses these options is left out.
  const all = [];
  for (const other of METHODS) {
    if (other === method) {
      all.push(rules[0]);
      continue;
    }
    await others();
    if (latest !== number) return;
    try {
      all.push(find(other, wishes));
    } catch {
      // Left out.
    }
  }
  rules = all;
  show(number, all, all.findIndex((found) => found.method === method), true);
}

function download({ what, method }) {
  const found = rules.find((rule) => rule.method === method);
  if (found === undefined) return;
  if (what === "rule") {
    postMessage({ kind: "file", name: "rule.json", type: "application/json", text: String(found.rule) });
    return;
  }
  const names = { traces: (files.get("test") ?? files.get("traces")).name, rule: "rule.json" };
  const text = api.report(found.rule, measured(), names);
  postMessage({ kind: "file", name: "report.html", type: "text/html", text });
}

function replay({ sequence }) {
  const decided = rules.map(({ method, rule }) => ({ method, ...api.replay(rule, measured(), sequence) }));
  postMessage({ kind: "replayed", sequence, decided });
}

const doing = { open, close, calibrate, download, replay };

onmessage = async ({ data }) => {
  try {
    await doing[data.kind](data);
  } catch (error) {
    postMessage({ kind: "problem", of: data.kind, number: data.number, words: error.message });
  }
};

load(false).then(
  () => postMessage({ kind: "ready" }),
  (error) => postMessage({ kind: "problem", of: "load", words: error.message }),
);
