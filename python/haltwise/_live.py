"""Series that grow: how far each is, and what was decided."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._arrays import Array
from ._core import Stream
from ._series import Collection
from .prefix import PrefixStream
from .rule import Rule


class Case:
    """One live series: its stream, and the base's last probabilities."""

    def __init__(self, rule: Rule, prior: Array) -> None:
        self.stream: Stream = rule.stream()
        #: How many time points were shown.
        self.shown = 0
        self.believed = prior
        #: The probabilities at the halt; None while it runs.
        self.probs: Array | None = None

    def see(self, probs: Array, score: float | None) -> None:
        self.believed = probs
        if self.stream.observe(score, probs=probs):
            self.end()

    def end(self) -> None:
        if self.probs is None:
            self.probs = self.believed


class LiveSeries:
    """The series that are being decided, by their names."""

    def __init__(self) -> None:
        self.cases: dict[Hashable, Case] = {}
        #: Whether they are known by their positions, for want of ids.
        self.by_position = False
        #: `state_info`, as in aeon, after the last call.
        self.info: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, n: int, rule: Rule, prior: Array) -> LiveSeries:
        """This many series that begin, known by their positions."""
        live = cls()
        live.by_position = True
        live.cases.update((i, Case(rule, prior)) for i in range(n))
        return live

    def undecided(self, n: int) -> Iterable[Hashable]:
        """The series that were not decided, in their order; the others are dropped."""
        undecided = [case for case in self.cases.values() if case.probs is None]
        if not self.by_position or len(undecided) != n:
            raise ValueError(
                f"{n} series, but the last call left {len(undecided)} undecided; "
                "give those, in the same order, or ids, or call reset_state_info for new ones"
            )
        self.cases = dict(enumerate(undecided))
        return range(n)

    def named(self, ids: Iterable[Hashable], n: int, rule: Rule, prior: Array) -> list[Hashable]:
        """The series with these names; new ones begin."""
        names = list(ids)
        if len(names) != n or len(set(names)) != len(names):
            raise ValueError(f"{n} series need as many different ids")
        if self.by_position:
            self.cases, self.by_position = {}, False
        for name in names:
            self.cases.setdefault(name, Case(rule, prior))
        return names

    def advance(
        self,
        series: Collection,
        names: Iterable[Hashable],
        ended: Any,
        *,
        base: Any,
        reached: NDArray[np.int64],
        steps: int,
    ) -> list[Case]:
        """Shows each series to its stream, checkpoint by checkpoint until it halts."""
        names = list(names)
        cases = [self.cases[name] for name in names]
        self._grow(series, names, cases)
        for c in range(int(reached.max(initial=0))):
            running = np.array(
                [
                    i
                    for i, case in enumerate(cases)
                    if case.probs is None and case.stream.steps == c < reached[i]
                ],
                np.int64,
            )
            if not len(running):
                continue
            probs, scores = base.step(series, running, c)
            # In float32, as rules are certified: in float64 another class may be the largest, and
            # the served label would not be the certified one.
            probs = probs.astype(np.float32, copy=False)
            own = [None] * len(running) if scores is None else scores.tolist()
            for i, row, score in zip(running, probs, own, strict=True):
                cases[i].see(row, score)
                # No series is longer, so at the full length each is over.
                if c + 1 == steps:
                    cases[i].end()
        for case, over in zip(cases, np.broadcast_to(ended, len(cases)), strict=True):
            if over:
                case.end()
        return cases

    def _grow(self, series: Collection, names: list[Hashable], cases: list[Case]) -> None:
        """Refuses series that are shorter than they were."""
        for i, (case, length) in enumerate(zip(cases, series.lengths.tolist(), strict=True)):
            if length < case.shown:
                name = "" if self.by_position else f" ({names[i]!r})"
                raise ValueError(
                    f"series {i + 1}{name} has {length} time points, but {case.shown} were shown "
                    "before; show each series from its beginning, and forget one that begins anew"
                )
        for case, length in zip(cases, series.lengths.tolist(), strict=True):
            case.shown = length


class EarlyStream:
    """One series that arrives time point by time point, as an :class:`EarlyClassifier` on its
    default base sees it. It decides as ``predict`` does, to the bit. The cost of a time point does
    not grow with the time that has passed."""

    __slots__ = ("_case", "_classes", "_series", "_steps")

    def __init__(self, rule: Rule, series: PrefixStream, classes: Array, steps: int) -> None:
        self._case = Case(rule, series.latest)
        self._series = series
        self._classes = classes
        self._steps = steps

    def observe(self, values: Any) -> bool:
        """Takes in the next time point: a number per channel, NaN if it is missing. Returns whether
        the series is decided; then nothing more is read."""
        if not self.decided:
            probs = self._series.observe(values)
            if probs is not None:
                self._case.see(probs, None)
                if self._series.reached == self._steps:
                    self._case.end()
        return self.decided

    def end(self) -> None:
        """Says that the series is over. Then it is decided."""
        self._case.end()

    @property
    def decided(self) -> bool:
        """Whether it is decided."""
        return self._case.probs is not None

    @property
    def prediction(self) -> Any:
        """The class, once it is decided; else None."""
        probs = self._case.probs
        return None if probs is None else self._classes[probs.argmax()].item()

    @property
    def probabilities(self) -> Array | None:
        """The class probabilities of the decision; else None."""
        return self._case.probs

    @property
    def points(self) -> int:
        """How many time points it has read."""
        return self._series.points
