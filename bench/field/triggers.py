"""When to stop, given the probabilities at every checkpoint.

CALIMERA and ECONOMY-gamma are not on PyPI; they are written from their papers. Both minimise what
the field calls the average cost: one for a wrong answer, and `weight` for a series that is read to
its end. They take the probabilities (n, checkpoints, classes) of training series that were left out,
those of new series, the share of a series that has been read at each checkpoint, and the weights.
For each weight they yield the checkpoint, from 0, at which each new series stops.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from outcomes import WEIGHTS, Outcome, outcome, price, shares_of
from scipy.linalg import cho_factor, cho_solve
from sets import Split
from sklearn.metrics.pairwise import rbf_kernel

THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
CONSECUTIVE = (1, 2)

#: The most groups that ECONOMY-gamma tries.
MOST_GROUPS = 10


def first(halts: np.ndarray) -> np.ndarray:
    """The first checkpoint of each row at which it halts, or the last."""
    halts = halts.copy()
    halts[:, -1] = True
    return halts.argmax(axis=1)


def settings() -> list[tuple[float, int]]:
    return [(threshold, consecutive) for consecutive in CONSECUTIVE for threshold in THRESHOLDS]


def threshold_halts(
    probs: np.ndarray, classes: np.ndarray, threshold: float, consecutive: int
) -> np.ndarray:
    """Where a threshold halts, given the probabilities (n, checkpoints, classes) and the predicted
    class at each checkpoint, with ties broken as the peer does."""
    n, steps = classes.shape
    sure = np.take_along_axis(probs, classes[:, :, None], axis=2)[:, :, 0] >= threshold
    count, last = np.zeros(n, int), np.zeros(n, int)
    halts = np.zeros((n, steps), bool)
    for t in range(steps):
        again = sure[:, t] & (classes[:, t] == last)
        count = np.where(again, count + 1, sure[:, t].astype(int))
        last = classes[:, t]
        halts[:, t] = count >= consecutive
    return first(halts)


def triggered(
    base: str, of: Split, known: np.ndarray, new: np.ndarray, **times: float
) -> Iterator[tuple[str, Outcome]]:
    """CALIMERA and ECONOMY-gamma on these probabilities."""
    shares = shares_of(of)
    classes, truth = np.unique(of.y, return_inverse=True)
    answers = classes[new.argmax(axis=2)]
    both = {
        "CALIMERA": calimera(known, new, shares, WEIGHTS),
        "ECONOMY": economy(known, truth, new, shares, WEIGHTS),
    }
    for name, found in both.items():
        for weight, at in found:
            said = answers[np.arange(len(at)), at]
            one = outcome(of, price(weight), at, said, answers[:, -1], **times)
            yield f"{base} {name}", one


def calimera(
    known: np.ndarray, new: np.ndarray, shares: np.ndarray, weights: tuple[float, ...]
) -> Iterator[tuple[float, np.ndarray]]:
    """CALIMERA (Bilski and Jastrzebska, 2023). From the last checkpoint back, a kernel ridge
    regression predicts how much the cost would rise by going on. Positive means stop."""
    steps = len(shares)
    seen, fresh = features(known), features(new)
    kernels = [rbf_kernel(seen[:, t]) for t in range(steps - 1)]
    factors = [cho_factor(kernel + np.eye(len(kernel))) for kernel in kernels]
    asked = [rbf_kernel(fresh[:, t], seen[:, t]) for t in range(steps - 1)]
    for weight in weights:
        costs = 1 - known.max(axis=2).astype(float) + weight * shares
        halts = np.ones(new.shape[:2], bool)
        for t in reversed(range(steps - 1)):
            solved = cho_solve(factors[t], costs[:, t + 1] - costs[:, t])
            later = kernels[t] @ solved < 0
            costs[later, t] = costs[later, t + 1]
            halts[:, t] = asked[t] @ solved > 0
        yield weight, first(halts)


def features(probs: np.ndarray) -> np.ndarray:
    """The probabilities, how far the largest is ahead, and the largest."""
    ordered = np.sort(probs, axis=2)
    ahead = ordered[:, :, -1:] - ordered[:, :, -2:-1]
    return np.concatenate([probs, ahead, ordered[:, :, -1:]], axis=2).astype(float)


def economy(
    known: np.ndarray,
    truth: np.ndarray,
    new: np.ndarray,
    shares: np.ndarray,
    weights: tuple[float, ...],
) -> Iterator[tuple[float, np.ndarray]]:
    """ECONOMY-gamma (Achenchabe et al., 2021; Zafar et al. for many classes). At each checkpoint
    the series are grouped by how sure the classifier is. The moves between groups, and how often
    each is wrong, give the cost expected at every later checkpoint. Stop if none is lower. The
    number of groups is the one that would have cost least on the known series."""
    several = known.shape[2] > 2
    sure, now = (p.max(axis=2) if several else p[:, :, 0] for p in (known, new))
    wrong = known.argmax(axis=2) != truth[:, None]
    # Of more groups than the root of the series there would be too few in each.
    most = min(MOST_GROUPS, int(np.sqrt(len(known))))
    plans = [Groups(sure, wrong, count) for count in range(1, most + 1)]
    rows = np.arange(len(known))
    for weight in weights:
        found = []
        for plan in plans:
            at = plan.halts(plan.members(sure), shares, weight)
            found.append((wrong[rows, at] + weight * shares[at]).mean())
        best = plans[int(np.argmin(found))]
        yield weight, best.halts(best.members(now), shares, weight)


class Groups:
    """So many groups at each checkpoint, of about equally many series."""

    def __init__(self, sure: np.ndarray, wrong: np.ndarray, count: int) -> None:
        edges = np.linspace(0, len(sure), count + 1)[1:-1].astype(int)
        self.count = count
        self.edges = np.sort(sure, axis=0)[edges]
        groups = self.members(sure)
        steps = sure.shape[1]
        self.errors = np.array([by_group(groups[:, t], wrong[:, t], count) for t in range(steps)])
        self.moves = [
            np.stack(
                [by_group(groups[:, t], groups[:, t + 1] == j, count) for j in range(count)], axis=1
            )
            for t in range(steps - 1)
        ]

    def members(self, sure: np.ndarray) -> np.ndarray:
        """The group of each series at each checkpoint."""
        return (sure[:, :, None] >= self.edges.T[None]).sum(axis=2)

    def halts(self, groups: np.ndarray, shares: np.ndarray, weight: float) -> np.ndarray:
        halts = np.zeros(groups.shape, bool)
        for t in range(len(shares)):
            likely, expected = np.eye(self.count), []
            for later in range(t, len(shares)):
                expected.append(likely @ self.errors[later] + weight * shares[later])
                if later < len(shares) - 1:
                    likely = likely @ self.moves[later]
            halts[:, t] = (np.argmin(expected, axis=0) == 0)[groups[:, t]]
        return first(halts)


def by_group(groups: np.ndarray, what: np.ndarray, count: int) -> np.ndarray:
    """The share of each group of which this is true; of an empty one, one in `count`."""
    members = np.bincount(groups, minlength=count)
    true = np.bincount(groups, weights=what, minlength=count)
    return np.where(members > 0, true / np.maximum(members, 1), 1 / count)
