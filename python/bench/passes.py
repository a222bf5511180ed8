"""What users wait for, in units of what NumPy needs to go through the same arrays once: to sum the
scores and to compare the predictions with the labels.

    make bench-python

Arguments: how many sequences (a million), how many rounds (5), and how many of those with the
method adaptive (1).
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import haltwise

STEPS = 100


def arrays(n: int) -> tuple[Any, Any, Any]:
    """Scores, predictions and labels: right as often as the score says, more or less."""
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=n, dtype=np.int32)
    scores = np.empty((n, STEPS), np.float32)
    predictions = np.empty((n, STEPS), np.int32)
    rising = np.linspace(0.2, 0.9, STEPS, dtype=np.float32)
    for start in range(0, n, 20_000):
        rows = slice(start, start + 20_000)
        shape = (len(labels[rows]), STEPS)
        noise = np.float32(0.1) * rng.standard_normal(shape, np.float32)
        scores[rows] = (rising + noise).clip(0, 1)
        right = rng.random(shape, np.float32) < 0.4 + 0.6 * scores[rows]
        one = labels[rows, None]
        predictions[rows] = np.where(right, one, (one + 1) % 10)
    return scores, predictions, labels


def once(call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of one call, and of processor time."""
    start, used = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - used


def mebibytes(field: str) -> int:
    """What the system says of this process; 0 where it says nothing."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    found = [int(line.split()[1]) for line in lines if line.startswith(field)]
    return found[0] // 1024 if found else 0


def main(n: int = 1_000_000, rounds: int = 5, adaptive: int = 1) -> None:
    warnings.simplefilter("ignore")
    scores, predictions, labels = arrays(n)
    held = (scores.nbytes + predictions.nbytes) // 2**20

    def calibrate(method: haltwise.calibration.Method) -> haltwise.Rule:
        return haltwise.calibrate(scores, predictions, labels, method=method)

    def passes() -> None:
        scores.sum()
        _ = predictions == labels[:, None]

    marginal, conditional = calibrate("marginal"), calibrate("conditional")
    ways: dict[str, Callable[[], Any]] = {
        "calibrate, marginal": lambda: calibrate("marginal"),
        "calibrate, conditional": lambda: calibrate("conditional"),
        "halt, marginal": lambda: marginal.halt(scores),
        "halt, conditional": lambda: conditional.halt(scores),
        "evaluate, marginal": lambda: marginal.evaluate(scores, predictions, labels),
        "evaluate, conditional": lambda: conditional.evaluate(scores, predictions, labels),
    }
    numpy = []
    took: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    # In turns, so that a machine that changes its pace does so for all.
    for _ in range(rounds):
        numpy.append(once(passes))
        for way, call in ways.items():
            took[way].append(once(call))
    peak = mebibytes("VmHWM")
    if adaptive:
        learned = calibrate("adaptive")
        later: dict[str, Callable[[], Any]] = {
            "calibrate, adaptive": lambda: calibrate("adaptive"),
            "evaluate, adaptive": lambda: learned.evaluate(scores, predictions, labels),
        }
        for way, call in later.items():
            took[way] = [once(call) for _ in range(adaptive)]
    floor = min(wall for wall, _ in numpy)
    print(f"{n:,} sequences of {STEPS} steps, float32 and int32, {rounds} rounds")
    print(f"NumPy's two passes: {1e3 * floor:.0f} ms (median ", end="")
    print(
        f"{1e3 * statistics.median(wall for wall, _ in numpy):.0f}); the arrays {held} MiB, ",
        end="",
    )
    print(f"the process at most {peak} MiB")
    print(f"{'':<26}{'fastest':>10}{'median':>10}{'processor':>12}{'of passes':>12}")
    for way, times in took.items():
        walls, used = zip(*times, strict=True)
        fastest, median = min(walls), statistics.median(walls)
        print(
            f"{way:<26}{1e3 * fastest:7.0f} ms{1e3 * median:7.0f} ms{1e3 * min(used):9.0f} ms",
            end="",
        )
        print(f"{fastest / floor:12.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
