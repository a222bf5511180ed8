"""Reading articles: when does a language model know the answer, and what is one draw?"""

import os
from pathlib import Path

import haltwise
import matplotlib.pyplot as plt
import numpy as np

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))
data = Path(os.environ["HALTWISE_DATA"]) / "quality/two_choice.qwen2.5-1.5b.traces.npz"
recorded = np.load(data)
probs, labels, article = recorded["probs"], recorded["labels"], recorded["article"]

# Whole articles test: 15 of 50.
articles = np.random.default_rng(0).permutation(np.unique(article))
new = np.isin(article, articles[:15])
print(f"{(~new).sum()} questions on 35 articles calibrate, {new.sum()} on 15 others test")

# One rule counts every question as a draw. The other counts every article, as the world draws
# them: questions on one article are easy or hard together.
asked = {"promise": "average", "alpha": 0.2, "delta": 0.1}
rules = {
    "by question": haltwise.calibrate(probs=probs[~new], labels=labels[~new], **asked),
    "by article": haltwise.calibrate(
        probs=probs[~new], labels=labels[~new], unit=article[~new], **asked
    ),
}
figure, (left, right) = plt.subplots(1, 2)
traces = haltwise.Traces(probs=probs[new], labels=labels[new], columns={"unit": article[new]})
lost, tenths = {}, np.arange(1, 11)
for name, rule in rules.items():
    steps, result = rule.halt(probs=probs[new]), rule.evaluate(traces)
    lost[name], (low, high) = result.gap, result.gap_interval
    print(f"{name}: reads {steps.mean() / 10:.0%} of an article, ", end="")
    print(f"loses a right answer for {result.gap:.1%} ({low:.1%} to {high:.1%})")
    left.step(tenths, [(steps <= t).mean() for t in tenths], where="post", label=name)

left.set(title="Questions answered", xlabel="tenths of the article read", ylim=(0, 1.05))
left.legend(loc="lower right")
right.bar(list(lost), list(lost.values()), width=0.5, color=["C0", "C1"])
right.axhline(0.2, color="0.5", linestyle="--", label="α")
right.set(title="New questions that lose a right answer", ylim=(0, 0.25))
right.legend()
figure.savefig("documents.svg", metadata={"Date": None})
