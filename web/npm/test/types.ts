// Every function of the package, used as its types say: compiled by `make test-web`, never run.
import init, {
  Rule, Stream, Traces, calibrate, evaluate, onProgress, replay, report, results,
} from "haltwise";
import type { Decision, Evaluation, Options, Step, TraceArrays } from "haltwise";
import { Traces as Columnar } from "haltwise/columnar";

export async function all(bytes: ArrayBuffer): Promise<string> {
  await init();
  await init(new URL("haltwise_bg.wasm", "https://example.org/"));
  const arrays: TraceArrays = {
    labels: [0, null, 1],
    probs: new Float32Array(12),
    lengths: [2, 2, 1],
    ids: ["a", "b", "c"],
    steps: 2,
    classes: 2,
  };
  const given: Traces = Traces.from(arrays);
  const options: Options = {
    method: "adaptive",
    promise: "average",
    score: "gap",
    alpha: 0.1,
    delta: 0.01,
    fitFraction: 0.3,
    screenFraction: 0.5,
    seed: 1,
    gridStep: 0.01,
    screenBy: "risk",
    loss: "gap",
    scale: 1,
    by: "site",
    unit: "patient",
    weight: "share",
    weightBound: 3,
    cost: [1, 1, 4],
  };
  const read = Traces.read("traces.csv", new Uint8Array(bytes), { by: "site", cost: "1,1,4" });
  const columns = Columnar.read("traces.parquet", bytes);
  const probs: Float32Array = read.probs(0);
  onProgress((done: number, total: number) => console.log(done / total));
  onProgress(null);
  const { rule, warnings }: { rule: Rule; warnings: string[] } = calibrate(given, options);
  calibrate(arrays);
  const evaluation: Evaluation = evaluate(rule, read);
  const measured: (number | null)[] = evaluation.by_step.map((step) => step.gap_by);
  const whole: boolean = evaluation.flattered;
  const page: string = report(rule, read, { traces: "traces.csv", rule: "rule.json" });
  const { steps, reason, predictions } = replay(rule, columns, 0);
  const part: string = results([rule], ["adaptive"], 0, read);
  const again = [Rule.load(rule.toString()), Rule.load(bytes), Rule.load(rule.toJSON())];
  const thresholds: Float32Array = rule.thresholds;
  const stream: Stream = rule.stream();
  rule.stream({ group: "north" }).end();
  const step: Step = { probs: [0.2, 0.8], score: 0.8, prediction: 1 };
  const decision: Decision = stream.observe(step);
  const why: "threshold" | "last-step" | "end" | null = stream.skip().reason ?? stream.end().reason;
  return [
    rule.promise, warnings, probs.length, given.length, given.steps, measured, whole, page, steps, reason,
    predictions, part, again.length, thresholds.length, decision.halt, why, stream.steps, stream.halted,
  ].join();
}

// @ts-expect-error: a misspelt option is refused.
calibrate({ labels: [] }, { alfa: 0.1 });
// @ts-expect-error: so is a word that is none.
calibrate({ labels: [] }, { method: "best" });
// @ts-expect-error: and a rule that was made by hand.
new Rule();
