"""What the border between Python and Rust costs, for 100,000 sequences of 100 steps:
the same arrays to the same rule, in Rust alone and through the wheel.

    make bench-python
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import haltwise

ROOT = Path(__file__).resolve().parents[2]
N, T, ROUNDS, RUNS = 100_000, 100, 4, 10


def wheel(call) -> tuple[float, float]:
    """Milliseconds: of the fastest run, and of processor time for each."""
    took, before = [], time.process_time()
    for _ in range(RUNS):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return 1e3 * min(took), 1e3 * (time.process_time() - before) / RUNS


def rust(command: list[str]) -> tuple[float, float]:
    """The same of the Rust program, less what it takes to start and to read."""

    def run(times: int) -> tuple[float, float]:
        before = os.times()
        fastest = float(subprocess.check_output([*command, str(times)], cwd=ROOT))
        after = os.times()
        used = after.children_user - before.children_user
        return fastest, used + after.children_system - before.children_system

    (_, once), (fastest, often) = run(1), run(1 + RUNS)
    return fastest, 1e3 * (often - once) / RUNS


def main() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=N, dtype=np.uint32)
    scores = np.linspace(0.2, 0.9, T, dtype=np.float32) + rng.normal(0, 0.1, (N, T))
    scores = scores.clip(0, 1).astype(np.float32)
    right = rng.random((N, T), np.float32) < 0.4 + 0.6 * scores
    predictions = np.where(right, labels[:, None], (labels[:, None] + 1) % 10).astype(np.uint32)
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, array in [("scores", scores), ("predictions", predictions), ("labels", labels)]:
            files.append(f"{folder}/{name}")
            array.tofile(files[-1])
        example = ["cargo", "run", "-q", "--release", "-p", "haltwise-io", "--example"]
        run = [*example, "calibrate_arrays", "--", *files, str(T)]
        wide, double = predictions.astype(np.int64), scores.astype(np.float64)
        ways = {
            "wheel, float32 and uint32": lambda: calibrate(scores, predictions, labels),
            "wheel, float32 and int64": lambda: calibrate(scores, wide, labels),
            "wheel, float64 and int64": lambda: calibrate(double, wide, labels),
        }
        subprocess.check_output([*run, "1"], cwd=ROOT)
        took = {way: [] for way in ("Rust alone", *ways)}
        # In turns, so that a machine that changes its pace does so for all.
        for _ in range(ROUNDS):
            took["Rust alone"].append(rust(run))
            for way, call in ways.items():
                took[way].append(wheel(call))
    print(f"{N:,} sequences of {T} steps, arrays to conditional rule, {ROUNDS} × {RUNS} runs")
    print(f"{'':<28}{'fastest run':>16}{'processor time, best round':>32}")
    fastest, used = (min(times) for times in zip(*took["Rust alone"], strict=True))
    for way, times in took.items():
        wall, cpu = (min(column) for column in zip(*times, strict=True))
        against = f"{wall:8.1f} ms {wall / fastest - 1:+6.1%}{cpu:20.1f} ms {cpu / used - 1:+6.1%}"
        print(f"{way:<28}{against}")


def calibrate(*arrays) -> None:
    haltwise.calibrate(*arrays, method="conditional")


if __name__ == "__main__":
    main()
