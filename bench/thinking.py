"""Certified ends of thoughts beside the usual ways: fixed budgets, and k equal answers in a row.

    python bench/thinking.py THOUGHTS docs/thinking.md docs/thinking.svg [SPLITS [DRAWS]]

THOUGHTS is a folder with `qwen3-8b.jsonl.gz` and `qwen3-1.7b.jsonl.gz`, one thought per line:
`question`, `gold`, `probes` (the answer after every 500 tokens, the last of them at the end) and
`tokens`. The script replaces the text between the comments that name it.

The first tables compare frontiers: thoughts count as draws of their own, which they are not. The
last one draws questions and thoughts again and again from the recorded ones. The
recorded ones are then the truth, and no test set is needed to see whether a rule breaks its promise.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import haltwise
import matplotlib
import numpy as np

matplotlib.use("svg")
import matplotlib.pyplot as plt

MODELS = {"8B": "qwen3-8b.jsonl.gz", "1.7B": "qwen3-1.7b.jsonl.gz"}
EVERY, ALPHA, DELTA = 500, 0.1, 0.05
# In the study of frontiers, and where tied thoughts are drawn: questions, and thoughts on each.
CALIBRATING, OF_QUESTION = 60, 16
# Questions with one thought each.
SINGLE = 1000
# Without labels alpha bounds the disagreement, which is more than the gap.
ALPHAS = {
    True: (0.02, 0.03, 0.05, 0.08, 0.12, 0.16, 0.2, 0.25),
    False: (0.05, 0.08, 0.12, 0.18, 0.25, 0.32, 0.4, 0.5),
}
EQUAL = (2, 3, 4, 6, 8, 10, 12, 16, 20)
BUDGETS = (2000, 4000, 6000, 8000, 12000, 16000, 20000, 24000, 28000)
GAPS = (0.02, 0.05, 0.08, 0.1, 0.15)
METHODS = {
    "average": {"method": "adaptive", "promise": "average"},
    "halted-by": {"method": "adaptive", "promise": "halted-by"},
    "one threshold": {"method": "marginal"},
}
HOW = {True: "with labels", False: "without labels"}
Point = tuple[float, float]


@dataclass
class Recorded:
    """Thoughts, and what stopping them at each step would do."""

    traces: dict[bool, haltwise.Traces]
    questions: np.ndarray
    spent: np.ndarray
    #: What stopping at each step loses: the gap, and what is promised without labels.
    losses: dict[bool, np.ndarray]
    times: np.ndarray
    in_a_row: np.ndarray
    last: np.ndarray

    def __len__(self) -> int:
        return len(self.last)

    def stopping(self, steps: np.ndarray, which: np.ndarray) -> Point:
        """The share of the tokens that is read, and of right answers that are lost."""
        read, whole = self.spent[which, steps[which]], self.spent[which, self.last[which]]
        return float(read.sum() / whole.sum()), float(self.lost(steps)[which].mean())

    def lost(self, steps: np.ndarray, labelled: bool = True) -> np.ndarray:
        return self.losses[labelled][np.arange(len(self)), steps]

    def worst_by(self, steps: np.ndarray, labelled: bool) -> float:
        """The largest loss among the thoughts halted by some step."""
        order = np.argsort(steps, kind="stable")
        means = np.cumsum(self.lost(steps, labelled)[order]) / np.arange(1, len(self) + 1)
        is_last_of_step = np.append(np.diff(steps[order]) > 0, True)
        return float(means[is_last_of_step].max())


@cache
def recorded(*paths: Path) -> Recorded:
    rows = []
    for path in paths:
        with gzip.open(path, "rt") as file:
            mine = [json.loads(line) for line in file]
        rows += [{**row, "question": f"{path.stem} {row['question']}"} for row in mine]
    # The recordings write ERR where a probe found no answer.
    answers = [["" if a == "ERR" else a for a in row["probes"]] for row in rows]
    last = np.array([len(row) - 1 for row in answers])
    t_max = last.max() + 1
    ends = EVERY * np.arange(1, t_max + 1)
    tokens = np.array([row["tokens"] for row in rows])
    spent = np.minimum(ends, tokens[:, None])
    spent = np.where(np.arange(t_max) >= last[:, None], tokens[:, None], spent)
    costs = [np.diff(row[: n + 1], prepend=0).tolist() for row, n in zip(spent, last, strict=True)]
    _, questions = np.unique([row["question"] for row in rows], return_inverse=True)
    labels = [row["gold"] for row in rows]
    traces = {
        labelled: haltwise.thoughts(
            answers, labels if labelled else None, tokens=costs, questions=questions
        )
        for labelled in HOW
    }
    known = traces[True]
    every = np.arange(len(rows))
    right = known.predictions == known.labels[:, None]
    at_end = known.predictions[every, last]
    losses = {
        True: right[every, last][:, None] & ~right,
        False: known.predictions != at_end[:, None],
    }
    times = np.rint(known.scores / (1 - known.scores)).astype(int)
    return Recorded(traces, questions, spent, losses, times, rows_of_equal(known), last)


def rows_of_equal(traces: haltwise.Traces) -> np.ndarray:
    """For how many probes in a row the answer has been the same; 0 if there is none."""
    found = np.zeros(traces.predictions.shape, dtype=int)
    for t, now in enumerate(traces.predictions.T):
        same = (now == traces.predictions[:, t - 1]) if t else False
        found[:, t] = np.where(now == 0, 0, np.where(same, found[:, t - 1] + 1, 1))
    return found


def first(enough: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The first step that is enough; the end, where there is none."""
    return np.minimum(np.where(enough.any(axis=1), enough.argmax(axis=1), last), last)


