"""Votes on grade-school sums: how many of thirteen are needed, without a single label?"""

import json
import os
from pathlib import Path

import haltwise
import matplotlib.pyplot as plt
import numpy as np

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))
data = Path(os.environ["HALTWISE_DATA"]) / "votes/gsm8k.qwen2.5-coder-1.5b.jsonl"
rows = [json.loads(line) for line in data.read_text().splitlines()]
order = np.random.default_rng(0).permutation(len(rows))
calibration, new = [rows[i] for i in order[:700]], [rows[i] for i in order[700:]]

# The rule never sees a right answer. It promises the majority of all thirteen.
asked = {"loss": "disagreement", "alpha": 0.1, "delta": 0.05}
rule = haltwise.calibrate(haltwise.votes([row["answers"] for row in calibration]), **asked)
print(rule.describe())

# 300 unseen questions.
answers, truth = [row["answers"] for row in new], [row["gold"] for row in new]
traces = haltwise.votes(answers)
steps = rule.halt(traces.scores, predictions=traces.predictions)
early = traces.predictions[np.arange(len(new)), steps - 1]
differ = early != traces.predictions[:, -1]
tokens = np.cumsum([row["tokens"] for row in new], axis=1)
spent = tokens[np.arange(len(new)), steps - 1]
print(f"{len(new)} new questions: {steps.mean():.1f} votes instead of 13")
print(f"tokens per question: {spent.mean():.0f} instead of {tokens[:, -1].mean():.0f}")
print(f"answers that differ from the majority of all: {differ.mean():.1%}")

# Beyond the promise: the labels show the effect on accuracy. The rule did not need them.
right = rule.evaluate(haltwise.votes(answers, truth))
print(f"accuracy: {right.early_accuracy:.1%} instead of {right.late_accuracy:.1%}")

figure, (left, middle) = plt.subplots(1, 2)
left.hist(steps, bins=np.arange(0.5, 14), rwidth=0.8)
left.set(title="Votes that were asked for", xlabel="votes", ylabel="questions")
by = np.arange(steps.min(), 14)
middle.plot(by, [differ[steps <= t].mean() for t in by], label="answers that differ")
middle.axhline(rule.alpha, color="0.5", linestyle="--", label="α, which is promised")
middle.set(title="Among those halted by a vote", xlabel="vote", ylim=(0, None))
middle.legend()
figure.savefig("votes.svg", metadata={"Date": None})
