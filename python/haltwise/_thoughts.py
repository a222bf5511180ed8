"""Thoughts of a reasoning model as traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from . import _core
from ._votes import right_answers, written_rows
from .traces import Traces


def thoughts(
    answers: Iterable[Sequence[Any]],
    labels: Iterable[Any] | None = None,
    *,
    tokens: Iterable[Sequence[float]] | None = None,
    questions: Iterable[str | int] | None = None,
    ids: Iterable[str | int] | None = None,
) -> Traces:
    """Traces of thoughts: the answers of a reasoning model that was asked for its answer again
    and again while it was thinking.

    Such a probe is a step. The prediction is the answer that it gave. The score of an answer
    that c probes have given so far is c / (c + 1); that of no answer is 0.

    Parameters
    ----------
    answers : sequence of n sequences of answers
        The answers to the probes of each thought, in their order; the last one is the answer
        after the whole thought. Answers that are written the same are the same answer.
        ``None`` and ``""`` are no answer.
    labels : sequence of n answers, or None
        The right answers. Without them, calibrate with ``loss="disagreement"``; the rule
        then promises agreement with the answer after the whole thought.
    tokens : sequence of n sequences of numbers, or None
        The tokens that each step took, for ``cost="cost"``: those of the thought since the
        probe before, and those of the probe.
    questions : sequence of n names, or None
        The question of each thought, for ``unit="question"``. Thoughts about the same
        question are tied: if there are several per question, calibrate by unit.
    ids : sequence of str or int, or None
        The names of the thoughts, as for :class:`Traces`.

    Examples
    --------
    >>> traces = thoughts([["", "7", "7"], ["3", "4"]], labels=["7", "3"],
    ...                   tokens=[[256, 256, 90], [256, 31]])
    >>> traces
    Traces(2 sequences of up to 3 steps)
    >>> traces.predictions
    array([[0, 1, 1],
           [1, 2, 0]], dtype=uint32)
    >>> [round(float(score), 2) for score in traces.scores[0]]
    [0.0, 0.5, 0.67]
    """
    probes = written_rows(answers, "thought")
    if not probes:
        raise ValueError("answers are missing: give the answers to the probes of each thought")
    right = right_answers(labels, len(probes), "thought")
    scores, predictions, lengths, classes = _core.count_thoughts(probes, right)
    columns: dict[str, Any] = {}
    if tokens is not None:
        per_thought = list(tokens)
        if not all(isinstance(row, Iterable) for row in per_thought):
            raise ValueError("tokens: give a list of numbers for each thought, one for each answer")
        spent = [list(row) for row in per_thought]
        if [len(row) for row in spent] != lengths.tolist():
            raise ValueError("tokens: give one number for each answer of each thought")
        columns["cost"] = spent
    if questions is not None:
        names = list(questions)
        if len(names) != len(probes):
            raise ValueError(f"{len(names)} questions for {len(probes)} thoughts")
        columns["question"] = names
    known = None if right is None else classes
    return Traces(scores, predictions, known, lengths=lengths, ids=ids, columns=columns or None)
