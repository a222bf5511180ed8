// The package as its users see it: thin classes around the border of WebAssembly. They compute
// nothing.
import * as wasm from "./wasm/haltwise.js";

const wrapped = Symbol("wrapped");

function bytesOf(json) {
  if (json instanceof Uint8Array) return json;
  if (json instanceof ArrayBuffer) return new Uint8Array(json);
  return new TextEncoder().encode(typeof json === "string" ? json : JSON.stringify(json));
}

function floats(array) {
  return array == null || array instanceof Float32Array ? array : Float32Array.from(array);
}

/** A label as its class's number, -1 for one that is not known. */
function numbered(label, i) {
  if (label == null) return -1;
  if (Number.isInteger(label) && label >= 0) return label;
  throw new RangeError(
    `row ${i + 1}, labels: ${label} is not the number of a class; number the classes from 0, and give null for a label ` +
      "that is not known",
  );
}

/** A certified stopping rule. */
export class Rule {
  constructor(inner, key) {
    if (key !== wrapped) throw new TypeError("use Rule.load(json) or calibrate(traces)");
    this[wrapped] = inner;
  }

  /** Reads a rule file (text, bytes or the parsed object). Refuses a damaged one. */
  static load(json) {
    return new Rule(wasm.Rule.load(bytesOf(json)), wrapped);
  }

  /** One threshold per step, Infinity for never. */
  get thresholds() {
    return this[wrapped].thresholds();
  }

  /** The promise, in words. */
  get promise() {
    return this[wrapped].promise();
  }

  /** The text of its file, byte for byte what the command line writes. */
  toString() {
    return this[wrapped].text();
  }

  toJSON() {
    return JSON.parse(this.toString());
  }

  /** A new live stream. A rule by group needs its `group`: streams of groups that it does not halt
   * are read to their end. */
  stream({ group } = {}) {
    return new Stream(this[wrapped].stream(group == null ? undefined : String(group)), wrapped);
  }
}

/** One live stream. Show its steps one by one, and stop when it says so. */
export class Stream {
  constructor(inner, key) {
    if (key !== wrapped) throw new TypeError("use rule.stream()");
    this[wrapped] = inner;
  }

  #decision(reason) {
    return { halt: reason !== undefined, reason: reason ?? null, steps: this.steps };
  }

  /** Shows the next step. Refuses a step without a usable score, and does not count it. */
  observe({ probs, score, prediction } = {}) {
    const reason = this[wrapped].observe(floats(probs), score ?? undefined, prediction ?? undefined);
    return this.#decision(reason);
  }

  /** Counts a step without a usable score. */
  skip() {
    return this.#decision(this[wrapped].skip());
  }

  /** Ends the stream. */
  end() {
    return this.#decision(this[wrapped].end());
  }

  /** How many steps the stream has seen, up to its halt. */
  get steps() {
    return this[wrapped].steps();
  }

  /** Why it halted; null while it runs. */
  get reason() {
    return this[wrapped].reason() ?? null;
  }

  get halted() {
    return this.reason !== null;
  }
}

/** What a classifier said about sequences. */
export class Traces {
  constructor(inner, key) {
    if (key !== wrapped) throw new TypeError("use Traces.from(arrays) or Traces.read(name, bytes)");
    this[wrapped] = inner;
  }

  /** From arrays, row by row: `probs` (n × steps × classes), or `predictions` and `scores`. */
  static from({ labels, probs, predictions, scores, lengths, ids, steps, classes } = {}) {
    const n = labels?.length ?? 0;
    const perSequence = (array) => (array == null || n === 0 ? undefined : array.length / n);
    const t = steps ?? perSequence(scores) ?? perSequence(predictions) ??
      (classes ? perSequence(probs) / classes : undefined);
    if (!Number.isInteger(t) || t < 1) {
      throw new TypeError("give the number of steps of a sequence (steps), and classes with probs");
    }
    const k = classes ?? (probs == null ? 0 : probs.length / n / t);
    if (!Number.isInteger(k)) throw new TypeError("probs must have n × steps × classes numbers");
    return new Traces(
      wasm.Traces.given(
        t, k, Int32Array.from(labels, numbered), floats(probs),
        predictions == null ? undefined : Uint32Array.from(predictions), floats(scores),
        lengths == null ? undefined : Uint32Array.from(lengths),
        ids == null ? undefined : Array.from(ids, String),
      ),
      wrapped,
    );
  }

  /** From the bytes of a file: .npz, .csv or .jsonl; with "haltwise/columnar" also .parquet. */
  static read(name, bytes, options = {}) {
    return new Traces(wasm.Traces.read(name, bytesOf(bytes), JSON.stringify(options)), wrapped);
  }

  /** How many sequences. */
  get length() {
    return this[wrapped].sequences();
  }

  /** The steps of the longest sequence. */
  get steps() {
    return this[wrapped].steps();
  }

  /** The class probabilities of one sequence, step by step. */
  probs(sequence) {
    return this[wrapped].probs(sequence);
  }
}

function tracesOf(given) {
  return (given instanceof Traces ? given : Traces.from(given))[wrapped];
}

/** Finds and certifies a rule, as `haltwise calibrate` does. */
export function calibrate(traces, options = {}) {
  const found = wasm.calibrate(tracesOf(traces), JSON.stringify(options));
  return { rule: new Rule(found.rule(), wrapped), warnings: found.warnings() };
}

/** What a rule does to traces: the fields of `haltwise evaluate --json`. */
export function evaluate(rule, traces) {
  return JSON.parse(wasm.evaluate(rule[wrapped], tracesOf(traces)));
}

/** The report on a rule, as one self-contained HTML file. */
export function report(rule, traces, { traces: name = "traces", rule: file = "rule.json" } = {}) {
  return wasm.report(rule[wrapped], tracesOf(traces), [name, file]);
}

/** What a rule does to one trace: where it stops and why, and the predictions. */
export function replay(rule, traces, sequence) {
  return JSON.parse(wasm.replay(rule[wrapped], tracesOf(traces), sequence));
}

/** The playground's view of rules: a part of a page. */
export function results(rules, names, chosen, traces) {
  const handles = rules.map((rule) => rule[wrapped].again());
  return wasm.results(handles, names, chosen, tracesOf(traces));
}

/** Sets the listener for the progress of calibrating: sequences seen in a pass, and in all. */
export function onProgress(listener) {
  wasm.on_progress(listener ?? undefined);
}
