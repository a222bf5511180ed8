"""Watching a rule in use: does it still keep its promise?"""

from __future__ import annotations

import json
import warnings
from typing import Any

from . import _core
from .rule import Rule
from .traces import traces_of


class Monitor:
    """Tests, at every moment, whether a rule still keeps its promise.

    *Audit* a random share of the live streams: answer when the rule halts, and read them to
    the end all the same. Give the audits to the monitor in the order in which they began. If
    the promise holds, the probability that an alarm is ever raised is at most `delta`,
    however often you look.

    >>> monitor = haltwise.Monitor(rule)          # doctest: +SKIP
    >>> monitor.add(traces)                       # doctest: +SKIP
    >>> monitor.alarm, monitor.e_value            # doctest: +SKIP
    (False, 0.031)

    Live, report each audit as it happens: :meth:`begin`, :meth:`halt`, :meth:`settle`. Until
    its outcome is known, an audit counts as no loss. So delays make no false alarms.

    If the rule was calibrated with ``unit=``, the streams of a unit are tied, and each unit
    counts once. Draw whole units, and audit all streams of a drawn unit. Until
    :meth:`close_units`, a unit counts as no loss. Close units at times that do not depend on
    losses. Streams that begin in a closed unit are not counted; ``verdict()["unwatched"]`` has
    their number.

    If the rule promises something to each true class, the monitor watches all classes
    together: no alarm says nothing about a single class. No monitor watches a rule by unit
    and by group.

    Several monitors of one rule each raise false alarms at their own `delta`. Give their
    number as `servers`. Then each has the share ``delta / (servers + 1)``; the sum of their
    counts is one more test.
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
        """Takes complete audits: traces, or arrays as for :class:`Traces`, in the order in
        which the streams began. If the promise is by group or by unit, `columns` has the
        groups and units. A unit can raise an alarm only after :meth:`close_units`.

        If the rule was calibrated with weights, audits of another mix than the declared one
        need their weights in `columns`. Audits from where the rule is used have none. Returns
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
        if doubt := self.label_doubt:
            warnings.warn(doubt, stacklevel=2)
        return self.alarm

    def begin(self, id: str, *, group: str | None = None, unit: str | None = None) -> None:
        """An audited stream begins. Give its group if the promise is by group, and its unit if
        the promise is by unit."""
        self._inner.begin(id, group, unit)

    def close_units(self) -> bool:
        """Declares that no more streams begin in the units so far. Until then each of them
        counts as no loss. When you call it must not depend on losses: call it by the clock, or
        when all units so far are complete. Returns whether an alarm was raised, now or
        before."""
        self._inner.close_units()
        return self.alarm

    def halt(self, id: str, t: int) -> None:
        """An audited stream halts at step `t`, counted from 1."""
        self._inner.halt(id, t)

    def settle(self, id: str, gap: bool) -> bool:
        """Says whether halting cost a right answer. If the early and the full prediction agree,
        it cost none, and you need no label. Returns whether an alarm was raised, now or
        before."""
        self._inner.settle(id, bool(gap))
        return self.alarm

    @property
    def alarm(self) -> bool:
        """Whether an alarm was raised: the promise no longer holds."""
        return self._inner.alarm()

    @property
    def label_doubt(self) -> str | None:
        """Why the labels of the audits are doubted, if they are: they agree with the predictions
        less often than chance. The verdict is then never "all clear"."""
        return self._inner.label_doubt()

    @property
    def e_value(self) -> float:
        """The evidence against the promise; an alarm is raised at 1 / delta."""
        return self._inner.e_value()

    def verdict(self) -> dict[str, Any]:
        """The present verdict: the fields of ``haltwise monitor --json``."""
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
