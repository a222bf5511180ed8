// The package beside the command line: the same bytes, the same numbers, the same words.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const from = process.env.HALTWISE_NPM ?? new URL("../../../target/npm/", import.meta.url).href;
const cli = process.env.HALTWISE_CLI;
const haltwise = await import(new URL("node.js", from));
const { Rule, Traces, calibrate, evaluate, report, replay, results, onProgress } = haltwise;

const folder = mkdtempSync(join(tmpdir(), "haltwise-"));
const STEPS = 10;
const CLASSES = 3;

// A small generator, so that every run sees the same numbers.
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

// Sequences whose answer becomes clear with time.
function draw(n, seed, unequal = false) {
  const random = generator(seed);
  const arrays = {
    labels: [], probs: [], scores: [], predictions: [], lengths: [], ids: [], steps: STEPS, classes: CLASSES,
  };
  for (let i = 0; i < n; i++) {
    const label = Math.floor(random() * CLASSES);
    const clear = 1 + random() * STEPS;
    arrays.labels.push(label);
    arrays.ids.push(`s${seed}-${i}`);
    arrays.lengths.push(unequal ? 4 + Math.floor(random() * (STEPS - 3)) : STEPS);
    for (let t = 1; t <= STEPS; t++) {
      const evidence = 3 * (t / clear - 0.5) + 2 * (random() - 0.5);
      const logits = Array.from({ length: CLASSES }, (_, k) => (k === label ? evidence : random()));
      const weights = logits.map((x) => Math.exp(x));
      const sum = weights.reduce((a, b) => a + b);
      const probs = weights.map((w) => Math.fround(w / sum));
      arrays.probs.push(...probs);
      const top = Math.max(...probs);
      arrays.predictions.push(probs.indexOf(top));
      arrays.scores.push(top);
    }
  }
  return arrays;
}

function rows(arrays, { probs = true, scores = true, ids = true } = {}) {
  const { steps, classes } = arrays;
  return arrays.labels.map((label, i) => {
    const row = { label };
    const length = arrays.lengths[i];
    if (ids) row.id = arrays.ids[i];
    const span = (array) => Array.from(array.slice(i * steps, i * steps + length));
    if (scores) {
      row.predictions = span(arrays.predictions);
      row.scores = span(arrays.scores);
    }
    if (probs) {
      row.probs = Array.from({ length }, (_, t) => {
        const at = (i * steps + t) * classes;
        return Array.from(arrays.probs.slice(at, at + classes));
      });
    }
    return row;
  });
}

function jsonl(arrays, what) {
  return rows(arrays, what).map((row) => JSON.stringify(row)).join("\n") + "\n";
}

