"""Watching a rule in use: does it still keep its promise?"""

from __future__ import annotations

import json
from typing import Any

from . import _core
from .rule import Rule
from .traces import traces_of


class Monitor:
    """Tests, at every moment at once, whether a rule still keeps its promise.

    A share of the live streams, drawn by chance, is *audited*: answered when the rule
    halts, and read to its end all the same. The monitor takes them in the order in which
    they began. With the promise kept, the probability that an alarm is ever raised is at
    most `delta`, however often it is looked at.

    >>> monitor = haltwise.Monitor(rule)          # doctest: +SKIP
    >>> monitor.add(traces)                       # doctest: +SKIP
    >>> monitor.alarm, monitor.e_value            # doctest: +SKIP
    (False, 0.031)

    Live, say what becomes of each audit as it becomes known: :meth:`begin`, :meth:`halt`,
    :meth:`settle`. Until then it counts as one that lost nothing, so no delay makes a
    false alarm.
    """

    __slots__ = ("_inner",)
    _inner: _core.Monitor

    def __init__(self, rule: Rule, *, delta: float = 0.01) -> None:
        self._inner = _core.Monitor(rule._inner, float(delta))

    def add(
        self,
        scores: Any = None,
        predictions: Any = None,
        labels: Any = None,
        *,
        probs: Any = None,
        lengths: Any = None,
        ids: Any = None,
        classes: Any = None,
    ) -> bool:
        """Takes audits of which all is known: traces, or the arrays they would be made
        of, in the order in which the streams began. Returns whether an alarm was raised,
        now or before."""
        traces = traces_of(scores, predictions, labels, probs, lengths, ids, classes)
        self._inner.add(traces)
        return self.alarm

    def begin(self, id: str) -> None:
        """An audited stream begins."""
        self._inner.begin(id)

    def halt(self, id: str, t: int) -> None:
        """An audited stream halts at step `t`, counted from 1."""
        self._inner.halt(id, t)

    def settle(self, id: str, gap: bool) -> bool:
        """It is known whether halting cost a right answer: no label is needed where the
        early and the full prediction agree. Returns whether an alarm was raised, now or
        before."""
        self._inner.settle(id, bool(gap))
        return self.alarm

    @property
    def alarm(self) -> bool:
        """Whether an alarm was raised: the promise does not hold any more."""
        return self._inner.alarm()

    @property
    def e_value(self) -> float:
        """The evidence against the promise; an alarm is raised at 1 / delta."""
        return self._inner.e_value()

    def verdict(self) -> dict[str, Any]:
        """What is known now: the fields of ``haltwise monitor --json``."""
        verdict: dict[str, Any] = json.loads(self._inner.verdict())
        verdict["labels_wanted"] = self._inner.labels_wanted()
        return verdict

    def __repr__(self) -> str:
        verdict = self.verdict()
        state = "alarm" if verdict["alarm"] else "no alarm"
        return f"Monitor({verdict['audits']} audits, e-value {verdict['e_value']:.3g}, {state})"
