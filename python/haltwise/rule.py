"""Rules: when to halt, and everything needed to audit why."""

from __future__ import annotations

import copy
import json
import os
import warnings
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._arrays import as_array, counts, floats
from .traces import PathLike, Traces, _texts, traces_of

if TYPE_CHECKING:
    from typing_extensions import Self


class Test(TypedDict, total=False):
    """One test of the trail: a candidate, and the step where it did worst."""

    opens: int
    threshold: float | None
    step: int
    halted: int
    gaps: int
    p_value: float
    rejected: bool


class StepResult(TypedDict):
    """One step of an evaluation."""

    t: int
    halted: int
    halted_by: int
    gap_by: float | None
    gap_by_interval: tuple[float, float]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What a rule did to a set of traces; the fields of ``haltwise evaluate --json``."""

    #: How many sequences.
    n: int
    #: The rule's number of steps.
    t_max: int
    #: The mean of halt step / t_max, and its standard error.
    t_avg: float
    t_avg_se: float
    #: The steps read, as a share of all steps.
    steps_read: float
    #: The share of sequences with a gap, its standard error and exact 95% interval.
    gap: float
    gap_se: float
    gap_interval: tuple[float, float]
    #: The gap among the first fifth and the first half to halt, and 95% intervals.
    gap_earliest: dict[str, float | None]
    gap_earliest_interval: dict[str, tuple[float, float]]
    #: Step by step; ``pandas.DataFrame(evaluation.by_step)`` makes a table of it.
    by_step: list[StepResult]
    #: The accuracy of the full predictions, and its standard error; None without labels.
    late_accuracy: float | None = None
    late_accuracy_se: float | None = None
    #: The accuracy of the early predictions, and its standard error.
    early_accuracy: float | None = None
    early_accuracy_se: float | None = None
    #: Whether the rule was made from "all" or "some" of the sequences, which cannot test it;
    #: None if it remembers none of them.
    calibrated_on: str | None = None
    #: How many sequences have no label, and how many the rule's weights leave out.
    unlabelled: int = 0
    thinned: int = 0
    #: The mean cost, early and in full, if the rule minimises it.
    cost: dict[str, float] | None = None
    #: The same for each group of the promise.
    by_group: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """All fields as a plain dictionary."""
        return asdict(self)

    @property
    def rule(self) -> Rule | None:
        """The rule, if :meth:`Rule.evaluate` made this."""
        rule: Rule | None = self.__dict__.get("_rule")
        return rule

    def _repr_html_(self) -> str | None:
        if self.rule is None:
            return None
        drawn = _core.figures(self.rule._inner, json.dumps(self.to_dict()))
        figures = "".join(
            f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,'
            f'{b64encode(svg.encode()).decode()}">'
            for title, svg in drawn[:2]
        )
        return f"<p>{escape(repr(self))}</p>{figures}"

    def __repr__(self) -> str:
        low, high = self.gap_interval
        accuracy = ""
        if self.early_accuracy is not None:
            accuracy = f"accuracy {self.early_accuracy:.3f} early, {self.late_accuracy:.3f} late; "
        return (
            f"Evaluation({self.n:,} sequences: {accuracy}"
            f"gap {self.gap:.3f} ({low:.3f} to {high:.3f}); "
            f"halts at {self.t_avg:.3f} of {self.t_max} steps)"
        )


class Rule:
    """One threshold per step, and the record of how they were found. A sequence halts at the
    first step whose score reaches its threshold, or at its end.

    :func:`calibrate` and :meth:`Evidence.certify` make rules, and :meth:`load` reads them.
    Nobody makes one by hand, so you can rely on its promise.
    """

    __slots__ = ("_inner", "_parsed")
    _inner: _core.Rule
    _parsed: dict[str, Any] | None

    def __init__(self) -> None:
        raise TypeError("rules are made by haltwise.calibrate or read by Rule.load")

    @classmethod
    def _of(cls, core: _core.Rule) -> Self:
        rule = object.__new__(cls)
        rule._inner, rule._parsed = core, None
        return rule

    @property
    def _fields(self) -> dict[str, Any]:
        """What the rule file says, parsed once and only where it is asked for."""
        if self._parsed is None:
            fields: dict[str, Any] = json.loads(self._inner.json())
            self._parsed = fields
        return self._parsed

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Reads a rule file. Refuses one that is damaged, contradicts itself or has a newer
        format."""
        with open(path, "rb") as file:
            content = file.read()
        try:
            return cls._of(_core.Rule(content))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The rule of a rule file's text."""
        return cls._of(_core.Rule(text.encode()))

    def save(self, path: PathLike) -> None:
        """Writes the rule file, whole or not at all."""
        self._inner.save(os.fspath(path))

    def to_json(self) -> str:
        """The text of the rule file."""
        return self._inner.json()

    @property
    def thresholds(self) -> NDArray[np.float32]:
        """One threshold per step; infinity is never."""
        return self._inner.thresholds()

    @property
    def p_values(self) -> NDArray[np.float64]:
        """The p-value of every test, in order."""
        return np.array([test["p_value"] for test in self.trail])

    @property
    def trail(self) -> list[Test]:
        """Every test, in order; ``pandas.DataFrame(rule.trail)`` makes a table of it."""
        return [test.copy() for test in self._fields["trail"]]

    @property
    def t_max(self) -> int:
        """The most steps a sequence may have."""
        return int(self._fields["t_max"])

    @property
    def method(self) -> str:
        """How the rule was found."""
        return str(self._fields["method"])

    @property
    def promise(self) -> str | None:
        """``"conditional"`` or ``"marginal"``; None if nothing is promised."""
        if self._fields.get("purpose") == "explore":
            return None
        promise: str | None = self._fields["promise"]
        return promise

    @property
    def classes(self) -> list[str] | None:
        """The names of the classes in the order of the probabilities, if they were given."""
        names: list[str] | None = self._fields.get("class_names")
        return None if names is None else list(names)

    @property
    def alpha(self) -> float:
        """The tolerated gap."""
        return float(self._fields["alpha"])

    @property
    def delta(self) -> float:
        """The probability with which the promise may fail."""
        return float(self._fields["delta"])

    @property
    def terms(self) -> dict[str, Any]:
        """The terms of the promise, if they are not the gap of all sequences alike: `loss`,
        `by`, `unit`, `weight`, `cost`."""
        return dict(self._fields.get("terms", {}))

    @property
    def groups(self) -> list[str]:
        """The groups that the promise holds for."""
        return list(self._fields.get("groups", []))

    @property
    def halts_in(self) -> list[str] | None:
        """The groups that the rule halts, if not all of `groups`; it reads the others to the
        end."""
        groups: list[str] | None = self._fields.get("halts_in")
        return None if groups is None else list(groups)

    @property
    def score(self) -> str:
        """The score that the rule judges: ``"confidence"`` (the given score),
        ``"max-probability"``, ``"margin"`` or ``"gap"`` (learned)."""
        return self._inner.score()

    @property
    def expected(self) -> dict[str, float] | None:
        """`t_avg` and `gap` on the certifying traces: estimates, not promises."""
        expected: dict[str, float] | None = self._fields["expected"]
        return None if expected is None else dict(expected)

    @property
    def record(self) -> dict[str, Any]:
        """The rule file as a dictionary."""
        return copy.deepcopy(self._fields)

    @property
    def halts_early(self) -> bool:
        """Whether the rule ever halts a sequence before its end."""
        return self._inner.halts_early()

    def halt(
        self,
        scores: Any = None,
        *,
        probs: Any = None,
        predictions: Any = None,
        lengths: Any = None,
        groups: Any = None,
    ) -> NDArray[np.int64]:
        """The step, counted from 1, at which each sequence halts.

        Parameters
        ----------
        scores : array of (n, T), or a list of rows of unequal length
            The scores that the rule judges. If it judges a learned score, the scores that
            came with the traces, if any. Or :class:`Traces`, alone.
        probs : array of (n, T, K)
            The class probabilities; the rule computes the score from them.
        predictions : array of (n, T)
            The predicted classes, counted from 0; by default the most probable ones.
        lengths : array of (n)
            How many steps each sequence has, if not all have T.
        groups : array of (n)
            If the rule is by group, the group of each sequence. Groups that the rule does not
            halt are read to the end.
        """
        if groups is not None:
            groups = _texts(groups, "groups")
        if isinstance(scores, Traces):
            traces = traces_of(scores, predictions, None, probs, lengths)
            return self._inner.halt_traces(self._grouped(traces, groups))
        if probs is None and predictions is None:
            array, ends = floats(scores, "scores", ["n", "T"])
            if lengths is not None:
                ends = counts(lengths, "lengths")
            self._warn_of(groups)
            return self._inner.halt(array, ends, groups)
        # The labels play no part in where a sequence halts.
        n = len(predictions if probs is None else probs)
        labels = np.zeros(n, np.int64)
        traces = Traces(scores, predictions, labels, probs=probs, lengths=lengths)
        return self._inner.halt_traces(self._grouped(traces, groups))

    def _grouped(self, traces: Traces, groups: list[str] | None) -> Traces:
        """The traces with the column of groups, if the rule is by group."""
        by = self.terms.get("by")
        if by in (None, "label"):
            return traces
        if groups is not None:
            traces = traces._with(**{by: groups})
        self._warn_of(traces.columns.get(by))
        return traces._for(by=by, lenient=True)

    def _warn_of(self, groups: Any, stacklevel: int = 3) -> None:
        """Warns of groups that are read to the end although nobody asked for that."""
        names = [None] if groups is None else dict.fromkeys(map(str, groups))
        for name in names:
            if text := self._inner.unexpected_group(name):
                warnings.warn(text, stacklevel=stacklevel)

    def evaluate(
        self,
        scores: Any = None,
        predictions: Any = None,
        labels: Any = None,
        *,
        probs: Any = None,
        lengths: Any = None,
        ids: Iterable[str | int] | None = None,
        classes: Any = None,
        losses: Any = None,
        columns: dict[str, Any] | None = None,
    ) -> Evaluation:
        """Applies the rule to traces, given as for :func:`calibrate`, and measures accuracy,
        gap and halt times. If the rule is by group or minimises a cost, and the traces have
        the columns, it measures those also. Use new traces: for traces that the rule was made
        from, it warns."""
        terms = self.terms
        regression = isinstance(terms.get("loss"), dict)
        names = self.classes
        if names and classes is None and probs is not None:
            classes = _alike(names, labels)
        traces = traces_of(
            scores, predictions, labels, probs, lengths, ids, classes, losses, regression
        )
        others = traces._class_names()
        if names and others and names != others:
            raise ValueError(
                f"the rule was calibrated for the classes {', '.join(names)}, in this order, and "
                f"these traces have {', '.join(others)}; number them alike"
            )
        traces = traces._with(**(columns or {}))._held_to(terms, lenient=True)
        found, remarks = self._inner.evaluate(traces)
        for remark in remarks:
            warnings.warn(remark, stacklevel=2)
        evaluation = Evaluation(**json.loads(found))
        evaluation.__dict__["_rule"] = self
        return evaluation

    def stream(self, group: str | int | None = None) -> _core.Stream:
        """A new live stream. Call ``observe`` with the score of each step, or with ``probs=`` to
        compute the score, until it returns True. If the rule is by group, name the stream's
        `group`: streams of groups that the rule does not halt are read to the end."""
        name = None if group is None else str(group)
        self._warn_of(None if name is None else [name])
        return _core.Stream(self._inner, None, name)

    def describe(self) -> str:
        """The promise, in words."""
        return self._inner.describe()

    def shortfall(self) -> str | None:
        """Why no more was certified, and what would help; None if nothing failed."""
        return self._inner.shortfall()

    def __repr__(self) -> str:
        expected = self.expected
        if not self.halts_early:
            saving = "halts no sequence early"
        elif expected is None:
            saving = "not certified"
        else:
            read = expected["t_avg"] * self.t_max
            saving = (
                f"reads {read:.1f} of {self.t_max} steps and loses {expected['gap']:.1%}, expected"
            )
        return f"Rule({self.method!r}, alpha={self.alpha:g}, delta={self.delta:g}: {saving})"

    def _repr_html_(self) -> str:
        return (
            '<div style="max-width: 36em; font-family: sans-serif">'
            f"<b>Haltwise rule</b>, {escape(self.method)}, α = {self.alpha:g}, δ = {self.delta:g}"
            f"<p>{escape(self.describe())}</p><p>{escape(self._inner.expectation())}</p>"
            f"{_staircase(self.thresholds)}</div>"
        )

    def __eq__(self, other: object) -> bool:
        return self._inner == other._inner if isinstance(other, Rule) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Rule._of, (self._inner,))


