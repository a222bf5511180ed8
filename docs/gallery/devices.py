"""Household devices: which appliance is running, as early as a promise allows."""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from haltwise import EarlyClassifier, plot
from sklearn.ensemble import ExtraTreesClassifier

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))
data = np.load(Path(os.environ["HALTWISE_DATA"]) / "ElectricDevices.npz")
X, y = data["X"].transpose(0, 2, 1), data["y"]
# Some series are in the data twice. New series must be unseen.
_, once = np.unique(X, axis=0, return_index=True)
order = np.random.default_rng(0).permutation(once)
fit, new = order[:4000], order[4000:9000]

figure, (left, right) = plt.subplots(1, 2)
for promise in ("halted-by", "average"):
    forest = ExtraTreesClassifier(30, random_state=0)
    # Sets 30% of the series aside, trains on the others, and calibrates on those set aside.
    early = EarlyClassifier(forest, promise=promise, alpha=0.1, checkpoints=8, n_jobs=-1)
    early.fit(X[fit], y[fit])
    result = early.evaluate(X[new], y[new])
    worst = max(step["gap_by"] or 0 for step in result.by_step)
    accuracy = f"accuracy {result.early_accuracy:.1%} instead of {result.late_accuracy:.1%}"
    print(f"{promise}: reads {result.t_avg:.0%} of a series, {accuracy}")
    print(f"  loses {result.gap:.1%} of all, at most {worst:.1%} of those halted by any step")
    plot.halted_by_step(result, left, label=promise)
    plot.gap_by_step(result, right, label=promise)

left.set(title="Answered", xlabel="eighths of the series read")
right.axhline(0.1, color="0.5", linestyle="--", label="α")
right.set(
    title="Right answers lost so far",
    xlabel="eighths of the series read",
    ylabel="",
    ylim=(0, 0.12),
)
right.legend()
figure.savefig("devices.svg", metadata={"Date": None})
