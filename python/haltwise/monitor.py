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

    Where the rule was calibrated with ``unit=``, the streams of a unit are tied, and each
    unit counts once. Draw whole units, not streams, and audit all streams of a unit that is
    drawn. A unit tells nothing until :meth:`close_units`. Streams that begin in a unit after
    that count for nothing: ``verdict()["unwatched"]`` has how many there were.

    Where the rule promises something to each true class, all classes are watched together:
    no alarm says nothing of any one class. A rule by unit and by group is not watched.

    With several monitors of one rule, each raises false alarms at its own `delta`. Give
    `servers`, how many there are, and each has the share ``delta / (servers + 1)``; the sum
    of their counts is one test more.
    """

    __slots__ = ("_inner", "_terms")
    _inner: _core.Monitor

    def __init__(self, rule: Rule, *, delta: float = 0.01, servers: int = 1) -> None:
        self._inner = _core.Monitor(rule._inner, float(delta), int(servers))
        self._terms = rule.terms

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
        columns: dict[str, Any] | None = None,
    ) -> bool:
        """Takes audits of which all is known: traces, or the arrays they would be made
        of, in the order in which the streams began. Where the promise is by group or about
        units, their names are in `columns`. A unit tells nothing, and raises no alarm, until
        :meth:`close_units`.

        Where the rule was calibrated with weights, audits of another mix than the declared
        one need theirs in `columns`; audits from where the rule is used have none. Returns
        whether an alarm was raised, now or before."""
        traces = traces_of(scores, predictions, labels, probs, lengths, ids, classes)
        spoken_of = {name: self._terms.get(name) for name in ("by", "unit")}
        # True classes are not watched one by one: see ``Watch::groups_of``.
        if spoken_of["by"] == "label":
            spoken_of["by"] = None
        traces = traces._with(**(columns or {}))
        weight = self._terms.get("weight")
        if weight is not None and weight["column"] in traces.columns:
            spoken_of["weight"] = weight
        traces = traces._held_to(spoken_of, lenient=False)
        self._inner.add(traces)
        return self.alarm

    def begin(self, id: str, *, group: str | None = None, unit: str | None = None) -> None:
        """An audited stream begins: in a group where the promise is by group, as one of a
        unit where it is about units."""
        self._inner.begin(id, group, unit)

    def close_units(self) -> bool:
        """No stream begins any more in the units so far. Until then a unit counts as one
        that lost nothing by the steps before which none of its streams halted. Returns
        whether an alarm was raised, now or before."""
        self._inner.close_units()
        return self.alarm

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
        units = self._inner.open_units()
        if units > 0:
            state += f", {units} units not closed"
        return f"Monitor({verdict['audits']} audits, e-value {verdict['e_value']:.3g}, {state})"