def write_report(path: PathLike, evaluations: Evaluation | Mapping[str, Evaluation]) -> None:
    """Writes an evaluation, or several side by side by their names, as one HTML file with
    figures, as ``haltwise evaluate --report`` does.

    Parameters
    ----------
    path : str or path
        The HTML file.
    evaluations : Evaluation or dict
        What :meth:`Rule.evaluate` or :meth:`EarlyClassifier.evaluate` returned. Several should
        be of the same traces.
    """
    several = {"rule": evaluations} if isinstance(evaluations, Evaluation) else evaluations
    if not several:
        raise ValueError("there is nothing to report: evaluations is empty")
    if Path(path).suffix.lower() not in ("", ".html", ".htm"):
        html = Path(path).with_suffix(".html")
        raise ValueError(f"{os.fspath(path)}: the report is an HTML file; write it to {html}")
    evaluated = []
    for name, evaluation in several.items():
        if evaluation.rule is None:
            raise ValueError(f"evaluation {name!r} has no rule: make it by Rule.evaluate")
        evaluated.append((str(name), evaluation.rule._inner, json.dumps(evaluation.to_dict())))
    _core.write_report(os.fspath(path), evaluated)


def _alike(names: list[str], labels: Any) -> list[Any]:
    """The names as numbers, if labels are numbers and the names can be."""
    try:
        numbers = [int(name) for name in names]
    except ValueError:
        return list(names)
    known = [] if labels is None else as_array(labels).ravel().tolist()
    return list(names) if any(isinstance(label, str) for label in known) else list(numbers)


def _staircase(thresholds: NDArray[np.float32]) -> str:
    """The thresholds over the steps, as a small drawing."""
    width, height = 480.0, 80.0
    step = width / len(thresholds)
    bars = "".join(
        f'<rect x="{i * step:.2f}" y="{height * (1 - value):.2f}" '
        f'width="{step:.2f}" height="{max(1.0, height * value):.2f}">'
        f"<title>step {i + 1}: {value:g}</title></rect>"
        for i, value in enumerate(thresholds)
        if np.isfinite(value)
    )
    return (
        f'<svg viewBox="0 0 {width:g} {height + 16:g}" style="width: 100%" role="img" '
        f'aria-label="thresholds by step"><g fill="#4477aa">{bars}</g>'
        f'<line x1="0" x2="{width:g}" y1="{height}" y2="{height}" stroke="currentColor"/>'
        f'<text x="0" y="{height + 13:g}" font-size="11" fill="currentColor">threshold by step, '
        f"1 to {len(thresholds)}; blank is never</text></svg>"
    )
