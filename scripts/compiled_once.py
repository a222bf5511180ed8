#!/usr/bin/env python3
"""Fails if building the wheel would compile a crate again that the Rust tests have compiled with
other features. The wheel's feature `as-tested` prevents that.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHEEL = ["build", "--manifest-path", "python/Cargo.toml", "--lib", "--features", "as-tested"]


def units(*command):
    """The units that a command would compile, each with its dependencies: name and version."""
    said = subprocess.run(
        [os.environ.get("CARGO", "cargo"), *command, "--unit-graph", "-Zunstable-options"],
        cwd=ROOT,
        env={**os.environ, "RUSTC_BOOTSTRAP": "1"},
        check=True,
        stdout=subprocess.PIPE,
    )
    graph = json.loads(said.stdout)["units"]
    known = {}

    def identity(i):
        if i not in known:
            unit, below = graph[i], [identity(d["index"]) for d in graph[i]["dependencies"]]
            own = [unit[k] for k in ("pkg_id", "target", "profile", "features", "mode")]
            # The profile of tests has another name, and the same settings.
            own[2] = {k: v for k, v in own[2].items() if k != "name"}
            known[i] = hash((json.dumps(own, sort_keys=True), *sorted(below)))
        return known[i]

    return {identity(i): unit["pkg_id"] for i, unit in enumerate(graph)}


def main():
    tests, wheel = units("test"), units(*WHEEL)
    packages = set(tests.values())
    twice = sorted({p for unit, p in wheel.items() if unit not in tests and p in packages})
    if twice:
        names = ", ".join(p.split("/")[-1] for p in twice)
        sys.exit(
            f"compiled for the tests and again for the wheel: {names}; "
            "see `as-tested` in python/Cargo.toml"
        )


if __name__ == "__main__":
    main()
