"""Series that grow: how far each is, and what was decided."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._arrays import Array
from ._core import Stream
from ._series import Collection
from .rule import Rule


class Case:
    """One live series: its stream, and what the base believed last."""

    def __init__(self, rule: Rule) -> None:
        self.stream: Stream = rule.stream()
        self.believed: Array = np.zeros(1)
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

    def __init__(self, rule: Rule | None = None, n: int = 0) -> None:
        self.cases: dict[Hashable, Case] = {}
        #: Whether they are known by their positions, for want of ids.
        self.by_position = rule is not None
        if rule is not None:
            self.cases.update((i, Case(rule)) for i in range(n))

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

    def named(self, ids: Iterable[Hashable], n: int, rule: Rule) -> list[Hashable]:
        """The series with these names; new ones begin."""
        names = list(ids)
        if len(names) != n or len(set(names)) != len(names):
            raise ValueError(f"{n} series need as many different ids")
        if self.by_position:
            self.cases, self.by_position = {}, False
        for name in names:
            self.cases.setdefault(name, Case(rule))
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
        cases = [self.cases[name] for name in names]
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
            # In float32, in which rules are certified: where the largest of two probabilities
            # is another in float64, the label that is served would not be the one certified.
            probs = probs.astype(np.float32, copy=False)
            own = [None] * len(running) if scores is None else scores.tolist()
            for i, row, score in zip(running, probs, own, strict=True):
                cases[i].see(row, score)
                # No series is longer: at the full length each is over.
                if c + 1 == steps:
                    cases[i].end()
        for case, over in zip(cases, np.broadcast_to(ended, len(cases)), strict=True):
            if over:
                case.end()
        return cases
