"""The paper's Algorithms 1 and 2 as one would write them in NumPy or PyTorch, beside the
wheel, on the paper's ElectricDevices traces.

    make bench-python

Needs the golden files beside the folder that HALTWISE_DATA names. PyTorch is timed where
it is installed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
from scipy.stats import binom

import haltwise

ALPHA, DELTA, GRID = 0.1, 0.01, 0.01


class InNumPy:
    """Where sequences halt: the first step whose score reaches its threshold."""

    def __init__(self, scores):
        self.scores = scores

    def halt_steps(self, thresholds):
        reached = self.scores >= thresholds
        reached[:, -1] = True
        return reached.argmax(axis=1)


class InPyTorch:
    """The same with tensors."""

    def __init__(self, scores):
        import torch

        self.torch, self.scores = torch, torch.tensor(scores)

    def halt_steps(self, thresholds):
        reached = self.scores >= self.torch.tensor(thresholds)
        reached[:, -1] = True
        return reached.float().argmax(dim=1).numpy()


def counts(halting, right, thresholds, t):
    """How many halted by step t, and how many of those have a gap."""
    steps = halting.halt_steps(thresholds)
    early = right[np.arange(len(right)), steps]
    by_t = steps <= t
    return by_t.sum(), (right[by_t, -1] & ~early[by_t]).sum()


def screen(halting, right):
    """Algorithm 1: forward in time, the smallest threshold that keeps the gap."""
    steps = right.shape[1]
    found = np.full(steps, np.inf, np.float32)
    for t in range(steps):
        for threshold in np.arange(0, 1 + GRID / 2, GRID):
            found[t] = threshold
            halted, gaps = counts(halting, right, found, t)
            if halted and gaps / halted <= ALPHA:
                break
        else:
            found[t] = np.inf
    return found


def certify(halting, right, screened):
    """Algorithm 2: backward in time, until a test fails at any later step."""
    steps = right.shape[1]
    certified = np.full(steps, np.inf, np.float32)
    for opens in reversed(range(steps)):
        candidate = certified.copy()
        candidate[opens] = screened[opens]
        for t in range(opens, steps):
            halted, gaps = counts(halting, right, candidate, t)
            if not halted or binom.cdf(gaps, halted, ALPHA) > DELTA:
                return certified
        certified = candidate
    return certified


def main() -> None:
    data = os.environ.get("HALTWISE_DATA")
    golden = Path(data or "") / "../golden"
    if not data or not golden.is_dir():
        print("SKIPPED: no golden files; set HALTWISE_DATA to the folder beside them")
        return
    with np.load(golden / "ElectricDevices.traces.npz") as file:
        traces = haltwise.Traces(file["scores"], file["predictions"], file["labels"])
    with np.load(golden / "ElectricDevices.splits.npz") as file:
        rows = file["order"][0][int(file["n_test"]) :]
    screening, certifying = traces[rows[: len(rows) // 2]], traces[rows[len(rows) // 2 :]]

    took = []
    for _ in range(100):
        start = time.perf_counter()
        rule = haltwise.calibrate(certifying, screen=screening, method="conditional")
        took.append(time.perf_counter() - start)
    ours = min(took)
    print(f"ElectricDevices, {len(screening)} screen, {len(certifying)} certify, 96 steps")
    print(f"haltwise       {1e3 * ours:10.3f} ms, best of 100 (median {1e3 * np.median(took):.3f})")
    for name, kind in [("in NumPy", InNumPy), ("in PyTorch", InPyTorch)]:
        try:
            parts = [kind(part.scores) for part in (screening, certifying)]
        except (ImportError, OSError, ValueError) as error:
            print(f"{name}: cannot be loaded ({error})")
            continue
        right = [p.predictions == p.labels[:, None] for p in (screening, certifying)]
        start = time.perf_counter()
        screened = screen(parts[0], right[0])
        found = certify(parts[1], right[1], screened)
        theirs = time.perf_counter() - start
        assert np.array_equal(found, rule.thresholds), "the rules differ"
        print(f"{name:<15}{theirs:10.3f} s, {theirs / ours:,.0f} times as long, the same rule")


if __name__ == "__main__":
    main()
