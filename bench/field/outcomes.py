"""What a method did to new series, and the settings that all are asked for."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from sets import Split

ALPHAS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4)
#: The prices of time: what it costs to read a whole series, beside one for a wrong answer.
WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Outcome:
    """What a method did to the new series at one setting of its knob."""

    knob: str
    accuracy: float
    full_accuracy: float
    earliness: float
    gap: float
    #: The largest gap among those halted by any checkpoint.
    worst_gap: float
    fit_s: float | None = None
    predict_s: float | None = None


def outcome(
    of: Split,
    knob: str,
    at: np.ndarray,
    said: np.ndarray,
    full: np.ndarray,
    fit_s: float | None = None,
    predict_s: float | None = None,
) -> Outcome:
    """`at` is the checkpoint, from 0, at which each series halted. `said` and `full` are the
    answers there and at full length. A series read to its end loses nothing, however ties are
    broken."""
    points = np.array(of.points)
    right = said == of.truth
    lost = (at < len(points) - 1) & (full == of.truth) & ~right
    by = [lost[at <= t].mean() for t in range(len(points)) if (at <= t).any()]
    return Outcome(
        knob,
        float(right.mean()),
        float((full == of.truth).mean()),
        float(points[at].mean() / points[-1]),
        float(lost.mean()),
        float(max(by)),
        fit_s,
        predict_s,
    )


class Clock:
    def __init__(self) -> None:
        self.start = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        passed, self.start = now - self.start, now
        return passed


def shares_of(of: Split) -> np.ndarray:
    """The share of a series that has been read at each checkpoint."""
    return np.array(of.points) / of.points[-1]


def price(weight: float) -> str:
    """The knob of a method that is told a price."""
    return f"w {weight:g}"


def same(at: np.ndarray, theirs: np.ndarray, labels: np.ndarray, said: np.ndarray) -> None:
    if not (np.array_equal(at, theirs) and np.array_equal(labels, np.asarray(said).astype(int))):
        raise AssertionError("the sweep does not decide as the peer itself does")
