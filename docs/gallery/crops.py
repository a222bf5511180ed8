"""Crops from satellites: a promise on average may hide the crop that pays for it."""

import os
from pathlib import Path

import haltwise
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))
data = np.load(Path(os.environ["HALTWISE_DATA"]) / "Crop.npz")
X, y = data["X"][:, :, 0], data["y"]
train, calibration, new = np.split(np.random.default_rng(0).permutation(len(X)), 3)

# One forest per checkpoint. Any classifier with probabilities works.
checkpoints = [6, 10, 14, 18, 22, 26, 30, 34, 40, 46]
forests = [
    ExtraTreesClassifier(40, random_state=0).fit(X[train, :t], y[train]) for t in checkpoints
]


def probabilities(rows):
    said = [f.predict_proba(X[rows, :t]) for f, t in zip(forests, checkpoints, strict=True)]
    return np.stack(said, axis=1)


def lost_by_crop(rule):
    """For each crop, the share for which stopping early loses a right answer."""
    answers, steps = probs.argmax(axis=2), rule.halt(probs=probs)
    early, full = answers[np.arange(len(new)), steps - 1], answers[:, -1]
    gap = (full == y[new]) & (early != y[new])
    return np.array([gap[y[new] == crop].mean() for crop in range(24)]), gap.mean(), steps


probs, figure = probabilities(new), plt.figure()
ax = figure.subplots()
for k, (name, by) in enumerate({"for all together": None, "for every crop": "label"}.items()):
    rule = haltwise.calibrate(
        probs=probabilities(calibration), labels=y[calibration], promise="average", by=by
    )
    lost, gap, steps = lost_by_crop(rule)
    seen = np.take(checkpoints, steps - 1).mean()
    print(f"promised {name}: reads {seen:.0f} of 46 images, loses {gap:.1%}, ", end="")
    print(f"of the worst crop {lost.max():.1%}")
    ax.bar(np.arange(1, 25) + 0.4 * k, lost, width=0.4, label=f"promised {name}")

ax.axhline(0.1, color="0.5", linestyle="--", label="α")
ax.set(title="Right answers lost on new pixels, by crop", xlabel="crop", xticks=range(1, 25))
ax.legend()
figure.savefig("crops.svg", metadata={"Date": None})
