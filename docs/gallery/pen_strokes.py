"""Pen strokes: which digit is being written, before the pen is lifted."""

import zlib
from pathlib import Path

import haltwise
import matplotlib.pyplot as plt
import numpy as np
from haltwise import plot
from pyarrow import parquet

here = Path(__file__).resolve().parent
plt.style.use(here / "gallery.mplstyle")

# Traces that `haltwise demo` wrote, of strokes that did not train its classifier.
screening = haltwise.read_traces("demo/screening.parquet")
certifying = haltwise.read_traces("demo/certifying.parquet")
new = haltwise.read_traces("demo/test.parquet")

rule = haltwise.calibrate(certifying, fit=screening, alpha=0.1, delta=0.01)
result = rule.evaluate(new)
worst = max(step["gap_by"] or 0 for step in result.by_step)
print(rule.describe())
print(f"{result.n} new strokes: reads {result.t_avg:.0%} of a stroke, ", end="")
print(f"accuracy {result.early_accuracy:.1%} instead of {result.late_accuracy:.1%}")
print(f"right answers lost: {result.gap:.1%}; of those halted by any step at most {worst:.1%}")

# The built-in strokes: 17 columns, the points and the digit.
packed = (here / "../../crates/haltwise-io/data/pendigits.z").read_bytes()
columns = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(17, -1)
strokes, digits = columns[:16].T.reshape(-1, 8, 2), columns[16]
table = parquet.read_table("demo/test.parquet", columns=["id", "label"]).to_pydict()
steps = rule.halt(new.scores, probs=new.probs, predictions=new.predictions)

figure = plt.figure(figsize=(7, 4.2))
above, below = figure.subfigures(2, 1)
for ax, digit in zip(above.subplots(1, 10), range(10), strict=True):
    i = table["label"].index(digit)
    row = int(table["id"][i].split(":")[1]) - 1
    assert digits[row] == digit
    x, y = strokes[row].T
    ax.plot(x, y, color="#d9dee4", linewidth=2)
    ax.plot(x[: steps[i]], y[: steps[i]], color="C0", linewidth=2)
    ax.set(xlim=(-10, 110), ylim=(-10, 110), aspect="equal", title=f"{digit}")
    ax.axis("off")
left, right = below.subplots(1, 2)
plot.halted_by_step(result, left)
left.set(title="Strokes answered", xlabel="points seen")
plot.gap_by_step(result, right, alpha=rule.alpha)
right.set(title="Right answers lost so far", xlabel="points seen", ylabel="", ylim=(0, 0.12))
figure.savefig("pen_strokes.svg", metadata={"Date": None})
