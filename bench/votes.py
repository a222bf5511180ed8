"""Certified votes beside the usual ways: fixed budgets, Adaptive-consistency and ESC.

    python bench/votes.py VOTES.jsonl docs/votes.md docs/votes.svg

VOTES has one question per line: `id`, `gold`, `answers` (N sampled answers, "" for none) and
`tokens` (of each answer). The script splits the questions 50 times: 700 calibrate, the others
test. All methods use the same questions. Heuristics have a knob instead of a promise: each
setting of it is a row. The script replaces the text between the two comments that name it.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import haltwise
import matplotlib
import numpy as np

matplotlib.use("svg")
import matplotlib.pyplot as plt

SPLITS, CALIBRATING, DELTA = 50, 700, 0.05
ALPHAS = (0.05, 0.1)
# The values of α, to compare at equal gaps.
SWEEP = (0.005, 0.0075, *np.arange(0.01, 0.101, 0.005).round(3).tolist(), 0.12, 0.15)
HOW = {True: "with labels", False: "without labels"}


class Votes:
    """All votes, and the result of a stop after each of them."""

    def __init__(self, path: str) -> None:
        with open(path) as file:
            rows = [json.loads(line) for line in file]
        self.answers = [row["answers"] for row in rows]
        self.labels = [row["gold"] for row in rows]
        self.ids = [row["id"] for row in rows]
        self.costs = np.array([row["tokens"] for row in rows], dtype=float)
        self.tokens = np.cumsum(self.costs, axis=1)
        self.n, self.of = self.tokens.shape
        self.labelled = haltwise.votes(self.answers, self.labels, ids=self.ids)
        self.unlabelled = haltwise.votes(self.answers, ids=self.ids)
        self.right = self.labelled.predictions == self.labelled.labels[:, None]
        self.agrees = self.labelled.predictions == self.labelled.predictions[:, -1:]

    def stopping(self, steps: np.ndarray, which: np.ndarray) -> list[float]:
        """Votes, tokens, accuracy, gap and disagreement of stopping there."""
        at = (which, steps[which])
        right, full = self.right[at], self.right[which, -1]
        return [
            float(steps[which].mean() + 1),
            float(self.tokens[at].mean()),
            float(right.mean()),
            float((full & ~right).mean()),
            float((~self.agrees[at]).mean()),
        ]


def fixed(votes: Votes, budget: int) -> np.ndarray:
    return np.full(votes.n, budget - 1)


def adaptive_consistency(votes: Votes, certainty: float) -> np.ndarray:
    """Aggarwal et al. 2023: stop when a Beta posterior of the two most frequent answers says
    that the first stays ahead."""

    def ahead(first: int, second: int) -> float:
        # P(Beta(first + 1, second + 1) > 1/2), a binomial tail.
        n = first + second + 1
        return sum(math.comb(n, k) for k in range(first + 1)) / 2**n

    return np.array(
        [
            _first(row, lambda seen: ahead(*_two(seen)) >= certainty)
            for row in votes.answers
        ]
    )


def esc(votes: Votes, window: int) -> np.ndarray:
    """Li et al. 2024: ask in windows, stop when all of one say the same."""

    def agrees(seen: list[str]) -> bool:
        last = seen[-window:]
        return len(seen) % window == 0 and last[0] != "" and len(set(last)) == 1

    return np.array([_first(row, agrees) for row in votes.answers])


def _two(seen: list[str]) -> tuple[int, int]:
    counts = sorted((seen.count(a) for a in set(seen) if a), reverse=True)
    first, second = [*counts, 0, 0][:2]
    return first, second


def _first(row: list[str], stops) -> int:
    """The first step, from 0, at which it stops, or the last."""
    return next((t for t in range(len(row)) if stops(row[: t + 1])), len(row) - 1)


def certified(
    votes: Votes, splits: list, method: str, labelled: bool, alpha: float
) -> tuple:
    """What rules do to new questions, on average, and for how many sets of new questions they
    cost more than alpha. Chance alone moves a set's cost a little."""
    traces = votes.labelled if labelled else votes.unlabelled
    found = []
    for seed, (calibrating, trying) in enumerate(splits):
        # One threshold needs no fitting traces, and no costs to choose by.
        more = {}
        if method != "marginal":
            more = {"seed": seed, "cost": votes.costs[calibrating]}
        made_of = traces[calibrating]
        loss = "gap" if labelled else "disagreement"
        rule = haltwise.calibrate(
            made_of, method=method, alpha=alpha, delta=DELTA, loss=loss, **more
        )
        learned = {} if method == "marginal" else {"predictions": traces.predictions}
        found.append(votes.stopping(rule.halt(traces.scores, **learned) - 1, trying))
    loss = np.array(found)[:, 3 if labelled else 4]
    return np.mean(found, axis=0), int((loss > alpha).sum())


