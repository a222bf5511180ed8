#!/usr/bin/env python3
"""Checks the map, the rooms of the heart, and the length of all source files.

Every path between backticks in ARCHITECTURE.md must exist, and every crate must have a row.

The rooms are the folders of crates/haltwise/src, in the order of the map in ARCHITECTURE.md. A
file may import from its own room and from those before it.

A source file in Rust, Python or JavaScript, its tests aside, has at most 700 lines, or a line
`// Longer than 700 lines: …` that says why.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEART = ROOT / "crates/haltwise/src"
MOST_LINES = 700
SOURCES = (
    "crates/*/src/**/*.rs",
    "python/src/**/*.rs",
    "python/haltwise/**/*.py",
    "bench/**/*.py",
    "scripts/*.py",
    "web/npm/*.js",
    "web/site/*.js",
)
# A path on the map begins in one of these, or in a crate or the folder of a path on its line.
BEGINNINGS = (ROOT, ROOT / "crates", HEART, HEART.parent, ROOT / "crates/haltwise-serve/src")
# What stands at the root of the crate.
ROOT_FILES = {"lib", "calibrate"}


def section(name: str) -> str:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    return text.split(f"\n## {name}\n")[1].split("\n## ")[0]


def rooms_on_the_map() -> list[str]:
    return re.findall(r"^\| `(\w+)/` \|", section("The rooms of the heart"), re.M)


def check_paths():
    """The paths of the map that do not exist."""
    for number, line in enumerate((ROOT / "ARCHITECTURE.md").read_text().splitlines(), 1):
        crates = [ROOT / "crates" / name / "src" for name in re.findall(r"`(haltwise-\w+)`", line)]
        places = [*crates, *BEGINNINGS]
        for path in re.findall(r"`([\w.-]+/[\w./-]*|[\w-]+\.(?:rs|py|md|js|toml))`", line):
            found = [place / path for place in places if (place / path).exists()]
            if not found:
                yield f"ARCHITECTURE.md:{number}: there is no {path}"
            for place in found:
                places.insert(0, place if place.is_dir() else place.parent)


def check_crates():
    """The crates without a row of their own."""
    cells = re.findall(r"^\| (`.*?) \|", section("Crates"), re.M)
    rows = {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)}
    crates = {path.name for path in (ROOT / "crates").iterdir() if path.is_dir()}
    for crate in sorted(crates - rows):
        yield f"ARCHITECTURE.md: no row for the crate {crate}"
    for crate in sorted(rows - crates):
        yield f"ARCHITECTURE.md: there is no crate {crate}"


def imports(path: Path):
    """The rooms that a file names, with the lines."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.lstrip().startswith("//"):
            for room in re.findall(r"\bcrate::(\w+)", line):
                yield number, room


def check_directions(order: list[str]) -> list[str]:
    place = {room: i for i, room in enumerate(order)}
    place["calibrate"] = place["certify"]
    faults = []
    for path in sorted(HEART.rglob("*.rs")):
        own = path.relative_to(HEART).parts[0].removesuffix(".rs")
        if own == "lib":
            continue
        for number, room in imports(path):
            if room not in place:
                faults.append(f"{path.relative_to(ROOT)}:{number}: name the room, not crate::{room}")
            elif place[room] > place[own]:
                faults.append(
                    f"{path.relative_to(ROOT)}:{number}: {own} comes before {room} and must not "
                    "import it"
                )
    return faults


def check_map(order: list[str]) -> list[str]:
    folders = {path.name for path in HEART.iterdir() if path.is_dir()}
    files = {path.stem for path in HEART.glob("*.rs")}
    faults = [f"ARCHITECTURE.md: no row for the room {room}" for room in sorted(folders - set(order))]
    faults += [f"ARCHITECTURE.md: there is no room {room}" for room in order if room not in folders]
    faults += [
        f"crates/haltwise/src/{name}.rs: put it into a room"
        for name in sorted(files - set(ROOT_FILES))
    ]
    return faults


def is_test(path: Path) -> bool:
    return path.stem == "tests" or "tests" in path.parts


def check_lengths() -> list[str]:
    faults = []
    files = {path for pattern in SOURCES for path in ROOT.glob(pattern)}
    for path in sorted(path for path in files if not is_test(path)):
        text = path.read_text().split("#[cfg(test)]\nmod tests {")[0]
        lines = text.count("\n")
        name = path.relative_to(ROOT).as_posix()
        if lines <= MOST_LINES or re.search(r"^(//|#) Longer than 700 lines: ", text, re.M):
            continue
        faults.append(
            f"{name}: {lines} lines; split it by what it does, or say why not "
            "in a line `Longer than 700 lines: …`"
        )
    return faults


def main() -> int:
    order = rooms_on_the_map()
    faults = check_map(order) or check_directions(order)
    faults += [*check_paths(), *check_crates()]
    faults += check_lengths()
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
