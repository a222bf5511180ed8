/** Loads the module. In a browser, await it first; Node does not need it. */
export default function init(module?: RequestInfo | URL | BufferSource | WebAssembly.Module): Promise<void>;

/** What the classifier says at one step. */
export interface Step {
  /** The class probabilities. */
  probs?: Float32Array | ArrayLike<number>;
  /** The score that comes with the step. */
  score?: number;
  /** The predicted class. Default: the most probable class. */
  prediction?: number;
}

export interface Decision {
  /** Whether to stop here and use the present prediction. */
  halt: boolean;
  /** Why: the score reached its threshold, the rule has no more steps, or the stream ended. */
  reason: "threshold" | "last-step" | "end" | null;
  /** How many steps the stream has seen, up to its halt. */
  steps: number;
}

export class Rule {
  private constructor();
  /** Reads a rule file, or a file of `haltwise export --to json-min`. Refuses a damaged one. */
  static load(json: string | Uint8Array | ArrayBuffer | object): Rule;
  /** One threshold per step, Infinity for never. */
  readonly thresholds: Float32Array;
  /** The promise, in words. */
  readonly promise: string;
  /** A new live stream. A rule by group needs its `group`: streams of groups that it does not halt
   * are read to their end. */
  stream(options?: { group?: string | number }): Stream;
  /** The text of its file, byte for byte what the command line writes. */
  toString(): string;
  toJSON(): object;
}

export class Stream {
  private constructor();
  /** Shows the next step. Refuses a step without a usable score, and does not count it. */
  observe(step: Step): Decision;
  /** Counts a step without a usable score. */
  skip(): Decision;
  /** Ends the stream. */
  end(): Decision;
  readonly steps: number;
  readonly halted: boolean;
  readonly reason: Decision["reason"];
}

/** Arrays, row by row: one sequence after the other, one step after the other. */
export interface TraceArrays {
  /** The true class of each sequence; counted from 0; null if it is not known. */
  labels: ArrayLike<number | null>;
  /** n × steps × classes. */
  probs?: Float32Array | ArrayLike<number>;
  /** n × steps. */
  predictions?: Uint32Array | ArrayLike<number>;
  /** n × steps. */
  scores?: Float32Array | ArrayLike<number>;
  /** How many steps each sequence has, if not all have the same number. */
  lengths?: ArrayLike<number>;
  ids?: ArrayLike<string>;
  steps?: number;
  classes?: number;
}

export class Traces {
  private constructor();
  static from(arrays: TraceArrays): Traces;
  /** A file: .npz, .csv or .jsonl; with "haltwise/columnar" also .parquet and .arrow. */
  static read(name: string, bytes: Uint8Array | ArrayBuffer, options?: Options): Traces;
  readonly length: number;
  readonly steps: number;
  probs(sequence: number): Float32Array;
}

/** The options of `haltwise calibrate`, with the same names. */
export interface Options {
  /** How to find the rule. By default adaptive. */
  method?: "adaptive" | "marginal" | "conditional" | "screen-only";
  /** The score, which says how safe it is to stop. By default the score of the traces; with the method adaptive, that or the learned one, whichever promises to halt earlier. */
  score?: "confidence" | "max-probability" | "margin" | "gap";
  /** The share of the traces that is set aside to fit to, if no others are given. By default 0.3. */
  fitFraction?: number;
  /** With the method conditional: the share of the traces that screens, if no others are given. By default 0.5. */
  screenFraction?: number;
  /** The seed that draws the parts, if the traces are split. By default 0. */
  seed?: number;
  /** The tolerated gap: the share of sequences for which stopping early may lose a right answer. By default 0.1. */
  alpha?: number;
  /** The probability with which the guarantee may fail. By default 0.01. */
  delta?: number;
  /** The distance between the thresholds that the paper's methods choose from. By default 0.01. */
  gridStep?: number;
  /** With the methods conditional and screen-only: how to choose a threshold. By default risk. */
  screenBy?: "risk" | "p-value";
  /** What to do if labels and predictions agree less often than chance. By default refuse. */
  labelCheck?: "refuse" | "skip";
  /** What the rule is for. By default use. */
  purpose?: "use" | "explore";
  /** With the method adaptive: which sequences the promise covers. By default halted-by. */
  promise?: "halted-by" | "average";
  /** The loss that stopping early may cause. By default gap. */
  loss?: "gap" | "disagreement" | "given" | "absolute";
  /** With the loss absolute: how much further from the truth counts as a loss of 1. */
  scale?: number;
  /** Guarantee the promise separately for each value of this column, such as a hospital or a device, or for each true class (`label`). */
  by?: string;
  /** Count all sequences with the same value in this column, such as a patient or a driver, as one draw. They are split and certified as a whole. */
  unit?: string;
  /** Guarantee the promise for a declared shift. This column says how much more often each sequence occurs where the rule will be used. */
  weight?: string;
  /** With `weight`: the largest weight allowed. With bound B and a mean weight of 1, about one trace in B is used. */
  weightBound?: number;
  /** The cost of reading a step: a column with a cost per step, or costs such as 1,1,4. The last cost applies to all later steps. The rule then minimises the cost instead of the halt time. By default every step as much. */
  cost?: string | number[];
}

export interface Evaluation {
  n: number;
  t_max: number;
  t_avg: number;
  gap: number;
  by_step: { t: number; halted: number; halted_by: number; gap_by: number | null }[];
  /** Whether the rule was made from some of these traces. */
  flattered: boolean;
  /** Whether the rule was made from all or some of these traces; left out if it remembers none of them. */
  calibrated_on?: "all" | "some";
  [more: string]: unknown;
}

/** Finds and certifies a rule, as `haltwise calibrate` does. */
export function calibrate(traces: Traces | TraceArrays, options?: Options): { rule: Rule; warnings: string[] };
/** What a rule does to traces: the fields of `haltwise evaluate --json`. */
export function evaluate(rule: Rule, traces: Traces | TraceArrays): Evaluation;
/** The report on a rule, as one self-contained HTML file. */
export function report(rule: Rule, traces: Traces | TraceArrays, names?: { traces?: string; rule?: string }): string;
/** What a rule does to one trace, counted from 0. */
export function replay(rule: Rule, traces: Traces | TraceArrays, sequence: number): { steps: number; reason: "threshold" | "last-step" | "end"; predictions: (number | null)[] };
/** The playground's view of rules: a part of a page. */
export function results(rules: Rule[], names: string[], chosen: number, traces: Traces): string;
/** Sets the listener for the progress of calibrating. */
export function onProgress(listener: ((done: number, total: number) => void) | null): void;