function run(...words) {
  return execFileSync(cli, words, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
}

const whole = draw(3000, 1);
const other = draw(1000, 2);
const file = jsonl(whole);
writeFileSync(join(folder, "traces.jsonl"), file);
writeFileSync(join(folder, "other.jsonl"), jsonl(other));
const traces = Traces.read("traces.jsonl", Buffer.from(file));

const options = [
  {},
  { method: "adaptive", score: "gap", alpha: 0.05 },
  { method: "adaptive", score: "confidence", delta: 0.1, seed: 7 },
  { method: "conditional" },
  { method: "conditional", score: "margin", alpha: 0.2, screenFraction: 0.4, gridStep: 0.005 },
  { method: "conditional", score: "gap", screenBy: "risk" },
  { method: "marginal" },
  { method: "marginal", score: "max-probability", alpha: 0.03 },
  { method: "screen-only" },
  { method: "adaptive", loss: "disagreement" },
  { method: "adaptive", by: "label", alpha: 0.2 },
];

function words(asked) {
  const dashed = (name) => `--${name.replace(/[A-Z]/g, (c) => `-${c.toLowerCase()}`)}`;
  return Object.entries(asked).flatMap(([name, value]) => [dashed(name), String(value)]);
}

test("rule files are those of the command line, byte for byte", { skip: !cli && "no HALTWISE_CLI" }, () => {
  let early = 0;
  for (const asked of options) {
    run("calibrate", "traces.jsonl", "-o", "rule.json", ...words(asked));
    const expected = readFileSync(join(folder, "rule.json"), "utf8");
    const read = Traces.read("traces.jsonl", Buffer.from(file), asked);
    const { rule } = calibrate(read, asked);
    assert.equal(rule.toString(), expected, JSON.stringify(asked));
    early += rule.thresholds.slice(0, -1).some((v) => v < Infinity);
  }
  assert.ok(early >= options.length - 2, "rules that halt early were compared");
});

test("evaluations and reports are those of the command line", { skip: !cli && "no HALTWISE_CLI" }, () => {
  for (const method of ["adaptive", "marginal"]) {
    run("calibrate", "traces.jsonl", "-o", "rule.json", "--method", method);
    const printed = run("evaluate", "rule.json", "other.jsonl", "--json", "--report", "report.html");
    const rule = Rule.load(readFileSync(join(folder, "rule.json")));
    const measured = Traces.read("other.jsonl", Buffer.from(jsonl(other)));
    const { flattered, ...found } = evaluate(rule, measured);
    assert.equal(flattered, false);
    assert.deepEqual(found, JSON.parse(printed));
    const page = report(rule, measured, { traces: "other.jsonl", rule: "rule.json" });
    assert.equal(page, readFileSync(join(folder, "report.html"), "utf8"));
    assert.equal(evaluate(rule, traces).flattered, true);
  }
});

test("live decisions are those of the command line", { skip: !cli && "no HALTWISE_CLI" }, () => {
  for (const method of ["adaptive", "conditional"]) {
    run("calibrate", "traces.jsonl", "-o", "rule.json", "--method", method);
    const whole = Rule.load(readFileSync(join(folder, "rule.json"), "utf8"));
    const little = Rule.load(run("export", "rule.json", "--to", "json-min"));
    assert.deepEqual(little.thresholds, whole.thresholds);
    assert.throws(() => little.promise, /record/);
    const said = rows(other).slice(0, 200);
    const lines = said.flatMap(({ id, predictions, scores, probs }) => probs.map((p, t) =>
      JSON.stringify({ id, prediction: predictions[t], score: scores[t], probs: p, end: t + 1 === probs.length })));
    const decided = execFileSync(cli, ["decide", "rule.json"], { cwd: folder, input: lines.join("\n") + "\n" });
    const expected = new Map();
    for (const line of decided.toString().trim().split("\n").map((line) => JSON.parse(line))) {
      expected.set(line.id, line);
    }
    for (const rule of [whole, little]) {
      said.forEach(({ id, predictions, scores, probs }, i) => {
        const stream = rule.stream();
        for (let t = 0; t < probs.length; t++) {
          const answer = stream.observe({ probs: probs[t], score: scores[t], prediction: predictions[t] });
          assert.equal(answer.halt, stream.halted);
          if (answer.halt) break;
        }
        stream.end();
        assert.equal(stream.steps, expected.get(id).t, id);
        assert.equal(stream.reason, expected.get(id).reason);
        if (rule === whole) {
          const again = replay(rule, Traces.from(other), i);
          assert.deepEqual([again.steps, again.reason], [stream.steps, stream.reason]);
          assert.deepEqual(again.predictions, predictions);
        }
      });
    }
  }
});

test("arrays give the rule of the same file", () => {
  for (const unequal of [false, true]) {
    const arrays = draw(1500, 3, unequal);
    const read = Traces.read("t.jsonl", Buffer.from(jsonl(arrays)));
    const typed = { ...arrays, probs: Float32Array.from(arrays.probs), scores: Float32Array.from(arrays.scores) };
    assert.equal(read.length, 1500);
    assert.equal(calibrate(typed).rule.toString(), calibrate(read).rule.toString());
  }
});

test("what is wrong is said, and nothing is broken by it", () => {
  const { rule } = calibrate(traces, { method: "conditional" });
  const text = rule.toString();
  const hostile = [
    "", "{}", "null", "[]", text.slice(0, -20), text.replace('"alpha": 0.1', '"alpha": 1e300'),
    text.replace(/"t_max": \d+/, '"t_max": 4294967295'), text.replace(/"thresholds": \[/, '"thresholds": [7, '),
    text.replace('"version": 2', '"version": 99'), "[".repeat(100000),
    JSON.stringify({ format: "haltwise-live-rule", version: 1, thresholds: [0.5], score: "margin", classes: 0, reads_on: true }),
    JSON.stringify({ format: "haltwise-live-rule", version: 1, reads_on: false, thresholds: [0.5],
      score: { gap: { uses_score: false, classes: 4294967295, t_max: 1, weights: Array(20).fill(0), intercept: 0 } } }).replace("0.5", "NaN"),
  ];
  for (const bytes of hostile) {
    assert.throws(() => Rule.load(bytes), (error) => error instanceof Error && !(error instanceof WebAssembly.RuntimeError));
  }
  const random = generator(9);
  for (let i = 0; i < 300; i++) {
    const bytes = Buffer.from(text);
    for (let k = 0; k < 3; k++) bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
    try {
      Rule.load(bytes).stream().observe({ score: 0.5 });
    } catch (error) {
      assert.ok(!(error instanceof WebAssembly.RuntimeError), String(error));
    }
  }
  const learned = { format: "haltwise-live-rule", version: 1, reads_on: false, thresholds: [0.5, 0.5],
    score: { gap: { uses_score: false, classes: 40, t_max: 1, weights: Array(20).fill(0.5), intercept: 0 } } };
  const stream = Rule.load(learned).stream();
  assert.throws(() => stream.observe({ probs: [0.5, 0.5] }), /40/);
  assert.throws(() => stream.observe({}), /probs/);
  assert.equal(stream.observe({ probs: Array(40).fill(1 / 40) }).steps, 1);
  const ofProbs = calibrate(traces, { method: "marginal", score: "max-probability" }).rule;
  assert.throws(() => ofProbs.stream().observe({ probs: [0.9, 0.9, 0.9] }), /add up to 1/);
  assert.throws(() => Traces.read("traces.txt", Buffer.from("x")), /extension/);
  assert.throws(() => Traces.read("t.parquet", Buffer.from("PAR1")), /Parquet/);
  assert.throws(() => Traces.read("t.npz", Buffer.from("PK\x03\x04 no")), /t\.npz/);
  assert.throws(() => Traces.from({ labels: [1], scores: [2], predictions: [0] }), /score/);
  assert.throws(() => Traces.from({ labels: [0, 1], scores: [0.5, 0.5, 0.5], predictions: [0] }), /steps|numbers/);
  for (const labels of [[-1, 1], [NaN, 1], [0.5, 1]]) {
    const arrays = { labels, scores: [0.5, 0.5], predictions: [0, 1] };
    assert.throws(() => Traces.from(arrays), /row 1, labels: .* number the classes from 0, and give null/);
  }
  assert.throws(() => calibrate(traces, { alpha: 2 }), /alpha/);
  assert.throws(() => calibrate(traces, { method: "best" }), /method/);
  assert.throws(() => calibrate(traces, { levels: 2 }), /levels/);
  assert.equal(calibrate(traces, { method: "conditional" }).rule.toString(), text, "all still works");
});

test("progress is told, and results are a part of a page", () => {
  const told = [];
  onProgress((done, total) => told.push([done, total]));
  const { rule } = calibrate(traces);
  onProgress(null);
  assert.ok(told.length >= 20 && told.every(([done, total]) => done <= total && total === 3000));
  const before = told.length;
  const second = calibrate(traces, { method: "marginal" }).rule;
  assert.equal(told.length, before);
  const html = results([rule, second], ["adaptive", "marginal"], 0, Traces.from(other));
  assert.match(html, /class="verdict/);
  assert.equal(html.match(/<svg/g).length, 7);
});

test("the larger module reads Parquet and gives the same rule", {
  skip: !(cli && process.env.HALTWISE_COLUMNAR) && "no HALTWISE_COLUMNAR",
}, async () => {
  const columnar = await import(new URL("columnar/node.js", from));
  const bytes = readFileSync(process.env.HALTWISE_COLUMNAR);
  writeFileSync(join(folder, "t.parquet"), bytes);
  run("calibrate", "t.parquet", "-o", "rule.json");
  const read = columnar.Traces.read("t.parquet", bytes);
  const { rule } = columnar.calibrate(read);
  assert.equal(rule.toString(), readFileSync(join(folder, "rule.json"), "utf8"));
  assert.throws(() => columnar.Traces.read("t.parquet", bytes.subarray(0, 500)), /t\.parquet/);
});

test("the lines in docs/anywhere.md run", async () => {
  const page = readFileSync(new URL("../../../docs/anywhere.md", import.meta.url), "utf8");
  const [, block] = page.match(/```js\n([^]*?)```/);
  // The example imports the package and awaits it in browsers; the test has done both.
  const lines = block.split("\n").filter((line) => !/^import |^await init/.test(line));
  const body = lines.join("\n").replace("traces.npz", "traces.jsonl");
  const given = {
    Rule, Traces, calibrate, json: String(calibrate(traces, { score: "max-probability" }).rule), bytes: Buffer.from(file), probs: [0.2, 0.5, 0.3],
  };
  const run = new (async () => {}).constructor(...Object.keys(given), `${body}\nreturn { halt, text: String(rule) };`);
  const { halt, text } = await run(...Object.values(given));
  assert.equal(typeof halt, "boolean");
  assert.equal(JSON.parse(text).method, "conditional");
});

test("a rule of some groups reads the others to the end", () => {
  const { labels, predictions, scores, steps } = draw(3000, 11);
  const site = (i) => (i % 150 === 0 ? "islet" : ["north", "south"][i % 2]);
  const lines = labels.map((label, i) => {
    const span = (array) => array.slice(i * steps, (i + 1) * steps);
    return JSON.stringify({
      id: `s${i}`, label, predictions: span(predictions), scores: span(scores), site: site(i),
    });
  });
  const traces = Traces.read("t.jsonl", lines.join("\n"), { by: "site" });
  const { rule } = calibrate(traces, { by: "site", alpha: 0.2 });
  assert.deepEqual(rule.toJSON().halts_in, ["north", "south"]);
  const halt = (group) => {
    const stream = rule.stream({ group });
    let found;
    do found = stream.observe({ score: 1, prediction: 0 });
    while (!found.halt);
    return found.steps;
  };
  assert.ok(halt("north") < steps);
  assert.equal(halt("south"), halt("north"));
  for (const group of ["islet", "east", undefined]) assert.equal(halt(group), steps);
  assert.equal(replay(rule, traces, 0).steps, steps);
});
