"""A stream that drifts: the promise is watched, and an alarm says when it is void."""

import zlib
from pathlib import Path

import haltwise
import matplotlib.pyplot as plt
import numpy as np
from pyarrow import parquet

here = Path(__file__).resolve().parent
plt.style.use(here / "gallery.mplstyle")

# The built-in strokes, and the classifier that `haltwise demo` trained.
packed = (here / "../../crates/haltwise-io/data/pendigits.z").read_bytes()
columns = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(17, -1)
strokes, digits = columns[:16].T.reshape(-1, 8, 2).astype(np.float32), columns[16]
model = haltwise.Model.load("demo/model.safetensors")


def traces(part, degrees):
    """What the classifier says about strokes on a tablet turned by this angle."""
    ids = parquet.read_table(f"demo/{part}.parquet", columns=["id"])["id"].to_pylist()
    rows = [int(id.split(":")[1]) - 1 for id in ids]
    turn = np.exp(1j * np.deg2rad(degrees))
    turned = np.array([[turn.real, turn.imag], [-turn.imag, turn.real]], np.float32)
    return model.score(((strokes[rows] - 50) @ turned + 50).transpose(0, 2, 1), digits[rows])


def calibrated(degrees, delta):
    return haltwise.calibrate(
        traces("certifying", degrees), fit=traces("screening", degrees), alpha=0.1, delta=delta
    )


# After 733 audits somebody turns the tablet by 25 degrees. The classifier does not know, and is
# as sure of itself as before.
rule = calibrated(0, delta=0.01)
before, after = traces("test", 0), traces("test", 25)
monitor, evidence, alarm = haltwise.Monitor(rule, delta=0.01), [], None
for stream in (before, after):
    for i in range(len(stream)):
        monitor.add(stream[i : i + 1])
        evidence.append(monitor.e_value)
        if monitor.alarm and alarm is None:
            alarm = len(evidence)

for name, stream in {"before": before, "after": after}.items():
    print(f"{name}: right answers lost {rule.evaluate(stream).gap:.1%}; promised at most 10%")
print(f"alarm after {alarm} audits, {alarm - len(before)} of them on the turned tablet")

# Traces of the turned tablet make a new rule. It is the second, so it gets a third of δ.
renewed = calibrated(25, delta=0.01 / 3).evaluate(after)
print(f"a new rule: reads {renewed.t_avg:.0%} of a stroke, loses {renewed.gap:.1%}")

figure, ax = plt.subplots()
ax.semilogy(np.arange(1, alarm + 1), evidence[:alarm])
ax.axhline(1 / 0.01, color="0.5", linestyle="--", label="alarm: 1/δ")
ax.axvline(len(before), color="C1", linestyle=":", label="the tablet is turned")
ax.set(title="Evidence against the promise", xlabel="audits", ylabel="e-value")
ax.legend(loc="center left")
figure.savefig("drift.svg", metadata={"Date": None})
