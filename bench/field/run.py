"""Early classifiers side by side: aeon's, sktime's and Haltwise's, on sets of the UCR archive.

    python bench/field/run.py bench/field/results.csv [--sets ECG5000 …] [--seeds 0 1]
        [--methods "aeon TEASER" …] [--again haltwise] [--minutes 60] [--trees 88]

The script does not repeat rows that the file has, so a stopped run resumes. After a change of a
package, `--again PACKAGE` drops its rows first. Methods of packages that are not installed are
skipped by name. The seeds determine everything except the times. Put rows of other forests
(`--trees`) into another file, because the rows do not say which forest they used.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path

from methods import Forest, Task, quiet, tasks
from rows import Rows
from sets import KEPT_BACK, SETS, pooled, split, synthetic


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--sets", nargs="+", default=(*SETS, *KEPT_BACK))
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--again", choices=["haltwise", "aeon", "sktime", "tslearn"])
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no task later")
    parser.add_argument("--methods", nargs="+", help="those that give these rows only")
    parser.add_argument("--trees", type=int, default=Forest.usual, help="of each forest")
    asked = parser.parse_args(arguments)
    Forest.usual = asked.trees
    quiet()
    rows = Rows(asked.results)
    if asked.again:
        rows.forget({name for t in tasks() if t.package == asked.again for name, _ in t.rows})
    able = []
    for task in tasks():
        if asked.methods and not set(asked.methods) & set(names(task)):
            continue
        if importlib.util.find_spec(task.package):
            able.append(task)
        else:
            print(f"skipped, {task.package} is not installed: {', '.join(names(task))}")
    begin = time.monotonic()
    turns = [
        (turn, seed, name)
        for turn in sorted({task.turn for task in able})
        for seed in asked.seeds or sorted({seed for task in able for seed in task.seeds})
        for name in asked.sets
    ]
    for turn, seed, name in turns:
        due = (task for task in able if task.turn == turn and seed in task.seeds)
        missing = [task for task in due if not made(rows, task, name, seed)]
        if not missing:
            continue
        of = split(synthetic(name) if name.startswith("synthetic") else pooled(name), seed)
        for task in missing:
            start = time.monotonic()
            if start - begin > 60 * asked.minutes:
                print(f"stopped after {asked.minutes:g} minutes; run this again to go on")
                return
            rows.append(name, seed, task.run(of, seed))
            took = time.monotonic() - start
            print(f"seed {seed}  {name:28}{names(task)[0]:18}{took:6.1f} s", flush=True)


def made(rows: Rows, task: Task, name: str, seed: int) -> bool:
    return all((name, method, knob, seed) in rows.there for method, knob in task.rows)


def names(task: Task) -> list[str]:
    return list(dict.fromkeys(name for name, _ in task.rows))


if __name__ == "__main__":
    main()
