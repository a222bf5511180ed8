"""What the border between Python and Rust costs, for 100,000 sequences of 100 steps:
the same arrays to the same rule, in Rust alone and through the wheel.

    make bench-python
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import haltwise

ROOT = Path(__file__).resolve().parents[2]
N, T, METHOD = 100_000, 100, "conditional"


def best(run, times: int = 10) -> float:
    """Milliseconds, the smallest of several runs."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        took.append(1e3 * (time.perf_counter() - start))
    return min(took)


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
        # Twice with the wheel in between, so that a machine that changes its pace shows.
        rust = [float(subprocess.check_output(run, cwd=ROOT))]
        python = best(lambda: haltwise.calibrate(scores, predictions, labels, method=METHOD))
        rust.append(float(subprocess.check_output(run, cwd=ROOT)))
    alone = min(rust)
    print(f"{N:,} sequences of {T} steps, arrays to conditional rule, best of 10")
    print(f"Rust alone                        {alone:8.1f} ms (runs: {rust[0]:.1f}, {rust[1]:.1f})")
    print(f"wheel, float32 and uint32         {python:8.1f} ms, {python / alone - 1:+.1%}")
    wide = predictions.astype(np.int64)
    took = best(lambda: haltwise.calibrate(scores, wide, labels, method=METHOD))
    print(f"wheel, float32 and int64          {took:8.1f} ms, {took / alone - 1:+.1%}")
    double = scores.astype(np.float64)
    took = best(lambda: haltwise.calibrate(double, wide, labels, method=METHOD))
    print(f"wheel, float64 and int64          {took:8.1f} ms, {took / alone - 1:+.1%}")


if __name__ == "__main__":
    main()
