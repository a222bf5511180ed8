"""The monitor beside MAPIE's, on the same streams.

    python bench/monitor.py docs/production.md

Audited streams halt at one of eight steps, all equally likely. Losses are drawn at a rate that may
change with the step or with time. Both monitors tolerate alpha = 10%, and give a false alarm with
probability at most 1%, over all time. MAPIE's `RiskMonitoring` (Podkopaev and Ramdas 2022) bounds the
mean of all losses since the beginning from below. Its threshold here is alpha, so that its whole
level goes into that bound. An alarm comes at the first stream after which the bound, or the e-value,
says so. The script replaces the text between the two comments that name it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import haltwise
import numpy as np
from mapie.exchangeability_testing import RiskMonitoring

ALPHA, DELTA, STEPS, MOST = 0.1, 0.01, 8, 20_000
LONG = 10_000


def rule() -> haltwise.Rule:
    """A rule that may halt at each of the eight steps. Predictions are wrong before the step at
    which the score rises, and right from then on."""
    rises = np.arange(18_000) % (STEPS + 1)
    risen = np.arange(STEPS + 1) >= rises[:, None]
    made = haltwise.calibrate(
        np.where(risen, 0.9, 0.1),
        risen.astype(int),
        np.ones(len(rises), int),
        method="conditional",
        alpha=ALPHA,
        seed=0,
    )
    if not np.isfinite(made.thresholds[:STEPS]).all():
        raise SystemExit("the rule does not halt at every step")
    return made


def ours(made: haltwise.Rule, steps: np.ndarray, losses: np.ndarray) -> float:
    monitor = haltwise.Monitor(made, delta=DELTA)
    for i, (step, loss) in enumerate(zip(steps.tolist(), losses.tolist(), strict=True)):
        name = str(i)
        monitor.begin(name)
        monitor.halt(name, step)
        if monitor.settle(name, loss):
            return i + 1
    return np.inf


def mapies(losses: np.ndarray, since: int) -> float:
    # It is slow, so try a part first: its verdict on a stream does not depend on later ones.
    n = since + 500
    while True:
        # Half of its level is for a reference set, and there is none.
        monitor = RiskMonitoring(
            "accuracy", test_level=2 * DELTA, threshold=ALPHA, warn=False
        )
        part = losses[:n]
        monitor.update(np.zeros(len(part), int), part.astype(int))
        above = monitor.online_risk_lower_bound_sequence_history > ALPHA
        if above.any():
            return int(above.argmax()) + 1
        if n >= len(losses):
            return np.inf
        n = 2 * n


def everywhere(rate: float):
    return lambda i, t: np.full(len(t), rate)


def jump(rate: float):
    return lambda i, t: np.where(i < LONG, 0.05, rate)


def early(i: np.ndarray, t: np.ndarray) -> np.ndarray:
    return np.where(t <= 2, 0.3, 0.02)


# The losses, the number of deployments, the streams of each, and when the drift begins.
CASES = [
    ("a gap of 15% from the start", everywhere(0.15), 101, MOST, 0),
    ("20%", everywhere(0.2), 101, MOST, 0),
    ("30%", everywhere(0.3), 101, MOST, 0),
    ("10,000 audits at 5%, then 20%", jump(0.2), 21, LONG + MOST, LONG),
    ("10,000 audits at 5%, then 30%", jump(0.3), 21, LONG + MOST, LONG),
    ("30% by step 2 of 8, 2% later: 9% in all", early, 21, MOST, 0),
]


def main(page: str) -> None:
    made = rule()
    rows = ["| drift | Haltwise | MAPIE |", "| --- | --- | --- |"]
    for name, truth, deployments, most, since in CASES:
        found = []
        for seed in range(deployments):
            rng = np.random.default_rng(seed)
            steps = rng.integers(1, STEPS + 1, most)
            losses = rng.random(most) < truth(np.arange(most), steps)
            found.append((ours(made, steps, losses), mapies(losses, since)))
        medians = np.median(found, axis=0) - since
        words = [f"{m:,.0f}" if np.isfinite(m) else "never" for m in medians]
        rows.append(f"| {name} | {words[0]} | {words[1]} |")
        print(rows[-1], flush=True)
    text = Path(page).read_text()
    begin, end = "<!-- made by bench/monitor.py -->\n", "\n<!-- end of bench/monitor.py -->"
    before, rest = text.split(begin)
    table = "\n".join(rows)
    Path(page).write_text(f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