def main(path: str, page: str, figure: str) -> None:
    # A rule that halts late warns, and that is one of the outcomes here.
    warnings.simplefilter("ignore")
    votes = Votes(path)
    splits = []
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(votes.n)
        splits.append((np.sort(order[:CALIBRATING]), np.sort(order[CALIBRATING:])))

    def tried(steps: np.ndarray) -> np.ndarray:
        return np.mean([votes.stopping(steps, trying) for _, trying in splits], axis=0)

    ours = {
        (method, labelled, alpha): certified(votes, splits, method, labelled, alpha)
        for method in ("adaptive", "marginal")
        for labelled in (True, False)
        for alpha in SWEEP
    }
    certainties = (0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)
    heuristics = {
        "fixed": {f"{k}": tried(fixed(votes, k)) for k in range(1, votes.of + 1)},
        "Adaptive-consistency": {
            f"{c:g}": tried(adaptive_consistency(votes, c)) for c in certainties
        },
        "ESC": {f"{w}": tried(esc(votes, w)) for w in range(1, 6)},
    }
    tables = [*table(ours, heuristics), "", *compare(ours, heuristics)]
    put_in(Path(page), "\n".join(tables))
    draw(figure, ours, heuristics)


def put_in(page: Path, tables: str) -> None:
    begin, end = "<!-- made by bench/votes.py -->\n", "\n<!-- end of bench/votes.py -->"
    before, rest = page.read_text().split(begin)
    _, after = rest.split(end)
    page.write_text(f"{before}{begin}\n{tables}\n{end}{after}")


def share(x: float) -> str:
    return f"{100 * x:.1f}%"


def cells(mean: np.ndarray) -> list[str]:
    return [f"{mean[0]:.2f}", f"{mean[1]:,.0f}", *map(share, mean[2:])]


def line(*words: str) -> str:
    return f"| {' | '.join(words)} |"


def table(ours: dict, heuristics: dict) -> Iterator[str]:
    yield line(
        "method",
        "setting",
        "votes",
        "tokens",
        "accuracy",
        "gap",
        "disagreement",
        "above α",
    )
    yield line(*["---"] * 8)
    for (method, labelled, alpha), (mean, above) in ours.items():
        if alpha in ALPHAS:
            name = f"**{method}**, {HOW[labelled]}"
            yield line(name, f"α = {alpha:.0%}", *cells(mean), f"{above} of {SPLITS}")
    for name, settings in heuristics.items():
        for setting, mean in settings.items():
            yield line(name, setting, *cells(mean), "–")


def compare(ours: dict, heuristics: dict) -> Iterator[str]:
    """For each setting of a heuristic that loses a little: the tokens of certified rules at the
    same gap, on the line between the two alphas whose gaps lie around it."""
    kinds = [(m, labelled) for m in ("marginal", "adaptive") for labelled in HOW]
    names = [f"{method}, {HOW[labelled]}" for method, labelled in kinds]
    yield line("heuristic", "gap", "tokens", *names)
    yield line(*["---"] * 7)
    for name in ("Adaptive-consistency", "ESC"):
        for setting, mean in heuristics[name].items():
            if not 0 < mean[3] < 0.15:
                continue
            found = []
            for kind in kinds:
                curve = [ours[(*kind, alpha)][0] for alpha in SWEEP]
                # Chance may make a larger alpha lose less.
                gaps = np.maximum.accumulate([other[3] for other in curve])
                tokens = np.interp(mean[3], gaps, [other[1] for other in curve])
                found.append(f"{tokens:,.0f} ({tokens / mean[1] - 1:+.0%})")
            yield line(f"{name} {setting}", f"{mean[3]:.2%}", f"{mean[1]:,.0f}", *found)


def draw(path: str, ours: dict, heuristics: dict) -> None:
    matplotlib.rcParams.update(
        {"svg.hashsalt": "votes", "svg.fonttype": "none", "font.size": 11}
    )
    _, axes = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
    axes.set_facecolor("white")
    for name, colour, style in (
        ("fixed", "#888888", "s:"),
        ("Adaptive-consistency", "#0072b2", "o:"),
        ("ESC", "#d55e00", "^:"),
    ):
        means = np.array(list(heuristics[name].values()))
        label = "fixed budgets" if name == "fixed" else name
        axes.plot(
            means[:, 1], 100 * means[:, 3], style, color=colour, ms=5, lw=1, label=label
        )
    for method, colour in (("marginal", "#009e73"), ("adaptive", "#cc79a7")):
        for labelled, style in ((True, "-"), (False, "--")):
            means = np.array([ours[method, labelled, alpha][0] for alpha in SWEEP])
            label = f"certified ({method}), {HOW[labelled]}"
            axes.plot(means[:, 1], 100 * means[:, 3], style, color=colour, label=label)
            for alpha in ALPHAS:
                mean = ours[method, labelled, alpha][0]
                axes.plot(mean[1], 100 * mean[3], "*", color=colour, ms=11)
    axes.set(xlabel="tokens per question", ylabel="right answers lost (gap, %)")
    axes.set(xlim=(250, 3100), ylim=(-0.4, 21))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, title="stars: α = 10% and 5%", fontsize=10)
    plt.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