def halted(thoughts: Recorded, rule: haltwise.Rule) -> np.ndarray:
    traces = thoughts.traces[True]
    halts = rule.halt(traces.scores, predictions=traces.predictions, lengths=traces.lengths)
    return np.minimum(halts - 1, thoughts.last)


def certified(
    traces: haltwise.Traces, labelled: bool, alpha: float, seed: int, **how: object
) -> haltwise.Rule:
    loss = "gap" if labelled else "disagreement"
    if how["method"] == "adaptive":
        how |= {"seed": seed, "cost": "cost"}
    return haltwise.calibrate(traces, loss=loss, alpha=alpha, delta=DELTA, **how)


def one_split(path: Path, seed: int) -> dict[tuple[str, str], Point]:
    """Tokens and gap of each rule on the questions that were not drawn to calibrate on."""
    thoughts = recorded(path)
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(np.unique(thoughts.questions))[:CALIBRATING]
    calibrating = np.isin(thoughts.questions, drawn)
    which = np.flatnonzero(calibrating)
    which = np.sort(rng.choice(which, size=OF_QUESTION * CALIBRATING, replace=False))
    trying = np.flatnonzero(~calibrating)
    rules = {}
    for method, how in METHODS.items():
        for labelled in HOW:
            for alpha in ALPHAS[labelled]:
                rule = certified(thoughts.traces[labelled][which], labelled, alpha, seed, **how)
                rules[f"**{method}**, {HOW[labelled]}", f"{alpha:.0%}"] = halted(thoughts, rule)
    for k in EQUAL:
        rules["k equal answers", f"{k}"] = first(thoughts.in_a_row >= k, thoughts.last)
    for tokens in BUDGETS:
        rules["fixed budget", f"{tokens}"] = np.minimum(tokens // EVERY - 1, thoughts.last)
    return {name: thoughts.stopping(steps, trying) for name, steps in rules.items()}


def frontier(path: Path, splits: int, workers: ProcessPoolExecutor) -> dict[str, dict[str, Point]]:
    """The same, on average over the splits, by rule and setting."""
    all_splits = list(workers.map(partial(one_split, path), range(splits)))
    curves: dict[str, dict[str, Point]] = {}
    for name, setting in all_splits[0]:
        tokens, gap = np.mean([split[name, setting] for split in all_splits], axis=0)
        curves.setdefault(name, {})[setting] = (float(tokens), float(gap))
    return curves


def tokens_at(gap: float, points: dict[str, Point]) -> float | None:
    """The tokens that a rule reads at a realised gap, on the line between its settings."""
    gaps, tokens = zip(*sorted((g, t) for t, g in points.values()), strict=True)
    return float(np.interp(gap, gaps, tokens)) if gaps[0] <= gap <= gaps[-1] else None


def selected(thoughts: Recorded, which: np.ndarray, correction: str) -> np.ndarray:
    """The smallest count of an answer whose loss on these thoughts is at most alpha: with the
    corrections that the code of Conformal Thinking has."""
    n = len(which)
    more = {"uncorrected": 0.0, "Hoeffding": math.sqrt(math.log(1 / DELTA) / (2 * n))}
    for times in range(1, int(thoughts.times.max()) + 1):
        steps = first(thoughts.times >= times, thoughts.last)
        loss = float(thoughts.lost(steps)[which].mean())
        risk = (n * loss + 1) / (n + 1) if correction == "CRC" else loss + more[correction]
        if risk <= ALPHA:
            return steps
    return thoughts.last


def one_draw(paths: tuple[Path, ...], seed: int) -> dict[str, tuple[bool, float]]:
    """Whether each rule breaks its promise on all recorded thoughts, and the tokens it reads."""
    thoughts = recorded(*paths)
    every = np.arange(len(thoughts))
    rng = np.random.default_rng(10_000 + seed)
    # One thought per question: draws of a question and of a thought about it.
    single = rng.integers(len(thoughts), size=SINGLE)
    found = {}

    def add(name: str, steps: np.ndarray, loss: float | None = None) -> None:
        tokens, gap = thoughts.stopping(steps, every)
        found[name] = ((gap if loss is None else loss) > ALPHA, tokens)

    for method, how in METHODS.items():
        for labelled in HOW:
            rule = certified(thoughts.traces[labelled][single], labelled, ALPHA, seed, **how)
            steps = halted(thoughts, rule)
            if method == "halted-by":
                loss = thoughts.worst_by(steps, labelled)
            else:
                loss = float(thoughts.lost(steps, labelled).mean())
            add(f"one thought per question, **{method}**, {HOW[labelled]}", steps, loss)
    for correction in ("uncorrected", "CRC", "Hoeffding"):
        name = f"one thought per question, selected: {correction}"
        add(name, selected(thoughts, single, correction))

    drawn = rng.integers(thoughts.questions.max() + 1, size=CALIBRATING)
    about = [np.flatnonzero(thoughts.questions == i) for i in drawn]
    tied = np.concatenate([rng.choice(which, OF_QUESTION) for which in about])
    part = thoughts.traces[True][tied]
    # A question that is drawn twice counts as two.
    part.columns["question"] = np.repeat(np.arange(CALIBRATING), OF_QUESTION)
    for unit, kind in (("question", "by unit"), (None, "tied thoughts taken for draws")):
        for method in ("average", "one threshold"):
            rule = certified(part, True, ALPHA, seed, unit=unit, **METHODS[method])
            add(f"{kind}, **{method}**, with labels", halted(thoughts, rule))
    name = "tied thoughts taken for draws, selected: uncorrected"
    add(name, selected(thoughts, tied, "uncorrected"))
    return found


def upper(broken: int, of: int) -> float:
    """The exact 97.5% bound on how often a promise breaks."""
    low, high = broken / of, 1.0
    for _ in range(50):
        p = (low + high) / 2
        tail = sum(math.comb(of, i) * p**i * (1 - p) ** (of - i) for i in range(broken + 1))
        low, high = (p, high) if tail > 0.025 else (low, p)
    return high


def line(*words: str) -> str:
    return f"| {' | '.join(words)} |"


def percent(x: float | None) -> str:
    return "–" if x is None else f"{100 * x:.0f}%"


def tables(curves: dict[str, dict[str, dict[str, Point]]], splits: int) -> Iterator[str]:
    yield f"Tokens read at the same gap, {splits} splits:"
    yield ""
    yield line("rule", *[f"{m}: gap {gap:.0%}" for m in curves for gap in GAPS])
    yield line("---", *["---:"] * (len(curves) * len(GAPS)))
    for name in next(iter(curves.values())):
        cells = [percent(tokens_at(gap, named[name])) for named in curves.values() for gap in GAPS]
        yield line(name, *cells)
    yield ""
    yield "Beside k equal answers, at the gap that these have:"
    yield ""
    ours = [f"**average**, {how}" for how in HOW.values()]
    shown = ["gap", "tokens", *ours]
    yield line("k", *[f"{m}: {what}" for m in curves for what in shown])
    yield line("---:", *["---:"] * (len(curves) * len(shown)))
    for k in EQUAL:
        cells = []
        for named in curves.values():
            tokens, gap = named["k equal answers"][f"{k}"]
            cells += [f"{gap:.1%}", percent(tokens)]
            for name in ours:
                other = tokens_at(gap, named[name])
                more = "" if other is None else f" ({round(100 * (other / tokens - 1)):+d}%)"
                cells.append(percent(other) + more)
        yield line(f"{k}", *cells)


def verdicts(draws: list[dict[str, tuple[bool, float]]]) -> Iterator[str]:
    yield f"Promises for α = 10% at δ = 5%, {len(draws):,} draws:"
    yield ""
    yield line("rule", "tokens", "promise broken", "at most")
    yield line("---", "---:", "---:", "---:")
    for name in draws[0]:
        broken = sum(draw[name][0] for draw in draws)
        tokens = np.mean([draw[name][1] for draw in draws])
        share = f"{broken} ({broken / len(draws):.1%})"
        yield line(name, percent(float(tokens)), share, f"{upper(broken, len(draws)):.1%}")


def put_in(page: Path, what: str, lines: Iterator[str]) -> None:
    begin, end = f"<!-- {what}, made by bench/thinking.py -->\n", f"\n<!-- end of {what} -->"
    before, rest = page.read_text().split(begin)
    _, after = rest.split(end)
    text = "\n".join(lines)
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def draw(path: str, curves: dict[str, dict[str, dict[str, Point]]]) -> None:
    matplotlib.rcParams.update(
        {"svg.hashsalt": "thinking", "svg.fonttype": "none", "font.size": 11}
    )
    figure, both = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained", sharey=True)
    figure.patch.set_facecolor("white")
    styles = {
        "fixed budget": ("#888888", "s:"),
        "k equal answers": ("#0072b2", "o:"),
        "**average**, with labels": ("#009e73", "-"),
        "**average**, without labels": ("#009e73", "--"),
        "**halted-by**, with labels": ("#cc79a7", "-"),
        "**halted-by**, without labels": ("#cc79a7", "--"),
    }
    for axes, (model, named) in zip(both, curves.items(), strict=True):
        for name, (colour, style) in styles.items():
            points = np.array(list(named[name].values()))
            axes.plot(*(100 * points.T), style, color=colour, ms=4, label=name.replace("*", ""))
        axes.set(title=model, xlabel="tokens read (%)", xlim=(0, 100), ylim=(-0.5, 25))
        axes.grid(alpha=0.3)
    both[0].set(ylabel="right answers lost (gap, %)")
    both[1].legend(frameon=False, fontsize=8)
    plt.savefig(path, metadata={"Date": None})


def quiet() -> None:
    # A rule that halts late warns, and that is one of the outcomes here.
    warnings.simplefilter("ignore")


def main(folder: str, page: str, figure: str, splits: str = "50", draws: str = "1000") -> None:
    paths = {name: Path(folder) / path for name, path in MODELS.items()}
    with ProcessPoolExecutor(initializer=quiet) as workers:
        curves = {name: frontier(path, int(splits), workers) for name, path in paths.items()}
        every = partial(one_draw, tuple(paths.values()))
        all_draws = list(workers.map(every, range(int(draws))))
    draw(figure, curves)
    put_in(Path(page), "frontiers", tables(curves, int(splits)))
    put_in(Path(page), "promises", verdicts(all_draws))


if __name__ == "__main__":
    main(*sys.argv[1:])
