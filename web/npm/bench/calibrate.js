// How long calibrating takes in WebAssembly, beside Rust on one thread, on traces that look like a
// classifier's. Medians of RUNS; both in turns, so that a busy machine is busy for both.
//
//   node calibrate.js NATIVE      NATIVE: the example calibrate_probs of crates/haltwise
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Traces, calibrate } from "../../../target/npm/node.js";

const RUNS = 5;
const native = process.argv[2];

/** Probabilities that settle on a class, right more often the later. */
function made(n, steps, classes) {
  let state = 1;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const probs = new Float32Array(n * steps * classes);
  const labels = new Uint32Array(n);
  for (let i = 0; i < n; i++) {
    labels[i] = Math.floor(next() * classes);
    const logits = new Float64Array(classes);
    const pull = (next() * 6) / steps;
    for (let t = 0; t < steps; t++) {
      let sum = 0;
      for (let k = 0; k < classes; k++) {
        logits[k] += (next() - 0.5) * 0.8 + (k === labels[i] ? pull : 0);
        sum += Math.exp(logits[k]);
      }
      for (let k = 0; k < classes; k++) probs[(i * steps + t) * classes + k] = Math.exp(logits[k]) / sum;
    }
  }
  return { probs, labels };
}

const median = (times) => times.sort((a, b) => a - b)[times.length >> 1];
const folder = mkdtempSync(join(tmpdir(), "haltwise-bench-"));
for (const [name, n, steps, classes] of [
  ["as ElectricDevices", 3329, 96, 7],
  ["a million steps", 10417, 96, 7],
  ["a million, 2 classes", 5000, 200, 2],
]) {
  const { probs, labels } = made(n, steps, classes);
  const files = ["probs", "labels"].map((file) => join(folder, file));
  writeFileSync(files[0], probs);
  writeFileSync(files[1], labels);
  const traces = Traces.from({ labels, probs, steps, classes });
  for (const method of ["marginal", "conditional", "adaptive"]) {
    const [here, there] = [[], []];
    for (let run = 0; run < RUNS; run++) {
      if (native) {
        const spoken = execFileSync(native, [...files, steps, classes, method].map(String), {
          env: { ...process.env, RAYON_NUM_THREADS: "1" },
        });
        there.push(Number(spoken));
      }
      const start = performance.now();
      calibrate(traces, { method });
      here.push(performance.now() - start);
    }
    const [wasm, rust] = [median(here), native ? median(there) : NaN];
    console.log(
      `${name} (${n} × ${steps} × ${classes}), ${method}: wasm ${wasm.toFixed(0)} ms, ` +
        `native ${rust.toFixed(0)} ms, ratio ${(wasm / rust).toFixed(1)}`,
    );
  }
}
rmSync(folder, { recursive: true });
