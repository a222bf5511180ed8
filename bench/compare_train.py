"""Runs `bench_train` and `pytorch_train.py` in turn, shape by shape, for several
rounds. Prints the best of each and the ratio. Needs no packages itself.

    python bench/compare_train.py --python PYTHON-WITH-TORCH [--rounds 3]
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SHAPES = ["(8, 2, 10, 32, 1)", "(23, 10, 9, 32, 1)", "(46, 1, 24, 32, 1)", "(206, 3, 6, 256, 2)"]
TARGETS = [(8, 4), (6, 3), (5, 3), (2, 1.7)]


def run(command):
    out = subprocess.run(command, cwd=HERE.parent, check=True, capture_output=True, text=True)
    return json.loads(out.stdout.strip().splitlines()[-1])


def better(best, new):
    if best is None:
        return new
    merged = dict(new)
    merged["ms_per_step"] = min(best["ms_per_step"], new["ms_per_step"])
    for key in ("scored_per_s", "train_of_peak", "score_of_peak"):
        if key in new:
            merged[key] = max(best[key], new[key])
    return merged


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    cargo = ["cargo", "run", "--release", "-q", "-p", "haltwise-lstm", "--example", "bench_train"]
    ours, theirs = [None] * 4, [None] * 4
    for _ in range(arguments.rounds):
        for shape in range(4):
            flag = ["--shape", str(shape)]
            ours[shape] = better(ours[shape], run([*cargo, "--", "--json", *flag]))
            command = [arguments.python, str(HERE / "pytorch_train.py"), *flag]
            theirs[shape] = better(theirs[shape], run(command))
    print("shape (T, d, K, H, L)   train ms: ours  torch  ratio (want)  peak |"
          " scored/s: ours   torch  ratio (want)  peak")
    for name, us, torch, want in zip(SHAPES, ours, theirs, TARGETS):
        train = torch["ms_per_step"] / us["ms_per_step"]
        score = us["scored_per_s"] / torch["scored_per_s"]
        print(
            f"{name:<24} {us['ms_per_step']:>13.3f} {torch['ms_per_step']:>6.2f} "
            f"{train:>5.1f}x ({want[0]}x) {us['train_of_peak']:>7.0%} | "
            f"{us['scored_per_s']:>13.0f} {torch['scored_per_s']:>7.0f} "
            f"{score:>5.1f}x ({want[1]}x) {us['score_of_peak']:>6.0%}"
        )


if __name__ == "__main__":
    main()
