"""Votes of a language model as traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from . import _core
from .traces import Traces


def votes(
    answers: Iterable[Sequence[Any]],
    labels: Iterable[Any] | None = None,
    *,
    ids: Iterable[str | int] | None = None,
) -> Traces:
    """Traces of votes: the answers of a language model that was asked each question several
    times.

    A vote is a step. The prediction is the answer with the most votes so far, the first of
    equals. The score is the probability that it still leads when all votes are in.

    Parameters
    ----------
    answers : sequence of n sequences of N answers
        The votes on each question, in the order they were cast. Every question has the
        same number of votes, at most 100. Answers that are written the same are the same
        vote. ``None`` and ``""`` are no answer: such a vote counts, but leads only if no vote
        has an answer.
    labels : sequence of n answers, or None
        The right answers. Without them, calibrate with ``loss="disagreement"``; the rule
        then promises agreement with the majority of all votes.
    ids : sequence of str or int, or None
        The names of the questions, as for :class:`Traces`.

    Examples
    --------
    >>> traces = votes([["7", "7", "8"], ["3", None, "4"]], labels=["7", "4"])
    >>> traces
    Traces(2 sequences of 3 steps)
    >>> traces.predictions
    array([[1, 1, 1],
           [1, 1, 1]], dtype=uint32)
    >>> [round(float(score), 2) for score in traces.scores[0]]
    [0.83, 1.0, 1.0]
    """
    cast = written_rows(answers, "question")
    if not cast:
        raise ValueError("answers are missing: give the votes on each question")
    for i, row in enumerate(cast, start=1):
        if len(row) != len(cast[0]):
            raise ValueError(
                f"question {i} has {len(row)} votes, but question 1 has {len(cast[0])}; "
                "give the same number on every question"
            )
    right = right_answers(labels, len(cast), "question")
    scores, predictions, classes = _core.count_votes(cast, right)
    return Traces(scores, predictions, None if right is None else classes, ids=ids)


def written(answers: Iterable[Any]) -> list[str]:
    """Answers as they are compared; no answer is empty."""
    # In pandas, NaN means nothing.
    return ["" if answer is None or answer != answer else str(answer) for answer in answers]


def written_rows(rows: Iterable[Iterable[Any]], what: str) -> list[list[str]]:
    """The answers of each question or thought, as they are compared."""
    found = []
    for i, row in enumerate(rows, start=1):
        if isinstance(row, str) or not isinstance(row, Iterable):
            raise ValueError(
                f"answers: those of {what} {i} are {row!r}; give a list of answers for each {what}"
            )
        found.append(written(row))
    return found


def right_answers(labels: Iterable[Any] | None, n: int, what: str) -> list[str] | None:
    """The right answers to n questions, or None if they are not known."""
    if labels is None:
        return None
    right = written(labels)
    if len(right) != n:
        raise ValueError(f"{len(right)} labels for {n} {what}s")
    if "" in right:
        raise ValueError(f"labels: that of {what} {right.index('') + 1} is empty")
    return right
